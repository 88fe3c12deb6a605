/* A growing buffer: what is appended is there, the maximum holds, and a failure sticks until it is cleared. */
#include "common/base/buffer.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

static void appends_and_reads_as_text(void **state)
{
	(void)state;
	struct buffer buffer;
	buffer_init(&buffer, 100);
	assert_string_equal(buffer_text(&buffer), "");
	assert_int_equal(buffer_append(&buffer, "", 0), STATUS_OK);
	assert_int_equal(buffer_append_text(&buffer, "one "), STATUS_OK);
	assert_int_equal(buffer_append_byte(&buffer, '2'), STATUS_OK);
	assert_int_equal(buffer_printf(&buffer, " %d%s", 3, "!"), STATUS_OK);
	assert_string_equal(buffer_text(&buffer), "one 2 3!");
	assert_int_equal(buffer.length, 8);
	buffer_consume(&buffer, 0);
	buffer_consume(&buffer, 4);
	assert_string_equal(buffer_text(&buffer), "2 3!");
	buffer_consume(&buffer, 4);
	assert_int_equal(buffer.length, 0);
	assert_string_equal(buffer_text(&buffer), "");
	buffer_finish(&buffer);
	assert_null(buffer.data);
}

static void numbers_are_little_endian(void **state)
{
	(void)state;
	struct buffer buffer;
	const uint8_t expected[] = {0x04, 0x03, 0x02, 0xF1};
	buffer_init(&buffer, 4);
	assert_int_equal(buffer_append_u32le(&buffer, 0xF1020304), STATUS_OK);
	assert_int_equal(buffer.length, 4);
	assert_memory_equal(buffer.data, expected, 4);
	buffer_finish(&buffer);
}

static void the_maximum_holds_and_a_failure_sticks(void **state)
{
	(void)state;
	struct buffer buffer;
	buffer_init(&buffer, 5);
	assert_int_equal(buffer_append(&buffer, "12345", 5), STATUS_OK);
	assert_int_equal(buffer_append(&buffer, "", 0), STATUS_OK);
	assert_int_equal(buffer_append_byte(&buffer, '6'), STATUS_LIMIT_EXCEEDED);
	assert_string_equal(buffer_text(&buffer), "12345");
	assert_true(buffer.failed);
	buffer_consume(&buffer, 5);
	assert_int_equal(buffer_append_byte(&buffer, '1'), STATUS_LIMIT_EXCEEDED);
	buffer_clear(&buffer);
	assert_false(buffer.failed);
	assert_int_equal(buffer_printf(&buffer, "%d", 123456), STATUS_LIMIT_EXCEEDED);
	buffer_clear(&buffer);
	assert_int_equal(buffer_reserve(&buffer, SIZE_MAX), STATUS_LIMIT_EXCEEDED);
	buffer_clear(&buffer);
	assert_int_equal(buffer_append_text(&buffer, "ok"), STATUS_OK);
	assert_string_equal(buffer_text(&buffer), "ok");
	buffer_finish(&buffer);
}

static void may_be_used_again_after_finish(void **state)
{
	(void)state;
	struct buffer buffer;
	buffer_init(&buffer, 1000);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 100; i++)
			assert_int_equal(buffer_append_text(&buffer, "0123456789"), STATUS_OK);
		assert_int_equal(buffer.length, 1000);
		assert_int_equal(strlen(buffer_text(&buffer)), 1000);
		buffer_finish(&buffer);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(appends_and_reads_as_text),
		cmocka_unit_test(numbers_are_little_endian),
		cmocka_unit_test(the_maximum_holds_and_a_failure_sticks),
		cmocka_unit_test(may_be_used_again_after_finish),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
