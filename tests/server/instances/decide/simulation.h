/* The small cluster of simulated.h under random faults, on a virtual clock: workers die, nodes are cut off for a while
 * or for good, connections break, devices drain, loads fail, the server restarts, the planner is late and answers by
 * what there was. Then the faults stop.
 *
 * What must hold at any time is in the functions check_*; run() stops at the first that does not. */
#pragma once
#include "tests/server/instances/decide/simulated.h"

// ---- what must hold ----

// No worker of a placement that is over, and no device with more on it than it has.
static void check_owners(struct world *world)
{
	for (int i = 0; i < DEVICES; i++)
		if (available(world, i, NULL) < 0)
			broken(world, "no memory has two owners", NULL, world->devices[i].name);
	for (int i = 0; i < INSTANCES; i++) {
		struct instance *one = &world->instances[i];
		for (unsigned j = 0; j < one->worker_count; j++) {
			if (!one->workers[j].alive)
				continue;
			if (one->workers[j].epoch != one->epoch || one->state == INSTANCE_FAILED ||
			    (one->state == INSTANCE_PAUSED && one->workers_are == WORKERS_NONE))
				broken(world, "no instance has two owners", one, "a worker of before is there");
		}
	}
}

static void check_requests(struct world *world)
{
	for (int i = 0; i < INSTANCES; i++) {
		const struct instance *one = &world->instances[i];
		if (one->state == INSTANCE_PAUSED && one->requests_wait &&
		    world->now_ms > one->requests_since_ms + PAUSE_MS)
			broken(world, "requests are told in time", one, "they wait still");
	}
}

static const struct device *named(const struct world *world, const char *reason)
{
	for (int i = 0; i < DEVICES; i++)
		if (strstr(reason, world->devices[i].name))
			return &world->devices[i];
	return NULL;
}

// By the world, and not by what the decision was told of it.
static void check_reason(struct world *world, const struct instance *instance, const struct decision *decision)
{
	const struct device *device = named(world, decision->reason);
	bool away = false;
	for (unsigned i = 0; i < instance->worker_count; i++)
		away |= !world->devices[instance->workers[i].device].online;
	if (device && strstr(decision->reason, "waits for") && device->online)
		broken(world, "every reason is true", instance, decision->reason);
	if (device && strstr(decision->reason, "too hot") && !device->hot_ms)
		broken(world, "every reason is true", instance, decision->reason);
	if (device && strstr(decision->reason, "draining") && !device->draining)
		broken(world, "every reason is true", instance, decision->reason);
	if (strstr(decision->reason, "cut off") && decision->action == ACTION_PAUSE && !away)
		broken(world, "every reason is true", instance, decision->reason);
	if (strstr(decision->reason, "it waits for a place") && instance->search.feasible)
		broken(world, "every reason is true", instance, decision->reason);
	if (decision->action != ACTION_FAIL)
		return;
	for (int i = 0; i < LIMIT_DEATHS; i++)
		if (!instance->deaths_ms[i] || world->now_ms - instance->deaths_ms[i] >= LIMIT_DEATHS_MS)
			broken(world, "it fails only after dying often", instance, decision->reason);
}

// How long a rule may keep an instance from a place that is there; -1: it may not.
static int64_t held_back_ms(const struct decision *decision)
{
	static const struct {
		const char *rule;
		int64_t ms;
	} rules[] = {
		{"workers are at work", DECIDE_WORK_MS},           {"workers are back", DECIDE_SETTLE_MS},
		{"devices of before may return", LIMIT_REJOIN_MS}, {"a node may be back", LIMIT_RETURN_MS},
		{"a place is searched for", DECIDE_WORK_MS},       {"a search is due later", DECIDE_AGAIN_MOST_MS}};
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (!strcmp(rules[i].rule, decision->rule))
			return rules[i].ms;
	return -1;
}

static void check_idle(struct world *world, struct instance *instance)
{
	const struct decision *decision = &instance->decision;
	const bool waits = instance->state == INSTANCE_PAUSED && instance->search.state == SEARCH_NONE &&
			   instance->workers_are != WORKERS_BUSY && stub_fits(world, instance);
	if (!waits) {
		instance->idle_since_ms = -1;
		return;
	}
	if (instance->idle_since_ms < 0)
		instance->idle_since_ms = world->now_ms;
	const int64_t most_ms = held_back_ms(decision);
	if (most_ms < 0 || decision->until_ms - world->now_ms > most_ms)
		broken(world, "no device is idle but by a rule that ends", instance, decision->reason);
	if (world->now_ms - instance->idle_since_ms > LIMIT_REJOIN_MS + LIMIT_RETURN_MS + DECIDE_AGAIN_MOST_MS)
		broken(world, "no device is idle for longer than the rules say", instance, decision->reason);
}

