/* System calls: builds a seccomp filter (classic BPF) from a list (calls_list.h).
 *
 * The most frequent calls come first; the others are found by binary search. (Linux 5.11 and newer run the filter only
 * once for a call that is allowed with any arguments.) With the list of allowed calls, a call that is not on it goes to
 * the supervisor (engine/node/workers/refusals.h), which answers EPERM and logs the call. Without a supervisor, on some
 * kernels and in some containers, the kernel answers EPERM. Calls that are newer than the lists get ENOSYS. Calls of
 * another architecture (32-bit ones) end the process. */
#include "engine/worker/calls_list.h"
#include "engine/worker/confine/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifndef ARCHITECTURE

int seccomp_apply(const struct seccomp_params *params, int *listener)
{
	(void)params;
	*listener = -1;
	return ENOSYS; // the numbers have been checked for two architectures only
}

#else

enum { FILTER_LENGTH = 2048, NEWEST = 462 /* the newest call that the lists were made with */ };

static const uint32_t refuse = SECCOMP_RET_ERRNO | EPERM, unknown = SECCOMP_RET_ERRNO | ENOSYS;

struct filter {
	struct sock_filter code[FILTER_LENGTH];
	unsigned length;
	const struct seccomp_params *params;
	uint32_t otherwise; // the verdict for calls that are not on the list
	uint32_t told;      // the verdict for calls that it refuses with a report
};

static void put(struct filter *filter, struct sock_filter one)
{
	if (filter->length < FILTER_LENGTH)
		filter->code[filter->length] = one;
	filter->length++;
}

