/* The state of the cluster: nodes, their devices, and their current readings. Changes
 * flow in one direction: a node reports (or a person asks), the change is worked out
 * here, the store commits it, and then it is applied to this state and sent as an event,
 * in the order of the commits. Telemetry bypasses the store: the newest readings and ten
 * minutes of samples are in memory, minute averages go to history.db. Thread: the
 * loop's. */
#pragma once
#include "common/net/peer.h"
#include "server/cluster/events.h"
#include "server/security/audit.h"
#include "server/store/store.h"

struct cluster;
struct cluster_node;
struct cluster_device;

// A node's answer: `result` was checked against the contract; it is NULL unless `status` is STATUS_OK.
typedef void cluster_answer(void *context, enum status status, const struct json *result, const struct error *error);

// The line to a node that is connected now; its owner (server/api/nodes/node_link.c) fills it in.
struct cluster_link {
	// Ask the node; `params` is taken. `answer` (may be NULL) is called once, later: with STATUS_UNAVAILABLE if the
	// line goes first. Errors, and then `answer` is not called: STATUS_UNAVAILABLE (LIMIT_NODE_CALLS wait),
	// or that it could not be sent.
	enum status (*ask)(struct cluster_link *link, const char *method, struct json *params, cluster_answer *answer,
			   void *context);
	// Tell it something that has no answer; `params` is taken.
	void (*tell)(struct cluster_link *link, const char *method, struct json *params);
	void (*verify)(struct cluster_link *link, const char *device_id);
	void (*superseded)(struct cluster_link *link);          // another connection speaks for this node now
	int64_t (*silence_ms)(const struct cluster_link *link); // since something was heard of it
	struct audit_actor actor;                               // the node, as what it does is told in the audit log
	char reached[NET_ADDRESS_BYTES]; // of this machine, where the node came; "": by the socket
	int64_t ends_ms; // when the node ends, as it says, by the wall clock of this machine; 0: it has not said
	bool drains;     // it is about to end: nothing new goes there, and its models leave it
};

// A node that ends sooner than this gets a model only if nothing else holds it.
enum { CLUSTER_ENDS_SOON_MS = 10 * 60 * 1000 };

struct cluster_params {
	struct net_loop *loop;
	struct store *store;
	struct audit *audit;
	struct events *events;
};
// Loads what the store has; every node is offline and every device not yet verified until its node says so.
enum status cluster_create(struct cluster **out, const struct cluster_params *params, struct error *error);
// Stores when each online node was last seen. Before the store is destroyed.
void cluster_destroy(struct cluster **cluster);

// A node has connected and said who it is (NodeRecord of schema/node.json, checked). `local`: the server's own machine.
// `done` is called once it is stored and online. Errors: STATUS_LIMIT_EXCEEDED (LIMIT_NODES).
enum status cluster_register_node(struct cluster *cluster, const struct json *record, bool local,
				  struct cluster_link *link,
				  void (*done)(void *context, enum status status, const struct error *error),
				  void *context, struct error *error);
// ReportedDevices with what their node tells of their peers (PeerSpeeds; NULL: it tells nothing): a copy.
struct json *cluster_join_speeds(const struct json *devices, const struct json *speeds);
// The node's devices (an array of ReportedDevice, checked, which may have peer_speeds). `done` is called once they are
// stored, or at once if nothing is new; reports of one node are stored one after the other. Errors, and then `done` is
// not called: STATUS_NOT_FOUND, STATUS_CONFLICT (a device_id of another node, or one device twice),
// STATUS_LIMIT_EXCEEDED (LIMIT_NODE_REPORTS wait).
enum status cluster_report_devices(struct cluster *cluster, const char *node_id, const struct json *devices,
				   void (*done)(void *context, enum status status, const struct error *error),
				   void *context, struct error *error);
// New readings; of devices that are not this node's nothing is taken. `rest`: when a tab is to get no new work, as its
// owner has chosen (node.telemetry); may be NULL.
void cluster_report_telemetry(struct cluster *cluster, const char *node_id, const struct json *node,
			      const struct json *devices, const struct json *rest);
// The connection of a node is gone. Nothing happens if another one speaks for it already.
void cluster_lose_node(struct cluster *cluster, const char *node_id, struct cluster_link *link, const char *reason);

// Whether a node belongs to the cluster; *local (may be NULL): whether it is the server's own machine's.
bool cluster_has_node(const struct cluster *cluster, const char *node_id, bool *local);
bool cluster_is_tab(const struct cluster *cluster, const char *node_id); // a browser tab's
// Nodes that are let in and removed. The rows, and the change that tells a person, are added to `batch` (taken, also on
// failure), which the caller has filled with what belongs to it, and which is committed as a whole; `done` is called
// once it is. Errors at once, and then `done` is not called: STATUS_LIMIT_EXCEEDED (LIMIT_NODES), the store's.
struct cluster_move {
	const char *node_id;
	const struct json *record; // NodeRecord, checked; of a node that joins. It is offline until it registers
	const char *how;           // "joined with a ticket"
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};
enum status cluster_join_node(struct cluster *cluster, const struct cluster_move *move, struct store_batch **batch,
			      struct error *error);
