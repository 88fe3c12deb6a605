/* Products of a stage: by which kernels, and how they are divided. See stage_product.h.
 *
 * Few rows go by stage_gemv.cu, which rounds its input itself. Of many rows `prepare` rounds the input first; then come
 * Hopper's own products, where the formats have them, or stage_gemm.cuh, which also takes rows by expert. Which way a
 * product goes depends on the number of rows alone, so the same batch gives the same bits. */
#include "engine/cuda/stage/stage_product.h"

enum {
	PREPARE_BLOCK = 512,
	LONG_TILES = 100,     // of a multiprocessor
	ROUNDED_OF_TILE = 64, // columns that are rounded in the time of a tile
	UNIT_COST = 2,        // of a unit of few rows, in tiles
	GEMM_TILES = 8,       // rows of tiles of a block
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

uint64_t stage_matrix_bytes(const struct stage_matrix *matrix)
{
	return (uint64_t)matrix->row_tiles * matrix->column_tiles * tile_bytes(matrix->format);
}

static bool takes_pairs(unsigned format)
{
	return format == TILE_F32 || format == TILE_BF16;
}

static void kinds_of(const struct stage_product *product, unsigned *halves, unsigned *pairs)
{
	*halves = *pairs = 0;
	for (uint32_t i = 0; i < product->count; i++)
		*(takes_pairs(product->matrices[i]->format) ? pairs : halves) = 1;
}

// The number of rows up to which stage_gemv.cu is faster than Hopper's own products, as measured on an H200
// (docs/notes/performance-gpu.md): of a product of several formats, that of the format with the fewest.
static uint32_t rows_beside_wide(const struct stage_product *product)
{
	static const uint8_t rows[TILE_COUNT] = {
		[TILE_F16] = 2, [TILE_Q8_0] = 3, [TILE_Q4_0] = 4, [TILE_Q4_K] = 1, [TILE_Q5_K] = 1, [TILE_Q6_K] = 1};
	uint32_t fewest = GEMV_ROWS;
	for (uint32_t i = 0; i < product->count; i++)
		fewest = least(fewest, rows[product->matrices[i]->format]);
	return fewest;
}

// Shared memory as stage_gemv.cu divides it.
static uint32_t gemv_shared(const struct gemv_params *params, unsigned slots)
{
	uint32_t integers = params->integers ? 2 * params->padded + 64 : 0;
	uint32_t halves = params->halves ? params->padded * 2 + 32 : 0,
		 pairs = params->pairs ? params->padded * 4 + 32 : 0;
	uint32_t row = integers + halves + pairs + (params->padded / 32 + 1) * 2 * 4;
	uint32_t sums = 2u * (params->mode == GEMV_GATED ? 2 : 1) * GEMV_WARPS * TILE_ROWS * params->rows;
	return GEMV_WARPS * slots * params->slot_bytes + params->rows * row +
	       (sums + 2 * GEMV_ROWS + 2 * GEMV_WARPS) * 4;
}

// False if it has to go the way of many rows.
bool stage_gemv_plan(const struct backend_stage *stage, const struct stage_product *product, bool gated,
		     struct gemv_params *params, struct stage_launch *launch)
{
	// About 64 KiB of a block, as in stage_gemv.cu.
	static const unsigned slots[TILE_COUNT] = {2, 2, 4, 4, 4, 4, 0, 2, 2, 2};
	uint32_t column_tiles = UINT32_MAX;
	unsigned format = product->matrices[0]->format;
	*params = (struct gemv_params){
		.x = product->x,
		.norm = product->norm,
		.y = product->y,
		.matrix_count = product->count,
		.rows = product->rows,
		.columns = product->columns,
		.padded = tile_padded(product->columns),
		.y_stride = product->y_stride,
		.mode = gated ? GEMV_GATED : product->mode,
		.epsilon = stage->shape.norm_epsilon,
	};
	if (product->rows > GEMV_ROWS || product->gated || product->from)
		return false;
	if (stage_goes_wide(stage, product) && product->rows > rows_beside_wide(product))
		return false;
	for (uint32_t i = 0; i < product->count; i++) {
		const struct stage_matrix *matrix = product->matrices[i];
		if (matrix->format == TILE_MXFP4) // experts have it, and they do not go this way
			return false;
		uint32_t bytes = tile_bytes(matrix->format);
		params->matrices[i] = *matrix;
		params->units += gated && i ? 0 : matrix->row_tiles;
		params->slot_bytes = params->slot_bytes > bytes ? params->slot_bytes : bytes;
		*(takes_pairs(matrix->format)  ? &params->pairs
		  : matrix->format == TILE_F16 ? &params->halves
					       : &params->integers) = 1;
		column_tiles = least(column_tiles, matrix->column_tiles);
		format = matrix->format == format ? format : TILE_NONE;
	}
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < product->count; i++)
		bytes += stage_matrix_bytes(product->matrices[i]);
	// How many warps share a unit: so that the busiest has the least to do.
	uint32_t best = UINT32_MAX, parts = gated ? 2 : 1, blocks = least(stage->units, params->units);
	// A long way goes twice as many warps to a multiprocessor, though each block has to round the row for itself;
	// after a short one the next kernel's are there already.
	if (params->rows == 1 && (uint64_t)params->units * column_tiles * parts / stage->units >
					 LONG_TILES + params->padded / ROUNDED_OF_TILE)
		blocks = least(2 * stage->units, params->units);
	for (uint32_t warps = GEMV_WARPS; warps > 1; warps /= 2) {
		uint32_t cost = parts_of(params->units, blocks * (GEMV_WARPS / warps)) *
				(parts * parts_of(column_tiles, warps) + UNIT_COST);
		if (cost < best)
			params->warps_of_unit = warps;
		best = least(best, cost);
	}
	*launch = (struct stage_launch){.kernel = STAGE_GEMV + format,
					.grid = {blocks, 1, 1},
					.block = GEMV_THREADS,
					.weight_bytes = bytes,
					.shared_bytes = gemv_shared(params, slots[format])};
	return launch->shared_bytes + 1024 <= stage->shared_bytes;
}

