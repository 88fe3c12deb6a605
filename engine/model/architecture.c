/* See architecture.h. The descriptions follow the papers or the published configurations of the models. They contain
 * what a file does not say: which layers slide, gemma's scales. */
#include "engine/model/architecture.h"

#include <stdio.h>
#include <string.h>

static const struct architecture architectures[FAMILY_COUNT] = {
	// Llama 2 and 3, Mistral, TinyLlama, SmolLM; with experts, Mixtral
	[FAMILY_LLAMA] = {.name = "llama", .keys = KEYS_EXPERTS},
	// Qwen 2 and 2.5
	[FAMILY_QWEN2] = {.name = "qwen2", .rope_halves = true, .qkv_bias = true},
	[FAMILY_QWEN3] = {.name = "qwen3", .rope_halves = true, .qk_norm = QK_NORM_HEADS},
	// Phi 3, 3.5 and 4
	[FAMILY_PHI3] =
		{.name = "phi3", .keys = KEYS_WINDOW, .rope_halves = true, .fused_qkv = true, .fused_gate_up = true},
	// Granite 3
	[FAMILY_GRANITE] = {.name = "granite", .keys = KEYS_SCALES},
	[FAMILY_SMOLLM3] = {.name = "smollm3", .unturned_every = 4},
	[FAMILY_OLMO2] =
		{.name = "olmo2", .qk_norm = QK_NORM_WHOLE, .rope_halves = true, .bare_input = true, .post_norm = true},
	[FAMILY_GLM4] = {.name = "glm4", .maybe_bias = true, .post_norm = true, .fused_gate_up = true},
	[FAMILY_GEMMA] = {.name = "gemma", .gate = GATE_GELU, .rope_halves = true, .root_scale = true},
	[FAMILY_GEMMA2] = {.name = "gemma2",
			   .keys = KEYS_WINDOW | KEYS_ATTENTION_CAP | KEYS_LOGIT_CAP,
			   .gate = GATE_GELU,
			   .rope_halves = true,
			   .post_norm = true,
			   .root_scale = true,
			   .needs_window = true,
			   .needs_caps = true,
			   .whole_every = 2,
			   .wide_layers = 46}, // 27B
	[FAMILY_GEMMA3] = {.name = "gemma3",
			   .keys = KEYS_WINDOW | KEYS_LOGIT_CAP,
			   .gate = GATE_GELU,
			   .qk_norm = QK_NORM_HEADS,
			   .rope_halves = true,
			   .post_norm = true,
			   .root_scale = true,
			   .needs_window = true,
			   .whole_every = 6,
			   .local_base = 10000,
			   .wide_layers = 62}, // 27B
	// Qwen 3 30B A3B, 235B A22B, Qwen3-Coder
	[FAMILY_QWEN3MOE] = {.name = "qwen3moe",
			     .keys = KEYS_EXPERTS,
			     .qk_norm = QK_NORM_HEADS,
			     .rope_halves = true,
			     .needs_experts = true},
	// Qwen 1.5 and 2 with experts
	[FAMILY_QWEN2MOE] = {.name = "qwen2moe",
			     .keys = KEYS_EXPERTS,
			     .rope_halves = true,
			     .qkv_bias = true,
			     .needs_experts = true,
			     .expert_share = true,
			     .shared_experts = true,
			     .shared_gate = true},
	// Granite 3 with experts, and with a part for all tokens
	[FAMILY_GRANITEMOE] = {.name = "granitemoe",
			       .keys = KEYS_SCALES | KEYS_EXPERTS,
			       .needs_experts = true,
			       .shared_experts = true},
	[FAMILY_OLMOE] = {.name = "olmoe",
			  .keys = KEYS_EXPERTS,
			  .qk_norm = QK_NORM_WHOLE,
			  .rope_halves = true,
			  .needs_experts = true,
			  .expert_share = true},
	// Qwen 3.5
	[FAMILY_QWEN35] = {.name = "qwen35",
			   .keys = KEYS_FURTHER,
			   .qk_norm = QK_NORM_HEADS,
			   .rope_halves = true,
			   .recurrent = true,
			   .gated_attention = true,
			   .whole_every = 4},
	// Qwen 3.5 with experts
	[FAMILY_QWEN35MOE] = {.name = "qwen35moe",
			      .keys = KEYS_FURTHER | KEYS_EXPERTS,
			      .qk_norm = QK_NORM_HEADS,
			      .rope_halves = true,
			      .recurrent = true,
			      .gated_attention = true,
			      .whole_every = 4,
			      .needs_experts = true,
			      .shared_experts = true,
			      .shared_gate = true},
	// Qwen3-Next 80B A3B, Qwen3-Coder-Next
	[FAMILY_QWEN3NEXT] = {.name = "qwen3next",
			      .keys = KEYS_FURTHER | KEYS_EXPERTS,
			      .qk_norm = QK_NORM_HEADS,
			      .rope_halves = true,
			      .recurrent = true,
			      .grouped_heads = true,
			      .gated_attention = true,
			      .whole_every = 4,
			      .needs_experts = true,
			      .shared_experts = true,
			      .shared_gate = true},
	// LFM2 350M to 2.6B
	[FAMILY_LFM2] =
		{.name = "lfm2", .qk_norm = QK_NORM_HEADS, .rope_halves = true, .recurrent = true, .convolves = true},
	// LFM2 8B A1B
	[FAMILY_LFM2MOE] = {.name = "lfm2moe",
			    .keys = KEYS_EXPERTS | KEYS_ROUTING,
			    .qk_norm = QK_NORM_HEADS,
			    .rope_halves = true,
			    .recurrent = true,
			    .convolves = true,
			    .needs_experts = true,
			    .expert_sigmoid = true},
	// Qwen 2 VL, 2.5 VL and 2.5 Omni (text). A text's positions are the same in all three sections of a head.
	[FAMILY_QWEN2VL] = {.name = "qwen2vl", .rope_halves = true, .qkv_bias = true},
	// Qwen 3 VL (text)
	[FAMILY_QWEN3VL] = {.name = "qwen3vl", .rope_halves = true, .qk_norm = QK_NORM_HEADS},
	[FAMILY_QWEN3VLMOE] = {.name = "qwen3vlmoe",
			       .keys = KEYS_EXPERTS,
			       .qk_norm = QK_NORM_HEADS,
			       .rope_halves = true,
			       .needs_experts = true},
	// Seed-OSS 36B
	[FAMILY_SEED_OSS] = {.name = "seed_oss", .rope_halves = true, .qkv_bias = true, .late_ffn_norm = true},
	// ERNIE 4.5 0.3B
	[FAMILY_ERNIE4_5] = {.name = "ernie4_5"},
	// MiniMax M2 and M2.1
	[FAMILY_MINIMAX_M2] = {.name = "minimax-m2",
			       .keys = KEYS_EXPERTS,
			       .qk_norm = QK_NORM_WHOLE,
			       .rope_halves = true,
			       .needs_experts = true,
			       .expert_sigmoid = true},
	// BERT, all-MiniLM, bge, e5; RoBERTa and XLM-RoBERTa (bge-m3, bge-reranker)
	[FAMILY_BERT] = {.name = "bert", .gate = GATE_NONE, .qkv_bias = true, .encoder = true, .biases = true},
	[FAMILY_NOMIC_BERT] =
		{.name = "nomic-bert", .rope_halves = true, .fused_qkv = true, .encoder = true, .turned = true},
	// gpt-oss 20B and 120B
	[FAMILY_GPT_OSS] = {.name = "gpt-oss",
			    .keys = KEYS_WINDOW | KEYS_EXPERTS,
			    .gate = GATE_CLAMPED,
			    .rope_halves = true,
			    .qkv_bias = true,
			    .output_bias = true,
			    .sinks = true,
			    .needs_window = true,
			    .whole_every = 2,
			    .exact_yarn = true,
			    .needs_experts = true,
			    .expert_bias = true,
			    .late_ffn_norm = true},
	// Ministral 3, and Mistral Small 3.1 and later (text)
	[FAMILY_MISTRAL3] = {.name = "mistral3", .keys = KEYS_TEMPERATURE},
	// GLM 4.5, 4.6 and 4.7, and Air
	[FAMILY_GLM4MOE] = {.name = "glm4moe",
			    .keys = KEYS_EXPERTS | KEYS_ROUTING | KEYS_FURTHER,
			    .qk_norm = QK_NORM_HEADS,
			    .maybe_qk_norm = true,
			    .rope_halves = true,
			    .maybe_bias = true,
			    .needs_experts = true,
			    .expert_sigmoid = true,
			    .shared_experts = true,
			    .late_ffn_norm = true},
	// DeepSeek V2, V2-Lite, V3, R1 and V3.1, Kimi K2, Moonlight, GLM 4.7 Flash
	[FAMILY_DEEPSEEK2] = {.name = "deepseek2",
			      .keys = KEYS_EXPERTS | KEYS_ROUTING | KEYS_FURTHER | KEYS_LATENT,
			      .file_routing = true,
			      .shared_experts = true,
			      .latent = true},
};

