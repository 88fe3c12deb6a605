/* The inner loops of stages for one level. Included by stage_scalar.c, stage_avx2.c and stage_avx512.c, each of which
 * says first:
 *
 *   KERNELS    the name of its table             WIDTH    lanes of a vector: 4, 8 or 16
 *   ROWS_MOST  rows of the batch that are multiplied at once (8 or 4): registers hold a sum for each
 *   dot(sums, weights, pairs)    per lane, add the products of both int16 halves to an int32
 *   BYTES_DOT, if it has these:
 *   dot_bytes(sums, weights, fours)    per lane, add the products of four uint8 with four int8 to an int32
 *   put_bytes(low, high, ints)   the bytes of WIDTH numbers, as a stage_group has them
 *   halves_to_floats(from)       WIDTH f16 to a vector
 *   widen(from)                  2 WIDTH int8 to int16
 *   any_lane(ints): whether one is not zero
 *   largest_lane(ints), sum_lanes(ints), largest_float(floats), sum_floats(floats)
 *
 * Here are the products with matrices; what lies between them is in stage_between.h.
 *
 * A panel has 16 lanes: PARTS vectors. Everything about a format is known where `multiply_rows` is inlined, so each
 * becomes a loop of its own. */
#include "engine/cpu/stage/stage_kernels.h"

#include <math.h>
#include <string.h>

enum { PARTS = PANEL_ROWS / WIDTH, GROUP = PANEL_GROUP, PAIRS = GROUP / 2, K_GROUPS = 8, AHEAD = 2048 };

#if WIDTH > 4
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(times) PRAGMA(GCC unroll times)
#else
#define UNROLL(times)
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE floats to_floats(ints from)
{
	return __builtin_convertvector(from, floats);
}

INLINE ints load_words(const uint8_t *from)
{
	ints words;
	memcpy(&words, from, sizeof(words));
	return words;
}

INLINE floats load_floats(const void *from)
{
	floats values;
	memcpy(&values, from, sizeof(values));
	return values;
}

INLINE ints all_lanes(int32_t value)
{
	return value - (ints){0};
}

INLINE ints choose_ints(ints which, ints yes, ints no)
{
	return (yes & which) | (no & ~which);
}

INLINE floats choose(ints which, floats yes, floats no)
{
	return (floats)choose_ints(which, (ints)yes, (ints)no);
}

// ---- activations ----

// The largest number: its high byte is 127 with the low one's sign taken into account.
enum { VECTORS = GROUP / WIDTH, NUMBER_MOST = 127 * 256 + 127 };

static void make_groups(struct stage_group *to, const float *values, uint32_t groups)
{
	const float shift = 12582912; // 1.5 * 2^23: adding it rounds to a whole number
	for (; groups; groups--, to++, values += GROUP) {
		ints largest = {0}, halves[2] = {{0}, {0}};
		for (unsigned i = 0; i < VECTORS; i++) { // the bits of floats that are not negative are in order, too
			ints size = (ints)load_floats(values + WIDTH * i) & 0x7fffffff;
			largest = choose_ints(size > largest, size, largest);
		}
		int32_t bits = largest_lane(largest);
		float most;
		memcpy(&most, &bits, sizeof(most));
		float inverse = most > 0 ? NUMBER_MOST / most : 0;
		for (unsigned i = 0; i < VECTORS; i++) {
			ints number = (ints)(load_floats(values + WIDTH * i) * inverse + shift) - 0x4b400000;
			// also NaN
			number = choose_ints(number > NUMBER_MOST, all_lanes(NUMBER_MOST), number);
			number = choose_ints(number < -NUMBER_MOST, all_lanes(-NUMBER_MOST), number);
			halves[i * WIDTH / 16] += number;
			half_words narrow = __builtin_convertvector(number, half_words);
			memcpy(to->numbers + WIDTH * i, &narrow, sizeof(narrow));
#ifdef BYTES_DOT
			put_bytes(to->low + WIDTH * i, to->high + WIDTH * i, number);
#endif
		}
		to->scale = most / NUMBER_MOST;
		to->sums[0] = sum_lanes(halves[0]);
		to->sums[1] = sum_lanes(halves[1]);
		to->sum = to->scale * (float)(to->sums[0] + to->sums[1]);
	}
}

// ---- weights ----

INLINE bool is_plain(enum tensor_format format)
{
	return format == FORMAT_F32 || format == FORMAT_F16 || format == FORMAT_BF16;
}

