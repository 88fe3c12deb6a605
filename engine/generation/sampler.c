/* See sampler.h. Order of reading: sampler_choose, then what it calls from the top.
 *
 * The distance of a logit is how far it lies below the largest one, divided by the temperature: a token's weight is
 * exp(-distance), and no sum overflows. A token's place is its distance, then its id. Top-k and top-p keep all places
 * up to one, which is called the cut; the draw walks over the weights that are left in the order of ids.
 *
 * Almost all of the time goes into passes over the vocabulary, so there are few:
 *
 *     look        one, always: the largest value of each block, and whether all are finite
 *     candidates  only the blocks that matter. Of n blocks' largest values the k-th is a value that at least k tokens
 *                 reach, so what lies below it is not among the first k places
 *     weigh_all   one, where the sum of all weights is needed: for top-p without top-k, a draw from all, logprobs
 *
 * A device may have done the first two (stage_candidates): then there is no pass.
 */
#include "engine/generation/sampler.h"

#include "engine/generation/philox.h"
#include "engine/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	BLOCK = 64,        // of values; weights are summed by blocks, too
	WALKED = 1u << 31, // in a count: this token has been seen
};

static const float least_value = -1e30f, most_value = 1e30f; // of a logit: the rest has room in a float
static const float far = 1e38f;                              // a distance beyond all
// For top-p without top-k: distances are tried, each so much farther, up to where a weight is next to nothing.
static const float distance_more = 1.4f, distance_most = 80;
static const float min_p_slack = 0.01f;  // of a distance, for what rounding does
static const float out_of_form = -3e38f; // below what any logit, with its bias and penalties, is

struct place {
	float distance, weight;
	uint32_t token;
};

struct sampler_scratch {
	uint32_t vocabulary, blocks;
	const float *values;            // (vocabulary): the logits, or `changed`
	float *changed;                 // (vocabulary)
	float *weight;                  // (vocabulary)
	float *largest, *sorted;        // (blocks): of the values of a block; the same, to select from
	double *mass;                   // (blocks): of the weights of a block
	uint32_t *counts;               // (vocabulary), all 0 between calls
	struct place *candidates, *cut; // (vocabulary): in the order of ids; the same, to select from
	uint32_t candidate_count;
};

enum status sampler_scratch_create(struct sampler_scratch **out, uint32_t vocabulary)
{
	struct sampler_scratch *scratch = *out = calloc(1, sizeof(*scratch));
	if (!scratch)
		return STATUS_OUT_OF_MEMORY;
	scratch->vocabulary = vocabulary;
	scratch->blocks = (vocabulary + BLOCK - 1) / BLOCK;
	scratch->changed = malloc(vocabulary * sizeof(float));
	scratch->weight = malloc(vocabulary * sizeof(float));
	scratch->largest = malloc(scratch->blocks * sizeof(float));
	scratch->sorted = malloc(scratch->blocks * sizeof(float));
	scratch->mass = malloc(scratch->blocks * sizeof(double));
	scratch->counts = calloc(vocabulary, sizeof(uint32_t));
	scratch->candidates = malloc(vocabulary * sizeof(struct place));
	scratch->cut = malloc(vocabulary * sizeof(struct place));
	if (scratch->changed && scratch->weight && scratch->largest && scratch->sorted && scratch->mass &&
	    scratch->counts && scratch->candidates && scratch->cut)
		return STATUS_OK;
	sampler_scratch_destroy(out);
	return STATUS_OUT_OF_MEMORY;
}

void sampler_scratch_destroy(struct sampler_scratch **scratch)
{
	if (!*scratch)
		return;
	free((*scratch)->changed);
	free((*scratch)->weight);
	free((*scratch)->largest);
	free((*scratch)->sorted);
	free((*scratch)->mass);
	free((*scratch)->counts);
	free((*scratch)->candidates);
	free((*scratch)->cut);
	free(*scratch);
	*scratch = NULL;
}

