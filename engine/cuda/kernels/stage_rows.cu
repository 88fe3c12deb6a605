// What a stage does beside products: tokens to rows, norms and rounding before products of many rows, the largest
// logit, and tiles out of the file's bytes.
#include "stage.cuh"

enum { ROWS_BLOCK = 256, ROWS_WARPS = ROWS_BLOCK / 32, ARGMAX_BLOCK = 1024 };

INLINE unsigned tile_word(const unsigned char *tile, unsigned at) { return *(const unsigned *)(tile + at / 4 * 4); }
INLINE float tile_half(const unsigned char *tile, unsigned at) { return low_f16(*(const unsigned short *)(tile + at)); }

// One value of a tile, as the file has it.
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
			tile_value(tiles + k / columns * bytes, p.table.format, token % TILE_ROWS, k % columns);
}

// The input of a product of many rows: as f16 or two bf16, scaled by row.
extern "C" __global__ void __launch_bounds__(ROWS_BLOCK) prepare(const CONSTANT prepare_params p)
{
	__shared__ float scratch[2][ROWS_WARPS];
	unsigned row = BLOCK_X;
	let_next_begin();
	wait_for_previous();
	u64 from = (u64)(p.from ? p.from[row] : row) * p.x_stride;
	float squares = 0, most = 0;
	for (unsigned k = THREAD_X; k < p.columns; k += ROWS_BLOCK) {
		float x = load_fresh_1(p.x + from + k);
		if (p.gate)
			x *= silu(load_fresh_1(p.gate + from + k));
		squares += x * x;
		most = larger(most, absolute(p.norm ? x * p.norm[k] : x));
	}
	squares = warp_sum(squares);
	most = warp_most(most);
	if (THREAD_X % 32 == 0) {
		scratch[0][THREAD_X / 32] = squares;
		scratch[1][THREAD_X / 32] = most;
	}
	__syncthreads();
	squares = most = 0;
	for (unsigned i = 0; i < ROWS_WARPS; i++) {
		squares += scratch[0][i];
		most = larger(most, scratch[1][i]);
	}
	float scale = scale_for(most);
	float factor = p.norm ? quotient(1, root_of(squares / (float)p.columns + p.epsilon)) : 1;
	if (!THREAD_X && p.factors)
		p.factors[row] = factor / scale;
	unsigned short *out = p.out + (u64)row * p.planes * p.padded;
	for (unsigned k = THREAD_X * 2; k < p.padded; k += ROWS_BLOCK * 2) {
		float v[2] = {0, 0};
		for (unsigned i = 0; i < 2; i++) {
			if (k >= p.columns)
				continue;
			v[i] = load_fresh_1(p.x + from + k + i);
			if (p.gate)
				v[i] *= silu(load_fresh_1(p.gate + from + k + i));
			v[i] *= p.norm ? p.norm[k + i] : 1;
			if (p.plain)
				p.plain[(u64)row * p.columns + k + i] = v[i] * factor;
		}
		unsigned short *to = out + k;
		if (p.halves) {
			*(unsigned *)to = pack_f16(v[0] * scale, v[1] * scale);
			to += p.padded;
		}
		if (p.pairs) {
			unsigned high = pack_bf16(v[0] * scale, v[1] * scale);
			*(unsigned *)to = high;
			*(unsigned *)(to + p.padded) =
				pack_bf16(v[0] * scale - low_bf16(high), v[1] * scale - high_bf16(high));
		}
	}
}

INLINE bool better(float a, unsigned i, float b, unsigned j) { return a > b || (a == b && i < j); }

// The largest logit's index, the lowest of equals. No number is larger than another that is none.
extern "C" __global__ void __launch_bounds__(ARGMAX_BLOCK) argmax(const CONSTANT argmax_params p)
{
	__shared__ float values[ARGMAX_BLOCK];
	__shared__ unsigned places[ARGMAX_BLOCK];
	const float *logits = p.logits + (u64)BLOCK_X * p.count;
	let_next_begin();
	wait_for_previous();
	float most = __builtin_bit_cast(float, 0xff800000u);
	unsigned place = 0xffffffffu;
#pragma unroll 8
	for (unsigned i = THREAD_X; i < p.count; i += ARGMAX_BLOCK) {
		float value = load_fresh_1(logits + i);
		if (better(value, i, most, place)) {
			most = value;
			place = i;
		}
	}
	values[THREAD_X] = most;
	places[THREAD_X] = place;
	for (unsigned half = ARGMAX_BLOCK / 2; half; half /= 2) {
		__syncthreads();
		if (THREAD_X < half && better(values[THREAD_X + half], places[THREAD_X + half], values[THREAD_X],
					      places[THREAD_X])) {
			values[THREAD_X] = values[THREAD_X + half];
			places[THREAD_X] = places[THREAD_X + half];
		}
	}
	if (!THREAD_X)
		p.out[BLOCK_X] = places[0] < p.count ? places[0] : 0;
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
