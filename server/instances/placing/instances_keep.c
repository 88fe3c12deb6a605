/* Which parts an instance keeps when it is placed again: the placement of its layers, and its memory.
 *
 *   a part is lost -> what is left is spared (keep_spare) -> a place is searched for: the best one; one that leaves all
 *   living parts as they are, with the lost layers on a device that has room for them; and one that gives these to the
 *   part before or behind them, which is loaded anew, and leaves the others (keep_find) -> begun, and what is the same
 *   in both placements is taken over (keep_begin; parts_keep.c)
 *
 * Loading the rest again takes minutes with a large model, so the second is taken unless it is much slower than the
 * best, else the third unless it is. Kept parts hold their memory all the time: it counts as free for their own layers
 * only. */
#include "common/base/log.h"
#include "server/instances/instances_inside.h"
#include "server/placement/placement.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Of the speed of the best place. A place that is less than a fifth slower is no reason to load everything again, and
// one that is less than a fifth faster is no reason to move (instances_offer.c).
static const double keep_share = 0.8;

// ---- what there is ----

static int place_of(const struct placing *placing, const struct cluster_device *device)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (placing->where[i] == device && !placing->devices[i].unusable)
			return (int)i;
	return -1;
}

static bool same_worker(const struct placement_device *a, const struct placement_device *b)
{
	return a->node == b->node && a->backend == b->backend;
}

// Stages in slices, and with layers in the host's memory, are kept where the best place happens to have them alike.
static bool is_plain(const struct instance_stage *stage)
{
	return !stage->slices && !stage->host_layers;
}

void keep_gather(struct placing *placing, const struct instance *ending)
{
	struct placing_kept *kept = &placing->kept;
	const struct parts *parts = ending->parts;
	const unsigned part_count = parts_count(parts);
	bool plain = part_count > 1 && !placing->wanted.pin_count && placing->wanted.strategy != PLACE_TENSOR &&
		     placing->wanted.context_tokens == ending->context_tokens &&
		     placing->wanted.sequences == ending->sequences;
	for (unsigned i = 0; i < part_count && plain; i++) {
		const unsigned first = (unsigned)(parts_stage(parts, i) - ending->stages),
			       end = i + 1 < part_count ? (unsigned)(parts_stage(parts, i + 1) - ending->stages)
							: ending->stage_count;
		bool stays = true;
		for (unsigned j = first; j < end; j++) {
			const struct instance_stage *stage = &ending->stages[j];
			kept->stages[j].at_device = kept->stages[j].device = place_of(placing, stage->device);
			kept->stages[j].first_layer = stage->first_layer;
			kept->stages[j].layer_count = stage->layer_count;
			kept->stages[j].bytes = stage->held;
			kept->stages[j].part = i;
			stays &= parts_has(parts, j) && kept->stages[j].device >= 0;
			plain &= is_plain(stage);
		}
		kept->kept_parts += stays;
		for (unsigned j = first; j < end && !stays; j++)
			kept->stages[j].device = -1;
	}
	kept->part_count = part_count;
	kept->page_count = ending->page_count;
	kept->format = ending->held_format;
	kept->stage_count = plain && kept->kept_parts && kept->kept_parts < part_count ? ending->stage_count : 0;
}

// ---- where the lost layers go ----

// A place that is looked for: which parts stay, and what that leaves.
struct keeping {
	struct placing_kept kept;                           // as it is tried
	struct placement_device devices[PLACEMENT_DEVICES]; // as they are while these are kept
	struct placement_pin pins[PLACEMENT_STAGES];
	struct placement_wanted wanted;
	struct placement found, best;
	unsigned best_parts, best_kept; // of `best`
	unsigned first, end;            // stages that are lost, one behind another; the same: they are not
};

static bool shares(const struct placement_device *a, const struct placement_device *b)
{
	return a == b || (a->node == b->node && a->pool[0] && !strcmp(a->pool, b->pool));
}

// Apply `kept`: kept memory is reserved, and a kept part always fits its own device.
static void begin(struct keeping *keeping, const struct placing *placing)
{
	const struct placing_kept *kept = &keeping->kept;
	struct placement_device *devices = keeping->devices;
	memcpy(devices, placing->devices, sizeof keeping->devices);
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		for (unsigned j = 0; j < kept->stage_count; j++) {
			const uint64_t bytes = kept->stages[j].bytes;
			if (kept->stages[j].device >= 0 && shares(&devices[i], &devices[kept->stages[j].device]))
				devices[i].free_bytes -= bytes < devices[i].free_bytes ? bytes : devices[i].free_bytes;
		}
	for (unsigned j = 0; j < kept->stage_count; j++)
		if (kept->stages[j].device >= 0)
			devices[kept->stages[j].device].free_bytes = devices[kept->stages[j].device].memory_bytes;
	keeping->wanted = placing->wanted;
	keeping->wanted.devices = devices;
	keeping->wanted.pins = keeping->pins;
	keeping->wanted.page_count = kept->page_count;
	keeping->wanted.format = kept->format;
	keeping->wanted.may_shrink = keeping->wanted.remedies = false;
}

