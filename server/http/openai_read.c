/* A body as OpenAI's clients send it, as what a worker is asked (generate.start of schema/node.json).
 *
 * One table says of every parameter what becomes of it; one that is not in it, or that asks for what this does not do,
 * is refused by name. null counts as absent. */
#include "server/http/openai_inside.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHAT = 1, TEXT = 2, EMBED = 4, RANK = 8, ANY = 15 };
// How many tokens are generated where it is not said: OpenAI's own number, and one that ends an answer that does not.
enum { COMPLETION_TOKENS = 16, CHAT_TOKENS = 4096 };

enum status openai_wrong(struct reading *reading, const char *what)
{
	return error_set(reading->error, STATUS_INVALID_PARAMS, "%s %s", reading->param, what);
}

static enum status wrong(struct reading *reading, const char *what)
{
	return openai_wrong(reading, what);
}

static enum status refuse(struct reading *reading, const char *hint)
{
	error_set(reading->error, STATUS_INVALID_PARAMS, "%s is not supported here", reading->param);
	if (hint)
		error_hint(reading->error, "%s", hint);
	return STATUS_INVALID_PARAMS;
}

// ---- numbers ----

struct range {
	const char *name, *becomes; // in `sampling`
	double least, most;
};
static const struct range ranges[] = {
	{"temperature", "temperature", 0, 2},
	{"top_p", "top_p", 0, 1},
	{"min_p", "min_p", 0, 1},
	{"repetition_penalty", "repetition_penalty", 0.01, 10},
	{"presence_penalty", "presence_penalty", -2, 2},
	{"frequency_penalty", "frequency_penalty", -2, 2},
};

static enum status read_range(struct reading *reading, const struct json *value)
{
	const struct range *range = ranges;
	while (strcmp(range->name, reading->param) != 0)
		range++;
	double number = json_number(value, NAN);
	if (!(number >= range->least && number <= range->most))
		return error_set(reading->error, STATUS_INVALID_PARAMS, "%s must be a number from %g to %g",
				 range->name, range->least, range->most);
	json_set_number(reading->sampling, range->becomes, number);
	return STATUS_OK;
}

static enum status read_integer(struct reading *reading, const struct json *value, int64_t least, int64_t most,
				int64_t *out)
{
	if (json_type(value) == JSON_NUMBER && !json_integer(value, out) && *out >= least && *out <= most)
		return STATUS_OK;
	return error_set(reading->error, STATUS_INVALID_PARAMS, "%s must be an integer from %" PRId64 " to %" PRId64,
			 reading->param, least, most);
}

static enum status read_top_k(struct reading *reading, const struct json *value)
{
	int64_t number;
	enum status status = read_integer(reading, value, -1, 1048576, &number);
	if (!status)
		json_set_integer(reading->sampling, "top_k", number < 0 ? 0 : number);
	return status;
}

// Clients send any 64 bits; of numbers beyond 2^53 JSON keeps the first 53.
static enum status read_seed(struct reading *reading, const struct json *value)
{
	double number = json_number(value, NAN);
	if (!(number >= -9.3e18 && number <= 9.3e18) || number != floor(number))
		return wrong(reading, "must be an integer");
	double folded = fmod(fabs(number), 9007199254740992.0);
	json_set_integer(reading->sampling, "seed",
			 (int64_t)(number < 0 ? fmod(9007199254740992.0 - folded, 9007199254740992.0) : folded));
	return STATUS_OK;
}

static enum status read_max_tokens(struct reading *reading, const struct json *value)
{
	int64_t number;
	enum status status = read_integer(reading, value, 1, 16777216, &number);
	if (!status)
		json_set_integer(reading->call, "max_tokens", number);
	return status;
}

static enum status read_one(struct reading *reading, const struct json *value)
{
	return json_number(value, 0) == 1 ? STATUS_OK : refuse(reading, "only one answer is given to a request: 1");
}

// ---- switches ----

