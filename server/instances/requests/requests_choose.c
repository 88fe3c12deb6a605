/* Chooses the instance of a request: gathers the facts about its model, and carries out the decision of question.c.
 * Thread: the loop's. */
#include "server/instances/instances_inside.h"

#include <string.h>

static bool is_draining(const struct instance *instance)
{
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (instance_is_draining(&instance->stages[i]))
			return true;
	return false;
}

static bool is_particular(const struct instance *instance)
{
	const struct json *one = json_first(instance->wanted);
	while (one && (json_type(one) == JSON_NULL || !strcmp(json_name(one), "model_id") ||
		       !strcmp(json_name(one), "gives_way")))
		one = json_next(one);
	return one != NULL;
}

// Tokens a second of one request, as its stages were measured or predicted; < 0: not known.
static double rate_of(const struct instance *instance)
{
	double seconds = instance->way_s;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *stage = &instance->stages[i];
		if (stage->seconds_per_token < 0)
			return -1;
		seconds += stage->slice ? 0 : stage->seconds_per_token; // slices compute together
	}
	return seconds > 0 ? 1 / seconds : -1;
}

static struct question_instance see_instance(const struct instance *instance, const struct model_record *model)
{
	const bool failed = instance->state == INSTANCE_FAILED;
	return (struct question_instance){.instance_state = instance->state,
					  .reason = instance->state_reason,
					  .holds_model = instance->model == model,
					  .requests_wait = instance->recovery.requests_until_ms != 0,
					  .draining = instance->state == INSTANCE_RUNNING && is_draining(instance),
					  .stays = instance->recovery.stays,
					  .particular = failed && is_particular(instance),
					  .failed_ms = instance->failed_ms,
					  .rate = rate_of(instance),
					  .request_count = instance->generation_count};
}

static enum status check_line(const struct instance *instance, const struct model_record *model,
			      const struct token *token, size_t given_tokens, struct error *error)
{
	const struct question_line line = {.request_count = instance->generation_count,
					   .own_count = generations_of(instance, token),
					   .line_tokens = instance->line_tokens,
					   .given_tokens = given_tokens,
					   .line_tokens_most = instance->all->params.line_tokens,
					   .context_tokens = instance->context_tokens ? instance->context_tokens
										      : model->shape.context};
	return question_admit(&line, error);
}

// An answer is let in whole while the token has something left, and counted at its end.
static enum status check_spent(struct instances *all, const struct token *token, struct error *error)
{
	const int64_t wait_s = instances_wait_s(all, token);
	if (!wait_s)
		return STATUS_OK;
	error_set(error, STATUS_RATE_LIMITED, "this token has used up its %lld tokens a minute",
		  (long long)all->params.tokens_per_minute);
	error_hint(error, "ask again in %lld s", (long long)wait_s);
	return STATUS_RATE_LIMITED;
}

// Models for embedding and ranking generate nothing, and a ranking needs a model for that.
static enum status check_task(const struct model_record *model, const struct generation_params *params,
			      struct error *error)
{
	const enum model_task task = model_task(&model->shape);
	const bool pair = json_get(json_get(params->call, "prompt"), "pair") != NULL;
	const bool fits = params->embeds ? pair == (task == TASK_RERANK) : task == TASK_TEXT;
	if ((model->state != MODEL_READY && model->state != MODEL_MISSING) || fits)
		return STATUS_OK;
	if (pair)
		error_hint(
			error,
			"choose a model whose KIND is rerank (exogpu model list): a cross-encoder, or Qwen3-Reranker");
	else if (task == TASK_RERANK)
		error_hint(error, "POST /v1/rerank takes a query and documents");
	else
		error_hint(error, "POST /v1/embeddings takes its inputs; choose a language model for text");
	return error_set(error, STATUS_INVALID_PARAMS,
			 pair ? "the model %.128s is no reranker"
			 : task == TASK_RERANK
				 ? "the model %.128s is a reranker: it orders documents, and does nothing else"
				 : "the model %.128s is for embeddings: it generates no text",
			 model->name);
}

enum status requests_choose(struct instance **out, struct instances *all, const struct generation_params *params,
			    size_t given_tokens, struct error *error)
{
	struct question_instance seen_instances[LIMIT_INSTANCES];
	struct instance *instances[LIMIT_INSTANCES];
	struct question_decision decision;
	const struct model_record *model = models_find(all->params.models, params->model);
	enum status status = STATUS_OK;
	*out = NULL;
	if (!model) {
		error_set(error, STATUS_NOT_FOUND, "there is no model %.128s", params->model);
		error_hint(error, "GET /v1/models lists the models");
		return STATUS_NOT_FOUND;
	}
	if (check_task(model, params, error) ||
	    (!params->counts && !params->part && check_spent(all, params->token, error)))
		return error->status;
	struct question_seen seen = {.model_name = model->name,
				     .instances = seen_instances,
				     .ending = all->ending,
				     .loads = params->loads,
				     .ready = model->state == MODEL_READY,
				     .admin = !params->token || token_allows(params->token, SCOPE_ADMIN),
				     .sees_why = sees_why(params->token),
				     .begun = demand_find(all, model->model_id)};
	for (struct instance *one = all->first; one && seen.count < LIMIT_INSTANCES; one = one->next) {
		if (strcmp(one->model_id, model->model_id) != 0)
			continue;
		instances[seen.count] = one;
		seen_instances[seen.count++] = see_instance(one, model);
	}
	nowhere_see(&seen, all, model->model_id);
	question_decide(&decision, &seen, instances_now(all), error);
	if (decision.action == QUESTION_LOOKS) {
		seen.room = nowhere_look(all, model);
		question_decide(&decision, &seen, instances_now(all), error);
	}
	if (decision.action == QUESTION_JOINS) {
		*out = instances[decision.instance];
	} else if (decision.action == QUESTION_WAITS) {
		*out = demand_find(all, model->model_id);
	} else if (decision.action == QUESTION_LOADS) {
		nowhere_forget(all, model->model_id);
		status = demand_begin(out, all, model, params, error);
	} else {
		status = error->status;
	}
	return status ? status : check_line(*out, model, params->token, given_tokens, error);
}
