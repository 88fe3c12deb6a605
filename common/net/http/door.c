/* See door.h. */
#include "common/net/http/door.h"

#include "common/base/limits.h"
#include "common/base/longer.h"

#include <stdlib.h>

struct guests {
	struct guest *first, **last;
};

struct door {
	struct places *strangers, *waited;
	unsigned share; // of all places, that strangers may always have
	struct guests stages[DOOR_STAGES];
	int64_t stall_ms;
	int64_t asked_ms, stood_ms; // steady clock: when the time was last asked for; how long it did not count, in all
};

enum status door_create(struct door **out, const struct door_params *params, struct error *error)
{
	struct door *door = calloc(1, sizeof *door);
	*out = NULL;
	if (!door)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	door->stall_ms = params->stall_ms;
	const unsigned half = params->connections / 2;
	door->share = params->strangers < half ? params->strangers : half;
	for (int i = 0; i < DOOR_STAGES; i++)
		door->stages[i].last = &door->stages[i].first;
	enum status status = places_create(&door->strangers, params->strangers, params->strangers, error);
	if (!status)
		status = places_create(&door->waited, params->connections, params->connections, error);
	if (status)
		door_destroy(&door);
	*out = door;
	return status;
}

void door_destroy(struct door **pointer)
{
	struct door *door = *pointer;
	*pointer = NULL;
	if (!door)
		return;
	places_destroy(&door->strangers);
	places_destroy(&door->waited);
	free(door);
}

int64_t door_now(struct door *door, int64_t steady_ms)
{
	const int64_t since_ms = door->asked_ms ? steady_ms - door->asked_ms : 0;
	if (since_ms > DOOR_BREAK_MS)
		door->stood_ms += since_ms - DOOR_BREAK_MS;
	door->asked_ms = steady_ms;
	return steady_ms - door->stood_ms;
}

// The deadline of TAKING moves with progress; in other stages it is fixed at the beginning.
static int64_t given_ms(const struct door *door, const struct guest *guest)
{
	switch (guest->stage) {
	case DOOR_HANDSHAKE:
		return longer_arrival_ms(LIMIT_HANDSHAKE_MS);
	case DOOR_HEAD:
		return longer_arrival_ms(LIMIT_HTTP_HEAD_MS);
	case DOOR_BODY:
		return LIMIT_HTTP_BODY_MS;
	case DOOR_TAKING:
		return guest->known ? door->stall_ms : LIMIT_HTTP_BODY_MS;
	case DOOR_IDLE:
		return LIMIT_HTTP_IDLE_MS;
	case DOOR_LEAVING:
		return LIMIT_HTTP_LEAVE_MS;
	case DOOR_SERVED:
	case DOOR_UNKNOWN:
	case DOOR_STAGES:
		break;
	}
	return -1;
}

static void enter(struct door *door, struct guest *guest, enum door_stage stage, int64_t now_ms)
{
	struct guests *list = &door->stages[stage];
	guest->stage = stage;
	const int64_t given = given_ms(door, guest);
	guest->due_ms = given < 0 ? INT64_MAX : now_ms + given;
	guest->next = NULL;
	guest->link = list->last;
	*list->last = guest;
	list->last = &guest->next;
}

static void quit(struct door *door, struct guest *guest)
{
	if (!guest->stage)
		return;
	*guest->link = guest->next;
	if (guest->next)
		guest->next->link = guest->link;
	else
		door->stages[guest->stage].last = guest->link;
	guest->stage = DOOR_UNKNOWN;
}

static struct guest *of_stranger(struct place *place)
{
	return place ? (struct guest *)((char *)place - offsetof(struct guest, stranger)) : NULL;
}

static struct guest *of_waited(struct place *place)
{
	return place ? (struct guest *)((char *)place - offsetof(struct guest, waited)) : NULL;
}

// A known guest in a timed stage becomes the newest of its holder's guests that keep us waiting.
static void count_waited(struct door *door, struct guest *guest)
{
	struct place *evicted; // there are as many places as connections
	if (!guest->counted || !guest->known || guest->stage == DOOR_SERVED || guest->stage == DOOR_UNKNOWN)
		places_leave(door->waited, &guest->waited);
	else
		places_take(door->waited, &guest->waited, &(struct net_address){.bits = guest->holder}, &evicted);
}

static struct guest *sent_away(struct door *door, struct guest *guest)
{
	if (guest)
		places_leave(door->strangers, &guest->stranger);
	return guest;
}

