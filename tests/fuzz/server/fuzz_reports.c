/* Fuzz target: what a node says to its server (server/api/nodes/node_link.h): node.register, node.devices,
 * node.telemetry, node.log and the rest, on a real cluster; and a browser tab, from its first message on (tab.h).
 *
 * Each line is a message; its first byte says whose: `a` has proved to be nod_a, `b` is this machine's own, `t` is a
 * tab that has proved nothing: nod_t is known, with the secret that `&` stands for, and `%` is the token of an address.
 * `A`, `B` and `T` close its connection; the next message opens another. Links, models and certificates are not there,
 * and the store forgets: what it is given is stored, it says, after each line. What the cluster then tells is JSON as
 * the contract has it, which the events check by themselves, and bounds hold. */
#include "common/base/log.h"
#include "common/text/base62.h"
#include "common/wire/message.h"
#include "server/api/nodes/tab.h"
#include "server/cluster/log_lines.h"
#include "server/cluster/state.h"
#include "server/security/lends.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NODES = 2, LINES = 32 };

static const char lend_id[] = "0123456789", secret[] = "SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS";

static struct {
	struct net_loop *loop;
	struct contract *contract, *api;
	struct events *events;
	struct cluster *cluster;
	struct log_lines *log_lines;
	struct node_links *links;
	struct node_link *nodes[NODES];
	struct lends *lends;
	struct limits *limits;
	struct tab_door *tab;
	char token[LEND_TEXT_BYTES]; // of the address
} world;

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- what is not there ----

void __wrap_joins_set_cut(struct joins *joins, void (*cut)(void *context, const char *node_id, const char *reason),
			  void *context);
bool __wrap_joins_has_certificate(const struct joins *joins, const char *node_id);
enum status __wrap_joins_renew(struct joins *joins, const struct joins_renewal *renewal, struct error *error);
enum status __wrap_joins_remove(struct joins *joins, const struct joins_decision *decision, struct error *error);
void __wrap_witnesses_node_came(struct witnesses *witnesses, const char *node_id);
void __wrap_tenancy_node_back(struct tenancy *tenants, const char *node_id, const struct json *workers);
void __wrap_tenancy_worker_ended(struct tenancy *tenants, const char *node_id, const char *worker_id,
				 const char *message);
void __wrap_instances_fetching(struct instances *instances, const char *node_id, const struct json *params);
void __wrap_instances_hop_ended(struct instances *instances, const char *node_id, const struct json *params);
void __wrap_topology_report(struct topology *topology, const char *node_id, const struct json *params);

void __wrap_joins_set_cut(struct joins *joins, void (*cut)(void *context, const char *node_id, const char *reason),
			  void *context)
{
	(void)joins, (void)cut, (void)context;
}

bool __wrap_joins_has_certificate(const struct joins *joins, const char *node_id)
{
	(void)joins, (void)node_id;
	return true;
}

enum status __wrap_joins_renew(struct joins *joins, const struct joins_renewal *renewal, struct error *error)
{
	(void)joins;
	require(renewal->request_pem && renewal->node_id[0]);
	return error_set(error, STATUS_UNAVAILABLE, "no certificates are made here");
}

void __wrap_witnesses_node_came(struct witnesses *witnesses, const char *node_id)
{
	(void)witnesses, (void)node_id;
}

void __wrap_tenancy_node_back(struct tenancy *tenants, const char *node_id, const struct json *workers)
{
	(void)tenants, (void)node_id, (void)workers;
}

void __wrap_tenancy_worker_ended(struct tenancy *tenants, const char *node_id, const char *worker_id,
				 const char *message)
{
	(void)tenants;
	require(node_id[0] && strlen(worker_id) <= 4 * 64 && message);
}

void __wrap_instances_fetching(struct instances *instances, const char *node_id, const struct json *params)
{
	(void)instances, (void)node_id, (void)params;
}

void __wrap_instances_hop_ended(struct instances *instances, const char *node_id, const struct json *params)
{
	(void)instances, (void)node_id, (void)params;
}

void __wrap_topology_report(struct topology *topology, const char *node_id, const struct json *params)
{
	(void)topology, (void)params;
	require(node_id[0]);
}

// ---- the store ----

struct commit {
	struct commit *next;
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};
static struct commit *commits, **last_commit = &commits;

enum status __wrap_store_commit(struct store *store, struct store_batch **batch,
				void (*done)(void *context, enum status status, const struct error *error),
				void *context);
