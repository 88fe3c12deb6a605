/* The limits that control groups put on this process: of memory and of processor time, version 2 and 1.
 *
 * The groups are those of /proc/self/cgroup and all above them, as far as they can be seen: inside a container often
 * only its own, at the top. Thread: any. */
#pragma once
#include <stdint.h>

struct group_limits {
	int64_t memory_bytes; // the least limit; INT64_MAX: none
	int64_t free_bytes;   // the least room that any of the groups has left; INT64_MAX: no limit
	int64_t threads;      // that get a processor to themselves, rounded up; INT64_MAX: no limit
};

// `root` stands before /proc and /sys: "" but in tests.
void group_limits_read(struct group_limits *limits, const char *root);
