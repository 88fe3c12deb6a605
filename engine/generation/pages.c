/* See pages.h. Pages are in lists that are linked by index: free pages, cached pages from the least to the most
 * recently used, and pages with the same hash. */
#include "engine/generation/pages.h"

#include <stdlib.h>
#include <string.h>

struct page {
	uint64_t owner, before, serial; // serial: 0 unless it is published
	uint32_t holders;
	uint32_t next, previous; // free: next; cached: both
	uint32_t chain;          // published: the next of the same hash
	bool to_zero;
	uint32_t tokens[STAGE_PAGE_TOKENS]; // published
};

struct pages {
	uint32_t count, free_count, cached_count;
	uint32_t free, oldest, newest; // heads of the lists
	uint32_t *buckets;             // (bucket_count), a power of two
	uint32_t bucket_count;
	uint32_t *to_zero; // (count)
	uint32_t zero_count;
	uint64_t last_serial;
	struct page list[];
};

enum status pages_create(struct pages **out, uint32_t count)
{
	uint32_t buckets = 16;
	while (buckets < count && buckets < 1u << 30)
		buckets *= 2;
	struct pages *pages = *out = calloc(1, sizeof(*pages) + (size_t)count * sizeof(struct page));
	if (!pages)
		return STATUS_OUT_OF_MEMORY;
	pages->count = pages->free_count = count;
	pages->bucket_count = buckets;
	pages->buckets = malloc(buckets * sizeof(uint32_t));
	pages->to_zero = malloc(count * sizeof(uint32_t));
	if (!pages->buckets || !pages->to_zero) {
		pages_destroy(out);
		return STATUS_OUT_OF_MEMORY;
	}
	memset(pages->buckets, 0xFF, buckets * sizeof(uint32_t)); // NO_PAGE
	pages->oldest = pages->newest = NO_PAGE;
	for (uint32_t i = 0; i < count; i++)
		pages->list[i].next = i + 1 < count ? i + 1 : NO_PAGE;
	return STATUS_OK;
}

void pages_destroy(struct pages **pages)
{
	if (!*pages)
		return;
	free((*pages)->buckets);
	free((*pages)->to_zero);
	free(*pages);
	*pages = NULL;
}

uint32_t pages_room(const struct pages *pages)
{
	return pages->free_count + pages->cached_count;
}

uint32_t pages_cached(const struct pages *pages)
{
	return pages->cached_count;
}

uint64_t pages_serial(const struct pages *pages, uint32_t page)
{
	return pages->list[page].serial;
}

bool pages_is_held(const struct pages *pages, uint32_t page)
{
	return pages->list[page].holders > 0;
}

// ---- lists ----

static uint32_t *bucket_of(const struct pages *pages, uint64_t owner, uint64_t before, const uint32_t *tokens)
{
	uint64_t hash = (owner ^ before << 32 ^ before >> 32) * 0x9E3779B97F4A7C15ull;
	for (int i = 0; i < STAGE_PAGE_TOKENS; i++)
		hash = (hash ^ hash >> 29 ^ tokens[i]) * 0xBF58476D1CE4E5B9ull;
	return &pages->buckets[(hash >> 32) & (pages->bucket_count - 1)];
}

static void leave_cache(struct pages *pages, uint32_t index)
{
	const struct page *page = &pages->list[index];
	*(page->previous == NO_PAGE ? &pages->oldest : &pages->list[page->previous].next) = page->next;
	*(page->next == NO_PAGE ? &pages->newest : &pages->list[page->next].previous) = page->previous;
	pages->cached_count--;
}

static void enter_cache(struct pages *pages, uint32_t index)
{
	struct page *page = &pages->list[index];
	page->next = NO_PAGE;
	page->previous = pages->newest;
	*(pages->newest == NO_PAGE ? &pages->oldest : &pages->list[pages->newest].next) = index;
	pages->newest = index;
	pages->cached_count++;
}

static void forget(struct pages *pages, uint32_t index)
{
	struct page *page = &pages->list[index];
	uint32_t *at = bucket_of(pages, page->owner, page->before, page->tokens);
	while (*at != index)
		at = &pages->list[*at].chain;
	*at = page->chain;
	page->serial = 0;
}

void pages_zero_again(struct pages *pages, uint32_t index)
{
	if (!pages->list[index].to_zero)
		pages->to_zero[pages->zero_count++] = index;
	pages->list[index].to_zero = true;
}

static void make_free(struct pages *pages, uint32_t index)
{
	pages_zero_again(pages, index);
	pages->list[index].next = pages->free;
	pages->free = index;
	pages->free_count++;
}

// ---- calls ----

uint32_t pages_take(struct pages *pages, uint64_t owner)
{
	uint32_t index = pages->free;
	if (pages->free_count) {
		pages->free = pages->list[index].next;
		pages->free_count--;
	} else if (pages->cached_count) {
		index = pages->oldest;
		leave_cache(pages, index);
		forget(pages, index);
		if (pages->list[index].owner != owner)
			pages_zero_again(pages, index);
	} else {
		return NO_PAGE;
	}
	pages->list[index].owner = owner;
	pages->list[index].holders = 1;
	return index;
}

uint32_t pages_find(const struct pages *pages, uint64_t owner, uint64_t serial, const uint32_t *tokens)
{
	uint32_t at = owner ? *bucket_of(pages, owner, serial, tokens) : NO_PAGE;
	while (at != NO_PAGE) {
		const struct page *page = &pages->list[at];
		if (page->owner == owner && page->before == serial &&
		    !memcmp(page->tokens, tokens, sizeof(page->tokens)))
			break;
		at = page->chain;
	}
	return at;
}

void pages_hold(struct pages *pages, uint32_t index)
{
	if (!pages->list[index].holders++)
		leave_cache(pages, index);
}

uint64_t pages_publish(struct pages *pages, uint32_t index, uint64_t serial, const uint32_t *tokens)
{
	struct page *page = &pages->list[index];
	uint32_t known = pages_find(pages, page->owner, serial, tokens);
	if (!page->owner)
		return 0;
	if (known != NO_PAGE)
		return pages->list[known].serial;
	uint32_t *bucket = bucket_of(pages, page->owner, serial, tokens);
	page->before = serial;
	page->serial = ++pages->last_serial;
	memcpy(page->tokens, tokens, sizeof(page->tokens));
	page->chain = *bucket;
	*bucket = index;
	return page->serial;
}

void pages_release(struct pages *pages, uint32_t index)
{
	struct page *page = &pages->list[index];
	if (--page->holders)
		return;
	if (page->serial) {
		enter_cache(pages, index);
		return;
	}
	make_free(pages, index);
}

void pages_forget(struct pages *pages, uint64_t owner)
{
	for (uint32_t i = 0; i < pages->count; i++) {
		const struct page *page = &pages->list[i];
		if (!page->serial || (owner && page->owner != owner))
			continue;
		forget(pages, i);
		if (page->holders)
			continue;
		leave_cache(pages, i);
		make_free(pages, i);
	}
}

const uint32_t *pages_to_zero(struct pages *pages, uint32_t *count)
{
	*count = pages->zero_count;
	for (uint32_t i = 0; i < pages->zero_count; i++)
		pages->list[pages->to_zero[i]].to_zero = false;
	pages->zero_count = 0;
	return pages->to_zero;
}
