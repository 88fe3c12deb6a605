/* See hello.h.
 *
 *   record     type (22: handshake) | version, 2 bytes | length, 2 bytes | a part of a message
 *   message    type | length, 3 bytes | ...            in one record, or in several */
#include "common/net/http/hello.h"

enum { RECORD_HEAD = 5, RECORD_BYTES = 16384, MESSAGE_HEAD = 4, HANDSHAKE = 22 };

size_t net_hello_wants(const uint8_t *bytes, size_t length)
{
	uint8_t head[MESSAGE_HEAD];
	size_t at = 0, have = 0; // have: of the message
	for (;;) {
		if (length > at && bytes[at] != HANDSHAKE)
			return 0;
		if (length - at < RECORD_HEAD)
			return at + RECORD_HEAD;
		const size_t part = (size_t)bytes[at + 3] << 8 | bytes[at + 4];
		if (!part || part > RECORD_BYTES)
			return 0;
		if (length - at - RECORD_HEAD < part)
			return at + RECORD_HEAD + part;
		for (size_t i = 0; i < part && have + i < MESSAGE_HEAD; i++)
			head[have + i] = bytes[at + RECORD_HEAD + i];
		have += part;
		at += RECORD_HEAD + part;
		if (have >= MESSAGE_HEAD &&
		    have >= MESSAGE_HEAD + ((size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3]))
			return 0;
	}
}
