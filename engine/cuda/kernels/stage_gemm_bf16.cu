// BF16 matrices by many rows: see stage_gemm.cuh.
#include "stage_gemm.cuh"

GEMM(gemm_bf16, TILE_BF16)
