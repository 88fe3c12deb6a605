/* Whether a model goes onto devices one behind another, or onto several as one, each with a slice of every stage
 * (engine/stage.h): tensor parallel.
 *
 * Equal devices of a node are put together in twos, threes and so on, as far as the model can be cut, and each such
 * list is a question like any other: a group is a device with the memory of all, whose layers take their share of the
 * time and what adding up takes. The best answer is taken; groups only if they need a fifth less time than what does
 * without, or if nothing else holds the model, since others may want those devices, too. */
#include "server/placement/placement_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double sliced_gain = 0.8;
static const double share_of_listed = 0.7, share_of_each = 0.3 / (STAGE_SLICES - 1); // of the time to search
static const double about_as_fast = 0.1; // bandwidths as measured may differ by this part, of equal devices

struct grouping {
	struct placement_wanted wanted; // with the devices below
	struct placement_device devices[PLACEMENT_DEVICES];
	char names[PLACEMENT_DEVICES][160];
	struct placement_pin pins[PLACEMENT_STAGES];
	struct placement answer;
};

// As engine/stage_slices.c cuts.
static bool can_be_cut(const struct placement_wanted *wanted, unsigned slices)
{
	const struct model_shape *shape = wanted->shape;
	const uint32_t attended = shape->heads * shape->head_size;
	if (!model_can_slice(shape) || !stage_tiles_fit(shape) || shape->heads % slices || shape->kv_heads % slices ||
	    shape->feed_forward % (32 * slices) || attended % (32 * slices))
		return false;
	for (enum tensor_format format = FORMAT_F32; format < FORMAT_COUNT; format++) {
		const uint32_t block = format_info(format)->block_values;
		if (wanted->sizes->format_bytes[format] &&
		    (attended / slices % block || shape->feed_forward / slices % block))
			return false;
	}
	return true;
}

// Whether it has a back end whose stages can be cut, and is not in a group yet.
static bool can_hold_a_slice(const struct placement_device *device)
{
	return device->backend == PLACE_CUDA && !device->unusable && !device->software && !device->slices;
}

static bool equal(const struct placement_device *a, const struct placement_device *b)
{
	const double apart = a->bandwidth > b->bandwidth ? a->bandwidth - b->bandwidth : b->bandwidth - a->bandwidth;
	return a->node == b->node && a->backend == b->backend && a->memory_bytes == b->memory_bytes &&
	       (a->heat >= HEAT_THROTTLED) == (b->heat >= HEAT_THROTTLED) && apart <= about_as_fast * a->bandwidth;
}

static bool may_share(const struct placement_device *a, const struct placement_device *b)
{
	return can_hold_a_slice(a) && can_hold_a_slice(b) && equal(a, b) && !cost_shares_memory(a, b);
}

static bool any_group(const struct placement_wanted *wanted)
{
	const struct placement_device *devices = wanted->devices;
	bool can = false;
	for (unsigned slices = 2; slices <= STAGE_SLICES; slices++)
		can = can || can_be_cut(wanted, slices);
	for (unsigned i = 0; can && i < wanted->device_count; i++)
		for (unsigned j = 0; j < i; j++)
			if (may_share(&devices[i], &devices[j]) &&
			    (wanted->strategy == PLACE_TENSOR || cost_linked(wanted, i, j)))
				return true;
	return false;
}

// The first device takes the others in; those are no longer used by themselves.
static void put_together(struct grouping *grouping, const unsigned *members, unsigned slices)
{
	struct placement_device *first = &grouping->devices[members[0]];
	char *name = grouping->names[members[0]];
	uint64_t least = first->free_bytes;
	for (unsigned i = 0; i < slices; i++) {
		struct placement_device *one = &grouping->devices[members[i]];
		least = one->free_bytes < least ? one->free_bytes : least;
		first->bandwidth = one->bandwidth < first->bandwidth ? one->bandwidth : first->bandwidth;
		first->heat = one->heat > first->heat ? one->heat : first->heat;
		first->heat_rate = cost_heat_rate(one) < cost_heat_rate(first) ? one->heat_rate : first->heat_rate;
		first->members[i] = members[i];
		for (unsigned k = 0; k < i; k++)
			first->staged |= !cost_linked(&grouping->wanted, members[k], members[i]);
		// Nor what another back end sees of the same memory.
		for (unsigned j = 0; j < grouping->wanted.device_count; j++)
			if (j != members[0] && (j == members[i] || cost_shares_memory(one, &grouping->devices[j])))
				grouping->devices[j].unusable = "its memory is part of a group's";
	}
	first->slices = slices;
	first->free_bytes = least * slices;
	first->memory_bytes *= slices;
	snprintf(name, sizeof grouping->names[0], "%u x %.140s", slices, first->name);
	first->name = name;
}

