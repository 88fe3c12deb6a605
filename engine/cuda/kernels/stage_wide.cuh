// A matrix by many rows of activations with Hopper's own instructions (wgmma: compute capability 9.0 and no other).
//
// Tile: a block makes 128 rows of results by 8, 16, 32, 64, 128 or 256 rows of activations, 64 columns a step. Two groups
// of four warps have 64 rows of the matrix each; one warp of a third group copies.
// Pipeline: rings of activations and of two to five chunks of weights in shared memory, filled by cp.async.bulk. A copy of
// activations has one step; of blocks of 8 and 16 rows it has as many as a chunk of weights, which saves waits. Tiles
// hold operand A's fragments, so weights become f16 in registers, by a table of scales for formats that have scales of
// scales. The next step's are made while the multiplier does this one's. Eight rows go by mma.sync instead.
// Activations have the layout that `prepare` writes: 16 KiB for each 128 rows and 64 columns, in which the 16-byte
// pieces of a row are swizzled as the multiplier expects. For blocks of up to 64 rows all rows of 64 columns are
// together, so that the rows of an expert, which begin at a multiple of 8, are one copy.
// Experts: with `groups` a block has the rows of one expert, as `order` lists them.
//
// With gate and up the first group of warps has gate and the second up, and silu(gate) * up is stored. Where there are
// too few blocks the columns are split; the last block of a place adds the parts up, in their order.
//
// Bound: wide blocks by the multiplier (60 % of cuBLAS); narrow ones by the chain of a step of 64 columns (wait, load, make
// f16, multiply): gate and up of an 8B model in Q4_K_M by 8 rows take 22 us on an H200, where copying takes 18.5.
// Figures, and what was tried: docs/notes/performance-gpu.md.
#pragma once
#include "stage_gemm.cuh"

enum {
	WIDE_BLOCK_BYTES = 128 * STEP_BYTES, // of 128 rows, a step
	WIDE_STRIDE = 128 + 4,           // of results in shared memory
	WIDE_TABLE_BYTES = 1024,         // of a warp: scales of a tile
};

template <int FORMAT, int WIDTH> struct wide_shape_of {
	typedef shape_of<FORMAT> S;
	enum {
		NARROW = WIDTH < 128,
		CHUNKS_WIDE = S::STEPS == 1 ? 4 : S::STEPS == 2 ? 3 : 2,
		CHUNKS_NARROW = FORMAT == TILE_F16	  ? 4
				: FORMAT <= TILE_Q4_0	  ? 5
				: FORMAT == TILE_Q6_K && WIDTH == 64 ? 2
							  : 3,
		CHUNKS = NARROW ? CHUNKS_NARROW : CHUNKS_WIDE,
		CHUNK_BYTES = S::CHUNK * ROW_TILES,
		FEW = WIDTH == 8,                     // by mma.sync, whose warps do not wait for each other
		X_STEPS = WIDTH <= 16 ? S::STEPS : 1, // of a copy of activations
		X_COPIES = X_STEPS > 1 ? 3 : 4,       // in the ring
		X_BYTES = X_STEPS * WIDTH * STEP_BYTES,
	};
};

// ---- barriers in shared memory ----

INLINE void gate_init(unsigned gate, unsigned arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(gate), "r"(arrivals) : "memory");
}
INLINE void gate_expect(unsigned gate, unsigned bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(gate), "r"(bytes) : "memory");
}
INLINE void gate_arrive(unsigned gate)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(gate) : "memory");
}
INLINE void gate_wait(unsigned gate, unsigned parity)
{
	asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }"
		     ::"r"(gate), "r"(parity)
		     : "memory");
}
// Both ends in multiples of 16 bytes.
INLINE void copy_bulk(unsigned to, const void *from, unsigned bytes, unsigned gate)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(gate)
		     : "memory");
}

// ---- products ----

#define SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
		"+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
