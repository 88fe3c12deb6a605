/* The text of a token: what is made is well-formed, and nothing else is taken. */
#include "server/security/tokens/token_text.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static const char known[] = "exo_0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq_04wb0D";

static enum status parse(const char *text)
{
	const char *id = NULL, *secret = NULL;
	enum status status = token_text_parse(text, &id, &secret);
	if (!status) {
		assert_ptr_equal(id, text + 4);
		assert_ptr_equal(secret, text + 15);
	}
	return status;
}

static void what_is_made_is_taken(void **state)
{
	(void)state;
	char last[TOKEN_TEXT_LENGTH + 1] = "";
	unsigned counts[62] = {0}, total = 0;
	for (int i = 0; i < 2000; i++) {
		char text[TOKEN_TEXT_LENGTH + 1];
		assert_int_equal(token_text_make(text), STATUS_OK);
		assert_int_equal(strlen(text), TOKEN_TEXT_LENGTH);
		assert_int_equal(parse(text), STATUS_OK);
		assert_string_not_equal(text, last);
		memcpy(last, text, sizeof last);
		for (int at = 15; at < 15 + TOKEN_SECRET_DIGITS; at++, total++)
			counts[strchr(digits, text[at]) - digits]++;
	}
	for (int i = 0; i < 62; i++) // each digit near its share: seven standard deviations
		assert_in_range(counts[i], total / 62 - 260, total / 62 + 260);
}

// The checksum is the CRC-32 of zlib and of Python's binascii, in base62.
static void known_text_is_taken(void **state)
{
	(void)state;
	assert_int_equal(parse(known), STATUS_OK);
}

static void every_other_text_is_refused(void **state)
{
	(void)state;
	char text[TOKEN_TEXT_LENGTH + 2];
	for (size_t at = 0; at < TOKEN_TEXT_LENGTH; at++)
		for (int byte = 1; byte < 256; byte++) { // every single wrong byte
			memcpy(text, known, sizeof known);
			if ((char)byte == text[at])
				continue;
			text[at] = (char)byte;
			assert_int_equal(parse(text), STATUS_INVALID_PARAMS);
		}
	for (size_t at = 4; at + 1 < TOKEN_TEXT_LENGTH; at++) { // two neighbours in each other's place
		memcpy(text, known, sizeof known);
		if (text[at] == text[at + 1])
			continue;
		text[at] = known[at + 1];
		text[at + 1] = known[at];
		assert_int_equal(parse(text), STATUS_INVALID_PARAMS);
	}
	for (size_t length = 0; length < TOKEN_TEXT_LENGTH; length++) { // cut short; on the heap, for the sanitizer
		char *part = strndup(known, length);
		assert_non_null(part);
		assert_int_equal(parse(part), STATUS_INVALID_PARAMS);
		free(part);
	}
	static const char *const others[] = {
		"exo_",
		" exo_0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq_04wb0D",
		"exo_0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq_04wb0D ",
		"exo_0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq_04wb0D\n",
		"EXO_0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq_04wb0D",
		"exo_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq_04wb0D__",
		"_________________________________________________________________",
		"Bearer exo_0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq_04wb0D",
	};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_int_equal(parse(others[i]), STATUS_INVALID_PARAMS);
	char *endless = malloc(100000);
	assert_non_null(endless);
	memset(endless, 'x', 99999);
	endless[99999] = 0;
	assert_int_equal(parse(endless), STATUS_INVALID_PARAMS);
	free(endless);
}

// Random runs of the bytes that tokens are made of.
static void random_texts_are_refused(void **state)
{
	(void)state;
	srandom(20261120);
	for (int i = 0; i < 200000; i++) {
		char text[80];
		size_t length = (size_t)random() % (sizeof text - 1);
		for (size_t at = 0; at < length; at++)
			text[at] = random() % 8 ? digits[random() % 62] : "_exo\xff\x80 \t"[random() % 8];
		text[length] = 0;
		if (length >= 4 && random() % 2)
			memcpy(text, "exo_", 4);
		assert_int_equal(parse(text), STATUS_INVALID_PARAMS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_made_is_taken),
		cmocka_unit_test(known_text_is_taken),
		cmocka_unit_test(every_other_text_is_refused),
		cmocka_unit_test(random_texts_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
