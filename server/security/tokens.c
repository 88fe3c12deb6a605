/* See tokens.h. Tokens stand in an array in order of creation and in a hash table by id; a token that is not on disk
 * yet stands in neither, but in the list of requests under way, where a revocation of its parent finds it. */
#include "server/security/tokens.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/security/token_text.h"

#include <assert.h>
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)TOKEN_ID_BYTES == TOKEN_ID_DIGITS + 1 && (int)TOKEN_TEXT_BYTES > TOKEN_TEXT_LENGTH,
	      "sizes of a token");

enum {
	SECOND_MS = 1000,
	DAY_S = 24 * 60 * 60,
	EXPIRES_S = 90 * DAY_S,
	ADMIN_EXPIRES_S = 30 * DAY_S,
	EXPIRES_MAX_S = 3650 * DAY_S,
	TOUCH_MS = 60 * SECOND_MS,
	CLOCK_BACK_MS = 60 * 60 * SECOND_MS,
	TABLE_SLOTS = 32768, // a power of two, over LIMIT_TOKENS by far
};
static const int64_t FORGET_MS = (int64_t)30 * DAY_S * SECOND_MS; // how long a token that ended is listed at least
static_assert((int)TABLE_SLOTS > 2 * (int)LIMIT_TOKENS, "the table of tokens must stay half empty");

// One tokens_make or tokens_revoke whose outcome the disk still owes.
struct request {
	struct request *next, **link;
	struct tokens *tokens;
	struct token *made; // of tokens_make: owned here until it is on disk
	void (*made_done)(void *context, enum status status, const struct token *token, const struct error *error);
	void (*revoked_done)(void *context, enum status status, const struct error *error);
	void *context;
	int64_t revoked_ms; // of tokens_revoke
	uint64_t number;    // of it: which tokens that an earlier one could not store are in its batch
};

struct tokens {
	struct store *store;
	struct audit *audit;
	struct token **all; // (count), oldest first
	size_t count, capacity, pending;
	struct token **table; // (TABLE_SLOTS) by hash of the id, linear probing, nothing is ever taken out
	struct request *requests;
	uint64_t revocations; // ever
};

static const char *const scope_names[] = {"admin", "observe", "allocate", "compute", "infer", "join"};

uint32_t token_scope_parse(const char *name)
{
	for (unsigned i = 0; i < sizeof scope_names / sizeof *scope_names; i++)
		if (!strcmp(name, scope_names[i]))
			return 1u << i;
	return 0;
}

const char *token_scope_name(unsigned bit)
{
	return bit < sizeof scope_names / sizeof *scope_names ? scope_names[bit] : NULL;
}

char *token_scopes_print(uint32_t scopes, char between, char text[TOKEN_SCOPES_BYTES])
{
	size_t used = 0;
	text[0] = 0;
	for (unsigned bit = 0; token_scope_name(bit); bit++) {
		if (used && scopes & 1u << bit)
			text[used++] = between;
		if (scopes & 1u << bit)
			used += (size_t)snprintf(text + used, TOKEN_SCOPES_BYTES - used, "%s", token_scope_name(bit));
	}
	return text;
}

static size_t hash_id(const char *id)
{
	uint32_t hash = 2166136261; // FNV-1a; ids are ours and random, so no client chooses where they fall
	for (int i = 0; i < TOKEN_ID_DIGITS && id[i]; i++)
		hash = (hash ^ (uint8_t)id[i]) * 16777619;
	return hash % TABLE_SLOTS;
}

// `id` need not end behind its digits.
static struct token *find(const struct tokens *tokens, const char *id)
{
	for (size_t at = hash_id(id); tokens->table[at]; at = (at + 1) % TABLE_SLOTS)
		if (!strncmp(tokens->table[at]->token_id, id, TOKEN_ID_DIGITS))
			return tokens->table[at];
	return NULL;
}

// Takes the token on STATUS_OK. Errors: STATUS_OUT_OF_MEMORY.
static enum status append(struct tokens *tokens, struct token *token)
{
	if (tokens->count == tokens->capacity) {
		size_t capacity = tokens->capacity ? tokens->capacity * 2 : 16;
		struct token **all = realloc(tokens->all, capacity * sizeof *all);
		if (!all)
			return STATUS_OUT_OF_MEMORY;
		tokens->all = all;
		tokens->capacity = capacity;
	}
	tokens->all[tokens->count++] = token;
	return STATUS_OK;
}