static enum status read_bool(struct reading *reading, const struct json *value, bool *out)
{
	*out = json_bool(value, false);
	return json_type(value) == JSON_BOOL ? STATUS_OK : wrong(reading, "must be true or false");
}

static enum status read_stream(struct reading *reading, const struct json *value)
{
	return read_bool(reading, value, &reading->answer->streams);
}

static enum status read_parallel(struct reading *reading, const struct json *value)
{
	bool parallel;
	const enum status status = read_bool(reading, value, &parallel);
	if (!status)
		json_set_bool(reading->call, "parallel_tool_calls", parallel);
	return status;
}

static enum status read_echo(struct reading *reading, const struct json *value)
{
	enum status status = read_bool(reading, value, &reading->answer->echo);
	if (!status && reading->answer->echo)
		json_set_bool(reading->call, "echo", true);
	return status;
}

static enum status read_ignore_end(struct reading *reading, const struct json *value)
{
	bool ignore;
	enum status status = read_bool(reading, value, &ignore);
	if (!status && ignore)
		json_set_bool(reading->call, "ignore_end", true);
	return status;
}

// Of what templates take by vLLM's name for it one thing is known.
static enum status read_template_options(struct reading *reading, const struct json *value)
{
	if (json_type(value) != JSON_OBJECT)
		return wrong(reading, "must be an object");
	for (const struct json *one = json_first(value); one; one = json_next(one)) {
		if (strcmp(json_name(one), "enable_thinking") != 0)
			return error_set(reading->error, STATUS_INVALID_PARAMS,
					 "chat_template_kwargs.%.64s is not supported here", json_name(one));
		if (json_type(one) != JSON_BOOL)
			return error_set(reading->error, STATUS_INVALID_PARAMS,
					 "chat_template_kwargs.enable_thinking must be true or false");
		json_set_bool(reading->call, "enable_thinking", json_bool(one, false));
	}
	return STATUS_OK;
}

static enum status read_stream_options(struct reading *reading, const struct json *value)
{
	if (json_type(value) != JSON_OBJECT)
		return wrong(reading, "must be an object");
	for (const struct json *one = json_first(value); one; one = json_next(one))
		if (strcmp(json_name(one), "include_usage") != 0 && strcmp(json_name(one), "include_obfuscation") != 0)
			return error_set(reading->error, STATUS_INVALID_PARAMS,
					 "stream_options.%.64s is not supported here", json_name(one));
	reading->answer->wants_usage = json_get_bool(value, "include_usage", false);
	return STATUS_OK;
}

static enum status pass_over(struct reading *reading, const struct json *value)
{
	(void)reading, (void)value;
	return STATUS_OK;
}

// What may be there as long as it asks for nothing.
static enum status read_nothing(struct reading *reading, const struct json *value)
{
	const bool empty = (json_type(value) == JSON_ARRAY && !json_count(value)) ||
			   (json_type(value) == JSON_BOOL && !json_bool(value, true));
	return empty ? STATUS_OK : refuse(reading, NULL);
}

static enum status read_function_call(struct reading *reading, const struct json *value)
{
	const char *text = json_string(value, "");
	return !strcmp(text, "none") || !strcmp(text, "auto") ? STATUS_OK : refuse(reading, NULL);
}

static enum status read_modalities(struct reading *reading, const struct json *value)
{
	for (const struct json *one = json_first(value); one; one = json_next(one))
		if (strcmp(json_string(one, ""), "text") != 0)
			return refuse(reading, "models here read and write text");
	return json_type(value) == JSON_ARRAY ? STATUS_OK : wrong(reading, "must be a list");
}

static enum status read_response_format(struct reading *reading, const struct json *value)
{
	return openai_read_form(value, reading->call, reading->error);
}

static enum status read_encoding(struct reading *reading, const struct json *value)
{
	const char *text = json_string(value, "");
	reading->answer->base64 = !strcmp(text, "base64");
	return reading->answer->base64 || !strcmp(text, "float") ? STATUS_OK
								 : wrong(reading, "must be float or base64");
}

