// A matrix by one to eight rows of activations: what decoding is made of, and bound by reading weights.
//
// A block stays on its multiprocessor and goes over units of 16 rows. Each warp has a ring in shared memory into which
// it copies tiles long before it needs them: weights depend on no kernel before, so all rings are full when the
// activations come, and stay full while results are added up. The warps of a unit share its columns.
//
// Activations are kept in shared memory as the weights take them. For formats with scales they are integers of 16 bits
// with a scale for each 32, and each makes two columns of a product of bytes: its upper half and its lower. So weights
// need next to no unpacking, and the integers' sums are exact. For F16 activations are f16, scaled by row so that
// nothing overflows; for F32 and BF16 two bf16.
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

struct cursor { // over the tiles of a warp
	const unsigned char *next; // the tile that comes
	unsigned unit, part, left, bytes, format;
};

INLINE const stage_matrix &matrix_of(const gemv_params &p, unsigned *unit, unsigned part)
{
	if (p.mode == GEMV_GATED)
		return part ? p.matrices[1] : p.matrices[0];
	if (*unit < p.matrices[0].row_tiles)
		return p.matrices[0];
	*unit -= p.matrices[0].row_tiles;
	if (*unit < p.matrices[1].row_tiles)
		return p.matrices[1];
	*unit -= p.matrices[1].row_tiles;
	return p.matrices[2];
}

template <int FORMAT> INLINE void cursor_set(cursor *c, const gemv_params &p, unsigned member)
{
	unsigned unit = c->unit;
	if (unit >= p.units)
		return;
	const stage_matrix &m = matrix_of(p, &unit, c->part);
	c->format = FORMAT ? FORMAT : m.format;
	c->bytes = tile_bytes(c->format);
	c->left = m.column_tiles > member ? (m.column_tiles - member + p.warps_of_unit - 1) / p.warps_of_unit : 0;
	c->next = m.tiles + ((u64)unit * m.column_tiles + member) * c->bytes;
}

// Copy the next tile of this warp to `to`, if there is one.
template <int FORMAT>
INLINE void fetch(cursor *c, const gemv_params &p, unsigned member, unsigned unit_step, unsigned lane, unsigned to)
{
	while (!c->left && c->unit < p.units) {
		bool second = p.mode == GEMV_GATED && !c->part;
		c->part = second;
		c->unit += second ? 0 : unit_step;
		cursor_set<FORMAT>(c, p, member);
	}
	if (c->unit < p.units) {
		const unsigned bytes = FORMAT ? tile_bytes(FORMAT) : c->bytes;
		const unsigned char *from = c->next + lane * 16;
		to += lane * 16;
#pragma unroll
		for (unsigned at = 0; at < 3360; at += 512)
			if (at + 512 <= bytes)
				copy_16(to + at, from + at);
			else if (at + lane * 16 < bytes)
				copy_16(to + at, from + at);
		c->next += p.warps_of_unit * bytes;
		c->left--;
	}
	copies_end();
}

// ---- activations ----

struct layout_of_rows { // in shared memory
	unsigned char *integers, *halves, *pairs;
	float *scales, *totals;
	unsigned integer_bytes, half_bytes, pair_bytes, blocks;
};

INLINE void store_two(const gemv_params &p, const layout_of_rows &to, unsigned row, unsigned k, float a, float b)
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

INLINE void store_integers(const gemv_params &p, const layout_of_rows &to, unsigned row, unsigned k, const float4 &v)
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
		to.scales[row * to.blocks + k / 32] = four.scale;
		to.totals[row * to.blocks + k / 32] = (float)four.total * four.scale;
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
INLINE float norm_factor(const gemv_params &p, float squares)
{
	return p.norm ? quotient(1, root_of(squares / (float)p.columns + p.epsilon)) : 1;
}
INLINE float4 load_row(const gemv_params &p, unsigned row, unsigned k)
{
	float4 v;
	v.x = v.y = v.z = v.w = 0;
	return k < p.columns ? load_fresh(p.x + (u64)row * p.columns + k) : v;
}

