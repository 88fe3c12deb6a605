/* The first answer: devices by their score until the model fits, in an order that keeps neighbours together, then made
 * better by small changes for as long as that helps. And whether anything fits at all, which is decided exactly. */
#include "server/placement/placement_inside.h"

#include <stdlib.h>
#include <string.h>

enum { MORE_THAN_FIT = 3 }; // devices beyond those needed, for the first try

// ---- whether it fits ----

static bool conflict(const struct problem *problem, unsigned a, unsigned b)
{
	return a == b || (problem->devices[a].pool >= 0 && problem->devices[a].pool == problem->devices[b].pool);
}

// Devices for the middle, the one with the most room first; of devices that share memory only the first counts.
static unsigned by_room(const struct problem *problem, unsigned order[PLACEMENT_DEVICES])
{
	unsigned count = 0;
	for (unsigned i = 0; i < problem->count; i++) {
		unsigned at = count;
		if (problem->devices[i].room[0] < 1)
			continue;
		for (; at && problem->devices[order[at - 1]].room[0] < problem->devices[i].room[0]; at--)
			order[at] = order[at - 1];
		order[at] = i;
		count++;
	}
	return count;
}

// Between two ends the middle with the most room, of few devices rather than of many.
static int64_t fill_middle(const struct problem *problem, const unsigned *order, unsigned count, struct chain *chain,
			   unsigned last)
{
	int64_t rooms = problem->devices[chain->at[0]].room[ROOM_EMBEDS] + problem->devices[last].room[ROOM_PREDICTS];
	chain->count = 1;
	for (unsigned i = 0; i < count && chain->count + 1 < problem->most && rooms < problem->layers; i++) {
		bool free = !conflict(problem, order[i], last);
		for (unsigned j = 0; j < chain->count && free; j++)
			free = !conflict(problem, order[i], chain->at[j]);
		if (!free)
			continue;
		chain->at[chain->count++] = order[i];
		rooms += problem->devices[order[i]].room[0];
	}
	chain->at[chain->count++] = last;
	return rooms;
}

// Devices of a worker together: the first's behind it, the last's before it.
static void keep_together(const struct problem *problem, struct chain *chain)
{
	const struct chain from = *chain;
	const unsigned first = problem->devices[from.at[0]].group,
		       last = problem->devices[from.at[from.count - 1]].group;
	bool taken[PLACEMENT_STAGES] = {false};
	unsigned count = 0;
	for (int pass = 0; pass < 3; pass++) // the first's worker, others, the last's
		for (unsigned i = 0; i + 1 < from.count; i++) {
			const unsigned group = problem->devices[from.at[i]].group;
			const int own = group == first ? 0 : group == last ? 2 : 1;
			for (unsigned j = i; j + 1 < from.count && own == pass; j++)
				if (!taken[j] && problem->devices[from.at[j]].group == group) {
					chain->at[count++] = from.at[j];
					taken[j] = true;
				}
		}
}

int64_t greedy_roomiest(const struct problem *problem, struct chain *out)
{
	unsigned order[PLACEMENT_DEVICES];
	const unsigned count = by_room(problem, order);
	int64_t most = 0;
	out->count = 0;
	for (unsigned i = 0; i < problem->count; i++)
		if (problem->devices[i].room[ROOM_EMBEDS | ROOM_PREDICTS] > most) {
			most = problem->devices[i].room[ROOM_EMBEDS | ROOM_PREDICTS];
			*out = (struct chain){.at = {i}, .count = 1};
		}
	for (unsigned first = 0; first < problem->count && most < problem->layers && problem->most > 1; first++)
		for (unsigned last = 0; last < problem->count && most < problem->layers; last++) {
			struct chain chain = {.at = {first}, .count = 1};
			if (conflict(problem, first, last) || problem->devices[first].room[ROOM_EMBEDS] < 1 ||
			    problem->devices[last].room[ROOM_PREDICTS] < 1)
				continue;
			const int64_t rooms = fill_middle(problem, order, count, &chain, last);
			if (rooms > most) {
				most = rooms;
				*out = chain;
			}
		}
	if (out->count > 2)
		keep_together(problem, out);
	return most;
}

