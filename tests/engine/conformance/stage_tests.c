/* The tests of stage.h: numbers first, then batches and pages, then loading and what is refused. */
#include "tests/engine/conformance/stage.h"

#include <math.h>

enum { TEXT = 70 }; // more than two pages

static const uint32_t in_order[STAGE_TEST_PAGES] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13,
						    14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
						    28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39};
static const uint32_t out_of_order[] = {17, 3, 31, 0, 8, 39};

// A processor takes a thousand times as long as a GPU. There each format is tried with one family and one shape, in
// turn, and not with all of them, which run the same kernels; but for EXOGPU_TEST_ALL=1.
static bool in_turn(const struct conformance *c)
{
	return c->software && !getenv("EXOGPU_TEST_ALL");
}

// One whose matrices all formats fit.
static struct model_file plain(enum model_family family, enum tensor_format format)
{
	return (struct model_file){
		.family = family,
		.layers = 2,
		.embedding = 256,
		.feed_forward = 512,
		.heads = 4,
		.kv_heads = 2,
		.vocabulary = 320,
		.context = 256,
		.format = format,
		.tied = family == FAMILY_QWEN2,
		.norm_epsilon = 3e-3f, // so large that it shows
		.seed = 7,
	};
}

// The text at once, in parts of every size that a kernel may treat in its own way, and then token by token. Where
// that is brief, two models go through all of it, one of them with experts, whose matrices have all formats, and the
// others through the sizes for which a kernel is chosen: one row, few, and many.
static void check_text(struct staged *staged, bool whole, const char *what)
{
	static const uint32_t all[] = {TEXT, 1, 3, 2, 4, 5, 8, 9, 16, 17, 33};
	const bool brief = stage_tests_are_brief(staged->c) && !whole;
	const size_t part_count = brief ? 3 : sizeof(all) / sizeof(*all);
	uint32_t tokens[TEXT];
	struct expected expected;
	make_text(tokens, TEXT, staged->shape->vocabulary, 1);
	expect(&expected, staged, &(struct reference_run){.tokens = tokens, .count = TEXT});
	struct stage *stage = staged_create(staged);
	for (size_t i = 0; i < part_count; i++)
		step_and_check(staged, stage, &expected, &(struct stage_job){tokens, 0, all[i], out_of_order}, what);
	for (uint32_t position = TEXT - (brief ? 2 : 8); position < TEXT; position++)
		step_and_check(staged, stage, &expected, &(struct stage_job){tokens, position, 1, out_of_order}, what);
	stage_destroy(&stage);
	expected_finish(&expected);
}

static void check_file(struct conformance *c, const struct model_file *file, const char *what)
{
	struct staged staged;
	staged_open(&staged, c, file);
	check_text(&staged, file->mixed && !file->tied && file->family != FAMILY_QWEN3MOE, what);
	staged_close(&staged);
}

void test_stage_formats(void **state)
{
	for (enum model_family family = FAMILY_LLAMA; family <= FAMILY_QWEN3; family++)
		for (enum tensor_format format = FORMAT_F32; format < FORMAT_COUNT; format++) {
			struct model_file file = plain(family, format);
			char what[64];
			if (in_turn(*state) && format % 3 != family % 3)
				continue;
			snprintf(what, sizeof(what), "%s in %s", model_family_name(family), format_info(format)->name);
			check_file(*state, &file, what);
		}
}

// Every matrix in another format, as quantisers make them.
void test_stage_mixed(void **state)
{
	for (unsigned tied = 0; tied < 2; tied++) {
		struct model_file file = plain(FAMILY_LLAMA, FORMAT_UNKNOWN);
		file.mixed = true;
		file.tied = tied;
		file.layers = 3;
		check_file(*state, &file, tied ? "mixed and tied" : "mixed");
	}
	struct model_file file = plain(FAMILY_QWEN3, FORMAT_Q4_K);
	file.output_format = FORMAT_Q6_K;
	file.embedding_format = FORMAT_F16;
	check_file(*state, &file, "Q4_K with a Q6_K output");
}

// Every pair of formats that files mix: most matrices have the first, attn_v and ffn_down of one layer and the output
// the second. Where one kernel computes the layers of a file in Q8_0, it computes each of these, too.
void test_stage_pairs(void **state)
{
	enum { LENGTH = 40, FIRST = 34 };
	static const enum tensor_format formats[] = {FORMAT_F16,  FORMAT_BF16, FORMAT_Q8_0, FORMAT_Q4_0,
						     FORMAT_Q4_K, FORMAT_Q5_K, FORMAT_Q6_K};
	enum { FORMATS = sizeof(formats) / sizeof(*formats) };
	const struct model_file same = plain(FAMILY_LLAMA, FORMAT_Q8_0);
	struct staged staged;
	staged_open(&staged, *state, &same);
	struct stage *stage = staged_create(&staged);
	const bool single = stage_single_kernel(stage);
	stage_destroy(&stage);
	staged_close(&staged);
	for (size_t i = 0; i < (size_t)FORMATS * FORMATS; i++) {
		const enum tensor_format most = formats[i / FORMATS], more = formats[i % FORMATS];
		struct model_file file = plain(i % 2 ? FAMILY_LLAMA : FAMILY_QWEN3, most);
		struct expected expected;
		uint32_t tokens[LENGTH];
		char what[64];
		if (in_turn(*state) && (most != FORMAT_Q4_K || more != FORMAT_Q6_K))
			continue;
		file.more_format = file.output_format = more;
		file.layers = 3;
		snprintf(what, sizeof(what), "%s with %s", format_info(most)->name, format_info(more)->name);
		staged_open(&staged, *state, &file);
		make_text(tokens, LENGTH, file.vocabulary, 3);
		expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = LENGTH});
		stage = staged_create(&staged);
		if (single && !stage_single_kernel(stage))
			fail_msg("%s is not computed by one kernel", what);
		step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, 0, FIRST, in_order}, what);
		for (uint32_t position = FIRST; position < LENGTH; position++)
			step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, position, 1, in_order},
				       what);
		stage_destroy(&stage);
		expected_finish(&expected);
		staged_close(&staged);
	}
}

