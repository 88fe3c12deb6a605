/* An instance as the API shows it. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/models/instances_inside.h"

#include <stdio.h>
#include <string.h>

const char *instance_state_name(enum instance_state state)
{
	switch (state) {
	case INSTANCE_STARTING:
		return "starting";
	case INSTANCE_LOADING:
		return "loading";
	case INSTANCE_READY:
		return "ready";
	case INSTANCE_PAUSED:
		return "paused";
	case INSTANCE_STOPPING:
		return "stopping";
	case INSTANCE_FAILED:
		return "failed";
	}
	return "";
}

static const char *step_name(enum placement_step step)
{
	switch (step) {
	case STEP_NONE:
		return NULL;
	case STEP_SPILLED:
		return "spilled";
	case STEP_SMALLER_FORMAT:
		return "smaller_format";
	case STEP_CPU:
		return "cpu";
	}
	return NULL;
}

static struct json *progress_json(const struct instance *instance)
{
	uint64_t done, total;
	if (!instance->parts || (instance->state != INSTANCE_LOADING && instance->state != INSTANCE_PAUSED))
		return json_new_null();
	struct json *json = json_new_object(), *parts = json_new_array();
	uint64_t all_done = 0, all_total = 0;
	for (unsigned i = 0; i < parts_count(instance->parts); i++) {
		struct json *part = json_new_object();
		parts_progress(instance->parts, i, &done, &total);
		json_set_string(part, "node_id", parts_node_id(instance->parts, i));
		instance_set_bytes(part, "loaded_bytes", done);
		instance_set_bytes(part, "total_bytes", total);
		json_push(parts, part);
		all_done += done;
		all_total += total;
	}
	instance_set_bytes(json, "loaded_bytes", all_done);
	instance_set_bytes(json, "total_bytes", all_total);
	json_set(json, "parts", parts);
	return json;
}

// ---- where the time goes ----

enum { EVEN_PERCENT = 120, NODE_NAME_BYTES = 129 };

static void name_node(const struct instance *instance, const char *node_id, char name[NODE_NAME_BYTES])
{
	struct json *node = cluster_describe_node(instance->all->params.cluster, node_id);
	snprintf(name, NODE_NAME_BYTES, "%.128s", json_get_string(node, "name", node_id));
	json_destroy(&node);
}

// The hop that takes longest, by the round trip of its link.
static unsigned slowest_hop(const struct instance *instance, struct topology_reading *out)
{
	unsigned slowest = 0;
	const struct parts *parts = instance->parts;
	*out = (struct topology_reading){.rtt_ms = -1, .throughput_bytes_per_s = -1};
	for (unsigned i = 0; i < parts_count(parts); i++) {
		struct topology_reading reading;
		topology_find(instance->all->params.topology, parts_node_id(parts, i),
			      parts_node_id(parts, (i + 1) % parts_count(parts)), &reading);
		if (!reading.known || reading.rtt_ms <= out->rtt_ms)
			continue;
		*out = reading;
		slowest = i;
	}
	return slowest;
}

static void explain_hops(const struct instance *instance, int percent, struct buffer *text)
{
	char line[512], from[NODE_NAME_BYTES], to[NODE_NAME_BYTES];
	struct topology_reading reading;
	const struct parts *parts = instance->parts;
	const unsigned hop = slowest_hop(instance, &reading);
	name_node(instance, parts_node_id(parts, hop), from);
	name_node(instance, parts_node_id(parts, (hop + 1) % parts_count(parts)), to);
	snprintf(line, sizeof line, "the ways between its parts take %d %% of each token", percent);
	buffer_append_text(text, line);
	if (reading.rtt_ms < 0)
		return;
	snprintf(line, sizeof line, "; the slowest is from %.128s to %.128s, %.1f ms there and back%s", from, to,
		 reading.rtt_ms, reading.direct ? "" : ", by way of the server");
	buffer_append_text(text, line);
	buffer_append_text(text, !reading.direct ? "; a direct link would be shorter"
				 : !strcmp(reading.link_class, "wifi") || !strcmp(reading.link_class, "cellular")
					 ? "; a wired link would save most of it"
					 : "; fewer parts, or machines nearer to each other, would save most of it");
}

static void explain_part(const struct instance *instance, unsigned part, int percent, struct buffer *text)
{
	char line[400];
	const struct instance_stage *first = parts_stage(instance->parts, part);
	const struct instance_stage *end = part + 1 < parts_count(instance->parts)
						   ? parts_stage(instance->parts, part + 1)
						   : instance->stages + instance->stage_count;
	snprintf(line, sizeof line,
		 "layers %u to %u on %.128s take %d %% of each token; fewer layers there, or a faster device, would "
		 "help",
		 first->first_layer, end[-1].first_layer + end[-1].layer_count - 1, cluster_device_name(first->device),
		 percent);
	buffer_append_text(text, line);
}

struct json *instance_timing_json(const struct instance *instance, const struct json *told)
{
	struct buffer text;
	const struct json *part_ms = json_get(told, "parts_ms"), *one = json_first(part_ms);
	const double step_ms = json_get_number(told, "step_ms", 0), hops_ms = json_get_number(told, "hops_ms", 0);
	const int64_t tokens = json_get_integer(told, "tokens", 0);
	struct json *json = json_new_object(), *parts = json_new_array();
	double longest = 0, sum = 0;
	unsigned slowest = 0, count = parts_count(instance->parts);
	if (json_count(part_ms) < count)
		count = (unsigned)json_count(part_ms);
	for (unsigned i = 0; i < count; i++, one = json_next(one)) {
		const double ms = json_number(one, 0);
		struct json *part = json_new_object();
		json_set_string(part, "node_id", parts_node_id(instance->parts, i));
		json_set_number(part, "compute_ms", ms);
		json_push(parts, part);
		slowest = ms > longest ? i : slowest;
		longest = ms > longest ? ms : longest;
		sum += ms;
	}
	const double whole = sum + hops_ms > 0 ? sum + hops_ms : 1;
	buffer_init(&text, 512);
	if (hops_ms > longest)
		explain_hops(instance, (int)(100 * hops_ms / whole + 0.5), &text);
	else if (longest * count * 100 > sum * EVEN_PERCENT)
		explain_part(instance, slowest, (int)(100 * longest / whole + 0.5), &text);
	else
		buffer_append_text(&text, "none in particular: its parts take about as long as each other");
	json_set_number(json, "step_ms", step_ms);
	json_set(json, "parts", parts);
	json_set_number(json, "hops_ms", hops_ms);
	if (tokens > 0)
		json_set_number(json, "sent_bytes_per_token",
				(double)json_get_integer(told, "sent_bytes", 0) / (double)tokens);
	else
		json_set_null(json, "sent_bytes_per_token");
	json_set_string(json, "bottleneck", buffer_text(&text));
	buffer_finish(&text);
	return json;
}

// ---- what it is ----

// Where a layer goes; NULL: nowhere yet.
static const char *device_of(const struct instance *instance, uint32_t layer)
{
	for (unsigned i = 0; instance->parts && i < instance->stage_count; i++)
		if (layer - instance->stages[i].first_layer < instance->stages[i].layer_count)
			return cluster_device_id(instance->stages[i].device);
	return NULL;
}

static struct json *missing_json(const struct instance *instance)
{
	struct json *list = json_new_array();
	for (unsigned i = 0; i < instance->recovery.missing_count; i++) {
		const struct instance_missing *missing = &instance->recovery.missing[i];
		struct json *json = json_new_object();
		json_set_integer(json, "first_layer", missing->first_layer);
		json_set_integer(json, "layer_count", missing->layer_count);
		json_set_string(json, "device_id", missing->device_id);
		json_set_string(json, "to_device_id", device_of(instance, missing->first_layer));
		json_push(list, json);
	}
	return list;
}

struct json *instance_json(const struct instance *instance)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object(), *stages = json_new_array();
	for (unsigned i = 0; i < instance->stage_count; i++)
		json_push(stages,
			  instance_stage_json(cluster_device_id(instance->stages[i].device), &instance->stages[i]));
	json_set_string(json, "instance_id", instance->instance_id);
	json_set_string(json, "model_id", instance->model_id);
	json_set_string(json, "model_name", instance->model_name);
	json_set_string(json, "state", instance_state_name(instance->state));
	json_set_string(json, "state_reason", instance->state_reason[0] ? instance->state_reason : NULL);
	json_set_string(json, "created_at", clock_format(instance->created_ms, at));
	json_set_string(json, "ready_at", instance->ready_ms ? clock_format(instance->ready_ms, at) : NULL);
	json_set_string(json, "strategy", instance->strategy);
	json_set(json, "stages", stages);
	json_set_string(json, "format", format_info(instance->format)->name);
	json_set_integer(json, "context_tokens", instance->context_tokens);
	json_set_integer(json, "sequences", instance->sequences);
	json_set_string(json, "short_of_memory", step_name(instance->step));
	json_set(json, "progress", progress_json(instance));
	instance_set_maybe(json, "load_ms", instance->load_ms);
	instance_set_bytes(json, "running", instance->running);
	instance_set_bytes(json, "waiting", instance->waiting);
	instance_set_bytes(json, "pages_used", instance->pages_used);
	instance_set_bytes(json, "pages_cached", instance->pages_cached);
	instance_set_bytes(json, "page_count", instance->page_count);
	instance_set_bytes(json, "prompt_tokens", instance->prompt_tokens);
	instance_set_bytes(json, "generated_tokens", instance->generated_tokens);
	instance_set_maybe(json, "tokens_per_s", instance->tokens_per_s);
	json_set_bool(json, "chat", instance->chat);
	instance_set_bytes(json, "epoch", instance->epoch);
	json_set_integer(json, "recoveries", instance->recoveries);
	instance_set_bytes(json, "ties", instance->ties_before + instance->ties);
	json_set(json, "offer", instance->offer ? json_copy(instance->offer) : json_new_null());
	json_set(json, "hops", instance->hops ? json_copy(instance->hops) : json_new_array());
	json_set(json, "timing", instance->timing ? json_copy(instance->timing) : json_new_null());
	json_set(json, "missing", missing_json(instance));
	return json;
}