static void begin(struct grouping *grouping, const struct placement_wanted *wanted)
{
	memcpy(grouping->devices, wanted->devices, wanted->device_count * sizeof *wanted->devices);
	grouping->wanted = *wanted;
	grouping->wanted.devices = grouping->devices;
}

// This device and the first behind it with which it makes up a group, each linked with all others but if `staged`.
// False: they are too few.
static bool find_members(const struct grouping *grouping, unsigned first, unsigned slices, bool staged,
			 unsigned members[STAGE_SLICES])
{
	const struct placement_wanted *wanted = &grouping->wanted;
	unsigned count = 1;
	members[0] = first;
	for (unsigned i = first + 1; i < wanted->device_count && count < slices; i++) {
		bool fits = true;
		for (unsigned k = 0; k < count && fits; k++)
			fits = may_share(&wanted->devices[members[k]], &wanted->devices[i]) &&
			       (staged || cost_linked(wanted, members[k], i));
		if (fits)
			members[count++] = i;
	}
	return count == slices;
}

// All groups of so many that there are. False: none.
static bool group(struct grouping *grouping, const struct placement_wanted *wanted, unsigned slices)
{
	bool any = false;
	begin(grouping, wanted);
	grouping->wanted.remedies = false;
	grouping->wanted.timeout_s *= share_of_each;
	// Sums by way of the host's memory are slow: only on request, and only for the devices that are left.
	for (int staged = 0; staged < (wanted->strategy == PLACE_TENSOR ? 2 : 1); staged++)
		for (unsigned i = 0; i < wanted->device_count; i++) {
			unsigned members[STAGE_SLICES];
			if (!find_members(grouping, i, slices, staged, members))
				continue;
			put_together(grouping, members, slices);
			any = true;
		}
	return any;
}

static bool uses_groups(const struct placement *placement, const struct placement_wanted *wanted)
{
	for (unsigned i = 0; i < placement->stage_count; i++)
		if (wanted->devices[placement->stages[i].device].slices)
			return true;
	return false;
}

// The time by the objective; < 0: not known.
static double seconds(const struct placement *placement, const struct placement_wanted *wanted)
{
	return wanted->objective == PLACE_LATENCY || placement->tokens_per_s <= 0 ? placement->seconds_per_token
										  : 1 / placement->tokens_per_s;
}

// Whether an answer with groups replaces this one, which may not be feasible.
static bool better(const struct placement *grouped, const struct placement *other,
		   const struct placement_wanted *wanted)
{
	const double with = seconds(grouped, wanted), without = seconds(other, wanted);
	const bool sliced = other->strategy && strcmp(other->strategy, "pipeline") != 0;
	if (!grouped->feasible || grouped->step == STEP_SPILLED)
		return false;
	if (!other->feasible || other->step > grouped->step)
		return true;
	return with > 0 && with < without * (sliced || wanted->strategy == PLACE_TENSOR ? 1 : sliced_gain);
}

