/* Some layers leave a device that gets too hot for its work, and the others stay: as few go as leave it the load that
 * it can cool for ever.
 *
 *   the instance as it is (ease_gather) -> each cool device beside the hot one, in the chain or new to it: the most
 *   layers that may stay (by halves) -> the best of these places, where it is faster than leaving by enough (ease_find)
 *
 * The work that a device does in a second is what its layers take for a token, by the tokens of a second. Held back, it
 * may do a share of what it does now. Fewer layers are less work, and so are slower tokens. A place in which it would
 * still do more than its share counts as slow as its rests make it. All places, and the present one, are predicted by
 * the same costs, with the hot device as fast as it is between its rests. */
#include "server/cluster/heat.h"
#include "server/instances/instances_inside.h"
#include "server/placement/placement.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A place that keeps the hot device takes at most this share of the time that a token takes without it. A device that
// is left cools down, so a place that is less than a fifth faster is no reason to keep it at its limit.
static const double leave_share = 0.8;

// ---- what there is ----

static bool is_plain(const struct placing *placing, const struct instance *instance)
{
	bool plain = !placing->wanted.pin_count && placing->wanted.strategy != PLACE_TENSOR &&
		     placing->wanted.context_tokens == instance->context_tokens &&
		     placing->wanted.sequences == instance->sequences;
	for (unsigned i = 0; i < instance->stage_count; i++)
		plain &= !instance->stages[i].slices && !instance->stages[i].host_layers;
	return plain;
}

void ease_gather(struct placing *placing, const struct instance *ending)
{
	struct placing_ease *ease = &placing->ease;
	const struct cluster_device *found;
	bool may = is_plain(placing, ending), any = false;
	for (unsigned i = 0; i < ending->stage_count && may; i++) {
		const struct instance_stage *stage = &ending->stages[i];
		const struct cluster_held held = cluster_heat_held(stage->device);
		unsigned at = 0;
		while (at < placing->wanted.device_count && placing->where[at] != stage->device)
			at++;
		may = at < placing->wanted.device_count && (!held.held || held.share > 0) &&
		      !tenant_find_device(ending->all->params.tenants, cluster_device_id(stage->device), &found, NULL);
		ease->stages[i].device = at;
		ease->stages[i].layer_count = stage->layer_count;
		ease->stages[i].held = held.held;
		ease->stages[i].share = held.held ? held.share : 1;
		if (!held.held || !held.moves || (any && held.share >= ease->stages[ease->hot].share))
			continue;
		any = true;
		ease->hot = i;
	}
	ease->page_count = ending->page_count;
	ease->format = ending->held_format;
	ease->stage_count = may && any ? ending->stage_count : 0;
}

// ---- one place ----

struct easing {
	const struct placing_ease *ease;
	const struct placing *placing;
	struct placement_device devices[PLACEMENT_DEVICES]; // those that are held back as if they were not
	struct placement_pin pins[PLACEMENT_STAGES + 1];
	struct placement_wanted wanted;
	struct placement found, best;
	double now_s;                     // the present place's value_s ...
	double works_s[PLACEMENT_STAGES]; // ... and what each of its stages takes for a token
	// The device that takes layers, and where its own are in the chain.
	unsigned to;
	bool before;        // the hot one's
	double best_s;      // of `best`, with rests; INFINITY: there is none yet
	uint32_t best_kept; // layers that the hot one keeps there
	unsigned best_to;
};

static bool begin(struct easing *easing, const struct placing *placing)
{
	const struct placing_ease *ease = &placing->ease;
	easing->placing = placing;
	easing->ease = ease;
	easing->best_s = INFINITY;
	memcpy(easing->devices, placing->devices, sizeof easing->devices);
	for (unsigned i = 0; i < ease->stage_count; i++) {
		struct placement_device *device = &easing->devices[ease->stages[i].device];
		if (!ease->stages[i].held)
			continue;
		device->unusable = NULL;
		device->heat = HEAT_NORMAL;
		device->heat_rate = 0;
	}
	easing->wanted = placing->wanted;
	easing->wanted.devices = easing->devices;
	easing->wanted.pins = easing->pins;
	easing->wanted.page_count = ease->page_count;
	easing->wanted.format = ease->format;
	easing->wanted.may_shrink = easing->wanted.remedies = false;
	return ease->stage_count < PLACEMENT_STAGES;
}

static void pin(struct easing *easing, unsigned device, uint32_t layers)
{
	struct placement_wanted *wanted = &easing->wanted;
	struct placement_pin *pins = easing->pins;
	const struct placement_pin *last = wanted->pin_count ? &pins[wanted->pin_count - 1] : NULL;
	if (last && last->device == device) {
		pins[wanted->pin_count - 1].layer_count += layers;
		return;
	}
	pins[wanted->pin_count++] = (struct placement_pin){.device = device,
							   .first_layer = last ? last->first_layer + last->layer_count
									       : 0,
							   .layer_count = layers};
}

// What the device's layers take for a token, in `found`; < 0: not known.
static double works_s(const struct easing *easing, unsigned device)
{
	const struct placement *found = &easing->found;
	for (unsigned i = 0; i < found->stage_count; i++)
		if (found->stages[i].device == device)
			return found->stages[i].seconds_per_token;
	return -1;
}

