// The whole sampler: what it reports fits the contract, at its pace, for recorded machines and for this one.
#include "common/base/clock.h"
#include "common/wire/contract.h"
#include "engine/telemetry/telemetry.h"
#include "tests/engine/telemetry/tree.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

enum { REPORTS = 64, PATIENCE_MS = 60000 };

static struct contract *contract;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct json *reports[REPORTS]; // guarded by lock
static int64_t report_ms[REPORTS];
static int report_count;

static void keep(void *context, struct json *telemetry)
{
	(void)context;
	pthread_mutex_lock(&lock);
	if (report_count < REPORTS) {
		report_ms[report_count] = clock_steady_ms();
		reports[report_count++] = telemetry;
		telemetry = NULL;
	}
	pthread_mutex_unlock(&lock);
	json_destroy(&telemetry);
}

static void forget(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < report_count; i++)
		json_destroy(&reports[i]);
	report_count = 0;
	pthread_mutex_unlock(&lock);
}

static int counted(void)
{
	pthread_mutex_lock(&lock);
	int count = report_count;
	pthread_mutex_unlock(&lock);
	return count;
}

static void sleep_ms(int ms)
{
	struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	nanosleep(&pause, NULL);
}

static void wait_for(int count)
{
	int64_t until = clock_steady_ms() + PATIENCE_MS;
	while (counted() < count && clock_steady_ms() < until)
		sleep_ms(5);
	if (counted() < count)
		fail_msg("%d reports in %d ms, expected %d", counted(), (int)PATIENCE_MS, count);
}

static int setup(void **state)
{
	struct error error = {0};
	(void)state;
	return contract_create(&contract, CONTRACT_NODE, &error) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	contract_destroy(&contract);
	return 0;
}

static int make_tree(void **state)
{
	(void)state;
	tree_create();
	return 0;
}

static int drop_tree(void **state)
{
	(void)state;
	forget();
	tree_destroy();
	return 0;
}

static struct telemetry *start(const char *proc, const char *sys)
{
	struct telemetry *telemetry = NULL;
	struct error error = {0};
	char proc_path[96], sys_path[96];
	snprintf(proc_path, sizeof proc_path, "%s%s", tree_root, proc);
	snprintf(sys_path, sizeof sys_path, "%s%s", tree_root, sys);
	struct telemetry_params params = {.proc_root = *proc ? proc_path : "/proc",
					  .sysfs_root = *sys ? sys_path : "/sys",
					  .report = keep,
					  .node_id = "node-1"};
	assert_int_equal(telemetry_create(&telemetry, &params, &error), STATUS_OK);
	return telemetry;
}

static void check_contract(void)
{
	const struct contract_method *method = contract_find(contract, "node.telemetry");
	assert_non_null(method);
	for (int i = 0; i < report_count; i++) {
		struct error error = {0};
		if (contract_check_params(contract, method, reports[i], &error) != STATUS_OK)
			fail_msg("report %d: %s", i, error.message);
	}
}

// The newest reading of a device; NULL if it is in no report.
static const struct json *newest(const char *device_id)
{
	for (int i = report_count - 1; i >= 0; i--) {
		const struct json *one = json_first(json_get(reports[i], "devices"));
		for (; one; one = json_next(one))
			if (strcmp(json_get_string(one, "device_id", ""), device_id) == 0)
				return one;
	}
	return NULL;
}

// Until a report has it.
static void wait_for_device(const char *device_id)
{
	int64_t until = clock_steady_ms() + PATIENCE_MS;
	for (bool found = false; !found;) {
		pthread_mutex_lock(&lock);
		found = newest(device_id) != NULL;
		pthread_mutex_unlock(&lock);
		if (!found && clock_steady_ms() > until)
			fail_msg("%s is in no report", device_id);
		sleep_ms(5);
	}
}

static void write_laptop(void)
{
	static const char *const files[] = {
		"proc/stat",
		"cpu  100 0 100 800 0 0 0 0 0 0\n",
		"proc/meminfo",
		"MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
		"proc/loadavg",
		"1.5 1 1 1/2 3\n",
		"sys/class/power_supply/BAT1/type",
		"Battery\n",
		"sys/class/power_supply/BAT1/capacity",
		"55\n",
		"sys/class/power_supply/BAT1/status",
		"Charging\n",
		"sys/class/hwmon/hwmon0/name",
		"k10temp\n",
		"sys/class/hwmon/hwmon0/temp1_label",
		"Tctl\n",
		"sys/class/hwmon/hwmon0/temp1_input",
		"47000\n",
		"sys/bus/pci/devices/0000:c1:00.0/vendor",
		"0x1002\n",
		"sys/bus/pci/devices/0000:c1:00.0/gpu_busy_percent",
		"0\n",
		"sys/bus/pci/devices/0000:c1:00.0/hwmon/hwmon4/name",
		"amdgpu\n",
		"sys/bus/pci/devices/0000:c1:00.0/hwmon/hwmon4/temp1_label",
		"edge\n",
		"sys/bus/pci/devices/0000:c1:00.0/hwmon/hwmon4/temp1_input",
		"45000\n",
		NULL};
	tree_fill(".", files);
}

