/* The loops of stages for AVX2, FMA and F16C. See stage_loops.h. */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#define KERNELS stage_kernels_avx2
#define WIDTH 8
#define ROWS_MOST 4
#include "engine/cpu/stage/stage_vectors.h"

static inline __attribute__((always_inline)) ints dot(ints sums, ints weights, ints pairs)
{
	return sums + (ints)_mm256_madd_epi16((__m256i)weights, (__m256i)pairs);
}

static inline __attribute__((always_inline)) floats halves_to_floats(const uint8_t *from)
{
	__m128i halves;
	memcpy(&halves, from, sizeof(halves));
	return (floats)_mm256_cvtph_ps(halves);
}

static inline __attribute__((always_inline)) ints widen(const uint8_t *from)
{
	__m128i packed;
	memcpy(&packed, from, sizeof(packed));
	return (ints)_mm256_cvtepi8_epi16(packed);
}

#include "engine/cpu/stage/stage_loops.h"
#endif