static void check_drain(struct world *world, struct instance *instance)
{
	bool on = false;
	for (unsigned i = 0; i < instance->worker_count && instance->state == INSTANCE_RUNNING; i++)
		on |= world->devices[instance->workers[i].device].draining;
	if (!on || !stub_fits(world, instance))
		instance->draining_since_ms = -1;
	else if (instance->draining_since_ms < 0)
		instance->draining_since_ms = world->now_ms;
	else if (world->now_ms - instance->draining_since_ms > DRAIN_MS)
		broken(world, "a device that drains is left", instance, instance->decision.reason);
}

// All is well again: each runs, has failed, has no place, or has just begun to move.
static void check_end(struct world *world)
{
	for (int i = 0; i < INSTANCES; i++) {
		const struct instance *one = &world->instances[i];
		if (one->state == INSTANCE_PAUSED && world->now_ms - one->paused_ms > GOES_ON_MS &&
		    stub_fits(world, one))
			broken(world, "each instance goes on once faults stop", one, one->decision.reason);
	}
}

// ---- deciding ----

static void spoil(const struct world *world, const struct decide_seen *seen, struct decision *decision)
{
	if (world->planted == PLANTED_SLEEP && !strcmp(decision->rule, "a search is due later"))
		decision->until_ms += 3600000;
	if ((world->planted == PLANTED_NO_SEARCH && decision->action == ACTION_SEARCH &&
	     seen->instance_state == INSTANCE_PAUSED) ||
	    (world->planted == PLANTED_NO_MEND && decision->action == ACTION_MEND)) {
		decision->action = ACTION_WAIT;
		decision->until_ms = world->now_ms + 1000;
	}
}

static void decide(struct world *world, struct instance *instance)
{
	struct decide_seen seen;
	struct decision *decision = &instance->decision;
	int actions = 0;
	if (instance->state != INSTANCE_RUNNING && instance->state != INSTANCE_PAUSED)
		return;
	do {
		see(world, instance, &seen);
		instance_decide(decision, &instance->wanted, &seen, world->now_ms);
		spoil(world, &seen, decision);
		instance->rule = decision->rule;
		check_reason(world, instance, decision);
		act(world, instance, decision);
		world->steps++;
		if (++actions > 32)
			broken(world, "decisions come to an end", instance, decision->reason);
	} while (decision->action != ACTION_WAIT && decision->action != ACTION_FAIL && !world->broken);
	instance->timer_ms = decision->until_ms;
}

// ---- what happens ----

static void lose(struct world *world, struct instance *instance, int part, bool died)
{
	instance->news = NEWS_LOST;
	instance->news_part = part;
	instance->died = died;
	if (part >= 0)
		end_worker(instance, part);
	if (died) {
		memmove(instance->deaths_ms + 1, instance->deaths_ms, (LIMIT_DEATHS - 1) * sizeof(int64_t));
		instance->deaths_ms[0] = world->now_ms;
	}
	decide(world, instance);
}

static bool works(const struct instance *instance)
{
	return (instance->state == INSTANCE_RUNNING || instance->state == INSTANCE_PAUSED) && instance->worker_count &&
	       instance->workers_are != WORKERS_NONE && instance->workers_are != WORKERS_SPARED;
}

static int part_on(const struct instance *instance, int device)
{
	for (unsigned i = 0; i < instance->worker_count; i++)
		if (instance->workers[i].device == device && instance->workers[i].alive)
			return (int)i;
	return -1;
}

static void cut_off(struct world *world, int device, int64_t ms)
{
	world->devices[device].online = false;
	world->devices[device].cut_ms = world->now_ms;
	world->devices[device].back_ms = world->now_ms + ms;
	for (int i = 0; i < INSTANCES; i++) {
		struct instance *one = &world->instances[i];
		const int part = part_on(one, device);
		if (part < 0)
			continue;
		if (one->workers_are == WORKERS_SPARED) { // nobody waits for such a one
			end_worker(one, part);
		} else if (works(one) && one->workers_are == WORKERS_BUSY && one->epoch != one->paused_epoch) {
			lose(world, one, part, false);
		} else if (works(one)) {
			one->news = NEWS_CUT_OFF;
			one->news_part = part;
			decide(world, one);
		}
	}
}

static void come_back(struct world *world, int device)
{
	const bool late = world->now_ms - world->devices[device].cut_ms > LEASE_MS;
	world->devices[device].online = true;
	world->devices[device].back_ms = INT64_MAX;
	for (int i = 0; i < INSTANCES; i++) {
		struct instance *one = &world->instances[i];
		const int part = part_on(one, device);
		one->devices_changed = true;
		if (part < 0 || one->workers_are != WORKERS_AWAY)
			continue;
		bool all = true;
		for (unsigned j = 0; j < one->worker_count; j++)
			all &= world->devices[one->workers[j].device].online && one->workers[j].alive;
		if (late) {
			lose(world, one, part, false);
		} else if (all) {
			set_workers(world, one, WORKERS_BACK);
			decide(world, one);
		}
	}
}

