/* Answers to the server. See session.h. */
#include "common/base/bytes.h"
#include "common/base/log.h"
#include "engine/worker/session.h"
#include "engine/worker/worker.h"

#include <errno.h>
#include <stdalign.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct sending {
	int fd;
	const struct buffer *head; // or NULL
	const uint8_t *body;       // (body_bytes)
	size_t body_bytes;
	int flags;
	const int *passed; // a descriptor that goes with it, or NULL
};

// Send all of head and body. False: the peer is gone or, with MSG_DONTWAIT, the socket does not take all of it at once.
static bool send_all(const struct sending *out)
{
	alignas(struct cmsghdr) uint8_t room[CMSG_SPACE(sizeof *out->passed)] = {0};
	struct iovec parts[2] = {{out->head ? out->head->data : NULL, out->head ? out->head->length : 0},
				 {(void *)(uintptr_t)out->body, out->body_bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	if (out->passed) {
		message.msg_control = room;
		message.msg_controllen = sizeof room;
		struct cmsghdr *one = CMSG_FIRSTHDR(&message);
		one->cmsg_level = SOL_SOCKET;
		one->cmsg_type = SCM_RIGHTS;
		one->cmsg_len = CMSG_LEN(sizeof *out->passed);
		memcpy(CMSG_DATA(one), out->passed, sizeof *out->passed);
	}
	while (parts[0].iov_len + parts[1].iov_len) {
		ssize_t sent = sendmsg(out->fd, &message, out->flags | MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return false;
		message.msg_control = NULL; // it has gone with the first bytes
		message.msg_controllen = 0;
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

// The bytes before a body of `body_bytes`. `result` is taken; NULL, if there is no error: {"bytes": moved_bytes}.
static enum status print(struct buffer *out, const struct json *id, const struct error *error, struct json *result,
			 uint64_t moved_bytes, size_t body_bytes)
{
	const uint8_t lengths[8] = {0};
	buffer_init(out, LIMIT_HEAD_BYTES + sizeof(lengths));
	enum status status = buffer_append(out, lengths, sizeof(lengths));
	if (!status && error && error->status) {
		json_destroy(&result);
		status = message_print_error(out, id, error);
	} else if (!status && result) {
		status = message_print_result(out, id, result);
	} else if (!status) {
		const struct message_number moved = {"bytes", (int64_t)moved_bytes};
		status = message_print_result_of(out, id, &moved, 1);
	}
	if (!status) {
		put_u32le(out->data, out->length - 4 + body_bytes);
		put_u32le(out->data + 4, out->length - 8);
	}
	return status;
}

static void send_to_server(struct session *session, const struct buffer *head, const uint8_t *body, size_t body_bytes)
{
	const struct sending out = {.fd = session->stream_fd,
				    .head = head,
				    .body = body,
				    .body_bytes = body_bytes,
				    .passed = session->shared_fd >= 0 ? &session->shared_fd : NULL};
	if (!session->stream_gone && !send_all(&out))
		session->stream_gone = true; // the reader sees that, too, and ends
	if (session->shared_fd >= 0)
		close(session->shared_fd);
	session->shared_fd = -1;
}

// The place in shared memory at which a read wants its bytes, already checked; NULL: it wants a body.
static uint8_t *shared_place(struct session *session, const struct call *call, size_t body_bytes)
{
	if (!session->shared || !body_bytes || !call->placed)
		return NULL;
	return net_shared_at(session->shared, call->read.at, body_bytes);
}

// An answer is lost: the reader sees the end of the stream, and ends.
static void give_up_stream(struct session *session)
{
	session->stream_gone = true;
	shutdown(session->stream_fd, SHUT_RDWR);
}

// Signal that the bytes which a doorbell asked for are in their place. `sending` is held, so only one thread signals at
// a time. An empty message wakes the server. If its socket is full it is awake, and looks for doorbells at each of the
// messages in it.
static void put_note(struct session *session, struct net_shared *shared, uint64_t call)
{
	static const uint8_t bell[8] = {4};
	const struct sending out = {
		.fd = session->stream_fd, .body = bell, .body_bytes = sizeof(bell), .flags = MSG_DONTWAIT};
	if (net_shared_put(shared, &(struct net_shared_note){.call = call}) && !send_all(&out) && errno != EAGAIN &&
	    errno != EWOULDBLOCK)
		give_up_stream(session);
}

void answer_call(struct session *session, struct call *call, struct json *result, const uint8_t *body,
		 size_t body_bytes)
{
	struct buffer head = {0};
	if (call->from_node) {
		rpc_answer(&session->node.rpc, call->message.method, call->message.id, result,
			   call->error.status ? &call->error : NULL);
		return;
	}
	watch_answer(session);
	uint8_t *to = shared_place(session, call, body_bytes);
	if (to)
		memcpy(to, body, body_bytes);
	const size_t sent_bytes = to ? 0 : body_bytes;
	pthread_mutex_lock(&session->sending);
	if (call->read.call && !call->error.status) // it lies there, or did before
		put_note(session, session->shared, call->read.call);
	else if (print(&head, call->message.id, &call->error, result, call->total_bytes, sent_bytes))
		give_up_stream(session);
	else
		send_to_server(session, &head, body, sent_bytes);
	pthread_mutex_unlock(&session->sending);
	buffer_finish(&head);
	watch_return(session);
}

bool answer_at_once(struct session *session, const struct call *call, const uint8_t *from)
{
	struct buffer head = {0};
	uint8_t *to = from ? shared_place(session, call, call->total_bytes) : NULL;
	if ((from && !to) || pthread_mutex_trylock(&session->sending))
		return false;
	bool sent = !session->stream_gone && !print(&head, call->message.id, &call->error, NULL, call->total_bytes, 0);
	if (sent && to)
		memcpy(to, from, call->total_bytes);
	// A Unix socket takes so few bytes as a whole or not at all.
	sent = sent && send_all(&(struct sending){.fd = session->stream_fd, .head = &head, .flags = MSG_DONTWAIT});
	pthread_mutex_unlock(&session->sending);
	buffer_finish(&head);
	return sent;
}

bool answer_note(struct session *session, struct net_shared *shared, const struct net_shared_note *note,
		 const uint8_t *from)
{
	uint8_t *to = net_shared_at(shared, note->at, note->bytes);
	if (!to || pthread_mutex_trylock(&session->sending))
		return false;
	memcpy(to, from, note->bytes);
	put_note(session, shared, note->call);
	pthread_mutex_unlock(&session->sending);
	return true;
}

void answer_open(struct session *session, struct call *call)
{
	struct buffer *head = &session->open_head;
	watch_answer(session);
	session->shared_to = shared_place(session, call, call->total_bytes);
	pthread_mutex_lock(&session->sending);
	session->message_open = true;
	session->open_noted = session->shared_to ? call->read.call : 0;
	if (!session->open_noted &&
	    print(head, call->message.id, NULL, NULL, call->total_bytes, session->shared_to ? 0 : call->total_bytes))
		give_up_stream(session);
	else if (!session->shared_to)
		send_to_server(session, head, NULL, 0);
	pthread_mutex_unlock(&session->sending);
	if (!session->shared_to)
		buffer_finish(head);
	watch_return(session);
}

void answer_more(struct session *session, const uint8_t *body, size_t body_bytes, bool last)
{
	watch_answer(session);
	if (session->shared_to) {
		memcpy(session->shared_to, body, body_bytes);
		session->shared_to += body_bytes;
	}
	pthread_mutex_lock(&session->sending);
	if (!session->shared_to)
		send_to_server(session, NULL, body, body_bytes);
	else if (last && session->open_noted)
		put_note(session, session->shared, session->open_noted);
	else if (last)
		send_to_server(session, &session->open_head, NULL, 0);
	session->message_open = !last;
	pthread_mutex_unlock(&session->sending);
	if (session->shared_to && last) {
		session->shared_to = NULL;
		buffer_finish(&session->open_head);
	}
	watch_return(session);
}

bool answer_notice(struct session *session, const char *method, struct json *params)
{
	const uint8_t lengths[8] = {0};
	struct buffer head;
	bool now = !session->message_open;
	buffer_init(&head, LIMIT_HEAD_BYTES + sizeof(lengths));
	enum status status = now ? buffer_append(&head, lengths, sizeof(lengths)) : STATUS_OK;
	if (now && !status)
		status = message_print_call(&head, NULL, method, params);
	else
		json_destroy(&params);
	if (now && !status) {
		put_u32le(head.data, head.length - 4);
		put_u32le(head.data + 4, head.length - 8);
		watch_answer(session);
		pthread_mutex_lock(&session->sending);
		send_to_server(session, &head, NULL, 0);
		pthread_mutex_unlock(&session->sending);
		watch_return(session);
	}
	buffer_finish(&head);
	return now;
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
		if (!print(&head, call->message.id, error, NULL, 0, 0))
			writable = send_all(
				&(struct sending){.fd = session->stream_fd, .head = &head, .flags = MSG_DONTWAIT});
		buffer_finish(&head);
	}
	log_error("worker", "%s", error->message);
	_exit(error->status == STATUS_TIMEOUT ? WORKER_TIMED_OUT : WORKER_DEVICE_LOST);
}
