/* Opening and closing a Vulkan device, and its capabilities. See device.h. */
#include "engine/vulkan/device.h"

#include "common/base/log.h"
#include "engine/device/host.h"
#include "engine/vulkan/enumerate.h"

#include <stdlib.h>
#include <string.h>

enum { FAMILIES = 16, EXTENSIONS = 8 };
// How long closing waits for work in flight. A longer wait would be for a kernel that never ends.
static const int64_t close_wait_ns = 200ll * 1000 * 1000;

// Features and properties that are asked for, and then enabled as they are.
struct features {
	VkPhysicalDeviceFeatures2 core;
	VkPhysicalDevice16BitStorageFeatures storage16;
	VkPhysicalDeviceVariablePointersFeatures pointers;
	VkPhysicalDevice8BitStorageFeatures storage8;
	VkPhysicalDeviceShaderFloat16Int8Features float16_int8;
	VkPhysicalDeviceTimelineSemaphoreFeatures timeline;
	VkPhysicalDeviceBufferDeviceAddressFeatures addresses;
	VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
	VkPhysicalDeviceShaderIntegerDotProductFeatures dot_product;
	const char *extensions[EXTENSIONS]; // (extension_count), to be enabled
	uint32_t extension_count;
};

enum status vulkan_device_failed(struct backend_device *device, struct error *error, const char *call, VkResult result)
{
	if (result == VK_ERROR_DEVICE_LOST)
		device->lost = true;
	return vulkan_failed(error, call, result);
}

static enum status find_device(struct backend_device *device, const char *hardware_key, struct error *error)
{
	VkPhysicalDevice devices[VULKAN_DEVICES];
	uint32_t count = 0;
	enum status status = vulkan_physical_devices(device->vulkan, devices, &count, error);
	if (status)
		return status;
	for (uint32_t i = 0; i < count; i++) {
		struct device_info info = {0};
		vulkan_describe(device->vulkan, devices[i], (int)i, &info);
		if (strcmp(info.hardware_key, hardware_key))
			continue;
		if (info.support == SUPPORT_UNSUPPORTED)
			return error_set(error, STATUS_UNAVAILABLE, "%s", info.support_reason);
		device->physical = devices[i];
		return STATUS_OK;
	}
	return error_set(error, STATUS_NOT_FOUND, "Vulkan has no device %.200s now", hardware_key);
}

// A family that computes; one that does nothing but that and copies is less often busy with a screen.
static enum status find_queues(struct backend_device *device, unsigned without, struct error *error)
{
	uint32_t count = FAMILIES, best = FAMILIES;
	VkQueueFamilyProperties families[FAMILIES];
	device->vulkan->vkGetPhysicalDeviceQueueFamilyProperties(device->physical, &count, families);
	for (uint32_t i = 0; i < count; i++) {
		bool computes = families[i].queueFlags & VK_QUEUE_COMPUTE_BIT;
		bool draws = families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT;
		if (computes && (best == FAMILIES || (!draws && families[best].queueFlags & VK_QUEUE_GRAPHICS_BIT)))
			best = i;
	}
	if (best == FAMILIES)
		return error_set(error, STATUS_UNAVAILABLE, "the device has no compute queue");
	device->queue_family = best;
	device->queue_count = families[best].queueCount < VULKAN_QUEUES ? families[best].queueCount : VULKAN_QUEUES;
	device->timestamp_bits = without & WITHOUT_TIMESTAMPS ? 0 : families[best].timestampValidBits;
	return STATUS_OK;
}

// ---- features of the device ----

static bool listed(const VkExtensionProperties *extensions, uint32_t count, const char *name)
{
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(extensions[i].extensionName, name))
			return true;
	return false;
}

// Chain a structure of features that Vulkan has since `since`, and before that by an extension.
static void want(struct backend_device *device, struct features *features, void *link, VkStructureType type,
		 uint32_t since, const char *extension, const VkExtensionProperties *extensions, uint32_t count)
{
	VkBaseOutStructure *next = link;
	next->sType = type;
	if (device->api < since) {
		if (!listed(extensions, count, extension))
			return;
		features->extensions[features->extension_count++] = extension;
	}
	next->pNext = features->core.pNext;
	features->core.pNext = next;
}

