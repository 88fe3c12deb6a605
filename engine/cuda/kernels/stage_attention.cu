// Attention of single rows over the pages of their sequences.
//
// A block takes up to four heads of q that share a head of k and v, and a part of the positions. The lanes of a warp
// share positions: each holds eight values of a head. Parts are put together by whichever block of a row comes last, in
// the order of the parts, so the result does not depend on which one that is. Where a row's own k and v are not in
// their page yet, the blocks that reach its position turn them and put them there, all of them the same bits.
#include "stage.cuh"

enum { ATTENTION_BLOCK = ATTENTION_WARPS * 32, AT_ONCE = 4, PART_LEAST = 128, PREFETCHED = 512 };

// A head as a stage has it after the product, into `out` (head_padded): its norm, and turned by its position. By one
// warp.
INLINE void turn(const attention_params &p, float *out, const float *in, const float *norm, unsigned position, float scale)
{
	unsigned lane = THREAD_X % 32;
	float squares = 0;
	for (unsigned i = lane; i < p.head_padded; i += 32) {
		float x = i < p.head_size ? load_fresh_1(in + i) : 0;
		squares += x * x;
		out[i] = x;
	}
	float factor = scale;
	if (norm)
		factor *= quotient(1, root_of(warp_sum(squares) / (float)p.head_size + p.epsilon));
	for (unsigned i = lane; i < p.head_size; i += 32)
		out[i] *= norm ? factor * norm[i] : factor;
	warp_barrier();
	unsigned pairs = p.rope_size / 2;
	const float *table = p.rope + (u64)position * pairs * 2;
	for (unsigned i = lane; i < pairs; i += 32) {
		unsigned a = p.rope_halves ? i : 2 * i, b = p.rope_halves ? i + pairs : 2 * i + 1;
		float cosine = table[2 * i], sine = table[2 * i + 1], x = out[a], y = out[b];
		out[a] = x * cosine - y * sine;
		out[b] = x * sine + y * cosine;
	}
	warp_barrier();
}

// A row's k and v, turned, into their page; by two warps. `scratch`: (2, head_padded).
INLINE void put_page(const attention_params &p, unsigned row, unsigned position, unsigned head, float *scratch)
{
	unsigned warp = THREAD_X / 32, lane = THREAD_X % 32;
	if (warp > 1)
		return;
	const float *in =
		p.qkv + (u64)row * p.qkv_stride + p.heads * p.q_rows + (warp * p.kv_heads + head) * p.head_size;
	unsigned short *to = page_row(p, row, position, warp, head);
	scratch += warp * p.head_padded;
	if (!warp) {
		turn(p, scratch, in, p.k_norm, position, 1);
	} else {
		for (unsigned i = lane; i < p.head_padded; i += 32)
			scratch[i] = i < p.head_size ? load_fresh_1(in + i) : 0;
		warp_barrier();
	}
	for (unsigned i = lane * 2; i < p.head_padded; i += 64)
		*(unsigned *)(to + i) = pack_f16(scratch[i], scratch[i + 1]);
	warp_barrier();
}

// For all rows: write k and v into their pages, and rotate q in place. Blocks: (kv_heads, rows).
extern "C" __global__ void __launch_bounds__(ATTENTION_BLOCK) turn_rows(const CONSTANT attention_params p)
{
	let_next_begin();
	wait_for_previous();
	unsigned head = BLOCK_X, row = BLOCK_Y, position = p.positions[row], group = p.heads / p.kv_heads;
	float *scratch = (float *)shared + THREAD_X / 32 * p.head_padded;
	put_page(p, row, position, head, (float *)shared);
	for (unsigned i = THREAD_X / 32; i < group; i += ATTENTION_WARPS) {
		float *q = p.qkv + (u64)row * p.qkv_stride + (head * group + i) * p.q_rows;
		turn(p, scratch, q, p.q_norm, position, p.scale);
		for (unsigned k = THREAD_X % 32; k < p.head_size; k += 32)
			q[k] = scratch[k];
		warp_barrier();
	}
}

