/* Warnings that a simulated device will slow down, against the truth, which a copy of the plant tells: whether they
 * come in time, and how many come for nothing. Seeds and figures are printed.
 *
 * A warning follows from the power seen once the plant itself, with that power, reaches the limit within a minute. It
 * is in time if it stood half a minute before the limit was reached, or from the second reading on after it followed.
 * It is unfounded if the plant, with that power for three minutes, stays more than 3 °C under the limit. As an alert,
 * one is raised by two readings, and a new one a minute after the last. */
#include "server/thermal/model.h"
#include "tests/tools/plant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { TRACES = 400, SEED = 23, SEED_STEP = 7, TRUTH_S = 180, IN_TIME_S = 30, AGAIN_S = 60 };
static const double unfounded_celsius = 3;

struct warnings {
	size_t crossings, early, at_once, late; // late: or never
	size_t raised, unfounded;
	double simulated_s;
};

struct watch { // of one device
	uint64_t seed;
	bool ready;
	double cool_s, warned_s, due_s, raised_s; // when it was last too hot; since when; -1: not
	unsigned samples, since_due;              // readings in a row that warn; readings since due_s
	bool at_once;                             // warned from the second reading on after it was due
};

// How hot the chip gets in three minutes if `watts` flow, and when it reaches the limit; INFINITY: not.
static double truth(const struct plant_run *run, double watts, double limit, double *reached_s)
{
	struct plant plant = run->plant;
	const double step_s = PLANT_STEP_MS / 1000.0;
	double hottest = plant.celsius[0];
	*reached_s = hottest >= limit ? 0 : INFINITY;
	for (double s = step_s; s <= TRUTH_S; s += step_s) {
		plant_step(&plant, watts, run->now_s + s, step_s);
		hottest = fmax(hottest, plant.celsius[0]);
		if (hottest >= limit && isinf(*reached_s))
			*reached_s = s;
	}
	return hottest;
}

static void cross(const struct watch *watch, double now_s, struct warnings *warnings)
{
	const double before_s = watch->warned_s < 0 ? 0 : now_s - watch->warned_s;
	warnings->crossings++;
	if (before_s >= IN_TIME_S)
		warnings->early++;
	else if (watch->at_once || (watch->samples && watch->since_due <= 2))
		warnings->at_once++;
	else {
		warnings->late++;
		print_message("  seed %llu: warned %.1f s before, and it followed %.1f s before\n",
			      (unsigned long long)watch->seed, before_s, now_s - watch->due_s);
	}
}

static void judge(struct watch *watch, const struct plant_run *run, const struct thermal_model *model, double limit,
		  struct warnings *warnings)
{
	double reached_s = INFINITY;
	// Where the forecast is far from the limit, the truth is not worked out; what it missed would be a late
	// warning.
	const bool near = thermal_model_ahead(model, thermal_model_watts(model), THERMAL_WARN_S) > limit - 15;
	const double hottest = near ? truth(run, thermal_model_watts(model), limit, &reached_s) : 0, now_s = run->now_s;
	const bool due = reached_s <= THERMAL_WARN_S, warns = thermal_model_warns(model, limit);
	if (due && watch->due_s < 0) {
		watch->due_s = now_s;
		watch->since_due = 0;
		watch->at_once = warns;
	} else if (due) {
		watch->since_due++;
		watch->at_once |= warns && watch->since_due <= 2;
	} else {
		watch->due_s = -1;
	}
	watch->samples = warns ? watch->samples + 1 : 0;
	if (watch->samples == 1)
		watch->warned_s = now_s;
	if (!warns)
		watch->warned_s = -1;
	if (watch->samples < 2)
		return;
	if (watch->samples == 2 && now_s - watch->raised_s > AGAIN_S) {
		warnings->raised++;
		if (hottest < limit - unfounded_celsius) {
			warnings->unfounded++;
			print_message(
				"  seed %llu: unfounded at %.0f s: %.1f °C, would get %.1f °C, the limit is %.1f °C\n",
				(unsigned long long)watch->seed, now_s, run->read_celsius, hottest, limit);
		}
	}
	watch->raised_s = now_s;
}

static void run_trace(uint64_t seed, enum plant_kind kind, struct warnings *warnings)
{
	static struct plant_run run;
	char reason[THERMAL_REASON_BYTES];
	struct watch watch = {.seed = seed, .warned_s = -1, .due_s = -1, .raised_s = -1e9};
	struct thermal_model *model = thermal_model_create();
	bool reads;
	plant_run_init(&run, seed, kind);
	const struct plant *plant = &run.plant;
	const double whole = plant->resistance[0] + plant->resistance[1] + plant->resistance[2];
	const double limit = plant->ambient + plant->drift + 0.75 * whole * plant->most;
	while (plant_run_step(&run, &reads)) {
		warnings->simulated_s += PLANT_STEP_MS / 1000.0;
		if (plant->celsius[0] >= limit) {
			if (watch.ready && run.now_s - watch.cool_s >= AGAIN_S)
				cross(&watch, run.now_s, warnings);
			watch.cool_s = run.now_s;
		}
		if (!reads)
			continue;
		const int64_t at_ms = (int64_t)run.steps * PLANT_STEP_MS;
		thermal_model_add(model, &(struct thermal_reading){at_ms, run.read_celsius, run.read_watts});
		watch.ready = thermal_model_state(model, at_ms, reason) == THERMAL_READY;
		if (watch.ready)
			judge(&watch, &run, model, limit, warnings);
	}
	thermal_model_destroy(&model);
}

static void test_warnings(void **state)
{
	struct warnings warnings = {0};
	(void)state;
	for (unsigned trace = 0; trace < TRACES; trace++)
		run_trace(SEED + SEED_STEP * trace, (enum plant_kind)(trace % PLANT_KINDS), &warnings);
	const double weeks = warnings.simulated_s / (7 * 86400);
	print_message("seeds %d, %d, ...: %.2f weeks; the limit was reached %zu times: warned half a minute before %zu "
		      "times, as soon as it followed %zu times, later %zu times; %zu warnings, %zu of them unfounded\n",
		      SEED, SEED + SEED_STEP, weeks, warnings.crossings, warnings.early, warnings.at_once,
		      warnings.late, warnings.raised, warnings.unfounded);
	assert_true(warnings.crossings >= 100);
	assert_true((double)warnings.late <= 0.03 * (double)warnings.crossings);
	assert_true((double)warnings.unfounded <= weeks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_warnings)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
