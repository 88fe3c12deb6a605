/* The built-in kernels on a Vulkan device: shaders from the binary, and how their work is split.
 * Each shader is compiled twice. One version takes the addresses of its buffers as constants, so
 * that no size is too large. The other takes descriptors and offsets behind them
 * (shaders/common.glsl); it is for devices without addresses and for processors, where it is
 * faster. Shaders count in 32 bits: larger work is split into pieces of at most vulkan_span
 * bytes, which also fits a descriptor. Pipelines are made when first needed, from the cache
 * (cache.c). */
#include "common/files/embedded.h"
#include "engine/vulkan/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	GROUPS = 8448,         // enough to keep the memory of a large GPU busy
	GROUPS_SOFTWARE = 256, // a processor does better with long runs
	SUM_GROUPS = 1024,
	TILES_ENOUGH = 96,  // large tiles of a product, for a GPU to be busy
	SOFTWARE_ROWS = 16, // of shaders/matmul_software.comp
	SOFTWARE_COLUMNS = 64,
	SOFTWARE_DEPTH = 32768, // of k in a dispatch: llvmpipe leaves any loop after 65535 turns, and says nothing
};

static const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;

// A shader's parameters, in the layout of shaders/common.glsl.
struct push {
	uint64_t slots[VULKAN_PLACES];
	uint32_t words[VULKAN_WORDS];
};

static const struct {
	const char *name;
	unsigned places;
} shaders[SHADER_COUNT] = {
	[SHADER_COPY] = {"copy", 2},
	[SHADER_FILL] = {"fill", 1},
	[SHADER_SAXPY] = {"saxpy", 2},
	[SHADER_MATMUL] = {"matmul", 3},
	[SHADER_MATMUL_SMALL] = {"matmul_small", 3},
	[SHADER_MATMUL_SOFTWARE] = {"matmul_software", 3},
	[SHADER_SUM] = {"sum", 2},
	[SHADER_VERIFY] = {"verify", 3},
	[SHADER_STREAM_FILL] = {"stream_fill", 1},
	[SHADER_STREAM_READ] = {"stream_read", 2},
};

// ---- pipelines ----

static enum status make_layout(struct backend_device *device, struct error *error)
{
	VkDescriptorSetLayoutBinding bindings[VULKAN_PLACES];
	for (uint32_t i = 0; i < VULKAN_PLACES; i++)
		bindings[i] = (VkDescriptorSetLayoutBinding){.binding = i,
							     .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
							     .descriptorCount = 1,
							     .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
	VkDescriptorSetLayoutCreateInfo sets = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
						.bindingCount = VULKAN_PLACES,
						.pBindings = bindings};
	VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = sizeof(struct push)};
	VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
					     .setLayoutCount = device->bound,
					     .pSetLayouts = &device->builtin_sets,
					     .pushConstantRangeCount = 1,
					     .pPushConstantRanges = &range};
	VkResult result = VK_SUCCESS;
	if (device->bound && !device->builtin_sets)
		result = VULKAN_MADE(device->builtin_sets, device->fn.vkCreateDescriptorSetLayout(
								   device->device, &sets, NULL, &device->builtin_sets));
	if (result)
		return vulkan_device_failed(device, error, "vkCreateDescriptorSetLayout", result);
	if (!device->builtin_layout)
		result = VULKAN_MADE(
			device->builtin_layout,
			device->fn.vkCreatePipelineLayout(device->device, &layout, NULL, &device->builtin_layout));
	return result ? vulkan_device_failed(device, error, "vkCreatePipelineLayout", result) : STATUS_OK;
}

