/* Messages over a Unix stream socket; see stream.h. Receiving: the beginning of a message
 * is read into `stage` (2 KiB); total, header and the beginning of the body are taken from
 * there. The rest of the body is read directly into its frame, with `stage` behind it in
 * the same system call, so that neither many small messages nor the border between two
 * large ones cost an extra call. A stream reads at most READ_TURN_BYTES a turn, so that a
 * busy one does not starve others. Sending: at once if nothing waits; otherwise in a list
 * whose items hold the frames that their bytes lie in. When a socket cannot be written to
 * any more, the peer's last messages are read first, and then `closed` is called. Thread:
 * the loop's. A stream owns its socket; one that is destroyed in a callback is freed when
 * that returns. */
#include "common/net/stream.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/net/frame.h"
#include "common/net/loop_lws.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	STAGE_BYTES = 2048,            // about as many small answers as are served in a turn: all that is in it is
	READ_BYTES = 512 * 1024,       // of one system call
	READ_TURN_BYTES = 1024 * 1024, // of one turn of the loop
	READ_TURN_US = 250,            // and for how long
	SOCKET_BYTES = 1024 * 1024,    // that the system is asked to hold on the way, each direction
	WRITE_PIECES = 16,             // of one system call
	KEEP_HEAD_BYTES = 64 * 1024,   // a buffer larger than this is given back after its message
	PREFIX_BYTES = 8,              // total, head length
};

struct piece {
	struct piece *next;
	struct net_frame *holder;
	const uint8_t *at;
	size_t left;
};

struct net_stream {
	struct net_watch *watch;
	const struct net_stream_handler *handler;
	void *user;
	int fd;      // the watch's
	int came_fd; // with a message; -1: none
	unsigned pauses;
	bool in_callback, destroyed;
	bool broken; // nothing can be sent any more
	// Receiving.
	bool begun; // a message: its lengths are known
	uint8_t stage[STAGE_BYTES];
	size_t stage_first, stage_end;
	struct buffer head;
	size_t head_bytes;      // that it is going to have
	struct net_frame *body; // NULL: none
	size_t body_filled;
	// Sending.
	struct piece *first, **last;
	size_t queued, pieces;
	bool was_full, held;
};

static void drop_first(struct net_stream *stream)
{
	struct piece *piece = stream->first;
	stream->first = piece->next;
	if (!stream->first)
		stream->last = &stream->first;
	stream->queued -= piece->left;
	stream->pieces--;
	net_frame_unref(&piece->holder);
	free(piece);
}

static void stream_free(struct net_stream *stream)
{
	buffer_finish(&stream->head);
	net_frame_unref(&stream->body);
	free(stream);
}

void net_stream_destroy(struct net_stream **pointer)
{
	struct net_stream *stream = *pointer;
	if (!stream)
		return;
	*pointer = NULL;
	if (stream->destroyed)
		return;
	stream->destroyed = true;
	net_watch_destroy(&stream->watch);
	if (stream->came_fd >= 0)
		close(stream->came_fd);
	stream->came_fd = -1;
	while (stream->first)
		drop_first(stream);
	if (!stream->in_callback)
		stream_free(stream);
}

static void end(struct net_stream *stream, const char *why)
{
	stream->handler->closed(stream->user, stream, why);
	net_stream_destroy(&stream);
}

// The lengths of the next message. False: not to be taken.
static bool begin_message(struct net_stream *stream, const char **why)
{
	const uint8_t *prefix = stream->stage + stream->stage_first;
	size_t total = read_u32le(prefix), head = read_u32le(prefix + 4);
	if (total < 4 || total > LIMIT_WORKER_MESSAGE_BYTES || head > total - 4 || head > LIMIT_HEAD_BYTES ||
	    total - 4 - head > LIMIT_BODY_BYTES) {
		*why = "the peer sent impossible message lengths";
		return false;
	}
	size_t body = total - 4 - head;
	stream->body = body ? net_frame_alloc(body) : NULL;
	if ((body && !stream->body) || buffer_reserve(&stream->head, head ? head : 1)) {
		*why = "out of memory for a message";
		return false;
	}
	stream->stage_first += PREFIX_BYTES;
	stream->head_bytes = head;
	stream->body_filled = 0;
	stream->begun = true;
	return true;
}

