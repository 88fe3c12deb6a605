/* See enumerate.h. Needs Vulkan 1.1; what 1.2 and extensions add is asked for where the device has it. */
#include "engine/vulkan/enumerate.h"

#include "engine/device/family.h"
#include "engine/device/host.h"
#include "engine/device/identity.h"
#include "engine/device/manifest.h"
#include "engine/device/requirements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Everything that is asked of a device, and the chains to ask it with.
struct survey {
	VkPhysicalDeviceProperties2 properties;
	VkPhysicalDeviceIDProperties id;
	VkPhysicalDeviceSubgroupProperties subgroup;
	VkPhysicalDeviceDriverProperties driver;
	VkPhysicalDevicePCIBusInfoPropertiesEXT pci;
	VkPhysicalDeviceShaderCorePropertiesAMD amd_core;
	VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia_core;
	VkPhysicalDeviceFeatures2 features;
	VkPhysicalDevice16BitStorageFeatures storage16;
	VkPhysicalDevice8BitStorageFeatures storage8;
	VkPhysicalDeviceShaderFloat16Int8Features float16_int8;
	VkPhysicalDeviceTimelineSemaphoreFeatures timeline;
	VkPhysicalDeviceBufferDeviceAddressFeatures address;
	VkPhysicalDeviceMemoryProperties2 memory;
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget;
	bool has_driver, has_pci, has_amd_core, has_nvidia_core, has_storage8, has_float16_int8, has_timeline,
		has_address, has_budget, has_cooperative_matrix, has_bfloat16, has_dot_product;
};

static void note_extension(struct survey *survey, const char *name)
{
	const struct {
		const char *name;
		bool *has;
	} wanted[] = {
		{VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME, &survey->has_driver},
		{VK_EXT_PCI_BUS_INFO_EXTENSION_NAME, &survey->has_pci},
		{VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME, &survey->has_amd_core},
		{VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME, &survey->has_nvidia_core},
		{VK_KHR_8BIT_STORAGE_EXTENSION_NAME, &survey->has_storage8},
		{VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME, &survey->has_float16_int8},
		{VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME, &survey->has_timeline},
		{VK_KHR_BUFFER_DEVICE_ADDRESS_EXTENSION_NAME, &survey->has_address},
		{VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, &survey->has_budget},
		{"VK_KHR_cooperative_matrix", &survey->has_cooperative_matrix},
		{"VK_KHR_shader_bfloat16", &survey->has_bfloat16},
		{"VK_KHR_shader_integer_dot_product", &survey->has_dot_product},
	};
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (!strcmp(wanted[i].name, name))
			*wanted[i].has = true;
}

static void list_extensions(const struct vulkan *vulkan, VkPhysicalDevice device, struct survey *survey)
{
	uint32_t count = 0;
	if (vulkan->vkEnumerateDeviceExtensionProperties(device, NULL, &count, NULL) || !count)
		return;
	VkExtensionProperties *extensions = calloc(count, sizeof(*extensions));
	if (extensions && vulkan->vkEnumerateDeviceExtensionProperties(device, NULL, &count, extensions) >= 0)
		for (uint32_t i = 0; i < count; i++)
			note_extension(survey, extensions[i].extensionName);
	free(extensions);
}

static void chain(void *head, void *link)
{
	VkBaseOutStructure *first = head, *next = link;
	next->pNext = first->pNext;
	first->pNext = next;
}

static void ask_properties(const struct vulkan *vulkan, VkPhysicalDevice device, struct survey *survey)
{
	survey->properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
	survey->id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
	survey->subgroup.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
	survey->driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
	survey->pci.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT;
	survey->amd_core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD;
	survey->nvidia_core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV;
	chain(&survey->properties, &survey->id);
	chain(&survey->properties, &survey->subgroup);
	if (survey->has_driver)
		chain(&survey->properties, &survey->driver);
	if (survey->has_pci)
		chain(&survey->properties, &survey->pci);
	if (survey->has_amd_core)
		chain(&survey->properties, &survey->amd_core);
	if (survey->has_nvidia_core)
		chain(&survey->properties, &survey->nvidia_core);
	vulkan->vkGetPhysicalDeviceProperties2(device, &survey->properties);
}

