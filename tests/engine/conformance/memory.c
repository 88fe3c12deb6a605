/* Allocating: what it costs, where it ends, and that all of it comes back. */
#include "tests/engine/conformance/conformance.h"

#include <sys/mman.h>
#include <unistd.h>

static const uint64_t mib = 1024 * 1024;

static struct exogpu_usage usage_of(struct conformance *c)
{
	struct exogpu_usage usage;
	exogpu_device_usage(c->device, &usage);
	return usage;
}

void test_memory_is_accounted(void **state)
{
	struct conformance *c = *state;
	uint64_t total = 0, available = 0;
	bool maps = c->limits->capabilities & EXOGPU_CAN_MAP;
	struct exogpu_buffer *device = make(c, 1001, EXOGPU_MEMORY_DEVICE), *host = make(c, 70001, EXOGPU_MEMORY_HOST);
	struct exogpu_buffer *mapped = maps ? make(c, 13, EXOGPU_MEMORY_MAPPED) : NULL;
	struct exogpu_usage usage = usage_of(c);
	assert_int_equal(usage.device_bytes, maps ? 1014 : 1001);
	assert_int_equal(usage.host_bytes, 70001);
	assert_int_equal(usage.buffers, maps ? 3 : 2);
	assert_int_equal(usage.streams, 1);
	assert_int_equal(usage.modules, 1);
	assert_int_equal(exogpu_buffer_bytes(device), 1001);
	OK(exogpu_write(device, 0, "abc", 3, &error)); // what the library keeps for it is nobody's
	assert_int_equal(usage_of(c).host_bytes, 70001);
	assert_int_equal(usage_of(c).streams, 1);
	exogpu_buffer_destroy(&device);
	assert_null(device);
	exogpu_buffer_destroy(&device); // nothing to do
	exogpu_buffer_destroy(&host);
	exogpu_buffer_destroy(&mapped);
	usage = usage_of(c);
	assert_int_equal(usage.device_bytes + usage.host_bytes + usage.buffers, 0);
	OK(exogpu_device_memory(c->device, &total, &available, &error));
	print_message("%llu MiB, %llu free\n", (unsigned long long)(total / mib),
		      (unsigned long long)(available / mib));
	assert_true(total > 0 && available > 0 && available <= total);
	assert_false(exogpu_device_lost(c->device));
}

void test_memory_limits(void **state)
{
	struct conformance *c = *state;
	struct exogpu_buffer *buffer = NULL, *other = NULL;
	struct exogpu_device *small = NULL;
	const struct exogpu_open open = {
		.backend = c->backend, .hardware_key = c->hardware_key, .memory_limit_bytes = mib};
	REFUSED(STATUS_INVALID_PARAMS, exogpu_buffer_create(c->device, &buffer, 0, EXOGPU_MEMORY_DEVICE, &error));
	if (c->limits->buffer_bytes < UINT64_MAX)
		REFUSED(STATUS_LIMIT_EXCEEDED, exogpu_buffer_create(c->device, &buffer, c->limits->buffer_bytes + 1,
								    EXOGPU_MEMORY_DEVICE, &error));
	REFUSED(STATUS_LIMIT_EXCEEDED,
		exogpu_buffer_create(c->device, &buffer, UINT64_MAX, EXOGPU_MEMORY_DEVICE, &error));
	REFUSED(STATUS_LIMIT_EXCEEDED,
		exogpu_buffer_create(c->device, &buffer, UINT64_MAX, EXOGPU_MEMORY_HOST, &error));
	REFUSED(STATUS_INVALID_PARAMS, exogpu_buffer_create(c->device, &buffer, 16, EXOGPU_MEMORY_UNKNOWN, &error));
	REFUSED(STATUS_INVALID_PARAMS, exogpu_buffer_create(c->device, &buffer, 16, (enum exogpu_memory)99, &error));
	if (!(c->limits->capabilities & EXOGPU_CAN_MAP))
		REFUSED(STATUS_UNAVAILABLE, exogpu_buffer_create(c->device, &buffer, 16, EXOGPU_MEMORY_MAPPED, &error));
	assert_null(buffer);
	// The limit that the device was opened with: of device memory, of all buffers together.
	OK(exogpu_device_open(&small, &open, &error));
	OK(exogpu_buffer_create(small, &buffer, mib - 5, EXOGPU_MEMORY_DEVICE, &error));
	REFUSED(STATUS_LIMIT_EXCEEDED, exogpu_buffer_create(small, &other, 6, EXOGPU_MEMORY_DEVICE, &error));
	OK(exogpu_buffer_create(small, &other, 5, EXOGPU_MEMORY_DEVICE, &error));
	exogpu_buffer_destroy(&other);
	OK(exogpu_buffer_create(small, &other, mib, EXOGPU_MEMORY_HOST, &error));
	exogpu_buffer_destroy(&buffer);
	OK(exogpu_buffer_create(small, &buffer, mib, EXOGPU_MEMORY_DEVICE, &error));
	exogpu_buffer_destroy(&buffer);
	exogpu_buffer_destroy(&other);
	exogpu_device_close(&small, NULL);
}

