/* See node_end.h. */
#include "engine/worker/node_end.h"

#include "common/base/limits.h"

#include <errno.h>
#include <stdalign.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ_BYTES = 4096, ROOM_BYTES = CMSG_SPACE(sizeof(int)) };

// ---- sending ----

// Send as much as the socket takes, with the descriptor that is to go with it.
static ssize_t send_some(struct node_end *end, const uint8_t *bytes, size_t length)
{
	alignas(struct cmsghdr) uint8_t room[ROOM_BYTES] = {0};
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (end->passes >= 0) {
		message.msg_control = room;
		message.msg_controllen = sizeof(room);
		struct cmsghdr *one = CMSG_FIRSTHDR(&message);
		*one = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(end->passes))};
		memcpy(CMSG_DATA(one), &end->passes, sizeof(end->passes));
	}
	const ssize_t sent = sendmsg(end->fd, &message, MSG_NOSIGNAL);
	if (sent < 0 && errno == EINTR)
		return 0;
	if (end->passes >= 0)
		close(end->passes);
	end->passes = -1;
	return sent;
}

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct node_end *end = arg;
	struct buffer out;
	(void)body; // none has one
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	enum status status = message_encode_stream(&out, (const char *)head->data, head->length, NULL, 0);
	pthread_mutex_lock(&end->sending);
	for (size_t sent = 0; !status && sent < out.length;) {
		const ssize_t now = send_some(end, out.data + sent, out.length - sent);
		if (now < 0)
			status = STATUS_UNAVAILABLE; // it is gone: the receiver sees that, too
		else
			sent += (size_t)now;
	}
	pthread_mutex_unlock(&end->sending);
	buffer_finish(&out);
	return status;
}

enum status node_end_pass(struct node_end *end)
{
	return send_message(end, &(const struct buffer){.data = (uint8_t *)""}, NULL);
}

// ---- receiving ----

static void drop_given(struct node_end *end)
{
	if (end->given >= 0)
		close(end->given);
	end->given = -1;
}

// Like recvmsg. A descriptor that comes with the bytes is kept.
static ssize_t receive(struct node_end *end, uint8_t *bytes, size_t size, bool waits)
{
	alignas(struct cmsghdr) uint8_t room[ROOM_BYTES];
	struct iovec part = {.iov_base = bytes, .iov_len = size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room};
	message.msg_controllen = CMSG_LEN(sizeof(end->given)); // no more than one: the room has place for two
	const ssize_t got = recvmsg(end->fd, &message, MSG_CMSG_CLOEXEC | (waits ? 0 : MSG_DONTWAIT));
	const struct cmsghdr *one = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (one && one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS &&
	    one->cmsg_len == CMSG_LEN(sizeof(end->given))) {
		drop_given(end);
		memcpy(&end->given, CMSG_DATA(one), sizeof(end->given));
	}
	return got;
}

static void serve(struct node_end *end, const uint8_t *frame, size_t length)
{
	struct error error = {0};
	rpc_receive(&end->rpc, frame, length, true, &error); // a malformed call gets its error as the answer
	drop_given(end);
}

enum status node_end_serve(struct node_end *end, bool waits, struct error *error)
{
	const uint8_t *frame;
	size_t length, used = 0;
	while (!used) {
		uint8_t bytes[READ_BYTES];
		const size_t left = message_left(&end->in);
		const ssize_t got = receive(end, bytes, left < sizeof(bytes) ? left : sizeof(bytes), waits);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return STATUS_OK;
		if (got <= 0)
			return error_set(error, STATUS_UNAVAILABLE, "the node is gone");
		if (buffer_append(&end->in, bytes, (size_t)got) || message_next(&end->in, &frame, &length, &used))
			return error_set(error, STATUS_INVALID_REQUEST, "the node's bytes are not a framed message");
	}
	serve(end, frame, length);
	buffer_consume(&end->in, used);
	return STATUS_OK;
}

void node_end_init(struct node_end *end, const struct node_end_params *params)
{
	*end = (struct node_end){.fd = params->fd, .given = -1, .passes = -1, .owner = params->owner};
	pthread_mutex_init(&end->sending, NULL);
	buffer_init(&end->in, LIMIT_WORKER_MESSAGE_BYTES);
	rpc_init(&end->rpc, &(struct rpc_params){.contract = params->contract,
						 .serves = "node-to-worker",
						 .peer = "the node",
						 .methods = params->methods,
						 .method_count = params->method_count,
						 .answers_faults = true,
						 .send = send_message,
						 .arg = end});
}

void node_end_finish(struct node_end *end)
{
	rpc_close(&end->rpc, NULL);
	drop_given(end);
	buffer_finish(&end->in);
	pthread_mutex_destroy(&end->sending);
}
