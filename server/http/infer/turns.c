/* Turns of a conversation, as generate.start has its messages (schema/node.json), for the APIs whose clients send them
 * in pieces: what one role says in a row is one message, and what a tool answered a message of its own. */
#include "server/http/infer/inside.h"

#include <string.h>

enum { MESSAGES_MOST = 1024, CALLS_MOST = 128, ID_BYTES = 256 };

void turns_init(struct turns *turns, struct reading *reading)
{
	struct json *prompt = json_new_object();
	*turns = (struct turns){.reading = reading, .list = json_new_array()};
	json_set(prompt, "messages", turns->list);
	json_set(reading->call, "prompt", prompt);
	buffer_init(&turns->text, LIMIT_POST_BYTES);
	buffer_init(&turns->thoughts, LIMIT_POST_BYTES);
}

void turns_finish(struct turns *turns)
{
	json_destroy(&turns->calls);
	buffer_finish(&turns->text);
	buffer_finish(&turns->thoughts);
}

static void end_turn(struct turns *turns)
{
	if (!turns->spoken && !turns->calls && !turns->thoughts.length)
		return;
	struct json *entry = json_new_object();
	json_set_string(entry, "role", turns->role);
	if (turns->text.length || !turns->calls)
		json_set_string(entry, "text", buffer_text(&turns->text));
	if (turns->thoughts.length)
		json_set_string(entry, "thoughts", buffer_text(&turns->thoughts));
	if (turns->calls)
		json_set(entry, "calls", turns->calls);
	json_push(turns->list, entry);
	turns->calls = NULL;
	turns->spoken = false;
	buffer_clear(&turns->text);
	buffer_clear(&turns->thoughts);
}

void turns_role(struct turns *turns, const char *role)
{
	if (turns->role && strcmp(turns->role, role) != 0)
		end_turn(turns);
	turns->role = role;
}

void turns_text(struct turns *turns, const char *text)
{
	if (turns->text.length && text[0] && strcmp(turns->role, "assistant") != 0)
		buffer_append_text(&turns->text, "\n\n");
	buffer_append_text(&turns->text, text);
	turns->spoken = true;
}

void turns_thought(struct turns *turns, const char *text)
{
	buffer_append_text(&turns->thoughts, text);
}

bool turns_is_id(const char *id)
{
	return id[0] && strlen(id) <= ID_BYTES;
}

enum status turns_call(struct turns *turns, const char *id, const char *name, const char *arguments)
{
	if (json_count(turns->calls) == CALLS_MOST)
		return reading_wrong(turns->reading, "may have 128 calls of tools in a turn at most");
	struct json *call = json_new_object();
	json_set_string(call, "id", id);
	json_set_string(call, "name", name);
	json_set_string(call, "arguments", arguments);
	turns->calls = turns->calls ? turns->calls : json_new_array();
	json_push(turns->calls, call);
	return STATUS_OK;
}

void turns_result(struct turns *turns, const char *id, const char *text)
{
	struct json *entry = json_new_object();
	end_turn(turns);
	json_set_string(entry, "role", "tool");
	json_set_string(entry, "text", text);
	json_set_string(entry, "call_id", id);
	json_push(turns->list, entry);
}

enum status turns_end(struct turns *turns)
{
	if (turns->text.failed || turns->thoughts.failed)
		return reading_wrong(turns->reading, "have a turn that is too long");
	end_turn(turns);
	if (json_count(turns->list) > MESSAGES_MOST)
		return reading_wrong(turns->reading, "must be 1024 turns and answers of tools at most");
	if (!json_count(turns->list))
		return reading_wrong(turns->reading, "must have a content that is not empty");
	return STATUS_OK;
}
