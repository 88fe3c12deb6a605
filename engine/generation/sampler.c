/* See sampler.h. Order of reading: sampler_choose, then what it calls from the top.
 *
 * The distance of a logit is how far it lies below the largest one, divided by the temperature: a token's weight is
 * exp(-distance), and no sum overflows. Top-k and top-p keep all tokens up to one place in the order of distance and
 * then id, which is called the cut. It is found without sorting the vocabulary: values are counted and weighed by
 * buckets of nearly the same distance (the upper bits of the float, which order as it does), and only the bucket that
 * the cut falls into is sorted. The draw then walks over the weights in the order of ids. Loops over the vocabulary go
 * by LANES, which compilers turn into vectors. */
#include "engine/generation/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	LANES = 16,
	BLOCK = 256,       // weights are summed by blocks
	BUCKET_SHIFT = 17, // of a distance's bits: buckets are a 64th of their distance wide
	BUCKETS = 1 << (31 - BUCKET_SHIFT),
	WALKED = 1u << 31, // in a count: this token has been seen
};

static const float least_value = -1e30f, most_value = 1e30f; // of a logit: the rest has room in a float
static const float far = 1e38f;                              // a distance beyond all
static const float out_of_form = -3e38f;                     // below what any logit, with its bias and penalties, is

struct bucket {
	double mass;
	uint32_t count;
};

struct place {
	float distance;
	uint32_t token;
};

struct sampler_scratch {
	uint32_t vocabulary, padded; // padded: to whole blocks
	float *distance;             // (padded); values, before the largest is known
	float *weight;               // (padded)
	uint32_t *counts;            // (vocabulary), all 0 between calls
	struct place *members;       // (vocabulary) of one bucket
	struct bucket buckets[BUCKETS];
};

enum status sampler_scratch_create(struct sampler_scratch **out, uint32_t vocabulary)
{
	struct sampler_scratch *scratch = *out = calloc(1, sizeof(*scratch));
	if (!scratch)
		return STATUS_OUT_OF_MEMORY;
	scratch->vocabulary = vocabulary;
	scratch->padded = (vocabulary + BLOCK - 1) / BLOCK * BLOCK;
	scratch->distance = malloc(scratch->padded * sizeof(float));
	scratch->weight = malloc(scratch->padded * sizeof(float));
	scratch->counts = calloc(vocabulary, sizeof(uint32_t));
	scratch->members = malloc(vocabulary * sizeof(struct place));
	if (scratch->distance && scratch->weight && scratch->counts && scratch->members)
		return STATUS_OK;
	sampler_scratch_destroy(out);
	return STATUS_OUT_OF_MEMORY;
}

void sampler_scratch_destroy(struct sampler_scratch **scratch)
{
	if (!*scratch)
		return;
	free((*scratch)->distance);
	free((*scratch)->weight);
	free((*scratch)->counts);
	free((*scratch)->members);
	free(*scratch);
	*scratch = NULL;
}

bool sampling_is_greedy(const struct sampling *sampling)
{
	return !(sampling->temperature > 0) && sampling->repetition_penalty == 1 && sampling->presence_penalty == 0 &&
	       sampling->frequency_penalty == 0 && !sampling->bias_count && !sampling->logprobs;
}

// ---- numbers ----

static bool all_finite(const float *values, uint32_t count)
{
	uint32_t bad = 0;
	for (uint32_t i = 0; i < count; i++)
		bad |= isfinite(values[i]) ? 0u : 1u;
	return !bad;
}

static float sane(float logit)
{
	return logit > least_value ? (logit < most_value ? logit : most_value) : least_value;
}

