/* Faults that are planted, each in a function of the server that is replaced at link time, to see that the checks find
 * them. Without one everything is as it is. */
#pragma once
#include "server/cluster/heat.h"
#include "server/instances/parts/parts_inside.h"
#include "server/instances/requests/delivered.h"
#include "tests/server/instances/whole/clients.h"

void __real_delivered_resume(struct delivered *delivered, struct json *call);
void __wrap_delivered_resume(struct delivered *delivered, struct json *call);
bool __real_delivered_keep(struct delivered *delivered, const struct json *params);
bool __wrap_delivered_keep(struct delivered *delivered, const struct json *params);
bool __real_generations_notice(struct instance *instance, const char *method, const struct json *params);
bool __wrap_generations_notice(struct instance *instance, const char *method, const struct json *params);
struct instance_worker *__real_parts_generator(const struct parts *parts);
struct instance_worker *__wrap_parts_generator(const struct parts *parts);
enum status __real_instance_worker_call(struct instance_worker *worker, const char *method, struct json *params,
					cluster_answer *answer, void *context, struct error *error);
enum status __wrap_instance_worker_call(struct instance_worker *worker, const char *method, struct json *params,
					cluster_answer *answer, void *context, struct error *error);
enum status __real_cluster_ask(const struct cluster *cluster, const char *node_id, const char *method,
			       struct json *params, cluster_answer *answer, void *context);
enum status __wrap_cluster_ask(const struct cluster *cluster, const char *node_id, const char *method,
			       struct json *params, cluster_answer *answer, void *context);
enum status __real_tenancy_hold(struct tenancy *tenants, const struct cluster_device *device, int64_t change);
enum status __wrap_tenancy_hold(struct tenancy *tenants, const struct cluster_device *device, int64_t change);
void __real_instance_take_placement(struct instance *instance, const struct placing *placing);
void __wrap_instance_take_placement(struct instance *instance, const struct placing *placing);
void __real_recover_lost(struct instance *instance, const struct error *fault, int part);
void __wrap_recover_lost(struct instance *instance, const struct error *fault, int part);
void __real_models_release(struct models *models, const struct model_record *record);
void __wrap_models_release(struct models *models, const struct model_record *record);
void __real_audit_commit(struct audit *audit, struct store_batch **batch, const struct audit_tally *tally,
			 void (*done)(void *context, enum status status), void *context);
void __wrap_audit_commit(struct audit *audit, struct store_batch **batch, const struct audit_tally *tally,
			 void (*done)(void *context, enum status status), void *context);

void __real_instance_row_stale(struct instances *all, const char *instance_id);
void __wrap_instance_row_stale(struct instances *all, const char *instance_id);
void __real_instances_hop_ended(struct instances *instances, const char *node_id, const struct json *params);
void __wrap_instances_hop_ended(struct instances *instances, const char *node_id, const struct json *params);
int64_t __real_silence_limit_ms(enum parts_step step, const enum part_step *parts, unsigned count);
int64_t __wrap_silence_limit_ms(enum parts_step step, const enum part_step *parts, unsigned count);
bool __real_parts_worker_died(const struct parts *parts, unsigned part);
bool __wrap_parts_worker_died(const struct parts *parts, unsigned part);
void __real_question_decide(struct question_decision *out, const struct question_seen *seen, int64_t now_ms,
			    struct error *error);
void __wrap_question_decide(struct question_decision *out, const struct question_seen *seen, int64_t now_ms,
			    struct error *error);

bool __real_thermal_guard_update(struct thermal_guard *guard, const struct thermal_policy *policy,
				 const struct thermal_model *model, double limit, int64_t at_ms);
bool __wrap_thermal_guard_update(struct thermal_guard *guard, const struct thermal_policy *policy,
				 const struct thermal_model *model, double limit, int64_t at_ms);
int64_t __real_offer_room_due_ms(const struct instance *instance);
int64_t __wrap_offer_room_due_ms(const struct instance *instance);
void __real_instance_pace(struct instance *instance);
void __wrap_instance_pace(struct instance *instance);