static void enter(struct tokens *tokens, struct token *token)
{
	size_t at = hash_id(token->token_id);
	while (tokens->table[at])
		at = (at + 1) % TABLE_SLOTS;
	tokens->table[at] = token;
}

static bool ended(const struct token *token, int64_t wall_ms)
{
	return token->revoked_ms || (token->expires_ms && token->expires_ms <= wall_ms);
}

struct loading {
	struct tokens *tokens;
	enum status status;
};

static void load_row(void *context, const struct store_token *row)
{
	struct loading *loading = context;
	if (loading->status)
		return;
	struct token *token = loading->tokens->count < LIMIT_TOKENS ? calloc(1, sizeof *token) : NULL;
	if (!token) {
		loading->status = loading->tokens->count < LIMIT_TOKENS ? STATUS_OUT_OF_MEMORY : STATUS_LIMIT_EXCEEDED;
		return;
	}
	snprintf(token->token_id, sizeof token->token_id, "%s", row->token_id);
	snprintf(token->parent_id, sizeof token->parent_id, "%s", row->parent_id ? row->parent_id : "");
	snprintf(token->name, sizeof token->name, "%s", row->name);
	memcpy(token->secret_hash, row->secret_hash, sizeof token->secret_hash);
	token->scopes = row->scopes & SCOPE_ALL;
	token->calls_per_s = row->calls_per_s;
	token->max_sessions = row->max_sessions;
	token->memory_limit_bytes = row->memory_limit_bytes;
	token->created_ms = row->created_ms;
	token->expires_ms = row->expires_ms;
	token->last_used_ms = row->last_used_ms;
	token->revoked_ms = row->revoked_ms;
	if (append(loading->tokens, token)) {
		loading->status = STATUS_OUT_OF_MEMORY;
		free(token);
	}
}

// Tokens that ended are listed for the record; those that did so long ago go once they fill half of the table. Newest
// first, because no token may be removed before those made with it.
static enum status forget_ended(struct tokens *tokens, struct error *error)
{
	const int64_t before_ms = clock_wall_ms() - FORGET_MS;
	if (tokens->count <= LIMIT_TOKENS / 2)
		return STATUS_OK;
	struct store_batch *batch;
	enum status status = store_batch_create(&batch);
	if (status)
		return error_set(error, status, "no memory for the tokens");
	for (size_t i = tokens->count; i-- > 0 && !status;) {
		const struct token *token = tokens->all[i];
		if (ended(token, before_ms) && (!token->revoked_ms || token->revoked_ms <= before_ms))
			status = store_remove_token(batch, token->token_id);
	}
	if (status) {
		store_batch_destroy(&batch);
		return error_set(error, status, "no memory for the tokens");
	}
	status = store_commit_wait(tokens->store, &batch, error);
	if (status)
		return status;
	size_t kept = 0;
	for (size_t i = 0; i < tokens->count; i++) {
		struct token *token = tokens->all[i];
		if (ended(token, before_ms) && (!token->revoked_ms || token->revoked_ms <= before_ms))
			free(token);
		else
			tokens->all[kept++] = token;
	}
	log_info("tokens", "%zu tokens that ended over 30 days ago were removed", tokens->count - kept);
	tokens->count = kept;
	return STATUS_OK;
}

static bool clock_went_back(const struct tokens *tokens, struct error *error)
{
	int64_t seen_ms = 0, now_ms = clock_wall_ms();
	for (size_t i = 0; i < tokens->count; i++) {
		const struct token *token = tokens->all[i];
		const int64_t times[] = {token->created_ms, token->last_used_ms, token->revoked_ms};
		for (size_t j = 0; j < sizeof times / sizeof *times; j++)
			seen_ms = times[j] > seen_ms ? times[j] : seen_ms;
	}
	if (now_ms >= seen_ms - CLOCK_BACK_MS)
		return false;
	error_set(error, STATUS_UNAVAILABLE, "the clock is %lld minutes behind what it was when the server ran last",
		  (long long)((seen_ms - now_ms) / SECOND_MS / 60));
	error_hint(error, "set the clock: tokens that have expired would be good again");
	return true;
}

