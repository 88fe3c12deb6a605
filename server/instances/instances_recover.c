/* What becomes of an instance that was running and has lost something: a worker, a device, a node, or a hop between
 * them; or one of whose devices is to be left.
 *
 *   running --- a hop is broken ---> paused, connected anew and checked -------------------------> running
 *       |                                  | that fails                                              ^
 *       +--- a part is lost, ----> paused, its worker ended -> searched for a place -> begun anew --+
 *       |    or is to be left            ^                        | none: once more, in a while      |
 *       |                                +------------------------+                                  |
 *       +--- a node is cut off --> paused, waits for it a little, then searches ... begun anew|
 *                                                   ... while it does, the node is back with its workers: connected
 *     the server is started --> paused, waits for the devices it lay on, then searches ... begun anew ---> running
 *                                  | ... its workers have outlived the server before: adopted, connected ----^
 *
 * What has not been lost of it stays where it is, if it can (instances_keep.c); where that does not work all of it is
 * loaded anew, and so is what has no place for longer than a node is waited for.
 *
 * Its requests stay, and go on where their client has got to (requests.c). They wait until it has been paused for
 * pause_ms in which nothing was fetched or loaded; then they end with an error that says to try again, and the instance
 * goes on looking. It is placed as it was asked for; on what is left, if devices that were pinned are gone: finishing
 * what has begun counts more. A device on which the last attempt failed comes last. An instance whose workers die
 * LIMIT_DEATHS times in LIMIT_DEATHS_MS, while their devices are there, has failed for good.
 *
 * After a start of the server devices come back one by one. The first would not do: those that it lay on are waited for
 * until they are there (and their nodes have had SETTLE_MS to reach each other), at most LIMIT_REJOIN_MS, and half of
 * what requests wait. Workers that are left of it count before a place: they are waited for as long. Thread: the
 * loop's. */
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_MS = 1000, AGAIN_MOST_MS = 5000, LOOK_MS = 250, RETURN_LEAST_MS = 1000, SETTLE_MS = 2000 };
static const double search_s = 0.2; // a good place soon is better than the best one later

static void search(struct instance *instance);
static void returning(void *arg);

// ---- pausing ----

static void waited_enough(void *arg)
{
	struct error fault = {0};
	struct instance *instance = arg;
	error_set(&fault, STATUS_UNAVAILABLE, "the model %.64s is paused for %d s: %.280s", instance->model_name,
		  (int)(instance->all->params.pause_ms / 1000), instance->state_reason);
	error_hint(&fault, "try again later: it goes on by itself once there is room for it");
	generations_give_up(instance, &fault);
	instance_publish(instance);
}

static void begin_pause(struct instance *instance, const char *why)
{
	struct recovery *recovery = &instance->recovery;
	snprintf(instance->state_reason, sizeof instance->state_reason, "%s", why);
	if (instance->state != INSTANCE_PAUSED) // it is, where it gave way to one that did not come up
		instance_change(instance, &(struct instance_change){.to = INSTANCE_PAUSED});
	instance->tokens_per_s = -1;
	snprintf(recovery->why, sizeof recovery->why, "%s", why);
	recovery->paused_ms = instances_now(instance->all);
	recovery->attempt = 0;
	recovery->search_ms = recovery->in_vain_ms = 0;
	recovery->anew = recovery->failed = recovery->wanted = recovery->returning = false;
	recovery->kept = 0;
	recovery->avoided[0] = 0;
	recovery->missing_count = 0;
	json_destroy(&recovery->remedies);
	net_timer_stop(instance->all->params.loop, &recovery->again);
	placing_cancel(instance->all, instance);
	net_timer_start(instance->all->params.loop, &instance->pause_limit, instance->all->params.pause_ms,
			waited_enough, instance);
	log_warning("models", "instance %s of %s is paused: %s", instance->instance_id, instance->model_name, why);
}

