/* See loader.h. */
#include "engine/vulkan/loader.h"

#include "engine/device/requirements.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __ANDROID__
static const char library_file[] = "libvulkan.so";
#else
static const char library_file[] = "libvulkan.so.1";
#endif

void (*vulkan_instance_loaded)(struct vulkan *vulkan);
void (*vulkan_device_loaded)(struct vulkan_device_functions *functions);

const char *vulkan_result_name(VkResult result)
{
	static const struct {
		VkResult result;
		const char *name;
	} names[] = {
#define N(name) {name, #name}
		N(VK_SUCCESS),
		N(VK_NOT_READY),
		N(VK_TIMEOUT),
		N(VK_INCOMPLETE),
		N(VK_ERROR_OUT_OF_HOST_MEMORY),
		N(VK_ERROR_OUT_OF_DEVICE_MEMORY),
		N(VK_ERROR_INITIALIZATION_FAILED),
		N(VK_ERROR_DEVICE_LOST),
		N(VK_ERROR_MEMORY_MAP_FAILED),
		N(VK_ERROR_LAYER_NOT_PRESENT),
		N(VK_ERROR_EXTENSION_NOT_PRESENT),
		N(VK_ERROR_FEATURE_NOT_PRESENT),
		N(VK_ERROR_INCOMPATIBLE_DRIVER),
		N(VK_ERROR_TOO_MANY_OBJECTS),
		N(VK_ERROR_FRAGMENTED_POOL),
		N(VK_ERROR_UNKNOWN),
		N(VK_ERROR_OUT_OF_POOL_MEMORY),
		N(VK_ERROR_INVALID_EXTERNAL_HANDLE),
#undef N
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].result == result)
			return names[i].name;
	return "an unknown VkResult";
}

enum status vulkan_failed(struct error *error, const char *call, VkResult result)
{
	enum status status = STATUS_UNAVAILABLE;
	if (result == VK_ERROR_DEVICE_LOST)
		status = STATUS_DEVICE_LOST;
	else if (result == VK_TIMEOUT)
		status = STATUS_TIMEOUT;
	else if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
		status = STATUS_OUT_OF_MEMORY;
	return error_set(error, status, "%s: %s (%d)", call, vulkan_result_name(result), (int)result);
}

static enum status describe(struct library_info *library, enum library_state state, enum status status,
			    struct error *error)
{
	if (library) {
		library->state = state;
		text_copy(library->reason, sizeof(library->reason), error->message);
		text_copy(library->hint, sizeof(library->hint), error->hint);
	}
	return status;
}

static enum status open_library(struct vulkan *vulkan, struct error *error)
{
	vulkan->library = dlopen(library_file, RTLD_NOW | RTLD_LOCAL);
	if (!vulkan->library) {
		error_hint(error,
			   "install the Vulkan loader and a driver: apt-get install libvulkan1 mesa-vulkan-drivers");
		return error_set(error, STATUS_UNAVAILABLE, "%s", dlerror());
	}
	*(void **)&vulkan->vkGetInstanceProcAddr = dlsym(vulkan->library, "vkGetInstanceProcAddr");
	if (!vulkan->vkGetInstanceProcAddr)
		return error_set(error, STATUS_UNAVAILABLE, "%s has no vkGetInstanceProcAddr", library_file);
	return STATUS_OK;
}

static PFN_vkVoidFunction global(const struct vulkan *vulkan, const char *name)
{
	return vulkan->vkGetInstanceProcAddr(VK_NULL_HANDLE, name);
}

static enum status check_version(struct vulkan *vulkan, struct library_info *library, struct error *error)
{
	PFN_vkEnumerateInstanceVersion enumerate_version = (PFN_vkEnumerateInstanceVersion)global(
		vulkan, "vkEnumerateInstanceVersion");
	vulkan->version = VK_API_VERSION_1_0; // loaders of 1.0 do not have the function
	if (enumerate_version)
		enumerate_version(&vulkan->version);
	char version[32];
	snprintf(version, sizeof(version), "%u.%u.%u", VK_API_VERSION_MAJOR(vulkan->version),
		 VK_API_VERSION_MINOR(vulkan->version), VK_API_VERSION_PATCH(vulkan->version));
	if (library)
		text_copy(library->version, sizeof(library->version), version);
	return requirement_check(REQUIRE_VULKAN_LOADER, version, error);
}

