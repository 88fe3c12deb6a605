/* The life of an instance. See instances.h.
 *
 *     placed, worker asked for (starting) -> instance.load sent (loading) -> answered (ready)
 *                     any of them -> its worker ends, or says what it must not (failed) -> deleted
 *
 *   instances.c        from the placement to the end
 *   planner.c          the thread that placements are searched for on
 *   instances_gather.c what there is to place on
 *   placement.c        where it goes: a pure function
 *   instances_place.c  placements, as the API shows them
 *   instances_json.c   instances, the same
 *   requests.c         what is asked of instances */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/models/instances_inside.h"
#include "server/security/random_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- telling ----

// One key for all that is told of an instance: the newest is all that somebody slow needs.
static uint64_t event_key(const char *text)
{
	uint64_t hash = 14695981039346656037u; // FNV-1a
	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * 1099511628211u;
	return hash | 1;
}

static void publish(const struct instance *instance, struct json *changed, struct json *removed)
{
	struct json *event = json_new_object();
	json_set(event, "models", json_new_array());
	json_set(event, "removed_models", json_new_array());
	json_set(event, "instances", changed);
	json_set(event, "removed_instances", removed);
	events_publish(instance->all->params.events, TOPIC_PLACEMENT, event_key(instance->instance_id), event);
}

void instance_publish(const struct instance *instance)
{
	struct json *changed = json_new_array();
	json_push(changed, instance_json(instance));
	publish(instance, changed, json_new_array());
}

// ---- memory ----

static uint64_t on_device(const struct stage_memory *memory)
{
	return memory->weights_bytes + memory->kv_bytes + memory->workspace_bytes;
}

// Hold what the stages take, instead of what is held now.
static enum status hold(struct instance *instance, bool any)
{
	struct tenancy *tenants = instance->all->params.tenants;
	enum status status = STATUS_OK;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		struct instance_stage *stage = &instance->stages[i];
		uint64_t bytes = any ? on_device(&stage->memory) : 0, host_bytes = any ? stage->memory.host_bytes : 0;
		if (!tenancy_hold(tenants, stage->device, (int64_t)(bytes - stage->held)))
			stage->held = bytes;
		else
			status = STATUS_OUT_OF_MEMORY;
		if (!stage->host)
			continue;
		if (!tenancy_hold(tenants, stage->host, (int64_t)(host_bytes - stage->host_held)))
			stage->host_held = host_bytes;
		else
			status = STATUS_OUT_OF_MEMORY;
	}
	return status;
}

// ---- ending ----

// What it holds is free again; what it was remains to be read.
static void let_go(struct instance *instance)
{
	net_timer_stop(instance->all->params.loop, &instance->stall);
	hold(instance, false);
	if (instance->model)
		models_release(instance->all->params.models, instance->model);
	instance->model = NULL;
	instance->running = instance->waiting = instance->pages_used = instance->pages_cached = 0;
	instance->tokens_per_s = -1;
}

static void fail(struct instance *instance, const struct error *fault)
{
	instance->worker = NULL;
	if (instance->state == INSTANCE_STOPPING)
		return;
	instance->state = INSTANCE_FAILED;
	snprintf(instance->state_reason, sizeof instance->state_reason, "%s", fault->message);
	log_warning("models", "instance %s of %s has failed: %s", instance->instance_id, instance->model_name,
		    fault->message);
	audit_count(instance->all->params.audit,
		    &(struct audit_tally){.by = &audit_server,
					  .action = "instance.failed",
					  .target = instance->instance_id,
					  .node_id = cluster_device_node_id(instance->stages[0].device),
					  .device_id = cluster_device_id(instance->stages[0].device),
					  .outcome = fault->status});
	generations_fail(instance, fault);
	let_go(instance);
	instance_publish(instance);
}

static void worker_ended(void *context, const struct error *fault)
{
	fail(context, fault);
}

// It does not do as it should: end it, with this reason.
static void give_up(struct instance *instance, const struct error *fault)
{
	instance_worker_destroy(&instance->worker, fault->message);
	fail(instance, fault);
}

static void instance_destroy(struct instance *instance)
{
	struct error fault = {0};
	struct instances *all = instance->all;
	struct instance **at = &all->first;
	struct json *removed = json_new_array();
	instance->state = INSTANCE_STOPPING;
	error_set(&fault, STATUS_UNAVAILABLE, "the model was stopped");
	error_hint(&fault, "start it again: exogpu place %.128s", instance->model_name);
	instance_worker_destroy(&instance->worker, fault.message);
	generations_fail(instance, &fault);
	let_go(instance);
	while (*at != instance)
		at = &(*at)->next;
	*at = instance->next;
	all->count--;
	json_push(removed, json_new_string(instance->instance_id));
	publish(instance, json_new_array(), removed);
	free(instance);
}

