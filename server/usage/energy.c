/* See energy.h. */
#include "server/usage/energy.h"

#include "common/base/keyed_hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256 };
static const double idle_falls = 0.5, idle_rises = 0.02; // the part of the difference, each reading

struct device {
	struct device *next; // of its bucket
	char id[STORE_ID_BYTES], name[STORE_NAME_BYTES];
	int64_t read_ms; // the last reading
	bool read;       // there is one, and it is not stale
	double total;    // joules that it said
	enum store_energy_source source;
	double idle_watts;           // NaN: not known
	double pool;                 // joules above idle that are not divided yet
	struct energy_share *shares; // (share_s in all)
	double share_s, unclaimed_s;
};

struct energy_share {
	struct energy_share *next, **link;      // of its device
	struct energy_share *other, **at_owner; // of its owner
	struct device *device;
	struct energy_owner *owner;
	double seconds;
};

struct energy {
	struct energy_params params;
	struct device *buckets[BUCKETS];
};

// ---- devices and shares ----

static struct device *find(const struct energy *energy, const char *device_id)
{
	struct device *device = energy->buckets[keyed_hash(device_id, strlen(device_id)) % BUCKETS];
	while (device && strcmp(device->id, device_id) != 0)
		device = device->next;
	return device;
}

static struct device *add_device(struct energy *energy, const char *device_id)
{
	struct device *device = calloc(1, sizeof(*device)),
		      **bucket = &energy->buckets[keyed_hash(device_id, strlen(device_id)) % BUCKETS];
	if (!device)
		return NULL;
	snprintf(device->id, sizeof device->id, "%s", device_id);
	device->idle_watts = NAN;
	device->next = *bucket;
	*bucket = device;
	return device;
}

static void share_free(struct energy_share *share)
{
	*share->link = share->next;
	if (share->next)
		share->next->link = share->link;
	*share->at_owner = share->other;
	if (share->other)
		share->other->at_owner = share->at_owner;
	share->device->share_s -= share->seconds;
	free(share);
}

static struct energy_share *share_of(struct device *device, struct energy_owner *owner)
{
	struct energy_share *share = owner->shares;
	while (share && share->device != device)
		share = share->other;
	if (share || !(share = calloc(1, sizeof(*share))))
		return share;
	*share = (struct energy_share){.next = device->shares,
				       .link = &device->shares,
				       .other = owner->shares,
				       .at_owner = &owner->shares,
				       .device = device,
				       .owner = owner};
	if (share->next)
		share->next->link = &share->next;
	if (share->other)
		share->other->at_owner = &share->other;
	device->shares = owner->shares = share;
	return share;
}

void energy_share(struct energy *energy, struct energy_owner *owner, const char *device_id, double seconds)
{
	struct device *device = find(energy, device_id);
	struct energy_share *share = device && device->read && seconds > 0 ? share_of(device, owner) : NULL;
	if (!share)
		return;
	share->seconds += seconds;
	device->share_s += seconds;
}

void energy_unclaimed(struct energy *energy, const char *device_id, double seconds)
{
	struct device *device = find(energy, device_id);
	if (device)
		device->unclaimed_s += seconds;
}

void energy_leave(struct energy *energy, struct energy_owner *owner)
{
	(void)energy;
	while (owner->shares)
		share_free(owner->shares);
}

// ---- life ----

enum status energy_create(struct energy **out, const struct energy_params *params)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return STATUS_OUT_OF_MEMORY;
	(*out)->params = *params;
	return STATUS_OK;
}

void energy_destroy(struct energy **pointer)
{
	struct energy *energy = *pointer;
	if (!energy)
		return;
	*pointer = NULL;
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct device *next, *device = energy->buckets[i]; device; device = next) {
			next = device->next;
			while (device->shares)
				share_free(device->shares);
			free(device);
		}
	free(energy);
}

// ---- dividing ----

