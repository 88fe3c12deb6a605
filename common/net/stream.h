/* Messages over a Unix stream socket, for bulk between our own processes: no masking, no frames, one copy in and one
 * out.
 *
 * The bytes are those of common/wire/message.h with a total before each:
 *
 *     0         4              8                   8 + head       4 + total
 *     +---------+--------------+-------------------+--------------+
 *     | total   | head length  | JSON-RPC object   | body         |     lengths u32 little-endian
 *     +---------+--------------+-------------------+--------------+
 *
 * A body is received straight into a frame (ws.h) with room before it, so that it can go on to a WebSocket or another
 * stream without being copied. Sending keeps what the socket does not take in a queue of at most
 * LIMIT_STREAM_QUEUE_BYTES; whoever sends bulk stops when `queued` says that there is much, and goes on at `drained`.
 * Thread: the loop's. A stream is valid until its `closed` callback returns. */
#pragma once
#include "common/net/ws/ws.h"

// The socket of workers, in the data directory, beside the one of clients and nodes.
#define NET_STREAM_SOCKET "workers.sock"

struct net_stream;
struct net_stream_listener;

struct net_stream_handler {
	// One whole message. head (head_bytes): not checked, valid during the call. body: NULL without one; take a
	// reference to keep it.
	void (*message)(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
			struct net_frame *body);
	void (*drained)(void *user,
			struct net_stream *stream); // the queue was over LIMIT_STREAM_FULL_BYTES and is empty
	void (*closed)(void *user, struct net_stream *stream,
		       const char *why); // last call; never from inside a call here
};

// Accept on a Unix socket of mode 0600 of this user; another user's peers are refused. `accepted` returns the user of
// the handler's calls, or NULL to refuse. Errors: as net_listener_create.
struct net_stream_listener_params {
	const char *socket_path;
	const struct net_stream_handler *handler;
	void *(*accepted)(void *context, struct net_stream *stream);
	void *context;
};
enum status net_stream_listen(struct net_stream_listener **out, struct net_loop *loop,
			      const struct net_stream_listener_params *params, struct error *error);
void net_stream_listener_destroy(struct net_stream_listener **listener); // open streams stay

// Take a connected socket. Errors: STATUS_OUT_OF_MEMORY, STATUS_UNAVAILABLE (fd stays the caller's then).
enum status net_stream_create(struct net_stream **out, struct net_loop *loop, int fd,
			      const struct net_stream_handler *handler, void *user, struct error *error);
// Close now; what is queued is dropped; `closed` is not called. Accepts NULL, leaves NULL behind. Safe in callbacks.
void net_stream_destroy(struct net_stream **stream);

// Send head and body (body_bytes may be 0). `holder`: the frame that the body lies in, referenced while it waits; NULL:
// what has to wait is copied. Errors: STATUS_LIMIT_EXCEEDED (the queue is full; nothing was sent),
// STATUS_OUT_OF_MEMORY.
enum status net_stream_send(struct net_stream *stream, const void *head, size_t head_bytes, struct net_frame *holder,
			    const uint8_t *body, size_t body_bytes);
size_t net_stream_queued(const struct net_stream *stream);
// The descriptor that came with what was said so far, the caller's from now on; -1: none. One is kept, others are
// closed.
int net_stream_take_fd(struct net_stream *stream);
// Stop and go on reading: the peer is held back by its socket. Counted: as many resumes as pauses.
void net_stream_pause(struct net_stream *stream);
void net_stream_resume(struct net_stream *stream);
// Stop and go on sending: what is queued waits, and what is sent joins it.
void net_stream_hold(struct net_stream *stream, bool held);
