// The kernels of a stage that are not products: tokens to rows, norms and rounding before products of many rows, the
// largest logit, and tiles from the file's bytes.
#include "stage.cuh"

enum { ROWS_BLOCK = 256, PREPARE_BLOCK = 512, PREPARE_WARPS = PREPARE_BLOCK / 32, PREPARE_HELD = 7, ARGMAX_BLOCK = 256, CANDIDATES_BLOCK = 1024 };

INLINE unsigned tile_word(const unsigned char *tile, unsigned at) { return *(const unsigned *)(tile + at / 4 * 4); }
INLINE float tile_half(const unsigned char *tile, unsigned at) { return low_f16(*(const unsigned short *)(tile + at)); }

// One value of a tile, in the file's format.
INLINE float tile_value(const unsigned char *tile, unsigned format, unsigned row, unsigned column)
{
	const struct tile_place at = tile_place(row, column);
	unsigned lane = at.lane * TILE_LANE_BYTES, step = at.step, within = at.second * 16;
	if (format == TILE_F32)
		return *(const float *)(tile + (step * 2 + at.pair / 2) * TILE_RUN_BYTES + lane + (at.pair % 2 * 2 + at.second) * 4);
	if (format == TILE_F16 || format == TILE_BF16) {
		unsigned word = tile_word(tile, step * TILE_RUN_BYTES + lane + at.pair * 4) >> within;
		return format == TILE_F16 ? low_f16(word & 0xffff) : low_bf16(word);
	}
	if (format == TILE_Q8_0) {
		unsigned byte = step % 2 * 8 + at.pair % 2 * 4 + at.pair / 2 + 2 * at.second;
		float q = (float)(signed char)tile[step / 2 * TILE_RUN_BYTES + lane + byte];
		return tile_half(tile, 1024 + row % 8 * 8 + (row / 8 * 2 + column / 32) * 2) * q;
	}
	unsigned nibbles = tile_word(tile, step / 4 * TILE_RUN_BYTES + lane + step % 4 * 4);
	unsigned q = nibbles >> (at.pair + 4 * at.second) * 4 & 15, byte = at.pair / 2 + 2 * at.second;
	if (format == TILE_Q4_0)
		return tile_half(tile, 1024 + row % 8 * 16 + (row / 8 * 4 + column / 32) * 2) * (float)((int)q - 8);
	if (format == TILE_MXFP4) { // a half of e2m1, 2^-14 of it, as in fragments
		float e2m1 = low_f16((q & 7) << 9 | (q & 8) << 12);
		return e2m1 * e8m0_fragment(tile[1024 + row % 8 * 8 + row / 8 * 4 + column / 32]);
	}
	if (format == TILE_Q6_K) {
		unsigned high = tile_word(tile, 2048 + step / 8 * TILE_RUN_BYTES + lane + step % 8 / 2 * 4);
		q |= (high >> (byte * 8 + (step % 2 * 2 + at.pair % 2) * 2) & 3) << 4;
		float scale = (float)(signed char)tile[3072 + row * 16 + column / 16];
		return tile_half(tile, 3328 + row * 2) * scale * (float)((int)q - 32);
	}
	if (format == TILE_Q5_K) {
		unsigned high = tile_word(tile, 2048 + lane + step / 4 * 4);
		q |= (high >> (byte * 8 + step % 4 * 2 + at.pair % 2) & 1) << 4;
	}
	uint4 head = *(const uint4 *)(tile + 2048 + (format == TILE_Q5_K ? 512 : 0) + row * 16);
	unsigned scales = head_scales(head, column / 32);
	float least = high_f16(head.x) * (float)(scales >> 8);
	return FUSED(low_f16(head.x) * (float)(scales & 63), (float)q, -least);
}

