/* What a running instance does about heat: it changes to a smaller format, where it permits that, or is moved away from
 * a device that gets too hot for its work; and back.
 *
 * The device's guard (server/thermal/guard.h) gives models less time first. Of an instance that has requests and whose
 * device stays held back, a place on the same devices with its weights in the next smaller format is searched for, and
 * then one without the devices that are held back, or with fewer layers on them (placing/ease.c). It takes what pays,
 * as a recovery without a loss (instances_recover.c): requests continue after the last token that their client has, and
 * their end tells where the format changed (requests.c). Once its devices, or the device that it left, are free again,
 * it goes back. The times between such changes are in decide.h. They are counted by the clock of the readings, by which
 * devices heat up and cool. Thread: the loop's. */
#include "server/cluster/heat.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <string.h>

static const double gain = 0.2;         // the least part of the tokens that a change has to win
static const double horizon_ms = 600e3; // of the time after it in which it has to win them
static const double unknown_load_ms = 60e3;

static int64_t clock_ms(const struct instance *instance)
{
	return cluster_heat_clock(instance->all->params.cluster);
}

static int64_t since(const struct instance *instance, int64_t at_ms)
{
	const int64_t ms = clock_ms(instance) - at_ms;
	return !at_ms ? -1 : ms < 0 ? 0 : ms;
}

// The device of the instance on which models get the least time, among those whose policy permits it: that they leave,
// or that they change their format. NULL: none is held back.
static const struct cluster_device *hottest(const struct instance *instance, bool leaves, struct cluster_held *held)
{
	const struct cluster_device *device = NULL;
	*held = (struct cluster_held){.held_ms = -1, .share = 1};
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct cluster_held one = cluster_heat_held(instance->stages[i].device);
		if (!one.held || !(leaves ? one.moves : one.steps) || (device && one.share >= held->share))
			continue;
		*held = one;
		device = instance->stages[i].device;
	}
	return device;
}

bool instance_is_on(const struct instance *instance, const char *device_id)
{
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!strcmp(cluster_device_id(instance->stages[i].device), device_id))
			return true;
	return false;
}

static uint32_t layers_on(const struct instance *instance, const char *device_id)
{
	uint32_t layers = 0;
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!strcmp(cluster_device_id(instance->stages[i].device), device_id))
			layers += instance->stages[i].layer_count;
	return layers;
}

// Since another instance has left the device for its heat, or has changed its format there; < 0: none has.
static int64_t eased_ms(const struct instance *instance, const struct cluster_device *device)
{
	int64_t least_ms = -1;
	for (const struct instance *one = instance->all->first; one; one = one->next) {
		const int64_t ms = since(instance, one->heat.moved_ms);
		const bool there = !strcmp(one->heat.left_id, cluster_device_id(device)) ||
				   (one->heat.format_before[0] && instance_is_on(one, cluster_device_id(device)));
		if (one != instance && there && ms >= 0 && (least_ms < 0 || ms < least_ms))
			least_ms = ms;
	}
	return least_ms;
}

// The device that it, or some of its layers, left for its heat; NULL: none, or they are there again, or that device is
// gone.
static const struct cluster_device *left(const struct instance *instance)
{
	const char *id = instance->heat.left_id;
	const bool away = id[0] && layers_on(instance, id) <= instance->heat.left_layers;
	return away ? cluster_find_device(instance->all->params.cluster, id) : NULL;
}

// ---- formats ----

// The next smaller format that it may be held in; FORMAT_UNKNOWN: none.
static enum tensor_format next_smaller(const struct instance *instance)
{
	const enum tensor_format least = format_parse(json_get_string(instance->wanted, "least_format", "")),
				 next = format_is_wide(instance->format)  ? FORMAT_Q8_0
					: instance->format == FORMAT_Q8_0 ? FORMAT_Q4_0
									  : FORMAT_UNKNOWN;
	const bool may = instance->model && format_is_wide(instance->model->sizes.main_format) &&
			 (least == FORMAT_Q4_0 || least == next);
	return may ? next : FORMAT_UNKNOWN;
}

