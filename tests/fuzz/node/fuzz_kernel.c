/* Fuzz target: what /proc and /sys tell, where a container or another kernel may say anything: telemetry of the
 * machine, its processor and a GPU, and what the node says of its processor, memory and control groups.
 *
 *   u8 who reads (enum reader)
 *   u8 file | u16 little-endian length | the file's content      as often as there are bytes; the top bit of `file`:
 *                                                                all is read before, and again after this one
 *
 * A file that is not named has what a real one has. All readings are as the contract has them, and no count is made up
 * of an overflow. */
#include "common/wire/contract.h"
#include "engine/device/groups.h"
#include "engine/device/host.h"
#include "engine/telemetry/cpu.h"
#include "engine/telemetry/energy.h"
#include "engine/telemetry/node.h"
#include "engine/telemetry/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARD "sys/bus/pci/devices/0000:03:00.0/"
#define HWMON "sys/class/hwmon/hwmon0/"
#define RAPL "sys/class/powercap/intel-rapl:0/"
#define CPU0 "sys/devices/system/cpu/cpu0/"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);
ssize_t __real_pread(int fd, void *to, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t size, off_t at);
ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);

static const struct {
	const char *path, *text;
} files[] = {
	{"proc/stat", "cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"},
	{"proc/meminfo",
	 "MemTotal:  16000000 kB\nMemFree: 1 kB\nMemAvailable: 8000000 kB\nSwapTotal: 9 kB\nSwapFree: 4 kB\n"},
	{"proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: A "
			 "processor\nflags\t\t: fpu avx avx2 fma f16c avx512f\n"},
	{"proc/loadavg", "0.50 0.40 0.30 1/100 1234\n"},
	{"proc/diskstats", "   8       0 sda 100 0 2000 50 200 0 4000 60 0 70 80\n"},
	{"proc/net/dev",
	 "Inter-|   Receive\n face |bytes\n  eth0: 1000 1 0 0 0 0 0 0 2000 2 0 0 0 0 0 0\n    lo: 5 1 0 0 0 0 "
	 "0 0 5 1 0 0 0 0 0 0\n"},
	{"proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n0::/a/b\n"},
	{"sys/fs/cgroup/a/b/memory.max", "1073741824\n"},
	{"sys/fs/cgroup/a/b/memory.current", "536870912\n"},
	{"sys/fs/cgroup/a/b/memory.stat", "anon 1\ninactive_file 4096\nactive_file 8192\n"},
	{"sys/fs/cgroup/a/b/cpu.max", "200000 100000\n"},
	{"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n"},
	{"sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1048576\n"},
	{"sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 4096\ntotal_active_file 8192\n"},
	{"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000\n"},
	{"sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"},
	{"sys/block/sda/size", "1\n"},
	{"sys/class/net/eth0/device/vendor", "1\n"},
	{"sys/class/power_supply/BAT0/type", "Battery\n"},
	{"sys/class/power_supply/BAT0/capacity", "80\n"},
	{"sys/class/power_supply/BAT0/status", "Discharging\n"},
	{"sys/class/power_supply/BAT0/energy_full", "50000000\n"},
	{HWMON "name", "coretemp\n"},
	{HWMON "temp1_label", "Package id 0\n"},
	{HWMON "temp1_input", "50000\n"},
	{HWMON "temp1_crit", "100000\n"},
	{"sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n"},
	{"sys/class/thermal/thermal_zone0/temp", "51000\n"},
	{"sys/class/thermal/thermal_zone0/trip_point_0_type", "critical\n"},
	{"sys/class/thermal/thermal_zone0/trip_point_0_temp", "105000\n"},
	{RAPL "name", "package-0\n"},
	{RAPL "energy_uj", "1000000\n"},
	{RAPL "max_energy_range_uj", "262143328850\n"},
	{RAPL "constraint_0_name", "long_term\n"},
	{RAPL "constraint_0_power_limit_uw", "125000000\n"},
	{CPU0 "topology/physical_package_id", "0\n"},
	{CPU0 "topology/core_id", "0\n"},
	{CPU0 "thermal_throttle/package_throttle_count", "3\n"},
	{CPU0 "cache/index0/size", "48K\n"},
	{CPU0 "cache/index1/size", "2M\n"},
	{"sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "2400000\n"},
	{CARD "vendor", "0x1002\n"},
	{CARD "power/runtime_status", "active\n"},
	{CARD "gpu_busy_percent", "42\n"},
	{CARD "mem_info_vram_used", "1073741824\n"},
	{CARD "mem_info_vram_total", "17163091968\n"},
	{CARD "ras/umc_err_count", "ue: 2\nce: 7\n"},
	{CARD "hwmon/hwmon4/name", "amdgpu\n"},
	{CARD "hwmon/hwmon4/temp1_label", "junction\n"},
	{CARD "hwmon/hwmon4/temp1_input", "81000\n"},
	{CARD "hwmon/hwmon4/temp1_crit", "110000\n"},
	{CARD "hwmon/hwmon4/temp2_label", "mem\n"},
	{CARD "hwmon/hwmon4/temp2_input", "76000\n"},
	{CARD "hwmon/hwmon4/power1_average", "150000000\n"},
	{CARD "hwmon/hwmon4/power1_cap", "200000000\n"},
	{CARD "hwmon/hwmon4/energy1_input", "1000000\n"},
	{CARD "hwmon/hwmon4/freq1_label", "sclk\n"},
	{CARD "hwmon/hwmon4/freq1_input", "2000000000\n"},
	{CARD "hwmon/hwmon4/freq2_label", "mclk\n"},
	{CARD "hwmon/hwmon4/freq2_input", "1000000000\n"},
	{CARD "hwmon/hwmon4/pwm1", "102\n"},
	{CARD "hwmon/hwmon4/pwm1_max", "255\n"},
	{CARD "drm/card0/gt/gt0/rps_act_freq_mhz", "1500\n"},
	{CARD "drm/card0/gt/gt0/rc6_residency_ms", "5000\n"},
	{CARD "drm/card0/gt/gt0/throttle_reason_status", "1\n"},
	{CARD "drm/card0/gt/gt0/throttle_reason_thermal", "1\n"},
};
enum { FILES = sizeof files / sizeof *files };

static char root[] = "/dev/shm/exogpu-fuzz-XXXXXX", proc_root[64], sysfs_root[64];
static bool spoilt[FILES]; // it has something else than `files` says
static struct contract *contract;

enum reader { READ_MACHINE, READ_NODE, READ_CPU, READ_GPU, READERS };

static struct {
	enum reader which;
	bool open;
	struct host_reader *host;
	struct node_reader *node;
	struct cpu_reader *cpu;
	struct sysfs_gpu *gpu;
	struct telemetry_sample sample;
	struct telemetry_energy energy;
	int64_t now_ns;
} run;

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- the files, in memory: those on the disk are empty, and there for who lists folders ----

enum { FIRST_FD = 1 << 20, PLACES = 512 }; // no descriptor of the kernel's is as great

static const char *contents[FILES]; // (lengths): what a file has
static size_t lengths[FILES], positions[FILES];
static uint8_t places[PLACES]; // by the hash of a file's name: its number + 1

static size_t hash(const char *text)
{
	uint32_t sum = 2166136261u;
	for (; *text; text++)
		sum = (sum ^ (uint8_t)*text) * 16777619u;
	return sum % PLACES;
}

// FILES: there is none.
static size_t find(const char *path)
{
	for (size_t at = hash(path); places[at]; at = (at + 1) % PLACES)
		if (!strcmp(files[places[at] - 1].path, path))
			return places[at] - 1u;
	return FILES;
}

// What names /proc and /sys finds them here.
int __wrap_open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	const unsigned mode = flags & O_CREAT ? va_arg(rest, unsigned) : 0;
	va_end(rest);
	const bool ours = !strncmp(path, root, strlen(root));
	if (!contract || flags & O_DIRECTORY ||
	    (!ours && strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0))
		return __real_open(path, flags, mode);
	const size_t which = find(path + (ours ? strlen(root) : 0) + 1);
	if (which == FILES) {
		errno = ENOENT;
		return -1;
	}
	positions[which] = 0;
	return FIRST_FD + (int)which;
}

