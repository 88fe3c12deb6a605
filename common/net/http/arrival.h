/* An accepted connection, as its own files see it: arrival.c has its place and its deadlines (door.h), socket.c
 * its bytes, http.c its requests, exchange.c those with a body; upgrade.c turns it into a WebSocket.
 * libwebsockets has no part in this; it only dials for us (docs/notes/http.md). Not for others. Thread: the
 * loop's. */
#pragma once
#include "common/net/http/door.h"
#include "common/net/http/head.h"
#include "common/net/loop_lws.h"

#include <openssl/ssl.h>

enum {
	STRANGER_ROOM_BYTES =
		64 * 1024, // that the system keeps of what is sent to a stranger and not taken; it doubles both
	SEND_ROOM_BYTES = 256 * 1024, // to others
	BEHIND_BYTES = 8192,          // of requests behind one that is being answered, before no more is read
	BEHIND_MOST_BYTES = 32768     // with what was read last
};

enum session_kind { SESSION_HTTP = 1, SESSION_POST, SESSION_WS, SESSION_PASSED };

// The work that a connection is at: an answer on its way, a POST, or a WebSocket.
struct net_session {
	enum session_kind kind;
	struct net_listener *listener; // NULL for one that dialled
	struct net_arrival *arrival;   // likewise
};

enum arrival_state {
	ARRIVAL_SILENT,    // waits for its first bytes
	ARRIVAL_IN_LINE,   // to be served
	ARRIVAL_HANDSHAKE, // of TLS: for its next message
	ARRIVAL_SPEAKS,    // to be served with that
	ARRIVAL_HTTP,      // for a request, or is at one
	ARRIVAL_WEBSOCKET,
	ARRIVAL_PASSED,  // on to another server
	ARRIVAL_LEAVING, // our end is closed, and what still comes is dropped
};

struct net_arrival {
	struct net_listener *listener;
	enum arrival_state state;
	struct net_session *session; // what it is at; NULL: nothing
	struct net_watch *watch;     // of its socket
	SSL *ssl;                    // NULL: plain
	struct guest guest;
	char peer[64];           // "" on a Unix socket; of one that was passed, its client's
	bool begins;             // no request has come yet
	bool passed, passed_tls; // by another server, which had it by TLS
	bool gone;               // it counts no more
	bool ending;             // it is about to be taken down: nothing is read or sent
	bool ended;              // its client says nothing more
	int awaited;             // bytes that it is looked at for, while it is silent
	unsigned begun;          // requests of this turn
	struct head *head;       // of a request, as far as it has come; NULL: nothing of it
	struct buffer behind;    // what came after the request that is being answered
	uint8_t *kept; // (kept_bytes) that its socket did not take, of which kept_at are sent since; NULL: nothing
	size_t kept_bytes, kept_at;
	struct net_arrival *next, **link; // of all, in the loop
	struct net_arrival *next_ending;
};

enum { SUBPROTOCOLS_MOST = 5 };
struct net_listener {
	struct net_loop *loop;
	struct net_watch *watch;
	SSL_CTX *context; // of net_tls; NULL: plain
	const struct net_handler *handler;
	void *handler_context;
	const struct net_header *headers;
	const char *subprotocols[SUBPROTOCOLS_MOST + 1]; // NULL at the end
	char socket_path[LIMIT_SOCKET_PATH_BYTES + 1];
	int port, spare_fd;  // spare_fd: given up for a moment to refuse a connection when no other is left
	unsigned open, most; // connections now, and how many there may be
	struct net_arrival *ending, **last_ending; // those that are about to be taken down
	struct net_timer takes_down;               // them
	unsigned in_line;                          // whose first bytes are there and were not looked at yet
	bool over;                                 // it listens no more: its handler's context may be gone
	int stall_ms, ping_s, silence_s;
	bool takes_passed;
	uint8_t passed_key[NET_PASS_KEY_BYTES];
	struct door *door;      // NULL: it listens no more
	struct net_timer sweep; // for those who are late
};

// ---- arrival.c ----

