/* libexogpu: buffers, and how much memory they may take.
 *
 * Three bounds are checked before the back end's own: the largest buffer of the device, the limit that the device was
 * opened with, and the memory of the device. Some drivers enforce none of them (a software Vulkan device hands out
 * addresses until the machine ends the process), so on a device that is this machine's processor the memory that is
 * free now is a bound, too. */
#include "common/base/list.h"
#include "engine/inside.h"

#include <stdlib.h>

static bool on_device(enum exogpu_memory memory)
{
	return memory != EXOGPU_MEMORY_HOST;
}

static enum status memory_check(struct exogpu_device *device, const struct backend_buffer_params *params,
				struct error *error)
{
	switch (params->memory) {
	case EXOGPU_MEMORY_DEVICE:
	case EXOGPU_MEMORY_HOST:
		return STATUS_OK;
	case EXOGPU_MEMORY_MAPPED:
		if (device->limits.capabilities & EXOGPU_CAN_MAP)
			return STATUS_OK;
		error_set(error, STATUS_UNAVAILABLE, "this device has no memory that the host sees");
		error_hint(error, "use device memory, and host memory beside it");
		return STATUS_UNAVAILABLE;
	case EXOGPU_MEMORY_UNKNOWN:
		break;
	}
	return error_set(error, STATUS_INVALID_PARAMS, "%d is not a kind of memory", (int)params->memory);
}

static enum status import_check(const struct exogpu_device *device, const struct backend_buffer_params *params,
				struct error *error)
{
	if (!(device->limits.capabilities & EXOGPU_CAN_IMPORT)) {
		error_set(error, STATUS_UNAVAILABLE, "this device does not import memory");
		error_hint(error, "make a buffer of host memory, and copy");
		return STATUS_UNAVAILABLE;
	}
	if (((uintptr_t)params->imported | params->bytes) % EXOGPU_IMPORT_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "%llu bytes at %p: both must be multiples of %d",
				 (unsigned long long)params->bytes, params->imported, EXOGPU_IMPORT_BYTES);
	return STATUS_OK;
}

static enum status room_check(struct exogpu_device *device, const struct backend_buffer_params *params,
			      struct error *error)
{
	const struct exogpu_device_limits *limits = &device->limits;
	unsigned long long bytes = params->bytes, used = device->usage.device_bytes, most = device->memory_limit_bytes;
	bool software = limits->capabilities & EXOGPU_CAN_SOFTWARE;
	if (bytes > limits->buffer_bytes)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "%llu bytes; a buffer of this device has at most %llu",
				 bytes, (unsigned long long)limits->buffer_bytes);
	if (on_device(params->memory) && most && (used > most || bytes > most - used)) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "%llu bytes requested with %llu in use; the limit is %llu",
			  bytes, used, most);
		error_hint(error, "free memory, or ask for a higher limit");
		return STATUS_LIMIT_EXCEEDED;
	}
	if (software) // host memory is the same memory
		used += device->usage.host_bytes;
	if ((on_device(params->memory) || software) &&
	    (used > limits->memory_bytes || bytes > limits->memory_bytes - used)) {
		error_set(error, STATUS_OUT_OF_MEMORY, "%llu bytes requested with %llu in use; the device has %llu",
			  bytes, used, (unsigned long long)limits->memory_bytes);
		error_hint(error, "free other memory, or ask for less");
		return STATUS_OUT_OF_MEMORY;
	}
	if (!software)
		return STATUS_OK;
	uint64_t total_bytes, free_bytes;
	enum status status = exogpu_device_memory(device, &total_bytes, &free_bytes, error);
	if (status || bytes <= free_bytes)
		return status;
	error_set(error, STATUS_OUT_OF_MEMORY, "%llu bytes; this machine has %llu free", bytes,
		  (unsigned long long)free_bytes);
	error_hint(error, "free other memory, or ask for less");
	return STATUS_OUT_OF_MEMORY;
}

