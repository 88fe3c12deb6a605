// Q6_K matrices by many rows on Hopper: see stage_wide.cuh.
#include "stage_wide.cuh"

WIDE(wide_q6_k, TILE_Q6_K)
