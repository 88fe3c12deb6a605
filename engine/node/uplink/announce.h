/* The announcement of this node on the local networks, before and after it has joined. It shows a person at the
 * dashboard that the node is there and, if it was refused, why. A server's own node does not announce itself; its
 * server does. Thread: the loop's. */
#pragma once
#include "common/net/mdns/announce.h"
#include "engine/device/table.h"
#include "engine/node/uplink/credentials.h"

struct node_announcer;

struct node_announce {
	const char *node_id, *name;            // name: NULL or "": the host's
	const struct credentials *credentials; // which cluster it has joined
	const struct device_table *devices;    // NULL: not known yet
	int port;                              // for links of other nodes; 0: none
};
// Everything is copied. Errors: net_announcer_create's.
enum status node_announcer_create(struct node_announcer **out, struct net_loop *loop,
				  const struct node_announce *announce, struct error *error);
void node_announcer_destroy(struct node_announcer **announcer); // says goodbye
// Call after a possible change; only real changes are sent.
void node_announcer_update(struct node_announcer *announcer, const struct node_announce *announce);
