/* Tokens over a real store: making, using, limiting, revoking, and the first admin's file. */
#include "common/base/limits.h"
#include "server/security/tokens/token_text.h"
#include "server/security/tokens/tokens.h"
#include "tests/server/store/support.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static const int64_t DAY_MS = (int64_t)24 * 60 * 60 * 1000;

struct world {
	struct support *support;
	struct store *store;
	struct tokens *tokens;
};

static void open_world(struct world *world, struct support *support)
{
	struct error error = {.status = STATUS_OK};
	*world = (struct world){.support = support};
	if (store_create(&world->store, &(struct store_params){.loop = support->loop, .directory = support->directory},
			 &error) ||
	    tokens_create(&world->tokens, world->store, NULL, &error))
		fail_msg("%s", error.message);
}

static void close_world(struct world *world)
{
	tokens_destroy(&world->tokens);
	store_destroy(&world->store);
}

static void reopen(struct world *world)
{
	struct support *support = world->support;
	close_world(world);
	open_world(world, support);
}

static struct {
	int made, revoked, ended;
	enum status status;
	char names[8][STORE_NAME_BYTES];
} seen;

static void was_made(void *context, enum status status, const struct token *token, const struct error *error)
{
	(void)error;
	seen.made++;
	seen.status = status;
	assert_true((token != NULL) == (status == STATUS_OK));
	if (token && context)
		*(const struct token **)context = token;
}

static void was_revoked(void *context, enum status status, const struct error *error)
{
	(void)context, (void)error;
	seen.revoked++;
	seen.status = status;
}

static void has_ended(void *context, struct token *token)
{
	(void)context;
	assert_true(token->revoked_ms > 0);
	snprintf(seen.names[seen.ended++ % 8], STORE_NAME_BYTES, "%s", token->name);
}

static enum status revoke_token(struct tokens *tokens, const char *token_id,
				void (*each)(void *context, struct token *token),
				void (*done)(void *context, enum status status, const struct error *error),
				void *context, struct error *error)
{
	const struct token_revoke_params params = {.each = each, .done = done, .context = context};
	return tokens_revoke(tokens, token_id, &params, error);
}

static struct token *make(struct world *world, const struct token_create_params *params, char text[TOKEN_TEXT_BYTES])
{
	struct error error = {.status = STATUS_OK};
	struct token *token = NULL;
	int before = seen.made;
	if (tokens_make(world->tokens, params, text, was_made, &token, &error))
		fail_msg("%s", error.message);
	struct token *early = NULL;
	assert_int_equal(tokens_authenticate(world->tokens, text, SCOPE_INFER, &early, NULL),
			 STATUS_UNAUTHENTICATED); // not on disk
	support_run_until(world->support->loop, &seen.made, before + 1);
	assert_int_equal(seen.status, STATUS_OK);
	assert_int_equal(tokens_authenticate(world->tokens, text, SCOPE_INFER, &early, NULL), STATUS_OK);
	assert_ptr_equal(early, token);
	return token;
}

static void scopes_have_names(void **state)
{
	(void)state;
	assert_int_equal(token_scope_parse("admin"), SCOPE_ADMIN);
	assert_int_equal(token_scope_parse("join"), SCOPE_JOIN);
	assert_int_equal(token_scope_parse("Admin"), 0);
	assert_int_equal(token_scope_parse(""), 0);
	uint32_t all = 0;
	for (unsigned bit = 0; token_scope_name(bit); bit++)
		all |= token_scope_parse(token_scope_name(bit));
	assert_int_equal(all, SCOPE_ALL);
	assert_null(token_scope_name(6));
	assert_null(token_scope_name(1000));
	const struct token admin = {.scopes = SCOPE_ADMIN}, some = {.scopes = SCOPE_OBSERVE | SCOPE_INFER};
	assert_true(token_allows(&admin, SCOPE_JOIN | SCOPE_ADMIN));
	assert_true(token_allows(&some, SCOPE_OBSERVE));
	assert_false(token_allows(&some, SCOPE_ADMIN));
	assert_false(token_allows(&some, SCOPE_OBSERVE | SCOPE_COMPUTE));
}

