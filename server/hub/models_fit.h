/* How large a model may be to fit somewhere now, if only its size is known: what a placement (placement.h) would find
 * free, on one device and on all together. Pure. Thread: any. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct placement_device;

// Room for weights, and for keys and values: what is free less what a step needs.
struct models_room {
	bool known;       // else no device is known
	uint64_t device;  // on the device that has most
	uint64_t devices; // on all that one model may lie on together, of whichever nodes and back ends
};
// Count the devices that can be used without being asked for by name. Devices that share memory count as one.
void models_room(const struct placement_device *devices, unsigned count, struct models_room *room);
// "device", "devices", "no" or "unknown", as ModelFound of schema/api.json has it. 0 bytes: not known.
const char *models_fit(const struct models_room *room, uint64_t bytes);
uint64_t models_fit_needed(uint64_t bytes); // what a model of so many bytes needs: those, and room for a context
