/* Embeddings and scores of texts: generate.embed. See instance.h. Thread: the driver's. */
#include "engine/worker/instance/instance_spent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// A float as few digits as tell it from others.
static struct json *float_of(float value)
{
	char text[32];
	snprintf(text, sizeof(text), "%.8g", (double)value);
	return json_new_number(strtod(text, NULL));
}

// The first `kept` of the values, whose length is 1, and then is again.
static struct json *list_of(const float *values, uint32_t count, uint32_t kept)
{
	struct json *list = json_new_array();
	double square = 0;
	for (uint32_t i = 0; i < kept; i++)
		square += (double)values[i] * (double)values[i];
	const double by = kept < count && square > 0 ? 1 / sqrt(square) : 1;
	for (uint32_t i = 0; i < kept; i++)
		json_push(list, float_of((float)((double)values[i] * by)));
	return list;
}

// For models trained for it, the first values are an embedding themselves (Kusupati et al., "Matryoshka Representation
// Learning", arXiv 2205.13147). Files do not say so: Qwen3-Embedding is recognised by its architecture and pooling.
static enum status take_dimensions(struct request *request, const struct json *params, struct error *error)
{
	const struct model_shape *shape = model_shape(request->instance->model);
	const int64_t wanted = json_get_integer(params, "dimensions", 0);
	const bool cuts = shape->family == FAMILY_QWEN3 && shape->pooling == POOLING_LAST;
	if (wanted > shape->embedding)
		return error_set(error, STATUS_INVALID_PARAMS, "dimensions: the model's embeddings have %u",
				 shape->embedding);
	if (wanted && wanted < shape->embedding && !cuts) {
		error_hint(error, "leave dimensions out, or choose Qwen3-Embedding");
		return error_set(error, STATUS_INVALID_PARAMS,
				 "dimensions: the model's embeddings have %u, and it was not trained to have fewer",
				 shape->embedding);
	}
	request->dimensions = (uint32_t)wanted;
	return STATUS_OK;
}

static void hidden_came(void *context, const float *values)
{
	struct request *request = context;
	struct json *result = json_new_object();
	const struct model_shape *shape = model_shape(request->instance->model);
	if (shape->pooling == POOLING_RANK)
		json_set(result, "score", float_of(values[0]));
	else
		json_set(result, "embedding",
			 list_of(values, shape->embedding,
				 request->dimensions ? request->dimensions : shape->embedding));
	json_set_integer(result, "prompt_tokens", request->prompt_tokens);
	json_set(result, "spent", instance_spent_json(request->instance, request));
	instance_answer(request->instance, request->id, NULL, result);
}

static void embedding_ended(void *context, enum generator_reason reason, const struct generator_figures *figures,
			    const struct error *error)
{
	struct request *request = context;
	struct error fault = {0};
	(void)figures, (void)error;
	if (reason == GENERATOR_REMOVED)
		error_set(&fault, STATUS_UNAVAILABLE, "the request was cancelled");
	else if (reason == GENERATOR_BROKEN)
		error_set(&fault, STATUS_INTERNAL, "the request failed: %s", request_broken);
	if (fault.status)
		instance_answer(request->instance, request->id, &fault, NULL);
	request_free(request);
}

void request_embed(struct instance *instance, struct order *order)
{
	struct error error = {0};
	struct request *request = NULL;
	enum status status = request_make(&request, instance, order, &error);
	if (!status)
		status = take_dimensions(request, order->message.params, &error);
	if (!status) {
		const struct generator_request wanted = {
			.owner = (uint64_t)json_get_integer(order->message.params, "owner", 0),
			.tokens = order->prompt.tokens,
			.token_count = order->prompt.count,
			.prompt_count = order->prompt.count,
			.sampling = {.repetition_penalty = 1},
			.want_hidden = true,
			.hidden = hidden_came,
			.ended = embedding_ended,
			.context = request};
		status = generator_add(instance->generator, &request->job, &wanted, &error);
	}
	if (!status)
		return;
	if (request)
		request_free(request);
	instance_answer(instance, order->message.id, &error, NULL);
}
