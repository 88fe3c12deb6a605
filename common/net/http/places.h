/* A fixed number of places that strangers share by address. Every
 * newcomer gets one. If all are taken, the address with the most places
 * loses its oldest one. So an address that opens many connections only
 * displaces its own, and a quick client behind the same address keeps its
 * place long enough. Pure: it knows no clock, only an order. Thread: its
 * owner's. */
#pragma once
#include "common/base/status.h"
#include "common/net/address.h"

struct places;

// Embedded in whoever may have a place; zero before first use.
struct place {
	struct place *next, **link; // of its address, those that have stood longest first
	unsigned crowd;             // which address
	uint64_t since;             // in the order of all
	bool has, held, waits;
};

// most_of_address: of one address at once; `most` if that is not to be limited by itself.
enum status places_create(struct places **out, unsigned most, unsigned most_of_address, struct error *error);
void places_destroy(struct places **places);
// Give `place` one, as the newest; a second call only makes it the newest. *evicted has lost its own for it; NULL:
// nobody had to. False: those that would have to go are all held, and it has none.
bool places_take(struct places *places, struct place *place, const struct net_address *address, struct place **evicted);
void places_leave(struct places *places, struct place *place); // may have none
void places_hurry(struct places *places, struct place *place); // it is the first of its address to go
// Keep it from being evicted; it counts all the same.
void places_hold(struct place *place, bool held);
// It waits for us: it is evicted only where nobody else of its address is.
void places_wait(struct place *place, bool waits);
// Whose turn it is of those that wait: the first to stand of the address that has the fewest places; NULL: nobody's.
struct place *places_next(struct places *places);
// The holder that would lose its place, of all or of one address; NULL: nobody can.
struct place *places_slowest(struct places *places);
struct place *places_slowest_of(struct places *places, const struct net_address *address);
// Whether one would have to go before the other; both have places.
bool places_before(const struct places *places, const struct place *one, const struct place *other);
unsigned places_taken(const struct places *places);
unsigned places_taken_of(const struct places *places, const struct net_address *address);
