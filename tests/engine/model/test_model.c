/* Models: what files of every family and format say; positions and their scalings, worked out another way; sizes, also
 * in a smaller format, and what that loses; and what is refused, by name. */
#include "engine/model/convert.h"
#include "engine/stage.h"
#include "tests/engine/model/reference.h"
#include "tests/tools/model_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

static void near(double got, double wanted, const char *what)
{
	if (!(fabs(got - wanted) <= 1e-6 * fmax(1e-6, fabs(wanted))))
		fail_msg("%s is %.9g, not %.9g", what, got, wanted);
}

static void test_every_family_and_format(void **state)
{
	(void)state;
	for (enum model_family family = FAMILY_LLAMA; family <= FAMILY_QWEN3; family++)
		for (enum tensor_format format = FORMAT_F32; format < FORMAT_COUNT; format++) {
			struct model_file file = model_file_small();
			struct model_file_open open;
			struct model_tensor tensor, output;
			file.family = family;
			file.format = format;
			file.embedding = 256;
			file.feed_forward = 512;
			file.tied = format % 2;
			model_file_open(&open, &file);
			const struct model_shape *shape = model_shape(open.model);
			assert_int_equal(shape->family, family);
			assert_int_equal(shape->layers, 2);
			assert_int_equal(shape->heads, 4);
			assert_int_equal(shape->kv_heads, 2);
			assert_int_equal(shape->head_size, 64);
			assert_int_equal(shape->vocabulary, 512);
			assert_int_equal(shape->context, 256);
			assert_int_equal(shape->tied, file.tied);
			assert_int_equal(shape->rope_halves, family != FAMILY_LLAMA);
			near((double)shape->norm_epsilon, 1e-5, "epsilon");
			assert_true(model_tensor(open.model, ROLE_K, 1, &tensor));
			assert_int_equal(tensor.rows, 128);
			assert_int_equal(tensor.columns, 256);
			assert_int_equal(tensor.format, format);
			assert_int_equal(model_tensor(open.model, ROLE_K_BIAS, 0, &tensor), family == FAMILY_QWEN2);
			assert_int_equal(model_tensor(open.model, ROLE_K_NORM, 0, &tensor), family == FAMILY_QWEN3);
			assert_true(model_tensor(open.model, ROLE_OUTPUT, 0, &output));
			assert_true(model_tensor(open.model, ROLE_TOKEN_EMBEDDING, 0, &tensor));
			assert_int_equal(output.data == tensor.data, file.tied);
			model_file_close(&open);
		}
}

// ---- positions ----

static struct model_file with_positions(enum model_scaling scaling)
{
	struct model_file file = model_file_small();
	file.scaling = scaling;
	file.context = 4096;
	file.head_size = 64;
	file.rope_base = 50000;
	return file;
}

static void test_positions(void **state)
{
	(void)state;
	for (enum model_scaling scaling = SCALING_NONE; scaling <= SCALING_YARN; scaling++) {
		struct model_file file = with_positions(scaling);
		struct model_file_open open;
		model_file_open(&open, &file);
		const struct model_shape *shape = model_shape(open.model);
		assert_int_equal(shape->rope_size, 64);
		near((double)shape->rope_magnitude, scaling == SCALING_YARN ? 1 + 0.1 * log(4) : 1, "the magnitude");
		for (uint32_t i = 0; i < 32; i++) {
			double plain = exp(-log(50000) * i / 32), wanted = plain;
			if (scaling == SCALING_LINEAR)
				wanted = plain / 4;
			if (scaling == SCALING_FACTORS)
				wanted = plain / (1 + 7.0 * i / 32);
			// Of 1,024 positions the pairs up to 4 turn more than 32 times or nearly so, those from 16 on
			// not even once: 32 * ln(1024 / (2 pi n)) / ln(50000) is 4.81 for n = 32 and 15.07 for n = 1.
			if (scaling == SCALING_YARN) {
				double ramp = fmin(1, fmax(0, (i - 4.0) / (16 - 4)));
				wanted = plain * (1 - ramp) + plain / 4 * ramp;
			}
			near(shape->rope_frequency[i], wanted, "a frequency");
		}
		float *table = malloc(100 * 64 * sizeof(*table));
		assert_non_null(table);
		model_rope_table(shape, 100, table);
		double angle = 99 * shape->rope_frequency[3];
		near((double)table[(99 * 32 + 3) * 2], (double)(float)(cos(angle) * (double)shape->rope_magnitude),
		     "a cosine");
		near((double)table[(99 * 32 + 3) * 2 + 1], (double)(float)(sin(angle) * (double)shape->rope_magnitude),
		     "a sine");
		free(table);
		model_file_close(&open);
	}
}

