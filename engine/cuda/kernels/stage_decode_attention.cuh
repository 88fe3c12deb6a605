// For stage_decode.cu: attention of one row. The blocks share heads and parts of the positions; the last block of a head
// adds up the parts.
#include "stage_decode_copies.cuh"
#pragma once

// ---- attention ----

struct positions { // of a task's part
	unsigned begin, end, parts;
};
INLINE positions part_of(const attention_params &p, unsigned part, unsigned length)
{
	positions out;
	unsigned size = (length + p.splits - 1) / p.splits;
	size = size < PART_LEAST ? (unsigned)PART_LEAST : (size + 7) / 8 * 8;
	out.parts = (length + size - 1) / size;
	out.begin = part * size;
	out.end = out.begin + size < length ? out.begin + size : length;
	return out;
}

// Keys and values of this block's part on their way to the second-level cache.
INLINE void fetch_keys(const attention_params &p, unsigned tasks, unsigned length)
{
	for (unsigned i = BLOCK_X; i < tasks * p.splits; i += BLOCKS) {
		const positions mine = part_of(p, i % p.splits, length);
		unsigned count = mine.begin < mine.end ? mine.end - mine.begin : 0;
#pragma unroll 1
		for (unsigned k = THREAD_X; k < count * 2; k += DECODE_THREADS) {
			const unsigned short *from = page_row(p, 0, mine.begin + k / 2, k % 2,
							      i / p.splits / p.head_blocks);
			asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
			if (p.head_padded > 64)
				asm volatile("prefetch.global.L2 [%0];" ::"l"(from + 64));
		}
	}
}

// A head after the product, in `out`: its norm, and turned by its position. By one warp.
INLINE void turn_head(const attention_params &p, float *out, const float *in, const float *norm, const float *rope,
		      float scale)
{
	unsigned lane = THREAD_X % 32, pairs = p.rope_size / 2;
	float v[4], squares = 0;
#pragma unroll
	for (unsigned i = 0; i < 4; i++)
		v[i] = lane + i * 32 < p.head_size ? load_fresh_1(in + lane + i * 32) : 0;
	if (norm) {
#pragma unroll
		for (unsigned i = 0; i < 4; i++)
			squares += v[i] * v[i];
		scale *= quotient(1, root_of(warp_sum(squares) / (float)p.head_size + p.epsilon));
#pragma unroll
		for (unsigned i = 0; i < 4; i++)
			v[i] *= lane + i * 32 < p.head_size ? norm[lane + i * 32] : 0;
	}
#pragma unroll
	for (unsigned i = 0; i < 4; i++)
		if (lane + i * 32 < p.head_padded)
			out[lane + i * 32] = v[i] * scale;
	warp_barrier();
#pragma unroll
	for (unsigned k = 0; k < 2; k++) {
		unsigned i = lane + k * 32, a = p.rope_halves ? i : 2 * i, b = p.rope_halves ? i + pairs : 2 * i + 1;
		if (i < pairs) {
			float cosine = rope[2 * i], sine = rope[2 * i + 1], x = out[a], y = out[b];
			out[a] = x * cosine - y * sine;
			out[b] = x * sine + y * cosine;
		}
	}
	warp_barrier();
}

