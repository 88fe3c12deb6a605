/* HTTP requests of an accepted connection: parsed by head.c and answered by the handler, in
 * order. This file serves GET, HEAD and OPTIONS; exchange.c serves POST, and GET where its
 * answer is a stream. Any other request with a
 * body is refused and its connection closed, so that no part of the body passes for a request.
 * Bytes after a request wait until its answer is sent; after BEHIND_BYTES no more is read, so
 * back-pressure reaches the client. A few pipelined requests are served in a turn. Thread: the
 * loop's. */
#include "common/net/http/arrival.h"
#include "common/net/http/passed.h"
#include "common/net/tls/certificate.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum { PIECE_BYTES = 16384, READ_BYTES = 16384, REQUESTS_A_TURN = 8, REFUSAL_BYTES = 2048 };
enum { SENT_A_TURN_BYTES = 16 * PIECE_BYTES };

struct http_session {
	struct net_session session;
	struct net_response response;
	size_t sent;
	bool close; // after the answer
};

// ---- what is asked ----

// An IPv4 address is one, also on a socket for both.
static void copy_peer(const struct net_arrival *arrival, char *out, size_t size)
{
	static const char mapped[] = "::ffff:";
	const char *peer = arrival->peer;
	bool ipv4 = !strncmp(peer, mapped, sizeof mapped - 1) && strchr(peer, '.');
	const char *text = arrival->listener->socket_path[0] ? "local" : peer + (ipv4 ? sizeof mapped - 1 : 0);
	memcpy(out, text, strnlen(text, size - 1) + 1);
}

// Whether `wanted` is among what this header says that the client takes, and not with a weight of 0.
static bool takes(const struct head *head, const char *header, const char *wanted)
{
	char value[256], *rest = value, *one;
	if (!head_copy(head, header, value, sizeof value))
		return false;
	while ((one = strsep(&rest, ","))) {
		one += strspn(one, " \t");
		const size_t length = strcspn(one, " \t;");
		const char *weight = strchr(one, '=');
		if (length == strlen(wanted) && !strncasecmp(one, wanted, length))
			return !weight || strtod(weight + 1, NULL) > 0;
	}
	return false;
}

void net_http_read_request(const struct net_arrival *arrival, const struct head *head, struct net_request *request)
{
	SSL *ssl = arrival->ssl;
	*request = (struct net_request){.local = arrival->listener->socket_path[0] != 0,
					.peer_uid = (uid_t)-1,
					.tls = arrival->passed ? arrival->passed_tls : ssl != NULL,
					.passed = arrival->passed,
					.head = head->method == HEAD_HEAD,
					.get = head->method == HEAD_GET,
					.gzip = takes(head, "accept-encoding", "gzip"),
					.events = takes(head, "accept", "text/event-stream")};
	X509 *certificate = ssl && !arrival->passed && SSL_get_verify_result(ssl) == X509_V_OK
				    ? SSL_get0_peer_certificate(ssl)
				    : NULL;
	if (certificate)
		net_certificate_describe(certificate, &request->certificate);
	// One that does not fit is NET_TOO_LONG then.
	head_path(head, request->path, sizeof request->path);
	head_copy(head, "host", request->host, sizeof request->host);
	head_copy(head, "origin", request->origin, sizeof request->origin);
	head_copy(head, "sec-websocket-protocol", request->subprotocol, sizeof request->subprotocol);
	head_copy(head, "authorization", request->authorization, sizeof request->authorization);
	head_copy(head, "x-api-key", request->api_key, sizeof request->api_key);
	head_copy(head, "anthropic-version", request->anthropic_version, sizeof request->anthropic_version);
	head_copy(head, "sec-fetch-site", request->fetch_site, sizeof request->fetch_site);
	head_copy(head, "traceparent", request->traceparent, sizeof request->traceparent);
	head_copy(head, "if-none-match", request->if_none_match, sizeof request->if_none_match);
	head_copy(head, "mcp-protocol-version", request->mcp_version, sizeof request->mcp_version);
	head_copy(head, "last-event-id", request->last_event, sizeof request->last_event);
	copy_peer(arrival, request->peer, sizeof request->peer);
	struct ucred peer;
	socklen_t length = sizeof peer;
	if (request->local && !getsockopt(net_arrival_fd(arrival), SOL_SOCKET, SO_PEERCRED, &peer, &length))
		request->peer_uid = peer.uid;
}

// ---- what is answered ----

