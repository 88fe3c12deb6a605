/* Which token comes next: every filter and penalty against a plain computation over a sorted vocabulary in double
 * precision, draws against their probabilities, and what must not matter: NaNs, infinities, who else draws. */
#include "engine/generation/samplers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

// What is drawn is looked at where nothing makes it slow; the address sanitizer needs some of it to see the same code.
#if defined(__SANITIZE_ADDRESS__)
enum { DRAWS = 4000 };
#else
enum { DRAWS = 40000 };
#endif
enum { MOST = 2000, LARGE = 128256 };

static const struct sampling plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};

static double uniform(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(*state >> 11) * 0x1p-53;
}

static void random_logits(float *logits, uint32_t count, uint64_t seed, double spread)
{
	for (uint32_t i = 0; i < count; i++)
		logits[i] = (float)(spread * (uniform(&seed) + uniform(&seed) + uniform(&seed) - 1.5));
}

// ---- the plain computation ----

struct entry {
	double value, weight;
	uint32_t token;
};

static int by_value(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	if (a->value != b->value)
		return a->value > b->value ? -1 : 1;
	return a->token < b->token ? -1 : 1;
}

// The probability of every token.
static void expect(const struct sampler_input *input, double *probability)
{
	const struct sampling *sampling = input->sampling;
	struct entry *entries = calloc(input->vocabulary, sizeof(*entries));
	double sum = 0, kept = 0, largest;
	uint32_t count = input->vocabulary, keep = 0;
	assert_non_null(entries);
	for (uint32_t i = 0; i < count; i++) {
		unsigned seen = 0, generated = 0;
		double value = (double)input->logits[i];
		for (uint32_t j = 0; j < sampling->bias_count; j++)
			value += sampling->biases[j].token == i ? (double)sampling->biases[j].bias : 0;
		for (size_t j = 0; j < input->token_count; j++) {
			seen += input->tokens[j] == i;
			generated += input->tokens[j] == i && j >= input->prompt_count;
		}
		if (seen)
			value = value > 0 ? value / (double)sampling->repetition_penalty
					  : value * (double)sampling->repetition_penalty;
		value -= (double)sampling->frequency_penalty * generated;
		value -= generated ? (double)sampling->presence_penalty : 0;
		entries[i] = (struct entry){.value = value / (double)sampling->temperature, .token = i};
		probability[i] = 0;
	}
	qsort(entries, count, sizeof(*entries), by_value);
	largest = entries[0].value;
	if (sampling->top_k && sampling->top_k < count)
		count = sampling->top_k;
	for (uint32_t i = 0; i < count; i++)
		sum += entries[i].weight = exp(entries[i].value - largest);
	while (keep < count && (!keep || kept < (double)sampling->top_p * sum))
		kept += entries[keep++].weight;
	for (kept = 0, count = keep, keep = 0; keep < count && entries[keep].weight >= (double)sampling->min_p; keep++)
		kept += entries[keep].weight;
	for (uint32_t i = 0; i < keep; i++)
		probability[entries[i].token] = entries[i].weight / kept;
	free(entries);
}

// Draw often; nothing comes that has no chance, and the rest as often as it should (chi square over what is expected
// at least five times).
static void check_draws(const struct sampler_input *given, const char *what)
{
	static double probability[MOST];
	static unsigned drawn[MOST];
	struct sampler_scratch *scratch = NULL;
	struct sampler_input input = *given;
	double square = 0, rare = 0;
	unsigned classes = 0, rare_drawn = 0;
	assert_int_equal(sampler_scratch_create(&scratch, input.vocabulary), STATUS_OK);
	memset(drawn, 0, sizeof(drawn));
	expect(&input, probability);
	for (unsigned i = 0; i < DRAWS; i++) {
		struct token_choice choice;
		input.position = i;
		sampler_choose(scratch, &input, &choice);
		assert_true(choice.token < input.vocabulary);
		drawn[choice.token]++;
	}
	for (uint32_t i = 0; i < input.vocabulary; i++) {
		double wanted = probability[i] * DRAWS;
		if (wanted <= 0 && drawn[i])
			fail_msg("%s: token %u was drawn %u times and has no chance", what, i, drawn[i]);
		if (wanted < 5) {
			rare += wanted;
			rare_drawn += drawn[i];
			continue;
		}
		square += (drawn[i] - wanted) * (drawn[i] - wanted) / wanted;
		classes++;
	}
	if (rare >= 5) {
		square += (rare_drawn - rare) * (rare_drawn - rare) / rare;
		classes++;
	}
	// The seed is fixed, so this is no game of chance; five standard deviations are far from what a fault gives.
	double most = classes + 5 * sqrt(2.0 * classes) + 5;
	print_message("%s: %u classes, chi square %.1f\n", what, classes, square);
	if (square > most)
		fail_msg("%s: chi square %.1f over %u classes", what, square, classes);
	sampler_scratch_destroy(&scratch);
}

