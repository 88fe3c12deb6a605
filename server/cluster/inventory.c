/* Changes of the inventory: nodes that come and go, devices that they report, and what a person
 * asks of a device. Each change is worked out, given to the store, and applied and published when
 * it is on disk. A proposal (struct proposal) carries what is to be applied. Its node and devices
 * stay valid even if they are removed (membership.c), as empty shells. A failed commit changes
 * nothing here: the node reports again when it reconnects or sees something new. Thread: the
 * loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/cluster/state.h"
#include "server/cluster/topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One device of a report that is being stored.
struct device_change {
	struct cluster_device *device; // NULL: new
	char device_id[STORE_ID_BYTES], hardware_key[STORE_NAME_BYTES];
	struct json *record;
	struct change change;
};

struct proposal {
	struct cluster *cluster;
	struct cluster_node *node;
	int64_t at_ms;
	// a node's registration
	struct json *record;
	bool local, known;
	struct cluster_link *link;
	struct change change;
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
	// a report of devices
	struct device_change *devices;  // (device_count)
	size_t device_count, new_count; // new_count: those of them that are not in the cluster yet
	// draining
	struct cluster_device *device;
	bool drain;
	cluster_device_done *device_done;
};

static struct proposal *proposal_create(struct cluster *cluster, struct cluster_node *node)
{
	struct proposal *proposal = calloc(1, sizeof(*proposal));
	if (proposal) {
		proposal->cluster = cluster;
		proposal->node = node;
		proposal->at_ms = clock_wall_ms();
	}
	return proposal;
}

static void proposal_destroy(struct proposal **pointer)
{
	struct proposal *proposal = *pointer;
	if (!proposal)
		return;
	*pointer = NULL;
	json_destroy(&proposal->record);
	for (size_t i = 0; i < proposal->device_count; i++)
		json_destroy(&proposal->devices[i].record);
	free(proposal->devices);
	free(proposal);
}

// A node's coming and going, in the batch of the change. What fails here fails the batch.
static void put_on_record(struct cluster *cluster, struct store_batch *batch, const char *node_id,
			  const struct audit_actor *by, const struct change *change)
{
	const struct audit_event event = {.by = by, .action = change->kind, .target = node_id, .node_id = node_id};
	audit_put(cluster->params.audit, batch, &event);
}

// Whoever holds a phone can let its tab say one thing and the other all the time. What is too much is not taken, and
// counted as every refusal.
static enum status take_news(struct cluster *cluster, struct cluster_node *node, const struct audit_tally *told,
			     unsigned count, struct error *error)
{
	const int64_t now_ms = clock_steady_ms();
	if (!count || !cluster_of_tab(node))
		return STATUS_OK;
	if (now_ms - node->news_ms >= LIMIT_TAB_NEWS_MS) {
		node->news_ms = now_ms;
		node->news = 0;
	}
	if (count <= LIMIT_TAB_NEWS - node->news) {
		node->news += count;
		return STATUS_OK;
	}
	audit_count(cluster->params.audit, told);
	error_hint(error, "try again in %d s", LIMIT_TAB_NEWS_MS / 1000);
	return error_set(error, STATUS_RATE_LIMITED, "this browser tab has told of %d changes within %d s",
			 LIMIT_TAB_NEWS, LIMIT_TAB_NEWS_MS / 1000);
}

// ---- a node registers ----

static void push_all_devices(struct cluster *cluster, struct cluster_node *node, const char *summary, int64_t at_ms)
{
	struct change change = {.kind = "device.changed", .level = "info"};
	snprintf(change.summary, sizeof change.summary, "%s", summary);
	for (size_t i = 0; i < cluster->device_count; i++)
		if (cluster->devices[i]->node == node)
			cluster_push_change(cluster, node, cluster->devices[i], &change, at_ms);
}

// Forgets what copies have shown, because it says nothing about future ones; measurements stay.
static void forget_copies(struct cluster *cluster, const struct cluster_node *node)
{
	for (size_t i = 0; i < cluster->device_count; i++)
		if (cluster->devices[i]->node == node)
			json_destroy(&cluster->devices[i]->staged);
}

static void judge_copies(struct cluster *cluster, const struct cluster_node *node)
{
	for (size_t i = 0; i < cluster->device_count; i++) {
		struct cluster_device *device = cluster->devices[i];
		if (device->node != node)
			continue;
		cluster_next_record(cluster, device, device->record);
		cluster_judge_peers(cluster, device);
	}
}

static void node_registered(void *context, enum status status, const struct error *error)
{
	struct proposal *proposal = context;
	struct cluster_node *node = proposal->node;
	struct error leaving = {0};
	if (node->arriving == proposal->link)
		node->arriving = NULL;
	if (!status && node->leaving) {
		status = error_set(&leaving, STATUS_CONFLICT, "the node is being removed");
		error = &leaving;
	}
	if (!status) {
		if (node->link && node->link != proposal->link) {
			cluster_tell_lost(proposal->cluster, node->node_id, NULL, "its node reconnected");
			node->link->superseded(node->link);
		}
		bool was_online = node->link == proposal->link;
		if (!was_online)
			forget_copies(proposal->cluster, node);
		json_destroy(&node->record);
		node->record = proposal->record;
		proposal->record = NULL;
		node->link = proposal->link;
		node->local = proposal->local;
		node->last_seen_ms = proposal->at_ms;
		if (!node->first_seen_ms)
			node->first_seen_ms = proposal->at_ms;
		node->state_reason[0] = 0;
		node->left = false;
		node->rest = (struct rest){0};
		cluster_push_change(proposal->cluster, node, NULL, &proposal->change, proposal->at_ms);
		if (!was_online) {
			push_all_devices(proposal->cluster, node, "its node is online", proposal->at_ms);
			judge_copies(proposal->cluster, node);
		} else if (node->link->drains) {
			push_all_devices(proposal->cluster, node, "its machine is about to leave", proposal->at_ms);
		}
		topology_node_online(proposal->cluster->topology, node->node_id);
	} else {
		log_error("cluster", "node %s could not be stored: %s", node->node_id, error->message);
	}
	proposal->done(proposal->context, status, error);
	proposal_destroy(&proposal);
}

enum status cluster_register_node(struct cluster *cluster, const struct json *record, bool local,
				  struct cluster_link *link,
				  void (*done)(void *context, enum status status, const struct error *error),
				  void *context, struct error *error)
{
	const char *node_id = json_get_string(record, "node_id", "");
	struct cluster_node *node = cluster_find_node(cluster, node_id);
	bool known = node && node->first_seen_ms;
	struct store_batch *batch = NULL;
	if (!node)
		node = cluster_add_node(cluster, node_id);
	if (!node)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the cluster has %d nodes already", LIMIT_NODES);
	if (node->leaving)
		return error_set(error, STATUS_CONFLICT, "the node is being removed");
	if (!node->record) // in the list from now on; what it is follows when it is stored
		node->record = json_copy(record);
	enum status status = take_news(cluster, node,
				       &(struct audit_tally){.by = &link->actor,
							     .action = "node.register",
							     .node_id = node_id,
							     .outcome = STATUS_RATE_LIMITED},
				       1, error);
	if (status)
		return status;
	struct proposal *proposal = proposal_create(cluster, node);
	status = proposal ? store_batch_create(&batch) : STATUS_OUT_OF_MEMORY;
	if (status)
		goto done;
	proposal->record = json_copy(record);
	proposal->local = local;
	proposal->link = link;
	proposal->done = done;
	proposal->context = context;
	bool update = node->link == link || node->arriving == link;
	node->arriving = link;
	proposal->change = (struct change){.kind = !known   ? "node.added"
						   : update ? "node.changed"
							    : "node.online",
					   .level = "info",
					   .keep = !update};
	snprintf(proposal->change.summary, sizeof proposal->change.summary, "%s",
		 !known   ? "joined"
		 : update ? "sent new facts about itself"
			  : "online");
	struct cluster_node next = *node;
	next.record = proposal->record;
	next.local = local;
	next.last_seen_ms = proposal->at_ms;
	if (!next.first_seen_ms)
		next.first_seen_ms = proposal->at_ms;
	status = cluster_store_change(batch, &next, NULL, &proposal->change, proposal->at_ms);
	if (!status) {
		put_on_record(cluster, batch, node_id, &link->actor, &proposal->change);
		status = store_commit(cluster->params.store, &batch, node_registered, proposal);
	}
done:
	if (status) {
		error_set(error, status, "the node could not be stored");
		store_batch_destroy(&batch);
		proposal_destroy(&proposal);
	}
	return status;
}

// Reports of a node that is gone are not taken any more.
static void refuse_waiting(struct cluster_node *node)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the node is gone");
	while (node->reports) {
		struct device_report *report = node->reports;
		node->reports = report->next;
		report->done(report->context, STATUS_UNAVAILABLE, &error);
		json_destroy(&report->devices);
		free(report);
	}
}

void cluster_lose_node(struct cluster *cluster, const char *node_id, struct cluster_link *link, const char *reason)
{
	struct store_batch *batch;
	struct cluster_node *node = cluster_find_node(cluster, node_id);
	if (node && node->arriving == link)
		node->arriving = NULL;
	if (!node || node->leaving || node->link != link)
		return;
	node->left = link->drains;
	if (node->left)
		reason = "it has left, as it had said";
	struct change change = {.kind = "node.offline", .level = "attention", .keep = true};
	snprintf(change.summary, sizeof change.summary, "offline: %s", reason);
	int64_t now_ms = clock_wall_ms();
	node->link = NULL; // being away is a fact, not a decision: it is told at once and stored as it comes
	snprintf(node->state_reason, sizeof node->state_reason, "%s", reason);
	refuse_waiting(node);
	cluster_tell_lost(cluster, node_id, NULL, "its node is offline");
	if (!store_batch_create(&batch)) {
		put_on_record(cluster, batch, node_id, &audit_server, &change);
		if (!cluster_store_change(batch, node, NULL, &change, now_ms))
			store_commit(cluster->params.store, &batch, NULL, NULL);
		else
			store_batch_destroy(&batch);
	}
	cluster_push_change(cluster, node, NULL, &change, now_ms);
	push_all_devices(cluster, node, "its node is offline", now_ms);
	topology_node_offline(cluster->topology, node_id);
}

// ---- a node reports its devices ----

static const char *verification_of(const struct json *record, const char *field)
{
	return json_get_string(json_get(record, "verification"), field, "");
}

// Describes the change from `old` (NULL: new) to `next`. False: nothing differs.
static bool describe_change(const struct json *old, const struct json *next, struct change *change)
{
	if (old && json_equal(old, next))
		return false;
	bool was_there = json_get_bool(old, "present", true), is_there = json_get_bool(next, "present", true);
	const char *state = verification_of(next, "state");
	bool verdict = strcmp(verification_of(old, "state"), state) != 0 && strcmp(state, "pending") != 0;
	*change = (struct change){.kind = "device.changed", .level = "info"};
	if (old && was_there != is_there) {
		*change = (struct change){
			.kind = "device.state", .level = is_there ? "info" : "attention", .keep = true};
		snprintf(change->summary, sizeof change->summary, is_there ? "is back" : "is gone");
	} else if (verdict && !strcmp(state, "passed")) {
		double ms = json_get_number(json_get(next, "verification"), "duration_ms", 0);
		*change = (struct change){.kind = "device.verified", .level = "info", .keep = true};
		snprintf(change->summary, sizeof change->summary, "verified in %.*f s", ms < 100 ? 2 : 1, ms / 1000);
	} else if (verdict) {
		*change = (struct change){.kind = "device.failed", .level = "error", .keep = true};
		snprintf(change->summary, sizeof change->summary, "failed verification: %.200s",
			 verification_of(next, "error"));
	} else if (!old) {
		*change = (struct change){.kind = "device.added", .level = "info", .keep = true};
		snprintf(change->summary, sizeof change->summary, "found");
	} else {
		snprintf(change->summary, sizeof change->summary, "changed");
	}
	return true;
}

static void apply_device(struct proposal *proposal, struct device_change *one)
{
	struct cluster_device *device = one->device;
	if (!device) {
		device = cluster_add_device(proposal->cluster, one->device_id, proposal->node);
		if (!device) {
			log_error("cluster", "no room for device %s", one->device_id);
			return;
		}
		snprintf(device->hardware_key, sizeof device->hardware_key, "%s", one->hardware_key);
		device->first_seen_ms = proposal->at_ms;
	}
	cluster_judge_record(proposal->node, one->record); // a check may have failed meanwhile
	cluster_next_record(proposal->cluster, device, one->record);
	json_destroy(&device->record);
	device->record = one->record;
	one->record = NULL;
	device->last_seen_ms = proposal->at_ms;
	one->device = device;
}

// Told once all of a report is applied, since devices name each other.
static void tell_device(const struct proposal *proposal, const struct device_change *one)
{
	struct cluster_device *device = one->device;
	if (!json_get_bool(device->record, "present", true)) {
		json_destroy(&device->telemetry);
		cluster_tell_lost(proposal->cluster, proposal->node->node_id, device->device_id,
				  "its node no longer finds the device");
	}
	cluster_push_change(proposal->cluster, proposal->node, device, &one->change, proposal->at_ms);
}

static void take_next_report(struct cluster *cluster, struct cluster_node *node);

static void devices_stored(void *context, enum status status, const struct error *error)
{
	struct proposal *proposal = context;
	struct cluster *cluster = proposal->cluster;
	struct cluster_node *node = proposal->node;
	if (status)
		log_error("cluster", "the devices of node %s could not be stored: %s", node->node_id, error->message);
	for (size_t i = 0; i < proposal->device_count && !status; i++)
		apply_device(proposal, &proposal->devices[i]);
	for (size_t i = 0; i < proposal->device_count && !status; i++)
		if (proposal->devices[i].device)
			tell_device(proposal, &proposal->devices[i]);
	for (size_t i = 0; i < proposal->device_count && !status; i++)
		if (proposal->devices[i].device)
			cluster_judge_peers(cluster, proposal->devices[i].device);
	node->storing = false;
	proposal->done(proposal->context, status, error);
	proposal_destroy(&proposal);
	take_next_report(cluster, node);
}

// Whether this device may be reported by this node, and stands in the report once.
static enum status check_device(const struct proposal *proposal, const char *device_id, const char *hardware_key,
				struct error *error)
{
	const struct cluster *cluster = proposal->cluster;
	if (strlen(device_id) >= STORE_ID_BYTES || strlen(hardware_key) >= STORE_NAME_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, // the contract counts characters
				 "a device_id must have at most %d bytes, a hardware_key %d", STORE_ID_BYTES - 1,
				 STORE_NAME_BYTES - 1);
	for (size_t i = 0; i < proposal->device_count; i++)
		if (!strcmp(proposal->devices[i].device_id, device_id) ||
		    !strcmp(proposal->devices[i].hardware_key, hardware_key))
			return error_set(error, STATUS_CONFLICT, "device %.64s is in the report twice", device_id);
	for (size_t i = 0; i < cluster->device_count; i++) {
		const struct cluster_device *known = cluster->devices[i];
		bool same_id = !strcmp(known->device_id, device_id);
		if (same_id && known->node != proposal->node)
			return error_set(error, STATUS_CONFLICT, "device %.64s belongs to another node", device_id);
		if (!same_id && known->node == proposal->node && !strcmp(known->hardware_key, hardware_key))
			return error_set(error, STATUS_CONFLICT, "the hardware of device %.64s is known as %s",
					 device_id, known->device_id);
	}
	return STATUS_OK;
}

// Add one reported device to the proposal and its batch, if it differs from what is known.
static enum status propose_device(struct proposal *proposal, struct store_batch *batch, const struct json *reported,
				  struct error *error)
{
	struct device_change *one = &proposal->devices[proposal->device_count];
	const char *device_id = json_get_string(reported, "device_id", "");
	const char *hardware_key = json_get_string(reported, "hardware_key", "");
	struct cluster_device *device = cluster_find_device(proposal->cluster, device_id);
	enum status status = check_device(proposal, device_id, hardware_key, error);
	if (status)
		return status;
	struct json *record = json_copy(reported);
	cluster_judge_record(proposal->node, record);
	*one = (struct device_change){.device = device};
	if (!describe_change(device ? device->record : NULL, record, &one->change)) {
		json_destroy(&record);
		return STATUS_OK;
	}
	one->record = record;
	if (!device && proposal->cluster->device_count + proposal->new_count >= LIMIT_DEVICES) {
		json_destroy(&one->record);
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the cluster has %d devices already", LIMIT_DEVICES);
	}
	proposal->new_count += !device;
	snprintf(one->device_id, sizeof one->device_id, "%s", device_id);
	snprintf(one->hardware_key, sizeof one->hardware_key, "%s", hardware_key);
	proposal->device_count++;
	struct cluster_device next = {.node = proposal->node, .first_seen_ms = proposal->at_ms};
	if (device)
		next = *device;
	memcpy(next.device_id, one->device_id, sizeof next.device_id);
	memcpy(next.hardware_key, one->hardware_key, sizeof next.hardware_key);
	next.record = one->record;
	next.last_seen_ms = proposal->at_ms;
	if (one->change.keep) {
		const struct cluster_node *node = proposal->node;
		const struct audit_event event = {.by = node->link ? &node->link->actor : &audit_server,
						  .action = one->change.kind,
						  .target = one->device_id,
						  .node_id = node->node_id,
						  .device_id = one->device_id};
		audit_put(proposal->cluster->params.audit, batch, &event); // what fails here fails the batch
	}
	return cluster_store_change(batch, proposal->node, &next, &one->change, proposal->at_ms);
}

// How many entries of the audit log a report makes.
static unsigned kept_of(const struct proposal *proposal)
{
	unsigned count = 0;
	for (size_t i = 0; i < proposal->device_count; i++)
		count += proposal->devices[i].change.keep;
	return count;
}

// Store one report now. `done` is called unless an error is returned.
static enum status store_report(struct cluster *cluster, struct cluster_node *node, const struct json *devices,
				void (*done)(void *context, enum status status, const struct error *error),
				void *context, struct error *error)
{
	struct store_batch *batch = NULL;
	struct proposal *proposal = proposal_create(cluster, node);
	enum status status = proposal ? store_batch_create(&batch) : STATUS_OUT_OF_MEMORY;
	if (!status) {
		proposal->done = done;
		proposal->context = context;
		proposal->devices = calloc(json_count(devices) + 1, sizeof(*proposal->devices));
		status = proposal->devices ? STATUS_OK : STATUS_OUT_OF_MEMORY;
	}
	for (const struct json *one = json_first(devices); one && !status; one = json_next(one))
		status = propose_device(proposal, batch, one, error);
	if (!status)
		status = take_news(cluster, node,
				   &(struct audit_tally){.by = node->link ? &node->link->actor : &audit_server,
							 .action = "node.devices",
							 .node_id = node->node_id,
							 .outcome = STATUS_RATE_LIMITED},
				   kept_of(proposal), error);
	bool news = !status && proposal->device_count;
	if (news) {
		status = store_commit(cluster->params.store, &batch, devices_stored, proposal);
		node->storing = !status;
	}
	if (status)
		error_set(error, status, "the devices could not be stored");
	if (!node->storing) { // nothing to store, or it failed
		store_batch_destroy(&batch);
		proposal_destroy(&proposal);
	}
	if (!status && !news)
		done(context, STATUS_OK, NULL);
	return status;
}

static void take_next_report(struct cluster *cluster, struct cluster_node *node)
{
	while (node->reports && !node->storing) {
		struct error error = {0};
		struct device_report *report = node->reports;
		node->reports = report->next;
		enum status status = store_report(cluster, node, report->devices, report->done, report->context,
						  &error);
		if (status)
			report->done(report->context, status, &error);
		json_destroy(&report->devices);
		free(report);
	}
}

enum status cluster_report_devices(struct cluster *cluster, const char *node_id, const struct json *devices,
				   void (*done)(void *context, enum status status, const struct error *error),
				   void *context, struct error *error)
{
	struct cluster_node *node = cluster_find_node(cluster, node_id);
	size_t waiting = 0;
	if (!node || node->leaving)
		return error_set(error, STATUS_NOT_FOUND, "there is no node %.64s", node_id);
	if (!node->storing && !node->reports)
		return store_report(cluster, node, devices, done, context, error);
	struct device_report **last = &node->reports;
	for (; *last; last = &(*last)->next)
		waiting++;
	if (waiting >= LIMIT_NODE_REPORTS)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "%d reports of this node wait to be stored",
				 LIMIT_NODE_REPORTS);
	struct device_report *report = calloc(1, sizeof(*report));
	if (!report)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	*report = (struct device_report){.devices = json_copy(devices), .done = done, .context = context};
	*last = report;
	return STATUS_OK;
}

// ---- what a person asks of a device ----

enum status cluster_may_verify(const struct cluster_device *device, struct error *error)
{
	if (!device->node->link) {
		error_set(error, STATUS_UNAVAILABLE, "its node is offline");
		error_hint(error, "devices are verified by their own machine; bring that back first");
		return STATUS_UNAVAILABLE;
	}
	if (!strcmp(verification_of(device->record, "state"), "pending"))
		return error_set(error, STATUS_CONFLICT, "it is being verified now");
	return STATUS_OK;
}

enum status cluster_verify_device(struct cluster *cluster, struct cluster_device *device, struct error *error)
{
	enum status status = cluster_may_verify(device, error);
	if (!status)
		cluster_trust_again(cluster, device->node);
	if (!status)
		device->node->link->verify(device->node->link, device->device_id);
	return status;
}

static void device_drained(void *context, enum status status, const struct error *error)
{
	struct proposal *proposal = context;
	struct cluster_device *device = proposal->device;
	if (!status) {
		device->draining = proposal->drain;
		cluster_push_change(proposal->cluster, device->node, device, &proposal->change, proposal->at_ms);
	}
	proposal->device_done(proposal->context, status, device, error);
	proposal_destroy(&proposal);
}

enum status cluster_drain_device(struct cluster *cluster, struct cluster_device *device,
				 const struct cluster_drain_params *params, struct error *error)
{
	const bool drain = params->drain;
	struct store_batch *batch = NULL;
	struct proposal *proposal = proposal_create(cluster, device->node);
	enum status status = proposal ? store_batch_create(&batch) : STATUS_OUT_OF_MEMORY;
	if (status)
		goto done;
	proposal->device = device;
	proposal->drain = drain;
	proposal->device_done = params->done;
	proposal->context = params->context;
	proposal->change = (struct change){.kind = "device.state", .level = "info", .keep = device->draining != drain};
	snprintf(proposal->change.summary, sizeof proposal->change.summary,
		 drain ? "is draining" : "is back in service");
	struct cluster_device next = *device;
	next.draining = drain;
	status = cluster_store_change(batch, device->node, &next, &proposal->change, proposal->at_ms);
	if (!status) {
		const struct audit_event event = {.by = params->by,
						  .action = "device.drain",
						  .target = device->device_id,
						  .node_id = device->node->node_id,
						  .device_id = device->device_id,
						  .detail = drain ? "{\"drain\":true}" : "{\"drain\":false}"};
		audit_put(cluster->params.audit, batch, &event); // what fails here fails the batch
		status = store_commit(cluster->params.store, &batch, device_drained, proposal);
	}
done:
	if (status) {
		error_set(error, status, "the change could not be stored");
		store_batch_destroy(&batch);
		proposal_destroy(&proposal);
	}
	return status;
}
