/* See uplink.h. */
#include "engine/node/uplink/uplink.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/net/ws/parts.h"
#include "common/wire/rpc.h"
#include "engine/node/uplink/addresses.h"
#include "engine/node/uplink/find.h"
#include "engine/node/uplink/lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	PROTOCOL = 1,
	REDIAL_FIRST_MS = 100,
	REDIAL_LOCAL_LAST_MS = 500, // of a server on this machine: what is in vain costs next to nothing
	REDIAL_LAST_MS = 2000,
	REDIAL_FAR_LAST_MS = 15000,
	REDIAL_WRONG_MS = 60000,
	REDIAL_TWICE_MS = 10000,     // while another one has this node's place
	RENEW_LOOK_MS = 3600 * 1000, // at most between two looks at the clock, which may be set
	RENEW_AGAIN_MS = 600 * 1000,
	PATIENCE_MS = 30000,
	ELSEWHERE_MS = 8000, // without the server, before it is looked for elsewhere
	NOTICE_MS = 30000,
	SEND_DELAY_MS = 5,
	TELEMETRY_QUEUE_BYTES = 256 * 1024,
	PIECES = 64,         // of bursts, that have no answer yet
	CALLS = PIECES + 16, // those, and registrations, devices and a renewal
	BURST_QUEUE_BYTES = 4 * 1024 * 1024,
	CLOSE_SHUTDOWN = 1001,
	CLOSE_FORBIDDEN = 4403,
	CLOSE_SUPERSEDED = 4409,
};

struct piece {
	struct uplink *uplink; // NULL: free
	bool back;
	int64_t burst;
};

struct uplink {
	struct uplink_params params;
	char socket_path[LIMIT_SOCKET_PATH_BYTES + 1], host[256], node_id[128];
	char address[CREDENTIALS_ADDRESS_BYTES]; // of a server on another machine, as it is written down
	struct net_conn *conn;                   // NULL while there is none
	struct rpc rpc;                          // of this connection
	struct rpc_method *methods;              // (params.method_count + 1)
	struct piece pieces[PIECES];             // of this connection
	struct net_timer redial, send, renewal;
	struct find_place home;              // where it was last; host and port are where it is dialled now
	struct finder *finder;               // NULL: it is not looked for
	unsigned turn;                       // of the places where it is
	struct credentials_request renewing; // zero while no new certificate is asked for
	enum net_failure failure;            // why the last attempt did not open
	char fault[256];                     // and in words
	struct lease lease;
	int64_t redial_ms, lost_at_ms; // lost_at_ms: steady clock, of the last break or the start
	int64_t notice_ms;             // steady clock: when to say again that no server answers
	bool registering, registered;  // asked and not answered yet; answered
	bool met;                      // was registered once
	bool peer_speeds;              // taken by the server
	unsigned connections;          // until now
	pid_t parent;
	bool ended, leaving;
	bool record_due, devices_due;
	char reach[NET_ADDRESS_BYTES]; // of a server on this machine: where others may reach this node; "": nowhere
	bool anew;                     // it does not know the certificate that this node has
};

static void dial(void *arg);

static void end(struct uplink *uplink, enum status status, const char *why)
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

static enum status ask(struct uplink *uplink, const char *method, struct json *params, rpc_done *done)
{
	const enum status status = rpc_call(
		&uplink->rpc, &(struct rpc_ask){.method = method, .params = params, .done = done, .context = uplink});
	warn_unsent(status);
	return status;
}

static void log_refused(const char *what, const struct error *error)
{
	log_error("node", "the server refused %s: %s%s%s", what, error->message, error->hint[0] ? "; " : "",
		  error->hint);
}

static void registered(void *context, enum status status, const struct json *result, const struct error *error);

