/* What the files of common/net share: the loop's inside. Not for others: this shows libwebsockets. Thread: the loop's.
 */
#pragma once
#include "common/net/ws.h"

#include <libwebsockets.h>

struct lws_context *net_loop_context(struct net_loop *loop);
// The vhost for what needs none of its own: dialling out.
struct lws_vhost *net_loop_base_vhost(struct net_loop *loop);
struct net_loop *net_loop_of(struct lws *wsi);
// Free `memory` after libwebsockets is done with everything. Out of memory: it leaks.
void net_loop_keep(struct net_loop *loop, void *memory);
// The connections that are open or opening.
struct net_conn **net_loop_conns(struct net_loop *loop);
// At its end: those of which libwebsockets tells nothing, since they were not open yet. Their handlers are not called.
void net_forget_all(struct net_loop *loop);
// What those that dial by TLS share (tls_dial.c); NULL until one did.
struct net_dialler;
struct net_dialler **net_loop_dialler(struct net_loop *loop);
// Every WebSocket and HTTP event of every vhost ends here (ws.c).
int net_ws_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t length);

// Listen on a Unix socket of mode 0600. The caller holds the lock of its directory, so a socket file that is there is a
// dead server's. Errors: STATUS_INVALID_PARAMS (path too long), those of bind explained, with hints.
enum status net_bind_unix(const char *path, int *fd, struct error *error);
// Accept one connection, or -1. Without a free file the spare one is given up for a moment to say `refusal`.
int net_accept(int fd, int *spare_fd, const char *refusal);
int net_spare_file(void);
struct net_arrival;
void net_arrival_destroy(struct net_arrival **arrival); // accepts NULL
struct net_stream;
void net_stream_set_user(struct net_stream *stream, void *user);

enum { HANDSHAKE_S = 10 }; // until the first bytes come, until that of TLS is done, and again until a request is whole

enum session_kind { SESSION_UNKNOWN, SESSION_WAITING, SESSION_HTTP, SESSION_POST, SESSION_WS };

// What hangs on a libwebsockets connection: nothing but the listener that it came by, while it waits for a request; an
// answer on its way; a POST; or a WebSocket. (The vhost does not tell the listener: libwebsockets picks it anew by
// Host.)
struct net_session {
	enum session_kind kind;
	struct net_listener *listener; // NULL for one that dialled
	struct net_arrival *arrival;   // likewise
};
// A connection that was accepted, from its first moment to its last.
struct net_arrival {
	struct net_session waiting; // hangs on it while it waits for a request
	char peer[64];              // "" on a Unix socket
	// Until libwebsockets has it:
	struct net_watch *watch;
	struct net_arrival *next, **link; // in one of the listener's two lists
	int64_t until_ms;                 // steady clock: it says something by then
	bool speaks;
};
struct net_arrivals {
	struct net_arrival *first, **last;
};
// An HTTP request and its answer (http.c). What they return the callback is to return.
int net_http_begin(struct lws *wsi, struct net_listener *listener);
int net_http_continue(struct lws *wsi, struct net_session *session);
void net_http_finish(struct lws *wsi, struct net_session *session);
// Send a small answer at once, instead of an upgrade. Returns what the callback is to return.
int net_http_refuse(struct lws *wsi, struct net_listener *listener, struct net_response *response);
// Print the status line and headers, at *at, which moves on. `length`: of the body; HTTP_NO_LENGTH: it comes in chunks
// or ends with the connection. Returns non-zero if they do not fit.
#define HTTP_NO_LENGTH NET_NO_LENGTH
enum { HTTP_HEADER_BYTES = 3072 };
struct net_http_headers {
	const struct net_listener *listener;
	const struct net_response *response;
	size_t length;
	bool chunked, close;
};
int net_http_print_headers(struct lws *wsi, const struct net_http_headers *headers, unsigned char **at,
			   unsigned char *end);
// A POST (exchange.c).
int net_exchange_open(struct lws *wsi, struct net_listener *listener, const struct net_request *request);
int net_exchange_body(struct lws *wsi, struct net_session *session, const uint8_t *bytes, size_t length);
int net_exchange_complete(struct lws *wsi, struct net_session *session);
int net_exchange_continue(struct lws *wsi, struct net_session *session);
void net_exchange_finish(struct lws *wsi, struct net_session *session);
void net_read_request(struct lws *wsi, struct net_listener *listener, struct net_request *request);

struct net_listener {
	struct net_loop *loop;
	struct lws_vhost *vhost;
	struct net_watch *watch;
	struct net_tls *tls; // NULL: plain
	const struct net_handler *handler;
	void *context;
	const struct net_header *headers;
	struct lws_protocols protocols[6]; // HTTP, the subprotocols, the end
	lws_retry_bo_t liveness;
	char socket_path[LIMIT_SOCKET_PATH_BYTES + 1];
	int port, spare_fd;  // spare_fd: given up for a moment to refuse a connection when no other is left
	unsigned open, most; // connections now, and how many there may be
	bool over;           // it listens no more: its handler's context may be gone
	struct net_arrivals silent, speaking; // those that libwebsockets has not, in the order of coming
	struct net_timer hush;                // due when the first silent one's time is over
};