extern "C" __global__ void __launch_bounds__(ROWS_BLOCK) embed(const CONSTANT embed_params p)
{
	unsigned row = BLOCK_X, columns = tile_columns(p.table.format), bytes = tile_bytes(p.table.format);
	let_next_begin();
	wait_for_previous();
	unsigned token = p.tokens[row];
	const unsigned char *tiles = p.table.tiles + (u64)(token / TILE_ROWS) * p.table.column_tiles * bytes;
	for (unsigned k = BLOCK_Y * ROWS_BLOCK + THREAD_X; k < p.columns; k += ROWS_BLOCK * BLOCKS_Y)
		p.x[(u64)row * p.columns + k] =
			p.scale * tile_value(tiles + k / columns * bytes, p.table.format, token % TILE_ROWS, k % columns);
}

// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: to 1.5e-7.
INLINE float error_function(float x)
{
	float t = quotient(1, 1 + 0.3275911f * absolute(x));
	float sum = t * (0.254829592f +
			 t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
	float value = 1 - sum * exp_of(-x * x);
	return x < 0 ? -value : value;
}

INLINE float sum_of_block(float mine, float *scratch) // (ROWS_BLOCK / 32)
{
	float sum = 0;
	mine = warp_sum(mine);
	block_barrier();
	if (THREAD_X % 32 == 0)
		scratch[THREAD_X / 32] = mine;
	block_barrier();
	for (unsigned i = 0; i < ROWS_BLOCK / 32; i++)
		sum += scratch[i];
	return sum;
}

// The operations that only layers of encoders have.
INLINE void encode(const post_params &p, u64 row, float *scratch)
{
	if (p.mode == POST_GELU) {
		for (unsigned k = THREAD_X; k < p.columns; k += ROWS_BLOCK) {
			float x = load_fresh_1(p.from + row + k) + p.bias[k];
			p.to[row + k] = 0.5f * x * (1 + error_function(x * 0.70710678f));
		}
		return;
	}
	float sum = 0, squares = 0;
	for (unsigned k = THREAD_X; k < p.columns; k += ROWS_BLOCK)
		sum += load_fresh_1(p.from + row + k) + (p.bias ? p.bias[k] : 0);
	float mean = quotient(sum_of_block(sum, scratch), (float)p.columns);
	for (unsigned k = THREAD_X; k < p.columns; k += ROWS_BLOCK) {
		float x = load_fresh_1(p.from + row + k) + (p.bias ? p.bias[k] : 0) - mean;
		squares += x * x;
	}
	squares = sum_of_block(squares, scratch);
	float factor = quotient(1, root_of(quotient(squares, (float)p.columns) + p.epsilon));
	for (unsigned k = THREAD_X; k < p.columns; k += ROWS_BLOCK) {
		float x = load_fresh_1(p.from + row + k) + (p.bias ? p.bias[k] : 0) - mean;
		p.to[row + k] = x * factor * p.norm[k] + p.shift[k];
	}
}

// One block for each row.
extern "C" __global__ void __launch_bounds__(ROWS_BLOCK) post(const CONSTANT post_params p)
{
	__shared__ float scratch[ROWS_BLOCK / 32];
	u64 row = (u64)BLOCK_X * p.stride;
	float squares = 0;
	let_next_begin();
	wait_for_previous();
	if (p.mode >= POST_END) {
		encode(p, row, scratch);
		return;
	}
	for (unsigned k = THREAD_X; k < p.columns; k += ROWS_BLOCK) {
		float x = load_fresh_1(p.from + row + k);
		squares += x * x;
	}
	squares = warp_sum(squares);
	if (THREAD_X % 32 == 0)
		scratch[THREAD_X / 32] = squares;
	block_barrier();
	squares = 0;
	for (unsigned i = 0; i < ROWS_BLOCK / 32; i++)
		squares += scratch[i];
	float factor = quotient(1, root_of(squares / (float)p.columns + p.epsilon));
	for (unsigned k = THREAD_X; k < p.columns; k += ROWS_BLOCK) {
		float x = load_fresh_1(p.from + row + k) * factor * p.norm[k];
		p.to[row + k] = p.mode == POST_ADD ? load_fresh_1(p.to + row + k) + x : x;
	}
}

INLINE float4 input_of(const prepare_params &p, u64 from, unsigned k)
{
	float4 v = load_fresh(p.x + from + k);
	if (p.gate) {
		float4 gate = load_fresh(p.gate + from + k);
		v.x = gated(gate.x, v.x, p.kind);
		v.y = gated(gate.y, v.y, p.kind);
		v.z = gated(gate.z, v.z, p.kind);
		v.w = gated(gate.w, v.w, p.kind);
	}
	return v;
}
INLINE float4 normed(const prepare_params &p, float4 v, unsigned k)
{
	if (p.norm) {
		float4 w = *(const float4 *)(p.norm + k);
		v.x *= w.x;
		v.y *= w.y;
		v.z *= w.z;
		v.w *= w.w;
	}
	return v;
}
INLINE void store_pair(const prepare_params &p, unsigned short *to, float a, float b)
{
	if (p.halves) {
		*(unsigned *)to = pack_f16(a, b);
		to += p.padded;
	}
	if (p.pairs) {
		unsigned high = pack_bf16(a, b);
		*(unsigned *)to = high;
		*(unsigned *)(to + p.padded) = pack_bf16(a - low_bf16(high), b - high_bf16(high));
	}
}

// The place of column k of a row of halves, in blocks.
INLINE u64 block_place(const prepare_params &p, unsigned row, unsigned k)
{
	unsigned within = ((k % GEMM_DEPTH / 8) ^ (row % 8)) * 8 + k % 8;
	if (p.together)
		return ((u64)(k / GEMM_DEPTH) * p.together + row) * GEMM_DEPTH + within;
	u64 block = (u64)(row / WIDE_ROWS) * (p.padded / GEMM_DEPTH) + k / GEMM_DEPTH;
	return (block * WIDE_ROWS + row % WIDE_ROWS) * GEMM_DEPTH + within;
}

// The input of a product of many rows: as f16 or two bf16, scaled by row.
extern "C" __global__ void __launch_bounds__(PREPARE_BLOCK) prepare(const CONSTANT prepare_params p)
{
	__shared__ float scratch[2][PREPARE_WARPS];
	unsigned row = BLOCK_X;
	let_next_begin();
	wait_for_previous();
	unsigned source = row;
	if (p.places) {
		row = load_fresh_word(p.places + BLOCK_X);
		source = p.copies ? p.first_row + BLOCK_X / p.copies : row;
	}
	u64 from = (u64)(p.from ? load_fresh_word(p.from + row) : source) * p.x_stride;
	if (p.head_rows)
		from = (u64)(row % p.head_rows) * p.x_stride + row / p.head_rows * p.x_head;
	float squares = 0, most = 0;
	float4 held[PREPARE_HELD]; // all of a row, unless it is very long
	auto take = [&](float4 v, unsigned k) {
		squares += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
		v = normed(p, v, k);
		most = larger(most, larger(larger(absolute(v.x), absolute(v.y)), larger(absolute(v.z), absolute(v.w))));
		return v;
	};
#pragma unroll
	for (unsigned i = 0; i < PREPARE_HELD; i++) {
		unsigned k = (i * PREPARE_BLOCK + THREAD_X) * 4;
		held[i].x = held[i].y = held[i].z = held[i].w = 0;
		if (k < p.columns)
			held[i] = input_of(p, from, k);
	}
#pragma unroll
	for (unsigned i = 0; i < PREPARE_HELD; i++) {
		unsigned k = (i * PREPARE_BLOCK + THREAD_X) * 4;
		if (k < p.columns)
			held[i] = take(held[i], k);
	}
	for (unsigned k = (PREPARE_HELD * PREPARE_BLOCK + THREAD_X) * 4; k < p.columns; k += PREPARE_BLOCK * 4)
		take(input_of(p, from, k), k);
	squares = warp_sum(squares);
	most = warp_most(most);
	if (THREAD_X % 32 == 0) {
		scratch[0][THREAD_X / 32] = squares;
		scratch[1][THREAD_X / 32] = most;
	}
	block_barrier();
	squares = most = 0;
	for (unsigned i = 0; i < PREPARE_WARPS; i++) {
		squares += scratch[0][i];
		most = larger(most, scratch[1][i]);
	}
	float scale = scale_for(most);
	float factor = p.norm ? quotient(1, root_of(squares / (float)p.columns + p.epsilon)) : 1;
	if (!THREAD_X && p.factors)
		p.factors[row] = factor / scale;
	unsigned short *out = p.out + (u64)row * p.planes * p.padded;
	auto put = [&](float4 v, unsigned k) {
		unsigned short *to = p.blocks ? p.out + block_place(p, row, k) : out + k;
		store_pair(p, to, v.x * scale, v.y * scale);
		store_pair(p, to + 2, v.z * scale, v.w * scale);
		if (p.plain && k < p.columns) {
			float *plain = p.plain + (u64)row * p.columns + k;
			plain[0] = v.x * factor;
			plain[1] = v.y * factor;
			plain[2] = v.z * factor;
			plain[3] = v.w * factor;
		}
	};
#pragma unroll
	for (unsigned i = 0; i < PREPARE_HELD; i++) {
		unsigned k = (i * PREPARE_BLOCK + THREAD_X) * 4;
		if (k < p.padded)
			put(held[i], k);
	}
	for (unsigned k = (PREPARE_HELD * PREPARE_BLOCK + THREAD_X) * 4; k < p.padded; k += PREPARE_BLOCK * 4) {
		float4 v;
		v.x = v.y = v.z = v.w = 0;
		put(k < p.columns ? normed(p, input_of(p, from, k), k) : v, k);
	}
}

INLINE bool better(float a, unsigned i, float b, unsigned j) { return a > b || (a == b && i < j); }

// The best of a block's, to thread 0.
INLINE void best_of_block(float *value, unsigned *place)
{
	__shared__ float values[ARGMAX_BLOCK];
	__shared__ unsigned places[ARGMAX_BLOCK];
	values[THREAD_X] = *value;
	places[THREAD_X] = *place;
	for (unsigned half = ARGMAX_BLOCK / 2; half; half /= 2) {
		block_barrier();
		unsigned other = THREAD_X + half;
		if (THREAD_X < half && better(values[other], places[other], values[THREAD_X], places[THREAD_X])) {
			values[THREAD_X] = values[other];
			places[THREAD_X] = places[other];
		}
	}
	block_barrier();
	*value = values[0];
	*place = places[0];
	block_barrier();
}

// The largest logit's index, the lowest of equals; 0xffffffff (STAGE_NO_TOKEN) if one is NaN or infinite, which counts as
// larger than all. Blocks: (parts of a
// row, rows); the last one of a row puts its parts together.
extern "C" __global__ void __launch_bounds__(ARGMAX_BLOCK) argmax(const CONSTANT argmax_params p)
{
	__shared__ unsigned before;
	const float *logits = p.logits + (u64)BLOCK_Y * p.count;
	float *parts = p.partial + (u64)BLOCK_Y * BLOCKS * 2;
	let_next_begin();
	wait_for_previous();
	float most = __builtin_bit_cast(float, 0xff800000u);
	unsigned place = 0xffffffffu;
#pragma unroll 4
	for (unsigned i = BLOCK_X * ARGMAX_BLOCK + THREAD_X; i < p.count; i += ARGMAX_BLOCK * BLOCKS) {
		float value = load_fresh_1(logits + i);
		const bool bad = (__builtin_bit_cast(unsigned, value) & 0x7f800000u) == 0x7f800000u;
		if (bad) {
			most = __builtin_bit_cast(float, 0x7f7fffffu);
			place = 0xffffffffu;
		} else if (better(value, i, most, place)) {
			most = value;
			place = i;
		}
	}
	best_of_block(&most, &place);
	if (!THREAD_X) {
		unsigned old;
		parts[BLOCK_X * 2] = most;
		parts[BLOCK_X * 2 + 1] = __builtin_bit_cast(float, place);
		asm volatile("membar.gl;" ::: "memory");
		asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(p.ready + BLOCK_Y) : "memory");
		before = old;
	}
	block_barrier();
	if (before != BLOCKS - 1)
		return;
	asm volatile("membar.gl;" ::: "memory");
	most = __builtin_bit_cast(float, 0xff800000u);
	place = 0xffffffffu;
	for (unsigned i = THREAD_X; i < BLOCKS; i += ARGMAX_BLOCK) {
		most = load_fresh_1(parts + i * 2);
		place = __builtin_bit_cast(unsigned, load_fresh_1(parts + i * 2 + 1));
	}
	best_of_block(&most, &place);
	if (THREAD_X)
		return;
	p.out[BLOCK_Y] = place;
	p.ready[BLOCK_Y] = 0;
}

