/* The inside of struct cluster, for the files of this folder. Thread: the loop's. */
#pragma once
#include "server/cluster/cluster.h"
#include "server/cluster/heat.h"
#include "server/cluster/rest.h"
#include "server/cluster/samples.h"

// A report of devices that waits for its turn.
struct device_report {
	struct device_report *next;
	struct json *devices;
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};

// Spot checks of a browser's results since the server was started, and what it computed wrong.
struct node_checks {
	uint64_t counts[CLUSTER_CHECK_OUTCOMES];
	double largest; // error
	int64_t at_ms;  // the last one, wall clock; 0: none
	enum cluster_check_outcome last;
	char why[600];   // of the last one; ""
	char wrong[600]; // stored; "": nothing, as far as is known
};

struct cluster_node {
	char node_id[STORE_ID_BYTES];
	struct json *record; // NodeRecord
	bool local;
	struct cluster_link *link;     // NULL: offline
	struct cluster_link *arriving; // whose registration is being stored
	char state_reason[160];
	bool left; // it is offline as it had said that it would be
	int64_t first_seen_ms, last_seen_ms;
	struct json *telemetry;        // NodeTelemetry, newest; NULL
	int64_t reading_ms;            // steady: when that came
	struct device_report *reports; // that came while one is being stored, oldest first
	bool storing;                  // a report is being stored
	struct topology_from *ways;    // its links, as topology.c has them; NULL: none
	bool leaving;                  // its removal is being stored: nothing of it is stored any more
	int64_t news_ms; // of a tab: since when, steady, so many of its news were entries of the audit log
	unsigned news;
	struct rest rest; // of a tab
	struct node_checks checks;
};

// ACTIVITY_OTHER: it is in use, and nothing of exogpu works there.
enum activity { ACTIVITY_IDLE, ACTIVITY_OTHER, ACTIVITY_COMPUTING, ACTIVITY_THROTTLED };

struct cluster_device {
	char device_id[STORE_ID_BYTES];
	struct cluster_node *node;
	char hardware_key[STORE_NAME_BYTES];
	struct json *record; // ReportedDevice
	bool draining;
	struct json
		*staged; // ids of devices that its copies reach by way of the host only, though they should not; NULL
	struct json *ways_told;  // by ids of devices: which way copies to each went when that was told last; NULL
	int64_t staged_since_ms; // how often that was told of since then
	unsigned staged_told;
	enum activity activity;
	int64_t activity_since_ms; // since when the readings have called for another activity; 0: they do not
	enum activity activity_next;
	int64_t first_seen_ms, last_seen_ms;
	struct json *telemetry; // DeviceTelemetry, newest; NULL
	int64_t reading_ms;     // steady: when that came
	struct samples samples;
	int64_t ends_ms[CLUSTER_ENDS]; // steady: of its workers, the newest at (ends - 1) % CLUSTER_ENDS
	unsigned ends;
	struct thermal_model *heat[HEAT_SENSORS];       // NULL: nothing to learn from was read yet (heat.c)
	unsigned heat_warnings[HEAT_SENSORS];           // readings in a row by which it reaches its limit soon
	int64_t heat_warned_ms[HEAT_SENSORS];           // the newest of two or more; 0: none yet
	struct thermal_guard heat_guards[HEAT_SENSORS]; // of each sensor; the stricter one counts
	struct thermal_policy heat_policy;              // where heat_policy_set: somebody has set it
	bool heat_policy_set;
	// In the place of its readings (heat_inject.c): the last line, its time, and where the next one begins.
	struct json *injected;
	int64_t injected_ms;
	long injected_offset;
	int64_t heat_ms;    // when the newest readings came, by the clock of these
	int64_t guarded_ms; // when those came that the guard has looked at last; 0: none yet
	// Uncorrected memory errors: the newest count, how many came within an hour of each other, and when the first
	// count and the newest error came (steady; 0: not yet).
	double ecc_count, ecc_new;
	int64_t ecc_first_ms, ecc_new_ms;
};

