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
#include "stage_gemv.cuh"

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

// One row by the whole block. Integers need no scale of the row, so they are stored at once; other values are kept in
// registers until the scale is known. factors: those of integers, then those of f16 and bf16.
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
				store_integers(p, to, 0, k, v[i], 1);
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

// Several rows: two to eight warps for each. What is rounded with a scale of the row is loaded again once that is known.
template <bool INTEGERS, bool OTHERS>
INLINE void take_rows(const gemv_params &p, const layout_of_rows &to, float *factors, float *scratch)
{
	enum { EACH = 4 }; // loads in flight
	unsigned lane = THREAD_X % 32, warp = THREAD_X / 32, share = p.rows > 4 ? 2 : p.rows > 2 ? 4 : 8;
	unsigned row = warp / share, each = (p.padded / 128 + share - 1) / share * 128;
	unsigned begin = warp % share * each, end = begin + each < p.padded ? begin + each : p.padded;
	float squares = 0, most = 0;
	for (unsigned k = begin + lane * 4; row < p.rows && k < end + lane * 4; k += EACH * 128) {
		float4 v[EACH];
#pragma unroll
		for (unsigned i = 0; i < EACH; i++)
			v[i] = load_row(p, row, k + i * 128);
#pragma unroll
		for (unsigned i = 0; i < EACH; i++) {
			if (k + i * 128 - lane * 4 >= end)
				break;
			squares += squares_of(v[i]);
			v[i] = k + i * 128 < p.columns ? weighted(v[i], p.norm, k + i * 128) : v[i];
			if (INTEGERS && p.integers)
				store_integers(p, to, row, k + i * 128, v[i], 1);
			if (OTHERS)
				most = larger(most, most_of(v[i]));
		}
	}
	squares = warp_sum(squares);
	most = OTHERS ? warp_most(most) : 0;
	if (!lane) {
		scratch[warp] = squares;
		scratch[GEMV_WARPS + warp] = most;
	}
	block_barrier();
	if (row >= p.rows)
		return;
	squares = most = 0;
	for (unsigned i = 0; i < share; i++) {
		squares += scratch[row * share + i];
		most = larger(most, scratch[GEMV_WARPS + row * share + i]);
	}
	float scale = scale_for(most);
	if (!lane && begin == 0) {
		factors[row] = norm_factor(p, squares);
		factors[GEMV_ROWS + row] = factors[row] / scale;
	}
	for (unsigned k = begin + lane * 4; OTHERS && k < end; k += EACH * 128) {
		float4 v[EACH];
#pragma unroll
		for (unsigned i = 0; i < EACH; i++)
			v[i] = load_row(p, row, k + i * 128);
#pragma unroll
		for (unsigned i = 0; i < EACH; i++) {
			unsigned at = k + i * 128;
			if (at >= end)
				break;
			float4 four = at < p.columns ? weighted(v[i], p.norm, at) : v[i];
			store_two(p, to, row, at, four.x * scale, four.y * scale);
			store_two(p, to, row, at + 2, four.z * scale, four.w * scale);
		}
	}
}

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
	} else {
		first = m.bias ? first + m.bias[at] : first;
		*y = p.mode == GEMV_ADD ? load_fresh_1(y) + first : first;
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
	to.blocks = p.padded / 32 + 1; // one more, so that the scales of rows lie in different banks
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
		take_rows<!others_only, !integers_only>(p, to, factors, scratch);
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
