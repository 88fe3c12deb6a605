/* The state slots of a generator, for models with states (stage.h).
 *
 *     free    without an owner, and zero on the device (or on the list of slots that are to be zeroed)
 *     held    by jobs: one job writes to it, or several jobs continue from it after it was kept
 *     kept    for a page: its owner continues from there, until it is evicted as the least recently used
 *
 * A kept state is found by the serial number of the page that ends where it was kept (pages.h). No other page ever has
 * that number, so a job that may find the page may find the state. Slots are numbered from 1; 0 means none. Thread: the
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
// The state kept for the page `serial`; 0 if there is none. A caller that uses it calls recurrent_hold.
uint32_t recurrent_find(const struct recurrent *states, uint64_t serial);
void recurrent_hold(struct recurrent *states, uint32_t slot);
// A held state will not change any more, and is kept for the page `serial` when nobody holds it. If a state is kept for
// that page already, or `serial` is 0, the slot becomes free then.
void recurrent_keep(struct recurrent *states, uint32_t slot, uint64_t serial);
// One holder gives the slot back.
void recurrent_release(struct recurrent *states, uint32_t slot);
// The state of the page `serial` is kept no more: a later one takes its place.
void recurrent_drop(struct recurrent *states, uint64_t serial);
// States of `owner` (0: of anybody) are no longer found. They are zeroed now, or when nobody holds them.
void recurrent_forget(struct recurrent *states, uint64_t owner);

// A slot that may not have been zeroed goes on the list of slots to be zeroed again.
void recurrent_zero_again(struct recurrent *states, uint32_t slot);
// Slots that are to be zeroed before the device computes again; the list is empty then. Good until the next call.
const uint32_t *recurrent_to_zero(struct recurrent *states, uint32_t *count);
