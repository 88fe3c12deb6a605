/* A body as Anthropic's clients send it, as what a worker is asked (generate.start of schema/node.json): the parameters
 * of /v1/messages and /v1/messages/count_tokens. Messages and tools are read in anthropic_messages.c. */
#include "server/http/infer/inside.h"

#include <string.h>

enum {
	CHAT = 1 << ENDPOINT_MESSAGES,
	COUNT = 1 << ENDPOINT_COUNT_TOKENS,
	ANY = CHAT | COUNT,
	BUDGET_LEAST = 1024, // tokens of a thought
	BUDGET_MOST = 16777216,
};

static enum status wrong(struct reading *reading, const char *what)
{
	return reading_wrong(reading, what);
}

static enum status read_temperature(struct reading *reading, const struct json *value)
{
	return reading_number(reading, value, 0, 1);
}

// The tools of a server are no tools of this one: an empty list asks for nothing.
static enum status read_servers(struct reading *reading, const struct json *value)
{
	return json_type(value) == JSON_ARRAY && !json_count(value)
		       ? STATUS_OK
		       : reading_refuse(reading, "give the client the tools, and name them in tools");
}

// {"type": "auto" | "any" | "none" | "tool", "name", "disable_parallel_tool_use"}
static enum status read_tool_choice(struct reading *reading, const struct json *value)
{
	static const char *const modes[][2] = {
		{"auto", "auto"}, {"any", "required"}, {"none", "none"}, {"tool", "required"}};
	const char *type = json_get_string(value, "type", ""), *name = json_get_string(value, "name", NULL);
	const struct json *single = json_get(value, "disable_parallel_tool_use");
	const bool named = !strcmp(type, "tool");
	size_t at = 0;
	while (at < 4 && strcmp(modes[at][0], type) != 0)
		at++;
	if (at == 4 || (named && !infer_is_function(name ? name : "")))
		return wrong(reading, "must be an object with a type: auto, any, none, or tool and the name of one");
	if (single && json_type(single) != JSON_BOOL)
		return wrong(reading, "must have a disable_parallel_tool_use that is true or false");
	reading_choose_tool(reading, modes[at][1], named ? name : NULL);
	if (json_bool(single, false))
		json_set_bool(reading->call, "parallel_tool_calls", false);
	return STATUS_OK;
}

// How long a thought becomes is the model's affair: a budget bounds nothing here, max_tokens does.
static enum status read_thinking(struct reading *reading, const struct json *value)
{
	static const struct known known[] = {
		{"type", KNOWN_TEXT}, {"budget_tokens", KNOWN_READ}, {"display", KNOWN_TEXT}, {0}};
	const char *type = json_get_string(value, "type", ""),
		   *display = json_get_string(value, "display", "summarized");
	const struct json *budget = json_get(value, "budget_tokens");
	int64_t tokens;
	const bool enabled = !strcmp(type, "enabled");
	if (!enabled && strcmp(type, "adaptive") != 0 && strcmp(type, "disabled") != 0)
		return wrong(reading, "must be an object with a type: enabled, adaptive or disabled");
	if (reading_known(reading, value, known, "thinking"))
		return STATUS_INVALID_PARAMS;
	if (enabled && (json_integer(budget, &tokens) || tokens < BUDGET_LEAST || tokens > BUDGET_MOST))
		return wrong(reading, "must have budget_tokens, an integer from 1024 on, if its type is enabled");
	if (strcmp(display, "summarized") != 0 && strcmp(display, "omitted") != 0)
		return wrong(reading, "must have a display that is summarized or omitted");
	reading->answer->hides_thoughts = !strcmp(type, "disabled") || !strcmp(display, "omitted");
	json_set_string(reading->call, "reasoning_effort", !strcmp(type, "disabled") ? "none" : "medium");
	return STATUS_OK;
}

// {"type": "json_schema", "schema": SCHEMA}
static enum status read_format(struct reading *reading, const struct json *value)
{
	const struct json *schema = json_get(value, "schema");
	if (json_type(value) == JSON_NULL)
		return STATUS_OK;
	if (strcmp(json_get_string(value, "type", ""), "json_schema") != 0 || json_type(schema) != JSON_OBJECT)
		return wrong(reading, "must have a format with the type json_schema and a schema");
	return reading_set_schema(reading, schema);
}

