/* The bytes of an entry: exactly these for these fields, the same fields back, and nothing else is an entry. */
#include "common/journal/entry.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

static const struct journal_entry sample = {
	.seq = 0x0102030405060708,
	.at_us = -2,
	.duration_us = 3,
	.count = 1,
	.actor = "token:a",
	.action = "token.create",
	.detail = "{}",
};

static void encode(const struct journal_entry *entry, struct buffer *bytes)
{
	buffer_init(bytes, ENTRY_BYTES);
	assert_int_equal(entry_encode(entry, bytes), STATUS_OK);
}

static void test_bytes(void **state)
{
	static const uint8_t wanted[] = "\x01\x08\x07\x06\x05\x04\x03\x02\x01\xfe\xff\xff\xff\xff\xff\xff\xff"
					"\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"
					"\x07\0\0\0token:a\0\0\0\0\0\0\0\0\0\0\0\0\x0c\0\0\0token.create"
					"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0{}";
	struct buffer bytes;
	(void)state;
	encode(&sample, &bytes);
	assert_int_equal(bytes.length, sizeof(wanted) - 1);
	assert_memory_equal(bytes.data, wanted, bytes.length);
	buffer_finish(&bytes);
}

// Version 2: the same, with what it binds; the bytes of version 1 stay what they were.
static void test_bytes_that_bind(void **state)
{
	static const uint8_t wanted[] = "\x02\x08\x07\x06\x05\x04\x03\x02\x01\xfe\xff\xff\xff\xff\xff\xff\xff"
					"\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0"
					"\x07\0\0\0token:a\0\0\0\0\0\0\0\0\0\0\0\0\x0c\0\0\0token.create"
					"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0{}\x0a\0\0\0token a -\n";
	char texts[ENTRY_BYTES];
	struct journal_entry entry, bound = sample;
	struct buffer bytes;
	(void)state;
	bound.bound = "token a -\n";
	bound.bound_before = 9;
	encode(&bound, &bytes);
	assert_int_equal(bytes.length, sizeof(wanted) - 1);
	assert_memory_equal(bytes.data, wanted, bytes.length);
	assert_int_equal(entry_decode(&entry, bytes.data, bytes.length, texts), STATUS_OK);
	assert_string_equal(entry.bound, bound.bound);
	assert_true(entry.bound_before == 9 && entry.seq == bound.seq);
	for (size_t length = 0; length < bytes.length; length++)
		assert_int_equal(entry_decode(&entry, bytes.data, length, texts), STATUS_INVALID_PARAMS);
	bytes.data[0] = 1; // neither version's bytes are the other's
	assert_int_equal(entry_decode(&entry, bytes.data, bytes.length, texts), STATUS_INVALID_PARAMS);
	buffer_finish(&bytes);
	encode(&sample, &bytes);
	assert_int_equal(entry_decode(&entry, bytes.data, bytes.length, texts), STATUS_OK);
	assert_null(entry.bound);
	bytes.data[0] = 2;
	assert_int_equal(entry_decode(&entry, bytes.data, bytes.length, texts), STATUS_INVALID_PARAMS);
	buffer_finish(&bytes);
}

static void expect_same(const struct journal_entry *a, const struct journal_entry *b)
{
	assert_true(a->seq == b->seq && a->at_us == b->at_us && a->duration_us == b->duration_us &&
		    a->count == b->count);
#define X(name) assert_string_equal(a->name ? a->name : "", b->name ? b->name : "");
	ENTRY_TEXT_LIST(X)
#undef X
}

static void test_round_trip(void **state)
{
	char texts[ENTRY_BYTES], longest[ENTRY_TEXT_BYTES + 2];
	struct journal_entry entry, full = sample;
	struct buffer bytes;
	(void)state;
	encode(&sample, &bytes);
	assert_int_equal(entry_decode(&entry, bytes.data, bytes.length, texts), STATUS_OK);
	expect_same(&entry, &sample);
	buffer_finish(&bytes);
	// As large as an entry may be: three whole texts, and one up to the limit of all.
	memset(longest, 'x', sizeof(longest));
	longest[ENTRY_TEXT_BYTES] = 0;
	full.actor = full.target = full.detail = longest;
	size_t left = ENTRY_BYTES - 33 - 4 * ENTRY_TEXTS - 3 * ENTRY_TEXT_BYTES - strlen(full.action);
	full.peer = longest + ENTRY_TEXT_BYTES - left;
	encode(&full, &bytes);
	assert_int_equal(bytes.length, ENTRY_BYTES);
	assert_int_equal(entry_decode(&entry, bytes.data, bytes.length, texts), STATUS_OK);
	expect_same(&entry, &full);
	buffer_finish(&bytes);
	buffer_init(&bytes, 2 * ENTRY_BYTES);
	full.session_id = "y";
	assert_int_equal(entry_encode(&full, &bytes), STATUS_LIMIT_EXCEEDED);
	buffer_finish(&bytes);
	buffer_init(&bytes, 2 * ENTRY_BYTES);
	full = sample;
	longest[ENTRY_TEXT_BYTES] = 'x';
	longest[ENTRY_TEXT_BYTES + 1] = 0;
	full.peer = longest;
	assert_int_equal(entry_encode(&full, &bytes), STATUS_LIMIT_EXCEEDED);
	buffer_finish(&bytes);
}

// Every bit flipped either is no entry or another one, whose bytes are these; every length but the whole is none.
static void test_strict(void **state)
{
	char texts[ENTRY_BYTES];
	struct journal_entry entry;
	struct buffer bytes, again;
	unsigned refused = 0;
	(void)state;
	encode(&sample, &bytes);
	for (size_t bit = 0; bit < bytes.length * 8; bit++) {
		bytes.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (entry_decode(&entry, bytes.data, bytes.length, texts)) {
			refused++;
		} else {
			encode(&entry, &again);
			assert_int_equal(again.length, bytes.length);
			assert_memory_equal(again.data, bytes.data, bytes.length);
			buffer_finish(&again);
		}
		bytes.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_true(refused > 8);
	for (size_t length = 0; length < bytes.length; length++)
		assert_int_equal(entry_decode(&entry, bytes.data, length, texts), STATUS_INVALID_PARAMS);
	buffer_finish(&bytes);
	buffer_init(&bytes, ENTRY_BYTES + 1);
	entry_encode(&sample, &bytes);
	buffer_append_byte(&bytes, 0);
	assert_int_equal(entry_decode(&entry, bytes.data, bytes.length, texts), STATUS_INVALID_PARAMS);
	bytes.data[33 + 4] = 0; // a text with an end in it
	assert_int_equal(entry_decode(&entry, bytes.data, bytes.length - 1, texts), STATUS_INVALID_PARAMS);
	buffer_finish(&bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_bytes_that_bind),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_strict),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
