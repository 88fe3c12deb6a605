// Processor time and memory: recorded files, control groups of both versions, and this machine beside sysinfo(2).
#include "engine/telemetry/host.h"
#include "tests/engine/telemetry/tree.h"

#include <sys/sysinfo.h>

static const char meminfo[] = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"
			      "Buffers:               0 kB\nSwapTotal:       4000000 kB\nSwapFree:        3000000 kB\n";

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

static struct host_reader *open_tree(void)
{
	struct host_reader *host;
	struct error error = {0};
	char proc[96], sys[96];
	snprintf(proc, sizeof proc, "%s/proc", tree_root);
	snprintf(sys, sizeof sys, "%s/sys", tree_root);
	assert_int_equal(host_reader_create(&host, proc, sys, &error), STATUS_OK);
	return host;
}

static void test_cpu_share(void **state)
{
	(void)state;
	struct host_sample sample;
	// guest time (the ninth) is in user time already
	tree_write("proc/stat", "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3\nintr 1 2\n");
	struct host_reader *host = open_tree();
	host_reader_read(host, &sample);
	assert_false(sample.cpu_known);
	tree_write("proc/stat", "cpu  125 0 125 800 150 0 0 0 75 0\ncpu0 1 2 3\n");
	host_reader_read(host, &sample);
	assert_true(sample.cpu_known);
	assert_close(sample.cpu_percent, 25); // 50 of 200
	host_reader_read(host, &sample);
	assert_false(sample.cpu_known); // no time passed
	tree_write("proc/stat", "cpu  200 0 200 850 50 0 0 0 0 0\n");
	host_reader_read(host, &sample); // iowait went back, 100 in sum, 150 busy: not over 100 %
	assert_true(sample.cpu_known);
	assert_close(sample.cpu_percent, 100);
	tree_write("proc/stat", "cpu  1 0 1 8 0 0 0 0 0 0\n");
	host_reader_read(host, &sample); // all of it went back
	assert_false(sample.cpu_known);
	tree_write("proc/stat", "what is this\n");
	host_reader_read(host, &sample);
	assert_false(sample.cpu_known);
	host_reader_destroy(&host);
	assert_null(host);
	host_reader_destroy(&host);
}

static void test_memory(void **state)
{
	(void)state;
	struct host_sample sample;
	tree_write("proc/meminfo", meminfo);
	struct host_reader *host = open_tree();
	host_reader_read(host, &sample);
	assert_int_equal(sample.memory_total, INT64_C(16000000) * 1024);
	assert_int_equal(sample.memory_available, INT64_C(8000000) * 1024);
	assert_int_equal(sample.swap_total, INT64_C(4000000) * 1024);
	assert_int_equal(sample.swap_used, INT64_C(1000000) * 1024);
	tree_write("proc/meminfo", "MemTotal: a lot\nMemAvailable: -5 kB\nSwapTotal: 1 kB\nSwapFree: 2 kB\n");
	host_reader_read(host, &sample);
	assert_int_equal(sample.memory_total, -1);
	assert_int_equal(sample.memory_available, -1);
	assert_int_equal(sample.swap_used, -1);
	host_reader_destroy(&host);
}

static void test_nothing_there(void **state)
{
	(void)state;
	struct host_sample sample;
	struct host_reader *host;
	struct error error = {0};
	assert_int_equal(host_reader_create(&host, "/nowhere", "/nowhere", &error), STATUS_OK);
	host_reader_read(host, &sample);
	assert_false(sample.cpu_known);
	assert_int_equal(sample.memory_total, -1);
	assert_int_equal(sample.memory_available, -1);
	assert_int_equal(sample.swap_total, -1);
	host_reader_destroy(&host);
}

