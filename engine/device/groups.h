/* The limits of control groups (version 1 and 2) on this process: memory and
 * processor time. Reads the groups of /proc/self/cgroup and all their parents, as far
 * as they are visible: in a container often only its own, shown at the top. Thread:
 * any. */
#pragma once
#include <stdint.h>

struct group_limits {
	int64_t memory_bytes; // the least limit; INT64_MAX: none
	int64_t free_bytes;   // the least room that any of the groups has left; INT64_MAX: no limit
	int64_t threads;      // that get a processor to themselves, rounded up; INT64_MAX: no limit
};

// `root` stands before /proc and /sys: "" but in tests.
void group_limits_read(struct group_limits *limits, const char *root);
