/* The CUDA back end: NVIDIA GPUs of compute capability 8.0 and later, through the driver API. device.h lists the
 * files. */
#include "engine/cuda/device.h"
#include "engine/cuda/stage/stage.h"

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
	.stage = &cuda_stage_slots,
	.compiles = true,
};
