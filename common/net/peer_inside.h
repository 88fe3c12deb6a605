/* A connection between nodes, as its own files see it: peer.c handles messages, peer_open.c opens connections. Not for
 * others. Thread: the loop's. */
#pragma once
#include "common/net/peer.h"
#include "common/net/tls/certificate.h"

#include <sys/socket.h>

enum {
	PEER_RECORD_BYTES = 16 * 1024, // TLS has no larger ones
	PEER_WHY_BYTES = 256,
};

enum peer_state { PEER_CONNECTING, PEER_SHAKING, PEER_OPEN };

struct peer_piece {
	struct peer_piece *next;
	struct net_frame *holder;
	const uint8_t *at;
	size_t left, room; // room: behind them, for small messages that follow
};

struct net_peer {
	struct net_loop *loop;
	struct net_watch *watch;
	const struct net_peer_handler *handler;
	void *user;
	SSL *ssl;
	int fd; // the watch's
	enum peer_state state;
	struct net_timer patience;          // until it is open
	struct net_peer_listener *listener; // that counts it until it is open; NULL
	struct net_peer *next, **at;        // in the listener's list, meanwhile
	bool in_callback, destroyed;
	bool broken; // nothing can be sent any more
	char why[PEER_WHY_BYTES];
	int64_t heard_ms;
	// Receiving: as in stream.c.
	size_t limit;
	bool begun;
	uint8_t stage[PEER_RECORD_BYTES];
	size_t stage_first, stage_end;
	struct buffer head;
	size_t head_bytes;
	struct net_frame *body;
	size_t body_filled;
	// Sending.
	struct peer_piece *first, **last;
	size_t queued, pieces;
	size_t pending; // bytes of the first piece that OpenSSL has begun to send: it wants to see the same again
	bool was_full;
	int64_t keys_ms; // when the keys were changed
	uint64_t keys_bytes;
};

// Take a socket that is connected, or connects. It is the peer's in every case.
enum status net_peer_create(struct net_peer **out, struct net_loop *loop, int fd, SSL_CTX *context,
			    struct error *error);
// The connection stands: the handshake goes on. False: it failed, peer->why says how.
bool net_peer_shake(struct net_peer *peer);
// Nobody counts it any more.
void net_peer_uncount(struct net_peer *peer);