enum status tokens_create(struct tokens **out, struct store *store, struct audit *audit, struct error *error)
{
	*out = NULL;
	enum status status = STATUS_OK;
	struct tokens *tokens = calloc(1, sizeof *tokens);
	if (!tokens)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the tokens");
	struct loading loading = {.tokens = tokens};
	tokens->store = store;
	tokens->audit = audit;
	tokens->table = calloc(TABLE_SLOTS, sizeof *tokens->table);
	if (!tokens->table) {
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the tokens");
		goto done;
	}
	status = store_load_tokens(store, load_row, &loading, error);
	if (!status && loading.status)
		status = error_set(error, loading.status, "the tokens of state.db cannot be loaded");
	if (!status && clock_went_back(tokens, error))
		status = STATUS_UNAVAILABLE;
	if (!status)
		status = forget_ended(tokens, error);
	for (size_t i = 0; i < tokens->count && !status; i++)
		enter(tokens, tokens->all[i]);
	for (size_t i = 0; i < tokens->count && !status; i++)
		if (tokens->all[i]->parent_id[0])
			tokens->all[i]->parent = find(tokens, tokens->all[i]->parent_id);
done:
	if (status)
		tokens_destroy(&tokens);
	*out = tokens;
	return status;
}

static void request_destroy(struct request **pointer)
{
	struct request *request = *pointer;
	*pointer = NULL;
	*request->link = request->next;
	if (request->next)
		request->next->link = request->link;
	free(request->made);
	free(request);
}

void tokens_destroy(struct tokens **pointer)
{
	struct tokens *tokens = *pointer;
	if (!tokens)
		return;
	*pointer = NULL;
	while (tokens->requests) {
		struct request *request = tokens->requests;
		request_destroy(&request);
	}
	for (size_t i = 0; i < tokens->count; i++)
		free(tokens->all[i]);
	free(tokens->all);
	free(tokens->table);
	free(tokens);
}

static void hash_secret(const char *secret, uint8_t hash[STORE_HASH_BYTES])
{
	if (!EVP_Digest(secret, TOKEN_SECRET_DIGITS, hash, NULL, EVP_sha256(), NULL))
		memset(hash, 0, STORE_HASH_BYTES); // no secret has this hash
}

static enum status refuse(uint32_t scopes, struct error *error)
{
	char names[TOKEN_SCOPES_BYTES];
	enum status status = error_set(error, STATUS_UNAUTHENTICATED, "this token is not known here");
	error_hint(error, "ask the machine's owner for a token: exogpu token create --name NAME --scopes %s",
		   token_scopes_print(scopes, ',', names));
	return status;
}

int64_t token_clock_ms(void)
{
	static int64_t began_wall_ms, began_steady_ms; // at the first call, in tokens_create
	int64_t wall_ms = clock_wall_ms(), steady_ms = clock_steady_ms();
	if (!began_wall_ms) {
		began_wall_ms = wall_ms;
		began_steady_ms = steady_ms;
	}
	int64_t since_ms = began_wall_ms + (steady_ms - began_steady_ms);
	return wall_ms > since_ms ? wall_ms : since_ms;
}

enum status token_usable(const struct token *token, int64_t wall_ms, struct error *error)
{
	char text[CLOCK_TEXT_BYTES], names[TOKEN_SCOPES_BYTES];
	if (token->revoked_ms) {
		error_set(error, STATUS_UNAUTHENTICATED, "this token was revoked at %s",
			  clock_format(token->revoked_ms, text));
	} else if (token->expires_ms && token->expires_ms <= wall_ms) {
		error_set(error, STATUS_UNAUTHENTICATED, "this token expired at %s",
			  clock_format(token->expires_ms, text));
	} else {
		return STATUS_OK;
	}
	error_hint(error, "ask the machine's owner for a new one: exogpu token create --name NAME --scopes %s",
		   token_scopes_print(token->scopes, ',', names));
	return STATUS_UNAUTHENTICATED;
}

enum status tokens_authenticate(struct tokens *tokens, const char *text, uint32_t scopes, struct token **out,
				struct error *error)
{
	const char *id, *secret;
	uint8_t hash[STORE_HASH_BYTES];
	static const uint8_t nobody[STORE_HASH_BYTES] = {1};
	*out = NULL;
	if (token_text_parse(text, &id, &secret)) {
		bool whole = strlen(text) == TOKEN_TEXT_LENGTH;
		error_set(error, STATUS_UNAUTHENTICATED,
			  whole ? "this token was mistyped: a character of it is wrong"
				: "this is not a token, or not the whole of one");
		error_hint(error, "a token is exo_ and %d more characters; copy it again, the whole of it",
			   TOKEN_TEXT_LENGTH - 4);
		return STATUS_UNAUTHENTICATED;
	}
	struct token *token = find(tokens, id);
	hash_secret(secret, hash);
	bool same = !CRYPTO_memcmp(hash, token ? token->secret_hash : nobody, sizeof hash);
	OPENSSL_cleanse(hash, sizeof hash);
	if (!token || !same)
		return refuse(scopes, error);
	enum status status = token_usable(token, token_clock_ms(), error);
	if (!status)
		*out = token;
	return status;
}

