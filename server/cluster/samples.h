/* The readings of a device in the last ten minutes, and the average of the current
 * minute: a ring of samples that grows as needed, up to ten minutes at two a second.
 * Values are floats, NaN if not reported; the columns are the store's. Thread: the
 * loop's. */
#pragma once
#include "server/store/store.h"

struct sample {
	int64_t at_ms;
	float values[STORE_COLUMNS];
};

struct samples {
	struct sample *ring; // (capacity)
	size_t capacity, first, count;
	int64_t minute_ms; // start of the running minute; 0: none
	double sums[STORE_COLUMNS];
	unsigned counts[STORE_COLUMNS];
};

void samples_finish(struct samples *samples);
// Add a DeviceTelemetry record. True if a minute ended before it: *minute then holds its averages, but for device_id.
bool samples_add(struct samples *samples, int64_t at_ms, const struct json *telemetry, struct store_minute *minute);
// Averages of [from_ms, to_ms) in steps: an array of rows as telemetry.history gives them. step_ms 0: as sampled.
struct json *samples_rows(const struct samples *samples, int64_t from_ms, int64_t to_ms, int64_t step_ms);
// The columns of such rows: "at" and the store's.
struct json *samples_columns(void);
// Make one row: `at` and STORE_COLUMNS values; NaN becomes null.
struct json *samples_row(int64_t at_ms, const double *values);
