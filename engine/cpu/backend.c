/* The CPU back end: this machine's processor as one device.
 *
 * Order of reading: enumerate, opening and closing, modules, the table. Memory is in memory.c, streams and points in
 * stream.c, the kernels in kernels.c and matmul.c with the inner loops in level_loops.h, and the threads in pool.c. A
 * device owns its threads; closing it frees the remaining buffers and streams. Thread: see backend.h; pool.h and
 * stream.c describe the internal threads. */
#include "engine/backend.h"

#include "engine/cpu/device.h"
#include "engine/cpu/stage/stage.h"
#include "engine/device/host.h"
#include "engine/device/identity.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void add_formats(struct device_info *info)
{
	static const char *const always[] = {"f64", "f32", "i64", "i32", "i16", "i8"};
	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		words_add(info->formats, sizeof(info->formats), always[i]);
	if (words_have(info->features, "f16c") || words_have(info->features, "neon_fp16"))
		words_add(info->formats, sizeof(info->formats), "f16");
	if (words_have(info->features, "avx512_bf16") || words_have(info->features, "amx_bf16") ||
	    words_have(info->features, "bf16"))
		words_add(info->formats, sizeof(info->formats), "bf16");
}

static enum status cpu_enumerate(struct found *found, struct error *error)
{
	struct device_info *info = found_add_device(found);
	if (!info)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "more than %d devices", INFO_DEVICES);
	struct host_cpu host;
	host_cpu_read(&host);
	info->backend = BACKEND_CPU;
	identity_cpu(info->hardware_key);
	text_copy(info->model, sizeof(info->model), host.model[0] ? host.model : "CPU");
	text_copy(info->name, sizeof(info->name), info->model);
	text_copy(info->vendor, sizeof(info->vendor), host.vendor[0] ? host.vendor : "unknown");
	text_copy(info->family, sizeof(info->family), host.family);
	info->kind = DEVICE_CPU;
	info->unified_memory = true;
	text_copy(info->memory_pool, sizeof(info->memory_pool), IDENTITY_HOST_POOL);
	info->memory_bytes = host.memory_bytes;
	info->memory_budget_bytes = host.available_bytes;
	info->compute_units = host.cores > 0 ? host.cores : host.threads;
	text_copy(info->features, sizeof(info->features), host.features);
	add_formats(info);
	info->support = SUPPORT_FULL;
	return STATUS_OK;
}

// A stream of four times the last-level cache; where that is unusually large or memory is short, less is read, and the
// figure is then that of the cache in part.
static uint64_t stream_bytes(const struct host_cpu *host)
{
	const uint64_t least = 256ull << 20, most = 1024ull << 20;
	uint64_t cache = host->last_level_bytes > 0 ? (uint64_t)host->last_level_bytes : 0;
	uint64_t available = host->available_bytes > 0 ? (uint64_t)host->available_bytes : 8 * least;
	uint64_t bytes = 4 * cache < least ? least : 4 * cache > most ? most : 4 * cache;
	return bytes < available / 8 ? bytes : available / 8;
}

static void cpu_close(struct backend_device **device_pointer)
{
	struct backend_device *device = *device_pointer;
	if (!device)
		return;
	if (device->pool)
		pool_stop(device->pool); // kernels end at their next piece
	pthread_mutex_lock(&device->lock);
	device->closing = true;
	pthread_cond_broadcast(&device->changed);
	pthread_mutex_unlock(&device->lock);
	while (device->streams) {
		struct backend_stream *stream = device->streams;
		cpu_stream_destroy(device, &stream);
	}
	pool_destroy(&device->pool);
	while (device->buffers) {
		struct backend_buffer *buffer = device->buffers;
		cpu_buffer_destroy(device, &buffer);
	}
	pthread_cond_destroy(&device->changed);
	pthread_mutex_destroy(&device->lock);
	free(device);
	*device_pointer = NULL;
}

static enum status cpu_open(struct backend_device **out, const struct backend_open *params, struct error *error)
{
	char key[INFO_KEY_BYTES];
	struct host_cpu host;
	const struct cpu_level *level;
	identity_cpu(key);
	if (strcmp(params->hardware_key, key))
		return error_set(error, STATUS_NOT_FOUND, "the CPU back end has no device %s", params->hardware_key);
	enum status status = cpu_level_choose(&level, getenv("EXOGPU_CPU_LEVEL"), error);
	if (status)
		return status;
	host_cpu_read(&host);
	if (host.memory_bytes <= 0)
		return error_set(error, STATUS_UNAVAILABLE, "/proc/meminfo does not say how much memory there is");
	struct backend_device *device = calloc(1, sizeof(*device));
	if (!device)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the device");
	*device = (struct backend_device){
		.level = level,
		.builtin = {EXOGPU_FORMAT_BUILTIN},
		.memory_bytes = (uint64_t)host.memory_bytes,
		.stream_bytes = stream_bytes(&host),
		.threads = (unsigned)(host.usable_threads < LIMIT_CPU_THREADS ? host.usable_threads
									      : LIMIT_CPU_THREADS),
	};
	pthread_condattr_t steady;
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&device->changed, &steady);
	pthread_condattr_destroy(&steady);
	pthread_mutex_init(&device->lock, NULL);
	status = pool_create(&device->pool, device->threads, error);
	if (status)
		cpu_close(&device);
	*out = device;
	return status;
}

static void cpu_describe(const struct backend_device *device, struct exogpu_device_limits *limits)
{
	*limits = (struct exogpu_device_limits){
		.capabilities = EXOGPU_CAN_ZEROED | EXOGPU_CAN_MAP | EXOGPU_CAN_SOFTWARE | EXOGPU_CAN_IMPORT,
		.memory_bytes = device->memory_bytes,
		.buffer_bytes = device->memory_bytes,
		.stream_bytes = device->stream_bytes,
		.streams = device->threads < LIMIT_STREAMS_OF_DEVICE ? device->threads : LIMIT_STREAMS_OF_DEVICE,
	};
}

static enum status cpu_module_load(struct backend_device *device, struct backend_module **out,
				   const struct backend_module_params *params, struct error *error)
{
	if (params->format != EXOGPU_FORMAT_BUILTIN) {
		error_set(error, STATUS_UNAVAILABLE, "the CPU back end does not run user kernels");
		error_hint(error, "load the built-in kernels, or use a device of another back end");
		return STATUS_UNAVAILABLE;
	}
	*out = &device->builtin;
	return STATUS_OK;
}

static void cpu_module_unload(struct backend_device *device, struct backend_module **module)
{
	(void)device;
	*module = NULL;
}

const struct backend backend_cpu = {
	.kind = BACKEND_CPU,
	.enumerate = cpu_enumerate,
	.open = cpu_open,
	.close = cpu_close,
	.describe = cpu_describe,
	.memory = cpu_memory,
	.buffer_create = cpu_buffer_create,
	.buffer_destroy = cpu_buffer_destroy,
	.buffer_pointer = cpu_buffer_pointer,
	.stream_create = cpu_stream_create,
	.stream_destroy = cpu_stream_destroy,
	.copy = cpu_copy,
	.fill = cpu_fill,
	.launch = cpu_launch,
	.mark = cpu_mark,
	.reached = cpu_reached,
	.wait = cpu_wait,
	.follow = cpu_follow,
	.elapsed = cpu_elapsed,
	.module_load = cpu_module_load,
	.module_unload = cpu_module_unload,
	.stage = &cpu_stage,
};
