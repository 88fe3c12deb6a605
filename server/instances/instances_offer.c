/* Faster places for running instances: searched for when a device appears or returns, and while a part slows the others
 * up; offered, and taken on request or by configuration.
 *
 * The usable devices are checked once a second. If they have changed, and then stay the same for a second, a place is
 * searched for as if the instance's own memory were free; a place that is a fifth faster is an offer. Both speeds are
 * predictions by the same costs; the layers of the present place have been timed. A pinned instance is never moved.
 * Taking an offer works like a recovery (instances_recover.c) without a loss: requests pause, workers end, others
 * begin, requests continue. A change to a smaller format of the weights, for want of memory or for less heat, and back,
 * works in the same way with another wanted format. So does the return of evicted layers (evict.c) to devices when
 * there is room again. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNEVEN_MS = 120000 };    // between two searches because a part slows the others down
static const double gain = 0.2; // the least part of the time that a better place saves

// ---- which devices there are ----

struct counting {
	const struct instances *all;
	uint64_t hash;
};

static void add_device(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	struct counting *counting = context;
	const struct cluster_device *found;
	(void)telemetry;
	if (tenant_find_device(counting->all->params.tenants, cluster_device_id(device), &found, NULL))
		return;
	for (const char *text = cluster_device_id(device); *text; text++) // FNV-1a
		counting->hash = (counting->hash ^ (uint8_t)*text) * 1099511628211u;
}

uint64_t offer_devices(const struct instances *all)
{
	struct counting counting = {.all = all, .hash = 14695981039346656037u};
	cluster_each_device(all->params.cluster, add_device, &counting);
	return counting.hash;
}

// ---- how fast ----

// By the objective it was placed with.
double offer_present_rate(const struct instance *instance)
{
	double seconds = instance->way_s;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *stage = &instance->stages[i];
		if (stage->seconds_per_token < 0)
			return -1;
		seconds += stage->slice ? 0 : stage->seconds_per_token; // slices compute together
	}
	return instance->predicted_s > 0 && seconds > 0 ? instance->predicted_rate * instance->predicted_s / seconds
							: -1;
}

double offer_rate(const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	return placing->wanted.objective == PLACE_THROUGHPUT || placement->seconds_per_token <= 0
		       ? placement->tokens_per_s
		       : 1 / placement->seconds_per_token;
}

void instance_take_prediction(struct instance *instance, const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	instance->predicted_s = placement->seconds_per_token;
	instance->predicted_rate = offer_rate(placing);
	instance->way_s = placement->seconds_per_token;
	for (unsigned i = 0; i < placement->stage_count; i++)
		instance->way_s -= placement->stages[i].slice ? 0 : placement->stages[i].seconds_per_token;
	if (instance->way_s < 0)
		instance->way_s = 0;
	json_destroy(&instance->offer);
	instance->looked_at = instance->seen = offer_devices(instance->all);
	instance->move_wanted = false;
}

// ---- offers ----

bool offer_same_place(const struct instance *instance, const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	bool same = placement->stage_count == instance->stage_count;
	for (unsigned i = 0; same && i < placement->stage_count; i++)
		same = placement->stages[i].layer_count == instance->stages[i].layer_count &&
		       placing->where[placement->stages[i].device] == instance->stages[i].device;
	return same;
}

static struct json *offer_json(const struct placing *placing, double rate, double present)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object(), *devices = json_new_array();
	const struct placement *placement = &placing->placement;
	for (unsigned i = 0; i < placement->stage_count; i++)
		json_push(devices, json_new_string(placing->devices[placement->stages[i].device].device_id));
	json_set_string(json, "at", clock_format(clock_wall_ms(), at));
	json_set_number(json, "tokens_per_s", rate);
	json_set_number(json, "now_tokens_per_s", present);
	json_set(json, "device_ids", devices);
	return json;
}

bool offer_faster(const struct instance *instance, const struct placing *placing)
{
	const double present = offer_present_rate(instance), rate = offer_rate(placing);
	return present > 0 && present < rate * (1 - gain) && !offer_same_place(instance, placing);
}

void offer_take(struct instance *instance, const struct placing *placing)
{
	const bool had = instance->offer != NULL, faster = placing && offer_faster(instance, placing);
	instance->move_wanted = false;
	json_destroy(&instance->offer);
	if (faster) {
		const double present = offer_present_rate(instance), rate = offer_rate(placing);
		instance->offer = offer_json(placing, rate, present);
		log_info("models",
			 "instance %s of %s would run faster elsewhere: %.1f instead of %.1f tokens a second "
			 "(exogpu move %s)",
			 instance->instance_id, instance->model_name, rate, present, instance->instance_id);
	}
	if (faster || had)
		instance_publish(instance);
}

// ---- parts that are unlike ----

bool offer_uneven(const struct instance *instance)
{
	const enum bottleneck_kind kind = instance->bottleneck.now.kind;
	return instance->timing && instance->running && (kind == BOTTLENECK_STAGE || kind == BOTTLENECK_WAIT);
}

bool offer_uneven_due(const struct instance *instance)
{
	// Where models move by themselves, a search would move one that may be as uneven afterwards.
	return offer_uneven(instance) && !instance->all->params.take_better &&
	       (!instance->uneven_ms || instances_now(instance->all) - instance->uneven_ms >= UNEVEN_MS);
}

void instances_each_balance(const struct instances *instances, instances_see_balance *each, void *context)
{
	for (const struct instance *one = instances->first; one; one = one->next) {
		const bool works = one->state == INSTANCE_RUNNING && one->timing && one->running;
		const double now = json_get_number(one->offer, "now_tokens_per_s", 0),
			     then = json_get_number(one->offer, "tokens_per_s", 0);
		const struct instances_balance balance = {.instance_id = one->instance_id,
							  .model_name = one->model_name,
							  .why = json_get_string(one->timing, "bottleneck", ""),
							  .gain_percent = !works ? (double)NAN
									  : offer_uneven(one) && now > 0
										  ? 100 * (then / now - 1)
										  : 0};
		each(context, &balance);
	}
}

// ---- another format ----

void offer_take_format(struct instance *instance)
{
	json_destroy(&instance->wanted);
	instance->wanted = instance->stepping;
	instance->stepping = NULL;
	instance->heat.format_before[0] = 0; // somebody has decided
}

static enum status ask_step(struct instance *instance, const char *format, struct error *error)
{
	if (!instance->model)
		return error_set(error, STATUS_CONFLICT, "%s", instance->state_reason);
	const enum tensor_format main = instance->model->sizes.main_format;
	if (!format_is_wide(main)) {
		error_set(error, STATUS_CONFLICT, "the weights of %.64s are in %s in its file", instance->model_name,
			  format_info(main)->name);
		error_hint(error, "only those of 16 and 32 bits can be held in another format");
		return STATUS_CONFLICT;
	}
	struct json *wanted = json_copy(instance->wanted);
	if (!wanted)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (instance->stepping && instance->state == INSTANCE_RUNNING) { // the search used the earlier format
		recover_drop_search(instance);
		recover_soon(instance);
	}
	if (strcmp(format, "file") != 0)
		json_set_string(wanted, "format", format);
	else
		json_remove(wanted, "format");
	json_destroy(&instance->stepping);
	instance->stepping = wanted;
	if (instance->state == INSTANCE_PAUSED &&
	    !parts_at_work(instance->parts)) { // it has no place: maybe it has one like this
		offer_take_format(instance);
		instance_keep(instance, NULL);
		recover_wish(instance);
	}
	return STATUS_OK;
}

// ---- back from the host's memory ----

// Whether one is paused without a place that has not looked for it since there is this room: it is for that one first.
// One that did, and found none, may never find any.
bool offer_others_wait(const struct instance *instance)
{
	const struct instance *one = instance->all->first;
	while (one && (one->state != INSTANCE_PAUSED || parts_at_work(one->parts) ||
		       one->recovery.in_vain_ms > instance->room_ms))
		one = one->next;
	return one != NULL;
}

void offer_wait(struct instance *instance, const char *why)
{
	const int64_t ms = 2 * (instance->return_wait_ms ? instance->return_wait_ms : DECIDE_ROOM_MS);
	instance->return_wait_ms = ms < DECIDE_ROOM_MOST_MS ? ms : DECIDE_ROOM_MOST_MS;
	log_info("models", "instance %s of %s, which was evicted, stays as it is for %lld s more: %s",
		 instance->instance_id, instance->model_name, (long long)instance->return_wait_ms / 1000, why);
}

const char *offer_not_whole(const struct placing *placing)
{
	switch (placing->placement.step) {
	case STEP_NONE:
		break;
	case STEP_SPILLED:
		return "there is no room yet for all of the layers that are in the host's memory";
	case STEP_SMALLER_FORMAT:
		return "there is room for it in a smaller format only";
	case STEP_CPU:
		return "there is room for it with processors only";
	}
	return "";
}

// There is room for its evicted layers: its layers in the host's memory have room on its devices.
static bool has_room(const struct instance *instance)
{
	struct placing *placing;
	bool room = true;
	if (placing_gather_memory(&placing, instance->all, instance->model))
		return false;
	for (unsigned i = 0; i < instance->stage_count && room; i++) {
		unsigned at = 0;
		while (at < placing->wanted.device_count && placing->where[at] != instance->stages[i].device)
			at++;
		room = at < placing->wanted.device_count &&
		       placing->devices[at].free_bytes >= instance->stages[i].memory.host_bytes;
	}
	free(placing);
	return room;
}

static uint64_t others_hold(const struct instance *instance)
{
	uint64_t bytes = 0;
	for (const struct instance *one = instance->all->first; one; one = one->next)
		for (unsigned i = 0; i < one->stage_count && one != instance; i++)
			bytes += one->stages[i].held + one->stages[i].host_held;
	return bytes;
}

int64_t offer_room_due_ms(const struct instance *instance)
{
	const bool more = others_hold(instance) < instance->others_held;
	return instance->return_ms +
	       (instance->return_wait_ms && !more ? instance->return_wait_ms : (int64_t)DECIDE_ROOM_MS);
}

void offer_look_room(struct instance *instance)
{
	const int64_t now_ms = instances_now(instance->all);
	const uint64_t others = others_hold(instance);
	if (others < instance->others_held)
		instance->return_wait_ms = 0;
	instance->return_ms = now_ms;
	instance->others_held = others;
	instance->room_ms = !has_room(instance) ? 0 : instance->room_ms ? instance->room_ms : now_ms;
	if (!instance->room_ms)
		instance->return_wait_ms = 0;
}

// ---- asked for ----

enum status instances_move(struct instances *instances, const char *id, const char *format, struct error *error)
{
	struct instance *one = instances_listed(instances, id);
	const struct instance *away = one ? NULL : instances_find(instances, id);
	if (away) // it was evicted, or is coming back
		return error_set(error, STATUS_CONFLICT, "the instance is not loaded: %.320s", away->state_reason);
	if (!one) {
		error_set(error, STATUS_NOT_FOUND, "there is no instance %.64s", id);
		error_hint(error, "see: exogpu instances");
		return STATUS_NOT_FOUND;
	}
	if (one->state == INSTANCE_FAILED)
		return error_set(error, STATUS_CONFLICT, "the instance has failed: %.320s", one->state_reason);
	if (format)
		return ask_step(one, format, error);
	if (json_first(json_get(one->wanted, "pins"))) {
		error_set(error, STATUS_CONFLICT, "the instance is where it was pinned");
		error_hint(error, "stop it, and place the model without pins");
		return STATUS_CONFLICT;
	}
	one->move_wanted = true;
	return STATUS_OK;
}
