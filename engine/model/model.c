/* See model.h: from the numbers of a GGUF file to a shape; model_tensors.c finds its tensors.
 *
 * A file is refused if it contains anything that changes the result and is not supported: an unknown family, experts or
 * a sliding window of another kind, an unknown scaling of positions, tensors that the family does not have. The error
 * names it, and the hint lists what is supported. Thread: see model.h. A model owns its table of tensors; the bytes are
 * the file's. */
#include "engine/model/convert.h"
#include "engine/model/model_inside.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH_MULTIPLE = 2 }; // a row of f16 is of whole words

const char *model_key(struct model_opening *opening, const char *name)
{
	snprintf(opening->key, sizeof(opening->key), "%s.%s", opening->architecture->name, name);
	return opening->key;
}

// A word of the file, fit to be shown.
const char *model_shown(const struct gguf_text *text, char out[MODEL_WORD_BYTES])
{
	size_t length = text->length < MODEL_WORD_BYTES - 1 ? text->length : MODEL_WORD_BYTES - 1;
	for (size_t i = 0; i < length; i++)
		out[i] = text->bytes[i];
	for (size_t i = 0; i < length; i++)
		if (out[i] < ' ' || out[i] > '~')
			out[i] = '?';
	out[length] = 0;
	return out;
}

bool model_text_is(const struct gguf_text *text, const char *word)
{
	return text->length == strlen(word) && !memcmp(text->bytes, word, text->length);
}

enum status model_not_computed(struct model_opening *opening, const char *what)
{
	char works[200]; // a hint has 256 bytes
	if (opening->architecture) {
		error_set(opening->error, STATUS_UNAVAILABLE, "a model (%s) with %s, which is not computed here",
			  opening->architecture->name, what);
		error_hint(opening->error, "what works: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4, "
					   "Q4_K, Q5_K, Q6_K, and what docs/models.md says of each architecture");
		return STATUS_UNAVAILABLE;
	}
	error_set(opening->error, STATUS_UNAVAILABLE, "a model with %s, which is not computed here", what);
	architecture_list(works, sizeof(works));
	error_hint(opening->error, "what works: %s; docs/models.md lists all", works);
	return STATUS_UNAVAILABLE;
}

// ---- the shape ----

// A part of a model has keys and tensors that mean nothing alone.
static enum status refuse_parts(struct model_opening *opening)
{
	uint64_t parts = 1, part = 0;
	gguf_get_count(opening->gguf, "split.count", &parts);
	gguf_get_count(opening->gguf, "split.no", &part);
	if (parts <= 1)
		return STATUS_OK;
	error_set(opening->error, STATUS_UNAVAILABLE,
		  "the file is part %" PRIu64 " of %" PRIu64 " of a model that was split", part + 1, parts);
	error_hint(opening->error,
		   "give all parts the names that they were made with (NAME-00001-of-00003.gguf) and add one of them");
	return STATUS_UNAVAILABLE;
}

// Refuse files that are published to test tokenizers: they have everything but weights.
static enum status refuse_vocabulary(struct model_opening *opening)
{
	if (gguf_tensor_count(opening->gguf))
		return STATUS_OK;
	error_set(opening->error, STATUS_UNAVAILABLE, "the file has no weights: it is only a vocabulary or a header");
	error_hint(opening->error, "add the model's own file");
	return STATUS_UNAVAILABLE;
}

static enum status read_family(struct model_opening *opening)
{
	struct gguf_text name;
	char word[MODEL_WORD_BYTES], what[MODEL_WORD_BYTES + 32];
	if (!gguf_get_text(opening->gguf, "general.architecture", &name))
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "the model file does not name its architecture (general.architecture)");
	for (enum model_family family = FAMILY_UNKNOWN + 1; family < FAMILY_COUNT; family++)
		if (model_text_is(&name, model_family_name(family)))
			opening->shape->family = family;
	if (!opening->shape->family) {
		snprintf(what, sizeof(what), "the architecture %s", model_shown(&name, word));
		return model_not_computed(opening, what);
	}
	opening->architecture = architecture_of(opening->shape->family);
	struct gguf_text type;
	if (gguf_get_text(opening->gguf, "general.type", &type) && !model_text_is(&type, "model"))
		return error_set(opening->error, STATUS_UNAVAILABLE, "the file is not a whole model but of type %s",
				 model_shown(&type, word));
	return STATUS_OK;
}

