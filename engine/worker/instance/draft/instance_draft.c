// See instance_draft.h.
#include "engine/worker/instance/draft/instance_draft.h"

#include "engine/worker/instance/instance_measure.h"
#include "engine/worker/instance/instance_weights.h"

#include <stdlib.h>

struct instance_draft {
	struct gguf *gguf;
	struct model *model;
	struct weights weights;
	float *rope;
	struct stage *stage;
	struct drafter *drafter;
};

static enum status find_tensor(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			       struct error *error)
{
	struct instance_draft *draft = context;
	return weights_find(&draft->weights, draft->model, role, layer, out, error);
}

static enum status open_file(struct instance *instance, struct instance_draft *draft, struct error *error)
{
	enum status status = gguf_open(&draft->gguf, instance->draft_fd, error);
	if (!status)
		status = model_open(&draft->model, draft->gguf, error);
	if (!status)
		status = tokenizers_same(instance->gguf, draft->gguf, error);
	if (status)
		return status;
	const struct model_shape *shape = model_shape(draft->model);
	if (model_task(shape) != TASK_TEXT)
		return error_set(error, STATUS_INVALID_PARAMS, "the draft model generates no text");
	if (model_is_recurrent(shape) || model_is_recurrent(model_shape(instance->model)))
		return error_set(
			error, STATUS_INVALID_PARAMS,
			"a model with recurrent layers cannot take tokens back, so it has no draft and is none");
	return STATUS_OK;
}

static enum status make_stage(struct instance_draft *draft, struct exogpu_device *device,
			      const struct drafter_params *sizes, struct json **times, double *read_s,
			      struct error *error)
{
	const struct model_shape *shape = model_shape(draft->model);
	const size_t numbers = model_rope_numbers(shape, sizes->context_tokens);
	draft->rope = calloc(numbers ? numbers : 1, sizeof(float));
	if (!draft->rope)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a draft model's positions");
	model_rope_table(shape, sizes->context_tokens, draft->rope);
	const struct stage_params params = {.shape = shape,
					    .layer_count = shape->layers,
					    .embeds = true,
					    .predicts = true,
					    .context_tokens = sizes->context_tokens,
					    .page_count = sizes->places * sizes->context_tokens / STAGE_PAGE_TOKENS,
					    .batch_rows = sizes->batch_rows,
					    .batch_sequences = sizes->places,
					    .batch_outputs = sizes->places,
					    .rope = draft->rope,
					    .tensor = find_tensor,
					    .context = draft};
	enum status status = stage_create(&draft->stage, device, &params, error);
	weights_finish(&draft->weights);
	if (!status && gguf_cut(draft->gguf))
		status = error_set(error, STATUS_UNAVAILABLE,
				   "the draft model's file became shorter while it was loaded, or cannot be read");
	if (!status)
		status = instance_measure(draft->stage, &params, times, read_s, error);
	return status;
}

enum status instance_draft_load(struct instance *instance, const struct json *params, struct exogpu_device *device,
				struct error *error)
{
	struct instance_draft *draft = instance->draft = calloc(1, sizeof(*draft));
	struct json *times = NULL;
	if (!draft)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a draft model");
	enum status status = open_file(instance, draft, error);
	if (status)
		return status;
	struct drafter_params sizes = {.shape = model_shape(draft->model),
				       .places = (uint32_t)json_get_integer(params, "places", 0),
				       .context_tokens = (uint32_t)json_get_integer(params, "context_tokens", 0),
				       .batch_rows = DRAFT_ROWS};
	if (sizes.context_tokens > sizes.shape->context)
		sizes.context_tokens = sizes.shape->context;
	sizes.context_tokens -= sizes.context_tokens % STAGE_PAGE_TOKENS;
	if (!sizes.places || sizes.places > DRAFT_PLACES || !sizes.context_tokens)
		return error_set(error, STATUS_INVALID_PARAMS, "a draft model for %u texts of %u tokens is none",
				 sizes.places, sizes.context_tokens);
	status = make_stage(draft, device, &sizes, &times, &sizes.read_s, error);
	if (!status) {
		sizes.stage = draft->stage;
		sizes.step_s = json_get_number(times, "layers_s", 0) + json_get_number(times, "output_s", 0);
		status = drafter_create(&draft->drafter, &sizes, error);
	}
	json_destroy(&times);
	return status;
}

void instance_draft_unload(struct instance *instance)
{
	struct instance_draft *draft = instance->draft;
	if (!draft)
		return;
	drafter_destroy(&draft->drafter);
	stage_destroy(&draft->stage);
	free(draft->rope);
	model_destroy(&draft->model);
	gguf_destroy(&draft->gguf);
	free(draft);
	instance->draft = NULL;
}

struct drafter *instance_drafter(const struct instance *instance)
{
	return instance->draft ? instance->draft->drafter : NULL;
}

struct json *instance_draft_memory(const struct instance *instance)
{
	struct stage_memory memory;
	struct json *json = json_new_object();
	stage_memory(instance->draft->stage, &memory);
	json_set_integer(json, "weights_bytes", (int64_t)memory.weights_bytes);
	json_set_integer(json, "kv_bytes", (int64_t)memory.kv_bytes);
	json_set_integer(json, "workspace_bytes", (int64_t)memory.workspace_bytes);
	return json;
}
