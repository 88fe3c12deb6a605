/* WebSocket and HTTP over the loop, for both ends. A listener accepts on an address or a Unix
 * socket and passes HTTP requests and WebSocket messages to its handler. GET and HEAD are
 * answered at once; a POST may be answered later and in pieces, each with a bounded queue. A
 * client dials and keeps nothing: its owner reconnects. Messages arrive whole, at most
 * LIMIT_HEAD_BYTES + LIMIT_BODY_BYTES (before login LIMIT_LOGIN_BYTES). Sending uses a
 * bounded queue. Thread: the loop's. A struct net_conn is valid until its `closed` callback
 * returns. */
#pragma once
#include "common/base/buffer.h"
#include "common/base/limits.h"
#include "common/net/loop.h"
#include "common/net/tls/tls.h"

#include <sys/types.h>

struct net_conn;
struct net_listener;
struct net_pass;
enum { NET_PASS_KEY_BYTES = 32 };

// A copy of a request, valid during the callback. Absent headers are "".
struct net_request {
	char path[256], host[256], origin[256], authorization[256], peer[64], if_none_match[80];
	char api_key[256], anthropic_version[32]; // X-Api-Key, Anthropic-Version
	char fetch_site[32];                      // Sec-Fetch-Site
	char traceparent[128];
	char mcp_version[32], last_event[32]; // MCP-Protocol-Version, Last-Event-ID
	char subprotocol[64];                 // as it was offered
	bool head, gzip, local;               // HEAD instead of GET; the client takes gzip; came by the Unix socket
	bool get, events;                     // of `post`: it is a GET; the client takes text/event-stream
	size_t body_bytes;                    // of a POST; 0 of one in chunks, NET_NO_LENGTH if it does not say
	uid_t peer_uid;                       // of a local one
	bool tls;
	bool passed;                        // by another server of this cluster, which has checked its Host
	struct net_certificate certificate; // of its client, verified; uri "" without one, or where it was passed
};
#define NET_NO_LENGTH SIZE_MAX
// A header that was too long to be copied: fits nothing, so that what depends on it is refused.
#define NET_TOO_LONG "\x01"

struct net_response {
	int status; // HTTP
	const char *content_type;
	const uint8_t *body; // (body_bytes), static, or inside `owned`
	size_t body_bytes;
	uint64_t holder; // who the request showed that sends it, as a number of the handler's own: its connection does
			 // not count among strangers, but among this one's; 0: nobody
	bool patient;    // of an upgrade: its other end may rest for as long as it likes, somebody else sees to it
	bool immutable, no_store, gzip;  // Cache-Control: immutable or no-store, else no-cache; Content-Encoding: gzip
	const char *etag, *authenticate; // ETag, WWW-Authenticate; may be NULL, else static
	const struct net_header *more;   // may be NULL; ends with a NULL name. Read before the answer is sent
	struct buffer owned;             // freed once sent
};
struct net_header {
	const char *name, *value; // name in lower case with its colon
};

// A POST whose body has come, or a GET that `streams` wants, on its way to its answer: whole, or in pieces as they
// come to be. Valid until the handler's `over`.
struct net_exchange;
// Answer, once; `response->owned` is taken.
void net_exchange_answer(struct net_exchange *exchange, struct net_response *response);
// Or begin an answer of unknown length (the response's body is passed over), send what it consists of, and end it.
void net_exchange_begin(struct net_exchange *exchange, const struct net_response *response);
// Errors: STATUS_LIMIT_EXCEEDED (LIMIT_ANSWER_QUEUE_BYTES wait), STATUS_OUT_OF_MEMORY; then nothing was sent.
enum status net_exchange_send(struct net_exchange *exchange, const void *bytes, size_t length);
void net_exchange_end(struct net_exchange *exchange);
// Bytes that the socket has not taken yet.
size_t net_exchange_queued(const struct net_exchange *exchange);
// Close the connection in the middle of an answer, so that nobody takes it for whole. `over` follows, later.
void net_exchange_drop(struct net_exchange *exchange);

#define NET_NOTHING_ANSWERS "nothing answers there"

// Why one that dialled did not open.
enum net_failure {
	NET_FAILURE_ABSENT,      // no server was met: NET_NOTHING_ANSWERS
	NET_FAILURE_PASSING,     // one is there and may take it later: the TLS handshake broke off, or HTTP 429 or 5xx
	NET_FAILURE_CERTIFICATE, // one is there whose certificate is not taken
	NET_FAILURE_OTHER,       // what is there is no such server, or does not let this one in
};

