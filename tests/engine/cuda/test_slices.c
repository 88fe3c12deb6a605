/* A stage in slices on two GPUs: the same bits as with both slices on one, whether they read each other's memory or the
 * host's. That these are right is tests/engine/conformance/stage_slices.c's business. */
#include "engine/cuda/device.h"
#include "engine/inside.h"
#include "engine/stage.h"
#include "tests/engine/cuda/here.h"
#include "tests/tools/model_file.h"

enum { TEXT = 40, STEPS = 60, VOCABULARY = 331, SEQUENCES = 3 };

struct run {
	struct model_file_open file;
	const struct model_shape *shape;
	float *rope;
	float *logits; // (STEPS, SEQUENCES, VOCABULARY)
};

static enum status lend(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			struct error *error)
{
	const struct run *run = context;
	if (!model_tensor(run->file.model, role, layer, out))
		return error_set(error, STATUS_INTERNAL, "no tensor %d", (int)role);
	return STATUS_OK;
}

static struct stage *make(struct run *run, struct exogpu_device *a, struct exogpu_device *b)
{
	struct exogpu_device *const devices[] = {a, b};
	struct stage *stage = NULL;
	const struct stage_params params = {
		.shape = run->shape,
		.layer_count = run->shape->layers,
		.embeds = true,
		.predicts = true,
		.context_tokens = run->shape->context,
		.page_count = 16,
		.batch_rows = 128,
		.batch_sequences = SEQUENCES,
		.batch_outputs = SEQUENCES,
		.rope = run->rope,
		.tensor = lend,
		.context = run,
	};
	HERE_OK(stage_create_sliced(&stage, devices, 2, &params, &error));
	return stage;
}

// A prompt of three sequences, and then a token of each, or of the first alone, over and over.
static void compute(struct run *run, struct stage *stage)
{
	static const uint32_t pages[SEQUENCES][5] = {{0, 1, 2, 3, 4}, {9, 8, 7, 6, 5}, {10, 12, 14, 11, 13}};
	uint32_t tokens[SEQUENCES * TEXT], outputs[SEQUENCES];
	struct stage_run runs[SEQUENCES];
	for (uint32_t step = 0; step < STEPS; step++) {
		uint32_t rows = step ? 1 : TEXT, sequences = step % 3 == 2 ? 1 : SEQUENCES;
		for (uint32_t i = 0; i < sequences; i++) {
			runs[i] = (struct stage_run){
				.row_count = rows, .position = step ? TEXT + step - 1 : 0, .pages = pages[i]};
			outputs[i] = (i + 1) * rows - 1;
		}
		for (uint32_t i = 0; i < sequences * rows; i++)
			tokens[i] = (i * 7919 + step * 31) % VOCABULARY;
		const struct stage_batch batch = {
			.row_count = sequences * rows,
			.runs = runs,
			.run_count = sequences,
			.tokens = tokens,
			.output_rows = outputs,
			.output_count = sequences,
			.logits = run->logits + (size_t)step * SEQUENCES * VOCABULARY,
		};
		HERE_OK(stage_step(stage, &batch, &error));
	}
}

static void check(const struct run *got, const struct run *wanted, const char *what)
{
	for (size_t i = 0; i < (size_t)STEPS * SEQUENCES * VOCABULARY; i++)
		if (memcmp(&got->logits[i], &wanted->logits[i], sizeof(float)) != 0)
			fail_msg("%s: logit %zu of step %zu is %.9g, and %.9g on one GPU", what,
				 i % (SEQUENCES * VOCABULARY), i / (SEQUENCES * VOCABULARY), (double)got->logits[i],
				 (double)wanted->logits[i]);
}

static void run_on(struct run *run, struct exogpu_device *a, struct exogpu_device *b, bool linked)
{
	struct stage *stage = make(run, a, b);
	assert_int_equal(stage_slices_linked(stage), linked);
	compute(run, stage);
	stage_destroy(&stage);
}

static void test_slices(void **state)
{
	const struct model_file file = {.family = FAMILY_QWEN2,
					.layers = 3,
					.embedding = 512,
					.feed_forward = 1024,
					.heads = 8,
					.kv_heads = 2,
					.vocabulary = VOCABULARY,
					.context = 160,
					.format = FORMAT_Q4_0,
					.norm_epsilon = 1e-5f,
					.seed = 3};
	size_t count = (size_t)STEPS * SEQUENCES * VOCABULARY;
	struct run one = {.logits = calloc(count, sizeof(float))}, two;
	(void)state;
	model_file_open(&one.file, &file);
	one.shape = model_shape(one.file.model);
	one.rope = calloc((size_t)one.shape->context * one.shape->rope_size, sizeof(float));
	assert_true(one.logits && one.rope);
	model_rope_table(one.shape, one.shape->context, one.rope);
	two = one;
	two.logits = calloc(count, sizeof(float));
	assert_non_null(two.logits);
	struct exogpu_device *a = here_open(0), *b = here_open(1);
	run_on(&one, a, a, true);
	struct stage *stage = make(&two, a, b);
	bool linked = stage_slices_linked(stage);
	print_message("two GPUs, %s\n", linked ? "linked" : "by way of the host");
	stage_destroy(&stage);
	run_on(&two, a, b, linked);
	check(&two, &one, "two GPUs");
	memset(two.logits, 0, count * sizeof(float));
	// As if they were not linked.
	a->handle->peers[b->handle->ordinal] = (struct cuda_peer){.serial = b->handle->serial, .way = CUDA_WAY_DRIVER};
	run_on(&two, a, b, false);
	check(&two, &one, "by way of the host");
	exogpu_device_close(&b, NULL);
	exogpu_device_close(&a, NULL);
	free(one.logits);
	free(two.logits);
	free(one.rope);
	model_file_close(&one.file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_slices)};
	if (!here_find(2))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
