// Layers with a state in the place of keys and values: the convolution over the last rows of each channel, and the heads
// of a gated delta rule (engine/model/architecture.h has the formulas).
//
// convolve: a thread takes a channel of a run, 16 rows at a time; blocks of one channel share the rows of a long run.
// Only the first of them reads and writes the run's state, so it may stay in its slot. Bound: reading the rows.
//
// delta: columns of a head's state do not depend on each other, and stay in registers for all rows of a run, which go
// one after another. Eight lanes share two columns of up to 128 rows (16 lanes 256, 32 lanes 512), 16 rows each, so that
// a block has 32 columns: of a head of 128 values there are four blocks. Rows come into shared memory eight at a time.
// A warp of its own copies them, two times eight before they are needed, and works out what the next ones' queries and
// keys are divided by, while the others compute. S' k and S' q are taken of the same old state: S' q of the new one is
// g S' q + k q times the change. So a row has one chain of exchanges between lanes, not two, and the numbers of the next
// row are loaded in the meantime.
// Bound: of one row, reading and writing the state; of many, that chain, one row after another.
//
// delta_out: each head's norm and gate, which take all of its columns. A warp for a head of a row.
#include "stage.cuh"

// As in engine/cuda/stage/stage_delta.c.
enum { DELTA_THREADS = DELTA_BLOCK + 32, DELTA_PLACES = 3 }; // places: of so many rows as are copied at once

INLINE const state_run &run_of(const state_run *runs) { return runs[BLOCK_Y]; }

template <int KERNEL> INLINE void convolve(const convolve_params &p)
{
	let_next_begin();
	const unsigned channel = BLOCK_X * CONVOLVE_BLOCK + THREAD_X, missing = KERNEL - p.kernel;
	if (channel >= p.channels)
		return;
	const state_run run = run_of(p.runs);
	float weights[KERNEL];
#pragma unroll
	for (unsigned i = 0; i < KERNEL; i++) // the oldest first
		weights[i] = i < missing ? 0 : p.weights[(u64)channel * p.kernel + i - missing];
	wait_for_previous();
	const float *in = p.in + (u64)run.row * p.in_stride + channel;
	const float *state = run.from ? p.states + (u64)(run.from - 1) * p.state_size + channel : 0;
	// The input of a row of the run; rows before its first are in the state.
	auto input = [&](int row) -> float {
		const int kept = row + (int)p.kernel - 1;
		if (row < 0)
			return state && kept >= 0 ? load_fresh_1(state + (u64)kept * p.channels) : 0;
		const float *from = in + (u64)row * p.in_stride;
		return p.is_short ? load_fresh_1(from) * load_fresh_1(from + 2 * p.channels) : load_fresh_1(from);
	};
	for (unsigned first = BLOCK_Z * CONVOLVE_ROWS; first < run.rows; first += BLOCKS_Z * CONVOLVE_ROWS) {
		const unsigned end = first + CONVOLVE_ROWS < run.rows ? first + CONVOLVE_ROWS : run.rows;
		float last[KERNEL];
#pragma unroll
		for (int i = 1; i < KERNEL; i++)
			last[i] = input((int)first - KERNEL + i);
#pragma unroll 4
		for (unsigned row = first; row < end; row++) {
			float sum = 0;
#pragma unroll
			for (int i = 0; i + 1 < KERNEL; i++)
				last[i] = last[i + 1];
			last[KERNEL - 1] = input((int)row);
#pragma unroll
			for (int i = 0; i < KERNEL; i++)
				sum = FUSED(weights[i], last[i], sum);
			const u64 at = (u64)(run.row + row) * p.channels + channel;
			p.out[at] = p.is_short ? load_fresh_1(in + (u64)row * p.in_stride + p.channels) * sum : silu(sum);
		}
	}
	if (BLOCK_Z)
		return;
	float kept[KERNEL]; // read before any is written
#pragma unroll
	for (int i = 1; i < KERNEL; i++)
		kept[i] = input((int)run.rows - KERNEL + i);
	float *to = p.states + (u64)(run.to - 1) * p.state_size + channel;
#pragma unroll
	for (unsigned i = 1; i < KERNEL; i++)
		if (i > missing)
			to[(u64)(i - 1 - missing) * p.channels] = kept[i];
}

extern "C" __global__ void __launch_bounds__(CONVOLVE_BLOCK) convolve_4(const CONSTANT convolve_params p) { convolve<4>(p); }
extern "C" __global__ void __launch_bounds__(CONVOLVE_BLOCK) convolve_16(const CONSTANT convolve_params p) { convolve<16>(p); }

