/* See base64.h. */
#include "common/text/base64.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *bytes, size_t length, char *text)
{
	const uint8_t *from = bytes;
	for (; length >= 3; length -= 3, from += 3) {
		uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
		for (int shift = 18; shift >= 0; shift -= 6)
			*text++ = digits[bits >> shift & 63];
	}
	if (length) {
		uint32_t bits = (uint32_t)from[0] << 16 | (length == 2 ? (uint32_t)from[1] << 8 : 0);
		*text++ = digits[bits >> 18];
		*text++ = digits[bits >> 12 & 63];
		*text++ = length == 2 ? digits[bits >> 6 & 63] : '=';
		*text++ = '=';
	}
	*text = 0;
}

bool base64_decode(const char *text, size_t text_length, void *bytes, size_t length)
{
	if (length > SIZE_MAX / 2 || text_length != BASE64_TEXT_BYTES(length) - 1)
		return false;
	uint8_t *to = bytes;
	for (size_t left = length; left > 0; text += 4) {
		size_t whole = left < 3 ? left : 3; // bytes in these four digits
		uint32_t bits = 0;
		for (size_t i = 0; i < 4; i++) {
			const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
			if (i <= whole ? !digit : text[i] != '=')
				return false;
			bits = bits << 6 | (i <= whole ? (uint32_t)(digit - digits) : 0);
		}
		if (whole < 3 && bits & ((1u << (24 - 8 * whole)) - 1))
			return false;
		for (size_t i = 0; i < whole; i++)
			*to++ = (uint8_t)(bits >> (16 - 8 * i));
		left -= whole;
	}
	return true;
}
