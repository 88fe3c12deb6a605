/* POST: the headers, the body, and an answer that may take its time and come in pieces. See ws.h.
 *
 * The handler is asked as soon as the headers are there, so that nothing is kept of a body that nobody takes; a refusal
 * is sent once the body has passed, or its sender would see a broken connection instead. Headers and pieces of an
 * answer wait in one bounded buffer, and go in the callback in which the socket has room. What a client sends before it
 * has its answer is read, since its end would not be noticed otherwise; a second request that comes so early ends the
 * connection. libwebsockets passes chunks on as they came; they are taken apart here, and the connection ends with the
 * answer, since it would wait for more of a body whose length it was not told. A client that waits to be told to go on
 * is told once the handler has taken its request, and gets the refusal at once otherwise. Thread: the loop's. */
#include "common/net/chunked.h"
#include "common/net/loop_lws.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PIECE_BYTES = 16384, OUT_BYTES = LIMIT_ANSWER_QUEUE_BYTES + HTTP_HEADER_BYTES + 64 };

struct net_exchange {
	struct net_session session;
	struct lws *wsi;
	void *user;
	bool accepted; // the handler has `user`, until its `over`
	bool complete; // the body has come
	bool begun, ended, dropped;
	bool chunked, close; // how the answer ends
	bool in_chunks;      // the body
	bool waits;          // for its client to be told to go on
	struct chunked chunks;
	struct buffer body;
	struct buffer out; // (sent) of it have gone
	size_t sent;
};

// Of a request with exactly one way to say how long its body is; NET_NO_LENGTH of any other.
static size_t body_length(struct lws *wsi)
{
	char text[16] = "";
	char *end;
	if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0 ||
	    lws_hdr_copy(wsi, text, sizeof text, WSI_TOKEN_HTTP_CONTENT_LENGTH) <= 0 || text[0] < '0' || text[0] > '9')
		return NET_NO_LENGTH;
	unsigned long long length = strtoull(text, &end, 10);
	return *end ? NET_NO_LENGTH : (size_t)length;
}

static bool speaks_11(struct lws *wsi)
{
	char version[16] = "";
	return lws_hdr_copy(wsi, version, sizeof version, WSI_TOKEN_HTTP) > 0 && !strcmp(version, "HTTP/1.1");
}

// Chunks and nothing else: no other coding, and no length beside them, of which another reader might go by the other.
static bool comes_in_chunks(struct lws *wsi)
{
	char coding[16] = "";
	return speaks_11(wsi) && lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) <= 0 &&
	       lws_hdr_copy(wsi, coding, sizeof coding, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0 &&
	       !strcasecmp(coding, "chunked");
}

static bool waits_to_go_on(struct lws *wsi)
{
	char expected[16] = "";
	return speaks_11(wsi) && lws_hdr_copy(wsi, expected, sizeof expected, WSI_TOKEN_HTTP_EXPECT) > 0 &&
	       !strcasecmp(expected, "100-continue");
}

static void begin(struct net_exchange *exchange, const struct net_response *response, size_t length)
{
	unsigned char bytes[HTTP_HEADER_BYTES], *at = bytes;
	const struct net_http_headers headers = {.listener = exchange->session.listener,
						 .response = response,
						 .length = length,
						 .chunked = exchange->chunked,
						 .close = exchange->close};
	exchange->begun = true;
	if (net_http_print_headers(exchange->wsi, &headers, &at, bytes + sizeof bytes) ||
	    buffer_append(&exchange->out, bytes, (size_t)(at - bytes)))
		exchange->dropped = true;
	lws_callback_on_writable(exchange->wsi);
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
	static const char text[] = "{\"error\":\"nothing is taken at this address\"}\n";
	if (!response->status) {
		response->status = 405;
		response->content_type = "application/json";
		response->body = (const uint8_t *)text;
		response->body_bytes = sizeof text - 1;
		exchange->close = true;
	}
	answer(exchange, response);
}

static struct net_exchange *exchange_create(struct lws *wsi, struct net_listener *listener)
{
	const struct net_session *waiting = lws_get_opaque_user_data(wsi);
	struct net_exchange *exchange = calloc(1, sizeof(*exchange));
	if (!exchange)
		return NULL;
	exchange->session = (struct net_session){
		.kind = SESSION_POST, .listener = listener, .arrival = waiting->arrival};
	exchange->wsi = wsi;
	exchange->in_chunks = comes_in_chunks(wsi);
	buffer_init(&exchange->out, OUT_BYTES);
	lws_set_opaque_user_data(wsi, exchange);
	return exchange;
}

int net_exchange_open(struct lws *wsi, struct net_listener *listener, const struct net_request *asked)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct net_request request = *asked;
	struct net_response response = {0};
	struct net_exchange *exchange = exchange_create(wsi, listener);
	if (!exchange)
		return -1;
	request.body_bytes = exchange->in_chunks ? 0 : body_length(wsi);
	const bool fits = request.body_bytes <= LIMIT_POST_BYTES;
	exchange->waits = fits && waits_to_go_on(wsi);
	exchange->chunked = speaks_11(wsi) && fits;
	exchange->close = !exchange->chunked || exchange->in_chunks;
	buffer_init(&exchange->body, exchange->in_chunks ? LIMIT_POST_BYTES : fits ? request.body_bytes : 0);
	buffer_init(&response.owned, LIMIT_BODY_BYTES);
	exchange->accepted = listener->handler->post(listener->context, &request, &exchange->user, &response);
	if (exchange->accepted) {
		buffer_finish(&response.owned);
		if (exchange->waits && buffer_append(&exchange->out, go_on, sizeof go_on - 1))
			exchange->dropped = true;
		if (exchange->waits)
			lws_callback_on_writable(wsi);
	} else {
		exchange->close |= exchange->waits; // for a body that may come or not
		refuse(exchange, &response);
	}
	return !fits && !exchange->begun ? -1 : 0;
}