// A stage of a group becomes its slices. False: they are too many.
static bool take_apart(struct grouping *grouping)
{
	struct placement *answer = &grouping->answer;
	struct placement_stage stages[PLACEMENT_STAGES];
	struct model_sizes sizes = *grouping->wanted.sizes;
	unsigned count = 0, groups = 0;
	if (answer->format != FORMAT_UNKNOWN)
		placement_shrink(&sizes, answer->format);
	for (unsigned i = 0; i < answer->stage_count; i++) {
		const struct placement_device *device = &grouping->devices[answer->stages[i].device];
		const unsigned slices = device->slices ? device->slices : 1;
		if (count + slices > PLACEMENT_STAGES)
			return false;
		groups += device->slices != 0;
		for (unsigned k = 0; k < slices; k++) {
			struct placement_stage *stage = &stages[count++];
			*stage = answer->stages[i];
			if (!device->slices)
				continue;
			stage->device = device->members[k];
			stage->slice = k;
			stage->slices = slices;
			stage->memory = cost_memory(&grouping->wanted, &sizes, answer->page_count, stage);
			answer->scores[stage->device] = answer->scores[device->members[0]];
		}
	}
	answer->strategy = answer->stage_count > 1 ? "hybrid" : "tensor";
	answer->stage_count = count;
	memcpy(answer->stages, stages, count * sizeof *stages);
	return groups > 0;
}

static void say_why(struct placement *out, const struct placement_wanted *wanted, double without_s)
{
	const double with_s = seconds(out, wanted);
	if (with_s > 0 && without_s > 0)
		why_add(out, -1, "each of them computes a slice of every layer: %.2f ms a token instead of %.2f ms",
			with_s * 1e3, without_s * 1e3);
	else
		why_add(out, -1, "each of them holds and computes a slice of every layer");
}

// Say what the search for groups proves, beside the search without them.
static void say_sizes(struct placement *out, const char *sizes, bool taken)
{
	why_add(out, -1, "groups of %s equal devices with a slice each were searched, one size at a time%s", sizes,
		taken || !out->feasible       ? ""
		: out->proof == PROOF_OPTIMAL ? ": none saves more than 20 % of the time"
					      : "");
}

// The best with groups, if it is better than `out`. What is proven is proven of all the lists of devices.
static enum status try_groups(struct placement *out, const struct placement_wanted *wanted, struct error *error)
{
	enum status status = STATUS_OK;
	double without_s = out->feasible ? seconds(out, wanted) : -1;
	double bound_s = out->strategy ? out->bound_s : INFINITY, groups_bound_s = INFINITY;
	char sizes[4 * STAGE_SLICES] = "";
	bool taken = false;
	struct grouping *grouping = malloc(sizeof *grouping);
	if (!grouping)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	for (unsigned slices = STAGE_SLICES; slices > 1 && !status; slices--) {
		if (!can_be_cut(wanted, slices) || !group(grouping, wanted, slices))
			continue;
		status = placement_find_listed(&grouping->answer, &grouping->wanted, error);
		if (status)
			break;
		snprintf(sizes + strlen(sizes), sizeof sizes - strlen(sizes), "%s%u", sizes[0] ? ", " : "", slices);
		groups_bound_s = fmin(groups_bound_s, grouping->answer.bound_s);
		if (uses_groups(&grouping->answer, &grouping->wanted) && better(&grouping->answer, out, wanted) &&
		    take_apart(grouping)) {
			*out = grouping->answer;
			taken = true;
		}
	}
	if (taken)
		say_why(out, wanted, without_s);
	if (!status && out->feasible) { // those with groups would have to be enough better
		const bool enough = taken || groups_bound_s < out->value_s * sliced_gain;
		placement_set_proof(out, enough ? fmin(bound_s, groups_bound_s) : bound_s);
	}
	if (sizes[0])
		say_sizes(out, sizes, taken);
	free(grouping);
	return status;
}

// ---- pins ----

static enum status check_pinned(const struct grouping *grouping, const unsigned *members, unsigned slices,
				struct error *error)
{
	const struct placement_device *first = &grouping->devices[members[0]];
	for (unsigned i = 0; i < slices; i++) {
		const struct placement_device *one = &grouping->devices[members[i]];
		bool twice = false;
		for (unsigned k = 0; k < i; k++)
			twice = twice || members[k] == members[i] ||
				cost_shares_memory(&grouping->devices[members[k]], one);
		const char *unusable = cost_unusable(&grouping->wanted, members[i]);
		if (unusable)
			return error_set(error, STATUS_UNAVAILABLE, "%s cannot be used: %s", one->name, unusable);
		if (!can_hold_a_slice(one) || one->node != first->node || twice) {
			error_hint(error, "it takes CUDA devices of one machine, each once");
			return error_set(error, STATUS_UNAVAILABLE, "%s cannot hold a slice beside the others",
					 one->name);
		}
	}
	return can_be_cut(&grouping->wanted, slices)
		       ? STATUS_OK
		       : error_set(error, STATUS_UNAVAILABLE, "the model cannot be cut into %u slices", slices);
}

