/* The free parts of a run of bytes: the allocator's arithmetic, without memory
 * behind it. Free ranges are one array in order of offset; neighbours are merged, so
 * no two touch. Taking uses the range that leaves the least (best fit, the first of
 * equals). There is at most one more free range than there are taken parts, and room
 * for it is reserved when a part is taken, so freeing cannot fail. Thread: its
 * owner's. */
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

// All of `bytes` is free at first. Errors: STATUS_OUT_OF_MEMORY.
enum status ranges_init(struct ranges *ranges, uint64_t bytes);
void ranges_finish(struct ranges *ranges);
// Take `bytes` > 0 at an offset that `alignment` (a power of two) divides. Errors: STATUS_OUT_OF_MEMORY (no range is
// large enough, or no memory for the array).
enum status ranges_take(struct ranges *ranges, uint64_t bytes, uint64_t alignment, uint64_t *offset);
// Give a range back, with the offset and size with which it was taken.
void ranges_give(struct ranges *ranges, uint64_t offset, uint64_t bytes);
