/* The thermal model on a thousand simulated devices, half of them unlike what it fits: how far its forecasts are off,
 * and whether its band holds what it promises. Then what it says of devices that it cannot know. Seeds and figures are
 * printed. */
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

enum { TRACES = 1000, SEED = 23, AHEAD = 60 * 1000 / PLANT_STEP_MS, EVERY = 20 * 1000 / PLANT_STEP_MS, WAITING = 16 };

struct tally { // of errors of one kind
	size_t count, capacity;
	double sum, stays; // stays: of "it stays as it is"
	float *errors;     // (count)
};

static void count(struct tally *tally, double error, double stays)
{
	if (tally->count == tally->capacity) {
		tally->capacity = tally->capacity ? 2 * tally->capacity : 1024;
		tally->errors = realloc(tally->errors, tally->capacity * sizeof *tally->errors);
		assert_non_null(tally->errors);
	}
	tally->errors[tally->count++] = (float)fabs(error);
	tally->sum += fabs(error);
	tally->stays += fabs(stays);
}

static int compare(const void *a, const void *b)
{
	const float left = *(const float *)a, right = *(const float *)b;
	return (left > right) - (left < right);
}

static double mean(const struct tally *tally)
{
	return tally->sum / (double)tally->count;
}

static double mean_stays(const struct tally *tally)
{
	return tally->stays / (double)tally->count;
}

static double percentile(struct tally *tally, double share)
{
	qsort(tally->errors, tally->count, sizeof *tally->errors, compare);
	return (double)tally->errors[(size_t)(share * (double)(tally->count - 1))];
}

struct figures {
	struct tally given, steady, moving; // given the power that flowed; while it stayed within 10 %; over 5 °C moved
	size_t in_band, ready;
};

static void print(const char *name, struct tally *tally)
{
	print_message("  %-24s %6zu forecasts, off by %.2f °C on average, 95th percentile %.2f, 'it stays' %.2f\n",
		      name, tally->count, mean(tally), percentile(tally, 0.95), mean_stays(tally));
}

struct pending { // a forecast that waits for its time
	size_t due;
	double celsius, now; // given the power that flows
	double fixed, band;  // at the present power; NaN: it does not stay
};

// Whether the power, as the mean of each two seconds, stays within a tenth of `was`.
static bool stays_within(const double *watts, size_t steps, double was)
{
	const size_t window = 2000 / PLANT_STEP_MS;
	for (size_t i = 0; i + window <= steps; i += window) {
		double sum = 0;
		for (size_t j = 0; j < window; j++)
			sum += watts[i + j];
		if (fabs(sum / (double)window - was) > 0.1 * was)
			return false;
	}
	return true;
}

static struct pending foresee(const struct thermal_model *model, const struct plant_run *run)
{
	const double *watts = &run->watts[run->steps], present = thermal_model_watts(model);
	const bool stays = stays_within(watts, AHEAD, present);
	return (struct pending){
		.due = run->steps + AHEAD,
		.now = run->read_celsius,
		.celsius = thermal_model_after(model, watts, AHEAD, PLANT_STEP_MS / 1000.0),
		.fixed = stays ? thermal_model_ahead(model, present, 60) : NAN,
		.band = thermal_model_band(model, present, 60),
	};
}

static void score(struct figures *figures, const struct pending *due, double celsius)
{
	const double error = celsius - due->celsius, moved = celsius - due->now;
	count(&figures->given, error, moved);
	if (fabs(moved) > 5)
		count(&figures->moving, error, moved);
	if (isnan(due->fixed))
		return;
	count(&figures->steady, celsius - due->fixed, moved);
	figures->in_band += fabs(celsius - due->fixed) <= due->band;
}

