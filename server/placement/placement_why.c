/* Describes a placement in words: why these devices, what limits it, why not the others, and what was assumed. All
 * figures come from the functions that the search uses. */
#include "common/text/size_text.h"
#include "server/placement/placement_inside.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 0))) static void add(struct placement_text *to, int device, const char *text,
						      va_list arguments)
{
	to->device = device;
	vsnprintf(to->text, sizeof to->text, text, arguments);
}

void why_add(struct placement *out, int device, const char *text, ...)
{
	va_list arguments;
	if (out->why_count == PLACEMENT_WHYS)
		return;
	va_start(arguments, text);
	add(&out->whys[out->why_count++], device, text, arguments);
	va_end(arguments);
}

void remedy_add(struct placement *out, int device, const char *text, ...)
{
	va_list arguments;
	if (out->remedy_count == PLACEMENT_REMEDIES)
		return;
	va_start(arguments, text);
	add(&out->remedies[out->remedy_count++], device, text, arguments);
	va_end(arguments);
}

static const struct placement_device *device_of(const struct problem *problem, unsigned at)
{
	return &problem->wanted->devices[problem->devices[at].index];
}

static bool in_chain(const struct chain *chain, unsigned at)
{
	for (unsigned i = 0; i < chain->count; i++)
		if (chain->at[i] == at)
			return true;
	return false;
}

static unsigned flags_of(const struct chain *chain, unsigned place)
{
	return (place == 0 ? ROOM_EMBEDS : 0u) | (place == chain->count - 1 ? ROOM_PREDICTS : 0u);
}

// ---- used devices ----

// The best single device, without host memory; NOBODY: none holds all.
static int best_alone(const struct problem *all, double *value)
{
	int best = NOBODY;
	*value = INFINITY;
	for (unsigned i = 0; i < all->count; i++) {
		struct chain chain = {.at = {i}, .layers = {all->layers}, .count = 1};
		if (all->devices[i].room[ROOM_EMBEDS | ROOM_PREDICTS] < (int64_t)all->layers)
			continue;
		chain_measure(all, &chain);
		if (chain.value < *value) {
			*value = chain.value;
			best = (int)i;
		}
	}
	return best;
}

static void say_taken(struct placement *out, const struct problem *all, const struct chain *chain)
{
	const struct placement_device *first = device_of(all, chain->at[0]);
	double alone_s;
	if (chain->count == 1 && !chain->host_layers[0]) {
		why_add(out, (int)all->devices[chain->at[0]].index, "%s holds all of it: %s of %s free", first->name,
			SIZE_TEXT(cost_on_device(&out->stages[0].memory)), SIZE_TEXT(first->free_bytes));
		return;
	}
	if (chain->count == 1)
		return; // host memory is reported elsewhere
	unsigned nodes = 0;
	for (unsigned i = 0; i < chain->count; i++) {
		bool known = false;
		for (unsigned j = 0; j < i; j++)
			known |= all->devices[chain->at[j]].node == all->devices[chain->at[i]].node;
		nodes += !known;
	}
	const int best = best_alone(all, &alone_s);
	if (best == NOBODY)
		why_add(out, -1, "no device alone holds it: %u devices of %u %s share its layers", chain->count, nodes,
			nodes == 1 ? "node" : "nodes");
	else if (alone_s > chain->value)
		why_add(out, -1, "%u devices of %u %s are %.2f times as fast as the best alone, %s", chain->count,
			nodes, nodes == 1 ? "node" : "nodes", alone_s / chain->value,
			device_of(all, (unsigned)best)->name);
	else
		why_add(out, -1, "%u devices of %u %s share its layers; %s alone is a processor, which is taken last",
			chain->count, nodes, nodes == 1 ? "node" : "nodes", device_of(all, (unsigned)best)->name);
}