// The factors of a row in shared memory, where q and k are as they came.
struct delta_factors {
	float fades, beta;
	float query, key, both; // what S' q, S' k and k q are multiplied by; both: with k q
};

INLINE float log_of(float x)
{
	float out;
	asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
	return out * 0.6931471805599453f;
}
INLINE float softplus(float x) { return x > 20 ? x : log_of(1 + exp_of(x)); }
INLINE float inverse_root_of(float x) // to 2 of the last bits
{
	float out;
	asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
	return out;
}
INLINE float2 load_fresh_2(const float *from)
{
	float2 out;
	asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(out.x), "=f"(out.y) : "l"(from));
	return out;
}
INLINE float dot(float4 a, float4 b, float sum)
{
	return FUSED(a.x, b.x, FUSED(a.y, b.y, FUSED(a.z, b.z, FUSED(a.w, b.w, sum))));
}
INLINE float2 add_product(float2 a, float by, float2 sum)
{
	sum.x = FUSED(a.x, by, sum.x);
	sum.y = FUSED(a.y, by, sum.y);
	return sum;
}
INLINE float2 faded(float2 state, float fades, float2 by, float key)
{
	state.x = FUSED(by.x, key, fades * state.x);
	state.y = FUSED(by.y, key, fades * state.y);
	return state;
}

// A row of the run in shared memory, and what a thread takes of it.
template <int LANES> struct delta_sizes {
	enum { PADDED = LANES * DELTA_HELD, COLUMNS = DELTA_BLOCK / LANES * DELTA_COLUMNS, ROW = 2 * PADDED + COLUMNS };
};
struct delta_row {
	float4 q[DELTA_HELD / 4], k[DELTA_HELD / 4];
	float2 value;
	delta_factors factors;
};

template <int LANES> INLINE void take(delta_row *to, const float *row, const delta_factors *factors, unsigned mine)
{
	typedef delta_sizes<LANES> sizes;
#pragma unroll
	for (unsigned i = 0; i < DELTA_HELD / 4; i++) {
		to->q[i] = *(const float4 *)(row + (i * LANES + THREAD_X % LANES) * 4);
		to->k[i] = *(const float4 *)(row + sizes::PADDED + (i * LANES + THREAD_X % LANES) * 4);
	}
	to->value = *(const float2 *)(row + 2 * sizes::PADDED + mine);
	to->factors = *factors;
}

// The last warp: copies rows, eight at a time, and works out what belongs to each. Four lanes have a row.
template <int LANES> INLINE void feed(const delta_params &p, const state_run &run, float *rows, delta_factors *factors)
{
	typedef delta_sizes<LANES> sizes;
	const unsigned lane = THREAD_X % 32, mine = lane / 4, part = lane % 4;
	const unsigned head = BLOCK_X / p.column_blocks, column = BLOCK_X % p.column_blocks * sizes::COLUMNS;
	const unsigned each = p.heads / p.key_heads, key_head = p.grouped ? head / each : head % p.key_heads;
	const unsigned keys = p.key_heads * p.key_size, pieces = (run.rows + DELTA_AT_ONCE - 1) / DELTA_AT_ONCE;
	const unsigned beta_at = p.beta_at + head + (p.grouped ? head / each * each : 0), alpha_at = p.grouped ? each : p.heads;
	const float decay = p.decay[head], bias = p.bias[head];
	auto fetch = [&](unsigned piece) {
		const unsigned row = piece * DELTA_AT_ONCE + mine;
		const float *from = p.mixed + (u64)(run.row + row) * p.channels;
		const unsigned to = shared_place(rows + (piece % DELTA_PLACES * DELTA_AT_ONCE + mine) * sizes::ROW);
		for (unsigned i = part * 4; i < p.key_size && row < run.rows; i += 16) {
			copy_16(to + i * 4, from + key_head * p.key_size + i);
			copy_16(to + (sizes::PADDED + i) * 4, from + keys + key_head * p.key_size + i);
		}
		for (unsigned i = part * 4; i < sizes::COLUMNS && column + i < p.value_size && row < run.rows; i += 16)
			copy_16(to + (2 * sizes::PADDED + i) * 4, from + 2 * keys + head * p.value_size + column + i);
		copies_end();
	};
	fetch(0);
	fetch(1);
	for (unsigned piece = 0; piece <= pieces; piece++) {
		const unsigned row = piece * DELTA_AT_ONCE + mine, at = piece % DELTA_PLACES * DELTA_AT_ONCE + mine;
		const float *own = rows + at * sizes::ROW, *score = p.in + (u64)(run.row + row) * p.in_stride + beta_at;
		float beta = 0, alpha = 0, qq = 0, kk = 0, kq = 0;
		if (row < run.rows) {
			beta = load_fresh_1(score);
			alpha = load_fresh_1(score + alpha_at);
		}
		copies_wait<1>();
		warp_barrier();
		for (unsigned i = part * 4; i < p.key_size && row < run.rows; i += 16) {
			const float4 q = *(const float4 *)(own + i), k = *(const float4 *)(own + sizes::PADDED + i);
			qq = dot(q, q, qq);
			kk = dot(k, k, kk);
			kq = dot(k, q, kq);
		}
		warp_barrier();
#pragma unroll
		for (unsigned half = 1; half < 4; half *= 2) {
			qq += from_lane(qq, half);
			kk += from_lane(kk, half);
			kq += from_lane(kq, half);
		}
		if (!part && row < run.rows) {
			delta_factors *to = factors + at;
			const float by_k = inverse_root_of(kk + 1e-6f);
			const float by_q = inverse_root_of((qq + 1e-6f) * (float)p.key_size);
			to->fades = exp_of(decay * softplus(alpha + bias));
			to->beta = sigmoid(beta);
			to->key = by_k;
			to->query = by_q;
			to->both = kq * by_k * by_q;
		}
		block_barrier();
		fetch(piece + 2);
	}
}