extern "C" __global__ void __launch_bounds__(ROWS_BLOCK) repack(const CONSTANT repack_params p)
{
	unsigned words = tile_bytes(p.source.format) / 4, columns = tile_columns(p.source.format);
	u64 count = (u64)p.row_tiles * p.column_tiles * words;
	for (u64 i = THREAD; i < count; i += THREADS) {
		u64 tile = i / words;
		p.out[i] = repack_word(&p.source, (unsigned)(tile / p.column_tiles) * TILE_ROWS,
				       (unsigned)(tile % p.column_tiles) * columns, (unsigned)(i % words));
	}
}

// The tokens of a row from which sampling chooses: those with the CANDIDATES_LEAST largest logits, and what else is as
// large as the least of them is for sure. The threads' own largest logits are sorted; as many tokens as wanted reach the
// one at that place, and threads without such a logit have none to tell. A count of 0: too many do, as where many are
// equal. What is not finite is no candidate: argmax tells it. A block for a row. Bound: reading the logits once, by one
// multiprocessor.
extern "C" __global__ void __launch_bounds__(CANDIDATES_BLOCK) candidates(const CONSTANT candidates_params p)
{
	__shared__ float sorted[CANDIDATES_BLOCK];
	__shared__ unsigned found;
	const float *logits = p.logits + (u64)BLOCK_X * p.count;
	candidate_list *out = p.out + BLOCK_X;
	let_next_begin();
	wait_for_previous();
	float most = __builtin_bit_cast(float, 0xff800000u);
#pragma unroll 8
	for (unsigned i = THREAD_X; i < p.count; i += CANDIDATES_BLOCK)
		most = larger(most, load_fresh_1(logits + i));
	sorted[THREAD_X] = most;
	if (!THREAD_X)
		found = 0;
	for (unsigned size = 2; size <= CANDIDATES_BLOCK; size *= 2)
		for (unsigned step = size / 2; step; step /= 2) {
			const unsigned other = THREAD_X ^ step;
			block_barrier();
			const float a = sorted[THREAD_X], b = sorted[other];
			if (other > THREAD_X && (THREAD_X & size ? a > b : a < b)) {
				sorted[THREAD_X] = b;
				sorted[other] = a;
			}
		}
	block_barrier();
	const float least = sorted[CANDIDATES_LEAST - 1];
	if (most >= least) {
#pragma unroll 8
		for (unsigned i = THREAD_X; i < p.count; i += CANDIDATES_BLOCK) {
			const float value = load_fresh_1(logits + i);
			unsigned at;
			if (!(value >= least))
				continue;
			asm volatile("atom.shared.add.u32 %0, [%1], 1;" : "=r"(at) : "r"(shared_place(&found)) : "memory");
			if (at < CANDIDATES_MOST) {
				out->of[at].logit = value;
				out->of[at].token = i;
			}
		}
	}
	block_barrier();
	if (!THREAD_X)
		out->count = found <= CANDIDATES_MOST ? found : 0;
}
