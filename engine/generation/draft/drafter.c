// See drafter.h.
#include "engine/generation/draft/drafter.h"

#include "common/base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { LAST_ROWS = 8 }; // of a text, that are read in the step that proposes its first token

struct place {
	uint64_t owner;
	uint64_t who;
	uint64_t used;    // when, in calls
	uint32_t done;    // tokens whose keys and values are in its pages
	uint32_t reached; // the most that were
	bool dirty;       // its pages are to be zeroed before they are used
	uint32_t *tokens; // (context_tokens), the first `done`
	uint32_t *pages;  // (context_tokens / STAGE_PAGE_TOKENS)
};

struct drafter {
	struct drafter_params params;
	struct place places[DRAFT_PLACES];
	uint64_t calls;
	struct drafter_figures figures;
	uint32_t *rows; // (batch_rows), tokens of a step
};

enum status drafter_create(struct drafter **out, const struct drafter_params *params, struct error *error)
{
	const uint32_t pages = params->context_tokens / STAGE_PAGE_TOKENS;
	*out = NULL;
	if (!params->places || params->places > DRAFT_PLACES || !pages || params->context_tokens % STAGE_PAGE_TOKENS ||
	    params->batch_rows < params->places * LAST_ROWS)
		return error_set(error, STATUS_INVALID_PARAMS, "the sizes of a draft model do not fit each other");
	struct drafter *drafter = *out = calloc(1, sizeof(*drafter));
	if (!drafter)
		goto failed;
	drafter->params = *params;
	drafter->figures = (struct drafter_figures){.step_s = params->step_s, .read_s = params->read_s};
	drafter->rows = calloc(params->batch_rows, sizeof(uint32_t));
	if (!drafter->rows)
		goto failed;
	for (uint32_t i = 0; i < params->places; i++) {
		struct place *place = &drafter->places[i];
		place->tokens = calloc(params->context_tokens, sizeof(uint32_t));
		place->pages = calloc(pages, sizeof(uint32_t));
		if (!place->tokens || !place->pages)
			goto failed;
		for (uint32_t page = 0; page < pages; page++)
			place->pages[page] = i * pages + page;
	}
	return STATUS_OK;
failed:
	drafter_destroy(out);
	return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a draft model's texts");
}

void drafter_destroy(struct drafter **drafter_pointer)
{
	struct drafter *drafter = *drafter_pointer;
	if (!drafter)
		return;
	for (uint32_t i = 0; i < DRAFT_PLACES; i++) {
		free(drafter->places[i].tokens);
		free(drafter->places[i].pages);
	}
	free(drafter->rows);
	free(drafter);
	*drafter_pointer = NULL;
}

uint32_t drafter_places(const struct drafter *drafter)
{
	return drafter->params.places;
}

struct drafter_figures drafter_figures(const struct drafter *drafter)
{
	return drafter->figures;
}

// ---- places ----

// How many tokens of the text the place has read, of those that may stay: the last one gives the first proposal.
static uint32_t known(const struct place *place, const struct draft_wish *wish)
{
	const uint32_t most = place->done < wish->count - 1 ? place->done : wish->count - 1;
	uint32_t same = 0;
	if (place->dirty || place->owner != wish->owner || (!wish->owner && place->who != wish->who))
		return 0;
	while (same < most && place->tokens[same] == wish->tokens[same])
		same++;
	return same;
}

// The place of this text: the one that it had, else the one that has read the most of it, else the one that was used
// longest ago. None that was used in this call already.
static uint32_t find_place(const struct drafter *drafter, const struct draft_wish *wish, uint64_t call)
{
	uint32_t best = UINT32_MAX, most = 0;
	for (uint32_t i = 0; i < drafter->params.places; i++) {
		const struct place *place = &drafter->places[i];
		if (place->used == call && call)
			continue;
		if (place->used && !place->dirty && place->who == wish->who && place->owner == wish->owner)
			return i;
		const uint32_t same = known(place, wish);
		if (best == UINT32_MAX || same > most || (same == most && place->used < drafter->places[best].used)) {
			best = i;
			most = same;
		}
	}
	return best;
}

uint32_t drafter_unread(const struct drafter *drafter, const struct draft_wish *wish)
{
	if (!wish->count || wish->count > drafter->params.context_tokens ||
	    wish->wanted > drafter->params.context_tokens - wish->count)
		return UINT32_MAX;
	const uint32_t at = find_place(drafter, wish, 0), first = known(&drafter->places[at], wish);
	for (uint32_t i = first; i < wish->count; i++)
		if (wish->tokens[i] >= drafter->params.shape->vocabulary)
			return UINT32_MAX;
	const uint32_t unread = wish->count - first;
	return unread > LAST_ROWS ? unread - LAST_ROWS : 0;
}

