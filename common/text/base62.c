/* See base62.h. */
#include "common/text/base62.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

enum { BASE = 62, WHOLE_BYTE_RANGE = BASE * 4 }; // bytes below this give every digit the same chance

// -1 for what is none.
static int value_of(char digit)
{
	const char *at = digit ? strchr(alphabet, digit) : NULL;
	return at ? (int)(at - alphabet) : -1;
}

enum status base62_random(char *out, size_t count)
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
				out[made++] = alphabet[bytes[i] % BASE];
	}
	explicit_bzero(bytes, sizeof bytes);
	return status;
}

bool base62_all(const char *text, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (value_of(text[i]) < 0)
			return false;
	return true;
}

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

void base62_crc(const char *text, size_t length, char out[BASE62_CRC_DIGITS])
{
	uint32_t crc = crc32(text, length);
	for (int i = BASE62_CRC_DIGITS - 1; i >= 0; i--) {
		out[i] = alphabet[crc % BASE];
		crc /= BASE;
	}
}

void base62_print256(const uint8_t bytes[32], char out[BASE62_SHA256_DIGITS])
{
	uint8_t number[32];
	memcpy(number, bytes, sizeof number);
	for (int digit = BASE62_SHA256_DIGITS - 1; digit >= 0; digit--) {
		unsigned rest = 0;
		for (size_t i = 0; i < sizeof number; i++) { // number / 62, and what is left
			rest = rest << 8 | number[i];
			number[i] = (uint8_t)(rest / BASE);
			rest %= BASE;
		}
		out[digit] = alphabet[rest];
	}
}

bool base62_read256(const char *digits, uint8_t bytes[32])
{
	memset(bytes, 0, 32);
	for (size_t digit = 0; digit < BASE62_SHA256_DIGITS; digit++) {
		int value = value_of(digits[digit]);
		if (value < 0)
			return false;
		unsigned carry = (unsigned)value;
		for (int i = 31; i >= 0; i--) { // number * 62 + digit
			carry += (unsigned)bytes[i] * BASE;
			bytes[i] = (uint8_t)carry;
			carry >>= 8;
		}
		if (carry)
			return false;
	}
	return true;
}
