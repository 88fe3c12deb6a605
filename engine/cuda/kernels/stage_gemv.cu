// A matrix by one to eight rows of activations: what decoding is made of, and bound by reading weights.
//
// A block stays on its multiprocessor and goes over units of 16 rows. Each warp has a ring in shared memory into which
// it copies tiles long before it needs them: weights depend on no kernel before, so all rings are full when the
// activations come, and stay full while results are added up. The warps of a unit share its columns. Activations are
// kept in shared memory as f16, scaled by row so that nothing overflows, or as two bf16 for weights of that range.
#include "stage.cuh"

struct activations { // operand B: row g of the activations, two columns at 2 j and two at 8 + 2 j of a step
	const unsigned char *row; // of this lane
	unsigned plane_bytes, first; // of planes 1 and 2
	bool there;
	INLINE_METHOD uint2 get(int plane, unsigned step, int) const
	{
		uint2 v;
		v.x = v.y = 0;
		if (there)
			v = *(const uint2 *)(row + (plane ? first + (plane - 1) * plane_bytes : 0) + step * 32);
		return v;
	}
};

struct cursor { // over the tiles of a warp
	const unsigned char *tiles;
	unsigned unit, part, tile, count, bytes, format;
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

INLINE void cursor_set(cursor *c, const gemv_params &p, unsigned first_tile)
{
	unsigned unit = c->unit;
	if (unit >= p.units)
		return;
	const stage_matrix &m = matrix_of(p, &unit, c->part);
	c->format = m.format;
	c->bytes = tile_bytes(m.format);
	c->count = m.column_tiles;
	c->tiles = m.tiles + (u64)unit * m.column_tiles * c->bytes;
	c->tile = first_tile;
}

// Copy the next tile of this warp to `to`, if there is one.
INLINE void fetch(cursor *c, const gemv_params &p, unsigned first_tile, unsigned unit_step, unsigned lane, unsigned to)
{
	while (c->unit < p.units && c->tile >= c->count) {
		if (p.mode == GEMV_GATED && !c->part) {
			c->part = 1;
		} else {
			c->part = 0;
			c->unit += unit_step;
		}
		cursor_set(c, p, first_tile);
	}
	if (c->unit < p.units) {
		const unsigned char *from = c->tiles + (u64)c->tile * c->bytes;
		for (unsigned at = lane * 16; at < c->bytes; at += 512)
			copy_16(to + at, from + at);
		c->tile += p.warps_of_unit;
	}
	copies_end();
}

// Where column k of a row lies, in bytes: the four of a lane beside each other.
INLINE unsigned column_place(unsigned k) { return k / 16 * 32 + k % 8 / 2 * 8 + k % 16 / 8 * 4 + k % 2 * 2; }

INLINE void store_two(unsigned char *row, const gemv_params &p, unsigned k, float a, float b)
{
	unsigned place = column_place(k);
	if (p.halves) {
		*(unsigned *)(row + place) = pack_f16(a, b);
		row += p.padded * 2;
	}
	if (p.pairs) {
		unsigned high = pack_bf16(a, b);
		*(unsigned *)(row + place) = high;
		*(unsigned *)(row + p.padded * 2 + place) = pack_bf16(a - low_bf16(high), b - high_bf16(high));
	}
}
INLINE void store_four(unsigned char *row, const gemv_params &p, unsigned k, const float4 &v, float scale)
{
	store_two(row, p, k, v.x * scale, v.y * scale);
	store_two(row, p, k + 2, v.z * scale, v.w * scale);
}

INLINE void measure(const float4 &v, float4 *scaled, const float *norm, unsigned k, float *squares, float *most)
{
	*squares += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
	*scaled = v;
	if (norm) {
		float4 w = *(const float4 *)(norm + k);
		scaled->x *= w.x;
		scaled->y *= w.y;
		scaled->z *= w.z;
		scaled->w *= w.w;
	}
	*most = larger(*most, larger(larger(absolute(scaled->x), absolute(scaled->y)),
				     larger(absolute(scaled->z), absolute(scaled->w))));
}
INLINE float norm_factor(const gemv_params &p, float squares)
{
	return p.norm ? quotient(1, root_of(squares / (float)p.columns + p.epsilon)) : 1;
}

// One row by the whole block: what it read it keeps in registers until the scale is known.
INLINE void take_one(const gemv_params &p, unsigned char *rows, float *factors, float *scratch)
{
	enum { EACH = GEMV_COLUMNS / GEMV_THREADS / 4 };
	float4 kept[EACH];
	float squares = 0, most = 0;
	unsigned warp = THREAD_X / 32;
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		unsigned k = (i * GEMV_THREADS + THREAD_X) * 4;
		kept[i].x = kept[i].y = kept[i].z = kept[i].w = 0;
		if (k < p.columns)
			kept[i] = load_fresh(p.x + k);
	}
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		unsigned k = (i * GEMV_THREADS + THREAD_X) * 4;
		if (k < p.columns)
			measure(kept[i], &kept[i], p.norm, k, &squares, &most);
	}
	squares = warp_sum(squares);
	most = warp_most(most);
	if (THREAD_X % 32 == 0) {
		scratch[warp] = squares;
		scratch[GEMV_WARPS + warp] = most;
	}
	__syncthreads();
	squares = most = 0;
	for (unsigned i = 0; i < GEMV_WARPS; i++) {
		squares += scratch[i];
		most = larger(most, scratch[GEMV_WARPS + i]);
	}
	float scale = scale_for(most);
	if (!THREAD_X)
		factors[0] = norm_factor(p, squares) / scale;
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		unsigned k = (i * GEMV_THREADS + THREAD_X) * 4;
		if (k < p.padded)
			store_four(rows, p, k, kept[i], scale);
	}
}

