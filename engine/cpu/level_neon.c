/* The loops for 64-bit Arm, which always has Neon with fused multiply-add: 32 registers. See level_loops.h. */
#ifdef __aarch64__
#define LEVEL cpu_level_neon
#define TITLE "neon"
#define WIDTH 4
#define ROWS 8
#define COLUMNS 3
#include "engine/cpu/level_loops.h"
#endif
