/* Tests of stage.h: numbers of rows for which a back end may have kernels of their own, and of choices of experts. */
#include "tests/engine/conformance/stage.h"

enum { ROWS = 65 };

static const uint32_t pages[] = {9, 30, 4};

// A back end that a processor only imitates is slow: it gets a part of the cases.
static bool slow(const struct conformance *c)
{
	return c->software && strcmp(c->backend, "cpu") != 0 && !getenv("EXOGPU_TEST_ALL");
}

// The first rows of a text, so many at once, for each of the counts.
static void check_counts(struct staged *staged, const uint32_t *counts, uint32_t count_count, uint32_t most,
			 const char *what)
{
	uint32_t tokens[ROWS];
	struct expected expected;
	make_text(tokens, most, staged->shape->vocabulary, 1);
	expect(&expected, staged, &(struct reference_run){.tokens = tokens, .count = most});
	struct stage *stage = staged_create(staged);
	for (uint32_t i = 0; i < count_count; i++)
		step_and_check(staged, stage, &expected, &(struct stage_job){tokens, 0, counts[i], pages}, what);
	stage_destroy(&stage);
	expected_finish(&expected);
}

// Rows around 16, 32 and 64, through sums so long that a back end may split them, with a bias.
void test_stage_narrow(void **state)
{
	static const uint32_t counts[] = {16, 33, 9, 15, 17, 31, 32, 63, 64, ROWS};
	for (enum tensor_format format = FORMAT_F16; format < FORMAT_COUNT; format++) {
		struct model_file file = {
			.family = FAMILY_QWEN2,
			.layers = 1,
			.embedding = 1024,
			.feed_forward = 1536,
			.heads = 8,
			.kv_heads = 2,
			.vocabulary = 200,
			.context = 128,
			.format = format,
			.norm_epsilon = 3e-3f,
			.seed = 3,
		};
		struct staged staged;
		char what[64];
		if (stage_tests_are_brief(*state) && format != FORMAT_Q4_K)
			continue;
		snprintf(what, sizeof(what), "%s, few rows", format_info(format)->name);
		staged_open(&staged, *state, &file);
		check_counts(&staged, counts, slow(*state) ? 2 : sizeof(counts) / sizeof(*counts),
			     slow(*state) ? 33 : ROWS, what);
		staged_close(&staged);
	}
}

struct timed {
	uint32_t kernels;
	bool numbers; // all times are numbers, and none is below zero
};

static void note_timing(void *context, const struct stage_timing *timing)
{
	struct timed *timed = context;
	timed->kernels++;
	timed->numbers &= timing->us >= 0 && timing->kernel[0] && timing->grid[0] > 0;
}

// Kernels are timed one by one, or the back end says that it does not; a step afterwards gives what it gave before.
void test_stage_timed(void **state)
{
	struct model_file file = {
		.family = FAMILY_LLAMA,
		.layers = 2,
		.embedding = 256,
		.feed_forward = 256,
		.heads = 4,
		.kv_heads = 2,
		.vocabulary = 200,
		.context = 64,
		.format = FORMAT_Q4_K,
		.norm_epsilon = 3e-3f,
		.seed = 5,
	};
	uint32_t tokens[8], row = 0;
	struct staged staged;
	struct expected expected;
	struct timed timed = {.numbers = true};
	struct error error = {0};
	staged_open(&staged, *state, &file);
	make_text(tokens, 8, staged.shape->vocabulary, 1);
	expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = 8});
	struct stage *stage = staged_create(&staged);
	const struct stage_run run = {.row_count = 1, .pages = pages};
	const enum status status = stage_time(stage,
					      &(struct stage_batch){.row_count = 1,
								    .runs = &run,
								    .run_count = 1,
								    .tokens = tokens,
								    .output_rows = &row,
								    .output_count = 1},
					      note_timing, &timed, &error);
	if (status != STATUS_UNAVAILABLE) {
		assert_int_equal(status, STATUS_OK);
		assert_true(timed.kernels > 0 && timed.numbers);
	}
	const struct stage_run nothing = {.row_count = 0, .pages = pages};
	assert_int_equal(stage_time(stage, &(struct stage_batch){.row_count = 0, .runs = &nothing, .tokens = tokens},
				    note_timing, &timed, &error),
			 STATUS_INVALID_PARAMS);
	step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, 0, 8, pages},
		       "after its kernels were timed");
	stage_destroy(&stage);
	expected_finish(&expected);
	staged_close(&staged);
}

// Weights with which no choice of experts is nearly a tie: each back end would decide that by its own rounding.
static void avoid_ties(struct conformance *c, struct model_file *file, uint32_t rows)
{
	const double least_gap = 0.002;
	for (double gap = 0; gap < least_gap; file->seed++) {
		uint32_t tokens[ROWS];
		struct staged staged;
		struct reference_result result;
		staged_open(&staged, c, file);
		make_text(tokens, rows, staged.shape->vocabulary, 1);
		reference_run(staged.reference, &(struct reference_run){.tokens = tokens, .count = rows}, &result);
		gap = result.least_gap;
		reference_result_finish(&result);
		staged_close(&staged);
	}
	file->seed--;
}

