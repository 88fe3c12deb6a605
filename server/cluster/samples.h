/* The readings of a device in the last ten minutes, and the average, least and most of the
 * current minute: a ring of samples that grows as needed, up to ten minutes at two a second.
 * Values are floats, NaN if not reported; the columns of a sample are the
 * store's readings. Thread: the loop's. */
#pragma once
#include "server/store/store.h"

struct sample {
	int64_t at_ms;
	float values[STORE_READINGS];
};

// Of the readings in a while.
struct samples_sums {
	double sums[STORE_READINGS], least[STORE_READINGS], most[STORE_READINGS];
	unsigned counts[STORE_READINGS];
};

struct samples {
	struct sample *ring; // (capacity)
	size_t capacity, first, count;
	int64_t minute_ms; // start of the running minute; 0: none
	struct samples_sums sums;
};

void samples_finish(struct samples *samples);
// Add a DeviceTelemetry record. True if a minute ended before it: *minute then holds its columns, but for device_id.
bool samples_add(struct samples *samples, int64_t at_ms, const struct json *telemetry, struct store_minute *minute);
// Averages and extremes of [from_ms, to_ms) in steps: an array of rows as telemetry.history gives them. step_ms 0: as
// sampled, without extremes.
struct json *samples_rows(const struct samples *samples, int64_t from_ms, int64_t to_ms, int64_t step_ms);
// The columns of such rows: "at" and the store's.
struct json *samples_columns(void);
// Make one row: `at` and STORE_COLUMNS values; NaN becomes null.
struct json *samples_row(int64_t at_ms, const double *values);
