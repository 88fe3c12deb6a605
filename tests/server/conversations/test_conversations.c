/* Conversations over a real store: written, read, deleted, over; bytes that were changed on the disk, another key, and
 * another token's row; what is left of a token that has ended. */
#include "common/base/limits.h"
#include "server/conversations/conversations.h"
#include "server/conversations/seal.h"
#include "tests/server/store/support.h"

#include <sqlite3.h>

struct world {
	struct support *support;
	struct store *store;
	struct limits *limits;
	struct tokens *tokens;
	struct conversations *all;
	struct token *alice, *bob;
	char alice_text[TOKEN_TEXT_BYTES], bob_text[TOKEN_TEXT_BYTES];
};

static struct {
	int count;
	enum status status;
	int64_t version;
	size_t deleted;
} told;

static void done(void *context, enum status status, const struct conversation *one, size_t count,
		 const struct error *error)
{
	(void)context, (void)error;
	told.count++;
	told.status = status;
	told.version = one ? one->version : 0;
	told.deleted = count;
}

static void open_world(struct world *world, int64_t days)
{
	struct error error = {0};
	struct limit_values values;
	limit_values_init(&values);
	values.values[LIMIT_CONVERSATION_DAYS_ID] = days;
	const struct store_params store = {.loop = world->support->loop, .directory = world->support->directory};
	if (limits_create(&world->limits, &values, &error) || store_create(&world->store, &store, &error) ||
	    tokens_create(&world->tokens, world->store, NULL, &error))
		fail_msg("%s", error.message);
	const struct conversations_params params = {.loop = world->support->loop,
						    .store = world->store,
						    .tokens = world->tokens,
						    .limits = world->limits,
						    .directory = world->support->directory};
	if (conversations_create(&world->all, &params, &error))
		fail_msg("%s", error.message);
}

static void close_world(struct world *world)
{
	conversations_destroy(&world->all);
	tokens_destroy(&world->tokens);
	store_destroy(&world->store);
	limits_destroy(&world->limits);
}

static void begin(struct world *world, void **state)
{
	*world = (struct world){.support = *state};
	open_world(world, 90);
	const struct token_create_params alice = {.name = "alice", .scopes = SCOPE_INFER},
					 bob = {.name = "bob", .scopes = SCOPE_INFER};
	assert_int_equal(tokens_make_wait(world->tokens, &alice, world->alice_text, NULL), STATUS_OK);
	assert_int_equal(tokens_make_wait(world->tokens, &bob, world->bob_text, NULL), STATUS_OK);
	tokens_authenticate(world->tokens, world->alice_text, SCOPE_INFER, &world->alice, NULL);
	tokens_authenticate(world->tokens, world->bob_text, SCOPE_INFER, &world->bob, NULL);
}

static void again(struct world *world, int64_t days)
{
	close_world(world);
	open_world(world, days);
	tokens_authenticate(world->tokens, world->alice_text, SCOPE_INFER, &world->alice, NULL);
	tokens_authenticate(world->tokens, world->bob_text, SCOPE_INFER, &world->bob, NULL);
}

// Waits for the disk. Returns how it ended, at once or there.
static enum status put(struct world *world, const struct token *token, const char *id, int64_t version,
		       const char *text)
{
	struct error error = {0};
	const int before = told.count;
	const struct conversation_write write = {.token = token,
						 .conversation_id = id,
						 .version = version,
						 .bytes = text,
						 .length = strlen(text),
						 .done = done};
	enum status status = conversations_write(world->all, &write, &error);
	if (status) {
		assert_true(error.message[0]);
		return status;
	}
	support_run_until(world->support->loop, &told.count, before + 1);
	return told.status;
}

static enum status take_away(struct world *world, const struct token *token, const char *id)
{
	struct error error = {0};
	const int before = told.count;
	enum status status = conversations_delete(world->all, token, id, done, NULL, &error);
	if (status)
		return status;
	support_run_until(world->support->loop, &told.count, before + 1);
	return told.status;
}

