/* The Vulkan loader, found at run time: nothing links against it, and a machine without it still works. One table names
 * every function once. A missing function is reported by name, unless it belongs to an optional feature (OPTIONAL: then
 * it is NULL). `struct vulkan` is an instance with its functions; `struct vulkan_device_functions` are those of one
 * device, without the loader's dispatch. With `debug` the instance uses the validation layer, if installed, and its
 * messages are counted and logged. Thread: its owner's. */
#pragma once
#define VK_NO_PROTOTYPES
#include "engine/device/info.h"

#include <string.h>
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
	X(vkCreateSemaphore) \
	X(vkDestroySemaphore) \
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
	X(vkCreatePipelineCache) \
	X(vkDestroyPipelineCache) \
	X(vkGetPipelineCacheData) \
	X(vkCreateComputePipelines) \
	X(vkDestroyPipeline) \
	X(vkCreateDescriptorPool) \
	X(vkDestroyDescriptorPool) \
	X(vkResetDescriptorPool) \
	X(vkAllocateDescriptorSets) \
	X(vkUpdateDescriptorSets) \
	X(vkCreateCommandPool) \
	X(vkDestroyCommandPool) \
	X(vkAllocateCommandBuffers) \
	X(vkBeginCommandBuffer) \
	X(vkEndCommandBuffer) \
	X(vkResetCommandBuffer) \
	X(vkCmdBindPipeline) \
	X(vkCmdBindDescriptorSets) \
	X(vkCmdPushConstants) \
	X(vkCmdDispatch) \
	X(vkCmdExecuteCommands) \
	X(vkCmdCopyBuffer) \
	X(vkCmdFillBuffer) \
	X(vkCmdPipelineBarrier) \
	X(vkCreateQueryPool) \
	X(vkDestroyQueryPool) \
	X(vkCmdResetQueryPool) \
	X(vkCmdWriteTimestamp) \
	X(vkGetQueryPoolResults)

// Functions of Vulkan 1.2, or of an extension, with names that end in KHR.
#define VULKAN_OPTIONAL_DEVICE_FUNCTIONS(X) \
	X(vkGetSemaphoreCounterValue) \
	X(vkWaitSemaphores) \
	X(vkGetBufferDeviceAddress) \
	X(vkGetMemoryHostPointerPropertiesEXT)

struct vulkan {
	void *library;
	uint32_t version; // of the loader, as VK_MAKE_API_VERSION
	uint32_t api;     // the highest that devices may be used with: the loader's, and what this program knows
	VkInstance instance;
	VkDebugUtilsMessengerEXT messenger;
	bool validated;    // the validation layer is there
	unsigned messages; // that it has sent: warnings and errors
	PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
#define X(name) PFN_##name name;
	VULKAN_INSTANCE_FUNCTIONS(X)
#undef X
};

struct vulkan_device_functions {
#define X(name) PFN_##name name;
	VULKAN_DEVICE_FUNCTIONS(X)
	VULKAN_OPTIONAL_DEVICE_FUNCTIONS(X)
#undef X
};

// Called on the functions of every instance and of every device once they are loaded. Tests set them, to stand between
// this program and a driver; they are NULL.
extern void (*vulkan_instance_loaded)(struct vulkan *vulkan);
extern void (*vulkan_device_loaded)(struct vulkan_device_functions *functions);

// Load the library and create an instance. *library (may be NULL) describes it, also after a failure. Errors:
// STATUS_UNAVAILABLE.
enum status vulkan_create(struct vulkan **out, bool debug, struct library_info *library, struct error *error);
void vulkan_destroy(struct vulkan **vulkan);
enum status vulkan_load_device(const struct vulkan *vulkan, VkDevice device, struct vulkan_device_functions *functions,
			       struct error *error);

// The devices; *count is at most VULKAN_DEVICES. Errors: STATUS_UNAVAILABLE.
enum { VULKAN_DEVICES = 64 };
enum status vulkan_physical_devices(const struct vulkan *vulkan, VkPhysicalDevice devices[VULKAN_DEVICES],
				    uint32_t *count, struct error *error);

// Forget what a failed call was to make: it leaves anything in its outputs. Returns `result`.
#define VULKAN_MADE(handle, result) vulkan_made((result), &(handle), sizeof(handle))
static inline VkResult vulkan_made(VkResult result, void *handle, size_t bytes)
{
	if (result)
		memset(handle, 0, bytes);
	return result;
}

const char *vulkan_result_name(VkResult result); // "VK_ERROR_DEVICE_LOST"
// Turn a failed call into a status: "vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY".
enum status vulkan_failed(struct error *error, const char *call, VkResult result);

// debug.c. Put the layer, the extension and the wanted checks into *info, if they are installed.
struct vulkan_debug {
	const char *layer, *extension;
	VkValidationFeatureEnableEXT enabled[1];
	VkValidationFeaturesEXT features;
	VkDebugUtilsMessengerCreateInfoEXT messenger;
};
void vulkan_debug_prepare(struct vulkan *vulkan, struct vulkan_debug *debug, VkInstanceCreateInfo *info);
void vulkan_debug_begin(struct vulkan *vulkan, const struct vulkan_debug *debug);
void vulkan_debug_end(struct vulkan *vulkan);