// The node is offline from now on, whatever becomes of the batch; it and its devices are gone once that is stored.
// Errors also: STATUS_NOT_FOUND, STATUS_CONFLICT (the server's own, or being removed already).
enum status cluster_remove_node(struct cluster *cluster, const struct cluster_move *move, struct store_batch **batch,
				struct error *error);
// A node that waits to be let in is none of the cluster's, but everyone sees it: tell that it came (kind node.waiting)
// or went without joining (node.refused). Not stored.
struct cluster_waiting {
	const struct json *record; // NodeRecord
	const char *kind, *summary;
	int64_t since_ms; // wall clock
};
void cluster_tell_waiting(struct cluster *cluster, const struct cluster_waiting *waiting);
struct json *cluster_waiting_json(const struct json *record, int64_t since_ms); // Node of schema/api.json, pending
// Node of schema/api.json; NULL if there is none of this id.
struct json *cluster_describe_node(const struct cluster *cluster, const char *node_id);

// Told when a node is gone (device_id NULL), or when it does not find one of its devices any more. One listener.
void cluster_listen(struct cluster *cluster,
		    void (*lost)(void *context, const char *node_id, const char *device_id, const char *why),
		    void *context);
// Told of each device that was read, with its DeviceTelemetry. One listener.
void cluster_listen_readings(struct cluster *cluster,
			     void (*reading)(void *context, const struct cluster_device *device,
					     const struct json *telemetry),
			     void *context);
// Devices of the server's own machine are being looked for from now on, until its node says that all are found and
// verified, or have failed (cluster_discovered), and for LIMIT_DISCOVERY_MS at most (ready.c). It is an event of the
// topic inventory; `discovered` is told too, one listener.
void cluster_discover(struct cluster *cluster);
void cluster_discovered(struct cluster *cluster);
bool cluster_discovering(const struct cluster *cluster);
void cluster_on_discovered(struct cluster *cluster, void (*discovered)(void *context), void *context);
// Tell people what has become of a model: an event of the topic inventory, kept with the last ones. Everybody who may
// see devices gets it, so it gives no reason.
struct cluster_news {
	const char *node_id;                        // of the device that holds its first layers
	const char *model, *kind, *level, *summary; // as Change of schema/api.json has them; model: its name
};
void cluster_note_model(struct cluster *cluster, const struct cluster_news *news);

// Asks with each reading of a device that is in use whether exogpu works there: a session's call, a request of a model,
// or a model that loads, now or in the last seconds. Without anyone to ask, all use counts as exogpu's.
enum { CLUSTER_WORK_MS = 3000 }; // work that ended less than this ago counts, so that short calls are seen
typedef bool cluster_works(void *context, const struct cluster_device *device);
void cluster_ask_work(struct cluster *cluster, cluster_works *works, void *context);
// Ask a node, as cluster_link.ask. Errors also: STATUS_UNAVAILABLE (it is offline).
enum status cluster_ask(const struct cluster *cluster, const char *node_id, const char *method, struct json *params,
			cluster_answer *answer, void *context);
// How long nothing has been heard of a node; 0 where it is offline.
int64_t cluster_node_silence_ms(const struct cluster *cluster, const char *node_id);

struct cluster_device *cluster_find_device(const struct cluster *cluster, const char *device_id);
// JSON as schema/api.json describes it. The caller owns the result.
struct json *cluster_device_json(const struct cluster *cluster, const struct cluster_device *device);
struct json *cluster_snapshot(const struct cluster *cluster);  // but for allocations, which server/tenants has
struct json *cluster_telemetry(const struct cluster *cluster); // the newest readings of all

// `done` gets the device once the change is stored. Errors at once: STATUS_UNAVAILABLE (its node is offline),
// STATUS_CONFLICT (verification under way).
typedef void cluster_device_done(void *context, enum status status, const struct cluster_device *device,
				 const struct error *error);
enum status cluster_may_verify(const struct cluster_device *device, struct error *error);
enum status cluster_verify_device(struct cluster *cluster, struct cluster_device *device, struct error *error);
struct cluster_drain_params {
	bool drain;
	const struct audit_actor *by;
	cluster_device_done *done;
	void *context;
};
enum status cluster_drain_device(struct cluster *cluster, struct cluster_device *device,
				 const struct cluster_drain_params *params, struct error *error);

// The outcome of a spot check of a browser's results (checks.c). A failed one: the browser has failed its verification,
// and gets no more layers until an admin has it verified again.
enum cluster_check_outcome {
	CLUSTER_CHECK_PASSED,
	CLUSTER_CHECK_FAILED,
	CLUSTER_CHECK_GIVEN_UP,
	CLUSTER_CHECK_NOT_BEGUN,
	CLUSTER_CHECK_OUTCOMES
};
struct cluster_check {
	enum cluster_check_outcome outcome;
	double error;    // the largest of its rows
	const char *why; // in words; NULL of a passed one
};
void cluster_note_check(struct cluster *cluster, const struct cluster_device *device,
			const struct cluster_check *check);
