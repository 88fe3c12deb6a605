/* See said.h. */
#include "server/http/infer/said.h"

#include "common/base/limits.h"
#include "server/security/random_id.h"

#include <stdlib.h>
#include <string.h>

void said_init(struct said *said, struct buffer *text, bool streams)
{
	*said = (struct said){.text = text, .streams = streams};
	buffer_init(&said->thoughts, LIMIT_ANSWER_QUEUE_BYTES);
}

void said_finish(struct said *said)
{
	for (size_t i = 0; i < said->count; i++)
		buffer_finish(&said->calls[i].arguments);
	free(said->calls);
	buffer_finish(&said->thoughts);
	dialogue_destroy(&said->dialogue);
	said->calls = NULL;
	said->count = 0;
}

static void add_call(struct said *said, const char *name, size_t length)
{
	char id[24];
	said->open = false;
	struct said_call *grown = realloc(said->calls, (said->count + 1) * sizeof(*grown));
	if (grown)
		said->calls = grown;
	if (!grown || random_id("", id, sizeof(id))) {
		said->trouble = STATUS_OUT_OF_MEMORY;
		return;
	}
	struct said_call *call = &said->calls[said->count++];
	*call = (struct said_call){0};
	memcpy(call->id, id, sizeof(call->id) - 1);
	memcpy(call->name, name, length);
	buffer_init(&call->arguments, LIMIT_ANSWER_QUEUE_BYTES);
	said->open = true;
}

// Text that was taken for a call is text, except for what a stream has told of it. A call that has ended stays as it
// is.
static void break_call(struct said *said, const struct dialogue_event *event)
{
	size_t from = 0;
	if (said->open && said->streams) {
		from = event->told < event->length ? event->told : event->length;
	} else if (said->open) {
		said->count--;
		buffer_finish(&said->calls[said->count].arguments);
	}
	said->open = false;
	buffer_append(said->text, event->text + from, event->length - from);
}

static void take_event(void *context, const struct dialogue_event *event)
{
	struct said *said = context;
	switch (event->kind) {
	case DIALOGUE_TEXT:
		buffer_append(said->text, event->text, event->length);
		break;
	case DIALOGUE_THOUGHT:
		buffer_append(&said->thoughts, event->text, event->length);
		break;
	case DIALOGUE_CALL:
		add_call(said, event->text, event->length);
		break;
	case DIALOGUE_ARGUMENTS:
		if (said->open)
			buffer_append(&said->calls[said->count - 1].arguments, event->text, event->length);
		break;
	case DIALOGUE_CALL_END:
		said->whole += said->open;
		said->open = false;
		break;
	case DIALOGUE_BROKEN:
		break_call(said, event);
		break;
	}
	if (said->count && said->calls[said->count - 1].arguments.failed)
		said->trouble = STATUS_LIMIT_EXCEEDED;
}

static enum status check(const struct said *said, enum status status)
{
	size_t waits = said->text->length + said->thoughts.length;
	for (size_t i = 0; i < said->count; i++)
		waits += said->calls[i].arguments.length;
	if (status)
		return status;
	if (said->text->failed || said->thoughts.failed || waits > LIMIT_ANSWER_QUEUE_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	return said->trouble;
}

enum status said_begin(struct said *said, const struct json *syntax, const struct json *tools)
{
	const struct dialogue_params params = {
		.calls = tools ? call_syntax_named(json_get_string(syntax, "calls", NULL)) : NULL,
		.thoughts = thought_syntax_named(json_get_string(syntax, "thoughts", NULL)),
		.opened = json_get_bool(syntax, "opened", false),
		.tools = tools,
		.event = take_event,
		.context = said};
	return said->dialogue ? STATUS_OK : dialogue_create(&said->dialogue, &params);
}

enum status said_more(struct said *said, const char *text)
{
	if (said->dialogue)
		return check(said, dialogue_feed(said->dialogue, text, strlen(text)));
	buffer_append_text(said->text, text);
	return check(said, STATUS_OK);
}

// The answer was cut off inside the last call, before its first argument: a client would take it for a call without
// arguments, or for text. One that has been told cannot be taken back.
static void drop_empty_call(struct said *said)
{
	struct said_call *call = &said->calls[said->count - 1];
	const char *arguments = buffer_text(&call->arguments);
	if (call->told || arguments[strspn(arguments, "{ \t\r\n")])
		return;
	buffer_finish(&call->arguments);
	said->count--;
	said->whole--;
}

enum status said_end(struct said *said, bool cut)
{
	const size_t whole = said->whole;
	const enum status status = said->dialogue ? dialogue_end(said->dialogue, cut) : STATUS_OK;
	if (said->whole > whole && said->count)
		drop_empty_call(said);
	return check(said, status);
}

bool said_anything(const struct said *said)
{
	for (size_t i = said->told; i < said->count; i++)
		if (!said->calls[i].told || said->calls[i].arguments.length)
			return true;
	return said->text->length || said->thoughts.length;
}

struct json *said_call_input(const struct said_call *call)
{
	struct json *input = NULL;
	if (!call->arguments.length)
		return json_new_object();
	if (json_parse(&input, buffer_text(&call->arguments), call->arguments.length, NULL) ||
	    json_type(input) != JSON_OBJECT)
		json_destroy(&input);
	return input;
}

bool said_blank(const struct buffer *text)
{
	const char *bytes = buffer_text(text);
	return bytes[strspn(bytes, " \t\r\n")] == 0;
}
