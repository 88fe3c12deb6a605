/* Looking after tenants: one timer asks each worker twice a second whether it still answers, and kills those with a
 * request that is overdue. See tenants_inside.h.
 *
 * The thread of a worker that answers does nothing that takes long, or says before how long it may take (worker.busy);
 * how long drivers take is bounded by the worker's own watch (engine/worker/calls.c). So one that is silent for
 * VITALS_ANSWER_MS is hung, unless the system shows what keeps it from answering (vitals.h): then it has
 * VITALS_LATE_MS. Where this process or the whole machine stood still, which shows as a look that comes late, everybody
 * has that much longer. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/node/workers/tenants_inside.h"

#include <stdio.h>

// A kept worker: check for how long it is kept, and whether it can be connected again now.
static void look_at_away(struct tenant *tenant, int64_t now_ms)
{
	if (!tenant->away_ms || !tenant->relay)
		return;
	if (relay_is_open(tenant->relay))
		tenant->away_ms = 0;
	else if (now_ms - tenant->away_ms >= LIMIT_AWAY_MS)
		tenant_kill_for(tenant, "the worker was without the server for too long");
	else if (tenant->all->connected)
		relay_return(tenant->relay);
}

static void kill_late(struct tenant *tenant, const char *method, double waited_ms)
{
	char fault[sizeof(tenant->fault)];
	snprintf(fault, sizeof(fault), "the worker did not answer %s in %.1f s", method, waited_ms / 1000);
	tenant_kill_for(tenant, fault);
}

// A worker that was pinged at an earlier look and has not answered.
static void look_at_silent(struct tenant *tenant, int64_t now_ms)
{
	struct vitals now;
	const char *excuse;
	vitals_read(&now, tenant->process.pid);
	const enum silence_verdict verdict = silence_look(&tenant->ping, &now, now_ms, &excuse);
	const int64_t waited_ms = now_ms - tenant->ping.asked_ms;
	if (verdict == SILENCE_HANGS)
		kill_late(tenant, "worker.ping", (double)waited_ms);
	else if (verdict == SILENCE_EXCUSED)
		log_info("node", "worker %s has not answered for %.1f s: %s; it is not ended for that yet",
			 tenant->worker_id, (double)waited_ms / 1000, excuse);
}

static void pinged(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct ask *ask = context;
	(void)result;
	ask->tenant->ping.asked = false;
	ask->tenant->busy_until_ms = 0; // it answers in the order in which it says
	tenant_answer(ask, NULL, status ? error : NULL);
}

static void ping(struct tenant *tenant, int64_t now_ms)
{
	struct error error = {0};
	const int64_t busy_ms = tenant->busy_until_ms > now_ms ? tenant->busy_until_ms - now_ms : 0;
	silence_begin(&tenant->ping, clock_steady_ms(), busy_ms);
	const struct tenant_ask ask = {
		.method = "worker.ping", .params = json_new_object(), .done = pinged, .passed = -1};
	if (tenant_call(tenant, &ask, &error))
		tenant->ping.asked = false;
}

static void look_at(struct tenant *tenant, int64_t stood_still_ms, int64_t now_ms)
{
	int64_t waited_ms;
	tenant_take_answers(tenant); // it may have answered while this process was held up
	look_at_away(tenant, now_ms);
	spare_look_at(tenant, now_ms);
	rpc_postpone(&tenant->rpc, stood_still_ms);
	tenant->ping.due_ms += stood_still_ms;
	const char *late = tenant->process.killed ? NULL : rpc_late(&tenant->rpc, &waited_ms);
	if (late)
		kill_late(tenant, late, (double)waited_ms);
	else if (tenant->ping.asked && !tenant->process.killed)
		look_at_silent(tenant, now_ms);
	else if (tenant->open && !tenant->process.killed)
		ping(tenant, now_ms);
}

static void look_after(void *arg)
{
	struct tenants *all = arg;
	const int64_t now_ms = clock_steady_ms(), stood_still_ms = silence_stood_still(all->looked_ms, now_ms);
	for (struct tenant *tenant = all->list; tenant; tenant = tenant->next)
		look_at(tenant, stood_still_ms, now_ms);
	if (all->connected)
		spare_start(all, now_ms);
	tenants_look(all);
}

void tenants_look(struct tenants *tenants)
{
	if (tenants->look.running || (!tenants->count && !spares_places(&tenants->spares)))
		return;
	tenants->looked_ms = clock_steady_ms();
	net_timer_start(tenants->params.loop, &tenants->look, VITALS_LOOK_MS, look_after, tenants);
}

void tenant_busy(struct tenant *tenant, int64_t ms)
{
	const int64_t until_ms = clock_steady_ms() + (ms < VITALS_BUSY_MS ? ms : VITALS_BUSY_MS);
	tenant->busy_until_ms = until_ms;
	if (tenant->ping.due_ms < until_ms + VITALS_ANSWER_MS)
		tenant->ping.due_ms = until_ms + VITALS_ANSWER_MS;
}
