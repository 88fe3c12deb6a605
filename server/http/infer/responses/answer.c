/* A generated answer as a response of OpenAI's: whole, or as events. Its output is items, one after another: reasoning,
 * a message, function_call. A call is told once it is whole, since clients run what they are told; one that is not
 * JSON, because the answer was cut off, is text. */
#include "common/base/clock.h"
#include "server/http/infer/responses/responses.h"
#include "server/security/random_id.h"

#include <stdlib.h>
#include <string.h>

enum {
	ALIVE_MS = 5000, // without an event, while something is generated
	// Of all texts of a response. Each is printed five times at its end, escaped and with the earlier ones; all of
	// that has to be below LIMIT_ANSWER_QUEUE_BYTES. It can also be sent back in the next request.
	RESPONSE_BYTES = LIMIT_POST_BYTES / 2,
};

static struct json *typed(const char *type)
{
	struct json *json = json_new_object();
	json_set_string(json, "type", type);
	return json;
}

static struct json *list_of(struct json *one)
{
	struct json *list = json_new_array();
	json_push(list, one);
	return list;
}

// ---- the object ----

struct json *responses_object(const struct answer *answer, const char *status, struct json *output)
{
	static const char *const drawn[] = {"temperature", "top_p", NULL};
	struct json *json = json_new_object();
	json_set_string(json, "id", answer->id);
	json_set_string(json, "object", "response");
	json_set_integer(json, "created_at", answer->created_s);
	json_set_string(json, "status", status);
	json_set_string(json, "model", answer->model);
	json_set(json, "output", output ? output : json_new_array());
	for (const struct json *one = json_first(answer->response.repeats); one; one = json_next(one))
		json_set(json, json_name(one), json_copy(one));
	for (const char *const *name = drawn; *name; name++) {
		const struct json *value = json_get(json_get(answer->sampling, *name), "value");
		json_set(json, *name, value ? json_copy(value) : json_new_null());
	}
	return json;
}

static struct json *usage_of(const struct json *end)
{
	const int64_t prompt = json_get_integer(end, "prompt_tokens", 0);
	const int64_t generated = json_get_integer(end, "generated_tokens", 0);
	struct json *usage = json_new_object(), *in = json_new_object(), *out = json_new_object();
	json_set_integer(usage, "input_tokens", prompt);
	json_set_integer(in, "cached_tokens", json_get_integer(end, "cached_tokens", 0));
	json_set(usage, "input_tokens_details", in);
	json_set_integer(usage, "output_tokens", generated);
	json_set_integer(out, "reasoning_tokens", json_get_integer(end, "reasoning_tokens", 0));
	answer_put_foreseen(out, end, "tokens");
	json_set(usage, "output_tokens_details", out);
	json_set_integer(usage, "total_tokens", prompt + generated);
	answer_put_energy(usage, end);
	return usage;
}

// The answer is over.
static struct json *last_object(const struct answer *answer, const struct ending *ending, struct json *output)
{
	struct json *json = responses_object(answer, ending->cut ? "incomplete" : "completed", output);
	if (ending->cut) {
		struct json *why = json_new_object();
		json_set_string(why, "reason", "max_output_tokens");
		json_set(json, "incomplete_details", why);
	} else {
		json_set_integer(json, "completed_at", clock_wall_ms() / 1000);
	}
	json_set(json, "usage", usage_of(ending->end));
	json_set(json, "sampling", json_copy(answer->sampling));
	answer_put_provenance(json, ending->end);
	return json;
}

// ---- items ----

static const char *prefix_of(enum block_kind kind)
{
	return kind == BLOCK_THINKING ? "rs_" : kind == BLOCK_CALL ? "fc_" : "msg_";
}

// A part with its text.
static struct json *part_json(enum block_kind kind, const char *text)
{
	struct json *part = typed(kind == BLOCK_THINKING ? "reasoning_text" : "output_text");
	json_set_string(part, "text", text);
	if (kind == BLOCK_TEXT) {
		json_set(part, "annotations", json_new_array());
		json_set(part, "logprobs", json_new_array());
	}
	return part;
}