static enum status zero(struct drafter *drafter, struct place *place, struct error *error)
{
	const uint32_t count = (place->reached + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
	const enum status status = count ? stage_zero(drafter->params.stage, place->pages, count, error) : STATUS_OK;
	if (!status)
		*place = (struct place){.tokens = place->tokens, .pages = place->pages};
	return status;
}

static enum status take_place(struct drafter *drafter, const struct draft_wish *wish, struct place **out,
			      struct error *error)
{
	struct place *place = *out = &drafter->places[find_place(drafter, wish, drafter->calls)];
	enum status status = STATUS_OK;
	if (place->dirty || place->owner != wish->owner || (!wish->owner && place->who != wish->who))
		status = zero(drafter, place, error);
	place->done = known(place, wish);
	place->owner = wish->owner;
	place->who = wish->who;
	place->used = drafter->calls;
	return status;
}

void drafter_forget(struct drafter *drafter, uint64_t owner)
{
	for (uint32_t i = 0; i < drafter->params.places; i++)
		if (!owner || drafter->places[i].owner == owner)
			drafter->places[i].dirty = true;
}

enum status drafter_tidy(struct drafter *drafter, struct error *error)
{
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < drafter->params.places; i++)
		if (drafter->places[i].dirty)
			status = zero(drafter, &drafter->places[i], error);
	return status;
}

// ---- steps ----

// A step that is being made of rows of several texts.
struct making {
	struct stage_run runs[DRAFT_PLACES];
	uint32_t outputs[DRAFT_PLACES], argmax[DRAFT_PLACES];
	uint32_t rows, count;
};

// These tokens come next in the place.
static void add_run(struct drafter *drafter, struct making *making, struct place *place, const uint32_t *tokens,
		    uint32_t count)
{
	making->runs[making->count] = (struct stage_run){
		.row_count = count, .position = place->done, .pages = place->pages};
	memcpy(&drafter->rows[making->rows], tokens, count * sizeof(uint32_t));
	memmove(&place->tokens[place->done], tokens, count * sizeof(uint32_t));
	place->done += count;
	place->reached = place->done > place->reached ? place->done : place->reached;
	making->rows += count;
	making->outputs[making->count++] = making->rows - 1;
}

static enum status compute(struct drafter *drafter, struct making *making, bool predicts, struct error *error)
{
	const struct stage_batch batch = {.row_count = making->rows,
					  .runs = making->runs,
					  .run_count = making->count,
					  .tokens = drafter->rows,
					  .output_rows = predicts ? making->outputs : NULL,
					  .output_count = predicts ? making->count : 0,
					  .argmax = predicts ? making->argmax : NULL};
	const int64_t began_ns = clock_steady_ns();
	const enum status status = stage_step(drafter->params.stage, &batch, error);
	const int64_t ns = clock_steady_ns() - began_ns;
	double *mean = predicts ? &drafter->figures.step_s : &drafter->figures.read_s;
	const double seconds = (double)ns * 1e-9 / (predicts ? 1 : making->rows);
	*mean = *mean > 0 ? *mean + (seconds - *mean) / 8 : seconds;
	drafter->figures.spent_ns += (uint64_t)ns;
	return status;
}

// All of a text but its last few tokens.
static enum status read_text(struct drafter *drafter, struct place *place, const struct draft_wish *wish,
			     struct error *error)
{
	enum status status = STATUS_OK;
	while (!status && wish->count - place->done > LAST_ROWS) {
		const uint32_t left = wish->count - LAST_ROWS - place->done, most = drafter->params.batch_rows;
		struct making making = {0};
		add_run(drafter, &making, place, &wish->tokens[place->done], left < most ? left : most);
		status = compute(drafter, &making, false, error);
	}
	return status;
}

// The next token of each text that wants one. *more: there is a text that wants yet another.
static enum status propose_next(struct drafter *drafter, struct place *const *places, struct draft_wish *wishes,
				uint32_t count, uint32_t vocabulary, bool *more, struct error *error)
{
	struct making making = {0};
	struct draft_wish *asked[DRAFT_PLACES];
	for (uint32_t i = 0; i < count; i++) {
		struct draft_wish *wish = &wishes[i];
		struct place *place = places[i];
		if (wish->given >= wish->wanted)
			continue;
		asked[making.count] = wish;
		if (wish->given)
			add_run(drafter, &making, place, &wish->proposed[wish->given - 1], 1);
		else
			add_run(drafter, &making, place, &wish->tokens[place->done], wish->count - place->done);
	}
	*more = false;
	const enum status status = making.count ? compute(drafter, &making, true, error) : STATUS_OK;
	for (uint32_t i = 0; !status && i < making.count; i++) {
		if (making.argmax[i] < vocabulary) // STAGE_NO_TOKEN is not
			asked[i]->proposed[asked[i]->given++] = making.argmax[i];
		else
			asked[i]->wanted = asked[i]->given;
		*more |= asked[i]->given < asked[i]->wanted;
	}
	return status;
}

enum status drafter_propose(struct drafter *drafter, struct draft_wish *wishes, uint32_t count, uint32_t vocabulary,
			    struct error *error)
{
	struct place *places[DRAFT_PLACES] = {0};
	enum status status = STATUS_OK;
	drafter->calls++;
	count = count < drafter->params.places ? count : drafter->params.places;
	for (uint32_t i = 0; !status && i < count; i++) {
		wishes[i].given = 0;
		status = take_place(drafter, &wishes[i], &places[i], error);
		if (!status)
			status = read_text(drafter, places[i], &wishes[i], error);
	}
	for (bool more = count; !status && more;)
		status = propose_next(drafter, places, wishes, count, vocabulary, &more, error);
	if (status)
		drafter_forget(drafter, 0);
	return status;
}
