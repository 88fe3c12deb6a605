/* Opens connections between nodes: trust, listening, dialling, handshake; see peer.h. One
 * SSL_CTX serves both ends. OpenSSL verifies the chain against a store with only the cluster's
 * authority, for the purpose of the end in question. An end without a certificate is refused.
 * There are no tickets and no sessions: every connection shows its certificates. Thread: the
 * loop's. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/net/loop_lws.h"
#include "common/net/peer_inside.h"
#include "common/net/socket_address.h"
#include "common/net/tls/tls_lws.h"
#include "common/net/ws/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	CHAIN_DEPTH = 3,
	BACKLOG = 32,
	ACCEPTS_A_TURN = 16,
	NOT_SENT_BYTES = 128 * 1024, // that the system takes ahead: what follows, pings too, is not held up by more
};

struct net_peer_tls {
	SSL_CTX *context;
};

struct net_peer_listener {
	struct net_loop *loop;
	struct net_peer_listen_params params;
	struct net_watch *watch;
	struct net_peer *opening; // that it counts
	unsigned count;
	int port, spare_fd;
};

enum status net_peer_tls_create(struct net_peer_tls **out, const char *authority_pem, struct error *error)
{
	enum status status = STATUS_OK;
	*out = NULL;
	X509 *authority = net_certificate_read(authority_pem);
	struct net_peer_tls *tls = calloc(1, sizeof(*tls));
	SSL_CTX *context = tls ? SSL_CTX_new(TLS_method()) : NULL;
	X509_STORE *store = X509_STORE_new();
	if (!context || !store) {
		status = error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
		goto done;
	}
	if (!authority || X509_check_ca(authority) != 1) {
		status = error_set(error, STATUS_INVALID_PARAMS, "this is not the certificate (PEM) of an authority");
		goto done;
	}
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	SSL_CTX_set_verify_depth(context, CHAIN_DEPTH);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
	SSL_CTX_set_mode(context,
			 SSL_MODE_NO_AUTO_CHAIN | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 || SSL_CTX_set_num_tickets(context, 0) != 1 ||
	    SSL_CTX_set_ciphersuites(context, NET_TLS_SUITES) != 1 ||
	    SSL_CTX_set1_groups_list(context, NET_TLS_GROUPS) != 1 || SSL_CTX_set_max_early_data(context, 0) != 1 ||
	    X509_STORE_add_cert(store, authority) != 1 || SSL_CTX_set1_verify_cert_store(context, store) != 1 ||
	    SSL_CTX_add_client_CA(context, authority) != 1)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "OpenSSL makes no context");
done:
	X509_free(authority);
	X509_STORE_free(store);
	ERR_clear_error();
	if (status) {
		SSL_CTX_free(context);
		free(tls);
		return status;
	}
	tls->context = context;
	*out = tls;
	return STATUS_OK;
}

void net_peer_tls_destroy(struct net_peer_tls **tls)
{
	if (*tls)
		SSL_CTX_free((*tls)->context);
	free(*tls);
	*tls = NULL;
}

enum status net_peer_tls_show(struct net_peer_tls *tls, const char *chain_pem, const char *key_pem, struct error *error)
{
	struct net_credentials fresh;
	enum status status = net_credentials_read(&fresh, chain_pem, key_pem, error);
	if (!status && SSL_CTX_use_cert_and_key(tls->context, fresh.leaf, fresh.key, fresh.chain, 1) != 1)
		status = error_set(error, STATUS_INVALID_PARAMS, "the certificate cannot be used for TLS");
	ERR_clear_error();
	net_credentials_finish(&fresh);
	return status;
}

// ---- the handshake ----

static void explain(struct net_peer *peer, int error)
{
	unsigned long reason = ERR_peek_last_error();
	long verified = SSL_get_verify_result(peer->ssl);
	const char *text = reason ? ERR_reason_error_string(reason) : NULL;
	if (verified != X509_V_OK)
		snprintf(peer->why, sizeof peer->why, "its certificate does not verify: %s",
			 X509_verify_cert_error_string(verified));
	else if (reason)
		snprintf(peer->why, sizeof peer->why, "no TLS with it: %s", text ? text : "a fault without a name");
	else if (error == SSL_ERROR_SYSCALL && errno)
		snprintf(peer->why, sizeof peer->why, "no TLS with it: %s", strerror(errno));
	else
		snprintf(peer->why, sizeof peer->why, "it closed the connection in the TLS handshake");
}

static bool is_open(struct net_peer *peer)
{
	struct net_certificate certificate;
	X509 *leaf = SSL_get0_peer_certificate(peer->ssl);
	if (!leaf || SSL_get_verify_result(peer->ssl) != X509_V_OK) {
		snprintf(peer->why, sizeof peer->why, "it shows no certificate");
		return false;
	}
	net_certificate_describe(leaf, &certificate);
	peer->state = PEER_OPEN;
	peer->heard_ms = peer->keys_ms = clock_steady_ms();
	net_timer_stop(peer->loop, &peer->patience);
	net_peer_uncount(peer);
	peer->handler->opened(peer->user, peer, &certificate);
	return true;
}

bool net_peer_shake(struct net_peer *peer)
{
	ERR_clear_error();
	errno = 0;
	int done = SSL_do_handshake(peer->ssl);
	if (done == 1)
		return is_open(peer);
	int error = SSL_get_error(peer->ssl, done);
	if (error == SSL_ERROR_WANT_WRITE)
		net_watch_want_write(peer->watch);
	if (error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ)
		return true;
	explain(peer, error);
	peer->broken = true;
	return false;
}

// If these are refused, only speed is lost.
static void set_options(int fd)
{
	const int on = 1, ahead = NOT_SENT_BYTES;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &ahead, sizeof ahead);
}

// ---- addresses ----

union address {
	struct sockaddr any;
	struct sockaddr_storage all;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

// An IPv4 address that came to a socket for both is shown as what it is.
static void address_text(const union address *address, char out[NET_ADDRESS_BYTES])
{
	out[0] = 0;
	if (address->any.sa_family == AF_INET)
		inet_ntop(AF_INET, &address->v4.sin_addr, out, NET_ADDRESS_BYTES);
	else if (address->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr))
		inet_ntop(AF_INET, address->v6.sin6_addr.s6_addr + 12, out, NET_ADDRESS_BYTES);
	else if (address->any.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &address->v6.sin6_addr, out, NET_ADDRESS_BYTES);
}

static void read_path(int fd, struct net_peer_path *path)
{
	union address address = {0};
	socklen_t size = sizeof address;
	struct tcp_info told = {0};
	socklen_t told_bytes = sizeof told;
	*path = (struct net_peer_path){.segments = -1, .segments_again = -1};
	if (!getsockname(fd, &address.any, &size))
		address_text(&address, path->local);
	size = sizeof address;
	address = (union address){0};
	if (!getpeername(fd, &address.any, &size))
		address_text(&address, path->remote);
	// An older system tells less. What was sent again in vain, as the other end says, was not lost.
	if (!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &told, &told_bytes) &&
	    told_bytes >= offsetof(struct tcp_info, tcpi_dsack_dups) + sizeof told.tcpi_dsack_dups) {
		path->segments = told.tcpi_data_segs_out;
		path->segments_again = told.tcpi_total_retrans > told.tcpi_dsack_dups
					       ? told.tcpi_total_retrans - told.tcpi_dsack_dups
					       : 0;
	}
}

void net_peer_path(const struct net_peer *peer, struct net_peer_path *path)
{
	read_path(peer->fd, path);
}

bool net_conn_path(const struct net_conn *conn, struct net_peer_path *path)
{
	if (conn->fd >= 0)
		read_path(conn->fd, path);
	return conn->fd >= 0;
}

// ---- listening ----

void net_peer_uncount(struct net_peer *peer)
{
	struct net_peer_listener *listener = peer->listener;
	if (!listener)
		return;
	LIST_REMOVE(peer, at);
	listener->count--;
	peer->listener = NULL;
}

static void count(struct net_peer_listener *listener, struct net_peer *peer)
{
	peer->listener = listener;
	LIST_PUSH(&listener->opening, peer, at);
	listener->count++;
}

static void accept_one(struct net_peer_listener *listener, int fd)
{
	struct net_peer *peer = NULL;
	if (listener->count >= LIMIT_PEERS_NOT_OPEN) {
		close(fd);
		return;
	}
	set_options(fd);
	if (net_peer_create(&peer, listener->loop, fd, listener->params.tls->context, NULL))
		return;
	SSL_set_accept_state(peer->ssl);
	peer->state = PEER_SHAKING;
	peer->handler = listener->params.handler;
	count(listener, peer);
	peer->user = listener->params.accepted(listener->params.context, peer);
	if (!peer->user)
		net_peer_destroy(&peer);
}

static void accept_ready(void *arg, int fd)
{
	struct net_peer_listener *listener = arg;
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		int accepted = net_accept(fd, &listener->spare_fd, "");
		if (accepted < 0)
			return;
		accept_one(listener, accepted);
	}
}

static const struct net_watch_events accept_events = {.readable = accept_ready};

// A socket that listens there, or -1 with errno.
static int open_listener(const union address *address, socklen_t size)
{
	const int on = 1, off = 0;
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (address->any.sa_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if (!bind(fd, &address->any, size) && !listen(fd, BACKLOG))
		return fd;
	int fault = errno;
	close(fd);
	errno = fault;
	return -1;
}

static int port_of(int fd)
{
	union address address = {0};
	socklen_t size = sizeof address;
	if (getsockname(fd, &address.any, &size))
		return 0;
	return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

enum status net_peer_listen(struct net_peer_listener **out, struct net_loop *loop,
			    const struct net_peer_listen_params *params, struct error *error)
{
	union address address;
	*out = NULL;
	socklen_t size = net_socket_address(params->address ? params->address : "::", params->port, &address.all);
	if (!size)
		return error_set(error, STATUS_INVALID_PARAMS, "this is not an address: %.60s", params->address);
	int fd = open_listener(&address, size);
	if (fd < 0 && !params->address) { // a machine without IPv6
		size = net_socket_address("0.0.0.0", params->port, &address.all);
		fd = open_listener(&address, size);
	}
	if (fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "no port to listen on for other nodes");
	struct net_peer_listener *listener = calloc(1, sizeof(*listener));
	enum status status = listener ? net_watch_create(&listener->watch, loop, fd, &accept_events, listener, error)
				      : error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (status) {
		close(fd);
		free(listener);
		return status;
	}
	listener->loop = loop;
	listener->params = *params;
	listener->port = port_of(fd);
	listener->spare_fd = net_spare_file();
	*out = listener;
	return STATUS_OK;
}

int net_peer_listener_port(const struct net_peer_listener *listener)
{
	return listener->port;
}

void net_peer_listener_destroy(struct net_peer_listener **pointer)
{
	struct net_peer_listener *listener = *pointer;
	if (!listener)
		return;
	*pointer = NULL;
	while (listener->opening)
		net_peer_uncount(listener->opening);
	net_watch_destroy(&listener->watch);
	if (listener->spare_fd >= 0)
		close(listener->spare_fd);
	free(listener);
}

enum status net_peer_dial(struct net_peer **out, struct net_loop *loop, const struct net_peer_dial_params *params,
			  struct error *error)
{
	union address address;
	*out = NULL;
	socklen_t size = net_socket_address(params->address, params->port, &address.all);
	if (!size)
		return error_set(error, STATUS_INVALID_PARAMS, "this is not an address: %.60s", params->address);
	int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "a socket to %s", params->address);
	set_options(fd);
	if (connect(fd, &address.any, size) && errno != EINPROGRESS) {
		int fault = errno;
		close(fd);
		return error_errno(error, STATUS_UNAVAILABLE, fault, "%s", params->address);
	}
	enum status status = net_peer_create(out, loop, fd, params->tls->context, error);
	if (status)
		return status;
	SSL_set_connect_state((*out)->ssl);
	(*out)->handler = params->handler;
	(*out)->user = params->user;
	net_watch_want_write((*out)->watch);
	return STATUS_OK;
}