static void pin(struct keeping *keeping, int device, unsigned first_stage, unsigned end_stage)
{
	const struct placing_kept *kept = &keeping->kept;
	struct placement_pin *pin = &keeping->pins[keeping->wanted.pin_count++];
	*pin = (struct placement_pin){.device = (unsigned)device, .first_layer = kept->stages[first_stage].first_layer};
	for (unsigned i = first_stage; i < end_stage; i++)
		pin->layer_count += kept->stages[i].layer_count;
}

// Where they are.
static void pin_each(struct keeping *keeping, unsigned first_stage, unsigned end_stage)
{
	for (unsigned i = first_stage; i < end_stage; i++)
		pin(keeping, keeping->kept.stages[i].at_device, i, i + 1);
}

static void look(struct keeping *keeping, unsigned parts, unsigned kept)
{
	struct error error = {0};
	struct placement *found = &keeping->found;
	bool plain = true;
	if (placement_find(found, &keeping->wanted, &error) || !found->feasible)
		return;
	for (unsigned i = 0; i < found->stage_count; i++)
		plain &= !found->stages[i].host_layers && !found->stages[i].slices;
	if (!plain || (keeping->best.feasible && found->value_s >= keeping->best.value_s))
		return;
	keeping->best = *found;
	keeping->best_parts = parts;
	keeping->best_kept = kept;
}

// All where they were: a worker died, and its devices are well.
static void try_same(struct keeping *keeping)
{
	const struct placing_kept *kept = &keeping->kept;
	for (unsigned i = 0; i < kept->stage_count; i++)
		if (kept->stages[i].at_device < 0)
			return;
	keeping->wanted.pin_count = 0;
	pin_each(keeping, 0, kept->stage_count);
	look(keeping, kept->part_count, kept->kept_parts);
}

static bool holds_kept(const struct keeping *keeping, unsigned device)
{
	const struct placing_kept *kept = &keeping->kept;
	for (unsigned i = 0; i < kept->stage_count; i++)
		if (kept->stages[i].device == (int)device)
			return true;
	return false;
}

// Whether layers on this device belong to the part of the stage, if they are next to each other.
static bool joins(const struct keeping *keeping, unsigned device, unsigned stage)
{
	return same_worker(&keeping->devices[device], &keeping->devices[keeping->kept.stages[stage].device]);
}

// The layers that are lost, on one device, by a worker of its own: with the parts beside it, it would be one, and these
// are to stay as they are.
static void try_device(struct keeping *keeping, unsigned device)
{
	const struct placing_kept *kept = &keeping->kept;
	const unsigned first = keeping->first, end = keeping->end;
	if ((first && joins(keeping, device, first - 1)) || (end < kept->stage_count && joins(keeping, device, end)))
		return;
	keeping->wanted.pin_count = 0;
	pin_each(keeping, 0, first);
	pin(keeping, (int)device, first, end);
	pin_each(keeping, end, kept->stage_count);
	look(keeping, kept->kept_parts + 1, kept->kept_parts);
}

// Put the lost layers on the device of the stage before or after them: that part is loaded again, with these layers.
static void try_beside(struct keeping *keeping, const struct placing *placing, bool before)
{
	struct placing_kept *kept = &keeping->kept;
	const unsigned first = keeping->first, end = keeping->end, stage = before ? first - 1 : end;
	if ((before ? !first : end == placing->kept.stage_count) || placing->kept.kept_parts < 2)
		return;
	*kept = placing->kept;
	const unsigned device = (unsigned)kept->stages[stage].device, other = before ? end : first - 1;
	if (first && end < kept->stage_count && joins(keeping, device, other))
		return; // all three would be one
	for (unsigned i = 0; i < kept->stage_count; i++)
		if (kept->stages[i].part == placing->kept.stages[stage].part)
			kept->stages[i].device = -1;
	if (holds_kept(keeping, device))
		return;
	begin(keeping, placing);
	pin_each(keeping, 0, before ? stage : first);
	pin(keeping, (int)device, before ? stage : first, before ? end : stage + 1);
	pin_each(keeping, before ? end : stage + 1, kept->stage_count);
	look(keeping, kept->kept_parts, kept->kept_parts - 1);
}

