/* Copies, fills and the built-in kernels (engine/builtin.h) on the CPU, cut into pieces for a pool.
 *
 * The cuts depend on the sizes alone, never on the number of threads; so the results do not depend on it, either.
 * Thread: any; a scratch belongs to one thread at a time. */
#pragma once
#include "engine/backend.h"
#include "engine/cpu/level.h"
#include "engine/pool.h"

struct kernel_work {
	enum builtin_kernel kernel;
	void *buffers[BUILTIN_ARGUMENTS];   // where the argument is a buffer
	uint64_t values[BUILTIN_ARGUMENTS]; // bits, where it is a value
};

// Memory of a kernel beside its buffers; all zero at first.
struct kernel_scratch {
	double *sums;  // of the pieces of a sum
	float *panels; // of matmul: parts of a and b, in the order in which they are read
};

struct kernel_place {
	struct pool *pool;
	const struct cpu_level *level;
	struct kernel_scratch *scratch;
};

// Make what `kernel` needs unless it is there. Errors: STATUS_OUT_OF_MEMORY.
enum status kernel_scratch_need(struct kernel_scratch *scratch, enum builtin_kernel kernel, struct error *error);
void kernel_scratch_finish(struct kernel_scratch *scratch);

// Return when it is done; after pool_stop, with pieces left out.
void kernel_copy(const struct kernel_place *place, void *to, const void *from, uint64_t bytes);
void kernel_fill(const struct kernel_place *place, void *to, uint8_t value, uint64_t bytes);
void kernel_run(const struct kernel_place *place, const struct kernel_work *work);

// matmul.c. c (m, n) = a (m, k) . b (k, n), row-major; `panels` of matmul_panel_bytes.
struct matmul {
	float *c;
	const float *a, *b;
	uint64_t m, n, k;
};
extern const size_t matmul_panel_bytes;
void matmul_run(const struct kernel_place *place, const struct matmul *matmul);