// ---- sizes ----

static void test_sizes(void **state)
{
	(void)state;
	for (unsigned tied = 0; tied < 2; tied++) {
		struct model_file file = model_file_small();
		struct model_file_open open;
		struct model_sizes sizes, smaller;
		uint64_t layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 160, matrix = 512 * 64;
		file.tied = tied;
		file.format = FORMAT_F16;
		model_file_open(&open, &file);
		model_sizes(open.model, &sizes);
		assert_int_equal(sizes.parameters, 2 * (layer + 128) + 64 + matrix * (tied ? 1 : 2));
		assert_int_equal(sizes.embedding_bytes, matrix * 2);
		assert_int_equal(sizes.output_bytes, matrix * 2 + 256);
		assert_int_equal(sizes.layer_bytes, layer * 2 + 512);
		assert_int_equal(sizes.layers_bytes, 2 * sizes.layer_bytes);
		assert_int_equal(sizes.format_bytes[FORMAT_F32], 5 * 256);
		assert_int_equal(sizes.format_bytes[FORMAT_F16], 4 * layer + (tied ? 1 : 2) * matrix * 2);
		assert_int_equal(sizes.main_format, FORMAT_F16);
		model_sizes_as(open.model, FORMAT_Q4_0, &smaller);
		assert_int_equal(smaller.parameters, sizes.parameters);
		assert_int_equal(smaller.layer_bytes, layer / 32 * 18 + 512);
		assert_int_equal(smaller.output_bytes, matrix / 32 * 18 + 256);
		assert_int_equal(smaller.main_format, FORMAT_Q4_0);
		model_file_close(&open);
	}
	// What is quantised stays.
	struct model_file file = model_file_small();
	struct model_file_open open;
	struct model_sizes sizes, same;
	model_file_open(&open, &file);
	model_sizes(open.model, &sizes);
	model_sizes_as(open.model, FORMAT_Q4_0, &same);
	assert_memory_equal(&sizes, &same, sizeof(sizes));
	model_file_close(&open);
}

// The root mean square of what a model's logits lose when it is held in `format`, over that of the logits.
static double loss_of(const struct model *model, const struct model *held)
{
	static const uint32_t tokens[12] = {5, 99, 3, 400, 401, 17, 256, 511, 0, 8, 8, 31};
	struct reference_result results[2];
	const struct model *const models[] = {model, held};
	double squares = 0, all = 0;
	for (unsigned i = 0; i < 2; i++) {
		struct reference *reference = reference_create(models[i]);
		reference_run(reference, &(struct reference_run){.tokens = tokens, .count = 12}, &results[i]);
		reference_destroy(&reference);
	}
	for (size_t i = 0; i < 12 * 512; i++) {
		squares += pow(results[1].logits[i] - results[0].logits[i], 2);
		all += pow(results[0].logits[i], 2);
	}
	for (unsigned i = 0; i < 2; i++)
		reference_result_finish(&results[i]);
	return sqrt(squares / all);
}