static void ask_features(struct backend_device *device, struct features *features,
			 const VkExtensionProperties *extensions, uint32_t count)
{
	const struct {
		void *link;
		VkStructureType type;
		uint32_t since;
		const char *extension;
	} links[] = {
		{&features->storage16, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES, VK_API_VERSION_1_1,
		 ""},
		{&features->pointers, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VARIABLE_POINTERS_FEATURES, VK_API_VERSION_1_1,
		 ""},
		{&features->storage8, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES, VK_API_VERSION_1_2,
		 VK_KHR_8BIT_STORAGE_EXTENSION_NAME},
		{&features->float16_int8, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
		 VK_API_VERSION_1_2, VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME},
		{&features->timeline, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES, VK_API_VERSION_1_2,
		 VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME},
		{&features->addresses, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES,
		 VK_API_VERSION_1_2, VK_KHR_BUFFER_DEVICE_ADDRESS_EXTENSION_NAME},
		{&features->memory_model, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
		 VK_API_VERSION_1_2, VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME},
		{&features->dot_product, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
		 VK_API_VERSION_1_3, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME},
	};
	features->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		want(device, features, links[i].link, links[i].type, links[i].since, links[i].extension, extensions,
		     count);
	device->vulkan->vkGetPhysicalDeviceFeatures2(device->physical, &features->core);
	VkPhysicalDeviceFeatures has = features->core.features;
	features->core.features = (VkPhysicalDeviceFeatures){.robustBufferAccess = has.robustBufferAccess,
							     .shaderFloat64 = has.shaderFloat64,
							     .shaderInt64 = has.shaderInt64,
							     .shaderInt16 = has.shaderInt16};
	features->addresses.bufferDeviceAddressCaptureReplay = VK_FALSE;
	features->addresses.bufferDeviceAddressMultiDevice = VK_FALSE;
}

static void ask_properties(struct backend_device *device, bool maintenance4,
			   VkPhysicalDeviceSubgroupProperties *subgroup)
{
	VkPhysicalDeviceMaintenance4Properties four = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
	VkPhysicalDeviceMaintenance3Properties three = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
		.pNext = maintenance4 ? &four : NULL};
	*subgroup = (VkPhysicalDeviceSubgroupProperties){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES,
							 .pNext = &three};
	VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
						  .pNext = subgroup};
	VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
	device->vulkan->vkGetPhysicalDeviceProperties2(device->physical, &properties);
	device->vulkan->vkGetPhysicalDeviceMemoryProperties2(device->physical, &memory);
	device->properties = properties.properties;
	device->memory = memory.memoryProperties;
	device->largest_allocation = three.maxMemoryAllocationSize;
	device->largest_buffer = four.maxBufferSize;
	device->software = device->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
}

// Whether it imports memory for buffers, by pages of the size that is promised.
static bool imports_pages(const struct backend_device *device)
{
	VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
	VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
						  .pNext = &host};
	device->vulkan->vkGetPhysicalDeviceProperties2(device->physical, &properties);
	return host.minImportedHostPointerAlignment && host.minImportedHostPointerAlignment <= EXOGPU_IMPORT_BYTES;
}

// The capabilities that users' modules may require: those of the enabled features.
static void allow(struct backend_device *device, const struct features *features,
		  const VkPhysicalDeviceSubgroupProperties *subgroup)
{
	const VkPhysicalDeviceLimits *limits = &device->properties.limits;
	struct spirv_limits *spirv = &device->spirv;
	const struct {
		bool has;
		enum spirv_feature feature;
	} has[] = {
		{features->float16_int8.shaderInt8, SPIRV_INT8},
		{features->core.features.shaderInt16, SPIRV_INT16},
		{features->core.features.shaderInt64, SPIRV_INT64},
		{features->float16_int8.shaderFloat16, SPIRV_FLOAT16},
		{features->core.features.shaderFloat64, SPIRV_FLOAT64},
		{features->storage8.storageBuffer8BitAccess, SPIRV_STORAGE8},
		{features->storage16.storageBuffer16BitAccess, SPIRV_STORAGE16},
		{device->addresses, SPIRV_ADDRESSES},
		{features->pointers.variablePointersStorageBuffer, SPIRV_VARIABLE_POINTERS_BUFFER},
		{features->pointers.variablePointers, SPIRV_VARIABLE_POINTERS},
		{features->memory_model.vulkanMemoryModel, SPIRV_MEMORY_MODEL},
		{features->memory_model.vulkanMemoryModelDeviceScope, SPIRV_MEMORY_MODEL_DEVICE},
		{features->dot_product.shaderIntegerDotProduct, SPIRV_DOT_PRODUCT},
	};
	for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++)
		spirv->features |= has[i].has ? has[i].feature : 0u;
	for (unsigned bit = 0; bit < 8 && subgroup->supportedStages & VK_SHADER_STAGE_COMPUTE_BIT; bit++)
		if (subgroup->supportedOperations & (1u << bit)) // Vulkan's bits and ours are in one order
			spirv->features |= (uint32_t)SPIRV_SUBGROUP << bit;
	spirv->version = device->api >= VK_API_VERSION_1_3   ? 0x00010600
			 : device->api >= VK_API_VERSION_1_2 ? 0x00010500
							     : 0x00010300;
	spirv->buffers = limits->maxPerStageDescriptorStorageBuffers < limits->maxDescriptorSetStorageBuffers
				 ? limits->maxPerStageDescriptorStorageBuffers
				 : limits->maxDescriptorSetStorageBuffers;
	spirv->push_bytes = limits->maxPushConstantsSize;
	spirv->shared_bytes = limits->maxComputeSharedMemorySize;
	memcpy(spirv->block, limits->maxComputeWorkGroupSize, sizeof(spirv->block));
	spirv->block_threads = limits->maxComputeWorkGroupInvocations;
}