static void give(struct energy *energy, const struct device *device, double joules, double idle_joules)
{
	if (!(joules > 0) && !(idle_joules > 0))
		return;
	energy->params.give(energy->params.context, &(struct energy_given){.device_id = device->id,
									   .device_name = device->name,
									   .joules = joules,
									   .idle_joules = idle_joules,
									   .source = device->source});
}

// The owner gets its part, and is told if that was its last.
static void give_share(struct energy *energy, struct energy_share *share, double joules)
{
	struct energy_owner *owner = share->owner;
	const struct device *device = share->device;
	share_free(share);
	owner->joules += joules;
	if (owner->source == STORE_ENERGY_NONE || device->source < owner->source)
		owner->source = device->source;
	energy->params.give(energy->params.context, &(struct energy_given){.device_id = device->id,
									   .device_name = device->name,
									   .owner = owner,
									   .joules = joules,
									   .source = device->source});
	if (!owner->shares)
		energy->params.settled(energy->params.context, owner);
}

static void divide(struct energy *energy, struct device *device)
{
	if (!device->shares)
		return;
	const double unclaimed_s = device->unclaimed_s > 0 ? device->unclaimed_s : 0,
		     price = device->pool / (device->share_s + unclaimed_s);
	device->pool = price * unclaimed_s;
	while (device->shares)
		give_share(energy, device->shares, price * device->shares->seconds);
	device->share_s = 0; // without what rounding left
}

static void learn_idle(struct device *device, double watts, bool rests)
{
	if (isnan(device->idle_watts) || (watts < device->idle_watts && !rests))
		device->idle_watts = watts;
	else if (rests)
		device->idle_watts += (watts - device->idle_watts) *
				      (watts < device->idle_watts ? idle_falls : idle_rises);
}

static void take(struct energy *energy, struct device *device, const struct energy_reading *reading, double seconds)
{
	const double joules = reading->joules - device->total, watts = joules / seconds;
	const bool computes = reading->computes || device->shares;
	learn_idle(device, watts, !computes && !reading->in_use);
	const double idle = fmin(joules, device->idle_watts * seconds);
	if (!computes && !reading->in_use) {
		give(energy, device, 0, joules);
		return;
	}
	give(energy, device, 0, idle);
	if (computes)
		device->pool += joules - idle;
	else
		give(energy, device, joules - idle, 0);
}

void energy_read(struct energy *energy, const struct energy_reading *reading)
{
	struct device *device = find(energy, reading->device_id);
	if (!device)
		device = add_device(energy, reading->device_id);
	if (!device || reading->source == STORE_ENERGY_NONE || !isfinite(reading->joules))
		return;
	const double seconds = (double)(reading->now_ms - device->read_ms) / 1000,
		     joules = reading->joules - device->total;
	if (device->read && seconds <= 0)
		return; // within the same millisecond: the next one has both
	snprintf(device->name, sizeof device->name, "%s", reading->device_name);
	const bool follows = device->read && device->source == reading->source && seconds * 1000 <= ENERGY_PAUSE_MS;
	device->source = reading->source;
	if (follows && joules >= 0 && joules <= ENERGY_MOST_WATTS * seconds)
		take(energy, device, reading, seconds);
	device->read = true;
	device->read_ms = reading->now_ms;
	device->total = reading->joules;
	divide(energy, device);
	if (!reading->computes && device->pool > 0) {
		give(energy, device, device->pool, 0);
		device->pool = 0;
	}
}

void energy_sweep(struct energy *energy, int64_t now_ms)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct device *device = energy->buckets[i]; device; device = device->next) {
			if (!device->read || now_ms - device->read_ms < ENERGY_STALE_MS)
				continue;
			divide(energy, device);
			give(energy, device, device->pool, 0);
			device->pool = 0;
			device->read = false;
		}
}

double energy_idle_watts(const struct energy *energy, const char *device_id)
{
	const struct device *device = find(energy, device_id);
	return device ? device->idle_watts : NAN;
}
