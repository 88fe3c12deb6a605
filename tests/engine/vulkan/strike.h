/* Stands between the Vulkan back end and the driver, and lets the n-th of its calls fail.
 *
 * Every function of the loader's tables that returns a VkResult is replaced, from the opening of a device on. A call
 * that is struck does not reach the driver: it returns the chosen result and leaves in its outputs what a driver may,
 * which is anything, and where the specification says so no handle at all. After a loss every call says so, but that
 * work of the lost device is over is seen to by waiting for the driver's own.
 * What is made and not destroyed is counted by kind; to destroy what a failed call left is noted as wrong.
 * A program of one device at a time includes this once. */
#pragma once
#include "engine/vulkan/loader.h"

#include <string.h>

// Of vkCreateNAME(device, info, allocator, out) and vkDestroyNAME(device, object, allocator).
#define STRIKE_MADE(M) \
	M(Fence) \
	M(Semaphore) \
	M(Buffer) \
	M(ShaderModule) \
	M(DescriptorSetLayout) \
	M(PipelineLayout) M(PipelineCache) M(DescriptorPool) M(CommandPool) M(QueryPool)

enum strike_kind {
#define M(name) LIVE_##name,
	STRIKE_MADE(M)
#undef M
		LIVE_Pipeline,
	LIVE_Memory,
	LIVE_Device,
	LIVE_KINDS
};

static struct {
	struct vulkan instance; // the driver's own functions
	struct vulkan_device_functions device;
	long countdown; // calls until one fails; < 0: none does
	VkResult result;
	const char *struck; // the call that failed
	bool lost;
	const char *after_loss, *wrong; // a call that came after a loss; one that was given an undefined handle
	long live[LIVE_KINDS];
	struct {
		VkDeviceMemory memory;
		uint64_t bytes;
	} blocks[64]; // memory that is allocated; imported it is of no bytes
} strikes;

// Of no open device, so that none is lost.
static bool strike_question(const char *name)
{
	if (strikes.countdown < 0 || strikes.countdown-- > 0)
		return false;
	strikes.struck = name;
	return true;
}

static bool strike(const char *name)
{
	if (strikes.lost)
		return true;
	bool struck = strike_question(name);
	strikes.lost = struck && strikes.result == VK_ERROR_DEVICE_LOST;
	return struck;
}

// What has nothing to do any more on a device that is lost: all but waiting and destroying.
static bool strike_work(const char *name)
{
	if (strikes.lost)
		strikes.after_loss = name;
	return strike(name);
}

static void undefined(void *out, size_t bytes)
{
	memset(out, 0xa5, bytes);
}

static bool strike_defined(const void *handle, size_t bytes, const char *name)
{
	static const uint8_t poison[sizeof(uint64_t)] = {0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5};
	if (memcmp(handle, poison, bytes) != 0)
		return true;
	strikes.wrong = name;
	return false;
}

// name, parameters, arguments, what a failure leaves in the outputs
#define STRIKE_INSTANCE(F) \
	F(vkEnumeratePhysicalDevices, (VkInstance instance, uint32_t * count, VkPhysicalDevice * devices), \
	  (instance, count, devices), undefined(count, sizeof(*count))) \
	F(vkEnumerateDeviceExtensionProperties, \
	  (VkPhysicalDevice device, const char *layer, uint32_t *count, VkExtensionProperties *properties), \
	  (device, layer, count, properties), undefined(count, sizeof(*count)))
#define STRIKE_DEVICE(F) \
	F(vkGetMemoryHostPointerPropertiesEXT, \
	  (VkDevice device, VkExternalMemoryHandleTypeFlagBits type, const void *pointer, \
	   VkMemoryHostPointerPropertiesEXT *properties), \
	  (device, type, pointer, properties), undefined(&properties->memoryTypeBits, sizeof(uint32_t))) \
	F(vkBindBufferMemory, (VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize offset), \
	  (device, buffer, memory, offset), ) \
	F(vkMapMemory, \
	  (VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size, VkMemoryMapFlags flags, \
	   void **data), \
	  (device, memory, offset, size, flags, data), undefined(data, sizeof(*data))) \
	F(vkGetPipelineCacheData, (VkDevice device, VkPipelineCache cache, size_t * size, void *data), \
	  (device, cache, size, data), undefined(size, sizeof(*size))) \
	F(vkResetDescriptorPool, (VkDevice device, VkDescriptorPool pool, VkDescriptorPoolResetFlags flags), \
	  (device, pool, flags), ) \
	F(vkAllocateDescriptorSets, (VkDevice device, const VkDescriptorSetAllocateInfo *info, VkDescriptorSet *sets), \
	  (device, info, sets), memset(sets, 0, info->descriptorSetCount * sizeof(*sets))) \
	F(vkAllocateCommandBuffers, \
	  (VkDevice device, const VkCommandBufferAllocateInfo *info, VkCommandBuffer *buffers), \
	  (device, info, buffers), memset(buffers, 0, info->commandBufferCount * sizeof(*buffers))) \
	F(vkBeginCommandBuffer, (VkCommandBuffer buffer, const VkCommandBufferBeginInfo *info), (buffer, info), ) \
	F(vkResetFences, (VkDevice device, uint32_t count, const VkFence *fences), (device, count, fences), ) \
	F(vkQueueSubmit, (VkQueue queue, uint32_t count, const VkSubmitInfo *infos, VkFence fence), \
	  (queue, count, infos, fence), ) \
	F(vkGetSemaphoreCounterValue, (VkDevice device, VkSemaphore semaphore, uint64_t * value), \
	  (device, semaphore, value), undefined(value, sizeof(*value))) \
	F(vkGetQueryPoolResults, \
	  (VkDevice device, VkQueryPool pool, uint32_t first, uint32_t count, size_t size, void *data, \
	   VkDeviceSize stride, VkQueryResultFlags flags), \
	  (device, pool, first, count, size, data, stride, flags), undefined(data, size))
