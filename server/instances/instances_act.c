/* Carries out the actions that instance_decide may name. There are no rules here. The result of an action is a fact in
 * `struct recovery`, which the next decision uses (instances_see.c). Thread: the loop's. */
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Time limits of a search: without a place, a good one soon is better than the best one later.
static const double soon_s = 0.2, well_s = 1;

static int64_t now(const struct instance *instance)
{
	return instances_now(instance->all);
}

// ---- pausing ----

void recover_set_reason(struct instance *instance, const char *why)
{
	snprintf(instance->state_reason, sizeof instance->state_reason, "%s", why);
}

void recover_set_workers(struct instance *instance, enum decide_workers workers)
{
	instance->recovery.workers = workers;
	instance->recovery.workers_ms = now(instance);
}

void recover_drop_search(struct instance *instance)
{
	struct searched *search = &instance->recovery.search;
	placing_cancel(instance->all, instance);
	free(search->placing);
	*search = (struct searched){0};
}

static void begin_pause(struct instance *instance, enum decide_cause cause, const char *why)
{
	struct recovery *recovery = &instance->recovery;
	recover_set_reason(instance, why);
	if (instance->state != INSTANCE_PAUSED) // it is, where it was evicted for one that did not come up
		instance_change(instance, &(struct instance_change){.to = INSTANCE_PAUSED});
	instance->tokens_per_s = -1;
	snprintf(recovery->why, sizeof recovery->why, "%s", why);
	recovery->cause = cause;
	recovery->paused_ms = recovery->due_ms = now(instance);
	recovery->paused_epoch = instance->epoch;
	recovery->requests_until_ms = recovery->paused_ms + instance->all->params.pause_ms;
	recovery->attempts = recovery->kept = recovery->missing_count = 0;
	recovery->search_ms = recovery->in_vain_ms = 0;
	recovery->load_failed = false;
	recovery->failed_on[0] = 0;
	json_destroy(&recovery->remedies);
	recover_drop_search(instance);
	log_warning("models", "instance %s of %s is paused: %s", instance->instance_id, instance->model_name, why);
}

static void end_requests(struct instance *instance)
{
	struct error fault = {0};
	error_set(&fault, STATUS_UNAVAILABLE, "the model %.64s is paused for %d s: %.280s", instance->model_name,
		  (int)(instance->all->params.pause_ms / 1000), instance->state_reason);
	error_hint(&fault, "try again later: it continues by itself once there is room for it");
	instance->recovery.requests_until_ms = 0;
	generations_give_up(instance, &fault);
	instance_publish(instance);
}

static void add_missing(struct instance *instance, const struct instance_stage *stage)
{
	struct recovery *recovery = &instance->recovery;
	if (recovery->missing_count == PLACEMENT_STAGES)
		return;
	struct instance_missing *missing = &recovery->missing[recovery->missing_count++];
	*missing = (struct instance_missing){.first_layer = stage->first_layer, .layer_count = stage->layer_count};
	snprintf(missing->device_id, sizeof missing->device_id, "%s", cluster_device_id(stage->device));
}

// The stages whose workers are not there.
static void note_missing(struct instance *instance)
{
	instance->recovery.missing_count = 0;
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!parts_has(instance->parts, i))
			add_missing(instance, &instance->stages[i]);
}

static void act_pause(struct instance *instance, const struct decision *decision)
{
	struct recovery *recovery = &instance->recovery;
	if (instance->state != INSTANCE_PAUSED)
		begin_pause(instance, decision->cause, decision->reason);
	if (recovery->news.kind == NEWS_CUT_OFF) {
		note_missing(instance);
		if ((unsigned)recovery->news.part + 1 == parts_count(instance->parts))
			generations_cut(instance);
		recover_drop_search(instance);
		recover_set_workers(instance, WORKERS_AWAY);
		recovery->due_ms = recovery->workers_ms;
		recovery->news.kind = NEWS_NONE;
	}
	instance_publish(instance);
}

// ---- placing again ----

