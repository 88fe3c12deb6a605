/* Looking after tenants: one timer asks each worker twice a second whether it still answers, and kills those with a
 * request that is overdue. See tenants_inside.h.
 *
 * The thread of a worker that answers does nothing that takes long, or says before how long it may take (worker.busy);
 * how long drivers take is bounded by the worker's own watch (engine/worker/calls.c). So one that is silent for
 * ANSWER_MS is hung, unless the system shows what keeps it from answering (vitals.h): then it has LATE_MS. Where this
 * process or the whole machine stood still, which shows as a look that comes late, everybody has that much longer. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/node/workers/tenants_inside.h"

#include <stdio.h>

enum {
	LOOK_MS = 500,
	ANSWER_MS = 1500,
	LATE_MS = 10000,
	BUSY_MS = 20000,      // at most, that a worker may say it is busy
	STOOD_STILL_MS = 250, // that a look is late when the machine was not just busy
};

// One that is kept: how long, and whether it can be connected again now.
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

static void kill_late(struct tenant *tenant, const struct request *request)
{
	char fault[sizeof(tenant->fault)];
	snprintf(fault, sizeof(fault), "the worker did not answer %s in %.1f s", tenant_method(request->kind),
		 tenant_elapsed_ms(request->began_ns) / 1000);
	tenant_kill_for(tenant, fault);
}

// One that was asked at the last look or before and has not answered. Looked at each time, so that when it is due, what
// it has done since the last time is known.
static void look_at_silent(struct tenant *tenant, struct request *ping, int64_t now_ms)
{
	struct vitals now;
	vitals_read(&now, tenant->process.pid);
	const char *excuse = vitals_excuse(&ping->seen, &now, now_ms - ping->seen_ms);
	ping->seen = now;
	ping->seen_ms = now_ms;
	if (ping->due_ms > now_ms)
		return;
	if (!excuse || ping->due_ms + LATE_MS - ANSWER_MS <= now_ms) {
		kill_late(tenant, ping);
		return;
	}
	if (!ping->excused)
		log_info("node", "worker %s has not answered for %.1f s: %s; it is not ended for that yet",
			 tenant->worker_id, tenant_elapsed_ms(ping->began_ns) / 1000, excuse);
	ping->excused = true;
}

static void look_at(struct tenant *tenant, int64_t stood_still_ms, int64_t now_ms)
{
	struct error error = {0};
	bool asked = false;
	tenant_take_answers(tenant); // it may have answered while this process was held up
	look_at_away(tenant, now_ms);
	spare_look_at(tenant, now_ms);
	for (struct request *request = tenant->requests; request && !tenant->process.killed; request = request->next) {
		request->due_ms += stood_still_ms;
		if (request->kind == REQUEST_PING)
			look_at_silent(tenant, request, now_ms);
		else if (request->kind != REQUEST_CLOSE && request->due_ms <= now_ms)
			kill_late(tenant, request);
		asked |= request->kind == REQUEST_PING;
	}
	if (asked || !tenant->open || tenant->process.killed)
		return;
	const int64_t patience_ms = tenant->busy_until_ms > now_ms ? tenant->busy_until_ms - now_ms : 0;
	struct request *ping = tenant_add_request(tenant, REQUEST_PING, patience_ms + ANSWER_MS, &error);
	if (ping)
		tenant_send(tenant, ping, json_new_object(), -1);
}

static void look_after(void *arg)
{
	struct tenants *all = arg;
	const int64_t now_ms = clock_steady_ms(), late_ms = now_ms - all->looked_ms - LOOK_MS;
	for (struct tenant *tenant = all->list; tenant; tenant = tenant->next)
		look_at(tenant, late_ms > STOOD_STILL_MS ? late_ms : 0, now_ms);
	if (all->connected)
		spare_start(all, now_ms);
	tenants_look(all);
}

void tenants_look(struct tenants *tenants)
{
	if (tenants->look.running || (!tenants->count && !spares_places(&tenants->spares)))
		return;
	tenants->looked_ms = clock_steady_ms();
	net_timer_start(tenants->params.loop, &tenants->look, LOOK_MS, look_after, tenants);
}

void tenant_busy(struct tenant *tenant, int64_t ms)
{
	const int64_t until_ms = clock_steady_ms() + (ms < BUSY_MS ? ms : BUSY_MS);
	tenant->busy_until_ms = until_ms;
	for (struct request *request = tenant->requests; request; request = request->next)
		if (request->kind == REQUEST_PING && request->due_ms < until_ms + ANSWER_MS)
			request->due_ms = until_ms + ANSWER_MS;
}