static void a_token_survives_a_restart(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	open_world(&world, *state);
	const struct token_create_params params = {
		.name = "laptop", .scopes = SCOPE_OBSERVE | SCOPE_INFER, .calls_per_s = 2.5, .max_sessions = 3};
	int64_t before = clock_wall_ms();
	struct token *token = make(&world, &params, text);
	assert_true(token->expires_ms >= before + 90 * DAY_MS && token->expires_ms <= clock_wall_ms() + 90 * DAY_MS);
	struct token copy = *token;
	reopen(&world);
	assert_int_equal(tokens_authenticate(world.tokens, text, SCOPE_INFER, &token, NULL), STATUS_OK);
	assert_memory_equal(token, &copy, sizeof copy);
	const struct token *listed = tokens_at(world.tokens, 0);
	assert_ptr_equal(listed, token);
	assert_null(tokens_at(world.tokens, 1));
	close_world(&world);
}

// The text of the secret is in none of the store's files.
static void no_secret_is_on_disk(void **state)
{
	struct support *support = *state;
	struct world world;
	char text[TOKEN_TEXT_BYTES], command[400];
	open_world(&world, support);
	make(&world, &(struct token_create_params){.name = "x", .scopes = SCOPE_OBSERVE}, text);
	char secret[TOKEN_SECRET_DIGITS + 1];
	snprintf(secret, sizeof secret, "%.*s", TOKEN_SECRET_DIGITS, text + 15);
	snprintf(command, sizeof command, "grep -rqF %s '%s'", secret, support->directory);
	assert_int_not_equal(system(command), 0);
	text[14] = 0;
	snprintf(command, sizeof command, "grep -rqF %s '%s'", text + 4, support->directory); // the id is
	assert_int_equal(system(command), 0);
	close_world(&world);
}

// A well-formed text with the id of one and the secret of another.
static void mix(const char *id_from, const char *secret_from, char mixed[TOKEN_TEXT_BYTES])
{
	const char *id, *secret;
	uint32_t crc = 0xffffffff;
	memcpy(mixed, secret_from, TOKEN_TEXT_LENGTH + 1);
	memcpy(mixed + 4, id_from + 4, TOKEN_ID_DIGITS);
	for (size_t byte = 0; byte < 58; byte++) {
		crc ^= (uint8_t)mixed[byte];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	crc = ~crc;
	for (int digit = 5; digit >= 0; digit--, crc /= 62)
		mixed[59 + digit] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[crc % 62];
	assert_int_equal(token_text_parse(mixed, &id, &secret), STATUS_OK);
}

static void wrong_tokens_are_told_nothing(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES], other[TOKEN_TEXT_BYTES], mixed[TOKEN_TEXT_BYTES];
	struct token *token;
	open_world(&world, *state);
	make(&world, &(struct token_create_params){.name = "x", .scopes = SCOPE_OBSERVE}, text);
	// A known id with another token's secret, and an unknown id, get one and the same answer.
	struct error wrong = {.status = STATUS_OK}, unknown = {.status = STATUS_OK}, mistyped = {.status = STATUS_OK};
	assert_int_equal(token_text_make(other), STATUS_OK);
	assert_int_equal(tokens_authenticate(world.tokens, other, SCOPE_INFER, &token, &unknown),
			 STATUS_UNAUTHENTICATED);
	assert_null(token);
	mix(text, other, mixed);
	assert_int_equal(tokens_authenticate(world.tokens, mixed, SCOPE_INFER, &token, &wrong), STATUS_UNAUTHENTICATED);
	assert_null(token);
	assert_string_equal(wrong.message, unknown.message);
	assert_string_equal(wrong.hint, unknown.hint);
	assert_non_null(strstr(wrong.hint, "--scopes infer")); // what it was wanted for
	text[20] = text[20] == 'a' ? 'b' : 'a';
	assert_int_equal(tokens_authenticate(world.tokens, text, SCOPE_INFER, &token, &mistyped),
			 STATUS_UNAUTHENTICATED);
	assert_non_null(strstr(mistyped.message, "mistyped"));
	assert_true(wrong.hint[0] && mistyped.hint[0]);
	close_world(&world);
}

