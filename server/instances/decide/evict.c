/* See evict.h. */
#include "server/instances/decide/evict.h"

#include "server/placement/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double share_of_all = 0.25, share_of_last = 0.5; // of the time of a search, when it is repeated

static const char *const kinds[] = {[EVICT_SPILL] = "spill", [EVICT_UNLOAD] = "unload", [EVICT_NEVER] = "never"};

enum evict_kind evict_kind_named(const char *name)
{
	return !strcmp(name, kinds[EVICT_UNLOAD])  ? EVICT_UNLOAD
	       : !strcmp(name, kinds[EVICT_NEVER]) ? EVICT_NEVER
						   : EVICT_SPILL;
}

const char *evict_name(enum evict_kind kind)
{
	return kinds[kind];
}

const char *evict_age(int64_t ms, char text[EVICT_AGE_BYTES])
{
	const long long s = ms / 1000;
	if (s < 120)
		snprintf(text, EVICT_AGE_BYTES, "%lld s", s);
	else if (s < 120 * 60)
		snprintf(text, EVICT_AGE_BYTES, "%lld min", s / 60);
	else
		snprintf(text, EVICT_AGE_BYTES, "%lld h", s / 3600);
	return text;
}

// ---- who may be ----

enum evict_may evict_may(const struct evict_seen *seen)
{
	if (seen->least_ms < 0 || !seen->runs || seen->same_model || seen->kind == EVICT_NEVER)
		return EVICT_MAY_NOT;
	return seen->idle_ms >= seen->least_ms ? EVICT_MAY : EVICT_MAY_LATER;
}

// ---- what that frees ----

// Where it lies on one of CUDA's devices with what that fills up, which moves with the layers.
static struct stage_memory memory_of(const struct placing *placing, const struct evict_candidate *candidate,
				     const struct placement_stage *stage)
{
	const struct placement_wanted wanted = {.shape = &candidate->shape,
						.devices = &placing->devices[stage->device],
						.device_count = 1,
						.context_tokens = candidate->context_tokens,
						.sequences = candidate->sequences};
	return cost_memory(&wanted, &candidate->sizes, candidate->page_count, stage);
}

// The stage with so many layers in the host's memory: computed from its present size and the change.
struct placement_stage evict_spilled(const struct placing *placing, const struct evict_candidate *candidate,
				     const struct placement_stage *from, uint32_t host_layers)
{
	struct placement_stage to = *from;
	const struct stage_memory before = memory_of(placing, candidate, from);
	to.host_layers = host_layers;
	const struct stage_memory after = memory_of(placing, candidate, &to);
	const uint64_t was = cost_on_device(&before), is = cost_on_device(&after);
	uint64_t freed = was > is ? was - is : 0;
	if (freed > from->memory.weights_bytes)
		freed = from->memory.weights_bytes;
	to.memory.weights_bytes -= freed;
	to.memory.host_bytes += after.host_bytes > before.host_bytes ? after.host_bytes - before.host_bytes : 0;
	return to;
}

uint64_t evict_freed(const struct placement_stage *from, const struct placement_stage *to)
{
	return cost_on_device(&from->memory) - cost_on_device(&to->memory);
}

// ---- which ----

// The memory left on each device; below 0: missing, if the placement uses the device. (Other devices may share this
// memory, and then use less of it.)
struct room {
	int64_t bytes[PLACEMENT_DEVICES];
	bool used[PLACEMENT_DEVICES];
};

static void take_from(struct room *room, const struct placing *placing, unsigned device, int64_t bytes)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (i == device || cost_shares_memory(&placing->devices[i], &placing->devices[device]))
			room->bytes[i] -= bytes;
}

static void take_placement(struct room *room, const struct placing *placing, const struct placement *placement)
{
	for (unsigned i = 0; i < placement->stage_count; i++) {
		const struct placement_stage *stage = &placement->stages[i];
		take_from(room, placing, stage->device, (int64_t)cost_on_device(&stage->memory));
		room->used[stage->device] = true;
		for (unsigned j = 0; j < placing->wanted.device_count && stage->memory.host_bytes; j++)
			if (placing->devices[j].backend == PLACE_CPU &&
			    placing->devices[j].node == placing->devices[stage->device].node) {
				take_from(room, placing, j, (int64_t)stage->memory.host_bytes);
				room->used[j] = true;
			}
	}
}