// Weights with which no choice of experts is as good as a tie, which each back end would decide by its own rounding: of
// the text of check_text.
static void decide_seed(struct conformance *c, struct model_file *file)
{
	const double least_gap = 0.004;
	for (double gap = 0; gap < least_gap; file->seed++) {
		uint32_t tokens[TEXT];
		struct staged staged;
		struct reference_result result;
		staged_open(&staged, c, file);
		make_text(tokens, TEXT, staged.shape->vocabulary, 1);
		reference_run(staged.reference, &(struct reference_run){.tokens = tokens, .count = TEXT}, &result);
		gap = result.least_gap;
		reference_result_finish(&result);
		staged_close(&staged);
	}
	file->seed--;
}

// Experts in every format, and of widths that are no multiple of 32; one alone, and all of them used.
void test_stage_experts(void **state)
{
	static const struct {
		uint32_t experts, used, width;
	} counts[] = {{4, 2, 256}, {4, 2, 256}, {6, 1, 48}, {3, 3, 80}, {12, 5, 256}};
	for (enum tensor_format format = FORMAT_F32; format < FORMAT_COUNT; format++) {
		const size_t i = format % (sizeof(counts) / sizeof(*counts));
		struct model_file file = plain(FAMILY_QWEN3MOE, format);
		char what[64];
		if (stage_tests_are_brief(*state) && format % 2)
			continue;
		file.experts = counts[i].experts;
		file.experts_used = counts[i].used;
		file.expert_width = counts[i].width;
		snprintf(what, sizeof(what), "%u of %u experts in %s", file.experts_used, file.experts,
			 format_info(format)->name);
		decide_seed(*state, &file);
		check_file(*state, &file, what);
	}
	for (unsigned shared = 0; shared < 2; shared++) {
		struct model_file file = plain(shared ? FAMILY_QWEN2MOE : FAMILY_QWEN3MOE, FORMAT_UNKNOWN);
		file.mixed = true;
		file.experts = 5;
		file.experts_used = 2;
		file.expert_width = 256;
		decide_seed(*state, &file);
		check_file(*state, &file, shared ? "experts and a shared part, mixed" : "experts, mixed");
	}
}

// More rows than go through the experts at a time. All experts are used, so that no choice decides.
void test_stage_experts_turns(void **state)
{
	enum { ROWS = STAGE_EXPERT_ROWS + 70, OUTPUTS = 5 };
	static const uint32_t outputs[OUTPUTS] = {0, STAGE_EXPERT_ROWS - 1, STAGE_EXPERT_ROWS, ROWS - 2, ROWS - 1};
	struct conformance *c = *state;
	struct model_file file = plain(FAMILY_QWEN2MOE, FORMAT_Q8_0);
	struct staged staged;
	struct expected expected;
	struct stage *stage = NULL;
	uint32_t tokens[ROWS];
	file.context = ROWS;
	file.experts = file.experts_used = 3;
	file.expert_width = 48;
	staged_open(&staged, c, &file);
	make_text(tokens, ROWS, file.vocabulary, 1);
	expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = ROWS});
	struct stage_params params = staged_params(&staged);
	params.batch_rows = ROWS;
	OK(stage_create(&stage, c->device, &params, &error));
	float *hidden = calloc((size_t)OUTPUTS * file.embedding, sizeof(*hidden));
	assert_non_null(hidden);
	const struct stage_run run = {.row_count = ROWS, .position = 0, .pages = in_order};
	const struct stage_batch batch = {.row_count = ROWS,
					  .runs = &run,
					  .run_count = 1,
					  .tokens = tokens,
					  .output_rows = outputs,
					  .output_count = OUTPUTS,
					  .hidden = hidden};
	OK(stage_step(stage, &batch, &error));
	for (size_t i = 0; i < OUTPUTS; i++)
		check_row(&expected, EXPECTED_HIDDEN, outputs[i], hidden + i * file.embedding,
			  "experts in several turns");
	free(hidden);
	stage_destroy(&stage);
	expected_finish(&expected);
	staged_close(&staged);
}

struct shape {
	enum model_family family;
	uint32_t embedding, feed_forward, heads, kv_heads, head_size, vocabulary;
};

