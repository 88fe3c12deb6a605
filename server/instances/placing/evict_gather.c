/* Which instances may be evicted for a placement, with what each of them holds. Thread: the loop's. */
#include "server/instances/decide/evict.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <string.h>

enum evict_kind evict_kind_of(const struct instance *instance)
{
	return evict_kind_named(json_get_string(instance->wanted, "gives_way", evict_name(EVICT_SPILL)));
}

int64_t evict_idle_ms(const struct instance *instance)
{
	if (instance->state != INSTANCE_RUNNING || instance->generations || !instance->used_ms)
		return -1;
	const int64_t ms = instances_now(instance->all) - instance->used_ms;
	return ms > 0 ? ms : 0;
}

static int place_of(const struct placing *placing, const struct cluster_device *device)
{
	for (unsigned i = 0; device && i < placing->wanted.device_count; i++)
		if (placing->where[i] == device)
			return (int)i;
	return -1;
}

// False: one of its devices is not used for placements.
static bool take_stages(struct evict_candidate *candidate, const struct placing *placing,
			const struct instance *instance)
{
	candidate->stage_count = instance->stage_count;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *from = &instance->stages[i];
		const int at = place_of(placing, from->device), host = place_of(placing, from->host);
		if (at < 0)
			return false;
		candidate->stages[i] = (struct placement_stage){.device = (unsigned)at,
								.first_layer = from->first_layer,
								.layer_count = from->layer_count,
								.host_layers = from->host_layers,
								.embeds = from->embeds,
								.predicts = from->predicts,
								.slices = from->slices,
								.slice = from->slice,
								.memory = from->memory};
		candidate->hosts[i] = from->slices || at == host ||
						      (host >= 0 && gather_same_pool(from->device, from->host))
					      ? -1
					      : host;
	}
	return true;
}

static void take_frees(struct evict_candidate *candidate, const struct placing *placing,
		       const struct instance *instance)
{
	for (unsigned i = 0; i < placing->wanted.device_count; i++) {
		if (candidate->kind == EVICT_UNLOAD)
			candidate->frees[i] = gather_held_by(instance, placing->where[i]);
		for (unsigned j = 0; j < candidate->stage_count && candidate->kind == EVICT_SPILL; j++) {
			const struct placement_stage *stage = &candidate->stages[j];
			if (candidate->hosts[j] < 0 ||
			    !gather_same_pool(placing->where[i], placing->where[stage->device]))
				continue;
			const struct placement_stage all = evict_spilled(placing, candidate, stage, stage->layer_count);
			candidate->frees[i] += evict_freed(stage, &all);
		}
	}
}

static bool take_candidate(struct evict_candidate *candidate, const struct placing *placing,
			   const struct instance *instance)
{
	*candidate = (struct evict_candidate){.epoch = instance->epoch,
					      .idle_ms = evict_idle_ms(instance),
					      .used_ms = instance->used_ms,
					      .kind = evict_kind_of(instance),
					      .shape = instance->model->shape,
					      .sizes = instance->model->sizes,
					      .context_tokens = instance->context_tokens,
					      .sequences = instance->sequences,
					      .page_count = instance->page_count};
	snprintf(candidate->instance_id, sizeof candidate->instance_id, "%s", instance->instance_id);
	snprintf(candidate->model_name, sizeof candidate->model_name, "%.64s", instance->model_name);
	if (instance->held_format != FORMAT_UNKNOWN)
		placement_shrink(&candidate->sizes, instance->held_format);
	if (!take_stages(candidate, placing, instance))
		return false;
	take_frees(candidate, placing, instance);
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (candidate->frees[i])
			return true;
	return false;
}

// The one that was used last of all is left out where there are too many.
static void line_up(struct placing *placing, const struct instance *instance)
{
	struct evict_candidate candidate, *all = placing->candidates;
	unsigned at = placing->candidate_count;
	if (!take_candidate(&candidate, placing, instance))
		return;
	while (at && all[at - 1].used_ms > candidate.used_ms)
		at--;
	if (at == LIMIT_CANDIDATES)
		return;
	placing->candidate_count += placing->candidate_count < LIMIT_CANDIDATES;
	memmove(&all[at + 1], &all[at], (placing->candidate_count - at - 1) * sizeof *all);
	all[at] = candidate;
}

void evict_gather(struct placing *placing, const struct instances *instances)
{
	const int64_t least_ms = instances->params.give_way_ms;
	char text[EVICT_AGE_BYTES];
	for (const struct instance *one = instances->first; one; one = one->next) {
		const struct evict_seen seen = {.runs = one->state == INSTANCE_RUNNING,
						.same_model = one->model == placing->model,
						.kind = evict_kind_of(one),
						.idle_ms = evict_idle_ms(one),
						.least_ms = least_ms};
		const enum evict_may may = evict_may(&seen);
		if (may == EVICT_MAY)
			line_up(placing, one);
		else if (may == EVICT_MAY_LATER && !placing->later[0])
			snprintf(placing->later, sizeof placing->later,
				 "%.64s holds memory, too, and may be evicted once nobody has used it for %s",
				 one->model_name, evict_age(least_ms, text));
	}
}
