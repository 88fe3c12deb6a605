/* The search: depth first, branch and bound, over chains of devices. See docs/placement.md.
 *
 * Both ends are chosen before the middle: because of the embedding and the output matrix the fewest devices qualify for
 * them (minimum remaining values), and they determine the ring's closing hop and the time of the output. The middle
 * then grows from the first towards the last; at every step the chain is closed, its layers split exactly, and compared
 * with the best. A partial chain is left when
 *   - the layers do not fit into its rooms and those of all devices that are not used yet (forward checking), or
 *   - its bound is no better than the best: what it has, the layers that are left on the fastest devices that may
 *     still come, and the least that the way to the last can cost.
 * Equal chains are tried once: of equal devices or nodes the first goes first, and the middle devices of a worker are
 * in the order of their numbers. Branches that are not searched when time is up contribute their lower bounds, which
 * give the gap.
 *  */
#include "server/placement/placement_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_EVERY = 8, BOUND_BISECTIONS = 14, GREEDY_MS = 60 };

struct pair {
	double bound;
	unsigned first, last;
};

// The time of layers for a token, in the batches of a micro-batch, if so many share the sequences.
struct lanes {
	bool known;
	double least;                                                   // of all, how many times as long as one row
	double layer_s[PLACEMENT_DEVICES], output_s[PLACEMENT_DEVICES]; // (problem->count)
	unsigned short order[PLACEMENT_DEVICES];                        // (problem->count), the fastest first
};

struct search {
	const struct problem *problem;
	double until_s, limit;
	struct chain best;
	double open; // least lower bound of the branches that were not searched
	bool over;
	uint64_t visited, asked; // asked: whether time is up
	struct lanes *lanes;     // (group_count + 3), by their number
	// The partial chain: at[0] the first, then the middle; the last is kept apart.
	struct chain chain;
	unsigned last;
	double hops_s, rows_wire_s; // so far: of one row; what each further row adds
	bool used[PLACEMENT_DEVICES], pool_used[PLACEMENT_DEVICES], group_used[PLACEMENT_DEVICES];
	unsigned node_used[PLACEMENT_NODES];
};

double search_clock_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool time_is_up(struct search *search)
{
	if (!search->over)
		search->over = search_stopped(search->problem->wanted) ||
			       (search->asked++ % LOOK_EVERY == 0 && search_clock_s() > search->until_s);
	return search->over;
}

// Record the lower bound of a branch that is not searched.
static void leave(struct search *search, double bound)
{
	search->open = bound < search->open ? bound : search->open;
}

// No chain at all is: as if the fastest device had every layer.
static double least_of_all(const struct problem *problem)
{
	const double all_s = problem->layers * problem->devices[0].layer_s;
	return problem->wanted->objective == PLACE_THROUGHPUT ? all_s / problem->wanted->sequences : all_s;
}

// No chain of this bound is worth a look. What is within rounding of the best counts as equal to it.
static bool hopeless(const struct search *search, double bound)
{
	const double least = search->best.count && search->best.value < search->limit ? search->best.value
										      : search->limit;
	return bound >= least * (1 - 1e-9);
}

static void consider(struct search *search, struct chain *chain)
{
	if (chain_split(search->problem, chain) && chain->value < search->limit && chain_better(chain, &search->best))
		search->best = *chain;
}

// ---- bounds ----

static int32_t member_room(const struct search *search, unsigned device)
{
	return search->problem->devices[device].room[device == search->chain.at[0] ? ROOM_EMBEDS
						     : device == search->last      ? ROOM_PREDICTS
										   : 0];
}

