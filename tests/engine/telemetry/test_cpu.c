// The CPU's sensors, from recorded trees: Intel, AMD, ARM, two packages, a virtual machine, and garbage.
#include "engine/telemetry/cpu.h"
#include "tests/engine/telemetry/tree.h"

static const int64_t second = 1000000000;
static const struct host_sample machine = {
	.cpu_known = true, .cpu_percent = 12.5, .memory_total = 1000, .memory_available = 400};

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

static struct cpu_reader *open_tree(struct telemetry_sample *sample)
{
	struct cpu_reader *cpu;
	struct error error = {0};
	assert_int_equal(cpu_reader_create(&cpu, tree_root, &error), STATUS_OK);
	sample_clear(sample);
	return cpu;
}

static void write_intel(void)
{
	static const char *const coretemp[] = {
		"name",           "coretemp\n",  "temp1_label", "Core 0\n",   "temp1_input", "90000\n", "temp7_label",
		"Package id 0\n", "temp7_input", "61000\n",     "temp7_crit", "100000\n",    NULL};
	static const char *const rapl[] = {"intel-rapl:0/name",
					   "package-0\n",
					   "intel-rapl:0/energy_uj",
					   "1000000\n",
					   "intel-rapl:0/max_energy_range_uj",
					   "262143328850\n",
					   "intel-rapl:0/constraint_0_name",
					   "long_term\n",
					   "intel-rapl:0/constraint_0_power_limit_uw",
					   "65000000\n",
					   "intel-rapl:0:0/name",
					   "core\n",
					   "intel-rapl:0:0/energy_uj",
					   "5\n",
					   "intel-rapl:1/name",
					   "psys\n",
					   "intel-rapl:1/energy_uj",
					   "7\n",
					   NULL};
	static const char *const cpus[] = {"cpu0/topology/physical_package_id",
					   "0\n",
					   "cpu0/thermal_throttle/package_throttle_count",
					   "3\n",
					   "cpu1/topology/physical_package_id",
					   "0\n",
					   "cpu1/thermal_throttle/package_throttle_count",
					   "3\n",
					   "cpufreq/policy0/scaling_cur_freq",
					   "3000000\n",
					   "cpufreq/policy1/scaling_cur_freq",
					   "1000000\n",
					   NULL};
	tree_write("class/hwmon/hwmon0/name", "nvme\n");
	tree_write("class/hwmon/hwmon0/temp1_input", "99000\n");
	tree_fill("class/hwmon/hwmon3", coretemp);
	tree_fill("class/powercap", rapl);
	tree_fill("devices/system/cpu", cpus);
}

static void test_intel(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	write_intel();
	struct cpu_reader *cpu = open_tree(&sample);
	cpu_reader_read(cpu, PACE_FULL, &machine, second, &sample);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 61); // the package, not the hotter core
	assert_reading(&sample, READING_SLOWDOWN_CELSIUS, 100);
	assert_reading(&sample, READING_CLOCK_MHZ, 2000);
	assert_reading(&sample, READING_POWER_LIMIT_WATTS, 65);
	assert_reading(&sample, READING_UTILIZATION_PERCENT, 12.5);
	assert_reading(&sample, READING_MEMORY_TOTAL_BYTES, 1000);
	assert_reading(&sample, READING_MEMORY_USED_BYTES, 600);
	assert_absent(&sample, READING_POWER_WATTS); // needs two readings
	assert_absent(&sample, READING_FAN_PERCENT);
	assert_int_equal(sample.throttle_count, -1);
	assert_int_equal(sample.process_count, -1);

	tree_write("class/powercap/intel-rapl:0/energy_uj", "21000000\n");
	cpu_reader_read(cpu, PACE_FAST, &machine, second * 3 / 2, &sample);
	assert_reading(&sample, READING_POWER_WATTS, 40); // 20 J in half a second
	assert_reading(&sample, READING_CLOCK_MHZ, 2000); // kept from the full round

	cpu_reader_read(cpu, PACE_FULL, &machine, second * 2, &sample);
	assert_int_equal(sample.throttle_count, 0);
	tree_write("devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "4\n");
	tree_write("devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", "4\n");
	cpu_reader_read(cpu, PACE_FULL, &machine, second * 3, &sample);
	assert_int_equal(sample.throttle_count, 1);
	assert_string_equal(sample.throttles[0], "thermal");
	cpu_reader_read(cpu, PACE_FULL, &machine, second * 4, &sample);
	assert_int_equal(sample.throttle_count, 0);
	cpu_reader_destroy(&cpu);
	assert_null(cpu);
}