enum { EXHAUST_BUFFERS = 4096 };

// Buffers from large to small, until not one of `least` bytes is left. Returns how many were made.
static unsigned use_up(struct exogpu_device *device, uint64_t most, uint64_t least, struct exogpu_buffer **buffers)
{
	unsigned count = 0;
	for (uint64_t bytes = most; bytes >= least && count < EXHAUST_BUFFERS;) {
		struct error error = {0};
		enum status status = exogpu_buffer_create(device, &buffers[count], bytes, EXOGPU_MEMORY_DEVICE, &error);
		if (!status) {
			count++;
			continue;
		}
		if (status != STATUS_OUT_OF_MEMORY && status != STATUS_LIMIT_EXCEEDED)
			fail_msg("%llu bytes: %s: %s", (unsigned long long)bytes, status_word(status), error.message);
		assert_null(buffers[count]);
		assert_string_not_equal(error.message, "");
		bytes /= 2;
	}
	return count;
}

// All that there is, or all that the device was opened with, twice: what came back is as much as went.
void test_memory_to_exhaustion(void **state)
{
	struct conformance *c = *state;
	struct exogpu_device *device = NULL;
	struct exogpu_buffer **buffers = calloc(EXHAUST_BUFFERS, sizeof(struct exogpu_buffer *));
	const uint64_t most = c->exhaust ? 1024 * mib : 16 * mib, least = c->exhaust ? mib : 4096;
	struct exogpu_open open = {.backend = c->backend,
				   .hardware_key = c->hardware_key,
				   .memory_limit_bytes = c->exhaust ? 0 : 100 * mib + 4097};
	uint64_t total, before = 0, after = 0, bytes[2] = {0};
	OK(exogpu_device_open(&device, &open, &error));
	OK(exogpu_device_memory(device, &total, &before, &error));
	for (int round = 0; round < 2; round++) {
		struct exogpu_usage usage;
		uint64_t first = most < exogpu_device_limits(device)->buffer_bytes
					 ? most
					 : exogpu_device_limits(device)->buffer_bytes;
		unsigned count = use_up(device, first, least, buffers);
		exogpu_device_usage(device, &usage);
		bytes[round] = usage.device_bytes;
		assert_int_equal(usage.buffers, count);
		while (count)
			exogpu_buffer_destroy(&buffers[--count]);
		exogpu_device_usage(device, &usage);
		assert_int_equal(usage.device_bytes + usage.buffers, 0);
	}
	OK(exogpu_device_memory(device, &total, &after, &error));
	print_message("%llu MiB and %llu MiB; free before %llu MiB, after %llu MiB\n",
		      (unsigned long long)(bytes[0] / mib), (unsigned long long)(bytes[1] / mib),
		      (unsigned long long)(before / mib), (unsigned long long)(after / mib));
	if (!c->exhaust)
		assert_true(bytes[0] > 100 * mib && bytes[0] == bytes[1]);
	assert_true(bytes[0] > 0 && bytes[1] >= bytes[0] - bytes[0] / 16);
	if (!c->software) // a driver may keep a little; what it lends is whole again
		assert_true(after + 256 * mib >= before);
	free(buffers);
	exogpu_device_close(&device, NULL);
}