// exp(-distance) for distances >= 0, to about a unit in the last place. Where a float would be denormal the result is
// 0, because the bits of the scale are 0 then.
static void weigh(const float distance[LANES], float weight[LANES])
{
	uint32_t bits[LANES];
	float scale[LANES];
	for (int j = 0; j < LANES; j++) {
		float turns = (distance[j] < 88 ? distance[j] : 88) * -1.44269504f;
		int whole = (int)(turns - 0.5f);
		float rest = turns - (float)whole; // within a half
		// 2^rest: the series of exp(rest * ln 2)
		float power = 1.525273e-5f;
		power = power * rest + 1.540353e-4f;
		power = power * rest + 1.333355815e-3f;
		power = power * rest + 9.618129108e-3f;
		power = power * rest + 5.550410866e-2f;
		power = power * rest + 0.2402265070f;
		power = power * rest + 0.6931471806f;
		weight[j] = power * rest + 1;
		bits[j] = (uint32_t)(whole + 127) << 23;
	}
	memcpy(scale, bits, sizeof(scale));
	for (int j = 0; j < LANES; j++)
		weight[j] *= scale[j];
}

static uint32_t bucket_of(float distance)
{
	uint32_t bits;
	memcpy(&bits, &distance, sizeof(bits));
	return bits >> BUCKET_SHIFT;
}

