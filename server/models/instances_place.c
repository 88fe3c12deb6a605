/* What there is to place on, as placement.h takes it; and placements and instances as the API shows them. Thread: the
 * loop's. */
#include "common/base/clock.h"
#include "server/models/instances_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEFAULT_CONTEXT = 8192,
	DEFAULT_SEQUENCES = 8,
	SETTLE_MS = 15000, // readings of telemetry may be as old, and not show yet what has been loaded
};

// ---- devices ----

static enum placement_backend backend_of(const struct json *record)
{
	const char *name = json_get_string(record, "backend", "");
	return !strcmp(name, "cuda")     ? PLACE_CUDA
	       : !strcmp(name, "vulkan") ? PLACE_VULKAN
	       : !strcmp(name, "cpu")    ? PLACE_CPU
					 : PLACE_UNKNOWN;
}

static bool same_pool(const struct cluster_device *a, const struct cluster_device *b)
{
	const char *pool = json_get_string(cluster_device_record(a), "memory_pool", "");
	return a == b || (pool[0] && !strcmp(cluster_device_node_id(a), cluster_device_node_id(b)) &&
			  !strcmp(json_get_string(cluster_device_record(b), "memory_pool", ""), pool));
}

// What instances hold of this memory that readings do not show yet, or show in part.
static uint64_t not_shown(const struct instances *instances, const struct cluster_device *device)
{
	uint64_t bytes = 0;
	for (const struct instance *one = instances->first; one; one = one->next) {
		if (one->ready_ms && clock_wall_ms() - one->ready_ms > SETTLE_MS)
			continue;
		for (unsigned i = 0; i < one->stage_count; i++) {
			bytes += same_pool(device, one->stages[i].device) ? one->stages[i].held : 0;
			bytes += one->stages[i].host && same_pool(device, one->stages[i].host)
					 ? one->stages[i].host_held
					 : 0;
		}
	}
	return bytes;
}

// Memory that is free: by the newest reading and by what is held, whichever says less.
static void read_memory(struct placement_device *out, const struct instances *instances,
			const struct cluster_device *device, const struct json *telemetry)
{
	int64_t total = json_get_integer(cluster_device_record(device), "memory_bytes", 0);
	int64_t seen_total = json_get_integer(telemetry, "memory_total_bytes", 0);
	int64_t used = json_get_integer(telemetry, "memory_used_bytes", -1);
	out->memory_bytes = (uint64_t)(total > 0 ? total : seen_total > 0 ? seen_total : 0);
	out->free_known = used >= 0;
	uint64_t held = tenancy_held_bytes(instances->params.tenants, device);
	uint64_t taken = used >= 0 ? (uint64_t)used + not_shown(instances, device) : 0;
	taken = (taken > held ? taken : held) + placement_reserve(out->memory_bytes);
	out->free_bytes = taken < out->memory_bytes ? out->memory_bytes - taken : 0;
}

struct gathering {
	struct placing *placing;
	const struct instances *instances;
};

static const char *not_usable(const struct instances *instances, const struct cluster_device *device)
{
	const char *reason = NULL;
	const struct cluster_device *found;
	const char *state = cluster_device_state(device, &reason);
	if (!tenant_find_device(instances->params.tenants, cluster_device_id(device), &found, NULL))
		return NULL;
	return !strcmp(state, "draining") ? "it is draining" : reason ? reason : "it is not verified, or offline";
}

static void add_device(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	const struct gathering *gathering = context;
	struct placing *placing = gathering->placing;
	const struct instances *instances = gathering->instances;
	const struct json *record = cluster_device_record(device);
	bool local = false;
	if (!cluster_has_node(instances->params.cluster, cluster_device_node_id(device), &local) || !local ||
	    placing->wanted.device_count == PLACEMENT_DEVICES || backend_of(record) == PLACE_UNKNOWN)
		return;
	unsigned at = placing->wanted.device_count++;
	struct placement_device *out = &placing->devices[at];
	placing->where[at] = device;
	*out = (struct placement_device){.device_id = cluster_device_id(device),
					 .name = cluster_device_name(device),
					 .node_id = cluster_device_node_id(device),
					 .pool = json_get_string(record, "memory_pool", ""),
					 .backend = backend_of(record),
					 .unusable = not_usable(instances, device)};
	out->software = out->backend != PLACE_CPU && !strcmp(json_get_string(record, "kind", ""), "cpu");
	out->bandwidth = json_get_number(record, "memory_bandwidth_bytes_per_s", 0);
	read_memory(out, instances, device, telemetry);
}