// A model that is converted as it is loaded is the model that a quantiser makes, and loses as little.
static void test_convert(void **state)
{
	(void)state;
	for (enum tensor_format format = FORMAT_Q8_0; format <= FORMAT_Q4_0; format++)
		for (enum tensor_format from = FORMAT_F32; from <= FORMAT_F16; from++) {
			struct model_file file = model_file_small();
			struct model_file_open wide, small;
			file.format = from;
			model_file_open(&wide, &file);
			file.format = format;
			model_file_open(&small, &file);
			for (uint32_t layer = 0; layer < 2; layer++)
				for (enum model_role role = ROLE_TOKEN_EMBEDDING; role < ROLE_COUNT; role++) {
					struct model_tensor tensor, held, wanted;
					if (!model_tensor(wide.model, role, layer, &tensor))
						continue;
					assert_true(model_tensor(small.model, role, layer, &wanted));
					model_tensor_as(&tensor, format, &held);
					assert_int_equal(held.format, wanted.format);
					assert_int_equal(held.bytes, wanted.bytes);
					if (held.data) {
						assert_ptr_equal(held.data, tensor.data);
						continue;
					}
					uint8_t *bytes = malloc(held.bytes);
					uint32_t half = held.rows / 2;
					assert_non_null(bytes);
					assert_int_equal(model_convert(&tensor, &held, 0, half, bytes), STATUS_OK);
					assert_int_equal(model_convert(&tensor, &held, half, held.rows - half,
								       bytes + half * (held.bytes / held.rows)),
							 STATUS_OK);
					assert_memory_equal(bytes, wanted.data, held.bytes);
					free(bytes);
				}
			double loss = loss_of(wide.model, small.model), most = format == FORMAT_Q8_0 ? 0.03 : 0.5;
			printf("%s held in %s: logits lose %.4f\n", format_info(from)->name, format_info(format)->name,
			       loss);
			if (!(loss <= most && loss > most / 20))
				fail_msg("logits lose %.4f, not about %.4f", loss, most);
			model_file_close(&wide);
			model_file_close(&small);
		}
}

// ---- what is refused ----

static void more_experts(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "llama.expert_count", 8);
}

static void more_experts_used(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "llama.expert_count", 8);
	gguf_put_u32(writer, "llama.expert_used_count", 2);
}

static void more_window(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "llama.attention.sliding_window", 128);
}

static void more_wide_window(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "llama.attention.sliding_window", 256);
	gguf_put_u32(writer, "llama.expert_count", 0);
	gguf_put_bool(writer, "llama.attention.causal", true);
	gguf_put_f32(writer, "llama.logit_scale", 1);
}

static void more_longrope(struct gguf_writer *writer)
{
	gguf_put_text(writer, "llama.rope.scaling.type", "longrope");
}

static void more_capping(struct gguf_writer *writer)
{
	gguf_put_f32(writer, "llama.final_logit_softcapping", 30);
}

static void more_both_ways(struct gguf_writer *writer)
{
	gguf_put_bool(writer, "llama.attention.causal", false);
}

static void more_bias(struct gguf_writer *writer)
{
	gguf_put_tensor(writer, "blk.0.attn_q.bias", FORMAT_F32, 64, 0);
}

static void more_unknown_format(struct gguf_writer *writer)
{
	gguf_put_tensor(writer, "blk.0.other.weight", FORMAT_UNKNOWN, 64, 0);
}

static void more_factors(struct gguf_writer *writer)
{
	gguf_put_tensor(writer, "rope_freqs.weight", FORMAT_F32, 8, 0); // zeros
}

static void more_few_factors(struct gguf_writer *writer)
{
	gguf_put_tensor(writer, "rope_freqs.weight", FORMAT_F32, 7, 0);
}

static enum status try_file(const uint8_t *bytes, size_t length, struct error *error)
{
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	enum status status = gguf_parse(&gguf, bytes, length, error);
	if (!status)
		status = model_open(&model, gguf, error);
	model_destroy(&model);
	gguf_destroy(&gguf);
	return status;
}

static void more_parts(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "split.no", 1);
	gguf_put_u32(writer, "split.count", 3);
}

