/* `messages` of a chat, as generate.start has them (schema/node.json). */
#include "server/http/infer/inside.h"

#include <string.h>

enum { MESSAGES_MOST = 1024, CALLS_MOST = 128, ID_BYTES = 256 };

// A text, or parts of the type text, which follow each other.
static enum status read_content(struct reading *reading, const struct json *content, struct buffer *text)
{
	static const struct known known[] = {{"type", KNOWN_TEXT}, {"text", KNOWN_TEXT}, {0}};
	if (json_type(content) == JSON_STRING)
		return buffer_append_text(text, json_string(content, ""));
	if (json_type(content) != JSON_ARRAY)
		return reading_wrong(reading, "must each have a content: a text, or parts of the type text");
	for (const struct json *part = json_first(content); part; part = json_next(part)) {
		const char *type = json_get_string(part, "type", "");
		if (strcmp(type, "text") != 0 || json_type(json_get(part, "text")) != JSON_STRING)
			return error_set(reading->error, STATUS_INVALID_PARAMS,
					 "messages may have parts of the type text; \"%.32s\" is not supported here",
					 type);
		if (reading_known(reading, part, known, "a part of a message"))
			return STATUS_INVALID_PARAMS;
		buffer_append_text(text, json_get_string(part, "text", ""));
	}
	return STATUS_OK;
}

// `name` tells participants of a role apart, for which chat templates have no place. Answers that are sent back may
// have what OpenAI's have beside their content.
static enum status check_message(struct reading *reading, const struct json *message, const char *role)
{
	static const struct known known[] = {{"role", KNOWN_READ}, {"content", KNOWN_READ}, {"name", KNOWN_TEXT}, {0}};
	static const struct known known_answer[] = {{"role", KNOWN_READ},
						    {"content", KNOWN_READ},
						    {"name", KNOWN_TEXT},
						    {"refusal", KNOWN_TEXT},
						    {"reasoning_content", KNOWN_TEXT},
						    {"annotations", KNOWN_LIST},
						    {"tool_calls", KNOWN_LIST},
						    {0}};
	static const struct known known_tool[] = {
		{"role", KNOWN_READ}, {"content", KNOWN_READ}, {"name", KNOWN_TEXT}, {"tool_call_id", KNOWN_TEXT}, {0}};
	return reading_known(reading, message,
			     !strcmp(role, "assistant") ? known_answer
			     : !strcmp(role, "tool")    ? known_tool
							: known,
			     "a message");
}

// A call that the model made: the id that we gave it, a name, and arguments as text.
static enum status read_call(struct reading *reading, const struct json *value, struct json *list)
{
	const struct json *function = json_get(value, "function");
	const char *id = json_get_string(value, "id", ""), *name = json_get_string(function, "name", "");
	const char *arguments = json_get_string(function, "arguments", NULL);
	if (strcmp(json_get_string(value, "type", "function"), "function") != 0 || !infer_is_function(name) ||
	    !arguments || !id[0] || strlen(id) > ID_BYTES)
		return reading_wrong(reading, "may have tool_calls with an id, the type function, and a "
					      "function with a name and "
					      "arguments as a text");
	struct json *call = json_new_object();
	json_set_string(call, "id", id);
	json_set_string(call, "name", name);
	json_set_string(call, "arguments", arguments[0] ? arguments : "{}");
	json_push(list, call);
	return STATUS_OK;
}

static enum status read_calls(struct reading *reading, const struct json *value, struct json *entry)
{
	enum status status = STATUS_OK;
	struct json *list = json_new_array();
	json_set(entry, "calls", list);
	if (json_count(value) > CALLS_MOST)
		return reading_wrong(reading, "may have 128 tool_calls at most");
	for (const struct json *one = json_first(value); one && !status; one = json_next(one))
		status = read_call(reading, one, list);
	return status;
}

// What is special about a message of its role.
static enum status read_rest(struct reading *reading, const struct json *message, const char *role, struct json *entry)
{
	const struct json *calls = json_get(message, "tool_calls");
	const char *id = json_get_string(message, "tool_call_id", "");
	const char *thoughts = json_get_string(message, "reasoning_content", "");
	if (!strcmp(role, "tool")) {
		if (!id[0] || strlen(id) > ID_BYTES)
			return reading_wrong(reading, "of the role tool must have a tool_call_id: the id "
						      "of the call that they answer");
		json_set_string(entry, "call_id", id);
	}
	if (thoughts[0])
		json_set_string(entry, "thoughts", thoughts);
	return json_count(calls) ? read_calls(reading, calls, entry) : STATUS_OK;
}

static enum status read_message(struct reading *reading, const struct json *message, struct json *list)
{
	static const char *const roles[] = {"system", "user", "assistant", "tool", NULL};
	struct buffer text;
	const char *role = json_get_string(message, "role", "");
	const char *const *known = roles;
	if (!strcmp(role, "developer"))
		role = "system";
	while (*known && strcmp(*known, role) != 0)
		known++;
	if (!*known)
		return reading_wrong(reading, "must each have a role: system, developer, user, assistant or tool");
	const struct json *content = json_get(message, "content");
	const bool silent = json_count(json_get(message, "tool_calls")) &&
			    (!content || json_type(content) == JSON_NULL);
	enum status status = check_message(reading, message, role);
	if (status)
		return status;
	struct json *entry = json_new_object();
	json_push(list, entry);
	json_set_string(entry, "role", role);
	buffer_init(&text, LIMIT_POST_BYTES);
	if (!silent)
		status = read_content(reading, content, &text);
	if (!status && !silent)
		json_set_string(entry, "text", buffer_text(&text));
	if (!status)
		status = read_rest(reading, message, role, entry);
	buffer_finish(&text);
	return status;
}

enum status openai_read_messages(struct reading *reading, const struct json *value)
{
	enum status status = STATUS_OK;
	struct json *prompt = json_new_object(), *list = json_new_array();
	json_set(prompt, "messages", list);
	json_set(reading->call, "prompt", prompt);
	if (json_type(value) != JSON_ARRAY || !json_count(value) || json_count(value) > MESSAGES_MOST)
		return reading_wrong(reading, "must be a list of 1 to 1024 messages");
	for (const struct json *one = json_first(value); one && !status; one = json_next(one))
		status = read_message(reading, one, list);
	return status;
}
