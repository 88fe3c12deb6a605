/* POST: header, body, and an answer that may take time and come in pieces. See
 * ws.h. The handler is asked as soon as the header is complete, so no unwanted
 * body is stored. A refusal is sent at once and ends the connection, so nobody
 * holds one with a slow body. Headers and pieces of an answer wait in one
 * bounded buffer until the socket has room. A client that waits for 100 Continue
 * gets it once the handler has accepted the request, or the refusal. Thread: the
 * loop's. */
#include "common/net/http/arrival.h"
#include "common/net/http/chunked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SENT_A_TURN_BYTES = 16 * 16384,
	PIECE_BYTES = 16384,
	OUT_BYTES = LIMIT_ANSWER_QUEUE_BYTES + HTTP_HEADER_BYTES + 64
};

struct net_exchange {
	struct net_session session;
	void *user;
	bool accepted; // the handler has `user`, until its `over`
	bool complete; // the body has come
	bool begun, ended, dropped;
	bool chunked, close; // how the answer ends
	bool in_chunks;      // the body
	size_t left;         // of one that is not, which has not come yet
	bool waits;          // for its client to be told to go on
	struct chunked chunks;
	struct buffer body;
	struct buffer out; // (sent) of it have gone
	size_t sent;
};

static void begin(struct net_exchange *exchange, const struct net_response *response, size_t length)
{
	const struct net_http_headers headers = {.listener = exchange->session.listener,
						 .response = response,
						 .length = length,
						 .chunked = exchange->chunked,
						 .close = exchange->close};
	exchange->begun = true;
	if (net_http_print_headers(&exchange->out, &headers))
		exchange->dropped = true;
	net_arrival_want_write(exchange->session.arrival);
}

static void answer(struct net_exchange *exchange, struct net_response *response)
{
	if (!exchange->begun) {
		begin(exchange, response, response->body_bytes);
		if (buffer_append(&exchange->out, response->body, response->body_bytes))
			exchange->dropped = true;
		exchange->ended = true;
	}
	buffer_finish(&response->owned);
}

static void refuse(struct net_exchange *exchange, struct net_response *response)
{
	static const char text[] = "{\"error\":\"this address accepts no requests with a body\"}\n";
	if (!response->status) {
		response->status = 405;
		response->content_type = "application/json";
		response->body = (const uint8_t *)text;
		response->body_bytes = sizeof text - 1;
	}
	exchange->close = true;
	answer(exchange, response);
}

static struct net_exchange *exchange_create(struct net_arrival *arrival, const struct head *head)
{
	struct net_exchange *exchange = calloc(1, sizeof(*exchange));
	if (!exchange)
		return NULL;
	exchange->session = (struct net_session){
		.kind = SESSION_POST, .listener = arrival->listener, .arrival = arrival};
	exchange->in_chunks = head->chunked;
	exchange->left = head->chunked ? 0 : head->body_bytes;
	exchange->chunked = head->http_11;
	exchange->close = head->close;
	buffer_init(&exchange->out, OUT_BYTES);
	arrival->session = &exchange->session;
	return exchange;
}

static void complete(struct net_exchange *exchange)
{
	const struct net_handler *handler = exchange->session.listener->handler;
	exchange->complete = true;
	net_arrival_stage(exchange->session.arrival, DOOR_SERVED);
	handler->posted(exchange->user, exchange, exchange->body.data, exchange->body.length);
	buffer_finish(&exchange->body);
	net_arrival_want_write(exchange->session.arrival);
}

void net_exchange_open(struct net_arrival *arrival, const struct head *head, const struct net_request *asked)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	const struct net_handler *handler = arrival->listener->handler;
	struct net_request request = *asked;
	struct net_response response = {0};
	struct net_exchange *exchange = exchange_create(arrival, head);
	if (!exchange) {
		net_arrival_end(arrival);
		return;
	}
	request.body_bytes = head->says_length || request.get ? exchange->left : NET_NO_LENGTH;
	const bool fits = request.body_bytes <= LIMIT_POST_BYTES;
	exchange->waits = fits && head->expects;
	buffer_init(&exchange->body, exchange->in_chunks ? LIMIT_POST_BYTES : fits ? request.body_bytes : 0);
	buffer_init(&response.owned, LIMIT_BODY_BYTES);
	exchange->accepted = handler->post(arrival->listener->handler_context, &request, &exchange->user, &response);
	net_arrival_know(arrival, exchange->accepted ? response.holder : 0);
	net_arrival_stage(arrival, exchange->accepted ? DOOR_BODY : DOOR_LEAVING);
	if (!exchange->accepted) {
		refuse(exchange, &response);
		return;
	}
	buffer_finish(&response.owned);
	if (!fits) { // which its handler must refuse
		net_arrival_end(arrival);
		return;
	}
	if (exchange->waits && buffer_append(&exchange->out, go_on, sizeof go_on - 1))
		exchange->dropped = true;
	if (exchange->waits)
		net_arrival_want_write(arrival);
	if (!exchange->in_chunks && !exchange->left)
		complete(exchange);
}

bool net_exchange_wants(const struct net_session *session)
{
	const struct net_exchange *exchange = (const struct net_exchange *)session;
	return !exchange->complete;
}

bool net_exchange_answered(const struct net_session *session)
{
	const struct net_exchange *exchange = (const struct net_exchange *)session;
	return exchange->ended;
}

