/* The cost of a link that is worse than its class to the models on it, for alerts. A token of one request goes from
 * each part to the next, with its activations, and from the last to the first. Thread: the loop's. */
#include "server/instances/instances_inside.h"

#include <string.h>

static uint64_t hop_bytes(const struct instance *instance, unsigned part)
{
	const bool last = part + 1 == parts_count(instance->parts); // it gives a token alone
	return last ? 0 : sizeof(float) * instance->model->shape.embedding;
}

// Whether the hop behind this part goes over the link, and by how much longer it takes for that.
static bool is_over(const struct instance *instance, unsigned part, const char *node_id, const char *other_node_id,
		    double *late_s)
{
	const struct parts *parts = instance->parts;
	const struct topology *topology = instance->all->params.topology;
	const char *from = parts_node_id(parts, part), *to = parts_node_id(parts, (part + 1) % parts_count(parts));
	const char *via = parts_via(parts, part);
	const uint64_t bytes = hop_bytes(instance, part);
	const bool starts = !strcmp(from, node_id), ends = !strcmp(to, node_id);
	*late_s = 0;
	if (!strcmp(other_node_id, "server")) {
		if (strcmp(via, "server") != 0 || !(starts || ends))
			return false;
		*late_s = topology_late_s(topology, node_id, "server", ends, bytes);
		return true;
	}
	if (strcmp(via, "link") != 0 ||
	    !((starts && !strcmp(to, other_node_id)) || (ends && !strcmp(from, other_node_id))))
		return false;
	*late_s = topology_late_s(topology, from, to, false, bytes);
	return true;
}

// Seconds of the hop behind this part, by the model of costs; < 0: its way was not measured.
static double hop_s(const struct instance *instance, unsigned part)
{
	struct topology_reading way;
	const struct parts *parts = instance->parts;
	const struct topology *topology = instance->all->params.topology;
	const char *from = parts_node_id(parts, part), *to = parts_node_id(parts, (part + 1) % parts_count(parts));
	const char *via = parts_via(parts, part);
	if (!strcmp(via, "local"))
		return cost_way_s(NULL, hop_bytes(instance, part));
	(!strcmp(via, "server") ? topology_find_relay : topology_find)(topology, from, to, &way);
	const struct placement_link link = {.round_trip_s = way.rtt_ms / 1000,
					    .bytes_per_s = way.throughput_bytes_per_s};
	return way.known && link.bytes_per_s > 0 ? cost_way_s(&link, hop_bytes(instance, part)) : -1;
}

// Seconds of a token of one request; < 0: not known.
static double token_s(const struct instance *instance)
{
	double all_s = 0;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *stage = &instance->stages[i];
		if (stage->seconds_per_token < 0)
			return -1;
		all_s += stage->slice ? 0 : stage->seconds_per_token; // slices compute together
	}
	for (unsigned part = 0; part < parts_count(instance->parts); part++) {
		const double one_s = hop_s(instance, part);
		if (one_s < 0)
			return -1;
		all_s += one_s;
	}
	return all_s;
}

static void take_most(struct instances_over *out, const struct instance *instance, double late_s)
{
	if (out->model_name && late_s <= out->late_s)
		return;
	const double all_s = token_s(instance);
	const bool known = all_s > late_s;
	out->model_name = instance->model_name;
	out->late_s = late_s;
	out->rate = known ? 1 / all_s : -1;
	out->rate_as_class = known ? 1 / (all_s - late_s) : -1;
}

void instances_over_link(const struct instances *instances, const char *node_id, const char *other_node_id,
			 struct instances_over *out)
{
	*out = (struct instances_over){.rate = -1, .rate_as_class = -1};
	for (const struct instance *one = instances->first; one; one = one->next) {
		bool uses = false;
		double late_s = 0, hop_late_s;
		if (one->state != INSTANCE_RUNNING || !one->parts || !one->model || parts_count(one->parts) < 2)
			continue;
		for (unsigned part = 0; part < parts_count(one->parts); part++) {
			uses |= is_over(one, part, node_id, other_node_id, &hop_late_s);
			late_s += hop_late_s;
		}
		if (!uses)
			continue;
		out->count++;
		take_most(out, one, late_s);
	}
}
