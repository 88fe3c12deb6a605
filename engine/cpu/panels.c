/* See panels.h. Packing goes row by row of a block; a row that is not there leaves zeros. */
#include "engine/cpu/panels.h"

#include <string.h>

enum { ROWS = PANEL_ROWS, GROUP = PANEL_GROUP, PAIRS = PANEL_GROUP / 2, K_GROUPS = 8 };

// The blocks as they lie in a panel.
struct panel_f32 {
	float values[GROUP][ROWS];
};
struct panel_f16 {
	uint16_t values[GROUP][ROWS];
};
struct panel_bf16 {
	uint16_t values[PAIRS][ROWS][2];
};
struct panel_q8_0 {
	uint16_t d[ROWS];
	int8_t q[PAIRS][ROWS][2];
};
struct panel_q4_0 {
	uint16_t d[ROWS];
	uint32_t n[4][ROWS];
};
struct panel_mxfp4 {
	uint8_t e[ROWS];
	uint32_t n[4][ROWS];
};
struct panel_q4_k {
	uint16_t d[ROWS], dmin[ROWS];
	uint32_t scales[3][ROWS];
	uint32_t n[K_GROUPS][4][ROWS];
};
struct panel_q5_k {
	uint16_t d[ROWS], dmin[ROWS];
	uint32_t scales[3][ROWS];
	struct {
		uint32_t high[ROWS], n[4][ROWS];
	} groups[K_GROUPS];
};
struct panel_q6_k {
	uint16_t d[ROWS];
	uint32_t scales[4][ROWS];
	struct {
		uint32_t high[2][ROWS], n[4][ROWS];
	} groups[K_GROUPS];
};

_Static_assert(sizeof(struct panel_q8_0) == ROWS * sizeof(struct block_q8_0), "Q8_0 grows");
_Static_assert(sizeof(struct panel_q4_0) == ROWS * sizeof(struct block_q4_0), "Q4_0 grows");
_Static_assert(sizeof(struct panel_mxfp4) == ROWS * sizeof(struct block_mxfp4), "MXFP4 grows");
_Static_assert(sizeof(struct panel_q4_k) == ROWS * sizeof(struct block_q4_k), "Q4_K grows");
_Static_assert(sizeof(struct panel_q5_k) == ROWS * sizeof(struct block_q5_k), "Q5_K grows");
_Static_assert(sizeof(struct panel_q6_k) == ROWS * sizeof(struct block_q6_k), "Q6_K grows");

union panel_block {
	struct panel_f32 f32;
	struct panel_f16 f16;
	struct panel_bf16 bf16;
	struct panel_q8_0 q8_0;
	struct panel_q4_0 q4_0;
	struct panel_mxfp4 mxfp4;
	struct panel_q4_k q4_k;
	struct panel_q5_k q5_k;
	struct panel_q6_k q6_k;
};
_Static_assert(sizeof(union panel_block) == PANEL_BLOCK_BYTES_MOST, "the largest block is another");

static bool has_groups(enum tensor_format format)
{
	return format == FORMAT_Q4_K || format == FORMAT_Q5_K || format == FORMAT_Q6_K;
}

void panels_init(struct panels *panels, const struct model_tensor *tensor)
{
	uint32_t groups = (tensor->columns + GROUP - 1) / GROUP;
	*panels = (struct panels){
		.format = tensor->format,
		.rows = tensor->rows,
		.columns = tensor->columns,
		.groups = groups,
		.panel_count = (tensor->rows + ROWS - 1) / ROWS,
		.panel_bytes = (size_t)format_row_bytes(tensor->format, (uint64_t)groups * GROUP) * ROWS,
	};
}

size_t panels_bytes(const struct panels *panels)
{
	return panels->panel_bytes * panels->panel_count;
}

// ---- packing ----

// Eight numbers of four bits, one in each byte, to a word of n.
static uint32_t fold(uint64_t bytes)
{
	uint64_t even = bytes & 0x000f000f000f000f, odd = bytes >> 8 & 0x000f000f000f000f;
	even = (even | even >> 12) & 0x000000ff000000ff;
	odd = (odd | odd >> 12) & 0x000000ff000000ff;
	return (uint32_t)((even | even >> 24) & 0xffff) | (uint32_t)((odd | odd >> 24) & 0xffff) << 16;
}

// 32 values: the low (shift 0) or the high (4) halves of so many bytes.
static void fold_group(uint32_t n[4][ROWS], uint32_t row, const uint8_t *bytes, unsigned shift)
{
	for (unsigned j = 0; j < 4; j++) {
		uint64_t eight;
		memcpy(&eight, bytes + 8 * j, sizeof(eight));
		n[j][row] = fold(eight >> shift & 0x0f0f0f0f0f0f0f0f);
	}
}

// The low halves of 16 bytes, then the high ones.
static void fold_block(uint32_t n[4][ROWS], uint32_t row, const uint8_t q[16])
{
	for (unsigned j = 0; j < 2; j++) {
		uint64_t eight;
		memcpy(&eight, q + 8 * j, sizeof(eight));
		n[j][row] = fold(eight & 0x0f0f0f0f0f0f0f0f);
		n[2 + j][row] = fold(eight >> 4 & 0x0f0f0f0f0f0f0f0f);
	}
}