const struct architecture *architecture_of(enum model_family family)
{
	return family > FAMILY_UNKNOWN && family < FAMILY_COUNT ? &architectures[family] : NULL;
}

const char *model_family_name(enum model_family family)
{
	return family > FAMILY_UNKNOWN && family < FAMILY_COUNT ? architectures[family].name : "unknown";
}

enum model_family model_family_parse(const char *name)
{
	for (enum model_family family = FAMILY_UNKNOWN + 1; family < FAMILY_COUNT; family++)
		if (!strcmp(architectures[family].name, name))
			return family;
	return FAMILY_UNKNOWN;
}

enum model_task model_task(const struct model_shape *shape)
{
	if (shape->pooling == POOLING_RANK)
		return TASK_RERANK;
	return shape->encoder || shape->pooling ? TASK_EMBEDDING : TASK_TEXT;
}

const char *model_task_name(enum model_task task)
{
	static const char *const names[] = {
		[TASK_TEXT] = "text", [TASK_EMBEDDING] = "embedding", [TASK_RERANK] = "rerank"};
	return names[task];
}

static const char *const poolings[] = {
	[POOLING_MEAN] = "mean", [POOLING_FIRST] = "first", [POOLING_LAST] = "last", [POOLING_RANK] = "rank"};

const char *model_pooling_name(enum model_pooling pooling)
{
	return poolings[pooling];
}

