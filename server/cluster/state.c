/* The cluster's state: loading it, finding records, and the JSON of nodes, devices and the snapshot. See cluster.h. */
#include "server/cluster/state.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/said.h"
#include "server/cluster/topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cluster_node *cluster_find_node(const struct cluster *cluster, const char *node_id)
{
	for (size_t i = 0; i < cluster->node_count; i++)
		if (!strcmp(cluster->nodes[i]->node_id, node_id))
			return cluster->nodes[i];
	return NULL;
}

struct cluster_device *cluster_find_device(const struct cluster *cluster, const char *device_id)
{
	for (size_t i = 0; i < cluster->device_count; i++)
		if (!strcmp(cluster->devices[i]->device_id, device_id))
			return cluster->devices[i];
	return NULL;
}

// Room for one more pointer in an array of *count of *capacity.
static bool make_room(void *array, size_t count, size_t *capacity)
{
	void **pointers;
	memcpy(&pointers, array, sizeof pointers);
	if (count < *capacity)
		return true;
	size_t grown = *capacity ? *capacity * 2 : 8;
	pointers = realloc(pointers, grown * sizeof(*pointers));
	if (!pointers)
		return false;
	memcpy(array, &pointers, sizeof pointers);
	*capacity = grown;
	return true;
}

// A removed record of this id returns.
static struct cluster_node *revive_node(struct cluster *cluster, const char *node_id)
{
	for (size_t i = 0; i < cluster->gone_node_count; i++) {
		struct cluster_node *node = cluster->gone_nodes[i];
		if (strcmp(node->node_id, node_id) != 0)
			continue;
		cluster->gone_nodes[i] = cluster->gone_nodes[--cluster->gone_node_count];
		return node;
	}
	return NULL;
}

static struct cluster_device *revive_device(struct cluster *cluster, const char *device_id)
{
	for (size_t i = 0; i < cluster->gone_device_count; i++) {
		struct cluster_device *device = cluster->gone_devices[i];
		if (strcmp(device->device_id, device_id) != 0)
			continue;
		cluster->gone_devices[i] = cluster->gone_devices[--cluster->gone_device_count];
		return device;
	}
	return NULL;
}

// Room among those that are here is also made among those that are gone, so that going never fails.
struct cluster_node *cluster_add_node(struct cluster *cluster, const char *node_id)
{
	size_t all = cluster->node_count + cluster->gone_node_count;
	if (cluster->node_count >= LIMIT_NODES ||
	    !make_room(&cluster->nodes, cluster->node_count, &cluster->node_capacity) ||
	    !make_room(&cluster->gone_nodes, all, &cluster->gone_node_capacity))
		return NULL;
	struct cluster_node *node = revive_node(cluster, node_id);
	if (!node)
		node = calloc(1, sizeof(*node));
	if (!node)
		return NULL;
	snprintf(node->node_id, sizeof node->node_id, "%s", node_id);
	cluster->nodes[cluster->node_count++] = node;
	return node;
}

struct cluster_device *cluster_add_device(struct cluster *cluster, const char *device_id, struct cluster_node *node)
{
	size_t all = cluster->device_count + cluster->gone_device_count;
	if (cluster->device_count >= LIMIT_DEVICES ||
	    !make_room(&cluster->devices, cluster->device_count, &cluster->device_capacity) ||
	    !make_room(&cluster->gone_devices, all, &cluster->gone_device_capacity))
		return NULL;
	struct cluster_device *device = revive_device(cluster, device_id);
	if (!device)
		device = calloc(1, sizeof(*device));
	if (!device)
		return NULL;
	snprintf(device->device_id, sizeof device->device_id, "%s", device_id);
	device->node = node;
	cluster->devices[cluster->device_count++] = device;
	cluster_load_heat_policy(cluster, device);
	return device;
}