static void pack_scales(uint32_t (*to)[ROWS], uint32_t row, const void *from, unsigned words)
{
	for (unsigned j = 0; j < words; j++)
		memcpy(&to[j][row], (const uint8_t *)from + 4 * j, 4);
}

static void pack_q4_k(struct panel_q4_k *to, uint32_t row, const struct block_q4_k *from)
{
	to->d[row] = from->d;
	to->dmin[row] = from->dmin;
	pack_scales(to->scales, row, from->scales, 3);
	for (unsigned g = 0; g < K_GROUPS; g++)
		fold_group(to->n[g], row, from->q + g / 2 * GROUP, g % 2 * 4);
}

static void pack_q5_k(struct panel_q5_k *to, uint32_t row, const struct block_q5_k *from)
{
	to->d[row] = from->d;
	to->dmin[row] = from->dmin;
	pack_scales(to->scales, row, from->scales, 3);
	for (unsigned g = 0; g < K_GROUPS; g++) {
		uint32_t high = 0;
		for (unsigned i = 0; i < GROUP; i++)
			high |= (from->high[i] >> g & 1u) << (i / 2 + i % 2 * 16);
		to->groups[g].high[row] = high;
		fold_group(to->groups[g].n, row, from->q + g / 2 * GROUP, g % 2 * 4);
	}
}

static void pack_q6_k(struct panel_q6_k *to, uint32_t row, const struct block_q6_k *from)
{
	to->d[row] = from->d;
	pack_scales(to->scales, row, from->scales, 4);
	for (unsigned g = 0; g < K_GROUPS; g++) {
		unsigned half = g / 4, quarter = g % 4;
		for (unsigned u = 0; u < 2; u++) {
			uint32_t high = 0;
			for (unsigned i = 0; i < 16; i++)
				high |= (from->high[32 * half + 16 * u + i] >> 2 * quarter & 3u)
					<< (i / 2 * 2 + i % 2 * 16);
			to->groups[g].high[u][row] = high;
		}
		fold_group(to->groups[g].n, row, from->low + 64 * half + quarter % 2 * GROUP, quarter / 2 * 4);
	}
}

// Pack one block of a row of a blocked format.
static void pack_block(enum tensor_format format, union panel_block *to, uint32_t row, const uint8_t *from)
{
	union {
		struct block_q8_0 q8_0;
		struct block_q4_0 q4_0;
		struct block_mxfp4 mxfp4;
		struct block_q4_k q4_k;
		struct block_q5_k q5_k;
		struct block_q6_k q6_k;
	} block;
	memcpy(&block, from, format_info(format)->block_bytes);
	switch (format) {
	case FORMAT_Q8_0:
		to->q8_0.d[row] = block.q8_0.d;
		for (unsigned p = 0; p < PAIRS; p++)
			memcpy(to->q8_0.q[p][row], block.q8_0.q + 2 * p, 2);
		return;
	case FORMAT_Q4_0:
		to->q4_0.d[row] = block.q4_0.d;
		fold_block(to->q4_0.n, row, block.q4_0.q);
		return;
	case FORMAT_MXFP4:
		to->mxfp4.e[row] = block.mxfp4.e;
		fold_block(to->mxfp4.n, row, block.mxfp4.q);
		return;
	case FORMAT_Q4_K:
		pack_q4_k(&to->q4_k, row, &block.q4_k);
		return;
	case FORMAT_Q5_K:
		pack_q5_k(&to->q5_k, row, &block.q5_k);
		return;
	case FORMAT_Q6_K:
		pack_q6_k(&to->q6_k, row, &block.q6_k);
		return;
	case FORMAT_UNKNOWN:
	case FORMAT_F32:
	case FORMAT_F16:
	case FORMAT_BF16:
	case FORMAT_COUNT:
		return;
	}
}

// `have` <= 32 values of a row in a format without blocks.
static void pack_plain(enum tensor_format format, union panel_block *to, uint32_t row, const uint8_t *from,
		       uint32_t have)
{
	for (uint32_t i = 0; i < have; i++)
		if (format == FORMAT_F32)
			memcpy(&to->f32.values[i][row], from + 4 * i, 4);
		else
			memcpy(format == FORMAT_F16 ? &to->f16.values[i][row] : &to->bf16.values[i / 2][row][i % 2],
			       from + 2 * i, 2);
}

void panels_pack(const struct panels *panels, const struct model_tensor *tensor, uint32_t index)
{
	const struct format_info *info = format_info(panels->format);
	uint32_t first = index * ROWS, have = panels->rows - first < ROWS ? panels->rows - first : ROWS;
	uint64_t pitch = model_tensor_pitch(tensor);
	bool plain = info->block_values < GROUP;
	uint32_t values = plain ? GROUP : info->block_values;
	size_t block_bytes = (size_t)info->block_bytes * (values / info->block_values);
	uint8_t *to = panels->data + panels->panel_bytes * index;
	for (uint32_t column = 0; column < panels->columns; column += values, to += block_bytes * ROWS) {
		union panel_block block;
		memset(&block, 0, block_bytes * ROWS);
		for (uint32_t row = 0; row < have; row++) {
			const uint8_t *from = tensor->data + (first + row) * pitch +
					      (uint64_t)column / values * block_bytes;
			uint32_t left = panels->columns - column;
			if (plain)
				pack_plain(panels->format, &block, row, from, left < GROUP ? left : GROUP);
			else
				pack_block(panels->format, &block, row, from);
		}
		memcpy(to, &block, block_bytes * ROWS);
	}
}

