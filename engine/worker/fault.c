/* See fault.h. */
#include "engine/worker/fault.h"

#ifdef NDEBUG

bool fault_injected(const char *what, enum backend_kind backend)
{
	(void)what, (void)backend;
	return false;
}

void fault_strike(const char *when, enum backend_kind backend)
{
	(void)when, (void)backend;
}

void fault_escape(enum backend_kind backend, const char *cache_directory)
{
	(void)backend, (void)cache_directory;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

bool fault_injected(const char *what, enum backend_kind backend)
{
	const char *list = getenv("EXOGPU_FAULT");
	char word[64];
	int length = snprintf(word, sizeof(word), "%s:%s", what, backend_kind_name(backend));
	while (list && *list) {
		size_t item = strcspn(list, ",");
		if (item == (size_t)length && !strncmp(list, word, item))
			return true;
		list += item + (list[item] == ',');
	}
	return false;
}

void fault_strike(const char *when, enum backend_kind backend)
{
	char what[64];
	snprintf(what, sizeof(what), "%s-crash", when);
	if (fault_injected(what, backend)) {
		fprintf(stderr, "EXOGPU_FAULT: crashing in %s of %s\n", when, backend_kind_name(backend));
		signal(SIGSEGV, SIG_DFL); // a sanitizer's handler would end it in another way
		raise(SIGSEGV);
	}
	snprintf(what, sizeof(what), "%s-hang", when);
	while (fault_injected(what, backend))
		pause();
}

static void tried(const char *what, long result)
{
	fprintf(stderr, "escape: %s: %s\n", what, result < 0 ? strerror(errno) : "allowed");
}

static void try_files(void)
{
	static const struct {
		const char *path;
		int flags;
	} files[] = {
		{"/etc/shadow", O_RDONLY},
		{"/root", O_RDONLY},
		{"/home", O_RDONLY},
		{"/tmp/exogpu-escape", O_CREAT | O_WRONLY},
		{"/dev/shm/exogpu-escape", O_CREAT | O_WRONLY},
		{"/proc/self/oom_score_adj", O_WRONLY},
		{"/proc/self/comm", O_WRONLY | O_TRUNC},
		{"/proc/thread-self/comm", O_WRONLY | O_TRUNC},
		{"/usr/lib/exogpu-escape", O_CREAT | O_WRONLY},
		{"/etc/ld.so.cache", O_RDONLY},
	};
	char what[96];
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int fd = open(files[i].path, files[i].flags | O_CLOEXEC, 0600);
		snprintf(what, sizeof(what), "%s %s", files[i].flags == O_RDONLY ? "read" : "write", files[i].path);
		tried(what, fd);
		if (fd >= 0)
			close(fd);
	}
	snprintf(what, sizeof(what), "/proc/%d/environ", (int)getppid());
	tried("read the parent's environment", open(what, O_RDONLY | O_CLOEXEC));
}

// Of `kernel`, which lies there, and of a file that does not.
static void try_cache(const char *directory)
{
	static const struct {
		const char *what, *name;
		int flags;
	} ways[] = {{"read the cache", "kernel", O_RDONLY},
		    {"change the cache", "kernel", O_WRONLY},
		    {"add to the cache", "escape", O_CREAT | O_WRONLY}};
	char path[4096];
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, ways[i].name);
		int fd = open(path, ways[i].flags | O_CLOEXEC, 0600);
		tried(ways[i].what, fd);
		if (fd >= 0)
			close(fd);
	}
	snprintf(path, sizeof(path), "%s/kernel", directory);
	tried("take from the cache", unlink(path));
}

void fault_escape(enum backend_kind backend, const char *cache_directory)
{
	if (!fault_injected("escape", backend))
		return;
	struct sockaddr_un peer = {.sun_family = AF_UNIX, .sun_path = "/run/exogpu-escape"};
	char *const arguments[] = {(char[]){"true"}, NULL};
	int unix_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	try_files();
	if (cache_directory)
		try_cache(cache_directory);
	tried("socket AF_UNIX", unix_socket);
	tried("connect AF_UNIX", connect(unix_socket, (struct sockaddr *)&peer, sizeof(peer)));
	tried("socket AF_INET", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	tried("socket AF_NETLINK", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
	tried("execve", execve("/bin/true", arguments, arguments + 1));
	pid_t child = fork();
	if (!child)
		_exit(0);
	tried("fork", child);
	if (child > 0)
		waitpid(child, NULL, 0);
	tried("clone3", syscall(435, NULL, 0));
	tried("ptrace", ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
	tried("kill the parent", kill(getppid(), 0));
	tried("kill itself", kill(getpid(), 0));
	tried("mount", mount("none", "/mnt", "tmpfs", 0, NULL));
	tried("unshare", syscall(SYS_unshare, 0x10000000));
	tried("bpf", syscall(SYS_bpf, 0, NULL, 0));
	tried("io_uring", syscall(425, 1, NULL));
	tried("userfaultfd", syscall(SYS_userfaultfd, 0));
	tried("perf_event_open", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
	tried("keyctl", syscall(SYS_keyctl, 0, 0, 0, 0, 0));
	fprintf(stderr, "escape: end\n");
}

#endif
