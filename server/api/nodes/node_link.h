/* The connections of /node: nodes, in; the cluster's state, out. The protocol is schema/node.json.
 *
 * A node has proved who it is before it is here: by the data directory's Unix socket, by its certificate, or, a browser
 * tab, by its secret, and then it is that node and no other. Strangers are server/api/nodes/join.h's, and tab.h's.
 * Thread: the loop's. */
#pragma once
#include "common/wire/contract.h"
#include "server/api/nodes/join.h"
#include "server/api/nodes/witnesses.h"
#include "server/cluster/cluster.h"
#include "server/cluster/topology/topology.h"
#include "server/instances/instances.h"
#include "server/store/turn.h"
#include "server/tenants/tenants.h"

struct node_links;

struct node_links_params {
	struct net_loop *loop;
	const struct contract *contract; // CONTRACT_NODE
	struct cluster *cluster;
	struct audit *audit;
	struct events *events;
	struct log_lines *log_lines;
	struct topology *topology;
	struct tenancy *tenants;
	struct instances *instances;
	struct joins *joins;
	struct witnesses *witnesses;
	const struct turn *turn; // NULL: there are no other servers
	const char *address;     // where the server listens for other machines, and its own node with it; NULL: nowhere
};
enum status node_links_create(struct node_links **out, const struct node_links_params *params);
void node_links_destroy(struct node_links **links);
// Tell every node whether somebody watches.
void node_links_watch(struct node_links *links, bool watched);

// Say goodbye to every node: close with 1001, which ends this machine's own, also one that an earlier server started.
void node_links_shut_down(struct node_links *links);

// A connection. Its functions are those of struct net_handler.
struct node_link_params {
	bool local;          // it came by the Unix socket
	bool tab;            // a browser tab, which has shown its secret
	const char *node_id; // that its certificate or its secret is for; NULL of a local one
	const char *peer;    // its address; "" of a local one
};
struct node_link;
// How many connections are open that have proved to be this node's.
size_t node_links_of(const struct node_links *links, const char *node_id);
// Whether the log may tell of one more tab that is refused, which strangers can make happen: once a second.
bool node_links_say(struct node_links *links);
struct node_link *node_link_create(struct node_links *links, const struct node_link_params *params);
void node_link_opened(void *user, struct net_conn *conn);
void node_link_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary);
void node_link_closed(void *user, struct net_conn *conn, int code);
