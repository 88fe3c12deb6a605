/* How long workers may be silent, and which part is blamed then: tables. */
#include "server/instances/decide/silence.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include "common/base/limits.h"

static void test_limits(void **context)
{
	static const struct {
		enum parts_step step;
		enum part_step parts[2];
		int64_t limit_ms;
	} cases[] = {
		{PARTS_LOADING, {PART_LOADING, PART_LOADED}, LIMIT_LOAD_STALL_MS},
		{PARTS_LOADING, {PART_PLANNED, PART_PLANNED}, LIMIT_LOAD_STALL_MS},
		{PARTS_LOADING, {PART_FETCHING, PART_LOADING}, LIMIT_LOAD_STALL_MS},
		{PARTS_LOADING, {PART_STARTING, PART_FETCHING}, LIMIT_LOAD_STALL_MS},
		{PARTS_LOADING, {PART_LOADED, PART_LOADED}, LIMIT_LOAD_STALL_MS},
		{PARTS_LOADING, {PART_FETCHING, PART_FETCHING}, LIMIT_FETCH_SILENCE_MS}, // nodes tell while they do
		{PARTS_LOADING, {PART_LOADED, PART_FETCHING}, LIMIT_FETCH_SILENCE_MS},
		{PARTS_CONNECTING, {PART_LOADED, PART_LOADED}, LIMIT_HOP_CONNECT_MS},
		{PARTS_CHECKING, {PART_LOADED, PART_LOADED}, LIMIT_CHECK_MS},
		{PARTS_READY, {PART_LOADED, PART_LOADED}, 0},
		{PARTS_AWAY, {PART_LOADED, PART_LOADED}, 0},
	};
	(void)context;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(silence_limit_ms(cases[i].step, cases[i].parts, 2), cases[i].limit_ms);
	assert_true(3 * LIMIT_FETCH_TELL_MS <= LIMIT_FETCH_SILENCE_MS);
}

static void test_adopting(void **context)
{
	static const struct {
		int64_t requests_wait_ms;
		double load_ms;
		int64_t limit_ms;
	} cases[] = {
		{0, -1, SILENCE_ADOPT_MS},
		{-5000, 100, SILENCE_ADOPT_MS}, // requests have waited for too long already
		{8000, -1, 4000},
		{8000, 3000, 4000},
		{8000, 7000, 7000}, // what takes long to load is worth waiting for
		{1 << 30, -1, LIMIT_CHECK_MS},
		{0, 1e9, LIMIT_CHECK_MS},
	};
	(void)context;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(silence_adopt_limit_ms(cases[i].requests_wait_ms, cases[i].load_ms),
				 cases[i].limit_ms);
}

#define F PART_FETCHING
#define S PART_STARTING
#define L PART_LOADING
#define A PART_ADOPTING
#define D PART_LOADED

// A browser that passes on what it gets is left alone, however long nothing comes; one that keeps something is not.
static void test_keeping(void **context)
{
	struct silence_passing seen = {.since_ms = 0};
	(void)context;
	assert_false(silence_keeps(&seen, 0, 0, SILENCE_PASS_MS * 9));      // nothing has come
	assert_false(silence_keeps(&seen, 5, 5, SILENCE_PASS_MS * 20));     // all has gone on
	assert_false(silence_keeps(&seen, 7, 5, SILENCE_PASS_MS * 21 - 1)); // two wait
	assert_true(silence_keeps(&seen, 7, 5, SILENCE_PASS_MS * 21));
	assert_false(silence_keeps(&seen, 7, 6, SILENCE_PASS_MS * 21)); // one went
	assert_false(silence_keeps(&seen, 7, 6, SILENCE_PASS_MS * 22 - 1));
	assert_true(silence_keeps(&seen, 7, 6, SILENCE_PASS_MS * 22));
	assert_false(silence_keeps(&seen, 0, 0, SILENCE_PASS_MS * 23)); // counted anew
	assert_false(silence_keeps(&seen, 0, 1, SILENCE_PASS_MS * 99)); // what had come before then
}

static void test_blame(void **context)
{
	static const struct {
		enum parts_step step;
		enum part_step parts[3];
		unsigned unconnected;
		bool adopting;
		struct silence silence;
	} cases[] = {
		{PARTS_LOADING, {F, L, L}, 0, false, {0, "fetching"}},
		{PARTS_LOADING, {D, L, F}, 0, false, {1, "loading"}}, // the first that is not loaded
		{PARTS_LOADING, {D, D, F}, 0, false, {2, "fetching"}},
		{PARTS_LOADING, {D, S, D}, 0, false, {1, "loading"}},
		{PARTS_LOADING, {D, D, D}, 0, false, {2, "loading"}},
		{PARTS_LOADING, {D, A, A}, 0, true, {1, "adopting it"}},
		{PARTS_CONNECTING, {D, D, D}, 1, false, {1, "its connection to the next part was not ready in time"}},
		{PARTS_CHECKING, {D, D, D}, 1, false, {2, "the reference token did not come back"}},
	};
	(void)context;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct silence_seen seen = {.step = cases[i].step,
						  .parts = cases[i].parts,
						  .count = 3,
						  .unconnected = cases[i].unconnected,
						  .adopting = cases[i].adopting};
		const struct silence silence = silence_blame(&seen);
		assert_int_equal(silence.part, cases[i].silence.part);
		assert_string_equal(silence.what, cases[i].silence.what);
	}
}

static void test_doubt(void **context)
{
	(void)context;
	assert_int_equal(silence_doubt_ms(true, false, 2, false), SILENCE_END_MS);
	assert_int_equal(silence_doubt_ms(false, true, 2, false),
			 SILENCE_FIRST_END_MS);                        // one that does not fit has ended
	assert_int_equal(silence_doubt_ms(false, false, 2, false), 0); // they are loaded, or checked
	assert_int_equal(silence_doubt_ms(true, true, 1, false), 0);   // there is no other worker
	assert_int_equal(silence_doubt_ms(true, true, 2, true), 0);    // it has ended, as is known
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits), cmocka_unit_test(test_adopting), cmocka_unit_test(test_blame),
		cmocka_unit_test(test_doubt),  cmocka_unit_test(test_keeping),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