static size_t take_chunks(struct net_exchange *exchange, const uint8_t *bytes, size_t length)
{
	const struct net_handler *handler = exchange->session.listener->handler;
	struct error error = {0};
	size_t taken = 0;
	enum status status = chunked_take(&exchange->chunks, bytes, length, &exchange->body, &taken, &error);
	if (status) { // nobody knows where it would end
		exchange->close = true;
		handler->misread(exchange->user, exchange, &error);
		return length;
	}
	if (exchange->chunks.state == CHUNKED_OVER)
		complete(exchange);
	return taken;
}

size_t net_exchange_body(struct net_session *session, const uint8_t *bytes, size_t length)
{
	struct net_exchange *exchange = (struct net_exchange *)session;
	if (!exchange->accepted || exchange->ended)
		return length; // passed over: the connection goes with the answer
	if (!exchange->in_chunks && length > exchange->left)
		length = exchange->left;
	net_arrival_progress(session->arrival, length);
	if (exchange->in_chunks)
		return take_chunks(exchange, bytes, length);
	if (buffer_append(&exchange->body, bytes, length)) {
		net_arrival_end(session->arrival);
		return length;
	}
	exchange->left -= length;
	if (!exchange->left)
		complete(exchange);
	return length;
}

static void answered(struct net_exchange *exchange)
{
	struct net_arrival *arrival = exchange->session.arrival;
	const bool close = exchange->close;
	net_exchange_finish(&exchange->session);
	net_http_answered(arrival, close);
}

// Sends waiting bytes, as many as the socket takes and fit into a turn. True: everything was sent.
static bool send_out(struct net_exchange *exchange)
{
	struct net_arrival *arrival = exchange->session.arrival;
	const size_t begin = exchange->sent;
	while (exchange->sent < exchange->out.length && !net_arrival_keeps(arrival)) {
		if (exchange->sent - begin >= SENT_A_TURN_BYTES) {
			net_arrival_want_write(arrival); // and comes here again after others
			return false;
		}
		const size_t left = exchange->out.length - exchange->sent,
			     length = left < PIECE_BYTES ? left : PIECE_BYTES;
		if (net_arrival_send(arrival, exchange->out.data + exchange->sent, length))
			return false;
		exchange->sent += length;
		if (arrival->guest.stage == DOOR_TAKING && !net_arrival_keeps(arrival))
			net_arrival_progress(arrival, length);
	}
	return !net_arrival_keeps(arrival);
}

void net_exchange_continue(struct net_session *session)
{
	struct net_exchange *exchange = (struct net_exchange *)session;
	struct net_arrival *arrival = session->arrival;
	const struct net_handler *handler = session->listener->handler;
	if (exchange->dropped) {
		net_arrival_end(arrival);
		return;
	}
	if (!exchange->complete && !exchange->close && !exchange->waits)
		return;
	const bool any = exchange->out.length > 0;
	if (!send_out(exchange)) {
		const bool full = net_arrival_keeps(arrival);
		if (full && exchange->accepted && exchange->complete && arrival->guest.stage != DOOR_TAKING)
			net_arrival_stage(arrival, DOOR_TAKING);
		return; // and comes here again when it is gone
	}
	buffer_clear(&exchange->out);
	exchange->sent = 0;
	exchange->waits = false;
	if (exchange->ended) {
		answered(exchange);
		return;
	}
	if (arrival->guest.stage == DOOR_TAKING)
		net_arrival_stage(arrival, DOOR_SERVED);
	if (any && exchange->accepted && exchange->complete && handler->sent)
		handler->sent(exchange->user, exchange);
}

void net_exchange_finish(struct net_session *session)
{
	struct net_exchange *exchange = (struct net_exchange *)session;
	struct net_listener *listener = session->listener;
	if (exchange->accepted && !listener->over)
		listener->handler->over(exchange->user);
	buffer_finish(&exchange->body);
	buffer_finish(&exchange->out);
	free(exchange);
}

// ---- what the handler answers ----

void net_exchange_answer(struct net_exchange *exchange, struct net_response *response)
{
	answer(exchange, response);
}

void net_exchange_begin(struct net_exchange *exchange, const struct net_response *response)
{
	if (!exchange->begun)
		begin(exchange, response, NET_NO_LENGTH);
}

enum status net_exchange_send(struct net_exchange *exchange, const void *bytes, size_t length)
{
	char size[24];
	if (!length)
		return STATUS_OK; // a chunk of nothing would be the last
	if (net_exchange_queued(exchange) + length > LIMIT_ANSWER_QUEUE_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	buffer_consume(&exchange->out, exchange->sent);
	exchange->sent = 0;
	int digits = exchange->chunked ? snprintf(size, sizeof size, "%zx\r\n", length) : 0;
	enum status status = buffer_reserve(&exchange->out, length + sizeof size + 2);
	if (status)
		return status;
	buffer_append(&exchange->out, size, (size_t)digits);
	buffer_append(&exchange->out, bytes, length);
	if (exchange->chunked)
		buffer_append(&exchange->out, "\r\n", 2);
	net_arrival_want_write(exchange->session.arrival);
	return STATUS_OK;
}

void net_exchange_end(struct net_exchange *exchange)
{
	if (exchange->ended)
		return;
	exchange->ended = true;
	if (exchange->chunked && buffer_append(&exchange->out, "0\r\n\r\n", 5))
		exchange->dropped = true;
	net_arrival_want_write(exchange->session.arrival);
}

size_t net_exchange_queued(const struct net_exchange *exchange)
{
	return exchange->out.length - exchange->sent;
}

void net_exchange_drop(struct net_exchange *exchange)
{
	exchange->dropped = true;
	net_arrival_want_write(exchange->session.arrival);
}
