/* A small simulated cluster for test_decide_simulation.c: devices, instances with the facts that `struct recovery` has,
 * a planner that is a stub, and a doer that is a model of instances_act.c: millions of decisions in seconds. The real
 * ones are in tests/server/instances/whole. */
#pragma once
#include "common/base/limits.h"
#include "server/instances/decide/decide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEVICES = 4,
	INSTANCES = 3,
	PARTS = 4,
	WHOLE_PARTS = 2, // of a placement with all layers on devices, in the eyes of decisions; more are less
	STUB_PARTS = 3,  // that the stub makes
	STUB_CAPACITY = 10,
	FAULTS_MS = 120000, // faults stop then
	QUIET_MS = 60000,   // and then all is well again by then
	LEASE_MS = 8000,    // after which the workers of a node that is cut off are lost
	PAUSE_MS = 60000,
	DRAIN_MS = 3000, // after which an instance has left a device that drains, if there is another place
	SEARCH_MS = 200,
	HEAT_PACE = 20,    // the clock of the readings, by which devices heat up, is so much faster here
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
	PLANTED_HEAT_FORGOTTEN,
	PLANTED_HOT_PLACE,
	PLANTED_LEAST_FORGOTTEN,
	PLANTED_BACK_HOT,
	PLANTED_COUNT
};

