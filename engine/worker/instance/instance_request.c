/* Requests of a model instance: from an order to the generator, and from its tokens to messages. See instance.h.
 *
 * A chosen token adds to the text, some of which may be held (instance_text.h). The results of a step for a request are
 * one generate.delta; those of its last step come before generate.end. The token that ends a text is counted, but not
 * sent. After a failed step nothing is sent: the worker ends.
 *
 * A request that goes on from elsewhere (`generated`) has its tokens turned into text again, so that the same text is
 * held; the first `delivered_bytes` of the text are not sent again. (They may include held text, if the end of the text
 * was sent but generate.end was not.) Thread: the driver's. */
#include "common/text/base64.h"
#include "engine/worker/instance/instance_spent.h"
#include "engine/worker/prefix/prefix.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
	DELTA_BYTES = 128 * 1024, // of text in one message: of escapes, six bytes each
	TOKEN_BYTES = 3072,       // of one token's, in a choice
	STOP_BYTES = 1024,        // of a stop string: 256 characters
	WAITING_BYTES = 9,        // of an incomplete character, as the text of its bytes
};
static const float least_logprob = -9999; // reported for impossible tokens

// ---- life ----

static struct request *find(const struct instance *instance, uint64_t number)
{
	struct request *request = instance->requests;
	while (request && request->number != number)
		request = request->next;
	return request;
}

void request_free(struct request *request)
{
	struct request **at = &request->instance->requests;
	while (*at && *at != request)
		at = &(*at)->next;
	if (*at) {
		*at = request->next;
		request->instance->request_count--;
		request->instance->token_count -= request->prompt_tokens;
	}
	json_destroy(&request->id);
	json_destroy(&request->tokens);
	json_destroy(&request->choices);
	free(request->offsets);
	if (request->later == request->form)
		request->later = NULL;
	matcher_destroy(&request->form);
	matcher_destroy(&request->later);
	dialogue_destroy(&request->dialogue);
	json_destroy(&request->tools);
	json_destroy(&request->syntax);
	token_list_finish(&request->said);
	instance_text_finish(&request->text);
	buffer_finish(&request->fresh);
	free(request);
}

enum status request_make(struct request **out, struct instance *instance, struct order *order, struct error *error)
{
	const struct json *params = order->message.params;
	*out = NULL;
	if (find(instance, (uint64_t)json_get_integer(params, "request", 0)))
		return error_set(error, STATUS_CONFLICT, "there is a request of this number");
	if (instance->request_count >= LIMIT_INSTANCE_REQUESTS ||
	    order->prompt.count > LIMIT_INSTANCE_TOKENS - instance->token_count) {
		error_hint(error, "try again when some have ended");
		return error_set(error, STATUS_RATE_LIMITED, "%u requests are under way, of %llu tokens",
				 instance->request_count, (unsigned long long)instance->token_count);
	}
	struct request *request = *out = calloc(1, sizeof(*request));
	if (!request)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a request");
	request->instance = instance;
	request->number = (uint64_t)json_get_integer(params, "request", 0);
	request->id = json_copy(order->message.id);
	request->prompt_tokens = (uint32_t)order->prompt_count;
	request->form_begin = order->form_begin;
	if (request->form_begin == FORM_AT_ONCE)
		request->form = order->form;
	else
		request->later = order->form;
	order->form = NULL;
	request->ignore_end = json_get_bool(params, "ignore_end", false);
	detokenizer_init(&request->detokenizer, instance->tokenizer);
	request->detokenizer.begun = true; // it goes on from the prompt: a space is a space
	buffer_init(&request->fresh, LIMIT_BODY_BYTES);
	request->next = instance->requests;
	instance->requests = request;
	instance->request_count++;
	instance->token_count += request->prompt_tokens;
	if (instance_text_init(&request->text, json_get(params, "stop")) || request_talk(request, order))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a request");
	return STATUS_OK;
}

void requests_drop(struct instance *instance)
{
	prefixes_drop(instance);
	generator_destroy(&instance->generator); // without a callback
	while (instance->requests)
		request_free(instance->requests);
}

// ---- output ----

static struct json *text_of(const void *bytes, size_t length)
{
	char *copy = length ? buffer_copy_text(bytes, length) : NULL;
	struct json *text = json_new_string(copy ? copy : "");
	free(copy);
	return text;
}

