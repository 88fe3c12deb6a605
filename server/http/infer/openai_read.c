/* A body as OpenAI's clients send it, as what a worker is asked (generate.start of schema/node.json).
 *
 * One table says of every parameter what becomes of it; one that is not in it, or that asks for what this does not do,
 * is refused by name. */
#include "server/http/infer/inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	CHAT = 1 << ENDPOINT_CHAT,
	TEXT = 1 << ENDPOINT_COMPLETIONS,
	EMBED = 1 << ENDPOINT_EMBEDDINGS,
	RANK = 1 << ENDPOINT_RERANK,
	ANY = CHAT | TEXT | EMBED | RANK,
};
// How many tokens are generated where it is not said: OpenAI's own number, and one that ends an answer that does not.
enum { COMPLETION_TOKENS = 16, CHAT_TOKENS = 4096 };

static enum status wrong(struct reading *reading, const char *what)
{
	return reading_wrong(reading, what);
}

// ---- numbers ----

static enum status read_range(struct reading *reading, const struct json *value)
{
	static const struct {
		const char *name;
		double least, most;
	} ranges[] = {{"temperature", 0, 2},
		      {"top_p", 0, 1},
		      {"min_p", 0, 1},
		      {"repetition_penalty", 0.01, 10},
		      {"presence_penalty", -2, 2},
		      {"frequency_penalty", -2, 2}};
	size_t at = 0;
	while (strcmp(ranges[at].name, reading->param) != 0)
		at++;
	return reading_number(reading, value, ranges[at].least, ranges[at].most);
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

static enum status read_n(struct reading *reading, const struct json *value)
{
	return reading_integer(reading, value, 1, LIMIT_SEVERAL, &reading->answer->several.each);
}

// All that are generated are returned.
static enum status read_best_of(struct reading *reading, const struct json *value)
{
	return json_number(value, 0) == json_number(json_get(reading->body, "n"), 1)
		       ? STATUS_OK
		       : reading_refuse(reading, "only with the same number as n");
}

// ---- switches ----

static enum status read_echo(struct reading *reading, const struct json *value)
{
	enum status status = reading_bool(reading, value, &reading->answer->echo);
	if (!status && reading->answer->echo)
		json_set_bool(reading->call, "echo", true);
	return status;
}

static enum status read_ignore_end(struct reading *reading, const struct json *value)
{
	bool ignore;
	enum status status = reading_bool(reading, value, &ignore);
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

static enum status read_function_call(struct reading *reading, const struct json *value)
{
	const char *text = json_string(value, "");
	return !strcmp(text, "none") || !strcmp(text, "auto") ? STATUS_OK : reading_refuse(reading, NULL);
}

static enum status read_modalities(struct reading *reading, const struct json *value)
{
	for (const struct json *one = json_first(value); one; one = json_next(one))
		if (strcmp(json_string(one, ""), "text") != 0)
			return reading_refuse(reading, "models here read and write text");
	return json_type(value) == JSON_ARRAY ? STATUS_OK : wrong(reading, "must be a list");
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
	enum status status = reading->answer->endpoint == ENDPOINT_CHAT ? reading_bool(reading, value, &wanted)
									: reading_integer(reading, value, 0, 5, &count);
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
	enum status status = reading_integer(reading, value, 0, 20, &count);
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

// NULL: it is none.
static struct json *make_prompt(const struct json *value, const char *suffix)
{
	const bool text = json_type(value) == JSON_STRING;
	if (!text && !are_tokens(value))
		return NULL;
	struct json *prompt = json_new_object();
	json_set(prompt, text ? "text" : "tokens", json_copy(value));
	if (text && suffix[0])
		json_set_string(prompt, "suffix", suffix);
	return prompt;
}

// A text or a list of tokens; or a list of these, of which each has choices of its own.
static enum status read_prompt(struct reading *reading, const struct json *value)
{
	const struct json *first = json_first(value);
	const char *suffix = json_get_string(reading->body, "suffix", "");
	const bool list = json_type(value) == JSON_ARRAY && first && json_type(first) != JSON_NUMBER;
	struct json *prompt = make_prompt(list ? first : value, suffix);
	if (!prompt || json_count(value) > (list ? LIMIT_SEVERAL : SIZE_MAX)) {
		json_destroy(&prompt);
		return wrong(reading, "must be a text or a list of tokens, or a list of up to 128 of these");
	}
	json_set(reading->call, "prompt", prompt);
	if (!list || !json_next(first))
		return STATUS_OK;
	reading->answer->inputs = json_new_array();
	for (const struct json *one = first; one; one = json_next(one)) {
		prompt = make_prompt(one, suffix);
		if (!prompt)
			return wrong(reading, "must be texts or lists of tokens");
		json_push(reading->answer->inputs, prompt);
	}
	return STATUS_OK;
}

static enum status read_suffix(struct reading *reading, const struct json *value)
{
	return json_type(value) == JSON_STRING ? STATUS_OK : wrong(reading, "must be a text"); // with the prompt
}

static enum status read_input(struct reading *reading, const struct json *value)
{
	const struct json *first = json_first(value);
	const bool one = json_type(value) == JSON_STRING || json_type(first) == JSON_NUMBER;
	reading->answer->inputs = json_new_array();
	if (!one && (json_type(value) != JSON_ARRAY || !first || json_count(value) > LIMIT_EMBEDDINGS))
		return wrong(reading, "must be a text, a list of tokens, or a list of up to 2048 of these");
	for (const struct json *input = one ? value : first; input; input = one ? NULL : json_next(input)) {
		if (json_string(input, "")[0] == 0 && !are_tokens(input))
			return wrong(reading, "must be texts or lists of tokens, none of them empty");
		reading->answer->input_tokens += json_type(input) == JSON_ARRAY ? json_count(input) : 0;
		json_push(reading->answer->inputs, json_copy(input));
	}
	return STATUS_OK;
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
		return wrong(reading, "must be a list of 1 to 2048 texts");
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
	return reading_bool(reading, value, &reading->answer->returns_documents);
}

// ---- the whole ----

static const struct parameter parameters[] = {
	{"model", ANY, read_model},
	{"messages", CHAT, openai_read_messages},
	{"prompt", TEXT, read_prompt},
	{"suffix", TEXT, read_suffix},
	{"input", EMBED, read_input},
	{"encoding_format", EMBED, read_encoding},
	{"dimensions", EMBED, read_dimensions},
	{"query", RANK, read_query},
	{"documents", RANK, read_documents},
	{"top_n", RANK, read_top_n},
	{"return_documents", RANK, read_return_documents},
	{"stream", CHAT | TEXT, read_stream},
	{"include_energy", ANY, read_energy},
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
	{"speculate", CHAT | TEXT, read_speculate},
	{"n", CHAT | TEXT, read_n},
	{"best_of", TEXT, read_best_of},
	{"response_format", CHAT | TEXT, openai_read_form},
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
	{"user", ANY, read_and_ignore},
	{"metadata", CHAT, read_and_ignore},
	{"service_tier", CHAT, read_and_ignore},
	{"safety_identifier", CHAT, read_and_ignore},
	{"prompt_cache_key", CHAT, read_and_ignore},
	// What would.
	{"audio", CHAT, NULL},
	{"prediction", CHAT, NULL},
	{"verbosity", CHAT, NULL},
	{"web_search_options", CHAT, NULL},
	{NULL, 0, NULL},
};

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

// An empty suffix is none.
static enum status check_suffix(struct reading *reading)
{
	if (!json_get_string(reading->body, "suffix", "")[0])
		return STATUS_OK;
	reading->param = "suffix";
	if (!json_get(json_get(reading->call, "prompt"), "text"))
		return wrong(reading, "needs a prompt that is a text");
	for (const struct json *one = json_first(reading->answer->inputs); one; one = json_next(one))
		if (!json_get(one, "text"))
			return wrong(reading, "needs prompts that are texts");
	return reading->answer->echo ? wrong(reading, "cannot be asked for with echo") : STATUS_OK;
}

// The least that these prompts take of a body.
static size_t bytes_of(const struct json *prompts)
{
	size_t bytes = 0;
	for (const struct json *one = json_first(prompts); one; one = json_next(one))
		bytes += strlen(json_get_string(one, "text", "")) + 2 * json_count(json_get(one, "tokens"));
	return bytes;
}

// Each choice has a copy of its prompt and of all the rest: all copies together are no longer than a body may be.
static enum status check_copies(struct reading *reading, size_t prompts)
{
	const struct answer *answer = reading->answer;
	const size_t each = (size_t)answer->several.each, own = bytes_of(answer->inputs);
	const size_t rest = answer->body_bytes - (own < answer->body_bytes ? own : answer->body_bytes);
	if (prompts * each == 1 || each * (own + prompts * rest) <= LIMIT_BODY_BYTES)
		return STATUS_OK;
	reading->param = each > 1 ? "n" : "prompt";
	error_hint(reading->error, "ask for fewer choices, or in several requests");
	return error_set(reading->error, STATUS_INVALID_PARAMS,
			 "a body of %zu bytes for %zu choices is too long: it is copied for each, up to %d bytes",
			 answer->body_bytes, prompts * each, LIMIT_BODY_BYTES);
}

static enum status check_several(struct reading *reading)
{
	struct answer *answer = reading->answer;
	const size_t prompts = answer->inputs ? json_count(answer->inputs) : 1;
	answer->several.each = answer->several.each ? answer->several.each : 1;
	reading->param = "n";
	if (prompts * (size_t)answer->several.each <= LIMIT_SEVERAL)
		return check_copies(reading, prompts);
	error_hint(reading->error, "ask in several requests");
	return error_set(reading->error, STATUS_INVALID_PARAMS, "n choices of %zu prompts are %zu; there may be %d",
			 prompts, prompts * (size_t)answer->several.each, LIMIT_SEVERAL);
}

static enum status check(struct reading *reading)
{
	const struct answer *answer = reading->answer;
	if (!answer->model[0])
		return reading_missing(reading, "model");
	if (answer->endpoint == ENDPOINT_RERANK && !answer->query)
		return reading_missing(reading, "query");
	if (answer->endpoint == ENDPOINT_RERANK)
		return answer->inputs ? check_query(reading) : reading_missing(reading, "documents");
	if (answer->endpoint == ENDPOINT_EMBEDDINGS)
		return answer->inputs ? STATUS_OK : reading_missing(reading, "input");
	if (!json_get(reading->call, "prompt"))
		return reading_missing(reading, answer->endpoint == ENDPOINT_CHAT ? "messages" : "prompt");
	if (answer->endpoint == ENDPOINT_CHAT && reading_check_tools(reading, "response_format"))
		return STATUS_INVALID_PARAMS;
	if (check_several(reading) || (answer->endpoint == ENDPOINT_COMPLETIONS && check_suffix(reading)))
		return STATUS_INVALID_PARAMS;
	if (answer->wants_usage && !answer->streams) {
		reading->param = "stream_options";
		return wrong(reading, "needs stream to be true");
	}
	return STATUS_OK;
}

enum status openai_read(struct reading *reading)
{
	struct answer *answer = reading->answer;
	const bool chat = answer->endpoint == ENDPOINT_CHAT;
	enum status status = reading_all(reading, parameters);
	if (!status)
		status = check(reading);
	if (!status && chat)
		json_set_bool(reading->call, "talks", true);
	if (!status && !answer_embeds(answer))
		status = reading_fill_in(reading, chat ? CHAT_TOKENS : COMPLETION_TOKENS);
	return status;
}
