// For stage_decode.cu: a product of one row. A warp rounds its slice of the input, multiplies the weights of its ring by it,
// and the block adds up the sums of its warps.
#include "stage_decode_copies.cuh"
#pragma once

// ---- the input ----

struct slice { // of a warp: where its part of the input is in shared memory, as a lane reads it
	unsigned char *integers, *halves, *pairs;
	uint2 *blocks;               // scale and sum of the integers of each 32
	float *groups;               // of halves: what to multiply by, of each 128
	unsigned plane, plane_pairs; // from the upper halves of integers, or of numbers, to the lower ones
	unsigned block_mask[4];
};

template <unsigned SET> INLINE slice slice_of(unsigned char *at, unsigned columns, unsigned inputs)
{
	slice out;
	unsigned lane = THREAD_X % 32;
	out.plane = columns + 64;
	out.plane_pairs = columns * 2;
	out.integers = at;
	out.blocks = (uint2 *)(at + 2 * columns + 64);
	at += takes<SET>(SET_INTEGERS, inputs, DECODE_INTEGERS) ? 2 * columns + 64 + columns / 4 : 0;
	out.halves = at;
	out.groups = (float *)(at + 2 * columns);
	at += takes<SET>(SET_HALVES, inputs, DECODE_HALVES) ? 2 * columns + (columns / 32 + 15) / 16 * 16 : 0;
	out.pairs = at;
#pragma unroll
	for (unsigned i = 0; i < 4; i++)
		out.block_mask[i] = lane / 8 == i ? 0xffffffffu : 0;
	return out;
}

// Load this warp's columns of the input. norms: the first gains of the norm, loaded before. Returns the sum of their
// squares.
template <unsigned SET>
INLINE float take_slice(const decode_product &product, const columns &mine, unsigned inputs, const slice &to,
			const float *norm, const float4 (&norms)[PRELOADED])
{
	unsigned lane = THREAD_X % 32;
	float squares = 0;
#pragma unroll 1
	for (unsigned first = mine.begin; first < mine.end; first += PRELOADED * 128) {
		float4 v[PRELOADED];
		unsigned k = first + lane * 4, at = k - mine.begin;
#pragma unroll
		for (int i = 0; i < PRELOADED; i++) {
			v[i].x = v[i].y = v[i].z = v[i].w = 0;
			if (k + i * 128 < product.columns && k + i * 128 < mine.end)
				v[i] = load_fresh(product.x + k + i * 128);
		}
#pragma unroll
		for (int i = 0; i < PRELOADED; i++) {
			squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
			if (norm && k + i * 128 < product.columns) {
				float4 w = norms[i];
				if (first != mine.begin && k + i * 128 < mine.end)
					w = *(const float4 *)(norm + k + i * 128);
				v[i].x *= w.x;
				v[i].y *= w.y;
				v[i].z *= w.z;
				v[i].w *= w.w;
			}
		}
		if (takes<SET>(SET_INTEGERS, inputs, DECODE_INTEGERS)) {
			rounded_four rounded[PRELOADED];
			round_fours<PRELOADED>(rounded, v, at);
#pragma unroll
			for (int i = 0; i < PRELOADED; i++) {
				if (first + i * 128 >= mine.end)
					break;
				*(unsigned *)(to.integers + rounded[i].place) = rounded[i].upper;
				*(unsigned *)(to.integers + to.plane + rounded[i].place) = rounded[i].lower;
				uint2 block;
				block.x = __builtin_bit_cast(unsigned, rounded[i].scale);
				block.y = (unsigned)rounded[i].total;
				if (lane % 8 == 0)
					to.blocks[at / 32 + i * 4] = block;
			}
		}
#pragma unroll
		for (int i = 0; i < PRELOADED; i++) {
			if (first + i * 128 >= mine.end)
				break;
			unsigned place = column_place(at + i * 128);
			if (takes<SET>(SET_HALVES, inputs, DECODE_HALVES)) {
				float most = larger(larger(absolute(v[i].x), absolute(v[i].y)),
						    larger(absolute(v[i].z), absolute(v[i].w)));
				float scale = scale_for(warp_most(most));
				*(unsigned *)(to.halves + place) = pack_f16(v[i].x * scale, v[i].y * scale);
				*(unsigned *)(to.halves + place + 8) = pack_f16(v[i].z * scale, v[i].w * scale);
				if (!lane)
					to.groups[at / 128 + i] = quotient(1, scale);
			}
			if (takes<SET>(SET_PAIRS, inputs, DECODE_PAIRS)) {
				unsigned char *pair = to.pairs + place;
				unsigned one = pack_bf16(v[i].x, v[i].y), two = pack_bf16(v[i].z, v[i].w);
				*(unsigned *)pair = one;
				*(unsigned *)(pair + 8) = two;
				pair += to.plane_pairs;
				*(unsigned *)pair = pack_bf16(v[i].x - low_bf16(one), v[i].y - high_bf16(one));
				*(unsigned *)(pair + 8) = pack_bf16(v[i].z - low_bf16(two), v[i].w - high_bf16(two));
			}
		}
	}
	warp_barrier();
	return warp_sum(squares);
}

