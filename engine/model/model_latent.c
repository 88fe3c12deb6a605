/* Sizes of multi-head latent attention in a model file. See model.h, struct model_latent.
 *
 * attention.key_length and value_length are those of what is kept: a latent with the key that turns, and a latent. The
 * keys with _mla are those of a head. Files from before April 2025 have no such keys: attention.key_length and
 * value_length are those of a head, and attn_kv_b has the rows that would make each head's key, then those of its
 * value. Of that one tensor attn_k_b is the first part of each head, the other way round, and attn_v_b the second. */
#include "engine/model/model_inside.h"

#include <inttypes.h>
#include <math.h>

// The sizes of the cache of a token, in a file that has them.
static enum status read_kept(struct model_opening *opening, uint32_t *value_size)
{
	struct model_shape *shape = opening->shape;
	enum status status = model_read_count(opening, "attention.head_count_kv", (struct model_range){1, 1, 1},
					      &shape->kv_heads);
	if (!status)
		status = model_read_count(opening, "attention.key_length",
					  (struct model_range){4, LIMIT_MODEL_LATENT, 2}, &shape->head_size);
	return status ? status
		      : model_read_count(opening, "attention.value_length",
					 (struct model_range){2, LIMIT_MODEL_HEAD_SIZE, 2}, value_size);
}

enum status model_read_latent(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	struct model_latent *latent = &shape->latent;
	const struct model_range size = {2, LIMIT_MODEL_HEAD_SIZE, 2};
	uint32_t turned = 0, kept = 0;
	uint64_t given;
	const bool older = !gguf_get_count(opening->gguf, model_key(opening, "attention.key_length_mla"), &given);
	enum status status = model_read_count(opening, "attention.head_count",
					      (struct model_range){1, LIMIT_MODEL_HEADS, 1}, &shape->heads);
	if (!status)
		status = model_read_count(opening, "attention.kv_lora_rank", size, &latent->rank);
	if (!status)
		status = model_read_optional(opening, "attention.q_lora_rank",
					     (struct model_range){2, LIMIT_MODEL_WIDTH, 2}, &latent->query_rank);
	if (!status)
		status = model_read_count(opening, older ? "attention.key_length" : "attention.key_length_mla", size,
					  &latent->key_size);
	if (!status)
		status = model_read_count(opening, older ? "attention.value_length" : "attention.value_length_mla",
					  size, &latent->value_size);
	if (!status)
		status = model_read_count(opening, "rope.dimension_count", size, &turned);
	if (!status && !older)
		status = read_kept(opening, &kept);
	if (status)
		return status;
	if (older) {
		opening->joined = true;
		shape->kv_heads = 1;
		shape->head_size = latent->rank + turned;
		kept = latent->rank;
	}
	if (latent->rank + turned != shape->head_size || kept != latent->rank || turned >= latent->key_size ||
	    shape->head_size > LIMIT_MODEL_LATENT)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "heads of %" PRIu32 ", of which %" PRIu32 " turn, do not fit latents of %" PRIu32
				 " that are kept as %" PRIu32 " and %" PRIu32,
				 latent->key_size, turned, latent->rank, shape->head_size, kept);
	shape->attention_scale = 1 / sqrtf((float)latent->key_size);
	return STATUS_OK;
}

bool architecture_latent_tensor(const struct model_shape *shape, enum model_role role, struct wanted_tensor *out)
{
	const struct model_latent *latent = &shape->latent;
	const uint32_t width = shape->embedding, heads = shape->heads, turned = shape->head_size - latent->rank;
	const uint32_t from = latent->query_rank ? latent->query_rank : width;
	const struct wanted_tensor all[ROLE_COUNT] = {
		[ROLE_Q_A] = {"attn_q_a.weight", latent->query_rank, width},
		[ROLE_Q_NORM] = {"attn_q_a_norm.weight", 1, latent->query_rank, true},
		[ROLE_Q] = {latent->query_rank ? "attn_q_b.weight" : "attn_q.weight", heads * latent->key_size, from},
		[ROLE_K] = {"attn_kv_a_mqa.weight", shape->head_size, width},
		[ROLE_K_NORM] = {"attn_kv_a_norm.weight", 1, latent->rank, true},
		[ROLE_K_B] = {"attn_k_b.weight", heads * latent->rank, latent->key_size - turned, .experts = heads},
		[ROLE_V_B] = {"attn_v_b.weight", heads * latent->value_size, latent->rank, .experts = heads},
	};
	*out = all[role];
	return out->name;
}

static uint32_t unturned_of(const struct model_shape *shape)
{
	return shape->latent.key_size - (shape->head_size - shape->latent.rank);
}

struct wanted_tensor model_joined_tensor(const struct model_shape *shape)
{
	const uint32_t rows = unturned_of(shape) + shape->latent.value_size;
	return (struct wanted_tensor){
		.name = "attn_kv_b.weight", .rows = shape->heads * rows, .columns = shape->latent.rank};
}

void model_take_part(const struct model_shape *shape, enum model_role role, struct model_tensor *tensor)
{
	const struct model_latent *latent = &shape->latent;
	const uint32_t keys = unturned_of(shape);
	const bool across = role == ROLE_K_B;
	tensor->joined = (struct model_joined){.heads = shape->heads,
					       .rows = keys + latent->value_size,
					       .columns = latent->rank,
					       .first = across ? 0 : keys,
					       .across = across,
					       .format = tensor->format};
	tensor->rows = shape->heads * (across ? latent->rank : latent->value_size);
	tensor->columns = across ? keys : latent->rank;
	if (across && tensor->format != FORMAT_F32 && tensor->format != FORMAT_BF16)
		tensor->format = FORMAT_F16;
}