static uint32_t gemm_shared(unsigned format, uint32_t width)
{
	uint32_t columns = tile_columns(format), stages = format == TILE_F32 ? 2 : 3;
	uint32_t chunk = tile_bytes(format) * (columns < GEMM_DEPTH ? GEMM_DEPTH / columns : 1);
	uint32_t chunks = columns > GEMM_DEPTH ? 2 : stages;
	return stages * width * GEMM_DEPTH * 2 * (takes_pairs(format) ? 2 : 1) + chunks * chunk * GEMM_TILES;
}

bool stage_gemm_wide_fits(const struct backend_stage *stage, unsigned format)
{
	return gemm_shared(format, GEMM_ROWS_WIDE) + 1024 <= stage->shared_bytes;
}

static enum status gemm(struct backend_stage *stage, const struct stage_product *product,
			const struct stage_matrix *matrix, unsigned halves, unsigned pairs, struct error *error)
{
	const uint32_t heads = product->heads ? product->heads : 1, rows = product->rows / heads;
	const bool wide = (product->groups ? product->group_rows == GEMM_ROWS_WIDE : rows > 2 * GEMM_ROWS_NARROW) &&
			  stage_gemm_wide_fits(stage, matrix->format);
	const uint32_t parts = product->groups ? product->experts : heads;
	struct stage_matrix one = *matrix; // an expert's, or a head's
	one.rows /= parts;
	one.row_tiles /= parts;
	uint32_t width = wide ? GEMM_ROWS_WIDE : GEMM_ROWS_NARROW, columns = tile_columns(matrix->format);
	uint32_t across = parts_of(one.row_tiles, GEMM_TILES);
	uint32_t down = product->groups ? product->group_count : heads * parts_of(rows, width);
	uint32_t chunks = matrix->column_tiles / (columns < GEMM_DEPTH ? GEMM_DEPTH / columns : 1);
	uint64_t part_bytes = (uint64_t)product->rows * one.row_tiles * TILE_ROWS * sizeof(float);
	uint32_t splits = 1;
	while (across * down * splits < stage->units && splits * 4 <= chunks &&
	       2 * splits * part_bytes <= STAGE_PARTIAL_BYTES)
		splits *= 2;
	const struct gemm_params params = {
		.matrix = one,
		.groups = product->groups,
		.x = stage->prepared,
		.factors = stage->factors,
		.y = product->y,
		.partial = stage->partial,
		.ready = stage->ready,
		.rows = product->rows,
		.padded = tile_padded(product->columns),
		.planes = halves + 2 * pairs,
		.plane = takes_pairs(matrix->format) ? halves : 0,
		.y_stride = product->y_stride,
		.mode = product->mode,
		.splits = splits,
		.head_rows = product->head_rows,
		.y_head = product->y_head,
	};
	const struct stage_launch launch = {.kernel = (wide ? STAGE_GEMM_128 : STAGE_GEMM_32) + matrix->format,
					    .grid = {across, down, splits},
					    .block = GEMM_THREADS,
					    .weight_bytes = stage_matrix_bytes(&one),
					    .shared_bytes = gemm_shared(matrix->format, width),
					    .params = &params};
	return stage_launch(stage, &launch, error);
}

