/* Shaders, layouts and descriptor sets of a stage. See stage.h.
 *
 * Pipelines are made when first needed, from the device's cache, and are the device's: with all machine code in that
 * cache, drivers still take a while for each. A descriptor set is written once, when it is made, and never changed:
 * recorded commands hold on to it. */
#include "common/files/embedded.h"
#include "engine/vulkan/stage/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[STAGE_SHADERS] = {
	[STAGE_EMBED] = "embed",       [STAGE_MOVE] = "move",
	[STAGE_NORM] = "norm",         [STAGE_POST] = "post",
	[STAGE_PRODUCT] = "product",   [STAGE_TILE] = "tile",
	[STAGE_ROPE] = "rope",         [STAGE_ATTENTION] = "attention",
	[STAGE_COMBINE] = "combine",   [STAGE_ARGMAX] = "argmax",
	[STAGE_ZERO] = "zero",         [STAGE_ROUTE] = "route",
	[STAGE_ORDER] = "order",       [STAGE_MIX] = "mix",
	[STAGE_CONVOLVE] = "convolve", [STAGE_DELTA] = "delta",
	[STAGE_ENCODE] = "encode",     [STAGE_SHORT] = "short",
	[STAGE_LATENT] = "latent",     [STAGE_HEADS] = "heads",
};

// ---- layouts ----

static const uint32_t bindings_of[3] = {STAGE_BINDINGS, 2, 2};

static enum status make_set_layouts(struct backend_device *device, struct stage_pipelines *shared, struct error *error)
{
	VkDescriptorSetLayoutBinding bindings[STAGE_BINDINGS];
	for (uint32_t i = 0; i < STAGE_BINDINGS; i++)
		bindings[i] = (VkDescriptorSetLayoutBinding){.binding = i,
							     .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
							     .descriptorCount = 1,
							     .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
	for (int i = 0; i < 3; i++) {
		VkDescriptorSetLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
							.bindingCount = bindings_of[i],
							.pBindings = bindings};
		VkResult result = VULKAN_MADE(shared->sets[i], device->fn.vkCreateDescriptorSetLayout(
								       device->device, &info, NULL, &shared->sets[i]));
		if (result)
			return vulkan_device_failed(device, error, "vkCreateDescriptorSetLayout", result);
	}
	VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = STAGE_PUSH_BYTES};
	VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
					   .setLayoutCount = 3,
					   .pSetLayouts = shared->sets,
					   .pushConstantRangeCount = 1,
					   .pPushConstantRanges = &range};
	VkResult result = VULKAN_MADE(shared->layout,
				      device->fn.vkCreatePipelineLayout(device->device, &info, NULL, &shared->layout));
	return result ? vulkan_device_failed(device, error, "vkCreatePipelineLayout", result) : STATUS_OK;
}

// The device's shared part, with this stage among its users.
static enum status share(struct backend_stage *stage, struct error *error)
{
	struct backend_device *device = stage->device;
	if (!device->stage_pipelines) {
		device->stage_pipelines = calloc(1, sizeof(*device->stage_pipelines));
		if (!device->stage_pipelines)
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the pipelines of stages");
		enum status status = make_set_layouts(device, device->stage_pipelines, error);
		if (status) {
			vulkan_stage_pipelines_finish(device);
			return status;
		}
	}
	stage->shared = device->stage_pipelines;
	stage->shared->stages++;
	return STATUS_OK;
}

static void drop_pipelines(const struct backend_device *device, struct stage_pipelines *shared)
{
	for (uint32_t i = 0; i < shared->count; i++)
		device->fn.vkDestroyPipeline(device->device, shared->made[i].pipeline, NULL);
	shared->count = 0;
}

void vulkan_stage_pipelines_finish(struct backend_device *device)
{
	struct stage_pipelines *shared = device->stage_pipelines;
	if (!shared)
		return;
	drop_pipelines(device, shared);
	device->fn.vkDestroyPipelineLayout(device->device, shared->layout, NULL);
	for (int i = 0; i < 3; i++)
		device->fn.vkDestroyDescriptorSetLayout(device->device, shared->sets[i], NULL);
	free(shared);
	device->stage_pipelines = NULL;
}

