/* The attacks of a worker that somebody has taken over: what the sandbox is to prevent, each tried from inside. See
 * fault.h. A release build has none of this.
 *
 * EXOGPU_ESCAPE tells at what: words NAME=VALUE, separated by commas, of a machine that the test has prepared:
 * data=FOLDER (with admin.token in it), node=PID, victim=PID, key=NUMBER (of System V memory), path=FOLDER/SOCKET and
 * abstract=NAME (of sockets that take datagrams). */
#include "engine/worker/fault.h"

#ifdef NDEBUG

void fault_escape(enum backend_kind backend, const char *cache_directory)
{
	(void)backend, (void)cache_directory;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void tried(const char *what, long result)
{
	fprintf(stderr, "escape: %s: %s\n", what, result < 0 ? strerror(errno) : "allowed");
}

// The value of `name` in EXOGPU_ESCAPE; "" if it is not there.
static const char *target(const char *name, char *value, size_t size)
{
	const char *list = getenv("EXOGPU_ESCAPE");
	const size_t length = strlen(name);
	value[0] = 0;
	while (list && *list) {
		size_t item = strcspn(list, ",");
		if (item > length && !strncmp(list, name, length) && list[length] == '=')
			snprintf(value, size, "%.*s", (int)(item - length - 1), list + length + 1);
		list += item + (list[item] == ',');
	}
	return value;
}

// ---- files ----

static void try_open(const char *what, const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);
	tried(what, fd);
	if (fd >= 0)
		close(fd);
}

static void try_files(void)
{
	static const struct {
		const char *path;
		int flags;
	} files[] = {
		{"/etc/shadow", O_RDONLY},
		{"/etc/passwd", O_RDONLY},
		{"/root", O_RDONLY},
		{"/home", O_RDONLY},
		{"/exogpu-escape", O_CREAT | O_WRONLY},
		{"/tmp/exogpu-escape", O_CREAT | O_WRONLY},
		{"/var/tmp/exogpu-escape", O_CREAT | O_WRONLY},
		{"/run/exogpu-escape", O_CREAT | O_WRONLY},
		{"/dev/exogpu-escape", O_CREAT | O_WRONLY},
		{"/dev/shm/exogpu-escape", O_CREAT | O_WRONLY},
		{"/dev/mqueue", O_RDONLY},
		{"/usr/lib/exogpu-escape", O_CREAT | O_WRONLY},
		{"exogpu-escape", O_CREAT | O_WRONLY},
		{"/tmp", O_TMPFILE | O_RDWR},
		{"/dev/mem", O_RDONLY},
		{"/dev/kmsg", O_RDONLY},
		{"/dev/tty", O_RDWR},
		{"/proc/self/oom_score_adj", O_WRONLY},
		{"/proc/self/mem", O_WRONLY},
		{"/proc/self/comm", O_WRONLY | O_TRUNC},
		{"/proc/thread-self/comm", O_WRONLY | O_TRUNC},
		{"/proc/sysrq-trigger", O_WRONLY},
		{"/proc/sys/kernel/core_pattern", O_WRONLY},
		{"/proc/kcore", O_RDONLY},
		{"/sys/kernel/mm/ksm/run", O_WRONLY},
		{"/etc/ld.so.cache", O_RDONLY},
	};
	char what[96];
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(what, sizeof(what), "%s %s", files[i].flags == O_RDONLY ? "read" : "write", files[i].path);
		try_open(what, files[i].path, files[i].flags);
	}
	// NVIDIA's library names its threads in this way.
	snprintf(what, sizeof(what), "/proc/self/task/%d/comm", (int)gettid());
	try_open("name a thread", what, O_WRONLY | O_CREAT | O_TRUNC);
	tried("make a folder of control groups", mkdir("/sys/fs/cgroup/exogpu-escape", 0700));
}

// Try to change `kernel`, a file that exists there, and one that does not.
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
		try_open(ways[i].what, path, ways[i].flags);
	}
	snprintf(path, sizeof(path), "%s/kernel", directory);
	tried("take from the cache", unlink(path));
	tried("change the mode of the cache", chmod(path, 0777));
}

