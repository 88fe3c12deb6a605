/* Attention to latents (engine/model/model.h, struct model_latent): see stage.h and kernels/stage_latent.cu.
 *
 *     [norm, query] [norm, k] [norm, queries of heads = query * W]
 *     some rows at a time, as their heads have memory: [round] [q = k_b of each head] [turn; k into its page] [attend]
 *     [put parts together] [round] [v_b of each head]
 *     [output, add]
 *
 * Products of heads go by stage_gemm.cuh: a row of theirs is a row of the step together with a head. */
#include "engine/cuda/stage/stage_product.h"

#include <math.h>

enum {
	SLOTS = 16384,    // rows times heads that have memory at a time, at least a row's
	QUERIES_FEW = 16, // of a block
	QUERIES_MANY = 64,
	THREADS_OF_QUERY = 8,
	HEADS_FEW = 16, // of a row, up to which it has a block of the smaller kernel
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

uint32_t stage_latent_rows(const struct backend_stage *stage)
{
	const uint32_t rows = SLOTS / stage->shape.heads;
	return least(stage->params.batch_rows, rows ? rows : 1);
}

uint32_t stage_latent_stride(const struct model_shape *shape)
{
	return parts_of(shape->latent.rank, 4) * 4;
}

// Shared memory as stage_latent.cu divides it.
static uint32_t shared_of(const struct backend_stage *stage, uint32_t queries, bool exact)
{
	const uint32_t stride = stage->head_padded * 2 + 16;
	return ((exact ? 2 : 1) * queries + 2 * LATENT_KEYS) * stride + queries * (LATENT_SCORES + 1) * 4;
}

static bool fits(const struct backend_stage *stage, uint32_t queries, bool exact)
{
	return shared_of(stage, queries, exact) + 1024 <= stage->shared_bytes;
}

bool stage_latent_fits(const struct backend_stage *stage)
{
	return fits(stage, QUERIES_FEW, false);
}

// Queries of heads, and latents, of all rows of the step.
static enum status project(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			   struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const uint32_t query_rank = shape->latent.query_rank, queries = shape->heads * shape->latent.key_size;
	struct stage_product product = {.matrices = {&layer->k},
					.count = 1,
					.x = stage->x,
					.norm = layer->attention_norm,
					.y = stage->latent.k,
					.rows = rows,
					.columns = shape->embedding,
					.y_stride = shape->head_size};
	enum status status = stage_product_multiply(stage, &product, error);
	if (!status && query_rank) {
		product.matrices[0] = &layer->q_a;
		product.y = stage->latent.query;
		product.y_stride = query_rank;
		status = stage_product_multiply(stage, &product, error);
		product.x = stage->latent.query;
		product.norm = layer->q_norm;
		product.columns = query_rank;
	}
	product.matrices[0] = &layer->q;
	product.y = stage->latent.queries;
	product.y_stride = queries;
	return status ? status : stage_product_multiply(stage, &product, error);
}

// The rows of a step from `first` on whose heads are computed together.
struct turn {
	const struct cuda_step *step;
	const struct cuda_layer *layer;
	uint32_t first, rows;
	bool single; // each row is of a run of its own
};

// q = k_b of the part of each head's query that does not turn.
static enum status multiply_queries(struct backend_stage *stage, const struct turn *turn, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const uint32_t queries = shape->heads * shape->latent.key_size;
	const struct stage_product product = {
		.matrices = {&turn->layer->k_b},
		.count = 1,
		.x = stage->latent.queries + 4ull * turn->first * queries,
		.y = stage->latent.q,
		.rows = turn->rows * shape->heads,
		.columns = shape->latent.key_size - (shape->head_size - shape->latent.rank),
		.heads = shape->heads,
		.head_rows = turn->rows,
		.x_stride = queries,
		.x_head = shape->latent.key_size,
		.y_stride = shape->heads * shape->head_size,
		.y_head = shape->head_size,
	};
	return stage_product_many(stage, &product, error);
}

static enum status multiply_values(struct backend_stage *stage, const struct turn *turn, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const uint32_t stride = stage_latent_stride(shape), attended = model_attended(shape);
	const struct stage_product product = {
		.matrices = {&turn->layer->v_b},
		.count = 1,
		.x = stage->latent.attended,
		.y = stage->attended + 4ull * turn->first * attended,
		.rows = turn->rows * shape->heads,
		.columns = stride, // zeros behind the rank, as in the tiles
		.heads = shape->heads,
		.head_rows = turn->rows,
		.x_stride = shape->heads * stride,
		.x_head = stride,
		.y_stride = attended,
		.y_head = shape->latent.value_size,
	};
	return stage_product_many(stage, &product, error);
}

static struct latent_params params_of(const struct backend_stage *stage, const struct turn *turn)
{
	const struct model_shape *shape = &stage->shape;
	return (struct latent_params){
		.k = stage->latent.k,
		.queries = stage->latent.queries,
		.norm = turn->layer->k_norm,
		.rope = stage->rope,
		.kv = stage->kv + turn->layer->place * stage->params.page_count * stage_kv_page(stage),
		.positions = turn->step->positions,
		.tables = turn->step->tables,
		.pages = turn->step->pages,
		.q = stage->latent.q,
		.out = stage->latent.attended,
		.partial = stage->partial,
		.first = turn->first,
		.rows = turn->rows,
		.heads = shape->heads,
		.key_size = shape->latent.key_size,
		.rank = shape->latent.rank,
		.turned = shape->head_size - shape->latent.rank,
		.padded = stage->head_padded,
		.out_stride = stage_latent_stride(shape),
		.rope_halves = shape->rope_halves,
		.splits = 1,
		.epsilon = shape->norm_epsilon,
		.scale = (float)(1.4426950408889634 * (double)model_attention_scale(shape)),
	};
}

// Heads of one row share a block; so do rows of prompts, which are mostly of one run, as far as they fit.
static enum status attend(struct backend_stage *stage, const struct turn *turn, struct error *error)
{
	const uint32_t heads = stage->shape.heads;
	const unsigned format = turn->layer->k_b.format;
	const bool exact = (format == TILE_F32 || format == TILE_BF16) && fits(stage, QUERIES_FEW, true);
	const bool many = !exact && (heads > HEADS_FEW || !turn->single) && fits(stage, QUERIES_MANY, false);
	const uint32_t queries = many ? QUERIES_MANY : QUERIES_FEW, across = parts_of(heads, queries);
	struct latent_params params = params_of(stage, turn);
	params.block_heads = parts_of(heads, across);
	params.block_rows = turn->single ? 1 : queries / params.block_heads;
	const uint32_t down = parts_of(turn->rows, params.block_rows), blocks = across * down;
	const uint64_t part_bytes = 4ull * turn->rows * heads * (params.rank + 2);
	// A multiprocessor has room for one large block, or for two small ones.
	while (params.splits < ATTENTION_SPLITS && blocks * params.splits <= (many ? 1 : 2) * stage->units / 2 &&
	       2 * params.splits * part_bytes <= STAGE_PARTIAL_BYTES)
		params.splits *= 2;
	struct stage_launch launch = {.kernel = STAGE_LATENT_TURN,
				      .grid = {1 + parts_of(heads, LATENT_TURN_BLOCK / 32), turn->rows, 1},
				      .block = LATENT_TURN_BLOCK,
				      .params = &params};
	enum status status = stage_launch(stage, &launch, error);
	launch = (struct stage_launch){.kernel = exact  ? STAGE_LATENT_ATTEND_EXACT
						 : many ? STAGE_LATENT_ATTEND_64
							: STAGE_LATENT_ATTEND_16,
				       .grid = {across * params.splits, down, 1},
				       .block = queries * THREADS_OF_QUERY,
				       .shared_bytes = shared_of(stage, queries, exact),
				       .params = &params};
	if (!status)
		status = stage_launch(stage, &launch, error);
	launch = (struct stage_launch){.kernel = STAGE_LATENT_COMBINE,
				       .grid = {heads, turn->rows, 1},
				       .block = LATENT_TURN_BLOCK,
				       .params = &params};
	return status || params.splits == 1 ? status : stage_launch(stage, &launch, error);
}

enum status stage_latent(struct backend_stage *stage, const struct cuda_step *step, uint32_t index, bool single,
			 struct error *error)
{
	const struct cuda_layer *layer = &stage->layers[index];
	const struct stage_product out = {.matrices = {&layer->attention_output},
					  .count = 1,
					  .x = stage->attended,
					  .y = stage->x,
					  .rows = step->rows,
					  .columns = model_attended(&stage->shape),
					  .y_stride = stage->shape.embedding,
					  .mode = GEMV_ADD};
	enum status status = project(stage, layer, step->rows, error);
	for (uint32_t first = 0; !status && first < step->rows; first += stage->latent.rows) {
		const struct turn turn = {step, layer, first, least(step->rows - first, stage->latent.rows), single};
		status = multiply_queries(stage, &turn, error);
		if (!status)
			status = attend(stage, &turn, error);
		if (!status)
			status = multiply_values(stage, &turn, error);
	}
	return status ? status : stage_product_multiply(stage, &out, error);
}
