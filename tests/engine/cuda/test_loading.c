/* How weights come onto CUDA devices, and what happens when a device hangs or is short of memory; by the driver that
 * stands for NVIDIA's (driver/standin.c), which computes nothing: of weights is looked at what reaches a device.
 *
 * Of the slices of a stage each tensor is asked for once, and each device gets its own rows and columns, no more. Of a
 * device that hangs nothing is freed that its work uses, and slices are waited for together. */
#include "engine/cuda/device.h"
#include "engine/inside.h"
#include "engine/model/architecture.h"
#include "engine/stage.h"
#include "tests/engine/cuda/here.h"
#include "tests/engine/cuda/struck.h"

enum { LAYERS = 2, CONTEXT = 64, PAGES = 4, SLICES = 2, VOCABULARY = 500, TEXT = 20 };

// Several pieces to a slice of the feed-forward network.
static const struct model_shape large = {.family = FAMILY_QWEN2,
					 .layers = LAYERS,
					 .embedding = 1024,
					 .feed_forward = 9216,
					 .heads = 8,
					 .kv_heads = 2,
					 .head_size = 128,
					 .vocabulary = VOCABULARY,
					 .context = CONTEXT,
					 .norm_epsilon = 1e-5f,
					 .rope_size = 128,
					 .rope_magnitude = 1,
					 .qkv_bias = true};
static struct model_shape small;   // but for fewer columns
static struct model_shape mixture; // the same with experts, and a part for all rows
static struct model_shape delta;   // a gated delta rule, and behind it gated attention
static float rope[CONTEXT * 128];
static uint8_t *pool; // all weights are of it
static uint64_t pool_bytes;

// What a life has asked for.
struct asked {
	const struct model_shape *shape;
	enum tensor_format format, more; // more: of attn_v, ffn_down and the output; FORMAT_UNKNOWN: `format`, too
	unsigned times[ROLE_COUNT][LAYERS];
	uint64_t told_bytes; // the last progress
};

static struct model_tensor tensor_of(const struct asked *asked, enum model_role role, uint32_t layer)
{
	struct wanted_tensor wanted;
	assert_true(architecture_layer_tensor(asked->shape, layer, role, &wanted));
	const bool takes_more = asked->more && (role == ROLE_V || role == ROLE_FFN_DOWN || role == ROLE_OUTPUT);
	struct model_tensor tensor = {.format = wanted.vector || wanted.rows == 1 ? FORMAT_F32
						: takes_more                      ? asked->more
										  : asked->format,
				      .rows = wanted.rows,
				      .columns = wanted.columns};
	tensor.bytes = format_row_bytes(tensor.format, tensor.columns) * tensor.rows;
	tensor.data = pool + (uint64_t)role * 5003 + layer * 977;
	assert_true(tensor.data + tensor.bytes <= pool + pool_bytes);
	return tensor;
}

static enum status lend(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			struct error *error)
{
	struct asked *asked = context;
	(void)error;
	asked->times[role][layer]++;
	*out = tensor_of(asked, role, layer);
	return STATUS_OK;
}

static enum status progress(void *context, uint64_t loaded_bytes, struct error *error)
{
	struct asked *asked = context;
	(void)error;
	assert_true(loaded_bytes >= asked->told_bytes);
	asked->told_bytes = loaded_bytes;
	return STATUS_OK;
}

static enum status make(struct stage **stage, struct asked *asked, struct exogpu_device *const *devices, uint32_t count,
			struct error *error)
{
	const struct stage_params params = {
		.shape = asked->shape,
		.layer_count = LAYERS,
		.embeds = true,
		.predicts = true,
		.context_tokens = CONTEXT,
		.page_count = PAGES,
		.batch_rows = TEXT,
		.batch_sequences = 1,
		.batch_outputs = 1,
		.rope = rope,
		.tensor = lend,
		.progress = progress,
		.context = asked,
	};
	return stage_create_sliced(stage, devices, count, &params, error);
}

// ---- what arrives ----

struct arrived {
	uint64_t bytes, sum;
};

