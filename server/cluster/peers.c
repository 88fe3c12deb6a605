/* Devices of one machine that copy to each other directly.
 *
 * Which could, their driver says when they are found. Which do, copies show: one that had to go by way of the host's
 * memory puts that direction among the staged ones, and a person is told, once; one that goes directly takes it out
 * again, as does the node when it connects anew. This is not stored: it is of the processes that copy, not of the
 * hardware. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/cluster/state.h"

#include <stdio.h>
#include <string.h>

static bool has_text(const struct json *array, const char *text)
{
	for (const struct json *one = json_first(array); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), text))
			return true;
	return false;
}

static bool could(const struct cluster_device *from, const struct cluster_device *to)
{
	return from->node == to->node && has_text(json_get(from->record, "peers"), to->hardware_key);
}

static bool is_staged(const struct cluster_device *from, const struct cluster_device *to)
{
	return json_get_bool(from->staged, to->device_id, false);
}

bool cluster_copies(const struct cluster_device *from, const struct cluster_device *to)
{
	return could(from, to) && !is_staged(from, to);
}

struct json *cluster_peers_json(const struct cluster *cluster, const struct cluster_device *device)
{
	struct json *peers = json_new_array();
	const bool any = json_count(json_get(device->record, "peers"));
	for (size_t i = 0; any && i < cluster->device_count; i++) {
		const struct cluster_device *other = cluster->devices[i];
		if (!could(device, other))
			continue;
		struct json *peer = json_new_object();
		json_set_string(peer, "device_id", other->device_id);
		json_set_string(peer, "class", is_staged(device, other) ? "staged" : "peer");
		json_push(peers, peer);
	}
	return peers;
}

static void tell(struct cluster *cluster, struct cluster_device *from, const struct cluster_device *to, bool staged)
{
	struct store_batch *batch;
	const int64_t now_ms = clock_wall_ms();
	struct change change = {.kind = staged ? "link.degraded" : "link.recovered",
				.level = staged ? "attention" : "info",
				.keep = true};
	snprintf(change.summary, sizeof change.summary,
		 staged ? "its copies to %.64s (%.31s) go by way of the host's memory: the direct way was refused"
			: "its copies to %.64s (%.31s) go directly again",
		 json_get_string(to->record, "name", ""), to->device_id);
	if (!store_batch_create(&batch)) {
		if (!cluster_store_change(batch, from->node, from, &change, now_ms))
			store_commit(cluster->params.store, &batch, NULL, NULL);
		else
			store_batch_destroy(&batch);
	}
	cluster_push_change(cluster, from->node, from, &change, now_ms);
}

void cluster_copied(struct cluster *cluster, const char *from_device_id, const char *to_device_id, bool direct)
{
	struct cluster_device *from = cluster_find_device(cluster, from_device_id),
			      *to = cluster_find_device(cluster, to_device_id);
	if (!from || !to || !could(from, to) || is_staged(from, to) == !direct)
		return;
	// A worker says so, who may lie: it is believed so often, and no more.
	const int64_t now_ms = clock_steady_ms();
	if (now_ms - from->staged_since_ms >= LIMIT_STAGED_TOLD_MS) {
		from->staged_since_ms = now_ms;
		from->staged_told = 0;
	}
	if (from->staged_told == LIMIT_STAGED_TOLD)
		return;
	from->staged_told++;
	if (!from->staged)
		from->staged = json_new_object();
	json_set_bool(from->staged, to->device_id, !direct);
	tell(cluster, from, to, !direct);
}

// Both ways, of devices that are there.
int64_t cluster_peer_pairs(const struct cluster *cluster)
{
	int64_t pairs = 0;
	for (size_t i = 0; i < cluster->device_count; i++) {
		const struct cluster_device *a = cluster->devices[i];
		if (!a->node->link || !json_count(json_get(a->record, "peers")))
			continue;
		for (size_t j = 0; j < i; j++) {
			const struct cluster_device *b = cluster->devices[j];
			pairs += cluster_copies(a, b) && cluster_copies(b, a) &&
				 json_get_bool(a->record, "present", true) && json_get_bool(b->record, "present", true);
		}
	}
	return pairs;
}