static void a_child_holds_no_more_than_its_parent(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	struct error error = {.status = STATUS_OK};
	open_world(&world, *state);
	struct token *admin = make(&world, &(struct token_create_params){.name = "admin", .scopes = SCOPE_ADMIN}, text);
	assert_true(admin->expires_ms - admin->created_ms == 30 * DAY_MS);
	struct token *child = make(
		&world,
		&(struct token_create_params){
			.name = "child", .scopes = SCOPE_OBSERVE, .expires_in_s = 3600, .parent = admin},
		text);
	assert_string_equal(child->parent_id, admin->token_id);
	assert_int_equal(child->expires_ms - child->created_ms, 3600 * 1000);
	struct token *longer = make(
		&world,
		&(struct token_create_params){
			.name = "longer", .scopes = SCOPE_ALL, .expires_in_s = 400 * 86400, .parent = admin},
		text);
	assert_int_equal(longer->expires_ms, admin->expires_ms);
	struct token *grandchild = make(
		&world, &(struct token_create_params){.name = "g", .scopes = SCOPE_OBSERVE, .parent = child}, text);
	assert_int_equal(grandchild->expires_ms, child->expires_ms);
	const struct token_create_params more = {.name = "x", .scopes = SCOPE_OBSERVE | SCOPE_INFER, .parent = child};
	assert_int_equal(tokens_make(world.tokens, &more, text, was_made, NULL, &error), STATUS_FORBIDDEN);
	assert_non_null(strstr(error.message, "infer"));
	assert_int_equal(text[0], 0);
	assert_ptr_equal(tokens_at(world.tokens, 0), grandchild); // newest first
	assert_ptr_equal(tokens_at(world.tokens, 3), admin);
	close_world(&world);
}

static void bad_parameters_are_refused(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES], name[STORE_NAME_BYTES + 1];
	open_world(&world, *state);
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = 0;
	const struct token_create_params bad[] = {
		{.name = "", .scopes = SCOPE_OBSERVE},
		{.name = NULL, .scopes = SCOPE_OBSERVE},
		{.name = name, .scopes = SCOPE_OBSERVE},
		{.name = "x"},
		{.name = "x", .scopes = 64},
		{.name = "x", .scopes = SCOPE_OBSERVE, .expires_in_s = -1},
		{.name = "x", .scopes = SCOPE_OBSERVE, .expires_in_s = INT64_MAX},
		{.name = "x", .scopes = SCOPE_OBSERVE, .calls_per_s = -1},
		{.name = "x", .scopes = SCOPE_OBSERVE, .calls_per_s = NAN},
		{.name = "x", .scopes = SCOPE_OBSERVE, .max_sessions = -1},
		{.name = "x", .scopes = SCOPE_OBSERVE, .memory_limit_bytes = -1},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct error error = {.status = STATUS_OK};
		assert_int_equal(tokens_make(world.tokens, &bad[i], text, was_made, NULL, &error),
				 STATUS_INVALID_PARAMS);
		assert_true(error.message[0] != 0);
	}
	assert_null(tokens_at(world.tokens, 0));
	close_world(&world);
}

static void memory_is_passed_on_at_most_as_it_is_held(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	struct error error = {.status = STATUS_OK};
	open_world(&world, *state);
	struct token *parent = make(
		&world,
		&(struct token_create_params){.name = "parent", .scopes = SCOPE_ADMIN, .memory_limit_bytes = 1000},
		text);
	struct token_create_params child = {.name = "child", .scopes = SCOPE_ALLOCATE, .parent = parent};
	assert_int_equal(make(&world, &child, text)->memory_limit_bytes, 1000); // unless it is said
	child.memory_limit_bytes = 999;
	assert_int_equal(make(&world, &child, text)->memory_limit_bytes, 999);
	child.memory_limit_bytes = 1001;
	assert_int_equal(tokens_make(world.tokens, &child, text, was_made, NULL, &error), STATUS_FORBIDDEN);
	assert_non_null(strstr(error.message, "1000"));
	reopen(&world);
	assert_int_equal(tokens_at(world.tokens, 0)->memory_limit_bytes, 999);
	close_world(&world);
}

static void limits_are_passed_on_at_most_as_they_hold(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	struct error error = {.status = STATUS_OK};
	open_world(&world, *state);
	struct token *parent = make(
		&world,
		&(struct token_create_params){
			.name = "parent", .scopes = SCOPE_ADMIN, .calls_per_s = 10, .max_sessions = 3},
		text);
	struct token_create_params params = {.name = "child", .scopes = SCOPE_ADMIN, .parent = parent};
	struct token *child = make(&world, &params, text);
	assert_true(child->calls_per_s == 10); // unless it is said
	assert_int_equal(child->max_sessions, 3);
	params.calls_per_s = 10.5;
	assert_int_equal(tokens_make(world.tokens, &params, text, was_made, NULL, &error), STATUS_FORBIDDEN);
	assert_non_null(strstr(error.message, "calls_per_s"));
	error = (struct error){0};
	params.calls_per_s = 0;
	params.max_sessions = 4;
	assert_int_equal(tokens_make(world.tokens, &params, text, was_made, NULL, &error), STATUS_FORBIDDEN);
	assert_non_null(strstr(error.message, "max_sessions"));
	// What the child calls, the parent cannot any more: two tokens are not twice the calls. Also after a start.
	reopen(&world);
	struct token *both[] = {(struct token *)tokens_at(world.tokens, 0), (struct token *)tokens_at(world.tokens, 1)};
	assert_ptr_equal(both[0]->parent, both[1]);
	int taken = 0;
	for (int i = 0; i < 100; i++)
		taken += !token_take_call(both[i % 2], 5000, NULL);
	assert_int_equal(taken, 20);
	close_world(&world);
}

