/* The life of an instance. See instances.h.
 *
 *     placed, workers asked for (starting) -> fetched, loaded, connected, checked (loading) -> all well (running)
 *                   running -> a part is lost, or its device is to be left (paused) -> placed anew, or mended (running)
 *                   not running yet -> any part fails (failed) -> deleted
 *
 *   instances.c        from the placement to the end
 *   planner.c          the thread that placements are searched for on
 *   instances_gather.c what there is to place on
 *   placement.c        where it goes: a pure function
 *   instances_place.c  placements, as the API shows them
 *   instances_json.c   instances, the same
 *   instances_store.c  instances in state.db, and back
 *   instances_adopt.c  workers that outlive the server
 *   instances_times.c  how long its layers take, as it was measured
 *   instances_timing.c where the time of a token goes
 *   instances_recover.c  what becomes of one that is paused
 *   instances_keep.c     what it keeps of what it has loaded, when it is placed anew
 *   instances_offer.c    faster places
 *   demand.c             models that are loaded because somebody asks
 *   giveway.c            idle ones that make room for others
 *   nowhere.c            models for which there was no room
 *   parts.c            its workers
 *   requests.c         what is asked of instances */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/models/instances_inside.h"
#include "server/models/shards.h"
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

void instance_publish_removed(const struct instance *instance)
{
	struct json *removed = json_new_array();
	json_push(removed, json_new_string(instance->instance_id));
	publish(instance, json_new_array(), removed);
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

enum status instance_hold(struct instance *instance, bool any)
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
static void let_go(struct instance *instance, const char *why)
{
	parts_destroy(&instance->parts, why);
	recover_stop(instance);
	gather_released(instance);
	instance_hold(instance, false);
	if (instance->model)
		models_release(instance->all->params.models, instance->model);
	instance->model = NULL;
	instance->running = instance->waiting = instance->pages_used = instance->pages_cached = 0;
	instance->tokens_per_s = -1;
	json_destroy(&instance->timing);
	json_destroy(&instance->offer);
	giveway_return(instance);
}

void instance_set_failed(struct instance *instance, const struct error *fault)
{
	struct error told = {0};
	instance->state = INSTANCE_FAILED;
	instance->failed_ms = clock_steady_ms();
	snprintf(instance->state_reason, sizeof instance->state_reason, "%s", fault->message);
	log_warning("models", "instance %s of %s has failed: %s", instance->instance_id, instance->model_name,
		    fault->message);
	const struct cluster_device *device = instance->stage_count ? instance->stages[0].device : NULL;
	audit_count(instance->all->params.audit,
		    &(struct audit_tally){.by = &audit_server,
					  .action = "instance.failed",
					  .target = instance->instance_id,
					  .node_id = device ? cluster_device_node_id(device) : NULL,
					  .device_id = device ? cluster_device_id(device) : NULL,
					  .outcome = fault->status});
	instance_forget(instance);
	let_go(instance, fault->message);
	if (!instance->ready_ms)
		demand_explain(&told, instance->model_name, fault);
	generations_fail(instance, instance->ready_ms ? fault : &told);
	instance_publish(instance);
}

void instance_free(struct instance *instance)
{
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
	instance->state = INSTANCE_STOPPING;
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

static void instance_stop(struct instance *instance)
{
	struct error fault = {0};
	error_set(&fault, STATUS_UNAVAILABLE, "the model was stopped");
	error_hint(&fault, "start it again: exogpu place %.128s", instance->model_name);
	instance_remove(instance, &fault);
}

// ---- what its parts say ----

void instance_parts_moved(struct instance *instance)
{
	if (instance->state == INSTANCE_STARTING)
		instance->state = INSTANCE_LOADING;
	instance_publish(instance);
}

void instance_parts_ready(struct instance *instance)
{
	const bool anew = instance->state == INSTANCE_PAUSED;
	instance_hold(instance, true);
	instance->state = INSTANCE_RUNNING;
	instance->ready_ms = clock_wall_ms();
	if (!instance->used_ms) // one that gave way, or has come back, has not been used
		instance->used_ms = clock_steady_ms();
	instance->load_ms = parts_load_ms(instance->parts);
	log_info("models", "instance %s of %s is ready after %.0f ms", instance->instance_id, instance->model_name,
		 instance->load_ms);
	if (anew)
		recover_done(instance);
	else
		instance->state_reason[0] = 0;
	giveway_settle(instance);
	instance_keep(instance);
	recover_watch(instance);
	instance_publish(instance);
	generations_resume(instance); // what waited for it to be loaded
}

void instance_parts_failed(struct instance *instance, const struct error *fault, int part)
{
	if (instance->state == INSTANCE_STARTING || instance->state == INSTANCE_LOADING)
		instance_set_failed(instance, fault);
	else
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
	const int64_t now_ms = clock_steady_ms();
	const uint64_t generated = (uint64_t)json_get_integer(params, "generated_tokens", 0);
	instance->running = (uint64_t)json_get_integer(params, "running", 0);
	instance->waiting = (uint64_t)json_get_integer(params, "waiting", 0);
	instance->pages_used = (uint64_t)json_get_integer(params, "pages_used", 0);
	instance->pages_cached = (uint64_t)json_get_integer(params, "pages_cached", 0);
	instance->prompt_tokens = (uint64_t)json_get_integer(params, "prompt_tokens", 0);
	instance_observe(instance, json_get(params, "steps_took"));
	instance->ties = (uint64_t)json_get_integer(params, "ties", 0);
	if (!instance->running && !instance->waiting)
		instance->tokens_per_s = 0;
	else if (instance->told_ms && now_ms > instance->told_ms && generated >= instance->generated_tokens)
		instance->tokens_per_s = (double)(generated - instance->generated_tokens) * 1000 /
					 (double)(now_ms - instance->told_ms);
	instance->generated_tokens = generated;
	instance->told_ms = now_ms;
	if (json_type(json_get(params, "timing")) == JSON_OBJECT) {
		json_destroy(&instance->timing);
		instance->timing = instance_timing_json(instance, json_get(params, "timing"));
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

// ---- starting ----

static const struct cluster_device *host_of(const struct placing *placing, const struct cluster_device *device)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (placing->devices[i].backend == PLACE_CPU &&
		    !strcmp(placing->devices[i].node_id, cluster_device_node_id(device)))
			return placing->where[i];
	return NULL;
}

// Slices are named as what they are, all else as it was asked for.
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
	instance->began_loading_ms = clock_steady_ms();
}

void instance_take_spilled(struct instance *instance, const struct placing_giver *giver)
{
	begin_placement(instance);
	json_destroy(&instance->offer);
	instance->step = STEP_SPILLED;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		struct instance_stage *stage = &instance->stages[i];
		stage->host_layers = giver->stages[i].host_layers;
		stage->memory = giver->stages[i].memory;
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

// RETURN_WHOLE_MS: until then what gave way is placed where nothing is short only; readings are younger than that.
enum { START_TRIES = 3, RETURN_AGAIN_MS = 1000, RETURN_WHOLE_MS = 10000, RETURN_WITHIN_MS = 60000 };

struct starting {
	struct starting *next, **link; // of instances->starting
	struct instances *instances;
	struct json *params;
	char instance_id[INSTANCE_ID_BYTES]; // once it is placed
	unsigned tries;                      // that came to nothing: who was to give way was used meanwhile
	struct instance *returns; // it gave way to one that failed, and asks nobody to give way to it; or NULL
	bool met;                 // another that was begun meanwhile stands in for it
	bool lags;                // it waits for readings that show what has been freed
	int64_t since_ms;         // of one that returns: begun; steady
	struct net_timer again;   // of one that waits for memory
	instances_started *done;  // NULL: it returns
	void *context;
};

static void starting_destroy(struct starting *starting)
{
	*starting->link = starting->next;
	if (starting->next)
		starting->next->link = starting->link;
	net_timer_stop(starting->instances->params.loop, &starting->again);
	json_destroy(&starting->params);
	if (starting->returns)
		instance_free(starting->returns);
	free(starting);
}

static enum status refuse(const struct placing *placing, struct error *error)
{
	const struct placement *placement = &placing->placement;
	error_set(error, STATUS_OUT_OF_MEMORY, "%.100s fits nowhere: %s", placing->model->name,
		  placement->why_count ? placement->whys[0].text : "no device can be used");
	error_hint(error,
		   "%s%sfree memory, give fewer --context tokens, or take a smaller model; exogpu place "
		   "--preview says more",
		   placing->later, placing->later[0] ? "; " : "");
	return STATUS_OUT_OF_MEMORY;
}

// Those of this model that failed: another try takes their place.
static void drop_failed(struct instances *instances, const char *model_id)
{
	for (struct instance *one = instances->first, *next; one; one = next) {
		next = one->next;
		if (one->state == INSTANCE_FAILED && !strcmp(one->model_id, model_id)) {
			instance_forget(one); // what cannot be read of state.db is there still
			instance_stop(one);
		}
	}
}

static void discard(struct instance *instance)
{
	let_go(instance, "it could not be started");
	instance_free(instance);
}

// An instance that holds its model and nothing else, in no list yet: what can be refused is, before anybody gives way.
static enum status prepare(const struct starting *starting, const struct placing *placing, struct instance **out,
			   struct error *error)
{
	struct instances *instances = starting->instances;
	struct instance *instance = calloc(1, sizeof(*instance));
	if (!instance)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*instance = (struct instance){.all = instances,
				      .created_ms = clock_wall_ms(),
				      .wanted = json_copy(starting->params),
				      .load_ms = -1,
				      .tokens_per_s = -1};
	json_set_string(instance->wanted, "model_id", placing->model->model_id);
	instance_take_placement(instance, placing);
	enum status status = random_id("ins_", instance->instance_id, sizeof instance->instance_id);
	if (status)
		error_set(error, status, "the system gives no random numbers");
	if (!status)
		status = models_hold(instances->params.models, placing->model, error);
	if (status) {
		discard(instance);
		return status;
	}
	instance->model = placing->model;
	*out = instance;
	return STATUS_OK;
}

static enum status launch(struct instance *instance, struct error *error)
{
	struct instance **at = &instance->all->first;
	enum status status = instance_hold(instance, true);
	if (!status)
		status = parts_create(&instance->parts, instance, NULL, error);
	if (status)
		return error->message[0] ? status
					 : error_set(error, status, "%.100s could not be started: %s",
						     instance->model_name, status_text(status));
	while (*at)
		at = &(*at)->next;
	*at = instance;
	instance->all->count++;
	return STATUS_OK;
}

static struct instance *find(const struct instances *instances, const char *id)
{
	struct instance *one = instances->first;
	while (one && strcmp(one->instance_id, id) != 0)
		one = one->next;
	return one;
}

// It is listed once more, and waits for a place.
static void wait_for_place(struct instance *instance, const struct error *error)
{
	char why[INSTANCE_REASON_BYTES];
	struct instance **at = &instance->all->first;
	while (*at)
		at = &(*at)->next;
	*at = instance;
	instance->all->count++;
	instance->gave_way_to[0] = 0;
	instance->state = INSTANCE_STARTING;
	log_info("models", "instance %s of %s is not loaded again yet: %s", instance->instance_id, instance->model_name,
		 error->message);
	snprintf(why, sizeof why, "%.448s, which did not come up", instance->recovery.gave_way);
	recover_restored(instance, why);
	instance_publish(instance);
}

// What becomes of one that gave way in vain, and for now has no place, or does: `instance`.
static void come_back(struct starting *starting, enum status status, const struct instance *instance,
		      const struct error *error)
{
	struct instances *all = starting->instances;
	struct instance *returns = starting->returns;
	const bool ends = starting->met || status == STATUS_NOT_FOUND || all->count >= LIMIT_INSTANCES;
	starting->returns = NULL;
	if (!status) {
		giveway_returned(instance);
	} else if (!all->ending && !ends) {
		wait_for_place(returns, error);
		return;
	} else if (!all->ending) {
		log_warning("models",
			    "instance %s of %s, which was unloaded for a model that did not come up, is not loaded "
			    "again: %s",
			    returns->instance_id, returns->model_name, error->message);
		instance_forget(returns);
		instance_publish_removed(returns);
	}
	instance_free(returns);
}

static void over(struct starting *starting, enum status status, const struct instance *instance,
		 const struct error *error)
{
	if (starting->done)
		starting->done(starting->context, status, instance, error);
	else
		come_back(starting, status, instance, error);
	starting_destroy(starting);
}

// It may have been deleted meanwhile.
static void stored(void *context, enum status status, const struct error *error)
{
	struct starting *starting = context;
	struct error fault = error ? *error : (struct error){0};
	struct instance *instance = find(starting->instances, starting->instance_id);
	if (status && instance)
		instance_remove(instance, &fault);
	else if (!status && !instance)
		status = error_set(&fault, STATUS_CONFLICT, "it was stopped before it was begun");
	over(starting, status, status ? NULL : instance, &fault);
}

// Of one that gave way in vain: whether an instance of its model was begun since, which stands in for it, and for no
// other one.
static bool stood_in_for(const struct instance *returns)
{
	struct instance *one = returns->all->first;
	while (one && (strcmp(one->model_id, returns->model_id) != 0 || one->state == INSTANCE_FAILED ||
		       one->stands_in || one->created_ms < returns->gave_way_ms))
		one = one->next;
	if (one)
		one->stands_in = true;
	return one != NULL;
}

// It is the same one, and goes on counting.
static void take_identity(struct instance *instance, const struct instance *returns, bool whole)
{
	struct recovery *recovery = &instance->recovery;
	snprintf(instance->instance_id, sizeof instance->instance_id, "%s", returns->instance_id);
	instance->created_ms = returns->created_ms;
	instance->epoch += returns->epoch;
	instance->recoveries = returns->recoveries;
	instance->moves = returns->moves;
	instance->used_ms = returns->used_ms;
	if (!whole) // which it is to be yet
		snprintf(recovery->gave_way, sizeof recovery->gave_way, "%s", returns->recovery.gave_way);
}

// Of one that gave way in vain: whether that was less than so long ago.
static bool returns_since(const struct starting *starting, int64_t ms)
{
	return starting->returns && clock_steady_ms() - starting->since_ms <= ms;
}

static enum status start_placed(struct starting *starting, const struct placing *placing, struct instance **out,
				struct error *error)
{
	struct instances *instances = starting->instances;
	const bool whole = placing->placement.feasible && placing->placement.step == STEP_NONE;
	if (demand_met(instances, starting->context))
		return error_set(error, STATUS_CONFLICT, "another instance was begun meanwhile");
	starting->lags = placing->lags && !whole;
	if (starting->lags)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the memory does not show as free yet");
	if (!placing->placement.feasible) {
		const enum status refused = refuse(placing, error);
		demand_refused(instances, starting->context, placing, error);
		return refused;
	}
	starting->met = starting->returns && stood_in_for(starting->returns);
	if (starting->met)
		return error_set(error, STATUS_CONFLICT, "it was begun meanwhile");
	if (!whole && returns_since(starting, RETURN_WHOLE_MS))
		return error_set(error, STATUS_OUT_OF_MEMORY, "the memory that it had does not show as free yet");
	struct instance *instance = NULL;
	enum status status = prepare(starting, placing, &instance, error);
	if (status)
		return status;
	if (starting->returns)
		take_identity(instance, starting->returns, whole);
	drop_failed(instances, placing->model->model_id);
	if (instances->count >= LIMIT_INSTANCES) {
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "there are %d instances already", LIMIT_INSTANCES);
		error_hint(error, "stop one: exogpu stop ID");
	} else if (!giveway_take(instance, placing)) {
		status = error_set(error, STATUS_PENDING, "a model that was to give way is in use again");
	} else {
		status = launch(instance, error);
	}
	if (status) {
		discard(instance);
		return status;
	}
	if (giveway_any(placing))
		snprintf(instance->state_reason, sizeof instance->state_reason, "%s", placing->placement.whys[0].text);
	instance_publish(instance);
	*out = instance;
	return STATUS_OK;
}

static void placed_to_start(void *context, enum status status, struct placing *placing, const struct error *error);

static enum status search_place(struct starting *starting, struct error *error)
{
	static const struct placing_excluded nothing;
	const struct placing_request request = {.kind = PLACING_WORK,
						.params = starting->params,
						.excluded = starting->returns ? &nothing : NULL,
						.done = placed_to_start,
						.context = starting};
	return placing_start(starting->instances, &request, error);
}

static void search_again(void *arg)
{
	struct error fault = {0};
	struct starting *starting = arg;
	const enum status status = search_place(starting, &fault);
	if (status)
		over(starting, status, NULL, &fault);
}

// Readings of a device's memory may not show yet that what was there has ended.
static bool waits_for_room(struct starting *starting, enum status status)
{
	if (status != STATUS_OUT_OF_MEMORY || !(starting->lags || returns_since(starting, RETURN_WITHIN_MS)))
		return false;
	net_timer_start(starting->instances->params.loop, &starting->again, RETURN_AGAIN_MS, search_again, starting);
	return true;
}

static void placed_to_start(void *context, enum status status, struct placing *placing, const struct error *error)
{
	struct starting *starting = context;
	struct error fault = error ? *error : (struct error){0};
	struct instance *instance = NULL;
	starting->lags = false;
	if (!status)
		status = start_placed(starting, placing, &instance, &fault);
	free(placing);
	if (waits_for_room(starting, status))
		return;
	if (status == STATUS_PENDING) {
		if (++starting->tries < START_TRIES && !search_place(starting, &fault))
			return;
		status = STATUS_UNAVAILABLE;
	}
	if (!status && starting->returns) { // its row is there
		instance_keep(instance);
		over(starting, status, instance, NULL);
		return;
	}
	if (!status) {
		snprintf(starting->instance_id, sizeof starting->instance_id, "%s", instance->instance_id);
		status = instance_keep_new(instance, stored, starting);
		if (!status)
			return;
		error_set(&fault, status, "too many changes wait for the disk");
		instance_remove(instance, &fault);
	}
	over(starting, status, NULL, &fault);
}

// `like` is copied.
static enum status start(struct instances *instances, const struct starting *like, const struct json *params,
			 struct error *error)
{
	struct starting *starting = calloc(1, sizeof *starting);
	if (!starting)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*starting = *like;
	starting->next = instances->starting;
	starting->link = &instances->starting;
	starting->instances = instances;
	starting->params = json_copy(params);
	if (starting->next)
		starting->next->link = &starting->next;
	instances->starting = starting;
	enum status status = search_place(starting, error);
	if (status) {
		starting->returns = NULL; // the caller's
		starting_destroy(starting);
	}
	return status;
}

enum status instances_start(struct instances *instances, const struct json *params, instances_started *done,
			    void *context, struct error *error)
{
	return start(instances, &(struct starting){.done = done, .context = context}, params, error);
}

void instances_start_again(struct instances *instances, struct instance *displaced)
{
	struct error fault = {0};
	struct starting like = {.instances = instances, .returns = displaced, .since_ms = clock_steady_ms()};
	snprintf(displaced->state_reason, sizeof displaced->state_reason,
		 "%.448s, which did not come up: a place is looked for", displaced->recovery.gave_way);
	instance_publish(displaced);
	const enum status status = start(instances, &like, displaced->wanted, &fault);
	if (status)
		come_back(&like, status, NULL, &fault);
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

// Of one that gave way, or is coming back. False: there is none.
static bool stop_away(struct instances *instances, const char *id)
{
	struct instance *away = NULL;
	for (struct instance *one = instances->first; one && !away; one = one->next)
		away = giveway_take_out(one, id);
	for (struct starting *one = instances->starting; one && !away; one = one->next) {
		if (!one->returns || strcmp(one->returns->instance_id, id) != 0)
			continue;
		away = one->returns;
		one->returns = NULL;
		placing_cancel(instances, one);
		starting_destroy(one);
		break;
	}
	if (!away)
		return false;
	instance_publish_removed(away);
	instance_free(away);
	return true;
}

enum status instances_stop(struct instances *instances, const char *id, struct error *error)
{
	struct instance *one = find(instances, id);
	if (one)
		instance_stop(one);
	if (one || stop_away(instances, id))
		return STATUS_OK;
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
	const struct shards_params shards = {.loop = params->loop, .contract = params->contract};
	enum status status = shards_create(&instances->shards, &shards, error);
	if (!status)
		status = layer_times_create(&instances->layer_times, params->store, error);
	if (!status)
		status = planner_create(&instances->planner, instances, error);
	if (!status)
		status = instances_restore(instances, error);
	if (status)
		instances_destroy(out);
	return status;
}

void instances_shut_down(struct instances *instances)
{
	struct error fault = {0};
	instances->ending = true;
	const enum status ended = instances_refuse(instances, &fault);
	planner_shut_down(instances->planner);
	for (struct starting *one = instances->starting, *next; one; one = next) {
		next = one->next;
		if (one->lags) // which searches no more
			over(one, ended, NULL, &fault);
	}
	demands_shut_down(instances, &fault);
	while (instances->first) {
		if (instances->first->state == INSTANCE_RUNNING)
			instance_keep(instances->first);
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
	while (instances->starting) // whose outcome the store drops
		starting_destroy(instances->starting);
	demands_destroy(instances);
	nowhere_destroy(instances);
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
	for (struct instance *one = instances->first; one; one = one->next)
		if (!strcmp(one->model_id, json_get_string(params, "model_id", "")))
			parts_fetching(one->parts, node_id, params);
}

void instances_hop_ended(struct instances *instances, const char *node_id, const struct json *params)
{
	for (struct instance *one = instances->first; one; one = one->next)
		if (parts_hop_ended(one->parts, node_id, params))
			return;
}

const struct instance *instances_find(const struct instances *instances, const char *id)
{
	const struct instance *found = find(instances, id);
	for (const struct instance *one = instances->first; one && !found; one = one->next)
		for (const struct instance *away = one->displaced; away && !found; away = away->next)
			found = !strcmp(away->instance_id, id) ? away : NULL;
	for (const struct starting *one = instances->starting; one && !found; one = one->next)
		found = one->returns && !strcmp(one->returns->instance_id, id) ? one->returns : NULL;
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
	for (const struct starting *one = instances->starting; one; one = one->next)
		if (one->returns)
			json_push(list, instance_json(one->returns));
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
		count += one->model == model && one->state == INSTANCE_RUNNING;
	return count;
}

int64_t instances_line_tokens(const struct instances *instances)
{
	return instances->params.line_tokens;
}
