/* See sandbox.h. The order matters: what needs a privilege comes before privileges go, and the filter of system calls
 * is last, since it refuses much of what stands before it. */
#include "engine/worker/sandbox.h"

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

static int end_first_without_memory(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	int result = write(fd, "1000", 4) == 4 ? 0 : errno;
	close(fd);
	return result;
}

// Without a right to make one, a user namespace gives it.
static int leave_network(void)
{
	return unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET) ? errno : 0;
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
	return code((int)syscall(SYS_capset, &header, none));
}

void sandbox_apply(struct sandbox *sandbox, const char *cache_directory, bool names_threads)
{
	*sandbox = (struct sandbox){0};
	note(sandbox, "no new privileges", code(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)));
	note(sandbox, "no core files, few descriptors", limit_resources());
	note(sandbox, "first to end without memory", end_first_without_memory());
	note(sandbox, "empty network", leave_network());
	int landlock = landlock_apply(cache_directory, names_threads);
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
	int seccomp = seccomp_apply();
	note(sandbox, "system calls (seccomp)", seccomp);
	sandbox->confined = !landlock && !seccomp;
}
