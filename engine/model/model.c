/* See model.h: from the names and numbers of a GGUF file to a shape and its tensors.
 *
 * A file is refused if it says anything that would change what comes out and that we do not compute: another family,
 * experts, a sliding window, an unknown scaling of positions, tensors that the family does not have. What is refused is
 * named, with what works. Thread: see model.h. A model owns its table of tensors; the bytes are the file's. */
#include "engine/model/model.h"

#include "common/base/limits.h"
#include "engine/model/convert.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	WIDTH_MULTIPLE = 2, // a row of f16 is of whole words
	WORD_BYTES = 64,    // of the file's words in messages
};
static const double PI = 3.14159265358979323846;

_Static_assert(LIMIT_MODEL_HEAD_SIZE <= 2 * sizeof(((struct model_shape *)0)->rope_frequency) / sizeof(double),
	       "a frequency for each pair of a head");

struct model {
	struct model_shape shape;
	struct model_tensor outer[ROLE_OUTPUT + 1];
	struct model_tensor (*layers)[ROLE_COUNT]; // (shape.layers)
};

// What is being opened.
struct opening {
	const struct gguf *gguf;
	struct model_shape *shape;
	char family[16]; // the beginning of its keys
	char key[GGUF_NAME_BYTES + WORD_BYTES];
	bool *used; // (tensors of the file)
	struct error *error;
};

static const char *const family_names[] = {
	[FAMILY_UNKNOWN] = "unknown",
	[FAMILY_LLAMA] = "llama",
	[FAMILY_QWEN2] = "qwen2",
	[FAMILY_QWEN3] = "qwen3",
};

const char *model_family_name(enum model_family family)
{
	return family_names[family];
}

static const char *key_of(struct opening *opening, const char *name)
{
	snprintf(opening->key, sizeof(opening->key), "%s.%s", opening->family, name);
	return opening->key;
}

// A word of the file, fit to be shown.
static const char *shown(const struct gguf_text *text, char out[WORD_BYTES])
{
	size_t length = text->length < WORD_BYTES - 1 ? text->length : WORD_BYTES - 1;
	for (size_t i = 0; i < length; i++)
		out[i] = text->bytes[i];
	for (size_t i = 0; i < length; i++)
		if (out[i] < ' ' || out[i] > '~')
			out[i] = '?';
	out[length] = 0;
	return out;
}

static bool text_is(const struct gguf_text *text, const char *word)
{
	return text->length == strlen(word) && !memcmp(text->bytes, word, text->length);
}

static enum status not_computed(struct opening *opening, const char *what)
{
	error_set(opening->error, STATUS_UNAVAILABLE, "a model with %s, which is not computed here", what);
	error_hint(
		opening->error,
		"what works: llama (Llama 2 and 3, Mistral, TinyLlama, SmolLM), qwen2 and qwen3, dense, "
		"with attention to the whole context, in F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, Q4_K, "
		"Q5_K, Q6_K");
	return STATUS_UNAVAILABLE;
}

// ---- the shape ----

// A part of a model has keys and tensors that mean nothing alone.
static enum status refuse_parts(struct opening *opening)
{
	uint64_t parts = 1, part = 0;
	gguf_get_count(opening->gguf, "split.count", &parts);
	gguf_get_count(opening->gguf, "split.no", &part);
	if (parts <= 1)
		return STATUS_OK;
	error_set(opening->error, STATUS_UNAVAILABLE,
		  "the file is part %" PRIu64 " of %" PRIu64 " of a model that was split", part + 1, parts);
	error_hint(opening->error, "put the parts together (llama-gguf-split --merge FIRST WHOLE) and add the whole");
	return STATUS_UNAVAILABLE;
}

// What is published to test tokenizers: everything but weights.
static enum status refuse_vocabulary(struct opening *opening)
{
	if (gguf_tensor_count(opening->gguf))
		return STATUS_OK;
	error_set(opening->error, STATUS_UNAVAILABLE, "the file has no weights: it is a vocabulary, or a header alone");
	error_hint(opening->error, "add the model's own file");
	return STATUS_UNAVAILABLE;
}

