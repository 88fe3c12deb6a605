/* Spot checks of browsers: which requests, whose rows, which results differ, and which device computes again. */
#include "engine/worker/instance/ring.h"
#include "server/instances/decide/spot.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdio.h>
#include <string.h>

static void test_wanted(void **context)
{
	static const struct {
		double percent;
		bool owed;
		double drawn;
		bool wanted;
	} cases[] = {
		{0, true, 0, false},        {0, false, 0, false},    {1, true, 0.99, true},
		{1, false, 0.0099, true},   {1, false, 0.01, false}, {0.5, false, 0.0049, true},
		{100, false, 0.9999, true}, {100, false, 0, true},
	};
	(void)context;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (spot_wanted(cases[i].percent, cases[i].owed, cases[i].drawn) != cases[i].wanted)
			fail_msg("case %zu", i);
}

static void test_whose(void **context)
{
	static const uint32_t own[] = {7, 3, 9}, longer[] = {7, 3, 9, 1}, other[] = {4, 5}, taken[] = {4, 3},
			      changed[] = {7, 2, 9}, again[] = {7};
	static const struct {
		const char *what;
		const uint32_t *pages;
		uint32_t page_count, position;
		enum spot_whose whose;
	} cases[] = {
		{"goes on", own, 3, 70, SPOT_OWN},
		{"goes on to a new page", longer, 4, 70, SPOT_OWN},
		{"computes rows again that were foreseen in vain", own, 3, 66, SPOT_OWN},
		{"computes rows again on a page before", own, 2, 40, SPOT_OWN},
		{"another one's pages", other, 2, 40, SPOT_OTHER},
		{"another one begins on other pages", other, 1, 0, SPOT_OTHER},
		{"another one has a page of it", taken, 2, 40, SPOT_OVER},
		{"a page has changed", changed, 3, 70, SPOT_OVER},
		{"another one begins on its first page", again, 1, 0, SPOT_OVER},
		{"a gap", own, 3, 71, SPOT_OVER},
	};
	const struct spot_request request = {.pages = own, .page_count = 3, .tokens = 70};
	(void)context;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct spot_run run = {.row_count = 1,
					     .position = cases[i].position,
					     .pages = cases[i].pages,
					     .page_count = cases[i].page_count};
		if (spot_look(&request, &run) != cases[i].whose)
			fail_msg("%s", cases[i].what);
	}
}

static void test_verdicts(void **context)
{
	const float nan = NAN, inf = INFINITY, most = 3e38F;
	const struct {
		const char *what;
		float got[4], wanted[4];
		enum spot_verdict verdict;
		double error; // NAN: does not matter
	} cases[] = {
		{"the same", {1, 2, 3, 4}, {1, 2, 3, 4}, SPOT_AGREES, 0},
		{"zeros", {0, 0, 0, 0}, {0, 0, 0, 0}, SPOT_AGREES, 0},
		{"rounding", {3, 4.001F, 0, 0}, {3, 4, 0, 0}, SPOT_AGREES, 0.0002},
		{"one number", {3, 5, 0, 0}, {3, 4, 0, 0}, SPOT_DIFFERS, 0.2},
		{"another sign", {-3, -4, 0, 0}, {3, 4, 0, 0}, SPOT_DIFFERS, 2},
		{"nothing", {0, 0, 0, 0}, {3, 4, 0, 0}, SPOT_DIFFERS, 1},
		{"something for nothing", {0, 0, 1e-9F, 0}, {0, 0, 0, 0}, SPOT_DIFFERS, (double)INFINITY},
		{"no number", {3, nan, 0, 0}, {3, 4, 0, 0}, SPOT_DIFFERS, (double)INFINITY},
		{"infinite", {3, -inf, 0, 0}, {3, 4, 0, 0}, SPOT_DIFFERS, (double)INFINITY},
		{"as large as there are", {most, 0, 0, 0}, {-most, 0, 0, 0}, SPOT_DIFFERS, 2},
		{"nothing to compare with", {3, 4, 0, 0}, {3, nan, 0, 0}, SPOT_UNCLEAR, NAN},
		{"both no number", {3, nan, 0, 0}, {3, nan, 0, 0}, SPOT_UNCLEAR, NAN},
	};
	(void)context;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		double error;
		if (spot_judge(cases[i].got, cases[i].wanted, 4, &error) != cases[i].verdict)
			fail_msg("%s", cases[i].what);
		if (!isnan(cases[i].error) && error != cases[i].error && !(fabs(error - cases[i].error) < 1e-5))
			fail_msg("%s: %g", cases[i].what, error);
	}
}

// Rows of two values behind a run and its page; what is no such body is left to who reads it.
static void test_steps(void **context)
{
	enum { COUNT = 4 + 4 + 1 + 4, ROWS_AT = 9, KIND = 2, OTHER };
	const uint32_t plain[COUNT] = {KIND, 0, 1, 2, /* run */ 2, 0, 0, 0, /* its page */ 7};
	const float bad[] = {NAN, INFINITY, -INFINITY}, fine[] = {0, -1e-45F, 3.4e38F, 1};
	uint32_t body[COUNT];
	uint8_t *bytes = (uint8_t *)body;
	(void)context;
	memcpy(body, plain, sizeof body);
	memcpy(body + ROWS_AT, fine, sizeof fine);
	assert_true(spot_begins(bytes, sizeof body) && spot_finite(bytes, sizeof body, KIND, 2));
	for (size_t i = 0; i < 12; i++) {
		memcpy(body + ROWS_AT, fine, sizeof fine);
		memcpy(body + ROWS_AT + i % 4, &bad[i / 4], sizeof(float));
		assert_false(spot_finite(bytes, sizeof body, KIND, 2));
		assert_true(spot_finite(bytes, sizeof body, KIND, 7)); // there are not so many
		assert_true(spot_finite(bytes, 15, KIND, 2));
	}
	body[0] = OTHER;
	assert_true(spot_finite(bytes, sizeof body, KIND, 2));
	body[0] = KIND;
	body[3] = 0; // it only zeroes
	assert_true(spot_finite(bytes, sizeof body, KIND, 2));
	body[3] = body[2] = body[1] = 0xFFFFFFFF;
	assert_true(spot_finite(bytes, sizeof body, KIND, 0xFFFFFFFF) && !spot_begins(bytes, sizeof body));
	assert_true(spot_finite(NULL, 0, KIND, 2) && !spot_begins(NULL, 0));
}

static void test_devices(void **context)
{
	static const struct spot_device untrusted = {false, true, true, 900}, unusable = {true, false, true, 900},
					idle = {true, true, true, 100}, roomier = {true, true, true, 200},
					busy = {true, true, false, 500};
	static const struct {
		struct spot_device devices[4];
		unsigned count;
		uint64_t needs;
		int chosen;
	} cases[] = {
		{{{0}}, 0, 1, -1},         {{untrusted, unusable}, 2, 1, -1}, {{untrusted, idle}, 2, 100, 1},
		{{idle}, 1, 101, -1},      {{idle, busy}, 2, 50, 0},          {{busy, idle}, 2, 50, 1},
		{{idle, busy}, 2, 101, 1}, {{idle, roomier, busy}, 3, 50, 1}, {{roomier, idle}, 2, 50, 0},
	};
	(void)context;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (spot_choose(cases[i].devices, cases[i].count, cases[i].needs) != cases[i].chosen)
			fail_msg("case %zu", i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_wanted), cmocka_unit_test(test_whose),
					   cmocka_unit_test(test_steps), cmocka_unit_test(test_verdicts),
					   cmocka_unit_test(test_devices)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
