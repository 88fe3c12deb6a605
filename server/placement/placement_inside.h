/* The inside of placements, for placement*.c.
 *
 *   placement_slices.c  whether devices are taken as one, each with a slice
 *   placement.c         the steps when memory is short; pins; the answer
 *   placement_cost.c    all costs: seconds and bytes
 *   placement_split.c   the layers of a chain, exactly
 *   placement_search.c  which devices, in which order: branch and bound
 *   placement_bound.c   its lower bounds
 *   placement_greedy.c  the first answer
 *   placement_why.c     the answer in words
 *   placement_remedy.c  changes that would make it better
 *
 * A problem is the input of one search: these devices, so many pages, this format. Its devices are sorted by speed, the
 * fastest first. Seconds are those of one token of one sequence; a batch takes cost_batch times as long. */
#pragma once
#include "server/placement/placement.h"

enum { ROOM_EMBEDS = 1, ROOM_PREDICTS = 2, NOBODY = -1 };

struct place_device {
	unsigned index; // in wanted->devices
	unsigned node;
	unsigned group; // number of its node and back end: one worker
	int pool;       // number; devices of the same exclude each other
	int twin;       // the device before it that is its equal; NOBODY
	double layer_s, output_s;
	double batch[1 + PLACEMENT_BATCHES]; // of 1, 2, 4, 8, 16, 32, 64, 128 rows: times one row's; not falling
	double prompt_s;                     // of a row of a prompt, through a layer; < 0: not known
	bool known;                          // they rest on something that was measured
	double host_layer_s;                 // a layer whose weights lie in host memory
	int32_t room[4];                     // layers it has memory for, by ROOM_ flags; -1: not even for the rest
	uint64_t fixed_bytes[4], free_bytes;
	bool reaches; // its kernels can address the largest tensors in one piece
};

struct problem {
	const struct placement_wanted *wanted;
	struct model_sizes sizes;
	uint32_t pages, layers;
	unsigned most; // stages
	uint64_t layer_bytes;
	struct place_device devices[PLACEMENT_DEVICES]; // (count), the fastest first
	unsigned count, group_count;
	int node_twin[PLACEMENT_NODES];                         // the node before it that is its equal; NOBODY
	uint64_t hop_bytes;                                     // of one token
	double hop_latency_s[PLACEMENT_NODES][PLACEMENT_NODES]; // for any message; within a node: to another worker
	double hop_wire_s[PLACEMENT_NODES][PLACEMENT_NODES];    // of one token's activations, on top
	double least_out_s[PLACEMENT_NODES], least_in_s[PLACEMENT_NODES], least_hop_s; // to and from other nodes
};

struct chain {
	unsigned at[PLACEMENT_STAGES]; // (count), of problem->devices
	uint32_t layers[PLACEMENT_STAGES];
	uint32_t host_layers[PLACEMENT_STAGES]; // of these, whose weights lie in host memory
	unsigned count;
	double value; // seconds a token, by the objective
	double bytes; // moved from node to node, a token
	double load;  // the fullest device's
};

// ---- placement_cost.c ----
struct problem_params {
	const struct placement_wanted *wanted;
	const struct model_sizes *sizes;
	uint32_t pages;
	bool gpus_only; // no processors
	bool pinned;    // exactly the pinned devices, usable or not; else all usable ones
};
void problem_init(struct problem *problem, const struct problem_params *params);
// Why this model does not go there; NULL: it may.
const char *cost_unusable(const struct placement_wanted *wanted, unsigned device);
// Whether the host of this device has room for what such a stage keeps there; of the same memory, for all of it.
bool cost_host_fits(const struct placement_wanted *wanted, unsigned device, const struct stage_memory *memory);
// The largest single buffer of a stage, in bytes: the keys of a layer, or a row of the output.
uint64_t cost_largest_piece(const struct placement_wanted *wanted, uint32_t pages);
// Why a browser's GPU holds no layers of the model; static; NULL: it may (placement_browser.c).
const char *browser_refuses(const struct placement_wanted *wanted);
bool cost_reaches(const struct placement_wanted *wanted, unsigned device, uint32_t pages);
// From one device to the next with `rows` tokens' activations: within a worker, to another one, to another node.
double cost_hop_s(const struct problem *problem, unsigned from, unsigned to, double rows);
// The part of it that the link is busy with.
double cost_hop_busy_s(const struct problem *problem, unsigned from, unsigned to, double rows);
// The tokens' way from the last device to the first, where the chain has several parts.
double cost_close_s(const struct problem *problem, unsigned last, unsigned first);
// The effective link: assumed values replace missing measurements. *measured: both values are measured.
struct placement_link cost_link(const struct placement_wanted *wanted, unsigned from_node, unsigned to_node,
				bool *measured);
double cost_bandwidth(const struct placement_device *device); // measured or assumed
double cost_heat_rate(const struct placement_device *device); // share of the rate of a cool device
// Both ways, without the host's memory.
bool cost_linked(const struct placement_wanted *wanted, unsigned first, unsigned second);
// The time of a layer of the model on a device, and its source.
struct cost_time {
	double layer_s, output_s;
	double batch[1 + PLACEMENT_BATCHES], prompt_s; // as of struct place_device
	const struct placement_timed *by;              // the measurement it is computed from; NULL: from the memory's
						       // bandwidth
	bool here, same_size;                          // that was measured on this device; of a layer of the same size
	bool known;                                    // else the bandwidth was assumed
};
struct cost_time cost_time(const struct placement_wanted *wanted, const struct model_sizes *sizes, unsigned device);
// The time of so many rows divided by that of one row, from 1 to `rows`: linear between the timed values, and beyond
// the last.
double cost_batch(const struct place_device *device, double rows);
void cost_score(const struct problem *problem, unsigned device, const struct problem *usable,
		struct placement_score *out);

