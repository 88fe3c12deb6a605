/* See login_codes.h. */
#include "server/security/login_codes.h"

#include "common/text/base62.h"
#include "server/security/random_id.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>

enum { SECRET_AT = 8, SECRET_DIGITS = 43 };
_Static_assert((int)LOGIN_CODE_BYTES == SECRET_AT + SECRET_DIGITS + 1, "exocode_ and the secret");
_Static_assert((int)STORE_HASH_BYTES == SHA256_DIGEST_LENGTH, "the hash is a SHA-256");

static struct login_code *free_place(struct login_codes *codes, int64_t now_ms)
{
	for (size_t i = 0; i < LOGIN_CODES; i++)
		if (codes->places[i].until_ms <= now_ms)
			return &codes->places[i];
	return NULL;
}

enum status login_codes_make(struct login_codes *codes, const struct login_code_params *params,
			     char text[LOGIN_CODE_BYTES], char *code_id, struct error *error)
{
	struct login_code *place = free_place(codes, params->now_ms);
	text[0] = 0;
	if (!place) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "%d login codes wait to be used", LOGIN_CODES);
		error_hint(error, "use one, or wait: each lasts %d s", LOGIN_CODE_MS / 1000);
		return STATUS_LIMIT_EXCEEDED;
	}
	struct login_code made = {
		.token = params->token, .by = *params->by, .until_ms = params->now_ms + LOGIN_CODE_MS};
	memcpy(text, "exocode_", SECRET_AT);
	if (random_id("cod_", made.code_id, sizeof made.code_id) || base62_random(text + SECRET_AT, SECRET_DIGITS)) {
		OPENSSL_cleanse(text, LOGIN_CODE_BYTES);
		return error_set(error, STATUS_UNAVAILABLE, "the system gives no random bytes");
	}
	text[LOGIN_CODE_BYTES - 1] = 0;
	SHA256((const uint8_t *)text, LOGIN_CODE_BYTES - 1, made.hash);
	snprintf(code_id, STORE_ID_BYTES, "%s", made.code_id);
	*place = made;
	return STATUS_OK;
}

enum status login_codes_take(struct login_codes *codes, const char *text, int64_t now_ms, struct login_code *out,
			     struct error *error)
{
	uint8_t hash[STORE_HASH_BYTES];
	SHA256((const uint8_t *)text, strlen(text), hash);
	for (size_t i = 0; i < LOGIN_CODES; i++) {
		struct login_code *place = &codes->places[i];
		if (place->until_ms <= now_ms || CRYPTO_memcmp(place->hash, hash, sizeof hash) != 0)
			continue;
		*out = *place;
		*place = (struct login_code){0};
		return STATUS_OK;
	}
	error_set(error, STATUS_UNAUTHENTICATED, "this login link was used already, or is older than %d s",
		  LOGIN_CODE_MS / 1000);
	error_hint(error, "run exogpu open on the server's machine for a new one");
	return STATUS_UNAUTHENTICATED;
}
