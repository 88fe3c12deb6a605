/* Compiled kernels on disk, shared by processes: the driver's pipeline cache in a file
 * (engine/device/cache.h). Drivers check their data's header and trust the rest. So they only get data that is
 * complete and of this device, driver and instruction set. Anything else is ignored, and written again by
 * processes that may write. These also make every built-in pipeline, so that sessions' workers, which may not
 * write, find them all. */
#include "engine/device/cache.h"

#include "engine/vulkan/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cache_file file_of(const struct backend_device *device)
{
	return (struct cache_file){
		.directory = device->cache_directory, .name = device->cache_name, .head = device->cache_head};
}

// The key of the file. The driver's version should be part of its UUID, but is added as well.
static void describe(struct backend_device *device)
{
	const VkPhysicalDeviceProperties *told = &device->properties;
	snprintf(device->cache_name, sizeof(device->cache_name), "vulkan-%04x-%04x.bin", told->vendorID,
		 told->deviceID);
	int length = snprintf(device->cache_head, sizeof(device->cache_head), "vulkan %08x %08x %08x %08x ",
			      told->vendorID, told->deviceID, told->driverVersion, told->apiVersion);
	for (unsigned i = 0; i < VK_UUID_SIZE; i++)
		length += snprintf(device->cache_head + length, sizeof(device->cache_head) - (size_t)length, "%02x",
				   told->pipelineCacheUUID[i]);
}

enum status vulkan_cache_open(struct backend_device *device, const struct backend_open *params, struct error *error)
{
	uint8_t *bytes = NULL;
	describe(device);
	if (params->cache_directory) {
		device->cache_directory = strdup(params->cache_directory);
		if (!device->cache_directory)
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a path");
		struct cache_file file = file_of(device);
		device->cache_bytes = cache_read(&file, &bytes);
	}
	device->cache_writable = params->cache_writable && params->cache_directory;
	VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
					  .initialDataSize = device->cache_bytes,
					  .pInitialData = bytes};
	VkResult result = VULKAN_MADE(device->cache,
				      device->fn.vkCreatePipelineCache(device->device, &info, NULL, &device->cache));
	free(bytes);
	return result ? vulkan_device_failed(device, error, "vkCreatePipelineCache", result) : STATUS_OK;
}

static void save(struct backend_device *device)
{
	size_t length = 0;
	if (device->fn.vkGetPipelineCacheData(device->device, device->cache, &length, NULL) || !length ||
	    length == device->cache_bytes)
		return; // nothing new
	uint8_t *bytes = malloc(length);
	if (bytes && device->fn.vkGetPipelineCacheData(device->device, device->cache, &length, bytes) == VK_SUCCESS) {
		struct cache_file file = file_of(device);
		cache_write(&file, bytes, length);
	}
	free(bytes);
}

void vulkan_cache_close(struct backend_device *device)
{
	if (device->cache && device->cache_writable && !device->lost &&
	    vulkan_builtin_prepare(device, NULL) == STATUS_OK)
		save(device);
	device->fn.vkDestroyPipelineCache(device->device, device->cache, NULL);
	device->cache = VK_NULL_HANDLE;
	free(device->cache_directory);
	device->cache_directory = NULL;
}
