/* The Vulkan back end: any GPU with a Vulkan 1.1 driver, and software devices
 * such as llvmpipe. loader.c finds the library, enumerate.c lists devices,
 * manifest.c finds drivers that cannot be loaded; device.h lists the files of an
 * open device. */
#include "engine/vulkan/device.h"
#include "engine/vulkan/enumerate.h"
#include "engine/vulkan/stage/stage.h"

unsigned vulkan_without;

static enum status open_device(struct backend_device **out, const struct backend_open *params, struct error *error)
{
	return vulkan_device_open(out, params, vulkan_without, error);
}

const struct backend backend_vulkan = {
	.kind = BACKEND_VULKAN,
	.enumerate = vulkan_enumerate,
	.open = open_device,
	.close = vulkan_device_close,
	.describe = vulkan_device_describe,
	.memory = vulkan_memory_told,
	.buffer_create = vulkan_buffer_create,
	.buffer_destroy = vulkan_buffer_destroy,
	.buffer_pointer = vulkan_buffer_pointer,
	.stream_create = vulkan_stream_create,
	.stream_destroy = vulkan_stream_destroy,
	.copy = vulkan_copy,
	.fill = vulkan_fill,
	.launch = vulkan_launch,
	.mark = vulkan_mark,
	.reached = vulkan_reached,
	.wait = vulkan_wait,
	.follow = vulkan_follow,
	.elapsed = vulkan_elapsed,
	.module_load = vulkan_module_load,
	.module_unload = vulkan_module_unload,
	.module_kernel = vulkan_module_kernel,
	.stage = &vulkan_stage,
};
