/* The bottleneck of an instance: shown at once the first time, and later replaced only if several consecutive reports
 * agree. */
#include "server/instances/decide/bottleneck.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

static const struct bottleneck none = {BOTTLENECK_NONE, 0}, first = {BOTTLENECK_STAGE, 0},
			       second = {BOTTLENECK_STAGE, 1}, hops = {BOTTLENECK_HOPS, 0};

static void shows(struct bottleneck_shown *shown, struct bottleneck called_for, struct bottleneck wanted)
{
	const struct bottleneck is = bottleneck_settle(shown, called_for);
	assert_int_equal((int)is.kind, wanted.kind);
	assert_int_equal(is.stage, wanted.stage);
}

static void first_at_once(void **context)
{
	struct bottleneck_shown shown = {0};
	(void)context;
	shows(&shown, hops, hops);
}

static void flips_are_not_followed(void **context)
{
	struct bottleneck_shown shown = {0};
	(void)context;
	shows(&shown, first, first);
	for (int i = 0; i < 100; i++)
		shows(&shown, i % 2 ? first : none, first);
	for (int i = 0; i < 100; i++) // two others by turns: neither has called for itself often enough
		shows(&shown, i % 2 ? second : hops, first);
}

static void what_lasts_is_shown(void **context)
{
	struct bottleneck_shown shown = {0};
	(void)context;
	shows(&shown, first, first);
	for (int i = 1; i < BOTTLENECK_REPORTS; i++)
		shows(&shown, second, first);
	shows(&shown, second, second);
	for (int i = 1; i < BOTTLENECK_REPORTS; i++)
		shows(&shown, first, second);
	shows(&shown, second, second); // and it begins anew
	shows(&shown, first, second);
}

static void each_has_a_name(void **context)
{
	(void)context;
	assert_string_equal(bottleneck_name(BOTTLENECK_NONE), "none");
	assert_string_equal(bottleneck_name(BOTTLENECK_STAGE), "stage");
	assert_string_equal(bottleneck_name(BOTTLENECK_WAIT), "wait");
	assert_string_equal(bottleneck_name(BOTTLENECK_HOPS), "hops");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(first_at_once), cmocka_unit_test(flips_are_not_followed),
					   cmocka_unit_test(what_lasts_is_shown), cmocka_unit_test(each_has_a_name)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
