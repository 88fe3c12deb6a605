/* A small cluster under random faults, on a virtual clock: instances that do whatever instance_decide says, with a stub
 * for the planner. Workers die, nodes are cut off for a while or for good, connections break, devices drain, loads
 * fail, the server restarts, the planner is late and answers by what there was. Then the faults stop.
 *
 * What must hold at any time is in the functions check_*; each is shown to find a fault that is planted. The doer here
 * is a model of instances_recover.c with the same facts. The seed of a failure is printed: give it as the argument. */
#include "server/instances/decide.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include "common/base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEVICES = 4,
	INSTANCES = 3,
	PARTS = 3,
	CAPACITY = 10, // of each device, in units of memory
	SEEDS = 300,
	PLANTED_SEEDS = 200,
	FAULTS_MS = 120000, // faults stop then
	QUIET_MS = 60000,   // and then all is well again by then
	LEASE_MS = 8000,    // after which the workers of a node that is cut off are lost
	PAUSE_MS = 60000,
	DRAIN_MS = 3000, // after which an instance has left a device that drains, if there is another place
	SEARCH_MS = 200,
	GOES_ON_MS = 10000 // of a pause without faults: a search, what loading takes here, and some more
};

enum planted {
	PLANTED_NOTHING,
	PLANTED_OLD_WORKERS_STAY,
	PLANTED_SLEEP,
	PLANTED_LIE,
	PLANTED_REQUESTS_FORGOTTEN,
	PLANTED_NO_SEARCH,
	PLANTED_FAILS_EARLY,
	PLANTED_NO_DRAIN,
	PLANTED_NO_MEND,
	PLANTED_COUNT
};

struct device {
	char name[16];
	bool online, draining;
	int64_t back_ms, cut_ms; // when it comes back; since when it is away
};

struct place {
	unsigned count;
	int device[PARTS], units[PARTS];
};

struct worker {
	int device, units;
	bool alive;
	uint64_t epoch;
};

struct instance {
	enum instance_state state;
	struct decide_wanted wanted;
	int units, pin; // pin: the only device that it is to be on; -1: any
	struct worker workers[PARTS];
	unsigned worker_count;
	uint64_t epoch, paused_epoch;
	enum decide_cause cause;
	char why[64];
	int64_t paused_ms, requests_until_ms, due_ms, search_began_ms, workers_ms, busy_until_ms, devices_back_ms,
		look_ms;
	int64_t requests_since_ms; // the check's own: of the oldest progress that counts
	bool requests_wait;
	unsigned attempts, missing[DEVICES], missing_count;
	enum decide_workers workers_are;
	enum decide_news news;
	int news_part;
	bool died, some_kept;
	int64_t deaths_ms[LIMIT_DEATHS];
	int failed_on; // -1: none
	bool devices_changed, room, room_untried;
	int64_t room_due_ms;
	struct {
		enum decide_search state;
		enum decide_purpose purpose;
		bool without_pins, avoided, feasible;
		uint64_t epoch;
		struct place place;
		int64_t done_ms;
	} search;
	int64_t timer_ms, idle_since_ms, draining_since_ms;
	const char *rule;
	struct decision decision;
};

struct world {
	uint64_t random;
	int64_t now_ms;
	bool faults;
	struct device devices[DEVICES];
	struct instance instances[INSTANCES];
	enum planted planted;
	const char *broken; // the invariant that does not hold; NULL: all do
	char detail[256];
	uint64_t steps;
};

static uint64_t draw(struct world *world, uint64_t below)
{
	world->random ^= world->random << 13;
	world->random ^= world->random >> 7;
	world->random ^= world->random << 17;
	return world->random % below;
}

static void broken(struct world *world, const char *invariant, const struct instance *instance, const char *detail)
{
	if (world->broken)
		return;
	world->broken = invariant;
	snprintf(world->detail, sizeof world->detail, "at %lld ms, instance %d, by the rule \"%s\": %.150s",
		 (long long)world->now_ms, instance ? (int)(instance - world->instances) : -1,
		 instance && instance->rule ? instance->rule : "", detail);
}

// ---- memory and the stub of the planner ----

static int used_units(const struct world *world, int device, const struct instance *but)
{
	int units = 0;
	for (int i = 0; i < INSTANCES; i++)
		for (unsigned j = 0; j < world->instances[i].worker_count && &world->instances[i] != but; j++)
			if (world->instances[i].workers[j].device == device && world->instances[i].workers[j].alive)
				units += world->instances[i].workers[j].units;
	return units;
}

