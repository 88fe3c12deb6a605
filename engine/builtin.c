/* See builtin.h. Signatures, and what each kernel needs of its buffers, as two tables with one row a kernel.
 *
 * A buffer's need is a product of counts and a size in bytes; it is compared by dividing, so that no product of counts
 * from outside can wrap. */
#include "engine/builtin.h"

#include <string.h>

#define BUFFER EXOGPU_ARGUMENT_BUFFER
#define F32 EXOGPU_ARGUMENT_F32
#define U32 EXOGPU_ARGUMENT_U32
#define U64 EXOGPU_ARGUMENT_U64

const struct builtin_signature builtin_signatures[BUILTIN_COUNT] = {
	[BUILTIN_FILL_F32] = {"fill_f32", 3, {BUFFER, F32, U64}, {"dst", "value", "n"}},
	[BUILTIN_SAXPY_F32] = {"saxpy_f32", 4, {BUFFER, BUFFER, F32, U64}, {"y", "x", "a", "n"}},
	[BUILTIN_MATMUL_F32] = {"matmul_f32",
				6,
				{BUFFER, BUFFER, BUFFER, U64, U64, U64},
				{"c", "a", "b", "m", "n", "k"}},
	[BUILTIN_SUM_F32] = {"sum_f32", 3, {BUFFER, BUFFER, U64}, {"out", "x", "n"}},
	[BUILTIN_VERIFY] = {"verify",
			    6,
			    {BUFFER, BUFFER, U64, U32, F32, F32},
			    {"in", "out", "n", "seed", "scale", "bias"}},
	[BUILTIN_STREAM_FILL] = {"stream_fill", 3, {BUFFER, U64, U32}, {"data", "n", "seed"}},
	[BUILTIN_STREAM_READ] = {"stream_read", 3, {BUFFER, BUFFER, U64}, {"data", "sink", "n"}},
};

enum { NEEDS = 3, NEED_FACTORS = 2, ONE = -1, SHARED = -1 };

// The size of each buffer argument, by position: `unit` bytes times the values of the arguments at these positions
// (ONE: a factor of 1).
static const struct {
	struct {
		uint64_t unit; // 0: no buffer here
		int factors[NEED_FACTORS];
	} needs[NEEDS];
	int output; // this buffer may be no other of the launch; SHARED: it may
} rules[BUILTIN_COUNT] = {
	[BUILTIN_FILL_F32] = {{{4, {2, ONE}}}, SHARED},
	[BUILTIN_SAXPY_F32] = {{{4, {3, ONE}}, {4, {3, ONE}}}, SHARED},
	[BUILTIN_MATMUL_F32] = {{{4, {3, 4}}, {4, {3, 5}}, {4, {5, 4}}}, 0},
	[BUILTIN_SUM_F32] = {{{4, {ONE, ONE}}, {4, {2, ONE}}}, 0},
	[BUILTIN_VERIFY] = {{{4, {2, ONE}}, {8, {2, ONE}}}, 1},
	[BUILTIN_STREAM_FILL] = {{{16, {1, ONE}}}, SHARED},
	[BUILTIN_STREAM_READ] = {{{16, {2, ONE}}, {4, {ONE, ONE}}}, 1},
};

enum builtin_kernel builtin_find(const char *name)
{
	for (int kernel = 1; kernel <= BUILTIN_USERS; kernel++)
		if (!strcmp(builtin_signatures[kernel].name, name))
			return (enum builtin_kernel)kernel;
	return BUILTIN_UNKNOWN;
}

static enum status too_small(enum builtin_kernel kernel, unsigned position, const uint64_t factors[NEED_FACTORS],
			     uint64_t bytes, struct error *error)
{
	const struct builtin_signature *signature = &builtin_signatures[kernel];
	error_set(error, STATUS_INVALID_PARAMS, "%s: %s needs %llu x %llu x %llu bytes and is a buffer of %llu",
		  signature->name, signature->names[position], (unsigned long long)factors[0],
		  (unsigned long long)factors[1], (unsigned long long)rules[kernel].needs[position].unit,
		  (unsigned long long)bytes);
	error_hint(error, "give a larger buffer or smaller counts");
	return STATUS_INVALID_PARAMS;
}

enum status builtin_check(enum builtin_kernel kernel, const uint64_t values[BUILTIN_ARGUMENTS],
			  const uint64_t bytes[BUILTIN_ARGUMENTS], const unsigned same[BUILTIN_ARGUMENTS],
			  struct error *error)
{
	const struct builtin_signature *signature = &builtin_signatures[kernel];
	int output = rules[kernel].output;
	for (unsigned i = 0; i < NEEDS && rules[kernel].needs[i].unit; i++) {
		uint64_t factors[NEED_FACTORS], room = bytes[i] / rules[kernel].needs[i].unit;
		for (int j = 0; j < NEED_FACTORS; j++) {
			int position = rules[kernel].needs[i].factors[j];
			factors[j] = position == ONE ? 1 : values[position];
		}
		if (factors[0] && factors[1] && factors[0] > room / factors[1])
			return too_small(kernel, i, factors, bytes[i], error);
		if (output != SHARED && (int)i != output && same[i] == same[output])
			return error_set(error, STATUS_INVALID_PARAMS, "%s: %s and %s are one buffer", signature->name,
					 signature->names[output], signature->names[i]);
	}
	return STATUS_OK;
}
