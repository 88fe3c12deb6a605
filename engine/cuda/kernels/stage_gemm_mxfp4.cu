// MXFP4 matrices by many rows: see stage_gemm.cuh.
#include "stage_gemm.cuh"

GEMM(gemm_mxfp4, TILE_MXFP4)