// Whole devices first, so that little is left over in many places.
static bool plan(const struct world *world, const struct instance *instance, bool pins, int avoid, struct place *place)
{
	int left = instance->units;
	bool taken[DEVICES] = {false};
	*place = (struct place){0};
	while (left && place->count < PARTS) {
		int best = -1, most = 0;
		for (int i = 0; i < DEVICES; i++) {
			const int available = CAPACITY - used_units(world, i, instance);
			if (taken[i] || !world->devices[i].online || world->devices[i].draining || i == avoid ||
			    (pins && instance->pin >= 0 && instance->pin != i) || available <= most)
				continue;
			best = i;
			most = available;
		}
		if (best < 0)
			return false;
		taken[best] = true;
		place->device[place->count] = best;
		place->units[place->count] = left < most ? left : most;
		left -= place->units[place->count++];
	}
	return !left;
}

// ---- the doer ----

static void set_state(struct world *world, struct instance *instance, enum instance_state to)
{
	if (!instance_state_may(instance->state, to))
		broken(world, "only transitions of the table", instance, instance_state_name(to));
	instance->state = to;
}

static void set_workers(struct world *world, struct instance *instance, enum decide_workers workers)
{
	instance->workers_are = workers;
	instance->workers_ms = world->now_ms;
}

static void end_workers(struct world *world, struct instance *instance, bool lost_only)
{
	for (unsigned i = 0; i < instance->worker_count; i++)
		if (!lost_only || !world->devices[instance->workers[i].device].online)
			instance->workers[i].alive = false;
}

static void begin_pause(struct world *world, struct instance *instance, enum decide_cause cause, const char *why)
{
	if (instance->state != INSTANCE_PAUSED)
		set_state(world, instance, INSTANCE_PAUSED);
	snprintf(instance->why, sizeof instance->why, "%.60s", why);
	instance->cause = cause;
	instance->paused_ms = instance->due_ms = world->now_ms;
	instance->paused_epoch = instance->epoch;
	instance->requests_until_ms = world->now_ms + PAUSE_MS;
	instance->requests_wait = true;
	instance->requests_since_ms = world->now_ms;
	instance->attempts = 0;
	instance->search_began_ms = 0;
	instance->failed_on = -1;
	instance->some_kept = false;
}

static void later(struct world *world, struct instance *instance)
{
	instance->due_ms = decide_due_ms(instance->attempts++, world->now_ms);
}

static void drop_search(struct instance *instance)
{
	memset(&instance->search, 0, sizeof instance->search);
}

static bool keeps(const struct instance *instance, const struct place *place, unsigned part)
{
	for (unsigned i = 0; i < instance->worker_count; i++)
		if (instance->workers[i].alive && instance->workers[i].device == place->device[part] &&
		    instance->workers[i].units == place->units[part])
			return true;
	return false;
}

// All workers of before end or are kept, then the new ones begin, if there is room still.
static void begin_place(struct world *world, struct instance *instance)
{
	const struct place place = instance->search.place;
	bool room = true;
	drop_search(instance);
	instance->epoch++;
	instance->some_kept = false;
	for (unsigned i = 0; i < place.count; i++) {
		instance->some_kept |= keeps(instance, &place, i);
		room &= world->devices[place.device[i]].online &&
			CAPACITY - used_units(world, place.device[i], instance) >= place.units[i];
	}
	end_workers(world, instance, false);
	if (!room) { // since it was searched for
		set_workers(world, instance, WORKERS_NONE);
		later(world, instance);
		return;
	}
	instance->worker_count = place.count;
	for (unsigned i = 0; i < place.count; i++)
		instance->workers[i] = (struct worker){
			.device = place.device[i], .units = place.units[i], .alive = true, .epoch = instance->epoch};
	set_workers(world, instance, WORKERS_BUSY);
	instance->busy_until_ms = world->now_ms + 100 + (int64_t)draw(world, 3000);
}