static void send_delta(struct request *request, const void *text, size_t length)
{
	struct json *params = json_new_object();
	json_set_integer(params, "request", (int64_t)request->number);
	json_set(params, "tokens", request->tokens ? request->tokens : json_new_array());
	json_set(params, "text", text_of(text, length));
	if (request->choices)
		json_set(params, "choices", request->choices);
	if (request->syntax)
		json_set(params, "syntax", request->syntax);
	request->syntax = NULL;
	request->tokens = request->choices = NULL;
	instance_tell(request->instance, "generate.delta", params);
}

// The length of a piece of text of DELTA_BYTES at most, which ends with a character.
static size_t piece_of(const uint8_t *text, size_t length)
{
	size_t end = length < DELTA_BYTES ? length : DELTA_BYTES;
	while (end < length && end && (text[end] & 0xC0) == 0x80)
		end--;
	return end;
}

static void send_text(struct request *request, const struct buffer *text)
{
	const uint8_t *rest = (const uint8_t *)buffer_text(text), *end = rest + text->length;
	do {
		size_t piece = piece_of(rest, (size_t)(end - rest));
		send_delta(request, rest, piece);
		rest += piece;
	} while (rest < end);
}

static void tell_fresh(struct request *request)
{
	size_t told = request->delivered < request->fresh.length ? request->delivered : request->fresh.length;
	buffer_consume(&request->fresh, told);
	request->delivered -= told;
	if (request->tokens || request->choices || request->fresh.length)
		send_text(request, &request->fresh);
	buffer_clear(&request->fresh);
}

void requests_tell(struct instance *instance)
{
	for (struct request *request = instance->requests; request; request = request->next)
		tell_fresh(request);
}

static struct json *bytes_of(const struct request *request, uint32_t token)
{
	char text[BASE64_TEXT_BYTES(TOKEN_BYTES)] = "";
	struct buffer bytes;
	buffer_init(&bytes, LIMIT_BODY_BYTES);
	if (!token_bytes(request->instance->tokenizer, token, &bytes))
		base64_encode(bytes.data, bytes.length < TOKEN_BYTES ? bytes.length : TOKEN_BYTES, text);
	buffer_finish(&bytes);
	return json_new_string(text);
}

static struct json *choice_of(const struct request *request, uint32_t token, float logprob)
{
	struct json *out = json_new_object();
	json_set_integer(out, "token", token);
	json_set(out, "bytes", bytes_of(request, token));
	json_set_number(out, "logprob", (double)(logprob < least_logprob ? least_logprob : logprob)); // NaN: null
	return out;
}

static void add_choice(struct request *request, const struct token_choice *choice, uint64_t offset)
{
	struct json *one = choice_of(request, choice->token, choice->logprob), *top = json_new_array();
	json_set_integer(one, "offset", (int64_t)offset);
	for (uint32_t i = 0; i < choice->top_count; i++)
		json_push(top, choice_of(request, choice->top[i].token, choice->top[i].logprob));
	json_set(one, "top", top);
	if (!request->choices)
		request->choices = json_new_array();
	json_push(request->choices, one);
}

// ---- what the generator says ----

// Note where a token begins in the text, and the length of the text so far. A token that continues a character begins
// in that; if it does not continue it, the incomplete character has become a U+FFFD of its own before the token.
static void count_characters(struct request *request, const struct buffer *piece, bool inside)
{
	static const char replaced[] = "\xEF\xBF\xBD";
	const size_t bytes = sizeof(replaced) - 1;
	request->offset = request->characters +
			  (inside && piece->length >= bytes && !memcmp(piece->data, replaced, bytes));
	for (size_t i = 0; i < piece->length; i++)
		request->characters += (piece->data[i] & 0xC0) != 0x80;
}

// A token that the form lets in. Where it is whole the answer is over, or free again. The form of tools that are only
// offered may have been looser where the token was generated: then this call is free.
static enum status keep_form(struct request *request, uint32_t token)
{
	const enum status status = request->form ? matcher_take(request->form, token) : STATUS_OK;
	const bool again = request->form == request->later && request->form_begin != FORM_BEHIND_THOUGHT;
	if (status == STATUS_INVALID_PARAMS && again && !request->job) {
		request->form = NULL;
		return STATUS_OK;
	}
	if (status || !request->form || !matcher_finished(request->form))
		return status;
	request->formed = !again || request->one_call;
	if (again && request->job)
		generator_set_form(request->job, NULL);
	if (again)
		request->form = NULL;
	return STATUS_OK;
}

