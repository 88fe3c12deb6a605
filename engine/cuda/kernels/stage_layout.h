/* How a stage's matrices lie on the device, for the kernels and for the host (which tests it).
 *
 * A matrix is cut into tiles of 16 rows, row of tiles by row of tiles; the file's bits are kept, in the order in which
 * the tensor cores' fragments (PTX's mma.m16n8k16, operand A) take them, so that a warp reads a tile in runs of 512
 * bytes and no lane has to ask another one. Rows and columns are filled up with zeros.
 *
 *     lane 4 g + j of a warp holds, of each step of 16 columns, 4 pairs: pair R is row g + 8 (R & 1), columns
 *     8 (R >> 1) + 2 j and the one behind it. 512 bytes of a tile are 16 of each lane.
 *
 *     F32            32 columns   two steps, each pairs 0 and 1, then 512 bytes on, 2 and 3
 *     F16, BF16      32           two steps, each 4 pairs
 *     Q8_0           64           two blocks, each two steps of a word for row g, one for g + 8: value p of a pair is
 *                                 byte (R >> 1) + 2 p; scales [g][row / 8][block]
 *     Q4_0          128           two times four steps of a word: value p of pair R is nibble R + 4 p; scales as above
 *     MXFP4         128           nibbles as Q4_0; exponents, a byte each, as scales
 *     Q4_K          256           nibbles as Q4_0, four times; then each row's head as in the file: d, dmin, scales
 *     Q5_K          256           nibbles; fifth bits: a word of each lane for four steps, that of value p of pair R of
 *                                 step s is bit 8 ((R >> 1) + 2 p) + 2 s + (R & 1); heads
 *     Q6_K          256           nibbles; upper two bits: a word for two steps, of bit 8 ((R >> 1) + 2 p) +
 *                                 2 (2 s + (R & 1)) on; each row's 16 scales; each row's d
 *
 * So a word's low nibbles, or the bytes of a word, are four values of one row: what integer products take (m16n8k32).
 */
#pragma once

#if defined(__CUDACC__) || defined(__CUDA__)
#define STAGE_BOTH static inline __device__
#else
#define STAGE_BOTH static inline
#endif

enum { TILE_ROWS = 16, TILE_STEP = 16, TILE_LANE_BYTES = 16, TILE_RUN_BYTES = 512, TILE_COLUMNS_UNIT = 128 };
// Numbers as in enum tensor_format of engine/model/format.h.
enum tile_format {
	TILE_NONE,
	TILE_F32,
	TILE_F16,
	TILE_BF16,
	TILE_Q8_0,
	TILE_Q4_0,
	TILE_MXFP4,
	TILE_Q4_K,
	TILE_Q5_K,
	TILE_Q6_K,
	TILE_COUNT
};

// Columns of a tile.
STAGE_BOTH unsigned tile_columns(unsigned format)
{
	switch (format) {
	case TILE_F32:
	case TILE_F16:
	case TILE_BF16:
		return 32;
	case TILE_Q8_0:
		return 64;
	case TILE_Q4_0:
	case TILE_MXFP4:
		return 128;
	default:
		return 256;
	}
}

STAGE_BOTH unsigned tile_bytes(unsigned format)
{
	switch (format) {
	case TILE_F32:
		return 2048;
	case TILE_Q8_0:
		return 1024 + 64;
	case TILE_Q4_0:
		return 1024 + 128;
	case TILE_MXFP4:
		return 1024 + 64;
	case TILE_Q4_K:
		return 2048 + 256;
	case TILE_Q5_K:
		return 2048 + 512 + 256;
	case TILE_Q6_K:
		return 2048 + 1024 + 256 + 32;
	default:
		return 1024;
	}
}

// The least of a matrix that stage_decode.cu multiplies at once: whole tiles, of whole blocks.
STAGE_BOTH unsigned piece_shift(unsigned format)
{
	return format == TILE_F32 ? 5 : format <= TILE_BF16 ? 6 : format <= TILE_MXFP4 ? 7 : 8;
}
STAGE_BOTH unsigned piece_columns(unsigned format)
{
	return 1u << piece_shift(format);
}
STAGE_BOTH unsigned piece_bytes(unsigned format)
{
	return piece_columns(format) / tile_columns(format) * tile_bytes(format);
}

// Stored columns: a multiple of every tile's columns, except for the K formats, whose own columns are one.
STAGE_BOTH unsigned tile_padded(unsigned columns)
{
	return (columns + TILE_COLUMNS_UNIT - 1) / TILE_COLUMNS_UNIT * TILE_COLUMNS_UNIT;
}