// Rows from `first` on, of each the columns of the part. These are the test's own: no race is looked for in a sum of
// millions of bytes.
__attribute__((no_sanitize("thread"))) static void expect_part(struct arrived *arrived,
							       const struct model_tensor *tensor, uint32_t first,
							       uint32_t rows, unsigned part, unsigned parts)
{
	const uint64_t row = tensor->bytes / tensor->rows, bytes = row / parts;
	for (uint32_t i = first; i < first + rows; i++)
		for (uint64_t k = 0; k < bytes; k++)
			arrived->sum += tensor->data[i * row + part * bytes + k];
	arrived->bytes += rows * bytes;
}

static void expect(struct arrived *arrived, const struct asked *asked, unsigned slice, unsigned slices)
{
	static const enum model_role by_rows[] = {ROLE_Q,           ROLE_K,          ROLE_V,           ROLE_FFN_GATE,
						  ROLE_FFN_UP,      ROLE_ROUTER,     ROLE_EXPERT_GATE, ROLE_EXPERT_UP,
						  ROLE_EXPERT_DOWN, ROLE_SHARED_GATE},
				     by_columns[] = {ROLE_ATTENTION_OUTPUT, ROLE_FFN_DOWN},
				     of_first[] = {ROLE_TOKEN_EMBEDDING, ROLE_OUTPUT};
	*arrived = (struct arrived){0};
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		for (size_t i = 0; i < sizeof(by_rows) / sizeof(by_rows[0]); i++) {
			if (!model_has_role(asked->shape, by_rows[i]))
				continue;
			const struct model_tensor tensor = tensor_of(asked, by_rows[i], layer);
			const uint32_t rows = tensor.rows / slices;
			expect_part(arrived, &tensor, slice * rows, rows, 0, 1);
		}
		for (size_t i = 0; i < sizeof(by_columns) / sizeof(by_columns[0]); i++) {
			const struct model_tensor tensor = tensor_of(asked, by_columns[i], layer);
			expect_part(arrived, &tensor, 0, tensor.rows, slice, slices);
		}
	}
	for (size_t i = 0; !slice && i < sizeof(of_first) / sizeof(of_first[0]); i++) {
		const struct model_tensor tensor = tensor_of(asked, of_first[i], 0);
		expect_part(arrived, &tensor, 0, tensor.rows, 0, 1);
	}
}

static void open_all(struct exogpu_device **devices, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		devices[i] = here_open(i);
}

static void close_all(struct exogpu_device **devices, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		exogpu_device_close(&devices[i], NULL);
}

// Nothing was done that may not be, so far.
static void check_books(void)
{
	if (strikes->wrong[0])
		fail_msg("%s", strikes->wrong);
}

static void check_loading(const struct model_shape *shape, enum tensor_format format, uint32_t slices)
{
	struct asked asked = {.shape = shape, .format = format};
	struct exogpu_device *devices[SLICES] = {NULL};
	struct stage *stage = NULL;
	struct stage_memory memory;
	strike.begin(-1, CUDA_SUCCESS, false);
	open_all(devices, slices);
	HERE_OK(make(&stage, &asked, devices, slices, &error));
	for (enum model_role role = ROLE_TOKEN_EMBEDDING; role < ROLE_COUNT; role++)
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			if (asked.times[role][layer] > 1)
				fail_msg("role %d of layer %u was asked for %u times, in %u slices", (int)role, layer,
					 asked.times[role][layer], slices);
	for (uint32_t i = 0; i < slices; i++) {
		struct arrived wanted;
		expect(&wanted, &asked, i, slices);
		assert_int_equal(strikes->copied_bytes[i], wanted.bytes);
		assert_int_equal(strikes->copied_sum[i], wanted.sum);
	}
	stage_memory(stage, &memory);
	assert_int_equal(asked.told_bytes, memory.weights_bytes);
	stage_destroy(&stage);
	close_all(devices, slices);
	strike.end();
	check_books();
}

