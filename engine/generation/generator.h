/* Many requests on one model: continuous batching over its stages.
 *
 * Requests join and leave between steps. A step takes the next token of every request that generates, and fills up with
 * pieces of prompts. It has as many rows as the devices compute in about a second (generator_set_prompt_rows): a prompt
 * delays the other requests by that time at most. When pages run short the newest requests wait: first those that have
 * not begun; a request that has begun is preempted: it gives its pages back and is computed again later from its
 * tokens. No request fails for want of pages. Owners take turns: the next request to run is the oldest one of the owner
 * with the fewest running requests. A prompt that begins like another one of the same owner shares its full pages.
 * Pages without a user stay cached for their owner alone as long as there is room, and are zeroed before another owner
 * gets them.
 *
 * The result of a request depends on its tokens, sampling and seed, not on other requests, except for rounding.
 *
 * While all running requests generate and are few, a request may have rows for tokens that its own text foresees
 * (proposals.h). Each row gives logits, from which the token behind it is chosen as ever; as long as that is the one
 * that was foreseen, the next row counts, too. So the result is the same, in fewer steps. Keys and values of rows that
 * do not count are written over by the next step before they are read. A model with states has none to go back to, and
 * proposes nothing.
 *
 * The first layers may be in other processes (`lanes`): then a step is sent there, comes back as activations and is
 * completed here. Steps come back in the order in which they were sent. Up to `lanes` steps are in flight at once, of
 * different requests or of successive pieces of a prompt; while all running requests generate, as many as were measured
 * to be fastest (generator_lanes.h). A job that is removed while a step of it is in flight ends at once; its pages are
 * free when the step is back. Lost steps are planned again by generator_check.
 *
 * Thread: one at a time. Callbacks come from generator_step and generator_remove, and must not call the generator. */
#pragma once
#include "engine/generation/draft/drafter.h"
#include "engine/generation/proposals.h"
#include "engine/generation/sampler.h"
#include "engine/stage.h"

struct generator;
struct generator_job;

// A step on its way to where the first layers are. What it points to is good until it is back.
struct generator_sent {
	uint32_t lane;
	uint64_t step;        // numbered from 1 on
	const uint32_t *zero; // (zero_count): pages to be zeroed before
	uint32_t zero_count;
	const uint32_t *tokens; // (row_count); no rows: there are only pages to be zeroed
	const struct stage_run *runs;
	uint32_t row_count, run_count;
};

// The result of generator_check.
struct generator_checked {
	uint32_t token; // of the largest logit
	float logit;
	bool finite;         // activations and logits are numbers
	const float *logits; // (vocabulary), good during the call
};

struct generator_params {
	struct stage *const *stages; // (stage_count), in order; the caller's
	uint32_t stage_count;
	const struct model_shape *shape;
	// The sizes with which the stages were created.
	uint32_t context_tokens, page_count, batch_rows, batch_sequences, batch_outputs;
	// What lies behind the last whole page of a prompt that runs alone has a step of its own. A repetition of the
	// prompt, which finds the pages before it, then computes the same rows in the same batch, and gives the same
	// tokens. For processors: on a GPU such a step takes as long as a quarter of a prompt of 512.
	bool repeats_alike;
	struct drafter *drafter; // proposes tokens, too; the caller's. NULL: there is none
	uint32_t lanes;          // steps that are elsewhere at once; 0: all layers are here
	// With lanes. An error ends all jobs, like an error of a step.
	enum status (*send)(void *context, const struct generator_sent *step, struct error *error);
	void (*checked)(void *context, const struct generator_checked *checked);
	void *context;
};
// Errors: STATUS_INVALID_PARAMS (more sequences than outputs or rows), STATUS_OUT_OF_MEMORY.
enum status generator_create(struct generator **out, const struct generator_params *params, struct error *error);
void generator_destroy(struct generator **generator); // jobs are dropped without a callback

// The time that stages computed for a job: of each step's, the share of the job's rows among those of the step.
struct generator_spent {
	const uint64_t *stages_ns; // (count), in order, those of other parts first
	uint32_t count;
};

