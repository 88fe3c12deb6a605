/* See tensors.h. */
#include "server/convert/tensors_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tensor_rule outer[] = {
	{"model.embed_tokens.weight", "token_embd.weight", KIND_MATRIX, IN_ALL},
	{"model.norm.weight", "output_norm.weight", KIND_NORM, IN_ALL},
	{"lm_head.weight", "output.weight", KIND_MATRIX, IN_ALL},
};
static const struct tensor_rule inner[] = {
	{"input_layernorm.weight", "attn_norm.weight", KIND_NORM, IN_ALL},
	{"self_attn.q_proj.weight", "attn_q.weight", KIND_Q, IN_ALL},
	{"self_attn.q_proj.bias", "attn_q.bias", KIND_Q, IN_ALL},
	{"self_attn.k_proj.weight", "attn_k.weight", KIND_K, IN_ALL},
	{"self_attn.k_proj.bias", "attn_k.bias", KIND_K, IN_ALL},
	{"self_attn.v_proj.weight", "attn_v.weight", KIND_MATRIX, IN_ALL},
	{"self_attn.v_proj.bias", "attn_v.bias", KIND_VECTOR, IN_ALL},
	{"self_attn.qkv_proj.weight", "attn_qkv.weight", KIND_MATRIX, IN_ALL},
	{"self_attn.q_norm.weight", "attn_q_norm.weight", KIND_NORM, IN_ALL},
	{"self_attn.k_norm.weight", "attn_k_norm.weight", KIND_NORM, IN_ALL},
	{"self_attn.o_proj.weight", "attn_output.weight", KIND_MATRIX, IN_ALL},
	{"post_attention_layernorm.weight", "ffn_norm.weight", KIND_NORM, WITHOUT_POST_NORMS},
	{"post_attention_layernorm.weight", "post_attention_norm.weight", KIND_NORM, WITH_POST_NORMS},
	{"pre_feedforward_layernorm.weight", "ffn_norm.weight", KIND_NORM, WITH_POST_NORMS},
	{"post_feedforward_layernorm.weight", "post_ffw_norm.weight", KIND_NORM, WITH_POST_NORMS},
	{"mlp.gate_proj.weight", "ffn_gate.weight", KIND_MATRIX, IN_ALL},
	{"mlp.up_proj.weight", "ffn_up.weight", KIND_MATRIX, IN_ALL},
	{"mlp.gate_up_proj.weight", "ffn_up.weight", KIND_MATRIX, IN_ALL},
	{"mlp.down_proj.weight", "ffn_down.weight", KIND_MATRIX, IN_ALL},
	{"mlp.gate.weight", "ffn_gate_inp.weight", KIND_ROUTER, IN_ALL},
	{"mlp.experts.#.gate_proj.weight", "ffn_gate_exps.weight", KIND_EXPERTS, IN_ALL},
	{"mlp.experts.#.up_proj.weight", "ffn_up_exps.weight", KIND_EXPERTS, IN_ALL},
	{"mlp.experts.#.down_proj.weight", "ffn_down_exps.weight", KIND_EXPERTS, IN_ALL},
};
static const char *const factor_names[FACTORS_KINDS] = {
	[FACTORS_ALL] = "rope_freqs.weight",
	[FACTORS_SHORT] = "rope_factors_short.weight",
	[FACTORS_LONG] = "rope_factors_long.weight",
};

static bool is_outer(const struct tensor_rule *rule)
{
	return rule >= outer && rule < outer + sizeof outer / sizeof *outer;
}

uint32_t tensors_pieces(const struct tensor_plan *plan, const struct tensor_rule *rule)
{
	return rule->kind == KIND_EXPERTS ? plan->config->experts : 1;
}

const struct safetensor *tensors_source(const struct tensor_plan *plan, const struct tensor_rule *rule, uint32_t layer,
					uint32_t expert)
{
	char name[SAFETENSORS_NAME_BYTES];
	const char *number = strchr(rule->from, '#');
	if (is_outer(rule))
		snprintf(name, sizeof name, "%s", rule->from);
	else if (number)
		snprintf(name, sizeof name, "model.layers.%u.%.*s%u%s", layer, (int)(number - rule->from), rule->from,
			 expert, number + 1);
	else
		snprintf(name, sizeof name, "model.layers.%u.%s", layer, rule->from);
	return safetensors_find(plan->from, name);
}

// ---- one tensor ----

static enum status wrong(struct error *error, const struct safetensor *tensor, const char *what)
{
	return error_set(error, STATUS_INVALID_PARAMS, "the tensor %.80s %s", tensor->name, what);
}