// Bytes of a block of the file, and its values.
STAGE_BOTH unsigned file_block_bytes(unsigned format)
{
	switch (format) {
	case TILE_F32:
		return 4;
	case TILE_F16:
	case TILE_BF16:
		return 2;
	case TILE_Q8_0:
		return 34;
	case TILE_Q4_0:
		return 18;
	case TILE_MXFP4:
		return 17;
	case TILE_Q4_K:
		return 144;
	case TILE_Q5_K:
		return 176;
	default:
		return 210;
	}
}
STAGE_BOTH unsigned file_block_values(unsigned format)
{
	return format <= TILE_BF16 ? 1 : format <= TILE_MXFP4 ? 32 : 256;
}

// The place of a value in a tile: its lane, step, pair and place in the pair.
struct tile_place {
	unsigned lane, step, pair, second;
};
STAGE_BOTH struct tile_place tile_place(unsigned row, unsigned column)
{
	struct tile_place place;
	unsigned within = column % TILE_STEP;
	place.step = column / TILE_STEP;
	place.lane = row % 8 * 4 + within % 8 / 2;
	place.pair = row / 8 + within / 8 * 2;
	place.second = within % 2;
	return place;
}
// The other way round.
STAGE_BOTH unsigned tile_row(unsigned lane, unsigned pair)
{
	return lane / 4 + pair % 2 * 8;
}
STAGE_BOTH unsigned tile_column(unsigned lane, unsigned step, unsigned pair, unsigned second)
{
	return step * TILE_STEP + pair / 2 * 8 + lane % 4 * 2 + second;
}

