/* The vectors of stage_loops.h, of WIDTH lanes. They are the compiler's own (GCC and clang). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef float floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t uints __attribute__((vector_size(4 * WIDTH)));
typedef int16_t shorts __attribute__((vector_size(4 * WIDTH)));
typedef uint8_t lane_bytes __attribute__((vector_size(WIDTH)));
typedef int8_t bytes __attribute__((vector_size(2 * WIDTH)));
typedef int16_t half_words __attribute__((vector_size(2 * WIDTH)));

#ifndef OWN_LANES // a level with faster loops defines this and brings its own
static inline __attribute__((always_inline)) int32_t largest_lane(ints lanes)
{
	int32_t most = lanes[0];
	for (unsigned i = 1; i < WIDTH; i++)
		most = lanes[i] > most ? lanes[i] : most;
	return most;
}

static inline __attribute__((always_inline)) bool any_lane(ints lanes)
{
	int32_t any = 0;
	for (unsigned i = 0; i < WIDTH; i++)
		any |= lanes[i];
	return any;
}

static inline __attribute__((always_inline)) int32_t sum_lanes(ints lanes)
{
	int32_t sum = lanes[0];
	for (unsigned i = 1; i < WIDTH; i++)
		sum += lanes[i];
	return sum;
}

static inline __attribute__((always_inline)) float largest_float(floats lanes)
{
	float most = lanes[0];
	for (unsigned i = 1; i < WIDTH; i++)
		most = lanes[i] > most ? lanes[i] : most;
	return most;
}

static inline __attribute__((always_inline)) float sum_floats(floats lanes)
{
	float sum = lanes[0];
	for (unsigned i = 1; i < WIDTH; i++)
		sum += lanes[i];
	return sum;
}
#endif
