/* See token_text.h. */
#include "server/security/tokens/token_text.h"

#include <openssl/crypto.h>
#include <string.h>

enum {
	ID_AT = 4,
	SECRET_AT = ID_AT + TOKEN_ID_DIGITS + 1,
	CRC_AT = SECRET_AT + TOKEN_SECRET_DIGITS + 1,
};

enum status token_text_make(char *text)
{
	memcpy(text, "exo_", ID_AT);
	enum status status = base62_random(text + ID_AT, TOKEN_ID_DIGITS);
	if (!status)
		status = base62_random(text + SECRET_AT, TOKEN_SECRET_DIGITS);
	text[SECRET_AT - 1] = text[CRC_AT - 1] = '_';
	if (status) {
		OPENSSL_cleanse(text, CRC_AT);
		text[0] = 0;
		return status;
	}
	base62_crc(text, CRC_AT - 1, text + CRC_AT);
	text[TOKEN_TEXT_LENGTH] = 0;
	return STATUS_OK;
}

enum status token_text_parse(const char *text, const char **id, const char **secret)
{
	char crc[TOKEN_CRC_DIGITS];
	if (strnlen(text, TOKEN_TEXT_LENGTH + 1) != TOKEN_TEXT_LENGTH || memcmp(text, "exo_", ID_AT) ||
	    text[SECRET_AT - 1] != '_' || text[CRC_AT - 1] != '_' || !base62_all(text + ID_AT, TOKEN_ID_DIGITS) ||
	    !base62_all(text + SECRET_AT, TOKEN_SECRET_DIGITS))
		return STATUS_INVALID_PARAMS;
	base62_crc(text, CRC_AT - 1, crc);
	if (memcmp(crc, text + CRC_AT, TOKEN_CRC_DIGITS))
		return STATUS_INVALID_PARAMS;
	*id = text + ID_AT;
	*secret = text + SECRET_AT;
	return STATUS_OK;
}