bool sampling_is_greedy(const struct sampling *sampling)
{
	return !(sampling->temperature > 0) && sampling->repetition_penalty == 1 && sampling->presence_penalty == 0 &&
	       sampling->frequency_penalty == 0 && !sampling->bias_count && !sampling->logprobs;
}

static bool changes_values(const struct sampling *sampling)
{
	return sampling->bias_count || sampling->repetition_penalty != 1 || sampling->presence_penalty != 0 ||
	       sampling->frequency_penalty != 0;
}

bool sampling_is_narrow(const struct sampling *sampling, uint32_t vocabulary)
{
	return sampling->temperature > 0 && sampling->top_k && sampling->top_k <= STAGE_CANDIDATES_LEAST &&
	       sampling->top_k < vocabulary && !changes_values(sampling) && !sampling->logprobs;
}

// ---- numbers ----

static float sane(float logit)
{
	return logit > least_value ? (logit < most_value ? logit : most_value) : least_value;
}

static float distance_of(float value, float largest, float temperature)
{
	const float under = (largest - value) / temperature;
	return under < far ? under : far;
}

// ---- values ----

static uint32_t block_end(const struct sampler_scratch *scratch, uint32_t block)
{
	return block + 1 < scratch->blocks ? (block + 1) * BLOCK : scratch->vocabulary;
}

static ints not_finite(floats value)
{
	return ((ints)value & 0x7f800000) == 0x7f800000;
}

// Take the values to choose from, and find the largest of each block. False: one is not finite.
static bool look(struct sampler_scratch *scratch, const float *values)
{
	ints bad = {0};
	scratch->values = values;
	for (uint32_t block = 0; block < scratch->blocks; block++) {
		const uint32_t begin = block * BLOCK, end = block_end(scratch, block);
		floats largest = floats_of(values[begin]);
		uint32_t i = begin;
		for (; i + LANES <= end; i += LANES) {
			const floats some = *(const floats *)&values[i];
			largest = either(some > largest, some, largest);
			bad |= not_finite(some);
		}
		for (; i < end; i++) {
			largest[0] = values[i] > largest[0] ? values[i] : largest[0];
			bad |= not_finite(floats_of(values[i]));
		}
		for (int j = 1; j < LANES; j++)
			largest[0] = largest[j] > largest[0] ? largest[j] : largest[0];
		scratch->largest[block] = largest[0];
	}
	return !(bad[0] | bad[1] | bad[2] | bad[3]);
}

// The lowest id of the largest value.
static uint32_t first_largest(const struct sampler_scratch *scratch)
{
	uint32_t best = 0;
	for (uint32_t block = 1; block < scratch->blocks; block++)
		best = scratch->largest[block] > scratch->largest[best] ? block : best;
	uint32_t token = best * BLOCK;
	while (scratch->values[token] < scratch->largest[best])
		token++;
	return token;
}

static void change_values(struct sampler_scratch *scratch, const struct sampler_input *input)
{
	const struct sampling *sampling = input->sampling;
	float *values = scratch->changed;
	for (uint32_t i = 0; i < sampling->bias_count; i++)
		if (sampling->biases[i].token < scratch->vocabulary)
			values[sampling->biases[i].token] += sampling->biases[i].bias;
	if (sampling->repetition_penalty == 1 && sampling->presence_penalty == 0 && sampling->frequency_penalty == 0)
		return;
	for (size_t i = 0; i < input->token_count; i++)
		if (input->tokens[i] < scratch->vocabulary) {
			uint32_t *count = &scratch->counts[input->tokens[i]];
			*count = (*count | WALKED) + (i >= input->prompt_count);
		}
	for (size_t i = 0; i < input->token_count; i++) {
		uint32_t token = input->tokens[i], *count = &scratch->counts[token];
		if (token >= scratch->vocabulary || !*count)
			continue;
		uint32_t generated = *count & ~(uint32_t)WALKED;
		float value = values[token];
		value = value > 0 ? value / sampling->repetition_penalty : value * sampling->repetition_penalty;
		value -= sampling->frequency_penalty * (float)generated;
		values[token] = generated ? value - sampling->presence_penalty : value;
		*count = 0;
	}
}

