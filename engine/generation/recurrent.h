/* The states of a generator, of a model that has them (stage.h): which slot holds whose.
 *
 *     free    nobody's, and zero on the device (or on the list of those that are to be zeroed)
 *     held    by jobs: one writes to it; several may go on from one that is kept
 *     kept    what a page left behind: its owner goes on from there, until the least recently used makes room
 *
 * A kept state is known by the serial number of the page that ends where it was left (pages.h), which no other page
 * ever has; so it is found by whoever found the page. Slots are numbered from 1 on; 0 is none. Thread: the
 * generator's. */
#pragma once
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct recurrent;

enum status recurrent_create(struct recurrent **out, uint32_t count); // 0: there is never any
void recurrent_destroy(struct recurrent **states);

// A slot for `owner`, held: a free one, or the kept one that was used least recently; 0 if all are held.
uint32_t recurrent_take(struct recurrent *states, uint64_t owner);
// The kept state of the page `serial`; 0 if there is none. `hold` it, if it is used.
uint32_t recurrent_find(const struct recurrent *states, uint64_t serial);
void recurrent_hold(struct recurrent *states, uint32_t slot);
// A held state stays as it is from now on, and is kept for the page `serial` once nobody holds it. Not if there is one
// of that page already, or `serial` is 0: then it is given back like any other.
void recurrent_keep(struct recurrent *states, uint32_t slot, uint64_t serial);
// Held no more by one of those who do.
void recurrent_release(struct recurrent *states, uint32_t slot);
// The state of the page `serial` is kept no more: a later one takes its place.
void recurrent_drop(struct recurrent *states, uint64_t serial);
// What `owner` (0: anybody) left is found no more, and zeroed: now, or once nobody holds it.
void recurrent_forget(struct recurrent *states, uint64_t owner);

// It may not have been zeroed: it stands on the list again.
void recurrent_zero_again(struct recurrent *states, uint32_t slot);
// Slots that are to be zeroed before the device computes again; the list is empty then. Good until the next call.
const uint32_t *recurrent_to_zero(struct recurrent *states, uint32_t *count);
