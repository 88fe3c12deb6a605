/* Reads /proc/stat, /proc/meminfo and the memory limits of this process's control groups; see
 * host.h. The free memory under a group's limit is the limit less its use without cached
 * files, which the kernel drops first, even those that were read more than once (a model that
 * is being loaded), as in engine/device/groups.c. Groups nest, and every limit on the way up
 * applies. */
#include "engine/telemetry/host.h"

#include "engine/telemetry/sensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_LEVELS = 16, STAT_BYTES = 512, MEMINFO_BYTES = 8192, GROUP_STAT_BYTES = 16384 };

struct group {
	struct sensor limit, usage, stat;
	const char *cached[2]; // keys in its stat file
};

struct host_reader {
	struct sensor stat, meminfo;
	bool started;
	uint64_t busy, total; // processor time at the last sample, ticks
	struct group groups[GROUP_LEVELS];
	int group_count;
	char text[GROUP_STAT_BYTES];
};

// Open the limits of the group `path` and of those above it, up to the root that is mounted at `base`.
static void open_groups(struct host_reader *host, const char *base, char *path, bool version_2)
{
	for (;;) {
		if (host->group_count == GROUP_LEVELS)
			return;
		struct group *group = &host->groups[host->group_count];
		const char *limit = version_2 ? "memory.max" : "memory.limit_in_bytes";
		const char *usage = version_2 ? "memory.current" : "memory.usage_in_bytes";
		group->cached[0] = version_2 ? "inactive_file" : "total_inactive_file";
		group->cached[1] = version_2 ? "active_file" : "total_active_file";
		if (sensor_open(&group->limit, "%s%s/%s", base, path, limit)) {
			sensor_open(&group->usage, "%s%s/%s", base, path, usage);
			sensor_open(&group->stat, "%s%s/memory.stat", base, path);
			host->group_count++;
		}
		char *slash = strrchr(path, '/');
		if (!slash)
			return;
		*slash = 0; // "/a/b", "/a", "" and done
	}
}

// Lines are "hierarchy:controllers:path"; version 2 has no controllers.
static void find_groups(struct host_reader *host, const char *proc_root, const char *sysfs_root)
{
	struct sensor file;
	char base[SENSOR_PATH_BYTES], text[4096];
	sensor_init(&file);
	if (!sensor_open(&file, "%s/self/cgroup", proc_root) || sensor_read(&file, text, sizeof text) < 0)
		goto out;
	for (char *line = text, *next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*controllers++ = 0;
		*path++ = 0;
		if (strcmp(path, "/") == 0)
			*path = 0;
		if (*controllers == 0) {
			snprintf(base, sizeof base, "%s/fs/cgroup", sysfs_root);
			open_groups(host, base, path, true);
		} else if (strcmp(controllers, "memory") == 0) {
			snprintf(base, sizeof base, "%s/fs/cgroup/memory", sysfs_root);
			open_groups(host, base, path, false);
		}
	}
out:
	sensor_finish(&file);
}

enum status host_reader_create(struct host_reader **out, const char *proc_root, const char *sysfs_root,
			       struct error *error)
{
	struct host_reader *host = calloc(1, sizeof *host);
	if (!host)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read processor and memory use");
	sensor_init(&host->stat);
	sensor_init(&host->meminfo);
	for (int i = 0; i < GROUP_LEVELS; i++) {
		sensor_init(&host->groups[i].limit);
		sensor_init(&host->groups[i].usage);
		sensor_init(&host->groups[i].stat);
	}
	sensor_open(&host->stat, "%s/stat", proc_root);
	sensor_open(&host->meminfo, "%s/meminfo", proc_root);
	find_groups(host, proc_root, sysfs_root);
	*out = host;
	return STATUS_OK;
}

void host_reader_destroy(struct host_reader **host)
{
	if (!*host)
		return;
	sensor_finish(&(*host)->stat);
	sensor_finish(&(*host)->meminfo);
	for (int i = 0; i < GROUP_LEVELS; i++) {
		sensor_finish(&(*host)->groups[i].limit);
		sensor_finish(&(*host)->groups[i].usage);
		sensor_finish(&(*host)->groups[i].stat);
	}
	free(*host);
	*host = NULL;
}

