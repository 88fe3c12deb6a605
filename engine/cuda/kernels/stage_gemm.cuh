// A matrix by many rows of activations: prompts, and decoding of many sequences.
//
// A block makes 128 rows of results by 32 or 128 rows of activations. Both come in steps of 64 columns through rings in
// shared memory: weights as their tiles are, activations with their 16-byte pieces crossed so that no bank is met
// twice. Weights become f16 (or bf16) in registers; where a format has scales, they are multiplied into the f32 sums of
// each block of columns, so that nothing is rounded but the activations. Where there are fewer blocks than
// multiprocessors the columns are split, and whichever block of a place is last adds the parts up, in their order.
#pragma once
#include "stage.cuh"

enum { ROW_TILES = 8, STEP_BYTES = GEMM_DEPTH * 2 }; // of a block; of a row of activations

template <int FORMAT> struct shape_of {
	enum {
		WIDE = FORMAT == TILE_F32 || FORMAT == TILE_BF16,
		PLANES = WIDE ? 2 : 1,
		STAGES = FORMAT == TILE_F32 ? 2 : 3,
		COLUMNS = FORMAT <= TILE_BF16 ? 32 : FORMAT == TILE_Q8_0 ? 64 : FORMAT <= TILE_MXFP4 ? 128 : 256,
		BYTES = FORMAT == TILE_F32	       ? 2048
			: FORMAT <= TILE_BF16	       ? 1024
			: FORMAT == TILE_Q8_0 ? 1088
			: FORMAT == TILE_Q4_0 ? 1152
			: FORMAT == TILE_MXFP4 ? 1088
			: FORMAT == TILE_Q4_K ? 2304
			: FORMAT == TILE_Q5_K ? 2816
					      : 3360,
		STEPS = COLUMNS > GEMM_DEPTH ? COLUMNS / GEMM_DEPTH : 1, // of a chunk of weights
		TILES = COLUMNS < GEMM_DEPTH ? GEMM_DEPTH / COLUMNS : 1,
		CHUNK = TILES * BYTES, // of 16 rows
		CHUNKS = STEPS > 1 ? 2 : STAGES,
	};
};

template <int NT, int PLANES> struct held { // of 32 columns
	uint2 v[PLANES][2][NT];
	INLINE_METHOD uint2 get(int plane, unsigned step, int nt) const { return v[plane ? plane - 1 : 0][step][nt]; }
};

