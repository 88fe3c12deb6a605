/* What the simulation of a whole server (test_whole.c) consists of, and how a broken invariant is told. */
#pragma once
#include "common/base/log.h"
#include "common/wire/rpc.h"
#include "server/api/nodes/node_link.h"
#include "server/cluster/state.h"
#include "server/instances/instances_inside.h"
#include "server/library/models_inside.h"
#include "server/tenants/inside.h"
#include "tests/server/instances/whole/virtual.h"

#include <stdio.h>

enum {
	NODES = 3,
	DEVICES = 4,                   // GPUs; the first node has two
	ALL_DEVICES = DEVICES + NODES, // the last are the nodes' processors, which seeds with KIND_SPILL have
	MODELS = 3,
	WANTED = 4, // instances at a time, at most
	WORKERS = 2048,
	REQUESTS = 6,
	WORKER_REQUESTS = 2 * REQUESTS,
	WORKER_STAGES = 8,
	FAULTS_MS = 120000, // faults stop then
	QUIET_MS = 150000,  // and then all is well again by then
	CAPACITY_MIB = 10 * 1024,
	HOST_MIB = 14 * 1024
};
#define MIB ((uint64_t)1024 * 1024)
#define LAYER_BYTES (900 * MIB)
#define ENDS_BYTES (60 * MIB) // the embedding; the output matrix
static const unsigned model_layers[MODELS] = {4, 7, 12};

enum conn_kind { CONN_NODE, CONN_WORKER, CONN_HOP };

struct sim_worker;

// A connection between a node and the server: what the server knows as a WebSocket.
struct net_conn {
	struct net_conn *next;
	enum conn_kind kind;
	unsigned node;
	struct sim_worker *worker; // of CONN_WORKER and CONN_HOP
	char hop_id[40], end[4];   // of CONN_HOP
	int64_t hop_call;          // the node's answer to this call of the server waits for the other end
	void *user;                // the server's
	bool server_open, node_open;
	bool told; // the server, that it is closed
	unsigned pauses;
	struct letter *first, *last; // that are under way, both directions, oldest first
	int64_t last_ms;
};

struct letter {
	struct letter *next;
	struct net_conn *conn;
	bool to_server;
	int close_code; // 0: it is a message
	size_t length;
	char bytes[];
};

// What a worker generates.
struct sim_generation {
	int64_t number; // 0: none
	unsigned request, at, most;
	uint64_t turn; // of its next token
};

struct sim_stage {
	unsigned device, first_layer, layer_count, host_layers; // host_layers: in the memory of its node
};

struct sim_worker {
	bool starting, dead, ring, loading, loaded;
	unsigned node;
	char worker_id[40], key[WORKER_KEY_BYTES];
	struct net_conn *conn; // NULL: it has no line to the server
	struct rpc rpc;
	char instance_id[INSTANCE_ID_BYTES]; // of one of several parts; ""
	uint64_t epoch;
	unsigned index, count; // of parts; count 1: all of the model
	unsigned percent;      // of the time that it may work
	int64_t unpaced_ms;    // since when that is not what its devices permit; -1: it is
	struct sim_stage stages[WORKER_STAGES];
	unsigned stage_count;
	char hop_in[40], hop_out[40]; // that are connected; ""
	bool direct;                  // hop_out goes by the link of the two nodes
	struct sim_generation generations[WORKER_REQUESTS];
	int64_t unwanted_ms; // since when the server does not know it; -1: it does
};

struct sim_node {
	unsigned number;
	char node_id[16], name[16];
	unsigned first_device, device_count;
	struct net_conn *uplink; // NULL: it has none
	struct rpc rpc;
	bool slow;                  // its way to the server is
	bool registered, cut, down; // cut: nothing comes or goes; down: it does not run
	int64_t cut_ms, away_ms;    // away_ms: since when it has no server; -1: it has one
	uint64_t life;              // of the process
};

struct sim_device {
	char device_id[16], name[16];
	unsigned node;
	bool absent;
	int64_t drained_ms; // when it began to drain last
	// heat.h; of KIND_HEAT:
	double busy_ms, watts, warm_watts, air_celsius, hot_celsius;
	int64_t read_ms;
};

// What a client asks, and what it got.
struct sim_request {
	bool open;
	unsigned number, model, got, most;
	struct generation *generation;
	int64_t told_ms; // when its last token came, or it was asked
};

// What was decided last of an instance, and what the checks remember of it.
struct sim_instance {
	char instance_id[INSTANCE_ID_BYTES];
	char rule[96], reason[INSTANCE_REASON_BYTES];
	int64_t until_ms;
	enum decide_action action;
	int64_t idle_ms;                 // since when it is paused although one device has room; -1: it is not
	int64_t paused_ms;               // since when it is; -1: it is not
	int64_t without_ms;              // since when it runs without one of its workers; -1: it has them
	int64_t open_ms;                 // since when it runs although its ring is open; -1: it is closed
	int64_t heat_ms;                 // when it was changed for heat last; 0: never
	int64_t deaths_ms[LIMIT_DEATHS]; // of its workers, of themselves, the newest first
};
enum { SIM_INSTANCES = 64 };