enum model_pooling model_pooling_parse(const char *name)
{
	for (enum model_pooling pooling = POOLING_MEAN; pooling <= POOLING_RANK; pooling++)
		if (!strcmp(poolings[pooling], name))
			return pooling;
	return POOLING_UNKNOWN;
}

void architecture_list(char *out, size_t bytes)
{
	static const char more[] = ", ...";
	size_t used = 0;
	out[0] = 0;
	for (enum model_family family = FAMILY_UNKNOWN + 1; family < FAMILY_COUNT; family++) {
		const char *name = architectures[family].name;
		const bool fits = used + strlen(", ") + strlen(name) + sizeof(more) <= bytes;
		used += (size_t)snprintf(out + used, bytes - used, "%s%s", used && fits ? ", " : "",
					 fits ? name : more);
		if (!fits)
			return;
	}
}

static bool is_attention(enum model_role role)
{
	return role >= ROLE_Q && role <= ROLE_ATTENTION_POST_NORM;
}

static bool is_delta(enum model_role role)
{
	return role >= ROLE_DELTA_QKV && role <= ROLE_DELTA_OUTPUT;
}

static bool is_of_experts(enum model_role role)
{
	return role == ROLE_ROUTER || role == ROLE_SHARED_GATE || model_role_is_experts(role) ||
	       (role >= ROLE_ROUTER_BIAS && role <= ROLE_EXPERT_DOWN_BIAS);
}

bool model_layer_has_role(const struct model_shape *shape, uint32_t layer, enum model_role role)
{
	const bool delta = shape->layer_kinds[layer] & LAYER_DELTA;
	if (shape->layer_kinds[layer] & LAYER_DENSE) {
		if (is_of_experts(role))
			return false;
		if (role == ROLE_FFN_GATE || role == ROLE_FFN_UP || role == ROLE_FFN_DOWN)
			return true;
	}
	return model_has_role(shape, role) && !(delta ? is_attention(role) : is_delta(role));
}

uint32_t model_delta_layers(const struct model_shape *shape, uint32_t first, uint32_t count)
{
	uint32_t layers = 0;
	for (uint32_t i = first; i < first + count && i < shape->layers; i++)
		layers += (shape->layer_kinds[i] & LAYER_DELTA) != 0;
	return layers;
}

