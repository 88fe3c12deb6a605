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

static void end_minute(struct samples *samples, struct store_minute *minute)
{
	*minute = (struct store_minute){.minute_ms = samples->minute_ms};
	for (int i = 0; i < STORE_COLUMNS; i++) {
		minute->values[i] = samples->counts[i] ? samples->sums[i] / samples->counts[i] : (double)NAN;
		samples->sums[i] = 0;
		samples->counts[i] = 0;
	}
}

bool samples_add(struct samples *samples, int64_t at_ms, const struct json *telemetry, struct store_minute *minute)
{
	struct sample sample = {.at_ms = at_ms};
	int64_t this_minute = at_ms - at_ms % MINUTE_MS;
	bool ended = samples->minute_ms && samples->minute_ms != this_minute;
	if (ended)
		end_minute(samples, minute);
	samples->minute_ms = this_minute;
	for (int i = 0; i < STORE_COLUMNS; i++) {
		double value = json_get_number(telemetry, store_column_names[i], (double)NAN);
		sample.values[i] = (float)value;
		if (!isnan(value)) {
			samples->sums[i] += value;
			samples->counts[i]++;
		}
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
		double sums[STORE_COLUMNS] = {0};
		unsigned counts[STORE_COLUMNS] = {0};
		int64_t start = step_ms ? from_ms + (sample->at_ms - from_ms) / step_ms * step_ms : sample->at_ms;
		int64_t end = step_ms ? start + step_ms : start + 1;
		for (; i < samples->count; i++) {
			sample = &samples->ring[(samples->first + i) % samples->capacity];
			if (sample->at_ms < start || sample->at_ms >= end || sample->at_ms >= to_ms)
				break; // the next step, or a clock that was set back
			for (int column = 0; column < STORE_COLUMNS; column++)
				if (!isnan(sample->values[column])) {
					sums[column] += (double)sample->values[column];
					counts[column]++;
				}
		}
		for (int column = 0; column < STORE_COLUMNS; column++)
			sums[column] = counts[column] ? sums[column] / counts[column] : (double)NAN;
		json_push(rows, samples_row(start, sums));
	}
	return rows;
}
