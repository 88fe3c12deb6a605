/* Products with matrices by AMX, for many rows at once. Included by stage_avx512.c behind stage_loops.h.
 *
 * AMX multiplies tiles of bf16, which has 8 significant bits. A number with more bits becomes the sum of two: high, and
 * low, the remainder; together they have 16 bits. So a product is three products: high by high, high by low and low by
 * high; low by low would add no more than the rounding error. (Integers with the scale of their group outside would
 * need two products, but then all sums leave the tiles after each group, which takes as long as it saves.) Weights in
 * bf16 have no low.
 *
 *     activations, made once:  tiles[8 groups][16 rows][group][high, low][row][column]
 *     weights, for 8 groups of 2 panels at a time, 32 KiB:  [panel][group][high, low][16 pairs of columns][16 rows][2]
 *     sums:  [16 rows][panel][row][column], put into the output when all groups have been added
 *
 * With these weights 256 rows are multiplied, 32 at a time: 4 tiles of sums are loaded from `sums` and stored there
 * again. Meanwhile the next weights are unpacked, one group after each multiplied group: the vector units are idle
 * otherwise, and a product of tiles takes as long as some thirty vector instructions. Thread: any; the tiles are
 * configured and released in each call. */

enum {
	TILE_ROWS = 16,
	TILE_BYTES = 1024,
	ROWS_AT_ONCE = 256, // of the batch, for which weights are unpacked
};

struct unpacked {
	uint32_t parts[2][TILE_ROWS][PANEL_ROWS]; // high, low: pairs of bf16
};

#define WITH_AMX __attribute__((target("amx-tile,amx-bf16")))

// The high halves of two columns of f32 as pairs.
INLINE ints high_halves(ints even, ints odd)
{
	const __mmask64 low_bytes = 0x3333333333333333;
	const __m512i order = _mm512_set4_epi32(0x00000f0e, 0x00000b0a, 0x00000706, 0x00000302);
	return (ints)_mm512_mask_shuffle_epi8((__m512i)odd, low_bytes, (__m512i)even, order);
}

// Split two columns of f32 into pairs of bf16: high, rounded to nearest, and low, the remainder.
INLINE void split(floats even, floats odd, ints *high, ints *low)
{
	const ints top = all_lanes((int32_t)0xffff0000);
	ints even_bits = (ints)even + 0x8000, odd_bits = (ints)odd + 0x8000;
	*high = high_halves(even_bits, odd_bits);
	*low = high_halves((ints)(even - (floats)(even_bits & top)), (ints)(odd - (floats)(odd_bits & top)));
}

// A weight of integers is number * scale - min.
struct group_scale {
	floats scale, min;
};

INLINE ints unpack_pair(enum tensor_format format, const uint8_t *group, unsigned p, const struct group_scale *by,
			ints *low)
{
	floats even, odd;
	ints high;
	if (format == FORMAT_BF16)
		return load_words(group + 4 * PANEL_ROWS * p);
	if (is_plain(format)) {
		even = column_of(format, group, 2 * p, 0);
		odd = column_of(format, group, 2 * p + 1, 0);
	} else if (format == FORMAT_Q4_0 || format == FORMAT_Q4_K || format == FORMAT_MXFP4) {
		const floats first = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
		const floats e2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
		const floats numbers = format == FORMAT_MXFP4  ? e2m1
				       : format == FORMAT_Q4_0 ? first - 8
							       : first; // of an index the lowest four bits count
		ints words = load_words(group + p / 4 * PANEL_ROWS * 4);
		even = (floats)_mm512_permutexvar_ps((__m512i)(words >> 4 * (p % 4)), (__m512)numbers);
		odd = (floats)_mm512_permutexvar_ps((__m512i)(words >> (16 + 4 * (p % 4))), (__m512)numbers);
	} else {
		ints pair = pair_of(format, group, p, 0);
		even = to_floats(pair << 16 >> 16);
		odd = to_floats(pair >> 16);
	}
	if (!is_plain(format)) {
		even *= by->scale;
		odd *= by->scale;
	}
	if (is_k(format)) {
		even -= by->min;
		odd -= by->min;
	}
	split(even, odd, &high, low);
	return high;
}

INLINE void unpack_pairs(enum tensor_format format, const uint8_t *group, unsigned first, unsigned count,
			 const struct group_scale *by, struct unpacked *to)
{
	UNROLL(16)
	for (unsigned p = first; p < first + count; p++) {
		ints low = {0}, high = unpack_pair(format, group, p, by, &low);
		memcpy(to->parts[0][p], &high, sizeof(high));
		if (format != FORMAT_BF16)
			memcpy(to->parts[1][p], &low, sizeof(low));
	}
}