// ---- log-probabilities and biases ----

static enum status read_logprobs(struct reading *reading, const struct json *value)
{
	int64_t count = 0;
	bool wanted = true;
	enum status status = reading->answer->endpoint == ENDPOINT_CHAT ? read_bool(reading, value, &wanted)
									: read_integer(reading, value, 0, 5, &count);
	if (status || !wanted)
		return status;
	if (reading->answer->logprobs < (int)count)
		reading->answer->logprobs = (int)count;
	json_set_bool(reading->sampling, "logprobs", true);
	if (count)
		json_set_integer(reading->sampling, "top_logprobs", count);
	return STATUS_OK;
}

static enum status read_top_logprobs(struct reading *reading, const struct json *value)
{
	int64_t count;
	enum status status = read_integer(reading, value, 0, 20, &count);
	if (!status && count && !json_get_bool(reading->body, "logprobs", false))
		return wrong(reading, "needs logprobs to be true");
	if (status || !count)
		return status;
	reading->answer->logprobs = (int)count;
	json_set_integer(reading->sampling, "top_logprobs", count);
	return STATUS_OK;
}

static enum status read_biases(struct reading *reading, const struct json *value)
{
	struct json *list = json_new_array();
	json_set(reading->sampling, "logit_bias", list);
	if (json_type(value) != JSON_OBJECT || json_count(value) > LIMIT_BIASES)
		return wrong(reading, "must be an object of token ids, 300 at most");
	for (const struct json *one = json_first(value); one; one = json_next(one)) {
		char *end;
		const char *name = json_name(one);
		unsigned long long token = strtoull(name, &end, 10);
		double bias = json_number(one, NAN);
		if (name[0] < '0' || name[0] > '9' || *end || token > UINT32_MAX || !(bias >= -100 && bias <= 100))
			return wrong(reading, "must have token ids as names and numbers from -100 to 100 as values");
		struct json *entry = json_new_object();
		json_set_integer(entry, "token", (int64_t)token);
		json_set_number(entry, "bias", bias);
		json_push(list, entry);
	}
	return STATUS_OK;
}

// ---- texts ----

static enum status read_model(struct reading *reading, const struct json *value)
{
	const char *name = json_string(value, "");
	if (!name[0] || strlen(name) >= sizeof reading->answer->model)
		return wrong(reading, "must be the name of a model");
	memcpy(reading->answer->model, name, strlen(name) + 1);
	return STATUS_OK;
}

static enum status read_stop(struct reading *reading, const struct json *value)
{
	const bool one = json_type(value) == JSON_STRING;
	struct json *list = json_new_array();
	json_set(reading->call, "stop", list);
	if (!one && (json_type(value) != JSON_ARRAY || json_count(value) > LIMIT_STOPS))
		return wrong(reading, "must be a text or a list of texts, 16 at most");
	for (const struct json *text = one ? value : json_first(value); text; text = one ? NULL : json_next(text)) {
		const char *bytes = json_string(text, "");
		if (!bytes[0] || strlen(bytes) > 256)
			return wrong(reading, "must be texts of 1 to 256 bytes");
		json_push(list, json_new_string(bytes));
	}
	return STATUS_OK;
}

static bool are_tokens(const struct json *list)
{
	int64_t token;
	if (json_type(list) != JSON_ARRAY || !json_count(list))
		return false;
	for (const struct json *one = json_first(list); one; one = json_next(one))
		if (json_type(one) != JSON_NUMBER || json_integer(one, &token) || token < 0 || token > UINT32_MAX)
			return false;
	return true;
}