static void try_data(void)
{
	static const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	char folder[256], token[300], other[300];
	struct stat info;
	if (!target("data", folder, sizeof(folder))[0])
		return;
	snprintf(token, sizeof(token), "%s/admin.token", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	try_open("read the admin token", token, O_RDONLY);
	try_open("write the admin token", token, O_WRONLY);
	try_open("list the data directory", folder, O_RDONLY | O_DIRECTORY);
	try_open("add to the data directory", other, O_CREAT | O_WRONLY);
	tried("see the admin token", stat(token, &info));
	tried("change the mode of the data directory", chmod(folder, 0777));
	tried("change the mode of the admin token", chmod(token, 0666));
	tried("the same by fchmodat", fchmodat(AT_FDCWD, token, 0666, 0));
	tried("the same by fchmodat2", syscall(452, AT_FDCWD, token, 0666, 0));
	int path = open(token, O_PATH | O_CLOEXEC);
	char link_path[64];
	snprintf(link_path, sizeof(link_path), "/proc/self/fd/%d", path);
	tried("the same by a path descriptor", chmod(link_path, 0666));
	tried("change the owner of the admin token", chown(token, 65534, 65534));
	tried("the same by lchown", lchown(token, 65534, 65534));
	tried("change the times of the data directory", utimensat(AT_FDCWD, folder, times, 0));
	tried("set an attribute of the data directory", syscall(SYS_setxattr, folder, "user.escape", "1", 1, 0));
	tried("set an attribute of the admin token", syscall(SYS_lsetxattr, token, "user.escape", "1", 1, 0));
	tried("remove an attribute", syscall(SYS_removexattr, token, "user.here"));
	tried("link the admin token", linkat(AT_FDCWD, token, AT_FDCWD, other, 0));
	tried("point to it", symlinkat(token, AT_FDCWD, other));
	tried("rename the admin token", renameat(AT_FDCWD, token, AT_FDCWD, other));
	tried("remove the admin token", unlink(token));
	tried("cut the admin token", truncate(token, 0));
	tried("make a folder there", mkdir(other, 0700));
	tried("make a pipe there", mknod(other, S_IFIFO | 0600, 0));
	tried("make a device there", mknod(other, S_IFCHR | 0600, (1 << 8) | 1));
	const long watch = syscall(SYS_inotify_init1, 0);
	tried("watch files", watch);
	tried("watch the data directory", syscall(SYS_inotify_add_watch, watch, folder, 0xfff));
	tried("watch all files", syscall(SYS_fanotify_init, 0, 0));
	tried("a handle of the admin token", syscall(SYS_name_to_handle_at, AT_FDCWD, token, NULL, NULL, 0));
	tried("open by a handle", syscall(SYS_open_by_handle_at, AT_FDCWD, NULL, 0));
}

// ---- other processes ----

static void try_process(const char *whom, pid_t pid)
{
	static const char *const files[] = {"mem", "environ", "maps", "fd", "root", "oom_score_adj", "status"};
	const struct sched_param least = {0};
	const uint64_t attributes[6] = {48 | ((uint64_t)SCHED_IDLE << 32)};
	const struct rlimit limit = {0};
	char what[96], path[64], byte = 0;
	struct iovec here = {&byte, 1}, there = {&byte, 1};
	cpu_set_t one;
	siginfo_t info = {.si_signo = SIGTERM, .si_code = SI_QUEUE};
	CPU_ZERO(&one);
	CPU_SET(0, &one);
#define TRY(name, call) (snprintf(what, sizeof(what), "%s: %s", whom, name), errno = 0, tried(what, call))
	TRY("kill", kill(pid, 0));
	TRY("kill its group", kill(-pid, 0));
	TRY("tkill", syscall(SYS_tkill, pid, 0));
	TRY("tgkill", syscall(SYS_tgkill, pid, pid, 0));
	TRY("queue a signal", syscall(SYS_rt_sigqueueinfo, pid, SIGTERM, &info));
	TRY("pidfd_open", syscall(434, pid, 0));
	TRY("pidfd_send_signal", syscall(424, 0, SIGTERM, NULL, 0));
	TRY("pidfd_getfd", syscall(438, 0, 0, 0));
	TRY("ptrace attach", ptrace(PTRACE_ATTACH, pid, NULL, NULL));
	TRY("ptrace seize", ptrace(PTRACE_SEIZE, pid, NULL, NULL));
	TRY("read its memory", process_vm_readv(pid, &here, 1, &there, 1, 0));
	TRY("write its memory", process_vm_writev(pid, &here, 1, &there, 1, 0));
	TRY("process_madvise", syscall(440, 0, &here, 1, 4, 0));
	TRY("move its pages", syscall(SYS_move_pages, pid, 0, NULL, NULL, NULL, 0));
	TRY("migrate its pages", syscall(SYS_migrate_pages, pid, 0, NULL, NULL));
	TRY("compare with it", syscall(SYS_kcmp, pid, getpid(), 0, 0, 0));
	TRY("sched_setscheduler", sched_setscheduler(pid, SCHED_IDLE, &least));
	TRY("sched_setparam", sched_setparam(pid, &least));
	TRY("sched_setattr", syscall(SYS_sched_setattr, pid, attributes, 0));
	TRY("sched_setaffinity", sched_setaffinity(pid, sizeof(one), &one));
	TRY("setpriority", setpriority(PRIO_PROCESS, (id_t)pid, 19));
	TRY("ioprio_set", syscall(SYS_ioprio_set, 1, pid, 3 << 13));
	TRY("prlimit", syscall(SYS_prlimit64, pid, RLIMIT_NOFILE, &limit, NULL));
	TRY("setpgid", setpgid(pid, 0));
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
		snprintf(what, sizeof(what), "%s: open its %s", whom, files[i]);
		try_open(what, path, strcmp(files[i], "oom_score_adj") != 0 ? O_RDONLY : O_WRONLY);
	}
#undef TRY
}

