/* Ends of channels, which a node gives its workers, for the suites that play the node. */
#pragma once
#include "tests/engine/worker/worker_test.h"

#include <sys/socket.h>

// Send these bytes to the worker, with this descriptor, which is closed here; -1: without one.
static inline void send_beside(struct worker *worker, const uint8_t *bytes, size_t length, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} beside = {0};
	struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (fd >= 0) {
		message.msg_control = beside.room;
		message.msg_controllen = sizeof(beside.room);
		*CMSG_FIRSTHDR(&message) = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd))};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof(fd));
	}
	assert_int_equal(sendmsg(worker->node, &message, 0), (ssize_t)length);
	if (fd >= 0)
		close(fd);
}

// worker.channel, of which `first` bytes go beside the descriptor (as above), and the rest by itself. Returns its id.
static inline int post_channel(struct worker *worker, const char *channel, const char *end, int fd, size_t first)
{
	struct buffer out;
	char head[256];
	int length = snprintf(
		head, sizeof(head),
		"{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"worker.channel\",\"params\":{\"channel\":\"%s\","
		"\"end\":\"%s\"}}",
		++worker->id, channel, end);
	buffer_init(&out, sizeof(head) + 8);
	assert_int_equal(message_encode_stream(&out, head, (size_t)length, NULL, 0), STATUS_OK);
	if (first > out.length)
		first = out.length;
	send_beside(worker, out.data, first, fd);
	if (first < out.length)
		send_beside(worker, out.data + first, out.length - first, -1);
	buffer_finish(&out);
	return worker->id;
}

// worker.channel with this descriptor, which is closed here; -1: without one.
static inline void give_channel(struct worker *worker, const char *channel, const char *end, int fd, enum status status)
{
	struct answer answer;
	expect(worker->node, &answer, post_channel(worker, channel, end, fd, SIZE_MAX), "worker.channel", status);
	answer_finish(&answer);
}
