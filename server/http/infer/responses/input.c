/* `input` and `instructions` of /v1/responses: a text, or items: messages, thoughts, calls of functions and what these
 * answered. Instructions and the messages of system or developer at the beginning are one message of the system. Such a
 * message that comes later is part of a user's turn: many chat templates have no place for it. */
#include "common/text/base64.h"
#include "server/http/infer/responses/responses.h"

#include <stdlib.h>
#include <string.h>

// How a thought begins that was enclosed here: base64 of its text follows. Nobody has to be kept from reading it.
#define ENCLOSED "exo."

static const struct known known_message[] = {{"type", KNOWN_TEXT},
					     {"id", KNOWN_TEXT},
					     {"role", KNOWN_TEXT},
					     {"content", KNOWN_READ},
					     {"status", KNOWN_TEXT},
					     {"phase", KNOWN_TEXT}, // of which chat templates know nothing
					     {0}};
static const struct known known_part[] = {{"type", KNOWN_TEXT},
					  {"text", KNOWN_TEXT},
					  {"annotations", KNOWN_LIST},
					  {"logprobs", KNOWN_LIST},
					  {"prompt_cache_breakpoint", KNOWN_READ}, // prefixes are shared by themselves
					  {0}};
static const struct known known_call[] = {{"type", KNOWN_TEXT},
					  {"id", KNOWN_TEXT},
					  {"call_id", KNOWN_TEXT},
					  {"name", KNOWN_TEXT},
					  {"arguments", KNOWN_TEXT},
					  {"status", KNOWN_TEXT},
					  {"caller", KNOWN_READ}, // the model: it alone
					  {0}};
static const struct known known_result[] = {{"type", KNOWN_TEXT},
					    {"id", KNOWN_TEXT},
					    {"call_id", KNOWN_TEXT},
					    {"output", KNOWN_READ},
					    {"status", KNOWN_TEXT},
					    {"caller", KNOWN_READ},
					    {0}};
static const struct known known_reasoning[] = {{"type", KNOWN_TEXT},
					       {"id", KNOWN_TEXT},
					       {"summary", KNOWN_LIST},
					       {"content", KNOWN_LIST},
					       {"status", KNOWN_TEXT},
					       {"encrypted_content", KNOWN_TEXT},
					       {0}};

struct input {
	struct turns turns;
	bool begun; // something else than the system has spoken
};

static enum status read_parts(struct reading *reading, const struct json *value, struct buffer *out, const char *whose)
{
	const struct json *first = json_first(value);
	if (json_type(value) == JSON_STRING)
		return buffer_append_text(out, json_string(value, ""));
	if (json_type(value) != JSON_ARRAY)
		return error_set(reading->error, STATUS_INVALID_PARAMS,
				 "input: %s must be a text, or a list of parts with a text", whose);
	for (const struct json *one = first; one; one = json_next(one)) {
		const char *type = json_get_string(one, "type", "");
		if ((strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0) ||
		    json_type(json_get(one, "text")) != JSON_STRING)
			return error_set(reading->error, STATUS_INVALID_PARAMS,
					 "input: %s may have parts of the types input_text and output_text; \"%.32s\" "
					 "is not supported here",
					 whose, type);
		if (reading_known(reading, one, known_part, whose))
			return STATUS_INVALID_PARAMS;
		if (one != first && type[0] == 'i')
			buffer_append_text(out, "\n\n");
		buffer_append_text(out, json_get_string(one, "text", ""));
	}
	return STATUS_OK;
}

static enum status read_message(struct input *input, const struct json *item)
{
	struct buffer text;
	struct reading *reading = input->turns.reading;
	const char *role = json_get_string(item, "role", "");
	if (!strcmp(role, "system") || !strcmp(role, "developer"))
		role = input->begun ? "user" : "system";
	else if (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)
		return reading_wrong(reading, "may have messages of the roles user, assistant, system and developer");
	if (reading_known(reading, item, known_message, "a message"))
		return STATUS_INVALID_PARAMS;
	buffer_init(&text, LIMIT_POST_BYTES);
	const enum status status = read_parts(reading, json_get(item, "content"), &text, "the content of a message");
	if (!status) {
		turns_role(&input->turns, role);
		turns_text(&input->turns, buffer_text(&text));
		input->begun |= strcmp(role, "system") != 0;
	}
	buffer_finish(&text);
	return status;
}

static enum status read_call(struct input *input, const struct json *item)
{
	struct reading *reading = input->turns.reading;
	const char *id = json_get_string(item, "call_id", ""), *name = json_get_string(item, "name", "");
	const char *arguments = json_get_string(item, "arguments", NULL);
	if (!turns_is_id(id) || !infer_is_function(name) || !arguments)
		return reading_wrong(reading, "may have items of the type function_call with a call_id, a name and "
					      "arguments as a text");
	if (reading_known(reading, item, known_call, "a function_call"))
		return STATUS_INVALID_PARAMS;
	turns_role(&input->turns, "assistant");
	input->begun = true;
	return turns_call(&input->turns, id, name, arguments[0] ? arguments : "{}");
}

