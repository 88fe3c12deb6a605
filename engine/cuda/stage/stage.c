/* The calls of struct stage_slots: see stage.h. */
#include "engine/cuda/stage/stage.h"

#include <stdlib.h>
#include <string.h>

static void stage_close(struct backend_device *device, struct backend_stage **out)
{
	struct backend_stage *stage = *out;
	if (!stage)
		return;
	struct cuda *cuda = device->cuda;
	stage_settle(&stage, 1, STAGE_CLOSE_NS);
	cuda_enter(device);
	if (!device->abandoned) {
		for (unsigned i = 0; i <= STAGE_SINGLE_ROWS; i++)
			for (unsigned k = 0; k < 3; k++)
				if (stage->graphs[i][k])
					cuda->cuGraphExecDestroy(stage->graphs[i][k]);
		if (stage->done)
			cuda->cuEventDestroy_v2(stage->done);
		stage_unload(stage);
		if (stage->stream)
			cuda->cuStreamDestroy_v2(stage->stream);
	}
	stage_free(stage);
	free(stage->layers);
	free(stage);
	*out = NULL;
}

static enum status start(struct backend_stage *stage, struct error *error)
{
	struct backend_device *device = stage->device;
	struct cuda *cuda = stage->cuda;
	const struct model_shape *shape = &stage->shape;
	if (!cuda->cuFuncSetAttribute)
		return error_set(error, STATUS_UNAVAILABLE, "the driver's library has no cuFuncSetAttribute");
	if (!stage_tiles_fit(shape)) {
		error_hint(error, "choose a device of another back end: the CPU and Vulkan take every even width");
		return error_set(
			error, STATUS_UNAVAILABLE,
			"CUDA computes models whose widths are multiples of 4, also those of heads with a "
			"state, and those of experts multiples of 16; this one's are %u, %u, %u, %u, %u and %u",
			shape->embedding, model_widest_layer(shape), model_attended(shape), shape->delta.key_size,
			shape->delta.value_size, shape->expert_width);
	}
	CUresult result = CUDA_SUCCESS;
	stage->shared_bytes = (uint32_t)cuda_read(cuda, device->device, CUDA_MAX_SHARED_BYTES, &result);
	if (result)
		return cuda_failed(cuda, error, "cuDeviceGetAttribute", result);
	stage->overlaps = cuda_stage_overlaps(device);
	stage->wide = cuda_stage_wide(device);
	stage->units = device->units;
	stage->head_padded = stage_tiled_head(shape);
	if (model_is_latent(shape) && !stage_latent_fits(stage)) {
		error_hint(error, "choose another device: the CPU and Vulkan take all latents");
		return error_set(error, STATUS_UNAVAILABLE,
				 "the %u KiB that a block of this GPU can share are too few for latents of %u numbers",
				 stage->shared_bytes / 1024, shape->head_size);
	}
	stage->head_blocks = (shape->heads / shape->kv_heads + ATTENTION_HEADS - 1) / ATTENTION_HEADS;
	stage->layers = calloc(stage->params.layer_count + 1, sizeof(*stage->layers));
	if (!stage->layers)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage");
	for (uint32_t i = 0; i < stage->params.layer_count; i++) {
		const bool state = shape->layer_kinds[stage->params.first_layer + i] & LAYER_DELTA;
		const uint32_t before = model_delta_layers(shape, stage->params.first_layer, i);
		stage->layers[i].place = state ? before : i - before;
	}
	CUstream stream;
	CUevent done;
	result = cuda_enter(device);
	if (!result)
		result = cuda->cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING);
	if (!result)
		stage->stream = stream;
	if (!result)
		result = cuda->cuEventCreate(&done, CUDA_EVENT_NO_TIMING);
	if (!result)
		stage->done = done;
	return cuda_check(device, error, "a stream", result);
}

static enum status stage_begin(struct backend_device *device, struct backend_stage **out,
			       const struct stage_params *params, struct error *error)
{
	struct backend_stage *stage = *out = calloc(1, sizeof(*stage));
	if (!stage)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage");
	stage->device = device;
	stage->cuda = device->cuda;
	stage->params = *params;
	stage->shape = *params->shape;
	return start(stage, error);
}

