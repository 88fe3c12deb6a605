/* Attention of a layer, as its dispatches: norms of heads, rotary positions, keys and values into their pages, and what
 * the rows attend to. See stage_program.h. */
#include "engine/vulkan/stage/stage_program.h"

enum { ATTENTION_LANES = 128 };

// For olmo2: norms of q and k over all their heads.
static enum status record_whole_norms(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	const struct backend_stage *stage = recorder->stage;
	const struct model_shape *shape = &stage->shape;
	if (shape->qk_norm != QK_NORM_WHOLE)
		return STATUS_OK;
	enum status status = stage_record_post(recorder, NULL, stage->q, shape->heads * shape->head_size,
					       layer->vectors[ROLE_Q_NORM]);
	if (!status)
		status = stage_record_post(recorder, NULL, stage->k, shape->kv_heads * shape->head_size,
					   layer->vectors[ROLE_K_NORM]);
	stage_record_barrier(recorder);
	return status;
}

static enum status record_rope(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct model_shape *shape = &stage->shape;
	const unsigned kinds = shape->layer_kinds[stage_layer_number(stage, layer)];
	const uint32_t local = kinds & LAYER_LOCAL ? stage->rows * shape->rope_size : 0;
	const uint32_t none = UINT32_MAX;
	struct {
		uint32_t heads, kv_heads, size, padded, rope_size, halves, rope_at, slots_at, bias[3], norm[2];
		float epsilon;
		uint32_t query_rows;
	} push = {.heads = shape->heads,
		  .kv_heads = shape->kv_heads,
		  .size = shape->head_size,
		  .padded = stage->padded,
		  .rope_size = kinds & LAYER_UNTURNED ? 0 : shape->rope_size,
		  .halves = shape->rope_halves,
		  .rope_at = stage->places.rope + local,
		  .slots_at = stage->places.slots,
		  .bias = {none, none, none},
		  .norm = {none, none},
		  .epsilon = shape->norm_epsilon,
		  .query_rows = model_query_rows(shape)};
	if (shape->qkv_bias) {
		push.bias[0] = layer->vectors[ROLE_Q_BIAS];
		push.bias[1] = layer->vectors[ROLE_K_BIAS];
		push.bias[2] = layer->vectors[ROLE_V_BIAS];
	}
	if (shape->qk_norm == QK_NORM_HEADS) {
		push.norm[0] = layer->vectors[ROLE_Q_NORM];
		push.norm[1] = layer->vectors[ROLE_K_NORM];
	}
	struct stage_dispatch dispatch = {.shader = STAGE_ROPE,
					  .from = stage->k,
					  .to = stage->q,
					  .also = stage->v,
					  .pages = layer->set,
					  .groups = {shape->heads + 2 * shape->kv_heads, recorder->shape->rows, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

// As many invocations as have a vec4 of a query, in powers of two.
static uint32_t attention_lanes(uint32_t tile, uint32_t padded)
{
	uint32_t lanes = 32;
	while (lanes < ATTENTION_LANES && lanes < tile * padded / 4)
		lanes *= 2;
	return lanes;
}

// Where a layer has the scores of heads that have no value.
static uint32_t sinks_of(const struct backend_stage *stage, const struct stage_layer *layer)
{
	return stage->shape.sinks ? layer->vectors[ROLE_SINKS] : UINT32_MAX;
}

// Where heads' results go, and how many groups of 32 a row of them has: of latents each head has a row.
static const struct backend_buffer *results_of(const struct backend_stage *stage, uint32_t *groups)
{
	const struct model_shape *shape = &stage->shape;
	const bool latent = model_is_latent(shape);
	*groups = stage_groups_of(latent ? shape->latent.rank : shape->heads * shape->head_size);
	return latent ? stage->latent.values : stage->a;
}

static enum status record_combine(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct model_shape *shape = &stage->shape;
	struct {
		uint32_t heads, size, padded, splits, to_groups, query_rows, sinks, apart;
	} push = {shape->heads,
		  model_value_size(shape),
		  stage->padded_value,
		  recorder->shape->splits,
		  0,
		  model_is_latent(shape) ? 0 : model_query_rows(shape),
		  sinks_of(stage, layer),
		  model_is_latent(shape)};
	const struct backend_buffer *to = results_of(stage, &push.to_groups);
	struct stage_dispatch dispatch = {.shader = STAGE_COMBINE,
					  .from = stage->partial,
					  .to = to,
					  .also = stage->q,
					  .groups = {shape->heads, recorder->shape->rows, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

enum status stage_record_scores(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct model_shape *shape = &stage->shape;
	uint32_t tile = recorder->shape->tile, splits = recorder->shape->splits;
	struct {
		uint32_t tiles_at, pages_at, heads, kv_heads, size, to_groups, splits;
		float scale;
		uint32_t window;
		float cap;
		uint32_t query_rows, sinks, value_size, apart;
	} push = {stage->places.tiles,
		  stage->places.pages,
		  shape->heads,
		  shape->kv_heads,
		  shape->head_size,
		  0,
		  splits,
		  stage->scale,
		  model_layer_window(shape, stage_layer_number(stage, layer)),
		  shape->attention_cap,
		  model_query_rows(shape),
		  sinks_of(stage, layer),
		  model_value_size(shape),
		  model_is_latent(shape)};
	const struct backend_buffer *to = results_of(stage, &push.to_groups);
	struct stage_dispatch dispatch = {
		.shader = STAGE_ATTENTION,
		.constants = {{attention_lanes(tile, stage->padded_value), stage->padded, tile, splits > 1,
			       stage->padded_value, model_is_latent(shape)}},
		.from = stage->q,
		.to = splits > 1 ? stage->partial : to,
		.pages = layer->set,
		.groups = {recorder->shape->tiles, shape->kv_heads, splits},
		.push = &push,
		.push_bytes = sizeof(push)};
	enum status status = stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
	if (status || splits == 1)
		return status;
	stage_record_barrier(recorder);
	return record_combine(recorder, layer);
}

enum status stage_record_attention(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	enum status status = record_whole_norms(recorder, layer);
	if (!status)
		status = record_rope(recorder, layer);
	stage_record_barrier(recorder);
	return status ? status : stage_record_scores(recorder, layer);
}