// Where the time goes.
static void say_time(struct placement *out, const struct problem *all, const struct chain *chain)
{
	double compute_s = 0, slowest_s = 0;
	unsigned slowest = 0;
	if (out->seconds_per_token < 0)
		return;
	for (unsigned i = 0; i < chain->count; i++) {
		const double seconds = chain_stage_s(all, chain, i, 1);
		compute_s += seconds;
		if (seconds > slowest_s) {
			slowest_s = seconds;
			slowest = i;
		}
	}
	if (chain->count > 1)
		why_add(out, (int)all->devices[chain->at[slowest]].index,
			"a token of one request takes %.2f ms: %.2f ms of computing, of which %s takes %.2f ms, and "
			"%.2f ms on the links between them",
			out->seconds_per_token * 1e3, compute_s * 1e3, device_of(all, chain->at[slowest])->name,
			slowest_s * 1e3, (out->seconds_per_token - compute_s) * 1e3);
	if (all->wanted->objective == PLACE_THROUGHPUT)
		why_add(out, -1, "%u streams together get about %.1f tokens a second", all->wanted->sequences,
			out->tokens_per_s);
}

// The fastest device that is full.
static void say_binding(struct placement *out, const struct problem *all, const struct chain *chain)
{
	int full = NOBODY;
	for (unsigned i = 0; i < chain->count; i++)
		if ((int64_t)chain->layers[i] >= all->devices[chain->at[i]].room[flags_of(chain, i)] &&
		    chain->layers[i] < all->layers && (full < 0 || chain->at[i] < chain->at[full]))
			full = (int)i;
	if (full >= 0)
		why_add(out, (int)all->devices[chain->at[full]].index,
			"the memory of %s is the limit: of its %s free, %u %s all but %s; a layer takes %s",
			device_of(all, chain->at[full])->name, SIZE_TEXT(all->devices[chain->at[full]].free_bytes),
			chain->layers[full], chain->layers[full] == 1 ? "layer fills" : "layers fill",
			SIZE_TEXT(all->devices[chain->at[full]].free_bytes - cost_on_device(&out->stages[full].memory)),
			SIZE_TEXT(all->layer_bytes));
}

void why_placed(struct placement *out, const struct problem *all, const struct chain *chain)
{
	say_taken(out, all, chain);
	say_time(out, all, chain);
	say_binding(out, all, chain);
}

// ---- devices that are not used ----

// The best that there is with this device in the chain as well, or in place of another.
static double value_with(const struct problem *all, const struct chain *chain, unsigned device)
{
	double best = INFINITY;
	for (unsigned place = 0; place <= chain->count; place++)
		for (int instead = 0; instead < 2; instead++) {
			struct chain other = {.count = instead ? chain->count : chain->count + 1};
			if ((instead && place == chain->count) || other.count > all->most)
				continue;
			for (unsigned i = 0, from = 0; i < other.count; i++) {
				other.at[i] = i == place ? device : chain->at[from];
				from += i != place || instead;
			}
			if (chain_allowed(all, &other) && chain_split(all, &other) && other.value < best)
				best = other.value;
		}
	return best;
}

static void say_why_not(struct placement *out, const struct problem *all, const struct chain *chain, unsigned at,
			double until_s)
{
	const struct place_device *device = &all->devices[at];
	const char *name = device_of(all, at)->name;
	for (unsigned i = 0; i < chain->count; i++)
		if (device->pool >= 0 && all->devices[chain->at[i]].pool == device->pool) {
			why_add(out, (int)device->index, "%s shares its memory with %s, which is used", name,
				device_of(all, chain->at[i])->name);
			return;
		}
	if (!device->reaches) {
		why_add(out, (int)device->index,
			"the largest buffer is the limit: one buffer on %s holds at most %s, and the keys of a layer, "
			"which need one buffer for all tokens of the KV cache, take %s",
			name, SIZE_TEXT(device_of(all, at)->largest_buffer),
			SIZE_TEXT(cost_largest_piece(all->wanted, all->pages)));
		return;
	}
	if (device->room[0] < 1 && device->room[ROOM_EMBEDS] < 1 && device->room[ROOM_PREDICTS] < 1) {
		why_add(out, (int)device->index, "%s has no memory for a single layer: %s free, it takes %s", name,
			SIZE_TEXT(device->free_bytes), SIZE_TEXT(device->fixed_bytes[0] + all->layer_bytes));
		return;
	}
	if (out->why_count == PLACEMENT_WHYS || search_stopped(all->wanted) || search_clock_s() > until_s)
		return;
	const double with = value_with(all, chain, at);
	if (isinf(with))
		why_add(out, (int)device->index, "%s has room for %d layer%s, but does not fit into this chain", name,
			device->room[0], device->room[0] == 1 ? "" : "s");
	else if (with < chain->value * (1 - 1e-9))
		why_add(out, (int)device->index, "%s would make a token %.2f ms faster, but %s", name,
			(chain->value - with) * 1e3,
			device_of(all, at)->backend == PLACE_CPU ? "processors are taken last"
								 : "there was no time to try it");
	else if (llround(with * 1e5) == llround(chain->value * 1e5)) // alike as they are printed
		why_add(out, (int)device->index, "%s would make it no faster: %.2f ms a token with or without it", name,
			chain->value * 1e3);
	else
		why_add(out, (int)device->index, "%s would make it slower: %.2f instead of %.2f ms a token", name,
			with * 1e3, chain->value * 1e3);
}