// Refuse keys that change the result, unless they have the value without effect, or the architecture supports them.
static enum status refuse_features(struct model_opening *opening)
{
	static const struct {
		const char *key;
		double without_effect;
		unsigned of; // enum architecture_keys
		const char *what;
	} features[] = {
		{"expert_count", 0, KEYS_EXPERTS, "experts (a mixture of experts)"},
		{"expert_weights_scale", 0, KEYS_ROUTING, "scaled weights of experts"},
		{"leading_dense_block_count", 0, KEYS_ROUTING, "first layers without experts"},
		{"moe_every_n_layers", 0, 0, "experts in only some layers"},
		{"attn_logit_softcapping", 0, KEYS_ATTENTION_CAP, "capped attention"},
		{"final_logit_softcapping", 0, KEYS_LOGIT_CAP, "capped logits"},
		{"attention.max_alibi_bias", 0, 0, "ALiBi"},
		{"attention.clamp_kqv", 0, 0, "clamped keys and values"},
		{"attention.scale", 0, KEYS_SCALES, "an attention scale of its own"},
		{"attention.temperature_scale", 0, KEYS_TEMPERATURE, "an attention that changes with the position"},
		{"logit_scale", 1, KEYS_SCALES, "scaled logits"},
		{"residual_scale", 1, KEYS_SCALES, "a scaled residual"},
		{"embedding_scale", 1, KEYS_SCALES, "scaled embeddings"},
		{"nextn_predict_layers", 0, KEYS_FURTHER, "layers that predict further tokens"},
		{"rope.scaling.yarn_ext_factor", 1, 0, "YaRN with an extrapolation factor"},
		{"rope.scaling.yarn_log_multiplier", 0, KEYS_TEMPERATURE | KEYS_LATENT, "YaRN with a log multiplier"},
	};
	for (size_t i = 0; i < sizeof(features) / sizeof(*features); i++) {
		double value = features[i].without_effect;
		gguf_get_number(opening->gguf, model_key(opening, features[i].key), &value);
		bool other = value < features[i].without_effect || value > features[i].without_effect || isnan(value);
		if (other && !(opening->architecture->keys & features[i].of))
			return model_not_computed(opening, features[i].what);
	}
	bool causal = !opening->architecture->encoder;
	gguf_get_bool(opening->gguf, model_key(opening, "attention.causal"), &causal);
	if (causal == opening->architecture->encoder)
		return model_not_computed(opening,
					  causal ? "attention to earlier tokens only" : "attention to later tokens");
	return STATUS_OK;
}

// The base of positions in layers that slide.
static double local_base_of(struct model_opening *opening)
{
	double base = 10000;
	if (opening->architecture->local_base > 0)
		return opening->architecture->local_base;
	gguf_get_number(opening->gguf, model_key(opening, "rope.freq_base"), &base);
	return base;
}