static void devices_taken(void *context, enum status status, const struct json *result, const struct error *error)
{
	(void)context, (void)result;
	if (status)
		log_refused("its devices", error);
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
		uplink->record_due = false;
		uplink->registering = !ask(uplink, "node.register", params, registered);
	}
	if (uplink->devices_due && uplink->registered) {
		struct json *params = json_new_object();
		json_set(params, "devices", uplink->params.devices(uplink->params.arg));
		json_set_bool(params, "complete", uplink->params.complete(uplink->params.arg));
		if (uplink->peer_speeds && uplink->params.peer_speeds)
			json_set(params, "peer_speeds", uplink->params.peer_speeds(uplink->params.arg));
		uplink->devices_due = false;
		ask(uplink, "node.devices", params, devices_taken);
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

// ---- the certificate ----

static void look_at_age(void *arg);
static void renewed(void *context, enum status status, const struct json *result, const struct error *error);

static void renew_later(struct uplink *uplink, int64_t pause_ms)
{
	credentials_request_finish(&uplink->renewing);
	net_timer_start(uplink->params.loop, &uplink->renewal, pause_ms, look_at_age, uplink);
}

// When the certificate is to be renewed, on the wall clock.
static int64_t renewal_ms(const struct uplink *uplink)
{
	const struct credentials *credentials = uplink->params.credentials;
	if (uplink->anew)
		return 0;
	int64_t life_ms = credentials->not_after_ms - credentials->not_before_ms;
	return credentials->not_before_ms + life_ms / 3 * 2;
}

static void look_at_age(void *arg)
{
	struct uplink *uplink = arg;
	struct error error = {0};
	int64_t left_ms = renewal_ms(uplink) - clock_wall_ms();
	if (left_ms > 0 || !uplink->registered || uplink->renewing.pem) {
		int64_t next_ms = left_ms > 0 && left_ms < RENEW_LOOK_MS ? left_ms : RENEW_LOOK_MS;
		net_timer_start(uplink->params.loop, &uplink->renewal, next_ms, look_at_age, uplink);
		return;
	}
	if (credentials_ask(uplink->params.credentials, false, &uplink->renewing, &error)) {
		log_error("node", "the certificate is not renewed: %s", error.message);
		renew_later(uplink, RENEW_AGAIN_MS);
		return;
	}
	struct json *params = json_new_object();
	json_set_string(params, "request", uplink->renewing.pem);
	if (ask(uplink, "node.renew", params, renewed))
		renew_later(uplink, RENEW_AGAIN_MS);
}

static void tell_reach(struct uplink *uplink)
{
	const bool good = uplink->reach[0] && uplink->params.credentials->joined && !uplink->anew;
	if (uplink->params.reachable && !uplink_remote(uplink))
		uplink->params.reachable(uplink->params.arg, good ? uplink->reach : NULL);
}

static void take_certificate(struct uplink *uplink, const struct json *granted)
{
	struct error error = {0};
	uint8_t authority_sha256[NET_SHA256_BYTES]; // copies, of what is replaced
	memcpy(authority_sha256, uplink->params.credentials->authority_sha256, sizeof authority_sha256);
	const struct credentials_grant grant = {.certificate = json_get_string(granted, "certificate", ""),
						.authority = json_get_string(granted, "authority", ""),
						.server_uri = json_get_string(granted, "server_uri", ""),
						.address = uplink_remote(uplink) ? uplink->address : "unix",
						.node_id = uplink->node_id,
						.authority_sha256 = uplink_remote(uplink) ? authority_sha256 : NULL,
						.key_pem = uplink->renewing.key_pem};
	const bool first = !uplink->params.credentials->joined;
	if (credentials_take(uplink->params.credentials, &grant, &error)) {
		log_error("node", "the new certificate is not taken: %s", error.message);
		renew_later(uplink, RENEW_AGAIN_MS);
		return;
	}
	log_info("node", first ? "the server has granted a certificate" : "the certificate was renewed");
	credentials_request_finish(&uplink->renewing);
	uplink->anew = false;
	tell_reach(uplink);
	look_at_age(uplink);
}

static void renewed(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct uplink *uplink = context;
	if (!status && uplink->renewing.pem)
		take_certificate(uplink, json_get(result, "grant"));
	if (!status)
		return;
	log_refused("a new certificate", error);
	// Of a node that was started again it is too soon.
	renew_later(uplink, status == STATUS_RATE_LIMITED ? LIMIT_RENEW_MS : RENEW_AGAIN_MS);
}

// What a server on this machine says of direct links; NULL: it serves this machine only.
static void take_reach(struct uplink *uplink, const struct json *links)
{
	snprintf(uplink->reach, sizeof uplink->reach, "%s", json_get_string(links, "address", ""));
	uplink->anew = json_get_bool(links, "renew", false);
	tell_reach(uplink);
	if (uplink->reach[0])
		look_at_age(uplink);
}

// Where the server was found is where it is looked for next time.
static void remember_address(struct uplink *uplink)
{
	struct error error = {0};
	finder_destroy(&uplink->finder);
	snprintf(uplink->home.host, sizeof uplink->home.host, "%s", uplink->host);
	uplink->home.port = uplink->params.port;
	if (strcmp(uplink->address, uplink->params.credentials->address) != 0 &&
	    credentials_move(uplink->params.credentials, uplink->address, &error))
		log_warning("node", "the server's new address is not kept: %s", error.message);
}

// ---- registration ----

static void begin(struct uplink *uplink, const struct json *result)
{
	log_info("node", "connected to the server");
	uplink->registered = uplink->met = true;
	uplink->peer_speeds = json_get_bool(result, "peer_speeds", false);
	if (uplink_remote(uplink)) {
		remember_address(uplink);
		look_at_age(uplink);
	}
	uplink->redial_ms = REDIAL_FIRST_MS;
	uplink->params.watched(uplink->params.arg, json_get_bool(result, "watched", false));
	uplink->devices_due = true;
	send_due(uplink);
	if (uplink->params.registered)
		uplink->params.registered(uplink->params.arg);
	if (uplink->params.reachable && !uplink_remote(uplink))
		take_reach(uplink, json_get(result, "links"));
}

static void registered(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct uplink *uplink = context;
	uplink->registering = false;
	if (status)
		log_refused("this node", error);
	if (status && !uplink->registered && !uplink->leaving)
		end(uplink, STATUS_UNAVAILABLE, "the server refused this node");
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
						    .method_count = uplink->params.method_count + 1,
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
		log_warning("node", "the server sent what is no message: %s", error.message);
		net_conn_close(conn, 1002, "not a message");
	} else if (heard == RPC_REFUSED || heard == RPC_BROKEN || heard == RPC_UNASKED) {
		log_warning("node", "a message of the server was refused: %s", error.message);
	}
}

