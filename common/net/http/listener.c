/* Listening sockets. We bind and accept ourselves: so we can explain bind errors, support port 0, and refuse a
 * connection over the limit before it costs anything. arrival.c decides who stays, and for how long. Thread: the
 * loop's. */
#include "common/base/log.h"
#include "common/net/http/arrival.h"
#include "common/net/tls/tls_lws.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	BACKLOG = 4096, // or what the system allows: one that finds no room comes again after a second
	ACCEPTS_A_TURN = 8,
	MOST_IN_LINE = 64, // that have said something and wait for us; the system keeps the others, in order
};

static const char too_many[] = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nretry-after: 1\r\n"
			       "connection: close\r\n\r\n";
static const char full[] = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
			   "connection: close\r\n\r\n";

static void refuse_connection(int fd, const char *answer)
{
	if (send(fd, answer, strlen(answer), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("net", "a connection over the limit was dropped");
	close(fd);
}

int net_accept(int fd, int *spare_fd, const char *refusal)
{
	int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (accepted >= 0 || (errno != EMFILE && errno != ENFILE) || *spare_fd < 0)
		return accepted;
	// Out of files: take and drop it all the same, or this socket stays ready for ever.
	close(*spare_fd);
	accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (accepted >= 0)
		refuse_connection(accepted, refusal);
	*spare_fd = net_spare_file();
	log_warning("net", "no files left: a connection was refused");
	return -1;
}

int net_spare_file(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void accept_ready(void *arg, int fd)
{
	struct net_listener *listener = arg;
	// Whoever waits for us could only be evicted for others who would wait for us. One of the line is served a
	// turn.
	for (int i = 0; i < ACCEPTS_A_TURN && listener->in_line < MOST_IN_LINE; i++) {
		int accepted = net_accept(fd, &listener->spare_fd, listener->context ? "" : full);
		if (accepted < 0)
			return;
		int one = 1, room = listener->socket_path[0] ? SEND_ROOM_BYTES : STRANGER_ROOM_BYTES;
		bool crowded;
		setsockopt(accepted, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
		if (!listener->socket_path[0]) {
			setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
			setsockopt(accepted, IPPROTO_TCP, TCP_USER_TIMEOUT, &listener->stall_ms,
				   sizeof listener->stall_ms);
		}
		if (!net_arrival_create(listener, accepted, &crowded)) // nothing plain where TLS is spoken
			refuse_connection(accepted, listener->context ? "" : crowded ? too_many : full);
	}
}

static const struct net_watch_events accept_events = {.readable = accept_ready};

static enum status explain_bind(int number, const char *where, struct error *error)
{
	switch (number) {
	case EADDRINUSE:
		error_set(error, STATUS_CONFLICT, "%s is in use by another program", where);
		error_hint(error, "choose another with --listen ADDRESS:PORT, or stop what listens there");
		return STATUS_CONFLICT;
	case EACCES:
	case EPERM:
		error_set(error, STATUS_FORBIDDEN, "not allowed to listen on %s", where);
		error_hint(error, "ports below 1024 need privileges; choose another with --listen ADDRESS:PORT");
		return STATUS_FORBIDDEN;
	case EADDRNOTAVAIL:
		error_set(error, STATUS_INVALID_PARAMS, "%s is not an address of this machine", where);
		error_hint(error, "`ip address` lists them");
		return STATUS_INVALID_PARAMS;
	}
	return error_errno(error, STATUS_UNAVAILABLE, number, "cannot listen on %s", where);
}

static enum status bind_tcp(struct net_listener *listener, const struct net_listener_params *params, int *out,
			    struct error *error)
{
	char port[8], where[96];
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
	struct addrinfo *address = NULL;
	struct sockaddr_storage bound;
	socklen_t length = sizeof bound;
	int one = 1, none = 0;
	enum status status = STATUS_OK;
	snprintf(port, sizeof port, "%d", params->port);
	snprintf(where, sizeof where, strchr(params->address, ':') ? "[%s]:%d" : "%s:%d", params->address,
		 params->port);
	if (getaddrinfo(params->address, port, &hints, &address)) {
		error_set(error, STATUS_INVALID_PARAMS, "%s is not a numeric address", params->address);
		error_hint(error, "as in 127.0.0.1:52415 or [::1]:52415");
		return STATUS_INVALID_PARAMS;
	}
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	// [::] is every address, of IPv4 too, whatever the system's default.
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
	    (address->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none) < 0) ||
	    bind(fd, address->ai_addr, address->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&bound, &length) < 0) {
		status = explain_bind(errno, where, error);
		if (fd >= 0)
			close(fd);
		goto done;
	}
	listener->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
							   : ((struct sockaddr_in *)&bound)->sin_port);
	*out = fd;
done:
	freeaddrinfo(address);
	return status;
}

enum status net_bind_unix(const char *path, int *out, struct error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) > LIMIT_SOCKET_PATH_BYTES) {
		error_set(error, STATUS_INVALID_PARAMS, "the socket's path has more than %d bytes: %s",
			  LIMIT_SOCKET_PATH_BYTES, path);
		error_hint(error, "choose a data directory with a shorter path, with --data");
		return STATUS_INVALID_PARAMS;
	}
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	unlink(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
	    chmod(path, 0600) < 0 || listen(fd, BACKLOG) < 0) {
		int number = errno;
		if (fd >= 0)
			close(fd);
		return explain_bind(number, path, error);
	}
	*out = fd;
	return STATUS_OK;
}

