/* Products of many rows on Hopper: see stage.h and kernels/stage_wide.cuh. A block is as wide as pays: rows that are
 * not there cost as much as others. */
#include "engine/cuda/stage.h"

enum {
	WIDE_LEAST = 64,   // rows from which on it is faster
	WIDE_MATRIX = 128, // rows of the matrix, of a block
	WIDE_STAGES = 4,
	WIDE_STRIDE = WIDE_MATRIX + 4,
	WIDE_SHORT = 4096, // columns
	ALIGNMENT = 1024,
};

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

bool stage_wide_fits(const struct backend_stage *stage, unsigned format, uint32_t rows)
{
	return stage->wide && rows > WIDE_LEAST && (format == TILE_F16 || format >= TILE_Q8_0);
}

// As stage_wide.cuh divides it.
static uint32_t wide_shared(unsigned format, uint32_t width)
{
	uint32_t columns = tile_columns(format), steps = columns > GEMM_DEPTH ? columns / GEMM_DEPTH : 1;
	uint32_t chunk = tile_bytes(format) * (columns < GEMM_DEPTH ? GEMM_DEPTH / columns : 1);
	uint32_t chunks = steps == 1 ? 4 : steps == 2 ? 3 : 2;
	uint32_t rings = WIDE_STAGES * width * GEMM_DEPTH * 2 + chunks * chunk * (WIDE_MATRIX / TILE_ROWS);
	uint32_t results = width * WIDE_STRIDE * 4;
	return (rings > results ? rings : results) + ALIGNMENT;
}

// Narrow blocks fetch more for each product; but where wide ones would leave half of the processors idle, and there is
// little to do for each, that is sooner done than adding up parts.
static uint32_t width_of(const struct backend_stage *stage, const struct stage_wide *product, uint32_t across)
{
	uint32_t blocks = across * parts_of(product->rows, 2 * WIDE_ROWS);
	bool narrow = blocks * 2 <= stage->units && blocks * 4 > stage->units && product->columns <= WIDE_SHORT;
	return product->rows <= WIDE_ROWS || narrow ? WIDE_ROWS : 2 * WIDE_ROWS;
}

enum status stage_wide_multiply(struct backend_stage *stage, const struct stage_wide *product, struct error *error)
{
	bool gated = product->mode == GEMV_GATED;
	unsigned format = product->matrices[0]->format;
	uint32_t across = 0, widest = 0, splits = 1;
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
		params.matrices[i] = *product->matrices[i];
		across += parts_of(product->matrices[i]->row_tiles * TILE_ROWS, gated ? WIDE_MATRIX / 2 : WIDE_MATRIX);
		widest = widest > product->matrices[i]->row_tiles ? widest : product->matrices[i]->row_tiles;
	}
	across = gated ? across / 2 : across;
	uint32_t width = width_of(stage, product, across), down = parts_of(product->rows, width),
		 chunks = product->matrices[0]->column_tiles;
	uint64_t part_bytes = (uint64_t)product->rows * widest * TILE_ROWS * sizeof(float);
	// One matrix alone: parts of several would have to be told apart.
	while (product->count == 1 && across * down * splits * 2 <= stage->units && splits * 16 <= chunks &&
	       2 * splits * part_bytes <= STAGE_PARTIAL_BYTES && across * down <= STAGE_READY)
		splits *= 2;
	params.splits = splits;
	const struct stage_launch launch = {.kernel = (width > WIDE_ROWS ? STAGE_WIDE_256 : STAGE_WIDE_128) + format,
					    .grid = {down, across, splits},
					    .block = WIDE_THREADS,
					    .shared_bytes = wide_shared(format, width),
					    .params = &params};
	return stage_launch(stage, &launch, error);
}
