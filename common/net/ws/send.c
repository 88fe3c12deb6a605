/* What a connection sends: a bounded ring of shared frames. They are written
 * when the socket can take them, large ones in fragments; if nothing waits, they
 * are written at once, which saves a turn through the poll. The part of a frame
 * that the socket does not take goes to the carrier (carrier.c), which sends it
 * first. Pings and pongs go between fragments (docs/performance.md). Thread: the
 * loop's. */
#include "common/net/ws/conn.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum put_result { PUT_BROKEN = -1, PUT_NOTHING, PUT_PART, PUT_ALL };
enum {
	DIRECT_FRAME_BYTES = 16384, // frames up to this size are sent without the queue where nothing waits
	FRAGMENTS_A_TURN = 4,
	RECORD_BYTES = 16384, // of TLS
	MASKS_AT_ONCE = 256,
};

static_assert(FRAME_HEADER_BYTES >= 2 + 8 + 4, "a frame's header needs more room before its payload");

static struct queued *queue_at(struct net_conn *conn, size_t index)
{
	return &conn->queue[(conn->queue_first + index) & (conn->queue_capacity - 1)];
}

void net_queue_clear(struct net_conn *conn)
{
	for (size_t i = 0; i < conn->queue_count; i++)
		net_frame_unref(&queue_at(conn, i)->frame);
	conn->queue_count = conn->queue_bytes = conn->bulk_bytes = conn->first_sent = 0;
}

static enum status queue_grow(struct net_conn *conn)
{
	size_t capacity = conn->queue_capacity ? conn->queue_capacity * 2 : 8;
	struct queued *queue = malloc(capacity * sizeof(*queue));
	if (!queue)
		return STATUS_OUT_OF_MEMORY;
	for (size_t i = 0; i < conn->queue_count; i++)
		queue[i] = *queue_at(conn, i);
	free(conn->queue);
	conn->queue = queue;
	conn->queue_capacity = capacity;
	conn->queue_first = 0;
	return STATUS_OK;
}

// Take the waiting frame of this key out, so that its successor can go to the end.
static void queue_drop_key(struct net_conn *conn, uint64_t key)
{
	size_t kept = 0;
	for (size_t i = 0; i < conn->queue_count; i++) {
		struct queued *entry = queue_at(conn, i);
		if (entry->key == key && !(i == 0 && conn->first_sent)) {
			conn->queue_bytes -= entry->frame->length;
			conn->bulk_bytes -= entry->frame->text ? 0 : entry->frame->length;
			net_frame_unref(&entry->frame);
		} else {
			*queue_at(conn, kept++) = *entry;
		}
	}
	conn->queue_count = kept;
}

static enum status queue_push(struct net_conn *conn, struct net_frame *frame, uint64_t key)
{
	if (key)
		queue_drop_key(conn, key);
	// Bulk was asked for, and whoever sends it holds back by `drained`: it does not make the rest too much.
	size_t waiting = frame->text ? conn->queue_bytes - conn->bulk_bytes : conn->bulk_bytes;
	size_t most = frame->text ? (size_t)LIMIT_SEND_QUEUE_BYTES : (size_t)LIMIT_STREAM_QUEUE_BYTES;
	if (conn->queue_count >= LIMIT_SEND_QUEUE_MESSAGES || (waiting && waiting + frame->length > most))
		return STATUS_LIMIT_EXCEEDED;
	if (conn->queue_count == conn->queue_capacity && queue_grow(conn))
		return STATUS_OUT_OF_MEMORY;
	*queue_at(conn, conn->queue_count++) = (struct queued){.frame = net_frame_ref(frame), .key = key};
	conn->queue_bytes += frame->length;
	conn->bulk_bytes += frame->text ? 0 : frame->length;
	return STATUS_OK;
}

static size_t fragment_header(uint8_t *header, const struct net_frame *frame, size_t at, size_t length)
{
	bool last = at + length == frame->length;
	header[0] = (uint8_t)((last ? 0x80 : 0) | (at ? 0 : frame->text ? 1 : 2));
	if (length < 126) {
		header[1] = (uint8_t)length;
		return 2;
	}
	if (length < 65536) {
		header[1] = 126;
		header[2] = (uint8_t)(length >> 8);
		header[3] = (uint8_t)length;
		return 4;
	}
	header[1] = 127;
	for (int i = 0; i < 8; i++)
		header[2 + i] = (uint8_t)((uint64_t)length >> (56 - 8 * i));
	return 10;
}

// Returns how much was written, 0 if the socket is full, -1 if it is broken. A record at a time: what is not written of
// one must be written again, and the carrier, which gets the rest, does so.
static ssize_t write_record(SSL *ssl, const uint8_t *bytes, size_t length)
{
	size_t written = 0;
	ERR_clear_error();
	if (SSL_write_ex(ssl, bytes, length < RECORD_BYTES ? length : (size_t)RECORD_BYTES, &written) == 1)
		return (ssize_t)written;
	int error = SSL_get_error(ssl, 0);
	return error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ ? 0 : -1;
}