static void test_energy_wraps(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	write_intel();
	tree_write("class/powercap/intel-rapl:0/energy_uj", "262142328850\n"); // 1 J before its end
	struct cpu_reader *cpu = open_tree(&sample);
	cpu_reader_read(cpu, PACE_FULL, &machine, second, &sample);
	tree_write("class/powercap/intel-rapl:0/energy_uj", "29000000\n");
	cpu_reader_read(cpu, PACE_FULL, &machine, second * 2, &sample);
	assert_reading(&sample, READING_POWER_WATTS, 30);
	assert_true(sample.counter_known && sample.counter_joules > 29.999 && sample.counter_joules < 30.001);
	cpu_reader_destroy(&cpu);
}

static void test_garbage(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	write_intel();
	struct cpu_reader *cpu = open_tree(&sample);
	cpu_reader_read(cpu, PACE_FULL, &machine, second, &sample);
	tree_write("class/hwmon/hwmon3/temp7_input", "-128000\n");
	tree_write("class/powercap/intel-rapl:0/energy_uj", "\x01\x02\n");
	tree_write("devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "<unknown>\n");
	tree_write("devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "");
	tree_write("devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", "");
	cpu_reader_read(cpu, PACE_FULL, &machine, second * 2, &sample);
	assert_absent(&sample, READING_TEMPERATURE_CELSIUS);
	assert_absent(&sample, READING_SLOWDOWN_CELSIUS);
	assert_absent(&sample, READING_POWER_WATTS);
	assert_reading(&sample, READING_CLOCK_MHZ, 1000); // the other policy's
	assert_int_equal(sample.throttle_count, -1);
	tree_write("class/hwmon/hwmon3/temp7_input", "250000\n");
	tree_write("class/powercap/intel-rapl:0/energy_uj", "0\n");
	cpu_reader_read(cpu, PACE_FULL, &machine, second * 3, &sample);
	assert_absent(&sample, READING_TEMPERATURE_CELSIUS);
	tree_write("class/powercap/intel-rapl:0/energy_uj", "50000000000\n"); // 50 kW
	cpu_reader_read(cpu, PACE_FULL, &machine, second * 4, &sample);
	assert_absent(&sample, READING_POWER_WATTS);
	cpu_reader_destroy(&cpu);
	tree_remove("class");
	tree_remove("devices");
}

static void test_two_packages(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const files[] = {"class/hwmon/hwmon1/name",
					    "coretemp\n",
					    "class/hwmon/hwmon1/temp1_label",
					    "Package id 0\n",
					    "class/hwmon/hwmon1/temp1_input",
					    "50000\n",
					    "class/hwmon/hwmon1/temp1_crit",
					    "90000\n",
					    "class/hwmon/hwmon2/name",
					    "coretemp\n",
					    "class/hwmon/hwmon2/temp1_label",
					    "Package id 1\n",
					    "class/hwmon/hwmon2/temp1_input",
					    "70000\n",
					    "class/hwmon/hwmon2/temp1_crit",
					    "95000\n",
					    "class/powercap/intel-rapl:0/name",
					    "package-0\n",
					    "class/powercap/intel-rapl:0/energy_uj",
					    "0\n",
					    "class/powercap/intel-rapl:1/name",
					    "package-1\n",
					    "class/powercap/intel-rapl:1/energy_uj",
					    "0\n",
					    NULL};
	tree_fill(".", files);
	struct cpu_reader *cpu = open_tree(&sample);
	cpu_reader_read(cpu, PACE_FULL, &machine, second, &sample);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 70);
	assert_reading(&sample, READING_SLOWDOWN_CELSIUS, 95);
	assert_absent(&sample, READING_POWER_LIMIT_WATTS);
	tree_write("class/powercap/intel-rapl:0/energy_uj", "10000000\n");
	tree_write("class/powercap/intel-rapl:1/energy_uj", "15000000\n");
	cpu_reader_read(cpu, PACE_FULL, &machine, second * 2, &sample);
	assert_reading(&sample, READING_POWER_WATTS, 25);
	tree_write("class/powercap/intel-rapl:1/energy_uj", "");
	cpu_reader_read(cpu, PACE_FULL, &machine, second * 3, &sample);
	assert_absent(&sample, READING_POWER_WATTS); // half of the power is not the power
	cpu_reader_destroy(&cpu);
	tree_remove("class");
}

static void test_amd(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const files[] = {"class/hwmon/hwmon5/name",
					    "k10temp\n",
					    "class/hwmon/hwmon5/temp1_label",
					    "Tctl\n",
					    "class/hwmon/hwmon5/temp1_input",
					    "82000\n",
					    "class/hwmon/hwmon5/temp2_label",
					    "Tdie\n",
					    "class/hwmon/hwmon5/temp2_input",
					    "55000\n",
					    NULL};
	tree_fill(".", files);
	struct cpu_reader *cpu = open_tree(&sample);
	cpu_reader_read(cpu, PACE_FULL, &machine, second, &sample);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 55); // Tctl has an offset where Tdie is there too
	assert_absent(&sample, READING_SLOWDOWN_CELSIUS);
	assert_null(sample_thermal_state(&sample));
	cpu_reader_destroy(&cpu);
	tree_remove("class");
}

