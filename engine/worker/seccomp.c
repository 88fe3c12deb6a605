/* System calls: a list of what is refused, since no list of what closed drivers need can be complete.
 *
 * Refused with EPERM: running programs, new processes, sockets that are not Unix ones, connecting, debugging and
 * reading other processes, signals to others, mounts and namespaces, what changes the kernel or the machine, key rings,
 * io_uring (its work passes by this filter), handles of files. ENOSYS for clone3, whose flags cannot be seen from here:
 * the C library and CUDA then use clone, where a thread can be told from a process (EPERM makes cuInit fail); and for
 * calls that are newer than this list. bind and listen stay: cuInit needs them, on Unix sockets.
 *
 * The filter is a program for the kernel's small machine: one comparison after another, each jumping over its own
 * verdict. It is built for the architecture that it runs on; calls of any other (32-bit ones) end the process. */
#include "engine/worker/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifndef ARCHITECTURE

int seccomp_apply(void)
{
	return ENOSYS; // the numbers below have been checked for two architectures only
}

#else

enum {
	// Numbers that are the same everywhere, and newer than some headers.
	NR_CLONE3 = 435,
	NR_MOUNT_SETATTR = 442,
	NR_PROCESS_MRELEASE = 448,
	NR_NEWEST = 462, // the newest that this list was made with
	FILTER_LENGTH = 512,
	DEBUGGABLE = 4,    // PR_SET_DUMPABLE
	PARENT_SIGNAL = 1, // PR_SET_PDEATHSIG
};

static const int refused[] = {
	SYS_execve,
	SYS_execveat,
#ifdef SYS_fork
	SYS_fork,
	SYS_vfork,
#endif
	SYS_connect,
	// other processes
	SYS_ptrace,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_kcmp,
	SYS_tkill,
	424 /* pidfd_send_signal */,
	434 /* pidfd_open */,
	438 /* pidfd_getfd */,
	440 /* process_madvise */,
	NR_PROCESS_MRELEASE,
	SYS_migrate_pages,
	SYS_setpriority,
	SYS_ioprio_set,
	// mounts and namespaces
	SYS_mount,
	SYS_umount2,
	SYS_pivot_root,
	SYS_chroot,
	SYS_setns,
	SYS_unshare,
	SYS_swapon,
	SYS_swapoff,
	428 /* open_tree */,
	429 /* move_mount */,
	430 /* fsopen */,
	431 /* fsconfig */,
	432 /* fsmount */,
	433 /* fspick */,
	NR_MOUNT_SETATTR,
	457 /* statmount */,
	458 /* listmount */,
	// the kernel and the machine
	SYS_bpf,
	SYS_perf_event_open,
	SYS_kexec_load,
	SYS_init_module,
	SYS_finit_module,
	SYS_delete_module,
	SYS_syslog,
	SYS_reboot,
	SYS_acct,
	SYS_quotactl,
	SYS_settimeofday,
	SYS_clock_settime,
	SYS_clock_adjtime,
	SYS_adjtimex,
	SYS_sethostname,
	SYS_setdomainname,
	SYS_vhangup,
	SYS_personality,
	SYS_userfaultfd,
	SYS_fanotify_init,
#ifdef SYS_kexec_file_load
	SYS_kexec_file_load,
#endif
#ifdef SYS_iopl
	SYS_iopl,
	SYS_ioperm,
	SYS_modify_ldt,
#endif
	SYS_add_key,
	SYS_request_key,
	SYS_keyctl,
	// ways round this filter, or round Landlock
	425 /* io_uring_setup */,
	426 /* io_uring_enter */,
	427 /* io_uring_register */,
	SYS_open_by_handle_at,
	SYS_name_to_handle_at,
};

struct filter {
	struct sock_filter code[FILTER_LENGTH];
	unsigned short length;
};

static void put(struct filter *filter, struct sock_filter one)
{
	if (filter->length < FILTER_LENGTH)
		filter->code[filter->length++] = one;
}

static void load(struct filter *filter, size_t offset)
{
	put(filter, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void verdict(struct filter *filter, uint32_t what)
{
	put(filter, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

static const uint32_t refuse = SECCOMP_RET_ERRNO | EPERM, unknown = SECCOMP_RET_ERRNO | ENOSYS;

// The low half of argument `index`, as the kernel reads an int (both architectures are little-endian).
static size_t argument(unsigned index)
{
	return offsetof(struct seccomp_data, args) + 8 * index;
}

// For call `number`: allowed if its argument, a whole one if `wide`, equals one of two values; else refused.
static void only(struct filter *filter, int number, unsigned index, uint32_t value, uint32_t other)
{
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 5));
	load(filter, argument(index));
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 2, 0));
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other, 1, 0));
	verdict(filter, refuse);
	verdict(filter, SECCOMP_RET_ALLOW);
}

// For call `number`: refused if its argument equals one of two values.
static void never(struct filter *filter, int number, unsigned index, uint32_t value, uint32_t other)
{
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 5));
	load(filter, argument(index));
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0));
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other, 0, 1));
	verdict(filter, refuse);
	verdict(filter, SECCOMP_RET_ALLOW);
}

static void build(struct filter *filter)
{
	const uint32_t self = (uint32_t)getpid();
	load(filter, offsetof(struct seccomp_data, arch));
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
	verdict(filter, SECCOMP_RET_KILL_PROCESS);
	load(filter, offsetof(struct seccomp_data, nr));
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NR_NEWEST, 0, 1)); // x32 calls, too
	verdict(filter, unknown);
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NR_CLONE3, 0, 1));
	verdict(filter, unknown);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)refused[i], 0, 1));
		verdict(filter, refuse);
	}
	// clone: threads only.
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4));
	load(filter, argument(0));
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0));
	verdict(filter, refuse);
	verdict(filter, SECCOMP_RET_ALLOW);
	only(filter, SYS_socket, 0, AF_UNIX, AF_UNIX);
	only(filter, SYS_kill, 0, self, self);
	only(filter, SYS_tgkill, 0, self, self);
	only(filter, SYS_rt_sigqueueinfo, 0, self, self);
	only(filter, SYS_rt_tgsigqueueinfo, 0, self, self);
	only(filter, SYS_prlimit64, 0, 0, self);
	never(filter, SYS_prctl, 0, DEBUGGABLE, PARENT_SIGNAL);
	never(filter, SYS_ioctl, 1, TIOCSTI, TIOCLINUX);
	verdict(filter, SECCOMP_RET_ALLOW);
}

int seccomp_apply(void)
{
	struct filter filter = {.length = 0};
	build(&filter);
	if (filter.length == FILTER_LENGTH)
		return E2BIG;
	struct sock_fprog program = {.len = filter.length, .filter = filter.code};
	// With TSYNC a positive number is a thread that could not be brought along.
	long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
	return result < 0 ? errno : result > 0 ? EBUSY : 0;
}

#endif
