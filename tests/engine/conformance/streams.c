/* Streams and points: what is told about work that is under way, and the order between streams. */
#include "common/base/limits.h"
#include "tests/engine/conformance/conformance.h"

void test_points(void **state)
{
	struct conformance *c = *state;
	struct exogpu_buffer *buffer = make(c, 1 << 20, EXOGPU_MEMORY_DEVICE);
	uint64_t last = 0, reached = 99, first = 0;
	int64_t ns = -1;
	OK(exogpu_reached(c->stream, &reached, &error));
	assert_int_equal(reached, 0);
	OK(exogpu_wait(c->stream, 0, 0, &error)); // before the first: nothing to wait for
	for (int i = 0; i < 20; i++) {
		uint64_t point = 0, before = reached;
		OK(exogpu_fill(c->stream, buffer, 0, 1 << 20, (uint8_t)i, &error));
		OK(exogpu_mark(c->stream, &point, &error));
		assert_true(point > last);
		last = point;
		first = first ? first : point;
		OK(exogpu_reached(c->stream, &reached, &error));
		assert_true(reached >= before && reached <= last);
	}
	REFUSED(STATUS_INVALID_PARAMS, exogpu_wait(c->stream, last + 1, 0, &error));
	REFUSED(STATUS_INVALID_PARAMS, exogpu_wait(c->stream, UINT64_MAX, 0, &error));
	REFUSED(STATUS_INVALID_PARAMS, exogpu_wait(c->stream, last, -1, &error));
	OK(exogpu_wait(c->stream, last, INT64_MAX, &error));
	OK(exogpu_wait(c->stream, last, 0, &error)); // reached stays reached
	OK(exogpu_wait(c->stream, first, 0, &error));
	OK(exogpu_reached(c->stream, &reached, &error));
	assert_int_equal(reached, last);
	OK(exogpu_elapsed(c->stream, first, last, &ns, &error));
	print_message("19 fills of 1 MiB: %lld ns\n", (long long)ns);
	assert_true(ns > 0);
	OK(exogpu_elapsed(c->stream, last, last, &ns, &error));
	assert_int_equal(ns, 0);
	REFUSED(STATUS_INVALID_PARAMS, exogpu_elapsed(c->stream, last, first, &ns, &error));
	REFUSED(STATUS_INVALID_PARAMS, exogpu_elapsed(c->stream, 0, last, &ns, &error));
	REFUSED(STATUS_INVALID_PARAMS, exogpu_elapsed(c->stream, last, last + 1, &ns, &error));
	uint64_t empty = 0; // a mark without work is a point like any other
	OK(exogpu_mark(c->stream, &empty, &error));
	assert_true(empty > last);
	OK(exogpu_wait(c->stream, empty, long_ns, &error));
	exogpu_buffer_destroy(&buffer);
}

void test_points_more_than_kept(void **state)
{
	enum { MARKS = 3 * EXOGPU_POINTS + 5 };
	struct conformance *c = *state;
	struct exogpu_buffer *buffer = make(c, 4096, EXOGPU_MEMORY_DEVICE);
	uint64_t marks[MARKS];
	int64_t ns = -1;
	uint8_t wanted[4096];
	for (int i = 0; i < MARKS; i++) {
		OK(exogpu_fill(c->stream, buffer, 0, 4096, (uint8_t)i, &error));
		OK(exogpu_mark(c->stream, &marks[i], &error));
		assert_true(!i || marks[i] > marks[i - 1]);
	}
	OK(exogpu_wait(c->stream, marks[0], long_ns, &error));
	OK(exogpu_wait(c->stream, marks[MARKS - 1], long_ns, &error));
	OK(exogpu_elapsed(c->stream, marks[MARKS - EXOGPU_POINTS], marks[MARKS - 1], &ns, &error));
	assert_true(ns > 0);
	REFUSED(STATUS_INVALID_PARAMS,
		exogpu_elapsed(c->stream, marks[MARKS - EXOGPU_POINTS - 1], marks[MARKS - 1], &ns, &error));
	memset(wanted, (uint8_t)(MARKS - 1), sizeof(wanted));
	holds(buffer, wanted, sizeof(wanted), "the last of many");
	exogpu_buffer_destroy(&buffer);
}

