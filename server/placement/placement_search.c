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
#include "server/placement/placement_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_EVERY = 8, GREEDY_MS = 60 };

struct pair {
	double bound;
	unsigned first, last;
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

double search_to_beat(const struct search *search)
{
	const bool found = search->best.count && search->best.value < search->limit;
	return (found ? search->best.value : search->limit) * (1 - 1e-9);
}

static bool hopeless(const struct search *search, double bound)
{
	return bound >= search_to_beat(search);
}

static void consider(struct search *search, struct chain *chain)
{
	if (chain_split(search->problem, chain) && chain->value < search->limit && chain_better(chain, &search->best))
		search->best = *chain;
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
	return search->problem->devices[device].room[0] > 0 && in_turn(search, device) &&
	       search_may_come(search, device);
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
		const double of_child = search_bound(search);
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
			const double bound = search_bound(search);
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