static void test_parts(void **state)
{
	(void)state;
	check_loading(&large, FORMAT_F32, 1);
	check_loading(&large, FORMAT_F32, 2);
	check_loading(&small, FORMAT_F16, 2);
	check_loading(&small, FORMAT_Q4_0, 2);
	check_loading(&small, FORMAT_Q4_K, 2);
	check_loading(&mixture, FORMAT_Q4_K, 1);
	check_loading(&mixture, FORMAT_F16, 1);
}

static void check_estimate(const struct model_shape *shape)
{
	const struct model_shape odd = *shape;
	struct asked asked = {.shape = &odd, .format = FORMAT_F16};
	struct exogpu_device *devices[1] = {NULL};
	struct stage *stage = NULL;
	struct stage_memory taken, estimated;
	struct model_sizes sizes = {0};
	for (enum model_role role = ROLE_TOKEN_EMBEDDING; role < ROLE_COUNT; role++)
		for (uint32_t layer = 0; layer < (role <= ROLE_OUTPUT ? 1 : LAYERS); layer++)
			if (model_layer_has_role(&odd, layer, role))
				*(role == ROLE_TOKEN_EMBEDDING ? &sizes.embedding_bytes
				  : role <= ROLE_OUTPUT        ? &sizes.output_bytes
							: &sizes.layers_bytes) += tensor_of(&asked, role, layer).bytes;
	const struct stage_params params = {.shape = &odd,
					    .layer_count = LAYERS,
					    .embeds = true,
					    .predicts = true,
					    .context_tokens = CONTEXT,
					    .page_count = PAGES,
					    .batch_rows = TEXT,
					    .batch_sequences = 1,
					    .batch_outputs = 1,
					    .tiled = true};
	stage_estimate(&params, &sizes, &estimated);
	strike.begin(-1, CUDA_SUCCESS, false);
	open_all(devices, 1);
	HERE_OK(make(&stage, &asked, devices, 1, &error));
	stage_memory(stage, &taken);
	assert_int_equal(estimated.kv_bytes, taken.kv_bytes);
	if (estimated.weights_bytes < taken.weights_bytes - taken.weights_bytes / 50 ||
	    estimated.weights_bytes > taken.weights_bytes + taken.weights_bytes / 50)
		fail_msg("%llu bytes of weights, and %llu were expected", (unsigned long long)taken.weights_bytes,
			 (unsigned long long)estimated.weights_bytes);
	stage_destroy(&stage);
	close_all(devices, 1);
	strike.end();
	check_books();
}

// Widths that fill no tiles: what placements count with is what is taken.
static void test_estimate(void **state)
{
	struct model_shape odd = large;
	(void)state;
	odd.embedding = 1028;
	odd.feed_forward = 2820;
	odd.head_size = odd.rope_size = 100;
	check_estimate(&odd);
	odd = mixture;
	odd.embedding = 1040;
	odd.expert_width = 176;
	check_estimate(&odd);
	check_estimate(&delta);
}

// ---- a device that hangs ----

static enum status step_of(const struct model_shape *shape, struct stage *stage, struct error *error)
{
	static const uint32_t pages[] = {0}, tokens[] = {7}, last[] = {0};
	static float logits[VOCABULARY];
	const uint32_t state = model_is_recurrent(shape);
	const struct stage_run run = {
		.row_count = 1, .position = 3, .pages = pages, .state_from = state, .state_to = state};
	const struct stage_batch batch = {.row_count = 1,
					  .runs = &run,
					  .run_count = 1,
					  .tokens = tokens,
					  .output_rows = last,
					  .output_count = 1,
					  .logits = logits};
	return stage_step(stage, &batch, error);
}

static enum status step(struct stage *stage, struct error *error)
{
	return step_of(&small, stage, error);
}