// Each shape in each format; in turn, the first in the first, the second in the second and so on.
static void check_shapes(struct conformance *c, const struct shape *shapes, size_t shape_count,
			 const enum tensor_format *formats, size_t format_count)
{
	for (size_t i = 0; i < shape_count; i++)
		for (size_t j = 0; j < format_count; j++) {
			struct model_file file = plain(shapes[i].family, formats[j]);
			struct staged staged;
			char what[96];
			if (in_turn(c) && j != i % format_count)
				continue;
			file.embedding = shapes[i].embedding;
			file.feed_forward = shapes[i].feed_forward;
			file.heads = shapes[i].heads;
			file.kv_heads = shapes[i].kv_heads;
			file.head_size = shapes[i].head_size;
			file.vocabulary = shapes[i].vocabulary;
			snprintf(what, sizeof(what), "%u heads of %u, %u and %u wide, in %s", file.heads,
				 file.head_size, file.embedding, file.feed_forward, format_info(formats[j])->name);
			staged_open(&staged, c, &file);
			if (staged_fits(&staged))
				check_text(&staged, false, what);
			staged_close(&staged);
		}
}

// Odd numbers of heads and rows, heads of every size that real models have, groups that are no power of two.
void test_stage_shapes(void **state)
{
	static const struct shape shapes[] = {
		{FAMILY_LLAMA, 160, 352, 2, 1, 80, 331},  {FAMILY_LLAMA, 288, 416, 3, 3, 96, 515},
		{FAMILY_LLAMA, 512, 1280, 4, 1, 128, 97}, {FAMILY_QWEN3, 256, 768, 4, 2, 128, 321},
		{FAMILY_QWEN2, 448, 608, 7, 1, 64, 333},  {FAMILY_LLAMA, 288, 768, 6, 6, 48, 301},
		{FAMILY_LLAMA, 576, 544, 9, 3, 64, 1000}, {FAMILY_LLAMA, 32, 64, 1, 1, 32, 33},
		{FAMILY_QWEN2, 128, 96, 8, 2, 16, 259},
	};
	static const enum tensor_format formats[] = {FORMAT_Q8_0, FORMAT_F16, FORMAT_Q4_0};
	check_shapes(*state, shapes, sizeof(shapes) / sizeof(*shapes), formats, sizeof(formats) / sizeof(*formats));
}

// Widths that are no multiple of 32, as the smallest published models have them (the first is stories260K's), and heads
// that are smaller than a vector, or no multiple of 8. What has no whole blocks in Q8_0 is F16.
void test_stage_widths(void **state)
{
	static const struct shape shapes[] = {
		{FAMILY_LLAMA, 64, 172, 8, 4, 8, 512},   {FAMILY_QWEN2, 60, 100, 6, 3, 10, 259},
		{FAMILY_QWEN3, 100, 68, 5, 5, 20, 101},  {FAMILY_LLAMA, 36, 256, 3, 1, 12, 64},
		{FAMILY_LLAMA, 300, 1028, 5, 1, 60, 70}, {FAMILY_LLAMA, 50, 106, 5, 1, 10, 77},
	};
	static const enum tensor_format formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0};
	check_shapes(*state, shapes, sizeof(shapes) / sizeof(*shapes), formats, sizeof(formats) / sizeof(*formats));
}

// Sums as long as those of real models.
void test_stage_wide(void **state)
{
	static const enum tensor_format formats[] = {FORMAT_F16, FORMAT_Q4_0, FORMAT_Q6_K, FORMAT_Q4_K};
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		struct model_file file = plain(FAMILY_LLAMA, formats[i]);
		uint32_t tokens[5];
		struct staged staged;
		struct expected expected;
		file.layers = formats[i] == FORMAT_Q4_K ? 3 : 1;
		file.more_format = file.output_format = formats[i] == FORMAT_Q4_K ? FORMAT_Q6_K : FORMAT_UNKNOWN;
		file.embedding = 1024;
		file.feed_forward = 2816;
		file.heads = 8;
		staged_open(&staged, *state, &file);
		make_text(tokens, 5, file.vocabulary, 2);
		expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = 5});
		struct stage *stage = staged_create(&staged);
		step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, 0, 4, in_order}, "wide");
		step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, 4, 1, in_order}, "wide");
		stage_destroy(&stage);
		expected_finish(&expected);
		staged_close(&staged);
	}
}

void test_stage_positions(void **state)
{
	static const char *const names[] = {"plain positions", "linear scaling", "factors", "YaRN"};
	for (enum model_scaling scaling = SCALING_NONE; scaling <= SCALING_YARN; scaling++)
		for (enum model_family family = FAMILY_LLAMA; family <= FAMILY_QWEN2; family++) {
			struct model_file file = plain(family, FORMAT_Q8_0);
			// A part of a head turns with linear scaling, by pairs or by halves: with either family.
			if (stage_tests_are_brief(*state) && scaling != SCALING_LINEAR && scaling % 2 != family % 2)
				continue;
			file.scaling = scaling;
			file.rope_base = 500000;
			file.rope_size = scaling == SCALING_LINEAR ? 32 : 0; // of 64
			check_file(*state, &file, names[scaling]);
		}
}

// Activations far beyond what an f16 holds, as some layers of Qwen have them.
void test_stage_large(void **state)
{
	for (enum tensor_format format = FORMAT_F16; format <= FORMAT_Q4_0; format++) {
		struct model_file file = plain(FAMILY_QWEN2, format);
		if (stage_tests_are_brief(*state) && format != FORMAT_F16 && format != FORMAT_Q4_0)
			continue;
		file.outlier = 3e6f;
		check_file(*state, &file, "large activations");
	}
}

// ---- batches and pages ----

