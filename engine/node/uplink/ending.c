/* See ending.h. */
#include "engine/node/uplink/ending.h"

#include "common/base/clock.h"
#include "common/base/log.h"

enum { LOOK_MS = 100 };

static void look(void *arg)
{
	struct ending *ending = arg;
	const int64_t left_ms = ending->until_ms - clock_steady_ms();
	const bool used = ending->in_use(ending->arg);
	if (left_ms > 0 && (used || !ending->told(ending->arg))) {
		net_timer_start(ending->loop, &ending->timer, left_ms < LOOK_MS ? left_ms : LOOK_MS, look, ending);
		return;
	}
	if (used)
		log_warning("node", "the time is up: what models and sessions still have on this node ends with it");
	else
		log_info("node", "drained: nothing is left on this node");
	ending->done(ending->arg);
}

void ending_drain(struct ending *ending)
{
	if (ending->drains)
		return;
	const int64_t until_ms = clock_steady_ms() + ending->drain_ms;
	ending->drains = true;
	ending->until_ms = ending->ends_ms && ending->ends_ms < until_ms ? ending->ends_ms : until_ms;
	log_info("node", "draining for at most %lld ms: models move to other nodes",
		 (long long)(ending->until_ms - clock_steady_ms()));
	ending->changed(ending->arg);
	net_timer_start(ending->loop, &ending->timer, LOOK_MS, look, ending);
}

static void nearly_over(void *arg)
{
	log_info("node", "its time is nearly up");
	ending_drain(arg);
}

void ending_begin(struct ending *ending, int64_t for_ms)
{
	if (!for_ms)
		return;
	ending->ends_ms = clock_steady_ms() + for_ms;
	const int64_t before_ms = for_ms - ending->drain_ms;
	net_timer_start(ending->loop, &ending->timer, before_ms > 0 ? before_ms : 0, nearly_over, ending);
}

void ending_finish(struct ending *ending)
{
	if (ending->loop)
		net_timer_stop(ending->loop, &ending->timer);
}

struct json *ending_json(const struct ending *ending)
{
	if (!ending->drains && !ending->ends_ms)
		return NULL;
	struct json *json = json_new_object();
	const int64_t left_ms = (ending->drains ? ending->until_ms : ending->ends_ms) - clock_steady_ms();
	json_set_integer(json, "in_ms", left_ms > 0 ? left_ms : 0);
	json_set_bool(json, "drains", ending->drains);
	return json;
}
