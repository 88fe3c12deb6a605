/* Tells, from what the system reports, whether a worker that does not answer hangs or is delayed by something
 * temporary. It hangs if the process is stopped, if its first thread (which answers) sleeps while no thread is delayed,
 * or if its first thread computes something else. Time in the kernel does not count as computing: one system call may
 * search, clear or pin gigabytes of memory. A worker that calls the system in a loop looks the same, and has that
 * excuse until excuses end (tenants_watch.c). Thread: any. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vitals {
	char state;     // of the first thread, as in proc(5); 0: not known
	char others;    // D or R if another thread is in that state, D before R; else 0
	int64_t cpu_ms; // that the first thread has computed since it began, to the system's tick (10 ms)
	int64_t all_cpu_ms;
	int64_t system_ms, all_system_ms; // of these, inside system calls
};

// From /proc. False, with nothing known: there is no such process, or it is not to be looked at.
bool vitals_read(struct vitals *vitals, pid_t pid);
// Why one that has not answered for `ms`, since `before` was read, may do so yet, in words; NULL: there is no reason.
const char *vitals_excuse(const struct vitals *before, const struct vitals *now, int64_t ms);
