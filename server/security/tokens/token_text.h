/* The text of a token: exo_<id 10>_<secret 43>_<crc32 6>, all base62 (0-9, A-Z, a-z), most significant digit first.
 *
 *   exo_7Qm2xTzR0a_o3…43 digits…Kx_2LkDEf
 *       id          secret           CRC-32 (IEEE) of everything before the last underscore
 *
 * The id is public, the secret's 43 digits hold 256 random bits; prefix and checksum let scanners find a leaked token
 * and a slip of typing be told without asking. As a regular expression:
 * exo_[0-9A-Za-z]{10}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6} Thread: any. */
#pragma once
#include "common/text/base62.h"

enum {
	TOKEN_ID_DIGITS = 10,
	TOKEN_SECRET_DIGITS = 43,
	TOKEN_CRC_DIGITS = BASE62_CRC_DIGITS,
	TOKEN_TEXT_LENGTH = 4 + TOKEN_ID_DIGITS + 1 + TOKEN_SECRET_DIGITS + 1 + TOKEN_CRC_DIGITS, // 65
};

// A new text with a random id and secret, from the system's generator. text: (TOKEN_TEXT_LENGTH + 1).
// Errors: STATUS_UNAVAILABLE (the system has no randomness to give).
enum status token_text_make(char *text);
// Points *id and *secret into `text`. Errors: STATUS_INVALID_PARAMS (not such a text, or its checksum is wrong).
enum status token_text_parse(const char *text, const char **id, const char **secret);