INLINE bool is_k(enum tensor_format format)
{
	return format == FORMAT_Q4_K || format == FORMAT_Q5_K || format == FORMAT_Q6_K;
}

INLINE unsigned group_bytes(enum tensor_format format)
{
	return format == FORMAT_Q5_K ? 320 : format == FORMAT_Q6_K ? 384 : 256;
}

// The bytes before the groups.
INLINE unsigned head_bytes(enum tensor_format format)
{
	return format == FORMAT_Q6_K ? 288 : is_k(format) ? 256 : format == FORMAT_MXFP4 ? 16 : 32;
}

INLINE unsigned block_bytes(enum tensor_format format)
{
	unsigned lane = format == FORMAT_F32     ? 4 * GROUP
			: is_plain(format)       ? 2 * GROUP
			: format == FORMAT_Q8_0  ? sizeof(struct block_q8_0)
			: format == FORMAT_Q4_0  ? sizeof(struct block_q4_0)
			: format == FORMAT_MXFP4 ? sizeof(struct block_mxfp4)
			: format == FORMAT_Q4_K  ? sizeof(struct block_q4_k)
			: format == FORMAT_Q5_K  ? sizeof(struct block_q5_k)
						 : sizeof(struct block_q6_k);
	return lane * PANEL_ROWS;
}

// Two e2m1 numbers in each lane, one in the low bits of each half, as twice their values. Each half of a word is
// 0x8000 plus or minus a value before its highest bit is turned over, so that none borrows from the other.
INLINE ints e2m1_pair(ints n)
{
	ints low = n & 0x00030003, fours = n >> 2 & 0x00010001, most = low & low >> 1 & 0x00010001;
	ints sign = n >> 3 & 0x00010001, value = low;
	value += (0x00040004 + low + 2 * most) & ((fours << 4) - fours);
	ints negative = (sign << 4) - sign;
	const uints all = 0x80008000u + (uints)(value & ~negative) -
			  (uints)(value & negative); // signed it would overflow
	return (ints)(all ^ 0x80008000u);
}

// The scales of a block's rows, of a format whose blocks are groups.
INLINE floats block_scales(enum tensor_format format, const uint8_t *block, unsigned part)
{
	if (format != FORMAT_MXFP4)
		return halves_to_floats(block + 2 * WIDTH * part);
	lane_bytes narrow;
	memcpy(&narrow, block + WIDTH * part, sizeof(narrow));
	ints e = __builtin_convertvector(narrow, ints); // as e8m0_half
	return (floats)choose_ints(e < 2, 0x00200000 * (e + 1), (e - 1) << 23);
}

// Pair p of a group: two int16 in each lane.
INLINE ints pair_of(enum tensor_format format, const uint8_t *group, unsigned p, unsigned part)
{
	if (format == FORMAT_Q8_0)
		return widen(group + 2 * PANEL_ROWS * p + 2 * WIDTH * part);
	const uint8_t *at = group + part * sizeof(ints);
	unsigned high_words = format == FORMAT_Q6_K ? 2 : format == FORMAT_Q5_K ? 1 : 0;
	ints low = load_words(at + (high_words + p / 4) * PANEL_ROWS * 4) >> 4 * (p % 4) & 0x000f000f;
	if (format == FORMAT_MXFP4)
		return e2m1_pair(low);
	if (format == FORMAT_Q5_K)
		low |= (load_words(at) >> p & 0x00010001) << 4;
	if (format == FORMAT_Q6_K)
		low |= (load_words(at + p / 8 * PANEL_ROWS * 4) >> 2 * (p % 8) & 0x00030003) << 4;
	return low;
}

// Column k of a group.
INLINE floats column_of(enum tensor_format format, const uint8_t *group, unsigned k, unsigned part)
{
	if (format == FORMAT_F32)
		return load_floats(group + 4 * (PANEL_ROWS * k + WIDTH * part));
	if (format == FORMAT_F16)
		return halves_to_floats(group + 2 * (PANEL_ROWS * k + WIDTH * part));
	ints pair = load_words(group + 4 * (PANEL_ROWS * (k / 2) + WIDTH * part));
	pair = k % 2 ? pair & (int32_t)0xffff0000 : pair << 16;
	return (floats)pair;
}

// The scales and mins of the groups of a K block; of Q6_K of its half groups, without mins.
struct scales {
	floats scale[2 * K_GROUPS][PARTS], min[K_GROUPS][PARTS];
};

