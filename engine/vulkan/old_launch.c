/* Kernels on Vulkan: SPIR-V from the binary, a pipeline made when first used, two storage buffers and 16 bytes of push
 * constants: the number of elements and the launch's constants. */
#include "common/base/clock.h"
#include "common/base/embedded.h"
#include "engine/vulkan/old_device.h"

#include <string.h>

static const char *const shaders[KERNEL_COUNT] = {
	[KERNEL_VERIFY] = "kernels/vulkan/old_verify.spv",
	[KERNEL_STREAM_FILL] = "kernels/vulkan/old_stream_fill.spv",
	[KERNEL_STREAM_READ] = "kernels/vulkan/old_stream_read.spv",
};

struct push_constants {
	uint32_t elements, constants[OLD_LAUNCH_CONSTANTS];
};

enum status old_vulkan_create_layouts(struct old_device *device, struct error *error)
{
	VkDescriptorSetLayoutBinding bindings[OLD_LAUNCH_BUFFERS];
	for (uint32_t i = 0; i < OLD_LAUNCH_BUFFERS; i++)
		bindings[i] = (VkDescriptorSetLayoutBinding){.binding = i,
							     .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
							     .descriptorCount = 1,
							     .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
	VkDescriptorSetLayoutCreateInfo set_info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
		.bindingCount = OLD_LAUNCH_BUFFERS,
		.pBindings = bindings,
	};
	VkResult result = device->fn.vkCreateDescriptorSetLayout(device->device, &set_info, NULL, &device->set_layout);
	if (result)
		return vulkan_failed(error, "vkCreateDescriptorSetLayout", result);
	VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = sizeof(struct push_constants)};
	VkPipelineLayoutCreateInfo layout_info = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.setLayoutCount = 1,
		.pSetLayouts = &device->set_layout,
		.pushConstantRangeCount = 1,
		.pPushConstantRanges = &range,
	};
	result = device->fn.vkCreatePipelineLayout(device->device, &layout_info, NULL, &device->layout);
	if (result)
		return vulkan_failed(error, "vkCreatePipelineLayout", result);
	VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, OLD_LAUNCH_BUFFERS};
	VkDescriptorPoolCreateInfo pool_info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = 1,
		.poolSizeCount = 1,
		.pPoolSizes = &size,
	};
	result = device->fn.vkCreateDescriptorPool(device->device, &pool_info, NULL, &device->descriptors);
	if (result)
		return vulkan_failed(error, "vkCreateDescriptorPool", result);
	VkDescriptorSetAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
		.descriptorPool = device->descriptors,
		.descriptorSetCount = 1,
		.pSetLayouts = &device->set_layout,
	};
	result = device->fn.vkAllocateDescriptorSets(device->device, &allocate, &device->set);
	return result ? vulkan_failed(error, "vkAllocateDescriptorSets", result) : STATUS_OK;
}

static enum status create_pipeline(struct old_device *device, enum old_kernel kernel, struct error *error)
{
	struct vulkan_pipeline *pipeline = &device->pipelines[kernel];
	const struct embedded_file *file = shaders[kernel] ? embedded_find(shaders[kernel]) : NULL;
	if (!file) {
		error_hint(error, "install glslc and build again");
		return error_set(error, STATUS_UNAVAILABLE, "the Vulkan kernels were not built: this binary has no %s",
				 shaders[kernel] ? shaders[kernel] : "such kernel");
	}
	VkShaderModuleCreateInfo module_info = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = file->length,
		.pCode = (const uint32_t *)(const void *)file->data, // embedded files are aligned to 16 bytes
	};
	VkResult result = device->fn.vkCreateShaderModule(device->device, &module_info, NULL, &pipeline->module);
	if (result)
		return vulkan_failed(error, "vkCreateShaderModule", result);
	VkComputePipelineCreateInfo pipeline_info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
			  .module = pipeline->module,
			  .pName = "main"},
		.layout = device->layout,
	};
	result = device->fn.vkCreateComputePipelines(device->device, VK_NULL_HANDLE, 1, &pipeline_info, NULL,
						     &pipeline->pipeline);
	return result ? vulkan_failed(error, "vkCreateComputePipelines", result) : STATUS_OK;
}

