/* `system`, `messages` and `tools` as Anthropic's clients send them, as generate.start has them (schema/node.json).
 *
 * Messages of one role that follow each other are one turn, as Anthropic has it. What a tool answers stands in a user's
 * turn and becomes a message of its own, in its place among that turn's texts. A message of the role system that comes
 * later than the first turn is part of a user's turn: many chat templates have no place for it. */
#include "server/http/infer/inside.h"

#include <string.h>

// Of blocks and tools: where a client's cache begins changes no answer. Prefixes are shared by themselves.
static const struct known known_text[] = {
	{"type", KNOWN_TEXT}, {"text", KNOWN_TEXT}, {"cache_control", KNOWN_READ}, {"citations", KNOWN_NOTHING}, {0}};
static const struct known known_thinking[] = {
	{"type", KNOWN_TEXT}, {"thinking", KNOWN_TEXT}, {"signature", KNOWN_TEXT}, {0}};
static const struct known known_use[] = {{"type", KNOWN_TEXT},          {"id", KNOWN_TEXT},
					 {"name", KNOWN_TEXT},          {"input", KNOWN_READ},
					 {"caller", KNOWN_READ}, // the model: it alone
					 {"cache_control", KNOWN_READ}, {0}};
static const struct known known_result[] = {{"type", KNOWN_TEXT},          {"tool_use_id", KNOWN_TEXT},
					    {"content", KNOWN_READ},       {"is_error", KNOWN_READ},
					    {"cache_control", KNOWN_READ}, {0}};
static const struct known known_message[] = {{"role", KNOWN_TEXT}, {"content", KNOWN_READ}, {0}};
static const struct known known_tool[] = {{"type", KNOWN_TEXT},
					  {"name", KNOWN_TEXT},
					  {"description", KNOWN_TEXT},
					  {"input_schema", KNOWN_READ},
					  {"strict", KNOWN_READ},
					  {"cache_control", KNOWN_READ},
					  {"eager_input_streaming", KNOWN_READ}, // calls come whole
					  {"defer_loading", KNOWN_NOTHING},
					  {"input_examples", KNOWN_NOTHING},
					  {0}};

// Where texts and nothing else may stand.
static enum status read_texts(struct reading *reading, const struct json *value, struct buffer *out, const char *whose)
{
	const struct json *first = json_first(value);
	if (json_type(value) == JSON_STRING)
		return buffer_append_text(out, json_string(value, ""));
	if (json_type(value) != JSON_ARRAY)
		return error_set(reading->error, STATUS_INVALID_PARAMS,
				 "%s: %s must be a text, or blocks of the type text", reading->param, whose);
	for (const struct json *one = first; one; one = json_next(one)) {
		const char *type = json_get_string(one, "type", "");
		if (strcmp(type, "text") != 0 || json_type(json_get(one, "text")) != JSON_STRING)
			return error_set(reading->error, STATUS_INVALID_PARAMS,
					 "%s: %s may have blocks of the type text; \"%.32s\" is not supported here",
					 reading->param, whose, type);
		if (reading_known(reading, one, known_text, whose))
			return STATUS_INVALID_PARAMS;
		if (one != first)
			buffer_append_text(out, "\n\n");
		buffer_append_text(out, json_get_string(one, "text", ""));
	}
	return STATUS_OK;
}

static enum status read_use(struct turns *turns, const struct json *block)
{
	struct buffer text;
	struct reading *reading = turns->reading;
	const char *id = json_get_string(block, "id", ""), *name = json_get_string(block, "name", "");
	const struct json *input = json_get(block, "input");
	if (!turns_is_id(id) || !infer_is_function(name) || json_type(input) != JSON_OBJECT)
		return reading_wrong(reading, "may have blocks of the type tool_use with an id, a name and an input");
	if (reading_known(reading, block, known_use, "a block of the type tool_use"))
		return STATUS_INVALID_PARAMS;
	buffer_init(&text, LIMIT_POST_BYTES);
	const enum status status = json_print(input, &text) ? reading_wrong(reading, "have an input that is too long")
							    : turns_call(turns, id, name, buffer_text(&text));
	buffer_finish(&text);
	return status;
}

// Templates have no place for a failure: the text begins with the word.
static enum status read_result(struct turns *turns, const struct json *block)
{
	struct buffer text;
	struct reading *reading = turns->reading;
	const char *id = json_get_string(block, "tool_use_id", "");
	const struct json *content = json_get(block, "content"), *failed = json_get(block, "is_error");
	if (!turns_is_id(id))
		return reading_wrong(reading, "may have blocks of the type tool_result with a tool_use_id");
	if (reading_known(reading, block, known_result, "a block of the type tool_result"))
		return STATUS_INVALID_PARAMS;
	if (failed && json_type(failed) != JSON_BOOL && json_type(failed) != JSON_NULL)
		return reading_wrong(reading,
				     "may have blocks of the type tool_result whose is_error is true or false");
	buffer_init(&text, LIMIT_POST_BYTES);
	if (json_bool(failed, false))
		buffer_append_text(&text, "Error: ");
	const enum status status = content ? read_texts(reading, content, &text, "a tool_result") : STATUS_OK;
	turns_result(turns, id, buffer_text(&text));
	buffer_finish(&text);
	return status;
}