static enum status check_type(const struct safetensor *tensor, struct error *error)
{
	if (tensor->format)
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "the tensor %.80s is of the type %s, which is not converted", tensor->name,
		  tensor->type);
	error_hint(error, "F32, F16 and BF16 are converted; of a quantised model add a GGUF file");
	return STATUS_UNAVAILABLE;
}

// Each piece is like the first, and is used.
static enum status use_pieces(struct tensor_plan *plan, const struct planned_tensor *planned,
			      const struct safetensor *first, struct error *error)
{
	const uint32_t pieces = tensors_pieces(plan, planned->rule);
	for (uint32_t i = 0; i < pieces; i++) {
		const struct safetensor *piece = tensors_source(plan, planned->rule, planned->layer, i);
		if (!piece)
			return error_set(error, STATUS_INVALID_PARAMS, "the tensor like %.80s of expert %u is missing",
					 first->name, i);
		if (piece->format != first->format || piece->dimension_count != first->dimension_count ||
		    memcmp(piece->size, first->size, sizeof first->size) != 0)
			return wrong(error, piece, "has another type or shape than that of the first expert");
		plan->used[piece - plan->from->tensors] = true;
	}
	return STATUS_OK;
}

static bool is_vector(enum tensor_kind kind)
{
	return kind == KIND_VECTOR || kind == KIND_NORM;
}

static enum status describe(const struct tensor_plan *plan, const struct tensor_rule *rule,
			    const struct safetensor *from, struct gguf_tensor *out, struct error *error)
{
	static const uint32_t types[FORMAT_COUNT] = {[FORMAT_F32] = 0, [FORMAT_F16] = 1, [FORMAT_BF16] = 30};
	const unsigned dimensions = from->dimension_count;
	const bool heads = rule->kind == KIND_Q || rule->kind == KIND_K;
	if (check_type(from, error))
		return STATUS_UNAVAILABLE;
	if (dimensions != (is_vector(rule->kind) ? 1u : 2u) && !(heads && dimensions == 1))
		return wrong(error, from, "has another number of dimensions than is expected");
	if (!from->bytes)
		return wrong(error, from, "is empty");
	const uint32_t of_heads = rule->kind == KIND_Q ? plan->config->heads : plan->config->kv_heads;
	if (heads && from->size[0] != (uint64_t)of_heads * plan->config->head_size)
		return wrong(error, from, "has another number of rows than the heads of config.json");
	const bool narrow = dimensions == 1 || rule->kind == KIND_ROUTER;
	out->format = narrow ? FORMAT_F32 : from->format;
	out->type = types[out->format];
	out->dimension_count = dimensions;
	out->size[1] = out->size[2] = out->size[3] = 1;
	for (unsigned d = 0; d < dimensions; d++)
		out->size[d] = from->size[dimensions - 1 - d];
	if (rule->kind == KIND_EXPERTS) {
		out->size[2] = plan->config->experts;
		out->dimension_count = 3;
	}
	uint64_t values = from->bytes / (from->format == FORMAT_F32 ? 4 : 2);
	if (__builtin_mul_overflow(values, tensors_pieces(plan, rule), &values) ||
	    __builtin_mul_overflow(values, out->format == FORMAT_F32 ? 4 : 2, &out->bytes) || out->bytes >> 48)
		return wrong(error, from, "is too large");
	return STATUS_OK;
}

static struct planned_tensor *next(struct tensor_plan *plan, struct error *error)
{
	if (plan->count < plan->capacity)
		return &plan->tensors[plan->count];
	const size_t capacity = plan->capacity ? 2 * plan->capacity : 256;
	struct planned_tensor *tensors = realloc(plan->tensors, capacity * sizeof *tensors);
	if (!tensors) {
		error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the tensors of a model");
		return NULL;
	}
	plan->tensors = tensors;
	plan->capacity = capacity;
	return &tensors[plan->count];
}

// If the directory has it.
static enum status plan_one(struct tensor_plan *plan, const struct tensor_rule *rule, uint32_t layer,
			    struct error *error)
{
	const struct safetensor *from = tensors_source(plan, rule, layer, 0);
	if (!from || (rule->in == WITH_POST_NORMS && !plan->config->family->post_norms) ||
	    (rule->in == WITHOUT_POST_NORMS && plan->config->family->post_norms))
		return STATUS_OK;
	struct planned_tensor *planned = next(plan, error);
	if (!planned)
		return STATUS_OUT_OF_MEMORY;
	*planned = (struct planned_tensor){.rule = rule, .layer = layer};
	enum status status = describe(plan, rule, from, &planned->tensor, error);
	if (!status)
		status = use_pieces(plan, planned, from, error);
	if (is_outer(rule))
		snprintf(planned->tensor.name, sizeof planned->tensor.name, "%s", rule->to);
	else
		snprintf(planned->tensor.name, sizeof planned->tensor.name, "blk.%u.%s", layer, rule->to);
	plan->count += !status;
	return status;
}

