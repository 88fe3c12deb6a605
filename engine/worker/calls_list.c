/* See calls_list.h. Sorted at first use: architectures number their calls in different orders.
 *
 * Numbers that are written out are the same on every architecture, and newer than some headers. */
#include "engine/worker/calls_list.h"

#include "engine/worker/worker.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define ALLOW(name) \
	{ \
		SYS_##name, #name, RULE_ALLOW, RULE_EVERYBODY, 0, 0, \
		{ \
			0 \
		} \
	}
#define CUDA(name) \
	{ \
		SYS_##name, #name, RULE_ALLOW, RULE_CUDA, 0, 0, \
		{ \
			0 \
		} \
	}
#define QUIET(name) \
	{ \
		SYS_##name, #name, RULE_QUIET, RULE_EVERYBODY, 0, 0, \
		{ \
			0 \
		} \
	}
#define GONE(name) \
	{ \
		SYS_##name, #name, RULE_GONE, RULE_EVERYBODY, 0, 0, \
		{ \
			0 \
		} \
	}
#define FILL(name, kind) \
	{ \
		SYS_##name, #name, kind, RULE_FILLS, 0, 0, \
		{ \
			0 \
		} \
	}
#define NEW(number, name, kind) \
	{ \
		number, name, kind, RULE_EVERYBODY, 0, 0, \
		{ \
			0 \
		} \
	}
#define ONLY(name, argument, count, ...) \
	{ \
		SYS_##name, #name, RULE_ONLY, RULE_EVERYBODY, argument, count, \
		{ \
			__VA_ARGS__ \
		} \
	}
#define NEVER(name, argument, count, ...) \
	{ \
		SYS_##name, #name, RULE_NEVER, RULE_EVERYBODY, argument, count, \
		{ \
			__VA_ARGS__ \
		} \
	}
#define OTHER(name, kind, argument) \
	{ \
		SYS_##name, #name, kind, RULE_EVERYBODY, argument, 1, \
		{ \
			0 \
		} \
	}

enum {
	ADD_SEALS = 1033, // of fcntl
	GET_SEALS = 1034,
	NAME_MEMORY = 0x53564d41, // of prctl: what a mapping is called
};

