/* Where the time of a token goes: InstanceTiming, from the last part's report (RingTiming) and the links between parts.
 *
 * Each part measures its computing and waiting times by its own clock; the last part measures the whole round. The rest
 * is the time of the hops. No clock measures a single hop, because it begins on one machine and ends on another. So the
 * rest is divided by the expected time of each hop's actual path: half a round trip, plus its bytes at the path's rate.
 * A remainder goes to hops whose path was not measured, by their bytes, else to all hops equally, because forwarding a
 * message costs each about the same. Thread: the loop's. */
#include "common/wire/said.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <string.h>

enum { EVEN_PERCENT = 120, NODE_NAME_BYTES = 129 };

// From a part to the next.
struct hop_time {
	const char *via; // static: local, link, server
	struct topology_reading way;
	double bytes;               // of a step
	double latency_ms, pass_ms; // half a round trip; its bytes at the way's rate; 0: not known
	bool unknown;               // the time of a hop is not known
	double ms;                  // its share
};

struct stage_time {
	unsigned stage; // of the instance: the first of those that are slices of one
	double ms;
};

struct times {
	const struct instance *instance;
	unsigned count; // parts
	double hops_ms, whole_ms;
	double waited_ms[PLACEMENT_STAGES], compute_ms[PLACEMENT_STAGES]; // (count)
	struct hop_time hops[PLACEMENT_STAGES];                           // (count), none of one part alone
	struct stage_time stages[PLACEMENT_STAGES];                       // (stage_count), in order
	unsigned stage_count, first_stage[PLACEMENT_STAGES + 1];          // (count + 1): of a part, among these
};

// ---- report ----

static unsigned stage_after(const struct instance *instance, unsigned part)
{
	const struct instance_stage *end = part + 1 < parts_count(instance->parts)
						   ? parts_stage(instance->parts, part + 1)
						   : instance->stages + instance->stage_count;
	return (unsigned)(end - instance->stages);
}

// Each stage of a part on its own, if it tells of as many as it has; else the part as one.
static void take_stages(struct times *times, unsigned part, const struct json *stages_ms)
{
	const struct instance *instance = times->instance;
	const unsigned first = (unsigned)(parts_stage(instance->parts, part) - instance->stages),
		       end = stage_after(instance, part), before = times->stage_count;
	const struct json *one = json_first(stages_ms);
	for (unsigned i = first; i < end && one; i++) {
		if (instance->stages[i].slices && instance->stages[i].slice)
			continue;
		times->stages[times->stage_count++] = (struct stage_time){.stage = i, .ms = json_number(one, 0)};
		one = json_next(one);
	}
	if (!one && times->stage_count > before + 1)
		return;
	times->stage_count = before;
	times->stages[times->stage_count++] = (struct stage_time){.stage = first, .ms = times->compute_ms[part]};
}

static void take_parts(struct times *times, const struct json *told)
{
	const struct json *parts = json_get(told, "parts"), *one = json_first(parts);
	const double steps = json_get_number(told, "steps", 1);
	times->count = parts_count(times->instance->parts);
	if (json_count(parts) < times->count)
		times->count = (unsigned)json_count(parts);
	for (unsigned i = 0; i < times->count; i++, one = json_next(one)) {
		const unsigned hop = (i + times->count - 1) % times->count; // that brought it
		times->waited_ms[i] = json_get_number(one, "waited_ms", 0);
		times->compute_ms[i] = json_get_number(one, "compute_ms", 0);
		times->hops[hop].bytes = json_get_number(one, "came_bytes", 0) / (steps > 0 ? steps : 1);
		times->first_stage[i] = times->stage_count;
		take_stages(times, i, json_get(one, "stages_ms"));
		times->whole_ms += times->waited_ms[i] + times->compute_ms[i];
	}
	times->first_stage[times->count] = times->stage_count;
	times->hops_ms = json_get_number(told, "hops_ms", 0);
	times->whole_ms += times->hops_ms;
}

// ---- hops ----