void test_stage_chunks(void **state)
{
	static const uint32_t chunks[][5] = {
		{31, 1, 1, 31, 6}, {1, 32, 32, 5, 0}, {64, 6, 0, 0, 0}, {7, 13, 20, 29, 1}};
	for (enum tensor_format format = FORMAT_F16; format < FORMAT_COUNT; format += 3) {
		struct model_file file = plain(FAMILY_LLAMA, format);
		uint32_t tokens[TEXT];
		struct staged staged;
		struct expected expected;
		if (stage_tests_are_brief(*state) && format != FORMAT_F16)
			continue;
		staged_open(&staged, *state, &file);
		make_text(tokens, TEXT, file.vocabulary, 3);
		expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = TEXT});
		struct stage *stage = staged_create(&staged);
		for (size_t i = 0; i < sizeof(chunks) / sizeof(*chunks); i++)
			for (uint32_t part = 0, position = 0; part < 5 && chunks[i][part];
			     position += chunks[i][part++])
				step_and_check(&staged, stage, &expected,
					       &(struct stage_job){tokens, position, chunks[i][part], out_of_order},
					       "in chunks");
		stage_destroy(&stage);
		expected_finish(&expected);
		staged_close(&staged);
	}
}

// Attention over many pages, by a prompt's chunks and by single tokens.
static void check_long(struct conformance *c, const struct model_file *file, const char *what)
{
	enum { LONG = 900 };
	static const uint32_t around[] = {255, 256, 511, 512, 560, 561, 700, 898};
	uint32_t tokens[LONG], pages[LONG / STAGE_PAGE_TOKENS + 1];
	struct staged staged;
	struct expected expected;
	staged_open(&staged, c, file);
	make_text(tokens, LONG, file->vocabulary, 4);
	for (uint32_t i = 0; i < LONG / STAGE_PAGE_TOKENS + 1; i++)
		pages[i] = (i * 7 + 5) % STAGE_TEST_PAGES;
	expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = LONG});
	struct stage *stage = staged_create(&staged);
	for (uint32_t position = 0; position < LONG; position += 225)
		step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, position, 225, pages}, what);
	for (size_t i = 0; i < sizeof(around) / sizeof(*around); i++)
		step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, around[i], 1, pages}, what);
	stage_destroy(&stage);
	expected_finish(&expected);
	staged_close(&staged);
}

// Heads of 64 values, and of 8: with so small ones a block has room for more positions than it is given.
void test_stage_long(void **state)
{
	struct model_file file = plain(FAMILY_LLAMA, FORMAT_Q8_0);
	file.layers = 1;
	file.embedding = 128;
	file.feed_forward = 256;
	file.heads = 2;
	file.kv_heads = 1;
	file.context = 1024;
	check_long(*state, &file, "long");
	file = plain(FAMILY_LLAMA, FORMAT_F16);
	file.embedding = 32;
	file.feed_forward = 64;
	file.context = 1024;
	check_long(*state, &file, "long, small heads");
}

// Two sequences that share their first page, a prompt that begins, and one that goes on, in one batch.
void test_stage_batch(void **state)
{
	for (enum model_family family = FAMILY_LLAMA; family <= FAMILY_QWEN3; family++) {
		struct model_file file = plain(family, FORMAT_Q4_K);
		uint32_t a[TEXT], b[TEXT], other[TEXT];
		static const uint32_t pages_a[] = {11, 2, 30}, pages_b[] = {11, 25, 4}, pages_other[] = {38, 1, 19};
		struct staged staged;
		struct expected of_a, of_b, of_other;
		struct stage_answer answer;
		if (stage_tests_are_brief(*state) && family != FAMILY_QWEN3)
			continue;
		staged_open(&staged, *state, &file);
		make_text(a, TEXT, file.vocabulary, 5);
		make_text(b, TEXT, file.vocabulary, 6);
		make_text(other, TEXT, file.vocabulary, 7);
		memcpy(b, a, STAGE_PAGE_TOKENS * sizeof(*b));
		expect(&of_a, &staged, &(struct reference_run){.tokens = a, .count = TEXT});
		expect(&of_b, &staged, &(struct reference_run){.tokens = b, .count = TEXT});
		expect(&of_other, &staged, &(struct reference_run){.tokens = other, .count = TEXT});
		struct stage *stage = staged_create(&staged);
		const struct stage_job first[] = {{a, 0, 40, pages_a}, {other, 0, 9, pages_other}};
		step(&staged, stage, first, 2, &answer);
		check_answer(&of_a, &answer, 0, 0, 40, "the first of two");
		check_answer(&of_other, &answer, 40, 0, 9, "the second of two");
		answer_finish(&answer);
		const struct stage_job second[] = {
			{b, 32, 30, pages_b}, {a, 40, 1, pages_a}, {other, 9, 20, pages_other}};
		step(&staged, stage, second, 3, &answer);
		check_answer(&of_b, &answer, 0, 32, 30, "one with a shared page");
		check_answer(&of_a, &answer, 30, 40, 1, "the next token");
		check_answer(&of_other, &answer, 31, 9, 20, "a prompt that goes on");
		answer_finish(&answer);
		const struct stage_job third[] = {
			{a, 41, 1, pages_a}, {b, 62, 1, pages_b}, {other, 29, 1, pages_other}};
		step(&staged, stage, third, 3, &answer);
		check_answer(&of_a, &answer, 0, 41, 1, "one token of the first");
		check_answer(&of_b, &answer, 1, 62, 1, "one token of the second");
		check_answer(&of_other, &answer, 2, 29, 1, "one token of the third");
		answer_finish(&answer);
		stage_destroy(&stage);
		expected_finish(&of_a);
		expected_finish(&of_b);
		expected_finish(&of_other);
		staged_close(&staged);
	}
}

