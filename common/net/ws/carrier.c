/* The carrier of a WebSocket's bytes: libwebsockets for dialled connections, an arrival for accepted ones. For the
 * latter, this file also watches the other end: it pings after some silence and closes after a longer one. Thread: the
 * loop's. */
#include "common/base/clock.h"
#include "common/net/ws/conn.h"

void net_carrier_want_write(struct net_conn *conn)
{
	if (conn->wsi)
		lws_callback_on_writable(conn->wsi);
	else if (conn->session.arrival)
		net_arrival_want_write(conn->session.arrival);
}

bool net_carrier_keeps(const struct net_conn *conn)
{
	return conn->wsi ? lws_partial_buffered(conn->wsi)
			 : conn->session.arrival && net_arrival_keeps(conn->session.arrival);
}

int net_carrier_send(struct net_conn *conn, uint8_t *bytes, size_t length)
{
	// Bytes as they are: that is what LWS_WRITE_HTTP means to it.
	return conn->wsi ? lws_write(conn->wsi, bytes, length, LWS_WRITE_HTTP)
			 : net_arrival_send(conn->session.arrival, bytes, length);
}

void net_carrier_end(struct net_conn *conn)
{
	if (conn->wsi)
		lws_set_timeout(conn->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
	else
		net_arrival_finish(conn->session.arrival);
}

void net_carrier_give(struct net_conn *conn, int seconds)
{
	if (conn->wsi)
		lws_set_timeout(conn->wsi, PENDING_TIMEOUT_CLOSE_SEND, seconds);
	else
		conn->taken_down_ms = clock_steady_ms() + seconds * 1000;
}

void net_carrier_valid(struct net_conn *conn)
{
	if (conn->wsi)
		lws_validity_confirmed(conn->wsi);
	else
		conn->valid_ms = clock_steady_ms();
}

static void watch_over(struct net_conn *conn, int64_t now_ms)
{
	const struct net_listener *listener = conn->session.listener;
	const int64_t silent_ms = now_ms - conn->valid_ms, ping_ms = listener->ping_s * 1000LL;
	if ((conn->taken_down_ms && now_ms >= conn->taken_down_ms) ||
	    (listener->silence_s && silent_ms >= listener->silence_s * 1000LL)) {
		net_arrival_end(conn->session.arrival);
		return;
	}
	if (!ping_ms || silent_ms < ping_ms || conn->pinged_ms > conn->valid_ms || conn->closing || net_blocked(conn))
		return;
	const int sent = net_send_control(conn, OPCODE_PING, (const uint8_t *)"", 0);
	if (sent > 0)
		conn->pinged_ms = now_ms;
	else if (sent < 0)
		net_carrier_end(conn);
}

void net_conns_sweep(struct net_listener *listener)
{
	const int64_t now_ms = clock_steady_ms();
	for (struct net_conn *conn = *net_loop_conns(listener->loop); conn; conn = conn->next)
		if (conn->session.listener == listener && conn->opened && !conn->session.arrival->ending)
			watch_over(conn, now_ms);
}