INLINE void read_scales(enum tensor_format format, struct scales *scales, const uint8_t *block)
{
	const uint8_t *words = block + (format == FORMAT_Q6_K ? 32 : 64);
	UNROLL(4)
	for (unsigned part = 0; part < PARTS; part++) {
		ints word[4];
		floats d = halves_to_floats(block + 2 * WIDTH * part), dmin;
		for (unsigned i = 0; i < (format == FORMAT_Q6_K ? 4 : 3); i++)
			word[i] = load_words(words + 4 * (PANEL_ROWS * i + WIDTH * part));
		if (format == FORMAT_Q6_K) { // signed: shifted to the top, and down again
			UNROLL(16)
			for (unsigned i = 0; i < 2 * K_GROUPS; i++)
				scales->scale[i][part] = d * to_floats(word[i / 4] << (24 - i % 4 * 8) >> 24);
			continue;
		}
		dmin = halves_to_floats(block + 32 + 2 * WIDTH * part);
		const ints scale[2] = {word[0] & 0x3f3f3f3f, (word[2] & 0x0f0f0f0f) | (word[0] >> 2 & 0x30303030)};
		const ints min[2] = {word[1] & 0x3f3f3f3f, (word[2] >> 4 & 0x0f0f0f0f) | (word[1] >> 2 & 0x30303030)};
		UNROLL(8)
		for (unsigned g = 0; g < K_GROUPS; g++) {
			scales->scale[g][part] = d * to_floats(scale[g / 4] >> g % 4 * 8 & 255);
			scales->min[g][part] = dmin * to_floats(min[g / 4] >> g % 4 * 8 & 255);
		}
	}
}

// ---- products: sums[rows][PARTS] of one panel ----

struct part_sums {
	floats of[ROWS_MOST][PARTS];
};

INLINE void add_plain(enum tensor_format format, const uint8_t *block, const float *const *values, unsigned rows,
		      struct part_sums *sums)
{
	UNROLL(32)
	for (unsigned k = 0; k < GROUP; k++)
		UNROLL(4)
	for (unsigned part = 0; part < PARTS; part++) {
		floats column = column_of(format, block, k, part);
		UNROLL(8)
		for (unsigned row = 0; row < rows; row++)
			sums->of[row][part] += values[row][k] * column;
	}
}

// The sum of one row is split into four, that of two rows into two, because each addition takes several cycles before
// the next can begin.
enum { WAYS_MOST = 4 };
struct whole_sums {
	ints of[WAYS_MOST][ROWS_MOST][PARTS];
};

INLINE unsigned ways_of(unsigned rows)
{
	return rows == 1 ? 4 : rows == 2 ? 2 : 1;
}

// Begin with the sum of `offset` times the activations of both halves, or of one: what weights are counted from.
INLINE void begin_sums(struct whole_sums *all, const struct stage_group *const *x, unsigned rows, int32_t offset,
		       unsigned first_half, unsigned end_half)
{
	UNROLL(8)
	for (unsigned row = 0; row < rows; row++) {
		int32_t sum = 0;
		for (unsigned half = first_half; offset && half < end_half; half++)
			sum += x[row]->sums[half];
		UNROLL(4)
		for (unsigned part = 0; part < PARTS; part++)
			UNROLL(4)
		for (unsigned way = 0; way < ways_of(rows); way++)
			all->of[way][row][part] = all_lanes(way ? 0 : offset * sum);
	}
}

// Add pairs [first, first + count) of a group, exactly.
INLINE void sum_pairs(enum tensor_format format, const uint8_t *group, const struct stage_group *const *x,
		      unsigned rows, unsigned first, unsigned count, struct whole_sums *all)
{
	UNROLL(16)
	for (unsigned p = first; p < first + count; p++)
		UNROLL(4)
	for (unsigned part = 0; part < PARTS; part++) {
		ints weights = pair_of(format, group, p, part);
		UNROLL(8)
		for (unsigned row = 0; row < rows; row++) {
			int32_t pair;
			memcpy(&pair, &x[row]->numbers[2 * p], sizeof(pair));
			ints *sum = &all->of[p % ways_of(rows)][row][part];
			*sum = dot(*sum, weights, all_lanes(pair));
		}
	}
}