static void more_one_part(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "split.no", 0);
	gguf_put_u32(writer, "split.count", 1);
}

static void more_last_token(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "llama.pooling_type", 3);
}

static void more_ranking(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "llama.pooling_type", 4);
}

// What converters and quantisers write beside what is computed: none of it matters.
static void more_published(struct gguf_writer *writer)
{
	static const char *const words[] = {"chat", "text-generation"};
	static const int32_t none[] = {0};
	gguf_put_text(writer, "general.basename", "Random");
	gguf_put_text(writer, "general.finetune", "Instruct");
	gguf_put_text(writer, "general.size_label", "1B");
	gguf_put_text(writer, "general.license", "other");
	gguf_put_u32(writer, "general.base_model.count", 0);
	gguf_put_texts(writer, "general.tags", words, 2);
	gguf_put_texts(writer, "general.languages", words, 0);
	gguf_put_u32(writer, "general.file_type", 15);
	gguf_put_u32(writer, "general.quantization_version", 2);
	gguf_put_u32(writer, "llama.expert_count", 0);
	gguf_put_u32(writer, "llama.pooling_type", 0);
	gguf_put_u32(writer, "tokenizer.ggml.padding_token_id", 0);
	gguf_put_bool(writer, "tokenizer.ggml.add_space_prefix", false);
	gguf_put_i32s(writer, "tokenizer.ggml.suppress_tokens", none, 1);
	gguf_put_text(writer, "quantize.imatrix.file", "calibration.dat");
	gguf_put_u32(writer, "quantize.imatrix.entries_count", 112);
}

static void more_own_sizes(struct gguf_writer *writer)
{
	static const int32_t sizes[] = {16, 32};
	gguf_put_i32s(writer, "llama.attention.value_length", sizes, 2);
}