bool token_allows(const struct token *token, uint32_t scope)
{
	return token->scopes & SCOPE_ADMIN || (token->scopes & scope) == scope;
}

static void refill(struct token *token, int64_t steady_ms)
{
	double depth = fmax(1, 2 * token->calls_per_s);
	if (!token->allowance_ms)
		token->allowance = depth;
	else if (steady_ms > token->allowance_ms)
		token->allowance += (double)(steady_ms - token->allowance_ms) / SECOND_MS * token->calls_per_s;
	token->allowance = fmin(token->allowance, depth);
	token->allowance_ms = steady_ms ? steady_ms : 1;
}

enum status token_take_call(struct token *token, int64_t steady_ms, struct error *error)
{
	for (struct token *one = token; one; one = one->parent) {
		if (one->calls_per_s <= 0)
			continue;
		refill(one, steady_ms);
		if (one->allowance >= 1)
			continue;
		double wait_s = (1 - one->allowance) / one->calls_per_s;
		error_set(error, STATUS_RATE_LIMITED, "%s may make %g calls a second",
			  one == token ? "this token" : "the token that this one was made with", one->calls_per_s);
		error_hint(error, "wait %.3f s, or ask for a token with a higher calls_per_s", wait_s);
		return STATUS_RATE_LIMITED;
	}
	for (struct token *one = token; one; one = one->parent)
		if (one->calls_per_s > 0)
			one->allowance -= 1;
	return STATUS_OK;
}

static enum status put(struct store_batch *batch, const struct token *token)
{
	struct store_token row = {
		.token_id = token->token_id,
		.name = token->name,
		.parent_id = token->parent_id[0] ? token->parent_id : NULL,
		.scopes = token->scopes,
		.calls_per_s = token->calls_per_s,
		.max_sessions = token->max_sessions,
		.memory_limit_bytes = token->memory_limit_bytes,
		.created_ms = token->created_ms,
		.expires_ms = token->expires_ms,
		.last_used_ms = token->last_used_ms,
		.revoked_ms = token->revoked_ms,
	};
	memcpy(row.secret_hash, token->secret_hash, sizeof row.secret_hash);
	return store_put_token(batch, &row);
}

// Whether what is asked for is within what the parent may have itself. 0: no limit was asked for, no limit holds.
static bool within(double asked, double allowed, const char *what, struct error *error)
{
	if (allowed <= 0 || asked <= allowed)
		return true;
	error_set(error, STATUS_FORBIDDEN, "the token that asks has itself %.17g of %s", allowed, what);
	error_hint(error, "a token can only pass on what it holds; ask for less, or leave it out");
	return false;
}

static enum status check_parent(const struct token_create_params *params, int64_t now_ms, struct error *error)
{
	int depth = 0;
	const struct token *parent = params->parent;
	enum status status = token_usable(parent, now_ms, error);
	for (unsigned bit = 0; !status && token_scope_name(bit); bit++)
		if (params->scopes & 1u << bit && !token_allows(parent, 1u << bit)) {
			status = error_set(error, STATUS_FORBIDDEN, "the token that asks lacks the scope %s",
					   token_scope_name(bit));
			error_hint(error,
				   "a token can only pass on what it holds; ask with one that has this scope or admin");
		}
	if (!status && (!within(params->calls_per_s, parent->calls_per_s, "calls_per_s", error) ||
			!within((double)params->max_sessions, (double)parent->max_sessions, "max_sessions", error) ||
			!within((double)params->memory_limit_bytes, (double)parent->memory_limit_bytes,
				"memory_limit_bytes", error)))
		status = STATUS_FORBIDDEN;
	for (const struct token *one = parent; one; one = one->parent)
		depth++;
	if (!status && depth >= LIMIT_TOKEN_DEPTH) {
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "%d tokens were made one with the other",
				   LIMIT_TOKEN_DEPTH);
		error_hint(error, "make it with an earlier one of them");
	}
	return status;
}