static void try_scheduling(void)
{
	const struct sched_param most = {.sched_priority = 1};
	tried("be first in line", sched_setscheduler(0, SCHED_FIFO, &most));
	tried("be first in line as a thread", syscall(SYS_sched_setscheduler, getpid(), SCHED_RR, &most));
	tried("a better place in line", setpriority(PRIO_PROCESS, 0, -20));
	tried("the places of all of a user", setpriority(PRIO_USER, 0, 19));
	tried("the places of a group", setpriority(PRIO_PGRP, 0, 19));
}

static void try_shared(void)
{
	char key[32];
	const long number = strtol(target("key", key, sizeof(key)), NULL, 0);
	const long memory = syscall(SYS_shmget, number, 0, 0);
	tried("find System V memory", memory);
	tried("make System V memory", syscall(SYS_shmget, 0, 4096, 01600));
	tried("attach System V memory", syscall(SYS_shmat, 0, NULL, 0) == -1 ? -1 : 0);
	tried("list System V memory", syscall(SYS_shmctl, 0, 14 /* SHM_INFO */, &(char[256]){0}));
	tried("semaphores", syscall(SYS_semget, number, 1, 01600));
	tried("message queues", syscall(SYS_msgget, number, 01600));
	tried("POSIX message queues", syscall(SYS_mq_open, "escape", O_CREAT | O_RDWR, 0600, NULL));
	tried("remove a POSIX message queue", syscall(SYS_mq_unlink, "victim"));
}

// ---- sockets ----

static void try_socket(const char *what, int family, int type)
{
	int fd = socket(family, type | SOCK_CLOEXEC, 0);
	tried(what, fd);
	if (fd >= 0)
		close(fd);
}

static void try_sockets(void)
{
	char path[200], name[100];
	int pair[2] = {-1, -1}, stream = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un peers[2] = {{.sun_family = AF_UNIX}, {.sun_family = AF_UNIX}};
	snprintf(peers[0].sun_path, sizeof(peers[0].sun_path), "%.100s", target("path", path, sizeof(path)));
	snprintf(peers[1].sun_path + 1, sizeof(peers[1].sun_path) - 1, "%.90s", target("abstract", name, sizeof(name)));
	const socklen_t lengths[2] = {sizeof(peers[0]),
				      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))};
	static const char *const kinds[] = {"a socket in a folder", "an abstract socket"};
	tried("socket AF_UNIX", stream);
	try_socket("socket AF_UNIX of datagrams", AF_UNIX, SOCK_DGRAM);
	try_socket("socket AF_INET", AF_INET, SOCK_STREAM);
	try_socket("socket AF_INET6", AF_INET6, SOCK_DGRAM);
	try_socket("socket AF_NETLINK", AF_NETLINK, SOCK_RAW);
	try_socket("socket AF_PACKET", AF_PACKET, SOCK_RAW);
	try_socket("socket AF_ALG", 38, SOCK_SEQPACKET);
	try_socket("socket AF_VSOCK", 40, SOCK_STREAM);
	tried("a pair of sockets", socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair));
	for (int i = 0; i < 2; i++) {
		struct msghdr message = {.msg_name = &peers[i], .msg_namelen = lengths[i]};
		char what[96];
		snprintf(what, sizeof(what), "sendto %s", kinds[i]);
		tried(what, sendto(pair[0], "escape", 6, MSG_DONTWAIT, (struct sockaddr *)&peers[i], lengths[i]));
		snprintf(what, sizeof(what), "sendmsg %s", kinds[i]);
		tried(what, sendmsg(pair[0], &message, MSG_DONTWAIT));
		snprintf(what, sizeof(what), "connect %s", kinds[i]);
		tried(what, connect(stream, (struct sockaddr *)&peers[i], lengths[i]));
	}
}

// ---- programs, namespaces, the kernel ----