// The link of two nodes.
enum link_state { LINK_UP, LINK_SLOW, LINK_CUT };
enum { SLOW_MS = 400, SIM_ENDS = 64 };

// A node waits for the other end of a direct hop.
struct sim_end {
	struct sim_worker *worker; // NULL: none
	char hop_id[40], end[4];
	int64_t call;
	uint64_t life; // of the node
};

// Kinds of faults that not every seed has.
enum { KIND_DISK = 1, KIND_LINKS = 2, KIND_SPILL = 4, KIND_HEAT = 8, KIND_TABS = 16 };

// Of an answer.
enum fate { FATE_WELL, FATE_TWICE, FATE_BREACH, FATE_LOST, FATES };

enum planted {
	PLANTED_NOTHING,
	PLANTED_REPEATS,        // a request that goes on is sent without what was delivered
	PLANTED_WRONG_TOKENS,   // what was delivered is remembered wrongly
	PLANTED_FORGETS_END,    // what a worker says of a request's end is passed over
	PLANTED_WRONG_PART,     // requests go to the first part
	PLANTED_WRONG_PARAMS,   // they go without their number
	PLANTED_NO_CLOSE,       // nodes are not told to end workers
	PLANTED_OVERCOMMITS,    // nothing is held of devices
	PLANTED_LAYERS_TWICE,   // a part is given a layer of the part before it
	PLANTED_EPOCHS_AGAIN,   // placements are not counted
	PLANTED_LOSS_FORGOTTEN, // the loss of a part is passed over
	PLANTED_HELD,           // models are not let go
	PLANTED_NO_SEARCH,      // decisions do not search for a place
	PLANTED_SLEEP,          // they wait for an hour
	PLANTED_LIE,            // they blame a device that is there
	PLANTED_STALE,          // they tell of the loss before
	PLANTED_CIRCLES,        // they never come to an end
	PLANTED_FAILS_EARLY,    // an instance fails at its first death
	PLANTED_TWO_BATCHES,    // row and entry are stored by two transactions
	PLANTED_TOLD_EARLY,     // a change is told before it is on disk
	PLANTED_ROW_LOST,       // a row that could not be written is not written again
	PLANTED_BREAK_MISSED,   // what nodes say of broken hops is passed over
	PLANTED_FETCH_AWAITED,  // a node that says nothing of a fetch is waited for as long as for a load
	PLANTED_NODE_BLAMED,    // what a node's restart ends counts as the death of a worker
	PLANTED_DRAIN_REFUSES,  // a model on a device that begins to drain takes no requests
	PLANTED_HEAT_FLAPS,     // a pause for heat ends at once
	PLANTED_HEAT_UNTOLD,    // workers are not told of it
	PLANTED_HEAT_HURRIES,   // instances are changed for heat again and again
	PLANTED_SPILL_STAYS,    // evicted layers are not looked after
	PLANTED_COUNT
};

static struct {
	uint64_t seed;
	enum planted planted;
	bool faults;       // still
	int64_t faults_ms; // for which there are
	bool evicts;       // idle instances may be evicted for others, and requests load models
	uint64_t fates[FATES];
	const char *broken;
	char detail[512];
	struct sim_node nodes[NODES];
	struct sim_device devices[ALL_DEVICES];
	unsigned kinds; // of KIND_
	enum link_state links[NODES][NODES];
	struct sim_end ends[SIM_ENDS];
	struct sim_worker workers[WORKERS];
	unsigned worker_count;
	struct net_conn *conns;
	struct sim_request requests[REQUESTS];
	unsigned request_number;
	struct sim_instance instances[SIM_INSTANCES];
	unsigned instance_count;
	const struct instance *deciding;
	int64_t kill_ms;  // when the server is to be killed at the latest: at the next change that is stored; 0: it is
			  // not
	int64_t ended_ms; // when the server ended last
	int64_t entry_ms; // when an entry was handed to the store last with a change of an instance
	uint64_t spills;  // loads with layers in the memory of a node
	uint64_t heat_pauses, heat_moves;   // of devices; of instances
	uint64_t direct_hops, broken_links; // hops by links; links that became slow or cut
	uint64_t tokens, requests_ended, requests_failed, adoptions, loads, kills, stops;
} world;

