/* Layers with a gated delta rule or a short convolution in a stage's program (engine/model/model.h). See stage.h.
 *
 * Products of the norm's rows, the convolution of each channel, the heads, and the product that adds to x. A run's rows
 * follow each other within the shaders; its state comes from one slot of the layer's buffer and goes to another, or to
 * the same. */
#include "engine/vulkan/stage/stage_program.h"

static uint32_t up(uint64_t count, uint32_t of)
{
	return (uint32_t)((count + of - 1) / of);
}

static uint32_t state_floats(const struct model_shape *shape)
{
	return (uint32_t)(stage_state_bytes(shape) / sizeof(float));
}

static enum status record_convolution(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct model_delta *sizes = &stage->shape.delta;
	struct {
		uint32_t runs_at, channels, weights, state_size;
	} push = {stage->places.runs, model_delta_channels(sizes), layer->vectors[ROLE_DELTA_CONV],
		  state_floats(&stage->shape)};
	struct stage_dispatch dispatch = {.shader = STAGE_CONVOLVE,
					  .constants = {{0, sizes->kernel}},
					  .from = stage->delta.channels,
					  .to = stage->delta.mixed,
					  .also = stage->delta.channels,
					  .pages = layer->set,
					  .groups = {up(push.channels, STAGE_HEAD_LANES), recorder->shape->runs, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

static enum status record_short(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct model_delta *sizes = &stage->shape.delta;
	struct {
		uint32_t runs_at, channels, weights, state_size, to_groups;
	} push = {stage->places.runs, model_delta_channels(sizes), layer->vectors[ROLE_DELTA_CONV],
		  state_floats(&stage->shape), up(model_delta_channels(sizes), 32)};
	struct stage_dispatch dispatch = {.shader = STAGE_SHORT,
					  .constants = {{0, sizes->kernel}},
					  .from = stage->delta.channels,
					  .to = stage->delta.out,
					  .also = stage->delta.gate,
					  .weights = stage->delta.scores.set,
					  .pages = layer->set,
					  .groups = {up(push.channels, STAGE_HEAD_LANES), recorder->shape->runs, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

static enum status record_heads(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct model_delta *sizes = &stage->shape.delta;
	struct {
		uint32_t runs_at, heads, key_heads, key_size, value_size, channels;
		uint32_t state_at, state_size, decay, bias, gain, to_groups;
		float epsilon;
		uint32_t grouped;
	} push = {.runs_at = stage->places.runs,
		  .heads = sizes->heads,
		  .key_heads = sizes->key_heads,
		  .key_size = sizes->key_size,
		  .value_size = sizes->value_size,
		  .channels = model_delta_channels(sizes),
		  .state_at = (sizes->kernel - 1) * model_delta_channels(sizes),
		  .state_size = state_floats(&stage->shape),
		  .decay = layer->vectors[ROLE_DELTA_DECAY],
		  .bias = layer->vectors[ROLE_DELTA_BIAS],
		  .gain = layer->vectors[ROLE_DELTA_NORM],
		  .to_groups = up((uint64_t)sizes->heads * sizes->value_size, 32),
		  .epsilon = stage->shape.norm_epsilon,
		  .grouped = sizes->grouped};
	struct stage_dispatch dispatch = {.shader = STAGE_DELTA,
					  .from = stage->delta.mixed,
					  .to = stage->delta.out,
					  .also = stage->delta.gate,
					  .weights = stage->delta.scores.set,
					  .pages = layer->set,
					  .groups = {sizes->heads, recorder->shape->runs, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

enum status stage_record_delta(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const uint32_t rows = recorder->shape->rows;
	const bool few = stage_rows_are_few(stage, rows);
	const struct backend_buffer *in = few ? stage->x : stage->h;
	const struct {
		enum model_role role;
		const struct backend_buffer *to;
	} parts[] = {
		{ROLE_DELTA_QKV, stage->delta.channels},
		{ROLE_DELTA_GATE, stage->delta.gate},
		{ROLE_DELTA_BETA, stage->delta.scores.buffer},
		{ROLE_DELTA_ALPHA, stage->delta.alpha},
	};
	enum status status = STATUS_OK;
	if (!few) {
		status = stage_record_norm(recorder, layer->vectors[ROLE_ATTENTION_NORM]);
		stage_record_barrier(recorder);
	}
	const bool is_short = model_delta_is_short(&stage->shape.delta);
	const size_t count = sizeof(parts) / sizeof(parts[0]) - !model_has_role(&stage->shape, ROLE_DELTA_ALPHA);
	for (size_t i = 0; !status && i < count; i++)
		status = stage_record_product(
			recorder, &(struct stage_product){.matrix = &layer->matrices[parts[i].role],
							  .from = in,
							  .to = parts[i].to,
							  .epilogue = STAGE_STORE,
							  .rows = rows,
							  .norm = few ? (int64_t)layer->vectors[ROLE_ATTENTION_NORM]
								      : STAGE_NO_NORM});
	stage_record_barrier(recorder);
	if (!status)
		status = is_short ? record_short(recorder, layer) : record_convolution(recorder, layer);
	stage_record_barrier(recorder);
	if (!status && !is_short) {
		status = record_heads(recorder, layer);
		stage_record_barrier(recorder);
	}
	if (!status)
		status = stage_record_product(recorder,
					      &(struct stage_product){.matrix = &layer->matrices[ROLE_DELTA_OUTPUT],
								      .from = stage->delta.out,
								      .to = stage->x,
								      .epilogue = STAGE_ADD,
								      .rows = rows,
								      .norm = STAGE_NO_NORM});
	stage_record_barrier(recorder);
	return status;
}