// ---- by score ----

static void by_score(const struct problem *problem, unsigned order[PLACEMENT_DEVICES])
{
	double totals[PLACEMENT_DEVICES];
	struct placement_score score;
	for (unsigned i = 0; i < problem->count; i++) {
		unsigned at = i;
		cost_score(problem, i, problem, &score);
		for (; at && totals[at - 1] < score.total; at--) {
			totals[at] = totals[at - 1];
			order[at] = order[at - 1];
		}
		totals[at] = score.total;
		order[at] = i;
	}
}

// The first `count` of the order, each worker's devices together, each next worker the nearest to the one before.
static void gather_chain(const struct problem *problem, const unsigned *order, unsigned count, struct chain *out)
{
	bool taken[PLACEMENT_STAGES] = {false};
	unsigned next = 0;
	out->count = 0;
	while (out->count < count) {
		const unsigned group = problem->devices[order[next]].group;
		for (unsigned i = 0; i < count; i++)
			if (!taken[i] && problem->devices[order[i]].group == group) {
				taken[i] = true;
				out->at[out->count++] = order[i];
			}
		double nearest = 1e9;
		for (unsigned i = 0; i < count; i++) {
			const double hop_s = taken[i] ? 1e9 : cost_hop_s(problem, out->at[out->count - 1], order[i], 1);
			if (hop_s < nearest) {
				nearest = hop_s;
				next = i;
			}
		}
	}
}

// ---- small changes ----

static bool try_chain(const struct problem *problem, struct chain *chain, struct chain *best)
{
	if (!chain_allowed(problem, chain) || !chain_split(problem, chain) || !chain_better(chain, best))
		return false;
	*best = *chain;
	return true;
}

static void insert(struct chain *chain, unsigned place, unsigned device)
{
	memmove(&chain->at[place + 1], &chain->at[place], (chain->count - place) * sizeof *chain->at);
	chain->at[place] = device;
	chain->count++;
}

static void take_out(struct chain *chain, unsigned place)
{
	chain->count--;
	memmove(&chain->at[place], &chain->at[place + 1], (chain->count - place) * sizeof *chain->at);
}

// Another device at this place, in addition or instead; or this one elsewhere, or not at all.
static bool change_at(const struct problem *problem, struct chain *best, unsigned place)
{
	const struct chain base = *best;
	struct chain chain;
	for (unsigned device = 0; device < problem->count; device++) {
		chain = base;
		if (chain.count < problem->most) {
			insert(&chain, place, device);
			if (try_chain(problem, &chain, best))
				return true;
		}
		if (place == base.count)
			continue;
		chain = base;
		chain.at[place] = device;
		if (try_chain(problem, &chain, best))
			return true;
	}
	if (place == base.count || base.count < 2)
		return false;
	struct chain without = base;
	take_out(&without, place);
	chain = without;
	if (try_chain(problem, &chain, best))
		return true;
	for (unsigned to = 0; to <= without.count; to++) {
		chain = without;
		insert(&chain, to, base.at[place]);
		if (try_chain(problem, &chain, best))
			return true;
	}
	return false;
}

void greedy_improve(const struct problem *problem, struct chain *best, double until_s)
{
	bool better = best->count > 0;
	while (better) {
		better = false;
		for (unsigned place = 0; place <= best->count && !better; place++) {
			if (search_clock_s() > until_s || search_stopped(problem->wanted))
				return;
			better = change_at(problem, best, place);
		}
	}
}

void greedy_find(const struct problem *problem, struct chain *best)
{
	unsigned order[PLACEMENT_DEVICES], fits = 0;
	struct chain chain;
	by_score(problem, order);
	const unsigned most = problem->count < problem->most ? problem->count : problem->most;
	for (unsigned count = 1; count <= most && (!fits || count < fits + MORE_THAN_FIT); count++) {
		if (fits && search_stopped(problem->wanted))
			break;
		gather_chain(problem, order, count, &chain);
		if (try_chain(problem, &chain, best) && !fits)
			fits = count;
	}
	if (!best->count && greedy_roomiest(problem, &chain) >= problem->layers)
		try_chain(problem, &chain, best);
}