// ---- requests ----

void __wrap_question_decide(struct question_decision *out, const struct question_seen *seen, int64_t now_ms,
			    struct error *error)
{
	struct question_instance instances[LIMIT_INSTANCES];
	struct question_seen as_seen = *seen;
	for (unsigned i = 0; i < seen->count; i++) {
		instances[i] = seen->instances[i];
		instances[i].stays |= world.planted == PLANTED_DRAIN_REFUSES;
	}
	as_seen.instances = instances;
	__real_question_decide(out, &as_seen, now_ms, error);
}

void __wrap_delivered_resume(struct delivered *delivered, struct json *call)
{
	if (world.planted != PLANTED_REPEATS)
		__real_delivered_resume(delivered, call);
}

bool __wrap_delivered_keep(struct delivered *delivered, const struct json *params)
{
	const bool kept = __real_delivered_keep(delivered, params);
	if (world.planted == PLANTED_WRONG_TOKENS && kept && delivered->count)
		delivered->tokens[delivered->count - 1]++;
	return kept;
}

bool __wrap_generations_notice(struct instance *instance, const char *method, const struct json *params)
{
	if (world.planted == PLANTED_FORGETS_END && !strcmp(method, "generate.end"))
		return true;
	return __real_generations_notice(instance, method, params);
}

struct instance_worker *__wrap_parts_generator(const struct parts *parts)
{
	if (world.planted == PLANTED_WRONG_PART && parts && parts->part[0].worker)
		return parts->part[0].worker;
	return __real_parts_generator(parts);
}

enum status __wrap_instance_worker_call(struct instance_worker *worker, const char *method, struct json *params,
					cluster_answer *answer, void *context, struct error *error)
{
	if (world.planted == PLANTED_WRONG_PARAMS && !strcmp(method, "generate.start"))
		json_remove(params, "request");
	return __real_instance_worker_call(worker, method, params, answer, context, error);
}

// ---- placements and workers ----

enum status __wrap_cluster_ask(const struct cluster *cluster, const char *node_id, const char *method,
			       struct json *params, cluster_answer *answer, void *context)
{
	if (world.planted != PLANTED_NO_CLOSE || strcmp(method, "tenant.close") != 0)
		return __real_cluster_ask(cluster, node_id, method, params, answer, context);
	json_destroy(&params);
	return STATUS_UNAVAILABLE;
}

enum status __wrap_tenancy_hold(struct tenancy *tenants, const struct cluster_device *device, int64_t change)
{
	return world.planted == PLANTED_OVERCOMMITS ? STATUS_OK : __real_tenancy_hold(tenants, device, change);
}

void __wrap_instance_take_placement(struct instance *instance, const struct placing *placing)
{
	__real_instance_take_placement(instance, placing);
	if (world.planted == PLANTED_EPOCHS_AGAIN && instance->epoch > 1)
		instance->epoch--;
	if (world.planted == PLANTED_LAYERS_TWICE && instance->stage_count > 1) {
		instance->stages[1].first_layer--;
		instance->stages[1].layer_count++;
	}
}

void __wrap_recover_lost(struct instance *instance, const struct error *fault, int part)
{
	if (world.planted != PLANTED_LOSS_FORGOTTEN || instance->state != INSTANCE_RUNNING)
		__real_recover_lost(instance, fault, part);
}

void __wrap_models_release(struct models *models, const struct model_record *record)
{
	if (world.planted != PLANTED_HELD)
		__real_models_release(models, record);
}

void __wrap_instances_hop_ended(struct instances *instances, const char *node_id, const struct json *params)
{
	if (world.planted != PLANTED_BREAK_MISSED)
		__real_instances_hop_ended(instances, node_id, params);
}

int64_t __wrap_silence_limit_ms(enum parts_step step, const enum part_step *parts, unsigned count)
{
	return __real_silence_limit_ms(step, parts, world.planted == PLANTED_FETCH_AWAITED ? 0 : count);
}