template <int LANES> INLINE void delta(const delta_params &p)
{
	typedef delta_sizes<LANES> sizes;
	let_next_begin();
	const unsigned sub = THREAD_X % LANES, mine = THREAD_X / LANES * DELTA_COLUMNS; // the first column of this thread
	const unsigned head = BLOCK_X / p.column_blocks, column = BLOCK_X % p.column_blocks * sizes::COLUMNS + mine;
	const bool there = column < p.value_size; // which is a multiple of 4
	const state_run run = run_of(p.runs);
	float *rows = (float *)shared; // (DELTA_PLACES, DELTA_AT_ONCE, ROW): q, k, v of this block's columns
	delta_factors *factors = (delta_factors *)(rows + DELTA_PLACES * DELTA_AT_ONCE * sizes::ROW);
	if (p.key_size < sizes::PADDED) {
		for (unsigned i = THREAD_X; i < DELTA_PLACES * DELTA_AT_ONCE * 2 * sizes::PADDED; i += DELTA_THREADS)
			if (i % sizes::PADDED >= p.key_size)
				rows[i / (2 * sizes::PADDED) * sizes::ROW + i % (2 * sizes::PADDED)] = 0;
		block_barrier();
	}
	if (THREAD_X >= DELTA_BLOCK) {
		wait_for_previous();
		feed<LANES>(p, run, rows, factors);
		return;
	}
	const u64 matrix = p.state_at + (u64)head * p.key_size * p.value_size + column;
	const float *from = run.from ? p.states + (u64)(run.from - 1) * p.state_size + matrix : 0;
	// On its way from memory while the kernel before ends: a line of each row.
	for (unsigned i = THREAD_X; from && i < p.key_size; i += DELTA_BLOCK)
		asm volatile("prefetch.global.L2 [%0];" ::"l"(from - mine + i * p.value_size));
	wait_for_previous();
	float2 state[DELTA_HELD];
#pragma unroll
	for (unsigned i = 0; i < DELTA_HELD; i++) {
		const unsigned row = (i / 4 * LANES + sub) * 4 + i % 4;
		state[i].x = state[i].y = 0;
		if (from && there && row < p.key_size)
			state[i] = load_fresh_2(from + row * p.value_size);
	}
	float *out = p.out + ((u64)run.row * p.heads + head) * p.value_size + column;
	block_barrier();
	for (unsigned first = 0, place = 0; first < run.rows; first += DELTA_AT_ONCE, place = (place + 1) % DELTA_PLACES) {
		const unsigned count = run.rows - first < DELTA_AT_ONCE ? run.rows - first : DELTA_AT_ONCE;
		const float *block = rows + place * DELTA_AT_ONCE * sizes::ROW;
		delta_row row, next;
		take<LANES>(&row, block, factors + place * DELTA_AT_ONCE, mine);
#pragma unroll 2
		for (unsigned r = 0; r < count; r++) {
			const unsigned then = r + 1 < count ? r + 1 : r;
			take<LANES>(&next, block + then * sizes::ROW, factors + place * DELTA_AT_ONCE + then, mine);
			const delta_factors f = row.factors;
			float2 known, sum, known_too, sum_too; // two chains of each
			known.x = known.y = known_too.x = known_too.y = 0;
			sum.x = sum.y = sum_too.x = sum_too.y = 0;
#pragma unroll
			for (unsigned i = 0; i < DELTA_HELD / 4; i++) {
				const float4 k = row.k[i], q = row.q[i];
				known = add_product(state[i * 4], k.x, known);
				known_too = add_product(state[i * 4 + 1], k.y, known_too);
				known = add_product(state[i * 4 + 2], k.z, known);
				known_too = add_product(state[i * 4 + 3], k.w, known_too);
				sum = add_product(state[i * 4], q.x, sum);
				sum_too = add_product(state[i * 4 + 1], q.y, sum_too);
				sum = add_product(state[i * 4 + 2], q.z, sum);
				sum_too = add_product(state[i * 4 + 3], q.w, sum_too);
			}
			known.x += known_too.x;
			known.y += known_too.y;
			sum.x += sum_too.x;
			sum.y += sum_too.y;
#pragma unroll
			for (unsigned half = LANES / 2; half; half /= 2) {
				known.x += from_lane(known.x, half);
				known.y += from_lane(known.y, half);
				sum.x += from_lane(sum.x, half);
				sum.y += from_lane(sum.y, half);
			}
			float2 change, by;
			change.x = (row.value.x - f.fades * f.key * known.x) * f.beta;
			change.y = (row.value.y - f.fades * f.key * known.y) * f.beta;
			by.x = f.key * change.x;
			by.y = f.key * change.y;
#pragma unroll
			for (unsigned i = 0; i < DELTA_HELD / 4; i++) {
				state[i * 4] = faded(state[i * 4], f.fades, by, row.k[i].x);
				state[i * 4 + 1] = faded(state[i * 4 + 1], f.fades, by, row.k[i].y);
				state[i * 4 + 2] = faded(state[i * 4 + 2], f.fades, by, row.k[i].z);
				state[i * 4 + 3] = faded(state[i * 4 + 3], f.fades, by, row.k[i].w);
			}
			if (!sub && there) {
				float2 given;
				given.x = FUSED(f.fades * f.query, sum.x, change.x * f.both);
				given.y = FUSED(f.fades * f.query, sum.y, change.y * f.both);
				*(float2 *)(out + (u64)(first + r) * p.heads * p.value_size) = given;
			}
			row = next;
		}
		block_barrier(); // the place may be written again, and the next rows are there
	}
	float *to = p.states + (u64)(run.to - 1) * p.state_size + matrix;
#pragma unroll
	for (unsigned i = 0; i < DELTA_HELD; i++) {
		const unsigned row = (i / 4 * LANES + sub) * 4 + i % 4;
		if (there && row < p.key_size)
			*(float2 *)(to + row * p.value_size) = state[i];
	}
}