// Predict the place in which the hot device keeps so many layers. False: it does not fit, or its times are not known.
static bool look(struct easing *easing, uint32_t kept)
{
	struct error error = {0};
	const struct placing_ease *ease = easing->ease;
	struct placement *found = &easing->found;
	easing->wanted.pin_count = 0;
	for (unsigned i = 0; i < ease->stage_count; i++) {
		const uint32_t layers = ease->stages[i].layer_count, gone = i == ease->hot ? layers - kept : 0;
		if (gone && easing->before)
			pin(easing, easing->to, gone);
		pin(easing, ease->stages[i].device, layers - gone);
		if (gone && !easing->before)
			pin(easing, easing->to, gone);
	}
	if (placement_find(found, &easing->wanted, &error) || !found->feasible)
		return false;
	bool plain = found->seconds_per_token > 0;
	for (unsigned i = 0; i < found->stage_count; i++)
		plain &= !found->stages[i].host_layers && found->stages[i].seconds_per_token > 0;
	return plain;
}

// The value_s of `found`, where each device that is held back does its share of what it does now, and no more.
static double rested_s(const struct easing *easing)
{
	const struct placing_ease *ease = easing->ease;
	double seconds = easing->found.value_s;
	for (unsigned i = 0; i < ease->stage_count; i++)
		if (ease->stages[i].held)
			seconds = fmax(seconds, easing->now_s / ease->stages[i].share *
							works_s(easing, ease->stages[i].device) / easing->works_s[i]);
	return seconds;
}

static bool look_at_present(struct easing *easing)
{
	const struct placing_ease *ease = easing->ease;
	if (!look(easing, ease->stages[ease->hot].layer_count))
		return false;
	easing->now_s = easing->found.value_s;
	for (unsigned i = 0; i < ease->stage_count; i++)
		easing->works_s[i] = works_s(easing, ease->stages[i].device);
	return true;
}

// ---- which layers go where ----

static void compare(struct easing *easing, uint32_t kept)
{
	if (!kept || kept == easing->ease->stages[easing->ease->hot].layer_count || !look(easing, kept))
		return;
	const double seconds = rested_s(easing);
	if (seconds >= easing->best_s)
		return;
	easing->best = easing->found;
	easing->best_s = seconds;
	easing->best_kept = kept;
	easing->best_to = easing->to;
}

// The most layers that may stay, so that the hot device needs no rests; and one more, where the other one has no room
// for as many as would have to go.
static void try_device(struct easing *easing)
{
	uint32_t few = 0, many = easing->ease->stages[easing->ease->hot].layer_count;
	while (many - few > 1 && !search_stopped(&easing->wanted)) {
		const uint32_t kept = few + (many - few) / 2;
		if (look(easing, kept) && rested_s(easing) > easing->found.value_s)
			many = kept;
		else
			few = kept;
	}
	compare(easing, few);
	compare(easing, many);
}

static bool same_worker(const struct placement_device *a, const struct placement_device *b)
{
	return a->node == b->node && a->backend == b->backend;
}

// Whether layers on this device may come between the stages `at` - 1 and `at`: its worker has none elsewhere, and no
// stage is in its memory.
static bool may_come(const struct easing *easing, unsigned device, unsigned at)
{
	const struct placing_ease *ease = easing->ease;
	const struct placement_device *one = &easing->devices[device];
	if (one->unusable || one->software || one->backend == PLACE_WEBGPU)
		return false;
	for (unsigned i = 0; i < ease->stage_count; i++) {
		const struct placement_device *other = &easing->devices[ease->stages[i].device];
		if (ease->stages[i].device == device || cost_shares_memory(one, other) ||
		    (same_worker(one, other) && i + 1 != at && i != at))
			return false;
	}
	return true;
}

static bool is_cool(const struct placing_ease *ease, unsigned stage)
{
	return !ease->stages[stage].held;
}

static void try_all(struct easing *easing)
{
	const struct placing_ease *ease = easing->ease;
	for (int after = 0; after < 2; after++) {
		const unsigned at = ease->hot + (unsigned)after;
		easing->before = !after;
		if (after ? at < ease->stage_count && is_cool(ease, at) : at && is_cool(ease, at - 1)) {
			easing->to = ease->stages[after ? at : at - 1].device;
			try_device(easing);
		}
		for (unsigned i = 0; i < easing->wanted.device_count && !search_stopped(&easing->wanted); i++)
			if (may_come(easing, i, at)) {
				easing->to = i;
				try_device(easing);
			}
	}
}

// ---- the result ----

static void take(struct placing *placing, const struct easing *easing)
{
	struct placement *out = &placing->placement;
	struct placing_ease *ease = &placing->ease;
	const uint32_t had = ease->stages[ease->hot].layer_count;
	const double rests = easing->best_s / easing->best.value_s; // 1: none
	*out = easing->best;
	out->why_count = 0;
	out->value_s *= rests;
	out->seconds_per_token *= rests;
	out->tokens_per_s /= rests;
	ease->gives = had - easing->best_kept;
	ease->to = easing->best_to;
	why_add(out, (int)ease->stages[ease->hot].device, "%u of its %u layers go to %s: %s", ease->gives, had,
		placing->devices[ease->to].name,
		rests > 1 ? "it has less to do, and rests less" : "what is left it can cool for ever");
}

bool ease_find(struct placing *placing, bool found)
{
	const double leaves_s = found && placing->placement.feasible ? placing->placement.value_s : INFINITY;
	struct easing *easing = placing->ease.stage_count ? calloc(1, sizeof *easing) : NULL;
	if (!easing)
		return false;
	if (begin(easing, placing) && look_at_present(easing))
		try_all(easing);
	const bool better = easing->best_s < leaves_s * leave_share;
	if (better)
		take(placing, easing);
	free(easing);
	return better;
}
