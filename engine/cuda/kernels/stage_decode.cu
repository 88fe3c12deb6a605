// One row through all layers, by one persistent kernel: a block on every multiprocessor; all blocks synchronise between
// products.
//
// Each warp has a ring in shared memory, which it fills by bulk copies: whenever it has multiplied one, it begins the
// next. Weights do not depend on computed values, so the ring continues over the ends of products and layers: memory is
// still read while the blocks wait for each other and for attention. A block takes a run of units of 16 rows. Its warps
// share the columns, always the same ones, so a warp needs only its own slice of the input, and rounds it itself. A
// norm's factor is applied to the results, because it needs the whole row.
//
// A kernel is made for a set of formats (DECODE_SETS). Each matrix of a model may have another one of the set: all
// warps go through its rows by the code of its format.
//
// Bound: memory, at 51 to 84 % of what a read kernel reaches on an H200 (docs/notes/performance-gpu.md says where the
// rest is).
//
// Rounded to integers (of 16 bits, with a scale for each 32 columns, as in stage_gemv.cu) the input makes two columns
// of a product of bytes, and there are eight: four blocks of columns share a product's, each with zeros where the
// others are, so a lane has the sum of one block and does its scaling once for all four.
#include "stage.cuh"

#if defined(HOPPER)

#include "stage_decode_attention.cuh"
#include "stage_decode_product.cuh"

INLINE attention_params attention_of(const decode_params &p, const decode_layer &layer, unsigned index)
{
	attention_params out = p.attention;
	out.kv += index * p.kv_layer;
	out.q_norm = layer.q_norm;
	out.k_norm = layer.k_norm;
	return out;
}

// shared: layers (layer_count + 1), units (8), segments (DECODE_WARPS), counts of the rings' copies (DECODE_WARPS, slots), squares, rope, sums,
// slices (DECODE_WARPS, slice_bytes), rings (DECODE_WARPS, ring_bytes), from a multiple of DECODE_ALIGN on; attention
// has sums and slices. stage_decode.c adds up the same.
template <unsigned SET> INLINE void decode(const decode_params &p)
{
	unsigned warp = THREAD_X / 32, layers = p.layer_count + 1;
	memory m;
	unsigned char *at = shared;
	for (unsigned i = THREAD_X; i < layers * sizeof(decode_layer) / 16; i += DECODE_THREADS)
		((uint4 *)at)[i] = ((const uint4 *)p.layers)[i];
	m.layers = (const decode_layer *)at;
	at += layers * sizeof(decode_layer);
	m.units = (const uint2 *)at;
	if (THREAD_X < DECODE_KINDS) {
		uint2 units;
		units.x = BLOCK_X * p.products[THREAD_X].units / BLOCKS;
		units.y = (BLOCK_X + 1) * p.products[THREAD_X].units / BLOCKS;
		((uint2 *)at)[THREAD_X] = units;
	}
	at += 8 * sizeof(uint2);
	m.segment = (uint4 *)at + warp;
	at += DECODE_WARPS * sizeof(uint4);
	m.full = shared_place(at) + warp * p.slots * 8;
	m.full_end = m.full + p.slots * 8;
	at += DECODE_WARPS * p.slots * 8;
	m.squares = (float *)at;
	m.rope = m.squares + DECODE_WARPS;
	m.sums = m.rope + (p.attention.rope_size + 3) / 4 * 4;
	at = (unsigned char *)(m.sums + SUM_ROWS * DECODE_WARPS * TILE_ROWS);
	m.slice = at + warp * p.slice_bytes;
	at += DECODE_WARPS * p.slice_bytes;
	m.ring_at = ring_bytes_of(shared_place(at)) + warp * p.ring_bytes;
	m.ring = at + (m.ring_at - shared_place(at));
	if (THREAD_X % 32 == 0)
		for (unsigned i = m.full; i < m.full_end; i += 8)
			count_begin(i);
	counts_shown();
	block_barrier();
	copier<SET> copies;
	copies.begin(p, m);
	copies.fill(p, m, 0);
	wait_for_previous();
	unsigned base = p.arrived[1], target = base, length = p.attention.positions[0] + 1, kind = DECODE_QKV;
	for (unsigned i = THREAD_X; i < p.attention.rope_size; i += DECODE_THREADS)
		m.rope[i] = p.attention.rope[(u64)(length - 1) * p.attention.rope_size + i];
	place next = {m.full, 0, 0, 0};
#pragma unroll 1
	for (unsigned i = 0; i < p.layer_count + p.predicts;) {
		kind = i == p.layer_count ? (unsigned)DECODE_OUTPUT : kind;
		if (kind == DECODE_QKV)
			fetch_keys(attention_of(p, m.layers[i], i), p.tasks, length);
		run_product<SET>(p, kind, m.layers[i], m, &next, copies, target);
		if (kind == DECODE_OUTPUT)
			break;
		arrive(p);
		target += BLOCKS;
		if (kind == DECODE_QKV) {
			wait_for_all(p, target);
#pragma unroll 1
			for (unsigned k = BLOCK_X; k < p.tasks * p.attention.splits; k += BLOCKS) {
				attend(attention_of(p, m.layers[i], i), k / p.attention.splits, k % p.attention.splits,
				       m, length);
				multipliers_barrier();
			}
			arrive(p);
			target += BLOCKS;
		}
		kind = kind == DECODE_DOWN ? (unsigned)DECODE_QKV : kind + 1;
		i += kind == DECODE_QKV;
	}
	if (!p.predicts)
		wait_for_all(p, target);
	if (!THREAD_X && !BLOCK_X)
		p.arrived[1] = target;
}

#define KERNEL(name, formats) \
	extern "C" __global__ void __launch_bounds__(DECODE_THREADS, 1) \
		decode_##name(const CONSTANT decode_params p) \
	{ \
		decode<formats>(p); \
	}
DECODE_SETS(KERNEL)

#endif
