/* The guard in a closed loop with simulated devices that would pass their limit if nothing held them back: how close
 * they come to it, how much they work, and that nothing swings. Compared with the best of many controllers that switch
 * the work on and off at two temperatures and never pass the target, and with the least that any controller could do:
 * one that stops all work for good at the first, or at the second, reading of the load. Seeds and figures are printed.
 * Argument: `all`, of 1,000 devices instead of 100. */
#include "server/thermal/guard.h"
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

enum {
	DEVICES = 100,
	DEVICES_MOST = 1000,
	SEED = 23,
	SEED_STEP = 11,
	LEARN = 1200,
	WORK = 1800,
	PER_S = 1000 / PLANT_STEP_MS
};

static const struct thermal_policy usual = {.margin = 5, .resume = 10, .limit = true, .pause = true};

static unsigned device_count = DEVICES;

static const double within = 2.5; // °C, that a device may pass its target by

struct outcome {
	double worked;  // share of the time
	double hottest; // °C
	double swings;  // changes of the share by more than a quarter between two readings
	bool ready;     // there was a forecast at the end
};

struct loop {
	struct plant plant;
	struct thermal_model *model; // of the guard
	struct thermal_guard guard;
	unsigned stops;    // without a guard: all work ends at this reading of the load, for good; 0: two temperatures
			   // switch it
	unsigned readings; // that show the load
	bool idle;         // before the load
	double limit, high, low, share;
};

static void read_and_decide(struct loop *loop, double watts, int64_t at_ms, bool works, struct outcome *outcome)
{
	const double celsius = plant_read(&loop->plant), before = loop->share;
	if (loop->model)
		thermal_model_add(loop->model, &(struct thermal_reading){at_ms, celsius, watts});
	if (!works)
		return;
	// Its power is the mean since the one before: one that comes just after the load began does not show it.
	loop->readings += (double)(at_ms - LEARN * 1000) >= 1000 * loop->plant.sample_s / 2;
	if (loop->model) {
		thermal_guard_update(&loop->guard, &usual, loop->model, loop->limit, at_ms);
		loop->share = thermal_guard_share(&loop->guard);
	} else if (loop->stops) {
		loop->share = loop->readings < loop->stops;
	} else {
		loop->share = celsius >= loop->high ? 0 : celsius <= loop->low ? 1 : before;
	}
	outcome->swings += fabs(loop->share - before) > 0.25;
}

// Twenty minutes of a changing load of up to 60 %, or of none, then half an hour of one that would take all of the
// time.
static struct outcome run(struct loop *loop, uint64_t seed, enum plant_kind kind)
{
	static double watts[LEARN * PER_S];
	struct outcome outcome = {0};
	char reason[THERMAL_REASON_BYTES];
	struct plant *plant = &loop->plant;
	double next_s = 0, flowed = 0, step_s = 1.0 / PER_S;
	size_t steps = 0, i;
	plant_init(plant, seed, kind);
	plant_course(plant, watts, LEARN * PER_S);
	const double range = plant->most - plant->idle;
	loop->share = 1;
	for (i = 0; i < (LEARN + WORK) * PER_S; i++) {
		const bool works = i >= LEARN * PER_S;
		const double now = works        ? plant->idle + loop->share * range
				   : loop->idle ? plant->idle
						: fmin(watts[i], plant->idle + 0.6 * range);
		const double now_s = (double)(i + 1) * step_s;
		plant_step(plant, now, now_s, step_s);
		flowed += now;
		steps++;
		outcome.worked += works ? loop->share / (WORK * PER_S) : 0;
		outcome.hottest = works ? fmax(outcome.hottest, plant->celsius[0]) : 0;
		if (now_s < next_s)
			continue;
		next_s = now_s + plant->sample_s;
		read_and_decide(loop, flowed / (double)steps, (int64_t)(i + 1) * PLANT_STEP_MS, works, &outcome);
		flowed = 0;
		steps = 0;
	}
	outcome.ready = loop->model &&
			thermal_model_state(loop->model, (int64_t)i * PLANT_STEP_MS, reason) == THERMAL_READY;
	return outcome;
}

// The most work of twelve such controllers of those that stay at the target or under it; 0: none does.
static double best_switch(uint64_t seed, enum plant_kind kind, double target)
{
	double best = 0;
	for (int under = 0; under < 6; under += 2)
		for (int width = 1; width <= 8; width *= 2) {
			struct loop loop = {.high = target - under, .low = target - under - width};
			const struct outcome outcome = run(&loop, seed, kind);
			if (outcome.hottest <= target)
				best = fmax(best, outcome.worked);
		}
	return best;
}

