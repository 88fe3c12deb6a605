/* What a message to send looks like inside common/net; the rest of the program sees ws.h.
 *
 *     bytes                                start                     start + length        capacity
 *     +------------------------------------+-------------------------+---------------------+
 *     | room for headers                   | payload (length)        | unused              |
 *     +------------------------------------+-------------------------+---------------------+
 *
 * At least FRAME_HEADER_BYTES lie before the payload, for the WebSocket header and for libwebsockets. The payload may
 * also lie elsewhere, in memory that is only read, and that of another frame may follow it. */
#pragma once
#include "common/net/ws/ws.h"

enum { FRAME_HEADER_BYTES = 16 };

struct net_frame {
	unsigned references;
	bool text;
	size_t start, length, capacity; // length: with that of `rest`
	struct net_frame *next_kept;
	struct net_frame *rest; // whose payload follows; NULL: none
	// Where the payload lies, and who is told when nobody holds it any more. NULL: in `bytes`.
	const uint8_t *outside;
	void (*release)(void *owner, const uint8_t *bytes, size_t length);
	void *owner;
	uint8_t bytes[]; // (capacity)
};

// A binary frame of bytes that lie elsewhere. NULL if out of memory; then `release` is not called.
struct net_frame_outside {
	const uint8_t *bytes; // (length)
	size_t length;
	void (*release)(void *owner, const uint8_t *bytes, size_t length);
	void *owner;
};
struct net_frame *net_frame_create_outside(const struct net_frame_outside *outside);

// Give back to the system what is kept for reuse.
void net_frame_forget(void);
