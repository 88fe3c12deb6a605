/* The connections of /node: nodes, in; the cluster's state, out. The protocol is schema/node.json. Thread: the loop's.
 */
#pragma once
#include "common/wire/contract.h"
#include "server/cluster/cluster.h"
#include "server/tenants/tenants.h"

struct node_links;

struct node_links_params {
	struct net_loop *loop;
	const struct contract *contract; // CONTRACT_NODE
	struct cluster *cluster;
	struct events *events;
	struct tenancy *tenants;
};
enum status node_links_create(struct node_links **out, const struct node_links_params *params);
void node_links_destroy(struct node_links **links);
// Tell every node whether somebody watches.
void node_links_watch(struct node_links *links, bool watched);

// Say goodbye to every node: close with 1001, which ends this machine's own, also one that an earlier server started.
void node_links_shut_down(struct node_links *links);

// A connection; `local`: it came by the Unix socket. Its functions are those of struct net_handler.
struct node_link;
struct node_link *node_link_create(struct node_links *links, bool local);
void node_link_opened(void *user, struct net_conn *conn);
void node_link_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary);
void node_link_closed(void *user, struct net_conn *conn, int code);
