/* See host.h. Sources: /proc/cpuinfo (x86 flags, Arm implementer and features), /proc/meminfo, the cache entries in
 * /sys/devices/system/cpu, and the limits of control groups (groups.h). */
#include "engine/device/host.h"

#include "engine/device/groups.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool host_read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	size_t used = 0;
	ssize_t got;
	while (used + 1 < size && ((got = read(fd, text + used, size - 1 - used)) > 0 || (got < 0 && errno == EINTR)))
		used += got > 0 ? (size_t)got : 0;
	close(fd);
	text[used] = 0;
	if (used && text[used - 1] == '\n')
		text[used - 1] = 0;
	return true;
}

// x86: words of /proc/cpuinfo that name a vector or matrix extension, and how we call them.
// Arm: the same from its Features line.
static const struct {
	const char *word, *feature;
} feature_words[] = {
	{"sse4_2", "sse4.2"},
	{"avx", "avx"},
	{"f16c", "f16c"},
	{"fma", "fma"},
	{"avx2", "avx2"},
	{"avx_vnni", "avx_vnni"},
	{"avx512f", "avx512f"},
	{"avx512bw", "avx512bw"},
	{"avx512vl", "avx512vl"},
	{"avx512_vnni", "avx512_vnni"},
	{"avx512_bf16", "avx512_bf16"},
	{"avx512_fp16", "avx512_fp16"},
	{"amx_tile", "amx_tile"},
	{"amx_int8", "amx_int8"},
	{"amx_bf16", "amx_bf16"},
	{"amx_fp16", "amx_fp16"},
	{"asimd", "neon"},
	{"neon", "neon"},
	{"asimdhp", "neon_fp16"},
	{"asimddp", "neon_dotprod"},
	{"i8mm", "i8mm"},
	{"bf16", "bf16"},
	{"sve", "sve"},
	{"sve2", "sve2"},
	{"sme", "sme"},
};

static const struct {
	const char *id, *name;
} vendors[] = {
	{"GenuineIntel", "Intel"}, {"AuthenticAMD", "AMD"}, {"HygonGenuine", "Hygon"}, {"CentaurHauls", "Zhaoxin"},
	{"0x41", "Arm"},           {"0x42", "Broadcom"},    {"0x43", "Cavium"},        {"0x48", "HiSilicon"},
	{"0x4e", "NVIDIA"},        {"0x50", "Ampere"},      {"0x51", "Qualcomm"},      {"0x61", "Apple"},
	{"0xc0", "Ampere"},        {"0x6d", "Microsoft"},
};

// Families whose model numbers belong to one generation; other processors get no generation.
static const struct {
	const char *vendor;
	int family, first_model, last_model;
	const char *name;
} families[] = {
	{"Intel", 6, 60, 60, "Haswell"},
	{"Intel", 6, 63, 63, "Haswell"},
	{"Intel", 6, 69, 70, "Haswell"},
	{"Intel", 6, 61, 61, "Broadwell"},
	{"Intel", 6, 71, 71, "Broadwell"},
	{"Intel", 6, 79, 79, "Broadwell"},
	{"Intel", 6, 86, 86, "Broadwell"},
	{"Intel", 6, 78, 78, "Skylake"},
	{"Intel", 6, 94, 94, "Skylake"},
	{"Intel", 6, 106, 106, "Ice Lake"},
	{"Intel", 6, 108, 108, "Ice Lake"},
	{"Intel", 6, 125, 126, "Ice Lake"},
	{"Intel", 6, 140, 141, "Tiger Lake"},
	{"Intel", 6, 143, 143, "Sapphire Rapids"},
	{"Intel", 6, 207, 207, "Emerald Rapids"},
	{"Intel", 6, 173, 174, "Granite Rapids"},
	{"Intel", 6, 151, 151, "Alder Lake"},
	{"Intel", 6, 154, 154, "Alder Lake"},
	{"Intel", 6, 183, 183, "Raptor Lake"},
	{"Intel", 6, 186, 186, "Raptor Lake"},
	{"Intel", 6, 191, 191, "Raptor Lake"},
	{"Intel", 6, 170, 170, "Meteor Lake"},
	{"Intel", 6, 172, 172, "Meteor Lake"},
	{"AMD", 23, 1, 1, "Zen"},
	{"AMD", 23, 8, 8, "Zen+"},
	{"AMD", 23, 49, 49, "Zen 2"},
	{"AMD", 23, 96, 96, "Zen 2"},
	{"AMD", 23, 113, 113, "Zen 2"},
	{"AMD", 25, 0, 15, "Zen 3"},
	{"AMD", 25, 33, 33, "Zen 3"},
	{"AMD", 25, 80, 80, "Zen 3"},
	{"AMD", 25, 16, 31, "Zen 4"},
	{"AMD", 25, 96, 127, "Zen 4"},
	{"AMD", 25, 160, 175, "Zen 4"},
	{"AMD", 26, 0, 255, "Zen 5"},
};

// The value behind `key` and a colon at the beginning of a line; false if there is none.
static bool field(const char *text, const char *key, char *value, size_t size)
{
	size_t length = strlen(key);
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, length) || (line[length] != ':' && line[length] != '\t' && line[length] != ' '))
			continue;
		const char *from = line + strcspn(line, ":\n");
		if (*from != ':')
			continue;
		from += 1 + strspn(from + 1, " \t");
		snprintf(value, size, "%.*s", (int)strcspn(from, "\n"), from);
		return true;
	}
	return false;
}

