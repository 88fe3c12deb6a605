/* See plain.h. */
#include "engine/dialogue/plain.h"

#include "common/base/limits.h"

#include <string.h>

static void tell_tools(const struct json *tools, struct buffer *out)
{
	buffer_append_text(out, "You can call functions. Each line between <tools> and </tools> describes one, with a "
				"JSON Schema of its parameters:\n<tools>\n");
	for (const struct json *one = json_first(tools); one; one = json_next(one)) {
		json_print(one, out);
		buffer_append_text(out, "\n");
	}
	buffer_append_text(out, "</tools>\nTo call a function, answer with its name and its arguments as JSON between "
				"<tool_call> and </tool_call>:\n<tool_call>\n{\"name\": \"FUNCTION\", \"arguments\": "
				"{\"PARAMETER\": \"VALUE\"}}\n</tool_call>\nThe result comes between "
				"<tool_response> and "
				"</tool_response>. Call a function only if the question needs it.");
}

static void write_call(const struct json *call, struct buffer *out)
{
	buffer_printf(out, "%s<tool_call>\n{\"name\": ", out->length ? "\n" : "");
	json_print_string(json_get_string(call, "name", ""), out);
	buffer_printf(out, ", \"arguments\": %s}\n</tool_call>", json_get_string(call, "arguments", "{}"));
}

static void push(struct json *list, const char *role, const struct buffer *text)
{
	struct json *message = json_new_object();
	json_set_string(message, "role", role);
	json_set_string(message, "text", buffer_text(text));
	json_push(list, message);
}

static bool is_role(const struct json *message, const char *role)
{
	return !strcmp(json_get_string(message, "role", ""), role);
}

// Write consecutive answers of tools as one message of the user. Returns the last of these messages.
static const struct json *write_answers(const struct json *message, struct buffer *out)
{
	const struct json *last = message;
	for (; message && is_role(message, "tool"); message = json_next(message)) {
		buffer_printf(out, "%s<tool_response>\n%s\n</tool_response>", out->length ? "\n" : "",
			      json_get_string(message, "text", ""));
		last = message;
	}
	return last;
}

struct json *dialogue_plain(const struct json *messages, const struct json *tools, bool in_user)
{
	struct json *list = json_new_array();
	struct buffer text, told;
	bool failed = false;
	buffer_init(&text, LIMIT_BODY_BYTES);
	buffer_init(&told, LIMIT_BODY_BYTES);
	if (json_count(tools))
		tell_tools(tools, &told);
	if (told.length && !in_user && !is_role(json_first(messages), "system")) {
		push(list, "system", &told);
		buffer_clear(&told);
	}
	for (const struct json *one = json_first(messages); one && !failed; one = json_next(one)) {
		const char *role = is_role(one, "tool") ? "user" : json_get_string(one, "role", "");
		buffer_clear(&text);
		if (told.length && in_user && !strcmp(role, "user")) {
			buffer_printf(&text, "%s\n\n", buffer_text(&told));
			buffer_clear(&told);
		}
		if (is_role(one, "tool"))
			one = write_answers(one, &text);
		else
			buffer_append_text(&text, json_get_string(one, "text", ""));
		if (told.length && !in_user) { // it is the system's
			buffer_printf(&text, "\n\n%s", buffer_text(&told));
			buffer_clear(&told);
		}
		const struct json *calls = json_get(one, "calls");
		for (const struct json *call = json_first(calls); call; call = json_next(call))
			write_call(call, &text);
		failed = text.failed || told.failed;
		push(list, role, &text);
	}
	buffer_finish(&text);
	buffer_finish(&told);
	if (failed)
		json_destroy(&list);
	return list;
}
