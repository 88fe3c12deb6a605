/* Opening and closing a CUDA device.
 *
 * Opening only creates the primary context (about 0.1 s, most of the time that a worker needs to be ready). Kernels are
 * loaded at their first launch, because memory, copies and fills need none. The driver caches compiled kernels in a
 * folder that only an environment variable can name, so the variable is set here, unless it is set already. The driver
 * has no read-only mode for the folder: the sandbox of the process must prevent writing.
 *
 * Closing frees in reverse. Freeing memory waits for the whole device, so while a kernel runs for longer than
 * CLOSE_WAIT_NS nothing is freed; the driver frees it when the process ends. */
#include "engine/cuda/device.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLOSE_WAIT_NS = 100 * 1000 * 1000, CLOSE_PAUSE_NS = 100 * 1000 };
static const int64_t stage_timeout_ns = 30 * 1000000000ll;

static atomic_uint_least64_t serials;

CUresult cuda_enter(const struct backend_device *device)
{
	return device->cuda->cuCtxSetCurrent(device->context);
}

enum status cuda_check(const struct backend_device *device, struct error *error, const char *call, CUresult result)
{
	return result ? cuda_failed(device->cuda, error, call, result) : STATUS_OK;
}

static void choose_cache(const struct backend_open *params)
{
	if (params->cache_directory && params->cache_writable)
		setenv("CUDA_CACHE_PATH", params->cache_directory, 0);
	else
		setenv("CUDA_CACHE_DISABLE", "1", 0);
}

// A gigabyte is many times the largest second-level cache.
static CUresult read_limits(struct backend_device *device, const struct cuda_place *place)
{
	const struct cuda *cuda = device->cuda;
	struct exogpu_device_limits *limits = &device->limits;
	const uint64_t stream = 1024ull << 20;
	CUresult failed = CUDA_SUCCESS;
	uint64_t memory = place->info.memory_bytes > 0 ? (uint64_t)place->info.memory_bytes : 0;
	bool peers = place->count > 1 && cuda->cuDeviceCanAccessPeer && cuda->cuCtxEnablePeerAccess &&
		     cuda->cuMemcpyPeerAsync;
	bool imports = cuda->cuMemHostRegister_v2 && cuda->cuMemHostUnregister &&
		       cuda_read(cuda, place->device, CUDA_REGISTERED_POINTER, &failed);
	*limits = (struct exogpu_device_limits){
		.capabilities = EXOGPU_CAN_PTX | EXOGPU_CAN_TIME | (peers ? EXOGPU_CAN_PEER : 0u) |
				(place->info.unified_memory ? EXOGPU_CAN_MAP : 0u) | (imports ? EXOGPU_CAN_IMPORT : 0u),
		.memory_bytes = memory,
		.buffer_bytes = memory,
		.stream_bytes = stream < memory / 8 ? stream : memory / 8,
		.max_block_threads = (uint32_t)cuda_read(cuda, place->device, CUDA_MAX_THREADS_PER_BLOCK, &failed),
		// The driver's own default of queues to the hardware; more streams share them.
		.streams = cuda_attribute(cuda, place->device, CUDA_CONCURRENT_KERNELS) ? 8 : 1,
	};
	for (unsigned i = 0; i < 3; i++) {
		limits->max_grid[i] = (uint32_t)cuda_read(cuda, place->device, CUDA_MAX_GRID_X + i, &failed);
		limits->max_block[i] = (uint32_t)cuda_read(cuda, place->device, CUDA_MAX_BLOCK_X + i, &failed);
	}
	device->units = place->info.compute_units > 0 ? (uint32_t)place->info.compute_units : 1;
	device->major = cuda_read(cuda, place->device, CUDA_CAPABILITY_MAJOR, &failed);
	device->minor = cuda_read(cuda, place->device, CUDA_CAPABILITY_MINOR, &failed);
	snprintf(device->capability, sizeof(device->capability), "%d.%d", device->major, device->minor);
	return failed;
}

