/* This machine's own node: a child process, started with the server and started again when it dies. Thread: the loop's.
 */
#pragma once
#include "common/net/loop.h"

struct local_node;

struct local_node_params {
	struct net_loop *loop;
	const char *socket_path, *data; // the server's socket and data directory
	const char *log_level;
};
// Starts it. Errors: STATUS_UNAVAILABLE.
enum status local_node_create(struct local_node **out, const struct local_node_params *params, struct error *error);
// Ask it to end; killed if it has not after a second. `ended` is called when it is gone.
void local_node_stop(struct local_node *node, void (*ended)(void *context), void *context);
// Kills it if it still runs.
void local_node_destroy(struct local_node **node);
