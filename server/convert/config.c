/* See config.h. */
#include "server/convert/config.h"

#include "server/convert/config_inside.h"

#include <math.h>
#include <string.h>

static const struct convert_family families[] = {
	{.class = "LlamaForCausalLM", .name = "llama", .pairs = true},
	{.class = "MistralForCausalLM", .name = "llama", .pairs = true},
	{.class = "Qwen2ForCausalLM", .name = "qwen2"},
	{.class = "Qwen3ForCausalLM", .name = "qwen3"},
	{.class = "Qwen3MoeForCausalLM", .name = "qwen3moe", .experts = true},
	{.class = "Phi3ForCausalLM", .name = "phi3", .window = true},
	{.class = "Gemma3ForCausalLM", .name = "gemma3", .from_one = true, .post_norms = true, .window = true},
};
static const char converted[] = "safetensors are converted of Llama, Mistral, Qwen2, Qwen3, Qwen3MoE, Phi3 and Gemma3 "
				"(text); of others add a GGUF file";

// ---- reading ----

enum status config_refuse(const struct config_reading *in, const char *what)
{
	error_set(in->error, STATUS_UNAVAILABLE, "config.json: a model (%s) with %s, which is not converted here",
		  in->out->family->name, what);
	error_hint(in->error, "add a GGUF file of this model: docs/models.md says what is computed");
	return STATUS_UNAVAILABLE;
}

static enum status wrong(const struct config_reading *in, const char *name, const char *what)
{
	return error_set(in->error, STATUS_INVALID_PARAMS, "config.json: %s %s", name, what);
}

static bool is_there(const struct json *object, const char *name)
{
	const enum json_type type = json_type(json_get(object, name));
	return type != JSON_ABSENT && type != JSON_NULL;
}

// A count from 1 on. 0 as the fallback: it must be there.
static enum status read_count(const struct config_reading *in, const char *name, uint32_t fallback, uint32_t *out)
{
	const double value = json_get_number(in->config, name, NAN);
	*out = fallback;
	if (!is_there(in->config, name))
		return fallback ? STATUS_OK : wrong(in, name, "is missing");
	if (!(value >= 1) || value > INT32_MAX || value != floor(value))
		return wrong(in, name, "is not a count");
	*out = (uint32_t)value;
	return STATUS_OK;
}

const char *config_key(struct config_reading *in, const char *name)
{
	snprintf(in->key, sizeof in->key, "%s.%s", in->out->family->name, name);
	return in->key;
}

// A count that becomes a key.
static enum status put_count(struct config_reading *in, const char *name, const char *key, uint32_t *out)
{
	enum status status = read_count(in, name, *out, out);
	if (!status)
		output_u32(in->keys, config_key(in, key), *out);
	return status;
}

// ---- what is not computed ----

static bool is_silent(const struct json *config, const char *name)
{
	return json_get_number(config, name, 0) == 0 && !json_get_bool(config, name, false);
}

static enum status refuse_features(const struct config_reading *in)
{
	static const char *const effects[] = {"attn_logit_softcapping", "embedding_multiplier", "logits_scaling",
					      "residual_multiplier"};
	const bool gelu = in->out->family->from_one;
	const char *key = gelu ? "hidden_activation" : "hidden_act", *wanted = gelu ? "gelu_pytorch_tanh" : "silu",
		   *given = json_get_string(in->config, key, wanted);
	char what[80];
	if (strcmp(given, wanted) != 0) {
		snprintf(what, sizeof what, "the activation %.40s", given);
		return config_refuse(in, what);
	}
	for (size_t i = 0; i < sizeof effects / sizeof *effects; i++)
		if (!is_silent(in->config, effects[i]))
			return config_refuse(in, effects[i]);
	return STATUS_OK;
}

// ---- windows ----

