/* The loops for AVX2 with fused multiply-add: 16 registers. See level_loops.h. */
#ifdef __x86_64__
#include <immintrin.h>

#define LEVEL cpu_level_avx2
#define TITLE "avx2"
#define WIDTH 8
#define ROWS 6
#define COLUMNS 2
#define PAST(to, vector) _mm256_stream_ps(to, vector)
#define PAST_END _mm_sfence()
#include "engine/cpu/level_loops.h"
#endif
