/* Gathers the facts about an instance for its next decision (decide.h). Nothing here decides or acts. Thread: the
 * loop's. */
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <string.h>

enum { DEVICES_MS = 1000 };

bool instance_is_anew(const struct instance *instance)
{
	return instance->epoch != instance->recovery.paused_epoch;
}

// ---- devices ----

bool instance_is_draining(const struct instance_stage *stage)
{
	const char *reason;
	return !strcmp(cluster_device_state(stage->device, &reason), "draining");
}

const char *instance_rests(const struct instance_stage *stage)
{
	const char *reason;
	return strcmp(cluster_device_state(stage->device, &reason), "resting") ? NULL : reason;
}

// Whether it may be expected to come back by itself.
static bool is_coming(const struct cluster_device *device)
{
	const char *reason;
	const struct json *verification = json_get(cluster_device_record(device), "verification");
	return !strcmp(cluster_device_state(device, &reason), "offline") ||
	       !strcmp(json_get_string(verification, "state", ""), "pending");
}

// After a start of the server: the devices that it was on.
static void see_missing(struct snapshot *snapshot, struct instance *instance, int64_t now_ms)
{
	struct recovery *recovery = &instance->recovery;
	struct decide_seen *seen = &snapshot->seen;
	const struct cluster_device *coming = NULL, *first = NULL;
	for (unsigned i = 0; i < recovery->missing_count; i++) {
		const struct cluster_device *device = cluster_find_device(instance->all->params.cluster,
									  recovery->missing[i].device_id);
		if (!device)
			continue;
		first = first ? first : device;
		seen->several_nodes |= strcmp(cluster_device_node_id(device), cluster_device_node_id(first)) != 0;
		coming = !coming && is_coming(device) ? device : coming;
	}
	recovery->devices_back_ms = coming ? 0 : recovery->devices_back_ms ? recovery->devices_back_ms : now_ms;
	seen->devices_back_ms = recovery->devices_back_ms;
	seen->several_missing = recovery->missing_count > 1;
	seen->coming = coming ? gather_name(instance->all, coming, snapshot->coming) : NULL;
}

static void see_devices(struct snapshot *snapshot, struct instance *instance, int64_t now_ms)
{
	struct decide_seen *seen = &snapshot->seen;
	for (unsigned i = 0; i < instance->stage_count && !seen->draining; i++)
		if (instance_is_draining(&instance->stages[i]))
			seen->draining = gather_name(instance->all, instance->stages[i].device, snapshot->draining);
	for (unsigned i = 0; i < instance->stage_count && !seen->draining; i++)
		if ((seen->rests = instance_rests(&instance->stages[i])))
			seen->draining = gather_name(instance->all, instance->stages[i].device, snapshot->draining);
	instance->recovery.stays = instance->recovery.stays && seen->draining; // each drain is tried
	if (now_ms - instance->offer_ms >= DEVICES_MS) {
		const uint64_t before = instance->seen;
		instance->offer_ms = now_ms;
		instance->seen = offer_devices(instance->all);
		instance->devices_settled = instance->seen == before;
	}
	seen->devices_changed = instance->devices_settled && instance->seen != instance->looked_at;
	seen->uneven = offer_uneven_due(instance);
}

// ---- workers, and what the planner says ----

static void see_workers(struct decide_seen *seen, const struct instance *instance, int64_t now_ms)
{
	const struct recovery *recovery = &instance->recovery;
	const int part = recovery->news.part;
	seen->workers = recovery->workers;
	seen->workers_ms = recovery->workers_ms;
	seen->several = parts_count(instance->parts) > 1;
	seen->load_ms = instance->load_ms;
	seen->news = recovery->news.kind;
	seen->news_text = recovery->news.fault.message;
	seen->worker_died = recovery->news.died;
	seen->news_of_part = part >= 0 && instance->parts;
	seen->part_has_no_worker = seen->news_of_part && !parts_has_worker(instance->parts, (unsigned)part);
	seen->all_kept_failed = instance_is_anew(instance) && recovery->kept;
	seen->deaths_most = LIMIT_DEATHS;
	for (unsigned i = 0; i < LIMIT_DEATHS; i++)
		seen->deaths += recovery->deaths_ms[i] && now_ms - recovery->deaths_ms[i] < LIMIT_DEATHS_MS;
}