static void later(struct instance *instance)
{
	struct recovery *recovery = &instance->recovery;
	recovery->in_vain_ms = recovery->search_ms;
	recovery->due_ms = decide_due_ms(recovery->attempts++, now(instance));
}

// End its workers, and free their memory.
static void let_go(struct instance *instance, const char *why)
{
	parts_destroy(&instance->parts, why);
	gather_released(instance);
	instance_hold(instance, false);
	recover_set_workers(instance, WORKERS_NONE);
}

static void not_begun(struct instance *instance, enum status status, const struct error *error)
{
	snprintf(instance->state_reason, sizeof instance->state_reason, "it could not be placed again: %.384s",
		 error->message[0] ? error->message : status_text(status));
	later(instance);
}

static void say_kept(struct instance *instance)
{
	struct recovery *recovery = &instance->recovery;
	recovery->kept = parts_kept(instance->parts);
	recovery->of_parts = parts_count(instance->parts);
	if (!recovery->kept)
		return;
	snprintf(instance->state_reason, sizeof instance->state_reason,
		 "%.600s; %u of %u parts keep what they have loaded", recovery->why, recovery->kept,
		 recovery->of_parts);
	log_info("models", "instance %s of %s: %u of %u parts keep what they have loaded", instance->instance_id,
		 instance->model_name, recovery->kept, recovery->of_parts);
}

// Parts that stay the same continue; all others end before any new one begins.
static void begin_anew(struct instance *instance, const struct placing *placing)
{
	struct error error = {0};
	json_destroy(&instance->recovery.remedies);
	if (parts_at_work(instance->parts))
		keep_spare(instance, "the instance is placed again");
	const enum status status = keep_begin(instance, placing, &error);
	recover_set_workers(instance, status ? WORKERS_NONE : WORKERS_BUSY);
	generations_pause(instance);
	if (status)
		not_begun(instance, status, &error);
	else
		say_kept(instance);
	instance_publish(instance);
}

static void note_draining(struct instance *instance)
{
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (instance_is_draining(&instance->stages[i]) || instance_rests(&instance->stages[i]))
			add_missing(instance, &instance->stages[i]);
}

static void act_place(struct instance *instance, const struct decision *decision)
{
	struct placing *placing = instance->recovery.search.placing;
	instance->recovery.search.placing = NULL;
	recover_drop_search(instance);
	if (instance->state == INSTANCE_PAUSED) {
		if (evict_may_begin(instance->all, placing)) {
			evict_begin(instance, placing);
			recover_set_reason(instance, decision->reason);
			begin_anew(instance, placing);
		} else { // one that was to be evicted is in use again
			later(instance);
		}
	} else {
		if (decision->cause == CAUSE_FORMAT)
			offer_take_format(instance);
		if (decision->cause >= CAUSE_HEAT && decision->cause <= CAUSE_STEP_BACK)
			heat_moved(instance, decision->cause, placing);
		begin_pause(instance, decision->cause, decision->reason);
		// Where it goes may be where it was: if the memory is not free yet when it is loaded, that is no reason
		// to avoid the device, so the first failure is not held against it. A draining device is another one.
		if (decision->cause == CAUSE_DRAIN) {
			note_draining(instance);
			instance->recovery.attempts = 1;
		}
		begin_anew(instance, placing);
	}
	free(placing);
}

// Keep the remedies that would give it a place, and how to request them.
static void keep_remedies(struct instance *instance, const struct placement *placement)
{
	char *reason = instance->state_reason;
	const size_t length = strlen(reason);
	const char *format = placement->smaller == FORMAT_UNKNOWN ? NULL : format_info(placement->smaller)->name;
	json_destroy(&instance->recovery.remedies);
	instance->recovery.remedies = json_new_array();
	for (unsigned i = 0; i < placement->remedy_count; i++)
		json_push(instance->recovery.remedies, json_new_string(placement->remedies[i].text));
	if (format)
		snprintf(reason + length, sizeof instance->state_reason - length,
			 "; with its weights in %s it would fit: exogpu move %s --format %s", format,
			 instance->instance_id, format);
}

