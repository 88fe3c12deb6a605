/* Where a model goes: which devices of which nodes, in which order, how many layers on each, and why. A pure function;
 * docs/placement.md explains the model of costs and how to read the result.
 *
 * A placement is a chain of stages, one device each, or equal devices of a node that hold a slice of it each. Devices
 * of one node and back end that follow each other share a worker (a part); parts pass activations on, and the last
 * gives the next token to the first. Branch and bound (placement_search.c) searches all chains that fit for the one
 * with the least predicted time; the result says whether that was proven. Where memory is short the steps are: fewer
 * pages for keys and values (one request's context at least), layers in host memory (of one GPU that has the whole
 * model), a smaller number format if that was allowed, the CPU. Pins are never changed. Thread: any. */
#pragma once
#include "engine/model/model.h"
#include "engine/stage.h"

#include <stdatomic.h>

enum {
	PLACEMENT_DEVICES = 256,
	PLACEMENT_TIMED = 512,
	PLACEMENT_NODES = 64, // nodes beyond these are not used
	PLACEMENT_STAGES = 64,
	PLACEMENT_WHYS = 32,
	PLACEMENT_REMEDIES = 6,
	PLACEMENT_TEXT_BYTES = 320,
	PLACEMENT_BATCH_ROWS = 512, // of a step; encoders: placement_rows
	PLACEMENT_SHARERS = 32,     // requests at once; each but the first gets room for an eighth of a context
	PLACEMENT_BATCHES = 7,      // that are timed: of 2, 4, 8, 16, 32, 64, 128 rows
};

enum placement_backend { PLACE_UNKNOWN, PLACE_CUDA, PLACE_VULKAN, PLACE_CPU, PLACE_WEBGPU };
enum placement_strategy { PLACE_ANY, PLACE_PIPELINE, PLACE_TENSOR };
enum placement_objective { PLACE_LATENCY, PLACE_THROUGHPUT }; // of one stream's token; of many streams together

// Cool, or not known; near the point where it slows down; it holds its clock down, for heat or power; beyond that
// point.
enum placement_heat { HEAT_NORMAL, HEAT_WARM, HEAT_THROTTLED, HEAT_CRITICAL };

struct placement_device {
	const char *device_id, *name, *node_id, *pool; // pool: devices of a node with the same share memory; may be ""
	const char *node_name;                         // for words; NULL: node_id
	unsigned node;                                 // its place among the nodes
	enum placement_backend backend; // PLACE_WEBGPU: of a browser, which is between others, or pinned first
	bool software;                  // another back end than cpu, on the host's processor: only where it is pinned
	enum placement_heat heat;
	double heat_rate;        // the share of its rate that it can hold for ever, by its forecast; 0: `heat` says it
	const char *unusable;    // why nothing new goes there; NULL: it does
	bool draining;           // that is why
	bool ends_soon;          // its node does: used only where it is pinned, or nothing else holds the model
	uint64_t memory_bytes;   // 0: not known
	uint64_t free_bytes;     // what may be taken now
	bool free_known;         // else free_bytes is memory_bytes
	uint64_t largest_buffer; // that its kernels reach in one piece; 0: as much as there is
	double bandwidth;        // of its memory, measured, bytes a second; 0: not known
	double heat_room;        // how far it is from slowing down for heat: 1 cold, 0 there; < 0: not known
	// Several devices that count as one, each with a slice of its stages (placement_slices.c), and their places in
	// the list; the first is its own. Memory is that of all, bandwidth of one. 0: a device.
	unsigned slices, members[STAGE_SLICES];
	bool staged; // of these: some copy to others by way of the host's memory
};

// The link from one node to another, in one direction.
struct placement_link {
	bool known;                       // else there is nothing but the class to go by
	bool direct;                      // else by way of the server
	const char *link_class;           // LinkClass of schema/api.json; static; NULL: unknown
	double round_trip_s, bytes_per_s; // < 0: not known
};

struct placement_pin {
	unsigned device;                   // its place in the list
	uint32_t first_layer, layer_count; // layer_count 0, of the last one: all that are left
};

// A layer that was timed on one of the devices.
struct placement_timed {
	unsigned device;
	enum tensor_format format; // of most weights
	uint64_t layer_bytes, output_bytes;
	double layer_s, output_s;        // of one row; output_s < 0: not known
	double prompt_s;                 // of a row in a piece of a prompt; < 0: not known
	double batch[PLACEMENT_BATCHES]; // how many times as long as one row so many take; < 0: not known
	double spread;                   // how many times the least of the runs their mean was; <= 0: not known
	int64_t age_s;
};

struct placement_wanted {
	const struct model_shape *shape;
	const struct model_sizes *sizes;        // as the file is
	const struct placement_device *devices; // (device_count), at most PLACEMENT_DEVICES
	unsigned device_count;
	unsigned node_count;
	const struct placement_link *links; // (node_count, node_count), from the row to the column; NULL: none is known
	const bool *copies; // (device_count, device_count): the row copies to the column directly; NULL: none does
	const struct placement_timed *timed; // (timed_count)
	unsigned timed_count;
	const struct placement_pin *pins; // (pin_count), at most PLACEMENT_STAGES
	unsigned pin_count;
	uint32_t page_count; // that pins are to have, and no others; 0: as many as there is room for
	uint32_t context_tokens, sequences;
	enum placement_objective objective;
	enum placement_strategy strategy;
	enum tensor_format format; // FORMAT_UNKNOWN: as the file is
	struct stage_memory draft; // what a draft model takes on the device that predicts; all 0: there is none
	bool may_shrink;           // take a smaller format where memory is short
	double timeout_s;          // limit of the search, which then returns the best result so far
	bool remedies;             // look also for what would make it faster, or possible; takes a while longer
	const atomic_bool *stop;   // true: the search ends with its result so far; may be NULL
};