static void see_search(struct snapshot *snapshot, const struct instance *instance)
{
	struct decide_seen *seen = &snapshot->seen;
	const struct searched *search = &instance->recovery.search;
	const struct placing *placing = search->placing;
	seen->search = search->phase;
	seen->purpose = search->purpose;
	seen->stale = search->epoch != instance->epoch;
	seen->without_pins = search->without_pins;
	seen->avoided = search->avoided;
	seen->search_text = search->why;
	if (search->phase != SEARCH_FOUND)
		return;
	seen->same_place = offer_same_place(instance, placing) && instance->step == STEP_NONE;
	seen->whole_there = placing->placement.step == STEP_NONE;
	seen->lags = placing->lags;
	seen->pays_there = heat_pays(instance, placing, search->purpose);
	if (search->purpose == PURPOSE_WHOLE) {
		seen->search_text = offer_not_whole(placing);
	} else if (placing->ease.gives) {
		seen->gives = placing->ease.gives;
		seen->gives_of = placing->ease.stages[placing->ease.hot].layer_count;
		seen->gives_from = placing->devices[placing->ease.stages[placing->ease.hot].device].name;
		seen->search_text = placing->devices[placing->ease.to].name;
	} else if (search->purpose >= PURPOSE_COOLER) {
		seen->faster_there = offer_faster(instance, placing);
		snprintf(snapshot->text, sizeof snapshot->text, "%.128s%s",
			 placing->devices[placing->placement.stages[0].device].name,
			 placing->placement.stage_count > 1 ? " and others" : "");
		seen->search_text = snapshot->text;
	} else {
		seen->search_text = evict_any(placing) ? placing->placement.whys[0].text : instance->recovery.why;
	}
}

// ---- all of it ----

static void see_wanted(struct decide_wanted *wanted, const struct instance *instance)
{
	*wanted = (struct decide_wanted){.pinned = json_first(json_get(instance->wanted, "pins")) != NULL,
					 .moves = instance->move_wanted,
					 .takes_faster = instance->all->params.take_better,
					 .whole = instance->recovery.gave_way[0] != 0,
					 .pause_ms = instance->all->params.pause_ms};
	if (instance->stepping)
		wanted->format = json_get_string(instance->stepping, "format", "the file's format");
}

void instance_see(struct snapshot *snapshot, struct instance *instance)
{
	const int64_t now_ms = instances_now(instance->all);
	const struct recovery *recovery = &instance->recovery;
	struct decide_seen *seen = &snapshot->seen;
	see_wanted(&snapshot->wanted, instance);
	*seen = (struct decide_seen){.instance_state = instance->state,
				     .cause = instance->state == INSTANCE_PAUSED ? recovery->cause : CAUSE_NONE,
				     .why = recovery->why,
				     .paused_ms = recovery->paused_ms,
				     .attempts = recovery->attempts,
				     .placed_anew = instance_is_anew(instance),
				     .searched = recovery->search_ms != 0,
				     .requests_until_ms = recovery->requests_until_ms,
				     .failed_there = recovery->failed_on[0] != 0,
				     .due_ms = recovery->due_ms,
				     .eased_ms = -1,
				     .heat_moved_ms = -1,
				     .heat_searched_ms = -1,
				     .relieved_ms = -1,
				     .format_searched_ms = -1,
				     .held_format = format_info(instance->format)->name};
	if (recovery->evicted.candidate) {
		seen->evicted_for = recovery->evicted.to->model_name;
		seen->unloads = recovery->evicted.candidate->unloads;
	}
	see_workers(seen, instance, now_ms);
	see_search(snapshot, instance);
	if (instance->state == INSTANCE_PAUSED && !instance->model &&
	    !models_find(instance->all->params.models, instance->model_id)) {
		snprintf(snapshot->text, sizeof snapshot->text, "the model %.128s was removed", instance->model_name);
		seen->removed = snapshot->text;
	}
	if (instance->state == INSTANCE_PAUSED &&
	    (recovery->cause == CAUSE_RESTART || recovery->cause == CAUSE_IN_VAIN))
		see_missing(snapshot, instance, now_ms);
	seen->stood_in_for = seen->cause == CAUSE_IN_VAIN && evict_stand_in(instance);
	if (instance->state != INSTANCE_RUNNING)
		return;
	see_devices(snapshot, instance, now_ms);
	heat_see(snapshot, instance);
	if (!snapshot->wanted.whole)
		return;
	seen->room = instance->room_ms != 0;
	seen->room_due_ms = offer_room_due_ms(instance);
	seen->room_untried = instance->return_tried_ms < instance->return_ms;
	seen->others_wait = offer_others_wait(instance);
}