struct cluster {
	struct cluster_params params;
	struct cluster_node **nodes;
	struct cluster_device **devices;
	size_t node_count, device_count, node_capacity, device_capacity;
	// Nodes and devices that were removed. Others may still point at them, so they stay, as empty shells, until
	// they come back or the server ends.
	struct cluster_node **gone_nodes;
	struct cluster_device **gone_devices;
	size_t gone_node_count, gone_device_count, gone_node_capacity, gone_device_capacity;
	void (*lost)(void *context, const char *node_id, const char *device_id, const char *why); // may be NULL
	void *lost_context;
	void (*reading)(void *context, const struct cluster_device *device, const struct json *telemetry); // or NULL
	void *reading_context;
	double check_percent; // of requests
	uint64_t check_counts[CLUSTER_CHECK_OUTCOMES];
	struct json *recent[LIMIT_RECENT_CHANGES]; // Change, newest first
	size_t recent_count;
	struct topology *topology; // NULL until it was made; topology.h
	bool discovering;          // ready.c
	struct net_timer discovery_limit;
	cluster_works *works; // NULL: nobody knows
	void *works_context;
	void (*discovered)(void *context); // may be NULL
	void *discovered_context;
};

// The device's newest readings were replaced: what it is doing, and its thermal models learn from them. now_ms: steady.
void cluster_judge_activity(struct cluster *cluster, struct cluster_device *device, int64_t now_ms);
void cluster_note_heat(struct cluster_device *device, int64_t now_ms);
// Take what a test has put in the place of its readings. False: there is nothing (heat_inject.c).
bool cluster_inject_heat(struct cluster *cluster, struct cluster_device *device);
// Its guard decides what happens to the work on it (heat_guard.c).
void cluster_guard_heat(struct cluster *cluster, struct cluster_device *device);
void cluster_load_heat_policy(struct cluster *cluster, struct cluster_device *device);
int64_t cluster_heat_age_ms(const struct cluster_device *device); // of the newest readings
// The temperature at which it slows itself down for this sensor; NaN: it does not tell.
double cluster_heat_limit(const struct cluster_device *device, enum heat_sensor sensor);
const struct thermal_guard *cluster_strict_guard(const struct cluster_device *device); // that gives the least time
void cluster_forget_heat(struct cluster_device *device);

void cluster_load_checks(struct cluster *cluster);
void cluster_load_failed_check(struct cluster *cluster, struct cluster_node *node);
// A device's record, as its node reports it: it has failed if the node has computed wrong.
void cluster_judge_record(const struct cluster_node *node, struct json *record);
void cluster_trust_again(struct cluster *cluster, struct cluster_node *node); // an admin has it verified
struct json *cluster_checks_json(const struct cluster_node *node);            // SpotChecks of schema/api.json

void cluster_tell_lost(const struct cluster *cluster, const char *node_id, const char *device_id, const char *why);
bool cluster_of_tab(const struct cluster_node *node); // it is a browser tab
struct cluster_node *cluster_find_node(const struct cluster *cluster, const char *node_id);
struct cluster_node *cluster_add_node(struct cluster *cluster, const char *node_id);
struct cluster_device *cluster_add_device(struct cluster *cluster, const char *device_id, struct cluster_node *node);

// Take a node and its devices out of the state.
void cluster_take_out(struct cluster *cluster, struct cluster_node *node);

// A change, told to a person: what the store keeps and the event carries.
struct change {
	const char *kind, *level;
	bool keep; // in the store and the list of recent changes
	char summary[256];
};
// Put node or device (one of them NULL) and the change into a batch.
enum status cluster_store_change(struct store_batch *batch, const struct cluster_node *node,
				 const struct cluster_device *device, const struct change *change, int64_t at_ms);
// Push it, once it is stored.
void cluster_push_change(struct cluster *cluster, const struct cluster_node *node, const struct cluster_device *device,
			 const struct change *change, int64_t at_ms);
// Store and push a change that is about neither: the node is whom it is told of.
void cluster_note(struct cluster *cluster, const struct cluster_node *node, const struct change *change);
// DevicePeer of each that it says it copies to directly (peers.c).
struct json *cluster_peers_json(const struct cluster *cluster, const struct cluster_device *device);
// Before a device's record is replaced by `next`: what is measured anew counts more than what copies have shown.
void cluster_next_record(struct cluster *cluster, struct cluster_device *device, const struct json *next);
// Tell of each direction from this device that goes another way than was told.
void cluster_judge_peers(struct cluster *cluster, struct cluster_device *device);
struct json *cluster_node_json(const struct cluster_node *node);
struct json *cluster_change_json(const struct store_change *change);
// A node's row and a device's row, with their record printed into *text.
enum status cluster_put_node(struct store_batch *batch, const struct cluster_node *node);
enum status cluster_put_device(struct store_batch *batch, const struct cluster_device *device);
