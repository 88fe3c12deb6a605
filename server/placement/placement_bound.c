/* Lower bounds of partial chains; see placement_bound.h and docs/placement.md. Order of reading: search_bound,
 * round_bound (one stream), together_bound (throughput), lanes_bound, find_within. */
#include "server/placement/placement_bound.h"

#include <math.h>

enum { BOUND_BISECTIONS = 10 };

static int32_t member_room(const struct search *search, unsigned device)
{
	return search->problem->devices[device].room[device == search->chain.at[0] ? ROOM_EMBEDS
						     : device == search->last      ? ROOM_PREDICTS
										   : 0];
}

bool search_may_come(const struct search *search, unsigned device)
{
	const struct problem *problem = search->problem;
	const struct place_device *one = &problem->devices[device];
	const unsigned end = search->chain.at[search->chain.count - 1], group = problem->devices[end].group,
		       last_group = problem->devices[search->last].group;
	if (one->pool >= 0 && search->pool_used[one->pool])
		return false;
	if (one->group == group)
		return search->chain.count == 1 || device > end;
	// A worker is entered once, and the last one's not left again, but where it is the first one's too.
	return !search->group_used[one->group] &&
	       !(group == last_group && last_group != problem->devices[search->chain.at[0]].group);
}

// A lower bound of the time of all layers for one row: on the members, each with at least one layer, and on the fastest
// other devices; `near`: only on those on the nodes of the current end and the last. INFINITY: they do not fit.
static double layers_bound(const struct search *search, bool near)
{
	const struct problem *problem = search->problem;
	const unsigned here = problem->devices[search->chain.at[search->chain.count - 1]].node,
		       there = problem->devices[search->last].node;
	int64_t left = (int64_t)problem->layers - search->chain.count - 1;
	double seconds = 0;
	for (unsigned i = 0; i < problem->count; i++) {
		const struct place_device *device = &problem->devices[i];
		int64_t room = device->room[0];
		if (search->used[i]) {
			seconds += device->layer_s;
			room = member_room(search, i) - 1;
		} else if ((near && device->node != here && device->node != there) || !search_may_come(search, i)) {
			continue;
		}
		room = room < left ? room : left;
		if (room > 0) {
			seconds += (double)room * device->layer_s;
			left -= room;
		}
	}
	return left > 0 ? INFINITY : seconds;
}

// How many more devices it takes at least, and how many other nodes.
struct deficit {
	unsigned devices, nodes;
};

static struct deficit deficit_of(const struct search *search)
{
	const struct problem *problem = search->problem;
	const unsigned here = problem->devices[search->chain.at[search->chain.count - 1]].node,
		       there = problem->devices[search->last].node;
	int64_t left = problem->layers, elsewhere, rooms[PLACEMENT_NODES] = {0};
	int32_t largest = 0;
	struct deficit deficit = {0};
	for (unsigned i = 0; i < problem->count; i++) {
		const struct place_device *device = &problem->devices[i];
		if (search->used[i]) {
			left -= member_room(search, i);
		} else if (device->room[0] > 0 && search_may_come(search, i)) {
			rooms[device->node] += device->room[0];
			largest = device->room[0] > largest ? device->room[0] : largest;
		}
	}
	if (left <= 0)
		return deficit;
	deficit.devices = largest ? (unsigned)((left + largest - 1) / largest) : 1;
	elsewhere = left - rooms[here] - (there != here ? rooms[there] : 0);
	rooms[here] = rooms[there] = 0;
	while (elsewhere > 0) {
		unsigned most = 0;
		for (unsigned i = 1; i < problem->wanted->node_count; i++)
			most = rooms[i] > rooms[most] ? i : most;
		deficit.nodes++;
		if (!rooms[most])
			break;
		elsewhere -= rooms[most];
		rooms[most] = 0;
	}
	return deficit;
}

static double in_batch(double seconds, double batch)
{
	return isinf(seconds) ? seconds : seconds * batch;
}

