/* Changes of nodes, devices and models that people are told of: kept in the store, listed with the recent ones, and
 * events of the topic inventory. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/said.h"
#include "server/cluster/state.h"

#include <string.h>

struct json *cluster_change_json(const struct store_change *row)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *change = json_new_object();
	json_set_string(change, "at", clock_format(row->at_ms, at));
	json_set_string(change, "kind", row->kind);
	json_set_string(change, "level", row->level);
	json_set_string(change, "node_id", row->node_id);
	json_set_string(change, "device_id", row->device_id);
	json_set_string(change, "name", row->name);
	said_set(change, "summary", row->summary);
	return change;
}

enum status cluster_store_change(struct store_batch *batch, const struct cluster_node *node,
				 const struct cluster_device *device, const struct change *change, int64_t at_ms)
{
	enum status status = device ? cluster_put_device(batch, device) : cluster_put_node(batch, node);
	if (status || !change->keep)
		return status;
	const struct json *record = device ? device->record : node->record;
	struct store_change row = {.at_ms = at_ms,
				   .kind = change->kind,
				   .level = change->level,
				   .node_id = node->node_id,
				   .device_id = device ? device->device_id : NULL,
				   .name = json_get_string(record, "name", ""),
				   .summary = change->summary};
	return store_put_change(batch, &row);
}

static bool is_of_model(const struct store_change *change)
{
	return !strncmp(change->kind, "model.", 6);
}

// In the log a device goes by its title, and by its node's name where there are several; a node by its id, too, where
// another has its name.
static void log_change(const struct cluster *cluster, const struct store_change *change,
		       const struct cluster_device *device)
{
	char title[CLUSTER_TITLE_BYTES];
	const char *node = device ? json_get_string(device->node->record, "name", "") : change->name;
	unsigned alike = 0;
	for (size_t i = 0; i < cluster->node_count; i++)
		alike += !strcmp(json_get_string(cluster->nodes[i]->record, "name", ""), node);
	const bool named = !device || cluster->node_count > 1;
	log_info("cluster", "%s%s%s%s%s%s: %s", device ? cluster_device_title(cluster, device, title) : "",
		 device && named ? " of " : "", named ? node : "", alike > 1 ? " (" : "",
		 alike > 1 ? change->node_id : "", alike > 1 ? ")" : "", change->summary);
}

// Push a change, and whom it is about as it is now: `about` and `device`, NULL where that did not change.
static void push(struct cluster *cluster, const struct store_change *told_change, bool keep,
		 const struct cluster_node *about, const struct cluster_device *device)
{
	struct json *event = json_new_object(), *told = cluster_change_json(told_change);
	if (keep) {
		if (cluster->recent_count == LIMIT_RECENT_CHANGES)
			json_destroy(&cluster->recent[--cluster->recent_count]);
		memmove(cluster->recent + 1, cluster->recent, cluster->recent_count * sizeof(*cluster->recent));
		cluster->recent[0] = json_copy(told);
		cluster->recent_count++;
		if (!is_of_model(told_change)) // what loads and ends it has a line of its own in the log
			log_change(cluster, told_change, device);
	}
	json_set(event, "change", told);
	json_set(event, "node", about ? cluster_node_json(about) : json_new_null());
	json_set(event, "device", device ? cluster_device_json(cluster, device) : json_new_null());
	json_set(event, "allocations", json_new_array());
	json_set(event, "freed", json_new_array());
	json_set_bool(event, "discovering", cluster->discovering);
	events_publish(cluster->params.events, TOPIC_INVENTORY, 0, event);
}

void cluster_push_change(struct cluster *cluster, const struct cluster_node *node, const struct cluster_device *device,
			 const struct change *change, int64_t at_ms)
{
	const struct json *record = device ? device->record : node->record;
	const struct store_change row = {.at_ms = at_ms,
					 .kind = change->kind,
					 .level = change->level,
					 .node_id = node->node_id,
					 .device_id = device ? device->device_id : NULL,
					 .name = json_get_string(record, "name", ""),
					 .summary = change->summary};
	push(cluster, &row, change->keep, device ? NULL : node, device);
}

static void keep(struct cluster *cluster, const struct store_change *row)
{
	struct store_batch *batch;
	if (!store_batch_create(&batch)) {
		if (!store_put_change(batch, row))
			store_commit(cluster->params.store, &batch, NULL, NULL);
		else
			store_batch_destroy(&batch);
	}
	push(cluster, row, true, NULL, NULL);
}

void cluster_note(struct cluster *cluster, const struct cluster_node *node, const struct change *change)
{
	keep(cluster, &(struct store_change){.at_ms = clock_wall_ms(),
					     .kind = change->kind,
					     .level = change->level,
					     .node_id = node->node_id,
					     .name = json_get_string(node->record, "name", ""),
					     .summary = change->summary});
}

void cluster_note_model(struct cluster *cluster, const struct cluster_news *news)
{
	keep(cluster, &(struct store_change){.at_ms = clock_wall_ms(),
					     .kind = news->kind,
					     .level = news->level,
					     .node_id = news->node_id,
					     .name = news->model,
					     .summary = news->summary});
}
