/* See http_stream.h. */
#include "server/cli/http_stream.h"

#include "common/base/limits.h"
#include "common/net/tls/certificate.h"
#include "server/cli/client.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PIECE_BYTES = 16384, HEAD_LINE_BYTES = 8192, HEAD_LINES = 100 };

struct http_stream {
	const struct target *target;
	int fd, status;
	SSL_CTX *context;
	SSL *ssl; // NULL: plain
	uint8_t piece[PIECE_BYTES];
	size_t at, length; // of the piece, read and there
	bool chunked, ended;
	uint64_t left; // of the chunk, or of the body where it is not chunked
};

static enum status broke(struct http_stream *stream, struct error *error)
{
	error_set(error, STATUS_UNAVAILABLE, "the connection to %.200s broke before the answer was complete",
		  stream->target->name);
	error_hint(error, "try again; if that does not help, look at the server's log");
	return STATUS_UNAVAILABLE;
}

// ---- connecting ----

// How long one call may wait for the other end; 0: as long as it takes.
static void set_patience(int fd, int option, int ms)
{
	const struct timeval time = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	setsockopt(fd, SOL_SOCKET, option, &time, sizeof time);
}

static int connect_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int patience_of(const struct target *target)
{
	return target->patience_ms ? target->patience_ms : CLIENT_TIMEOUT_MS;
}

static int connect_tcp(const struct target *target)
{
	char port[8];
	int fd = -1;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	snprintf(port, sizeof port, "%d", target->port);
	if (getaddrinfo(target->host, port, &hints, &list))
		return -1;
	for (const struct addrinfo *one = list; one && fd < 0; one = one->ai_next) {
		fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		set_patience(fd, SO_SNDTIMEO, patience_of(target)); // connect's, too
		set_patience(fd, SO_RCVTIMEO, patience_of(target));
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int)); // a machine that is gone is noticed
		if (fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen)) {
			const int why = errno == EINPROGRESS ? ETIMEDOUT : errno;
			close(fd);
			errno = why;
			fd = -1;
		}
	}
	freeaddrinfo(list);
	return fd;
}

// Under the cluster's own authority a server is known by the cluster's id, under another by its name.
static bool is_the_one(const struct target *target, SSL *ssl)
{
	X509 *certificate = SSL_get0_peer_certificate(ssl);
	if (!certificate || SSL_get_verify_result(ssl) != X509_V_OK)
		return false;
	return target->trust.server_uri[0] ? net_certificate_has_uri(certificate, target->trust.server_uri)
					   : net_certificate_is_for(certificate, target->host);
}

static enum status begin_tls(struct http_stream *stream, struct error *error)
{
	const struct target *target = stream->target;
	const char *pem = target->trust.authority_pem;
	X509 *authority = pem[0] ? net_certificate_read(pem) : NULL;
	stream->context = SSL_CTX_new(TLS_client_method());
	bool ready = stream->context && SSL_CTX_set_min_proto_version(stream->context, TLS1_3_VERSION) == 1;
	if (ready && pem[0])
		ready = authority && X509_STORE_add_cert(SSL_CTX_get_cert_store(stream->context), authority) == 1;
	else if (ready)
		ready = SSL_CTX_set_default_verify_paths(stream->context) == 1;
	X509_free(authority);
	if (ready)
		SSL_CTX_set_verify(stream->context, SSL_VERIFY_PEER, NULL);
	stream->ssl = ready ? SSL_new(stream->context) : NULL;
	ready = stream->ssl && SSL_set_fd(stream->ssl, stream->fd) == 1;
	if (ready && !net_is_address(target->host))
		SSL_set_tlsext_host_name(stream->ssl, target->host);
	const int shaken = ready ? SSL_connect(stream->ssl) : 0;
	if (shaken == 1 && is_the_one(target, stream->ssl))
		return STATUS_OK;
	if (ready && shaken != 1 && SSL_get_error(stream->ssl, shaken) == SSL_ERROR_WANT_READ) {
		error_set(error, STATUS_TIMEOUT, "no answer from %.200s within %d s", target->name,
			  patience_of(target) / 1000);
		error_hint(error, "it may be overloaded or stopped: look at its log");
		return STATUS_TIMEOUT;
	}
	error_set(error, STATUS_UNAVAILABLE, "%.200s could not prove that it is the server, by %.100s", target->name,
		  target->trust.from);
	error_hint(error, "name the cluster's authority: --ca FILE");
	return STATUS_UNAVAILABLE;
}

// ---- bytes ----

