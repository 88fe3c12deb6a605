/* A mixture of experts: see stage.h and kernels/stage_experts.cu.
 *
 * The device chooses each row's experts and sorts rows by expert. The host does not know the choice, so it launches
 * blocks for the largest possible number of groups; blocks without rows end at once. So a step needs no result from the
 * device in between, and can be recorded as a graph. */
#include "engine/cuda/stage/stage_product.h"

enum { ROUTE_BLOCK = 32, ORDER_BLOCK = 256, MIX_BLOCK = 256 };

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

float stage_expert_scale(const struct backend_stage *stage)
{
	return stage->shape.expert_scale > 0 ? stage->shape.expert_scale : 1;
}

uint32_t stage_expert_slots(const struct backend_stage *stage, uint32_t slots)
{
	return slots + least(stage->shape.experts, slots) * (STAGE_EXPERT_ALIGN - 1) + STAGE_EXPERT_SPARE;
}

uint32_t stage_expert_groups(const struct backend_stage *stage, uint32_t slots, uint32_t group_rows)
{
	return least(stage->shape.experts, slots) + slots / group_rows;
}

// Compute the scores of the experts, and the score of the shared expert.
static enum status score(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			 struct error *error)
{
	struct stage_product product = {.matrices = {&layer->router},
					.count = 1,
					.x = stage->x,
					.norm = layer->ffn_norm,
					.y = stage->experts.scores,
					.rows = rows,
					.columns = stage->shape.embedding,
					.y_stride = stage->shape.experts};
	enum status status = stage_product_multiply(stage, &product, error);
	if (status || !stage->shape.shared_gate)
		return status;
	product.matrices[0] = &layer->shared_gate;
	product.y = stage->experts.shared_score;
	product.y_stride = 1;
	return stage_product_multiply(stage, &product, error);
}

static enum status choose(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			  struct error *error)
{
	const struct route_params params = {.scores = stage->experts.scores,
					    .chosen = stage->experts.chosen,
					    .weights = stage->experts.weights,
					    .experts = stage->shape.experts,
					    .used = stage->shape.experts_used,
					    .share = stage->shape.expert_share,
					    .groups = stage->shape.expert_groups,
					    .groups_used = stage->shape.expert_groups_used,
					    .choice = layer->router_choice,
					    .scale = stage_expert_scale(stage)};
	return stage_launch(
		stage,
		&(struct stage_launch){
			.kernel = STAGE_ROUTE, .grid = {rows, 1, 1}, .block = ROUTE_BLOCK, .params = &params},
		error);
}

// Some rows through their experts: from `first` on.
struct turn {
	const struct cuda_layer *layer;
	uint32_t first, rows, slots, group_rows, group_count;
	uint32_t together; // of Hopper's own products: slots that there is room for; else 0
};

static enum status order(struct backend_stage *stage, const struct turn *turn, struct error *error)
{
	const uint32_t used = stage->shape.experts_used;
	const struct order_params params = {.chosen = stage->experts.chosen + 4ull * turn->first * used,
					    .places = stage->experts.places,
					    .slot_rows = stage->experts.slot_rows,
					    .groups = stage->experts.groups,
					    .first_row = turn->first,
					    .slots = turn->slots,
					    .used = used,
					    .experts = stage->shape.experts,
					    .group_rows = turn->group_rows,
					    .group_count = turn->group_count,
					    .align = turn->together ? STAGE_EXPERT_ALIGN : 1};
	return stage_launch(stage,
			    &(struct stage_launch){
				    .kernel = STAGE_ORDER, .grid = {1, 1, 1}, .block = ORDER_BLOCK, .params = &params},
			    error);
}

static enum status multiply(struct backend_stage *stage, const struct turn *turn, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const struct cuda_experts *experts = &stage->experts;
	struct stage_matrix up = turn->layer->expert_up; // beside the gate's results
	up.first = shape->expert_width;
	const struct stage_product in = {.matrices = {&turn->layer->expert_gate, &up},
					 .count = 2,
					 .x = stage->x,
					 .norm = turn->layer->ffn_norm,
					 .from = experts->slot_rows,
					 .y = experts->gate_up,
					 .rows = turn->slots,
					 .columns = shape->embedding,
					 .y_stride = 2 * shape->expert_width,
					 .groups = experts->groups,
					 .group_count = turn->group_count,
					 .group_rows = turn->group_rows,
					 .experts = shape->experts};
	struct stage_product out = in;
	out.matrices[0] = &turn->layer->expert_down;
	out.count = 1;
	out.x = experts->gate_up;
	out.norm = out.from = 0;
	out.gated = true;
	out.y = experts->out;
	out.columns = shape->expert_width;
	out.y_stride = shape->embedding;
	enum status status = stage_product_many(stage, &in, error);
	return status ? status : stage_product_many(stage, &out, error);
}

