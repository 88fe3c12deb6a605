/* The Vulkan loader, found at run time: nothing links against it, and a machine without it still runs.
 *
 * One table names every function that is used, once; a missing one is reported by name. `struct vulkan` is an instance
 * with its functions; `struct vulkan_device_functions` are those of one device, without the loader's dispatch between.
 * Thread: its owner's. */
#pragma once
#define VK_NO_PROTOTYPES
#include "engine/device/info.h"

#include <vulkan/vulkan.h>

#define VULKAN_INSTANCE_FUNCTIONS(X) \
	X(vkDestroyInstance) \
	X(vkEnumeratePhysicalDevices) \
	X(vkGetPhysicalDeviceProperties) \
	X(vkGetPhysicalDeviceProperties2) \
	X(vkGetPhysicalDeviceFeatures2) \
	X(vkGetPhysicalDeviceMemoryProperties2) \
	X(vkGetPhysicalDeviceQueueFamilyProperties) \
	X(vkEnumerateDeviceExtensionProperties) \
	X(vkCreateDevice) \
	X(vkGetDeviceProcAddr)

#define VULKAN_DEVICE_FUNCTIONS(X) \
	X(vkDestroyDevice) \
	X(vkDeviceWaitIdle) \
	X(vkGetDeviceQueue) \
	X(vkQueueSubmit) \
	X(vkCreateFence) \
	X(vkDestroyFence) \
	X(vkResetFences) \
	X(vkWaitForFences) \
	X(vkCreateBuffer) \
	X(vkDestroyBuffer) \
	X(vkGetBufferMemoryRequirements) \
	X(vkAllocateMemory) \
	X(vkFreeMemory) \
	X(vkBindBufferMemory) \
	X(vkMapMemory) \
	X(vkCreateShaderModule) \
	X(vkDestroyShaderModule) \
	X(vkCreateDescriptorSetLayout) \
	X(vkDestroyDescriptorSetLayout) \
	X(vkCreatePipelineLayout) \
	X(vkDestroyPipelineLayout) \
	X(vkCreateComputePipelines) \
	X(vkDestroyPipeline) \
	X(vkCreateDescriptorPool) \
	X(vkDestroyDescriptorPool) \
	X(vkAllocateDescriptorSets) \
	X(vkUpdateDescriptorSets) \
	X(vkCreateCommandPool) \
	X(vkDestroyCommandPool) \
	X(vkAllocateCommandBuffers) \
	X(vkBeginCommandBuffer) \
	X(vkEndCommandBuffer) \
	X(vkCmdBindPipeline) \
	X(vkCmdBindDescriptorSets) \
	X(vkCmdPushConstants) \
	X(vkCmdDispatch) \
	X(vkCmdCopyBuffer) \
	X(vkCmdPipelineBarrier) \
	X(vkCreateQueryPool) \
	X(vkDestroyQueryPool) \
	X(vkCmdResetQueryPool) \
	X(vkCmdWriteTimestamp) \
	X(vkGetQueryPoolResults)

struct vulkan {
	void *library;
	uint32_t version; // of the loader, as VK_MAKE_API_VERSION
	VkInstance instance;
	PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
#define X(name) PFN_##name name;
	VULKAN_INSTANCE_FUNCTIONS(X)
#undef X
};

struct vulkan_device_functions {
#define X(name) PFN_##name name;
	VULKAN_DEVICE_FUNCTIONS(X)
#undef X
};

// Load the library and make an instance. *library (may be NULL) says what was found, also on failure.
// Errors: STATUS_UNAVAILABLE.
enum status vulkan_create(struct vulkan **out, struct library_info *library, struct error *error);
void vulkan_destroy(struct vulkan **vulkan);
enum status vulkan_load_device(const struct vulkan *vulkan, VkDevice device, struct vulkan_device_functions *functions,
			       struct error *error);

// The devices; *count is at most VULKAN_DEVICES. Errors: STATUS_UNAVAILABLE.
enum { VULKAN_DEVICES = 64 };
enum status vulkan_physical_devices(const struct vulkan *vulkan, VkPhysicalDevice devices[VULKAN_DEVICES],
				    uint32_t *count, struct error *error);

const char *vulkan_result_name(VkResult result); // "VK_ERROR_DEVICE_LOST"
// Turn a failed call into a status: "vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY".
enum status vulkan_failed(struct error *error, const char *call, VkResult result);