// Behind long work a short time limit passes, and the point can be waited for again. On a machine that does not come
// to ask for a while, the work may be done already: it gets several chances.
void test_time_limits(void **state)
{
	struct conformance *c = *state;
	struct long_work work;
	bool passed = false, unreached = false;
	long_work_init(c, &work);
	for (int i = 0; i < 10 && !(passed && unreached); i++) {
		struct error fault = {0};
		uint64_t point = 0, reached = 0;
		int64_t ns = 0;
		OK(exogpu_mark(c->stream, &point, &error)); // so that there are two to ask the time between
		uint64_t before = point;
		long_work_enqueue(c, &work, c->stream);
		OK(exogpu_mark(c->stream, &point, &error));
		enum status status = exogpu_wait(c->stream, point, i % 2 ? 1000 * 1000 : 0, &fault);
		assert_true(!status || status == STATUS_TIMEOUT);
		passed |= status == STATUS_TIMEOUT;
		OK(exogpu_reached(c->stream, &reached, &error));
		status = exogpu_elapsed(c->stream, before, point, &ns, &fault);
		assert_true(!status || status == STATUS_CONFLICT);
		unreached |= reached < point && status;
		OK(exogpu_wait(c->stream, point, long_ns, &error));
		OK(exogpu_elapsed(c->stream, before, point, &ns, &error));
		assert_true(ns > 0);
	}
	print_message("%u matmuls of %u\n", work.times, work.side);
	assert_true(passed && unreached);
	assert_false(exogpu_device_lost(c->device));
	long_work_finish(&work);
}

// Two streams take turns at one number.
void test_streams_follow(void **state)
{
	enum { ROUNDS = 40, FLOATS = 3001 };
	struct conformance *c = *state;
	struct exogpu_stream *streams[2] = {NULL};
	struct exogpu_buffer *x = make(c, 4 * FLOATS, EXOGPU_MEMORY_DEVICE);
	struct exogpu_buffer *y = make(c, 4 * FLOATS, EXOGPU_MEMORY_DEVICE);
	struct exogpu_buffer *z = make(c, 4 * FLOATS, EXOGPU_MEMORY_DEVICE);
	const struct exogpu_argument add[] = {buffer_argument(y), buffer_argument(x), f32_argument(1),
					      u32_argument(FLOATS)};
	struct exogpu_launch saxpy = {
		.module = c->builtin, .kernel = "saxpy_f32", .arguments = add, .argument_count = 4};
	struct long_work work;
	float got[FLOATS];
	long_work_init(c, &work);
	work.times = work.times / 8 + 1;
	LAUNCH(c, "fill_f32", buffer_argument(x), f32_argument(1), u32_argument(FLOATS));
	LAUNCH(c, "fill_f32", buffer_argument(y), f32_argument(0), u32_argument(FLOATS));
	finish(c->stream);
	for (int i = 0; i < 2; i++)
		OK(exogpu_stream_create(c->device, &streams[i], &error));
	long_work_enqueue(c, &work, streams[0]);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t point = 0;
		struct exogpu_stream *now = streams[i % 2], *next = streams[(i + 1) % 2];
		OK(exogpu_launch(now, &saxpy, &error));
		// z is y, and y is what comes back from z: an order that is not kept shows.
		OK(exogpu_copy(now, &(struct exogpu_copy){.to = z, .from = y, .bytes = 4 * FLOATS}, &error));
		OK(exogpu_mark(now, &point, &error));
		OK(exogpu_follow(next, now, point, &error));
		OK(exogpu_fill(next, y, 0, 4 * FLOATS, 0xff, &error));
		OK(exogpu_copy(next, &(struct exogpu_copy){.to = y, .from = z, .bytes = 4 * FLOATS}, &error));
		REFUSED(STATUS_INVALID_PARAMS, exogpu_follow(next, now, point + 1, &error));
		OK(exogpu_follow(now, now, point, &error)); // of itself: nothing to do
	}
	OK(exogpu_read(got, y, 0, sizeof(got), &error));
	for (int i = 0; i < FLOATS; i++)
		if (got[i] != ROUNDS)
			fail_msg("float %d is %g after %d turns", i, (double)got[i], ROUNDS);
	for (int i = 0; i < 2; i++)
		exogpu_stream_destroy(&streams[i]);
	exogpu_buffer_destroy(&x);
	exogpu_buffer_destroy(&y);
	exogpu_buffer_destroy(&z);
	long_work_finish(&work);
}