static void empty_device(struct cluster_device *device)
{
	struct cluster_node *node = device->node;
	json_destroy(&device->record);
	json_destroy(&device->staged);
	json_destroy(&device->ways_told);
	json_destroy(&device->telemetry);
	samples_finish(&device->samples);
	cluster_forget_heat(device);
	struct cluster_device shell = {.node = node};
	memcpy(shell.device_id, device->device_id, sizeof shell.device_id);
	*device = shell;
}

static void empty_node(struct cluster_node *node)
{
	json_destroy(&node->record);
	json_destroy(&node->telemetry);
	while (node->reports) {
		struct device_report *report = node->reports;
		node->reports = report->next;
		json_destroy(&report->devices);
		free(report);
	}
	struct cluster_node shell = {0};
	memcpy(shell.node_id, node->node_id, sizeof shell.node_id);
	*node = shell;
}

void cluster_take_out(struct cluster *cluster, struct cluster_node *node)
{
	size_t kept = 0;
	for (size_t i = 0; i < cluster->device_count; i++) {
		struct cluster_device *device = cluster->devices[i];
		if (device->node != node) {
			cluster->devices[kept++] = device;
			continue;
		}
		empty_device(device);
		cluster->gone_devices[cluster->gone_device_count++] = device;
	}
	cluster->device_count = kept;
	kept = 0;
	for (size_t i = 0; i < cluster->node_count; i++)
		if (cluster->nodes[i] != node)
			cluster->nodes[kept++] = cluster->nodes[i];
	cluster->node_count = kept;
	empty_node(node);
	cluster->gone_nodes[cluster->gone_node_count++] = node;
}

static void load_node(void *context, const struct store_node *row)
{
	struct json *record;
	struct cluster *cluster = context;
	if (json_parse(&record, row->record, strlen(row->record), NULL)) {
		log_warning("cluster", "the record of node %s is damaged; it is created again when the node reports",
			    row->node_id);
		return;
	}
	struct cluster_node *node = cluster_add_node(cluster, row->node_id);
	if (!node) {
		json_destroy(&record);
		return;
	}
	node->record = record;
	node->local = json_get_bool(record, "local", false);
	json_remove(record, "local");
	node->first_seen_ms = row->first_seen_ms;
	node->last_seen_ms = row->last_seen_ms;
	snprintf(node->state_reason, sizeof node->state_reason, "not connected since the server started");
	cluster_load_failed_check(cluster, node);
}

static void load_device(void *context, const struct store_device *row)
{
	struct json *record;
	struct cluster *cluster = context;
	struct cluster_node *node = cluster_find_node(cluster, row->node_id);
	if (!node || json_parse(&record, row->record, strlen(row->record), NULL)) {
		log_warning("cluster", "the record of device %s is damaged; it is created again when its node reports",
			    row->device_id);
		return;
	}
	struct cluster_device *device = cluster_add_device(cluster, row->device_id, node);
	if (!device) {
		json_destroy(&record);
		return;
	}
	if (!json_get(record, "largest_buffer_bytes")) // stored before nodes told it
		json_set_null(record, "largest_buffer_bytes");
	device->record = record;
	device->draining = row->draining;
	device->first_seen_ms = row->first_seen_ms;
	// Readings are not stored one by one: a device was there for as long as its node, unless the node had lost it.
	device->last_seen_ms = row->last_seen_ms;
	if (device->last_seen_ms < node->last_seen_ms && json_get_bool(record, "present", true))
		device->last_seen_ms = node->last_seen_ms;
	snprintf(device->hardware_key, sizeof device->hardware_key, "%s", row->hardware_key);
	// What was verified before this start is not verified now.
	json_set_string((struct json *)json_get(record, "verification"), "state", "pending");
}

static void load_change(void *context, const struct store_change *row)
{
	struct cluster *cluster = context;
	if (cluster->recent_count < LIMIT_RECENT_CHANGES)
		cluster->recent[cluster->recent_count++] = cluster_change_json(row);
}

