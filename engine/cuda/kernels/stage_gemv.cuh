// Products of few rows: activations in shared memory in the layout that weights need, and the product with a tile.
//
// For formats with scales activations are integers of 16 bits with a scale for each 32, and each makes two columns of a
// product of bytes: its upper half and its lower. For F16 they are f16, for F32 and BF16 two bf16, scaled by row.
#pragma once
#include "stage.cuh"

struct activations { // operand B of f16 and bf16: row g of the activations, columns 2 j, 2 j + 1, 8 + 2 j, 9 + 2 j
	const unsigned char *halves, *pairs; // of this lane
	unsigned plane_bytes;
	INLINE_METHOD uint2 get(int plane, unsigned step, int) const
	{
		return *(const uint2 *)((plane ? pairs + (plane - 1) * plane_bytes : halves) + step * 32);
	}
};

struct integers { // operand B of bytes: column g is the upper (even) or lower half of row g / 2; sums are of row j
	const unsigned char *bytes[2];         // of this lane, rows 0 to 3 and 4 to 7
	const float *scales[2], *totals[2]; // of blocks; totals: the sum of a block's values
};

// ---- activations ----

struct layout_of_rows { // in shared memory
	unsigned char *integers, *halves, *pairs;
	float *scales, *totals;
	unsigned integer_bytes, half_bytes, pair_bytes, blocks;
};

// p: padded (columns), halves and pairs (which of them are wanted).
template <class P> INLINE void store_two(const P &p, const layout_of_rows &to, unsigned row, unsigned k, float a, float b)
{
	unsigned place = column_place(k);
	if (p.halves)
		*(unsigned *)(to.halves + row * to.half_bytes + place) = pack_f16(a, b);
	if (p.pairs) {
		unsigned high = pack_bf16(a, b);
		unsigned char *pair = to.pairs + row * to.pair_bytes + place;
		*(unsigned *)pair = high;
		*(unsigned *)(pair + p.padded * 2) = pack_bf16(a - low_bf16(high), b - high_bf16(high));
	}
}

// Four columns times `by`; all lanes of a warp.
template <class P>
INLINE void store_integers(const P &p, const layout_of_rows &to, unsigned row, unsigned k, const float4 &v, float by)
{
	rounded_four rounded[1];
	const float4 values[1] = {v};
	round_fours<1>(rounded, values, k);
	const rounded_four four = rounded[0];
	if (k >= p.padded)
		return;
	unsigned char *bytes = to.integers + row * to.integer_bytes + four.place;
	*(unsigned *)bytes = four.upper;
	*(unsigned *)(bytes + p.padded + 32) = four.lower;
	if (k % 32 == 0) {
		to.scales[row * to.blocks + k / 32] = four.scale * by;
		to.totals[row * to.blocks + k / 32] = (float)four.total * four.scale * by;
	}
}

INLINE float4 weighted(float4 v, const float *norm, unsigned k)
{
	if (norm) {
		float4 w = *(const float4 *)(norm + k);
		v.x *= w.x;
		v.y *= w.y;
		v.z *= w.z;
		v.w *= w.w;
	}
	return v;
}
INLINE float squares_of(const float4 &v) { return (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w); }
INLINE float most_of(const float4 &v)
{
	return larger(larger(absolute(v.x), absolute(v.y)), larger(absolute(v.z), absolute(v.w)));
}
// ---- products ----

template <bool SIGNED> INLINE void multiply_bytes(int (&sum)[4], const unsigned (&a)[4], const uint2 &b)
{
	if (SIGNED)
		asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		    "{%10, %10, %10, %10};"
		    : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
		    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(0));
	else
		asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		    "{%10, %10, %10, %10};"
		    : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
		    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(0));
}
INLINE void multiply_bytes_16(int (&sum)[4], unsigned a0, unsigned a1, unsigned b)
{
	asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
	    : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
	    : "r"(a0), "r"(a1), "r"(b), "r"(0));
}
// Add a block's sums: of rows g and g + 8 by activation j.
INLINE void add_block(float *sum, const int (&part)[4], float upper, float lower)
{
	sum[0] = FUSED((float)(part[0] * 256 + part[1]), upper, sum[0]);
	sum[1] = FUSED((float)(part[2] * 256 + part[3]), lower, sum[1]);
}

