/* Between placement_search.c and placement_bound.c: the state of a search, and what no chain that continues the present
 * one can be better than. */
#pragma once
#include "server/placement/placement_inside.h"

// The time of layers for a token, in the batches of a micro-batch, if so many share the sequences.
struct lanes {
	bool known;
	unsigned number;
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

// placement_search.c: Only chains that take less are of use. What is within rounding of the best counts as equal to it.
double search_to_beat(const struct search *search);

// placement_bound.c
// Whether this device, which is not used, may still come somewhere before the last.
bool search_may_come(const struct search *search, unsigned device);
// A lower bound of the seconds of all chains that begin as the present one and have its last device; at most what is to
// be beaten is told, where the objective is throughput. INFINITY: there are none.
double search_bound(const struct search *search);