static bool slides(const struct config_reading *in, uint32_t layer, uint32_t every)
{
	const struct json *types = json_get(in->config, "layer_types"), *one = json_first(types);
	for (uint32_t i = 0; i < layer && one; i++)
		one = json_next(one);
	return one ? !strcmp(json_string(one, ""), "sliding_attention") : (layer + 1) % every != 0;
}

// Gemma 3 has one pattern: every sixth layer sees all positions.
static enum status check_pattern(const struct config_reading *in)
{
	enum { EVERY = 6 };
	uint32_t every = 0;
	enum status status = read_count(in, "sliding_window_pattern", EVERY, &every);
	if (!status && every != EVERY)
		return config_refuse(in, "another pattern of sliding layers");
	for (uint32_t i = 0; i < in->out->layers && i < LIMIT_MODEL_LAYERS && !status; i++)
		if (slides(in, i, EVERY) != ((i + 1) % EVERY != 0))
			status = config_refuse(in, "another pattern of sliding layers");
	return status;
}

// Where windows are not computed, the context ends where they would begin to matter.
static enum status read_window(struct config_reading *in)
{
	uint32_t window = in->out->family->post_norms ? 4096 : 0, context = in->context;
	const bool off = !json_get_bool(in->config, "use_sliding_window", true) ||
			 (!strncmp(in->out->family->name, "qwen", 4) && !is_there(in->config, "use_sliding_window"));
	enum status status = STATUS_OK;
	if (is_there(in->config, "sliding_window") && !off)
		status = read_count(in, "sliding_window", 0, &window);
	if (!status && window && !in->out->family->window)
		context = window < context ? window : context;
	else if (!status && window)
		output_u32(in->keys, config_key(in, "attention.sliding_window"), window);
	if (!status && in->out->family->post_norms)
		status = check_pattern(in);
	output_u32(in->keys, config_key(in, "context_length"), context);
	return status;
}

// ---- parts of some architectures ----

static enum status read_experts(struct config_reading *in)
{
	uint32_t used = 0, width = 0, sparse = 0;
	if (!in->out->family->experts)
		return STATUS_OK;
	enum status status = put_count(in, is_there(in->config, "num_experts") ? "num_experts" : "num_local_experts",
				       "expert_count", &in->out->experts);
	if (!status)
		status = put_count(in, "num_experts_per_tok", "expert_used_count", &used);
	if (!status)
		status = put_count(in, "moe_intermediate_size", "expert_feed_forward_length", &width);
	if (!status)
		status = read_count(in, "decoder_sparse_step", 1, &sparse);
	if (!status && in->out->experts > LIMIT_MODEL_EXPERTS)
		return config_refuse(in, "so many experts (num_experts)");
	if (!status && (sparse != 1 || json_count(json_get(in->config, "mlp_only_layers"))))
		status = config_refuse(in, "experts in only some layers");
	if (!status && !json_get_bool(in->config, "norm_topk_prob", true))
		status = config_refuse(in, "weights of experts that do not add up to 1 (norm_topk_prob)");
	return status;
}

// Gemma 3 scales scores by a number of its own, which is the head's size but in the largest model.
static enum status check_scale(const struct config_reading *in)
{
	enum { LAYERS_OF_27B = 62 };
	const struct model_config *out = in->out;
	const double scalar = json_get_number(in->config, "query_pre_attn_scalar", 256),
		     usual = out->layers == LAYERS_OF_27B ? (double)out->width / out->heads : out->head_size;
	if (out->family->post_norms && fabs(scalar - usual) > 1e-6)
		return config_refuse(in, "an attention scale of its own (query_pre_attn_scalar)");
	return STATUS_OK;
}

static enum status read_numbers(struct config_reading *in)
{
	const char *epsilon = "rms_norm_eps";
	const double value = json_get_number(in->config, epsilon, 1e-6),
		     cap = json_get_number(in->config, "final_logit_softcapping", 0);
	if (!(value > 0) || value > 1)
		return wrong(in, epsilon, "is not a small positive number");
	output_f32(in->keys, config_key(in, "attention.layer_norm_rms_epsilon"), value);
	if (cap > 0 && !in->out->family->post_norms)
		return config_refuse(in, "capped logits (final_logit_softcapping)");
	if (cap > 0)
		output_f32(in->keys, config_key(in, "final_logit_softcapping"), cap);
	return STATUS_OK;
}

