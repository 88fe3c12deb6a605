/* Devices of nodes that end soon (exogpu node --for): a model that went there would have to leave again. They are asked
 * last. */
#include "server/placement/placement_inside.h"

#include <stdlib.h>
#include <string.h>

static const double share_of_first = 0.5; // of the time to search, where both questions may have to be asked

struct staying {
	struct placement_wanted wanted; // with the devices below
	struct placement_device devices[PLACEMENT_DEVICES];
};

// Take those that end soon out of the list of usable ones. False: there are none, or no others.
static bool leave_out(struct staying *staying, const struct placement_wanted *wanted)
{
	bool any = false, others = false;
	memcpy(staying->devices, wanted->devices, wanted->device_count * sizeof *wanted->devices);
	staying->wanted = *wanted;
	staying->wanted.devices = staying->devices;
	staying->wanted.timeout_s *= share_of_first;
	for (unsigned i = 0; i < wanted->device_count; i++) {
		struct placement_device *device = &staying->devices[i];
		if (device->unusable)
			continue;
		any |= device->ends_soon;
		others |= !device->ends_soon;
		if (device->ends_soon)
			device->unusable = "its machine leaves within 10 minutes";
	}
	return any && others;
}

enum status placement_find(struct placement *out, const struct placement_wanted *wanted, struct error *error)
{
	struct staying *staying = wanted->pin_count ? NULL : malloc(sizeof *staying);
	struct placement_wanted all = *wanted;
	struct error none = {0};
	if (!wanted->pin_count && !staying)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	const bool asked = staying && leave_out(staying, wanted);
	const bool found = asked && !placement_find_grouped(out, &staying->wanted, &none) && out->feasible;
	all.timeout_s *= asked ? share_of_first : 1;
	free(staying);
	return found ? STATUS_OK : placement_find_grouped(out, &all, error);
}
