/* The CUDA back end: NVIDIA GPUs of compute capability 8.0 and later, through the driver API. Which file does what
 * stands in device.h. Here are its slots, and the old ones on top of them. */
#include "engine/cuda/device.h"

#include <stdlib.h>

struct old_buffer {
	struct backend_buffer *buffer;
};

struct old_device {
	struct backend_device *device;
	struct backend_stream *stream;
	struct backend_module *module;
};

static void old_close(struct old_device **out)
{
	if (*out)
		cuda_close(&(*out)->device);
	free(*out);
	*out = NULL;
}

static enum status old_open(struct old_device **out, const char *hardware_key, struct error *error)
{
	struct backend_open open = {.hardware_key = hardware_key};
	struct old_device *old = calloc(1, sizeof(*old));
	enum status status = old ? cuda_open(&old->device, &open, error)
				 : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the device");
	if (!status)
		status = cuda_stream_create(old->device, &old->stream, error);
	if (!status)
		status = cuda_module_load(old->device, &old->module,
					  &(struct backend_module_params){.format = EXOGPU_FORMAT_BUILTIN}, error);
	if (status)
		old_close(&old);
	*out = old;
	return status;
}

static void old_limits(const struct old_device *old, struct old_limits *limits)
{
	*limits = (struct old_limits){.buffer_bytes = old->device->limits.buffer_bytes,
				      .stream_bytes = old->device->limits.stream_bytes};
}

static enum status old_buffer_create(struct old_device *old, struct old_buffer **out, uint64_t bytes,
				     struct error *error)
{
	const struct backend_buffer_params params = {.bytes = bytes, .memory = EXOGPU_MEMORY_DEVICE};
	*out = calloc(1, sizeof(**out));
	enum status status = *out ? cuda_buffer_create(old->device, &(*out)->buffer, &params, error)
				  : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a buffer's record");
	if (status) {
		free(*out);
		*out = NULL;
	}
	return status;
}

static void old_buffer_destroy(struct old_device *old, struct old_buffer **buffer)
{
	if (*buffer)
		cuda_buffer_destroy(old->device, &(*buffer)->buffer);
	free(*buffer);
	*buffer = NULL;
}

static enum status finish(struct old_device *old, enum status status, struct error *error)
{
	uint64_t point;
	if (!status)
		status = cuda_mark(old->stream, &point, error);
	return status ? status : cuda_wait(old->stream, point, INT64_MAX, error);
}

static enum status old_write(struct old_device *old, struct old_buffer *to, const void *from, uint64_t bytes,
			     struct error *error)
{
	cuda_enter(old->device);
	CUresult result = old->device->cuda->cuMemcpyAsync(to->buffer->pointer, (CUdeviceptr)(uintptr_t)from, bytes,
							   old->stream->stream);
	return finish(old, cuda_check(old->device, error, "cuMemcpyAsync", result), error);
}

static enum status old_copy(struct old_device *old, struct old_buffer *to, struct old_buffer *from, uint64_t bytes,
			    struct error *error)
{
	const struct backend_copy copy = {.to = to->buffer, .from = from->buffer, .bytes = bytes};
	return finish(old, cuda_copy(old->stream, &copy, error), error);
}

static enum status old_read(struct old_device *old, void *to, struct old_buffer *from, uint64_t bytes,
			    struct error *error)
{
	cuda_enter(old->device);
	return cuda_check(old->device, error, "cuMemcpyDtoH",
			  old->device->cuda->cuMemcpyDtoH_v2(to, from->buffer->pointer, bytes));
}

static struct backend_argument value(uint64_t bits)
{
	return (struct backend_argument){.kind = EXOGPU_ARGUMENT_U64, .bits = bits};
}

static struct backend_argument buffer(const struct old_buffer *old)
{
	return (struct backend_argument){.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = old->buffer};
}

static enum status old_launch(struct old_device *old, const struct old_launch *asked, int64_t *device_ns,
			      struct error *error)
{
	struct backend_argument arguments[BUILTIN_ARGUMENTS] = {{0}};
	struct backend_launch launch = {.module = old->module, .arguments = arguments};
	uint64_t from, to;
	arguments[0] = buffer(asked->buffers[0]);
	if (asked->kernel == KERNEL_STREAM_FILL) {
		launch.kernel = BUILTIN_STREAM_FILL - 1;
		arguments[1] = value(asked->elements);
		arguments[2] = value(asked->constants[0]);
		launch.argument_count = 3;
	} else {
		launch.kernel = (asked->kernel == KERNEL_VERIFY ? BUILTIN_VERIFY : BUILTIN_STREAM_READ) - 1;
		arguments[1] = buffer(asked->buffers[1]);
		arguments[2] = value(asked->elements);
		for (unsigned i = 0; i < OLD_LAUNCH_CONSTANTS; i++)
			arguments[3 + i] = value(asked->constants[i]);
		launch.argument_count = BUILTIN_ARGUMENTS;
	}
	enum status status = cuda_mark(old->stream, &from, error);
	for (unsigned i = 0; !status && i < asked->repeat; i++)
		status = cuda_launch(old->stream, &launch, error);
	if (!status)
		status = cuda_mark(old->stream, &to, error);
	if (!status)
		status = cuda_wait(old->stream, to, INT64_MAX, error);
	if (!status && device_ns)
		status = cuda_elapsed(old->stream, from, to, device_ns, error);
	return status;
}

const struct backend backend_cuda = {
	.kind = BACKEND_CUDA,
	.enumerate = cuda_enumerate,
	.narrow = cuda_narrow,
	.open = cuda_open,
	.close = cuda_close,
	.describe = cuda_describe,
	.memory = cuda_memory,
	.buffer_create = cuda_buffer_create,
	.buffer_destroy = cuda_buffer_destroy,
	.buffer_pointer = cuda_buffer_pointer,
	.stream_create = cuda_stream_create,
	.stream_destroy = cuda_stream_destroy,
	.copy = cuda_copy,
	.fill = cuda_fill,
	.launch = cuda_launch,
	.copy_peer = cuda_copy_peer,
	.mark = cuda_mark,
	.reached = cuda_reached,
	.wait = cuda_wait,
	.follow = cuda_follow,
	.elapsed = cuda_elapsed,
	.module_load = cuda_module_load,
	.module_unload = cuda_module_unload,
	.module_kernel = cuda_module_kernel,
	.old_open = old_open,
	.old_close = old_close,
	.old_limits = old_limits,
	.old_buffer_create = old_buffer_create,
	.old_buffer_destroy = old_buffer_destroy,
	.old_write = old_write,
	.old_copy = old_copy,
	.old_read = old_read,
	.old_launch = old_launch,
};