static void a_line_of_tokens_ends(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	struct error error = {.status = STATUS_OK};
	open_world(&world, *state);
	struct token_create_params params = {.name = "x", .scopes = SCOPE_ADMIN};
	for (int i = 0; i < LIMIT_TOKEN_DEPTH; i++)
		params.parent = make(&world, &params, text);
	assert_int_equal(tokens_make(world.tokens, &params, text, was_made, NULL, &error), STATUS_LIMIT_EXCEEDED);
	assert_true(error.hint[0] != 0);
	close_world(&world);
}

// With the clock set back a day what has expired would be good again.
static void a_clock_that_went_back_is_refused(void **state)
{
	struct world world;
	struct error error = {.status = STATUS_OK};
	struct store_batch *batch;
	open_world(&world, *state);
	const struct store_token token = {.token_id = "0123456789",
					  .name = "x",
					  .scopes = 2,
					  .created_ms = clock_wall_ms() + DAY_MS,
					  .expires_ms = clock_wall_ms() + 2 * DAY_MS};
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	assert_int_equal(store_put_token(batch, &token), STATUS_OK);
	assert_int_equal(store_commit_wait(world.store, &batch, &error), STATUS_OK);
	tokens_destroy(&world.tokens);
	assert_int_equal(tokens_create(&world.tokens, world.store, NULL, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "clock"));
	assert_true(error.hint[0] != 0);
	assert_null(world.tokens);
	close_world(&world);
}

static void revoking_ends_the_whole_tree_at_once(void **state)
{
	struct world world;
	char text[6][TOKEN_TEXT_BYTES];
	struct token *tree[5];
	static const char *const names[] = {"root", "a", "a-a", "a-a-a", "b"};
	static const int parents[] = {-1, 0, 1, 2, 0};
	struct error error = {.status = STATUS_OK};
	open_world(&world, *state);
	for (int i = 0; i < 5; i++)
		tree[i] = make(&world,
			       &(struct token_create_params){.name = names[i],
							     .scopes = SCOPE_ADMIN,
							     .parent = parents[i] < 0 ? NULL : tree[parents[i]]},
			       text[i]);
	// One more, made under a-a, that is not on disk when the revocation comes.
	const struct token_create_params late = {.name = "late", .scopes = SCOPE_OBSERVE, .parent = tree[2]};
	assert_int_equal(tokens_make(world.tokens, &late, text[5], was_made, NULL, &error), STATUS_OK);
	int made = seen.made, revoked = seen.revoked;
	seen.ended = 0;
	assert_int_equal(revoke_token(world.tokens, tree[1]->token_id, has_ended, was_revoked, NULL, &error),
			 STATUS_OK);
	assert_int_equal(seen.ended, 3); // in memory, before the loop turned
	assert_string_equal(seen.names[0], "a");
	assert_string_equal(seen.names[1], "a-a");
	assert_string_equal(seen.names[2], "a-a-a");
	static const bool usable[] = {true, false, false, false, true, false};
	for (int turn = 0; turn < 2; turn++) {
		struct token *token;
		for (int i = 0; i < 6; i++)
			assert_int_equal(tokens_authenticate(world.tokens, text[i], SCOPE_INFER, &token, NULL),
					 usable[i] ? STATUS_OK : STATUS_UNAUTHENTICATED);
		if (turn)
			break;
		assert_int_equal(revoke_token(world.tokens, tree[3]->token_id, NULL, was_revoked, NULL, NULL),
				 STATUS_CONFLICT);
		support_run_until(world.support->loop, &seen.revoked, revoked + 1);
		support_run_until(world.support->loop, &seen.made, made + 1);
		assert_int_equal(seen.status, STATUS_OK);
		reopen(&world); // and it is on disk
	}
	struct token *token;
	struct error why = {.status = STATUS_OK};
	assert_int_equal(tokens_authenticate(world.tokens, text[3], SCOPE_INFER, &token, &why), STATUS_UNAUTHENTICATED);
	assert_non_null(strstr(why.message, "revoked"));
	assert_non_null(strstr(why.hint, "--scopes admin")); // what it was good for
	assert_int_equal(revoke_token(world.tokens, "0000000000", NULL, was_revoked, NULL, &error), STATUS_NOT_FOUND);
	assert_int_equal(revoke_token(world.tokens, "", NULL, was_revoked, NULL, NULL), STATUS_NOT_FOUND);
	close_world(&world);
}