// Whether memory is missing that this one holds.
static bool is_needed(const struct room *room, const struct placing *placing, const struct evict_candidate *candidate)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (room->used[i] && room->bytes[i] < 0 && candidate->frees[i])
			return true;
	return false;
}

// As few more layers of each stage in the host's memory as are missing on its device, if there is room for them.
static bool spill(struct room *room, const struct placing *placing, struct evict_candidate *candidate)
{
	bool any = false;
	for (unsigned i = 0; i < candidate->stage_count; i++) {
		struct placement_stage *stage = &candidate->stages[i], to = *stage;
		const int64_t missing = -room->bytes[stage->device];
		if (!room->used[stage->device] || missing <= 0 || candidate->hosts[i] < 0)
			continue;
		while (to.host_layers < stage->layer_count && (int64_t)evict_freed(stage, &to) < missing)
			to = evict_spilled(placing, candidate, stage, to.host_layers + 1);
		const int64_t more = (int64_t)(to.memory.host_bytes - stage->memory.host_bytes);
		if (!evict_freed(stage, &to) || room->bytes[candidate->hosts[i]] < more)
			continue;
		take_from(room, placing, (unsigned)candidate->hosts[i], more);
		take_from(room, placing, stage->device, -(int64_t)evict_freed(stage, &to));
		*stage = to;
		any = true;
	}
	return any;
}

static void evict(struct room *room, const struct placing *placing, struct evict_candidate *candidate)
{
	struct room spilled_room = *room;
	struct evict_candidate as_spilled = *candidate;
	const bool any = spill(&spilled_room, placing, &as_spilled);
	if (any && (candidate->kind == EVICT_SPILL || !is_needed(&spilled_room, placing, candidate))) {
		*room = spilled_room;
		*candidate = as_spilled;
		candidate->evicted = true;
	} else if (candidate->kind == EVICT_UNLOAD) {
		candidate->evicted = candidate->unloads = true;
		for (unsigned i = 0; i < placing->wanted.device_count; i++)
			room->bytes[i] += (int64_t)candidate->frees[i];
	}
}

static bool fits(const struct room *room, const struct placing *placing)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (room->used[i] && room->bytes[i] < 0)
			return false;
	return true;
}

static struct room between(const struct room *a, const struct room *b, unsigned devices)
{
	struct room room = *a;
	for (unsigned i = 0; i < devices; i++)
		room.bytes[i] -= b->bytes[i];
	return room;
}

// Choose among the first `count` of `may` those to evict, so that this placement has room. A candidate that frees too
// little is left out if a later one frees enough. False: there is no room.
static bool settle(struct placing *placing, const struct evict_candidate *may, unsigned count,
		   const struct placement *placement)
{
	const unsigned devices = placing->wanted.device_count;
	struct evict_candidate *candidates = placing->candidates;
	struct room room = {0}, freed_by_each[LIMIT_CANDIDATES];
	for (unsigned i = 0; i < devices; i++)
		room.bytes[i] = (int64_t)placing->devices[i].free_bytes - (int64_t)placing->lacking[i];
	take_placement(&room, placing, placement);
	const struct room before = room;
	for (unsigned i = 0; i < count; i++) {
		const struct room at_first = room;
		if (is_needed(&room, placing, &candidates[i]))
			evict(&room, placing, &candidates[i]);
		freed_by_each[i] = between(&room, &at_first, devices);
	}
	for (unsigned i = count; i-- > 0;) {
		const struct room without = between(&room, &freed_by_each[i], devices);
		if (candidates[i].evicted && fits(&without, placing)) {
			room = without;
			candidates[i] = may[i];
		}
	}
	const struct room given = between(&room, &before, devices);
	for (unsigned i = 0; i < devices; i++)
		placing->given[i] = given.bytes[i] > 0 ? (uint64_t)given.bytes[i] : 0;
	return fits(&room, placing);
}

static bool is_short(const struct placement *placement)
{
	return !placement->feasible || placement->step != STEP_NONE;
}

struct finding {
	struct placing *placing;
	struct placement *found;
	struct evict_candidate *candidates; // as they were
	uint64_t free_bytes[PLACEMENT_DEVICES];
};