static void ask_features(const struct vulkan *vulkan, VkPhysicalDevice device, struct survey *survey)
{
	survey->features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
	survey->storage16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
	survey->storage8.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES;
	survey->float16_int8.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
	survey->timeline.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES;
	survey->address.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES;
	chain(&survey->features, &survey->storage16);
	if (survey->has_storage8)
		chain(&survey->features, &survey->storage8);
	if (survey->has_float16_int8)
		chain(&survey->features, &survey->float16_int8);
	if (survey->has_timeline)
		chain(&survey->features, &survey->timeline);
	if (survey->has_address)
		chain(&survey->features, &survey->address);
	vulkan->vkGetPhysicalDeviceFeatures2(device, &survey->features);
	survey->memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
	survey->budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
	if (survey->has_budget)
		chain(&survey->memory, &survey->budget);
	vulkan->vkGetPhysicalDeviceMemoryProperties2(device, &survey->memory);
}

static void fill_versions(const struct survey *survey, struct device_info *info)
{
	const VkPhysicalDeviceProperties *properties = &survey->properties.properties;
	uint32_t version = properties->apiVersion, driver = properties->driverVersion;
	snprintf(info->api_version, sizeof(info->api_version), "%u.%u.%u", VK_API_VERSION_MAJOR(version),
		 VK_API_VERSION_MINOR(version), VK_API_VERSION_PATCH(version));
	if (survey->has_driver && survey->driver.driverInfo[0])
		text_copy(info->driver_version, sizeof(info->driver_version), survey->driver.driverInfo);
	else if (properties->vendorID == 0x10de) // NVIDIA packs its numbers as 10.8.8.6 bits
		snprintf(info->driver_version, sizeof(info->driver_version), "%u.%u.%u", driver >> 22,
			 (driver >> 14) & 255, (driver >> 6) & 255);
	else
		snprintf(info->driver_version, sizeof(info->driver_version), "%u.%u.%u", VK_API_VERSION_MAJOR(driver),
			 VK_API_VERSION_MINOR(driver), VK_API_VERSION_PATCH(driver));
}

static void fill_memory(const struct survey *survey, bool software, struct device_info *info)
{
	const VkPhysicalDeviceMemoryProperties *memory = &survey->memory.memoryProperties;
	uint64_t bytes = 0, budget = 0;
	bool all_local = memory->memoryHeapCount > 0;
	for (uint32_t i = 0; i < memory->memoryHeapCount; i++) {
		bool local = memory->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
		all_local = all_local && local;
		bytes += local ? memory->memoryHeaps[i].size : 0;
		budget += local && survey->has_budget ? survey->budget.heapBudget[i] : 0;
	}
	info->memory_bytes = bytes ? (int64_t)bytes : -1;
	info->memory_budget_bytes = budget ? (int64_t)budget : -1;
	info->largest_buffer_bytes = survey->properties.properties.limits.maxStorageBufferRange;
	info->unified_memory = software || info->kind == DEVICE_INTEGRATED ||
			       (all_local && info->kind != DEVICE_DISCRETE);
	if (software || info->kind == DEVICE_INTEGRATED)
		text_copy(info->memory_pool, sizeof(info->memory_pool), IDENTITY_HOST_POOL);
}

