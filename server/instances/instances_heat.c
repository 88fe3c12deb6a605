/* Moves of running instances for heat: away from a device that gets too hot for its work, and back.
 *
 * The device's guard (server/thermal/guard.h) gives models less time first. An instance that has requests and whose
 * device stays held back is placed again without the devices that are held back. It moves there if that pays, as a
 * recovery without a loss (instances_recover.c). Once the device that it left is free again, it goes back if that pays.
 * The times between such moves are in decide.h. They are counted by the clock of the readings, by which devices heat up
 * and cool. Thread: the loop's. */
#include "server/cluster/heat.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <string.h>

static const double gain = 0.2;         // the least part of the tokens that a move has to win
static const double horizon_ms = 600e3; // of the time after the move in which it has to win them
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

// The device of the instance on which models get the least time, among those whose policy lets them leave. NULL: none
// is held back.
static const struct cluster_device *hottest(const struct instance *instance, struct cluster_held *held)
{
	const struct cluster_device *device = NULL;
	*held = (struct cluster_held){.held_ms = -1, .share = 1};
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct cluster_held one = cluster_heat_held(instance->stages[i].device);
		if (!one.held || !one.moves || (device && one.share >= held->share))
			continue;
		*held = one;
		device = instance->stages[i].device;
	}
	return device;
}

static bool is_on(const struct instance *instance, const char *device_id)
{
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!strcmp(cluster_device_id(instance->stages[i].device), device_id))
			return true;
	return false;
}

// Since another instance has left the device for its heat; < 0: none has.
static int64_t eased_ms(const struct instance *instance, const struct cluster_device *device)
{
	int64_t least_ms = -1;
	for (const struct instance *one = instance->all->first; one; one = one->next) {
		const int64_t ms = since(instance, one->heat.moved_ms);
		if (one != instance && !strcmp(one->heat.left_id, cluster_device_id(device)) && ms >= 0 &&
		    (least_ms < 0 || ms < least_ms))
			least_ms = ms;
	}
	return least_ms;
}

// The device that it left for its heat; NULL: none, or it is there again, or that device is gone.
static const struct cluster_device *left(const struct instance *instance)
{
	const char *id = instance->heat.left_id;
	return id[0] && !is_on(instance, id) ? cluster_find_device(instance->all->params.cluster, id) : NULL;
}

void heat_see(struct snapshot *snapshot, const struct instance *instance)
{
	struct cluster_held held;
	struct decide_seen *seen = &snapshot->seen;
	const struct cluster_device *hot = hottest(instance, &held), *before = left(instance), *found;
	if (hot) {
		seen->hot = gather_name(instance->all, hot, snapshot->hot);
		seen->hot_ms = held.held_ms;
		seen->eased_ms = eased_ms(instance, hot);
	}
	if (before) {
		seen->left = gather_name(instance->all, before, snapshot->left);
		seen->left_cool = !cluster_heat_held(before).held &&
				  !tenant_find_device(instance->all->params.tenants, instance->heat.left_id, &found,
						      NULL);
	}
	seen->works = instance->generation_count > 0;
	seen->heat_moved_ms = since(instance, instance->heat.moved_ms);
	seen->heat_searched_ms = since(instance, instance->heat.searched_ms);
}

bool heat_pays(const struct instance *instance, const struct placing *placing)
{
	struct cluster_held held;
	hottest(instance, &held);
	const double load_ms = instance->load_ms < 0 ? unknown_load_ms : instance->load_ms;
	const double here = offer_present_rate(instance) * held.share,
		     there = offer_rate(placing) * (horizon_ms - load_ms) / horizon_ms;
	return here >= 0 && here < there * (1 - gain) && !offer_same_place(instance, placing);
}

void heat_searched(struct instance *instance)
{
	instance->heat.searched_ms = clock_ms(instance);
}

void heat_moved(struct instance *instance, enum decide_cause cause)
{
	struct cluster_held held;
	const struct cluster_device *hot = hottest(instance, &held);
	instance->heat.moved_ms = clock_ms(instance);
	snprintf(instance->heat.left_id, sizeof instance->heat.left_id, "%s",
		 cause == CAUSE_HEAT && hot ? cluster_device_id(hot) : "");
}

void heat_say(const struct instance *instance, char why[INSTANCE_REASON_BYTES])
{
	char name[GATHER_NAME_BYTES];
	const struct cluster_device *before = left(instance);
	if (before)
		snprintf(why, INSTANCE_REASON_BYTES,
			 "it has left %s, which got too hot for its work; it goes back once that one is cool again, if "
			 "it is faster there",
			 gather_name(instance->all, before, name));
}
