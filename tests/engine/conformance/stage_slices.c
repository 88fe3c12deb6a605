/* Stages in slices (stage_create_sliced), all on one device: the numbers are those of the whole, to within what any
 * other order of sums does. */
#include "tests/engine/conformance/stage.h"

enum { TEXT = 45 };

static const uint32_t pages[] = {17, 3, 31};

// Four heads of keys, so that there are slices of 2 and 4; a slice of a row is of whole blocks.
static struct model_file file_of(enum model_family family, enum tensor_format format)
{
	return (struct model_file){
		.family = family,
		.layers = 2,
		.embedding = 256,
		.feed_forward = 1024,
		.heads = 8,
		.kv_heads = 4,
		.head_size = family == FAMILY_LLAMA ? 0 : 128,
		.vocabulary = 331,
		.context = 96,
		.format = format,
		.tied = family == FAMILY_QWEN2,
		.norm_epsilon = 3e-3f,
		.seed = 11,
	};
}

// One row of which nothing is wanted: the slices that predict nothing do the same as where something is.
static void step_without_outputs(struct stage *stage, const uint32_t *tokens)
{
	const struct stage_run run = {.row_count = 1, .position = 0, .pages = pages};
	OK(stage_step(stage, &(struct stage_batch){.row_count = 1, .runs = &run, .run_count = 1, .tokens = tokens},
		      &error));
}

// The whole text, pieces of it, and token by token, as check_text of stage_tests.c; the first rows of a graph twice,
// and before any other those of one that ends with the layers.
static void check_text(struct staged *staged, const char *what)
{
	static const uint32_t parts[] = {1, 2, 3, 8, 9, 33, TEXT};
	uint32_t tokens[TEXT];
	struct expected expected;
	make_text(tokens, TEXT, staged->shape->vocabulary, 1);
	expect(&expected, staged, &(struct reference_run){.tokens = tokens, .count = TEXT});
	struct stage *stage = staged_create(staged);
	assert_int_equal(stage_slice_count(stage), staged->slices);
	for (unsigned time = 0; time < 2; time++)
		step_without_outputs(stage, tokens);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		step_and_check(staged, stage, &expected, &(struct stage_job){tokens, 0, parts[i], pages}, what);
	for (uint32_t position = TEXT - 5; position < TEXT; position++)
		step_and_check(staged, stage, &expected, &(struct stage_job){tokens, position, 1, pages}, what);
	// Two sequences in one step.
	struct stage_answer answer;
	const struct stage_job two[] = {{tokens, TEXT - 1, 1, pages}, {tokens, TEXT - 2, 1, pages}};
	for (unsigned time = 0; time < 3; time++) {
		step(staged, stage, two, 2, &answer);
		check_answer(&expected, &answer, 0, TEXT - 1, 1, what);
		check_answer(&expected, &answer, 1, TEXT - 2, 1, what);
		answer_finish(&answer);
	}
	stage_destroy(&stage);
	expected_finish(&expected);
}

// Families and formats in turn, so that each is cut in 2 and in 4: biases, norms of heads, a tied output.
void test_stage_slices(void **state)
{
	static const struct {
		enum model_family family;
		enum tensor_format format;
		uint32_t slices, embedding;
	} cases[] = {
		{FAMILY_LLAMA, FORMAT_F16, 2, 256},  {FAMILY_LLAMA, FORMAT_Q4_0, 4, 256},
		{FAMILY_QWEN2, FORMAT_Q8_0, 2, 256}, {FAMILY_QWEN2, FORMAT_Q4_K, 4, 256},
		{FAMILY_QWEN3, FORMAT_Q6_K, 2, 256}, {FAMILY_QWEN3, FORMAT_BF16, 4, 256},
		{FAMILY_LLAMA, FORMAT_F32, 2, 256},  {FAMILY_QWEN3, FORMAT_Q5_K, 4, 256},
		{FAMILY_QWEN3, FORMAT_F16, 2, 100},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct model_file file = file_of(cases[i].family, cases[i].format);
		struct staged staged;
		char what[64];
		file.embedding = cases[i].embedding;
		snprintf(what, sizeof(what), "%s of %u in %s, %u slices", model_family_name(file.family),
			 file.embedding, format_info(file.format)->name, cases[i].slices);
		staged_open(&staged, *state, &file);
		staged.slices = cases[i].slices;
		if (staged_slices(&staged))
			check_text(&staged, what);
		staged_close(&staged);
	}
}

// The same bits every time, and zeroed pages are zero in all slices.
void test_stage_slices_repeat(void **state)
{
	struct model_file file = file_of(FAMILY_LLAMA, FORMAT_Q8_0);
	uint32_t tokens[TEXT];
	struct staged staged;
	struct stage_answer first, answer;
	struct expected zeroed;
	staged_open(&staged, *state, &file);
	staged.slices = 2;
	if (!staged_slices(&staged))
		goto done;
	make_text(tokens, TEXT, file.vocabulary, 2);
	expect(&zeroed, &staged, &(struct reference_run){.tokens = tokens, .count = TEXT, .zero_before = 32});
	struct stage *stage = NULL;
	for (unsigned time = 0; time < 4; time++) {
		if (time % 2 == 0) {
			stage_destroy(&stage);
			stage = staged_create(&staged);
		}
		step(&staged, stage, &(struct stage_job){tokens, 0, TEXT - 1, pages}, 1, &answer);
		answer_finish(&answer);
		step(&staged, stage, &(struct stage_job){tokens, TEXT - 1, 1, pages}, 1, &answer);
		if (time)
			same_bytes((uint8_t *)answer.logits, (uint8_t *)first.logits, 4ull * file.vocabulary,
				   "logits of the same batch");
		else
			first = answer;
		if (time)
			answer_finish(&answer);
	}
	OK(stage_zero(stage, (const uint32_t[]){3, 17}, 2, &error));
	step_and_check(&staged, stage, &zeroed, &(struct stage_job){tokens, 32, TEXT - 32, pages}, "zeroed pages");
	stage_destroy(&stage);
	answer_finish(&first);
	expected_finish(&zeroed);
done:
	staged_close(&staged);
}