// As many sequences at once as there is room for, each at another place of the same text. Twice: CUDA records the first
// step of so many as a graph.
void test_stage_many(void **state)
{
	struct model_file file = plain(FAMILY_LLAMA, FORMAT_Q8_0);
	uint32_t tokens[TEXT];
	struct stage_job jobs[TEXT];
	struct staged staged;
	struct expected expected;
	struct stage_answer answer;
	staged_open(&staged, *state, &file);
	make_text(tokens, TEXT, file.vocabulary, 8);
	expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = TEXT});
	struct stage *stage = staged_create(&staged);
	step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, 0, TEXT, out_of_order}, "many");
	// Each writes what stands there already.
	for (uint32_t count = 1; count <= TEXT; count += count < 8 ? 1 : 31) {
		for (uint32_t i = 0; i < count; i++)
			jobs[i] = (struct stage_job){tokens, TEXT - 1 - i, 1, out_of_order};
		for (unsigned time = 0; time < 2; time++) {
			step(&staged, stage, jobs, count, &answer);
			for (uint32_t i = 0; i < count; i++)
				check_answer(&expected, &answer, i, TEXT - 1 - i, 1, "one of many");
			answer_finish(&answer);
		}
	}
	stage_destroy(&stage);
	expected_finish(&expected);
	staged_close(&staged);
}

// A text through several stages, whose layers end at `ends`; the last number is the model's layers.
static void check_ranges(struct staged *staged, const uint32_t *ends, uint32_t count)
{
	uint32_t tokens[TEXT], rows[TEXT], width = staged->shape->embedding, vocabulary = staged->shape->vocabulary;
	struct expected expected;
	struct stage_run run = {.row_count = TEXT, .position = 0, .pages = out_of_order};
	float *between = calloc(2 * TEXT, width * sizeof(*between)),
	      *logits = calloc(TEXT, vocabulary * sizeof(*logits));
	assert_true(between && logits);
	make_text(tokens, TEXT, vocabulary, 9);
	for (uint32_t i = 0; i < TEXT; i++)
		rows[i] = i;
	for (uint32_t i = 0, first = 0; i < count; first = ends[i++]) {
		struct stage_params params = staged_params(staged);
		struct stage *stage = NULL;
		bool last = i + 1 == count;
		params.first_layer = first;
		params.layer_count = ends[i] - first;
		params.embeds = !i;
		params.predicts = last;
		OK(stage_create(&stage, staged->c->device, &params, &error));
		struct stage_batch batch = {
			.row_count = TEXT,
			.runs = &run,
			.run_count = 1,
			.tokens = i ? NULL : tokens,
			.input = i ? between + (i - 1) % 2 * TEXT * (size_t)width : NULL,
			.output = last ? NULL : between + i % 2 * TEXT * (size_t)width,
			.output_rows = rows,
			.output_count = last ? TEXT : 0,
			.logits = last ? logits : NULL,
		};
		OK(stage_step(stage, &batch, &error));
		stage_destroy(&stage);
		if (!last && ends[i]) {
			expect(&expected, staged,
			       &(struct reference_run){.tokens = tokens, .count = TEXT, .layers = ends[i]});
			for (uint32_t row = 0; row < TEXT; row++)
				check_row(&expected, EXPECTED_ACTIVATIONS, row, batch.output + (size_t)row * width,
					  "between stages");
			expected_finish(&expected);
		}
	}
	expect(&expected, staged, &(struct reference_run){.tokens = tokens, .count = TEXT});
	for (uint32_t row = 0; row < TEXT; row++)
		check_row(&expected, EXPECTED_LOGITS, row, logits + (size_t)row * vocabulary, "through several stages");
	expected_finish(&expected);
	free(between);
	free(logits);
}

void test_stage_ranges(void **state)
{
	static const uint32_t halves[] = {1, 3}, thirds[] = {1, 2, 3}, ends[] = {0, 3, 3};
	for (unsigned tied = 0; tied < 2; tied++) {
		struct model_file file = plain(FAMILY_LLAMA, FORMAT_Q8_0);
		struct staged staged;
		file.layers = 3;
		file.tied = tied;
		if (tied) { // what goes between stages has rows of any length
			file.format = FORMAT_F16;
			file.embedding = 100;
			file.feed_forward = 172;
			file.heads = file.kv_heads = 5;
		}
		staged_open(&staged, *state, &file);
		check_ranges(&staged, halves, 2);
		check_ranges(&staged, thirds, 3);
		check_ranges(&staged, ends, 3); // embedding and output on devices of their own
		staged_close(&staged);
	}
}

