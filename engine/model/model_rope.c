/* See model.h: what a file says of rotary positions, and the table of their cosines and sines. */
#include "engine/model/model_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

static const char SHORT_FACTORS[] = "rope_factors_short.weight", LONG_FACTORS[] = "rope_factors_long.weight";

_Static_assert(LIMIT_MODEL_HEAD_SIZE <= 2 * sizeof(((struct model_shape *)0)->rope_frequency) / sizeof(double),
	       "a frequency for each pair of a head");

// Read a positive number; without the key *out stays unchanged.
static enum status read_positive(struct model_opening *opening, const char *name, double *out)
{
	const char *key = model_key(opening, name);
	gguf_get_number(opening->gguf, key, out);
	if (!(*out > 0) || *out > 1e12)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not a positive number", key);
	return STATUS_OK;
}

// YaRN (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, section 3.2): pairs
// that turn often within the original context keep their frequency, those that turn less than once have it divided by
// the factor, with a ramp between; and attention scores are multiplied by a magnitude.
static enum status scale_yarn(struct model_opening *opening, double base, double factor)
{
	struct model_shape *shape = opening->shape;
	double original = shape->context, fast = 32, slow = 1, magnitude = 1;
	enum status status = read_positive(opening, "rope.scaling.original_context_length", &original);
	if (!status)
		status = read_positive(opening, "rope.scaling.yarn_beta_fast", &fast);
	if (!status)
		status = read_positive(opening, "rope.scaling.yarn_beta_slow", &slow);
	if (!status)
		status = read_positive(opening, "rope.scaling.yarn_attn_factor", &magnitude);
	if (!status)
		status = read_positive(opening, "rope.scaling.attn_factor", &magnitude);
	if (status)
		return status;
	double multiplier = 0;
	gguf_get_number(opening->gguf, model_key(opening, "rope.scaling.yarn_log_multiplier"), &multiplier);
	if (!(multiplier >= 0) || multiplier > 1e6)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is no number from 0 on", opening->key);
	// The pair that turns so many times within the original context.
	double per_pair = shape->rope_size / (2 * log(base));
	double first = per_pair * log(original / (fast * 2 * PI));
	double last = per_pair * log(original / (slow * 2 * PI));
	first = opening->architecture->exact_yarn ? first : floor(first);
	last = opening->architecture->exact_yarn ? last : ceil(last);
	first = fmax(first, 0);
	last = fmin(last, shape->rope_size - 1.0);
	for (uint32_t i = 0; i < shape->rope_size / 2; i++) {
		double kept = 1 - fmin(1, fmax(0, (i - first) / fmax(0.001, last - first)));
		shape->rope_frequency[i] *= kept + (1 - kept) / factor;
	}
	const double grown = factor > 1 ? 0.1 * log(factor) : 0; // a context that is not widened has no other magnitude
	if (model_is_latent(shape) && multiplier > 0) {
		// DeepSeek (mscale_all_dim): all of a score grows, not only what turns. Here the key has the multiplier
		// times 0.1, and the magnitude by which positions grow is the same: they do not.
		const double scores = 1 + (factor > 1 ? multiplier * log(factor) : 0);
		shape->attention_scale *= (float)(scores * scores);
		shape->rope_magnitude = (float)magnitude;
		return STATUS_OK;
	}
	// Ministral 3 (mscale_all_dim) divides by the magnitude of another multiplier.
	shape->rope_magnitude = (float)(magnitude * (1 + grown) / (1 + multiplier * grown));
	return STATUS_OK;
}

// Ministral 3 multiplies queries at positions beyond its original context by a factor that grows with the position.
// That is not computed: such a model's context ends where the factor begins to differ from 1.
static enum status end_before_temperature(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	double scale = 0, original = shape->context;
	gguf_get_number(opening->gguf, model_key(opening, "attention.temperature_scale"), &scale);
	if (!(scale != 0))
		return STATUS_OK;
	enum status status = read_positive(opening, "rope.scaling.original_context_length", &original);
	if (!status)
		shape->context = (uint32_t)fmax(1, fmin(original, shape->context));
	return status;
}

static enum status scale_rope(struct model_opening *opening, double base)
{
	struct model_shape *shape = opening->shape;
	struct gguf_text type = {"linear", 6};
	double factor = 1;
	bool given = gguf_get_text(opening->gguf, model_key(opening, "rope.scaling.type"), &type);
	gguf_get_number(opening->gguf, model_key(opening, "rope.scale_linear"), &factor); // older files
	if (factor <= 0)
		factor = 1;
	if (given && model_text_is(&type, "none"))
		return STATUS_OK;
	double before = factor;
	gguf_get_number(opening->gguf, model_key(opening, "rope.scaling.factor"), &factor);
	if (!(factor != 0)) // not given
		factor = before;
	if (!(factor > 0) || factor > 1e6)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not a positive number", opening->key);
	if (model_text_is(&type, "longrope") && gguf_find(opening->gguf, LONG_FACTORS))
		return STATUS_OK; // by its factors
	if (model_text_is(&type, "yarn"))
		return scale_yarn(opening, base, factor);
	if (!model_text_is(&type, "linear")) {
		char word[MODEL_WORD_BYTES], what[MODEL_WORD_BYTES + 32];
		snprintf(what, sizeof(what), "positions scaled by \"%s\"", model_shown(&type, word));
		return model_not_computed(opening, what);
	}
	for (uint32_t i = 0; i < shape->rope_size / 2; i++)
		shape->rope_frequency[i] /= factor;
	return STATUS_OK;
}

