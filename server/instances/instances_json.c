/* An instance as the API shows it. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/wire/said.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <string.h>

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

// The progress of a part, with its stages in order.
static struct json *loading_json(const struct instance *instance, unsigned part)
{
	uint64_t done, total;
	struct json *list = json_new_array();
	for (unsigned i = 0; i < instance->stage_count; i++) {
		if (!parts_stage_progress(instance->parts, part, i, &done, &total))
			continue;
		struct json *json = json_new_object();
		json_set_string(json, "device_id", cluster_device_id(instance->stages[i].device));
		instance_set_bytes(json, "loaded_bytes", done);
		instance_set_bytes(json, "total_bytes", total);
		json_push(list, json);
	}
	return list;
}

static struct json *progress_json(const struct instance *instance)
{
	uint64_t done, total;
	// A part that only waits for a node or a hop has loaded everything.
	const bool loads = instance->state == INSTANCE_LOADING ||
			   (instance->state == INSTANCE_PAUSED && instance_is_anew(instance));
	if (!loads || !parts_at_work(instance->parts))
		return json_new_null();
	struct json *json = json_new_object(), *parts = json_new_array();
	uint64_t all_done = 0, all_total = 0;
	for (unsigned i = 0; i < parts_count(instance->parts); i++) {
		struct json *part = json_new_object();
		parts_progress(instance->parts, i, &done, &total);
		json_set_string(part, "node_id", parts_node_id(instance->parts, i));
		instance_set_bytes(part, "loaded_bytes", done);
		instance_set_bytes(part, "total_bytes", total);
		json_set(part, "devices", loading_json(instance, i));
		json_push(parts, part);
		all_done += done;
		all_total += total;
	}
	instance_set_bytes(json, "loaded_bytes", all_done);
	instance_set_bytes(json, "total_bytes", all_total);
	json_set(json, "parts", parts);
	return json;
}

// ---- the instance ----

static void push_missing(struct json *list, uint32_t first, uint32_t count, const char *from_id, const char *to_id)
{
	struct json *json = json_new_object();
	json_set_integer(json, "first_layer", first);
	json_set_integer(json, "layer_count", count);
	json_set_string(json, "device_id", from_id);
	json_set_string(json, "to_device_id", to_id);
	json_push(list, json);
}

// The layers of a lost device may go to several devices: an entry for each. Until the new placement its stages are the
// old ones.
static struct json *missing_json(const struct instance *instance)
{
	struct json *list = json_new_array();
	for (unsigned i = 0; i < instance->recovery.missing_count; i++) {
		const struct instance_missing *missing = &instance->recovery.missing[i];
		uint32_t at = missing->first_layer;
		const uint32_t end = at + missing->layer_count;
		const bool placed = instance->parts && instance_is_anew(instance);
		for (unsigned j = 0; placed && j < instance->stage_count && at < end; j++) {
			const struct instance_stage *stage = &instance->stages[j];
			const uint32_t stage_end = stage->first_layer + stage->layer_count;
			if (stage->first_layer > at || stage_end <= at)
				continue;
			const uint32_t until = stage_end < end ? stage_end : end;
			push_missing(list, at, until - at, missing->device_id, cluster_device_id(stage->device));
			at = until;
		}
		if (at < end || !missing->layer_count) // nowhere yet
			push_missing(list, at, end - at, missing->device_id, NULL);
	}
	return list;
}

struct json *instance_json(const struct instance *instance)
{
	return instance->shown ? json_copy(instance->shown->json) : instance_json_now(instance);
}

struct json *instance_sampling(const struct instance *instance, struct json *request)
{
	struct sampling_words wanted, model;
	sampling_say_nothing(&model);
	sampling_read(json_get(instance->wanted, "sampling"), &wanted);
	return sampling_complete(request, &wanted, instance->model ? &instance->model->sampling : &model);
}

struct json *instance_json_now(const struct instance *instance)
{
	char at[CLOCK_TEXT_BYTES];
	const int64_t idle_ms = evict_idle_ms(instance);
	struct json *json = json_new_object(), *stages = json_new_array();
	for (unsigned i = 0; i < instance->stage_count; i++)
		json_push(stages,
			  instance_stage_json(cluster_device_id(instance->stages[i].device), &instance->stages[i]));
	json_set_string(json, "instance_id", instance->instance_id);
	json_set_string(json, "model_id", instance->model_id);
	json_set_string(json, "model_name", instance->model_name);
	json_set_string(json, "state", instance_state_name(instance->state));
	said_set(json, "state_reason", instance->state_reason[0] ? instance->state_reason : NULL);
	json_set_string(json, "created_at", clock_format(instance->created_ms, at));
	json_set_string(json, "ready_at", instance->ready_ms ? clock_format(instance->ready_ms, at) : NULL);
	json_set_string(json, "strategy", instance->strategy);
	json_set(json, "stages", stages);
	json_set_string(json, "format", format_info(instance->format)->name);
	json_set_string(json, "least_format", json_get_string(instance->wanted, "least_format", NULL));
	json_set_string(json, "stepped_from", heat_format_before(instance));
	json_set_integer(json, "context_tokens", instance->context_tokens);
	json_set_integer(json, "sequences", instance->sequences);
	json_set_string(json, "gives_way", evict_name(evict_kind_of(instance)));
	json_set_string(json, "idle_since", idle_ms < 0 ? NULL : clock_format(clock_wall_ms() - idle_ms, at));
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
	instance_set_bytes(json, "proposed_tokens", instance->proposed_tokens);
	instance_set_bytes(json, "accepted_tokens", instance->accepted_tokens);
	json_set(json, "draft", instance_draft_json(instance));
	instance_set_maybe(json, "tokens_per_s", instance->tokens_per_s);
	json_set_bool(json, "chat", instance->chat);
	json_set_string(json, "chat_template", instance->chat_template[0] ? instance->chat_template : NULL);
	json_set(json, "sampling", instance_sampling(instance, NULL));
	instance_set_bytes(json, "epoch", instance->epoch);
	json_set_integer(json, "recoveries", instance->recoveries);
	json_set_integer(json, "moves", instance->moves);
	instance_set_bytes(json, "ties", instance->ties_before + instance->ties);
	json_set(json, "offer", instance->offer ? json_copy(instance->offer) : json_new_null());
	json_set(json, "hops", instance->hops ? json_copy(instance->hops) : json_new_array());
	json_set(json, "timing", instance->timing ? json_copy(instance->timing) : json_new_null());
	json_set(json, "missing", missing_json(instance));
	json_set(json, "remedies",
		 instance->recovery.remedies ? json_copy(instance->recovery.remedies) : json_new_array());
	said_beside(json, "remedies");
	return json;
}
