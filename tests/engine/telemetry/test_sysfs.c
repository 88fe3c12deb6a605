// AMD and Intel GPUs from recorded trees: labels in odd order, both Intel drivers, sleep, garbage, a card pulled out.
#include "engine/telemetry/sysfs.h"
#include "tests/engine/telemetry/tree.h"

static const int64_t second = 1000000000;
static const char address[] = "0000:03:00.0";
static const char card[] = "bus/pci/devices/0000:03:00.0";

static int setup(void **state)
{
	(void)state;
	tree_create();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	tree_destroy();
	return 0;
}

static void put(const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", card, name);
	tree_write(path, text);
}

static struct sysfs_gpu *open_card(struct telemetry_sample *sample)
{
	struct sysfs_gpu *gpu;
	struct error error = {0};
	assert_int_equal(sysfs_gpu_create(&gpu, tree_root, address, &error), STATUS_OK);
	sample_clear(sample);
	return gpu;
}

static void write_amd(void)
{
	static const char *const files[] = {
		"vendor", "0x1002\n", "gpu_busy_percent", "42\n", "mem_info_vram_used", "1073741824\n",
		"mem_info_vram_total", "17163091968\n", "power/runtime_status", "active\n", "hwmon/hwmon4/name",
		"amdgpu\n", "hwmon/hwmon4/power1_average", "203000000\n", "hwmon/hwmon4/power1_cap", "272000000\n",
		// as on some cards: memory first, the hot spot last
		"hwmon/hwmon4/temp1_label", "mem\n", "hwmon/hwmon4/temp1_input", "76000\n", "hwmon/hwmon4/temp1_crit",
		"94000\n", "hwmon/hwmon4/temp2_label", "edge\n", "hwmon/hwmon4/temp2_input", "60000\n",
		"hwmon/hwmon4/temp2_crit", "100000\n", "hwmon/hwmon4/temp3_label", "junction\n",
		"hwmon/hwmon4/temp3_input", "81000\n", "hwmon/hwmon4/temp3_crit", "110000\n",
		"hwmon/hwmon4/freq1_label", "mclk\n", "hwmon/hwmon4/freq1_input", "1000000000\n",
		"hwmon/hwmon4/freq2_label", "sclk\n", "hwmon/hwmon4/freq2_input", "2500000000\n", "hwmon/hwmon4/pwm1",
		"102\n", "hwmon/hwmon4/pwm1_max", "255\n", "ras/umc_err_count", "ue: 2\nce: 7\n", NULL};
	tree_fill(card, files);
}

static void test_amd(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	double score;
	write_amd();
	struct sysfs_gpu *gpu = open_card(&sample);
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second, &sample));
	assert_reading(&sample, READING_UTILIZATION_PERCENT, 42);
	assert_reading(&sample, READING_MEMORY_USED_BYTES, 1073741824.0);
	assert_reading(&sample, READING_MEMORY_TOTAL_BYTES, 17163091968.0);
	assert_reading(&sample, READING_POWER_WATTS, 203);
	assert_reading(&sample, READING_POWER_LIMIT_WATTS, 272);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 81);
	assert_reading(&sample, READING_SLOWDOWN_CELSIUS, 110);
	assert_reading(&sample, READING_MEMORY_TEMPERATURE_CELSIUS, 76);
	assert_reading(&sample, READING_MEMORY_SLOWDOWN_CELSIUS, 94);
	assert_reading(&sample, READING_CLOCK_MHZ, 2500);
	assert_reading(&sample, READING_MEMORY_CLOCK_MHZ, 1000);
	assert_reading(&sample, READING_FAN_PERCENT, 40);
	assert_reading(&sample, READING_ECC_ERRORS, 2);
	assert_absent(&sample, READING_PCIE_RX_BYTES_PER_S);
	assert_int_equal(sample.throttle_count, -1);
	assert_int_equal(sample.process_count, -1);
	assert_true(sample_availability(&sample, &score));
	assert_string_equal(sample_thermal_state(&sample), "normal");

	put("hwmon/hwmon4/temp3_input", "97000\n");
	put("gpu_busy_percent", "99\n");
	assert_true(sysfs_gpu_read(gpu, PACE_FAST, second * 3 / 2, &sample));
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 97);
	assert_reading(&sample, READING_UTILIZATION_PERCENT, 42); // of the full round
	assert_string_equal(sample_thermal_state(&sample), "warm");
	sysfs_gpu_destroy(&gpu);
	assert_null(gpu);
	sysfs_gpu_destroy(&gpu);
}