const char *heat_format_before(const struct instance *instance)
{
	const enum tensor_format format = format_parse(instance->heat.format_before);
	if (!instance->heat.format_before[0])
		return NULL;
	if (format != FORMAT_UNKNOWN)
		return format_info(format)->name;
	return format_info(instance->model ? instance->model->sizes.main_format : instance->format)->name;
}

static void set_format(struct json *wanted, const char *format)
{
	if (strcmp(format, "file") != 0)
		json_set_string(wanted, "format", format);
	else
		json_remove(wanted, "format");
}

struct json *heat_wanted(const struct instance *instance, enum decide_purpose purpose)
{
	struct json *wanted = json_copy(instance->wanted);
	const enum tensor_format next = next_smaller(instance);
	if (purpose == PURPOSE_STEP_DOWN && next != FORMAT_UNKNOWN)
		set_format(wanted, format_info(next)->name);
	else if (purpose == PURPOSE_STEP_BACK)
		set_format(wanted, instance->heat.format_before);
	return wanted;
}

static void take_format(struct instance *instance, enum decide_purpose purpose)
{
	char before[sizeof instance->heat.format_before];
	struct json *wanted = heat_wanted(instance, purpose);
	snprintf(before, sizeof before, "%s", json_get_string(instance->wanted, "format", "file"));
	if (purpose == PURPOSE_STEP_BACK)
		instance->heat.format_before[0] = 0;
	else if (!instance->heat.format_before[0])
		snprintf(instance->heat.format_before, sizeof instance->heat.format_before, "%s", before);
	json_destroy(&instance->wanted);
	instance->wanted = wanted;
}

// ---- what is seen ----

static bool all_cool(const struct instance *instance)
{
	const struct cluster_device *found;
	bool cool = true;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct cluster_device *device = instance->stages[i].device;
		cool &= cluster_heat_held(device).cool && !(cluster_heat_rate(device) < 1) &&
			!tenant_find_device(instance->all->params.tenants, cluster_device_id(device), &found, NULL);
	}
	return cool;
}

void heat_see(struct snapshot *snapshot, const struct instance *instance)
{
	struct cluster_held held;
	struct decide_seen *seen = &snapshot->seen;
	const struct cluster_device *hot = hottest(instance, true, &held), *before = left(instance), *found;
	const enum tensor_format next = next_smaller(instance);
	if (hot) {
		seen->hot = gather_name(instance->all, hot, snapshot->hot);
		seen->hot_ms = held.held_ms;
		seen->eased_ms = eased_ms(instance, hot);
	}
	if (before) {
		seen->left = gather_name(instance->all, before, snapshot->left);
		seen->left_cool = cluster_heat_held(before).cool &&
				  !tenant_find_device(instance->all->params.tenants, instance->heat.left_id, &found,
						      NULL);
	}
	if ((hot = hottest(instance, false, &held))) {
		seen->strained = gather_name(instance->all, hot, snapshot->strained);
		seen->strained_ms = held.held_ms;
		seen->relieved_ms = eased_ms(instance, hot);
	}
	seen->smaller = next == FORMAT_UNKNOWN ? NULL : format_info(next)->name;
	seen->stepped_from = heat_format_before(instance);
	seen->all_cool = all_cool(instance);
	seen->works = instance->generation_count > 0;
	seen->heat_moved_ms = since(instance, instance->heat.moved_ms);
	seen->heat_searched_ms = since(instance, instance->heat.searched_ms);
	seen->format_searched_ms = since(instance, instance->heat.format_searched_ms);
}

// A smaller format has the same devices and the same share of their time: both count as if they were cool.
bool heat_pays(const struct instance *instance, const struct placing *placing, enum decide_purpose purpose)
{
	struct cluster_held held = {.share = 1};
	const bool stays = purpose == PURPOSE_STEP_DOWN;
	if (!stays)
		hottest(instance, true, &held);
	const double load_ms = instance->load_ms < 0 ? unknown_load_ms : instance->load_ms;
	const double here = offer_present_rate(instance) * held.share,
		     there = offer_rate(placing) * (horizon_ms - load_ms) / horizon_ms;
	return here >= 0 && here < there * (1 - gain) && (stays || !offer_same_place(instance, placing));
}

