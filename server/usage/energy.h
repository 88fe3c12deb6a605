/* Whose the energy of a device is. Readings of a device's joules come every 0.5 to 5 s; what requests have computed is
 * told in seconds of the device, once a second and when a request ends. So:
 *
 * - Between two readings, the power that the device draws when idle times the time is idle energy. It is nobody's.
 * - What is above that, while requests compute, is divided by the seconds that each of them has computed. Seconds of
 *   requests that have not been told yet (`unclaimed`) keep their part until they are. As the seconds of a step are
 *   divided by rows (usage.h), so is its energy.
 * - What is above idle while no request computes is other work: models that load, calls of sessions, other programs. If
 *   the device is not in use, it is idle energy.
 *
 * So idle energy, the energy of requests and that of other work are together what the readings say. The idle power is
 * learnt while the device rests: it falls quickly, because a device never draws less than when idle, and rises slowly,
 * because a device that has worked draws more for a while. Pure, on a clock that is given to it. Thread: the loop's. */
#pragma once
#include "server/store/store.h"

enum {
	ENERGY_STALE_MS = 20000, // without a reading for so long, a device reports none
	ENERGY_PAUSE_MS =
		60000, // between two readings: what was drawn meanwhile is not known to be anybody's, and not counted
	ENERGY_MOST_WATTS = 20000 // a reading that says more is wrong
};

struct energy;
struct energy_share;
struct energy_owner {                // who computes: a request. Zeroed to begin with
	struct energy_share *shares; // not divided yet
	double joules;               // that it was given
	enum store_energy_source source;
};

struct energy_given {
	const char *device_id, *device_name;
	struct energy_owner *owner; // NULL: nobody; then idle, or other work
	double joules, idle_joules;
	enum store_energy_source source;
};
struct energy_params {
	void (*give)(void *context, const struct energy_given *given);
	// Nothing of this owner is left to be divided. It may be freed then.
	void (*settled)(void *context, struct energy_owner *owner);
	void *context;
};
// Errors: STATUS_OUT_OF_MEMORY.
enum status energy_create(struct energy **out, const struct energy_params *params);
void energy_destroy(struct energy **energy); // owners are not told

// The device has computed so many seconds more for this owner. Without a device that is read, nothing is kept.
void energy_share(struct energy *energy, struct energy_owner *owner, const char *device_id, double seconds);
// So many seconds more (or fewer, once they are told) have been computed for owners that have not been told yet.
void energy_unclaimed(struct energy *energy, const char *device_id, double seconds);
// Nothing more is given to it.
void energy_leave(struct energy *energy, struct energy_owner *owner);

struct energy_reading {
	const char *device_id, *device_name;
	int64_t now_ms;
	double joules; // in all, from any beginning; a smaller one than before is a new beginning
	enum store_energy_source source;
	bool computes; // a request computes there now
	bool in_use;   // by anything
};
void energy_read(struct energy *energy, const struct energy_reading *reading);
// Now and then: devices that are read no more give up what they hold.
void energy_sweep(struct energy *energy, int64_t now_ms);
double energy_idle_watts(const struct energy *energy, const char *device_id); // NaN: not known