// GENERATOR_BROKEN: what the model made of it holds NaN or infinities, as damaged weights do; others go on.
// GENERATOR_FORMLESS: no token keeps to its form, or it cannot be told which: matcher_error says why.
enum generator_reason {
	GENERATOR_STOP,
	GENERATOR_LENGTH,
	GENERATOR_REMOVED,
	GENERATOR_FAILED,
	GENERATOR_BROKEN,
	GENERATOR_FORMLESS,
};

struct generator_figures {
	uint32_t prompt_tokens, cached_tokens, generated_tokens;
	uint32_t proposed_tokens, accepted_tokens;      // rows for proposed tokens; those whose token was chosen
	uint32_t drafted_tokens, draft_accepted_tokens; // of these, those that the draft model proposed
	uint32_t read_tokens; // of the prompt's: those whose keys and values are there, computed or cached
	struct generator_spent spent;
	int64_t queued_ns, prompt_ns, generate_ns; // until it began; until its first token; from then on
};

struct generator_request {
	uint64_t owner; // requests of one owner share prefixes; 0: shares with nobody
	// (token_count), > 0; copied. The prompt and, of a request that continues, the tokens that it had generated.
	const uint32_t *tokens;
	size_t token_count;
	size_t prompt_count;      // of them; the rest count as generated
	uint32_t max_tokens;      // generated at most, in all
	struct sampling sampling; // copied, biases too
	// The grammar's matcher, advanced by the tokens that were generated before. It stays the caller's, who advances
	// it by each token that is reported. NULL: any token may follow.
	struct matcher *form;
	uint32_t piece_rows; // of the prompt, in one step, at most; 0: as many as fit
	bool speculate;      // foreseen tokens may have rows
	bool want_hidden;    // no token is generated: `hidden` is called once
	// Judge the tokens of the prompt, too: `judged` is called for the second and all that follow, in their order
	// and once each, before the first `token`. The prompt is computed whole then, whatever of it is known.
	bool want_prompt;
	void (*judged)(void *context, const struct token_choice *choice);
	// For tests. Returns the token that counts as by far the likeliest once `generated` tokens have come;
	// SAMPLER_NO_TOKEN: the logits count as they are. NULL: they always do.
	uint32_t (*says)(void *context, size_t generated);
	// A token has been chosen. Return true if it is the last (an end of text, or a stop string is complete).
	bool (*token)(void *context, const struct token_choice *choice);
	void (*hidden)(void *context,
		       const float *values); // (embedding), as the shape's pooling says, of length 1; or one score
	// The last call. `error` for GENERATOR_FAILED.
	void (*ended)(void *context, enum generator_reason reason, const struct generator_figures *figures,
		      const struct error *error);
	void *context;
};
// Errors: STATUS_INVALID_PARAMS (longer than the context, with both figures; a token outside the vocabulary),
// STATUS_LIMIT_EXCEEDED (the prompt fits no pages that there will ever be), STATUS_OUT_OF_MEMORY.
enum status generator_add(struct generator *generator, struct generator_job **out,
			  const struct generator_request *request, struct error *error);
// From its next token on it keeps to this, as generator_request.form; for its `token`, or before its first.
void generator_set_form(struct generator_job *job, struct matcher *form);
struct generator_spent generator_job_spent(const struct generator_job *job); // until now; the job's
// The job ends now with GENERATOR_REMOVED; its pages are free at once.
void generator_remove(struct generator_job **job);

// Set the number of rows of a step that has a piece of a prompt, and of a step whose request is alone (more rows at a
// time are faster and delay nobody); both at most batch_rows, which is the default. Requests that generate always get
// their rows, and prompts get PIECE_ROWS_LEAST (generator_step.c) beside them. The same numbers give the same pieces of
// a prompt that is alone.
void generator_set_prompt_rows(struct generator *generator, uint32_t rows, uint32_t alone);
// Set what all parts together compute in steps of few rows, by which it is decided how many tokens to propose
// (row_prices_set). With lanes, the network time of steps that are alone in flight is added to it, as it is measured.
void generator_set_row_times(struct generator *generator, const double times[ROW_TIMES]);
// Cached prefixes of `owner` (0: of everyone) are no longer found; the next step zeroes those of their pages that
// nobody holds.
void generator_forget(struct generator *generator, uint64_t owner);

