/* Few rows through their experts: see stage_product.h and kernels/stage_mixture.cu. */
#include "engine/cuda/stage/stage_product.h"

enum { UNIT_COST = 2 }; // of a unit, in tiles

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

// Shared memory as stage_mixture.cu divides it.
static uint32_t mixture_shared(const struct mixture_params *params, unsigned format, bool out)
{
	static const unsigned slots[TILE_COUNT] = {2, 2, 4, 4, 4, 4, 0, 2, 2, 2}; // of a warp
	const uint32_t inputs = out ? params->rows * params->used + 1 : params->rows, padded = params->padded;
	const uint32_t input = (format == TILE_F16    ? padded * 2 + 32
				: format >= TILE_Q8_0 ? padded * 2 + 64
						      : padded * 4 + 32) +
			       padded / 32 * 2 * 4;
	const uint32_t sums = 2u * (out ? 1 : 2) * GEMV_WARPS * params->rows * TILE_ROWS;
	return MIXTURE_CHOICE_BYTES + GEMV_WARPS * slots[format] * tile_bytes(format) + inputs * input +
	       (sums + GEMV_ROWS + 2 * GEMV_WARPS) * 4;
}

// How many warps share a unit: so that the busiest has the least to do. A block has no more than eight groups.
static uint32_t warps_of_unit(uint32_t blocks, uint32_t units, uint32_t tiles)
{
	uint32_t best = UINT32_MAX, out = GEMV_WARPS;
	for (uint32_t warps = GEMV_WARPS; warps > 1; warps /= 2) {
		uint32_t cost = parts_of(units, blocks * (GEMV_WARPS / warps)) * (parts_of(tiles, warps) + UNIT_COST);
		if (cost < best)
			out = warps;
		best = least(best, cost);
	}
	return out;
}

// False if it does not fit.
static bool plan(const struct backend_stage *stage, const struct stage_matrix *first, const struct stage_matrix *second,
		 struct mixture_params *params, struct stage_launch *launch)
{
	const uint32_t experts = stage->shape.experts, chosen = least(experts, params->rows * params->used);
	const bool out = !second;
	params->tiles[0] = first->tiles;
	params->tiles[1] = second ? second->tiles : 0;
	params->padded = tile_padded(params->columns);
	params->results = first->rows / experts;
	params->row_tiles = first->row_tiles / experts;
	params->column_tiles = first->column_tiles;
	const uint32_t units = params->row_tiles * (out ? 1 : chosen);
	const uint32_t blocks = least(stage->units, units);
	params->warps_of_unit = warps_of_unit(blocks, units, params->column_tiles * (out ? chosen : 2));
	*launch = (struct stage_launch){.kernel = (out ? STAGE_MIXTURE_OUT : STAGE_MIXTURE_IN) + first->format,
					.grid = {blocks, 1, 1},
					.block = GEMV_THREADS,
					.shared_bytes = mixture_shared(params, first->format, out)};
	return launch->shared_bytes + 1024 <= stage->shared_bytes;
}

bool stage_mixture_plan(const struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			struct stage_mixture *mixture)
{
	const struct model_shape *shape = &stage->shape;
	if (rows > GEMV_ROWS || rows * shape->experts_used > MIXTURE_SLOTS || shape->experts > MIXTURE_EXPERTS ||
	    shape->gate != GATE_SILU || shape->expert_bias || shape->post_norm ||
	    layer->expert_gate.format != layer->expert_up.format || layer->expert_gate.format == TILE_MXFP4 ||
	    layer->expert_down.format == TILE_MXFP4)
		return false;
	mixture->in = (struct mixture_params){
		.scores = stage->experts.scores,
		.x = stage->x,
		.norm = layer->ffn_norm,
		.y = stage->experts.gate_up,
		.rows = rows,
		.columns = shape->embedding,
		.experts = shape->experts,
		.used = shape->experts_used,
		.share = shape->expert_share,
		.groups = shape->expert_groups,
		.groups_used = shape->expert_groups_used,
		.choice = layer->router_choice,
		.scale = stage_expert_scale(stage),
		.epsilon = shape->norm_epsilon,
	};
	mixture->out = mixture->in;
	mixture->out.x = stage->experts.gate_up;
	mixture->out.norm = 0;
	mixture->out.shared = shape->feed_forward ? stage->post : 0;
	mixture->out.shared_score = shape->shared_gate ? stage->experts.shared_score : 0;
	mixture->out.y = stage->x;
	mixture->out.columns = shape->expert_width;
	return plan(stage, &layer->expert_gate, &layer->expert_up, &mixture->in, &mixture->launches[0]) &&
	       plan(stage, &layer->expert_down, NULL, &mixture->out, &mixture->launches[1]);
}

enum status stage_mixture_multiply(struct backend_stage *stage, struct stage_mixture *mixture, struct error *error)
{
	mixture->launches[0].params = &mixture->in;
	mixture->launches[1].params = &mixture->out;
	enum status status = stage_launch(stage, &mixture->launches[0], error);
	return status ? status : stage_launch(stage, &mixture->launches[1], error);
}