enum status __wrap_store_commit(struct store *store, struct store_batch **batch,
				void (*done)(void *context, enum status status, const struct error *error),
				void *context)
{
	struct commit *commit = malloc(sizeof *commit);
	(void)store;
	require(commit != NULL);
	*commit = (struct commit){.done = done, .context = context};
	*last_commit = commit;
	last_commit = &commit->next;
	store_batch_destroy(batch);
	return STATUS_OK;
}

enum status __wrap_store_load_nodes(struct store *store, void (*row)(void *context, const struct store_node *node),
				    void *context, struct error *error);
enum status __wrap_store_load_devices(struct store *store,
				      void (*row)(void *context, const struct store_device *device), void *context,
				      struct error *error);
enum status __wrap_store_load_changes(struct store *store, int limit,
				      void (*row)(void *context, const struct store_change *change), void *context,
				      struct error *error);
const char *__wrap_store_load_setting(struct store *store, const char *key);
void __wrap_store_add_minutes(struct store *store, const struct store_minute *minutes, size_t count);
enum status __wrap_audit_put(struct audit *audit, struct store_batch *batch, const struct audit_event *event);
void __wrap_audit_count(struct audit *audit, const struct audit_tally *tally);
enum status __wrap_store_load_lends(struct store *store, void (*row)(void *context, const struct store_lend *lend),
				    void *context, struct error *error);
enum status __wrap_store_load_tabs(struct store *store, void (*row)(void *context, const struct store_tab *tab),
				   void *context, struct error *error);

void __wrap_audit_count(struct audit *audit, const struct audit_tally *tally)
{
	(void)audit;
	require(tally->action[0] && tally->by);
}

enum status __wrap_store_load_lends(struct store *store, void (*row)(void *context, const struct store_lend *lend),
				    void *context, struct error *error)
{
	struct store_lend lend = {
		.lend_id = lend_id, .name = "a browser", .made_by = "owner:0", .uses = 2, .expires_ms = INT64_MAX};
	(void)store, (void)error;
	require(EVP_Digest(secret, sizeof secret - 1, lend.secret_hash, NULL, EVP_sha256(), NULL) == 1);
	row(context, &lend);
	return STATUS_OK;
}

enum status __wrap_store_load_tabs(struct store *store, void (*row)(void *context, const struct store_tab *tab),
				   void *context, struct error *error)
{
	struct store_tab tab = {.node_id = "nod_t", .lend_id = lend_id};
	(void)store, (void)error;
	require(EVP_Digest(secret, sizeof secret - 1, tab.secret_hash, NULL, EVP_sha256(), NULL) == 1);
	row(context, &tab);
	return STATUS_OK;
}

enum status __wrap_store_load_nodes(struct store *store, void (*row)(void *context, const struct store_node *node),
				    void *context, struct error *error)
{
	(void)store, (void)row, (void)context, (void)error;
	return STATUS_OK;
}

enum status __wrap_store_load_devices(struct store *store,
				      void (*row)(void *context, const struct store_device *device), void *context,
				      struct error *error)
{
	(void)store, (void)row, (void)context, (void)error;
	return STATUS_OK;
}

enum status __wrap_store_load_changes(struct store *store, int limit,
				      void (*row)(void *context, const struct store_change *change), void *context,
				      struct error *error)
{
	(void)store, (void)limit, (void)row, (void)context, (void)error;
	return STATUS_OK;
}

const char *__wrap_store_load_setting(struct store *store, const char *key)
{
	(void)store;
	require(key[0]);
	return NULL;
}

void __wrap_store_add_minutes(struct store *store, const struct store_minute *minutes, size_t count)
{
	(void)store;
	for (size_t i = 0; i < count; i++)
		require(minutes[i].series[0]);
}

enum status __wrap_audit_put(struct audit *audit, struct store_batch *batch, const struct audit_event *event)
{
	(void)audit;
	require(batch && event->action[0] && event->by);
	return STATUS_OK;
}

enum status __wrap_joins_remove(struct joins *joins, const struct joins_decision *decision, struct error *error)
{
	(void)joins, (void)error;
	require(decision->node_id[0] && decision->by->actor[0]);
	struct store_batch *none = NULL;
	return __wrap_store_commit(NULL, &none, decision->done, decision->context);
}

static void settle(void)
{
	for (struct commit *commit; (commit = commits);) { // what is done then may hand over more
		commits = commit->next;
		if (!commits)
			last_commit = &commits;
		if (commit->done)
			commit->done(commit->context, STATUS_OK, NULL);
		free(commit);
	}
}