static void account(struct exogpu_device *device, const struct exogpu_buffer *buffer, bool more)
{
	struct exogpu_usage *usage = &device->usage;
	uint64_t *bytes = on_device(buffer->memory) ? &usage->device_bytes : &usage->host_bytes;
	if (buffer->own)
		return;
	*bytes = more ? *bytes + buffer->bytes : *bytes - buffer->bytes;
	usage->buffers = more ? usage->buffers + 1 : usage->buffers - 1;
}

enum status buffer_create_as(struct exogpu_device *device, struct exogpu_buffer **out,
			     const struct backend_buffer_params *params, bool own, struct error *error)
{
	enum status status = device_usable(device, error);
	if (!status && !params->bytes)
		status = error_set(error, STATUS_INVALID_PARAMS, "a buffer of 0 bytes");
	if (!status)
		status = memory_check(device, params, error);
	if (!status)
		status = params->imported ? import_check(device, params, error) : room_check(device, params, error);
	if (status)
		return status;
	struct exogpu_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a buffer's record");
	*buffer = (struct exogpu_buffer){
		.device = device, .bytes = params->bytes, .memory = params->memory, .own = own};
	status = device_told(device, device->backend->buffer_create(device->handle, &buffer->handle, params, error),
			     error);
	if (status) {
		free(buffer);
		return status;
	}
	LIST_PUSH(&device->buffers, buffer, link);
	account(device, buffer, true);
	*out = buffer;
	return STATUS_OK;
}

enum status exogpu_buffer_create(struct exogpu_device *device, struct exogpu_buffer **out, uint64_t bytes,
				 enum exogpu_memory memory, struct error *error)
{
	if (!out)
		return error_set(error, STATUS_INVALID_PARAMS, "nowhere to put the buffer");
	*out = NULL;
	return buffer_create_as(device, out, &(struct backend_buffer_params){.bytes = bytes, .memory = memory}, false,
				error);
}

enum status exogpu_buffer_import(struct exogpu_device *device, struct exogpu_buffer **out, void *memory, uint64_t bytes,
				 struct error *error)
{
	if (!out || !memory)
		return error_set(error, STATUS_INVALID_PARAMS, "no memory to import, or nowhere to put the buffer");
	*out = NULL;
	const struct backend_buffer_params params = {.bytes = bytes, .memory = EXOGPU_MEMORY_HOST, .imported = memory};
	return buffer_create_as(device, out, &params, false, error);
}

void exogpu_buffer_destroy(struct exogpu_buffer **buffer_pointer)
{
	if (!buffer_pointer || !*buffer_pointer)
		return;
	struct exogpu_buffer *buffer = *buffer_pointer;
	struct exogpu_device *device = buffer->device;
	device_settle(device, buffer->used_by, buffer->peer_target);
	if (!device->lost) // else its memory goes when the device is closed
		device->backend->buffer_destroy(device->handle, &buffer->handle);
	account(device, buffer, false);
	LIST_REMOVE(buffer, link);
	free(buffer);
	*buffer_pointer = NULL;
}

uint64_t exogpu_buffer_bytes(const struct exogpu_buffer *buffer)
{
	return buffer ? buffer->bytes : 0;
}

void *exogpu_buffer_pointer(struct exogpu_buffer *buffer)
{
	if (!buffer || buffer->device->lost || buffer->memory == EXOGPU_MEMORY_DEVICE)
		return NULL;
	return buffer->device->backend->buffer_pointer(buffer->handle);
}

enum status buffer_range(const struct exogpu_buffer *buffer, uint64_t offset, uint64_t bytes, const char *what,
			 struct error *error)
{
	if (!buffer)
		return error_set(error, STATUS_INVALID_PARAMS, "%s: no buffer", what);
	if (offset <= buffer->bytes && bytes <= buffer->bytes - offset)
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS, "%s: %llu bytes at %llu of a buffer of %llu", what,
			 (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)buffer->bytes);
}
