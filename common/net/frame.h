/* What a message to send looks like inside common/net; the rest of the program sees ws.h.
 *
 *     bytes                                start                     start + length        capacity
 *     +------------------------------------+-------------------------+---------------------+
 *     | room for headers                   | payload (length)        | unused              |
 *     +------------------------------------+-------------------------+---------------------+
 *
 * At least FRAME_HEADER_BYTES lie before the payload, for the WebSocket header and for libwebsockets. */
#pragma once
#include "common/net/ws.h"

enum { FRAME_HEADER_BYTES = 16 };

struct net_frame {
	unsigned references;
	bool text;
	size_t start, length, capacity;
	struct net_frame *next_kept;
	uint8_t bytes[]; // (capacity)
};

// Give back to the system what is kept for reuse.
void net_frame_forget(void);
