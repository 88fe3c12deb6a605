/* The JSON of links, and when it is published. Publishing is bounded for any size of
 * cluster: one event a second with at most LIMIT_LINKS_TOLD links. Links that changed
 * state come first, then those whose figures moved by more than NEAR, then the
 * others, each at most every SMALL_MS; if there are too many, they take turns.
 * Readings are not kept for replay: a client that returns gets the whole state
 * (topology_send_all). */
#include "common/base/clock.h"
#include "common/wire/said.h"
#include "server/cluster/topology/topology_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SMALL_MS = 5000,
	SERVERS_KEY = 0x7372, // the newest of these events is the one that counts
};
static const double NEAR = 0.05;     // of a figure
static const double NEAR_MS = 0.1;   // round trips shorter than this differ by chance
static const double NEAR_LOSS = 0.5; // percent

static const char *const state_names[] = {[LINK_STALE] = "stale", [LINK_UP] = "up", [LINK_DOWN] = "down"};

static void set_value(struct json *json, const char *name, double value)
{
	if (value < 0)
		json_set_null(json, name);
	else
		json_set_number(json, name, value);
}

static void set_text(struct json *json, const char *name, const char *text)
{
	json_set_string(json, name, text[0] ? text : NULL);
}

struct json *topology_link_json(const struct topology_from *from, const struct topology_link *link)
{
	char reason[TOPOLOGY_REASON_BYTES], at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object();
	const enum link_state state = topology_state(from, link, reason);
	json_set_string(json, "from_node_id", from->node->node_id);
	json_set_string(json, "to_node_id", topology_to_id(link));
	json_set_string(json, "state", state_names[state]);
	said_set(json, "state_reason", reason[0] ? reason : NULL);
	json_set_string(json, "class", link_class_name(link->class));
	set_text(json, "interface", link->interface);
	set_text(json, "address", link->address);
	set_value(json, "interface_bits_per_s", link->values[LINK_INTERFACE_BITS]);
	set_value(json, "rtt_ms", link->values[LINK_RTT_MS]);
	set_value(json, "jitter_ms", link->values[LINK_JITTER_MS]);
	set_value(json, "loss_percent", link->values[LINK_LOSS_PERCENT]);
	set_value(json, "throughput_bytes_per_s", link->values[LINK_THROUGHPUT]);
	json_set_string(json, "throughput_at", link->throughput_ms ? clock_format(link->throughput_ms, at) : NULL);
	set_value(json, "sent_bytes_per_s", state == LINK_UP ? link->values[LINK_SENT] : -1);
	set_value(json, "throughput_back_bytes_per_s", link->values[LINK_THROUGHPUT_BACK]);
	json_set_string(json, "measured_at", clock_format(link->measured_ms, at));
	json_set_bool(json, "degraded", link->degraded);
	said_set(json, "degraded_reason", link->degraded && link->degraded_reason[0] ? link->degraded_reason : NULL);
	return json;
}

struct json *topology_links_json(const struct topology *topology)
{
	struct json *links = json_new_array();
	for (size_t i = 0; topology && i < topology->node_count; i++)
		for (size_t j = 0; j < topology->nodes[i]->count; j++)
			json_push(links, topology_link_json(topology->nodes[i], &topology->nodes[i]->links[j]));
	return links;
}

static struct json *event_of(struct json *links, struct json *removed, struct json *heard, struct json *servers)
{
	struct json *event = json_new_object();
	json_set(event, "links", links);
	json_set(event, "removed", removed);
	json_set(event, "heard", heard ? heard : json_new_null());
	json_set(event, "servers", servers ? servers : json_new_null());
	return event;
}

void topology_send_all(const struct topology *topology, const struct json *heard, struct event_subscriber *subscriber)
{
	struct events *events = topology->params.events;
	struct json *links = json_new_array();
	for (size_t i = 0; i < topology->node_count; i++)
		for (size_t j = 0; j < topology->nodes[i]->count; j++) {
			if (json_count(links) == LIMIT_LINKS_TOLD) {
				events_send_one(events, subscriber, TOPIC_TOPOLOGY,
						event_of(links, json_new_array(), NULL, NULL));
				links = json_new_array();
			}
			json_push(links, topology_link_json(topology->nodes[i], &topology->nodes[i]->links[j]));
		}
	events_send_one(events, subscriber, TOPIC_TOPOLOGY, event_of(links, json_new_array(), json_copy(heard), NULL));
}

void topology_tell_servers(const struct topology *topology, struct json *servers)
{
	events_publish(topology->params.events, TOPIC_TOPOLOGY, SERVERS_KEY,
		       event_of(json_new_array(), json_new_array(), NULL, servers));
}

