/* Devices of one machine that copy to each other directly. The driver says which
 * pairs could. Their node measures which do, and how fast (PeerSpeed of its
 * devices' records). Between two measurements, copies show it: one that had to go
 * through host memory marks its direction as staged; one that goes directly, or a
 * reconnect of the node, clears the mark. The newest of these counts. What copies
 * show is not stored, because it depends on processes and not on hardware. Each
 * change of path is published once, with the speed before and after. Thread: the
 * loop's. */
#include "common/base/clock.h"
#include "common/wire/said.h"
#include "server/cluster/state.h"

#include <stdio.h>
#include <string.h>

#define FASTEST_BYTES_PER_S 1e15 // no link of a machine comes near; more is not believed

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

struct json *cluster_join_speeds(const struct json *devices, const struct json *speeds)
{
	struct json *joined = json_new_array();
	for (const struct json *one = json_first(devices); one; one = json_next(one)) {
		struct json *device = json_copy(one);
		const struct json *told = json_first(speeds);
		const char *device_id = json_get_string(one, "device_id", "");
		while (told && strcmp(json_get_string(told, "device_id", ""), device_id) != 0)
			told = json_next(told);
		if (told)
			json_set(device, "peer_speeds", json_copy(json_get(told, "peers")));
		else if (speeds)
			json_set(device, "peer_speeds", json_new_array());
		json_push(joined, device);
	}
	return joined;
}

// What the node tells of this direction; NULL: nothing. bytes_per_s: 0 if there is no figure, or none that can be.
static const struct json *told_of(const struct cluster_device *from, const struct cluster_device *to,
				  double *bytes_per_s)
{
	const struct json *one = json_first(json_get(from->record, "peer_speeds"));
	int64_t at_ms;
	while (one && strcmp(json_get_string(one, "hardware_key", ""), to->hardware_key) != 0)
		one = json_next(one);
	const double told = json_get_number(one, "bytes_per_s", 0);
	const bool can_be = told > 0 && told <= FASTEST_BYTES_PER_S && // also false for NaN
			    !clock_parse(json_get_string(one, "measured_at", ""), &at_ms);
	*bytes_per_s = can_be ? told : 0;
	return one;
}

static bool is_staged(const struct cluster_device *from, const struct cluster_device *to)
{
	double bytes_per_s;
	const struct json *told = told_of(from, to, &bytes_per_s);
	return json_get_bool(from->staged, to->device_id, bytes_per_s > 0 && !json_get_bool(told, "direct", true));
}

// Why there is no figure of the way that copies go now; NULL: there is one.
static const char *no_figure(const struct cluster_device *from, const struct json *told, double bytes_per_s,
			     bool staged)
{
	if (!json_get(from->record, "peer_speeds"))
		return "its node is of a build that does not measure it";
	if (bytes_per_s > 0 && json_get_bool(told, "direct", true) == staged)
		return staged ? "it was measured while copies went directly"
			      : "it was measured while copies went through host memory";
	if (bytes_per_s > 0)
		return NULL;
	if (json_type(json_get(told, "bytes_per_s")) == JSON_NUMBER)
		return "its node reports impossible figures";
	return json_get_string(told, "reason", "it is not measured yet");
}

bool cluster_copies(const struct cluster_device *from, const struct cluster_device *to)
{
	return could(from, to) && !is_staged(from, to);
}

static struct json *peer_json(const struct cluster_device *from, const struct cluster_device *to)
{
	double bytes_per_s;
	const struct json *told = told_of(from, to, &bytes_per_s);
	const bool staged = is_staged(from, to);
	const char *reason = no_figure(from, told, bytes_per_s, staged);
	struct json *peer = json_new_object();
	json_set_string(peer, "device_id", to->device_id);
	json_set_string(peer, "class", staged ? "staged" : "peer");
	if (reason)
		json_set_null(peer, "bytes_per_s");
	else
		json_set_number(peer, "bytes_per_s", bytes_per_s);
	json_set_string(peer, "measured_at", reason ? NULL : json_get_string(told, "measured_at", NULL));
	said_set(peer, "reason", reason);
	return peer;
}

struct json *cluster_peers_json(const struct cluster *cluster, const struct cluster_device *device)
{
	struct json *peers = json_new_array();
	const bool any = json_count(json_get(device->record, "peers"));
	for (size_t i = 0; any && i < cluster->device_count; i++) {
		const struct cluster_device *other = cluster->devices[i];
		if (!could(device, other))
			continue;
		json_push(peers, peer_json(device, other));
	}
	return peers;
}

// ---- which way they go is told when it changes ----

// What a person was told last of a direction: {"staged", "bytes_per_s": of the newest figure of that way, 0: none}.
static void note_way(struct cluster_device *from, const struct cluster_device *to, bool staged, double bytes_per_s)
{
	struct json *way = json_new_object();
	json_set_bool(way, "staged", staged);
	json_set_number(way, "bytes_per_s", bytes_per_s);
	if (!from->ways_told)
		from->ways_told = json_new_object();
	json_set(from->ways_told, to->device_id, way);
}

// A worker or a node says so, who may lie: it is told so often, and no more.
static bool may_tell(struct cluster_device *from)
{
	const int64_t now_ms = clock_steady_ms();
	if (now_ms - from->staged_since_ms >= LIMIT_STAGED_TOLD_MS) {
		from->staged_since_ms = now_ms;
		from->staged_told = 0;
	}
	return from->staged_told < LIMIT_STAGED_TOLD;
}