struct net_handler {
	// May be NULL. Where the connection that begins with this request is passed on to (pass.h), whole; NULL: it is
	// answered here.
	struct net_pass *(*pass)(void *context, const struct net_request *request);
	// May be NULL, both. A connection came from this address, and one that came is gone; not of a Unix socket.
	// Return false to refuse it.
	bool (*arrived)(void *context, const char *peer);
	void (*left)(void *context, const char *peer);
	// Answer a GET or HEAD. Fill *response.
	void (*http)(void *context, const struct net_request *request, struct net_response *response);
	// May be NULL. Answer OPTIONS; false: it is not for this address.
	bool (*options)(void *context, const struct net_request *request, struct net_response *response);
	// May be NULL. The headers of a POST. Return true and set *user to be told its body; else fill *response with
	// the refusal, or leave its status 0 where nothing is taken. One whose body_bytes are over LIMIT_POST_BYTES
	// must be refused.
	bool (*post)(void *context, const struct net_request *request, void **user, struct net_response *response);
	// May be NULL. Whether this GET is one of `post`, as if its body were empty: its answer comes later, or in
	// pieces.
	bool (*streams)(void *context, const struct net_request *request);
	// The whole body, valid during the call. To be answered now or later.
	void (*posted)(void *user, struct net_exchange *exchange, const uint8_t *body, size_t length);
	// Instead of it: what came in chunks is no body, or one over LIMIT_POST_BYTES. To be answered now.
	void (*misread)(void *user, struct net_exchange *exchange, const struct error *error);
	// May be NULL. All that was sent so far is on its way: there is room for more.
	void (*sent)(void *user, struct net_exchange *exchange);
	// The last call, also for a POST whose body never came: it is answered, or its client is gone.
	void (*over)(void *user);
	// A WebSocket upgrade. Return true and set *user to accept; else fill *response with the refusal.
	bool (*upgrade)(void *context, const struct net_request *request, void **user, struct net_response *response);
	void (*opened)(void *user, struct net_conn *conn);
	// One whole message; bytes are valid during the call.
	void (*message)(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary);
	// May be NULL. The queue was over LIMIT_STREAM_FULL_BYTES and is empty now: whoever held back may go on.
	void (*drained)(void *user, struct net_conn *conn);
	// May be NULL. One that dialled does not open: why, and in words for a person. Its `closed` follows.
	void (*failed)(void *user, enum net_failure failure, const char *fault);
	// Last call for this connection, also for one that was refused after `upgrade` accepted (conn is NULL then).
	void (*closed)(void *user, struct net_conn *conn, int code);
};

struct net_listener_params {
	const char *address;     // "127.0.0.1", "::1"; or
	const char *socket_path; // a Unix socket, created with mode 0600
	int port;                // 0: any free one
	unsigned connections;    // open at once; 0: LIMIT_CONNECTIONS, which is also the most
	unsigned strangers;      // of these, that have shown nothing yet; 0: LIMIT_STRANGERS
	int stall_ms;            // that a client may take nothing of what is sent; 0: LIMIT_ANSWER_STALL_MS
	int ping_s, silence_s;   // a peer that sends nothing for ping_s is pinged, for silence_s is closed (4408)
	const char *const
		*subprotocols; // that are spoken, 4 at most, NULL at the end; a client that names none is taken too
	struct net_tls *tls;   // NULL: plain. Must outlive the listener
	// (NET_PASS_KEY_BYTES) of servers that pass connections on to here; copied. NULL: there are none.
	const uint8_t *passed_key;
	const struct net_header *headers; // on every answer; static; ends with a NULL name
	const struct net_handler *handler;
	void *context;
};
// Errors: STATUS_CONFLICT (address in use), STATUS_FORBIDDEN (not allowed), STATUS_INVALID_PARAMS, with hints.
enum status net_listener_create(struct net_listener **out, struct net_loop *loop,
				const struct net_listener_params *params, struct error *error);
int net_listener_port(const struct net_listener *listener);
// Stops accepting; open connections stay.
void net_listener_destroy(struct net_listener **listener);

struct net_dial_params {
	const char *socket_path; // Unix socket; or
	const char *host;
	int port;
	const char *path, *subprotocol, *bearer; // bearer may be NULL
	const struct net_dial_tls *tls;          // NULL: plain. Read during the call only
	int ping_s, silence_s;
	// By the protocol that is spoken the server says nothing before our first message (it might be lost). Then what
	// comes is read past libwebsockets, which takes ten times as long over bulk.
	bool speaks_first;
	const struct net_handler *handler; // opened, message, failed, closed; closed with conn NULL if it never opened
	void *user;
};
// The outcome is a callback. Errors: STATUS_INVALID_PARAMS (what tls says cannot be), STATUS_OUT_OF_MEMORY.
enum status net_dial(struct net_loop *loop, const struct net_dial_params *params, struct error *error);

