/* An instance as the API shows it. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/models/instances_inside.h"

static void set_bytes(struct json *object, const char *name, uint64_t value)
{
	json_set_integer(object, name, (int64_t)value);
}

static void set_maybe(struct json *object, const char *name, double value)
{
	if (value < 0)
		json_set_null(object, name);
	else
		json_set_number(object, name, value);
}

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
	struct json *json = json_new_object();
	parts_progress(instance->parts, &done, &total);
	set_bytes(json, "loaded_bytes", done);
	set_bytes(json, "total_bytes", total);
	return json;
}

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
	set_maybe(json, "load_ms", instance->load_ms);
	set_bytes(json, "running", instance->running);
	set_bytes(json, "waiting", instance->waiting);
	set_bytes(json, "pages_used", instance->pages_used);
	set_bytes(json, "pages_cached", instance->pages_cached);
	set_bytes(json, "page_count", instance->page_count);
	set_bytes(json, "prompt_tokens", instance->prompt_tokens);
	set_bytes(json, "generated_tokens", instance->generated_tokens);
	set_maybe(json, "tokens_per_s", instance->tokens_per_s);
	json_set_bool(json, "chat", instance->chat);
	set_bytes(json, "epoch", instance->epoch);
	json_set_integer(json, "recoveries", instance->recoveries);
	json_set(json, "hops", json_new_array());
	json_set_null(json, "timing");
	json_set(json, "missing", missing_json(instance));
	return json;
}