static ssize_t write_plain(int fd, const uint8_t *bytes, size_t length)
{
	ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
	return sent >= 0 ? sent : errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

// Bytes as they are, while nothing waits; what the socket does not take of them waits in the carrier, or as records.
static enum put_result put(struct net_conn *conn, uint8_t *bytes, size_t length)
{
	struct net_records *records = length > RECORD_BYTES ? conn->records : NULL;
	size_t done = 0;
	ssize_t now = 1;
	if (records)
		net_records_gather(records);
	while (done < length && now > 0) {
		now = conn->ssl ? write_record(conn->ssl, bytes + done, length - done)
				: write_plain(conn->fd, bytes + done, length - done);
		done += now > 0 ? (size_t)now : 0;
	}
	const int sent = records ? net_records_send(records) : 1;
	if (now < 0 || sent < 0)
		return PUT_BROKEN;
	if (done == length) {
		if (!sent)
			net_carrier_want_write(conn);
		return sent ? PUT_ALL : PUT_PART;
	}
	if (!done && !conn->ssl)
		return PUT_NOTHING;
	return net_carrier_send(conn, bytes + done, length - done) < 0 ? PUT_BROKEN : PUT_PART;
}

// The mask of a frame need only be one that nobody foresees. Drawn in stock.
static void draw_mask(uint8_t mask[4])
{
	static uint8_t stock[MASKS_AT_ONCE][4];
	static size_t left;
	if (!left && RAND_bytes(stock[0], sizeof stock) == 1)
		left = MASKS_AT_ONCE;
	memcpy(mask, stock[left ? --left : 0], 4);
}

// A frame on its way out. The header is put before the payload, over what others may still have to send: it is put
// back. A client's is masked as it is copied.
struct outgoing {
	uint8_t header[FRAME_HEADER_BYTES];
	size_t header_bytes;
	uint8_t *payload; // (length), with room for the header before it
	size_t length;
};

static enum put_result send_masked(struct net_conn *conn, const struct outgoing *frame, const struct iovec *payload,
				   size_t count)
{
	static uint8_t masked[FRAME_HEADER_BYTES + NET_FRAGMENT_MOST_BYTES]; // the loop's thread alone sends
	uint8_t mask[4];
	size_t done = 0;
	draw_mask(mask);
	memcpy(masked, frame->header, frame->header_bytes);
	masked[1] |= 0x80;
	memcpy(masked + frame->header_bytes, mask, sizeof mask);
	for (size_t i = 0; i < count; done += payload[i++].iov_len)
		net_mask(masked + frame->header_bytes + 4 + done, payload[i].iov_base, payload[i].iov_len, mask, done);
	return put(conn, masked, frame->header_bytes + 4 + frame->length);
}

static enum put_result send_framed(struct net_conn *conn, const struct outgoing *frame)
{
	uint8_t before[FRAME_HEADER_BYTES], *start = frame->payload - frame->header_bytes;
	if (conn->masks)
		return send_masked(conn, frame, &(struct iovec){frame->payload, frame->length}, 1);
	memcpy(before, start, frame->header_bytes);
	memcpy(start, frame->header, frame->header_bytes);
	enum put_result result = put(conn, start, frame->header_bytes + frame->length);
	memcpy(start, before, frame->header_bytes);
	return result;
}

// The parts of a fragment whose payload is nobody's to write to, or lies in two places. Returns how many.
static size_t fragment_parts(struct iovec parts[2], struct net_frame *frame, size_t at, size_t length)
{
	size_t count = 0, own = frame->length - (frame->rest ? frame->rest->length : 0);
	if (at < own) {
		size_t here = length < own - at ? length : own - at;
		parts[count++] = (struct iovec){net_frame_data(frame) + at, here};
		at += here;
		length -= here;
	}
	if (length)
		parts[count++] = (struct iovec){net_frame_data(frame->rest) + (at - own), length};
	return count;
}

// Sends the parts with one system call if possible; otherwise joins them first.
static enum put_result send_gathered(struct net_conn *conn, struct outgoing *out, const struct iovec *payload,
				     size_t count)
{
	static uint8_t whole[FRAME_HEADER_BYTES + NET_FRAGMENT_MOST_BYTES]; // the loop's thread alone sends
	struct iovec parts[3] = {{out->header, out->header_bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1 + count};
	ssize_t sent = 0;
	if (conn->masks)
		return send_masked(conn, out, payload, count);
	memcpy(parts + 1, payload, count * sizeof *payload);
	if (!conn->ssl) {
		sent = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? PUT_NOTHING : PUT_BROKEN;
		if ((size_t)sent == out->header_bytes + out->length)
			return PUT_ALL;
	}
	uint8_t *at = out->payload = whole + FRAME_HEADER_BYTES;
	for (size_t i = 0; i < count; at += payload[i++].iov_len)
		memcpy(at, payload[i].iov_base, payload[i].iov_len);
	if (!sent)
		return send_framed(conn, out);
	memcpy(out->payload - out->header_bytes, out->header, out->header_bytes);
	size_t left = out->header_bytes + out->length - (size_t)sent;
	return net_carrier_send(conn, out->payload + out->length - left, left) < 0 ? PUT_BROKEN : PUT_PART;
}

static enum put_result send_fragment(struct net_conn *conn, struct net_frame *frame, size_t at, size_t length)
{
	struct outgoing out = {.length = length};
	struct iovec payload[2];
	out.header_bytes = fragment_header(out.header, frame, at, length);
	if (frame->outside || frame->rest)
		return send_gathered(conn, &out, payload, fragment_parts(payload, frame, at, length));
	out.payload = net_frame_data(frame) + at;
	return send_framed(conn, &out);
}

int net_send_control(struct net_conn *conn, enum net_opcode opcode, const uint8_t *payload, size_t length)
{
	uint8_t bytes[2 + RECEIVE_CONTROL_BYTES];
	struct outgoing out = {.header = {(uint8_t)(0x80 | opcode), (uint8_t)length}, // at most 125
			       .header_bytes = 2,
			       .payload = bytes + 2,
			       .length = length};
	memcpy(bytes + 2, payload, length);
	enum put_result result = send_framed(conn, &out);
	return result == PUT_BROKEN ? -1 : result != PUT_NOTHING;
}

// Sends the frame at once if nothing waits before it; false: the caller must queue it.
static bool send_directly(struct net_conn *conn, struct net_frame *frame)
{
	if (conn->fd < 0 || conn->held || conn->queue_count || frame->length > DIRECT_FRAME_BYTES || net_blocked(conn))
		return false;
	enum put_result result = send_fragment(conn, frame, 0, frame->length);
	if (result == PUT_BROKEN)
		net_carrier_end(conn);
	return result != PUT_NOTHING;
}

// Send from the queue what the socket takes, FRAGMENTS_A_TURN at most. Returns -1 if the connection is broken.
int net_queue_send(struct net_conn *conn)
{
	enum put_result result = PUT_ALL;
	for (int i = 0; i < FRAGMENTS_A_TURN && result == PUT_ALL && conn->queue_count; i++) {
		struct net_frame *frame = queue_at(conn, 0)->frame;
		size_t left = frame->length - conn->first_sent,
		       length = left <= NET_FRAGMENT_MOST_BYTES ? left : NET_FRAGMENT_BYTES;
		result = send_fragment(conn, frame, conn->first_sent, length);
		if (result == PUT_BROKEN)
			return -1;
		if (result == PUT_NOTHING)
			return 0;
		conn->first_sent += length;
		conn->queue_bytes -= length;
		conn->bulk_bytes -= frame->text ? 0 : length;
		if (conn->first_sent < frame->length)
			continue;
		conn->first_sent = 0;
		conn->queue_first = (conn->queue_first + 1) & (conn->queue_capacity - 1);
		conn->queue_count--;
		net_frame_unref(&frame);
	}
	return 0;
}

enum status net_conn_send(struct net_conn *conn, struct net_frame *frame, uint64_t key)
{
	if (conn->closing || conn->closed)
		return STATUS_UNAVAILABLE;
	if (send_directly(conn, frame))
		return STATUS_OK;
	enum status status = queue_push(conn, frame, key);
	if (status) {
		net_conn_close(conn, 4408, "too slow: the outgoing queue is full");
		return status;
	}
	if (!conn->opened)
		return STATUS_OK;
	if (conn->fd >= 0 && !conn->held && conn->queue_count == 1 && !net_blocked(conn))
		net_queue_send(conn); // that the connection is broken is found again, and told, when it is writable
	if (conn->queue_bytes > LIMIT_STREAM_FULL_BYTES)
		conn->was_full = true;
	if (conn->queue_count && !conn->held)
		net_carrier_want_write(conn);
	return STATUS_OK;
}

void net_conn_hold(struct net_conn *conn, bool held)
{
	conn->held = held;
	if (!held && conn->opened && !conn->closed && conn->queue_count)
		net_carrier_want_write(conn);
}

enum status net_conn_send_text(struct net_conn *conn, const char *text, size_t length)
{
	struct net_frame *frame = net_frame_create(text, length, true);
	if (!frame)
		return STATUS_OUT_OF_MEMORY;
	enum status status = net_conn_send(conn, frame, 0);
	net_frame_unref(&frame);
	return status;
}

size_t net_conn_queued_bytes(const struct net_conn *conn)
{
	return conn->queue_bytes;
}

size_t net_conn_queued_messages(const struct net_conn *conn)
{
	return conn->queue_count;
}