static enum status read_result(struct input *input, const struct json *item)
{
	struct buffer text;
	struct reading *reading = input->turns.reading;
	const char *id = json_get_string(item, "call_id", "");
	if (!turns_is_id(id))
		return reading_wrong(reading, "may have items of the type function_call_output with a call_id");
	if (reading_known(reading, item, known_result, "a function_call_output"))
		return STATUS_INVALID_PARAMS;
	buffer_init(&text, LIMIT_POST_BYTES);
	const enum status status = read_parts(reading, json_get(item, "output"), &text,
					      "the output of a function_call_output");
	if (!status)
		turns_result(&input->turns, id, buffer_text(&text));
	input->begun = true;
	buffer_finish(&text);
	return status;
}

// ---- thoughts ----

char *responses_enclose(const struct buffer *thought)
{
	const size_t before = sizeof ENCLOSED - 1;
	char *text = malloc(before + BASE64_TEXT_BYTES(thought->length));
	if (!text)
		return NULL;
	memcpy(text, ENCLOSED, before);
	base64_encode(buffer_text(thought), thought->length, text + before);
	return text;
}

// False: it was not enclosed here.
static bool disclose(struct turns *turns, const char *enclosed)
{
	const size_t before = sizeof ENCLOSED - 1, length = strlen(enclosed);
	if (length < before + 4 || strncmp(enclosed, ENCLOSED, before) != 0 || (length - before) % 4)
		return false;
	size_t bytes = (length - before) / 4 * 3;
	bytes -= enclosed[length - 1] == '=';
	bytes -= enclosed[length - 2] == '=';
	char *text = calloc(1, bytes + 1);
	const bool good = text && base64_decode(enclosed + before, length - before, text, bytes) &&
			  strlen(text) == bytes && json_utf8(text, bytes);
	if (good)
		turns_thought(turns, text);
	free(text);
	return good;
}

// The texts of `content` or `summary`.
static bool read_thoughts(struct turns *turns, const struct json *list)
{
	for (const struct json *one = json_first(list); one; one = json_next(one))
		turns_thought(turns, json_get_string(one, "text", ""));
	return json_count(list) > 0;
}

static enum status read_reasoning(struct input *input, const struct json *item)
{
	struct turns *turns = &input->turns;
	const char *enclosed = json_get_string(item, "encrypted_content", NULL);
	if (reading_known(turns->reading, item, known_reasoning, "a reasoning item"))
		return STATUS_INVALID_PARAMS;
	turns_role(turns, "assistant");
	input->begun = true;
	if (read_thoughts(turns, json_get(item, "content")) || (enclosed && disclose(turns, enclosed)))
		return STATUS_OK;
	if (!enclosed) {
		read_thoughts(turns, json_get(item, "summary"));
		return STATUS_OK;
	}
	error_hint(turns->reading->error, "begin another conversation, or leave that item out");
	return reading_wrong(turns->reading,
			     "has a reasoning item whose encrypted_content was not made here: it cannot be read");
}

// ---- the whole ----

static enum status read_item(struct input *input, const struct json *item)
{
	const char *type = json_get_string(item, "type", json_get(item, "role") ? "message" : "");
	if (!strcmp(type, "message"))
		return read_message(input, item);
	if (!strcmp(type, "function_call"))
		return read_call(input, item);
	if (!strcmp(type, "function_call_output"))
		return read_result(input, item);
	if (!strcmp(type, "reasoning"))
		return read_reasoning(input, item);
	return error_set(input->turns.reading->error, STATUS_INVALID_PARAMS,
			 "input: an item of the type \"%.32s\" is not supported here: message, function_call, "
			 "function_call_output and reasoning are",
			 type);
}

static enum status read_all(struct input *input, const struct json *value)
{
	struct reading *reading = input->turns.reading;
	const char *instructions = json_get_string(reading->body, "instructions", "");
	enum status status = STATUS_OK;
	if (instructions[0]) {
		turns_role(&input->turns, "system");
		turns_text(&input->turns, instructions);
	}
	if (json_type(value) == JSON_STRING) {
		turns_role(&input->turns, "user");
		turns_text(&input->turns, json_string(value, ""));
	} else if (json_type(value) != JSON_ARRAY || !json_count(value)) {
		return reading_wrong(reading, "must be a text, or a list of items");
	}
	for (const struct json *one = json_type(value) == JSON_ARRAY ? json_first(value) : NULL; one && !status;
	     one = json_next(one))
		status = read_item(input, one);
	return status ? status : turns_end(&input->turns);
}

enum status responses_read_input(struct reading *reading, const struct json *value)
{
	struct input input = {.begun = false};
	turns_init(&input.turns, reading);
	const enum status status = read_all(&input, value);
	turns_finish(&input.turns);
	return status;
}
