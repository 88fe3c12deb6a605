/* Messages with bodies as binary WebSocket frames, in the form of common/wire/message.h: u32 little-endian length of
 * the header, header, body. So a message passes unchanged between a stream (stream.h) and a WebSocket, and a body in a
 * frame of its own is not copied. Thread: the loop's. */
#pragma once
#include "common/net/ws/ws.h"

struct net_parts {
	const uint8_t *head; // (head_bytes)
	size_t head_bytes;
	const uint8_t *body; // (body_bytes), may be NULL
	size_t body_bytes;
	struct net_frame *holder; // that the body lies in; NULL: it lies elsewhere
};

// Send them as one message. The head goes before the body where that lies, if nobody else holds the frame and it ends
// with the body; else both are copied. Errors, and then nothing was sent: STATUS_LIMIT_EXCEEDED (the queue is full),
// STATUS_OUT_OF_MEMORY.
enum status net_conn_send_parts(struct net_conn *conn, const struct net_parts *parts);

// Inside net_handler.message: what a binary message consists of. The holder is a frame that is the body and nothing
// else, the caller's to unref; NULL without a body. The head is valid until then, and no longer than `bytes`. Errors:
// STATUS_PARSE_ERROR (a length that the message has not), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status net_conn_take_parts(struct net_conn *conn, const uint8_t *bytes, size_t length, struct net_parts *parts);