// The server's own parts, as server/app_parts.c makes them; but the library is filled in, and there are no doors.
static struct {
	bool there;
	struct net_loop *loop;
	char directory[96];
	struct contract *node_contract, *api_contract; // for all seeds
	struct store *store;
	struct audit *audit;
	struct events *events;
	struct usage *usage;
	struct cluster *cluster;
	struct topology *topology;
	struct tenancy *tenants;
	struct models *models;
	struct instances *instances;
	struct node_links *links;
	unsigned placing; // calls of instances_start that are not answered
} server;

static bool trace_on;
#define TRACE(...) \
	do { \
		if (trace_on) { \
			fprintf(stderr, "%8.3f ", (double)(virtual.now_ms - START_MS) / 1000); \
			fprintf(stderr, __VA_ARGS__); \
			fputc('\n', stderr); \
		} \
	} while (0)

static void broken(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void broken(const char *what, const char *format, ...)
{
	va_list arguments;
	if (world.broken)
		return;
	world.broken = what;
	const int length = snprintf(world.detail, sizeof world.detail,
				    "at %.3f s: ", (double)(virtual.now_ms - START_MS) / 1000);
	va_start(arguments, format);
	vsnprintf(world.detail + length, sizeof world.detail - (size_t)length, format, arguments);
	va_end(arguments);
	TRACE("BROKEN: %s: %s", what, world.detail);
}

void __real_log_write(enum log_level level, const char *area, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void __wrap_log_write(enum log_level level, const char *area, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

// What the server says matters where it finds a fault in itself; all of it is shown with a trace.
void __wrap_log_write(enum log_level level, const char *area, const char *format, ...)
{
	char text[1024];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	if (strstr(text, "Please report this"))
		broken("the server finds no fault in itself", "%s", text);
	if (trace_on)
		__real_log_write(level, area, "%s", text);
}

static void must(enum status status, const char *what, const struct error *error)
{
	if (!status)
		return;
	fprintf(stderr, "seed %llu: %s: %s %s\n", (unsigned long long)world.seed, what, status_text(status),
		error ? error->message : "");
	abort();
}

static enum fate draw_fate(void)
{
	const uint64_t drawn = world.faults ? draw(400) : 0;
	const enum fate fate = drawn < FATES ? (enum fate)drawn : FATE_WELL;
	world.fates[fate]++;
	return fate;
}

static struct sim_worker *sim_worker_by_id(const char *worker_id)
{
	for (unsigned i = 0; i < world.worker_count; i++)
		if (!world.workers[i].dead && !strcmp(world.workers[i].worker_id, worker_id))
			return &world.workers[i];
	return NULL;
}

static uint64_t stage_bytes(const struct sim_stage *stage)
{
	const unsigned last = stage->first_layer + stage->layer_count;
	bool ends = false;
	for (unsigned i = 0; i < MODELS; i++)
		ends |= last == model_layers[i];
	return (stage->layer_count - stage->host_layers) * LAYER_BYTES + (stage->first_layer ? 0 : ENDS_BYTES) +
	       (ends ? ENDS_BYTES : 0);
}

static unsigned host_of(unsigned node)
{
	return DEVICES + node;
}

static uint64_t capacity_bytes(unsigned device)
{
	return (device < DEVICES ? CAPACITY_MIB : HOST_MIB) * MIB;
}

// What workers really take of a device.
static uint64_t used_bytes(unsigned device)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < world.worker_count; i++) {
		const struct sim_worker *worker = &world.workers[i];
		for (unsigned j = 0; j < worker->stage_count && !worker->dead; j++) {
			if (worker->stages[j].device == device)
				bytes += stage_bytes(&worker->stages[j]);
			if (host_of(worker->node) == device)
				bytes += worker->stages[j].host_layers * LAYER_BYTES;
		}
	}
	return bytes;
}

static struct sim_instance *remembered(const char *instance_id)
{
	for (unsigned i = 0; i < world.instance_count; i++)
		if (!strcmp(world.instances[i].instance_id, instance_id))
			return &world.instances[i];
	if (world.instance_count == SIM_INSTANCES)
		abort();
	struct sim_instance *one = &world.instances[world.instance_count++];
	*one = (struct sim_instance){.idle_ms = -1, .paused_ms = -1, .without_ms = -1, .open_ms = -1};
	snprintf(one->instance_id, sizeof one->instance_id, "%s", instance_id);
	return one;
}

// A worker ends of itself: its instance, as the server knows it, has lost it for no other reason.
static void note_death(const struct sim_worker *worker)
{
	const struct worker *known = server.there ? worker_by_id(server.tenants, worker->worker_id) : NULL;
	if (!known || !known->instance)
		return;
	int64_t *deaths = remembered(known->tenant->session_id)->deaths_ms;
	memmove(deaths + 1, deaths, (LIMIT_DEATHS - 1) * sizeof *deaths);
	deaths[0] = virtual.now_ms;
}
