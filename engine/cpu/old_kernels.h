/* The built-in kernels on the processor: what each computes stands in engine/backend.h. A launch is cut into equal
 * pieces, one for each thread. Thread: any; a launch starts and joins its own. */
#pragma once
#include "engine/backend.h"

struct cpu_launch {
	enum old_kernel kernel;
	void *buffers[OLD_LAUNCH_BUFFERS];
	uint32_t constants[OLD_LAUNCH_CONSTANTS];
	uint32_t elements;
	unsigned repeat;
	int64_t threads;
};

// *device_ns (may be NULL): from the first thread's start to the last one's end.
// Errors: STATUS_NOT_FOUND (no such kernel).
enum status cpu_launch_run(const struct cpu_launch *launch, int64_t *device_ns, struct error *error);