static ssize_t read_from(size_t which, void *to, size_t size, size_t at)
{
	const size_t left = at < lengths[which] ? lengths[which] - at : 0, now = left < size ? left : size;
	if (now)
		memcpy(to, contents[which] + at, now);
	return (ssize_t)now;
}

ssize_t __wrap_pread(int fd, void *to, size_t size, off_t at)
{
	return fd < FIRST_FD ? __real_pread(fd, to, size, at)
			     : read_from((size_t)(fd - FIRST_FD), to, size, (size_t)at);
}

ssize_t __wrap_read(int fd, void *to, size_t size)
{
	if (fd < FIRST_FD)
		return __real_read(fd, to, size);
	const size_t which = (size_t)(fd - FIRST_FD);
	const ssize_t got = read_from(which, to, size, positions[which]);
	positions[which] += (size_t)got;
	return got;
}

int __wrap_close(int fd)
{
	return fd < FIRST_FD ? __real_close(fd) : 0;
}

static void put(size_t which, const void *bytes, size_t length)
{
	contents[which] = bytes;
	lengths[which] = length;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
	(void)info, (void)kind, (void)where;
	return remove(path);
}

static void remove_tree(void)
{
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void begin_once(void)
{
	char path[256];
	if (contract)
		return;
	require(mkdtemp(root) && !atexit(remove_tree));
	snprintf(proc_root, sizeof proc_root, "%s/proc", root);
	snprintf(sysfs_root, sizeof sysfs_root, "%s/sys", root);
	for (size_t i = 0; i < FILES; i++) {
		snprintf(path, sizeof path, "%s/%s", root, files[i].path);
		for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
			*slash = 0;
			mkdir(path, 0700);
			*slash = '/';
		}
		const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		require(fd >= 0 && !close(fd));
		put(i, files[i].text, strlen(files[i].text));
		size_t at = hash(files[i].path);
		while (places[at])
			at = (at + 1) % PLACES;
		places[at] = (uint8_t)(i + 1);
	}
	require(!contract_create(&contract, CONTRACT_NODE, NULL));
}