// What tokens_make was asked for, checked against what the parent holds.
static enum status check_params(const struct tokens *tokens, const struct token_create_params *params, int64_t now_ms,
				struct error *error)
{
	size_t length = params->name ? strlen(params->name) : 0;
	if (!length || length >= STORE_NAME_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "a token's name has 1 to %d bytes",
				 STORE_NAME_BYTES - 1);
	if (!params->scopes || params->scopes & ~(uint32_t)SCOPE_ALL)
		return error_set(error, STATUS_INVALID_PARAMS, "a token needs at least one scope, of those there are");
	if (params->expires_in_s < 0 || params->expires_in_s > EXPIRES_MAX_S || !(params->calls_per_s >= 0) ||
	    isinf(params->calls_per_s) || params->max_sessions < 0 || params->memory_limit_bytes < 0)
		return error_set(error, STATUS_INVALID_PARAMS, "a limit is out of its range");
	enum status status = params->parent ? check_parent(params, now_ms, error) : STATUS_OK;
	if (status)
		return status;
	if (tokens->count + tokens->pending >= LIMIT_TOKENS) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "there are %d tokens, revoked and expired ones included",
			  LIMIT_TOKENS);
		error_hint(error,
			   "those that ended over 30 days ago are removed when the server starts; make fewer that live "
			   "longer");
		return STATUS_LIMIT_EXCEEDED;
	}
	return STATUS_OK;
}

// A limit that was not asked for is the parent's; nothing outlasts it.
static void inherit(struct token *token, struct token *parent)
{
	token->parent = parent;
	memcpy(token->parent_id, parent->token_id, sizeof token->parent_id);
	if (token->calls_per_s <= 0)
		token->calls_per_s = parent->calls_per_s;
	if (!token->max_sessions)
		token->max_sessions = parent->max_sessions;
	if (!token->memory_limit_bytes)
		token->memory_limit_bytes = parent->memory_limit_bytes;
	if (parent->expires_ms && parent->expires_ms < token->expires_ms)
		token->expires_ms = parent->expires_ms;
}

static enum status build(const struct token_create_params *params, int64_t now_ms, char text[TOKEN_TEXT_BYTES],
			 struct token **out, struct error *error)
{
	const char *id, *secret;
	struct token *token = calloc(1, sizeof *token);
	*out = token;
	if (!token)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a token");
	if (token_text_make(text) || token_text_parse(text, &id, &secret)) {
		free(token);
		*out = NULL;
		return error_set(error, STATUS_UNAVAILABLE, "the system gives no random bytes");
	}
	int64_t lasts_s = params->expires_in_s           ? params->expires_in_s
			  : params->scopes & SCOPE_ADMIN ? (int64_t)ADMIN_EXPIRES_S
							 : (int64_t)EXPIRES_S;
	memcpy(token->token_id, id, TOKEN_ID_DIGITS);
	snprintf(token->name, sizeof token->name, "%s", params->name);
	hash_secret(secret, token->secret_hash);
	token->scopes = params->scopes;
	token->calls_per_s = params->calls_per_s;
	token->max_sessions = params->max_sessions;
	token->memory_limit_bytes = params->memory_limit_bytes;
	token->created_ms = now_ms;
	token->expires_ms = now_ms + lasts_s * SECOND_MS;
	if (params->parent)
		inherit(token, params->parent);
	return STATUS_OK;
}

// The entry of a token that is made, in its own batch.
static void put_made(struct tokens *tokens, struct store_batch *batch, const struct token *token,
		     const struct audit_actor *by)
{
	struct buffer text;
	char scopes[TOKEN_SCOPES_BYTES], expires[CLOCK_TEXT_BYTES];
	struct json *detail = json_new_object();
	json_set_string(detail, "name", token->name);
	json_set_string(detail, "scopes", token_scopes_print(token->scopes, ' ', scopes));
	json_set_string(detail, "expires_at", clock_format(token->expires_ms, expires));
	if (token->parent_id[0])
		json_set_string(detail, "parent_id", token->parent_id);
	if (token->calls_per_s > 0)
		json_set_number(detail, "calls_per_s", token->calls_per_s);
	if (token->max_sessions)
		json_set_integer(detail, "max_sessions", token->max_sessions);
	if (token->memory_limit_bytes)
		json_set_integer(detail, "memory_limit_bytes", token->memory_limit_bytes);
	buffer_init(&text, ENTRY_TEXT_BYTES);
	json_print(detail, &text);
	const struct audit_event event = {
		.by = by, .action = "token.create", .target = token->token_id, .detail = buffer_text(&text)};
	audit_put(tokens->audit, batch, &event); // what fails here fails the batch
	json_destroy(&detail);
	buffer_finish(&text);
}

