/* Users' kernels on a Vulkan device: SPIR-V that spirv.c accepted, compiled by the driver, one pipeline for
 * each kernel. Buffers are storage buffers of one descriptor set, whole and with robust access if the
 * device has it; constants are pushed. A user's code may crash the driver's compiler; then only a worker
 * process is lost. No user's code goes into the pipeline cache. The module of the built-in kernels is
 * empty. */
#include "common/base/list.h"
#include "engine/vulkan/device.h"

#include <stdlib.h>
#include <string.h>

static enum status make_layout(struct backend_module *module, struct error *error)
{
	struct backend_device *device = module->device;
	VkDescriptorSetLayoutBinding bindings[EXOGPU_KERNEL_ARGUMENTS];
	for (unsigned i = 0; i < module->spirv->binding_count; i++)
		bindings[i] = (VkDescriptorSetLayoutBinding){.binding = module->spirv->bindings[i],
							     .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
							     .descriptorCount = 1,
							     .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
	VkDescriptorSetLayoutCreateInfo sets = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
						.bindingCount = module->spirv->binding_count,
						.pBindings = bindings};
	VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = module->spirv->push_bytes};
	VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
					     .setLayoutCount = 1,
					     .pSetLayouts = &module->set_layout,
					     .pushConstantRangeCount = range.size > 0,
					     .pPushConstantRanges = &range};
	VkResult result = VULKAN_MADE(module->set_layout, device->fn.vkCreateDescriptorSetLayout(
								  device->device, &sets, NULL, &module->set_layout));
	if (result)
		return vulkan_device_failed(device, error, "vkCreateDescriptorSetLayout", result);
	result = VULKAN_MADE(module->layout,
			     device->fn.vkCreatePipelineLayout(device->device, &layout, NULL, &module->layout));
	return result ? vulkan_device_failed(device, error, "vkCreatePipelineLayout", result) : STATUS_OK;
}

static void tell(const struct spirv_module *spirv, const struct spirv_kernel *kernel, struct exogpu_kernel *told)
{
	text_copy(told->name, sizeof(told->name), kernel->name);
	memcpy(told->block, kernel->block, sizeof(told->block));
	for (unsigned i = 0; i < spirv->binding_count; i++)
		told->arguments[told->argument_count++] = EXOGPU_ARGUMENT_BUFFER;
	for (unsigned i = 0; i < spirv->constant_count; i++)
		told->arguments[told->argument_count++] = spirv->constants[i].kind;
}

static enum status compile(struct backend_module *module, VkShaderModule code, struct error *error)
{
	struct backend_device *device = module->device;
	for (unsigned i = 0; i < module->spirv->kernel_count; i++) {
		const char *name = module->spirv->kernels[i].name;
		VkComputePipelineCreateInfo info = {
			.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
			.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
				  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
				  .module = code,
				  .pName = name},
			.layout = module->layout,
		};
		tell(module->spirv, &module->spirv->kernels[i], &module->kernels[i].told);
		VkResult result = device->fn.vkCreateComputePipelines(device->device, VK_NULL_HANDLE, 1, &info, NULL,
								      &module->kernels[i].pipeline);
		if (result == VK_ERROR_DEVICE_LOST || result == VK_ERROR_OUT_OF_HOST_MEMORY ||
		    result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
			return vulkan_device_failed(device, error, "vkCreateComputePipelines", result);
		if (result)
			return error_set(error, STATUS_INVALID_PARAMS, "the driver does not compile %s: %s", name,
					 vulkan_result_name(result));
	}
	return STATUS_OK;
}

static enum status load(struct backend_module *module, const struct backend_module_params *params, struct error *error)
{
	struct backend_device *device = module->device;
	module->spirv = calloc(1, sizeof(*module->spirv));
	uint32_t *words = malloc(params->length); // aligned as the driver wants it
	VkShaderModule code = VK_NULL_HANDLE;
	enum status status = STATUS_OK;
	if (!module->spirv || !words) {
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a module");
		goto done;
	}
	status = spirv_reflect(module->spirv, params->bytes, params->length, &device->spirv, error);
	if (status)
		goto done;
	memcpy(words, params->bytes, params->length);
	module->kernels = calloc(module->spirv->kernel_count, sizeof(*module->kernels));
	status = module->kernels ? make_layout(module, error)
				 : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a module");
	if (status)
		goto done;
	VkShaderModuleCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = params->length, .pCode = words};
	VkResult result = VULKAN_MADE(code, device->fn.vkCreateShaderModule(device->device, &info, NULL, &code));
	status = result ? vulkan_device_failed(device, error, "vkCreateShaderModule", result)
			: compile(module, code, error);
done:
	if (code)
		device->fn.vkDestroyShaderModule(device->device, code, NULL);
	free(words);
	return status;
}

enum status vulkan_module_load(struct backend_device *device, struct backend_module **out,
			       const struct backend_module_params *params, struct error *error)
{
	*out = NULL;
	if (params->format == EXOGPU_FORMAT_PTX)
		return error_set(error, STATUS_UNAVAILABLE, "Vulkan cannot load PTX");
	struct backend_module *module = calloc(1, sizeof(*module));
	if (!module)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a module");
	module->device = device;
	module->format = params->format;
	LIST_PUSH(&device->modules, module, link);
	enum status status = params->format == EXOGPU_FORMAT_SPIRV ? load(module, params, error) : STATUS_OK;
	if (status)
		vulkan_module_unload(device, &module);
	*out = module;
	return status;
}