static void test_amd_without_labels(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const files[] = {"vendor",
					    "0x1002\n",
					    "hwmon/hwmon1/name",
					    "radeon\n",
					    "hwmon/hwmon1/temp1_input",
					    "55000\n",
					    "hwmon/hwmon1/power1_input",
					    "9000000\n",
					    "hwmon/hwmon1/fan1_input",
					    "1500\n",
					    "hwmon/hwmon1/fan1_max",
					    "3000\n",
					    NULL};
	tree_remove(card);
	tree_fill(card, files);
	struct sysfs_gpu *gpu = open_card(&sample);
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second, &sample));
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 55);
	assert_absent(&sample, READING_SLOWDOWN_CELSIUS);
	assert_reading(&sample, READING_POWER_WATTS, 9);
	assert_reading(&sample, READING_FAN_PERCENT, 50);
	assert_absent(&sample, READING_UTILIZATION_PERCENT);
	sysfs_gpu_destroy(&gpu);
	tree_remove(card);
}

static void test_asleep(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	write_amd();
	struct sysfs_gpu *gpu = open_card(&sample);
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second, &sample));
	put("power/runtime_status", "suspended\n");
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second * 2, &sample));
	assert_absent(&sample, READING_TEMPERATURE_CELSIUS);
	assert_absent(&sample, READING_POWER_WATTS);
	assert_absent(&sample, READING_UTILIZATION_PERCENT);
	assert_absent(&sample, READING_MEMORY_USED_BYTES);
	assert_reading(&sample, READING_MEMORY_TOTAL_BYTES, 17163091968.0); // does not change
	put("power/runtime_status", "active\n");
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second * 3, &sample));
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 81);
	sysfs_gpu_destroy(&gpu);
	tree_remove(card);
}

static void test_garbage(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const garbage[] = {"gpu_busy_percent",
					      "101\n",
					      "mem_info_vram_used",
					      "-1\n",
					      "mem_info_vram_total",
					      "\n",
					      "hwmon/hwmon4/power1_average",
					      "99999999999\n",
					      "hwmon/hwmon4/power1_cap",
					      "0\n",
					      "hwmon/hwmon4/temp1_input",
					      "-128000\n",
					      "hwmon/hwmon4/temp3_input",
					      "511000\n",
					      "hwmon/hwmon4/freq1_input",
					      "N/A\n",
					      "hwmon/hwmon4/freq2_input",
					      "18446744073709551615\n",
					      "hwmon/hwmon4/pwm1",
					      "",
					      "ras/umc_err_count",
					      "nothing\n",
					      NULL};
	write_amd();
	struct sysfs_gpu *gpu = open_card(&sample);
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second, &sample));
	tree_fill(card, garbage);
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second * 2, &sample));
	assert_int_equal(sample.valid, // told when the card was found
			 1U << READING_SLOWDOWN_CELSIUS | 1U << READING_MEMORY_SLOWDOWN_CELSIUS);
	write_amd();
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second * 3, &sample));
	assert_reading(&sample, READING_POWER_WATTS, 203);
	sysfs_gpu_destroy(&gpu);
}

static void test_pulled_out_and_back(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	write_amd();
	struct sysfs_gpu *gpu = open_card(&sample);
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second, &sample));
	tree_remove(card);
	assert_false(sysfs_gpu_read(gpu, PACE_FAST, second * 3 / 2, &sample));
	assert_false(sysfs_gpu_read(gpu, PACE_FULL, second * 2, &sample));
	write_amd();
	put("hwmon/hwmon4/power1_average", "11000000\n");
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second * 3, &sample));
	assert_reading(&sample, READING_POWER_WATTS, 11);
	sysfs_gpu_destroy(&gpu);
	tree_remove(card);
}

static void test_driver_comes_later(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	put("vendor", "0x1002\n");
	struct sysfs_gpu *gpu = open_card(&sample);
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second, &sample));
	assert_int_equal(sample.valid, 0);
	write_amd();
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second * 40, &sample));
	assert_reading(&sample, READING_POWER_WATTS, 203);
	sysfs_gpu_destroy(&gpu);
	tree_remove(card);
}