// Which layers slide is the architecture's to say, not a list of the file's.
static enum status read_window(struct model_opening *opening)
{
	const struct architecture *architecture = opening->architecture;
	const uint32_t context = opening->shape->context;
	uint64_t length = 0;
	double window = 0, pattern = architecture->whole_every, base = architecture->local_base;
	const char *key = model_key(opening, "attention.sliding_window");
	if (gguf_get_array(opening->gguf, key, &length))
		return model_not_computed(opening, "a sliding window of attention of each layer its own");
	const bool there = gguf_get_number(opening->gguf, key, &window);
	if (!there && architecture->needs_window)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "the model file does not say %s", key);
	if (!(window >= 0) || window > LIMIT_MODEL_CONTEXT || window != floor(window))
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not a count of positions", key);
	// As long as the context: nothing is out of sight, but layers that slide may turn by a base of their own.
	if (window <= 0 || (window >= context && architecture->local_base <= 0))
		return STATUS_OK;
	if (!(architecture->keys & KEYS_WINDOW))
		return model_not_computed(opening, "a sliding window of attention that is shorter than its context");
	key = model_key(opening, "attention.sliding_window_pattern");
	if (gguf_get_array(opening->gguf, key, &length))
		return model_not_computed(opening, "a list of layers whose attention slides");
	gguf_get_number(opening->gguf, key, &pattern);
	if (pattern < architecture->whole_every || pattern > architecture->whole_every || isnan(pattern))
		return model_not_computed(opening, "another turn of layers whose attention slides");
	if (gguf_get_number(opening->gguf, model_key(opening, "rope.freq_base_swa"), &base) &&
	    !(base >= local_base_of(opening) && base <= local_base_of(opening)))
		return model_not_computed(opening, "another base of positions in layers whose attention slides");
	opening->shape->window = window < context ? (uint32_t)window : context;
	return STATUS_OK;
}

static enum status read_scale(struct model_opening *opening, const char *name, double *out)
{
	const char *key = model_key(opening, name);
	gguf_get_number(opening->gguf, key, out);
	if (!(*out >= 1e-6) || *out > 1e6)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not a number from 0.000001 to 1000000",
				 key);
	return STATUS_OK;
}

static bool is_none_or(double value, double least, double most)
{
	return !(value < 0) && !(value > 0 && value < least) && value <= most;
}

// x is kept divided by the residual scale s: (x + s y) / s is x / s + y, and its norm is that of x with epsilon / s².
static enum status read_scales(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	double attention = 0, cap = 0, embedding = 1, residual = 1, logits = 1, last = 0;
	enum status status = STATUS_OK;
	gguf_get_number(opening->gguf, model_key(opening, "attention.scale"), &attention);
	gguf_get_number(opening->gguf, model_key(opening, "attn_logit_softcapping"), &cap);
	gguf_get_number(opening->gguf, model_key(opening, "final_logit_softcapping"), &last);
	if (!is_none_or(attention, 1e-6, 1e6) || !is_none_or(cap, 0.01, 1e4) || !is_none_or(last, 0.01, 1e4))
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "the attention's scale must be from 0.000001 to 1000000, a cap of scores or logits "
				 "from 0.01 to 10000; 0: none");
	if (opening->architecture->needs_caps && (cap <= 0 || last <= 0))
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "the model file does not say where scores and logits are capped "
				 "(attn_logit_softcapping, final_logit_softcapping)");
	if (opening->architecture->keys & KEYS_SCALES) {
		status = read_scale(opening, "embedding_scale", &embedding);
		if (!status)
			status = read_scale(opening, "residual_scale", &residual);
		if (!status)
			status = read_scale(opening, "logit_scale", &logits);
		shape->embedding_scale = (float)(embedding / residual);
		shape->norm_epsilon = (float)((double)shape->norm_epsilon / (residual * residual));
		shape->logit_scale = (float)(1 / logits);
	}
	if (attention > 0)
		shape->attention_scale = (float)attention;
	shape->attention_cap = (float)cap;
	shape->logit_cap = (float)last;
	return status;
}

