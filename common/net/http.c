/* HTTP requests: read into a struct net_request, answered by the handler, sent in pieces.
 *
 * GET, HEAD and OPTIONS are served here, POST in exchange.c; any other request with a body is refused and its
 * connection closed, so that nothing of the body is taken for a request. Thread: the loop's. */
#include "common/net/tls_lws.h"

#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { PIECE_BYTES = 16384, PILE_BYTES = 65536 };

struct http_session {
	struct net_session session;
	struct net_response response;
	size_t sent;
	bool close; // after the answer
};

static void copy_header(struct lws *wsi, enum lws_token_indexes token, char *out, int size)
{
	out[0] = 0;
	if (lws_hdr_total_length(wsi, token) > 0 && lws_hdr_copy(wsi, out, size, token) < 0)
		memcpy(out, NET_TOO_LONG, sizeof NET_TOO_LONG);
}

// An IPv4 address is one, also on a socket for both.
static void copy_peer(struct lws *wsi, char *out, size_t size)
{
	static const char mapped[] = "::ffff:";
	char peer[64] = "";
	lws_get_peer_simple(wsi, peer, sizeof peer);
	bool ipv4 = !strncmp(peer, mapped, sizeof mapped - 1) && strchr(peer, '.');
	snprintf(out, size, "%s", peer + (ipv4 ? sizeof mapped - 1 : 0));
}

void net_read_request(struct lws *wsi, struct net_listener *listener, struct net_request *request)
{
	char encodings[128];
	SSL *ssl = lws_get_ssl(wsi);
	*request = (struct net_request){
		.local = listener->socket_path[0] != 0, .peer_uid = (uid_t)-1, .tls = ssl != NULL};
	X509 *certificate = ssl && SSL_get_verify_result(ssl) == X509_V_OK ? SSL_get0_peer_certificate(ssl) : NULL;
	if (certificate)
		net_certificate_describe(certificate, &request->certificate);
	static const enum lws_token_indexes uris[] = {WSI_TOKEN_GET_URI, WSI_TOKEN_HEAD_URI, WSI_TOKEN_POST_URI,
						      WSI_TOKEN_OPTIONS_URI};
	request->head = lws_hdr_total_length(wsi, WSI_TOKEN_HEAD_URI) > 0;
	for (size_t i = 0; i < sizeof uris / sizeof *uris && !request->path[0]; i++)
		copy_header(wsi, uris[i], request->path, sizeof request->path);
	copy_header(wsi, WSI_TOKEN_HOST, request->host, sizeof request->host);
	copy_header(wsi, WSI_TOKEN_ORIGIN, request->origin, sizeof request->origin);
	copy_header(wsi, WSI_TOKEN_PROTOCOL, request->subprotocol, sizeof request->subprotocol);
	copy_header(wsi, WSI_TOKEN_HTTP_AUTHORIZATION, request->authorization, sizeof request->authorization);
	copy_header(wsi, WSI_TOKEN_HTTP_IF_NONE_MATCH, request->if_none_match, sizeof request->if_none_match);
	copy_header(wsi, WSI_TOKEN_HTTP_ACCEPT_ENCODING, encodings, sizeof encodings);
	request->gzip = strstr(encodings, "gzip") != NULL;
	if (!request->local) {
		copy_peer(wsi, request->peer, sizeof request->peer);
		return;
	}
	struct ucred peer;
	socklen_t length = sizeof peer;
	if (!getsockopt(lws_get_socket_fd(wsi), SOL_SOCKET, SO_PEERCRED, &peer, &length))
		request->peer_uid = peer.uid;
	memcpy(request->peer, "local", 6);
}

static int add_header(struct lws *wsi, const char *name, const char *value, unsigned char **at, unsigned char *end)
{
	return lws_add_http_header_by_name(wsi, (const unsigned char *)name, (const unsigned char *)value,
					   (int)strlen(value), at, end);
}

int net_http_print_headers(struct lws *wsi, const struct net_http_headers *headers, unsigned char **at,
			   unsigned char *end)
{
	const struct net_response *response = headers->response;
	const char *type = response->content_type ? response->content_type : "text/plain; charset=utf-8";
	const char *cache = response->immutable  ? "public, max-age=31536000, immutable"
			    : response->no_store ? "no-store"
						 : "no-cache";
	int failed;
	if (headers->length != HTTP_NO_LENGTH)
		failed = lws_add_http_common_headers(wsi, (unsigned)response->status, type, headers->length, at, end);
	else // libwebsockets would close the connection for want of a length
		failed = lws_add_http_header_status(wsi, (unsigned)response->status, at, end) ||
			 add_header(wsi, "content-type:", type, at, end) ||
			 (headers->chunked && add_header(wsi, "transfer-encoding:", "chunked", at, end));
	if (failed || add_header(wsi, "cache-control:", cache, at, end) ||
	    (response->gzip && add_header(wsi, "content-encoding:", "gzip", at, end)) ||
	    (response->gzip && add_header(wsi, "vary:", "accept-encoding", at, end)) ||
	    (response->etag && add_header(wsi, "etag:", response->etag, at, end)) ||
	    (response->authenticate && add_header(wsi, "www-authenticate:", response->authenticate, at, end)) ||
	    (headers->close && add_header(wsi, "connection:", "close", at, end)))
		return 1;
	for (const struct net_header *header = response->more; header && header->name; header++)
		if (add_header(wsi, header->name, header->value, at, end))
			return 1;
	for (const struct net_header *header = headers->listener->headers; header && header->name; header++)
		if (add_header(wsi, header->name, header->value, at, end))
			return 1;
	return lws_finalize_http_header(wsi, at, end);
}