static enum status read_effort(struct reading *reading, const struct json *value)
{
	static const char *const efforts[][2] = {
		{"low", "low"}, {"medium", "medium"}, {"high", "high"}, {"xhigh", "xhigh"}, {"max", "xhigh"}};
	const size_t count = sizeof efforts / sizeof *efforts;
	size_t at = 0;
	if (!value || json_type(value) == JSON_NULL)
		return STATUS_OK;
	while (at < count && strcmp(efforts[at][0], json_string(value, "")) != 0)
		at++;
	if (at == count)
		return wrong(reading, "must have an effort that is low, medium, high, xhigh or max");
	reading->effort = efforts[at][1];
	return STATUS_OK;
}

static enum status read_output_config(struct reading *reading, const struct json *value)
{
	static const struct known known[] = {{"effort", KNOWN_TEXT}, {"format", KNOWN_READ}, {0}};
	if (json_type(value) != JSON_OBJECT)
		return wrong(reading, "must be an object");
	if (reading_known(reading, value, known, "output_config"))
		return STATUS_INVALID_PARAMS;
	const enum status status = read_effort(reading, json_get(value, "effort"));
	return status || !json_get(value, "format") ? status : read_format(reading, json_get(value, "format"));
}

static const struct parameter parameters[] = {
	{"model", ANY, read_model},
	{"messages", ANY, anthropic_read_messages},
	{"system", ANY, read_and_ignore}, // with messages, whose first it becomes
	{"max_tokens", CHAT, read_max_tokens},
	{"stop_sequences", CHAT, read_stop},
	{"stream", CHAT, read_stream},
	{"include_energy", CHAT, read_energy},
	{"speculate", CHAT, read_speculate},
	{"temperature", CHAT, read_temperature},
	{"top_p", CHAT, read_temperature}, // from 0 to 1 as well
	{"top_k", CHAT, read_top_k},
	{"tools", ANY, anthropic_read_tools},
	{"tool_choice", ANY, read_tool_choice},
	{"thinking", ANY, read_thinking},
	{"output_config", ANY, read_output_config},
	{"output_format", ANY, read_format},
	{"mcp_servers", ANY, read_servers},
	// What says who asks, what to keep or how to bill it changes no answer. A context is not edited: what would be
	// left out of it stays.
	{"metadata", CHAT, read_and_ignore},
	{"cache_control", ANY, read_and_ignore},
	{"context_management", ANY, read_and_ignore},
	{"service_tier", CHAT, read_and_ignore},
	{"speed", ANY, read_and_ignore},
	{"inference_geo", CHAT, read_and_ignore},
	// What would.
	{"container", CHAT, NULL},
	{NULL, 0, NULL},
};

static enum status check(struct reading *reading)
{
	if (!reading->answer->model[0])
		return reading_missing(reading, "model");
	if (reading->answer->endpoint == ENDPOINT_MESSAGES && !json_get(reading->call, "max_tokens"))
		return reading_missing(reading, "max_tokens");
	if (!json_get(reading->call, "prompt"))
		return reading_missing(reading, "messages");
	return reading_check_tools(reading, "output_config.format");
}

// Who does not ask for thoughts gets none: a model that can leave them does, of another they are not told.
static void settle_thinking(struct reading *reading)
{
	struct answer *answer = reading->answer;
	if (!json_get(reading->call, "reasoning_effort")) {
		answer->hides_thoughts = true;
		json_set_string(reading->call, "reasoning_effort", "none");
	} else if (reading->effort && strcmp(json_get_string(reading->call, "reasoning_effort", ""), "none") != 0) {
		json_set_string(reading->call, "reasoning_effort", reading->effort);
	}
	json_set_bool(reading->call, "effort_optional", true);
}

// Of what is asked only the prompt counts.
static void keep_prompt(struct reading *reading)
{
	static const char *const rest[] = {"tool_choice", "parallel_tool_calls", "form", NULL};
	for (const char *const *one = rest; *one; one++)
		json_remove(reading->call, *one);
}

enum status anthropic_read(struct reading *reading)
{
	enum status status = reading_all(reading, parameters);
	if (!status)
		status = check(reading);
	if (status)
		return status;
	settle_thinking(reading);
	if (reading->answer->endpoint == ENDPOINT_COUNT_TOKENS) {
		keep_prompt(reading);
		reading->answer->counts = true;
		return STATUS_OK;
	}
	json_set_bool(reading->call, "talks", true);
	return reading_fill_in(reading, 0);
}
