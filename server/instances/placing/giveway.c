/* Idle instances give way to a model that has no room without their memory.
 *
 *     gather (loop): who may -> find (the planner's thread): the fewest that make room -> take (loop): they do
 *
 * Who may: one that is ready, with no request under way or waiting, that nobody has used for give_way_ms; of several
 * the one that was used the longest ago first. It is spilled: placed once more where it is, with as few more of its
 * layers in the host's memory as make room; one that questions have loaded, or that was created so, is unloaded where
 * that is not enough, since its next question loads it again. What was placed by hand is never unloaded by itself.
 *
 * What is asked for is searched for on free memory first. If it fits nowhere so, or only with layers in the host's
 * memory, a smaller format or processors, it is searched for again as if the first, the first two ... of those that may
 * give way did. Before anything happens each of them is looked at once more: one that has been used since stays, and
 * the search begins anew. */
#include "server/instances/instances_inside.h"
#include "server/placement/placement_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double share_of_all = 0.25, share_of_last = 0.5; // of the time of a search, when it is begun anew

static const char *const kinds[] = {[GIVEWAY_SPILL] = "spill", [GIVEWAY_UNLOAD] = "unload", [GIVEWAY_NEVER] = "never"};

enum giveway_kind giveway_kind(const struct instance *instance)
{
	const char *name = json_get_string(instance->wanted, "gives_way", kinds[GIVEWAY_SPILL]);
	return !strcmp(name, kinds[GIVEWAY_UNLOAD])  ? GIVEWAY_UNLOAD
	       : !strcmp(name, kinds[GIVEWAY_NEVER]) ? GIVEWAY_NEVER
						     : GIVEWAY_SPILL;
}

const char *giveway_name(enum giveway_kind kind)
{
	return kinds[kind];
}

int64_t giveway_idle_ms(const struct instance *instance)
{
	if (instance->state != INSTANCE_RUNNING || instance->generations || !instance->used_ms)
		return -1;
	const int64_t ms = instances_now(instance->all) - instance->used_ms;
	return ms > 0 ? ms : 0;
}

const char *giveway_age(int64_t ms, char text[GIVEWAY_AGE_BYTES])
{
	const long long s = ms / 1000;
	if (s < 120)
		snprintf(text, GIVEWAY_AGE_BYTES, "%lld s", s);
	else if (s < 120 * 60)
		snprintf(text, GIVEWAY_AGE_BYTES, "%lld min", s / 60);
	else
		snprintf(text, GIVEWAY_AGE_BYTES, "%lld h", s / 3600);
	return text;
}

// ---- who may ----

// Where it lies on one of CUDA's devices with what that fills up, which moves with the layers.
static struct stage_memory memory_of(const struct placing *placing, const struct placing_giver *giver,
				     const struct placement_stage *stage)
{
	const struct placement_wanted wanted = {.shape = &giver->shape,
						.devices = &placing->devices[stage->device],
						.device_count = 1,
						.context_tokens = giver->context_tokens,
						.sequences = giver->sequences};
	return cost_memory(&wanted, &giver->sizes, giver->page_count, stage);
}

// The stage with so many layers in the host's memory: by what it takes now, and what that changes.
static struct placement_stage spilled(const struct placing *placing, const struct placing_giver *giver,
				      const struct placement_stage *from, uint32_t host_layers)
{
	struct placement_stage to = *from;
	const struct stage_memory before = memory_of(placing, giver, from);
	to.host_layers = host_layers;
	const struct stage_memory after = memory_of(placing, giver, &to);
	const uint64_t was = cost_on_device(&before), is = cost_on_device(&after);
	uint64_t freed = was > is ? was - is : 0;
	if (freed > from->memory.weights_bytes)
		freed = from->memory.weights_bytes;
	to.memory.weights_bytes -= freed;
	to.memory.host_bytes += after.host_bytes > before.host_bytes ? after.host_bytes - before.host_bytes : 0;
	return to;
}

static uint64_t freed_by(const struct placement_stage *from, const struct placement_stage *to)
{
	return cost_on_device(&from->memory) - cost_on_device(&to->memory);
}

static int place_of(const struct placing *placing, const struct cluster_device *device)
{
	for (unsigned i = 0; device && i < placing->wanted.device_count; i++)
		if (placing->where[i] == device)
			return (int)i;
	return -1;
}

// False: one of its devices is none that anything is placed on.
static bool take_stages(struct placing_giver *giver, const struct placing *placing, const struct instance *instance)
{
	giver->stage_count = instance->stage_count;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *from = &instance->stages[i];
		const int at = place_of(placing, from->device), host = place_of(placing, from->host);
		if (at < 0)
			return false;
		giver->stages[i] = (struct placement_stage){.device = (unsigned)at,
							    .first_layer = from->first_layer,
							    .layer_count = from->layer_count,
							    .host_layers = from->host_layers,
							    .embeds = from->embeds,
							    .predicts = from->predicts,
							    .slices = from->slices,
							    .slice = from->slice,
							    .memory = from->memory};
		giver->hosts[i] = from->slices || at == host ||
						  (host >= 0 && gather_same_pool(from->device, from->host))
					  ? -1
					  : host;
	}
	return true;
}