// One row by the whole block. Integers need no scale of the row, so they are stored as they come; else what was read
// is kept in registers until the scale is known. factors: of integers, then of f16 and bf16.
template <bool INTEGERS, bool OTHERS>
INLINE void take_one(const gemv_params &p, const layout_of_rows &to, float *factors, float *scratch)
{
	enum { EACH = 4 };
	float squares = 0, most = 0;
	unsigned warp = THREAD_X / 32;
	for (unsigned first = 0; first < p.padded; first += EACH * GEMV_THREADS * 4) {
		float4 v[EACH];
#pragma unroll
		for (unsigned i = 0; i < EACH; i++)
			v[i] = load_row(p, 0, first + (i * GEMV_THREADS + THREAD_X) * 4);
#pragma unroll
		for (unsigned i = 0; i < EACH; i++) {
			unsigned k = first + (i * GEMV_THREADS + THREAD_X) * 4;
			if (first + i * GEMV_THREADS * 4 >= p.padded)
				break;
			squares += squares_of(v[i]);
			v[i] = k < p.columns ? weighted(v[i], p.norm, k) : v[i];
			if (INTEGERS && p.integers)
				store_integers(p, to, 0, k, v[i]);
			if (OTHERS)
				most = larger(most, most_of(v[i]));
		}
	}
	squares = warp_sum(squares);
	most = OTHERS ? warp_most(most) : 0;
	if (THREAD_X % 32 == 0) {
		scratch[warp] = squares;
		scratch[GEMV_WARPS + warp] = most;
	}
	block_barrier();
	squares = most = 0;
	for (unsigned i = 0; i < GEMV_WARPS; i++) {
		squares += scratch[i];
		most = larger(most, scratch[GEMV_WARPS + i]);
	}
	float scale = scale_for(most);
	if (!THREAD_X) {
		factors[0] = norm_factor(p, squares);
		factors[GEMV_ROWS] = factors[0] / scale;
	}
	for (unsigned k = THREAD_X * 4; OTHERS && k < p.padded; k += GEMV_THREADS * 4) {
		float4 v = load_row(p, 0, k);
		v = k < p.columns ? weighted(v, p.norm, k) : v;
		store_two(p, to, 0, k, v.x * scale, v.y * scale);
		store_two(p, to, 0, k + 2, v.z * scale, v.w * scale);
	}
}