// Compute one step. *idle: there was nothing to compute, and nothing is in flight. Errors: STATUS_DEVICE_LOST and every
// other failure of a step; each job has had its `ended` by then. With lanes: every free lane that is of use and has
// work is sent.
enum status generator_step(struct generator *generator, bool *idle, struct error *error);

// With lanes: a step is back. If it is not the one that is due, a step was lost: this one is dropped, and *taken is
// false.
struct generator_returned {
	uint32_t lane, row_count;
	uint64_t step;
	uint64_t network_ns;       // from sending to return, without the time in the parts elsewhere; 0: not known
	const float *activations;  // (row_count, embedding)
	const uint64_t *stages_ns; // (stage_count), what each stage elsewhere computed
	uint32_t stage_count;
};
enum status generator_return(struct generator *generator, const struct generator_returned *returned, bool *taken,
			     struct error *error);
// With lanes: give up all steps in flight and plan them again. Before that, one token alone at position 0 goes through
// all parts, and `checked` is called with the result. For the start, and for when a step may have been lost.
enum status generator_check(struct generator *generator, uint32_t token, struct error *error);
// With lanes: give up all steps in flight, and send nothing until generator_check, because a part has failed.
void generator_halt(struct generator *generator);
// With lanes, halted: use so many lanes from now on. Errors: STATUS_OUT_OF_MEMORY: the generator can only be destroyed.
enum status generator_set_lanes(struct generator *generator, uint32_t lanes, struct error *error);
// All jobs end now with GENERATOR_FAILED, because a device was lost outside a step.
void generator_fail(struct generator *generator, const struct error *error);

// ---- prefixes that move ----
// A generator computes a prompt, and another one of the same model has its pages for a request. Not with lanes, and
// not of a model with states.

struct generator_prefix; // an owner's pages, from the first token on, which stay as long as they are held
// owner: not 0. Errors: STATUS_OUT_OF_MEMORY.
enum status generator_prefix_open(struct generator *generator, struct generator_prefix **out, uint64_t owner,
				  struct error *error);
void generator_prefix_close(struct generator_prefix **prefix); // before the generator. Accepts NULL, leaves NULL
// Also hold what is known by now of the first `pages` pages of these tokens (pages * STAGE_PAGE_TOKENS), which are the
// same in each call. Returns how many pages are held.
uint32_t generator_prefix_find(struct generator_prefix *prefix, const uint32_t *tokens, uint32_t pages);
const uint32_t *generator_prefix_pages(const struct generator_prefix *prefix); // that are held, in order
// The next pages of a prefix, computed elsewhere.
struct generator_pages {
	const uint32_t *tokens; // (count, STAGE_PAGE_TOKENS)
	uint32_t count;
	// Write keys and values of `count` of these, from the one at `first` on, to the given pages of each stage.
	// NULL: they did not come, and only pages that are known already are held.
	enum status (*write)(void *context, const uint32_t *pages, uint32_t first, uint32_t count, struct error *error);
	void *context;
};
// Hold and publish them, as far as there are pages that nobody needs; those that are known already are not written.
// *added: how many are held, from the first on. Errors: STATUS_LIMIT_EXCEEDED, those of `write`, STATUS_DEVICE_LOST.
enum status generator_prefix_add(struct generator_prefix *prefix, const struct generator_pages *given, uint32_t *added,
				 struct error *error);

struct generator_state {
	uint32_t running, waiting;
	uint32_t pages_used, pages_cached, page_count;
	uint64_t prompt_tokens, generated_tokens; // ever
	uint64_t proposed_tokens, accepted_tokens;
	uint64_t drafted_tokens, draft_accepted_tokens; // of these
	uint64_t steps, step_ns;
	uint32_t step_rows, step_runs; // of the last of these
	uint32_t preemptions;          // jobs that gave their pages back
	uint64_t ties;                 // tokens of jobs that went on whose choice lay within rounding of another
	struct generator_spent spent;  // of all jobs ever; the generator's
};
void generator_state(const struct generator *generator, struct generator_state *state);
