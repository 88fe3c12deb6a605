/* The Unix socket that workers dial; see stream.h. A client must be this user or root; the socket's mode also says so,
 * but not every file system respects it. Thread: the loop's. Owns the socket and its file. */
#include "common/base/log.h"
#include "common/net/loop_lws.h"
#include "common/net/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTS_A_TURN = 16 };

struct net_stream_listener {
	struct net_loop *loop;
	struct net_watch *watch;
	const struct net_stream_handler *handler;
	void *(*accepted)(void *context, struct net_stream *stream);
	void *context;
	int spare_fd;
	char socket_path[LIMIT_SOCKET_PATH_BYTES + 1];
};

static bool is_allowed(int fd)
{
	struct ucred peer;
	socklen_t length = sizeof peer;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) && (peer.uid == 0 || peer.uid == geteuid());
}

static void accept_one(struct net_stream_listener *listener, int fd)
{
	struct net_stream *stream;
	struct error error = {0};
	if (!is_allowed(fd)) {
		log_warning("net", "another user's program at %s was refused", listener->socket_path);
		close(fd);
	} else if (net_stream_create(&stream, listener->loop, fd, listener->handler, NULL, &error)) {
		log_warning("net", "a connection at %s was refused: %s", listener->socket_path, error.message);
		close(fd);
	} else {
		void *user = listener->accepted(listener->context, stream);
		if (user)
			net_stream_set_user(stream, user);
		else
			net_stream_destroy(&stream);
	}
}

static void accept_ready(void *arg, int fd)
{
	struct net_stream_listener *listener = arg;
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		int accepted = net_accept(fd, &listener->spare_fd, "");
		if (accepted < 0)
			return;
		accept_one(listener, accepted);
	}
}

static const struct net_watch_events accept_events = {.readable = accept_ready};

enum status net_stream_listen(struct net_stream_listener **out, struct net_loop *loop,
			      const struct net_stream_listener_params *params, struct error *error)
{
	*out = NULL;
	int fd = -1;
	struct net_stream_listener *listener = calloc(1, sizeof(*listener));
	if (!listener)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	listener->loop = loop;
	listener->handler = params->handler;
	listener->accepted = params->accepted;
	listener->context = params->context;
	listener->spare_fd = net_spare_file();
	enum status status = net_bind_unix(params->socket_path, &fd, error);
	if (status)
		goto done;
	snprintf(listener->socket_path, sizeof listener->socket_path, "%s", params->socket_path);
	status = net_watch_create(&listener->watch, loop, fd, &accept_events, listener, error);
	if (status)
		close(fd);
done:
	if (status)
		net_stream_listener_destroy(&listener);
	*out = listener;
	return status;
}

void net_stream_listener_destroy(struct net_stream_listener **pointer)
{
	struct net_stream_listener *listener = *pointer;
	if (!listener)
		return;
	*pointer = NULL;
	net_watch_destroy(&listener->watch);
	if (listener->spare_fd >= 0)
		close(listener->spare_fd);
	if (listener->socket_path[0])
		unlink(listener->socket_path);
	free(listener);
}