static void limit_file_size(rlim_t bytes)
{
	struct rlimit limit;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// The disk takes nothing: a new token does not come to be; a revoked one is denied all the same, and can be revoked
// again when there is room, so that it stays denied after a restart.
static void a_full_disk_denies(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES], none[TOKEN_TEXT_BYTES];
	struct error error = {.status = STATUS_OK};
	open_world(&world, *state);
	struct token *token = make(&world, &(struct token_create_params){.name = "x", .scopes = SCOPE_OBSERVE}, text),
		     *found;
	limit_file_size(4096);
	int made = seen.made, revoked = seen.revoked;
	const struct token_create_params params = {.name = "y", .scopes = SCOPE_OBSERVE};
	assert_int_equal(tokens_make(world.tokens, &params, none, was_made, NULL, &error), STATUS_OK);
	support_run_until(world.support->loop, &seen.made, made + 1);
	enum status make_status = seen.status;
	assert_int_equal(revoke_token(world.tokens, token->token_id, NULL, was_revoked, NULL, &error), STATUS_OK);
	support_run_until(world.support->loop, &seen.revoked, revoked + 1);
	enum status revoke_status = seen.status;
	limit_file_size(RLIM_INFINITY);
	assert_int_equal(make_status, STATUS_UNAVAILABLE);
	assert_int_equal(revoke_status, STATUS_UNAVAILABLE);
	assert_int_equal(tokens_authenticate(world.tokens, none, SCOPE_INFER, &found, NULL), STATUS_UNAUTHENTICATED);
	assert_int_equal(tokens_authenticate(world.tokens, text, SCOPE_INFER, &found, NULL), STATUS_UNAUTHENTICATED);
	assert_int_equal(revoke_token(world.tokens, token->token_id, NULL, was_revoked, NULL, &error), STATUS_OK);
	support_run_until(world.support->loop, &seen.revoked, revoked + 2);
	assert_int_equal(seen.status, STATUS_OK);
	assert_int_equal(revoke_token(world.tokens, token->token_id, NULL, NULL, NULL, NULL), STATUS_CONFLICT);
	reopen(&world);
	assert_int_equal(tokens_authenticate(world.tokens, text, SCOPE_INFER, &found, NULL), STATUS_UNAUTHENTICATED);
	close_world(&world);
}

static void an_expired_token_says_so(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	struct error error = {.status = STATUS_OK};
	struct token *found;
	open_world(&world, *state);
	struct token *token = make(
		&world, &(struct token_create_params){.name = "x", .scopes = SCOPE_OBSERVE, .expires_in_s = 1}, text);
	assert_int_equal(token_usable(token, token->expires_ms - 1, NULL), STATUS_OK);
	assert_int_equal(token_usable(token, token->expires_ms, NULL), STATUS_UNAUTHENTICATED);
	while (clock_wall_ms() < token->expires_ms)
		usleep(10000);
	assert_int_equal(tokens_authenticate(world.tokens, text, SCOPE_INFER, &found, &error), STATUS_UNAUTHENTICATED);
	assert_non_null(strstr(error.message, "expired"));
	const struct token_create_params child = {.name = "c", .scopes = SCOPE_OBSERVE, .parent = token};
	assert_int_equal(tokens_make(world.tokens, &child, text, was_made, NULL, NULL), STATUS_UNAUTHENTICATED);
	close_world(&world);
}

