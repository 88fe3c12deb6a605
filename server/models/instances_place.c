/* A placement as the API shows it. Thread: the loop's. */
#include "server/models/instances_inside.h"

#include <string.h>

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

struct json *instance_stage_json(const char *device_id, const struct instance_stage *stage)
{
	struct json *json = json_new_object();
	json_set_string(json, "device_id", device_id);
	json_set_integer(json, "first_layer", stage->first_layer);
	json_set_integer(json, "layer_count", stage->layer_count);
	json_set_integer(json, "host_layers", stage->host_layers);
	json_set_bool(json, "embeds", stage->embeds);
	json_set_bool(json, "predicts", stage->predicts);
	set_bytes(json, "weights_bytes", stage->memory.weights_bytes);
	set_bytes(json, "kv_bytes", stage->memory.kv_bytes);
	set_bytes(json, "workspace_bytes", stage->memory.workspace_bytes);
	set_bytes(json, "host_bytes", stage->memory.host_bytes);
	set_maybe(json, "seconds_per_token", stage->seconds_per_token);
	return json;
}

static struct json *stages_json(const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	struct json *stages = json_new_array();
	for (unsigned i = 0; i < placement->stage_count; i++) {
		const struct placement_stage *from = &placement->stages[i];
		const struct instance_stage stage = {.first_layer = from->first_layer,
						     .layer_count = from->layer_count,
						     .host_layers = from->host_layers,
						     .embeds = from->embeds,
						     .predicts = from->predicts,
						     .memory = from->memory,
						     .seconds_per_token = from->seconds_per_token};
		json_push(stages, instance_stage_json(placing->devices[from->device].device_id, &stage));
	}
	return stages;
}

static struct json *devices_json(const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	struct json *devices = json_new_array();
	for (unsigned i = 0; i < placing->wanted.device_count; i++) {
		const struct placement_device *device = &placing->devices[i];
		struct json *json = json_new_object();
		uint64_t needed = 0;
		for (unsigned j = 0; j < placement->stage_count; j++) {
			const struct stage_memory *memory = &placement->stages[j].memory;
			needed += placement->stages[j].device == i
					  ? memory->weights_bytes + memory->kv_bytes + memory->workspace_bytes
					  : 0;
			needed += device->backend == PLACE_CPU ? memory->host_bytes : 0;
		}
		json_set_string(json, "device_id", device->device_id);
		set_bytes(json, "memory_bytes", device->memory_bytes);
		if (device->free_known)
			set_bytes(json, "free_bytes", device->free_bytes);
		else
			json_set_null(json, "free_bytes");
		set_bytes(json, "needed_bytes", needed);
		json_set_null(json, "score");
		json_push(devices, json);
	}
	return devices;
}

static struct json *whys_json(const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	struct json *whys = json_new_array();
	for (unsigned i = 0; i < placement->why_count; i++) {
		int device = placement->whys[i].device;
		struct json *json = json_new_object();
		json_set_string(json, "device_id", device < 0 ? NULL : placing->devices[device].device_id);
		json_set_string(json, "text", placement->whys[i].text);
		json_push(whys, json);
	}
	return whys;
}

struct json *placing_json(const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	struct json *json = json_new_object(), *predicted = json_new_null();
	const enum tensor_format format = placement->format != FORMAT_UNKNOWN ? placement->format
									      : placing->model->sizes.main_format;
	if (placement->feasible && placement->seconds_per_token > 0) {
		json_destroy(&predicted);
		predicted = json_new_object();
		json_set_number(predicted, "seconds_per_token", placement->seconds_per_token);
		json_set_number(predicted, "tokens_per_s", 1 / placement->seconds_per_token);
	}
	json_set(json, "stages", stages_json(placing));
	json_set_bool(json, "feasible", placement->feasible);
	json_set(json, "predicted", predicted);
	json_set_string(json, "proof",
			!placement->feasible        ? "infeasible"
			: placing->wanted.pin_count ? "none"
						    : "optimal");
	json_set_null(json, "gap");
	json_set_number(json, "search_ms", 0);
	json_set(json, "hops", json_new_array());
	json_set(json, "remedies", json_new_array());
	json_set(json, "why", whys_json(placing));
	json_set_string(json, "format", format_info(format)->name);
	json_set_integer(json, "context_tokens", placing->wanted.context_tokens);
	json_set_integer(json, "sequences", placing->wanted.sequences);
	json_set(json, "devices", devices_json(placing));
	return json;
}