#ifdef BYTES_DOT
// The same of a whole group of four-bit numbers, by bytes: half as many to be cut out of their words.
INLINE void sum_nibbles(const uint8_t *group, const struct stage_group *const *x, unsigned rows, struct whole_sums *all)
{
	ints high[ROWS_MOST][PARTS] = {{{0}}};
	UNROLL(8)
	for (unsigned i = 0; i < GROUP / 4; i++)
		UNROLL(4)
	for (unsigned part = 0; part < PARTS; part++) {
		ints word = load_words(group + i / 2 * PANEL_ROWS * 4 + part * sizeof(ints));
		ints weights = word >> i % 2 * 4 & 0x0f0f0f0f;
		UNROLL(8)
		for (unsigned row = 0; row < rows; row++) {
			int32_t low_bytes, high_bytes;
			memcpy(&low_bytes, &x[row]->low[4 * i], sizeof(low_bytes));
			memcpy(&high_bytes, &x[row]->high[4 * i], sizeof(high_bytes));
			ints *sum = &all->of[0][row][part];
			*sum = dot_bytes(*sum, weights, all_lanes(low_bytes));
			high[row][part] = dot_bytes(high[row][part], weights, all_lanes(high_bytes));
		}
	}
	for (unsigned row = 0; row < rows; row++)
		for (unsigned part = 0; part < PARTS; part++)
			all->of[0][row][part] += high[row][part] << 8;
}
#endif

// A whole group, exactly.
INLINE void sum_group(enum tensor_format format, const uint8_t *group, const struct stage_group *const *x,
		      unsigned rows, struct whole_sums *all)
{
#ifdef BYTES_DOT
	if (format == FORMAT_Q4_0 || format == FORMAT_Q4_K) {
		sum_nibbles(group, x, rows, all);
		return;
	}
#endif
	sum_pairs(format, group, x, rows, 0, PAIRS, all);
}

INLINE floats end_sums(const struct whole_sums *all, unsigned rows, unsigned row, unsigned part)
{
	ints sum = all->of[0][row][part];
	UNROLL(4)
	for (unsigned way = 1; way < ways_of(rows); way++)
		sum += all->of[way][row][part];
	return to_floats(sum);
}

INLINE void add_simple(enum tensor_format format, const uint8_t *block, const struct stage_group *const *x,
		       unsigned rows, struct part_sums *sums)
{
	struct whole_sums all;
	begin_sums(&all, x, rows, format == FORMAT_Q4_0 ? -8 : 0, 0, 2);
	sum_group(format, block + head_bytes(format), x, rows, &all);
	UNROLL(4)
	for (unsigned part = 0; part < PARTS; part++) {
		floats d = block_scales(format, block, part);
		UNROLL(8)
		for (unsigned row = 0; row < rows; row++)
			sums->of[row][part] += end_sums(&all, rows, row, part) * (d * x[row]->scale);
	}
}

INLINE void add_k(enum tensor_format format, const uint8_t *group, unsigned g, const struct scales *scales,
		  const struct stage_group *const *x, unsigned rows, struct part_sums *sums)
{
	const unsigned halves = format == FORMAT_Q6_K ? 2 : 1;
	UNROLL(2)
	for (unsigned half = 0; half < halves; half++) {
		struct whole_sums all;
		begin_sums(&all, x, rows, format == FORMAT_Q6_K ? -32 : 0, half, half + 1);
		if (halves == 1)
			sum_group(format, group, x, rows, &all);
		else
			sum_pairs(format, group, x, rows, half * PAIRS / 2, PAIRS / halves, &all);
		UNROLL(4)
		for (unsigned part = 0; part < PARTS; part++) {
			floats d = scales->scale[halves * g + half][part];
			UNROLL(8)
			for (unsigned row = 0; row < rows; row++) {
				sums->of[row][part] += end_sums(&all, rows, row, part) * (d * x[row]->scale);
				if (format != FORMAT_Q6_K)
					sums->of[row][part] -= scales->min[g][part] * x[row]->sum;
			}
		}
	}
}

INLINE void store(const struct product *product, uint32_t panel, uint32_t first_row, unsigned rows,
		  const struct part_sums *sums)
{
	uint32_t column = panel * PANEL_ROWS, have = product->panels->rows - column;
	for (unsigned row = 0; row < rows; row++) {
		float *to = product->output + (first_row + row) * product->output_stride + column;
		float whole[PANEL_ROWS];
		memcpy(whole, sums->of[row], sizeof(whole));
		for (uint32_t lane = 0; lane < PANEL_ROWS && lane < have; lane++)
			to[lane] = product->add ? to[lane] + whole[lane] : whole[lane];
	}
}

INLINE void prefetch(const uint8_t *from, unsigned length)
{
	UNROLL(32)
	for (unsigned line = 0; line < length; line += 64)
		__builtin_prefetch(from + line);
}

