/* The links between nodes, and of each node to the server: their latest measurements and what
 * follows from them. Nodes report (node.links) what they measure in their direction. Each
 * reading is kept, judged by the link's class, stored (the latest, and minute averages in
 * history.db for 30 days) and published. Nodes are told about each other (node.peers). A link
 * that becomes worse than its class, or recovers, is a change of state: one event of the
 * cluster. After a restart the last readings are stale and show their time. Thread: the
 * loop's. */
#pragma once
#include "server/cluster/cluster.h"

struct topology;

struct topology_params {
	struct net_loop *loop;
	struct store *store;
	struct events *events;
	struct cluster *cluster; // outlives the topology, and tells it of nodes that come and go
	const char *address;     // where the server's own node listens for others; NULL: nowhere
};
// Loads what the store has; all of it is stale until its node tells of it.
enum status topology_create(struct topology **out, const struct topology_params *params, struct error *error);
// Stores the newest readings. Before the store and the cluster are destroyed.
void topology_destroy(struct topology **topology);

// Take in a node's report: params of node.links, checked. Links to anything but a node of the cluster are ignored.
void topology_report(struct topology *topology, const char *node_id, const struct json *params);
// A node has registered (its record may have changed), or is gone, or was removed from the cluster. `topology` may be
// NULL: nobody keeps one.
void topology_node_online(struct topology *topology, const char *node_id);
void topology_node_offline(struct topology *topology, const char *node_id);
void topology_node_removed(struct topology *topology, const char *node_id);

// The link from one node to another, for placements. From a node to itself it is known and has no latency.
struct topology_reading {
	bool known, direct, degraded;  // known: its round trip is; direct: a link of their own that is up, else by way
				       // of the server, whose figures are those of both ways together
	bool relayed;                  // by way of the server, and neither is on its machine
	const char *link_class;        // of schema/api.json; static
	double rtt_ms, loss_percent;   // < 0: not known
	double throughput_bytes_per_s; // from the first to the second; < 0: not known
};
void topology_find(const struct topology *topology, const char *from_node_id, const char *to_node_id,
		   struct topology_reading *out);
// The same by way of the server, also where there is a direct link.
void topology_find_relay(const struct topology *topology, const char *from_node_id, const char *to_node_id,
			 struct topology_reading *out);
const char *topology_class_words(const char *link_class); // in a sentence; static
// By how many seconds more `bytes` take over a node's own link, to another node or ("server") between the server and
// it, than they should take over one of its class, by what is measured now: half of the round trip beyond what it
// should take, and the bytes at this rate beyond what they take at the least rate of the class. back: from the server.
// 0: it is no worse, or has no such link, or that is not known.
double topology_late_s(const struct topology *topology, const char *from_node_id, const char *to_node_id, bool back,
		       uint64_t bytes);

struct json *topology_links_json(const struct topology *topology);   // array of Link; `topology` may be NULL
struct json *topology_summary_json(const struct topology *topology); // TopologySummary
// TopologyEvents that say how every link stands, the last with all that is heard, to a subscriber that came back.
void topology_send_all(const struct topology *topology, const struct json *heard, struct event_subscriber *subscriber);

// Tell how several servers stand that take turns: an array of ServerSeen, which is taken.
void topology_tell_servers(const struct topology *topology, struct json *servers);

// Name the series of a link's direction in history.db, for link.history. False: there are no such nodes; to_node_id may
// be "server".
bool topology_series(const struct topology *topology, const char *from_node_id, const char *to_node_id,
		     char series[STORE_SERIES_BYTES]);

// For /metrics: each direction that is measured now.
struct topology_figures {
	const char *from_node_id, *to_node_id, *from_name, *to_name, *link_class;
	bool up, degraded;
	const char *degraded_reason;                                    // "" unless it is
	double rtt_ms, jitter_ms, loss_percent, throughput_bytes_per_s; // < 0: not known
};
void topology_each(const struct topology *topology, void (*each)(void *context, const struct topology_figures *figures),
		   void *context);
