/* The Vulkan back end: any GPU whose maker has a Vulkan 1.1 driver, and software devices such as llvmpipe.
 *
 * Layout of the folder: loader.c the library, enumerate.c what devices say, manifest.c drivers that cannot be loaded,
 * this file devices, memory and copies, launch.c kernels. Data goes through one mapped staging buffer in pieces. */
#include "engine/backend.h"
#include "engine/device/host.h"
#include "engine/vulkan/enumerate.h"
#include "engine/vulkan/old_device.h"

#include <stdlib.h>
#include <string.h>

void old_vulkan_buffer_destroy(struct old_device *device, struct old_buffer **buffer)
{
	if (!*buffer)
		return;
	for (struct old_buffer **link = &device->buffers; *link; link = &(*link)->next)
		if (*link == *buffer) {
			*link = (*buffer)->next;
			break;
		}
	device->fn.vkDestroyBuffer(device->device, (*buffer)->buffer, NULL);
	device->fn.vkFreeMemory(device->device, (*buffer)->memory, NULL);
	free(*buffer);
	*buffer = NULL;
}

void old_vulkan_close(struct old_device **out)
{
	struct old_device *device = *out;
	if (!device)
		return;
	if (device->device && device->fn.vkDestroyDevice) {
		device->fn.vkDeviceWaitIdle(device->device);
		while (device->buffers) {
			struct old_buffer *buffer = device->buffers;
			old_vulkan_buffer_destroy(device, &buffer);
		}
		for (int i = 0; i < KERNEL_COUNT; i++) {
			device->fn.vkDestroyPipeline(device->device, device->pipelines[i].pipeline, NULL);
			device->fn.vkDestroyShaderModule(device->device, device->pipelines[i].module, NULL);
		}
		device->fn.vkDestroyDescriptorPool(device->device, device->descriptors, NULL);
		device->fn.vkDestroyPipelineLayout(device->device, device->layout, NULL);
		device->fn.vkDestroyDescriptorSetLayout(device->device, device->set_layout, NULL);
		device->fn.vkDestroyQueryPool(device->device, device->timestamps, NULL);
		device->fn.vkDestroyFence(device->device, device->fence, NULL);
		device->fn.vkDestroyCommandPool(device->device, device->commands, NULL);
		device->fn.vkDestroyDevice(device->device, NULL);
	}
	vulkan_destroy(&device->vulkan);
	free(device);
	*out = NULL;
}

// The type of memory that allows all of `flags`; UINT32_MAX if there is none.
static uint32_t memory_type(const struct old_device *device, uint32_t allowed, VkMemoryPropertyFlags flags)
{
	for (uint32_t i = 0; i < device->memory.memoryTypeCount; i++)
		if ((allowed & (1u << i)) && (device->memory.memoryTypes[i].propertyFlags & flags) == flags)
			return i;
	return UINT32_MAX;
}

static enum status create_buffer(struct old_device *device, struct old_buffer **out, uint64_t bytes,
				 VkMemoryPropertyFlags flags, struct error *error)
{
	struct old_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a buffer's record");
	buffer->bytes = bytes;
	buffer->next = device->buffers;
	device->buffers = buffer;
	enum status status = STATUS_OK;
	VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.size = bytes,
		.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
			 VK_BUFFER_USAGE_TRANSFER_DST_BIT,
	};
	VkResult result = device->fn.vkCreateBuffer(device->device, &info, NULL, &buffer->buffer);
	if (result) {
		status = vulkan_failed(error, "vkCreateBuffer", result);
		goto done;
	}
	VkMemoryRequirements needs;
	device->fn.vkGetBufferMemoryRequirements(device->device, buffer->buffer, &needs);
	VkMemoryAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.allocationSize = needs.size,
		.memoryTypeIndex = memory_type(device, needs.memoryTypeBits, flags),
	};
	if (allocate.memoryTypeIndex == UINT32_MAX) {
		status = error_set(error, STATUS_UNAVAILABLE, "no memory type of this device has the properties 0x%x",
				   flags);
		goto done;
	}
	result = device->fn.vkAllocateMemory(device->device, &allocate, NULL, &buffer->memory);
	if (result) {
		status = vulkan_failed(error, "vkAllocateMemory", result);
		goto done;
	}
	result = device->fn.vkBindBufferMemory(device->device, buffer->buffer, buffer->memory, 0);
	if (result)
		status = vulkan_failed(error, "vkBindBufferMemory", result);
done:
	if (status)
		old_vulkan_buffer_destroy(device, &buffer);
	*out = buffer;
	return status;
}

enum status old_vulkan_buffer_create(struct old_device *device, struct old_buffer **out, uint64_t bytes,
				     struct error *error)
{
	return create_buffer(device, out, bytes, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, error);
}

