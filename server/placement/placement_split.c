/* The layers of a chain of devices, split exactly.
 *
 * For the time of one stream the fastest devices get all that they have room for. For many streams lanes of sequences
 * go round at once, 1, 2, 4 and so on or as many as there are parts (but no more than sequences), whichever is the
 * fastest, as the generator has it: a turn lasts as long as the slowest part or hop takes for all lanes, or as long as
 * one lane's whole way round, whichever is longer. The shortest turn of so many lanes is found by bisection over what
 * the slowest part may take: given that, each device takes layers up to its room and its part's time, the fastest
 * first, which makes the way round the shortest. */
#include "server/placement/placement_inside.h"

#include <math.h>
#include <string.h>

enum { BISECTIONS = 50, PROMPT_PIECES = 4 }; // pieces: as the generator makes them

static unsigned role(const struct chain *chain, unsigned i)
{
	return (i == 0 ? ROOM_EMBEDS : 0u) | (i == chain->count - 1 ? ROOM_PREDICTS : 0u);
}

static int32_t room(const struct problem *problem, const struct chain *chain, unsigned i)
{
	return problem->devices[chain->at[i]].room[role(chain, i)];
}

unsigned chain_parts(const struct problem *problem, const struct chain *chain)
{
	unsigned parts = 1;
	for (unsigned i = 1; i < chain->count; i++)
		parts += problem->devices[chain->at[i]].group != problem->devices[chain->at[i - 1]].group;
	return parts;
}

bool chain_allowed(const struct problem *problem, const struct chain *chain)
{
	for (unsigned i = 0; i < chain->count; i++) {
		const struct place_device *one = &problem->devices[chain->at[i]];
		if (room(problem, chain, i) < 1)
			return false;
		for (unsigned j = 0; j < i; j++) {
			const struct place_device *before = &problem->devices[chain->at[j]];
			const bool comes_back = before->group == one->group &&
						problem->devices[chain->at[i - 1]].group != one->group;
			const bool closes = i == chain->count - 1 && problem->devices[chain->at[0]].group == one->group;
			if (chain->at[i] == chain->at[j] || (one->pool >= 0 && one->pool == before->pool) ||
			    (comes_back && !closes))
				return false;
		}
	}
	return chain->count > 0 && chain->count <= problem->most;
}

// ---- measuring ----

struct turn {
	double slowest_s, round_s; // of a part or hop; of a lane's whole way
};

double chain_stage_s(const struct problem *problem, const struct chain *chain, unsigned place, double rows)
{
	const struct place_device *device = &problem->devices[chain->at[place]];
	const uint32_t host = chain->host_layers[place];
	double seconds = (chain->layers[place] - host) * device->layer_s + host * device->host_layer_s;
	if (place == chain->count - 1)
		seconds += device->output_s;
	return seconds * cost_batch(device, rows) + cost_stage_s();
}

static struct turn turn_of(const struct problem *problem, const struct chain *chain, double rows)
{
	struct turn turn = {0};
	double part_s = 0;
	for (unsigned i = 0; i < chain->count; i++) {
		if (i) {
			const bool same = problem->devices[chain->at[i]].group ==
					  problem->devices[chain->at[i - 1]].group;
			const double hop_s = cost_hop_s(problem, chain->at[i - 1], chain->at[i], rows),
				     busy_s = cost_hop_busy_s(problem, chain->at[i - 1], chain->at[i], rows);
			part_s = same ? part_s + hop_s : 0;
			turn.slowest_s = busy_s > turn.slowest_s ? busy_s : turn.slowest_s;
			turn.round_s += hop_s;
		}
		const double seconds = chain_stage_s(problem, chain, i, rows);
		part_s += seconds;
		turn.round_s += seconds;
		turn.slowest_s = part_s > turn.slowest_s ? part_s : turn.slowest_s;
	}
	if (chain_parts(problem, chain) > 1)
		turn.round_s += cost_close_s(problem, chain->at[chain->count - 1], chain->at[0]);
	return turn;
}

static unsigned most_lanes(const struct problem *problem, const struct chain *chain)
{
	const unsigned parts = chain_parts(problem, chain);
	return parts < problem->wanted->sequences ? parts : problem->wanted->sequences;
}

// The next number of lanes that may be chosen; 0 after `most`.
static unsigned more_lanes(unsigned lanes, unsigned most)
{
	return lanes == most ? 0 : lanes * 2 < most ? lanes * 2 : most;
}

// A token of all sequences, in so many lanes.
static double lanes_s(const struct problem *problem, const struct chain *chain, unsigned lanes)
{
	const double all = problem->wanted->sequences;
	const struct turn turn = turn_of(problem, chain, all / lanes);
	return fmax(lanes * turn.slowest_s, turn.round_s) / all;
}

