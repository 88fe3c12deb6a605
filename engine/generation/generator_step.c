/* Steps of a generator, from their plan to their end; their results are delivered by generator_deliver.c. See
 * generator.h.
 *
 *     all layers here   generator_step: plan, compute, deliver
 *     with lanes        generator_step: plan, send    ...    generator_return: compute, deliver
 *
 * Steps come back in the order in which they were sent; `due_step` is the next one. If another step comes, the due step
 * was lost, and the results of all steps sent after it are dropped: their rows are planned again. Thread: the
 * generator's. */
#include "common/base/clock.h"
#include "engine/generation/generator_inside.h"

#include <stdlib.h>
#include <string.h>

enum {
	LANE_ROWS_LEAST = 128, // of a prompt's piece, with lanes; fewer would waste a device
	LANE_PIECES = 4,       // that a prompt has for each lane, if it is long enough: the first and the last wait
	PIECE_ROWS_LEAST = 16, // however many generate besides
};

enum status generator_make_lanes(struct generator *generator)
{
	const struct generator_params *params = &generator->params;
	uint32_t count = params->lanes ? params->lanes : 1;
	generator->lanes = calloc(count, sizeof(*generator->lanes));
	if (!generator->lanes)
		return STATUS_OUT_OF_MEMORY;
	generator->lane_count = generator->lanes_now = count;
	lanes_init(&generator->choice, count);
	for (struct lane *lane = generator->lanes; lane < generator->lanes + count; lane++) {
		lane->pieces = calloc(params->batch_sequences, sizeof(*lane->pieces));
		lane->runs = calloc(params->batch_sequences, sizeof(*lane->runs));
		lane->tokens = calloc(params->batch_rows, sizeof(*lane->tokens));
		lane->output_rows = calloc(params->batch_outputs, sizeof(*lane->output_rows));
		lane->zero = calloc(params->page_count + stage_state_count(params->shape, params->batch_sequences),
				    sizeof(*lane->zero));
		if (!lane->pieces || !lane->runs || !lane->tokens || !lane->output_rows || !lane->zero)
			return STATUS_OUT_OF_MEMORY;
	}
	return STATUS_OK;
}

static void release_check(struct generator *generator)
{
	if (generator->check_page != NO_PAGE)
		pages_release(generator->pages, generator->check_page);
	if (generator->check_state)
		recurrent_release(generator->states, generator->check_state);
	generator->check_page = NO_PAGE;
	generator->check_state = 0;
}

// The rows of this step are planned again. Its pages may not have been zeroed.
static void give_up(struct generator *generator, struct lane *lane)
{
	if (lane->check)
		release_check(generator);
	for (uint32_t i = 0; i < lane->run_count && !lane->check; i++)
		if (generator_landed(lane->pieces[i].job))
			lane->pieces[i].job->sent = lane->pieces[i].job->done;
	for (uint32_t i = 0; i < lane->zero_count; i++)
		if (lane->zero[i] < generator->params.page_count)
			pages_zero_again(generator->pages, lane->zero[i]);
		else
			recurrent_zero_again(generator->states, lane->zero[i] - generator->params.page_count + 1);
	lane->under_way = lane->check = false;
	generator->under_way--;
}

static void give_up_all(struct generator *generator)
{
	for (uint32_t i = 0; i < generator->lane_count; i++)
		if (generator->lanes[i].under_way)
			give_up(generator, &generator->lanes[i]);
	generator_rewind(generator);
	generator->due_step = generator->sent_steps + 1;
	lanes_now(&generator->choice, 0, 0); // ends the current measurement
}

void generator_free_lanes(struct generator *generator)
{
	if (generator->pages)
		give_up_all(generator);
	for (uint32_t i = 0; i < generator->lane_count; i++) {
		struct lane *lane = &generator->lanes[i];
		free(lane->pieces);
		free(lane->runs);
		free(lane->tokens);
		free(lane->output_rows);
		free(lane->zero);
	}
	free(generator->lanes);
}

enum status generator_set_lanes(struct generator *generator, uint32_t lanes, struct error *error)
{
	generator_free_lanes(generator);
	generator->lanes = NULL;
	generator->lane_count = 0;
	generator->params.lanes = lanes;
	if (generator_make_lanes(generator))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the steps of %u lanes", lanes);
	return STATUS_OK;
}

// ---- the plan ----

// Rows of the next piece of a job that give an output, from the first that is wanted to the end. A row judges the token
// behind its own.
static uint32_t outputs_of(const struct generator_job *job, uint32_t rows)
{
	const uint32_t end = job->sent + rows;
	if (job->request.want_hidden)
		return rows;
	if (job->judged < job->prompt_count && end >= job->judged)
		return job->sent < job->judged - 1 ? end - (job->judged - 1) : rows;
	return end == job->token_count;
}

