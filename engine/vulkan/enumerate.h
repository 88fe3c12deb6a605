/* Describes each device that Vulkan lists as a device_info. Thread: its owner's. */
#pragma once
#include "engine/vulkan/loader.h"

// Software: computes on the processor, as llvmpipe does.
bool vulkan_is_software(const struct vulkan *vulkan, VkPhysicalDevice device);
// Fill *info for the device at `index` of the instance's list.
void vulkan_describe(const struct vulkan *vulkan, VkPhysicalDevice device, int index, struct device_info *info);
// The backend's `enumerate`: devices, the loader, and a line for each driver that answers or cannot be loaded.
enum status vulkan_enumerate(struct found *found, struct error *error);
