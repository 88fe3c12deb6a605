/* See tokens.h: making tokens. A token passes on at most its own rights, and at most its share of places. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/security/tokens/tokens_inside.h"

#include <math.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DAY_S = 24 * 60 * 60,
	EXPIRES_S = 90 * DAY_S,
	ADMIN_EXPIRES_S = 30 * DAY_S,
	EXPIRES_MAX_S = 3650 * DAY_S,
};

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

static void count_up(const struct token *token)
{
	for (struct token *one = token->parent; one; one = one->parent)
		one->living++;
}

// How many live, and of each token those made with it. What ended takes no place.
static size_t count_living(const struct tokens *tokens, int64_t now_ms)
{
	size_t living = tokens->pending;
	for (size_t i = 0; i < tokens->count; i++)
		tokens->all[i]->living = 0;
	for (size_t i = 0; i < tokens->count; i++)
		if (!token_ended(tokens->all[i], now_ms)) {
			living++;
			count_up(tokens->all[i]);
		}
	for (const struct request *request = tokens->requests; request; request = request->next)
		if (request->made)
			count_up(request->made);
	return living;
}

// How many may live that were made with a token, and with these: half of what the one before it may have, and of all
// places where the owner made it. So nobody who may make tokens takes the places of others.
static unsigned share(const struct token *token)
{
	unsigned places = LIMIT_TOKENS;
	for (const struct token *one = token; one; one = one->parent)
		places /= 2;
	return places > LIMIT_TOKEN_DEPTH ? places : LIMIT_TOKEN_DEPTH;
}

static enum status check_room(const struct tokens *tokens, const struct token *parent, int64_t now_ms,
			      struct error *error)
{
	const size_t living = count_living(tokens, now_ms);
	for (const struct token *one = parent; one; one = one->parent) {
		if (one->living < share(one))
			continue;
		error_set(error, STATUS_LIMIT_EXCEEDED, "%s has its share of tokens: %u that were made with it live",
			  one == parent ? "the token that asks" : "a token that the one that asks was made with",
			  one->living);
		error_hint(error,
			   "revoke some of them, or let the machine's owner make it: exogpu token list shows all");
		return STATUS_LIMIT_EXCEEDED;
	}
	if (living < LIMIT_TOKENS - (parent ? (size_t)LIMIT_TOKENS_OF_OWNER : 0))
		return STATUS_OK;
	error_set(error, STATUS_LIMIT_EXCEEDED, "there are %zu tokens that are neither revoked nor expired, of %d",
		  living, LIMIT_TOKENS);
	error_hint(error, "revoke some%s: exogpu token list shows all",
		   living < LIMIT_TOKENS ? "; the last places are the machine's owner's" : "");
	return STATUS_LIMIT_EXCEEDED;
}

// Checks the parameters of tokens_make against the parent's rights.
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
	return check_room(tokens, params->parent, now_ms, error);
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
	tokens_hash_secret(secret, token->secret_hash);
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

static void made(void *context, enum status status, const struct error *error)
{
	struct request *request = context;
	struct tokens *tokens = request->tokens;
	struct error fault = *error;
	tokens->pending--;
	if (!status && tokens_append(tokens, request->made))
		status = error_set(&fault, STATUS_OUT_OF_MEMORY, "no memory for a token");
	struct token *token = status ? NULL : request->made;
	if (token) {
		tokens_enter(tokens, token);
		request->made = NULL;
		log_info("tokens", "token %s was made", token->token_id);
	}
	if (request->made_done)
		request->made_done(request->context, status, token, &fault);
	token_request_destroy(&request);
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
	if (params->parent)
		params->parent->held = true;
	tokens_forget(tokens);
	enum status status = check_params(tokens, params, now_ms, error);
	if (!status)
		status = build(params, now_ms, text, &token, error);
	if (status)
		goto done;
	request = token_request_create(tokens);
	if (!request || store_batch_create(&batch)) {
		free(token);
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a token");
		goto done;
	}
	request->made = token;
	request->made_done = done;
	request->context = context;
	token_put(batch, token); // what fails here fails the batch
	put_made(tokens, batch, token, params->by);
	status = store_commit(tokens->store, &batch, made, request);
	if (status)
		error_set(error, status, "too many changes wait for the disk");
	else
		tokens->pending++;
done:
	if (status) {
		if (request)
			token_request_destroy(&request);
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
	tokens_forget(tokens);
	enum status status = check_params(tokens, params, now_ms, error);
	if (!status)
		status = build(params, now_ms, text, &token, error);
	if (status)
		return status;
	if (store_batch_create(&batch)) {
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a token");
		goto done;
	}
	token_put(batch, token); // what fails here fails the batch
	put_made(tokens, batch, token, params->by);
	status = store_commit_wait(tokens->store, &batch, error);
	if (!status && tokens_append(tokens, token))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a token");
	if (!status)
		tokens_enter(tokens, token);
done:
	if (status) {
		free(token);
		OPENSSL_cleanse(text, TOKEN_TEXT_BYTES);
	}
	return status;
}
