// F16 matrices by many rows on Hopper: see stage_wide.cuh.
#include "stage_wide.cuh"

WIDE(wide_f16, TILE_F16)
