/* The inside of conversations, for conversations.c (what is there, the key, what is over) and conversations_change.c
 * (writing and deleting). */
#pragma once
#include "server/conversations/conversations.h"
#include "server/conversations/seal.h"

enum { CONVERSATION_ID_BYTES = 65 };

// As it is on disk, and what is on its way there.
struct entry {
	char token_id[TOKEN_ID_BYTES], conversation_id[CONVERSATION_ID_BYTES];
	int64_t version, updated_ms; // version 0: nothing of it is on disk yet
	uint8_t *sealed;             // (sealed_bytes), NULL: it was deleted
	size_t sealed_bytes;
	bool storing, gone; // gone: it is not in the list any more, and is freed when it was stored
	uint8_t *next;      // (next_bytes), while it is stored
	size_t next_bytes;
};

// A change that is on its way to the disk.
struct change {
	struct change *next, **link;
	struct conversations *all;
	const struct token *token;
	conversations_done *done;
	void *context;
	int64_t now_ms;
	size_t count;
	struct entry *entries[]; // (count)
};

struct conversations {
	struct conversations_params params;
	struct change *changes;
	conversations_changed *changed; // may be NULL
	void *changed_context;
	struct entry **all; // (count)
	size_t count, capacity;
	uint8_t key[SEAL_KEY_BYTES];
	bool has_key;
	struct net_timer timer;
	enum status load_status; // while they are loaded
};

void conversation_free(struct entry *entry);
struct entry *conversations_find(const struct conversations *all, const char *token_id, const char *conversation_id);
// A new one, with version 0. NULL: out of memory.
struct entry *conversations_add(struct conversations *all, const char *token_id, const char *conversation_id);
// Out of the list; freed, or once it was stored.
void conversations_take_out(struct conversations *all, size_t i);
void conversations_take_out_entry(struct conversations *all, const struct entry *entry);
int64_t conversations_keep_ms(const struct conversations *all);
bool conversations_over(const struct conversations *all, const struct entry *entry, int64_t now_ms);
// As others see it. token (may be NULL): whose it is.
struct conversation conversations_told(const struct conversations *all, const struct token *token,
				       const struct entry *entry);
void conversations_pruned(void *context, enum status status, const struct error *error);
// The key, made if nothing was ever encrypted with another one. Waits for the disk, once in a server's life. Errors:
// STATUS_UNAVAILABLE.
enum status conversations_need_key(struct conversations *all, struct error *error);
// The conversation of a token, if it is there and was not deleted. NULL: there is none, and an error.
struct entry *conversations_find_text(const struct conversations *all, const struct token *token,
				      const char *conversation_id, struct error *error);
void conversations_drop_change(struct change **change);
