/* The tests that every back end passes alike, run on every device that it finds here.
 *
 * No device is a skip (77) for GPUs, with what the back end's libraries say. */
#pragma once
#include "engine/backend.h"
#include "engine/worker/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static const struct backend *suite_backend;
static struct found *suite_found;

#define SUITE_OK(call) \
	do { \
		struct error error = {0}; \
		if (call) \
			fail_msg("%s: %s", #call, error.message); \
	} while (0)

// Run `test` on every device that is supported.
static void suite_each(void (*test)(struct old_device *device))
{
	for (size_t i = 0; i < suite_found->device_count; i++) {
		const struct device_info *info = &suite_found->devices[i];
		struct old_device *device;
		if (info->support == SUPPORT_UNSUPPORTED)
			continue;
		SUITE_OK(suite_backend->old_open(&device, info->hardware_key, &error));
		test(device);
		suite_backend->old_close(&device);
		assert_null(device);
	}
}

static void suite_descriptions_are_whole(void **state)
{
	(void)state;
	for (size_t i = 0; i < suite_found->device_count; i++) {
		const struct device_info *info = &suite_found->devices[i];
		print_message("%s: %s, %s, driver %s, %lld MiB, formats %s\n", info->name, info->family,
			      info->hardware_key, info->driver_version, (long long)(info->memory_bytes >> 20),
			      info->formats);
		assert_int_equal(info->backend, suite_backend->kind);
		assert_int_not_equal(info->kind, DEVICE_UNKNOWN);
		assert_int_not_equal(info->support, SUPPORT_UNKNOWN);
		assert_true(info->hardware_key[0] && info->name[0] && info->model[0] && info->vendor[0] &&
			    info->memory_pool[0]);
		assert_true(info->memory_bytes > 0);
		assert_true(words_have(info->formats, "f32"));
		assert_true((info->support == SUPPORT_FULL) == !info->support_reason[0]);
	}
}

static void suite_describes_the_same_twice(void **state)
{
	struct found *again = found_create();
	(void)state;
	SUITE_OK(suite_backend->enumerate(again, &error));
	assert_int_equal(again->device_count, suite_found->device_count);
	for (size_t i = 0; i < again->device_count; i++)
		assert_string_equal(again->devices[i].hardware_key, suite_found->devices[i].hardware_key);
	found_destroy(&again);
}

static void suite_unknown_key(void **state)
{
	struct old_device *device = NULL;
	struct error error = {0};
	(void)state;
	assert_int_equal(suite_backend->old_open(&device, "uuid:none", &error), STATUS_NOT_FOUND);
	assert_null(device);
	assert_string_not_equal(error.message, "");
}

static void verify(struct old_device *device)
{
	for (int i = 0; i < 3; i++) // what one leaves behind must not help the next
		SUITE_OK(verify_device(suite_backend, device, &error));
}

static void suite_verifies(void **state)
{
	(void)state;
	suite_each(verify);
}

// Sizes around the pieces in which data is moved; each byte comes back, also after a copy on the device.
static void round_trip(struct old_device *device)
{
	static const uint64_t sizes[] = {16, 4096, (4u << 20) - 16, 4u << 20, (4u << 20) + 16, 9u << 20};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct old_buffer *a = NULL, *b = NULL;
		uint8_t *sent = malloc(sizes[i]), *got = calloc(1, sizes[i]);
		for (uint64_t j = 0; j < sizes[i]; j++)
			sent[j] = (uint8_t)(j * 131 + j / 4096 + i);
		SUITE_OK(suite_backend->old_buffer_create(device, &a, sizes[i], &error));
		SUITE_OK(suite_backend->old_buffer_create(device, &b, sizes[i], &error));
		SUITE_OK(suite_backend->old_write(device, a, sent, sizes[i], &error));
		SUITE_OK(suite_backend->old_copy(device, b, a, sizes[i], &error));
		SUITE_OK(suite_backend->old_read(device, got, b, sizes[i], &error));
		assert_memory_equal(sent, got, sizes[i]);
		suite_backend->old_buffer_destroy(device, &a);
		assert_null(a);
		suite_backend->old_buffer_destroy(device, &a); // nothing to do
		free(sent);
		free(got); // b is left for close to free
	}
}

static void suite_moves_data(void **state)
{
	(void)state;
	suite_each(round_trip);
}

static void measure(struct old_device *device)
{
	double rate = 0;
	SUITE_OK(measure_bandwidth(suite_backend, device, &rate, &error));
	print_message("reads %.2f GB/s\n", rate * 1e-9);
	assert_true(rate > 1e7 && rate < 1e14);
}

static void suite_measures(void **state)
{
	(void)state;
	suite_each(measure);
}

// The stream kernels: fill is not constant and depends on the seed; a launch tells how long it took.
static void streams(struct old_device *device)
{
	enum { ELEMENTS = 100001 };
	struct old_buffer *data = NULL, *sink = NULL;
	uint32_t *one = malloc(16 * ELEMENTS), *two = malloc(16 * ELEMENTS);
	int64_t ns = -1;
	SUITE_OK(suite_backend->old_buffer_create(device, &data, 16 * ELEMENTS, &error));
	SUITE_OK(suite_backend->old_buffer_create(device, &sink, 16, &error));
	struct old_launch fill = {
		.kernel = KERNEL_STREAM_FILL, .buffers = {data}, .constants = {1}, .elements = ELEMENTS, .repeat = 1};
	struct old_launch read = {
		.kernel = KERNEL_STREAM_READ, .buffers = {data, sink}, .elements = ELEMENTS, .repeat = 3};
	SUITE_OK(suite_backend->old_launch(device, &fill, NULL, &error));
	SUITE_OK(suite_backend->old_read(device, one, data, 16 * ELEMENTS, &error));
	fill.constants[0] = 2;
	SUITE_OK(suite_backend->old_launch(device, &fill, NULL, &error));
	SUITE_OK(suite_backend->old_read(device, two, data, 16 * ELEMENTS, &error));
	for (int i = 1; i < 4 * ELEMENTS; i++)
		assert_true(one[i] != two[i] && one[i] != one[i - 1]);
	SUITE_OK(suite_backend->old_launch(device, &read, &ns, &error));
	assert_true(ns > 0);
	suite_backend->old_buffer_destroy(device, &data);
	suite_backend->old_buffer_destroy(device, &sink);
	free(one);
	free(two);
}

static void suite_streams(void **state)
{
	(void)state;
	suite_each(streams);
}

static int suite_run(const struct backend *backend)
{
	struct error error = {0};
	suite_backend = backend;
	suite_found = found_create();
	if (backend->enumerate(suite_found, &error)) {
		fprintf(stderr, "listing devices failed: %s\n", error.message);
		return 1;
	}
	if (!suite_found->device_count) {
		const struct library_info *library = &suite_found->libraries[0];
		printf("skipped: no %s device here: %s\n", backend_kind_title(backend->kind), library->reason);
		found_destroy(&suite_found);
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(suite_descriptions_are_whole),
		cmocka_unit_test(suite_describes_the_same_twice),
		cmocka_unit_test(suite_unknown_key),
		cmocka_unit_test(suite_verifies),
		cmocka_unit_test(suite_moves_data),
		cmocka_unit_test(suite_streams),
		cmocka_unit_test(suite_measures),
	};
	int failed = cmocka_run_group_tests_name(backend_kind_name(backend->kind), tests, NULL, NULL);
	found_destroy(&suite_found);
	return failed;
}