// Several rows: a warp each.
template <bool INTEGERS, bool OTHERS>
INLINE void take_rows(const gemv_params &p, const layout_of_rows &to, float *factors)
{
	unsigned lane = THREAD_X % 32;
	for (unsigned row = THREAD_X / 32; row < p.rows; row += GEMV_WARPS) {
		float squares = 0, most = 0;
#pragma unroll 4
		for (unsigned k = lane * 4; k < p.padded; k += 128) {
			float4 v = load_row(p, row, k);
			squares += squares_of(v);
			v = k < p.columns ? weighted(v, p.norm, k) : v;
			if (INTEGERS && p.integers)
				store_integers(p, to, row, k, v);
			if (OTHERS)
				most = larger(most, most_of(v));
		}
		squares = warp_sum(squares);
		most = OTHERS ? warp_most(most) : 0;
		float scale = scale_for(most);
		if (!lane) {
			factors[row] = norm_factor(p, squares);
			factors[GEMV_ROWS + row] = factors[row] / scale;
		}
#pragma unroll 4
		for (unsigned k = lane * 4; OTHERS && k < p.padded; k += 128) {
			float4 v = load_row(p, row, k);
			v = k < p.columns ? weighted(v, p.norm, k) : v;
			store_two(p, to, row, k, v.x * scale, v.y * scale);
			store_two(p, to, row, k + 2, v.z * scale, v.w * scale);
		}
	}
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

// The sums of a warp's tiles to where those of its unit are added: (rows, 16).
INLINE void put_sums(const gemv_params &p, float *out, const float (&sum)[4], unsigned format, unsigned lane)
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

// What a format's sums are multiplied by, but for its row.
INLINE float unit_of(unsigned format) { return format == TILE_Q4_0 ? 0.0625f : format == TILE_Q6_K ? 0.25f : 1; }

INLINE void put(const gemv_params &p, unsigned unit, unsigned row, unsigned column, float first, float second,
		const float *factors)
{
	const stage_matrix &m = matrix_of(p, &unit, 0);
	unsigned at = unit * TILE_ROWS + row;
	if (at >= m.rows)
		return;
	float *y = p.y + (u64)column * p.y_stride + m.first + at;
	first *= unit_of(m.format) * factors[takes_integers(m.format) ? column : GEMV_ROWS + column];
	if (p.mode == GEMV_GATED) {
		unsigned other = p.matrices[1].format;
		second *= unit_of(other) * factors[takes_integers(other) ? column : GEMV_ROWS + column];
		*y = silu(first) * second;
	} else if (p.mode == GEMV_ADD) {
		*y = load_fresh_1(y) + first;
	} else {
		*y = m.bias ? first + m.bias[at] : first;
	}
}

struct place_of_warp {
	unsigned warp, lane, group, member, unit_step;
};

template <int FORMAT, int SLOTS, int NT>
INLINE void run_units(const gemv_params &p, const place_of_warp &at, cursor now, cursor ahead, unsigned char *ring,
		      float *sums, const float *factors, const activations &b, const integers &ints)
{
	unsigned parts = p.mode == GEMV_GATED ? 2 : 1, unit_floats = p.rows * TILE_ROWS;
	unsigned sums_of_part = GEMV_WARPS * unit_floats, slot = 0, parity = 0, turn = 0;
	unsigned ring_place = shared_place(ring);
	for (; now.unit < p.units; now.unit += at.unit_step, parity ^= 1) {
		for (now.part = 0; now.part < parts; now.part++) {
			float sum[4];
			clear(sum);
			cursor_set<FORMAT>(&now, p, at.member);
			for (unsigned tile = at.member; now.left; now.left--, tile += p.warps_of_unit) {
				copies_wait<SLOTS - 1>();
				warp_barrier();
				multiply_tile<FORMAT, NT>(sum, now.format, ring + slot * p.slot_bytes, tile, at.lane, b, ints);
				warp_barrier();
				fetch<FORMAT>(&ahead, p, at.member, at.unit_step, at.lane, ring_place + slot * p.slot_bytes);
				slot = slot + 1 == SLOTS ? 0 : slot + 1;
			}
			put_sums(p, sums + (parity * parts + now.part) * sums_of_part + at.warp * unit_floats, sum,
				 FORMAT ? FORMAT : now.format, at.lane);
		}
		barrier(1 + at.group, p.warps_of_unit * 32);
		// The sums of the next unit go to the other half, so that one barrier is enough; and another warp adds.
		const float *from = sums + parity * parts * sums_of_part + at.group * p.warps_of_unit * unit_floats;
		if (p.rows == 1 && at.member == turn) {
			float first = 0, second = 0;
			unsigned row = at.lane % 16;
#pragma unroll 4
			for (unsigned other = at.lane / 16; other < p.warps_of_unit; other += 2) {
				first += from[other * TILE_ROWS + row];
				second += parts == 2 ? from[sums_of_part + other * TILE_ROWS + row] : 0;
			}
			first += from_lane(first, 16);
			second += from_lane(second, 16);
			if (at.lane < 16)
				put(p, now.unit, row, 0, first, second, factors);
		}
		for (unsigned i = at.member * 32 + at.lane; p.rows > 1 && i < unit_floats; i += p.warps_of_unit * 32) {
			float first = 0, second = 0;
#pragma unroll 4
			for (unsigned other = 0; other < p.warps_of_unit; other++) {
				first += from[other * unit_floats + i];
				second += parts == 2 ? from[sums_of_part + other * unit_floats + i] : 0;
			}
			put(p, now.unit, i % TILE_ROWS, i / TILE_ROWS, first, second, factors);
		}
		turn = turn + 1 == p.warps_of_unit ? 0 : turn + 1;
	}
}

template <int FORMAT, int SLOTS> INLINE void gemv(const gemv_params &p)
{
	// shared: rings (GEMV_WARPS, SLOTS, slot_bytes), activations, sums (2, parts, GEMV_WARPS, rows, 16), factors
	// (2, GEMV_ROWS), scratch (2, GEMV_WARPS); stage_step.c adds up the same.
	unsigned warp = THREAD_X / 32, lane = THREAD_X % 32, parts = p.mode == GEMV_GATED ? 2 : 1;
	unsigned ring_bytes = SLOTS * p.slot_bytes;
	unsigned char *ring = shared + warp * ring_bytes;
	layout_of_rows to;
	to.blocks = p.padded / 32;
	to.integer_bytes = p.integers ? 2 * p.padded + 64 : 0;
	to.half_bytes = p.halves ? p.padded * 2 + 32 : 0;
	to.pair_bytes = p.pairs ? p.padded * 4 + 32 : 0;
	to.integers = shared + GEMV_WARPS * ring_bytes;
	to.halves = to.integers + p.rows * to.integer_bytes;
	to.pairs = to.halves + p.rows * to.half_bytes;
	to.scales = (float *)(to.pairs + p.rows * to.pair_bytes);
	to.totals = to.scales + p.rows * to.blocks;
	float *sums = to.totals + p.rows * to.blocks;
	unsigned sums_of_part = GEMV_WARPS * p.rows * TILE_ROWS;
	float *factors = sums + 2 * parts * sums_of_part, *scratch = factors + 2 * GEMV_ROWS;
	unsigned group = warp / p.warps_of_unit, member = warp % p.warps_of_unit;
	unsigned unit_step = GEMV_WARPS / p.warps_of_unit * BLOCKS;
	cursor ahead;
	ahead.unit = group * BLOCKS + BLOCK_X;
	ahead.part = ahead.left = 0;
	const cursor now = ahead;
	cursor_set<FORMAT>(&ahead, p, member);
	unsigned ring_place = shared_place(ring);
	let_next_begin();
#pragma unroll
	for (unsigned i = 0; i < SLOTS; i++)
		fetch<FORMAT>(&ahead, p, member, unit_step, lane, ring_place + i * p.slot_bytes);
	for (unsigned k = THREAD_X * 32; p.norm && k < p.columns; k += GEMV_THREADS * 32)
		asm volatile("prefetch.global.L1 [%0];" ::"l"(p.norm + k));
	wait_for_previous();
	const bool integers_only = FORMAT >= TILE_Q8_0, others_only = FORMAT && FORMAT < TILE_Q8_0;
	if (p.rows == 1)
		take_one<!others_only, !integers_only>(p, to, factors, scratch);
	else
		take_rows<!others_only, !integers_only>(p, to, factors);
	block_barrier();
	activations b;
	integers ints;
	unsigned g = lane / 4, j = lane % 4, last = p.rows - 1; // lanes without a row of their own take the last one
	b.halves = to.halves + (g < last ? g : last) * to.half_bytes + j * 8;
	b.pairs = to.pairs + (g < last ? g : last) * to.pair_bytes + j * 8;
	b.plane_bytes = p.padded * 2;
#pragma unroll
	for (unsigned nt = 0; nt < 2; nt++) {
		unsigned row = nt * 4 + g / 2 < last ? nt * 4 + g / 2 : last, mine = nt * 4 + j < last ? nt * 4 + j : last;
		ints.bytes[nt] = to.integers + row * to.integer_bytes + g % 2 * (p.padded + 32) + j * 8;
		ints.scales[nt] = to.scales + mine * to.blocks;
		ints.totals[nt] = to.totals + mine * to.blocks;
	}
	const place_of_warp at = {warp, lane, group, member, unit_step};
	if (p.rows > 4)
		run_units<FORMAT, SLOTS, 2>(p, at, now, ahead, ring, sums, factors, b, ints);
	else
		run_units<FORMAT, SLOTS, 1>(p, at, now, ahead, ring, sums, factors, b, ints);
}

// A ring is about 64 KiB of a block.
#define GEMV(name, format, slots) \
	extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 2) name(const CONSTANT gemv_params p) \
	{ \
		gemv<format, slots>(p); \
	}
GEMV(gemv_mixed, TILE_NONE, 2)
GEMV(gemv_f32, TILE_F32, 2)
GEMV(gemv_f16, TILE_F16, 4)
GEMV(gemv_bf16, TILE_BF16, 4)
GEMV(gemv_q8_0, TILE_Q8_0, 4)
GEMV(gemv_q4_0, TILE_Q4_0, 4)
GEMV(gemv_q4_k, TILE_Q4_K, 2)
GEMV(gemv_q5_k, TILE_Q5_K, 2)
GEMV(gemv_q6_k, TILE_Q6_K, 2)
