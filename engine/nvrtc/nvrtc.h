/* NVIDIA's run-time compiler of CUDA C (NVRTC), which comes with the CUDA toolkit and not with the driver. It is loaded
 * when it is needed and where it is installed; it needs no GPU. What it compiles is a stranger's text, so it compiles
 * in a process of its own that may do nothing else (engine/worker/confine/source.c). Thread: one. */
#pragma once
#include "common/base/buffer.h"

enum {
	NVRTC_PTX_BYTES = 480 * 1024, // as JSON, where a line's end is two bytes, it fits into the head of a message
	NVRTC_LOG_BYTES = 8192,
	NVRTC_PATH_BYTES = 512,
};

// The word among a device's features that says that its node has one that fits.
#define NVRTC_FEATURE "nvrtc"

struct nvrtc;
// The newest that is no newer than most_version (12080: 12.8), since an older driver does not take its PTX.
// Errors: STATUS_UNAVAILABLE (there is none), with a hint; STATUS_OUT_OF_MEMORY.
enum status nvrtc_load(struct nvrtc **out, int most_version, struct error *error);
void nvrtc_unload(struct nvrtc **nvrtc);
int nvrtc_version(const struct nvrtc *nvrtc);
// The folder of CUDA's headers; NULL: there is none.
const char *nvrtc_headers(const struct nvrtc *nvrtc);

// `source` ends with a 0. architecture: 90 for compute capability 9.0; a newer one than it knows counts as the newest.
// ptx and log are appended to. Errors: STATUS_INVALID_PARAMS (*log says why), STATUS_LIMIT_EXCEEDED (ptx is full),
// STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY.
enum status nvrtc_compile(struct nvrtc *nvrtc, const char *source, int architecture, struct buffer *ptx,
			  struct buffer *log, struct error *error);
