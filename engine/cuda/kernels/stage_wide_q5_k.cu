// Q5_K matrices by many rows on Hopper: see stage_wide.cuh.
#include "stage_wide.cuh"

WIDE(wide_q5_k, TILE_Q5_K)