static enum status plan_factors(struct tensor_plan *plan, struct error *error)
{
	for (enum config_factors kind = 0; kind < FACTORS_KINDS; kind++) {
		const uint32_t count = plan->config->factors[kind].count;
		struct planned_tensor *planned = count ? next(plan, error) : NULL;
		if (!count)
			continue;
		if (!planned)
			return STATUS_OUT_OF_MEMORY;
		*planned = (struct planned_tensor){.factors = kind,
						   .tensor = {.format = FORMAT_F32,
							      .dimension_count = 1,
							      .size = {count, 1, 1, 1},
							      .bytes = 4ull * count}};
		snprintf(planned->tensor.name, sizeof planned->tensor.name, "%s", factor_names[kind]);
		plan->count++;
	}
	return STATUS_OK;
}

// ---- all of them ----

static bool is_idle(const struct tensor_plan *plan, const struct safetensor *tensor)
{
	static const char frequencies[] = "rotary_emb.inv_freq"; // old files keep what follows from config.json
	const size_t length = strlen(tensor->name), tail = sizeof frequencies - 1;
	return (plan->config->tied && !strcmp(tensor->name, "lm_head.weight")) ||
	       (length >= tail && !strcmp(tensor->name + length - tail, frequencies));
}

// A tensor that is left over would change the result.
static enum status refuse_others(const struct tensor_plan *plan, struct error *error)
{
	for (size_t i = 0; i < plan->from->count; i++) {
		const struct safetensor *tensor = &plan->from->tensors[i];
		if (plan->used[i] || is_idle(plan, tensor))
			continue;
		error_set(error, STATUS_UNAVAILABLE, "the tensor %.80s is not converted of the architecture %s",
			  tensor->name, plan->config->family->name);
		error_hint(error, "add a GGUF file of this model: docs/models.md says what is computed");
		return STATUS_UNAVAILABLE;
	}
	return STATUS_OK;
}

static void count_bytes(struct tensor_plan *plan)
{
	uint64_t formats[FORMAT_COUNT] = {0};
	plan->format = FORMAT_F32;
	for (size_t i = 0; i < plan->count; i++) {
		const struct gguf_tensor *tensor = &plan->tensors[i].tensor;
		plan->bytes += output_aligned(tensor->bytes, PLAN_ALIGNMENT);
		formats[tensor->format] += tensor->bytes;
		if (formats[tensor->format] > formats[plan->format])
			plan->format = tensor->format;
	}
}

enum status tensors_plan(struct tensor_plan *plan, const struct model_config *config, const struct safetensors *from,
			 struct error *error)
{
	*plan = (struct tensor_plan){.config = config, .from = from, .used = calloc(from->count + 1, sizeof(bool))};
	if (!plan->used)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the tensors of a model");
	const struct safetensor *embedding = safetensors_find(from, outer[0].from);
	if (!embedding || embedding->dimension_count != 2 || !embedding->size[0] ||
	    embedding->size[0] > LIMIT_MODEL_VOCABULARY)
		return error_set(error, STATUS_INVALID_PARAMS, "the model has no usable %s", outer[0].from);
	plan->vocabulary = (uint32_t)embedding->size[0];
	enum status status = STATUS_OK;
	for (size_t i = 0; i < sizeof outer / sizeof *outer && !status; i++)
		if (!config->tied || strcmp(outer[i].from, "lm_head.weight") != 0)
			status = plan_one(plan, &outer[i], 0, error);
	if (!status)
		status = plan_factors(plan, error);
	for (uint32_t layer = 0; layer < config->layers && !status; layer++)
		for (size_t i = 0; i < sizeof inner / sizeof *inner && !status; i++)
			status = plan_one(plan, &inner[i], layer, error);
	if (!status)
		status = refuse_others(plan, error);
	count_bytes(plan);
	return status;
}

void tensor_plan_finish(struct tensor_plan *plan)
{
	free(plan->tensors);
	free(plan->used);
	*plan = (struct tensor_plan){0};
}
