/* See refusals.h. */
#include "engine/node/workers/refusals.h"

#include "common/base/log.h"
#include "engine/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NUMBERS = 1024, ROOM = 512, AT_ONCE = 16 };

struct refusals {
	enum backend_kind backend;
	struct net_watch *watch;
	int listener; // owned by the watch
	unsigned count;
};

// The kernel may write more than the header declares.
union notice {
	struct seccomp_notif call;
	uint8_t room[ROOM];
};
union reply {
	struct seccomp_notif_resp answer;
	uint8_t room[ROOM];
};

static bool fits(void)
{
	struct seccomp_notif_sizes sizes = {0};
	return !syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) && sizes.seccomp_notif <= ROOM &&
	       sizes.seccomp_notif_resp <= ROOM;
}

int refusals_answer(int listener)
{
	union notice notice = {.room = {0}};
	union reply reply = {.room = {0}};
	struct pollfd waiting = {.fd = listener, .events = POLLIN};
	while (poll(&waiting, 1, -1) < 0)
		if (errno != EINTR)
			return REFUSALS_ENDED;
	if (!(waiting.revents & POLLIN))
		return REFUSALS_ENDED;
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notice))
		return errno == ENOENT || errno == EINTR ? REFUSALS_NONE : REFUSALS_ENDED;
	reply.answer = (struct seccomp_notif_resp){.id = notice.call.id, .error = -EPERM};
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply) && errno != ENOENT)
		return REFUSALS_ENDED;
	return notice.call.data.nr < 0 ? REFUSALS_NONE : notice.call.data.nr;
}

static void tell(enum backend_kind backend, int number)
{
	static uint8_t told[NUMBERS / 8];
	const char *name = worker_call_name(number);
	char words[32];
	snprintf(words, sizeof(words), "number %d", number);
	if (number >= NUMBERS || told[number / 8] & 1u << number % 8)
		return;
	told[number / 8] |= (uint8_t)(1u << number % 8);
	log_warning("node", "a worker of %s made a system call that is not on its list, and was refused it: %s",
		    backend_kind_title(backend), name ? name : words);
}

static void readable(void *arg, int fd)
{
	struct refusals *refusals = arg;
	const struct timespec no_wait = {0};
	for (unsigned i = 0; i < AT_ONCE; i++) {
		struct pollfd waiting = {.fd = fd, .events = POLLIN};
		if (ppoll(&waiting, 1, &no_wait, NULL) <= 0)
			return;
		const int number = refusals_answer(fd);
		if (number >= 0)
			tell(refusals->backend, number);
		if (number == REFUSALS_ENDED || ++refusals->count >= REFUSALS_OF_WORKER) {
			net_watch_destroy(&refusals->watch);
			return;
		}
	}
}

static const struct net_watch_events events = {.readable = readable};

void refusals_create(struct refusals **out, struct net_loop *loop, int listener, enum backend_kind backend)
{
	struct refusals *refusals = *out = fits() ? calloc(1, sizeof(*refusals)) : NULL;
	if (refusals) {
		*refusals = (struct refusals){.backend = backend, .listener = listener};
		if (!net_watch_create(&refusals->watch, loop, listener, &events, refusals, NULL))
			return;
		refusals_destroy(out);
	}
	close(listener);
}

void refusals_destroy(struct refusals **refusals)
{
	if (*refusals)
		net_watch_destroy(&(*refusals)->watch);
	free(*refusals);
	*refusals = NULL;
}

static bool is_listener(int fd)
{
	char path[64], link[64] = "";
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, link, sizeof(link) - 1) > 0 && !strcmp(link, "anon_inode:seccomp notify");
}

ssize_t refusals_receive(int socket, uint8_t *bytes, size_t size, int *passed)
{
	alignas(struct cmsghdr) uint8_t room[CMSG_SPACE(sizeof(int))];
	uint8_t first;
	struct iovec part = {.iov_base = size ? bytes : &first, .iov_len = size ? size : 1};
	// CMSG_SPACE would have room for a second descriptor, which would leak.
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = CMSG_LEN(sizeof(int))};
	*passed = -1;
	const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (size ? 0 : MSG_PEEK));
	const struct cmsghdr *one = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (one && one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS &&
	    one->cmsg_len == CMSG_LEN(sizeof(*passed))) {
		memcpy(passed, CMSG_DATA(one), sizeof(*passed));
		if (!is_listener(*passed)) {
			close(*passed);
			*passed = -1;
		}
	}
	return size || got < 0 ? got : 0;
}