enum status model_read_count(struct model_opening *opening, const char *name, struct model_range range, uint32_t *out)
{
	uint64_t value;
	char what[GGUF_NAME_BYTES];
	const char *key = model_key(opening, name);
	if (gguf_get_array(opening->gguf, key, &value)) {
		snprintf(what, sizeof(what), "%s of each layer its own", name);
		return model_not_computed(opening, what);
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

// Like model_read_count, for an optional key: without it *out stays unchanged.
enum status model_read_optional(struct model_opening *opening, const char *name, struct model_range range,
				uint32_t *out)
{
	uint64_t value;
	const char *key = model_key(opening, name);
	return gguf_get_count(opening->gguf, key, &value) || gguf_get_array(opening->gguf, key, &value)
		       ? model_read_count(opening, name, range, out)
		       : STATUS_OK;
}

static enum status read_heads(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	enum status status = model_read_count(opening, "attention.head_count",
					      (struct model_range){1, LIMIT_MODEL_HEADS, 1}, &shape->heads);
	if (status)
		return status;
	shape->kv_heads = shape->heads;
	shape->head_size = shape->embedding / shape->heads;
	bool whole = !(shape->embedding % shape->heads);
	uint64_t given;
	if (!whole && !gguf_get_count(opening->gguf, model_key(opening, "attention.key_length"), &given))
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "an embedding of %" PRIu32 " is not to be divided among %" PRIu32 " heads",
				 shape->embedding, shape->heads);
	status = opening->architecture->convolves
			 ? model_read_turns(opening)
			 : model_read_optional(opening, "attention.head_count_kv",
					       (struct model_range){1, shape->heads, 1}, &shape->kv_heads);
	if (!status)
		status = model_read_optional(opening, "attention.key_length",
					     (struct model_range){2, LIMIT_MODEL_HEAD_SIZE, 2}, &shape->head_size);
	uint32_t value_size = shape->head_size;
	if (!status)
		status = model_read_optional(opening, "attention.value_length",
					     (struct model_range){2, LIMIT_MODEL_HEAD_SIZE, 2}, &value_size);
	if (status)
		return status;
	if (shape->heads % shape->kv_heads || shape->head_size < 2 || shape->head_size % 2 ||
	    shape->head_size > LIMIT_MODEL_HEAD_SIZE)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "%" PRIu32 " heads of %" PRIu32 " do not fit %" PRIu32 " heads of keys", shape->heads,
				 shape->head_size, shape->kv_heads);
	if (value_size != shape->head_size)
		return model_not_computed(opening, "values of another size than its keys");
	return STATUS_OK;
}

// How many blocks of the file are layers. The last blocks may be there to guess further tokens: they are left out.
static enum status read_layers(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	uint64_t further = 0;
	enum status status = model_read_count(opening, "block_count", (struct model_range){1, LIMIT_MODEL_LAYERS, 1},
					      &shape->layers);
	opening->blocks = shape->layers;
	if (status || !(opening->architecture->keys & KEYS_FURTHER))
		return status;
	gguf_get_count(opening->gguf, model_key(opening, "nextn_predict_layers"), &further);
	if (further >= shape->layers)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "%s is %" PRIu64 "; the model has %" PRIu32 " blocks in all", opening->key, further,
				 shape->layers);
	shape->layers -= (uint32_t)further;
	return STATUS_OK;
}

static enum status read_shape(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	const struct model_range width = {WIDTH_MULTIPLE, LIMIT_MODEL_WIDTH, WIDTH_MULTIPLE};
	double epsilon = 0;
	enum status status = read_layers(opening);
	if (!status)
		status = model_read_count(opening, "context_length", (struct model_range){1, LIMIT_MODEL_CONTEXT, 1},
					  &shape->context);
	if (!status)
		status = refuse_features(opening);
	if (!status)
		status = model_read_count(opening, "embedding_length", width, &shape->embedding);
	if (!status)
		status = opening->architecture->needs_experts // which may have no other width than theirs
				 ? model_read_optional(opening, "feed_forward_length", width, &shape->feed_forward)
				 : model_read_count(opening, "feed_forward_length", width, &shape->feed_forward);
	if (!status)
		status = model_read_experts(opening);
	if (!status)
		status = opening->architecture->latent ? model_read_latent(opening) : read_heads(opening);
	if (!status)
		status = model_read_delta(opening);
	if (!status)
		status = model_read_pooling(opening);
	if (!status)
		status = model_read_ends(opening);
	if (status)
		return status;
	const char *key = model_key(opening, opening->architecture->encoder ? "attention.layer_norm_epsilon"
									    : "attention.layer_norm_rms_epsilon");
	if (!gguf_get_number(opening->gguf, key, &epsilon) || !(epsilon > 0) || epsilon > 1)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not there, or no number between 0 and 1",
				 key);
	shape->norm_epsilon = (float)epsilon;
	status = read_window(opening);
	if (status)
		return status;
	architecture_shape(opening->architecture, shape);
	if (opening->architecture->maybe_bias)
		shape->qkv_bias = gguf_find(opening->gguf, "blk.0.attn_q.bias");
	if (opening->architecture->maybe_qk_norm && !gguf_find(opening->gguf, "blk.0.attn_q_norm.weight"))
		shape->qk_norm = QK_NORM_NONE;
	return read_scales(opening);
}

