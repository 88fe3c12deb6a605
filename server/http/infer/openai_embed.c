/* POST /v1/embeddings and /v1/rerank. Several inputs are asked for at once, so that the model computes them in one
 * batch; each waits in its line like any request. No more than AT_ONCE, so that many inputs do not fill the line: where
 * it is full, those that are under way make room. One that fails ends them all. */
#include "common/text/base64.h"
#include "server/http/infer/inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 16 };

struct embedding {
	struct answer *answer;
	const struct json *input;
	struct generation *generation; // NULL: not asked for yet, or over
	struct json *values;           // NULL: not there yet
	uint64_t prompt_tokens;
	double joules; // NaN: not known
};

// Little-endian floats in base64, as clients ask for where they do not say that they want numbers.
static struct json *encode(const struct json *values)
{
	size_t count = json_count(values), at = 0;
	float *floats = malloc((count ? count : 1) * sizeof(*floats));
	char *text = malloc(BASE64_TEXT_BYTES(count * sizeof(*floats)));
	struct json *json = NULL;
	if (floats && text) {
		for (const struct json *one = json_first(values); one; one = json_next(one))
			floats[at++] = (float)json_number(one, 0);
		base64_encode(floats, count * sizeof(*floats), text);
		json = json_new_string(text);
	}
	free(floats);
	free(text);
	return json;
}

// A number takes up to 16 bytes of text.
bool answer_has_room(const struct json *embedding, size_t count)
{
	enum { NUMBER_BYTES = 16, AROUND_BYTES = 128 };
	const size_t one = json_type(embedding) == JSON_STRING ? strlen(json_string(embedding, ""))
							       : json_count(embedding) * NUMBER_BYTES;
	return one + AROUND_BYTES <= LIMIT_BODY_BYTES / count;
}

// Of all inputs; null unless each is known.
static void put_energy(const struct answer *answer, struct json *usage, size_t count)
{
	double joules = 0;
	for (size_t i = 0; i < count; i++)
		joules += answer->embeddings[i].joules;
	if (answer->energy)
		json_set_number(usage, "energy_joules", joules);
}

static void answer_all(struct answer *answer, size_t count)
{
	uint64_t prompt_tokens = 0;
	if (answer->wording->embeddings) {
		struct json *values = json_new_array();
		for (size_t i = 0; i < count; i++) {
			json_push(values, answer->embeddings[i].values);
			answer->embeddings[i].values = NULL;
			prompt_tokens += answer->embeddings[i].prompt_tokens;
		}
		answer_json(answer, answer->wording->embeddings(answer, values, prompt_tokens));
		return;
	}
	struct json *json = json_new_object(), *usage = json_new_object(), *data = json_new_array();
	for (size_t i = 0; i < count; i++) {
		struct embedding *embedding = &answer->embeddings[i];
		struct json *one = json_new_object();
		json_set_string(one, "object", "embedding");
		json_set_integer(one, "index", (int64_t)i);
		json_set(one, "embedding", embedding->values);
		embedding->values = NULL;
		json_push(data, one);
		prompt_tokens += embedding->prompt_tokens;
	}
	json_set_string(json, "object", "list");
	json_set(json, "data", data);
	json_set_string(json, "model", answer->model);
	json_set_integer(usage, "prompt_tokens", (int64_t)prompt_tokens);
	json_set_integer(usage, "total_tokens", (int64_t)prompt_tokens);
	put_energy(answer, usage, count);
	json_set(json, "usage", usage);
	answer_json(answer, json);
}

// ---- a ranking ----

static int by_score(const void *a, const void *b)
{
	const struct embedding *first = *(const struct embedding *const *)a,
			       *second = *(const struct embedding *const *)b;
	const double one = json_number(first->values, 0), other = json_number(second->values, 0);
	return one > other ? -1 : one < other ? 1 : (first > second) - (first < second);
}

// The best first. What the model gives is put between 0 and 1, as the field's services have it.
static struct json *results_of(struct answer *answer, struct embedding **order, size_t count)
{
	struct json *results = json_new_array();
	for (size_t i = 0; i < count; i++)
		order[i] = &answer->embeddings[i];
	qsort(order, count, sizeof(struct embedding *), by_score);
	for (size_t i = 0; i < count && (!answer->top_n || (int64_t)i < answer->top_n); i++) {
		struct json *one = json_new_object(), *document = json_new_object();
		json_set_integer(one, "index", order[i] - answer->embeddings);
		json_set_number(one, "relevance_score", 1 / (1 + exp(-json_number(order[i]->values, 0))));
		json_set(document, "text", json_copy(order[i]->input));
		if (answer->returns_documents)
			json_set(one, "document", document);
		else
			json_destroy(&document);
		json_push(results, one);
	}
	return results;
}