static void fill_formats(const struct survey *survey, struct device_info *info)
{
	const VkPhysicalDeviceFeatures *core = &survey->features.features;
	bool float16 = survey->has_float16_int8 && survey->float16_int8.shaderFloat16;
	bool int8 = survey->has_float16_int8 && survey->float16_int8.shaderInt8;
	bool storage8 = survey->has_storage8 && survey->storage8.storageBuffer8BitAccess;
	const struct {
		const char *word;
		bool has;
	} formats[] = {
		{"f64", core->shaderFloat64}, {"f32", true}, {"f16", float16},           {"bf16", survey->has_bfloat16},
		{"i64", core->shaderInt64},   {"i32", true}, {"i16", core->shaderInt16}, {"i8", int8},
	};
	const struct {
		const char *word;
		bool has;
	} features[] = {
		{"storage_16bit", survey->storage16.storageBuffer16BitAccess},
		{"storage_8bit", storage8},
		{"timeline_semaphore", survey->has_timeline && survey->timeline.timelineSemaphore},
		{"buffer_device_address", survey->has_address && survey->address.bufferDeviceAddress},
		{"cooperative_matrix", survey->has_cooperative_matrix},
		{"integer_dot_product", survey->has_dot_product},
		{"subgroup_arithmetic", survey->subgroup.supportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT},
		{"subgroup_shuffle", survey->subgroup.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT},
	};
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].has)
			words_add(info->formats, sizeof(info->formats), formats[i].word);
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (features[i].has)
			words_add(info->features, sizeof(info->features), features[i].word);
	char word[32];
	snprintf(word, sizeof(word), "subgroup_%u", survey->subgroup.subgroupSize);
	words_add(info->features, sizeof(info->features), word);
}

static void fill_place(const struct survey *survey, struct device_info *info)
{
	if (survey->has_pci && info->kind != DEVICE_CPU) {
		char path[96], text[32];
		snprintf(info->pci_address, sizeof(info->pci_address), "%04x:%02x:%02x.%x",
			 survey->pci.pciDomain & 0xffff, survey->pci.pciBus & 0xff, survey->pci.pciDevice & 0x1f,
			 survey->pci.pciFunction & 7);
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/removable", info->pci_address);
		info->removable = host_read_file(path, text, sizeof(text)) && !strcmp(text, "removable");
	}
	if (survey->has_amd_core)
		info->compute_units = (int64_t)survey->amd_core.shaderEngineCount *
				      survey->amd_core.shaderArraysPerEngineCount *
				      survey->amd_core.computeUnitsPerShaderArray;
	else if (survey->has_nvidia_core)
		info->compute_units = survey->nvidia_core.shaderSMCount;
}

static enum device_kind kind_of(VkPhysicalDeviceType type)
{
	switch (type) {
	case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
		return DEVICE_INTEGRATED;
	case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
		return DEVICE_DISCRETE;
	case VK_PHYSICAL_DEVICE_TYPE_CPU:
		return DEVICE_CPU;
	case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
	case VK_PHYSICAL_DEVICE_TYPE_OTHER:
	case VK_PHYSICAL_DEVICE_TYPE_MAX_ENUM:
		break;
	}
	return DEVICE_VIRTUAL;
}

static void classify(struct device_info *info, bool software)
{
	struct error error = {0};
	enum status status = requirement_check(REQUIRE_VULKAN_DEVICE_API, info->api_version, &error);
	if (!status && !strncmp(info->driver_version, "Mesa ", 5))
		status = requirement_check(REQUIRE_VULKAN_MESA, info->driver_version, &error);
	else if (!status && !strcmp(info->vendor, "NVIDIA"))
		status = requirement_check(REQUIRE_VULKAN_NVIDIA, info->driver_version, &error);
	if (status) {
		info->support = SUPPORT_UNSUPPORTED;
		snprintf(info->support_reason, sizeof(info->support_reason), "%.255s; %.100s", error.message,
			 error.hint);
	} else if (software) {
		info->support = SUPPORT_EXPERIMENTAL;
		text_copy(info->support_reason, sizeof(info->support_reason),
			  "a software device that computes on the processor, for testing");
	} else {
		info->support = SUPPORT_FULL;
	}
}

// The device's own word, without what a driver puts behind it in brackets: "llvmpipe (LLVM 15.0.6, 256 bits)".
static void short_name(char *to, size_t size, const char *name)
{
	size_t length = strcspn(name, "(");
	while (length && name[length - 1] == ' ')
		length--;
	snprintf(to, size, "%.*s", (int)length, name);
}

bool vulkan_is_software(const struct vulkan *vulkan, VkPhysicalDevice device)
{
	VkPhysicalDeviceProperties properties;
	vulkan->vkGetPhysicalDeviceProperties(device, &properties);
	return properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
}

