/* Placements as the API shows them, and previews of them. Thread: the loop's. */
#include "common/wire/said.h"
#include "server/instances/instances_inside.h"

#include <stdlib.h>
#include <string.h>

void instance_set_bytes(struct json *object, const char *name, uint64_t value)
{
	json_set_integer(object, name, (int64_t)value);
}

void instance_set_maybe(struct json *object, const char *name, double value)
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
	instance_set_bytes(json, "weights_bytes", stage->memory.weights_bytes);
	instance_set_bytes(json, "kv_bytes", stage->memory.kv_bytes);
	instance_set_bytes(json, "workspace_bytes", stage->memory.workspace_bytes);
	instance_set_bytes(json, "host_bytes", stage->memory.host_bytes);
	instance_set_maybe(json, "seconds_per_token", stage->seconds_per_token);
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

static struct json *score_json(const struct placement_score *score)
{
	if (score->total < 0)
		return json_new_null();
	struct json *json = json_new_object();
	json_set_number(json, "total", score->total);
	json_set_number(json, "compute", score->compute);
	json_set_number(json, "memory", score->memory);
	json_set_number(json, "network", score->network);
	json_set_number(json, "thermal", score->thermal);
	json_set_number(json, "bandwidth", score->bandwidth);
	return json;
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
			needed += device->backend == PLACE_CPU &&
						  placing->devices[placement->stages[j].device].node == device->node
					  ? memory->host_bytes
					  : 0;
		}
		json_set_string(json, "device_id", device->device_id);
		instance_set_bytes(json, "memory_bytes", device->memory_bytes);
		if (device->free_known)
			instance_set_bytes(json, "free_bytes", device->free_bytes);
		else
			json_set_null(json, "free_bytes");
		instance_set_bytes(json, "needed_bytes", needed);
		instance_set_bytes(json, "given_bytes", placing->given[i]);
		json_set(json, "score", score_json(&placement->scores[i]));
		json_push(devices, json);
	}
	return devices;
}

static struct json *texts_json(const struct placing *placing, const struct placement_text *texts, unsigned count)
{
	struct json *list = json_new_array();
	for (unsigned i = 0; i < count; i++) {
		struct json *json = json_new_object();
		json_set_string(json, "device_id",
				texts[i].device < 0 ? NULL : placing->devices[texts[i].device].device_id);
		said_set(json, "text", texts[i].text);
		json_push(list, json);
	}
	return list;
}

struct json *placing_hops_json(const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	struct json *hops = json_new_array();
	for (unsigned i = 0; i < placement->hop_count; i++) {
		const struct placement_hop *hop = &placement->hops[i];
		struct json *json = json_new_object();
		json_set_string(json, "from_node_id", placing->node_ids[hop->from_node]);
		json_set_string(json, "to_node_id", placing->node_ids[hop->to_node]);
		json_set_string(json, "class", hop->link_class);
		instance_set_bytes(json, "bytes_per_token", hop->bytes_per_token);
		instance_set_maybe(json, "seconds_per_token", hop->measured ? hop->seconds_per_token : -1);
		json_push(hops, json);
	}
	return hops;
}

static const char *proof_name(enum placement_proof proof)
{
	switch (proof) {
	case PROOF_NONE:
		return "none";
	case PROOF_OPTIMAL:
		return "optimal";
	case PROOF_BOUND:
		return "bound";
	case PROOF_INFEASIBLE:
		return "infeasible";
	case PROOF_NOT_FOUND:
		return "not_found";
	}
	return "none";
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
		json_set_number(predicted, "together_tokens_per_s", placement->tokens_per_s);
		instance_set_maybe(predicted, "prompt_tokens_per_s", placement->prompt_tokens_per_s);
	}
	json_set(json, "stages", stages_json(placing));
	json_set_bool(json, "feasible", placement->feasible);
	json_set(json, "predicted", predicted);
	json_set_string(json, "proof", proof_name(placement->proof));
	instance_set_maybe(json, "gap", placement->proof == PROOF_BOUND ? placement->gap : -1);
	json_set_number(json, "search_ms", placement->search_ms);
	json_set(json, "hops", placing_hops_json(placing));
	json_set(json, "remedies", texts_json(placing, placement->remedies, placement->remedy_count));
	json_set(json, "why", texts_json(placing, placement->whys, placement->why_count));
	json_set_string(json, "format", format_info(format)->name);
	json_set_integer(json, "context_tokens", placing->wanted.context_tokens);
	json_set_integer(json, "sequences", placing->wanted.sequences);
	json_set(json, "devices", devices_json(placing));
	return json;
}

// ---- looked at ----

struct previewing {
	instances_previewed *done;
	void *context;
};

static void previewed(void *context, enum status status, struct placing *placing, const struct error *error)
{
	struct previewing *previewing = context;
	previewing->done(previewing->context, status, placing ? placing_json(placing) : NULL, error);
	free(placing);
	free(previewing);
}

enum status instances_preview(const struct instances *instances, const struct instances_preview *preview,
			      struct error *error)
{
	struct previewing *previewing = calloc(1, sizeof *previewing);
	if (!previewing)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*previewing = (struct previewing){.done = preview->done, .context = preview->context};
	const struct placing_request request = {.kind = PLACING_PREVIEW,
						.params = preview->params,
						.asker = preview->asker,
						.connection = preview->connection,
						.done = previewed,
						.context = previewing};
	enum status status = placing_start(instances, &request, error);
	if (status)
		free(previewing);
	return status;
}

void instances_leave(const struct instances *instances, const void *connection)
{
	placing_leave(instances, connection);
}
