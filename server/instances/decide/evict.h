/* Chooses the idle instances to evict for a model that has no room otherwise.
 *
 *     evict_gather (loop): who may be -> evict_find (planner's thread): the fewest that make room
 *         -> evict_begin (loop): they are
 *
 * An instance may be evicted that is ready, has no request and has not been used for `least_ms`; of several the one
 * that was used the longest ago is taken first. It is spilled: placed again where it is, with as few more of its layers
 * in the host's memory as make room. Where that is not enough, an instance that requests have loaded, or that was
 * created so, is unloaded, since its next request loads it again. An instance that was placed by hand is never unloaded
 * automatically.
 *
 * A place is searched for on free memory first. If there is none, or only with layers in the host's memory, a smaller
 * format or processors, the search is repeated as if the first, the first two ... of the candidates were evicted.
 * Before the eviction each is checked again: if one has been used since, all stay, and the search is repeated. Nothing
 * here reads a clock or knows the rest of the server. Thread: any; a placing belongs to one thread at a time.
 *  */
#pragma once
#include "server/instances/placing/placing.h"

struct evict_seen {            // of an instance
	bool runs, same_model; // same_model: as the model to place
	enum evict_kind kind;
	int64_t idle_ms;  // < 0: it is in use
	int64_t least_ms; // that an instance is idle before it may be evicted; < 0: none may
};
enum evict_may {
	EVICT_MAY_NOT,
	EVICT_MAY_LATER, // once it has been idle for long enough
	EVICT_MAY
};
enum evict_may evict_may(const struct evict_seen *seen);

enum evict_kind evict_kind_named(const char *name); // as the API has it; EVICT_SPILL: it has no such word
const char *evict_name(enum evict_kind kind);
enum { EVICT_AGE_BYTES = 32 };
const char *evict_age(int64_t ms, char text[EVICT_AGE_BYTES]); // "70 s"; returns text

// The stage with so many of its layers in the host's memory: computed from its present size and the change.
struct placement_stage evict_spilled(const struct placing *placing, const struct evict_candidate *candidate,
				     const struct placement_stage *from, uint32_t host_layers);
uint64_t evict_freed(const struct placement_stage *from, const struct placement_stage *to); // bytes of its device

// placement_find on the free memory; if that is too little, also on the memory of candidates. The candidates to evict
// are marked, with their new stages. Thread: the planner's. Errors: placement_find's.
enum status evict_find(struct placing *placing, struct error *error);
