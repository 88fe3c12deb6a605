/* An open Vulkan device: shared by backend.c (memory and copies) and launch.c (kernels).
 *
 * One queue, one command buffer and one fence: every operation is recorded, submitted and waited for. Owns everything
 * that it made; closing destroys the rest in reverse. Thread: one at a time. */
#pragma once
#include "engine/backend.h"
#include "engine/vulkan/loader.h"

enum {
	VULKAN_STAGING_BYTES = 4 * 1024 * 1024,
	OLD_VULKAN_GROUP = 256,       // invocations of a group, as the shaders say
	VULKAN_STREAM_GROUPS = 8448,  // enough to keep the memory of a large GPU busy
	VULKAN_SOFTWARE_GROUPS = 256, // a processor does better with long runs
};
#define VULKAN_WAIT_NS (10ull * 1000 * 1000 * 1000)

struct old_buffer {
	struct old_buffer *next;
	VkBuffer buffer;
	VkDeviceMemory memory;
	uint64_t bytes;
};

struct vulkan_pipeline {
	VkShaderModule module;
	VkPipeline pipeline;
};

struct old_device {
	struct vulkan *vulkan;
	VkPhysicalDevice physical;
	VkPhysicalDeviceProperties properties;
	VkPhysicalDeviceMemoryProperties memory;
	bool software;
	uint32_t queue_family;
	uint32_t timestamp_bits;
	uint64_t largest_allocation;

	VkDevice device;
	struct vulkan_device_functions fn;
	VkQueue queue;
	VkCommandPool commands;
	VkCommandBuffer command;
	VkFence fence;
	VkQueryPool timestamps;
	VkDescriptorSetLayout set_layout;
	VkPipelineLayout layout;
	VkDescriptorPool descriptors;
	VkDescriptorSet set;
	struct vulkan_pipeline pipelines[KERNEL_COUNT];

	struct old_buffer *buffers;
	struct old_buffer *staging;
	void *staging_data; // (VULKAN_STAGING_BYTES), mapped for good
};

// Begin recording; then submit what was recorded and wait for it.
enum status old_vulkan_begin(struct old_device *device, struct error *error);
enum status old_vulkan_submit(struct old_device *device, struct error *error);

// launch.c
enum status old_vulkan_launch(struct old_device *device, const struct old_launch *launch, int64_t *device_ns,
			      struct error *error);
enum status old_vulkan_create_layouts(struct old_device *device, struct error *error);

enum status old_vulkan_open(struct old_device **out, const char *hardware_key, struct error *error);
void old_vulkan_close(struct old_device **out);
void old_vulkan_limits(const struct old_device *device, struct old_limits *limits);
enum status old_vulkan_buffer_create(struct old_device *device, struct old_buffer **out, uint64_t bytes,
				     struct error *error);
void old_vulkan_buffer_destroy(struct old_device *device, struct old_buffer **buffer);
enum status old_vulkan_write(struct old_device *device, struct old_buffer *to, const void *from, uint64_t bytes,
			     struct error *error);
enum status old_vulkan_copy(struct old_device *device, struct old_buffer *to, struct old_buffer *from, uint64_t bytes,
			    struct error *error);
enum status old_vulkan_read(struct old_device *device, void *to, struct old_buffer *from, uint64_t bytes,
			    struct error *error);