static const char *phrase_of(int status)
{
	static const struct {
		int status;
		const char *phrase;
	} phrases[] = {
		{200, "OK"},
		{204, "No Content"},
		{304, "Not Modified"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{409, "Conflict"},
		{413, "Content Too Large"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"},
		{529, "Overloaded"},
	};
	for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
		if (phrases[i].status == status)
			return phrases[i].phrase;
	return "Other";
}

// A value that holds a control character would be read as more than one header.
static bool is_clean(const char *value)
{
	for (; *value; value++)
		if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
			return false;
	return true;
}

static void add_header(struct buffer *out, const char *name, const char *value)
{
	if (!is_clean(value))
		out->failed = true;
	buffer_printf(out, "%s %s\r\n", name, value);
}

static void add_headers(struct buffer *out, const struct net_header *header)
{
	for (; header && header->name; header++)
		add_header(out, header->name, header->value);
}

int net_http_print_headers(struct buffer *out, const struct net_http_headers *headers)
{
	const struct net_response *response = headers->response;
	buffer_printf(out, "HTTP/1.1 %d %s\r\n", response->status, phrase_of(response->status));
	add_header(out, "content-type:", response->content_type ? response->content_type : "text/plain; charset=utf-8");
	if (headers->length != NET_NO_LENGTH && response->status != 204 && response->status != 304)
		buffer_printf(out, "content-length: %zu\r\n", headers->length);
	else if (headers->length == NET_NO_LENGTH && headers->chunked)
		add_header(out, "transfer-encoding:", "chunked");
	add_header(out, "cache-control:",
		   response->immutable  ? "public, max-age=31536000, immutable"
		   : response->no_store ? "no-store"
					: "no-cache");
	if (response->gzip)
		buffer_append_text(out, "content-encoding: gzip\r\nvary: accept-encoding\r\n");
	if (response->etag)
		add_header(out, "etag:", response->etag);
	if (response->authenticate)
		add_header(out, "www-authenticate:", response->authenticate);
	if (headers->close)
		add_header(out, "connection:", "close");
	add_headers(out, response->more);
	add_headers(out, headers->listener->headers);
	buffer_append_text(out, "\r\n");
	return out->failed;
}

// The headers and as much of the body, in one piece. False: the connection is ending.
static bool send_head(struct net_arrival *arrival, const struct net_response *response, size_t body, bool close)
{
	struct buffer out;
	const struct net_http_headers headers = {
		.listener = arrival->listener, .response = response, .length = response->body_bytes, .close = close};
	buffer_init(&out, HTTP_HEADER_BYTES + PIECE_BYTES);
	int result = net_http_print_headers(&out, &headers);
	if (!result && body)
		result = (int)buffer_append(&out, response->body, body);
	if (!result)
		result = net_arrival_send(arrival, out.data, out.length);
	else
		net_arrival_end(arrival);
	buffer_finish(&out);
	return !result;
}

void net_http_refuse(struct net_arrival *arrival, struct net_response *response)
{
	if (response->body_bytes > REFUSAL_BYTES)
		response->body_bytes = REFUSAL_BYTES;
	if (send_head(arrival, response, response->body_bytes, true))
		net_arrival_leave(arrival);
	buffer_finish(&response->owned);
}

static void refuse_head(struct net_arrival *arrival, const struct head *head)
{
	struct net_response response = {.status = head->status, .content_type = "application/json"};
	buffer_init(&response.owned, REFUSAL_BYTES);
	buffer_printf(&response.owned, "{\"error\":\"invalid_request\",\"message\":\"%s\",\"hint\":\"%s\"}\n",
		      head->message, head->hint);
	response.body = response.owned.data;
	response.body_bytes = response.owned.length;
	net_http_refuse(arrival, &response);
}

void net_http_answered(struct net_arrival *arrival, bool close)
{
	arrival->session = NULL;
	if (close)
		net_arrival_leave(arrival);
	else
		net_arrival_stage(arrival, DOOR_IDLE);
}

void net_http_finish(struct net_arrival *arrival, struct net_session *session)
{
	struct http_session *http = (struct http_session *)session;
	(void)arrival;
	buffer_finish(&http->response.owned);
	free(http);
}

// Sends as much of the body as the socket takes and fits into a turn.
static void send_pieces(struct net_arrival *arrival, struct http_session *http)
{
	const struct net_response *response = &http->response;
	const bool close = http->close;
	const size_t begin = http->sent;
	while (http->sent < response->body_bytes && !net_arrival_keeps(arrival)) {
		if (http->sent - begin >= SENT_A_TURN_BYTES) {
			net_arrival_want_write(arrival); // and is called again after others
			return;
		}
		const size_t left = response->body_bytes - http->sent, length = left < PIECE_BYTES ? left : PIECE_BYTES;
		if (net_arrival_send(arrival, response->body + http->sent, length))
			return;
		http->sent += length;
		net_arrival_progress(arrival, net_arrival_keeps(arrival) ? 0 : length);
	}
	if (net_arrival_keeps(arrival)) {
		if (arrival->guest.stage != DOOR_TAKING)
			net_arrival_stage(arrival, DOOR_TAKING);
		return; // and is called again when it is gone
	}
	net_http_finish(arrival, &http->session);
	net_http_answered(arrival, close);
}

// ---- one request ----

static void refuse_method(struct net_response *response)
{
	static const char text[] = "{\"error\":\"only GET and HEAD are served here, without a body\"}\n";
	response->status = 405;
	response->content_type = "application/json";
	response->body = (const uint8_t *)text;
	response->body_bytes = sizeof text - 1;
}

// Whether it is the caller who is refused, and not only what was asked for: then the connection goes, too.
static bool refuses(int status)
{
	return status == 401 || status == 403 || status == 429;
}

// Ask the handler. Returns whether the connection is to go with the answer.
static bool ask(const struct net_listener *listener, const struct head *head, const struct net_request *request,
		struct net_response *response)
{
	const struct net_handler *handler = listener->handler;
	const bool reading = head->method == HEAD_GET || head->method == HEAD_HEAD;
	const bool options = head->method == HEAD_OPTIONS && handler->options && !head->has_body;
	if (reading && !head->has_body) {
		handler->http(listener->handler_context, request, response);
	} else if (!options || !handler->options(listener->handler_context, request, response)) {
		refuse_method(response);
		return true;
	}
	return head->close || refuses(response->status);
}

static void answer(struct net_arrival *arrival, const struct head *head, const struct net_request *request)
{
	struct http_session *http = calloc(1, sizeof(*http));
	if (!http) {
		net_arrival_end(arrival);
		return;
	}
	struct net_response *response = &http->response;
	http->session = (struct net_session){.kind = SESSION_HTTP, .listener = arrival->listener, .arrival = arrival};
	arrival->session = &http->session;
	buffer_init(&response->owned, LIMIT_BODY_BYTES);
	net_arrival_stage(arrival, DOOR_SERVED);
	http->close = ask(arrival->listener, head, request, response);
	net_arrival_know(arrival, response->holder);
	const size_t body = request->head ? 0 : response->body_bytes, now = body < PIECE_BYTES ? body : PIECE_BYTES;
	http->sent = now;
	if (!send_head(arrival, response, now, http->close))
		return;
	response->body_bytes = body;
	send_pieces(arrival, http);
}

// The first request of a connection that another server passes on says whose it is. False: it is refused.
static bool learn_origin(struct net_arrival *arrival, const struct head *head)
{
	static const char text[] = "{\"error\":\"forbidden\",\"message\":\"this was not passed on by a server of this "
				   "cluster\",\"hint\":\"give all servers the same --cluster-key\"}\n";
	const struct net_listener *listener = arrival->listener;
	struct net_passed passed;
	char value[2];
	const bool first = arrival->begins;
	arrival->begins = false;
	if (!first || !listener->takes_passed || listener->socket_path[0])
		return true;
	if (head_copy(head, NET_PASSED_HEADER, value, sizeof value) && !value[0])
		return true;
	struct net_response response = {.content_type = "application/json"};
	response.status = net_passed_read(head, listener->passed_key, &passed) ? 429 : 403;
	if (response.status == 429 && net_arrival_speaks_for(arrival, passed.peer)) {
		arrival->passed = true;
		arrival->passed_tls = passed.tls;
		return true;
	}
	buffer_init(&response.owned, REFUSAL_BYTES);
	response.body = (const uint8_t *)text;
	response.body_bytes = response.status == 403 ? sizeof text - 1 : 0;
	net_http_refuse(arrival, &response);
	return false;
}

static void begin(struct net_arrival *arrival, const struct head *head)
{
	struct net_request request;
	arrival->begun++;
	if (arrival->listener->over) { // there is nobody to ask
		net_arrival_end(arrival);
		return;
	}
	if (!learn_origin(arrival, head))
		return;
	const struct net_handler *handler = arrival->listener->handler;
	net_http_read_request(arrival, head, &request);
	struct net_pass *pass = handler->pass ? handler->pass(arrival->listener->handler_context, &request) : NULL;
	if (pass) {
		net_pass_take(pass, arrival, head);
		return;
	}
	if (head->upgrade && head->method == HEAD_GET) {
		net_upgrade(arrival, head);
		return;
	}
	const bool streams = request.get && !head->has_body && handler->streams &&
			     handler->streams(arrival->listener->handler_context, &request);
	if (streams || (head->method == HEAD_POST && handler->post))
		net_exchange_open(arrival, head, &request);
	else
		answer(arrival, head, &request);
}

// Returns how many of the bytes are the head's.
static size_t take_head(struct net_arrival *arrival, const uint8_t *bytes, size_t length)
{
	static struct head whole; // one that comes at once, as most do; the loop's thread alone reads
	struct head *head = arrival->head ? arrival->head : &whole;
	size_t taken = 0;
	if (!arrival->head)
		head_begin(head);
	const enum head_result result = head_take(head, bytes, length, &taken);
	if (result == HEAD_MORE) {
		if (!arrival->head && (arrival->head = malloc(sizeof whole)))
			memcpy(arrival->head, head, sizeof whole);
		if (!arrival->head)
			net_arrival_end(arrival);
		return taken;
	}
	arrival->head = NULL;
	if (result == HEAD_WHOLE)
		begin(arrival, head);
	else
		refuse_head(arrival, head);
	if (head != &whole)
		free(head);
	return taken;
}

// ---- one after another ----

// Returns how many bytes were taken, before what follows has to wait.
static size_t feed(struct net_arrival *arrival, const uint8_t *bytes, size_t length)
{
	size_t at = 0;
	while (at < length && arrival->state == ARRIVAL_HTTP && !arrival->ending) {
		const struct net_session *session = arrival->session;
		if (session && session->kind == SESSION_POST && net_exchange_wants(session))
			at += net_exchange_body(arrival->session, bytes + at, length - at);
		else if (session || arrival->begun >= REQUESTS_A_TURN)
			return at;
		else
			at += take_head(arrival, bytes + at, length - at);
	}
	if (arrival->state == ARRIVAL_WEBSOCKET && at < length)
		net_conn_early(arrival->session, bytes + at, length - at);
	else if (arrival->state == ARRIVAL_PASSED && at < length && !arrival->ending)
		net_passed_early(arrival->session, bytes + at, length - at);
	return length; // whoever leaves is not heard
}

// Serves waiting requests as far as allowed, and reads more if there is room.
static void go_on(struct net_arrival *arrival)
{
	struct buffer *behind = &arrival->behind;
	if (behind->length)
		buffer_consume(behind, feed(arrival, behind->data, behind->length));
	if (!behind->length)
		buffer_finish(behind);
	if (!behind->length)
		buffer_init(behind, BEHIND_MOST_BYTES);
	if (arrival->state != ARRIVAL_HTTP || arrival->ending)
		return;
	if (behind->length && !arrival->session) {
		net_watch_want_read(arrival->watch, true);
		net_watch_again(arrival->watch, NET_LINE_BUSY);
	} else if (arrival->ended && !arrival->session) {
		net_arrival_leave(arrival);
	} else {
		net_watch_want_read(arrival->watch, !arrival->ended && behind->length < BEHIND_BYTES);
	}
}

// Its client says nothing more. An answer that is being sent, and those to what waits, are sent all the same; one that
// is still to be made is for nobody.
static void on_end(struct net_arrival *arrival)
{
	const struct net_session *session = arrival->session;
	arrival->ended = true;
	const bool unanswered = session && session->kind == SESSION_POST && !net_exchange_answered(session);
	if (unanswered || (!session && !arrival->behind.length))
		net_arrival_end(arrival);
}

// A POST that outlived its listener has nobody who would answer it.
static bool is_orphan(const struct net_arrival *arrival)
{
	return arrival->listener->over && arrival->session && arrival->session->kind == SESSION_POST;
}

void net_http_readable(struct net_arrival *arrival)
{
	static uint8_t bytes[READ_BYTES]; // the loop's thread alone reads
	struct buffer *behind = &arrival->behind;
	arrival->begun = 0;
	if (is_orphan(arrival)) {
		net_arrival_end(arrival);
		return;
	}
	ssize_t got = arrival->ended || behind->length >= BEHIND_BYTES ? 0
								       : net_arrival_read(arrival, bytes, sizeof bytes);
	if (got < 0)
		on_end(arrival);
	const size_t length = got > 0 ? (size_t)got : 0, taken = behind->length ? 0 : feed(arrival, bytes, length);
	if (taken < length && buffer_append(behind, bytes + taken, length - taken))
		net_arrival_end(arrival);
	if (!arrival->ending)
		go_on(arrival);
}

void net_http_writable(struct net_arrival *arrival)
{
	struct net_session *session = arrival->session;
	arrival->begun = 0;
	if (is_orphan(arrival)) {
		net_arrival_end(arrival);
		return;
	}
	if (session && session->kind == SESSION_HTTP)
		send_pieces(arrival, (struct http_session *)session);
	else if (session)
		net_exchange_continue(session);
	if (!arrival->ending)
		go_on(arrival);
}