static void restart(struct world *world)
{
	for (int i = 0; i < INSTANCES; i++) {
		struct instance *one = &world->instances[i];
		const bool outlive = one->state == INSTANCE_RUNNING && draw(world, 2);
		if (one->state == INSTANCE_FAILED)
			continue;
		if (one->state == INSTANCE_RUNNING) {
			one->missing_count = one->worker_count;
			for (unsigned j = 0; j < one->worker_count; j++)
				one->missing[j] = (unsigned)one->workers[j].device;
		}
		drop_search(one);
		one->news = NEWS_NONE;
		for (unsigned j = 0; j < one->worker_count && !outlive; j++)
			one->workers[j].alive = false;
		for (unsigned j = 0; j < one->worker_count; j++)
			one->workers[j].epoch = one->epoch;
		begin_pause(world, one, CAUSE_RESTART, "the server was restarted");
		set_workers(world, one, outlive ? WORKERS_AWAY : WORKERS_NONE);
	}
	for (int i = 0; i < DEVICES; i++) {
		world->devices[i].online = false;
		world->devices[i].cut_ms = world->now_ms;
		world->devices[i].back_ms = world->now_ms + 1 + (int64_t)draw(world, draw(world, 2) ? 3000 : 40000);
	}
	for (int i = 0; i < INSTANCES; i++)
		decide(world, &world->instances[i]);
}

// It was unloaded for another, which did not come up.
static void unload_in_vain(struct world *world, struct instance *one)
{
	one->missing_count = one->worker_count;
	for (unsigned j = 0; j < one->worker_count; j++)
		one->missing[j] = (unsigned)one->workers[j].device;
	drop_search(one);
	end_workers(world, one, false);
	begin_pause(world, one, CAUSE_IN_VAIN, "it was evicted in vain");
	set_workers(world, one, WORKERS_NONE);
	decide(world, one);
}

static void wish(struct world *world, struct instance *one)
{
	one->wanted.moves |= !one->wanted.pinned && draw(world, 2);
	one->wanted.whole |= draw(world, 2);
	if (draw(world, 2))
		one->wanted.format = "Q8_0";
}

static void fault(struct world *world)
{
	struct instance *one = &world->instances[draw(world, INSTANCES)];
	const int device = (int)draw(world, DEVICES);
	switch (draw(world, 11)) {
	case 0:
	case 1:
		if (works(one) && one->workers_are != WORKERS_AWAY && one->news == NEWS_NONE)
			lose(world, one, (int)draw(world, one->worker_count), draw(world, 4) == 0);
		break;
	case 2:
	case 3:
		if (world->devices[device].online)
			cut_off(world, device, 1 + (int64_t)draw(world, draw(world, 2) ? 2500 : 20000));
		break;
	case 4:
		if (one->state == INSTANCE_RUNNING && one->worker_count > 1) {
			set_workers(world, one, WORKERS_BROKEN);
			decide(world, one);
		}
		break;
	case 5:
		world->devices[device].draining = !world->devices[device].draining;
		break;
	case 10:
		world->devices[device].hot_ms = world->devices[device].hot_ms ? 0 : world->now_ms;
		break;
	case 6:
		wish(world, one);
		break;
	case 9:
		one->evicted = one->state == INSTANCE_RUNNING;
		if (one->evicted)
			decide(world, one);
		break;
	case 8:
		if (one->state == INSTANCE_RUNNING)
			unload_in_vain(world, one);
		break;
	case 7:
		if (!draw(world, 6))
			restart(world);
		break;
	}
}

// Its workers have loaded, or have not.
static void work_ends(struct world *world, struct instance *instance)
{
	instance->busy_until_ms = INT64_MAX;
	if (world->faults && !draw(world, 6)) {
		lose(world, instance, (int)draw(world, instance->worker_count), false);
		return;
	}
	if (instance->cause == CAUSE_RETURN)
		instance->wanted.whole = false;
	set_state(world, instance, INSTANCE_RUNNING);
	set_workers(world, instance, WORKERS_READY);
	instance->requests_until_ms = 0;
	instance->requests_wait = false;
	instance->attempts = 0;
	drop_search(instance);
	instance->due_ms = world->now_ms + DECIDE_LOOK_MS;
	decide(world, instance);
}

static void lose_lease(struct world *world, int device)
{
	for (int i = 0; i < INSTANCES; i++) {
		struct instance *one = &world->instances[i];
		const int part = part_on(one, device);
		if (part >= 0 && one->workers_are == WORKERS_AWAY)
			lose(world, one, part, false);
	}
}

