/* Incoming readings: keeps the newest, adds to samples and minutes, judges the device's activity, and sends one event
 * for each report. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/cluster/state.h"

#include <stdio.h>
#include <string.h>

enum {
	COMPUTING_PERCENT = 10, // from here on a device is computing, once it lasts
	IDLE_PERCENT = 5,       // and below this idle again
	COMPUTING_AFTER_MS = 2000,
	IDLE_AFTER_MS = 10000,
};

static bool throttled(const struct json *telemetry)
{
	const char *thermal = json_get_string(telemetry, "thermal_state", "");
	return !strcmp(thermal, "throttled") || !strcmp(thermal, "critical");
}

// A processor also serves the work of its machine's other devices, and computes what software renderers are given.
static bool works(const struct cluster *cluster, const struct cluster_device *device)
{
	if (!cluster->works || cluster->works(cluster->works_context, device))
		return true;
	if (strcmp(json_get_string(device->record, "kind", ""), "cpu") != 0)
		return false;
	for (size_t i = 0; i < cluster->device_count; i++)
		if (cluster->devices[i]->node == device->node &&
		    cluster->works(cluster->works_context, cluster->devices[i]))
			return true;
	return false;
}

// The state that the newest readings require, compared with the device's current state.
static enum activity called_for(const struct cluster *cluster, const struct cluster_device *device)
{
	if (throttled(device->telemetry))
		return ACTIVITY_THROTTLED;
	double use = json_get_number(device->telemetry, "utilization_percent", -1);
	if (use < IDLE_PERCENT)
		return ACTIVITY_IDLE;
	bool in_use = device->activity == ACTIVITY_COMPUTING || device->activity == ACTIVITY_OTHER;
	if (use < COMPUTING_PERCENT && !in_use) // between the two: as it was
		return ACTIVITY_IDLE;
	return works(cluster, device) ? ACTIVITY_COMPUTING : ACTIVITY_OTHER;
}

void cluster_judge_activity(struct cluster *cluster, struct cluster_device *device, int64_t now_ms)
{
	static const char *const words[] = {
		[ACTIVITY_IDLE] = "is idle",
		[ACTIVITY_OTHER] = "is in use, but not by exogpu",
		[ACTIVITY_COMPUTING] = "is computing",
		[ACTIVITY_THROTTLED] = "reduces its clock because of heat or power",
	};
	enum activity next = called_for(cluster, device);
	if (next == device->activity) {
		device->activity_since_ms = 0;
		return;
	}
	// Its work is over whether others use it or nobody does: use about 5 % begins nothing anew.
	const bool rests = next == ACTIVITY_IDLE || next == ACTIVITY_OTHER;
	const bool rested = device->activity_next == ACTIVITY_IDLE || device->activity_next == ACTIVITY_OTHER;
	if (!device->activity_since_ms || (device->activity_next != next && !(rests && rested)))
		device->activity_since_ms = now_ms;
	device->activity_next = next;
	bool begins = next == ACTIVITY_COMPUTING || (next == ACTIVITY_OTHER && device->activity == ACTIVITY_IDLE);
	int64_t patience = next == ACTIVITY_THROTTLED ? 0 : begins ? COMPUTING_AFTER_MS : IDLE_AFTER_MS;
	if (now_ms - device->activity_since_ms < patience)
		return;
	bool notable = next == ACTIVITY_THROTTLED || device->activity == ACTIVITY_THROTTLED;
	device->activity = next;
	device->activity_since_ms = 0;
	struct change change = {
		.kind = "device.state", .level = next == ACTIVITY_THROTTLED ? "attention" : "info", .keep = notable};
	snprintf(change.summary, sizeof change.summary, "%s", words[next]);
	struct store_batch *batch;
	if (notable && !store_batch_create(&batch)) {
		if (!cluster_store_change(batch, device->node, device, &change, clock_wall_ms()))
			store_commit(cluster->params.store, &batch, NULL, NULL);
		else
			store_batch_destroy(&batch);
	}
	cluster_push_change(cluster, device->node, device, &change, clock_wall_ms());
}

// The devices of a tab take no new work while it rests.
static void judge_rest(struct cluster *cluster, struct cluster_node *node, const struct json *chosen, int64_t now_ms)
{
	bool computes = false;
	for (size_t i = 0; i < cluster->device_count; i++)
		computes |= cluster->devices[i]->node == node &&
			    !strcmp(json_get_string(cluster->devices[i]->record, "kind", ""), "cpu");
	if (!cluster_of_tab(node) || !rest_look(&node->rest, node->telemetry, chosen, computes, now_ms))
		return;
	struct change change = {.kind = "device.state", .level = "info"};
	if (node->rest.why[0])
		snprintf(change.summary, sizeof change.summary, "rests: %s", node->rest.why);
	else
		snprintf(change.summary, sizeof change.summary, "takes new work again");
	for (size_t i = 0; i < cluster->device_count; i++)
		if (cluster->devices[i]->node == node)
			cluster_push_change(cluster, node, cluster->devices[i], &change, clock_wall_ms());
}

static const uint64_t KEY_START = 14695981039346656037u; // FNV-1a, 64 bits

static uint64_t add_to_key(uint64_t key, const char *text)
{
	for (; *text; text++)
		key = (key ^ (uint8_t)*text) * 1099511628211u;
	return (key ^ 0xFF) * 1099511628211u; // where one ends and the next begins
}

void cluster_report_telemetry(struct cluster *cluster, const char *node_id, const struct json *node_readings,
			      const struct json *devices, const struct json *rest)
{
	struct cluster_node *node = cluster_find_node(cluster, node_id);
	if (!node || !node->link)
		return;
	struct store_minute minutes[64];
	size_t minute_count = 0;
	struct json *event = json_new_object(), *nodes = json_new_array(), *list = json_new_array();
	int64_t now_ms = clock_steady_ms();
	uint64_t key = add_to_key(add_to_key(KEY_START, node_id),
				  json_type(node_readings) == JSON_OBJECT ? "node" : "");
	if (json_type(node_readings) == JSON_OBJECT) {
		json_destroy(&node->telemetry);
		node->telemetry = json_copy(node_readings);
		node->reading_ms = now_ms;
		json_set_string(node->telemetry, "node_id", node->node_id); // its own, whatever it says
		json_push(nodes, json_copy(node->telemetry));
		judge_rest(cluster, node, rest, now_ms);
	}
	node->last_seen_ms = clock_wall_ms();
	for (const struct json *one = json_first(devices); one; one = json_next(one)) {
		struct cluster_device *device = cluster_find_device(cluster, json_get_string(one, "device_id", ""));
		if (!device || device->node != node)
			continue;
		device->last_seen_ms = node->last_seen_ms;
		json_destroy(&device->telemetry);
		device->telemetry = json_copy(one);
		cluster_note_reading(device, now_ms);
		if (!cluster_inject_heat(cluster, device))
			cluster_note_heat(device, now_ms);
		if (cluster->reading)
			cluster->reading(cluster->reading_context, device, device->telemetry);
		cluster_guard_heat(cluster, device);
		json_push(list, json_copy(one));
		key = add_to_key(key, device->device_id);
		// The server's clock orders the history; a node's own may be off.
		if (samples_add(&device->samples, node->last_seen_ms, one, &minutes[minute_count])) {
			minutes[minute_count++].series = device->device_id;
			if (minute_count == sizeof minutes / sizeof *minutes) {
				store_add_minutes(cluster->params.store, minutes, minute_count);
				minute_count = 0;
			}
		}
		cluster_judge_activity(cluster, device, now_ms);
	}
	if (minute_count)
		store_add_minutes(cluster->params.store, minutes, minute_count);
	json_set(event, "nodes", nodes);
	json_set(event, "devices", list);
	// An event that still waits somewhere is replaced by one about the same devices, which says all that it said.
	events_publish(cluster->params.events, TOPIC_TELEMETRY, key, event);
}

struct json *cluster_recent_samples(const struct cluster_device *device, int64_t from_ms, int64_t to_ms,
				    int64_t step_ms)
{
	struct json *json = json_new_object();
	json_set_number(json, "step_s", (double)step_ms / 1000);
	json_set_string(json, "source", "samples");
	json_set(json, "columns", samples_columns());
	json_set(json, "rows", samples_rows(&device->samples, from_ms, to_ms, step_ms));
	return json;
}

int64_t cluster_first_sample_ms(const struct cluster_device *device)
{
	const struct samples *samples = &device->samples;
	return samples->count ? samples->ring[samples->first].at_ms : 0;
}

int64_t cluster_newest_sample_ms(const struct cluster_device *device)
{
	const struct samples *samples = &device->samples;
	return samples->count ? samples->ring[(samples->first + samples->count - 1) % samples->capacity].at_ms : 0;
}