bool model_has_role(const struct model_shape *shape, enum model_role role)
{
	switch (role) {
	case ROLE_ATTENTION_NORM:
	case ROLE_FFN_NORM:
		return !shape->bare_input;
	case ROLE_POSITIONS:
		return shape->encoder && !shape->turned;
	case ROLE_TYPES:
		return shape->types;
	case ROLE_EMBEDDING_NORM:
	case ROLE_EMBEDDING_BIAS:
	case ROLE_ATTENTION_POST_BIAS:
	case ROLE_FFN_POST_BIAS:
		return shape->encoder;
	case ROLE_HEAD:
	case ROLE_HEAD_BIAS:
		return shape->head;
	case ROLE_SCORE:
		return shape->pooling == POOLING_RANK;
	case ROLE_SCORE_BIAS:
		return shape->encoder && shape->pooling == POOLING_RANK;
	case ROLE_ATTENTION_OUTPUT_BIAS:
		return shape->biases || shape->output_bias;
	case ROLE_FFN_UP_BIAS:
	case ROLE_FFN_DOWN_BIAS:
		return shape->biases;
	case ROLE_Q_BIAS:
	case ROLE_K_BIAS:
	case ROLE_V_BIAS:
		return shape->qkv_bias;
	case ROLE_Q_NORM:
		return shape->qk_norm != QK_NORM_NONE || shape->latent.query_rank;
	case ROLE_K_NORM:
		return shape->qk_norm != QK_NORM_NONE || model_is_latent(shape);
	case ROLE_Q_A:
		return shape->latent.query_rank;
	case ROLE_K_B:
	case ROLE_V_B:
		return model_is_latent(shape);
	case ROLE_V:
		return !model_is_latent(shape);
	case ROLE_ATTENTION_POST_NORM:
	case ROLE_FFN_POST_NORM:
		return shape->post_norm || shape->encoder;
	case ROLE_FFN_GATE:
		return shape->feed_forward && shape->gate != GATE_NONE;
	case ROLE_FFN_UP:
	case ROLE_FFN_DOWN:
		return shape->feed_forward;
	case ROLE_ROUTER:
	case ROLE_EXPERT_GATE:
	case ROLE_EXPERT_UP:
	case ROLE_EXPERT_DOWN:
		return shape->experts;
	case ROLE_SHARED_GATE:
		return shape->shared_gate;
	case ROLE_DELTA_QKV:
	case ROLE_DELTA_GATE:
	case ROLE_DELTA_BETA:
	case ROLE_DELTA_CONV:
	case ROLE_DELTA_OUTPUT:
		return model_is_recurrent(shape);
	case ROLE_DELTA_DECAY:
	case ROLE_DELTA_BIAS:
	case ROLE_DELTA_NORM:
		return model_is_recurrent(shape) && !model_delta_is_short(&shape->delta);
	case ROLE_DELTA_ALPHA:
		return model_is_recurrent(shape) && !model_delta_is_short(&shape->delta) && !shape->delta.grouped;
	case ROLE_SINKS:
		return shape->sinks;
	case ROLE_ROUTER_CHOICE:
		return shape->experts && shape->expert_sigmoid;
	case ROLE_ROUTER_BIAS:
	case ROLE_EXPERT_GATE_BIAS:
	case ROLE_EXPERT_UP_BIAS:
	case ROLE_EXPERT_DOWN_BIAS:
		return shape->experts && shape->expert_bias;
	case ROLE_OUTPUT_NORM:
	case ROLE_OUTPUT:
		return !shape->encoder;
	case ROLE_TOKEN_EMBEDDING:
	case ROLE_Q:
	case ROLE_K:
	case ROLE_ATTENTION_OUTPUT:
		return true;
	case ROLE_UNKNOWN:
	case ROLE_COUNT:
		break;
	}
	return false;
}

bool model_can_slice(const struct model_shape *shape)
{
	const struct architecture *architecture = architecture_of(shape->family);
	return !shape->encoder && !shape->post_norm && shape->qk_norm != QK_NORM_WHOLE && !shape->experts &&
	       !model_is_recurrent(shape) && !shape->gated_attention && !model_is_latent(shape) &&
	       (!architecture || (!architecture->post_norm && architecture->qk_norm != QK_NORM_WHOLE));
}

static bool each(uint32_t layer, uint32_t every)
{
	return every && (layer + 1) % every == 0;
}