enum status cluster_create(struct cluster **out, const struct cluster_params *params, struct error *error)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	*out = NULL;
	if (!cluster)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	cluster->params = *params;
	cluster_load_checks(cluster);
	enum status status = store_load_nodes(params->store, load_node, cluster, error);
	if (!status)
		status = store_load_devices(params->store, load_device, cluster, error);
	if (!status)
		status = store_load_changes(params->store, LIMIT_RECENT_CHANGES, load_change, cluster, error);
	if (status)
		cluster_destroy(&cluster);
	*out = cluster;
	return status;
}

static void store_last_seen(struct cluster *cluster)
{
	struct store_batch *batch;
	if (store_batch_create(&batch))
		return;
	bool any = false;
	for (size_t i = 0; i < cluster->node_count; i++)
		if (cluster->nodes[i]->link && !cluster_put_node(batch, cluster->nodes[i]))
			any = true;
	if (any)
		store_commit(cluster->params.store, &batch, NULL, NULL);
	else
		store_batch_destroy(&batch);
}

void cluster_destroy(struct cluster **pointer)
{
	struct cluster *cluster = *pointer;
	if (!cluster)
		return;
	*pointer = NULL;
	net_timer_stop(cluster->params.loop, &cluster->discovery_limit);
	store_last_seen(cluster);
	while (cluster->node_count)
		cluster_take_out(cluster, cluster->nodes[0]);
	for (size_t i = 0; i < cluster->gone_device_count; i++)
		free(cluster->gone_devices[i]);
	for (size_t i = 0; i < cluster->gone_node_count; i++)
		free(cluster->gone_nodes[i]);
	for (size_t i = 0; i < cluster->recent_count; i++)
		json_destroy(&cluster->recent[i]);
	free(cluster->gone_devices);
	free(cluster->gone_nodes);
	free(cluster->devices);
	free(cluster->nodes);
	free(cluster);
}

static void set_time(struct json *object, const char *name, int64_t at_ms)
{
	char at[CLOCK_TEXT_BYTES];
	json_set_string(object, name, clock_format(at_ms, at));
}

// Beside `name` of each member of a list.
static void say_each(struct json *json, const char *list, const char *name)
{
	for (const struct json *one = json_first(json_get(json, list)); one; one = json_next(one))
		said_beside((struct json *)one, name);
}

static const char about_to_end[] = "it is about to leave: its models move to other machines";

bool cluster_ends_soon(const struct cluster_device *device)
{
	const struct cluster_link *link = device->node->link;
	return link && link->ends_ms && link->ends_ms - clock_wall_ms() < CLUSTER_ENDS_SOON_MS;
}

struct json *cluster_node_json(const struct cluster_node *node)
{
	struct json *json = json_copy(node->record);
	json_remove(json, "link_port"); // other nodes are told, by server/cluster/topology/topology.c
	json_set_string(json, "state", !node->link ? "offline" : node->link->drains ? "draining" : "online");
	said_set(json, "state_reason",
		 node->link              ? node->link->drains ? about_to_end : NULL
		 : node->state_reason[0] ? node->state_reason
					 : NULL);
	if (node->link && node->link->ends_ms)
		set_time(json, "ends_at", node->link->ends_ms);
	else
		json_set(json, "ends_at", json_new_null());
	json_set_bool(json, "local", node->local);
	if (!json_get(json, "kind"))
		json_set_string(json, "kind", "machine");
	say_each(json, "backends", "reason");
	say_each(json, "libraries", "reason");
	say_each(json, "libraries", "hint");
	set_time(json, "first_seen_at", node->first_seen_ms);
	set_time(json, "last_seen_at", node->last_seen_ms);
	return json;
}

const char *cluster_device_state(const struct cluster_device *device, const char **reason)
{
	*reason = NULL;
	if (!device->node->link) {
		*reason = "its node is offline";
		return "offline";
	}
	if (!json_get_bool(device->record, "present", true)) {
		*reason = "its node no longer finds it";
		return "offline";
	}
	if (!strcmp(json_get_string(device->record, "support", ""), "unsupported")) {
		*reason = json_get_string(device->record, "support_reason", NULL);
		return "unsupported";
	}
	if (device->draining) {
		*reason = "gets no new work until it is returned to service";
		return "draining";
	}
	if (device->node->link->drains) {
		*reason = "its machine is about to leave";
		return "resting";
	}
	if (device->node->rest.why[0]) {
		*reason = device->node->rest.why;
		return "resting";
	}
	switch (device->activity) {
	case ACTIVITY_IDLE:
		return "idle";
	case ACTIVITY_OTHER:
		*reason = "in use, but no model or session of exogpu works on it";
		return "idle";
	case ACTIVITY_COMPUTING:
		return "computing";
	case ACTIVITY_THROTTLED:
		*reason = "its clock is reduced because of heat or power";
		return "throttled";
	}
	return "idle";
}