static char text[64];
static uint8_t *room(void *context, size_t bytes)
{
	(void)context;
	memset(text, 0, sizeof text);
	return bytes < sizeof text ? (uint8_t *)text : NULL;
}

static enum status get(struct world *world, const struct token *token, const char *id, int64_t *version)
{
	struct conversation one = {0};
	struct error error = {0};
	enum status status = conversations_read(world->all, token, id, &one, room, NULL, &error);
	if (version)
		*version = one.version;
	assert_true(!status || (error.message[0] && error.hint[0]));
	return status;
}

static void count_one(void *context, const struct conversation *one)
{
	int *counts = context; // live, deleted
	counts[one->deleted]++;
	assert_true(one->expires_ms > one->updated_ms);
}

static int count(struct world *world, const struct token *token, bool deleted)
{
	int counts[2] = {0};
	conversations_each(world->all, token, count_one, counts);
	return counts[deleted];
}

// In state.db, as another program has it.
static int64_t query(struct world *world, const char *sql)
{
	char path[SUPPORT_PATH_BYTES + 64];
	sqlite3 *db;
	sqlite3_stmt *row;
	assert_int_equal(sqlite3_open(support_path(world->support, "state.db", path), &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 10000);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &row, NULL), SQLITE_OK);
	const int code = sqlite3_step(row);
	const int64_t value = code == SQLITE_ROW ? sqlite3_column_int64(row, 0) : -1;
	assert_true(code == SQLITE_ROW || code == SQLITE_DONE);
	sqlite3_finalize(row);
	sqlite3_close(db);
	return value;
}

static void a_version_replaces_the_one_that_was_read(void **state)
{
	struct world world;
	int64_t version;
	begin(&world, state);
	assert_int_equal(put(&world, world.alice, "c-1", 0, "one"), STATUS_OK);
	assert_int_equal(told.version, 1);
	assert_int_equal(put(&world, world.alice, "c-1", 0, "other"), STATUS_CONFLICT);
	assert_int_equal(put(&world, world.alice, "c-1", 7, "other"), STATUS_CONFLICT);
	assert_int_equal(put(&world, world.alice, "c-1", 1, "two"), STATUS_OK);
	assert_int_equal(put(&world, world.alice, "no id", 0, "x"), STATUS_INVALID_PARAMS);
	again(&world, 90);
	assert_int_equal(get(&world, world.alice, "c-1", &version), STATUS_OK);
	assert_string_equal(text, "two");
	assert_int_equal(version, 2);
	assert_int_equal(get(&world, world.bob, "c-1", NULL), STATUS_NOT_FOUND);
	assert_int_equal(put(&world, world.bob, "c-1", 0, "bob's"), STATUS_OK);
	assert_int_equal(get(&world, world.alice, "c-1", NULL), STATUS_OK);
	assert_string_equal(text, "two");
	close_world(&world);
}

static void two_changes_at_once_are_a_conflict(void **state)
{
	struct world world;
	begin(&world, state);
	const int before = told.count;
	const struct conversation_write write = {
		.token = world.alice, .conversation_id = "c", .bytes = "x", .length = 1, .done = done};
	assert_int_equal(conversations_write(world.all, &write, NULL), STATUS_OK);
	assert_int_equal(conversations_write(world.all, &write, NULL), STATUS_CONFLICT);
	assert_int_equal(conversations_delete(world.all, world.alice, NULL, done, NULL, NULL), STATUS_CONFLICT);
	assert_int_equal(get(&world, world.alice, "c", NULL), STATUS_NOT_FOUND); // it is not on disk
	support_run_until(world.support->loop, &told.count, before + 1);
	assert_int_equal(get(&world, world.alice, "c", NULL), STATUS_OK);
	assert_int_equal(conversations_delete(world.all, world.alice, "c", done, NULL, NULL), STATUS_OK);
	conversations_forget(world.all, world.alice); // while it is on its way
	support_run_until(world.support->loop, &told.count, before + 2);
	const struct conversation_write last = {
		.token = world.bob, .conversation_id = "b", .bytes = "x", .length = 1, .done = done};
	assert_int_equal(conversations_write(world.all, &last, NULL), STATUS_OK);
	close_world(&world); // and what is on its way now is not told
}