// Whether there is room, and none of it short, when the first `count` are evicted.
static bool try(struct finding *finding, unsigned count, double share)
{
	struct placing *placing = finding->placing;
	struct placement_wanted wanted = placing->wanted;
	struct error error = {0};
	wanted.timeout_s *= share;
	wanted.remedies = false;
	for (unsigned i = 0; i < wanted.device_count; i++) {
		uint64_t more = 0;
		for (unsigned j = 0; j < count; j++)
			more += finding->candidates[j].frees[i];
		placing->devices[i].free_bytes += more > placing->lacking[i] ? more - placing->lacking[i] : 0;
	}
	const enum status status = placement_find(finding->found, &wanted, &error);
	for (unsigned i = 0; i < wanted.device_count; i++)
		placing->devices[i].free_bytes = finding->free_bytes[i];
	if (status || !finding->found->feasible || (placing->placement.feasible && is_short(finding->found)))
		return false;
	memcpy(placing->candidates, finding->candidates, sizeof placing->candidates);
	return settle(placing, finding->candidates, count, finding->found);
}

static uint32_t layers_more(const struct evict_candidate *candidate, const struct evict_candidate *before)
{
	uint32_t layers = 0;
	for (unsigned i = 0; i < candidate->stage_count; i++)
		layers += candidate->stages[i].host_layers - before->stages[i].host_layers;
	return layers;
}

// First of all that is said.
static void say(struct placement *placement, const struct evict_candidate *candidates,
		const struct evict_candidate *before, unsigned count)
{
	struct placement_text whys[PLACEMENT_WHYS];
	const unsigned kept = placement->why_count;
	memcpy(whys, placement->whys, sizeof whys);
	placement->why_count = 0;
	for (unsigned i = 0; i < count; i++) {
		char idle[EVICT_AGE_BYTES];
		const struct evict_candidate *candidate = &candidates[i];
		if (!candidate->evicted)
			continue;
		evict_age(candidate->idle_ms, idle);
		if (candidate->unloads)
			why_add(placement, -1,
				"there is room for it once %s is evicted, idle for %s: it is unloaded, and its next "
				"request loads it again",
				candidate->model_name, idle);
		else
			why_add(placement, -1,
				"there is room for it once %s is evicted, idle for %s: %u more of its layers %s to the "
				"host's memory, where it is slower",
				candidate->model_name, idle, layers_more(candidate, &before[i]),
				layers_more(candidate, &before[i]) == 1 ? "goes" : "go");
	}
	for (unsigned i = 0; i < kept && placement->why_count < PLACEMENT_WHYS; i++)
		placement->whys[placement->why_count++] = whys[i];
}

static void find_room(struct placing *placing)
{
	const unsigned count = placing->candidate_count;
	struct finding finding = {.placing = placing,
				  .found = malloc(sizeof *finding.found),
				  .candidates = malloc(sizeof placing->candidates)};
	const bool begun = finding.found && finding.candidates;
	bool may = begun, done = false;
	if (begun) {
		memcpy(finding.candidates, placing->candidates, sizeof placing->candidates);
		for (unsigned i = 0; i < placing->wanted.device_count; i++)
			finding.free_bytes[i] = placing->devices[i].free_bytes;
		may = count == 1 || try(&finding, count, share_of_all);
	}
	for (unsigned i = 1; i <= count && may && !done; i++) {
		done = try(&finding, i, i == count ? share_of_last : share_of_all);
		if (done) {
			placing->placement = *finding.found;
			say(&placing->placement, placing->candidates, finding.candidates, i);
		}
	}
	if (begun && !done) {
		memcpy(placing->candidates, finding.candidates, sizeof placing->candidates);
		memset(placing->given, 0, sizeof placing->given);
	}
	free(finding.candidates);
	free(finding.found);
}

enum status evict_find(struct placing *placing, struct error *error)
{
	const enum status status = placement_find(&placing->placement, &placing->wanted, error);
	if (status || !is_short(&placing->placement) || search_stopped(&placing->wanted))
		return status;
	if (placing->candidate_count)
		find_room(placing);
	if (!placing->placement.feasible && placing->later[0])
		why_add(&placing->placement, -1, "%s", placing->later);
	return STATUS_OK;
}