static enum status stage_complete(struct backend_stage *stage, struct error *error)
{
	CUresult result = cuda_enter(stage->device);
	enum status status = cuda_check(stage->device, error, "cuCtxSetCurrent", result);
	if (!status)
		status = stage_take_workspace(stage, error);
	if (!status)
		status = stage_decode_begin(stage, error);
	return status ? status : stage_wait(stage, error);
}

static enum status stage_open_slices(struct backend_device *const *devices, uint32_t count, struct backend_stage **out,
				     const struct stage_params *params, struct error *error)
{
	enum status status = STATUS_OK;
	uint32_t begun = 0;
	for (; !status && begun < count; begun++)
		status = stage_begin(devices[begun], &out[begun], &params[begun], error);
	if (!status)
		status = stage_load(out, count, error);
	for (uint32_t i = 0; !status && i < count; i++)
		status = stage_complete(out[i], error);
	for (uint32_t i = 0; status && i < begun; i++)
		stage_close(devices[i], &out[i]);
	return status;
}

static enum status stage_open(struct backend_device *device, struct backend_stage **out,
			      const struct stage_params *params, struct error *error)
{
	return stage_open_slices(&device, 1, out, params, error);
}

static void stage_sizes(const struct backend_stage *stage, struct stage_memory *memory)
{
	*memory = stage->sizes;
}

// The pages of each layer with keys and values; the states, whose numbers lie behind them, of the others.
static enum status stage_clear(struct backend_stage *stage, const uint32_t *pages, uint32_t count, struct error *error)
{
	const struct stage_params *params = &stage->params;
	const uint32_t with_state = model_delta_layers(&stage->shape, params->first_layer, params->layer_count);
	const uint64_t page = stage_kv_page(stage), state = stage_state_bytes(&stage->shape);
	const uint64_t layer = page * params->page_count,
		       states = state * stage_state_count(&stage->shape, params->batch_sequences);
	CUresult result = cuda_enter(stage->device);
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t end = params->page_count;
		const bool of_state = pages[i] >= end;
		const uint32_t layers = of_state ? with_state : params->layer_count - with_state;
		for (uint32_t k = 0; !result && k < layers; k++)
			result = stage->cuda->cuMemsetD8Async(of_state ? stage->states + k * states +
										 (pages[i] - end) * state
								       : stage->kv + k * layer + pages[i] * page,
							      0, of_state ? state : page, stage->stream);
	}
	return result ? cuda_failed(stage->cuda, error, "cuMemsetD8Async", result) : stage_wait(stage, error);
}

// Pinned: a copy to other memory goes through the driver's own buffer, at a fraction of the speed.
static void *stage_pinned(struct backend_stage *stage, size_t bytes)
{
	CUdeviceptr host = 0;
	if (cuda_enter(stage->device) || stage_take(stage, &host, bytes, true, &(struct error){0}))
		return NULL;
	return memset((void *)(uintptr_t)host, 0, bytes);
}

static const struct stage_candidates *stage_found(const struct backend_stage *stage)
{
	return stage->candidates;
}

static enum status stage_logits_of(struct backend_stage *stage, uint32_t output, float *to, struct error *error)
{
	const uint64_t bytes = stage->shape.vocabulary * sizeof(float);
	CUresult result = cuda_enter(stage->device);
	if (!result)
		result = stage->cuda->cuMemcpyDtoH_v2(to, stage->logits + output * bytes, bytes);
	return cuda_check(stage->device, error, "a copy", result);
}

static void settle_slices(struct backend_stage *const *slices, uint32_t count)
{
	stage_settle(slices, count, STAGE_CLOSE_NS);
}

const struct stage_slots cuda_stage_slots = {
	.create = stage_open,
	.create_slices = stage_open_slices,
	.settle = settle_slices,
	.destroy = stage_close,
	.memory = stage_sizes,
	.step = cuda_stage_step,
	.results = stage_pinned,
	.candidates = stage_found,
	.logits = stage_logits_of,
	.zero = stage_clear,
	.read_pages = cuda_stage_read_pages,
	.write_pages = cuda_stage_write_pages,
	.join = cuda_stage_join,
	.step_joined = cuda_stage_step_joined,
	.compile = cuda_stage_compile,
	.single_kernel = cuda_stage_single_kernel,
	.time = cuda_stage_time,
};