void why_left_out(struct placement *out, const struct problem *all, const struct chain *chain, double until_s)
{
	const struct placement_wanted *wanted = all->wanted;
	for (unsigned i = 0; i < all->count; i++)
		if (!in_chain(chain, i))
			say_why_not(out, all, chain, i, until_s);
	for (unsigned i = 0; i < wanted->device_count; i++)
		if (cost_unusable(wanted, i))
			why_add(out, (int)i, "%s is left out: %s", wanted->devices[i].name, cost_unusable(wanted, i));
		else if (wanted->devices[i].software)
			why_add(out, (int)i,
				"%s is left out: it computes on the processor; pin it to use it all the same",
				wanted->devices[i].name);
}

// ---- assumptions ----

const char *why_node_name(const struct placement_wanted *wanted, unsigned node)
{
	for (unsigned i = 0; i < wanted->device_count; i++)
		if (wanted->devices[i].node == node)
			return wanted->devices[i].node_name ? wanted->devices[i].node_name : wanted->devices[i].node_id;
	return "";
}

static void tell_age(char text[32], int64_t age_s)
{
	const int64_t minute = 60, hour = 3600, day = 86400;
	if (age_s < 2 * minute)
		snprintf(text, 32, "just now");
	else if (age_s < 2 * hour)
		snprintf(text, 32, "%lld minutes ago", (long long)(age_s / minute));
	else if (age_s < 2 * day)
		snprintf(text, 32, "%lld hours ago", (long long)(age_s / hour));
	else
		snprintf(text, 32, "%lld days ago", (long long)(age_s / day));
}

// Say what the time of a layer is based on.
static void say_source(struct placement *out, const struct placement_wanted *wanted, const struct cost_time *time,
		       int device)
{
	const double busy = 2; // a spread: of runs on a device that is idle it is little over one
	char age[32], what[240];
	const struct placement_device *on = &wanted->devices[device];
	snprintf(what, sizeof what, "%s%.160s takes %.3f ms", on->slices ? "a whole layer on one of " : "a layer on ",
		 on->name, time->layer_s * 1e3);
	const char *when = time->by && time->by->spread >= busy ? ", when it was busy" : "";
	if (time->by)
		tell_age(age, time->by->age_s);
	if (time->here && time->same_size)
		why_add(out, device, "%s: measured %s%s", what, age, when);
	else if (time->here)
		why_add(out, device, "%s: by one of another size, measured there %s%s", what, age, when);
	else if (time->by)
		why_add(out, device,
			"%s: estimated from its memory's bandwidth, by the share of theirs that layers measured on %s "
			"reach",
			what, wanted->devices[time->by->device].name);
	else if (time->known)
		why_add(out, device, "%s: estimated from its memory's bandwidth", what);
}

