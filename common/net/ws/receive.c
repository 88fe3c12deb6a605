/* See receive.h. Order of reading: net_receiver_take, begin_frame, take_payload, end_frame. */
#include "common/net/ws/receive.h"

#include <string.h>

enum { PROTOCOL_ERROR = 1002, TOO_BIG = 1009, ROOM_LEAST = 4096 };

typedef uint8_t lanes __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) void mask_lanes(uint8_t *to, const uint8_t *from, size_t length,
							     const uint8_t mask[4], size_t at)
{
	lanes keys, values;
	size_t i = 0;
	for (size_t j = 0; j < sizeof(keys); j++)
		keys[j] = mask[(at + j) & 3];
	for (; i + sizeof(keys) <= length; i += sizeof(keys)) {
		memcpy(&values, from + i, sizeof(values));
		values ^= keys;
		memcpy(to + i, &values, sizeof(values));
	}
	for (; i < length; i++)
		to[i] = from[i] ^ mask[(at + i) & 3];
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void mask_avx2(uint8_t *to, const uint8_t *from, size_t length,
						      const uint8_t mask[4], size_t at)
{
	mask_lanes(to, from, length, mask, at);
}
#endif

void net_mask(uint8_t *to, const uint8_t *from, size_t length, const uint8_t mask[4], size_t at)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2")) {
		mask_avx2(to, from, length, mask, at);
		return;
	}
#endif
	mask_lanes(to, from, length, mask, at);
}

void net_receiver_finish(struct net_receiver *receiver)
{
	net_frame_unref(&receiver->frame);
}

// A frame of the length that is known so far; most messages are one fragment, and that is theirs.
static enum status make_room(struct net_receiver *receiver, size_t wanted)
{
	size_t filled = receiver->filled;
	if (receiver->frame && net_frame_bytes(receiver->frame) >= wanted)
		return STATUS_OK;
	size_t room = wanted > 2 * filled ? wanted : 2 * filled;
	struct net_frame *larger = net_frame_alloc(room < receiver->limit ? room : receiver->limit);
	if (!larger)
		return STATUS_OUT_OF_MEMORY;
	if (filled)
		memcpy(net_frame_data(larger), net_frame_data(receiver->frame), filled);
	net_frame_unref(&receiver->frame);
	receiver->frame = larger;
	return STATUS_OK;
}

enum status net_receiver_collect(struct net_receiver *receiver, const uint8_t *bytes, size_t length, size_t ahead)
{
	enum status status = make_room(receiver, receiver->filled + length + ahead);
	if (status)
		return status;
	if (length)
		memcpy(net_frame_data(receiver->frame) + receiver->filled, bytes, length);
	receiver->filled += length;
	return STATUS_OK;
}

static bool is_control(const struct net_receiver *receiver)
{
	return receiver->opcode >= OPCODE_CLOSE;
}

static void message_over(struct net_receiver *receiver, const uint8_t *bytes, size_t length)
{
	receiver->in_message = false;
	receiver->filled = 0;
	receiver->events->message(receiver->arg, bytes, length, receiver->binary);
	net_frame_unref(&receiver->frame);
}

static void end_frame(struct net_receiver *receiver)
{
	receiver->in_payload = false;
	receiver->header_bytes = 0;
	if (is_control(receiver)) {
		receiver->events->control(receiver->arg, (enum net_opcode)receiver->opcode, receiver->control,
					  receiver->payload_at);
	} else if (receiver->last) {
		static const uint8_t nothing[1];
		if (receiver->frame)
			receiver->frame->length = receiver->filled;
		message_over(receiver, receiver->frame ? net_frame_data(receiver->frame) : nothing, receiver->filled);
	}
}

// How long a header is, from its first two bytes.
static unsigned header_length(const uint8_t *header)
{
	unsigned length = header[1] & 127;
	return 2u + (length == 126 ? 2u : length == 127 ? 8u : 0u) + (header[1] & 0x80 ? 4u : 0u);
}

