/* Finds changes that would make a placement faster, or possible: each is tried by solving again with more of one thing,
 * while there is time. */
#include "server/placement/placement_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRIED = 4, GIGABIT = 125000000, LEAST_CONTEXT = 512, DOUBLINGS = 9 };
#define GIB (1024ull * 1024 * 1024)

static const double worth_telling = 0.02; // part of the time
static const double budget_s = 0.25;      // of one question

// The problem with copies that can be changed. Owns devices and links.
struct changed {
	struct placement_wanted wanted;
	struct placement_device *devices;
	struct placement_link *links;
	double until_s;
};

static void changed_destroy(struct changed *changed)
{
	free(changed->devices);
	free(changed->links);
}

static bool changed_init(struct changed *changed, const struct problem *all, double until_s)
{
	const struct placement_wanted *wanted = all->wanted;
	const size_t links = (size_t)wanted->node_count * wanted->node_count;
	*changed = (struct changed){.wanted = *wanted, .until_s = until_s};
	changed->devices = calloc(wanted->device_count, sizeof *changed->devices);
	changed->links = calloc(links ? links : 1, sizeof *changed->links);
	if (!changed->devices || !changed->links) {
		changed_destroy(changed);
		return false;
	}
	memcpy(changed->devices, wanted->devices, wanted->device_count * sizeof *changed->devices);
	if (wanted->links)
		memcpy(changed->links, wanted->links, links * sizeof *changed->links);
	changed->wanted.devices = changed->devices;
	changed->wanted.links = changed->links;
	changed->wanted.sizes = &all->sizes; // in the format that was taken
	changed->wanted.format = FORMAT_UNKNOWN;
	return true;
}

static bool time_is_up(const struct changed *changed)
{
	return search_stopped(&changed->wanted) || search_clock_s() > changed->until_s;
}

// INFINITY: there is nothing, or no time to look.
static double again(const struct changed *changed)
{
	const double until_s = search_clock_s() + budget_s;
	if (time_is_up(changed))
		return INFINITY;
	return placement_value(&changed->wanted, until_s < changed->until_s ? until_s : changed->until_s);
}

static bool worth(double value, double than)
{
	return value < than * (1 - worth_telling);
}

// ---- faster ----

// Full devices of the chain, and the fastest one outside it: where memory would count.
static unsigned short_of_memory(const struct problem *all, const struct chain *chain, unsigned out[MOST_TRIED])
{
	unsigned count = 0;
	bool outside = false;
	for (unsigned i = 0; i < all->count && count < MOST_TRIED; i++) {
		unsigned place = 0;
		while (place < chain->count && chain->at[place] != i)
			place++;
		if (place == chain->count) {
			if (!outside && all->devices[i].room[ROOM_EMBEDS | ROOM_PREDICTS] < (int64_t)all->layers)
				out[count++] = i;
			outside = true;
		} else {
			const unsigned flags = (place ? 0u : ROOM_EMBEDS) |
					       (place == chain->count - 1 ? ROOM_PREDICTS : 0u);
			if (all->devices[i].room[flags] <= (int64_t)chain->layers[place] &&
			    (chain->layers[place] < all->layers || chain->host_layers[place]))
				out[count++] = i;
		}
	}
	return count;
}

static void more_memory(struct placement *out, const struct problem *all, const struct chain *chain,
			struct changed *changed)
{
	unsigned tried[MOST_TRIED];
	const unsigned count = short_of_memory(all, chain, tried);
	double best = chain->value;
	int of = NOBODY;
	for (unsigned i = 0; i < count; i++) {
		struct placement_device *device = &changed->devices[all->devices[tried[i]].index];
		device->free_bytes += GIB;
		const double value = again(changed);
		device->free_bytes -= GIB;
		if (value < best) {
			best = value;
			of = (int)all->devices[tried[i]].index;
		}
	}
	if (of >= 0 && worth(best, chain->value))
		remedy_add(out, of, "1 GiB more on %s: %.2f instead of %.2f ms a token", all->wanted->devices[of].name,
			   best * 1e3, chain->value * 1e3);
}