static void take_gives(struct placing_giver *giver, const struct placing *placing, const struct instance *instance)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++) {
		if (giver->kind == GIVEWAY_UNLOAD)
			giver->gives[i] = gather_held_by(instance, placing->where[i]);
		for (unsigned j = 0; j < giver->stage_count && giver->kind == GIVEWAY_SPILL; j++) {
			const struct placement_stage *stage = &giver->stages[j];
			if (giver->hosts[j] < 0 || !gather_same_pool(placing->where[i], placing->where[stage->device]))
				continue;
			const struct placement_stage all = spilled(placing, giver, stage, stage->layer_count);
			giver->gives[i] += freed_by(stage, &all);
		}
	}
}

static bool take_giver(struct placing_giver *giver, const struct placing *placing, const struct instance *instance)
{
	*giver = (struct placing_giver){.epoch = instance->epoch,
					.idle_ms = giveway_idle_ms(instance),
					.used_ms = instance->used_ms,
					.kind = giveway_kind(instance),
					.shape = instance->model->shape,
					.sizes = instance->model->sizes,
					.context_tokens = instance->context_tokens,
					.sequences = instance->sequences,
					.page_count = instance->page_count};
	snprintf(giver->instance_id, sizeof giver->instance_id, "%s", instance->instance_id);
	snprintf(giver->model_name, sizeof giver->model_name, "%.64s", instance->model_name);
	if (instance->held_format != FORMAT_UNKNOWN)
		placement_shrink(&giver->sizes, instance->held_format);
	if (!take_stages(giver, placing, instance))
		return false;
	take_gives(giver, placing, instance);
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (giver->gives[i])
			return true;
	return false;
}

// The one that was used last of all is left out where there are too many.
static void line_up(struct placing *placing, const struct instance *instance)
{
	struct placing_giver giver, *all = placing->givers;
	unsigned at = placing->giver_count;
	if (!take_giver(&giver, placing, instance))
		return;
	while (at && all[at - 1].used_ms > giver.used_ms)
		at--;
	if (at == LIMIT_GIVERS)
		return;
	placing->giver_count += placing->giver_count < LIMIT_GIVERS;
	memmove(&all[at + 1], &all[at], (placing->giver_count - at - 1) * sizeof *all);
	all[at] = giver;
}

void giveway_gather(struct placing *placing, const struct instances *instances)
{
	const int64_t least_ms = instances->params.give_way_ms;
	char text[GIVEWAY_AGE_BYTES];
	for (const struct instance *one = instances->first; one && least_ms >= 0; one = one->next) {
		const int64_t idle_ms = giveway_idle_ms(one);
		if (one->state != INSTANCE_RUNNING || one->model == placing->model ||
		    giveway_kind(one) == GIVEWAY_NEVER)
			continue;
		if (idle_ms >= least_ms)
			line_up(placing, one);
		else if (!placing->later[0])
			snprintf(placing->later, sizeof placing->later,
				 "%.64s holds memory, too, and may give way once nobody has used it for %s",
				 one->model_name, giveway_age(least_ms, text));
	}
}

// ---- who does ----

// What is left of each device's memory; below 0: missing, if it is one of those that are placed on. (Others may share
// the memory of one of these, and be told to use less of it.)
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
static bool is_needed(const struct room *room, const struct placing *placing, const struct placing_giver *giver)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (room->used[i] && room->bytes[i] < 0 && giver->gives[i])
			return true;
	return false;
}

// As few more layers of each stage in the host's memory as are missing on its device, if there is room for them.
static bool spill(struct room *room, const struct placing *placing, struct placing_giver *giver)
{
	bool any = false;
	for (unsigned i = 0; i < giver->stage_count; i++) {
		struct placement_stage *stage = &giver->stages[i], to = *stage;
		const int64_t missing = -room->bytes[stage->device];
		if (!room->used[stage->device] || missing <= 0 || giver->hosts[i] < 0)
			continue;
		while (to.host_layers < stage->layer_count && (int64_t)freed_by(stage, &to) < missing)
			to = spilled(placing, giver, stage, to.host_layers + 1);
		const int64_t more = (int64_t)(to.memory.host_bytes - stage->memory.host_bytes);
		if (!freed_by(stage, &to) || room->bytes[giver->hosts[i]] < more)
			continue;
		take_from(room, placing, (unsigned)giver->hosts[i], more);
		take_from(room, placing, stage->device, -(int64_t)freed_by(stage, &to));
		*stage = to;
		any = true;
	}
	return any;
}