static enum status start(struct backend_device *device, const struct backend_open *params, struct error *error)
{
	struct cuda_place place;
	choose_cache(params);
	enum status status = cuda_create(&device->cuda, NULL, error);
	if (!status)
		status = cuda_find(device->cuda, params->hardware_key, &place, error);
	if (status)
		return status;
	device->device = place.device;
	device->ordinal = place.ordinal;
	device->cache_directory = params->cache_directory ? strdup(params->cache_directory) : NULL;
	device->cache_writable = params->cache_writable;
	device->timeout_ns = stage_timeout_ns;
	device->serial = atomic_fetch_add(&serials, 1) + 1;
	CUresult result = read_limits(device, &place);
	if (result)
		return cuda_failed(device->cuda, error, "cuDeviceGetAttribute", result);
	cuda_kernels_choose(device, NULL); // memory and users' modules need no kernels; a launch reports the reason
	result = device->cuda->cuDevicePrimaryCtxRetain(&device->context, device->device);
	if (result) {
		device->context = NULL;
		return cuda_failed(device->cuda, error, "cuDevicePrimaryCtxRetain", result);
	}
	return cuda_check(device, error, "cuCtxSetCurrent", cuda_enter(device));
}

enum status cuda_open(struct backend_device **out, const struct backend_open *params, struct error *error)
{
	struct backend_device *device = calloc(1, sizeof(*device));
	enum status status = device ? start(device, params, error)
				    : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the device");
	if (status)
		cuda_close(&device);
	*out = device;
	return status;
}

static bool busy(const struct backend_device *device)
{
	for (const struct backend_stream *stream = device->streams; stream; stream = stream->next)
		if (device->cuda->cuStreamQuery(stream->stream) == CUDA_ERROR_NOT_READY)
			return true;
	return false;
}

static void release(struct backend_device *device)
{
	struct cuda *cuda = device->cuda;
	cuda_enter(device);
	for (int64_t end_ns = clock_steady_ns() + CLOSE_WAIT_NS; !device->abandoned && busy(device);) {
		device->abandoned = clock_steady_ns() >= end_ns;
		nanosleep(&(struct timespec){.tv_nsec = CLOSE_PAUSE_NS}, NULL);
	}
	if (device->abandoned)
		log_warning("cuda", "a device is closed while it computes; its memory is freed when this process ends");
	while (device->modules) {
		struct backend_module *module = device->modules;
		cuda_module_unload(device, &module);
	}
	while (device->streams) {
		struct backend_stream *stream = device->streams;
		cuda_stream_destroy(device, &stream);
	}
	while (device->buffers) {
		struct backend_buffer *buffer = device->buffers;
		cuda_buffer_destroy(device, &buffer);
	}
	if (device->abandoned)
		return;
	if (device->staging)
		cuda->cuMemFreeHost(device->staging);
	for (unsigned i = 0; i < CUDA_FILE_COUNT; i++)
		if (device->files[i])
			cuda->cuModuleUnload(device->files[i]);
	cuda->cuDevicePrimaryCtxRelease_v2(device->device);
	cuda_host_copies_free(device, true);
}

void cuda_close(struct backend_device **device)
{
	if (!*device)
		return;
	if ((*device)->context)
		release(*device);
	cuda_destroy(&(*device)->cuda);
	free((*device)->cache_directory);
	free(*device);
	*device = NULL;
}

void cuda_describe(const struct backend_device *device, struct exogpu_device_limits *limits)
{
	*limits = device->limits;
}

enum status cuda_memory(struct backend_device *device, uint64_t *total_bytes, uint64_t *free_bytes, struct error *error)
{
	size_t total = 0, unused = 0;
	CUresult result = cuda_enter(device);
	if (!result)
		result = device->cuda->cuMemGetInfo_v2(&unused, &total);
	*total_bytes = total;
	*free_bytes = unused;
	return cuda_check(device, error, "cuMemGetInfo", result);
}