static void bind_buffers(struct old_device *device, const struct old_launch *launch)
{
	VkDescriptorBufferInfo infos[OLD_LAUNCH_BUFFERS];
	VkWriteDescriptorSet writes[OLD_LAUNCH_BUFFERS];
	for (uint32_t i = 0; i < OLD_LAUNCH_BUFFERS; i++) {
		const struct old_buffer *buffer = launch->buffers[i] ? launch->buffers[i] : launch->buffers[0];
		infos[i] = (VkDescriptorBufferInfo){.buffer = buffer->buffer, .range = buffer->bytes};
		writes[i] = (VkWriteDescriptorSet){
			.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
			.dstSet = device->set,
			.dstBinding = i,
			.descriptorCount = 1,
			.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
			.pBufferInfo = &infos[i],
		};
	}
	device->fn.vkUpdateDescriptorSets(device->device, OLD_LAUNCH_BUFFERS, writes, 0, NULL);
}

static uint32_t group_count(const struct old_device *device, const struct old_launch *launch)
{
	uint32_t needed = launch->elements / OLD_VULKAN_GROUP + (launch->elements % OLD_VULKAN_GROUP > 0);
	uint32_t most = device->properties.limits.maxComputeWorkGroupCount[0];
	if (launch->kernel != KERNEL_VERIFY) { // these step over the rest
		uint32_t stream = device->software ? VULKAN_SOFTWARE_GROUPS : VULKAN_STREAM_GROUPS;
		most = stream < most ? stream : most;
	}
	return needed < most ? needed : most;
}

static void record(struct old_device *device, const struct old_launch *launch, bool timed)
{
	VkMemoryBarrier between = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
	};
	struct push_constants push = {.elements = launch->elements};
	memcpy(push.constants, launch->constants, sizeof(push.constants));
	device->fn.vkCmdBindPipeline(device->command, VK_PIPELINE_BIND_POINT_COMPUTE,
				     device->pipelines[launch->kernel].pipeline);
	device->fn.vkCmdBindDescriptorSets(device->command, VK_PIPELINE_BIND_POINT_COMPUTE, device->layout, 0, 1,
					   &device->set, 0, NULL);
	device->fn.vkCmdPushConstants(device->command, device->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(push),
				      &push);
	if (timed) {
		device->fn.vkCmdResetQueryPool(device->command, device->timestamps, 0, 2);
		device->fn.vkCmdWriteTimestamp(device->command, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
					       device->timestamps, 0);
	}
	for (unsigned i = 0; i < launch->repeat; i++) {
		if (i)
			device->fn.vkCmdPipelineBarrier(device->command, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
							VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &between, 0, NULL,
							0, NULL);
		device->fn.vkCmdDispatch(device->command, group_count(device, launch), 1, 1);
	}
	if (timed)
		device->fn.vkCmdWriteTimestamp(device->command, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
					       device->timestamps, 1);
}

// Nanoseconds between the two timestamps; 0 if the device does not tell.
static int64_t timestamp_ns(struct old_device *device)
{
	uint64_t ticks[2] = {0, 0};
	VkResult result = device->fn.vkGetQueryPoolResults(device->device, device->timestamps, 0, 2, sizeof(ticks),
							   ticks, sizeof(ticks[0]),
							   VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
	if (result)
		return 0;
	uint64_t mask = device->timestamp_bits >= 64 ? UINT64_MAX : (1ull << device->timestamp_bits) - 1;
	uint64_t passed = (ticks[1] - ticks[0]) & mask; // also right where the counter wrapped
	return (int64_t)((double)passed * (double)device->properties.limits.timestampPeriod);
}

enum status old_vulkan_launch(struct old_device *device, const struct old_launch *launch, int64_t *device_ns,
			      struct error *error)
{
	enum status status = STATUS_OK;
	bool timed = device_ns && device->timestamps;
	if (!device->pipelines[launch->kernel].pipeline)
		status = create_pipeline(device, launch->kernel, error);
	if (!status) {
		bind_buffers(device, launch);
		status = old_vulkan_begin(device, error);
	}
	if (status)
		return status;
	record(device, launch, timed);
	int64_t began_ns = clock_steady_ns();
	status = old_vulkan_submit(device, error);
	if (status || !device_ns)
		return status;
	*device_ns = timed ? timestamp_ns(device) : 0;
	if (*device_ns <= 0) // no clock of its own: ours, with the submission in it
		*device_ns = clock_steady_ns() - began_ns;
	return STATUS_OK;
}