// The text that a token adds; request->text says whether a stop string is complete.
static enum status add_text(struct request *request, uint32_t token)
{
	struct buffer piece;
	const bool inside = request->detokenizer.pending_bytes;
	buffer_init(&piece, LIMIT_BODY_BYTES);
	request->detokenizer.special = request->dialogue && instance_mark(request->instance, token);
	enum status status = detokenizer_add(&request->detokenizer, token, &piece);
	count_characters(request, &piece, inside);
	if (!status)
		status = keep_form(request, token);
	if (!status && request->dialogue)
		status = request_follow(request, &piece);
	if (!status)
		status = instance_text_add(&request->text, piece.data, piece.length, &request->fresh);
	buffer_finish(&piece);
	return status;
}

static bool token_came(void *context, const struct token_choice *choice)
{
	struct request *request = context;
	const uint32_t said = request_said(request, request->came++);
	request->unsaid = said != SAMPLER_NO_TOKEN && said != choice->token;
	if (request->unsaid)
		return true;
	if (!request->ignore_end && tokenizer_ends(request->instance->tokenizer, choice->token))
		return true;
	if (!request->tokens)
		request->tokens = json_new_array();
	json_push(request->tokens, json_new_integer(choice->token));
	request->trouble = add_text(request, choice->token);
	if (request->logprobs)
		add_choice(request, choice, request->offset);
	return request->trouble || request->text.found || request->formed;
}

// A token of the prompt, in its order; of the first the model says nothing.
static void token_judged(void *context, const struct token_choice *choice)
{
	struct request *request = context;
	add_choice(request, choice, request->offsets[request->judged++]);
}

// Release the held text, unless a stop string has ended the answer.
static void finish_text(struct request *request)
{
	struct buffer piece;
	buffer_init(&piece, LIMIT_BODY_BYTES);
	if (!request->text.found && !detokenizer_end(&request->detokenizer, &piece) &&
	    !instance_text_add(&request->text, piece.data, piece.length, &request->fresh) && !request->text.found)
		instance_text_end(&request->text, &request->fresh);
	buffer_finish(&piece);
}

static const char *word_of(enum generator_reason reason)
{
	switch (reason) {
	case GENERATOR_STOP:
		return "stop";
	case GENERATOR_LENGTH:
		return "length";
	case GENERATOR_REMOVED:
		return "cancelled";
	case GENERATOR_FAILED:
	case GENERATOR_BROKEN:
	case GENERATOR_FORMLESS:
		break;
	}
	return "failed";
}

const char request_broken[] =
	"the model computes NaN or infinite numbers: its file is damaged, or the device that computes it";

static void ended(void *context, enum generator_reason reason, const struct generator_figures *figures,
		  const struct error *error)
{
	struct request *request = context;
	(void)error;
	const char *trouble = request->trouble ? status_text(request->trouble) : NULL;
	if (reason == GENERATOR_BROKEN)
		trouble = request_broken;
	if (request->unsaid)
		trouble = "the form of the answer forbids a token that a test has the model say";
	if (request->form && matcher_error(request->form)->status)
		trouble = matcher_error(request->form)->message;
	if (reason == GENERATOR_FAILED) { // the worker ends, and the server has the request go on elsewhere
		tell_fresh(request);
		request_free(request);
		return;
	}
	struct json *params = json_new_object();
	if (trouble)
		reason = GENERATOR_FAILED;
	else if (request->text.found || request->formed)
		reason = GENERATOR_STOP;
	finish_text(request);
	tell_fresh(request);
	json_set_integer(params, "request", (int64_t)request->number);
	json_set_string(params, "reason", word_of(reason));
	json_set_integer(params, "prompt_tokens", figures->prompt_tokens);
	json_set_integer(params, "cached_tokens", figures->cached_tokens);
	json_set_integer(params, "generated_tokens", figures->generated_tokens);
	if (figures->proposed_tokens) {
		json_set_integer(params, "proposed_tokens", figures->proposed_tokens);
		json_set_integer(params, "accepted_tokens", figures->accepted_tokens);
	}
	if (figures->drafted_tokens) {
		json_set_integer(params, "drafted_tokens", figures->drafted_tokens);
		json_set_integer(params, "draft_accepted_tokens", figures->draft_accepted_tokens);
	}
	if (request->dialogue)
		json_set_integer(params, "reasoning_tokens", (int64_t)request->thought_tokens);
	json_set_integer(params, "read_tokens", figures->read_tokens);
	json_set(params, "spent", instance_spent_json(request->instance, request));
	json_set_number(params, "queued_ms", (double)figures->queued_ns * 1e-6);
	json_set_number(params, "prompt_ms", (double)figures->prompt_ns * 1e-6);
	json_set_number(params, "generate_ms", (double)figures->generate_ns * 1e-6);
	if (request->text.found)
		json_set_string(params, "stop", request->text.found);
	if (trouble)
		json_set_string(params, "error", trouble);
	instance_tell(request->instance, "generate.end", params);
	request_free(request);
}