// Whether this device, which is not used, may still come somewhere before the last.
static bool may_come(const struct search *search, unsigned device)
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
		} else if ((near && device->node != here && device->node != there) || !may_come(search, i)) {
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
		} else if (device->room[0] > 0 && may_come(search, i)) {
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

// The least time of one row's way round: layers, output, what stages and hops add.
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
		best = layers_bound(search, true) * batch + hop + deficit.devices * (cost_stage_s() + inside);
	}
	if (problem->wanted->node_count > 1) { // by others
		const unsigned nodes = deficit.nodes > 1 ? deficit.nodes : 1;
		const double way = problem->least_out_s[end->node] + problem->least_in_s[last->node] +
				   (nodes - 1) * problem->least_hop_s + nodes * cost_stage_s();
		const double other = layers_bound(search, false) * batch + way;
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
	*lanes = (struct lanes){.known = true, .least = INFINITY};
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

// How many layers each present and possible worker can take if none may take longer than `slowest_s` for a token in the
// batches of these micro-batches. Returns the time of the last worker's own work.
static double within(const struct search *search, double slowest_s, const struct lanes *lanes,
		     double layers[PLACEMENT_DEVICES])
{
	const struct problem *problem = search->problem;
	const bool apart = problem->devices[search->last].group == problem->devices[search->chain.at[0]].group;
	double budget[PLACEMENT_DEVICES], of_last = 0;
	for (unsigned i = 0; i < problem->group_count; i++) {
		budget[i] = slowest_s;
		layers[i] = 0;
	}
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
		double *left = own ? &alone : &budget[device->group];
		double room = 0;
		if (search->used[i])
			room = member_room(search, i);
		else if (may_come(search, i))
			room = device->room[0];
		if (room <= 0 || *left <= 0)
			continue;
		room = room < *left / layer_s ? room : *left / layer_s;
		*left -= room * layer_s;
		*(own ? &of_last : &layers[device->group]) += room;
	}
	return of_last;
}

// Whether all layers fit so, with so many workers more than there are.
static bool fits_within(const struct search *search, double slowest_s, const struct lanes *lanes, unsigned more)
{
	const struct problem *problem = search->problem;
	double layers[PLACEMENT_DEVICES], left = problem->layers - within(search, slowest_s, lanes, layers);
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
	return left <= 1e-6;
}

// The least time of a token of all sequences, if they go round in so many lanes; INFINITY: it is not less than `limit`.
static double lanes_bound(const struct search *search, unsigned number, unsigned parts, double limit)
{
	const struct problem *problem = search->problem;
	const unsigned all = problem->wanted->sequences;
	const struct lanes *lanes = lanes_at(search, number);
	// As many lanes as parts, or fewer: one, two, four and so on.
	const unsigned more = number < all && (number & (number - 1)) ? number - parts : problem->most;
	double low = round_bound(search, lanes->least) / all, high = limit;
	if (low >= limit || fits_within(search, low, lanes, more))
		return low < limit ? low : INFINITY;
	if (isinf(high)) { // as if the slowest did it all
		high = lanes->layer_s[lanes->order[problem->count - 1]] * problem->layers +
		       lanes->output_s[search->last];
		high = high > low ? high : low;
	}
	if (!fits_within(search, high, lanes, more))
		return INFINITY;
	for (unsigned i = 0; i < BOUND_BISECTIONS; i++) {
		const double middle = (low + high) / 2;
		if (fits_within(search, middle, lanes, more))
			high = middle;
		else
			low = middle;
	}
	return low;
}