static void look_at_way(const struct times *times, unsigned hop, struct hop_time *out)
{
	const struct parts *parts = times->instance->parts;
	const struct topology *topology = times->instance->all->params.topology;
	const char *from = parts_node_id(parts, hop), *to = parts_node_id(parts, (hop + 1) % times->count);
	out->via = parts_via(parts, hop);
	if (!strcmp(out->via, "server"))
		topology_find_relay(topology, from, to, &out->way);
	else
		topology_find(topology, from, to, &out->way);
	if (!strcmp(out->via, "local"))
		return;
	const bool gone = !strcmp(out->via, "link") && !out->way.direct; // it is about to break
	const double rate = gone ? -1 : out->way.throughput_bytes_per_s;
	out->latency_ms = out->way.known && !gone ? out->way.rtt_ms / 2 : 0;
	out->pass_ms = rate > 0 ? out->bytes * 1000 / rate : 0;
	out->unknown = !out->way.known || rate <= 0;
}

static void share_hops(struct times *times)
{
	double expected_ms = 0, unknown_bytes = 0;
	unsigned unknown = 0;
	for (unsigned i = 0; i < times->count; i++) {
		struct hop_time *hop = &times->hops[i];
		look_at_way(times, i, hop);
		expected_ms += hop->latency_ms + hop->pass_ms;
		unknown += hop->unknown;
		unknown_bytes += hop->unknown ? hop->bytes : 0;
	}
	const double rest_ms = times->hops_ms - expected_ms;
	for (unsigned i = 0; i < times->count; i++) {
		struct hop_time *hop = &times->hops[i];
		hop->ms = hop->latency_ms + hop->pass_ms;
		if (rest_ms < 0)
			hop->ms *= times->hops_ms / expected_ms;
		else if (!unknown)
			hop->ms += rest_ms / times->count;
		else if (hop->unknown)
			hop->ms += rest_ms * (unknown_bytes > 0 ? hop->bytes / unknown_bytes : 1.0 / unknown);
	}
}

// ---- in words ----

static void name_node(const struct instance *instance, const char *node_id, char name[NODE_NAME_BYTES])
{
	struct json *node = cluster_describe_node(instance->all->params.cluster, node_id);
	snprintf(name, NODE_NAME_BYTES, "%.128s", json_get_string(node, "name", node_id));
	json_destroy(&node);
}

static int percent_of(const struct times *times, double ms)
{
	const double percent = 100 * (ms / times->whole_ms);
	return percent >= 0 && percent <= 100 ? (int)(percent + 0.5) : 0;
}

static const char *remedy_of(const struct times *times, unsigned at)
{
	const struct parts *parts = times->instance->parts;
	const struct hop_time *hop = &times->hops[at];
	struct topology_reading now;
	const char *class = hop->way.link_class;
	if (hop->way.relayed) {
		topology_find(times->instance->all->params.topology, parts_node_id(parts, at),
			      parts_node_id(parts, (at + 1) % times->count), &now);
		return now.direct ? "the two have a direct link, which it uses after it is loaded again"
				  : "a direct link would be faster";
	}
	if (!strcmp(class, "wifi") || !strcmp(class, "cellular"))
		return "a wired link would save most of it";
	if (hop->pass_ms > hop->latency_ms)
		return "a faster link between the two would save most of it";
	return "fewer parts, or machines closer to each other, would save most of it";
}

static void explain_hops(const struct times *times, struct buffer *text)
{
	char from[NODE_NAME_BYTES], to[NODE_NAME_BYTES];
	const struct parts *parts = times->instance->parts;
	unsigned at = 0;
	for (unsigned i = 1; i < times->count; i++)
		at = times->hops[i].ms > times->hops[at].ms ? i : at;
	const struct hop_time *hop = &times->hops[at];
	name_node(times->instance, parts_node_id(parts, at), from);
	name_node(times->instance, parts_node_id(parts, (at + 1) % times->count), to);
	buffer_printf(text, "the hops between its parts take %d %% of each token", percent_of(times, times->hops_ms));
	if (!strcmp(hop->via, "local")) {
		buffer_append_text(text, "; they are on one machine, which is busy with other work");
		return;
	}
	buffer_printf(text, "; the longest is from %.64s to %.64s, %s%s, about %.3g ms", from, to,
		      !strcmp(hop->via, "server") ? "through " : "by ",
		      !strcmp(hop->via, "server") ? "the server" : topology_class_words(hop->way.link_class), hop->ms);
	const bool known = !hop->unknown && hop->latency_ms + hop->pass_ms <= 1.01 * hop->ms; // else it is quicker now
	if (known && hop->pass_ms > hop->latency_ms && hop->pass_ms > hop->ms / 2)
		buffer_printf(text, ", since %.3g kB take their time at %.3g MB/s", hop->bytes * 1e-3,
			      hop->way.throughput_bytes_per_s * 1e-6);
	else if (known && hop->latency_ms > hop->ms / 2)
		buffer_printf(text, ", since the round trip takes %.3g ms", hop->way.rtt_ms);
	else if (known)
		buffer_printf(text,
			      ", which is more than the link takes (%.3g ms): its machines are busy with other work",
			      hop->latency_ms + hop->pass_ms);
	buffer_printf(text, "; %s", remedy_of(times, at));
}

