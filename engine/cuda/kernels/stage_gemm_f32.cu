// F32 matrices by many rows: see stage_gemm.cuh.
#include "stage_gemm.cuh"

GEMM(gemm_f32, TILE_F32)