// System calls of this program, the C library, llvmpipe and the CUDA library, allowed to every worker.
static struct rule allowed[] = {
	ALLOW(read),
	ALLOW(write),
	ALLOW(readv),
	ALLOW(writev),
	ALLOW(pread64),
	ALLOW(close),
	ALLOW(fstat),
	ALLOW(newfstatat),
	ALLOW(statx),
	ALLOW(lseek),
	ALLOW(mmap),
	ALLOW(mprotect),
	ALLOW(munmap),
	ALLOW(mremap),
	ALLOW(madvise),
	ALLOW(brk),
	ALLOW(mincore),
	ALLOW(rt_sigaction),
	ALLOW(rt_sigprocmask),
	ALLOW(rt_sigreturn),
	ALLOW(sigaltstack),
	ALLOW(restart_syscall),
	ALLOW(ppoll),
	ALLOW(futex),
	ALLOW(sched_yield),
	ALLOW(nanosleep),
	ALLOW(clock_nanosleep),
	ALLOW(clock_gettime),
	ALLOW(clock_getres),
	ALLOW(gettimeofday),
	ALLOW(getpid),
	ALLOW(gettid),
	ALLOW(getuid),
	ALLOW(geteuid),
	ALLOW(getgid),
	ALLOW(getegid),
	ALLOW(getrandom),
	ALLOW(sysinfo),
	ALLOW(uname),
	ALLOW(getrusage),
	ALLOW(times),
	ALLOW(getcwd),
	ALLOW(getcpu),
	ALLOW(openat),
	ALLOW(faccessat),
	NEW(439, "faccessat2", RULE_ALLOW),
	ALLOW(readlinkat),
	ALLOW(getdents64),
	ALLOW(statfs),
	ALLOW(fstatfs),
	ALLOW(dup),
	ALLOW(dup3),
	ALLOW(pipe2),
	ALLOW(eventfd2),
	ALLOW(memfd_create),
	ALLOW(ftruncate),
	ALLOW(fallocate),
	ALLOW(set_robust_list),
	ALLOW(rseq),
	ALLOW(set_tid_address),
	ALLOW(exit),
	ALLOW(exit_group),
	ALLOW(sched_getaffinity),
	ALLOW(sched_getparam),
	ALLOW(sched_getscheduler),
	ALLOW(sched_get_priority_max),
	ALLOW(sched_get_priority_min),
	ALLOW(recvfrom),
	ALLOW(recvmsg),
	ALLOW(sendmsg),
	ALLOW(shutdown),
	ALLOW(getsockopt),
	ALLOW(setsockopt),
	ALLOW(getsockname),
	ALLOW(get_mempolicy),
	ALLOW(mbind),
	ALLOW(mlock),
	ALLOW(munlock),
	ALLOW(membarrier),
	// Not seen in use, but they concern this process alone: the library of another driver may use them.
	ALLOW(pwrite64),
	ALLOW(preadv),
	ALLOW(pwritev),
	ALLOW(pselect6),
	ALLOW(epoll_create1),
	ALLOW(epoll_ctl),
	ALLOW(epoll_pwait),
	ALLOW(timerfd_create),
	ALLOW(timerfd_settime),
	ALLOW(timerfd_gettime),
	ALLOW(timer_create),
	ALLOW(timer_settime),
	ALLOW(timer_gettime),
	ALLOW(timer_delete),
	ALLOW(setitimer),
	ALLOW(getitimer),
	ALLOW(signalfd4),
	ALLOW(rt_sigpending),
	ALLOW(rt_sigsuspend),
	ALLOW(rt_sigtimedwait),
	ALLOW(getppid),
	ALLOW(getresuid),
	ALLOW(getresgid),
	ALLOW(getgroups),
	ALLOW(capget),
	ALLOW(getpeername),
	ALLOW(msync),
	ALLOW(mlock2),
	ALLOW(munlockall),
	ALLOW(set_mempolicy),
	ALLOW(fadvise64),
	ALLOW(get_robust_list),
	ALLOW(wait4),
	ALLOW(waitid),
	NEW(436, "close_range", RULE_ALLOW),
	NEW(449, "futex_waitv", RULE_ALLOW),
	NEW(453, "map_shadow_stack", RULE_ALLOW),
	NEW(454, "futex_wake", RULE_ALLOW),
	NEW(455, "futex_wait", RULE_ALLOW),
	NEW(456, "futex_requeue", RULE_ALLOW),
#ifdef SYS_open
	ALLOW(open),
	ALLOW(stat),
	ALLOW(lstat),
	ALLOW(access),
	ALLOW(readlink),
	ALLOW(getdents),
	ALLOW(poll),
	ALLOW(pipe),
	ALLOW(dup2),
	ALLOW(time),
	ALLOW(eventfd),
	ALLOW(arch_prctl),
	ALLOW(getrlimit),
	ALLOW(select),
	ALLOW(epoll_create),
	ALLOW(epoll_wait),
	ALLOW(getpgrp),
	ALLOW(alarm),
	ALLOW(pause),
	FILL(unlink, RULE_GONE),
	GONE(symlink),
	FILL(rename, RULE_GONE),
	FILL(mkdir, RULE_GONE),
	QUIET(chmod),
	QUIET(mknod),
#endif
	// Only threads, not processes. New namespaces need capabilities, which a worker does not have.
	{SYS_clone, "clone", RULE_BITS, RULE_EVERYBODY, 0, 1, {CLONE_THREAD}},
	NEW(435, "clone3", RULE_ABSENT),
	// F_SETOWN would send signals to others, F_NOTIFY watch folders, and locks hold others up.
	// But CUDA's library locks the cache that it fills.
	{SYS_fcntl,
	 "fcntl",
	 RULE_ONLY,
	 RULE_FILLS,
	 1,
	 9,
	 {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, ADD_SEALS, GET_SEALS, F_SETLK}},
	NEVER(ioctl, 1, 2, TIOCSTI, TIOCLINUX),
	ONLY(prctl, 0, 4, PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, NAME_MEMORY),
	OTHER(prlimit64, RULE_ONLY, 0),
	OTHER(kill, RULE_SELF, 0),
	OTHER(tgkill, RULE_SELF, 0),
	OTHER(sendto, RULE_NULL, 4),
	// Drivers would arrange their threads, keep files and look for others' services; they do without. Where they
	// fill the cache of compiled kernels, they keep files there.
	QUIET(sched_setaffinity),
	QUIET(sched_setscheduler),
	QUIET(setpriority),
	QUIET(connect),
	FILL(unlinkat, RULE_GONE),
	GONE(symlinkat),
	FILL(renameat, RULE_GONE),
	FILL(mkdirat, RULE_GONE),
	FILL(flock, RULE_QUIET),
	QUIET(mknodat),
	// NVIDIA's library makes a socket in its process's own network, and listens there.
	{SYS_socket, "socket", RULE_SOCKET, RULE_CUDA, 0, 2, {SOCK_SEQPACKET, SOCK_SEQPACKET | SOCK_CLOEXEC}},
	CUDA(bind),
	CUDA(listen),
	CUDA(accept4),
};