// The least of all numbers of lanes that there may be.
static double together_bound(const struct search *search)
{
	const struct problem *problem = search->problem;
	const unsigned all = problem->wanted->sequences, end = search->chain.at[search->chain.count - 1];
	const unsigned parts = chain_parts(problem, &search->chain) +
			       (problem->devices[end].group != problem->devices[search->last].group);
	unsigned most = parts;
	double best = INFINITY;
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

static double bound_of(const struct search *search)
{
	return search->problem->wanted->objective == PLACE_THROUGHPUT ? together_bound(search) : round_bound(search, 1);
}

// ---- which may come ----

static bool in_turn(const struct search *search, unsigned device)
{
	const struct place_device *one = &search->problem->devices[device];
	const int node_twin = search->problem->node_twin[one->node];
	return !search->used[device] && (one->pool < 0 || !search->pool_used[one->pool]) &&
	       (one->twin < 0 || search->used[one->twin]) &&
	       (search->node_used[one->node] || node_twin < 0 || search->node_used[node_twin]);
}

static bool may_follow(const struct search *search, unsigned device)
{
	return search->problem->devices[device].room[0] > 0 && in_turn(search, device) && may_come(search, device);
}

static void use(struct search *search, unsigned device, bool now)
{
	const struct place_device *one = &search->problem->devices[device];
	search->used[device] = now;
	if (one->pool >= 0)
		search->pool_used[one->pool] = now;
	search->node_used[one->node] += now ? 1u : (unsigned)-1;
}

// ---- the tree ----

struct child {
	double bound;
	unsigned device;
};

static int by_bound(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

struct step {
	double hops_s;
	bool new_group;
};

static struct step step_in(struct search *search, unsigned device)
{
	const struct problem *problem = search->problem;
	struct chain *chain = &search->chain;
	const unsigned end = chain->at[chain->count - 1], group = problem->devices[device].group;
	const struct step step = {.hops_s = search->hops_s, .new_group = !search->group_used[group]};
	search->hops_s += cost_hop_s(problem, end, device, 1);
	search->group_used[group] = true;
	chain->at[chain->count++] = device;
	use(search, device, true);
	return step;
}

static void step_out(struct search *search, unsigned device, struct step step)
{
	use(search, device, false);
	search->chain.count--;
	search->hops_s = step.hops_s;
	if (step.new_group)
		search->group_used[search->problem->devices[device].group] = false;
}

// `bound`: of the partial chain as it is.
static void grow(struct search *search, double bound)
{
	struct child children[PLACEMENT_DEVICES];
	unsigned count = 0;
	struct chain closed = search->chain;
	closed.at[closed.count++] = search->last;
	search->visited++;
	consider(search, &closed);
	if (closed.count >= search->problem->most)
		return;
	for (unsigned i = 0; i < search->problem->count; i++) {
		if (!may_follow(search, i))
			continue;
		if (time_is_up(search)) {
			leave(search, bound);
			return;
		}
		const struct step step = step_in(search, i);
		const double of_child = bound_of(search);
		step_out(search, i, step);
		if (!hopeless(search, of_child))
			children[count++] = (struct child){.bound = of_child, .device = i};
	}
	qsort(children, count, sizeof *children, by_bound);
	for (unsigned i = 0; i < count && !hopeless(search, children[i].bound); i++) {
		if (time_is_up(search)) {
			leave(search, children[i].bound);
			return;
		}
		const struct step step = step_in(search, children[i].device);
		grow(search, children[i].bound);
		step_out(search, children[i].device, step);
	}
}

// Begin with these two ends.
static void set_ends(struct search *search, unsigned first, unsigned last)
{
	search->chain.count = 1;
	search->chain.at[0] = first;
	search->last = last;
	search->hops_s = 0;
	memset(search->group_used, 0, sizeof search->group_used);
	search->group_used[search->problem->devices[first].group] = true;
	use(search, first, true);
	use(search, last, true);
}

static void clear_ends(struct search *search)
{
	use(search, search->chain.at[0], false);
	use(search, search->last, false);
}

static enum status grow_from_ends(struct search *search)
{
	const struct problem *problem = search->problem;
	unsigned count = 0;
	struct pair *pairs = calloc((size_t)problem->count * problem->count + 1, sizeof *pairs);
	if (!pairs)
		return STATUS_OUT_OF_MEMORY;
	for (unsigned first = 0; first < problem->count && problem->most > 1; first++) {
		if (problem->devices[first].room[ROOM_EMBEDS] < 1 || !in_turn(search, first))
			continue;
		use(search, first, true);
		for (unsigned last = 0; last < problem->count && !time_is_up(search); last++) {
			if (problem->devices[last].room[ROOM_PREDICTS] < 1 || !in_turn(search, last))
				continue;
			use(search, first, false);
			set_ends(search, first, last);
			const double bound = bound_of(search);
			clear_ends(search);
			use(search, first, true);
			if (!hopeless(search, bound))
				pairs[count++] = (struct pair){.bound = bound, .first = first, .last = last};
		}
		use(search, first, false);
	}
	if (search->over) { // not all of them were looked at
		leave(search, least_of_all(problem));
		count = 0;
	}
	qsort(pairs, count, sizeof *pairs, by_bound);
	for (unsigned i = 0; i < count && !hopeless(search, pairs[i].bound); i++) {
		if (time_is_up(search)) {
			leave(search, pairs[i].bound);
			break;
		}
		set_ends(search, pairs[i].first, pairs[i].last);
		grow(search, pairs[i].bound);
		clear_ends(search);
	}
	free(pairs);
	return STATUS_OK;
}

// ---- single devices ----

// The fewest layers in host memory with which this device holds all; -1: none helps.
static int64_t spilled(const struct problem *problem, const struct place_device *device)
{
	const struct placement_wanted *wanted = problem->wanted;
	struct placement_stage stage = {.layer_count = problem->layers, .embeds = true, .predicts = true};
	uint32_t low = 0, high = problem->layers;
	while (low < high) {
		stage.host_layers = (low + high) / 2;
		const struct stage_memory memory = cost_memory(wanted, &problem->sizes, problem->pages, &stage);
		if (cost_on_device(&memory) <= device->free_bytes)
			high = stage.host_layers;
		else
			low = stage.host_layers + 1;
	}
	stage.host_layers = low;
	const struct stage_memory memory = cost_memory(wanted, &problem->sizes, problem->pages, &stage);
	return cost_on_device(&memory) <= device->free_bytes && cost_host_fits(wanted, device->index, &memory)
		       ? (int64_t)low
		       : -1;
}

static void one_device(struct search *search)
{
	const struct problem *problem = search->problem;
	for (unsigned i = 0; i < problem->count; i++) {
		const struct place_device *device = &problem->devices[i];
		struct chain chain = {.at = {i}, .layers = {problem->layers}, .count = 1};
		int64_t host_layers = 0;
		if (device->room[ROOM_EMBEDS | ROOM_PREDICTS] < (int64_t)problem->layers)
			host_layers = problem->wanted->devices[device->index].backend == PLACE_CPU ||
						      problem->wanted->devices[device->index].backend == PLACE_WEBGPU ||
						      problem->wanted->devices[device->index].slices || !device->reaches
					      ? -1
					      : spilled(problem, device);
		if (host_layers < 0)
			continue;
		chain.host_layers[0] = (uint32_t)host_layers;
		chain_measure(problem, &chain);
		if (chain.value < search->limit && chain_better(&chain, &search->best))
			search->best = chain;
	}
}

enum status search_run(const struct problem *problem, double limit, double until_s, struct search_result *out)
{
	const double begun_s = search_clock_s();
	struct chain greedy = {0}, roomiest;
	struct search *search = calloc(1, sizeof *search);
	if (!search)
		return STATUS_OUT_OF_MEMORY;
	*search = (struct search){.problem = problem, .until_s = until_s, .limit = limit, .open = INFINITY};
	search->lanes = calloc(problem->group_count + 3, sizeof *search->lanes);
	if (!search->lanes) {
		free(search);
		return STATUS_OUT_OF_MEMORY;
	}
	one_device(search);
	greedy = search->best;
	const double greedy_until_s = begun_s + GREEDY_MS * 1e-3;
	const bool fits = greedy_roomiest(problem, &roomiest) >= problem->layers;
	enum status status = STATUS_OK;
	if (fits)
		greedy_find(problem, &greedy);
	out->first_s = search_clock_s() - begun_s;
	if (fits)
		greedy_improve(problem, &greedy, greedy_until_s < until_s ? greedy_until_s : until_s);
	if (greedy.count && greedy.value < limit)
		search->best = greedy;
	if (fits)
		status = grow_from_ends(search);
	if (search->best.count && search->best.count > 1)
		chain_balance(problem, &search->best);
	out->best = search->best;
	out->visited = search->visited;
	out->proven = isinf(search->open) || (search->best.count && search->open >= search->best.value);
	out->bound = out->proven ? search->best.value : search->open;
	free(search->lanes);
	free(search);
	return status;
}