struct device {
	char name[16];
	bool online, draining;
	int64_t hot_ms;          // since when it is held back for its heat; 0: it is not
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
	bool devices_changed, room, room_untried, evicted;
	int64_t room_due_ms;
	struct {
		enum decide_search state;
		enum decide_purpose purpose;
		bool without_pins, avoided, feasible;
		int gives, gives_of; // units of a hot device that leave it, of so many; 0: all of them
		uint64_t epoch;
		struct place place;
		int64_t done_ms;
	} search;
	int64_t timer_ms, idle_since_ms, draining_since_ms;
	int64_t heat_moved_ms, heat_searched_ms; // 0: never
	int left;                                // the device that it left for its heat; -1: none
	int format, least, stepped_from;         // of formats[]: held, permitted for heat, before; -1: heat has not
	int64_t format_searched_ms;
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
	unsigned heat_moves[2]; // away from hot devices, and back
	unsigned heat_eased;    // of the moves away: those that left some layers
	unsigned heat_steps[2]; // to smaller formats, and back
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

// ---- memory ----

static int used_units(const struct world *world, int device, const struct instance *but)
{
	int units = 0;
	for (int i = 0; i < INSTANCES; i++)
		for (unsigned j = 0; j < world->instances[i].worker_count && &world->instances[i] != but; j++)
			if (world->instances[i].workers[j].device == device && world->instances[i].workers[j].alive)
				units += world->instances[i].workers[j].units;
	return units;
}

static int available(const struct world *world, int device, const struct instance *but)
{
	return STUB_CAPACITY - used_units(world, device, but);
}

// ---- the stub of the planner ----

// Whether the search that the instance makes leaves out what is held back for its heat.
static bool too_hot(const struct world *world, const struct instance *instance, int device)
{
	return (instance->search.purpose >= PURPOSE_COOLER || instance->search.purpose == PURPOSE_STEP_BACK) &&
	       world->devices[device].hot_ms && world->planted != PLANTED_HOT_PLACE;
}

// Whole devices first, so that little is left over in many places.
static bool stub_plan(const struct world *world, const struct instance *instance, bool pins, int avoid,
		      struct place *place)
{
	int left = instance->units;
	bool taken[DEVICES] = {false};
	*place = (struct place){0};
	while (left && place->count < STUB_PARTS) {
		int best = -1, most = 0;
		for (int i = 0; i < DEVICES; i++) {
			const int room = available(world, i, instance);
			if (taken[i] || !world->devices[i].online || world->devices[i].draining || i == avoid ||
			    too_hot(world, instance, i) || (pins && instance->pin >= 0 && instance->pin != i) ||
			    room <= most)
				continue;
			best = i;
			most = room;
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

static int hottest(const struct world *world, const struct instance *instance)
{
	for (unsigned i = 0; i < instance->worker_count; i++)
		if (world->devices[instance->workers[i].device].hot_ms)
			return instance->workers[i].device;
	return -1;
}

// Some of its units leave the hot device for one that is cool, and the rest stays where it is. False: none can.
static bool stub_ease(const struct world *world, struct instance *instance)
{
	const int hot = hottest(world, instance);
	int to = 0;
	struct place place = {.count = instance->worker_count};
	while (to < DEVICES &&
	       (!world->devices[to].online || world->devices[to].draining || world->devices[to].hot_ms ||
		used_units(world, to, NULL) > used_units(world, to, instance) || available(world, to, instance) < 1))
		to++;
	if (to == DEVICES || place.count >= STUB_PARTS)
		return false;
	for (unsigned i = 0; i < place.count; i++) {
		place.device[i] = instance->workers[i].device;
		place.units[i] = instance->workers[i].units;
		if (!world->devices[place.device[i]].online || world->devices[place.device[i]].draining)
			return false;
		if (place.device[i] != hot || place.units[i] < 2)
			continue;
		instance->search.gives = 1;
		instance->search.gives_of = place.units[i]--;
	}
	place.device[place.count] = to;
	place.units[place.count++] = 1;
	if (instance->search.gives)
		instance->search.place = place;
	return instance->search.gives > 0;
}

static bool stub_fits(const struct world *world, const struct instance *instance)
{
	struct place place;
	return stub_plan(world, instance, false, -1, &place);
}

// A place that was found has room, on devices that are there.
static void check_place(struct world *world, const struct instance *instance, const struct place *place)
{
	for (unsigned i = 0; i < place->count; i++) {
		const struct device *device = &world->devices[place->device[i]];
		int units = 0;
		for (unsigned j = 0; j < place->count; j++)
			units += place->device[j] == place->device[i] ? place->units[j] : 0;
		if (!device->online || device->draining || units > available(world, place->device[i], instance))
			broken(world, "a place that is found has room", instance, device->name);
		const int before = used_units(world, place->device[i], NULL) -
				   used_units(world, place->device[i], instance);
		const bool less = instance->search.gives &&
				  units <= before - (place->device[i] == hottest(world, instance));
		if (instance->search.purpose >= PURPOSE_COOLER && device->hot_ms && !less)
			broken(world, "a place that is found for heat is cool", instance, device->name);
	}
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

static void end_worker(struct instance *instance, int part)
{
	instance->workers[part].alive = false;
}

static void end_workers(struct world *world, struct instance *instance, bool lost_only)
{
	for (unsigned i = 0; i < instance->worker_count; i++)
		if (!lost_only || !world->devices[instance->workers[i].device].online)
			end_worker(instance, (int)i);
}

// All of them are asked for, and load.
static void begin_workers(struct world *world, struct instance *instance)
{
	set_workers(world, instance, WORKERS_BUSY);
	for (unsigned i = 0; i < instance->worker_count; i++) {
		instance->workers[i].alive = true;
		instance->workers[i].epoch = instance->epoch;
	}
	instance->busy_until_ms = world->now_ms + 100 + (int64_t)draw(world, 3000);
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
			available(world, place.device[i], instance) >= place.units[i];
	}
	end_workers(world, instance, false);
	if (!room) { // since it was searched for
		set_workers(world, instance, WORKERS_NONE);
		later(world, instance);
		return;
	}
	instance->worker_count = place.count;
	for (unsigned i = 0; i < place.count; i++)
		instance->workers[i] = (struct worker){.device = place.device[i], .units = place.units[i]};
	begin_workers(world, instance);
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

// Where it is, with more of its layers in the host's memory.
static void act_spill(struct world *world, struct instance *instance)
{
	instance->evicted = false;
	instance->wanted.whole = true;
	drop_search(instance);
	instance->epoch++;
	begin_workers(world, instance);
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
	instance->search.feasible = stub_plan(world, instance,
					      !decision->without_pins && decision->purpose != PURPOSE_LEAVE,
					      decision->avoids ? instance->failed_on : -1, &instance->search.place);
	instance->search.gives = 0;
	if (decision->purpose == PURPOSE_COOLER && instance->epoch % 4 && stub_ease(world, instance))
		instance->search.feasible = true;
	if (instance->search.feasible)
		check_place(world, instance, &instance->search.place);
	if (decision->purpose == PURPOSE_FASTER)
		instance->devices_changed = false;
	if (decision->purpose == PURPOSE_WHOLE)
		instance->room_untried = false;
	if (decision->purpose == PURPOSE_COOLER || decision->purpose == PURPOSE_COOLED)
		instance->heat_searched_ms = world->now_ms;
	if (decision->purpose == PURPOSE_STEP_DOWN || decision->purpose == PURPOSE_STEP_BACK)
		instance->format_searched_ms = world->now_ms;
}

static int64_t heat_span(const struct world *world, int64_t at_ms)
{
	return at_ms ? (world->now_ms - at_ms) * HEAT_PACE : -1;
}

static const char *const formats[] = {"F16", "Q8_0", "Q4_0"};

static void note_step(struct world *world, struct instance *instance, bool back)
{
	world->heat_steps[back]++;
	if (back) {
		instance->format = instance->stepped_from;
		instance->stepped_from = -1;
		if (hottest(world, instance) >= 0)
			broken(world, "a format comes back where it is cool", instance, instance->why);
		return;
	}
	if (instance->stepped_from < 0)
		instance->stepped_from = instance->format;
	if (++instance->format > instance->least)
		broken(world, "no format is smaller than the instance permits", instance, instance->why);
}

static void note_heat(struct world *world, struct instance *instance, enum decide_cause cause)
{
	if (cause < CAUSE_HEAT || cause > CAUSE_STEP_BACK)
		return;
	if (instance->heat_moved_ms && heat_span(world, instance->heat_moved_ms) < DECIDE_HEAT_APART_MS)
		broken(world, "two changes for heat are far apart", instance, instance->why);
	instance->heat_moved_ms = world->now_ms;
	if (cause == CAUSE_STEP_DOWN || cause == CAUSE_STEP_BACK) {
		note_step(world, instance, cause == CAUSE_STEP_BACK);
		return;
	}
	instance->left = cause == CAUSE_HEAT ? hottest(world, instance) : -1;
	world->heat_moves[cause == CAUSE_COOLED]++;
	world->heat_eased += cause == CAUSE_HEAT && instance->search.gives;
}

static void act_place(struct world *world, struct instance *instance, const struct decision *decision)
{
	if (instance->state == INSTANCE_RUNNING) {
		begin_pause(world, instance, decision->cause, decision->reason);
		if (decision->cause == CAUSE_DRAIN)
			instance->attempts = 1;
		if (decision->cause == CAUSE_FORMAT) { // somebody has decided
			instance->wanted.format = NULL;
			instance->format = 1;
			instance->stepped_from = -1;
		}
		instance->wanted.moves = false;
		note_heat(world, instance, decision->cause);
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
	case ACTION_UNLOAD: // it would be in no list: what comes of that begins with unload_in_vain()
	case ACTION_SPILL:
		begin_pause(world, instance, CAUSE_EVICTED, decision->reason);
		act_spill(world, instance);
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

static void see_heat(const struct world *world, const struct instance *instance, struct decide_seen *seen)
{
	const int hot = hottest(world, instance);
	seen->works = (world->now_ms / 1000 + (instance - world->instances)) % 3 != 0;
	seen->eased_ms = -1;
	if (hot >= 0) {
		seen->hot = seen->strained = world->devices[hot].name;
		seen->hot_ms = seen->strained_ms = heat_span(world, world->devices[hot].hot_ms);
	}
	for (int i = 0; i < INSTANCES && hot >= 0; i++)
		if (&world->instances[i] != instance && world->instances[i].left == hot)
			seen->eased_ms = heat_span(world, world->instances[i].heat_moved_ms);
	seen->relieved_ms = seen->eased_ms;
	if (instance->format < (world->planted == PLANTED_LEAST_FORGOTTEN ? 2 : instance->least))
		seen->smaller = formats[instance->format + 1];
	if (instance->stepped_from >= 0)
		seen->stepped_from = formats[instance->stepped_from];
	seen->held_format = formats[instance->format];
	seen->all_cool = hot < 0 || world->planted == PLANTED_BACK_HOT;
	seen->format_searched_ms = heat_span(world, instance->format_searched_ms);
	if (instance->left >= 0) {
		seen->left = world->devices[instance->left].name;
		seen->left_cool = !world->devices[instance->left].hot_ms && world->devices[instance->left].online;
	}
	seen->heat_moved_ms = heat_span(world, instance->heat_moved_ms);
	seen->heat_searched_ms = heat_span(world, instance->heat_searched_ms);
	seen->pays_there = instance->epoch % 2 == 0;
	seen->gives = (unsigned)instance->search.gives;
	seen->gives_of = (unsigned)instance->search.gives_of;
	seen->gives_from = hot >= 0 ? world->devices[hot].name : "";
	if (world->planted == PLANTED_HEAT_FORGOTTEN)
		seen->heat_moved_ms = -1;
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
		.whole_there = instance->search.place.count <= WHOLE_PARTS,
		.faster_there = instance->epoch % 3 == 0,
		.search_text = "the planner says so",
		.due_ms = instance->due_ms,
		.devices_changed = instance->devices_changed,
		.room = instance->room,
		.room_due_ms = instance->room_due_ms,
		.room_untried = instance->room_untried,
		.evicted_for = instance->evicted ? "another" : NULL};
	for (int i = 0; i < LIMIT_DEATHS; i++)
		seen->deaths += instance->deaths_ms[i] && world->now_ms - instance->deaths_ms[i] < LIMIT_DEATHS_MS;
	see_devices(world, instance, seen);
	see_heat(world, instance, seen);
}