// The header is whole. Returns 0 or the code to close with.
static int begin_frame(struct net_receiver *receiver)
{
	const uint8_t *header = receiver->header;
	unsigned short_length = header[1] & 127, at = 2;
	uint64_t length = short_length;
	receiver->last = header[0] & 0x80;
	receiver->opcode = header[0] & 15;
	if (short_length >= 126)
		for (length = 0; at < (short_length == 126 ? 4u : 10u); at++)
			length = length << 8 | header[at];
	if (!receiver->unmasked)
		memcpy(receiver->mask, header + at, sizeof(receiver->mask));
	switch (receiver->opcode) {
	case OPCODE_CLOSE:
	case OPCODE_PING:
	case OPCODE_PONG:
		if (!receiver->last || length > RECEIVE_CONTROL_BYTES)
			return PROTOCOL_ERROR;
		break;
	case OPCODE_MORE:
		if (!receiver->in_message)
			return PROTOCOL_ERROR;
		break;
	case OPCODE_TEXT:
	case OPCODE_BINARY:
		if (receiver->in_message)
			return PROTOCOL_ERROR;
		receiver->in_message = true;
		receiver->binary = receiver->opcode == OPCODE_BINARY;
		break;
	default: // a number from outside, not an enum
		return PROTOCOL_ERROR;
	}
	if (!is_control(receiver) &&
	    (receiver->filled > receiver->limit || length > receiver->limit - receiver->filled))
		return TOO_BIG;
	receiver->left = length;
	receiver->payload_at = 0;
	receiver->in_payload = true;
	if (!length)
		end_frame(receiver);
	return 0;
}

static int take_payload(struct net_receiver *receiver, uint8_t *bytes, size_t length)
{
	if (!receiver->unmasked)
		net_mask(bytes, bytes, length, receiver->mask, receiver->payload_at);
	bool whole = length == receiver->left;
	if (is_control(receiver)) {
		memcpy(receiver->control + receiver->payload_at, bytes, length);
	} else if (whole && receiver->last && !receiver->payload_at && !receiver->filled && !receiver->frame) {
		receiver->in_payload = false;
		receiver->header_bytes = 0;
		message_over(receiver, bytes, length);
		return 0;
	} else if (net_receiver_collect(receiver, bytes, length, receiver->left - length)) {
		return TOO_BIG;
	}
	receiver->payload_at += length;
	receiver->left -= length;
	if (whole)
		end_frame(receiver);
	return 0;
}

// Up to the end of the header that is coming. Returns how many bytes it took.
static size_t take_header(struct net_receiver *receiver, const uint8_t *bytes, size_t length, int *code)
{
	size_t taken = 0;
	while (taken < length && !receiver->in_payload) {
		receiver->header[receiver->header_bytes++] = bytes[taken++];
		const uint8_t *header = receiver->header;
		if (receiver->header_bytes < 2)
			continue;
		if (header[0] & 0x70 || receiver->unmasked == (header[1] >= 0x80)) {
			*code = PROTOCOL_ERROR; // an extension that nobody agreed on, or a mask where none is due
			break;
		}
		if (receiver->header_bytes < header_length(header))
			continue;
		*code = begin_frame(receiver);
		break;
	}
	return taken;
}

int net_receiver_take(struct net_receiver *receiver, uint8_t *bytes, size_t length, size_t *taken)
{
	int code = 0;
	bool enough = false;
	size_t at = 0;
	while (!code && at < length && !enough) {
		size_t now = length - at;
		if (receiver->in_payload) {
			now = receiver->left < now ? (size_t)receiver->left : now;
			code = take_payload(receiver, bytes + at, now);
		} else {
			now = take_header(receiver, bytes + at, now, &code);
		}
		at += now;
		bool between = !receiver->in_payload && !receiver->header_bytes;
		enough = between && receiver->events->enough && receiver->events->enough(receiver->arg);
	}
	if (taken)
		*taken = at;
	return code;
}

size_t net_receiver_room(struct net_receiver *receiver, uint8_t **to)
{
	if (!receiver->in_payload || is_control(receiver) || receiver->left < ROOM_LEAST ||
	    make_room(receiver, receiver->filled + (size_t)receiver->left))
		return 0;
	*to = net_frame_data(receiver->frame) + receiver->filled;
	return (size_t)receiver->left;
}

void net_receiver_filled(struct net_receiver *receiver, size_t length)
{
	if (!length)
		return;
	uint8_t *bytes = net_frame_data(receiver->frame) + receiver->filled;
	if (!receiver->unmasked)
		net_mask(bytes, bytes, length, receiver->mask, receiver->payload_at);
	receiver->filled += length;
	receiver->payload_at += length;
	receiver->left -= length;
	if (!receiver->left)
		end_frame(receiver);
}