static void act_no_place(struct instance *instance)
{
	const struct placing *placing = instance->recovery.search.placing;
	if (placing)
		keep_remedies(instance, &placing->placement);
	recover_drop_search(instance);
	instance_publish(instance);
	later(instance);
}

// ---- searching ----

static void searched(void *context, enum status status, struct placing *placing, const struct error *error)
{
	struct instance *instance = context;
	struct searched *search = &instance->recovery.search;
	const struct placement *placement = status ? NULL : &placing->placement;
	search->phase = placement && placement->feasible ? SEARCH_FOUND : SEARCH_NOWHERE;
	search->placing = placing;
	snprintf(search->why, sizeof search->why, "%s",
		 !placement             ? error->message
		 : placement->why_count ? placement->whys[0].text
					: "no device can be used");
	recover_decide(instance);
}

// After a start of the server its file may be missing. False: that was seen to.
static bool hold_model(struct instance *instance)
{
	struct error error = {0};
	struct models *models = instance->all->params.models;
	const struct model_record *model = instance->model ? instance->model : models_find(models, instance->model_id);
	if (instance->model || (model && !models_hold(models, model, &error))) {
		instance->model = model;
		if (instance_hold_draft(instance, &error)) // it goes on without one that cannot be had
			log_warning("models", "instance %s has no draft model: %s", instance->instance_id,
				    error.message);
		return true;
	}
	if (model && strcmp(instance->state_reason, error.message) != 0) {
		recover_set_reason(instance, error.message);
		instance_publish(instance);
	}
	return false;
}

static void prepare_search(struct instance *instance, const struct decision *decision)
{
	struct recovery *recovery = &instance->recovery;
	recovery->search = (struct searched){.phase = SEARCH_RUNS,
					     .purpose = decision->purpose,
					     .without_pins = decision->without_pins,
					     .avoided = decision->avoids,
					     .epoch = instance->epoch};
	if (decision->purpose == PURPOSE_PLACE) {
		recovery->search_ms = now(instance);
		if (!decision->avoids)
			recovery->failed_on[0] = 0;
	} else if (decision->purpose == PURPOSE_WHOLE) {
		instance->return_tried_ms = now(instance);
	} else {
		heat_searched(instance, decision->purpose);
	}
}

static void act_search(struct instance *instance, const struct decision *decision)
{
	struct error error = {0};
	struct recovery *recovery = &instance->recovery;
	const enum decide_purpose purpose = decision->purpose;
	const bool none = purpose == PURPOSE_PLACE;
	recover_drop_search(instance);
	prepare_search(instance, decision);
	struct placing_excluded excluded = {.ending = instance,
					    .why = "the instance failed there just now",
					    .evicts = decision->evicts,
					    .keeps = none || purpose == PURPOSE_LEAVE || purpose == PURPOSE_COOLER,
					    .cool = purpose >= PURPOSE_COOLER || purpose == PURPOSE_STEP_BACK,
					    .eases = purpose == PURPOSE_COOLER,
					    .stays = purpose == PURPOSE_STEP_DOWN};
	if (decision->avoids)
		snprintf(excluded.ids[excluded.count++], STORE_ID_BYTES, "%s", recovery->failed_on);
	struct json *params = purpose == PURPOSE_FORMAT ? json_copy(instance->stepping)
							: heat_wanted(instance, purpose);
	json_set_number(params, "timeout_s", none || purpose == PURPOSE_LEAVE ? soon_s : well_s);
	if (decision->without_pins || purpose == PURPOSE_LEAVE)
		json_remove(params, "pins");
	const struct placing_request request = {.kind = none ? PLACING_RECOVERY : PLACING_WORK,
						.params = params,
						.excluded = &excluded,
						.done = searched,
						.context = instance};
	if ((none && !hold_model(instance)) || placing_start(instance->all, &request, &error)) {
		recovery->search = (struct searched){0};
		if (none)
			later(instance);
		else
			recovery->due_ms = now(instance) + DECIDE_LOOK_MS;
	} else if (purpose == PURPOSE_FASTER) {
		instance->looked_at = instance->seen = offer_devices(instance->all);
		instance->uneven_ms = now(instance);
	}
	json_destroy(&params);
}

