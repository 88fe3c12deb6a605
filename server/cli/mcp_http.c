/* `exogpu mcp --listen`: MCP's streamable HTTP (revision 2025-06-18) without sessions and without streams: each POST to
 * /mcp holds one message, and its answer is one JSON object. The Bearer token of a request is the one that the server
 * is asked with, on a connection of the request's own; so it needs no store of tokens, and a refused one is answered
 * 401. Only loopback addresses are listened at, since tokens come in the clear. Against pages of other sites: Host has
 * to be an address or name of loopback, and Origin, where there is one, the same place. Thread: the process's only one.
 */
#include "common/base/log.h"
#include "common/net/ws/ws.h"
#include "common/wire/rpc.h"
#include "server/cli/mcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CONNECTIONS = 64, TOKEN_BYTES = 136, HTTP_OK = 200, HTTP_ACCEPTED = 202 };

struct service {
	const struct mcp *mcp;
	const struct target *target;
	struct net_loop *loop;
};

// A POST, and the connection to the server that it is answered by. Freed once both are over.
struct request {
	struct service *service;
	char token[TOKEN_BYTES];
	struct net_exchange *exchange; // NULL: not come yet, answered, or its client is gone
	struct json *message;
	const char *method; // of the contract, of a tools/call
	struct net_conn *conn;
	bool dialled, over; // the connection is not closed yet; the exchange is over
	struct rpc rpc;
	struct net_timer timer; // for the answer; at the end, until it is freed
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

// The end of a request: `message` (taken; NULL: nothing is said) is what it is answered with.
static void answer(struct request *request, int status, struct json *message)
{
	struct net_exchange *exchange = request->exchange;
	struct net_response response = {0};
	struct error error = {0};
	net_timer_stop(request->service->loop, &request->timer);
	request->exchange = NULL;
	if (exchange) {
		buffer_init(&response.owned, LIMIT_ANSWER_QUEUE_BYTES);
		fill(&response, status, message);
		if (message && response.status != status) { // too long to be sent
			error_set(&error, STATUS_LIMIT_EXCEEDED, "the answer has more than %d bytes",
				  LIMIT_ANSWER_QUEUE_BYTES);
			fill(&response, HTTP_OK,
			     mcp_message(json_get(request->message, "id"), mcp_called(NULL, &error), NULL));
		}
		net_exchange_answer(exchange, &response);
	} else {
		json_destroy(&message);
	}
	if (request->conn)
		net_conn_close(request->conn, 1000, "");
}

static void answer_result(struct request *request, struct json *result)
{
	answer(request, HTTP_OK, mcp_message(json_get(request->message, "id"), result, NULL));
}

static void answer_error(struct request *request, int status, const struct error *error)
{
	answer(request, status, mcp_message(json_get(request->message, "id"), NULL, error));
}

// ---- the connection to the server ----

static void on_answer(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct request *request = context;
	if (request->exchange)
		answer_result(request, mcp_called(status ? NULL : result, error));
}

static void on_login(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct request *request = context;
	const struct json *params = json_get(request->message, "params"), *arguments = json_get(params, "arguments");
	const char *method = json_get_string(request->message, "method", "");
	struct json *made = NULL;
	struct error refusal = {0};
	(void)result;
	if (!request->exchange)
		return;
	if (status) {
		answer_error(request, status_http(status), error);
		return;
	}
	if (!request->method) {
		if (mcp_answer(request->service->mcp, method, params, &made, &refusal))
			answer_error(request, HTTP_OK, &refusal);
		else
			answer_result(request, made);
		return;
	}
	if (rpc_call(&request->rpc, &(struct rpc_ask){.method = request->method,
						      .params = arguments ? json_copy(arguments) : NULL,
						      .done = on_answer,
						      .context = request})) {
		error_set(&refusal, STATUS_UNAVAILABLE, "the call could not be sent");
		answer_result(request, mcp_called(NULL, &refusal));
	}
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
	const struct target *target = request->service->target;
	const struct trust *trust = &target->trust;
	const struct net_dial_tls tls = {
		.authority_pem = trust->authority_pem[0] ? trust->authority_pem : NULL,
		.server_uri = trust->server_uri[0] ? trust->server_uri : NULL,
	};
	const struct net_dial_params params = {
		.host = target->host,
		.port = target->port,
		.path = "/ws",
		.subprotocol = "exogpu.v1",
		.tls = target->tls ? &tls : NULL,
		.ping_s = LIMIT_CLIENT_PING_S,
		.silence_s = LIMIT_CLIENT_SILENCE_S,
		.speaks_first = true, // the server answers
		.handler = &handler,
		.user = request,
	};
	request->dialled = true;
	const enum status status = net_dial(request->service->loop, &params, error);
	if (status)
		request->dialled = false;
	return status;
}

// ---- requests ----

static bool is_loopback(const char *address)
{
	uint8_t bytes[16];
	if (inet_pton(AF_INET, address, bytes) == 1)
		return bytes[0] == 127;
	return inet_pton(AF_INET6, address, bytes) == 1 && !memcmp(bytes, &in6addr_loopback, sizeof bytes);
}

// A name that a page has bound to this address is none of these.
static bool host_allowed(const char *host)
{
	char name[64];
	const bool brackets = host[0] == '[';
	const size_t length = strcspn(host + brackets, brackets ? "]" : ":");
	if (!length || length >= sizeof name)
		return false;
	snprintf(name, sizeof name, "%.*s", (int)length, host + brackets);
	return is_loopback(name) || !strcasecmp(name, "localhost");
}

static bool origin_allowed(const struct net_request *request)
{
	char own[300];
	snprintf(own, sizeof own, "http://%s", request->host);
	return !request->origin[0] || !strcasecmp(request->origin, own);
}

static bool take_token(struct request *request, const char *header)
{
	static const char scheme[] = "Bearer ";
	if (strncasecmp(header, scheme, sizeof scheme - 1) != 0)
		return false;
	header += sizeof scheme - 1;
	header += strspn(header, " ");
	return *header && snprintf(request->token, sizeof request->token, "%s", header) < TOKEN_BYTES;
}

static enum status admit(const struct net_request *asked, struct error *error)
{
	if (strcmp(asked->path, "/mcp") != 0)
		return error_set(error, STATUS_NOT_FOUND, "MCP is at /mcp");
	if (!host_allowed(asked->host))
		return error_set(error, STATUS_FORBIDDEN, "Host is no address of this machine's loopback");
	if (!origin_allowed(asked))
		return error_set(error, STATUS_FORBIDDEN, "a page of another origin may not use this");
	return STATUS_OK;
}

static void on_get(void *context, const struct net_request *asked, struct net_response *response)
{
	struct error error = {0};
	(void)context;
	const enum status status = admit(asked, &error);
	if (!status)
		error_set(&error, STATUS_INVALID_REQUEST, "no stream of events is offered here: POST each message");
	fail(response, status ? status_http(status) : 405, NULL, &error);
}

static bool on_post(void *context, const struct net_request *asked, void **user, struct net_response *response)
{
	struct error error = {0};
	enum status status = admit(asked, &error);
	struct request *request = status ? NULL : calloc(1, sizeof(*request));
	if (!status && !request)
		status = error_set(&error, STATUS_OUT_OF_MEMORY, "out of memory");
	else if (!status && !take_token(request, asked->authorization))
		status = error_set(&error, STATUS_UNAUTHENTICATED, "a token is needed: Authorization: Bearer TOKEN");
	else if (!status && asked->body_bytes > LIMIT_HEAD_BYTES && asked->body_bytes != NET_NO_LENGTH)
		status = error_set(&error, STATUS_LIMIT_EXCEEDED, "a message has at most %d bytes", LIMIT_HEAD_BYTES);
	if (!status && asked->body_bytes == NET_NO_LENGTH)
		status = error_set(&error, STATUS_INVALID_REQUEST, "a Content-Length is needed");
	if (status) {
		free(request);
		fail(response, status_http(status), NULL, &error);
		return false;
	}
	request->service = context;
	rpc_init(
		&request->rpc,
		&(struct rpc_params){
			.peer = "the server", .most_calls = 1, .in_order = true, .send = send_message, .arg = request});
	*user = request;
	return true;
}

static void on_posted(void *user, struct net_exchange *exchange, const uint8_t *body, size_t length)
{
	struct request *request = user;
	struct error error = {0};
	request->exchange = exchange;
	if (json_parse(&request->message, (const char *)body, length, &error)) {
		error.status = STATUS_PARSE_ERROR;
		answer_error(request, 400, &error);
		return;
	}
	const char *method = json_get_string(request->message, "method", NULL);
	const bool is_object = json_type(request->message) == JSON_OBJECT;
	const struct json *params = json_get(request->message, "params");
	if (!is_object || (!method && !json_get(request->message, "result") && !json_get(request->message, "error"))) {
		error_set(&error, STATUS_INVALID_REQUEST, "neither a request nor a notification");
		answer_error(request, 400, &error);
	} else if (!method || !json_get(request->message, "id")) {
		answer(request, HTTP_ACCEPTED, NULL);
	} else if (!strcmp(method, "tools/call") && mcp_find(request->service->mcp, params, &request->method, &error)) {
		answer_error(request, HTTP_OK, &error);
	} else {
		net_timer_start(request->service->loop, &request->timer, mcp_patience_ms(json_get(params, "arguments")),
				on_late, request);
		if (dial(request, &error))
			answer_error(request, status_http(error.status), &error);
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
	net_timer_stop(request->service->loop, &request->timer);
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

enum status mcp_place_read(struct mcp_place *place, const char *text, struct error *error)
{
	const char *colon = strrchr(text, ':'), *digits = colon ? colon + 1 : text;
	const bool brackets = text[0] == '[' && colon && colon > text + 1 && colon[-1] == ']';
	const size_t length = !colon ? 0 : (size_t)(colon - text) - 2 * brackets;
	*place = (struct mcp_place){.address = "127.0.0.1"};
	const size_t count = strlen(digits);
	const long port = count && count <= 5 && strspn(digits, "0123456789") == count ? strtol(digits, NULL, 10) : -1;
	if (port < 0 || port > 65535 || length >= sizeof place->address || (colon && !length))
		return error_set(error, STATUS_INVALID_PARAMS, "--listen is ADDRESS:PORT or PORT, not %.64s", text);
	place->port = (int)port;
	if (colon)
		snprintf(place->address, sizeof place->address, "%.*s", (int)length, text + brackets);
	if (is_loopback(place->address))
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS, "%s is no loopback address", place->address);
	error_hint(error, "tokens come in the clear: let a proxy that speaks TLS stand before it");
	return STATUS_INVALID_PARAMS;
}

enum status mcp_listen(const struct mcp *mcp, const struct target *target, const struct mcp_place *place,
		       struct error *error)
{
	static const struct net_handler handler = {.http = on_get,
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