static void test_group_version_2(void **state)
{
	(void)state;
	struct host_sample sample;
	tree_write("proc/meminfo", meminfo);
	tree_write("proc/self/cgroup", "0::/pod/box\n");
	tree_write("sys/fs/cgroup/pod/box/memory.max", "max\n");
	tree_write("sys/fs/cgroup/pod/box/memory.current", "1000\n");
	tree_write("sys/fs/cgroup/pod/memory.max", "1000000000\n"); // the limit of the group above holds
	tree_write("sys/fs/cgroup/pod/memory.current", "600000000\n");
	tree_write("sys/fs/cgroup/pod/memory.stat", "anon 1\nfile 2\ninactive_file 200000000\nactive_file 50000000\n");
	struct host_reader *host = open_tree();
	host_reader_read(host, &sample);
	assert_int_equal(sample.memory_total, 1000000000);
	assert_int_equal(sample.memory_available, 650000000); // files that are cached do not count, however often read
	tree_write("sys/fs/cgroup/pod/memory.current", "1300000000\n"); // over its limit
	host_reader_read(host, &sample);
	assert_int_equal(sample.memory_available, 0);
	tree_write("sys/fs/cgroup/pod/memory.max", "max\n");
	host_reader_read(host, &sample);
	assert_int_equal(sample.memory_total, INT64_C(16000000) * 1024);
	host_reader_destroy(&host);
	tree_remove("sys/fs/cgroup");
}

static void test_group_version_1(void **state)
{
	(void)state;
	struct host_sample sample;
	tree_write("proc/meminfo", meminfo);
	tree_write("proc/self/cgroup", "5:devices:/\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n");
	// Inside a container the group itself is mounted at the root, and the path leads nowhere.
	tree_write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000000\n");
	tree_write("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000000\n");
	// Of the group with those below it, whose keys begin with "total_".
	tree_write("sys/fs/cgroup/memory/memory.stat",
		   "inactive_file 1\nactive_file 2\ntotal_inactive_file 100000000\ntotal_active_file 300000000\n");
	struct host_reader *host = open_tree();
	host_reader_read(host, &sample);
	assert_int_equal(sample.memory_total, 2000000000);
	assert_int_equal(sample.memory_available, 1900000000);
	tree_write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1\ntotal_active_file 600000000\n");
	host_reader_read(host, &sample);
	assert_int_equal(sample.memory_available, 2000000000);
	tree_write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); // no limit
	host_reader_read(host, &sample);
	assert_int_equal(sample.memory_total, INT64_C(16000000) * 1024);
	host_reader_destroy(&host);
	tree_remove("sys/fs/cgroup");
}

static void test_this_machine(void **state)
{
	(void)state;
	struct host_sample sample;
	struct host_reader *host;
	struct error error = {0};
	struct sysinfo info;
	assert_int_equal(host_reader_create(&host, "/proc", "/sys", &error), STATUS_OK);
	host_reader_read(host, &sample);
	assert_int_equal(sysinfo(&info), 0);
	int64_t total = (int64_t)info.totalram * info.mem_unit;
	print_message("MemTotal %lld, sysinfo %lld\n", (long long)sample.memory_total, (long long)total);
	// A control group may allow less than the machine has; it never has more.
	assert_true(sample.memory_total > 0 && sample.memory_total <= total);
	assert_true(sample.memory_available > 0 && sample.memory_available <= sample.memory_total);
	assert_int_equal(sample.swap_total, (int64_t)info.totalswap * info.mem_unit);
	// Without /sys no group is seen, and the totals are one and the same.
	host_reader_destroy(&host);
	assert_int_equal(host_reader_create(&host, "/proc", "/nowhere", &error), STATUS_OK);
	host_reader_read(host, &sample);
	assert_int_equal(sample.memory_total, total);
	host_reader_destroy(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cpu_share),       cmocka_unit_test(test_memory),
		cmocka_unit_test(test_nothing_there),   cmocka_unit_test(test_group_version_2),
		cmocka_unit_test(test_group_version_1), cmocka_unit_test(test_this_machine),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