// ---- reading ----

static float bf16_to_f32(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;
	memcpy(&value, &wide, sizeof(value));
	return value;
}

static unsigned nibble(uint32_t n[4][ROWS], unsigned column, unsigned row)
{
	return n[column / 8][row] >> (column % 8 / 2 * 4 + column % 2 * 16) & 15;
}

// Byte i of a row's scales.
static unsigned scale_byte(uint32_t scales[][ROWS], unsigned row, unsigned i)
{
	return scales[i / 4][row] >> i % 4 * 8 & 255;
}

struct group_scale {
	float scale, min;
};

static struct group_scale group_scale(const struct panel_q4_k *block, unsigned row, unsigned group)
{
	uint32_t(*scales)[ROWS] = (uint32_t(*)[ROWS])block->scales;
	unsigned scale, min;
	if (group < 4) {
		scale = scale_byte(scales, row, group) & 63;
		min = scale_byte(scales, row, group + 4) & 63;
	} else {
		unsigned both = scale_byte(scales, row, group + 4);
		scale = (both & 15) | scale_byte(scales, row, group - 4) >> 6 << 4;
		min = both >> 4 | scale_byte(scales, row, group) >> 6 << 4;
	}
	return (struct group_scale){f16_to_f32(block->d[row]) * (float)scale,
				    f16_to_f32(block->dmin[row]) * (float)min};
}

// The value at a row and column of a block; `column` counts within the group, `group` within the block.
static float value_of(enum tensor_format format, const union panel_block *from, unsigned group, unsigned row,
		      unsigned column)
{
	union panel_block *block = (union panel_block *)from;
	struct group_scale scale;
	unsigned number;
	switch (format) {
	case FORMAT_F32:
		return block->f32.values[column][row];
	case FORMAT_F16:
		return f16_to_f32(block->f16.values[column][row]);
	case FORMAT_BF16:
		return bf16_to_f32(block->bf16.values[column / 2][row][column % 2]);
	case FORMAT_Q8_0:
		return f16_to_f32(block->q8_0.d[row]) * block->q8_0.q[column / 2][row][column % 2];
	case FORMAT_Q4_0:
		return f16_to_f32(block->q4_0.d[row]) * (float)((int)nibble(block->q4_0.n, column, row) - 8);
	case FORMAT_MXFP4:
		return e8m0_half(block->mxfp4.e[row]) * e2m1_doubled(nibble(block->mxfp4.n, column, row));
	case FORMAT_Q4_K:
		scale = group_scale(&block->q4_k, row, group);
		return scale.scale * (float)nibble(block->q4_k.n[group], column, row) - scale.min;
	case FORMAT_Q5_K:
		scale = group_scale(&block->q4_k, row, group); // begins as Q4_K does
		number = nibble(block->q5_k.groups[group].n, column, row) |
			 (block->q5_k.groups[group].high[row] >> (column / 2 + column % 2 * 16) & 1) << 4;
		return scale.scale * (float)number - scale.min;
	case FORMAT_Q6_K:
		number = nibble(block->q6_k.groups[group].n, column, row) |
			 (block->q6_k.groups[group].high[column / 16][row] >> (column % 16 / 2 * 2 + column % 2 * 16) &
			  3) << 4;
		return f16_to_f32(block->q6_k.d[row]) *
		       (float)(int8_t)scale_byte(block->q6_k.scales, row, 2 * group + column / 16) *
		       (float)((int)number - 32);
	case FORMAT_UNKNOWN:
	case FORMAT_COUNT:
		break;
	}
	return 0;
}

static const union panel_block *block_at(const struct panels *panels, uint32_t panel, uint32_t group)
{
	uint32_t block_groups = has_groups(panels->format) ? K_GROUPS : 1;
	size_t block_bytes = panels->panel_bytes / (panels->groups / block_groups);
	return (const union panel_block *)(panels->data + panels->panel_bytes * panel +
					   group / block_groups * block_bytes);
}

void panels_values(const struct panels *panels, uint32_t panel, uint32_t group, float values[GROUP][ROWS])
{
	const union panel_block *block = block_at(panels, panel, group);
	for (unsigned column = 0; column < GROUP; column++)
		for (unsigned row = 0; row < ROWS; row++)
			values[column][row] = value_of(panels->format, block, group % K_GROUPS, row, column);
}

void panels_row(const struct panels *panels, uint32_t row, float *values)
{
	for (uint32_t column = 0; column < panels->columns; column++)
		values[column] = value_of(panels->format, block_at(panels, row / ROWS, column / GROUP),
					  column / GROUP % K_GROUPS, row % ROWS, column % GROUP);
}
