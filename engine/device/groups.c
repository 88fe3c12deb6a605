/* See groups.h. Free memory is the limit less what is used. Cached files do not count as used, even those that were
 * read more than once (a model that is being loaded), because the kernel drops them before it runs short. */
#include "engine/device/groups.h"

#include "engine/device/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024, TEXT_BYTES = 8192 };

// The files of one version; `folder` is a group.
struct version {
	const char *mount, *controller; // as in /proc/self/cgroup; "" for version 2
	const char *limit, *used, *cached[2];
};

static const struct version memory_versions[] = {
	{"/sys/fs/cgroup", "", "memory.max", "memory.current", {"inactive_file", "active_file"}},
	{"/sys/fs/cgroup/unified", "", "memory.max", "memory.current", {"inactive_file", "active_file"}},
	{"/sys/fs/cgroup/memory",
	 "memory",
	 "memory.limit_in_bytes",
	 "memory.usage_in_bytes",
	 {"total_inactive_file", "total_active_file"}},
};
static const struct version cpu_versions[] = {
	{"/sys/fs/cgroup", "", "cpu.max", NULL, {NULL}},
	{"/sys/fs/cgroup/unified", "", "cpu.max", NULL, {NULL}},
	{"/sys/fs/cgroup/cpu", "cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us", {NULL}},
};

static bool read_text(const char *folder, const char *file, char text[TEXT_BYTES])
{
	char path[PATH_BYTES];
	return (size_t)snprintf(path, sizeof(path), "%s/%s", folder, file) < sizeof(path) &&
	       host_read_file(path, text, TEXT_BYTES);
}

// Read the number at the beginning of a file; *rest is the text behind it. -1 if there is no number ("max").
static int64_t read_number(const char *folder, const char *file, char text[TEXT_BYTES], char **rest)
{
	if (!read_text(folder, file, text))
		return -1;
	long long number = strtoll(text, rest, 10);
	return *rest == text ? -1 : (int64_t)number;
}

static int64_t read_cached(const char *folder, const char *key, char text[TEXT_BYTES])
{
	size_t length = strlen(key);
	if (!read_text(folder, "memory.stat", text))
		return 0;
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, length) && line[length] == ' ') {
			long long bytes = strtoll(line + length, NULL, 10);
			return bytes > 0 ? bytes : 0;
		}
	}
	return 0;
}

static void memory_of(struct group_limits *limits, const struct version *version, const char *folder, char *text)
{
	char *rest;
	int64_t most = read_number(folder, version->limit, text, &rest);
	if (most <= 0)
		return;
	int64_t used = read_number(folder, version->used, text, &rest);
	for (int i = 0; i < 2; i++) {
		int64_t cached = read_cached(folder, version->cached[i], text);
		used = used > cached ? used - cached : 0;
	}
	int64_t room = used < most ? most - used : 0;
	limits->memory_bytes = most < limits->memory_bytes ? most : limits->memory_bytes;
	limits->free_bytes = room < limits->free_bytes ? room : limits->free_bytes;
}

static void cpu_of(struct group_limits *limits, const struct version *version, const char *folder, char *text)
{
	char *rest;
	int64_t quota = read_number(folder, version->limit, text, &rest); // version 2 has the period behind it
	if (quota <= 0)
		return;
	int64_t period = version->used ? read_number(folder, version->used, text, &rest) : strtoll(rest, NULL, 10);
	int64_t threads = period > 0 ? quota / period + (quota % period > 0) : INT64_MAX;
	limits->threads = threads < limits->threads ? threads : limits->threads;
}

// Whether `controllers`, a list with commas of `length`, names this one; version 2 has an empty list.
static bool names(const char *controllers, size_t length, const char *controller)
{
	size_t wanted = strlen(controller);
	if (!wanted)
		return !length;
	for (const char *at = controllers, *end = controllers + length; at < end;) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		size_t word = (size_t)((comma ? comma : end) - at);
		if (word == wanted && !memcmp(at, controller, word))
			return true;
		at += word + 1;
	}
	return false;
}

// The process's group of this version: "/a/b"; "" if it is not told.
static void own_group(const char *groups, const struct version *version, char group[PATH_BYTES])
{
	group[0] = 0;
	for (const char *line = groups; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *controllers = line + strcspn(line, ":\n");
		if (*controllers != ':')
			continue;
		controllers++;
		size_t length = strcspn(controllers, ":\n");
		if (controllers[length] != ':' || !names(controllers, length, version->controller))
			continue;
		const char *path = controllers + length + 1;
		snprintf(group, PATH_BYTES, "%.*s", (int)strcspn(path, "\n"), path);
	}
}

static void each_group(struct group_limits *limits, const struct version *version, const char *root,
		       void (*read)(struct group_limits *, const struct version *, const char *folder, char *text))
{
	char group[PATH_BYTES], folder[PATH_BYTES], text[TEXT_BYTES] = "";
	snprintf(folder, sizeof(folder), "%s/proc/self/cgroup", root);
	host_read_file(folder, text, sizeof(text));
	own_group(text, version, group);
	for (;;) {
		if ((size_t)snprintf(folder, sizeof(folder), "%s%s%s", root, version->mount, group) < sizeof(folder))
			read(limits, version, folder, text);
		char *last = strrchr(group, '/');
		if (!last)
			return;
		*last = 0;
	}
}

void group_limits_read(struct group_limits *limits, const char *root)
{
	*limits = (struct group_limits){INT64_MAX, INT64_MAX, INT64_MAX};
	for (size_t i = 0; i < sizeof(memory_versions) / sizeof(memory_versions[0]); i++)
		each_group(limits, &memory_versions[i], root, memory_of);
	for (size_t i = 0; i < sizeof(cpu_versions) / sizeof(cpu_versions[0]); i++)
		each_group(limits, &cpu_versions[i], root, cpu_of);
}
