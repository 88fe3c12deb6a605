/* Moving bytes: every direction, every edge, and the order of what is enqueued. Whole buffers are compared, so that
 * what lies beside a range is seen to be untouched. */
#include "common/base/clock.h"
#include "engine/device/host.h"
#include "engine/inside.h"
#include "tests/engine/conformance/conformance.h"

// Memory that this device has; `kinds` takes three.
static unsigned memory_kinds(struct conformance *c, enum exogpu_memory *kinds)
{
	kinds[0] = EXOGPU_MEMORY_DEVICE;
	kinds[1] = EXOGPU_MEMORY_HOST;
	kinds[2] = EXOGPU_MEMORY_MAPPED;
	return c->limits->capabilities & EXOGPU_CAN_MAP ? 3 : 2;
}

static const uint64_t sizes[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 63, 255, 256, 257, 4095, 4096, 4097, 65535, 65537};

// From each kind of memory to each, sizes around every boundary, at odd places.
void test_copy_directions(void **state)
{
	enum { BYTES = 400000 };
	struct conformance *c = *state;
	enum exogpu_memory kinds[3];
	unsigned count = memory_kinds(c, kinds);
	uint8_t *from_data = make_pattern(BYTES, 1), *to_data = make_pattern(BYTES, 2);
	for (unsigned pair = 0; pair < count * count; pair++) {
		struct exogpu_buffer *from = make(c, BYTES, kinds[pair / count]);
		struct exogpu_buffer *to = make(c, BYTES, kinds[pair % count]);
		uint8_t *wanted = malloc(BYTES);
		char what[64];
		uint64_t place = 1;
		OK(exogpu_write(from, 0, from_data, BYTES, &error));
		OK(exogpu_write(to, 0, to_data, BYTES, &error));
		memcpy(wanted, to_data, BYTES);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			uint64_t from_place = (place * 7 + i) % (BYTES - sizes[i] + 1);
			OK(exogpu_copy(c->stream,
				       &(struct exogpu_copy){.to = to,
							     .from = from,
							     .to_offset = place,
							     .from_offset = from_place,
							     .bytes = sizes[i]},
				       &error));
			memcpy(wanted + place, from_data + from_place, sizes[i]);
			place += sizes[i] + 3;
		}
		finish(c->stream);
		snprintf(what, sizeof(what), "from memory %d to %d", (int)kinds[pair / count],
			 (int)kinds[pair % count]);
		holds(to, wanted, BYTES, what);
		exogpu_buffer_destroy(&from);
		exogpu_buffer_destroy(&to);
		free(wanted);
	}
	free(from_data);
	free(to_data);
}

// Every offset of 16 against every other, a few bytes each; the last ends where the buffer does.
void test_copy_alignment(void **state)
{
	enum { SLOT = 96, SLOTS = 256, BYTES = SLOT * SLOTS + 45 };
	struct conformance *c = *state;
	struct exogpu_buffer *from = make(c, BYTES, EXOGPU_MEMORY_DEVICE), *to = make(c, BYTES, EXOGPU_MEMORY_DEVICE);
	uint8_t *from_data = make_pattern(BYTES, 3), *wanted = make_pattern(BYTES, 4);
	OK(exogpu_write(from, 0, from_data, BYTES, &error));
	OK(exogpu_write(to, 0, wanted, BYTES, &error));
	for (uint64_t i = 0; i < SLOTS; i++) {
		struct exogpu_copy copy = {.to = to,
					   .from = from,
					   .to_offset = i * SLOT + i % 16,
					   .from_offset = (SLOTS - 1 - i) * SLOT + i / 16,
					   .bytes = 1 + i % 61};
		OK(exogpu_copy(c->stream, &copy, &error));
		memcpy(wanted + copy.to_offset, from_data + copy.from_offset, copy.bytes);
	}
	OK(exogpu_copy(
		c->stream,
		&(struct exogpu_copy){.to = to, .from = from, .to_offset = BYTES - 33, .from_offset = 5, .bytes = 33},
		&error));
	memcpy(wanted + BYTES - 33, from_data + 5, 33);
	finish(c->stream);
	holds(to, wanted, BYTES, "offsets of 16");
	exogpu_buffer_destroy(&from);
	exogpu_buffer_destroy(&to);
	free(from_data);
	free(wanted);
}