static const char *rate(double bytes_per_s, char text[32])
{
	text[0] = 0;
	if (bytes_per_s > 0)
		snprintf(text, 32, ", at %.3g GB/s", bytes_per_s * 1e-9);
	return text;
}

static void tell(struct cluster *cluster, struct cluster_device *from, const struct cluster_device *to, bool staged,
		 double now_bytes_per_s, double was_bytes_per_s)
{
	static const char *const ways[] = {"directly", "by way of the host's memory"};
	char now[32], was[32];
	struct store_batch *batch;
	const int64_t now_ms = clock_wall_ms();
	struct change change = {.kind = staged ? "link.degraded" : "link.recovered",
				.level = staged ? "attention" : "info",
				.keep = true};
	snprintf(change.summary, sizeof change.summary, "its copies to %.64s (%.31s) go %s%s%s, not %s%s%s",
		 json_get_string(to->record, "name", ""), to->device_id, ways[staged], staged ? "" : " again",
		 rate(now_bytes_per_s, now), ways[!staged], was_bytes_per_s > 0 ? " as before" : "",
		 rate(was_bytes_per_s, was));
	if (!store_batch_create(&batch)) {
		if (!cluster_store_change(batch, from->node, from, &change, now_ms))
			store_commit(cluster->params.store, &batch, NULL, NULL);
		else
			store_batch_destroy(&batch);
	}
	cluster_push_change(cluster, from->node, from, &change, now_ms);
}

// A direction of unknown path is not reported.
static void judge(struct cluster *cluster, struct cluster_device *from, const struct cluster_device *to)
{
	double bytes_per_s;
	const struct json *told = told_of(from, to, &bytes_per_s), *way = json_get(from->ways_told, to->device_id);
	const bool shown = bytes_per_s > 0 || json_get(from->staged, to->device_id), staged = is_staged(from, to);
	if (!shown)
		return;
	if (no_figure(from, told, bytes_per_s, staged))
		bytes_per_s = 0;
	if (json_get_bool(way, "staged", false) == staged) {
		if (bytes_per_s > 0)
			note_way(from, to, staged, bytes_per_s);
	} else if (may_tell(from)) {
		const double was_bytes_per_s = json_get_number(way, "bytes_per_s", 0);
		from->staged_told++;
		note_way(from, to, staged, bytes_per_s);
		tell(cluster, from, to, staged, bytes_per_s, was_bytes_per_s);
	}
}

void cluster_judge_peers(struct cluster *cluster, struct cluster_device *device)
{
	for (size_t i = 0; i < cluster->device_count; i++)
		if (could(device, cluster->devices[i]))
			judge(cluster, device, cluster->devices[i]);
}

static const char *measured_at(const struct json *record, const struct cluster_device *to)
{
	const struct json *one = json_first(json_get(record, "peer_speeds"));
	while (one && strcmp(json_get_string(one, "hardware_key", ""), to->hardware_key) != 0)
		one = json_next(one);
	return json_get_string(one, "measured_at", "");
}

void cluster_next_record(struct cluster *cluster, struct cluster_device *device, const struct json *next)
{
	for (size_t i = 0; i < cluster->device_count; i++) {
		double bytes_per_s;
		const struct cluster_device *other = cluster->devices[i];
		const struct json *told = could(device, other) ? told_of(device, other, &bytes_per_s) : NULL;
		const char *at = measured_at(next, other);
		if (told && bytes_per_s > 0 && !json_get(device->ways_told, other->device_id)) // since before the start
			note_way(device, other, !json_get_bool(told, "direct", true), bytes_per_s);
		if (device->staged && at[0] && strcmp(at, measured_at(device->record, other)) != 0)
			json_remove(device->staged, other->device_id);
	}
}

void cluster_copied(struct cluster *cluster, const char *from_device_id, const char *to_device_id, bool direct)
{
	struct cluster_device *from = cluster_find_device(cluster, from_device_id),
			      *to = cluster_find_device(cluster, to_device_id);
	if (!from || !to || !could(from, to))
		return;
	if (is_staged(from, to) == direct) {
		if (!may_tell(from))
			return;
		if (!from->staged)
			from->staged = json_new_object();
		json_set_bool(from->staged, to->device_id, !direct);
	}
	judge(cluster, from, to);
}

// ---- pairs ----

static void widen(struct cluster_pairs *pairs, const struct cluster_device *from, const struct cluster_device *to)
{
	double bytes_per_s;
	const struct json *told = told_of(from, to, &bytes_per_s);
	if (no_figure(from, told, bytes_per_s, false))
		return;
	if (pairs->slowest_bytes_per_s <= 0 || bytes_per_s < pairs->slowest_bytes_per_s)
		pairs->slowest_bytes_per_s = bytes_per_s;
	if (bytes_per_s > pairs->fastest_bytes_per_s)
		pairs->fastest_bytes_per_s = bytes_per_s;
}

// Both ways, of devices that are there.
struct cluster_pairs cluster_peer_pairs(const struct cluster *cluster)
{
	struct cluster_pairs pairs = {0};
	for (size_t i = 0; i < cluster->device_count; i++) {
		const struct cluster_device *a = cluster->devices[i];
		if (!a->node->link || !json_count(json_get(a->record, "peers")))
			continue;
		for (size_t j = 0; j < i; j++) {
			const struct cluster_device *b = cluster->devices[j];
			if (!cluster_copies(a, b) || !cluster_copies(b, a) ||
			    !json_get_bool(a->record, "present", true) || !json_get_bool(b->record, "present", true))
				continue;
			pairs.count++;
			widen(&pairs, a, b);
			widen(&pairs, b, a);
		}
	}
	return pairs;
}
