/* The text of a ticket: exojoin_<id 10>_<secret 43>_<authority 43>_<crc32 6>, all base62.
 *
 *   exojoin_7Qm2xTzR0a_o3…43 digits…Kx_1Z…43 digits…q8_2LkDEf
 *           id          secret          authority       CRC-32 of everything before the last underscore
 *
 * The id is public; the secret's 43 digits hold 256 random bits; the authority is the SHA-256 of the certificate of the
 * cluster's authority, by which who holds the ticket knows the right server from any other. The server makes tickets
 * and both ends read them. Thread: any. */
#pragma once
#include "common/text/base62.h"

enum {
	TICKET_ID_DIGITS = 10,
	TICKET_SECRET_DIGITS = 43,
	TICKET_TEXT_LENGTH = 8 + TICKET_ID_DIGITS + 1 + TICKET_SECRET_DIGITS + 1 + BASE62_SHA256_DIGITS + 1 +
			     BASE62_CRC_DIGITS, // 113
};

// A new text with a random id and secret. text: (TICKET_TEXT_LENGTH + 1). Errors: STATUS_UNAVAILABLE (the system has
// no randomness to give); then text is "".
enum status ticket_text_make(const uint8_t authority_sha256[32], char *text);

struct ticket_parts {
	const char *id, *secret; // into the text
	uint8_t authority_sha256[32];
};
// Errors: STATUS_INVALID_PARAMS, saying whether it is none at all or a mistyped one, with a hint.
enum status ticket_text_parse(const char *text, struct ticket_parts *parts, struct error *error);
