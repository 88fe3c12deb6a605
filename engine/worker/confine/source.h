/* worker.source: compile a stranger's CUDA C to PTX, in a process that does this once and ends.
 *
 * The source is on descriptor 5. The compiler is loaded and tried first, since it needs files; then this process enters
 * the sandbox of a worker without a device, which reaches no files but CUDA's headers, and only then reads the source.
 * A compiler that hangs, or takes too much memory, costs this process: its node and its limits end it. */
#pragma once
#include "common/json/json.h"
#include "engine/worker/confine/sandbox.h"

struct source_params {
	int fd;           // of the source, LIMIT_CUDA_SOURCE_BYTES at most
	int architecture; // 90 for compute capability 9.0
	int most_version; // as nvrtc_load has it
	int limit_s;      // of the processor's time
	int limit_mib;    // of addresses
	struct sandbox_params sandbox;
	// Called once the sandbox is entered. Errors end it.
	enum status (*entered)(void *arg, const struct sandbox *sandbox);
	void *arg;
};
// *result: {ptx, log}; ptx is null where the source is wrong, and the log says why. Errors: those of nvrtc_load and
// nvrtc_compile but STATUS_INVALID_PARAMS; STATUS_UNAVAILABLE (this machine does not confine it).
enum status source_compile(const struct source_params *params, struct json **result, struct error *error);