static void keep_to_form(struct sampler_scratch *scratch, const uint32_t *allowed)
{
	float *restrict values = scratch->changed;
	for (uint32_t i = 0; i < scratch->vocabulary; i++)
		values[i] = allowed[i / 32] >> i % 32 & 1 ? values[i] : out_of_form;
}

// Bias, penalties and the form, if there are any, are applied to a copy of the values.
static void take_changes(struct sampler_scratch *scratch, const struct sampler_input *input, const uint32_t *allowed)
{
	if (!changes_values(input->sampling) && !allowed)
		return;
	for (uint32_t i = 0; i < scratch->vocabulary; i++)
		scratch->changed[i] = sane(input->logits[i]);
	change_values(scratch, input);
	if (allowed)
		keep_to_form(scratch, allowed);
	look(scratch, scratch->changed);
}

// The weights of all tokens, and their sum by blocks. Returns the whole sum.
static double weigh_all(struct sampler_scratch *scratch, float largest, float temperature)
{
	double sum = 0;
	for (uint32_t block = 0; block < scratch->blocks; block++) {
		const uint32_t begin = block * BLOCK, end = block_end(scratch, block);
		floats mass = {0};
		uint32_t i = begin;
		for (; i + LANES <= end; i += LANES) {
			const floats under = (largest - *(const floats *)&scratch->values[i]) / temperature;
			const floats weight = exp_minus(under);
			*(floats *)&scratch->weight[i] = weight;
			mass += weight;
		}
		for (; i < end; i++) {
			scratch->weight[i] = exp_minus(
				floats_of(distance_of(scratch->values[i], largest, temperature)))[0];
			mass[0] += scratch->weight[i];
		}
		scratch->mass[block] = (double)mass[0] + (double)mass[1] + (double)mass[2] + (double)mass[3];
		sum += scratch->mass[block];
	}
	return sum;
}

// ---- candidates ----

// The n-th largest (from 1 on) of the blocks' largest values; the lowest value that there is, if there are fewer
// blocks.
static float nth_largest(struct sampler_scratch *scratch, uint32_t n)
{
	float *values = scratch->sorted;
	uint32_t from = 0, to = scratch->blocks; // of these the (n - 1 - from)-th
	if (n > to)
		return out_of_form;
	memcpy(values, scratch->largest, to * sizeof(*values));
	while (to - from > 1) {
		const float pivot = values[from + (to - from) / 2];
		uint32_t above = from, below = to; // [from, above) > pivot, [below, to) < pivot
		for (uint32_t i = from; i < below;) {
			const float value = values[i];
			if (value > pivot) {
				values[i++] = values[above];
				values[above++] = value;
			} else if (value < pivot) {
				values[i] = values[--below];
				values[below] = value;
			} else {
				i++;
			}
		}
		if (n - 1 < above)
			to = above;
		else if (n - 1 >= below)
			from = below;
		else
			return pivot;
	}
	return values[from];
}

// All tokens whose distance is at most `most`, in the order of their ids.
static void gather(struct sampler_scratch *scratch, float largest, float temperature, float most)
{
	scratch->candidate_count = 0;
	for (uint32_t block = 0; block < scratch->blocks; block++) {
		if (distance_of(scratch->largest[block], largest, temperature) > most)
			continue;
		for (uint32_t i = block * BLOCK, end = block_end(scratch, block); i < end; i++) {
			struct place place = {.token = i};
			place.distance = distance_of(scratch->values[i], largest, temperature);
			if (place.distance > most)
				continue;
			place.weight = exp_minus(floats_of(place.distance))[0];
			scratch->candidates[scratch->candidate_count++] = place;
		}
	}
}