// So many experts, or so many of a row, that kernels for a few rows and their experts do not take them: 64 slots and
// 256 experts through CUDA.
void test_stage_experts_many(void **state)
{
	static const struct {
		uint32_t experts, used, rows;
	} cases[] = {{12, 10, 20}, {40, 33, 9}, {300, 3, 9}, {256, 8, 9}};
	static const uint32_t counts[] = {1, 2, 6, 7, 8, 9, 20};
	static const enum tensor_format formats[] = {FORMAT_Q4_0, FORMAT_F16, FORMAT_Q8_0, FORMAT_F32};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct model_file file = {
			.family = FAMILY_QWEN3MOE,
			.layers = 1,
			.embedding = 64,
			.feed_forward = 64, // that this architecture does not use
			.experts = cases[i].experts,
			.experts_used = cases[i].used,
			.expert_width = 32,
			.heads = 2,
			.kv_heads = 1,
			.vocabulary = 90,
			.context = 64,
			.format = formats[i],
			.norm_epsilon = 3e-3f,
			.seed = 11,
		};
		struct staged staged;
		char what[64];
		snprintf(what, sizeof(what), "%u of %u experts", cases[i].used, cases[i].experts);
		avoid_ties(*state, &file, cases[i].rows);
		staged_open(&staged, *state, &file);
		check_counts(&staged, counts, sizeof(counts) / sizeof(*counts) - (cases[i].rows < 20), cases[i].rows,
			     what);
		staged_close(&staged);
	}
}

// The processor only: a few rows of a sequence, as of tokens that are proposed (engine/generation/proposals.h), give
// the bits that each gives in a step of its own; before and behind the lengths from which attention is cut, and where
// what rows before them left is written over.
void test_stage_alike(void **state)
{
	enum { LONG = 1060, STEP = 212 };
	static const struct {
		enum model_family family;
		enum tensor_format format;
		uint32_t window;
	} cases[] = {{FAMILY_LLAMA, FORMAT_Q4_0, 0},
		     {FAMILY_QWEN2, FORMAT_F16, 0},
		     {FAMILY_LLAMA, FORMAT_Q8_0, 90},
		     {FAMILY_GRANITE, FORMAT_Q4_K, 0},
		     {FAMILY_QWEN3MOE, FORMAT_Q6_K, 0}};
	static const uint32_t counts[] = {2, 3, 4, 5, 7, 8, 9, 16}, starts[] = {3, 500, 1000};
	uint32_t tokens[LONG + 1], all[STAGE_TEST_PAGES];
	const struct conformance *c = *state;
	if (strcmp(c->backend, "cpu") != 0)
		return;
	for (uint32_t i = 0; i < STAGE_TEST_PAGES; i++)
		all[i] = i * 7 % STAGE_TEST_PAGES;
	// A sanitizer's build, which the vector code is no part of, takes one of them.
	const size_t case_count = stage_tests_are_brief(c) ? 1 : sizeof(cases) / sizeof(*cases);
	for (size_t i = 0; i < case_count; i++) {
		const bool experts = cases[i].family == FAMILY_QWEN3MOE;
		const struct model_file file = {.family = cases[i].family,
						.layers = 2,
						.embedding = 64,
						.feed_forward = 64,
						.heads = 6,
						.kv_heads = 2,
						.head_size = 32,
						.experts = experts ? 8 : 0,
						.experts_used = experts ? 2 : 0,
						.expert_width = experts ? 32 : 0,
						.vocabulary = 200,
						.context = 1280,
						.format = cases[i].format,
						.norm_epsilon = 3e-3f,
						.seed = 21};
		struct staged staged;
		struct stage_answer answer;
		staged_open(&staged, *state, &file);
		struct model_shape windowed = *staged.shape; // the second layer's attention slides
		windowed.window = cases[i].window;
		windowed.layer_kinds[1] |= cases[i].window ? LAYER_SLIDES : 0;
		staged.shape = &windowed;
		struct stage *stage = staged_create(&staged);
		const size_t row_bytes = staged.shape->vocabulary * sizeof(float);
		uint8_t *alone = malloc((LONG + 1) * row_bytes);
		assert_non_null(alone);
		make_text(tokens, LONG, staged.shape->vocabulary, 1);
		for (uint32_t at = 0; at < LONG; at += STEP) {
			step(&staged, stage, &(struct stage_job){tokens, at, STEP, all}, 1, &answer);
			answer_finish(&answer);
		}
		for (size_t j = 0; j < 3 * sizeof(counts) / sizeof(*counts); j++) {
			const uint32_t start = starts[j % 3], count = counts[j / 3];
			for (uint32_t at = start; at < start + count; at++) {
				step(&staged, stage, &(struct stage_job){tokens, at, 1, all}, 1, &answer);
				memcpy(alone + at * row_bytes, answer.logits, row_bytes);
				answer_finish(&answer);
			}
			for (uint32_t at = start; at < start + count; at++)
				tokens[at + 1] = (tokens[at + 1] + 1) % staged.shape->vocabulary;
			// Rows that are not to count, with other tokens; then the same as alone.
			step(&staged, stage, &(struct stage_job){tokens, start, count, all}, 1, &answer);
			answer_finish(&answer);
			make_text(tokens, LONG, staged.shape->vocabulary, 1);
			step(&staged, stage, &(struct stage_job){tokens, start, count, all}, 1, &answer);
			for (uint32_t row = 0; row < count; row++)
				if (memcmp((uint8_t *)answer.logits + row * row_bytes,
					   alone + (start + row) * row_bytes, row_bytes) != 0)
					fail_msg("family %d: row %u of %u from %u on is not what it is alone",
						 (int)cases[i].family, row, count, start);
			answer_finish(&answer);
		}
		free(alone);
		stage_destroy(&stage);
		staged_close(&staged);
	}
}