// `rows` rows of the batch with `count` <= PRODUCT_PANELS panels, which are read side by side.
INLINE void multiply_rows(enum tensor_format format, const struct product *product, uint32_t first_row, unsigned rows,
			  uint32_t panel, unsigned count)
{
	struct part_sums sums[PRODUCT_PANELS];
	const struct stage_group *x[ROWS_MOST];
	const float *values[ROWS_MOST];
	const uint8_t *at = product->panels->data + product->panels->panel_bytes * panel;
	const uint32_t groups = product->panels->groups;
	memset(sums, 0, count * sizeof(sums[0]));
	for (unsigned row = 0; row < rows; row++) {
		x[row] = product->groups + (size_t)(first_row + row) * groups;
		values[row] = product->values + (first_row + row) * product->value_stride;
	}
	const uint32_t step = is_k(format) ? K_GROUPS : 1;
	for (uint32_t group = 0; group < groups; group += step, at += block_bytes(format)) {
		struct scales scales[PRODUCT_PANELS];
		for (unsigned i = 0; is_k(format) && i < count; i++)
			read_scales(format, &scales[i], at + i * product->panels->panel_bytes);
		for (unsigned g = 0; g < step; g++) {
			for (unsigned i = 0; i < count; i++) {
				const uint8_t *block = at + i * product->panels->panel_bytes;
				prefetch(block + AHEAD + g * (block_bytes(format) / step), block_bytes(format) / step);
				if (is_plain(format))
					add_plain(format, block, values, rows, &sums[i]);
				else if (is_k(format))
					add_k(format, block + head_bytes(format) + g * group_bytes(format), g,
					      &scales[i], x, rows, &sums[i]);
				else
					add_simple(format, block, x, rows, &sums[i]);
			}
			for (unsigned row = 0; row < rows; row++) {
				x[row]++;
				values[row] += GROUP;
			}
		}
	}
	for (unsigned i = 0; i < count; i++)
		store(product, panel + i, first_row, rows, &sums[i]);
}

INLINE void multiply_format(enum tensor_format format, const struct product *product, uint32_t first, uint32_t count)
{
	uint32_t row = 0, rows = product->rows;
	for (; rows - row >= ROWS_MOST; row += ROWS_MOST)
		multiply_rows(format, product, row, ROWS_MOST, first, count);
	for (; rows - row >= 4; row += 4)
		multiply_rows(format, product, row, 4, first, count);
	for (; rows - row >= 2; row += 2)
		multiply_rows(format, product, row, 2, first, count);
	if (row < rows)
		multiply_rows(format, product, row, 1, first, count);
}

#define FORMAT_FUNCTION(name, format) \
	static void name(const struct product *product, uint32_t first, uint32_t count) \
	{ \
		multiply_format(format, product, first, count); \
	}
FORMAT_FUNCTION(multiply_f32, FORMAT_F32)
FORMAT_FUNCTION(multiply_f16, FORMAT_F16)
FORMAT_FUNCTION(multiply_bf16, FORMAT_BF16)
FORMAT_FUNCTION(multiply_q8_0, FORMAT_Q8_0)
FORMAT_FUNCTION(multiply_q4_0, FORMAT_Q4_0)
FORMAT_FUNCTION(multiply_mxfp4, FORMAT_MXFP4)
FORMAT_FUNCTION(multiply_q4_k, FORMAT_Q4_K)
FORMAT_FUNCTION(multiply_q5_k, FORMAT_Q5_K)
FORMAT_FUNCTION(multiply_q6_k, FORMAT_Q6_K)

static void multiply(const struct product *product, uint32_t first, uint32_t count)
{
	static void (*const of_format[FORMAT_COUNT])(const struct product *product, uint32_t first, uint32_t count) = {
		[FORMAT_F32] = multiply_f32,   [FORMAT_F16] = multiply_f16,   [FORMAT_BF16] = multiply_bf16,
		[FORMAT_Q8_0] = multiply_q8_0, [FORMAT_Q4_0] = multiply_q4_0, [FORMAT_MXFP4] = multiply_mxfp4,
		[FORMAT_Q4_K] = multiply_q4_k, [FORMAT_Q5_K] = multiply_q5_k, [FORMAT_Q6_K] = multiply_q6_k,
	};
	of_format[product->panels->format](product, first, count);
}

#include "engine/cpu/stage/stage_between.h"

const struct stage_kernels KERNELS = {
	.make_groups = make_groups,
	.multiply = multiply,
	.attend = attend,
	.silu = silu,
	.delta = delta,
	.gelu = gelu,
	.clamped = clamped,
};