// What a step of layers of other kinds asks of the driver is in order: launched one by one, and as a graph.
static void test_kinds(void **state)
{
	struct model_shape normed = mixture, sigmoids = mixture, shorter = delta, large_heads = delta;
	normed.post_norm = sigmoids.expert_sigmoid = true;
	sigmoids.layer_kinds[0] = LAYER_DENSE;
	sigmoids.dense_width = 768;
	shorter.family = FAMILY_LFM2;
	shorter.delta = (struct model_delta){.heads = 1, .value_size = shorter.embedding, .kernel = 3};
	shorter.gated_attention = false;
	large_heads.delta.key_size = 260;
	large_heads.delta.kernel = 5;
	const struct model_shape *const shapes[] = {&mixture, &normed, &sigmoids, &delta, &shorter, &large_heads};
	struct exogpu_device *devices[1] = {NULL};
	(void)state;
	strike.begin(-1, CUDA_SUCCESS, false);
	open_all(devices, 1);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		struct asked asked = {.shape = shapes[i], .format = FORMAT_Q4_K};
		struct stage *stage = NULL;
		HERE_OK(make(&stage, &asked, devices, 1, &error));
		for (int k = 0; k < 3; k++)
			HERE_OK(step_of(shapes[i], stage, &error));
		stage_destroy(&stage);
	}
	close_all(devices, 1);
	strike.end();
	check_books();
}

static void hang(struct exogpu_device **devices, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		devices[i]->handle->timeout_ns = 20 * 1000000;
	strikes->hangs = true;
}

static void test_hangs_loading(void **state)
{
	(void)state;
	for (uint32_t slices = 1; slices <= SLICES; slices++) {
		struct asked asked = {.shape = &large, .format = FORMAT_F32};
		struct exogpu_device *devices[SLICES] = {NULL};
		struct error error = {0};
		struct stage *stage = NULL;
		strike.begin(-1, CUDA_SUCCESS, false);
		open_all(devices, slices);
		hang(devices, slices);
		assert_int_equal(make(&stage, &asked, devices, slices, &error), STATUS_TIMEOUT);
		assert_null(stage);
		close_all(devices, slices);
		check_books();
		strike.end();
	}
}

// All slices are asked in turn, and nobody asks once they have been given up.
static void test_hangs_sliced(void **state)
{
	struct asked asked = {.shape = &small, .format = FORMAT_F16};
	struct exogpu_device *devices[SLICES] = {NULL};
	struct error fault = {0};
	struct stage *stage = NULL;
	(void)state;
	strike.begin(-1, CUDA_SUCCESS, false);
	open_all(devices, SLICES);
	HERE_OK(make(&stage, &asked, devices, SLICES, &error));
	HERE_OK(step(stage, &error));
	hang(devices, SLICES);
	strikes->turns = 0;
	assert_int_equal(step(stage, &fault), STATUS_DEVICE_LOST);
	if (strikes->turns < 10)
		fail_msg("of two slices that hang each is waited for by itself: %ld turns of %ld", strikes->turns,
			 strikes->asked);
	const long asked_before = strikes->asked;
	stage_destroy(&stage);
	close_all(devices, SLICES);
	assert_int_equal(strikes->asked, asked_before);
	check_books();
	strike.end();
}

// ---- which kernel computes one row ----