static enum status read_block(struct turns *turns, const struct json *block)
{
	struct reading *reading = turns->reading;
	const bool answer = !strcmp(turns->role, "assistant");
	const char *type = json_get_string(block, "type", "");
	if (!strcmp(type, "text")) {
		if (json_type(json_get(block, "text")) != JSON_STRING)
			return reading_wrong(reading, "must have blocks of the type text with a text");
		turns_text(turns, json_get_string(block, "text", ""));
		return reading_known(reading, block, known_text, "a block of the type text");
	}
	if (!strcmp(type, "tool_result") && !answer)
		return read_result(turns, block);
	if (!strcmp(type, "tool_use") && answer)
		return read_use(turns, block);
	if (!strcmp(type, "thinking") && answer) {
		turns_thought(turns, json_get_string(block, "thinking", ""));
		return reading_known(reading, block, known_thinking, "a block of the type thinking");
	}
	return error_set(reading->error, STATUS_INVALID_PARAMS,
			 "messages: a block of the type \"%.32s\" is not supported here, in a message of the role %s",
			 type, turns->role);
}

// ---- messages ----

static enum status read_message(struct turns *turns, const struct json *message)
{
	static const char *const roles[][2] = {{"user", "user"}, {"assistant", "assistant"}, {"system", "user"}};
	struct reading *reading = turns->reading;
	const char *given = json_get_string(message, "role", "");
	const struct json *content = json_get(message, "content");
	enum status status = STATUS_OK;
	size_t at = 0;
	while (at < 3 && strcmp(roles[at][0], given) != 0)
		at++;
	if (at == 3)
		return reading_wrong(reading, "must each have a role: user, assistant or system");
	if (reading_known(reading, message, known_message, "a message"))
		return STATUS_INVALID_PARAMS;
	if (json_type(content) != JSON_STRING && json_type(content) != JSON_ARRAY)
		return reading_wrong(reading, "must each have a content: a text, or a list of blocks");
	turns_role(turns, roles[at][1]);
	if (json_type(content) == JSON_STRING)
		turns_text(turns, json_string(content, ""));
	for (const struct json *one = json_first(content); one && !status; one = json_next(one))
		status = read_block(turns, one);
	return status;
}

static enum status read_system(struct turns *turns)
{
	struct buffer text;
	struct reading *reading = turns->reading;
	const struct json *value = json_get(reading->body, "system");
	if (!value || json_type(value) == JSON_NULL)
		return STATUS_OK;
	reading->param = "system";
	buffer_init(&text, LIMIT_POST_BYTES);
	const enum status status = read_texts(reading, value, &text, "it");
	if (text.length) {
		turns_role(turns, "system");
		turns_text(turns, buffer_text(&text));
	}
	buffer_finish(&text);
	return status;
}

static enum status read_messages(struct turns *turns, const struct json *value)
{
	struct reading *reading = turns->reading;
	enum status status = read_system(turns);
	if (status)
		return status;
	reading->param = "messages";
	if (json_type(value) != JSON_ARRAY || !json_count(value))
		return reading_wrong(reading, "must be a list of messages");
	for (const struct json *one = json_first(value); one && !status; one = json_next(one))
		status = read_message(turns, one);
	if (!status && !strcmp(turns->role, "assistant")) {
		error_hint(reading->error, "end with a message of the user");
		status = reading_wrong(reading, "end with one of the assistant: that a model goes on with it is not "
						"supported here");
	}
	return status ? status : turns_end(turns);
}

enum status anthropic_read_messages(struct reading *reading, const struct json *value)
{
	struct turns turns;
	turns_init(&turns, reading);
	const enum status status = read_messages(&turns, value);
	turns_finish(&turns);
	return status;
}

// ---- tools ----

static const struct json *present(const struct json *object, const char *name)
{
	const struct json *value = json_get(object, name);
	return json_type(value) == JSON_NULL ? NULL : value;
}

static enum status read_tool(struct reading *reading, const struct json *tool)
{
	const char *type = json_get_string(tool, "type", "custom");
	const struct function function = {.name = json_get_string(tool, "name", ""),
					  .description = present(tool, "description"),
					  .parameters = present(tool, "input_schema"),
					  .strict = present(tool, "strict")};
	if (strcmp(type, "custom") != 0) {
		error_hint(reading->error, "a tool of the client has a name and an input_schema");
		return error_set(reading->error, STATUS_INVALID_PARAMS,
				 "tools: the tool %.64s is not supported here: only those of the client are", type);
	}
	if (reading_known(reading, tool, known_tool, "a tool"))
		return STATUS_INVALID_PARAMS;
	if (!function.parameters)
		return reading_wrong(reading, "must each have an input_schema");
	return reading_add_function(reading, &function);
}

enum status anthropic_read_tools(struct reading *reading, const struct json *value)
{
	enum status status = STATUS_OK;
	if (json_type(value) != JSON_ARRAY)
		return reading_wrong(reading, "must be a list");
	for (const struct json *one = json_first(value); one && !status; one = json_next(one))
		status = read_tool(reading, one);
	return status;
}