// A message ready to send, shared by all who get it: serialised once, counted references.
struct net_frame;
// `text`: one text frame; else one binary frame. Copies. NULL if out of memory.
struct net_frame *net_frame_create(const void *bytes, size_t length, bool text);
struct net_frame *net_frame_ref(struct net_frame *frame);
void net_frame_unref(struct net_frame **frame);
size_t net_frame_bytes(const struct net_frame *frame);
// One binary frame of `length` bytes, to be filled through net_frame_data, with NET_FRAME_ROOM bytes before it that
// net_frame_prepend can use. Large ones come from a few that are kept. NULL if out of memory.
enum { NET_FRAME_ROOM = 1024 };
struct net_frame *net_frame_alloc(size_t length);
uint8_t *net_frame_data(struct net_frame *frame);
// Put bytes before what is there. Only while nobody else holds it. Errors: STATUS_LIMIT_EXCEEDED (no room left).
enum status net_frame_prepend(struct net_frame *frame, const void *bytes, size_t length);

// One binary frame of these bytes and of what is in `rest`, a binary frame that is no such chain itself and is not
// copied (a reference is taken). Only to be sent. NULL if out of memory.
struct net_frame *net_frame_chain(const void *bytes, size_t length, struct net_frame *rest);

// Queue a frame (a new reference is taken). With key != 0 a frame of the same key that still waits is replaced by this
// one, which goes to the end: latest value only. A queue over its limits closes the connection with 4408 and returns
// STATUS_LIMIT_EXCEEDED. Binary frames are bulk that was asked for, whose sender holds back when net_conn_queued_bytes
// says that there is much: LIMIT_STREAM_QUEUE_BYTES is for them, LIMIT_SEND_QUEUE_BYTES for the rest.
enum status net_conn_send(struct net_conn *conn, struct net_frame *frame, uint64_t key);
// Large frames go out as fragments of NET_FRAGMENT_BYTES, so that a ping is answered in between; a last one that would
// be short goes with the one before it.
enum { NET_FRAGMENT_BYTES = 128 * 1024, NET_FRAGMENT_MOST_BYTES = NET_FRAGMENT_BYTES + 8 * 1024 };
// Shorthand for one text message to one peer.
enum status net_conn_send_text(struct net_conn *conn, const char *text, size_t length);
// Close after what is queued was sent, 5 s at most. `code` is a WebSocket close code; reason at most 120 bytes.
void net_conn_close(struct net_conn *conn, int code, const char *reason);
// Tell every connection's handler that it is closed, with `code`; none is called again. For the end of the program, so
// that what the handlers stand on may go before the loop does.
void net_close_all(struct net_loop *loop, int code);
// Raise the message limit from LIMIT_LOGIN_BYTES to the full one; it is known from now on.
void net_conn_trust(struct net_conn *conn);
// Raise the message limit to this; it is known from now on.
void net_conn_allow(struct net_conn *conn, size_t bytes);
// It does not count among strangers any more.
enum { NET_HOLDER_ANY = 1 };
void net_conn_know(struct net_conn *conn);
// Inside `message`: the frame that its bytes lie in, where they do (those that came in pieces), so that they can be
// passed on without a copy; else NULL. To keep it, take a reference.
struct net_frame *net_conn_message_frame(struct net_conn *conn);
// The same, given away: the caller's to unref.
struct net_frame *net_conn_take_frame(struct net_conn *conn);
// Stop and go on reading: the peer is held back by its socket. Counted: as many resumes as pauses. A peer that is held
// back does not count as silent.
void net_conn_pause(struct net_conn *conn);
void net_conn_resume(struct net_conn *conn);
// Of a connection that dialled by TLS: the authority that its server's certificate comes from, as PEM and SHA-256 (32).
// NULL without TLS. sha256 may be NULL.
const char *net_conn_authority(const struct net_conn *conn, const uint8_t **sha256);
// Stop and go on sending: what is queued waits, and what is sent joins it. Pings and their answers go all the same.
void net_conn_hold(struct net_conn *conn, bool held);
// Milliseconds since anything came from the peer.
int64_t net_conn_silence_ms(const struct net_conn *conn);
// Measure: send a ping of our own, unless one waits for its answer or something else waits to be sent. The round trip
// of the last one that was answered; < 0: none was.
void net_conn_ping(struct net_conn *conn);
double net_conn_rtt_ms(const struct net_conn *conn);
// Ask for new keys in both directions now (TLS 1.3's KeyUpdate). It is done by itself every hour and 64 GiB.
// Errors: STATUS_UNAVAILABLE (not open, or without TLS).
enum status net_conn_update_keys(struct net_conn *conn);
void *net_conn_user(const struct net_conn *conn);
size_t net_conn_queued_bytes(const struct net_conn *conn);
size_t net_conn_queued_messages(const struct net_conn *conn);
