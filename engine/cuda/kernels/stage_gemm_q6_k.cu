// Q6_K matrices by many rows: see stage_gemm.cuh.
#include "stage_gemm.cuh"

GEMM(gemm_q6_k, TILE_Q6_K)
