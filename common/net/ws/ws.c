/* WebSocket connections of both ends, between their handlers and their carriers; see ws.h, and conn.h for their other
 * files. For dialled ones libwebsockets does the handshake and keeps the socket; its events arrive here. Accepted ones
 * are arrivals (upgrade.c, socket.c). Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/net/ws/conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void net_conn_trust(struct net_conn *conn)
{
	net_conn_allow(conn, LIMIT_HEAD_BYTES + LIMIT_BODY_BYTES + 4);
}

void net_conn_allow(struct net_conn *conn, size_t bytes)
{
	conn->rx.limit = bytes;
	net_conn_know(conn);
}

void net_conn_know(struct net_conn *conn)
{
	if (conn->session.arrival)
		net_arrival_know(conn->session.arrival, NET_HOLDER_ANY);
}

void *net_conn_user(const struct net_conn *conn)
{
	return conn->user;
}

static void on_whole_message(void *arg, const uint8_t *bytes, size_t length, bool binary)
{
	struct net_conn *conn = arg;
	if (!conn->closing && !conn->closed)
		conn->handler->message(conn->user, conn, bytes, length, binary);
}

static const struct net_receiver_events receiver_events = {
	.message = on_whole_message, .control = net_on_control, .enough = net_read_enough};

static struct net_conn *conn_create(struct net_loop *loop, const struct net_handler *handler, void *user,
				    struct net_listener *listener)
{
	struct net_conn *conn = calloc(1, sizeof(*conn));
	if (!conn)
		return NULL;
	conn->session = (struct net_session){.kind = SESSION_WS, .listener = listener};
	conn->loop = loop;
	conn->fd = -1;
	conn->handler = handler;
	conn->user = user;
	conn->rx = (struct net_receiver){.events = &receiver_events, .arg = conn, .limit = LIMIT_LOGIN_BYTES};
	LIST_PUSH(net_loop_conns(loop), conn, at);
	return conn;
}

static void tell_closed(struct net_conn *conn)
{
	if (conn->closed)
		return;
	conn->closed = true;
	if (conn->held_back.running)
		net_timer_stop(conn->loop, &conn->held_back);
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
	LIST_REMOVE(conn, at);
	if (conn->gone)
		*conn->gone = true;
	if (!conn->session.arrival) // else it is the arrival's
		net_watch_destroy(&conn->rx_watch);
	net_receiver_finish(&conn->rx);
	free(conn->rest);
	net_queue_clear(conn);
	free(conn->queue);
	free(conn->bearer);
	free(conn->dialling);
	net_dialled_destroy(&conn->dialled);
	free(conn);
}

static void open_conn(struct net_conn *conn)
{
	conn->opened = true;
	conn->keys_ms = clock_steady_ms();
	conn->heard_ms = conn->valid_ms = clock_steady_ms();
	conn->records = conn->ssl ? net_records_create(conn->ssl, conn->fd) : NULL;
	conn->masks = !conn->session.listener;
	if (conn->session.listener || conn->speaks_first)
		net_read_begin(conn);
	conn->handler->opened(conn->user, conn);
	if (conn->closing || conn->queue_count)
		net_carrier_want_write(conn);
}

static int on_open(struct net_conn *conn)
{
	if (conn->closed)
		return -1;
	conn->fd = lws_get_socket_fd(conn->wsi);
	conn->ssl = lws_get_ssl(conn->wsi);
	open_conn(conn);
	return 0;
}

bool net_conn_accept(struct net_arrival *arrival, void *user)
{
	struct net_listener *listener = arrival->listener;
	struct net_conn *conn = conn_create(listener->loop, listener->handler, user, listener);
	if (!conn)
		return false;
	conn->session.arrival = arrival;
	conn->fd = net_arrival_fd(arrival);
	conn->ssl = arrival->ssl;
	arrival->session = &conn->session;
	arrival->state = ARRIVAL_WEBSOCKET;
	net_watch_want_read(arrival->watch, true); // what was asked before may have waited with reading off
	open_conn(conn);
	return true;
}

void net_conn_finish(struct net_session *session)
{
	conn_destroy((struct net_conn *)session);
}

const char *net_conn_authority(const struct net_conn *conn, const uint8_t **sha256)
{
	if (conn->dialled)
		return net_dialled_authority(conn->dialled, sha256);
	if (sha256)
		*sha256 = NULL;
	return NULL;
}

int net_conn_writable(struct net_session *session)
{
	struct net_conn *conn = (struct net_conn *)session;
	int sent = conn->records ? net_records_flush(conn->records) : 1;
	if (sent < 0)
		return -1;
	if (!sent) {
		net_carrier_want_write(conn);
		return 0;
	}
	if (conn->pong_due && net_send_pong(conn))
		return -1;
	net_mind_keys(conn);
	if (!conn->queue_count)
		return conn->closing ? net_send_close(conn) : 0;
	if (conn->held)
		return 0;
	if (net_queue_send(conn))
		return -1;
	if (conn->queue_count || conn->closing)
		net_carrier_want_write(conn);
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

// A dialled connection failed to open. `why` is libwebsockets' reason, if it gives one.
static void tell_failed(struct lws *wsi, struct net_conn *conn, const char *why)
{
	char text[96];
	enum net_failure failure = NET_FAILURE_ABSENT;
	const char *fault = conn->dialled ? net_dialled_fault(conn->dialled, &failure) : "";
	unsigned status = lws_http_client_http_response(wsi);
	if (conn->opened || conn->closed || !conn->handler->failed)
		return;
	log_debug("net", "dialling: %s", why ? why : "no reason is known");
	if (status && !fault[0]) {
		snprintf(text, sizeof text, "the server answered %u instead of opening a WebSocket", status);
		fault = text;
		failure = status == 429 || status >= 500 ? NET_FAILURE_PASSING : NET_FAILURE_OTHER;
	}
	conn->handler->failed(conn->user, failure, fault[0] ? fault : NET_NOTHING_ANSWERS);
}

// A dialled connection failed to open, or has closed.
static void client_gone(struct lws *wsi, struct net_conn *conn)
{
	lws_set_opaque_user_data(wsi, NULL);
	conn_destroy(conn);
}

int net_ws_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t length)
{
	struct net_conn *conn = wsi ? lws_get_opaque_user_data(wsi) : NULL;
	(void)user;
	switch ((int)reason) {
	case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
		return conn ? add_bearer(conn, in, length) : 0;
	case LWS_CALLBACK_CLIENT_ESTABLISHED:
		return conn ? on_open(conn) : -1;
	case LWS_CALLBACK_CLIENT_RECEIVE:
		return conn ? net_read_received(conn, in, length) : -1;
	case LWS_CALLBACK_CLIENT_RECEIVE_PONG:
		if (conn) {
			net_heard(conn);
			net_on_pong(conn, in, length);
		}
		return 0;
	case LWS_CALLBACK_CLIENT_WRITEABLE:
		return conn ? net_conn_writable(&conn->session) : -1;
	case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
		return conn ? net_on_peer_close(conn, in, length) : 0;
	case LWS_CALLBACK_CLOSED:
		if (conn)
			tell_closed(conn);
		return 0;
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
		if (conn)
			client_gone(wsi, conn);
		return 0;
	}
	return 0;
}

// Whom to dial, until the loop has come to it.
struct net_dialling {
	struct net_loop *loop;
	char address[300], host[310], path[128],
		subprotocol[64]; // host: as the header of that name has it, with the port
	int port;
};

// A failure is told by callback, at once or later; only one that comes before there is anything to call back for is
// told by the result alone.
static void dial_now(void *arg)
{
	bool gone = false;
	struct net_conn *conn = arg;
	struct net_dialling *to = conn->dialling;
	struct lws_client_connect_info info = {
		.context = net_loop_context(to->loop),
		.vhost = conn->dialled ? net_dialled_vhost(conn->dialled) : net_loop_base_vhost(to->loop),
		.address = to->address,
		.port = to->port,
		.path = to->path,
		.host = to->host,
		.protocol = to->subprotocol[0] ? to->subprotocol : NULL,
		.alpn = "http/1.1",
		// Names are verified by tls_dial.c. Nobody whom we did not choose is dialled instead.
		.ssl_connection = LCCSCF_HTTP_NO_FOLLOW_REDIRECT |
				  (conn->dialled ? LCCSCF_USE_SSL | LCCSCF_SKIP_SERVER_CERT_HOSTNAME_CHECK : 0),
		.local_protocol_name = "client",
		.opaque_user_data = conn,
		.retry_and_idle_policy = &conn->liveness,
		.pwsi = &conn->wsi,
	};
	if (conn->closed) { // the program ends
		conn_destroy(conn);
		return;
	}
	conn->gone = &gone;
	struct lws *wsi = lws_client_connect_via_info(&info);
	if (gone)
		return;
	conn->gone = NULL;
	if (!wsi)
		conn_destroy(conn);
}

static enum status read_dial(struct net_dialling *out, const struct net_dial_params *params, struct error *error)
{
	const char *address = params->socket_path ? params->socket_path : params->host;
	const char *subprotocol = params->subprotocol ? params->subprotocol : "";
	if (params->socket_path && strlen(params->socket_path) > LIMIT_SOCKET_PATH_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "the socket's path is too long: %s",
				 params->socket_path);
	if (strlen(address) + 2 > sizeof out->address || strlen(params->path) >= sizeof out->path ||
	    strlen(subprotocol) >= sizeof out->subprotocol)
		return error_set(error, STATUS_INVALID_PARAMS, "the server's name is too long");
	out->port = params->socket_path ? 0 : params->port;
	snprintf(out->address, sizeof out->address, "%s%s", params->socket_path ? "+" : "", address);
	snprintf(out->path, sizeof out->path, "%s", params->path);
	snprintf(out->subprotocol, sizeof out->subprotocol, "%s", subprotocol);
	if (params->socket_path)
		snprintf(out->host, sizeof out->host, "localhost");
	else
		snprintf(out->host, sizeof out->host, strchr(params->host, ':') ? "[%.*s]:%d" : "%.*s:%d",
			 (int)strcspn(params->host, "%"), params->host, params->port); // %eth0 is ours alone
	return STATUS_OK;
}

// It is dialled from the loop: libwebsockets makes the request in the buffer in which it reads, and the caller may be
// at a message that lies there.
enum status net_dial(struct net_loop *loop, const struct net_dial_params *params, struct error *error)
{
	struct net_dialling to = {.loop = loop};
	enum status status = read_dial(&to, params, error);
	if (status)
		return status;
	struct net_conn *conn = conn_create(loop, params->handler, params->user, NULL);
	if (!conn)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	conn->bearer = params->bearer ? strdup(params->bearer) : NULL;
	conn->liveness = (lws_retry_bo_t){.secs_since_valid_ping = (uint16_t)params->ping_s,
					  .secs_since_valid_hangup = (uint16_t)params->silence_s};
	conn->speaks_first = params->speaks_first;
	conn->rx.unmasked = true;
	net_conn_trust(conn); // we chose whom to dial
	struct net_dialled_params dialled = {.loop = loop, .tls = params->tls, .host = params->host, .wsi = &conn->wsi};
	if (params->tls)
		status = net_dialled_create(&conn->dialled, &dialled, error);
	conn->dialling = malloc(sizeof to);
	if (conn->dialling)
		*conn->dialling = to;
	if (!status && (!conn->dialling || net_loop_post(loop, dial_now, conn)))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (status) {
		conn->closed = true; // no callback: the result tells
		conn_destroy(conn);
	}
	return status;
}

void net_forget_all(struct net_loop *loop)
{
	while (*net_loop_conns(loop)) {
		(*net_loop_conns(loop))->closed = true;
		conn_destroy(*net_loop_conns(loop));
	}
}
