/* See relay.h. Order of reading: relay_create, opened, the two ways of messages, the ends. */
#include "engine/node/links/relay.h"

#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "common/net/stream.h"
#include "common/net/ws/parts.h"
#include "common/wire/message.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLOSE_DONE = 1000, CLOSE_PROTOCOL = 1002, CLOSE_ENDED = 4410 }; // 4410 drops what is queued

struct relays {
	struct relays_params params;
	struct relay *list;
	bool fenced;
};

struct relay {
	struct relay *next, **link;
	struct relays *all;
	struct net_stream *stream; // to the worker; NULL once that end is gone
	struct net_conn *conn;     // to the server; NULL before it is open
	char worker_id[65], key[65];
	bool dialled;                  // there is a connection, or will be
	bool over;                     // the connection is closing, or will be when it opens
	bool left, due;                // the same, to be dialled again: when it is closed, if `due`
	bool worker_full, server_full; // one cannot take more: the other is not read
	bool reading;                  // the worker's stream is
	bool worker_gone;              // the worker closed its stream, and that closed the connection
	void (*closed)(void *arg, enum relay_end end);
	void (*broken)(void *arg);
	void *arg;
	bool *gone; // set when this is freed, while it is being dialled
};

// ---- who may pass ----

// Read the stream while the server is connected and takes data; read the connection while the worker takes data. A
// fence is handled apart.
static void look_whether_to_read(struct relay *relay)
{
	bool wanted = relay->conn && !relay->left && !relay->server_full;
	if (!relay->stream || wanted == relay->reading)
		return;
	relay->reading = wanted;
	if (wanted)
		net_stream_resume(relay->stream);
	else
		net_stream_pause(relay->stream);
}

static void hold_stream(struct relay *relay, bool held)
{
	net_stream_hold(relay->stream, held);
	if (held)
		net_stream_pause(relay->stream);
	else
		net_stream_resume(relay->stream);
}

static void hold_conn(struct relay *relay, bool held)
{
	net_conn_hold(relay->conn, held);
	if (held)
		net_conn_pause(relay->conn);
	else
		net_conn_resume(relay->conn);
}

void relays_fence(struct relays *relays, bool fenced)
{
	if (relays->fenced == fenced)
		return;
	relays->fenced = fenced;
	for (struct relay *relay = relays->list; relay; relay = relay->next) {
		if (relay->stream)
			hold_stream(relay, fenced);
		if (relay->conn)
			hold_conn(relay, fenced);
	}
}

// ---- the ends ----

static void drop_stream(struct relay *relay)
{
	net_stream_destroy(&relay->stream);
	if (relay->worker_full && relay->conn) // or the server's farewell would not be read
		net_conn_resume(relay->conn);
	relay->worker_full = false;
}

static void close_conn(struct relay *relay, int code, const char *why)
{
	relay->over = true;
	if (relay->conn)
		net_conn_close(relay->conn, code, why);
}

static void relay_free(struct relay *relay)
{
	drop_stream(relay);
	LIST_REMOVE(relay, link);
	if (relay->gone)
		*relay->gone = true;
	OPENSSL_cleanse(relay->key, sizeof(relay->key));
	free(relay);
}

static void conn_closed(void *user, struct net_conn *conn, int code)
{
	struct relay *relay = user;
	const bool ended = code == CLOSE_ENDED && !relay->over && !relay->left, tell = !relay->left;
	(void)conn;
	relay->dialled = false;
	if (relay->broken && relay->closed && relay->stream && !relay->over && !ended) {
		relay->conn = NULL;
		relay->left = relay->server_full = relay->worker_full = false;
		look_whether_to_read(relay);
		if (relay->due)
			relay_return(relay);
		else if (tell)
			relay->broken(relay->arg);
		return;
	}
	relay->conn = NULL;
	void (*closed)(void *, enum relay_end) = relay->gone ? NULL : relay->closed;
	void *arg = relay->arg;
	const enum relay_end end = relay->worker_gone ? RELAY_WORKER_GONE : ended ? RELAY_SERVER_ENDED : RELAY_LOST;
	relay_free(relay);
	if (closed)
		closed(arg, end);
}

