/* See config_inside.h. Older files have rope_theta and rope_scaling, newer ones rope_parameters with both; Gemma 3 has
 * a set of them for each kind of layer. */
#include "server/convert/config_inside.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

struct rope {
	const struct json *scaling; // NULL: there is none
	double base, factor, original;
};

static bool is_positive(double value)
{
	return value > 0 && value < 1e12;
}

static enum status wrong(const struct config_reading *in, const char *what)
{
	return error_set(in->error, STATUS_INVALID_PARAMS, "config.json: positions (rope): %s", what);
}

// Llama 3.1: low frequencies are divided by the factor, high ones stay, with a ramp between.
static enum status read_llama3(struct config_reading *in, const struct rope *rope)
{
	const double low = json_get_number(rope->scaling, "low_freq_factor", 1),
		     high = json_get_number(rope->scaling, "high_freq_factor", 4);
	struct model_config *out = in->out;
	if (!is_positive(low) || !is_positive(high) || high <= low)
		return wrong(in, "low_freq_factor and high_freq_factor are no such numbers");
	out->factors[FACTORS_ALL].count = out->rope_size / 2;
	for (uint32_t i = 0; i < out->rope_size / 2; i++) {
		const double length = 2 * PI * pow(rope->base, 2.0 * i / out->rope_size),
			     turns = rope->original / length;
		const double kept = fmin(1, fmax(0, (turns - low) / (high - low)));
		out->factors[FACTORS_ALL].values[i] = (float)(1 / (kept + (1 - kept) / rope->factor));
	}
	return STATUS_OK;
}

static enum status read_yarn(struct config_reading *in, const struct rope *rope)
{
	static const char *const own[] = {"mscale", "mscale_all_dim"};
	const double usual = 1 + 0.1 * log(fmax(1, rope->factor)),
		     attention = json_get_number(rope->scaling, "attention_factor", usual);
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (json_get_number(rope->scaling, own[i], 0) > 0)
			return config_refuse(in, "YaRN with mscale");
	if (!json_get_bool(rope->scaling, "truncate", true))
		return config_refuse(in, "YaRN without rounding (truncate)");
	if (!is_positive(attention))
		return wrong(in, "attention_factor is not a positive number");
	output_word(in->keys, config_key(in, "rope.scaling.type"), "yarn");
	output_f32(in->keys, config_key(in, "rope.scaling.factor"), rope->factor);
	output_u32(in->keys, config_key(in, "rope.scaling.original_context_length"), (uint32_t)rope->original);
	output_f32(in->keys, config_key(in, "rope.scaling.yarn_beta_fast"),
		   json_get_number(rope->scaling, "beta_fast", 32));
	output_f32(in->keys, config_key(in, "rope.scaling.yarn_beta_slow"),
		   json_get_number(rope->scaling, "beta_slow", 1));
	output_f32(in->keys, config_key(in, "rope.scaling.yarn_attn_factor"), attention / usual);
	return STATUS_OK;
}

static enum status read_factors(struct config_reading *in, const struct rope *rope, const char *name,
				enum config_factors kind)
{
	const struct json *list = json_get(rope->scaling, name);
	if (json_count(list) != in->out->rope_size / 2)
		return wrong(in, "there are not as many factors as a head has pairs (short_factor, long_factor)");
	for (const struct json *one = json_first(list); one; one = json_next(one)) {
		if (!is_positive(json_number(one, 0)))
			return wrong(in, "a factor is not a positive number");
		in->out->factors[kind].values[in->out->factors[kind].count++] = (float)json_number(one, 0);
	}
	return STATUS_OK;
}

