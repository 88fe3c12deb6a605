/* Which token comes next.
 *
 * The order: bias, penalties (over the prompt's and the generated tokens: repetition divides or multiplies, presence
 * and frequency subtract and count generated tokens only), the form (what a grammar does not let in is out),
 * temperature, top-k, top-p, min-p, draw. Temperature 0 takes the largest, the lowest id of equals. A draw depends on
 * the seed, the position and nothing else, so a request that starts again elsewhere goes on as it would have. Thread:
 * any; a scratch and a form belong to one at a time. */
#pragma once
#include "engine/grammar/grammar.h"
#include "engine/stage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAMPLING_BIASES = 300, SAMPLING_TOP_LOGPROBS = 20 };

struct token_bias {
	uint32_t token;
	float bias; // -100 to 100, added to its logit
};

struct sampling {
	float temperature;                         // 0 to 2
	uint32_t top_k;                            // 0: all
	float top_p, min_p;                        // 0 to 1; 1 and 0 are without effect
	float repetition_penalty;                  // 0.01 to 10; 1 is without effect
	float presence_penalty, frequency_penalty; // -2 to 2; 0 is without effect
	uint64_t seed;
	bool logprobs;
	uint32_t top_logprobs;           // <= SAMPLING_TOP_LOGPROBS
	const struct token_bias *biases; // (bias_count)
	uint32_t bias_count;
};
// Whether the largest logit, as it is, is what will be taken and nothing else is asked for.
bool sampling_is_greedy(const struct sampling *sampling);
// Whether a draw, without a form, needs no more than the largest logits as they are: struct stage_candidates.
bool sampling_is_narrow(const struct sampling *sampling, uint32_t vocabulary);

#define SAMPLER_NO_TOKEN UINT32_MAX // a logit is NaN or infinite, or the form lets nothing in (matcher_error)

struct token_choice {
	uint32_t token; // or SAMPLER_NO_TOKEN, and nothing else
	float logprob;  // natural, of the model's own distribution before anything above; with logprobs
	struct {
		uint32_t token;
		float logprob;
	} top[SAMPLING_TOP_LOGPROBS];
	uint32_t top_count;
};

struct sampler_scratch; // memory for one vocabulary
enum status sampler_scratch_create(struct sampler_scratch **out, uint32_t vocabulary);
void sampler_scratch_destroy(struct sampler_scratch **scratch);

struct sampler_input {
	const struct sampling *sampling;
	const float *logits;                       // (vocabulary)
	const struct stage_candidates *candidates; // instead of logits, all finite, if sampling_is_narrow; or NULL
	uint32_t vocabulary;
	const uint32_t *tokens; // (token_count): the prompt and the generated tokens
	size_t token_count, prompt_count;
	uint64_t position;    // of the token that is drawn
	struct matcher *form; // what may come next, of a vocabulary of as many tokens; NULL: anything
};
void sampler_choose(struct sampler_scratch *scratch, const struct sampler_input *input, struct token_choice *choice);
// The logprob of `token` and the most likely other tokens, from these logits before sampling changes them, in the form
// of a choice. If a logit is not finite the token is SAMPLER_NO_TOKEN.
void sampler_judge(struct sampler_scratch *scratch, const struct sampler_input *input, uint32_t token,
		   struct token_choice *choice);
// Whether another token would be chosen if the logit of this one were less by what rounding may do to it: by 1/256 of
// the largest.
bool sampler_is_tie(struct sampler_scratch *scratch, const struct sampler_input *input, uint32_t chosen);
