/* The files of tests/models, as published ones are made: what is read of each, and what is refused when a number or a
 * name of it is changed. */
#include "engine/model/model.h"
#include "engine/stage.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka.h needs those above it.
#include <cmocka.h>

static void near(double got, double wanted, const char *what)
{
	if (!(fabs(got - wanted) <= 1e-6 * fmax(1e-6, fabs(wanted))))
		fail_msg("%s is %.9g, not %.9g", what, got, wanted);
}

// The context of Ministral 3 ends where its queries would be scaled; a log multiplier divides YaRN's magnitude.
static void test_ministral(void **state)
{
	(void)state;
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	struct error error = {0};
	const int fd = open(TESTS_DIR "/models/mistral3.gguf", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(gguf_open(&gguf, fd, &error), STATUS_OK);
	close(fd);
	assert_int_equal(model_open(&model, gguf, &error), STATUS_OK);
	assert_int_equal(model_shape(model)->context, 640); // of 8,192
	near((double)model_shape(model)->rope_magnitude, (1 + 0.1 * log(16)) / (1 + 0.05 * log(16)), "magnitude");
	model_destroy(&model);
	gguf_destroy(&gguf);
}

// A model of tests/models, of which the test may change bytes.
static size_t read_model(const char *name, uint8_t *bytes, size_t most)
{
	char path[256];
	snprintf(path, sizeof(path), TESTS_DIR "/models/%s.gguf", name);
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	const size_t length = fread(bytes, 1, most, file);
	fclose(file);
	assert_true(length > 0 && length < most);
	return length;
}

// Whether it opens; its task if it does.
static enum status open_task(const uint8_t *bytes, size_t length, enum model_task *task, struct error *error)
{
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	*error = (struct error){0};
	assert_int_equal(gguf_parse(&gguf, bytes, length, error), STATUS_OK);
	const enum status status = model_open(&model, gguf, error);
	if (!status)
		*task = model_task(model_shape(model));
	model_destroy(&model);
	gguf_destroy(&gguf);
	return status;
}

// The byte behind this text, which is in the file.
static uint8_t *behind(uint8_t *bytes, size_t length, const char *text)
{
	uint8_t *at = memmem(bytes, length, text, strlen(text));
	assert_non_null(at);
	return at + strlen(text);
}

// What llama.cpp's converter makes of a cross-encoder does not say pooling_type: its classifier does, if it has one
// class.
static void test_cross_encoders(void **state)
{
	(void)state;
	static uint8_t bytes[512 * 1024];
	enum model_task task = TASK_TEXT;
	struct error error;
	const size_t length = read_model("xlm-roberta-rank", bytes, sizeof(bytes));
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_OK);
	assert_int_equal(task, TASK_RERANK);
	uint8_t *name = behind(bytes, length, "cls.weight") - strlen("weight");
	name[-2] = 'h'; // clh.weight: the layer before the classifier, which is left out of BERT's
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "lacks the layer before its classifier (cls.weight)"));
	assert_non_null(strstr(error.hint, "ms-marco"));
	name[-2] = 's';
	uint8_t *sizes = behind(bytes, length, "cls.output.weight") + 4; // columns and rows, of 8 bytes each
	assert_int_equal(sizes[0], 32);
	assert_int_equal(sizes[8], 1);
	sizes[0] = 16; // as many numbers, of two classes
	sizes[8] = 2;
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_OK);
	assert_int_equal(task, TASK_EMBEDDING);
}

// A language model ranks texts only as Qwen3-Reranker does, with a template that has places for both texts.
static void test_rerankers(void **state)
{
	(void)state;
	static uint8_t bytes[256 * 1024];
	enum model_task task = TASK_TEXT;
	struct error error;
	const size_t length = read_model("qwen3-reranker", bytes, sizeof(bytes));
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_OK);
	assert_int_equal(task, TASK_RERANK);
	uint8_t *query = behind(bytes, length, "<Query>: {query");
	*query = ')';
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "how it is asked about a query and a document"));
	*query = '}';
	memcpy(query - strlen("<Query>: {query"), "{query}", strlen("<Query>")); // two places for the query
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_UNAVAILABLE);
	memcpy(query - strlen("<Query>: {query"), "<Query>", strlen("<Query>"));
	behind(bytes, length,
	       "qwen3.classifier.output_labels")[4 + 4 + 8 + 8] = 'Y'; // type, its items', how many, length
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "first class is not \"yes\""));
}

struct change {
	const char *key, *what; // what: NULL, it opens
	uint8_t value;
};

