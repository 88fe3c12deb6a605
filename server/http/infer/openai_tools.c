/* Tools of a chat in OpenAI's words. */
#include "server/http/infer/inside.h"

#include <string.h>

static const struct json *present(const struct json *object, const char *name)
{
	const struct json *value = json_get(object, name);
	return json_type(value) == JSON_NULL ? NULL : value;
}

enum status openai_read_tools(struct reading *reading, const struct json *value)
{
	enum status status = STATUS_OK;
	if (json_type(value) != JSON_ARRAY)
		return reading_wrong(reading, "must be a list of functions, 256 at most");
	for (const struct json *one = json_first(value); one && !status; one = json_next(one)) {
		const struct json *given = json_get(one, "function");
		const struct function function = {.name = json_get_string(given, "name", ""),
						  .description = present(given, "description"),
						  .parameters = present(given, "parameters"),
						  .strict = present(given, "strict")};
		if (strcmp(json_get_string(one, "type", ""), "function") != 0)
			return reading_wrong(reading, "must each have the type function");
		status = reading_add_function(reading, &function);
	}
	return status;
}

// "none", "auto", "required", or {"type": "function", "function": {"name": NAME}}.
enum status openai_read_tool_choice(struct reading *reading, const struct json *value)
{
	const char *text = json_string(value, "");
	if (!strcmp(text, "none") || !strcmp(text, "auto") || !strcmp(text, "required")) {
		reading_choose_tool(reading, text, NULL);
		return STATUS_OK;
	}
	const char *name = json_get_string(json_get(value, "function"), "name", "");
	if (strcmp(json_get_string(value, "type", ""), "function") != 0 || !infer_is_function(name))
		return reading_wrong(reading, "must be none, auto, required, or the function to call: "
					      "{\"type\": \"function\", \"function\": {\"name\": NAME}}");
	reading_choose_tool(reading, "required", name);
	return STATUS_OK;
}

enum status openai_read_effort(struct reading *reading, const struct json *value)
{
	static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", NULL};
	const char *const *one = efforts;
	while (*one && strcmp(*one, json_string(value, "")) != 0)
		one++;
	if (!*one)
		return reading_wrong(reading, "must be none, minimal, low, medium, high or xhigh");
	json_set_string(reading->call, "reasoning_effort", *one);
	return STATUS_OK;
}