// Philox 4x32 with ten rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011): a number in
// [0, 1) that depends on seed and position alone.
static double uniform(uint64_t seed, uint64_t position)
{
	uint32_t x[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	for (int round = 0; round < 10; round++) {
		uint64_t a = 0xD2511F53ull * x[0], b = 0xCD9E8D57ull * x[2];
		uint32_t next[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b,
				    (uint32_t)(a >> 32) ^ x[3] ^ key[1], (uint32_t)a};
		memcpy(x, next, sizeof(x));
		key[0] += 0x9E3779B9u;
		key[1] += 0xBB67AE85u;
	}
	return (double)(((uint64_t)x[0] << 32 | x[1]) >> 11) * 0x1p-53;
}

// ---- values ----

// Sane values into scratch->distance, least_value behind them.
static void take_values(struct sampler_scratch *scratch, const float *restrict logits)
{
	float *restrict values = scratch->distance;
	uint32_t count = scratch->vocabulary, whole = count / LANES * LANES;
	for (uint32_t i = 0; i < whole; i += LANES)
		for (uint32_t j = 0; j < LANES; j++)
			values[i + j] = sane(logits[i + j]);
	for (uint32_t i = whole; i < scratch->padded; i++)
		values[i] = i < count ? sane(logits[i]) : least_value;
}

// The lowest id of the largest value.
static uint32_t first_largest(const struct sampler_scratch *scratch)
{
	const float *restrict values = scratch->distance;
	float largest[LANES];
	uint32_t best = 0;
	for (int j = 0; j < LANES; j++)
		largest[j] = least_value;
	for (uint32_t i = 0, end = scratch->padded; i < end; i += LANES)
		for (uint32_t j = 0; j < LANES; j++)
			largest[j] = values[i + j] > largest[j] ? values[i + j] : largest[j];
	for (int j = 1; j < LANES; j++)
		largest[0] = largest[j] > largest[0] ? largest[j] : largest[0];
	while (best + 1 < scratch->vocabulary && values[best] < largest[0])
		best++;
	return best;
}

// Distances to weights. What lies behind the vocabulary weighs nothing.
static void take_weights(struct sampler_scratch *scratch)
{
	const float *restrict distance = scratch->distance;
	float *restrict weight = scratch->weight;
	for (uint32_t i = 0, end = scratch->padded; i < end; i += LANES)
		weigh(&distance[i], &weight[i]);
	for (uint32_t i = scratch->vocabulary; i < scratch->padded; i++)
		weight[i] = 0;
}

// Values to distances from the largest.
static void take_distances(struct sampler_scratch *scratch, float largest, float temperature)
{
	float *restrict distance = scratch->distance;
	for (uint32_t i = 0, end = scratch->padded; i < end; i += LANES)
		for (uint32_t j = 0; j < LANES; j++) {
			float under = (largest - distance[i + j]) / temperature;
			distance[i + j] = under < far ? under : far;
		}
}

static void change_values(struct sampler_scratch *scratch, const struct sampler_input *input)
{
	const struct sampling *sampling = input->sampling;
	float *values = scratch->distance;
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
	float *restrict values = scratch->distance;
	for (uint32_t i = 0; i < scratch->vocabulary; i++)
		values[i] = allowed[i / 32] >> i % 32 & 1 ? values[i] : out_of_form;
}

// ---- the cut ----

static void fill_buckets(struct sampler_scratch *scratch)
{
	memset(scratch->buckets, 0, sizeof(scratch->buckets));
	for (uint32_t i = 0; i < scratch->vocabulary; i++) {
		struct bucket *bucket = &scratch->buckets[bucket_of(scratch->distance[i])];
		bucket->mass += (double)scratch->weight[i];
		bucket->count++;
	}
}

static int compare_places(const void *left, const void *right)
{
	const struct place *a = left, *b = right;
	if (a->distance != b->distance)
		return a->distance < b->distance ? -1 : 1;
	return a->token < b->token ? -1 : a->token > b->token;
}

// The cut: the last place among the first `most` places, or among the first places whose mass reaches `enough`,
// whichever are fewer. *mass: the mass of the places that are kept.
static struct place find_cut(struct sampler_scratch *scratch, uint32_t most, double enough, double *mass)
{
	struct place last = {.distance = far, .token = UINT32_MAX};
	uint32_t count = 0, found = 0, at = 0;
	*mass = 0;
	while (at < BUCKETS && count + scratch->buckets[at].count < most &&
	       *mass + scratch->buckets[at].mass < enough) {
		count += scratch->buckets[at].count;
		*mass += scratch->buckets[at++].mass;
	}
	if (at == BUCKETS)
		return last;
	for (uint32_t i = 0; i < scratch->vocabulary; i++)
		if (bucket_of(scratch->distance[i]) == at)
			scratch->members[found++] = (struct place){scratch->distance[i], i};
	qsort(scratch->members, found, sizeof(struct place), compare_places);
	for (uint32_t i = 0; i < found && (!count || (count < most && *mass < enough)); i++, count++) {
		last = scratch->members[i];
		*mass += (double)scratch->weight[last.token];
	}
	return last;
}

static void cut_away(struct sampler_scratch *scratch, struct place last, float least_weight)
{
	for (uint32_t i = 0; i < scratch->vocabulary; i++) {
		float distance = scratch->distance[i];
		bool kept = distance < last.distance || (distance == last.distance && i <= last.token);
		if (!kept || scratch->weight[i] < least_weight)
			scratch->weight[i] = 0;
	}
}

static void filter(struct sampler_scratch *scratch, const struct sampling *sampling)
{
	struct place last = {.distance = far, .token = UINT32_MAX};
	uint32_t most = sampling->top_k ? sampling->top_k : UINT32_MAX;
	bool narrow = sampling->top_p < 1;
	double mass = 0;
	if (most < scratch->vocabulary || narrow) {
		fill_buckets(scratch);
		last = find_cut(scratch, most, INFINITY, &mass);
		if (narrow)
			last = find_cut(scratch, most, (double)sampling->top_p * mass, &mass);
	} else if (!(sampling->min_p > 0)) {
		return;
	}
	cut_away(scratch, last, sampling->min_p);
}

// ---- the choice ----

static double block_mass(const float *weight)
{
	float lanes[LANES] = {0};
	double sum = 0;
	for (int i = 0; i < BLOCK; i += LANES)
		for (int j = 0; j < LANES; j++)
			lanes[j] += weight[i + j];
	for (int j = 0; j < LANES; j++)
		sum += (double)lanes[j];
	return sum;
}

// The token at `share`, in [0, 1), of the weights. The largest weighs 1, so there is one.
static uint32_t draw(const struct sampler_scratch *scratch, double share)
{
	double total = 0, before = 0, start = 0;
	uint32_t block = 0, last = 0;
	for (uint32_t i = 0; i < scratch->padded; i += BLOCK)
		total += block_mass(&scratch->weight[i]);
	double target = share * total;
	for (uint32_t i = 0; i < scratch->padded && before <= target; i += BLOCK) {
		double mass = block_mass(&scratch->weight[i]);
		if (mass > 0) {
			block = i;
			start = before;
		}
		before += mass;
	}
	for (uint32_t i = block; i < block + BLOCK && start <= target; i++) {
		start += (double)scratch->weight[i];
		last = scratch->weight[i] > 0 ? i : last;
	}
	return last;
}

// The most likely of the model's own distribution, from the values as they are.
static void tell_top(struct sampler_scratch *scratch, const struct sampling *sampling, struct token_choice *choice,
		     float offset)
{
	uint32_t most = sampling->top_logprobs < SAMPLING_TOP_LOGPROBS ? sampling->top_logprobs : SAMPLING_TOP_LOGPROBS;
	const float *values = scratch->distance;
	for (uint32_t i = 0; most && i < scratch->vocabulary; i++) {
		float logprob = values[i] - offset;
		if (choice->top_count == most && logprob <= choice->top[most - 1].logprob)
			continue;
		uint32_t at = choice->top_count < most ? choice->top_count++ : most - 1;
		for (; at && choice->top[at - 1].logprob < logprob; at--)
			choice->top[at] = choice->top[at - 1];
		choice->top[at].token = i;
		choice->top[at].logprob = logprob;
	}
}

// The logarithm of the sum of exp(logit): subtracted from a logit it gives the logprob.
static float log_sum(struct sampler_scratch *scratch, const float *logits)
{
	double sum = 0;
	take_values(scratch, logits);
	float largest = scratch->distance[first_largest(scratch)];
	take_distances(scratch, largest, 1);
	take_weights(scratch);
	for (uint32_t i = 0; i < scratch->padded; i += BLOCK)
		sum += block_mass(&scratch->weight[i]);
	return largest + (float)log(sum);
}

void sampler_choose(struct sampler_scratch *scratch, const struct sampler_input *input, struct token_choice *choice)
{
	const struct sampling *sampling = input->sampling;
	float offset = 0;
	*choice = (struct token_choice){.token = SAMPLER_NO_TOKEN};
	const uint32_t *allowed = input->form ? matcher_allowed(input->form) : NULL;
	if (!all_finite(input->logits, input->vocabulary) || (input->form && !allowed))
		return;
	if (sampling->logprobs)
		offset = log_sum(scratch, input->logits);
	take_values(scratch, input->logits);
	if (sampling->logprobs)
		tell_top(scratch, sampling, choice, offset);
	change_values(scratch, input);
	if (allowed)
		keep_to_form(scratch, allowed);
	choice->token = first_largest(scratch);
	if (sampling->temperature > 0) {
		take_distances(scratch, scratch->distance[choice->token], sampling->temperature);
		take_weights(scratch);
		filter(scratch, sampling);
		choice->token = draw(scratch, uniform(sampling->seed, input->position));
	}
	if (sampling->logprobs)
		choice->logprob = sane(input->logits[choice->token]) - offset;
}

void sampler_judge(struct sampler_scratch *scratch, const struct sampler_input *input, uint32_t token,
		   struct token_choice *choice)
{
	*choice = (struct token_choice){.token = SAMPLER_NO_TOKEN};
	if (!all_finite(input->logits, input->vocabulary))
		return;
	const float offset = log_sum(scratch, input->logits);
	take_values(scratch, input->logits);
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
	take_values(scratch, input->logits);
	const float largest = fabsf(scratch->distance[first_largest(scratch)]);
	for (uint32_t i = 0; i < sampling.bias_count; i++)
		biases[i] = sampling.biases[i];
	biases[sampling.bias_count++] = (struct token_bias){.token = chosen, .bias = -largest * part};
	sampling.biases = biases;
	sampling.logprobs = false;
	lowered.sampling = &sampling;
	sampler_choose(scratch, &lowered, &choice);
	return choice.token != chosen;
}