void test_stage_host_layers(void **state)
{
	for (uint32_t host = 1; host <= 3; host += 2) {
		struct model_file file = plain(FAMILY_LLAMA, FORMAT_Q4_K);
		uint32_t tokens[TEXT];
		struct staged staged;
		struct expected expected;
		struct stage *stage = NULL;
		struct stage_memory memory, whole;
		file.layers = 3;
		staged_open(&staged, *state, &file);
		make_text(tokens, TEXT, file.vocabulary, 10);
		expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = TEXT});
		stage = staged_create(&staged);
		stage_memory(stage, &whole);
		stage_destroy(&stage);
		struct stage_params params = staged_params(&staged);
		params.host_layers = host;
		OK(stage_create(&stage, staged.c->device, &params, &error));
		stage_memory(stage, &memory);
		// A device whose memory is the host's has no use for it.
		if (memory.host_bytes && memory.weights_bytes >= whole.weights_bytes)
			fail_msg("%u layers are on the host, and %llu bytes of weights on the device instead of %llu",
				 host, (unsigned long long)memory.weights_bytes,
				 (unsigned long long)whole.weights_bytes);
		step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, 0, TEXT - 1, in_order},
			       "on the host");
		step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, TEXT - 1, 1, in_order},
			       "on the host");
		stage_destroy(&stage);
		expected_finish(&expected);
		staged_close(&staged);
	}
}

// Some rows, some of what there is; and what is not asked for is left alone.
void test_stage_outputs(void **state)
{
	static const uint32_t rows[] = {0, 31, 32, TEXT - 1};
	struct model_file file = plain(FAMILY_QWEN3, FORMAT_Q8_0);
	uint32_t tokens[TEXT], argmax[5] = {0, 0, 0, 0, 4711};
	struct staged staged;
	struct expected expected;
	staged_open(&staged, *state, &file);
	float *logits = calloc(4, file.vocabulary * sizeof(float)), *hidden = calloc(4, file.embedding * sizeof(float));
	assert_true(logits && hidden);
	make_text(tokens, TEXT, file.vocabulary, 11);
	expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = TEXT});
	struct stage *stage = staged_create(&staged);
	const struct stage_run run = {.row_count = TEXT, .position = 0, .pages = in_order};
	for (unsigned wanted = 0; wanted < 8; wanted++) {
		struct stage_batch batch = {
			.row_count = TEXT,
			.runs = &run,
			.run_count = 1,
			.tokens = tokens,
			.output_rows = rows,
			.output_count = wanted ? 4 : 0,
			.logits = wanted & 1 ? logits : NULL,
			.argmax = wanted & 2 ? argmax : NULL,
			.hidden = wanted & 4 ? hidden : NULL,
		};
		memset(logits, 0, 4 * file.vocabulary * sizeof(float));
		memset(hidden, 0, 4 * file.embedding * sizeof(float));
		OK(stage_step(stage, &batch, &error));
		for (uint32_t i = 0; i < 4; i++) {
			const double *exact = expected.exact.logits + (size_t)rows[i] * file.vocabulary;
			double best = exact[0];
			if (wanted & 1)
				check_row(&expected, EXPECTED_LOGITS, rows[i], logits + (size_t)i * file.vocabulary,
					  "some");
			if (wanted & 4)
				check_row(&expected, EXPECTED_HIDDEN, rows[i], hidden + (size_t)i * file.embedding,
					  "some");
			for (uint32_t token = 0; token < file.vocabulary; token++)
				best = exact[token] > best ? exact[token] : best;
			if (wanted & 2 && (argmax[i] >= file.vocabulary ||
					   exact[argmax[i]] < best - 2 * expected.most[EXPECTED_LOGITS]))
				fail_msg("token %u is not the likeliest at position %u", argmax[i], rows[i]);
		}
		assert_int_equal(argmax[4], 4711);
	}
	stage_destroy(&stage);
	expected_finish(&expected);
	free(logits);
	free(hidden);
	staged_close(&staged);
}

// Tokens whose rows of the output matrix are the same have the same logit; the lowest of the largest is named.
void test_stage_equals(void **state)
{
	struct model_file file = plain(FAMILY_LLAMA, FORMAT_F16);
	uint32_t tokens[4];
	struct staged staged;
	struct model_tensor output;
	struct stage_answer answer;
	file.vocabulary = 317;
	staged_open(&staged, *state, &file);
	assert_true(model_tensor(staged.file.model, ROLE_OUTPUT, 0, &output));
	size_t row_bytes = output.bytes / output.rows;
	uint8_t *rows = staged.file.bytes + (output.data - staged.file.bytes);
	for (uint32_t i = 100; i < output.rows; i++)
		memcpy(rows + i * row_bytes, rows + (i % 100) * row_bytes, row_bytes);
	make_text(tokens, 4, file.vocabulary, 12);
	struct stage *stage = staged_create(&staged);
	step(&staged, stage, &(struct stage_job){tokens, 0, 4, in_order}, 1, &answer);
	for (uint32_t row = 0; row < 4; row++) {
		const float *logits = answer.logits + (size_t)row * file.vocabulary;
		uint32_t best = 0;
		for (uint32_t token = 1; token < file.vocabulary; token++)
			if (logits[token] > logits[best])
				best = token;
		if (answer.argmax[row] != best)
			fail_msg("of equal logits that of %u was named, and %u is the lowest", answer.argmax[row],
				 best);
	}
	answer_finish(&answer);
	stage_destroy(&stage);
	staged_close(&staged);
}

