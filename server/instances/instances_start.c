/* Creating instances: request, place, launch, store, and answer.
 *
 *     search_place -> placed_to_start: start_decide -> start_placed: prepare, evict, launch -> stored -> over
 *          ^               |
 *          +---------------+ search again, at once or later
 *
 * Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/instances/decide/start.h"
#include "server/instances/instances_inside.h"
#include "server/security/random_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct starting {
	struct starting *next, **link; // of instances->starting
	struct instances *instances;
	struct json *params;
	char instance_id[INSTANCE_ID_BYTES]; // once it is placed
	unsigned tries;                      // searches after which an instance to be evicted was in use again
	bool waits;                          // for readings that show the freed memory
	struct net_timer again;              // for an instance that waits for memory
	instances_started *done;
	void *context;
};

static void starting_destroy(struct starting *starting)
{
	*starting->link = starting->next;
	if (starting->next)
		starting->next->link = starting->link;
	net_timer_stop(starting->instances->params.loop, &starting->again);
	json_destroy(&starting->params);
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

// An instance that holds its model and nothing else, in no list yet: whatever can fail does before another one is
// evicted.
static enum status prepare(const struct starting *starting, const struct placing *placing, struct instance **out,
			   struct error *error)
{
	struct instances *instances = starting->instances;
	struct instance *instance = calloc(1, sizeof(*instance));
	if (!instance)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*instance = (struct instance){.all = instances,
				      .created_ms = clock_wall_ms(),
				      .state_ms = clock_wall_ms(),
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
	if (!status) {
		instance->model = placing->model;
		status = instance_hold_draft(instance, error);
	}
	if (status) {
		instance_discard(instance);
		return status;
	}
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

static void over(struct starting *starting, enum status status, struct instance *instance, const struct error *error)
{
	starting->done(starting->context, status, instance, error);
	starting_destroy(starting);
}

// It may have been deleted meanwhile.
static void stored(void *context, enum status status, const struct error *error)
{
	struct starting *starting = context;
	struct error fault = error ? *error : (struct error){0};
	struct instance *instance = instances_listed(starting->instances, starting->instance_id);
	if (status && instance)
		instance_remove(instance, &fault);
	else if (!status && !instance)
		status = error_set(&fault, STATUS_CONFLICT, "it was stopped before it was begun");
	over(starting, status, status ? NULL : instance, &fault);
}

static void see(struct start_seen *seen, const struct starting *starting, enum status search,
		const struct placing *placing)
{
	const struct instances *all = starting->instances;
	*seen = (struct start_seen){
		.search = search, .unneeded = demand_met(all, starting->context), .tries = starting->tries + 1};
	if (search)
		return;
	seen->fits = placing->placement.feasible;
	seen->whole = placing->placement.step == STEP_NONE;
	seen->lags = placing->lags;
	seen->evicts_used = !evict_may_begin(all, placing);
	for (const struct instance *one = all->first; one; one = one->next)
		seen->instances += one->state != INSTANCE_FAILED || strcmp(one->model_id, placing->model_id) != 0;
}

static enum status start_placed(struct starting *starting, const struct placing *placing, struct instance **out,
				struct error *error)
{
	struct instance *instance = NULL;
	enum status status = prepare(starting, placing, &instance, error);
	if (status)
		return status;
	instances_drop_failed(starting->instances, placing->model->model_id);
	evict_begin(instance, placing);
	status = launch(instance, error);
	if (status) {
		instance_discard(instance);
		return status;
	}
	if (evict_any(placing))
		snprintf(instance->state_reason, sizeof instance->state_reason, "%s", placing->placement.whys[0].text);
	instance_publish(instance);
	*out = instance;
	return STATUS_OK;
}

static void placed_to_start(void *context, enum status status, struct placing *placing, const struct error *error);

static enum status search_place(struct starting *starting, struct error *error)
{
	const struct placing_request request = {
		.kind = PLACING_WORK, .params = starting->params, .done = placed_to_start, .context = starting};
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

static void keep_started(struct starting *starting, struct instance *instance)
{
	struct error fault = {0};
	snprintf(starting->instance_id, sizeof starting->instance_id, "%s", instance->instance_id);
	const enum status status = instance_keep_new(instance, stored, starting);
	if (!status)
		return;
	error_set(&fault, status, "too many changes wait for the disk");
	instance_remove(instance, &fault);
	over(starting, status, NULL, &fault);
}

static enum status refuse_with(const struct start_decision *decision, struct error *error)
{
	if (decision->reason)
		error_set(error, decision->status, "%s", decision->reason);
	if (decision->hint)
		error_hint(error, "%s", decision->hint);
	return decision->status;
}

static void placed_to_start(void *context, enum status status, struct placing *placing, const struct error *error)
{
	struct starting *starting = context;
	struct error fault = error ? *error : (struct error){0};
	struct instance *instance = NULL;
	struct start_seen seen;
	struct start_decision decision;
	starting->waits = false;
	see(&seen, starting, status, placing);
	start_decide(&decision, &seen);
	if (decision.action == START_LATER) {
		starting->waits = true;
		net_timer_start(starting->instances->params.loop, &starting->again, START_AGAIN_MS, search_again,
				starting);
	} else if (decision.action == START_AGAIN) {
		starting->tries++;
		status = search_place(starting, &fault);
	} else if (decision.action == START_NOWHERE) {
		status = refuse(placing, &fault);
		demand_refused(starting->instances, starting->context, placing, &fault);
	} else if (decision.action == START_LAUNCH) {
		status = start_placed(starting, placing, &instance, &fault);
	} else {
		status = refuse_with(&decision, &fault);
	}
	free(placing);
	if (instance)
		keep_started(starting, instance);
	else if (status)
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
	if (status)
		starting_destroy(starting);
	return status;
}

enum status instances_start(struct instances *instances, const struct json *params, instances_started *done,
			    void *context, struct error *error)
{
	return start(instances, &(struct starting){.done = done, .context = context}, params, error);
}

// ---- the end of the server ----

void starts_shut_down(struct instances *all, const struct error *fault)
{
	for (struct starting *one = all->starting, *next; one; one = next) {
		next = one->next;
		if (one->waits)
			over(one, fault->status, NULL, fault);
	}
}

void starts_destroy(struct instances *all)
{
	while (all->starting)
		starting_destroy(all->starting);
}
