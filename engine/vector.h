/* Vectors of four floats, as every x86-64 and ARM processor has them, for loops over whole vocabularies. */
#pragma once
#include <stdint.h>

enum { LANES = 4 };
typedef float floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline floats floats_of(float value)
{
	return (floats){value, value, value, value};
}

static inline floats either(ints mask, floats yes, floats no)
{
	return (floats)(((ints)yes & mask) | ((ints)no & ~mask));
}

// exp(-x) for x >= 0, within 4 parts in a million. Where a float would be denormal the result is 0, because the
// bits of the scale are 0 then.
static inline floats exp_minus(floats x)
{
	const floats turns = either(x < 88, x, floats_of(88)) * -1.44269504f;
	const ints whole = __builtin_convertvector(turns - 0.5f, ints);
	const floats rest = turns - __builtin_convertvector(whole, floats); // within a half
	// 2^rest: the series of exp(rest * ln 2)
	floats power = floats_of(1.525273e-5f);
	power = power * rest + 1.540353e-4f;
	power = power * rest + 1.333355815e-3f;
	power = power * rest + 9.618129108e-3f;
	power = power * rest + 5.550410866e-2f;
	power = power * rest + 0.2402265070f;
	power = power * rest + 0.6931471806f;
	return (power * rest + 1) * (floats)((whole + 127) << 23);
}

// tanh(x), to 1e-7; of NaN, NaN.
static inline floats tanh_of(floats x)
{
	const ints sign = (ints)x & INT32_MIN;
	const floats small = exp_minus((floats)((ints)x & INT32_MAX) * 2);
	return either(x == x, (floats)((ints)((1 - small) / (1 + small)) | sign), x);
}