static void stream_closed(void *user, struct net_stream *stream, const char *why)
{
	struct relay *relay = user;
	(void)stream;
	log_debug("node", "the stream of worker %s ended: %s", relay->worker_id, why);
	relay->stream = NULL; // it goes when this returns
	relay->worker_gone = true;
	drop_stream(relay);
	close_conn(relay, CLOSE_DONE, "the worker ended");
}

void relay_let_go(struct relay **pointer)
{
	struct relay *relay = *pointer;
	*pointer = NULL;
	if (!relay)
		return;
	relay->closed = NULL;
	if (!relay->dialled)
		relay_free(relay);
}

void relay_destroy(struct relay **pointer)
{
	struct relay *relay = *pointer;
	if (!relay)
		return;
	drop_stream(relay);
	close_conn(relay, CLOSE_ENDED, "the worker was ended");
	relay_let_go(pointer);
}

// ---- messages ----

static void from_worker(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
			struct net_frame *body)
{
	struct relay *relay = user;
	(void)stream;
	if (!relay->conn) // bytes that had been read before
		return;
	const struct net_parts parts = {.head = head,
					.head_bytes = head_bytes,
					.body = body ? net_frame_data(body) : NULL,
					.body_bytes = body ? net_frame_bytes(body) : 0,
					.holder = body};
	enum status status = net_conn_send_parts(relay->conn, &parts);
	if (status) {
		log_warning("node", "messages of worker %s cannot be forwarded: %s", relay->worker_id,
			    status_text(status));
		drop_stream(relay);
		close_conn(relay, CLOSE_ENDED, "the worker's messages cannot be forwarded");
	} else if (!relay->server_full && net_conn_queued_bytes(relay->conn) > LIMIT_STREAM_FULL_BYTES) {
		relay->server_full = true;
		look_whether_to_read(relay);
	}
}

static void server_drained(void *user, struct net_conn *conn)
{
	struct relay *relay = user;
	(void)conn;
	relay->server_full = false;
	look_whether_to_read(relay);
}

static void from_server(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct relay *relay = user;
	struct net_parts parts = {0};
	if (!relay->stream)
		return;
	enum status status = binary ? net_conn_take_parts(conn, bytes, length, &parts) : STATUS_PARSE_ERROR;
	if (!status)
		status = net_stream_send(relay->stream, parts.head, parts.head_bytes, parts.holder, parts.body,
					 parts.body_bytes);
	net_frame_unref(&parts.holder);
	if (status) {
		log_warning("node", "the server's messages to worker %s cannot be forwarded: %s", relay->worker_id,
			    status_text(status));
		drop_stream(relay);
		close_conn(relay, CLOSE_PROTOCOL, "its messages cannot be forwarded");
	} else if (!relay->worker_full && net_stream_queued(relay->stream) > LIMIT_STREAM_FULL_BYTES) {
		relay->worker_full = true;
		net_conn_pause(conn);
	}
}

static void worker_drained(void *user, struct net_stream *stream)
{
	struct relay *relay = user;
	(void)stream;
	if (!relay->worker_full)
		return;
	relay->worker_full = false;
	net_conn_resume(relay->conn);
}

// ---- the beginning ----

static enum status say_hello(struct relay *relay)
{
	struct buffer head;
	struct json *params = json_new_object();
	buffer_init(&head, LIMIT_HEAD_BYTES);
	json_set_string(params, "worker_id", relay->worker_id);
	json_set_string(params, "key", relay->key);
	enum status status = message_print_call(&head, NULL, "link.hello", params);
	if (!status)
		status = net_conn_send_parts(relay->conn,
					     &(struct net_parts){.head = head.data, .head_bytes = head.length});
	if (!relay->broken)
		OPENSSL_cleanse(relay->key, sizeof(relay->key)); // it is for once
	buffer_finish(&head);
	return status;
}

static void opened(void *user, struct net_conn *conn)
{
	struct relay *relay = user;
	relay->conn = conn;
	if (relay->all->fenced)
		hold_conn(relay, true);
	if (relay->over || say_hello(relay)) {
		relay->over = true;
		net_conn_close(conn, CLOSE_ENDED, "the worker was ended");
	} else if (relay->left) {
		net_conn_close(conn, CLOSE_ENDED, "the connection to the server was cut");
	} else {
		look_whether_to_read(relay);
	}
}