// ---- generate.start ----

static void take_biases(const struct json *list, struct token_bias *biases, struct sampling *sampling)
{
	for (const struct json *one = json_first(list); one && sampling->bias_count < SAMPLING_BIASES;
	     one = json_next(one))
		biases[sampling->bias_count++] = (struct token_bias){
			.token = (uint32_t)json_get_integer(one, "token", 0),
			.bias = (float)json_get_number(one, "bias", 0)};
	sampling->biases = biases;
}

static enum status take_sampling(const struct json *params, struct token_bias *biases, struct sampling *out,
				 struct error *error)
{
	*out = (struct sampling){
		.temperature = (float)json_get_number(params, "temperature", 1),
		.top_k = (uint32_t)json_get_integer(params, "top_k", 0),
		.top_p = (float)json_get_number(params, "top_p", 1),
		.min_p = (float)json_get_number(params, "min_p", 0),
		.repetition_penalty = (float)json_get_number(params, "repetition_penalty", 1),
		.presence_penalty = (float)json_get_number(params, "presence_penalty", 0),
		.frequency_penalty = (float)json_get_number(params, "frequency_penalty", 0),
		.seed = (uint64_t)json_get_integer(params, "seed", 0),
		.logprobs = json_get_bool(params, "logprobs", false),
		.top_logprobs = (uint32_t)json_get_integer(params, "top_logprobs", 0),
	};
	if (!json_get(params, "seed") && getrandom(&out->seed, sizeof(out->seed), 0) != sizeof(out->seed))
		return error_errno(error, STATUS_INTERNAL, errno, "drawing a seed");
	take_biases(json_get(params, "logit_bias"), biases, out);
	return STATUS_OK;
}

// Find where each token of the prompt begins in the prompt's text as it is sent.
static enum status find_offsets(struct request *request, const struct order *order)
{
	struct detokenizer detokenizer;
	struct buffer piece;
	enum status status = STATUS_OK;
	struct request counting = {0};
	request->offsets = calloc(order->prompt_count, sizeof(*request->offsets));
	if (!request->offsets)
		return STATUS_OUT_OF_MEMORY;
	detokenizer_init(&detokenizer, request->instance->tokenizer);
	buffer_init(&piece, LIMIT_ECHO_BYTES);
	for (size_t i = 0; !status && i < order->prompt_count; i++) {
		const bool inside = detokenizer.pending_bytes;
		buffer_clear(&piece);
		status = detokenizer_add(&detokenizer, order->prompt.tokens[i], &piece);
		count_characters(&counting, &piece, inside);
		request->offsets[i] = counting.offset;
	}
	buffer_finish(&piece);
	return status;
}

// The prompt's text comes first.
static enum status echo(struct request *request, const struct order *order, struct error *error)
{
	struct detokenizer detokenizer;
	struct instance_text plain = {0}; // NULs are replaced there
	struct buffer raw;
	detokenizer_init(&detokenizer, request->instance->tokenizer);
	buffer_init(&plain.held, LIMIT_ECHO_BYTES);
	buffer_init(&raw, LIMIT_ECHO_BYTES);
	enum status status = STATUS_OK;
	for (size_t i = 0; !status && i < order->prompt_count; i++)
		status = detokenizer_add(&detokenizer, order->prompt.tokens[i], &raw);
	if (!status)
		status = detokenizer_end(&detokenizer, &raw);
	if (!status)
		status = instance_text_add(&plain, raw.data, raw.length, &request->fresh);
	if (status)
		error_set(error, status, "the prompt is too long to be told back");
	buffer_finish(&raw);
	instance_text_finish(&plain);
	return status;
}