static void test_features(void **state)
{
	(void)state;
	static const struct {
		void (*more)(struct gguf_writer *writer);
		enum status status;
		const char *word;
	} cases[] = {
		{more_experts, STATUS_INVALID_PARAMS, "llama.expert_used_count"},
		{more_experts_used, STATUS_INVALID_PARAMS, "no tensor blk.0.ffn_gate_inp.weight"},
		{more_window, STATUS_UNAVAILABLE, "sliding window"},
		{more_wide_window, STATUS_OK, ""},
		{more_longrope, STATUS_UNAVAILABLE, "longrope"},
		{more_capping, STATUS_UNAVAILABLE, "capped logits"},
		{more_both_ways, STATUS_UNAVAILABLE, "later tokens"},
		{more_bias, STATUS_UNAVAILABLE, "blk.0.attn_q.bias"},
		{more_unknown_format, STATUS_UNAVAILABLE, "blk.0.other.weight"},
		{more_factors, STATUS_INVALID_PARAMS, "positive numbers"},
		{more_few_factors, STATUS_INVALID_PARAMS, "rope_freqs.weight is not 8"},
		{more_one_part, STATUS_OK, ""},
		{more_published, STATUS_OK, ""},
		{more_own_sizes, STATUS_UNAVAILABLE, "attention.value_length of each layer its own"},
		{more_last_token, STATUS_OK, ""},
		{more_ranking, STATUS_UNAVAILABLE, "a reranker"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct model_file file = model_file_small();
		struct error error = {0};
		size_t length;
		file.more = cases[i].more;
		uint8_t *bytes = model_file_make(&file, &length);
		enum status status = try_file(bytes, length, &error);
		if (status != cases[i].status || !strstr(error.message, cases[i].word))
			fail_msg("%s (%s), not %s with \"%s\"", status_word(status), error.message,
				 status_word(cases[i].status), cases[i].word);
		if (status == STATUS_UNAVAILABLE &&
		    !strstr(error.hint, "Q6_K, and what docs/models.md says of each architecture"))
			fail_msg("\"%s\" does not say what works", error.hint);
		free(bytes);
	}
}

static struct model_file mixture(void)
{
	struct model_file file = model_file_small();
	file.family = FAMILY_QWEN3MOE;
	file.experts = 6;
	file.experts_used = 2;
	file.expert_width = 96;
	return file;
}

static void test_experts(void **state)
{
	(void)state;
	struct model_file file = mixture();
	struct model_file_open open;
	struct model_tensor tensor;
	struct model_sizes sizes;
	model_file_open(&open, &file);
	const struct model_shape *shape = model_shape(open.model);
	assert_int_equal(shape->experts, 6);
	assert_int_equal(shape->experts_used, 2);
	assert_int_equal(shape->expert_width, 96);
	assert_int_equal(shape->feed_forward, 0);
	assert_false(model_tensor(open.model, ROLE_FFN_GATE, 0, &tensor));
	assert_true(model_tensor(open.model, ROLE_EXPERT_DOWN, 1, &tensor));
	assert_int_equal(tensor.rows, 6 * 64);
	assert_int_equal(tensor.columns, 96);
	model_sizes(open.model, &sizes);
	const uint64_t of_experts = 6ull * 3 * 96 * 64 / 32 * 34; // of a layer, in Q8_0
	assert_int_equal(sizes.expert_bytes, 2 * of_experts);
	assert_true(sizes.layers_bytes > sizes.expert_bytes);
	// One row reads two of the six, many rows nearly all.
	const double layer = (double)sizes.layers_bytes / 2, each = (double)of_experts / 6;
	assert_true(fabs(model_layer_read(shape, &sizes, 1) - (layer - 4 * each)) < 1e-6 * layer);
	assert_true(fabs(model_layer_read(shape, &sizes, 2) - (layer - 6 * (4.0 / 6) * (4.0 / 6) * each)) <
		    1e-6 * layer);
	assert_true(fabs(model_layer_read(shape, &sizes, 512) - layer) < 1e-6 * layer);
	// The router stays as it is, whatever is wished for.
	struct model_tensor held;
	assert_true(model_tensor(open.model, ROLE_ROUTER, 0, &tensor));
	model_tensor_as(&tensor, FORMAT_Q8_0, &held);
	assert_int_equal(held.format, FORMAT_F32);
	model_file_close(&open);
}

static struct model_file recurrent(void)
{
	struct model_file file = model_file_small();
	file.family = FAMILY_QWEN35;
	file.layers = 5;
	file.format = FORMAT_F16;
	return file;
}

static void more_blocks(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "qwen35.nextn_predict_layers", 1);
}

static void more_often(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "qwen35.full_attention_interval", 2);
}

static void more_guesses(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "qwen35.nextn_predict_layers", 5);
}

// Three of four layers have a state in the place of keys and values.
static void test_recurrent(void **state)
{
	(void)state;
	struct model_file file = recurrent();
	struct model_file_open open;
	struct model_tensor tensor;
	model_file_open(&open, &file);
	const struct model_shape *shape = model_shape(open.model);
	assert_true(model_is_recurrent(shape) && shape->gated_attention && !model_can_slice(shape));
	assert_int_equal(model_delta_layers(shape, 0, 5), 4);
	assert_int_equal(model_delta_layers(shape, 2, 2), 1);
	for (uint32_t layer = 0; layer < 5; layer++) {
		assert_int_equal(model_tensor(open.model, ROLE_Q, layer, &tensor), layer == 3);
		assert_int_equal(model_tensor(open.model, ROLE_DELTA_CONV, layer, &tensor), layer != 3);
	}
	assert_true(model_tensor(open.model, ROLE_Q, 3, &tensor));
	assert_int_equal(tensor.rows, 2 * 64); // queries and their gates
	model_file_close(&open);
	file.more = more_blocks; // the last block guesses further tokens: it is no layer
	model_file_open(&open, &file);
	assert_int_equal(model_shape(open.model)->layers, 4);
	model_file_close(&open);
}

