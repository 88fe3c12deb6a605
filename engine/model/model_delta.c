/* Layers with a state in a model file: the sizes of their gated delta rule, and which layers they are. See
 * model_inside.h. */
#include "engine/model/model_inside.h"

#include <inttypes.h>

enum status model_read_delta(struct model_opening *opening)
{
	struct model_delta *delta = &opening->shape->delta;
	const struct model_range heads = {1, LIMIT_MODEL_HEADS, 1}, size = {2, LIMIT_MODEL_HEAD_SIZE, 2};
	uint32_t inner = 0, every = opening->architecture->whole_every;
	if (!opening->architecture->recurrent)
		return STATUS_OK;
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
