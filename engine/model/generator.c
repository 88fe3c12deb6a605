/* See generator.h. Order of reading: generator_step, admit, make_room, fill_batch, compute, deliver.
 *
 * A job waits, in the order of arrival, or it runs: then it has pages for all of its tokens. `done` of them are in its
 * pages, so a job that generates has one token to compute, and a prompt has many; a job that gave its pages back is a
 * prompt again. Running jobs stand in the order of turns: who has had a piece of prompt computed goes to the back. */
#include "engine/model/generator.h"

#include "common/base/clock.h"
#include "engine/model/pages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct generator_job {
	struct generator *generator;
	struct generator_job *next; // of those that wait
	struct generator_request request;
	struct token_bias *biases;
	uint64_t arrival;
	uint32_t *tokens; // (most)
	uint32_t token_count, prompt_count, most;
	uint32_t *pages; // (page_count)
	uint32_t page_count;
	uint32_t done;      // tokens whose keys and values are in the pages
	uint32_t published; // full pages that are
	uint64_t serial;    // of the last of them
	double *sum;        // (embedding), with want_hidden, over the tokens that are done
	bool running, begun;
	uint32_t cached_tokens;
	int64_t added_ns, begun_ns, first_ns;
	uint32_t rows, outputs; // in this step
};

struct generator {
	struct generator_params params;
	struct pages *pages;
	struct sampler_scratch *scratch;
	struct generator_job **running; // (batch_sequences)
	struct generator_job *waiting;
	uint32_t running_count, waiting_count;
	uint64_t arrivals;
	struct generator_state state;
	// a step's
	struct generator_job **batch_jobs; // (batch_sequences), of the runs
	struct stage_run *runs;            // (batch_sequences)
	uint32_t *tokens;                  // (batch_rows)
	uint32_t *output_rows, *argmax;    // (batch_outputs)
	float *logits;                     // (batch_outputs, vocabulary)
	float *hidden;                     // (batch_outputs, embedding)
	float *activations[2];             // (batch_rows, embedding), of several stages
	uint32_t run_count, row_count, output_count;
};

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
	generator->running = calloc(sequences, sizeof(struct generator_job *));
	generator->batch_jobs = calloc(sequences, sizeof(struct generator_job *));
	generator->runs = calloc(sequences, sizeof(struct stage_run));
	generator->tokens = calloc(rows, sizeof(uint32_t));
	generator->output_rows = calloc(outputs, sizeof(uint32_t));
	generator->argmax = calloc(outputs, sizeof(uint32_t));
	generator->logits = calloc(outputs, params->shape->vocabulary * sizeof(float));
	generator->hidden = calloc(outputs, params->shape->embedding * sizeof(float));
	for (int i = 0; i < 2 && params->stage_count > 1; i++)
		generator->activations[i] = calloc(rows, params->shape->embedding * sizeof(float));
	if (!generator->running || !generator->batch_jobs || !generator->runs || !generator->tokens ||
	    !generator->output_rows || !generator->argmax || !generator->logits || !generator->hidden ||
	    (params->stage_count > 1 && (!generator->activations[0] || !generator->activations[1])) ||
	    pages_create(&generator->pages, params->page_count) ||
	    sampler_scratch_create(&generator->scratch, params->shape->vocabulary))
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