// Phi 3: the factor is how much longer the context is than the original one.
static enum status read_longrope(struct config_reading *in, struct rope *rope)
{
	if (strcmp(in->out->family->name, "phi3") != 0)
		return config_refuse(in, "LongRoPE");
	const double longer = in->context / rope->original,
		     usual = longer > 1 ? sqrt(1 + log(longer) / log(rope->original)) : 1;
	const double attention = json_get_number(rope->scaling, "attention_factor", usual);
	if (!is_positive(attention))
		return wrong(in, "attention_factor is not a positive number");
	output_word(in->keys, config_key(in, "rope.scaling.type"), "longrope");
	output_u32(in->keys, config_key(in, "rope.scaling.original_context_length"), (uint32_t)rope->original);
	output_f32(in->keys, config_key(in, "rope.scaling.attn_factor"), attention);
	const enum status status = read_factors(in, rope, "short_factor", FACTORS_SHORT);
	return status ? status : read_factors(in, rope, "long_factor", FACTORS_LONG);
}

static enum status read_scaling(struct config_reading *in, struct rope *rope)
{
	char what[80];
	const char *type = json_get_string(rope->scaling, "rope_type", NULL);
	type = type ? type : json_get_string(rope->scaling, "type", "default");
	if (!strcmp(type, "default"))
		return STATUS_OK;
	rope->factor = json_get_number(rope->scaling, "factor", 1);
	rope->original = json_get_number(rope->scaling, "original_max_position_embeddings",
					 json_get_number(in->config, "original_max_position_embeddings", in->context));
	if (!is_positive(rope->factor) || !(rope->original >= 2) || rope->original > LIMIT_MODEL_CONTEXT)
		return wrong(in, "factor or original_max_position_embeddings is out of range");
	if (!strcmp(type, "llama3"))
		return read_llama3(in, rope);
	if (!strcmp(type, "yarn"))
		return read_yarn(in, rope);
	if (!strcmp(type, "longrope") || !strcmp(type, "su"))
		return read_longrope(in, rope);
	if (!strcmp(type, "linear")) {
		output_word(in->keys, config_key(in, "rope.scaling.type"), "linear");
		output_f32(in->keys, config_key(in, "rope.scaling.factor"), rope->factor);
		return STATUS_OK;
	}
	snprintf(what, sizeof what, "positions scaled by \"%.40s\"", type);
	return config_refuse(in, what);
}

// Gemma 3: the base of layers that slide is the architecture's.
static enum status check_local(const struct config_reading *in, const struct json *parameters)
{
	const struct json *local = json_get(parameters, "sliding_attention");
	const double base = json_get_number(local, "rope_theta",
					    json_get_number(in->config, "rope_local_base_freq", 10000));
	if (in->out->family->post_norms &&
	    (fabs(base - 10000) > 0 || strcmp(json_get_string(local, "rope_type", "default"), "default") != 0))
		return config_refuse(in, "other positions in layers that slide");
	return STATUS_OK;
}

enum status config_read_rope(struct config_reading *in)
{
	const struct json *parameters = json_get(in->config, "rope_parameters"),
			  *whole = json_get(parameters, "full_attention");
	struct model_config *out = in->out;
	const bool gemma = out->family->post_norms;
	const enum status status = check_local(in, parameters);
	if (status)
		return status;
	parameters = whole ? whole : parameters;
	struct rope rope = {.scaling = parameters ? parameters : json_get(in->config, "rope_scaling")};
	rope.base = json_get_number(parameters, "rope_theta",
				    json_get_number(in->config, "rope_theta", gemma ? 1000000 : 10000));
	const double part = json_get_number(parameters, "partial_rotary_factor",
					    json_get_number(in->config, "partial_rotary_factor", 1));
	if (!(rope.base > 1) || rope.base > 1e12)
		return wrong(in, "rope_theta is no number above 1");
	if (!(part > 0) || part > 1)
		return wrong(in, "partial_rotary_factor is no number from 0 to 1");
	out->rope_size = (uint32_t)(part * out->head_size);
	if (out->rope_size < 2 || out->rope_size % 2)
		return wrong(in, "an odd number of values of a head would turn (partial_rotary_factor)");
	output_f32(in->keys, config_key(in, "rope.freq_base"), rope.base);
	output_u32(in->keys, config_key(in, "rope.dimension_count"), out->rope_size);
	return read_scaling(in, &rope);
}