// ---- loading ----

static void stalled(void *arg)
{
	struct error fault = {0};
	error_set(&fault, STATUS_TIMEOUT, "nothing was heard of the loading for %d s", LIMIT_LOAD_STALL_MS / 1000);
	give_up(arg, &fault);
}

static void still_loads(struct instance *instance)
{
	net_timer_start(instance->all->params.loop, &instance->stall, LIMIT_LOAD_STALL_MS, stalled, instance);
}

static void read_memory(struct stage_memory *memory, const struct json *json)
{
	*memory = (struct stage_memory){.weights_bytes = (uint64_t)json_get_integer(json, "weights_bytes", 0),
					.kv_bytes = (uint64_t)json_get_integer(json, "kv_bytes", 0),
					.workspace_bytes = (uint64_t)json_get_integer(json, "workspace_bytes", 0),
					.host_bytes = (uint64_t)json_get_integer(json, "host_bytes", 0)};
}

static void loaded(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct error fault = {0};
	struct instance *instance = context;
	const struct json *memory = json_get(result, "memory"), *one = json_first(memory);
	if (!instance->worker) // it has ended, and is told so in a moment
		return;
	if (status)
		error_set(&fault, status, "it could not be loaded: %s", error->message);
	else if (json_count(memory) != instance->stage_count)
		status = error_set(&fault, STATUS_INTERNAL, "its worker told of another number of stages");
	if (status && status != STATUS_DEVICE_LOST) {
		give_up(instance, &fault);
		return;
	}
	if (status)
		return; // the same
	net_timer_stop(instance->all->params.loop, &instance->stall);
	for (unsigned i = 0; i < instance->stage_count; i++, one = json_next(one))
		read_memory(&instance->stages[i].memory, one);
	hold(instance, true);
	instance->state = INSTANCE_READY;
	instance->ready_ms = clock_wall_ms();
	instance->load_ms = json_get_number(result, "load_ms", 0);
	instance->loaded_bytes = (uint64_t)json_get_integer(result, "loaded_bytes", 0);
	instance->chat = json_get_string(result, "chat_template", NULL) != NULL;
	log_info("models", "instance %s of %s is ready after %.0f ms", instance->instance_id, instance->model_name,
		 instance->load_ms);
	instance_publish(instance);
}

static struct json *load_params(const struct instance *instance)
{
	struct json *params = json_new_object(), *stages = json_new_array();
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *stage = &instance->stages[i];
		struct json *json = json_new_object();
		json_set_string(json, "hardware_key",
				json_get_string(cluster_device_record(stage->device), "hardware_key", ""));
		json_set_integer(json, "first_layer", stage->first_layer);
		json_set_integer(json, "layer_count", stage->layer_count);
		json_set_integer(json, "host_layers", stage->host_layers);
		json_push(stages, json);
	}
	json_set(params, "stages", stages);
	json_set_integer(params, "context_tokens", instance->context_tokens);
	json_set_integer(params, "page_count", instance->page_count);
	json_set_integer(params, "batch_rows", PLACEMENT_BATCH_ROWS);
	json_set_integer(params, "sequences", instance->sequences);
	if (instance->held_format != FORMAT_UNKNOWN)
		json_set_string(params, "format", format_info(instance->held_format)->name);
	return params;
}

static void worker_ready(void *context)
{
	struct error error = {0};
	struct instance *instance = context;
	instance->state = INSTANCE_LOADING;
	still_loads(instance);
	if (instance_worker_call(instance->worker, "instance.load", load_params(instance), loaded, instance, &error))
		give_up(instance, &error);
	else
		instance_publish(instance);
}

// ---- what its worker tells ----

static void told_state(struct instance *instance, const struct json *params)
{
	const int64_t now_ms = clock_steady_ms();
	const uint64_t generated = (uint64_t)json_get_integer(params, "generated_tokens", 0);
	instance->running = (uint64_t)json_get_integer(params, "running", 0);
	instance->waiting = (uint64_t)json_get_integer(params, "waiting", 0);
	instance->pages_used = (uint64_t)json_get_integer(params, "pages_used", 0);
	instance->pages_cached = (uint64_t)json_get_integer(params, "pages_cached", 0);
	instance->prompt_tokens = (uint64_t)json_get_integer(params, "prompt_tokens", 0);
	if (!instance->running && !instance->waiting)
		instance->tokens_per_s = 0;
	else if (instance->told_ms && now_ms > instance->told_ms && generated >= instance->generated_tokens)
		instance->tokens_per_s = (double)(generated - instance->generated_tokens) * 1000 /
					 (double)(now_ms - instance->told_ms);
	instance->generated_tokens = generated;
	instance->told_ms = now_ms;
	instance_publish(instance);
}

