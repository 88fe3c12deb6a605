/* Which parts of a run of bytes are free: the arithmetic of the allocator, without any memory behind it.
 *
 * Free ranges lie in one array in order of offset; neighbours are merged, so no two touch. Taking looks for the range
 * that the bytes leave the least of (best fit, the first of equals). Their number is at most one more than that of the
 * parts taken, and room for that is made when a part is taken: giving back cannot fail.
 * Thread: its owner's. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct range {
	uint64_t offset, bytes;
};

struct ranges {
	struct range *free; // (count), in order
	size_t count, capacity;
	size_t taken; // parts
	uint64_t bytes, free_bytes;
};

// All of `bytes` is free. Errors: STATUS_OUT_OF_MEMORY.
enum status ranges_init(struct ranges *ranges, uint64_t bytes);
void ranges_finish(struct ranges *ranges);
// Take `bytes` > 0 at an offset that `alignment` (a power of two) divides. Errors: STATUS_OUT_OF_MEMORY (no range is
// large enough, or no memory for the array).
enum status ranges_take(struct ranges *ranges, uint64_t bytes, uint64_t alignment, uint64_t *offset);
// Give back what was taken, as it was taken.
void ranges_give(struct ranges *ranges, uint64_t offset, uint64_t bytes);