// For drivers that were not seen at work: calls that no driver needs.
static struct rule refused[] = {
	QUIET(execve),
	QUIET(execveat),
#ifdef SYS_fork
	QUIET(fork),
	QUIET(vfork),
	QUIET(chmod),
	QUIET(chown),
	QUIET(lchown),
	QUIET(utime),
	QUIET(utimes),
	QUIET(futimesat),
	QUIET(mknod),
	QUIET(inotify_init),
#endif
	{SYS_clone, "clone", RULE_BITS, RULE_EVERYBODY, 0, 1, {CLONE_THREAD}},
	NEW(435, "clone3", RULE_ABSENT),
	// No sockets except the inherited ones.
	{SYS_socket, "socket", RULE_SOCKET, RULE_CUDA, 0, 2, {SOCK_SEQPACKET, SOCK_SEQPACKET | SOCK_CLOEXEC}},
	QUIET(socketpair),
	QUIET(connect),
	CUDA(bind),
	CUDA(listen),
	OTHER(sendto, RULE_NULL, 4),
	// other processes
	OTHER(kill, RULE_SELF, 0),
	OTHER(tgkill, RULE_SELF, 0),
	OTHER(rt_sigqueueinfo, RULE_SELF, 0),
	OTHER(rt_tgsigqueueinfo, RULE_SELF, 0),
	OTHER(prlimit64, RULE_ONLY, 0),
	QUIET(ptrace),
	QUIET(process_vm_readv),
	QUIET(process_vm_writev),
	QUIET(kcmp),
	QUIET(tkill),
	NEW(424, "pidfd_send_signal", RULE_QUIET),
	NEW(434, "pidfd_open", RULE_QUIET),
	NEW(438, "pidfd_getfd", RULE_QUIET),
	NEW(440, "process_madvise", RULE_QUIET),
	NEW(448, "process_mrelease", RULE_QUIET),
	QUIET(migrate_pages),
	QUIET(move_pages),
	QUIET(setpgid),
	// scheduling, of any process
	QUIET(setpriority),
	QUIET(ioprio_set),
	QUIET(sched_setscheduler),
	QUIET(sched_setparam),
	QUIET(sched_setattr),
	OTHER(sched_setaffinity, RULE_ONLY, 0),
	// metadata of files, on which Landlock has no word
	QUIET(fchmod),
	QUIET(fchmodat),
	NEW(452, "fchmodat2", RULE_QUIET),
	QUIET(fchown),
	QUIET(fchownat),
	QUIET(utimensat),
	QUIET(setxattr),
	QUIET(lsetxattr),
	QUIET(fsetxattr),
	QUIET(removexattr),
	QUIET(lremovexattr),
	QUIET(fremovexattr),
	QUIET(mknodat),
	// what the processes of a machine share
	QUIET(shmget),
	QUIET(shmat),
	QUIET(shmctl),
	QUIET(semget),
	QUIET(semop),
	QUIET(semtimedop),
	QUIET(semctl),
	QUIET(msgget),
	QUIET(msgsnd),
	QUIET(msgrcv),
	QUIET(msgctl),
	QUIET(mq_open),
	QUIET(mq_unlink),
	QUIET(mq_timedsend),
	QUIET(mq_timedreceive),
	QUIET(mq_notify),
	QUIET(mq_getsetattr),
	// being told of others' files
	QUIET(inotify_init1),
	QUIET(inotify_add_watch),
	QUIET(fanotify_init),
	QUIET(fanotify_mark),
	// mounts and namespaces
	QUIET(mount),
	QUIET(umount2),
	QUIET(pivot_root),
	QUIET(chroot),
	QUIET(setns),
	QUIET(unshare),
	QUIET(swapon),
	QUIET(swapoff),
	NEW(428, "open_tree", RULE_QUIET),
	NEW(429, "move_mount", RULE_QUIET),
	NEW(430, "fsopen", RULE_QUIET),
	NEW(431, "fsconfig", RULE_QUIET),
	NEW(432, "fsmount", RULE_QUIET),
	NEW(433, "fspick", RULE_QUIET),
	NEW(442, "mount_setattr", RULE_QUIET),
	NEW(457, "statmount", RULE_QUIET),
	NEW(458, "listmount", RULE_QUIET),
	// the kernel and the machine
	QUIET(bpf),
	QUIET(perf_event_open),
	QUIET(kexec_load),
	QUIET(init_module),
	QUIET(finit_module),
	QUIET(delete_module),
	QUIET(syslog),
	QUIET(reboot),
	QUIET(acct),
	QUIET(quotactl),
	QUIET(settimeofday),
	QUIET(clock_settime),
	QUIET(clock_adjtime),
	QUIET(adjtimex),
	QUIET(sethostname),
	QUIET(setdomainname),
	QUIET(vhangup),
	QUIET(personality),
	QUIET(userfaultfd),
	QUIET(seccomp),
#ifdef SYS_kexec_file_load
	QUIET(kexec_file_load),
#endif
#ifdef SYS_iopl
	QUIET(iopl),
	QUIET(ioperm),
	QUIET(modify_ldt),
#endif
	QUIET(add_key),
	QUIET(request_key),
	QUIET(keyctl),
	// who it is
	QUIET(setuid),
	QUIET(setgid),
	QUIET(setresuid),
	QUIET(setresgid),
	QUIET(setgroups),
	QUIET(capset),
	NEVER(prctl, 0, 4, PR_SET_DUMPABLE, PR_SET_PDEATHSIG, PR_SET_PTRACER, PR_SET_MM),
	NEVER(ioctl, 1, 2, TIOCSTI, TIOCLINUX),
	// signals to others, watching folders, and holding others up who open a file
	NEVER(fcntl, 1, 5, F_SETOWN, F_SETOWN_EX, F_SETSIG, F_NOTIFY, F_SETLEASE),
	// ways round this filter, or round Landlock
	NEW(425, "io_uring_setup", RULE_QUIET),
	NEW(426, "io_uring_enter", RULE_QUIET),
	NEW(427, "io_uring_register", RULE_QUIET),
	QUIET(open_by_handle_at),
	QUIET(name_to_handle_at),
};