// The least time of one row's way round: layers and output, so many times as long; and what stages and hops add.
static double round_bound(const struct search *search, double batch)
{
	const struct problem *problem = search->problem;
	const struct place_device *first = &problem->devices[search->chain.at[0]],
				  *end = &problem->devices[search->chain.at[search->chain.count - 1]],
				  *last = &problem->devices[search->last];
	const struct deficit deficit = deficit_of(search);
	if (search->chain.count + 1 + deficit.devices > problem->most)
		return INFINITY;
	const double inside = cost_hop_s(problem, 0, 0, 1);
	const bool parts = last->group != first->group || end->group != first->group;
	const double fixed = search->hops_s + (search->chain.count + 1) * cost_stage_s() +
			     (parts ? problem->hop_latency_s[last->node][first->node] : 0);
	const double output = last->output_s * batch;
	double best = INFINITY;
	if (!deficit.nodes) { // by nothing but these two nodes
		const double hop = end->node != last->node ? problem->hop_latency_s[end->node][last->node] +
								     problem->hop_wire_s[end->node][last->node]
				   : end->group != last->group ? problem->hop_latency_s[end->node][end->node]
							       : inside;
		best = in_batch(layers_bound(search, true), batch) + hop + deficit.devices * (cost_stage_s() + inside);
	}
	if (problem->wanted->node_count > 1) { // by others
		const unsigned nodes = deficit.nodes > 1 ? deficit.nodes : 1;
		const double way = problem->least_out_s[end->node] + problem->least_in_s[last->node] +
				   (nodes - 1) * problem->least_hop_s + nodes * cost_stage_s();
		const double other = in_batch(layers_bound(search, false), batch) + way;
		best = other < best ? other : best;
	}
	return best + fixed + output;
}

static const struct lanes *lanes_at(const struct search *search, unsigned number)
{
	const struct problem *problem = search->problem;
	struct lanes *lanes = &search->lanes[number];
	const double rows = (double)problem->wanted->sequences / number;
	if (lanes->known)
		return lanes;
	*lanes = (struct lanes){.known = true, .number = number, .least = INFINITY};
	for (unsigned i = 0; i < problem->count; i++) {
		const struct place_device *device = &problem->devices[i];
		const double batch = cost_batch(device, rows);
		unsigned at = i;
		lanes->least = batch < lanes->least ? batch : lanes->least;
		lanes->layer_s[i] = device->layer_s * batch / rows;
		lanes->output_s[i] = device->output_s * batch / rows;
		for (; at && lanes->layer_s[lanes->order[at - 1]] > lanes->layer_s[i]; at--)
			lanes->order[at] = lanes->order[at - 1];
		lanes->order[at] = (unsigned short)i;
	}
	return lanes;
}

// What fits if no part may take longer than so long for a token, in the batches of so many lanes.
struct within {
	double layers[PLACEMENT_DEVICES]; // of each present and possible worker (group), at most
	double of_last;                   // of the last stage, where that is a part of its own
	double all_s; // the least time of all layers so: the fastest first. Of fewer, if they do not all fit
};

// Within its time a worker takes whole layers: the most, and in the least time, on its fastest devices.
static void find_within(const struct search *search, double slowest_s, const struct lanes *lanes, struct within *out)
{
	const struct problem *problem = search->problem;
	const bool apart = problem->devices[search->last].group == problem->devices[search->chain.at[0]].group;
	double budget[PLACEMENT_DEVICES], left = problem->layers;
	for (unsigned i = 0; i < problem->group_count; i++) {
		budget[i] = slowest_s;
		out->layers[i] = 0;
	}
	out->of_last = out->all_s = 0;
	const struct place_device *last = &problem->devices[search->last];
	const double output_s = lanes->output_s[search->last];
	double alone = slowest_s - output_s;
	if (!apart) // the last one's worker has nothing else
		budget[last->group] -= output_s;
	for (unsigned k = 0; k < problem->count; k++) {
		const unsigned i = lanes->order[k];
		const struct place_device *device = &problem->devices[i];
		const double layer_s = lanes->layer_s[i];
		const bool own = apart && i == search->last;
		double *time_s = own ? &alone : &budget[device->group];
		double room = 0;
		if (search->used[i])
			room = member_room(search, i);
		else if (search_may_come(search, i))
			room = device->room[0];
		if (room <= 0 || *time_s <= 0)
			continue;
		room = fmin(room, floor(*time_s / layer_s * (1 + 1e-9)));
		*time_s -= room * layer_s;
		*(own ? &out->of_last : &out->layers[device->group]) += room;
		room = fmin(room, left);
		left -= room;
		out->all_s += room * layer_s;
	}
}