// Streams that know nothing of each other, with work of all of them enqueued in turn.
void test_streams_side_by_side(void **state)
{
	enum { STREAMS = 6, ROUNDS = 30, BYTES = 100003 };
	struct conformance *c = *state;
	struct exogpu_stream *streams[STREAMS] = {NULL};
	struct exogpu_buffer *a[STREAMS], *b[STREAMS];
	uint8_t *wanted[STREAMS];
	for (int i = 0; i < STREAMS; i++) {
		OK(exogpu_stream_create(c->device, &streams[i], &error));
		a[i] = make(c, BYTES, EXOGPU_MEMORY_DEVICE);
		b[i] = make(c, BYTES, EXOGPU_MEMORY_DEVICE);
		wanted[i] = make_pattern(BYTES, (uint32_t)i + 50);
		OK(exogpu_write(a[i], 0, wanted[i], BYTES, &error));
	}
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < STREAMS; i++) {
			uint64_t at = (uint64_t)(round * 977 + i * 31);
			uint8_t value = (uint8_t)(round + 7 * i);
			struct exogpu_copy there = {.to = b[i], .from = a[i], .bytes = BYTES};
			struct exogpu_copy back = {.to = a[i], .from = b[i], .bytes = BYTES};
			OK(exogpu_copy(streams[i], &there, &error));
			OK(exogpu_fill(streams[i], b[i], at, 1003, value, &error));
			OK(exogpu_copy(streams[i], &back, &error));
			memset(wanted[i] + at, value, 1003);
			uint64_t point;
			if (round % 5 == i % 5)
				OK(exogpu_mark(streams[i], &point, &error));
		}
	for (int i = 0; i < STREAMS; i++) {
		holds(a[i], wanted[i], BYTES, "a stream among others");
		exogpu_buffer_destroy(&a[i]);
		exogpu_buffer_destroy(&b[i]);
		exogpu_stream_destroy(&streams[i]);
		free(wanted[i]);
	}
}

void test_streams_many(void **state)
{
	struct conformance *c = *state;
	struct exogpu_stream *streams[LIMIT_STREAMS_OF_DEVICE + 1] = {NULL};
	struct exogpu_buffer *buffer = make(c, 64 * LIMIT_STREAMS_OF_DEVICE, EXOGPU_MEMORY_DEVICE);
	for (int round = 0; round < 2; round++) {
		unsigned count = 0;
		struct error fault = {0};
		enum status status = STATUS_OK;
		while (count <= LIMIT_STREAMS_OF_DEVICE && !status) {
			status = exogpu_stream_create(c->device, &streams[count], &fault);
			if (!status)
				OK(exogpu_fill(streams[count], buffer, 64 * count, 64, (uint8_t)count, &error));
			count += !status;
		}
		print_message("%u streams, then %s\n", count, fault.message);
		assert_true(status == STATUS_LIMIT_EXCEEDED || status == STATUS_OUT_OF_MEMORY);
		assert_true(count >= 8 && count < LIMIT_STREAMS_OF_DEVICE);
		for (unsigned i = 0; i < count; i++) {
			uint8_t wanted[64], got[64];
			memset(wanted, (int)i, 64);
			exogpu_stream_destroy(&streams[i]); // waits for its work
			assert_null(streams[i]);
			OK(exogpu_read(got, buffer, 64 * i, 64, &error));
			same_bytes(got, wanted, 64, "work of a stream that was destroyed");
		}
	}
	exogpu_buffer_destroy(&buffer);
}

// What is destroyed while work uses it lives until that is done.
void test_destroyed_while_busy(void **state)
{
	struct conformance *c = *state;
	for (int i = 0; i < 4; i++) {
		struct exogpu_stream *stream = NULL, *other = NULL;
		struct exogpu_module *module = c->builtin;
		struct exogpu_buffer *big = make(c, 8 << 20, EXOGPU_MEMORY_DEVICE);
		struct long_work work;
		struct exogpu_usage usage;
		uint64_t point = 0;
		long_work_init(c, &work);
		work.times = work.times / 4 + 1;
		OK(exogpu_stream_create(c->device, &stream, &error));
		OK(exogpu_stream_create(c->device, &other, &error));
		long_work_enqueue(c, &work, stream);
		OK(exogpu_fill(stream, big, 0, 8 << 20, 1, &error));
		OK(exogpu_mark(stream, &point, &error));
		OK(exogpu_follow(other, stream, point, &error));
		OK(exogpu_fill(other, big, 1, 8 << 19, 2, &error)); // not marked
		if (i == 0)
			long_work_finish(&work);
		if (i == 1)
			exogpu_buffer_destroy(&big);
		if (i == 2)
			exogpu_stream_destroy(&stream);
		if (i == 3) {
			exogpu_module_unload(&module);
			OK(exogpu_module_load(c->device, &c->builtin, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error));
		}
		exogpu_stream_destroy(&stream);
		exogpu_stream_destroy(&other);
		exogpu_buffer_destroy(&big);
		long_work_finish(&work);
		assert_false(exogpu_device_lost(c->device));
		exogpu_device_usage(c->device, &usage);
		assert_int_equal(usage.buffers + usage.device_bytes, 0);
	}
}