static enum status create_staging(struct old_device *device, struct error *error)
{
	enum status status = create_buffer(device, &device->staging, VULKAN_STAGING_BYTES,
					   VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
					   error);
	if (status)
		return status;
	VkResult result = device->fn.vkMapMemory(device->device, device->staging->memory, 0, VK_WHOLE_SIZE, 0,
						 &device->staging_data);
	return result ? vulkan_failed(error, "vkMapMemory", result) : STATUS_OK;
}

// Find the device by its key, and the first of its queues that computes.
static enum status find_device(struct old_device *device, const char *hardware_key, struct error *error)
{
	VkPhysicalDevice devices[VULKAN_DEVICES];
	uint32_t count = 0, families = 16;
	VkQueueFamilyProperties queues[16];
	enum status status = vulkan_physical_devices(device->vulkan, devices, &count, error);
	if (status)
		return status;
	for (uint32_t i = 0; i < count && !device->physical; i++) {
		struct device_info info = {0};
		vulkan_describe(device->vulkan, devices[i], (int)i, &info);
		if (strcmp(info.hardware_key, hardware_key))
			continue;
		if (info.support == SUPPORT_UNSUPPORTED)
			return error_set(error, STATUS_UNAVAILABLE, "%s", info.support_reason);
		device->physical = devices[i];
	}
	if (!device->physical)
		return error_set(error, STATUS_NOT_FOUND, "Vulkan has no device %.200s now", hardware_key);
	device->vulkan->vkGetPhysicalDeviceProperties(device->physical, &device->properties);
	device->software = device->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
	device->vulkan->vkGetPhysicalDeviceQueueFamilyProperties(device->physical, &families, queues);
	for (uint32_t i = 0; i < families; i++)
		if (queues[i].queueFlags & VK_QUEUE_COMPUTE_BIT) {
			device->queue_family = i;
			device->timestamp_bits = queues[i].timestampValidBits;
			return STATUS_OK;
		}
	return error_set(error, STATUS_UNAVAILABLE, "the device has no compute queue");
}

static enum status create_device(struct old_device *device, struct error *error)
{
	VkPhysicalDeviceMaintenance3Properties maintenance3 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
	VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
						  .pNext = &maintenance3};
	VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
	device->vulkan->vkGetPhysicalDeviceProperties2(device->physical, &properties);
	device->vulkan->vkGetPhysicalDeviceMemoryProperties2(device->physical, &memory);
	device->memory = memory.memoryProperties;
	device->largest_allocation = maintenance3.maxMemoryAllocationSize;
	float priority = 1;
	VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueFamilyIndex = device->queue_family,
		.queueCount = 1,
		.pQueuePriorities = &priority,
	};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
	};
	VkResult result = device->vulkan->vkCreateDevice(device->physical, &info, NULL, &device->device);
	if (result)
		return vulkan_failed(error, "vkCreateDevice", result);
	enum status status = vulkan_load_device(device->vulkan, device->device, &device->fn, error);
	if (!status)
		device->fn.vkGetDeviceQueue(device->device, device->queue_family, 0, &device->queue);
	return status;
}

static enum status create_commands(struct old_device *device, struct error *error)
{
	VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
		.queueFamilyIndex = device->queue_family,
	};
	VkResult result = device->fn.vkCreateCommandPool(device->device, &pool, NULL, &device->commands);
	if (result)
		return vulkan_failed(error, "vkCreateCommandPool", result);
	VkCommandBufferAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.commandPool = device->commands,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = 1,
	};
	result = device->fn.vkAllocateCommandBuffers(device->device, &allocate, &device->command);
	if (result)
		return vulkan_failed(error, "vkAllocateCommandBuffers", result);
	VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	result = device->fn.vkCreateFence(device->device, &fence, NULL, &device->fence);
	if (result)
		return vulkan_failed(error, "vkCreateFence", result);
	VkQueryPoolCreateInfo queries = {
		.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
		.queryType = VK_QUERY_TYPE_TIMESTAMP,
		.queryCount = 2,
	};
	if (device->timestamp_bits && device->fn.vkCreateQueryPool(device->device, &queries, NULL, &device->timestamps))
		device->timestamps = VK_NULL_HANDLE; // the host's clock is used instead
	return STATUS_OK;
}

enum status old_vulkan_open(struct old_device **out, const char *hardware_key, struct error *error)
{
	struct old_device *device = calloc(1, sizeof(*device));
	enum status status = device ? STATUS_OK : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the device");
	if (!status)
		status = vulkan_create(&device->vulkan, false, NULL, error);
	if (!status)
		status = find_device(device, hardware_key, error);
	if (!status)
		status = create_device(device, error);
	if (!status)
		status = create_commands(device, error);
	if (!status)
		status = old_vulkan_create_layouts(device, error);
	if (!status)
		status = create_staging(device, error);
	if (status)
		old_vulkan_close(&device);
	*out = device;
	return status;
}

