/* A product of a stage: rows of activations with one to three matrices. Thread: that of the device. */
#pragma once
#include "engine/cuda/stage/stage.h"

enum { GEMM_ROWS_NARROW = 32, GEMM_ROWS_WIDE = 128 }; // of activations, of a block

struct stage_product {
	const struct stage_matrix *matrices[3];
	uint32_t count;
	CUdeviceptr x, norm; // norm: 0 for none
	bool gated;          // the input is silu of a row's first half, times its second
	CUdeviceptr from;    // which rows of x; 0: the first ones
	CUdeviceptr plain;   // what prepare gives unrounded; 0: nowhere
	CUdeviceptr y;
	uint32_t rows, columns, y_stride;
	enum gemv_mode mode; // STORE or ADD
	// For experts: the matrices have the rows of all experts, and rows are sorted by expert, in groups (struct
	// gemm_group) of up to group_rows each.
	CUdeviceptr groups;
	uint32_t group_count, group_rows, experts;
	// For experts with stage_wide.cuh: the slots' places; if each row has several, how many, and the first row; and
	// the number of places.
	CUdeviceptr places;
	uint32_t copies, first_row, together;
	// For heads (0: none): the matrices have the rows of all heads. Rows are those of the first head, head_rows of
	// them, then the next one's; in x a row's heads are x_head numbers apart and rows x_stride, in y y_head and
	// y_stride. By stage_product_many.
	uint32_t heads, head_rows, x_stride, x_head, y_head;
};

uint64_t stage_matrix_bytes(const struct stage_matrix *matrix); // of its tiles
// By the fastest kernel for so many rows; without groups.
enum status stage_product_multiply(struct backend_stage *stage, const struct stage_product *product,
				   struct error *error);
// By the kernels for many rows; also with groups.
enum status stage_product_many(struct backend_stage *stage, const struct stage_product *product, struct error *error);
// How it goes by stage_gemv.cu; gated: silu of the first matrix' result, times the second's. False if it does not.
bool stage_gemv_plan(const struct backend_stage *stage, const struct stage_product *product, bool gated,
		     struct gemv_params *params, struct stage_launch *launch);
// Whether it goes by Hopper's own products, and by them.
bool stage_goes_wide(const struct backend_stage *stage, const struct stage_product *product);
enum status stage_product_wide(struct backend_stage *stage, const struct stage_product *product, struct error *error);
// Rounds the input of a product of many rows. blocks: as stage_wide.cuh takes it.
enum status stage_product_prepare(struct backend_stage *stage, const struct stage_product *product, bool blocks,
				  struct error *error);
// Whether stage_gemm.cuh may take GEMM_ROWS_WIDE rows at once.
bool stage_gemm_wide_fits(const struct backend_stage *stage, unsigned format);

// ---- stage_mixture.c: few rows through their experts ----

struct stage_mixture {
	struct mixture_params in, out; // gate and up; down
	struct stage_launch launches[2];
};
// How it goes, once there are scores. False if it does not: of more rows than GEMV_ROWS, of many experts, or of gate
// and up in different formats.
bool stage_mixture_plan(const struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			struct stage_mixture *mixture);
// x += what the experts give, each times its weight, and the part for all rows.
enum status stage_mixture_multiply(struct backend_stage *stage, struct stage_mixture *mixture, struct error *error);