// Many buffers of awkward sizes, some of which go and come again: no two lie on one another.
void test_memory_many(void **state)
{
	enum { COUNT = 300 };
	struct conformance *c = *state;
	struct exogpu_buffer *buffers[COUNT];
	uint8_t values[COUNT];
	uint32_t seed = 12345;
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < COUNT; i++) {
			if (round && draw(&seed) % 2)
				continue;
			if (round)
				exogpu_buffer_destroy(&buffers[i]);
			buffers[i] = make(c, 1 + draw(&seed) % (i % 16 ? 3000 : 200000), EXOGPU_MEMORY_DEVICE);
			values[i] = (uint8_t)draw(&seed);
			OK(exogpu_fill(c->stream, buffers[i], 0, exogpu_buffer_bytes(buffers[i]), values[i], &error));
		}
	for (int i = 0; i < COUNT; i++) {
		uint64_t bytes = exogpu_buffer_bytes(buffers[i]);
		uint8_t *wanted = malloc(bytes);
		memset(wanted, values[i], bytes);
		holds(buffers[i], wanted, bytes, "a buffer among many");
		free(wanted);
		exogpu_buffer_destroy(&buffers[i]);
	}
}

void test_memory_zeroed(void **state)
{
	struct conformance *c = *state;
	enum { BYTES = 300001, ROUNDS = 8 };
	uint8_t *zero = calloc(1, BYTES);
	if (!(c->limits->capabilities & EXOGPU_CAN_ZEROED))
		print_message("this device does not zero memory\n");
	for (int i = 0; i < ROUNDS && c->limits->capabilities & EXOGPU_CAN_ZEROED; i++) {
		struct exogpu_buffer *buffer = make(c, BYTES, EXOGPU_MEMORY_DEVICE);
		holds(buffer, zero, BYTES, "new memory");
		OK(exogpu_fill(c->stream, buffer, 0, BYTES, 0xff, &error));
		finish(c->stream);
		exogpu_buffer_destroy(&buffer);
	}
	free(zero);
}

// Host and mapped memory have an address; the device and the host see what the other wrote.
void test_memory_pointers(void **state)
{
	struct conformance *c = *state;
	const enum exogpu_memory kinds[] = {EXOGPU_MEMORY_HOST, EXOGPU_MEMORY_MAPPED};
	struct exogpu_buffer *device = make(c, 5000, EXOGPU_MEMORY_DEVICE);
	assert_null(exogpu_buffer_pointer(device));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (kinds[i] == EXOGPU_MEMORY_MAPPED && !(c->limits->capabilities & EXOGPU_CAN_MAP))
			continue;
		struct exogpu_buffer *buffer = make(c, 5000, kinds[i]);
		uint8_t *pointer = exogpu_buffer_pointer(buffer), *data = make_pattern(5000, 7);
		assert_non_null(pointer);
		assert_ptr_equal(pointer, exogpu_buffer_pointer(buffer));
		memcpy(pointer, data, 5000);
		OK(exogpu_copy(c->stream, &(struct exogpu_copy){.to = device, .from = buffer, .bytes = 5000}, &error));
		OK(exogpu_fill(c->stream, buffer, 1, 4998, 0x3c, &error));
		finish(c->stream);
		holds(device, data, 5000, "what the host wrote");
		memset(data + 1, 0x3c, 4998);
		same_bytes(pointer, data, 5000, "what the device wrote");
		exogpu_buffer_destroy(&buffer);
		free(data);
	}
	exogpu_buffer_destroy(&device);
}

