/* The loops for AVX-512F: 32 registers. See level_loops.h. */
#ifdef __x86_64__
#include <immintrin.h>

#define LEVEL cpu_level_avx512
#define TITLE "avx512"
#define WIDTH 16
#define ROWS 14
#define COLUMNS 2
#define PAST(to, vector) _mm512_stream_ps(to, vector)
#define PAST_END _mm_sfence()
#include "engine/cpu/level_loops.h"

const struct cpu_level cpu_level_amx = LEVEL_TABLE("amx");
#endif
