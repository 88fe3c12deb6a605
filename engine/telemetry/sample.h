/* A device's readings while they are gathered: plausibility checks, derived values, and
 * JSON. Sources set readings only through sample_set, which drops impossible values, so
 * a garbled sensor is a missing one everywhere. Thread: any, one at a time for each
 * sample. */
#pragma once
#include "engine/telemetry/pace.h"
#include "engine/telemetry/telemetry.h"

// No reading is known.
void sample_clear(struct telemetry_sample *sample);
// Take a reading; one that is out of its plausible range counts as absent.
void sample_set(struct telemetry_sample *sample, enum telemetry_reading reading, double value);
void sample_unset(struct telemetry_sample *sample, enum telemetry_reading reading);
bool sample_has(const struct telemetry_sample *sample, enum telemetry_reading reading);
// Clears what a round reads again: temperatures and power in PACE_FAST, all but processes in PACE_FULL.
void sample_begin(struct telemetry_sample *sample, enum pace_round round);
// Add a throttle reason once; `word` is static. The list becomes known.
void sample_throttle(struct telemetry_sample *sample, const char *word);

// A device works at 5 % utilisation, or with a compute process on it. One that only draws (a desktop) does
// not count.
bool sample_works(const struct telemetry_sample *sample);
// "normal", "warm", "throttled", "critical"; NULL unless temperature and slowdown point are known.
const char *sample_thermal_state(const struct telemetry_sample *sample);
// True and 0.6 free/total + 0.4 (1 - utilisation); false if an input is absent.
bool sample_availability(const struct telemetry_sample *sample, double *score);
// DeviceTelemetry of schema/api.json. NULL if memory is short.
struct json *sample_json(const struct telemetry_sample *sample, const char *device_id);

// Set the member to a number rounded to `decimals`, or to null if it is not known.
void sample_set_json(struct json *object, const char *name, bool known, double value, int decimals);
