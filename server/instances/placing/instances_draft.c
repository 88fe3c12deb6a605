/* The draft model of an instance: what it takes, and where its file is. It lies on the device that has the instance's
 * last layers, whole, and proposes tokens there (engine/generation/draft). Thread: the loop's. */
#include "engine/generation/draft/drafter.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>

static uint32_t places_of(uint32_t sequences)
{
	return sequences < DRAFT_PLACES ? sequences : DRAFT_PLACES;
}

// Of a text; a multiple of a page.
static uint32_t tokens_of(uint32_t context, const struct model_record *draft)
{
	uint32_t tokens = context < DRAFT_TOKENS ? context : DRAFT_TOKENS;
	tokens = tokens < draft->shape.context ? tokens : draft->shape.context;
	tokens -= tokens % STAGE_PAGE_TOKENS;
	return tokens ? tokens : STAGE_PAGE_TOKENS;
}

static enum status check(const struct placing *placing, const struct model_record *draft, const char *id,
			 struct error *error)
{
	if (!draft) {
		error_hint(error, "see: exogpu model list");
		return error_set(error, STATUS_NOT_FOUND, "there is no draft model %.128s", id);
	}
	if (draft->state != MODEL_READY)
		return error_set(error, STATUS_CONFLICT, "the draft model %s is not ready", draft->name);
	if (model_task(&draft->shape) != TASK_TEXT || model_task(&placing->shape) != TASK_TEXT)
		return error_set(error, STATUS_INVALID_PARAMS, "only models for text have drafts and are drafts");
	if (model_is_recurrent(&draft->shape) || model_is_recurrent(&placing->shape))
		return error_set(
			error, STATUS_INVALID_PARAMS,
			"a model with recurrent layers cannot take tokens back, so it has no draft and is none");
	return STATUS_OK;
}

enum status placing_read_draft(struct placing *placing, const struct instances *instances, const struct json *params,
			       bool again, struct error *error)
{
	struct error fault = {0};
	const char *id = json_get_string(params, "draft_model_id", NULL);
	struct placement_wanted *wanted = &placing->wanted;
	if (!id)
		return STATUS_OK;
	const struct model_record *draft = models_find(instances->params.models, id);
	if (check(placing, draft, id, &fault)) {
		if (!again)
			*error = fault;
		return again ? STATUS_OK : fault.status;
	}
	const uint32_t places = places_of(wanted->sequences), tokens = tokens_of(wanted->context_tokens, draft);
	struct stage_params stage = {.shape = &draft->shape,
				     .layer_count = draft->shape.layers,
				     .embeds = true,
				     .predicts = true,
				     .context_tokens = tokens,
				     .page_count = places * tokens / STAGE_PAGE_TOKENS,
				     .batch_rows = DRAFT_ROWS,
				     .batch_sequences = places,
				     .batch_outputs = places};
	for (unsigned i = 0; i < wanted->device_count; i++)
		stage.tiled |= wanted->devices[i].backend == PLACE_CUDA;
	stage_estimate(&stage, &draft->sizes, &wanted->draft);
	if (!again && placing->model) {
		snprintf(placing->path, sizeof placing->path, "%s", placing->model->path);
		snprintf(placing->draft_path, sizeof placing->draft_path, "%s", draft->path);
	}
	return STATUS_OK;
}

enum status instance_hold_draft(struct instance *instance, struct error *error)
{
	struct models *models = instance->all->params.models;
	const struct model_record *draft = instance->draft ? NULL : instance_draft(instance);
	const enum status status = draft ? models_hold(models, draft, error) : STATUS_OK;
	if (draft && !status)
		instance->draft = draft;
	return status;
}

void instance_release_draft(struct instance *instance)
{
	if (instance->draft)
		models_release(instance->all->params.models, instance->draft);
	instance->draft = NULL;
}

const struct model_record *instance_draft(const struct instance *instance)
{
	const char *id = json_get_string(instance->wanted, "draft_model_id", NULL);
	const struct model_record *draft = id ? models_find(instance->all->params.models, id) : NULL;
	return draft && draft->state == MODEL_READY ? draft : NULL;
}

struct json *instance_draft_params(const struct instance *instance)
{
	const struct model_record *draft = instance_draft(instance);
	struct json *params = json_new_object();
	json_set_integer(params, "places", places_of(instance->sequences));
	json_set_integer(params, "context_tokens", tokens_of(instance->context_tokens, draft));
	return params;
}

struct json *instance_draft_json(const struct instance *instance)
{
	const char *id = json_get_string(instance->wanted, "draft_model_id", NULL);
	const struct model_record *draft = instance_draft(instance);
	if (!id)
		return json_new_null();
	struct json *json = json_new_object();
	json_set_string(json, "model_id", id);
	json_set_string(json, "name", draft ? draft->name : NULL);
	instance_set_bytes(json, "bytes", instance->draft_bytes);
	instance_set_bytes(json, "drafted_tokens", instance->drafted_tokens);
	instance_set_bytes(json, "draft_accepted_tokens", instance->draft_accepted_tokens);
	return json;
}