// Whether to stop trying, after 30 s without the server. One that never came is waited for.
static bool out_of_patience(const struct uplink *uplink, int64_t now_ms)
{
	return !uplink_remote(uplink) && now_ms - uplink->lost_at_ms >= PATIENCE_MS &&
	       (uplink->met || getppid() != uplink->parent);
}

// Say, now and then, that there is no server, or why what is there is not taken for it.
static void say_alone(struct uplink *uplink, int64_t now_ms, bool wrong)
{
	if (now_ms < uplink->notice_ms || (uplink->met && !uplink_remote(uplink)))
		return;
	uplink->notice_ms = now_ms + NOTICE_MS;
	const bool absent = uplink_remote(uplink) && uplink->failure == NET_FAILURE_ABSENT;
	const char *unknown = absent ? addresses_unknown(uplink->host) : NULL;
	if (!uplink_remote(uplink))
		log_info("node", "no server answers at unix:%s yet; trying again", uplink->socket_path);
	else if (wrong)
		log_error("node", "what answers at %s is not taken for the server of this node: %s; trying again",
			  uplink->address, uplink->fault);
	else if (uplink->failure == NET_FAILURE_PASSING)
		log_warning("node", "a server is there at %s, but %s: trying again", uplink->address, uplink->fault);
	else if (unknown)
		log_warning("node", "the name %s is not known here (%s): trying again; or join by the server's address",
			    uplink->host, unknown);
	else
		log_info("node", "no server answers at %s; trying again", uplink->address);
}

static void redial(struct uplink *uplink, int64_t now_ms)
{
	const bool wrong = uplink->failure == NET_FAILURE_CERTIFICATE || uplink->failure == NET_FAILURE_OTHER;
	// Whoever announces himself as the server elsewhere is not to make the node wait longer for the true one.
	const bool home = uplink->params.port == uplink->home.port && !strcmp(uplink->host, uplink->home.host);
	// Workers of model instances wait for it so long (tenants.h), and what answers may be its beginning or its end.
	const bool awaited = uplink->met && now_ms - uplink->lost_at_ms < LIMIT_AWAY_MS;
	const int64_t last_ms = !uplink_remote(uplink) ? REDIAL_LOCAL_LAST_MS
				: awaited              ? REDIAL_LAST_MS
				: wrong && home        ? REDIAL_WRONG_MS
						       : REDIAL_FAR_LAST_MS;
	say_alone(uplink, now_ms, wrong);
	net_timer_start(uplink->params.loop, &uplink->redial, uplink->redial_ms, dial, uplink);
	uplink->redial_ms = 2 * uplink->redial_ms < last_ms ? 2 * uplink->redial_ms : last_ms;
}

static void failed(void *user, enum net_failure failure, const char *fault)
{
	struct uplink *uplink = user;
	uplink->failure = failure;
	snprintf(uplink->fault, sizeof uplink->fault, "%s", fault);
}

// There are two of this node. Which one is meant to be the server cannot know: the one that it hears stays, and the
// other waits until that one is gone.
static void wait_for_place(struct uplink *uplink)
{
	uplink->redial_ms = REDIAL_TWICE_MS;
	log_error("node",
		  "another process has this node's certificate and is connected to the server at %s, which tells from "
		  "where in its log: two machines have the same folder; give each its own --data and let it join; "
		  "trying again in %d s",
		  uplink->address, REDIAL_TWICE_MS / 1000);
}