static double compute_ms(const struct times *times)
{
	double ms = 0;
	for (unsigned i = 0; i < times->stage_count; i++)
		ms += times->stages[i].ms;
	return ms;
}

static void explain_stage(const struct times *times, const struct stage_time *time, bool waits, double ms,
			  struct buffer *text)
{
	const struct instance *instance = times->instance;
	const struct stage_time *end = times->stages + times->stage_count;
	const unsigned next = time + 1 < end ? time[1].stage : instance->stage_count;
	const struct instance_stage *first = &instance->stages[time->stage], *last = &instance->stages[next - 1];
	char name[GATHER_NAME_BYTES];
	buffer_printf(text, "layers %u to %u on %s ", first->first_layer, last->first_layer + last->layer_count - 1,
		      gather_name(instance->all, first->device, name));
	if (waits) {
		buffer_printf(text,
			      "have more to do than the others: steps wait for them for %d %% of each token; fewer "
			      "layers there, or a faster device, would raise the throughput",
			      percent_of(times, ms));
		return;
	}
	buffer_printf(text, "take %d %% of each token", percent_of(times, ms));
	const double others_ms = compute_ms(times) - ms;
	if (others_ms > 0 && ms / others_ms * (times->stage_count - 1) < 1000)
		buffer_printf(text, ", %.1f times as long as the others on average",
			      ms / others_ms * (times->stage_count - 1));
	buffer_append_text(text, "; fewer layers there, or a faster device, would help");
}

static struct bottleneck called_for(const struct times *times)
{
	const struct stage_time *longest = &times->stages[0];
	double waited_ms = 0;
	unsigned line = 0; // the part where steps wait longest
	for (unsigned i = 0; i < times->stage_count; i++)
		longest = times->stages[i].ms > longest->ms ? &times->stages[i] : longest;
	for (unsigned i = 0; i < times->count; i++) {
		waited_ms += times->waited_ms[i];
		line = times->waited_ms[i] > times->waited_ms[line] ? i : line;
	}
	if (times->count > 1 && times->hops_ms > longest->ms && times->hops_ms > waited_ms)
		return (struct bottleneck){.kind = BOTTLENECK_HOPS};
	if (waited_ms > longest->ms)
		return (struct bottleneck){BOTTLENECK_WAIT, times->stages[times->first_stage[line]].stage};
	if (longest->ms * times->stage_count * 100 > compute_ms(times) * EVEN_PERCENT)
		return (struct bottleneck){BOTTLENECK_STAGE, longest->stage};
	return (struct bottleneck){.kind = BOTTLENECK_NONE};
}

// The part of a stage, and its times; false: there are no more.
static bool find_stage(const struct times *times, unsigned stage, unsigned *part, const struct stage_time **time)
{
	for (*part = 0; *part < times->count; ++*part)
		for (unsigned i = times->first_stage[*part]; i < times->first_stage[*part + 1]; i++)
			if (times->stages[i].stage == stage) {
				*time = &times->stages[i];
				return true;
			}
	return false;
}

