/* Starting a worker's process: this very binary, with an environment from a list (environment.h), and for a worker that
 * stays in namespaces of its own.
 *
 * A namespace of process ids has to be there when a process is made, so it is made here, with clone, and with it those
 * of mounts, messages and network. Root makes them as it is; anybody else with a user namespace, in which the worker
 * keeps the one capability by which it leaves the rest (CAP_SYS_ADMIN, over nothing but these namespaces), until its
 * sandbox drops that, too. Whether this system allows it is tried once: the child of the trial mounts /proc anew, since
 * a driver that looks for itself in another's /proc finds somebody else. Where it is refused the worker is made without
 * them, and is told why.
 *
 * The worker is process 1 of its namespace: no signal reaches it but SIGKILL, SIGSTOP, and those of its own faults.
 * Thread: any one, one at a time. */
#pragma once
#include "common/base/status.h"

#include <sys/types.h>

enum { SPAWN_GIVEN = 5 };

struct spawn {
	const char *program;    // NULL: this one
	int errors;             // its standard error
	int given[SPAWN_GIVEN]; // descriptors 3 and up; -1: it does not get this one
	bool alone;             // in namespaces of its own
};

// 0, or an errno value. A binary that cannot be run shows as a process that ends with SPAWN_NOT_RUN.
enum { SPAWN_NOT_RUN = 127 };
int spawn_worker(const struct spawn *spawn, pid_t *pid);
