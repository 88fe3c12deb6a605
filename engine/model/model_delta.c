/* Layers with a state in a model file: the sizes of their gated delta rule, and which layers they are. See
 * model_inside.h. */
#include "engine/model/model_inside.h"

#include <inttypes.h>
#include <math.h>

enum status model_read_turns(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	const char *key = model_key(opening, "attention.head_count_kv");
	uint64_t length = 0;
	uint32_t heads = 0, without = 0;
	if (!gguf_get_array(opening->gguf, key, &length) || length != shape->layers)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "%s is not a list of %" PRIu32 " numbers, which says which layers attend", key,
				 shape->layers);
	for (uint32_t layer = 0; layer < shape->layers; layer++) {
		double value = -1;
		gguf_array_number(opening->gguf, key, layer, &value);
		if (!(value >= 0) || value > shape->heads || value > floor(value) ||
		    (heads && value > 0 && (uint32_t)value != heads))
			return error_set(opening->error, STATUS_INVALID_PARAMS,
					 "%s is not 0, or one number up to %" PRIu32 ", in each layer", key,
					 shape->heads);
		heads = value > 0 ? (uint32_t)value : heads;
		without += !(value > 0);
		shape->layer_kinds[layer] = value > 0 ? 0 : LAYER_DELTA;
	}
	if (!heads || !without)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "%s names no layer that attends, or none that does not", key);
	shape->kv_heads = heads;
	return STATUS_OK;
}

// A short convolution is as wide as the embedding.
static enum status read_short(struct model_opening *opening)
{
	struct model_delta *delta = &opening->shape->delta;
	delta->heads = 1;
	delta->value_size = opening->shape->embedding;
	return model_read_count(opening, "shortconv.l_cache", (struct model_range){2, MODEL_KERNEL_MOST, 1},
				&delta->kernel);
}

enum status model_read_delta(struct model_opening *opening)
{
	struct model_delta *delta = &opening->shape->delta;
	const struct model_range heads = {1, LIMIT_MODEL_HEADS, 1}, size = {2, LIMIT_MODEL_HEAD_SIZE, 2};
	uint32_t inner = 0, every = opening->architecture->whole_every;
	if (!opening->architecture->recurrent)
		return STATUS_OK;
	if (opening->architecture->convolves)
		return read_short(opening);
	enum status status = model_read_optional(opening, "full_attention_interval",
						 (struct model_range){1, LIMIT_MODEL_LAYERS, 1}, &every);
	if (!status)
		status = model_read_count(opening, "ssm.group_count", heads, &delta->key_heads);
	if (!status)
		status = model_read_count(opening, "ssm.time_step_rank", heads, &delta->heads);
	if (!status)
		status = model_read_count(opening, "ssm.state_size", size, &delta->key_size);
	if (!status)
		status = model_read_count(opening, "ssm.inner_size", (struct model_range){2, LIMIT_MODEL_WIDTH, 2},
					  &inner);
	if (!status)
		status = model_read_count(opening, "ssm.conv_kernel", (struct model_range){2, MODEL_KERNEL_MOST, 1},
					  &delta->kernel);
	if (status)
		return status;
	if (every != opening->architecture->whole_every)
		return model_not_computed(opening, "another turn of layers that attend (full_attention_interval)");
	delta->value_size = inner / delta->heads;
	if (delta->heads % delta->key_heads || inner % delta->heads || delta->value_size % 2 || !delta->value_size ||
	    delta->value_size > LIMIT_MODEL_HEAD_SIZE || model_delta_channels(delta) > LIMIT_MODEL_WIDTH)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "%" PRIu32 " heads with %" PRIu32 " values in all, and %" PRIu32 " heads of %" PRIu32
				 " keys, do not fit each other (ssm.inner_size, ssm.time_step_rank, ssm.group_count, "
				 "ssm.state_size)",
				 delta->heads, inner, delta->key_heads, delta->key_size);
	return STATUS_OK;
}
