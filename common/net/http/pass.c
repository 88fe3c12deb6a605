/* See pass.h. */
#include "common/net/http/pass.h"

#include "common/base/list.h"
#include "common/base/log.h"
#include "common/net/http/arrival.h"
#include "common/net/http/passed.h"
#include "common/net/socket_address.h"
#include "common/net/tls/tls_lws.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	PASS_BYTES = 64 * 1024, // that wait for the other server, before no more is read of the client
	PIECE_BYTES = 16 * 1024,
	CONNECT_MS = 10000, // until the TLS handshake with the other server is over
	STALL_MS = 20000,   // that the system of the other server may leave bytes unacknowledged
	CHAIN_DEPTH = 3,
};

struct net_pass {
	struct net_pass_params params;
	uint8_t key[NET_PASS_KEY_BYTES];
	char uri[NET_CERTIFICATE_URI_BYTES];
	SSL_CTX *context; // NULL: plain
	struct sockaddr_storage to;
	socklen_t to_bytes; // 0: nobody
	struct passed *first;
};

enum passed_state { PASSED_CONNECTS, PASSED_SHAKES, PASSED_OPEN };

// A connection that is passed on.
struct passed {
	struct net_session session;
	struct net_pass *pass;
	struct passed *next, **at; // of the pass
	enum passed_state state;
	struct net_watch *watch; // of the socket to the other server
	SSL *ssl;
	struct net_timer patience;
	struct buffer up;        // what its socket has not taken
	bool client_ended, told; // `told`: and the other server knows
};

static struct passed *of(struct net_session *session)
{
	return (struct passed *)session;
}

static void close_passed(struct passed *passed)
{
	struct net_loop *loop = passed->pass->params.loop;
	net_timer_stop(loop, &passed->patience);
	LIST_REMOVE(passed, at);
	SSL_free(passed->ssl);
	if (passed->watch)
		net_watch_destroy(&passed->watch);
	buffer_finish(&passed->up);
	free(passed);
}

void net_passed_finish(struct net_session *session)
{
	close_passed(of(session));
}

// The other server is gone in the middle of something, or the client is: nobody may take what was sent for whole.
static void break_off(struct passed *passed)
{
	net_arrival_end(passed->session.arrival); // which finishes it, in a moment
	net_watch_want_read(passed->watch, false);
}

// All has come: what is kept for the client is sent, and then the goodbye.
static void end_well(struct passed *passed)
{
	struct net_arrival *arrival = passed->session.arrival;
	arrival->session = NULL;
	close_passed(passed);
	net_arrival_leave(arrival);
}

// Nothing was answered yet: this server says why.
static void answer_here(struct passed *passed, const char *why)
{
	struct net_arrival *arrival = passed->session.arrival;
	const struct net_pass_params *params = &passed->pass->params;
	struct net_response response = {0};
	log_debug("net", "a request is not passed on: %s", why);
	arrival->session = NULL;
	close_passed(passed);
	buffer_init(&response.owned, PIECE_BYTES);
	params->absent(params->context, &response);
	net_http_refuse(arrival, &response);
}

static void fail(struct passed *passed, const char *why)
{
	if (passed->state == PASSED_OPEN)
		break_off(passed);
	else
		answer_here(passed, why);
}

// ---- to the other server ----

// Returns how much was written, 0 if the socket is full, -1 if it is broken.
static ssize_t write_some(struct passed *passed)
{
	const size_t length = passed->up.length < PIECE_BYTES ? passed->up.length : PIECE_BYTES;
	size_t written = 0;
	if (!passed->ssl) {
		const ssize_t sent = send(net_watch_fd(passed->watch), passed->up.data, length, MSG_NOSIGNAL);
		return sent >= 0 ? sent : errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
	}
	ERR_clear_error();
	if (SSL_write_ex(passed->ssl, passed->up.data, length, &written) == 1)
		return (ssize_t)written;
	const int error = SSL_get_error(passed->ssl, 0);
	return error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ ? 0 : -1;
}

// The client says nothing more: so the other server is told, which may still answer.
static void tell_end(struct passed *passed)
{
	if (!passed->client_ended || passed->told || passed->up.length || passed->state != PASSED_OPEN)
		return;
	passed->told = true;
	if (passed->ssl) {
		ERR_clear_error();
		SSL_shutdown(passed->ssl);
	}
	shutdown(net_watch_fd(passed->watch), SHUT_WR);
}

static void push(struct passed *passed)
{
	ssize_t sent = 1;
	while (passed->state == PASSED_OPEN && passed->up.length && (sent = write_some(passed)) > 0)
		buffer_consume(&passed->up, (size_t)sent);
	if (sent < 0) {
		break_off(passed);
		return;
	}
	if (passed->up.length && passed->state == PASSED_OPEN)
		net_watch_want_write(passed->watch);
	tell_end(passed);
	net_watch_want_read(passed->session.arrival->watch, !passed->client_ended && passed->up.length < PASS_BYTES);
}

