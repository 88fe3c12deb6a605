/* What is generated, as OpenAI's answers: whole, or as events of which each has what has come since the last. No field
 * of a delta is null: what there is nothing of is not there. */
#include "common/text/base64.h"
#include "server/http/infer/inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct json *usage_of(const struct json *end)
{
	const int64_t prompt = json_get_integer(end, "prompt_tokens", 0);
	const int64_t generated = json_get_integer(end, "generated_tokens", 0);
	struct json *usage = json_new_object(), *details = json_new_object();
	json_set_integer(usage, "prompt_tokens", prompt);
	json_set_integer(usage, "completion_tokens", generated);
	json_set_integer(usage, "total_tokens", prompt + generated);
	json_set_integer(details, "cached_tokens", json_get_integer(end, "cached_tokens", 0));
	json_set(usage, "prompt_tokens_details", details);
	struct json *more = json_new_object();
	if (json_get(end, "reasoning_tokens"))
		json_set_integer(more, "reasoning_tokens", json_get_integer(end, "reasoning_tokens", 0));
	answer_put_foreseen(more, end, "tokens");
	if (json_count(more))
		json_set(usage, "completion_tokens_details", more);
	else
		json_destroy(&more);
	answer_put_energy(usage, end);
	return usage;
}

// ---- log-probabilities ----

// The bytes of a token: as text, and as the numbers they are. One that is no whole characters is named by its bytes, as
// OpenAI does: each has a name of its own.
static void set_name(struct json *out, const struct buffer *bytes)
{
	struct buffer name;
	char one[8];
	if (json_utf8(buffer_text(bytes), bytes->length)) {
		json_set_string(out, "token", buffer_text(bytes));
		return;
	}
	buffer_init(&name, LIMIT_BODY_BYTES);
	buffer_append_text(&name, "bytes:");
	for (size_t i = 0; i < bytes->length; i++) {
		snprintf(one, sizeof one, "\\x%02x", bytes->data[i]);
		buffer_append_text(&name, one);
	}
	json_set_string(out, "token", buffer_text(&name));
	buffer_finish(&name);
}

static void add_token(struct json *out, const struct json *choice, bool numbers, struct buffer *text)
{
	const char *encoded = json_get_string(choice, "bytes", "");
	size_t length = strlen(encoded), bytes = length / 4 * 3;
	uint8_t raw[4096];
	while (bytes && length && encoded[length - 1] == '=') {
		length--;
		bytes--;
	}
	buffer_clear(text);
	if (bytes && bytes < sizeof raw && base64_decode(encoded, strlen(encoded), raw, bytes))
		buffer_append(text, raw, bytes);
	set_name(out, text);
	json_set_number(out, "logprob", json_get_number(choice, "logprob", (double)NAN)); // null: nothing is said of it
	if (!numbers)
		return;
	struct json *list = json_new_array();
	for (size_t i = 0; i < text->length; i++)
		json_push(list, json_new_integer(text->data[i]));
	json_set(out, "bytes", list);
}

// Of chat: {content: [{token, logprob, bytes, top_logprobs}]}.
static struct json *chat_logprobs(const struct answer *answer)
{
	struct buffer text;
	struct json *json = json_new_object(), *content = json_new_array();
	buffer_init(&text, 4096);
	for (const struct json *one = json_first(answer->choices); one; one = json_next(one)) {
		struct json *entry = json_new_object(), *top = json_new_array();
		int left = answer->logprobs;
		add_token(entry, one, true, &text);
		for (const struct json *other = json_first(json_get(one, "top")); other && left;
		     other = json_next(other)) {
			struct json *likely = json_new_object();
			add_token(likely, other, true, &text);
			json_push(top, likely);
			left--;
		}
		json_set(entry, "top_logprobs", top);
		json_push(content, entry);
	}
	json_set(json, "content", content);
	buffer_finish(&text);
	return json;
}