// The next `own` tokens of a job and, if they are its last, those that it proposes.
static void add_run(struct lane *lane, struct generator_job *job, uint32_t own)
{
	const bool chooses = !job->request.want_hidden && job->sent + own == job->token_count;
	const uint32_t proposed = chooses ? job->proposing : 0, rows = own + proposed;
	const uint32_t outputs = outputs_of(job, own) + proposed;
	lane->pieces[lane->run_count] = (struct piece){.job = job,
						       .rows = rows,
						       .outputs = outputs,
						       .proposed = proposed,
						       .price = proposed ? job->price : 0,
						       .drafted = proposed && job->drafted,
						       .chooses = chooses};
	lane->runs[lane->run_count] = (struct stage_run){.row_count = rows, .position = job->sent, .pages = job->pages};
	generator_run_states(job, &lane->runs[lane->run_count++]);
	memcpy(&lane->tokens[lane->row_count], &job->tokens[job->sent], rows * sizeof(uint32_t));
	for (uint32_t i = rows - outputs; i < rows; i++)
		lane->output_rows[lane->output_count++] = lane->row_count + i;
	lane->row_count += rows;
	job->sent += own;
	job->under_way++;
}

// Jobs that had a piece of their prompt computed go to the end of the running list.
static void take_turns(struct generator *generator, uint32_t served)
{
	for (uint32_t i = 0; i < served && i < generator->running_count; i++) {
		struct generator_job *job = generator->running[0];
		memmove(generator->running, generator->running + 1,
			(generator->running_count - 1) * sizeof(struct generator_job *));
		generator->running[generator->running_count - 1] = job;
	}
}

// Tokens of a job that can be sent now.
static uint32_t left_of(const struct generator_job *job)
{
	return job->stalled ? 0 : job->token_count - job->sent;
}

// How many rows the step may have in all, once everyone who generates has his.
static uint32_t rows_of(const struct generator *generator, const struct lane *lane)
{
	uint32_t rows = generator->params.batch_rows / generator->lane_count, longest = 0;
	for (uint32_t i = 0; generator->lane_count > 1 && i < generator->running_count; i++) {
		const struct generator_job *job = generator->running[i];
		if (left_of(job) > 1 && job->token_count > longest) // of the whole: its pieces are of one size
			longest = job->token_count;
	}
	if (longest && rows > longest / (LANE_PIECES * generator->lane_count))
		rows = longest / (LANE_PIECES * generator->lane_count);
	rows = rows < LANE_ROWS_LEAST ? LANE_ROWS_LEAST : rows;
	const uint32_t most = generator->running_count <= 1 ? generator->alone_rows : generator->prompt_rows;
	rows = rows < most ? rows : most;
	const uint32_t least = rows < PIECE_ROWS_LEAST ? rows : PIECE_ROWS_LEAST;
	rows = rows > lane->row_count + least ? rows : lane->row_count + least;
	return rows < generator->params.batch_rows ? rows : generator->params.batch_rows;
}

// How many rows the next piece of a prompt has. With `repeats_alike` a prompt that runs alone is cut at the end of its
// last whole page, which is where a repetition of it finds cached pages.
static uint32_t piece_rows(const struct generator *generator, const struct generator_job *job, uint32_t most)
{
	if (generator->params.shape->encoder)
		return left_of(job);
	const uint32_t left = left_of(job), pages_end = (job->token_count - 1) / STAGE_PAGE_TOKENS * STAGE_PAGE_TOKENS;
	const uint32_t own = job->request.piece_rows;
	most = own && own < most ? own : most;
	const uint32_t rows = left < most ? left : most;
	const bool cut = generator->params.repeats_alike && generator->running_count == 1 &&
			 !job->request.want_hidden && job->sent < pages_end;
	return generator_cut_rows(job, cut && rows > pages_end - job->sent ? pages_end - job->sent : rows);
}

// As many lanes as are fastest if all running jobs only generate, else all lanes: for prompts and for texts to be
// embedded.
static uint32_t lanes_wanted(struct generator *generator)
{
	uint32_t generating = generator->running_count;
	for (uint32_t i = 0; i < generator->running_count; i++) {
		const struct generator_job *job = generator->running[i];
		if (job->request.want_hidden || job->token_count - job->done > 1)
			generating = 0;
	}
	return lanes_now(&generator->choice, generating, generator->under_way);
}