void vulkan_describe(const struct vulkan *vulkan, VkPhysicalDevice device, int index, struct device_info *info)
{
	struct survey survey = {0};
	VkPhysicalDeviceProperties *properties = &survey.properties.properties;
	char driver_name[VK_MAX_DRIVER_NAME_SIZE];
	info->backend = BACKEND_VULKAN;
	info->index = index;
	vulkan->vkGetPhysicalDeviceProperties(device, properties);
	bool software = properties->deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
	if (properties->apiVersion >= VK_API_VERSION_1_1) {
		list_extensions(vulkan, device, &survey);
		ask_properties(vulkan, device, &survey);
		ask_features(vulkan, device, &survey);
		identity_uuid_text(info->uuid, survey.id.deviceUUID);
	}
	short_name(driver_name, sizeof(driver_name),
		   survey.driver.driverName[0] ? survey.driver.driverName : properties->deviceName);
	info->kind = kind_of(properties->deviceType);
	text_copy(info->model, sizeof(info->model), properties->deviceName);
	text_copy(info->name, sizeof(info->name), properties->deviceName);
	const char *vendor = family_vendor(properties->vendorID);
	if (vendor)
		text_copy(info->vendor, sizeof(info->vendor), vendor);
	else
		snprintf(info->vendor, sizeof(info->vendor), "vendor 0x%04x", properties->vendorID);
	text_copy(info->family, sizeof(info->family), family_by_id(properties->vendorID, properties->deviceID));
	info->low_power = info->kind == DEVICE_INTEGRATED;
	fill_versions(&survey, info);
	fill_place(&survey, info);
	identity_gpu(info, software, driver_name);
	text_copy(info->memory_pool, sizeof(info->memory_pool), info->hardware_key);
	fill_memory(&survey, software, info);
	fill_formats(&survey, info);
	classify(info, software);
}

// Each driver once, with its version.
static void add_driver(struct found *found, const struct device_info *info, const char *driver_name)
{
	char name[INFO_WORD_BYTES];
	snprintf(name, sizeof(name), "Vulkan driver: %.40s", driver_name);
	for (size_t i = 0; i < found->library_count; i++)
		if (!strcmp(found->libraries[i].name, name))
			return;
	struct library_info *library = found_add_library(found);
	if (!library)
		return;
	text_copy(library->name, sizeof(library->name), name);
	text_copy(library->version, sizeof(library->version), info->driver_version);
	library->state = LIBRARY_FOUND;
	if (info->support == SUPPORT_UNSUPPORTED) {
		library->state = LIBRARY_TOO_OLD;
		text_copy(library->reason, sizeof(library->reason), info->support_reason);
	}
}

static void driver_name_of(const struct vulkan *vulkan, VkPhysicalDevice device, char *name, size_t size)
{
	struct survey survey = {0};
	list_extensions(vulkan, device, &survey);
	ask_properties(vulkan, device, &survey);
	const char *told = survey.driver.driverName;
	short_name(name, size, told[0] ? told : survey.properties.properties.deviceName);
}

enum status vulkan_enumerate(struct found *found, struct error *error)
{
	struct vulkan *vulkan;
	struct error fault = {0};
	VkPhysicalDevice devices[VULKAN_DEVICES];
	uint32_t count = 0;
	struct library_info *loader = found_add_library(found);
	enum status status = vulkan_create(&vulkan, false, loader, &fault);
	if (!status)
		status = vulkan_physical_devices(vulkan, devices, &count, error);
	else if (status != STATUS_OUT_OF_MEMORY)
		status = STATUS_OK; // no loader or no driver: the library's record says so
	for (uint32_t i = 0; !status && i < count; i++) {
		struct device_info *info = found_add_device(found);
		if (!info)
			break;
		char driver[INFO_WORD_BYTES];
		vulkan_describe(vulkan, devices[i], (int)i, info);
		driver_name_of(vulkan, devices[i], driver, sizeof(driver));
		add_driver(found, info, driver);
	}
#ifndef EXOGPU_ALONE // whose drivers the system chooses, as on Android; a manifest is JSON
	manifest_report(found);
#endif
	vulkan_destroy(&vulkan);
	return status;
}