static void act_lost(struct world *world, struct instance *instance, const struct decision *decision)
{
	const bool anew = instance->epoch != instance->paused_epoch;
	if (instance->news != NEWS_LOST) { // what was spared ends
		if (world->planted != PLANTED_OLD_WORKERS_STAY)
			end_workers(world, instance, false);
		set_workers(world, instance, WORKERS_NONE);
		return;
	}
	instance->failed_on = decision->avoids && instance->news_part >= 0
				      ? instance->workers[instance->news_part].device
				      : -1;
	if (decision->action == ACTION_SPARE && !anew && instance->worker_count > 1) {
		end_workers(world, instance, true);
		set_workers(world, instance, WORKERS_SPARED);
	} else {
		if (world->planted != PLANTED_OLD_WORKERS_STAY)
			end_workers(world, instance, false);
		set_workers(world, instance, WORKERS_NONE);
	}
	instance->some_kept = false;
	instance->news = NEWS_NONE;
	drop_search(instance);
	if (decision->counts)
		later(world, instance);
}

static void act_search(struct world *world, struct instance *instance, const struct decision *decision)
{
	const bool none = decision->purpose == PURPOSE_PLACE;
	if (none) {
		instance->search_began_ms = world->now_ms;
		if (!decision->avoids)
			instance->failed_on = -1;
	}
	if (!draw(world, 30)) { // the planner has too many of them
		if (none)
			later(world, instance);
		else
			instance->due_ms = world->now_ms + DECIDE_LOOK_MS;
		return;
	}
	instance->search.state = SEARCH_RUNS;
	instance->search.purpose = decision->purpose;
	instance->search.without_pins = decision->without_pins;
	instance->search.avoided = decision->avoids;
	instance->search.epoch = instance->epoch;
	instance->search.done_ms = world->now_ms + 1 + (int64_t)draw(world, SEARCH_MS);
	instance->search.feasible = plan(world, instance, !decision->without_pins && decision->purpose != PURPOSE_LEAVE,
					 decision->avoids ? instance->failed_on : -1, &instance->search.place);
	if (decision->purpose == PURPOSE_FASTER)
		instance->devices_changed = false;
	if (decision->purpose == PURPOSE_WHOLE)
		instance->room_untried = false;
}

static void act_place(struct world *world, struct instance *instance, const struct decision *decision)
{
	if (instance->state == INSTANCE_RUNNING) {
		begin_pause(world, instance, decision->cause, decision->reason);
		if (decision->cause == CAUSE_DRAIN)
			instance->attempts = 1;
		if (decision->cause == CAUSE_FORMAT)
			instance->wanted.format = NULL;
		instance->wanted.moves = false;
	}
	begin_place(world, instance);
}

static void act_stay(struct world *world, struct instance *instance)
{
	if (instance->search.purpose == PURPOSE_FORMAT)
		instance->wanted.format = NULL;
	if (instance->search.purpose == PURPOSE_FASTER)
		instance->wanted.moves = false;
	drop_search(instance);
	instance->due_ms = world->now_ms + DECIDE_LOOK_MS;
}

static void act(struct world *world, struct instance *instance, const struct decision *decision)
{
	switch (decision->action) {
	case ACTION_WAIT:
		break;
	case ACTION_FAIL:
		set_state(world, instance, INSTANCE_FAILED);
		end_workers(world, instance, false);
		set_workers(world, instance, WORKERS_NONE);
		drop_search(instance);
		break;
	case ACTION_REMOVE:
		broken(world, "no instance is removed", instance, decision->reason);
		break;
	case ACTION_END_REQUESTS:
		instance->requests_until_ms = 0;
		instance->requests_wait = false;
		break;
	case ACTION_PAUSE:
		if (instance->state != INSTANCE_PAUSED)
			begin_pause(world, instance, decision->cause, decision->reason);
		if (instance->news == NEWS_CUT_OFF) {
			instance->news = NEWS_NONE;
			instance->due_ms = world->now_ms;
			set_workers(world, instance, WORKERS_AWAY);
		}
		break;
	case ACTION_SPARE:
	case ACTION_RELEASE:
		act_lost(world, instance, decision);
		break;
	case ACTION_MEND:
		drop_search(instance);
		set_workers(world, instance, WORKERS_BUSY);
		instance->busy_until_ms = world->now_ms + 1 + (int64_t)draw(world, 500);
		break;
	case ACTION_SEARCH:
		act_search(world, instance, decision);
		break;
	case ACTION_PLACE:
		act_place(world, instance, decision);
		break;
	case ACTION_NO_PLACE:
		drop_search(instance);
		later(world, instance);
		break;
	case ACTION_DROP:
		drop_search(instance);
		break;
	case ACTION_STAY:
		act_stay(world, instance);
		break;
	case ACTION_STAY_LATER:
		drop_search(instance);
		instance->room_due_ms = world->now_ms + 2 * DECIDE_ROOM_MS;
		break;
	case ACTION_WHOLE:
		instance->wanted.whole = false;
		drop_search(instance);
		break;
	case ACTION_LOOK_ROOM:
		instance->room = draw(world, 2);
		instance->room_untried = true;
		instance->room_due_ms = world->now_ms + DECIDE_ROOM_MS;
		break;
	}
}