static void begin(void)
{
	if (!world.loop) {
		log_set_level(LOG_ERROR);
		require(!net_loop_create(&world.loop, NULL) && !contract_create(&world.contract, CONTRACT_NODE, NULL) &&
			!contract_create(&world.api, CONTRACT_API, NULL));
	}
	require(!events_create(&world.events, world.api, NULL, NULL));
	const struct cluster_params cluster = {.loop = world.loop, .events = world.events};
	require(!cluster_create(&world.cluster, &cluster, NULL));
	require(!log_lines_create(&world.log_lines, world.events));
	const struct node_links_params params = {.loop = world.loop,
						 .contract = world.contract,
						 .cluster = world.cluster,
						 .events = world.events,
						 .log_lines = world.log_lines,
						 .address = "192.0.2.1"};
	require(!node_links_create(&world.links, &params));
}

static void close_tab(void)
{
	if (world.tab)
		tab_door_closed(world.tab, NULL, 1006);
	world.tab = NULL;
}

static void end(void)
{
	close_tab(); // another owner's than the nodes' connections
	settle();
	memset(world.nodes, 0, sizeof world.nodes);
	node_links_destroy(&world.links);
	settle();
	lends_destroy(&world.lends);
	log_lines_destroy(&world.log_lines);
	cluster_destroy(&world.cluster);
	settle();
	events_destroy(&world.events);
}

static void check(void)
{
	const struct cluster *cluster = world.cluster;
	struct json *lines = log_lines_json(world.log_lines, LIMIT_LOG_LINES);
	require(json_count(lines) <= LIMIT_LOG_LINES && cluster->device_count <= LIMIT_DEVICES);
	json_destroy(&lines);
	for (size_t i = 0; i < cluster->device_count; i++) {
		const struct cluster_device *device = cluster->devices[i];
		const char *reason;
		char title[CLUSTER_TITLE_BYTES];
		struct json *json = cluster_device_json(cluster, device);
		require(json && cluster_device_state(device, &reason)[0]);
		require(strlen(cluster_device_title(cluster, device, title)) < sizeof title);
		json_destroy(&json);
	}
}

static void open_tab(void)
{
	const struct tab_door_params params = {.contract = world.contract,
					       .loop = world.loop,
					       .links = world.links,
					       .lends = world.lends,
					       .limits = world.limits,
					       .peer = "192.0.2.9"};
	require(!tab_door_create(&world.tab, &params, NULL));
	tab_door_opened(world.tab, NULL);
}

// What only tabs need, and most inputs have none.
static void begin_tabs(void)
{
	struct limit_values limits;
	limit_values_init(&limits);
	if (!world.limits) { // a large table: kept for the life of the process
		require(!limits_create(&world.limits, &limits, NULL));
		const int length = snprintf(world.token, sizeof world.token, "exolend_%s_%s_", lend_id, secret);
		base62_crc(world.token, (size_t)length - 1, world.token + length);
	}
	if (!world.lends)
		require(!lends_create(&world.lends, NULL, NULL, NULL));
}

// A line with its token and secret.
static void hear_tab(const uint8_t *line, size_t length)
{
	struct buffer text;
	begin_tabs();
	buffer_init(&text, LIMIT_TAB_BYTES);
	for (size_t i = 0; i < length; i++)
		if (line[i] == '%' || line[i] == '&')
			buffer_append_text(&text, line[i] == '%' ? world.token : secret);
		else
			buffer_append_byte(&text, line[i]);
	if (!world.tab)
		open_tab();
	if (!text.failed)
		tab_door_message(world.tab, NULL, text.data, text.length, false);
	buffer_finish(&text);
	settle();
}

static void hear(const uint8_t *line, size_t length)
{
	if (line[0] == 'T') {
		close_tab();
		return;
	}
	if (line[0] == 't') {
		hear_tab(line + 1, length - 1);
		return;
	}
	static const struct node_link_params params[NODES] = {{.node_id = "nod_a", .peer = "192.0.2.7"},
							      {.local = true, .peer = ""}};
	const unsigned which = line[0] & 1 ? 0 : 1;
	if (line[0] == 'A' || line[0] == 'B') {
		if (world.nodes[which])
			node_link_closed(world.nodes[which], NULL, 1006);
		world.nodes[which] = NULL;
		return;
	}
	if (!world.nodes[which])
		world.nodes[which] = node_link_create(world.links, &params[which]);
	require(world.nodes[which] != NULL);
	node_link_message(world.nodes[which], NULL, line + 1, length - 1, false);
	settle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	for (size_t at = 0, lines = 0; at < size && lines < LINES; lines++) {
		const uint8_t *line = memchr(data + at, '\n', size - at);
		const size_t length = line ? (size_t)(line - data) - at : size - at;
		if (length)
			hear(data + at, length);
		at += length + 1;
	}
	check();
	end();
	return 0;
}