// A damaged row of the output matrix is no token's logit, and then no token is named; in whichever part of the row.
void test_stage_no_numbers(void **state)
{
	static const uint16_t bad[] = {0x7e00, 0xfe00, 0x7c00, 0xfc00}; // as F16: NaN and infinities
	static const uint32_t damaged[] = {0, 100, 316};
	struct model_file file = plain(FAMILY_LLAMA, FORMAT_F16);
	uint32_t tokens[4];
	struct staged staged;
	struct model_tensor output;
	struct stage_answer answer;
	file.vocabulary = 317;
	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const uint32_t token = damaged[i % 3];
		staged_open(&staged, *state, &file);
		assert_true(model_tensor(staged.file.model, ROLE_OUTPUT, 0, &output));
		const size_t row_bytes = output.bytes / output.rows;
		uint8_t *rows = staged.file.bytes + (output.data - staged.file.bytes);
		memcpy(rows + token * row_bytes, &bad[i], sizeof(bad[i]));
		make_text(tokens, 4, file.vocabulary, 12);
		struct stage *stage = staged_create(&staged);
		step(&staged, stage, &(struct stage_job){tokens, 0, 4, in_order}, 1, &answer);
		for (uint32_t row = 0; row < 4; row++) {
			if (isfinite(answer.logits[(size_t)row * file.vocabulary + token]))
				fail_msg("weight %04x: the logit of token %u is a number", bad[i], token);
			if (answer.argmax[row] != STAGE_NO_TOKEN)
				fail_msg("weight %04x: token %u is named", bad[i], answer.argmax[row]);
		}
		answer_finish(&answer);
		stage_destroy(&stage);
		staged_close(&staged);
	}
}

// Keys and values of zeroed pages are zero, whatever was in them.
void test_stage_zeroed(void **state)
{
	enum { AT = 45 };
	static const uint32_t pages[] = {6, 9}, others[] = {21, 0, 13};
	struct model_file file = plain(FAMILY_LLAMA, FORMAT_Q8_0);
	uint32_t tokens[TEXT];
	struct staged staged;
	struct expected expected, untouched;
	staged_open(&staged, *state, &file);
	make_text(tokens, TEXT, file.vocabulary, 13);
	expect(&expected, &staged, &(struct reference_run){.tokens = tokens, .count = AT + 5, .zero_before = AT});
	expect(&untouched, &staged, &(struct reference_run){.tokens = tokens, .count = TEXT});
	struct stage *stage = staged_create(&staged);
	step_and_check(&staged, stage, &untouched, &(struct stage_job){tokens, 0, 64, pages}, "before");
	step_and_check(&staged, stage, &untouched, &(struct stage_job){tokens, 0, TEXT - 1, others}, "beside");
	OK(stage_zero(stage, (const uint32_t[]){9, 6}, 2, &error));
	OK(stage_zero(stage, NULL, 0, &error));
	step_and_check(&staged, stage, &expected, &(struct stage_job){tokens, AT, 5, pages}, "after zeroed pages");
	step_and_check(&staged, stage, &untouched, &(struct stage_job){tokens, TEXT - 1, 1, others},
		       "pages not zeroed");
	stage_destroy(&stage);
	expected_finish(&expected);
	expected_finish(&untouched);
	staged_close(&staged);
}

// The same batch gives the same bits: at once, after other work, and in a stage that is made anew.
void test_stage_repeats(void **state)
{
	for (enum tensor_format format = FORMAT_F16; format < FORMAT_COUNT; format += 2) {
		struct model_file file = plain(FAMILY_QWEN2, format);
		uint32_t tokens[TEXT], other[TEXT];
		struct staged staged;
		struct stage_answer first[2], answer;
		if (stage_tests_are_brief(*state) && format != FORMAT_Q8_0)
			continue;
		staged_open(&staged, *state, &file);
		make_text(tokens, TEXT, file.vocabulary, 14);
		make_text(other, TEXT, file.vocabulary, 15);
		struct stage *stage = NULL;
		for (unsigned time = 0; time < 6; time++) {
			if (time % 3 == 0) {
				stage_destroy(&stage);
				stage = staged_create(&staged);
			}
			if (time % 3 == 2) {
				step(&staged, stage, &(struct stage_job){other, 0, TEXT, out_of_order + 3}, 1, &answer);
				answer_finish(&answer);
			}
			const struct stage_job jobs[] = {{tokens, 0, TEXT - 1, out_of_order},
							 {tokens, TEXT - 1, 1, out_of_order}};
			for (unsigned i = 0; i < 2; i++) {
				step(&staged, stage, &jobs[i], 1, &answer);
				if (!time) {
					first[i] = answer;
					continue;
				}
				same_bytes((uint8_t *)answer.logits, (uint8_t *)first[i].logits,
					   4ull * answer.rows * file.vocabulary, "logits of the same batch");
				same_bytes((uint8_t *)answer.hidden, (uint8_t *)first[i].hidden,
					   4ull * answer.rows * file.embedding, "hidden values of the same batch");
				answer_finish(&answer);
			}
		}
		stage_destroy(&stage);
		answer_finish(&first[0]);
		answer_finish(&first[1]);
		staged_close(&staged);
	}
}

// ---- loading, and what is refused ----