// ---- what is done ----

void heat_searched(struct instance *instance, enum decide_purpose purpose)
{
	if (purpose == PURPOSE_COOLER || purpose == PURPOSE_COOLED)
		instance->heat.searched_ms = clock_ms(instance);
	else if (purpose == PURPOSE_STEP_DOWN || purpose == PURPOSE_STEP_BACK)
		instance->heat.format_searched_ms = clock_ms(instance);
}

// hot: NULL if it goes back.
static void note_left(struct instance *instance, const struct cluster_device *hot, const struct placing *placing)
{
	const struct placing_ease *ease = &placing->ease;
	const struct placement *placement = &placing->placement;
	if (hot && ease->gives)
		hot = placing->where[ease->stages[ease->hot].device];
	snprintf(instance->heat.left_id, sizeof instance->heat.left_id, "%s", hot ? cluster_device_id(hot) : "");
	instance->heat.left_layers = 0;
	for (unsigned i = 0; i < placement->stage_count && hot; i++)
		if (placing->where[placement->stages[i].device] == hot)
			instance->heat.left_layers += placement->stages[i].layer_count;
}

void heat_moved(struct instance *instance, enum decide_cause cause, const struct placing *placing)
{
	struct cluster_held held;
	const struct cluster_device *hot = hottest(instance, true, &held);
	instance->heat.moved_ms = clock_ms(instance);
	if (cause == CAUSE_STEP_DOWN || cause == CAUSE_STEP_BACK)
		take_format(instance, cause == CAUSE_STEP_DOWN ? PURPOSE_STEP_DOWN : PURPOSE_STEP_BACK);
	else
		note_left(instance, cause == CAUSE_HEAT ? hot : NULL, placing);
}

void heat_say(const struct instance *instance, char why[INSTANCE_REASON_BYTES])
{
	char name[GATHER_NAME_BYTES];
	size_t length = 0;
	const char *format = heat_format_before(instance);
	const struct cluster_device *before = left(instance);
	if (before && instance->heat.left_layers)
		length = (size_t)snprintf(
			why, INSTANCE_REASON_BYTES,
			"%s, which got too hot for its work, has fewer of its layers; they go back once "
			"that one is cool again, if it is faster then",
			gather_name(instance->all, before, name));
	else if (before)
		length = (size_t)snprintf(
			why, INSTANCE_REASON_BYTES,
			"it has left %s, which got too hot for its work; it goes back once that one is cool again, if "
			"it is faster there",
			gather_name(instance->all, before, name));
	if (format)
		snprintf(why + length, INSTANCE_REASON_BYTES - length,
			 "%sits weights are held in %s, since a device got too hot for its work; they go back to %s "
			 "once "
			 "its devices are cool again",
			 length ? "; " : "", format_info(instance->format)->name, format);
}

// ---- over a start of the server ----

void heat_store(const struct instance *instance, struct json *row)
{
	json_set_string(row, "heat_left", instance->heat.left_id);
	json_set_integer(row, "heat_left_layers", instance->heat.left_layers);
	json_set_string(row, "format_before", instance->heat.format_before);
}

// Its devices' forecasts begin anew, so the time until it goes back does, too.
void heat_restore(struct instance *instance, const struct json *row)
{
	const char *format = json_get_string(row, "format_before", "");
	const bool known = !strcmp(format, "file") || !strcmp(format, "auto") || format_parse(format) != FORMAT_UNKNOWN;
	snprintf(instance->heat.left_id, sizeof instance->heat.left_id, "%s", json_get_string(row, "heat_left", ""));
	const int64_t layers = json_get_integer(row, "heat_left_layers", 0); // a row of before has none
	instance->heat.left_layers = layers > 0 && layers <= UINT32_MAX ? (uint32_t)layers : 0;
	snprintf(instance->heat.format_before, sizeof instance->heat.format_before, "%s", known ? format : "");
	if (instance->heat.left_id[0] || instance->heat.format_before[0]) {
		const int64_t now_ms = clock_ms(instance);
		instance->heat.moved_ms = now_ms ? now_ms : 1;
	}
}
