/* The recurrent states of a generator's jobs, for models with states (stage.h). See generator_inside.h.
 *
 * A job writes to a slot of its own. At some positions, all of them ends of pages, it keeps that slot unchanged and
 * continues in another one; a later job with the same beginning continues from the kept state. These positions are the
 * end of a prompt's last whole page, the place where a prompt differs from others with the same beginning, and the end
 * of an answer's last page. A prompt is cut into pieces at these positions. If pages of a prefix are found but no
 * state, the tokens are computed again. */
#include "engine/generation/generator_inside.h"

static bool has_states(const struct generator *generator)
{
	return model_is_recurrent(generator->params.shape);
}

uint32_t generator_find_state(struct generator_job *job, uint32_t most)
{
	struct generator *generator = job->generator;
	uint32_t found = 0;
	if (!has_states(generator))
		return most;
	for (uint32_t page = 0; page < most; page++) {
		const uint32_t slot = recurrent_find(generator->states,
						     pages_serial(generator->pages, job->pages[page]));
		found = slot ? page + 1 : found;
		job->state = slot ? slot : job->state;
	}
	if (job->state) {
		recurrent_hold(generator->states, job->state);
		job->state_is_kept = true;
	}
	job->cuts[0] = most > found ? most * STAGE_PAGE_TOKENS : 0;
	job->cuts[1] = (job->token_count - 1) / STAGE_PAGE_TOKENS * STAGE_PAGE_TOKENS;
	return found;
}

bool generator_take_state(struct generator_job *job)
{
	struct generator *generator = job->generator;
	if (has_states(generator))
		job->next_state = recurrent_take(generator->states, job->request.owner);
	return !has_states(generator) || job->next_state;
}

void generator_release_states(struct generator_job *job)
{
	struct recurrent *states = job->generator->states;
	if (job->state)
		recurrent_release(states, job->state);
	if (job->next_state)
		recurrent_release(states, job->next_state);
	if (job->left_state)
		recurrent_release(states, job->left_state);
	job->state = job->next_state = job->left_state = 0;
	job->state_is_kept = false;
}

// Whether the state before the next token to be sent is to be kept.
static bool is_worth_keeping(const struct generator_job *job)
{
	const bool generates = job->sent > job->cuts[1];
	return job->request.owner && job->sent && job->sent % STAGE_PAGE_TOKENS == 0 &&
	       (generates || job->sent == job->cuts[0] || job->sent == job->cuts[1]);
}

void generator_plan_states(struct generator *generator)
{
	for (uint32_t i = 0; has_states(generator) && i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		if (job->state && !job->state_is_kept && !job->next_state && !job->left_state && is_worth_keeping(job))
			job->next_state = recurrent_take(generator->states, job->request.owner);
	}
}

// The state that was left belongs to a page that is published.
static void keep(struct generator_job *job)
{
	struct recurrent *states = job->generator->states;
	const bool generated = job->left_at > job->cuts[1];
	if (generated && job->kept_serial)
		recurrent_drop(states, job->kept_serial);
	job->kept_serial = generated ? job->serial : 0;
	recurrent_keep(states, job->left_state, job->serial);
	job->left_state = 0;
}

void generator_published_page(struct generator_job *job)
{
	if (job->left_state && job->left_at == job->published * STAGE_PAGE_TOKENS)
		keep(job);
}

void generator_run_states(struct generator_job *job, struct stage_run *run)
{
	struct generator *generator = job->generator;
	if (!has_states(generator))
		return;
	run->state_from = job->state;
	run->state_to = job->next_state ? job->next_state : job->state;
	if (run->state_from == run->state_to)
		return;
	if (job->state && job->state_is_kept) {
		recurrent_release(generator->states, job->state);
	} else if (job->state) {
		job->left_state = job->state;
		job->left_at = job->sent;
		generator_published_page(job);
	}
	job->state = job->next_state;
	job->next_state = 0;
	job->state_is_kept = false;
}

uint32_t generator_cut_rows(const struct generator_job *job, uint32_t rows)
{
	for (int i = 0; has_states(job->generator) && i < 2; i++)
		if (job->cuts[i] > job->sent && rows > job->cuts[i] - job->sent)
			rows = job->cuts[i] - job->sent;
	return rows;
}