static int64_t number_field(const char *text, const char *key)
{
	char value[64], *end;
	if (!field(text, key, value, sizeof(value)))
		return -1;
	long long number = strtoll(value, &end, 10);
	return end == value ? -1 : (int64_t)number;
}

// A number of kilobytes, as bytes.
static int64_t bytes_field(const char *text, const char *key)
{
	int64_t number = number_field(text, key);
	return number >= 0 && number <= INT64_MAX / 1024 ? number * 1024 : -1;
}

static void read_identity(struct host_cpu *host, const char *cpuinfo)
{
	char id[64] = "";
	if (!field(cpuinfo, "vendor_id", id, sizeof(id)))
		field(cpuinfo, "CPU implementer", id, sizeof(id));
	for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++)
		if (!strcmp(vendors[i].id, id))
			text_copy(host->vendor, sizeof(host->vendor), vendors[i].name);
	if (!field(cpuinfo, "model name", host->model, sizeof(host->model)) &&
	    !host_read_file("/sys/firmware/devicetree/base/model", host->model, sizeof(host->model)))
		field(cpuinfo, "Hardware", host->model, sizeof(host->model));
	int64_t family = number_field(cpuinfo, "cpu family"), model = number_field(cpuinfo, "model");
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		if (!strcmp(families[i].vendor, host->vendor) && families[i].family == family &&
		    model >= families[i].first_model && model <= families[i].last_model)
			text_copy(host->family, sizeof(host->family), families[i].name);
}

static void read_features(struct host_cpu *host, const char *cpuinfo)
{
	char flags[8192] = "";
	if (!field(cpuinfo, "flags", flags, sizeof(flags)))
		field(cpuinfo, "Features", flags, sizeof(flags));
	for (size_t i = 0; i < sizeof(feature_words) / sizeof(feature_words[0]); i++)
		if (words_have(flags, feature_words[i].word))
			words_add(host->features, sizeof(host->features), feature_words[i].feature);
}

// Distinct pairs of package and core among the processors that are online.
static int64_t count_cores(int64_t threads)
{
	enum { MOST = 4096 };
	static const char *const names[] = {"physical_package_id", "core_id"};
	uint64_t *seen = calloc(MOST, sizeof(*seen));
	int64_t count = 0;
	for (int64_t cpu = 0; seen && cpu < threads && cpu < MOST; cpu++) {
		uint64_t pair = 0;
		bool told = true;
		for (int i = 0; i < 2 && told; i++) {
			char path[96], text[32];
			snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%lld/topology/%s", (long long)cpu,
				 names[i]);
			told = host_read_file(path, text, sizeof(text));
			if (told)
				pair = pair * 1000003 + strtoull(text, NULL, 10);
		}
		if (!told)
			continue;
		bool known = false;
		for (int64_t i = 0; i < count && !known; i++)
			known = seen[i] == pair;
		if (!known)
			seen[count++] = pair;
	}
	free(seen);
	return count ? count : -1;
}

static int64_t last_level_cache(void)
{
	int64_t largest = -1;
	for (int i = 0; i < 8; i++) {
		char path[96], text[32], *unit;
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
		if (!host_read_file(path, text, sizeof(text)))
			break;
		int64_t number = strtoll(text, &unit, 10), each = *unit == 'M' ? 1024 * 1024 : *unit == 'K' ? 1024 : 1;
		if (number <= INT64_MAX / each && number * each > largest)
			largest = number * each;
	}
	return largest;
}

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

void host_memory_read(int64_t *total_bytes, int64_t *available_bytes)
{
	char text[8192];
	struct group_limits limits;
	*total_bytes = *available_bytes = -1;
	if (!host_read_file("/proc/meminfo", text, sizeof(text)))
		return;
	int64_t total = bytes_field(text, "MemTotal"), available = bytes_field(text, "MemAvailable");
	group_limits_read(&limits, "");
	if (total >= 0)
		*total_bytes = lesser(total, limits.memory_bytes);
	if (available >= 0)
		*available_bytes = lesser(available, limits.free_bytes);
}

void host_cpu_read(struct host_cpu *host)
{
	enum { TEXT = 65536 };
	*host = (struct host_cpu){.cores = -1, .threads = -1, .memory_bytes = -1, .available_bytes = -1};
	char *text = malloc(TEXT);
	if (text && host_read_file("/proc/cpuinfo", text, TEXT)) {
		read_identity(host, text);
		read_features(host, text);
	}
	host->threads = sysconf(_SC_NPROCESSORS_ONLN);
	host->cores = count_cores(sysconf(_SC_NPROCESSORS_CONF));
	cpu_set_t set;
	host->usable_threads = !sched_getaffinity(0, sizeof(set), &set) ? CPU_COUNT(&set) : host->threads;
	struct group_limits limits;
	group_limits_read(&limits, "");
	host->usable_threads = lesser(host->usable_threads, limits.threads);
	if (host->usable_threads < 1)
		host->usable_threads = 1;
	host->last_level_bytes = last_level_cache();
	host_memory_read(&host->memory_bytes, &host->available_bytes);
	free(text);
}