// Describe the shown bottleneck in words and as `slowest`, so that both agree.
static struct json *explain(const struct times *times, struct bottleneck_shown *shown, struct buffer *text)
{
	unsigned part = 0;
	const struct stage_time *time = NULL;
	struct json *json = json_new_object();
	struct bottleneck is = bottleneck_settle(shown, called_for(times));
	const bool of_stage = is.kind == BOTTLENECK_STAGE || is.kind == BOTTLENECK_WAIT;
	if (of_stage && !find_stage(times, is.stage, &part, &time))
		is = (struct bottleneck){.kind = BOTTLENECK_NONE};
	switch (is.kind) {
	case BOTTLENECK_NONE:
		buffer_append_text(text, "its parts take about equally long");
		break;
	case BOTTLENECK_STAGE:
		explain_stage(times, time, false, time->ms, text);
		break;
	case BOTTLENECK_WAIT:
		explain_stage(times, time, true, times->waited_ms[part], text);
		break;
	case BOTTLENECK_HOPS:
		explain_hops(times, text);
		break;
	}
	json_set_string(json, "kind", bottleneck_name(is.kind));
	json_set_null(json, "device_id");
	json_set_null(json, "first_layer");
	if (time) {
		const struct instance_stage *stage = &times->instance->stages[time->stage];
		json_set_string(json, "device_id", cluster_device_id(stage->device));
		json_set_integer(json, "first_layer", stage->first_layer);
	}
	return json;
}

// ---- as the API shows it ----

static void set_per_token(struct json *json, double bytes, double steps, int64_t tokens)
{
	if (tokens > 0)
		json_set_number(json, "sent_bytes_per_token", bytes * steps / (double)tokens);
	else
		json_set_null(json, "sent_bytes_per_token");
}

static struct json *part_json(const struct times *times, unsigned part)
{
	struct json *json = json_new_object(), *stages = json_new_array();
	json_set_string(json, "node_id", parts_node_id(times->instance->parts, part));
	json_set_number(json, "waited_ms", times->waited_ms[part]);
	json_set_number(json, "compute_ms", times->compute_ms[part]);
	for (unsigned i = times->first_stage[part]; i < times->first_stage[part + 1]; i++) {
		const struct instance_stage *stage = &times->instance->stages[times->stages[i].stage];
		struct json *one = json_new_object();
		json_set_string(one, "device_id", cluster_device_id(stage->device));
		json_set_integer(one, "first_layer", stage->first_layer);
		json_set_number(one, "compute_ms", times->stages[i].ms);
		json_push(stages, one);
	}
	json_set(json, "stages", stages);
	return json;
}

static struct json *hop_json(const struct times *times, unsigned at, double steps, int64_t tokens)
{
	const struct parts *parts = times->instance->parts;
	const struct hop_time *hop = &times->hops[at];
	struct json *json = json_new_object();
	json_set_string(json, "from_node_id", parts_node_id(parts, at));
	json_set_string(json, "to_node_id", parts_node_id(parts, (at + 1) % times->count));
	json_set_string(json, "via", hop->via);
	json_set_string(json, "class", hop->way.link_class);
	json_set_number(json, "ms", hop->ms);
	instance_set_maybe(json, "rtt_ms", hop->way.rtt_ms);
	instance_set_maybe(json, "throughput_bytes_per_s", hop->way.throughput_bytes_per_s);
	set_per_token(json, hop->bytes, steps, tokens);
	return json;
}

struct json *instance_timing_json(struct instance *instance, const struct json *told)
{
	struct buffer text;
	struct times times = {.instance = instance};
	const double steps = json_get_number(told, "steps", 0);
	const int64_t tokens = json_get_integer(told, "tokens", 0);
	struct json *json = json_new_object(), *parts = json_new_array(), *hops = json_new_array();
	double bytes = 0;
	take_parts(&times, told);
	if (times.count > 1)
		share_hops(&times);
	for (unsigned i = 0; i < times.count; i++) {
		json_push(parts, part_json(&times, i));
		if (times.count > 1)
			json_push(hops, hop_json(&times, i, steps, tokens));
		bytes += times.hops[i].bytes;
	}
	json_set_number(json, "step_ms", json_get_number(told, "step_ms", 0));
	json_set(json, "parts", parts);
	json_set(json, "hops", hops);
	json_set_number(json, "hops_ms", times.hops_ms);
	set_per_token(json, bytes, steps, tokens);
	buffer_init(&text, 512);
	if (!instance->timing) // of another placement
		instance->bottleneck = (struct bottleneck_shown){0};
	json_set(json, "slowest", explain(&times, &instance->bottleneck, &text));
	said_set(json, "bottleneck", buffer_text(&text));
	buffer_finish(&text);
	return json;
}