void old_vulkan_limits(const struct old_device *device, struct old_limits *limits)
{
	uint64_t range = device->properties.limits.maxStorageBufferRange, heap = 0;
	for (uint32_t i = 0; i < device->memory.memoryHeapCount; i++)
		if ((device->memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) &&
		    device->memory.memoryHeaps[i].size > heap)
			heap = device->memory.memoryHeaps[i].size;
	uint64_t stream = 1024ull << 20;
	if (device->software) { // reads through the processor's caches
		struct host_cpu host;
		host_cpu_read(&host);
		uint64_t cache = host.last_level_bytes > 0 ? (uint64_t)host.last_level_bytes : 64ull << 20;
		stream = 4 * cache < (512ull << 20) ? 4 * cache : 512ull << 20;
	} else if (device->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU) {
		stream = 256ull << 20;
	}
	limits->buffer_bytes = device->largest_allocation < range ? device->largest_allocation : range;
	limits->stream_bytes = stream < heap / 4 ? stream : heap / 4;
}

enum status old_vulkan_begin(struct old_device *device, struct error *error)
{
	VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
					  .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
	VkResult result = device->fn.vkBeginCommandBuffer(device->command, &begin);
	return result ? vulkan_failed(error, "vkBeginCommandBuffer", result) : STATUS_OK;
}

enum status old_vulkan_submit(struct old_device *device, struct error *error)
{
	// Whatever was written is there for the host and for the next submission.
	VkMemoryBarrier visible = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT |
				 VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
	};
	device->fn.vkCmdPipelineBarrier(
		device->command, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
		VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT, 0,
		1, &visible, 0, NULL, 0, NULL);
	VkResult result = device->fn.vkEndCommandBuffer(device->command);
	if (result)
		return vulkan_failed(error, "vkEndCommandBuffer", result);
	VkSubmitInfo submit = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &device->command,
	};
	result = device->fn.vkQueueSubmit(device->queue, 1, &submit, device->fence);
	if (result)
		return vulkan_failed(error, "vkQueueSubmit", result);
	result = device->fn.vkWaitForFences(device->device, 1, &device->fence, VK_TRUE, VULKAN_WAIT_NS);
	if (result)
		return vulkan_failed(error, "vkWaitForFences", result);
	result = device->fn.vkResetFences(device->device, 1, &device->fence);
	return result ? vulkan_failed(error, "vkResetFences", result) : STATUS_OK;
}

// `bytes` from `from` + from_offset to `to` + to_offset, on the device.
static enum status copy_range(struct old_device *device, const struct old_buffer *to, uint64_t to_offset,
			      const struct old_buffer *from, uint64_t from_offset, uint64_t bytes, struct error *error)
{
	VkBufferCopy region = {.srcOffset = from_offset, .dstOffset = to_offset, .size = bytes};
	enum status status = old_vulkan_begin(device, error);
	if (status)
		return status;
	device->fn.vkCmdCopyBuffer(device->command, from->buffer, to->buffer, 1, &region);
	return old_vulkan_submit(device, error);
}

enum status old_vulkan_write(struct old_device *device, struct old_buffer *to, const void *from, uint64_t bytes,
			     struct error *error)
{
	enum status status = STATUS_OK;
	for (uint64_t at = 0; !status && at < bytes;) {
		uint64_t piece = bytes - at < VULKAN_STAGING_BYTES ? bytes - at : VULKAN_STAGING_BYTES;
		memcpy(device->staging_data, (const uint8_t *)from + at, piece);
		status = copy_range(device, to, at, device->staging, 0, piece, error);
		at += piece;
	}
	return status;
}

enum status old_vulkan_copy(struct old_device *device, struct old_buffer *to, struct old_buffer *from, uint64_t bytes,
			    struct error *error)
{
	return copy_range(device, to, 0, from, 0, bytes, error);
}

enum status old_vulkan_read(struct old_device *device, void *to, struct old_buffer *from, uint64_t bytes,
			    struct error *error)
{
	enum status status = STATUS_OK;
	for (uint64_t at = 0; !status && at < bytes;) {
		uint64_t piece = bytes - at < VULKAN_STAGING_BYTES ? bytes - at : VULKAN_STAGING_BYTES;
		status = copy_range(device, device->staging, 0, from, at, piece, error);
		if (!status)
			memcpy((uint8_t *)to + at, device->staging_data, piece);
		at += piece;
	}
	return status;
}
