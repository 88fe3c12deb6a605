/* See topology.h and topology_inside.h: the readings of each direction, and the questions of a placement. A
 * direction is `heard` once its node has reported it on the current connection. It is stale before that,
 * while an end is offline, and while its node does not report it for TOLD_MS: then it is shown with its last
 * figures and not used for work. While any direction is heard, a tick runs once a second to judge, publish
 * and store. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/cluster/topology/topology_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOLD_MS = 20000, SAVE_MS = 30000 };

// ---- finding ----

struct topology_link *topology_link(const struct cluster_node *node, const struct cluster_node *to)
{
	struct topology_from *from = node->ways;
	for (size_t i = 0; from && i < from->count; i++)
		if (from->links[i].to == to)
			return &from->links[i];
	return NULL;
}

static bool grow(void *array, size_t size, size_t count, size_t *capacity)
{
	void *bytes;
	memcpy(&bytes, array, sizeof bytes);
	if (count < *capacity)
		return true;
	const size_t grown = *capacity ? *capacity * 2 : 4;
	bytes = realloc(bytes, grown * size);
	if (!bytes)
		return false;
	memcpy(array, &bytes, sizeof bytes);
	*capacity = grown;
	return true;
}

struct topology_from *topology_from(struct topology *topology, struct cluster_node *node)
{
	if (node->ways)
		return node->ways;
	if (!grow(&topology->nodes, sizeof(*topology->nodes), topology->node_count, &topology->node_capacity) ||
	    !(node->ways = calloc(1, sizeof(*node->ways))))
		return NULL;
	node->ways->node = node;
	return topology->nodes[topology->node_count++] = node->ways;
}

struct topology_link *topology_add(struct topology *topology, struct cluster_node *node, struct cluster_node *to)
{
	struct topology_from *from = topology_from(topology, node);
	struct topology_link *link = topology_link(node, to);
	if (link || !from)
		return link;
	if (topology->link_count >= LIMIT_CLUSTER_LINKS) {
		if (!topology->full)
			log_warning("topology", "more than %d links: the others are neither shown nor used",
				    LIMIT_CLUSTER_LINKS);
		topology->full = true;
		return NULL;
	}
	if (!grow(&from->links, sizeof *from->links, from->count, &from->capacity))
		return NULL;
	link = &from->links[from->count++];
	*link = (struct topology_link){.to = to};
	for (int i = 0; i < LINK_VALUES; i++)
		link->values[i] = link->told[i] = -1;
	topology->link_count++;
	return link;
}

const char *topology_to_id(const struct topology_link *link)
{
	return link->to ? link->to->node_id : "server";
}

const char *topology_node_name(const struct cluster_node *node)
{
	return node ? json_get_string(node->record, "name", node->node_id) : "the server";
}

enum link_state topology_state(const struct topology_from *from, const struct topology_link *link,
			       char reason[TOPOLOGY_REASON_BYTES])
{
	const struct cluster_node *away = !from->node->link             ? from->node
					  : link->to && !link->to->link ? link->to
									: NULL;
	const bool silent = clock_steady_ms() - link->heard_ms > TOLD_MS;
	if (!away && link->heard && !silent) {
		if (reason)
			snprintf(reason, TOPOLOGY_REASON_BYTES, "%s", link->reason);
		return link->up ? LINK_UP : LINK_DOWN;
	}
	if (reason && away)
		snprintf(reason, TOPOLOGY_REASON_BYTES, "%.200s is offline", topology_node_name(away));
	else if (reason && !link->heard)
		snprintf(reason, TOPOLOGY_REASON_BYTES, "not measured again yet");
	else if (reason)
		snprintf(reason, TOPOLOGY_REASON_BYTES, "%.200s no longer reports it", topology_node_name(from->node));
	return LINK_STALE;
}

// ---- reports ----

static bool take_text(char *kept, size_t size, const char *text)
{
	const size_t length = strnlen(text, size - 1);
	const bool differs = strlen(kept) != length || memcmp(kept, text, length) != 0;
	memcpy(kept, text, length);
	kept[length] = 0;
	return differs;
}

static int64_t time_of(const struct json *record, const char *name)
{
	int64_t at_ms;
	return clock_parse(json_get_string(record, name, ""), &at_ms) ? 0 : at_ms;
}

static bool take_values(struct topology_link *link, const struct json *record)
{
	static const char *const names[LINK_VALUES] = {
		[LINK_RTT_MS] = "rtt_ms",
		[LINK_JITTER_MS] = "jitter_ms",
		[LINK_LOSS_PERCENT] = "loss_percent",
		[LINK_THROUGHPUT] = "throughput_bytes_per_s",
		[LINK_SENT] = "sent_bytes_per_s",
		[LINK_INTERFACE_BITS] = "interface_bits_per_s",
		[LINK_THROUGHPUT_BACK] = "throughput_back_bytes_per_s",
	};
	const enum link_class class = link_class_parse(json_get_string(record, "class", ""));
	bool differs = class != link->class;
	differs |= take_text(link->interface, sizeof link->interface, json_get_string(record, "interface", ""));
	differs |= take_text(link->address, sizeof link->address, json_get_string(record, "address", ""));
	for (int i = 0; i < LINK_VALUES; i++) {
		const double value = json_get_number(record, names[i], -1);
		link->values[i] = value >= 0 && isfinite(value) ? value : -1;
	}
	link->class = class;
	return differs;
}

// Take over one record. `ahead_ms`: the server's clock less the node's. Of a link that is down the figures stay that it
// had when it was up, with their time.
static void take_record(struct topology_link *link, const struct json *record, int64_t ahead_ms)
{
	const bool up = !strcmp(json_get_string(record, "state", ""), "up");
	const int64_t now_ms = clock_wall_ms(), throughput_ms = time_of(record, "throughput_at");
	const int64_t measured_ms = time_of(record, "measured_at") + ahead_ms;
	bool differs = !link->heard || up != link->up;
	differs |= take_text(link->reason, sizeof link->reason, up ? "" : json_get_string(record, "reason", ""));
	if (up || !link->measured_ms) {
		differs |= take_values(link, record);
		link->measured_ms = measured_ms > now_ms ? now_ms : measured_ms > 0 ? measured_ms : 1;
		link->throughput_ms = throughput_ms && link->values[LINK_THROUGHPUT] >= 0 ? throughput_ms + ahead_ms
											  : 0;
		if (link->throughput_ms > now_ms)
			link->throughput_ms = now_ms;
	}
	link->up = up;
	link->heard = link->fresh = link->unsaved = true;
	link->heard_ms = clock_steady_ms();
	link->changed |= differs;
}

void topology_report(struct topology *topology, const char *node_id, const struct json *params)
{
	const struct json *records = json_get(params, "links");
	struct cluster_node *node = cluster_find_node(topology->params.cluster, node_id);
	struct topology_news news = {0};
	int64_t newest_ms = 0;
	if (!node || !node->link)
		return;
	// The newest of what it measured is from just now, whatever its clock says.
	for (const struct json *one = json_first(records); one; one = json_next(one)) {
		const int64_t at_ms = time_of(one, "measured_at");
		newest_ms = at_ms > newest_ms ? at_ms : newest_ms;
	}
	const int64_t now_ms = clock_wall_ms(), ahead_ms = newest_ms ? now_ms - newest_ms : 0;
	for (const struct json *one = json_first(records); one; one = json_next(one)) {
		const char *peer_id = json_get_string(one, "peer_id", "");
		const bool server = !strcmp(peer_id, "server");
		struct cluster_node *to = server ? NULL : cluster_find_node(topology->params.cluster, peer_id);
		if (!server && (!to || to == node || !to->first_seen_ms || to->leaving))
			continue;
		struct topology_link *link = topology_add(topology, node, to);
		if (!link)
			continue;
		take_record(link, one, ahead_ms);
		topology_count_minute(topology, link, now_ms);
		topology_judge(node->ways, link, &news);
	}
	if (node->ways)
		topology_tell_news(topology, node->ways, &news);
	topology_wake(topology);
}

// ---- what is looked at once a second ----

static void tick(void *arg)
{
	struct topology *topology = arg;
	const int64_t now_ms = clock_steady_ms();
	bool heard = false;
	topology_push(topology);
	topology_end_minutes(topology, clock_wall_ms());
	if (now_ms - topology->saved_ms >= SAVE_MS)
		topology_save(topology);
	for (size_t i = 0; i < topology->node_count; i++)
		for (size_t j = 0; j < topology->nodes[i]->count; j++) {
			const struct topology_link *link = &topology->nodes[i]->links[j];
			heard |= link->heard || link->fresh || link->changed || link->unsaved || link->minute_ms;
		}
	if (heard)
		topology_wake(topology);
}

void topology_wake(struct topology *topology)
{
	if (!topology->tick.running)
		net_timer_start(topology->params.loop, &topology->tick, TOPOLOGY_TICK_MS, tick, topology);
}

// ---- nodes that come and go ----

void topology_node_online(struct topology *topology, const char *node_id)
{
	(void)node_id;
	if (!topology)
		return;
	topology_tell_peers(topology);
	topology_wake(topology);
}

void topology_node_offline(struct topology *topology, const char *node_id)
{
	if (!topology)
		return;
	const struct cluster_node *node = cluster_find_node(topology->params.cluster, node_id);
	struct topology_from *from = node ? node->ways : NULL;
	if (from)
		from->peers_on = NULL;
	for (size_t i = 0; from && i < from->count; i++) {
		struct topology_link *link = &from->links[i];
		link->heard = link->lost = false;
		link->bad = link->good = link->downs = 0;
	}
	topology_tell_peers(topology);
	topology_wake(topology);
}

static void forget(struct topology *topology, struct cluster_node *node)
{
	size_t kept_nodes = 0;
	for (size_t i = 0; i < topology->node_count; i++) {
		struct topology_from *from = topology->nodes[i];
		size_t kept = 0;
		for (size_t j = 0; j < from->count; j++)
			if (from->node != node && from->links[j].to != node)
				from->links[kept++] = from->links[j];
		topology->link_count -= from->count - kept;
		from->count = kept;
		if (from->node != node) {
			topology->nodes[kept_nodes++] = from;
			continue;
		}
		free(from->links);
		free(from);
	}
	topology->node_count = kept_nodes;
	topology->full = false;
	node->ways = NULL;
}

void topology_node_removed(struct topology *topology, const char *node_id)
{
	struct cluster_node *node = topology ? cluster_find_node(topology->params.cluster, node_id) : NULL;
	if (!node)
		return;
	topology_push_removed(topology, node);
	forget(topology, node);
	topology_tell_peers(topology);
}

// ---- what a placement asks ----

// A node's way to the server, or (back) from it; that of the server's own machine is no way at all.
static bool find_server(const struct cluster_node *node, bool back, struct topology_reading *out)
{
	const struct topology_link *link = topology_link(node, NULL);
	*out = (struct topology_reading){.rtt_ms = -1, .loss_percent = -1, .throughput_bytes_per_s = -1};
	if (link && topology_state(node->ways, link, NULL) == LINK_UP) {
		out->rtt_ms = link->values[LINK_RTT_MS];
		out->loss_percent = link->values[LINK_LOSS_PERCENT];
		out->throughput_bytes_per_s = link->values[back ? LINK_THROUGHPUT_BACK : LINK_THROUGHPUT];
		out->degraded = link->degraded;
	}
	if (node->local && out->rtt_ms < 0)
		out->rtt_ms = 0;
	if (node->local && out->loss_percent < 0)
		out->loss_percent = 0;
	return out->rtt_ms >= 0;
}

static double least_known(double a, double b)
{
	return a < 0 ? b : b < 0 || a < b ? a : b;
}

static void find_relay(const struct cluster_node *node, const struct cluster_node *to, struct topology_reading *out)
{
	struct topology_reading first, second;
	const bool first_known = find_server(node, false, &first),
		   known = find_server(to, true, &second) && first_known;
	*out = (struct topology_reading){
		.known = known,
		.relayed = !node->local && !to->local,
		.degraded = first.degraded || second.degraded,
		.link_class = link_class_name(LINK_CLASS_RELAY),
		.rtt_ms = known ? first.rtt_ms + second.rtt_ms : -1,
		.loss_percent = -1,
		.throughput_bytes_per_s = least_known(first.throughput_bytes_per_s, second.throughput_bytes_per_s)};
	if (first.loss_percent >= 0 && second.loss_percent >= 0)
		out->loss_percent = 100 - (100 - first.loss_percent) * (100 - second.loss_percent) / 100;
}

void topology_way(const struct cluster_node *node, const struct cluster_node *to, struct topology_reading *out)
{
	const struct topology_link *link = topology_link(node, to);
	if (!link || link->class == LINK_CLASS_RELAY || topology_state(node->ways, link, NULL) != LINK_UP) {
		find_relay(node, to, out);
		return;
	}
	*out = (struct topology_reading){.known = link->values[LINK_RTT_MS] >= 0,
					 .direct = true,
					 .degraded = link->degraded,
					 .link_class = link_class_name(topology_class(node->ways, link)),
					 .rtt_ms = link->values[LINK_RTT_MS],
					 .loss_percent = link->values[LINK_LOSS_PERCENT],
					 .throughput_bytes_per_s = link->values[LINK_THROUGHPUT]};
}

static void find_way(const struct topology *topology, const char *from_node_id, const char *to_node_id, bool relay,
		     struct topology_reading *out)
{
	const struct cluster_node *node = cluster_find_node(topology->params.cluster, from_node_id);
	const struct cluster_node *to = cluster_find_node(topology->params.cluster, to_node_id);
	*out = (struct topology_reading){.link_class = link_class_name(LINK_CLASS_UNKNOWN),
					 .rtt_ms = -1,
					 .loss_percent = -1,
					 .throughput_bytes_per_s = -1};
	if (!node || !to || !node->link || !to->link)
		return;
	if (node != to) {
		(relay ? find_relay : topology_way)(node, to, out);
		return;
	}
	out->known = out->direct = true;
	out->link_class = link_class_name(LINK_CLASS_PROCESS);
	out->rtt_ms = out->loss_percent = 0;
}

void topology_find(const struct topology *topology, const char *from_node_id, const char *to_node_id,
		   struct topology_reading *out)
{
	find_way(topology, from_node_id, to_node_id, false, out);
}

void topology_find_relay(const struct topology *topology, const char *from_node_id, const char *to_node_id,
			 struct topology_reading *out)
{
	find_way(topology, from_node_id, to_node_id, true, out);
}

double topology_late_s(const struct topology *topology, const char *from_node_id, const char *to_node_id, bool back,
		       uint64_t bytes)
{
	const bool server = !strcmp(to_node_id, "server");
	const struct cluster_node *node = cluster_find_node(topology->params.cluster, from_node_id);
	const struct cluster_node *to = server ? NULL : cluster_find_node(topology->params.cluster, to_node_id);
	const struct topology_link *link = node && (server || to) ? topology_link(node, to) : NULL;
	if (!link || topology_state(node->ways, link, NULL) != LINK_UP)
		return 0;
	return link_late_s(node->ways, link, link->values[back ? LINK_THROUGHPUT_BACK : LINK_THROUGHPUT], bytes);
}

const char *topology_class_words(const char *link_class)
{
	return link_class_words(link_class_parse(link_class));
}

// ---- lifetime ----

bool topology_series(const struct topology *topology, const char *from_node_id, const char *to_node_id,
		     char series[STORE_SERIES_BYTES])
{
	const bool server = !strcmp(to_node_id, "server");
	if (!cluster_has_node(topology->params.cluster, from_node_id, NULL) ||
	    (!server && !cluster_has_node(topology->params.cluster, to_node_id, NULL)))
		return false;
	snprintf(series, STORE_SERIES_BYTES, "%.*s %.*s", STORE_ID_BYTES - 1, from_node_id, STORE_ID_BYTES - 1,
		 to_node_id);
	return true;
}

void topology_each(const struct topology *topology, void (*each)(void *context, const struct topology_figures *figures),
		   void *context)
{
	for (size_t i = 0; i < topology->node_count; i++)
		for (size_t j = 0; j < topology->nodes[i]->count; j++) {
			const struct topology_from *from = topology->nodes[i];
			const struct topology_link *link = &from->links[j];
			const enum link_state state = topology_state(from, link, NULL);
			if (state == LINK_STALE)
				continue;
			const struct topology_figures figures = {
				.from_node_id = from->node->node_id,
				.to_node_id = topology_to_id(link),
				.from_name = topology_node_name(from->node),
				.to_name = topology_node_name(link->to),
				.link_class = link_class_name(link->class),
				.up = state == LINK_UP,
				.degraded = link->degraded,
				.degraded_reason = link->degraded ? link->degraded_reason : "",
				.rtt_ms = link->values[LINK_RTT_MS],
				.jitter_ms = link->values[LINK_JITTER_MS],
				.loss_percent = link->values[LINK_LOSS_PERCENT],
				.throughput_bytes_per_s = link->values[LINK_THROUGHPUT]};
			each(context, &figures);
		}
}

enum status topology_create(struct topology **out, const struct topology_params *params, struct error *error)
{
	struct topology *topology = calloc(1, sizeof(*topology));
	*out = NULL;
	if (!topology)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	topology->params = *params;
	topology->saved_ms = clock_steady_ms();
	const enum status status = topology_load(topology, error);
	if (status) {
		topology_destroy(&topology);
		return status;
	}
	params->cluster->topology = topology;
	*out = topology;
	return STATUS_OK;
}

void topology_destroy(struct topology **pointer)
{
	struct topology *topology = *pointer;
	if (!topology)
		return;
	*pointer = NULL;
	if (topology->params.cluster->topology == topology) {
		topology->params.cluster->topology = NULL;
		topology_end_minutes(topology, INT64_MAX);
		topology_save(topology);
	}
	net_timer_stop(topology->params.loop, &topology->tick);
	net_timer_stop(topology->params.loop, &topology->peers);
	for (size_t i = 0; i < topology->node_count; i++) {
		topology->nodes[i]->node->ways = NULL;
		free(topology->nodes[i]->links);
		free(topology->nodes[i]);
	}
	free(topology->nodes);
	free(topology);
}