static void draws_have_their_probabilities(void **state)
{
	(void)state;
	static float logits[MOST];
	static const uint32_t tokens[] = {1, 2, 3, 3, 3, 7, 1999, 5, 5};
	static const struct token_bias biases[] = {{3, 4}, {10, -100}, {11, 2.5f}};
	const struct {
		const char *name;
		struct sampling sampling;
	} cases[] = {
		{"plain", plain},
		{"hot", {.temperature = 2, .top_p = 1, .repetition_penalty = 1}},
		{"cold", {.temperature = 0.3f, .top_p = 1, .repetition_penalty = 1}},
		{"top-k 1", {.temperature = 1, .top_k = 1, .top_p = 1, .repetition_penalty = 1}},
		{"top-k 40", {.temperature = 1, .top_k = 40, .top_p = 1, .repetition_penalty = 1}},
		{"top-k 1999", {.temperature = 1, .top_k = 1999, .top_p = 1, .repetition_penalty = 1}},
		{"top-p 0", {.temperature = 1, .top_p = 0, .repetition_penalty = 1}},
		{"top-p 0.5", {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1}},
		{"top-p 0.99", {.temperature = 1.5f, .top_p = 0.99f, .repetition_penalty = 1}},
		{"min-p 0.1", {.temperature = 1, .top_p = 1, .min_p = 0.1f, .repetition_penalty = 1}},
		{"all three",
		 {.temperature = 1.2f, .top_k = 100, .top_p = 0.9f, .min_p = 0.02f, .repetition_penalty = 1}},
		{"penalties",
		 {.temperature = 0.8f,
		  .top_p = 1,
		  .repetition_penalty = 1.5f,
		  .presence_penalty = 0.5f,
		  .frequency_penalty = 0.7f}},
		{"rewards",
		 {.temperature = 0.8f,
		  .top_p = 0.95f,
		  .repetition_penalty = 0.7f,
		  .presence_penalty = -1,
		  .frequency_penalty = -0.5f}},
		{"biases",
		 {.temperature = 1, .top_p = 1, .repetition_penalty = 1.1f, .biases = biases, .bias_count = 3}},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		random_logits(logits, MOST, i, 12);
		struct sampling sampling = cases[i].sampling;
		sampling.seed = 1000 + i;
		const struct sampler_input input = {.sampling = &sampling,
						    .logits = logits,
						    .vocabulary = MOST,
						    .tokens = tokens,
						    .token_count = sizeof(tokens) / sizeof(tokens[0]),
						    .prompt_count = 4};
		check_draws(&input, cases[i].name);
	}
}

// Small and odd vocabularies, ties, and a cut within many of the same value.
static void ties_and_small_vocabularies(void **state)
{
	(void)state;
	static float logits[MOST];
	struct sampling sampling = plain;
	for (uint32_t vocabulary = 1; vocabulary < 40; vocabulary += 7) {
		random_logits(logits, vocabulary, vocabulary, 3);
		struct sampler_input input = {.sampling = &sampling, .logits = logits, .vocabulary = vocabulary};
		sampling.top_k = vocabulary / 2;
		check_draws(&input, "small");
	}
	for (uint32_t i = 0; i < MOST; i++)
		logits[i] = (float)(i % 3);
	struct sampler_input input = {.sampling = &sampling, .logits = logits, .vocabulary = MOST};
	sampling.top_k = 700; // all twos and some of the ones, those of lower ids
	check_draws(&input, "tied top-k");
	sampling.top_k = 0;
	sampling.top_p = 0.3f;
	check_draws(&input, "tied top-p");
	for (uint32_t i = 0; i < MOST; i++)
		logits[i] = i % 3 ? -2 : i % 2 ? 0.0f : -0.0f; // the same value
	sampling.top_p = 1;
	sampling.top_k = 700;
	check_draws(&input, "zeros of both signs");
	sampling.top_k = 0;
	sampling.top_p = 0.9f;
	check_draws(&input, "zeros of both signs, top-p");
	sampling.top_p = 1;
	sampling.min_p = 0.5f;
	check_draws(&input, "zeros of both signs, min-p");
}

static uint32_t choose(struct sampler_scratch *scratch, const struct sampling *sampling, const float *logits,
		       uint32_t vocabulary, uint64_t position)
{
	struct token_choice choice;
	const struct sampler_input input = {
		.sampling = sampling, .logits = logits, .vocabulary = vocabulary, .position = position};
	sampler_choose(scratch, &input, &choice);
	return choice.token;
}