void architecture_shape(const struct architecture *architecture, struct model_shape *shape)
{
	shape->rope_halves = architecture->rope_halves;
	shape->qkv_bias = architecture->qkv_bias;
	shape->output_bias = architecture->output_bias;
	shape->sinks = architecture->sinks;
	shape->expert_bias = architecture->expert_bias;
	shape->qk_norm = architecture->qk_norm;
	shape->gate = architecture->gate;
	shape->bare_input = architecture->bare_input || architecture->encoder;
	shape->encoder = architecture->encoder;
	shape->turned = architecture->turned;
	shape->biases = architecture->biases;
	shape->post_norm = architecture->post_norm;
	if (!architecture->file_routing) {
		shape->expert_share = architecture->expert_share;
		shape->expert_sigmoid = architecture->expert_sigmoid;
	}
	shape->shared_gate = architecture->shared_gate && shape->feed_forward;
	shape->gated_attention = architecture->gated_attention;
	shape->delta.grouped = architecture->grouped_heads;
	shape->rope_local = shape->window && architecture->local_base > 0;
	if (architecture->root_scale)
		shape->embedding_scale = sqrtf((float)shape->embedding);
	if (architecture->wide_layers == shape->layers)
		shape->attention_scale = 1 / sqrtf((float)shape->embedding / (float)shape->heads);
	for (uint32_t layer = 0; layer < shape->layers; layer++) {
		bool whole = each(layer, architecture->whole_every), slides = shape->window && !whole;
		bool delta = architecture->convolves ? shape->layer_kinds[layer] & LAYER_DELTA // as the file says
						     : architecture->recurrent && !whole;
		shape->layer_kinds[layer] = (uint8_t)((slides ? LAYER_SLIDES : 0) | (delta ? LAYER_DELTA : 0) |
						      (slides && shape->rope_local ? LAYER_LOCAL : 0) |
						      (layer < shape->dense_layers ? LAYER_DENSE : 0) |
						      (each(layer, architecture->unturned_every) ? LAYER_UNTURNED : 0));
	}
}

// Rows from `first` on of a tensor that holds `of`.
static struct wanted_tensor part_of(const char *name, uint32_t rows, uint32_t columns, uint32_t first, uint32_t of)
{
	return (struct wanted_tensor){
		.name = name, .rows = rows, .columns = columns, .first_row = first, .of_rows = of};
}

// The tensor of a role in a mixture of experts; false: it is the same as in a dense model.
static bool expert_tensor(const struct model_shape *shape, enum model_role role, struct wanted_tensor *out)
{
	const uint32_t width = shape->embedding, each = shape->expert_width, experts = shape->experts;
	const struct wanted_tensor all[ROLE_COUNT] = {
		[ROLE_ROUTER] = {"ffn_gate_inp.weight", experts, width, .kept = true},
		[ROLE_EXPERT_GATE] = {"ffn_gate_exps.weight", experts * each, width, .experts = experts},
		[ROLE_EXPERT_UP] = {"ffn_up_exps.weight", experts * each, width, .experts = experts},
		[ROLE_EXPERT_DOWN] = {"ffn_down_exps.weight", experts * width, each, .experts = experts},
		[ROLE_FFN_GATE] = {"ffn_gate_shexp.weight", shape->feed_forward, width},
		[ROLE_FFN_UP] = {"ffn_up_shexp.weight", shape->feed_forward, width},
		[ROLE_FFN_DOWN] = {"ffn_down_shexp.weight", width, shape->feed_forward},
		[ROLE_SHARED_GATE] = {"ffn_gate_inp_shexp.weight", 1, width},
		[ROLE_ROUTER_CHOICE] = {"exp_probs_b.bias", 1, experts, true},
		[ROLE_ROUTER_BIAS] = {"ffn_gate_inp.bias", 1, experts, true},
		[ROLE_EXPERT_GATE_BIAS] = {"ffn_gate_exps.bias", experts, each, true},
		[ROLE_EXPERT_UP_BIAS] = {"ffn_up_exps.bias", experts, each, true},
		[ROLE_EXPERT_DOWN_BIAS] = {"ffn_down_exps.bias", experts, width, true},
	};
	*out = all[role];
	return out->name;
}

