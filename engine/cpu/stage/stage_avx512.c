/* The loops of stages for AVX-512 with VNNI: a lane for every row of a panel; and AMX. See stage_loops.h. */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#define KERNELS stage_kernels_avx512
#define WIDTH 16
#define ROWS_MOST 8
#define OWN_LANES
#define BYTES_DOT
#include "engine/cpu/stage/stage_vectors.h"

static inline __attribute__((always_inline)) ints dot(ints sums, ints weights, ints pairs)
{
	return (ints)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)weights, (__m512i)pairs);
}

static inline __attribute__((always_inline)) ints dot_bytes(ints sums, ints weights, ints fours)
{
	return (ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)weights, (__m512i)fours);
}

static inline __attribute__((always_inline)) void put_bytes(int8_t *low, int8_t *high, ints numbers)
{
	const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
	__m128i lows = _mm512_cvtepi32_epi8((__m512i)numbers),
		highs = _mm512_cvtepi32_epi8((__m512i)((numbers + 128) >> 8));
	_mm_storeu_si128((__m128i *)(void *)low, _mm_shuffle_epi8(lows, order));
	_mm_storeu_si128((__m128i *)(void *)high, _mm_shuffle_epi8(highs, order));
}

static inline __attribute__((always_inline)) floats halves_to_floats(const uint8_t *from)
{
	__m256i halves;
	memcpy(&halves, from, sizeof(halves));
	return (floats)_mm512_cvtph_ps(halves);
}

static inline __attribute__((always_inline)) ints widen(const uint8_t *from)
{
	__m256i packed;
	memcpy(&packed, from, sizeof(packed));
	return (ints)_mm512_cvtepi8_epi16(packed);
}

static inline __attribute__((always_inline)) int32_t largest_lane(ints lanes)
{
	return _mm512_reduce_max_epi32((__m512i)lanes);
}

static inline __attribute__((always_inline)) bool any_lane(ints lanes)
{
	return _mm512_test_epi32_mask((__m512i)lanes, (__m512i)lanes);
}

static inline __attribute__((always_inline)) int32_t sum_lanes(ints lanes)
{
	return _mm512_reduce_add_epi32((__m512i)lanes);
}

static inline __attribute__((always_inline)) float largest_float(floats lanes)
{
	return _mm512_reduce_max_ps((__m512)lanes);
}

static inline __attribute__((always_inline)) float sum_floats(floats lanes)
{
	return _mm512_reduce_add_ps((__m512)lanes);
}

#include "engine/cpu/stage/stage_loops.h"
// behind the loops that it uses
#include "engine/cpu/stage/stage_amx.h"
#endif