static void told(void *context, const char *method, const struct json *params)
{
	struct instance *instance = context;
	const bool loads = instance->state == INSTANCE_LOADING;
	if (!strcmp(method, "instance.progress") && loads) {
		instance->loaded_bytes = (uint64_t)json_get_integer(params, "loaded_bytes", 0);
		instance->total_bytes = (uint64_t)json_get_integer(params, "total_bytes", 0);
		still_loads(instance);
		instance_publish(instance);
	} else if (!strcmp(method, "instance.state") && instance->state == INSTANCE_READY) {
		told_state(instance, params);
	} else if (loads || !generations_notice(instance, method, params)) {
		instance_worker_fail(instance->worker, "its worker broke the protocol");
	}
}

// ---- starting ----

static const struct cluster_device *host_of(const struct placing *placing, const struct cluster_device *device)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (placing->devices[i].backend == PLACE_CPU &&
		    !strcmp(placing->devices[i].node_id, cluster_device_node_id(device)))
			return placing->where[i];
	return NULL;
}

static void take_placement(struct instance *instance, const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	snprintf(instance->model_id, sizeof instance->model_id, "%s", placing->model->model_id);
	snprintf(instance->model_name, sizeof instance->model_name, "%s", placing->model->name);
	instance->held_format = placement->format;
	instance->format = placement->format != FORMAT_UNKNOWN ? placement->format : placing->model->sizes.main_format;
	instance->step = placement->step;
	instance->context_tokens = placing->wanted.context_tokens;
	instance->sequences = placing->wanted.sequences;
	instance->page_count = placement->page_count;
	instance->stage_count = placement->stage_count;
	for (unsigned i = 0; i < placement->stage_count; i++) {
		const struct placement_stage *stage = &placement->stages[i];
		const struct cluster_device *device = placing->where[stage->device];
		instance->stages[i] = (struct instance_stage){.device = device,
							      .host = host_of(placing, device),
							      .first_layer = stage->first_layer,
							      .layer_count = stage->layer_count,
							      .host_layers = stage->host_layers,
							      .embeds = stage->embeds,
							      .predicts = stage->predicts,
							      .memory = stage->memory,
							      .seconds_per_token = stage->seconds_per_token};
		instance->total_bytes += stage->memory.weights_bytes + stage->memory.host_bytes;
	}
}

// A worker has the devices of one node and back end.
static bool needs_several_workers(const struct instance *instance)
{
	const struct cluster_device *first = instance->stages[0].device, *other;
	const char *backend = json_get_string(cluster_device_record(first), "backend", "");
	for (unsigned i = 1; i < instance->stage_count; i++) {
		other = instance->stages[i].device;
		if (strcmp(cluster_device_node_id(first), cluster_device_node_id(other)) != 0 ||
		    strcmp(backend, json_get_string(cluster_device_record(other), "backend", "")) != 0)
			return true;
	}
	return false;
}

static enum status start_worker(struct instance *instance, struct error *error)
{
	if (needs_several_workers(instance)) {
		error_set(error, STATUS_UNAVAILABLE, "instances over several nodes or back ends cannot be started yet");
		error_hint(error, "choose devices of one node and back end: exogpu place --device");
		return STATUS_UNAVAILABLE;
	}
	const struct cluster_device *devices[PLACEMENT_STAGES];
	for (unsigned i = 0; i < instance->stage_count; i++)
		devices[i] = instance->stages[i].device;
	const struct instance_worker_params params = {.instance_id = instance->instance_id,
						      .model_path = instance->model->path,
						      .devices = devices,
						      .device_count = instance->stage_count,
						      .ready = worker_ready,
						      .notice = told,
						      .ended = worker_ended,
						      .context = instance};
	return instance_worker_create(&instance->worker, instance->all->params.tenants, &params, error);
}

static enum status refuse(const struct placing *placing, struct error *error)
{
	const struct placement *placement = &placing->placement;
	error_set(error, STATUS_OUT_OF_MEMORY, "%.100s fits nowhere: %s", placing->model->name,
		  placement->why_count ? placement->whys[0].text : "no device can be used");
	error_hint(error, "free memory, give fewer --context tokens, or take a smaller model; exogpu place --preview "
			  "says more");
	return STATUS_OUT_OF_MEMORY;
}