static void what_is_deleted_leaves_its_id_alone(void **state)
{
	struct world world;
	begin(&world, state);
	put(&world, world.alice, "a", 0, "one");
	put(&world, world.alice, "b", 0, "one");
	put(&world, world.bob, "a", 0, "one");
	assert_int_equal(take_away(&world, world.alice, "a"), STATUS_OK);
	assert_int_equal(told.deleted, 1);
	assert_int_equal(take_away(&world, world.alice, "a"), STATUS_NOT_FOUND);
	assert_int_equal(get(&world, world.alice, "a", NULL), STATUS_NOT_FOUND);
	again(&world, 90);
	assert_int_equal(count(&world, world.alice, false), 1);
	assert_int_equal(count(&world, world.alice, true), 1);
	assert_int_equal(query(&world, "SELECT sum(length(body)) FROM conversations WHERE version = 2"), 0);
	assert_int_equal(put(&world, world.alice, "a", 1, "late"), STATUS_CONFLICT); // it did not hear of that
	assert_int_equal(put(&world, world.alice, "a", 0, "new"), STATUS_OK);
	assert_int_equal(told.version, 3);
	assert_int_equal(take_away(&world, world.alice, NULL), STATUS_OK);
	assert_int_equal(told.deleted, 2);
	assert_int_equal(count(&world, world.alice, false), 0);
	assert_int_equal(count(&world, world.bob, false), 1);
	assert_int_equal(take_away(&world, world.alice, NULL), STATUS_OK);
	assert_int_equal(told.deleted, 0);
	close_world(&world);
}

static void what_was_changed_on_the_disk_does_not_open(void **state)
{
	struct world world;
	begin(&world, state);
	put(&world, world.alice, "a", 0, "the secret of alice");
	put(&world, world.alice, "b", 0, "another one");
	put(&world, world.bob, "a", 0, "bob's");
	close_world(&world);
	assert_int_equal(query(&world, "SELECT instr(body, CAST('secret' AS BLOB)) FROM conversations"), 0);
	// bob's row gets the text of alice, b that of a, and a one bit less
	query(&world,
	      "UPDATE conversations SET body = (SELECT body FROM conversations WHERE conversation_id = 'a' ORDER BY "
	      "length(body) DESC LIMIT 1) WHERE length(body) < 47");
	open_world(&world, 90);
	tokens_authenticate(world.tokens, world.alice_text, SCOPE_INFER, &world.alice, NULL);
	tokens_authenticate(world.tokens, world.bob_text, SCOPE_INFER, &world.bob, NULL);
	assert_int_equal(get(&world, world.alice, "a", NULL), STATUS_OK);
	assert_string_equal(text, "the secret of alice");
	assert_int_equal(get(&world, world.alice, "b", NULL), STATUS_UNAVAILABLE);
	assert_string_equal(text, "");
	assert_int_equal(get(&world, world.bob, "a", NULL), STATUS_UNAVAILABLE);
	close_world(&world);
	query(&world, "UPDATE conversations SET version = 2");
	open_world(&world, 90);
	tokens_authenticate(world.tokens, world.alice_text, SCOPE_INFER, &world.alice, NULL);
	assert_int_equal(get(&world, world.alice, "a", NULL), STATUS_UNAVAILABLE);
	assert_int_equal(take_away(&world, world.alice, "a"), STATUS_OK);
	close_world(&world);
}