#define STRIKE_WAITS(F) \
	F(vkWaitForFences, (VkDevice device, uint32_t count, const VkFence *fences, VkBool32 all, uint64_t timeout), \
	  (device, count, fences, all, timeout), ) \
	F(vkWaitSemaphores, (VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout), \
	  (device, info, timeout), )

#define REPLACED(of, ask, name, parameters, arguments, failed) \
	static VkResult VKAPI_PTR struck_##name parameters \
	{ \
		if (!ask(#name)) \
			return strikes.of.name arguments; \
		failed; \
		return strikes.result; \
	}
#define F(name, parameters, arguments, failed) REPLACED(instance, strike_question, name, parameters, arguments, failed)
STRIKE_INSTANCE(F)
#undef F
#define F(name, parameters, arguments, failed) REPLACED(device, strike_work, name, parameters, arguments, failed)
STRIKE_DEVICE(F)
#undef F
#define F(name, parameters, arguments, failed) REPLACED(device, strike, name, parameters, arguments, failed)
STRIKE_WAITS(F)
#undef F

#define M(name) \
	static VkResult VKAPI_PTR struck_vkCreate##name(VkDevice device, const Vk##name##CreateInfo *info, \
							const VkAllocationCallbacks *allocator, Vk##name *out) \
	{ \
		if (strike_work("vkCreate" #name)) { \
			undefined(out, sizeof(*out)); \
			return strikes.result; \
		} \
		VkResult result = strikes.device.vkCreate##name(device, info, allocator, out); \
		strikes.live[LIVE_##name] += !result; \
		return result; \
	} \
	static void VKAPI_PTR struck_vkDestroy##name(VkDevice device, Vk##name object, \
						     const VkAllocationCallbacks *allocator) \
	{ \
		if (!strike_defined(&object, sizeof(object), "vkDestroy" #name)) \
			return; \
		strikes.live[LIVE_##name] -= object != VK_NULL_HANDLE; \
		strikes.device.vkDestroy##name(device, object, allocator); \
	}
STRIKE_MADE(M)
#undef M

static VkResult VKAPI_PTR struck_vkCreateComputePipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
							  const VkComputePipelineCreateInfo *infos,
							  const VkAllocationCallbacks *allocator, VkPipeline *out)
{
	if (strike_work("vkCreateComputePipelines")) {
		memset(out, 0, count * sizeof(*out));
		return strikes.result;
	}
	VkResult result = strikes.device.vkCreateComputePipelines(device, cache, count, infos, allocator, out);
	for (uint32_t i = 0; i < count; i++)
		strikes.live[LIVE_Pipeline] += out[i] != VK_NULL_HANDLE;
	return result;
}

static void VKAPI_PTR struck_vkDestroyPipeline(VkDevice device, VkPipeline pipeline,
					       const VkAllocationCallbacks *allocator)
{
	strikes.live[LIVE_Pipeline] -= pipeline != VK_NULL_HANDLE;
	strikes.device.vkDestroyPipeline(device, pipeline, allocator);
}

static bool is_import(const VkMemoryAllocateInfo *info)
{
	const VkBaseInStructure *next = info->pNext;
	while (next && next->sType != VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT)
		next = next->pNext;
	return next;
}

static VkResult VKAPI_PTR struck_vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
						  const VkAllocationCallbacks *allocator, VkDeviceMemory *out)
{
	if (strike_work("vkAllocateMemory")) {
		undefined(out, sizeof(*out));
		return strikes.result;
	}
	VkResult result = strikes.device.vkAllocateMemory(device, info, allocator, out);
	for (size_t i = 0; !result && i < sizeof(strikes.blocks) / sizeof(strikes.blocks[0]); i++)
		if (!strikes.blocks[i].memory) {
			strikes.blocks[i].memory = *out;
			strikes.blocks[i].bytes = is_import(info) ? 0 : info->allocationSize;
			strikes.live[LIVE_Memory]++;
			break;
		}
	return result;
}

static void VKAPI_PTR struck_vkFreeMemory(VkDevice device, VkDeviceMemory memory,
					  const VkAllocationCallbacks *allocator)
{
	if (!strike_defined(&memory, sizeof(memory), "vkFreeMemory"))
		return;
	for (size_t i = 0; memory && i < sizeof(strikes.blocks) / sizeof(strikes.blocks[0]); i++)
		if (strikes.blocks[i].memory == memory) {
			memset(&strikes.blocks[i], 0, sizeof(strikes.blocks[i]));
			strikes.live[LIVE_Memory]--;
			break;
		}
	strikes.device.vkFreeMemory(device, memory, allocator);
}

static VkResult VKAPI_PTR struck_vkCreateDevice(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
						const VkAllocationCallbacks *allocator, VkDevice *out)
{
	if (strike_work("vkCreateDevice")) {
		undefined(out, sizeof(*out));
		return strikes.result;
	}
	VkResult result = strikes.instance.vkCreateDevice(physical, info, allocator, out);
	strikes.live[LIVE_Device] += !result;
	return result;
}

static void VKAPI_PTR struck_vkDestroyDevice(VkDevice device, const VkAllocationCallbacks *allocator)
{
	if (!strike_defined(&device, sizeof(device), "vkDestroyDevice"))
		return;
	strikes.live[LIVE_Device] -= device != VK_NULL_HANDLE;
	strikes.device.vkDestroyDevice(device, allocator);
}

// A command buffer whose recording could not be ended is invalid, not one that is still recorded to.
static VkResult VKAPI_PTR struck_vkEndCommandBuffer(VkCommandBuffer buffer)
{
	bool struck = strike_work("vkEndCommandBuffer");
	VkResult result = strikes.device.vkEndCommandBuffer(buffer);
	return struck ? strikes.result : result;
}

// The work of a device that is lost is over.
static VkResult VKAPI_PTR struck_vkDeviceWaitIdle(VkDevice device)
{
	bool struck = strike("vkDeviceWaitIdle");
	if (struck && !strikes.lost)
		return strikes.result;
	VkResult result = strikes.device.vkDeviceWaitIdle(device);
	return struck ? strikes.result : result;
}

// In front of every command.
static void VKAPI_PTR struck_vkCmdPipelineBarrier(VkCommandBuffer commands, VkPipelineStageFlags from,
						  VkPipelineStageFlags to, VkDependencyFlags flags,
						  uint32_t memory_count, const VkMemoryBarrier *memory,
						  uint32_t buffer_count, const VkBufferMemoryBarrier *buffers,
						  uint32_t image_count, const VkImageMemoryBarrier *images)
{
	if (strikes.lost)
		strikes.after_loss = "vkCmdPipelineBarrier";
	strikes.device.vkCmdPipelineBarrier(commands, from, to, flags, memory_count, memory, buffer_count, buffers,
					    image_count, images);
}

static void strike_instance(struct vulkan *vulkan)
{
	strikes.instance = *vulkan;
#define F(name, parameters, arguments, failed) vulkan->name = struck_##name;
	STRIKE_INSTANCE(F)
#undef F
	vulkan->vkCreateDevice = struck_vkCreateDevice;
}

static void strike_device(struct vulkan_device_functions *functions)
{
	strikes.device = *functions;
#define F(name, parameters, arguments, failed) functions->name = functions->name ? struck_##name : NULL;
	STRIKE_DEVICE(F)
	STRIKE_WAITS(F)
#undef F
#define M(name) \
	functions->vkCreate##name = struck_vkCreate##name; \
	functions->vkDestroy##name = struck_vkDestroy##name;
	STRIKE_MADE(M)
#undef M
	functions->vkCreateComputePipelines = struck_vkCreateComputePipelines;
	functions->vkDestroyPipeline = struck_vkDestroyPipeline;
	functions->vkAllocateMemory = struck_vkAllocateMemory;
	functions->vkFreeMemory = struck_vkFreeMemory;
	functions->vkDestroyDevice = struck_vkDestroyDevice;
	functions->vkEndCommandBuffer = struck_vkEndCommandBuffer;
	functions->vkDeviceWaitIdle = struck_vkDeviceWaitIdle;
	functions->vkCmdPipelineBarrier = struck_vkCmdPipelineBarrier;
}

// From the next device that is opened on: call number `countdown` fails with `result`.
static void strike_begin(long countdown, VkResult result)
{
	memset(&strikes, 0, sizeof(strikes));
	strikes.countdown = countdown;
	strikes.result = result;
	vulkan_instance_loaded = strike_instance;
	vulkan_device_loaded = strike_device;
}

static void strike_end(void)
{
	vulkan_instance_loaded = NULL;
	vulkan_device_loaded = NULL;
}
