// The pace of sampling (T1), on a clock that the test turns.
#include "engine/telemetry/pace.h"
#include "tests/engine/telemetry/tree.h"

struct counts {
	int fast, full;
};

// Rounds of one device from `from` to `to`, woken exactly when something is due and `late_ms` after that.
static struct counts run(struct pace *pace, bool watched, int64_t from, int64_t to, int64_t late_ms)
{
	struct counts counts = {0};
	for (int64_t now = from; now < to;) {
		enum pace_round round = pace_take(pace, watched, now);
		counts.fast += round == PACE_FAST;
		counts.full += round == PACE_FULL;
		int64_t next = pace_next(pace, watched);
		assert_true(next > now); // never a busy loop
		now = next + late_ms;
	}
	return counts;
}

static void test_first_round_is_at_once(void **state)
{
	(void)state;
	struct pace pace = {0};
	assert_int_equal(pace_next(&pace, false), 0);
	assert_int_equal(pace_take(&pace, false, 777), PACE_FULL);
	assert_int_equal(pace_next(&pace, false), 1777); // the second soon, for the rates
	assert_int_equal(pace_take(&pace, false, 1777), PACE_FULL);
	assert_int_equal(pace_next(&pace, false), 6777);
}

static void test_idle_and_unwatched(void **state)
{
	(void)state;
	struct pace pace = {0};
	run(&pace, false, 1000, 2100, 0);
	struct counts counts = run(&pace, false, 7000, 107000, 0);
	assert_int_equal(counts.fast, 0);
	assert_int_equal(counts.full, 20);
}

static void test_watched(void **state)
{
	(void)state;
	struct pace pace = {0};
	struct counts counts = run(&pace, true, 1000, 101000, 0);
	assert_int_equal(counts.fast, 0);
	assert_int_equal(counts.full, 100);
}

static void test_working(void **state)
{
	(void)state;
	struct pace pace = {.working = true};
	struct counts counts = run(&pace, false, 1000, 101000, 0);
	assert_int_equal(counts.fast, 100);
	assert_int_equal(counts.full, 100);
}

static void test_late_rounds_do_not_add_up(void **state)
{
	(void)state;
	struct pace pace = {.working = true};
	struct counts counts = run(&pace, true, 1000, 101000, 30);
	assert_in_range(counts.full, 99, 100);
	assert_in_range(counts.fast, 99, 100);
}

static void test_missed_rounds_are_not_made_up(void **state)
{
	(void)state;
	struct pace pace = {.working = true};
	run(&pace, true, 1000, 3000, 0);
	assert_int_equal(pace_take(&pace, true, 60000), PACE_FULL);
	assert_int_equal(pace_next(&pace, true), 60500);
}

static void test_watching_begins_at_once(void **state)
{
	(void)state;
	struct pace pace = {0};
	run(&pace, false, 1000, 2100, 0);
	assert_int_equal(pace_next(&pace, false), 7000);
	assert_int_equal(pace_take(&pace, false, 4500), PACE_NOTHING);
	assert_true(pace_next(&pace, true) <= 4500);
	assert_int_equal(pace_take(&pace, true, 4500), PACE_FULL);
	assert_int_equal(pace_next(&pace, true), 5500);
}

static void test_close_rounds_are_taken_together(void **state)
{
	(void)state;
	struct pace a = {0}, b = {0};
	pace_take(&a, true, 1000);
	pace_take(&b, true, 1040);
	assert_int_equal(pace_take(&a, true, 2000), PACE_FULL);
	assert_int_equal(pace_take(&b, true, 2000), PACE_FULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_round_is_at_once),
		cmocka_unit_test(test_idle_and_unwatched),
		cmocka_unit_test(test_watched),
		cmocka_unit_test(test_working),
		cmocka_unit_test(test_late_rounds_do_not_add_up),
		cmocka_unit_test(test_missed_rounds_are_not_made_up),
		cmocka_unit_test(test_watching_begins_at_once),
		cmocka_unit_test(test_close_rounds_are_taken_together),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