// ---- what is seen ----

static void see_devices(const struct world *world, struct instance *instance, struct decide_seen *seen)
{
	for (unsigned i = 0; i < instance->worker_count && instance->state == INSTANCE_RUNNING; i++)
		if (world->devices[instance->workers[i].device].draining)
			seen->draining = world->devices[instance->workers[i].device].name;
	for (unsigned i = 0; i < instance->missing_count && instance->state == INSTANCE_PAUSED; i++)
		if (!world->devices[instance->missing[i]].online)
			seen->coming = world->devices[instance->missing[i]].name;
	seen->several_missing = seen->several_nodes = instance->missing_count > 1;
	instance->devices_back_ms = seen->coming                ? 0
				    : instance->devices_back_ms ? instance->devices_back_ms
								: world->now_ms;
	seen->devices_back_ms = instance->devices_back_ms;
	if (world->planted == PLANTED_NO_DRAIN)
		seen->draining = NULL;
	if (world->planted == PLANTED_LIE && seen->coming)
		for (int i = 0; i < DEVICES; i++)
			seen->coming = world->devices[i].online ? world->devices[i].name : seen->coming;
}

static void see(const struct world *world, struct instance *instance, struct decide_seen *seen)
{
	*seen = (struct decide_seen){
		.instance_state = instance->state,
		.cause = instance->state == INSTANCE_PAUSED ? instance->cause : CAUSE_NONE,
		.why = instance->why,
		.paused_ms = instance->paused_ms,
		.attempts = instance->attempts,
		.placed_anew = instance->epoch != instance->paused_epoch,
		.searched = instance->search_began_ms != 0,
		.requests_until_ms = world->planted == PLANTED_REQUESTS_FORGOTTEN ? 0 : instance->requests_until_ms,
		.workers = instance->workers_are,
		.several = instance->worker_count > 1,
		.all_kept_failed = instance->epoch != instance->paused_epoch && instance->some_kept,
		.workers_ms = instance->workers_ms,
		.load_ms = 1500,
		.news = instance->news,
		.news_text = instance->news == NEWS_CUT_OFF ? "a device is cut off" : "a worker is lost",
		.news_of_part = instance->news_part >= 0,
		.part_has_no_worker = instance->news_part >= 0,
		.worker_died = instance->died,
		.deaths_most = world->planted == PLANTED_FAILS_EARLY ? 1 : LIMIT_DEATHS,
		.search = instance->search.state,
		.purpose = instance->search.purpose,
		.stale = instance->search.epoch != instance->epoch,
		.without_pins = instance->search.without_pins,
		.avoided = instance->search.avoided,
		.failed_there = instance->failed_on >= 0,
		.whole_there = instance->search.place.count < PARTS,
		.faster_there = instance->epoch % 3 == 0,
		.search_text = "the stub says so",
		.due_ms = instance->due_ms,
		.devices_changed = instance->devices_changed,
		.room = instance->room,
		.room_due_ms = instance->room_due_ms,
		.room_untried = instance->room_untried,
		.held_format = "F16"};
	for (int i = 0; i < LIMIT_DEATHS; i++)
		seen->deaths += instance->deaths_ms[i] && world->now_ms - instance->deaths_ms[i] < LIMIT_DEATHS_MS;
	see_devices(world, instance, seen);
}

// ---- what must hold ----

