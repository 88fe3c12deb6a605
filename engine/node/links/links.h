/* Direct links: a connection between this node and each other node that can be reached, measured continuously.
 *
 * The server sends the list of nodes (node.peers). The node with the lower id dials, with growing pauses while there is
 * no answer. Both ends show certificates of the cluster's authority, and each checks that the other's certificate names
 * the node that it claims to be. A link carries pings (round-trip time and jitter), short bursts now and then
 * (throughput, never while a hop sends), and hops: streams of messages between the parts of a model instance. The
 * measurements go to the server as node.links, with those of the connection to the server in both directions, the
 * kernel's count of retransmitted segments, and the class of the interface that the route uses. Thread: the loop's. */
#pragma once
#include "common/json/json.h"
#include "common/net/peer.h"
#include "engine/node/uplink/credentials.h"

struct links;
struct link_request;

struct links_params {
	struct net_loop *loop;
	const struct contract *contract; // CONTRACT_NODE
	const struct credentials *credentials;
	const char *node_id; // copied
	const char *address; // to listen at; NULL: all. Used by links_create only
	// node.links: params are taken. Left out while there is no server.
	void (*tell)(void *arg, struct json *params);
	// Each second, may be NULL: begin a round trip to the server, and tell the last one, < 0: not known. False:
	// there is no connection.
	bool (*measure_server)(void *arg, double *rtt_ms, struct net_peer_path *path);
	// Send a piece of a burst to the server, or (back) from it: links_server_piece takes its result. May be NULL.
	// False: it was not sent.
	bool (*burst_server)(void *arg, bool back, int64_t burst, size_t piece, size_t bytes);
	// Another node wants bytes of a model file (links_models.h). May be NULL.
	void (*read_model)(void *arg, struct link_request *request);
	void *arg;
};
// Errors: STATUS_UNAVAILABLE (no port to listen on; the node goes on without direct links), STATUS_OUT_OF_MEMORY.
enum status links_create(struct links **out, const struct links_params *params, struct error *error);
void links_destroy(struct links **links); // hops are closed without a callback
int links_port(const struct links *links);
// The answer to a piece of burst_server: when it came, in ns of its receiver's clock from any point on; < 0: refused.
void links_server_piece(struct links *links, bool back, int64_t burst, int64_t ns);
void links_set_peers(struct links *links, const struct json *params); // node.peers, checked
// A hop by way of the server has data in flight: measurements wait for that, too. links may be NULL.
void links_hop_passed(struct links *links);
// While fenced, hops carry nothing; pings continue.
void links_fence(struct links *links, bool fenced);

// One direction of a ring, from one node's worker to another node's. Valid until `closed` returns, or until it is
// destroyed.
struct link_hop;
struct link_hop_handler {
	void (*opened)(void *user, struct link_hop *hop);
	// At the in end: one whole message of the ring, valid during the call. holder: the frame that it lies in, or
	// NULL.
	void (*message)(void *user, struct link_hop *hop, const uint8_t *bytes, size_t length,
			struct net_frame *holder);
	void (*drained)(void *user, struct link_hop *hop); // more than LIMIT_STREAM_FULL_BYTES waited; none do now
	void (*closed)(void *user, const char *why);       // last call; never from inside a call here
};
struct link_hop_params {
	const char *peer_id, *hop_id, *key; // copied
	bool sends;                         // the out end, which asks; the in end waits to be asked
	bool bulk;                          // a copy's: other hops go first, and need not wait behind it
	const struct link_hop_handler *handler;
	void *user;
};
// Errors: STATUS_UNAVAILABLE (there is no link to that node now), STATUS_OUT_OF_MEMORY.
enum status link_hop_open(struct link_hop **out, struct links *links, const struct link_hop_params *params,
			  struct error *error);
// Errors: STATUS_LIMIT_EXCEEDED (its queue is full; nothing was sent), STATUS_OUT_OF_MEMORY.
enum status link_hop_send(struct link_hop *hop, const uint8_t *bytes, size_t length);
size_t link_hop_queued(const struct link_hop *hop);
// The in end: stop and go on taking messages; the link's other hops are not held up for longer than
// LIMIT_STREAM_FULL_BYTES take.
void link_hop_pause(struct link_hop *hop, bool paused);
void link_hop_destroy(struct link_hop **hop); // tells the other end; accepts NULL, leaves NULL behind