static void calls_are_counted(void **state)
{
	(void)state;
	struct token token = {.calls_per_s = 10}, free_token = {.calls_per_s = 0}, slow = {.calls_per_s = 0.1};
	struct error error = {.status = STATUS_OK};
	int taken = 0;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(token_take_call(&free_token, i, NULL), STATUS_OK);
	for (int i = 0; i < 100; i++)
		taken += !token_take_call(&token, 5000, &error);
	assert_int_equal(taken, 20); // two seconds' worth
	assert_int_equal(error.status, STATUS_RATE_LIMITED);
	assert_non_null(strstr(error.hint, "0.100 s"));
	for (int i = 0; i < 100; i++)
		taken += !token_take_call(&token, 5000 + 10 * i, NULL);
	assert_in_range(taken, 20 + 9, 20 + 10);
	for (int i = 0; i < 100; i++)
		taken += !token_take_call(&token, 3600000, NULL);
	assert_in_range(taken, 20 + 9 + 20, 20 + 10 + 20); // no more is saved up than the bucket holds
	assert_int_equal(token_take_call(&slow, 1, NULL), STATUS_OK);
	assert_int_equal(token_take_call(&slow, 9000, NULL), STATUS_RATE_LIMITED);
	assert_int_equal(token_take_call(&slow, 10002, NULL), STATUS_OK);
}

static void tokens_of_models_are_counted(void **state)
{
	enum { A_MINUTE = 600, NOW = 5000 };
	(void)state;
	struct token token = {.scopes = SCOPE_INFER}, admin = {.scopes = SCOPE_ADMIN};
	assert_int_equal(token_wait_s(&token, A_MINUTE, NOW), 0);
	token_spend(&token, 599, A_MINUTE, NOW);
	assert_int_equal(token_wait_s(&token, A_MINUTE, NOW), 0); // one is left, and the next request is let in whole
	token_spend(&token, 1001, A_MINUTE, NOW);
	assert_in_range(token_wait_s(&token, A_MINUTE, NOW), 100, 101); // 1000 too many, 10 a second are won back
	assert_in_range(token_wait_s(&token, A_MINUTE, NOW + 60000), 40, 41);
	assert_int_equal(token_wait_s(&token, A_MINUTE, NOW + 101000), 0);
	token_spend(&token, 1, A_MINUTE, NOW + 3600000); // nothing is saved up
	assert_true(token.spent_tokens == 1);
	token_spend(&token, 600, A_MINUTE, NOW); // a clock that stands still
	assert_int_equal(token_wait_s(&token, 0, NOW), 0);
	token_spend(&admin, 100000, A_MINUTE, NOW);
	assert_int_equal(token_wait_s(&admin, A_MINUTE, NOW), 0);
}

static void use_is_noted_once_a_minute(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	struct store_stats stats;
	open_world(&world, *state);
	struct token *token = make(&world, &(struct token_create_params){.name = "x", .scopes = SCOPE_OBSERVE}, text);
	int64_t now_ms = clock_wall_ms();
	for (int i = 0; i < 1000; i++)
		tokens_touch(world.tokens, token, now_ms + i);
	assert_int_equal(token->last_used_ms, now_ms);
	tokens_touch(world.tokens, token, now_ms + 60000);
	reopen(&world);
	assert_int_equal(tokens_at(world.tokens, 0)->last_used_ms, now_ms + 60000);
	store_read_stats(world.store, &stats);
	close_world(&world);
}

static mode_t mode_of(const char *path)
{
	struct stat file;
	return stat(path, &file) ? 0 : file.st_mode & 07777;
}

