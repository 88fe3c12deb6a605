/* The inside of tokens, for the files server/security/tokens*.c:
 *
 *   tokens.c        the list and the table by id, as they are loaded and looked up
 *   tokens_make.c   making: what a token may pass on, how many may be made with it
 *   tokens_end.c    revoking, and forgetting those that ended
 *   tokens_use.c    what one token may do: its scopes, its end, its calls
 *
 * Tokens stand in an array in order of creation and in a hash table by id; a token that is not on disk yet stands in
 * neither, but in the list of requests under way, where a revocation of its parent finds it. Thread: the loop's. */
#pragma once
#include "common/base/limits.h"
#include "server/security/tokens/token_text.h"
#include "server/security/tokens/tokens.h"

#include <assert.h>

static_assert((int)TOKEN_ID_BYTES == TOKEN_ID_DIGITS + 1 && (int)TOKEN_TEXT_BYTES > TOKEN_TEXT_LENGTH,
	      "sizes of a token");

enum {
	SECOND_MS = 1000,
	MINUTE_MS = 60000,
	TABLE_SLOTS = 32768,  // a power of two, over all tokens by far
	FORGET_AT_ONCE = 256, // so many ended ones more than are kept are forgotten together
	FORGET_MOST = 4096,   // at once
};
static_assert((int)TABLE_SLOTS > 2 * ((int)LIMIT_TOKENS + (int)LIMIT_TOKENS_ENDED + (int)FORGET_AT_ONCE),
	      "the table of tokens must stay half empty");

// One tokens_make or tokens_revoke that is not on disk yet.
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
	struct token **table; // (TABLE_SLOTS) by hash of the id, linear probing; made anew when some are forgotten
	struct token *gone;   // forgotten, but somebody may hold a pointer to them; linked by next_gone
	struct request *requests;
	uint64_t revocations; // ever
};

// `id` need not end behind its digits.
struct token *tokens_find(const struct tokens *tokens, const char *id);
// Takes the token on STATUS_OK, which tokens_enter then makes known. Errors: STATUS_OUT_OF_MEMORY.
enum status tokens_append(struct tokens *tokens, struct token *token);
void tokens_enter(struct tokens *tokens, struct token *token);
void tokens_hash_secret(const char *secret, uint8_t hash[STORE_HASH_BYTES]);
enum status token_put(struct store_batch *batch, const struct token *token); // its row
bool token_ended(const struct token *token, int64_t wall_ms);
struct request *token_request_create(struct tokens *tokens);
void token_request_destroy(struct request **request);
// Forget the oldest of those that have ended, if there are more than LIMIT_TOKENS_ENDED and some: here now, and on
// disk. Their places are their own: what lives is counted apart.
void tokens_forget(struct tokens *tokens);