struct json *cluster_device_json(const struct cluster *cluster, const struct cluster_device *device)
{
	const char *reason;
	struct json *json = json_copy(device->record);
	json_remove(json, "hardware_key");
	json_remove(json, "present");
	json_remove(json, "peer_speeds");
	said_beside(json, "support_reason");
	said_beside((struct json *)json_get(json, "verification"), "error");
	json_set(json, "peers", cluster_peers_json(cluster, device));
	json_set(json, "spot_checks",
		 cluster_of_tab(device->node) ? cluster_checks_json(device->node) : json_new_null());
	json_set_string(json, "node_id", device->node->node_id);
	json_set_string(json, "state", cluster_device_state(device, &reason));
	said_set(json, "state_reason", reason);
	json_set_bool(json, "draining", device->draining);
	set_time(json, "first_seen_at", device->first_seen_ms);
	set_time(json, "last_seen_at", device->last_seen_ms);
	return json;
}

struct json *cluster_telemetry(const struct cluster *cluster)
{
	struct json *json = json_new_object(), *nodes = json_new_array(), *devices = json_new_array();
	for (size_t i = 0; i < cluster->node_count; i++)
		if (cluster->nodes[i]->telemetry)
			json_push(nodes, json_copy(cluster->nodes[i]->telemetry));
	for (size_t i = 0; i < cluster->device_count; i++)
		if (cluster->devices[i]->telemetry)
			json_push(devices, json_copy(cluster->devices[i]->telemetry));
	json_set(json, "nodes", nodes);
	json_set(json, "devices", devices);
	return json;
}

struct json *cluster_snapshot(const struct cluster *cluster)
{
	static const char *const not_yet[] = {"models", "instances", "alerts"}; // others know them
	struct json *json = json_new_object(), *nodes = json_new_array(), *devices = json_new_array();
	struct json *recent = json_new_array();
	json_set_string(json, "epoch", events_epoch(cluster->params.events));
	json_set_integer(json, "seq", events_seq(cluster->params.events));
	json_set_bool(json, "discovering", cluster->discovering);
	for (size_t i = 0; i < cluster->node_count; i++)
		if (cluster->nodes[i]->first_seen_ms) // it is stored
			json_push(nodes, cluster_node_json(cluster->nodes[i]));
	for (size_t i = 0; i < cluster->device_count; i++)
		json_push(devices, cluster_device_json(cluster, cluster->devices[i]));
	for (size_t i = 0; i < cluster->recent_count; i++)
		json_push(recent, json_copy(cluster->recent[i]));
	json_set(json, "nodes", nodes);
	json_set(json, "devices", devices);
	for (size_t i = 0; i < sizeof not_yet / sizeof *not_yet; i++)
		json_set(json, not_yet[i], json_new_array());
	json_set(json, "links", topology_links_json(cluster->topology));
	json_set(json, "telemetry", cluster_telemetry(cluster));
	json_set(json, "recent", recent);
	return json;
}

enum status cluster_put_node(struct store_batch *batch, const struct cluster_node *node)
{
	struct buffer text;
	struct json *record = json_copy(node->record);
	buffer_init(&text, LIMIT_HEAD_BYTES);
	json_set_bool(record, "local", node->local);
	enum status status = json_print(record, &text);
	struct store_node row = {.node_id = node->node_id,
				 .name = json_get_string(node->record, "name", ""),
				 .record = buffer_text(&text),
				 .first_seen_ms = node->first_seen_ms,
				 .last_seen_ms = node->last_seen_ms};
	if (!status)
		status = store_put_node(batch, &row);
	json_destroy(&record);
	buffer_finish(&text);
	return status;
}