// A model of tests/models opens; and with each of these keys changed it does so, or says what is wrong.
static void check_changes(const char *name, const struct change *changes, size_t count)
{
	static uint8_t bytes[512 * 1024];
	enum model_task task;
	struct error error;
	const size_t length = read_model(name, bytes, sizeof(bytes));
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_OK);
	for (size_t i = 0; i < count; i++) {
		uint8_t *value = behind(bytes, length, changes[i].key) + 4, before = *value; // behind the value's type
		*value = changes[i].value;
		const enum status status = open_task(bytes, length, &task, &error);
		*value = before;
		assert_int_equal(!status, !changes[i].what);
		if (changes[i].what && !strstr(error.message, changes[i].what))
			fail_msg("%s", error.message);
	}
}

// GLM 4.5: keys that its experts are computed by, and a last block that guesses further tokens.
static void test_routing(void **state)
{
	(void)state;
	static const struct change changes[] = {
		{"glm4moe.expert_gating_func", "not weighed by a sigmoid", 1},
		{"glm4moe.expert_group_count", "experts in groups", 4},
		{"glm4moe.expert_group_count", NULL, 0},
		{"glm4moe.leading_dense_block_count", "must be from 0 to 2", 3},
		{"glm4moe.leading_dense_block_count", "no tensor blk.1.ffn_gate.weight", 2},
		{"glm4moe.nextn_predict_layers", "3 blocks in all", 3},
		{"glm4moe.expert_shared_count", "tensor blk.1.ffn_gate_shexp.weight has 64 rows", 3},
	};
	check_changes("glm4moe", changes, sizeof(changes) / sizeof(changes[0]));
}

// Qwen3-Next: heads that share queries and keys as neighbours, with one matrix for beta and alpha.
static void test_grouped_heads(void **state)
{
	(void)state;
	static const struct change changes[] = {
		{"qwen3next.ssm.time_step_rank", "do not fit each other", 3},
		{"qwen3next.ssm.time_step_rank", "ssm.time_step_rank is 0", 0},
		{"qwen3next.ssm.time_step_rank", "tensor blk.0.ssm_ba.weight has 8 rows of 32, not 16", 8},
		{"qwen3next.ssm.group_count", "tensor blk.0.attn_qkv.weight", 1},
		{"qwen3next.ssm.inner_size", "do not fit each other", 98},
		{"qwen3next.ssm.conv_kernel", "ssm.conv_kernel is 17", 17},
		{"qwen3next.full_attention_interval", "another turn of layers", 2},
	};
	check_changes("qwen3next", changes, sizeof(changes) / sizeof(changes[0]));
}

// LFM2: the list of key and value heads says which layers attend.
static void test_short_convolutions(void **state)
{
	(void)state;
	static const struct change changes[] = {
		{"lfm2.shortconv.l_cache", "shortconv.l_cache is 17", 17},
		{"lfm2.shortconv.l_cache", "shortconv.l_cache is 1", 1},
		{"lfm2.shortconv.l_cache", "tensor blk.0.shortconv.conv.weight has 32 rows of 3, not 32 of 4", 4},
	};
	static const struct {
		unsigned layer;
		uint8_t heads;
		const char *what;
	} lists[] = {
		{0, 2, "no tensor blk.0.attn_q.weight"},
		{1, 0, "no tensor blk.1.shortconv"},
		{1, 1, "is not 0, or one number up to 4"},
		{1, 5, "is not 0, or one number up to 4"},
	};
	static uint8_t bytes[512 * 1024];
	enum model_task task;
	struct error error;
	check_changes("lfm2", changes, sizeof(changes) / sizeof(changes[0]));
	const size_t length = read_model("lfm2", bytes, sizeof(bytes));
	uint8_t *list = behind(bytes, length, "lfm2.attention.head_count_kv") + 4 + 4 + 8; // types and how many
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		uint8_t *value = list + 4 * lists[i].layer, before = *value;
		*value = lists[i].heads;
		assert_int_equal(open_task(bytes, length, &task, &error), STATUS_INVALID_PARAMS);
		*value = before;
		if (!strstr(error.message, lists[i].what))
			fail_msg("%s", error.message);
	}
	list[4] = list[16] = 0; // both layers that attend
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "names no layer that attends"));
	behind(bytes, length, "lfm2.attention.head_count_k")[0] = 'w'; // the list has another name
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "is not a list of 5 numbers"));
}

