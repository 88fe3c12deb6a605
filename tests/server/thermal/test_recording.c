/* The thermal model on what a real GPU did: tests/vectors/thermal-h200.csv, seven minutes of an H200 that generated and
 * rested by turns, one reading a second. The model gets the recording three times, one after the other. What it says
 * 10, 30 and 60 s ahead, given the power that then flowed, is compared with the temperature then. Figures are printed.
 */
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

enum { READINGS = 2048, TIMES = 3, AHEAD = 3 };

static const size_t ahead_s[AHEAD] = {10, 30, 60};

struct recording {
	size_t count;
	double celsius[READINGS], watts[READINGS]; // (count), one a second
};

struct tally {
	size_t count;
	double off, most, stays; // off and stays are sums; stays: of "it stays as it is"
};

static void read_once(struct recording *all)
{
	char line[256];
	double second;
	FILE *file = fopen(TESTS_DIR "/vectors/thermal-h200.csv", "r");
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

static size_t play(const struct recording *all, struct thermal_model *model, struct tally tallies[AHEAD])
{
	char reason[THERMAL_REASON_BYTES];
	size_t ready_s = 0;
	for (size_t i = 0; i < all->count; i++) {
		const int64_t at_ms = 1000 + (int64_t)i * 1000;
		thermal_model_add(model, &(struct thermal_reading){at_ms, all->celsius[i], all->watts[i]});
		if (thermal_model_state(model, at_ms, reason) != THERMAL_READY)
			continue;
		ready_s = ready_s ? ready_s : i;
		for (int j = 0; j < AHEAD; j++)
			if (i + ahead_s[j] < all->count)
				compare(&tallies[j], model, all, i, ahead_s[j]);
	}
	return ready_s;
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
		read_once(all);
	const size_t ready_s = play(all, model, tallies);
	print_message("%zu readings, ready after %zu s\n", all->count, ready_s);
	assert_true(ready_s > 0);
	for (int j = 0; j < AHEAD; j++) {
		const struct tally *tally = &tallies[j];
		const double count = (double)tally->count;
		print_message("  %zu s ahead: %zu forecasts, off by %.2f °C on average and %.2f at most, 'it stays' "
			      "%.2f\n",
			      ahead_s[j], tally->count, tally->off / count, tally->most, tally->stays / count);
		assert_true(tally->count > 300);
		assert_true(tally->off <= 1.5 * count);
		assert_true(tally->off <= 0.5 * tally->stays);
	}
	print_message("  ambient %.1f °C, error %.2f °C, holds 84 °C with %.0f W\n", thermal_model_ambient(model),
		      thermal_model_error(model), thermal_model_sustains(model, 84));
	thermal_model_destroy(&model);
	free(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(foresees_an_h200)};
	return cmocka_run_group_tests_name("server/thermal/recording", tests, NULL, NULL);
}