static void load(struct filter *filter, size_t offset)
{
	put(filter, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void verdict(struct filter *filter, uint32_t what)
{
	put(filter, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

static void jump(struct filter *filter, uint16_t test, uint32_t value, unsigned yes, unsigned no)
{
	put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, (uint8_t)yes, (uint8_t)no));
}

// The low half of argument `index`, as the kernel reads an int (both architectures are little-endian).
static size_t argument(unsigned index)
{
	return offsetof(struct seccomp_data, args) + 8 * index;
}

// Jump to `yes` if the argument is one of `count` values, else to the code that follows.
static void one_of(struct filter *filter, const uint32_t *values, unsigned count, uint32_t yes, uint32_t no)
{
	for (unsigned i = 0; i < count; i++)
		jump(filter, BPF_JEQ, values[i], count - i, 0);
	verdict(filter, no);
	verdict(filter, yes);
}

// The verdict for a call with the rule's number.
static void judge(struct filter *filter, const struct rule *rule)
{
	const uint32_t self = (uint32_t)getpid();
	if (rule->whose == RULE_CUDA && !filter->params->cuda) {
		verdict(filter, filter->told);
		return;
	}
	const bool fills = rule->whose == RULE_FILLS && filter->params->fills_cache;
	if (fills && rule->kind != RULE_ONLY) {
		verdict(filter, SECCOMP_RET_ALLOW);
		return;
	}
	if (rule->kind != RULE_ALLOW && rule->kind != RULE_QUIET && rule->kind != RULE_GONE &&
	    rule->kind != RULE_ABSENT)
		load(filter, argument(rule->argument));
	switch (rule->kind) {
	case RULE_ALLOW:
		verdict(filter, SECCOMP_RET_ALLOW);
		break;
	case RULE_QUIET:
		verdict(filter, refuse);
		break;
	case RULE_GONE:
		verdict(filter, SECCOMP_RET_ERRNO | ENOENT);
		break;
	case RULE_ABSENT:
		verdict(filter, unknown);
		break;
	case RULE_ONLY:
		one_of(filter, rule->values, rule->count - (rule->whose == RULE_FILLS && !fills), SECCOMP_RET_ALLOW,
		       filter->told);
		break;
	case RULE_NEVER:
		one_of(filter, rule->values, rule->count, filter->told, SECCOMP_RET_ALLOW);
		break;
	case RULE_BITS: // one bit
		jump(filter, BPF_JSET, rule->values[0], 1, 0);
		verdict(filter, filter->told);
		verdict(filter, SECCOMP_RET_ALLOW);
		break;
	case RULE_SELF:
		one_of(filter, &self, 1, SECCOMP_RET_ALLOW, filter->told);
		break;
	case RULE_NULL:
		jump(filter, BPF_JEQ, 0, 1, 0);
		verdict(filter, filter->told);
		load(filter, argument(rule->argument) + 4);
		one_of(filter, &(uint32_t){0}, 1, SECCOMP_RET_ALLOW, filter->told);
		break;
	case RULE_SOCKET:
		jump(filter, BPF_JEQ, AF_UNIX, 1, 0);
		verdict(filter, filter->told);
		load(filter, argument(1));
		one_of(filter, rule->values, rule->count, SECCOMP_RET_ALLOW, filter->told);
		break;
	}
}

// Binary search. A conditional jump reaches 255 instructions, an unconditional one any.
static void search(struct filter *filter, const struct rule *list, size_t count)
{
	if (!count) {
		verdict(filter, filter->otherwise);
	} else if (count == 1) {
		jump(filter, BPF_JEQ, (uint32_t)list->number, 1, 0);
		verdict(filter, filter->otherwise);
		judge(filter, list);
	} else {
		const size_t half = count / 2;
		jump(filter, BPF_JGE, (uint32_t)list[half].number, 0, 1);
		const unsigned at = filter->length;
		put(filter, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 0));
		search(filter, list, half);
		if (at < FILTER_LENGTH)
			filter->code[at].k = filter->length - at - 1;
		search(filter, list + half, count - half);
	}
}

// The most frequent calls that are allowed with any arguments.
static void hurry(struct filter *filter, const struct rule *list, size_t count)
{
	static const int often[] = {SYS_futex,      SYS_read,     SYS_write, SYS_recvfrom,
				    SYS_sendmsg,    SYS_mprotect, SYS_ppoll,
#ifdef SYS_poll
				    SYS_poll,
#endif
				    SYS_sched_yield};
	for (size_t i = 0; i < sizeof(often) / sizeof(often[0]); i++) {
		bool named = false;
		for (size_t k = 0; k < count; k++)
			named |= list[k].number == often[i] && list[k].kind == RULE_ALLOW;
		if (!named && filter->otherwise != SECCOMP_RET_ALLOW)
			continue;
		jump(filter, BPF_JEQ, (uint32_t)often[i], 0, 1);
		verdict(filter, SECCOMP_RET_ALLOW);
	}
}

static void build(struct filter *filter, const struct seccomp_params *params, bool listened)
{
	const struct rule *list;
	const size_t count = params->unseen_driver ? calls_refused(&list) : calls_allowed(&list);
	filter->length = 0;
	filter->params = params;
	filter->told = params->unseen_driver || !listened ? refuse : SECCOMP_RET_USER_NOTIF;
	filter->otherwise = params->unseen_driver ? SECCOMP_RET_ALLOW : filter->told;
	load(filter, offsetof(struct seccomp_data, arch));
	jump(filter, BPF_JEQ, ARCHITECTURE, 1, 0);
	verdict(filter, SECCOMP_RET_KILL_PROCESS);
	load(filter, offsetof(struct seccomp_data, nr));
	hurry(filter, list, count);
	jump(filter, BPF_JGT, NEWEST, 0, 1); // x32 calls, too
	verdict(filter, unknown);
	search(filter, list, count);
}

int seccomp_apply(const struct seccomp_params *params, int *listener)
{
	static struct filter filter; // 16 KiB; of a process that does this once
	*listener = -1;
	for (int listened = !params->unseen_driver; listened >= 0; listened--) {
		build(&filter, params, listened);
		if (filter.length > FILTER_LENGTH)
			return E2BIG;
		struct sock_fprog program = {.len = (unsigned short)filter.length, .filter = filter.code};
		const long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
					    listened ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0, &program);
		if (result >= 0) {
			*listener = listened ? (int)result : -1;
			return 0;
		}
		if (!listened)
			return errno;
	}
	return EINVAL;
}

#endif
