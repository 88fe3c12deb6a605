/* The states of an instance: every pair is tried, the setter holds the table, and what waits goes by the clock that the
 * instances were given. */
#include "server/instances/instances_inside.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>

#define MINUTE_MS (60 * 1000)

// What may follow each state, written down once more: a change of the table has to be meant.
static const char *const allowed[INSTANCE_STATES] = {
	[INSTANCE_STARTING] = "LPSF", [INSTANCE_LOADING] = "RPSF", [INSTANCE_RUNNING] = "PSF",
	[INSTANCE_PAUSED] = "RSF",    [INSTANCE_STOPPING] = "P",   [INSTANCE_FAILED] = "S",
};
static const char letters[INSTANCE_STATES + 1] = "ILRPSF";

static void every_pair(void **context)
{
	struct instances all = {0};
	(void)context;
	for (int from = 0; from < INSTANCE_STATES; from++) {
		for (int to = 0; to < INSTANCE_STATES; to++) {
			struct instance instance = {
				.all = &all, .state = (enum instance_state)from, .state_reason = "before"};
			const struct instance_change change = {.to = (enum instance_state)to, .reason = "after"};
			const bool may = strchr(allowed[from], letters[to]) != NULL;
			if (instance_state_may(instance.state, change.to) != may)
				fail_msg("from %c to %c: the table says %d, not %d", letters[from], letters[to], !may,
					 may);
			assert_int_equal(instance_change(&instance, &change), may);
			assert_int_equal((int)instance.state, may ? to : from);
			assert_string_equal(instance.state_reason, may ? "after" : "before");
		}
	}
}

static void no_such_state(void **context)
{
	(void)context;
	assert_false(instance_state_may((enum instance_state)INSTANCE_STATES, INSTANCE_STOPPING));
	assert_false(instance_state_may(INSTANCE_RUNNING, (enum instance_state)INSTANCE_STATES));
}

static void reason_stays(void **context)
{
	struct instances all = {0};
	struct instance instance = {.all = &all, .state = INSTANCE_RUNNING, .state_reason = "before"};
	(void)context;
	assert_true(instance_change(&instance, &(struct instance_change){.to = INSTANCE_PAUSED}));
	assert_string_equal(instance.state_reason, "before");
}

// Each state is reached from the first one, and none but the end of the instance is without a way out.
static void all_are_reached(void **context)
{
	bool reached[INSTANCE_STATES] = {[INSTANCE_STARTING] = true};
	(void)context;
	for (int round = 0; round < INSTANCE_STATES; round++)
		for (int from = 0; from < INSTANCE_STATES; from++)
			for (int to = 0; to < INSTANCE_STATES && reached[from]; to++)
				reached[to] |= instance_state_may((enum instance_state)from, (enum instance_state)to);
	for (int i = 0; i < INSTANCE_STATES; i++) {
		assert_true(reached[i]);
		assert_true(i == INSTANCE_STOPPING || instance_state_may((enum instance_state)i, INSTANCE_STOPPING));
	}
}

static int64_t read_clock(void *now_ms)
{
	return *(int64_t *)now_ms;
}

// A model that nobody uses may be evicted after ten minutes: here they take no time.
static void waits_by_its_clock(void **context)
{
	int64_t now_ms = 5;
	struct model_record model = {.name = "idle"}, other = {.name = "wanted"};
	struct instances all = {
		.params = {.now_ms = read_clock, .now_context = &now_ms, .give_way_ms = 10 * MINUTE_MS}};
	struct instance instance = {
		.all = &all, .state = INSTANCE_RUNNING, .model = &model, .model_name = "idle", .used_ms = 5};
	struct placing *placing = calloc(1, sizeof *placing);
	(void)context;
	all.first = &instance;
	instance.wanted = json_new_object();
	placing->model = &other;
	for (int minute = 0; minute < 20; minute++) {
		now_ms = 5 + minute * MINUTE_MS;
		assert_int_equal(evict_idle_ms(&instance), minute * MINUTE_MS);
		placing->later[0] = 0;
		evict_gather(placing, &all);
		assert_int_equal(placing->later[0] != 0, minute < 10);
	}
	json_destroy(&instance.wanted);
	free(placing);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_pair),      cmocka_unit_test(no_such_state),      cmocka_unit_test(reason_stays),
		cmocka_unit_test(all_are_reached), cmocka_unit_test(waits_by_its_clock),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