static void pause(struct instance *instance, const char *why)
{
	if (instance->state == INSTANCE_PAUSED)
		snprintf(instance->state_reason, sizeof instance->state_reason, "%s", why);
	else
		begin_pause(instance, why);
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

// ---- placing anew ----

static void again(void *arg)
{
	search(arg);
}

static void later(struct instance *instance)
{
	struct recovery *recovery = &instance->recovery;
	int64_t ms = recovery->attempt * (int64_t)AGAIN_MS;
	recovery->in_vain_ms = recovery->search_ms;
	net_timer_start(instance->all->params.loop, &recovery->again, ms < AGAIN_MOST_MS ? ms : AGAIN_MOST_MS, again,
			instance);
	recovery->attempt++;
}

// Its workers end, and what they hold is free.
static void let_go(struct instance *instance, const char *why)
{
	parts_destroy(&instance->parts, why);
	gather_released(instance);
	instance_hold(instance, false);
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

// What stays as it is goes on; all else ends before anything begins.
static void begin_anew(struct instance *instance, const struct placing *placing)
{
	struct error error = {0};
	instance->recovery.anew = true;
	json_destroy(&instance->recovery.remedies);
	if (parts_at_work(instance->parts))
		keep_spare(instance, "the instance is placed anew");
	const enum status status = keep_begin(instance, placing, &error);
	generations_pause(instance);
	if (status)
		not_begun(instance, status, &error);
	else
		say_kept(instance);
	instance_publish(instance);
}

// What would give it a place, and how it is asked for.
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

// There is no place. False: something was left out, and it is tried once more without that.
static bool nowhere(struct instance *instance, const struct placement *placement, const char *why)
{
	struct recovery *recovery = &instance->recovery;
	if (json_first(json_get(instance->wanted, "pins")) && !recovery->without_pins) {
		recovery->without_pins = true;
		return false;
	}
	recovery->without_pins = false;
	if (recovery->avoided[0]) {
		recovery->avoided[0] = 0;
		return false;
	}
	snprintf(instance->state_reason, sizeof instance->state_reason, "it waits for a place: %.384s", why);
	if (placement)
		keep_remedies(instance, placement);
	return true;
}

// One that was to give way may be in use again: then it looks once more.
static void make_room(struct instance *instance, const struct placing *placing)
{
	if (!giveway_take(instance, placing)) {
		later(instance);
		return;
	}
	snprintf(instance->state_reason, sizeof instance->state_reason, "%s",
		 giveway_any(placing) ? placing->placement.whys[0].text : instance->recovery.why);
	begin_anew(instance, placing);
}

// How long a node is waited for before another place is, and what is left of an instance without one: its workers may
// come back with it, which is worth waiting for where loading takes long.
static int64_t grace_ms(const struct instance *instance)
{
	double ms = instance->load_ms / 2;
	return ms < RETURN_LEAST_MS ? RETURN_LEAST_MS : ms > LIMIT_RETURN_MS ? LIMIT_RETURN_MS : (int64_t)ms;
}

// Without a place for the rest it keeps nobody from theirs.
static void end_spared(struct instance *instance)
{
	if (instance->parts && !parts_at_work(instance->parts) &&
	    instances_now(instance->all) - instance->recovery.paused_ms >= grace_ms(instance))
		let_go(instance, "there is no place for the rest of the instance");
}

static void placed(void *context, enum status status, struct placing *placing, const struct error *error)
{
	struct instance *instance = context;
	const struct placement *placement = status ? NULL : &placing->placement;
	if (placement && placement->feasible) {
		make_room(instance, placing);
	} else if (!nowhere(instance, placement,
			    !placement             ? error->message
			    : placement->why_count ? placement->whys[0].text
						   : "no device can be used")) {
		search(instance);
	} else {
		end_spared(instance);
		instance_publish(instance);
		later(instance);
	}
	free(placing);
}

static struct json *wanted(const struct instance *instance)
{
	struct json *params = json_copy(instance->wanted);
	json_set_number(params, "timeout_s", search_s);
	if (instance->recovery.without_pins)
		json_remove(params, "pins");
	return params;
}

// Say it, if it is new.
static void say(struct instance *instance, const char *why)
{
	if (!strcmp(instance->state_reason, why))
		return;
	snprintf(instance->state_reason, sizeof instance->state_reason, "%s", why);
	instance_publish(instance);
}

// After a start of the server: it may have been removed, or its file may be missing. False: that was seen to.
static bool hold_model(struct instance *instance)
{
	struct error error = {0};
	struct models *models = instance->all->params.models;
	const struct model_record *model = instance->model ? instance->model : models_find(models, instance->model_id);
	if (!model) {
		error_set(&error, STATUS_NOT_FOUND, "the model %.128s was removed", instance->model_name);
		instance_set_failed(instance, &error);
		return false;
	}
	if (!instance->model && models_hold(models, model, &error)) {
		say(instance, error.message);
		later(instance);
		return false;
	}
	instance->model = model;
	return true;
}

static void search(struct instance *instance)
{
	struct error error = {0};
	struct recovery *recovery = &instance->recovery;
	recovery->search_ms = instances_now(instance->all);
	if (!hold_model(instance))
		return;
	struct placing_excluded excluded = {
		.ending = instance, .why = "the instance failed there just now", .gives_way = true, .keeps = true};
	struct json *params = wanted(instance);
	if (recovery->avoided[0])
		snprintf(excluded.ids[excluded.count++], STORE_ID_BYTES, "%s", recovery->avoided);
	const struct placing_request request = {
		.kind = PLACING_RECOVERY, .params = params, .excluded = &excluded, .done = placed, .context = instance};
	if (placing_start(instance->all, &request, &error))
		later(instance);
	json_destroy(&params);
}

// ---- what was lost ----

// Whether its worker has died, and not its device or its node.
static bool died(const struct instance *instance, const struct error *fault, int part)
{
	const struct cluster_device *device;
	const struct instance_stage *stage = part < 0 ? NULL : parts_stage(instance->parts, (unsigned)part);
	return fault->status == STATUS_DEVICE_LOST && stage &&
	       !tenant_find_device(instance->all->params.tenants, cluster_device_id(stage->device), &device, NULL);
}

static bool dies_often(struct instance *instance)
{
	int64_t *deaths = instance->recovery.deaths_ms;
	memmove(deaths + 1, deaths, (LIMIT_DEATHS - 1) * sizeof *deaths);
	deaths[0] = instances_now(instance->all);
	return deaths[LIMIT_DEATHS - 1] && deaths[0] - deaths[LIMIT_DEATHS - 1] < LIMIT_DEATHS_MS;
}

void recover_lost(struct instance *instance, const struct error *fault, int part)
{
	struct recovery *recovery = &instance->recovery;
	const bool attempted = instance->state == INSTANCE_PAUSED && recovery->attempt;
	const bool by_itself = !recovery->returning && died(instance, fault, part);
	const struct instance_stage *stage = part < 0 ? NULL : parts_stage(instance->parts, (unsigned)part);
	if (by_itself && dies_often(instance)) {
		instance_set_failed(instance, fault);
		return;
	}
	pause(instance, fault->message);
	const bool kept = recovery->anew && recovery->kept; // all else than loading everything anew was tried, in vain
	const bool spares = !recovery->anew && !recovery->returning && part >= 0 &&
			    !parts_has_worker(instance->parts, (unsigned)part);
	recovery->kept = 0;
	recovery->failed |= recovery->anew && !kept;
	recovery->missing_count = attempted ? recovery->missing_count : 0;
	if (!attempted)
		for (unsigned i = 0; i < instance->stage_count; i++)
			if (!parts_has(instance->parts, i))
				add_missing(instance, &instance->stages[i]);
	snprintf(recovery->avoided, sizeof recovery->avoided, "%s",
		 attempted && stage && !kept ? cluster_device_id(stage->device) : "");
	if (stage && fault->status == STATUS_OUT_OF_MEMORY)
		gather_refused(instance, stage);
	if (kept)
		log_warning("models",
			    "instance %s of %s: with what parts had loaded it does not work; all is loaded anew",
			    instance->instance_id, instance->model_name);
	if (!spares || !keep_spare(instance, "the instance is placed anew"))
		let_go(instance, "the instance is placed anew");
	if (by_itself)
		generations_blame(instance);
	generations_pause(instance);
	if (recovery->returning) // of before the start: all else goes on as if there had been none
		net_timer_start(instance->all->params.loop, &recovery->again, 0, returning, instance);
	else
		later(instance);
	instance_publish(instance);
}

void recover_away(struct instance *instance, unsigned part, const char *why)
{
	char text[INSTANCE_REASON_BYTES], name[GATHER_NAME_BYTES];
	struct recovery *recovery = &instance->recovery;
	gather_name(instance->all, parts_stage(instance->parts, part)->device, name);
	snprintf(text, sizeof text, "%s is cut off: %.384s", name, why);
	pause(instance, text);
	recovery->missing_count = 0;
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!parts_has(instance->parts, i))
			add_missing(instance, &instance->stages[i]);
	if (part + 1 == parts_count(instance->parts))
		generations_cut(instance);
	placing_cancel(instance->all, instance);
	if (recovery->returning)
		net_timer_start(instance->all->params.loop, &recovery->again, LOOK_MS, returning, instance);
	else
		net_timer_start(instance->all->params.loop, &recovery->again, grace_ms(instance), again, instance);
	instance_publish(instance);
}

static void mend(void *arg)
{
	struct instance *instance = arg;
	parts_mend(instance->parts);
	instance_publish(instance);
}

// After a start of the server several nodes have some time to tell of their links.
void recover_back(struct instance *instance)
{
	const bool several = instance->recovery.returning && parts_count(instance->parts) > 1;
	net_timer_stop(instance->all->params.loop, &instance->recovery.again);
	placing_cancel(instance->all, instance);
	if (several)
		net_timer_start(instance->all->params.loop, &instance->recovery.again, SETTLE_MS, mend, instance);
	else
		mend(instance);
}

void recover_broken(struct instance *instance)
{
	pause(instance, "a connection between its parts is broken; they are being reconnected");
	parts_mend(instance->parts);
	instance_publish(instance);
}

// ---- after a start of the server ----

// Whether it may be expected to come back by itself.
static bool is_coming(const struct cluster_device *device)
{
	const char *reason;
	const struct json *verification = device ? json_get(cluster_device_record(device), "verification") : NULL;
	return device && (!strcmp(cluster_device_state(device, &reason), "offline") ||
			  !strcmp(json_get_string(verification, "state", ""), "pending"));
}

// The first device that it lay on and that is on its way; NULL: there is none. *nodes: how many it lay on.
static const struct cluster_device *first_coming(const struct instance *instance, bool *several)
{
	const struct cluster_device *coming = NULL, *first = NULL;
	const struct recovery *recovery = &instance->recovery;
	*several = false;
	for (unsigned i = 0; i < recovery->missing_count; i++) {
		const struct cluster_device *device = cluster_find_device(instance->all->params.cluster,
									  recovery->missing[i].device_id);
		if (!device)
			continue;
		first = first ? first : device;
		*several |= strcmp(cluster_device_node_id(device), cluster_device_node_id(first)) != 0;
		coming = !coming && is_coming(device) ? device : coming;
	}
	return coming;
}

static int64_t rejoin_ms(const struct instance *instance)
{
	const int64_t half_ms = instance->all->params.pause_ms / 2;
	return half_ms < LIMIT_REJOIN_MS ? half_ms : LIMIT_REJOIN_MS;
}

static void returning(void *arg)
{
	char why[INSTANCE_REASON_BYTES], name[GATHER_NAME_BYTES];
	bool several;
	struct instance *instance = arg;
	struct recovery *recovery = &instance->recovery;
	const int64_t now_ms = instances_now(instance->all);
	const struct cluster_device *coming = first_coming(instance, &several);
	recovery->back_ms = coming ? 0 : recovery->back_ms ? recovery->back_ms : now_ms;
	const bool settled = !coming && !instance->parts && (!several || now_ms - recovery->back_ms >= SETTLE_MS);
	if (settled || now_ms - recovery->paused_ms >= rejoin_ms(instance)) {
		recovery->returning = false;
		search(instance);
		return;
	}
	snprintf(why, sizeof why, "%.448s: it waits for %s%s", recovery->why,
		 coming            ? gather_name(instance->all, coming, name)
		 : instance->parts ? "its workers"
				   : "its nodes to reach each other",
		 coming && recovery->missing_count > 1 ? " and the other devices it was on" : "");
	say(instance, why);
	net_timer_start(instance->all->params.loop, &recovery->again, LOOK_MS, returning, instance);
}

void recover_leave(struct instance *instance)
{
	instance->recovery.missing_count = 0;
	for (unsigned i = 0; i < instance->stage_count; i++)
		add_missing(instance, &instance->stages[i]);
	instance->stage_count = 0;
	instance->ready_ms = 0;
}

void recover_restored(struct instance *instance, const char *why)
{
	struct recovery *recovery = &instance->recovery;
	const unsigned missing = recovery->missing_count;
	begin_pause(instance, why);
	recovery->missing_count = missing;
	recovery->returning = true;
	if (hold_model(instance))
		instance_find_left(instance);
	json_destroy(&instance->left);
	if (instance->state == INSTANCE_PAUSED)
		net_timer_start(instance->all->params.loop, &recovery->again, 0, returning, instance);
}

void recover_wish(struct instance *instance)
{
	placing_cancel(instance->all, instance);
	net_timer_start(instance->all->params.loop, &instance->recovery.again, 0, again, instance);
}

// ---- on record ----

void recover_goes_on(struct instance *instance)
{
	struct buffer detail, devices;
	struct json *json = json_new_object();
	buffer_init(&devices, LIMIT_AUDIT_DETAIL_BYTES / 2);
	for (unsigned i = 0; i < instance->stage_count; i++) {
		buffer_append_text(&devices, i ? " " : "");
		buffer_append_text(&devices, cluster_device_id(instance->stages[i].device));
	}
	json_set_string(json, "model", instance->model_name);
	json_set_string(json, "reason", instance->recovery.why);
	json_set_integer(json, "epoch", (int64_t)instance->epoch);
	json_set_string(json, "devices", buffer_text(&devices));
	if (instance->recovery.kept) {
		char kept[64];
		snprintf(kept, sizeof kept, "%u of %u parts keep what they have loaded", instance->recovery.kept,
			 instance->recovery.of_parts);
		json_set_string(json, "kept", kept);
	}
	buffer_init(&detail, LIMIT_AUDIT_DETAIL_BYTES);
	json_print(json, &detail);
	const struct audit_tally entry = {
		.by = &audit_server,
		.action = instance->recovery.wanted ? "instance.moved" : "instance.placed_anew",
		.target = instance->instance_id,
		.node_id = cluster_device_node_id(instance->stages[0].device),
		.device_id = cluster_device_id(instance->stages[0].device),
		.duration_us = (instances_now(instance->all) - instance->recovery.paused_ms) * 1000,
		.detail = detail.failed ? NULL : buffer_text(&detail)};
	instance_change(instance, &(struct instance_change){
					  .to = INSTANCE_RUNNING, .row = INSTANCE_ROW_WRITTEN, .entry = &entry});
	buffer_finish(&detail);
	buffer_finish(&devices);
	json_destroy(&json);
}

void recover_moved(struct instance *instance)
{
	if (instance->state == INSTANCE_PAUSED && instance->pause_limit.running && !instance->recovery.failed)
		net_timer_start(instance->all->params.loop, &instance->pause_limit, instance->all->params.pause_ms,
				waited_enough, instance);
}

static void say_gave_way(const struct instance *instance, char why[INSTANCE_REASON_BYTES])
{
	snprintf(why, INSTANCE_REASON_BYTES, "%.448s: %s", instance->recovery.gave_way,
		 instance->step == STEP_SPILLED ? "more of its layers are in the host's memory"
						: "it goes back once there is room for it");
}

// Whole again, what it gave way to is over. If it should be, and is not, or only elsewhere since it failed on a device,
// the next attempt waits longer.
static void went_back(struct instance *instance)
{
	if (instance->step == STEP_NONE && !instance->recovery.avoided[0])
		instance->recovery.gave_way[0] = 0;
	else if (instance->goes_back)
		offer_wait(instance, "it was to go back, and could not be loaded so");
	instance->goes_back = false;
}

void recover_done(struct instance *instance)
{
	struct recovery *recovery = &instance->recovery;
	net_timer_stop(instance->all->params.loop, &instance->pause_limit);
	if (recovery->anew)
		*(recovery->wanted ? &instance->moves : &instance->recoveries) += 1;
	log_info("models", "instance %s of %s goes on after %lld ms", instance->instance_id, instance->model_name,
		 (long long)(instances_now(instance->all) - recovery->paused_ms));
	recovery->missing_count = 0;
	recovery->attempt = 0;
	recovery->returning = false;
	went_back(instance);
	if (recovery->gave_way[0])
		say_gave_way(instance, instance->state_reason);
}

// ---- leaving devices that are draining ----

static const struct instance_stage *draining(const struct instance *instance)
{
	const char *reason;
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!strcmp(cluster_device_state(instance->stages[i].device, &reason), "draining"))
			return &instance->stages[i];
	return NULL;
}