static void test_arm(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const files[] = {"thermal_zone0/type",
					    "gpu-thermal\n",
					    "thermal_zone0/temp",
					    "90000\n",
					    "thermal_zone1/type",
					    "cpu-thermal\n",
					    "thermal_zone1/temp",
					    "48500\n",
					    "thermal_zone1/trip_point_0_type",
					    "critical\n",
					    "thermal_zone1/trip_point_0_temp",
					    "110000\n",
					    "thermal_zone1/trip_point_1_type",
					    "passive\n",
					    "thermal_zone1/trip_point_1_temp",
					    "-274000\n",
					    "thermal_zone1/trip_point_2_type",
					    "passive\n",
					    "thermal_zone1/trip_point_2_temp",
					    "85000\n",
					    NULL};
	tree_fill("class/thermal", files);
	struct cpu_reader *cpu = open_tree(&sample);
	cpu_reader_read(cpu, PACE_FULL, &machine, second, &sample);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 48.5);
	assert_reading(&sample, READING_SLOWDOWN_CELSIUS, 85);
	assert_string_equal(sample_thermal_state(&sample), "normal");
	cpu_reader_destroy(&cpu);
	tree_remove("class");
}

static void read_at(struct cpu_reader *cpu, int64_t s, struct telemetry_sample *sample)
{
	cpu_reader_read(cpu, PACE_FULL, &machine, s * second, sample);
}

// By a reader of its own.
static void look_once(struct telemetry_sample *sample)
{
	struct cpu_reader *cpu = open_tree(sample);
	read_at(cpu, 1, sample);
	cpu_reader_destroy(&cpu);
}