void test_copy_overlap(void **state)
{
	enum { BYTES = 10000 };
	struct conformance *c = *state;
	static const struct {
		uint64_t to, from, bytes;
		bool refused;
	} cases[] = {
		{0, 0, 1, true},       {0, 1, 2, true},        {1, 0, 2, true},      {100, 199, 100, true},
		{199, 100, 100, true}, {0, 0, BYTES, true},    {0, 100, 100, false}, {300, 200, 100, false},
		{401, 400, 1, false},  {5000, 0, 5000, false}, {7, 7, 0, false},
	};
	struct exogpu_buffer *buffer = make(c, BYTES, EXOGPU_MEMORY_DEVICE);
	uint8_t *wanted = make_pattern(BYTES, 5);
	OK(exogpu_write(buffer, 0, wanted, BYTES, &error));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct exogpu_copy copy = {.to = buffer,
					   .from = buffer,
					   .to_offset = cases[i].to,
					   .from_offset = cases[i].from,
					   .bytes = cases[i].bytes};
		if (cases[i].refused) {
			REFUSED(STATUS_INVALID_PARAMS, exogpu_copy(c->stream, &copy, &error));
			continue;
		}
		OK(exogpu_copy(c->stream, &copy, &error));
		memcpy(wanted + cases[i].to, wanted + cases[i].from, cases[i].bytes);
	}
	finish(c->stream);
	holds(buffer, wanted, BYTES, "ranges that touch");
	exogpu_buffer_destroy(&buffer);
	free(wanted);
}

void test_fill_edges(void **state)
{
	enum { BYTES = 300000 };
	struct conformance *c = *state;
	enum exogpu_memory kinds[3];
	unsigned count = memory_kinds(c, kinds);
	for (unsigned kind = 0; kind < count; kind++) {
		struct exogpu_buffer *buffer = make(c, BYTES, kinds[kind]);
		uint8_t *wanted = make_pattern(BYTES, kind);
		uint64_t place = 0;
		OK(exogpu_write(buffer, 0, wanted, BYTES, &error));
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (uint64_t offset = 0; offset < (sizes[i] < 100 ? 5 : 2); offset++) {
				uint8_t value = (uint8_t)(17 * i + offset + 128);
				place = (place + 8) / 4 * 4 + offset;
				if (sizes[i] > BYTES - place)
					place = offset;
				OK(exogpu_fill(c->stream, buffer, place, sizes[i], value, &error));
				memset(wanted + place, value, sizes[i]);
				place += sizes[i];
			}
		OK(exogpu_fill(c->stream, buffer, BYTES - 3, 3, 0xee, &error));
		memset(wanted + BYTES - 3, 0xee, 3);
		OK(exogpu_fill(c->stream, buffer, BYTES, 0, 1, &error));
		finish(c->stream);
		holds(buffer, wanted, BYTES, "fills");
		exogpu_buffer_destroy(&buffer);
		free(wanted);
	}
}

// Sizes around the pieces of the ring and the whole of it, and one that goes round many times.
void test_write_read_edges(void **state)
{
	const uint64_t piece = TRANSFER_PIECE_BYTES, ring = TRANSFER_PIECES * piece;
	const uint64_t edges[] = {0,         1,        15,   4097,     piece - 1,        piece,
				  piece + 1, ring - 1, ring, ring + 1, ring + piece + 1, 64 * 1024 * 1024 + 1};
	struct conformance *c = *state;
	enum exogpu_memory kinds[3];
	unsigned count = memory_kinds(c, kinds);
	const uint64_t bytes = edges[sizeof(edges) / sizeof(edges[0]) - 1] + 32;
	uint8_t *data = make_pattern(bytes, 9), *got = malloc(bytes);
	for (unsigned kind = 0; kind < count; kind++) {
		for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
			struct exogpu_buffer *buffer = make(c, edges[i] + 32, kinds[kind]);
			uint64_t offset = i % 16;
			OK(exogpu_fill(c->stream, buffer, 0, edges[i] + 32, 0x77, &error));
			OK(exogpu_write(buffer, offset, data + i, edges[i], &error));
			memset(got, 0x55, edges[i] + 32);
			OK(exogpu_read(got, buffer, 0, edges[i] + 32, &error));
			for (uint64_t j = 0; j < 32; j++)
				assert_int_equal(got[j < offset ? j : edges[i] + j], 0x77);
			same_bytes(got + offset, data + i, edges[i], "written and read");
			got[edges[i]] = 0x55;
			OK(exogpu_read(got, buffer, offset, edges[i], &error)); // part of a buffer
			same_bytes(got, data + i, edges[i], "read from the middle");
			assert_int_equal(got[edges[i]], 0x55);
			exogpu_buffer_destroy(&buffer);
		}
	}
	free(data);
	free(got);
}