static enum status read_family(struct opening *opening)
{
	struct gguf_text name;
	char word[WORD_BYTES], what[WORD_BYTES + 32];
	if (!gguf_get_text(opening->gguf, "general.architecture", &name))
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "the model file does not say its family (general.architecture)");
	for (enum model_family family = FAMILY_UNKNOWN + 1; family <= FAMILY_QWEN3; family++)
		if (text_is(&name, family_names[family]))
			opening->shape->family = family;
	if (!opening->shape->family) {
		snprintf(what, sizeof(what), "the architecture %s", shown(&name, word));
		return not_computed(opening, what);
	}
	snprintf(opening->family, sizeof(opening->family), "%s", family_names[opening->shape->family]);
	struct gguf_text type;
	if (gguf_get_text(opening->gguf, "general.type", &type) && !text_is(&type, "model"))
		return error_set(opening->error, STATUS_UNAVAILABLE, "the file is no whole model, but of type %s",
				 shown(&type, word));
	return STATUS_OK;
}

// Keys that change what is computed, unless they hold the number at which they do nothing.
static enum status refuse_features(struct opening *opening)
{
	static const struct {
		const char *key;
		double without_effect;
		const char *what;
	} features[] = {
		{"expert_count", 0, "experts (a mixture of experts)"},
		{"attn_logit_softcapping", 0, "capped attention"},
		{"final_logit_softcapping", 0, "capped logits"},
		{"attention.max_alibi_bias", 0, "ALiBi"},
		{"attention.clamp_kqv", 0, "clamped keys and values"},
		{"attention.scale", 0, "an attention scale of its own"},
		{"logit_scale", 1, "scaled logits"},
		{"residual_scale", 1, "a scaled residual"},
		{"embedding_scale", 1, "scaled embeddings"},
		{"nextn_predict_layers", 0, "layers that predict further tokens"},
		{"rope.scaling.yarn_ext_factor", 1, "YaRN with an extrapolation factor"},
		{"rope.scaling.yarn_log_multiplier", 0, "YaRN with a log multiplier"},
	};
	for (size_t i = 0; i < sizeof(features) / sizeof(*features); i++) {
		double value = features[i].without_effect;
		gguf_get_number(opening->gguf, key_of(opening, features[i].key), &value);
		if (value < features[i].without_effect || value > features[i].without_effect || isnan(value))
			return not_computed(opening, features[i].what);
	}
	bool causal = true;
	gguf_get_bool(opening->gguf, key_of(opening, "attention.causal"), &causal);
	if (!causal)
		return not_computed(opening, "attention to later tokens");
	uint64_t window = 0, length = 0;
	if (gguf_get_array(opening->gguf, key_of(opening, "attention.sliding_window"), &length) ||
	    (gguf_get_count(opening->gguf, key_of(opening, "attention.sliding_window"), &window) && window &&
	     window < opening->shape->context))
		return not_computed(opening, "a sliding window of attention that is shorter than its context");
	return STATUS_OK;
}

struct range {
	uint64_t least, most, multiple;
};

static enum status read_count(struct opening *opening, const char *name, struct range range, uint32_t *out)
{
	uint64_t value;
	char what[GGUF_NAME_BYTES];
	const char *key = key_of(opening, name);
	if (gguf_get_array(opening->gguf, key, &value)) {
		snprintf(what, sizeof(what), "%s of each layer its own", name);
		return not_computed(opening, what);
	}
	if (!gguf_get_count(opening->gguf, key, &value))
		return error_set(opening->error, STATUS_INVALID_PARAMS, "the model file does not say %s", key);
	if (value < range.least || value > range.most || value % range.multiple)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "%s is %" PRIu64 "; it must be from %" PRIu64 " to %" PRIu64
				 ", a multiple of %" PRIu64,
				 key, value, range.least, range.most, range.multiple);
	*out = (uint32_t)value;
	return STATUS_OK;
}

