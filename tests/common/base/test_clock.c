/* Times as text: what is printed reads back, what is no time is refused. The figures beside the texts are those of
 * `date -u -d TEXT +%s%3N`. */
#include "common/base/clock.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

static const struct {
	const char *text;
	int64_t wall_ms;
} canonical[] = {
	{"1970-01-01T00:00:00.000Z", 0},
	{"1970-01-01T00:00:00.001Z", 1},
	{"1999-12-31T23:59:59.999Z", 946684799999},
	{"2000-02-29T12:00:00.000Z", 951825600000},
	{"2024-02-29T00:00:00.000Z", 1709164800000},
	{"2026-11-20T14:31:52.000Z", 1795185112000},
	{"2100-03-01T00:00:00.000Z", 4107542400000},
	{"9999-12-31T23:59:59.999Z", 253402300799999},
};

static void known_times_both_ways(void **state)
{
	(void)state;
	char text[CLOCK_TEXT_BYTES];
	for (size_t i = 0; i < sizeof canonical / sizeof *canonical; i++) {
		int64_t wall_ms = -1;
		assert_int_equal(clock_parse(canonical[i].text, &wall_ms), STATUS_OK);
		assert_int_equal(wall_ms, canonical[i].wall_ms);
		assert_string_equal(clock_format(canonical[i].wall_ms, text), canonical[i].text);
	}
}

static void other_ways_to_write_a_time(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int64_t wall_ms;
	} times[] = {
		{"2026-11-20T14:31:52Z", 1795185112000},           {"2026-11-20t14:31:52z", 1795185112000},
		{"2026-11-20 14:31:52Z", 1795185112000},           {"2026-11-20T14:31:52.5Z", 1795185112500},
		{"2026-11-20T14:31:52.123456789Z", 1795185112123}, {"2026-11-20T16:01:52+01:30", 1795185112000},
		{"2026-11-20T09:31:52-05:00", 1795185112000},      {"2026-11-20T14:31:52.000-00:00", 1795185112000},
		{"2016-12-31T23:59:60Z", 1483228800000},
	};
	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		int64_t wall_ms = -1;
		assert_int_equal(clock_parse(times[i].text, &wall_ms), STATUS_OK);
		assert_int_equal(wall_ms, times[i].wall_ms);
	}
}

static void what_is_no_time_is_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"",
		"2026",
		"2026-11-20",
		"2026-11-20T14:31",
		"2026-11-20T14:31:52",
		"2026-11-20T14:31:52.Z",
		"2026-11-20T14:31:52.000Zx",
		"2026-11-20T14:31:52.000 Z",
		" 2026-11-20T14:31:52.000Z",
		"2026-11-20T24:00:00.000Z",
		"2026-11-20T14:60:00.000Z",
		"2026-11-20T14:31:61.000Z",
		"2026-00-20T14:31:52.000Z",
		"2026-13-20T14:31:52.000Z",
		"2026-11-00T14:31:52.000Z",
		"2026-11-31T14:31:52.000Z",
		"2026-02-30T14:31:52.000Z",
		"2026-02-29T14:31:52.000Z",
		"2100-02-29T14:31:52.000Z",
		"1969-12-31T23:59:59.000Z",
		"02026-11-20T14:31:52.000Z",
		"2026/11/20T14:31:52.000Z",
		"2026-11-20T14:31:52.000+0100",
		"2026-11-20T14:31:52.000+24:00",
		"2026-11-20T14:31:52.000+01:60",
		"2026-11-20T14:31:52.000+1:00",
		"2026-11-20T-4:31:52.000Z",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		int64_t wall_ms = 0;
		if (!clock_parse(texts[i], &wall_ms))
			fail_msg("\"%s\" was taken for %lld", texts[i], (long long)wall_ms);
	}
}

static void every_day_of_four_centuries(void **state)
{
	(void)state;
	char text[CLOCK_TEXT_BYTES], before[CLOCK_TEXT_BYTES] = "";
	for (int64_t day = 0; day < 146097; day++) {
		int64_t wall_ms = day * 86400000 + 43200001, again = 0;
		clock_format(wall_ms, text);
		assert_int_equal(clock_parse(text, &again), STATUS_OK);
		assert_int_equal(again, wall_ms);
		assert_true(strcmp(before, text) < 0); // later sorts later
		memcpy(before, text, sizeof text);
	}
}

static void beyond_the_years_it_is_clamped(void **state)
{
	(void)state;
	char text[CLOCK_TEXT_BYTES];
	assert_string_equal(clock_format(-1, text), "1970-01-01T00:00:00.000Z");
	assert_string_equal(clock_format(INT64_MIN, text), "1970-01-01T00:00:00.000Z");
	assert_string_equal(clock_format(INT64_MAX, text), "9999-12-31T23:59:59.999Z");
}

static void the_steady_clock_goes_forward(void **state)
{
	(void)state;
	int64_t before = clock_steady_ns();
	for (int i = 0; i < 1000; i++) {
		int64_t now = clock_steady_ns();
		assert_true(now >= before);
		before = now;
	}
	assert_true(clock_wall_ms() > 1700000000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_times_both_ways),          cmocka_unit_test(other_ways_to_write_a_time),
		cmocka_unit_test(what_is_no_time_is_refused),     cmocka_unit_test(every_day_of_four_centuries),
		cmocka_unit_test(beyond_the_years_it_is_clamped), cmocka_unit_test(the_steady_clock_goes_forward),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
