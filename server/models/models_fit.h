/* How much room devices have for a model now. Thread: the loop's; the arithmetic: any. */
#pragma once
#include "server/cluster/cluster.h"

struct models_room {
	uint64_t device;  // free on the one that has most; 0: no device is known
	uint64_t devices; // on those of one node and back end together, where that is most
};
void models_room(const struct cluster *cluster, struct models_room *room);
// "device", "devices", "no" or "unknown", as ModelFound of schema/api.json has it. 0 bytes: not known.
const char *models_fit(const struct models_room *room, uint64_t bytes);
