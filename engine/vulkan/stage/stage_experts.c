/* Records the dispatches of a mixture of experts. See stage.h.
 *
 * The device chooses each row's experts by their scores, so the following commands are recorded before the choice is
 * known. Few rows: each slot (a row together with one of its experts) is a product of its own, which reads the weights
 * of that expert. Many rows: slots are sorted by expert, and those of each expert are multiplied in tiles; there are
 * enough tiles for the case that all rows choose the same expert, so most of them have nothing to do. Then the results
 * of each row's slots are added.
 *
 *     scores = h · Wᵀ | experts of each row (| slots by expert) | f = silu(gate) up | out = f · Wᵀ | x += out by row */
#include "engine/vulkan/stage/stage_program.h"

static uint32_t up(uint64_t count, uint32_t of)
{
	return (uint32_t)((count + of - 1) / of);
}

static uint32_t slots_of(const struct stage_recorder *recorder)
{
	return recorder->shape->rows * recorder->stage->shape.experts_used;
}

static enum status record_route(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct {
		uint32_t experts, used, slots, share, choice;
		float scale;
		uint32_t groups, groups_used;
	} push = {stage->shape.experts,
		  stage->shape.experts_used,
		  slots_of(recorder),
		  stage->shape.expert_share,
		  stage->shape.expert_sigmoid ? layer->vectors[ROLE_ROUTER_CHOICE] : UINT32_MAX,
		  stage->shape.expert_scale > 0 ? stage->shape.expert_scale : 1,
		  stage->shape.expert_groups,
		  stage->shape.expert_groups_used};
	const struct {
		uint32_t experts, slots;
	} of_order = {push.experts, push.slots};
	struct stage_dispatch dispatch = {.shader = STAGE_ROUTE,
					  .from = stage->experts.scores,
					  .to = stage->experts.lists,
					  .groups = {recorder->shape->rows, 1, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	enum status status = stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
	stage_record_barrier(recorder);
	if (status || stage_rows_are_few(stage, recorder->shape->rows))
		return status;
	dispatch.shader = STAGE_ORDER;
	dispatch.groups[0] = 1;
	dispatch.push = &of_order;
	dispatch.push_bytes = sizeof(of_order);
	status = stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
	stage_record_barrier(recorder);
	return status;
}

// x += experts.out, by each row's weights or, of the shared part, by its score.
static enum status record_mix(const struct stage_recorder *recorder, bool shared)
{
	struct backend_stage *stage = recorder->stage;
	const uint32_t columns = stage->shape.embedding;
	const struct {
		uint32_t columns, groups, used, slots;
	} push = {columns, up(columns, 32), stage->shape.experts_used, slots_of(recorder)};
	const struct stage_dispatch dispatch = {.shader = STAGE_MIX,
						.constants = {{0, shared}},
						.from = stage->experts.out,
						.to = stage->x,
						.also = shared ? stage->experts.shared_scores : stage->experts.lists,
						.groups = {up(columns, STAGE_HEAD_LANES), recorder->shape->rows, 1},
						.push = &push,
						.push_bytes = sizeof(push)};
	enum status status = stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
	stage_record_barrier(recorder);
	return status;
}

// The part that all rows go through.
static enum status record_shared(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct stage_matrix *gate = &layer->matrices[ROLE_FFN_GATE], *other = &layer->matrices[ROLE_FFN_UP];
	const uint32_t rows = recorder->shape->rows;
	const bool paired = gate->format == other->format, gated = stage->shape.shared_gate;
	const struct stage_product first = {.matrix = gate,
					    .from = stage->h,
					    .to = paired ? stage->f : stage->gate,
					    .epilogue = paired ? STAGE_PAIR : STAGE_STORE,
					    .rows = rows,
					    .norm = STAGE_NO_NORM},
				   second = {.matrix = other,
					     .from = stage->h,
					     .to = stage->f,
					     .also = stage->gate,
					     .epilogue = STAGE_GATE,
					     .rows = rows,
					     .norm = STAGE_NO_NORM},
				   down = {.matrix = &layer->matrices[ROLE_FFN_DOWN],
					   .from = stage->f,
					   .to = gated ? stage->experts.out : stage->x,
					   .epilogue = gated ? STAGE_STORE : STAGE_ADD,
					   .rows = rows,
					   .norm = STAGE_NO_NORM};
	enum status status = stage_record_product(recorder, &first);
	stage_record_barrier(recorder);
	if (!status && !paired) {
		status = stage_record_product(recorder, &second);
		stage_record_barrier(recorder);
	}
	if (!status)
		status = stage_record_product(recorder, &down);
	stage_record_barrier(recorder);
	return status || !gated ? status : record_mix(recorder, true);
}

static enum status record_chosen(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct stage_experts *experts = &stage->experts;
	const struct stage_matrix *gate = &layer->matrices[ROLE_EXPERT_GATE], *other = &layer->matrices[ROLE_EXPERT_UP];
	const bool paired = gate->format == other->format;
	const uint32_t *biases = stage->shape.expert_bias ? layer->vectors : NULL;
	struct stage_product product = {.matrix = gate,
					.from = stage->h,
					.to = paired ? experts->f : experts->gate,
					.epilogue = paired ? STAGE_PAIR : STAGE_STORE,
					.rows = recorder->shape->rows,
					.norm = STAGE_NO_NORM,
					.experts = true,
					.bias = biases ? &biases[ROLE_EXPERT_GATE_BIAS] : NULL,
					.second_bias = biases ? &biases[ROLE_EXPERT_UP_BIAS] : NULL};
	enum status status = stage_record_product(recorder, &product);
	stage_record_barrier(recorder);
	if (!status && !paired) {
		product.matrix = other;
		product.to = experts->f;
		product.also = experts->gate;
		product.epilogue = STAGE_GATE;
		product.bias = product.second_bias;
		status = stage_record_product(recorder, &product);
		stage_record_barrier(recorder);
	}
	product.matrix = &layer->matrices[ROLE_EXPERT_DOWN];
	product.from = experts->f;
	product.to = experts->out;
	product.also = NULL;
	product.epilogue = STAGE_STORE;
	product.bias = biases ? &biases[ROLE_EXPERT_DOWN_BIAS] : NULL;
	product.by_slot = true;
	if (!status)
		status = stage_record_product(recorder, &product);
	stage_record_barrier(recorder);
	return status ? status : record_mix(recorder, false);
}

enum status stage_record_experts(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct stage_product scores = {.matrix = &layer->matrices[ROLE_ROUTER],
					     .from = stage->h,
					     .to = stage->experts.scores,
					     .epilogue = STAGE_STORE,
					     .rows = recorder->shape->rows,
					     .norm = STAGE_NO_NORM,
					     .bias = stage->shape.expert_bias ? &layer->vectors[ROLE_ROUTER_BIAS]
									      : NULL};
	struct stage_product shared = scores;
	shared.bias = NULL;
	shared.matrix = &layer->matrices[ROLE_SHARED_GATE];
	shared.to = stage->experts.shared_scores;
	enum status status = stage_record_product(recorder, &scores);
	if (!status && stage->shape.shared_gate)
		status = stage_record_product(recorder, &shared);
	stage_record_barrier(recorder);
	if (!status && stage->shape.feed_forward)
		status = record_shared(recorder, layer);
	if (!status)
		status = record_route(recorder, layer);
	return status ? status : record_chosen(recorder, layer);
}