// ---- the whole ----

static enum status find_family(struct config_reading *in)
{
	const char *class = json_string(json_first(json_get(in->config, "architectures")), "");
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		if (!strcmp(families[i].class, class))
			in->out->family = &families[i];
	if (in->out->family)
		return STATUS_OK;
	if (*class)
		error_set(in->error, STATUS_UNAVAILABLE, "config.json: the architecture %.60s is not converted here",
			  class);
	else
		error_set(in->error, STATUS_INVALID_PARAMS,
			  "config.json does not name its architecture "
			  "(architectures)");
	error_hint(in->error, "%s", converted);
	return in->error ? in->error->status : STATUS_UNAVAILABLE;
}

static enum status refuse_quantised(const struct config_reading *in)
{
	const struct json *how = json_get(in->config, "quantization_config");
	if (json_type(how) != JSON_OBJECT)
		return STATUS_OK;
	error_set(in->error, STATUS_UNAVAILABLE,
		  "config.json: the weights are quantised (%.40s), which is not converted",
		  json_get_string(how, "quant_method", "quantization_config"));
	error_hint(in->error, "add the model in F32, F16 or BF16, or a GGUF file of it in the format that you want");
	return STATUS_UNAVAILABLE;
}

static enum status read_sizes(struct config_reading *in)
{
	struct model_config *out = in->out;
	uint32_t inner = 0;
	enum status status = put_count(in, "num_hidden_layers", "block_count", &out->layers);
	if (!status)
		status = put_count(in, "hidden_size", "embedding_length", &out->width);
	if (!status)
		status = put_count(in, "intermediate_size", "feed_forward_length", &inner);
	if (!status)
		status = put_count(in, "num_attention_heads", "attention.head_count", &out->heads);
	out->kv_heads = out->heads;
	if (!status)
		status = put_count(in, "num_key_value_heads", "attention.head_count_kv", &out->kv_heads);
	if (!status && out->layers > LIMIT_MODEL_LAYERS)
		return wrong(in, "num_hidden_layers", "is too large");
	if (!status && !is_there(in->config, "head_dim") && out->width % out->heads)
		return wrong(in, "hidden_size", "is no multiple of num_attention_heads");
	out->head_size = status ? 0 : out->width / out->heads;
	if (!status && !out->head_size)
		return wrong(in, "hidden_size", "is too small");
	if (!status)
		status = put_count(in, "head_dim", "attention.key_length", &out->head_size);
	if (status)
		return status;
	if (out->head_size > LIMIT_MODEL_HEAD_SIZE || out->head_size % 2)
		return wrong(in, "head_dim", "is odd or too large");
	output_u32(in->keys, config_key(in, "attention.value_length"), out->head_size);
	return read_count(in, "max_position_embeddings", 0, &in->context);
}

enum status config_read(const struct json *config, struct model_config *out, struct output_keys *keys,
			struct error *error)
{
	struct config_reading in = {.config = config, .out = out, .keys = keys, .error = error};
	*out = (struct model_config){0};
	enum status status = find_family(&in);
	if (!status)
		status = refuse_quantised(&in);
	if (status)
		return status;
	output_word(keys, "general.architecture", out->family->name);
	output_word(keys, "general.type", "model");
	out->tied = json_get_bool(config, "tie_word_embeddings", out->family->from_one);
	status = refuse_features(&in);
	if (!status)
		status = read_sizes(&in);
	if (!status)
		status = read_window(&in);
	if (!status)
		status = read_numbers(&in);
	if (!status)
		status = read_experts(&in);
	if (!status)
		status = check_scale(&in);
	return status ? status : config_read_rope(&in);
}
