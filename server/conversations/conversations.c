/* See conversations.h. */
#include "common/base/log.h"
#include "common/files/private_file.h"
#include "server/conversations/conversations_inside.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRUNE_MS = 60000, PRUNED_AT_ONCE = 1024, MS_OF_DAY = 24 * 3600 * 1000 };
enum { PATH_BYTES = 4224 };

void conversation_free(struct entry *entry)
{
	free(entry->sealed);
	free(entry->next);
	free(entry);
}

struct entry *conversations_find(const struct conversations *all, const char *token_id, const char *conversation_id)
{
	for (size_t i = 0; i < all->count; i++)
		if (!strcmp(all->all[i]->conversation_id, conversation_id) && !strcmp(all->all[i]->token_id, token_id))
			return all->all[i];
	return NULL;
}

struct entry *conversations_add(struct conversations *all, const char *token_id, const char *conversation_id)
{
	if (all->count == all->capacity) {
		const size_t capacity = all->capacity ? 2 * all->capacity : 64;
		struct entry **grown = realloc(all->all, capacity * sizeof *grown);
		if (!grown)
			return NULL;
		all->all = grown;
		all->capacity = capacity;
	}
	struct entry *entry = calloc(1, sizeof *entry);
	if (!entry)
		return NULL;
	snprintf(entry->token_id, sizeof entry->token_id, "%s", token_id);
	snprintf(entry->conversation_id, sizeof entry->conversation_id, "%s", conversation_id);
	return all->all[all->count++] = entry;
}

void conversations_take_out(struct conversations *all, size_t i)
{
	struct entry *entry = all->all[i];
	all->all[i] = all->all[--all->count];
	entry->gone = true;
	if (!entry->storing)
		conversation_free(entry);
}

void conversations_take_out_entry(struct conversations *all, const struct entry *entry)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->all[i] == entry) {
			conversations_take_out(all, i);
			return;
		}
}

int64_t conversations_keep_ms(const struct conversations *all)
{
	return limits_get(all->params.limits, LIMIT_CONVERSATION_DAYS_ID) * MS_OF_DAY;
}

bool conversations_over(const struct conversations *all, const struct entry *entry, int64_t now_ms)
{
	return entry->version && entry->updated_ms + conversations_keep_ms(all) <= now_ms;
}

static size_t text_bytes(const struct entry *entry)
{
	return entry->sealed ? entry->sealed_bytes - SEAL_MORE_BYTES : 0;
}

struct conversation conversations_told(const struct conversations *all, const struct token *token,
				       const struct entry *entry)
{
	struct conversation one = {.conversation_id = entry->conversation_id,
				   .version = entry->version,
				   .updated_ms = entry->updated_ms,
				   .expires_ms = entry->updated_ms + conversations_keep_ms(all),
				   .bytes = text_bytes(entry),
				   .deleted = !entry->sealed};
	if (token && token->expires_ms && token->expires_ms < one.expires_ms)
		one.expires_ms = token->expires_ms;
	return one;
}

// ---- what is over ----

void conversations_pruned(void *context, enum status status, const struct error *error)
{
	(void)context;
	if (status)
		log_warning("conversations", "those that are over stay in state.db until the next start: %s",
			    error->message);
}

// At most as many as a batch takes; the timer comes again.
static size_t prune(struct conversations *all)
{
	const int64_t now_ms = token_clock_ms();
	struct store_batch *batch = NULL;
	size_t count = 0;
	for (size_t i = all->count; i-- > 0 && count < PRUNED_AT_ONCE;) {
		struct entry *entry = all->all[i];
		if (entry->storing || (tokens_live(all->params.tokens, entry->token_id, now_ms) &&
				       !conversations_over(all, entry, now_ms)))
			continue;
		if ((!batch && store_batch_create(&batch)) ||
		    store_remove_conversation(batch, entry->token_id, entry->conversation_id))
			break;
		conversations_take_out(all, i);
		count++;
	}
	if (count && store_commit(all->params.store, &batch, conversations_pruned, NULL))
		conversations_pruned(NULL, STATUS_LIMIT_EXCEEDED,
				     &(struct error){.message = "too many changes wait for the disk"});
	store_batch_destroy(&batch);
	return count;
}

static void tick(void *context)
{
	struct conversations *all = context;
	prune(all);
	net_timer_start(all->params.loop, &all->timer, PRUNE_MS, tick, all);
}

// ---- the key ----

static void key_path(const struct conversations *all, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%.4160s/conversations.key", all->params.directory);
}

static bool holds_text(const struct conversations *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->all[i]->sealed)
			return true;
	return false;
}

static void load_key(struct conversations *all)
{
	char path[PATH_BYTES];
	struct error error = {0};
	struct buffer bytes;
	key_path(all, path);
	buffer_init(&bytes, 4 * SEAL_KEY_BYTES);
	const enum status status = private_file_read(path, &bytes, &error);
	all->has_key = !status && bytes.length == SEAL_KEY_BYTES;
	if (all->has_key)
		memcpy(all->key, bytes.data, SEAL_KEY_BYTES);
	else if (status != STATUS_NOT_FOUND || holds_text(all))
		log_error("conversations", "those that are kept here cannot be read: %s: %s", path,
			  status == STATUS_NOT_FOUND ? "there is no such file"
			  : status                   ? error.message
						     : "this is not a key");
	if (bytes.data)
		OPENSSL_cleanse(bytes.data, bytes.capacity);
	buffer_finish(&bytes);
}

