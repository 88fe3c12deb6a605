/* Prefixes that leave a generator, or enter it. See generator.h. */
#include "engine/generation/generator_inside.h"

#include <stdlib.h>
#include <string.h>

struct generator_prefix {
	struct generator *generator;
	uint64_t owner;
	uint64_t serial; // of the last page
	uint32_t *pages; // (most); the first page_count are held
	uint32_t page_count, most;
};

enum status generator_prefix_open(struct generator *generator, struct generator_prefix **out, uint64_t owner,
				  struct error *error)
{
	const uint32_t most = generator->params.page_count;
	struct generator_prefix *prefix = *out = calloc(1, sizeof(*prefix));
	if (prefix)
		*prefix = (struct generator_prefix){.generator = generator,
						    .owner = owner,
						    .serial = FIRST_SERIAL,
						    .pages = calloc(most, sizeof(*prefix->pages)),
						    .most = most};
	if (prefix && prefix->pages)
		return STATUS_OK;
	free(prefix);
	*out = NULL;
	return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a prefix of %u pages", most);
}

void generator_prefix_close(struct generator_prefix **pointer)
{
	struct generator_prefix *prefix = *pointer;
	if (!prefix)
		return;
	*pointer = NULL;
	for (uint32_t i = 0; i < prefix->page_count; i++)
		pages_release(prefix->generator->pages, prefix->pages[i]);
	free(prefix->pages);
	free(prefix);
}

static void hold(struct generator_prefix *prefix, uint32_t page)
{
	pages_hold(prefix->generator->pages, page);
	prefix->serial = pages_serial(prefix->generator->pages, page);
	prefix->pages[prefix->page_count++] = page;
}

uint32_t generator_prefix_find(struct generator_prefix *prefix, const uint32_t *tokens, uint32_t pages)
{
	const struct pages *all = prefix->generator->pages;
	while (prefix->page_count < pages && prefix->page_count < prefix->most) {
		const uint32_t page = pages_find(all, prefix->owner, prefix->serial,
						 tokens + (size_t)prefix->page_count * STAGE_PAGE_TOKENS);
		if (page == NO_PAGE)
			break;
		hold(prefix, page);
	}
	return prefix->page_count;
}

const uint32_t *generator_prefix_pages(const struct generator_prefix *prefix)
{
	return prefix->pages;
}

// Zero what is on the list of pages to be zeroed, so that the next step does not zero what is written now.
static enum status zero_now(struct generator *generator, struct error *error)
{
	uint32_t count;
	const uint32_t *zero = pages_to_zero(generator->pages, &count);
	enum status status = STATUS_OK;
	for (uint32_t i = 0; count && !status && i < generator->params.stage_count; i++)
		status = stage_zero(generator->params.stages[i], zero, count, error);
	return status;
}

enum status generator_prefix_add(struct generator_prefix *prefix, const struct generator_pages *given, uint32_t *added,
				 struct error *error)
{
	struct generator *generator = prefix->generator;
	const uint32_t before = prefix->page_count;
	uint32_t known = before, taken = 0;
	*added = 0;
	if (given->count > prefix->most - before)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a prefix of more than %u pages", prefix->most);
	while (known < before + given->count) { // pages that are there already follow each other from the first on
		const uint32_t page = pages_find(generator->pages, prefix->owner, prefix->serial,
						 given->tokens + (size_t)(known - before) * STAGE_PAGE_TOKENS);
		if (page == NO_PAGE)
			break;
		hold(prefix, page);
		known++;
	}
	// Each running job keeps one page that it can take, so that no job is preempted for a prefix.
	uint32_t *fresh = &prefix->pages[known];
	while (given->write && known + taken < before + given->count &&
	       pages_room(generator->pages) > generator->running_count &&
	       (fresh[taken] = pages_take(generator->pages, prefix->owner)) != NO_PAGE)
		taken++;
	enum status status = taken ? zero_now(generator, error) : STATUS_OK;
	if (!status && taken)
		status = given->write(given->context, fresh, known - before, taken, error);
	for (uint32_t i = 0; i < taken && !status; i++) {
		prefix->serial = pages_publish(generator->pages, fresh[i], prefix->serial,
					       given->tokens + (size_t)(known - before + i) * STAGE_PAGE_TOKENS);
		prefix->page_count++;
	}
	for (uint32_t i = 0; i < taken && status; i++)
		pages_release(generator->pages, fresh[i]);
	*added = prefix->page_count - before;
	return status;
}