static void test_recurrent_refused(void **state)
{
	(void)state;
	static const struct {
		struct model_delta delta;
		void (*more)(struct gguf_writer *writer);
		enum status status;
		const char *word;
	} cases[] = {
		{{2, 4, 16, 24, 4, false}, NULL, STATUS_OK, ""},
		{{2, 4, 16, 24, 4, false}, more_often, STATUS_UNAVAILABLE, "full_attention_interval"},
		{{2, 4, 16, 24, 4, false}, more_guesses, STATUS_INVALID_PARAMS, "nextn_predict_layers is 5"},
		{{3, 4, 16, 24, 4, false}, NULL, STATUS_INVALID_PARAMS, "do not fit each other"},
		{{2, 4, 514, 24, 4, false}, NULL, STATUS_INVALID_PARAMS, "qwen35.ssm.state_size is 514"},
		{{2, 4, 16, 514, 4, false}, NULL, STATUS_INVALID_PARAMS, "do not fit each other"},
		{{2, 4, 16, 24, 17, false}, NULL, STATUS_INVALID_PARAMS, "qwen35.ssm.conv_kernel is 17"},
		{{2, 4, 16, 24, 1, false}, NULL, STATUS_INVALID_PARAMS, "qwen35.ssm.conv_kernel is 1"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct model_file file = recurrent();
		struct error error = {0};
		size_t length;
		file.delta = cases[i].delta;
		file.more = cases[i].more;
		uint8_t *bytes = model_file_make(&file, &length);
		enum status status = try_file(bytes, length, &error);
		if (status != cases[i].status || !strstr(error.message, cases[i].word))
			fail_msg("case %zu: %s (%s), not %s with \"%s\"", i, status_word(status), error.message,
				 status_word(cases[i].status), cases[i].word);
		free(bytes);
	}
}

static void more_sigmoid(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "qwen3moe.expert_gating_func", 2);
}

static void more_shares(struct gguf_writer *writer)
{
	gguf_put_bool(writer, "qwen3moe.expert_weights_norm", false);
}

static void more_groups(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "qwen3moe.expert_group_count", 4);
}

static void more_shared(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "qwen3moe.expert_shared_feed_forward_length", 64);
}

static void more_neutral(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "qwen3moe.expert_gating_func", 1);
	gguf_put_bool(writer, "qwen3moe.expert_weights_norm", true);
	gguf_put_u32(writer, "qwen3moe.expert_group_count", 0);
	gguf_put_u32(writer, "qwen3moe.expert_shared_feed_forward_length", 0);
}

