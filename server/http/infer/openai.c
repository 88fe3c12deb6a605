/* OpenAI's words: errors and models. What is asked is read in openai_read.c, what is answered told in openai_answer.c;
 * embeddings and rankings have openai_embed.c. */
#include "common/wire/said.h"
#include "server/http/infer/inside.h"

#include <stdio.h>
#include <string.h>

struct shape {
	int http;
	const char *type, *code;
};

static struct shape shape_of(enum status status)
{
	switch (status) {
	case STATUS_UNAUTHENTICATED:
		return (struct shape){401, "authentication_error", "invalid_api_key"};
	case STATUS_FORBIDDEN:
		return (struct shape){403, "permission_error", "forbidden"};
	case STATUS_NOT_FOUND:
		return (struct shape){404, "invalid_request_error", "model_not_found"};
	case STATUS_METHOD_NOT_FOUND:
		return (struct shape){404, "invalid_request_error", "not_found"};
	case STATUS_RATE_LIMITED:
		return (struct shape){429, "rate_limit_error", "rate_limit_exceeded"};
	case STATUS_PARSE_ERROR:
	case STATUS_INVALID_REQUEST:
	case STATUS_INVALID_PARAMS:
	case STATUS_CONFLICT:
		return (struct shape){400, "invalid_request_error", NULL};
	case STATUS_LIMIT_EXCEEDED:
		return (struct shape){413, "invalid_request_error", "too_large"};
	case STATUS_DEVICE_LOST:
		return (struct shape){503, "server_error", "device_lost"};
	case STATUS_UNAVAILABLE:
		return (struct shape){503, "server_error", "unavailable"};
	case STATUS_TIMEOUT:
		return (struct shape){504, "server_error", "timeout"};
	case STATUS_OK:
	case STATUS_PENDING:
	case STATUS_INTERNAL:
	case STATUS_OUT_OF_MEMORY:
	case STATUS_COUNT:
		break;
	}
	return (struct shape){500, "server_error", NULL};
}

// The parameter that a model's worker complains of. NULL: not known, or its API does not say it.
static const char *blame(const struct fault *fault)
{
	static const char *const prompts[ENDPOINT_COUNT] = {[ENDPOINT_CHAT] = "messages",
							    [ENDPOINT_COMPLETIONS] = "prompt",
							    [ENDPOINT_EMBEDDINGS] = "input",
							    [ENDPOINT_RERANK] = "documents",
							    [ENDPOINT_RESPONSES] = "input"};
	const struct error *error = fault->error;
	const bool response = fault->endpoint == ENDPOINT_RESPONSES;
	const bool invalid = error->status == STATUS_INVALID_PARAMS;
	if (error->status == STATUS_NOT_FOUND)
		return "model";
	if (!invalid && error->status != STATUS_LIMIT_EXCEEDED)
		return NULL;
	if (strstr(error->message, "a bias is for token"))
		return "logit_bias";
	if (!strncmp(error->message, "the form of the answer", 22))
		return response ? "text.format" : "response_format";
	if (!strncmp(error->message, "the tools:", 10))
		return "tools";
	if (!strncmp(error->message, "tool_choice:", 12))
		return "tool_choice";
	if (!strncmp(error->message, "dimensions:", 11))
		return "dimensions";
	if (!strncmp(error->message, "suffix:", 7))
		return "suffix";
	if (!strncmp(error->message, "the model ", 10) && invalid)
		return "model";
	if (strstr(error->message, "reasoning_effort is not known"))
		return response ? "reasoning.effort" : "reasoning_effort";
	if (strstr(error->message, "enable_thinking is not known"))
		return "chat_template_kwargs";
	return prompts[fault->endpoint];
}

int openai_fail(const struct fault *fault, struct json **out)
{
	char message[700];
	const struct error *error = fault->error;
	struct shape shape = shape_of(error->status);
	if (fault->of_model && error->status == STATUS_LIMIT_EXCEEDED)
		shape = (struct shape){400, "invalid_request_error", "context_length_exceeded"};
	struct json *inside = json_new_object();
	snprintf(message, sizeof message, "%s%s%s", error->message[0] ? error->message : status_text(error->status),
		 error->hint[0] ? "; " : "", error->hint);
	json_set_string(inside, "message", message);
	if (error->status != STATUS_UNAUTHENTICATED) // for the Playground; a stranger's error costs as little as can be
		said_beside(inside, "message");
	json_set_string(inside, "type", shape.type);
	json_set_string(inside, "param", fault->of_model ? blame(fault) : fault->param);
	json_set_string(inside, "code", shape.code);
	*out = json_new_object();
	json_set(*out, "error", inside);
	return shape.http;
}

struct json *openai_model(const struct model_record *model, bool loaded)
{
	struct json *json = json_new_object();
	json_set_string(json, "id", model->name);
	json_set_string(json, "object", "model");
	json_set_integer(json, "created", model->added_ms / 1000);
	json_set_string(json, "owned_by", "exogpu");
	json_set_bool(json, "loaded", loaded);
	return json;
}

struct json *openai_models(struct json *list)
{
	struct json *json = json_new_object();
	json_set_string(json, "object", "list");
	json_set(json, "data", list);
	json_set(json, "models", json_new_array()); // Codex asks for its own form: nothing is known beside the names
	return json;
}

const struct wording openai_wording = {.id_header = "x-request-id:",
				       .read = openai_read,
				       .fail = openai_fail,
				       .begin = openai_begin,
				       .tell = openai_tell,
				       .end = openai_end,
				       .model = openai_model,
				       .models = openai_models};