enum status net_listener_create(struct net_listener **out, struct net_loop *loop,
				const struct net_listener_params *params, struct error *error)
{
	*out = NULL;
	int fd = -1;
	struct net_listener *listener = calloc(1, sizeof(*listener));
	if (!listener)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	listener->loop = loop;
	listener->handler = params->handler;
	listener->handler_context = params->context;
	listener->headers = params->headers;
	listener->spare_fd = net_spare_file();
	listener->most = params->connections && params->connections < LIMIT_CONNECTIONS ? params->connections
											: LIMIT_CONNECTIONS;
	listener->takes_passed = params->passed_key != NULL;
	if (params->passed_key)
		memcpy(listener->passed_key, params->passed_key, sizeof listener->passed_key);
	listener->stall_ms = params->stall_ms ? params->stall_ms : LIMIT_ANSWER_STALL_MS;
	listener->ping_s = params->ping_s;
	listener->silence_s = params->silence_s;
	for (size_t i = 0; params->subprotocols && params->subprotocols[i] && i < SUBPROTOCOLS_MOST; i++)
		listener->subprotocols[i] = params->subprotocols[i];
	const struct door_params door = {.strangers = params->strangers ? params->strangers : LIMIT_STRANGERS,
					 .connections = listener->most,
					 .stall_ms = listener->stall_ms};
	enum status status = door_create(&listener->door, &door, error);
	if (status)
		goto done;
	status = params->socket_path ? net_bind_unix(params->socket_path, &fd, error)
				     : bind_tcp(listener, params, &fd, error);
	if (!status && params->socket_path)
		snprintf(listener->socket_path, sizeof listener->socket_path, "%s", params->socket_path);
	if (status)
		goto done;
	if (params->tls && !(listener->context = net_tls_context(params->tls))) {
		status = error_set(error, STATUS_INTERNAL, "OpenSSL makes no context for TLS");
		goto done;
	}
	status = net_watch_create(&listener->watch, loop, fd, &accept_events, listener, error);
	if (!status)
		fd = -1; // the watch's now
done:
	if (fd >= 0)
		close(fd);
	if (status)
		net_listener_destroy(&listener);
	*out = listener;
	return status;
}

int net_listener_port(const struct net_listener *listener)
{
	return listener->port;
}

// The data that connections point at stays until the loop ends, because they outlive the listener.
void net_listener_destroy(struct net_listener **pointer)
{
	struct net_listener *listener = *pointer;
	if (!listener)
		return;
	*pointer = NULL;
	listener->over = true;
	net_watch_destroy(&listener->watch);
	net_arrivals_forget(listener);
	if (listener->spare_fd >= 0)
		close(listener->spare_fd);
	listener->spare_fd = -1;
	if (listener->socket_path[0])
		unlink(listener->socket_path);
	net_loop_keep(listener->loop, listener);
}
