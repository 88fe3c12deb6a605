/* See model_file.h. Scales: a matrix of n columns has numbers of standard deviation 1 / sqrt(n), so that it keeps the
 * size of what it multiplies; those that end in the residual are smaller with the number of layers, so that its size
 * stays about 1; q and k are a little larger, so that attention chooses; and the embedding and the output are twice as
 * large, so that logits differ by more than rounding. */
#include "tests/tools/model_file.h"

#include "engine/model/architecture.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model_file model_file_small(void)
{
	return (struct model_file){
		.family = FAMILY_LLAMA,
		.layers = 2,
		.embedding = 64,
		.feed_forward = 160,
		.heads = 4,
		.kv_heads = 2,
		.vocabulary = 512,
		.context = 256,
		.format = FORMAT_Q8_0,
		.words = WORDS_PIECES,
		.seed = 1,
	};
}

// ---- the keys ----

static void put_count(struct gguf_writer *writer, const struct model_file *file, const char *name, uint32_t value)
{
	char key[80];
	snprintf(key, sizeof(key), "%s.%s", model_family_name(file->family), name);
	gguf_put_u32(writer, key, value);
}

static void put_real(struct gguf_writer *writer, const struct model_file *file, const char *name, float value)
{
	char key[80];
	snprintf(key, sizeof(key), "%s.%s", model_family_name(file->family), name);
	gguf_put_f32(writer, key, value);
}

static void put_scaling(struct gguf_writer *writer, const struct model_file *file)
{
	char key[80];
	if (file->scaling != SCALING_LINEAR && file->scaling != SCALING_YARN)
		return;
	snprintf(key, sizeof(key), "%s.rope.scaling.type", model_family_name(file->family));
	gguf_put_text(writer, key, file->scaling == SCALING_YARN ? "yarn" : "linear");
	put_real(writer, file, "rope.scaling.factor", 4);
	put_count(writer, file, "rope.scaling.original_context_length", file->context / 4);
}

static struct model_delta delta_of(const struct model_file *file, uint32_t head_size)
{
	const struct model_delta usual = {.key_heads = file->kv_heads,
					  .heads = file->heads,
					  .key_size = head_size,
					  .value_size = head_size,
					  .kernel = 4};
	return file->delta.heads ? file->delta : usual;
}

static void put_keys(struct gguf_writer *writer, const struct model_file *file, uint32_t head_size)
{
	gguf_put_text(writer, "general.architecture", model_family_name(file->family));
	gguf_put_text(writer, "general.type", "model");
	gguf_put_text(writer, "general.name", file->name ? file->name : "random");
	put_count(writer, file, "block_count", file->layers);
	put_count(writer, file, "context_length", file->context);
	put_count(writer, file, "embedding_length", file->embedding);
	put_count(writer, file, "feed_forward_length", file->feed_forward);
	if (file->experts) {
		put_count(writer, file, "expert_count", file->experts);
		put_count(writer, file, "expert_used_count", file->experts_used);
		put_count(writer, file, "expert_feed_forward_length", file->expert_width);
		if (architecture_of(file->family)->shared_experts)
			put_count(writer, file, "expert_shared_feed_forward_length", file->feed_forward);
	}
	put_count(writer, file, "attention.head_count", file->heads);
	put_count(writer, file, "attention.head_count_kv", file->kv_heads);
	if (head_size * file->heads != file->embedding) {
		put_count(writer, file, "attention.key_length", head_size);
		put_count(writer, file, "attention.value_length", head_size);
	}
	if (architecture_of(file->family)->recurrent) {
		const struct model_delta delta = delta_of(file, head_size);
		put_count(writer, file, "ssm.group_count", delta.key_heads);
		put_count(writer, file, "ssm.time_step_rank", delta.heads);
		put_count(writer, file, "ssm.state_size", delta.key_size);
		put_count(writer, file, "ssm.inner_size", delta.heads * delta.value_size);
		put_count(writer, file, "ssm.conv_kernel", delta.kernel);
	}
	put_real(writer, file, "attention.layer_norm_rms_epsilon", file->norm_epsilon > 0 ? file->norm_epsilon : 1e-5f);
	put_count(writer, file, "rope.dimension_count", file->rope_size ? file->rope_size : head_size);
	put_real(writer, file, "rope.freq_base", file->rope_base != 0 ? file->rope_base : 10000);
	put_scaling(writer, file);
	put_count(writer, file, "vocab_size", file->vocabulary);
	model_words_put(writer, file->words, file->vocabulary, file->chat_template);
}

