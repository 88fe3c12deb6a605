/* Memory bandwidth, as in verify.h: fill memory with what cannot be compressed, then read it in passes and keep the
 * best.
 *
 * Memory is several buffers where one may not be large enough, and is touched by the fill before anything is timed. A
 * pass reads all of it, so that what a cache holds at its end is not what the next one begins with. */
#include "common/base/clock.h"
#include "engine/worker/verify.h"

enum {
	MEASURE_LEAST_BYTES = 64 * 1024 * 1024,
	MEASURE_BUFFERS = 16,
	MEASURE_PASSES = 12,
	MEASURE_NS = 200 * 1000 * 1000
};

struct measure {
	struct old_buffer *buffers[MEASURE_BUFFERS], *sink;
	unsigned count;
	uint64_t bytes; // of each
};

static enum status fill(const struct backend *backend, struct old_device *device, struct measure *measure,
			const struct old_limits *limits, struct error *error)
{
	const uint64_t largest = 1024ull << 20;
	uint64_t most = limits->buffer_bytes < largest ? limits->buffer_bytes : largest;
	measure->bytes = (most < limits->stream_bytes ? most : limits->stream_bytes) & ~(uint64_t)4095;
	if (!measure->bytes)
		return error_set(error, STATUS_OUT_OF_MEMORY, "not enough memory on the device to measure with");
	enum status status = backend->old_buffer_create(device, &measure->sink, 4096, error);
	// Less memory than hoped for still gives a figure, as long as it is more than caches hold.
	while (!status && measure->bytes > MEASURE_LEAST_BYTES &&
	       backend->old_buffer_create(device, &measure->buffers[0], measure->bytes, NULL))
		measure->bytes = measure->bytes / 2 & ~(uint64_t)4095;
	while (!status && measure->count < MEASURE_BUFFERS && measure->count * measure->bytes < limits->stream_bytes) {
		struct old_buffer **buffer = &measure->buffers[measure->count];
		if (!*buffer)
			status = backend->old_buffer_create(device, buffer, measure->bytes,
							    measure->count ? NULL : error);
		if (status)
			return measure->count ? STATUS_OK : status;
		measure->count++;
		struct old_launch launch = {.kernel = KERNEL_STREAM_FILL,
					    .buffers = {*buffer, NULL},
					    .constants = {measure->count},
					    .elements = (uint32_t)(measure->bytes / 16),
					    .repeat = 1};
		status = backend->old_launch(device, &launch, NULL, error);
	}
	return status;
}

static enum status read_pass(const struct backend *backend, struct old_device *device, struct measure *measure,
			     unsigned repeat, double *bytes_per_s, struct error *error)
{
	int64_t total_ns = 0;
	for (unsigned i = 0; i < measure->count; i++) {
		int64_t ns = 0;
		struct old_launch launch = {.kernel = KERNEL_STREAM_READ,
					    .buffers = {measure->buffers[i], measure->sink},
					    .elements = (uint32_t)(measure->bytes / 16),
					    .repeat = repeat};
		enum status status = backend->old_launch(device, &launch, &ns, error);
		if (status)
			return status;
		total_ns += ns;
	}
	double rate = total_ns > 0 ? (double)measure->bytes * measure->count * repeat / ((double)total_ns * 1e-9) : 0;
	*bytes_per_s = rate > *bytes_per_s ? rate : *bytes_per_s;
	return STATUS_OK;
}

enum status measure_bandwidth(const struct backend *backend, struct old_device *device, double *bytes_per_s,
			      struct error *error)
{
	struct measure measure = {0};
	struct old_limits limits;
	double best = 0;
	backend->old_limits(device, &limits);
	enum status status = fill(backend, device, &measure, &limits, error);
	int64_t end_ns = clock_steady_ns() + MEASURE_NS;
	// A fast device reads its memory in less time than a submission takes: repeat within one where there is one
	// buffer.
	unsigned repeat = measure.count == 1 ? 4 : 1;
	for (int pass = 0; !status && pass < MEASURE_PASSES && (pass < 3 || clock_steady_ns() < end_ns); pass++)
		status = read_pass(backend, device, &measure, repeat, &best, error);
	for (unsigned i = 0; i < MEASURE_BUFFERS; i++)
		backend->old_buffer_destroy(device, &measure.buffers[i]);
	backend->old_buffer_destroy(device, &measure.sink);
	if (!status && best <= 0)
		status = error_set(error, STATUS_UNAVAILABLE,
				   "the device's clock did not advance while it was measured");
	*bytes_per_s = best;
	return status;
}
