/* Several choices for one request: n of each prompt. Each is an answer of its own, with a generation, a text and an
 * index; it tells through the exchange of the request's answer, which ends when the last choice has ended. When one
 * fails, the request fails. */
#include "server/http/infer/inside.h"

#include <math.h>
#include <stdlib.h>

bool answer_has_several(const struct answer *answer)
{
	return !answer_embeds(answer) && (answer->several.each > 1 || json_count(answer->inputs) > 1);
}

// What the worker is asked for choice `index`: a seed that was given is the first one's, the next number the second's.
static struct json *call_of(const struct answer *answer, const struct json *call, const struct json *prompt,
			    int64_t index)
{
	int64_t seed = 0;
	struct json *copy = json_copy(call), *sampling = json_copy(json_get(call, "sampling"));
	json_integer(json_get(sampling, "seed"), &seed);
	json_set_integer(sampling, "seed", (int64_t)(((uint64_t)seed + (uint64_t)index) & INT64_MAX));
	json_set(copy, "sampling", sampling);
	if (answer->inputs)
		json_set(copy, "prompt", json_copy(prompt));
	return copy;
}

static enum status add_choice(struct answer *answer, const struct json *call, const struct json *prompt,
			      struct error *error)
{
	struct answer *choice = answer_copy(answer);
	if (!choice)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	choice->several.of = answer;
	choice->several.index = (int64_t)answer->several.count;
	answer->several.all[answer->several.count++] = choice;
	return answer_generate(choice, call_of(answer, call, prompt, choice->several.index), error);
}

enum status answer_generate_several(struct answer *answer, struct json *call, struct error *error)
{
	const size_t prompts = answer->inputs ? json_count(answer->inputs) : 1;
	const size_t count = prompts * (size_t)answer->several.each;
	const struct json *prompt = json_first(answer->inputs);
	enum status status = STATUS_OK;
	if (answer->inputs)
		json_remove(call, "prompt"); // each has its own
	answer->several.all = calloc(count, sizeof(*answer->several.all));
	answer->several.ended = calloc(count, sizeof(*answer->several.ended));
	answer->several.sum = json_new_object();
	if (!answer->several.all || !answer->several.ended)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	answer->several.left = count;
	for (size_t i = 0; i < prompts && !status; i++, prompt = json_next(prompt))
		for (int64_t k = 0; k < answer->several.each && !status; k++)
			status = add_choice(answer, call, prompt, error);
	json_destroy(&call);
	return status;
}

static void add(struct json *sum, const struct json *end, const char *name)
{
	if (json_get(end, name))
		json_set_integer(sum, name, json_get_integer(sum, name, 0) + json_get_integer(end, name, 0));
}

// Null unless that of each is known.
static void add_energy(struct json *sum, const struct json *end)
{
	const double before = json_get(sum, "energy_joules") ? json_get_number(sum, "energy_joules", NAN) : 0;
	json_set_number(sum, "energy_joules", before + json_get_number(end, "energy_joules", NAN));
}

bool answer_choice_ended(struct answer *choice, const struct json *end)
{
	struct answer *answer = choice->several.of;
	if (choice->several.index % answer->several.each == 0) { // a prompt counts once
		add(answer->several.sum, end, "prompt_tokens");
		add(answer->several.sum, end, "cached_tokens");
	}
	add(answer->several.sum, end, "generated_tokens");
	add(answer->several.sum, end, "reasoning_tokens");
	add(answer->several.sum, end, "proposed_tokens");
	add(answer->several.sum, end, "accepted_tokens");
	add(answer->several.sum, end, "drafted_tokens");
	add(answer->several.sum, end, "draft_accepted_tokens");
	if (answer->energy)
		add_energy(answer->several.sum, end);
	return --answer->several.left == 0;
}

void answer_cancel_several(struct answer *answer)
{
	for (size_t i = 0; i < answer->several.count; i++)
		generation_cancel(&answer->several.all[i]->generation);
}

void answer_finish_several(struct answer *answer)
{
	for (size_t i = 0; i < answer->several.count; i++) {
		answer_free(answer->several.all[i]);
		json_destroy(&answer->several.ended[i]);
	}
	free(answer->several.all);
	free(answer->several.ended);
	json_destroy(&answer->several.sum);
}