static void run_trace(uint64_t seed, enum plant_kind kind, struct figures *figures)
{
	static struct plant_run run;
	char reason[THERMAL_REASON_BYTES];
	struct pending pending[WAITING];
	size_t first = 0, waiting = 0, next = 0;
	bool reads, ready = false;
	struct thermal_model *model = thermal_model_create();
	plant_run_init(&run, seed, kind);
	while (plant_run_step(&run, &reads)) {
		const int64_t at_ms = (int64_t)run.steps * PLANT_STEP_MS;
		if (!reads)
			continue;
		thermal_model_add(model, &(struct thermal_reading){at_ms, run.read_celsius, run.read_watts});
		for (; waiting && pending[first].due <= run.steps; waiting--) {
			score(figures, &pending[first], run.read_celsius);
			first = (first + 1) % WAITING;
		}
		ready = thermal_model_state(model, at_ms, reason) == THERMAL_READY;
		if (!ready || run.steps < next || waiting == WAITING || run.steps + AHEAD >= PLANT_STEPS)
			continue;
		next = run.steps + EVERY;
		pending[(first + waiting++) % WAITING] = foresee(model, &run);
	}
	figures->ready += ready;
	thermal_model_destroy(&model);
}

static void test_errors(void **state)
{
	static const char *const names[PLANT_KINDS] = {"two poles", "one pole", "three poles", "fans", "curved"};
	(void)state;
	for (int kind = 0; kind < PLANT_KINDS; kind++) {
		struct figures figures = {0};
		for (unsigned trace = 0; trace < TRACES / PLANT_KINDS; trace++)
			run_trace(SEED + trace * PLANT_KINDS + (unsigned)kind, (enum plant_kind)kind, &figures);
		const double held = (double)figures.in_band / (double)figures.steady.count;
		print_message("%s, seeds %d, %d, ...: %zu of %d ready\n", names[kind], SEED + kind,
			      SEED + kind + PLANT_KINDS, figures.ready, TRACES / PLANT_KINDS);
		print("given the power:", &figures.given);
		print("power within 10 %:", &figures.steady);
		print("over 5 °C moved:", &figures.moving);
		print_message("  the band held %.1f %%\n", 100 * held);
		assert_true(figures.ready >= TRACES / PLANT_KINDS * 95 / 100);
		assert_true(mean(&figures.given) <= 1.5 && mean(&figures.steady) <= 1.5);
		assert_true(percentile(&figures.given, 0.95) <= 3 && percentile(&figures.steady, 0.95) <= 3);
		assert_true(mean(&figures.moving) <= 0.5 * mean_stays(&figures.moving));
		assert_true(held >= 0.9);
		free(figures.given.errors);
		free(figures.steady.errors);
		free(figures.moving.errors);
	}
}

// ---- what cannot be known ----

static double wave(int second, double low, double high) // a step every five minutes
{
	return second / 300 % 2 ? high : low;
}

static void check(const struct thermal_model *model, int64_t at_ms, enum thermal_state state, const char *part)
{
	char reason[THERMAL_REASON_BYTES];
	assert_int_equal(thermal_model_state(model, at_ms, reason), state);
	if (!strstr(reason, part))
		fail_msg("'%s' is not in '%s'", part, reason);
}

// An hour of readings, each as `celsius` and `watts` give it.
static struct thermal_model *feed(double (*celsius)(int second), double (*watts)(int second))
{
	struct thermal_model *model = thermal_model_create();
	for (int second = 1; second <= 3600; second++)
		thermal_model_add(model, &(struct thermal_reading){second * 1000, celsius(second), watts(second)});
	return model;
}

static double nothing(int second)
{
	return second ? NAN : 0;
}

static double fifty(int second)
{
	return second ? 50 : 0;
}

static double steps(int second)
{
	return wave(second, 50, 300);
}

static double against(int second) // what happens to be cooler whenever more power flows, at once and at random
{
	const unsigned mixed = (unsigned)second / 40 * 2654435761u;
	return 40 + (double)(mixed >> 28) * 3;
}

static double follows(int second) // the answer of one pole of 60 s and 0.1 °C/W to steps()
{
	static double rise;
	if (second == 1)
		rise = 5;
	rise += (0.1 * steps(second) - rise) / 60;
	return 25 + rise;
}