static enum status read_prompt(struct reading *reading, const struct json *value)
{
	struct json *prompt = json_new_object();
	const struct json *first = json_first(value);
	json_set(reading->call, "prompt", prompt);
	if (json_type(value) == JSON_ARRAY && json_count(value) == 1 && json_type(first) != JSON_NUMBER)
		value = first;
	else if (json_type(value) == JSON_ARRAY && json_count(value) > 1 && json_type(first) != JSON_NUMBER)
		return wrong(reading, "may be one text or one list of tokens: several need a request each");
	if (json_type(value) == JSON_STRING)
		json_set(prompt, "text", json_copy(value));
	else if (are_tokens(value))
		json_set(prompt, "tokens", json_copy(value));
	else
		return wrong(reading, "must be a text or a list of tokens");
	return STATUS_OK;
}

static enum status read_input(struct reading *reading, const struct json *value)
{
	const struct json *first = json_first(value);
	const bool one = json_type(value) == JSON_STRING || json_type(first) == JSON_NUMBER;
	reading->answer->inputs = json_new_array();
	if (!one && (json_type(value) != JSON_ARRAY || !first || json_count(value) > LIMIT_EMBEDDINGS))
		return wrong(reading, "must be a text, a list of tokens, or a list of up to 256 of these");
	for (const struct json *input = one ? value : first; input; input = one ? NULL : json_next(input)) {
		if (json_string(input, "")[0] == 0 && !are_tokens(input))
			return wrong(reading, "must be texts or lists of tokens, none of them empty");
		reading->answer->input_tokens += json_type(input) == JSON_ARRAY ? json_count(input) : 0;
		json_push(reading->answer->inputs, json_copy(input));
	}
	return STATUS_OK;
}

static enum status read_dimensions(struct reading *reading, const struct json *value)
{
	int64_t *wanted = &reading->answer->dimensions;
	return json_integer(value, wanted) || *wanted < 1 || *wanted > LIMIT_MODEL_WIDTH
		       ? wrong(reading, "must be a whole number from 1 to 65536")
		       : STATUS_OK;
}

// ---- a ranking, as Cohere's and Jina's clients send it ----

static enum status read_query(struct reading *reading, const struct json *value)
{
	if (json_string(value, "")[0] == 0)
		return wrong(reading, "must be a text that is not empty");
	reading->answer->query = json_copy(value);
	return STATUS_OK;
}

static enum status read_documents(struct reading *reading, const struct json *value)
{
	reading->answer->inputs = json_new_array();
	if (json_type(value) != JSON_ARRAY || !json_first(value) || json_count(value) > LIMIT_EMBEDDINGS)
		return wrong(reading, "must be a list of 1 to 256 texts");
	for (const struct json *one = json_first(value); one; one = json_next(one)) {
		const struct json *text = json_type(one) == JSON_OBJECT ? json_get(one, "text") : one;
		if (json_type(text) != JSON_STRING)
			return wrong(reading, "must be texts, or objects with a text");
		json_push(reading->answer->inputs, json_copy(text));
	}
	return STATUS_OK;
}

static enum status read_top_n(struct reading *reading, const struct json *value)
{
	int64_t *wanted = &reading->answer->top_n;
	return json_integer(value, wanted) || *wanted < 1 ? wrong(reading, "must be a whole number from 1 on")
							  : STATUS_OK;
}

static enum status read_return_documents(struct reading *reading, const struct json *value)
{
	return read_bool(reading, value, &reading->answer->returns_documents);
}

// ---- the whole ----

