/* Answers, to the server and to the node. See session.h. */
#include "common/base/log.h"
#include "engine/worker/session.h"
#include "engine/worker/worker.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void put_u32le(uint8_t *to, size_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> 8 * i);
}

// All of head and body, or false: the peer is gone, or (with MSG_DONTWAIT) does not take it at once.
static bool send_all(int fd, const struct buffer *head, const uint8_t *body, size_t body_bytes, int flags)
{
	struct iovec parts[2] = {{head ? head->data : NULL, head ? head->length : 0},
				 {(void *)(uintptr_t)body, body_bytes}};
	while (parts[0].iov_len + parts[1].iov_len) {
		struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
		ssize_t sent = sendmsg(fd, &message, flags | MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return false;
		for (int i = 0; i < 2; i++) {
			size_t done = (size_t)sent < parts[i].iov_len ? (size_t)sent : parts[i].iov_len;
			if (done)
				parts[i].iov_base = (uint8_t *)parts[i].iov_base + done;
			parts[i].iov_len -= done;
			sent -= (ssize_t)done;
		}
	}
	return true;
}

// The bytes before a body of `body_bytes`. `result` is taken.
static enum status print(struct buffer *out, const struct json *id, const struct error *error, struct json *result,
			 size_t body_bytes)
{
	const uint8_t lengths[8] = {0};
	buffer_init(out, LIMIT_HEAD_BYTES + sizeof(lengths));
	enum status status = buffer_append(out, lengths, sizeof(lengths));
	if (!status && error && error->status) {
		json_destroy(&result);
		status = message_print_error(out, id, error);
	} else if (!status) {
		status = message_print_result(out, id, result);
	}
	if (!status) {
		put_u32le(out->data, out->length - 4 + body_bytes);
		put_u32le(out->data + 4, out->length - 8);
	}
	return status;
}

static void send_to_server(struct session *session, const struct buffer *head, const uint8_t *body, size_t body_bytes)
{
	if (!session->stream_gone && !send_all(session->stream_fd, head, body, body_bytes, 0))
		session->stream_gone = true; // the reader sees that, too, and ends
}

void answer_call(struct session *session, struct call *call, struct json *result, const uint8_t *body,
		 size_t body_bytes)
{
	struct buffer head;
	if (call->from_node) {
		answer_node(session, call->message.id, &call->error, result);
		return;
	}
	watch_answer(session);
	pthread_mutex_lock(&session->sending);
	if (!print(&head, call->message.id, &call->error, result, body_bytes))
		send_to_server(session, &head, body, body_bytes);
	pthread_mutex_unlock(&session->sending);
	buffer_finish(&head);
	watch_return(session);
}

void answer_open(struct session *session, struct call *call, struct json *result, size_t body_bytes)
{
	struct buffer head;
	watch_answer(session);
	pthread_mutex_lock(&session->sending);
	session->message_open = true;
	if (!print(&head, call->message.id, NULL, result, body_bytes))
		send_to_server(session, &head, NULL, 0);
	pthread_mutex_unlock(&session->sending);
	buffer_finish(&head);
	watch_return(session);
}

void answer_more(struct session *session, const uint8_t *body, size_t body_bytes, bool last)
{
	watch_answer(session);
	pthread_mutex_lock(&session->sending);
	send_to_server(session, NULL, body, body_bytes);
	session->message_open = !last;
	pthread_mutex_unlock(&session->sending);
	watch_return(session);
}

void answer_node(struct session *session, const struct json *id, const struct error *error, struct json *result)
{
	struct buffer head;
	if (!print(&head, id, error, result, 0)) {
		pthread_mutex_lock(&session->to_node);
		send_all(session->node_fd, &head, NULL, 0, 0); // if it is gone, the reader ends the process
		pthread_mutex_unlock(&session->to_node);
	}
	buffer_finish(&head);
}

void session_end(struct session *session, struct call *call, bool all, const struct error *error)
{
	struct buffer head;
	bool writable = !pthread_mutex_trylock(&session->sending) && !session->message_open && !session->stream_gone;
	// A part of a write has no id; the last part has, if it has come.
	while (!all && call && !call->message.head && call->next && call->kind == CALL_WRITE)
		call = call->next;
	for (; writable && call; call = all ? call->next : NULL) {
		if (call->from_node || !call->message.id)
			continue;
		if (!print(&head, call->message.id, error, NULL, 0))
			writable = send_all(session->stream_fd, &head, NULL, 0, MSG_DONTWAIT);
		buffer_finish(&head);
	}
	log_error("worker", "%s", error->message);
	_exit(error->status == STATUS_TIMEOUT ? WORKER_TIMED_OUT : WORKER_DEVICE_LOST);
}