static enum status no_key(struct error *error)
{
	error_set(error, STATUS_UNAVAILABLE, "the server has lost the key of the conversations that it keeps");
	error_hint(error, "an admin puts conversations.key of the data directory back from a backup and restarts the "
			  "server; or delete what is kept");
	return STATUS_UNAVAILABLE;
}

enum status conversations_need_key(struct conversations *all, struct error *error)
{
	char path[PATH_BYTES];
	if (all->has_key)
		return STATUS_OK;
	if (holds_text(all))
		return no_key(error);
	key_path(all, path);
	if (RAND_bytes(all->key, sizeof all->key) != 1)
		return error_set(error, STATUS_UNAVAILABLE, "no random bytes for a key");
	const struct private_file file = {.path = path, .bytes = all->key, .length = sizeof all->key, .sync = true};
	struct error why = {0}; // it names a path, which is for the log
	all->has_key = !private_file_write(&file, &why);
	if (all->has_key)
		return STATUS_OK;
	log_error("conversations", "the key cannot be written: %s", why.message);
	error_hint(error, "an admin finds the reason in the server's log");
	return error_set(error, STATUS_UNAVAILABLE, "the server cannot keep conversations now");
}

// ---- loading ----

static void load_row(void *context, const struct store_conversation *row)
{
	struct conversations *all = context;
	if (all->load_status || strlen(row->token_id) >= TOKEN_ID_BYTES ||
	    strlen(row->conversation_id) >= CONVERSATION_ID_BYTES || row->version < 1)
		return;
	struct entry *entry = conversations_add(all, row->token_id, row->conversation_id);
	if (entry) {
		entry->version = row->version;
		entry->updated_ms = row->updated_ms;
	}
	if (entry && row->body_bytes >= SEAL_MORE_BYTES && (entry->sealed = malloc(row->body_bytes))) {
		memcpy(entry->sealed, row->body, row->body_bytes);
		entry->sealed_bytes = row->body_bytes;
	}
	if (!entry || (row->body_bytes && !entry->sealed))
		all->load_status = STATUS_OUT_OF_MEMORY;
}

enum status conversations_create(struct conversations **out, const struct conversations_params *params,
				 struct error *error)
{
	struct conversations *all = calloc(1, sizeof *all);
	if (!all)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for conversations");
	all->params = *params;
	enum status status = store_load_conversations(params->store, load_row, all, error);
	if (!status && all->load_status)
		status = error_set(error, all->load_status, "no memory for conversations");
	if (status) {
		conversations_destroy(&all);
		return status;
	}
	while (prune(all) == PRUNED_AT_ONCE)
		;
	load_key(all);
	if (params->shared && !all->has_key)
		conversations_need_key(all, &(struct error){0}); // why not is in the log
	net_timer_start(params->loop, &all->timer, PRUNE_MS, tick, all);
	*out = all;
	return STATUS_OK;
}

void conversations_destroy(struct conversations **pointer)
{
	struct conversations *all = *pointer;
	if (!all)
		return;
	*pointer = NULL;
	net_timer_stop(all->params.loop, &all->timer);
	while (all->changes) {
		struct change *change = all->changes;
		conversations_drop_change(&change);
	}
	for (size_t i = 0; i < all->count; i++)
		conversation_free(all->all[i]);
	free(all->all);
	OPENSSL_cleanse(all->key, sizeof all->key);
	free(all);
}

// ---- looking ----

void conversations_each(const struct conversations *all, const struct token *token,
			void (*each)(void *context, const struct conversation *one), void *context)
{
	const int64_t now_ms = token_clock_ms();
	for (size_t i = 0; i < all->count; i++) {
		const struct entry *entry = all->all[i];
		if (!entry->version || conversations_over(all, entry, now_ms) ||
		    strcmp(entry->token_id, token->token_id) != 0)
			continue;
		const struct conversation one = conversations_told(all, token, entry);
		each(context, &one);
	}
}

struct entry *conversations_find_text(const struct conversations *all, const struct token *token,
				      const char *conversation_id, struct error *error)
{
	struct entry *entry = conversations_find(all, token->token_id, conversation_id);
	if (entry && entry->sealed && !conversations_over(all, entry, token_clock_ms()))
		return entry;
	error_set(error, STATUS_NOT_FOUND, "there is no such conversation on the server");
	error_hint(error,
		   "conversation.list shows those of your token; each is deleted some days after its last change");
	return NULL;
}

enum status conversations_read(const struct conversations *all, const struct token *token, const char *conversation_id,
			       struct conversation *out, uint8_t *(*room)(void *context, size_t bytes), void *context,
			       struct error *error)
{
	const struct entry *entry = conversations_find_text(all, token, conversation_id, error);
	if (!entry)
		return STATUS_NOT_FOUND;
	if (!all->has_key)
		return no_key(error);
	uint8_t *bytes = room(context, text_bytes(entry));
	if (!bytes)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a conversation");
	const struct seal_about about = {entry->token_id, entry->conversation_id, entry->version};
	const enum status status = seal_open(all->key, &about, entry->sealed, entry->sealed_bytes, bytes);
	*out = conversations_told(all, token, entry);
	if (status != STATUS_UNAVAILABLE)
		return status ? error_set(error, status, "no memory for a conversation") : STATUS_OK;
	error_set(error, status,
		  "this conversation cannot be decrypted: it was changed on the disk, or the key is another");
	error_hint(error, "restore state.db and conversations.key from one backup; or delete the conversation");
	return status;
}