static const struct parameter {
	const char *name;
	int endpoints;
	enum status (*read)(struct reading *reading, const struct json *value); // NULL: it is refused
} parameters[] = {
	{"model", ANY, read_model},
	{"messages", CHAT, openai_read_messages},
	{"prompt", TEXT, read_prompt},
	{"input", EMBED, read_input},
	{"encoding_format", EMBED, read_encoding},
	{"dimensions", EMBED, read_dimensions},
	{"query", RANK, read_query},
	{"documents", RANK, read_documents},
	{"top_n", RANK, read_top_n},
	{"return_documents", RANK, read_return_documents},
	{"stream", CHAT | TEXT, read_stream},
	{"stream_options", CHAT | TEXT, read_stream_options},
	{"max_tokens", CHAT | TEXT, read_max_tokens},
	{"max_completion_tokens", CHAT, read_max_tokens},
	{"temperature", CHAT | TEXT, read_range},
	{"top_p", CHAT | TEXT, read_range},
	{"min_p", CHAT | TEXT, read_range},
	{"top_k", CHAT | TEXT, read_top_k},
	{"repetition_penalty", CHAT | TEXT, read_range},
	{"presence_penalty", CHAT | TEXT, read_range},
	{"frequency_penalty", CHAT | TEXT, read_range},
	{"seed", CHAT | TEXT, read_seed},
	{"stop", CHAT | TEXT, read_stop},
	{"logprobs", CHAT | TEXT, read_logprobs},
	{"top_logprobs", CHAT, read_top_logprobs},
	{"logit_bias", CHAT | TEXT, read_biases},
	{"echo", TEXT, read_echo},
	{"ignore_eos", CHAT | TEXT, read_ignore_end},
	{"n", CHAT | TEXT, read_one},
	{"best_of", TEXT, read_one},
	{"response_format", CHAT | TEXT, read_response_format},
	{"modalities", CHAT, read_modalities},
	{"tools", CHAT, openai_read_tools},
	{"functions", CHAT, read_nothing},
	{"tool_choice", CHAT, openai_read_tool_choice},
	{"function_call", CHAT, read_function_call},
	{"parallel_tool_calls", CHAT, read_parallel},
	{"reasoning_effort", CHAT, openai_read_effort},
	{"store", CHAT, read_nothing},
	{"chat_template_kwargs", CHAT, read_template_options},
	// What says who asks or how to bill it changes no answer.
	{"user", ANY, pass_over},
	{"metadata", CHAT, pass_over},
	{"service_tier", CHAT, pass_over},
	{"safety_identifier", CHAT, pass_over},
	{"prompt_cache_key", CHAT, pass_over},
	// What would.
	{"audio", CHAT, NULL},
	{"prediction", CHAT, NULL},
	{"verbosity", CHAT, NULL},
	{"web_search_options", CHAT, NULL},
	{"suffix", TEXT, NULL},
};
enum { PARAMETERS = sizeof parameters / sizeof *parameters };

static int endpoint_bit(enum endpoint endpoint)
{
	return endpoint == ENDPOINT_CHAT          ? CHAT
	       : endpoint == ENDPOINT_COMPLETIONS ? TEXT
	       : endpoint == ENDPOINT_RERANK      ? RANK
						  : EMBED;
}

// Its name is to blame, and is the body's, which goes; one that is too long to be kept is told in the message alone.
static enum status no_such(struct reading *reading, const char *name)
{
	struct answer *answer = reading->answer;
	if (strlen(name) < sizeof answer->unknown) {
		snprintf(answer->unknown, sizeof answer->unknown, "%s", name);
		reading->param = answer->unknown;
	}
	return error_set(reading->error, STATUS_INVALID_PARAMS, "there is no parameter %.64s here", name);
}

static enum status read_all(struct reading *reading)
{
	enum status status = STATUS_OK;
	const int bit = endpoint_bit(reading->answer->endpoint);
	for (const struct json *one = json_first(reading->body); one && !status; one = json_next(one)) {
		int at = 0;
		while (at < PARAMETERS &&
		       (!(parameters[at].endpoints & bit) || strcmp(parameters[at].name, json_name(one)) != 0))
			at++;
		if (json_type(one) == JSON_NULL)
			continue;
		reading->param = at < PARAMETERS ? parameters[at].name : NULL;
		if (at == PARAMETERS)
			status = no_such(reading, json_name(one));
		else if (!parameters[at].read)
			status = refuse(reading, NULL);
		else
			status = parameters[at].read(reading, one);
	}
	return status;
}

static enum status missing(struct reading *reading, const char *param)
{
	reading->param = param;
	return wrong(reading, "is missing");
}