extern "C" __global__ void __launch_bounds__(DELTA_THREADS) delta_8(const CONSTANT delta_params p) { delta<8>(p); }
extern "C" __global__ void __launch_bounds__(DELTA_THREADS) delta_16(const CONSTANT delta_params p) { delta<16>(p); }
extern "C" __global__ void __launch_bounds__(DELTA_THREADS) delta_32(const CONSTANT delta_params p) { delta<32>(p); }

// Blocks: (heads by DELTA_OUT_WARPS, rows).
extern "C" __global__ void __launch_bounds__(DELTA_OUT_WARPS * 32) delta_out(const CONSTANT delta_params p)
{
	let_next_begin();
	const unsigned head = BLOCK_X * DELTA_OUT_WARPS + THREAD_X / 32, lane = THREAD_X % 32;
	float *out = p.out + ((u64)BLOCK_Y * p.heads + head) * p.value_size;
	const float *gates = p.in + (u64)BLOCK_Y * p.in_stride + p.gate_at + head * p.value_size;
	float squares = 0;
	if (head >= p.heads)
		return;
	wait_for_previous();
	for (unsigned i = lane; i < p.value_size; i += 32) {
		const float x = load_fresh_1(out + i);
		squares = FUSED(x, x, squares);
	}
	const float by = quotient(1, root_of(warp_sum(squares) / (float)p.value_size + p.epsilon));
	for (unsigned i = lane; i < p.value_size; i += 32)
		out[i] = load_fresh_1(out + i) * by * p.norm[i] * silu(load_fresh_1(gates + i));
}