static enum status create_instance(struct vulkan *vulkan, bool checked, struct error *error)
{
	PFN_vkCreateInstance create = (PFN_vkCreateInstance)global(vulkan, "vkCreateInstance");
	if (!create)
		return error_set(error, STATUS_UNAVAILABLE, "%s has no vkCreateInstance", library_file);
	static const uint32_t known[] = {VK_API_VERSION_1_3, VK_API_VERSION_1_2, VK_API_VERSION_1_1};
	vulkan->api = VK_API_VERSION_1_1;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && vulkan->api < known[i]; i++)
		if (vulkan->version >= known[i])
			vulkan->api = known[i];
	struct vulkan_debug debug = {0};
	VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.pApplicationName = "exogpu",
		.apiVersion = vulkan->api,
	};
	VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};
	if (checked)
		vulkan_debug_prepare(vulkan, &debug, &info);
	VkResult result = VULKAN_MADE(vulkan->instance, create(&info, NULL, &vulkan->instance));
	if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
		error_hint(error,
			   "install a Vulkan driver: apt-get install mesa-vulkan-drivers, or the GPU maker's own");
		return error_set(error, STATUS_UNAVAILABLE, "the Vulkan loader finds no driver that works");
	}
	if (result)
		return vulkan_failed(error, "vkCreateInstance", result);
#define X(name) \
	vulkan->name = (PFN_##name)vulkan->vkGetInstanceProcAddr(vulkan->instance, #name); \
	if (!vulkan->name) \
		return error_set(error, STATUS_UNAVAILABLE, "%s has no " #name, library_file);
	VULKAN_INSTANCE_FUNCTIONS(X)
#undef X
	if (checked)
		vulkan_debug_begin(vulkan, &debug);
	if (vulkan_instance_loaded)
		vulkan_instance_loaded(vulkan);
	return STATUS_OK;
}

enum status vulkan_create(struct vulkan **out, bool debug, struct library_info *library, struct error *error)
{
	struct error fault = {0};
	struct vulkan *vulkan = calloc(1, sizeof(*vulkan));
	enum library_state state = LIBRARY_MISSING;
	*out = NULL;
	if (!vulkan)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the Vulkan instance");
	if (library) {
		text_copy(library->name, sizeof(library->name), "Vulkan loader");
		text_copy(library->file, sizeof(library->file), library_file);
		text_copy(library->minimum_version, sizeof(library->minimum_version),
			  requirement_minimum(REQUIRE_VULKAN_LOADER));
	}
	enum status status = open_library(vulkan, &fault);
	if (!status) {
		state = LIBRARY_TOO_OLD;
		status = check_version(vulkan, library, &fault);
	}
	if (!status) {
		state = LIBRARY_BROKEN;
		status = create_instance(vulkan, debug, &fault);
	}
	if (!status)
		state = LIBRARY_FOUND;
	describe(library, state, status, &fault);
	if (status) {
		vulkan_destroy(&vulkan);
		error_set(error, status, "%s", fault.message);
		if (fault.hint[0])
			error_hint(error, "%s", fault.hint);
	}
	*out = vulkan;
	return status;
}

// One instance of a process is never destroyed, so that the loader and the drivers stay loaded: NVIDIA's driver cannot
// be reloaded any number of times (seen: the 33rd time fails).
void vulkan_destroy(struct vulkan **vulkan)
{
	static atomic_flag stays = ATOMIC_FLAG_INIT;
	if (!*vulkan)
		return;
	if ((*vulkan)->instance)
		vulkan_debug_end(*vulkan);
	bool destroy = !(*vulkan)->instance || atomic_flag_test_and_set(&stays);
	if (destroy && (*vulkan)->instance && (*vulkan)->vkDestroyInstance)
		(*vulkan)->vkDestroyInstance((*vulkan)->instance, NULL);
	if (destroy && (*vulkan)->library)
		dlclose((*vulkan)->library);
	free(*vulkan);
	*vulkan = NULL;
}

enum status vulkan_load_device(const struct vulkan *vulkan, VkDevice device, struct vulkan_device_functions *functions,
			       struct error *error)
{
#define X(name) \
	functions->name = (PFN_##name)vulkan->vkGetDeviceProcAddr(device, #name); \
	if (!functions->name) \
		return error_set(error, STATUS_UNAVAILABLE, "the driver has no " #name);
	VULKAN_DEVICE_FUNCTIONS(X)
#undef X
#define X(name) \
	functions->name = (PFN_##name)vulkan->vkGetDeviceProcAddr(device, #name); \
	if (!functions->name) \
		functions->name = (PFN_##name)vulkan->vkGetDeviceProcAddr(device, #name "KHR");
	VULKAN_OPTIONAL_DEVICE_FUNCTIONS(X)
#undef X
	if (vulkan_device_loaded)
		vulkan_device_loaded(functions);
	return STATUS_OK;
}

enum status vulkan_physical_devices(const struct vulkan *vulkan, VkPhysicalDevice devices[VULKAN_DEVICES],
				    uint32_t *count, struct error *error)
{
	*count = VULKAN_DEVICES;
	VkResult result = vulkan->vkEnumeratePhysicalDevices(vulkan->instance, count, devices);
	if (result && result != VK_INCOMPLETE)
		return vulkan_failed(error, "vkEnumeratePhysicalDevices", result);
	return STATUS_OK;
}
