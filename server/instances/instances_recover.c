/* Events of a running or paused instance, and their consequences.
 *
 *     what happened (recover_lost, recover_away, ..., a search is over, the timer) is noted as a fact, then
 *     recover_decide: see -> instance_decide -> act, again and again, until there is something to wait for: one timer
 *
 * There are no rules here: the table of decide.c says which action follows; instances_see.c has the facts, and
 * instances_act.c the actions.
 *
 *   running --- a connection is broken -> paused, connected anew and checked --------------------> running
 *       |                                   | that fails                                             ^
 *       +--- a part is lost, -----> paused, its worker ended -> searched for a place -> begun anew --+
 *       |    or is to be left             ^                        | none: once more, in a while     |
 *       |                                 +------------------------+                                 |
 *       +--- a node is cut off ---> paused, waits for it a little, then searches ... begun anew -----+
 *                                                   ... while it does, the node is back with its workers: connected
 *     the server is started --> paused, waits for the devices it lay on, then searches ... begun anew ---> running
 *                                  | ... its workers have outlived the server before: adopted, connected ----^
 *
 * Parts that are not lost stay where they are, if possible (instances_keep.c); otherwise all of it is loaded again, and
 * so is an instance without a place for longer than it waits for a node.
 *
 * Its requests stay, and continue after the last token that their client has (requests.c). They wait until it has been
 * paused for pause_ms without any progress in downloading or loading; then they end with an error that says to try
 * again, and the instance continues to search. Thread: the loop's. */
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACTIONS_MOST = 32 }; // of one instance in one turn: more would be two rules that undo each other

static int64_t now(const struct instance *instance)
{
	return instances_now(instance->all);
}

// ---- deciding ----

static void decide_again(void *arg)
{
	recover_decide(arg);
}

static bool is_over(enum decide_action action)
{
	return action == ACTION_FAIL || action == ACTION_REMOVE || action == ACTION_UNLOAD;
}

void recover_decide(struct instance *instance)
{
	struct snapshot snapshot = {0};
	struct decision decision = {.action = ACTION_DROP};
	struct recovery *recovery = &instance->recovery;
	struct net_loop *loop = instance->all->params.loop;
	net_timer_stop(loop, &recovery->again);
	for (int i = 0; i < ACTIONS_MOST && decision.action != ACTION_WAIT && !is_over(decision.action); i++) {
		instance_see(&snapshot, instance);
		instance_decide(&decision, &snapshot.wanted, &snapshot.seen, now(instance));
		const bool told = decision.tell && strcmp(instance->state_reason, decision.reason) != 0;
		if (told)
			recover_set_reason(instance, decision.reason);
		if (told && decision.action == ACTION_WAIT)
			instance_publish(instance);
		instance_act(instance, &decision);
	}
	if (is_over(decision.action)) // and it may be gone, or in no list
		return;
	if (decision.action != ACTION_WAIT)
		log_error("models", "instance %s of %s goes around in circles: %s: %s. Please report this",
			  instance->instance_id, instance->model_name, decision.rule, decision.reason);
	instance_pace(instance);
	const int64_t ms = decision.action == ACTION_WAIT ? decision.until_ms - now(instance) : DECIDE_LOOK_MS;
	net_timer_start(loop, &recovery->again, ms > 0 ? ms : 0, decide_again, instance);
}

void recover_soon(struct instance *instance)
{
	net_timer_start(instance->all->params.loop, &instance->recovery.again, 0, decide_again, instance);
}

// ---- what happens ----

// Whether its worker has died, and not its device or its node, which may be back already.
static bool died(const struct instance *instance, const struct error *fault, int part)
{
	const struct cluster_device *device;
	const struct instance_stage *stage = part < 0 ? NULL : parts_stage(instance->parts, (unsigned)part);
	return fault->status == STATUS_DEVICE_LOST && stage && parts_worker_died(instance->parts, (unsigned)part) &&
	       !tenant_find_device(instance->all->params.tenants, cluster_device_id(stage->device), &device, NULL);
}

void recover_lost(struct instance *instance, const struct error *fault, int part)
{
	struct recovery *recovery = &instance->recovery;
	int64_t *deaths = recovery->deaths_ms;
	recovery->news.kind = NEWS_LOST;
	recovery->news.fault = *fault;
	recovery->news.part = part;
	recovery->news.died = died(instance, fault, part);
	if (recovery->news.died) {
		memmove(deaths + 1, deaths, (LIMIT_DEATHS - 1) * sizeof *deaths);
		deaths[0] = now(instance);
	}
	recover_decide(instance);
}

