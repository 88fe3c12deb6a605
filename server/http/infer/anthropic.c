/* Anthropic's words: errors and models. What is asked is read in anthropic_read.c and anthropic_messages.c, what is
 * answered told in anthropic_answer.c. */
#include "common/base/clock.h"
#include "server/http/infer/inside.h"

#include <stdio.h>
#include <string.h>

struct shape {
	int http;
	const char *type;
};

static struct shape shape_of(enum status status)
{
	switch (status) {
	case STATUS_UNAUTHENTICATED:
		return (struct shape){401, "authentication_error"};
	case STATUS_FORBIDDEN:
		return (struct shape){403, "permission_error"};
	case STATUS_NOT_FOUND:
	case STATUS_METHOD_NOT_FOUND:
		return (struct shape){404, "not_found_error"};
	case STATUS_RATE_LIMITED:
		return (struct shape){429, "rate_limit_error"};
	case STATUS_PARSE_ERROR:
	case STATUS_INVALID_REQUEST:
	case STATUS_INVALID_PARAMS:
	case STATUS_CONFLICT:
		return (struct shape){400, "invalid_request_error"};
	case STATUS_LIMIT_EXCEEDED:
		return (struct shape){413, "request_too_large"};
	case STATUS_DEVICE_LOST:
	case STATUS_UNAVAILABLE:
		return (struct shape){529, "overloaded_error"};
	case STATUS_TIMEOUT:
		return (struct shape){504, "timeout_error"};
	case STATUS_OK:
	case STATUS_PENDING:
	case STATUS_INTERNAL:
	case STATUS_OUT_OF_MEMORY:
	case STATUS_COUNT:
		break;
	}
	return (struct shape){500, "api_error"};
}

// Clients that shorten a conversation know a prompt that is too long by this sentence.
static bool name_too_long(const struct fault *fault, char *out, size_t size)
{
	size_t tokens;
	unsigned most;
	const char *message = fault->error->message;
	if (!fault->of_model || fault->error->status != STATUS_LIMIT_EXCEEDED ||
	    (sscanf(message, "the prompt has %zu tokens; with the answer the context holds %u", &tokens, &most) != 2 &&
	     sscanf(message, "the prompt has %zu tokens; there is memory for %u", &tokens, &most) != 2))
		return false;
	snprintf(out, size, "prompt is too long: %zu tokens > %u maximum", tokens, most);
	return true;
}

static int fail(const struct fault *fault, struct json **out)
{
	char message[700];
	const struct error *error = fault->error;
	struct shape shape = shape_of(error->status);
	struct json *inside = json_new_object();
	if (name_too_long(fault, message, sizeof message))
		shape = shape_of(STATUS_INVALID_PARAMS);
	else
		snprintf(message, sizeof message, "%s%s%s",
			 error->message[0] ? error->message : status_text(error->status), error->hint[0] ? "; " : "",
			 error->hint);
	json_set_string(inside, "type", shape.type);
	json_set_string(inside, "message", message);
	*out = json_new_object();
	json_set_string(*out, "type", "error");
	json_set(*out, "error", inside);
	json_set_string(*out, "request_id", fault->request_id);
	return shape.http;
}

static struct json *model_json(const struct model_record *model, bool loaded)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object();
	(void)loaded;
	clock_format(model->added_ms, at);
	json_set_string(json, "type", "model");
	json_set_string(json, "id", model->name);
	json_set_string(json, "display_name", model->name);
	json_set_string(json, "created_at", at);
	return json;
}

// All of them: there are no further pages.
static struct json *models_json(struct json *list)
{
	const struct json *first = json_first(list), *last = first;
	struct json *json = json_new_object();
	while (json_next(last))
		last = json_next(last);
	json_set_string(json, "first_id", json_get_string(first, "id", NULL));
	json_set_string(json, "last_id", json_get_string(last, "id", NULL));
	json_set_bool(json, "has_more", false);
	json_set(json, "data", list);
	return json;
}

const struct wording anthropic_wording = {.id_header = "request-id:",
					  .names_events = true,
					  .whole_calls = true,
					  .read = anthropic_read,
					  .fail = fail,
					  .begin = anthropic_begin,
					  .tell = anthropic_tell,
					  .end = anthropic_end,
					  .model = model_json,
					  .models = models_json};