uint64_t cluster_checks_count(const struct cluster *cluster, enum cluster_check_outcome outcome); // since the start
// The percent of the requests that are checked; and another one, by an admin: `done` is called once it is stored.
// Errors, and then `done` is not called: the store's.
double cluster_check_percent(const struct cluster *cluster);
enum status cluster_set_check_percent(struct cluster *cluster, double percent, const struct audit_actor *by,
				      void (*done)(void *context, enum status status, const struct error *error),
				      void *context, struct error *error);

// A copy from one device to another of its machine went directly, or by way of the host's memory. Where its driver says
// that it could go directly, a change of that is an event of the cluster, once, as is one that was measured.
void cluster_copied(struct cluster *cluster, const char *from_device_id, const char *to_device_id, bool direct);
// Whether they go directly, as far as is known: its driver says that they could, and no copy was refused.
bool cluster_copies(const struct cluster_device *from, const struct cluster_device *to);
// Pairs of devices of one machine that copy to each other directly, as far as is known, and of their directions the
// slowest and the fastest that is measured; 0: none is.
struct cluster_pairs {
	int64_t count;
	double slowest_bytes_per_s, fastest_bytes_per_s;
};
struct cluster_pairs cluster_peer_pairs(const struct cluster *cluster);

// Samples of the last ten minutes, in steps of at least step_ms: {columns, rows, step_s, source} without device_id.
struct json *cluster_recent_samples(const struct cluster_device *device, int64_t from_ms, int64_t to_ms,
				    int64_t step_ms);
// When the oldest and the newest of these samples came, by this machine's wall clock; 0 if there is none.
int64_t cluster_first_sample_ms(const struct cluster_device *device);
int64_t cluster_newest_sample_ms(const struct cluster_device *device);
enum { CLUSTER_SAMPLES_MS = 10 * 60 * 1000 };

// Figures that rules for alerts compare (figures.c). Numbers that are not known are NaN.
enum { CLUSTER_TITLE_BYTES = 96, CLUSTER_ENDS = 8, CLUSTER_ENDS_MS = 10 * 60 * 1000, CLUSTER_ECC_MS = 60 * 60 * 1000 };
struct cluster_node_figures {
	const char *node_id, *name, *version, *reason; // reason: of the state; NULL: none is known
	const struct json *libraries;                  // (Library of schema/api.json)
	bool online, left;                             // left: it is offline as it had said
	double memory_percent;                         // in use
	int64_t reading_ms;                            // steady: when the newest readings came; 0: never
};
struct cluster_device_figures {
	const char *device_id, *node_id;
	char title[CLUSTER_TITLE_BYTES + 80]; // with its node's name
	bool node_online, present, processor; // processor: its memory is its node's
	double memory_percent;                // in use
	double throttled;                     // by heat: 1 or 0
	double throttles_soon;                // it will be, by forecast: 1 or 0; 0 once it is
	bool memory_throttles;                // and that is the memory's limit, not the core's
	double ecc_errors;                    // that came within CLUSTER_ECC_MS
	double wrong;                         // of a browser: a spot check of its results has failed: 1 or 0
	const char *wrong_why;                // in words; ""
	double ends;        // of its workers, by themselves, within CLUSTER_ENDS_MS; CLUSTER_ENDS at most
	int64_t reading_ms; // as above
};
void cluster_each_node_figures(const struct cluster *cluster,
			       void (*each)(void *context, const struct cluster_node_figures *figures), void *context);
void cluster_each_device_figures(const struct cluster *cluster,
				 void (*each)(void *context, const struct cluster_device_figures *figures),
				 void *context);
// A worker of this device has ended by itself.
void cluster_note_end(const struct cluster *cluster, const struct cluster_device *device);
// The device's newest readings were replaced.
void cluster_note_reading(struct cluster_device *device, int64_t now_ms);

// For /metrics and the like: each device with its newest readings (NULL if there are none).
void cluster_each_device(const struct cluster *cluster,
			 void (*each)(void *context, const struct cluster_device *device, const struct json *telemetry),
			 void *context);
const char *cluster_device_id(const struct cluster_device *device);
const struct json *cluster_device_record(const struct cluster_device *device); // ReportedDevice of schema/node.json
const char *cluster_device_name(const struct cluster_device *device);
// The same, for sentences: those of one name on one machine are numbered from 0, in the order of their PCI addresses,
// as the dashboard does. Returns text.
char *cluster_device_title(const struct cluster *cluster, const struct cluster_device *device,
			   char text[CLUSTER_TITLE_BYTES]);
const char *cluster_device_node_id(const struct cluster_device *device);
bool cluster_ends_soon(const struct cluster_device *device); // its node does; see CLUSTER_ENDS_SOON_MS
const char *cluster_device_state(const struct cluster_device *device, const char **reason); // *reason may become NULL