// ---- products ----

template <bool SIGNED> INLINE void add_bytes(int (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
	if (SIGNED)
		asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		    "{%0, %1, %2, %3};"
		    : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
		    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	else
		asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		    "{%0, %1, %2, %3};"
		    : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
		    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
INLINE void add_bytes_16(int (&sum)[4], unsigned a0, unsigned a1, unsigned b)
{
	asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
	    : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
	    : "r"(a0), "r"(a1), "r"(b));
}
INLINE int whole(int upper, int lower)
{
	return upper * 256 + lower;
}
INLINE float half_at(const unsigned char *at)
{
	return low_f16(*(const unsigned short *)at);
}

// sum: of rows g and g + 8, what this lane has of it; of the piece's first column `at` on.
template <int FORMAT>
INLINE void multiply_floats(float (&sum)[2], const unsigned char *piece, unsigned at, const slice &x)
{
	struct operand {
		const unsigned char *halves, *pairs;
		unsigned plane;
		INLINE_METHOD uint2 get(int plane_of, unsigned step, int) const
		{
			return *(const uint2 *)((plane_of ? pairs + (plane_of - 1) * plane : halves) + step * 32);
		}
	} b;
	unsigned lane = THREAD_X % 32, j = lane % 4;
	float part[1][4];
	clear(part[0]);
	b.plane = x.plane_pairs;
#pragma unroll
	for (unsigned i = 0; i < piece_columns(FORMAT) / 32; i++) {
		b.halves = x.halves + (at + i * 32) * 2 + j * 8;
		b.pairs = x.pairs + (at + i * 32) * 2 + j * 8;
		multiply_block<FORMAT, 1>(part, piece + i * tile_bytes(FORMAT), 0, lane, b);
	}
	// All columns of the product are the same.
	float scale = FORMAT == TILE_F16 ? x.groups[at / 128] : 1;
	scale = j ? 0 : scale;
	sum[0] = FUSED(part[0][0], scale, sum[0]);
	sum[1] = FUSED(part[0][2], scale, sum[1]);
}

// A warp's integers of a piece's columns, as its lanes multiply them. GROUPS: the scales of a lane.
template <int FORMAT> struct operands {
	enum { GROUPS = FORMAT == TILE_Q6_K ? 4 : FORMAT == TILE_Q8_0 || FORMAT == TILE_Q4_0 ? 1 : 2 };
	uint2 b[GROUPS][4]; // of Q6_K the first halves alone
	float scale[GROUPS];
	int total[GROUPS];

	INLINE_METHOD void load(unsigned at, const slice &x)
	{
		unsigned lane = THREAD_X % 32, j = lane % 4, q = lane / 8, odd = lane / 4 % 2;
		const unsigned char *bytes = x.integers + odd * x.plane + at + j * 8;
#pragma unroll
		for (unsigned group = 0; group < GROUPS; group++) {
			uint2 all, block;
			if (FORMAT == TILE_Q6_K) { // scales are of 16
				all.x = *(const unsigned *)(bytes + group * 64 + q / 2 * 32 + q % 2 * 4);
				all.y = 0;
				block = x.blocks[at / 32 + group * 2 + j / 2];
			} else {
				all = *(const uint2 *)(bytes + group * 128 + q * 32);
				block = x.blocks[at / 32 + group * 4 + j];
			}
			scale[group] = __builtin_bit_cast(float, block.x);
			total[group] = (int)block.y;
#pragma unroll
			for (unsigned i = 0; i < 4; i++) {
				b[group][i].x = all.x & x.block_mask[i];
				b[group][i].y = all.y & x.block_mask[i];
			}
		}
	}
};

template <int FORMAT>
INLINE void multiply_integers(float (&sum)[2], const unsigned char *piece, const operands<FORMAT> &x)
{
	enum { GROUPS = operands<FORMAT>::GROUPS };
	unsigned lane = THREAD_X % 32, g = lane / 4, j = lane % 4;
	const unsigned char *heads = piece + 2048 + (FORMAT == TILE_Q5_K ? 512 : 0) + g * 16;
	uint4 above, below, high;
	float d[2], least[2];
	if (FORMAT == TILE_Q4_K || FORMAT == TILE_Q5_K) {
		above = *(const uint4 *)heads;
		below = *(const uint4 *)(heads + 128);
		d[0] = low_f16(above.x);
		d[1] = FORMAT == TILE_Q4_K ? low_f16(below.x) * 0.0625f : low_f16(below.x);
		least[0] = high_f16(above.x);
		least[1] = high_f16(below.x);
	} else if (FORMAT == TILE_Q6_K) {
		d[0] = half_at(piece + 3328 + g * 2) * 0.25f;
		d[1] = half_at(piece + 3344 + g * 2) * 0.25f;
	} else if (FORMAT == TILE_Q8_0) {
		d[0] = half_at(piece + j / 2 * 1088 + 1024 + g * 8 + j % 2 * 2);
		d[1] = half_at(piece + j / 2 * 1088 + 1028 + g * 8 + j % 2 * 2);
	} else {
		d[0] = half_at(piece + 1024 + g * 16 + j * 2);
		d[1] = half_at(piece + 1032 + g * 16 + j * 2) * 0.0625f;
	}
	if (FORMAT == TILE_Q5_K)
		high = load_run(piece, 2048, lane);
#pragma unroll
	for (unsigned group = 0; group < GROUPS; group++) {
		int part[4] = {0, 0, 0, 0};
		if (FORMAT == TILE_Q6_K) { // scales are of 16
			uint4 run = load_run(piece, group * TILE_RUN_BYTES, lane);
			if (group % 2 == 0)
				high = load_run(piece, 2048 + group / 2 * TILE_RUN_BYTES, lane);
#pragma unroll
			for (unsigned i = 0; i < 4; i++) {
				unsigned word = word_of(run, i), bits = word_of(high, group % 2 * 2 + i / 2);
				bits = i % 2 ? bits : bits << 4;
				unsigned a0 = ((word << 2 & 0x3c3c3c3cu) | (bits << 2 & 0xc0c0c0c0u)) ^ 0x80808080u;
				unsigned a1 = ((word >> 2 & 0x3c3c3c3cu) | (bits & 0xc0c0c0c0u)) ^ 0x80808080u;
				add_bytes_16(part, a0, a1, x.b[group][i].x);
			}
			float scale = x.scale[group];
			const signed char *scales = (const signed char *)piece + 3072 + g * 16 + group * 4 + j;
			sum[0] = FUSED((float)whole(part[0], part[1]), d[0] * (float)scales[0] * scale, sum[0]);
			sum[1] = FUSED((float)whole(part[2], part[3]), d[1] * (float)scales[128] * scale, sum[1]);
			continue;
		}
		uint4 run[2];
		if (FORMAT != TILE_Q8_0) {
			run[0] = load_run(piece, group * 2 * TILE_RUN_BYTES, lane);
			run[1] = load_run(piece, (group * 2 + 1) * TILE_RUN_BYTES, lane);
		}
#pragma unroll
		for (unsigned i = 0; i < 4; i++) {
			unsigned a[4];
			if (FORMAT == TILE_Q8_0) {
				uint4 four = load_run(piece + i / 2 * 1088, i % 2 * TILE_RUN_BYTES, lane);
				a[0] = four.x;
				a[1] = four.y;
				a[2] = four.z;
				a[3] = four.w;
			} else {
				unsigned one = word_of(run[i / 2], i % 2 * 2), two = word_of(run[i / 2], i % 2 * 2 + 1);
				a[0] = one & 0x0f0f0f0fu;
				a[1] = one & 0xf0f0f0f0u; // 16 times as much
				a[2] = two & 0x0f0f0f0fu;
				a[3] = two & 0xf0f0f0f0u;
				if (FORMAT == TILE_Q5_K) {
					unsigned bits = word_of(high, group * 2 + i / 2);
					a[1] >>= 4;
					a[3] >>= 4;
#pragma unroll
					for (int k = 0; k < 4; k++)
						a[k] |= shifted(bits, (int)(i % 2) * 4 + k - 4) & 0x10101010u;
				}
			}
			add_bytes<FORMAT == TILE_Q8_0>(part, a, x.b[group][i].x, x.b[group][i].y);
		}
		int upper = whole(part[0], part[1]), lower = whole(part[2], part[3]), total = x.total[group];
		float scale = x.scale[group];
		if (FORMAT == TILE_Q4_0) {
			upper -= 8 * total;
			lower -= 128 * total;
		}
		if (FORMAT == TILE_Q8_0 || FORMAT == TILE_Q4_0) {
			sum[0] = FUSED((float)upper, d[0] * scale, sum[0]);
			sum[1] = FUSED((float)lower, d[1] * scale, sum[1]);
		} else {
			unsigned scales = head_scales(above, group * 4 + j), others = head_scales(below, group * 4 + j);
			float all = (float)total * scale;
			sum[0] = FUSED((float)upper, d[0] * (float)(scales & 63) * scale, sum[0]);
			sum[1] = FUSED((float)lower, d[1] * (float)(others & 63) * scale, sum[1]);
			sum[0] = FUSED(-least[0] * (float)(scales >> 8), all, sum[0]);
			sum[1] = FUSED(-least[1] * (float)(others >> 8), all, sum[1]);
		}
	}
}

template <int FORMAT>
INLINE void multiply_pieces(float (&sum)[2], const unsigned char *from, unsigned pieces, unsigned at, const slice &x)
{
#pragma unroll 1
	for (; pieces; pieces--, from += piece_bytes(FORMAT), at += piece_columns(FORMAT))
		if (FORMAT >= TILE_Q8_0) {
			operands<FORMAT> all;
			all.load(at, x);
			multiply_integers<FORMAT>(sum, from, all);
		} else {
			multiply_floats<FORMAT>(sum, from, at, x);
		}
}

// The sums of a thread: a result of a unit, four threads each.
struct result {
	float *y;
	float extra; // bias, or the present value
	bool there;
};

INLINE result result_of(const decode_product &product, const decode_layer &layer, unsigned from, unsigned units)
{
	result out;
	unsigned unit = from + THREAD_X / 4 / TILE_ROWS, matrix = 0, first = 0;
	out.there = THREAD_X / 4 / TILE_ROWS < units && THREAD_X % 4 == 0;
#pragma unroll
	for (unsigned i = 0; i < 2; i++)
		if (product.count == 3 && matrix == i && unit >= product.row_tiles[i]) {
			unit -= product.row_tiles[i];
			first += product.rows[i];
			matrix++;
		}
	unsigned row = unit * TILE_ROWS + THREAD_X / 4 % TILE_ROWS;
	out.there = out.there && row < product.rows[matrix];
	out.y = product.y + first + row;
	out.extra = 0;
	if (out.there && product.mode == GEMV_ADD)
		out.extra = load_fresh_1(out.y);
	else if (out.there && product.count == 3 && layer.bias[matrix])
		out.extra = layer.bias[matrix][row];
	return out;
}

INLINE void add_up(const decode_params &p, const decode_product &product, const memory &m, const result &to,
		   unsigned units)
{
	if (THREAD_X / 4 / TILE_ROWS >= units)
		return;
	unsigned quarter = THREAD_X % 4, row = THREAD_X / 4 % TILE_ROWS, unit = THREAD_X / 4 / TILE_ROWS;
	const float *from = m.sums + unit * (DECODE_WARPS * TILE_ROWS) + row;
	float first = 0, second = 0, squares = 0, factor = 1;
#pragma unroll
	for (unsigned i = 0; i < DECODE_WARPS; i += 4) {
		first += from[(i + quarter) * TILE_ROWS];
		squares += m.squares[i + quarter];
		if (product.mode == GEMV_GATED)
			second += from[(DECODE_UNITS * DECODE_WARPS + i + quarter) * TILE_ROWS];
	}
	for (unsigned half = 1; half < 4; half *= 2) {
		first += from_lane(first, half);
		second += from_lane(second, half);
		squares += from_lane(squares, half);
	}
	if (product.norm != DECODE_NO_NORM)
		factor = quotient(1, root_of(squares / (float)product.columns + p.epsilon));
	first *= factor;
	if (to.there)
		*to.y = product.mode == GEMV_GATED ? silu(first) * (second * factor) : to.extra + first;
}

// The sum of a row of tiles, which four lanes have parts of, to its place.
INLINE void put_sum(float *sums, float (&sum)[2])
{
	unsigned lane = THREAD_X % 32, g = lane / 4, j = lane % 4;
	for (unsigned half = 1; half < 4; half *= 2) {
		sum[0] += from_lane(sum[0], half);
		sum[1] += from_lane(sum[1], half);
	}
	if (j < 2)
		sums[g + j * 8] = j ? sum[1] : sum[0];
}

// The rows of a segment, by this warp's columns of the input, into `sums`.
template <unsigned SET, int FORMAT>
INLINE void multiply_rows(const decode_params &p, const segment &s, const memory &m, const slice &x, float *sums,
			  place *next, copier<SET> &copies)
{
	enum { SUMS = DECODE_WARPS * TILE_ROWS };
	const unsigned at_once = decode_at_once(FORMAT);
	if (only_format(SET) && FORMAT >= TILE_Q8_0 && s.pieces == 1) { // all rows by the same columns
		operands<FORMAT> all;
		all.load(0, x);
#pragma unroll 1
		for (unsigned i = 0; i < s.rows; i++, sums += SUMS) {
			float sum[2] = {0, 0};
			unsigned at = place_take(next, piece_bytes(FORMAT), p.ring_bytes);
			count_wait(next->count, next->round);
			multiply_integers<FORMAT>(sum, m.ring + at, all);
			warp_barrier();
			copies.fill(p, m, next->sum);
			place_advance(next, m);
			put_sum(sums, sum);
		}
		return;
	}
#pragma unroll 1
	for (unsigned i = 0; i < s.rows; i++, sums += SUMS) {
		float sum[2] = {0, 0};
#pragma unroll 1
		for (unsigned left = s.pieces, column = 0; left;) {
			unsigned pieces = left < at_once ? left : at_once;
			unsigned at = place_take(next, pieces * piece_bytes(FORMAT), p.ring_bytes);
			count_wait(next->count, next->round);
			multiply_pieces<FORMAT>(sum, m.ring + at, pieces, column, x);
			warp_barrier();
			copies.fill(p, m, next->sum);
			place_advance(next, m);
			left -= pieces;
			column += pieces * piece_columns(FORMAT);
		}
		put_sum(sums, sum);
	}
}
template <unsigned SET, int FORMAT>
INLINE void multiply_if(const decode_params &p, const segment &s, const memory &m, const slice &x, float *sums,
			place *next, copier<SET> &copies)
{
	if ((SET >> FORMAT & 1) && (SET == 1u << FORMAT || s.format == FORMAT))
		multiply_rows<SET, FORMAT>(p, s, m, x, sums, next, copies);
}

// A product of this block's units by the input. target: how many blocks have come when that is there.
template <unsigned SET>
INLINE void run_product(const decode_params &p, unsigned kind, const decode_layer &layer, const memory &m, place *next,
			copier<SET> &copies, unsigned target)
{
	const decode_product &product = p.products[kind];
	unsigned inputs = layer.inputs[kind], warp = THREAD_X / 32, lane = THREAD_X % 32;
	const columns mine = columns_of<SET>(product, layer, kind, warp);
	const float *norm = product.norm == DECODE_NO_NORM ? 0 : layer.norms[product.norm];
	float4 norms[PRELOADED];
#pragma unroll
	for (unsigned i = 0; i < PRELOADED; i++) {
		unsigned k = mine.begin + i * 128 + lane * 4;
		norms[i].x = norms[i].y = norms[i].z = norms[i].w = 0;
		if (norm && k < product.columns && k < mine.end)
			norms[i] = *(const float4 *)(norm + k);
	}
	const slice x = slice_of<SET>(m.slice, mine.end - mine.begin, inputs);
	unsigned last = m.units[kind].y;
	for (unsigned from = m.units[kind].x, first = from; first <= last; from += DECODE_UNITS) {
		unsigned to = from + DECODE_UNITS < last ? from + DECODE_UNITS : last;
		const result out = result_of(product, layer, from, to - from);
		if (from == first) {
			wait_for_all(p, target);
			float squares = take_slice<SET>(product, mine, inputs, x, norm, norms);
			if (!lane)
				m.squares[warp] = squares;
		} else {
			multipliers_barrier(); // sums of the units before are read
		}
#pragma unroll 1
		for (unsigned matrix = 0, row = 0; matrix < product.count; matrix++) {
			const segment s = segment_of<SET>(product, layer, mine, matrix, from, to);
			row = product.mode == GEMV_GATED && matrix ? (unsigned)DECODE_UNITS : row;
			float *sums = m.sums + (row * DECODE_WARPS + warp) * TILE_ROWS;
			multiply_if<SET, TILE_F32>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_F16>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_BF16>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q8_0>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q4_0>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q4_K>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q5_K>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q6_K>(p, s, m, x, sums, next, copies);
			row += s.rows;
		}
		multipliers_barrier();
		add_up(p, product, m, out, to - from);
		if (to == last)
			break;
	}
}
