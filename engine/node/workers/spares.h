/* Which devices the node keeps a spare worker for: one that is started and has opened the device, and waits for a
 * session. This decides; tenants.c starts, watches and hands over.
 *
 * How long a session waits for its worker is measured with each that is started for one: from the start of the process
 * until its first device is open. For the first session the verification stands, in which a worker opened the device. A
 * device for which that took longer than a threshold has a place here, as long as sessions come: after IDLE_MS without
 * one it is given up, and so is a spare that would be in the way, because little memory of its device is left. One that
 * ends by itself is replaced after a pause, twice as long each time.
 *
 * A device that is this machine's processor is opened slowly only while the processor has much to do, and a spare would
 * be one thing more: unless a threshold was given, it gets none. Pure: no clock, no process. Thread: its owner's. */
#pragma once
#include "common/base/limits.h"
#include "engine/device/identity.h"
#include "engine/device/info.h"

enum { SPARES_AUTO = 0, SPARES_OFF = -1, SPARES_THRESHOLD_MS = 60 };

struct spare_place {
	enum backend_kind backend; // BACKEND_UNKNOWN: the place is free
	char device_id[IDENTITY_ID_BYTES];
	struct tenant *worker; // the owner's: the worker that waits here; NULL: none yet
	int64_t used_ms;       // when a session last came for this device
	int64_t not_before_ms; // when a worker may be started
	int64_t pause_ms;      // the last pause after a failure
};

struct spares {
	int setting; // SPARES_OFF, SPARES_AUTO, or the threshold in ms, for processors, too
	struct spare_place places[LIMIT_SPARES];
};

// A session has the device open, or the device was verified.
struct spare_use {
	enum backend_kind backend;
	const char *device_id;
	bool processor; // the device is this machine's
	double took_ms; // from the start of its worker; negative: it got a spare
	int64_t now_ms; // steady clock, as everywhere here
};

void spares_used(struct spares *spares, const struct spare_use *use);
// NULL: none.
struct spare_place *spares_find(struct spares *spares, enum backend_kind backend, const char *device_id);
// The place for which a worker should be started now; NULL: none. Unused places without a worker are freed.
struct spare_place *spares_due(struct spares *spares, int64_t now_ms);
bool spares_is_idle(const struct spare_place *place, int64_t now_ms);
// Its worker has ended, or could not be started. Returns the pause before the next start.
int64_t spares_failed(struct spare_place *place, int64_t now_ms);
// Whether so little memory of a device is free that a spare must not take any.
bool spares_is_short(uint64_t free_bytes, uint64_t memory_bytes);
// Its worker was ended for want of memory.
void spares_postpone(struct spare_place *place, int64_t now_ms);
unsigned spares_places(const struct spares *spares); // in use
unsigned spares_count(const struct spares *spares);  // of them, with a worker
// "off", or a threshold in ms from 1 to 60000. Errors: STATUS_INVALID_PARAMS.
enum status spares_parse(const char *text, int *setting, struct error *error);