static void deliver(struct net_stream *stream)
{
	struct net_frame *body = stream->body;
	stream->body = NULL;
	stream->begun = false;
	stream->handler->message(stream->user, stream, stream->head.data, stream->head_bytes, body);
	net_frame_unref(&body);
	if (stream->head.capacity > KEEP_HEAD_BYTES)
		buffer_finish(&stream->head);
	buffer_clear(&stream->head);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

// Take what is in the stage. False: the stream has ended for the reason *why, or is destroyed.
static bool take_stage(struct net_stream *stream, const char **why)
{
	for (;;) {
		if (!stream->begun) {
			if (stream->stage_end - stream->stage_first < PREFIX_BYTES)
				break;
			if (!begin_message(stream, why))
				return false;
		}
		const uint8_t *bytes = stream->stage + stream->stage_first;
		size_t here = stream->stage_end - stream->stage_first,
		       head = least(here, stream->head_bytes - stream->head.length);
		if (buffer_append(&stream->head, bytes, head)) {
			*why = "out of memory for a message";
			return false;
		}
		stream->stage_first += head;
		size_t lacking = stream->body ? stream->body->length - stream->body_filled : 0,
		       body = least(here - head, lacking);
		if (body) {
			memcpy(net_frame_data(stream->body) + stream->body_filled, bytes + head, body);
			stream->body_filled += body;
			stream->stage_first += body;
		}
		if (stream->head.length < stream->head_bytes || body < lacking)
			break;
		deliver(stream);
		if (stream->destroyed)
			return false;
	}
	if (stream->stage_first == stream->stage_end) {
		stream->stage_first = stream->stage_end = 0;
	} else if (stream->stage_first) {
		memmove(stream->stage, stream->stage + stream->stage_first, stream->stage_end - stream->stage_first);
		stream->stage_end -= stream->stage_first;
		stream->stage_first = 0;
	}
	return true;
}

// Takes the descriptors that came with the bytes: keeps the first and closes all others.
static void keep_fd(struct net_stream *stream, struct msghdr *message)
{
	for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one; one = CMSG_NXTHDR(message, one)) {
		if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS || one->cmsg_len < CMSG_LEN(0))
			continue;
		const size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(one) + i * sizeof fd, sizeof fd);
			if (stream->came_fd >= 0)
				close(fd);
			else
				stream->came_fd = fd;
		}
	}
}

int net_stream_take_fd(struct net_stream *stream)
{
	int fd = stream->came_fd;
	stream->came_fd = -1;
	return fd;
}

