/* Connections between nodes: TLS 1.3 over TCP, both ends with a certificate of the cluster's authority.
 *
 * What is sent are messages as on the stream socket (stream.h), of which a small one is one TLS record:
 *
 *     0         4              8                   8 + head       4 + total
 *     +---------+--------------+-------------------+--------------+
 *     | total   | head length  | JSON-RPC object   | body         |     lengths u32 little-endian
 *     +---------+--------------+-------------------+--------------+
 *
 * total is at most LIMIT_WORKER_MESSAGE_BYTES, so that a whole message of another stream fits as a body.
 * Either end may dial; which of the two did makes no difference afterwards. The handshake verifies the chain; whose the
 * certificate is, its URI, is for `opened` to judge. Until the owner trusts a connection it takes LIMIT_LOGIN_BYTES a
 * message. Sending keeps what the socket does not take in a queue of at most LIMIT_STREAM_QUEUE_BYTES; whoever sends
 * bulk stops when net_peer_queued says that there is much, and goes on at `drained`. Keys are changed every hour or
 * 64 GiB. The program must ignore SIGPIPE. Thread: the loop's. A struct net_peer is valid until its `closed` returns.
 */
#pragma once
#include "common/net/ws/ws.h"

enum { NET_ADDRESS_BYTES = 46 };

struct net_peer;

struct net_peer_handler {
	// The handshake is done: this is whose certificate verified.
	void (*opened)(void *user, struct net_peer *peer, const struct net_certificate *certificate);
	// One whole message. head (head_bytes): not checked, valid during the call. body: NULL without one; take a
	// reference to keep it.
	void (*message)(void *user, struct net_peer *peer, const uint8_t *head, size_t head_bytes,
			struct net_frame *body);
	// The queue was over LIMIT_STREAM_FULL_BYTES and is empty.
	void (*drained)(void *user, struct net_peer *peer);
	// Last call, also for one that never opened; never from inside a call here. why: for a person.
	void (*closed)(void *user, struct net_peer *peer, const char *why);
};

// Whom both ends trust, and what they show.
struct net_peer_tls;
// Errors: STATUS_INVALID_PARAMS (unreadable, or not an authority's), STATUS_OUT_OF_MEMORY.
enum status net_peer_tls_create(struct net_peer_tls **out, const char *authority_pem, struct error *error);
void net_peer_tls_destroy(struct net_peer_tls **tls); // connections that stand go on
// Show this from the next handshake on. Errors: those of net_tls_show.
enum status net_peer_tls_show(struct net_peer_tls *tls, const char *chain_pem, const char *key_pem,
			      struct error *error);

// Take connections on all addresses of the machine. `accepted` returns the user of the handler's calls, or NULL to
// refuse. At most LIMIT_PEERS_NOT_OPEN handshakes are under way at once; who comes then is turned away.
struct net_peer_listener;
struct net_peer_listen_params {
	struct net_peer_tls *tls; // must outlive it
	const char *address;      // NULL: all, IPv4 and IPv6
	int port;                 // 0: any free one
	const struct net_peer_handler *handler;
	void *(*accepted)(void *context, struct net_peer *peer);
	void *context;
};
// Errors: STATUS_UNAVAILABLE, STATUS_INVALID_PARAMS (the address), STATUS_OUT_OF_MEMORY.
enum status net_peer_listen(struct net_peer_listener **out, struct net_loop *loop,
			    const struct net_peer_listen_params *params, struct error *error);
int net_peer_listener_port(const struct net_peer_listener *listener);
void net_peer_listener_destroy(struct net_peer_listener **listener); // open connections stay

struct net_peer_dial_params {
	struct net_peer_tls *tls;
	const char *address; // IPv4 or IPv6, not a name
	int port;
	const struct net_peer_handler *handler;
	void *user;
};
// The outcome is a callback. Errors: STATUS_INVALID_PARAMS (no address), STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY.
enum status net_peer_dial(struct net_peer **out, struct net_loop *loop, const struct net_peer_dial_params *params,
			  struct error *error);
// Close now; what is queued is dropped; `closed` is not called. Accepts NULL, leaves NULL behind. Safe in callbacks.
void net_peer_destroy(struct net_peer **peer);

// Raise the limit of a message to the full one.
void net_peer_trust(struct net_peer *peer);
// Send head and body (body_bytes may be 0). `holder`: the frame that the body lies in, referenced while it waits; NULL:
// what has to wait is copied. Errors: STATUS_LIMIT_EXCEEDED (the queue is full; nothing was sent),
// STATUS_OUT_OF_MEMORY.
enum status net_peer_send(struct net_peer *peer, const void *head, size_t head_bytes, struct net_frame *holder,
			  const uint8_t *body, size_t body_bytes);
size_t net_peer_queued(const struct net_peer *peer);
// Say `drained` when the queue is empty, also of one that is less than full; nothing if it is empty now.
void net_peer_tell_drained(struct net_peer *peer);
// Milliseconds since anything came.
int64_t net_peer_silence_ms(const struct net_peer *peer);
// Change the keys of both directions now. It is done by itself every hour and 64 GiB.
void net_peer_update_keys(struct net_peer *peer);

// The system's figures of the connection.
struct net_peer_path {
	char local[NET_ADDRESS_BYTES], remote[NET_ADDRESS_BYTES];
	int64_t segments, segments_again; // with data, that this end sent, and sent again; < 0: not told
};
void net_peer_path(const struct net_peer *peer, struct net_peer_path *path);
// The same of a WebSocket connection. False: it is not open.
bool net_conn_path(const struct net_conn *conn, struct net_peer_path *path);
