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
// The number of rows (a power of two, or `most`) of a piece of a prompt that takes about a second, at least
// PROMPT_ROWS_LEAST. For that time the piece delays other requests, and its own cannot be cancelled.
uint32_t instance_prompt_rows(double row_s, uint32_t most);
// The same for a generator. A prompt that runs alone gets pieces of about four seconds, and of at least 64 rows: many
// rows are faster than few, and no other request waits.
void instance_set_prompt_rows(struct generator *generator, double row_s, uint32_t most);