static bool is_before(const struct place *a, const struct place *b)
{
	return a->distance != b->distance ? a->distance < b->distance : a->token < b->token;
}

static void swap_places(struct place *a, struct place *b)
{
	const struct place place = *a;
	*a = *b;
	*b = place;
}

// Move what lies before the place in the middle before it, and the rest behind it. Returns where it comes to be.
static uint32_t part_places(struct place *places, uint32_t count)
{
	uint32_t before = 0;
	swap_places(&places[count / 2], &places[count - 1]);
	for (uint32_t i = 0; i + 1 < count; i++)
		if (is_before(&places[i], &places[count - 1]))
			swap_places(&places[i], &places[before++]);
	swap_places(&places[before], &places[count - 1]);
	return before;
}

// The cut: the last place among the first `most` candidates, or among the first ones whose weights reach `enough`,
// whichever are fewer. It is found by parting them again and again, since few need to be in order. *mass: the sum of
// the weights that are kept.
static struct place find_cut(struct sampler_scratch *scratch, uint32_t most, double enough, double *mass)
{
	struct place *places = scratch->cut, last = {0};
	uint32_t count = scratch->candidate_count, kept = 0;
	memcpy(places, scratch->candidates, count * sizeof(*places));
	*mass = 0;
	while (count) { // places: those of which it is not known whether they are kept
		const uint32_t before = part_places(places, count);
		double sum = 0;
		for (uint32_t i = 0; i < before; i++)
			sum += (double)places[i].weight;
		if (kept + before >= most || *mass + sum >= enough) { // that place is not kept
			count = before;
			if (!kept && !before) {
				last = places[0];
				*mass = (double)last.weight;
			}
			continue;
		}
		last = places[before];
		*mass += sum + (double)last.weight;
		kept += before + 1;
		places += before + 1;
		count -= before + 1;
	}
	return last;
}

// Only what is not behind the cut, and weighs enough, stays a candidate.
static void cut_away(struct sampler_scratch *scratch, const struct place *last, float least_weight)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < scratch->candidate_count; i++) {
		const struct place *place = &scratch->candidates[i];
		if (!is_before(last, place) && place->weight >= least_weight)
			scratch->candidates[count++] = *place;
	}
	scratch->candidate_count = count;
}

// The sum of all weights that are at least `least`.
static double mass_from(const struct sampler_scratch *scratch, float least)
{
	double sum = 0;
	for (uint32_t block = 0; block < scratch->blocks; block++) {
		const uint32_t begin = block * BLOCK, end = block_end(scratch, block);
		floats mass = {0};
		uint32_t i = begin;
		for (; i + LANES <= end; i += LANES) {
			const floats weight = *(const floats *)&scratch->weight[i];
			mass += either(weight >= least, weight, floats_of(0));
		}
		for (; i < end; i++)
			mass[0] += scratch->weight[i] >= least ? scratch->weight[i] : 0;
		sum += (double)mass[0] + (double)mass[1] + (double)mass[2] + (double)mass[3];
	}
	return sum;
}

// A distance within which the places have a mass of `enough`, and not many more than are needed for that.
static float distance_of_mass(const struct sampler_scratch *scratch, double enough)
{
	float distance = 1;
	while (distance < distance_most && mass_from(scratch, expf(-distance)) < enough)
		distance *= distance_more;
	return distance < distance_most ? distance : far;
}

// Top-k, top-p and min-p, of candidates among which are all that can be kept. `enough`: the mass that top-p keeps of
// all tokens; with top-k it is found here. One candidate is left at least.
static void keep(struct sampler_scratch *scratch, const struct sampling *sampling, double enough)
{
	const bool few = sampling->top_k && sampling->top_k < scratch->vocabulary;
	struct place last = {.distance = far, .token = UINT32_MAX};
	double mass = 0;
	if (few) {
		last = find_cut(scratch, sampling->top_k, INFINITY, &mass);
		enough = (double)sampling->top_p * mass;
	}
	if (sampling->top_p < 1)
		last = find_cut(scratch, few ? sampling->top_k : UINT32_MAX, enough, &mass);
	cut_away(scratch, &last, sampling->min_p);
}