static void test_experts_refused(void **state)
{
	(void)state;
	static const struct {
		uint32_t experts, used, width;
		void (*more)(struct gguf_writer *writer);
		enum status status;
		const char *word;
	} cases[] = {
		{6, 2, 96, more_neutral, STATUS_OK, ""},
		{6, 6, 96, NULL, STATUS_OK, ""},
		{0, 2, 96, NULL, STATUS_INVALID_PARAMS, "how many experts it has (qwen3moe.expert_count)"},
		{6, 0, 96, NULL, STATUS_INVALID_PARAMS, "qwen3moe.expert_used_count is 0; it must be from 1 to 6"},
		{6, 7, 96, NULL, STATUS_INVALID_PARAMS, "qwen3moe.expert_used_count is 7"},
		{1025, 2, 2, NULL, STATUS_INVALID_PARAMS, "qwen3moe.expert_count is 1025"},
		{6, 2, 95, NULL, STATUS_INVALID_PARAMS, "expert_feed_forward_length is 95"},
		{6, 2, 96, more_sigmoid, STATUS_UNAVAILABLE, "expert_gating_func"},
		{6, 2, 96, more_shares, STATUS_UNAVAILABLE, "do not add up to 1"},
		{6, 2, 96, more_groups, STATUS_UNAVAILABLE, "experts in groups"},
		{6, 2, 96, more_shared, STATUS_UNAVAILABLE, "all tokens share"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct model_file file = mixture();
		struct error error = {0};
		size_t length;
		file.format = FORMAT_F16;
		file.experts = cases[i].experts;
		file.experts_used = cases[i].used;
		file.expert_width = cases[i].width;
		file.more = cases[i].more;
		uint8_t *bytes = model_file_make(&file, &length);
		enum status status = try_file(bytes, length, &error);
		if (status != cases[i].status || !strstr(error.message, cases[i].word))
			fail_msg("case %zu: %s (%s), not %s with \"%s\"", i, status_word(status), error.message,
				 status_word(cases[i].status), cases[i].word);
		free(bytes);
	}
}

static void test_parts(void **state)
{
	(void)state;
	struct model_file file = model_file_small();
	struct error error = {0};
	size_t length;
	file.more = more_parts;
	uint8_t *bytes = model_file_make(&file, &length);
	assert_int_equal(try_file(bytes, length, &error), STATUS_UNAVAILABLE);
	if (!strstr(error.message, "part 2 of 3") || !strstr(error.hint, "NAME-00001-of-00003.gguf"))
		fail_msg("\"%s\", \"%s\"", error.message, error.hint);
	free(bytes);
}

// Vocabularies are published without weights, for those who compare tokenizers.
static void test_vocabulary(void **state)
{
	(void)state;
	static const char *const families[] = {"llama", "gpt2"};
	for (size_t i = 0; i < 2; i++) {
		struct gguf_writer writer;
		struct buffer bytes;
		struct error error = {0};
		buffer_init(&bytes, 1 << 20);
		gguf_writer_init(&writer, 32);
		gguf_put_text(&writer, "general.architecture", families[i]);
		gguf_writer_head(&writer, &bytes);
		assert_int_equal(try_file(bytes.data, bytes.length, &error), STATUS_UNAVAILABLE);
		if (!strstr(error.message, "has no weights") || !error.hint[0])
			fail_msg("\"%s\", \"%s\"", error.message, error.hint);
		gguf_writer_finish(&writer);
		buffer_finish(&bytes);
	}
}

// A file in which the text stands at one place only, changed there; `behind` bytes further on if there is no text.
static enum status try_changed(const char *text, const char *other, size_t behind, uint32_t number, struct error *error)
{
	struct model_file file = model_file_small();
	size_t length;
	uint8_t *bytes = model_file_make(&file, &length);
	uint8_t *place = memmem(bytes, length, text, strlen(text));
	assert_non_null(place);
	if (other)
		memcpy(place, other, strlen(other));
	else
		memcpy(place + strlen(text) + behind, &number, sizeof(number));
	enum status status = try_file(bytes, length, error);
	free(bytes);
	return status;
}

static void test_names(void **state)
{
	(void)state;
	static const struct {
		const char *text, *other;
		enum status status;
		const char *word;
	} cases[] = {
		{"general.architecture", "general.architectuRe", STATUS_INVALID_PARAMS, "general.architecture"},
		{"llama", "bloom", STATUS_UNAVAILABLE, "the architecture bloom"},
		{"llama", "\xff\n\x01m\x80", STATUS_UNAVAILABLE, "the architecture ???m?"},
		{"model", "adapt", STATUS_UNAVAILABLE, "of type adapt"},
		{"llama.block_count", "llama.black_count", STATUS_INVALID_PARAMS, "llama.block_count"},
		{"llama.context_length", "llama.kontext_length", STATUS_INVALID_PARAMS, "llama.context_length"},
		{"layer_norm_rms_epsilon", "layer_norm_rms_epsilom", STATUS_INVALID_PARAMS, "epsilon"},
		{"token_embd.weight", "token_embd.weighT", STATUS_INVALID_PARAMS, "no tensor token_embd.weight"},
		{"blk.1.attn_v.weight", "blk.1.attn_W.weight", STATUS_INVALID_PARAMS, "no tensor blk.1.attn_v.weight"},
		{"blk.1.ffn_norm.weight", "blk.2.ffn_norm.weight", STATUS_INVALID_PARAMS, "blk.1.ffn_norm.weight"},
		{"output.weight", "Output.weight", STATUS_INVALID_PARAMS, "attn_output.weight"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct error error = {0};
		enum status status = try_changed(cases[i].text, cases[i].other, 0, 0, &error);
		if (status != cases[i].status || !strstr(error.message, cases[i].word))
			fail_msg("%s: %s (%s), not %s with \"%s\"", cases[i].other, status_word(status), error.message,
				 status_word(cases[i].status), cases[i].word);
	}
}

static void test_numbers(void **state)
{
	(void)state;
	static const struct {
		const char *key;
		size_t behind; // the name: 4 of the type; of a tensor, 4 of the dimensions, 16 of its size
		uint32_t number;
		const char *word;
	} cases[] = {
		{"llama.block_count", 4, 0, "from 1 to 512"},
		{"llama.block_count", 4, 513, "from 1 to 512"},
		{"llama.block_count", 4, 3, "blk.2."},
		{"llama.block_count", 4, 1, "blk.1."},
		{"llama.embedding_length", 4, 63, "multiple of 2"},
		{"llama.feed_forward_length", 4, 0, "from 2 to 65536"},
		{"llama.feed_forward_length", 4, 172, "rows of 64, not 172 of 64"},
		{"llama.embedding_length", 4, 96, "token_embd.weight"},
		{"llama.feed_forward_length", 4, 192, "ffn_gate"},
		{"llama.attention.head_count", 4, 0, "head_count"},
		{"llama.attention.head_count", 4, 5, "5 heads"},
		{"llama.attention.head_count_kv", 4, 3, "3 heads of keys"},
		{"llama.attention.head_count_kv", 4, 8, "head_count_kv"},
		{"llama.context_length", 4, 0, "context_length"},
		{"llama.context_length", 4, UINT32_MAX, "context_length"},
		{"llama.rope.dimension_count", 4, 18, "dimension_count"},
		{"llama.rope.freq_base", 4, 0, "freq_base"},
		{"llama.rope.freq_base", 4, 0x7fc00000, "freq_base"}, // no number
		{"llama.rope.freq_base", 4, 0x3f800000, "freq_base"}, // 1
		{"llama.attention.layer_norm_rms_epsilon", 4, 0, "epsilon"},
		{"token_embd.weight", 4 + 8, 511, "a vocabulary of 512 tokens does not fit the 511 rows"},
		{"blk.0.attn_q.weight", 4, 32, "blk.0.attn_q.weight has 64 rows of 32, not 64 of 64"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct error error = {0};
		enum status status = try_changed(cases[i].key, NULL, cases[i].behind, cases[i].number, &error);
		if (!status || !strstr(error.message, cases[i].word))
			fail_msg("%s %u: %s (%s), not \"%s\"", cases[i].key, cases[i].number, status_word(status),
				 error.message, cases[i].word);
	}
	// A matrix in another format that we know is none of the family's business.
	struct error error = {0};
	assert_int_equal(try_changed("blk.0.attn_q.weight", NULL, 4 + 16, 2, &error), STATUS_OK);
	// A vector that is not F32, and a matrix in a format that is not known, are named.
	assert_int_equal(try_changed("blk.0.attn_norm.weight", NULL, 4 + 8, 1, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "blk.0.attn_norm.weight in F16"));
	error = (struct error){0};
	assert_int_equal(try_changed("blk.0.attn_q.weight", NULL, 4 + 16, 11, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "blk.0.attn_q.weight in Q3_K"));
	error = (struct error){0};
	assert_int_equal(try_changed("blk.0.attn_q.weight", NULL, 4 + 16, 4711, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "number 4711"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_family_and_format),
		cmocka_unit_test(test_positions),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_convert),
		cmocka_unit_test(test_features),
		cmocka_unit_test(test_experts),
		cmocka_unit_test(test_experts_refused),
		cmocka_unit_test(test_recurrent),
		cmocka_unit_test(test_recurrent_refused),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_vocabulary),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
