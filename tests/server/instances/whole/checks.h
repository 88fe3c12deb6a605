/* What must hold at any time. Decisions are seen on their way from instance_decide to the doer; they are the real ones,
 * but for planted faults. */
#pragma once
#include "server/instances/decide/silence.h"
#include "tests/server/instances/whole/planted.h"

enum {
	BEHIND_MS = 15000,  // that a worker may live which the server does not know, on a node that it reaches
	PAUSED_MS = 100000, // after which an instance goes on, once faults have stopped, if one device has room
	PACE_MS = 5000,     // that a worker works for another share of the time than it should
	OPEN_MS = 5000,     // that a node's word of a broken hop takes, at most
	REFUSED_MS = 60000, // that what a device refused is believed
	IDLE_MS = LIMIT_REJOIN_MS + LIMIT_RETURN_MS + DECIDE_AGAIN_MOST_MS + 5000,
	REQUEST_MS = LIMIT_PAUSE_MS + 40000 // without a token or an end, once faults have stopped
};

void __real_instance_see(struct snapshot *snapshot, struct instance *instance);
void __wrap_instance_see(struct snapshot *snapshot, struct instance *instance);
void __real_instance_decide(struct decision *out, const struct decide_wanted *wanted, const struct decide_seen *seen,
			    int64_t now_ms);
void __wrap_instance_decide(struct decision *out, const struct decide_wanted *wanted, const struct decide_seen *seen,
			    int64_t now_ms);

// ---- decisions ----

void __wrap_instance_see(struct snapshot *snapshot, struct instance *instance)
{
	world.deciding = instance;
	__real_instance_see(snapshot, instance);
}

// The first device that a reason names; NULL: none.
static const struct sim_device *named_device(const char *reason)
{
	const struct sim_device *first = NULL;
	const char *first_at = NULL;
	for (unsigned i = 0; i < ALL_DEVICES; i++) {
		const char *at = strstr(reason, world.devices[i].name);
		if (!at || (first && at > first_at))
			continue;
		first = &world.devices[i];
		first_at = at;
	}
	return first;
}

static bool server_reaches(unsigned node)
{
	const struct cluster_node *known = cluster_find_node(server.cluster, world.nodes[node].node_id);
	return known && known->link;
}

// By what its node told last; after a start of the server nothing yet.
static bool is_offline(const struct sim_device *device)
{
	const char *reason;
	const struct cluster_device *known = cluster_find_device(server.cluster, device->device_id);
	const struct json *verification = json_get(known ? known->record : NULL, "verification");
	return known && (!strcmp(cluster_device_state(known, &reason), "offline") ||
			 !strcmp(json_get_string(verification, "state", ""), "pending"));
}

// It names the device whose node is cut off, and no other.
static void check_cut_off(const struct instance *instance, const char *reason)
{
	const int part = instance->recovery.news.part;
	const struct instance_stage *stage = part < 0 ? NULL : parts_stage(instance->parts, (unsigned)part);
	const struct sim_device *device = named_device(reason);
	if (!stage || !device || strcmp(device->device_id, cluster_device_id(stage->device)) != 0)
		broken("every reason is true", "%s: %s, and it is %s that is cut off", instance->instance_id, reason,
		       stage ? cluster_device_name(stage->device) : "none");
}

// By the world; what a node that is cut off says of it comes later.
static bool died_often(const struct instance *instance)
{
	const struct sim_instance *known = remembered(instance->instance_id);
	const int64_t oldest_ms = known->deaths_ms[LIMIT_DEATHS - 1];
	return oldest_ms && virtual.now_ms - oldest_ms < LIMIT_DEATHS_MS + LIMIT_AWAY_MS;
}