// ---- what is asked for ----

static enum status read_pins(struct placing *placing, const struct json *pins, const struct instances *instances,
			     struct error *error)
{
	for (const struct json *pin = json_first(pins); pin; pin = json_next(pin)) {
		const char *device_id = json_get_string(pin, "device_id", "");
		unsigned at = 0;
		while (at < placing->wanted.device_count && strcmp(placing->devices[at].device_id, device_id) != 0)
			at++;
		if (at == placing->wanted.device_count && cluster_find_device(instances->params.cluster, device_id)) {
			error_set(error, STATUS_UNAVAILABLE,
				  "models run on devices of the server's own machine, by cuda, "
				  "vulkan or cpu; %.64s is none of these",
				  device_id);
			return STATUS_UNAVAILABLE;
		}
		if (at == placing->wanted.device_count) {
			error_set(error, STATUS_NOT_FOUND, "there is no device %.64s", device_id);
			error_hint(error, "see: exogpu devices");
			return STATUS_NOT_FOUND;
		}
		int64_t first = json_get_integer(pin, "first_layer", 0),
			count = json_get_integer(pin, "layer_count", 0);
		if (first > UINT32_MAX || count > UINT32_MAX)
			return error_set(error, STATUS_INVALID_PARAMS, "a pin names layers that no model has");
		placing->pins[placing->wanted.pin_count++] = (struct placement_pin){
			.device = at, .first_layer = (uint32_t)first, .layer_count = (uint32_t)count};
	}
	return STATUS_OK;
}

static enum status read_model(struct placing *placing, const struct instances *instances, const struct json *params,
			      struct error *error)
{
	const char *id = json_get_string(params, "model_id", ""),
		   *strategy = json_get_string(params, "strategy", "auto");
	placing->model = models_find(instances->params.models, id);
	if (!placing->model) {
		error_set(error, STATUS_NOT_FOUND, "there is no model %.128s", id);
		error_hint(error, "see: exogpu model list");
		return STATUS_NOT_FOUND;
	}
	if (placing->model->state != MODEL_READY) {
		const char *reason = placing->model->state_reason;
		return error_set(error, STATUS_CONFLICT, "%s is not ready%s%s", placing->model->name,
				 reason[0] ? ": " : "", reason);
	}
	if (strcmp(strategy, "auto") != 0 && strcmp(strategy, "pipeline") != 0) {
		error_set(error, STATUS_UNAVAILABLE, "the strategy %s is not there yet", strategy);
		error_hint(error, "auto and pipeline are: layers on one device or on several of one machine");
		return STATUS_UNAVAILABLE;
	}
	return STATUS_OK;
}

static void read_wanted(struct placing *placing, const struct json *params)
{
	const struct model_record *model = placing->model;
	uint32_t most = model->shape.context;
	int64_t context = json_get_integer(params, "context_tokens", most < DEFAULT_CONTEXT ? most : DEFAULT_CONTEXT);
	const char *format = json_get_string(params, "format", NULL);
	placing->wanted.shape = &model->shape;
	placing->wanted.sizes = &model->sizes;
	placing->wanted.devices = placing->devices;
	placing->wanted.pins = placing->pins;
	placing->wanted.context_tokens = (uint32_t)(context < most ? context : most);
	placing->wanted.sequences = (uint32_t)json_get_integer(params, "sequences", DEFAULT_SEQUENCES);
	placing->wanted.may_shrink = format && !strcmp(format, "auto");
	placing->wanted.format = format && !placing->wanted.may_shrink ? format_parse(format) : FORMAT_UNKNOWN;
}

enum status placing_create(struct placing **out, const struct instances *instances, const struct json *params,
			   struct error *error)
{
	struct placing *placing = calloc(1, sizeof(*placing));
	*out = NULL;
	if (!placing)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	enum status status = read_model(placing, instances, params, error);
	if (!status) {
		struct gathering gathering = {.placing = placing, .instances = instances};
		read_wanted(placing, params);
		cluster_each_device(instances->params.cluster, add_device, &gathering);
		status = read_pins(placing, json_get(params, "pins"), instances, error);
	}
	if (!status)
		status = placement_find(&placing->placement, &placing->wanted, error);
	if (status)
		free(placing);
	else
		*out = placing;
	return status;
}

// ---- JSON ----

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
