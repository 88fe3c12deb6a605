/* The node's cache of model files. Each is a sparse file of the same layout with the ranges that its workers need.
 *
 *     DATA/node/models/MODEL_ID.part    the bytes, where they have been fetched
 *     DATA/node/models/MODEL_ID.index   the fetched ranges, each with its SHA-256; replaced as a whole
 *
 * Ranges are fetched from the server over a connection of their own, several pieces under way, each checked against the
 * SHA-256 that comes with it, and written before it is noted. If the server names other nodes that have a range, it
 * sends only the SHA-256, and the bytes come from one of those nodes; if that fails or they are wrong, they come from
 * the server. In the same way this node sends ranges that it has checked to other nodes. Once in the life of the node,
 * before a worker gets the file, the ranges of the index are read and checked again; a wrong range is fetched again. If
 * the disk has no room, models that no worker uses are deleted, the least recently used first. A full disk, a broken
 * connection and a stopped server are reported as such, and the fetched ranges are kept. A thread reads, hashes and
 * writes. Thread: otherwise the loop's. */
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
// The file for a worker, read only. Errors: STATUS_NOT_FOUND (no range of it was fetched).
enum status node_models_open(struct node_models *models, const char *model_id, int *fd, struct error *error);
// The connection to the server ended: fetches in progress fail; their ranges are kept.
void node_models_lost(struct node_models *models);
