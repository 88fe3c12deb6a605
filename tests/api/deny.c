/* Runs a program on a kernel that seems to lack something, for tests of what is done without it:
 *
 *     deny landlock|seccomp|namespaces PROGRAM ARGUMENT...
 *
 * A filter of system calls, which PROGRAM and all that it starts inherit, answers the one by which it would be had with
 * ENOSYS, as a kernel without it does; for namespaces, as the filter of container engines does: unshare, and clone into
 * new ones, with EPERM. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LANDLOCK_CREATE_RULESET = 444 }; // on every architecture

enum { NEW_NAMESPACES = 0x7e020000 }; // CLONE_NEW... of clone's flags

static int apply(const struct sock_filter *code, size_t count)
{
	const struct sock_fprog filter = {.len = (unsigned short)count, .filter = (struct sock_filter *)code};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static int deny_call(unsigned number)
{
	const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return apply(code, sizeof(code) / sizeof(code[0]));
}

static int deny_namespaces(void)
{
	const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	return apply(code, sizeof(code) / sizeof(code[0]));
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	int failed;
	if (!strcmp(what, "landlock"))
		failed = deny_call(LANDLOCK_CREATE_RULESET);
	else if (!strcmp(what, "seccomp"))
		failed = deny_call(SYS_seccomp);
	else if (!strcmp(what, "namespaces"))
		failed = deny_namespaces();
	else {
		fputs("usage: deny landlock|seccomp|namespaces PROGRAM ARGUMENT...\n", stderr);
		return 2;
	}
	if (failed) {
		perror("deny");
		return 1;
	}
	execv(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