// Each document is sent with a copy of the query: all copies together are no longer than a body may be.
static enum status check_query(struct reading *reading)
{
	const struct answer *answer = reading->answer;
	const size_t count = json_count(answer->inputs), most = count ? LIMIT_BODY_BYTES / count : 0;
	if (!count || strlen(json_string(answer->query, "")) <= most)
		return STATUS_OK;
	reading->param = "query";
	error_hint(reading->error, "shorten it, or send the documents in several requests");
	return error_set(reading->error, STATUS_INVALID_PARAMS, "query may have %zu bytes at most beside %zu documents",
			 most, count);
}

static enum status check(struct reading *reading)
{
	const struct answer *answer = reading->answer;
	if (!answer->model[0])
		return missing(reading, "model");
	if (answer->endpoint == ENDPOINT_RERANK && !answer->query)
		return missing(reading, "query");
	if (answer->endpoint == ENDPOINT_RERANK)
		return answer->inputs ? check_query(reading) : missing(reading, "documents");
	if (answer->endpoint == ENDPOINT_EMBEDDINGS)
		return answer->inputs ? STATUS_OK : missing(reading, "input");
	if (!json_get(reading->call, "prompt"))
		return missing(reading, answer->endpoint == ENDPOINT_CHAT ? "messages" : "prompt");
	if (answer->endpoint == ENDPOINT_CHAT && openai_check_tools(reading))
		return STATUS_INVALID_PARAMS;
	if (answer->wants_usage && !answer->streams) {
		reading->param = "stream_options";
		return wrong(reading, "needs stream to be true");
	}
	return STATUS_OK;
}

// A request that does not say it gets another seed each time, and a bounded answer.
static enum status fill_in(struct reading *reading)
{
	uint64_t seed = 0;
	if (!json_get(reading->sampling, "seed")) {
		if (RAND_bytes((unsigned char *)&seed, sizeof seed) != 1)
			return error_set(reading->error, STATUS_UNAVAILABLE, "the system gives no random numbers");
		json_set_integer(reading->sampling, "seed", (int64_t)(seed >> 11));
	}
	if (!json_get(reading->call, "max_tokens"))
		json_set_integer(reading->call, "max_tokens",
				 reading->answer->endpoint == ENDPOINT_CHAT ? CHAT_TOKENS : COMPLETION_TOKENS);
	if (reading->answer->endpoint == ENDPOINT_CHAT)
		json_set_bool(reading->call, "talks", true);
	json_set(reading->call, "sampling", reading->sampling);
	reading->sampling = NULL;
	return STATUS_OK;
}

enum status openai_read(struct answer *answer, const struct json *body, struct json **call, const char **param,
			struct error *error)
{
	struct reading reading = {.answer = answer,
				  .body = body,
				  .call = json_new_object(),
				  .sampling = json_new_object(),
				  .error = error};
	enum status status = read_all(&reading);
	if (!status)
		status = check(&reading);
	if (!status && !answer_embeds(answer))
		status = fill_in(&reading);
	*param = reading.param;
	*call = NULL;
	if (!status && !answer_embeds(answer)) {
		*call = reading.call;
		reading.call = NULL;
	}
	json_destroy(&reading.call);
	json_destroy(&reading.sampling);
	return status;
}

void openai_read_body(struct answer *answer, const char *body, size_t length, struct openai_reading *out)
{
	struct json *json = NULL;
	*out = (struct openai_reading){0};
	out->status = json_parse(&json, body, length, &out->error);
	if (!out->status && json_type(json) != JSON_OBJECT)
		out->status = error_set(&out->error, STATUS_INVALID_PARAMS, "the body must be a JSON object");
	if (!out->status)
		out->status = openai_read(answer, json, &out->call, &out->param, &out->error);
	json_destroy(&json);
}

void openai_reading_finish(struct openai_reading *reading)
{
	json_destroy(&reading->call);
}