// Whether all layers fit so, with so many workers more than there are, and go round within the time of all lanes.
// `way_s`: of a token in one lane, the least time of all but its layers.
static bool fits_within(const struct search *search, double slowest_s, const struct lanes *lanes, unsigned more,
			double way_s)
{
	const struct problem *problem = search->problem;
	struct within within;
	find_within(search, slowest_s, lanes, &within);
	double left = problem->layers - within.of_last, *layers = within.layers;
	const unsigned last_group = problem->devices[search->last].group;
	for (unsigned i = 0; i < problem->group_count; i++)
		if (search->group_used[i] || i == last_group) {
			left -= layers[i];
			layers[i] = 0;
		}
	for (; more && left > 1e-6; more--) {
		unsigned most = 0;
		for (unsigned i = 1; i < problem->group_count; i++)
			most = layers[i] > layers[most] ? i : most;
		if (layers[most] <= 0)
			break;
		left -= layers[most];
		layers[most] = 0;
	}
	return left <= 1e-6 && (within.all_s + lanes->output_s[search->last]) / lanes->number + way_s <= slowest_s;
}

// The least time of a token of all sequences, if they go round in so many lanes; INFINITY: it is not less than `limit`.
static double lanes_bound(const struct search *search, unsigned number, unsigned parts, double limit)
{
	const struct problem *problem = search->problem;
	const unsigned all = problem->wanted->sequences;
	const struct lanes *lanes = lanes_at(search, number);
	// As many lanes as parts, or fewer: one, two, four and so on.
	const unsigned more = number < all && (number & (number - 1)) ? number - parts : problem->most;
	const double way_s = round_bound(search, 0) / all;
	double low = round_bound(search, lanes->least) / all, high = limit;
	if (low >= limit || fits_within(search, low, lanes, more, way_s))
		return low < limit ? low : INFINITY;
	if (isinf(high)) { // as if the slowest did it all
		high = lanes->layer_s[lanes->order[problem->count - 1]] * problem->layers +
		       lanes->output_s[search->last] + way_s;
		high = high > low ? high : low;
	}
	if (!fits_within(search, high, lanes, more, way_s))
		return INFINITY;
	for (unsigned i = 0; i < BOUND_BISECTIONS; i++) {
		const double middle = (low + high) / 2;
		if (fits_within(search, middle, lanes, more, way_s))
			high = middle;
		else
			low = middle;
	}
	return low;
}

// The least of all numbers of lanes that there may be, if it is less than what is to be beaten.
static double together_bound(const struct search *search)
{
	const struct problem *problem = search->problem;
	const unsigned all = problem->wanted->sequences, end = search->chain.at[search->chain.count - 1];
	const unsigned parts = chain_parts(problem, &search->chain) +
			       (problem->devices[end].group != problem->devices[search->last].group);
	unsigned most = parts;
	double best = search_to_beat(search);
	for (unsigned i = 0; i < problem->group_count; i++)
		most += !search->group_used[i];
	most += problem->devices[search->last].group == problem->devices[search->chain.at[0]].group;
	most = most < all ? most : all;
	for (unsigned number = 1; number <= most; number++) {
		if (number < parts && number < all && (number & (number - 1)))
			continue; // there will be no fewer parts
		const double bound = lanes_bound(search, number, parts, best);
		best = bound < best ? bound : best;
	}
	return best;
}

double search_bound(const struct search *search)
{
	return search->problem->wanted->objective == PLACE_THROUGHPUT ? together_bound(search) : round_bound(search, 1);
}