// ---- losses ----

static void act_lost(struct instance *instance, const struct decision *decision)
{
	struct recovery *recovery = &instance->recovery;
	const struct error *fault = &recovery->news.fault;
	const int part = recovery->news.part;
	const struct instance_stage *stage = part < 0 ? NULL : parts_stage(instance->parts, (unsigned)part);
	const bool anew = instance_is_anew(instance), kept = anew && recovery->kept;
	recovery->kept = 0;
	recovery->load_failed |= anew && !kept;
	if (!recovery->attempts)
		note_missing(instance);
	snprintf(recovery->failed_on, sizeof recovery->failed_on, "%s",
		 decision->avoids && stage ? cluster_device_id(stage->device) : "");
	if (stage && fault->status == STATUS_OUT_OF_MEMORY)
		gather_refused(instance, stage);
	if (kept)
		log_warning(
			"models",
			"instance %s of %s: it does not work with the parts that were kept; everything is loaded again",
			instance->instance_id, instance->model_name);
	recover_drop_search(instance);
	if (decision->action == ACTION_SPARE && keep_spare(instance, "the instance is placed again"))
		recover_set_workers(instance, WORKERS_SPARED);
	else
		let_go(instance, "the instance is placed again");
	if (recovery->news.died)
		generations_blame(instance);
	recovery->news.kind = NEWS_NONE;
	generations_pause(instance);
	if (decision->counts)
		later(instance);
	instance_publish(instance);
}

static void act_release(struct instance *instance, const struct decision *decision)
{
	if (instance->recovery.news.kind == NEWS_LOST)
		act_lost(instance, decision);
	else
		let_go(instance, decision->reason);
}

static void act_mend(struct instance *instance)
{
	recover_drop_search(instance);
	recover_set_workers(instance, WORKERS_BUSY);
	parts_mend(instance->parts);
	instance_publish(instance);
}

static void act_fail(struct instance *instance, const struct decision *decision)
{
	struct error fault = {0};
	if (instance->recovery.news.kind == NEWS_LOST)
		fault = instance->recovery.news.fault;
	else
		error_set(&fault, STATUS_NOT_FOUND, "%s", decision->reason);
	instance_set_failed(instance, &fault);
}

// ---- after a start of the server ----

void recover_leave(struct instance *instance)
{
	instance->recovery.missing_count = 0;
	for (unsigned i = 0; i < instance->stage_count; i++)
		add_missing(instance, &instance->stages[i]);
	instance->stage_count = 0;
	instance->ready_ms = 0;
}

void recover_restored(struct instance *instance, enum decide_cause cause, const char *why)
{
	struct recovery *recovery = &instance->recovery;
	const unsigned missing = recovery->missing_count;
	begin_pause(instance, cause, why);
	recovery->missing_count = missing;
	const bool found = hold_model(instance) && instance_find_left(instance);
	recover_set_workers(instance, found ? WORKERS_AWAY : WORKERS_NONE);
	json_destroy(&instance->left);
	recover_soon(instance);
}

// It is not in use, or never will be: those who wait for it wait for the other one, if there is one.
static void act_remove(struct instance *instance, const struct decision *decision)
{
	struct error fault = {0};
	struct instance *other = evict_stand_in(instance);
	error_set(&fault, other ? STATUS_CONFLICT : STATUS_NOT_FOUND, "%s", decision->reason);
	log_warning("models",
		    "instance %s of %s, which was unloaded for a model that did not come up, is not loaded again: %s",
		    instance->instance_id, instance->model_name, decision->reason);
	if (other) {
		other->stands_in = true;
		generations_move(instance, other);
	}
	instance_forget(instance, &(struct audit_tally){.by = &audit_server,
							.action = "instance.failed",
							.target = instance->instance_id,
							.outcome = fault.status});
	instance_remove(instance, &fault);
}

