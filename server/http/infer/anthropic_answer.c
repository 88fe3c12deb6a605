/* What is generated, as a message of Anthropic's: whole, or as events. Its content is blocks, one after another:
 * thinking, text, tool_use. A call of a tool is told once it is whole; one that is not JSON, because the answer was cut
 * off, is text. */
#include "common/base/clock.h"
#include "server/http/infer/inside.h"

#include <string.h>

enum { PING_MS = 5000 }; // without an event, while something is generated

static struct json *typed(const char *type)
{
	struct json *json = json_new_object();
	json_set_string(json, "type", type);
	return json;
}

static struct json *usage_json(int64_t prompt, int64_t cached, int64_t generated)
{
	struct json *usage = json_new_object();
	json_set_integer(usage, "input_tokens", prompt - cached);
	json_set_integer(usage, "cache_creation_input_tokens", 0);
	json_set_integer(usage, "cache_read_input_tokens", cached);
	json_set_integer(usage, "output_tokens", generated);
	return usage;
}

static struct json *usage_of(const struct json *end)
{
	struct json *usage = usage_json(json_get_integer(end, "prompt_tokens", 0),
					json_get_integer(end, "cached_tokens", 0),
					json_get_integer(end, "generated_tokens", 0));
	answer_put_foreseen(usage, end, "tokens");
	answer_put_energy(usage, end);
	return usage;
}

static struct json *message_json(const struct answer *answer, struct json *content)
{
	struct json *message = json_new_object();
	json_set_string(message, "id", answer->id);
	json_set_string(message, "type", "message");
	json_set_string(message, "role", "assistant");
	json_set_string(message, "model", answer->model);
	json_set(message, "content", content);
	json_set_null(message, "stop_reason");
	json_set_null(message, "stop_sequence");
	return message;
}

static void set_reason(struct json *json, const struct answer *answer, const struct ending *ending)
{
	const char *stop = json_get_string(ending->end, "stop", NULL);
	json_set_string(json, "stop_reason",
			ending->cut             ? "max_tokens"
			: stop                  ? "stop_sequence"
			: answer->blocks.called ? "tool_use"
						: "end_turn");
	json_set_string(json, "stop_sequence", ending->cut ? NULL : stop);
}

// ---- blocks ----

static struct json *block_json(enum block_kind kind, const struct said_call *call)
{
	switch (kind) {
	case BLOCK_NONE:
		break;
	case BLOCK_TEXT: {
		struct json *block = typed("text");
		json_set_string(block, "text", "");
		return block;
	}
	case BLOCK_THINKING: {
		struct json *block = typed("thinking");
		json_set_string(block, "thinking", "");
		json_set_string(block, "signature", "");
		return block;
	}
	case BLOCK_CALL: {
		struct json *block = typed("tool_use");
		json_set_string(block, "id", call->id);
		json_set_string(block, "name", call->name);
		json_set(block, "input", json_new_object());
		return block;
	}
	}
	return NULL;
}

static void block_event(struct answer *answer, const char *type, const char *member, struct json *value)
{
	struct json *event = typed(type);
	json_set_integer(event, "index", answer->blocks.index);
	if (member)
		json_set(event, member, value);
	answer->blocks.told_ms = clock_steady_ms();
	answer_event(answer, event);
}

static void close_block(struct answer *answer)
{
	if (answer->blocks.open == BLOCK_NONE)
		return;
	block_event(answer, "content_block_stop", NULL, NULL);
	answer->blocks.open = BLOCK_NONE;
	answer->blocks.index++;
}

static void open_block(struct answer *answer, enum block_kind kind, const struct said_call *call)
{
	if (answer->blocks.open == kind && kind != BLOCK_CALL)
		return;
	close_block(answer);
	answer->blocks.open = kind;
	block_event(answer, "content_block_start", "content_block", block_json(kind, call));
}

static void tell_delta(struct answer *answer, const char *type, const char *member, struct buffer *text)
{
	struct json *delta = typed(type);
	json_set_string(delta, member, buffer_text(text));
	buffer_clear(text);
	block_event(answer, "content_block_delta", "delta", delta);
}