// 64 rows of the matrix by a step of 16 columns; b says where the activations are.
INLINE void multiply_wide(float (&)[4], const unsigned (&)[4], u64) {} // never called: FEW goes by multiply_eight
INLINE void multiply_wide(float (&d)[8], const unsigned (&a)[4], u64 b)
{
	asm volatile("{ .reg .pred more; setp.eq.b32 more, 0, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
		     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, more, 1, 1, 0; }"
		     : SUMS_8(0)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
INLINE void multiply_wide(float (&d)[16], const unsigned (&a)[4], u64 b)
{
	asm volatile("{ .reg .pred more; setp.eq.b32 more, 0, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
		     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, "
		     "more, 1, 1, 0; }"
		     : SUMS_8(0), SUMS_8(8)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
INLINE void multiply_wide(float (&d)[32], const unsigned (&a)[4], u64 b)
{
	asm volatile("{ .reg .pred more; setp.eq.b32 more, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
		     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
		     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, "
		     "more, 1, 1, 0; }"
		     : SUMS_32(0)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
INLINE void multiply_wide(float (&d)[64], const unsigned (&a)[4], u64 b)
{
	asm volatile("{ .reg .pred more; setp.eq.b32 more, 0, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
		     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
		     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
		     "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
		     "%56, %57, %58, %59, %60, %61, %62, %63}, "
		     "{%64, %65, %66, %67}, %68, more, 1, 1, 0; }"
		     : SUMS_32(0), SUMS_32(32)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
INLINE void multiply_wide(float (&d)[128], const unsigned (&a)[4], u64 b)
{
	asm volatile("{ .reg .pred more; setp.eq.b32 more, 0, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
		     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
		     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
		     "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
		     "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "
		     "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "
		     "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "
		     "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "
		     "%124, %125, %126, %127}, "
		     "{%128, %129, %130, %131}, %132, more, 1, 1, 0; }"
		     : SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// 16 rows of the matrix by 64 columns of eight rows at `x`; by one warp. Sums of each second fragment are apart, so that a
// product need not wait for the one before.
template <int N>
INLINE void multiply_eight(float (&sum)[N], float (&others)[4], const unsigned (&a)[4][4], unsigned x, unsigned lane)
{
	float(&first)[4] = *(float(*)[4]) & sum;
#pragma unroll
	for (unsigned half = 0; half < 2; half++) {
		const uint4 b = load_matrices(x + lane % 8 * STEP_BYTES + ((half * 4 + lane / 8) ^ lane % 8) * 16);
		multiply_f16(first, *(const fragment *)a[half * 2], b.x, b.y);
		multiply_f16(others, *(const fragment *)a[half * 2 + 1], b.z, b.w);
	}
}

INLINE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> INLINE void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

// Rows of 128 bytes, crossed, eight of them 1,024 bytes apart.
INLINE u64 describe(unsigned place) { return (u64)1 << 62 | (u64)64 << 32 | (u64)1 << 16 | place >> 4; }

INLINE unsigned product_f16(unsigned a, unsigned b)
{
	unsigned out;
	asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
	return out;
}

// Whether a format has scales of scales: each warp makes a table of them from a tile, so that a weight costs one
// multiply-add of two.
INLINE constexpr bool has_table(int format) { return format == TILE_Q4_K || format == TILE_Q5_K || format == TILE_Q6_K; }

// The table of a tile, (4 times 64 columns, 16 rows, 16 bytes): for each 32 columns scale and addend, for Q6_K of each
// 16 the scale, all of them f16 and twice. A weight is scale * (quant - offset) + addend: the offset is what makes
// the addend small. By a warp.
template <int FORMAT> INLINE void make_table(unsigned char *table, const unsigned char *tile, unsigned lane)
{
	unsigned row = lane % 16, half = lane / 16;
	uint4 *to = (uint4 *)(table + half * 512 + row * 16);
	if (FORMAT == TILE_Q6_K) {
		uint2 scales = *(const uint2 *)(tile + 3072 + row * 16 + half * 8);
		float d = low_f16(*(const unsigned short *)(tile + 3328 + row * 2));
#pragma unroll
		for (int i = 0; i < 2; i++) {
			unsigned four = i ? scales.y : scales.x, out[4];
#pragma unroll
			for (int k = 0; k < 4; k++) {
				float scale = d * (float)(signed char)(four >> k * 8);
				out[k] = pack_f16(scale, scale);
			}
			uint4 entry = {out[0], out[1], out[2], out[3]};
			to[i * 16] = entry;
		}
	} else {
		uint4 head = *(const uint4 *)(tile + 2048 + (FORMAT == TILE_Q5_K ? 512 : 0) + row * 16);
		float d = low_f16(head.x), least = -high_f16(head.x);
		unsigned scales = half ? (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u) : head.y & 0x3f3f3f3fu;
		unsigned mins = half ? (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u) : head.z & 0x3f3f3f3fu;
		const float offset = FORMAT == TILE_Q5_K ? 16 : 8;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			unsigned out[4];
#pragma unroll
			for (int k = 0; k < 2; k++) {
				float scale = d * (float)(scales >> (i * 2 + k) * 8 & 255);
				float addend = FUSED(scale, offset, least * (float)(mins >> (i * 2 + k) * 8 & 255));
				out[k * 2] = pack_f16(scale, scale);
				out[k * 2 + 1] = pack_f16(addend, addend);
			}
			uint4 entry = {out[0], out[1], out[2], out[3]};
			to[i * 16] = entry;
		}
	}
}

// 64 columns of a warp's 16 rows, as four fragments of f16, from the `at`th of a tile; by its table.
template <int FORMAT>
INLINE void load_by_table(unsigned (&out)[4][4], const unsigned char *tile, unsigned at, const unsigned char *table,
			  unsigned lane)
{
	uint4 run = load_run(tile, at * TILE_RUN_BYTES, lane);
	uint4 above = *(const uint4 *)(table + at * 256 + lane / 4 * 16);
	uint4 below = *(const uint4 *)(table + at * 256 + 128 + lane / 4 * 16);
	uint2 high;
	high.x = high.y = 0;
	if (FORMAT == TILE_Q6_K)
		high = *(const uint2 *)(tile + 2048 + at / 2 * TILE_RUN_BYTES + lane * TILE_LANE_BYTES + at % 2 * 8);
	if (FORMAT == TILE_Q5_K)
		high.x = *(const unsigned *)(tile + 2048 + lane * TILE_LANE_BYTES + at * 4);
#pragma unroll
	for (int step = 0; step < 4; step++) {
		unsigned bits[4] = {F16_1024, F16_1024, F16_1024, F16_1024};
#pragma unroll
		for (int pair = 0; pair < 4; pair++) {
			if (FORMAT == TILE_Q6_K)
				bits[pair] = pair % 2 ? masked_or<0x03000300u>(shifted(step / 2 ? high.y : high.x, pair / 2 * 8 + step % 2 * 4 + 2 - 8), F16_1024)
						      : masked_or<0x00300030u>(shifted(step / 2 ? high.y : high.x, pair / 2 * 8 + step % 2 * 4 - 4), F16_1024);
			if (FORMAT == TILE_Q5_K)
				bits[pair] = pair % 2 ? masked_or<0x01000100u>(shifted(high.x, step / 2 * 4 + pair / 2 * 8 + step % 2 * 2 + 1 - 8), F16_1024)
						      : masked_or<0x00100010u>(shifted(high.x, step / 2 * 4 + pair / 2 * 8 + step % 2 * 2 - 4), F16_1024);
		}
		const fragment f = fragment_of_nibbles<FORMAT == TILE_Q6_K ? 32 : FORMAT == TILE_Q5_K ? 16 : 8>(
			word_of(run, step), bits);
#pragma unroll
		for (int pair = 0; pair < 4; pair++) {
			const uint4 &scales = pair % 2 ? below : above;
			out[step][pair] = FORMAT == TILE_Q6_K ? product_f16(f.pair[pair], word_of(scales, step))
							      : fused_f16(f.pair[pair], word_of(scales, step / 2 * 2),
									  word_of(scales, step / 2 * 2 + 1));
		}
	}
}

// 32 columns of a warp's 16 rows, as two fragments of f16, of other formats.
template <int FORMAT> INLINE void load_f16(unsigned (&out)[2][4], const unsigned char *tile, unsigned block, unsigned lane)
{
	block_of_weights w;
	load_block<FORMAT>(&w, tile, block, lane);
#pragma unroll
	for (int step = 0; step < 2; step++)
#pragma unroll
		for (int pair = 0; pair < 4; pair++) {
			unsigned q = w.step[step].pair[pair];
			if (FORMAT == TILE_F16) {
				out[step][pair] = q;
			} else {
				float d = pair % 2 ? w.lower[0] : w.upper[0];
				out[step][pair] = product_f16(q, pack_f16(d, d));
			}
		}
}

// ---- the block ----

// The block's rows of the matrix, in tiles: of one matrix, or half of them of gate and half of up; and its rows of
// activations.
struct wide_place {
	stage_matrix m;
	unsigned tile0, before; // before: tiles of the matrices before
	unsigned row0, rows_end;
};
template <int FORMAT, int WIDTH> INLINE wide_place place_of_block(const wide_params &p)
{
	wide_place at;
	at.tile0 = BLOCK_Y * ROW_TILES;
	at.before = 0;
	at.row0 = BLOCK_X * WIDTH;
	at.rows_end = p.rows;
	at.m = p.matrices[0];
	if (p.mode == GEMV_GATED) {
		at.tile0 /= 2;
		return at;
	}
#pragma unroll
	for (unsigned i = 1; i < 3; i++) {
		unsigned blocks = (at.m.row_tiles + ROW_TILES - 1) / ROW_TILES * ROW_TILES;
		if (i >= p.matrix_count || at.tile0 < blocks)
			break;
		at.tile0 -= blocks;
		at.before += at.m.row_tiles;
		at.m = p.matrices[i];
	}
	return at;
}

struct wide_rings { // in shared memory
	unsigned x, weights, full_x, empty, full_weights;
};

// Everything that the block needs, in its order; by one warp.
template <int FORMAT, int WIDTH>
INLINE void wide_copies(const wide_params &p, const wide_place &at, u64 expert, const wide_rings &rings, unsigned first,
			unsigned chunks)
{
	typedef shape_of<FORMAT> S;
	typedef wide_shape_of<FORMAT, WIDTH> W;
	enum { ROWS = WIDTH < 128 ? WIDTH : 128, COPIES = W::NARROW ? W::X_STEPS : WIDTH / ROWS, COPY_BYTES = ROWS * STEP_BYTES };
	unsigned lane = THREAD_X % 32, tile = at.tile0 + lane, fetched = 0;
	stage_matrix m = at.m;
	if (p.mode == GEMV_GATED && lane >= ROW_TILES / 2) {
		m = p.matrices[1];
		tile -= ROW_TILES / 2;
	}
	tile = tile < m.row_tiles ? tile : m.row_tiles - 1; // results beyond the end are not stored
	const unsigned char *from = m.tiles + (expert * m.row_tiles + tile) * m.column_tiles * S::BYTES + (u64)first * S::CHUNK;
	auto fetch_weights = [&]() {
		unsigned slot = fetched % W::CHUNKS;
		if (!lane)
			gate_expect(rings.full_weights + slot * 8, W::CHUNK_BYTES);
		warp_barrier();
		if (lane < ROW_TILES)
			copy_bulk(rings.weights + slot * W::CHUNK_BYTES + lane * S::CHUNK, from + (u64)fetched * S::CHUNK, S::CHUNK,
				  rings.full_weights + slot * 8);
		fetched++;
	};
	while (fetched < W::CHUNKS && fetched < chunks)
		fetch_weights();
	wait_for_previous(); // weights depend on no kernel before
	unsigned column_steps = p.padded / GEMM_DEPTH;
	const unsigned char *x = (const unsigned char *)p.x;
	u64 x_step = W::NARROW ? (u64)p.x_rows * STEP_BYTES : WIDE_BLOCK_BYTES;
	x += W::NARROW ? (u64)at.row0 * STEP_BYTES + lane * x_step
		       : (u64)(BLOCK_X * COPIES + lane) * column_steps * WIDE_BLOCK_BYTES;
	x += first * S::STEPS * x_step;
	for (unsigned chunk = 0, copy = 0; chunk < chunks; chunk++) {
#pragma unroll
		for (unsigned i = 0; i < S::STEPS / W::X_STEPS; i++, copy++, x += W::X_STEPS * x_step) {
			unsigned slot = copy % W::X_COPIES;
			if (copy >= W::X_COPIES)
				gate_wait(rings.empty + slot * 8, (copy / W::X_COPIES - 1) % 2);
			if (!lane)
				gate_expect(rings.full_x + slot * 8, W::X_BYTES);
			warp_barrier();
			if (lane < COPIES)
				copy_bulk(rings.x + slot * W::X_BYTES + lane * COPY_BYTES, x, COPY_BYTES, rings.full_x + slot * 8);
		}
		// A chunk whose steps have all been multiplied is not needed any more.
		if (copy > W::X_COPIES && fetched < chunks)
			fetch_weights();
	}
}

// The sums of a warp group, all steps: at least one, and whole chunks and pairs.
template <int FORMAT, int WIDTH>
INLINE void wide_products(float (&sum)[WIDTH / 2], const wide_rings &rings, unsigned char *weights, unsigned steps)
{
	typedef shape_of<FORMAT> S;
	typedef wide_shape_of<FORMAT, WIDTH> W;
	unsigned warp = THREAD_X / 32 - 4, lane = THREAD_X % 32;
	// The products of a step are in flight while the next step's weights are made. The compiler waits for each product
	// (C7515) where it sees the sums set on any way to the last wait: so they are set before a loop that runs at least once.
	enum { AHEAD = 1, UNROLLED = S::STEPS > 1 ? S::STEPS : 2 };
#pragma unroll
	for (unsigned i = 0; i < WIDTH / 2; i++)
		sum[i] = 0;
	unsigned a[2][4][4];
	float others[4] = {0, 0, 0, 0}; // of FEW: of each second fragment
	unsigned char *table = weights + W::CHUNKS * W::CHUNK_BYTES + warp * WIDE_TABLE_BYTES;
	unsigned first = 0;
	do {
#pragma unroll
		for (unsigned i = 0; i < UNROLLED; i++) {
			const unsigned step = first + i, copy = step / W::X_STEPS, chunk = step / S::STEPS, odd = i % 2;
			if (i % S::STEPS == 0)
				gate_wait(rings.full_weights + chunk % W::CHUNKS * 8, chunk / W::CHUNKS % 2);
			const unsigned char *tile = weights + chunk % W::CHUNKS * W::CHUNK_BYTES + warp * S::CHUNK;
			if (has_table(FORMAT)) {
				if (i % S::STEPS == 0) {
					warp_barrier();
					make_table<FORMAT>(table, tile, lane);
					warp_barrier();
				}
				load_by_table<FORMAT>(a[odd], tile, i % S::STEPS, table, lane);
			}
#pragma unroll
			for (unsigned half = 0; !has_table(FORMAT) && half < 2; half++) {
				unsigned(&two)[2][4] = *(unsigned(*)[2][4]) & a[odd][half * 2];
				if (S::TILES == 2)
					load_f16<FORMAT>(two, tile + half * S::BYTES, 0, lane);
				else
					load_f16<FORMAT>(two, tile, i % S::STEPS * 2 + half, lane);
			}
			if (i % W::X_STEPS == 0)
				gate_wait(rings.full_x + copy % W::X_COPIES * 8, copy / W::X_COPIES % 2);
			if (W::FEW) {
				multiply_eight(sum, others, a[odd],
					       rings.x + copy % W::X_COPIES * W::X_BYTES + i % W::X_STEPS * WIDTH * STEP_BYTES, lane);
				if (i % W::X_STEPS == W::X_STEPS - 1) {
					warp_barrier();
					if (!lane)
						gate_arrive(rings.empty + copy % W::X_COPIES * 8);
				}
				continue;
			}
			// Made before the products begin: not to be left to the compiler.
#pragma unroll
			for (unsigned k = 0; k < 16; k++)
				asm volatile("" : "+r"(a[odd][k / 4][k % 4])::"memory");
			u64 x = describe(rings.x + copy % W::X_COPIES * W::X_BYTES + i % W::X_STEPS * WIDTH * STEP_BYTES);
			products_begin();
#pragma unroll
			for (unsigned k = 0; k < 4; k++)
				multiply_wide(sum, a[odd][k], x + k * 2);
			products_end();
			products_wait<AHEAD>();
			// All of the copy's steps but those that are in flight.
			if ((i + UNROLLED - AHEAD) % W::X_STEPS == W::X_STEPS - 1 && (int)step >= AHEAD && !lane)
				gate_arrive(rings.empty + (step - AHEAD) / W::X_STEPS % W::X_COPIES * 8);
		}
	} while ((first += UNROLLED) < steps);
	if (!W::FEW)
		products_wait<0>();
#pragma unroll
	for (unsigned i = 0; W::FEW && i < 4; i++)
		sum[i] += others[i];
}

INLINE float4 load_four(const float *from, bool aligned)
{
	float4 v;
	if (aligned)
		return load_fresh(from);
	v.x = load_fresh_1(from);
	v.y = load_fresh_1(from + 1);
	v.z = load_fresh_1(from + 2);
	v.w = load_fresh_1(from + 3);
	return v;
}

// Store four values to y, or one of them.
INLINE void wide_put(const wide_params &p, const stage_matrix &m, unsigned row, unsigned at, float4 v)
{
	float *y = p.y + (u64)row * p.y_stride + m.first + at;
	float values[4] = {v.x, v.y, v.z, v.w};
	bool aligned = (p.y_stride | m.first | m.rows) % 4 == 0;
	if (aligned) {
		if (m.bias) {
			float4 bias = *(const float4 *)(m.bias + at);
			v.x += bias.x;
			v.y += bias.y;
			v.z += bias.z;
			v.w += bias.w;
		}
		if (p.mode == GEMV_ADD) {
			float4 old = load_fresh(y);
			v.x += old.x;
			v.y += old.y;
			v.z += old.z;
			v.w += old.w;
		}
		*(float4 *)y = v;
		return;
	}
#pragma unroll
	for (unsigned i = 0; i < 4; i++)
		if (at + i < m.rows) {
			float value = m.bias ? values[i] + m.bias[at + i] : values[i];
			y[i] = p.mode == GEMV_ADD ? load_fresh_1(y + i) + value : value;
		}
}

// Results, from shared memory (rows of activations, WIDE_STRIDE), by all threads of the two groups.
template <int WIDTH> INLINE void wide_store(const wide_params &p, const wide_place &at, const float *sums)
{
	unsigned thread = THREAD_X - 128, row0 = at.row0, four = thread % 32 * 4;
	bool gated = p.mode == GEMV_GATED;
	if (gated) {
		four = thread % 16 * 4;
		unsigned column = at.tile0 * TILE_ROWS + four;
#pragma unroll 4
		for (unsigned row = thread / 16; row < WIDTH && row0 + row < at.rows_end; row += 16) {
			if (column >= at.m.rows)
				break;
			float factor = p.factors[row0 + row];
			const float *gate = sums + row * WIDE_STRIDE + four, *up = gate + 64;
			float4 v;
			v.x = silu(gate[0] * factor) * (up[0] * factor);
			v.y = silu(gate[1] * factor) * (up[1] * factor);
			v.z = silu(gate[2] * factor) * (up[2] * factor);
			v.w = silu(gate[3] * factor) * (up[3] * factor);
			wide_put(p, at.m, row0 + row, column, v);
		}
		return;
	}
	unsigned column = at.tile0 * TILE_ROWS + four, part_column = at.before * TILE_ROWS + column;
	if (p.splits > 1) {
		__shared__ unsigned before;
		u64 place = (u64)BLOCK_Y * BLOCKS + BLOCK_X;
#pragma unroll 4
		for (unsigned row = thread / 32; row < WIDTH && row0 + row < at.rows_end; row += 8)
			if (column < at.m.row_tiles * TILE_ROWS)
				*(float4 *)(p.partial + ((u64)BLOCK_Z * p.rows + row0 + row) * p.part_rows + part_column) =
					*(const float4 *)(sums + row * WIDE_STRIDE + four);
		asm volatile("membar.gl;" ::: "memory");
		barrier(1, 256);
		if (!thread) {
			unsigned old;
			asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(p.ready + place) : "memory");
			before = old;
			if (old == p.splits - 1)
				p.ready[place] = 0;
		}
		barrier(1, 256);
		if (before != p.splits - 1)
			return;
		asm volatile("membar.gl;" ::: "memory");
	}
	if (column >= at.m.rows)
		return;
#pragma unroll 4
	for (unsigned row = thread / 32; row < WIDTH; row += 8) {
		if (row0 + row >= at.rows_end)
			break;
		float4 v = *(const float4 *)(sums + row * WIDE_STRIDE + four);
		float factor = p.factors[row0 + row];
		if (p.splits > 1) {
			v.x = v.y = v.z = v.w = 0;
			for (unsigned s = 0; s < p.splits; s++) {
				float4 part = load_fresh(p.partial + ((u64)s * p.rows + row0 + row) * p.part_rows + part_column);
				v.x += part.x;
				v.y += part.y;
				v.z += part.z;
				v.w += part.w;
			}
		}
		v.x *= factor;
		v.y *= factor;
		v.z *= factor;
		v.w *= factor;
		wide_put(p, at.m, row0 + row, column, v);
	}
}

template <int FORMAT, int WIDTH> INLINE void wide(const wide_params &p)
{
	typedef shape_of<FORMAT> S;
	typedef wide_shape_of<FORMAT, WIDTH> W;
	static_assert(W::X_COPIES * W::X_STEPS <= W::CHUNKS * S::STEPS, "or the last chunks are never fetched");
	__shared__ u64 gates[2 * W::X_COPIES + W::CHUNKS];
	// shared: activations (X_COPIES, X_STEPS, WIDTH, 64), chunks of weights; in the end results, instead. stage_wide.c adds up
	// the same.
	unsigned begin = (shared_place(shared) + 1023) / 1024 * 1024;
	unsigned char *rings_at = shared + (begin - shared_place(shared));
	const wide_rings rings = {begin, begin + W::X_COPIES * W::X_BYTES, shared_place(gates),
				  shared_place(gates + W::X_COPIES), shared_place(gates + 2 * W::X_COPIES)};
	wide_place at = place_of_block<FORMAT, WIDTH>(p);
	u64 expert = 0;
	// Splits and pairs of steps end together.
	unsigned two = S::STEPS == 1 ? 2 : 1, chunks = at.m.column_tiles / S::TILES / two;
	unsigned first = BLOCK_Z * chunks / p.splits * two, last = (BLOCK_Z + 1) * chunks / p.splits * two;
	let_next_begin();
	if (W::NARROW && p.groups) { // which weights depends on the kernels before
		wait_for_previous();
		const gemm_group *group = p.groups + BLOCK_X;
		at.row0 = load_fresh_word(&group->first);
		at.rows_end = load_fresh_word(&group->last);
		expert = load_fresh_word(&group->expert);
		if (at.row0 >= at.rows_end)
			return;
	}
	if (!THREAD_X) {
		for (unsigned i = 0; i < W::X_COPIES; i++) {
			gate_init(rings.full_x + i * 8, 1);
			gate_init(rings.empty + i * 8, 8);
		}
		for (unsigned i = 0; i < W::CHUNKS; i++)
			gate_init(rings.full_weights + i * 8, 1);
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	block_barrier();
	if (THREAD_X < 128) {
		if (W::NARROW)
			asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
		else
			asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
		if (THREAD_X < 32)
			wide_copies<FORMAT, WIDTH>(p, at, expert, rings, first, last - first);
	} else {
		if (W::NARROW)
			asm volatile("setmaxnreg.inc.sync.aligned.u32 104;");
		else
			asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
		float sum[WIDTH / 2];
		wide_products<FORMAT, WIDTH>(sum, rings, rings_at + W::X_COPIES * W::X_BYTES, (last - first) * S::STEPS);
		// The lane 4 g + j has rows g and g + 8 of a warp's 16, for activations 2 j and 2 j + 1 of each 8.
		unsigned lane = THREAD_X % 32, row = THREAD_X / 32 % 4 * 16 + lane / 4 + (THREAD_X / 128 - 1) * 64;
		float *sums = (float *)rings_at;
		barrier(1, 256); // no thread needs the rings any more
#pragma unroll
		for (unsigned i = 0; i < WIDTH / 2; i++)
			sums[(i / 4 * 8 + lane % 4 * 2 + i % 2) * WIDE_STRIDE + row + i % 4 / 2 * 8] = sum[i];
		barrier(1, 256);
		wait_for_previous(); // of this group's own
		wide_store<WIDTH>(p, at, sums);
	}
}

// One format in a file, so that a model loads only the formats that it has.
#define WIDE_ONE(name, format, width, blocks) \
	extern "C" __global__ void __launch_bounds__(WIDE_THREADS, blocks) name(const CONSTANT wide_params p) \
	{ \
		wide<format, width>(p); \
	}
#define WIDE(name, format) \
	WIDE_ONE(name##_8, format, 8, 2) \
	WIDE_ONE(name##_16, format, 16, 2) \
	WIDE_ONE(name##_32, format, 32, 2) \
	WIDE_ONE(name##_64, format, 64, 2) \
	WIDE_ONE(name##_128, format, 128, 1) \
	WIDE_ONE(name##_256, format, 256, 1)