static void the_admin_file_is_kept_while_it_is_good(void **state)
{
	struct world world;
	char first[TOKEN_TEXT_BYTES], text[TOKEN_TEXT_BYTES], path[SUPPORT_PATH_BYTES + 64],
		part[SUPPORT_PATH_BYTES + 64];
	struct error error = {.status = STATUS_OK};
	struct token *token;
	open_world(&world, *state);
	support_path(*state, "admin.token", path);
	support_path(*state, "admin.token.part", part);
	FILE *left = fopen(part, "w"); // by a start that was cut short
	assert_non_null(left);
	fclose(left);
	if (tokens_ensure_admin_file(world.tokens, path, first, &error))
		fail_msg("%s", error.message);
	assert_int_equal(tokens_authenticate(world.tokens, first, SCOPE_INFER, &token, NULL), STATUS_OK);
	assert_int_equal(token->scopes, SCOPE_ADMIN);
	assert_int_equal(token->expires_ms - token->created_ms, 30 * DAY_MS);
	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(access(part, F_OK), -1);
	reopen(&world);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(tokens_ensure_admin_file(world.tokens, path, text, &error), STATUS_OK);
	assert_string_equal(text, first);
	assert_int_equal(mode_of(path), 0600);
	assert_null(tokens_at(world.tokens, 1));
	// Revoked: a new one.
	assert_int_equal(revoke_token(world.tokens, tokens_at(world.tokens, 0)->token_id, NULL, NULL, NULL, NULL),
			 STATUS_OK);
	assert_int_equal(tokens_ensure_admin_file(world.tokens, path, text, &error), STATUS_OK);
	assert_string_not_equal(text, first);
	// Spoilt, empty, gone, of another inventory: a new one each.
	static const char *const contents[] = {"nonsense\n", "", "exo_0123456789_", NULL};
	for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
		snprintf(first, sizeof first, "%s", text);
		FILE *file = contents[i] ? fopen(path, "w") : NULL;
		if (file) {
			fputs(contents[i], file);
			fclose(file);
		} else {
			unlink(path);
		}
		assert_int_equal(tokens_ensure_admin_file(world.tokens, path, text, &error), STATUS_OK);
		assert_string_not_equal(text, first);
		assert_int_equal(tokens_authenticate(world.tokens, text, SCOPE_INFER, &token, NULL), STATUS_OK);
	}
	// A file that a link points at is neither read nor written.
	char target[SUPPORT_PATH_BYTES + 64];
	assert_int_equal(rename(path, support_path(*state, "elsewhere", target)), 0);
	assert_int_equal(symlink(target, path), 0);
	snprintf(first, sizeof first, "%s", text);
	assert_int_equal(tokens_ensure_admin_file(world.tokens, path, text, &error), STATUS_OK);
	assert_string_not_equal(text, first);
	struct stat file;
	assert_int_equal(lstat(path, &file), 0);
	assert_true(S_ISREG(file.st_mode));
	close_world(&world);
}

static void put_ended(struct store_batch *batch, int number, const char *parent_id, int64_t expires_ms)
{
	char id[16];
	snprintf(id, sizeof id, "%010d", number);
	const struct store_token token = {.token_id = id,
					  .parent_id = parent_id,
					  .name = "x",
					  .scopes = 2,
					  .created_ms = 1 + number,
					  .expires_ms = expires_ms};
	assert_int_equal(store_put_token(batch, &token), STATUS_OK);
}

static size_t count_tokens(const struct world *world)
{
	size_t count = 0;
	while (tokens_at(world->tokens, count))
		count++;
	return count;
}

static void put_many(struct world *world, int from, int to, const char *parent_id, int64_t expires_ms)
{
	struct store_batch *batch;
	struct error error = {.status = STATUS_OK};
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	for (int i = from; i < to; i++)
		put_ended(batch, i, parent_id, expires_ms);
	assert_int_equal(store_commit_wait(world->store, &batch, &error), STATUS_OK);
}

// What ended takes no place: with as many ended tokens as there ever were, new ones are made, and the oldest are
// forgotten.
static void what_ended_takes_no_place(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	const int64_t now_ms = clock_wall_ms();
	open_world(&world, *state);
	put_many(&world, 0, 1, NULL, now_ms + DAY_MS); // lives, and so stays, with children that ended
	for (int i = 1; i < LIMIT_TOKENS; i++)
		if (i % 1000 == 1)
			put_many(&world, i, i + 999, i % 2000 == 1 ? "0000000000" : NULL,
				 now_ms - 60000 - LIMIT_TOKENS + i);
	reopen(&world);
	assert_int_equal(count_tokens(&world), LIMIT_TOKENS_ENDED + 1);
	const struct token_create_params params = {.name = "x", .scopes = SCOPE_OBSERVE};
	make(&world, &params, text);
	reopen(&world); // on disk, too
	assert_int_equal(count_tokens(&world), LIMIT_TOKENS_ENDED + 2);
	close_world(&world);
}