static const struct net_handler conn_handler = {
	.opened = opened, .message = from_server, .drained = server_drained, .closed = conn_closed};
static const struct net_stream_handler stream_handler = {
	.message = from_worker, .drained = worker_drained, .closed = stream_closed};

// The node's end of the pair; it is not read before the server is connected.
static enum status create_stream(struct relay *relay, int *fd, struct error *error)
{
	int sockets[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "a worker's stream");
	enum status status = STATUS_OK;
	if (fcntl(sockets[0], F_SETFL, O_NONBLOCK) < 0)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "a worker's stream");
	if (!status)
		status = net_stream_create(&relay->stream, relay->all->params.loop, sockets[0], &stream_handler, relay,
					   error);
	if (status) {
		close(sockets[0]);
		close(sockets[1]);
		return status;
	}
	net_stream_pause(relay->stream);
	if (relay->all->fenced)
		hold_stream(relay, true);
	*fd = sockets[1];
	return STATUS_OK;
}

// Errors: as the dialling itself; it may have failed at once, too, and been told.
static enum status dial(struct relay *relay, struct error *error)
{
	struct net_dial_params params = {.path = "/node",
					 .subprotocol = "exogpu.worker.v1",
					 .ping_s = LIMIT_NODE_PING_S,
					 .silence_s = longer_node_silence_s(),
					 .speaks_first = true, // link.hello
					 .handler = &conn_handler,
					 .user = relay};
	relay->dialled = true;
	return relay->all->params.dial(relay->all->params.arg, &params, error);
}

void relay_leave(struct relay *relay)
{
	relay->due = false;
	if (!relay->dialled || relay->left)
		return;
	relay->left = true;
	look_whether_to_read(relay);
	if (relay->conn)
		net_conn_close(relay->conn, CLOSE_ENDED, "the connection to the server was cut");
}

void relay_return(struct relay *relay)
{
	struct error error = {0};
	relay->due = relay->dialled && relay->left;
	if (relay->dialled)
		return;
	// A connection that failed at once has been reported already, and is not dialled again.
	if (dial(relay, &error) && relay->dialled)
		conn_closed(relay, NULL, 0);
}

bool relay_is_open(const struct relay *relay)
{
	return relay->conn && !relay->left;
}

enum status relay_create(struct relay **out, struct relays *relays, const struct relay_params *params, int *fd,
			 struct error *error)
{
	bool gone = false;
	struct relay *relay = calloc(1, sizeof(*relay));
	*out = NULL;
	if (!relay)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a worker's connection");
	*relay = (struct relay){.all = relays, .closed = params->closed, .arg = params->arg, .gone = &gone};
	snprintf(relay->worker_id, sizeof(relay->worker_id), "%s", params->worker_id);
	snprintf(relay->key, sizeof(relay->key), "%s", params->key);
	LIST_PUSH(&relays->list, relay, link);
	int worker_end = -1;
	enum status status = create_stream(relay, &worker_end, error);
	if (!status)
		status = dial(relay, error);
	if (status && !gone)
		relay_free(relay);
	else if (gone) // it failed at once
		status = error_set(error, STATUS_UNAVAILABLE, "the server cannot be dialled for a worker");
	if (status) {
		if (worker_end >= 0)
			close(worker_end);
		return status;
	}
	relay->gone = NULL;
	relay->broken = params->broken; // from here on
	*out = relay;
	*fd = worker_end;
	return STATUS_OK;
}

enum status relays_create(struct relays **out, const struct relays_params *params, struct error *error)
{
	struct relays *relays = calloc(1, sizeof(*relays));
	*out = relays;
	if (!relays)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the connections of workers");
	relays->params = *params;
	return STATUS_OK;
}

void relays_destroy(struct relays **pointer)
{
	struct relays *relays = *pointer;
	if (!relays)
		return;
	*pointer = NULL;
	while (relays->list)
		relay_free(relays->list);
	free(relays);
}
