/* The life of an instance. See instances.h.
 *
 *     placed, workers asked for (starting) -> fetched, loaded, connected, checked (loading) -> all well (running)
 *                   running -> a part is lost, or its device is to be left (paused) -> placed anew, or mended (running)
 *                   not running yet -> any part fails (failed) -> deleted
 *
 *   instances.c            its life, and all of them
 *   instances_start.c      from what is asked for until it is placed and stored
 *   instances_see.c        the facts that decisions are made of
 *   instances_act.c        the actions that decisions name
 *   instances_recover.c    what happens to one that runs or is paused, which leads to the next decision
 *   instances_state.c      the only place that sets the state; the clock
 *   instances_store.c      instances in state.db, and back
 *   instances_adopt.c      workers that outlive the server
 *   instances_offer.c      faster places
 *   instances_json.c       instances as the API shows them
 *   instances_timing.c     where the time of a token goes
 *
 *   decide/                pure functions, each with a table of rules and of tests:
 *     decide.c             what one that is listed does next
 *     states.c             which state may follow which
 *     start.c              what becomes of one that is to be created, once a place was searched for
 *     question.c           what becomes of a request to a model
 *     evict.c              which idle ones make room for another
 *     search.c             which search for a place begins, stops another, or is begun again
 *     silence.c            how long workers may be silent, and which is blamed then
 *   placing/               what there is to place on, the planner's thread, evictions, measured times of layers
 *   requests/              requests, and models that are loaded for them
 *   parts/                 its workers */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/instances/instances_inside.h"
#include "server/library/shards.h"
#include "server/placement/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- telling ----

// One key for all events of an instance: a slow client only needs the newest.
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

void instance_publish_removed(struct instance *instance)
{
	instance->removed = instance->unsaved;
	if (instance->unsaved)
		return;
	struct json *removed = json_new_array();
	json_push(removed, json_new_string(instance->instance_id));
	publish(instance, json_new_array(), removed);
}

void instance_publish_shown(const struct instance *instance)
{
	struct json *changed = json_new_array();
	json_push(changed, instance_json(instance));
	publish(instance, changed, json_new_array());
}

void instance_publish(const struct instance *instance)
{
	if (!instance->shown)
		instance_publish_shown(instance);
}

// ---- memory ----

