/* The layout of tables: aligned, cut, columns left out, coloured, whole where there is no width. */
#include "server/cli/format.h"
#include "server/cli/table.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdlib.h>
#include <string.h>

static const struct table_column columns[] = {
	{.title = "NAME", .narrowest = 6},
	{.title = "STATE"},
	{.title = "TEMP", .right = true},
	{.title = "ID", .leave_out = 1},
};

// The table as text; to be freed.
static char *print(size_t width, bool colour)
{
	char *text = NULL;
	size_t size = 0;
	struct table table;
	struct error error = {0};
	struct terminal terminal = {.width = width, .colour = colour};
	FILE *out = open_memstream(&text, &size);
	assert_non_null(out);
	table_init(&table, columns, sizeof columns / sizeof *columns);
	table_add(&table, TONE_PLAIN, "%s", "Müller's H200");
	table_add(&table, TONE_GOOD, "%s", "online");
	table_add(&table, TONE_PLAIN, "%s", "54 °C");
	table_add(&table, TONE_PLAIN, "%s", "dev_1");
	table_add(&table, TONE_PLAIN, "%s", "a");
	table_add(&table, TONE_PLAIN, "%s", "");
	table_add(&table, TONE_PLAIN, "%s", "-");
	table_add(&table, TONE_PLAIN, "%s", "d\033");
	assert_int_equal(table_print(&table, out, &terminal, &error), STATUS_OK);
	table_finish(&table);
	fclose(out);
	return text;
}

static void expect(size_t width, bool colour, const char *expected)
{
	char *text = print(width, colour);
	assert_string_equal(text, expected);
	free(text);
}

static void columns_are_aligned_by_code_points(void **state)
{
	(void)state;
	expect(0, false,
	       "NAME           STATE    TEMP  ID\n"
	       "Müller's H200  online  54 °C  dev_1\n"
	       "a              -           -  d?\n");
	expect(35, false,
	       "NAME           STATE    TEMP  ID\n"
	       "Müller's H200  online  54 °C  dev_1\n"
	       "a              -           -  d?\n");
}

static void a_narrow_terminal_cuts_first(void **state)
{
	(void)state;
	expect(30, false,
	       "NAME      STATE    TEMP  ID\n"
	       "Müller'…  online  54 °C  dev_1\n"
	       "a         -           -  d?\n");
}

static void then_columns_are_left_out(void **state)
{
	(void)state;
	expect(27, false,
	       "NAME          STATE    TEMP\n"
	       "Müller's H2…  online  54 °C\n"
	       "a             -           -\n"
	       "(columns left out because the terminal is narrow: ID)\n");
	expect(1, false,
	       "NAME    STATE    TEMP\n"
	       "Mülle…  online  54 °C\n"
	       "a       -           -\n"
	       "(columns left out because the terminal is narrow: ID)\n");
}

static void no_line_is_wider_than_the_terminal(void **state)
{
	(void)state;
	for (size_t width = 32; width >= 21; width--) {
		char *text = print(width, false), *line = text;
		for (size_t i = 0; i < 3; i++) {
			char *end = strchr(line, '\n');
			assert_non_null(end);
			*end = 0;
			if (text_width(line) > width)
				fail_msg("%zu columns for \"%s\" of %zu", width, line, text_width(line));
			line = end + 1;
		}
		free(text);
	}
}

static void colour_does_not_count(void **state)
{
	(void)state;
	expect(0, true,
	       "NAME           STATE    TEMP  ID\n"
	       "Müller's H200  \033[32monline\033[0m  54 °C  dev_1\n"
	       "a              -           -  d?\n");
}

static void a_table_without_rows_has_titles(void **state)
{
	char *text = NULL;
	size_t size = 0;
	struct table table;
	struct terminal terminal = {0};
	FILE *out = open_memstream(&text, &size);
	(void)state;
	table_init(&table, columns, 2);
	assert_int_equal(table_print(&table, out, &terminal, NULL), STATUS_OK);
	table_finish(&table);
	fclose(out);
	assert_string_equal(text, "NAME  STATE\n");
	free(text);
}

static void a_cell_is_bounded_and_whole(void **state)
{
	char *text = NULL, cell[2001];
	size_t size = 0;
	struct table table;
	struct terminal terminal = {0};
	FILE *out = open_memstream(&text, &size);
	(void)state;
	for (size_t i = 0; i < 2000; i += 2)
		memcpy(cell + i, "°", 2);
	cell[2000] = 0;
	table_init(&table, columns, 1);
	table_add(&table, TONE_PLAIN, "%s", cell);
	assert_int_equal(table_print(&table, out, &terminal, NULL), STATUS_OK);
	table_finish(&table);
	fclose(out);
	size_t length = strlen(text) - 1 - strlen("NAME\n");
	assert_true(length <= 1024);
	assert_int_equal(length % 2, 0);
	free(text);
}

static void a_table_that_grew_too_large_is_an_error(void **state)
{
	struct table table;
	struct error error = {0};
	struct terminal terminal = {0};
	(void)state;
	table_init(&table, columns, 1);
	table.text.maximum = 64;
	for (size_t i = 0; i < 100; i++)
		table_add(&table, TONE_PLAIN, "%s", "0123456789");
	assert_int_equal(table_print(&table, stdout, &terminal, &error), STATUS_LIMIT_EXCEEDED);
	assert_true(error.message[0]);
	table_finish(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_are_aligned_by_code_points),
		cmocka_unit_test(a_narrow_terminal_cuts_first),
		cmocka_unit_test(then_columns_are_left_out),
		cmocka_unit_test(no_line_is_wider_than_the_terminal),
		cmocka_unit_test(colour_does_not_count),
		cmocka_unit_test(a_table_without_rows_has_titles),
		cmocka_unit_test(a_cell_is_bounded_and_whole),
		cmocka_unit_test(a_table_that_grew_too_large_is_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