static enum status make_pipeline(struct backend_device *device, enum vulkan_shader shader, struct error *error)
{
	char name[64];
	snprintf(name, sizeof(name), "kernels/vulkan/%s%s.spv", shaders[shader].name, device->bound ? ".bound" : "");
	const struct embedded_file *file = embedded_find(name);
	if (!file) {
		error_hint(error, "install glslc and build again");
		return error_set(error, STATUS_UNAVAILABLE, "the Vulkan kernels were not built: this binary has no %s",
				 name);
	}
	enum status status = make_layout(device, error);
	if (status)
		return status;
	VkShaderModuleCreateInfo module_info = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = file->length,
		.pCode = (const uint32_t *)(const void *)file->data, // embedded files are aligned to 16 bytes
	};
	VkShaderModule module;
	VkResult result = device->fn.vkCreateShaderModule(device->device, &module_info, NULL, &module);
	if (result)
		return vulkan_device_failed(device, error, "vkCreateShaderModule", result);
	VkComputePipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
			  .module = module,
			  .pName = "main"},
		.layout = device->builtin_layout,
	};
	result = device->fn.vkCreateComputePipelines(device->device, device->cache, 1, &info, NULL,
						     &device->pipelines[shader]);
	device->fn.vkDestroyShaderModule(device->device, module, NULL);
	return result ? vulkan_device_failed(device, error, "vkCreateComputePipelines", result) : STATUS_OK;
}

static bool suits(const struct backend_device *device, enum vulkan_shader shader)
{
	if (shader == SHADER_MATMUL_SOFTWARE)
		return !device->gpu;
	return device->gpu || (shader != SHADER_MATMUL && shader != SHADER_MATMUL_SMALL);
}

enum status vulkan_builtin_prepare(struct backend_device *device, struct error *error)
{
	enum status status = STATUS_OK;
	for (unsigned i = 0; !status && i < SHADER_COUNT; i++)
		if (!device->pipelines[i] && suits(device, (enum vulkan_shader)i))
			status = make_pipeline(device, (enum vulkan_shader)i, error);
	return status;
}

void vulkan_builtin_finish(struct backend_device *device)
{
	for (unsigned i = 0; i < SHADER_COUNT; i++)
		device->fn.vkDestroyPipeline(device->device, device->pipelines[i], NULL);
	device->fn.vkDestroyPipelineLayout(device->device, device->builtin_layout, NULL);
	device->fn.vkDestroyDescriptorSetLayout(device->device, device->builtin_sets, NULL);
}

// ---- dispatches ----

uint64_t vulkan_span(const struct backend_device *device)
{
	uint64_t span = 1ull << 31, range = device->properties.limits.maxStorageBufferRange;
	while (device->bound && span > range / 2) // half: a descriptor may begin before the place
		span /= 2;
	return span;
}

uint32_t vulkan_groups(const struct backend_device *device, uint64_t invocations)
{
	uint64_t groups = (invocations + VULKAN_GROUP - 1) / VULKAN_GROUP;
	uint64_t most = device->gpu ? GROUPS : GROUPS_SOFTWARE;
	return (uint32_t)(groups > most ? most : groups ? groups : 1);
}

// Descriptors for the places, each from the last offset before it at which one may begin.
static enum status bind_places(struct backend_stream *stream, const struct vulkan_dispatch *dispatch, struct push *push,
			       struct error *error)
{
	struct backend_device *device = stream->device;
	uint64_t alignment = device->properties.limits.minStorageBufferOffsetAlignment;
	VkDescriptorBufferInfo infos[VULKAN_PLACES];
	VkWriteDescriptorSet writes[VULKAN_PLACES];
	VkDescriptorSet set;
	enum status status = vulkan_stream_set(stream, device->builtin_sets, &set, error);
	if (status)
		return status;
	unsigned places = shaders[dispatch->shader].places;
	for (unsigned i = 0; i < places; i++) {
		uint64_t offset = dispatch->places[i].offset, begin = offset - offset % alignment;
		while ((offset - begin) % dispatch->places[i].unit)
			begin -= alignment; // ends at 0 at the latest
		infos[i] = (VkDescriptorBufferInfo){.buffer = dispatch->places[i].buffer->buffer,
						    .offset = begin,
						    .range = offset - begin + dispatch->places[i].bytes};
		writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
						   .dstSet = set,
						   .dstBinding = i,
						   .descriptorCount = 1,
						   .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
						   .pBufferInfo = &infos[i]};
		push->slots[i] = (offset - begin) / dispatch->places[i].unit;
	}
	device->fn.vkUpdateDescriptorSets(device->device, places, writes, 0, NULL);
	device->fn.vkCmdBindDescriptorSets(stream->commands, VK_PIPELINE_BIND_POINT_COMPUTE, device->builtin_layout, 0,
					   1, &set, 0, NULL);
	return STATUS_OK;
}