static void the_largest_at_temperature_zero(void **state)
{
	(void)state;
	static float logits[MOST];
	struct sampler_scratch *scratch = NULL;
	struct sampling sampling = plain;
	const struct token_bias bias = {.token = 77, .bias = 100};
	assert_int_equal(sampler_scratch_create(&scratch, MOST), STATUS_OK);
	sampling.temperature = 0;
	assert_true(sampling_is_greedy(&sampling));
	random_logits(logits, MOST, 3, 5);
	logits[1234] = logits[567] = 20; // the lowest id of equals
	assert_int_equal(choose(scratch, &sampling, logits, MOST, 0), 567);
	sampling.biases = &bias;
	sampling.bias_count = 1;
	assert_false(sampling_is_greedy(&sampling));
	assert_int_equal(choose(scratch, &sampling, logits, MOST, 0), 77);
	sampling = plain;
	assert_false(sampling_is_greedy(&sampling));
	sampling.temperature = 0;
	sampling.logprobs = true;
	assert_false(sampling_is_greedy(&sampling));
	sampling.logprobs = false;
	sampling.frequency_penalty = 0.1f;
	assert_false(sampling_is_greedy(&sampling));
	sampler_scratch_destroy(&scratch);
}

static void a_draw_depends_on_seed_and_position(void **state)
{
	(void)state;
	static float logits[MOST];
	struct sampler_scratch *scratch = NULL;
	struct sampling sampling = plain, other = plain;
	unsigned same_seed = 0, same_position = 0, next_seed = 0;
	assert_int_equal(sampler_scratch_create(&scratch, MOST), STATUS_OK);
	other.seed = 1;
	for (uint32_t i = 0; i < 500; i++) {
		uint32_t first = choose(scratch, &sampling, logits, MOST, i); // all logits are 0
		same_seed += first == choose(scratch, &sampling, logits, MOST, i + 1);
		next_seed += first == choose(scratch, &other, logits, MOST, i);
		choose(scratch, &other, logits, MOST, i * 31);
		same_position += first == choose(scratch, &sampling, logits, MOST, i);
	}
	assert_int_equal(same_position, 500);
	assert_true(same_seed < 5 && next_seed < 5); // a quarter of one is expected
	sampler_scratch_destroy(&scratch);
}

// Many at once, on several threads where there are processors: each as by itself.
static void side_by_side(void **state)
{
	(void)state;
	enum { TASKS = 33 };
	static float logits[TASKS][MOST];
	static struct sampler_task tasks[TASKS];
	static struct token_choice choices[TASKS], alone[TASKS];
	struct samplers *samplers = NULL;
	struct sampling sampling = plain;
	sampling.logprobs = true;
	sampling.top_logprobs = 3;
	sampling.top_p = 0.9f;
	for (uint32_t i = 0; i < TASKS; i++)
		for (uint32_t j = 0; j < MOST; j++)
			logits[i][j] = (float)((i * 7919 + j * 104729) % 1000) * 0.01f;
	assert_int_equal(samplers_create(&samplers, MOST, TASKS), STATUS_OK);
	for (uint32_t round = 0; round < 20; round++) {
		const uint32_t count = round % 4 ? TASKS : round % 3;
		for (uint32_t i = 0; i < TASKS; i++) {
			tasks[i] = (struct sampler_task){.input = {.sampling = &sampling,
								   .logits = logits[i],
								   .vocabulary = MOST,
								   .position = round},
							 .choice = &choices[i]};
			sampler_choose(samplers_scratch(samplers), &tasks[i].input, &alone[i]);
		}
		memset(choices, 0xff, sizeof(choices));
		samplers_choose(samplers, tasks, count);
		for (uint32_t i = 0; i < count; i++)
			if (choices[i].token != alone[i].token || choices[i].top[2].token != alone[i].top[2].token)
				fail_msg("round %u, task %u: %u, alone %u", round, i, choices[i].token, alone[i].token);
	}
	samplers_destroy(&samplers);
	assert_null(samplers);
	samplers_destroy(&samplers);
}