// ---- the model ----

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
	struct model_opening opening = {.gguf = gguf, .shape = &model->shape, .used = used, .error = error};
	status = refuse_parts(&opening);
	if (!status)
		status = refuse_vocabulary(&opening);
	if (!status)
		status = read_family(&opening);
	if (!status)
		status = read_shape(&opening);
	if (!status && (!model->shape.encoder || model->shape.turned))
		status = model_read_rope(&opening);
	if (!status)
		status = model_read_vocabulary(&opening);
	if (status)
		goto out;
	model->layers = calloc(model->shape.layers, sizeof(*model->layers));
	if (!model->layers)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a model");
	if (!status)
		status = model_find_tensors(&opening, model);
	if (!status)
		status = model_refuse_others(&opening);
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
	if (!tensor->data)
		return 0;
	model_tensor_as(tensor, format, &held);
	sizes->format_bytes[held.format] += held.bytes;
	sizes->parameters += (uint64_t)held.rows * held.columns;
	return held.bytes;
}

void model_sizes_as(const struct model *model, enum tensor_format format, struct model_sizes *sizes)
{
	*sizes = (struct model_sizes){.main_format = FORMAT_UNKNOWN};
	for (enum model_role role = ROLE_TOKEN_EMBEDDING; role <= ROLE_OUTPUT; role++)
		if (role < ROLE_OUTPUT_NORM)
			sizes->embedding_bytes += bytes_as(&model->outer[role], format, sizes);
		else if (role != ROLE_OUTPUT || !model->shape.tied)
			sizes->output_bytes += bytes_as(&model->outer[role], format, sizes);
	sizes->output_bytes += model->shape.tied ? sizes->embedding_bytes : 0;
	for (uint32_t layer = 0; layer < model->shape.layers; layer++) {
		uint64_t bytes = 0;
		for (enum model_role role = ROLE_ATTENTION_NORM; role < ROLE_COUNT; role++) {
			if (!model->layers[layer][role].data)
				continue;
			const uint64_t its = bytes_as(&model->layers[layer][role], format, sizes);
			bytes += its;
			sizes->expert_bytes += model_role_is_experts(role) ? its : 0;
		}
		sizes->layers_bytes += bytes;
		if (bytes > sizes->layer_bytes)
			sizes->layer_bytes = bytes;
	}
	for (enum tensor_format each = FORMAT_UNKNOWN + 1; each < FORMAT_COUNT; each++)
		if (sizes->format_bytes[each] > sizes->format_bytes[sizes->main_format])
			sizes->main_format = each;
}

double model_layer_read(const struct model_shape *shape, const struct model_sizes *sizes, double rows)
{
	const double one = shape->experts ? (double)shape->experts_used / shape->experts : 1;
	const double unread = shape->experts ? pow(1 - one, rows) : 0;
	return shape->layers ? ((double)sizes->layers_bytes - unread * (double)sizes->expert_bytes) / shape->layers : 0;
}

void model_sizes(const struct model *model, struct model_sizes *sizes)
{
	model_sizes_as(model, FORMAT_UNKNOWN, sizes);
}