// Write and read come after what is enqueued in any stream, marked or not.
void test_write_read_follow(void **state)
{
	enum { BYTES = 3000001 };
	struct conformance *c = *state;
	enum exogpu_memory kinds[3];
	unsigned count = memory_kinds(c, kinds);
	struct exogpu_stream *other = NULL;
	struct long_work work;
	uint8_t *data = make_pattern(BYTES, 11), *wanted = malloc(BYTES), *got = malloc(BYTES);
	long_work_init(c, &work);
	work.times = work.times / 8 + 1;
	OK(exogpu_stream_create(c->device, &other, &error));
	for (unsigned kind = 0; kind < count; kind++) {
		struct exogpu_buffer *buffer = make(c, BYTES, kinds[kind]);
		long_work_enqueue(c, &work, other);
		OK(exogpu_fill(other, buffer, 0, BYTES, 0x42, &error));
		OK(exogpu_write(buffer, 1, data, BYTES - 2, &error));
		memcpy(wanted + 1, data, BYTES - 2);
		wanted[0] = wanted[BYTES - 1] = 0x42;
		long_work_enqueue(c, &work, other);
		OK(exogpu_fill(other, buffer, BYTES / 2, 1000, 0x43, &error));
		memset(wanted + BYTES / 2, 0x43, 1000);
		OK(exogpu_read(got, buffer, 0, BYTES, &error));
		same_bytes(got, wanted, BYTES, "behind another stream");
		exogpu_buffer_destroy(&buffer);
	}
	exogpu_stream_destroy(&other);
	long_work_finish(&work);
	free(data);
	free(wanted);
	free(got);
}

void test_ranges_that_wrap(void **state)
{
	static const struct {
		uint64_t offset, bytes;
	} ranges[] = {
		{0, 1001},
		{1, 1000},
		{1000, 1},
		{1001, 0},
		{0, UINT64_MAX},
		{1, UINT64_MAX},
		{UINT64_MAX, 1},
		{UINT64_MAX, 0},
		{UINT64_MAX - 7, 16},
		{500, UINT64_MAX - 499},
		{1ull << 32, 1},
		{0, 1ull << 32},
		{1ull << 63, 1ull << 63},
	};
	struct conformance *c = *state;
	struct exogpu_buffer *a = make(c, 1000, EXOGPU_MEMORY_DEVICE), *b = make(c, 1000, EXOGPU_MEMORY_DEVICE);
	uint8_t bytes[1000];
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		uint64_t at = ranges[i].offset, n = ranges[i].bytes;
		REFUSED(STATUS_INVALID_PARAMS, exogpu_fill(c->stream, a, at, n, 0, &error));
		REFUSED(STATUS_INVALID_PARAMS, exogpu_write(a, at, bytes, n, &error));
		REFUSED(STATUS_INVALID_PARAMS, exogpu_read(bytes, a, at, n, &error));
		REFUSED(STATUS_INVALID_PARAMS,
			exogpu_copy(c->stream, &(struct exogpu_copy){.to = a, .from = b, .to_offset = at, .bytes = n},
				    &error));
		REFUSED(STATUS_INVALID_PARAMS,
			exogpu_copy(c->stream, &(struct exogpu_copy){.to = a, .from = b, .from_offset = at, .bytes = n},
				    &error));
	}
	exogpu_buffer_destroy(&a);
	exogpu_buffer_destroy(&b);
}