// Not one of the tokens, whatever is asked for; and what is merely large is a number.
static void of_bad_numbers_nothing_is_chosen(void **state)
{
	(void)state;
	static float logits[MOST];
	struct sampler_scratch *scratch = NULL;
	struct sampling sampling = plain;
	assert_int_equal(sampler_scratch_create(&scratch, MOST), STATUS_OK);
	sampling.logprobs = true;
	sampling.top_logprobs = SAMPLING_TOP_LOGPROBS;
	for (int kind = 0; kind < 7; kind++)
		for (int narrow = 0; narrow < 8; narrow++) {
			struct token_choice choice;
			for (uint32_t i = 0; i < MOST; i++)
				logits[i] = kind == 0   ? NAN
					    : kind == 1 ? INFINITY
					    : kind == 2 ? -INFINITY
							: (float)(i % 7);
			if (kind == 3)
				logits[3] = NAN, logits[4] = -INFINITY;
			if (kind == 4)
				logits[1000] = INFINITY;
			if (kind == 5)
				logits[MOST - 1] = -INFINITY;
			if (kind == 6)
				logits[1000] = 3e38f, logits[1001] = -3e38f;
			sampling.logprobs = !(narrow & 1);
			sampling.temperature = narrow & 4 ? 1e-30f : 1;
			sampling.top_k = narrow & 1 ? 5 : 0;
			sampling.top_p = narrow & 2 ? 0.5f : 1;
			const struct sampler_input input = {
				.sampling = &sampling, .logits = logits, .vocabulary = MOST, .position = 9};
			sampler_choose(scratch, &input, &choice);
			assert_int_equal(choice.token, kind == 6 ? 1000 : SAMPLER_NO_TOKEN);
			assert_int_equal(choice.top_count, kind == 6 && sampling.logprobs ? SAMPLING_TOP_LOGPROBS : 0);
			for (uint32_t i = 0; i < choice.top_count; i++)
				assert_true(choice.top[i].logprob <= 0);
		}
	sampler_scratch_destroy(&scratch);
}

static void logprobs_are_the_model_s_own(void **state)
{
	(void)state;
	static float logits[MOST];
	struct sampler_scratch *scratch = NULL;
	struct sampling sampling = plain;
	struct token_choice choice;
	const struct token_bias bias = {.token = 50, .bias = 100};
	double sum = 0, worst = 0;
	random_logits(logits, MOST, 4, 15);
	for (uint32_t i = 0; i < MOST; i++)
		sum += exp((double)logits[i]);
	assert_int_equal(sampler_scratch_create(&scratch, MOST), STATUS_OK);
	sampling.temperature = 0.1f; // without effect on them, nor has the bias
	sampling.biases = &bias;
	sampling.bias_count = 1;
	sampling.logprobs = true;
	sampling.top_logprobs = 7;
	const struct sampler_input input = {.sampling = &sampling, .logits = logits, .vocabulary = MOST};
	sampler_choose(scratch, &input, &choice);
	assert_int_equal(choice.token, 50);
	assert_int_equal(choice.top_count, 7);
	worst = fabs((double)choice.logprob - ((double)logits[50] - log(sum)));
	for (uint32_t i = 0; i < 7; i++) {
		unsigned larger = 0;
		double wanted = (double)logits[choice.top[i].token] - log(sum);
		for (uint32_t j = 0; j < MOST; j++)
			larger += logits[j] > logits[choice.top[i].token];
		assert_int_equal(larger, i);
		worst = fabs((double)choice.top[i].logprob - wanted) > worst
				? fabs((double)choice.top[i].logprob - wanted)
				: worst;
	}
	print_message("the largest error of a logprob is %g\n", worst);
	assert_true(worst < 1e-5);
	sampler_scratch_destroy(&scratch);
}

// As a large model has it. The times are for a person to read.
static void a_large_vocabulary(void **state)
{
	(void)state;
	float *logits = calloc(LARGE, sizeof(float));
	struct sampler_scratch *scratch = NULL;
	const struct {
		const char *name;
		uint32_t top_k;
		float top_p, min_p;
	} cases[] = {
		{"nothing", 0, 1, 0}, {"top-k 40", 40, 1, 0}, {"top-p 0.95", 0, 0.95f, 0}, {"min-p 0.05", 0, 1, 0.05f}};
	assert_int_equal(sampler_scratch_create(&scratch, LARGE), STATUS_OK);
	random_logits(logits, LARGE, 5, 15);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sampling sampling = plain;
		sampling.top_k = cases[i].top_k;
		sampling.top_p = cases[i].top_p;
		sampling.min_p = cases[i].min_p;
		clock_t began = clock();
		for (uint64_t position = 0; position < 20; position++)
			assert_true(choose(scratch, &sampling, logits, LARGE, position) < LARGE);
		print_message("%s: %.2f ms\n", cases[i].name, (double)(clock() - began) / CLOCKS_PER_SEC * 50);
	}
	sampler_scratch_destroy(&scratch);
	free(logits);
}