// From a group to the next one, about.
INLINE unsigned group_stride(enum tensor_format format)
{
	return is_k(format) ? block_bytes(format) / K_GROUPS : block_bytes(format);
}

// Weights that are being unpacked: `groups` groups, from `group` on, of `left` / groups panels.
struct unpacking {
	const struct panels *panels;
	struct unpacked *to; // (2, TILE_GROUPS)
	uint32_t panel, group, groups, at, left;
	struct scales scales; // of the block that `at` is in
};

INLINE void unpack_group(enum tensor_format format, struct unpacking *next)
{
	const uint32_t number = next->group + next->at, in_block = is_k(format) ? number % K_GROUPS : 0;
	const uint8_t *group = next->panels->data + next->panels->panel_bytes * next->panel +
			       (size_t)block_bytes(format) * (is_k(format) ? number / K_GROUPS : number);
	struct unpacked *to = next->to + next->at;
	struct group_scale by = {0};
	if (is_k(format)) {
		if (!in_block || !next->at)
			read_scales(format, &next->scales, group);
		group += head_bytes(format) + in_block * group_bytes(format);
	}
	if (format == FORMAT_Q6_K) {
		for (unsigned half = 0; half < 2; half++) {
			by.scale = next->scales.scale[2 * in_block + half][0];
			by.min = by.scale * 32;
			unpack_pairs(format, group, half * PAIRS / 2, PAIRS / 2, &by, to);
		}
	} else {
		if (is_k(format)) {
			by.scale = next->scales.scale[in_block][0];
			by.min = next->scales.min[in_block][0];
		} else if (!is_plain(format)) {
			by.scale = block_scales(format, group, 0);
			group += head_bytes(format);
		}
		unpack_pairs(format, group, 0, PAIRS, &by, to);
	}
	for (unsigned line = 0; line < group_stride(format); line += 64) // in the panel's next run
		__builtin_prefetch(group + TILE_GROUPS * group_stride(format) + line, 0, 2);
	next->left--;
	if (++next->at == next->groups) {
		next->at = 0;
		next->panel++;
		next->to += TILE_GROUPS;
	}
}

// The index of the tiles of a run of 16 rows and a group, in a batch of `rows` rows. The tiles of TILE_GROUPS groups
// are together, because rows a power of two apart would evict each other from the caches.
INLINE size_t tiles_at(uint32_t rows, uint32_t row, uint32_t group)
{
	size_t blocks = (rows + TILE_ROWS - 1) / TILE_ROWS;
	return ((group / TILE_GROUPS * blocks + row / TILE_ROWS) * TILE_GROUPS + group % TILE_GROUPS) * 2 * TILE_BYTES;
}

static void make_tiles(const struct product_row *row)
{
	const float *values = row->values;
	for (uint32_t i = 0; i < row->groups * GROUP; i += WIDTH) {
		floats value = load_floats(values + i);
		uints high = (uints)value + 0x8000;
		uints low = (uints)(value - (floats)(high & 0xffff0000)) + 0x8000;
		half_words narrow[2] = {__builtin_convertvector(high >> 16, half_words),
					__builtin_convertvector(low >> 16, half_words)};
		uint8_t *at = row->tiles + tiles_at(row->rows, row->row, i / GROUP) + row->row % TILE_ROWS * 64 +
			      i % GROUP * 2;
		memcpy(at, &narrow[0], sizeof(narrow[0]));
		memcpy(at + TILE_BYTES, &narrow[1], sizeof(narrow[1]));
	}
}

WITH_AMX static void configure_tiles(void)
{
	struct {
		uint8_t palette, start_row, reserved[14];
		uint16_t row_bytes[16];
		uint8_t rows[16];
	} config = {.palette = 1};
	for (unsigned i = 0; i < 8; i++) {
		config.row_bytes[i] = 64;
		config.rows[i] = TILE_ROWS;
	}
	_tile_loadconfig(&config);
}

