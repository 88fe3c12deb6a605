/* The node as its own files see it: node.c makes and ends it, node_server.c is what its server asks of it and tells it,
 * node_links.c its ways to other nodes. Not for others. Thread: the loop's. */
#pragma once
#include "common/net/supervisor.h"
#include "engine/device/registry.h"
#include "engine/node/home.h"
#include "engine/node/links/links_models.h"
#include "engine/node/options.h"
#include "engine/node/uplink/addresses.h"
#include "engine/node/uplink/ending.h"
#include "engine/node/uplink/uplink.h"
#include "engine/node/workers/sources.h"
#include "engine/node/workers/tenants.h"

struct node {
	struct node_options options;
	int64_t started_ms;
	int lock; // descriptor; -1
	struct contract *contract;
	struct device_table *table;
	struct net_loop *loop;
	struct net_watch *signals;
	struct supervisor supervisor;
	struct prober *prober;
	struct hotplug *hotplug;
	struct readings *readings;
	struct node_announcer *announcer; // NULL: the server is on this machine, or nothing is to be said
	struct uplink *uplink;
	struct relays *relays; // NULL: the server is on this machine
	struct links *links;   // NULL: none, for example if the server on this machine serves no other machine
	struct hops *hops;
	struct node_models *models;
	struct tenants *tenants;
	struct sources *sources;
	struct witness *witness;
	struct saver *saver;
	struct warnings *warnings;
	char cache[4096];
	struct addresses addresses;
	struct net_timer save, goodbye;
	struct ending ending;
	struct home home;
	char reach[NET_ADDRESS_BYTES]; // that links listen at; "": all
	bool stopping, usable_said;
	bool failed;          // the server does not take this node
	bool fenced, cut_off; // see node_hold_hops
};

// node_server.c
enum status node_create_uplink(struct node *node, struct error *error);

// node_links.c
// What workers of model instances say to each other is held while the server is not heard, and while it is cut off.
void node_hold_hops(struct node *node);
// A node continues without links: data for other nodes then goes by way of the server.
void node_create_links(struct node *node);
void node_set_reachable(void *node, const char *address); // of a node of the server's machine; NULL: nowhere
// Create what the parts of a model instance need: hops, and the model cache. stream: the socket of workers.
enum status node_create_for_instances(struct node *node, const char *stream, struct error *error);