// How hot it gets where all work ends at this reading of the load. No controller sees the load before the first; one
// that does nothing for a single reading acts at the second.
static double hottest_if_stopped(uint64_t seed, enum plant_kind kind, unsigned reading)
{
	struct loop loop = {.stops = reading};
	return run(&loop, seed, kind).hottest;
}

static int compare(const void *a, const void *b)
{
	const double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

static double target_of(uint64_t seed, enum plant_kind kind)
{
	struct plant plant;
	plant_init(&plant, seed, kind);
	return plant.ambient + plant.drift +
	       0.7 * (plant.resistance[0] + plant.resistance[1] + plant.resistance[2]) * plant.most;
}

static void test_closed_loop(void **state)
{
	static double gains[DEVICES_MOST], past[DEVICES_MOST];
	double swings = 0;
	size_t compared = 0, learning = 0, late = 0, over = 0;
	(void)state;
	for (unsigned i = 0; i < device_count; i++) {
		const uint64_t seed = SEED + SEED_STEP * i;
		const enum plant_kind kind = (enum plant_kind)(i % PLANT_KINDS);
		const double target = target_of(seed, kind), limit = target + usual.margin;
		struct loop loop = {.model = thermal_model_create(), .limit = limit};
		const struct outcome outcome = run(&loop, seed, kind);
		thermal_model_destroy(&loop.model);
		past[i] = outcome.hottest - target;
		learning += !outcome.ready;
		swings += outcome.swings;
		if (past[i] > within) {
			const double first = hottest_if_stopped(seed, kind, 1) - target,
				     second = hottest_if_stopped(seed, kind, 2) - target;
			print_message("seed %llu: past the target by %.1f °C; where all work ends at the load's first "
				      "reading, by %.1f °C, at its second by %.1f °C; readings every %.1f s\n",
				      (unsigned long long)seed, past[i], first, second, loop.plant.sample_s);
			assert_true(past[i] <= second + 0.1);
			late++;
			over += past[i] > usual.margin;
		}
		const double best = best_switch(seed, kind, target);
		if (best > 0 && outcome.ready)
			gains[compared++] = outcome.worked / best;
	}
	qsort(past, device_count, sizeof *past, compare);
	qsort(gains, compared, sizeof *gains, compare);
	print_message(
		"seeds %d, %d, ...: %u devices, %zu without a forecast at the end; past the target by %.1f °C "
		"(median), %.1f °C (worst), of a margin of %.0f °C, %zu by more than %.1f °C; work in half an hour, "
		"beside the best of 12 switches: %.2f (worst), %.2f (median), of %zu; %.2f swings a device; %zu passed "
		"their limit\n",
		SEED, SEED + SEED_STEP, device_count, learning, past[device_count / 2], past[device_count - 1],
		usual.margin, late, within, gains[0], gains[compared / 2], compared, swings / device_count, over);
	assert_true(learning <= device_count * 5 / 100);
	assert_true(late <= device_count / 100);
	assert_true(gains[0] >= 0.95 && gains[compared / 2] >= 1.05);
	assert_true(swings <= 2 * (double)device_count); // one of them is the first step
}

// The same devices after idle time, in which nothing was learnt: at first the temperature alone is known.
static void test_unlearnt(void **state)
{
	static double past[DEVICES_MOST];
	size_t late = 0;
	(void)state;
	for (unsigned i = 0; i < device_count; i++) {
		const uint64_t seed = SEED + SEED_STEP * i;
		const enum plant_kind kind = (enum plant_kind)(i % PLANT_KINDS);
		const double target = target_of(seed, kind);
		struct loop loop = {.model = thermal_model_create(), .limit = target + usual.margin, .idle = true};
		past[i] = run(&loop, seed, kind).hottest - target;
		thermal_model_destroy(&loop.model);
		late += past[i] > within;
	}
	qsort(past, device_count, sizeof *past, compare);
	print_message("the same without a forecast at first: past the target by %.1f °C (median), %.1f °C (worst), "
		      "%zu by more than %.1f °C\n",
		      past[device_count / 2], past[device_count - 1], late, within);
	assert_true(past[device_count - 1] < usual.margin);
	assert_true(late <= device_count / 100);
}

// ---- steps ----

static double watts_of(int second) // a step every five minutes, so that there is something to learn from
{
	return second / 300 % 2 ? 300 : 50;
}

struct card { // one pole of 60 s and 0.1 °C/W in air of 25 °C
	struct thermal_model *model;
	struct thermal_guard guard;
	double rise;
	int second;
};

static struct card learn(void)
{
	struct card card = {.model = thermal_model_create(), .rise = 5};
	while (card.second < 3600) {
		card.rise += (0.1 * watts_of(++card.second) - card.rise) / 60;
		thermal_model_add(card.model,
				  &(struct thermal_reading){card.second * 1000, 25 + card.rise, watts_of(card.second)});
	}
	return card;
}

// One second at a power in the share that the guard leaves. True: its step has changed.
static bool live(struct card *card, double watts, const struct thermal_policy *policy, double limit)
{
	const double drawn = 50 + thermal_guard_share(&card->guard) * (watts - 50);
	card->rise += (0.1 * drawn - card->rise) / 60;
	card->second++;
	thermal_model_add(card->model, &(struct thermal_reading){card->second * 1000, 25 + card->rise, drawn});
	return thermal_guard_update(&card->guard, policy, card->model, limit, card->second * 1000);
}

static void test_steps(void **state)
{
	(void)state;
	int changes = 0;
	struct card card = learn();
	for (int i = 0; i < 300; i++) // 55 °C at most: nothing to do
		changes += live(&card, 300, &usual, 70);
	assert_int_equal(changes, 0);
	assert_true(thermal_guard_share(&card.guard) == 1);
	for (int i = 0; i < 1200; i++) { // would be 85 °C: once limited, it stays so
		changes += live(&card, 600, &usual, 70);
		assert_true(25 + card.rise < 67);
	}
	assert_int_equal(changes, 1);
	assert_int_equal(card.guard.step, THERMAL_LIMITED);
	assert_int_equal(card.guard.held_ms, card.guard.step_ms); // since when it is held back
	assert_true(25 + card.rise > 61);
	for (int i = 0; i < 600; i++) // the load is gone: free again, once it is 10 °C under the target
		changes += live(&card, 60, &usual, 70);
	assert_int_equal(changes, 2);
	assert_int_equal(card.guard.step, THERMAL_FREE);
	thermal_model_destroy(&card.model);
}

static void test_policies(void **state)
{
	(void)state;
	const struct thermal_policy nothing = {.margin = 5, .resume = 10},
				    pauses = {.margin = 5, .resume = 10, .pause = true};
	struct card card = learn();
	for (int i = 0; i < 600; i++)
		assert_false(live(&card, 600, &nothing, 70));
	assert_true(thermal_guard_share(&card.guard) == 1);
	thermal_model_destroy(&card.model);
	card = learn();
	int changes = 0;
	for (int i = 0; i < 1200; i++) {
		changes += live(&card, 600, &pauses, 70);
		assert_true(25 + card.rise < 67);
		assert_true(card.guard.step != THERMAL_LIMITED);
	}
	assert_true(changes >= 4); // it pauses and goes on, 10 °C apart
	thermal_model_destroy(&card.model);
	card = learn(); // without a limit nothing is done
	for (int i = 0; i < 100; i++)
		assert_false(live(&card, 900, &usual, NAN));
	thermal_model_destroy(&card.model);
}

// Before a forecast can be made it goes by the temperature alone.
static void test_learning(void **state)
{
	(void)state;
	int changes = 0;
	struct card card = {.model = thermal_model_create(), .rise = 5};
	while (25 + card.rise < 64.9) { // of a load that does not change nothing is learnt
		assert_false(live(&card, 700, &usual, 70));
		assert_true(card.second < 600 && isnan(thermal_model_ambient(card.model)));
	}
	double hottest = 0;
	for (int i = 0; i < 1200; i++) { // would be 95 °C
		changes += live(&card, 700, &usual, 70);
		hottest = fmax(hottest, 25 + card.rise);
		assert_true(i < 10 || card.guard.step == THERMAL_LIMITED);
	}
	print_message("without a forecast: %.1f °C at most, then %.1f °C, with a target of 65 °C\n", hottest,
		      25 + card.rise);
	assert_int_equal(changes, 1);
	assert_true(hottest < 67 && fabs(25 + card.rise - 64) < 1);
	for (int i = 0; i < 600; i++) // the load is gone
		changes += live(&card, 60, &usual, 70);
	assert_int_equal(changes, 2);
	assert_int_equal(card.guard.step, THERMAL_FREE);
	thermal_model_destroy(&card.model);
	// A sensor that always tells the same says nothing.
	card = (struct card){.model = thermal_model_create()};
	for (int i = 1; i < 1200; i++) {
		thermal_model_add(card.model, &(struct thermal_reading){i * 1000, 80, watts_of(i)});
		assert_false(thermal_guard_update(&card.guard, &usual, card.model, 70, i * 1000));
	}
	thermal_model_destroy(&card.model);
}

int main(int count, char **words)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps),       cmocka_unit_test(test_policies), cmocka_unit_test(test_learning),
		cmocka_unit_test(test_closed_loop), cmocka_unit_test(test_unlearnt),
	};
	if (count > 1 && !strcmp(words[1], "all"))
		device_count = DEVICES_MOST;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