static void answer_ranking(struct answer *answer, size_t count)
{
	const struct error no_room = {.status = STATUS_OUT_OF_MEMORY, .message = "the server is out of memory"};
	struct embedding **order = malloc(count * sizeof(struct embedding *));
	if (!order) {
		answer_fail(answer, &no_room, NULL);
		return;
	}
	uint64_t tokens = 0;
	struct json *json = json_new_object(), *usage = json_new_object();
	for (size_t i = 0; i < count; i++)
		tokens += answer->embeddings[i].prompt_tokens;
	json_set_string(json, "id", answer->id);
	json_set_string(json, "object", "list");
	json_set_string(json, "model", answer->model);
	json_set(json, "results", results_of(answer, order, count));
	json_set_integer(usage, "prompt_tokens", (int64_t)tokens);
	json_set_integer(usage, "total_tokens", (int64_t)tokens);
	put_energy(answer, usage, count);
	json_set(json, "usage", usage);
	free(order);
	answer_json(answer, json);
}

static void fail(struct answer *answer, const struct error *error)
{
	for (size_t i = 0; i < json_count(answer->inputs); i++)
		generation_cancel(&answer->embeddings[i].generation);
	answer_fail_model(answer, error);
}

static void embedded(void *context, enum status status, const struct json *result, const struct error *error);

static enum status ask(struct embedding *embedding, struct error *error)
{
	struct json *call = json_new_object(), *prompt = json_new_object();
	const bool text = json_type(embedding->input) == JSON_STRING;
	if (embedding->answer->query) {
		struct json *pair = json_new_array();
		json_push(pair, json_copy(embedding->answer->query));
		json_push(pair, json_copy(embedding->input));
		json_set(prompt, "pair", pair);
	} else {
		json_set(prompt, text ? "text" : "tokens", json_copy(embedding->input));
	}
	json_set(call, "prompt", prompt);
	if (embedding->answer->dimensions)
		json_set_integer(call, "dimensions", embedding->answer->dimensions);
	struct generation_params params = answer_question(embedding->answer, call);
	params.embeds = true;
	params.part = embedding != embedding->answer->embeddings;
	params.ended = embedded;
	params.context = embedding;
	return answer_ask(embedding->answer, &embedding->generation, &params, error);
}

// Ask for more where there is room, or answer once all are there.
static void go_on(struct answer *answer)
{
	struct error error = {0};
	enum status status = STATUS_OK;
	size_t under_way = 0, there = 0;
	const size_t count = json_count(answer->inputs);
	for (size_t i = 0; i < count; i++) {
		under_way += answer->embeddings[i].generation != NULL;
		there += answer->embeddings[i].values != NULL;
	}
	for (size_t i = 0; i < count && under_way < AT_ONCE && !status; i++) {
		struct embedding *embedding = &answer->embeddings[i];
		if (embedding->generation || embedding->values)
			continue;
		status = ask(embedding, &error);
		under_way += !status;
	}
	if (status && (status != STATUS_RATE_LIMITED || !under_way)) {
		answer_refused(answer, status);
		fail(answer, &error);
	} else if (there == count) {
		answer->query ? answer_ranking(answer, count) : answer_all(answer, count);
	}
}

static void embedded(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct embedding *embedding = context;
	struct answer *answer = embedding->answer;
	const struct json *values = json_get(result, embedding->answer->query ? "score" : "embedding");
	const struct error no_room = {.status = STATUS_OUT_OF_MEMORY, .message = "the server is out of memory"},
			   none = {.status = STATUS_INTERNAL, .message = "the model's worker has given no result"},
			   too_long = {.status = STATUS_INVALID_PARAMS,
				       .message = "the embeddings of so many inputs are longer than an answer may be",
				       .hint = "send the inputs in several requests, or ask for encoding_format "
					       "base64, which is a third as long"};
	embedding->generation = NULL;
	if (!status && values)
		embedding->values = answer->base64 ? encode(values) : json_copy(values);
	embedding->prompt_tokens = (uint64_t)json_get_integer(result, "prompt_tokens", 0);
	traced_tokens(answer, embedding->prompt_tokens, 0);
	embedding->joules = json_get_number(result, "energy_joules", NAN);
	if (status || !embedding->values)
		fail(answer, status ? error : values ? &no_room : &none);
	else if (!answer->query && !answer_has_room(embedding->values, json_count(answer->inputs)))
		fail(answer, &too_long);
	else
		go_on(answer);
}

void answer_embed(struct answer *answer)
{
	const struct error no_room = {.status = STATUS_OUT_OF_MEMORY, .message = "the server is out of memory"};
	const struct json *input = json_first(answer->inputs);
	const size_t count = json_count(answer->inputs);
	answer->embeddings = calloc(count ? count : 1, sizeof(*answer->embeddings));
	if (!answer->embeddings) {
		answer_fail(answer, &no_room, NULL);
		return;
	}
	for (size_t i = 0; i < count; i++, input = json_next(input))
		answer->embeddings[i] = (struct embedding){.answer = answer, .input = input};
	go_on(answer);
}

void answer_embed_finish(struct answer *answer)
{
	for (size_t i = 0; answer->embeddings && i < json_count(answer->inputs); i++) {
		generation_cancel(&answer->embeddings[i].generation);
		json_destroy(&answer->embeddings[i].values);
	}
	free(answer->embeddings);
	answer->embeddings = NULL;
}
