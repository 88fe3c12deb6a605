/* Which nodes have which ranges of which model: those that a node was asked to fetch and reported as present. Another
 * node that needs them is told whom to ask. The record may be outdated, which the asking node then finds out. The
 * latest LIMIT_MODEL_HOLDERS are kept, in memory. Thread: the loop's. */
#pragma once
#include "common/json/json.h"

#include <stdbool.h>

struct holders;

struct holders *holders_create(void); // NULL: out of memory
void holders_destroy(struct holders **holders);
// ranges: as in model.fetch, taken; they take the place of what was said of this model and node before.
void holders_add(struct holders *holders, const char *model_id, const char *node_id, struct json *ranges);
void holders_remove(struct holders *holders, const char *model_id, const char *node_id);
// model.fetch's `peers`: those that have some of `ranges`, the latest first, without the node itself. NULL: none.
struct json *holders_json(const struct holders *holders, const char *model_id, const char *node_id,
			  const struct json *ranges);