// Of completions: four lists beside each other.
static struct json *text_logprobs(const struct answer *answer)
{
	struct buffer text;
	struct json *json = json_new_object(), *tokens = json_new_array(), *values = json_new_array();
	struct json *tops = json_new_array(), *offsets = json_new_array();
	buffer_init(&text, 4096);
	for (const struct json *one = json_first(answer->choices); one; one = json_next(one)) {
		struct json *entry = json_new_object(), *top = json_new_object();
		int left = answer->logprobs;
		add_token(entry, one, false, &text);
		json_push(tokens, json_copy(json_get(entry, "token")));
		json_push(values, json_copy(json_get(entry, "logprob")));
		json_push(offsets, json_copy(json_get(one, "offset")));
		json_destroy(&entry);
		for (const struct json *other = json_first(json_get(one, "top")); other && left;
		     other = json_next(other)) {
			struct json *likely = json_new_object();
			add_token(likely, other, false, &text);
			json_set_number(top, json_get_string(likely, "token", ""),
					json_get_number(likely, "logprob", 0));
			json_destroy(&likely);
			left--;
		}
		if (json_type(json_get(one, "logprob")) == JSON_NULL) {
			json_destroy(&top);
			top = json_new_null();
		}
		json_push(tops, top);
	}
	json_set(json, "tokens", tokens);
	json_set(json, "token_logprobs", values);
	json_set(json, "top_logprobs", tops);
	json_set(json, "text_offset", offsets);
	buffer_finish(&text);
	return json;
}

static void add_logprobs(const struct answer *answer, struct json *choice)
{
	const bool chat = answer->endpoint == ENDPOINT_CHAT;
	if (answer->logprobs < 0)
		json_set_null(choice, "logprobs");
	else
		json_set(choice, "logprobs", chat ? chat_logprobs(answer) : text_logprobs(answer));
}

// ---- objects ----

static struct json *head(const struct answer *answer, const char *object, struct json *choices)
{
	struct json *json = json_new_object();
	json_set_string(json, "id", answer->id);
	json_set_string(json, "object", object);
	json_set_integer(json, "created", answer->created_s);
	json_set_string(json, "model", answer->model);
	json_set(json, "choices", choices);
	return json;
}

static struct json *call_json(const struct said_call *call, bool whole)
{
	struct json *json = json_new_object(), *function = json_new_object();
	if (!call->told) {
		json_set_string(json, "id", call->id);
		json_set_string(json, "type", "function");
		json_set_string(function, "name", call->name);
	}
	if (whole || !call->told || call->arguments.length)
		json_set_string(function, "arguments", buffer_text(&call->arguments));
	json_set(json, "function", function);
	return json;
}

// Of calls what has not been told: `tool_calls` of a delta. NULL: nothing.
static struct json *fresh_calls(struct said *said)
{
	struct json *list = NULL;
	for (size_t i = said->told; i < said->count; i++) {
		struct said_call *call = &said->calls[i];
		if (call->told && !call->arguments.length)
			continue;
		struct json *json = call_json(call, false);
		json_set_integer(json, "index", (int64_t)i);
		list = list ? list : json_new_array();
		json_push(list, json);
		call->told = true;
		buffer_clear(&call->arguments);
	}
	said->told = said->count ? said->count - 1 : 0;
	return list;
}

// What has gathered of a chat, as a delta.
static struct json *fresh_delta(struct answer *answer, const char *role)
{
	struct json *delta = json_new_object(), *calls = fresh_calls(&answer->said);
	if (role)
		json_set_string(delta, "role", role);
	if (answer->said.thoughts.length)
		json_set_string(delta, "reasoning_content", buffer_text(&answer->said.thoughts));
	if (role || answer->text.length)
		json_set_string(delta, "content", buffer_text(&answer->text));
	if (calls)
		json_set(delta, "tool_calls", calls);
	buffer_clear(&answer->said.thoughts);
	return delta;
}