// By the world, as far as the server can know it.
static void check_reason(const struct instance *instance, const struct decision *decision,
			 const struct decide_seen *seen)
{
	const char *waits = strstr(decision->reason, "waits for card-");
	const struct sim_device *device = named_device(waits ? waits : decision->reason);
	if (waits && device && server_reaches(device->node) && !is_offline(device))
		broken("every reason is true", "%s: %s", instance->instance_id, decision->reason);
	if (decision->action == ACTION_PAUSE && seen->news == NEWS_CUT_OFF)
		check_cut_off(instance, decision->reason);
	if (device && decision->cause == CAUSE_DRAIN && decision->action == ACTION_PLACE &&
	    seen->instance_state == INSTANCE_RUNNING &&
	    !cluster_find_device(server.cluster, device->device_id)->draining)
		broken("every reason is true", "%s: %s", instance->instance_id, decision->reason);
	if (decision->action == ACTION_FAIL && !died_often(instance) && !seen->removed &&
	    (seen->instance_state == INSTANCE_RUNNING || seen->instance_state == INSTANCE_PAUSED))
		broken("it fails only after dying often", "%s: %s", instance->instance_id, decision->reason);
}

// Changes for heat are far apart, and away from a device that is held back.
static void check_heat(struct sim_instance *one, const struct decision *decision, const struct decide_seen *seen)
{
	const bool changes = seen->instance_state == INSTANCE_RUNNING && decision->action == ACTION_PLACE &&
			     decision->cause >= CAUSE_HEAT && decision->cause <= CAUSE_STEP_BACK;
	if (!changes)
		return;
	const struct sim_device *hot = decision->cause == CAUSE_HEAT ? named_device(decision->reason) : NULL;
	TRACE("%s: %s", one->instance_id, decision->reason);
	world.heat_moves++;
	if (decision->cause == CAUSE_HEAT &&
	    (!hot || !cluster_heat_held(cluster_find_device(server.cluster, hot->device_id)).held))
		broken("every reason is true", "%s: %s", one->instance_id, decision->reason);
	if (one->heat_ms && virtual.now_ms - one->heat_ms < DECIDE_HEAT_APART_MS)
		broken("changes for heat are far apart", "%s: %s, after %lld ms", one->instance_id, decision->reason,
		       (long long)(virtual.now_ms - one->heat_ms));
	one->heat_ms = virtual.now_ms;
}

void __wrap_instance_decide(struct decision *out, const struct decide_wanted *wanted, const struct decide_seen *seen,
			    int64_t now_ms)
{
	struct decide_seen as_seen = *seen;
	if (world.planted == PLANTED_HEAT_HURRIES)
		as_seen.heat_moved_ms = as_seen.heat_searched_ms = as_seen.format_searched_ms = -1;
	__real_instance_decide(out, wanted, &as_seen, now_ms);
	if (!server.there || !world.deciding)
		return;
	spoil(out, seen, now_ms);
	const struct instance *instance = world.deciding;
	struct sim_instance *one = remembered(instance->instance_id);
	check_reason(instance, out, seen);
	check_heat(one, out, seen);
	if (trace_on && (out->action != ACTION_WAIT || strcmp(one->rule, out->rule) != 0))
		TRACE("%s: %s: %s (%s)", instance->instance_id, decide_action_name(out->action), out->reason,
		      out->rule);
	snprintf(one->rule, sizeof one->rule, "%s", out->rule);
	snprintf(one->reason, sizeof one->reason, "%s", out->reason);
	one->until_ms = out->until_ms;
	one->action = out->action;
}

// ---- workers ----

static const struct worker *known_worker(const struct sim_worker *worker)
{
	return worker->dead ? NULL : worker_by_id(server.tenants, worker->worker_id);
}

static void check_behind(struct sim_worker *worker)
{
	const struct sim_node *node = &world.nodes[worker->node];
	if (worker->dead || known_worker(worker) || node->cut || !node->registered || !server_reaches(worker->node))
		worker->unwanted_ms = -1;
	else if (worker->unwanted_ms < 0)
		worker->unwanted_ms = virtual.now_ms;
	else if (virtual.now_ms - worker->unwanted_ms > BEHIND_MS)
		broken("no worker is left behind", "%s on %s", worker->worker_id, node->name);
}

