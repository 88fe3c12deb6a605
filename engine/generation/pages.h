/* The pages of a generator: free, held by sequences, or cached because they may be needed again.
 *
 *   free    without an owner, and zero on the device (or on the list of pages that are to be zeroed)
 *   held    by one sequence or several; only full pages that were published are held by several
 *   cached  published, and held by nobody: its owner can find it until it is evicted as the least recently used
 *
 * A published page is found by its owner, the page before it, and its tokens. All are compared in full; no hash is
 * trusted. The page before it is named by a serial number that is never used again, so pages after an evicted page are
 * no longer found. Owner 0 publishes nothing. Thread: the generator's. */
#pragma once
#include "engine/stage.h"

struct pages;

enum { NO_PAGE = UINT32_MAX, FIRST_SERIAL = 0 };

enum status pages_create(struct pages **out, uint32_t count);
void pages_destroy(struct pages **pages);

// How many could be taken now: free and cached.
uint32_t pages_room(const struct pages *pages);
uint32_t pages_cached(const struct pages *pages);

// Take a page for `owner`; NO_PAGE if there is none. It may be on the list of pages to be zeroed.
uint32_t pages_take(struct pages *pages, uint64_t owner);
// The published page of `owner` that follows the page `serial` (FIRST_SERIAL: none) and has these STAGE_PAGE_TOKENS
// tokens; NO_PAGE if there is none. A caller that uses it calls pages_hold.
uint32_t pages_find(const struct pages *pages, uint64_t owner, uint64_t serial, const uint32_t *tokens);
void pages_hold(struct pages *pages, uint32_t page);
uint64_t pages_serial(const struct pages *pages, uint32_t page); // of a published page
bool pages_is_held(const struct pages *pages, uint32_t page);
// Publish a held page that is full and will not be written again. If an equal page is published already, that one stays
// the page that is found. Returns the serial of the page that is found.
uint64_t pages_publish(struct pages *pages, uint32_t page, uint64_t serial, const uint32_t *tokens);
// Give a page back. A published page that nobody else holds becomes cached; any other becomes free.
void pages_release(struct pages *pages, uint32_t page);

// Pages that `owner` (0: anybody) published are no longer found. They are zeroed now, or when nobody holds them.
void pages_forget(struct pages *pages, uint64_t owner);

// A page that may not have been zeroed goes on the list of pages to be zeroed again.
void pages_zero_again(struct pages *pages, uint32_t page);
// Pages that are to be zeroed before the device computes again; the list is empty then. Good until the next call.
const uint32_t *pages_to_zero(struct pages *pages, uint32_t *count);
