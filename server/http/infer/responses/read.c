/* A body of /v1/responses as what a worker is asked (generate.start of schema/node.json): its parameters. Input is read
 * in input.c, tools in tools.c. What the object of an answer repeats of its request gathers in `repeats`. */
#include "server/http/infer/responses/responses.h"

#include <string.h>

enum {
	RESPONSE = 1 << ENDPOINT_RESPONSES,
	RESPONSE_TOKENS = 32768, // of an answer, where it is not said: agents write whole files
	METADATA_MOST = 16,      // members
	METADATA_NAME_BYTES = 64,
	METADATA_VALUE_BYTES = 512,
};

static struct json *repeats_of(const struct reading *reading)
{
	return reading->answer->response.repeats;
}

static void repeat(const struct reading *reading, const struct json *value)
{
	json_set(repeats_of(reading), reading->param, json_copy(value));
}

static enum status read_and_repeat(struct reading *reading, const struct json *value)
{
	if (json_type(value) != JSON_STRING)
		return reading_wrong(reading, "must be a text");
	repeat(reading, value);
	return STATUS_OK;
}

static enum status read_number(struct reading *reading, const struct json *value)
{
	return reading_number(reading, value, 0, strcmp(reading->param, "top_p") == 0 ? 1 : 2);
}

static enum status read_max_output_tokens(struct reading *reading, const struct json *value)
{
	repeat(reading, value);
	return read_max_tokens(reading, value);
}

static enum status read_parallel_calls(struct reading *reading, const struct json *value)
{
	repeat(reading, value);
	return read_parallel(reading, value);
}

static enum status read_previous(struct reading *reading, const struct json *value)
{
	(void)value;
	return reading_refuse(reading, "answers are not kept: send the whole conversation as input");
}

static enum status read_top_logprobs(struct reading *reading, const struct json *value)
{
	return json_number(value, -1) == 0 ? STATUS_OK : reading_refuse(reading, "/v1/chat/completions has logprobs");
}

static enum status read_truncation(struct reading *reading, const struct json *value)
{
	if (!strcmp(json_string(value, ""), "disabled"))
		return STATUS_OK;
	error_hint(reading->error, "shorten the input yourself");
	return reading_wrong(reading, "must be disabled: nothing of an input is left out here");
}

static enum status read_stream_options(struct reading *reading, const struct json *value)
{
	static const struct known known[] = {{"include_obfuscation", KNOWN_READ}, {0}}; // it changes no answer
	return json_type(value) == JSON_OBJECT ? reading_known(reading, value, known, "stream_options")
					       : reading_wrong(reading, "must be an object");
}

// What may come along with an answer. Some of it belongs to tools that are not here, and so never comes.
static enum status read_include(struct reading *reading, const struct json *value)
{
	static const char *const never[] = {
		"web_search_call.results",       "web_search_call.action.sources",        "file_search_call.results",
		"code_interpreter_call.outputs", "computer_call_output.output.image_url", NULL};
	if (json_type(value) != JSON_ARRAY)
		return reading_wrong(reading, "must be a list");
	for (const struct json *one = json_first(value); one; one = json_next(one)) {
		const char *const *name = never;
		while (*name && strcmp(*name, json_string(one, "")) != 0)
			name++;
		if (!strcmp(json_string(one, ""), "reasoning.encrypted_content"))
			reading->answer->response.encloses = true;
		else if (!*name)
			return error_set(reading->error, STATUS_INVALID_PARAMS,
					 "include: \"%.64s\" is not supported here", json_string(one, ""));
	}
	return STATUS_OK;
}

// A client's own notes. Those about tools that were left out may be there already.
static enum status read_metadata(struct reading *reading, const struct json *value)
{
	const struct json *noted = json_get(repeats_of(reading), "metadata");
	struct json *metadata = json_new_object();
	bool good = json_type(value) == JSON_OBJECT && json_count(value) <= METADATA_MOST;
	for (const struct json *one = good ? json_first(value) : NULL; one && good; one = json_next(one)) {
		good = json_type(one) == JSON_STRING && strlen(json_name(one)) <= METADATA_NAME_BYTES &&
		       strlen(json_string(one, "")) <= METADATA_VALUE_BYTES;
		json_set(metadata, json_name(one), json_copy(one));
	}
	for (const struct json *one = json_first(noted); one; one = json_next(one))
		json_set(metadata, json_name(one), json_copy(one));
	json_set(repeats_of(reading), "metadata", metadata);
	return good ? STATUS_OK
		    : reading_wrong(reading, "must be an object of 16 texts at most, each of 512 bytes at most");
}

// Thoughts come whole, so a summary is made of none.
static enum status read_reasoning(struct reading *reading, const struct json *value)
{
	static const struct known known[] = {
		{"effort", KNOWN_TEXT}, {"summary", KNOWN_TEXT}, {"generate_summary", KNOWN_TEXT}, {0}};
	const struct json *effort = json_get(value, "effort");
	if (json_type(value) != JSON_OBJECT)
		return reading_wrong(reading, "must be an object");
	if (reading_known(reading, value, known, "reasoning"))
		return STATUS_INVALID_PARAMS;
	repeat(reading, value);
	if (!effort || json_type(effort) == JSON_NULL)
		return STATUS_OK;
	reading->param = "reasoning.effort";
	return openai_read_effort(reading, effort);
}

