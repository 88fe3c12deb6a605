/* Which system calls a confined worker may make: the lists, for seccomp.c, which makes a filter of them.
 *
 * There are two kinds of lists. For drivers whose calls were observed (this program and llvmpipe on processors; CUDA
 * and NVIDIA's Vulkan on a real GPU) the list says what is allowed; everything else is refused and reported. For
 * hardware that was not available (Vulkan on other makers' GPUs, Jetson, WSL2) the list says what is refused.
 * docs/security.md tells how the lists were made, and how to make one. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum rule_kind {
	RULE_ALLOW,
	RULE_QUIET,  // EPERM, and not told: drivers try it and go on without
	RULE_GONE,   // ENOENT, and not told: CUDA's library goes on where there is no such file, and gives up at EPERM
	RULE_ABSENT, // ENOSYS: the C library then uses an older call, whose arguments can be seen
	RULE_ONLY,   // allowed if the argument is one of the values
	RULE_NEVER,  // refused if it is
	RULE_BITS,   // allowed if the argument has all bits of the first value
	RULE_SELF,   // allowed if the argument is this process
	RULE_NULL,   // allowed if the argument, a pointer, is NULL
	RULE_SOCKET, // allowed if it is a Unix socket whose type is one of the values
};

enum { RULE_VALUES = 12 };
enum rule_whose {
	RULE_EVERYBODY,
	RULE_CUDA, // refused to others
	// Allowed only to a worker that fills the cache of compiled kernels. With RULE_ONLY this applies to the last
	// value.
	RULE_FILLS,
};

struct rule {
	int number;
	const char *name;
	enum rule_kind kind;
	enum rule_whose whose;
	unsigned argument; // its index
	unsigned count;
	uint32_t values[RULE_VALUES];
};

// (count) in order of their numbers. A call has one rule, and of the first kind of list those without are refused.
size_t calls_allowed(const struct rule **list);
size_t calls_refused(const struct rule **list);