enum status instance_hold(struct instance *instance, bool any)
{
	struct tenancy *tenants = instance->all->params.tenants;
	enum status status = STATUS_OK;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		struct instance_stage *stage = &instance->stages[i];
		uint64_t bytes = any ? cost_on_device(&stage->memory) : 0,
			 host_bytes = any ? stage->memory.host_bytes : 0;
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

// Free its devices; its description can still be read.
static void let_go(struct instance *instance, const char *why)
{
	parts_destroy(&instance->parts, why);
	recover_stop(instance);
	gather_released(instance);
	instance_hold(instance, false);
	if (instance->model)
		models_release(instance->all->params.models, instance->model);
	instance->model = NULL;
	instance_release_draft(instance);
	instance->running = instance->waiting = instance->pages_used = instance->pages_cached = 0;
	instance->tokens_per_s = -1;
	json_destroy(&instance->timing);
	json_destroy(&instance->offer);
	evict_return(instance);
}

// The device on which it has failed, or its first one. NULL: it has none.
static const struct cluster_device *blamed(const struct instance *instance)
{
	const int part = instance->recovery.news.kind == NEWS_LOST ? instance->recovery.news.part : -1;
	const struct instance_stage *stage = part < 0 ? NULL : parts_stage(instance->parts, (unsigned)part);
	if (stage)
		return stage->device;
	return instance->stage_count ? instance->stages[0].device : NULL;
}

void instance_set_failed(struct instance *instance, const struct error *fault)
{
	struct buffer detail;
	struct json *json = json_new_object();
	buffer_init(&detail, LIMIT_AUDIT_DETAIL_BYTES);
	json_set_string(json, "model", instance->model_name);
	json_set_string(json, "reason", fault->message);
	json_print(json, &detail);
	json_destroy(&json);
	instance->failed_ms = instances_now(instance->all);
	log_warning("models", "instance %s of %s has failed: %s", instance->instance_id, instance->model_name,
		    fault->message);
	const struct cluster_device *device = blamed(instance);
	if (instance->ready_ms)
		instance->failed_with = *fault;
	else
		demand_explain(&instance->failed_with, instance->model_name, fault);
	const struct audit_tally entry = {.by = &audit_server,
					  .action = "instance.failed",
					  .target = instance->instance_id,
					  .node_id = device ? cluster_device_node_id(device) : NULL,
					  .device_id = device ? cluster_device_id(device) : NULL,
					  .outcome = fault->status,
					  .detail = detail.failed ? NULL : buffer_text(&detail)};
	instance_change(instance, &(struct instance_change){.to = INSTANCE_FAILED,
							    .reason = fault->message,
							    .row = INSTANCE_ROW_REMOVED,
							    .entry = &entry});
	buffer_finish(&detail);
	let_go(instance, fault->message);
	instance_publish(instance);
}

void instance_free(struct instance *instance)
{
	instance->gone = instance->unsaved;
	if (instance->gone)
		return;
	instance_show_next(instance, 0, false);
	json_destroy(&instance->hops);
	json_destroy(&instance->wanted);
	json_destroy(&instance->stepping);
	json_destroy(&instance->left);
	json_destroy(&instance->offer);
	json_destroy(&instance->recovery.remedies);
	free(instance);
}

void instance_displace(struct instance *instance, const struct error *fault)
{
	struct instances *all = instance->all;
	struct instance **at = &all->first;
	instance_change(instance, &(struct instance_change){.to = INSTANCE_STOPPING});
	let_go(instance, fault->message);
	generations_fail(instance, fault);
	while (*at != instance)
		at = &(*at)->next;
	*at = instance->next;
	all->count--;
	recover_leave(instance);
}

void instance_remove(struct instance *instance, const struct error *fault)
{
	instance_displace(instance, fault);
	instance_publish_removed(instance);
	instance_free(instance);
}

void instance_discard(struct instance *instance)
{
	let_go(instance, "it could not be started");
	instance_free(instance);
}

static void instance_stop(struct instance *instance)
{
	struct error fault = {0};
	error_set(&fault, STATUS_UNAVAILABLE, "the model was stopped");
	error_hint(&fault, "start it again: exogpu place %.128s", instance->model_name);
	instance_remove(instance, &fault);
}

void instances_drop_failed(struct instances *instances, const char *model_id)
{
	for (struct instance *one = instances->first, *next; one; one = next) {
		next = one->next;
		if (one->state == INSTANCE_FAILED && !strcmp(one->model_id, model_id)) {
			instance_forget(one, NULL); // a row of state.db that cannot be read still exists
			instance_stop(one);
		}
	}
}

// ---- what its parts say ----

void instance_parts_moved(struct instance *instance)
{
	if (instance->state == INSTANCE_STARTING)
		instance_change(instance, &(struct instance_change){.to = INSTANCE_LOADING});
	instance_publish(instance);
}

void instance_parts_ready(struct instance *instance)
{
	const bool paused = instance->state == INSTANCE_PAUSED, loaded = !paused || instance_is_anew(instance);
	if (paused && loaded)
		instance_changes(instance);
	instance_hold(instance, true);
	instance->ready_ms = clock_wall_ms();
	if (!instance->used_ms) // one that was evicted, or has come back, has not been used
		instance->used_ms = instances_now(instance->all);
	instance->load_ms = parts_load_ms(instance->parts);
	if (loaded)
		log_info("models", "instance %s of %s is ready after %lld ms", instance->instance_id,
			 instance->model_name, (long long)(instances_now(instance->all) - instance->began_loading_ms));
	instance->state_reason[0] = 0;
	if (paused)
		recover_done(instance);
	evict_settle(instance);
	if (paused && loaded)
		recover_goes_on(instance);
	else
		instance_change(instance,
				&(struct instance_change){.to = INSTANCE_RUNNING, .row = INSTANCE_ROW_WRITTEN});
	recover_watch(instance);
	instance_publish(instance);
	generations_resume(instance); // and what waited for it to be loaded
}

void instance_parts_failed(struct instance *instance, const struct error *fault, int part)
{
	recover_lost(instance, fault, part);
}

void instance_parts_broken(struct instance *instance)
{
	recover_broken(instance);
}

void instance_parts_away(struct instance *instance, unsigned part, const char *why)
{
	recover_away(instance, part, why);
}

void instance_parts_back(struct instance *instance)
{
	recover_back(instance);
}

static void told_state(struct instance *instance, const struct json *params)
{
	const int64_t now_ms = instances_now(instance->all);
	const uint64_t generated = (uint64_t)json_get_integer(params, "generated_tokens", 0);
	instance->running = (uint64_t)json_get_integer(params, "running", 0);
	instance->waiting = (uint64_t)json_get_integer(params, "waiting", 0);
	instance->pages_used = (uint64_t)json_get_integer(params, "pages_used", 0);
	instance->pages_cached = (uint64_t)json_get_integer(params, "pages_cached", 0);
	instance->prompt_tokens = (uint64_t)json_get_integer(params, "prompt_tokens", 0);
	instance_observe(instance, json_get(params, "steps_took"));
	generations_spent(instance, json_get(params, "spent"), true);
	instance->ties = (uint64_t)json_get_integer(params, "ties", 0);
	if (!instance->running && !instance->waiting)
		instance->tokens_per_s = 0;
	else if (instance->told_ms && now_ms > instance->told_ms && generated >= instance->generated_tokens)
		instance->tokens_per_s = (double)(generated - instance->generated_tokens) * 1000 /
					 (double)(now_ms - instance->told_ms);
	instance->generated_tokens = generated;
	instance->proposed_tokens = (uint64_t)json_get_integer(params, "proposed_tokens", 0);
	instance->accepted_tokens = (uint64_t)json_get_integer(params, "accepted_tokens", 0);
	instance->drafted_tokens = (uint64_t)json_get_integer(params, "drafted_tokens", 0);
	instance->draft_accepted_tokens = (uint64_t)json_get_integer(params, "draft_accepted_tokens", 0);
	instance->told_ms = now_ms;
	if (json_type(json_get(params, "timing")) == JSON_OBJECT) {
		struct json *timing = instance_timing_json(instance, json_get(params, "timing"));
		json_destroy(&instance->timing);
		instance->timing = timing;
	}
	instance_publish(instance);
}

bool instance_parts_notice(struct instance *instance, const char *method, const struct json *params)
{
	if (strcmp(method, "instance.state") != 0)
		return generations_notice(instance, method, params);
	told_state(instance, params);
	return true;
}

// ---- where it is placed ----

static const struct cluster_device *host_of(const struct placing *placing, const struct cluster_device *device)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (placing->devices[i].backend == PLACE_CPU &&
		    !strcmp(placing->devices[i].node_id, cluster_device_node_id(device)))
			return placing->where[i];
	return NULL;
}