struct eight {
	float v[8];
};
INLINE eight eight_of(const uint4 &four)
{
	eight out = {{low_f16(four.x), high_f16(four.x), low_f16(four.y), high_f16(four.y), low_f16(four.z),
		      high_f16(four.z), low_f16(four.w), high_f16(four.w)}};
	return out;
}

// The score of a head without a value joins the softmax: `best` of its scores, `all` of their weights, `value` of values.
INLINE void add_sink(const attention_params &p, unsigned head, float *best, float *all, float *value)
{
	float sink = p.sinks[head] * 1.4426950408889634f, top = larger(*best, sink);
	*value *= exp2_of(*best - top);
	*all = FUSED(*all, exp2_of(*best - top), exp2_of(sink - top));
	*best = top;
}

template <int CHUNKS> INLINE void attend(const attention_params &p)
{
	// shared: q (ATTENTION_HEADS, head_padded), then warps' results (ATTENTION_WARPS, ATTENTION_HEADS, head_padded + 2)
	let_next_begin();
	unsigned row = p.singles ? p.singles[BLOCK_Y] : BLOCK_Y, part = BLOCK_X % p.splits, block = BLOCK_X / p.splits;
	unsigned head = block / p.head_blocks, group = p.heads / p.kv_heads;
	unsigned head0 = block % p.head_blocks * ATTENTION_HEADS;
	unsigned heads = group - head0 < ATTENTION_HEADS ? group - head0 : ATTENTION_HEADS;
	unsigned position = p.positions[row], length = p.ends ? p.ends[row] : position + 1;
	unsigned seen = length < p.window ? length : p.window;
	unsigned size = (seen + p.splits - 1) / p.splits;
	size = size < PART_LEAST ? PART_LEAST : (size + STAGE_KV_PAGE - 1) / STAGE_KV_PAGE * STAGE_KV_PAGE;
	unsigned parts = (seen + size - 1) / size, begin = length - seen + part * size;
	unsigned end = begin + size < length ? begin + size : length;
	if (part >= parts)
		return;
	// The step's input is there before the first kernel, and the table of positions never changes.
	for (unsigned i = THREAD_X * 16; i < p.rope_size; i += ATTENTION_BLOCK * 16)
		asm volatile("prefetch.global.L1 [%0];" ::"l"(p.rope + (u64)position * p.rope_size + i));
	// Keys and values of other steps are there, too: on their way from memory while the kernel before ends.
	for (unsigned at = begin + THREAD_X / 4; at < end && at < begin + PREFETCHED && p.head_padded <= 256; at += ATTENTION_BLOCK / 4) {
		const unsigned char *from = (const unsigned char *)page_row(p, row, at, THREAD_X / 2 % 2, head);
		if (THREAD_X % 2 * 128 < p.head_padded * 2)
			asm volatile("prefetch.global.L2 [%0];" ::"l"(from + THREAD_X % 2 * 128));
	}
	wait_for_previous();
	unsigned warp = THREAD_X / 32, lane = THREAD_X % 32, padded = p.head_padded;
	float *queries = (float *)shared, *results = queries + ATTENTION_HEADS * padded;
	const float *q = p.qkv + (u64)row * p.qkv_stride + (head * group + head0) * p.q_rows;
	if (end == length && !p.turned)
		put_page(p, row, position, head, results);
	if (warp < heads && !p.turned)
		turn(p, queries + warp * padded, q + warp * p.q_rows, p.q_norm, position, p.scale);
	for (unsigned i = lane; p.turned && warp < heads && i < padded; i += 32)
		queries[warp * padded + i] = i < p.head_size ? load_fresh_1(q + warp * p.q_rows + i) : 0;
	block_barrier();

	unsigned sub = lane % p.lanes, groups = ATTENTION_BLOCK / p.lanes, mine = THREAD_X / p.lanes;
	eight query[ATTENTION_HEADS][CHUNKS], sum[ATTENTION_HEADS][CHUNKS];
	float most[ATTENTION_HEADS], total[ATTENTION_HEADS];
#pragma unroll
	for (int h = 0; h < ATTENTION_HEADS; h++) {
		most[h] = -1e30f;
		total[h] = 0;
#pragma unroll
		for (int c = 0; c < CHUNKS; c++)
#pragma unroll
			for (int i = 0; i < 8; i++) {
				unsigned at = (c * p.lanes + sub) * 8 + i;
				query[h][c].v[i] = h < heads && at < padded ? queries[h * padded + at] : 0;
				sum[h][c].v[i] = 0;
			}
	}
	for (unsigned first = begin; first < end; first += groups * AT_ONCE) {
		uint4 k[AT_ONCE][CHUNKS], v[AT_ONCE][CHUNKS];
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			unsigned at = first + i * groups + mine;
			const unsigned short *from = page_row(p, row, at < end ? at : begin, 0, head);
#pragma unroll
			for (int c = 0; c < CHUNKS; c++) {
				unsigned offset = (c * p.lanes + sub) * 8;
				uint4 none;
				none.x = none.y = none.z = none.w = 0;
				k[i][c] = v[i][c] = none;
				if (at < end && offset < padded) {
					k[i][c] = *(const uint4 *)(from + offset);
					v[i][c] = *(const uint4 *)(from + p.kv_heads * STAGE_KV_PAGE * padded + offset);
				}
			}
		}
		float score[ATTENTION_HEADS][AT_ONCE];
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
#pragma unroll
			for (int h = 0; h < ATTENTION_HEADS; h++)
				score[h][i] = 0;
#pragma unroll
			for (int c = 0; c < CHUNKS; c++) {
				eight key = eight_of(k[i][c]);
#pragma unroll
				for (int h = 0; h < ATTENTION_HEADS; h++)
#pragma unroll
					for (int e = 0; e < 8; e++)
						score[h][i] = FUSED(query[h][c].v[e], key.v[e], score[h][i]);
			}
		}
		// All scores at once: one after the other, each would wait for its own lanes.
