/* CUDA C of sessions, compiled by NVRTC for a device of this node: each in a worker that does this alone, and is killed
 * when it takes too long (module.compile, worker.source). Thread: the loop's. */
#pragma once
#include "engine/device/table.h"
#include "engine/node/workers/child.h"

struct sources;

// `contract` is CONTRACT_NODE; it, the loop and the table outlive the sources. Errors: STATUS_OUT_OF_MEMORY.
enum status sources_create(struct sources **out, struct net_loop *loop, const struct contract *contract,
			   struct device_table *table);
// Kills what runs, whose `done` is told STATUS_UNAVAILABLE.
void sources_destroy(struct sources **sources);

// Called once: result {ptx, log}, taken; or an error.
typedef void sources_done(void *context, struct json *result, const struct error *error);
// params: those of module.compile, checked. Errors: STATUS_NOT_FOUND (no such device), STATUS_UNAVAILABLE (this node
// has no NVRTC that fits), STATUS_LIMIT_EXCEEDED (enough is compiled now), STATUS_TIMEOUT; those of the worker.
void sources_compile(struct sources *sources, const struct json *params, sources_done *done, void *context);
