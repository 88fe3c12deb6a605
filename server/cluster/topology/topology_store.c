/* Links on disk: the latest measurement of each direction (state.db) and minute averages
 * (history.db). New readings are stored together, every half minute and at the end, because one
 * reading is not worth a transaction; a minute's averages are stored when the minute is over. Thread:
 * the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/cluster/topology/topology_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MINUTES_AT_ONCE = 128 };

static void load_link(void *context, const struct store_link *row)
{
	struct topology *topology = context;
	const struct cluster *cluster = topology->params.cluster;
	const bool server = !strcmp(row->to_node_id, "server");
	struct cluster_node *from = cluster_find_node(cluster, row->from_node_id);
	struct cluster_node *to = server ? NULL : cluster_find_node(cluster, row->to_node_id);
	struct topology_link *link = from && (server || to) ? topology_add(topology, from, to) : NULL;
	if (!link)
		return;
	link->class = link_class_parse(row->class_name);
	snprintf(link->interface, sizeof link->interface, "%s", row->interface);
	snprintf(link->address, sizeof link->address, "%s", row->address);
	snprintf(link->degraded_reason, sizeof link->degraded_reason, "%s", row->degraded);
	link->degraded = link->degraded_reason[0];
	link->values[LINK_INTERFACE_BITS] = row->interface_bits_per_s;
	link->values[LINK_RTT_MS] = row->rtt_ms;
	link->values[LINK_JITTER_MS] = row->jitter_ms;
	link->values[LINK_LOSS_PERCENT] = row->loss_percent;
	link->values[LINK_THROUGHPUT] = row->throughput_bytes_per_s;
	link->throughput_ms = row->throughput_ms;
	link->measured_ms = row->measured_ms;
}

enum status topology_load(struct topology *topology, struct error *error)
{
	return store_load_links(topology->params.store, load_link, topology, error);
}

static enum status put_link(struct store_batch *batch, const struct topology_from *from,
			    const struct topology_link *link)
{
	const struct store_link row = {.from_node_id = from->node->node_id,
				       .to_node_id = topology_to_id(link),
				       .class_name = link_class_name(link->class),
				       .interface = link->interface,
				       .address = link->address,
				       .interface_bits_per_s = link->values[LINK_INTERFACE_BITS],
				       .rtt_ms = link->values[LINK_RTT_MS],
				       .jitter_ms = link->values[LINK_JITTER_MS],
				       .loss_percent = link->values[LINK_LOSS_PERCENT],
				       .throughput_bytes_per_s = link->values[LINK_THROUGHPUT],
				       .throughput_ms = link->throughput_ms,
				       .measured_ms = link->measured_ms,
				       .degraded = link->degraded ? link->degraded_reason : ""};
	return store_put_link(batch, &row);
}

// Readings that cannot be stored now are tried again with later ones.
void topology_save(struct topology *topology)
{
	struct store_batch *batch;
	bool any = false;
	topology->saved_ms = clock_steady_ms();
	if (store_batch_create(&batch))
		return;
	for (size_t i = 0; i < topology->node_count; i++)
		for (size_t j = 0; j < topology->nodes[i]->count; j++) {
			const struct topology_from *from = topology->nodes[i];
			struct topology_link *link = &from->links[j];
			const bool leaving = from->node->leaving || (link->to && link->to->leaving);
			if (!link->unsaved || leaving || put_link(batch, from, link))
				continue;
			link->unsaved = false;
			any = true;
		}
	if (!any)
		store_batch_destroy(&batch);
	else if (store_commit(topology->params.store, &batch, NULL, NULL))
		log_warning("topology", "the newest readings of links could not be stored");
}

// ---- minutes ----

static void end_minute(const struct topology_from *from, struct topology_link *link, struct store_minute *minute,
		       char series[STORE_SERIES_BYTES])
{
	snprintf(series, STORE_SERIES_BYTES, "%s %s", from->node->node_id, topology_to_id(link));
	*minute = (struct store_minute){.kind = STORE_OF_LINK, .series = series, .minute_ms = link->minute_ms};
	for (int i = 0; i < STORE_COLUMNS; i++)
		minute->values[i] = (double)NAN;
	for (int i = 0; i < STORE_LINK_COLUMNS; i++) {
		if (link->counts[i])
			minute->values[i] = link->sums[i] / link->counts[i];
		link->sums[i] = 0;
		link->counts[i] = 0;
	}
	link->minute_ms = 0;
}

void topology_count_minute(struct topology *topology, struct topology_link *link, int64_t now_ms)
{
	const int64_t minute_ms = now_ms - now_ms % TOPOLOGY_MINUTE_MS;
	if (link->minute_ms && link->minute_ms != minute_ms)
		topology_end_minutes(topology, now_ms);
	if (!link->up)
		return;
	link->minute_ms = minute_ms;
	for (int i = 0; i < STORE_LINK_COLUMNS; i++)
		if (link->values[i] >= 0) {
			link->sums[i] += link->values[i];
			link->counts[i]++;
		}
}

void topology_end_minutes(struct topology *topology, int64_t now_ms)
{
	char series[MINUTES_AT_ONCE][STORE_SERIES_BYTES];
	struct store_minute minutes[MINUTES_AT_ONCE];
	size_t count = 0;
	const int64_t minute_ms = now_ms - now_ms % TOPOLOGY_MINUTE_MS; // that is under way
	for (size_t i = 0; i < topology->node_count; i++)
		for (size_t j = 0; j < topology->nodes[i]->count; j++) {
			struct topology_link *link = &topology->nodes[i]->links[j];
			if (!link->minute_ms || link->minute_ms == minute_ms)
				continue;
			end_minute(topology->nodes[i], link, &minutes[count], series[count]);
			if (++count < MINUTES_AT_ONCE)
				continue;
			store_add_minutes(topology->params.store, minutes, count);
			count = 0;
		}
	store_add_minutes(topology->params.store, minutes, count);
}