// Whether it goes by Hopper's own products.
bool stage_goes_wide(const struct backend_stage *stage, const struct stage_product *product)
{
	for (uint32_t i = 0; i < product->count; i++)
		if (!stage_wide_fits(stage, product->matrices[i]->format))
			return false;
	return !product->heads && (!product->groups || product->together);
}

enum status stage_product_prepare(struct backend_stage *stage, const struct stage_product *product, bool blocks,
				  struct error *error)
{
	unsigned halves, pairs;
	kinds_of(product, &halves, &pairs);
	const struct prepare_params params = {
		.x = product->gated ? product->x + product->columns * 4ull : product->x,
		.gate = product->gated ? product->x : 0,
		.norm = product->norm,
		.from = product->from,
		.out = stage->prepared,
		.factors = stage->factors,
		.plain = product->plain,
		.places = product->places,
		.copies = product->copies,
		.first_row = product->first_row,
		.head_rows = product->head_rows,
		.x_head = product->x_head,
		.together = blocks ? product->together : 0,
		.rows = product->rows,
		.x_stride = product->heads   ? product->x_stride
			    : product->gated ? 2 * product->columns
					     : product->columns,
		.columns = product->columns,
		.padded = tile_padded(product->columns),
		.planes = halves + 2 * pairs,
		.halves = halves,
		.pairs = pairs,
		.kind = stage->shape.gate,
		.blocks = blocks,
		.epsilon = stage->shape.norm_epsilon,
	};
	const struct stage_launch launch = {
		.kernel = STAGE_PREPARE, .grid = {product->rows, 1, 1}, .block = PREPARE_BLOCK, .params = &params};
	return stage_launch(stage, &launch, error);
}

// Matrices of one format that follow each other are one product.
enum status stage_product_wide(struct backend_stage *stage, const struct stage_product *product, struct error *error)
{
	struct stage_product narrow = *product;
	uint32_t results = 0;
	for (uint32_t i = 0; i < product->count; i++)
		results += product->matrices[i]->rows;
	if (!product->together)
		narrow.together = stage_wide_together(product->rows, results);
	enum status status = stage_product_prepare(stage, &narrow, true, error);
	for (uint32_t i = 0, count; !status && i < product->count; i += count) {
		struct stage_wide part = {.y = product->y,
					  .rows = product->rows,
					  .columns = product->columns,
					  .y_stride = product->y_stride,
					  .mode = product->mode,
					  .groups = product->groups,
					  .group_count = product->group_count,
					  .width = product->groups ? product->group_rows : 0,
					  .experts = product->experts,
					  .together = narrow.together};
		for (count = 0; i + count < product->count; count++) {
			part.matrices[count] = product->matrices[i + count];
			if (part.matrices[count]->format != part.matrices[0]->format)
				break;
		}
		part.count = count;
		status = stage_wide_multiply(stage, &part, error);
	}
	return status;
}

enum status stage_product_many(struct backend_stage *stage, const struct stage_product *product, struct error *error)
{
	unsigned halves, pairs;
	if (stage_goes_wide(stage, product))
		return stage_product_wide(stage, product, error);
	enum status status = stage_product_prepare(stage, product, false, error);
	kinds_of(product, &halves, &pairs);
	for (uint32_t i = 0; !status && i < product->count; i++)
		status = gemm(stage, product, product->matrices[i], halves, pairs, error);
	return status;
}

enum status stage_product_multiply(struct backend_stage *stage, const struct stage_product *product,
				   struct error *error)
{
	struct gemv_params params;
	struct stage_launch launch;
	if (!stage_gemv_plan(stage, product, false, &params, &launch))
		return stage_product_many(stage, product, error);
	launch.params = &params;
	return stage_launch(stage, &launch, error);
}
