/* The best of all chains of a problem and all their splits, by looking at each: for what the search is compared with.
 * Of EXHAUSTIVE_DEVICES and few layers: there are hundreds of chains, and each has as many splits as there are ways to
 * part its layers. */
#pragma once
#include "server/placement/placement_inside.h"

#include <math.h>
#include <string.h>

enum { EXHAUSTIVE_DEVICES = 5 };

struct everything {
	const struct problem *problem;
	struct chain chain;
	double best;
	uint64_t seen;
};

static uint64_t takes(const struct problem *problem, const struct chain *chain, unsigned place)
{
	const struct placement_stage stage = {.layer_count = chain->layers[place],
					      .host_layers = chain->host_layers[place],
					      .embeds = place == 0,
					      .predicts = place == chain->count - 1};
	const struct stage_memory memory = cost_memory(problem->wanted, &problem->sizes, problem->pages, &stage);
	return cost_on_device(&memory);
}

static const struct placement_device *device_at(const struct problem *problem, const struct chain *chain, unsigned i)
{
	return &problem->wanted->devices[problem->devices[chain->at[i]].index];
}

static bool same_worker(const struct placement_device *a, const struct placement_device *b)
{
	return a->node == b->node && a->backend == b->backend;
}

// The rules of chains, said once more and differently: the workers in their order, each once, but that the last stage
// may be the first's worker again.
static bool by_the_rules(const struct problem *problem, const struct chain *chain)
{
	const struct placement_device *runs[EXHAUSTIVE_DEVICES];
	unsigned count = 0;
	for (unsigned i = 0; i < chain->count; i++) {
		const struct placement_device *one = device_at(problem, chain, i);
		for (unsigned j = 0; j < i; j++) {
			const struct placement_device *other = device_at(problem, chain, j);
			if (one == other ||
			    (one->pool[0] && one->node == other->node && !strcmp(one->pool, other->pool)))
				return false;
		}
		if (!count || !same_worker(runs[count - 1], one))
			runs[count++] = one;
	}
	const bool closes = count > 1 && same_worker(runs[0], runs[count - 1]) &&
			    (chain->count < 2 ||
			     !same_worker(device_at(problem, chain, chain->count - 2), runs[count - 1]));
	for (unsigned i = 0; i < count - closes; i++)
		for (unsigned j = 0; j < i; j++)
			if (same_worker(runs[i], runs[j]))
				return false;
	return true;
}

static void every_split(struct everything *all, unsigned place, uint32_t left)
{
	struct chain *chain = &all->chain;
	if (place + 1 == chain->count) {
		chain->layers[place] = left;
		if (takes(all->problem, chain, place) > device_at(all->problem, chain, place)->free_bytes)
			return;
		all->seen++;
		chain_measure(all->problem, chain);
		all->best = chain->value < all->best ? chain->value : all->best;
		return;
	}
	for (uint32_t layers = 1; layers + (chain->count - 1 - place) <= left; layers++) {
		chain->layers[place] = layers;
		if (takes(all->problem, chain, place) <= device_at(all->problem, chain, place)->free_bytes)
			every_split(all, place + 1, left - layers);
	}
}

static void every_chain(struct everything *all)
{
	struct chain *chain = &all->chain;
	if (chain->count && by_the_rules(all->problem, chain) && chain->count <= all->problem->layers)
		every_split(all, 0, all->problem->layers);
	if (chain->count == all->problem->count)
		return;
	for (unsigned i = 0; i < all->problem->count; i++) {
		bool used = false;
		for (unsigned j = 0; j < chain->count; j++)
			used |= chain->at[j] == i;
		if (used)
			continue;
		chain->at[chain->count++] = i;
		every_chain(all);
		chain->count--;
	}
}

// All of it on one GPU, with some layers in the memory of its host.
static void every_spill(struct everything *all)
{
	const struct problem *problem = all->problem;
	for (unsigned i = 0; i < problem->count; i++) {
		struct chain chain = {.at = {i}, .layers = {problem->layers}, .count = 1};
		const struct placement_device *device = device_at(problem, &chain, 0);
		uint64_t host = 0;
		bool same = false;
		for (unsigned j = 0; j < problem->wanted->device_count; j++) {
			const struct placement_device *one = &problem->wanted->devices[j];
			if (one->backend != PLACE_CPU || one->node != device->node)
				continue;
			host = one->free_bytes;
			same = one->pool[0] && !strcmp(one->pool, device->pool);
		}
		for (uint32_t layers = 1; layers <= problem->layers && device->backend != PLACE_CPU; layers++) {
			chain.host_layers[0] = layers;
			const uint64_t own = takes(problem, &chain, 0);
			if (own > device->free_bytes ||
			    layers * (problem->sizes.layers_bytes / problem->layers) + (same ? own : 0) > host)
				continue;
			chain_measure(problem, &chain);
			all->best = chain.value < all->best ? chain.value : all->best;
			break; // more of them are slower
		}
	}
}

// Seconds by the objective; INFINITY: nothing fits. *seen: splits that fit; may be NULL.
static double exhaustive(const struct problem *problem, uint64_t *seen)
{
	struct everything all = {.problem = problem, .best = INFINITY};
	every_chain(&all);
	every_spill(&all);
	if (seen)
		*seen = all.seen;
	return all.best;
}