// The candidates among the values, and of them those that are kept.
static void filter(struct sampler_scratch *scratch, const struct sampling *sampling, float largest)
{
	const float temperature = sampling->temperature;
	float within = far;
	double enough = 0;
	if (sampling->top_k && sampling->top_k < scratch->vocabulary) {
		within = distance_of(nth_largest(scratch, sampling->top_k), largest, temperature);
	} else if (sampling->top_p < 1) {
		enough = (double)sampling->top_p * weigh_all(scratch, largest, temperature);
		within = distance_of_mass(scratch, enough);
	} else {
		within = min_p_slack - logf(sampling->min_p);
	}
	gather(scratch, largest, temperature, within);
	keep(scratch, sampling, enough);
}

static int compare_tokens(const void *left, const void *right)
{
	const struct place *a = left, *b = right;
	return a->token < b->token ? -1 : a->token > b->token;
}

// The candidates that a device found, of which a token that it could not have is none.
static void take_candidates(struct sampler_scratch *scratch, const struct stage_candidates *found, float temperature)
{
	float largest = least_value;
	for (uint32_t i = 0; i < found->count; i++)
		largest = found->of[i].logit > largest ? found->of[i].logit : largest;
	scratch->candidate_count = 0;
	for (uint32_t i = 0; i < found->count; i++) {
		struct place place = {.token = found->of[i].token};
		if (place.token >= scratch->vocabulary)
			continue;
		place.distance = distance_of(found->of[i].logit, largest, temperature);
		place.weight = exp_minus(floats_of(place.distance))[0];
		scratch->candidates[scratch->candidate_count++] = place;
	}
	qsort(scratch->candidates, scratch->candidate_count, sizeof(struct place), compare_tokens);
}

// ---- the choice ----

// The candidate at `share`, in [0, 1), of the weights.
static uint32_t draw_candidate(const struct sampler_scratch *scratch, double share)
{
	double total = 0, before = 0;
	uint32_t last = scratch->candidates[0].token;
	for (uint32_t i = 0; i < scratch->candidate_count; i++)
		total += (double)scratch->candidates[i].weight;
	for (uint32_t i = 0; i < scratch->candidate_count && before <= share * total; i++) {
		before += (double)scratch->candidates[i].weight;
		last = scratch->candidates[i].weight > 0 ? scratch->candidates[i].token : last;
	}
	return last;
}

// The token at `share`, in [0, 1), of all weights, of which the largest is 1.
static uint32_t draw_any(const struct sampler_scratch *scratch, double share, double total)
{
	double before = 0, start = 0;
	uint32_t block = 0, last = 0;
	for (uint32_t i = 0; i < scratch->blocks && before <= share * total; i++) {
		if (scratch->mass[i] > 0) {
			block = i;
			start = before;
		}
		before += scratch->mass[i];
	}
	for (uint32_t i = block * BLOCK, end = block_end(scratch, block); i < end && start <= share * total; i++) {
		start += (double)scratch->weight[i];
		last = scratch->weight[i] > 0 ? i : last;
	}
	return last;
}

static uint32_t draw(struct sampler_scratch *scratch, const struct sampling *sampling, float largest, double share)
{
	const bool whole = (!sampling->top_k || sampling->top_k >= scratch->vocabulary) && !(sampling->top_p < 1) &&
			   !(sampling->min_p > 0);
	if (whole) {
		const double total = weigh_all(scratch, largest, sampling->temperature);
		return draw_any(scratch, share, total);
	}
	filter(scratch, sampling, largest);
	return draw_candidate(scratch, share);
}