static int64_t next_of(const struct world *world, int64_t fault_ms)
{
	int64_t next = world->faults ? fault_ms : INT64_MAX;
	for (int i = 0; i < DEVICES; i++) {
		const struct device *one = &world->devices[i];
		if (!one->online && one->back_ms < next)
			next = one->back_ms;
		if (!one->online && one->cut_ms + LEASE_MS > world->now_ms && one->cut_ms + LEASE_MS < next)
			next = one->cut_ms + LEASE_MS;
	}
	for (int i = 0; i < INSTANCES; i++) {
		const struct instance *one = &world->instances[i];
		if (one->state == INSTANCE_FAILED)
			continue;
		next = one->timer_ms < next ? one->timer_ms : next;
		if (one->search.state == SEARCH_RUNS && one->search.done_ms < next)
			next = one->search.done_ms;
		if (one->workers_are == WORKERS_BUSY && one->busy_until_ms < next)
			next = one->busy_until_ms;
	}
	return next > world->now_ms ? next : world->now_ms;
}

static void happen(struct world *world)
{
	for (int i = 0; i < DEVICES; i++) {
		const struct device *one = &world->devices[i];
		if (!one->online && world->now_ms >= one->back_ms)
			come_back(world, i);
		else if (!one->online && world->now_ms == one->cut_ms + LEASE_MS)
			lose_lease(world, i);
	}
	for (int i = 0; i < INSTANCES; i++) {
		struct instance *one = &world->instances[i];
		if (one->workers_are == WORKERS_BUSY && world->now_ms >= one->busy_until_ms)
			work_ends(world, one);
		if (one->search.state == SEARCH_RUNS && world->now_ms >= one->search.done_ms) {
			one->search.state = one->search.feasible ? SEARCH_FOUND : SEARCH_NOWHERE;
			decide(world, one);
		}
		if (world->now_ms >= one->timer_ms)
			decide(world, one);
	}
}

static void begin(struct world *world, uint64_t seed, enum planted planted)
{
	memset(world, 0, sizeof *world);
	world->random = seed * 0x9e3779b97f4a7c15u + 1;
	world->now_ms = 1000;
	world->planted = planted;
	world->faults = true;
	for (int i = 0; i < DEVICES; i++) {
		snprintf(world->devices[i].name, sizeof world->devices[i].name, "GPU %d", i);
		world->devices[i].online = true;
		world->devices[i].back_ms = INT64_MAX;
		world->devices[i].cut_ms = -LEASE_MS;
	}
	for (int i = 0; i < INSTANCES; i++) {
		struct instance *one = &world->instances[i];
		*one = (struct instance){.state = INSTANCE_RUNNING,
					 .units = 4 + (int)draw(world, 9),
					 .pin = -1,
					 .failed_on = -1,
					 .left = -1,
					 .least = (int)draw(world, 3),
					 .stepped_from = -1,
					 .idle_since_ms = -1,
					 .draining_since_ms = -1,
					 .busy_until_ms = INT64_MAX,
					 .wanted = {.pause_ms = PAUSE_MS, .takes_faster = draw(world, 2)}};
		if (!i && one->units <= STUB_CAPACITY) {
			one->pin = 0;
			one->wanted.pinned = true;
		}
		stub_plan(world, one, true, -1, &one->search.place);
		begin_place(world, one);
		set_workers(world, one, WORKERS_READY);
		one->busy_until_ms = INT64_MAX;
	}
	for (int i = 0; i < INSTANCES; i++)
		decide(world, &world->instances[i]);
}

// A whole life of the cluster: `world` says what came of it.
static void run(struct world *world, uint64_t seed, enum planted planted)
{
	int64_t fault_ms = 1500;
	begin(world, seed, planted);
	while (!world->broken && world->now_ms < FAULTS_MS + QUIET_MS) {
		if (world->faults && world->now_ms >= FAULTS_MS) {
			world->faults = false;
			for (int i = 0; i < DEVICES; i++) {
				world->devices[i].draining = false;
				world->devices[i].hot_ms = 0;
				if (!world->devices[i].online)
					world->devices[i].back_ms = world->now_ms;
			}
		}
		world->now_ms = next_of(world, fault_ms);
		if (world->faults && world->now_ms >= fault_ms) {
			fault(world);
			fault_ms = world->now_ms + 1 + (int64_t)draw(world, 3000);
		}
		happen(world);
		check_owners(world);
		check_requests(world);
		for (int i = 0; i < INSTANCES; i++) {
			check_idle(world, &world->instances[i]);
			check_drain(world, &world->instances[i]);
		}
	}
	if (!world->broken)
		check_end(world);
}
