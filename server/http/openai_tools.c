/* Tools of a request: what may be called, and what has to be, as generate.start has it (schema/node.json). What the
 * schemas of their parameters say is looked at by the model's worker. */
#include "server/http/openai_inside.h"

#include <string.h>

enum {
	TOOLS_MOST = 256,
	SCHEMA_BYTES = 256 * 1024,
	SCHEMA_NESTING = LIMIT_NESTING - 8, // what is asked of a worker has them deeper inside than a body
};

bool openai_is_function(const char *name)
{
	size_t length = 0;
	for (; name[length] && length <= 64; length++) {
		const char byte = name[length];
		if (!((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
		      byte == '_' || byte == '-' || byte == '.'))
			return false;
	}
	return length > 0 && length <= 64;
}

static bool is_absent(const struct json *value)
{
	return !value || json_type(value) == JSON_NULL;
}

static bool has_function(const struct json *tools, const char *name)
{
	const struct json *one = json_first(tools);
	while (one && strcmp(json_get_string(json_get(one, "function"), "name", ""), name) != 0)
		one = json_next(one);
	return one != NULL;
}

// That values lie no more than so many deep in each other.
static bool is_flat(const struct json *value, int most)
{
	if (json_type(value) != JSON_OBJECT && json_type(value) != JSON_ARRAY)
		return true;
	bool flat = most > 0;
	for (const struct json *one = json_first(value); one && flat; one = json_next(one))
		flat = is_flat(one, most - 1);
	return flat;
}

static enum status read_parameters(struct reading *reading, const struct json *value, struct json *function)
{
	struct buffer text;
	if (is_absent(value))
		return STATUS_OK;
	if (json_type(value) != JSON_OBJECT)
		return openai_wrong(reading, "must have functions whose parameters are a JSON Schema: an object");
	if (!is_flat(value, SCHEMA_NESTING))
		return error_set(reading->error, STATUS_INVALID_PARAMS,
				 "tools have parameters that are nested deeper than %d", SCHEMA_NESTING);
	buffer_init(&text, SCHEMA_BYTES);
	const enum status status = json_print(value, &text) ? openai_wrong(reading, "have parameters of "
										    "more than 256 KiB")
							    : STATUS_OK;
	buffer_finish(&text);
	json_set(function, "parameters", json_copy(value));
	return status;
}

static enum status read_tool(struct reading *reading, const struct json *value, struct json *list)
{
	const struct json *given = json_get(value, "function"), *strict = json_get(given, "strict");
	const struct json *description = json_get(given, "description");
	const char *name = json_get_string(given, "name", "");
	if (strcmp(json_get_string(value, "type", ""), "function") != 0)
		return openai_wrong(reading, "must each have the type function");
	if (!openai_is_function(name))
		return openai_wrong(reading, "must have functions with a name of 1 to 64 letters, digits, _, - and .");
	if (has_function(list, name))
		return error_set(reading->error, STATUS_INVALID_PARAMS, "tools name the function %.64s twice", name);
	if (!is_absent(description) && json_type(description) != JSON_STRING)
		return openai_wrong(reading, "must have functions whose description is a text");
	if (!is_absent(strict) && json_type(strict) != JSON_BOOL)
		return openai_wrong(reading, "must have functions whose strict is true or false");
	struct json *tool = json_new_object(), *function = json_new_object();
	json_push(list, tool);
	json_set_string(tool, "type", "function");
	json_set(tool, "function", function);
	json_set_string(function, "name", name);
	if (!is_absent(description))
		json_set_string(function, "description", json_string(description, ""));
	const enum status status = read_parameters(reading, json_get(given, "parameters"), function);
	if (json_bool(strict, false))
		json_set_bool(function, "strict", true);
	return status;
}

enum status openai_read_tools(struct reading *reading, const struct json *value)
{
	enum status status = STATUS_OK;
	if (json_type(value) != JSON_ARRAY || json_count(value) > TOOLS_MOST)
		return openai_wrong(reading, "must be a list of functions, 256 at most");
	if (!json_count(value))
		return STATUS_OK;
	reading->answer->tools = json_new_array();
	for (const struct json *one = json_first(value); one && !status; one = json_next(one))
		status = read_tool(reading, one, reading->answer->tools);
	return status;
}

// "none", "auto", "required", or {"type": "function", "function": {"name": NAME}}.
enum status openai_read_tool_choice(struct reading *reading, const struct json *value)
{
	const char *text = json_string(value, "");
	struct json *choice = json_new_object();
	json_set(reading->call, "tool_choice", choice);
	if (!strcmp(text, "none") || !strcmp(text, "auto") || !strcmp(text, "required")) {
		json_set_string(choice, "mode", text);
		return STATUS_OK;
	}
	const char *name = json_get_string(json_get(value, "function"), "name", "");
	if (strcmp(json_get_string(value, "type", ""), "function") != 0 || !openai_is_function(name))
		return openai_wrong(reading, "must be none, auto, required, or the function to call: "
					     "{\"type\": \"function\", \"function\": {\"name\": NAME}}");
	json_set_string(choice, "mode", "required");
	json_set_string(choice, "name", name);
	return STATUS_OK;
}

enum status openai_check_tools(struct reading *reading)
{
	struct answer *answer = reading->answer;
	const struct json *choice = json_get(reading->call, "tool_choice");
	const char *mode = json_get_string(choice, "mode", "auto"), *name = json_get_string(choice, "name", NULL);
	const bool demanded = !strcmp(mode, "required");
	reading->param = "tool_choice";
	if (demanded && !answer->tools)
		return openai_wrong(reading, "demands a call, and there are no tools");
	if (name && !has_function(answer->tools, name))
		return error_set(reading->error, STATUS_INVALID_PARAMS,
				 "tool_choice names the function "
				 "%.64s, which tools do not",
				 name);
	if (demanded && json_get(reading->call, "form"))
		return openai_wrong(reading, "demands a call, and response_format another form: one of them");
	if (!strcmp(mode, "none"))
		json_destroy(&answer->tools);
	if (!answer->tools) {
		json_remove(reading->call, "tool_choice");
		json_remove(reading->call, "parallel_tool_calls");
		return STATUS_OK;
	}
	json_set(reading->call, "tools", json_copy(answer->tools));
	return STATUS_OK;
}

enum status openai_read_effort(struct reading *reading, const struct json *value)
{
	static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", NULL};
	const char *const *one = efforts;
	while (*one && strcmp(*one, json_string(value, "")) != 0)
		one++;
	if (!*one)
		return openai_wrong(reading, "must be none, minimal, low, medium, high or xhigh");
	json_set_string(reading->call, "reasoning_effort", *one);
	return STATUS_OK;
}