static bool write_all(struct http_stream *stream, const void *bytes, size_t length)
{
	const uint8_t *at = bytes;
	while (length) {
		int some = length < PIECE_BYTES ? (int)length : PIECE_BYTES;
		ssize_t sent = stream->ssl ? SSL_write(stream->ssl, at, some)
					   : send(stream->fd, at, (size_t)some, MSG_NOSIGNAL);
		if (sent < 0 && !stream->ssl && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		at += sent;
		length -= (size_t)sent;
	}
	return true;
}

static int next_byte(struct http_stream *stream)
{
	while (stream->at == stream->length) {
		ssize_t got = stream->ssl ? SSL_read(stream->ssl, stream->piece, PIECE_BYTES)
					  : recv(stream->fd, stream->piece, PIECE_BYTES, 0);
		if (got < 0 && !stream->ssl && errno == EINTR)
			continue;
		if (got <= 0)
			return -1;
		stream->at = 0;
		stream->length = (size_t)got;
	}
	return stream->piece[stream->at++];
}

// A line of the head, or the size of a chunk; without its end. False also for one that is too long.
static bool head_line(struct http_stream *stream, char line[HEAD_LINE_BYTES])
{
	size_t length = 0;
	int byte;
	while (length < HEAD_LINE_BYTES && (byte = next_byte(stream)) >= 0 && byte != '\n')
		line[length++] = (char)byte;
	if (length == HEAD_LINE_BYTES)
		return false;
	while (length && line[length - 1] == '\r')
		length--;
	line[length] = 0;
	return byte >= 0;
}

static bool read_head(struct http_stream *stream)
{
	char line[HEAD_LINE_BYTES];
	if (!head_line(stream, line) || strncmp(line, "HTTP/1.1 ", 9) != 0)
		return false;
	stream->status = (int)strtol(line + 9, NULL, 10);
	for (int lines = 0; lines < HEAD_LINES; lines++) {
		if (!head_line(stream, line))
			return false;
		if (!line[0])
			return true;
		if (!strncasecmp(line, "content-length:", 15))
			stream->left = strtoull(line + 15, NULL, 10);
		else if (!strncasecmp(line, "transfer-encoding: chunked", 26))
			stream->chunked = true;
	}
	return false;
}

// A byte of the body; -1 at its end, -2 if it broke off.
static int body_byte(struct http_stream *stream)
{
	char line[HEAD_LINE_BYTES];
	if (stream->ended)
		return -1;
	if (!stream->left && stream->chunked) {
		if (!head_line(stream, line))
			return -2;
		if (!line[0] && !head_line(stream, line)) // that was the end of the chunk before
			return -2;
		if (!isxdigit((unsigned char)line[0]))
			return -2;
		stream->left = strtoull(line, NULL, 16);
	}
	if (!stream->left) {
		stream->ended = true;
		return -1;
	}
	int byte = next_byte(stream);
	stream->left--;
	return byte < 0 ? -2 : byte;
}

// ---- the request ----

static enum status send_request(struct http_stream *stream, const char *path, const struct buffer *body,
				struct error *error)
{
	struct buffer head;
	const struct target *target = stream->target;
	buffer_init(&head, LIMIT_HTTP_HEADERS_BYTES);
	buffer_printf(&head, "POST %s HTTP/1.1\r\nHost: %s%s%s:%d\r\n", path, strchr(target->host, ':') ? "[" : "",
		      target->host[0] ? target->host : "localhost", strchr(target->host, ':') ? "]" : "", target->port);
	buffer_printf(&head, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body->length);
	if (target->token[0])
		buffer_printf(&head, "Authorization: Bearer %s\r\n", target->token);
	buffer_append_text(&head, "\r\n");
	bool sent = !head.failed && write_all(stream, head.data, head.length) &&
		    write_all(stream, body->data, body->length) && read_head(stream);
	if (head.data)
		OPENSSL_cleanse(head.data, head.capacity);
	buffer_finish(&head);
	return sent ? STATUS_OK : broke(stream, error);
}

enum status http_stream_post(struct http_stream **out, const struct target *target, const char *path,
			     const struct buffer *body, struct error *error)
{
	enum status status = STATUS_OK;
	struct http_stream *stream = calloc(1, sizeof(*stream));
	*out = NULL;
	if (!stream)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	stream->target = target;
	stream->fd = target->socket_path[0] ? connect_unix(target->socket_path) : connect_tcp(target);
	if (stream->fd < 0)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s cannot be reached", target->name);
	if (!status && target->tls && !target->socket_path[0])
		status = begin_tls(stream, error);
	if (!status)
		set_patience(stream->fd, SO_RCVTIMEO, 0); // a model may think for long
	if (!status)
		status = send_request(stream, path, body, error);
	if (status)
		http_stream_close(&stream);
	*out = stream;
	return status;
}

void http_stream_close(struct http_stream **pointer)
{
	struct http_stream *stream = *pointer;
	if (!stream)
		return;
	*pointer = NULL;
	SSL_free(stream->ssl);
	SSL_CTX_free(stream->context);
	if (stream->fd >= 0)
		close(stream->fd);
	free(stream);
}

int http_stream_status(const struct http_stream *stream)
{
	return stream->status;
}

enum status http_stream_line(struct http_stream *stream, struct buffer *line, bool *any, struct error *error)
{
	int byte;
	buffer_clear(line);
	while ((byte = body_byte(stream)) >= 0 && byte != '\n')
		if (buffer_append_byte(line, (uint8_t)byte))
			return error_set(error, STATUS_LIMIT_EXCEEDED, "a line of the answer is too long");
	*any = byte >= 0 || line->length;
	return byte == -2 ? broke(stream, error) : STATUS_OK;
}
