/* Listening sockets. We bind and accept ourselves, and hand libwebsockets the accepted connection: errors of binding
 * are then ours to explain, port 0 is possible, and a connection over the limit is refused before it costs anything.
 *
 * It is handed over when its first bytes are there, one between two looks at all others (NET_LINE_NEW): a handshake of
 * TLS is what costs most of all that strangers can ask for, and libwebsockets serves all that its poll shows before it
 * looks again. Who says nothing is closed after HANDSHAKE_S, a few at a time. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/tls_lws.h"

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
	BACKLOG = 512,
	ACCEPTS_A_TURN = 4,
	HUSHED_A_TURN = 16,
	RX_BYTES = 65536,             // of one read; only what is used of it takes memory
	SEND_ROOM_BYTES = 256 * 1024, // any file of the dashboard at once, see piles_up() in http.c
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

static void read_peer(int fd, char *text, size_t size)
{
	struct sockaddr_storage peer = {0};
	socklen_t length = sizeof peer;
	if (getpeername(fd, (struct sockaddr *)&peer, &length) ||
	    getnameinfo((struct sockaddr *)&peer, length, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
		text[0] = 0;
}

// What is kept of a connection while it is there; NULL: it is refused. `answer` says how.
static struct net_arrival *arrival_create(struct net_listener *listener, int fd, const char **answer)
{
	const struct net_handler *handler = listener->handler;
	struct net_arrival *arrival = listener->open < listener->most ? calloc(1, sizeof(*arrival)) : NULL;
	*answer = full;
	if (!arrival)
		return NULL;
	arrival->waiting = (struct net_session){.kind = SESSION_WAITING, .listener = listener, .arrival = arrival};
	if (listener->socket_path[0] || !handler->arrived)
		return arrival;
	read_peer(fd, arrival->peer, sizeof arrival->peer);
	if (handler->arrived(listener->context, arrival->peer))
		return arrival;
	*answer = too_many;
	free(arrival);
	return NULL;
}

void net_arrival_destroy(struct net_arrival **pointer)
{
	struct net_arrival *arrival = *pointer;
	if (!arrival)
		return;
	*pointer = NULL;
	struct net_listener *listener = arrival->waiting.listener;
	if (!listener->over && !listener->socket_path[0] && listener->handler->left)
		listener->handler->left(listener->context, arrival->peer);
	free(arrival);
}

static void link_last(struct net_arrivals *list, struct net_arrival *arrival)
{
	arrival->next = NULL;
	arrival->link = list->last;
	*list->last = arrival;
	list->last = &arrival->next;
}

static void unlink_arrival(struct net_arrivals *list, struct net_arrival *arrival)
{
	*arrival->link = arrival->next;
	if (arrival->next)
		arrival->next->link = arrival->link;
	else
		list->last = arrival->link;
}

static struct net_arrivals *list_of(struct net_arrival *arrival)
{
	struct net_listener *listener = arrival->waiting.listener;
	return arrival->speaks ? &listener->speaking : &listener->silent;
}

// One that libwebsockets never had.
static void end_arrival(struct net_arrival *arrival)
{
	unlink_arrival(list_of(arrival), arrival);
	net_watch_destroy(&arrival->watch);
	arrival->waiting.listener->open--;
	net_arrival_destroy(&arrival);
}

static void hand_over(struct net_arrival *arrival)
{
	struct net_listener *listener = arrival->waiting.listener;
	unlink_arrival(list_of(arrival), arrival);
	struct lws *wsi = lws_adopt_socket_vhost(listener->vhost, net_watch_release(&arrival->watch));
	if (wsi) {
		lws_set_opaque_user_data(wsi, &arrival->waiting);
	} else { // that closed it
		listener->open--;
		net_arrival_destroy(&arrival);
	}
}

static void on_first_bytes(void *arg, int fd)
{
	struct net_arrival *arrival = arg;
	uint8_t byte;
	if (arrival->speaks) {
		hand_over(arrival);
		return;
	}
	ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (got <= 0) {
		end_arrival(arrival);
		return;
	}
	if (arrival->waiting.listener->socket_path[0]) { // whoever may come by it stands in no line with strangers
		hand_over(arrival);
		return;
	}
	unlink_arrival(list_of(arrival), arrival);
	arrival->speaks = true;
	link_last(list_of(arrival), arrival);
	net_watch_again(arrival->watch, NET_LINE_NEW);
}

static void on_hush(void *arg)
{
	struct net_listener *listener = arg;
	const int64_t now_ms = clock_steady_ms();
	for (int i = 0; i < HUSHED_A_TURN && listener->silent.first && listener->silent.first->until_ms <= now_ms; i++)
		end_arrival(listener->silent.first);
	if (listener->silent.first) {
		int64_t left_ms = listener->silent.first->until_ms - now_ms;
		net_timer_start(listener->loop, &listener->hush, left_ms > 0 ? left_ms : 1, on_hush, listener);
	}
}

static bool await_first_bytes(struct net_listener *listener, struct net_arrival *arrival, int fd)
{
	static const struct net_watch_events events = {.readable = on_first_bytes};
	if (net_watch_create(&arrival->watch, listener->loop, fd, &events, arrival, NULL))
		return false;
	listener->open++; // given back when libwebsockets destroys it, and the arrival with it
	arrival->until_ms = clock_steady_ms() + HANDSHAKE_S * 1000;
	link_last(&listener->silent, arrival);
	if (!listener->hush.running)
		net_timer_start(listener->loop, &listener->hush, HANDSHAKE_S * 1000, on_hush, listener);
	return true;
}

static void accept_ready(void *arg, int fd)
{
	struct net_listener *listener = arg;
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		int accepted = net_accept(fd, &listener->spare_fd, listener->tls ? "" : full);
		if (accepted < 0)
			return;
		const char *answer;
		struct net_arrival *arrival = arrival_create(listener, accepted, &answer);
		if (!arrival) {
			refuse_connection(accepted, listener->tls ? "" : answer); // nothing plain where TLS is spoken
			continue;
		}
		int one = 1, room = SEND_ROOM_BYTES;
		setsockopt(accepted, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
		if (!listener->socket_path[0])
			setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (!await_first_bytes(listener, arrival, accepted)) {
			net_arrival_destroy(&arrival);
			close(accepted);
		}
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

static void describe_protocols(struct net_listener *listener, const struct net_listener_params *params)
{
	size_t count = 0;
	struct lws_protocols protocol = {.callback = net_ws_callback, .rx_buffer_size = RX_BYTES};
	protocol.name = "exogpu.http";
	listener->protocols[count++] = protocol;
	for (const char *const *name = params->subprotocols; name && *name && count < 5; name++) {
		protocol.name = *name;
		listener->protocols[count++] = protocol;
	}
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
	listener->context = params->context;
	listener->headers = params->headers;
	listener->tls = params->tls;
	listener->spare_fd = net_spare_file();
	listener->silent.last = &listener->silent.first;
	listener->speaking.last = &listener->speaking.first;
	listener->most = params->connections && params->connections < LIMIT_CONNECTIONS ? params->connections
											: LIMIT_CONNECTIONS;
	listener->liveness = (lws_retry_bo_t){.secs_since_valid_ping = (uint16_t)params->ping_s,
					      .secs_since_valid_hangup = (uint16_t)params->silence_s};
	describe_protocols(listener, params);
	enum status status = params->socket_path ? net_bind_unix(params->socket_path, &fd, error)
						 : bind_tcp(listener, params, &fd, error);
	if (!status && params->socket_path)
		snprintf(listener->socket_path, sizeof listener->socket_path, "%s", params->socket_path);
	if (status)
		goto done;
	struct lws_context_creation_info info = {
		.port = CONTEXT_PORT_NO_LISTEN_SERVER,
		.vhost_name = params->socket_path ? "local" : "tcp",
		.protocols = listener->protocols,
		.user = listener,
		.retry_and_idle_policy = &listener->liveness,
		.keepalive_timeout = 20,
		.alpn = "http/1.1", // not HTTP/2
		.options = params->tls ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT | LWS_SERVER_OPTION_CREATE_VHOST_SSL_CTX |
						 LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS
				       : 0,
	};
	listener->vhost = lws_create_vhost(net_loop_context(loop), &info);
	if (!listener->vhost) {
		status = error_set(error, STATUS_INTERNAL, "libwebsockets makes no vhost");
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

// The vhost and what its connections point at stay until the loop ends, because connections outlive the listening.
void net_listener_destroy(struct net_listener **pointer)
{
	struct net_listener *listener = *pointer;
	if (!listener)
		return;
	*pointer = NULL;
	listener->over = true;
	net_watch_destroy(&listener->watch);
	net_timer_stop(listener->loop, &listener->hush);
	while (listener->silent.first)
		end_arrival(listener->silent.first);
	while (listener->speaking.first)
		end_arrival(listener->speaking.first);
	if (listener->spare_fd >= 0)
		close(listener->spare_fd);
	listener->spare_fd = -1;
	if (listener->socket_path[0])
		unlink(listener->socket_path);
	if (listener->vhost)
		net_loop_keep(listener->loop, listener);
	else
		free(listener);
}
