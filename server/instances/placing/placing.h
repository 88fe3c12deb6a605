/* A search for a place: the devices, the request, the idle instances that may be evicted for it, and the result. All
 * texts are copies, so that the planner's thread can read them; `model` and `where` are for the loop alone. Thread: the
 * loop's, then the planner's (planner.c). */
#pragma once
#include "common/base/limits.h"
#include "server/library/models.h"
#include "server/placement/placement.h"

enum { INSTANCE_ID_BYTES = 32 };

// Copies of a device's texts, so that another thread may read them.
struct placing_texts {
	char device_id[STORE_ID_BYTES], name[160], pool[129],
		unusable[160]; // name: where there are several nodes, with its own
};

// How an instance may be evicted, as it was created.
enum evict_kind { EVICT_SPILL, EVICT_UNLOAD, EVICT_NEVER };

// An idle instance that may be evicted for the placement (evict.h): its memory, and the decision about it.
struct evict_candidate {
	char instance_id[INSTANCE_ID_BYTES], model_name[72];
	uint64_t epoch;
	int64_t idle_ms, used_ms; // steady: since when
	enum evict_kind kind;
	// For spilling, as in its own placement:
	struct model_shape shape;
	struct model_sizes sizes;
	uint32_t context_tokens, sequences, page_count;
	struct placement_stage stages[PLACEMENT_STAGES]; // (stage_count)
	int hosts[PLACEMENT_STAGES];                     // the device whose memory its host has; -1: it cannot spill
	unsigned stage_count;
	uint64_t frees[PLACEMENT_DEVICES]; // at most, of the memory of each device
	// The decision:
	bool evicted, unloads; // unloads: it is unloaded; else its stages are as they are to be
};

// The layers that an instance has loaded and may keep when it is placed again (instances_keep.c).
struct placing_kept {
	struct {
		int device;    // its place in the list; -1: its layers are lost
		int at_device; // where these lay, if that can be used; else -1
		uint32_t first_layer, layer_count;
		uint64_t bytes; // of its memory, held by a kept part
		unsigned part;
	} stages[PLACEMENT_STAGES]; // (stage_count)
	unsigned stage_count;       // 0: there is nothing to keep
	unsigned part_count, kept_parts;
	uint32_t page_count;
	enum tensor_format format; // FORMAT_UNKNOWN: as the file is
};

// The layers of an instance with a device that is held back for its heat: some of them may go to another one
// (placing/ease.c).
struct placing_ease {
	struct {
		unsigned device; // its place in the list
		uint32_t layer_count;
		bool held;          // the device is held back for its heat
		double share;       // of what it does now that it may do; 1: it is not held back
	} stages[PLACEMENT_STAGES]; // (stage_count)
	unsigned stage_count;       // 0: none may
	unsigned hot;               // the stage of the device that may do least
	uint32_t page_count;
	enum tensor_format format; // FORMAT_UNKNOWN: as the file is
	// The result:
	uint32_t gives; // so many layers leave the hot device, and the others stay; 0: another place is better
	unsigned to;    // the device that they go to
};

// The parameters of placement.preview and instance.create, in one block: free() releases it.
struct placing {
	const struct model_record *model; // NULL with `foreseen`
	bool foreseen;                    // of a model that is not in the library
	char model_id[MODEL_ID_BYTES];
	struct model_shape shape;
	struct model_sizes sizes;
	// Of the model and its draft, whose tokens are compared before the search; both "": they are not.
	char path[MODEL_PATH_BYTES], draft_path[MODEL_PATH_BYTES];
	struct placing_texts texts[PLACEMENT_DEVICES];
	char node_ids[PLACEMENT_NODES][STORE_ID_BYTES], node_names[PLACEMENT_NODES][72];
	struct placement_device devices[PLACEMENT_DEVICES];
	const struct cluster_device *where[PLACEMENT_DEVICES]; // the same ones
	struct placement_link links[PLACEMENT_NODES * PLACEMENT_NODES];
	bool copies[PLACEMENT_DEVICES * PLACEMENT_DEVICES]; // (device_count, device_count)
	struct placement_pin pins[PLACEMENT_STAGES];
	struct placement_timed timed[PLACEMENT_TIMED];
	struct placement_wanted wanted;
	struct placement placement;
	struct evict_candidate candidates[LIMIT_CANDIDATES]; // (candidate_count), idle for the longest first
	unsigned candidate_count;
	uint64_t lacking[PLACEMENT_DEVICES]; // that more is taken than there is
	uint64_t given[PLACEMENT_DEVICES];   // by evicted instances
	char later[160];                     // why another may not be evicted yet; ""
	struct placing_kept kept;
	struct placing_ease ease;
	bool lags; // readings of a device still show what an instance held there that has ended
};
