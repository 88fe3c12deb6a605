/* Pieces of one model's file from other nodes: who has them, by what the server says, and having them from there.
 *
 * A piece is asked for in parts of LIMIT_LINK_READ_BYTES, one after the other, of the first node that has all of it and
 * that has a link to this one; if that comes to nothing, of the next. A node that does not have what it should, does
 * not answer in time, or whose link breaks, is not asked again; one that has better to do is, for the next piece. The
 * bytes are not checked here: whoever finds that they are wrong says so, and the node is not asked again, either.
 * Thread: the loop's. */
#pragma once
#include "engine/node/links/links_models.h"
#include "engine/node/models/models_index.h"

struct model_peers;

// NULL: nobody can be asked. peers: of model.fetch, checked against the contract. links must outlive what is asked for.
struct model_peers *model_peers_create(struct links *links, const char *model_id, const struct json *peers);
void model_peers_destroy(struct model_peers **peers); // after its pieces were cancelled; accepts NULL

// One piece; all zero: nothing is asked for.
struct model_peer_piece {
	struct model_peers *peers;
	struct model_span at;
	size_t source; // who is asked
	size_t got;
	struct net_frame *bytes;
	struct link_read *read;
	int64_t began_ms;
	// Once, later, unless it is cancelled. bytes: the callee's to reference; NULL: nobody gave them.
	void (*done)(void *context, struct net_frame *bytes);
	void *context;
};
bool model_peers_have(const struct model_peers *peers, const struct model_span *at); // peers may be NULL
// `at`, `done` and `context` are set. False, and `done` is not called: nobody can be asked.
bool model_peers_ask(struct model_peers *peers, struct model_peer_piece *piece);
void model_peers_cancel(struct model_peer_piece *piece);
// What this node gave is not what the server has.
void model_peers_wrong(struct model_peers *peers, size_t source, const struct model_span *at);
struct json *model_peers_wrong_json(const struct model_peers *peers); // their ids; NULL: none