enum status vulkan_dispatch(struct backend_stream *stream, const struct vulkan_dispatch *dispatch, struct error *error)
{
	struct backend_device *device = stream->device;
	struct push push = {0};
	enum status status = STATUS_OK;
	if (!device->pipelines[dispatch->shader])
		status = make_pipeline(device, dispatch->shader, error);
	if (!status && device->bound)
		status = bind_places(stream, dispatch, &push, error);
	if (status)
		return status;
	for (unsigned i = 0; i < shaders[dispatch->shader].places; i++) {
		const struct backend_buffer *buffer = dispatch->places[i].buffer;
		if (!device->bound)
			push.slots[i] = buffer->address + dispatch->places[i].offset;
		stream->host_sees |= buffer->memory != EXOGPU_MEMORY_DEVICE;
	}
	memcpy(push.words, dispatch->words, sizeof(push.words));
	device->fn.vkCmdBindPipeline(stream->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
				     device->pipelines[dispatch->shader]);
	device->fn.vkCmdPushConstants(stream->commands, device->builtin_layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
				      sizeof(push), &push);
	device->fn.vkCmdDispatch(stream->commands, dispatch->groups[0], dispatch->groups[1], dispatch->groups[2]);
	return STATUS_OK;
}

// ---- kernels ----

// A kernel that does the same to each of n elements, in pieces: `bytes` of an element at each place.
struct elementwise {
	enum vulkan_shader shader;
	struct backend_buffer *buffers[VULKAN_PLACES];
	uint64_t offsets[VULKAN_PLACES];
	unsigned bytes[VULKAN_PLACES], units[VULKAN_PLACES];
	unsigned per_invocation; // elements
	bool numbered;           // words[1] is the number of the piece's first element
	uint32_t words[VULKAN_WORDS];
};

static enum status launch_elementwise(struct backend_stream *stream, const struct elementwise *work, uint64_t n,
				      struct error *error)
{
	enum status status = vulkan_stream_begin(stream, compute, error);
	uint64_t most = vulkan_span(stream->device) / 16;
	for (uint64_t at = 0; !status && at < n; at += most) {
		uint64_t piece = n - at < most ? n - at : most;
		struct vulkan_dispatch dispatch = {
			.shader = work->shader,
			.groups = {vulkan_groups(stream->device, piece / work->per_invocation + 1), 1, 1},
		};
		memcpy(dispatch.words, work->words, sizeof(dispatch.words));
		dispatch.words[0] = (uint32_t)piece;
		if (work->numbered)
			dispatch.words[1] = (uint32_t)at;
		for (int i = 0; i < VULKAN_PLACES && work->buffers[i]; i++) {
			dispatch.places[i].buffer = work->buffers[i];
			dispatch.places[i].offset = work->offsets[i] + at * work->bytes[i];
			dispatch.places[i].bytes = work->bytes[i] ? piece * work->bytes[i] : work->units[i];
			dispatch.places[i].unit = work->units[i];
		}
		status = vulkan_dispatch(stream, &dispatch, error);
	}
	return status;
}

// A processor fills faster than its shaders do.
static enum status fill_on_host(struct backend_stream *stream, struct backend_buffer *buffer, uint64_t bytes,
				uint32_t word, struct error *error)
{
	enum status status = vulkan_stream_begin(stream, VK_PIPELINE_STAGE_TRANSFER_BIT, error);
	if (status)
		return status;
	stream->host_sees |= buffer->memory != EXOGPU_MEMORY_DEVICE;
	stream->device->fn.vkCmdFillBuffer(stream->commands, buffer->buffer, 0, bytes, word);
	return STATUS_OK;
}