// {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "name", "schema", ...}
static enum status read_format(struct reading *reading, const struct json *format)
{
	static const struct known known[] = {{"type", KNOWN_TEXT},        {"name", KNOWN_TEXT},
					     {"description", KNOWN_TEXT}, {"schema", KNOWN_READ},
					     {"strict", KNOWN_READ},      {0}};
	const char *type = json_get_string(format, "type", "");
	const struct json *schema = json_get(format, "schema");
	reading->param = "text.format";
	if (reading_known(reading, format, known, "text.format"))
		return STATUS_INVALID_PARAMS;
	if (!strcmp(type, "text"))
		return STATUS_OK;
	if (!strcmp(type, "json_object")) {
		struct json *form = json_new_object();
		json_set_string(form, "kind", "json");
		json_set(reading->call, "form", form);
		return STATUS_OK;
	}
	if (strcmp(type, "json_schema") != 0 || json_type(schema) != JSON_OBJECT)
		return reading_wrong(reading, "must have a type: text, json_object, or json_schema and a schema");
	return reading_set_schema(reading, schema);
}

static enum status read_text(struct reading *reading, const struct json *value)
{
	static const struct known known[] = {{"format", KNOWN_READ}, {"verbosity", KNOWN_TEXT}, {0}};
	const struct json *format = json_get(value, "format");
	if (json_type(value) != JSON_OBJECT)
		return reading_wrong(reading, "must be an object");
	if (reading_known(reading, value, known, "text"))
		return STATUS_INVALID_PARAMS;
	repeat(reading, value);
	if (strcmp(json_get_string(value, "verbosity", "medium"), "medium") != 0) {
		reading->param = "text.verbosity";
		return reading_refuse(reading, "models here know no verbosity: say in the instructions how long "
					       "answers are to be");
	}
	return !format || json_type(format) == JSON_NULL ? STATUS_OK : read_format(reading, format);
}

static const struct parameter parameters[] = {
	{"model", RESPONSE, read_model},
	{"input", RESPONSE, responses_read_input},
	{"instructions", RESPONSE, read_and_repeat}, // with the input, whose first message they become
	{"stream", RESPONSE, read_stream},
	{"include_energy", RESPONSE, read_energy},
	{"speculate", RESPONSE, read_speculate},
	{"stream_options", RESPONSE, read_stream_options},
	{"max_output_tokens", RESPONSE, read_max_output_tokens},
	{"temperature", RESPONSE, read_number},
	{"top_p", RESPONSE, read_number},
	{"tools", RESPONSE, responses_read_tools},
	{"tool_choice", RESPONSE, responses_read_tool_choice},
	{"parallel_tool_calls", RESPONSE, read_parallel_calls},
	{"reasoning", RESPONSE, read_reasoning},
	{"text", RESPONSE, read_text},
	{"include", RESPONSE, read_include},
	{"metadata", RESPONSE, read_metadata},
	{"truncation", RESPONSE, read_truncation},
	{"top_logprobs", RESPONSE, read_top_logprobs},
	{"store", RESPONSE, read_nothing},
	{"background", RESPONSE, read_nothing},
	{"context_management", RESPONSE, read_nothing},
	// What says who asks, what to keep or how to bill it changes no answer. Calls of tools that are not here are
	// fewer than any number.
	{"user", RESPONSE, read_and_repeat},
	{"safety_identifier", RESPONSE, read_and_repeat},
	{"prompt_cache_key", RESPONSE, read_and_repeat},
	{"prompt_cache_retention", RESPONSE, read_and_ignore},
	{"prompt_cache_options", RESPONSE, read_and_ignore},
	{"client_metadata", RESPONSE, read_and_ignore}, // Codex's
	{"service_tier", RESPONSE, read_and_ignore},
	{"max_tool_calls", RESPONSE, read_and_ignore},
	// What would.
	{"previous_response_id", RESPONSE, read_previous},
	{"conversation", RESPONSE, read_previous},
	{"prompt", RESPONSE, NULL},
	{"moderation", RESPONSE, NULL},
	{NULL, 0, NULL},
};

static enum status check(struct reading *reading)
{
	if (!reading->answer->model[0])
		return reading_missing(reading, "model");
	if (!json_get(reading->call, "prompt"))
		return reading_missing(reading, "input");
	return reading_check_tools(reading, "text.format");
}

// What the object of an answer has although the request did not say it.
static struct json *new_repeats(void)
{
	static const char *const nothing[] = {"error",
					      "incomplete_details",
					      "instructions",
					      "max_output_tokens",
					      "previous_response_id",
					      "prompt_cache_key",
					      "safety_identifier",
					      "user",
					      NULL};
	struct json *repeats = json_new_object(), *text = json_new_object(), *format = json_new_object();
	struct json *reasoning = json_new_object();
	for (const char *const *name = nothing; *name; name++)
		json_set_null(repeats, *name);
	json_set_string(format, "type", "text");
	json_set(text, "format", format);
	json_set(repeats, "text", text);
	json_set_null(reasoning, "effort");
	json_set_null(reasoning, "summary");
	json_set(repeats, "reasoning", reasoning);
	json_set(repeats, "tools", json_new_array());
	json_set_string(repeats, "tool_choice", "auto");
	json_set_bool(repeats, "parallel_tool_calls", true);
	json_set(repeats, "metadata", json_new_object());
	json_set_string(repeats, "truncation", "disabled");
	json_set_string(repeats, "service_tier", "default");
	json_set_integer(repeats, "top_logprobs", 0);
	json_set_bool(repeats, "background", false);
	json_set_bool(repeats, "store", false);
	return repeats;
}

enum status responses_read(struct reading *reading)
{
	reading->answer->response.repeats = new_repeats();
	enum status status = reading_all(reading, parameters);
	if (!status)
		status = check(reading);
	if (status)
		return status;
	json_set_bool(reading->call, "talks", true);
	return reading_fill_in(reading, RESPONSE_TOKENS);
}