// ---- the tensors ----

struct planning {
	const struct model_file *file;
	struct gguf_writer *writer;
	struct model_file_plan *plan;
	unsigned matrices;
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void add(struct planning *planning, const struct model_file_tensor *tensor)
{
	struct model_file_plan *plan = planning->plan;
	struct model_file_tensor *added = &plan->tensors[plan->count++];
	*added = *tensor;
	added->place = gguf_put_experts(planning->writer, tensor->name, tensor->format, tensor->columns,
					tensor->experts ? tensor->rows / tensor->experts : tensor->rows,
					tensor->experts);
	added->bytes = format_row_bytes(tensor->format, tensor->columns) * (tensor->rows ? tensor->rows : 1);
	added->seed = planning->file->seed;
	for (const char *c = tensor->name; *c; c++)
		added->seed = mix(added->seed ^ (uint8_t)*c);
}

// llama.cpp's rule for its Q4_K_M: the first and the last eighth of the layers, and of the others every third.
static bool takes_more_bits(const struct model_file *file, const char *name)
{
	unsigned layer;
	const unsigned eighth = file->layers / 8;
	if (sscanf(name, "blk.%u.", &layer) != 1 || (!strstr(name, ".attn_v.") && !strstr(name, ".ffn_down")))
		return false;
	return layer < eighth || layer >= 7 * file->layers / 8 || (layer - eighth) % 3 == 2;
}

static void add_experts(struct planning *planning, const char *name, uint64_t rows, uint64_t columns, double scale,
			enum tensor_format format, uint32_t experts)
{
	const struct model_file *file = planning->file;
	if (!format)
		format = file->mixed
				 ? (enum tensor_format)(FORMAT_F32 + planning->matrices++ % (FORMAT_COUNT - FORMAT_F32))
			 : file->more_format && takes_more_bits(file, name) ? file->more_format
									    : file->format;
	if (!format_row_bytes(format, columns))
		format = FORMAT_Q8_0;
	if (!format_row_bytes(format, columns))
		format = FORMAT_F16;
	struct model_file_tensor tensor = {.format = format,
					   .rows = rows,
					   .columns = columns,
					   .scale = (float)(scale / sqrt((double)columns)),
					   .experts = experts};
	snprintf(tensor.name, sizeof(tensor.name), "%s", name);
	add(planning, &tensor);
}

static void add_matrix(struct planning *planning, const char *name, uint64_t rows, uint64_t columns, double scale,
		       enum tensor_format format)
{
	add_experts(planning, name, rows, columns, scale, format, 0);
}

static void add_vector(struct planning *planning, const char *name, uint64_t columns, enum model_file_kind kind,
		       float scale)
{
	struct model_file_tensor tensor = {.kind = kind, .format = FORMAT_F32, .columns = columns, .scale = scale};
	snprintf(tensor.name, sizeof(tensor.name), "%s", name);
	add(planning, &tensor);
}

// Scores are spread wide, so that rounding seldom decides which experts are chosen, and then of one of little weight.
static void add_mixture(struct planning *planning, uint32_t layer, double residual)
{
	const struct model_file *file = planning->file;
	const struct architecture *architecture = architecture_of(file->family);
	const uint32_t experts = file->experts, each = file->expert_width;
	char name[GGUF_NAME_BYTES];
#define NAME(text) (snprintf(name, sizeof(name), "blk.%" PRIu32 "." text, layer), name)
	add_matrix(planning, NAME("ffn_gate_inp.weight"), experts, file->embedding, 4, FORMAT_F32);
	add_experts(planning, NAME("ffn_gate_exps.weight"), (uint64_t)experts * each, file->embedding, 1,
		    FORMAT_UNKNOWN, experts);
	add_experts(planning, NAME("ffn_up_exps.weight"), (uint64_t)experts * each, file->embedding, 1, FORMAT_UNKNOWN,
		    experts);
	add_experts(planning, NAME("ffn_down_exps.weight"), (uint64_t)experts * file->embedding, each, 2 * residual,
		    FORMAT_UNKNOWN, experts);
	if (!architecture->shared_experts)
		return;
	if (architecture->shared_gate)
		add_vector(planning, NAME("ffn_gate_inp_shexp.weight"), file->embedding, KIND_BIAS,
			   1 / sqrtf((float)file->embedding));
	add_matrix(planning, NAME("ffn_gate_shexp.weight"), file->feed_forward, file->embedding, 1, FORMAT_UNKNOWN);
	add_matrix(planning, NAME("ffn_up_shexp.weight"), file->feed_forward, file->embedding, 1, FORMAT_UNKNOWN);
	add_matrix(planning, NAME("ffn_down_shexp.weight"), file->embedding, file->feed_forward, 2 * residual,
		   FORMAT_UNKNOWN);
#undef NAME
}

// What stands in the place of attention in layers with a state.
static void add_delta(struct planning *planning, uint32_t layer, uint32_t head_size)
{
	const struct model_file *file = planning->file;
	const struct model_delta delta = delta_of(file, head_size);
	const uint64_t values = (uint64_t)delta.heads * delta.value_size, channels = model_delta_channels(&delta);
	char name[GGUF_NAME_BYTES];
#define NAME(text) (snprintf(name, sizeof(name), "blk.%" PRIu32 "." text, layer), name)
	add_matrix(planning, NAME("attn_qkv.weight"), channels, file->embedding, 1, FORMAT_UNKNOWN);
	add_matrix(planning, NAME("attn_gate.weight"), values, file->embedding, 1, FORMAT_UNKNOWN);
	add_matrix(planning, NAME("ssm_beta.weight"), delta.heads, file->embedding, 1, FORMAT_UNKNOWN);
	add_matrix(planning, NAME("ssm_alpha.weight"), delta.heads, file->embedding, 1, FORMAT_UNKNOWN);
	add_matrix(planning, NAME("ssm_conv1d.weight"), channels, delta.kernel, 1, FORMAT_F32);
	add_vector(planning, NAME("ssm_a"), delta.heads, KIND_DECAY, 1.5f);
	add_vector(planning, NAME("ssm_dt.bias"), delta.heads, KIND_BIAS, 0.3f);
	add_vector(planning, NAME("ssm_norm.weight"), delta.value_size, KIND_NORM, 0.3f);
	add_matrix(planning, NAME("ssm_out.weight"), file->embedding, values, 1 / sqrt(2.0 * file->layers),
		   FORMAT_UNKNOWN);
#undef NAME
}

static void add_attention(struct planning *planning, uint32_t layer, uint32_t head_size)
{
	const struct model_file *file = planning->file;
	const bool gated = architecture_of(file->family)->gated_attention;
	const uint64_t q = (uint64_t)file->heads * head_size, kv = (uint64_t)file->kv_heads * head_size;
	char name[GGUF_NAME_BYTES];
#define NAME(text) (snprintf(name, sizeof(name), "blk.%" PRIu32 "." text, layer), name)
	if (architecture_of(file->family)->fused_qkv) {
		add_matrix(planning, NAME("attn_qkv.weight"), q + 2 * kv, file->embedding, 1.2, FORMAT_UNKNOWN);
	} else {
		add_matrix(planning, NAME("attn_q.weight"), gated ? 2 * q : q, file->embedding, 1.4, FORMAT_UNKNOWN);
		add_matrix(planning, NAME("attn_k.weight"), kv, file->embedding, 1.4, FORMAT_UNKNOWN);
		add_matrix(planning, NAME("attn_v.weight"), kv, file->embedding, 1, FORMAT_UNKNOWN);
	}
	if (architecture_of(file->family)->qkv_bias) {
		add_vector(planning, NAME("attn_q.bias"), q, KIND_BIAS, 0.5f);
		add_vector(planning, NAME("attn_k.bias"), kv, KIND_BIAS, 0.5f);
		add_vector(planning, NAME("attn_v.bias"), kv, KIND_BIAS, 0.2f);
	}
	if (architecture_of(file->family)->qk_norm == QK_NORM_HEADS) {
		add_vector(planning, NAME("attn_q_norm.weight"), head_size, KIND_NORM, 0.3f);
		add_vector(planning, NAME("attn_k_norm.weight"), head_size, KIND_NORM, 0.3f);
	}
	add_matrix(planning, NAME("attn_output.weight"), file->embedding, q, 1 / sqrt(2.0 * file->layers),
		   FORMAT_UNKNOWN);
#undef NAME
}

static void add_layer(struct planning *planning, uint32_t layer, uint32_t head_size)
{
	const struct model_file *file = planning->file;
	const struct architecture *architecture = architecture_of(file->family);
	double residual = 1 / sqrt(2.0 * file->layers);
	// silu(gate) * up gets as large as the outlier; what comes down is as large as else.
	double loud = file->outlier > 0 && !layer ? sqrt((double)file->outlier) / 3 : 1;
	char name[GGUF_NAME_BYTES];
#define NAME(text) (snprintf(name, sizeof(name), "blk.%" PRIu32 "." text, layer), name)
	add_vector(planning, NAME("attn_norm.weight"), file->embedding, KIND_NORM, 0.1f);
	if (architecture->recurrent && (layer + 1) % architecture->whole_every)
		add_delta(planning, layer, head_size);
	else
		add_attention(planning, layer, head_size);
	add_vector(planning, architecture->recurrent ? NAME("post_attention_norm.weight") : NAME("ffn_norm.weight"),
		   file->embedding, KIND_NORM, 0.1f);
	if (file->experts) {
		add_mixture(planning, layer, residual);
		return;
	}
	const uint32_t up = architecture->fused_gate_up ? 2 * file->feed_forward : file->feed_forward;
	if (!architecture->fused_gate_up)
		add_matrix(planning, NAME("ffn_gate.weight"), up, file->embedding, loud, FORMAT_UNKNOWN);
	add_matrix(planning, NAME("ffn_up.weight"), up, file->embedding, loud, FORMAT_UNKNOWN);
	add_matrix(planning, NAME("ffn_down.weight"), file->embedding, file->feed_forward, 2 * residual / (loud * loud),
		   FORMAT_UNKNOWN);
#undef NAME
}

void model_file_plan(struct model_file_plan *plan, const struct model_file *file)
{
	struct gguf_writer writer;
	struct planning planning = {.file = file, .writer = &writer, .plan = plan};
	uint32_t head_size = file->head_size ? file->head_size : file->embedding / file->heads;
	*plan = (struct model_file_plan){.tensors = calloc(4 + (size_t)file->layers * 20, sizeof(*plan->tensors))};
	if (!plan->tensors)
		abort();
	gguf_writer_init(&writer, file->alignment ? file->alignment : 32);
	put_keys(&writer, file, head_size);
	add_matrix(&planning, "token_embd.weight", file->vocabulary, file->embedding, 2, file->embedding_format);
	if (file->scaling == SCALING_FACTORS)
		add_vector(&planning, "rope_freqs.weight", (file->rope_size ? file->rope_size : head_size) / 2,
			   KIND_FACTORS, 1);
	for (uint32_t layer = 0; layer < file->layers; layer++)
		add_layer(&planning, layer, head_size);
	add_vector(&planning, "output_norm.weight", file->embedding, KIND_NORM, 0.1f);
	if (!file->tied)
		add_matrix(&planning, "output.weight", file->vocabulary, file->embedding, 2, file->output_format);
	if (file->more)
		file->more(&writer);
	buffer_init(&plan->head, 256 << 20);
	gguf_writer_head(&writer, &plan->head);
	for (size_t i = 0; i < plan->count; i++)
		plan->tensors[i].place += plan->head.length;
	plan->bytes = plan->head.length + writer.data_bytes;
	gguf_writer_finish(&writer);
}

void model_file_plan_finish(struct model_file_plan *plan)
{
	buffer_finish(&plan->head);
	free(plan->tensors);
	*plan = (struct model_file_plan){.tensors = NULL};
}

// Near enough to a normal distribution: the sum of four even ones.
static float normal(uint64_t seed, uint64_t index)
{
	uint64_t bits = mix(seed + index * 0xd1342543de82ef95u);
	int64_t sum = 0;
	for (int i = 0; i < 4; i++)
		sum += (int64_t)(bits >> (16 * i) & 0xffff);
	return (float)(sum - 2 * 0xffff) * (1.0f / 37837.0f);
}

void model_file_numbers(const struct model_file_tensor *tensor, uint64_t first, uint64_t count, float *values)
{
	for (uint64_t i = 0; i < count; i++) {
		float value = tensor->scale * normal(tensor->seed, first + i);
		switch (tensor->kind) {
		case KIND_MATRIX:
			values[i] = f16_to_f32(f32_to_f16(value));
			break;
		case KIND_NORM:
			values[i] = 1 + value;
			break;
		case KIND_BIAS:
			values[i] = value;
			break;
		case KIND_DECAY: // what is forgotten soon beside what is kept for hundreds of tokens
			values[i] = -expf(value - 2);
			break;
		case KIND_FACTORS: // high frequencies stay, low ones are divided by 8
			values[i] = 1 + 7 * (float)(first + i) / (float)tensor->columns;
			break;
		}
	}
}

uint8_t *model_file_make(const struct model_file *file, size_t *length)
{
	struct model_file_plan plan;
	model_file_plan(&plan, file);
	uint8_t *bytes = calloc(1, plan.bytes);
	if (!bytes)
		abort();
	memcpy(bytes, plan.head.data, plan.head.length);
	for (size_t t = 0; t < plan.count; t++) {
		const struct model_file_tensor *tensor = &plan.tensors[t];
		uint64_t rows = tensor->rows ? tensor->rows : 1, row_bytes = tensor->bytes / rows;
		float *values = malloc(tensor->columns * sizeof(*values));
		if (!values)
			abort();
		for (uint64_t row = 0; row < rows; row++) {
			model_file_numbers(tensor, row * tensor->columns, tensor->columns, values);
			format_encode(tensor->format, values, bytes + tensor->place + row * row_bytes, tensor->columns);
		}
		free(values);
	}
	*length = plan.bytes;
	model_file_plan_finish(&plan);
	return bytes;
}

bool model_file_save(const struct model_file *file, const char *path)
{
	size_t length;
	uint8_t *bytes = model_file_make(file, &length);
	FILE *out = fopen(path, "wbe");
	bool done = out && fwrite(bytes, 1, length, out) == length;
	if (out && fclose(out))
		done = false;
	free(bytes);
	return done;
}

void model_file_open(struct model_file_open *out, const struct model_file *file)
{
	struct error error = {0};
	size_t length;
	*out = (struct model_file_open){.bytes = model_file_make(file, &length)};
	if (!gguf_parse(&out->gguf, out->bytes, length, &error) && !model_open(&out->model, out->gguf, &error))
		return;
	fprintf(stderr, "a model file that was just made is refused: %s\n", error.message);
	abort();
}

void model_file_close(struct model_file_open *open)
{
	model_destroy(&open->model);
	gguf_destroy(&open->gguf);
	free(open->bytes);
	*open = (struct model_file_open){.bytes = NULL};
}