static void give_way(struct room *room, const struct placing *placing, struct placing_giver *giver)
{
	struct room spilled_room = *room;
	struct placing_giver as_spilled = *giver;
	const bool any = spill(&spilled_room, placing, &as_spilled);
	if (any && (giver->kind == GIVEWAY_SPILL || !is_needed(&spilled_room, placing, giver))) {
		*room = spilled_room;
		*giver = as_spilled;
		giver->gives_way = true;
	} else if (giver->kind == GIVEWAY_UNLOAD) {
		giver->gives_way = giver->ends = true;
		for (unsigned i = 0; i < placing->wanted.device_count; i++)
			room->bytes[i] += (int64_t)giver->gives[i];
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

// What becomes of the first `count` of `may`, so that this placement has room. One that gave too little, while a later
// one gives enough, stays as it is. False: there is no room.
static bool settle(struct placing *placing, const struct placing_giver *may, unsigned count,
		   const struct placement *placement)
{
	const unsigned devices = placing->wanted.device_count;
	struct placing_giver *givers = placing->givers;
	struct room room = {0}, gifts[LIMIT_GIVERS];
	for (unsigned i = 0; i < devices; i++)
		room.bytes[i] = (int64_t)placing->devices[i].free_bytes - (int64_t)placing->lacking[i];
	take_placement(&room, placing, placement);
	const struct room before = room;
	for (unsigned i = 0; i < count; i++) {
		const struct room at_first = room;
		if (is_needed(&room, placing, &givers[i]))
			give_way(&room, placing, &givers[i]);
		gifts[i] = between(&room, &at_first, devices);
	}
	for (unsigned i = count; i-- > 0;) {
		const struct room without = between(&room, &gifts[i], devices);
		if (givers[i].gives_way && fits(&without, placing)) {
			room = without;
			givers[i] = may[i];
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
	struct placing_giver *givers; // as they were
	uint64_t free_bytes[PLACEMENT_DEVICES];
};

// Whether there is room, and none of it short, when the first `count` give way.
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
			more += finding->givers[j].gives[i];
		placing->devices[i].free_bytes += more > placing->lacking[i] ? more - placing->lacking[i] : 0;
	}
	const enum status status = placement_find(finding->found, &wanted, &error);
	for (unsigned i = 0; i < wanted.device_count; i++)
		placing->devices[i].free_bytes = finding->free_bytes[i];
	if (status || !finding->found->feasible || (placing->placement.feasible && is_short(finding->found)))
		return false;
	memcpy(placing->givers, finding->givers, sizeof placing->givers);
	return settle(placing, finding->givers, count, finding->found);
}

static uint32_t layers_more(const struct placing_giver *giver, const struct placing_giver *before)
{
	uint32_t layers = 0;
	for (unsigned i = 0; i < giver->stage_count; i++)
		layers += giver->stages[i].host_layers - before->stages[i].host_layers;
	return layers;
}

// First of all that is said.
static void say(struct placement *placement, const struct placing_giver *givers, const struct placing_giver *before,
		unsigned count)
{
	struct placement_text whys[PLACEMENT_WHYS];
	const unsigned kept = placement->why_count;
	memcpy(whys, placement->whys, sizeof whys);
	placement->why_count = 0;
	for (unsigned i = 0; i < count; i++) {
		char idle[GIVEWAY_AGE_BYTES];
		const struct placing_giver *giver = &givers[i];
		if (!giver->gives_way)
			continue;
		giveway_age(giver->idle_ms, idle);
		if (giver->ends)
			why_add(placement, -1,
				"there is room for it once %s gives way, idle for %s: it is unloaded, and its next "
				"question loads it again",
				giver->model_name, idle);
		else
			why_add(placement, -1,
				"there is room for it once %s gives way, idle for %s: %u more of its layers %s to the "
				"host's memory, where it is slower",
				giver->model_name, idle, layers_more(giver, &before[i]),
				layers_more(giver, &before[i]) == 1 ? "goes" : "go");
	}
	for (unsigned i = 0; i < kept && placement->why_count < PLACEMENT_WHYS; i++)
		placement->whys[placement->why_count++] = whys[i];
}

static void find_room(struct placing *placing)
{
	const unsigned count = placing->giver_count;
	struct finding finding = {
		.placing = placing, .found = malloc(sizeof *finding.found), .givers = malloc(sizeof placing->givers)};
	const bool begun = finding.found && finding.givers;
	bool may = begun, done = false;
	if (begun) {
		memcpy(finding.givers, placing->givers, sizeof placing->givers);
		for (unsigned i = 0; i < placing->wanted.device_count; i++)
			finding.free_bytes[i] = placing->devices[i].free_bytes;
		may = count == 1 || try(&finding, count, share_of_all);
	}
	for (unsigned i = 1; i <= count && may && !done; i++) {
		done = try(&finding, i, i == count ? share_of_last : share_of_all);
		if (done) {
			placing->placement = *finding.found;
			say(&placing->placement, placing->givers, finding.givers, i);
		}
	}
	if (begun && !done) {
		memcpy(placing->givers, finding.givers, sizeof placing->givers);
		memset(placing->given, 0, sizeof placing->given);
	}
	free(finding.givers);
	free(finding.found);
}

enum status giveway_find(struct placing *placing, struct error *error)
{
	const enum status status = placement_find(&placing->placement, &placing->wanted, error);
	if (status || !is_short(&placing->placement) || search_stopped(&placing->wanted))
		return status;
	if (placing->giver_count)
		find_room(placing);
	if (!placing->placement.feasible && placing->later[0])
		why_add(&placing->placement, -1, "%s", placing->later);
	return STATUS_OK;
}
