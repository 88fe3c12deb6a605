/* Descriptors that come with a worker's messages: one supervisor's end of a filter is kept, and no other descriptor
 * leaks; and the names of refused calls. */
#include "engine/node/workers/refusals.h"
#include "engine/worker/worker.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static unsigned open_descriptors(void)
{
	unsigned count = 0;
	DIR *folder = opendir("/proc/self/fd");
	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

// A message of four bytes with `count` descriptors, none of which is a filter's.
static void send_with(int fd, unsigned count)
{
	alignas(struct cmsghdr) uint8_t room[CMSG_SPACE(4 * sizeof(int))] = {0};
	uint8_t bytes[4] = {1, 2, 3, 4};
	int given[4] = {0, 0, 0, 0};
	struct iovec part = {.iov_base = bytes, .iov_len = sizeof(bytes)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (count) {
		message.msg_control = room;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *one = CMSG_FIRSTHDR(&message);
		*one = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof(int))};
		memcpy(CMSG_DATA(one), given, count * sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &message, 0), sizeof(bytes));
}

static void strangers_are_closed(void **state)
{
	int sockets[2], passed;
	uint8_t bytes[16];
	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	const unsigned before = open_descriptors();
	for (unsigned count = 0; count <= 4; count++) {
		send_with(sockets[0], count);
		passed = 5;
		// First as who only looks, then as who takes.
		assert_int_equal(refusals_receive(sockets[1], bytes, 0, &passed), 0);
		assert_int_equal(passed, -1);
		assert_int_equal(refusals_receive(sockets[1], bytes, sizeof(bytes), &passed), 4);
		assert_int_equal(passed, -1);
		assert_memory_equal(bytes, ((uint8_t[]){1, 2, 3, 4}), 4);
		assert_int_equal(open_descriptors(), before);
	}
	close(sockets[0]);
	close(sockets[1]);
}

// Numbers of this architecture, of calls on the list of what is allowed, of what is refused, and on neither.
static void a_refused_call_has_a_name(void **state)
{
	static const struct {
		int number;
		const char *name;
	} calls[] = {
		{SYS_read, "read"},
		{SYS_ptrace, "ptrace"},
		{SYS_execve, "execve"},
		{SYS_truncate, "truncate"},
		{SYS_fsync, "fsync"},
		{SYS_sendfile, "sendfile"},
		{SYS_linkat, "linkat"},
		{SYS_setfsuid, "setfsuid"},
		{425, "io_uring_setup"},
		{438, "pidfd_getfd"},
		{446, "landlock_restrict_self"},
		{452, "fchmodat2"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		const char *name = worker_call_name(calls[i].number);
		assert_non_null(name);
		assert_string_equal(name, calls[i].name);
	}
	unsigned nameless = 0;
	for (int number = 0; number <= 452; number++)
		nameless += !worker_call_name(number);
	assert_in_range(nameless, 0, 150); // those that Linux has no more, and numbers that nothing has
	assert_null(worker_call_name(100000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(strangers_are_closed),
					   cmocka_unit_test(a_refused_call_has_a_name)};
	return cmocka_run_group_tests_name("node/refusals", tests, NULL, NULL);
}
