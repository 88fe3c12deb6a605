/* The kernels that are built in, on every back end: what they compute, and their signatures, once.
 *
 * The kernels that users may launch come first; the others verify and measure devices. Elements are counted from 0. A
 * count of 0 does not reach a back end: the wrapper itself stores the zero that a sum over nothing is. A back end gets
 * arguments of exactly these kinds, and every buffer is at least as large as the counts say: the wrapper has checked
 * both. Floats are IEEE 754 single precision; results may differ from the reference by the rounding of another order of
 * summation. Thread: any; plain data. */
#pragma once
#include "common/base/status.h"
#include "engine/include/exogpu/types.h"

enum builtin_kernel {
	BUILTIN_UNKNOWN,
	BUILTIN_FILL_F32,   // (dst, value, n)          dst[i] = value
	BUILTIN_SAXPY_F32,  // (y, x, a, n)             y[i] = a * x[i] + y[i]; y and x may be one buffer
	BUILTIN_MATMUL_F32, // (c, a, b, m, n, k)       c (m, n) = a (m, k) . b (k, n), row-major; c is neither a nor b
	BUILTIN_SUM_F32,    // (out, x, n)              out[0] = sum of x[0..n); out is not x; the same on every run
	// mix(v, s): v ^= s; v = (v ^ v >> 16) * 0x9e3779b1; v = (v ^ v >> 15) * 0xb5297a4d; v ^ v >> 16
	BUILTIN_VERIFY,      // (in, out, n, seed, scale, bias): u32 in[n], out[2 n]; out[i] = mix(in[i] + i, seed);
			     // out[n + i] = bits of fma(out[i] >> 8 as f32 * 2^-24, scale, bias)
	BUILTIN_STREAM_FILL, // (data, n, seed): u32 data[4 n]; data[i] = mix(i, seed): nothing that could be compressed
	BUILTIN_STREAM_READ, // (data, sink, n): u32 data[4 n], sink[1]; reads all in 16-byte loads and keeps nothing
	BUILTIN_COUNT
};

enum { BUILTIN_ARGUMENTS = 6, BUILTIN_USERS = BUILTIN_SUM_F32 }; // BUILTIN_USERS: how many of them are for users

struct builtin_signature {
	const char *name;
	unsigned argument_count;
	enum exogpu_argument_kind kinds[BUILTIN_ARGUMENTS]; // BUFFER, F32, U32 or U64
	const char *names[BUILTIN_ARGUMENTS];
};

// Indexed by kernel; [BUILTIN_UNKNOWN] is empty.
extern const struct builtin_signature builtin_signatures[BUILTIN_COUNT];
// BUILTIN_UNKNOWN if a user may not run a kernel of this name.
enum builtin_kernel builtin_find(const char *name);
// Check that the counts fit the buffers. `values`: the integers among the arguments, by position; `bytes`: the sizes of
// the buffers, by position; `same`[i]: the position of the first argument that is the same buffer as i. Errors:
// STATUS_INVALID_PARAMS, naming the argument and what it needs.
enum status builtin_check(enum builtin_kernel kernel, const uint64_t values[BUILTIN_ARGUMENTS],
			  const uint64_t bytes[BUILTIN_ARGUMENTS], const unsigned same[BUILTIN_ARGUMENTS],
			  struct error *error);
