/* Spares, from their start until they get a session. See tenants_inside.h, and spares.h for when there are any.
 *
 *   spare_start    worker.open without a stream: the sandbox is applied, before a driver is touched
 *   spare_opened   worker.warm: the device is opened; again every SPARE_LOOK_MS, which says whether it still answers
 *   spare_take     a session comes: the spare has that worker's id. worker.bind (tenants.c) gives it its limits and its
 *                  stream; now it is a session's worker like others
 *
 * It has no connection to anybody but this node until then. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "engine/node/workers/tenants_inside.h"

#include <stdio.h>
#include <string.h>

enum { SPARE_LOOK_MS = 10000 };

// The spare is no longer wanted; its place may get another later.
static void give_up(struct tenant *tenant, const char *why)
{
	log_info("node", "the spare worker of %s is given up: %s", tenant->place->device_id, why);
	tenant->place->worker = NULL;
	tenant->place = NULL;
	tenant->unwanted = true;
	process_kill(&tenant->process);
}

// The spare could not be opened, or its device could not.
static void failed(struct tenant *tenant, const struct error *error)
{
	char fault[sizeof(tenant->fault)];
	snprintf(fault, sizeof(fault), "it did not open its device (%.50s)", error->message);
	if (tenant->place && !tenant->rpc.closed)
		tenant_kill_for(tenant, fault);
}

static void warmed(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct ask *ask = context;
	struct tenant *tenant = ask->tenant;
	const struct json *limits = json_get(result, "limits");
	tenant->warming = false;
	if (status) {
		failed(tenant, error);
	} else if (tenant->place) { // it was not given up meanwhile
		if (!tenant->warm_ms)
			log_info("node", "a spare worker of %s is ready: it opened the device in %.0f ms",
				 tenant->place->device_id, tenant_elapsed_ms(ask->began_ns));
		tenant->warm_ms = clock_steady_ms();
		if (spares_is_short((uint64_t)json_get_integer(limits, "free_bytes", 0),
				    (uint64_t)json_get_integer(limits, "memory_bytes", 0))) {
			spares_postpone(tenant->place, tenant->warm_ms);
			give_up(tenant, "little memory of its device is left");
		}
	}
	tenant_answer(ask, NULL, NULL);
}

static void ask_warm(struct tenant *tenant, const struct device_record *record)
{
	struct error error = {0};
	struct json *params = json_new_object();
	json_set_string(params, "hardware_key", record->apis[tenant->backend].info.hardware_key);
	tenant->warming = !tenant_call(tenant,
				       &(struct tenant_ask){.method = "worker.warm",
							    .params = params,
							    .patience_ms = TENANT_DEVICE_MS,
							    .done = warmed,
							    .passed = -1},
				       &error);
}

void spare_look_at(struct tenant *tenant, int64_t now_ms)
{
	struct error error = {0};
	if (!tenant->place || tenant->process.killed)
		return;
	const struct device_record *record = device_table_find(tenant->all->params.table, tenant->place->device_id);
	if (tenant_check_device(record, tenant->backend, &error))
		give_up(tenant, error.message);
	else if (spares_is_idle(tenant->place, now_ms))
		give_up(tenant, "no session has come for it");
	else if (tenant->open && now_ms - tenant->warm_ms >= SPARE_LOOK_MS && !tenant->warming)
		ask_warm(tenant, record);
}

void spare_opened(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct ask *ask = context;
	struct tenant *tenant = ask->tenant;
	if (status) {
		failed(tenant, error);
	} else if (tenant->place) {
		tenant_tell_sandbox(tenant->all, result);
		tenant->open = true;
		tenant->opened = json_copy(result);
		spare_look_at(tenant, clock_steady_ms());
	}
	tenant_answer(ask, NULL, NULL);
}

static void note_use(struct tenants *tenants, const struct device_record *record, enum backend_kind backend,
		     double took_ms)
{
	spares_used(&tenants->spares, &(struct spare_use){.backend = backend,
							  .device_id = record->device_id,
							  .processor = record->apis[backend].info.kind == DEVICE_CPU,
							  .took_ms = took_ms,
							  .now_ms = clock_steady_ms()});
}

void tenants_verified(struct tenants *tenants, const struct device_record *record, enum backend_kind backend,
		      double took_ms)
{
	if (!spares_find(&tenants->spares, backend, record->device_id)) // no session has come for it
		note_use(tenants, record, backend, took_ms);
	tenants_look(tenants);
}

void spare_note_use(const struct tenant *tenant, double opened_ms)
{
	const struct device_record *record = device_table_find(tenant->all->params.table, tenant->device_id);
	if (record)
		note_use(tenant->all, record, tenant->backend,
			 tenant->start_ms < 0 ? -1 : tenant->start_ms + opened_ms);
}

void spare_start(struct tenants *all, int64_t now_ms)
{
	struct error error = {0};
	struct spare_place *place = spares_due(&all->spares, now_ms);
	if (!place)
		return;
	struct tenant *tenant = NULL;
	if (!tenant_check_device(device_table_find(all->params.table, place->device_id), place->backend, &error))
		tenant = tenant_add(all, "", place->backend);
	if (tenant) {
		tenant->spare = true;
		tenant->place = place;
		place->worker = tenant;
		if (!tenant_start(tenant, &(struct handed){-1, -1, -1, -1, -1}, &error) &&
		    !tenant_call_open(tenant, NULL, &error))
			return;
	}
	log_debug("node", "no spare worker of %s now: %s", place->device_id, error.message);
	spares_failed(place, now_ms);
	if (tenant)
		tenant_release(tenant, &error, &(int){0});
}

struct tenant *spare_take(struct tenants *tenants, const struct uplink_call *call)
{
	struct error error = {0};
	const char *device_id = json_get_string(call->params, "device_id", "");
	const enum backend_kind backend = backend_kind_parse(json_get_string(call->params, "backend", ""));
	struct spare_place *place = spares_find(&tenants->spares, backend, device_id);
	struct tenant *tenant = place ? place->worker : NULL;
	if (!tenant || !tenant->warm_ms || !tenant->socket || tenant->process.killed || tenant->warming ||
	    tenant_check_device(device_table_find(tenants->params.table, device_id), backend, &error))
		return NULL;
	place->worker = NULL;
	tenant->place = NULL;
	tenant->spare = tenant->open = false;
	tenant->start_ms = -1;
	snprintf(tenant->worker_id, sizeof(tenant->worker_id), "%s", json_get_string(call->params, "worker_id", ""));
	return tenant;
}
