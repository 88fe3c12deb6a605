/* Free ranges: what is taken never overlaps, what is given back joins its neighbours, and the books are right. */
#include "engine/vulkan/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs some of those above it.
#include <cmocka.h>

static uint64_t take(struct ranges *ranges, uint64_t bytes, uint64_t alignment)
{
	uint64_t offset = UINT64_MAX;
	assert_int_equal(ranges_take(ranges, bytes, alignment, &offset), STATUS_OK);
	assert_int_equal(offset % alignment, 0);
	return offset;
}

static void best_fit(void **state)
{
	struct ranges ranges;
	(void)state;
	assert_int_equal(ranges_init(&ranges, 1000), STATUS_OK);
	uint64_t a = take(&ranges, 100, 1), b = take(&ranges, 50, 1), c = take(&ranges, 60, 1);
	assert_int_equal(a, 0);
	assert_int_equal(b, 100);
	assert_int_equal(c, 150);
	ranges_give(&ranges, a, 100);
	take(&ranges, 790, 1); // all behind c: the hole of 100 is what is left
	ranges_give(&ranges, b, 50);
	assert_int_equal(ranges.count, 1); // a and b have joined
	assert_int_equal(take(&ranges, 150, 1), 0);
	uint64_t none;
	assert_int_equal(ranges_take(&ranges, 1, 1, &none), STATUS_OUT_OF_MEMORY);
	assert_int_equal(ranges.free_bytes, 0);
	ranges_finish(&ranges);
}

// The smallest hole that is large enough, also when it has to be aligned.
static void alignment(void **state)
{
	struct ranges ranges;
	(void)state;
	assert_int_equal(ranges_init(&ranges, 4096), STATUS_OK);
	assert_int_equal(take(&ranges, 1, 256), 0);
	assert_int_equal(take(&ranges, 1, 256), 256);
	assert_int_equal(ranges.count, 2); // between them, and behind
	assert_int_equal(take(&ranges, 255, 1), 1);
	assert_int_equal(take(&ranges, 2048, 2048), 2048);
	uint64_t none;
	assert_int_equal(ranges_take(&ranges, 1024, 2048, &none), STATUS_OUT_OF_MEMORY);
	assert_int_equal(take(&ranges, 1024, 1024), 1024);
	ranges_finish(&ranges);
}

enum { PARTS = 200, BYTES = 65536 };

struct part {
	uint64_t offset, bytes; // bytes 0: not taken
};

static void check(const struct ranges *ranges, const struct part *parts)
{
	static uint8_t map[BYTES]; // who has each byte
	uint64_t free_bytes = 0;
	size_t taken = 0;
	memset(map, 0, sizeof(map));
	for (int i = 0; i < PARTS; i++) {
		taken += parts[i].bytes > 0;
		for (uint64_t j = 0; j < parts[i].bytes; j++)
			assert_int_equal(map[parts[i].offset + j]++, 0);
	}
	for (size_t i = 0; i < ranges->count; i++) {
		free_bytes += ranges->free[i].bytes;
		assert_true(ranges->free[i].bytes > 0);
		if (i) // in order, and not touching
			assert_true(ranges->free[i - 1].offset + ranges->free[i - 1].bytes < ranges->free[i].offset);
		for (uint64_t j = 0; j < ranges->free[i].bytes; j++)
			assert_int_equal(map[ranges->free[i].offset + j]++, 0);
	}
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(map[i], 1);
	assert_int_equal(ranges->free_bytes, free_bytes);
	assert_int_equal(ranges->taken, taken);
	assert_true(ranges->count <= ranges->capacity && ranges->taken + 1 <= ranges->capacity);
}

// Thousands of takes and gives in an order of chance, each byte accounted for.
static void at_random(void **state)
{
	struct ranges ranges;
	struct part parts[PARTS] = {{0}};
	uint32_t seed = 1;
	unsigned refused = 0;
	(void)state;
	assert_int_equal(ranges_init(&ranges, BYTES), STATUS_OK);
	for (int i = 0; i < 20000; i++) {
		seed = seed * 1664525 + 1013904223;
		struct part *part = &parts[(seed >> 8) % PARTS];
		if (part->bytes) {
			ranges_give(&ranges, part->offset, part->bytes);
			part->bytes = 0;
		} else {
			uint64_t bytes = 1 + (seed >> 16) % 1500, align = 1ull << (seed >> 28);
			if (ranges_take(&ranges, bytes, align, &part->offset) == STATUS_OK) {
				assert_int_equal(part->offset % align, 0);
				part->bytes = bytes;
			} else {
				refused++;
			}
		}
		if (i % 100 == 0)
			check(&ranges, parts);
	}
	assert_true(refused > 0);
	for (int i = 0; i < PARTS; i++)
		if (parts[i].bytes)
			ranges_give(&ranges, parts[i].offset, parts[i].bytes);
	assert_int_equal(ranges.count, 1);
	assert_int_equal(ranges.free_bytes, BYTES);
	ranges_finish(&ranges);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(best_fit),
		cmocka_unit_test(alignment),
		cmocka_unit_test(at_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
