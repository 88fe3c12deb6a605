/* Starts a worker's process: this binary, with an environment from a list (environment.h), and namespaces of its own
 * for a worker that serves more than one call.
 *
 * A namespace of process ids can only be created together with a process, so clone creates it here, with those of
 * mounts, messages and network. Root needs no more; other users need a user namespace as well, in which the worker
 * keeps the one capability that the later steps need (CAP_SYS_ADMIN, valid in these namespaces only), until its sandbox
 * drops it. Whether this system allows it is tried once: the child of the trial also mounts a new /proc, because a
 * driver that looks for itself in the old /proc finds another process. If it is refused the worker is started without
 * namespaces, and gets the reason.
 *
 * The worker is process 1 of its namespace: only SIGKILL, SIGSTOP, and the signals of its own faults reach it. Thread:
 * any, one at a time. */
#pragma once
#include "common/base/status.h"

#include <sys/types.h>

enum { SPAWN_GIVEN = 6 };

struct spawn {
	const char *program;    // NULL: this one
	int errors;             // its standard error
	int given[SPAWN_GIVEN]; // descriptors 3 and up; -1: it does not get this one
	bool alone;             // in namespaces of its own
};

// 0, or an errno value. A binary that cannot be run shows as a process that ends with SPAWN_NOT_RUN.
enum { SPAWN_NOT_RUN = 127 };
int spawn_worker(const struct spawn *spawn, pid_t *pid);