// One system call: reads the rest of the body, if only that is missing, then the stage. *all: everything was read.
static ssize_t receive(struct net_stream *stream, bool *all)
{
	struct iovec parts[2];
	alignas(struct cmsghdr) uint8_t beside[CMSG_SPACE(sizeof(int))];
	size_t count = 0, direct = 0, behind = 0;
	if (stream->begun && stream->body && stream->head.length == stream->head_bytes) {
		direct = least(stream->body->length - stream->body_filled, READ_BYTES);
		parts[count++] = (struct iovec){net_frame_data(stream->body) + stream->body_filled, direct};
	}
	if (!direct || direct == stream->body->length - stream->body_filled) {
		behind = sizeof stream->stage - stream->stage_end;
		parts[count++] = (struct iovec){stream->stage + stream->stage_end, behind};
	}
	// CMSG_SPACE would leave room for a second one, on account of its padding.
	struct msghdr message = {
		.msg_iov = parts, .msg_iovlen = count, .msg_control = beside, .msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t got = recvmsg(stream->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got > 0) {
		keep_fd(stream, &message);
		stream->body_filled += least((size_t)got, direct);
		stream->stage_end += (size_t)got - least((size_t)got, direct);
		*all = (size_t)got < direct + behind;
	}
	return got;
}

static void on_readable(void *arg, int fd)
{
	(void)fd;
	struct net_stream *stream = arg;
	const char *why = NULL;
	bool going = true, all = false;
	stream->in_callback = true;
	const int64_t end_ns = clock_steady_ns() + READ_TURN_US * 1000;
	for (size_t taken = 0; going && !all && !stream->pauses && taken < READ_TURN_BYTES;) {
		if (taken && clock_steady_ns() >= end_ns)
			break;
		ssize_t got = receive(stream, &all);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (got <= 0) {
			why = got < 0 ? strerror(errno) : "the peer closed the stream";
			going = false;
		} else {
			taken += (size_t)got;
			going = take_stage(stream, &why);
		}
	}
	if (!going && why && !stream->destroyed)
		end(stream, why);
	stream->in_callback = false;
	if (stream->destroyed)
		stream_free(stream);
}

// The peer does not read any more. What it said before that is still to be read, and the end of it tells.
static void break_off(struct net_stream *stream)
{
	stream->broken = true;
	while (stream->first)
		drop_first(stream);
	shutdown(stream->fd, SHUT_WR);
}

static void on_writable(void *arg, int fd)
{
	struct net_stream *stream = arg;
	struct iovec parts[WRITE_PIECES];
	struct msghdr message = {.msg_iov = parts};
	if (stream->held)
		return;
	stream->in_callback = true;
	for (struct piece *piece = stream->first; piece && message.msg_iovlen < WRITE_PIECES; piece = piece->next)
		parts[message.msg_iovlen++] = (struct iovec){(void *)piece->at, piece->left};
	ssize_t sent = message.msg_iovlen ? sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
	if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		break_off(stream);
	for (size_t left = sent > 0 ? (size_t)sent : 0; left;) {
		size_t taken = least(left, stream->first->left);
		stream->first->at += taken;
		stream->first->left -= taken;
		stream->queued -= taken;
		left -= taken;
		if (!stream->first->left)
			drop_first(stream);
	}
	if (stream->first) {
		net_watch_want_write(stream->watch);
	} else if (stream->was_full && !stream->broken) {
		stream->was_full = false;
		if (stream->handler->drained)
			stream->handler->drained(stream->user, stream);
	}
	stream->in_callback = false;
	if (stream->destroyed)
		stream_free(stream);
}

static const struct net_watch_events stream_events = {.readable = on_readable, .writable = on_writable};

enum status net_stream_create(struct net_stream **out, struct net_loop *loop, int fd,
			      const struct net_stream_handler *handler, void *user, struct error *error)
{
	*out = NULL;
	struct net_stream *stream = malloc(sizeof(*stream));
	if (!stream)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	memset(stream, 0, sizeof(*stream));
	stream->handler = handler;
	stream->user = user;
	stream->fd = fd;
	stream->came_fd = -1;
	stream->last = &stream->first;
	buffer_init(&stream->head, LIMIT_HEAD_BYTES + 1);
	enum status status = net_watch_create(&stream->watch, loop, fd, &stream_events, stream, error);
	if (status) {
		free(stream);
		return status;
	}
	// As much as the system allows: what a refusal costs is speed.
	const int room = SOCKET_BYTES;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
	*out = stream;
	return STATUS_OK;
}

void net_stream_set_user(struct net_stream *stream, void *user)
{
	stream->user = user;
}

// Append what of `bytes` was not sent. `holder` NULL: copied.
static enum status queue_rest(struct net_stream *stream, struct net_frame *holder, const struct iovec *bytes,
			      size_t sent)
{
	if (sent >= bytes->iov_len)
		return STATUS_OK;
	const uint8_t *at = (const uint8_t *)bytes->iov_base + sent;
	size_t left = bytes->iov_len - sent;
	struct piece *piece = malloc(sizeof(*piece));
	struct net_frame *held = holder ? net_frame_ref(holder) : net_frame_create(at, left, false);
	if (!piece || !held) {
		free(piece);
		net_frame_unref(&held);
		return STATUS_OUT_OF_MEMORY;
	}
	*piece = (struct piece){.holder = held, .at = holder ? at : net_frame_data(held), .left = left};
	*stream->last = piece;
	stream->last = &piece->next;
	stream->queued += left;
	stream->pieces++;
	return STATUS_OK;
}

enum status net_stream_send(struct net_stream *stream, const void *head, size_t head_bytes, struct net_frame *holder,
			    const uint8_t *body, size_t body_bytes)
{
	uint8_t prefix[PREFIX_BYTES];
	struct iovec parts[3] = {{prefix, sizeof prefix}, {(void *)head, head_bytes}, {(void *)body, body_bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = body_bytes ? 3 : 2};
	if (head_bytes > LIMIT_HEAD_BYTES || body_bytes > LIMIT_BODY_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	if (stream->broken || stream->destroyed)
		return STATUS_OK; // nobody hears it; `closed` is on its way
	size_t total = sizeof prefix + head_bytes + body_bytes;
	if (stream->first &&
	    (stream->queued + total > LIMIT_STREAM_QUEUE_BYTES || stream->pieces >= LIMIT_STREAM_QUEUE_PIECES))
		return STATUS_LIMIT_EXCEEDED;
	put_u32le(prefix, 4 + head_bytes + body_bytes);
	put_u32le(prefix + 4, head_bytes);
	size_t sent = 0;
	if (!stream->first && !stream->held) {
		ssize_t now = sendmsg(stream->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (now < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
			break_off(stream);
			return STATUS_OK;
		}
		sent = now > 0 ? (size_t)now : 0;
	}
	for (size_t i = 0; i < message.msg_iovlen; i++) {
		if (queue_rest(stream, i == 2 ? holder : NULL, &parts[i], sent)) {
			break_off(stream); // half a message is worse than none
			return STATUS_OUT_OF_MEMORY;
		}
		sent -= least(sent, parts[i].iov_len);
	}
	if (stream->queued > LIMIT_STREAM_FULL_BYTES)
		stream->was_full = true;
	if (stream->first && !stream->held)
		net_watch_want_write(stream->watch);
	return STATUS_OK;
}

size_t net_stream_queued(const struct net_stream *stream)
{
	return stream->queued;
}

void net_stream_pause(struct net_stream *stream)
{
	if (!stream->pauses++ && !stream->destroyed)
		net_watch_want_read(stream->watch, false);
}

void net_stream_resume(struct net_stream *stream)
{
	if (stream->pauses && !--stream->pauses && !stream->destroyed)
		net_watch_want_read(stream->watch, true);
}

void net_stream_hold(struct net_stream *stream, bool held)
{
	stream->held = held;
	if (!held && stream->first && !stream->destroyed)
		net_watch_want_write(stream->watch);
}
