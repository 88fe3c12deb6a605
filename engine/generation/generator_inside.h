/* Jobs and lanes, which the generator's files share. See generator.h.
 *
 * A job waits, in the order of arrival, or it runs. A running job has pages for all of its tokens: the first `done`
 * tokens are computed, and those up to `sent` are in flight. So a job that generates has one token to compute, and a
 * prompt has many; a preempted job is a prompt again. Running jobs are listed in the order of turns: after a piece of
 * its prompt was computed, a job goes to the back. A job that ended while steps of it are in flight is `gone`: it is in
 * no list, and is freed with the last of these steps. Thread: the generator's. */
#pragma once
#include "common/base/limits.h"
#include "engine/generation/draft/drafting.h"
#include "engine/generation/generator.h"
#include "engine/generation/generator_lanes.h"
#include "engine/generation/pages.h"
#include "engine/generation/recurrent.h"
#include "engine/generation/samplers.h"

struct generator_job {
	struct generator *generator;
	struct generator_job *next; // in the list of waiting jobs
	struct generator_request request;
	struct token_bias *biases;
	uint64_t arrival;
	uint32_t *tokens; // (most)
	uint32_t token_count, prompt_count, most;
	uint32_t *pages; // (page_count)
	uint32_t page_count;
	uint32_t done, sent; // tokens whose keys and values are in the pages; and on their way there
	uint32_t under_way;  // steps
	uint32_t published;  // full pages that are
	uint64_t serial;     // of the last of them
	// Slots, of a model with states:
	uint32_t state;               // of the state before the next token to be sent; 0: it is the first
	uint32_t next_state;          // where the next step leaves one; 0: in the same
	bool state_is_kept;           // it is one that somebody left, and is not written to
	uint32_t left_state, left_at; // a slot with a state to be kept for the page that ends at this position; 0: none
	uint64_t kept_serial;         // of the page whose state was kept last, if that was of the answer
	uint32_t cuts[2];             // positions in the prompt at which a state is to be kept; 0: none
	uint32_t judged;              // with want_prompt: tokens of the prompt that have been, the first by itself
	double *sum;                  // (embedding), with want_hidden, over the tokens that are done
	struct proposals proposals;
	struct drafting drafting;
	float price;        // of those that it proposes
	uint32_t proposing; // tokens behind its own that its next step has rows for, too
	bool drafted;       // by the draft model
	uint32_t proposed_tokens, accepted_tokens;
	uint32_t drafted_tokens, draft_accepted_tokens; // of these
	bool running, begun, gone;
	bool stalled; // it has no page for its next token until a step is back
	uint32_t cached_tokens;
	uint32_t reached;                         // the most tokens that were done, of a job that was preempted
	uint64_t spent_ns[LIMIT_INSTANCE_STAGES]; // its share of what each stage computed
	int64_t added_ns, begun_ns, first_ns;
};

// The rows of one job in a step.
struct piece {
	struct generator_job *job;
	uint32_t rows, outputs; // its last so many rows give logits or hidden states
	float price;            // of proposed tokens
	uint32_t proposed;      // so many rows at the end are of proposed tokens
	bool drafted;           // by the draft model
	bool chooses;           // the last of its other rows gives the next token
	bool sampled;           // from logits
	bool narrow;            // from the candidates among them, which the last stage finds
};

// A step, from its plan until it is delivered.
struct lane {
	bool under_way, check;
	uint64_t step;
	int64_t began_ns;
	bool alone;             // no other step was in flight when it began
	uint64_t drafting_ns;   // what the draft model computed for it before
	struct piece *pieces;   // (batch_sequences), of the runs; a check has none
	struct stage_run *runs; // (batch_sequences)
	uint32_t *tokens;       // (batch_rows)
	uint32_t *output_rows;  // (batch_outputs)
	uint32_t *zero;         // (page_count and states)
	uint32_t run_count, row_count, output_count, zero_count;
};

