/* Discovery on the networks of this machine: announces this server, and hears, judges
 * and shows everyone who announces itself as exogpu, with the reason if it does not
 * belong to this cluster. It runs only if other machines can reach this server, so
 * not on loopback: nobody there could join. What is heard is a hint and changes
 * nothing in the cluster: a node connects by itself and proves who it is. Changes are
 * published on the topic `topology`, together and every few seconds at most. Thread:
 * the loop's. */
#pragma once
#include "server/cluster/cluster.h"

struct discovery;

struct discovery_params {
	struct net_loop *loop;
	struct events *events;
	const struct cluster *cluster;
	const char *cluster_id, *cluster_name;             // outlive it
	const uint8_t *authority_sha256;                   // (32), outlives it
	bool listening;                                    // others can reach this server
	bool (*waits)(void *context, const char *node_id); // whether this node waits to be let in
	void *context;
};
// Missing multicast is not an error. Errors: STATUS_OUT_OF_MEMORY.
enum status discovery_create(struct discovery **out, const struct discovery_params *params, struct error *error);
void discovery_destroy(struct discovery **discovery); // says goodbye
// Announce this server, at this port. Errors: net_announcer_create's.
enum status discovery_announce(struct discovery *discovery, int port, struct error *error);
// The result of discovery.list.
struct json *discovery_json(const struct discovery *discovery);
