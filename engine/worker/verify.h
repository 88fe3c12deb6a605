/* Whether a device really computes, and how fast it reads its memory. Written once, against exogpu.h, so that every
 * back end is held to the same. Thread: the worker's. */
#pragma once
#include "engine/device/info.h"
#include "engine/include/exogpu/exogpu.h"

// Allocate, write, copy on the device, run a kernel, read back, compare with what the processor computes in integers
// and double precision, free. `kind`: the device's back end, for faults.h. Errors: the device's; STATUS_UNAVAILABLE
// with place and values for a mismatch.
enum status verify_device(struct exogpu_device *device, enum backend_kind kind, struct error *error);

// Bytes per second of reading with all of the device, the best of a few short runs. About half a second on a
// processor (most of it touching the memory first), tens of milliseconds on a GPU. Errors: the device's.
enum status measure_bandwidth(struct exogpu_device *device, double *bytes_per_s, struct error *error);

struct measured_copy {
	double bytes_per_s;
	bool direct; // over a link of the two; else by way of the host's memory
};
// Copies from one device to another, alone on it: the best of a few short runs, by the clock of the one that is copied
// from. Takes 64 MiB of each while it lasts: tens of milliseconds, or what 640 MiB take over a link that needs longer
// for them. Errors: the devices'; STATUS_OUT_OF_MEMORY where little of either's memory is free, which belongs to who
// uses it.
enum status measure_copies(struct exogpu_device *from, struct exogpu_device *to, struct measured_copy *out,
			   struct error *error);
