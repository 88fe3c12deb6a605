/* A worker's end of the socket to its node, for workers of every kind: the node's calls are served by rpc.h.
 *
 * Nothing is read beyond the end of a message. So a descriptor that comes with a message belongs to that call, and
 * another user of the socket begins with the next message. Thread: one serves; any may answer and notify by `rpc`. */
#pragma once
#include "common/wire/rpc.h"

#include <pthread.h>

struct node_end {
	struct rpc rpc;
	int fd;     // not owned
	int given;  // the descriptor that came with the call that is being served, until the call takes it; -1: none
	int passes; // one that goes with the next message, and is closed then; -1: none
	struct buffer in;
	pthread_mutex_t sending; // one message at a time
	void *owner;
};

struct node_end_params {
	const struct contract *contract; // CONTRACT_NODE
	int fd;
	const struct rpc_method *methods; // (method_count), direction "node-to-worker"; not copied
	size_t method_count;
	void *owner; // the methods find it in the node_end, which is their argument
};

// `end` stays where it is.
void node_end_init(struct node_end *end, const struct node_end_params *params);
void node_end_finish(struct node_end *end);
// Receive until one call is complete and served or, unless it `waits`, until no more bytes are there. Errors:
// STATUS_UNAVAILABLE (the node is gone), STATUS_INVALID_REQUEST (the framing is wrong).
enum status node_end_serve(struct node_end *end, bool waits, struct error *error);
// Send what `passes` now, with an empty message. Errors: STATUS_UNAVAILABLE.
enum status node_end_pass(struct node_end *end);