enum status cluster_put_device(struct store_batch *batch, const struct cluster_device *device)
{
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES);
	enum status status = json_print(device->record, &text);
	struct store_device row = {.device_id = device->device_id,
				   .node_id = device->node->node_id,
				   .hardware_key = device->hardware_key,
				   .record = buffer_text(&text),
				   .draining = device->draining,
				   .first_seen_ms = device->first_seen_ms,
				   .last_seen_ms = device->last_seen_ms};
	if (!status)
		status = store_put_device(batch, &row);
	buffer_finish(&text);
	return status;
}

void cluster_each_device(const struct cluster *cluster,
			 void (*each)(void *context, const struct cluster_device *device, const struct json *telemetry),
			 void *context)
{
	for (size_t i = 0; i < cluster->device_count; i++)
		each(context, cluster->devices[i], cluster->devices[i]->telemetry);
}

void cluster_listen(struct cluster *cluster,
		    void (*lost)(void *context, const char *node_id, const char *device_id, const char *why),
		    void *context)
{
	cluster->lost = lost;
	cluster->lost_context = context;
}

void cluster_listen_readings(struct cluster *cluster,
			     void (*reading)(void *context, const struct cluster_device *device,
					     const struct json *telemetry),
			     void *context)
{
	cluster->reading = reading;
	cluster->reading_context = context;
}

void cluster_ask_work(struct cluster *cluster, cluster_works *works, void *context)
{
	cluster->works = works;
	cluster->works_context = context;
}

void cluster_tell_lost(const struct cluster *cluster, const char *node_id, const char *device_id, const char *why)
{
	if (cluster->lost)
		cluster->lost(cluster->lost_context, node_id, device_id, why);
}

enum status cluster_ask(const struct cluster *cluster, const char *node_id, const char *method, struct json *params,
			cluster_answer *answer, void *context)
{
	const struct cluster_node *node = cluster_find_node(cluster, node_id);
	if (!node || !node->link) {
		json_destroy(&params);
		return STATUS_UNAVAILABLE;
	}
	return node->link->ask(node->link, method, params, answer, context);
}

int64_t cluster_node_silence_ms(const struct cluster *cluster, const char *node_id)
{
	const struct cluster_node *node = cluster_find_node(cluster, node_id);
	return node && node->link && node->link->silence_ms ? node->link->silence_ms(node->link) : 0;
}

const struct json *cluster_device_record(const struct cluster_device *device)
{
	return device->record;
}

const char *cluster_device_id(const struct cluster_device *device)
{
	return device->device_id;
}

const char *cluster_device_name(const struct cluster_device *device)
{
	return json_get_string(device->record, "name", "");
}

static int by_slot(const struct cluster_device *one, const struct cluster_device *other)
{
	const int order = strcmp(json_get_string(one->record, "pci_address", ""),
				 json_get_string(other->record, "pci_address", ""));
	return order ? order : strcmp(one->device_id, other->device_id);
}

char *cluster_device_title(const struct cluster *cluster, const struct cluster_device *device,
			   char text[CLUSTER_TITLE_BYTES])
{
	const char *name = cluster_device_name(device);
	unsigned alike = 0, before = 0;
	for (size_t i = 0; i < cluster->device_count; i++) {
		const struct cluster_device *other = cluster->devices[i];
		if (other->node != device->node || strcmp(cluster_device_name(other), name) != 0)
			continue;
		alike++;
		before += by_slot(other, device) < 0;
	}
	if (alike > 1)
		snprintf(text, CLUSTER_TITLE_BYTES, "%.76s \u00b7 %u", name, before);
	else
		snprintf(text, CLUSTER_TITLE_BYTES, "%.76s", name);
	return text;
}

const char *cluster_device_node_id(const struct cluster_device *device)
{
	return device->node->node_id;
}