// A thought or a message; text NULL: it has none yet.
static struct json *item_json(const struct answer *answer, enum block_kind kind, const char *id,
			      const struct buffer *text, const char *status)
{
	struct json *item = typed(kind == BLOCK_THINKING ? "reasoning" : "message");
	json_set_string(item, "id", id);
	json_set_string(item, "status", status);
	json_set(item, "content", text ? list_of(part_json(kind, buffer_text(text))) : json_new_array());
	if (kind == BLOCK_TEXT) {
		json_set_string(item, "role", "assistant");
		return item;
	}
	json_set(item, "summary", json_new_array());
	char *enclosed = text && answer->response.encloses ? responses_enclose(text) : NULL;
	if (enclosed)
		json_set_string(item, "encrypted_content", enclosed);
	free(enclosed);
	return item;
}

static struct json *call_json(const char *id, const struct said_call *call, const char *arguments, const char *status)
{
	struct json *item = typed("function_call");
	json_set_string(item, "id", id);
	json_set_string(item, "status", status);
	json_set_string(item, "call_id", call->id);
	json_set_string(item, "name", call->name);
	json_set_string(item, "arguments", arguments);
	return item;
}

// ---- events ----

struct json *responses_event(struct answer *answer, const char *type)
{
	struct json *event = typed(type);
	json_set_integer(event, "sequence_number", answer->response.events++);
	answer->blocks.told_ms = clock_steady_ms();
	return event;
}

static void send_object(struct answer *answer, const char *type, struct json *object)
{
	struct json *event = responses_event(answer, type);
	json_set(event, "response", object);
	answer_event(answer, event);
}

// About the item that is open.
static void send_of_item(struct answer *answer, const char *type, const char *member, struct json *value)
{
	struct json *event = responses_event(answer, type);
	json_set_integer(event, "output_index", answer->blocks.index);
	if (strcmp(member, "item") != 0) {
		json_set_string(event, "item_id", answer->response.id);
		if (answer->blocks.open != BLOCK_CALL)
			json_set_integer(event, "content_index", 0);
	}
	json_set(event, member, value);
	if (!strncmp(type, "response.output_text", 20))
		json_set(event, "logprobs", json_new_array());
	answer_event(answer, event);
}

static void open_item(struct answer *answer, enum block_kind kind)
{
	answer->blocks.open = kind;
	if (random_id(prefix_of(kind), answer->response.id, sizeof answer->response.id))
		answer->response.id[0] = 0;
}

// The open item is whole.
static void send_done(struct answer *answer, struct json *item)
{
	json_push(answer->response.items, json_copy(item));
	send_of_item(answer, "response.output_item.done", "item", item);
	answer->blocks.open = BLOCK_NONE;
	answer->blocks.index++;
}

void responses_close_item(struct answer *answer, const char *status)
{
	const enum block_kind kind = answer->blocks.open;
	const struct buffer *text = &answer->response.text;
	if (kind == BLOCK_NONE)
		return;
	send_of_item(answer, kind == BLOCK_THINKING ? "response.reasoning_text.done" : "response.output_text.done",
		     "text", json_new_string(buffer_text(text)));
	send_of_item(answer, "response.content_part.done", "part", part_json(kind, buffer_text(text)));
	send_done(answer, item_json(answer, kind, answer->response.id, text, status));
	buffer_clear(&answer->response.text);
}

static void tell_piece(struct answer *answer, enum block_kind kind, struct buffer *piece)
{
	if (!piece->length || (answer->blocks.open != kind && said_blank(piece)))
		return;
	if (answer->blocks.open != kind) {
		responses_close_item(answer, "completed");
		open_item(answer, kind);
		send_of_item(answer, "response.output_item.added", "item",
			     item_json(answer, kind, answer->response.id, NULL, "in_progress"));
		send_of_item(answer, "response.content_part.added", "part", part_json(kind, ""));
	}
	send_of_item(answer, kind == BLOCK_THINKING ? "response.reasoning_text.delta" : "response.output_text.delta",
		     "delta", json_new_string(buffer_text(piece)));
	buffer_append(&answer->response.text, piece->data, piece->length);
	answer->response.bytes += piece->length;
	buffer_clear(piece);
}