// Made and revoked again and again, more often than there are places: it goes on, and memory and the disk are bounded.
static void made_and_revoked_without_end(void **state)
{
	enum { ROUNDS = LIMIT_TOKENS_ENDED + 600 };
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	struct error error = {.status = STATUS_OK};
	open_world(&world, *state);
	const struct token_create_params params = {.name = "x", .scopes = SCOPE_OBSERVE};
	struct token *first = make(&world, &params, text), *child = NULL;
	struct token_create_params of_first = params;
	of_first.parent = first;
	for (int i = 0; i < ROUNDS; i += 200) {
		struct token *made[200];
		const int before = seen.made, ended = seen.revoked;
		for (int j = 0; j < 200; j++)
			assert_int_equal(tokens_make(world.tokens, j % 2 ? &params : &of_first, text, was_made,
						     &made[j], &error),
					 STATUS_OK);
		support_run_until(world.support->loop, &seen.made, before + 200);
		for (int j = 0; j < 200; j++)
			assert_int_equal(revoke_token(world.tokens, made[j]->token_id, NULL, was_revoked, NULL, &error),
					 STATUS_OK);
		support_run_until(world.support->loop, &seen.revoked, ended + 200);
	}
	assert_true(count_tokens(&world) < LIMIT_TOKENS_ENDED + 300);
	child = make(&world, &of_first, text);
	assert_ptr_equal(child->parent, first);
	reopen(&world);
	assert_true(count_tokens(&world) < LIMIT_TOKENS_ENDED + 300);
	close_world(&world);
}

static void expect_full(struct world *world, struct token *parent, const char *message)
{
	char text[TOKEN_TEXT_BYTES];
	struct error error = {.status = STATUS_OK};
	const struct token_create_params params = {.name = "x", .scopes = SCOPE_OBSERVE, .parent = parent};
	assert_int_equal(tokens_make(world->tokens, &params, text, was_made, NULL, &error), STATUS_LIMIT_EXCEEDED);
	assert_non_null(strstr(error.message, message));
	assert_true(error.hint[0] != 0);
}

static struct token *token_of(const struct world *world, const char *id)
{
	for (size_t i = 0; tokens_at(world->tokens, i); i++)
		if (!strcmp(tokens_at(world->tokens, i)->token_id, id))
			return (struct token *)tokens_at(world->tokens, i);
	return NULL;
}

// Who may make tokens takes no more than a share, those made with these included; the owner always has places.
static void a_token_takes_no_more_than_its_share(void **state)
{
	struct world world;
	char text[TOKEN_TEXT_BYTES];
	const int64_t end_ms = clock_wall_ms() + DAY_MS;
	open_world(&world, *state);
	put_many(&world, 0, 3, NULL, end_ms);                  // three of the owner's
	put_many(&world, 3, 4, "0000000000", end_ms);          // one made with the first
	put_many(&world, 10, 10 + 2500, "0000000003", end_ms); // and 2,500 with that one: a quarter of all
	reopen(&world);
	expect_full(&world, token_of(&world, "0000000003"), "the token that asks has its share");
	const struct token_create_params of_first = {
		.name = "x", .scopes = SCOPE_OBSERVE, .parent = token_of(&world, "0000000000")};
	make(&world, &of_first, text); // the one before has half of all
	put_many(&world, 3000, 3000 + 2500, "0000000000", end_ms);
	reopen(&world);
	expect_full(&world, token_of(&world, "0000000000"), "the token that asks has its share");
	expect_full(&world, token_of(&world, "0000003000"), "that the one that asks was made with has its share");
	put_many(&world, 6000, 6000 + 4900, "0000000001", end_ms);
	reopen(&world);
	expect_full(&world, token_of(&world, "0000000002"), "neither revoked nor expired");
	const struct token_create_params of_owner = {.name = "x", .scopes = SCOPE_OBSERVE};
	make(&world, &of_owner, text);
	put_many(&world, 11000, 11000 + 105, NULL, end_ms);
	reopen(&world);
	expect_full(&world, NULL, "neither revoked nor expired");
	close_world(&world);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scopes_have_names),
		TEST(a_token_survives_a_restart),
		TEST(no_secret_is_on_disk),
		TEST(wrong_tokens_are_told_nothing),
		TEST(a_child_holds_no_more_than_its_parent),
		TEST(bad_parameters_are_refused),
		TEST(memory_is_passed_on_at_most_as_it_is_held),
		TEST(limits_are_passed_on_at_most_as_they_hold),
		TEST(a_line_of_tokens_ends),
		TEST(a_clock_that_went_back_is_refused),
		TEST(revoking_ends_the_whole_tree_at_once),
		TEST(a_full_disk_denies),
		TEST(an_expired_token_says_so),
		cmocka_unit_test(calls_are_counted),
		cmocka_unit_test(tokens_of_models_are_counted),
		TEST(use_is_noted_once_a_minute),
		TEST(the_admin_file_is_kept_while_it_is_good),
		TEST(what_ended_takes_no_place),
		TEST(made_and_revoked_without_end),
		TEST(a_token_takes_no_more_than_its_share),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