// ---- placement_split.c ----
unsigned chain_parts(const struct problem *problem, const struct chain *chain);
// Devices of a worker follow each other, but that the last stage may come back to the first one's; none twice, none of
// whose memory another has; rooms hold at least a layer.
bool chain_allowed(const struct problem *problem, const struct chain *chain);
// The best split of the layers, and its value. False: they do not fit.
bool chain_split(const struct problem *problem, struct chain *chain);
void chain_measure(const struct problem *problem, struct chain *chain); // value, bytes, load: with layers as they are
double chain_stage_s(const struct problem *problem, const struct chain *chain, unsigned place, double rows);
double chain_stream_s(const struct problem *problem, const struct chain *chain);   // a token of one stream
double chain_together_s(const struct problem *problem, const struct chain *chain); // a token, of all sequences at once
// A row of a long prompt, whose pieces are in all parts at once; < 0: of some device it is not known.
double chain_prompt_s(const struct problem *problem, const struct chain *chain);
bool chain_better(const struct chain *a, const struct chain *b); // b->count 0: none yet
// Layers of equally fast devices in proportion to their room: as fast, and no device fuller than need be.
void chain_balance(const struct problem *problem, struct chain *chain);

// ---- placement_greedy.c ----
// The chain with the most room. Returns its layers; fewer than problem->layers: nothing holds them.
int64_t greedy_roomiest(const struct problem *problem, struct chain *out);
void greedy_find(const struct problem *problem, struct chain *best); // by score
// Small changes, for as long as they make it better.
void greedy_improve(const struct problem *problem, struct chain *best, double until_s);

// ---- placement_search.c ----
struct search_result {
	struct chain best; // count 0: none that is better than the limit
	double bound;      // lower bound of all chains; best.value if it is proven optimal
	bool proven;
	double first_s; // until the first answer
	uint64_t visited;
};
// Look for a chain of less than `limit` seconds (INFINITY: any) until the steady clock says `until_s`.
enum status search_run(const struct problem *problem, double limit, double until_s, struct search_result *out);
double search_clock_s(void); // steady

// ---- placement.c ----
// placement_find, with devices as they are listed.
enum status placement_find_listed(struct placement *out, const struct placement_wanted *wanted, struct error *error);
// Set the proof and the gap of a feasible placement; bound_s: the lower bound of everything that was not searched.
void placement_set_proof(struct placement *out, double bound_s);
// The value of the best placement found until then; INFINITY: none. With until_s 0: that of a quick one.
double placement_value(const struct placement_wanted *wanted, double until_s);

// ---- placement_slices.c ----
// placement_find, with all devices alike, however soon their nodes end.
enum status placement_find_grouped(struct placement *out, const struct placement_wanted *wanted, struct error *error);

// ---- placement_why.c ----
__attribute__((format(printf, 3, 4))) void remedy_add(struct placement *out, int device, const char *text, ...);
// `all`: of all devices that can be used, with the pages and the format that were taken; `chain` of its devices.
void why_placed(struct placement *out, const struct problem *all, const struct chain *chain);
// Reasons that would come after `until_s` are left out.
void why_left_out(struct placement *out, const struct problem *all, const struct chain *chain, double until_s);
void why_assumed(struct placement *out, const struct placement_wanted *wanted, const struct model_sizes *sizes);
// As words name it: by its name, or its id where it tells none.
const char *why_node_name(const struct placement_wanted *wanted, unsigned node);
void why_infeasible(struct placement *out, const struct problem *all, double until_s);

// ---- placement_remedy.c ----
// Find what one more GiB or a faster hop would bring, by solving again, until `until_s`.
void remedies_find(struct placement *out, const struct problem *all, const struct chain *chain, double until_s);
void remedies_infeasible(struct placement *out, const struct problem *all, double until_s);

// ---- placement.c and placement_pins.c: the answer ----

struct solution {
	struct problem problem; // of the best
	struct chain chain;     // count 0: none
	bool gpus_only;         // as it was asked
	bool gpus_hold;         // some placement on GPUs alone was found
	bool asked_processors;  // whether they make it faster
	bool proven;
	double bound, first_s;
	uint64_t visited;
};

struct answer {
	const struct placement_wanted *wanted;
	struct placement *out;
	struct model_sizes sizes; // in the format that is taken
	struct solution *solution;
	uint64_t saved_bytes;           // by a smaller format
	double begun_s, until_s, end_s; // until_s: of the search; end_s: of reasons and remedies
};

// Write the chain into answer->out, with what it costs.
void placement_take(struct answer *answer, const struct problem *problem, const struct chain *chain);
// Place as the pins say. STATUS_OK with out->proof PROOF_INFEASIBLE: they do not fit. Errors: placement_find's.
enum status placement_place_pinned(struct answer *answer, struct error *error);