// As read_count; what is not there stays as it is.
static enum status read_optional(struct opening *opening, const char *name, struct range range, uint32_t *out)
{
	uint64_t value;
	const char *key = key_of(opening, name);
	return gguf_get_count(opening->gguf, key, &value) || gguf_get_array(opening->gguf, key, &value)
		       ? read_count(opening, name, range, out)
		       : STATUS_OK;
}

static enum status read_heads(struct opening *opening)
{
	struct model_shape *shape = opening->shape;
	enum status status = read_count(opening, "attention.head_count", (struct range){1, LIMIT_MODEL_HEADS, 1},
					&shape->heads);
	if (status)
		return status;
	shape->kv_heads = shape->heads;
	shape->head_size = shape->embedding / shape->heads;
	bool whole = !(shape->embedding % shape->heads);
	uint64_t given;
	if (!whole && !gguf_get_count(opening->gguf, key_of(opening, "attention.key_length"), &given))
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "an embedding of %" PRIu32 " is not to be divided among %" PRIu32 " heads",
				 shape->embedding, shape->heads);
	status = read_optional(opening, "attention.head_count_kv", (struct range){1, shape->heads, 1},
			       &shape->kv_heads);
	if (!status)
		status = read_optional(opening, "attention.key_length", (struct range){2, LIMIT_MODEL_HEAD_SIZE, 2},
				       &shape->head_size);
	uint32_t value_size = shape->head_size;
	if (!status)
		status = read_optional(opening, "attention.value_length", (struct range){2, LIMIT_MODEL_HEAD_SIZE, 2},
				       &value_size);
	if (status)
		return status;
	if (shape->heads % shape->kv_heads || shape->head_size < 2 || shape->head_size % 2 ||
	    shape->head_size > LIMIT_MODEL_HEAD_SIZE)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "%" PRIu32 " heads of %" PRIu32 " do not fit %" PRIu32 " heads of keys", shape->heads,
				 shape->head_size, shape->kv_heads);
	if (value_size != shape->head_size)
		return not_computed(opening, "values of another size than its keys");
	return STATUS_OK;
}

// How an embedding of a text is made of those of its tokens: 0 and 1, as the file does not care or the mean; 3, the
// last one's.
static enum status read_pooling(struct opening *opening)
{
	uint64_t pooling = 0;
	gguf_get_count(opening->gguf, key_of(opening, "pooling_type"), &pooling);
	if (pooling > 1 && pooling != 3)
		return not_computed(opening, pooling == 4 ? "a ranking of texts as its output (a reranker)"
							  : "embeddings other than the mean or the last token's");
	opening->shape->last_is_all = pooling == 3;
	return STATUS_OK;
}

static enum status read_shape(struct opening *opening)
{
	struct model_shape *shape = opening->shape;
	const struct range width = {WIDTH_MULTIPLE, LIMIT_MODEL_WIDTH, WIDTH_MULTIPLE};
	double epsilon = 0;
	enum status status = read_count(opening, "block_count", (struct range){1, LIMIT_MODEL_LAYERS, 1},
					&shape->layers);
	if (!status)
		status = read_count(opening, "context_length", (struct range){1, LIMIT_MODEL_CONTEXT, 1},
				    &shape->context);
	if (!status)
		status = refuse_features(opening);
	if (!status)
		status = read_count(opening, "embedding_length", width, &shape->embedding);
	if (!status)
		status = read_count(opening, "feed_forward_length", width, &shape->feed_forward);
	if (!status)
		status = read_heads(opening);
	if (!status)
		status = read_pooling(opening);
	if (status)
		return status;
	const char *key = key_of(opening, "attention.layer_norm_rms_epsilon");
	if (!gguf_get_number(opening->gguf, key, &epsilon) || !(epsilon > 0) || epsilon > 1)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not there, or no number between 0 and 1",
				 key);
	shape->norm_epsilon = (float)epsilon;
	shape->rope_halves = shape->family != FAMILY_LLAMA;
	shape->qkv_bias = shape->family == FAMILY_QWEN2;
	shape->qk_norm = shape->family == FAMILY_QWEN3;
	return STATUS_OK;
}

