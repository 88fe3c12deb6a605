/* The inside of the loop, for the files of common/net only, because it exposes libwebsockets. Thread: the
 * loop's. */
#pragma once
#include "common/net/ws/ws.h"

#include <libwebsockets.h>

// What we dial are our own servers, nodes and workers, by their addresses: never by way of a proxy, whatever the
// environment names, which libwebsockets would read for each vhost, also for Unix sockets. An address of no proxy.
#define NET_NO_PROXY ":0"

struct net_arrival;
struct lws_context *net_loop_context(struct net_loop *loop);
// The vhost for what needs none of its own: dialling out.
struct lws_vhost *net_loop_base_vhost(struct net_loop *loop);
struct net_loop *net_loop_of(struct lws *wsi);
// Free `memory` after libwebsockets is done with everything. Out of memory: it leaks.
void net_loop_keep(struct net_loop *loop, void *memory);
// The WebSockets that are open or opening, and the connections that were accepted.
struct net_conn **net_loop_conns(struct net_loop *loop);
struct net_arrival **net_loop_arrivals(struct net_loop *loop);
// At its end: those of which libwebsockets tells nothing, since they were not open yet. Their handlers are not called.
void net_forget_all(struct net_loop *loop);
// Shared by all connections that dial by TLS (tls_dial.c); NULL before the first one.
struct net_dialler;
struct net_dialler **net_loop_dialler(struct net_loop *loop);
// Every event of what dialled ends here (ws.c).
int net_ws_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t length);

// Listen on a Unix socket of mode 0600. The caller holds the lock of its directory, so a socket file that is there is a
// dead server's. Errors: STATUS_INVALID_PARAMS (path too long), those of bind explained, with hints.
enum status net_bind_unix(const char *path, int *fd, struct error *error);
// Accept one connection, or -1. Without a free file the spare one is given up for a moment to say `refusal`.
int net_accept(int fd, int *spare_fd, const char *refusal);
int net_spare_file(void);

struct net_stream;
void net_stream_set_user(struct net_stream *stream, void *user);

enum { HANDSHAKE_S = 10 }; // of one that dials