template <int FORMAT, int WIDTH> INLINE void gemm(const gemm_params &p)
{
	typedef shape_of<FORMAT> S;
	enum { MT = WIDTH == 32 ? 1 : 2, NT = WIDTH == 32 ? 4 : 8, ACROSS = WIDTH == 32 ? 1 : 2 };
	enum { PLANE_BYTES = WIDTH * STEP_BYTES, STAGE_BYTES = PLANE_BYTES * S::PLANES, CHUNK_BYTES = S::CHUNK * ROW_TILES };
	unsigned warp = THREAD_X / 32, lane = THREAD_X % 32;
	unsigned tile0 = BLOCK_X * ROW_TILES, row0 = BLOCK_Y * WIDTH, rows_end = p.rows, split = BLOCK_Z;
	float *results = p.y;
	unsigned mine = warp / ACROSS * MT, across = warp % ACROSS * NT * 8;
	const stage_matrix &m = p.matrix;
	const unsigned char *tiles = m.tiles;
	const float *bias = m.bias;
	let_next_begin();
	if (p.groups) { // which weights depends on the kernels before
		wait_for_previous();
		const gemm_group *group = p.groups + BLOCK_Y;
		row0 = load_fresh_word(&group->first);
		rows_end = load_fresh_word(&group->last);
		unsigned expert = load_fresh_word(&group->expert);
		tiles += (u64)expert * m.row_tiles * m.column_tiles * S::BYTES;
		bias = bias ? bias + (u64)expert * m.rows : bias;
		if (row0 >= rows_end)
			return;
	}
	if (p.head_rows) {
		unsigned blocks = (p.head_rows + WIDTH - 1) / WIDTH, head = BLOCK_Y / blocks, before = head * p.head_rows;
		row0 = before + BLOCK_Y % blocks * WIDTH;
		rows_end = before + p.head_rows;
		tiles += (u64)head * m.row_tiles * m.column_tiles * S::BYTES;
		results += (u64)head * p.y_head - (u64)before * p.y_stride;
	}
	unsigned chunks = m.column_tiles / S::TILES;
	unsigned first = split * chunks / p.splits, last = (split + 1) * chunks / p.splits;
	unsigned steps = (last - first) * S::STEPS;
	unsigned places = shared_place(shared), weights = places + S::STAGES * STAGE_BYTES;
	const unsigned char *chunk_bytes = shared + S::STAGES * STAGE_BYTES;
	float sum[MT][NT][4];
#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int j = 0; j < NT; j++)
			clear(sum[i][j]);

	// Weights of a chunk, counted from this split's first.
	auto fetch_weights = [&](unsigned chunk) {
		unsigned to = weights + chunk % S::CHUNKS * CHUNK_BYTES;
		for (unsigned i = THREAD_X; i < CHUNK_BYTES / 16; i += GEMM_THREADS) {
			unsigned tile = i / (S::CHUNK / 16), at = i % (S::CHUNK / 16) * 16;
			bool there = tile0 + tile < m.row_tiles;
			const unsigned char *from = tiles +
						    (u64)(there ? tile0 + tile : 0) * m.column_tiles * S::BYTES +
						    (u64)(first + chunk) * S::CHUNK + at;
			copy_16_if(to + i * 16, from, there);
		}
	};
	auto fetch_rows = [&](unsigned step) {
		unsigned to = places + step % S::STAGES * STAGE_BYTES, column = first * S::STEPS + step;
		for (unsigned i = THREAD_X; i < STAGE_BYTES / 16; i += GEMM_THREADS) {
			unsigned plane = i / (PLANE_BYTES / 16), row = i % (PLANE_BYTES / 16) / 8, piece = i % 8;
			bool there = row0 + row < rows_end;
			const unsigned short *from = p.x +
						     ((u64)(there ? row0 + row : 0) * p.planes + p.plane + plane) * p.padded +
						     column * GEMM_DEPTH + piece * 8;
			copy_16_if(to + plane * PLANE_BYTES + row * STEP_BYTES + ((piece ^ (row & 7)) * 16), from, there);
		}
	};

	// Weights of a matrix depend on no kernel before.
	for (unsigned step = 0; step < S::STAGES - 1; step++)
		if (step < steps && step % S::STEPS == 0)
			fetch_weights(step / S::STEPS);
	wait_for_previous();
	for (unsigned step = 0; step < S::STAGES - 1; step++) {
		if (step < steps)
			fetch_rows(step);
		copies_end();
	}
	for (unsigned step = 0; step < steps; step++) {
		copies_wait<S::STAGES - 2>();
		block_barrier(); // this step is there, and no thread reads the previous one any more
		unsigned ahead = step + S::STAGES - 1;
		if (ahead < steps) {
			if (ahead % S::STEPS == 0)
				fetch_weights(ahead / S::STEPS);
			fetch_rows(ahead);
		}
		copies_end();
		warp_barrier();
		unsigned rows = places + step % S::STAGES * STAGE_BYTES;
		const unsigned char *chunk = chunk_bytes + step / S::STEPS % S::CHUNKS * CHUNK_BYTES + mine * S::CHUNK;
#pragma unroll
		for (unsigned half = 0; half < 2; half++) {
			held<NT, S::PLANES> b;
#pragma unroll
			for (int plane = 0; plane < S::PLANES; plane++)
#pragma unroll
				for (unsigned k = 0; k < 2; k++)
#pragma unroll
					for (int nt = 0; nt < NT; nt += 2) {
						// matrices: rows 0 to 7 and both halves of the step, then rows 8 to 15
						unsigned row = across + nt * 8 + lane / 16 * 8 + lane % 8;
						unsigned piece = (half * 2 + k) * 2 + lane / 8 % 2;
						uint4 four = load_matrices(rows + plane * PLANE_BYTES + row * STEP_BYTES +
									   ((piece ^ (row & 7)) * 16));
						b.v[plane][k][nt].x = four.x;
						b.v[plane][k][nt].y = four.y;
						b.v[plane][k][nt + 1].x = four.z;
						b.v[plane][k][nt + 1].y = four.w;
					}
#pragma unroll
			for (int i = 0; i < MT; i++) {
				const unsigned char *tile = chunk + i * S::CHUNK;
				if (S::TILES == 2)
					multiply_block<FORMAT, NT>(sum[i], tile + half * S::BYTES, 0, lane, b);
				else
					multiply_block<FORMAT, NT>(sum[i], tile, step % S::STEPS * 2 + half, lane, b);
			}
		}
	}
	copies_wait<0>();

	// Results: of lane 4 g + j rows g and g + 8 of a tile, and two rows of activations.
	__shared__ unsigned before;
	u64 place = (u64)BLOCK_Y * BLOCKS + BLOCK_X;
	if (p.splits > 1) {
		unsigned padded_rows = m.row_tiles * TILE_ROWS;
#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int nt = 0; nt < NT; nt++)
#pragma unroll
				for (int e = 0; e < 4; e++) {
					unsigned at = (tile0 + mine + i) * TILE_ROWS + lane / 4 + e / 2 * 8;
					unsigned row = row0 + across + nt * 8 + lane % 4 * 2 + e % 2;
					if (at < padded_rows && row < rows_end)
						p.partial[((u64)split * p.rows + row) * padded_rows + at] = sum[i][nt][e];
				}
		asm volatile("membar.gl;" ::: "memory");
		block_barrier();
		if (!THREAD_X) {
			unsigned old;
			asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(p.ready + place) : "memory");
			before = old;
		}
		block_barrier();
		if (before != p.splits - 1)
			return;
		asm volatile("membar.gl;" ::: "memory");
		if (!THREAD_X)
			p.ready[place] = 0;
#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int nt = 0; nt < NT; nt++)
				clear(sum[i][nt]);
		for (unsigned s = 0; s < p.splits; s++) {
			const float *part = p.partial + (u64)s * p.rows * padded_rows;
#pragma unroll
			for (int i = 0; i < MT; i++)
#pragma unroll
				for (int nt = 0; nt < NT; nt++)
#pragma unroll
					for (int e = 0; e < 4; e++) {
						unsigned at = (tile0 + mine + i) * TILE_ROWS + lane / 4 + e / 2 * 8;
						unsigned row = row0 + across + nt * 8 + lane % 4 * 2 + e % 2;
						if (at < padded_rows && row < rows_end)
							sum[i][nt][e] += load_fresh_1(part + (u64)row * padded_rows + at);
					}
		}
	}
#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int nt = 0; nt < NT; nt++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				unsigned at = (tile0 + mine + i) * TILE_ROWS + lane / 4 + e / 2 * 8;
				unsigned row = row0 + across + nt * 8 + lane % 4 * 2 + e % 2;
				if (at >= m.rows || row >= rows_end)
					continue;
				float value = sum[i][nt][e];
				value *= p.factors[row];
				float *y = results + (u64)row * p.y_stride + m.first + at;
				if (bias)
					value += bias[at];
				*y = p.mode == GEMV_ADD ? load_fresh_1(y) + value : value;
			}
}

// One format in a file, so that a model loads only the formats that it has.
#define GEMM(name, format) \
	extern "C" __global__ void __launch_bounds__(GEMM_THREADS) name##_32(const CONSTANT gemm_params p) \
	{ \
		gemm<format, 32>(p); \
	} \
	extern "C" __global__ void __launch_bounds__(GEMM_THREADS) name##_128(const CONSTANT gemm_params p) \
	{ \
		gemm<format, 128>(p); \
	}
