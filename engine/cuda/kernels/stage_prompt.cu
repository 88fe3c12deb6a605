// Attention of prompts: 64 rows of a run at a time, for heads of 64 and 128.
//
// A block takes one head of q and goes over the keys and values up to its last row, 64 positions at a time, which are
// loaded through two swizzled places in shared memory. Each warp has 16 rows. Queries are scaled by row so that they
// fit f16; weights of positions are at most 2^10, so that weights of a millionth keep their bits, too. q has been
// rotated, and k and v are in their pages.
#include "stage.cuh"

enum { PROMPT_WARPS = PROMPT_ROWS / 16, PROMPT_BLOCK = PROMPT_WARPS * 32 };

// A warp's 16 queries as operand A; `factors`: what scores of rows g and g + 8 are multiplied by.
template <int SIZE>
INLINE void take_queries(const attention_params &p, fragment (&q)[SIZE / 16], float (&factors)[2], unsigned row0,
			 unsigned first, unsigned count)
{
	unsigned lane = THREAD_X % 32;
	float v[SIZE / 16][4][2];
#pragma unroll
	for (unsigned lower = 0; lower < 2; lower++) {
		unsigned row = first + lane / 4 + lower * 8;
		const float *from =
			p.qkv + (u64)(row0 + (row < count ? row : count - 1)) * p.qkv_stride + BLOCK_X * p.q_rows + lane % 4 * 2;
		float most = 0;
#pragma unroll
		for (unsigned k = 0; k < SIZE / 16; k++)
#pragma unroll
			for (unsigned right = 0; right < 2; right++)
#pragma unroll
				for (unsigned i = 0; i < 2; i++) {
					float x = load_fresh_1(from + k * 16 + right * 8 + i);
					v[k][lower + right * 2][i] = x;
					most = larger(most, absolute(x));
				}
		most = larger(most, from_lane(most, 1));
		most = larger(most, from_lane(most, 2));
		float scale = scale_for(most);
		factors[lower] = quotient(1, scale);
#pragma unroll
		for (unsigned k = 0; k < SIZE / 16; k++)
#pragma unroll
			for (unsigned pair = lower; pair < 4; pair += 2)
				q[k].pair[pair] = pack_f16(v[k][pair][0] * scale, v[k][pair][1] * scale);
	}
}

