/* What a connection receives.
 *
 * What a listener has accepted is read here once the handshake is done, past libwebsockets, which is told to leave it
 * alone (receive.h says why); it still watches over the peer's silence, sends its pings and closes. What was dialled is
 * received by it, as it may have read more than the handshake, unless the server was to be silent until then
 * (net_dial_params.speaks_first). Either way a message is put together up to the connection's limit, which is small
 * until the peer is trusted. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/net/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	READ_BYTES = 65536,            // of small messages, all that is there
	READ_BEHIND_BYTES = 4096,      // of what follows a large payload
	READ_TURN_BYTES = 1024 * 1024, // of one connection, before others have their turn
	READ_TURN_US = 500,            // and for how long
	READ_LEAST_BYTES = 1024,       // at once, of one whose messages take long to serve
	RECORD_BYTES = 16384,          // of TLS, at most
};

// Any byte is a sign of life.
void net_heard(struct net_conn *conn)
{
	conn->heard_ms = clock_steady_ms();
	lws_validity_confirmed(conn->wsi);
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

// One record, for which there is always room: nothing may be left inside OpenSSL, where no poll would see it.
static ssize_t read_record(SSL *ssl, uint8_t *to, size_t room)
{
	size_t got = 0;
	ERR_clear_error();
	if (SSL_read_ex(ssl, to, room, &got) == 1)
		return (ssize_t)got;
	int error = SSL_get_error(ssl, 0);
	return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

// Returns how much of READ_TURN_BYTES it used; 0: nothing more now.
static size_t read_once(struct net_conn *conn, int fd)
{
	static uint8_t shared[READ_BYTES]; // the loop's thread alone reads
	uint8_t *to = NULL;
	size_t room = conn->rx_broken ? 0 : net_receiver_room(&conn->rx, &to);
	room = room < READ_TURN_BYTES ? room : (size_t)READ_TURN_BYTES;
	if (conn->ssl && room < RECORD_BYTES)
		room = 0;
	size_t behind = room ? (size_t)READ_BEHIND_BYTES : conn->read_bytes ? conn->read_bytes : (size_t)READ_BYTES;
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
	size_t placed = (size_t)got < room ? (size_t)got : room;
	net_receiver_filled(&conn->rx, placed);
	int code = net_receiver_take(&conn->rx, shared, (size_t)got - placed);
	conn->rx_broken = code;
	if (code)
		net_conn_close(conn, code, code == 1009 ? "message too big" : "this is not a frame of a WebSocket");
	bool all = !conn->ssl && (size_t)got < room + behind;
	return code || all ? 0 : (size_t)got;
}

// Small calls that take long are read fewer at a time, so that a connection which sends many of them does not hold up
// the others: what was read must be served before the loop can look at anybody else.
static void on_readable(void *arg, int fd)
{
	struct net_conn *conn = arg;
	int64_t begun_ns = clock_steady_ns(), took_us;
	size_t used = 0, now;
	do {
		now = conn->closed || conn->pauses ? 0 : read_once(conn, fd);
		used += now;
		took_us = (clock_steady_ns() - begun_ns) / 1000;
	} while (now && used < READ_TURN_BYTES && took_us < READ_TURN_US);
	size_t bytes = conn->read_bytes ? conn->read_bytes : (size_t)READ_BYTES;
	bytes = took_us >= READ_TURN_US && used < bytes * 2 ? bytes / 2 : bytes * 2;
	conn->read_bytes = bytes < READ_LEAST_BYTES ? (size_t)READ_LEAST_BYTES
			   : bytes > READ_BYTES     ? (size_t)READ_BYTES
						    : bytes;
}

// From here on the socket is read here. A client that has sent frames before it had the answer to its handshake is not
// heard: it may not.
void net_read_begin(struct net_conn *conn)
{
	static const struct net_watch_events events = {.readable = on_readable};
	int fd = fcntl(conn->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return; // libwebsockets goes on reading
	if (net_watch_create(&conn->rx_watch, net_loop_of(conn->wsi), fd, &events, conn, NULL)) {
		close(fd);
		return;
	}
	lws_rx_flow_control(conn->wsi, 0);
}

// What libwebsockets has received.
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