// Stages one behind another, each in slices: what they give each other is whole.
void test_stage_slices_ranges(void **state)
{
	struct model_file file = file_of(FAMILY_LLAMA, FORMAT_Q4_0);
	uint32_t tokens[TEXT], rows[TEXT];
	struct staged staged;
	struct expected expected;
	struct stage_run run = {.row_count = TEXT, .position = 0, .pages = pages};
	float *between = calloc(TEXT, file.embedding * sizeof(*between));
	float *logits = calloc(TEXT, file.vocabulary * sizeof(*logits));
	assert_true(between && logits);
	staged_open(&staged, *state, &file);
	make_text(tokens, TEXT, file.vocabulary, 3);
	expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = TEXT});
	for (uint32_t i = 0; i < 2 && staged_slices(&staged); i++) {
		struct stage_params params = staged_params(&staged);
		struct exogpu_device *const devices[] = {staged.c->device, staged.c->device};
		struct stage *stage = NULL;
		params.first_layer = i;
		params.layer_count = 1;
		params.embeds = !i;
		params.predicts = i;
		OK(stage_create_sliced(&stage, devices, i ? 2 : 1, &params, &error));
		struct stage_batch batch = {.row_count = TEXT, .runs = &run, .run_count = 1};
		if (i) {
			for (uint32_t row = 0; row < TEXT; row++)
				rows[row] = row;
			batch.input = between;
			batch.output_rows = rows;
			batch.output_count = TEXT;
			batch.logits = logits;
		} else {
			batch.tokens = tokens;
			batch.output = between;
		}
		OK(stage_step(stage, &batch, &error));
		stage_destroy(&stage);
		for (uint32_t row = 0; i && row < TEXT; row++)
			check_row(&expected, EXPECTED_LOGITS, row, logits + (size_t)row * file.vocabulary,
				  "a sliced stage behind a whole one");
	}
	expected_finish(&expected);
	staged_close(&staged);
	free(between);
	free(logits);
}

// Each slice holds its share of layers, keys and values; the first has embedding and output beside them.
void test_stage_slices_memory(void **state)
{
	struct model_file file = file_of(FAMILY_LLAMA, FORMAT_Q8_0);
	struct staged staged;
	struct stage_memory whole, all, first, second;
	staged_open(&staged, *state, &file);
	if (staged_slices(&staged)) {
		struct stage *stage = staged_create(&staged);
		stage_memory(stage, &whole);
		stage_destroy(&stage);
		staged.slices = 2;
		stage = staged_create(&staged);
		stage_memory(stage, &all);
		stage_slice_memory(stage, 0, &first);
		stage_slice_memory(stage, 1, &second);
		stage_destroy(&stage);
		assert_int_equal(all.weights_bytes, first.weights_bytes + second.weights_bytes);
		assert_int_equal(all.kv_bytes, whole.kv_bytes);
		assert_int_equal(first.kv_bytes, second.kv_bytes);
		// Norms are in both.
		if (all.weights_bytes < whole.weights_bytes || all.weights_bytes > whole.weights_bytes * 21 / 20)
			fail_msg("whole %llu bytes of weights, in slices %llu", (unsigned long long)whole.weights_bytes,
				 (unsigned long long)all.weights_bytes);
		assert_true(second.weights_bytes < whole.weights_bytes / 2);
	}
	staged_close(&staged);
}

static void refused_for(struct exogpu_device *const *devices, uint32_t count, const struct stage_params *params,
			const char *word)
{
	struct stage *stage = NULL;
	struct error fault = {0};
	enum status status = stage_create_sliced(&stage, devices, count, params, &fault);
	assert_null(stage);
	if (status != STATUS_UNAVAILABLE || !strstr(fault.message, word))
		fail_msg("%u slices: %s (%s), not for %s", count, status_word(status), fault.message, word);
}

// What cannot be cut is refused, with the size that stands against it.
void test_stage_slices_refusals(void **state)
{
	struct model_file file = file_of(FAMILY_LLAMA, FORMAT_Q4_K);
	struct staged staged;
	struct stage *stage = NULL;
	struct exogpu_device *devices[STAGE_SLICES + 1];
	file.feed_forward = 256; // two slices of half a block
	staged_open(&staged, *state, &file);
	struct stage_params params = staged_params(&staged);
	for (unsigned i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		devices[i] = staged.c->device;
	REFUSED(STATUS_INVALID_PARAMS, stage_create_sliced(&stage, devices, 0, &params, &error));
	REFUSED(STATUS_INVALID_PARAMS, stage_create_sliced(&stage, devices, STAGE_SLICES + 1, &params, &error));
	if (staged_slices(&staged)) {
		refused_for(devices, 3, &params, "heads");
		refused_for(devices, 2, &params, "Q4_K");
		// The loading stops on its way, when all slices have some of it, and nothing stays.
		file.format = FORMAT_Q8_0;
		staged_close(&staged);
		staged_open(&staged, *state, &file);
		params = staged_params(&staged);
		staged.fail_at = 12;
		REFUSED(STATUS_CONFLICT, stage_create_sliced(&stage, devices, 2, &params, &error));
	}
	assert_null(stage);
	staged_close(&staged);
}
