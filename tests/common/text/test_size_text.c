/* Sizes in words: no size but 0 is said to be 0, and none is said in 1024 of a unit. */
#include "common/text/size_text.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

static void sizes_are_said_in_a_unit_that_tells_them(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0 B"},
		{1, "1 B"},
		{1023, "1023 B"},
		{1024, "1.0 KiB"},
		{1536, "1.5 KiB"},
		{20 << 10, "20 KiB"},
		{(1 << 20) - 1, "1.0 MiB"},
		{5 << 20, "5.0 MiB"},
		{UINT64_C(1023) << 20, "1023 MiB"},
		{(UINT64_C(1) << 30) - 1, "1.00 GiB"},
		{UINT64_C(21855) << 20, "21.34 GiB"},
		{UINT64_C(1) << 53, "8388608.00 GiB"},
		{UINT64_MAX, "17179869184.00 GiB"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_string_equal(SIZE_TEXT(cases[i].bytes), cases[i].text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_said_in_a_unit_that_tells_them)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