// ---- what is pushed ----

static bool differs(double told, double now, double floor)
{
	if ((told < 0) != (now < 0))
		return true;
	return fabs(told - now) > NEAR * fmax(told, now) && fabs(told - now) > floor;
}

enum urgency { URGENCY_NONE, URGENCY_SMALL, URGENCY_LARGE, URGENCY_STATE };

static enum urgency urgency_of(const struct topology_from *from, const struct topology_link *link, int64_t now_ms)
{
	if (link->changed || topology_state(from, link, NULL) != link->told_state)
		return URGENCY_STATE;
	if (!link->fresh)
		return URGENCY_NONE;
	if (differs(link->told[LINK_RTT_MS], link->values[LINK_RTT_MS], NEAR_MS) ||
	    differs(link->told[LINK_LOSS_PERCENT], link->values[LINK_LOSS_PERCENT], NEAR_LOSS) ||
	    differs(link->told[LINK_THROUGHPUT], link->values[LINK_THROUGHPUT], 0) ||
	    differs(link->told[LINK_THROUGHPUT_BACK], link->values[LINK_THROUGHPUT_BACK], 0))
		return URGENCY_LARGE;
	return now_ms - link->told_ms >= SMALL_MS ? URGENCY_SMALL : URGENCY_NONE;
}

// An event with the same links that still waits for a slow subscriber is replaced.
static uint64_t add_to_key(uint64_t key, const char *text) // FNV-1a, 64 bits
{
	for (; *text; text++)
		key = (key ^ (uint8_t)*text) * 1099511628211u;
	return (key ^ 0xFF) * 1099511628211u;
}

struct push {
	struct topology *topology;
	struct json *links;
	uint64_t key;
	size_t count;
	int64_t now_ms;
};

static void push_link(struct push *push, const struct topology_from *from, struct topology_link *link)
{
	json_push(push->links, topology_link_json(from, link));
	push->key = add_to_key(add_to_key(push->key, from->node->node_id), topology_to_id(link));
	push->count++;
	link->told_state = topology_state(from, link, NULL);
	memcpy(link->told, link->values, sizeof link->told);
	link->told_ms = push->now_ms;
	link->changed = link->fresh = false;
}

// All links of this urgency, from the one whose turn it is, while there is room.
static void push_urgent(struct push *push, enum urgency urgency)
{
	struct topology *topology = push->topology;
	size_t at;
	for (int round = 0; round < 2; round++)
		for (size_t i = at = 0; i < topology->node_count; i++)
			for (size_t j = 0; j < topology->nodes[i]->count; j++, at++) {
				struct topology_from *from = topology->nodes[i];
				struct topology_link *link = &from->links[j];
				const bool mine = round ? at < topology->turn : at >= topology->turn;
				if (!mine || urgency_of(from, link, push->now_ms) != urgency)
					continue;
				if (push->count == LIMIT_LINKS_TOLD) {
					topology->turn = at;
					return;
				}
				push_link(push, from, link);
			}
}

void topology_push(struct topology *topology)
{
	struct push push = {.topology = topology,
			    .links = json_new_array(),
			    .key = 14695981039346656037u,
			    .now_ms = clock_steady_ms()};
	for (int urgency = URGENCY_STATE; urgency > URGENCY_NONE; urgency--)
		push_urgent(&push, (enum urgency)urgency);
	if (push.count)
		events_publish(topology->params.events, TOPIC_TOPOLOGY, push.key ? push.key : 1,
			       event_of(push.links, json_new_array(), NULL, NULL));
	else
		json_destroy(&push.links);
}

static void push_removed(struct json *removed, const char *from, const char *to)
{
	struct json *one = json_new_object();
	json_set_string(one, "from_node_id", from);
	json_set_string(one, "to_node_id", to);
	json_push(removed, one);
}

void topology_push_removed(struct topology *topology, const struct cluster_node *node)
{
	struct json *removed = json_new_array();
	for (size_t i = 0; i < topology->node_count; i++)
		for (size_t j = 0; j < topology->nodes[i]->count; j++) {
			const struct topology_from *from = topology->nodes[i];
			if (from->node == node || from->links[j].to == node)
				push_removed(removed, from->node->node_id, topology_to_id(&from->links[j]));
		}
	if (json_count(removed))
		events_publish(topology->params.events, TOPIC_TOPOLOGY, 0,
			       event_of(json_new_array(), removed, NULL, NULL));
	else
		json_destroy(&removed);
}
