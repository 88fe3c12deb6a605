/* The members of the cluster: nodes that were let in, nodes that were removed, and nodes that still wait.
 * Other code decides who may join and checks the proof (server/security, server/api/nodes/join.c). The caller's
 * batch holds that decision; what is added here is stored in the same batch or not at all. Thread: the
 * loop's. */
#include "common/base/clock.h"
#include "common/wire/said.h"
#include "server/cluster/state.h"
#include "server/cluster/topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct membership {
	struct cluster *cluster;
	struct cluster_node *node;
	struct json *record;
	struct change change;
	int64_t at_ms;
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};

static struct membership *membership_create(struct cluster *cluster, struct cluster_node *node,
					    const struct cluster_move *move, const char *kind)
{
	struct membership *membership = calloc(1, sizeof(*membership));
	if (!membership)
		return NULL;
	*membership = (struct membership){.cluster = cluster,
					  .node = node,
					  .change = {.kind = kind, .level = "info", .keep = true},
					  .at_ms = clock_wall_ms(),
					  .done = move->done,
					  .context = move->context};
	snprintf(membership->change.summary, sizeof membership->change.summary, "%s", move->how);
	return membership;
}

static void membership_destroy(struct membership **pointer)
{
	struct membership *membership = *pointer;
	*pointer = NULL;
	if (!membership)
		return;
	json_destroy(&membership->record);
	free(membership);
}

bool cluster_has_node(const struct cluster *cluster, const char *node_id, bool *local)
{
	const struct cluster_node *node = cluster_find_node(cluster, node_id);
	bool here = node && node->first_seen_ms;
	if (local)
		*local = here && node->local;
	return here;
}

// ---- joining ----

static void joined(void *context, enum status status, const struct error *error)
{
	struct membership *membership = context;
	struct cluster_node *node = membership->node;
	if (!status) {
		json_destroy(&node->record);
		node->record = membership->record;
		membership->record = NULL;
		if (!node->first_seen_ms)
			node->first_seen_ms = membership->at_ms;
		node->last_seen_ms = membership->at_ms;
		if (!node->link)
			snprintf(node->state_reason, sizeof node->state_reason, "let in, not connected yet");
		cluster_push_change(membership->cluster, node, NULL, &membership->change, membership->at_ms);
	}
	membership->done(membership->context, status, error);
	membership_destroy(&membership);
}

enum status cluster_join_node(struct cluster *cluster, const struct cluster_move *move, struct store_batch **batch,
			      struct error *error)
{
	struct membership *membership = NULL;
	struct cluster_node *node = cluster_find_node(cluster, move->node_id);
	enum status status = STATUS_OK;
	if (!node)
		node = cluster_add_node(cluster, move->node_id);
	if (!node)
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "the cluster has %d nodes already", LIMIT_NODES);
	else if (node->leaving)
		status = error_set(error, STATUS_CONFLICT, "the node is being removed");
	else if (!node->record) // in the list from now on; what it is follows when it is stored
		node->record = json_copy(move->record);
	if (!status && !(membership = membership_create(cluster, node, move, "node.joined")))
		status = STATUS_OUT_OF_MEMORY;
	if (!status) {
		struct cluster_node next = *node;
		membership->record = json_copy(move->record);
		next.record = membership->record;
		next.last_seen_ms = membership->at_ms;
		if (!next.first_seen_ms)
			next.first_seen_ms = membership->at_ms;
		status = cluster_store_change(*batch, &next, NULL, &membership->change, membership->at_ms);
	}
	if (!status)
		status = store_commit(cluster->params.store, batch, joined, membership);
	if (status) {
		error_set(error, status, "the node could not be stored");
		store_batch_destroy(batch);
		membership_destroy(&membership);
	}
	return status;
}

// ---- removing ----

static void removed(void *context, enum status status, const struct error *error)
{
	struct membership *membership = context;
	struct cluster_node *node = membership->node;
	node->leaving = false;
	if (!status) {
		cluster_push_change(membership->cluster, node, NULL, &membership->change, membership->at_ms);
		topology_node_removed(membership->cluster->topology, node->node_id);
		cluster_take_out(membership->cluster, node);
	}
	membership->done(membership->context, status, error);
	membership_destroy(&membership);
}