// Slices are reported as tensor parallelism, everything else as it was requested.
static const char *strategy_of(const struct placement *placement, const struct json *wanted)
{
	const char *asked = json_get_string(wanted, "strategy", "auto");
	if (strcmp(placement->strategy, "pipeline") != 0)
		return placement->strategy;
	return !strcmp(asked, "pipeline") ? "pipeline" : "auto";
}

static void begin_placement(struct instance *instance)
{
	instance->epoch++;
	json_destroy(&instance->timing);
	instance->ties_before += instance->ties;
	instance->ties = 0;
	instance->began_loading_ms = instances_now(instance->all);
}

void instance_take_spilled(struct instance *instance, const struct evict_candidate *candidate)
{
	begin_placement(instance);
	json_destroy(&instance->offer);
	instance->step = STEP_SPILLED;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		struct instance_stage *stage = &instance->stages[i];
		stage->host_layers = candidate->stages[i].host_layers;
		stage->memory = candidate->stages[i].memory;
		stage->seconds_per_token = -1;
	}
}

void instance_take_placement(struct instance *instance, const struct placing *placing)
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
	instance->strategy = strategy_of(placement, instance->wanted);
	begin_placement(instance);
	json_destroy(&instance->hops);
	instance->hops = placing_hops_json(placing);
	instance_take_prediction(instance, placing);
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
							      .slices = stage->slices,
							      .slice = stage->slice,
							      .memory = stage->memory,
							      .seconds_per_token = stage->seconds_per_token};
	}
}

