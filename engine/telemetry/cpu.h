/* The CPU as a device: utilisation, memory, temperature, power,
 * clock and throttling of all its packages together. Thread: the
 * sampler's. */
#pragma once
#include "engine/telemetry/host.h"
#include "engine/telemetry/sample.h"

struct cpu_reader;

// Errors: STATUS_OUT_OF_MEMORY. What the machine does not tell is absent later.
enum status cpu_reader_create(struct cpu_reader **out, const char *sysfs_root, struct error *error);
void cpu_reader_destroy(struct cpu_reader **cpu);
// Read what `round` asks for into `sample`, which holds the previous readings. `host` is used in PACE_FULL.
void cpu_reader_read(struct cpu_reader *cpu, enum pace_round round, const struct host_sample *host, int64_t now_ns,
		     struct telemetry_sample *sample);