// Takes the file. False: there is no room; crowded: of its address.
bool net_arrival_create(struct net_listener *listener, int fd, bool *crowded);
void net_arrivals_forget(struct net_listener *listener); // it listens no more
void net_arrivals_destroy(struct net_loop *loop);        // all that there are, at the loop's end
// Where it is, as door.h has it: from then on it has the time of that stage. A body came, an answer went. Who it is has
// been shown (net_response.holder), or not with this request (0).
void net_arrival_stage(struct net_arrival *arrival, enum door_stage stage);
void net_arrival_progress(struct net_arrival *arrival, size_t bytes);
void net_arrival_know(struct net_arrival *arrival, uint64_t holder);
// It is over, and is taken down in a moment: at once, with what was still to be sent (_end), or with its goodbye, where
// all was sent (_finish). Both may be called from inside any call about it.
void net_arrival_end(struct net_arrival *arrival);
void net_arrival_finish(struct net_arrival *arrival);
// It speaks for this address: from now on it counts for that. False: there is no room; it is not ending yet.
bool net_arrival_speaks_for(struct net_arrival *arrival, const char *peer);
// The watch of its socket calls this for the first bytes.
void net_arrival_first_bytes(struct net_arrival *arrival, int fd);

// ---- socket.c ----

extern const struct net_watch_events net_arrival_events;
// It is served from here on: by TLS with its handshake.
void net_arrival_serve(struct net_arrival *arrival);
void net_arrival_close(struct net_arrival *arrival); // what is the socket's: its file, TLS, what was kept
// Read at most `room` bytes, which must be 16 KiB at least. Returns how many; 0: none are there now; -1: its end.
ssize_t net_arrival_read(struct net_arrival *arrival, uint8_t *to, size_t room);
// Send, and keep what the socket does not take. Returns -1 if it is broken: then it is ending.
int net_arrival_send(struct net_arrival *arrival, const void *bytes, size_t length);
bool net_arrival_keeps(const struct net_arrival *arrival);
void net_arrival_want_write(struct net_arrival *arrival); // and be told when all that is kept is gone
// Its answer is sent and it is to go: our end is closed once nothing is kept, and what still comes is dropped for a
// moment (DOOR_LEAVING), since a socket that is closed with something unread takes the answer back.
void net_arrival_leave(struct net_arrival *arrival);
// It may take nothing of what is sent for as long as it likes: others see to that.
void net_arrival_bear(struct net_arrival *arrival);
int net_arrival_fd(const struct net_arrival *arrival);

// ---- http.c: requests ----

void net_http_readable(struct net_arrival *arrival);
void net_http_writable(struct net_arrival *arrival);
void net_http_finish(struct net_arrival *arrival, struct net_session *session); // frees it
// The request that it is at is answered; the next is looked at when whoever calls returns.
void net_http_answered(struct net_arrival *arrival, bool close);
void net_http_read_request(const struct net_arrival *arrival, const struct head *head, struct net_request *request);
// Send a small answer and end the connection. response->owned is freed.
void net_http_refuse(struct net_arrival *arrival, struct net_response *response);
// Print the status line and headers. `length`: of the body; NET_NO_LENGTH: it comes in chunks or ends with the
// connection. Non-zero if they do not fit `out`, or hold a control character.
enum { HTTP_HEADER_BYTES = 3072 };
struct net_http_headers {
	const struct net_listener *listener;
	const struct net_response *response;
	size_t length;
	bool chunked, close;
};
int net_http_print_headers(struct buffer *out, const struct net_http_headers *headers);

// ---- exchange.c: a POST ----

void net_exchange_open(struct net_arrival *arrival, const struct head *head, const struct net_request *request);
bool net_exchange_wants(const struct net_session *session);    // more of its body
bool net_exchange_answered(const struct net_session *session); // all of its answer is there, if not sent yet
// Returns how many of the bytes are the body's.
size_t net_exchange_body(struct net_session *session, const uint8_t *bytes, size_t length);
void net_exchange_continue(struct net_session *session); // its socket can be written to
void net_exchange_finish(struct net_session *session);   // frees it

// ---- upgrade.c and ws.c: a WebSocket ----

void net_upgrade(struct net_arrival *arrival, const struct head *head);
void net_conn_readable(struct net_session *session, int fd);
int net_conn_writable(struct net_session *session); // non-zero: it is over
// Take the bytes that came behind the request for the WebSocket.
void net_conn_early(struct net_session *session, const uint8_t *bytes, size_t length);
void net_conn_finish(struct net_session *session); // frees it
// Pings to those that were silent for long, the end of those that were for longer.
void net_conns_sweep(struct net_listener *listener);

// ---- pass.c: a connection that is passed on ----

// Take it from this head on; it may be refused at once.
void net_pass_take(struct net_pass *pass, struct net_arrival *arrival, const struct head *head);
void net_passed_early(struct net_session *session, const uint8_t *bytes, size_t length); // what came behind the head
void net_passed_readable(struct net_session *session);
void net_passed_writable(struct net_session *session); // its client has taken all
void net_passed_finish(struct net_session *session);   // frees it