// ---- all of them ----

struct instance *instances_listed(const struct instances *instances, const char *id)
{
	struct instance *one = instances->first;
	while (one && strcmp(one->instance_id, id) != 0)
		one = one->next;
	return one;
}

// Stop an instance that was unloaded for another. False: there is none.
static bool stop_away(struct instances *instances, const char *id)
{
	struct instance *away = NULL;
	for (struct instance *one = instances->first; one && !away; one = one->next)
		away = evict_take_out(one, id);
	if (!away)
		return false;
	instance_publish_removed(away);
	instance_free(away);
	return true;
}

enum status instances_stop(struct instances *instances, const char *id, struct error *error)
{
	struct instance *one = instances_listed(instances, id);
	if (one)
		instance_stop(one);
	if (one || stop_away(instances, id))
		return STATUS_OK;
	error_set(error, STATUS_NOT_FOUND, "there is no instance %.64s", id);
	error_hint(error, "see: exogpu instances");
	return STATUS_NOT_FOUND;
}

static void discovered(void *context)
{
	const struct instances *instances = context;
	planner_go_on(instances->planner);
}

enum status instances_create(struct instances **out, const struct instances_params *params, struct error *error)
{
	struct instances *instances = calloc(1, sizeof(*instances));
	*out = instances;
	if (!instances)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	instances->params = *params;
	const struct shards_params shards = {.loop = params->loop, .contract = params->contract};
	enum status status = shards_create(&instances->shards, &shards, error);
	if (!status)
		status = layer_times_create(&instances->layer_times, params->store, error);
	if (!status)
		status = planner_create(&instances->planner, instances, error);
	if (!status)
		status = instances_restore(instances, error);
	if (!status)
		cluster_on_discovered(params->cluster, discovered, instances);
	if (status)
		instances_destroy(out);
	return status;
}

void instances_shut_down(struct instances *instances)
{
	struct error fault = {0};
	instances->ending = true;
	cluster_on_discovered(instances->params.cluster, NULL, NULL);
	instances_refuse(instances, &fault);
	planner_shut_down(instances->planner);
	starts_shut_down(instances, &fault); // which search no more
	demands_shut_down(instances, &fault);
	while (instances->first) {
		if (instances->first->state == INSTANCE_RUNNING)
			instance_keep(instances->first, NULL);
		if (parts_outlive(instances->first->parts))
			parts_leave(&instances->first->parts);
		instance_remove(instances->first, &fault);
	}
}

enum status instances_refuse(const struct instances *instances, struct error *error)
{
	if (!instances->ending)
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "the server restarts");
	error_hint(error, "try again in a few seconds");
	return STATUS_UNAVAILABLE;
}

