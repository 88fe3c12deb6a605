/* The conformance suite: what every device of every back end does alike, written once against exogpu.h.
 *
 * A test is a cmocka test whose state is a struct conformance: a device that was opened for it. After it the device is
 * closed, and nothing may have been left on it. The tests stand in files by what they look at and in one list here;
 * conformance_run runs all of them on each device of one back end. Tests of the clock accept a slow machine: they never
 * say how long something may take.
 *
 * EXOGPU_TEST_EXHAUST=1 lets the tests use up all memory of the device, and copy 4 GiB, where they else stay small: on
 * a device that is this machine's processor, whose memory others use, too. The copy of 4 GiB is only in optimised
 * builds; ./dev test runs it once, as large.c, beside nothing else. */
#pragma once
#include "engine/include/exogpu/exogpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs some of those above it.
#include <cmocka.h>

struct conformance {
	const char *backend, *hardware_key;
	struct exogpu_device *device;
	const struct exogpu_device_limits *limits;
	struct exogpu_stream *stream;
	struct exogpu_module *builtin;
	bool exhaust;  // all of its memory may be used
	bool software; // it is this machine's processor: what is free changes with what else runs here
};

// clang-format off
#ifdef NDEBUG
#define CONFORMANCE_LARGE(X) X(beyond_32_bits)
#else
#define CONFORMANCE_LARGE(X)
#endif
#define CONFORMANCE_TESTS(X)                                                                                \
	X(descriptions) X(limits_are_told) X(verifies) X(measures)                                          \
	X(memory_is_accounted) X(memory_limits) X(memory_to_exhaustion) X(memory_many) X(memory_zeroed)     \
	X(memory_pointers) X(memory_imported) X(memory_left_at_close)                                       \
	X(copy_directions) X(copy_alignment) X(copy_overlap) X(fill_edges) X(write_read_edges)              \
	X(write_read_follow) X(ranges_that_wrap) X(order_of_work) X(random_work) CONFORMANCE_LARGE(X)       \
	X(points) X(points_more_than_kept) X(time_limits) X(streams_follow) X(streams_side_by_side)         \
	X(streams_many) X(destroyed_while_busy)                                                             \
	X(kernel_fill) X(kernel_saxpy) X(kernel_matmul) X(kernel_sum) X(kernel_not_finite)                  \
	X(kernel_nothing) X(kernel_large) X(kernel_internal) X(kernel_counts)                               \
	X(wrong_nulls) X(wrong_kinds) X(wrong_arguments) X(wrong_modules) X(wrong_devices)                  \
	X(loss_is_final) X(hang_is_a_loss) X(faults_everywhere) X(back_end_is_whole)
// clang-format on
#define X(name) void test_##name(void **state);
CONFORMANCE_TESTS(X)
#undef X
void test_beyond_32_bits(void **state); // skipped, and says so, where there is too little memory

// The whole program of a back end's test. 77 where it has no device here.
int conformance_run(const char *backend);
// The same with other tests; they have these around them.
int conformance_run_tests(const char *backend, const struct CMUnitTest *tests, size_t count);
int conformance_begin(void **state);
int conformance_end(void **state);

#define OK(call) \
	do { \
		struct error error = {0}; \
		enum status got_ = (call); \
		if (got_) \
			fail_msg("%s: %s: %s", #call, status_word(got_), error.message); \
	} while (0)

// The call fails with this status and says why.
#define REFUSED(expected, call) \
	do { \
		struct error error = {0}; \
		enum status got_ = (call), wanted_ = (expected); \
		if (got_ != wanted_) \
			fail_msg("%s: %s (%s), not %s", #call, status_word(got_), error.message, \
				 status_word(wanted_)); \
		if (!error.message[0]) \
			fail_msg("%s: %s without a message", #call, status_word(got_)); \
	} while (0)

static const int64_t long_ns = 100ll * 1000 * 1000 * 1000; // far more than anything here takes

// A generator of its own, so that a failure comes again.
static inline uint32_t draw(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	return *seed ^= *seed << 5;
}

// Of bytes that differ from place to place, also a page or a piece further on.
static inline uint8_t pattern(uint64_t place, uint32_t seed)
{
	uint32_t x = (uint32_t)(place ^ place >> 32) * 2654435761u + seed * 40503u;
	return (uint8_t)(x >> 24 ^ x >> 11);
}

struct exogpu_buffer *make(struct conformance *c, uint64_t bytes, enum exogpu_memory memory);
// Memory with `bytes` of the pattern in it; the caller frees it.
uint8_t *make_pattern(uint64_t bytes, uint32_t seed);
// Fail with the place and both values of the first difference.
void same_bytes(const uint8_t *got, const uint8_t *wanted, uint64_t bytes, const char *what);
// The buffer holds these bytes from its beginning.
void holds(struct exogpu_buffer *buffer, const uint8_t *wanted, uint64_t bytes, const char *what);
// Mark and wait.
void finish(struct exogpu_stream *stream);

struct exogpu_argument buffer_argument(struct exogpu_buffer *buffer);
struct exogpu_argument f32_argument(float value);
struct exogpu_argument u32_argument(uint32_t value);
struct exogpu_argument u64_argument(uint64_t value);
// Launch a built-in kernel in c->stream.
enum status launch(struct conformance *c, const char *kernel, const struct exogpu_argument *arguments, unsigned count,
		   struct error *error);
#define LAUNCH(c, kernel, ...) \
	OK(launch(c, kernel, (const struct exogpu_argument[]){__VA_ARGS__}, \
		  sizeof((const struct exogpu_argument[]){__VA_ARGS__}) / sizeof(struct exogpu_argument), &error))
#define LAUNCH_REFUSED(expected, c, kernel, ...) \
	REFUSED(expected, \
		launch(c, kernel, (const struct exogpu_argument[]){__VA_ARGS__}, \
		       sizeof((const struct exogpu_argument[]){__VA_ARGS__}) / sizeof(struct exogpu_argument), \
		       &error))

// Work that takes the device some tenths of a second, as it says itself: a matmul, as often as that takes.
struct long_work {
	struct exogpu_buffer *a, *b, *c; // squares of `side` floats
	uint32_t side;
	unsigned times;
};
void long_work_init(struct conformance *c, struct long_work *work);
void long_work_enqueue(struct conformance *c, struct long_work *work, struct exogpu_stream *stream);
void long_work_finish(struct long_work *work);
