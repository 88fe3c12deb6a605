/* See delivered.h. */
#include "server/instances/requests/delivered.h"

#include <stdlib.h>
#include <string.h>

bool delivered_keep(struct delivered *delivered, const struct json *params)
{
	const struct json *tokens = json_get(params, "tokens");
	const size_t count = json_count(tokens), bytes = strlen(json_get_string(params, "text", ""));
	if (delivered->count + count > delivered->capacity) {
		size_t capacity = 2 * delivered->capacity + count + 64;
		uint32_t *grown = realloc(delivered->tokens, capacity * sizeof(*grown));
		if (!grown)
			return false;
		delivered->tokens = grown;
		delivered->capacity = capacity;
	}
	for (const struct json *token = json_first(tokens); token; token = json_next(token)) {
		int64_t value = 0;
		json_integer(token, &value);
		delivered->tokens[delivered->count++] = (uint32_t)value;
	}
	const size_t choices = json_count(json_get(params, "choices"));
	if (delivered->count)
		delivered->text_bytes += bytes;
	else
		delivered->echo_bytes += bytes;
	if (!delivered->count)
		delivered->echo_choices += choices;
	return true;
}

struct json *delivered_rest(struct delivered *delivered, const struct json *params)
{
	if ((!delivered->skip_bytes && !delivered->skip_choices) || delivered->count)
		return NULL;
	struct json *rest = json_copy(params), *choices = json_new_array();
	const char *text = json_get_string(params, "text", "");
	const size_t skip = delivered->skip_bytes < strlen(text) ? (size_t)delivered->skip_bytes : strlen(text);
	delivered->skip_bytes -= skip;
	json_set_string(rest, "text", text + skip);
	for (const struct json *one = json_first(json_get(params, "choices")); one; one = json_next(one))
		if (delivered->skip_choices)
			delivered->skip_choices--;
		else
			json_push(choices, json_copy(one));
	if (json_get(params, "choices"))
		json_set(rest, "choices", choices);
	else
		json_destroy(&choices);
	return rest;
}

void delivered_resume(struct delivered *delivered, struct json *call)
{
	delivered->skip_bytes = delivered->echo_bytes;
	delivered->skip_choices = delivered->echo_choices;
	if (!delivered->count)
		return;
	struct json *tokens = json_new_array();
	for (size_t i = 0; i < delivered->count; i++)
		json_push(tokens, json_new_integer(delivered->tokens[i]));
	json_set(call, "generated", tokens);
	json_set_integer(call, "delivered_bytes", (int64_t)delivered->text_bytes);
	json_set_bool(call, "echo", false);
}

void delivered_finish(struct delivered *delivered)
{
	free(delivered->tokens);
	*delivered = (struct delivered){0};
}