// Each piece of work needs the one before it; nothing waits between.
void test_order_of_work(void **state)
{
	enum { ROUNDS = 100, FLOATS = 1000 };
	struct conformance *c = *state;
	struct exogpu_buffer *x = make(c, 4 * FLOATS, EXOGPU_MEMORY_DEVICE);
	struct exogpu_buffer *y = make(c, 4 * FLOATS, EXOGPU_MEMORY_DEVICE);
	struct exogpu_buffer *z = make(c, 4 * FLOATS, EXOGPU_MEMORY_DEVICE);
	float got[FLOATS];
	LAUNCH(c, "fill_f32", buffer_argument(x), f32_argument(1), u32_argument(FLOATS));
	OK(exogpu_fill(c->stream, y, 0, 4 * FLOATS, 0, &error));
	for (int i = 0; i < ROUNDS; i++) {
		LAUNCH(c, "saxpy_f32", buffer_argument(y), buffer_argument(x), f32_argument(1), u32_argument(FLOATS));
		OK(exogpu_copy(c->stream, &(struct exogpu_copy){.to = z, .from = y, .bytes = 4 * FLOATS}, &error));
		OK(exogpu_fill(c->stream, y, 0, 4 * FLOATS, 0xff, &error));
		OK(exogpu_copy(c->stream, &(struct exogpu_copy){.to = y, .from = z, .bytes = 4 * FLOATS}, &error));
	}
	OK(exogpu_read(got, y, 0, sizeof(got), &error));
	for (int i = 0; i < FLOATS; i++)
		if (got[i] != ROUNDS)
			fail_msg("float %d is %g after %d rounds", i, (double)got[i], ROUNDS);
	exogpu_buffer_destroy(&x);
	exogpu_buffer_destroy(&y);
	exogpu_buffer_destroy(&z);
}

enum { RANDOM_BUFFERS = 4, RANDOM_BYTES = 50001 };

static void one_at_random(struct conformance *c, uint32_t *seed, struct exogpu_buffer **buffers,
			  uint8_t (*model)[RANDOM_BYTES])
{
	unsigned a = draw(seed) % RANDOM_BUFFERS, b = draw(seed) % RANDOM_BUFFERS;
	uint64_t bytes = draw(seed) % (draw(seed) % 4 ? 300 : RANDOM_BYTES);
	uint64_t at = draw(seed) % (RANDOM_BYTES - bytes), from = draw(seed) % (RANDOM_BYTES - bytes);
	uint8_t value = (uint8_t)draw(seed);
	switch (draw(seed) % 8) {
	case 0:
		OK(exogpu_write(buffers[a], at, model[b] + from, bytes, &error));
		memmove(model[a] + at, model[b] + from, bytes);
		break;
	case 1:
	case 2:
	case 3:
		OK(exogpu_fill(c->stream, buffers[a], at, bytes, value, &error));
		memset(model[a] + at, value, bytes);
		break;
	case 4: {
		uint32_t floats = (uint32_t)(bytes / 4);
		float one = value;
		LAUNCH(c, "fill_f32", buffer_argument(buffers[a]), f32_argument(one), u32_argument(floats));
		for (uint32_t i = 0; i < floats; i++)
			memcpy(model[a] + 4 * (uint64_t)i, &one, 4);
		break;
	}
	default:
		if (a == b && at < from + bytes && from < at + bytes)
			break;
		OK(exogpu_copy(c->stream,
			       &(struct exogpu_copy){.to = buffers[a],
						     .from = buffers[b],
						     .to_offset = at,
						     .from_offset = from,
						     .bytes = bytes},
			       &error));
		memcpy(model[a] + at, model[b] + from, bytes);
	}
}

// The device against a model of it in the host's memory.
void test_random_work(void **state)
{
	struct conformance *c = *state;
	struct exogpu_buffer *buffers[RANDOM_BUFFERS];
	uint8_t(*model)[RANDOM_BYTES] = calloc(RANDOM_BUFFERS, RANDOM_BYTES);
	uint32_t seed = 99;
	for (int i = 0; i < RANDOM_BUFFERS; i++) {
		buffers[i] = make(c, RANDOM_BYTES, i == 1 ? EXOGPU_MEMORY_HOST : EXOGPU_MEMORY_DEVICE);
		OK(exogpu_fill(c->stream, buffers[i], 0, RANDOM_BYTES, 0, &error));
	}
	for (int i = 0; i < 1000; i++)
		one_at_random(c, &seed, buffers, model);
	for (int i = 0; i < RANDOM_BUFFERS; i++) {
		holds(buffers[i], model[i], RANDOM_BYTES, "the model");
		exogpu_buffer_destroy(&buffers[i]);
	}
	free(model);
}

