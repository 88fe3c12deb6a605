/* See conversations.h: writing and deleting. A change is in memory once it is on disk; until then its conversation
 * takes no other. */
#include "common/base/list.h"
#include "server/conversations/conversations_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct change *change_create(struct conversations *all, size_t count)
{
	struct change *change = calloc(1, sizeof *change + count * sizeof(struct entry *));
	if (!change)
		return NULL;
	change->all = all;
	change->now_ms = token_clock_ms();
	LIST_PUSH(&all->changes, change, link);
	return change;
}

static void change_add(struct change *change, struct entry *entry)
{
	entry->storing = true;
	change->entries[change->count++] = entry;
}

// An entry that never was on disk goes, and so does one that nobody else knows any more.
void conversations_drop_change(struct change **pointer)
{
	struct change *change = *pointer;
	struct conversations *all = change->all;
	*pointer = NULL;
	for (size_t i = 0; i < change->count; i++) {
		struct entry *entry = change->entries[i];
		entry->storing = false;
		free(entry->next);
		entry->next = NULL;
		if (entry->gone)
			conversation_free(entry);
		else if (!entry->version)
			conversations_take_out_entry(all, entry);
	}
	LIST_REMOVE(change, link);
	free(change);
}

static void apply(struct entry *entry, int64_t now_ms)
{
	free(entry->sealed);
	entry->sealed = entry->next;
	entry->sealed_bytes = entry->next_bytes;
	entry->next = NULL;
	entry->version++;
	entry->updated_ms = now_ms;
}

static void tell(const struct change *change)
{
	const struct conversations *all = change->all;
	for (size_t i = 0; i < change->count && all->changed; i++) {
		const struct entry *entry = change->entries[i];
		const struct conversation one = {.conversation_id = entry->conversation_id,
						 .version = entry->version,
						 .updated_ms = entry->updated_ms,
						 .deleted = !entry->sealed};
		if (!entry->gone)
			all->changed(all->changed_context, entry->token_id, &one);
	}
}

static void stored(void *context, enum status status, const struct error *error)
{
	struct change *change = context;
	struct conversation one = {0};
	for (size_t i = 0; i < change->count && !status; i++)
		apply(change->entries[i], change->now_ms);
	if (!status && change->count == 1)
		one = conversations_told(change->all, change->token, change->entries[0]);
	change->done(change->context, status, one.version ? &one : NULL, change->count, error);
	if (!status)
		tell(change);
	conversations_drop_change(&change);
}

static enum status commit(struct change **change, struct error *error)
{
	struct store_batch *batch = NULL;
	enum status status = store_batch_create(&batch);
	for (size_t i = 0; i < (*change)->count && !status; i++) {
		const struct entry *entry = (*change)->entries[i];
		const struct store_conversation row = {.token_id = entry->token_id,
						       .conversation_id = entry->conversation_id,
						       .version = entry->version + 1,
						       .updated_ms = (*change)->now_ms,
						       .body = entry->next,
						       .body_bytes = entry->next_bytes};
		status = store_put_conversation(batch, &row);
	}
	if (!status)
		status = store_commit((*change)->all->params.store, &batch, stored, *change);
	store_batch_destroy(&batch);
	if (!status)
		return STATUS_OK;
	conversations_drop_change(change);
	return error_set(error, status, "too many changes wait for the disk");
}

static enum status being_stored(struct error *error)
{
	error_set(error, STATUS_CONFLICT, "another change of this conversation is being stored");
	error_hint(error, "read it again, and then write");
	return STATUS_CONFLICT;
}

static bool is_id(const char *text)
{
	const size_t length = strlen(text);
	return length && length < CONVERSATION_ID_BYTES &&
	       strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") == length;
}

// Bytes and counts of a token, and bytes of everybody, as they are once all changes are stored.
struct sums {
	size_t count, bytes, total_bytes;
	struct entry *oldest_deleted;
	size_t deleted;
};

static struct sums sum(const struct conversations *all, const struct token *token, const struct entry *without)
{
	struct sums sums = {0};
	for (size_t i = 0; i < all->count; i++) {
		struct entry *entry = all->all[i];
		const size_t bytes = entry->next ? entry->next_bytes : entry->sealed_bytes;
		const bool own = !strcmp(entry->token_id, token->token_id);
		if (entry == without)
			continue;
		sums.total_bytes += bytes;
		sums.bytes += own ? bytes : 0;
		sums.count += own && bytes;
		if (!own || bytes || entry->storing)
			continue;
		sums.deleted++;
		if (!sums.oldest_deleted || entry->updated_ms < sums.oldest_deleted->updated_ms)
			sums.oldest_deleted = entry;
	}
	return sums;
}

static enum status check_room(const struct conversations *all, const struct sums *sums, size_t length,
			      struct error *error)
{
	if (sums->count >= LIMIT_CONVERSATIONS_OF_TOKEN) {
		error_hint(error, "delete some of them");
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the server keeps at most %d conversations of a token",
				 LIMIT_CONVERSATIONS_OF_TOKEN);
	}
	if (sums->bytes + length > LIMIT_CONVERSATION_BYTES_OF_TOKEN) {
		error_hint(error, "delete some of them");
		return error_set(error, STATUS_LIMIT_EXCEEDED,
				 "the server keeps at most %d MiB of conversations of a token",
				 LIMIT_CONVERSATION_BYTES_OF_TOKEN / 1024 / 1024);
	}
	if (sums->total_bytes + length <= LIMIT_CONVERSATION_TOTAL_BYTES && all->count < LIMIT_CONVERSATIONS)
		return STATUS_OK;
	error_hint(error, "conversations of others need to be deleted, or to expire, first");
	return error_set(error, STATUS_LIMIT_EXCEEDED, "the server has no room for more conversations");
}

