/* Pieces of one model's file from other nodes: which node has them, according to the server, and requests to that node.
 *
 * A piece is requested in parts of LIMIT_LINK_READ_BYTES, one after the other, from the first node that has all of it
 * and a link to this one; if that fails, from the next. A node that lacks the piece, does not answer in time, or loses
 * its link is not asked again; a node that is busy is asked again for the next piece. The bytes are not checked here:
 * the caller reports wrong bytes, and that node is not asked again, either. Thread: the loop's. */
#pragma once
#include "engine/node/links/links_models.h"
#include "engine/node/models/models_index.h"

struct model_peers;

// NULL: there is no node to ask. peers: those of model.fetch, checked against the contract. links must outlive the
// requests.
struct model_peers *model_peers_create(struct links *links, const char *model_id, const struct json *peers);
void model_peers_destroy(struct model_peers **peers); // after its pieces were cancelled; accepts NULL

// The request for one piece; all zero: no request.
struct model_peer_piece {
	struct model_peers *peers;
	struct model_span at;
	size_t source; // who is asked
	size_t got;
	struct net_frame *bytes;
	struct link_read *read;
	int64_t began_ms;
	// Called once, later, unless the request is cancelled. bytes: the callee takes its own reference; NULL: no node
	// sent them.
	void (*done)(void *context, struct net_frame *bytes);
	void *context;
};
bool model_peers_have(const struct model_peers *peers, const struct model_span *at); // peers may be NULL
// `at`, `done` and `context` are set. False, without a call of `done`: there is no node to ask.
bool model_peers_ask(struct model_peers *peers, struct model_peer_piece *piece);
void model_peers_cancel(struct model_peer_piece *piece);
// The bytes of this node differ from the server's.
void model_peers_wrong(struct model_peers *peers, size_t source, const struct model_span *at);
struct json *model_peers_wrong_json(const struct model_peers *peers); // their ids; NULL: none
