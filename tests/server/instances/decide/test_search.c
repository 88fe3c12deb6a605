/* Searches for places: every combination of facts, against what must be true of each decision. */
#include "server/instances/decide/search.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

enum { BITS = 9 };

static void test_waits(void **context)
{
	(void)context;
	for (int kind = 0; kind < PLACING_KINDS; kind++)
		for (int bits = 0; bits < 4; bits++)
			assert_int_equal(search_waits((enum placing_kind)kind, bits & 1, bits & 2),
					 (bits & 1) && !(bits & 2) && kind != PLACING_RECOVERY);
}

static void test_stops(void **context)
{
	(void)context;
	assert_true(search_stops(PLACING_WORK, PLACING_RECOVERY, false));
	assert_true(search_stops(PLACING_PREVIEW, PLACING_RECOVERY, false));
	assert_true(search_stops(PLACING_PREVIEW, PLACING_WORK, false));
	assert_true(search_stops(PLACING_PREVIEW, PLACING_PREVIEW, true));
	assert_false(search_stops(PLACING_PREVIEW, PLACING_PREVIEW, false));
	assert_false(search_stops(PLACING_WORK, PLACING_WORK, true));
	assert_false(search_stops(PLACING_RECOVERY, PLACING_RECOVERY, true));
	assert_false(search_stops(PLACING_RECOVERY, PLACING_WORK, true));
	assert_false(search_stops(PLACING_WORK, PLACING_PREVIEW, true));
}

static void check(const struct search_over_seen *seen, enum search_over over)
{
	if (over == SEARCH_AGAIN_STOPPED)
		assert_true(seen->stopped && !seen->stopped_once && seen->kind == PLACING_WORK && seen->listened_to);
	if (over == SEARCH_AGAIN_CHANGED) // and so it ends at some time
		assert_true(seen->listened_to && !seen->stands && seen->changes + 1 < SEARCH_TRIES);
	if (over == SEARCH_TELLS_DISCOVERING) // whoever has a place, or more to say, is not excused
		assert_true(seen->discovering && !(seen->feasible && !seen->failed) &&
			    !(seen->failed && seen->pinned) && seen->kind != PLACING_RECOVERY);
	if (over == SEARCH_TELLS && seen->listened_to)
		assert_true(seen->failed || seen->stands);
	if (!seen->listened_to)
		assert_true(over == SEARCH_TELLS || over == SEARCH_TELLS_DISCOVERING);
}

static void test_over(void **context)
{
	unsigned reached = 0;
	(void)context;
	for (int kind = 0; kind < PLACING_KINDS; kind++) {
		for (unsigned changes = 0; changes <= SEARCH_TRIES; changes++) {
			for (unsigned bits = 0; bits < 1u << BITS; bits++) {
				const struct search_over_seen seen = {.kind = (enum placing_kind)kind,
								      .listened_to = bits & 1,
								      .stopped = bits & 2,
								      .stopped_once = bits & 4,
								      .failed = bits & 8,
								      .unavailable = bits & 16,
								      .feasible = bits & 32,
								      .stands = bits & 64,
								      .pinned = bits & 128,
								      .discovering = bits & 256,
								      .changes = changes};
				const enum search_over over = search_over_decide(&seen);
				check(&seen, over);
				reached |= 1u << over;
			}
		}
	}
	assert_int_equal(reached, (1u << (SEARCH_AGAIN_CHANGED + 1)) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_stops),
		cmocka_unit_test(test_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