// The tensor of a role in layers with a state; false: they have no such role.
static bool delta_tensor(const struct model_shape *shape, enum model_role role, struct wanted_tensor *out)
{
	const struct model_delta *delta = &shape->delta;
	const uint32_t width = shape->embedding, values = delta->heads * delta->value_size;
	const struct wanted_tensor all[ROLE_COUNT] = {
		[ROLE_DELTA_QKV] = {"attn_qkv.weight", model_delta_channels(delta), width},
		[ROLE_DELTA_GATE] = {"attn_gate.weight", values, width},
		[ROLE_DELTA_BETA] = {delta->grouped ? "ssm_ba.weight" : "ssm_beta.weight", model_delta_betas(delta),
				     width},
		[ROLE_DELTA_ALPHA] = {"ssm_alpha.weight", delta->heads, width},
		[ROLE_DELTA_CONV] = {"ssm_conv1d.weight", model_delta_channels(delta), delta->kernel, true,
				     .kept = true},
		[ROLE_DELTA_DECAY] = {"ssm_a", 1, delta->heads, true},
		[ROLE_DELTA_BIAS] = {"ssm_dt.bias", 1, delta->heads, true},
		[ROLE_DELTA_NORM] = {"ssm_norm.weight", 1, delta->value_size, true},
		[ROLE_DELTA_OUTPUT] = {"ssm_out.weight", width, values},
		[ROLE_FFN_NORM] = {"post_attention_norm.weight", 1, width, true},
	};
	*out = all[role];
	return out->name;
}

// The same in a model with short convolutions.
static bool short_tensor(const struct model_shape *shape, enum model_role role, struct wanted_tensor *out)
{
	static const char in[] = "shortconv.in_proj.weight"; // b over c over x
	const uint32_t width = shape->embedding;
	const struct wanted_tensor all[ROLE_COUNT] = {
		[ROLE_DELTA_BETA] = part_of(in, width, width, 0, 3 * width),
		[ROLE_DELTA_GATE] = part_of(in, width, width, width, 3 * width),
		[ROLE_DELTA_QKV] = part_of(in, width, width, 2 * width, 3 * width),
		[ROLE_DELTA_CONV] = {"shortconv.conv.weight", width, shape->delta.kernel, true, .kept = true},
		[ROLE_DELTA_OUTPUT] = {"shortconv.out_proj.weight", width, width},
		[ROLE_OUTPUT_NORM] = {"token_embd_norm.weight", 1, width, true},
	};
	*out = all[role];
	return out->name;
}

// The tensor of a role in an encoder; false: it is the same as in other models.
static bool encoder_tensor(const struct model_shape *shape, enum model_role role, struct wanted_tensor *out)
{
	const uint32_t width = shape->embedding;
	const struct wanted_tensor all[ROLE_COUNT] = {
		[ROLE_POSITIONS] = {"position_embd.weight", shape->context, width, .kept = true},
		[ROLE_TYPES] = {"token_types.weight", shape->types, width, .kept = true},
		[ROLE_EMBEDDING_NORM] = {"token_embd_norm.weight", 1, width, true},
		[ROLE_EMBEDDING_BIAS] = {"token_embd_norm.bias", 1, width, true},
		[ROLE_HEAD] = {"cls.weight", width, width, .kept = true},
		[ROLE_HEAD_BIAS] = {"cls.bias", 1, width, true},
		[ROLE_SCORE] = {"cls.output.weight", 1, width, .kept = true},
		[ROLE_SCORE_BIAS] = {"cls.output.bias", 1, 1, true},
		[ROLE_ATTENTION_OUTPUT_BIAS] = {"attn_output.bias", 1, width, true},
		[ROLE_ATTENTION_POST_NORM] = {"attn_output_norm.weight", 1, width, true},
		[ROLE_ATTENTION_POST_BIAS] = {"attn_output_norm.bias", 1, width, true},
		[ROLE_FFN_UP_BIAS] = {"ffn_up.bias", 1, shape->feed_forward, true},
		[ROLE_FFN_DOWN_BIAS] = {"ffn_down.bias", 1, width, true},
		[ROLE_FFN_POST_NORM] = {"layer_output_norm.weight", 1, width, true},
		[ROLE_FFN_POST_BIAS] = {"layer_output_norm.bias", 1, width, true},
	};
	*out = all[role];
	return out->name;
}

