/* The downloaded ranges of a file: ranges in any order, journals of every kind, another file. */
#include "server/hub/fetch_part.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 5000 };

struct world {
	char directory[64], file[80];
	struct fetch_part part;
	uint8_t bytes[BYTES];
};

static const struct fetch_identity one = {.bytes = BYTES, .etag = "\"one\""};

static int setup(void **state)
{
	struct world *world = calloc(1, sizeof *world);
	snprintf(world->directory, sizeof world->directory, "/tmp/exogpu-part-XXXXXX");
	assert_non_null(mkdtemp(world->directory));
	snprintf(world->file, sizeof world->file, "%s/m.gguf", world->directory);
	for (size_t i = 0; i < BYTES; i++)
		world->bytes[i] = (uint8_t)(i * 31 + i / 256);
	fetch_part_init(&world->part, world->file);
	*state = world;
	return 0;
}

static int teardown(void **state)
{
	struct world *world = *state;
	fetch_part_finish(&world->part);
	unlink(world->part.path);
	unlink(world->part.journal);
	rmdir(world->directory);
	free(world);
	return 0;
}

static bool open_part(struct world *world, const struct fetch_identity *identity)
{
	bool anew;
	struct error error = {0};
	if (fetch_part_open(&world->part, identity, &anew, &error))
		fail_msg("%s", error.message);
	return anew;
}

static void put(struct world *world, int64_t first, int64_t end)
{
	struct error error = {0};
	if (fetch_part_write(&world->part, first, world->bytes + first, (size_t)(end - first), &error))
		fail_msg("%s", error.message);
}

static void again(struct world *world)
{
	fetch_part_finish(&world->part);
	fetch_part_init(&world->part, world->file);
}

static void test_ranges(void **state)
{
	struct world *world = *state;
	struct fetch_span next, taken[] = {{200, 300}};
	assert_true(open_part(world, &one));
	put(world, 100, 200);
	put(world, 400, 500);
	put(world, 150, 250);
	assert_int_equal(world->part.count, 2);
	assert_int_equal(world->part.done_bytes, 250);
	assert_true(fetch_part_next(&world->part, NULL, 0, 1000, &next));
	assert_int_equal(next.first, 0);
	assert_int_equal(next.end, 100); // until what is there
	put(world, 0, 100);
	assert_true(fetch_part_next(&world->part, taken, 1, 50, &next));
	assert_int_equal(next.first, 300);
	assert_int_equal(next.end, 350);
	put(world, 250, 400);
	put(world, 500, BYTES);
	assert_int_equal(world->part.count, 1);
	assert_true(fetch_part_complete(&world->part));
	assert_false(fetch_part_next(&world->part, NULL, 0, 1000, &next));
}

// Ranges in a random order, taken as they are offered, until all is there: every byte is the one that was written.
static void test_any_order(void **state)
{
	struct world *world = *state;
	uint32_t random = 1;
	open_part(world, &one);
	for (int i = 0; i < 2000; i++) {
		random = random * 1664525 + 1013904223;
		int64_t first = (random >> 8) % BYTES, end = first + 1 + (random >> 24) % 40;
		put(world, first, end < BYTES ? end : BYTES);
		assert_true(world->part.count <= LIMIT_FETCH_SPANS);
	}
	struct fetch_span next;
	while (fetch_part_next(&world->part, NULL, 0, 64, &next))
		put(world, next.first, next.end);
	assert_true(fetch_part_complete(&world->part));
	uint8_t read_back[BYTES];
	assert_int_equal(pread(world->part.fd, read_back, BYTES, 0), BYTES);
	assert_memory_equal(read_back, world->bytes, BYTES);
}

static void test_goes_on(void **state)
{
	struct world *world = *state;
	open_part(world, &one);
	put(world, 0, 1000);
	put(world, 2000, 3000);
	again(world);
	assert_int_equal(world->part.done_bytes, 2000);
	assert_false(open_part(world, &one));
	assert_int_equal(world->part.done_bytes, 2000);
	assert_int_equal(world->part.count, 2);
}

static void test_another_file(void **state)
{
	struct world *world = *state;
	struct fetch_identity known = one, other = one, nameless = {.bytes = BYTES}, longer = one;
	snprintf(known.sha256, sizeof known.sha256, "%064d", 1);
	snprintf(other.sha256, sizeof other.sha256, "%064d", 2);
	longer.bytes++;
	const struct {
		const struct fetch_identity *was, *is;
		bool same;
	} cases[] = {
		{&one, &longer, false},   {&known, &other, false}, {&nameless, &nameless, false},
		{&one, &nameless, false}, {&known, &known, true},  {&one, &known, true},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		fetch_part_reset(&world->part);
		open_part(world, cases[i].was);
		put(world, 0, 1000);
		again(world);
		bool anew = open_part(world, cases[i].is);
		if (anew == cases[i].same || world->part.done_bytes != (cases[i].same ? 1000 : 0))
			fail_msg("case %zu: anew %d, %lld bytes", i, anew, (long long)world->part.done_bytes);
	}
}

static void test_bad_journals(void **state)
{
	static const char *const texts[] = {
		"",
		"exogpu part 2\nbytes 5000\n0 100\n",
		"exogpu part 1\nbytes 5000\n0 100",
		"exogpu part 1\n0 100\nbytes 5000\n",
		"exogpu part 1\nbytes 5000\n0 5001\n",
		"exogpu part 1\nbytes 5000\n100 100\n",
		"exogpu part 1\nbytes 5000\n-5 100\n",
		"exogpu part 1\nbytes 5000\n5\n",
		"exogpu part 1\nbytes 5000\nsha256 12\n",
		"exogpu part 1\nbytes 0\n",
		"exogpu part 1\nbytes 9000\n6000 9000\nbytes 5000\n",
		"exogpu part 1\nbytes 4999\n0 100\n", // the file is longer
		"exogpu part 1\nbytes 99999999999999999999\n0 100\n",
	};
	struct world *world = *state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		open_part(world, &one);
		put(world, 0, 1000);
		fetch_part_finish(&world->part);
		int fd = open(world->part.journal, O_WRONLY | O_TRUNC | O_CREAT, 0600);
		assert_int_equal(write(fd, texts[i], strlen(texts[i])), strlen(texts[i]));
		close(fd);
		fetch_part_init(&world->part, world->file);
		if (world->part.done_bytes)
			fail_msg("%s gives %lld bytes", texts[i], (long long)world->part.done_bytes);
	}
}

static void test_no_room(void **state)
{
	struct world *world = *state;
	struct fetch_identity huge = {.bytes = 3LL * 1024 * 1024 * 1024 * 1024, .etag = "\"x\""};
	struct error error = {0};
	bool anew;
	assert_int_equal(fetch_part_open(&world->part, &huge, &anew, &error), STATUS_LIMIT_EXCEEDED);
	assert_non_null(strstr(error.message, "no room"));
	huge.bytes *= 1024;
	error = (struct error){0};
	assert_int_equal(fetch_part_open(&world->part, &huge, &anew, &error), STATUS_LIMIT_EXCEEDED);
	assert_non_null(strstr(error.message, "larger"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ranges, setup, teardown),
		cmocka_unit_test_setup_teardown(test_any_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(test_another_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_journals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
