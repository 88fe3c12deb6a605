/* Measures memory bandwidth, and that of copies between two devices (verify.h): fill memory with incompressible
 * numbers, read it in passes, and keep the best pass.
 *
 * The memory is several buffers where one may not be large enough, and the fill touches all of it before anything is
 * timed. A pass reads all of it, so that the next pass does not begin with what the cache holds. A single buffer, which
 * a fast device reads in less time than a launch takes, is read several times in a pass. Each pass begins with a read
 * that is not timed: while the device does it, the timed reads are enqueued. */
#include "common/base/clock.h"
#include "common/base/longer.h"
#include "engine/worker/verify.h"

enum {
	MEASURE_LEAST_BYTES = 64 * 1024 * 1024,
	MEASURE_BUFFERS = 16,
	MEASURE_READS = 4, // of a pass, at least
	MEASURE_PASSES = 12,
	MEASURE_LEAST_PASSES = 3,
	MEASURE_NS = 200 * 1000 * 1000,
	MEASURE_LONG_NS = 2000 * 1000 * 1000, // then fewer passes must do: the device is slow
	MEASURE_PATIENCE_S = 60               // for one pass; who waits for the worker is less patient
};
enum {
	COPIES_BYTES = 64 * 1024 * 1024, // a link of 400 GB/s takes 0.16 ms for it, beside which a launch is little
	COPIES_FREE = 16,                // so many times that much must be free
	COPIES_OF_PASS = 4,
	COPIES_PASSES = 6,
	COPIES_LEAST_PASSES = 2,
	COPIES_NS = 50 * 1000 * 1000,
};

struct measure {
	struct exogpu_stream *stream;
	struct exogpu_module *module;
	struct exogpu_buffer *buffers[MEASURE_BUFFERS], *sink;
	unsigned count;
	uint64_t bytes; // of each
};

static enum status launch_fill(struct measure *measure, unsigned buffer, struct error *error)
{
	const struct exogpu_argument arguments[] = {
		{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = measure->buffers[buffer]},
		{.kind = EXOGPU_ARGUMENT_U64, .u64 = measure->bytes / 16},
		{.kind = EXOGPU_ARGUMENT_U32, .u32 = buffer + 1},
	};
	struct exogpu_launch launch = {
		.module = measure->module, .kernel = "stream_fill", .arguments = arguments, .argument_count = 3};
	return exogpu_launch(measure->stream, &launch, error);
}

static enum status launch_read(struct measure *measure, unsigned buffer, struct error *error)
{
	const struct exogpu_argument arguments[] = {
		{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = measure->buffers[buffer]},
		{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = measure->sink},
		{.kind = EXOGPU_ARGUMENT_U64, .u64 = measure->bytes / 16},
	};
	struct exogpu_launch launch = {
		.module = measure->module, .kernel = "stream_read", .arguments = arguments, .argument_count = 3};
	return exogpu_launch(measure->stream, &launch, error);
}

// Buffers of stream_bytes together. Less memory than hoped for still gives a figure, as long as it is more than caches
// hold. Tests that start many workers and do not look at the figure ask for less: EXOGPU_TEST_STREAM_BYTES.
static enum status make_buffers(struct exogpu_device *device, struct measure *measure, struct error *error)
{
	const struct exogpu_device_limits *limits = exogpu_device_limits(device);
	const uint64_t largest = 1024ull << 20;
	const uint64_t stream_bytes = (uint64_t)lower_in_tests("EXOGPU_TEST_STREAM_BYTES",
							       (int64_t)limits->stream_bytes);
	uint64_t most = limits->buffer_bytes < largest ? limits->buffer_bytes : largest;
	measure->bytes = (most < stream_bytes ? most : stream_bytes) & ~(uint64_t)4095;
	if (!measure->bytes)
		return error_set(error, STATUS_OUT_OF_MEMORY, "not enough memory on the device to measure with");
	while (measure->bytes > MEASURE_LEAST_BYTES &&
	       exogpu_buffer_create(device, &measure->buffers[0], measure->bytes, EXOGPU_MEMORY_DEVICE, NULL))
		measure->bytes = measure->bytes / 2 & ~(uint64_t)4095;
	while (measure->count < MEASURE_BUFFERS && measure->count * measure->bytes < stream_bytes) {
		struct exogpu_buffer **buffer = &measure->buffers[measure->count];
		enum status status = STATUS_OK;
		if (!*buffer)
			status = exogpu_buffer_create(device, buffer, measure->bytes, EXOGPU_MEMORY_DEVICE,
						      measure->count ? NULL : error);
		if (status)
			return measure->count ? STATUS_OK : status;
		status = launch_fill(measure, measure->count++, error);
		if (status)
			return status;
	}
	return STATUS_OK;
}

static enum status make(struct exogpu_device *device, struct measure *measure, struct error *error)
{
	enum status status = exogpu_stream_create(device, &measure->stream, error);
	if (!status)
		status = exogpu_module_load(device, &measure->module, EXOGPU_FORMAT_BUILTIN, NULL, 0, error);
	if (!status)
		status = exogpu_buffer_create(device, &measure->sink, 4096, EXOGPU_MEMORY_DEVICE, error);
	return status ? status : make_buffers(device, measure, error);
}

