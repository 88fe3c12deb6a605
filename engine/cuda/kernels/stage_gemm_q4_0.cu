// Q4_0 matrices by many rows: see stage_gemm.cuh.
#include "stage_gemm.cuh"

GEMM(gemm_q4_0, TILE_Q4_0)
