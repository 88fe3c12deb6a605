/* See spawn.h. What runs between clone and execve shares no memory with this process, but may come in the middle of
 * anything that its other threads do: only what a signal handler may do is done there. */
#include "engine/node/workers/spawn.h"

#include "engine/node/workers/environment.h"
#include "engine/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NR_CLOSE_RANGE = 436, MOST_DESCRIPTORS = 65536 };

static pid_t clone_process(unsigned long flags)
{
	return (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
}

// ---- what this system allows ----

static const unsigned long own = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET;

static void try_mounts(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("proc", "/proc", "proc", 0, NULL))
		_exit(errno);
	_exit(0);
}

// 0, or why not (an errno value).
static int try_namespaces(unsigned long flags)
{
	int wait_status = 0;
	const pid_t pid = clone_process(flags);
	if (!pid)
		try_mounts();
	if (pid < 0)
		return errno;
	while (waitpid(pid, &wait_status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : EPERM;
}

static unsigned long allowed_namespaces(int *refused)
{
	static bool is_known;
	static unsigned long allowed;
	static int reason;
	if (!is_known) {
		const unsigned long ways[] = {own, own | CLONE_NEWUSER};
		for (size_t i = geteuid() ? 1 : 0; i < sizeof(ways) / sizeof(ways[0]) && !allowed; i++) {
			reason = try_namespaces(ways[i]);
			allowed = reason ? 0 : ways[i];
		}
		is_known = reason != EAGAIN && reason != ENOMEM && reason != ENOSPC; // that may pass
	}
	*refused = reason;
	return allowed;
}

// ---- the child ----

struct plan {
	const struct spawn *spawn;
	unsigned long flags;
	char **arguments, **environment;
};

// The new user namespace's capabilities are lost with execve, unless they are ambient.
static bool keep_capability(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};
	const uint32_t admin = 1u << CAP_SYS_ADMIN;
	sets[0] = (struct __user_cap_data_struct){.effective = admin, .permitted = admin, .inheritable = admin};
	return !syscall(SYS_capset, &header, sets) && !prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0);
}

static bool give_descriptors(const struct spawn *spawn)
{
	int last = WORKER_SOCKET;
	int in = open("/dev/null", O_RDONLY), out = open("/dev/null", O_WRONLY);
	if (in < 0 || out < 0 || dup2(spawn->errors, STDERR_FILENO) < 0 || dup2(in, STDIN_FILENO) < 0 ||
	    dup2(out, STDOUT_FILENO) < 0)
		return false;
	for (int i = 0; i < SPAWN_GIVEN; i++)
		if (spawn->given[i] >= 0) {
			last = WORKER_SOCKET + i;
			if (dup2(spawn->given[i], last) < 0)
				return false;
		}
	// The gap between is the node's, and closes on exec.
	if (syscall(NR_CLOSE_RANGE, last + 1, ~0u, 0))
		for (int fd = last + 1; fd < MOST_DESCRIPTORS; fd++)
			close(fd);
	return true;
}

__attribute__((noreturn, no_sanitize("thread"))) static void become_worker(const struct plan *plan)
{
	sigset_t none;
	const struct sigaction fallback = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN};
	for (int signal_number = 1; signal_number < NSIG; signal_number++)
		sigaction(signal_number, &fallback, NULL);
	sigaction(SIGUSR1, &ignored, NULL); // Slurm signals every process of a job; only the node knows what to do
	sigemptyset(&none);
	// A group of its own: a Ctrl-C at the terminal is the node's business, not a crash of its workers.
	if (!setpgid(0, 0) && give_descriptors(plan->spawn) && (!(plan->flags & CLONE_NEWUSER) || keep_capability()) &&
	    !sigprocmask(SIG_SETMASK, &none, NULL))
		execve(plan->spawn->program ? plan->spawn->program : "/proc/self/exe", plan->arguments,
		       plan->environment);
	static const char words[] = "exogpu: the worker's program cannot be run\n";
	const ssize_t wrote = write(STDERR_FILENO, words, sizeof(words) - 1);
	_exit(wrote > 0 ? SPAWN_NOT_RUN : SPAWN_NOT_RUN);
}

int spawn_worker(const struct spawn *spawn, pid_t *pid)
{
	extern char **environ;
	char parent[16], flags[24], reason[16], user[16], group[16];
	char *arguments[] = {"exogpu", "worker", "--parent", parent,    "--namespaces", flags, "--refused",
			     reason,   "--user", user,       "--group", group,          NULL};
	int refused = 0;
	struct plan plan = {.spawn = spawn, .arguments = arguments, .environment = environment_make(environ)};
	sigset_t all, before;
	if (!plan.environment)
		return ENOMEM;
	plan.flags = spawn->alone ? allowed_namespaces(&refused) : 0;
	snprintf(parent, sizeof(parent), "%d", (int)getpid());
	snprintf(user, sizeof(user), "%u", geteuid());
	snprintf(group, sizeof(group), "%u", getegid());
	snprintf(reason, sizeof(reason), "%d", refused);
	snprintf(flags, sizeof(flags), "%lu", plan.flags);
	// No handler of this process runs in the child.
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	*pid = clone_process(plan.flags);
	if (*pid < 0 && plan.flags) { // too many of them just now
		snprintf(reason, sizeof(reason), "%d", errno);
		snprintf(flags, sizeof(flags), "0");
		plan.flags = 0;
		*pid = clone_process(0);
	}
	if (!*pid)
		become_worker(&plan);
	const int failure = *pid < 0 ? errno : 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	free(plan.environment);
	if (failure)
		*pid = 0;
	return failure;
}
