// The parts of NVML's readings that need no GPU: throttle masks, counters that wrap, and a GPU's thread without the
// library.
#include "engine/telemetry/nvml.h"
#include "engine/telemetry/nvml_library.h"
#include "tests/engine/telemetry/tree.h"

#include <pthread.h>
#include <stdatomic.h>

static void check_words(unsigned long long mask, const char *expected)
{
	struct telemetry_sample sample;
	char text[256] = "";
	sample_clear(&sample);
	nvml_throttle_words(mask, &sample);
	assert_true(sample.throttle_count >= 0);
	for (int i = 0; i < sample.throttle_count; i++) {
		size_t length = strlen(text);
		snprintf(text + length, sizeof text - length, "%s%s", length ? "," : "", sample.throttles[i]);
	}
	assert_string_equal(text, expected);
}

static void test_throttle_words(void **state)
{
	(void)state;
	check_words(0, "");
	check_words(1, ""); // idle
	check_words(4, "power_cap");
	check_words(0x20, "thermal");
	check_words(0x48, "hardware_slowdown,hardware_thermal");
	check_words(511,
		    "application_clocks,power_cap,hardware_slowdown,sync_boost,thermal,hardware_thermal,power_brake,"
		    "display_clock");
	check_words(0x8000000000000000ULL, "other");
	check_words(0x201, "other");
}

static void test_counter_rate(void **state)
{
	(void)state;
	double per_s = -1;
	assert_true(nvml_counter_rate(1000, 201000, 20000000, &per_s));
	assert_close(per_s, 10e6);
	assert_true(nvml_counter_rate(0xffffff00, 0x100, 20000000, &per_s)); // wraps at 32 bits
	assert_close(per_s, 512 * 50);
	assert_true(nvml_counter_rate(UINT64_C(1) << 40, (UINT64_C(1) << 40) + 100, 20000000, &per_s)); // of 64 bits
	assert_close(per_s, 5000);
	assert_false(nvml_counter_rate(UINT64_C(1) << 40, 5, 20000000, &per_s)); // was reset
	assert_false(nvml_counter_rate(0, 5, 0, &per_s));
	assert_false(nvml_counter_rate(0, 5, -20000000, &per_s));
	assert_false(nvml_counter_rate(0, 5, 100000000, &per_s));         // may have wrapped twice
	assert_false(nvml_counter_rate(0, 0xf0000000, 20000000, &per_s)); // 200 GB/s
	assert_true(nvml_counter_rate(0, 1260000000, 20000000, &per_s));  // 63 GB/s: PCIe 5 with 16 lanes
}

// The lower of the threshold and what the margin says; a degree of rounding moves nothing.
static void test_slowdown(void **state)
{
	(void)state;
	assert_close(nvml_slowdown(89, 40, false, 0, 0), 89);
	assert_close(nvml_slowdown(0, 40, false, 0, 0), 0);
	assert_close(nvml_slowdown(0, 40, true, 47, 0), 87);
	assert_close(nvml_slowdown(89, 40, true, 47, 0), 87);
	assert_close(nvml_slowdown(89, 40, true, 60, 0), 89);
	assert_close(nvml_slowdown(89, 41, true, 47, 87), 87);
	assert_close(nvml_slowdown(89, 40, true, 46, 87), 87);
	assert_close(nvml_slowdown(89, 40, true, 45, 87), 86.75);
	assert_close(nvml_slowdown(0, 90, true, -3, 0), 87);    // it is past it
	assert_close(nvml_slowdown(89, 40, true, -40, 0), 89);  // no card does so at 0 °C,
	assert_close(nvml_slowdown(89, 40, true, 1000, 0), 89); // or at 1040
}

// An H200's margin is not of the same moment as its temperature: their sum was 84 to 89 °C.
static void test_slowdown_is_steady(void **state)
{
	(void)state;
	double limit = nvml_slowdown(89, 40, true, 47, 0);
	for (unsigned i = 0; i < 400; i++) {
		limit = nvml_slowdown(89, 40, true, 44 + (int)(i * 7919 % 6), limit); // 84 to 89
		assert_true(limit >= 85.5 && limit <= 88);
	}
	for (unsigned i = 0; i < 40; i++)
		limit = nvml_slowdown(89, 40, true, 40, limit);
	assert_true(limit >= 80 && limit < 82.5); // another limit is followed
}

static void test_layouts(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct nvml_memory_v2), 40);
	assert_int_equal(NVML_MEMORY_V2, 40 | 2 << 24);
	assert_int_equal(sizeof(struct nvml_process), 24);
	assert_int_equal(NVML_MARGIN, 8 | 1 << 24);
	assert_int_equal(sizeof(struct nvml_field), 40);
	assert_int_equal(offsetof(struct nvml_field, value), 32);
}

static atomic_int woken;

static void wake(void *context)
{
	(void)context;
	atomic_fetch_add(&woken, 1);
}

// A card that is not there: with the library its thread hands nothing over, without it a sample with nothing in it.
static void test_no_such_card(void **state)
{
	(void)state;
	struct telemetry_target target = {.device_id = "d", .uuid = "00000000-0000-0000-0000-000000000000"};
	struct nvml_gpu *gpu = NULL;
	struct error error = {0};
	const struct nvml_calls *calls;
	struct telemetry_sample sample;
	bool library = nvml_library_acquire(&calls, &error) == STATUS_OK;
	if (library)
		nvml_library_release();
	else
		assert_true(error.hint[0]);
	struct nvml_gpu_params params = {.target = &target, .proc_root = "/proc", .wake = wake};
	assert_int_equal(nvml_gpu_create(&gpu, &params, &error), STATUS_OK);
	assert_false(nvml_gpu_take(gpu, &sample));
	nvml_gpu_request(gpu, PACE_FAST);
	nvml_gpu_request(gpu, PACE_FULL);
	for (int i = 0; i < 1000 && (nvml_gpu_busy(gpu) || atomic_load(&woken) == 0); i++)
		usleep(5000);
	assert_false(nvml_gpu_busy(gpu));
	bool taken = nvml_gpu_take(gpu, &sample);
	assert_int_equal(taken, !library);
	if (taken)
		assert_int_equal(sample.valid, 0);
	assert_false(nvml_gpu_take(gpu, &sample)); // once
	nvml_gpu_stop(gpu);
	nvml_gpu_destroy(&gpu);
	assert_null(gpu);
	nvml_gpu_destroy(&gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_throttle_words), cmocka_unit_test(test_counter_rate),
		cmocka_unit_test(test_slowdown),       cmocka_unit_test(test_slowdown_is_steady),
		cmocka_unit_test(test_layouts),        cmocka_unit_test(test_no_such_card),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
