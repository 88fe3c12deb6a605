/* The sandbox that a worker enters before it touches a driver: a worker of a session or a model instance, a spare, and
 * one that answers a single call of the node (list, verify, measure, compile). One that compiles a session's source
 * enters it once its compiler is loaded (source.h).
 *
 * A tenant's kernels run on the device, but drivers are large, a software device compiles kernels to code of this
 * process, and the process reads model files. So its rights are limited first, by every means that the kernel offers:
 *
 *   no new privileges, no core files, few descriptors   prctl, setrlimit
 *   first to go when the machine is short of memory     /proc/self/oom_score_adj
 *   namespaces: an empty network, no shared memory or   unshare; process ids by the node, with clone
 *     messages of others, no processes, a root of its   (engine/node/workers/spawn.c), and the root in files.c
 *     own with what reach.h lists, read-only
 *   a user of its own, where the node is root; those    setresuid (user.c)
 *     that fill the cache of compiled kernels share one
 *   no capabilities                                     capset
 *   files: libraries and device nodes, no writing       Landlock (landlock.c)
 *   system calls: a list, by back end                   seccomp (seccomp.c)
 *
 * NVIDIA's library names its threads by opening /proc/self/task/ID/comm, and cuInit fails where that is refused. So
 * these files are writable, and the process stays dumpable (PR_SET_DUMPABLE), because the files belong to root
 * otherwise.
 *
 * A step that is not possible is reported with its reason and is no error: the node shows it. Some steps apply to the
 * calling thread only, so the sandbox is entered before the driver's thread and the driver. Thread: the process's only
 * one. */
#pragma once
#include "common/base/status.h"
#include "engine/device/info.h"

#include <sys/types.h>

enum { SANDBOX_ITEMS = 24, SANDBOX_TEXT_BYTES = 200 };

struct sandbox {
	unsigned applied_count, missing_count;
	char applied[SANDBOX_ITEMS][64], missing[SANDBOX_ITEMS][SANDBOX_TEXT_BYTES];
	// The supervisor's end of the filter of system calls, for the node (engine/node/workers/refusals.h); -1: none.
	// Its holder can let calls through, so the worker closes it once it has been sent.
	int listener;
	bool confined; // both Landlock and seccomp hold: a tenant's code may run in this process
};

struct sandbox_params {
	enum backend_kind backend;
	const char *cache_directory; // may be NULL; stays readable
	bool fills_cache;            // and writable
	bool narrow;                 // reaches no files but those below `only`, which may be NULL
	const char *only;
	// From the command line, as the node has done it: the namespaces (CLONE_NEW...) in which this process was
	// created, and why it did not get one of process ids (an errno value).
	unsigned long namespaces;
	int refused;
	// The node's, for a user namespace that this process was made in.
	uid_t user;
	gid_t group;
};

void sandbox_apply(struct sandbox *sandbox, const struct sandbox_params *params);

// For sandbox.c. Returns 0 or an errno value.
int landlock_apply(const struct sandbox_params *params, bool names_threads);
struct seccomp_params {
	bool cuda;          // its library needs calls that others do not
	bool fills_cache;   // it writes files
	bool unseen_driver; // uses the list of refused calls (calls_list.h)
};
// `listener`: the supervisor's end of the filter; -1: there is none.
int seccomp_apply(const struct seccomp_params *params, int *listener);
// A root of its own, in this process's mount namespace. `own_processes`: it has a namespace of process ids.
int files_enter(const struct sandbox_params *params, bool own_processes);
// The process's number where the node is: /proc says it until there is a new one.
pid_t user_outer_pid(void);
// `cache`: the folder that it fills, whose owner it becomes if user_give has given that away; NULL: it fills none.
int user_become(pid_t outer_pid, const char *cache);
