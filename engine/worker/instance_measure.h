/* How long layers take on a device: a short run of a stage that has just been loaded, with what lies in its pages set
 * to zero again afterwards. The server keeps the figures, and places by them (server/models/layer_times.h).
 *
 * A step of one row is what a generated token costs; one of several, as of a batch or a piece of a prompt, says how
 * much less each further row costs. The least of a few runs is taken: what else goes on meanwhile only adds to it. The
 * first run is not counted, since it fills caches, and some drivers compile then. Thread: the driver's. */
#pragma once
#include "common/json/json.h"
#include "engine/stage.h"

// *out: an item of `times` in the answer to instance.load; null of a stage with layers in host memory, which says
// little about others. Errors: stage_step's, STATUS_OUT_OF_MEMORY.
enum status instance_measure(struct stage *stage, const struct stage_params *params, struct json **out,
			     struct error *error);