void generator_destroy(struct generator **generator_pointer)
{
	struct generator *generator = *generator_pointer;
	if (!generator)
		return;
	for (uint32_t i = 0; i < generator->running_count; i++)
		job_free(generator->running[i]);
	while (generator->waiting) {
		struct generator_job *job = generator->waiting;
		generator->waiting = job->next;
		job_free(job);
	}
	pages_destroy(&generator->pages);
	sampler_scratch_destroy(&generator->scratch);
	free(generator->running);
	free(generator->batch_jobs);
	free(generator->runs);
	free(generator->tokens);
	free(generator->output_rows);
	free(generator->argmax);
	free(generator->logits);
	free(generator->hidden);
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
	uint32_t vocabulary = generator->params.shape->vocabulary, context = generator->params.context_tokens;
	const struct sampling *sampling = &request->sampling;
	if (!request->token_count || request->prompt_count > request->token_count ||
	    (!request->max_tokens && !request->want_hidden))
		return error_set(error, STATUS_INVALID_PARAMS, "the prompt is empty");
	if (request->token_count + !request->want_hidden > context) {
		error_hint(error, "shorten the prompt, or start the model with a larger context");
		return error_set(error, STATUS_INVALID_PARAMS,
				 "the prompt has %zu tokens; with the answer the context holds %u",
				 request->token_count, context);
	}
	if (request->token_count + !request->want_hidden > capacity(generator)) {
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
	job->arrival = ++generator->arrivals;
	job->added_ns = clock_steady_ns();
	put_waiting(generator, job);
	*out = job;
	return STATUS_OK;
}

// The last page first: what follows is of no use without what is before it, so it is to be forgotten first.
static void release_pages(struct generator_job *job)
{
	while (job->page_count)
		pages_release(job->generator->pages, job->pages[--job->page_count]);
	job->done = job->published = 0;
	job->serial = FIRST_SERIAL;
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

static void end(struct generator_job *job, enum generator_reason reason, const struct error *error)
{
	int64_t now_ns = clock_steady_ns();
	int64_t begun_ns = job->begun ? job->begun_ns : now_ns, first_ns = job->first_ns ? job->first_ns : now_ns;
	const struct generator_figures figures = {.prompt_tokens = job->prompt_count,
						  .cached_tokens = job->cached_tokens,
						  .generated_tokens = job->token_count - job->prompt_count,
						  .queued_ns = begun_ns - job->added_ns,
						  .prompt_ns = first_ns - begun_ns,
						  .generate_ns = now_ns - first_ns};
	leave_lists(job);
	release_pages(job);
	job->request.ended(job->request.context, reason, &figures, error);
	job_free(job);
}

void generator_remove(struct generator_job **job)
{
	if (*job)
		end(*job, GENERATOR_REMOVED, NULL);
	*job = NULL;
}

// ---- who runs ----

// Its first pages, as far as they are known. At least one token is left to compute.
static void share_prefix(struct generator_job *job)
{
	struct pages *pages = job->generator->pages;
	uint32_t most = job->request.want_hidden ? 0 : (job->token_count - 1) / STAGE_PAGE_TOKENS;
	while (job->page_count < most) {
		const uint32_t *tokens = &job->tokens[(size_t)job->page_count * STAGE_PAGE_TOKENS];
		uint32_t page = pages_find(pages, job->request.owner, job->serial, tokens);
		if (page == NO_PAGE)
			break;
		pages_hold(pages, page);
		job->serial = pages_serial(pages, page);
		job->pages[job->page_count++] = page;
	}
	job->published = job->page_count;
	job->done = job->page_count * STAGE_PAGE_TOKENS;
}

// Pages for all its tokens. False if there are not enough, nor one to spare for each that runs.
static bool reserve_pages(struct generator_job *job)
{
	struct generator *generator = job->generator;
	share_prefix(job);
	uint32_t need = pages_for(job->token_count), spare = generator->running_count;
	if (spare && pages_room(generator->pages) < need - job->page_count + spare) {
		release_pages(job);
		return false;
	}
	while (job->page_count < need)
		job->pages[job->page_count++] = pages_take(generator->pages, job->request.owner);
	return true;
}

static void admit(struct generator *generator)
{
	while (generator->waiting && generator->running_count < generator->params.batch_sequences) {
		struct generator_job *job = generator->waiting;
		if (job->token_count >= job->most && !job->request.want_hidden) {
			end(job, GENERATOR_LENGTH, NULL); // it goes on, and had all already
			continue;
		}
		if (!reserve_pages(job))
			break;
		generator->waiting = job->next;
		generator->waiting_count--;
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

static struct generator_job *newest_running(const struct generator *generator)
{
	struct generator_job *newest = generator->running[0];
	for (uint32_t i = 1; i < generator->running_count; i++)
		if (generator->running[i]->arrival > newest->arrival)
			newest = generator->running[i];
	return newest;
}

// The running job that came first and has fewer pages than tokens to put there.
static struct generator_job *oldest_short(const struct generator *generator)
{
	struct generator_job *oldest = NULL;
	for (uint32_t i = 0; i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		if (job->page_count < pages_for(job->token_count) && (!oldest || job->arrival < oldest->arrival))
			oldest = job;
	}
	return oldest;
}

// Pages for the next token of everyone; the newest give way. The oldest always gets what it needs: it fits alone.
static void make_room(struct generator *generator)
{
	struct generator_job *job;
	while ((job = oldest_short(generator))) {
		uint32_t page = pages_take(generator->pages, job->request.owner);
		if (page != NO_PAGE)
			job->pages[job->page_count++] = page;
		else
			give_way(newest_running(generator));
	}
}

// ---- a step ----

static void add_run(struct generator *generator, struct generator_job *job, uint32_t rows)
{
	bool all = job->request.want_hidden, last = job->done + rows == job->token_count;
	generator->batch_jobs[generator->run_count] = job;
	generator->runs[generator->run_count++] = (struct stage_run){
		.row_count = rows, .position = job->done, .pages = job->pages};
	memcpy(&generator->tokens[generator->row_count], &job->tokens[job->done], rows * sizeof(uint32_t));
	job->rows = rows;
	job->outputs = all ? rows : last;
	for (uint32_t i = rows - job->outputs; i < rows; i++)
		generator->output_rows[generator->output_count++] = generator->row_count + i;
	generator->row_count += rows;
}

// Who has had a piece of prompt goes behind who has not.
static void take_turns(struct generator *generator, uint32_t served)
{
	for (uint32_t i = 0; i < served && i < generator->running_count; i++) {
		struct generator_job *job = generator->running[0];
		memmove(generator->running, generator->running + 1,
			(generator->running_count - 1) * sizeof(struct generator_job *));
		generator->running[generator->running_count - 1] = job;
	}
}

static void fill_batch(struct generator *generator)
{
	const struct generator_params *params = &generator->params;
	uint32_t served = 0;
	generator->run_count = generator->row_count = generator->output_count = 0;
	for (uint32_t i = 0; i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		if (job->token_count - job->done == 1)
			add_run(generator, job, 1);
	}
	for (uint32_t i = 0; i < generator->running_count; i++) {
		struct generator_job *job = generator->running[i];
		uint32_t left = job->token_count - job->done, rows = params->batch_rows - generator->row_count;
		uint32_t outputs = params->batch_outputs - generator->output_count;
		if (job->request.want_hidden && rows > outputs)
			rows = outputs;
		if (!rows || (!job->request.want_hidden && !outputs))
			break;
		if (left > 1)
			add_run(generator, job, left < rows ? left : rows);
		served = i + 1;
	}
	take_turns(generator, served);
}

static enum status zero_pages(struct generator *generator, struct error *error)
{
	uint32_t count = 0;
	const uint32_t *list = pages_to_zero(generator->pages, &count);
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && count && i < generator->params.stage_count; i++)
		status = stage_zero(generator->params.stages[i], list, count, error);
	return status;
}

static enum status compute(struct generator *generator, struct error *error)
{
	bool logits = false, argmax = false, hidden = false;
	uint32_t stages = generator->params.stage_count;
	for (uint32_t i = 0; i < generator->run_count; i++) {
		const struct generator_job *job = generator->batch_jobs[i];
		bool greedy = sampling_is_greedy(&job->request.sampling);
		hidden |= job->outputs && job->request.want_hidden;
		argmax |= job->outputs && !job->request.want_hidden && greedy;
		logits |= job->outputs && !job->request.want_hidden && !greedy;
	}
	enum status status = zero_pages(generator, error);
	for (uint32_t i = 0; !status && i < stages; i++) {
		bool last = i + 1 == stages;
		const struct stage_batch batch = {
			.row_count = generator->row_count,
			.runs = generator->runs,
			.run_count = generator->run_count,
			.tokens = generator->tokens,
			.input = i ? generator->activations[(i + 1) % 2] : NULL,
			.output = last ? NULL : generator->activations[i % 2],
			.output_rows = generator->output_rows,
			.output_count = last ? generator->output_count : 0,
			.logits = last && logits ? generator->logits : NULL,
			.argmax = last && argmax ? generator->argmax : NULL,
			.hidden = last && hidden ? generator->hidden : NULL,
		};
		status = stage_step(generator->params.stages[i], &batch, error);
	}
	return status;
}

static void publish_full(struct generator_job *job)
{
	while ((job->published + 1) * STAGE_PAGE_TOKENS <= job->done) {
		job->serial = pages_publish(job->generator->pages, job->pages[job->published], job->serial,
					    &job->tokens[(size_t)job->published * STAGE_PAGE_TOKENS]);
		job->published++;
	}
}

static void deliver_token(struct generator_job *job, uint32_t output)
{
	struct generator *generator = job->generator;
	struct token_choice choice = {.token = generator->argmax[output]};
	const struct sampler_input input = {
		.sampling = &job->request.sampling,
		.logits = &generator->logits[(size_t)output * generator->params.shape->vocabulary],
		.vocabulary = generator->params.shape->vocabulary,
		.tokens = job->tokens,
		.token_count = job->token_count,
		.prompt_count = job->prompt_count,
		.position = job->token_count,
	};
	if (!sampling_is_greedy(&job->request.sampling))
		sampler_choose(generator->scratch, &input, &choice);
	if (!job->first_ns)
		job->first_ns = clock_steady_ns();
	job->tokens[job->token_count++] = choice.token;
	generator->state.generated_tokens++;
	if (job->request.token(job->request.context, &choice))
		end(job, GENERATOR_STOP, NULL);
	else if (job->token_count >= job->most)
		end(job, GENERATOR_LENGTH, NULL);
}

static void deliver_hidden(struct generator_job *job, uint32_t output)
{
	uint32_t embedding = job->generator->params.shape->embedding;
	float *values = &job->generator->hidden[(size_t)output * embedding];
	double square = 0;
	for (uint32_t row = 0; row < job->outputs; row++)
		for (uint32_t i = 0; i < embedding; i++)
			job->sum[i] += (double)values[(size_t)row * embedding + i];
	if (job->done < job->token_count)
		return;
	for (uint32_t i = 0; i < embedding; i++)
		square += job->sum[i] * job->sum[i];
	double length = square > 0 ? sqrt(square) : 1;
	for (uint32_t i = 0; i < embedding; i++)
		values[i] = (float)(job->sum[i] / length);
	job->first_ns = clock_steady_ns();
	job->request.hidden(job->request.context, values);
	end(job, GENERATOR_STOP, NULL);
}

static void deliver(struct generator *generator)
{
	uint32_t output = 0;
	for (uint32_t i = 0; i < generator->run_count; i++) {
		struct generator_job *job = generator->batch_jobs[i];
		uint32_t outputs = job->outputs;
		if (job->done < job->prompt_count)
			generator->state.prompt_tokens += job->rows;
		job->done += job->rows;
		publish_full(job);
		if (job->request.want_hidden)
			deliver_hidden(job, output);
		else if (outputs)
			deliver_token(job, output);
		output += outputs;
	}
}

void generator_fail(struct generator *generator, const struct error *error)
{
	while (generator->running_count)
		end(generator->running[0], GENERATOR_FAILED, error);
	while (generator->waiting)
		end(generator->waiting, GENERATOR_FAILED, error);
}

enum status generator_step(struct generator *generator, bool *idle, struct error *error)
{
	int64_t began_ns = clock_steady_ns();
	enum status status = STATUS_OK;
	admit(generator);
	make_room(generator);
	*idle = !generator->running_count;
	if (*idle) {
		status = zero_pages(generator, error);
	} else {
		fill_batch(generator);
		status = compute(generator, error);
	}
	if (status) {
		error_set(error, status, "%s", status_text(status));
		generator_fail(generator, error);
		return status;
	}
	if (*idle)
		return STATUS_OK;
	deliver(generator);
	generator->state.steps++;
	generator->state.step_ns += (uint64_t)(clock_steady_ns() - began_ns);
	return STATUS_OK;
}

void generator_state(const struct generator *generator, struct generator_state *state)
{
	*state = generator->state;
	state->running = generator->running_count;
	state->waiting = generator->waiting_count;
	state->page_count = generator->params.page_count;
	state->pages_cached = pages_cached(generator->pages);
	state->pages_used = state->page_count - pages_room(generator->pages);
}
