/* Limits of control groups, read from made-up trees of both versions. */
#include "engine/device/groups.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// cmocka.h needs those above it.
#include <cmocka.h>

static char root[] = "/tmp/exogpu-groups-XXXXXX";
static char written[64][512];
static int written_count;

static void put(const char *path, const char *text)
{
	char full[512];
	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(full, 0700) && errno != EEXIST)
			fail_msg("%s: %s", full, strerror(errno));
		*slash = '/';
	}
	FILE *file = fopen(full, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	snprintf(written[written_count++], sizeof(written[0]), "%s", full);
}

// Remove what was written, and the folders that are then empty.
static int clear(void **state)
{
	(void)state;
	while (written_count) {
		char *path = written[--written_count];
		unlink(path);
		for (char *slash = strrchr(path, '/'); slash && strlen(path) > strlen(root);
		     slash = strrchr(path, '/')) {
			*slash = 0;
			if (strlen(path) > strlen(root))
				rmdir(path);
		}
	}
	return 0;
}

static struct group_limits limits_of(void)
{
	struct group_limits limits;
	group_limits_read(&limits, root);
	return limits;
}

static void check(int64_t memory, int64_t free_bytes, int64_t threads)
{
	struct group_limits limits = limits_of();
	assert_int_equal(limits.memory_bytes, memory);
	assert_int_equal(limits.free_bytes, free_bytes);
	assert_int_equal(limits.threads, threads);
}

static void test_none(void **state)
{
	(void)state;
	check(INT64_MAX, INT64_MAX, INT64_MAX);
	put("/proc/self/cgroup", "0::/\n");
	put("/sys/fs/cgroup/memory.max", "max\n");
	put("/sys/fs/cgroup/cpu.max", "max 100000\n");
	check(INT64_MAX, INT64_MAX, INT64_MAX);
}

// A kernel that is none may say any number, in all of its files.
static void test_great_numbers(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/\n");
	put("/sys/fs/cgroup/memory.max", "9223372036854775807\n");
	put("/sys/fs/cgroup/memory.current", "9223372036854775807\n");
	put("/sys/fs/cgroup/memory.stat", "inactive_file -9223372036854775807\nactive_file 9223372036854775807\n");
	put("/sys/fs/cgroup/cpu.max", "9223372036854775807 2\n");
	check(INT64_MAX, INT64_MAX, INT64_MAX / 2 + 1);
	put("/sys/fs/cgroup/memory.stat", "inactive_file -9223372036854775807\nactive_file -2\n");
	check(INT64_MAX, 0, INT64_MAX / 2 + 1);
}

// The group above is the tighter one for memory, the own one for processors.
static void test_version_2(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/a.slice/b.scope\n");
	put("/sys/fs/cgroup/a.slice/memory.max", "1000000\n");
	put("/sys/fs/cgroup/a.slice/memory.current", "900000\n");
	put("/sys/fs/cgroup/a.slice/memory.stat", "anon 1\ninactive_file 200000\nfile 7\nactive_file 100000\n");
	put("/sys/fs/cgroup/a.slice/cpu.max", "800000 100000\n");
	put("/sys/fs/cgroup/a.slice/b.scope/memory.max", "2000000\n");
	put("/sys/fs/cgroup/a.slice/b.scope/memory.current", "100\n");
	put("/sys/fs/cgroup/a.slice/b.scope/cpu.max", "250000 100000\n");
	check(1000000, 400000, 3);
	put("/sys/fs/cgroup/a.slice/memory.current", "1500000\n"); // over the limit
	check(1000000, 0, 3);
}

// Version 1, with the limits in the container's own view at the top: the path of the group is that of the host.
static void test_version_1(void **state)
{
	(void)state;
	put("/proc/self/cgroup",
	    "5:name=systemd:/\n4:memory:/docker/xyz\n3:cpuset:/\n2:cpu,cpuacct:/docker/xyz\n0::/\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
	put("/sys/fs/cgroup/cpu/docker/xyz/cpu.cfs_quota_us", "-1\n");
	put("/sys/fs/cgroup/cpu/docker/xyz/cpu.cfs_period_us", "100000\n");
	check(5000, 4000, INT64_MAX);
	put("/sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "200000\n");
	put("/sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "100000\n");
	check(5000, 4000, 2);
}

static void test_nonsense(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::relative/path\nnot a line\n::\n7:memory\n");
	put("/sys/fs/cgroup/memory.max", "-5\n");
	put("/sys/fs/cgroup/cpu.max", "100000 0\n");
	check(INT64_MAX, INT64_MAX, INT64_MAX);
}

int main(void)
{
	if (!mkdtemp(root))
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_none, clear),      cmocka_unit_test_teardown(test_great_numbers, clear),
		cmocka_unit_test_teardown(test_version_2, clear), cmocka_unit_test_teardown(test_version_1, clear),
		cmocka_unit_test_teardown(test_nonsense, clear),
	};
	int failed = cmocka_run_group_tests_name("groups", tests, NULL, NULL);
	rmdir(root);
	return failed;
}
