/* Where a model goes: which devices, how many layers on each, and why. A pure function of what it is told.
 *
 * The fewest devices of one back end, on whatever nodes, that hold the model are taken, back ends in the order cuda,
 * vulkan, cpu, then of all together; several share the layers in proportion to their free memory. Where memory is short
 * the steps are, in this order: fewer pages for keys and values (one request's context at least), layers in host
 * memory, a smaller number format if that was allowed, the CPU. Pins are obeyed to the letter. Layers count as equally
 * large, and so the fewest devices are found for certain: those with the most free memory hold whatever others do.
 * Thread: any. */
#pragma once
#include "engine/model/model.h"
#include "engine/stage.h"

#include <stdatomic.h>

enum {
	PLACEMENT_DEVICES = 256,
	PLACEMENT_NODES = 64, // of what lies on more, nothing is used
	PLACEMENT_STAGES = 64,
	PLACEMENT_WHYS = 24,
	PLACEMENT_TEXT_BYTES = 320,
	PLACEMENT_BATCH_ROWS = 512, // of a step
};

enum placement_backend { PLACE_UNKNOWN, PLACE_CUDA, PLACE_VULKAN, PLACE_CPU };

struct placement_device {
	const char *device_id, *name, *node_id, *pool; // pool: devices of a node with the same share memory; may be ""
	unsigned node;                                 // its place among the nodes
	enum placement_backend backend;
	bool software;         // another back end than cpu, on the host's processor: only where it is pinned
	const char *unusable;  // why nothing new goes there; NULL: it does
	uint64_t memory_bytes; // 0: not known
	uint64_t free_bytes;   // what may be taken now
	bool free_known;       // else free_bytes is memory_bytes
	double bandwidth;      // bytes a second; 0: not known
};

struct placement_pin {
	unsigned device;                   // its place in the list
	uint32_t first_layer, layer_count; // layer_count 0, of the last one: all that are left
};

struct placement_wanted {
	const struct model_shape *shape;
	const struct model_sizes *sizes;        // as the file is
	const struct placement_device *devices; // (device_count), at most PLACEMENT_DEVICES
	unsigned device_count;
	unsigned node_count;
	const struct placement_pin *pins; // (pin_count), at most PLACEMENT_STAGES
	unsigned pin_count;
	uint32_t context_tokens, sequences;
	enum tensor_format format; // FORMAT_UNKNOWN: as the file is
	bool may_shrink;           // take a smaller format where memory is short
	const atomic_bool *stop;   // once true the search ends with what it has; may be NULL
};

struct placement_stage {
	unsigned device;
	uint32_t first_layer, layer_count, host_layers;
	bool embeds, predicts;
	struct stage_memory memory; // estimated
	double seconds_per_token;   // < 0: not known
};

enum placement_step { STEP_NONE, STEP_SPILLED, STEP_SMALLER_FORMAT, STEP_CPU };

struct placement {
	bool feasible;
	struct placement_stage stages[PLACEMENT_STAGES]; // (stage_count)
	unsigned stage_count;
	uint32_t page_count;
	enum tensor_format format; // FORMAT_UNKNOWN: as the file is
	enum placement_step step;  // what was done because memory is short
	double seconds_per_token;  // < 0: not known
	uint64_t missing_bytes;    // of one that is not feasible: on the device that comes nearest
	struct {
		int device; // -1: none in particular
		char text[PLACEMENT_TEXT_BYTES];
	} whys[PLACEMENT_WHYS];
	unsigned why_count;
};

// Errors: STATUS_INVALID_PARAMS (pins that are none), STATUS_UNAVAILABLE (a pinned device that cannot be used; no
// device at all). That nothing holds it is no error: then it is not feasible.
enum status placement_find(struct placement *out, const struct placement_wanted *wanted, struct error *error);

// Pages for `sequences`: the context of one, and an eighth of it for each of the others.
uint32_t placement_pages(uint32_t context_tokens, uint32_t sequences);
// What stays free of a device's memory: drivers and others need some too.
uint64_t placement_reserve(uint64_t memory_bytes);
// The model's sizes with 16- and 32-bit weights held in `format`, in proportion.
void placement_shrink(struct model_sizes *sizes, enum tensor_format format);