// Find the lost layers, if they are contiguous.
static void find_lost(struct keeping *keeping)
{
	const struct placing_kept *kept = &keeping->kept;
	unsigned first = 0, end, next;
	while (first < kept->stage_count && kept->stages[first].device >= 0)
		first++;
	for (end = first; end < kept->stage_count && kept->stages[end].device < 0; end++)
		;
	for (next = end; next < kept->stage_count && kept->stages[next].device >= 0; next++)
		;
	keeping->first = first;
	keeping->end = next == kept->stage_count ? end : first;
}

// The best that keeps all that is left.
static void find_kept(struct keeping *keeping, const struct placing *placing)
{
	keeping->kept = placing->kept;
	begin(keeping, placing);
	find_lost(keeping);
	try_same(keeping);
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (keeping->first < keeping->end && !placing->devices[i].unusable && !placing->devices[i].software &&
		    !holds_kept(keeping, i))
			try_device(keeping, i);
}

// The best placement that keeps all but one of the remaining parts.
static void find_beside(struct keeping *keeping, const struct placing *placing)
{
	keeping->best.feasible = false;
	if (keeping->first == keeping->end)
		return;
	try_beside(keeping, placing, true);
	try_beside(keeping, placing, false);
}

// Whether keeping parts is worth more than the best place, if one was found.
static bool is_taken(struct keeping *keeping, struct placement *out, bool free_found)
{
	const struct placement *kept = &keeping->best;
	const double free_s = out->value_s;
	if (!kept->feasible || (free_found && free_s < kept->value_s * keep_share))
		return false;
	*out = *kept;
	out->why_count = 0; // that the devices were asked for, which they were not
	why_add(out, -1,
		"%u of %u parts keep what they have loaded, and the others' layers go where there is room for them",
		keeping->best_kept, keeping->best_parts);
	if (free_found && free_s < kept->value_s)
		why_add(out, -1, "if everything were loaded again, a token would take %.0f %% of the time",
			100 * free_s / kept->value_s);
	return true;
}

enum status keep_find(struct placing *placing, struct error *error)
{
	struct error none = {0};
	struct keeping *keeping = placing->kept.stage_count ? calloc(1, sizeof *keeping) : NULL;
	struct placement *out = &placing->placement;
	bool any = false, found = false, taken = false;
	for (int i = 0; i < 2 && keeping && !taken; i++) {
		if (i)
			find_beside(keeping, placing);
		else
			find_kept(keeping, placing);
		if (!any && keeping->best.feasible) // nothing has to be evicted
			found = !placement_find(out, &placing->wanted, &none) && out->feasible;
		any |= keeping->best.feasible;
		taken = is_taken(keeping, out, found);
	}
	free(keeping);
	return any ? STATUS_OK : evict_find(placing, error);
}

// ---- its memory ----

static void let_go_stage(const struct instance *instance, struct instance_stage *stage)
{
	struct tenancy *tenants = instance->all->params.tenants;
	gather_released_stage(instance, stage);
	if (!tenancy_hold(tenants, stage->device, -(int64_t)stage->held))
		stage->held = 0;
	if (stage->host && !tenancy_hold(tenants, stage->host, -(int64_t)stage->host_held))
		stage->host_held = 0;
}

bool keep_spare(struct instance *instance, const char *why)
{
	if (!parts_spare(instance->parts, why))
		return false;
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!parts_has(instance->parts, i))
			let_go_stage(instance, &instance->stages[i]);
	return true;
}

enum status keep_begin(struct instance *instance, const struct placing *placing, struct error *error)
{
	struct instance_stage was[PLACEMENT_STAGES];
	const unsigned count = instance->stage_count;
	struct parts *before = instance->parts;
	bool kept[PLACEMENT_STAGES] = {false};
	memcpy(was, instance->stages, sizeof was);
	instance->parts = NULL;
	instance_hold(instance, false);
	instance_take_placement(instance, placing);
	instance_keep(instance, NULL);
	enum status status = parts_create(&instance->parts, instance, &before, error);
	for (unsigned i = 0; i < instance->stage_count && !status; i++) {
		const int at = parts_was_stage(instance->parts, i);
		if (at < 0)
			continue;
		kept[at] = true;
		instance->stages[i].memory = was[at].memory;
		instance->stages[i].timed = was[at].timed;
		instance->stages[i].stored = was[at].stored;
		memcpy(instance->stages[i].corrected, was[at].corrected, sizeof was[at].corrected);
	}
	for (unsigned i = 0; i < count; i++)
		if (!kept[i])
			gather_released_stage(instance, &was[i]);
	if (!status)
		status = instance_hold(instance, true);
	if (status) {
		parts_destroy(&instance->parts, "it could not be placed again");
		instance_hold(instance, false);
	}
	return status;
}
