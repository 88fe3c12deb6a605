/* `messages` and `tools` of Ollama's requests. Its clients give calls no id, or say which tool answered by its name:
 * then an id is made here, and an answer belongs to the first call of that tool that has none yet. */
#include "server/http/infer/ollama/ollama.h"

#include <stdio.h>
#include <string.h>

enum { CALLS_MOST = 128, ID_BYTES = 257 };

static const struct known known_message[] = {
	{"role", KNOWN_TEXT},   {"content", KNOWN_TEXT},      {"thinking", KNOWN_TEXT},
	{"images", KNOWN_READ}, {"tool_calls", KNOWN_LIST},   {"tool_name", KNOWN_TEXT},
	{"name", KNOWN_TEXT},   {"tool_call_id", KNOWN_TEXT}, {0}};
static const struct known known_call[] = {{"id", KNOWN_TEXT}, {"type", KNOWN_TEXT}, {"function", KNOWN_READ}, {0}};
static const struct known known_function[] = {
	{"index", KNOWN_READ}, {"name", KNOWN_TEXT}, {"description", KNOWN_TEXT}, {"arguments", KNOWN_READ}, {0}};

// Calls of the last turn that called, which tools have yet to answer.
struct waiting {
	char id[ID_BYTES];
	const char *name; // "": it was answered; the body's
};

struct conversation {
	struct turns turns;
	bool begun; // something else than the system has spoken
	unsigned made;
	size_t count;
	struct waiting waiting[CALLS_MOST];
};

enum status ollama_no_images(struct reading *reading, const struct json *object)
{
	if (!json_count(json_get(object, "images")))
		return STATUS_OK;
	return error_set(reading->error, STATUS_INVALID_PARAMS,
			 "images are not supported here: models here read and write text");
}

static enum status read_call(struct conversation *talk, const struct json *call)
{
	struct buffer text;
	struct reading *reading = talk->turns.reading;
	const struct json *function = json_get(call, "function"), *arguments = json_get(function, "arguments");
	const char *name = json_get_string(function, "name", ""), *id = json_get_string(call, "id", "");
	if (!infer_is_function(name) || (arguments && json_type(arguments) != JSON_OBJECT) ||
	    (id[0] && !turns_is_id(id)) || talk->count == CALLS_MOST)
		return reading_wrong(reading, "may have up to 128 tool_calls, each of a function with a name and "
					      "arguments, an object");
	if (reading_known(reading, call, known_call, "a call") ||
	    reading_known(reading, function, known_function, "a called function"))
		return STATUS_INVALID_PARAMS;
	struct waiting *waiting = &talk->waiting[talk->count++];
	if (id[0])
		snprintf(waiting->id, sizeof waiting->id, "%s", id);
	else
		snprintf(waiting->id, sizeof waiting->id, "call%05u", ++talk->made % 100000);
	waiting->name = name;
	buffer_init(&text, LIMIT_POST_BYTES);
	enum status status = STATUS_OK;
	if (arguments && json_print(arguments, &text))
		status = reading_wrong(reading, "have arguments that are too long");
	if (!status)
		status = turns_call(&talk->turns, waiting->id, name, arguments ? buffer_text(&text) : "{}");
	buffer_finish(&text);
	return status;
}

static enum status read_calls(struct conversation *talk, const struct json *calls)
{
	enum status status = STATUS_OK;
	if (!json_count(calls))
		return STATUS_OK;
	talk->count = 0;
	for (const struct json *one = json_first(calls); one && !status; one = json_next(one))
		status = read_call(talk, one);
	return status;
}

// What a tool answered: to the call that has this id, else to the first of this name, else to the first.
static enum status read_result(struct conversation *talk, const struct json *message)
{
	const char *given = json_get_string(message, "tool_call_id", "");
	const char *name = json_get_string(message, "tool_name", json_get_string(message, "name", ""));
	size_t at = 0;
	while (at < talk->count &&
	       (!talk->waiting[at].name[0] || (given[0] ? strcmp(talk->waiting[at].id, given) != 0
							: name[0] && strcmp(talk->waiting[at].name, name) != 0)))
		at++;
	if (at == talk->count && !turns_is_id(given))
		return reading_wrong(talk->turns.reading, "of the role tool must answer a call of a message before");
	turns_result(&talk->turns, at < talk->count ? talk->waiting[at].id : given,
		     json_get_string(message, "content", ""));
	if (at < talk->count)
		talk->waiting[at].name = "";
	return STATUS_OK;
}

static enum status read_message(struct conversation *talk, const struct json *message)
{
	struct reading *reading = talk->turns.reading;
	const char *role = json_get_string(message, "role", "");
	if (reading_known(reading, message, known_message, "a message") || ollama_no_images(reading, message))
		return STATUS_INVALID_PARAMS;
	if (!strcmp(role, "tool")) {
		talk->begun = true;
		return read_result(talk, message);
	}
	if (strcmp(role, "system") != 0 && strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)
		return reading_wrong(reading, "must each have a role: system, user, assistant or tool");
	if (!strcmp(role, "system") && talk->begun)
		role = "user"; // many chat templates have no other place for it
	turns_role(&talk->turns, role);
	talk->begun |= strcmp(role, "system") != 0;
	if (!strcmp(role, "assistant"))
		turns_thought(&talk->turns, json_get_string(message, "thinking", ""));
	const char *content = json_get_string(message, "content", "");
	if (content[0] || !json_count(json_get(message, "tool_calls")))
		turns_text(&talk->turns, content);
	return read_calls(talk, json_get(message, "tool_calls"));
}

enum status ollama_read_messages(struct reading *reading, const struct json *value)
{
	enum status status = STATUS_OK;
	struct conversation talk = {.begun = false};
	if (json_type(value) != JSON_ARRAY)
		return reading_wrong(reading, "must be a list of messages");
	if (!json_count(value)) // the model is to be loaded, and nothing more
		return STATUS_OK;
	turns_init(&talk.turns, reading);
	for (const struct json *one = json_first(value); one && !status; one = json_next(one))
		status = read_message(&talk, one);
	if (!status)
		status = turns_end(&talk.turns);
	turns_finish(&talk.turns);
	return status;
}

enum status ollama_read_tools(struct reading *reading, const struct json *value)
{
	enum status status = STATUS_OK;
	if (json_type(value) != JSON_ARRAY)
		return reading_wrong(reading, "must be a list of functions");
	for (const struct json *one = json_first(value); one && !status; one = json_next(one)) {
		const struct json *given = json_get(one, "function");
		const struct json *description = json_get(given, "description"),
				  *schema = json_get(given, "parameters");
		const struct function function = {.name = json_get_string(given, "name", ""),
						  .description = json_type(description) == JSON_NULL ? NULL
												     : description,
						  .parameters = json_type(schema) == JSON_NULL ? NULL : schema};
		if (strcmp(json_get_string(one, "type", "function"), "function") != 0)
			return reading_wrong(reading, "must each have the type function");
		status = reading_add_function(reading, &function);
	}
	return status;
}
