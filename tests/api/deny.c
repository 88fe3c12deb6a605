/* Runs a program on a kernel that seems to lack something, for tests of what is done without it:
 *
 *     deny landlock|seccomp PROGRAM ARGUMENT...
 *
 * A filter of system calls, which PROGRAM and all that it starts inherit, answers the one by which it would be had with
 * ENOSYS, as a kernel without it does. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LANDLOCK_CREATE_RULESET = 444 }; // on every architecture

int main(int argc, char **argv)
{
	const bool landlock = argc > 2 && !strcmp(argv[1], "landlock");
	if (!landlock && (argc < 3 || strcmp(argv[1], "seccomp") != 0)) {
		fputs("usage: deny landlock|seccomp PROGRAM ARGUMENT...\n", stderr);
		return 2;
	}
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, landlock ? LANDLOCK_CREATE_RULESET : SYS_seccomp, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
		perror("deny");
		return 1;
	}
	execv(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