static enum status check_write(const struct conversations *all, const struct conversation_write *write,
			       const struct entry *entry, struct error *error)
{
	if (!is_id(write->conversation_id)) {
		error_hint(error, "letters, digits, - and _, 64 at most");
		return error_set(error, STATUS_INVALID_PARAMS, "this is not an id of a conversation");
	}
	if (!conversations_keep_ms(all)) {
		error_hint(error, "an admin allows it with: exogpu serve --limit conversation_days=90");
		return error_set(error, STATUS_FORBIDDEN, "this server keeps no conversations");
	}
	if (write->length > LIMIT_CONVERSATION_BYTES) {
		error_hint(error, "begin a new conversation");
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a conversation has at most %d KiB on the server",
				 LIMIT_CONVERSATION_BYTES / 1024);
	}
	if (entry && entry->storing)
		return being_stored(error);
	const bool there = entry && entry->sealed && !conversations_over(all, entry, token_clock_ms());
	const int64_t now = entry ? entry->version : 0;
	if (write->version == now || (!there && !write->version))
		return STATUS_OK;
	if (there)
		error_set(error, STATUS_CONFLICT, "the conversation was changed elsewhere: it has version %lld",
			  (long long)now);
	else
		error_set(error, STATUS_CONFLICT, "the conversation was deleted, or has expired");
	error_hint(error, there ? "read it, and write with that version; or write under another id"
				: "write it as a new one, with version 0, if it is to stay");
	return STATUS_CONFLICT;
}

static enum status encrypt(const struct conversations *all, struct entry *entry, const struct conversation_write *write,
			   struct error *error)
{
	const struct seal_about about = {entry->token_id, entry->conversation_id, entry->version + 1};
	uint8_t *sealed = malloc(write->length + SEAL_MORE_BYTES);
	enum status status = sealed ? seal(all->key, &about, write->bytes, write->length, sealed)
				    : STATUS_OUT_OF_MEMORY;
	if (status) {
		free(sealed);
		return error_set(error, status, "the conversation cannot be encrypted");
	}
	entry->next = sealed;
	entry->next_bytes = write->length + SEAL_MORE_BYTES;
	return STATUS_OK;
}

// Ids of deleted ones: the oldest gives its place to a new one.
static void forget_deleted(struct conversations *all, const struct sums *sums)
{
	struct store_batch *batch = NULL;
	const struct entry *entry = sums->oldest_deleted;
	if (sums->deleted < LIMIT_CONVERSATIONS_OF_TOKEN || store_batch_create(&batch))
		return;
	if (!store_remove_conversation(batch, entry->token_id, entry->conversation_id) &&
	    !store_commit(all->params.store, &batch, conversations_pruned, NULL))
		conversations_take_out_entry(all, entry);
	store_batch_destroy(&batch);
}

enum status conversations_write(struct conversations *all, const struct conversation_write *write, struct error *error)
{
	struct entry *entry = conversations_find(all, write->token->token_id, write->conversation_id);
	const struct sums sums = sum(all, write->token, entry);
	enum status status = check_write(all, write, entry, error);
	if (!status)
		status = check_room(all, &sums, write->length + SEAL_MORE_BYTES, error);
	if (!status)
		status = conversations_need_key(all, error);
	if (status)
		return status;
	if (!entry) {
		forget_deleted(all, &sums);
		entry = conversations_add(all, write->token->token_id, write->conversation_id);
	}
	struct change *change = entry ? change_create(all, 1) : NULL;
	if (!change) {
		if (entry && !entry->version)
			conversations_take_out_entry(all, entry);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a conversation");
	}
	change->token = write->token;
	change->done = write->done;
	change->context = write->context;
	change_add(change, entry);
	status = encrypt(all, entry, write, error);
	if (status) {
		conversations_drop_change(&change);
		return status;
	}
	return commit(&change, error);
}

enum status conversations_delete(struct conversations *all, const struct token *token, const char *conversation_id,
				 conversations_done *done, void *context, struct error *error)
{
	if (conversation_id && !conversations_find_text(all, token, conversation_id, error))
		return STATUS_NOT_FOUND;
	size_t count = 0;
	for (size_t pass = 0; pass < all->count; pass++) {
		const struct entry *entry = all->all[pass];
		const bool own = !strcmp(entry->token_id, token->token_id) &&
				 (!conversation_id || !strcmp(entry->conversation_id, conversation_id));
		if (own && entry->storing)
			return being_stored(error);
		count += own && entry->sealed;
	}
	struct change *change = change_create(all, count);
	if (!change)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to delete conversations");
	change->token = token;
	change->done = done;
	change->context = context;
	for (size_t i = 0; i < all->count; i++) {
		struct entry *entry = all->all[i];
		if (entry->sealed && !strcmp(entry->token_id, token->token_id) &&
		    (!conversation_id || !strcmp(entry->conversation_id, conversation_id))) {
			entry->next_bytes = 0;
			change_add(change, entry);
		}
	}
	return commit(&change, error);
}

void conversations_listen(struct conversations *all, conversations_changed *changed, void *context)
{
	all->changed = changed;
	all->changed_context = context;
}

void conversations_forget(struct conversations *all, const struct token *token)
{
	for (size_t i = all->count; i-- > 0;)
		if (!strcmp(all->all[i]->token_id, token->token_id))
			conversations_take_out(all, i);
}