struct placement_stage {
	unsigned device;
	uint32_t first_layer, layer_count, host_layers;
	bool embeds, predicts;
	unsigned slices, slice;     // of a stage on several devices: which of how many; 0: it is whole
	struct stage_memory memory; // estimated
	double seconds_per_token;   // < 0: not known
};

// From a part to the next, and from the last to the first, where they are on different nodes.
struct placement_hop {
	unsigned from_node, to_node;
	const char *link_class; // static
	uint64_t bytes_per_token;
	double seconds_per_token; // predicted; assumed values replace missing measurements
	bool measured;
};

struct placement_score {
	double total, compute, memory, network, thermal, bandwidth; // 0 to 1, as C4 weighs them
};

struct placement_text {
	int device; // -1: none in particular
	char text[PLACEMENT_TEXT_BYTES];
};

enum placement_step { STEP_NONE, STEP_SPILLED, STEP_SMALLER_FORMAT, STEP_CPU };
// PROOF_NOT_FOUND: none was found in time; there may be one.
enum placement_proof { PROOF_NONE, PROOF_OPTIMAL, PROOF_BOUND, PROOF_INFEASIBLE, PROOF_NOT_FOUND };

struct placement {
	bool feasible;
	struct placement_stage stages[PLACEMENT_STAGES]; // (stage_count)
	unsigned stage_count;
	uint32_t page_count;
	enum tensor_format format;  // FORMAT_UNKNOWN: as the file is
	enum placement_step step;   // the last step that memory made necessary
	const char *strategy;       // pipeline, tensor (one stage in slices) or hybrid (several); static
	double seconds_per_token;   // of one stream; < 0: not known
	double tokens_per_s;        // of all sequences together; < 0: not known
	double prompt_tokens_per_s; // of one long prompt, read in pieces; < 0: not known
	uint64_t missing_bytes;     // if it is not feasible: missing on all usable devices together
	enum tensor_format smaller; // that would help, and was not asked for; FORMAT_UNKNOWN: none
	enum placement_proof proof;
	double gap;                 // of PROOF_BOUND: a better one could take this part less time, at most
	double value_s, bound_s;    // by the objective, even if no time is reported; bound_s: lower bound of all that
				    // was not searched (INFINITY: everything was; for pins 0)
	double first_ms, search_ms; // until the first answer, and the last
	uint64_t visited;           // partial chains that were looked at
	struct placement_hop hops[PLACEMENT_STAGES]; // (hop_count)
	unsigned hop_count;
	struct placement_score scores[PLACEMENT_DEVICES]; // total < 0: it cannot be used
	struct placement_text whys[PLACEMENT_WHYS], remedies[PLACEMENT_REMEDIES];
	unsigned why_count, remedy_count;
};

// Errors: STATUS_INVALID_PARAMS (malformed pins), STATUS_UNAVAILABLE (a pinned device cannot be used; no device at
// all), STATUS_OUT_OF_MEMORY (for the search). A model that fits nowhere is no error: the result is not feasible.
enum status placement_find(struct placement *out, const struct placement_wanted *wanted, struct error *error);

// Rows of a step: PLACEMENT_BATCH_ROWS; of an encoder, which computes all of a text in one step, as many as the
// context, up to STAGE_ROWS_MOST.
uint32_t placement_rows(const struct model_shape *shape, uint32_t context_tokens);
// Pages for `sequences`: the context of one, an eighth of it for each further one up to PLACEMENT_SHARERS, and a
// quarter of that eighth for each beyond.
uint32_t placement_pages(uint32_t context_tokens, uint32_t sequences);
// The context of one request, and how many run at once, where they are 0: what memory holds beside the weights where
// the model will probably go. A context is the model's own or half of it, and so on, until it takes an eighth of that,
// and at most 32,768. Requests at once: as many as have room in a quarter of that, from 8 to PLACEMENT_SHARERS, and up
// to 128 where all GPUs are CUDA's. Of `wanted` shape, sizes, devices and pins are read.
void placement_usual(const struct placement_wanted *wanted, uint32_t *context_tokens, uint32_t *sequences);
// The bytes of a device's memory that stay free for drivers and other programs; of the host's memory also for the
// worker itself and other processes. `headroom`: the requested share; < 0: the default.
uint64_t placement_reserve(uint64_t memory_bytes, bool host, double headroom);
double cost_stage_s(void); // what a stage adds by being one, in a step
// Seconds that bytes take from a part to the next one: over this link, of which all is known, or (NULL) on one node.
double cost_way_s(const struct placement_link *link, uint64_t bytes);
// The model's sizes with 16- and 32-bit weights held in `format`, in proportion.
void placement_shrink(struct model_sizes *sizes, enum tensor_format format);

// ---- for who weighs one placement against another: what a stage takes, and reasons of their own ----

// Of this stage, without a placement's search. pages: of the KV cache.
struct stage_memory cost_memory(const struct placement_wanted *wanted, const struct model_sizes *sizes, uint32_t pages,
				const struct placement_stage *stage);
static inline uint64_t cost_on_device(const struct stage_memory *memory)
{
	return memory->weights_bytes + memory->kv_bytes + memory->workspace_bytes;
}
bool cost_shares_memory(const struct placement_device *a, const struct placement_device *b); // they are one memory
// Whether the search is to end, by its `stop`.
static inline bool search_stopped(const struct placement_wanted *wanted)
{
	return wanted->stop && atomic_load(wanted->stop);
}
// One more reason, while there is room. device: of the placement's, or -1.
__attribute__((format(printf, 3, 4))) void why_add(struct placement *out, int device, const char *text, ...);