#pragma unroll 1
		for (unsigned half = p.lanes / 2; half; half /= 2)
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
				for (int h = 0; h < ATTENTION_HEADS; h++)
					score[h][i] += from_lane(score[h][i], half);
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
			for (int h = 0; h < ATTENTION_HEADS; h++)
				if (first + i * groups + mine >= end)
					score[h][i] = __builtin_bit_cast(float, 0xff800000u);
		if (p.cap > 0) { // apart, so that models without a cap do not pay for it
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
				for (int h = 0; h < ATTENTION_HEADS; h++)
					if (first + i * groups + mine < end)
						score[h][i] = capped(score[h][i], p.cap);
		}
#pragma unroll
		for (int h = 0; h < ATTENTION_HEADS; h++) {
			float next = most[h];
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++)
				next = larger(next, score[h][i]);
			float keep = exp2_of(most[h] - next);
			most[h] = next;
			total[h] *= keep;
#pragma unroll
			for (int c = 0; c < CHUNKS; c++)
#pragma unroll
				for (int e = 0; e < 8; e++)
					sum[h][c].v[e] *= keep;
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++) {
				score[h][i] = exp2_of(score[h][i] - next);
				total[h] += score[h][i];
			}
		}
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
			for (int c = 0; c < CHUNKS; c++) {
				eight value = eight_of(v[i][c]);
#pragma unroll
				for (int h = 0; h < ATTENTION_HEADS; h++)
#pragma unroll
					for (int e = 0; e < 8; e++)
						sum[h][c].v[e] = FUSED(score[h][i], value.v[e], sum[h][c].v[e]);
			}
	}

	// The groups of a warp become one.
#pragma unroll 1
	for (unsigned half = p.lanes; half < 32; half *= 2)
#pragma unroll
		for (int h = 0; h < ATTENTION_HEADS; h++) {
			float best = larger(most[h], from_lane(most[h], half)), keep = exp2_of(most[h] - best);
			most[h] = best;
			total[h] *= keep;
			total[h] += from_lane(total[h], half);
#pragma unroll
			for (int c = 0; c < CHUNKS; c++)
#pragma unroll
				for (int e = 0; e < 8; e++) {
					sum[h][c].v[e] *= keep;
					sum[h][c].v[e] += from_lane(sum[h][c].v[e], half);
				}
		}
	unsigned stride = padded + 2;
	block_barrier(); // put_page's scratch is here