// Several rows: a warp each, which reads them twice.
INLINE void take_rows(const gemv_params &p, unsigned char *rows, unsigned row_bytes, float *factors)
{
	unsigned lane = THREAD_X % 32;
	for (unsigned row = THREAD_X / 32; row < p.rows; row += GEMV_WARPS) {
		const float *x = p.x + (u64)row * p.columns;
		float squares = 0, most = 0;
		float4 scaled;
#pragma unroll 8
		for (unsigned k = lane * 4; k < p.columns; k += 128)
			measure(load_fresh(x + k), &scaled, p.norm, k, &squares, &most);
		squares = warp_sum(squares);
		most = warp_most(most);
		float scale = scale_for(most), unused = 0;
		if (!lane)
			factors[row] = norm_factor(p, squares) / scale;
#pragma unroll 8
		for (unsigned k = lane * 4; k < p.padded; k += 128) {
			scaled.x = scaled.y = scaled.z = scaled.w = 0;
			if (k < p.columns)
				measure(load_fresh(x + k), &scaled, p.norm, k, &unused, &unused);
			store_four(rows + row * row_bytes, p, k, scaled, scale);
		}
	}
}

template <int FORMAT>
INLINE void multiply(float (&sum)[1][4], const unsigned char *tile, unsigned lane, activations b)
{
	const unsigned blocks = tile_columns(FORMAT) / 32;
#pragma unroll
	for (unsigned block = 0; block < blocks; block++, b.row += 64)
		multiply_block<FORMAT, 1>(sum, tile, block, lane, b);
}

INLINE void multiply_tile(float (&sum)[1][4], unsigned format, const unsigned char *tile, unsigned index, unsigned lane,
			  activations b)
{
	b.row += index * tile_columns(format) * 2;
	switch (format) {
	case TILE_F32:
		return multiply<TILE_F32>(sum, tile, lane, b);
	case TILE_F16:
		return multiply<TILE_F16>(sum, tile, lane, b);
	case TILE_BF16:
		return multiply<TILE_BF16>(sum, tile, lane, b);
	case TILE_Q8_0:
		return multiply<TILE_Q8_0>(sum, tile, lane, b);
	case TILE_Q4_0:
		return multiply<TILE_Q4_0>(sum, tile, lane, b);
	case TILE_Q4_K:
		return multiply<TILE_Q4_K>(sum, tile, lane, b);
	case TILE_Q5_K:
		return multiply<TILE_Q5_K>(sum, tile, lane, b);
	case TILE_Q6_K:
		return multiply<TILE_Q6_K>(sum, tile, lane, b);
	}
}

INLINE void put(const gemv_params &p, unsigned unit, unsigned row, unsigned column, float first, float second)
{
	const stage_matrix &m = matrix_of(p, &unit, 0);
	unsigned at = unit * TILE_ROWS + row;
	if (at >= m.rows)
		return;
	float *y = p.y + (u64)column * p.y_stride + m.first + at;
	if (p.mode == GEMV_GATED)
		*y = silu(first) * second;
	else if (p.mode == GEMV_ADD)
		*y = load_fresh_1(y) + first;
	else
		*y = m.bias ? first + m.bias[at] : first;
}

