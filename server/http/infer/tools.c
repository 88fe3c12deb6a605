/* Tools of a request, whatever its API calls them: what may be called, and what has to be, as generate.start has it
 * (schema/node.json). What the schemas of their parameters say is looked at by the model's worker. */
#include "server/http/infer/inside.h"

#include <string.h>

enum {
	TOOLS_MOST = 256,
	SCHEMA_BYTES = 256 * 1024,
	SCHEMA_NESTING = LIMIT_NESTING - 8, // what is asked of a worker has them deeper inside than a body
};

bool infer_is_function(const char *name)
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
	if (!value)
		return STATUS_OK;
	if (json_type(value) != JSON_OBJECT)
		return reading_wrong(reading, "must have functions whose parameters are a JSON Schema: an object");
	if (!is_flat(value, SCHEMA_NESTING))
		return error_set(reading->error, STATUS_INVALID_PARAMS,
				 "tools have parameters that are nested deeper than %d", SCHEMA_NESTING);
	buffer_init(&text, SCHEMA_BYTES);
	const enum status status = json_print(value, &text) ? reading_wrong(reading, "have parameters of "
										     "more than 256 KiB")
							    : STATUS_OK;
	buffer_finish(&text);
	json_set(function, "parameters", json_copy(value));
	return status;
}

enum status reading_add_function(struct reading *reading, const struct function *given)
{
	struct answer *answer = reading->answer;
	if (!infer_is_function(given->name))
		return reading_wrong(reading, "must have functions with a name of 1 to 64 letters, digits, _, - and .");
	if (has_function(answer->tools, given->name))
		return error_set(reading->error, STATUS_INVALID_PARAMS, "tools name the function %.64s twice",
				 given->name);
	if (json_count(answer->tools) == TOOLS_MOST)
		return reading_wrong(reading, "must be a list of functions, 256 at most");
	if (given->description && json_type(given->description) != JSON_STRING)
		return reading_wrong(reading, "must have functions whose description is a text");
	if (given->strict && json_type(given->strict) != JSON_BOOL)
		return reading_wrong(reading, "must have functions whose strict is true or false");
	if (!answer->tools)
		answer->tools = json_new_array();
	struct json *tool = json_new_object(), *function = json_new_object();
	json_push(answer->tools, tool);
	json_set_string(tool, "type", "function");
	json_set(tool, "function", function);
	json_set_string(function, "name", given->name);
	if (given->description)
		json_set_string(function, "description", json_string(given->description, ""));
	const enum status status = read_parameters(reading, given->parameters, function);
	if (json_bool(given->strict, false))
		json_set_bool(function, "strict", true);
	return status;
}

void reading_choose_tool(struct reading *reading, const char *mode, const char *name)
{
	struct json *choice = json_new_object();
	json_set_string(choice, "mode", mode);
	if (name)
		json_set_string(choice, "name", name);
	json_set(reading->call, "tool_choice", choice);
}

enum status reading_check_tools(struct reading *reading, const char *form)
{
	struct answer *answer = reading->answer;
	const struct json *choice = json_get(reading->call, "tool_choice");
	const char *mode = json_get_string(choice, "mode", "auto"), *name = json_get_string(choice, "name", NULL);
	const bool demanded = !strcmp(mode, "required");
	reading->param = "tool_choice";
	if (demanded && !answer->tools)
		return reading_wrong(reading, "demands a call, and there are no tools");
	if (name && !has_function(answer->tools, name))
		return error_set(reading->error, STATUS_INVALID_PARAMS,
				 "tool_choice names the function "
				 "%.64s, which tools do not",
				 name);
	if (demanded && json_get(reading->call, "form"))
		return error_set(reading->error, STATUS_INVALID_PARAMS,
				 "tool_choice demands a call, and %s another form: one of them", form);
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