bool architecture_tensor(const struct model_shape *shape, enum model_role role, struct wanted_tensor *out)
{
	const struct architecture *architecture = &architectures[shape->family];
	const uint32_t width = shape->embedding, inner = shape->feed_forward, size = shape->head_size;
	const uint32_t q = shape->heads * size, kv = shape->kv_heads * size;
	const bool whole = shape->qk_norm == QK_NORM_WHOLE;
	const struct wanted_tensor all[ROLE_COUNT] = {
		[ROLE_TOKEN_EMBEDDING] = {"token_embd.weight", shape->vocabulary, width},
		[ROLE_OUTPUT_NORM] = {"output_norm.weight", 1, width, true},
		[ROLE_SCORE] = {"cls.output.weight", 2, width, .kept = true},
		[ROLE_OUTPUT] = {shape->tied ? "token_embd.weight" : "output.weight", shape->vocabulary, width},
		[ROLE_ATTENTION_NORM] = {"attn_norm.weight", 1, width, true},
		[ROLE_Q] = {"attn_q.weight", shape->heads * model_query_rows(shape), width},
		[ROLE_K] = {"attn_k.weight", kv, width},
		[ROLE_V] = {"attn_v.weight", kv, width},
		[ROLE_Q_BIAS] = {"attn_q.bias", 1, q, true},
		[ROLE_K_BIAS] = {"attn_k.bias", 1, kv, true},
		[ROLE_V_BIAS] = {"attn_v.bias", 1, kv, true},
		[ROLE_Q_NORM] = {"attn_q_norm.weight", 1, whole ? q : size, true},
		[ROLE_K_NORM] = {"attn_k_norm.weight", 1, whole ? kv : size, true},
		[ROLE_ATTENTION_OUTPUT] = {"attn_output.weight", width, model_attended(shape)},
		[ROLE_ATTENTION_POST_NORM] = {"post_attention_norm.weight", 1, width, true},
		[ROLE_FFN_NORM] = {"ffn_norm.weight", 1, width, true},
		[ROLE_FFN_GATE] = {"ffn_gate.weight", inner, width},
		[ROLE_FFN_UP] = {"ffn_up.weight", inner, width},
		[ROLE_FFN_DOWN] = {"ffn_down.weight", width, inner},
		[ROLE_FFN_POST_NORM] = {"post_ffw_norm.weight", 1, width, true},
		[ROLE_ATTENTION_OUTPUT_BIAS] = {"attn_output.bias", 1, width, true},
		[ROLE_SINKS] = {"attn_sinks.weight", 1, shape->heads, true},
	};
	if (!model_has_role(shape, role))
		return false;
	if (shape->experts && expert_tensor(shape, role, out))
		return true;
	if (model_is_recurrent(shape) &&
	    (model_delta_is_short(&shape->delta) ? short_tensor(shape, role, out) : delta_tensor(shape, role, out)))
		return true;
	if ((shape->encoder && encoder_tensor(shape, role, out)) ||
	    (model_is_latent(shape) && architecture_latent_tensor(shape, role, out)))
		return true;
	*out = all[role];
	if (role == ROLE_FFN_NORM && architecture->late_ffn_norm)
		out->name = "post_attention_norm.weight";
	if (architecture->fused_qkv && role >= ROLE_Q && role <= ROLE_V)
		*out = part_of("attn_qkv.weight", out->rows, width,
			       role == ROLE_Q   ? 0
			       : role == ROLE_K ? q
						: q + kv,
			       q + 2 * kv);
	if (architecture->fused_gate_up && (role == ROLE_FFN_GATE || role == ROLE_FFN_UP))
		*out = part_of("ffn_up.weight", inner, width, role == ROLE_FFN_GATE ? 0 : inner, 2 * inner);
	return true;
}

bool architecture_layer_tensor(const struct model_shape *shape, uint32_t layer, enum model_role role,
			       struct wanted_tensor *out)
{
	if (!model_layer_has_role(shape, layer, role))
		return false;
	if (!(shape->layer_kinds[layer] & LAYER_DENSE))
		return architecture_tensor(shape, role, out);
	struct model_shape dense = *shape;
	dense.experts = 0;
	dense.feed_forward = shape->dense_width;
	return architecture_tensor(&dense, role, out);
}

uint32_t model_vector_length(const struct model_shape *shape, enum model_role role)
{
	struct wanted_tensor wanted;
	return role && architecture_tensor(shape, role, &wanted) && wanted.vector ? wanted.rows * wanted.columns : 0;
}