static void test_unsuitable(void **state)
{
	(void)state;
	const struct {
		double (*celsius)(int second), (*watts)(int second);
		enum thermal_state state;
		const char *reason;
	} cases[] = {
		{nothing, steps, THERMAL_UNSUITABLE, "does not report its temperature"},
		{steps, nothing, THERMAL_UNSUITABLE, "does not report its power"},
		{fifty, steps, THERMAL_UNSUITABLE, "stays the same"},
		{against, steps, THERMAL_UNSUITABLE, "does not follow its power"},
		{fifty, fifty, THERMAL_LEARNING, "has not changed enough"},
		{follows, steps, THERMAL_READY, ""},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct thermal_model *model = feed(cases[i].celsius, cases[i].watts);
		check(model, 3600 * 1000, cases[i].state, cases[i].reason);
		const bool ready = cases[i].state == THERMAL_READY;
		assert_int_equal(!isnan(thermal_model_ahead(model, 100, 60)), ready);
		assert_int_equal(!isnan(thermal_model_sustains(model, 80)), ready);
		assert_int_equal(!isnan(thermal_model_ambient(model)), ready);
		assert_false(!ready && thermal_model_warns(model, 40));
		thermal_model_destroy(&model);
	}
}

static void test_first_words(void **state)
{
	struct thermal_model *model = thermal_model_create();
	(void)state;
	check(model, 0, THERMAL_LEARNING, "no readings");
	thermal_model_add(model, &(struct thermal_reading){1000, 50, NAN}); // rates need two readings
	check(model, 1000, THERMAL_LEARNING, "no reading with");
	thermal_model_add(model, &(struct thermal_reading){2000, 50, 100});
	check(model, 2000, THERMAL_LEARNING, "has not changed enough");
	check(model, 40000, THERMAL_LEARNING, "38 s old");
	thermal_model_add(model, &(struct thermal_reading){2000, 90, 500}); // not newer
	assert_true(thermal_model_celsius(model) == 50);
	thermal_model_destroy(&model);
}

// What follows from a plant that is known: one pole of 60 s and 0.1 °C/W in air of 25 °C.
static void test_known_plant(void **state)
{
	(void)state;
	struct thermal_model *model = feed(follows, steps);
	const struct thermal_poles poles = thermal_model_poles(model);
	const double whole = poles.resistance[0] + poles.resistance[1], now = thermal_model_celsius(model);
	print_message("%.1f °C now, in air of %.1f °C, %.3f °C/W, error %.2f °C\n", now, thermal_model_ambient(model),
		      whole, thermal_model_error(model));
	assert_true(fabs(thermal_model_ambient(model) - 25) < 2);
	assert_true(fabs(whole - 0.1) < 0.01);
	assert_true(fabs(thermal_model_sustains(model, 55) - 300) < 15);
	assert_true(fabs(thermal_model_ahead(model, 300, 100000) - 55) < 1);
	assert_true(fabs(thermal_model_ahead(model, 50, 0) - now) < 1);
	// From 55 °C in the step before to where 600 W lead, 85 °C: half way after 60 s ln 2.
	const double half = now + (85 - now) / 2;
	assert_true(fabs(thermal_model_reaches(model, half, 600) - 60 * log(2)) < 8);
	assert_true(thermal_model_reaches(model, now - 1, 600) == 0);
	assert_true(isinf(thermal_model_reaches(model, 60, 300)));
	assert_false(thermal_model_warns(model, 70));
	thermal_model_destroy(&model);
}

// Readings that do not come for an hour neither break a model nor teach it what was not seen.
static void test_gap(void **state)
{
	(void)state;
	struct thermal_model *model = feed(follows, steps);
	const double before = thermal_model_sustains(model, 55);
	thermal_model_add(model, &(struct thermal_reading){7200 * 1000, 31, 50});
	check(model, 7200 * 1000, THERMAL_READY, "");
	assert_true(fabs(thermal_model_ahead(model, 50, 60) - 31) < 3);
	assert_true(fabs(thermal_model_sustains(model, 55) - before) < 0.2 * before);
	thermal_model_destroy(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_words), cmocka_unit_test(test_unsuitable),
		cmocka_unit_test(test_known_plant), cmocka_unit_test(test_gap),
		cmocka_unit_test(test_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