void instances_destroy(struct instances **pointer)
{
	struct instances *instances = *pointer;
	if (!instances)
		return;
	*pointer = NULL;
	instances_shut_down(instances);
	starts_destroy(instances); // whose outcome the store drops
	instance_rows_destroy(instances);
	demands_destroy(instances);
	nowhere_destroy(instances);
	for (size_t i = 0; i < LIMIT_INSTANCES; i++)
		trials_destroy(&instances->references[i].trials);
	planner_destroy(&instances->planner);
	layer_times_destroy(&instances->layer_times);
	shards_destroy(&instances->shards);
	free(instances->owners);
	free(instances);
}

struct shards *instances_shards(const struct instances *instances)
{
	return instances->shards;
}

void instances_fetching(struct instances *instances, const char *node_id, const struct json *params)
{
	const char *model_id = json_get_string(params, "model_id", "");
	for (struct instance *one = instances->first; one; one = one->next) {
		const struct model_record *draft = instance_draft(one);
		if (!strcmp(one->model_id, model_id) || (draft && !strcmp(draft->model_id, model_id)))
			parts_fetching(one->parts, node_id, params);
	}
}

void instances_hop_ended(struct instances *instances, const char *node_id, const struct json *params)
{
	for (struct instance *one = instances->first; one; one = one->next)
		if (parts_hop_ended(one->parts, node_id, params))
			return;
}

const struct instance *instances_find(const struct instances *instances, const char *id)
{
	const struct instance *found = instances_listed(instances, id);
	for (const struct instance *one = instances->first; one && !found; one = one->next)
		for (const struct instance *away = one->displaced; away && !found; away = away->next)
			found = !strcmp(away->instance_id, id) ? away : NULL;
	return found;
}

struct json *instances_list_json(const struct instances *instances)
{
	struct json *list = json_new_array();
	for (const struct instance *one = instances->first; one; one = one->next) {
		json_push(list, instance_json(one));
		for (const struct instance *away = one->displaced; away; away = away->next)
			json_push(list, instance_json(away));
	}
	return list;
}

const char *instance_id(const struct instance *instance)
{
	return instance->instance_id;
}

const char *instance_state(const struct instance *instance)
{
	return instance->shown ? json_get_string(instance->shown->json, "state", "")
			       : instance_state_name(instance->state);
}

unsigned instances_ready(const struct instances *instances, const struct model_record *model)
{
	unsigned count = 0;
	for (const struct instance *one = instances->first; one; one = one->next)
		count += one->model == model && one->state == INSTANCE_RUNNING;
	return count;
}

static bool works(const struct instance *instance)
{
	const int64_t idle_ms = evict_idle_ms(instance);
	switch (instance->state) {
	case INSTANCE_STARTING:
	case INSTANCE_LOADING:
		return true;
	case INSTANCE_RUNNING:
		return instance->generations || (idle_ms >= 0 && idle_ms < CLUSTER_WORK_MS);
	case INSTANCE_PAUSED:
		return instance->parts != NULL; // it is being loaded again
	case INSTANCE_STOPPING:
	case INSTANCE_FAILED:
		return false;
	}
	return false;
}

bool instances_compute_on(const struct instances *instances, const struct cluster_device *device)
{
	for (const struct instance *one = instances->first; one; one = one->next)
		for (unsigned i = 0; i < one->stage_count && one->state == INSTANCE_RUNNING && one->generations; i++)
			if (one->stages[i].device == device)
				return true;
	return false;
}

bool instances_work_on(const struct instances *instances, const struct cluster_device *device)
{
	for (const struct instance *one = instances->first; one; one = one->next)
		for (unsigned i = 0; i < one->stage_count; i++)
			if ((one->stages[i].device == device || one->stages[i].host == device) && works(one))
				return true;
	return false;
}

int64_t instances_line_tokens(const struct instances *instances)
{
	return instances->params.line_tokens;
}

int64_t instances_wait_s(const struct instances *instances, const struct token *token)
{
	return token ? token_wait_s(token, instances->params.tokens_per_minute, instances_now(instances)) : 0;
}