// The first line is "cpu user nice system idle iowait irq softirq steal guest guest_nice"; guests are in user and nice.
// Only that line is read: the rest, a line for each processor and all interrupts, can be long.
static void read_cpu(struct host_reader *host, struct host_sample *sample)
{
	unsigned long long ticks[8] = {0};
	char line[STAT_BYTES];
	if (!sensor_head(&host->stat, line, sizeof line))
		return;
	int fields = sscanf(line, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &ticks[0], &ticks[1], &ticks[2],
			    &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
	if (fields < 4)
		return;
	uint64_t total = 0, idle = ticks[3] + ticks[4];
	for (int i = 0; i < 8; i++)
		total += ticks[i];
	uint64_t busy = total - idle;
	if (host->started && total > host->total) {
		// iowait may go back, and busy with it; the share stays within its bounds.
		double grown = busy > host->busy ? (double)(busy - host->busy) : 0;
		double percent = 100 * grown / (double)(total - host->total);
		sample->cpu_percent = percent > 100 ? 100 : percent;
		sample->cpu_known = true;
	}
	host->started = true;
	host->busy = busy;
	host->total = total;
}

// The value behind `key` at the start of a line ("MemTotal:  123 kB", "inactive_file 123").
static bool keyed(const char *text, const char *key, int64_t *value)
{
	size_t length = strlen(key);
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, length) != 0 || (line[length] != ' ' && line[length] != ':'))
			continue;
		const char *digits = line + length + strspn(line + length, ": \t");
		char *end;
		long long parsed = strtoll(digits, &end, 10);
		if (end == digits || parsed < 0)
			return false;
		*value = parsed;
		return true;
	}
	return false;
}

static int64_t kilobytes(const char *text, const char *key)
{
	int64_t value;
	return keyed(text, key, &value) && value <= INT64_MAX / 1024 ? value * 1024 : -1;
}

static void read_memory(struct host_reader *host, struct host_sample *sample)
{
	char text[MEMINFO_BYTES];
	if (sensor_read(&host->meminfo, text, sizeof text) < 0)
		return;
	sample->memory_total = kilobytes(text, "MemTotal");
	sample->memory_available = kilobytes(text, "MemAvailable");
	sample->swap_total = kilobytes(text, "SwapTotal");
	int64_t swap_free = kilobytes(text, "SwapFree");
	if (swap_free >= 0 && swap_free <= sample->swap_total)
		sample->swap_used = sample->swap_total - swap_free;
	if (sample->memory_available > sample->memory_total)
		sample->memory_available = -1;
}

static void apply_group(struct host_reader *host, struct group *group, int64_t machine_bytes,
			struct host_sample *sample)
{
	int64_t limit, usage, cached;
	if (!sensor_integer(&group->limit, &limit) || limit <= 0 || limit >= machine_bytes)
		return; // "max", or a number past all memory
	if (limit < sample->memory_total)
		sample->memory_total = limit;
	if (!sensor_integer(&group->usage, &usage) || usage < 0)
		return;
	const bool told = sensor_read(&group->stat, host->text, sizeof host->text) >= 0;
	for (int i = 0; i < 2 && told; i++)
		if (keyed(host->text, group->cached[i], &cached))
			usage = cached < usage ? usage - cached : 0;
	int64_t available = usage < limit ? limit - usage : 0;
	if (sample->memory_available > available)
		sample->memory_available = available;
}

void host_reader_read(struct host_reader *host, struct host_sample *sample)
{
	*sample = (struct host_sample){.memory_total = -1, .memory_available = -1, .swap_total = -1, .swap_used = -1};
	read_cpu(host, sample);
	read_memory(host, sample);
	int64_t machine_bytes = sample->memory_total;
	for (int i = 0; i < host->group_count; i++)
		apply_group(host, &host->groups[i], machine_bytes, sample);
}
