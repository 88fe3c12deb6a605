/* See parts.h. */
#include "common/net/ws/parts.h"

#include "common/base/bytes.h"
#include "common/net/frame.h"

#include <string.h>

enum { PREFIX_BYTES = 4 };

// The holder itself, so that it begins where the message will. NULL if that cannot be.
static struct net_frame *trim_holder(const struct net_parts *parts)
{
	struct net_frame *frame = parts->holder;
	if (!frame || frame->references != 1 || frame->text || frame->outside ||
	    parts->body + parts->body_bytes != net_frame_data(frame) + frame->length)
		return NULL;
	size_t start = (size_t)(parts->body - frame->bytes);
	if (start < FRAME_HEADER_BYTES + PREFIX_BYTES + parts->head_bytes)
		return NULL;
	frame->start = start - PREFIX_BYTES - parts->head_bytes;
	frame->length = PREFIX_BYTES + parts->head_bytes + parts->body_bytes;
	return net_frame_ref(frame);
}

enum status net_conn_send_parts(struct net_conn *conn, const struct net_parts *parts)
{
	size_t total = PREFIX_BYTES + parts->head_bytes + parts->body_bytes, queued = net_conn_queued_bytes(conn);
	if (parts->head_bytes > LIMIT_HEAD_BYTES || parts->body_bytes > LIMIT_BODY_BYTES ||
	    (queued && queued + total > LIMIT_STREAM_QUEUE_BYTES) ||
	    net_conn_queued_messages(conn) >= LIMIT_SEND_QUEUE_MESSAGES)
		return STATUS_LIMIT_EXCEEDED;
	struct net_frame *frame = trim_holder(parts);
	if (!frame) {
		frame = net_frame_alloc(total);
		if (!frame)
			return STATUS_OUT_OF_MEMORY;
		if (parts->body_bytes)
			memcpy(net_frame_data(frame) + PREFIX_BYTES + parts->head_bytes, parts->body,
			       parts->body_bytes);
	}
	put_u32le(net_frame_data(frame), parts->head_bytes);
	memcpy(net_frame_data(frame) + PREFIX_BYTES, parts->head, parts->head_bytes);
	enum status status = net_conn_send(conn, frame, 0);
	net_frame_unref(&frame);
	return status == STATUS_UNAVAILABLE ? STATUS_OK : status; // nobody hears it; `closed` is on its way
}

enum status net_conn_take_parts(struct net_conn *conn, const uint8_t *bytes, size_t length, struct net_parts *parts)
{
	*parts = (struct net_parts){0};
	if (length < PREFIX_BYTES)
		return STATUS_PARSE_ERROR;
	size_t head = read_u32le(bytes);
	if (head > length - PREFIX_BYTES)
		return STATUS_PARSE_ERROR;
	size_t body = length - PREFIX_BYTES - head;
	if (head > LIMIT_HEAD_BYTES || body > LIMIT_BODY_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	parts->head = bytes + PREFIX_BYTES;
	parts->head_bytes = head;
	if (!body)
		return STATUS_OK;
	parts->holder = net_conn_take_frame(conn);
	if (parts->holder) {
		parts->holder->start += PREFIX_BYTES + head;
		parts->holder->length = body;
	} else {
		parts->holder = net_frame_alloc(body);
		if (!parts->holder)
			return STATUS_OUT_OF_MEMORY;
		memcpy(net_frame_data(parts->holder), parts->head + head, body);
	}
	parts->body = net_frame_data(parts->holder);
	parts->body_bytes = body;
	return STATUS_OK;
}
