/* See generator.h and generator_inside.h. Here: who waits, who runs, and who has which pages. */
#include "common/base/clock.h"
#include "engine/generation/generator_inside.h"

#include <stdlib.h>
#include <string.h>

enum status generator_create(struct generator **out, const struct generator_params *params, struct error *error)
{
	size_t sequences = params->batch_sequences, outputs = params->batch_outputs, rows = params->batch_rows;
	*out = NULL;
	if (!params->stage_count || !sequences || sequences > rows || sequences > outputs || outputs > rows)
		return error_set(error, STATUS_INVALID_PARAMS, "sequences, outputs and rows do not fit each other");
	struct generator *generator = *out = calloc(1, sizeof(*generator));
	if (!generator)
		goto failed;
	generator->params = *params;
	generator->check_page = NO_PAGE;
	generator->due_step = 1;
	generator->prompt_rows = generator->alone_rows = params->batch_rows;
	generator->draft_right = DRAFT_RIGHT_AT_FIRST;
	generator_set_row_times(generator, (const double[ROW_TIMES]){0});
	generator->running = calloc(sequences, sizeof(struct generator_job *));
	generator->argmax = calloc(outputs, sizeof(uint32_t));
	// An encoder has no logits; there is one row of them for a check.
	generator->logits = stage_results(params->stages[params->stage_count - 1],
					  (params->shape->encoder ? 1 : outputs) * params->shape->vocabulary *
						  sizeof(float));
	generator->hidden = calloc(outputs, params->shape->embedding * sizeof(float));
	generator->choices = calloc(outputs, sizeof(struct token_choice));
	generator->tasks = calloc(outputs, sizeof(struct sampler_task));
	for (int i = 0; i < 2 && params->stage_count > 1; i++)
		generator->activations[i] = calloc(rows, params->shape->embedding * sizeof(float));
	if (!generator->running || !generator->argmax || !generator->logits || !generator->hidden ||
	    !generator->choices || !generator->tasks ||
	    (params->stage_count > 1 && (!generator->activations[0] || !generator->activations[1])) ||
	    generator_make_lanes(generator) || pages_create(&generator->pages, params->page_count) ||
	    recurrent_create(&generator->states, stage_state_count(params->shape, params->batch_sequences)) ||
	    samplers_create(&generator->samplers, params->shape->vocabulary, params->batch_sequences))
		goto failed;
	return STATUS_OK;
failed:
	generator_destroy(out);
	return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a generator");
}

static void job_free(struct generator_job *job)
{
	free(job->biases);
	free(job->tokens);
	free(job->pages);
	free(job->sum);
	free(job);
}

// Release the last page first: a page is of use only together with the pages before it, so later pages are evicted
// first.
static void release_pages(struct generator_job *job)
{
	while (job->page_count)
		pages_release(job->generator->pages, job->pages[--job->page_count]);
	if (job->done > job->reached)
		job->reached = job->done;
	job->done = job->sent = job->published = 0;
	job->serial = FIRST_SERIAL;
	generator_release_states(job);
	job->kept_serial = 0;
}

void generator_destroy(struct generator **generator_pointer)
{
	struct generator *generator = *generator_pointer;
	if (!generator)
		return;
	generator_free_lanes(generator);
	for (uint32_t i = 0; i < generator->running_count; i++)
		job_free(generator->running[i]);
	while (generator->waiting) {
		struct generator_job *job = generator->waiting;
		generator->waiting = job->next;
		job_free(job);
	}
	pages_destroy(&generator->pages);
	recurrent_destroy(&generator->states);
	samplers_destroy(&generator->samplers);
	free(generator->running);
	free(generator->argmax);
	free(generator->hidden);
	free(generator->choices);
	free(generator->tasks);
	free(generator->activations[0]);
	free(generator->activations[1]);
	free(generator);
	*generator_pointer = NULL;
}

// ---- jobs ----