// Over a buffer that has been filled with something else.
static void copy_beyond(struct conformance *c, struct exogpu_buffer *to, struct exogpu_buffer *from, uint64_t bytes,
			const char *what)
{
	OK(exogpu_fill(c->stream, to, 0, bytes, 0x22, &error));
	finish(c->stream);
	const int64_t begun_ns = clock_steady_ns(); // both have been touched
	OK(exogpu_copy(c->stream, &(struct exogpu_copy){.to = to, .from = from, .bytes = bytes}, &error));
	finish(c->stream);
	print_message("4 GiB + 1 copied %s in %.2f s\n", what, (double)(clock_steady_ns() - begun_ns) / 1e9);
}

// Pieces of `step` bytes, each `data` with its number in the first.
static void holds_beyond(struct exogpu_buffer *buffer, uint8_t *data, uint64_t bytes, uint64_t step, const char *what)
{
	uint8_t *got = malloc(step);
	for (uint64_t at = 0; at < bytes; at += step) {
		uint64_t piece = at + step <= bytes ? step : bytes - at;
		data[0] = (uint8_t)(at / step);
		OK(exogpu_read(got, buffer, at, piece, &error));
		same_bytes(got, data, piece, what);
	}
	free(got);
}

// Whether there is so much of the device's memory, and of the host's for one buffer.
static bool room_beyond(struct conformance *c, uint64_t bytes)
{
	const uint64_t spare = 1ull << 30, needed = 3 * bytes + spare;
	uint64_t total, available;
	int64_t host_total, host_available;
	host_memory_read(&host_total, &host_available);
	OK(exogpu_device_memory(c->device, &total, &available, &error));
	if (c->exhaust && c->limits->buffer_bytes >= bytes && available >= needed &&
	    host_available >= (int64_t)(bytes + spare))
		return true;
	print_message("skipped: copies of 4 GiB + 1 need %llu MiB free (%llu are), %llu of the host's (%lld are) and "
		      "buffers of as many as one (%llu MiB at most)%s\n",
		      (unsigned long long)(needed >> 20), (unsigned long long)(available >> 20),
		      (unsigned long long)((bytes + spare) >> 20), (long long)(host_available >> 20),
		      (unsigned long long)(c->limits->buffer_bytes >> 20),
		      c->exhaust ? "" : ", and on a processor EXOGPU_TEST_EXHAUST=1");
	return false;
}

// Copies of 4 GiB + 1, from each kind of memory to the other, and a fill, where there is so much: a size that does not
// fit into 32 bits.
void test_beyond_32_bits(void **state)
{
	const uint64_t bytes = (1ull << 32) + 1, step = 64 * 1024 * 1024;
	struct conformance *c = *state;
	if (!room_beyond(c, bytes))
		skip();
	struct exogpu_buffer *a = make(c, bytes, EXOGPU_MEMORY_DEVICE), *b = make(c, bytes, EXOGPU_MEMORY_DEVICE),
			     *host = make(c, bytes, EXOGPU_MEMORY_HOST);
	uint8_t *data = make_pattern(step, 21), *got = malloc(step);
	OK(exogpu_fill(c->stream, a, 0, bytes, 0x11, &error));
	finish(c->stream);
	for (uint64_t at = 0; at < bytes; at += step) {
		data[0] = (uint8_t)(at / step);
		OK(exogpu_write(a, at, data, at + step <= bytes ? step : bytes - at, &error));
	}
	copy_beyond(c, b, a, bytes, "from the device to it");
	holds_beyond(b, data, bytes, step, "4 GiB + 1");
	copy_beyond(c, host, a, bytes, "from the device to the host");
	holds_beyond(host, data, bytes, step, "4 GiB + 1 of the host");
	copy_beyond(c, b, host, bytes, "from the host to the device");
	holds_beyond(b, data, bytes, step, "4 GiB + 1 from the host");
	OK(exogpu_fill(c->stream, a, 1, bytes - 1, 0x33, &error));
	OK(exogpu_read(got, a, bytes - step, step, &error));
	memset(data, 0x33, step);
	same_bytes(got, data, step, "the end of a fill of 4 GiB");
	exogpu_buffer_destroy(&a);
	exogpu_buffer_destroy(&b);
	exogpu_buffer_destroy(&host);
	free(data);
	free(got);
}