// On Hopper, by the formats of the matrices; its steps find it in the image.
static void test_single_kernel(void **state)
{
	static const struct {
		enum tensor_format format, more;
		const char *kernel;
	} cases[] = {
		{FORMAT_F16, FORMAT_UNKNOWN, "f16"},     {FORMAT_BF16, FORMAT_UNKNOWN, "bf16"},
		{FORMAT_Q8_0, FORMAT_UNKNOWN, "q8_0"},   {FORMAT_Q4_0, FORMAT_UNKNOWN, "q4_0"},
		{FORMAT_Q4_K, FORMAT_UNKNOWN, "q4_k"},   {FORMAT_Q5_K, FORMAT_UNKNOWN, "q5_k"},
		{FORMAT_Q6_K, FORMAT_UNKNOWN, "q6_k"},   {FORMAT_Q4_K, FORMAT_Q6_K, "k"},
		{FORMAT_Q4_K, FORMAT_Q5_K, "k"},         {FORMAT_Q5_K, FORMAT_Q6_K, "k"},
		{FORMAT_Q4_0, FORMAT_Q6_K, "q4_0_q6_k"}, {FORMAT_Q6_K, FORMAT_Q8_0, "integers"},
		{FORMAT_Q8_0, FORMAT_F16, "f16_q8_0"},   {FORMAT_Q4_K, FORMAT_Q8_0, "integers"},
		{FORMAT_Q4_K, FORMAT_F16, "mixed"},      {FORMAT_MXFP4, FORMAT_UNKNOWN, NULL},
		{FORMAT_F32, FORMAT_UNKNOWN, NULL},      {FORMAT_Q4_K, FORMAT_MXFP4, NULL},
	};
	struct exogpu_device *device = NULL;
	(void)state;
	strike.begin(-1, CUDA_ERROR_OUT_OF_MEMORY, false);
	strikes->capability = 90;
	open_all(&device, 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct asked asked = {.shape = &small, .format = cases[i].format, .more = cases[i].more};
		struct stage *stage = NULL;
		HERE_OK(make(&stage, &asked, &device, 1, &error));
		const char *kernel = stage_single_kernel(stage);
		if (!kernel != !cases[i].kernel || (kernel && strcmp(kernel, cases[i].kernel) != 0))
			fail_msg("case %zu: one row by %s, not %s", i, kernel ? kernel : "many kernels",
				 cases[i].kernel ? cases[i].kernel : "many kernels");
		HERE_OK(step(stage, &error));
		stage_destroy(&stage);
	}
	close_all(&device, 1);
	strike.end();
	strikes->capability = 80;
	check_books();
}

// ---- no memory for a graph ----

static void check_graphless(uint32_t slices, const char *call)
{
	struct asked asked = {.shape = &small, .format = FORMAT_F16};
	struct exogpu_device *devices[SLICES] = {NULL};
	struct stage *stage = NULL;
	strike.begin(-1, CUDA_ERROR_OUT_OF_MEMORY, false);
	open_all(devices, slices);
	HERE_OK(make(&stage, &asked, devices, slices, &error));
	strikes->name = call;
	for (int i = 0; i < 5; i++)
		HERE_OK(step(stage, &error));
	if (strikes->named < 1 || strikes->named > slices)
		fail_msg("%s was called %ld times, in %u slices", call, strikes->named, slices);
	strikes->name = NULL;
	stage_destroy(&stage);
	close_all(devices, slices);
	strike.end();
	check_books();
}

static void test_graphless(void **state)
{
	static const char *const calls[] = {"cuStreamBeginCapture_v2", "cuStreamEndCapture",
					    "cuGraphInstantiateWithFlags"};
	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (uint32_t slices = 1; slices <= SLICES; slices++)
			check_graphless(slices, calls[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts),        cmocka_unit_test(test_estimate),
					   cmocka_unit_test(test_kinds),        cmocka_unit_test(test_hangs_loading),
					   cmocka_unit_test(test_hangs_sliced), cmocka_unit_test(test_graphless),
					   cmocka_unit_test(test_single_kernel)};
	strike_load(NULL);
	strikes->capability = 80;
	strikes->countdown = -1;
	if (!here_find(SLICES))
		return 77;
	small = large;
	small.feed_forward = 1024;
	mixture = small;
	mixture.feed_forward = 512;
	mixture.experts = 8;
	mixture.experts_used = 3;
	mixture.expert_width = 256;
	mixture.shared_gate = true;
	delta = small;
	delta.family = FAMILY_QWEN35;
	delta.qkv_bias = false;
	delta.gated_attention = true;
	delta.layer_kinds[0] = LAYER_DELTA;
	delta.delta = (struct model_delta){.key_heads = 2, .heads = 4, .key_size = 128, .value_size = 64, .kernel = 4};
	pool_bytes = 4ull * large.feed_forward * large.embedding + (1 << 20);
	pool = malloc(pool_bytes);
	if (!pool)
		return 1;
	for (uint64_t i = 0; i < pool_bytes; i++)
		pool[i] = (uint8_t)(i * 2654435761u >> 13);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(pool);
	return failed;
}