struct generator {
	struct generator_params params;
	struct pages *pages;
	struct recurrent *states;
	struct samplers *samplers;
	struct generator_job **running; // (batch_sequences)
	struct generator_job *waiting;
	uint32_t running_count, waiting_count;
	uint64_t arrivals;
	uint32_t prompt_rows;          // of a step, at most, unless many generate besides
	uint32_t alone_rows;           // where a prompt is alone
	struct row_prices prices;      // of a step that is alone in flight
	struct row_prices busy_prices; // where several are: they overlap, so the network time does not count
	struct draft_times draft_times;
	float draft_right;    // the share of drafted tokens that were right, of all jobs
	uint32_t draft_used;  // steps since one without drafted tokens
	uint64_t drafting_ns; // what the draft model computed for the step that is planned
	struct generator_state state;
	struct lane *lanes; // (lane_count)
	uint32_t lane_count, under_way;
	uint32_t lanes_now; // of them, that are used
	struct lanes_choice choice;
	uint64_t sent_steps, due_step; // the last that was sent; the next that comes back
	uint32_t check_page;           // page of the check that is in flight, or NO_PAGE
	uint32_t check_state;          // the same, of a model with states; else 0
	bool halted;
	// of the step that is computed
	uint32_t *argmax;                          // (batch_outputs)
	struct token_choice *choices;              // (batch_outputs), of jobs whose sampling is not greedy
	struct sampler_task *tasks;                // (batch_outputs)
	float *logits;                             // (batch_outputs, vocabulary), the last stage's
	float *hidden;                             // (batch_outputs, embedding)
	float *activations[2];                     // (batch_rows, embedding), of several stages
	uint64_t stages_ns[LIMIT_INSTANCE_STAGES]; // (stage_count), what each stage computed, those elsewhere first
	uint32_t stage_count;
	// ever
	uint64_t seen_ns[LIMIT_INSTANCE_STAGES];  // stage_spent_ns of the stages here, before the step
	uint64_t spent_ns[LIMIT_INSTANCE_STAGES]; // of all jobs, as stages_ns
};

// ---- generator.c ----

// Let jobs run, as long as there is room, and give each that runs pages for its tokens; the newest give way.
void generator_admit(struct generator *generator);
void generator_make_room(struct generator *generator);
// Preempt the newest running job without a step in flight: its pages become free. False if there is none.
bool generator_preempt(struct generator *generator);
// The job leaves its list, and its `ended` is called. It must not be used afterwards.
void generator_end(struct generator_job *job, enum generator_reason reason, const struct error *error);
// A step of it is over. False if it is gone; then it may have been freed.
bool generator_landed(struct generator_job *job);

// Models with states only: a lost step may have changed the states of running jobs. These jobs wait, and continue from
// a kept state.
void generator_rewind(struct generator *generator);

// ---- generator_states.c; of a model without states they do nothing ----

// How many of the job's `most` first pages, which it holds, it can go on from: with a state, which it then has.
uint32_t generator_find_state(struct generator_job *job, uint32_t most);
// The job begins to run and gets a slot to write its state to. False if no slot is free.
bool generator_take_state(struct generator_job *job);
void generator_release_states(struct generator_job *job);
// Before the plan of a step: slots for those who leave a state as it is.
void generator_plan_states(struct generator *generator);
// A run of the job is planned, from `sent` on: its slots.
void generator_run_states(struct generator_job *job, struct stage_run *run);
// A page of the job has been published: `published` and `serial` are its.
void generator_published_page(struct generator_job *job);
// How many of the next rows come before the next position at which a state is to be kept.
uint32_t generator_cut_rows(const struct generator_job *job, uint32_t rows);

// ---- generator_propose.c ----

// Before the plan of a step, when all running jobs have pages: which of them propose how many tokens, and pages for
// these. Errors: the draft model's; all jobs have ended then.
enum status generator_propose(struct generator *generator, struct error *error);
// A step that took so long is back, without what drafting took.
void generator_timed_step(struct generator *generator, const struct lane *lane, uint64_t ns);

// ---- generator_deliver.c ----

// Whether the job's tokens are chosen from logits, here; else the last stage's argmax is enough.
bool generator_needs_sampler(const struct generator_job *job);
// Whether the token that a piece gives is drawn from the candidates that the last stage finds.
bool generator_needs_candidates(const struct generator *generator, const struct piece *piece);
void generator_deliver(struct generator *generator, const struct lane *lane);
void generator_deliver_check(struct generator *generator, const float *input); // input: the activations that came back

// ---- generator_spent.c ----

// Before the stages here compute a step: `returned` has what those elsewhere computed of it; NULL: there are none.
void generator_spent_begin(struct generator *generator, const struct generator_returned *returned);
// The stages here have computed the step: divide the time among its jobs.
void generator_spent_add(struct generator *generator, const struct lane *lane);

// ---- generator_step.c ----

enum status generator_make_lanes(struct generator *generator);
void generator_free_lanes(struct generator *generator); // and the jobs in them that are gone