// Every frequency has a divisor of its own; they stay as they are while only the file's header is at hand.
static enum status divide_rope(struct model_opening *opening, const struct gguf_tensor *factors, double *frequency)
{
	struct model_shape *shape = opening->shape;
	if (factors->format != FORMAT_F32 || factors->size[0] != shape->rope_size / 2 ||
	    factors->bytes != 2ull * shape->rope_size)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not %" PRIu32 " F32 numbers",
				 factors->name, shape->rope_size / 2);
	opening->used[factors - gguf_tensor(opening->gguf, 0)] = true;
	for (uint32_t i = 0; i < shape->rope_size / 2 && gguf_holds(opening->gguf, factors); i++) {
		float factor;
		memcpy(&factor, factors->data + i * sizeof(factor), sizeof(factor));
		if (!(factor > 0) || isinf(factor))
			return error_set(opening->error, STATUS_INVALID_PARAMS,
					 "%s holds something else than positive numbers", factors->name);
		frequency[i] /= (double)factor;
	}
	return STATUS_OK;
}

// LongRoPE (Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", 2024): one list of divisors
// for contexts within the original one, another for longer ones, and attention that is sharper by a magnitude.
static enum status read_long_rope(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	const struct gguf_tensor *within = gguf_find(opening->gguf, SHORT_FACTORS),
				 *beyond = gguf_find(opening->gguf, LONG_FACTORS);
	double magnitude = 1, original = shape->context;
	if (!within && !beyond)
		return STATUS_OK;
	if (!within || !beyond)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "of %s and %s the model file has only one",
				 SHORT_FACTORS, LONG_FACTORS);
	enum status status = read_positive(opening, "rope.scaling.attn_factor", &magnitude);
	if (!status)
		status = read_positive(opening, "rope.scaling.original_context_length", &original);
	if (status)
		return status;
	shape->rope_magnitude = (float)magnitude;
	shape->rope_original = (uint32_t)fmin(fmax(original, 1), LIMIT_MODEL_CONTEXT);
	memcpy(shape->rope_frequency_long, shape->rope_frequency, sizeof(shape->rope_frequency));
	status = divide_rope(opening, within, shape->rope_frequency);
	return status ? status : divide_rope(opening, beyond, shape->rope_frequency_long);
}

enum status model_read_rope(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	double base = 10000;
	shape->rope_size = shape->head_size;
	shape->rope_magnitude = 1;
	enum status status = model_read_optional(opening, "rope.dimension_count",
						 (struct model_range){2, shape->head_size, 2}, &shape->rope_size);
	if (!status)
		status = read_positive(opening, "rope.freq_base", &base);
	if (status)
		return status;
	if (base <= 1)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not above 1", opening->key);
	for (uint32_t i = 0; i < shape->rope_size / 2; i++)
		shape->rope_frequency[i] = pow(base, -2.0 * i / shape->rope_size);
	for (uint32_t i = 0; shape->rope_local && i < shape->rope_size / 2; i++)
		shape->rope_frequency_local[i] = pow(opening->architecture->local_base, -2.0 * i / shape->rope_size);
	status = scale_rope(opening, base);
	if (!status)
		status = end_before_temperature(opening);
	const struct gguf_tensor *factors = gguf_find(opening->gguf, "rope_freqs.weight");
	if (!status && factors)
		status = divide_rope(opening, factors, shape->rope_frequency);
	return status ? status : read_long_rope(opening);
}

uint64_t model_rope_numbers(const struct model_shape *shape, uint32_t positions)
{
	return (uint64_t)positions * shape->rope_size * (shape->rope_local ? 2 : 1);
}

static void fill_table(const struct model_shape *shape, const double *frequency, uint32_t positions, float *table)
{
	for (uint32_t position = 0; position < positions; position++)
		for (uint32_t i = 0; i < shape->rope_size / 2; i++) {
			double angle = position * frequency[i];
			*table++ = (float)(cos(angle) * (double)shape->rope_magnitude);
			*table++ = (float)(sin(angle) * (double)shape->rope_magnitude);
		}
}

void model_rope_table(const struct model_shape *shape, uint32_t positions, float *table)
{
	bool is_long = shape->rope_original && positions > shape->rope_original;
	fill_table(shape, is_long ? shape->rope_frequency_long : shape->rope_frequency, positions, table);
	if (shape->rope_local)
		fill_table(shape, shape->rope_frequency_local, positions, table + (size_t)positions * shape->rope_size);
}
