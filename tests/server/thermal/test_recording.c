/* The thermal model on what a real GPU did, one reading a second. What it says 10, 30 and 60 s ahead, given the power
 * that then flowed, is compared with the temperature then. Figures are printed. In tests/vectors:
 *
 *   thermal-h200.csv        seven minutes of an H200 that generated and rested by turns; the model gets them three
 * times thermal-h200-eight.csv  thirteen minutes of another, once: all of it new to the model. Until something outside
 * of the device warms it, errors are bounded; after that they are only printed. */
#include "server/thermal/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { READINGS = 2048, TIMES = 3, AHEAD = 3, DISTURBED_S = 490 };

static const size_t ahead_s[AHEAD] = {10, 30, 60};

struct recording {
	size_t count;
	double celsius[READINGS], watts[READINGS]; // (count), one a second
};

struct tally {
	size_t count;
	double off, most, stays; // off and stays are sums; stays: of "it stays as it is"
};

static void read_once(struct recording *all, const char *name)
{
	char line[256], path[512];
	double second;
	snprintf(path, sizeof path, TESTS_DIR "/vectors/%s", name);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (all->count < READINGS && fgets(line, sizeof(line), file)) {
		if (line[0] == '#')
			continue;
		assert_int_equal(
			sscanf(line, "%lf,%lf,%lf", &second, &all->celsius[all->count], &all->watts[all->count]), 3);
		all->count++;
	}
	fclose(file);
}

static void compare(struct tally *tally, const struct thermal_model *model, const struct recording *all, size_t now,
		    size_t ahead)
{
	const double then = all->celsius[now + ahead];
	const double off = fabs(thermal_model_after(model, &all->watts[now + 1], ahead, 1) - then);
	tally->count++;
	tally->off += off;
	tally->most = fmax(tally->most, off);
	tally->stays += fabs(all->celsius[now] - then);
}

// Readings from first to before end; forecasts are compared that end before `end`, too. When it was ready; 0: it was
// not.
static size_t play(const struct recording *all, size_t first, size_t end, struct thermal_model *model,
		   struct tally tallies[AHEAD])
{
	char reason[THERMAL_REASON_BYTES];
	size_t ready_s = 0;
	for (size_t i = first; i < end; i++) {
		const int64_t at_ms = 1000 + (int64_t)i * 1000;
		thermal_model_add(model, &(struct thermal_reading){at_ms, all->celsius[i], all->watts[i]});
		if (thermal_model_state(model, at_ms, reason) != THERMAL_READY)
			continue;
		ready_s = ready_s ? ready_s : i;
		for (int j = 0; j < AHEAD; j++)
			if (i + ahead_s[j] < end)
				compare(&tallies[j], model, all, i, ahead_s[j]);
	}
	return ready_s;
}

static void print_tally(size_t ahead, const struct tally *tally)
{
	const double count = (double)tally->count;
	print_message("  %zu s ahead: %zu forecasts, off by %.2f °C on average and %.2f at most, 'it stays' %.2f\n",
		      ahead, tally->count, tally->off / count, tally->most, tally->stays / count);
}

static void foresees_an_h200(void **state)
{
	(void)state;
	struct tally tallies[AHEAD] = {{0}};
	struct recording *all = calloc(1, sizeof(*all));
	struct thermal_model *model = thermal_model_create();
	assert_non_null(all);
	assert_non_null(model);
	for (int i = 0; i < TIMES; i++)
		read_once(all, "thermal-h200.csv");
	const size_t ready_s = play(all, 0, all->count, model, tallies);
	print_message("%zu readings, ready after %zu s\n", all->count, ready_s);
	assert_true(ready_s > 0);
	for (int j = 0; j < AHEAD; j++) {
		print_tally(ahead_s[j], &tallies[j]);
		assert_true(tallies[j].count > 300);
		assert_true(tallies[j].off <= 1.5 * (double)tallies[j].count);
		assert_true(tallies[j].off <= 0.5 * tallies[j].stays);
	}
	print_message("  ambient %.1f °C, error %.2f °C, holds 84 °C with %.0f W\n", thermal_model_ambient(model),
		      thermal_model_error(model), thermal_model_sustains(model, 84));
	thermal_model_destroy(&model);
	free(all);
}

static void foresees_what_is_new(void **state)
{
	(void)state;
	struct tally before[AHEAD] = {{0}}, after[AHEAD] = {{0}};
	struct recording *all = calloc(1, sizeof(*all));
	struct thermal_model *model = thermal_model_create();
	assert_non_null(all);
	assert_non_null(model);
	read_once(all, "thermal-h200-eight.csv");
	const size_t ready_s = play(all, 0, DISTURBED_S, model, before);
	print_message("ready after %zu s; until %d s\n", ready_s, DISTURBED_S);
	assert_true(ready_s > 0 && ready_s < 180);
	for (int j = 0; j < AHEAD; j++) {
		print_tally(ahead_s[j], &before[j]);
		assert_true(before[j].count > 250);
		assert_true(before[j].off <= 1.5 * (double)before[j].count);
		assert_true(before[j].off <= (j ? 0.5 : 1) * before[j].stays);
	}
	play(all, DISTURBED_S, all->count, model, after);
	print_message("from then on\n");
	for (int j = 0; j < AHEAD; j++)
		print_tally(ahead_s[j], &after[j]);
	thermal_model_destroy(&model);
	free(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(foresees_an_h200), cmocka_unit_test(foresees_what_is_new)};
	return cmocka_run_group_tests_name("server/thermal/recording", tests, NULL, NULL);
}
