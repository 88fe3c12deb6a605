/* Matrices of weights in the layout that the processor's kernels read.
 *
 * Sixteen rows make a panel, so that a lane of a vector is a row and there are no sums across lanes; a panel is read
 * sequentially. Its bits are those of the file in another order: nothing is converted. A matrix takes as much memory as
 * in its file, plus zero rows that complete the last panel, and columns of unblocked formats that complete the last 32.
 * A panel is a run of blocks, each for 16 rows by 32 columns (256 for the K formats); [16] is a lane, `pair` two
 * columns that stand side by side, the even one in the low half of a word:
 *
 *     F32    f32 values[32][16]
 *     F16    f16 values[32][16]
 *     BF16   bf16 values[16 pairs][16][2]
 *     Q8_0   f16 d[16] | i8 q[16 pairs][16][2]
 *     Q4_0   f16 d[16] | u32 n[4][16]
 *     MXFP4  u8 e[16] | u32 n[4][16]
 *     Q4_K   f16 d[16] | f16 dmin[16] | u32 scales[3][16] | 8 groups of u32 n[4][16]
 *     Q5_K   the same with 8 groups of (u32 high[16] | u32 n[4][16])
 *     Q6_K   f16 d[16] | u32 scales[4][16] | 8 groups of (u32 high[2][16] | u32 n[4][16])
 *
 * scales holds a row's 12 bytes (Q6_K: 16) as in the file. A word of n holds 8 columns, of which pair i lies in bits 4
 * i and 16 + 4 i; Q5_K's high holds the fifth bits, pair i in bits i and 16 + i; Q6_K's two words of high the bits 4
 * and 5 of 16 columns each, pair i in bits 2 i and 16 + 2 i. Thread: any; plain functions. */
#pragma once
#include "engine/model/model.h"

enum { PANEL_ROWS = 16, PANEL_GROUP = 32, PANEL_BLOCK_BYTES_MOST = 3360 };

struct panels {
	enum tensor_format format;
	uint32_t rows, columns; // of the matrix
	uint32_t groups;        // of 32 columns
	uint32_t panel_count;
	size_t panel_bytes;
	uint8_t *data; // (panel_count, panel_bytes), aligned to 64 bytes
};

// A matrix of this size, its data to come.
void panels_init(struct panels *panels, const struct model_tensor *tensor);
size_t panels_bytes(const struct panels *panels);
// Put panel `index` of the tensor into its place.
void panels_pack(const struct panels *panels, const struct model_tensor *tensor, uint32_t index);
// Columns 32 group ... of a panel's rows: values[32][16].
void panels_values(const struct panels *panels, uint32_t panel, uint32_t group, float values[PANEL_GROUP][PANEL_ROWS]);
// The values of one row: (columns)
void panels_row(const struct panels *panels, uint32_t row, float *values);