static void try_programs(void)
{
	static const uint8_t script[] = "#!/bin/true\n";
	char *const arguments[] = {(char[]){"true"}, NULL};
	tried("execve", execve("/bin/true", arguments, arguments + 1));
	const int memory = (int)syscall(SYS_memfd_create, "escape", 0);
	if (memory >= 0 && write(memory, script, sizeof(script) - 1) > 0)
		tried("run a file of memory",
		      syscall(SYS_execveat, memory, "", arguments, arguments + 1, AT_EMPTY_PATH));
	const pid_t child = fork();
	if (!child)
		_exit(0);
	tried("fork", child);
	if (child > 0)
		waitpid(child, NULL, 0);
	tried("clone3", syscall(435, NULL, 0));
	tried("clone into a namespace of users", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
	tried("clone a thread into namespaces",
	      syscall(SYS_clone, CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWNS, NULL, NULL, NULL, NULL));
}

static void try_kernel(void)
{
	static const struct {
		const char *what;
		long number, arguments[3];
	} calls[] = {
		{"unshare users", SYS_unshare, {CLONE_NEWUSER}},
		{"unshare mounts", SYS_unshare, {CLONE_NEWNS}},
		{"setns", SYS_setns, {2, 0}},
		{"umount", SYS_umount2, {(long)"/proc", 2}},
		{"pivot_root", SYS_pivot_root, {(long)".", (long)"."}},
		{"chroot", SYS_chroot, {(long)"/"}},
		{"open_tree", 428, {AT_FDCWD, (long)"/", 1}},
		{"fsopen", 430, {(long)"tmpfs", 0}},
		{"mount_setattr", 442, {AT_FDCWD, (long)"/", 0}},
		{"bpf", SYS_bpf, {0}},
		{"perf_event_open", SYS_perf_event_open, {0, 0, -1}},
		{"keyctl", SYS_keyctl, {0}},
		{"add_key", SYS_add_key, {(long)"user", (long)"escape"}},
		{"request_key", SYS_request_key, {(long)"user", (long)"escape"}},
		{"userfaultfd", SYS_userfaultfd, {0}},
		{"io_uring_setup", 425, {1, 0}},
		{"io_uring_enter", 426, {-1}},
		{"reboot", SYS_reboot, {0}},
		{"kexec_load", SYS_kexec_load, {0}},
		{"init_module", SYS_init_module, {0}},
		{"swapon", SYS_swapon, {(long)"/dev/null", 0}},
		{"sethostname", SYS_sethostname, {(long)"escape", 6}},
		{"settimeofday", SYS_settimeofday, {0}},
		{"syslog", SYS_syslog, {10}},
		{"acct", SYS_acct, {0}},
		{"quotactl", SYS_quotactl, {0}},
		{"personality", SYS_personality, {0x40000}},
		{"vhangup", SYS_vhangup, {0}},
		{"a filter with a listener", SYS_seccomp, {1, 8, 0}},
		{"let itself be looked into", SYS_prctl, {PR_SET_DUMPABLE, 1}},
		{"outlive its node", SYS_prctl, {PR_SET_PDEATHSIG, 0}},
		{"name who may trace it", SYS_prctl, {0x59616d61, -1}},
		{"move its memory map", SYS_prctl, {35, 1}},
		{"be root", SYS_setuid, {0}},
		{"be of root's group", SYS_setgid, {0}},
		{"be of all groups", SYS_setgroups, {0, 0}},
		{"take capabilities", SYS_capset, {0, 0}},
		{"type for a person", SYS_ioctl, {0, TIOCSTI, (long)"x"}},
		{"an unknown call", 480, {0}},
	};
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		tried(calls[i].what, syscall(calls[i].number, calls[i].arguments[0], calls[i].arguments[1],
					     calls[i].arguments[2], 0, 0, 0));
	const struct rlimit wide = {1 << 20, 1 << 20};
	tried("more descriptors", setrlimit(RLIMIT_NOFILE, &wide));
	tried("mount", mount("none", "/mnt", "tmpfs", 0, NULL));
}

void fault_escape(enum backend_kind backend, const char *cache_directory)
{
	char victim[32];
	if (!fault_injected("escape", backend))
		return;
	try_files();
	if (cache_directory)
		try_cache(cache_directory);
	try_data();
	if (target("node", victim, sizeof(victim))[0])
		try_process("the node", (pid_t)strtol(victim, NULL, 10));
	if (target("victim", victim, sizeof(victim))[0])
		try_process("the victim", (pid_t)strtol(victim, NULL, 10));
	try_scheduling();
	try_shared();
	try_sockets();
	try_programs();
	try_kernel();
	tried("kill itself", kill(getpid(), 0));
	fprintf(stderr, "escape: end\n");
}

#endif