// The package's zone of Intel: its trip points are those of programs that want to be told.
static void test_package_zones(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const zones[] = {"thermal_zone0/type",
					    "x86_pkg_temp\n",
					    "thermal_zone0/temp",
					    "52000\n",
					    "thermal_zone0/trip_point_0_type",
					    "passive\n",
					    "thermal_zone0/trip_point_0_temp",
					    "45000\n",
					    "thermal_zone1/type",
					    "x86_pkg_temp\n",
					    "thermal_zone1/temp",
					    "63000\n",
					    "thermal_zone2/type",
					    "acpitz\n",
					    "thermal_zone2/temp",
					    "90000\n",
					    NULL};
	static const char *const coretemp[] = {"name",           "coretemp\n",  "temp1_label",
					       "Package id 0\n", "temp1_input", "64000\n",
					       "temp1_crit",     "105000\n",    NULL};
	tree_fill("class/thermal", zones);
	look_once(&sample);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 63);
	assert_absent(&sample, READING_SLOWDOWN_CELSIUS);
	tree_fill("class/hwmon/hwmon2", coretemp);
	look_once(&sample);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 64); // the sensor that tells its limit, too
	assert_reading(&sample, READING_SLOWDOWN_CELSIUS, 105);
	tree_remove("class");
}

// k10temp of processors before 2017.
static void test_amd_without_labels(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const k10temp[] = {"name",    "k10temp\n",  "temp1_input", "47500\n", "temp1_max",
					      "70000\n", "temp1_crit", "90000\n",     NULL};
	tree_fill("class/hwmon/hwmon0", k10temp);
	look_once(&sample);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 47.5);
	assert_reading(&sample, READING_SLOWDOWN_CELSIUS, 90);
	tree_write("class/hwmon/hwmon0/temp1_label", "Tccd1\n"); // a part of it
	look_once(&sample);
	assert_absent(&sample, READING_TEMPERATURE_CELSIUS);
	tree_remove("class");
}

static void test_driver_that_is_loaded_late(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const char *const coretemp[] = {"name",        "coretemp\n", "temp1_label", "Package id 0\n",
					       "temp1_input", "40000\n",    NULL};
	struct cpu_reader *cpu = open_tree(&sample);
	read_at(cpu, 1, &sample);
	assert_absent(&sample, READING_TEMPERATURE_CELSIUS);
	tree_fill("class/hwmon/hwmon2", coretemp);
	read_at(cpu, 30, &sample);
	assert_absent(&sample, READING_TEMPERATURE_CELSIUS); // it is not looked for each time
	read_at(cpu, 31, &sample);
	assert_reading(&sample, READING_TEMPERATURE_CELSIUS, 40);
	cpu_reader_destroy(&cpu);
	tree_remove("class");
}

static void test_virtual_machine(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	static const struct host_sample nothing = {.memory_total = -1, .memory_available = -1};
	tree_write("devices/system/cpu/cpu0/topology/physical_package_id", "0\n");
	struct cpu_reader *cpu = open_tree(&sample);
	for (int i = 1; i < 4; i++) {
		cpu_reader_read(cpu, PACE_FULL, &nothing, second * i, &sample);
		assert_int_equal(sample.valid, 0);
		assert_int_equal(sample.throttle_count, -1);
	}
	cpu_reader_destroy(&cpu);
}

static void test_many_policies(void **state)
{
	(void)state;
	char path[96];
	struct telemetry_sample sample;
	for (int i = 0; i < 128; i++) {
		snprintf(path, sizeof path, "devices/system/cpu/cpufreq/policy%d/scaling_cur_freq", i);
		tree_write(path, i < 64 ? "2000000\n" : "4000000\n");
	}
	struct cpu_reader *cpu = open_tree(&sample);
	cpu_reader_read(cpu, PACE_FULL, &machine, second, &sample);
	assert_reading(&sample, READING_CLOCK_MHZ, 3000); // both halves of the machine are asked
	cpu_reader_destroy(&cpu);
	tree_remove("devices");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_intel),
		cmocka_unit_test(test_energy_wraps),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_two_packages),
		cmocka_unit_test(test_amd),
		cmocka_unit_test(test_arm),
		cmocka_unit_test(test_package_zones),
		cmocka_unit_test(test_amd_without_labels),
		cmocka_unit_test(test_driver_that_is_loaded_late),
		cmocka_unit_test(test_virtual_machine),
		cmocka_unit_test(test_many_policies),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
