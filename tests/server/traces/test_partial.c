// What a collector says of a batch that it takes.
#include "server/traces/partial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static void test_said(void **state)
{
	static const struct {
		const char *text;
		uint64_t rejected;
		const char *message;
	} cases[] = {
		{"{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"too old\"}}", 3, "too old"},
		{"{\"partialSuccess\":{\"rejectedSpans\":2}}", 2, ""},
		{"{\"partialSuccess\":{\"errorMessage\":\"slow down\"}}", 0, "slow down"}, // a warning
		{"{\"partialSuccess\":{\"rejectedSpans\":-1,\"errorMessage\":\"a\\nb\\u001b\"}}", 0, "a b "},
		{"{\"partialSuccess\":{\"rejectedSpans\":\"9223372036854775807\"}}", INT64_MAX, ""},
	};
	struct partial partial;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_true(partial_read(cases[i].text, strlen(cases[i].text), &partial));
		assert_int_equal(partial.rejected, cases[i].rejected);
		assert_string_equal(partial.message, cases[i].message);
	}
}

static void test_nothing(void **state)
{
	static const char *const texts[] = {
		"",
		"{}",
		"[]",
		"null",
		"<html>",
		"{\"partialSuccess\":{}}",
		"{\"partialSuccess\":null}",
		"{\"partialSuccess\":3}",
		"{\"partialSuccess\":{\"rejectedSpans\":\"0\",\"errorMessage\":\"\"}}",
		"{\"partialSuccess\":{\"rejectedSpans\":\"many\",\"errorMessage\":7}}",
		"{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"cut o",
	};
	struct partial partial;
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		assert_false(partial_read(texts[i], strlen(texts[i]), &partial));
		assert_int_equal(partial.rejected, 0);
		assert_string_equal(partial.message, "");
	}
	assert_false(partial_read(NULL, 0, &partial));
}

static void test_long(void **state)
{
	char text[4096] = "{\"partialSuccess\":{\"errorMessage\":\"";
	struct partial partial;
	(void)state;
	const size_t head = strlen(text);
	memset(text + head, 'x', sizeof text - head - 4);
	memcpy(text + sizeof text - 4, "\"}}", 4);
	assert_true(partial_read(text, sizeof text - 1, &partial));
	assert_int_equal(strlen(partial.message), sizeof partial.message - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_said),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_long),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