void test_stage_loading(void **state)
{
	struct model_file file = plain(FAMILY_QWEN3, FORMAT_Q4_0);
	struct staged staged;
	struct stage_memory memory;
	struct model_tensor tensor;
	file.layers = 3;
	staged_open(&staged, *state, &file);
	struct stage_params params = staged_params(&staged);
	struct stage *stage = NULL;
	params.first_layer = 1;
	params.layer_count = 2;
	params.embeds = false;
	OK(stage_create(&stage, staged.c->device, &params, &error));
	assert_true(staged.in_order);
	for (uint32_t layer = 0; layer < 3; layer++)
		for (enum model_role role = ROLE_TOKEN_EMBEDDING; role < ROLE_COUNT; role++) {
			bool of_layer = role > ROLE_OUTPUT;
			unsigned wanted = of_layer ? layer >= 1 && model_tensor(staged.file.model, role, layer, &tensor)
						   : role != ROLE_TOKEN_EMBEDDING && !layer &&
							     model_has_role(params.shape, role);
			if (staged.asked[layer][role] != wanted)
				fail_msg("tensor %d of layer %u was asked for %u times, not %u", role, layer,
					 staged.asked[layer][role], wanted);
		}
	stage_memory(stage, &memory);
	// Weights may be laid out anew, but are not unpacked, and keys and values are f16.
	if (memory.weights_bytes + memory.host_bytes < staged.asked_bytes * 9 / 10 ||
	    memory.weights_bytes > staged.asked_bytes * 5 / 4 + 65536)
		fail_msg("%llu bytes of weights take %llu", (unsigned long long)staged.asked_bytes,
			 (unsigned long long)memory.weights_bytes);
	assert_true(memory.kv_bytes >= stage_page_bytes(staged.shape) * STAGE_TEST_PAGES * 2);
	if (!staged.told_bytes)
		fail_msg("no progress was told");
	stage_destroy(&stage);
	staged_close(&staged);
}

// Whatever stops the loading is passed on, and nothing stays.
void test_stage_loading_fails(void **state)
{
	struct conformance *c = *state;
	struct model_file file = plain(FAMILY_LLAMA, FORMAT_Q8_0);
	struct staged staged;
	struct stage *stage = NULL;
	staged_open(&staged, c, &file);
	struct stage_params params;
	for (unsigned at = 1; at <= 3 + 2 * 9; at++) {
		params = staged_params(&staged);
		staged.fail_at = at;
		REFUSED(STATUS_CONFLICT, stage_create(&stage, c->device, &params, &error));
		assert_null(stage);
	}
	params = staged_params(&staged);
	staged.fail_at = 0;
	staged.fail_progress = true;
	REFUSED(STATUS_CONFLICT, stage_create(&stage, c->device, &params, &error));
	assert_null(stage);
	staged.fail_progress = false;
	check_text(&staged, false, "after loading failed");
	params = staged_params(&staged);
	params.progress = NULL;
	OK(stage_create(&stage, c->device, &params, &error));
	stage_destroy(&stage);
	staged_close(&staged);
}

static void refuse_params(struct staged *staged, void (*spoil)(struct stage_params *params))
{
	struct stage_params params = staged_params(staged);
	struct stage *stage = NULL;
	spoil(&params);
	REFUSED(STATUS_INVALID_PARAMS, stage_create(&stage, staged->c->device, &params, &error));
	assert_null(stage);
}

static void spoil_layers(struct stage_params *params)
{
	params->layer_count = 3;
}

static void spoil_embeds(struct stage_params *params)
{
	params->first_layer = 1;
	params->layer_count = 1;
}

static void spoil_pages(struct stage_params *params)
{
	params->page_count = 0;
}

static void spoil_rows(struct stage_params *params)
{
	params->batch_rows = STAGE_ROWS_MOST + 1;
}

static void spoil_host(struct stage_params *params)
{
	params->host_layers = 3;
}

void test_stage_refusals(void **state)
{
	struct model_file file = plain(FAMILY_LLAMA, FORMAT_Q8_0);
	struct staged staged;
	staged_open(&staged, *state, &file);
	void (*const spoils[])(struct stage_params *) = {spoil_layers, spoil_embeds, spoil_pages, spoil_rows,
							 spoil_host};
	for (size_t i = 0; i < sizeof(spoils) / sizeof(*spoils); i++)
		refuse_params(&staged, spoils[i]);
	struct stage *stage = staged_create(&staged);
	const uint32_t tokens[4] = {1, 2, 3, 4}, unknown[4] = {1, 2, 3, 320}, row[] = {4}, pages[] = {STAGE_TEST_PAGES};
	const struct stage_run good = {.row_count = 4, .position = 0, .pages = in_order},
			       short_run = {.row_count = 3, .position = 0, .pages = in_order},
			       far = {.row_count = 4, .position = 253, .pages = in_order},
			       no_page = {.row_count = 4, .position = 0, .pages = pages};
	const struct stage_batch batches[] = {
		{.row_count = 4, .runs = &good, .run_count = 1},
		{.row_count = 4, .runs = &good, .run_count = 1, .tokens = unknown},
		{.row_count = 4, .runs = &short_run, .run_count = 1, .tokens = tokens},
		{.row_count = 4, .runs = &far, .run_count = 1, .tokens = tokens},
		{.row_count = 4, .runs = &no_page, .run_count = 1, .tokens = tokens},
		{.row_count = 4,
		 .runs = &good,
		 .run_count = 1,
		 .tokens = tokens,
		 .output_rows = row,
		 .output_count = 1},
		{.row_count = 0, .runs = &good, .run_count = 0, .tokens = tokens},
	};
	for (size_t i = 0; i < sizeof(batches) / sizeof(*batches); i++)
		REFUSED(STATUS_INVALID_PARAMS, stage_step(stage, &batches[i], &error));
	REFUSED(STATUS_INVALID_PARAMS, stage_zero(stage, pages, 1, &error));
	// It still computes.
	OK(stage_step(stage, &(struct stage_batch){.row_count = 4, .runs = &good, .run_count = 1, .tokens = tokens},
		      &error));
	stage_destroy(&stage);
	staged_close(&staged);
}