static struct request *request_create(struct tokens *tokens)
{
	struct request *request = calloc(1, sizeof *request);
	if (!request)
		return NULL;
	request->tokens = tokens;
	request->link = &tokens->requests;
	request->next = tokens->requests;
	if (request->next)
		request->next->link = &request->next;
	tokens->requests = request;
	return request;
}

static void made(void *context, enum status status, const struct error *error)
{
	struct request *request = context;
	struct tokens *tokens = request->tokens;
	struct error fault = *error;
	tokens->pending--;
	if (!status && append(tokens, request->made))
		status = error_set(&fault, STATUS_OUT_OF_MEMORY, "no memory for a token");
	struct token *token = status ? NULL : request->made;
	if (token) {
		enter(tokens, token);
		request->made = NULL;
		log_info("tokens", "token %s was made", token->token_id);
	}
	if (request->made_done)
		request->made_done(request->context, status, token, &fault);
	request_destroy(&request);
}

enum status tokens_make(struct tokens *tokens, const struct token_create_params *params, char text[TOKEN_TEXT_BYTES],
			void (*done)(void *context, enum status status, const struct token *token,
				     const struct error *error),
			void *context, struct error *error)
{
	struct token *token = NULL;
	struct store_batch *batch = NULL;
	struct request *request = NULL;
	int64_t now_ms = token_clock_ms();
	text[0] = 0;
	enum status status = check_params(tokens, params, now_ms, error);
	if (!status)
		status = build(params, now_ms, text, &token, error);
	if (status)
		goto done;
	request = request_create(tokens);
	if (!request || store_batch_create(&batch)) {
		free(token);
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a token");
		goto done;
	}
	request->made = token;
	request->made_done = done;
	request->context = context;
	put(batch, token); // what fails here fails the batch
	put_made(tokens, batch, token, params->by);
	status = store_commit(tokens->store, &batch, made, request);
	if (status)
		error_set(error, status, "too many changes wait for the disk");
	else
		tokens->pending++;
done:
	if (status) {
		if (request)
			request_destroy(&request);
		OPENSSL_cleanse(text, TOKEN_TEXT_BYTES);
	}
	return status;
}

enum status tokens_make_wait(struct tokens *tokens, const struct token_create_params *params,
			     char text[TOKEN_TEXT_BYTES], struct error *error)
{
	struct token *token = NULL;
	struct store_batch *batch = NULL;
	int64_t now_ms = token_clock_ms();
	text[0] = 0;
	enum status status = check_params(tokens, params, now_ms, error);
	if (!status)
		status = build(params, now_ms, text, &token, error);
	if (status)
		return status;
	if (store_batch_create(&batch)) {
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a token");
		goto done;
	}
	put(batch, token); // what fails here fails the batch
	put_made(tokens, batch, token, params->by);
	status = store_commit_wait(tokens->store, &batch, error);
	if (!status && append(tokens, token))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a token");
	if (!status)
		enter(tokens, token);
done:
	if (status) {
		free(token);
		OPENSSL_cleanse(text, TOKEN_TEXT_BYTES);
	}
	return status;
}

// What a revocation's batch has held is on disk, or it is not and the next one holds it too.
static void mark_saved(struct tokens *tokens, const struct request *request, bool saved)
{
	for (size_t i = 0; i < tokens->count; i++) {
		struct token *token = tokens->all[i];
		if (saved && token->unsaved && token->tried == request->number)
			token->unsaved = false;
		else if (!saved && token->revoked_ms == request->revoked_ms)
			token->unsaved = true;
	}
}

static void revoked(void *context, enum status status, const struct error *error)
{
	struct request *request = context;
	if (status)
		log_error("tokens", "a revocation holds now but is not on disk: %s", error->message);
	mark_saved(request->tokens, request, !status);
	if (request->revoked_done)
		request->revoked_done(request->context, status, error);
	request_destroy(&request);
}