// The most likely of the model's own distribution, from the values as they are.
static void tell_top(struct sampler_scratch *scratch, const struct sampling *sampling, struct token_choice *choice,
		     float offset)
{
	uint32_t most = sampling->top_logprobs < SAMPLING_TOP_LOGPROBS ? sampling->top_logprobs : SAMPLING_TOP_LOGPROBS;
	for (uint32_t i = 0; most && i < scratch->vocabulary; i++) {
		const float logprob = sane(scratch->values[i]) - offset;
		if (choice->top_count == most) {
			const float least = choice->top[most - 1].logprob;
			if (i % BLOCK == 0 && scratch->largest[i / BLOCK] - offset <= least)
				i += BLOCK - 1;
			if (logprob <= least)
				continue;
		}
		uint32_t at = choice->top_count < most ? choice->top_count++ : most - 1;
		for (; at && choice->top[at - 1].logprob < logprob; at--)
			choice->top[at] = choice->top[at - 1];
		choice->top[at].token = i;
		choice->top[at].logprob = logprob;
	}
}

// The logarithm of the sum of exp(logit): subtracted from a logit it gives the logprob.
static float log_sum(struct sampler_scratch *scratch)
{
	const float largest = sane(scratch->values[first_largest(scratch)]);
	return largest + (float)log(weigh_all(scratch, largest, 1));
}

void sampler_choose(struct sampler_scratch *scratch, const struct sampler_input *input, struct token_choice *choice)
{
	const struct sampling *sampling = input->sampling;
	float offset = 0;
	*choice = (struct token_choice){.token = SAMPLER_NO_TOKEN};
	if (input->candidates) {
		take_candidates(scratch, input->candidates, sampling->temperature);
		if (!scratch->candidate_count)
			return;
		keep(scratch, sampling, 0);
		choice->token = draw_candidate(scratch, uniform(sampling->seed, input->position));
		return;
	}
	const uint32_t *allowed = input->form ? matcher_allowed(input->form) : NULL;
	if (!look(scratch, input->logits) || (input->form && !allowed))
		return;
	if (sampling->logprobs) {
		offset = log_sum(scratch);
		tell_top(scratch, sampling, choice, offset);
	}
	take_changes(scratch, input, allowed);
	choice->token = first_largest(scratch);
	if (sampling->temperature > 0)
		choice->token = draw(scratch, sampling, scratch->values[choice->token],
				     uniform(sampling->seed, input->position));
	if (sampling->logprobs)
		choice->logprob = sane(input->logits[choice->token]) - offset;
}

void sampler_judge(struct sampler_scratch *scratch, const struct sampler_input *input, uint32_t token,
		   struct token_choice *choice)
{
	*choice = (struct token_choice){.token = SAMPLER_NO_TOKEN};
	if (!look(scratch, input->logits))
		return;
	const float offset = log_sum(scratch);
	tell_top(scratch, input->sampling, choice, offset);
	choice->token = token;
	choice->logprob = sane(input->logits[token]) - offset;
}

bool sampler_is_tie(struct sampler_scratch *scratch, const struct sampler_input *input, uint32_t chosen)
{
	const float part = 1.0f / 256;
	struct token_bias biases[SAMPLING_BIASES + 1];
	struct token_choice choice;
	struct sampling sampling = *input->sampling;
	struct sampler_input lowered = *input;
	look(scratch, input->logits);
	const float largest = fabsf(sane(input->logits[first_largest(scratch)]));
	for (uint32_t i = 0; i < sampling.bias_count; i++)
		biases[i] = sampling.biases[i];
	biases[sampling.bias_count++] = (struct token_bias){.token = chosen, .bias = -largest * part};
	sampling.biases = biases;
	sampling.logprobs = false;
	lowered.sampling = &sampling;
	sampler_choose(scratch, &lowered, &choice);
	return choice.token != chosen;
}