// Attention of one part of a task. scratch: q (ATTENTION_HEADS, head_padded), warps' results (DECODE_WARPS,
// ATTENTION_HEADS, head_padded + 2), k and v of this position (2, head_padded) in f16, a word.
INLINE void attend(const attention_params &p, unsigned task, unsigned part, const memory &m, unsigned length)
{
	unsigned head = task / p.head_blocks, group = p.heads / p.kv_heads,
		 head0 = task % p.head_blocks * ATTENTION_HEADS;
	unsigned heads = group - head0 < ATTENTION_HEADS ? group - head0 : ATTENTION_HEADS, padded = p.head_padded;
	unsigned position = length - 1, warp = THREAD_X / 32, lane = THREAD_X % 32, stride = padded + 2;
	const positions mine = part_of(p, part, length);
	if (part >= mine.parts)
		return;
	float *queries = m.sums, *results = queries + ATTENTION_HEADS * padded;
	unsigned short *own = (unsigned short *)(results + DECODE_WARPS * ATTENTION_HEADS * stride);
	unsigned *before = (unsigned *)(own + 2 * padded);
	const float *q = p.qkv + (head * group + head0) * p.head_size, *k_row = p.qkv + (p.heads + head) * p.head_size;
	if (warp < ATTENTION_HEADS) {
		if (warp < heads)
			turn_head(p, queries + warp * padded, q + warp * p.head_size, p.q_norm, m.rope, p.scale);
		for (unsigned i = lane; warp >= heads && i < padded; i += 32)
			queries[warp * padded + i] = 0;
	} else if (warp < ATTENTION_HEADS + 2 && mine.end == length) { // this position's own k, and v
		unsigned which = warp - ATTENTION_HEADS;
		float *row = results + which * padded;
		unsigned short *to = page_row(p, 0, position, which, head);
		if (!which)
			turn_head(p, row, k_row, p.k_norm, m.rope, 1);
#pragma unroll
		for (unsigned i = lane; which && i < padded; i += 32)
			row[i] = i < p.head_size ? load_fresh_1(k_row + p.kv_heads * p.head_size + i) : 0;
		warp_barrier();
		for (unsigned i = lane * 2; i < padded; i += 64)
			*(unsigned *)(to + i) = *(unsigned *)(own + which * padded + i) = pack_f16(row[i], row[i + 1]);
	}
	multipliers_barrier();
	unsigned groups = DECODE_THREADS / p.lanes, group_of = THREAD_X / p.lanes, offset = lane % p.lanes * 4;
	unsigned of_warp = 32 / p.lanes, warps = (mine.end - mine.begin + of_warp - 1) / of_warp;
	warps = warps < DECODE_WARPS ? warps : (unsigned)DECODE_WARPS;
	float sum[ATTENTION_HEADS][4], most[ATTENTION_HEADS], total[ATTENTION_HEADS];
#pragma unroll
	for (int h = 0; h < ATTENTION_HEADS; h++) {
		clear(sum[h]);
		most[h] = -1e30f;
		total[h] = 0;
	}
#pragma unroll 1
	for (unsigned first = mine.begin; warp < warps && first < mine.end; first += groups * AT_ONCE) {
		uint2 k[AT_ONCE], v[AT_ONCE];
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			unsigned at = first + i * groups + group_of;
			k[i].x = k[i].y = v[i].x = v[i].y = 0;
			if (at < mine.end && at != position && offset < padded) {
				const unsigned short *from = page_row(p, 0, at, 0, head) + offset;
				k[i] = *(const uint2 *)from;
				v[i] = *(const uint2 *)(from + p.kv_heads * STAGE_KV_PAGE * padded);
			}
		}
		// Only the part that ends with this position has its key and value in `own`. An earlier part may read
		// beyond its end up to here, where its shared memory may contain NaN; and NaN times 0 is NaN.
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++)
			if (first + i * groups + group_of == position && mine.end == length && offset < padded) {
				k[i] = *(const uint2 *)(own + offset);
				v[i] = *(const uint2 *)(own + padded + offset);
			}
		float score[ATTENTION_HEADS][AT_ONCE];
#pragma unroll
		for (int h = 0; h < ATTENTION_HEADS; h++) {
			const float4 query = *(const float4 *)(queries + h * padded + (offset < padded ? offset : 0));
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++) {
				float s = query.x * low_f16(k[i].x);
				s = FUSED(query.y, high_f16(k[i].x), s);
				s = FUSED(query.z, low_f16(k[i].y), s);
				score[h][i] = FUSED(query.w, high_f16(k[i].y), s);
			}
		}
#pragma unroll
		for (unsigned half = 1; half < 32; half *= 2)
#pragma unroll
			for (int h = 0; h < ATTENTION_HEADS; h++)
#pragma unroll
				for (int i = 0; i < AT_ONCE; i++) {
					float other = from_lane(score[h][i], half);
					score[h][i] += half < p.lanes ? other : 0;
				}
#pragma unroll
		for (int h = 0; h < ATTENTION_HEADS; h++) {
			float next = most[h];
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++) {
				if (first + i * groups + group_of >= mine.end)
					score[h][i] = __builtin_bit_cast(float, 0xff800000u);
				next = larger(next, score[h][i]);
			}
			float keep = exp2_of(most[h] - next);
			most[h] = next;
			total[h] *= keep;
