/* Conversations that people keep on the server: each belongs to one token, and is seen by nobody else. They stand in
 * memory and in state.db as they were encrypted (seal.h), under the key in DIRECTORY/conversations.key, mode 0600,
 * which is made when something is kept for the first time. One goes conversation_days after it was written last, when
 * it is deleted, and when its token is revoked, expires or is forgotten. What was deleted leaves its id and version
 * for as long, so that other browsers delete it as well. No text is ever logged. Thread: the loop's. */
#pragma once
#include "server/security/limits.h"
#include "server/security/tokens/tokens.h"

struct conversations;
struct conversations_params {
	struct net_loop *loop;
	struct store *store;
	const struct tokens *tokens;
	const struct limits *limits;
	const char *directory;
	bool shared; // of several servers: the key is made now, so that all have it
};
// Loads them, and deletes what is over. A key that cannot be read is no error here: it is said in the log, and reading
// and writing are refused. Errors: the store's; STATUS_OUT_OF_MEMORY.
enum status conversations_create(struct conversations **out, const struct conversations_params *params,
				 struct error *error);
void conversations_destroy(struct conversations **conversations);

struct conversation {
	const char *conversation_id; // valid until the next turn of the loop
	int64_t version, updated_ms, expires_ms;
	size_t bytes;
	bool deleted;
};
// Each of a token's, also those that were deleted.
void conversations_each(const struct conversations *all, const struct token *token,
			void (*each)(void *context, const struct conversation *one), void *context);

// `room` is called with how many bytes there are, and returns where they go; NULL: out of memory. Errors:
// STATUS_NOT_FOUND; STATUS_UNAVAILABLE (the key is not there, or the bytes do not open).
enum status conversations_read(const struct conversations *all, const struct token *token, const char *conversation_id,
			       struct conversation *out, uint8_t *(*room)(void *context, size_t bytes), void *context,
			       struct error *error);

// Called once it is on disk, or could not be: `one` is then as it is now, NULL with an error or where many were
// deleted.
typedef void conversations_done(void *context, enum status status, const struct conversation *one, size_t count,
				const struct error *error);
struct conversation_write {
	const struct token *token;
	const char *conversation_id;
	int64_t version; // that it replaces: 0 if there is none, or it was deleted
	const void *bytes;
	size_t length;
	conversations_done *done;
	void *context;
};
// Errors at once: STATUS_INVALID_PARAMS, STATUS_FORBIDDEN (nothing is kept here), STATUS_LIMIT_EXCEEDED,
// STATUS_CONFLICT (another version is there), STATUS_UNAVAILABLE.
enum status conversations_write(struct conversations *all, const struct conversation_write *write, struct error *error);
// Delete one, or (conversation_id NULL) all of a token's. The same errors, and STATUS_NOT_FOUND.
enum status conversations_delete(struct conversations *all, const struct token *token, const char *conversation_id,
				 conversations_done *done, void *context, struct error *error);
// Call `changed` after each change is on disk and was answered, for each conversation that was written or deleted; not
// for what is over, or was its token's. `one` has no expires_ms. One listener; NULL: none any more.
typedef void conversations_changed(void *context, const char *token_id, const struct conversation *one);
void conversations_listen(struct conversations *all, conversations_changed *changed, void *context);
// The token has ended: what was its is not here any more. Its rows go with the revocation.
void conversations_forget(struct conversations *all, const struct token *token);
