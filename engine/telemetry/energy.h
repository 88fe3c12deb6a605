/* What a device has drawn since its node began to count, in joules: by the hardware's own counter where there is one,
 * else by its power times the time between two readings. A counter is read with each round, every 0.5 to 5 s, which is
 * many times its own update period (NVML's: 20 to 100 ms), so the error of a round does not add up. Pure. Thread: the
 * sampler's. */
#pragma once
#include "engine/telemetry/telemetry.h"

enum telemetry_energy_source { ENERGY_NONE, ENERGY_INTEGRATED, ENERGY_COUNTER };

struct telemetry_energy {
	enum telemetry_energy_source source; // NONE: nothing is known yet. A device with a counter stays with it
	double joules;
	double last_counter, last_watts; // last_watts < 0: was not reported
	int64_t last_ns;                 // of the last reading; 0: there was none
};

// Take in a reading. A counter that goes back (its driver was loaded again) goes on from there; power is not integrated
// over a pause of more than 15 s.
void energy_add(struct telemetry_energy *energy, const struct telemetry_sample *sample, int64_t now_ns);
// Into an object as DeviceTelemetry has it.
void energy_json(const struct telemetry_energy *energy, struct json *object);