static void each_bit_of_a_sealed_text_counts(void **state)
{
	static const uint8_t key[SEAL_KEY_BYTES] = {1}, other[SEAL_KEY_BYTES] = {2};
	const struct seal_about about = {"alice", "a", 1};
	uint8_t sealed[5 + SEAL_MORE_BYTES], plain[5], once[5 + SEAL_MORE_BYTES];
	(void)state;
	assert_int_equal(seal(key, &about, "hello", 5, sealed), STATUS_OK);
	assert_int_equal(seal(key, &about, "hello", 5, once), STATUS_OK);
	assert_memory_not_equal(sealed, once, sizeof sealed);
	assert_int_equal(seal_open(key, &about, sealed, sizeof sealed, plain), STATUS_OK);
	assert_memory_equal(plain, "hello", 5);
	for (size_t bit = 0; bit < 8 * sizeof sealed; bit++) {
		sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(seal_open(key, &about, sealed, sizeof sealed, plain), STATUS_UNAVAILABLE);
		assert_memory_equal(plain, "\0\0\0\0\0", 5);
		sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	const struct seal_about others[] = {{"bob", "a", 1}, {"alice", "b", 1}, {"alice", "a", 2}, {"alic", "ea", 1}};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_int_equal(seal_open(key, &others[i], sealed, sizeof sealed, plain), STATUS_UNAVAILABLE);
	assert_int_equal(seal_open(other, &about, sealed, sizeof sealed, plain), STATUS_UNAVAILABLE);
	for (size_t length = 0; length < sizeof sealed; length++)
		assert_int_equal(seal_open(key, &about, sealed, length, plain), STATUS_UNAVAILABLE);
}

static void the_key_lies_apart_and_is_not_made_twice(void **state)
{
	struct world world;
	struct stat file;
	char path[SUPPORT_PATH_BYTES + 64], away[SUPPORT_PATH_BYTES + 64];
	begin(&world, state);
	support_path(world.support, "conversations.key", path);
	support_path(world.support, "away", away);
	assert_int_not_equal(stat(path, &file), 0); // nothing is kept yet
	put(&world, world.alice, "a", 0, "one");
	assert_int_equal(stat(path, &file), 0);
	assert_int_equal(file.st_mode & 0777, 0600);
	assert_int_equal(file.st_size, SEAL_KEY_BYTES);
	assert_int_equal(rename(path, away), 0);
	again(&world, 90);
	assert_int_equal(get(&world, world.alice, "a", NULL), STATUS_UNAVAILABLE);
	assert_int_equal(put(&world, world.alice, "b", 0, "two"), STATUS_UNAVAILABLE);
	assert_int_not_equal(stat(path, &file), 0);
	assert_int_equal(rename(away, path), 0);
	again(&world, 90);
	assert_int_equal(get(&world, world.alice, "a", NULL), STATUS_OK);
	assert_int_equal(unlink(path), 0);
	again(&world, 90);
	assert_int_equal(take_away(&world, world.alice, NULL), STATUS_OK); // without the key, too
	assert_int_equal(put(&world, world.alice, "b", 0, "two"), STATUS_OK);
	assert_int_equal(get(&world, world.alice, "b", NULL), STATUS_OK);
	close_world(&world);
}

static int ended;
static void on_revoked(void *context, enum status status, const struct error *error)
{
	(void)context, (void)error;
	assert_int_equal(status, STATUS_OK);
	ended++;
}

static void forget(void *context, struct token *token)
{
	conversations_forget(context, token);
}

static void a_token_takes_its_own_with_it(void **state)
{
	struct world world;
	begin(&world, state);
	put(&world, world.alice, "a", 0, "one");
	put(&world, world.bob, "a", 0, "one");
	const struct token_revoke_params params = {.each = forget, .done = on_revoked, .context = world.all};
	const int before = ended;
	assert_int_equal(tokens_revoke(world.tokens, world.alice->token_id, &params, NULL), STATUS_OK);
	assert_int_equal(count(&world, world.alice, false), 0);
	support_run_until(world.support->loop, &ended, before + 1);
	assert_int_equal(query(&world, "SELECT count(*) FROM conversations"), 1); // in the revocation's own transaction
	assert_int_equal(count(&world, world.bob, false), 1);
	close_world(&world);
	// bob's token expires while the server is down
	query(&world,
	      "DELETE FROM conversations WHERE token_id NOT IN (SELECT token_id FROM tokens WHERE name = 'bob')");
	open_world(&world, 90);
	tokens_authenticate(world.tokens, world.bob_text, SCOPE_INFER, &world.bob, NULL);
	assert_int_equal(count(&world, world.bob, false), 1);
	world.bob->expires_ms = 1;
	struct conversations *other = NULL;
	const struct conversations_params created = {.loop = world.support->loop,
						     .store = world.store,
						     .tokens = world.tokens,
						     .limits = world.limits,
						     .directory = world.support->directory};
	assert_int_equal(conversations_create(&other, &created, NULL), STATUS_OK);
	assert_int_equal(count(&(struct world){.all = other}, world.bob, false), 0);
	conversations_destroy(&other);
	close_world(&world); // commits what waits
	assert_int_equal(query(&world, "SELECT count(*) FROM conversations"), 0);
}

static void what_is_over_goes(void **state)
{
	struct world world;
	begin(&world, state);
	put(&world, world.alice, "old", 0, "one");
	put(&world, world.alice, "new", 0, "one");
	close_world(&world);
	query(&world, "UPDATE conversations SET updated_ms = updated_ms - 86400000 WHERE conversation_id = 'old'");
	open_world(&world, 1);
	tokens_authenticate(world.tokens, world.alice_text, SCOPE_INFER, &world.alice, NULL);
	assert_int_equal(count(&world, world.alice, false), 1);
	assert_int_equal(get(&world, world.alice, "old", NULL), STATUS_NOT_FOUND);
	again(&world, 0);
	assert_int_equal(count(&world, world.alice, false), 0);
	assert_int_equal(put(&world, world.alice, "x", 0, "one"), STATUS_FORBIDDEN);
	close_world(&world);
	assert_int_equal(query(&world, "SELECT count(*) FROM conversations"), 0);
}

static void there_is_an_end_to_what_a_token_keeps(void **state)
{
	struct world world;
	char id[16];
	begin(&world, state);
	char *large = calloc(1, LIMIT_CONVERSATION_BYTES + 2);
	memset(large, 'x', LIMIT_CONVERSATION_BYTES + 1);
	assert_int_equal(put(&world, world.alice, "x", 0, large), STATUS_LIMIT_EXCEEDED);
	large[LIMIT_CONVERSATION_BYTES - 4096] = 0;
	int kept = 0;
	for (; kept < 20; kept++) {
		snprintf(id, sizeof id, "large-%d", kept);
		if (put(&world, world.alice, id, 0, large))
			break;
	}
	assert_int_equal(kept, 8);
	assert_int_equal(put(&world, world.alice, "large-0", 1, "small"), STATUS_OK); // in place of a large one
	assert_int_equal(put(&world, world.bob, "x", 0, large), STATUS_OK);
	free(large);
	assert_int_equal(take_away(&world, world.alice, NULL), STATUS_OK);
	for (kept = 0; kept < LIMIT_CONVERSATIONS_OF_TOKEN; kept++) {
		snprintf(id, sizeof id, "small-%d", kept);
		assert_int_equal(put(&world, world.alice, id, 0, "x"), STATUS_OK);
	}
	assert_int_equal(put(&world, world.alice, "more", 0, "x"), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(take_away(&world, world.alice, NULL), STATUS_OK);
	assert_int_equal(put(&world, world.alice, "more", 0, "x"), STATUS_OK); // one of the oldest ids is forgotten
	assert_int_equal(count(&world, world.alice, true), LIMIT_CONVERSATIONS_OF_TOKEN + 8 - 1);
	close_world(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_bit_of_a_sealed_text_counts),
		cmocka_unit_test_setup_teardown(a_version_replaces_the_one_that_was_read, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(two_changes_at_once_are_a_conflict, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(what_is_deleted_leaves_its_id_alone, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(what_was_changed_on_the_disk_does_not_open, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(the_key_lies_apart_and_is_not_made_twice, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(a_token_takes_its_own_with_it, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(what_is_over_goes, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(there_is_an_end_to_what_a_token_keeps, support_setup, support_teardown),
	};
	return cmocka_run_group_tests_name("conversations", tests, NULL, NULL);
}
