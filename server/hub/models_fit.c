/* See models_fit.h. */
#include "server/hub/models_fit.h"

#include "server/placement/placement.h"

#include <string.h>

static const uint64_t step_bytes = 256ull * 1024 * 1024; // of each device that has a part of the model

static bool counts(const struct placement_device *device)
{
	return !device->unusable && !device->software && device->memory_bytes;
}

// A model uses at most one of these devices.
static bool share(const struct placement_device *a, const struct placement_device *b)
{
	return a->pool[0] && a->node == b->node && !strcmp(a->pool, b->pool);
}

// Of devices that share memory, the one with most counts; of equal ones, the first.
static bool is_outdone(const struct placement_device *devices, unsigned count, unsigned at)
{
	for (unsigned i = 0; i < count; i++)
		if (i != at && counts(&devices[i]) && share(&devices[i], &devices[at]) &&
		    (devices[i].free_bytes > devices[at].free_bytes ||
		     (devices[i].free_bytes == devices[at].free_bytes && i < at)))
			return true;
	return false;
}

void models_room(const struct placement_device *devices, unsigned count, struct models_room *room)
{
	*room = (struct models_room){0};
	for (unsigned i = 0; i < count; i++) {
		const uint64_t free_bytes = devices[i].free_bytes;
		const uint64_t bytes = free_bytes > step_bytes ? free_bytes - step_bytes : 0;
		if (!counts(&devices[i]))
			continue;
		room->known = true;
		room->device = bytes > room->device ? bytes : room->device;
		room->devices += is_outdone(devices, count, i) ? 0 : bytes;
	}
}

uint64_t models_fit_needed(uint64_t bytes)
{
	return bytes + bytes / 16;
}

const char *models_fit(const struct models_room *room, uint64_t bytes)
{
	const uint64_t needed = models_fit_needed(bytes);
	if (!bytes || !room->known)
		return "unknown";
	return needed <= room->device ? "device" : needed <= room->devices ? "devices" : "no";
}
