/* The inner loops of one level. Included by level_scalar.c, level_avx2.c, level_avx512.c and level_neon.c, each of
 * which says first:
 *
 *   LEVEL    the name of its table           WIDTH    floats in a vector
 *   TITLE    the name as a person gives it   ROWS, COLUMNS    of matmul's tile; COLUMNS in vectors
 *   PAST(to, vector), PAST_END    store past the caches, and make such stores seen in order; may be left out
 *
 * Vectors use the compilers' vector extension (GCC and clang), so the loops are written once. The flags of each file
 * (CMakeLists.txt) select the instructions, and allow fused multiply-adds. ROWS and COLUMNS are chosen so that ROWS *
 * COLUMNS sums, COLUMNS vectors of b and one of a fit the registers at once. */
#include "engine/cpu/level.h"

#include <string.h>

typedef float floats __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef float bytewise __attribute__((vector_size(4 * WIDTH), aligned(1), may_alias)); // anywhere
typedef uint32_t words __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef float half __attribute__((vector_size(2 * WIDTH), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(4 * WIDTH), aligned(8)));

enum { DOUBLES = WIDTH / 2 };

static void fill(float *dst, float value, size_t n)
{
	floats all = value - (floats){0};
	size_t i = 0;
	for (; i + WIDTH <= n; i += WIDTH)
		*(floats *)(dst + i) = all;
	for (; i < n; i++)
		dst[i] = value;
}

static void saxpy(float *y, const float *x, float a, size_t n)
{
	size_t i = 0;
	for (; i + WIDTH <= n; i += WIDTH)
		*(floats *)(y + i) += a * *(const floats *)(x + i);
	for (; i < n; i++)
		y[i] += a * x[i];
}

// Each of RUNS parts of x has its lanes: lane l of them adds its elements l, l + lanes, ... Then all lanes are added in
// pairs. The same at every level; parts side by side for the reason that stream_read gives.
static double sum(const float *x, size_t n)
{
	enum { RUNS = 4, LANES = LEVEL_SUM_LANES / RUNS, VECTORS = LANES / DOUBLES };
	doubles sums[RUNS][VECTORS] = {{{0}}};
	double lanes[LEVEL_SUM_LANES];
	size_t run = n / LEVEL_SUM_LANES * LANES;
	for (size_t i = 0; i < run; i += LANES)
#pragma GCC unroll 32
		for (size_t r = 0; r < RUNS; r++)
#pragma GCC unroll 32
			for (size_t j = 0; j < VECTORS; j++)
				sums[r][j] += __builtin_convertvector(*(const half *)(x + r * run + i + j * DOUBLES),
								      doubles);
	memcpy(lanes, sums, sizeof(lanes));
	for (size_t i = 0; RUNS * run + i < n; i++)
		lanes[i] += (double)x[RUNS * run + i];
	for (size_t count = LEVEL_SUM_LANES / 2; count; count /= 2)
		for (size_t i = 0; i < count; i++)
			lanes[i] += lanes[i + count];
	return lanes[0];
}

// ---- past the caches ----

#ifdef PAST
enum { LINE = 64 };

static size_t to_line(const uint8_t *at, size_t bytes)
{
	size_t head = -(uintptr_t)at % LINE;
	return head < bytes ? head : bytes;
}

// Four runs at once, for the reason that stream_read gives.
static void copy_past(void *to_bytes, const void *from_bytes, size_t bytes)
{
	enum { RUNS = 4 };
	uint8_t *to = to_bytes;
	const uint8_t *from = from_bytes;
	size_t head = to_line(to, bytes), run = (bytes - head) / RUNS / LINE * LINE, done = head + RUNS * run;
	memcpy(to, from, head);
	for (size_t i = head; i < head + run; i += sizeof(floats))
#pragma GCC unroll 32
		for (size_t r = 0; r < RUNS; r++)
			PAST((float *)(to + r * run + i), *(const bytewise *)(from + r * run + i));
	PAST_END;
	memcpy(to + done, from + done, bytes - done);
}

