/* The inner loops, once for each level of vector instructions, and which of them this processor has.
 *
 * One text, level_loops.h, is compiled for every level with that level's flags; each gives one of these tables. Every
 * level adds in the same order except in matmul, whose tiles differ; with fused multiply-add the last bit may differ.
 * Thread: any; plain functions on memory that the caller has cut. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { LEVEL_TILE_MOST = 16 * 64, LEVEL_SUM_LANES = 32 };

struct level_verify {
	const uint32_t *in;
	uint32_t *hashes, *floats;
	uint32_t seed;
	float scale, bias;
};

struct level_tile {
	float *c;
	size_t stride; // of c's rows
	const float *a, *b;
	size_t k;
	bool add;
};

struct cpu_level {
	const char *name;
	// On float and u32 arrays of n elements. x may be y.
	void (*fill)(float *dst, float value, size_t n);
	void (*saxpy)(float *y, const float *x, float a, size_t n);
	double (*sum)(const float *x, size_t n);
	// Copy, and fill with one word after another, past the caches where the processor can.
	void (*copy_past)(void *to, const void *from, size_t bytes);
	void (*fill_past)(void *to, uint32_t word, size_t bytes);
	// hashes[i], floats[i] for in[i], whose place in the whole is first + i
	void (*verify)(const struct level_verify *verify, uint32_t first, size_t n);
	void (*stream_fill)(uint32_t *data, uint32_t first, uint32_t seed, size_t n);
	// The exclusive or of all, in blocks of 64 bytes: bytes is a multiple.
	uint32_t (*stream_read)(const void *data, size_t bytes);
	// Parts of matmul: a tile is (tile_rows, tile_columns) of c.
	unsigned tile_rows, tile_columns;
	// k rows of tile_columns of b, whose rows are `stride` apart, to out (k, tile_columns)
	void (*pack_columns)(float *out, const float *b, size_t stride, size_t k);
	// tile_rows rows of k of a, to out (k, tile_rows)
	void (*pack_rows)(float *out, const float *a, size_t stride, size_t k);
	// c (tile_rows, tile_columns) = or += a (k, tile_rows) transposed . b (k, tile_columns), as packed
	void (*tile)(const struct level_tile *tile);
};

// cpu_level_amx has the loops of AVX-512; only the loops of models (stage_kernels.h) use AMX tiles.
extern const struct cpu_level cpu_level_scalar, cpu_level_avx2, cpu_level_avx512, cpu_level_amx, cpu_level_neon;

// The best level of this processor, or the level with this name (may be NULL). Errors: STATUS_INVALID_PARAMS (the
// processor has no such level; lists those that it has).
enum status cpu_level_choose(const struct cpu_level **out, const char *name, struct error *error);
// The levels of this processor, the plainest first; NULL after the last.
const struct cpu_level *cpu_level_get(size_t index);