static int compare_logits(const void *left, const void *right)
{
	const float a = *(const float *)left, b = *(const float *)right;
	return a < b ? 1 : a > b ? -1 : 0;
}

// All tokens that have one of the largest logits are there, once each, with their logits.
static void check_candidates(const struct stage_candidates *found, const float *logits, uint32_t vocabulary)
{
	float *sorted = malloc(vocabulary * sizeof(float));
	bool *seen = calloc(vocabulary, sizeof(bool));
	assert_true(sorted && seen);
	memcpy(sorted, logits, vocabulary * sizeof(float));
	qsort(sorted, vocabulary, sizeof(float), compare_logits);
	const float least = sorted[STAGE_CANDIDATES_LEAST - 1];
	assert_in_range(found->count, STAGE_CANDIDATES_LEAST, STAGE_CANDIDATES_MOST);
	for (uint32_t i = 0; i < found->count; i++) {
		const uint32_t token = found->of[i].token;
		assert_true(token < vocabulary && !seen[token]);
		assert_memory_equal(&found->of[i].logit, &logits[token], sizeof(float));
		seen[token] = true;
	}
	for (uint32_t token = 0; token < vocabulary; token++)
		assert_true(seen[token] || logits[token] < least);
	free(sorted);
	free(seen);
}

// Vocabularies that have fewer tokens than a block of a GPU has threads, and many more. Where all tokens have one of
// three logits there are too many to name, and the logits are to be had all the same.
void test_stage_candidates(void **state)
{
	static const uint32_t vocabularies[] = {317, 5003, 5003}, outputs[] = {0, 2, 3};
	for (int i = 0; i < 3; i++) {
		struct model_file file = {.family = FAMILY_LLAMA,
					  .layers = 1,
					  .embedding = 64,
					  .feed_forward = 64,
					  .heads = 2,
					  .kv_heads = 2,
					  .vocabulary = vocabularies[i],
					  .context = 256,
					  .format = FORMAT_F16};
		const bool alike = i == 2;
		uint32_t tokens[4], argmax[3];
		struct model_tensor output;
		struct staged staged;
		staged_open(&staged, *state, &file);
		assert_true(model_tensor(staged.file.model, ROLE_OUTPUT, 0, &output));
		const size_t row_bytes = output.bytes / output.rows;
		uint8_t *rows = staged.file.bytes + (output.data - staged.file.bytes);
		for (uint32_t row = 3; alike && row < output.rows; row++)
			memcpy(rows + row * row_bytes, rows + row % 3 * row_bytes, row_bytes);
		make_text(tokens, 4, file.vocabulary, 12);
		struct stage *stage = staged_create(&staged);
		if (!stage_finds_candidates(stage)) {
			print_message("this back end names no candidates\n");
			stage_destroy(&stage);
			staged_close(&staged);
			return;
		}
		float *logits = calloc(3, file.vocabulary * sizeof(float));
		float *one = calloc(file.vocabulary, sizeof(float));
		assert_true(logits && one);
		const struct stage_run run = {.row_count = 4, .pages = pages};
		const struct stage_batch batch = {.row_count = 4,
						  .runs = &run,
						  .run_count = 1,
						  .tokens = tokens,
						  .output_rows = outputs,
						  .output_count = 3,
						  .logits = logits,
						  .argmax = argmax,
						  .candidates = true};
		for (int turn = 0; turn < 2; turn++) // the second may be a graph
			OK(stage_step(stage, &batch, &error));
		for (uint32_t k = 0; k < 3; k++) {
			const float *of = logits + (size_t)k * file.vocabulary;
			OK(stage_logits(stage, k, one, &error));
			assert_memory_equal(one, of, file.vocabulary * sizeof(float));
			if (alike)
				assert_int_equal(stage_candidates(stage)[k].count, 0);
			else
				check_candidates(&stage_candidates(stage)[k], of, file.vocabulary);
		}
		free(logits);
		free(one);
		stage_destroy(&stage);
		staged_close(&staged);
	}
}