// ---- rotary positions ----

// A positive number; what is not there stays as it is.
static enum status read_positive(struct opening *opening, const char *name, double *out)
{
	const char *key = key_of(opening, name);
	gguf_get_number(opening->gguf, key, out);
	if (!(*out > 0) || *out > 1e12)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is no positive number", key);
	return STATUS_OK;
}

// YaRN (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, section 3.2): pairs
// that turn often within the original context keep their frequency, those that turn less than once have it divided by
// the factor, with a ramp between; and attention gets sharper by a magnitude.
static enum status scale_yarn(struct opening *opening, double base, double factor)
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
	// The pair that turns so many times within the original context.
	double per_pair = shape->rope_size / (2 * log(base));
	double first = floor(per_pair * log(original / (fast * 2 * PI)));
	double last = ceil(per_pair * log(original / (slow * 2 * PI)));
	first = fmax(first, 0);
	last = fmin(last, shape->rope_size - 1.0);
	for (uint32_t i = 0; i < shape->rope_size / 2; i++) {
		double kept = 1 - fmin(1, fmax(0, (i - first) / fmax(0.001, last - first)));
		shape->rope_frequency[i] *= kept + (1 - kept) / factor;
	}
	shape->rope_magnitude = (float)(magnitude * (1 + 0.1 * log(factor)));
	return STATUS_OK;
}

static enum status scale_rope(struct opening *opening, double base)
{
	struct model_shape *shape = opening->shape;
	struct gguf_text type = {"linear", 6};
	double factor = 1;
	bool given = gguf_get_text(opening->gguf, key_of(opening, "rope.scaling.type"), &type);
	gguf_get_number(opening->gguf, key_of(opening, "rope.scale_linear"), &factor); // older files
	if (factor <= 0)
		factor = 1;
	if (given && text_is(&type, "none"))
		return STATUS_OK;
	double before = factor;
	gguf_get_number(opening->gguf, key_of(opening, "rope.scaling.factor"), &factor);
	if (!(factor != 0)) // not given
		factor = before;
	if (!(factor > 0) || factor > 1e6)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is no positive number", opening->key);
	if (text_is(&type, "yarn"))
		return scale_yarn(opening, base, factor);
	if (!text_is(&type, "linear")) {
		char word[WORD_BYTES], what[WORD_BYTES + 32];
		snprintf(what, sizeof(what), "positions scaled by \"%s\"", shown(&type, word));
		return not_computed(opening, what);
	}
	for (uint32_t i = 0; i < shape->rope_size / 2; i++)
		shape->rope_frequency[i] /= factor;
	return STATUS_OK;
}

// Llama 3's: every frequency has a divisor of its own.
static enum status divide_rope(struct opening *opening)
{
	struct model_shape *shape = opening->shape;
	const struct gguf_tensor *factors = gguf_find(opening->gguf, "rope_freqs.weight");
	if (!factors)
		return STATUS_OK;
	if (factors->format != FORMAT_F32 || factors->size[0] != shape->rope_size / 2 ||
	    factors->bytes != 2ull * shape->rope_size)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "rope_freqs.weight is not %" PRIu32 " F32 numbers", shape->rope_size / 2);
	opening->used[factors - gguf_tensor(opening->gguf, 0)] = true;
	for (uint32_t i = 0; i < shape->rope_size / 2 && gguf_holds(opening->gguf, factors); i++) {
		float factor;
		memcpy(&factor, factors->data + i * sizeof(factor), sizeof(factor));
		if (!(factor > 0) || isinf(factor))
			return error_set(opening->error, STATUS_INVALID_PARAMS,
					 "rope_freqs.weight holds something else than positive numbers");
		shape->rope_frequency[i] /= (double)factor;
	}
	return STATUS_OK;
}