// A group has one run of layers: its first device stands for the group, and may be named once.
static enum status check_once(const struct grouping *grouping, struct error *error)
{
	const struct placement_wanted *wanted = &grouping->wanted;
	for (unsigned i = 0; i < wanted->pin_count; i++)
		for (unsigned j = 0; j < i; j++)
			if (wanted->pins[i].device == wanted->pins[j].device &&
			    grouping->devices[wanted->pins[i].device].slices) {
				error_hint(error, "give the devices that share layers one run of them");
				return error_set(error, STATUS_UNAVAILABLE,
						 "the pins name a device twice that shares layers with others");
			}
	return STATUS_OK;
}

// Pins of the same layers, one behind another, name the devices that hold slices of them.
static enum status find_pinned(struct placement *out, const struct placement_wanted *wanted, struct error *error)
{
	unsigned members[STAGE_SLICES], slices = 0;
	enum status status = STATUS_OK;
	bool any = false;
	struct grouping *grouping = malloc(sizeof *grouping);
	if (!grouping)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	begin(grouping, wanted);
	grouping->wanted.pins = grouping->pins;
	grouping->wanted.pin_count = 0;
	for (unsigned i = 0; i < wanted->pin_count && !status; i += slices) {
		const struct placement_pin *pin = &wanted->pins[i];
		for (slices = 0;
		     slices < STAGE_SLICES && i + slices < wanted->pin_count &&
		     pin[slices].first_layer == pin->first_layer && pin[slices].layer_count == pin->layer_count;
		     slices++)
			members[slices] = pin[slices].device;
		grouping->pins[grouping->wanted.pin_count++] = *pin;
		if (slices == 1)
			continue;
		any = true;
		status = check_pinned(grouping, members, slices, error);
		if (!status)
			put_together(grouping, members, slices);
	}
	if (!status)
		status = check_once(grouping, error);
	if (!status && !any && wanted->strategy == PLACE_TENSOR) {
		error_hint(error, "pin the same layers to several devices, one after another");
		status = error_set(error, STATUS_UNAVAILABLE, "the pins name no devices that share layers");
	}
	if (!status && wanted->strategy == PLACE_PIPELINE && any) {
		error_hint(error, "leave the strategy out, or ask for tensor");
		status = error_set(error, STATUS_UNAVAILABLE, "the pins name devices that share layers");
	}
	if (!status)
		status = placement_find_listed(&grouping->answer, &grouping->wanted, error);
	if (!status && grouping->answer.feasible && any && !take_apart(grouping))
		status = error_set(error, STATUS_INVALID_PARAMS, "that is more than %d slices", PLACEMENT_STAGES);
	if (!status)
		*out = grouping->answer;
	free(grouping);
	return status;
}

enum status placement_find_grouped(struct placement *out, const struct placement_wanted *wanted, struct error *error)
{
	struct placement_wanted listed = *wanted;
	enum status status = STATUS_OK;
	const bool groups = wanted->strategy != PLACE_PIPELINE && any_group(wanted);
	memset(out, 0, sizeof *out);
	if (wanted->pin_count)
		return find_pinned(out, wanted, error);
	listed.timeout_s *= groups ? share_of_listed : 1;
	if (wanted->strategy != PLACE_TENSOR)
		status = placement_find_listed(out, &listed, error);
	if (!status && groups)
		status = try_groups(out, wanted, error);
	if (!status && wanted->strategy == PLACE_TENSOR && !out->strategy) {
		error_hint(error, "it takes CUDA devices of one machine, equal and able to hold it together; the "
				  "strategies auto and pipeline take others");
		status = error_set(error, STATUS_UNAVAILABLE, "no equal devices of one machine can hold slices of it");
	}
	return status;
}
