/* See stage.h: what a stage is asked is checked here, once, and handed to the back end. */
#include "engine/stage.h"

#include "engine/inside.h"

#include <stdlib.h>

enum { BATCH_ROWS_MOST = 4096 };

struct stage {
	struct exogpu_device *device;
	const struct stage_slots *slots;
	struct backend_stage *handle;
	struct stage_params params;
};

static enum status check_params(const struct stage_params *params, struct error *error)
{
	const struct model_shape *shape = params->shape;
	const char *wrong = NULL;
	if (!shape || !params->rope || !params->tensor)
		wrong = "a stage needs a shape, a table of positions and its weights";
	else if (params->first_layer > shape->layers || params->layer_count > shape->layers - params->first_layer ||
		 (!params->layer_count && !params->embeds && !params->predicts))
		wrong = "the model has no such layers";
	else if ((params->embeds && params->first_layer) ||
		 (params->predicts && params->first_layer + params->layer_count != shape->layers))
		wrong = "only the first layers embed, and only the last predict";
	else if (!params->context_tokens || !params->page_count || !params->batch_rows || !params->batch_sequences ||
		 !params->batch_outputs || params->batch_rows > BATCH_ROWS_MOST ||
		 params->batch_sequences > params->batch_rows || params->batch_outputs > params->batch_rows)
		wrong = "context, pages and batch do not fit each other";
	else if (params->host_layers > params->layer_count)
		wrong = "more layers in host memory than there are";
	return wrong ? error_set(error, STATUS_INVALID_PARAMS, "%s", wrong) : STATUS_OK;
}

enum status stage_create(struct stage **out, struct exogpu_device *device, const struct stage_params *params,
			 struct error *error)
{
	*out = NULL;
	enum status status = device_usable(device, error);
	if (!status)
		status = check_params(params, error);
	if (status)
		return status;
	const struct stage_slots *slots = device->backend->stage;
	if (!slots) {
		error_set(error, STATUS_UNAVAILABLE, "back end %s computes no models",
			  backend_kind_name(device->backend->kind));
		error_hint(error, "choose a device of another back end");
		return STATUS_UNAVAILABLE;
	}
	struct stage *stage = calloc(1, sizeof(*stage));
	if (!stage)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage");
	*stage = (struct stage){.device = device, .slots = slots, .params = *params};
	status = slots->create(device->handle, &stage->handle, params, error);
	if (status == STATUS_DEVICE_LOST)
		device->lost = true;
	if (status) {
		free(stage);
		return status;
	}
	*out = stage;
	return STATUS_OK;
}

void stage_destroy(struct stage **stage_pointer)
{
	struct stage *stage = *stage_pointer;
	if (!stage)
		return;
	stage->slots->destroy(stage->device->handle, &stage->handle);
	free(stage);
	*stage_pointer = NULL;
}

void stage_memory(const struct stage *stage, struct stage_memory *memory)
{
	*memory = (struct stage_memory){0};
	stage->slots->memory(stage->handle, memory);
}

static const char *check_runs(const struct stage_params *params, const struct stage_batch *batch)
{
	uint32_t rows = 0;
	for (uint32_t i = 0; i < batch->run_count; i++) {
		const struct stage_run *run = &batch->runs[i];
		if (!run->row_count || run->row_count > batch->row_count - rows)
			return "the runs are not as long as the batch";
		if (run->position >= params->context_tokens || run->row_count > params->context_tokens - run->position)
			return "a position lies outside the context";
		uint32_t pages = (run->position + run->row_count + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
		for (uint32_t page = 0; page < pages; page++)
			if (run->pages[page] >= params->page_count)
				return "there is no such page";
		rows += run->row_count;
	}
	return rows == batch->row_count ? NULL : "the runs are not as long as the batch";
}

static const char *check_batch(const struct stage_params *params, const struct stage_batch *batch)
{
	if (!batch->row_count || batch->row_count > params->batch_rows || !batch->run_count ||
	    batch->run_count > params->batch_sequences || batch->output_count > params->batch_outputs)
		return "more rows, runs or outputs than the stage was made for, or none";
	if (params->embeds ? !batch->tokens : !batch->input)
		return "no tokens, or no activations";
	if (!params->predicts && (!batch->output || batch->output_count))
		return "nowhere to put the activations";
	for (uint32_t i = 0; params->embeds && i < batch->row_count; i++)
		if (batch->tokens[i] >= params->shape->vocabulary)
			return "a token outside the vocabulary";
	for (uint32_t i = 0; i < batch->output_count; i++)
		if (batch->output_rows[i] >= batch->row_count ||
		    (i && batch->output_rows[i] <= batch->output_rows[i - 1]))
			return "rows of outputs are not ascending, or outside the batch";
	return check_runs(params, batch);
}

static enum status told(struct stage *stage, enum status status)
{
	if (status == STATUS_DEVICE_LOST || status == STATUS_TIMEOUT)
		stage->device->lost = true;
	return status;
}

enum status stage_step(struct stage *stage, const struct stage_batch *batch, struct error *error)
{
	enum status status = device_usable(stage->device, error);
	const char *wrong = status ? NULL : check_batch(&stage->params, batch);
	if (wrong)
		status = error_set(error, STATUS_INVALID_PARAMS, "%s", wrong);
	return status ? status : told(stage, stage->slots->step(stage->handle, batch, error));
}

enum status stage_zero(struct stage *stage, const uint32_t *pages, uint32_t count, struct error *error)
{
	enum status status = device_usable(stage->device, error);
	for (uint32_t i = 0; !status && i < count; i++)
		if (pages[i] >= stage->params.page_count)
			status = error_set(error, STATUS_INVALID_PARAMS, "there is no page %u", pages[i]);
	if (status || !count)
		return status;
	return told(stage, stage->slots->zero(stage->handle, pages, count, error));
}

uint64_t stage_page_bytes(const struct model_shape *shape)
{
	return 2ull * shape->kv_heads * shape->head_size * sizeof(uint16_t) * STAGE_PAGE_TOKENS;
}

void stage_estimate(const struct stage_params *params, const struct model_sizes *sizes, struct stage_memory *memory)
{
	const struct model_shape *shape = params->shape;
	uint64_t layer = shape->layers ? sizes->layers_bytes / shape->layers : 0;
	uint64_t widest = shape->embedding + 2ull * shape->feed_forward +
			  (shape->heads + 2ull * shape->kv_heads) * shape->head_size;
	*memory = (struct stage_memory){
		.weights_bytes = layer * (params->layer_count - params->host_layers) +
				 (params->embeds ? sizes->embedding_bytes : 0) +
				 (params->predicts ? sizes->output_bytes : 0),
		.kv_bytes = stage_page_bytes(shape) * params->page_count * params->layer_count,
		.workspace_bytes = widest * params->batch_rows * 8 +
				   (params->predicts ? 4ull * shape->vocabulary * params->batch_outputs : 0) +
				   4ull * params->context_tokens * shape->rope_size,
		.host_bytes = layer * params->host_layers,
	};
	if (params->embeds && params->predicts && shape->tied)
		memory->weights_bytes -= sizes->embedding_bytes;
}