static void tell_call(struct answer *answer, struct said_call *call)
{
	struct json *input = said_call_input(call);
	if (!input) {
		tell_piece(answer, BLOCK_TEXT, &call->arguments);
		return;
	}
	json_destroy(&input);
	const char *arguments = buffer_text(&call->arguments);
	responses_close_item(answer, "completed");
	open_item(answer, BLOCK_CALL);
	send_of_item(answer, "response.output_item.added", "item",
		     call_json(answer->response.id, call, "", "in_progress"));
	send_of_item(answer, "response.function_call_arguments.delta", "delta", json_new_string(arguments));
	struct json *event = responses_event(answer, "response.function_call_arguments.done");
	json_set_integer(event, "output_index", answer->blocks.index);
	json_set_string(event, "item_id", answer->response.id);
	json_set_string(event, "name", call->name);
	json_set_string(event, "arguments", arguments);
	answer_event(answer, event);
	send_done(answer, call_json(answer->response.id, call, arguments, "completed"));
	answer->response.bytes += call->arguments.length;
	buffer_clear(&call->arguments);
}

// ---- of the wording ----

void responses_begin(struct answer *answer)
{
	answer->response.items = json_new_array();
	buffer_init(&answer->response.text, LIMIT_ANSWER_QUEUE_BYTES);
	send_object(answer, "response.created", responses_object(answer, "in_progress", NULL));
	send_object(answer, "response.in_progress", responses_object(answer, "in_progress", NULL));
}

void responses_tell(struct answer *answer)
{
	struct said *said = &answer->said;
	tell_piece(answer, BLOCK_THINKING, &said->thoughts);
	tell_piece(answer, BLOCK_TEXT, &answer->text);
	for (; said->told < said->whole && said->told < said->count; said->told++)
		tell_call(answer, &said->calls[said->told]);
	if (answer->response.bytes > RESPONSE_BYTES && answer->generation)
		answer_give_up(answer, STATUS_LIMIT_EXCEEDED,
			       "the answer is longer than 1 MiB, the most of a response");
	else if (clock_steady_ms() - answer->blocks.told_ms >= ALIVE_MS)
		answer_event(answer, responses_event(answer, "keepalive"));
}

static void push_item(struct answer *answer, struct json *output, enum block_kind kind, const struct buffer *text,
		      const char *status)
{
	char id[48] = "";
	if (said_blank(text) || random_id(prefix_of(kind), id, sizeof id))
		return;
	json_push(output, item_json(answer, kind, id, text, status));
}

static struct json *output_of(struct answer *answer, bool cut)
{
	struct said *said = &answer->said;
	struct json *output = json_new_array();
	const char *status = cut && !said->count ? "incomplete" : "completed";
	push_item(answer, output, BLOCK_THINKING, &said->thoughts, said_blank(&answer->text) ? status : "completed");
	push_item(answer, output, BLOCK_TEXT, &answer->text, status);
	for (size_t i = 0; i < said->count; i++) {
		char id[48] = "";
		struct json *input = said_call_input(&said->calls[i]);
		const char *arguments = buffer_text(&said->calls[i].arguments);
		if (!input)
			push_item(answer, output, BLOCK_TEXT, &said->calls[i].arguments, "incomplete");
		else if (!random_id(prefix_of(BLOCK_CALL), id, sizeof id))
			json_push(output, call_json(id, &said->calls[i], arguments, "completed"));
		json_destroy(&input);
	}
	return output;
}

void responses_end(struct answer *answer, const struct ending *ending)
{
	if (!answer->streams) {
		answer_json(answer, last_object(answer, ending, output_of(answer, ending->cut)));
		return;
	}
	responses_close_item(answer, ending->cut ? "incomplete" : "completed");
	send_object(answer, ending->cut ? "response.incomplete" : "response.completed",
		    last_object(answer, ending, json_copy(answer->response.items)));
}