// 32 rows by 2 panels: sums in tiles 0 to 3, activations in 4 and 5, weights in 6 and 7.
WITH_AMX INLINE void multiply_group(const uint8_t *a0, const uint8_t *a1, const struct unpacked *w0,
				    const struct unpacked *w1, bool low_weights)
{
	_tile_loadd(4, a0, 64);
	_tile_loadd(5, a1, 64);
	if (low_weights) {
		_tile_loadd(6, w0->parts[1], 64);
		_tile_loadd(7, w1->parts[1], 64);
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
	_tile_loadd(6, w0->parts[0], 64);
	_tile_loadd(7, w1->parts[0], 64);
	_tile_dpbf16ps(0, 4, 6);
	_tile_dpbf16ps(1, 4, 7);
	_tile_dpbf16ps(2, 5, 6);
	_tile_dpbf16ps(3, 5, 7);
	_tile_loadd(4, a0 + TILE_BYTES, 64);
	_tile_loadd(5, a1 + TILE_BYTES, 64);
	_tile_dpbf16ps(0, 4, 6);
	_tile_dpbf16ps(1, 4, 7);
	_tile_dpbf16ps(2, 5, 6);
	_tile_dpbf16ps(3, 5, 7);
}

typedef float sums_tile[TILE_ROWS][PANEL_ROWS];

struct chunk {
	const struct product *product;
	uint32_t row, row_tiles;        // where it begins, in whole tiles, and how many it has
	uint32_t group, groups;         // of columns
	uint32_t pair, pairs;           // which two of the panels, and of how many
	const struct unpacked *weights; // (2, TILE_GROUPS)
	sums_tile (*sums)[TILE_PANELS]; // (row_tiles, and one more if that is odd)
};

// For rows and panels beyond the end the tiles contain undefined values, and their results are dropped.
WITH_AMX INLINE void multiply_chunk(enum tensor_format format, const struct chunk *chunk, struct unpacking *next)
{
	const size_t tile_run = (size_t)TILE_GROUPS * 2 * TILE_BYTES;
	const uint8_t *a = chunk->product->tiles + tiles_at(chunk->product->rows, chunk->row, chunk->group);
	const struct unpacked *w0 = chunk->weights, *w1 = chunk->weights + TILE_GROUPS;
	const uint32_t units = next->left, times = (chunk->row_tiles + 1) / 2 * chunk->groups;
	// The activations of the groups after these: each pair of panels fetches a part of them.
	const uint32_t lines = tile_run / 64 / TILE_GROUPS * 2 / chunk->pairs;
	const bool last = chunk->group + TILE_GROUPS >= chunk->product->panels->groups;
	const uint8_t *ahead = last ? a
				    : chunk->product->tiles +
					       tiles_at(chunk->product->rows, chunk->row, chunk->group + TILE_GROUPS);
	uint32_t due = 0;
	ahead += (size_t)chunk->pair * times * lines * 64;
	__asm__ volatile("" ::: "memory"); // the compiler does not know that loading a tile reads memory
	for (uint32_t i = 0; i < chunk->row_tiles; i += 2) {
		const uint8_t *a0 = a + i * tile_run, *a1 = i + 1 < chunk->row_tiles ? a0 + tile_run : a0;
		sums_tile *sums0 = chunk->sums[i] + 2 * chunk->pair, *sums1 = chunk->sums[i + 1] + 2 * chunk->pair;
		if (chunk->group) {
			_tile_loadd(0, sums0[0], 64);
			_tile_loadd(1, sums0[1], 64);
			_tile_loadd(2, sums1[0], 64);
			_tile_loadd(3, sums1[1], 64);
		} else {
			_tile_zero(0);
			_tile_zero(1);
			_tile_zero(2);
			_tile_zero(3);
		}
		for (uint32_t g = 0; g < chunk->groups; g++) {
			multiply_group(a0 + (size_t)g * 2 * TILE_BYTES, a1 + (size_t)g * 2 * TILE_BYTES, w0 + g, w1 + g,
				       format != FORMAT_BF16);
			for (uint32_t line = 0; line < lines; line++, ahead += 64)
				__builtin_prefetch(ahead, 0, 2);
			for (due += units; due >= times; due -= times)
				unpack_group(format, next);
		}
		_tile_stored(0, sums0[0], 64);
		_tile_stored(1, sums0[1], 64);
		_tile_stored(2, sums1[0], 64);
		_tile_stored(3, sums1[1], 64);
	}
}

static void put_sums(const struct product *product, uint32_t row, uint32_t rows, uint32_t first, uint32_t count,
		     sums_tile (*sums)[TILE_PANELS])
{
	for (uint32_t i = 0; i < rows; i++)
		for (uint32_t panel = 0; panel < count; panel++) {
			const uint32_t column = (first + panel) * PANEL_ROWS, left = product->panels->rows - column;
			const float *from = sums[i / TILE_ROWS][panel][i % TILE_ROWS];
			float *to = product->output + (row + i) * product->output_stride + column;
			for (uint32_t lane = 0; lane < PANEL_ROWS && lane < left; lane++)
				to[lane] = product->add ? to[lane] + from[lane] : from[lane];
		}
}

// The weights of chunk `index`: panels in pairs, for one run of groups after another.
INLINE void begin_unpacking(struct unpacking *next, const struct panels *panels, uint32_t first, uint32_t count,
			    uint32_t index)
{
	const uint32_t pairs = (count + 1) / 2, pair = index % pairs, group = index / pairs * TILE_GROUPS;
	next->panels = panels;
	next->panel = first + 2 * pair;
	next->group = group;
	next->groups = panels->groups - group < TILE_GROUPS ? panels->groups - group : TILE_GROUPS;
	next->at = 0;
	next->left = next->groups * (2 * pair + 1 < count ? 2 : 1);
}

WITH_AMX INLINE void multiply_tiles(enum tensor_format format, const struct product *product, uint32_t first,
				    uint32_t count)
{
	_Alignas(64) struct unpacked weights[2][2][TILE_GROUPS];
	_Alignas(64) sums_tile sums[ROWS_AT_ONCE / TILE_ROWS][TILE_PANELS];
	const uint32_t pairs = (count + 1) / 2;
	const uint32_t chunks = (product->panels->groups + TILE_GROUPS - 1) / TILE_GROUPS * pairs;
	if (count % 2)
		memset(weights, 0, sizeof(weights));
	configure_tiles();
	for (uint32_t row = 0; row < product->rows; row += ROWS_AT_ONCE) {
		const uint32_t left = product->rows - row, rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
		struct unpacking next = {.to = weights[0][0]};
		begin_unpacking(&next, product->panels, first, count, 0);
		while (next.left)
			unpack_group(format, &next);
		for (uint32_t i = 0; i < chunks; i++) {
			const struct chunk chunk = {
				.product = product,
				.row = row,
				.row_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS,
				.group = next.group,
				.groups = next.groups,
				.pair = i % pairs,
				.pairs = pairs,
				.weights = weights[i % 2][0],
				.sums = sums,
			};
			next.to = weights[(i + 1) % 2][0];
			if (i + 1 < chunks)
				begin_unpacking(&next, product->panels, first, count, i + 1);
			multiply_chunk(format, &chunk, &next);
		}
		put_sums(product, row, rows, first, count, sums);
	}
	_tile_release();
}

#define TILES_FUNCTION(name, format) \
	WITH_AMX static void name(const struct product *product, uint32_t first, uint32_t count) \
	{ \
		multiply_tiles(format, product, first, count); \
	}
TILES_FUNCTION(tiles_f32, FORMAT_F32)
TILES_FUNCTION(tiles_f16, FORMAT_F16)
TILES_FUNCTION(tiles_bf16, FORMAT_BF16)
TILES_FUNCTION(tiles_q8_0, FORMAT_Q8_0)
TILES_FUNCTION(tiles_q4_0, FORMAT_Q4_0)
TILES_FUNCTION(tiles_mxfp4, FORMAT_MXFP4)
TILES_FUNCTION(tiles_q4_k, FORMAT_Q4_K)
TILES_FUNCTION(tiles_q5_k, FORMAT_Q5_K)
TILES_FUNCTION(tiles_q6_k, FORMAT_Q6_K)

static void multiply_amx(const struct product *product, uint32_t first, uint32_t count)
{
	static void (*const of_format[FORMAT_COUNT])(const struct product *product, uint32_t first, uint32_t count) = {
		[FORMAT_F32] = tiles_f32,   [FORMAT_F16] = tiles_f16,   [FORMAT_BF16] = tiles_bf16,
		[FORMAT_Q8_0] = tiles_q8_0, [FORMAT_Q4_0] = tiles_q4_0, [FORMAT_MXFP4] = tiles_mxfp4,
		[FORMAT_Q4_K] = tiles_q4_k, [FORMAT_Q5_K] = tiles_q5_k, [FORMAT_Q6_K] = tiles_q6_k,
	};
	(product->tiles ? of_format[product->panels->format] : multiply)(product, first, count);
}

const struct stage_kernels stage_kernels_amx = {
	.make_groups = make_groups,
	.make_tiles = make_tiles,
	.multiply = multiply_amx,
	.attend = attend,
	.silu = silu,
	.delta = delta,
	.gelu = gelu,
	.clamped = clamped,
};
