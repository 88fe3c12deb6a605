/* See samples.h. */
#include "server/cluster/samples.h"

#include "common/base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SAMPLES = 32, MOST_SAMPLES = 1280, MINUTE_MS = 60000 };

void samples_finish(struct samples *samples)
{
	free(samples->ring);
	*samples = (struct samples){0};
}

static void grow(struct samples *samples)
{
	size_t capacity = samples->capacity ? samples->capacity * 2 : FIRST_SAMPLES;
	if (capacity > MOST_SAMPLES)
		capacity = MOST_SAMPLES;
	struct sample *ring = malloc(capacity * sizeof(*ring));
	if (!ring)
		return; // the oldest goes instead
	for (size_t i = 0; i < samples->count; i++)
		ring[i] = samples->ring[(samples->first + i) % samples->capacity];
	free(samples->ring);
	samples->ring = ring;
	samples->capacity = capacity;
	samples->first = 0;
}

static void add_value(struct samples_sums *sums, int column, double value)
{
	if (isnan(value))
		return;
	if (!sums->counts[column] || value < sums->least[column])
		sums->least[column] = value;
	if (!sums->counts[column] || value > sums->most[column])
		sums->most[column] = value;
	sums->sums[column] += value;
	sums->counts[column]++;
}

// values: (STORE_COLUMNS), as the store has them.
static void take_columns(const struct samples_sums *sums, double *values)
{
	for (int i = 0; i < STORE_READINGS; i++)
		values[i] = sums->counts[i] ? sums->sums[i] / sums->counts[i] : (double)NAN;
	for (int i = 0; i < STORE_EXTREMES; i++) {
		const int reading = store_extremes[i];
		const bool any = sums->counts[reading];
		values[STORE_READINGS + i] = any ? sums->least[reading] : (double)NAN;
		values[STORE_READINGS + STORE_EXTREMES + i] = any ? sums->most[reading] : (double)NAN;
	}
}

static void end_minute(struct samples *samples, struct store_minute *minute)
{
	*minute = (struct store_minute){.minute_ms = samples->minute_ms};
	take_columns(&samples->sums, minute->values);
	samples->sums = (struct samples_sums){.counts = {0}};
}

bool samples_add(struct samples *samples, int64_t at_ms, const struct json *telemetry, struct store_minute *minute)
{
	struct sample sample = {.at_ms = at_ms};
	int64_t this_minute = at_ms - at_ms % MINUTE_MS;
	bool ended = samples->minute_ms && samples->minute_ms != this_minute;
	if (ended)
		end_minute(samples, minute);
	samples->minute_ms = this_minute;
	for (int i = 0; i < STORE_READINGS; i++) {
		double value = json_get_number(telemetry, store_column_names[i], (double)NAN);
		sample.values[i] = (float)value;
		add_value(&samples->sums, i, value);
	}
	if (samples->count == samples->capacity && samples->capacity < MOST_SAMPLES)
		grow(samples);
	if (!samples->capacity)
		return ended;
	if (samples->count == samples->capacity) {
		samples->first = (samples->first + 1) % samples->capacity;
		samples->count--;
	}
	samples->ring[(samples->first + samples->count++) % samples->capacity] = sample;
	return ended;
}

struct json *samples_columns(void)
{
	struct json *columns = json_new_array();
	json_push(columns, json_new_string("at"));
	for (int i = 0; i < STORE_COLUMNS; i++)
		json_push(columns, json_new_string(store_column_names[i]));
	return columns;
}

struct json *samples_row(int64_t at_ms, const double *values)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *row = json_new_array();
	json_push(row, json_new_string(clock_format(at_ms, at)));
	for (int i = 0; i < STORE_COLUMNS; i++)
		json_push(row, json_new_number(values[i]));
	return row;
}

struct json *samples_rows(const struct samples *samples, int64_t from_ms, int64_t to_ms, int64_t step_ms)
{
	struct json *rows = json_new_array();
	size_t i = 0;
	while (i < samples->count) {
		const struct sample *sample = &samples->ring[(samples->first + i) % samples->capacity];
		if (sample->at_ms < from_ms || sample->at_ms >= to_ms) {
			i++;
			continue;
		}
		struct samples_sums sums = {.counts = {0}};
		double values[STORE_COLUMNS];
		int64_t start = step_ms ? from_ms + (sample->at_ms - from_ms) / step_ms * step_ms : sample->at_ms;
		int64_t end = step_ms ? start + step_ms : start + 1;
		for (; i < samples->count; i++) {
			sample = &samples->ring[(samples->first + i) % samples->capacity];
			if (sample->at_ms < start || sample->at_ms >= end || sample->at_ms >= to_ms)
				break; // the next step, or a clock that was set back
			for (int column = 0; column < STORE_READINGS; column++)
				add_value(&sums, column, (double)sample->values[column]);
		}
		take_columns(&sums, values);
		for (int column = STORE_READINGS; column < STORE_COLUMNS && !step_ms; column++)
			values[column] = (double)NAN; // a sample is its own least and most
		json_push(rows, samples_row(start, values));
	}
	return rows;
}
