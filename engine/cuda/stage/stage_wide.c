/* Products of many rows on Hopper: see stage.h and kernels/stage_wide.cuh. A block is as wide as pays: rows that are
 * not there cost as much as others. */
#include "engine/cuda/stage/stage_product.h"

enum {
	WIDE_MATRIX = 128, // rows of the matrix, of a block
	WIDE_STRIDE = WIDE_MATRIX + 4,
	WIDE_SHORT = 4096,      // columns
	WIDE_TABLES = 8 * 1024, // bytes: scales of a tile, of each warp
	ALIGNMENT = 1024,
	FEW_RESULTS = 8192,
	SPLIT_COLUMNS = 512,       // of a part, at least, of narrow blocks
	SPLIT_COLUMNS_WIDE = 1024, // of wide ones
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

bool stage_wide_fits(const struct backend_stage *stage, unsigned format)
{
	return stage->wide && (format == TILE_F16 || format >= TILE_Q8_0) && format != TILE_MXFP4;
}

uint32_t stage_wide_width(uint32_t rows)
{
	return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}

uint32_t stage_wide_together(uint32_t rows, uint32_t results)
{
	if (rows <= STAGE_WIDE_NARROW)
		return stage_wide_width(rows);
	return rows <= 2 * STAGE_WIDE_NARROW && results <= FEW_RESULTS ? 2 * STAGE_WIDE_NARROW : 0;
}

// Shared memory as stage_wide.cuh divides it.
static uint32_t wide_shared(unsigned format, uint32_t width)
{
	uint32_t columns = tile_columns(format), steps = columns > GEMM_DEPTH ? columns / GEMM_DEPTH : 1;
	uint32_t chunk = tile_bytes(format) * (columns < GEMM_DEPTH ? GEMM_DEPTH / columns : 1);
	uint32_t chunks = steps == 1 ? 4 : steps == 2 ? 3 : 2;
	if (width <= STAGE_WIDE_NARROW)
		chunks = format == TILE_F16                                  ? 4
			 : format <= TILE_Q4_0                               ? 5
			 : format == TILE_Q6_K && width == STAGE_WIDE_NARROW ? 2
									     : 3;
	uint32_t x_steps = width <= 16 ? steps : 1, copies = x_steps > 1 ? 3 : 4; // of activations
	uint32_t rings = copies * x_steps * width * GEMM_DEPTH * 2 + chunks * chunk * (WIDE_MATRIX / TILE_ROWS);
	if (format == TILE_Q4_K || format == TILE_Q5_K || format == TILE_Q6_K)
		rings += WIDE_TABLES;
	uint32_t results = width * WIDE_STRIDE * 4;
	return (rings > results ? rings : results) + ALIGNMENT;
}

// Narrow blocks fetch more for each product; but where wide ones would leave half of the processors idle, and there is
// little to do for each, that is sooner done than adding up parts.
static uint32_t width_of(const struct backend_stage *stage, const struct stage_wide *product, uint32_t across)
{
	uint32_t blocks = across * parts_of(product->rows, 2 * WIDE_ROWS);
	bool narrow = blocks * 2 <= stage->units && blocks * 4 > stage->units && product->columns <= WIDE_SHORT;
	if (product->width || product->together)
		return product->width ? product->width : stage_wide_width(product->rows);
	return product->rows <= WIDE_ROWS || narrow ? WIDE_ROWS : 2 * WIDE_ROWS;
}

enum status stage_wide_multiply(struct backend_stage *stage, const struct stage_wide *product, struct error *error)
{
	bool gated = product->mode == GEMV_GATED;
	unsigned format = product->matrices[0]->format;
	uint32_t across = 0, splits = 1;
	uint64_t bytes = 0;
	struct wide_params params = {
		.x = stage->prepared,
		.factors = stage->factors,
		.y = product->y,
		.partial = stage->partial,
		.ready = stage->ready,
		.matrix_count = product->count,
		.rows = product->rows,
		.padded = tile_padded(product->columns),
		.y_stride = product->y_stride,
		.mode = product->mode,
	};
	for (uint32_t i = 0; i < product->count; i++) {
		struct stage_matrix *matrix = &params.matrices[i];
		*matrix = *product->matrices[i];
		if (product->groups) { // an expert's
			matrix->rows /= product->experts;
			matrix->row_tiles /= product->experts;
		}
		across += parts_of(matrix->row_tiles * TILE_ROWS, gated ? WIDE_MATRIX / 2 : WIDE_MATRIX);
		params.part_rows += matrix->row_tiles * TILE_ROWS;
		bytes += stage_matrix_bytes(matrix);
	}
	across = gated ? across / 2 : across;
	uint32_t width = width_of(stage, product, across);
	uint32_t down = product->groups ? product->group_count : parts_of(product->rows, width);
	uint64_t part_bytes = (uint64_t)product->rows * params.part_rows * sizeof(float);
	params.x_rows = product->together;
	params.groups = product->groups;
	// The columns are split so that every processor has a block, or two narrow ones.
	if (!product->groups && !gated) {
		bool narrow = width <= STAGE_WIDE_NARROW;
		splits = least((narrow ? 2 : 1) * stage->units / (across * down),
			       product->columns / (narrow ? SPLIT_COLUMNS : SPLIT_COLUMNS_WIDE));
		splits = least(splits, (uint32_t)(STAGE_PARTIAL_BYTES / part_bytes));
		splits = splits && across * down <= STAGE_READY ? splits : 1;
	}
	params.splits = splits;
	const unsigned kernel = width == 8          ? STAGE_WIDE_8
				: width == 16       ? STAGE_WIDE_16
				: width == 32       ? STAGE_WIDE_32
				: width == 64       ? STAGE_WIDE_64
				: width > WIDE_ROWS ? STAGE_WIDE_256
						    : STAGE_WIDE_128;
	const struct stage_launch launch = {.kernel = kernel + format,
					    .grid = {down, across, splits},
					    .block = WIDE_THREADS,
					    .weight_bytes = bytes,
					    .shared_bytes = wide_shared(format, width),
					    .params = &params};
	return stage_launch(stage, &launch, error);
}
