/* See places.h. The addresses are a table with one row for each place, searched from the beginning to the last
 * used row. A thousand rows of 40 bytes take a few microseconds, and there is no hash that an attacker could
 * foresee. */
#include "common/net/http/places.h"

#include <stdlib.h>

struct crowd {
	struct net_address address;
	unsigned count; // 0: the row is free
	struct place *first, **last;
};

struct places {
	unsigned most, most_of_address, taken, used; // used: rows, from the first
	uint64_t order;
	struct crowd *crowds; // (most)
};

enum status places_create(struct places **out, unsigned most, unsigned most_of_address, struct error *error)
{
	*out = NULL;
	struct places *places = calloc(1, sizeof *places);
	struct crowd *crowds = calloc(most, sizeof *crowds);
	if (!places || !crowds) {
		free(places);
		free(crowds);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a table of addresses");
	}
	*places = (struct places){.most = most, .most_of_address = most_of_address, .crowds = crowds};
	*out = places;
	return STATUS_OK;
}

void places_destroy(struct places **pointer)
{
	struct places *places = *pointer;
	*pointer = NULL;
	if (places)
		free(places->crowds);
	free(places);
}

// The row of an address, or a free one, made its own; there is one while not all places are taken.
static struct crowd *crowd_of(struct places *places, const struct net_address *address, bool make)
{
	struct crowd *spare = NULL;
	for (unsigned i = 0; i < places->used; i++) {
		struct crowd *crowd = &places->crowds[i];
		if (crowd->count && net_address_same(&crowd->address, address))
			return crowd;
		if (!crowd->count && !spare)
			spare = crowd;
	}
	if (!make)
		return NULL;
	if (!spare && places->used < places->most)
		spare = &places->crowds[places->used++];
	if (spare)
		*spare = (struct crowd){.address = *address, .last = &spare->first};
	return spare;
}

static void append(struct places *places, struct crowd *crowd, struct place *place)
{
	place->since = places->order++;
	place->next = NULL;
	place->link = crowd->last;
	*crowd->last = place;
	crowd->last = &place->next;
}

static void take_out(struct crowd *crowd, struct place *place)
{
	*place->link = place->next;
	if (place->next)
		place->next->link = place->link;
	else
		crowd->last = place->link;
}

static struct place *first_to_go(const struct crowd *crowd)
{
	struct place *waits = NULL;
	for (struct place *place = crowd->count ? crowd->first : NULL; place; place = place->next) {
		if (!place->held && !place->waits)
			return place;
		if (!place->held && !waits)
			waits = place;
	}
	return waits;
}

struct place *places_next(struct places *places)
{
	struct place *next = NULL;
	unsigned fewest = 0;
	for (unsigned i = 0; i < places->used; i++) {
		const struct crowd *crowd = &places->crowds[i];
		struct place *place = crowd->count ? crowd->first : NULL;
		while (place && !place->waits)
			place = place->next;
		if (place &&
		    (!next || crowd->count < fewest || (crowd->count == fewest && place->since < next->since))) {
			next = place;
			fewest = crowd->count;
		}
	}
	return next;
}

struct place *places_slowest_of(struct places *places, const struct net_address *address)
{
	struct crowd *crowd = crowd_of(places, address, false);
	return crowd ? first_to_go(crowd) : NULL;
}

// Among addresses with equally many places: the one with the oldest place.
struct place *places_slowest(struct places *places)
{
	struct place *slowest = NULL;
	unsigned largest = 0;
	for (unsigned i = 0; i < places->used; i++) {
		struct place *place = first_to_go(&places->crowds[i]);
		unsigned count = places->crowds[i].count;
		if (place && (count > largest || (count == largest && place->since < slowest->since))) {
			slowest = place;
			largest = count;
		}
	}
	return slowest;
}

bool places_before(const struct places *places, const struct place *one, const struct place *other)
{
	const unsigned of_one = places->crowds[one->crowd].count, of_other = places->crowds[other->crowd].count;
	return of_one != of_other ? of_one > of_other : one->since < other->since;
}

static unsigned most_taken(const struct places *places)
{
	unsigned most = 0;
	for (unsigned i = 0; i < places->used; i++)
		if (places->crowds[i].count > most)
			most = places->crowds[i].count;
	return most;
}

void places_leave(struct places *places, struct place *place)
{
	if (!place->has)
		return;
	struct crowd *crowd = &places->crowds[place->crowd];
	take_out(crowd, place);
	crowd->count--;
	places->taken--;
	while (places->used && !places->crowds[places->used - 1].count)
		places->used--;
	*place = (struct place){0};
}

bool places_take(struct places *places, struct place *place, const struct net_address *address, struct place **evicted)
{
	*evicted = NULL;
	if (place->has) {
		struct crowd *crowd = &places->crowds[place->crowd];
		take_out(crowd, place);
		append(places, crowd, place);
		return true;
	}
	const unsigned own = places_taken_of(places, address);
	if (own >= places->most_of_address || places->taken >= places->most) {
		// An address that would have more than any other with this one makes room itself.
		struct place *of_own = places_slowest_of(places, address);
		const bool must = own >= places->most_of_address;
		*evicted = of_own && (must || own >= most_taken(places)) ? of_own
			   : must                                        ? NULL
									 : places_slowest(places);
		if (!*evicted)
			return false;
		places_leave(places, *evicted);
	}
	struct crowd *crowd = crowd_of(places, address, true);
	if (!crowd)
		return false;
	*place = (struct place){.crowd = (unsigned)(crowd - places->crowds), .has = true};
	append(places, crowd, place);
	crowd->count++;
	places->taken++;
	return true;
}

void places_hurry(struct places *places, struct place *place)
{
	if (!place->has)
		return;
	struct crowd *crowd = &places->crowds[place->crowd];
	take_out(crowd, place);
	place->since = 0;
	place->next = crowd->first;
	place->link = &crowd->first;
	if (place->next)
		place->next->link = &place->next;
	else
		crowd->last = &place->next;
	crowd->first = place;
}

void places_hold(struct place *place, bool held)
{
	place->held = held && place->has;
}

void places_wait(struct place *place, bool waits)
{
	place->waits = waits && place->has;
}

unsigned places_taken(const struct places *places)
{
	return places->taken;
}

unsigned places_taken_of(const struct places *places, const struct net_address *address)
{
	for (unsigned i = 0; i < places->used; i++)
		if (places->crowds[i].count && net_address_same(&places->crowds[i].address, address))
			return places->crowds[i].count;
	return 0;
}