void recover_away(struct instance *instance, unsigned part, const char *why)
{
	char name[GATHER_NAME_BYTES];
	struct recovery *recovery = &instance->recovery;
	gather_name(instance->all, parts_stage(instance->parts, part)->device, name);
	recovery->news.kind = NEWS_CUT_OFF;
	recovery->news.part = (int)part;
	recovery->news.died = false;
	recovery->news.fault = (struct error){0}; // error_set keeps the words of the one before
	error_set(&recovery->news.fault, STATUS_DEVICE_LOST, "%s is cut off: %.160s", name, why);
	recover_decide(instance);
}

void recover_back(struct instance *instance)
{
	recover_set_workers(instance, WORKERS_BACK);
	recover_decide(instance);
}

void recover_broken(struct instance *instance)
{
	recover_set_workers(instance, WORKERS_BROKEN);
	recover_decide(instance);
}

void recover_moved(struct instance *instance)
{
	struct recovery *recovery = &instance->recovery;
	if (instance->state == INSTANCE_PAUSED && recovery->requests_until_ms && !recovery->load_failed)
		recovery->requests_until_ms = now(instance) + instance->all->params.pause_ms;
}

void recover_wish(struct instance *instance)
{
	struct recovery *recovery = &instance->recovery;
	recover_drop_search(instance);
	recovery->search_ms = recovery->due_ms = now(instance); // devices of before a start are waited for no longer
	recover_decide(instance);
}

// ---- it runs, or is over ----

// Whole again, its eviction is over. If it should be, and is not, or only elsewhere since it failed on a device,
// the next attempt waits longer.
static void went_back(struct instance *instance)
{
	if (instance->step == STEP_NONE && !instance->recovery.failed_on[0])
		instance->recovery.gave_way[0] = 0;
	else if (instance->recovery.cause == CAUSE_RETURN)
		offer_wait(instance, "it was to go back, and could not be loaded so");
}

void recover_done(struct instance *instance)
{
	struct recovery *recovery = &instance->recovery;
	if (instance_is_anew(instance) && recovery->cause != CAUSE_IN_VAIN)
		*(recovery->cause >= CAUSE_MOVE ? &instance->moves : &instance->recoveries) += 1;
	log_info("models", "instance %s of %s continues after %lld ms", instance->instance_id, instance->model_name,
		 (long long)(now(instance) - recovery->paused_ms));
	recovery->requests_until_ms = 0;
	recovery->missing_count = recovery->attempts = 0;
	went_back(instance);
	if (recovery->gave_way[0])
		recover_say_gave_way(instance, instance->state_reason);
	else
		heat_say(instance, instance->state_reason);
}

// The instance for which it was unloaded could not be loaded: it is treated as just created.
static void goes_on_in_vain(struct instance *instance)
{
	const struct cluster_device *device = instance->stages[0].device;
	const struct audit_tally entry = {.by = &audit_server,
					  .action = "instance.create",
					  .target = instance->instance_id,
					  .node_id = cluster_device_node_id(device),
					  .device_id = cluster_device_id(device)};
	log_info("models", "instance %s of %s is loaded again: what it was unloaded for did not come up",
		 instance->instance_id, instance->model_name);
	instance_change(instance, &(struct instance_change){
					  .to = INSTANCE_RUNNING, .row = INSTANCE_ROW_WRITTEN, .entry = &entry});
}

void recover_goes_on(struct instance *instance)
{
	struct buffer detail, devices;
	if (instance->recovery.cause == CAUSE_IN_VAIN) {
		goes_on_in_vain(instance);
		return;
	}
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
	const struct audit_tally entry = {.by = &audit_server,
					  .action = instance->recovery.cause >= CAUSE_MOVE ? "instance.moved"
											   : "instance.placed_anew",
					  .target = instance->instance_id,
					  .node_id = cluster_device_node_id(instance->stages[0].device),
					  .device_id = cluster_device_id(instance->stages[0].device),
					  .duration_us = (now(instance) - instance->recovery.paused_ms) * 1000,
					  .detail = detail.failed ? NULL : buffer_text(&detail)};
	instance_change(instance, &(struct instance_change){
					  .to = INSTANCE_RUNNING, .row = INSTANCE_ROW_WRITTEN, .entry = &entry});
	buffer_finish(&detail);
	buffer_finish(&devices);
	json_destroy(&json);
}

void recover_watch(struct instance *instance)
{
	recover_drop_search(instance);
	recover_set_workers(instance, WORKERS_READY);
	instance->recovery.due_ms = now(instance) + DECIDE_LOOK_MS;
	recover_decide(instance);
}

void recover_stop(struct instance *instance)
{
	net_timer_stop(instance->all->params.loop, &instance->recovery.again);
	instance->recovery.requests_until_ms = 0;
	recover_drop_search(instance);
}
