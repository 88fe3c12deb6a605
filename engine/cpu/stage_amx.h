/* Products with matrices by AMX, for many rows at once. Included by stage_avx512.c behind stage_loops.h.
 *
 * AMX multiplies tiles of bf16, which has 8 significant bits. A number of more is the sum of two: high, and low, what
 * is left of it, which together have 16. So a product is three: high by high, high by low and low by high; what low by
 * low would add is as small as what was rounded off. (Integers with the scale of their group outside would need two,
 * but then every sum leaves the tiles for each group, which takes as long as it saves.) Weights of bf16 have no low.
 *
 *     activations, made once:  tiles[16 groups][16 rows][group][high, low][row][column]
 *     weights, for 16 groups of 2 panels at a time, 64 KiB:  [panel][group][high, low][16 pairs of columns][16 rows][2]
 *
 * For these weights all rows of the batch are gone through, 32 at a time: 4 tiles of sums, which come from the output
 * and go back there. Thread: any; the tiles are configured and released in each call. */

enum {
	TILE_ROWS = 16,
	TILE_BYTES = 1024,
	TILE_GROUPS = 16,
	ROWS_AT_ONCE = 512, // of the batch, for which weights are unpacked: 1 MiB of a chunk's activations
};

struct unpacked {
	uint32_t parts[2][TILE_ROWS][PANEL_ROWS]; // high, low: pairs of bf16
};

#define WITH_AMX __attribute__((target("amx-tile,amx-bf16")))

// Two columns of f32 to pairs of bf16, rounded to nearest, and what is left of them.
INLINE void split(floats even, floats odd, uint32_t *high, uint32_t *low)
{
	const ints top = all_lanes((int32_t)0xffff0000);
	uints even_bits = (uints)even + 0x8000, odd_bits = (uints)odd + 0x8000;
	uints both = even_bits >> 16 | (odd_bits & (uints)top);
	memcpy(high, &both, sizeof(both));
	even_bits = (uints)(even - (floats)(even_bits & (uints)top)) + 0x8000;
	odd_bits = (uints)(odd - (floats)(odd_bits & (uints)top)) + 0x8000;
	both = even_bits >> 16 | (odd_bits & (uints)top);
	memcpy(low, &both, sizeof(both));
}

INLINE void unpack_pair(enum tensor_format format, const uint8_t *group, unsigned p, floats d, floats min,
			struct unpacked *to)
{
	floats even, odd;
	if (format == FORMAT_BF16) {
		memcpy(to->parts[0][p], group + 4 * PANEL_ROWS * p, sizeof(to->parts[0][p]));
		return;
	}
	if (is_plain(format)) {
		even = column_of(format, group, 2 * p, 0);
		odd = column_of(format, group, 2 * p + 1, 0);
	} else {
		ints pair = pair_of(format, group, p, 0);
		even = to_floats(pair << 16 >> 16) * d - min;
		odd = to_floats(pair >> 16) * d - min;
	}
	split(even, odd, to->parts[0][p], to->parts[1][p]);
}

// A block: one group, or eight.
INLINE void unpack_block(enum tensor_format format, const uint8_t *block, struct unpacked *to)
{
	floats d = {0}, min = {0};
	if (!is_k(format)) {
		if (!is_plain(format))
			d = halves_to_floats(block);
		if (format == FORMAT_Q4_0)
			min = d * 8;
		for (unsigned p = 0; p < PAIRS; p++)
			unpack_pair(format, block + (is_plain(format) ? 0 : 32), p, d, min, to);
		return;
	}
	struct scales scales;
	read_scales(format, &scales, block);
	const unsigned halves = format == FORMAT_Q6_K ? 2 : 1;
	for (unsigned g = 0; g < K_GROUPS; g++)
		for (unsigned half = 0; half < halves; half++) {
			d = scales.scale[halves * g + half][0];
			min = format == FORMAT_Q6_K ? d * 32 : scales.min[g][0];
			for (unsigned p = half * 8; p < (half + 1) * PAIRS / halves; p++)
				unpack_pair(format, block + head_bytes(format) + g * group_bytes(format), p, d, min,
					    to + g);
		}
}

// Groups [first, first + count) of a panel.
static void unpack(const struct panels *panels, uint32_t panel, uint32_t first, uint32_t count, struct unpacked *to)
{
	const uint8_t *from = panels->data + panels->panel_bytes * panel + panels->panel_bytes / panels->groups * first;
	switch (panels->format) {
#define CASE(format) \
	case format: \
		for (uint32_t i = 0; i < count; i += is_k(format) ? K_GROUPS : 1, from += block_bytes(format)) \
			unpack_block(format, from, to + i); \
		return
		CASE(FORMAT_F32);
		CASE(FORMAT_F16);
		CASE(FORMAT_BF16);
		CASE(FORMAT_Q8_0);
		CASE(FORMAT_Q4_0);
		CASE(FORMAT_Q4_K);
		CASE(FORMAT_Q5_K);
		CASE(FORMAT_Q6_K);
#undef CASE
	case FORMAT_UNKNOWN:
	case FORMAT_COUNT:
		return;
	}
}

// Where those of a run of 16 rows and a group lie, of `rows` rows. All that belongs to sixteen groups lies together:
// rows a power of two apart would drive each other out of the caches.
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

// Sums of 16 rows by 16 columns, wherever they lie.
struct sums_place {
	float *at;
	size_t stride_bytes;
	uint32_t rows, columns; // what there is of them
	bool edge;              // in `aside`, to be copied
	float aside[TILE_ROWS][PANEL_ROWS];
};

