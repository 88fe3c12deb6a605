/* What a session's worker gives up before it touches a driver.
 *
 * A tenant's kernels run on the device; but drivers are large, and a software device compiles kernels to code of this
 * very process. So what the process could do to the machine is bounded first, by every means that the kernel offers:
 *
 *   no new privileges, no core files, few descriptors   prctl, setrlimit
 *   first to go when the machine is short of memory     /proc/self/oom_score_adj
 *   an empty network                                    a network namespace of its own
 *   no capabilities                                     capset
 *   files: libraries and device nodes, no writing       Landlock (landlock.c)
 *   system calls: no programs, no processes, no sockets seccomp (seccomp.c)
 *     but Unix ones, no debugging, no mounts
 *
 * NVIDIA's library names its threads by opening /proc/self/task/ID/comm, and cuInit fails where that is refused. For it
 * these files can be written, and the process stays its user's own (PR_SET_DUMPABLE), without which they are root's.
 *
 * What cannot be given up is told with its reason, and is no error: the node shows it. What holds with one thread only
 * is why this comes before the driver's thread and the driver. Thread: the process's only one. */
#pragma once
#include "common/base/status.h"

enum { SANDBOX_ITEMS = 16, SANDBOX_TEXT_BYTES = 200 };

struct sandbox {
	unsigned applied_count, missing_count;
	char applied[SANDBOX_ITEMS][64], missing[SANDBOX_ITEMS][SANDBOX_TEXT_BYTES];
	bool confined; // both Landlock and seccomp hold: a tenant's code may run in this process
};

// `cache_directory` (may be NULL) stays readable. `names_threads`: the driver fails unless it can.
void sandbox_apply(struct sandbox *sandbox, const char *cache_directory, bool names_threads);

// For sandbox.c: 0, or an errno value.
int landlock_apply(const char *cache_directory, bool names_threads);
int seccomp_apply(void);