static void leave(struct instance *instance, const struct placing *placing)
{
	char why[INSTANCE_REASON_BYTES], name[GATHER_NAME_BYTES];
	const char *reason;
	snprintf(why, sizeof why, "it leaves %s, which is draining",
		 gather_name(instance->all, draining(instance)->device, name));
	pause(instance, why);
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!strcmp(cluster_device_state(instance->stages[i].device, &reason), "draining"))
			add_missing(instance, &instance->stages[i]);
	instance->recovery.attempt = 1;
	begin_anew(instance, placing);
}

// Where there is no other place it stays, and takes no new requests.
static void elsewhere(void *context, enum status status, struct placing *placing, const struct error *error)
{
	struct instance *instance = context;
	(void)error;
	if (!status && placing->placement.feasible && draining(instance))
		leave(instance, placing);
	else
		recover_watch(instance);
	free(placing);
}

// Where it goes may be where it was: if the memory is not free yet when it is loaded, that is no reason to avoid the
// device, so the first failure is not held against it.
void recover_move(struct instance *instance, const struct placing *placing, const char *why)
{
	pause(instance, why);
	instance->recovery.attempt = 0;
	instance->recovery.wanted = true;
	begin_anew(instance, placing);
}

void recover_spill(struct instance *instance, const struct placing_giver *giver)
{
	char why[INSTANCE_REASON_BYTES];
	struct error error = {0};
	instance->step = STEP_SPILLED;
	say_gave_way(instance, why);
	pause(instance, why);
	instance->recovery.wanted = true;
	instance->room_ms = instance->return_wait_ms = 0;
	instance->recovery.anew = true;
	json_destroy(&instance->recovery.remedies);
	let_go(instance, "it gives way");
	generations_pause(instance);
	instance_take_spilled(instance, giver);
	enum status status = instance_hold(instance, true);
	if (!status)
		status = parts_create(&instance->parts, instance, NULL, &error);
	if (status) {
		instance_hold(instance, false);
		not_begun(instance, status, &error);
	}
	instance_publish(instance);
}

static void look(void *arg)
{
	struct error error = {0};
	struct instance *instance = arg;
	const struct placing_excluded excluded = {.ending = instance, .keeps = true};
	bool asked = !draining(instance) && offer_look(instance);
	if (draining(instance)) {
		struct json *params = wanted(instance);
		json_remove(params, "pins");
		const struct placing_request request = {.kind = PLACING_WORK,
							.params = params,
							.excluded = &excluded,
							.done = elsewhere,
							.context = instance};
		asked = !placing_start(instance->all, &request, &error);
		json_destroy(&params);
	}
	if (!asked)
		recover_watch(instance);
}

void recover_watch(struct instance *instance)
{
	net_timer_start(instance->all->params.loop, &instance->recovery.again, LOOK_MS, look, instance);
}

void recover_stop(struct instance *instance)
{
	net_timer_stop(instance->all->params.loop, &instance->recovery.again);
	net_timer_stop(instance->all->params.loop, &instance->pause_limit);
	placing_cancel(instance->all, instance);
}
