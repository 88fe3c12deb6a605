/* See tokens.h: revoking tokens, and forgetting those that ended. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/security/tokens/tokens_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The outcome of a revocation's batch. If it failed, the next batch holds the same revocations.
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
	token_request_destroy(&request);
}

// Revoke `token` if it is not: in memory, and in the batch. Returns how many that were. params NULL: nobody is told.
static size_t revoke_one(struct token *token, int64_t now_ms, struct store_batch *batch,
			 const struct token_revoke_params *params)
{
	if (token->revoked_ms)
		return 0;
	token->revoked_ms = now_ms;
	token_put(batch, token);
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
			const struct token *parent = token->parent_id[0] ? tokens_find(tokens, token->parent_id) : NULL;
			if (token->revoked_ms || !parent || !parent->revoked_ms)
				continue;
			count += revoke_one(token, now_ms, batch, params);
			again = true;
		}
	}
	for (struct request *request = tokens->requests; request; request = request->next) { // not on disk yet
		struct token *token = request->made;
		const struct token *parent = token && token->parent_id[0] ? tokens_find(tokens, token->parent_id)
									  : NULL;
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
	struct token *token = strlen(token_id) == TOKEN_ID_DIGITS ? tokens_find(tokens, token_id) : NULL;
	if (!token) {
		error_set(error, STATUS_NOT_FOUND, "there is no token %.16s", token_id);
		error_hint(error, "exogpu token list shows the ids");
		return STATUS_NOT_FOUND;
	}
	if (token->revoked_ms && !token->unsaved)
		return error_set(error, STATUS_CONFLICT, "token %s is revoked already", token_id);
	struct request *request = token_request_create(tokens);
	if (!request || store_batch_create(&batch)) {
		if (request)
			token_request_destroy(&request);
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
			token_put(batch, tokens->all[i]);
		}
	size_t count = revoke_one(token, now_ms, batch, params);
	count += revoke_descendants(tokens, now_ms, batch, params);
	put_revoked(tokens, batch, token_id, count, params->by);
	log_info("tokens", "token %s was revoked", token_id);
	enum status status = store_commit(tokens->store, &batch, revoked, request);
	if (status) { // denied all the same; what is not on disk is said
		mark_saved(tokens, request, false);
		token_request_destroy(&request);
		error_set(error, status, "the token is revoked until the server stops, but that is not on disk");
		error_hint(error, "free space on the disk and revoke it again");
	}
	tokens_forget(tokens);
	return status;
}

// ---- forgetting ----

struct ended {
	struct token *token;
	int64_t at_ms;
	size_t place;
};

// Orders by the time of ending; of those that ended together, the newest comes first.
static int compare_ended(const void *a, const void *b)
{
	const struct ended *one = a, *other = b;
	if (one->at_ms != other->at_ms)
		return one->at_ms < other->at_ms ? -1 : 1;
	return one->place < other->place ? 1 : -1;
}

static void keep_parents(const struct token *token)
{
	for (struct token *one = token->parent; one; one = one->parent)
		one->going = false;
}

// Marks those that go. Who has a child that stays, or that is on its way to the disk, stays, too. Returns how many.
static size_t choose(struct tokens *tokens, int64_t now_ms)
{
	size_t count = 0, going = 0;
	struct ended *ended = calloc(tokens->count + 1, sizeof *ended);
	for (size_t i = 0; i < tokens->count && ended; i++) {
		struct token *token = tokens->all[i];
		token->going = false;
		if (!token_ended(token, now_ms) || token->unsaved)
			continue;
		int64_t at_ms = token->expires_ms;
		if (token->revoked_ms && (!at_ms || token->revoked_ms < at_ms))
			at_ms = token->revoked_ms;
		ended[count++] = (struct ended){.token = token, .at_ms = at_ms, .place = i};
	}
	if (count > LIMIT_TOKENS_ENDED + FORGET_AT_ONCE) {
		qsort(ended, count, sizeof *ended, compare_ended);
		for (size_t i = 0; i < count - LIMIT_TOKENS_ENDED && i < FORGET_MOST; i++)
			ended[i].token->going = true;
		for (size_t i = 0; i < tokens->count; i++)
			if (!tokens->all[i]->going)
				keep_parents(tokens->all[i]);
		for (const struct request *request = tokens->requests; request; request = request->next)
			if (request->made)
				keep_parents(request->made);
		for (size_t i = 0; i < tokens->count; i++)
			going += tokens->all[i]->going;
	}
	free(ended);
	return going;
}

static void forgotten(void *context, enum status status, const struct error *error)
{
	(void)context;
	if (status)
		log_warning("tokens", "tokens that ended long ago stay in state.db until the next start: %s",
			    error->message);
}

static bool remove_rows(struct tokens *tokens)
{
	struct store_batch *batch = NULL;
	enum status status = store_batch_create(&batch);
	for (size_t i = 0; i < tokens->count && !status; i++)
		if (tokens->all[i]->going)
			status = store_remove_token(batch, tokens->all[i]->token_id);
	if (!status)
		return !store_commit(tokens->store, &batch, forgotten, NULL);
	store_batch_destroy(&batch);
	return false;
}

void tokens_forget(struct tokens *tokens)
{
	const int64_t now_ms = token_clock_ms();
	if (tokens->count <= LIMIT_TOKENS_ENDED)
		return;
	for (size_t going = choose(tokens, now_ms); going && remove_rows(tokens); going = choose(tokens, now_ms)) {
		size_t kept = 0;
		memset(tokens->table, 0, TABLE_SLOTS * sizeof *tokens->table);
		for (size_t i = 0; i < tokens->count; i++) {
			struct token *token = tokens->all[i];
			if (!token->going) {
				tokens->all[kept++] = token;
				tokens_enter(tokens, token);
			} else if (token->held) {
				token->next_gone = tokens->gone;
				tokens->gone = token;
			} else {
				free(token);
			}
		}
		tokens->count = kept;
		log_info("tokens", "%zu tokens that ended long ago are forgotten", going);
	}
}
