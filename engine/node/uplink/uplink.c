/* See uplink.h, and uplink_inside.h for the files that this one has beside it. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/ws/parts.h"
#include "engine/node/uplink/uplink_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	PROTOCOL = 1,
	SEND_DELAY_MS = 5,
	OWN_METHODS = 2, // that it serves itself
	TELEMETRY_QUEUE_BYTES = 256 * 1024,
	CALLS = PIECES + 16, // those, and registrations, devices and a renewal
	BURST_QUEUE_BYTES = 4 * 1024 * 1024,
	CLOSE_SHUTDOWN = 1001,
	CLOSE_FORBIDDEN = 4403,
	CLOSE_SUPERSEDED = 4409,
};

void uplink_end(struct uplink *uplink, enum status status, const char *why)
{
	if (uplink->ended)
		return;
	uplink->ended = true;
	net_timer_stop(uplink->params.loop, &uplink->redial);
	uplink->params.gone(uplink->params.arg, status, why);
}

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct uplink *uplink = arg;
	if (!uplink->conn)
		return STATUS_UNAVAILABLE;
	if (!body)
		return net_conn_send_text(uplink->conn, buffer_text(head), head->length);
	return net_conn_send_parts(uplink->conn, &(struct net_parts){.head = head->data,
								     .head_bytes = head->length,
								     .body = body->bytes,
								     .body_bytes = body->length,
								     .holder = body->holder});
}

static void warn_unsent(enum status status)
{
	if (status)
		log_warning("node", "a message to the server could not be sent: %s", status_text(status));
}

enum status uplink_ask(struct uplink *uplink, const char *method, struct json *params, rpc_done *done)
{
	const enum status status = rpc_call(
		&uplink->rpc, &(struct rpc_ask){.method = method, .params = params, .done = done, .context = uplink});
	warn_unsent(status);
	return status;
}

void uplink_log_refused(const char *what, const struct error *error)
{
	log_error("node", "the server refused %s: %s%s%s", what, error->message, error->hint[0] ? "; " : "",
		  error->hint);
}

static void registered(void *context, enum status status, const struct json *result, const struct error *error);

static void devices_taken(void *context, enum status status, const struct json *result, const struct error *error)
{
	(void)context, (void)result;
	if (status)
		uplink_log_refused("its devices", error);
}

static void send_due(void *arg)
{
	struct uplink *uplink = arg;
	if (!uplink->conn)
		return;
	if (uplink->record_due && !uplink->registering) { // the server stores one registration at a time
		struct json *params = json_new_object();
		json_set_integer(params, "protocol", PROTOCOL);
		json_set(params, "node", uplink->params.record(uplink->params.arg));
		struct json *workers = !uplink->registered && uplink->params.workers
					       ? uplink->params.workers(uplink->params.arg)
					       : NULL;
		if (workers)
			json_set(params, "workers", workers);
		struct json *end = uplink->params.end ? uplink->params.end(uplink->params.arg) : NULL;
		if (end)
			json_set(params, "end", end);
		uplink->record_due = false;
		uplink->registering = !uplink_ask(uplink, "node.register", params, registered);
	}
	if (uplink->devices_due && uplink->registered) {
		struct json *params = json_new_object();
		json_set(params, "devices", uplink->params.devices(uplink->params.arg));
		json_set_bool(params, "complete", uplink->params.complete(uplink->params.arg));
		if (uplink->peer_speeds && uplink->params.peer_speeds)
			json_set(params, "peer_speeds", uplink->params.peer_speeds(uplink->params.arg));
		uplink->devices_due = false;
		uplink_ask(uplink, "node.devices", params, devices_taken);
	}
}

static void schedule(struct uplink *uplink)
{
	if (uplink->conn && !uplink->send.running)
		net_timer_start(uplink->params.loop, &uplink->send, SEND_DELAY_MS, send_due, uplink);
}

void uplink_send_record(struct uplink *uplink)
{
	uplink->record_due = true;
	schedule(uplink);
}

void uplink_send_devices(struct uplink *uplink)
{
	uplink->devices_due = true;
	schedule(uplink);
}

void uplink_notify(struct uplink *uplink, const char *method, struct json *params)
{
	if (uplink_registered(uplink))
		warn_unsent(rpc_notify(&uplink->rpc, method, params));
	else
		json_destroy(&params);
}

bool uplink_tell(struct uplink *uplink, const char *method, struct json *params)
{
	if (uplink_registered(uplink))
		return !rpc_notify(&uplink->rpc, method, params);
	json_destroy(&params);
	return false;
}

void uplink_send_telemetry(struct uplink *uplink, struct json *telemetry)
{
	if (uplink_registered(uplink) && net_conn_queued_bytes(uplink->conn) < TELEMETRY_QUEUE_BYTES)
		warn_unsent(rpc_notify(&uplink->rpc, "node.telemetry", telemetry));
	else
		json_destroy(&telemetry);
}

bool uplink_measure(struct uplink *uplink, double *rtt_ms, struct net_peer_path *path)
{
	if (!uplink->conn || !net_conn_path(uplink->conn, path))
		return false;
	*rtt_ms = net_conn_rtt_ms(uplink->conn);
	net_conn_ping(uplink->conn);
	return true;
}

static void piece_answered(void *context, enum status status, const struct json *result, const struct error *error)
{
	const struct piece piece = *(struct piece *)context;
	const struct uplink_params *params = &piece.uplink->params;
	(void)error;
	*(struct piece *)context = (struct piece){0};
	const int64_t ns = status ? -1 : piece.back ? clock_steady_ns() : json_get_integer(result, "ns", 0);
	if (params->burst_answered)
		params->burst_answered(params->arg, piece.back, piece.burst, ns);
}

static struct piece *free_piece(struct uplink *uplink)
{
	for (struct piece *piece = uplink->pieces; piece < uplink->pieces + PIECES; piece++)
		if (!piece->uplink)
			return piece;
	return NULL;
}

bool uplink_burst(struct uplink *uplink, bool back, int64_t burst, size_t number, size_t bytes)
{
	if (!uplink_registered(uplink) || net_conn_queued_bytes(uplink->conn) > BURST_QUEUE_BYTES)
		return false;
	struct piece *piece = free_piece(uplink);
	struct net_frame *frame = back || !piece ? NULL : net_frame_alloc(bytes);
	if (!piece || (!frame && !back))
		return false;
	*piece = (struct piece){.uplink = uplink, .back = back, .burst = burst};
	struct json *params = json_new_object();
	json_set_integer(params, "burst", burst);
	json_set_integer(params, "piece", (int64_t)number);
	json_set_integer(params, "back_bytes", back ? (int64_t)bytes : 0);
	if (frame)
		memset(net_frame_data(frame), 0, bytes); // TLS makes noise of it
	const struct rpc_body body = {frame ? net_frame_data(frame) : NULL, frame ? bytes : 0, frame};
	const enum status status = rpc_call(&uplink->rpc, &(struct rpc_ask){.method = "node.burst",
									    .params = params,
									    .done = piece_answered,
									    .context = piece,
									    .body = frame ? &body : NULL});
	net_frame_unref(&frame);
	if (status)
		*piece = (struct piece){0};
	return !status;
}

void uplink_answer(struct uplink_call **pointer, struct json *result, const struct error *error)
{
	struct uplink_call *call = *pointer;
	struct uplink *uplink = call->uplink;
	*pointer = NULL;
	if (uplink->conn && call->connection == uplink->connections)
		rpc_answer(&uplink->rpc, call->method, call->id, result, error);
	else
		json_destroy(&result);
	if (error && !call->id)
		log_warning("node", "a notification of the server was refused: %s", error->message);
	json_destroy(&call->id);
	free(call);
}

static enum status serve_watch(void *arg, const struct message *message, struct error *error)
{
	struct uplink *uplink = arg;
	(void)error;
	uplink->params.watched(uplink->params.arg, json_get_bool(message->params, "watched", false));
	return STATUS_OK;
}

static enum status serve_servers(void *arg, const struct message *message, struct error *error)
{
	struct uplink *uplink = arg;
	(void)error;
	if (uplink_remote(uplink))
		uplink_take_servers(uplink, json_get(message->params, "servers"));
	return STATUS_OK;
}

static enum status serve_method(void *arg, const struct message *message, struct error *error)
{
	struct uplink *uplink = arg;
	const struct uplink_method *method = uplink->params.methods;
	struct uplink_call *call = calloc(1, sizeof(*call));
	if (!call)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the node is out of memory");
	*call = (struct uplink_call){.uplink = uplink,
				     .connection = uplink->connections,
				     .params = message->params,
				     .id = message->id ? json_copy(message->id) : NULL};
	snprintf(call->method, sizeof call->method, "%s", message->method);
	while (strcmp(method->name, call->method) != 0) // it is one of these, or rpc would not have called
		method++;
	method->serve(uplink->params.arg, call);
	return STATUS_PENDING;
}

// ---- registration ----

static void begin(struct uplink *uplink, const struct json *result)
{
	log_info("node", "connected to the server");
	uplink->registered = uplink->met = true;
	uplink->peer_speeds = json_get_bool(result, "peer_speeds", false);
	if (uplink_remote(uplink)) {
		uplink_remember_address(uplink);
		uplink->dialled = 1; // should it be gone, the next one may lead already
		uplink_look_at_age(uplink);
	}
	uplink->redial_ms = REDIAL_FIRST_MS;
	uplink->params.watched(uplink->params.arg, json_get_bool(result, "watched", false));
	uplink->devices_due = true;
	send_due(uplink);
	if (uplink->params.registered)
		uplink->params.registered(uplink->params.arg);
	if (uplink->params.reachable && !uplink_remote(uplink))
		uplink_take_reach(uplink, json_get(result, "links"));
}

static void registered(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct uplink *uplink = context;
	uplink->registering = false;
	if (status)
		uplink_log_refused("this node", error);
	if (status && !uplink->registered && !uplink->leaving)
		uplink_end(uplink, STATUS_UNAVAILABLE, "the server refused this node");
	if (status)
		return;
	if (uplink->record_due)
		schedule(uplink);
	if (!uplink->registered)
		begin(uplink, result);
}

// ---- the connection ----

static void opened(void *user, struct net_conn *conn)
{
	struct uplink *uplink = user;
	uplink->conn = conn;
	uplink->connections++;
	lease_begin(&uplink->lease, conn);
	net_conn_trust(conn);
	rpc_init(&uplink->rpc, &(struct rpc_params){.contract = uplink->params.contract,
						    .serves = "server-to-node",
						    .peer = "the server",
						    .methods = uplink->methods,
						    .method_count = uplink->params.method_count + OWN_METHODS,
						    .most_calls = CALLS,
						    .send = send_message,
						    .arg = uplink});
	uplink->record_due = uplink->devices_due = true;
	send_due(uplink);
}

static void received(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct uplink *uplink = user;
	struct error error = {0};
	lease_heard(&uplink->lease);
	const enum rpc_heard heard = rpc_receive(&uplink->rpc, bytes, length, binary, &error);
	if (heard == RPC_GARBAGE) {
		log_warning("node", "the server sent a malformed message: %s", error.message);
		net_conn_close(conn, 1002, "not a message");
	} else if (heard == RPC_REFUSED || heard == RPC_BROKEN || heard == RPC_UNASKED) {
		log_warning("node", "a message of the server was refused: %s", error.message);
	}
}

static void failed(void *user, enum net_failure failure, const char *fault)
{
	struct uplink *uplink = user;
	uplink->failure = failure;
	snprintf(uplink->fault, sizeof uplink->fault, "%s", fault);
}

void uplink_closed(void *user, struct net_conn *conn, int code)
{
	struct uplink *uplink = user;
	int64_t now_ms = clock_steady_ms();
	if (uplink->registered) {
		uplink->lost_at_ms = now_ms;
		uplink->params.watched(uplink->params.arg, false);
		log_info("node", "the connection to the server ended (%d)", code);
	}
	uplink->conn = NULL;
	uplink->registering = uplink->registered = false;
	rpc_close(&uplink->rpc, NULL);
	memset(uplink->pieces, 0, sizeof uplink->pieces);
	net_timer_stop(uplink->params.loop, &uplink->send);
	net_timer_stop(uplink->params.loop, &uplink->renewal);
	credentials_request_finish(&uplink->renewing);
	if (conn)
		uplink->params.lost(uplink->params.arg);
	lease_end(&uplink->lease);
	if (uplink->ended)
		return;
	if (uplink->leaving)
		uplink_end(uplink, STATUS_OK, "told to stop");
	else if (code == CLOSE_SHUTDOWN && !uplink_remote(uplink))
		uplink_end(uplink, STATUS_OK, "the server stops");
	else if (conn && code == CLOSE_FORBIDDEN)
		uplink_end(uplink, STATUS_FORBIDDEN, "the cluster has removed this node");
	else if (conn && code == CLOSE_SUPERSEDED && !uplink_remote(uplink))
		uplink_end(uplink, STATUS_OK, "the server has another connection for this node");
	else if (uplink_out_of_patience(uplink, now_ms))
		uplink_end(uplink, STATUS_OK, "the server was away for 30 s");
	else {
		if (conn && code == CLOSE_SUPERSEDED)
			uplink_wait_for_place(uplink);
		uplink_redial(uplink, now_ms);
	}
}

const struct net_handler uplink_handler = {
	.opened = opened, .message = received, .failed = failed, .closed = uplink_closed};

bool uplink_registered(const struct uplink *uplink)
{
	return uplink->conn && uplink->registered;
}

bool uplink_record_taken(const struct uplink *uplink)
{
	return uplink_registered(uplink) && !uplink->record_due && !uplink->registering;
}

bool uplink_remote(const struct uplink *uplink)
{
	return uplink->host[0];
}

enum status uplink_create(struct uplink **out, const struct uplink_params *params, struct error *error)
{
	*out = NULL;
	if (params->socket_path && strlen(params->socket_path) > LIMIT_SOCKET_PATH_BYTES) {
		error_hint(error, "use a data directory with a shorter path");
		return error_set(error, STATUS_INVALID_PARAMS, "the server's socket path is over %d bytes",
				 LIMIT_SOCKET_PATH_BYTES);
	}
	struct uplink *uplink = calloc(1, sizeof(*uplink));
	if (!uplink)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the connection to the server");
	uplink->params = *params;
	uplink->lease = (struct lease){.loop = params->loop, .changed = params->fenced, .arg = params->arg};
	snprintf(uplink->socket_path, sizeof(uplink->socket_path), "%s",
		 params->socket_path ? params->socket_path : "");
	snprintf(uplink->host, sizeof(uplink->host), "%s", params->socket_path ? "" : params->host);
	snprintf(uplink->node_id, sizeof(uplink->node_id), "%s", params->node_id ? params->node_id : "");
	snprintf(uplink->address, sizeof(uplink->address), strchr(uplink->host, ':') ? "[%s]:%d" : "%s:%d",
		 uplink->host, params->port);
	snprintf(uplink->home.host, sizeof uplink->home.host, "%s", uplink->host);
	uplink->home.port = params->port;
	uplink->redial_ms = REDIAL_FIRST_MS;
	uplink->lost_at_ms = clock_steady_ms();
	uplink->parent = params->parent ? params->parent : getppid();
	uplink->methods = calloc(params->method_count + OWN_METHODS, sizeof(*uplink->methods));
	if (!uplink->methods) {
		free(uplink);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the connection to the server");
	}
	uplink->methods[0] = (struct rpc_method){"node.watch", serve_watch};
	uplink->methods[1] = (struct rpc_method){"node.servers", serve_servers};
	for (size_t i = 0; i < params->method_count; i++)
		uplink->methods[i + OWN_METHODS] = (struct rpc_method){params->methods[i].name, serve_method};
	*out = uplink;
	net_timer_start(params->loop, &uplink->redial, 0, uplink_dial_next, uplink);
	return STATUS_OK;
}

void uplink_close(struct uplink *uplink)
{
	uplink->leaving = true;
	if (uplink->conn)
		net_conn_close(uplink->conn, CLOSE_SHUTDOWN, "the node stops");
	else
		uplink_end(uplink, STATUS_OK, "told to stop");
}

void uplink_destroy(struct uplink **uplink)
{
	if (!*uplink)
		return;
	(*uplink)->ended = true;
	net_timer_stop((*uplink)->params.loop, &(*uplink)->redial);
	net_timer_stop((*uplink)->params.loop, &(*uplink)->send);
	net_timer_stop((*uplink)->params.loop, &(*uplink)->renewal);
	finder_destroy(&(*uplink)->finder);
	credentials_request_finish(&(*uplink)->renewing);
	lease_end(&(*uplink)->lease);
	rpc_close(&(*uplink)->rpc, NULL);
	free((*uplink)->methods);
	free(*uplink);
	*uplink = NULL;
}