static void take(struct passed *passed, const uint8_t *bytes, size_t length)
{
	if (buffer_append(&passed->up, bytes, length))
		break_off(passed);
	else
		push(passed);
}

void net_passed_early(struct net_session *session, const uint8_t *bytes, size_t length)
{
	take(of(session), bytes, length);
}

void net_passed_readable(struct net_session *session)
{
	static uint8_t bytes[PIECE_BYTES]; // the loop's thread alone reads
	struct passed *passed = of(session);
	if (passed->client_ended || passed->up.length >= PASS_BYTES)
		return;
	const ssize_t got = net_arrival_read(session->arrival, bytes, sizeof bytes);
	if (got > 0) {
		take(passed, bytes, (size_t)got);
	} else if (got < 0) {
		passed->client_ended = true;
		push(passed);
	}
}

// ---- from the other server ----

// Returns how much was read, 0 if there is nothing now, -1 if it is broken, -2 at its end.
static ssize_t read_some(struct passed *passed, uint8_t *bytes, size_t room)
{
	size_t got = 0;
	if (!passed->ssl) {
		const ssize_t plain = recv(net_watch_fd(passed->watch), bytes, room, 0);
		if (plain < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
		return plain ? plain : -2;
	}
	ERR_clear_error();
	if (SSL_read_ex(passed->ssl, bytes, room, &got) == 1)
		return (ssize_t)got;
	const int error = SSL_get_error(passed->ssl, 0);
	return error == SSL_ERROR_ZERO_RETURN                                  ? -2
	       : error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0
									       : -1;
}

// A piece a turn, and none while the client has not taken the last one.
static void pull(struct passed *passed)
{
	static uint8_t bytes[PIECE_BYTES]; // a whole record, so that nothing stays inside OpenSSL
	struct net_arrival *arrival = passed->session.arrival;
	if (net_arrival_keeps(arrival)) {
		net_watch_want_read(passed->watch, false);
		return;
	}
	const ssize_t got = read_some(passed, bytes, sizeof bytes);
	if (got > 0 && net_arrival_send(arrival, bytes, (size_t)got))
		net_watch_want_read(passed->watch, false); // the client is gone
	else if (got == -2)
		end_well(passed);
	else if (got == -1)
		break_off(passed);
}

void net_passed_writable(struct net_session *session)
{
	net_watch_want_read(of(session)->watch, true);
}

// ---- its beginning ----

static bool is_the_one(const struct passed *passed)
{
	X509 *leaf = SSL_get0_peer_certificate(passed->ssl);
	return leaf && SSL_get_verify_result(passed->ssl) == X509_V_OK &&
	       net_certificate_has_uri(leaf, passed->pass->uri);
}

static void opened(struct passed *passed)
{
	passed->state = PASSED_OPEN;
	net_timer_stop(passed->pass->params.loop, &passed->patience);
	push(passed);
}

static void shake(struct passed *passed)
{
	ERR_clear_error();
	const int done = SSL_do_handshake(passed->ssl);
	const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(passed->ssl, done);
	if (done == 1 && is_the_one(passed))
		opened(passed);
	else if (error == SSL_ERROR_WANT_WRITE)
		net_watch_want_write(passed->watch);
	else if (error != SSL_ERROR_WANT_READ)
		fail(passed, "its certificate is not that of this cluster's server, or there is no TLS with it");
	ERR_clear_error();
}

static void connected(struct passed *passed)
{
	int fault = 0;
	socklen_t size = sizeof fault;
	if (getsockopt(net_watch_fd(passed->watch), SOL_SOCKET, SO_ERROR, &fault, &size) || fault) {
		fail(passed, strerror(fault ? fault : errno));
		return;
	}
	net_watch_want_read(passed->watch, true);
	passed->state = passed->ssl ? PASSED_SHAKES : PASSED_OPEN;
	if (passed->ssl)
		shake(passed);
	else
		opened(passed);
}

static void on_readable(void *arg, int fd)
{
	struct passed *passed = arg;
	(void)fd;
	if (passed->session.arrival->ending)
		return;
	if (passed->state == PASSED_SHAKES)
		shake(passed);
	else if (passed->state == PASSED_OPEN)
		pull(passed);
}

static void on_writable(void *arg, int fd)
{
	struct passed *passed = arg;
	(void)fd;
	if (passed->session.arrival->ending)
		return;
	if (passed->state == PASSED_CONNECTS)
		connected(passed);
	else if (passed->state == PASSED_SHAKES)
		shake(passed);
	else
		push(passed);
}

static const struct net_watch_events events = {.readable = on_readable, .writable = on_writable};

static void too_late(void *arg)
{
	fail(arg, "it does not answer in time");
}

// Not an error of this request's: it is answered here where nothing comes of it.
static bool dial(struct passed *passed)
{
	const struct net_pass *pass = passed->pass;
	const int on = 1, stall_ms = STALL_MS;
	if (!pass->to_bytes)
		return false;
	const int fd = socket(pass->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &stall_ms, sizeof stall_ms);
	const bool goes = !connect(fd, (const struct sockaddr *)&pass->to, pass->to_bytes) || errno == EINPROGRESS;
	if (!goes || net_watch_create(&passed->watch, pass->params.loop, fd, &events, passed, NULL)) {
		close(fd);
		return false;
	}
	net_watch_want_read(passed->watch, false);
	net_watch_want_write(passed->watch);
	if (!pass->context)
		return true;
	passed->ssl = SSL_new(pass->context);
	if (!passed->ssl || SSL_set_fd(passed->ssl, fd) != 1 ||
	    SSL_set_tlsext_host_name(passed->ssl, NET_TLS_CLUSTER_NAME) != 1)
		return false;
	SSL_set_connect_state(passed->ssl);
	return true;
}

void net_pass_take(struct net_pass *pass, struct net_arrival *arrival, const struct head *head)
{
	struct passed *passed = calloc(1, sizeof *passed);
	if (!passed) {
		net_arrival_end(arrival);
		return;
	}
	*passed = (struct passed){
		.session = {.kind = SESSION_PASSED, .listener = arrival->listener, .arrival = arrival}, .pass = pass};
	buffer_init(&passed->up, PASS_BYTES + BEHIND_MOST_BYTES + 4 * HEAD_BYTES);
	LIST_PUSH(&pass->first, passed, at);
	arrival->session = &passed->session;
	arrival->state = ARRIVAL_PASSED;
	net_arrival_stage(arrival, DOOR_SERVED);
	net_arrival_bear(arrival);
	if (net_passed_print(head, arrival->peer, arrival->ssl != NULL, pass->key, &passed->up) || !dial(passed))
		answer_here(passed, "nobody can be reached");
	else
		net_timer_start(pass->params.loop, &passed->patience, CONNECT_MS, too_late, passed);
}

// ---- where to ----

static enum status create_context(struct net_pass *pass, const char *authority_pem, struct error *error)
{
	X509 *authority = net_certificate_read(authority_pem);
	X509_STORE *store = X509_STORE_new();
	SSL_CTX *context = pass->context = SSL_CTX_new(TLS_client_method());
	enum status status = STATUS_OK;
	if (!authority)
		status = error_set(error, STATUS_INVALID_PARAMS, "this is not the certificate (PEM) of an authority");
	else if (!store || !context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
		 SSL_CTX_set_ciphersuites(context, NET_TLS_SUITES) != 1 ||
		 SSL_CTX_set1_groups_list(context, NET_TLS_GROUPS) != 1 || X509_STORE_add_cert(store, authority) != 1 ||
		 SSL_CTX_set1_verify_cert_store(context, store) != 1)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "OpenSSL makes no context");
	if (!status) {
		SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
		SSL_CTX_set_verify_depth(context, CHAIN_DEPTH);
		SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
		SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	}
	X509_free(authority);
	X509_STORE_free(store);
	ERR_clear_error();
	return status;
}

