/* A back end's description of its devices, and the worker's verification of each. */
#include "engine/backend.h"
#include "engine/worker/verify.h"
#include "tests/engine/conformance/conformance.h"

void test_descriptions(void **state)
{
	struct conformance *c = *state;
	const struct backend *backend = backend_find(backend_kind_parse(c->backend));
	struct found *found = found_create(), *again = found_create();
	bool seen = false;
	OK(backend->enumerate(found, &error));
	OK(backend->enumerate(again, &error));
	assert_int_equal(found->device_count, again->device_count);
	for (size_t i = 0; i < found->device_count; i++) {
		const struct device_info *info = &found->devices[i];
		assert_string_equal(info->hardware_key, again->devices[i].hardware_key);
		seen |= !strcmp(info->hardware_key, c->hardware_key);
		assert_int_equal(info->backend, backend->kind);
		assert_int_not_equal(info->kind, DEVICE_UNKNOWN);
		assert_int_not_equal(info->support, SUPPORT_UNKNOWN);
		assert_true(info->hardware_key[0] && info->name[0] && info->model[0] && info->vendor[0] &&
			    info->memory_pool[0]);
		assert_true(info->memory_bytes > 0);
		assert_true(words_have(info->formats, "f32"));
		assert_true((info->support == SUPPORT_FULL) == !info->support_reason[0]);
	}
	assert_true(seen);
	found_destroy(&found);
	found_destroy(&again);
}

void test_limits_are_told(void **state)
{
	struct conformance *c = *state;
	const struct exogpu_device_limits *limits = c->limits;
	bool modules = limits->capabilities & (EXOGPU_CAN_PTX | EXOGPU_CAN_SPIRV);
	print_message("capabilities 0x%x, %llu bytes, %llu a buffer, %llu to stream, %u streams\n",
		      limits->capabilities, (unsigned long long)limits->memory_bytes,
		      (unsigned long long)limits->buffer_bytes, (unsigned long long)limits->stream_bytes,
		      limits->streams);
	assert_true(limits->memory_bytes > 0 && limits->buffer_bytes > 0 && limits->stream_bytes > 0);
	assert_true(limits->streams > 0);
	assert_true(!modules == !limits->max_block_threads);
	for (int i = 0; i < 3; i++)
		assert_true(!modules == !limits->max_grid[i] && !modules == !limits->max_block[i]);
	if (c->software)
		assert_true(limits->capabilities & EXOGPU_CAN_SOFTWARE);
}

void test_verifies(void **state)
{
	struct conformance *c = *state;
	for (int i = 0; i < 3; i++) // what one leaves behind must not help the next
		OK(verify_device(c->device, backend_kind_parse(c->backend), &error));
}

void test_measures(void **state)
{
	struct conformance *c = *state;
	double rate = 0;
	OK(measure_bandwidth(c->device, &rate, &error));
	print_message("reads %.2f GB/s\n", rate * 1e-9);
	assert_true(rate > 1e7 && rate < 1e14);
	// Tests ask for less. That is a figure, too, of a cache; and one buffer of less than a page is none.
	assert_int_equal(setenv("EXOGPU_TEST_STREAM_BYTES", "4194304", 1), 0);
	OK(measure_bandwidth(c->device, &rate, &error));
	assert_true(rate > 1e6 && rate < 1e15);
	assert_int_equal(setenv("EXOGPU_TEST_STREAM_BYTES", "4095", 1), 0);
	REFUSED(STATUS_OUT_OF_MEMORY, measure_bandwidth(c->device, &rate, &error));
	assert_int_equal(unsetenv("EXOGPU_TEST_STREAM_BYTES"), 0);
}
