/* Vulkan's validation layer, for backend_open.debug: its messages are logged and counted, and
 * tests require none. A message arrives on the thread of the call that it is about, so plain
 * fields are enough. If the layer is not installed, nothing is checked and the log says so
 * once. */
#include "common/base/log.h"
#include "engine/vulkan/loader.h"

#include <stdlib.h>
#include <string.h>

static const char layer_name[] = "VK_LAYER_KHRONOS_validation";

// Synchronisation is checked, too, except in builds that look for leaks, because the layer (1.3.239) leaks memory in
// that check.
#ifdef __SANITIZE_ADDRESS__
static const bool synchronization = false;
#else
static const bool synchronization = true;
#endif

static VkBool32 VKAPI_PTR heard(VkDebugUtilsMessageSeverityFlagBitsEXT severity, VkDebugUtilsMessageTypeFlagsEXT types,
				const VkDebugUtilsMessengerCallbackDataEXT *data, void *context)
{
	struct vulkan *vulkan = context;
	(void)types;
	if (severity < VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT)
		return VK_FALSE;
	vulkan->messages++;
	log_warning("vulkan", "%s: %s", data->pMessageIdName ? data->pMessageIdName : "validation",
		    data->pMessage ? data->pMessage : "");
	return VK_FALSE;
}

static bool has_layer(const struct vulkan *vulkan)
{
	PFN_vkEnumerateInstanceLayerProperties list = (PFN_vkEnumerateInstanceLayerProperties)
							      vulkan->vkGetInstanceProcAddr(
								      VK_NULL_HANDLE,
								      "vkEnumerateInstanceLayerProperties");
	uint32_t count = 0;
	if (!list || list(&count, NULL) || !count)
		return false;
	bool has = false;
	VkLayerProperties *layers = calloc(count, sizeof(*layers));
	if (layers && list(&count, layers) >= 0)
		for (uint32_t i = 0; i < count; i++)
			has = has || !strcmp(layers[i].layerName, layer_name);
	free(layers);
	return has;
}

void vulkan_debug_prepare(struct vulkan *vulkan, struct vulkan_debug *debug, VkInstanceCreateInfo *info)
{
	vulkan->validated = has_layer(vulkan);
	if (!vulkan->validated) {
		log_warning("vulkan", "nothing is validated: %s is not installed", layer_name);
		return;
	}
	debug->layer = layer_name;
	debug->extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
	debug->messenger = (VkDebugUtilsMessengerCreateInfoEXT){
		.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
		.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
				   VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
		.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT |
			       VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
			       VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
		.pfnUserCallback = heard,
		.pUserData = vulkan,
	};
	debug->enabled[0] = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
	debug->features = (VkValidationFeaturesEXT){
		.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
		.pNext = &debug->messenger,
		.enabledValidationFeatureCount = 1,
		.pEnabledValidationFeatures = debug->enabled,
	};
	info->pNext = synchronization ? (const void *)&debug->features : (const void *)&debug->messenger;
	info->enabledLayerCount = 1;
	info->ppEnabledLayerNames = &debug->layer;
	info->enabledExtensionCount = 1;
	info->ppEnabledExtensionNames = &debug->extension;
}

void vulkan_debug_begin(struct vulkan *vulkan, const struct vulkan_debug *debug)
{
	PFN_vkCreateDebugUtilsMessengerEXT create = (PFN_vkCreateDebugUtilsMessengerEXT)vulkan->vkGetInstanceProcAddr(
		vulkan->instance, "vkCreateDebugUtilsMessengerEXT");
	VkDebugUtilsMessengerCreateInfoEXT info = debug->messenger;
	if (vulkan->validated && (!create || create(vulkan->instance, &info, NULL, &vulkan->messenger)))
		vulkan->validated = false;
}

void vulkan_debug_end(struct vulkan *vulkan)
{
	if (!vulkan->messenger)
		return;
	PFN_vkDestroyDebugUtilsMessengerEXT destroy = (PFN_vkDestroyDebugUtilsMessengerEXT)
							      vulkan->vkGetInstanceProcAddr(
								      vulkan->instance,
								      "vkDestroyDebugUtilsMessengerEXT");
	if (destroy)
		destroy(vulkan->instance, vulkan->messenger, NULL);
}