// A block of nothing but blanks would not be taken back by Anthropic: it is none.
static void tell_text(struct answer *answer, struct buffer *text)
{
	if (!text->length || (answer->blocks.open != BLOCK_TEXT && said_blank(text)))
		return;
	open_block(answer, BLOCK_TEXT, NULL);
	tell_delta(answer, "text_delta", "text", text);
}

static void tell_call(struct answer *answer, struct said_call *call)
{
	struct json *input = said_call_input(call);
	if (!input) {
		tell_text(answer, &call->arguments);
		return;
	}
	answer->blocks.called = true;
	open_block(answer, BLOCK_CALL, call);
	if (!call->arguments.length)
		buffer_append_text(&call->arguments, "{}");
	tell_delta(answer, "input_json_delta", "partial_json", &call->arguments);
	close_block(answer);
	json_destroy(&input);
}

// ---- of the wording ----

void anthropic_begin(struct answer *answer)
{
	struct json *event = typed("message_start"), *message = message_json(answer, json_new_array());
	json_set(message, "usage", usage_json((int64_t)answer->prompt_tokens, 0, 0));
	json_set(event, "message", message);
	answer->blocks.told_ms = clock_steady_ms();
	answer_event(answer, event);
	answer_event(answer, typed("ping"));
}

void anthropic_tell(struct answer *answer)
{
	struct said *said = &answer->said;
	if (said->thoughts.length && answer->hides_thoughts)
		buffer_clear(&said->thoughts);
	if (said->thoughts.length) {
		open_block(answer, BLOCK_THINKING, NULL);
		tell_delta(answer, "thinking_delta", "thinking", &said->thoughts);
	}
	tell_text(answer, &answer->text);
	for (; said->told < said->whole && said->told < said->count; said->told++)
		tell_call(answer, &said->calls[said->told]);
	if (clock_steady_ms() - answer->blocks.told_ms < PING_MS)
		return;
	answer->blocks.told_ms = clock_steady_ms();
	answer_event(answer, typed("ping"));
}

static void push_text(struct json *content, const char *type, const char *member, const struct buffer *text)
{
	struct json *block = typed(type);
	json_set_string(block, member, buffer_text(text));
	if (strcmp(type, "thinking") == 0)
		json_set_string(block, "signature", "");
	json_push(content, block);
}

static struct json *content_of(struct answer *answer)
{
	struct said *said = &answer->said;
	struct json *content = json_new_array();
	if (said->thoughts.length && !answer->hides_thoughts)
		push_text(content, "thinking", "thinking", &said->thoughts);
	if (!said_blank(&answer->text))
		push_text(content, "text", "text", &answer->text);
	for (size_t i = 0; i < said->count; i++) {
		struct json *input = said_call_input(&said->calls[i]), *block;
		if (!input) {
			push_text(content, "text", "text", &said->calls[i].arguments);
			continue;
		}
		answer->blocks.called = true;
		block = block_json(BLOCK_CALL, &said->calls[i]);
		json_set(block, "input", input);
		json_push(content, block);
	}
	return content;
}

void anthropic_end(struct answer *answer, const struct ending *ending)
{
	if (answer->endpoint == ENDPOINT_COUNT_TOKENS) {
		struct json *json = json_new_object();
		json_set(json, "input_tokens", json_copy(json_get(ending->end, "prompt_tokens")));
		answer_json(answer, json);
		return;
	}
	if (!answer->streams) {
		struct json *message = message_json(answer, content_of(answer));
		set_reason(message, answer, ending);
		json_set(message, "usage", usage_of(ending->end));
		answer_put_provenance(message, ending->end);
		answer_json(answer, message);
		return;
	}
	close_block(answer);
	struct json *event = typed("message_delta"), *delta = json_new_object();
	set_reason(delta, answer, ending);
	json_set(event, "delta", delta);
	json_set(event, "usage", usage_of(ending->end));
	answer_put_provenance(event, ending->end);
	answer_event(answer, event);
	answer_event(answer, typed("message_stop"));
}
