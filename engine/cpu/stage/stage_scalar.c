/* The loops of stages for what every processor of the architecture has. See stage_loops.h. */
#include <string.h>

#define KERNELS stage_kernels_scalar
#define WIDTH 4
#define ROWS_MOST 4
#include "engine/cpu/stage/stage_vectors.h"
#include "engine/model/format.h"

static inline __attribute__((always_inline)) ints dot(ints sums, ints weights, ints pairs)
{
	// The low halves, sign-extended by shifts, and the high ones.
	return sums + (weights << 16 >> 16) * (pairs << 16 >> 16) + (weights >> 16) * (pairs >> 16);
}

static inline __attribute__((always_inline)) floats halves_to_floats(const uint8_t *from)
{
	floats values;
	for (unsigned i = 0; i < WIDTH; i++) {
		uint16_t half;
		memcpy(&half, from + 2 * i, sizeof(half));
		values[i] = f16_to_f32(half);
	}
	return values;
}

static inline __attribute__((always_inline)) ints widen(const uint8_t *from)
{
	bytes packed;
	memcpy(&packed, from, sizeof(packed));
	return (ints) __builtin_convertvector(packed, shorts);
}

#include "engine/cpu/stage/stage_loops.h"
