/* Tools of /v1/responses. Functions of the client are offered to the model. Tools that OpenAI's servers run, or that
 * its models know without a schema, are not here: clients such as Codex send them with every request and work without
 * them, so they are left out, by name, in the log and in the metadata of the answer. */
#include "common/base/log.h"
#include "server/http/infer/responses/responses.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { METADATA_BYTES = 512 }; // of a value

static const char *const absent[] = {"web_search",
				     "web_search_preview",
				     "file_search",
				     "code_interpreter",
				     "image_generation",
				     "mcp",
				     "computer",
				     "computer_use_preview",
				     "local_shell",
				     "shell",
				     "apply_patch",
				     "custom",
				     "namespace",
				     "tool_search",
				     "programmatic_tool_calling"};
enum { ABSENT = sizeof absent / sizeof *absent };

static const struct known known_function[] = {{"type", KNOWN_TEXT},
					      {"name", KNOWN_TEXT},
					      {"description", KNOWN_TEXT},
					      {"parameters", KNOWN_READ},
					      {"strict", KNOWN_READ},
					      {"defer_loading", KNOWN_NOTHING},
					      {0}};

static const struct json *present(const struct json *object, const char *name)
{
	const struct json *value = json_get(object, name);
	return json_type(value) == JSON_NULL ? NULL : value;
}

// Which of those that are absent; ABSENT: none. Some types end with the date of their version.
static size_t absent_type(const char *type)
{
	size_t at = 0;
	for (; at < ABSENT; at++) {
		const size_t length = strlen(absent[at]);
		if (!strncmp(type, absent[at], length) &&
		    (!type[length] || (type[length] == '_' && type[length + 1] >= '0' && type[length + 1] <= '9')))
			break;
	}
	return at;
}

// The log has each type once: clients send them again with every request.
static void log_once(const struct answer *answer, size_t type)
{
	static atomic_uint logged;
	if (!(atomic_fetch_or(&logged, 1U << type) & 1U << type))
		log_info("infer", "/v1/responses, request %s: a tool of the type %s is left out: there is none here",
			 answer->request_id, absent[type]);
}

// Note it in the metadata of the answer: "web_search, NAME (namespace)".
static void leave_out(struct reading *reading, const struct json *tool, size_t type)
{
	char list[METADATA_BYTES + 1], one[160];
	struct json *metadata = json_new_object();
	struct json *repeats = reading->answer->response.repeats;
	const char *name = json_get_string(tool, "name", NULL);
	const char *before = json_get_string(json_get(repeats, "metadata"), "exogpu_tools_left_out", "");
	log_once(reading->answer, type);
	snprintf(one, sizeof one, name && infer_is_function(name) ? "%s (%s)" : "%.0s%s", name ? name : "",
		 absent[type]);
	if (strlen(before) + strlen(one) + 2 < sizeof list)
		snprintf(list, sizeof list, "%s%s%s", before, before[0] ? ", " : "", one);
	else
		snprintf(list, sizeof list, "%s", before);
	const struct json *given = json_get(repeats, "metadata");
	for (const struct json *member = json_first(given); member; member = json_next(member))
		json_set(metadata, json_name(member), json_copy(member));
	json_set_string(metadata, "exogpu_tools_left_out", list);
	json_set(repeats, "metadata", metadata);
}

static enum status read_function(struct reading *reading, const struct json *tool, struct json *offered)
{
	const struct function function = {.name = json_get_string(tool, "name", ""),
					  .description = present(tool, "description"),
					  .parameters = present(tool, "parameters"),
					  .strict = present(tool, "strict")};
	if (reading_known(reading, tool, known_function, "a function"))
		return STATUS_INVALID_PARAMS;
	const enum status status = reading_add_function(reading, &function);
	if (!status)
		json_push(offered, json_copy(tool));
	return status;
}

enum status responses_read_tools(struct reading *reading, const struct json *value)
{
	enum status status = STATUS_OK;
	struct json *offered = json_new_array();
	if (json_type(value) != JSON_ARRAY)
		status = reading_wrong(reading, "must be a list");
	for (const struct json *one = json_first(value); one && !status; one = json_next(one)) {
		const char *type = json_get_string(one, "type", "");
		const size_t at = absent_type(type);
		if (!strcmp(type, "function"))
			status = read_function(reading, one, offered);
		else if (at < ABSENT)
			leave_out(reading, one, at);
		else
			status = error_set(reading->error, STATUS_INVALID_PARAMS,
					   "tools: the type \"%.64s\" is not supported here: functions are", type);
	}
	json_set(reading->answer->response.repeats, "tools", offered);
	return status;
}

// "none", "auto", "required", or {"type": "function", "name": NAME}.
enum status responses_read_tool_choice(struct reading *reading, const struct json *value)
{
	const char *text = json_string(value, ""), *name = json_get_string(value, "name", "");
	json_set(reading->answer->response.repeats, "tool_choice", json_copy(value));
	if (!strcmp(text, "none") || !strcmp(text, "auto") || !strcmp(text, "required")) {
		reading_choose_tool(reading, text, NULL);
		return STATUS_OK;
	}
	if (strcmp(json_get_string(value, "type", ""), "function") != 0 || !infer_is_function(name))
		return reading_wrong(reading, "must be none, auto, required, or the function to call: "
					      "{\"type\": \"function\", \"name\": NAME}");
	reading_choose_tool(reading, "required", name);
	return STATUS_OK;
}