template <int SLOTS> INLINE void gemv(const gemv_params &p)
{
	// shared: rings (GEMV_WARPS, SLOTS, slot_bytes), activations (rows, row_bytes), sums (2, parts, GEMV_WARPS, rows,
	// 16), factors (8), scratch (2, GEMV_WARPS)
	unsigned warp = THREAD_X / 32, lane = THREAD_X % 32, parts = p.mode == GEMV_GATED ? 2 : 1;
	unsigned row_bytes = p.padded * 2 * (p.halves + 2 * p.pairs) + 32, ring_bytes = SLOTS * p.slot_bytes;
	unsigned char *ring = shared + warp * ring_bytes, *rows = shared + GEMV_WARPS * ring_bytes;
	float *sums = (float *)(rows + p.rows * row_bytes);
	unsigned sums_of_part = GEMV_WARPS * p.rows * TILE_ROWS;
	float *factors = sums + 2 * parts * sums_of_part, *scratch = factors + GEMV_ROWS;
	unsigned group = warp / p.warps_of_unit, member = warp % p.warps_of_unit;
	unsigned unit_step = GEMV_WARPS / p.warps_of_unit * BLOCKS;
	cursor ahead;
	ahead.unit = group * BLOCKS + BLOCK_X;
	ahead.part = ahead.tile = ahead.count = 0;
	cursor now = ahead;
	cursor_set(&ahead, p, member);
	unsigned to = shared_place(ring);
	let_next_begin();
#pragma unroll
	for (unsigned i = 0; i < SLOTS; i++)
		fetch(&ahead, p, member, unit_step, lane, to + i * p.slot_bytes);
	wait_for_previous();
	if (p.rows == 1)
		take_one(p, rows, factors, scratch);
	else
		take_rows(p, rows, row_bytes, factors);
	__syncthreads();
	activations b;
	b.there = lane / 4 < p.rows;
	b.row = rows + lane / 4 * row_bytes + lane % 4 * 8;
	b.plane_bytes = p.padded * 2;
	b.first = p.halves ? p.padded * 2 : 0;
	unsigned slot = 0, parity = 0;
	for (; now.unit < p.units; now.unit += unit_step, parity ^= 1) {
		for (now.part = 0; now.part < parts; now.part++) {
			float sum[1][4];
			clear(sum[0]);
			cursor_set(&now, p, member);
			for (; now.tile < now.count; now.tile += p.warps_of_unit) {
				copies_wait<SLOTS - 1>();
				warp_barrier();
				multiply_tile(sum, now.format, ring + slot * p.slot_bytes, now.tile, lane, b);
				warp_barrier();
				fetch(&ahead, p, member, unit_step, lane, to + slot * p.slot_bytes);
				slot = slot + 1 == SLOTS ? 0 : slot + 1;
			}
			float *out = sums + (parity * parts + now.part) * sums_of_part + warp * p.rows * TILE_ROWS;
			unsigned column = lane % 4 * 2, row = lane / 4;
			if (column < p.rows) {
				out[column * TILE_ROWS + row] = sum[0][0];
				out[column * TILE_ROWS + row + 8] = sum[0][2];
			}
			if (column + 1 < p.rows) {
				out[(column + 1) * TILE_ROWS + row] = sum[0][1];
				out[(column + 1) * TILE_ROWS + row + 8] = sum[0][3];
			}
		}
		barrier(1 + group, p.warps_of_unit * 32);
		// The sums of the next unit go to the other half, so that one barrier is enough.
		const float *from = sums + parity * parts * sums_of_part + group * p.warps_of_unit * p.rows * TILE_ROWS;
		for (unsigned i = member * 32 + lane; i < p.rows * TILE_ROWS; i += p.warps_of_unit * 32) {
			float first = 0, second = 0;
			for (unsigned other = 0; other < p.warps_of_unit; other++) {
				first += from[other * p.rows * TILE_ROWS + i];
				if (parts == 2)
					second += from[sums_of_part + other * p.rows * TILE_ROWS + i];
			}
			float factor = factors[i / TILE_ROWS];
			put(p, now.unit, i % TILE_ROWS, i / TILE_ROWS, first * factor, second * factor);
		}
	}
}

extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 2) gemv_2(const CONSTANT gemv_params p) { gemv<2>(p); }
extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 2) gemv_4(const CONSTANT gemv_params p) { gemv<4>(p); }
extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 2) gemv_8(const CONSTANT gemv_params p) { gemv<8>(p); }
