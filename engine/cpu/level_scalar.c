/* The loops for what every processor of the architecture has; without vectors where there are none. See level_loops.h.
 */
#define LEVEL cpu_level_scalar
#define TITLE "scalar"
#define WIDTH 4
#define ROWS 4
#define COLUMNS 2
#ifdef __SSE2__
#include <immintrin.h>

#define PAST(to, vector) _mm_stream_ps(to, vector)
#define PAST_END _mm_sfence()
#endif
#include "engine/cpu/level_loops.h"