// Memory that is shared with another process, and plain pages: the device copies from it and to it where it is, and
// leaves it alone in the end.
void test_memory_imported(void **state)
{
	struct conformance *c = *state;
	enum { BYTES = 3 * EXOGPU_IMPORT_BYTES, INSIDE = BYTES - 2 };
	struct exogpu_buffer *device = make(c, BYTES, EXOGPU_MEMORY_DEVICE), *imported = NULL;
	uint8_t *data = make_pattern(BYTES, 11);
	const struct exogpu_usage before = usage_of(c);
	for (int shared = 0; shared < 2; shared++) {
		const int fd = memfd_create("imported", MFD_CLOEXEC);
		assert_int_equal(ftruncate(fd, BYTES), 0);
		uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
				       shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, shared ? fd : -1, 0);
		uint8_t *seen = shared ? mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0) : memory;
		assert_ptr_not_equal(memory, MAP_FAILED);
		assert_ptr_not_equal(seen, MAP_FAILED);
		close(fd);
		if (!(c->limits->capabilities & EXOGPU_CAN_IMPORT)) {
			REFUSED(STATUS_UNAVAILABLE, exogpu_buffer_import(c->device, &imported, memory, BYTES, &error));
			print_message("SKIPPED: this device does not import memory\n");
			munmap(memory, BYTES);
			break;
		}
		REFUSED(STATUS_INVALID_PARAMS,
			exogpu_buffer_import(c->device, &imported, memory + 16, EXOGPU_IMPORT_BYTES, &error));
		REFUSED(STATUS_INVALID_PARAMS, exogpu_buffer_import(c->device, &imported, memory, BYTES - 1, &error));
		REFUSED(STATUS_INVALID_PARAMS, exogpu_buffer_import(c->device, &imported, memory, 0, &error));
		REFUSED(STATUS_INVALID_PARAMS, exogpu_buffer_import(c->device, &imported, NULL, BYTES, &error));
		for (int again = 0; again < 2; again++) {
			OK(exogpu_buffer_import(c->device, &imported, memory, BYTES, &error));
			assert_ptr_equal(exogpu_buffer_pointer(imported), memory);
			assert_int_equal(usage_of(c).host_bytes, before.host_bytes + BYTES);
			memcpy(memory, data, BYTES);
			OK(exogpu_fill(c->stream, device, 0, BYTES, 0, &error));
			OK(exogpu_copy(c->stream, &(struct exogpu_copy){.to = device, .from = imported, .bytes = BYTES},
				       &error));
			finish(c->stream);
			holds(device, data, BYTES, "what lay in imported memory");
			memset(memory, 0x5a, BYTES);
			OK(exogpu_copy(c->stream,
				       &(struct exogpu_copy){.to = imported,
							     .from = device,
							     .to_offset = 1,
							     .from_offset = 1,
							     .bytes = INSIDE},
				       &error));
			finish(c->stream);
			same_bytes(seen + 1, data + 1, INSIDE, "what was copied to imported memory");
			assert_int_equal(seen[0], 0x5a);
			assert_int_equal(seen[BYTES - 1], 0x5a);
			exogpu_buffer_destroy(&imported);
			same_bytes(memory + 1, data + 1, INSIDE, "memory that is imported no more");
		}
		if (shared)
			munmap(seen, BYTES);
		munmap(memory, BYTES);
	}
	const struct exogpu_usage after = usage_of(c);
	assert_int_equal(after.buffers, before.buffers);
	assert_int_equal(after.host_bytes, before.host_bytes);
	exogpu_buffer_destroy(&device);
	free(data);
}

// A device that is closed with things on it frees them and says what they were.
void test_memory_left_at_close(void **state)
{
	struct conformance *c = *state;
	struct exogpu_device *device = NULL;
	struct exogpu_buffer *buffers[3];
	struct exogpu_stream *stream;
	struct exogpu_module *module;
	struct exogpu_usage left = {0};
	OK(exogpu_device_open(&device, &(struct exogpu_open){.backend = c->backend, .hardware_key = c->hardware_key},
			      &error));
	for (int i = 0; i < 3; i++)
		OK(exogpu_buffer_create(device, &buffers[i], 1000 + (uint64_t)i,
					i == 2 ? EXOGPU_MEMORY_HOST : EXOGPU_MEMORY_DEVICE, &error));
	OK(exogpu_stream_create(device, &stream, &error));
	OK(exogpu_module_load(device, &module, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error));
	OK(exogpu_fill(stream, buffers[0], 0, 1000, 1, &error)); // still under way
	exogpu_device_close(&device, &left);
	assert_null(device);
	assert_int_equal(left.device_bytes, 2001);
	assert_int_equal(left.host_bytes, 1002);
	assert_int_equal(left.buffers, 3);
	assert_int_equal(left.streams, 1);
	assert_int_equal(left.modules, 1);
	exogpu_device_close(&device, &left); // nothing to do
	assert_int_equal(left.buffers, 0);
}