// Those of this model that failed: another try takes their place.
static void drop_failed(struct instances *instances, const char *model_id)
{
	for (struct instance *one = instances->first, *next; one; one = next) {
		next = one->next;
		if (one->state == INSTANCE_FAILED && !strcmp(one->model_id, model_id))
			instance_destroy(one);
	}
}

static enum status launch(struct instances *instances, const struct placing *placing, struct instance **out,
			  struct error *error)
{
	struct instance *instance = calloc(1, sizeof(*instance)), **at = &instances->first;
	if (!instance)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*instance = (struct instance){
		.all = instances, .created_ms = clock_wall_ms(), .strategy = "auto", .load_ms = -1, .tokens_per_s = -1};
	take_placement(instance, placing);
	enum status status = random_id("ins_", instance->instance_id, sizeof instance->instance_id);
	if (status)
		error_set(error, status, "the system gives no random numbers");
	if (!status)
		status = models_hold(instances->params.models, placing->model, error);
	if (!status) {
		instance->model = placing->model;
		status = hold(instance, true);
	}
	if (!status)
		status = start_worker(instance, error);
	if (status) {
		let_go(instance);
		free(instance);
		return error_set(error, status, "the instance could not be started");
	}
	while (*at)
		at = &(*at)->next;
	*at = instance;
	instances->count++;
	*out = instance;
	return STATUS_OK;
}

enum status instances_start(struct instances *instances, const struct json *params, const struct instance **out,
			    struct error *error)
{
	struct placing *placing;
	struct instance *instance = NULL;
	enum status status = placing_create(&placing, instances, params, error);
	if (status)
		return status;
	if (!placing->placement.feasible)
		status = refuse(placing, error);
	else
		drop_failed(instances, placing->model->model_id);
	if (!status && instances->count >= LIMIT_INSTANCES) {
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "there are %d instances already", LIMIT_INSTANCES);
		error_hint(error, "stop one: exogpu stop ID");
	}
	if (!status)
		status = launch(instances, placing, &instance, error);
	if (!status) {
		const char *strategy = json_get_string(params, "strategy", "auto");
		instance->strategy = !strcmp(strategy, "pipeline") ? "pipeline" : "auto";
		instance_publish(instance);
	}
	free(placing);
	*out = instance;
	return status;
}

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

enum status instances_preview(const struct instances *instances, const struct json *params, instances_previewed *done,
			      void *context, struct error *error)
{
	struct previewing *previewing = calloc(1, sizeof *previewing);
	if (!previewing)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*previewing = (struct previewing){.done = done, .context = context};
	enum status status = placing_start(instances, params, NULL, previewed, previewing, error);
	if (status)
		free(previewing);
	return status;
}

enum status instances_stop(struct instances *instances, const char *id, struct error *error)
{
	for (struct instance *one = instances->first; one; one = one->next)
		if (!strcmp(one->instance_id, id)) {
			instance_destroy(one);
			return STATUS_OK;
		}
	error_set(error, STATUS_NOT_FOUND, "there is no instance %.64s", id);
	error_hint(error, "see: exogpu instances");
	return STATUS_NOT_FOUND;
}

// ---- all of them ----

enum status instances_create(struct instances **out, const struct instances_params *params, struct error *error)
{
	struct instances *instances = calloc(1, sizeof(*instances));
	*out = instances;
	if (!instances)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	instances->params = *params;
	enum status status = planner_create(&instances->planner, instances, error);
	if (status)
		instances_destroy(out);
	return status;
}

void instances_shut_down(struct instances *instances)
{
	planner_shut_down(instances->planner);
	while (instances->first)
		instance_destroy(instances->first);
}

void instances_destroy(struct instances **pointer)
{
	struct instances *instances = *pointer;
	if (!instances)
		return;
	*pointer = NULL;
	instances_shut_down(instances);
	planner_destroy(&instances->planner);
	free(instances->owners);
	free(instances);
}

const struct instance *instances_find(const struct instances *instances, const char *id)
{
	const struct instance *one = instances->first;
	while (one && strcmp(one->instance_id, id) != 0)
		one = one->next;
	return one;
}

struct json *instances_list_json(const struct instances *instances)
{
	struct json *list = json_new_array();
	for (const struct instance *one = instances->first; one; one = one->next)
		json_push(list, instance_json(one));
	return list;
}

const char *instance_id(const struct instance *instance)
{
	return instance->instance_id;
}

const char *instance_state(const struct instance *instance)
{
	return instance_state_name(instance->state);
}

unsigned instances_ready(const struct instances *instances, const struct model_record *model)
{
	unsigned count = 0;
	for (const struct instance *one = instances->first; one; one = one->next)
		count += one->model == model && one->state == INSTANCE_READY;
	return count;
}
