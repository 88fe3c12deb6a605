// Q8_0 matrices by many rows: see stage_gemm.cuh.
#include "stage_gemm.cuh"

GEMM(gemm_q8_0, TILE_Q8_0)
