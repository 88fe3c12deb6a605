/* The pages of a generator: which are free, which a sequence has, and which are kept because somebody may need them
 * again.
 *
 *   free    nobody's, and zero on the device (or on the list of those that are to be zeroed)
 *   held    by one sequence or several; only full pages that were published are held by several
 *   cached  published, and held by nobody: found again by its owner, until the least recently used makes room
 *
 * A published page is known by its owner, the page before it, and its tokens, all compared in full: no hash is trusted.
 * The page before is named by a serial number that is never used again, so what follows a page that is gone is not
 * found any more. Owner 0 publishes nothing. Thread: the generator's. */
#pragma once
#include "engine/stage.h"

struct pages;

enum { NO_PAGE = UINT32_MAX, FIRST_SERIAL = 0 };

enum status pages_create(struct pages **out, uint32_t count);
void pages_destroy(struct pages **pages);

// How many could be taken now: free and cached.
uint32_t pages_room(const struct pages *pages);
uint32_t pages_cached(const struct pages *pages);

// Take a page, for `owner`; NO_PAGE if there is none. It may stand on the list of those to be zeroed.
uint32_t pages_take(struct pages *pages, uint64_t owner);
// The published page of `owner` behind the page `serial` (FIRST_SERIAL: the first) with these STAGE_PAGE_TOKENS tokens;
// NO_PAGE if there is none. `hold` it, if it is used.
uint32_t pages_find(const struct pages *pages, uint64_t owner, uint64_t serial, const uint32_t *tokens);
void pages_hold(struct pages *pages, uint32_t page);
uint64_t pages_serial(const struct pages *pages, uint32_t page); // of a published page
bool pages_is_held(const struct pages *pages, uint32_t page);
// A held page is full and will not be written again. If one like it is known, that one stays what is found. The serial
// of the one that is found.
uint64_t pages_publish(struct pages *pages, uint32_t page, uint64_t serial, const uint32_t *tokens);
// Give a page back. A published one that nobody holds any more is cached, the others are free.
void pages_release(struct pages *pages, uint32_t page);

// What `owner` published (0: anybody) is found no more, and zeroed: now, or once nobody holds it.
void pages_forget(struct pages *pages, uint64_t owner);

// It may not have been zeroed: it stands on the list again.
void pages_zero_again(struct pages *pages, uint32_t page);
// Pages that are to be zeroed before the device computes again; the list is empty then. Good until the next call.
const uint32_t *pages_to_zero(struct pages *pages, uint32_t *count);