static void test_intel_i915(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const files[] = {"vendor",
					    "0x8086\n",
					    "drm/card1/gt/gt0/rps_act_freq_mhz",
					    "1150\n",
					    "drm/card1/gt/gt0/rc6_residency_ms",
					    "4294966296\n", // 1 s before it wraps
					    "drm/card1/gt/gt0/throttle_reason_status",
					    "0\n",
					    "drm/card1/gt/gt0/throttle_reason_pl1",
					    "0\n",
					    "drm/card1/gt/gt0/throttle_reason_thermal",
					    "0\n",
					    "drm/renderD128/dev",
					    "226:128\n",
					    "hwmon/hwmon2/name",
					    "i915_gt0\n",
					    "hwmon/hwmon2/energy1_input",
					    "1\n",
					    "hwmon/hwmon3/name",
					    "i915\n",
					    "hwmon/hwmon3/energy1_input",
					    "5000000\n",
					    "hwmon/hwmon3/power1_max",
					    "190000000\n",
					    NULL};
	tree_fill(card, files);
	struct sysfs_gpu *gpu = open_card(&sample);
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second, &sample));
	assert_reading(&sample, READING_CLOCK_MHZ, 1150);
	assert_reading(&sample, READING_POWER_LIMIT_WATTS, 190);
	assert_absent(&sample, READING_POWER_WATTS);
	assert_absent(&sample, READING_UTILIZATION_PERCENT);
	assert_int_equal(sample.throttle_count, 0);
	put("drm/card1/gt/gt0/rc6_residency_ms", "500\n"); // 1.5 s of 2 s asleep
	put("hwmon/hwmon3/energy1_input", "65000000\n");
	put("drm/card1/gt/gt0/throttle_reason_status", "1\n");
	put("drm/card1/gt/gt0/throttle_reason_pl1", "1\n");
	put("drm/card1/gt/gt0/throttle_reason_thermal", "1\n");
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second * 3, &sample));
	assert_reading(&sample, READING_UTILIZATION_PERCENT, 25);
	assert_reading(&sample, READING_POWER_WATTS, 30);
	assert_int_equal(sample.throttle_count, 2);
	assert_string_equal(sample.throttles[0], "power_cap");
	assert_string_equal(sample.throttles[1], "thermal");
	put("drm/card1/gt/gt0/rc6_residency_ms", "1501\n"); // a millisecond more than there was
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second * 4, &sample));
	assert_reading(&sample, READING_UTILIZATION_PERCENT, 0);
	sysfs_gpu_destroy(&gpu);
	tree_remove(card);
}

static void test_intel_xe(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const files[] = {"vendor",
					    "0x8086\n",
					    "tile0/gt0/freq0/act_freq",
					    "2400\n",
					    "tile0/gt0/gtidle/idle_residency_ms",
					    "10\n",
					    "tile0/physical_vram_size_bytes",
					    "0x00000002fa000000\n",
					    "tile0/gt0/freq0/throttle/status",
					    "1\n",
					    "tile0/gt0/freq0/throttle/reason_prochot",
					    "1\n",
					    "hwmon/hwmon7/name",
					    "xe\n",
					    "hwmon/hwmon7/energy1_label",
					    "pkg\n",
					    "hwmon/hwmon7/energy1_input",
					    "1\n",
					    "hwmon/hwmon7/energy2_label",
					    "card\n",
					    "hwmon/hwmon7/energy2_input",
					    "0\n",
					    "hwmon/hwmon7/power2_max",
					    "200000000\n",
					    "hwmon/hwmon7/temp2_label",
					    "pkg\n",
					    "hwmon/hwmon7/temp2_input",
					    "48000\n",
					    "hwmon/hwmon7/temp2_crit",
					    "105000\n",
					    "hwmon/hwmon7/temp3_label",
					    "vram\n",
					    "hwmon/hwmon7/temp3_input",
					    "52000\n",
					    NULL};
	tree_fill(card, files);
	struct sysfs_gpu *gpu = open_card(&sample);
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second, &sample));
	put("hwmon/hwmon7/energy2_input", "20000000\n");
	assert_true(sysfs_gpu_read(gpu, PACE_FULL, second * 2, &sample));
	assert_reading(&sample, READING_CLOCK_MHZ, 2400);
	assert_reading(&sample, READING_MEMORY_TOTAL_BYTES, 12784238592.0);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 48);
	assert_reading(&sample, READING_SLOWDOWN_CELSIUS, 105);
	assert_reading(&sample, READING_MEMORY_TEMPERATURE_CELSIUS, 52);
	assert_absent(&sample, READING_MEMORY_SLOWDOWN_CELSIUS);
	assert_reading(&sample, READING_POWER_WATTS, 20);
	assert_reading(&sample, READING_POWER_LIMIT_WATTS, 200);
	assert_reading(&sample, READING_UTILIZATION_PERCENT, 100);
	assert_string_equal(sample.throttles[0], "thermal");
	assert_string_equal(sample_thermal_state(&sample), "throttled");
	sysfs_gpu_destroy(&gpu);
	tree_remove(card);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_amd),
		cmocka_unit_test(test_amd_without_labels),
		cmocka_unit_test(test_asleep),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_pulled_out_and_back),
		cmocka_unit_test(test_driver_comes_later),
		cmocka_unit_test(test_intel_i915),
		cmocka_unit_test(test_intel_xe),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
