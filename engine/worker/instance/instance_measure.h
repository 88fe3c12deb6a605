/* How long layers take on a device: a short run of a stage that has just been loaded, with what lies in its pages set
 * to zero again afterwards. The server keeps the figures, and places by them (server/instances/placing/layer_times.h).
 *
 * A step of one row is what a generated token costs; one of 2, 4, 8, 16 and 32 rows, each of another sequence, what
 * a batch of them does; and one of several of the same sequence what a piece of a prompt does. The mean of a few runs
 * is taken: a processor that is held to a part of its time, or shared, is as fast as that. The first run is not
 * counted, since it fills caches, and some drivers compile then. Thread: the driver's. */
#pragma once
#include "common/json/json.h"
#include "engine/generation/generator.h"
#include "engine/stage.h"

enum { PROMPT_ROWS_LEAST = 16 };

// *out: an item of `times` in the answer to instance.load; NULL of a stage with layers in host memory or in slices,
// which says little about a device. *row_s: what a row takes in a piece of a prompt. Errors: stage_step's,
// STATUS_OUT_OF_MEMORY.
enum status instance_measure(struct stage *stage, const struct stage_params *params, struct json **out, double *row_s,
			     struct error *error);
// Of how many rows (a power of two, or `most`) a piece of a prompt takes about a second, PROMPT_ROWS_LEAST at least: so
// long it holds up who generates, and whoever wants it to end.
uint32_t instance_prompt_rows(double row_s, uint32_t most);
// The same for a generator; a prompt that is alone has pieces of as many rows as take about four seconds by that, and
// of 64 at least: many rows are made faster than few, and nobody else waits for them.
void instance_set_prompt_rows(struct generator *generator, double row_s, uint32_t most);