// Names for the log of system calls that are on neither list.
#define NAME(name) \
	{ \
		SYS_##name, #name \
	}
static const struct {
	int number;
	const char *name;
} others[] = {
	NAME(io_setup),
	NAME(io_destroy),
	NAME(io_submit),
	NAME(io_cancel),
	NAME(io_getevents),
	NAME(getxattr),
	NAME(lgetxattr),
	NAME(fgetxattr),
	NAME(listxattr),
	NAME(llistxattr),
	NAME(flistxattr),
	NAME(inotify_rm_watch),
	NAME(ioprio_get),
	NAME(linkat),
	NAME(truncate),
	NAME(chdir),
	NAME(fchdir),
	NAME(sendfile),
	NAME(vmsplice),
	NAME(splice),
	NAME(tee),
	NAME(sync),
	NAME(fsync),
	NAME(fdatasync),
	NAME(sync_file_range),
	NAME(timer_getoverrun),
	NAME(sched_rr_get_interval),
	NAME(getpriority),
	NAME(setregid),
	NAME(setreuid),
	NAME(setfsuid),
	NAME(setfsgid),
	NAME(getpgid),
	NAME(getsid),
	NAME(setsid),
	NAME(setrlimit),
	NAME(umask),
	NAME(shmdt),
	NAME(readahead),
	NAME(mlockall),
	NAME(remap_file_pages),
	NAME(recvmmsg),
	NAME(syncfs),
	NAME(sendmmsg),
	NAME(sched_getattr),
	NAME(renameat2),
	NAME(copy_file_range),
	NAME(preadv2),
	NAME(pwritev2),
	NAME(pkey_mprotect),
	NAME(pkey_alloc),
	NAME(pkey_free),
#ifdef SYS_link
	NAME(link),
	NAME(rmdir),
	NAME(creat),
	NAME(ustat),
	NAME(sysfs),
#endif
	{437, "openat2"},
	{441, "epoll_pwait2"},
	{443, "quotactl_fd"},
	{444, "landlock_create_ruleset"},
	{445, "landlock_add_rule"},
	{446, "landlock_restrict_self"},
	{447, "memfd_secret"},
	{450, "set_mempolicy_home_node"},
	{451, "cachestat"},
	{462, "mseal"},
};

enum { ALLOWED = sizeof(allowed) / sizeof(allowed[0]), REFUSED = sizeof(refused) / sizeof(refused[0]) };

static int compare(const void *first, const void *second)
{
	const struct rule *left = first, *right = second;
	return (left->number > right->number) - (left->number < right->number);
}

size_t calls_allowed(const struct rule **list)
{
	qsort(allowed, ALLOWED, sizeof(allowed[0]), compare);
	*list = allowed;
	return ALLOWED;
}

size_t calls_refused(const struct rule **list)
{
	qsort(refused, REFUSED, sizeof(refused[0]), compare);
	*list = refused;
	return REFUSED;
}

const char *worker_call_name(int number)
{
	for (size_t i = 0; i < REFUSED; i++)
		if (refused[i].number == number)
			return refused[i].name;
	for (size_t i = 0; i < ALLOWED; i++)
		if (allowed[i].number == number)
			return allowed[i].name;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (others[i].number == number)
			return others[i].name;
	return NULL;
}