void vulkan_module_unload(struct backend_device *device, struct backend_module **module_pointer)
{
	struct backend_module *module = *module_pointer;
	if (!module)
		return;
	for (unsigned i = 0; module->kernels && i < module->spirv->kernel_count; i++)
		device->fn.vkDestroyPipeline(device->device, module->kernels[i].pipeline, NULL);
	device->fn.vkDestroyPipelineLayout(device->device, module->layout, NULL);
	device->fn.vkDestroyDescriptorSetLayout(device->device, module->set_layout, NULL);
	LIST_REMOVE(module, link);
	free(module->kernels);
	free(module->spirv);
	free(module);
	*module_pointer = NULL;
}

const struct exogpu_kernel *vulkan_module_kernel(const struct backend_module *module, unsigned index)
{
	return module->spirv && index < module->spirv->kernel_count ? &module->kernels[index].told : NULL;
}

// ---- launches ----

static enum status bind_buffers(struct backend_stream *stream, const struct backend_launch *launch, struct error *error)
{
	struct backend_device *device = stream->device;
	const struct spirv_module *spirv = launch->module->spirv;
	VkDescriptorBufferInfo infos[EXOGPU_KERNEL_ARGUMENTS];
	VkWriteDescriptorSet writes[EXOGPU_KERNEL_ARGUMENTS];
	VkDescriptorSet set;
	enum status status = vulkan_stream_set(stream, launch->module->set_layout, &set, error);
	if (status)
		return status;
	for (unsigned i = 0; i < spirv->binding_count; i++) {
		infos[i] = (VkDescriptorBufferInfo){.buffer = launch->arguments[i].buffer->buffer,
						    .range = VK_WHOLE_SIZE};
		writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
						   .dstSet = set,
						   .dstBinding = spirv->bindings[i],
						   .descriptorCount = 1,
						   .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
						   .pBufferInfo = &infos[i]};
	}
	device->fn.vkUpdateDescriptorSets(device->device, spirv->binding_count, writes, 0, NULL);
	device->fn.vkCmdBindDescriptorSets(stream->commands, VK_PIPELINE_BIND_POINT_COMPUTE, launch->module->layout, 0,
					   1, &set, 0, NULL);
	return STATUS_OK;
}

static enum status check_sizes(const struct backend_device *device, const struct backend_launch *launch,
			       struct error *error)
{
	uint32_t most = device->properties.limits.maxStorageBufferRange;
	for (unsigned i = 0; i < launch->module->spirv->binding_count; i++)
		if (launch->arguments[i].buffer->bytes > most) {
			error_hint(error, "take its address as a 64-bit push constant instead of a binding");
			return error_set(error, STATUS_LIMIT_EXCEEDED,
					 "argument %u is a buffer of %llu bytes; a binding reaches %u on this device",
					 i, (unsigned long long)launch->arguments[i].buffer->bytes, most);
		}
	return STATUS_OK;
}

// The constants' bytes, and whether the kernel may reach memory that the host reads.
static enum status pack(struct backend_stream *stream, const struct backend_launch *launch, uint8_t *push,
			struct error *error)
{
	const struct spirv_module *spirv = launch->module->spirv;
	for (unsigned i = 0; i < launch->argument_count; i++) {
		const struct backend_argument *argument = &launch->arguments[i];
		uint64_t bits = argument->bits;
		if (argument->buffer)
			stream->host_sees |= argument->buffer->memory != EXOGPU_MEMORY_DEVICE;
		if (i < spirv->binding_count)
			continue;
		const struct spirv_constant *constant = &spirv->constants[i - spirv->binding_count];
		bool wide = constant->kind == EXOGPU_ARGUMENT_DWORD;
		if (argument->buffer && !stream->device->addresses)
			return error_set(error, STATUS_UNAVAILABLE, "this device has no addresses of buffers");
		if (argument->buffer)
			bits = argument->buffer->address;
		stream->host_sees |= wide; // the address may be any
		memcpy(push + constant->offset, &bits, wide ? 8 : 4);
	}
	return STATUS_OK;
}

static enum status launch_user(struct backend_stream *stream, const struct backend_launch *launch, struct error *error)
{
	struct backend_device *device = stream->device;
	struct backend_module *module = launch->module;
	uint8_t push[EXOGPU_KERNEL_ARGUMENTS * 16] = {0};
	enum status status = check_sizes(device, launch, error);
	if (!status)
		status = pack(stream, launch, push, error);
	if (!status)
		status = vulkan_stream_begin(stream, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, error);
	if (!status && module->spirv->binding_count)
		status = bind_buffers(stream, launch, error);
	if (status)
		return status;
	device->fn.vkCmdBindPipeline(stream->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
				     module->kernels[launch->kernel].pipeline);
	if (module->spirv->push_bytes)
		device->fn.vkCmdPushConstants(stream->commands, module->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
					      module->spirv->push_bytes, push);
	device->fn.vkCmdDispatch(stream->commands, launch->grid[0], launch->grid[1], launch->grid[2]);
	return STATUS_OK;
}

enum status vulkan_launch(struct backend_stream *stream, const struct backend_launch *launch, struct error *error)
{
	return launch->module->format == EXOGPU_FORMAT_BUILTIN ? vulkan_launch_builtin(stream, launch, error)
							       : launch_user(stream, launch, error);
}