// The slowest hop to another node, both ways, as fast as a gigabit; and direct, where it goes by way of the server.
static void faster_hop(struct placement *out, const struct problem *all, const struct chain *chain,
		       struct changed *changed)
{
	const struct placement_hop *slowest = NULL;
	const unsigned nodes = all->wanted->node_count;
	bool measured;
	for (unsigned i = 0; i < out->hop_count; i++)
		if (!slowest || out->hops[i].seconds_per_token > slowest->seconds_per_token)
			slowest = &out->hops[i];
	if (!slowest)
		return;
	const unsigned from = slowest->from_node, to = slowest->to_node;
	const char *from_name = why_node_name(all->wanted, from), *to_name = why_node_name(all->wanted, to);
	struct placement_link *ways[2] = {&changed->links[from * nodes + to], &changed->links[to * nodes + from]};
	const struct placement_link before[2] = {*ways[0], *ways[1]},
				    counted[2] = {cost_link(all->wanted, from, to, &measured),
						  cost_link(all->wanted, to, from, &measured)};
	for (int direct = 0; direct < 2; direct++) {
		if (direct ? counted[0].direct || !all->wanted->links : counted[0].bytes_per_s >= GIGABIT)
			continue;
		for (int i = 0; i < 2; i++) {
			*ways[i] = counted[i];
			ways[i]->known = true;
			ways[i]->bytes_per_s = !direct && counted[i].bytes_per_s < GIGABIT ? GIGABIT
											   : counted[i].bytes_per_s;
			ways[i]->round_trip_s = direct ? counted[i].round_trip_s / 2 : counted[i].round_trip_s;
		}
		const double value = again(changed);
		if (worth(value, chain->value))
			remedy_add(out, -1, "%s, from %s to %s, %s: %.2f instead of %.2f ms a token",
				   direct ? "a direct link" : "the slowest hop", from_name, to_name,
				   direct ? "instead of the path through the server, with half its round trip"
					  : "at 1 Gbit/s",
				   value * 1e3, chain->value * 1e3);
		*ways[0] = before[0];
		*ways[1] = before[1];
	}
}

void remedies_find(struct placement *out, const struct problem *all, const struct chain *chain, double until_s)
{
	struct changed changed;
	if (!changed_init(&changed, all, until_s))
		return;
	more_memory(out, all, chain, &changed);
	faster_hop(out, all, chain, &changed);
	changed_destroy(&changed);
}

// ---- possible ----

static bool fits(const struct changed *changed)
{
	return !isinf(placement_value(&changed->wanted, 0));
}

// The first device that is draining and would do by itself; else all of them, where they would together.
static void back_in_service(struct placement *out, const struct problem *all, struct changed *changed)
{
	const struct placement_device *given = all->wanted->devices;
	const unsigned count = all->wanted->device_count;
	unsigned draining = 0;
	for (unsigned i = 0; i < count && !time_is_up(changed); i++) {
		if (!given[i].draining)
			continue;
		draining++;
		changed->devices[i].unusable = NULL;
		if (fits(changed)) {
			remedy_add(out, (int)i, "with %s back in service it would fit: exogpu devices return %s",
				   given[i].name, given[i].device_id);
			draining = 0;
			break;
		}
		changed->devices[i].unusable = given[i].unusable;
	}
	for (unsigned i = 0; i < count; i++)
		changed->devices[i].unusable = given[i].draining ? NULL : given[i].unusable;
	if (draining > 1 && !time_is_up(changed) && fits(changed))
		remedy_add(out, -1, "with the %u devices that are draining back in service it would fit", draining);
	for (unsigned i = 0; i < count; i++)
		changed->devices[i].unusable = given[i].unusable;
}

void remedies_infeasible(struct placement *out, const struct problem *all, double until_s)
{
	struct changed changed;
	uint64_t least = GIB << DOUBLINGS;
	int of = NOBODY;
	if (!changed_init(&changed, all, until_s))
		return;
	back_in_service(out, all, &changed);
	for (unsigned i = 0; i < all->count && i < MOST_TRIED; i++) { // the fewest GiB, by doubling and halving
		const unsigned index = all->devices[i].index;
		const uint64_t has = changed.devices[index].free_bytes;
		uint64_t low = 0, high = least / GIB;
		while (high - low > 1 && !time_is_up(&changed)) {
			const uint64_t middle = (low + high) / 2;
			changed.devices[index].free_bytes = has + middle * GIB;
			if (fits(&changed))
				high = middle;
			else
				low = middle;
		}
		changed.devices[index].free_bytes = has;
		if (high * GIB < least) {
			least = high * GIB;
			of = (int)index;
		}
	}
	if (of >= 0)
		remedy_add(out, of, "with %llu GiB more on %s it would fit", (unsigned long long)(least / GIB),
			   all->wanted->devices[of].name);
	for (uint32_t context = all->wanted->context_tokens / 2; context >= LEAST_CONTEXT && !time_is_up(&changed);
	     context /= 2) {
		changed.wanted.context_tokens = context;
		if (!fits(&changed))
			continue;
		remedy_add(out, -1, "with a context of %u tokens it would fit", context);
		break;
	}
	changed_destroy(&changed);
}