// Replay the tokens that were generated elsewhere; only the text after the delivered bytes is sent.
static enum status replay(struct request *request, const struct order *order, struct error *error)
{
	const struct json *params = order->message.params;
	uint64_t delivered = (uint64_t)json_get_integer(params, "delivered_bytes", 0);
	enum status status = STATUS_OK;
	const bool echoes = json_get_bool(params, "echo", false);
	if (echoes)
		status = echo(request, order, error);
	if (!status && echoes && json_get_bool(json_get(params, "sampling"), "logprobs", false))
		status = find_offsets(request, order);
	for (size_t i = order->prompt_count; !status && i < order->prompt.count; i++) {
		status = add_text(request, order->prompt.tokens[i]);
		if (status == STATUS_INVALID_PARAMS)
			error_set(error, status, "the text that was generated elsewhere does not fit the form");
	}
	uint64_t most = request->fresh.length + request->text.held.length + WAITING_BYTES;
	if (!status && delivered > most)
		status = error_set(error, STATUS_INVALID_PARAMS, "%llu bytes have been delivered of a text of %llu",
				   (unsigned long long)delivered, (unsigned long long)most);
	request->delivered = (size_t)delivered;
	return status ? error_set(error, status, "no memory for the text of a request") : STATUS_OK;
}

static enum status add_to_generator(struct request *request, const struct order *order, struct error *error)
{
	const struct json *params = order->message.params;
	struct token_bias biases[SAMPLING_BIASES];
	struct generator_request wanted = {.owner = (uint64_t)json_get_integer(params, "owner", 0),
					   .tokens = order->prompt.tokens,
					   .token_count = order->prompt.count,
					   .prompt_count = order->prompt_count,
					   .max_tokens = (uint32_t)json_get_integer(params, "max_tokens", UINT32_MAX),
					   .want_prompt = request->offsets != NULL,
					   .speculate = json_get_bool(params, "speculate", false),
					   .judged = token_judged,
					   .form = request->form,
					   .token = token_came,
					   .ended = ended,
					   .context = request};
	enum status status = take_sampling(json_get(params, "sampling"), biases, &wanted.sampling, error);
	request->logprobs = wanted.sampling.logprobs;
	for (const struct json *stop = json_first(json_get(params, "stop")); stop; stop = json_next(stop))
		if (!status && strlen(json_string(stop, "")) > STOP_BYTES)
			status = error_set(error, STATUS_LIMIT_EXCEEDED, "a stop string is over %d bytes", STOP_BYTES);
	if (!status)
		status = request_ask_test(request, order, error);
	wanted.says = request->said.count ? request_said : NULL;
	if (!status)
		status = generator_add(request->instance->generator, &request->job, &wanted, error);
	return status;
}

void request_start(struct instance *instance, struct order *order)
{
	struct error error = {0};
	struct request *request = NULL;
	const struct json *params = order->message.params;
	if (json_get_bool(params, "counts", false)) {
		prefix_count(instance, order);
		return;
	}
	enum status status = request_make(&request, instance, order, &error);
	const bool gives = json_get(params, "give") != NULL;
	if (!status && !gives)
		status = replay(request, order, &error);
	if (!status)
		status = gives ? prefix_give(request, order, &error) : add_to_generator(request, order, &error);
	if (status) {
		if (request)
			request_free(request);
		instance_answer(instance, order->message.id, &error, NULL);
		return;
	}
	struct json *result = json_new_object();
	json_set_integer(result, "prompt_tokens", request->prompt_tokens);
	instance_answer(instance, order->message.id, NULL, result);
	if (request->offsets)
		token_judged(request, &(struct token_choice){.token = order->prompt.tokens[0], .logprob = NAN});
	tell_fresh(request);
	struct generator_job *job = request->job;
	if (!gives && (request->text.found || request->formed)) // the text had already ended elsewhere
		generator_remove(&job);                         // `ended` frees the request
}

void request_cancel(struct instance *instance, struct order *order)
{
	struct request *request = find(instance, (uint64_t)json_get_integer(order->message.params, "request", 0));
	if (request && request->gives) {
		prefix_cancel(request);
	} else if (request) {
		struct generator_job *job = request->job;
		generator_remove(&job); // `ended` frees the request
	}
	instance_answer(instance, order->message.id, NULL, json_new_object());
}

void requests_cancel(struct instance *instance)
{
	prefixes_drop(instance);
	while (instance->requests) {
		struct generator_job *job = instance->requests->job;
		generator_remove(&job); // `ended` frees the request
	}
}

void requests_forget(struct instance *instance, struct order *order)
{
	struct error error = {0};
	const uint64_t owner = (uint64_t)json_get_integer(order->message.params, "owner", 0);
	prefixes_forget(instance, owner);
	if (instance->generator)
		generator_forget(instance->generator, owner);
	else
		error_set(&error, STATUS_CONFLICT, "nothing is generated here");
	instance_answer(instance, order->message.id, &error, json_new_object());
}