// Pools hold the sets of the chunks and layers that there are, and a fixed number of set 0.
enum status stage_layouts_make(struct backend_stage *stage, struct error *error)
{
	struct backend_device *device = stage->device;
	uint32_t needed = STAGE_BINDINGS + 2 + 2;
	if (device->spirv.buffers < needed)
		return error_set(error, STATUS_UNAVAILABLE, "the device's shaders take %u buffers; models need %u",
				 device->spirv.buffers, needed);
	uint32_t chunks = 1; // what a gated delta rule has instead of one
	for (uint32_t i = 0; i <= stage->params.layer_count; i++)
		for (int role = 0; role < ROLE_COUNT; role++)
			chunks += (i ? &stage->layers[i - 1] : &stage->ends)->matrices[role].chunk_count;
	VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
				     STAGE_SETS * STAGE_BINDINGS + 2 * (chunks + stage->params.layer_count)};
	VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
					   .maxSets = STAGE_SETS + chunks + stage->params.layer_count,
					   .poolSizeCount = 1,
					   .pPoolSizes = &size};
	VkResult result = VULKAN_MADE(stage->pool,
				      device->fn.vkCreateDescriptorPool(device->device, &info, NULL, &stage->pool));
	if (result)
		return vulkan_device_failed(device, error, "vkCreateDescriptorPool", result);
	return share(stage, error);
}

void stage_layouts_finish(struct backend_stage *stage)
{
	struct stage_pipelines *shared = stage->shared;
	if (shared && !--shared->stages && shared->count > STAGE_PIPELINES / 2)
		drop_pipelines(stage->device, shared);
	stage->shared = NULL;
	stage->device->fn.vkDestroyDescriptorPool(stage->device->device, stage->pool, NULL);
}

// ---- sets ----

static enum status make_set(struct backend_stage *stage, int layout, const struct backend_buffer *const *buffers,
			    VkDescriptorSet *set, struct error *error)
{
	struct backend_device *device = stage->device;
	VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
					    .descriptorPool = stage->pool,
					    .descriptorSetCount = 1,
					    .pSetLayouts = &stage->shared->sets[layout]};
	VkResult result = device->fn.vkAllocateDescriptorSets(device->device, &info, set);
	if (result)
		return vulkan_device_failed(device, error, "vkAllocateDescriptorSets", result);
	VkDescriptorBufferInfo infos[STAGE_BINDINGS];
	VkWriteDescriptorSet writes[STAGE_BINDINGS];
	uint32_t count = 0;
	for (uint32_t i = 0; i < bindings_of[layout]; i++) {
		if (!buffers[i])
			continue;
		infos[count] = (VkDescriptorBufferInfo){.buffer = buffers[i]->buffer, .range = VK_WHOLE_SIZE};
		writes[count] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
						       .dstSet = *set,
						       .dstBinding = i,
						       .descriptorCount = 1,
						       .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
						       .pBufferInfo = &infos[count]};
		count++;
	}
	device->fn.vkUpdateDescriptorSets(device->device, count, writes, 0, NULL);
	return STATUS_OK;
}

enum status stage_set_weights(struct backend_stage *stage, struct stage_chunk *chunk,
			      const struct backend_buffer *second, struct error *error)
{
	const struct backend_buffer *buffers[] = {chunk->buffer, second};
	return make_set(stage, 1, buffers, &chunk->set, error);
}

enum status stage_set_pages(struct backend_stage *stage, struct stage_layer *layer, struct error *error)
{
	const struct backend_buffer *first = layer->states ? layer->states : layer->keys,
				    *buffers[] = {first, layer->values ? layer->values : first};
	return make_set(stage, 2, buffers, &layer->set, error);
}

static enum status find_set(struct backend_stage *stage, const struct stage_dispatch *dispatch, VkDescriptorSet *set,
			    struct error *error)
{
	for (uint32_t i = 0; i < stage->set_count; i++) {
		const struct stage_set *known = &stage->sets[i];
		if (known->from == dispatch->from && known->to == dispatch->to && known->also == dispatch->also &&
		    known->lists == dispatch->lists) {
			*set = known->set;
			return STATUS_OK;
		}
	}
	if (stage->set_count == STAGE_SETS)
		return error_set(error, STATUS_INTERNAL, "a stage has at most %d sets", STAGE_SETS);
	struct stage_set *made = &stage->sets[stage->set_count];
	*made = (struct stage_set){
		.from = dispatch->from, .to = dispatch->to, .also = dispatch->also, .lists = dispatch->lists};
	const struct backend_buffer *buffers[] = {made->from, made->to, made->also, stage->vectors,
						  made->lists ? made->lists : stage->step};
	enum status status = make_set(stage, 0, buffers, &made->set, error);
	stage->set_count += !status;
	*set = made->set;
	return status;
}