// DeepSeek V3: what is kept, read and multiplied of a model with latents.
static void test_latents(void **state)
{
	(void)state;
	static const struct change changes[] = {
		{"deepseek2.attention.kv_lora_rank", "do not fit latents of 24", 24},
		{"deepseek2.attention.head_count_kv", "must be from 1 to 1", 2},
		{"deepseek2.attention.value_length_mla", "tensor blk.0.attn_v_b.weight has 20 rows of 26, not 18", 18},
		{"deepseek2.rope.dimension_count", "of which 6 turn, do not fit", 6},
		{"deepseek2.expert_group_count", NULL, 1},
		{"deepseek2.expert_group_count", "must be from 0 to 64", 65},
		{"deepseek2.expert_group_count", "3 of 16 experts cannot be taken from 2 of 3 groups", 3},
		{"deepseek2.expert_group_count", "3 of 16 experts cannot be taken from 2 of 16 groups", 16},
		{"deepseek2.expert_group_used_count", "must be from 1 to 4", 0},
		{"deepseek2.expert_weights_norm", NULL, 0},
		{"deepseek2.expert_gating_func", "neither by a softmax nor by a sigmoid", 3},
		{"deepseek2.expert_gating_func", "tensor blk.1.exp_probs_b.bias, which deepseek2 models do not", 1},
	};
	static uint8_t bytes[512 * 1024];
	enum model_task task;
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	struct model_sizes sizes;
	struct error error = {0};
	check_changes("deepseek2", changes, sizeof(changes) / sizeof(changes[0]));
	const size_t length = read_model("deepseek2", bytes, sizeof(bytes));
	assert_int_equal(gguf_parse(&gguf, bytes, length, &error), STATUS_OK);
	assert_int_equal(model_open(&model, gguf, &error), STATUS_OK);
	const struct model_shape *shape = model_shape(model);
	assert_true(model_is_latent(shape) && !model_is_plain(shape) && !model_can_slice(shape));
	assert_int_equal(shape->head_size, 26 + 8);
	assert_int_equal(stage_page_bytes(shape), STAGE_PAGE_TOKENS * (26 + 8) * sizeof(uint16_t)); // of all heads
	assert_int_equal(model_attended(shape), 4 * 20);
	assert_true(shape->expert_sigmoid && !shape->expert_share && shape->expert_groups == 4);
	const double grown = 1 + 0.1 * log(16); // mscale_all_dim is 1
	near((double)shape->attention_scale, grown * grown / sqrt(12 + 8), "attention's scale");
	near((double)shape->rope_magnitude, 1, "magnitude");
	model_sizes(model, &sizes);
	const uint64_t expert = 3 * 16 * 32 * sizeof(uint16_t), // two layers have 16 of them
		attention = sizeof(uint16_t) * (32 * 40 + 40 * 4 * 20 + 32 * 34 + 4 * 26 * 12 + 4 * 20 * 26 + 80 * 32);
	assert_int_equal(sizes.expert_bytes, 2 * 16 * expert);
	assert_true(sizes.layers_bytes > sizes.expert_bytes + 3 * attention);
	assert_true(sizes.layers_bytes - sizes.expert_bytes - 3 * attention < 60000);
	near(model_layer_read(shape, &sizes, 1), (double)(sizes.layers_bytes - sizes.expert_bytes + 2 * 3 * expert) / 3,
	     "bytes that a token reads");
	model_destroy(&model);
	gguf_destroy(&gguf);
	behind(bytes, length,
	       "deepseek2.attention.key_length_mla")[-1] = 'x'; // in older files attention.key_length is a head's
	assert_int_equal(open_task(bytes, length, &task, &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "tensor blk.0.attn_q_b.weight has 80 rows of 40, not 136"));
}

static void test_further_blocks(void **state)
{
	(void)state;
	static uint8_t bytes[512 * 1024];
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	struct error error = {0};
	const size_t length = read_model("glm4moe", bytes, sizeof(bytes));
	behind(bytes, length, "glm4moe.nextn_predict_layers")[4] = 1;
	assert_int_equal(gguf_parse(&gguf, bytes, length, &error), STATUS_OK);
	assert_int_equal(model_open(&model, gguf, &error), STATUS_OK);
	const struct model_shape *shape = model_shape(model);
	assert_int_equal(shape->layers, 2);
	assert_int_equal(shape->dense_layers, 1);
	assert_int_equal(model_layer_width(shape, 0), 80);
	assert_int_equal(model_layer_width(shape, 1), 64);
	assert_false(model_layer_has_experts(shape, 0));
	assert_true(model_layer_has_experts(shape, 1));
	model_destroy(&model);
	gguf_destroy(&gguf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ministral),     cmocka_unit_test(test_cross_encoders),
		cmocka_unit_test(test_rerankers),     cmocka_unit_test(test_routing),
		cmocka_unit_test(test_grouped_heads), cmocka_unit_test(test_short_convolutions),
		cmocka_unit_test(test_latents),       cmocka_unit_test(test_further_blocks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