double chain_stream_s(const struct problem *problem, const struct chain *chain)
{
	return turn_of(problem, chain, 1).round_s;
}

double chain_together_s(const struct problem *problem, const struct chain *chain)
{
	const unsigned most = most_lanes(problem, chain);
	double best = INFINITY;
	for (unsigned lanes = 1; lanes; lanes = more_lanes(lanes, most))
		best = fmin(best, lanes_s(problem, chain, lanes));
	return best;
}

// A long prompt goes round in PROMPT_PIECES pieces for each part, as many at once as there are parts: the first ones
// have to reach the last part before all are at work.
double chain_prompt_s(const struct problem *problem, const struct chain *chain)
{
	double slowest_s = 0, part_s = 0, round_s = 0;
	const double parts = chain_parts(problem, chain), pieces = PROMPT_PIECES * parts;
	for (unsigned i = 0; i < chain->count; i++) {
		const struct place_device *one = &problem->devices[chain->at[i]];
		if (one->prompt_s < 0 || chain->host_layers[i])
			return -1;
		if (i && one->group != problem->devices[chain->at[i - 1]].group) {
			const double busy_s = cost_hop_busy_s(problem, chain->at[i - 1], chain->at[i], 1);
			part_s = 0;
			round_s += busy_s;
			slowest_s = fmax(slowest_s, busy_s);
		}
		part_s += chain->layers[i] * one->prompt_s;
		round_s += chain->layers[i] * one->prompt_s;
		slowest_s = fmax(slowest_s, part_s);
	}
	return fmax(slowest_s, round_s / parts) * (pieces + parts - 1) / pieces;
}

void chain_measure(const struct problem *problem, struct chain *chain)
{
	chain->value = problem->wanted->objective == PLACE_THROUGHPUT ? chain_together_s(problem, chain)
								      : chain_stream_s(problem, chain);
	chain->bytes = chain->load = 0;
	for (unsigned i = 0; i < chain->count; i++) {
		const struct place_device *one = &problem->devices[chain->at[i]];
		const double used = (double)(one->fixed_bytes[role(chain, i)] +
					     chain->layers[i] * problem->layer_bytes);
		const double load = one->free_bytes ? used / (double)one->free_bytes : 1;
		chain->load = load > chain->load ? load : chain->load;
		if (i && one->node != problem->devices[chain->at[i - 1]].node)
			chain->bytes += (double)problem->hop_bytes;
	}
}

bool chain_better(const struct chain *a, const struct chain *b)
{
	const double close = b->value * 1e-9;
	if (!b->count || fabs(a->value - b->value) > close)
		return !b->count || a->value < b->value;
	return a->bytes != b->bytes ? a->bytes < b->bytes : a->load < b->load - 1e-9;
}

// ---- splitting ----

// Positions of the chain, in the order of their devices' speed.
static void by_speed(const struct problem *problem, const struct chain *chain, double rows,
		     unsigned order[PLACEMENT_STAGES])
{
	double keys[PLACEMENT_STAGES];
	for (unsigned i = 0; i < chain->count; i++) {
		const struct place_device *device = &problem->devices[chain->at[i]];
		const double key = device->layer_s * cost_batch(device, rows);
		unsigned at = i;
		for (; at && keys[at - 1] > key; at--) {
			keys[at] = keys[at - 1];
			order[at] = order[at - 1];
		}
		keys[at] = key;
		order[at] = i;
	}
}

// Give each one layer, and the rest to the fastest that have room and time; `part_s` NULL: time does not matter.
// Returns how many layers are left over.
static uint32_t fill(const struct problem *problem, struct chain *chain, const unsigned *order, double rows,
		     double *part_s, const unsigned *part_of)
{
	uint32_t left = problem->layers - chain->count;
	for (unsigned k = 0; k < chain->count; k++) {
		const unsigned i = order[k];
		const struct place_device *device = &problem->devices[chain->at[i]];
		const double layer_s = device->layer_s * cost_batch(device, rows);
		uint32_t more = (uint32_t)room(problem, chain, i) - 1;
		more = more < left ? more : left;
		if (part_s && more * layer_s > part_s[part_of[i]])
			more = (uint32_t)fmax(0, floor(part_s[part_of[i]] / layer_s * (1 + 1e-12)));
		if (part_s)
			part_s[part_of[i]] -= more * layer_s;
		chain->layers[i] = 1 + more;
		left -= more;
	}
	return left;
}

struct turning {
	const struct problem *problem;
	struct chain *chain;
	unsigned order[PLACEMENT_STAGES], part_of[PLACEMENT_STAGES];
	double least_s[PLACEMENT_STAGES]; // of a part: one layer each, output, hops within
	double rows, lanes;
	unsigned parts;
};