#pragma unroll
			for (int e = 0; e < 4; e++)
				sum[h][e] *= keep;
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++) {
				score[h][i] = exp2_of(score[h][i] - next);
				total[h] += score[h][i];
			}
		}
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			float value[4] = {low_f16(v[i].x), high_f16(v[i].x), low_f16(v[i].y), high_f16(v[i].y)};
#pragma unroll
			for (int h = 0; h < ATTENTION_HEADS; h++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					sum[h][e] = FUSED(score[h][i], value[e], sum[h][e]);
		}
	}
	multipliers_barrier(); // the scratch of k and v is where results go
	if (warp < warps) {
#pragma unroll
		for (int h = 0; h < ATTENTION_HEADS; h++) {
#pragma unroll 1
			for (unsigned half = p.lanes; half < 32; half *= 2) {
				float best = larger(most[h], from_lane(most[h], half)), keep = exp2_of(most[h] - best);
				most[h] = best;
				total[h] *= keep;
				total[h] += from_lane(total[h], half);
#pragma unroll
				for (int e = 0; e < 4; e++) {
					sum[h][e] *= keep;
					sum[h][e] += from_lane(sum[h][e], half);
				}
			}
			float *to = results + (warp * ATTENTION_HEADS + h) * stride;
			if (lane < p.lanes && offset < padded)
#pragma unroll
				for (int e = 0; e < 4; e++)
					to[offset + e] = sum[h][e];
			if (!lane) {
				to[padded] = most[h];
				to[padded + 1] = total[h];
			}
		}
	}
	multipliers_barrier();
	float *partial = p.partial + ((u64)task * p.splits + part) * ATTENTION_HEADS * stride;
	float *out = p.out + (head * group + head0) * p.head_size;
	unsigned h = THREAD_X / 128, i = THREAD_X % 128;
	if (h < heads && i < padded) {
		float best = -1e30f, all = 0, value = 0;
#pragma unroll 4
		for (unsigned w = 0; w < warps; w++)
			best = larger(best, results[(w * ATTENTION_HEADS + h) * stride + padded]);
#pragma unroll 4
		for (unsigned w = 0; w < warps; w++) {
			const float *from = results + (w * ATTENTION_HEADS + h) * stride;
			float weight = exp2_of(from[padded] - best);
			all = FUSED(weight, from[padded + 1], all);
			value = FUSED(weight, from[i], value);
		}
		if (mine.parts > 1) {
			partial[h * stride + i] = value;
			if (!i) {
				partial[h * stride + padded] = best;
				partial[h * stride + padded + 1] = all;
			}
		} else if (i < p.head_size) {
			out[h * p.head_size + i] = quotient(value, all);
		}
	}
	if (mine.parts == 1)
		return;
	// The last part of a task to come puts all together.
	multipliers_barrier();
	if (!THREAD_X) {
		unsigned old;
		asm volatile("fence.acq_rel.gpu; atom.relaxed.gpu.global.add.u32 %0, [%1], 1; fence.acq_rel.gpu;"
			     : "=r"(old)
			     : "l"(p.ready + task)
			     : "memory");
		*before = old;
	}
	multipliers_barrier();
	if (*before != mine.parts - 1)
		return;
	partial = p.partial + (u64)task * p.splits * ATTENTION_HEADS * stride;
	if (h < heads && i < p.head_size) {
		float best = -1e30f, all = 0, value = 0;
#pragma unroll 1
		for (unsigned first = 0; first < mine.parts; first += 8) {
			float m[8], t[8], v[8], next = best;
#pragma unroll
			for (unsigned k = 0; k < 8; k++) {
				const float *from = partial + ((first + k) * ATTENTION_HEADS + h) * stride;
				bool there = first + k < mine.parts;
				m[k] = there ? load_fresh_1(from + padded) : -1e30f;
				t[k] = there ? load_fresh_1(from + padded + 1) : 0;
				v[k] = there ? load_fresh_1(from + i) : 0;
			}
#pragma unroll
			for (unsigned k = 0; k < 8; k++)
				next = larger(next, m[k]);
			float keep = exp2_of(best - next);
			best = next;
			all *= keep;
			value *= keep;
#pragma unroll
			for (unsigned k = 0; k < 8; k++) {
				float weight = exp2_of(m[k] - next);
				all = FUSED(weight, t[k], all);
				value = FUSED(weight, v[k], value);
			}
		}
		out[h * p.head_size + i] = quotient(value, all);
	}
	if (!THREAD_X)
		p.ready[task] = 0;
}
