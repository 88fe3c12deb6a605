/* A small cluster under random faults, on a virtual clock (simulation.h): instances that do whatever instance_decide
 * says, with a stub for the planner and a model of the doer; tests/server/instances/whole has the real ones. Each
 * invariant is shown to find a fault that is planted. The seed of a failure is printed. Arguments: the first seed, and
 * how many (1). */
#include "tests/server/instances/decide/simulation.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

enum { SEEDS = 300, PLANTED_SEEDS = 200 };

static uint64_t first_seed = 1, seed_count = SEEDS;

static void test_invariants(void **context)
{
	uint64_t steps = 0;
	unsigned failed = 0, running = 0, left = 0, eased = 0, back = 0, steps_down = 0, steps_back = 0;
	struct world world;
	(void)context;
	for (uint64_t seed = first_seed; seed - first_seed < seed_count; seed++) {
		run(&world, seed, PLANTED_NOTHING);
		steps += world.steps;
		left += world.heat_moves[0];
		eased += world.heat_eased;
		back += world.heat_moves[1];
		steps_down += world.heat_steps[0];
		steps_back += world.heat_steps[1];
		if (world.broken)
			fail_msg("seed %llu: broken: %s: %s", (unsigned long long)seed, world.broken, world.detail);
		for (int i = 0; i < INSTANCES; i++) {
			failed += world.instances[i].state == INSTANCE_FAILED;
			running += world.instances[i].state == INSTANCE_RUNNING;
		}
	}
	print_message("%llu decisions; for heat %u moves (%u of some layers) and %u back, %u steps down and %u back; "
		      "in the end %u instances "
		      "run, %u have failed\n",
		      (unsigned long long)steps, left, eased, back, steps_down, steps_back, running, failed);
	assert_true(seed_count < SEEDS ||
		    (running > failed && left > eased && eased && back && steps_down && steps_back));
}

static void test_planted(void **context)
{
	static const struct {
		enum planted fault;
		const char *found_by[2]; // any of these
	} all[] = {
		{PLANTED_OLD_WORKERS_STAY, {"no instance has two owners", NULL}},
		{PLANTED_SLEEP, {"no device is idle but by a rule that ends", NULL}},
		{PLANTED_LIE, {"every reason is true", NULL}},
		{PLANTED_REQUESTS_FORGOTTEN, {"requests are told in time", NULL}},
		{PLANTED_NO_SEARCH,
		 {"no device is idle but by a rule that ends", "each instance goes on once faults stop"}},
		{PLANTED_FAILS_EARLY, {"it fails only after dying often", NULL}},
		{PLANTED_NO_DRAIN, {"a device that drains is left", NULL}},
		{PLANTED_HEAT_FORGOTTEN, {"two changes for heat are far apart", NULL}},
		{PLANTED_HOT_PLACE, {"a place that is found for heat is cool", NULL}},
		{PLANTED_LEAST_FORGOTTEN, {"no format is smaller than the instance permits", NULL}},
		{PLANTED_BACK_HOT, {"a format comes back where it is cool", NULL}},
		{PLANTED_NO_MEND,
		 {"no device is idle but by a rule that ends", "each instance goes on once faults stop"}},
	};
	struct world world;
	(void)context;
	assert_int_equal(sizeof all / sizeof *all, PLANTED_COUNT - 1);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		bool found = false;
		for (uint64_t seed = 1; seed <= PLANTED_SEEDS && !found; seed++) {
			run(&world, seed, all[i].fault);
			found = world.broken && (!strcmp(world.broken, all[i].found_by[0]) ||
						 (all[i].found_by[1] && !strcmp(world.broken, all[i].found_by[1])));
		}
		if (!found)
			fail_msg("the fault planted as number %zu is not found by \"%s\"; the last said: %s", i + 1,
				 all[i].found_by[0], world.broken ? world.broken : "nothing");
	}
}

int main(int count, char **words)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_invariants), cmocka_unit_test(test_planted)};
	if (count > 1) {
		first_seed = strtoull(words[1], NULL, 10);
		seed_count = count > 2 ? strtoull(words[2], NULL, 10) : 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