static enum status survey(struct backend_device *device, struct features *features, unsigned without,
			  struct error *error)
{
	uint32_t count = 0;
	VkPhysicalDeviceSubgroupProperties subgroup;
	device->vulkan->vkGetPhysicalDeviceProperties(device->physical, &device->properties);
	device->api = device->properties.apiVersion < device->vulkan->api ? device->properties.apiVersion
									  : device->vulkan->api;
	VkResult result = device->vulkan->vkEnumerateDeviceExtensionProperties(device->physical, NULL, &count, NULL);
	count = result ? 0 : count;
	VkExtensionProperties *extensions = calloc(count + 1ull, sizeof(*extensions));
	if (!extensions)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the device's extensions");
	if (!result)
		result = device->vulkan->vkEnumerateDeviceExtensionProperties(device->physical, NULL, &count,
									      extensions);
	if (result == VK_SUCCESS || result == VK_INCOMPLETE) {
		ask_features(device, features, extensions, count);
		device->budget = listed(extensions, count, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
		device->imports = listed(extensions, count, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME) &&
				  imports_pages(device);
		if (device->imports)
			features->extensions[features->extension_count++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
		ask_properties(device,
			       device->api >= VK_API_VERSION_1_3 ||
				       listed(extensions, count, VK_KHR_MAINTENANCE_4_EXTENSION_NAME),
			       &subgroup);
		device->gpu = !device->software || without & WITHOUT_SOFTWARE;
		device->timeline = features->timeline.timelineSemaphore && !(without & WITHOUT_TIMELINE);
		device->addresses = features->addresses.bufferDeviceAddress && !(without & WITHOUT_ADDRESSES);
		allow(device, features, &subgroup);
	}
	free(extensions);
	if (result < 0)
		return vulkan_failed(error, "vkEnumerateDeviceExtensionProperties", result);
	if (device->properties.limits.maxComputeWorkGroupInvocations < VULKAN_GROUP)
		return error_set(error, STATUS_UNAVAILABLE,
				 "the device's groups have at most %u invocations; %d are needed",
				 device->properties.limits.maxComputeWorkGroupInvocations, VULKAN_GROUP);
	return STATUS_OK;
}

// ---- opening and closing ----

static enum status create_device(struct backend_device *device, const struct features *features, struct error *error)
{
	float priorities[VULKAN_QUEUES] = {0};
	VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
					  .queueFamilyIndex = device->queue_family,
					  .queueCount = device->queue_count,
					  .pQueuePriorities = priorities};
	VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
				   .pNext = &features->core,
				   .queueCreateInfoCount = 1,
				   .pQueueCreateInfos = &queues,
				   .enabledExtensionCount = features->extension_count,
				   .ppEnabledExtensionNames = features->extensions};
	VkResult result = VULKAN_MADE(device->device,
				      device->vulkan->vkCreateDevice(device->physical, &info, NULL, &device->device));
	if (result)
		return vulkan_failed(error, "vkCreateDevice", result);
	enum status status = vulkan_load_device(device->vulkan, device->device, &device->fn, error);
	if (status)
		return status;
	device->timeline = device->timeline && device->fn.vkWaitSemaphores && device->fn.vkGetSemaphoreCounterValue;
	device->addresses = device->addresses && device->fn.vkGetBufferDeviceAddress;
	device->imports = device->imports && device->fn.vkGetMemoryHostPointerPropertiesEXT;
	device->bound = !device->addresses || !device->gpu;
	for (uint32_t i = 0; i < device->queue_count; i++)
		device->fn.vkGetDeviceQueue(device->device, device->queue_family, i, &device->queues[i]);
	return STATUS_OK;
}

