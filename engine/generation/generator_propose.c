/* Which jobs have rows for tokens that their text foresees (proposals.h). See generator.h. Thread: the generator's. */
#include "engine/generation/generator_inside.h"

#include <string.h>

static bool may_propose(const struct generator *generator, const struct generator_job *job)
{
	return job->request.speculate && !job->request.want_hidden && !job->stalled && !job->under_way &&
	       !model_is_recurrent(generator->params.shape);
}

// How many tokens behind its own have a place in the job's pages, or in one more that nobody needs now.
static uint32_t room_of(struct generator_job *job, uint32_t wanted)
{
	struct generator *generator = job->generator;
	const uint32_t spare = generator->running_count + 1; // a page for each that runs
	if (job->token_count + wanted > job->page_count * STAGE_PAGE_TOKENS && pages_room(generator->pages) > spare) {
		const uint32_t page = pages_take(generator->pages, job->request.owner);
		if (page != NO_PAGE)
			job->pages[job->page_count++] = page;
	}
	const uint32_t room = job->page_count * STAGE_PAGE_TOKENS - job->token_count;
	return wanted < room ? wanted : room;
}

static const struct row_prices *prices_of(const struct generator *generator)
{
	return generator->lanes_now > 1 ? &generator->busy_prices : &generator->prices;
}

static void propose(struct generator_job *job, uint32_t most, uint32_t rows)
{
	const struct proposals *proposals = &job->proposals;
	const struct row_prices *prices = prices_of(job->generator);
	const uint32_t left = job->most - job->token_count; // the last of them needs no row
	most = most < left - 1 ? most : left - 1;
	uint32_t count = proposals_count(&job->proposals, job->tokens, job->token_count, most, rows, prices);
	if (count)
		job->proposing = count = room_of(job, count);
	job->price = proposals_price(prices, rows, count);
	for (uint32_t i = 0; i < count; i++)
		job->tokens[job->token_count + i] = job->tokens[proposals->next + i];
}

void generator_propose(struct generator *generator)
{
	const struct generator_params *params = &generator->params;
	uint32_t rows = generator->running_count;
	bool generate = true;
	for (uint32_t i = 0; i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		job->proposing = 0;
		generate = generate && !job->request.want_hidden && job->token_count - job->done == 1;
	}
	for (uint32_t i = 0; generate && i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		const uint32_t outputs = params->batch_outputs > rows ? params->batch_outputs - rows : 0;
		const uint32_t most = params->batch_rows > rows ? params->batch_rows - rows : 0;
		if (!may_propose(generator, job))
			continue;
		propose(job, most < outputs ? most : outputs, rows);
		rows += job->proposing;
	}
}