static bool overlap(const struct sim_worker *one, const struct sim_worker *other)
{
	for (unsigned a = 0; a < one->stage_count; a++)
		for (unsigned b = 0; b < other->stage_count; b++) {
			const struct sim_stage *first = &one->stages[a], *second = &other->stages[b];
			if (first->first_layer < second->first_layer + second->layer_count &&
			    second->first_layer < first->first_layer + first->layer_count)
				return true;
		}
	return false;
}

// Of the workers that the server believes in: no layer of an instance is held twice.
static void check_owners(void)
{
	struct {
		const struct sim_worker *worker;
		const char *instance_id;
	} all[64];
	unsigned count = 0;
	for (unsigned i = 0; i < world.worker_count; i++) {
		const struct worker *known = world.workers[i].stage_count ? known_worker(&world.workers[i]) : NULL;
		if (!known || count == sizeof all / sizeof *all)
			continue;
		all[count].worker = &world.workers[i];
		all[count].instance_id = known->tenant->session_id;
		for (unsigned j = 0; j < count; j++)
			if (!strcmp(all[j].instance_id, all[count].instance_id) &&
			    overlap(all[j].worker, all[count].worker))
				broken("no layer has two owners", "%s: %s and %s", all[j].instance_id,
				       all[j].worker->worker_id, all[count].worker->worker_id);
		count++;
	}
}

// What is said to run has its workers; while the word of a worker's end is waited for (silence.h) it may not.
static void check_runs(const struct instance *instance)
{
	struct sim_instance *one = remembered(instance->instance_id);
	bool all = true;
	for (unsigned i = 0; i < instance->stage_count && instance->state == INSTANCE_RUNNING; i++)
		all &= parts_has(instance->parts, i);
	if (all)
		one->without_ms = -1;
	else if (one->without_ms < 0)
		one->without_ms = virtual.now_ms;
	else if (virtual.now_ms - one->without_ms > SILENCE_END_MS + 100)
		broken("what runs has its workers", "%s has not", instance->instance_id);
}

static bool is_reached(unsigned node)
{
	return !world.nodes[node].cut && !world.nodes[node].slow && world.nodes[node].registered &&
	       server_reaches(node);
}

// Whether each of its parts is connected to the next, as the nodes have it; true where that is not to be known yet.
static bool is_closed(const struct instance *instance)
{
	const struct sim_worker *last = NULL, *one;
	struct instance_worker *generator = parts_generator(instance->parts);
	for (unsigned i = 0; i < world.worker_count && generator; i++)
		if (!strcmp(world.workers[i].worker_id, instance_worker_id(generator)) && !world.workers[i].dead)
			last = &world.workers[i];
	one = last;
	for (unsigned i = 0; one && i < last->count; i++) {
		if (!is_reached(one->node))
			return true;
		one = worker_after(one);
	}
	return !last || one == last;
}

static void check_ring(const struct instance *instance)
{
	struct sim_instance *one = remembered(instance->instance_id);
	if (instance->state != INSTANCE_RUNNING || parts_count(instance->parts) < 2 || is_closed(instance))
		one->open_ms = -1;
	else if (one->open_ms < 0)
		one->open_ms = virtual.now_ms;
	else if (virtual.now_ms - one->open_ms > OPEN_MS)
		broken("what runs has a ring that is closed", "%s has not", instance->instance_id);
}

// Its worker rests as its hottest device is to.
static void check_pace(const struct instance *instance)
{
	unsigned percent = 100;
	struct sim_worker *last = NULL;
	struct instance_worker *generator = parts_generator(instance->parts);
	for (unsigned i = 0; i < world.worker_count && generator; i++)
		if (!strcmp(world.workers[i].worker_id, instance_worker_id(generator)) && !world.workers[i].dead)
			last = &world.workers[i];
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const unsigned one = cluster_work_percent(instance->stages[i].device);
		percent = one < percent ? one : percent;
	}
	if (!last)
		return;
	if (instance->state != INSTANCE_RUNNING || !is_reached(last->node) || percent == last->percent)
		last->unpaced_ms = -1;
	else if (last->unpaced_ms < 0)
		last->unpaced_ms = virtual.now_ms;
	else if (virtual.now_ms - last->unpaced_ms > PACE_MS)
		broken("what is too hot rests", "%s may work for %u %%, and does for %u %%", last->worker_id, percent,
		       last->percent);
}