#pragma unroll
	for (int h = 0; h < ATTENTION_HEADS; h++) {
		float *to = results + (warp * ATTENTION_HEADS + h) * stride;
#pragma unroll
		for (int c = 0; c < CHUNKS; c++)
#pragma unroll
			for (int e = 0; e < 8; e++)
				if (lane < p.lanes && (c * p.lanes + sub) * 8 + e < padded)
					to[(c * p.lanes + sub) * 8 + e] = sum[h][c].v[e];
		if (!lane) {
			to[padded] = most[h];
			to[padded + 1] = total[h];
		}
	}
	block_barrier();
	u64 place = (u64)BLOCK_Y * (p.kv_heads * p.head_blocks) + block;
	float *partial = p.partial + (place * p.splits + part) * ATTENTION_HEADS * stride;
	float *out = p.out + ((u64)row * p.heads + head * group + head0) * p.head_size;
	for (unsigned i = THREAD_X; i < heads * padded; i += ATTENTION_BLOCK) {
		unsigned h = i / padded, at = i % padded;
		float best = -1e30f, all = 0, value = 0;
#pragma unroll
		for (unsigned g = 0; g < ATTENTION_WARPS; g++)
			best = larger(best, results[(g * ATTENTION_HEADS + h) * stride + padded]);
#pragma unroll
		for (unsigned g = 0; g < ATTENTION_WARPS; g++) {
			const float *from = results + (g * ATTENTION_HEADS + h) * stride;
			float weight = exp2_of(from[padded] - best);
			all += weight * from[padded + 1];
			value += weight * from[at];
		}
		if (parts > 1) {
			partial[h * stride + at] = value;
			if (!at) {
				partial[h * stride + padded] = best;
				partial[h * stride + padded + 1] = all;
			}
		} else if (at < p.head_size) {
			if (p.sinks)
				add_sink(p, head * group + head0 + h, &best, &all, &value);
			out[h * p.head_size + at] = quotient(value, all) * gate_at(p, row, head * group + head0 + h, at);
		}
	}
	if (parts == 1)
		return;
	__shared__ unsigned before;
	asm volatile("membar.gl;" ::: "memory");
	block_barrier();
	if (!THREAD_X) {
		unsigned old;
		asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(p.ready + place) : "memory");
		before = old;
	}
	block_barrier();
	if (before != parts - 1)
		return;
	asm volatile("membar.gl;" ::: "memory");
	partial = p.partial + place * p.splits * ATTENTION_HEADS * stride;
	for (unsigned i = THREAD_X; i < heads * p.head_size; i += ATTENTION_BLOCK) {
		unsigned h = i / p.head_size, at = i % p.head_size;
		float best = -1e30f, all = 0, value = 0;
#pragma unroll 4
		for (unsigned g = 0; g < parts; g++)
			best = larger(best, load_fresh_1(partial + (g * ATTENTION_HEADS + h) * stride + padded));
#pragma unroll 4
		for (unsigned g = 0; g < parts; g++) {
			const float *from = partial + (g * ATTENTION_HEADS + h) * stride;
			float weight = exp2_of(load_fresh_1(from + padded) - best);
			all += weight * load_fresh_1(from + padded + 1);
			value += weight * load_fresh_1(from + at);
		}
		if (p.sinks)
			add_sink(p, head * group + head0 + h, &best, &all, &value);
		out[h * p.head_size + at] = quotient(value, all) * gate_at(p, row, head * group + head0 + h, at);
	}
	if (!THREAD_X)
		p.ready[place] = 0;
}

extern "C" __global__ void __launch_bounds__(ATTENTION_BLOCK) attend_1(const CONSTANT attention_params p) { attend<1>(p); }
extern "C" __global__ void __launch_bounds__(ATTENTION_BLOCK) attend_2(const CONSTANT attention_params p) { attend<2>(p); }
