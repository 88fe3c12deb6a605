/* Buffers, copies and fills.
 *
 * Device memory is cuMemAlloc's, host memory pinned and portable, so that every device of the process copies from it at
 * full speed; imported memory is pinned in place. A GPU inside the processor has the host's memory as its own, which
 * makes it mapped memory, too. The driver does not clear new memory.
 *
 * A copy within host memory is done by the processor, on a thread of the driver, in the order of the stream: the
 * driver's own call would block the caller until then. A lost device never executes the copy, so its record belongs to
 * the device, which frees it when the copy is done or the context is gone.
 *
 * Copies between devices use a peer link if the machine allows it; this is tested at the first copy of each pair. If
 * not, the driver stages them in host memory. If that fails, too, they are staged here, which blocks. A pair that
 * failed once is not tried again while both devices are open. */
#include "common/base/log.h"
#include "engine/cuda/device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_STAGING_BYTES (16ull << 20)

static enum status allocation_failed(struct backend_device *device, uint64_t bytes, CUresult result,
				     struct error *error)
{
	size_t unused = 0, total = 0;
	if (result != CUDA_ERROR_OUT_OF_MEMORY || device->cuda->cuMemGetInfo_v2(&unused, &total))
		return cuda_failed(device->cuda, error, "allocating memory", result);
	return error_set(error, STATUS_OUT_OF_MEMORY,
			 "%llu bytes cannot be allocated: %llu of %llu are free, but fragmented",
			 (unsigned long long)bytes, (unsigned long long)unused, (unsigned long long)total);
}