static uint32_t pages_for(uint32_t tokens)
{
	return (tokens + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
}

// How many tokens a sequence can have, by the pages that there are.
static uint32_t capacity(const struct generator *generator)
{
	uint64_t tokens = (uint64_t)generator->params.page_count * STAGE_PAGE_TOKENS;
	return tokens < generator->params.context_tokens ? (uint32_t)tokens : generator->params.context_tokens;
}

static enum status check(const struct generator *generator, const struct generator_request *request,
			 struct error *error)
{
	const struct generator_params *params = &generator->params;
	uint32_t vocabulary = params->shape->vocabulary, context = params->context_tokens;
	const struct sampling *sampling = &request->sampling;
	// A text goes through an encoder in one step: a longer one would wait for ever.
	const uint32_t most_rows = params->batch_rows < params->batch_outputs ? params->batch_rows
									      : params->batch_outputs;
	if (params->shape->encoder && context > most_rows)
		context = most_rows;
	if (params->shape->encoder && !request->want_hidden) {
		error_hint(error, "use it for embeddings or for ranking; choose a language model for text");
		return error_set(error, STATUS_INVALID_PARAMS, "the model is an encoder: it generates no text");
	}
	if (!request->token_count || request->prompt_count > request->token_count ||
	    (!request->max_tokens && !request->want_hidden))
		return error_set(error, STATUS_INVALID_PARAMS, "the prompt is empty");
	// A request that continues elsewhere may already have been given its last token.
	size_t count = request->token_count + (!request->want_hidden && request->token_count == request->prompt_count);
	if (count > context && request->want_hidden) {
		error_hint(error, "shorten the input, or cut it into parts");
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the input has %zu tokens; the model takes %u at most",
				 count, context);
	}
	if (count > context) {
		error_hint(error, "shorten the prompt, or start the model with a larger context");
		return error_set(error, STATUS_LIMIT_EXCEEDED,
				 "the prompt has %zu tokens; with the answer the context holds %u",
				 request->token_count, context);
	}
	if (count > capacity(generator)) {
		error_hint(error, "start the model with more memory for its context");
		return error_set(error, STATUS_LIMIT_EXCEEDED,
				 "the prompt has %zu tokens; there is memory for %u, with the answer",
				 request->token_count, capacity(generator));
	}
	for (size_t i = 0; i < request->token_count; i++)
		if (request->tokens[i] >= vocabulary)
			return error_set(error, STATUS_INVALID_PARAMS, "token %u is outside the vocabulary of %u",
					 request->tokens[i], vocabulary);
	for (uint32_t i = 0; i < sampling->bias_count; i++)
		if (sampling->biases[i].token >= vocabulary)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "a bias is for token %u, outside the vocabulary of %u",
					 sampling->biases[i].token, vocabulary);
	return STATUS_OK;
}

static void put_waiting(struct generator *generator, struct generator_job *job)
{
	struct generator_job **at = &generator->waiting;
	while (*at && (*at)->arrival < job->arrival)
		at = &(*at)->next;
	job->next = *at;
	*at = job;
	generator->waiting_count++;
}

enum status generator_add(struct generator *generator, struct generator_job **out,
			  const struct generator_request *request, struct error *error)
{
	*out = NULL;
	enum status status = check(generator, request, error);
	if (status)
		return status;
	struct generator_job *job = calloc(1, sizeof(*job));
	if (!job)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a request");
	uint64_t most = (uint64_t)request->prompt_count + request->max_tokens;
	job->generator = generator;
	job->request = *request;
	job->token_count = (uint32_t)request->token_count;
	job->prompt_count = (uint32_t)request->prompt_count;
	job->judged = request->want_prompt ? 1 : job->prompt_count;
	job->most = most < capacity(generator) ? (uint32_t)most : capacity(generator);
	uint32_t room = job->most > job->token_count ? job->most : job->token_count;
	job->tokens = malloc(room * sizeof(uint32_t));
	job->pages = malloc(pages_for(room) * sizeof(uint32_t));
	job->biases = malloc((request->sampling.bias_count + 1) * sizeof(struct token_bias));
	if (request->want_hidden)
		job->sum = calloc(generator->params.shape->embedding, sizeof(double));
	if (!job->tokens || !job->pages || !job->biases || (request->want_hidden && !job->sum)) {
		job_free(job);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a request");
	}
	memcpy(job->tokens, request->tokens, request->token_count * sizeof(uint32_t));
	if (request->sampling.bias_count)
		memcpy(job->biases, request->sampling.biases, request->sampling.bias_count * sizeof(struct token_bias));
	job->request.sampling.biases = job->biases;
	job->request.tokens = NULL;
	proposals_init(&job->proposals);
	drafting_init(&job->drafting, generator->draft_right);
	job->arrival = ++generator->arrivals;
	job->added_ns = clock_steady_ns();
	put_waiting(generator, job);
	*out = job;
	return STATUS_OK;
}

