/* Evicts idle instances (evict.h chooses them), and handles those that were unloaded: they wait for the new instance,
 * are forgotten when it is ready, and come back if it cannot be loaded. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- they do ----

static struct instance *find(const struct instances *instances, const struct evict_candidate *candidate)
{
	struct instance *one = instances_listed(instances, candidate->instance_id);
	return one && one->epoch == candidate->epoch && one->used_ms == candidate->used_ms && evict_idle_ms(one) >= 0
		       ? one
		       : NULL;
}

// With how it is now: `device` is where it lay. One that is unloaded is paused from now on, in the same transaction.
static void keep_and_tell(struct instance *instance, const struct cluster_device *device, const char *why)
{
	struct buffer text;
	struct json *detail = json_new_object();
	const struct evict_candidate *candidate = instance->recovery.evicted.candidate;
	buffer_init(&text, LIMIT_AUDIT_DETAIL_BYTES);
	json_set_string(detail, "model", instance->model_name);
	json_set_string(detail, "to", instance->recovery.evicted.to->model_name);
	json_set_string(detail, "how", candidate->unloads ? "unloaded" : "spilled");
	json_set_integer(detail, "idle_s", candidate->idle_ms / 1000);
	json_print(detail, &text);
	const struct audit_tally entry = {.by = &audit_server,
					  .action = "instance.gave_way",
					  .target = instance->instance_id,
					  .node_id = cluster_device_node_id(device),
					  .device_id = cluster_device_id(device),
					  .detail = text.failed ? NULL : buffer_text(&text)};
	if (candidate->unloads)
		instance_change(instance, &(struct instance_change){.to = INSTANCE_PAUSED,
								    .reason = why,
								    .row = INSTANCE_ROW_WRITTEN,
								    .entry = &entry});
	else
		instance_keep(instance, &entry);
	buffer_finish(&text);
	json_destroy(&detail);
}

// It is in the list of that one. The first that was evicted is the first to come back.
static void line_up_behind(struct instance *instance, struct instance *to)
{
	struct instance **at = &to->displaced;
	while (*at)
		at = &(*at)->next;
	instance->next = NULL;
	*at = instance;
}

static void say_displaced(const struct instance *instance, char why[INSTANCE_REASON_BYTES])
{
	snprintf(why, INSTANCE_REASON_BYTES, "%.448s: it is loaded again if that one does not come up",
		 instance->recovery.gave_way);
}

void evict_act(struct instance *instance)
{
	char why[INSTANCE_REASON_BYTES], idle[EVICT_AGE_BYTES];
	struct error fault = {0};
	const struct evict_candidate *candidate = instance->recovery.evicted.candidate;
	struct instance *to = instance->recovery.evicted.to;
	const struct cluster_device *device = instance->stages[0].device;
	evict_age(candidate->idle_ms, idle);
	log_info("models", "instance %s of %s, idle for %s, is evicted for %s: it is %s", instance->instance_id,
		 instance->model_name, idle, to->model_name,
		 candidate->unloads ? "unloaded" : "spilled to the host's memory");
	instance_changes(instance);
	snprintf(instance->recovery.gave_way, sizeof instance->recovery.gave_way,
		 "idle for %s, it was evicted for %.100s", idle, to->model_name);
	if (candidate->unloads) {
		error_set(&fault, STATUS_UNAVAILABLE, "the model was unloaded: it was evicted for %.128s",
			  to->model_name);
		instance_displace(instance, &fault);
		snprintf(instance->gave_way_to, sizeof instance->gave_way_to, "%s", to->instance_id);
		instance->gave_way_ms = clock_wall_ms();
		line_up_behind(instance, to);
	} else {
		recover_spill(instance, candidate);
	}
	say_displaced(instance, why);
	keep_and_tell(instance, device, why);
	instance_publish(instance);
}

bool evict_any(const struct placing *placing)
{
	for (unsigned i = 0; i < placing->candidate_count; i++)
		if (placing->candidates[i].evicted)
			return true;
	return false;
}

bool evict_may_begin(const struct instances *all, const struct placing *placing)
{
	for (unsigned i = 0; i < placing->candidate_count; i++)
		if (placing->candidates[i].evicted && !find(all, &placing->candidates[i]))
			return false;
	return true;
}

void evict_begin(struct instance *to, const struct placing *placing)
{
	for (unsigned i = 0; i < placing->candidate_count; i++) {
		const struct evict_candidate *candidate = &placing->candidates[i];
		struct instance *one = candidate->evicted ? find(to->all, candidate) : NULL;
		if (!one)
			continue;
		one->recovery.evicted.candidate = candidate;
		one->recovery.evicted.to = to;
		recover_decide(one); // decides on the eviction, and on nothing else
		one->recovery.evicted.candidate = NULL;
	}
}

// ---- taking back ----

// The first of the instances that were unloaded for it; NULL: there are no more.
static struct instance *take_displaced(struct instance *instance)
{
	struct instance *one = instance->displaced;
	if (one)
		instance->displaced = one->next;
	return one;
}

void evict_settle(struct instance *instance)
{
	for (struct instance *one; (one = take_displaced(instance));) {
		instance_forget(one, NULL);
		instance_publish_removed(one);
		instance_free(one);
	}
}

struct instance *evict_take_out(struct instance *instance, const char *id)
{
	struct instance **at = &instance->displaced, *one;
	while ((one = *at) && strcmp(one->instance_id, id) != 0)
		at = &one->next;
	if (one)
		*at = one->next;
	return one;
}

// It is listed by itself once more, and waits for a place.
static void come_back(struct instance *instance)
{
	char why[INSTANCE_REASON_BYTES];
	struct instances *all = instance->all;
	struct instance **at = &all->first;
	while (*at)
		at = &(*at)->next;
	*at = instance;
	instance->next = NULL;
	all->count++;
	instance->gave_way_to[0] = 0;
	snprintf(why, sizeof why, "%.448s, which did not come up", instance->recovery.gave_way);
	log_info("models", "instance %s of %s is not loaded again yet: %s", instance->instance_id, instance->model_name,
		 why);
	recover_restored(instance, CAUSE_IN_VAIN, why);
	instance_publish(instance);
}

void evict_return(struct instance *instance)
{
	for (struct instance *one; (one = take_displaced(instance));) {
		if (instance->all->ending)
			instance_free(one); // the next server has its row, and the other one's if that is wanted still
		else
			come_back(one);
	}
}

struct instance *evict_stand_in(const struct instance *instance)
{
	struct instance *one = instance->all->first;
	while (one && (one == instance || strcmp(one->model_id, instance->model_id) != 0 ||
		       one->state == INSTANCE_FAILED || one->stands_in || one->created_ms < instance->gave_way_ms))
		one = one->next;
	return one;
}

// The other instance is not wanted any more, or came up (as one did that was evicted itself since), and its end or this
// one's was not stored: then it is one like any other.
void evict_restore(struct instances *instances)
{
	char why[INSTANCE_REASON_BYTES];
	for (struct instance **at = &instances->first, *one; (one = *at);) {
		struct instance *to = instances->first;
		while (to && (to == one || to->state == INSTANCE_FAILED || to->gave_way_to[0] ||
			      strcmp(to->instance_id, one->gave_way_to) != 0))
			to = to->next;
		if (!one->gave_way_to[0] || one->state == INSTANCE_FAILED || !to) {
			one->gave_way_to[0] = 0;
			at = &one->next;
			continue;
		}
		*at = one->next;
		instances->count--;
		say_displaced(one, why);
		instance_change(one, &(struct instance_change){.to = INSTANCE_PAUSED, .reason = why});
		line_up_behind(one, to);
	}
}