static enum status read_rope(struct opening *opening)
{
	struct model_shape *shape = opening->shape;
	double base = 10000;
	shape->rope_size = shape->head_size;
	shape->rope_magnitude = 1;
	enum status status = read_optional(opening, "rope.dimension_count", (struct range){2, shape->head_size, 2},
					   &shape->rope_size);
	if (!status)
		status = read_positive(opening, "rope.freq_base", &base);
	if (status)
		return status;
	if (base <= 1)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not above 1", opening->key);
	for (uint32_t i = 0; i < shape->rope_size / 2; i++)
		shape->rope_frequency[i] = pow(base, -2.0 * i / shape->rope_size);
	status = scale_rope(opening, base);
	return status ? status : divide_rope(opening);
}

void model_rope_table(const struct model_shape *shape, uint32_t positions, float *table)
{
	for (uint32_t position = 0; position < positions; position++)
		for (uint32_t i = 0; i < shape->rope_size / 2; i++) {
			double angle = position * shape->rope_frequency[i];
			*table++ = (float)(cos(angle) * (double)shape->rope_magnitude);
			*table++ = (float)(sin(angle) * (double)shape->rope_magnitude);
		}
}

// ---- tensors ----

struct wanted_tensor {
	const char *name; // of a layer's: what comes after blk.N.
	uint32_t rows, columns;
	bool vector;
};

// What a model of this shape has in a role; false if nothing.
static bool wanted_tensor(const struct model_shape *shape, enum model_role role, struct wanted_tensor *out)
{
	uint32_t width = shape->embedding, inner = shape->feed_forward;
	uint32_t q = shape->heads * shape->head_size, kv = shape->kv_heads * shape->head_size;
	const struct wanted_tensor all[ROLE_COUNT] = {
		[ROLE_TOKEN_EMBEDDING] = {"token_embd.weight", shape->vocabulary, width, false},
		[ROLE_OUTPUT_NORM] = {"output_norm.weight", 1, width, true},
		[ROLE_OUTPUT] = {shape->tied ? "token_embd.weight" : "output.weight", shape->vocabulary, width, false},
		[ROLE_ATTENTION_NORM] = {"attn_norm.weight", 1, width, true},
		[ROLE_Q] = {"attn_q.weight", q, width, false},
		[ROLE_K] = {"attn_k.weight", kv, width, false},
		[ROLE_V] = {"attn_v.weight", kv, width, false},
		[ROLE_Q_BIAS] = {shape->qkv_bias ? "attn_q.bias" : NULL, 1, q, true},
		[ROLE_K_BIAS] = {shape->qkv_bias ? "attn_k.bias" : NULL, 1, kv, true},
		[ROLE_V_BIAS] = {shape->qkv_bias ? "attn_v.bias" : NULL, 1, kv, true},
		[ROLE_Q_NORM] = {shape->qk_norm ? "attn_q_norm.weight" : NULL, 1, shape->head_size, true},
		[ROLE_K_NORM] = {shape->qk_norm ? "attn_k_norm.weight" : NULL, 1, shape->head_size, true},
		[ROLE_ATTENTION_OUTPUT] = {"attn_output.weight", width, q, false},
		[ROLE_FFN_NORM] = {"ffn_norm.weight", 1, width, true},
		[ROLE_FFN_GATE] = {"ffn_gate.weight", inner, width, false},
		[ROLE_FFN_UP] = {"ffn_up.weight", inner, width, false},
		[ROLE_FFN_DOWN] = {"ffn_down.weight", width, inner, false},
	};
	*out = all[role];
	return out->name;
}

// Formats of files that we do not compute, as users know them; NULL for a number without a name.
static const char *type_name(uint32_t type)
{
	static const char *const names[] = {
		[9] = "Q8_1",      [10] = "Q2_K",    [11] = "Q3_K",  [15] = "Q8_K",     [16] = "IQ2_XXS",
		[17] = "IQ2_XS",   [18] = "IQ3_XXS", [19] = "IQ1_S", [21] = "IQ3_S",    [22] = "IQ2_S",
		[23] = "IQ4_XS",   [28] = "F64",     [29] = "IQ1_M", [31] = "Q4_0_4_4", [32] = "Q4_0_4_8",
		[33] = "Q4_0_8_8", [34] = "TQ1_0",   [35] = "TQ2_0", [39] = "MXFP4",
	};
	return type < sizeof(names) / sizeof(*names) ? names[type] : NULL;
}