// An event with one choice: what has gathered. Of role and reason what is NULL is not in it, or null where OpenAI has
// it so. end: of the last one; else NULL.
static void send_chunk(struct answer *answer, const char *role, const char *reason, const struct json *end)
{
	const bool chat = answer->endpoint == ENDPOINT_CHAT;
	struct json *choices = json_new_array(), *choice = json_new_object();
	json_set_integer(choice, "index", answer->several.index);
	if (chat)
		json_set(choice, "delta", fresh_delta(answer, role));
	else
		json_set_string(choice, "text", buffer_text(&answer->text));
	buffer_clear(&answer->text);
	add_logprobs(answer, choice);
	answer_drop_choices(answer);
	json_set_string(choice, "finish_reason", reason);
	answer_put_provenance(choice, end);
	json_push(choices, choice);
	struct json *json = head(answer, chat ? "chat.completion.chunk" : "text_completion", choices);
	if (reason)
		json_set(json, "sampling", json_copy(answer->sampling));
	if (answer->wants_usage)
		json_set_null(json, "usage");
	answer_event(answer, json);
}

static void send_usage(struct answer *answer, struct json *usage)
{
	struct json *json = head(answer,
				 answer->endpoint == ENDPOINT_CHAT ? "chat.completion.chunk" : "text_completion",
				 json_new_array());
	json_set(json, "usage", usage);
	answer_event(answer, json);
}

static struct json *message_json(const struct answer *answer)
{
	const struct said *said = &answer->said;
	struct json *message = json_new_object(), *calls = json_new_array();
	json_set_string(message, "role", "assistant");
	json_set_string(message, "content", said->count && !answer->text.length ? NULL : buffer_text(&answer->text));
	json_set_null(message, "refusal");
	if (said->thoughts.length)
		json_set_string(message, "reasoning_content", buffer_text(&said->thoughts));
	for (size_t i = 0; i < said->count; i++)
		json_push(calls, call_json(&said->calls[i], true));
	if (said->count)
		json_set(message, "tool_calls", calls);
	else
		json_destroy(&calls);
	return message;
}

static struct json *whole_choice(struct answer *answer, const char *reason, const struct json *end)
{
	struct json *choice = json_new_object();
	json_set_integer(choice, "index", answer->several.index);
	if (answer->endpoint == ENDPOINT_CHAT)
		json_set(choice, "message", message_json(answer));
	else
		json_set_string(choice, "text", buffer_text(&answer->text));
	add_logprobs(answer, choice);
	json_set_string(choice, "finish_reason", reason);
	answer_put_provenance(choice, end);
	return choice;
}

// `choice` (taken): the only one; of several all are among those that have ended.
static void send_whole(struct answer *answer, struct json *choice, struct json *usage)
{
	struct json *choices = json_new_array();
	const bool several = answer->several.count > 0;
	for (size_t i = 0; i < answer->several.count; i++) {
		json_push(choices, answer->several.ended[i]);
		answer->several.ended[i] = NULL;
	}
	if (!several)
		json_push(choices, choice);
	struct json *json = head(answer, answer->endpoint == ENDPOINT_CHAT ? "chat.completion" : "text_completion",
				 choices);
	json_set(json, "usage", usage);
	json_set(json, "sampling", json_copy(several ? answer->several.all[0]->sampling : answer->sampling));
	answer_json(answer, json);
}

// ---- of the wording ----

void openai_begin(struct answer *answer)
{
	if (answer->endpoint == ENDPOINT_CHAT)
		send_chunk(answer, "assistant", NULL, NULL);
}

void openai_tell(struct answer *answer)
{
	send_chunk(answer, NULL, NULL, NULL);
}

void openai_end(struct answer *answer, const struct ending *ending)
{
	const char *reason = ending->cut ? "length" : answer->said.whole ? "tool_calls" : "stop";
	struct answer *whole = answer_whole(answer);
	const bool several = whole != answer, last = !several || answer_choice_ended(answer, ending->end);
	const struct json *end = several ? whole->several.sum : ending->end;
	if (!answer->streams) {
		struct json *choice = whole_choice(answer, reason, ending->end);
		if (several)
			whole->several.ended[answer->several.index] = choice;
		answer_keep_choices(answer);
		if (last)
			send_whole(whole, choice, usage_of(end));
		return;
	}
	send_chunk(answer, NULL, reason, ending->end);
	if (!last)
		return;
	if (answer->wants_usage)
		send_usage(answer, usage_of(end));
	answer_event(answer, NULL);
}