// Sum groups into the stream's scratch memory, in pieces; then add up those sums.
static enum status launch_sum(struct backend_stream *stream, struct backend_buffer *out, struct backend_buffer *x,
			      uint64_t n, struct error *error)
{
	struct backend_device *device = stream->device;
	struct backend_buffer_params scratch = {.bytes = SUM_GROUPS * 4, .memory = EXOGPU_MEMORY_DEVICE};
	enum status status = STATUS_OK;
	if (!stream->scratch)
		status = vulkan_buffer_create(device, &stream->scratch, &scratch, error);
	uint64_t most = vulkan_span(device) / 4;
	for (uint64_t at = 0; !status && at < n; at += most) {
		uint64_t piece = n - at < most ? n - at : most;
		struct vulkan_dispatch part = {
			.shader = SHADER_SUM,
			.places = {{stream->scratch, 0, SUM_GROUPS * 4, 4}, {x, at * 4, piece * 4, 16}},
			.words = {(uint32_t)piece, at > 0},
			.groups = {SUM_GROUPS, 1, 1},
		};
		status = vulkan_stream_begin(stream, compute, error);
		if (!status)
			status = vulkan_dispatch(stream, &part, error);
	}
	struct vulkan_dispatch whole = {
		.shader = SHADER_SUM,
		.places = {{out, 0, 4, 4}, {stream->scratch, 0, SUM_GROUPS * 4, 16}},
		.words = {SUM_GROUPS, 0},
		.groups = {1, 1, 1},
	};
	if (!status)
		status = vulkan_stream_begin(stream, compute, error);
	return status ? status : vulkan_dispatch(stream, &whole, error);
}

