/* Matrix product on the processor: c (m, n) = a (m, k) . b (k, n).
 *
 * Blocks of a and b are first packed: a into strips of tile_rows rows, b into strips of tile_columns columns, each
 * strip in the order in which the innermost loop (level_loops.h) reads it, padded with zeros at the edges. Then c is
 * cut into patches, the pieces that threads take. A patch goes through k in steps of DEPTH: in a step its strips of b
 * are read from the first-level cache again and again, its strips of a from the second. Both packing and patches are
 * pieces of the pool; if all blocks fit the panels at once (2048 in each direction), the threads synchronise twice in
 * all.
 *
 *            n                      panels: [strips of a (BLOCK / tile_rows of (depth, tile_rows))]
 *         +--+--+--+                        [strips of b (BLOCK / tile_columns of (depth, tile_columns))]
 *       m |  |##|  | a patch of c
 *         +--+--+--+
 *
 * The sum of an element is added in steps of DEPTH in order, on whichever thread. */
#include "engine/cpu/kernels.h"

#include <string.h>

enum {
	BLOCK = 2048,         // of m, n and k that is packed at once
	DEPTH = 512,          // of k in a step: a strip of b is 32 KiB (16 columns) or 64 (32)
	PATCH_ROWS = 84,      // about, in whole strips: what a step reads of a is 170 KiB
	PATCH_COLUMNS = 256,  // the same of b, one strip at a time
	ROUNDED = BLOCK + 64, // strips are whole
};

const size_t matmul_panel_bytes = 2ull * ROUNDED * BLOCK * sizeof(float);

struct block {
	const struct matmul *matmul;
	const struct cpu_level *level;
	uint64_t row, column, depth;  // where it begins, in m, n and k
	size_t rows, columns, length; // and how much of each it has
	size_t row_strips, column_strips;
	size_t patch_rows, patch_columns; // strips of a patch
	size_t patches_across;            // in a row of patches
	size_t first_strip;               // that is packed
	float *a, *b;                     // the panels
};

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t divide_up(size_t a, size_t b)
{
	return (a + b - 1) / b;
}

// Strips at the edge are packed element by element, with zeros outside the matrix.
static void pack_row_strip(const struct block *block, size_t strip)
{
	const struct matmul *matmul = block->matmul;
	size_t width = block->level->tile_rows, have = least(width, block->rows - strip * width);
	const float *from = matmul->a + (block->row + strip * width) * matmul->k + block->depth;
	float *to = block->a + strip * width * block->length;
	if (have == width) {
		block->level->pack_rows(to, from, matmul->k, block->length);
		return;
	}
	for (size_t p = 0; p < block->length; p++)
		for (size_t i = 0; i < width; i++)
			to[p * width + i] = i < have ? from[i * matmul->k + p] : 0;
}

static void pack_column_strip(const struct block *block, size_t strip)
{
	const struct matmul *matmul = block->matmul;
	size_t width = block->level->tile_columns, have = least(width, block->columns - strip * width);
	const float *from = matmul->b + block->depth * matmul->n + block->column + strip * width;
	float *to = block->b + strip * width * block->length;
	if (have == width) {
		block->level->pack_columns(to, from, matmul->n, block->length);
		return;
	}
	for (size_t p = 0; p < block->length; p++)
		for (size_t j = 0; j < width; j++)
			to[p * width + j] = j < have ? from[p * matmul->n + j] : 0;
}

static void pack_piece(void *context, uint64_t index)
{
	const struct block *block = context;
	size_t strip = block->first_strip + index; // strips of b come first
	if (strip < block->column_strips)
		pack_column_strip(block, strip);
	else
		pack_row_strip(block, strip - block->column_strips);
}

// A tile at the edge of c is computed whole, aside, and what there is of it taken over.
static void edge_tile(const struct level_tile *tile, size_t width, size_t rows, size_t columns,
		      const struct cpu_level *level)
{
	float whole[LEVEL_TILE_MOST];
	struct level_tile aside = *tile;
	aside.c = whole;
	aside.stride = width;
	aside.add = false;
	level->tile(&aside);
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < columns; j++) {
			float *to = &tile->c[i * tile->stride + j];
			*to = tile->add ? *to + whole[i * width + j] : whole[i * width + j];
		}
}

static void one_tile(const struct block *block, size_t row_strip, size_t column_strip, size_t from)
{
	const struct matmul *matmul = block->matmul;
	size_t height = block->level->tile_rows, width = block->level->tile_columns;
	size_t rows = least(height, block->rows - row_strip * height);
	size_t columns = least(width, block->columns - column_strip * width);
	struct level_tile tile = {
		.c = matmul->c + (block->row + row_strip * height) * matmul->n + block->column + column_strip * width,
		.stride = matmul->n,
		.a = block->a + (row_strip * block->length + from) * height,
		.b = block->b + (column_strip * block->length + from) * width,
		.k = least(DEPTH, block->length - from),
		.add = block->depth + from > 0,
	};
	if (rows == height && columns == width)
		block->level->tile(&tile);
	else
		edge_tile(&tile, width, rows, columns, block->level);
}

static void patch_piece(void *context, uint64_t index)
{
	const struct block *block = context;
	size_t row = index / block->patches_across * block->patch_rows;
	size_t column = index % block->patches_across * block->patch_columns;
	size_t row_end = least(row + block->patch_rows, block->row_strips);
	size_t column_end = least(column + block->patch_columns, block->column_strips);
	for (size_t from = 0; from < block->length; from += DEPTH)
		for (size_t j = column; j < column_end; j++)
			for (size_t i = row; i < row_end; i++)
				one_tile(block, i, j, from);
}

static void run_block(const struct kernel_place *place, struct block *block)
{
	const struct cpu_level *level = block->level;
	block->row_strips = divide_up(block->rows, level->tile_rows);
	block->column_strips = divide_up(block->columns, level->tile_columns);
	block->patch_rows = divide_up(PATCH_ROWS, level->tile_rows);
	block->patch_columns = divide_up(PATCH_COLUMNS, level->tile_columns);
	block->patches_across = divide_up(block->column_strips, block->patch_columns);
	// The strips of b serve all blocks of rows.
	block->first_strip = block->row ? block->column_strips : 0;
	pool_run(place->pool, pack_piece, block, block->column_strips + block->row_strips - block->first_strip);
	pool_run(place->pool, patch_piece, block,
		 block->patches_across * divide_up(block->row_strips, block->patch_rows));
}

void matmul_run(const struct kernel_place *place, const struct matmul *matmul)
{
	struct block block = {.matmul = matmul,
			      .level = place->level,
			      .a = place->scratch->panels,
			      .b = place->scratch->panels + (size_t)ROUNDED * BLOCK};
	for (block.column = 0; block.column < matmul->n; block.column += BLOCK)
		for (block.depth = 0; block.depth < matmul->k; block.depth += BLOCK)
			for (block.row = 0; block.row < matmul->m && !pool_stopped(place->pool); block.row += BLOCK) {
				block.rows = least(BLOCK, matmul->m - block.row);
				block.columns = least(BLOCK, matmul->n - block.column);
				block.length = least(BLOCK, matmul->k - block.depth);
				run_block(place, &block);
			}
}