static int take_chunks(struct net_exchange *exchange, const uint8_t *bytes, size_t length)
{
	const struct net_handler *handler = exchange->session.listener->handler;
	struct error error = {0};
	size_t taken = 0;
	enum status status = chunked_take(&exchange->chunks, bytes, length, &exchange->body, &taken, &error);
	if (status) {
		handler->misread(exchange->user, exchange, &error);
		return 0;
	}
	if (exchange->chunks.state != CHUNKED_OVER)
		return 0;
	return taken < length ? -1 : net_exchange_complete(exchange->wsi, &exchange->session);
}

int net_exchange_body(struct lws *wsi, struct net_session *session, const uint8_t *bytes, size_t length)
{
	struct net_exchange *exchange = (struct net_exchange *)session;
	(void)wsi;
	if (!exchange->accepted || exchange->ended || !length)
		return 0; // passed over
	if (exchange->in_chunks)
		return exchange->complete ? -1 : take_chunks(exchange, bytes, length);
	return buffer_append(&exchange->body, bytes, length) ? -1 : 0;
}

int net_exchange_complete(struct lws *wsi, struct net_session *session)
{
	struct net_exchange *exchange = (struct net_exchange *)session;
	const struct net_handler *handler = exchange->session.listener->handler;
	if (exchange->complete)
		return -1; // it asks on before it has its answer
	exchange->complete = true;
	if (exchange->accepted)
		handler->posted(exchange->user, exchange, exchange->body.data, exchange->body.length);
	buffer_finish(&exchange->body);
	lws_callback_on_writable(wsi);
	return 0;
}

static int finish_transaction(struct net_exchange *exchange)
{
	struct lws *wsi = exchange->wsi;
	bool close = exchange->close;
	net_exchange_finish(wsi, &exchange->session);
	if (close)
		return -1;
	return lws_http_transaction_completed(wsi) ? -1 : 0;
}

int net_exchange_continue(struct lws *wsi, struct net_session *session)
{
	struct net_exchange *exchange = (struct net_exchange *)session;
	const struct net_handler *handler = exchange->session.listener->handler;
	uint8_t piece[LWS_PRE + PIECE_BYTES];
	if (exchange->dropped)
		return -1;
	if (!exchange->complete && !exchange->close && !exchange->waits)
		return 0;
	size_t left = exchange->out.length - exchange->sent, length = left < PIECE_BYTES ? left : PIECE_BYTES;
	if (length) {
		memcpy(piece + LWS_PRE, exchange->out.data + exchange->sent, length);
		exchange->sent += length;
		if (lws_write(wsi, piece + LWS_PRE, length, LWS_WRITE_HTTP) < 0)
			return -1;
	}
	if (length < left) {
		lws_set_timeout(wsi, PENDING_TIMEOUT_HTTP_CONTENT, LIMIT_ANSWER_STALL_S);
		lws_callback_on_writable(wsi);
		return 0;
	}
	buffer_clear(&exchange->out);
	exchange->sent = 0;
	exchange->waits = false;
	const bool held = lws_partial_buffered(wsi); // by libwebsockets, which says when it is gone
	if (held)
		lws_set_timeout(wsi, PENDING_TIMEOUT_HTTP_CONTENT, LIMIT_ANSWER_STALL_S);
	if (held && exchange->ended && exchange->close) {
		lws_callback_on_writable(wsi); // what it holds would be lost with the connection
		return 0;
	}
	if (exchange->ended)
		return finish_transaction(exchange);
	if (exchange->complete && !held)
		lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
	if (length && exchange->accepted && exchange->complete && handler->sent)
		handler->sent(exchange->user, exchange);
	return 0;
}

void net_exchange_finish(struct lws *wsi, struct net_session *session)
{
	struct net_exchange *exchange = (struct net_exchange *)session;
	struct net_listener *listener = exchange->session.listener;
	lws_set_opaque_user_data(wsi, &session->arrival->waiting);
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
		begin(exchange, response, HTTP_NO_LENGTH);
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
	lws_callback_on_writable(exchange->wsi);
	return STATUS_OK;
}

void net_exchange_end(struct net_exchange *exchange)
{
	if (exchange->ended)
		return;
	exchange->ended = true;
	if (exchange->chunked && buffer_append(&exchange->out, "0\r\n\r\n", 5))
		exchange->dropped = true;
	lws_callback_on_writable(exchange->wsi);
}

size_t net_exchange_queued(const struct net_exchange *exchange)
{
	return exchange->out.length - exchange->sent;
}

void net_exchange_drop(struct net_exchange *exchange)
{
	exchange->dropped = true;
	lws_callback_on_writable(exchange->wsi);
}