// Lanes share the jobs evenly, and a prompt that is alone goes through them in pieces.
static void fill_runs(struct generator *generator, struct lane *lane)
{
	const struct generator_params *params = &generator->params;
	uint32_t served = 0, most = (generator->running_count + generator->lanes_now - 1) / generator->lanes_now;
	for (uint32_t i = 0; i < generator->running_count && lane->run_count < most; i++)
		if (left_of(generator->running[i]) == 1 && lane->output_count < params->batch_outputs)
			add_run(lane, generator->running[i], 1);
	const uint32_t most_rows = rows_of(generator, lane);
	for (uint32_t i = 0; i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		uint32_t left = left_of(job), rows = most_rows > lane->row_count ? most_rows - lane->row_count : 0;
		uint32_t outputs = params->batch_outputs - lane->output_count;
		const bool each = job->request.want_hidden || job->judged < job->prompt_count; // row gives an output
		if (each && rows > outputs)
			rows = outputs;
		if (generator->params.shape->encoder) { // takes a whole text or none of it
			rows = params->batch_rows - lane->row_count;
			rows = left <= rows && left <= outputs ? rows : 0;
		}
		if (!rows || (!each && !outputs) || (left > 1 && lane->run_count >= most))
			break;
		if (left > 1)
			add_run(lane, job, piece_rows(generator, job, rows));
		served = i + 1;
	}
	take_turns(generator, served);
}

static void clear(struct generator *generator, struct lane *lane)
{
	const uint32_t *zero = pages_to_zero(generator->pages, &lane->zero_count);
	memcpy(lane->zero, zero, lane->zero_count * sizeof(*zero));
	uint32_t count;
	const uint32_t *slots = recurrent_to_zero(generator->states, &count);
	for (uint32_t i = 0; i < count; i++)
		lane->zero[lane->zero_count++] = generator->params.page_count + slots[i] - 1;
	lane->run_count = lane->row_count = lane->output_count = 0;
	lane->check = false;
}

// ---- computing ----

// The logits of those outputs for which the stage could name no candidates.
static enum status find_logits(struct generator *generator, const struct lane *lane, struct error *error)
{
	const struct generator_params *params = &generator->params;
	struct stage *stage = params->stages[params->stage_count - 1];
	enum status status = STATUS_OK;
	uint32_t end = 0;
	for (uint32_t i = 0; !status && i < lane->run_count; i++) {
		struct piece *piece = &lane->pieces[i];
		end += piece->outputs;
		if (!piece->narrow || !piece->outputs || stage_candidates(stage)[end - 1].count)
			continue;
		piece->narrow = false;
		status = stage_logits(stage, end - 1, generator->logits + (size_t)(end - 1) * params->shape->vocabulary,
				      error);
	}
	return status;
}

static enum status compute(struct generator *generator, const struct lane *lane, const float *input,
			   struct error *error)
{
	bool logits = lane->check, argmax = lane->check, hidden = false, candidates = false;
	uint32_t stages = generator->params.stage_count;
	enum status status = STATUS_OK;
	for (uint32_t i = 0; i < lane->run_count && !lane->check; i++) {
		struct piece *piece = &lane->pieces[i];
		const bool greedy = !generator_needs_sampler(piece->job);
		piece->sampled = !greedy;
		piece->narrow = generator_needs_candidates(generator, piece);
		hidden |= piece->outputs && piece->job->request.want_hidden;
		argmax |= piece->outputs && !piece->job->request.want_hidden && (greedy || piece->narrow);
		logits |= piece->outputs && !piece->job->request.want_hidden && !greedy && !piece->narrow;
		candidates |= piece->outputs && piece->narrow;
	}
	for (uint32_t i = 0; !status && lane->zero_count && i < stages; i++)
		status = stage_zero(generator->params.stages[i], lane->zero, lane->zero_count, error);
	for (uint32_t i = 0; !status && lane->row_count && i < stages; i++) {
		bool last = i + 1 == stages;
		const struct stage_batch batch = {
			.row_count = lane->row_count,
			.runs = lane->runs,
			.run_count = lane->run_count,
			.tokens = lane->tokens,
			.input = i ? generator->activations[(i + 1) % 2] : input,
			.output = last ? NULL : generator->activations[i % 2],
			.output_rows = lane->output_rows,
			.output_count = last ? lane->output_count : 0,
			.logits = last && logits ? generator->logits : NULL,
			.argmax = last && argmax ? generator->argmax : NULL,
			.hidden = last && hidden ? generator->hidden : NULL,
			.candidates = last && candidates,
		};
		status = stage_step(generator->params.stages[i], &batch, error);
	}
	return status || !candidates ? status : find_logits(generator, lane, error);
}

