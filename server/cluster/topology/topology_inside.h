/* The inside of struct topology, for the files topology_*.c of this folder.
 *
 *   topology.c         reports, in; what a placement asks
 *   topology_judge.c   what a class should do, and changes of state
 *   topology_json.c    how links and the whole look to a client, and what is pushed when
 *   topology_peers.c   which nodes are told of which
 *   topology_store.c   state.db and history.db
 *
 * A direction is kept with the node that measures it. Nodes of the cluster are never freed while it lives (those that
 * were removed stay as shells), so they are pointed at. Times are of the server's clock: a node's own is used for
 * differences only, as it may be off. Thread: the loop's. */
#pragma once
#include "server/cluster/state.h"
#include "server/cluster/topology/topology.h"

enum { TOPOLOGY_TICK_MS = 1000, TOPOLOGY_MINUTE_MS = 60000, TOPOLOGY_REASON_BYTES = 320 };

//        name in C              in the contract  in a sentence     round trip  of a wire, bits/s   (0: not judged)
// clang-format off
#define LINK_CLASS_LIST(X)                                                       \
	X(LINK_CLASS_UNKNOWN,     "unknown",     "an unknown link",  0,   0)     \
	X(LINK_CLASS_PROCESS,     "process",     "one machine",      0,   0)     \
	X(LINK_CLASS_PEER,        "peer",        "peer-to-peer",     10,  0)     \
	X(LINK_CLASS_RDMA,        "rdma",        "RDMA",             10,  1e9)   \
	X(LINK_CLASS_THUNDERBOLT, "thunderbolt", "Thunderbolt",      10,  1e9)   \
	X(LINK_CLASS_ETHERNET,    "ethernet",    "Ethernet",         10,  1e9)   \
	X(LINK_CLASS_WIFI,        "wifi",        "Wi-Fi",            50,  1e8)   \
	X(LINK_CLASS_CELLULAR,    "cellular",    "a mobile network", 200, 0)     \
	X(LINK_CLASS_RELAY,       "relay",       "the server",       0,   0)     \
	X(LINK_CLASS_LOOPBACK,    "loopback",    "loopback",         0,   0)     \
	X(LINK_CLASS_VIRTUAL,     "virtual",     "a virtual link",   10,  0)
// clang-format on
enum link_class {
#define X(name, word, words, rtt_ms, bits_per_s) name,
	LINK_CLASS_LIST(X)
#undef X
};

enum link_state { LINK_STALE, LINK_UP, LINK_DOWN };

// The measured values; < 0: not measured. The first STORE_LINK_COLUMNS have minute averages, in the order of
// store_link_names.
enum link_value {
	LINK_RTT_MS,
	LINK_JITTER_MS,
	LINK_LOSS_PERCENT,
	LINK_THROUGHPUT,
	LINK_SENT,
	LINK_INTERFACE_BITS,
	LINK_THROUGHPUT_BACK, // from the server; of other links the other direction has it
	LINK_VALUES,
};

// A link in one direction.
struct topology_link {
	struct cluster_node *to; // NULL: the server
	enum link_class class;
	bool up;
	bool heard; // told of since the server started and its node came online
	char reason[128], interface[33], address[65];
	double values[LINK_VALUES];
	int64_t measured_ms, throughput_ms; // wall; 0: never
	int64_t heard_ms, counted_ms;       // steady: when it was told of last, and when that last counted
	unsigned bad, good, downs;          // readings in a row
	bool degraded, lost;                // lost: that it went down was told
	char degraded_reason[160];
	// The values that subscribers know.
	enum link_state told_state;
	double told[LINK_VALUES];
	int64_t told_ms;              // steady; 0: nothing yet
	bool changed, fresh, unsaved; // changed: other than in figures; fresh: a reading that was not told
	// The minute that is under way.
	int64_t minute_ms;
	double sums[STORE_LINK_COLUMNS];
	unsigned counts[STORE_LINK_COLUMNS];
};

// A node with its directions.
struct topology_from {
	struct cluster_node *node;
	struct topology_link *links; // (count)
	size_t count, capacity;
	const struct cluster_link *peers_on; // the connection that the newest node.peers went to
	uint64_t peers_hash;                 // of it
};

struct topology {
	struct topology_params params;
	struct topology_from **nodes; // (node_count)
	size_t node_count, node_capacity, link_count;
	struct net_timer tick, peers;
	int64_t saved_ms; // steady
	size_t turn;      // of the links that wait to be told, which is next
	bool full;        // LIMIT_CLUSTER_LINKS was met, and that was said
};

// A node's directions, made if it has none yet; NULL: no memory.
struct topology_from *topology_from(struct topology *topology, struct cluster_node *node);
struct topology_link *topology_link(const struct cluster_node *from, const struct cluster_node *to); // NULL: none
// The direction, made if there is none; NULL: no room.
struct topology_link *topology_add(struct topology *topology, struct cluster_node *from, struct cluster_node *to);
// Whether it is up, down or as it last was, and why not up: "" or a text in `reason`, if that is not NULL.
enum link_state topology_state(const struct topology_from *from, const struct topology_link *link,
			       char reason[TOPOLOGY_REASON_BYTES]);
const char *topology_to_id(const struct topology_link *link);
const char *topology_node_name(const struct cluster_node *node); // of NULL: "the server"
void topology_wake(struct topology *topology);                   // the tick goes on
// topology_find, between nodes that are online and not the same.
void topology_way(const struct cluster_node *node, const struct cluster_node *to, struct topology_reading *out);

// topology_judge.c
const char *link_class_name(enum link_class class);
const char *link_class_words(enum link_class class);
enum link_class link_class_parse(const char *name);
// topology_late_s, of this link; bytes_per_s: of the direction that is asked about; < 0: not measured.
double link_late_s(const struct topology_from *from, const struct topology_link *link, double bytes_per_s,
		   uint64_t bytes);
// The class of the path as a whole: the worse one of those that its two ends report.
enum link_class topology_class(const struct topology_from *from, const struct topology_link *link);
enum link_news { LINK_DEGRADED, LINK_RECOVERED, LINK_LOST, LINK_BACK, LINK_NEWS };
// The changes in the directions of one node in one report. They are told together, so that a switch that fails is not
// told once for every link that goes over it.
struct topology_news {
	size_t first[LINK_NEWS];   // of them: its place among the node's
	unsigned count[LINK_NEWS]; // 0: none
};
void topology_judge(const struct topology_from *from, struct topology_link *link, struct topology_news *news);
// Format a number with three digits, or whole: 0.412, 12.6, 1060. Returns text.
char *topology_figure(double value, char text[16]);
void topology_tell_news(struct topology *topology, const struct topology_from *from, const struct topology_news *news);

// topology_json.c
struct json *topology_link_json(const struct topology_from *from, const struct topology_link *link);
void topology_push(struct topology *topology);
void topology_push_removed(struct topology *topology, const struct cluster_node *node);

// topology_peers.c: soon, once all that comes together has come
void topology_tell_peers(struct topology *topology);

// topology_store.c
enum status topology_load(struct topology *topology, struct error *error);
void topology_save(struct topology *topology);
void topology_count_minute(struct topology *topology, struct topology_link *link, int64_t now_ms);
void topology_end_minutes(struct topology *topology, int64_t now_ms);