struct matmul {
	struct backend_buffer *c, *a, *b;
	uint64_t m, n, k;
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint32_t tiles(uint64_t elements, uint64_t tile)
{
	return (uint32_t)((elements + tile - 1) / tile);
}

// One part of the product: rows [row, row + part->m), and likewise for the other dimensions.
static enum status launch_part(struct backend_stream *stream, const struct matmul *whole, const struct matmul *part,
			       uint64_t row, uint64_t column, uint64_t depth, struct error *error)
{
	uint32_t wide = 128, high = 128;
	struct vulkan_dispatch dispatch = {
		.shader = SHADER_MATMUL,
		.places = {{whole->c, (row * whole->n + column) * 4, ((part->m - 1) * whole->n + part->n) * 4, 4},
			   {whole->a, (row * whole->k + depth) * 4, ((part->m - 1) * whole->k + part->k) * 4, 4},
			   {whole->b, (depth * whole->n + column) * 4, ((part->k - 1) * whole->n + part->n) * 4, 4}},
		.words = {(uint32_t)part->m, (uint32_t)part->n, (uint32_t)part->k, (uint32_t)whole->k,
			  (uint32_t)whole->n, depth > 0},
	};
	if (!stream->device->gpu) {
		dispatch.shader = SHADER_MATMUL_SOFTWARE;
		wide = SOFTWARE_COLUMNS;
		high = SOFTWARE_ROWS;
	} else if ((uint64_t)tiles(part->m, high) * tiles(part->n, wide) < TILES_ENOUGH) {
		dispatch.shader = SHADER_MATMUL_SMALL;
		wide = high = 64;
	}
	dispatch.groups[0] = tiles(part->n, wide);
	dispatch.groups[1] = tiles(part->m, high);
	dispatch.groups[2] = 1;
	enum status status = vulkan_stream_begin(stream, compute, error);
	return status ? status : vulkan_dispatch(stream, &dispatch, error);
}

// Split into parts whose ranges of each matrix fit a span, and whose number of groups the device supports.
static enum status launch_matmul(struct backend_stream *stream, const struct matmul *whole, struct error *error)
{
	uint64_t span = vulkan_span(stream->device) / 4;
	const uint32_t *groups = stream->device->properties.limits.maxComputeWorkGroupCount;
	enum status status = STATUS_OK;
	uint64_t n = least(least(whole->n, span / 2), (uint64_t)groups[0] * SOFTWARE_COLUMNS);
	uint64_t k = least(least(whole->k, span / 2), 1 + (span - n) / whole->n);
	k = stream->device->software ? least(k, SOFTWARE_DEPTH) : k;
	uint64_t m = least(whole->m, 1 + least((span - n) / whole->n, (span - k) / whole->k));
	m = least(m, (uint64_t)groups[1] * SOFTWARE_ROWS);
	for (uint64_t row = 0; row < whole->m; row += m)
		for (uint64_t column = 0; column < whole->n; column += n)
			for (uint64_t depth = 0; !status && depth < whole->k; depth += k) {
				struct matmul part = {.m = least(m, whole->m - row),
						      .n = least(n, whole->n - column),
						      .k = least(k, whole->k - depth)};
				status = launch_part(stream, whole, &part, row, column, depth, error);
			}
	return status;
}

enum status vulkan_launch_builtin(struct backend_stream *stream, const struct backend_launch *launch,
				  struct error *error)
{
	const struct backend_argument *a = launch->arguments;
	struct elementwise work = {.per_invocation = 1};
	switch ((enum builtin_kernel)(launch->kernel + 1)) {
	case BUILTIN_FILL_F32:
		if (!stream->device->gpu)
			return fill_on_host(stream, a[0].buffer, a[2].bits * 4, (uint32_t)a[1].bits, error);
		work = (struct elementwise){.shader = SHADER_FILL,
					    .buffers = {a[0].buffer},
					    .bytes = {4},
					    .units = {16},
					    .per_invocation = 4,
					    .words = {0, (uint32_t)a[1].bits}};
		return launch_elementwise(stream, &work, a[2].bits, error);
	case BUILTIN_SAXPY_F32:
		work = (struct elementwise){.shader = SHADER_SAXPY,
					    .buffers = {a[0].buffer, a[1].buffer},
					    .bytes = {4, 4},
					    .units = {16, 16},
					    .per_invocation = 4,
					    .words = {0, (uint32_t)a[2].bits}};
		return launch_elementwise(stream, &work, a[3].bits, error);
	case BUILTIN_MATMUL_F32:
		return launch_matmul(stream,
				     &(struct matmul){.c = a[0].buffer,
						      .a = a[1].buffer,
						      .b = a[2].buffer,
						      .m = a[3].bits,
						      .n = a[4].bits,
						      .k = a[5].bits},
				     error);
	case BUILTIN_SUM_F32:
		return launch_sum(stream, a[0].buffer, a[1].buffer, a[2].bits, error);
	case BUILTIN_VERIFY:
		work = (struct elementwise){
			.shader = SHADER_VERIFY,
			.buffers = {a[0].buffer, a[1].buffer, a[1].buffer},
			.offsets = {0, 0, a[2].bits * 4},
			.bytes = {4, 4, 4},
			.units = {4, 4, 4},
			.per_invocation = 1,
			.numbered = true,
			.words = {0, 0, (uint32_t)a[3].bits, (uint32_t)a[4].bits, (uint32_t)a[5].bits}};
		return launch_elementwise(stream, &work, a[2].bits, error);
	case BUILTIN_STREAM_FILL:
		work = (struct elementwise){.shader = SHADER_STREAM_FILL,
					    .buffers = {a[0].buffer},
					    .bytes = {16},
					    .units = {16},
					    .per_invocation = 1,
					    .numbered = true,
					    .words = {0, 0, (uint32_t)a[2].bits}};
		return launch_elementwise(stream, &work, a[1].bits, error);
	case BUILTIN_STREAM_READ:
		work = (struct elementwise){.shader = SHADER_STREAM_READ,
					    .buffers = {a[0].buffer, a[1].buffer},
					    .bytes = {16, 0},
					    .units = {16, 4},
					    .per_invocation = 1};
		return launch_elementwise(stream, &work, a[2].bits, error);
	case BUILTIN_UNKNOWN:
	case BUILTIN_COUNT:
		break;
	}
	return error_set(error, STATUS_INTERNAL, "%u is no kernel that is built in", launch->kernel);
}