static void place_sums(struct sums_place *place, const struct product *product, uint32_t row, uint32_t panel, bool load)
{
	uint32_t rows = product->rows - row, columns = product->panels->rows - panel * PANEL_ROWS;
	place->at = product->output + row * product->output_stride + (size_t)panel * PANEL_ROWS;
	place->rows = rows < TILE_ROWS ? rows : TILE_ROWS;
	place->columns = columns < PANEL_ROWS ? columns : PANEL_ROWS;
	place->edge = rows < TILE_ROWS || columns < PANEL_ROWS;
	place->stride_bytes = product->output_stride * sizeof(float);
	for (uint32_t i = 0; load && place->edge && i < place->rows; i++)
		memcpy(place->aside[i], place->at + i * product->output_stride, place->columns * sizeof(float));
}

static void *sums_from(struct sums_place *place, size_t *stride_bytes)
{
	*stride_bytes = place->edge ? sizeof(place->aside[0]) : place->stride_bytes;
	return place->edge ? (void *)place->aside : place->at;
}

static void finish_sums(const struct sums_place *place)
{
	for (uint32_t i = 0; place->edge && i < place->rows; i++)
		memcpy(place->at + i * (place->stride_bytes / sizeof(float)), place->aside[i],
		       place->columns * sizeof(float));
}

// 32 rows by 2 panels (16, and 1, where there are no more): sums in tiles 0 to 3, activations in 4 and 5, weights in 6
// and 7. Of what is not there, the tiles hold anything, and nothing of them is kept.
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

struct chunk {
	uint32_t row, panel, group, groups; // where it begins; how many groups of columns
	bool two_panels, load;              // load: the output holds the sum so far
	const struct unpacked *weights;     // (2, TILE_GROUPS)
};

WITH_AMX static void multiply_chunk(const struct product *product, const struct chunk *chunk)
{
	struct sums_place places[2][2];
	bool two_rows = product->rows - chunk->row > TILE_ROWS;
	size_t stride;
	const uint8_t *a0 = product->tiles + tiles_at(product->rows, chunk->row, chunk->group);
	const uint8_t *a1 = two_rows ? a0 + TILE_GROUPS * 2 * TILE_BYTES : a0;
	const struct unpacked *w0 = chunk->weights, *w1 = chunk->weights + TILE_GROUPS;
	for (unsigned i = 0; i < 4; i++)
		if ((i < 2 || two_rows) && (i % 2 == 0 || chunk->two_panels))
			place_sums(&places[i / 2][i % 2], product, chunk->row + i / 2 * TILE_ROWS, chunk->panel + i % 2,
				   chunk->load);
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
#define EACH_SUM(what) \
	do { \
		what(0, 0, 0); \
		if (chunk->two_panels) \
			what(1, 0, 1); \
		if (two_rows) \
			what(2, 1, 0); \
		if (two_rows && chunk->two_panels) \
			what(3, 1, 1); \
	} while (0)
#define LOAD_SUM(tile, i, j) _tile_loadd(tile, sums_from(&places[i][j], &stride), (long)stride)
#define STORE_SUM(tile, i, j) \
	do { \
		_tile_stored(tile, sums_from(&places[i][j], &stride), (long)stride); \
		finish_sums(&places[i][j]); \
	} while (0)
	if (chunk->load)
		EACH_SUM(LOAD_SUM);
	if (product->panels->format == FORMAT_BF16)
		for (uint32_t i = 0; i < chunk->groups; i++)
			multiply_group(a0 + (size_t)i * 2 * TILE_BYTES, a1 + (size_t)i * 2 * TILE_BYTES, w0 + i, w1 + i,
				       false);
	else
		for (uint32_t i = 0; i < chunk->groups; i++)
			multiply_group(a0 + (size_t)i * 2 * TILE_BYTES, a1 + (size_t)i * 2 * TILE_BYTES, w0 + i, w1 + i,
				       true);
	EACH_SUM(STORE_SUM);
}

WITH_AMX static void multiply_tiles(const struct product *product, uint32_t first, uint32_t count)
{
	const struct panels *panels = product->panels;
	_Alignas(64) struct unpacked weights[2][TILE_GROUPS];
	struct chunk chunk = {.weights = weights[0]};
	memset(weights[1], 0, sizeof(weights[1]));
	configure_tiles();
	for (uint32_t rows = 0; rows < product->rows; rows += ROWS_AT_ONCE)
		for (chunk.group = 0; chunk.group < panels->groups; chunk.group += TILE_GROUPS) {
			uint32_t left = panels->groups - chunk.group;
			uint32_t end = product->rows - rows < ROWS_AT_ONCE ? product->rows : rows + ROWS_AT_ONCE;
			chunk.groups = left < TILE_GROUPS ? left : TILE_GROUPS;
			chunk.load = product->add || chunk.group;
			for (uint32_t i = 0; i < count; i += 2) {
				chunk.panel = first + i;
				chunk.two_panels = i + 1 < count;
				unpack(panels, chunk.panel, chunk.group, chunk.groups, weights[0]);
				if (chunk.two_panels)
					unpack(panels, chunk.panel + 1, chunk.group, chunk.groups, weights[1]);
				for (chunk.row = rows; chunk.row < end; chunk.row += 2 * TILE_ROWS)
					multiply_chunk(product, &chunk);
			}
		}
	_tile_release();
}

static void multiply_amx(const struct product *product, uint32_t first, uint32_t count)
{
	if (product->tiles)
		multiply_tiles(product, first, count);
	else
		multiply(product, first, count);
}

const struct stage_kernels stage_kernels_amx = {
	.make_groups = make_groups,
	.make_tiles = make_tiles,
	.multiply = multiply_amx,
	.attend = attend,
	.silu = silu,
};