static void open_reader(void)
{
	sample_clear(&run.sample);
	run.open = true;
	if (run.which != READ_GPU)
		require(!host_reader_create(&run.host, proc_root, sysfs_root, NULL));
	if (run.which == READ_NODE)
		require(!node_reader_create(&run.node, proc_root, sysfs_root, NULL));
	else if (run.which == READ_CPU)
		require(!cpu_reader_create(&run.cpu, sysfs_root, NULL));
	else
		require(!sysfs_gpu_create(&run.gpu, sysfs_root, "0000:03:00.0", NULL));
}

static void close_reader(void)
{
	host_reader_destroy(&run.host);
	node_reader_destroy(&run.node);
	cpu_reader_destroy(&run.cpu);
	sysfs_gpu_destroy(&run.gpu);
}

static void read_telemetry(enum pace_round round)
{
	struct host_sample host = {0};
	struct json *params = json_new_object(), *devices = json_new_array();
	run.now_ns += 1000000000;
	if (run.host)
		host_reader_read(run.host, &host);
	require(host.cpu_percent >= 0 && host.cpu_percent <= 100);
	require(host.memory_total >= -1 && host.memory_available >= -1 && host.swap_used >= -1);
	sample_begin(&run.sample, round);
	if (run.cpu)
		cpu_reader_read(run.cpu, round, &host, run.now_ns, &run.sample);
	if (run.gpu)
		sysfs_gpu_read(run.gpu, round, run.now_ns, &run.sample);
	struct json *device = sample_json(&run.sample, "dev_1");
	energy_add(&run.energy, &run.sample, run.now_ns);
	energy_json(&run.energy, device);
	json_push(devices, device);
	if (run.node)
		json_set(params, "node", node_reader_read(run.node, &host, "nod_1", run.now_ns, 1700000000000));
	else
		json_set_null(params, "node");
	json_set(params, "devices", devices);
	require(!contract_check_params(contract, contract_find(contract, "node.telemetry"), params, NULL));
	json_destroy(&params);
}

static void read_machine(void)
{
	struct host_cpu host;
	struct group_limits limits;
	host_cpu_read(&host);
	require(host.usable_threads >= 1 && host.last_level_bytes >= -1);
	require(host.memory_bytes >= -1 && host.available_bytes >= -1);
	group_limits_read(&limits, root);
	require(limits.memory_bytes > 0 && limits.free_bytes >= 0 && limits.threads >= 0);
}

static void read_all(enum pace_round round)
{
	if (run.which == READ_MACHINE) {
		read_machine();
		return;
	}
	if (!run.open)
		open_reader();
	read_telemetry(round);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	begin_once();
	memset(&run, 0, sizeof run);
	run.which = (enum reader)(data[0] % READERS);
	for (data++, size--; size >= 3;) {
		const size_t which = (data[0] & 127) % FILES, wanted = data[1] | (size_t)data[2] << 8;
		const size_t length = wanted < size - 3 ? wanted : size - 3;
		if (data[0] & 128)
			read_all(PACE_FULL);
		put(which, data + 3, length);
		spoilt[which] = true;
		data += 3 + length;
		size -= 3 + length;
	}
	read_all(PACE_FULL);
	read_all(PACE_FAST);
	close_reader();
	for (size_t i = 0; i < FILES; i++)
		if (spoilt[i])
			put(i, files[i].text, strlen(files[i].text));
	memset(spoilt, 0, sizeof spoilt);
	return 0;
}