// Split so that no part takes longer than `slowest_s`. True if that can be, and the way round is no longer than the
// turn of all lanes.
static bool split_within(struct turning *turning, double slowest_s)
{
	double part_s[PLACEMENT_STAGES];
	for (unsigned i = 0; i < turning->parts; i++) {
		part_s[i] = slowest_s - turning->least_s[i];
		if (part_s[i] < 0)
			return false;
	}
	if (fill(turning->problem, turning->chain, turning->order, turning->rows, part_s, turning->part_of))
		return false;
	return turn_of(turning->problem, turning->chain, turning->rows).round_s <= turning->lanes * slowest_s;
}

static void split_turns(const struct problem *problem, struct chain *chain, unsigned lanes)
{
	struct turning turning = {.problem = problem, .chain = chain, .lanes = lanes};
	turning.rows = problem->wanted->sequences / turning.lanes;
	by_speed(problem, chain, turning.rows, turning.order);
	for (unsigned i = 0; i < chain->count; i++) {
		const bool same = i && problem->devices[chain->at[i]].group == problem->devices[chain->at[i - 1]].group;
		turning.parts += !same;
		turning.part_of[i] = turning.parts - 1;
		chain->layers[i] = 1;
		turning.least_s[turning.parts - 1] += chain_stage_s(problem, chain, i, turning.rows) +
						      (same ? cost_hop_s(problem, chain->at[i - 1], chain->at[i],
									 turning.rows)
							    : 0);
	}
	fill(problem, chain, turning.order, turning.rows, NULL, NULL);
	const struct turn widest = turn_of(problem, chain, turning.rows);
	// A round is never shorter than this: if no part delays it, nothing is better.
	if (turning.lanes * widest.slowest_s <= widest.round_s)
		return;
	double low = widest.round_s / turning.lanes, high = widest.slowest_s;
	low = low > 0 ? low * (1 - 1e-9) : 0;
	for (unsigned i = 0; i < BISECTIONS && high - low > high * 1e-13; i++) {
		const double middle = (low + high) / 2;
		if (split_within(&turning, middle))
			high = middle;
		else
			low = middle;
	}
	if (!split_within(&turning, high)) // equals the widest, except for rounding
		fill(problem, chain, turning.order, turning.rows, NULL, NULL);
}

// Try all numbers of micro-batches.
static void split_best(const struct problem *problem, struct chain *chain)
{
	const unsigned most = most_lanes(problem, chain);
	struct chain one = *chain;
	double best = INFINITY;
	for (unsigned lanes = 1; lanes; lanes = more_lanes(lanes, most)) {
		split_turns(problem, &one, lanes);
		const double seconds = lanes_s(problem, &one, lanes);
		if (seconds < best)
			*chain = one;
		best = fmin(best, seconds);
	}
}

bool chain_split(const struct problem *problem, struct chain *chain)
{
	unsigned order[PLACEMENT_STAGES];
	int64_t rooms = 0;
	for (unsigned i = 0; i < chain->count; i++) {
		chain->host_layers[i] = 0;
		rooms += room(problem, chain, i);
	}
	if (rooms < problem->layers)
		return false;
	if (problem->wanted->objective == PLACE_THROUGHPUT) {
		split_best(problem, chain);
	} else {
		by_speed(problem, chain, 1, order);
		fill(problem, chain, order, 1, NULL, NULL);
	}
	chain_measure(problem, chain);
	return true;
}

void chain_balance(const struct problem *problem, struct chain *chain)
{
	struct chain even = *chain;
	bool done[PLACEMENT_STAGES] = {false};
	for (unsigned i = 0; i < chain->count; i++) {
		const double layer_s = problem->devices[chain->at[i]].layer_s;
		uint64_t rooms = 0, layers = 0, given = 0;
		for (unsigned j = i; j < chain->count; j++) {
			if (done[j] || problem->devices[chain->at[j]].layer_s != layer_s)
				continue;
			rooms += (uint32_t)room(problem, chain, j);
			layers += chain->layers[j];
		}
		for (unsigned j = i; j < chain->count; j++) {
			if (done[j] || problem->devices[chain->at[j]].layer_s != layer_s)
				continue;
			const uint64_t own = (uint32_t)room(problem, chain, j), part = layers * own / rooms;
			even.layers[j] = part < 1 ? 1 : (uint32_t)part;
			given += even.layers[j];
			done[j] = true;
		}
		for (unsigned j = i; given != layers; j = j + 1 < chain->count ? j + 1 : i) {
			if (problem->devices[chain->at[j]].layer_s != layer_s)
				continue;
			if (given < layers && even.layers[j] < (uint32_t)room(problem, chain, j)) {
				even.layers[j]++;
				given++;
			} else if (given > layers && even.layers[j] > 1) {
				even.layers[j]--;
				given--;
			}
		}
	}
	chain_measure(problem, &even);
	if (even.value <= chain->value * (1 + 1e-9) && even.load < chain->load)
		*chain = even;
}
