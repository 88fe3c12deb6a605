// Q4_K matrices by many rows on Hopper: see stage_wide.cuh.
#include "stage_wide.cuh"

WIDE(wide_q4_k, TILE_Q4_K)