// Revoke `token` if it is not: in memory, and in the batch. Returns how many that were. params NULL: nobody is told.
static size_t revoke_one(struct token *token, int64_t now_ms, struct store_batch *batch,
			 const struct token_revoke_params *params)
{
	if (token->revoked_ms)
		return 0;
	token->revoked_ms = now_ms;
	put(batch, token);
	if (params && params->each)
		params->each(params->context, token);
	return 1;
}

// One pass over the tokens in order of creation ends the whole tree, since a child is made after its parent; but a
// token whose parent's creation comes later in the list (a clock that was set back) needs another pass.
static size_t revoke_descendants(struct tokens *tokens, int64_t now_ms, struct store_batch *batch,
				 const struct token_revoke_params *params)
{
	size_t count = 0;
	bool again = true;
	while (again) {
		again = false;
		for (size_t i = 0; i < tokens->count; i++) {
			struct token *token = tokens->all[i];
			const struct token *parent = token->parent_id[0] ? find(tokens, token->parent_id) : NULL;
			if (token->revoked_ms || !parent || !parent->revoked_ms)
				continue;
			count += revoke_one(token, now_ms, batch, params);
			again = true;
		}
	}
	for (struct request *request = tokens->requests; request; request = request->next) { // not on disk yet
		struct token *token = request->made;
		const struct token *parent = token && token->parent_id[0] ? find(tokens, token->parent_id) : NULL;
		if (parent && parent->revoked_ms)
			count += revoke_one(token, now_ms, batch, NULL);
	}
	return count;
}

// The entry of a revocation, with how many tokens it ends.
static void put_revoked(struct tokens *tokens, struct store_batch *batch, const char *token_id, size_t count,
			const struct audit_actor *by)
{
	char detail[48];
	snprintf(detail, sizeof detail, "{\"tokens\":%zu}", count);
	const struct audit_event event = {.by = by, .action = "token.revoke", .target = token_id, .detail = detail};
	audit_put(tokens->audit, batch, &event); // what fails here fails the batch
}

enum status tokens_revoke(struct tokens *tokens, const char *token_id, const struct token_revoke_params *params,
			  struct error *error)
{
	struct store_batch *batch = NULL;
	struct token *token = strlen(token_id) == TOKEN_ID_DIGITS ? find(tokens, token_id) : NULL;
	if (!token) {
		error_set(error, STATUS_NOT_FOUND, "there is no token %.16s", token_id);
		error_hint(error, "exogpu token list shows the ids");
		return STATUS_NOT_FOUND;
	}
	if (token->revoked_ms && !token->unsaved)
		return error_set(error, STATUS_CONFLICT, "token %s is revoked already", token_id);
	struct request *request = request_create(tokens);
	if (!request || store_batch_create(&batch)) {
		if (request)
			request_destroy(&request);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to revoke a token");
	}
	request->revoked_done = params->done;
	request->context = params->context;
	int64_t now_ms = clock_wall_ms();
	request->revoked_ms = token->revoked_ms ? token->revoked_ms : now_ms;
	request->number = ++tokens->revocations;
	for (size_t i = 0; i < tokens->count; i++)
		if (tokens->all[i]->unsaved) {
			tokens->all[i]->tried = request->number;
			put(batch, tokens->all[i]);
		}
	size_t count = revoke_one(token, now_ms, batch, params);
	count += revoke_descendants(tokens, now_ms, batch, params);
	put_revoked(tokens, batch, token_id, count, params->by);
	log_info("tokens", "token %s was revoked", token_id);
	enum status status = store_commit(tokens->store, &batch, revoked, request);
	if (status) { // denied all the same; what is not on disk is said
		mark_saved(tokens, request, false);
		request_destroy(&request);
		error_set(error, status, "the token is revoked until the server stops, but that is not on disk");
		error_hint(error, "free space on the disk and revoke it again");
	}
	return status;
}

const struct token *tokens_at(const struct tokens *tokens, size_t index)
{
	return index < tokens->count ? tokens->all[tokens->count - 1 - index] : NULL;
}

void tokens_touch(struct tokens *tokens, struct token *token, int64_t wall_ms)
{
	struct store_batch *batch;
	if (wall_ms - token->last_used_ms < TOUCH_MS && wall_ms >= token->last_used_ms)
		return;
	token->last_used_ms = wall_ms;
	if (store_batch_create(&batch))
		return;
	put(batch, token);
	store_commit(tokens->store, &batch, NULL, NULL); // a use that is not stored is stored with the next
}