bool __wrap_parts_worker_died(const struct parts *parts, unsigned part)
{
	return world.planted == PLANTED_NODE_BLAMED || __real_parts_worker_died(parts, part);
}

// ---- heat ----

// What is held back is free again only once it is cool.
bool __wrap_thermal_guard_update(struct thermal_guard *guard, const struct thermal_policy *policy,
				 const struct thermal_model *model, double limit, int64_t at_ms)
{
	const enum thermal_step before = guard->step;
	const bool changed = __real_thermal_guard_update(guard, policy, model, limit, at_ms);
	if (world.planted == PLANTED_HEAT_FLAPS && before == THERMAL_PAUSED)
		guard->step = THERMAL_LIMITED;
	const bool eased = before == THERMAL_PAUSED ? guard->step != THERMAL_PAUSED : guard->step < before;
	world.heat_pauses += guard->step == THERMAL_PAUSED && before != THERMAL_PAUSED;
	if (eased && !isnan(limit) && !isnan(thermal_model_ambient(model)) &&
	    thermal_model_celsius(model) > limit - policy->margin - policy->resume)
		broken("a pause for heat ends when it is cool", "at %.1f °C of %.1f", thermal_model_celsius(model),
		       limit);
	return changed;
}

int64_t __wrap_offer_room_due_ms(const struct instance *instance)
{
	return __real_offer_room_due_ms(instance) + (world.planted == PLANTED_SPILL_STAYS ? 3600000 : 0);
}

void __wrap_instance_pace(struct instance *instance)
{
	if (world.planted != PLANTED_HEAT_UNTOLD)
		__real_instance_pace(instance);
}

// ---- decisions ----

static void spoil(struct decision *decision, const struct decide_seen *seen, int64_t now_ms)
{
	const bool paused = seen->instance_state == INSTANCE_PAUSED, waits = paused && decision->action == ACTION_WAIT;
	static char before[DECIDE_REASON_BYTES]; // of whatever instance
	if (decision->action == ACTION_PAUSE && seen->news == NEWS_CUT_OFF && world.planted == PLANTED_STALE) {
		char now[DECIDE_REASON_BYTES];
		memcpy(now, decision->reason, sizeof now);
		memcpy(decision->reason, before, sizeof before);
		memcpy(before, now, sizeof now);
	}
	if (world.planted == PLANTED_NO_SEARCH && decision->action == ACTION_SEARCH && paused) {
		decision->action = ACTION_WAIT;
		decision->until_ms = now_ms + 1000;
	}
	if (world.planted == PLANTED_CIRCLES && waits)
		decision->action = ACTION_DROP;
	if (world.planted == PLANTED_SLEEP && waits)
		decision->until_ms += 3600000;
	if (world.planted == PLANTED_LIE && waits)
		snprintf(decision->reason, sizeof decision->reason, "it waits for %s", world.devices[0].name);
	if (world.planted == PLANTED_FAILS_EARLY && seen->news == NEWS_LOST && seen->worker_died)
		decision->action = ACTION_FAIL;
}

// ---- the disk ----

void __wrap_instance_row_stale(struct instances *all, const char *instance_id)
{
	if (world.planted != PLANTED_ROW_LOST)
		__real_instance_row_stale(all, instance_id);
}

void __wrap_audit_commit(struct audit *audit, struct store_batch **batch, const struct audit_tally *tally,
			 void (*done)(void *context, enum status status), void *context)
{
	world.entry_ms = virtual.now_ms;
	if (world.planted == PLANTED_TWO_BATCHES) { // the row alone, then the entry
		store_commit(server.store, batch, NULL, NULL);
		store_batch_create(batch);
	}
	if (world.planted == PLANTED_TOLD_EARLY && done) {
		__real_audit_commit(audit, batch, tally, NULL, NULL);
		done(context, STATUS_OK);
		return;
	}
	__real_audit_commit(audit, batch, tally, done, context);
}