static const struct telemetry_target laptop[] = {
	{.device_id = "cpu", .source = TELEMETRY_CPU},
	{.device_id = "gpu", .source = TELEMETRY_SYSFS, .pci_address = "0000:c1:00.0"},
	{.device_id = "llvmpipe", .source = TELEMETRY_NONE},
};

static void test_laptop(void **state)
{
	(void)state;
	write_laptop();
	int64_t begun = clock_steady_ms();
	struct telemetry *telemetry = start("/proc", "/sys");
	telemetry_set_targets(telemetry, laptop, 3);
	for (size_t i = 0; i < sizeof laptop / sizeof *laptop; i++)
		wait_for_device(laptop[i].device_id);
	print_message("first report after %lld ms\n", (long long)(report_ms[0] - begun));
	telemetry_destroy(&telemetry);
	assert_null(telemetry);
	check_contract();
	const struct json *node = json_get(reports[0], "node");
	assert_string_equal(json_get_string(node, "node_id", ""), "node-1");
	assert_int_equal(json_get_integer(node, "memory_total_bytes", 0), INT64_C(16000000) * 1024);
	assert_close(json_get_number(node, "battery_percent", 0), 55);
	assert_true(json_get_bool(node, "charging", false));
	assert_int_equal(json_type(json_get(node, "cpu_percent")), JSON_NULL);
	assert_close(json_get_number(newest("cpu"), "temperature_celsius", 0), 47);
	assert_close(json_get_number(newest("gpu"), "temperature_celsius", 0), 45);
	assert_close(json_get_number(newest("gpu"), "utilization_percent", -1), 0);
	const struct json *software = newest("llvmpipe");
	assert_non_null(software);
	assert_int_equal(json_type(json_get(software, "utilization_percent")), JSON_NULL);
	assert_int_equal(json_type(json_get(software, "memory_total_bytes")), JSON_NULL);
	telemetry_destroy(&telemetry);
}

static void test_machine_that_tells_nothing(void **state)
{
	(void)state;
	struct telemetry *telemetry = start("/none", "/none");
	telemetry_set_targets(telemetry, laptop, 3);
	wait_for_device("cpu");
	sleep_ms(200);
	telemetry_destroy(&telemetry);
	check_contract();
	assert_non_null(newest("cpu"));
	assert_null(newest("gpu")); // there is no such card
	assert_int_equal(json_type(json_get(newest("cpu"), "memory_total_bytes")), JSON_NULL);
}

// How many rounds of the card there were: of all that there is, and of temperature and power alone.
static void count_rounds(int *full, int *fast)
{
	*full = *fast = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < report_count; i++) {
		bool gpu = false;
		for (const struct json *one = json_first(json_get(reports[i], "devices")); one; one = json_next(one)) {
			if (strcmp(json_get_string(one, "device_id", ""), "gpu") != 0)
				continue;
			gpu = true;
			assert_close(json_get_number(one, "temperature_celsius", 0), 45);
			assert_close(json_get_number(one, "utilization_percent", 0), 80); // also between full rounds
		}
		if (gpu && json_type(json_get(reports[i], "node")) == JSON_OBJECT)
			++*full;
		else
			*fast += gpu;
	}
	pthread_mutex_unlock(&lock);
}

// At 0, 0.5, 1, … s by turns. A busy machine leaves out some, mostly of the fast ones; none comes before its time.
static void test_pace_of_a_working_card(void **state)
{
	(void)state;
	int fast = 0, full = 0;
	write_laptop();
	tree_write("sys/bus/pci/devices/0000:c1:00.0/gpu_busy_percent", "80\n");
	const int64_t begun = clock_steady_ms();
	struct telemetry *telemetry = start("/proc", "/sys");
	telemetry_set_targets(telemetry, laptop, 3);
	while ((full < 4 || fast < 3) && clock_steady_ms() - begun < PATIENCE_MS && counted() < REPORTS) {
		sleep_ms(5);
		count_rounds(&full, &fast);
	}
	telemetry_destroy(&telemetry);
	check_contract();
	count_rounds(&full, &fast);
	const int64_t ms = clock_steady_ms() - begun;
	print_message("%d full rounds, %d of temperature and power, in %lld ms\n", full, fast, (long long)ms);
	assert_true(full >= 4 && fast >= 3);
	assert_true(full <= 1 + ms / 1000 && full + fast <= 2 + ms / 500);
}

