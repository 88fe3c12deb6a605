/* What a connection receives. This file reads accepted connections after the handshake.
 * libwebsockets receives for dialled ones, because it may have read beyond the handshake. If the
 * server is known to be silent until spoken to (net_dial_params.speaks_first), this file reads
 * here, too (receive.h says why), and libwebsockets only watches for silence, pings and closes.
 * Either way a message may have the connection's limit, which is small until the peer is
 * trusted.
 *
 * Turns. A connection is read and served for READ_TURN_US, to the end of the current frame;
 * bytes that are read but not processed wait in `rest`. A connection with more work is busy: for
 * a while it takes its turns in a queue of the loop, from which one is served between two rounds
 * over all others (net_watch_again). So a client that asks rarely waits for one turn of one busy
 * connection, even if there are twenty. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/net/ws/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	RECORD_BYTES = 16384,          // of TLS, at most
	READ_BYTES = RECORD_BYTES,     // of small messages, at once
	READ_BEHIND_BYTES = 4096,      // of what follows a large payload
	READ_TURN_BYTES = 1024 * 1024, // of one connection, before others have their turn
	READ_TURN_US = 250,            // and for how long
	BUSY_MS = 1000,                // after a turn that was too short
};

// Any byte is a sign of life.
void net_heard(struct net_conn *conn)
{
	conn->heard_ms = clock_steady_ms();
	net_carrier_valid(conn);
}

int64_t net_conn_silence_ms(const struct net_conn *conn)
{
	return clock_steady_ms() - conn->heard_ms;
}

// Both return how much came, 0 if nothing is there now, -1 at the end.

// The rest of a large payload into its place and a little of what follows, or whatever is there.
static ssize_t read_plain(int fd, uint8_t *to, size_t room, uint8_t *behind, size_t behind_bytes)
{
	struct iovec parts[2] = {{to, room}, {behind, behind_bytes}};
	struct msghdr message = {.msg_iov = room ? parts : parts + 1, .msg_iovlen = room ? 2 : 1};
	ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	return got > 0 ? got : -1;
}

// Reads one record; there is always room. Nothing may stay inside OpenSSL, where no poll would see it.
static ssize_t read_record(SSL *ssl, uint8_t *to, size_t room)
{
	size_t got = 0;
	ERR_clear_error();
	if (SSL_read_ex(ssl, to, room, &got) == 1)
		return (ssize_t)got;
	int error = SSL_get_error(ssl, 0);
	return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

bool net_read_enough(void *arg)
{
	const struct net_conn *conn = arg;
	return conn->pauses || clock_steady_ns() >= conn->turn_ends_ns;
}

// Returns how many bytes were taken, before it was enough.
static size_t take(struct net_conn *conn, uint8_t *bytes, size_t length)
{
	size_t taken = 0;
	int code = net_receiver_take(&conn->rx, bytes, length, &taken);
	conn->rx_broken = code;
	if (code)
		net_conn_close(conn, code, code == 1009 ? "message too big" : "this is not a frame of a WebSocket");
	return code ? length : taken;
}

static void keep_rest(struct net_conn *conn, const uint8_t *bytes, size_t length)
{
	conn->rest = malloc(length);
	if (!conn->rest) {
		conn->rx_broken = true;
		net_drop(conn);
		return;
	}
	memcpy(conn->rest, bytes, length);
	conn->rest_at = 0;
	conn->rest_bytes = length;
}

static size_t take_rest(struct net_conn *conn)
{
	size_t taken = take(conn, conn->rest + conn->rest_at, conn->rest_bytes);
	conn->rest_at += taken;
	conn->rest_bytes -= taken;
	if (!conn->rest_bytes) {
		free(conn->rest);
		conn->rest = NULL;
	}
	return taken;
}

// Returns how much of READ_TURN_BYTES it used; 0: nothing more now.
static size_t read_once(struct net_conn *conn, int fd)
{
	static uint8_t shared[READ_BYTES]; // the loop's thread alone reads
	uint8_t *to = NULL;
	if (conn->rest)
		return take_rest(conn);
	size_t room = conn->rx_broken ? 0 : net_receiver_room(&conn->rx, &to);
	room = room < READ_TURN_BYTES ? room : (size_t)READ_TURN_BYTES;
	if (conn->ssl && room < RECORD_BYTES)
		room = 0;
	size_t behind = room ? READ_BEHIND_BYTES : READ_BYTES;
	ssize_t got = !conn->ssl ? read_plain(fd, to, room, shared, behind)
				 : read_record(conn->ssl, room ? to : shared, room ? room : READ_BYTES);
	if (got < 0)
		net_drop(conn);
	if (got <= 0)
		return 0;
	net_heard(conn);
	net_mind_keys(conn);
	if (conn->rx_broken)
		return (size_t)got;
	size_t placed = (size_t)got < room ? (size_t)got : room, left = (size_t)got - placed;
	net_receiver_filled(&conn->rx, placed);
	size_t taken = left ? take(conn, shared, left) : 0;
	if (taken < left)
		keep_rest(conn, shared + taken, left - taken);
	bool all = !conn->ssl && (size_t)got < room + behind && !conn->rest;
	return conn->rx_broken || all ? 0 : (size_t)got;
}

// Whether it has more to say than fitted its turn; one whose single call took long has not.
static bool has_more(const struct net_conn *conn, int fd)
{
	uint8_t byte;
	return conn->rest || recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static void stand_in_line(struct net_conn *conn)
{
	conn->in_line = true;
	net_watch_again(conn->rx_watch, NET_LINE_BUSY);
}

static void on_readable(void *arg, int fd)
{
	struct net_conn *conn = arg;
	const int64_t begun_ns = clock_steady_ns();
	size_t used = 0, now;
	if (conn->closed) { // whose handler wants nothing of it any more (net_close_all): its socket would be ready for
			    // ever
		net_drop(conn);
		return;
	}
	if (begun_ns < conn->busy_until_ns && !conn->in_line) {
		stand_in_line(conn);
		return;
	}
	conn->in_line = false;
	conn->turn_ends_ns = begun_ns + READ_TURN_US * 1000;
	do {
		now = conn->closed || conn->pauses ? 0 : read_once(conn, fd);
		used += now;
	} while (now && used < READ_TURN_BYTES && clock_steady_ns() < conn->turn_ends_ns);
	if (!now || conn->closed || conn->pauses || !has_more(conn, fd))
		return;
	conn->busy_until_ns = begun_ns + BUSY_MS * 1000000LL;
	stand_in_line(conn);
}

void net_conn_readable(struct net_session *session, int fd)
{
	on_readable(session, fd);
}

void net_conn_early(struct net_session *session, const uint8_t *bytes, size_t length)
{
	struct net_conn *conn = (struct net_conn *)session;
	if (conn->closed || conn->session.arrival->ending)
		return;
	keep_rest(conn, bytes, length);
	if (conn->rest && !conn->pauses)
		stand_in_line(conn);
}

// From here on the socket is read here.
void net_read_begin(struct net_conn *conn)
{
	static const struct net_watch_events events = {.readable = on_readable};
	if (conn->session.arrival) {
		conn->rx_watch = conn->session.arrival->watch;
		return;
	}
	int fd = fcntl(conn->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return; // libwebsockets goes on reading
	if (net_watch_create(&conn->rx_watch, conn->loop, fd, &events, conn, NULL)) {
		close(fd);
		return;
	}
	lws_rx_flow_control(conn->wsi, 0);
}

// Takes bytes that libwebsockets has received.
int net_read_received(struct net_conn *conn, const uint8_t *bytes, size_t length)
{
	if (conn->closing)
		return 0;
	net_heard(conn);
	net_mind_keys(conn);
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

// Between two signs of life. The other end may be less patient than this one: a node is, of a server that has clients.
static int64_t held_back_ms(const struct net_conn *conn)
{
	const int own_s = conn->session.listener ? conn->session.listener->ping_s
						 : conn->liveness.secs_since_valid_ping;
	return (own_s < LIMIT_NODE_PING_S ? own_s : LIMIT_NODE_PING_S) * 500;
}

// What the peer says is not read, so its silence is ours; and since its pings are not answered either, it is told that
// somebody is still here: an end that is held back for longer than the other bears silence would else be given up.
static void on_held_back(void *arg)
{
	struct net_conn *conn = arg;
	if (!conn->pauses)
		return;
	net_carrier_valid(conn);
	if (conn->opened && !conn->closing && !conn->held && !net_carrier_keeps(conn))
		net_send_control(conn, OPCODE_PONG, (const uint8_t *)"", 0); // one that fails is found by others
	net_timer_start(conn->loop, &conn->held_back, held_back_ms(conn), on_held_back, conn);
}

void net_conn_pause(struct net_conn *conn)
{
	if (conn->pauses++ || conn->closed)
		return;
	if (conn->rx_watch)
		net_watch_want_read(conn->rx_watch, false);
	else
		lws_rx_flow_control(conn->wsi, 0);
	net_carrier_valid(conn);
	if (held_back_ms(conn) && !conn->held_back.running) // it goes on when reading does not for long
		net_timer_start(conn->loop, &conn->held_back, held_back_ms(conn), on_held_back, conn);
}

void net_conn_resume(struct net_conn *conn)
{
	if (!conn->pauses || --conn->pauses)
		return;
	if (conn->closed)
		return;
	net_carrier_valid(conn);
	if (!conn->rx_watch) {
		lws_rx_flow_control(conn->wsi, 1);
		return;
	}
	net_watch_want_read(conn->rx_watch, true);
	if (conn->rest) // the socket does not tell of what was read already
		stand_in_line(conn);
}
