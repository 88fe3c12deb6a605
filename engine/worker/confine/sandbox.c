/* See sandbox.h. The order matters: steps that need privileges come before these are dropped, and the filter of system
 * calls comes last, because it refuses many of the earlier steps. */
#include "engine/worker/confine/sandbox.h"

#include "engine/worker/confine/reach.h"
#include "engine/worker/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DESCRIPTORS = 1024 };

static void note(struct sandbox *sandbox, const char *what, int number)
{
	if (number && sandbox->missing_count < SANDBOX_ITEMS)
		snprintf(sandbox->missing[sandbox->missing_count++], SANDBOX_TEXT_BYTES, "%s: %s", what,
			 strerror(number));
	else if (!number && sandbox->applied_count < SANDBOX_ITEMS)
		snprintf(sandbox->applied[sandbox->applied_count++], sizeof(sandbox->applied[0]), "%s", what);
}

static int code(int result)
{
	return result ? errno : 0;
}

// Cores: see process_leave_no_core.
static int limit_resources(void)
{
	const struct {
		__rlimit_resource_t resource;
		rlim_t most;
	} limits[] = {{RLIMIT_CORE, 1}, {RLIMIT_MSGQUEUE, 0}, {RLIMIT_NOFILE, DESCRIPTORS}};
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct rlimit now;
		if (getrlimit(limits[i].resource, &now))
			return errno;
		rlim_t most = now.rlim_max < limits[i].most ? now.rlim_max : limits[i].most;
		now = (struct rlimit){most, most};
		if (setrlimit(limits[i].resource, &now))
			return errno;
	}
	return 0;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	int result = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : errno;
	close(fd);
	return result;
}

// Map one user and one group into the user namespace: those that the process has outside.
static int map_user(uid_t user, gid_t group)
{
	char users[64], groups[64];
	snprintf(users, sizeof(users), "%u %u 1", user, user);
	snprintf(groups, sizeof(groups), "%u %u 1", group, group);
	int result = write_file("/proc/self/uid_map", users);
	if (!result)
		result = write_file("/proc/self/setgroups", "deny");
	return result ? result : write_file("/proc/self/gid_map", groups);
}

struct outside {
	uid_t user;
	gid_t group;
	pid_t pid;
};

static const struct {
	unsigned long flag;
	const char *what;
} namespaces[] = {{CLONE_NEWNET, "empty network"},
		  {CLONE_NEWIPC, "shared memory and messages of its own"},
		  {CLONE_NEWNS, "mounts of its own"}};

// Without a right to make them, a user namespace gives it. Which of them there are then.
static unsigned long leave_namespaces(struct sandbox *sandbox, const struct sandbox_params *params,
				      const struct outside *outside)
{
	unsigned long have = params->namespaces;
	int unmapped = have & CLONE_NEWUSER ? map_user(outside->user, outside->group) : 0;
	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++) {
		const unsigned long flag = namespaces[i].flag;
		int result = have & flag ? 0 : code(unshare((int)flag));
		if (result && !(have & CLONE_NEWUSER)) {
			result = code(unshare((int)(CLONE_NEWUSER | flag)));
			have |= result ? 0 : CLONE_NEWUSER;
			unmapped = result ? unmapped : map_user(outside->user, outside->group);
		}
		have |= result ? 0 : flag;
		note(sandbox, namespaces[i].what, result);
	}
	note(sandbox, "process ids of its own", have & CLONE_NEWPID ? 0 : params->refused ? params->refused : EPERM);
	if (unmapped) // without a user nothing can be made in a root of its own
		note(sandbox, "the user of its namespace", unmapped);
	return unmapped ? have & ~(unsigned long)CLONE_NEWNS : have;
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
	return code((int)syscall(SYS_capset, &header, none));
}

// Whether the worker may load a driver that was not observed at work, so that its system calls are not known.
static bool is_unseen(enum backend_kind backend, unsigned drivers)
{
	if (fault_injected("listed", backend))
		return false;
	const unsigned seen = backend == BACKEND_CUDA ? REACH_NVIDIA | REACH_OTHER : REACH_NVIDIA;
	return backend != BACKEND_CPU && drivers & ~seen;
}

void sandbox_apply(struct sandbox *sandbox, const struct sandbox_params *params)
{
	const bool names_threads = params->backend == BACKEND_CUDA;
	const bool mapped = !(params->namespaces & CLONE_NEWUSER);
	const struct outside outside = {mapped ? geteuid() : params->user, mapped ? getegid() : params->group,
					user_outer_pid()};
	const unsigned drivers = reach_drivers();
	*sandbox = (struct sandbox){.listener = -1};
	note(sandbox, "no new privileges", code(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)));
	note(sandbox, "no core files, few descriptors", limit_resources());
	note(sandbox, "first to end without memory", write_file("/proc/self/oom_score_adj", "1000"));
	const unsigned long have = leave_namespaces(sandbox, params, &outside);
	const char *filled = params->fills_cache ? params->cache_directory : NULL;
	if (have & CLONE_NEWNS)
		note(sandbox, "a root of its own", files_enter(params, have & CLONE_NEWPID));
	int landlock = landlock_apply(params, names_threads);
	if (!outside.user && !(have & CLONE_NEWUSER)) // another node's workers are its user's own
		note(sandbox, "a user of its own", user_become(outside.pid, filled));
	note(sandbox, "capabilities", drop_capabilities());
	// The change of credentials may have undone it; then a node that has ended since shows as the end of its
	// socket.
	note(sandbox, "ends with its node", code(prctl(PR_SET_PDEATHSIG, SIGKILL)));
	// The same change may have made this process root's own.
	if (names_threads)
		note(sandbox, "names of threads", code(prctl(PR_SET_DUMPABLE, 1)));
#ifdef NDEBUG
	else
		note(sandbox, "not to be debugged", code(prctl(PR_SET_DUMPABLE, 0)));
#endif
	note(sandbox, "files (Landlock)", landlock);
	const struct seccomp_params calls = {.cuda = params->backend == BACKEND_CUDA,
					     .fills_cache = filled != NULL,
					     .unseen_driver = is_unseen(params->backend, drivers)};
	int seccomp = seccomp_apply(&calls, &sandbox->listener);
	note(sandbox,
	     calls.unseen_driver ? "system calls (seccomp), only those that no driver needs" : "system calls (seccomp)",
	     seccomp);
	sandbox->confined = !landlock && !seccomp;
}
