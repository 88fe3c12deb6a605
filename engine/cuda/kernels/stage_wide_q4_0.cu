// Q4_0 matrices by many rows on Hopper: see stage_wide.cuh.
#include "stage_wide.cuh"

WIDE(wide_q4_0, TILE_Q4_0)