static void fill_past(void *to_bytes, uint32_t word, size_t bytes)
{
	uint8_t *to = to_bytes;
	size_t head = to_line(to, bytes), end = head + (bytes - head) / LINE * LINE, i = 0;
	words all = word - (words){0};
	floats value;
	memcpy(&value, &all, sizeof(value));
	for (; i < head; i++)
		to[i] = (uint8_t)(word >> 8 * (i % 4));
	for (; i < end; i += sizeof(value))
		PAST((float *)(to + i), value);
	PAST_END;
	for (; i < bytes; i++)
		to[i] = (uint8_t)(word >> 8 * (i % 4));
}
#else
static void copy_past(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static void fill_past(void *to, uint32_t word, size_t bytes)
{
	for (size_t i = 0; i < bytes / 4; i++)
		memcpy((uint8_t *)to + 4 * i, &word, 4);
	memcpy((uint8_t *)to + bytes / 4 * 4, &word, bytes % 4);
}
#endif

static uint32_t mix(uint32_t value, uint32_t seed)
{
	value ^= seed;
	value = (value ^ value >> 16) * 0x9e3779b1u;
	value = (value ^ value >> 15) * 0xb5297a4du;
	return value ^ value >> 16;
}

static void verify(const struct level_verify *verify, uint32_t first, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t hash = mix(verify->in[i] + first + (uint32_t)i, verify->seed);
		float value = __builtin_fmaf((float)(hash >> 8) * 0x1p-24f, verify->scale, verify->bias);
		verify->hashes[i] = hash;
		memcpy(&verify->floats[i], &value, sizeof(value));
	}
}

static void stream_fill(uint32_t *data, uint32_t first, uint32_t seed, size_t n)
{
	size_t i = 0;
	words places;
	for (uint32_t j = 0; j < WIDTH; j++)
		places[j] = first + j;
	for (; i + WIDTH <= n; i += WIDTH) {
		words value = places ^ seed;
		value = (value ^ value >> 16) * 0x9e3779b1u;
		value = (value ^ value >> 15) * 0xb5297a4du;
		*(words *)(data + i) = value ^ value >> 16;
		places += WIDTH;
	}
	for (; i < n; i++)
		data[i] = mix(first + (uint32_t)i, seed);
}

// Eight runs at once: one alone leaves memory waiting for the prefetcher.
static uint32_t stream_read(const void *data, size_t bytes)
{
	enum { RUNS = 8 };
	const uint32_t *from = data;
	size_t run = bytes / RUNS / sizeof(words) * WIDTH, done = run * RUNS;
	words seen[RUNS] = {{0}};
	uint32_t all = 0;
	for (size_t i = 0; i < run; i += WIDTH) {
#pragma GCC unroll 32
		for (size_t j = 0; j < RUNS; j++)
			seen[j] ^= *(const words *)(from + j * run + i);
	}
	for (size_t j = 0; j < RUNS; j++)
		for (size_t i = 0; i < WIDTH; i++)
			all ^= seen[j][i];
	for (size_t i = done; i < bytes / sizeof(*from); i++)
		all ^= from[i];
	return all;
}

// ---- matmul ----

static void pack_columns(float *out, const float *b, size_t stride, size_t k)
{
	for (size_t p = 0; p < k; p++, b += stride, out += COLUMNS * WIDTH)
		for (size_t j = 0; j < COLUMNS; j++)
			*(floats *)(out + j * WIDTH) = *(const floats *)(b + j * WIDTH);
}

static void pack_rows(float *out, const float *a, size_t stride, size_t k)
{
	for (size_t p = 0; p < k; p++, out += ROWS)
		for (size_t i = 0; i < ROWS; i++)
			out[i] = a[i * stride + p];
}

static void tile(const struct level_tile *tile)
{
	floats sums[ROWS][COLUMNS] = {{{0}}};
	const float *a = tile->a, *b = tile->b;
	for (size_t p = 0; p < tile->k; p++, a += ROWS, b += COLUMNS * WIDTH) {
		floats row[COLUMNS];
#pragma GCC unroll 32
		for (size_t j = 0; j < COLUMNS; j++)
			row[j] = *(const floats *)(b + j * WIDTH);
#pragma GCC unroll 32
		for (size_t i = 0; i < ROWS; i++)
#pragma GCC unroll 32
			for (size_t j = 0; j < COLUMNS; j++)
				sums[i][j] += a[i] * row[j];
	}
#pragma GCC unroll 32
	for (size_t i = 0; i < ROWS; i++)
#pragma GCC unroll 32
		for (size_t j = 0; j < COLUMNS; j++) {
			floats *to = (floats *)(tile->c + i * tile->stride + j * WIDTH);
			if (tile->add)
				sums[i][j] += *to;
			*to = sums[i][j];
		}
}

_Static_assert(ROWS *COLUMNS *WIDTH <= LEVEL_TILE_MOST, "a tile of this level is larger than LEVEL_TILE_MOST");

#define LEVEL_TABLE(title) \
	{ \
		.name = title, .fill = fill, .saxpy = saxpy, .sum = sum, .copy_past = copy_past, \
		.fill_past = fill_past, .verify = verify, .stream_fill = stream_fill, .stream_read = stream_read, \
		.tile_rows = ROWS, .tile_columns = COLUMNS * WIDTH, .pack_columns = pack_columns, \
		.pack_rows = pack_rows, .tile = tile, \
	}

const struct cpu_level LEVEL = LEVEL_TABLE(TITLE);
