/* Login codes: a browser is logged in by an address that holds no token. A code is exocode_<secret 43> in base62; the
 * secret has 256 random bits, and only the SHA-256 of the text is kept, in memory alone. It works once, for
 * LOGIN_CODE_MS, and stands for whoever made it. At most LOGIN_CODES wait to be used. Times are those of
 * the steady clock. Thread: the loop's. */
#pragma once
#include "server/security/tokens/tokens.h"

enum {
	LOGIN_CODES = 16,      // that may wait to be used
	LOGIN_CODE_MS = 60000, // in which one may be
	LOGIN_CODE_BYTES = 52, // of its text, with its 0
};

struct login_code {
	char code_id[STORE_ID_BYTES];
	uint8_t hash[STORE_HASH_BYTES];
	struct token *token;   // who made it; NULL: the machine's owner
	struct audit_actor by; // the same, for the audit log
	int64_t until_ms;      // 0: the place is free
};
struct login_codes {
	struct login_code places[LOGIN_CODES];
};

struct login_code_params {
	struct token *token; // stays valid, as tokens_authenticate has it
	const struct audit_actor *by;
	int64_t now_ms;
};
// Make a code. code_id: (STORE_ID_BYTES), its name in the audit log, which is no secret.
// Errors: STATUS_LIMIT_EXCEEDED (all places are taken), STATUS_UNAVAILABLE (the system has no randomness to give).
enum status login_codes_make(struct login_codes *codes, const struct login_code_params *params,
			     char text[LOGIN_CODE_BYTES], char *code_id, struct error *error);
// Take the code with this text: *out is what it stood for, and the text is worth nothing any more.
// Errors: STATUS_UNAUTHENTICATED, the same for one that was used, is too old, or never was.
enum status login_codes_take(struct login_codes *codes, const char *text, int64_t now_ms, struct login_code *out,
			     struct error *error);