static void closed(void *user, struct net_conn *conn, int code)
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
		end(uplink, STATUS_OK, "told to stop");
	else if (code == CLOSE_SHUTDOWN && !uplink_remote(uplink))
		end(uplink, STATUS_OK, "the server stops");
	else if (conn && code == CLOSE_FORBIDDEN)
		end(uplink, STATUS_FORBIDDEN, "the cluster has removed this node");
	else if (conn && code == CLOSE_SUPERSEDED && !uplink_remote(uplink))
		end(uplink, STATUS_OK, "the server has another connection for this node");
	else if (out_of_patience(uplink, now_ms))
		end(uplink, STATUS_OK, "the server was away for 30 s");
	else {
		if (conn && code == CLOSE_SUPERSEDED)
			wait_for_place(uplink);
		redial(uplink, now_ms);
	}
}

static const struct net_handler handler = {.opened = opened, .message = received, .failed = failed, .closed = closed};

enum status uplink_dial(struct uplink *uplink, struct net_dial_params *params, struct error *error)
{
	if (!uplink_remote(uplink)) {
		params->socket_path = uplink->socket_path;
		return net_dial(uplink->params.loop, params, error);
	}
	const struct credentials *credentials = uplink->params.credentials;
	const struct net_dial_tls tls = {.authority_pem = credentials->authority_pem,
					 .server_uri = credentials->server_uri,
					 .chain_pem = credentials->chain_pem,
					 .key_pem = credentials->key_pem};
	params->host = uplink->host;
	params->port = uplink->params.port;
	params->tls = &tls;
	return net_dial(uplink->params.loop, params, error);
}

bool uplink_registered(const struct uplink *uplink)
{
	return uplink->conn && uplink->registered;
}

bool uplink_remote(const struct uplink *uplink)
{
	return uplink->host[0];
}

static void go_to(struct uplink *uplink, const struct find_place *place)
{
	snprintf(uplink->host, sizeof uplink->host, "%s", place->host);
	uplink->params.port = place->port;
	snprintf(uplink->address, sizeof uplink->address, strchr(place->host, ':') ? "[%s]:%d" : "%s:%d", place->host,
		 place->port);
}

// Where to dial next: where the server was, and after some time in vain in turn where it is announced.
static void choose_place(struct uplink *uplink)
{
	struct error error = {0};
	struct find_place other;
	if (clock_steady_ms() - uplink->lost_at_ms < ELSEWHERE_MS)
		return;
	if (!uplink->finder &&
	    finder_create(&uplink->finder, uplink->params.loop, uplink->params.credentials->server_uri,
			  uplink->params.credentials->authority_sha256, &error))
		log_warning("node", "the server is not looked for elsewhere: %s", error.message);
	const bool away = uplink->finder && uplink->turn++ % 2 &&
			  finder_elsewhere(uplink->finder, &uplink->home, (uplink->turn - 1) / 2, &other);
	go_to(uplink, away ? &other : &uplink->home);
	if (away)
		log_info("node", "the server's cluster is announced at %s: trying there", uplink->address);
}

static void dial(void *arg)
{
	struct uplink *uplink = arg;
	struct error error = {0};
	if (uplink_remote(uplink))
		choose_place(uplink);
	if (uplink_remote(uplink) && uplink->params.credentials->not_after_ms <= clock_wall_ms()) {
		end(uplink, STATUS_UNAUTHENTICATED,
		    "its certificate has expired: it was away from its server for too long");
		return;
	}
	uplink->failure = NET_FAILURE_ABSENT;
	struct net_dial_params params = {
		.path = "/node",
		.subprotocol = "exogpu.node.v1",
		.ping_s = LIMIT_NODE_PING_S,
		.silence_s = LIMIT_NODE_SILENCE_S,
		.handler = &handler,
		.user = uplink,
	};
	if (uplink_dial(uplink, &params, &error)) {
		log_debug("node", "dialling the server: %s", error.message);
		closed(uplink, NULL, 1006);
	}
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
	uplink->methods = calloc(params->method_count + 1, sizeof(*uplink->methods));
	if (!uplink->methods) {
		free(uplink);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the connection to the server");
	}
	uplink->methods[0] = (struct rpc_method){"node.watch", serve_watch};
	for (size_t i = 0; i < params->method_count; i++)
		uplink->methods[i + 1] = (struct rpc_method){params->methods[i].name, serve_method};
	*out = uplink;
	net_timer_start(params->loop, &uplink->redial, 0, dial, uplink);
	return STATUS_OK;
}

void uplink_close(struct uplink *uplink)
{
	uplink->leaving = true;
	if (uplink->conn)
		net_conn_close(uplink->conn, CLOSE_SHUTDOWN, "the node stops");
	else
		end(uplink, STATUS_OK, "told to stop");
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