static enum status read_pass(struct measure *measure, double *bytes_per_s, struct error *error)
{
	unsigned reads = (MEASURE_READS + measure->count - 1) / measure->count * measure->count;
	uint64_t from = 0, to = 0;
	int64_t ns = 0;
	enum status status = launch_read(measure, (reads - 1) % measure->count, error);
	if (!status)
		status = exogpu_mark(measure->stream, &from, error);
	for (unsigned i = 0; !status && i < reads; i++)
		status = launch_read(measure, i % measure->count, error);
	if (!status)
		status = exogpu_mark(measure->stream, &to, error);
	if (!status)
		status = exogpu_wait(measure->stream, to, MEASURE_PATIENCE_S * 1000000000ll, error);
	if (!status)
		status = exogpu_elapsed(measure->stream, from, to, &ns, error);
	double rate = !status && ns > 0 ? (double)measure->bytes * reads / ((double)ns * 1e-9) : 0;
	*bytes_per_s = rate > *bytes_per_s ? rate : *bytes_per_s;
	return status;
}

enum status measure_bandwidth(struct exogpu_device *device, double *bytes_per_s, struct error *error)
{
	struct measure measure = {0};
	double best = 0;
	enum status status = make(device, &measure, error);
	int64_t began_ns = clock_steady_ns(), spent_ns = 0;
	for (int pass = 0; !status && pass < MEASURE_PASSES &&
			   spent_ns < (pass < MEASURE_LEAST_PASSES ? MEASURE_LONG_NS : MEASURE_NS);
	     pass++) {
		status = read_pass(&measure, &best, error);
		spent_ns = clock_steady_ns() - began_ns;
	}
	for (unsigned i = 0; i < MEASURE_BUFFERS; i++)
		exogpu_buffer_destroy(&measure.buffers[i]);
	exogpu_buffer_destroy(&measure.sink);
	exogpu_module_unload(&measure.module);
	exogpu_stream_destroy(&measure.stream);
	if (!status && best <= 0)
		status = error_set(error, STATUS_UNAVAILABLE,
				   "the device's clock did not advance while it was measured");
	*bytes_per_s = best;
	return status;
}

// ---- between two devices ----

struct copies {
	struct exogpu_stream *stream;
	struct exogpu_buffer *from, *to;
};

static enum status make_room(struct exogpu_device *device, struct exogpu_buffer **buffer, struct error *error)
{
	uint64_t total = 0, unused = 0;
	enum status status = exogpu_device_memory(device, &total, &unused, error);
	if (!status && unused < (uint64_t)COPIES_FREE * COPIES_BYTES)
		status = error_set(error, STATUS_OUT_OF_MEMORY,
				   "only %llu MiB of a device's memory are free, which is left to its users",
				   (unsigned long long)(unused >> 20));
	return status ? status : exogpu_buffer_create(device, buffer, COPIES_BYTES, EXOGPU_MEMORY_DEVICE, error);
}

// The first copy is not timed: while it runs, the timed ones are enqueued.
static enum status copy_pass(struct copies *copies, struct measured_copy *best, struct error *error)
{
	bool direct = true, all = true;
	uint64_t begin = 0, end = 0;
	int64_t ns = 0;
	struct exogpu_copy copy = {.to = copies->to, .from = copies->from, .bytes = COPIES_BYTES, .direct = &direct};
	enum status status = exogpu_copy(copies->stream, &copy, error);
	if (!status)
		status = exogpu_mark(copies->stream, &begin, error);
	for (int i = 0; !status && i < COPIES_OF_PASS; i++) {
		status = exogpu_copy(copies->stream, &copy, error);
		all = all && direct;
	}
	if (!status)
		status = exogpu_mark(copies->stream, &end, error);
	if (!status)
		status = exogpu_wait(copies->stream, end, MEASURE_PATIENCE_S * 1000000000ll, error);
	if (!status)
		status = exogpu_elapsed(copies->stream, begin, end, &ns, error);
	double rate = !status && ns > 0 ? (double)COPIES_BYTES * COPIES_OF_PASS / ((double)ns * 1e-9) : 0;
	if (rate > best->bytes_per_s)
		*best = (struct measured_copy){.bytes_per_s = rate, .direct = all};
	return status;
}

enum status measure_copies(struct exogpu_device *from, struct exogpu_device *to, struct measured_copy *out,
			   struct error *error)
{
	struct copies copies = {0};
	*out = (struct measured_copy){0};
	enum status status = make_room(from, &copies.from, error);
	if (!status)
		status = make_room(to, &copies.to, error);
	if (!status)
		status = exogpu_stream_create(from, &copies.stream, error);
	int64_t began_ns = clock_steady_ns();
	for (int pass = 0; !status && pass < COPIES_PASSES &&
			   (pass < COPIES_LEAST_PASSES || clock_steady_ns() - began_ns < COPIES_NS);
	     pass++)
		status = copy_pass(&copies, out, error);
	exogpu_stream_destroy(&copies.stream);
	exogpu_buffer_destroy(&copies.from);
	exogpu_buffer_destroy(&copies.to);
	if (!status && out->bytes_per_s <= 0)
		status = error_set(error, STATUS_UNAVAILABLE, "the device's clock did not advance while it copied");
	return status;
}
