/* Figures, spans of time, widths, and the word that was meant. */
#include "server/cli/format.h"

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
#include <time.h>

static void memory_has_a_unit(void **state)
{
	char text[FORMAT_BYTES];
	(void)state;
	assert_string_equal(format_memory(-1, text), "-");
	assert_string_equal(format_memory(0, text), "0 B");
	assert_string_equal(format_memory(1023, text), "1023 B");
	assert_string_equal(format_memory(1024, text), "1 KiB");
	assert_string_equal(format_memory(512 * 1024 * 1024, text), "512 MiB");
	assert_string_equal(format_memory(21797699584, text), "20.3 GiB");
	assert_string_equal(format_memory(INT64_C(2) << 40, text), "2048.0 GiB");
	assert_string_equal(format_memory(INT64_C(10) << 40, text), "10.00 TiB");
	assert_true(strlen(format_memory(INT64_MAX, text)) < FORMAT_BYTES - 1);
}

static void used_memory_is_in_the_unit_of_the_whole(void **state)
{
	char text[FORMAT_BYTES];
	(void)state;
	assert_string_equal(format_memory_of(1 << 20, INT64_C(24) << 30, text), "0.0 / 24.0 GiB");
	assert_string_equal(format_memory_of(-1, INT64_C(24) << 30, text), "- / 24.0 GiB");
	assert_string_equal(format_memory_of(INT64_C(3) << 30, -1, text), "3.0 GiB");
	assert_string_equal(format_memory_of(-1, -1, text), "-");
}

static void an_absent_reading_is_a_dash(void **state)
{
	char text[FORMAT_BYTES];
	(void)state;
	assert_string_equal(format_quantity(-1, "W", text), "-");
	assert_string_equal(format_quantity(0, "W", text), "0 W");
	assert_string_equal(format_quantity(54.4, "°C", text), "54 °C");
	assert_string_equal(format_quantity(1e300, "W", text), "-");
}

static void sizes_are_read(void **state)
{
	static const struct {
		const char *text;
		int64_t bytes; // 0: refused
	} cases[] = {
		{"4096", 4096},
		{"1B", 1},
		{"4GiB", INT64_C(4) << 30},
		{"512 MiB", 512 << 20},
		{"1.5g", INT64_C(3) << 29},
		{"2TB", INT64_C(2000000000000)},
		{"64k", 65536},
		{"0", 0},
		{"-1", 0},
		{"0.2", 0},
		{"1e300", 0},
		{"", 0},
		{"GiB", 0},
		{"4 GiBs", 0},
		{"0x10", 0},
		{"inf", 0},
		{"nan", 0},
		{" 4", 0},
		{"9000TiBB", 0},
		{"9e15", INT64_C(9000000000000000)},
		{"9100TB", 0},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int64_t bytes = 0;
		struct error error = {0};
		enum status status = parse_size(cases[i].text, &bytes, &error);
		if (bytes != cases[i].bytes || !status != (cases[i].bytes > 0) || (status && !error.hint[0]))
			fail_msg("\"%s\" is read as %lld, not %lld", cases[i].text, (long long)bytes,
				 (long long)cases[i].bytes);
	}
}

static void rates_have_a_unit(void **state)
{
	char text[FORMAT_BYTES];
	(void)state;
	assert_string_equal(format_rate(4.43e12, "B/s", text), "4.43 TB/s");
	assert_string_equal(format_rate(812.4e6, "B/s", text), "812 MB/s");
	assert_string_equal(format_rate(12.34e9, "FLOP/s", text), "12.3 GFLOP/s");
	assert_string_equal(format_rate(0, "B/s", text), "0.00 B/s");
	assert_string_equal(format_rate(999.6e6, "B/s", text), "1.00 GB/s");
	assert_string_equal(format_rate(-1, "B/s", text), "-");
	assert_true(strlen(format_rate(1e30, "FLOP/s", text)) < FORMAT_BYTES - 1);
}

static void ages(void **state)
{
	char text[FORMAT_BYTES];
	(void)state;
	assert_string_equal(format_age(-1, text), "-");
	assert_string_equal(format_age(900, text), "0 s");
	assert_string_equal(format_age(59999, text), "59 s");
	assert_string_equal(format_age(60000, text), "1 min");
	assert_string_equal(format_age(3600000, text), "1 h");
	assert_string_equal(format_age(INT64_C(47) * 3600000, text), "47 h");
	assert_string_equal(format_age(INT64_C(48) * 3600000, text), "2 d");
	assert_true(strlen(format_age(INT64_MAX, text)) < FORMAT_BYTES - 1);
}

static void times_are_in_the_readers_zone(void **state)
{
	char text[FORMAT_BYTES];
	(void)state;
	setenv("TZ", "UTC-2", 1);
	tzset();
	assert_string_equal(format_time(INT64_C(1795270980000), text), "2026-11-21 16:23");
	assert_string_equal(format_time(-1, text), "-");
	assert_string_equal(format_time_s(INT64_C(1795270987500), text), "2026-11-21 16:23:07");
	assert_string_equal(format_time_s(-1, text), "-");
}

static void durations(void **state)
{
	static const struct {
		const char *text;
		int64_t seconds; // 0: refused
	} cases[] = {
		{"1s", 1},
		{"3600s", 3600},
		{"90m", 5400},
		{"24h", 86400},
		{"30d", 2592000},
		{"2w", 1209600},
		{"3650d", 315360000},
		{"3651d", 0},
		{"315360001s", 0},
		{"0s", 0},
		{"-1h", 0},
		{"", 0},
		{"h", 0},
		{"24", 0},
		{"24 h", 0},
		{"1.5h", 0},
		{"24hh", 0},
		{" 1h", 0},
		{"+1h", 0},
		{"1y", 0},
		{"99999999999999999999d", 0},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int64_t seconds = 0;
		struct error error = {0};
		enum status status = parse_duration(cases[i].text, &seconds, &error);
		if (!!status != !cases[i].seconds || (!status && seconds != cases[i].seconds))
			fail_msg("\"%s\": status %d, %lld s, not %lld s", cases[i].text, status, (long long)seconds,
				 (long long)cases[i].seconds);
		assert_int_equal(!!status, !!error.message[0]);
	}
}

static void widths_count_code_points(void **state)
{
	(void)state;
	assert_int_equal(text_width(""), 0);
	assert_int_equal(text_width("54 °C"), 5);
	assert_int_equal(text_width("µ…"), 2);
	assert_int_equal(text_width("\xF0\x9F\x98\x80"), 1);
	assert_int_equal(text_cut("°C", 1), 2);
	assert_int_equal(text_cut("°C", 0), 0);
	assert_int_equal(text_cut("°C", 9), 3);
}

static void names_do_not_steer_the_terminal(void **state)
{
	char text[] = "a\033[31mb\r\nc\x7F\xC2\x9B°\xC2\xA0", cut[] = "x\xC2";
	(void)state;
	text_clean(text);
	assert_string_equal(text, "a?[31mb??c??°\xC2\xA0");
	text_clean(cut);
	assert_string_equal(cut, "x\xC2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_has_a_unit),
		cmocka_unit_test(used_memory_is_in_the_unit_of_the_whole),
		cmocka_unit_test(an_absent_reading_is_a_dash),
		cmocka_unit_test(sizes_are_read),
		cmocka_unit_test(rates_have_a_unit),
		cmocka_unit_test(ages),
		cmocka_unit_test(times_are_in_the_readers_zone),
		cmocka_unit_test(durations),
		cmocka_unit_test(widths_count_code_points),
		cmocka_unit_test(names_do_not_steer_the_terminal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