struct guest *door_arrive(struct door *door, struct guest *guest, const char *peer, enum door_stage stage,
			  int64_t now_ms)
{
	struct place *evicted = NULL;
	guest->counted = net_address_read(&guest->address, peer);
	guest->known = !guest->counted;
	enter(door, guest, stage, now_ms);
	if (guest->counted)
		places_take(door->strangers, &guest->stranger, &guest->address, &evicted);
	return sent_away(door, of_stranger(evicted));
}

void door_leave(struct door *door, struct guest *guest)
{
	quit(door, guest);
	places_leave(door->strangers, &guest->stranger);
	places_leave(door->waited, &guest->waited);
}

void door_stage(struct door *door, struct guest *guest, enum door_stage stage, int64_t now_ms)
{
	struct place *evicted;
	quit(door, guest);
	enter(door, guest, stage, now_ms);
	count_waited(door, guest);
	if (stage == DOOR_LEAVING || stage == DOOR_IDLE) { // nothing is lost with one that has its answer
		places_hurry(door->strangers, &guest->stranger);
		if (stage == DOOR_IDLE)
			places_hurry(door->waited, &guest->waited);
	} else if (guest->stranger.has) { // it got on: the newest of its address
		places_take(door->strangers, &guest->stranger, &guest->address, &evicted);
	}
}

void door_wait(struct guest *guest, bool waits)
{
	places_wait(&guest->stranger, waits);
}

struct guest *door_next(struct door *door)
{
	return of_stranger(places_next(door->strangers));
}

void door_progress(struct door *door, struct guest *guest, size_t bytes, int64_t now_ms)
{
	if (bytes && (guest->stage == DOOR_BODY || guest->stage == DOOR_TAKING))
		count_waited(door, guest);
	if (guest->stage == DOOR_TAKING && guest->known) {
		guest->due_ms = now_ms + door->stall_ms;
		return;
	}
	if (guest->stage != DOOR_BODY && guest->stage != DOOR_TAKING)
		return;
	const int64_t most_ms = now_ms + LIMIT_HTTP_AHEAD_MS,
		      earned_ms = ((int64_t)bytes * 1000 + LIMIT_HTTP_BYTES_PER_S - 1) / LIMIT_HTTP_BYTES_PER_S,
		      due_ms = guest->due_ms + earned_ms;
	guest->due_ms = due_ms < most_ms ? due_ms : most_ms;
}

struct guest *door_know(struct door *door, struct guest *guest, uint64_t holder)
{
	struct place *evicted = NULL;
	if (!guest->counted || guest->holder == holder)
		return NULL;
	guest->holder = holder;
	guest->known = holder != 0;
	places_leave(door->waited, &guest->waited); // of the holder before
	count_waited(door, guest);
	if (guest->known)
		places_leave(door->strangers, &guest->stranger);
	else
		places_take(door->strangers, &guest->stranger, &guest->address, &evicted);
	return sent_away(door, of_stranger(evicted));
}

struct guest *door_slowest(struct door *door)
{
	struct guest *stranger = of_stranger(places_slowest(door->strangers)),
		     *waited = of_waited(places_slowest(door->waited));
	return waited && (!stranger || places_taken(door->strangers) < door->share) ? waited : stranger;
}

// Known guests of an address that keep us waiting: their number, and which would have to go.
static unsigned waited_of(struct door *door, const struct net_address *address, struct guest **slowest)
{
	unsigned count = 0;
	*slowest = NULL;
	for (int i = 0; i < DOOR_SERVED; i++)
		for (struct guest *guest = door->stages[i].first; guest; guest = guest->next) {
			if (!guest->waited.has || !net_address_same(&guest->address, address))
				continue;
			if (!*slowest || places_before(door->waited, &guest->waited, &(*slowest)->waited))
				*slowest = guest;
			count++;
		}
	return count;
}

struct guest *door_slowest_of(struct door *door, const struct net_address *address)
{
	struct guest *stranger = of_stranger(places_slowest_of(door->strangers, address)), *waited;
	return waited_of(door, address, &waited) > places_taken_of(door->strangers, address) ? waited : stranger;
}

struct guest *door_late(struct door *door, int64_t now_ms)
{
	for (int i = 0; i < DOOR_SERVED; i++) {
		const bool in_order = i != DOOR_BODY && i != DOOR_TAKING; // the first is the first to be late
		for (struct guest *guest = door->stages[i].first; guest; guest = in_order ? NULL : guest->next)
			if (guest->due_ms <= now_ms)
				return guest;
	}
	return NULL;
}

struct guest *door_any(struct door *door)
{
	for (int i = 0; i < DOOR_STAGES; i++)
		if (door->stages[i].first)
			return door->stages[i].first;
	return NULL;
}

unsigned door_strangers(const struct door *door)
{
	return places_taken(door->strangers);
}
