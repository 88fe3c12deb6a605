/* Many requests on one model: continuous batching over its stages.
 *
 * Requests join and leave between steps. A step takes the next token of everyone who generates, and fills up with
 * pieces of prompts, as many rows as the devices make within about a second (generator_set_prompt_rows): so long at
 * most a prompt holds the others up. When pages run short the newest requests wait (first those that have not begun;
 * one that has begun gives its pages back and is computed again later, from its tokens): none fails for it. Owners take
 * turns: of those that wait the one of the owner who has the fewest running is next, the oldest of his first. A prompt
 * that begins as another one of the same owner did shares its full pages; pages that nobody uses any more are kept for
 * that as long as there is room, for their owner only, and are zeroed before they go to another.
 *
 * What a request gets depends on its tokens, sampling and seed, not on who else is there, but for rounding.
 *
 * The first layers may be elsewhere (`lanes`): then a step is sent there, comes back as activations, in the order in
 * which it was sent, and ends here. As many steps as there are lanes are under way at once, of different requests or of
 * successive pieces of a prompt; while everyone who runs generates, as many as turn out to be the fastest
 * (generator_lanes.h). A job that leaves while a step of it is under way is told so at once; its pages are
 * free when the step is back. Steps that were lost are planned again by generator_check.
 *
 * Thread: one at a time; the callbacks come from generator_step and generator_remove, and call nothing of this. */
#pragma once
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

// What came of generator_check.
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
	// As the stages were made.
	uint32_t context_tokens, page_count, batch_rows, batch_sequences, batch_outputs;
	uint32_t lanes; // steps that are elsewhere at once; 0: all layers are here
	// With lanes. Errors end all, as those of a step do.
	enum status (*send)(void *context, const struct generator_sent *step, struct error *error);
	void (*checked)(void *context, const struct generator_checked *checked);
	void *context;
};
// Errors: STATUS_INVALID_PARAMS (more sequences than outputs or rows), STATUS_OUT_OF_MEMORY.
enum status generator_create(struct generator **out, const struct generator_params *params, struct error *error);
void generator_destroy(struct generator **generator); // jobs are dropped without a callback

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
	int64_t queued_ns, prompt_ns, generate_ns; // until it began; until its first token; from then on
};

struct generator_request {
	uint64_t owner; // prefixes are shared among requests of one owner; 0: with nobody
	// (token_count), > 0; copied. The prompt and, of one that goes on, what it had generated.
	const uint32_t *tokens;
	size_t token_count;
	size_t prompt_count;      // of them; the rest count as generated
	uint32_t max_tokens;      // generated at most, in all
	struct sampling sampling; // copied, biases too
	// What its tokens keep to, at the place that the generated ones have led to; the caller's, who has it take each
	// token that is told. NULL: anything.
	struct matcher *form;
	bool want_hidden; // no token is generated: `hidden` is called once
	// Judge the tokens of the prompt, too: `judged` is called for the second and all that follow, in their order
	// and once each, before the first `token`. The prompt is computed whole then, whatever of it is known.
	bool want_prompt;
	void (*judged)(void *context, const struct token_choice *choice);
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
// It ends now, GENERATOR_REMOVED; its pages are free at once.
void generator_remove(struct generator_job **job);

// Rows of a step that has a piece of a prompt, from now on, and of one that nobody else runs beside, where many rows at
// a time hold nobody up; batch_rows at most, and from the beginning. Those who generate always have theirs, and the
// prompts PIECE_ROWS_LEAST (generator_step.c) besides. The same numbers make the same pieces of a prompt that is alone.
void generator_set_prompt_rows(struct generator *generator, uint32_t rows, uint32_t alone);
// What `owner` (0: everyone) left in pages for those to come is found no more; the next step zeroes what nobody has.
void generator_forget(struct generator *generator, uint64_t owner);

// One step, if there is anything to do: *idle says that there was not, and that nothing is under way. A device that is
// lost, and whatever else makes a step fail for all, is returned; every job has had its `ended` then.
// With lanes: every lane that is free, is of use and has anything to do is sent.
enum status generator_step(struct generator *generator, bool *idle, struct error *error);

// With lanes: a step is back. What is not the one that is due is dropped, *taken says so: the one before it was lost.
struct generator_returned {
	uint32_t lane, row_count;
	uint64_t step;
	const float *activations; // (row_count, embedding)
};
enum status generator_return(struct generator *generator, const struct generator_returned *returned, bool *taken,
			     struct error *error);
// With lanes: whatever is under way is given up, and planned again; before that one token, alone, at position 0, goes
// all the way, and `checked` is told. For the beginning, and for whenever a step may have been lost.
enum status generator_check(struct generator *generator, uint32_t token, struct error *error);
// With lanes: give up what is under way, and send nothing more until generator_check: a part has failed.
void generator_halt(struct generator *generator);
// With lanes, halted: from now on it is so many. Errors: STATUS_OUT_OF_MEMORY: it is only good for being destroyed.
enum status generator_set_lanes(struct generator *generator, uint32_t lanes, struct error *error);
// All end now, GENERATOR_FAILED: a device is known to be lost before a step meets that.
void generator_fail(struct generator *generator, const struct error *error);

struct generator_state {
	uint32_t running, waiting;
	uint32_t pages_used, pages_cached, page_count;
	uint64_t prompt_tokens, generated_tokens; // ever
	uint64_t steps, step_ns;
	uint32_t step_rows, step_runs; // of the last of these
	uint32_t preemptions;          // jobs that gave their pages back
	uint64_t ties;                 // tokens of jobs that went on whose choice lay within rounding of another
};
void generator_state(const struct generator *generator, struct generator_state *state);
