/* Control frames and the end of an accepted WebSocket: answers pings between two fragments, and sends, awaits and
 * answers close frames. For dialled connections libwebsockets does this. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/net/ws/conn.h"

#include <stdio.h>
#include <string.h>

enum { CLOSE_WAIT_S = 5 };

void net_drop(struct net_conn *conn)
{
	net_watch_want_read(conn->rx_watch, false);
	net_carrier_end(conn);
}

// The answer to the last ping, at the next place where a frame may begin.
int net_send_pong(struct net_conn *conn)
{
	int sent = net_blocked(conn) ? 0 : net_send_control(conn, OPCODE_PONG, conn->pong, conn->pong_bytes);
	conn->pong_due = !sent;
	if (!sent)
		net_carrier_want_write(conn);
	return sent < 0 ? -1 : 0;
}

// The peer closes: its code goes back, where a frame may begin, and that is the end.
static void answer_close(struct net_conn *conn, const uint8_t *bytes, size_t length)
{
	if (!conn->close_sent && length >= 2)
		conn->close_code = bytes[0] << 8 | bytes[1];
	if (!conn->close_sent && !net_blocked(conn))
		net_send_control(conn, OPCODE_CLOSE, bytes, length < 2 ? 0 : 2); // if it is broken, it is over as well
	conn->closing = conn->close_sent = true;
	net_drop(conn);
}

void net_on_control(void *arg, enum net_opcode opcode, const uint8_t *bytes, size_t length)
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
		if (net_send_pong(conn))
			net_drop(conn);
		break;
	case OPCODE_PONG:
		net_on_pong(conn, bytes, length);
		break;
	case OPCODE_MORE:
	case OPCODE_TEXT:
	case OPCODE_BINARY:
		break;
	}
}

// Our pings carry the time when they were sent. Those of libwebsockets do not.
void net_on_pong(struct net_conn *conn, const uint8_t *bytes, size_t length)
{
	if (!conn->ping_ns || length != sizeof conn->ping_ns || memcmp(bytes, &conn->ping_ns, length) != 0)
		return;
	conn->rtt_ns = clock_steady_ns() - conn->ping_ns;
	conn->ping_ns = 0;
}

void net_conn_ping(struct net_conn *conn)
{
	if (!conn->opened || conn->closing || conn->closed || conn->fd < 0 || conn->ping_ns || conn->queue_count ||
	    net_blocked(conn))
		return;
	uint8_t payload[sizeof conn->ping_ns];
	const int64_t now_ns = clock_steady_ns();
	memcpy(payload, &now_ns, sizeof payload);
	if (net_send_control(conn, OPCODE_PING, payload, sizeof payload) > 0)
		conn->ping_ns = now_ns;
}

double net_conn_rtt_ms(const struct net_conn *conn)
{
	return conn->rtt_ns ? (double)conn->rtt_ns / 1e6 : -1;
}

void net_conn_close(struct net_conn *conn, int code, const char *reason)
{
	if (conn->closing || conn->closed)
		return;
	conn->closing = true;
	conn->close_code = code;
	snprintf(conn->close_reason, sizeof conn->close_reason, "%s", reason);
	if (code == 4408 || code == 4410) // who is too slow, or no longer welcome, gets nothing more
		net_queue_clear(conn);
	if (!conn->opened)
		return;
	net_carrier_give(conn, CLOSE_WAIT_S);
	net_carrier_want_write(conn);
}

// Our close frame, past libwebsockets, and then what still comes is read and dropped until the peer's (5 s at most): it
// would close the socket at once, and one that is closed with something unread takes the frame back with a reset. Where
// it reads, it also closes.
int net_send_close(struct net_conn *conn)
{
	uint8_t payload[2 + CLOSE_REASON_BYTES];
	size_t length = strlen(conn->close_reason);
	if (conn->close_sent)
		return 0;
	if (!conn->rx_watch) {
		lws_close_reason(conn->wsi, (enum lws_close_status)conn->close_code, (uint8_t *)conn->close_reason,
				 length);
		return -1;
	}
	payload[0] = (uint8_t)(conn->close_code >> 8);
	payload[1] = (uint8_t)conn->close_code;
	memcpy(payload + 2, conn->close_reason, length);
	int sent = net_send_control(conn, OPCODE_CLOSE, payload, 2 + length);
	conn->close_sent = sent;
	if (!sent)
		net_carrier_want_write(conn);
	return sent < 0 ? -1 : 0;
}

// Returns what the callback is to return: an answer to our own close is not answered again.
int net_on_peer_close(struct net_conn *conn, const uint8_t *bytes, size_t length)
{
	if (conn->close_sent)
		return -1;
	if (length >= 2)
		conn->close_code = bytes[0] << 8 | bytes[1];
	return 0;
}
