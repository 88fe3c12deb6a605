/* WebSocket connections of both ends; see ws.h.
 *
 * Sending: each connection has a bounded ring of shared frames. They are written when the socket can take them, large
 * ones in fragments, or at once where nothing waits before them: one system call instead of a turn through the poll,
 * and for a fragment no copy of its payload. What the socket does not take goes to libwebsockets as it is, which sends
 * it before anything of its own: its pings and pongs go between fragments (docs/performance.md). Receiving: what a
 * listener has accepted without TLS is read here once the handshake is done, past libwebsockets, which is told to leave
 * it alone (receive.h says why); it still watches over the peer's silence, sends its pings and closes. What was
 * dialled, and TLS, is received by it. Either way a message is put together up to the connection's limit, which is
 * small until the peer is trusted. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/frame.h"
#include "common/net/loop_lws.h"
#include "common/net/receive.h"
#include "common/net/tls_lws.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	DIRECT_FRAME_BYTES = 16384, // frames up to this size are sent without the queue where nothing waits
	FRAGMENTS_A_TURN = 4,
	CLOSE_REASON_BYTES = 120,
	CLOSE_WAIT_S = 5,
	READ_BYTES = 65536,            // of small messages, all that is there
	READ_BEHIND_BYTES = 4096,      // of what follows a large payload
	READ_TURN_BYTES = 1024 * 1024, // of one connection, before others have their turn
	KEYS_MS = 3600 * 1000,
};
static const uint64_t KEYS_BYTES = (uint64_t)64 << 30;

static_assert(FRAME_HEADER_BYTES >= LWS_PRE, "libwebsockets needs more room before a payload");

struct queued {
	struct net_frame *frame;
	uint64_t key;
};

// What sending a broadcast touches stands first, in one line of cache.
struct net_conn {
	struct net_session session;
	struct lws *wsi;
	size_t queue_count;
	int direct; // the socket, where a frame may be sent past libwebsockets; else -1
	bool opened, closed, closing, close_sent, was_full, held;
	struct net_conn *next, **at; // in the loop's list
	const struct net_handler *handler;
	void *user;
	int close_code;
	char close_reason[CLOSE_REASON_BYTES + 1];
	struct net_receiver rx;
	struct net_watch *rx_watch; // of the socket, where it is read here; else NULL
	uint8_t pong[RECEIVE_CONTROL_BYTES];
	size_t pong_bytes;
	bool pong_due;  // the last ping is not answered yet
	bool rx_broken; // what came was no WebSocket: the rest is read and dropped, so that our close frame arrives
	unsigned pauses;
	struct net_timer held_back; // while it is paused
	struct queued *queue;       // ring of (queue_capacity, a power of two)
	size_t queue_capacity, queue_first, queue_bytes;
	size_t bulk_bytes;           // of queue_bytes, those in binary frames
	size_t first_sent;           // of the first frame in the queue: it is being sent in fragments
	char *bearer;                // of one that dials
	struct net_dialled *dialled; // of one that dials by TLS; else NULL
	bool *gone;                  // set when this is destroyed, while net_dial is on the stack
	lws_retry_bo_t liveness;
	int64_t heard_ms; // steady clock: when anything came last
	// Of TLS: when the keys were new and how much had gone then.
	int64_t keys_ms;
	uint64_t keys_bytes;
	bool keys_due; // they are to be changed when nothing waits
};

static struct queued *queue_at(struct net_conn *conn, size_t index)
{
	return &conn->queue[(conn->queue_first + index) & (conn->queue_capacity - 1)];
}

static void queue_clear(struct net_conn *conn)
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

// The frame's WebSocket header, written where libwebsockets would write it: just before the payload.
static size_t put_header(struct net_frame *frame)
{
	uint8_t *payload = net_frame_data(frame), opcode = frame->text ? 0x81 : 0x82;
	size_t length = frame->length;
	if (length < 126) {
		payload[-2] = opcode;
		payload[-1] = (uint8_t)length;
		return 2;
	}
	payload[-4] = opcode; // callers keep length < 65536
	payload[-3] = 126;
	payload[-2] = (uint8_t)(length >> 8);
	payload[-1] = (uint8_t)length;
	return 4;
}

// Send past libwebsockets where nothing waits before the frame; false: it is to be queued. What the socket does not
// take of it is handed to libwebsockets as bytes as they are (that is what LWS_WRITE_HTTP means to it), which sends
// them before anything of its own.
static bool send_directly(struct net_conn *conn, struct net_frame *frame)
{
	if (conn->direct < 0 || conn->held || conn->queue_count || frame->length > DIRECT_FRAME_BYTES ||
	    lws_partial_buffered(conn->wsi))
		return false;
	size_t header = put_header(frame), total = header + frame->length;
	uint8_t *bytes = net_frame_data(frame) - header;
	ssize_t sent = send(conn->direct, bytes, total, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0)
		return false; // EAGAIN waits in the queue; a broken connection shows itself to libwebsockets too
	if ((size_t)sent < total && lws_write(conn->wsi, bytes + sent, total - (size_t)sent, LWS_WRITE_HTTP) < 0)
		lws_set_timeout(conn->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
	return true;
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

// One fragment past libwebsockets, which gets what the socket does not take. Returns 1 if all of it went, 0 if the
// socket is full (*taken: whether the fragment is on its way), -1 if it is broken.
static int fragment_directly(struct net_conn *conn, struct net_frame *frame, size_t length, bool *taken)
{
	uint8_t header[16], *payload = net_frame_data(frame) + conn->first_sent;
	size_t header_bytes = fragment_header(header, frame, conn->first_sent, length);
	struct iovec parts[2] = {{header, header_bytes}, {payload, length}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t sent = sendmsg(conn->direct, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	*taken = sent > 0;
	if (sent < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
	size_t done = (size_t)sent;
	if (done == header_bytes + length)
		return 1;
	if (done < header_bytes && lws_write(conn->wsi, header + done, header_bytes - done, LWS_WRITE_HTTP) < 0)
		return -1;
	done = done < header_bytes ? 0 : done - header_bytes;
	return lws_write(conn->wsi, payload + done, length - done, LWS_WRITE_HTTP) < 0 ? -1 : 0;
}

// One fragment by libwebsockets, which writes its header before it: over the end of the last fragment, which others may
// still have to send. (Where it masks, in place, it is a client's, whose frames nobody shares.)
static int fragment_by_library(struct net_conn *conn, struct net_frame *frame, size_t length)
{
	uint8_t before[LWS_PRE], *payload = net_frame_data(frame) + conn->first_sent;
	int type = conn->first_sent ? LWS_WRITE_CONTINUATION : frame->text ? LWS_WRITE_TEXT : LWS_WRITE_BINARY;
	if (conn->first_sent + length < frame->length)
		type |= LWS_WRITE_NO_FIN;
	memcpy(before, payload - LWS_PRE, LWS_PRE);
	int written = lws_write(conn->wsi, payload, length, (enum lws_write_protocol)type);
	memcpy(payload - LWS_PRE, before, LWS_PRE);
	return written < 0 ? -1 : 0;
}

// Send from the queue what the socket takes, FRAGMENTS_A_TURN at most. Returns -1 if the connection is broken.
static int queue_send(struct net_conn *conn)
{
	int going = 1;
	for (int i = 0; i < FRAGMENTS_A_TURN && going > 0 && conn->queue_count; i++) {
		struct net_frame *frame = queue_at(conn, 0)->frame;
		size_t left = frame->length - conn->first_sent,
		       length = left < NET_FRAGMENT_BYTES ? left : NET_FRAGMENT_BYTES;
		bool taken = true;
		going = conn->direct >= 0 ? fragment_directly(conn, frame, length, &taken)
					  : fragment_by_library(conn, frame, length);
		if (going < 0)
			return -1;
		if (!taken)
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
	if (conn->direct >= 0 && !conn->held && conn->queue_count == 1 && !lws_partial_buffered(conn->wsi))
		queue_send(conn); // that the connection is broken is found again, and told, when it is writable
	if (conn->queue_bytes > LIMIT_STREAM_FULL_BYTES)
		conn->was_full = true;
	if (conn->queue_count && !conn->held)
		lws_callback_on_writable(conn->wsi);
	return STATUS_OK;
}

void net_conn_hold(struct net_conn *conn, bool held)
{
	conn->held = held;
	if (!held && conn->opened && !conn->closed && conn->queue_count)
		lws_callback_on_writable(conn->wsi);
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

void net_conn_close(struct net_conn *conn, int code, const char *reason)
{
	if (conn->closing || conn->closed)
		return;
	conn->closing = true;
	conn->close_code = code;
	snprintf(conn->close_reason, sizeof conn->close_reason, "%s", reason);
	if (code == 4408 || code == 4410) // who is too slow, or no longer welcome, gets nothing more
		queue_clear(conn);
	if (!conn->opened)
		return;
	lws_set_timeout(conn->wsi, PENDING_TIMEOUT_CLOSE_SEND, CLOSE_WAIT_S);
	lws_callback_on_writable(conn->wsi);
}

void net_conn_trust(struct net_conn *conn)
{
	conn->rx.limit = LIMIT_HEAD_BYTES + LIMIT_BODY_BYTES + 4;
}

void *net_conn_user(const struct net_conn *conn)
{
	return conn->user;
}

size_t net_conn_queued_bytes(const struct net_conn *conn)
{
	return conn->queue_bytes;
}

size_t net_conn_queued_messages(const struct net_conn *conn)
{
	return conn->queue_count;
}

static void on_whole_message(void *arg, const uint8_t *bytes, size_t length, bool binary)
{
	struct net_conn *conn = arg;
	if (!conn->closing && !conn->closed)
		conn->handler->message(conn->user, conn, bytes, length, binary);
}

static void on_control(void *arg, enum net_opcode opcode, const uint8_t *bytes, size_t length);

static const struct net_receiver_events receiver_events = {.message = on_whole_message, .control = on_control};

static struct net_conn *conn_create(struct net_loop *loop, const struct net_handler *handler, void *user,
				    struct net_listener *listener)
{
	struct net_conn *conn = calloc(1, sizeof(*conn));
	if (!conn)
		return NULL;
	conn->session = (struct net_session){.kind = SESSION_WS, .listener = listener};
	conn->direct = -1;
	conn->handler = handler;
	conn->user = user;
	conn->rx = (struct net_receiver){.events = &receiver_events, .arg = conn, .limit = LIMIT_LOGIN_BYTES};
	conn->at = net_loop_conns(loop);
	conn->next = *conn->at;
	if (conn->next)
		conn->next->at = &conn->next;
	*conn->at = conn;
	return conn;
}

static void tell_closed(struct net_conn *conn)
{
	if (conn->closed)
		return;
	conn->closed = true;
	if (conn->held_back.running)
		net_timer_stop(net_loop_of(conn->wsi), &conn->held_back);
	conn->handler->closed(conn->user, conn->opened ? conn : NULL, conn->close_code);
}

void net_close_all(struct net_loop *loop, int code)
{
	for (struct net_conn *conn = *net_loop_conns(loop); conn; conn = conn->next) {
		conn->closing = true;
		if (!conn->close_code)
			conn->close_code = code;
		tell_closed(conn);
	}
}

static void conn_destroy(struct net_conn *conn)
{
	tell_closed(conn);
	*conn->at = conn->next;
	if (conn->next)
		conn->next->at = conn->at;
	if (conn->gone)
		*conn->gone = true;
	net_watch_destroy(&conn->rx_watch);
	net_receiver_finish(&conn->rx);
	queue_clear(conn);
	free(conn->queue);
	free(conn->bearer);
	net_dialled_destroy(&conn->dialled);
	free(conn);
}

// Whether one of the subprotocols in a comma-separated list is spoken here.
static bool offers_known(const char *offered, const struct net_listener *listener)
{
	static const char between[] = ", \t";
	while (*(offered += strspn(offered, between))) {
		size_t length = strcspn(offered, between);
		for (size_t i = 1; listener->protocols[i].name; i++)
			if (strlen(listener->protocols[i].name) == length &&
			    !memcmp(listener->protocols[i].name, offered, length))
				return true;
		offered += length;
	}
	return false;
}

// What libwebsockets lets pass. NULL, or what is wrong with the handshake.
static const char *check_handshake(struct lws *wsi, struct net_listener *listener)
{
	char version[8] = "", offered[128] = "";
	if (lws_hdr_copy(wsi, version, sizeof version, WSI_TOKEN_VERSION) < 0 || strcmp(version, "13") != 0)
		return "this version of WebSocket is not spoken here";
	if (lws_hdr_total_length(wsi, WSI_TOKEN_KEY) != 24) // 16 bytes in Base64
		return "Sec-WebSocket-Key is not a key";
	if (lws_hdr_total_length(wsi, WSI_TOKEN_PROTOCOL) > 0 &&
	    (lws_hdr_copy(wsi, offered, sizeof offered, WSI_TOKEN_PROTOCOL) < 0 || !offers_known(offered, listener)))
		return "this subprotocol is not spoken here";
	return NULL;
}

static int on_upgrade(struct lws *wsi, struct net_listener *listener)
{
	char upgrade[24] = "";
	void *user = NULL;
	struct net_request request;
	struct net_response response = {0};
	if (lws_hdr_copy(wsi, upgrade, sizeof upgrade, WSI_TOKEN_UPGRADE) < 0 || strcasecmp(upgrade, "websocket") != 0)
		return -1; // also h2c; what `in` points at is not to be trusted in some versions
	buffer_init(&response.owned, 2048);
	net_read_request(wsi, listener, &request);
	const char *wrong = check_handshake(wsi, listener);
	if (wrong) {
		buffer_printf(&response.owned, "{\"error\":\"invalid_request\",\"message\":\"%s\",\"hint\":\"%s\"}\n",
			      wrong, "WebSocket version 13, subprotocol exogpu.v1");
		response.status = 400;
		response.content_type = "application/json";
		response.body = response.owned.data;
		response.body_bytes = response.owned.length;
		return net_http_refuse(wsi, listener, &response);
	}
	if (!listener->handler->upgrade(listener->context, &request, &user, &response))
		return net_http_refuse(wsi, listener, &response);
	buffer_finish(&response.owned);
	struct net_conn *conn = conn_create(listener->loop, listener->handler, user, listener);
	if (!conn) {
		listener->handler->closed(user, NULL, 0);
		return -1;
	}
	conn->wsi = wsi;
	lws_set_opaque_user_data(wsi, conn);
	return 0;
}

// Without its close frame, or after ours was answered: libwebsockets takes the connection down in a moment.
static void drop(struct net_conn *conn)
{
	net_watch_want_read(conn->rx_watch, false);
	lws_set_timeout(conn->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
}

// A whole frame of control past libwebsockets, which gets what the socket does not take. Only while nothing of its own
// waits there. Returns -1 if the connection is broken.
static int send_control(struct net_conn *conn, enum net_opcode opcode, const uint8_t *payload, size_t length)
{
	uint8_t frame[LWS_PRE + 2 + RECEIVE_CONTROL_BYTES], *bytes = frame + LWS_PRE;
	bytes[0] = (uint8_t)(0x80 | opcode);
	bytes[1] = (uint8_t)length; // at most 125
	memcpy(bytes + 2, payload, length);
	ssize_t sent = send(conn->direct, bytes, 2 + length, MSG_NOSIGNAL | MSG_DONTWAIT);
	size_t done = sent > 0 ? (size_t)sent : 0;
	if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		return -1;
	return done == 2 + length || lws_write(conn->wsi, bytes + done, 2 + length - done, LWS_WRITE_HTTP) >= 0 ? 0
														: -1;
}

// The answer to the last ping, at the next place where a frame may begin.
static int send_pong(struct net_conn *conn)
{
	if (lws_partial_buffered(conn->wsi)) {
		lws_callback_on_writable(conn->wsi);
		return 0;
	}
	conn->pong_due = false;
	return send_control(conn, OPCODE_PONG, conn->pong, conn->pong_bytes);
}

// The peer closes: its code goes back, where a frame may begin, and that is the end.
static void answer_close(struct net_conn *conn, const uint8_t *bytes, size_t length)
{
	if (!conn->close_sent && length >= 2)
		conn->close_code = bytes[0] << 8 | bytes[1];
	if (!conn->close_sent && !lws_partial_buffered(conn->wsi))
		send_control(conn, OPCODE_CLOSE, bytes, length < 2 ? 0 : 2); // if it is broken, it is over as well
	conn->closing = conn->close_sent = true;
	drop(conn);
}

static void on_control(void *arg, enum net_opcode opcode, const uint8_t *bytes, size_t length)
{
	struct net_conn *conn = arg;
	switch (opcode) {
	case OPCODE_CLOSE:
		answer_close(conn, bytes, length);
		break;
	case OPCODE_PING:
		if (conn->closing)
			break;
		memcpy(conn->pong, bytes, length);
		conn->pong_bytes = length;
		conn->pong_due = true;
		if (send_pong(conn))
			drop(conn);
		break;
	case OPCODE_PONG: // that something came was noted already
	case OPCODE_MORE:
	case OPCODE_TEXT:
	case OPCODE_BINARY:
		break;
	}
}

// Any byte is a sign of life.
static void heard(struct net_conn *conn)
{
	conn->heard_ms = clock_steady_ms();
	lws_validity_confirmed(conn->wsi);
}

int64_t net_conn_silence_ms(const struct net_conn *conn)
{
	return clock_steady_ms() - conn->heard_ms;
}

// One read: the rest of a large payload into its place and a little of what follows, or whatever is there. Returns how
// much of READ_TURN_BYTES it used; 0: nothing more now.
static size_t read_once(struct net_conn *conn, int fd)
{
	static uint8_t shared[READ_BYTES]; // the loop's thread alone reads
	uint8_t *to = NULL;
	size_t room = conn->rx_broken ? 0 : net_receiver_room(&conn->rx, &to);
	room = room < READ_TURN_BYTES ? room : (size_t)READ_TURN_BYTES;
	struct iovec parts[2] = {{to, room}, {shared, room ? READ_BEHIND_BYTES : READ_BYTES}};
	struct msghdr message = {.msg_iov = room ? parts : parts + 1, .msg_iovlen = room ? 2 : 1};
	ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	if (got <= 0) {
		drop(conn);
		return 0;
	}
	heard(conn);
	if (conn->rx_broken)
		return (size_t)got;
	size_t placed = (size_t)got < room ? (size_t)got : room;
	net_receiver_filled(&conn->rx, placed);
	int code = net_receiver_take(&conn->rx, shared, (size_t)got - placed);
	conn->rx_broken = code;
	if (code)
		net_conn_close(conn, code,
			       code == 1009 ? "message too big" : "this is not a WebSocket frame of a client");
	bool all = (size_t)got < room + parts[1].iov_len;
	return code || all ? 0 : (size_t)got;
}

static void on_readable(void *arg, int fd)
{
	struct net_conn *conn = arg;
	size_t used = 0, now;
	do {
		now = conn->closed || conn->pauses ? 0 : read_once(conn, fd);
		used += now;
	} while (now && used < READ_TURN_BYTES);
}

// From here on the socket is read here. A client that has sent frames before it had the answer to its handshake is not
// heard: it may not.
static void read_here(struct net_conn *conn)
{
	static const struct net_watch_events events = {.readable = on_readable};
	int fd = fcntl(conn->direct, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return; // libwebsockets goes on reading
	if (net_watch_create(&conn->rx_watch, conn->session.listener->loop, fd, &events, conn, NULL)) {
		close(fd);
		return;
	}
	lws_rx_flow_control(conn->wsi, 0);
}

static int on_open(struct net_conn *conn)
{
	if (conn->closed)
		return -1;
	conn->opened = true;
	conn->keys_ms = clock_steady_ms();
	conn->heard_ms = clock_steady_ms();
	if (conn->session.listener && !lws_is_ssl(conn->wsi)) {
		conn->direct = lws_get_socket_fd(conn->wsi);
		read_here(conn);
	}
	conn->handler->opened(conn->user, conn);
	if (conn->closing || conn->queue_count)
		lws_callback_on_writable(conn->wsi);
	return 0;
}

// Not while something waits in libwebsockets: a record of it may be half written, and that is finished first. Ours goes
// out before the next byte of ours, asking for theirs.
static void update_keys(struct net_conn *conn)
{
	SSL *ssl = lws_get_ssl(conn->wsi);
	if (lws_partial_buffered(conn->wsi)) {
		conn->keys_due = true;
		lws_callback_on_writable(conn->wsi);
		return;
	}
	conn->keys_due = false;
	conn->keys_ms = clock_steady_ms();
	conn->keys_bytes = BIO_number_read(SSL_get_rbio(ssl)) + BIO_number_written(SSL_get_wbio(ssl));
	if (SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) != 1 || SSL_do_handshake(ssl) != 1)
		log_debug("net", "new keys wait for a connection's next byte");
	ERR_clear_error();
}

enum status net_conn_update_keys(struct net_conn *conn)
{
	if (!conn->opened || conn->closed || !lws_get_ssl(conn->wsi))
		return STATUS_UNAVAILABLE;
	update_keys(conn);
	return STATUS_OK;
}

// Something was sent or came: after an hour or 64 GiB the keys are changed.
static void mind_keys(struct net_conn *conn)
{
	SSL *ssl = lws_get_ssl(conn->wsi);
	if (!ssl || conn->closing)
		return;
	uint64_t bytes = BIO_number_read(SSL_get_rbio(ssl)) + BIO_number_written(SSL_get_wbio(ssl));
	if (bytes - conn->keys_bytes > KEYS_BYTES || clock_steady_ms() - conn->keys_ms > KEYS_MS)
		update_keys(conn);
}

// What libwebsockets has received.
static int on_receive(struct net_conn *conn, const uint8_t *bytes, size_t length)
{
	if (conn->closing)
		return 0;
	heard(conn);
	mind_keys(conn);
	size_t ahead = lws_remaining_packet_payload(conn->wsi), limit = conn->rx.limit;
	bool last = lws_is_final_fragment(conn->wsi) && !ahead, binary = lws_frame_is_binary(conn->wsi);
	if (length > limit || ahead > limit || conn->rx.filled + length + ahead > limit) {
		net_conn_close(conn, 1009, "message too big");
		return 0;
	}
	if (last && !conn->rx.frame) {
		conn->handler->message(conn->user, conn, bytes, length, binary);
		return 0;
	}
	if (net_receiver_collect(&conn->rx, bytes, length, ahead))
		return -1;
	if (!last)
		return 0;
	conn->rx.frame->length = conn->rx.filled;
	conn->rx.filled = 0;
	conn->handler->message(conn->user, conn, net_frame_data(conn->rx.frame), net_frame_bytes(conn->rx.frame),
			       binary);
	net_frame_unref(&conn->rx.frame);
	return 0;
}

struct net_frame *net_conn_message_frame(struct net_conn *conn)
{
	return conn->rx.frame;
}

struct net_frame *net_conn_take_frame(struct net_conn *conn)
{
	struct net_frame *frame = conn->rx.frame;
	conn->rx.frame = NULL;
	return frame;
}

const char *net_conn_authority(const struct net_conn *conn, const uint8_t **sha256)
{
	if (conn->dialled)
		return net_dialled_authority(conn->dialled, sha256);
	if (sha256)
		*sha256 = NULL;
	return NULL;
}

static int64_t held_back_ms(const struct net_conn *conn)
{
	const lws_retry_bo_t *liveness = conn->session.listener ? &conn->session.listener->liveness : &conn->liveness;
	return liveness->secs_since_valid_ping * 500;
}

// What the peer says is not read, so its silence is ours.
static void on_held_back(void *arg)
{
	struct net_conn *conn = arg;
	lws_validity_confirmed(conn->wsi);
	net_timer_start(net_loop_of(conn->wsi), &conn->held_back, held_back_ms(conn), on_held_back, conn);
}

void net_conn_pause(struct net_conn *conn)
{
	if (conn->pauses++ || conn->closed)
		return;
	if (conn->rx_watch)
		net_watch_want_read(conn->rx_watch, false);
	else
		lws_rx_flow_control(conn->wsi, 0);
	if (held_back_ms(conn))
		on_held_back(conn);
}

void net_conn_resume(struct net_conn *conn)
{
	if (!conn->pauses || --conn->pauses)
		return;
	net_timer_stop(net_loop_of(conn->wsi), &conn->held_back);
	if (conn->closed)
		return;
	lws_validity_confirmed(conn->wsi);
	if (conn->rx_watch)
		net_watch_want_read(conn->rx_watch, true);
	else
		lws_rx_flow_control(conn->wsi, 1);
}

// Our close frame, past libwebsockets, and then what still comes is read and dropped until the peer's (5 s at most): it
// would close the socket at once, and one that is closed with something unread takes the frame back with a reset.
static int send_close(struct net_conn *conn)
{
	uint8_t frame[4 + CLOSE_REASON_BYTES];
	size_t length = strlen(conn->close_reason);
	if (conn->close_sent)
		return 0;
	if (conn->direct < 0) {
		lws_close_reason(conn->wsi, (enum lws_close_status)conn->close_code, (uint8_t *)conn->close_reason,
				 length);
		return -1;
	}
	conn->close_sent = true;
	frame[0] = 0x88;
	frame[1] = (uint8_t)(2 + length); // at most 122: one byte of length
	frame[2] = (uint8_t)(conn->close_code >> 8);
	frame[3] = (uint8_t)conn->close_code;
	memcpy(frame + 4, conn->close_reason, length);
	ssize_t sent = send(conn->direct, frame, 4 + length, MSG_NOSIGNAL | MSG_DONTWAIT);
	return sent == (ssize_t)(4 + length) ? 0 : -1;
}

static int on_writable(struct net_conn *conn)
{
	if (conn->pong_due && send_pong(conn))
		return -1;
	if (conn->keys_due)
		update_keys(conn);
	else
		mind_keys(conn);
	if (!conn->queue_count)
		return conn->closing ? send_close(conn) : 0;
	if (conn->held)
		return 0;
	if (queue_send(conn))
		return -1;
	if (conn->queue_count || conn->closing)
		lws_callback_on_writable(conn->wsi);
	if (conn->queue_count || !conn->was_full || conn->closing)
		return 0;
	conn->was_full = false;
	if (conn->handler->drained)
		conn->handler->drained(conn->user, conn);
	return 0;
}

static int add_bearer(struct net_conn *conn, unsigned char **at, size_t room)
{
	int length = conn->bearer ? snprintf((char *)*at, room, "Authorization: Bearer %s\r\n", conn->bearer) : 0;
	if (length < 0 || (size_t)length >= room)
		return -1;
	*at += length;
	return 0;
}

// Returns what the callback is to return: an answer to our own close is not answered again.
static int on_peer_close(struct net_conn *conn, const uint8_t *bytes, size_t length)
{
	if (conn->close_sent)
		return -1;
	if (length >= 2)
		conn->close_code = bytes[0] << 8 | bytes[1];
	return 0;
}

static void on_destroy(struct lws *wsi, struct net_session *session)
{
	struct net_listener *listener = session ? session->listener : NULL;
	if (session && session->kind == SESSION_HTTP)
		net_http_finish(wsi, session);
	else if (session && session->kind == SESSION_WS)
		conn_destroy((struct net_conn *)session);
	lws_set_opaque_user_data(wsi, NULL);
	if (listener)
		listener->open--;
}

// The SSL_CTX of a listener's vhost is there to be completed; a fault ends the creation of the vhost.
static int on_tls_context(struct lws *wsi, SSL_CTX *context)
{
	struct net_listener *listener = lws_vhost_user(lws_get_vhost(wsi));
	return net_tls_attach(listener->tls, context) ? 0 : -1;
}

// One that dialled did not open. `why` is libwebsockets' own, if it has one.
static void tell_failed(struct lws *wsi, struct net_conn *conn, const char *why)
{
	char text[96];
	const char *fault = conn->dialled ? net_dialled_fault(conn->dialled) : "";
	unsigned status = lws_http_client_http_response(wsi);
	if (conn->opened || conn->closed || !conn->handler->failed)
		return;
	log_debug("net", "dialling: %s", why ? why : "no reason is known");
	if (status && !fault[0]) {
		snprintf(text, sizeof text, "the server answered %u instead of opening a WebSocket", status);
		fault = text;
	}
	conn->handler->failed(conn->user, fault[0] ? fault : "nothing answers there");
}

// One that dialled and did not open, or is gone.
static void client_gone(struct lws *wsi, struct net_conn *conn)
{
	lws_set_opaque_user_data(wsi, NULL);
	conn_destroy(conn);
}

int net_ws_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t length)
{
	struct net_session *session = wsi ? lws_get_opaque_user_data(wsi) : NULL;
	struct net_conn *conn = session && session->kind == SESSION_WS ? (struct net_conn *)session : NULL;
	switch ((int)reason) {
	case LWS_CALLBACK_HTTP:
		return session && session->kind == SESSION_WAITING ? net_http_begin(wsi, session->listener) : -1;
	case LWS_CALLBACK_HTTP_WRITEABLE:
		return session && session->kind == SESSION_HTTP ? net_http_continue(wsi, session) : 0;
	case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
		return session && session->kind == SESSION_WAITING ? on_upgrade(wsi, session->listener) : -1;
	case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
		return conn ? 0 : -1;
	case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
		return conn ? add_bearer(conn, in, length) : 0;
	case LWS_CALLBACK_ESTABLISHED:
	case LWS_CALLBACK_CLIENT_ESTABLISHED:
		return conn ? on_open(conn) : -1;
	case LWS_CALLBACK_RECEIVE:
	case LWS_CALLBACK_CLIENT_RECEIVE:
		return conn ? on_receive(conn, in, length) : -1;
	case LWS_CALLBACK_RECEIVE_PONG:
	case LWS_CALLBACK_CLIENT_RECEIVE_PONG:
		if (conn)
			heard(conn);
		return 0;
	case LWS_CALLBACK_SERVER_WRITEABLE:
	case LWS_CALLBACK_CLIENT_WRITEABLE:
		return conn ? on_writable(conn) : -1;
	case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
		return conn ? on_peer_close(conn, in, length) : 0;
	case LWS_CALLBACK_CLOSED:
		if (conn)
			tell_closed(conn);
		return 0;
	case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS:
		return on_tls_context(wsi, user);
	case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
		if (conn)
			tell_failed(wsi, conn, in);
		if (conn)
			client_gone(wsi, conn);
		return 0;
	case LWS_CALLBACK_CLIENT_CLOSED:
		if (conn)
			client_gone(wsi, conn);
		return 0;
	case LWS_CALLBACK_WSI_DESTROY:
		on_destroy(wsi, session);
		return 0;
	}
	return 0;
}

enum status net_dial(struct net_loop *loop, const struct net_dial_params *params, struct error *error)
{
	char address[LIMIT_SOCKET_PATH_BYTES + 2], host[300]; // host: as the header of that name has it, with the port
	enum status status = STATUS_OK;
	if (params->socket_path && strlen(params->socket_path) > LIMIT_SOCKET_PATH_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "the socket's path is too long: %s",
				 params->socket_path);
	struct net_conn *conn = conn_create(loop, params->handler, params->user, NULL);
	if (!conn)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	conn->bearer = params->bearer ? strdup(params->bearer) : NULL;
	conn->liveness = (lws_retry_bo_t){.secs_since_valid_ping = (uint16_t)params->ping_s,
					  .secs_since_valid_hangup = (uint16_t)params->silence_s};
	net_conn_trust(conn); // we chose whom to dial
	struct net_dialled_params dialled = {.loop = loop, .tls = params->tls, .host = params->host, .wsi = &conn->wsi};
	if (params->tls && (status = net_dialled_create(&conn->dialled, &dialled, error))) {
		conn->closed = true; // no callback: the result tells
		conn_destroy(conn);
		return status;
	}
	snprintf(address, sizeof address, "+%s", params->socket_path ? params->socket_path : "");
	if (params->socket_path)
		snprintf(host, sizeof host, "localhost");
	else
		snprintf(host, sizeof host, strchr(params->host, ':') ? "[%s]:%d" : "%s:%d", params->host,
			 params->port);
	struct lws_client_connect_info info = {
		.context = net_loop_context(loop),
		.vhost = conn->dialled ? net_dialled_vhost(conn->dialled) : net_loop_base_vhost(loop),
		.address = params->socket_path ? address : params->host,
		.port = params->socket_path ? 0 : params->port,
		.path = params->path,
		.host = host,
		.protocol = params->subprotocol,
		.alpn = "http/1.1",
		// Names are verified by tls_dial.c. Nobody whom we did not choose is dialled instead.
		.ssl_connection = LCCSCF_HTTP_NO_FOLLOW_REDIRECT |
				  (conn->dialled ? LCCSCF_USE_SSL | LCCSCF_SKIP_SERVER_CERT_HOSTNAME_CHECK : 0),
		.local_protocol_name = "client",
		.opaque_user_data = conn,
		.retry_and_idle_policy = &conn->liveness,
		.pwsi = &conn->wsi,
	};
	// A failure is told by callback, at once or later; only one that comes before there is anything to call back
	// for is told by the result alone.
	bool gone = false;
	conn->gone = &gone;
	struct lws *wsi = lws_client_connect_via_info(&info);
	if (!gone) {
		conn->gone = NULL;
		if (!wsi)
			conn_destroy(conn);
	}
	return STATUS_OK;
}