// With the products of stage_wide.cuh.
static enum status multiply_wide(struct backend_stage *stage, const struct turn *turn, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const struct cuda_experts *experts = &stage->experts;
	const struct stage_product in = {.matrices = {&turn->layer->expert_gate, &turn->layer->expert_up},
					 .count = 2,
					 .x = stage->x,
					 .norm = turn->layer->ffn_norm,
					 .y = experts->gate_up,
					 .rows = turn->slots,
					 .columns = shape->embedding,
					 .y_stride = shape->expert_width,
					 .mode = GEMV_GATED,
					 .groups = experts->groups,
					 .group_count = turn->group_count,
					 .group_rows = turn->group_rows,
					 .experts = shape->experts,
					 .places = experts->places,
					 .copies = shape->experts_used,
					 .first_row = turn->first,
					 .together = turn->together};
	struct stage_product out = in;
	out.matrices[0] = &turn->layer->expert_down;
	out.count = 1;
	out.x = experts->gate_up;
	out.norm = 0;
	out.copies = 0;
	out.mode = GEMV_STORE;
	out.y = experts->out;
	out.columns = shape->expert_width;
	out.y_stride = shape->embedding;
	enum status status = stage_product_wide(stage, &in, error);
	return status ? status : stage_product_wide(stage, &out, error);
}

static enum status mix(struct backend_stage *stage, const struct turn *turn, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const uint64_t row = 4ull * turn->first;
	const struct mix_params params = {
		.out = stage->experts.out,
		.weights = stage->experts.weights + row * shape->experts_used,
		.places = stage->experts.places,
		.shared = shape->feed_forward ? stage->post + row * shape->embedding : 0,
		.shared_score = shape->shared_gate ? stage->experts.shared_score + row : 0,
		.x = (shape->post_norm ? stage->post : stage->x) + row * shape->embedding,
		.columns = shape->embedding,
		.used = shape->experts_used,
		.store = shape->post_norm,
	};
	return stage_launch(
		stage,
		&(struct stage_launch){
			.kernel = STAGE_MIX, .grid = {turn->rows, 1, 1}, .block = MIX_BLOCK, .params = &params},
		error);
}

enum status stage_experts(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			  struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const bool wide = stage_gemm_wide_fits(stage, layer->expert_gate.format) &&
			  stage_gemm_wide_fits(stage, layer->expert_up.format) &&
			  stage_gemm_wide_fits(stage, layer->expert_down.format);
	const bool hopper = stage_wide_fits(stage, layer->expert_gate.format) &&
			    stage_wide_fits(stage, layer->expert_down.format) && shape->gate == GATE_SILU &&
			    !shape->expert_bias && layer->expert_gate.format == layer->expert_up.format;
	struct stage_mixture mixture;
	enum status status = score(stage, layer, rows, error);
	if (!status && stage_mixture_plan(stage, layer, rows, &mixture))
		return stage_mixture_multiply(stage, &mixture, error);
	if (!status)
		status = choose(stage, layer, rows, error);
	for (uint32_t first = 0; !status && first < rows; first += stage->experts.rows) {
		struct turn turn = {.layer = layer, .first = first, .rows = least(rows - first, stage->experts.rows)};
		turn.slots = turn.rows * shape->experts_used;
		turn.group_rows = wide && turn.slots / shape->experts > GEMM_ROWS_NARROW ? GEMM_ROWS_WIDE
											 : GEMM_ROWS_NARROW;
		if (hopper) {
			turn.group_rows = stage_wide_width(2 * turn.slots / shape->experts);
			turn.together = stage_expert_slots(stage, turn.slots);
		}
		turn.group_count = stage_expert_groups(stage, turn.slots, turn.group_rows);
		status = order(stage, &turn, error);
		if (!status)
			status = hopper ? multiply_wide(stage, &turn, error) : multiply(stage, &turn, error);
		if (!status)
			status = mix(stage, &turn, error);
	}
	return status;
}