static void test_card_that_leaves(void **state)
{
	(void)state;
	write_laptop();
	struct telemetry *telemetry = start("/proc", "/sys");
	telemetry_set_watched(telemetry, true);
	telemetry_set_targets(telemetry, laptop, 3);
	wait_for(2);
	tree_remove("sys/bus/pci/devices/0000:c1:00.0");
	forget();
	wait_for(3); // one may have been under way
	pthread_mutex_lock(&lock);
	for (int i = 1; i < report_count; i++)
		for (const struct json *one = json_first(json_get(reports[i], "devices")); one; one = json_next(one))
			assert_string_not_equal(json_get_string(one, "device_id", ""), "gpu");
	pthread_mutex_unlock(&lock);
	telemetry_destroy(&telemetry);
}

static void test_targets_change(void **state)
{
	(void)state;
	write_laptop();
	struct telemetry *telemetry = start("/proc", "/sys");
	// Many calls in a row, as when devices are found one after the other; NVML is not there, its threads come and
	// go.
	struct telemetry_target many[4] = {
		laptop[0],
		laptop[1],
		laptop[2],
		{.device_id = "nv", .source = TELEMETRY_NVIDIA, .uuid = "00000000-0000-0000-0000-000000000000"}};
	for (int i = 0; i < 50; i++) {
		assert_int_equal(telemetry_set_targets(telemetry, many, (size_t)(i % 5)), STATUS_OK);
		telemetry_set_watched(telemetry, i % 2);
		if (i % 10 == 0)
			sleep_ms(20);
	}
	assert_int_equal(telemetry_set_targets(telemetry, many, 100000), STATUS_LIMIT_EXCEEDED);
	forget();
	assert_int_equal(telemetry_set_targets(telemetry, laptop, 1), STATUS_OK);
	telemetry_set_watched(telemetry, true);
	wait_for(2); // one may have been under way
	forget();
	wait_for(2);
	telemetry_destroy(&telemetry);
	check_contract();
	assert_non_null(newest("cpu"));
	assert_null(newest("llvmpipe"));
}

static void test_roots_too_long(void **state)
{
	(void)state;
	struct telemetry *telemetry = NULL;
	struct error error = {0};
	char path[300];
	memset(path, 'a', sizeof path - 1);
	path[sizeof path - 1] = 0;
	struct telemetry_params params = {.proc_root = path, .sysfs_root = "/sys", .report = keep, .node_id = "n"};
	assert_int_equal(telemetry_create(&telemetry, &params, &error), STATUS_INVALID_PARAMS);
	assert_null(telemetry);
}

static double cpu_seconds(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void test_this_machine(void **state)
{
	(void)state;
	struct telemetry *telemetry = start("", "");
	telemetry_set_watched(telemetry, true);
	telemetry_set_targets(telemetry, laptop, 1);
	wait_for(1);
	double before = cpu_seconds();
	sleep_ms(5000);
	double used = cpu_seconds() - before;
	telemetry_destroy(&telemetry);
	check_contract();
	print_message("at one sample a second: %.2f ms of processor time a second (%.3f %% of a core)\n",
		      used / 5 * 1000, used / 5 * 100);
	const struct json *node = NULL; // the newest: there is none in a round of temperature and power
	for (int i = 0; i < report_count; i++)
		if (json_type(json_get(reports[i], "node")) == JSON_OBJECT)
			node = json_get(reports[i], "node");
	assert_true(json_get_integer(node, "memory_total_bytes", 0) > 0);
	assert_true(json_get_number(node, "load_1m", -1) >= 0);
	assert_int_equal(json_type(json_get(newest("cpu"), "utilization_percent")), JSON_NUMBER);
	assert_int_equal(json_type(json_get(newest("cpu"), "availability_score")), JSON_NUMBER);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(used / 5 < 0.005);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_laptop, make_tree, drop_tree),
		cmocka_unit_test_setup_teardown(test_machine_that_tells_nothing, make_tree, drop_tree),
		cmocka_unit_test_setup_teardown(test_pace_of_a_working_card, make_tree, drop_tree),
		cmocka_unit_test_setup_teardown(test_card_that_leaves, make_tree, drop_tree),
		cmocka_unit_test_setup_teardown(test_targets_change, make_tree, drop_tree),
		cmocka_unit_test_setup_teardown(test_roots_too_long, make_tree, drop_tree),
		cmocka_unit_test_setup_teardown(test_this_machine, make_tree, drop_tree),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
