/* See tokens.h and tokens_inside.h. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/security/tokens/tokens_inside.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOUCH_MS = 60 * SECOND_MS, CLOCK_BACK_MS = 60 * 60 * SECOND_MS };

static size_t hash_id(const char *id)
{
	uint32_t hash = 2166136261; // FNV-1a; ids are ours and random, so no client chooses where they fall
	for (int i = 0; i < TOKEN_ID_DIGITS && id[i]; i++)
		hash = (hash ^ (uint8_t)id[i]) * 16777619;
	return hash % TABLE_SLOTS;
}

// `id` need not end behind its digits.
struct token *tokens_find(const struct tokens *tokens, const char *id)
{
	for (size_t at = hash_id(id); tokens->table[at]; at = (at + 1) % TABLE_SLOTS)
		if (!strncmp(tokens->table[at]->token_id, id, TOKEN_ID_DIGITS))
			return tokens->table[at];
	return NULL;
}

// Takes the token on STATUS_OK. Errors: STATUS_OUT_OF_MEMORY.
enum status tokens_append(struct tokens *tokens, struct token *token)
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

void tokens_enter(struct tokens *tokens, struct token *token)
{
	size_t at = hash_id(token->token_id);
	while (tokens->table[at])
		at = (at + 1) % TABLE_SLOTS;
	tokens->table[at] = token;
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
	const bool room = loading->tokens->count < TABLE_SLOTS / 2;
	struct token *token = room ? calloc(1, sizeof *token) : NULL;
	if (!token) {
		loading->status = room ? STATUS_OUT_OF_MEMORY : STATUS_LIMIT_EXCEEDED;
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
	if (tokens_append(loading->tokens, token)) {
		loading->status = STATUS_OUT_OF_MEMORY;
		free(token);
	}
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

// Whether it was made with a token that is not there, itself or one before it: the store refuses rows that the audit
// log does not vouch for, and nobody could hold this one to that one's limits.
static bool is_orphan(const struct token *token)
{
	const struct token *first = token;
	for (int depth = 0; first->parent && depth < LIMIT_TOKEN_DEPTH; depth++)
		first = first->parent;
	return first->parent_id[0];
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
	for (size_t i = 0; i < tokens->count && !status; i++)
		tokens_enter(tokens, tokens->all[i]);
	for (size_t i = 0; i < tokens->count && !status; i++)
		if (tokens->all[i]->parent_id[0])
			tokens->all[i]->parent = tokens_find(tokens, tokens->all[i]->parent_id);
	for (size_t i = 0; i < tokens->count && !status; i++)
		tokens->all[i]->orphan = is_orphan(tokens->all[i]);
	if (!status)
		tokens_forget(tokens);
done:
	if (status)
		tokens_destroy(&tokens);
	*out = tokens;
	return status;
}

struct request *token_request_create(struct tokens *tokens)
{
	struct request *request = calloc(1, sizeof *request);
	if (!request)
		return NULL;
	request->tokens = tokens;
	LIST_PUSH(&tokens->requests, request, link);
	return request;
}

void token_request_destroy(struct request **pointer)
{
	struct request *request = *pointer;
	*pointer = NULL;
	LIST_REMOVE(request, link);
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
		token_request_destroy(&request);
	}
	for (size_t i = 0; i < tokens->count; i++)
		free(tokens->all[i]);
	for (struct token *next, *token = tokens->gone; token; token = next) {
		next = token->next_gone;
		free(token);
	}
	free(tokens->all);
	free(tokens->table);
	free(tokens);
}

void tokens_hash_secret(const char *secret, uint8_t hash[STORE_HASH_BYTES])
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

// A pointer to it is given away.
static void hold(struct token *token)
{
	for (struct token *one = token; one; one = one->parent)
		one->held = true;
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
	struct token *token = tokens_find(tokens, id);
	tokens_hash_secret(secret, hash);
	bool same = !CRYPTO_memcmp(hash, token ? token->secret_hash : nobody, sizeof hash);
	OPENSSL_cleanse(hash, sizeof hash);
	if (!token || !same)
		return refuse(scopes, error);
	enum status status = token_usable(token, token_clock_ms(), error);
	if (status)
		return status;
	hold(token);
	*out = token;
	return STATUS_OK;
}

enum status tokens_named(const struct tokens *tokens, const char *name, struct token **out, struct error *error)
{
	size_t count = 0;
	const int64_t now_ms = token_clock_ms();
	struct token *found = strlen(name) == TOKEN_ID_DIGITS ? tokens_find(tokens, name) : NULL;
	*out = NULL;
	if (found) {
		if (token_usable(found, now_ms, error))
			return STATUS_UNAUTHENTICATED;
		count = 1;
	} else {
		for (size_t i = 0; i < tokens->count; i++) {
			struct token *one = tokens->all[i];
			if (strcmp(one->name, name) != 0 || token_usable(one, now_ms, NULL))
				continue;
			found = one;
			count++;
		}
	}
	if (count != 1) {
		error_set(error, STATUS_UNAUTHENTICATED, "%s token that may be used is called %.64s",
			  count ? "more than one" : "no", name);
		error_hint(error, "exogpu token list shows the tokens with their ids");
		return STATUS_UNAUTHENTICATED;
	}
	hold(found);
	*out = found;
	return STATUS_OK;
}

enum status token_put(struct store_batch *batch, const struct token *token)
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
	token_put(batch, token);
	store_commit(tokens->store, &batch, NULL, NULL); // a use that is not stored is stored with the next
}