// A tile by the integers from its first column on. sum: (NT, 2). What the weights' integers are multiplied by to be
// signed bytes, 16 for Q4_0 and 4 for Q6_K, the caller takes out in the end.
template <int FORMAT, int NT>
INLINE void multiply_integers(float (&sum)[4], const unsigned char *tile, unsigned lane, const integers &b, unsigned block0)
{
	enum { BLOCKS_OF_TILE = FORMAT == TILE_Q8_0 ? 2 : FORMAT == TILE_Q4_0 ? 4 : 8 };
	const unsigned char *heads = tile + 2048 + (FORMAT == TILE_Q5_K ? 512 : 0);
	uint4 above, below, run, high;
	float upper_d = 0, lower_d = 0;
	if (FORMAT == TILE_Q8_0) {
		uint2 scales = *(const uint2 *)(tile + 1024 + lane / 4 * 8);
		above.x = scales.x;
		below.x = scales.y;
	} else if (FORMAT == TILE_Q4_0) {
		above = *(const uint4 *)(tile + 1024 + lane / 4 * 16);
	} else if (FORMAT == TILE_Q6_K) {
		above = *(const uint4 *)(tile + 3072 + lane / 4 * 16);
		below = *(const uint4 *)(tile + 3072 + (lane / 4 + 8) * 16);
		upper_d = low_f16(*(const unsigned short *)(tile + 3328 + lane / 4 * 2));
		lower_d = low_f16(*(const unsigned short *)(tile + 3328 + lane / 4 * 2 + 16));
	} else {
		above = *(const uint4 *)(heads + lane / 4 * 16);
		below = *(const uint4 *)(heads + (lane / 4 + 8) * 16);
	}
	if (FORMAT == TILE_Q5_K)
		high = load_run(tile, 2048, lane);
	unsigned signs = 0x80808080u; // in a register: one instruction takes one constant
	asm("" : "+r"(signs));
#pragma unroll
	for (unsigned block = 0; block < BLOCKS_OF_TILE; block++) {
		unsigned a[4];
		if (FORMAT == TILE_Q8_0) {
			run = load_run(tile, block * TILE_RUN_BYTES, lane);
			a[0] = run.x;
			a[1] = run.y;
			a[2] = run.z;
			a[3] = run.w;
		} else {
			if (block % 2 == 0)
				run = load_run(tile, block / 2 * TILE_RUN_BYTES, lane);
			unsigned one = block % 2 ? run.z : run.x, two = block % 2 ? run.w : run.y;
			if (FORMAT == TILE_Q4_0) {
				a[0] = (one << 4 ^ signs) & 0xf0f0f0f0u;
				a[1] = (one ^ signs) & 0xf0f0f0f0u;
				a[2] = (two << 4 ^ signs) & 0xf0f0f0f0u;
				a[3] = (two ^ signs) & 0xf0f0f0f0u;
			} else if (FORMAT == TILE_Q6_K) {
				if (block % 4 == 0)
					high = load_run(tile, 2048 + block / 4 * TILE_RUN_BYTES, lane);
				unsigned bits = word_of(high, block % 4);
				a[0] = ((one << 2 & 0x3c3c3c3cu) | (bits << 6 & 0xc0c0c0c0u)) ^ signs;
				a[1] = ((one >> 2 & 0x3c3c3c3cu) | (bits << 4 & 0xc0c0c0c0u)) ^ signs;
				a[2] = ((two << 2 & 0x3c3c3c3cu) | (bits << 2 & 0xc0c0c0c0u)) ^ signs;
				a[3] = ((two >> 2 & 0x3c3c3c3cu) | (bits & 0xc0c0c0c0u)) ^ signs;
			} else {
				a[0] = one & 0x0f0f0f0fu;
				a[1] = one >> 4 & 0x0f0f0f0fu;
				a[2] = two & 0x0f0f0f0fu;
				a[3] = two >> 4 & 0x0f0f0f0fu;
#pragma unroll
				for (int i = 0; FORMAT == TILE_Q5_K && i < 4; i++)
					a[i] |= shifted(word_of(high, block / 2), (int)(block % 2) * 4 + i - 4) & 0x10101010u;
			}
		}
		float upper = 0, lower = 0, upper_min = 0, lower_min = 0;
		if (FORMAT == TILE_Q8_0) {
			upper = block ? high_f16(above.x) : low_f16(above.x);
			lower = block ? high_f16(below.x) : low_f16(below.x);
		} else if (FORMAT == TILE_Q4_0) {
			unsigned two = block / 2 ? above.y : above.x, other = block / 2 ? above.w : above.z;
			upper = block % 2 ? high_f16(two) : low_f16(two);
			lower = block % 2 ? high_f16(other) : low_f16(other);
		} else if (FORMAT != TILE_Q6_K) {
			unsigned scales = head_scales(above, block), others = head_scales(below, block);
			upper = low_f16(above.x) * (float)(scales & 63);
			lower = low_f16(below.x) * (float)(others & 63);
			upper_min = high_f16(above.x) * (float)(scales >> 8);
			lower_min = high_f16(below.x) * (float)(others >> 8);
		}
#pragma unroll
		for (int nt = 0; nt < NT; nt++) {
			int part[4];
			uint2 v = *(const uint2 *)(b.bytes[nt] + (block0 + block) * 32);
			float scale = b.scales[nt][block0 + block];
			if (FORMAT == TILE_Q6_K) { // scales are of 16
				unsigned shift = block % 2 * 16;
				unsigned two = word_of(above, block / 2) >> shift, other = word_of(below, block / 2) >> shift;
				multiply_bytes_16(part, a[0], a[1], v.x);
				add_block(sum + 2 * nt, part, upper_d * (float)(signed char)two * scale,
					  lower_d * (float)(signed char)other * scale);
				multiply_bytes_16(part, a[2], a[3], v.y);
				add_block(sum + 2 * nt, part, upper_d * (float)(signed char)(two >> 8) * scale,
					  lower_d * (float)(signed char)(other >> 8) * scale);
				continue;
			}
			multiply_bytes<FORMAT == TILE_Q8_0 || FORMAT == TILE_Q4_0>(part, a, v);
			add_block(sum + 2 * nt, part, upper * scale, lower * scale);
			if (FORMAT == TILE_Q4_K || FORMAT == TILE_Q5_K) {
				float total = b.totals[nt][block0 + block];
				sum[2 * nt] = FUSED(-upper_min, total, sum[2 * nt]);
				sum[2 * nt + 1] = FUSED(-lower_min, total, sum[2 * nt + 1]);
			}
		}
	}
}