enum status vulkan_device_open(struct backend_device **out, const struct backend_open *params, unsigned without,
			       struct error *error)
{
	struct features features = {0};
	struct backend_device *device = calloc(1, sizeof(*device));
	enum status status = device ? STATUS_OK : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the device");
	if (!status)
		status = vulkan_create(&device->vulkan, params->debug, NULL, error);
	if (!status)
		status = find_device(device, params->hardware_key, error);
	if (!status)
		status = find_queues(device, without, error);
	if (!status)
		status = survey(device, &features, without, error);
	if (!status) {
		vulkan_memory_sort(device);
		status = create_device(device, &features, error);
	}
	if (!status)
		status = vulkan_cache_open(device, params, error);
	if (status)
		vulkan_device_close(&device);
	*out = device;
	return status;
}

void vulkan_device_close(struct backend_device **out)
{
	struct backend_device *device = *out;
	if (!device)
		return;
	*out = NULL;
	if (device->device && device->fn.vkDestroyDevice) {
		if (!vulkan_streams_idle(device, close_wait_ns)) {
			// A kernel runs on: nothing that it may use can be freed, and destroying would wait for it.
			log_warning("vulkan", "%s is still computing: its memory stays until this process ends",
				    device->properties.deviceName);
			return;
		}
		// The semaphores say that all work is done, but the driver's own threads may still be busy.
		VkResult result = device->fn.vkDeviceWaitIdle(device->device);
		if (result)
			vulkan_device_failed(device, NULL, "vkDeviceWaitIdle", result);
		vulkan_cache_close(device);
		while (device->modules) {
			struct backend_module *module = device->modules;
			vulkan_module_unload(device, &module);
		}
		vulkan_streams_finish(device);
		vulkan_stage_pipelines_finish(device);
		vulkan_builtin_finish(device);
		vulkan_memory_finish(device);
		device->fn.vkDestroyDevice(device->device, NULL);
	}
	vulkan_destroy(&device->vulkan);
	free(device);
}

void vulkan_device_describe(const struct backend_device *device, struct exogpu_device_limits *limits)
{
	const VkPhysicalDeviceLimits *told = &device->properties.limits;
	uint64_t heap = 0, total = 0, stream = 1024ull << 20;
	for (uint32_t i = 0; i < device->memory.memoryHeapCount; i++)
		if (device->memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) {
			uint64_t size = device->memory.memoryHeaps[i].size;
			total += size;
			heap = size > heap ? size : heap;
		}
	if (device->software) { // reads through the processor's caches
		struct host_cpu host;
		host_cpu_read(&host);
		uint64_t cache = host.last_level_bytes > 0 ? (uint64_t)host.last_level_bytes : 64ull << 20;
		stream = 4 * cache < (512ull << 20) ? 4 * cache : 512ull << 20;
	} else if (device->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU) {
		stream = 256ull << 20;
	}
	*limits = (struct exogpu_device_limits){
		.capabilities = EXOGPU_CAN_SPIRV | (device->types[EXOGPU_MEMORY_MAPPED].count ? EXOGPU_CAN_MAP : 0u) |
				(device->timestamp_bits ? EXOGPU_CAN_TIME : 0u) |
				(device->imports ? EXOGPU_CAN_IMPORT : 0u) |
				(device->software ? EXOGPU_CAN_SOFTWARE : 0u),
		.memory_bytes = total,
		.buffer_bytes = device->largest_buffer && device->largest_buffer < heap ? device->largest_buffer : heap,
		.stream_bytes = stream < heap / 4 ? stream : heap / 4,
		.max_block_threads = told->maxComputeWorkGroupInvocations,
		.streams = device->queue_count,
	};
	memcpy(limits->max_grid, told->maxComputeWorkGroupCount, sizeof(limits->max_grid));
	memcpy(limits->max_block, told->maxComputeWorkGroupSize, sizeof(limits->max_block));
}
