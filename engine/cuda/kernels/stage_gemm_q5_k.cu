// Q5_K matrices by many rows: see stage_gemm.cuh.
#include "stage_gemm.cuh"

GEMM(gemm_q5_k, TILE_Q5_K)