enum status cuda_buffer_create(struct backend_device *device, struct backend_buffer **out,
			       const struct backend_buffer_params *params, struct error *error)
{
	struct cuda *cuda = device->cuda;
	struct backend_buffer *buffer = calloc(1, sizeof(*buffer));
	*out = NULL;
	if (!buffer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a buffer's record");
	CUresult result = cuda_enter(device);
	if (!result && params->memory == EXOGPU_MEMORY_DEVICE) {
		result = cuda->cuMemAlloc_v2(&buffer->pointer, params->bytes);
	} else if (!result && params->imported) {
		result = cuda->cuMemHostRegister_v2(params->imported, params->bytes, CUDA_HOST_PORTABLE);
		buffer->pointer = (CUdeviceptr)(uintptr_t)params->imported;
		buffer->host = params->imported;
		buffer->imported = true;
	} else if (!result) {
		result = cuda->cuMemHostAlloc(&buffer->host, params->bytes, CUDA_HOST_PORTABLE);
		buffer->pointer = (CUdeviceptr)(uintptr_t)buffer->host;
	}
	if (result) {
		free(buffer);
		if (params->memory == EXOGPU_MEMORY_DEVICE)
			return allocation_failed(device, params->bytes, result, error);
		return cuda_failed(cuda, error, params->imported ? "cuMemHostRegister" : "cuMemHostAlloc", result);
	}
	buffer->bytes = params->bytes;
	buffer->next = device->buffers;
	device->buffers = buffer;
	*out = buffer;
	return STATUS_OK;
}

void cuda_buffer_destroy(struct backend_device *device, struct backend_buffer **out)
{
	struct backend_buffer *buffer = *out;
	if (!buffer)
		return;
	for (struct backend_buffer **link = &device->buffers; *link; link = &(*link)->next)
		if (*link == buffer) {
			*link = buffer->next;
			break;
		}
	if (!device->abandoned) {
		cuda_enter(device);
		if (buffer->imported)
			device->cuda->cuMemHostUnregister(buffer->host);
		else if (buffer->host)
			device->cuda->cuMemFreeHost(buffer->host);
		else
			device->cuda->cuMemFree_v2(buffer->pointer);
	}
	free(buffer);
	*out = NULL;
}

void *cuda_buffer_pointer(struct backend_buffer *buffer)
{
	return buffer->host;
}

struct cuda_host_copy {
	struct cuda_host_copy *next; // newer, of the device's; of the newest: the oldest
	void *to;
	const void *from;
	size_t bytes;
	atomic_bool done;
};

static void copy_on_host(void *context)
{
	struct cuda_host_copy *copy = context;
	memcpy(copy->to, copy->from, copy->bytes);
	atomic_store_explicit(&copy->done, true, memory_order_release);
}

// Oldest first, up to one in progress. Copies of one stream are done in order, so each record is looked at once.
void cuda_host_copies_free(struct backend_device *device, bool every)
{
	while (device->copies) {
		struct cuda_host_copy *newest = device->copies, *oldest = newest->next;
		if (!every && !atomic_load_explicit(&oldest->done, memory_order_acquire))
			return;
		if (oldest == newest)
			device->copies = NULL;
		else
			newest->next = oldest->next;
		free(oldest);
	}
}

static CUresult enqueue_on_host(struct backend_stream *stream, const struct backend_copy *copy)
{
	struct backend_device *device = stream->device;
	struct cuda_host_copy *work = calloc(1, sizeof(*work));
	if (!work)
		return CUDA_ERROR_OUT_OF_MEMORY;
	work->to = (uint8_t *)copy->to->host + copy->to_offset;
	work->from = (const uint8_t *)copy->from->host + copy->from_offset;
	work->bytes = copy->bytes;
	CUresult result = device->cuda->cuLaunchHostFunc(stream->stream, copy_on_host, work);
	if (result) {
		free(work);
		return result;
	}
	cuda_host_copies_free(device, false);
	work->next = device->copies ? device->copies->next : work;
	if (device->copies)
		device->copies->next = work;
	device->copies = work;
	return CUDA_SUCCESS;
}

enum status cuda_copy(struct backend_stream *stream, const struct backend_copy *copy, struct error *error)
{
	struct backend_device *device = stream->device;
	CUresult result = cuda_enter(device);
	if (!result && copy->to->host && copy->from->host)
		result = enqueue_on_host(stream, copy);
	else if (!result)
		result = device->cuda->cuMemcpyAsync(copy->to->pointer + copy->to_offset,
						     copy->from->pointer + copy->from_offset, copy->bytes,
						     stream->stream);
	return cuda_check(device, error, "a copy", result);
}

enum status cuda_fill(struct backend_stream *stream, struct backend_buffer *buffer, uint64_t offset, uint64_t bytes,
		      uint8_t value, struct error *error)
{
	struct backend_device *device = stream->device;
	CUresult result = cuda_enter(device);
	if (!result)
		result = device->cuda->cuMemsetD8Async(buffer->pointer + offset, value, bytes, stream->stream);
	return cuda_check(device, error, "cuMemsetD8Async", result);
}

// Find out how to copy to this device, and store it in device->peers. Only the loss of a device is an error, after
// which nothing is stored.
static CUresult find_way(struct backend_device *device, struct backend_device *to)
{
	struct cuda *cuda = device->cuda;
	struct error error = {0};
	int can = 0;
	if (device->peers[to->ordinal].serial == to->serial)
		return CUDA_SUCCESS;
	CUresult result = cuda->cuDeviceCanAccessPeer(&can, device->device, to->device);
	bool linked = !result && can;
	if (linked)
		result = cuda->cuCtxEnablePeerAccess(to->context, 0);
	if (cuda_lost(result))
		return result;
	linked = linked && (!result || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	device->peers[to->ordinal] = (struct cuda_peer){.serial = to->serial,
							.way = linked ? CUDA_WAY_DIRECT : CUDA_WAY_DRIVER};
	if (linked)
		return CUDA_SUCCESS;
	if (result)
		cuda_failed(cuda, &error, "peer access", result);
	log_warning("cuda", "copies from GPU %d to GPU %d are staged in host memory: %s", device->ordinal, to->ordinal,
		    result ? error.message : "they are not linked as peers");
	return CUDA_SUCCESS;
}

enum status cuda_peers_linked(struct backend_device *device, struct backend_device *to, bool *linked,
			      struct error *error)
{
	*linked = false;
	if (!device->cuda->cuDeviceCanAccessPeer || !device->cuda->cuCtxEnablePeerAccess)
		return STATUS_OK;
	CUresult result = cuda_enter(device);
	if (!result)
		result = find_way(device, to);
	*linked = !result && device->peers[to->ordinal].way == CUDA_WAY_DIRECT;
	return cuda_check(device, error, "peer access", result);
}

// Piece by piece through pinned memory; waits for each.
static CUresult copy_staged(struct backend_stream *stream, struct backend_device *to, const struct backend_copy *copy)
{
	struct backend_device *device = stream->device;
	struct cuda *cuda = device->cuda;
	CUresult result = CUDA_SUCCESS;
	void *staging = NULL;
	if (!device->staging)
		result = cuda->cuMemHostAlloc(&staging, CUDA_STAGING_BYTES, CUDA_HOST_PORTABLE);
	if (!result && staging)
		device->staging = staging;
	for (uint64_t done = 0, piece; !result && done < copy->bytes; done += piece) {
		piece = copy->bytes - done < CUDA_STAGING_BYTES ? copy->bytes - done : CUDA_STAGING_BYTES;
		result = cuda->cuMemcpyAsync((CUdeviceptr)(uintptr_t)device->staging,
					     copy->from->pointer + copy->from_offset + done, piece, stream->stream);
		if (!result)
			result = cuda->cuStreamSynchronize(stream->stream);
		if (!result)
			result = cuda_enter(to);
		if (!result)
			result = cuda->cuMemcpyHtoD_v2(copy->to->pointer + copy->to_offset + done, device->staging,
						       piece);
		if (!result)
			result = cuda_enter(device);
	}
	return result;
}

enum status cuda_copy_peer(struct backend_stream *stream, struct backend_device *to_device,
			   const struct backend_copy *copy, bool *direct, struct error *error)
{
	struct backend_device *device = stream->device;
	struct cuda_peer *peer = &device->peers[to_device->ordinal];
	struct error fault = {0};
	*direct = false;
	if (copy->to->host || copy->from->host) // portable: to this device like its own
		return cuda_copy(stream, copy, error);
	CUresult result = cuda_enter(device);
	if (!result)
		result = find_way(device, to_device);
	if (!result && peer->way != CUDA_WAY_STAGED) {
		result = device->cuda->cuMemcpyPeerAsync(copy->to->pointer + copy->to_offset, to_device->context,
							 copy->from->pointer + copy->from_offset, device->context,
							 copy->bytes, stream->stream);
		*direct = !result && peer->way == CUDA_WAY_DIRECT;
		if (!result || cuda_lost(result))
			return cuda_check(device, error, "cuMemcpyPeerAsync", result);
		cuda_failed(device->cuda, &fault, "cuMemcpyPeerAsync", result);
		log_warning("cuda", "copies from GPU %d to GPU %d are staged here: %s", device->ordinal,
			    to_device->ordinal, fault.message);
		peer->way = CUDA_WAY_STAGED;
		result = CUDA_SUCCESS;
	}
	if (!result)
		result = copy_staged(stream, to_device, copy);
	return cuda_check(device, error, "a copy between two GPUs", result);
}
