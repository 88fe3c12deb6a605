/* Model files on a node: of each the ranges that its workers need, in a file of the same layout with holes.
 *
 *     DATA/node/models/MODEL_ID.part    the bytes, where they have been fetched
 *     DATA/node/models/MODEL_ID.index   which ranges those are, each with its SHA-256; replaced as a whole
 *
 * Ranges are fetched from the server over a connection of their own, several pieces under way, each checked against the
 * SHA-256 that comes with it, and written before it is noted. Where the server names other nodes that have had a range,
 * it tells the SHA-256 alone, the bytes come from one of them, and from the server after all if that comes to nothing
 * or they are wrong. Other nodes are given what was checked here, likewise. What the index names is read and checked
 * again before a worker gets the file, once a start of the node; a range that does not hold is fetched anew. Where the
 * disk has no room, models that no worker has are deleted, the longest unused first. A disk that is full, a connection
 * that breaks and a server that goes are told as such, and what was fetched is kept. Reading, hashing and writing are a
 * thread's, never the loop's. Thread: the loop's, but for that. */
#pragma once
#include "engine/node/uplink/uplink.h"

struct node_models;

struct node_models_params {
	struct net_loop *loop;
	const struct contract *contract;
	struct uplink *uplink;
	struct links *links; // NULL: no other node is asked, or given anything
	const char *folder;  // copied; made when it is needed
};
enum status node_models_create(struct node_models **out, const struct node_models_params *params, struct error *error);
// After the loop's connections are closed, and the links; before the uplink.
void node_models_destroy(struct node_models **models);
// The calls of the server. Each takes its call and answers it.
void node_models_fetch(struct node_models *models, struct uplink_call *call);
void node_models_forget(struct node_models *models, struct uplink_call *call);
// Another node's request, which is taken and answered.
struct link_request;
void node_models_give(struct node_models *models, struct link_request *request);
// The file, for a worker: read only. Errors: STATUS_NOT_FOUND (nothing of it was fetched).
enum status node_models_open(struct node_models *models, const char *model_id, int *fd, struct error *error);
// The connection to the server ended: fetches under way are given up; what they have is kept.
void node_models_lost(struct node_models *models);