static void leave_lists(struct generator_job *job)
{
	struct generator *generator = job->generator;
	if (job->running) {
		uint32_t at = 0;
		while (generator->running[at] != job)
			at++;
		memmove(&generator->running[at], &generator->running[at + 1],
			(--generator->running_count - at) * sizeof(struct generator_job *));
	} else {
		struct generator_job **at = &generator->waiting;
		while (*at != job)
			at = &(*at)->next;
		*at = job->next;
		generator->waiting_count--;
	}
	job->running = false;
}

void generator_end(struct generator_job *job, enum generator_reason reason, const struct error *error)
{
	int64_t now_ns = clock_steady_ns();
	int64_t begun_ns = job->begun ? job->begun_ns : now_ns, first_ns = job->first_ns ? job->first_ns : now_ns;
	const uint32_t prompt_count = job->prompt_count, reached = job->done > job->reached ? job->done : job->reached;
	const struct generator_figures figures = {.prompt_tokens = prompt_count,
						  .read_tokens = reached < prompt_count ? reached : prompt_count,
						  .spent = generator_job_spent(job),
						  .cached_tokens = job->cached_tokens,
						  .generated_tokens = job->token_count - job->prompt_count,
						  .proposed_tokens = job->proposed_tokens,
						  .accepted_tokens = job->accepted_tokens,
						  .drafted_tokens = job->drafted_tokens,
						  .draft_accepted_tokens = job->draft_accepted_tokens,
						  .queued_ns = begun_ns - job->added_ns,
						  .prompt_ns = first_ns - begun_ns,
						  .generate_ns = now_ns - first_ns};
	leave_lists(job);
	if (!job->under_way)
		release_pages(job);
	job->request.ended(job->request.context, reason, &figures, error);
	job->gone = true;
	if (!job->under_way)
		job_free(job);
}

bool generator_landed(struct generator_job *job)
{
	job->under_way--;
	if (!job->gone)
		return true;
	if (!job->under_way) {
		release_pages(job);
		job_free(job);
	}
	return false;
}

void generator_set_form(struct generator_job *job, struct matcher *form)
{
	job->request.form = form;
}

void generator_remove(struct generator_job **job)
{
	if (*job)
		generator_end(*job, GENERATOR_REMOVED, NULL);
	*job = NULL;
}

void generator_fail(struct generator *generator, const struct error *error)
{
	while (generator->running_count)
		generator_end(generator->running[0], GENERATOR_FAILED, error);
	while (generator->waiting)
		generator_end(generator->waiting, GENERATOR_FAILED, error);
}

static uint32_t within(uint32_t rows, uint32_t most)
{
	return rows < 1 ? 1 : rows < most ? rows : most;
}

void generator_set_prompt_rows(struct generator *generator, uint32_t rows, uint32_t alone)
{
	generator->prompt_rows = within(rows, generator->params.batch_rows);
	generator->alone_rows = within(alone, generator->params.batch_rows);
}

void generator_set_row_times(struct generator *generator, const double times[ROW_TIMES])
{
	row_prices_set(&generator->prices, times);
	row_prices_set(&generator->busy_prices, times);
}

void generator_forget(struct generator *generator, uint64_t owner)
{
	pages_forget(generator->pages, owner);
	recurrent_forget(generator->states, owner);
	if (generator->params.drafter)
		drafter_forget(generator->params.drafter, owner);
}

// ---- who runs ----

// Take over the first pages of a known prefix, as far as there is also a state to continue from. At least one token is
// left to compute.
static void share_prefix(struct generator_job *job)
{
	struct pages *pages = job->generator->pages;
	const bool whole = job->request.want_hidden || job->judged < job->prompt_count;
	const uint32_t most = whole ? 0 : (job->token_count - 1) / STAGE_PAGE_TOKENS;
	while (job->page_count < most) {
		const uint32_t *tokens = &job->tokens[(size_t)job->page_count * STAGE_PAGE_TOKENS];
		uint32_t page = pages_find(pages, job->request.owner, job->serial, tokens);
		if (page == NO_PAGE)
			break;
		pages_hold(pages, page);
		job->serial = pages_serial(pages, page);
		job->pages[job->page_count++] = page;
	}
	const uint32_t kept = generator_find_state(job, job->page_count);
	while (job->page_count > kept)
		pages_release(pages, job->pages[--job->page_count]);
	job->serial = kept ? pages_serial(pages, job->pages[kept - 1]) : FIRST_SERIAL;
	job->published = job->page_count;
	job->done = job->sent = job->page_count * STAGE_PAGE_TOKENS;
}

