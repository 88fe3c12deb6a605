/* Loads models on request.
 *
 * The first request to a model without an instance begins a demand: an audit entry, as for instance.create by this
 * token, then an instance with default settings, started like any other. Until it exists all requests to the model wait
 * in the demand's own queue, an instance that is in no list and never has a place; then they move to the queue of the
 * new one, where they wait until it is ready. A failure ends them with the reason. A model has one demand at a time. It
 * continues even if the requests are cancelled. If another instance of the model becomes ready first, they move to its
 * queue, and no further one is started. Thread: the loop's. */
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct demand {
	struct demand *next;
	struct audit_actor by;
	struct instance line;
};

static void take_out(struct demand *demand)
{
	struct demand **at = &demand->line.all->demands;
	while (*at && *at != demand)
		at = &(*at)->next;
	if (*at)
		*at = demand->next;
}

void demand_explain(struct error *told, const char *model_name, const struct error *error)
{
	error_set(told, STATUS_UNAVAILABLE, "the model %.100s could not be loaded: %.240s", model_name,
		  error->message[0] ? error->message : status_text(error->status));
	if (error->hint[0])
		error_hint(told, "%s", error->hint);
}

static void end_with(struct demand *demand, const struct error *error)
{
	struct error told = {0};
	demand_explain(&told, demand->line.model_name, error);
	take_out(demand);
	generations_fail(&demand->line, &told);
	free(demand);
}

// An instance of the model that is there, or is coming: somebody else began it.
static struct instance *other(const struct demand *demand)
{
	const struct instances *all = demand->line.all;
	struct instance *one = all->ending ? NULL : all->first;
	while (one &&
	       (strcmp(one->model_id, demand->line.model_id) != 0 ||
		(one->state != INSTANCE_STARTING && one->state != INSTANCE_LOADING && one->state != INSTANCE_RUNNING)))
		one = one->next;
	return one;
}

static const struct demand *find(const struct instances *all, const void *context)
{
	const struct demand *demand = all->demands;
	while (demand && demand != context)
		demand = demand->next;
	return demand;
}

bool demand_met(const struct instances *all, const void *context)
{
	const struct demand *demand = find(all, context);
	return demand && other(demand);
}

void demand_refused(const struct instances *all, const void *context, const struct placing *placing,
		    const struct error *error)
{
	struct error told = {0};
	const struct demand *demand = find(all, context);
	if (!demand)
		return;
	demand_explain(&told, demand->line.model_name, error);
	nowhere_keep(demand->line.all, placing, &told);
}

static void hand_over(struct demand *demand, struct instance *instance)
{
	take_out(demand);
	generations_move(&demand->line, instance);
	free(demand);
}

// There is no instance of its own.
static void fail(struct demand *demand, enum status status, const struct error *error)
{
	struct instance *there = other(demand);
	audit_tell(demand->line.all->params.audit, &(struct audit_tally){.by = &demand->by,
									 .action = "instance.create",
									 .target = demand->line.model_id,
									 .outcome = status});
	if (there)
		hand_over(demand, there);
	else
		end_with(demand, error);
}

static void started(void *context, enum status status, const struct instance *started, const struct error *error)
{
	struct demand *demand = context;
	if (status) {
		fail(demand, status, error);
		return;
	}
	struct instance *instance = demand->line.all->first;
	while (instance != started)
		instance = instance->next;
	if (instance->state == INSTANCE_FAILED && !instance->shown) { // sooner than it was stored
		struct error fault = {.status = STATUS_UNAVAILABLE};
		snprintf(fault.message, sizeof fault.message, "%.383s", instance->state_reason);
		end_with(demand, &fault);
		return;
	}
	hand_over(demand, instance);
}

// The entry is on disk: begin.
static void written(void *context, enum status status, const struct error *error)
{
	struct demand *demand = context;
	struct error fault = error ? *error : (struct error){0};
	struct json *params = json_new_object();
	json_set_string(params, "model_id", demand->line.model_id);
	json_set_string(params, "gives_way", evict_name(EVICT_UNLOAD)); // the next question loads it again
	if (!status)
		status = instances_refuse(demand->line.all, &fault);
	if (!status && other(demand))
		status = error_set(&fault, STATUS_CONFLICT, "another instance was started in the meantime");
	if (!status)
		status = instances_start(demand->line.all, params, started, demand, &fault);
	json_destroy(&params);
	if (status)
		fail(demand, status, &fault);
}

enum status demand_begin(struct instance **out, struct instances *all, const struct model_record *model,
			 const struct generation_params *params, struct error *error)
{
	char detail[64];
	struct demand *demand = calloc(1, sizeof *demand);
	*out = NULL;
	if (!demand)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*demand = (struct demand){.next = all->demands, .by = *params->by, .line = {.all = all}};
	snprintf(demand->line.model_id, sizeof demand->line.model_id, "%s", model->model_id);
	snprintf(demand->line.model_name, sizeof demand->line.model_name, "%s", model->name);
	snprintf(detail, sizeof detail, "{\"asked_by\":\"%.32s\"}", params->action);
	const struct audit_event event = {
		.by = &demand->by, .action = "instance.create", .target = demand->line.model_id, .detail = detail};
	enum status status = audit_write(all->params.audit, &event, written, demand, error);
	if (status) {
		free(demand);
		return status;
	}
	all->demands = demand;
	*out = &demand->line;
	return STATUS_OK;
}

struct instance *demand_find(const struct instances *all, const char *model_id)
{
	struct demand *demand = all->demands;
	while (demand && strcmp(demand->line.model_id, model_id) != 0)
		demand = demand->next;
	return demand ? &demand->line : NULL;
}

struct instance *demand_next(const struct instances *all, const struct instance *line)
{
	struct demand *demand = all->demands;
	while (line && &demand->line != line)
		demand = demand->next;
	if (line)
		demand = demand->next;
	return demand ? &demand->line : NULL;
}

void demands_shut_down(struct instances *all, const struct error *fault)
{
	for (struct demand *demand = all->demands; demand; demand = demand->next)
		generations_fail(&demand->line, fault);
}

void demands_destroy(struct instances *all)
{
	while (all->demands) {
		struct demand *demand = all->demands;
		all->demands = demand->next;
		free(demand);
	}
}
