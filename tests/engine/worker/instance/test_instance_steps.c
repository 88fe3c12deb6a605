/* The times of steps: means by octaves of rows, generating and pieces of prompts apart, reported when there are
 * enough. */
#include "engine/worker/instance/instance_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
// cmocka.h needs the three above it.
#include <cmocka.h>

static struct instance_steps steps;

static void add(int times, uint32_t rows, uint32_t runs, bool alone, double first_ms, double second_ms)
{
	const uint64_t parts_ns[] = {(uint64_t)(first_ms * 1e6), (uint64_t)(second_ms * 1e6)};
	for (int i = 0; i < times; i++)
		instance_steps_add(&steps, rows, runs, alone, parts_ns, 2);
}

// What is told, as text; told values are begun anew.
static void assert_told(const char *wanted)
{
	struct buffer text;
	struct json *told = instance_steps_tell(&steps, 2);
	buffer_init(&text, 1 << 16);
	assert_int_equal(json_print(told, &text), STATUS_OK);
	assert_string_equal(buffer_text(&text), wanted);
	buffer_finish(&text);
	json_destroy(&told);
}

static void by_rows(void **unused)
{
	(void)unused;
	memset(&steps, 0, sizeof steps);
	assert_told("[]");
	add(7, 1, 1, true, 2, 3);
	assert_told("[]"); // too few, which wait for more
	add(1, 1, 1, true, 10, 11);
	add(4, 3, 3, false, 4, 5);
	add(4, 4, 4, false, 6, 7);
	assert_told("[{\"rows\":3.5,\"generating\":true,\"alone\":false,\"parts_ms\":[5,6]},"
		    "{\"rows\":1,\"generating\":true,\"alone\":true,\"parts_ms\":[3,4]}]");
	assert_told("[]");
	add(8, 32, 32, true, 1, 1);
	add(8, 33, 33, true, 1, 1); // more than are told
	add(8, 0, 0, true, 1, 1);
	assert_told("[{\"rows\":32,\"generating\":true,\"alone\":true,\"parts_ms\":[1,1]}]");
}

static void prompts(void **unused)
{
	(void)unused;
	memset(&steps, 0, sizeof steps);
	add(8, 9, 2, true, 1, 1);      // a few rows of a prompt beside one that generates: neither
	add(8, 31, 1, true, 1, 1);     // less than a page
	add(4, 128, 1, true, 100, 80); // a piece
	add(4, 256, 4, true, 200, 160);
	assert_told("[{\"rows\":192,\"generating\":false,\"alone\":true,\"parts_ms\":[150,120]}]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(by_rows), cmocka_unit_test(prompts)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