// No worker of a placement that is over, and no device with more on it than it has.
static void check_owners(struct world *world)
{
	for (int i = 0; i < DEVICES; i++)
		if (used_units(world, i, NULL) > CAPACITY)
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
	struct place place;
	const struct decision *decision = &instance->decision;
	const bool waits = instance->state == INSTANCE_PAUSED && instance->search.state == SEARCH_NONE &&
			   instance->workers_are != WORKERS_BUSY && plan(world, instance, false, -1, &place);
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
	struct place place;
	bool on = false;
	for (unsigned i = 0; i < instance->worker_count && instance->state == INSTANCE_RUNNING; i++)
		on |= world->devices[instance->workers[i].device].draining;
	if (!on || !plan(world, instance, false, -1, &place))
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
		struct place place;
		const struct instance *one = &world->instances[i];
		if (one->state == INSTANCE_PAUSED && world->now_ms - one->paused_ms > GOES_ON_MS &&
		    plan(world, one, false, -1, &place))
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
		instance->workers[part].alive = false;
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
			one->workers[part].alive = false;
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
		if (one->state == INSTANCE_RUNNING) { // else it knows where it was
			one->missing_count = one->worker_count;
			for (unsigned j = 0; j < one->worker_count; j++)
				one->missing[j] = (unsigned)one->workers[j].device;
		}
		drop_search(one);
		one->news = NEWS_NONE;
		if (!outlive)
			end_workers(world, one, false);
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
	begin_pause(world, one, CAUSE_IN_VAIN, "it gave way in vain");
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
	switch (draw(world, 9)) {
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
	case 6:
		wish(world, one);
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
					 .idle_since_ms = -1,
					 .draining_since_ms = -1,
					 .busy_until_ms = INT64_MAX,
					 .wanted = {.pause_ms = PAUSE_MS, .takes_faster = draw(world, 2)}};
		if (!i && one->units <= CAPACITY) {
			one->pin = 0;
			one->wanted.pinned = true;
		}
		plan(world, one, true, -1, &one->search.place);
		begin_place(world, one);
		set_workers(world, one, WORKERS_READY);
		decide(world, one);
	}
}

static void run(struct world *world, uint64_t seed, enum planted planted)
{
	int64_t fault_ms = 1500;
	begin(world, seed, planted);
	while (!world->broken && world->now_ms < FAULTS_MS + QUIET_MS) {
		if (world->faults && world->now_ms >= FAULTS_MS) {
			world->faults = false;
			for (int i = 0; i < DEVICES; i++) {
				world->devices[i].draining = false;
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

// ---- the tests ----

static uint64_t only_seed;

static void test_invariants(void **context)
{
	uint64_t steps = 0;
	unsigned failed = 0, running = 0;
	struct world world;
	(void)context;
	for (uint64_t seed = only_seed ? only_seed : 1; seed <= (only_seed ? only_seed : SEEDS); seed++) {
		run(&world, seed, PLANTED_NOTHING);
		steps += world.steps;
		if (world.broken)
			fail_msg("seed %llu: broken: %s: %s", (unsigned long long)seed, world.broken, world.detail);
		for (int i = 0; i < INSTANCES; i++) {
			failed += world.instances[i].state == INSTANCE_FAILED;
			running += world.instances[i].state == INSTANCE_RUNNING;
		}
	}
	print_message("%llu decisions; in the end %u instances run, %u have failed\n", (unsigned long long)steps,
		      running, failed);
	assert_true(running > failed);
}

static void test_planted(void **context)
{
	static const struct {
		enum planted fault;
		const char *found_by[2]; // any of these
	} all[] = {
		{PLANTED_OLD_WORKERS_STAY, {"no instance has two owners", NULL}},
		{PLANTED_SLEEP, {"no device is idle but by a rule that ends", NULL}},
		{PLANTED_LIE, {"every reason is true", NULL}},
		{PLANTED_REQUESTS_FORGOTTEN, {"requests are told in time", NULL}},
		{PLANTED_NO_SEARCH,
		 {"no device is idle but by a rule that ends", "each instance goes on once faults stop"}},
		{PLANTED_FAILS_EARLY, {"it fails only after dying often", NULL}},
		{PLANTED_NO_DRAIN, {"a device that drains is left", NULL}},
		{PLANTED_NO_MEND,
		 {"no device is idle but by a rule that ends", "each instance goes on once faults stop"}},
	};
	struct world world;
	(void)context;
	assert_int_equal(sizeof all / sizeof *all, PLANTED_COUNT - 1);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		bool found = false;
		for (uint64_t seed = 1; seed <= PLANTED_SEEDS && !found; seed++) {
			run(&world, seed, all[i].fault);
			found = world.broken && (!strcmp(world.broken, all[i].found_by[0]) ||
						 (all[i].found_by[1] && !strcmp(world.broken, all[i].found_by[1])));
		}
		if (!found)
			fail_msg("the fault planted as number %zu is not found by \"%s\"; the last said: %s", i + 1,
				 all[i].found_by[0], world.broken ? world.broken : "nothing");
	}
}

int main(int count, char **words)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_invariants), cmocka_unit_test(test_planted)};
	only_seed = count > 1 ? strtoull(words[1], NULL, 10) : 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
