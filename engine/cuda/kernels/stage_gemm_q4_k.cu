// Q4_K matrices by many rows: see stage_gemm.cuh.
#include "stage_gemm.cuh"

GEMM(gemm_q4_k, TILE_Q4_K)