INLINE bool takes_integers(unsigned format) { return format >= TILE_Q8_0; }

template <int FORMAT, int NT>
INLINE void multiply(float (&sum)[4], const unsigned char *tile, unsigned index, unsigned lane, activations b,
		     const integers &i)
{
	if (FORMAT >= TILE_Q8_0) {
		multiply_integers<FORMAT, NT>(sum, tile, lane, i, index * (tile_columns(FORMAT) / 32));
	} else {
		b.halves += index * 64;
		b.pairs += index * 64;
		multiply_block<FORMAT, 1>(*(float(*)[1][4])&sum, tile, 0, lane, b);
	}
}

// FORMAT 0: any, as it comes.
template <int FORMAT, int NT>
INLINE void multiply_tile(float (&sum)[4], unsigned format, const unsigned char *tile, unsigned index, unsigned lane,
			  const activations &b, const integers &i)
{
	if (FORMAT)
		return multiply<FORMAT, NT>(sum, tile, index, lane, b, i);
	switch (format) {
	case TILE_F32:
		return multiply<TILE_F32, NT>(sum, tile, index, lane, b, i);
	case TILE_F16:
		return multiply<TILE_F16, NT>(sum, tile, index, lane, b, i);
	case TILE_BF16:
		return multiply<TILE_BF16, NT>(sum, tile, index, lane, b, i);
	case TILE_Q8_0:
		return multiply<TILE_Q8_0, NT>(sum, tile, index, lane, b, i);
	case TILE_Q4_0:
		return multiply<TILE_Q4_0, NT>(sum, tile, index, lane, b, i);
	case TILE_Q4_K:
		return multiply<TILE_Q4_K, NT>(sum, tile, index, lane, b, i);
	case TILE_Q5_K:
		return multiply<TILE_Q5_K, NT>(sum, tile, index, lane, b, i);
	case TILE_Q6_K:
		return multiply<TILE_Q6_K, NT>(sum, tile, index, lane, b, i);
	}
}

// Add the sums of a warp's tiles to those of its unit: (p.rows, 16).
template <class P> INLINE void put_sums(const P &p, float *out, const float (&sum)[4], unsigned format, unsigned lane)
{
	unsigned row = lane / 4, j = lane % 4;
	if (takes_integers(format)) {
#pragma unroll
		for (unsigned nt = 0; nt < 2; nt++) {
			if (nt * 4 + j >= p.rows)
				continue;
			out[(nt * 4 + j) * TILE_ROWS + row] = sum[nt * 2];
			out[(nt * 4 + j) * TILE_ROWS + row + 8] = sum[nt * 2 + 1];
		}
		return;
	}
#pragma unroll
	for (unsigned i = 0; i < 2; i++) {
		if (j * 2 + i >= p.rows)
			continue;
		out[(j * 2 + i) * TILE_ROWS + row] = sum[i];
		out[(j * 2 + i) * TILE_ROWS + row + 8] = sum[2 + i];
	}
}

// The factor of a format's sums, apart from the row's.
INLINE float unit_of(unsigned format) { return format == TILE_Q4_0 ? 0.0625f : format == TILE_Q6_K ? 0.25f : 1; }