enum status net_pass_create(struct net_pass **out, const struct net_pass_params *params, struct error *error)
{
	struct net_pass *pass = calloc(1, sizeof *pass);
	*out = pass;
	if (!pass)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	pass->params = *params;
	memcpy(pass->key, params->key, sizeof pass->key);
	snprintf(pass->uri, sizeof pass->uri, "%s", params->server_uri ? params->server_uri : "");
	const enum status status = params->authority_pem ? create_context(pass, params->authority_pem, error)
							 : STATUS_OK;
	if (status)
		net_pass_destroy(out);
	return status;
}

static void end_all(struct net_pass *pass)
{
	struct passed *next;
	for (struct passed *passed = pass->first; passed; passed = next) {
		next = passed->next;
		fail(passed, "another server leads now");
	}
}

void net_pass_to(struct net_pass *pass, const char *address, int port)
{
	struct sockaddr_storage to = {0};
	const socklen_t length = address ? net_socket_address(address, port, &to) : 0;
	if (length == pass->to_bytes && !memcmp(&to, &pass->to, sizeof to))
		return;
	pass->to = to;
	pass->to_bytes = length;
	end_all(pass);
}

bool net_pass_can(const struct net_pass *pass)
{
	return pass->to_bytes != 0;
}

// The pass ends its connections at once, since they point to it.
void net_pass_destroy(struct net_pass **pointer)
{
	struct net_pass *pass = *pointer;
	if (!pass)
		return;
	*pointer = NULL;
	while (pass->first) {
		struct net_arrival *arrival = pass->first->session.arrival;
		arrival->session = NULL;
		close_passed(pass->first);
		net_arrival_end(arrival);
	}
	SSL_CTX_free(pass->context);
	OPENSSL_cleanse(pass, sizeof *pass);
	free(pass);
}
