/* See token_text.h. */
#include "server/security/token_text.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

enum {
	ID_AT = 4,
	SECRET_AT = ID_AT + TOKEN_ID_DIGITS + 1,
	CRC_AT = SECRET_AT + TOKEN_SECRET_DIGITS + 1,
	WHOLE_BYTE_RANGE = 62 * 4, // bytes below this give every digit the same chance
};

static uint32_t crc32(const char *bytes, size_t length)
{
	uint32_t crc = 0xffffffff;
	for (size_t i = 0; i < length; i++) {
		crc ^= (uint8_t)bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (0xedb88320 & (0u - (crc & 1)));
	}
	return ~crc;
}

static void write_crc(const char *text, char out[TOKEN_CRC_DIGITS])
{
	uint32_t crc = crc32(text, CRC_AT - 1);
	for (int i = TOKEN_CRC_DIGITS - 1; i >= 0; i--) {
		out[i] = digits[crc % 62];
		crc /= 62;
	}
}

static enum status random_digits(char *out, size_t count)
{
	enum status status = STATUS_OK;
	uint8_t bytes[64];
	size_t made = 0;
	while (made < count) {
		ssize_t got = getrandom(bytes, sizeof bytes, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			status = STATUS_UNAVAILABLE;
			break;
		}
		for (ssize_t i = 0; i < got && made < count; i++)
			if (bytes[i] < WHOLE_BYTE_RANGE)
				out[made++] = digits[bytes[i] % 62];
	}
	OPENSSL_cleanse(bytes, sizeof bytes);
	return status;
}

enum status token_text_make(char *text)
{
	memcpy(text, "exo_", ID_AT);
	enum status status = random_digits(text + ID_AT, TOKEN_ID_DIGITS);
	if (!status)
		status = random_digits(text + SECRET_AT, TOKEN_SECRET_DIGITS);
	text[SECRET_AT - 1] = text[CRC_AT - 1] = '_';
	if (status) {
		OPENSSL_cleanse(text, CRC_AT);
		text[0] = 0;
		return status;
	}
	write_crc(text, text + CRC_AT);
	text[TOKEN_TEXT_LENGTH] = 0;
	return STATUS_OK;
}

static bool all_digits(const char *text, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strchr(digits, text[i]))
			return false;
	return true;
}

enum status token_text_parse(const char *text, const char **id, const char **secret)
{
	char crc[TOKEN_CRC_DIGITS];
	if (strnlen(text, TOKEN_TEXT_LENGTH + 1) != TOKEN_TEXT_LENGTH || memcmp(text, "exo_", ID_AT) ||
	    text[SECRET_AT - 1] != '_' || text[CRC_AT - 1] != '_' || !all_digits(text + ID_AT, TOKEN_ID_DIGITS) ||
	    !all_digits(text + SECRET_AT, TOKEN_SECRET_DIGITS))
		return STATUS_INVALID_PARAMS;
	write_crc(text, crc);
	if (memcmp(crc, text + CRC_AT, TOKEN_CRC_DIGITS))
		return STATUS_INVALID_PARAMS;
	*id = text + ID_AT;
	*secret = text + SECRET_AT;
	return STATUS_OK;
}
