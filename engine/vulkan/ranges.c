/* See ranges.h. */
#include "engine/vulkan/ranges.h"

#include <stdlib.h>
#include <string.h>

enum { RANGES_AT_FIRST = 8 };

enum status ranges_init(struct ranges *ranges, uint64_t bytes)
{
	*ranges = (struct ranges){.capacity = RANGES_AT_FIRST, .count = 1, .bytes = bytes, .free_bytes = bytes};
	ranges->free = calloc(ranges->capacity, sizeof(*ranges->free));
	if (!ranges->free)
		return STATUS_OUT_OF_MEMORY;
	ranges->free[0] = (struct range){0, bytes};
	return STATUS_OK;
}

void ranges_finish(struct ranges *ranges)
{
	free(ranges->free);
	*ranges = (struct ranges){0};
}

static void insert(struct ranges *ranges, size_t at, struct range range)
{
	memmove(&ranges->free[at + 1], &ranges->free[at], (ranges->count - at) * sizeof(*ranges->free));
	ranges->free[at] = range;
	ranges->count++;
}

static void erase(struct ranges *ranges, size_t at)
{
	ranges->count--;
	memmove(&ranges->free[at], &ranges->free[at + 1], (ranges->count - at) * sizeof(*ranges->free));
}

// Room for one part more than is taken, and for the ranges around all of them.
static enum status reserve(struct ranges *ranges)
{
	if (ranges->taken + 2 <= ranges->capacity)
		return STATUS_OK;
	size_t capacity = ranges->capacity * 2;
	struct range *larger = realloc(ranges->free, capacity * sizeof(*larger));
	if (!larger)
		return STATUS_OUT_OF_MEMORY;
	ranges->free = larger;
	ranges->capacity = capacity;
	return STATUS_OK;
}

// How many bytes of the range come before the first offset that is aligned.
static uint64_t gap_of(const struct range *range, uint64_t alignment)
{
	return -range->offset & (alignment - 1);
}

enum status ranges_take(struct ranges *ranges, uint64_t bytes, uint64_t alignment, uint64_t *offset)
{
	size_t best = ranges->count;
	for (size_t i = 0; i < ranges->count; i++) {
		const struct range *range = &ranges->free[i];
		uint64_t gap = gap_of(range, alignment);
		if (gap <= range->bytes && bytes <= range->bytes - gap &&
		    (best == ranges->count || range->bytes < ranges->free[best].bytes))
			best = i;
	}
	if (best == ranges->count || reserve(ranges))
		return STATUS_OUT_OF_MEMORY;
	struct range old = ranges->free[best];
	uint64_t gap = gap_of(&old, alignment);
	*offset = old.offset + gap;
	struct range before = {old.offset, gap}, after = {*offset + bytes, old.bytes - gap - bytes};
	if (before.bytes && after.bytes) {
		ranges->free[best] = before;
		insert(ranges, best + 1, after);
	} else if (before.bytes || after.bytes) {
		ranges->free[best] = before.bytes ? before : after;
	} else {
		erase(ranges, best);
	}
	ranges->taken++;
	ranges->free_bytes -= bytes;
	return STATUS_OK;
}

void ranges_give(struct ranges *ranges, uint64_t offset, uint64_t bytes)
{
	size_t low = 0, high = ranges->count; // the first range behind the part
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (ranges->free[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	struct range *before = low ? &ranges->free[low - 1] : NULL;
	struct range *after = low < ranges->count ? &ranges->free[low] : NULL;
	bool joins_before = before && before->offset + before->bytes == offset;
	bool joins_after = after && offset + bytes == after->offset;
	if (joins_before && joins_after) {
		before->bytes += bytes + after->bytes;
		erase(ranges, low);
	} else if (joins_before) {
		before->bytes += bytes;
	} else if (joins_after) {
		*after = (struct range){offset, bytes + after->bytes};
	} else {
		insert(ranges, low, (struct range){offset, bytes});
	}
	ranges->taken--;
	ranges->free_bytes += bytes;
}
