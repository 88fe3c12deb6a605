/* `exogpu mcp --listen`: MCP's streamable HTTP (revision 2025-11-25) without sessions: each POST to /mcp holds one
 * message. Its answer is one JSON object, or, of a call that wants to hear of its progress, a stream of events that
 * ends with it. A GET is answered by a stream, too, which tells that the list of devices has changed, until its client
 * leaves; it begins with that if the client had another before (Last-Event-ID), since nobody knows what it missed.
 * The Bearer token of a request is the one that the server is asked with, on a connection of the request's own; so it
 * needs no store of tokens, and a refused one is answered 401. Thread: the process's only one. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "common/net/ws/ws.h"
#include "common/wire/rpc.h"
#include "server/cli/client.h"
#include "server/cli/mcp/admit.h"
#include "server/cli/mcp/mcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	CONNECTIONS = 64,
	STREAMS = 32, // of these, that are answers to a GET
	TOKEN_BYTES = 136,
	HTTP_OK = 200,
	HTTP_ACCEPTED = 202,
	PULSE_MS = 5000, // progress of a call; on a stream on which nothing happens, a sign of life
	GATHER_MS = 100, // changes that come together are one
	LOGIN_MS = 10000,
};

struct service {
	const struct mcp *mcp;
	const struct target *target;
	struct net_loop *loop;
	unsigned streams;
	uint64_t events; // the last one's id
};

// A POST or GET, and the connection to the server that it is answered by. Freed once both are over.
struct request {
	struct service *service;
	char token[TOKEN_BYTES];
	struct net_exchange *exchange; // NULL: not come yet, answered, or its client is gone
	struct json *message;          // NULL of a GET
	struct mcp_asked asked;        // inside `message`
	bool get, events;              // its client takes a stream of events
	bool missed;                   // a GET's client had a stream before
	bool begun;                    // the stream, that is the answer
	bool changed;                  // the list of devices, which is told soon
	int64_t called_ms;             // when the tool was called
	struct net_conn *conn;
	bool dialled, over; // the connection is not closed yet; the exchange is over
	struct rpc rpc;
	struct net_timer timer; // for the answer; at the end, until it is freed
	struct net_timer pulse;
	char fault[300];
};

// ---- answers ----

static void fill(struct net_response *response, int status, struct json *json)
{
	buffer_clear(&response->owned);
	if (json && json_print(json, &response->owned))
		status = status_http(STATUS_INTERNAL);
	json_destroy(&json);
	response->status = status;
	response->content_type = "application/json";
	response->body = response->owned.data;
	response->body_bytes = response->owned.length;
	response->no_store = true;
	if (status == status_http(STATUS_UNAUTHENTICATED))
		response->authenticate = "Bearer realm=\"exogpu\"";
}

static void fail(struct net_response *response, int status, const struct json *id, const struct error *error)
{
	fill(response, status, mcp_message(id, NULL, error));
}

// Send `message`, which is taken, as an event of the stream. Errors: it is too long, or nobody takes what was sent
// before.
static enum status tell(struct request *request, struct json *message)
{
	struct buffer text;
	buffer_init(&text, LIMIT_ANSWER_QUEUE_BYTES);
	if (request->get)
		buffer_printf(&text, "id: %llu\n", (unsigned long long)++request->service->events);
	buffer_append_text(&text, "event: message\ndata: ");
	enum status status = message ? json_print(message, &text) : STATUS_OUT_OF_MEMORY;
	buffer_append_text(&text, "\n\n");
	if (!status && text.failed)
		status = STATUS_LIMIT_EXCEEDED;
	if (!status)
		status = net_exchange_send(request->exchange, text.data, text.length);
	buffer_finish(&text);
	json_destroy(&message);
	return status;
}

static struct json *too_long(const struct request *request)
{
	struct error error = {0};
	error_set(&error, STATUS_LIMIT_EXCEEDED, "the answer has more than %d bytes", LIMIT_ANSWER_QUEUE_BYTES);
	return mcp_reply(request->message, NULL, &error);
}

static void begin_stream(struct request *request)
{
	const struct net_response response = {.status = HTTP_OK, .content_type = "text/event-stream", .no_store = true};
	net_exchange_begin(request->exchange, &response);
	request->begun = true;
}

// The end of a request: `message` (taken; NULL: nothing is said) is what it is answered with.
static void answer(struct request *request, int status, struct json *message)
{
	struct net_exchange *exchange = request->exchange;
	struct net_response response = {0};
	net_timer_stop(request->service->loop, &request->timer);
	net_timer_stop(request->service->loop, &request->pulse);
	if (exchange && request->begun) {
		if (message && !request->get && tell(request, json_copy(message)))
			tell(request, too_long(request));
		net_exchange_end(exchange);
		json_destroy(&message);
		request->exchange = exchange = NULL;
	}
	request->exchange = NULL;
	if (exchange) {
		buffer_init(&response.owned, LIMIT_ANSWER_QUEUE_BYTES);
		fill(&response, status, message);
		if (message && response.status != status) // too long to be sent
			fill(&response, HTTP_OK, too_long(request));
		net_exchange_answer(exchange, &response);
	} else {
		json_destroy(&message);
	}
	if (request->conn)
		net_conn_close(request->conn, 1000, "");
}

static void answer_error(struct request *request, int status, const struct error *error)
{
	answer(request, status, mcp_message(json_get(request->message, "id"), NULL, error));
}

// ---- streams of events ----

static struct json *notification(const char *method, struct json *params)
{
	struct json *message = json_new_object();
	json_set_string(message, "jsonrpc", "2.0");
	json_set_string(message, "method", method);
	if (params)
		json_set(message, "params", params);
	return message;
}

// Nobody takes what is sent: the connection goes, so that what follows is not taken for the next event.
static void drop(struct request *request)
{
	net_timer_stop(request->service->loop, &request->pulse);
	net_exchange_drop(request->exchange);
}

static const struct json *progress_token(const struct request *request)
{
	return json_get(json_get(json_get(request->message, "params"), "_meta"), "progressToken");
}

// A call's client is told how long the call has taken, a stream's client that the stream is there.
static void on_pulse(void *arg)
{
	static const char life[] = ": \n\n";
	struct request *request = arg;
	enum status status;
	if (request->get) {
		status = net_exchange_send(request->exchange, life, sizeof life - 1);
	} else {
		struct json *params = json_new_object();
		json_set(params, "progressToken", json_copy(progress_token(request)));
		json_set(params, "progress", json_new_number((double)(clock_steady_ms() - request->called_ms) / 1000));
		json_set_string(params, "message", "seconds since the call");
		status = tell(request, notification("notifications/progress", params));
	}
	if (status)
		drop(request);
	else
		net_timer_start(request->service->loop, &request->pulse,
				lower_in_tests("EXOGPU_TEST_MCP_PULSE_MS", PULSE_MS), on_pulse, request);
}

static void on_gathered(void *arg)
{
	struct request *request = arg;
	request->changed = false;
	if (tell(request, notification("notifications/resources/list_changed", NULL)))
		drop(request);
}

static void note_change(struct request *request)
{
	if (!request->begun || !request->exchange || request->changed)
		return;
	request->changed = true;
	net_timer_start(request->service->loop, &request->timer, GATHER_MS, on_gathered, request);
}

// ---- the connection to the server ----

static void on_answer(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct request *request = context;
	if (request->exchange)
		answer(request, HTTP_OK, mcp_reply(request->message, status ? NULL : result, error));
}

// Whether the request goes on: its client is there, and the server has not refused. A refusal is passed on.
static bool goes_on(struct request *request, enum status status, const struct error *error)
{
	if (request->exchange && status)
		answer_error(request, status_http(status), error);
	return request->exchange && !status;
}

static void on_subscribed(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct request *request = context;
	(void)result;
	if (!goes_on(request, status, error))
		return;
	net_timer_stop(request->service->loop, &request->timer);
	begin_stream(request);
	on_pulse(request);
	if (request->missed)
		note_change(request);
}

static void subscribe(struct request *request)
{
	struct json *params = json_new_object(), *topics = json_new_array();
	struct error error = {0};
	json_push(topics, json_new_string("inventory"));
	json_set(params, "topics", topics);
	if (rpc_call(&request->rpc, &(struct rpc_ask){.method = "events.subscribe",
						      .params = params,
						      .done = on_subscribed,
						      .context = request})) {
		error_set(&error, STATUS_UNAVAILABLE, "the server cannot be asked");
		answer_error(request, status_http(STATUS_UNAVAILABLE), &error);
	}
}

static void call(struct request *request)
{
	const struct json *params = request->asked.params;
	struct error refusal = {0};
	if (rpc_call(&request->rpc, &(struct rpc_ask){.method = request->asked.method,
						      .params = params ? json_copy(params) : NULL,
						      .done = on_answer,
						      .context = request})) {
		error_set(&refusal, STATUS_UNAVAILABLE, "the call could not be sent");
		answer(request, HTTP_OK, mcp_reply(request->message, NULL, &refusal));
		return;
	}
	if (!request->events || !progress_token(request))
		return;
	request->called_ms = clock_steady_ms();
	begin_stream(request);
	on_pulse(request);
}

static void on_login(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct request *request = context;
	struct json *made = NULL;
	struct error refusal = {0};
	(void)result;
	if (!goes_on(request, status, error))
		return;
	if (request->get)
		subscribe(request);
	else if (request->asked.method)
		call(request);
	else if (mcp_answer(request->service->mcp, request->message, true, &made, &refusal))
		answer_error(request, HTTP_OK, &refusal);
	else
		answer(request, HTTP_OK, mcp_message(json_get(request->message, "id"), made, NULL));
}

static void on_opened(void *user, struct net_conn *conn)
{
	struct request *request = user;
	struct json *params = json_new_object();
	struct error error = {0};
	request->conn = conn;
	json_set_string(params, "token", request->token);
	if (!request->exchange) {
		json_destroy(&params);
		net_conn_close(conn, 1000, "");
	} else if (rpc_call(&request->rpc,
			    &(struct rpc_ask){
				    .method = "auth.login", .params = params, .done = on_login, .context = request})) {
		error_set(&error, STATUS_UNAVAILABLE, "the server cannot be asked");
		answer_error(request, status_http(STATUS_UNAVAILABLE), &error);
	}
}

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct request *request = arg;
	(void)body; // no tool has one
	return request->conn ? net_conn_send_text(request->conn, buffer_text(head), head->length) : STATUS_UNAVAILABLE;
}

// An answer may be longer than what message_decode takes of a peer.
static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct request *request = user;
	struct message message = {0};
	struct json *head = NULL;
	struct error error = {0};
	if (!request->exchange)
		return;
	if (binary || json_parse(&head, (const char *)bytes, length, &error) || message_take(&message, head, &error)) {
		net_conn_close(conn, 1002, "not a message");
		return;
	}
	if (message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR)
		rpc_take(&request->rpc, &message, &error);
	else if (message.kind == MESSAGE_NOTIFICATION && request->get && !strcmp(message.method, "event"))
		note_change(request);
	message_finish(&message);
}

static void on_failed(void *user, enum net_failure failure, const char *fault)
{
	struct request *request = user;
	(void)failure;
	snprintf(request->fault, sizeof request->fault, "%s", fault);
}

static void on_late(void *arg)
{
	struct request *request = arg;
	struct error error = {0};
	error_set(&error, STATUS_TIMEOUT, "no answer from %s in time", request->service->target->name);
	answer_error(request, status_http(STATUS_TIMEOUT), &error);
}

static void request_free(void *arg)
{
	struct request *request = arg;
	rpc_close(&request->rpc, NULL);
	json_destroy(&request->message);
	explicit_bzero(request->token, sizeof request->token);
	free(request);
}

// By the timer, since whoever says that something is over may still look at the request.
static void release(struct request *request)
{
	if (request->over && !request->dialled)
		net_timer_start(request->service->loop, &request->timer, 0, request_free, request);
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	struct request *request = user;
	struct error error = {0};
	(void)conn, (void)code;
	request->conn = NULL;
	request->dialled = false;
	if (request->exchange) {
		error_set(&error, STATUS_UNAVAILABLE, "%s: %s", request->service->target->name,
			  request->fault[0] ? request->fault : "the connection broke before the answer arrived");
		answer_error(request, status_http(STATUS_UNAVAILABLE), &error);
	}
	release(request);
}

static enum status dial(struct request *request, struct error *error)
{
	static const struct net_handler handler = {
		.opened = on_opened, .message = on_message, .failed = on_failed, .closed = on_closed};
	request->dialled = true;
	const enum status status = client_dial(request->service->loop, request->service->target, &handler, request,
					       error);
	if (status)
		request->dialled = false;
	return status;
}

// ---- requests ----

static bool take_token(struct request *request, const char *header)
{
	static const char scheme[] = "Bearer ";
	if (strncasecmp(header, scheme, sizeof scheme - 1) != 0)
		return false;
	header += sizeof scheme - 1;
	header += strspn(header, " ");
	return *header && snprintf(request->token, sizeof request->token, "%s", header) < TOKEN_BYTES;
}

static bool on_streams(void *context, const struct net_request *asked)
{
	(void)context;
	return asked->events;
}

static void on_get(void *context, const struct net_request *asked, struct net_response *response)
{
	struct error error = {0};
	(void)context;
	const enum status status = mcp_admit(asked, &error);
	if (!status)
		error_set(&error, STATUS_INVALID_REQUEST,
			  "POST each message, or accept text/event-stream for a stream of events");
	fail(response, status ? status_http(status) : 405, NULL, &error);
}

static bool on_post(void *context, const struct net_request *asked, void **user, struct net_response *response)
{
	struct service *service = context;
	struct error error = {0};
	enum status status = mcp_admit(asked, &error);
	struct request *request = status ? NULL : calloc(1, sizeof(*request));
	if (!status && !request)
		status = error_set(&error, STATUS_OUT_OF_MEMORY, "out of memory");
	else if (!status && !take_token(request, asked->authorization))
		status = error_set(&error, STATUS_UNAUTHENTICATED, "a token is needed: Authorization: Bearer TOKEN");
	else if (!status && asked->body_bytes > LIMIT_HEAD_BYTES && asked->body_bytes != NET_NO_LENGTH)
		status = error_set(&error, STATUS_LIMIT_EXCEEDED, "a message has at most %d bytes", LIMIT_HEAD_BYTES);
	if (!status && asked->body_bytes == NET_NO_LENGTH)
		status = error_set(&error, STATUS_INVALID_REQUEST, "a Content-Length is needed");
	if (!status && asked->get && service->streams >= STREAMS)
		status = error_set(&error, STATUS_RATE_LIMITED, "%d streams of events are open already", STREAMS);
	if (status) {
		free(request);
		fail(response, status_http(status), NULL, &error);
		return false;
	}
	request->service = service;
	request->get = asked->get;
	request->events = asked->events;
	request->missed = asked->last_event[0] != 0;
	service->streams += asked->get;
	rpc_init(
		&request->rpc,
		&(struct rpc_params){
			.peer = "the server", .most_calls = 1, .in_order = true, .send = send_message, .arg = request});
	*user = request;
	return true;
}

static void connect_for(struct request *request, int64_t patience_ms)
{
	struct error error = {0};
	net_timer_start(request->service->loop, &request->timer, patience_ms, on_late, request);
	if (dial(request, &error))
		answer_error(request, status_http(error.status), &error);
}

static void on_posted(void *user, struct net_exchange *exchange, const uint8_t *body, size_t length)
{
	struct request *request = user;
	struct error error = {0};
	request->exchange = exchange;
	if (request->get) {
		connect_for(request, LOGIN_MS);
		return;
	}
	if (json_parse(&request->message, (const char *)body, length, &error)) {
		error.status = STATUS_PARSE_ERROR;
		answer_error(request, 400, &error);
		return;
	}
	const char *method = json_get_string(request->message, "method", NULL);
	const bool is_object = json_type(request->message) == JSON_OBJECT;
	if (!is_object || (!method && !json_get(request->message, "result") && !json_get(request->message, "error"))) {
		error_set(&error, STATUS_INVALID_REQUEST, "neither a request nor a notification");
		answer_error(request, 400, &error);
	} else if (!method || !json_get(request->message, "id")) {
		answer(request, HTTP_ACCEPTED, NULL);
	} else if (mcp_find(request->service->mcp, request->message, &request->asked, &error)) {
		answer_error(request, HTTP_OK, &error);
	} else {
		connect_for(request, mcp_patience_ms(request->asked.params));
	}
}

static void on_misread(void *user, struct net_exchange *exchange, const struct error *error)
{
	struct request *request = user;
	request->exchange = exchange;
	answer_error(request, 400, error);
}

static void on_over(void *user)
{
	struct request *request = user;
	request->exchange = NULL;
	request->over = true;
	request->service->streams -= request->get;
	net_timer_stop(request->service->loop, &request->timer);
	net_timer_stop(request->service->loop, &request->pulse);
	if (request->conn)
		net_conn_close(request->conn, 1000, "");
	release(request);
}

static bool on_upgrade(void *context, const struct net_request *asked, void **user, struct net_response *response)
{
	const struct error error = {.status = STATUS_NOT_FOUND, .message = "no WebSocket is served here"};
	(void)context, (void)asked, (void)user;
	fail(response, status_http(error.status), NULL, &error);
	return false;
}

enum status mcp_listen(const struct mcp *mcp, const struct target *target, const struct mcp_place *place,
		       struct error *error)
{
	static const struct net_handler handler = {.http = on_get,
						   .streams = on_streams,
						   .post = on_post,
						   .posted = on_posted,
						   .misread = on_misread,
						   .over = on_over,
						   .upgrade = on_upgrade};
	struct service service = {.mcp = mcp, .target = target};
	struct net_listener *listener = NULL;
	const struct net_listener_params params = {.address = place->address,
						   .port = place->port,
						   .connections = CONNECTIONS,
						   .ping_s = LIMIT_CLIENT_PING_S,
						   .silence_s = LIMIT_CLIENT_SILENCE_S,
						   .handler = &handler,
						   .context = &service};
	log_set_level(LOG_ERROR);
	enum status status = net_loop_create(&service.loop, error);
	if (!status)
		status = net_listener_create(&listener, service.loop, &params, error);
	if (!status) {
		const bool six = strchr(place->address, ':');
		printf("MCP at http://%s%s%s:%d/mcp\n", six ? "[" : "", place->address, six ? "]" : "",
		       net_listener_port(listener));
		fflush(stdout);
		net_loop_run(service.loop);
	}
	net_listener_destroy(&listener);
	net_loop_destroy(&service.loop);
	return status;
}