// ---- no idle device ----

// Whether one device has room for all of it for certain.
static bool fits(const struct instance *instance)
{
	uint64_t need = 0;
	for (unsigned i = 0; i < MODELS; i++)
		if (!strcmp(instance->model_name, server.models->all[i]->record.name))
			need = model_layers[i] * LAYER_BYTES + 2 * ENDS_BYTES + 1200 * MIB;
	for (unsigned i = 0; i < DEVICES; i++) {
		const char *reason;
		const struct cluster_device *device = cluster_find_device(server.cluster, world.devices[i].device_id);
		if (!device || world.devices[i].absent || strcmp(cluster_device_state(device, &reason), "idle") != 0)
			continue;
		const uint64_t held = tenancy_held_bytes(server.tenants, device), used = used_bytes(i),
			       taken = held > used ? held : used, reserve = CAPACITY_MIB * MIB / 16;
		if (taken + reserve + need <= CAPACITY_MIB * MIB)
			return true;
	}
	return false;
}

static void check_idle(struct instance *instance)
{
	struct sim_instance *one = remembered(instance->instance_id);
	const bool paused = instance->state == INSTANCE_PAUSED;
	one->paused_ms = !paused ? -1 : one->paused_ms < 0 ? virtual.now_ms : one->paused_ms;
	if (!paused || instance->recovery.workers == WORKERS_BUSY || !fits(instance)) {
		one->idle_ms = -1;
		return;
	}
	if (one->idle_ms < 0)
		one->idle_ms = virtual.now_ms;
	if (one->action == ACTION_WAIT && one->until_ms - virtual.now_ms > DECIDE_WORK_MS)
		broken("no device is idle but by a rule that ends", "%s: %s", one->instance_id, one->reason);
	if (virtual.now_ms - one->idle_ms > IDLE_MS + (instance->recovery.refused_count ? REFUSED_MS : 0))
		broken("no device is idle for longer than the rules say", "%s: %s", one->instance_id, one->reason);
}

// Layers in a node's memory that were evicted are looked after: they go back once there is room.
static void check_evicted(const struct instance *instance)
{
	const bool evicted = instance->state == INSTANCE_RUNNING && instance->step == STEP_SPILLED &&
			     instance->recovery.gave_way[0];
	if (evicted && offer_room_due_ms(instance) - virtual.now_ms > DECIDE_ROOM_MOST_MS)
		broken("evicted layers are looked after", "%s: in %lld ms", instance->instance_id,
		       (long long)(offer_room_due_ms(instance) - virtual.now_ms));
}

// ---- all of it ----

static void check_all(void)
{
	if (!server.there)
		return;
	for (unsigned i = 0; i < world.worker_count; i++)
		check_behind(&world.workers[i]);
	check_owners();
	for (struct instance *one = server.instances->first; one; one = one->next) {
		check_runs(one);
		check_ring(one);
		check_evicted(one);
		if (world.kinds & KIND_HEAT)
			check_pace(one);
		check_idle(one);
	}
}

// Faults have stopped a while ago.
static void check_end(void)
{
	for (const struct instance *one = server.instances->first; one; one = one->next) {
		const struct sim_instance *known = remembered(one->instance_id);
		if (one->state == INSTANCE_PAUSED && virtual.now_ms - known->paused_ms > PAUSED_MS && fits(one))
			broken("each instance goes on once faults stop", "%s: %s", one->instance_id, known->reason);
		if (one->state == INSTANCE_STARTING || one->state == INSTANCE_LOADING)
			if (clock_wall_ms() - one->state_ms > PAUSED_MS)
				broken("each instance goes on once faults stop", "%s is still starting",
				       one->instance_id);
	}
	for (unsigned i = 0; i < REQUESTS; i++)
		if (world.requests[i].open && virtual.now_ms - world.requests[i].told_ms > REQUEST_MS)
			broken("requests are told in time", "request %u has %u tokens of %u", world.requests[i].number,
			       world.requests[i].got, world.requests[i].most);
}