static enum status find_removable(const struct cluster *cluster, const char *node_id, struct cluster_node **node,
				  struct error *error)
{
	*node = cluster_find_node(cluster, node_id);
	if (!*node || !(*node)->first_seen_ms) {
		error_set(error, STATUS_NOT_FOUND, "there is no node %.64s", node_id);
		error_hint(error, "exogpu nodes lists them");
		return STATUS_NOT_FOUND;
	}
	if ((*node)->leaving)
		return error_set(error, STATUS_CONFLICT, "node %.64s is being removed already", node_id);
	if (!(*node)->local)
		return STATUS_OK;
	error_set(error, STATUS_CONFLICT, "this is the server's own node, which cannot be removed");
	error_hint(error, "start the server with --no-local-node to run without it");
	return STATUS_CONFLICT;
}

enum status cluster_remove_node(struct cluster *cluster, const struct cluster_move *move, struct store_batch **batch,
				struct error *error)
{
	struct cluster_node *node;
	struct membership *membership = NULL;
	enum status status = find_removable(cluster, move->node_id, &node, error);
	if (!status && !(membership = membership_create(cluster, node, move, "node.removed")))
		status = STATUS_OUT_OF_MEMORY;
	if (!status && node->link) // stored before its row goes
		cluster_lose_node(cluster, node->node_id, node->link, "it was removed");
	if (!status)
		status = store_remove_node(*batch, node->node_id);
	if (!status)
		status = store_put_change(*batch,
					  &(struct store_change){.at_ms = membership->at_ms,
								 .kind = membership->change.kind,
								 .level = membership->change.level,
								 .node_id = node->node_id,
								 .name = json_get_string(node->record, "name", ""),
								 .summary = membership->change.summary});
	if (!status)
		status = store_commit(cluster->params.store, batch, removed, membership);
	if (status) {
		error_set(error, status, "the node could not be removed");
		store_batch_destroy(batch);
		membership_destroy(&membership);
	} else {
		node->leaving = true;
	}
	return status;
}

// ---- waiting ----

struct json *cluster_waiting_json(const struct json *record, int64_t since_ms)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_copy(record);
	json_remove(json, "link_port");
	clock_format(since_ms, at);
	json_set_string(json, "state", "pending");
	said_set(json, "state_reason", "waiting to be let in");
	json_set(json, "ends_at", json_new_null());
	json_set_bool(json, "local", false);
	json_set_string(json, "kind", "machine");
	json_set_string(json, "first_seen_at", at);
	json_set_string(json, "last_seen_at", at);
	return json;
}

// One that is known already is not taken off anybody's list when it goes; and what it is was said by itself, before.
void cluster_tell_waiting(struct cluster *cluster, const struct cluster_waiting *waiting)
{
	const char *node_id = json_get_string(waiting->record, "node_id", "");
	struct json *known = cluster_describe_node(cluster, node_id);
	struct store_change change = {.at_ms = clock_wall_ms(),
				      .kind = known && strcmp(waiting->kind, "node.waiting") != 0 ? "node.changed"
												  : waiting->kind,
				      .level = "attention",
				      .node_id = node_id,
				      .name = json_get_string(waiting->record, "name", ""),
				      .summary = waiting->summary};
	struct json *event = json_new_object();
	json_set(event, "change", cluster_change_json(&change));
	json_set(event, "node", known ? known : cluster_waiting_json(waiting->record, waiting->since_ms));
	json_set(event, "device", json_new_null());
	json_set(event, "allocations", json_new_array());
	json_set(event, "freed", json_new_array());
	json_set_bool(event, "discovering", cluster->discovering);
	events_publish(cluster->params.events, TOPIC_INVENTORY, 0, event);
}

bool cluster_of_tab(const struct cluster_node *node)
{
	return !strcmp(json_get_string(node->record, "kind", ""), "browser");
}

bool cluster_is_tab(const struct cluster *cluster, const char *node_id)
{
	const struct cluster_node *node = cluster_find_node(cluster, node_id);
	return node && cluster_of_tab(node);
}

struct json *cluster_describe_node(const struct cluster *cluster, const char *node_id)
{
	const struct cluster_node *node = cluster_find_node(cluster, node_id);
	return node && node->first_seen_ms ? cluster_node_json(node) : NULL;
}