// Those of LARGE logits that are `least` or more, as far as there is room. Returns how many there are.
static uint32_t collect(const float *logits, float least, struct stage_candidates *found)
{
	found->count = 0;
	for (uint32_t i = LARGE; i-- > 0;)
		if (logits[i] >= least && found->count++ < STAGE_CANDIDATES_MOST)
			found->of[found->count - 1] = (struct stage_candidate){logits[i], i};
	return found->count;
}

// What a device names of the largest logits, in no order, gives the token that all of them give.
static void candidates_give_the_same(void **state)
{
	(void)state;
	static float logits[LARGE];
	static struct stage_candidates found;
	struct sampler_scratch *scratch = NULL;
	assert_int_equal(sampler_scratch_create(&scratch, LARGE), STATUS_OK);
	for (uint32_t turn = 0; turn < 60; turn++) {
		struct sampling sampling = plain;
		struct token_choice all, few;
		random_logits(logits, LARGE, turn, 1 + turn % 7);
		for (uint32_t i = 0; turn % 2 && i < LARGE; i++) // many are equal
			logits[i] = (float)(int)(logits[i] * 8) / 8;
		// As many as there is room for: between two bounds of which one is too low for that.
		float low = 0, least = 1;
		while (collect(logits, least, &found) > STAGE_CANDIDATES_MOST)
			least *= 2;
		for (int half = 0; half < 8; half++) {
			const float middle = (low + least) / 2;
			const bool fits = collect(logits, middle, &found) <= STAGE_CANDIDATES_MOST;
			low = fits ? low : middle;
			least = fits ? middle : least;
		}
		collect(logits, least, &found);
		sampling.temperature = 0.3f + (float)(turn % 5) / 3;
		sampling.top_k = found.count < STAGE_CANDIDATES_LEAST ? found.count : STAGE_CANDIDATES_LEAST;
		sampling.top_p = turn % 3 ? 0.9f : 1;
		sampling.min_p = turn % 4 ? 0 : 0.1f;
		assert_true(sampling_is_narrow(&sampling, LARGE));
		for (uint32_t position = 0; position < 20; position++) {
			struct sampler_input input = {
				.sampling = &sampling, .logits = logits, .vocabulary = LARGE, .position = position};
			sampler_choose(scratch, &input, &all);
			input.logits = NULL;
			input.candidates = &found;
			sampler_choose(scratch, &input, &few);
			assert_int_equal(few.token, all.token);
		}
	}
	struct sampling wide = plain;
	assert_false(sampling_is_narrow(&wide, LARGE)); // no top-k
	wide.top_k = 40;
	assert_true(sampling_is_narrow(&wide, LARGE));
	assert_false(sampling_is_narrow(&wide, 40));
	wide.repetition_penalty = 1.1f;
	assert_false(sampling_is_narrow(&wide, LARGE));
	sampler_scratch_destroy(&scratch);
}

static void ties_are_seen(void **unused)
{
	(void)unused;
	struct sampler_scratch *scratch = NULL;
	struct sampling greedy = {.top_p = 1, .repetition_penalty = 1}, drawn = plain;
	struct token_choice choice;
	float logits[4] = {1, 8, 7.99f, -3};
	struct sampler_input input = {.sampling = &greedy, .logits = logits, .vocabulary = 4};
	assert_int_equal(sampler_scratch_create(&scratch, 4), STATUS_OK);
	assert_true(sampler_is_tie(scratch, &input, 1));
	logits[2] = 7.9f;
	assert_false(sampler_is_tie(scratch, &input, 1));
	logits[2] = 8; // two that are as likely: a draw near the middle is a tie, others are none
	input.sampling = &drawn;
	unsigned ties = 0;
	const unsigned draws = 2000;
	for (unsigned i = 0; i < draws; i++) {
		input.position = i;
		sampler_choose(scratch, &input, &choice);
		ties += sampler_is_tie(scratch, &input, choice.token);
	}
	printf("%u of %u draws are ties\n", ties, draws);
	assert_true(ties > 0 && ties < draws / 20);
	sampler_scratch_destroy(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(draws_have_their_probabilities),
		cmocka_unit_test(ties_and_small_vocabularies),
		cmocka_unit_test(the_largest_at_temperature_zero),
		cmocka_unit_test(a_draw_depends_on_seed_and_position),
		cmocka_unit_test(side_by_side),
		cmocka_unit_test(of_bad_numbers_nothing_is_chosen),
		cmocka_unit_test(logprobs_are_the_model_s_own),
		cmocka_unit_test(a_large_vocabulary),
		cmocka_unit_test(candidates_give_the_same),
		cmocka_unit_test(ties_are_seen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
