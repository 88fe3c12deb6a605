/* Which jobs have rows for tokens that their text foresees (proposals.h), or a draft model (draft/drafting.h). See
 * generator.h. Thread: the generator's. */
#include "engine/generation/generator_inside.h"

enum { DRAFTED_STEPS = 64 }; // one after another, at most

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
	uint32_t count = proposals_count(&job->proposals, job->tokens, job->token_count, most, rows, prices);
	if (count)
		job->proposing = count = room_of(job, count);
	job->price = proposals_price(prices, rows, count);
	for (uint32_t i = 0; i < count; i++)
		job->tokens[job->token_count + i] = job->tokens[proposals->next + i];
}

// ---- the draft model ----

static struct draft_wish wish_of(struct generator_job *job, uint32_t wanted)
{
	return (struct draft_wish){.owner = job->request.owner,
				   .who = job->arrival,
				   .tokens = job->tokens,
				   .count = job->token_count,
				   .wanted = wanted,
				   .proposed = &job->tokens[job->token_count]};
}

// Whether the draft model is to propose tokens for a job, and how many.
static void draft(struct generator_job *job, uint32_t most, uint32_t rows)
{
	struct generator *generator = job->generator;
	const struct draft_wish wish = wish_of(job, most);
	struct draft_question question = {
		.times = &generator->draft_times,
		.prices = prices_of(generator),
		.rows = rows,
		.most = most,
		.unread = drafter_unread(generator->params.drafter, &wish),
		.left = drafting_left(job->token_count - job->prompt_count, job->most - job->token_count)};
	if (!most || question.unread == UINT32_MAX)
		return;
	const struct draft_answer answer = drafting_count(&job->drafting, &question);
	if (!answer.count)
		return;
	job->price = answer.price;
	job->proposing = room_of(job, answer.count);
	job->drafted = job->proposing;
}

// Ask the draft model for all jobs that want its tokens.
static enum status ask_drafter(struct generator *generator, struct error *error)
{
	struct drafter *drafter = generator->params.drafter;
	struct generator_job *jobs[DRAFT_PLACES];
	struct draft_wish wishes[DRAFT_PLACES];
	uint32_t count = 0;
	for (uint32_t i = 0; i < generator->running_count && count < DRAFT_PLACES; i++) {
		struct generator_job *job = generator->running[i];
		if (!job->drafted)
			continue;
		wishes[count] = wish_of(job, job->proposing);
		jobs[count++] = job;
	}
	generator->draft_used = count ? generator->draft_used + 1 : 0;
	if (!count)
		return STATUS_OK;
	const uint64_t before_ns = drafter_figures(drafter).spent_ns;
	const enum status status = drafter_propose(drafter, wishes, count, generator->params.shape->vocabulary, error);
	generator->drafting_ns = drafter_figures(drafter).spent_ns - before_ns;
	for (uint32_t i = 0; i < count; i++)
		jobs[i]->proposing = wishes[i].given;
	return status;
}

// Whether it may be asked at all. Now and then a step goes without, so that it stays known what that takes.
static bool may_draft(const struct generator *generator)
{
	return generator->params.drafter && !generator->under_way && generator->lanes_now <= 1 &&
	       generator->running_count <= drafter_places(generator->params.drafter) &&
	       generator->draft_used < DRAFTED_STEPS;
}

static void read_times(struct generator *generator)
{
	const struct drafter_figures figures = drafter_figures(generator->params.drafter);
	generator->draft_times.step = (float)figures.step_s;
	generator->draft_times.read = (float)figures.read_s;
}

void generator_timed_step(struct generator *generator, const struct lane *lane, uint64_t ns)
{
	bool generates = lane->alone && !lane->check && lane->run_count;
	for (uint32_t i = 0; i < lane->run_count; i++)
		generates = generates && lane->pieces[i].chooses &&
			    lane->pieces[i].rows == lane->pieces[i].proposed + 1;
	if (generates && generator->params.drafter)
		draft_times_chain(&generator->draft_times, lane->row_count, (double)ns * 1e-9);
}

enum status generator_propose(struct generator *generator, struct error *error)
{
	const struct generator_params *params = &generator->params;
	uint32_t rows = generator->running_count;
	bool generate = true;
	enum status status = params->drafter ? drafter_tidy(params->drafter, error) : STATUS_OK;
	const bool drafts = may_draft(generator);
	generator->drafting_ns = 0;
	if (drafts)
		read_times(generator);
	for (uint32_t i = 0; i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		job->proposing = 0;
		job->drafted = false;
		generate = generate && !job->request.want_hidden && job->token_count - job->done == 1;
	}
	for (uint32_t i = 0; generate && i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		const uint32_t outputs = params->batch_outputs > rows ? params->batch_outputs - rows : 0;
		uint32_t most = params->batch_rows > rows ? params->batch_rows - rows : 0;
		if (!may_propose(generator, job))
			continue;
		const uint32_t left = job->most - job->token_count; // the last of them needs no row
		most = most < outputs ? most : outputs;
		most = most < left - 1 ? most : left - 1;
		propose(job, most, rows);
		if (drafts && !job->proposing)
			draft(job, most < PROPOSALS_MOST ? most : PROPOSALS_MOST, rows);
		rows += job->proposing;
	}
	if (!status && params->drafter)
		status = ask_drafter(generator, error);
	generator->state.step_ns += generator->drafting_ns;
	if (status)
		generator_fail(generator, error);
	return status;
}