void why_assumed(struct placement *out, const struct placement_wanted *wanted, const struct model_sizes *sizes)
{
	for (unsigned i = 0; i < out->hop_count; i++) {
		const struct placement_hop *hop = &out->hops[i];
		bool measured, said = false;
		for (unsigned j = 0; j < i; j++) // the way back is seldom another
			said |= out->hops[j].from_node == hop->to_node && out->hops[j].to_node == hop->from_node;
		const struct placement_link link = cost_link(wanted, hop->from_node, hop->to_node, &measured);
		if (!measured && !said)
			why_add(out, -1,
				"the link from %s to %s (%s) has not been measured in full: %.1f ms round trip and "
				"%.0f MB/s are counted",
				why_node_name(wanted, hop->from_node), why_node_name(wanted, hop->to_node),
				link.link_class, link.round_trip_s * 1e3, link.bytes_per_s / 1e6);
	}
	for (unsigned i = 0; i < out->stage_count; i++) {
		const struct placement_device *device = &wanted->devices[out->stages[i].device];
		const struct cost_time time = cost_time(wanted, sizes, out->stages[i].device);
		say_source(out, wanted, &time, (int)out->stages[i].device);
		if (!time.known)
			why_add(out, (int)out->stages[i].device,
				"the memory of %s has not been measured: %.0f GB/s were taken for it, so no time is "
				"told",
				device->name, cost_bandwidth(device) / 1e9);
		if (device->heat || cost_heat_rate(device) < 1)
			why_add(out, (int)out->stages[i].device, "%s %s, and counts with %.0f %% of its rate",
				device->name,
				!device->heat                    ? "would become too hot at its full rate"
				: device->heat == HEAT_WARM      ? "is almost too hot"
				: device->heat == HEAT_THROTTLED ? "has reduced its clock"
								 : "is too hot now",
				cost_heat_rate(device) * 100);
	}
}

// ---- what does not fit ----

static void say_none_usable(struct placement *out, const struct placement_wanted *wanted)
{
	const struct placement_device *first = NULL;
	unsigned draining = 0;
	for (unsigned i = 0; i < wanted->device_count; i++) {
		draining += wanted->devices[i].draining;
		first = !first && wanted->devices[i].draining ? &wanted->devices[i] : first;
	}
	if (!draining) {
		why_add(out, -1, "no device can be used");
		return;
	}
	why_add(out, -1, "no device can be used: %s%s%.0u%s draining", first->name, draining > 1 ? " and " : "",
		draining - 1,
		draining == 1   ? " is"
		: draining == 2 ? " other are"
				: " others are");
}

// All that can be used together, and the device that comes nearest.
void why_infeasible(struct placement *out, const struct problem *all, double until_s)
{
	const struct placement_wanted *wanted = all->wanted;
	const int both = ROOM_EMBEDS | ROOM_PREDICTS;
	struct chain roomiest;
	const int64_t rooms = greedy_roomiest(all, &roomiest);
	const struct placement_stage whole = {.layer_count = all->layers, .embeds = true, .predicts = true};
	const struct stage_memory memory = cost_memory(wanted, &all->sizes, all->pages, &whole);
	int nearest = NOBODY;
	bool reached = false;
	if (out->proof == PROOF_NOT_FOUND) {
		why_add(out, -1, "no placement was found in time; one may still exist");
		return;
	}
	for (unsigned i = 0; i < all->count; i++)
		if (nearest < 0 || all->devices[i].free_bytes > all->devices[nearest].free_bytes)
			nearest = (int)i;
	if (nearest < 0) {
		say_none_usable(out, wanted);
	} else {
		const struct place_device *device = &all->devices[nearest];
		const uint64_t needed = device->fixed_bytes[both] + all->layers * all->layer_bytes;
		out->missing_bytes = (uint64_t)(all->layers - rooms) * all->layer_bytes;
		if (!rooms && needed > device->free_bytes && needed - device->free_bytes < out->missing_bytes)
			out->missing_bytes = needed - device->free_bytes;
		why_add(out, (int)device->index,
			"%s: %s of weights, %s of KV cache for %u tokens and %s of workspace make %s; %s %s",
			device_of(all, (unsigned)nearest)->name, SIZE_TEXT(memory.weights_bytes),
			SIZE_TEXT(memory.kv_bytes), wanted->context_tokens, SIZE_TEXT(memory.workspace_bytes),
			SIZE_TEXT(needed), SIZE_TEXT(device->free_bytes),
			device_of(all, (unsigned)nearest)->free_known
				? "are free"
				: "exist; how much of it is free is not reported");
		for (unsigned i = 0; i < all->count; i++)
			reached |= all->devices[i].reaches;
		if (reached)
			why_add(out, -1,
				"memory is the limit: all devices together have room for %lld of its %u layers, %s "
				"less than "
				"it takes",
				(long long)rooms, all->layers, SIZE_TEXT(out->missing_bytes));
	}
	why_left_out(out, all, &roomiest, until_s);
}
