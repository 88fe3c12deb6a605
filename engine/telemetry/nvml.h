/* Readings of one NVIDIA GPU, on its own thread. NVML's calls mostly take microseconds, but some
 * block (PCIe traffic for 20 ms, a card that falls off its bus for ever), so nobody waits for
 * them. A reading is requested; when it is there, `wake` is called on the GPU's thread, and
 * nvml_gpu_take returns it. Thread: create, request, take and destroy on one thread, the
 * sampler's. */
#pragma once
#include "engine/telemetry/sample.h"

struct nvml_gpu;

struct nvml_gpu_params {
	const struct telemetry_target *target;
	const char *proc_root; // names of processes
	void (*wake)(void *context);
	void *context;
};

// Starts the thread. Errors: STATUS_OUT_OF_MEMORY, STATUS_UNAVAILABLE (no more threads).
enum status nvml_gpu_create(struct nvml_gpu **out, const struct nvml_gpu_params *params, struct error *error);
// Ask the thread to end, so that several end side by side; destroy follows.
void nvml_gpu_stop(struct nvml_gpu *gpu);
// Waits half a second for the thread; one that hangs in the driver is left behind and frees itself when it comes back.
void nvml_gpu_destroy(struct nvml_gpu **gpu);

void nvml_gpu_request(struct nvml_gpu *gpu, enum pace_round round);
// Whether something was asked for and is not there yet.
bool nvml_gpu_busy(const struct nvml_gpu *gpu);
// A reading that was not taken yet. False if there is none, or the GPU is gone.
bool nvml_gpu_take(struct nvml_gpu *gpu, struct telemetry_sample *sample);

// The parts that need no GPU.

// The words of a mask of nvmlClocksEventReasons; "idle" is not one, since an idle clock is not held down.
void nvml_throttle_words(unsigned long long mask, struct telemetry_sample *sample);
// Where a card slows down, °C; 0: not known. From its threshold (0: it tells none), from the temperature and the margin
// that it tells beside that (margin_known), and from what was found before (0: nothing). The margin is to the nearest
// of several points, the threshold is one of them: the lower one counts. Both are whole degrees that are read one after
// the other, so a point that is one degree off stays the one of before, and one that is further off draws it nearer by
// 0.25 °C: the sum of the two moves by some degrees while the card's temperature does.
double nvml_slowdown(double threshold, double celsius, bool margin_known, int margin, double before);
// Bytes per second of a PCIe counter that went from `before` to `after` and may have wrapped at 32 bits once; false if
// the time is too short, too long to know that it was once, or the outcome is more than any link carries.
bool nvml_counter_rate(uint64_t before, uint64_t after, int64_t elapsed_ns, double *per_s);
