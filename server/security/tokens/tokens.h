/* Tokens: who may do what. A token's text is exo_<id 10>_<secret 43>_<crc32 6> in
 * base62; the secret is 256 random bits, and only its SHA-256 is stored. All tokens
 * are in memory, so that a look-up is a hash and a constant-time comparison, and
 * revocation works in the same turn of the loop. A token's limits on calls,
 * sessions and memory include the tokens made with it, so making tokens gives
 * nobody more. Thread: the loop's. The secret is wiped from memory after use and
 * never logged. */
#pragma once
#include "server/security/audit.h"

enum token_scope { // bits
	SCOPE_ADMIN = 1,
	SCOPE_OBSERVE = 2,
	SCOPE_ALLOCATE = 4,
	SCOPE_COMPUTE = 8,
	SCOPE_INFER = 16,
	SCOPE_JOIN = 32,
	SCOPE_ALL = 63,
};
// The bit of a scope's name, 0 if there is no such scope; and the name of the i-th bit, NULL past the last.
uint32_t token_scope_parse(const char *name);
const char *token_scope_name(unsigned bit);
enum { TOKEN_SCOPES_BYTES = 64 };
// The names of all scopes of these bits, with this between them. Returns text.
char *token_scopes_print(uint32_t scopes, char between, char text[TOKEN_SCOPES_BYTES]);

enum { TOKEN_ID_BYTES = 11, TOKEN_TEXT_BYTES = 72 }; // with their 0

struct token {
	char token_id[TOKEN_ID_BYTES], parent_id[TOKEN_ID_BYTES], name[STORE_NAME_BYTES]; // parent_id "" for the first
	uint32_t scopes;
	uint8_t secret_hash[STORE_HASH_BYTES];
	struct token *parent; // NULL for the first
	double calls_per_s;
	int64_t max_sessions, created_ms, expires_ms, last_used_ms, revoked_ms;
	int64_t memory_limit_bytes;          // of all of its sessions; 0: no limit of its own
	uint64_t memory_bytes, family_bytes; // held now, and with those made with it; counted by server/tenants
	unsigned sessions, family_sessions;  // open now, the same way; counted by server/api
	uint64_t in_flight_bytes;            // of transfers, not answered yet; counted by server/api
	double allowance;                    // calls left in the bucket, and when it was last filled
	int64_t allowance_ms;
	double spent_tokens; // of models, that count against its tokens a minute, as they were at
	int64_t spent_ms;
	bool orphan;             // the token that it was made with, or one before, is not there: it is not usable
	bool unsaved;            // revoked, but the disk did not take that: may be revoked again
	uint64_t tried;          // with which revocation that was tried again
	unsigned living;         // of those made with it, and with these; counted when one is made
	bool going;              // about to be forgotten
	bool held;               // somebody may hold a pointer to it until the server stops
	struct token *next_gone; // of those that were forgotten and are held
};

struct tokens;
// Loads all tokens from the store. Errors: the store's; STATUS_UNAVAILABLE (the clock is over an hour behind what the
// tokens have seen: those that expired would come back).
enum status tokens_create(struct tokens **out, struct store *store, struct audit *audit, struct error *error);
void tokens_destroy(struct tokens **tokens);

// The token behind a text that a client sent. `scopes`: what it is wanted for, which hints name. The pointer stays
// valid until tokens_destroy. Errors, each with a message and hint for the client that tell no outsider whether an id
// exists: STATUS_UNAUTHENTICATED (malformed or mistyped by its checksum, unknown, wrong secret; revoked or expired if
// the secret was right, saying so).
enum status tokens_authenticate(struct tokens *tokens, const char *text, uint32_t scopes, struct token **token,
				struct error *error);
// The token that the operator names by its id, or by its name if no other that may be used has it; for who sends none.
// The pointer as above. Errors: STATUS_UNAUTHENTICATED (there is none, or several).
enum status tokens_named(const struct tokens *tokens, const char *id_or_name, struct token **token,
			 struct error *error);
// The wall clock as tokens see it: it does not go back while the server runs, whoever sets it.
int64_t token_clock_ms(void);
// STATUS_OK while the token may be used at all: STATUS_UNAUTHENTICATED once revoked or expired.
enum status token_usable(const struct token *token, int64_t wall_ms, struct error *error);
// Whether there is a token of this id that may be used at all.
bool tokens_live(const struct tokens *tokens, const char *token_id, int64_t wall_ms);
// True if the token holds the scope, or admin.
bool token_allows(const struct token *token, uint32_t scope);
// Take one call from its bucket (2 s of calls_per_s deep) and from those of the tokens that it was made with. Errors:
// STATUS_RATE_LIMITED with the time to wait.
enum status token_take_call(struct token *token, int64_t steady_ms, struct error *error);
// Tokens of models, of which each token may have computed so many a minute; one that holds admin has no such limit.
// They count when a request has ended, so one that was let in is answered whole. per_minute 0: no limit.
void token_spend(struct token *token, int64_t tokens, int64_t per_minute, int64_t steady_ms);
// Seconds until it may ask again, rounded up; 0: now.
int64_t token_wait_s(const struct token *token, int64_t per_minute, int64_t steady_ms);

struct token_create_params {
	const char *name;
	uint32_t scopes;
	int64_t expires_in_s;         // 0: the default, 90 days, 30 with admin
	double calls_per_s;           // 0: its parent's
	int64_t max_sessions;         // 0: likewise
	int64_t memory_limit_bytes;   // 0: likewise
	struct token *parent;         // NULL: the machine's owner, by the Unix socket
	const struct audit_actor *by; // NULL: the server itself
};
// Make a token and store it. On STATUS_OK `text` holds its text; it may be used once `done` was called with STATUS_OK
// (`token` is NULL in `done` otherwise). Errors at once: STATUS_FORBIDDEN (a scope that the parent lacks, or more than
// it may have itself), STATUS_LIMIT_EXCEEDED (LIMIT_TOKENS, the share of a token
// that it is made with, LIMIT_TOKEN_DEPTH), STATUS_INVALID_PARAMS.
enum status tokens_make(struct tokens *tokens, const struct token_create_params *params, char text[TOKEN_TEXT_BYTES],
			void (*done)(void *context, enum status status, const struct token *token,
				     const struct error *error),
			void *context, struct error *error);
// The same, but waits for the disk. For starting up only.
enum status tokens_make_wait(struct tokens *tokens, const struct token_create_params *params,
			     char text[TOKEN_TEXT_BYTES], struct error *error);
// Revoke a token and all its descendants, in memory now and on disk before `done`. `each` is called at once for every
// token that this ends, so that its connections can be closed.
// Errors: STATUS_NOT_FOUND, STATUS_CONFLICT (revoked already).
struct token_revoke_params {
	const struct audit_actor *by; // NULL: the server itself
	void (*each)(void *context, struct token *token);
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};
enum status tokens_revoke(struct tokens *tokens, const char *token_id, const struct token_revoke_params *params,
			  struct error *error);
// All tokens that live, and the LIMIT_TOKENS_ENDED that ended last or some more, newest first; NULL past the last.
const struct token *tokens_at(const struct tokens *tokens, size_t index);
// Note that it was used; stored at most once a minute.
void tokens_touch(struct tokens *tokens, struct token *token, int64_t wall_ms);
// Write the first admin token to `path`, mode 0600, if no usable admin token is known from there (the file is missing,
// or its token is revoked, expired or unknown); waits for the disk. text: what the file holds now.
enum status tokens_ensure_admin_file(struct tokens *tokens, const char *path, char text[TOKEN_TEXT_BYTES],
				     struct error *error);
