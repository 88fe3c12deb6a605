/* The receiving side of a WebSocket (RFC 6455): frames, masked or not, in pieces as they arrive.
 * libwebsockets unmasks byte by byte, which is two thirds of a server's cost for bulk data. So
 * accepted connections, and dialled ones that speak first, are read here. A message that lies
 * whole in the input is unmasked in place; a larger one is received directly into the frame that
 * will be passed on. This code knows no sockets: the owner reads and passes the bytes. A protocol
 * error gives the code to close with: 1002, or 1009 for a message over `limit`. Thread: its
 * owner's. */
#pragma once
#include "common/net/frame.h"

enum net_opcode {
	OPCODE_MORE = 0,
	OPCODE_TEXT = 1,
	OPCODE_BINARY = 2,
	OPCODE_CLOSE = 8,
	OPCODE_PING = 9,
	OPCODE_PONG = 10
};

enum { RECEIVE_CONTROL_BYTES = 125 };

struct net_receiver_events {
	// One whole message; a large one lies in receiver->frame. Bytes are valid during the call.
	void (*message)(void *arg, const uint8_t *bytes, size_t length, bool binary);
	void (*control)(void *arg, enum net_opcode opcode, const uint8_t *bytes, size_t length);
	// May be NULL. Asked after each frame: true leaves what follows it where it lies.
	bool (*enough)(void *arg);
};

struct net_receiver {
	const struct net_receiver_events *events;
	void *arg;
	size_t limit;  // of a message, in bytes; the owner may change it
	bool unmasked; // what comes is a server's
	// of the frame that comes
	uint8_t header[14];
	unsigned header_bytes;
	bool in_payload, last;
	uint8_t opcode, mask[4], control[RECEIVE_CONTROL_BYTES];
	uint64_t left;     // of its payload
	size_t payload_at; // how much of it has come
	// of the message
	bool in_message, binary;
	struct net_frame *frame; // where it is put together; NULL: nothing of it yet
	size_t filled;
};

// Put the mask on bytes, or take it off; `to` may be `from`. `at`: where in the payload the first byte lies.
void net_mask(uint8_t *to, const uint8_t *from, size_t length, const uint8_t mask[4], size_t at);
void net_receiver_finish(struct net_receiver *receiver);
// Bytes have come; they are changed in place. *taken: how many of them, all unless there was enough; may be NULL where
// there never is. Returns 0, or the code to close with: then nothing more is to be taken.
int net_receiver_take(struct net_receiver *receiver, uint8_t *bytes, size_t length, size_t *taken);
// The place and length for receiving the rest of a large payload directly; 0: none, or out of memory.
size_t net_receiver_room(struct net_receiver *receiver, uint8_t **to);
// Tells that this many bytes were received there.
void net_receiver_filled(struct net_receiver *receiver, size_t length);
// Put a piece that is unmasked already where the message is put together; `ahead` bytes of it are known to follow.
enum status net_receiver_collect(struct net_receiver *receiver, const uint8_t *bytes, size_t length, size_t ahead);