// Pages for all its tokens. False if there are not enough, nor one to spare for each that runs. Without any that runs
// there may be too few all the same: those who have left hold theirs until their steps are back.
static bool reserve_pages(struct generator_job *job)
{
	struct generator *generator = job->generator;
	share_prefix(job);
	uint32_t need = pages_for(job->token_count), spare = generator->running_count;
	if (pages_room(generator->pages) < need - job->page_count + spare || !generator_take_state(job)) {
		release_pages(job);
		return false;
	}
	while (job->page_count < need)
		job->pages[job->page_count++] = pages_take(generator->pages, job->request.owner);
	return true;
}

static uint32_t running_of(const struct generator *generator, uint64_t owner)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < generator->running_count; i++)
		count += generator->running[i]->request.owner == owner;
	return count;
}

// The next job to run: the oldest of those that were preempted, else the oldest of the owner with the fewest running
// jobs.
static struct generator_job *next_waiting(const struct generator *generator)
{
	struct generator_job *next = NULL;
	uint32_t least = UINT32_MAX;
	for (struct generator_job *job = generator->waiting; job; job = job->next) {
		const uint32_t count = running_of(generator, job->request.owner);
		if (job->begun)
			return job;
		if (count < least)
			next = job;
		least = count < least ? count : least;
	}
	return next;
}

void generator_admit(struct generator *generator)
{
	while (generator->waiting && generator->running_count < generator->params.batch_sequences) {
		struct generator_job *job = next_waiting(generator);
		if (job->token_count >= job->most && !job->request.want_hidden) {
			generator_end(job, GENERATOR_LENGTH, NULL); // it goes on, and had all already
			continue;
		}
		if (!reserve_pages(job))
			break;
		leave_lists(job);
		job->running = true;
		generator->running[generator->running_count++] = job;
		if (!job->begun) {
			job->begun = true;
			job->begun_ns = clock_steady_ns();
			job->cached_tokens = job->done < job->prompt_count ? job->done : job->prompt_count;
		}
	}
}

static void give_way(struct generator_job *job)
{
	struct generator *generator = job->generator;
	leave_lists(job);
	release_pages(job);
	if (job->sum)
		memset(job->sum, 0, generator->params.shape->embedding * sizeof(double));
	put_waiting(generator, job);
	generator->state.preemptions++;
}

void generator_rewind(struct generator *generator)
{
	for (uint32_t i = generator->running_count; model_is_recurrent(generator->params.shape) && i-- > 0;)
		if (generator->running[i]->state && !generator->running[i]->under_way)
			give_way(generator->running[i]);
}

// The newest running job without a step in flight; NULL if there is none.
static struct generator_job *newest_resting(const struct generator *generator)
{
	struct generator_job *newest = NULL;
	for (uint32_t i = 0; i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		if (!job->under_way && (!newest || job->arrival > newest->arrival))
			newest = job;
	}
	return newest;
}

bool generator_preempt(struct generator *generator)
{
	struct generator_job *job = newest_resting(generator);
	if (job)
		give_way(job);
	return job;
}

// The running job that came first and has fewer pages than tokens to put there.
static struct generator_job *oldest_short(const struct generator *generator)
{
	struct generator_job *oldest = NULL;
	for (uint32_t i = 0; i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		if (job->page_count < pages_for(job->token_count) && !job->stalled &&
		    (!oldest || job->arrival < oldest->arrival))
			oldest = job;
	}
	return oldest;
}

// The oldest job always gets its page, because it fits alone. Jobs with a step in flight cannot be preempted now; a job
// that would have to be preempted instead waits until those steps are back.
void generator_make_room(struct generator *generator)
{
	struct generator_job *job;
	for (uint32_t i = 0; i < generator->running_count; i++)
		generator->running[i]->stalled = false;
	while ((job = oldest_short(generator))) {
		uint32_t page = pages_take(generator->pages, job->request.owner);
		if (page != NO_PAGE)
			job->pages[job->page_count++] = page;
		else if (generator->under_way && newest_resting(generator) == job)
			job->stalled = true;
		else
			generator_preempt(generator);
	}
}

void generator_state(const struct generator *generator, struct generator_state *state)
{
	*state = generator->state;
	state->spent = (struct generator_spent){.stages_ns = generator->spent_ns, .count = generator->stage_count};
	state->running = generator->running_count;
	state->waiting = generator->waiting_count;
	state->page_count = generator->params.page_count;
	state->pages_cached = pages_cached(generator->pages);
	state->pages_used = state->page_count - pages_room(generator->pages);
}
