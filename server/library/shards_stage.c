/* See shards_stage.h. */
#include "server/library/shards_stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const role_names[ROLE_COUNT] = {
	[ROLE_TOKEN_EMBEDDING] = "token_embedding",
	[ROLE_ATTENTION_NORM] = "attention_norm",
	[ROLE_Q] = "q",
	[ROLE_K] = "k",
	[ROLE_V] = "v",
	[ROLE_Q_BIAS] = "q_bias",
	[ROLE_K_BIAS] = "k_bias",
	[ROLE_V_BIAS] = "v_bias",
	[ROLE_Q_NORM] = "q_norm",
	[ROLE_K_NORM] = "k_norm",
	[ROLE_ATTENTION_OUTPUT] = "attention_output",
	[ROLE_FFN_NORM] = "ffn_norm",
	[ROLE_FFN_GATE] = "gate",
	[ROLE_FFN_UP] = "up",
	[ROLE_FFN_DOWN] = "down",
};
static const char factors_name[] = "rope_freqs.weight"; // of Llama 3: a divisor for each frequency

static enum status add_tensor(struct stage_told *out, struct json *tensors, const struct model *model,
			      enum model_role role, uint32_t layer, const uint8_t *bytes, struct error *error)
{
	struct model_tensor tensor;
	if (!model_tensor(model, role, layer, &tensor))
		return STATUS_OK; // this model has none
	const char *format = format_info(tensor.format)->name;
	if (!role_names[role] || tensor.packing != PACKING_NONE || tensor.pitch || tensor.joined.heads)
		return error_set(error, STATUS_UNAVAILABLE,
				 "a browser does not compute what layer %u of this file has as tensor %d (%s)", layer,
				 (int)role, format);
	struct stage_place *places = realloc(out->places, (out->count + 1) * sizeof *places);
	if (!places)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	out->places = places;
	places[out->count++] = (struct stage_place){.offset = (uint64_t)(tensor.data - bytes), .bytes = tensor.bytes};
	struct json *json = json_new_object();
	json_set_string(json, "role", role_names[role]);
	json_set_integer(json, "layer", layer);
	json_set_string(json, "format", format);
	json_set_integer(json, "rows", tensor.rows);
	json_set_integer(json, "columns", tensor.columns);
	json_push(tensors, json);
	return STATUS_OK;
}

// By what each frequency is divided; all 1 where the file has no such list. Its place in the file is checked: the model
// was opened.
static enum status read_factors(float factors[256], const struct model_shape *shape, const struct gguf *gguf,
				const uint8_t *bytes, int fd, struct error *error)
{
	const struct gguf_tensor *tensor = gguf_find(gguf, factors_name);
	const size_t wanted = shape->rope_size / 2 * sizeof *factors;
	for (unsigned i = 0; i < 256; i++)
		factors[i] = 1;
	if (!tensor || !tensor->data)
		return STATUS_OK;
	if (pread(fd, factors, wanted, (off_t)(tensor->data - bytes)) != (ssize_t)wanted)
		return error_set(error, STATUS_UNAVAILABLE, "%s of the model file cannot be read", factors_name);
	for (unsigned i = 0; i < shape->rope_size / 2; i++)
		if (!(factors[i] > 0) || isinf(factors[i]))
			return error_set(error, STATUS_UNAVAILABLE, "%s holds something else than positive numbers",
					 factors_name);
	return STATUS_OK;
}

static struct json *shape_json(const struct model_shape *shape, const float factors[256])
{
	struct json *json = json_new_object(), *frequencies = json_new_array(), *unturned = json_new_array();
	const struct {
		const char *name;
		uint32_t value;
	} counts[] = {
		{"embedding", shape->embedding}, {"feed_forward", shape->feed_forward},
		{"heads", shape->heads},         {"kv_heads", shape->kv_heads},
		{"head_size", shape->head_size}, {"vocabulary", shape->vocabulary},
		{"rope_size", shape->rope_size},
	};
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		json_set_integer(json, counts[i].name, counts[i].value);
	json_set_number(json, "norm_epsilon", (double)shape->norm_epsilon);
	json_set_number(json, "embedding_scale", shape->embedding_scale > 0 ? (double)shape->embedding_scale : 1);
	json_set_number(json, "attention_scale", (double)model_attention_scale(shape));
	json_set_number(json, "rope_magnitude", shape->rope_size ? (double)shape->rope_magnitude : 1);
	json_set_string(json, "gate", shape->gate == GATE_GELU ? "gelu" : "silu");
	json_set_bool(json, "qkv_bias", shape->qkv_bias);
	json_set_bool(json, "qk_norm", shape->qk_norm == QK_NORM_HEADS);
	json_set_bool(json, "rope_halves", shape->rope_halves);
	for (uint32_t i = 0; i < shape->rope_size / 2; i++)
		json_push(frequencies, json_new_number(shape->rope_frequency[i] / (double)factors[i]));
	json_set(json, "rope_frequency", frequencies);
	for (uint32_t i = 0; i < shape->layers; i++)
		if (shape->layer_kinds[i] & LAYER_UNTURNED)
			json_push(unturned, json_new_integer(i));
	json_set(json, "unturned", unturned);
	return json;
}

enum status stage_tell(struct stage_told *out, const struct shards_part *part, const struct model *model,
		       const struct gguf *gguf, const uint8_t *bytes, int fd, struct error *error)
{
	const struct model_shape *shape = model_shape(model);
	float factors[256];
	*out = (struct stage_told){.json = json_new_object()};
	if (part->predicts)
		return error_set(error, STATUS_UNAVAILABLE, "a browser holds no last layers of a model");
	enum status status = read_factors(factors, shape, gguf, bytes, fd, error);
	if (status)
		return status;
	json_set_integer(out->json, "first_layer", part->first_layer);
	json_set_integer(out->json, "layer_count", part->layer_count);
	json_set_bool(out->json, "embeds", part->embeds);
	json_set(out->json, "shape", shape_json(shape, factors));
	struct json *tensors = json_new_array();
	if (part->embeds)
		status = add_tensor(out, tensors, model, ROLE_TOKEN_EMBEDDING, 0, bytes, error);
	for (uint32_t layer = part->first_layer; layer < part->first_layer + part->layer_count; layer++)
		for (int role = ROLE_ATTENTION_NORM; !status && role < ROLE_COUNT; role++)
			status = add_tensor(out, tensors, model, (enum model_role)role, layer, bytes, error);
	json_set(out->json, "tensors", tensors);
	return status;
}

void stage_told_finish(struct stage_told *told)
{
	json_destroy(&told->json);
	free(told->places);
	*told = (struct stage_told){0};
}
