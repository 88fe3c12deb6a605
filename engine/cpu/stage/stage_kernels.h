/* The inner loops of stages, once for each level of vector instructions (level.h chooses).
 *
 * One text, stage_loops.h, is compiled for every level. Formats of small integers are multiplied with activations that
 * are int16 by groups of 32, each with a scale: sums of a group are exact, in 32 bits, and groups are added in f32.
 * Those of floats are multiplied with f32. Thread: any; plain functions on memory that the caller has cut. */
#pragma once
#include "engine/cpu/panels.h"
#include "engine/stage.h"

struct cpu_level;

// 32 activations: value i is scale * numbers[i]. Levels with products of bytes have each number once more, as 256 times
// its high byte plus its low one, in the order in which words of four-bit weights have their columns (panels.h): of
// each eight first columns 0 4 1 5, whose weights are the low halves of a word's bytes, then 2 6 3 7.
struct stage_group {
	int16_t numbers[PANEL_GROUP];
	int8_t low[PANEL_GROUP], high[PANEL_GROUP];
	float scale;
	float sum;       // of the 32 values
	int32_t sums[2]; // of the numbers of each half
};

struct product {
	const struct panels *panels;
	const float *values;              // (rows, value_stride), whole groups
	const struct stage_group *groups; // (rows, panels->groups); the same as `values`
	// The same for kernels with make_tiles, if there are at least TILES_LEAST rows; NULL if not.
	const uint8_t *tiles;
	size_t value_stride;
	uint32_t rows;
	float *output; // (rows, output_stride): panels->rows of each are written
	size_t output_stride;
	bool add; // to the present values
};

enum { TILES_LEAST = 24, TILE_PANELS = 16 }; // TILE_PANELS: as PRODUCT_PANELS, for products with tiles
enum { PRODUCT_PANELS = 4 };                 // that are best multiplied in one call

// Attention of a few queries that share keys and values, of heads of one row or of several rows of a sequence, over a
// run of positions. A page has keys (head_size, STAGE_PAGE_TOKENS) and, after the keys of all heads, values
// (STAGE_PAGE_TOKENS, head_size), f16; of latents only keys (STAGE_PAGE_TOKENS, head_size), which begin with the
// values.
enum { ATTENTION_QUERIES = 8 };
struct attention_query {
	const float *q; // (head_size)
	uint32_t begin; // its first position, if that is behind the attention's
	uint32_t end;   // position behind its last; none where that is not behind the first
	float *out;     // (value_size): sums of values by weights
	float *most;    // the largest product
	float *total;   // of the weights, each e to the (product - most)
};
struct attention {
	const uint8_t *kv;     // page 0's keys of this head
	const uint32_t *pages; // of the sequence
	uint64_t page_bytes, values_offset;
	uint32_t head_size, value_size, first; // position, a page's first
	bool latents;
	float scale, cap; // scores = cap * tanh(scores / cap); 0: none
	unsigned count;
	struct attention_query queries[ATTENTION_QUERIES];
};

// The gated delta rule for one token and one head: state = decay * state; state += key * beta * (values - what the
// state gives for the key); out = what the state then gives for the query.
struct delta_row {
	float *state;             // (key_size, value_size)
	const float *query, *key; // (key_size)
	const float *values;      // (value_size)
	float decay, beta;
	uint32_t key_size, value_size;
	float *out; // (value_size)
};

struct product_row {
	uint8_t *tiles; // of all: TILE_ROW_BYTES for each 16 rows and TILE_GROUPS groups that are begun
	uint32_t row, rows;
	const float *values;
	uint32_t groups;
};
enum { TILE_GROUPS = 8, TILE_ROW_BYTES = 2048 * TILE_GROUPS };

struct stage_kernels {
	void (*make_groups)(struct stage_group *to, const float *values, uint32_t groups);
	// Optional: the same for a row of many.
	void (*make_tiles)(const struct product_row *row);
	// Panels first ... first + count of the product; count <= PRODUCT_PANELS, unless it has tiles.
	void (*multiply)(const struct product *product, uint32_t first, uint32_t count);
	void (*attend)(const struct attention *attention);
	// gate[i] = silu(gate[i]) * up[i]; n is a multiple of 16
	void (*silu)(float *gate, const float *up, size_t n);
	void (*delta)(const struct delta_row *row);
	void (*gelu)(float *gate, const float *up, size_t n);    // the same of GELU's approximation by tanh
	void (*clamped)(float *gate, const float *up, size_t n); // GATE_CLAMPED
};

// The kernels of a level.
const struct stage_kernels *stage_kernels(const struct cpu_level *level);

extern const struct stage_kernels stage_kernels_scalar, stage_kernels_avx2, stage_kernels_avx512, stage_kernels_amx;