// A quant of a block of the file, as it is there (0 to 15, 31 or 63).
STAGE_BOTH unsigned file_nibble(unsigned format, const unsigned char *block, unsigned i)
{
	if (format == TILE_Q4_0 || format == TILE_MXFP4)
		return block[(format == TILE_Q4_0 ? 2 : 1) + i % 16] >> i / 16 * 4 & 15;
	if (format == TILE_Q6_K)
		return block[i / 128 * 64 + i % 64] >> i % 128 / 64 * 4 & 15;
	return block[(format == TILE_Q4_K ? 16 : 48) + i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
}
STAGE_BOTH unsigned file_high(unsigned format, const unsigned char *block, unsigned i)
{
	if (format == TILE_Q5_K)
		return block[16 + i % 32] >> i / 32 & 1;
	return block[128 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

// Parameters of repacking: `rows` of the file's rows, which begin at a multiple of 16, and the place of their tiles.
struct tile_source {
	const unsigned char *bytes; // (rows, columns) in the file's format
	unsigned format, rows, columns;
};

STAGE_BOTH unsigned file_u16(const unsigned char *bytes)
{
	return bytes[0] | (unsigned)bytes[1] << 8;
}
// The block of the file with this value, NULL outside.
STAGE_BOTH const unsigned char *file_block(const struct tile_source *source, unsigned row, unsigned column)
{
	unsigned values = file_block_values(source->format), bytes = file_block_bytes(source->format);
	if (row >= source->rows || column >= source->columns)
		return 0;
	return source->bytes + ((unsigned long long)row * (source->columns / values) + column / values) * bytes;
}

STAGE_BOTH unsigned repack_float(const struct tile_source *source, unsigned row0, unsigned column0, unsigned word)
{
	unsigned lane = word % 128 / 4, run = word / 128, wide = source->format == TILE_F32,
		 second = wide ? word % 2 : 0;
	unsigned step = wide ? run / 2 : run, pair = wide ? run % 2 * 2 + word % 4 / 2 : word % 4;
	const unsigned char *a = file_block(source, row0 + tile_row(lane, pair),
					    column0 + tile_column(lane, step, pair, second));
	return a ? file_u16(a) | file_u16(a + 2) << 16 : 0; // one f32, or a pair
}

STAGE_BOTH unsigned repack_bytes(const struct tile_source *source, unsigned row0, unsigned column0, unsigned word)
{
	unsigned out = 0, lane = word % 128 / 4, step = word / 128 * 2 + word % 4 / 2;
	for (unsigned i = 0; i < 4; i++) {
		unsigned pair = word % 2 + i % 2 * 2, column = column0 + tile_column(lane, step, pair, i / 2);
		const unsigned char *a = file_block(source, row0 + tile_row(lane, pair), column);
		out |= (a ? (unsigned)a[2 + column % 32] : 0u) << i * 8;
	}
	return out;
}

STAGE_BOTH unsigned repack_nibbles(const struct tile_source *source, unsigned row0, unsigned column0, unsigned word)
{
	unsigned out = 0, lane = word % 128 / 4, step = word / 128 * 4 + word % 4;
	for (unsigned i = 0; i < 8; i++) {
		unsigned pair = i % 4, column = column0 + tile_column(lane, step, pair, i / 4);
		const unsigned char *a = file_block(source, row0 + tile_row(lane, pair), column);
		out |= (a ? file_nibble(source->format, a, column % file_block_values(source->format)) : 0) << i * 4;
	}
	return out;
}

// A word of upper bits: 1 or 2 of each value.
STAGE_BOTH unsigned repack_high(const struct tile_source *source, unsigned row0, unsigned column0, unsigned word)
{
	unsigned bits = source->format == TILE_Q5_K ? 1 : 2, steps = 4 / bits, out = 0;
	unsigned lane = word % 128 / 4, step0 = (word / 128 * 4 + word % 4) * steps;
	for (unsigned i = 0; i < 8 * steps; i++) {
		unsigned byte = i % 4, lower = i / 4 % 2, step = i / 8, pair = byte % 2 * 2 + lower;
		unsigned column = column0 + tile_column(lane, step0 + step, pair, byte / 2);
		const unsigned char *a = file_block(source, row0 + tile_row(lane, pair), column);
		out |= (a ? file_high(source->format, a, column % 256) : 0) << (8 * byte + bits * (2 * step + lower));
	}
	return out;
}

// Two scales: of 32-value blocks, [g][row / 8][block].
STAGE_BOTH unsigned repack_scales(const struct tile_source *source, unsigned row0, unsigned column0, unsigned word)
{
	unsigned blocks = source->format == TILE_Q8_0 ? 2 : 4, out = 0;
	for (unsigned i = 0; i < 2; i++) {
		unsigned at = word * 2 + i, row = at / (2 * blocks) + at / blocks % 2 * 8;
		const unsigned char *a = file_block(source, row0 + row, column0 + at % blocks * 32);
		out |= (a ? file_u16(a) : 0) << i * 16;
	}
	return out;
}

// Four exponents of MXFP4, in the same order.
STAGE_BOTH unsigned repack_exponents(const struct tile_source *source, unsigned row0, unsigned column0, unsigned word)
{
	unsigned out = 0;
	for (unsigned block = 0; block < 4; block++) {
		const unsigned char *a = file_block(source, row0 + word / 2 + word % 2 * 8, column0 + block * 32);
		out |= (a ? a[0] : 0u) << block * 8;
	}
	return out;
}

// A word of the rows' heads: the K formats' first 16 bytes; of Q6_K scales and, behind all of them, d.
STAGE_BOTH unsigned repack_heads(const struct tile_source *source, unsigned row0, unsigned column0, unsigned word)
{
	const unsigned char *a = file_block(source, row0 + word / 4, column0);
	if (source->format != TILE_Q6_K || word < 64) {
		unsigned from = source->format == TILE_Q6_K ? 192 : 0;
		return a ? file_u16(a + from + word % 4 * 4) | file_u16(a + from + word % 4 * 4 + 2) << 16 : 0;
	}
	const unsigned char *b = file_block(source, row0 + (word - 64) * 2, column0);
	const unsigned char *c = file_block(source, row0 + (word - 64) * 2 + 1, column0);
	return (b ? file_u16(b + 208) : 0) | (c ? file_u16(c + 208) : 0) << 16;
}

// The 32-bit word `word` of the tile that begins with this row and column.
STAGE_BOTH unsigned repack_word(const struct tile_source *source, unsigned row0, unsigned column0, unsigned word)
{
	switch (source->format) {
	case TILE_Q8_0:
		return word < 256 ? repack_bytes(source, row0, column0, word)
				  : repack_scales(source, row0, column0, word - 256);
	case TILE_Q4_0:
		return word < 256 ? repack_nibbles(source, row0, column0, word)
				  : repack_scales(source, row0, column0, word - 256);
	case TILE_MXFP4:
		return word < 256 ? repack_nibbles(source, row0, column0, word)
				  : repack_exponents(source, row0, column0, word - 256);
	case TILE_Q4_K:
		return word < 512 ? repack_nibbles(source, row0, column0, word)
				  : repack_heads(source, row0, column0, word - 512);
	case TILE_Q5_K:
	case TILE_Q6_K: {
		unsigned high = source->format == TILE_Q5_K ? 128 : 256;
		return word < 512          ? repack_nibbles(source, row0, column0, word)
		       : word < 512 + high ? repack_high(source, row0, column0, word - 512)
					   : repack_heads(source, row0, column0, word - 512 - high);
	}
	default:
		return repack_float(source, row0, column0, word);
	}
}