// Complete a step: compute the layers that are here, from what came back if there are other parts, else from the
// tokens.
static enum status finish(struct generator *generator, struct lane *lane, const struct generator_returned *returned,
			  struct error *error)
{
	const float *input = returned ? returned->activations : NULL;
	generator_spent_begin(generator, returned);
	enum status status = compute(generator, lane, input, error);
	if (status) {
		error_set(error, status, "%s", status_text(status));
		for (uint32_t i = 0; i < lane->run_count && !lane->check; i++)
			generator_landed(lane->pieces[i].job);
		generator_fail(generator, error);
		return status;
	}
	generator_spent_add(generator, lane);
	if (lane->check) {
		release_check(generator);
		generator_deliver_check(generator, input);
	} else {
		generator_deliver(generator, lane);
	}
	const uint64_t ns = (uint64_t)(clock_steady_ns() - lane->began_ns);
	generator_timed_step(generator, lane, ns);
	generator->state.steps += lane->run_count > 0;
	generator->state.step_ns += ns;
	generator->state.step_rows = lane->row_count;
	generator->state.step_runs = lane->run_count;
	return STATUS_OK;
}

// ---- calls ----

static enum status send(struct generator *generator, struct lane *lane, struct error *error)
{
	lane->under_way = true;
	lane->step = ++generator->sent_steps;
	generator->under_way++;
	const struct generator_sent sent = {.lane = (uint32_t)(lane - generator->lanes),
					    .step = lane->step,
					    .zero = lane->zero,
					    .zero_count = lane->zero_count,
					    .tokens = lane->tokens,
					    .runs = lane->runs,
					    .row_count = lane->row_count,
					    .run_count = lane->run_count};
	enum status status = generator->params.send(generator->params.context, &sent, error);
	if (status)
		generator_fail(generator, error);
	return status;
}

static struct lane *free_lane(const struct generator *generator)
{
	if (generator->halted || generator->check_page != NO_PAGE)
		return NULL;
	for (uint32_t i = 0; i < generator->lane_count; i++)
		if (!generator->lanes[i].under_way)
			return &generator->lanes[i];
	return NULL;
}

enum status generator_step(struct generator *generator, bool *idle, struct error *error)
{
	enum status status = STATUS_OK;
	struct lane *lane;
	bool more = true;
	while (!status && more && (lane = free_lane(generator))) {
		generator_admit(generator);
		generator->lanes_now = lanes_wanted(generator);
		if (generator->under_way >= generator->lanes_now)
			break;
		generator_make_room(generator);
		status = generator_propose(generator, error);
		if (status)
			break;
		lane->began_ns = clock_steady_ns();
		lane->alone = !generator->under_way;
		lane->drafting_ns = generator->drafting_ns;
		generator_plan_states(generator);
		clear(generator, lane);
		fill_runs(generator, lane);
		*idle = !generator->running_count;
		more = generator->params.lanes && (lane->run_count || lane->zero_count);
		if (more)
			status = send(generator, lane, error);
		else if (lane->run_count || lane->zero_count)
			status = finish(generator, lane, NULL, error);
	}
	if (generator->params.lanes)
		*idle = !generator->running_count && !generator->under_way;
	return status;
}

enum status generator_return(struct generator *generator, const struct generator_returned *returned, bool *taken,
			     struct error *error)
{
	struct lane *lane = returned->lane < generator->lane_count ? &generator->lanes[returned->lane] : NULL;
	*taken = lane && lane->under_way && lane->step == returned->step && lane->step == generator->due_step &&
		 lane->row_count == returned->row_count;
	if (!*taken)
		return STATUS_OK;
	const uint64_t tokens = generator->state.generated_tokens;
	generator->due_step++;
	generator->under_way--;
	lane->under_way = false;
	if (returned->network_ns && !lane->check) // a check waits for the parts to greet each other
		row_prices_trip(&generator->prices, lane->row_count, (double)returned->network_ns * 1e-9);
	const enum status status = finish(generator, lane, returned, error);
	if (!lane->check)
		lanes_back(&generator->choice, (uint32_t)(generator->state.generated_tokens - tokens),
			   generator->under_way, clock_steady_ns());
	return status;
}

void generator_halt(struct generator *generator)
{
	give_up_all(generator);
	generator->halted = true;
}

enum status generator_check(struct generator *generator, uint32_t token, struct error *error)
{
	struct lane *lane = &generator->lanes[0];
	give_up_all(generator);
	generator->halted = false;
	while ((generator->check_page = pages_take(generator->pages, 0)) == NO_PAGE && generator_preempt(generator))
		;
	if (generator->check_page == NO_PAGE)
		return error_set(error, STATUS_INTERNAL, "there is no page for a check");
	generator->check_state = recurrent_take(generator->states, 0);
	clear(generator, lane);
	lane->check = true;
	lane->drafting_ns = 0;
	lane->began_ns = clock_steady_ns();
	lane->runs[0] = (struct stage_run){
		.row_count = 1, .pages = &generator->check_page, .state_to = generator->check_state};
	lane->tokens[0] = token;
	lane->output_rows[0] = 0;
	lane->run_count = lane->row_count = lane->output_count = 1;
	return send(generator, lane, error);
}