// ---- making room for another ----

void recover_say_gave_way(const struct instance *instance, char why[INSTANCE_REASON_BYTES])
{
	snprintf(why, INSTANCE_REASON_BYTES, "%.448s: %s", instance->recovery.gave_way,
		 instance->step == STEP_SPILLED ? "more of its layers are in the host's memory"
						: "it goes back once there is room for it");
}

void recover_spill(struct instance *instance, const struct evict_candidate *candidate)
{
	char why[INSTANCE_REASON_BYTES];
	struct error error = {0};
	instance->step = STEP_SPILLED;
	recover_say_gave_way(instance, why);
	begin_pause(instance, CAUSE_EVICTED, why);
	instance->room_ms = instance->return_wait_ms = 0;
	let_go(instance, "it is evicted");
	generations_pause(instance);
	instance_take_spilled(instance, candidate);
	enum status status = instance_hold(instance, true);
	if (!status)
		status = parts_create(&instance->parts, instance, NULL, &error);
	if (status) {
		instance_hold(instance, false);
		not_begun(instance, status, &error);
	} else {
		recover_set_workers(instance, WORKERS_BUSY);
	}
}

// ---- nothing changes ----

static void act_stay(struct instance *instance)
{
	const struct searched *search = &instance->recovery.search;
	if (search->purpose == PURPOSE_FORMAT) {
		log_warning("models", "instance %s of %s: %s", instance->instance_id, instance->model_name,
			    instance->state_reason);
		json_destroy(&instance->stepping);
		instance_publish(instance);
	} else if (search->purpose == PURPOSE_FASTER) {
		offer_take(instance, search->phase == SEARCH_FOUND ? search->placing : NULL);
	}
	// A device may rest, or drain, for long while there is no other place.
	instance->recovery.stays = search->purpose == PURPOSE_LEAVE;
	instance->recovery.due_ms = now(instance) +
				    (search->purpose == PURPOSE_LEAVE ? DECIDE_AGAIN_MOST_MS : DECIDE_LOOK_MS);
	recover_drop_search(instance);
}

static void act_whole(struct instance *instance)
{
	instance->recovery.gave_way[0] = instance->state_reason[0] = 0;
	recover_drop_search(instance);
	instance_keep(instance, NULL);
	instance_publish(instance);
}

// ---- each action ----

void instance_act(struct instance *instance, const struct decision *decision)
{
	switch (decision->action) {
	case ACTION_WAIT:
		break;
	case ACTION_FAIL:
		act_fail(instance, decision);
		break;
	case ACTION_REMOVE:
		act_remove(instance, decision);
		break;
	case ACTION_SPILL:
	case ACTION_UNLOAD:
		evict_act(instance);
		break;
	case ACTION_END_REQUESTS:
		end_requests(instance);
		break;
	case ACTION_PAUSE:
		act_pause(instance, decision);
		break;
	case ACTION_SPARE:
		act_lost(instance, decision);
		break;
	case ACTION_RELEASE:
		act_release(instance, decision);
		break;
	case ACTION_MEND:
		act_mend(instance);
		break;
	case ACTION_SEARCH:
		act_search(instance, decision);
		break;
	case ACTION_PLACE:
		act_place(instance, decision);
		break;
	case ACTION_NO_PLACE:
		act_no_place(instance);
		break;
	case ACTION_DROP:
		recover_drop_search(instance);
		break;
	case ACTION_STAY:
		act_stay(instance);
		break;
	case ACTION_STAY_LATER:
		offer_wait(instance, decision->reason);
		recover_drop_search(instance);
		break;
	case ACTION_WHOLE:
		act_whole(instance);
		break;
	case ACTION_LOOK_ROOM:
		offer_look_room(instance);
		break;
	}
}
