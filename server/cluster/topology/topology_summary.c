/* The cluster as one machine: what it has, how large its distances are, and which
 * path limits it most. Counts online nodes and their usable devices; devices that
 * share a pool of memory count it once. A path limits more the longer HOP_BYTES
 * take on it. That is the size of a batch of activations, so delay and rate both
 * count. */
#include "common/wire/said.h"
#include "server/cluster/topology/topology_inside.h"

#include <stdio.h>
#include <string.h>

static const double HOP_BYTES = 1 << 20;

struct mean {
	double sum;
	unsigned count;
};

static void mean_add(struct mean *mean, double value)
{
	if (value < 0)
		return;
	mean->sum += value;
	mean->count++;
}

static void set_mean(struct json *json, const char *name, const struct mean *mean)
{
	if (mean->count)
		json_set_number(json, name, mean->sum / mean->count);
	else
		json_set_null(json, name);
}

static bool usable(const struct cluster_device *device)
{
	const char *reason, *state = cluster_device_state(device, &reason);
	return strcmp(state, "offline") != 0 && strcmp(state, "unsupported") != 0;
}

static bool counted_before(const struct cluster *cluster, size_t place)
{
	const struct cluster_device *device = cluster->devices[place];
	const char *pool = json_get_string(device->record, "memory_pool", "");
	for (size_t i = 0; i < place; i++) {
		const struct cluster_device *other = cluster->devices[i];
		if (other->node == device->node && usable(other) &&
		    !strcmp(json_get_string(other->record, "memory_pool", ""), pool))
			return true;
	}
	return false;
}

static void add_devices(const struct cluster *cluster, struct json *json)
{
	int64_t count = 0, memory = 0;
	for (size_t i = 0; i < cluster->device_count; i++) {
		if (!usable(cluster->devices[i]))
			continue;
		count++;
		if (!counted_before(cluster, i))
			memory += json_get_integer(cluster->devices[i]->record, "memory_bytes", 0);
	}
	json_set_integer(json, "devices", count);
	json_set_integer(json, "memory_bytes", memory);
}

// Results of going over all pairs of online nodes, in both directions.
struct survey {
	int64_t nodes, pairs, direct, degraded;
	double diameter_ms, worst_s;
	struct mean rtt, throughput;
	const struct cluster_node *from, *to; // of the worst way
	struct topology_reading worst;
};

static void survey_way(struct survey *survey, const struct cluster_node *from, const struct cluster_node *to,
		       const struct topology_reading *way)
{
	if (!way->known)
		return;
	if (way->rtt_ms > survey->diameter_ms)
		survey->diameter_ms = way->rtt_ms;
	const double rate = way->throughput_bytes_per_s;
	const double seconds = way->rtt_ms / 2000 + (rate > 0 ? HOP_BYTES / rate : 0);
	if (survey->from && seconds <= survey->worst_s)
		return;
	survey->worst_s = seconds;
	survey->from = from;
	survey->to = to;
	survey->worst = *way;
}

static void survey_pairs(const struct topology *topology, struct survey *survey)
{
	const struct cluster *cluster = topology->params.cluster;
	struct topology_reading there, back;
	for (size_t i = 0; i < cluster->node_count; i++) {
		const struct cluster_node *a = cluster->nodes[i];
		if (!a->link)
			continue;
		survey->nodes++;
		for (size_t j = 0; j < i; j++) {
			const struct cluster_node *b = cluster->nodes[j];
			if (!b->link)
				continue;
			topology_way(a, b, &there);
			topology_way(b, a, &back);
			survey->pairs++;
			survey->direct += there.direct || back.direct;
			survey_way(survey, a, b, &there);
			survey_way(survey, b, a, &back);
		}
	}
}

static void add_measured(void *context, const struct topology_figures *figures)
{
	struct survey *survey = context;
	if (!figures->up)
		return;
	survey->degraded += figures->degraded;
	mean_add(&survey->rtt, figures->rtt_ms);
	mean_add(&survey->throughput, figures->throughput_bytes_per_s);
}

static struct json *bottleneck_json(const struct survey *survey)
{
	char text[512], rate[64] = "", figures[3][16];
	if (!survey->from)
		return json_new_null();
	struct json *json = json_new_object();
	const struct topology_reading *worst = &survey->worst;
	const bool relayed = !worst->direct && !survey->from->local && !survey->to->local; // else the server's is its
	const double bytes_per_s = worst->throughput_bytes_per_s;
	if (bytes_per_s >= 0)
		snprintf(rate, sizeof rate, " and the throughput is %s Mbit/s",
			 topology_figure(bytes_per_s * 8e-6, figures[0]));
	snprintf(text, sizeof text, "From %.64s to %.64s, %s%s, a round trip takes %s ms%s: 1 MiB takes %s ms%s%s.",
		 topology_node_name(survey->from), topology_node_name(survey->to), worst->direct ? "by " : "through ",
		 !worst->direct ? "the server" : link_class_words(link_class_parse(worst->link_class)),
		 topology_figure(worst->rtt_ms, figures[1]), rate, topology_figure(survey->worst_s * 1000, figures[2]),
		 bytes_per_s < 0 ? " at least; the throughput has not been measured yet" : "",
		 relayed ? "; a direct link between the two would shorten it" : "");
	json_set_string(json, "from_node_id", survey->from->node_id);
	json_set_string(json, "to_node_id", survey->to->node_id);
	said_set(json, "text", text);
	return json;
}

struct json *topology_summary_json(const struct topology *topology)
{
	struct json *json = json_new_object();
	struct survey survey = {.diameter_ms = -1};
	const struct cluster_pairs peers = cluster_peer_pairs(topology->params.cluster);
	const bool measured = peers.fastest_bytes_per_s > 0;
	survey_pairs(topology, &survey);
	topology_each(topology, add_measured, &survey);
	json_set_integer(json, "nodes", survey.nodes);
	add_devices(topology->params.cluster, json);
	json_set_integer(json, "pairs", survey.pairs);
	json_set_integer(json, "direct_pairs", survey.direct);
	set_mean(json, "mean_rtt_ms", &survey.rtt);
	set_mean(json, "mean_throughput_bytes_per_s", &survey.throughput);
	set_mean(json, "diameter_ms", &(struct mean){survey.diameter_ms, survey.diameter_ms >= 0});
	json_set_integer(json, "peer_to_peer_pairs", peers.count);
	set_mean(json, "slowest_peer_bytes_per_s", &(struct mean){peers.slowest_bytes_per_s, measured});
	set_mean(json, "fastest_peer_bytes_per_s", &(struct mean){peers.fastest_bytes_per_s, measured});
	json_set_integer(json, "degraded", survey.degraded);
	json_set(json, "bottleneck", bottleneck_json(&survey));
	return json;
}
