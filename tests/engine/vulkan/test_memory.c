/* The allocator over a device: few blocks for many buffers, heaps that are not overdrawn, and all given back. */
#include "tests/engine/vulkan/here.h"

#define MIB (1024ull * 1024)

static const char *key;

static int begin(void **state)
{
	struct backend_device *device = NULL;
	struct backend_open open = {.hardware_key = key};
	HERE_OK(vulkan_device_open(&device, &open, 0, &error));
	*state = device;
	return 0;
}

static int end(void **state)
{
	struct backend_device *device = *state;
	vulkan_device_close(&device);
	return 0;
}

static enum status create(struct backend_device *device, struct backend_buffer **buffer, uint64_t bytes,
			  enum exogpu_memory memory, struct error *error)
{
	return vulkan_buffer_create(device, buffer, &(struct backend_buffer_params){.bytes = bytes, .memory = memory},
				    error);
}

enum { MANY = 1000 };

static void many_small(void **state)
{
	struct backend_device *device = *state;
	static struct backend_buffer *buffers[MANY];
	uint64_t total, before, with, after;
	HERE_OK(vulkan_memory_told(device, &total, &before, &error));
	for (int i = 0; i < MANY; i++)
		HERE_OK(create(device, &buffers[i], 1 + (uint64_t)i * 37, EXOGPU_MEMORY_DEVICE, &error));
	print_message("%d buffers in %u allocations\n", MANY, device->allocations);
	assert_int_equal(device->allocations, 1);
	HERE_OK(vulkan_memory_told(device, &total, &with, &error));
	assert_true(with < before);
	for (int i = 0; i < MANY; i++)
		vulkan_buffer_destroy(device, &buffers[(i * 7) % MANY]);
	assert_int_equal(device->allocations, 1); // the last empty block stays
	assert_int_equal(device->blocks->ranges.count, 1);
	HERE_OK(vulkan_memory_told(device, &total, &after, &error));
	print_message("%llu MiB free before, %llu after\n", (unsigned long long)(before / MIB),
		      (unsigned long long)(after / MIB));
	assert_null(device->buffers);
}

// Larger ones get an allocation each, which goes with them.
static void large(void **state)
{
	struct backend_device *device = *state;
	struct backend_buffer *buffers[3] = {NULL};
	for (int i = 0; i < 3; i++)
		HERE_OK(create(device, &buffers[i], 100 * MIB + 1, EXOGPU_MEMORY_DEVICE, &error));
	assert_int_equal(device->allocations, 3);
	for (int i = 0; i < 3; i++)
		vulkan_buffer_destroy(device, &buffers[i]);
	assert_int_equal(device->allocations, 0);
	for (uint32_t i = 0; i < VK_MAX_MEMORY_HEAPS; i++)
		assert_int_equal(device->heap_used[i], 0);
}

// Nothing is touched, so that a driver which enforces nothing would hand out many times what there is.
static void heaps_are_bounds(void **state)
{
	struct backend_device *device = *state;
	static struct backend_buffer *buffers[MANY];
	uint64_t total, left;
	struct error fault = {0};
	enum status status = STATUS_OK;
	unsigned count = 0;
	HERE_OK(vulkan_memory_told(device, &total, &left, &error));
	uint64_t bytes = total / 8 < 1024 * MIB ? total / 8 : 1024 * MIB;
	if (!device->software) {
		print_message("not done: on a GPU all memory would be taken; the conformance suite does that\n");
		return;
	}
	while (count < MANY && !(status = create(device, &buffers[count], bytes, EXOGPU_MEMORY_DEVICE, &fault)))
		count++;
	print_message("%u buffers of %llu MiB of %llu, then %s\n", count, (unsigned long long)(bytes / MIB),
		      (unsigned long long)(total / MIB), fault.message);
	assert_int_equal(status, STATUS_OUT_OF_MEMORY);
	assert_true(count * bytes <= total && (count + 1) * bytes > total - 64 * MIB);
	while (count)
		vulkan_buffer_destroy(device, &buffers[--count]);
	// An empty block in the way of a large request goes.
	HERE_OK(create(device, &buffers[0], 1, EXOGPU_MEMORY_DEVICE, &error));
	vulkan_buffer_destroy(device, &buffers[0]);
	assert_int_equal(device->allocations, 1);
	HERE_OK(create(device, &buffers[0], total - MIB, EXOGPU_MEMORY_DEVICE, &error));
	assert_int_equal(device->allocations, 1);
	// What is left is still given out, in blocks as small as it takes.
	HERE_OK(create(device, &buffers[1], MIB / 4, EXOGPU_MEMORY_DEVICE, &error));
	vulkan_buffer_destroy(device, &buffers[0]);
	vulkan_buffer_destroy(device, &buffers[1]);
}

static void too_large(void **state)
{
	struct backend_device *device = *state;
	struct exogpu_device_limits limits;
	struct backend_buffer *buffer = NULL;
	struct error error = {0};
	vulkan_device_describe(device, &limits);
	assert_true(limits.buffer_bytes && limits.buffer_bytes <= limits.memory_bytes);
	if (device->largest_buffer) {
		assert_int_equal(create(device, &buffer, device->largest_buffer + 1, EXOGPU_MEMORY_DEVICE, &error),
				 STATUS_LIMIT_EXCEEDED);
		assert_null(buffer);
		assert_non_null(strstr(error.message, "at most"));
	}
	assert_null(device->buffers);
	assert_int_equal(device->allocations, 0);
}

static void kinds(void **state)
{
	struct backend_device *device = *state;
	struct backend_buffer *buffers[EXOGPU_MEMORY_MAPPED + 1] = {NULL};
	for (int kind = EXOGPU_MEMORY_DEVICE; kind <= EXOGPU_MEMORY_MAPPED; kind++) {
		if (!device->types[kind].count)
			continue;
		HERE_OK(create(device, &buffers[kind], 1000, (enum exogpu_memory)kind, &error));
		VkMemoryPropertyFlags flags = device->memory.memoryTypes[buffers[kind]->block->type].propertyFlags;
		assert_int_equal(vulkan_buffer_pointer(buffers[kind]) != NULL, kind != EXOGPU_MEMORY_DEVICE);
		if (kind != EXOGPU_MEMORY_HOST)
			assert_true(flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
		if (kind != EXOGPU_MEMORY_DEVICE) {
			assert_true(flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
			memset(vulkan_buffer_pointer(buffers[kind]), 1, 1000);
		}
		assert_int_equal(buffers[kind]->offset % 256, 0);
	}
} // left for close to free

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(many_small, begin, end),
		cmocka_unit_test_setup_teardown(large, begin, end),
		cmocka_unit_test_setup_teardown(heaps_are_bounds, begin, end),
		cmocka_unit_test_setup_teardown(too_large, begin, end),
		cmocka_unit_test_setup_teardown(kinds, begin, end),
	};
	key = here_key();
	return key[0] ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