// ---- pipelines ----

static enum status make_pipeline(struct backend_stage *stage, struct stage_pipeline *made, struct error *error)
{
	struct backend_device *device = stage->device;
	char name[64];
	snprintf(name, sizeof(name), "kernels/vulkan/stage_%s.spv", names[made->shader]);
	const struct embedded_file *file = embedded_find(name);
	if (!file) {
		error_hint(error, "install glslc and build again");
		return error_set(error, STATUS_UNAVAILABLE, "the Vulkan kernels were not built: this binary has no %s",
				 name);
	}
	VkShaderModuleCreateInfo module_info = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = file->length,
		.pCode = (const uint32_t *)(const void *)file->data, // embedded files are aligned to 16 bytes
	};
	VkShaderModule module;
	VkResult result = device->fn.vkCreateShaderModule(device->device, &module_info, NULL, &module);
	if (result)
		return vulkan_device_failed(device, error, "vkCreateShaderModule", result);
	enum { COUNT = sizeof(made->constants.values) / sizeof(made->constants.values[0]) };
	VkSpecializationMapEntry entries[COUNT];
	for (uint32_t i = 0; i < COUNT; i++)
		entries[i] = (VkSpecializationMapEntry){i, 4 * i, 4};
	VkSpecializationInfo constants = {COUNT, entries, sizeof(made->constants.values), made->constants.values};
	VkComputePipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
			  .module = module,
			  .pName = "main",
			  .pSpecializationInfo = &constants},
		.layout = stage->shared->layout,
	};
	result = device->fn.vkCreateComputePipelines(device->device, device->cache, 1, &info, NULL, &made->pipeline);
	device->fn.vkDestroyShaderModule(device->device, module, NULL);
	return result ? vulkan_device_failed(device, error, "vkCreateComputePipelines", result) : STATUS_OK;
}

static enum status find_pipeline(struct backend_stage *stage, const struct stage_dispatch *dispatch,
				 VkPipeline *pipeline, struct error *error)
{
	struct stage_pipelines *shared = stage->shared;
	for (uint32_t i = 0; i < shared->count; i++) {
		const struct stage_pipeline *known = &shared->made[i];
		if (known->shader == dispatch->shader &&
		    !memcmp(&known->constants, &dispatch->constants, sizeof(known->constants))) {
			*pipeline = known->pipeline;
			return STATUS_OK;
		}
	}
	if (shared->count == STAGE_PIPELINES)
		return error_set(error, STATUS_UNAVAILABLE, "the stages of a device have at most %d pipelines",
				 STAGE_PIPELINES);
	struct stage_pipeline *made = &shared->made[shared->count];
	*made = (struct stage_pipeline){.shader = dispatch->shader, .constants = dispatch->constants};
	enum status status = make_pipeline(stage, made, error);
	shared->count += !status;
	*pipeline = made->pipeline;
	return status;
}

// ---- dispatches ----

enum status stage_dispatch(struct backend_stage *stage, VkCommandBuffer commands, const struct stage_dispatch *dispatch,
			   struct error *error)
{
	const struct vulkan_device_functions *fn = &stage->device->fn;
	VkPipeline pipeline = VK_NULL_HANDLE;
	VkDescriptorSet set = VK_NULL_HANDLE;
	enum status status = find_pipeline(stage, dispatch, &pipeline, error);
	if (!status)
		status = find_set(stage, dispatch, &set, error);
	if (status)
		return status;
	fn->vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
	const VkDescriptorSet sets[] = {set, dispatch->weights, dispatch->pages};
	for (uint32_t i = 0; i < 3; i++)
		if (sets[i])
			fn->vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, stage->shared->layout, i,
						    1, &sets[i], 0, NULL);
	fn->vkCmdPushConstants(commands, stage->shared->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, dispatch->push_bytes,
			       dispatch->push);
	fn->vkCmdDispatch(commands, dispatch->groups[0], dispatch->groups[1], dispatch->groups[2]);
	return STATUS_OK;
}

void stage_barrier(struct backend_stage *stage, VkCommandBuffer commands)
{
	VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
				  .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
				  .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
	stage->device->fn.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
					       VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &memory, 0, NULL, 0, NULL);
}