template <int SIZE> INLINE void attend_prompt(const attention_params &p)
{
	enum { PIECES = SIZE / 8, ROW = SIZE * 2, TILE = PROMPT_KEYS * ROW };
	let_next_begin();
	// The tiles with the most work come first.
	unsigned tile = BLOCKS_Y - 1 - BLOCK_Y, head = BLOCK_X / (p.heads / p.kv_heads);
	unsigned warp = THREAD_X / 32, lane = THREAD_X % 32;
	unsigned row0 = p.tiles[tile * 2], count = p.tiles[tile * 2 + 1];
	unsigned position0 = p.positions[row0], length = position0 + count;
	unsigned tiles = (length + PROMPT_KEYS - 1) / PROMPT_KEYS, places = shared_place(shared);
	unsigned tile0 = (position0 + 1 < p.window ? 0 : position0 + 1 - p.window) / PROMPT_KEYS; // that the first row sees
	const unsigned *pages = p.pages + p.tables[row0];
	auto fetch = [&](unsigned t) {
		unsigned to = places + t % 2 * 2 * TILE;
#pragma unroll 4
		for (unsigned i = THREAD_X; i < PROMPT_KEYS * PIECES; i += PROMPT_BLOCK) {
			unsigned key = i / PIECES, piece = i % PIECES, position = t * PROMPT_KEYS + key;
			bool there = position < length;
			u64 page = pages[there ? position / STAGE_KV_PAGE : 0];
			const unsigned short *from =
				p.kv + ((page * 2 * p.kv_heads + head) * STAGE_KV_PAGE + position % STAGE_KV_PAGE) * SIZE + piece * 8;
			unsigned at = to + key * ROW + ((piece ^ (key & 7)) * 16);
			copy_16_if(at, from, there);
			copy_16_if(at + TILE, from + p.kv_heads * STAGE_KV_PAGE * SIZE, there);
		}
	};
	wait_for_previous();
	fetch(tile0);
	copies_end();
	fragment q[SIZE / 16];
	float factors[2], most[2] = {-1e30f, -1e30f}, total[2] = {0, 0}, sum[SIZE / 8][4];
	take_queries<SIZE>(p, q, factors, row0, warp * 16, count);
#pragma unroll
	for (unsigned i = 0; i < SIZE / 8; i++)
		clear(sum[i]);
	unsigned mine = position0 + warp * 16; // of the warp's first row
	for (unsigned t = tile0; t < tiles; t++) {
		if (t + 1 < tiles)
			fetch(t + 1);
		copies_end();
		copies_wait<1>();
		block_barrier();
		unsigned keys = places + t % 2 * 2 * TILE, values = keys + TILE;
		float score[PROMPT_KEYS / 8][4];
#pragma unroll
		for (unsigned i = 0; i < PROMPT_KEYS / 8; i++)
			clear(score[i]);
#pragma unroll
		for (unsigned k = 0; k < SIZE / 16; k++)
#pragma unroll
			for (unsigned n = 0; n < PROMPT_KEYS / 16; n++) {
				unsigned key = n * 16 + lane / 16 * 8 + lane % 8, piece = k * 2 + lane / 8 % 2;
				uint4 four = load_matrices(keys + key * ROW + ((piece ^ (key & 7)) * 16));
				multiply_f16(score[n * 2], q[k], four.x, four.y);
				multiply_f16(score[n * 2 + 1], q[k], four.z, four.w);
			}
		bool masked = t * PROMPT_KEYS + PROMPT_KEYS - 1 > mine || mine + 16 - t * PROMPT_KEYS > p.window;
		if (p.cap > 0) { // apart, so that models without a cap do not pay for it
#pragma unroll
			for (unsigned n = 0; n < PROMPT_KEYS / 8; n++)
#pragma unroll
				for (unsigned i = 0; i < 4; i++)
					score[n][i] = capped(score[n][i] * factors[i / 2], p.cap);
		}
#pragma unroll
		for (unsigned lower = 0; lower < 2; lower++) {
			float next = most[lower], factor = p.cap > 0 ? 1 : factors[lower];
#pragma unroll
			for (unsigned n = 0; n < PROMPT_KEYS / 8; n++)
#pragma unroll
				for (unsigned i = 0; i < 2; i++) {
					float *s = &score[n][lower * 2 + i];
					*s *= factor;
					unsigned key = t * PROMPT_KEYS + n * 8 + lane % 4 * 2 + i, own = mine + lane / 4 + lower * 8;
					if (masked && (key > own || own - key >= p.window))
						*s = __builtin_bit_cast(float, 0xff800000u);
					next = larger(next, *s);
				}
			next = larger(next, from_lane(next, 1));
			next = larger(next, from_lane(next, 2));
			float keep = exp2_of(most[lower] - next);
			most[lower] = next;
			total[lower] *= keep;
#pragma unroll
			for (unsigned n = 0; n < PROMPT_KEYS / 8; n++)
#pragma unroll
				for (unsigned i = 0; i < 2; i++) {
					float *s = &score[n][lower * 2 + i];
					*s = exp2_of(*s - next + 10);
					total[lower] += *s;
				}
#pragma unroll
			for (unsigned n = 0; n < SIZE / 8; n++) {
				sum[n][lower * 2] *= keep;
				sum[n][lower * 2 + 1] *= keep;
			}
		}
#pragma unroll
		for (unsigned k = 0; k < PROMPT_KEYS / 16; k++) {
			const float(&left)[4] = score[k * 2], (&right)[4] = score[k * 2 + 1];
			const fragment weights = {{pack_f16(left[0], left[1]), pack_f16(left[2], left[3]),
						   pack_f16(right[0], right[1]), pack_f16(right[2], right[3])}};
#pragma unroll
			for (unsigned n = 0; n < SIZE / 16; n++) {
				unsigned key = k * 16 + lane / 8 % 2 * 8 + lane % 8, piece = n * 2 + lane / 16;
				uint4 four = load_turned(values + key * ROW + ((piece ^ (key & 7)) * 16));
				multiply_f16(sum[n * 2], weights, four.x, four.y);
				multiply_f16(sum[n * 2 + 1], weights, four.z, four.w);
			}
		}
		block_barrier(); // the place may be written again
	}
#pragma unroll
	for (unsigned lower = 0; lower < 2; lower++) {
		unsigned row = warp * 16 + lane / 4 + lower * 8;
		float all = total[lower];
		all += from_lane(all, 1);
		all += from_lane(all, 2);
		float factor = 1;
		if (p.sinks) { // weights are 2^10 times those relative to the largest score
			float sink = p.sinks[BLOCK_X] * 1.4426950408889634f, top = larger(most[lower], sink);
			factor = exp2_of(most[lower] - top);
			all = FUSED(all, factor, exp2_of(sink - top + 10));
		}
		factor = quotient(factor, all);
		float *out = p.out + ((u64)(row0 + row) * p.heads + BLOCK_X) * SIZE + lane % 4 * 2;
		if (row >= count)
			continue;
#pragma unroll
		for (unsigned n = 0; n < SIZE / 8; n++) {
			const unsigned at = n * 8 + lane % 4 * 2;
			out[n * 8] = sum[n][lower * 2] * factor * gate_at(p, row0 + row, BLOCK_X, at);
			out[n * 8 + 1] = sum[n][lower * 2 + 1] * factor * gate_at(p, row0 + row, BLOCK_X, at + 1);
		}
	}
}

extern "C" __global__ void __launch_bounds__(PROMPT_BLOCK) attend_prompt_64(const CONSTANT attention_params p)
{
	attend_prompt<64>(p);
}
extern "C" __global__ void __launch_bounds__(PROMPT_BLOCK) attend_prompt_128(const CONSTANT attention_params p)
{
	attend_prompt<128>(p);
}