static enum status find_tensor(struct opening *opening, const char *name, const struct wanted_tensor *wanted,
			       struct model_tensor *out)
{
	const struct gguf_tensor *tensor = gguf_find(opening->gguf, name);
	if (!tensor)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "the model file has no tensor %s", name);
	if (!tensor->format || (wanted->vector && tensor->format != FORMAT_F32)) {
		char what[GGUF_NAME_BYTES + WORD_BYTES];
		if (tensor->format)
			snprintf(what, sizeof(what), "tensor %s in %s instead of F32", name,
				 tensor->packing ? packing_info(tensor->packing)->name
						 : format_info(tensor->format)->name);
		else if (type_name(tensor->type))
			snprintf(what, sizeof(what), "tensor %s in %s", name, type_name(tensor->type));
		else
			snprintf(what, sizeof(what), "tensor %s in the format of number %" PRIu32, name, tensor->type);
		return not_computed(opening, what);
	}
	if (tensor->size[0] != wanted->columns || tensor->size[1] != wanted->rows || tensor->size[2] != 1 ||
	    tensor->size[3] != 1)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "tensor %s has %" PRIu64 " rows of %" PRIu64 ", not %" PRIu32 " of %" PRIu32, name,
				 tensor->size[1], tensor->size[0], wanted->rows, wanted->columns);
	opening->used[tensor - gguf_tensor(opening->gguf, 0)] = true;
	*out = (struct model_tensor){
		tensor->format, wanted->rows, wanted->columns, tensor->data, tensor->bytes, tensor->packing, 0};
	return STATUS_OK;
}

// The vocabulary is what the token embedding has rows for; lists of tokens must be as long.
static enum status read_vocabulary(struct opening *opening)
{
	const struct gguf_tensor *embedding = gguf_find(opening->gguf, "token_embd.weight");
	uint64_t rows = embedding ? embedding->size[1] : 0, said = rows;
	if (!embedding)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "the model file has no tensor token_embd.weight");
	if (!gguf_get_array(opening->gguf, "tokenizer.ggml.tokens", &said))
		gguf_get_count(opening->gguf, key_of(opening, "vocab_size"), &said);
	if (rows > LIMIT_MODEL_VOCABULARY || said != rows)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "a vocabulary of %" PRIu64 " tokens does not fit the %" PRIu64
				 " rows of token_embd.weight "
				 "(%d is the most)",
				 said, rows, LIMIT_MODEL_VOCABULARY);
	opening->shape->vocabulary = (uint32_t)rows;
	opening->shape->tied = !gguf_find(opening->gguf, "output.weight");
	return STATUS_OK;
}

static enum status find_tensors(struct opening *opening, struct model *model)
{
	struct wanted_tensor wanted;
	enum status status = STATUS_OK;
	for (enum model_role role = ROLE_TOKEN_EMBEDDING; role <= ROLE_OUTPUT && !status; role++)
		if (wanted_tensor(&model->shape, role, &wanted))
			status = find_tensor(opening, wanted.name, &wanted, &model->outer[role]);
	for (uint32_t layer = 0; layer < model->shape.layers && !status; layer++)
		for (enum model_role role = ROLE_ATTENTION_NORM; role < ROLE_COUNT && !status; role++) {
			char name[GGUF_NAME_BYTES];
			if (!wanted_tensor(&model->shape, role, &wanted))
				continue;
			snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s", layer, wanted.name);
			status = find_tensor(opening, name, &wanted, &model->layers[layer][role]);
		}
	return status;
}

