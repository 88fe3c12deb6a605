/* Streams and memory of the CPU back end alone; the conformance suite tests what all back ends have in common. Queues
 * that are full, streams that wait for each other in circles, a device closed while it is busy, memory promised and not
 * there. Also run under the thread sanitizer. */
#include "common/base/limits.h"
#include "engine/backend.h"
#include "engine/device/identity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

static const struct backend *const cpu = &backend_cpu;
static struct error error; // of the last call in OK
static const int64_t long_ns = 120000000000;

#define OK(call) \
	do { \
		error = (struct error){0}; \
		if (call) \
			fail_msg("%s: %s", #call, error.message); \
	} while (0)

static struct backend_device *open_device(void)
{
	char key[INFO_KEY_BYTES];
	struct backend_device *device = NULL;
	identity_cpu(key);
	struct backend_open params = {.hardware_key = key};
	OK(cpu->open(&device, &params, &error));
	return device;
}

static struct backend_buffer *new_buffer(struct backend_device *device, uint64_t bytes)
{
	struct backend_buffer *buffer = NULL;
	struct backend_buffer_params params = {.bytes = bytes, .memory = EXOGPU_MEMORY_DEVICE};
	OK(cpu->buffer_create(device, &buffer, &params, &error));
	return buffer;
}

static struct backend_stream *new_stream(struct backend_device *device)
{
	struct backend_stream *stream = NULL;
	OK(cpu->stream_create(device, &stream, &error));
	return stream;
}

static void settle(struct backend_stream *stream)
{
	uint64_t point;
	OK(cpu->mark(stream, &point, &error));
	OK(cpu->wait(stream, point, long_ns, &error));
}

// More work and more points than are kept: the caller waits, and nothing is lost or out of order.
static void test_full_queue(void **state)
{
	enum { WORK = 5 * LIMIT_CPU_QUEUE, BYTES = 64 };
	struct backend_device *device = open_device();
	struct backend_buffer *buffer = new_buffer(device, (WORK + 1) * BYTES);
	struct backend_stream *stream = new_stream(device);
	uint8_t *bytes = cpu->buffer_pointer(buffer);
	uint64_t point = 0, last = 0, reached = 0;
	(void)state;
	memset(bytes, 7, BYTES);
	for (uint64_t i = 0; i < WORK; i++) { // each copies what the one before wrote
		struct backend_copy copy = {buffer, buffer, (i + 1) * BYTES, i * BYTES, BYTES};
		OK(cpu->copy(stream, &copy, &error));
		if (i % 3)
			continue;
		OK(cpu->mark(stream, &point, &error));
		assert_int_equal(point, last + 1);
		last = point;
	}
	settle(stream);
	for (uint64_t i = 0; i < BYTES; i++)
		assert_int_equal(bytes[WORK * BYTES + i], 7);
	OK(cpu->reached(stream, &reached, &error));
	assert_int_equal(reached, last + 1);
	for (uint64_t i = reached - EXOGPU_POINTS + 1; i < reached; i++) {
		int64_t ns = -1;
		OK(cpu->elapsed(stream, i, i + 1, &ns, &error));
		assert_true(ns >= 0);
	}
	cpu->stream_destroy(device, &stream);
	cpu->close(&device); // frees the buffer
	assert_null(device);
}

// Three streams hand one value round and round, each behind the one before; the caller never waits.
static void test_circle(void **state)
{
	enum { STREAMS = 3, ROUNDS = 600, BYTES = 4096 };
	struct backend_device *device = open_device();
	struct backend_buffer *buffers[STREAMS];
	struct backend_stream *streams[STREAMS];
	uint64_t points[STREAMS] = {0};
	(void)state;
	for (int i = 0; i < STREAMS; i++) {
		buffers[i] = new_buffer(device, BYTES);
		streams[i] = new_stream(device);
	}
	memset(cpu->buffer_pointer(buffers[0]), 0x3c, BYTES);
	for (int i = 0; i < ROUNDS; i++) {
		int from = i % STREAMS, to = (i + 1) % STREAMS;
		struct backend_copy copy = {buffers[to], buffers[from], 0, 0, BYTES};
		OK(cpu->follow(streams[to], streams[from], points[from], &error));
		OK(cpu->copy(streams[to], &copy, &error));
		OK(cpu->fill(streams[to], buffers[from], 0, BYTES, (uint8_t)i, &error));
		OK(cpu->mark(streams[to], &points[to], &error));
	}
	int last = ROUNDS % STREAMS;
	OK(cpu->wait(streams[last], points[last], long_ns, &error));
	const uint8_t *bytes = cpu->buffer_pointer(buffers[last]);
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(bytes[i], 0x3c);
	cpu->close(&device);
}

// A stream goes while another still has to pass a point of it.
static void test_followed_stream_goes(void **state)
{
	enum { MIB = 64 };
	struct backend_device *device = open_device();
	struct backend_buffer *buffer = new_buffer(device, (uint64_t)MIB << 20);
	(void)state;
	for (int i = 0; i < 50; i++) {
		struct backend_stream *first = new_stream(device), *second = new_stream(device);
		uint64_t point;
		OK(cpu->fill(second, buffer, 1 << 20, (uint64_t)(MIB - 1) << 20, 1, &error));
		OK(cpu->fill(first, buffer, 0, 100, 1, &error));
		OK(cpu->mark(first, &point, &error));
		OK(cpu->follow(second, first, point, &error));
		OK(cpu->fill(second, buffer, 0, 100, 2, &error));
		OK(cpu->wait(first, point, long_ns, &error));
		cpu->stream_destroy(device, &first);
		assert_null(first);
		settle(second);
		assert_int_equal(((uint8_t *)cpu->buffer_pointer(buffer))[99], 2);
		cpu->stream_destroy(device, &second);
	}
	cpu->close(&device);
}

// Hours of work are left out when the device is closed, in streams that run and in one that waits for another.
static void test_close_while_busy(void **state)
{
	enum { SIZE = 4096, LAUNCHES = 100 };
	struct backend_device *device = open_device();
	struct backend_buffer *buffers[3];
	struct backend_stream *streams[3];
	struct backend_module *module = NULL;
	struct backend_module_params format = {.format = EXOGPU_FORMAT_BUILTIN};
	uint64_t point;
	(void)state;
	OK(cpu->module_load(device, &module, &format, &error));
	for (int i = 0; i < 3; i++) {
		buffers[i] = new_buffer(device, 4ull * SIZE * SIZE);
		streams[i] = new_stream(device);
	}
	struct backend_argument arguments[6] = {{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = buffers[0]},
						{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = buffers[2]},
						{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = buffers[2]},
						{.kind = EXOGPU_ARGUMENT_U64, .bits = SIZE},
						{.kind = EXOGPU_ARGUMENT_U64, .bits = SIZE},
						{.kind = EXOGPU_ARGUMENT_U64, .bits = SIZE}};
	struct backend_launch launch = {
		.module = module, .kernel = BUILTIN_MATMUL_F32 - 1, .arguments = arguments, .argument_count = 6};
	for (int i = 0; i < LAUNCHES; i++)
		for (int j = 0; j < 2; j++) {
			arguments[0].buffer = buffers[j];
			OK(cpu->launch(streams[j], &launch, &error));
		}
	OK(cpu->mark(streams[0], &point, &error));
	OK(cpu->follow(streams[2], streams[0], point, &error));
	OK(cpu->fill(streams[2], buffers[0], 0, 1, 1, &error));
	error = (struct error){0};
	assert_int_equal(cpu->wait(streams[0], point, 1000000, &error), STATUS_TIMEOUT);
	assert_true(strlen(error.message) > 0);
	cpu->module_unload(device, &module);
	cpu->close(&device);
	assert_null(device);
}

// What is promised and not touched counts: three times two fifths of what there is do not fit, though nothing is used.
static void test_promises(void **state)
{
	struct backend_device *device = open_device();
	struct backend_buffer *refused = NULL;
	uint64_t total, available;
	(void)state;
	OK(cpu->memory(device, &total, &available, &error));
	assert_in_range(available, 1, total);
	struct backend_buffer_params params = {.bytes = available / 5 * 2, .memory = EXOGPU_MEMORY_DEVICE};
	new_buffer(device, params.bytes);
	struct backend_buffer *second = new_buffer(device, params.bytes);
	error = (struct error){0};
	assert_int_equal(cpu->buffer_create(device, &refused, &params, &error), STATUS_OUT_OF_MEMORY);
	print_message("%s\n", error.message);
	assert_null(refused);
	cpu->buffer_destroy(device, &second);
	new_buffer(device, params.bytes);
	cpu->close(&device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_queue),
		cmocka_unit_test(test_circle),
		cmocka_unit_test(test_followed_stream_goes),
		cmocka_unit_test(test_close_while_busy),
		cmocka_unit_test(test_promises),
	};
	return cmocka_run_group_tests_name("cpu streams", tests, NULL, NULL);
}
