/* Whether a device really computes, and how fast it reads its memory. Written once, against engine/backend.h, so that
 * every back end is held to the same. Thread: the worker's. */
#pragma once
#include "engine/backend.h"

// Allocate, write, copy on the device, run a kernel, read back, compare with what the processor computes in integers
// and double precision, free. Errors: the back end's; STATUS_UNAVAILABLE with place and values for a mismatch.
enum status verify_device(const struct backend *backend, struct old_device *device, struct error *error);

// Bytes per second of reading with all of the device, the best of a few short runs. About half a second on a
// processor (most of it touching the memory first), tens of milliseconds on a GPU. Errors: the back end's.
enum status measure_bandwidth(const struct backend *backend, struct old_device *device, double *bytes_per_s,
			      struct error *error);