// Write the status line and headers. Non-zero: the connection is to be closed.
static int write_headers(struct lws *wsi, const struct net_listener *listener, const struct net_response *response,
			 bool close)
{
	unsigned char bytes[LWS_PRE + HTTP_HEADER_BYTES], *start = bytes + LWS_PRE, *at = start;
	const struct net_http_headers headers = {
		.listener = listener, .response = response, .length = response->body_bytes, .close = close};
	if (net_http_print_headers(wsi, &headers, &at, bytes + sizeof bytes - 1))
		return 1;
	return lws_write(wsi, start, (size_t)(at - start), LWS_WRITE_HTTP_HEADERS) < 0;
}

static int finish_transaction(struct lws *wsi, struct http_session *http)
{
	bool close = http->close;
	net_http_finish(wsi, &http->session);
	if (close)
		return -1;
	return lws_http_transaction_completed(wsi) ? -1 : 0;
}

void net_http_finish(struct lws *wsi, struct net_session *session)
{
	struct http_session *http = (struct http_session *)session;
	lws_set_opaque_user_data(wsi, &session->arrival->waiting);
	buffer_finish(&http->response.owned);
	free(http);
}

static bool has_body(struct lws *wsi)
{
	char length[24];
	copy_header(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, length, sizeof length);
	return (length[0] && strcmp(length, "0") != 0) ||
	       lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0;
}

static void refuse_method(struct net_response *response)
{
	static const char text[] = "{\"error\":\"only GET and HEAD are served here, without a body\"}\n";
	response->status = 405;
	response->content_type = "application/json";
	response->body = (const uint8_t *)text;
	response->body_bytes = sizeof text - 1;
}

// Whether the peer asks on without taking its answers. An answer that cannot be sent while more requests wait unread
// keeps the loop busy for nothing, so such a connection is dropped before.
static bool piles_up(struct lws *wsi)
{
	int unsent = 0;
	return lws_partial_buffered(wsi) || ioctl(lws_get_socket_fd(wsi), SIOCOUTQ, &unsent) < 0 || unsent > PILE_BYTES;
}

int net_http_begin(struct lws *wsi, struct net_listener *listener)
{
	struct net_request request;
	if (piles_up(wsi))
		return -1;
	if (lws_hdr_total_length(wsi, WSI_TOKEN_POST_URI) > 0 && listener->handler->post) {
		net_read_request(wsi, listener, &request);
		return net_exchange_open(wsi, listener, &request);
	}
	const struct net_session *waiting = lws_get_opaque_user_data(wsi);
	struct http_session *http = calloc(1, sizeof(*http));
	if (!http)
		return -1;
	http->session = (struct net_session){.kind = SESSION_HTTP, .listener = listener, .arrival = waiting->arrival};
	buffer_init(&http->response.owned, LIMIT_BODY_BYTES);
	lws_set_opaque_user_data(wsi, http);
	net_read_request(wsi, listener, &request);
	bool reading = request.head || lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI) > 0;
	bool options = lws_hdr_total_length(wsi, WSI_TOKEN_OPTIONS_URI) > 0 && listener->handler->options;
	if (reading && !has_body(wsi)) {
		listener->handler->http(listener->context, &request, &http->response);
	} else if (!options || has_body(wsi) ||
		   !listener->handler->options(listener->context, &request, &http->response)) {
		http->close = true;
		refuse_method(&http->response);
	}
	if (write_headers(wsi, listener, &http->response, http->close))
		return -1;
	if (request.head || !http->response.body_bytes)
		return finish_transaction(wsi, http);
	// The first piece at once, mostly all of it: libwebsockets 4.3 stumbles over a request that follows on the
	// heels of one whose answer it still waits to send.
	return net_http_continue(wsi, &http->session);
}

int net_http_continue(struct lws *wsi, struct net_session *session)
{
	struct http_session *http = (struct http_session *)session;
	uint8_t piece[LWS_PRE + PIECE_BYTES];
	size_t left = http->response.body_bytes - http->sent, length = left < PIECE_BYTES ? left : PIECE_BYTES;
	memcpy(piece + LWS_PRE, http->response.body + http->sent, length);
	http->sent += length;
	bool last = http->sent == http->response.body_bytes;
	if (lws_write(wsi, piece + LWS_PRE, length, last ? LWS_WRITE_HTTP_FINAL : LWS_WRITE_HTTP) < 0)
		return -1;
	if (last)
		return finish_transaction(wsi, http);
	lws_callback_on_writable(wsi);
	return 0;
}

int net_http_refuse(struct lws *wsi, struct net_listener *listener, struct net_response *response)
{
	uint8_t piece[LWS_PRE + 2048];
	size_t length = response->body_bytes < 2048 ? response->body_bytes : 2048;
	response->body_bytes = length;
	int result = write_headers(wsi, listener, response, true);
	if (length)
		memcpy(piece + LWS_PRE, response->body, length);
	if (!result && lws_write(wsi, piece + LWS_PRE, length, LWS_WRITE_HTTP_FINAL) < 0)
		result = -1;
	buffer_finish(&response->owned);
	return result ? -1 : 1;
}