static enum status refuse_others(struct opening *opening)
{
	for (size_t i = 0; i < gguf_tensor_count(opening->gguf); i++) {
		if (opening->used[i])
			continue;
		char what[2 * GGUF_NAME_BYTES];
		snprintf(what, sizeof(what), "tensor %s, which %s models do not have",
			 gguf_tensor(opening->gguf, i)->name, opening->family);
		return not_computed(opening, what);
	}
	return STATUS_OK;
}

enum status model_open(struct model **out, const struct gguf *gguf, struct error *error)
{
	*out = NULL;
	size_t tensors = gguf_tensor_count(gguf);
	struct model *model = calloc(1, sizeof(*model));
	bool *used = calloc(tensors ? tensors : 1, sizeof(*used));
	enum status status = STATUS_OK;
	if (!model || !used) {
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a model");
		goto out;
	}
	struct opening opening = {.gguf = gguf, .shape = &model->shape, .used = used, .error = error};
	status = refuse_parts(&opening);
	if (!status)
		status = refuse_vocabulary(&opening);
	if (!status)
		status = read_family(&opening);
	if (!status)
		status = read_shape(&opening);
	if (!status)
		status = read_rope(&opening);
	if (!status)
		status = read_vocabulary(&opening);
	if (status)
		goto out;
	model->layers = calloc(model->shape.layers, sizeof(*model->layers));
	if (!model->layers)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a model");
	if (!status)
		status = find_tensors(&opening, model);
	if (!status)
		status = refuse_others(&opening);
out:
	free(used);
	if (status)
		model_destroy(&model);
	*out = model;
	return status;
}

void model_destroy(struct model **model_pointer)
{
	struct model *model = *model_pointer;
	if (!model)
		return;
	free(model->layers);
	free(model);
	*model_pointer = NULL;
}

const struct model_shape *model_shape(const struct model *model)
{
	return &model->shape;
}

bool model_tensor(const struct model *model, enum model_role role, uint32_t layer, struct model_tensor *out)
{
	const struct model_tensor *tensor = role <= ROLE_OUTPUT ? &model->outer[role] : &model->layers[layer][role];
	if (!tensor->data)
		return false;
	*out = *tensor;
	return true;
}

// ---- sizes ----

static uint64_t bytes_as(const struct model_tensor *tensor, enum tensor_format format, struct model_sizes *sizes)
{
	struct model_tensor held;
	model_tensor_as(tensor, format, &held);
	sizes->format_bytes[held.format] += held.bytes;
	sizes->parameters += (uint64_t)held.rows * held.columns;
	return held.bytes;
}

void model_sizes_as(const struct model *model, enum tensor_format format, struct model_sizes *sizes)
{
	*sizes = (struct model_sizes){.main_format = FORMAT_UNKNOWN};
	sizes->embedding_bytes = bytes_as(&model->outer[ROLE_TOKEN_EMBEDDING], format, sizes);
	sizes->output_bytes = bytes_as(&model->outer[ROLE_OUTPUT_NORM], format, sizes);
	sizes->output_bytes += model->shape.tied ? sizes->embedding_bytes
						 : bytes_as(&model->outer[ROLE_OUTPUT], format, sizes);
	for (uint32_t layer = 0; layer < model->shape.layers; layer++) {
		uint64_t bytes = 0;
		for (enum model_role role = ROLE_ATTENTION_NORM; role < ROLE_COUNT; role++)
			if (model->layers[layer][role].data)
				bytes += bytes_as(&model->layers[layer][role], format, sizes);
		sizes->layers_bytes += bytes;
		if (bytes > sizes->layer_bytes)
			sizes->layer_bytes = bytes;
	}
	for (enum tensor_format each = FORMAT_UNKNOWN + 1; each < FORMAT_COUNT; each++)
		if (sizes->format_bytes[each] > sizes->format_bytes[sizes->main_format])
			sizes->main_format = each;
}

void model_sizes(const struct model *model, struct model_sizes *sizes)
{
	model_sizes_as(model, FORMAT_UNKNOWN, sizes);
}
