/* The results of a step, for the jobs that had rows in it: full pages for later jobs, tokens, embeddings, judgements of
 * a prompt's tokens. See generator.h. Thread: the generator's. */
#include "common/base/clock.h"
#include "engine/generation/generator_inside.h"

#include <math.h>
#include <string.h>

static const float said_logit = 1e6f; // more than biases and penalties take away, at any temperature

// Whether the job had begun elsewhere. Its tokens may differ from those it would have got there where two logits are
// nearly tied; such places are counted.
static bool went_on(const struct generator_job *job)
{
	return job->request.token_count > job->request.prompt_count;
}

bool generator_needs_sampler(const struct generator_job *job)
{
	return !sampling_is_greedy(&job->request.sampling) || went_on(job) || job->request.want_prompt ||
	       job->request.form || job->request.says;
}

bool generator_needs_candidates(const struct generator *generator, const struct piece *piece)
{
	const struct generator_params *params = &generator->params;
	const struct generator_request *request = &piece->job->request;
	return piece->chooses && !piece->proposed && !went_on(piece->job) && !request->want_prompt && !request->form &&
	       !request->says && sampling_is_narrow(&request->sampling, params->shape->vocabulary) &&
	       stage_finds_candidates(params->stages[params->stage_count - 1]);
}

static void publish_full(struct generator_job *job)
{
	while ((job->published + 1) * STAGE_PAGE_TOKENS <= job->done) {
		job->serial = pages_publish(job->generator->pages, job->pages[job->published], job->serial,
					    &job->tokens[(size_t)job->published * STAGE_PAGE_TOKENS]);
		job->published++;
		generator_published_page(job);
	}
}

static struct sampler_input sampler_input_of(const struct generator_job *job, uint32_t output)
{
	const struct generator *generator = job->generator;
	return (struct sampler_input){
		.sampling = &job->request.sampling,
		.logits = &generator->logits[(size_t)output * generator->params.shape->vocabulary],
		.vocabulary = generator->params.shape->vocabulary,
		.tokens = job->tokens,
		.token_count = job->token_count,
		.prompt_count = job->prompt_count,
		.position = job->token_count,
		.form = job->request.form,
	};
}

// The logits of a job's next token, as a test has the model say it.
static void change_logits(const struct generator_job *job, uint32_t output)
{
	const struct generator_request *request = &job->request;
	const uint32_t vocabulary = job->generator->params.shape->vocabulary;
	const uint32_t token = request->says ? request->says(request->context, job->token_count - job->prompt_count)
					     : SAMPLER_NO_TOKEN;
	if (token < vocabulary)
		job->generator->logits[(size_t)output * vocabulary + token] = said_logit;
}

// Choose the next tokens of all jobs before the first is reported: the choice for one job does not depend on another.
static void choose(struct generator *generator, const struct lane *lane)
{
	const struct stage *stage = generator->params.stages[generator->params.stage_count - 1];
	uint32_t end = 0, count = 0;
	for (uint32_t i = 0; i < lane->run_count; i++) {
		const struct piece *piece = &lane->pieces[i];
		const struct generator_job *job = piece->job;
		end += piece->outputs;
		const uint32_t output = end - piece->proposed - 1;
		if (job->gone || !piece->chooses || !piece->sampled)
			continue;
		struct sampler_input input = sampler_input_of(job, output);
		change_logits(job, output);
		if (piece->narrow && generator->argmax[output] == STAGE_NO_TOKEN) { // a logit is not finite
			generator->choices[output] = (struct token_choice){.token = SAMPLER_NO_TOKEN};
			continue;
		}
		if (piece->narrow)
			input.candidates = &stage_candidates(stage)[output];
		generator->tasks[count++] = (struct sampler_task){.input = input,
								  .choice = &generator->choices[output]};
	}
	samplers_choose(generator->samplers, generator->tasks, count);
}

_Static_assert(STAGE_NO_TOKEN == SAMPLER_NO_TOKEN, "either says that there is none");

// End a job whose logits are not finite. Its pages are not cached: if a faulty device was the cause, later jobs compute
// them again.
static void end_broken(struct generator_job *job)
{
	struct generator *generator = job->generator;
	const uint64_t owner = job->request.owner;
	generator_end(job, GENERATOR_BROKEN, NULL);
	generator_forget(generator, owner);
}

// The token that an output gives. False: it was the job's last.
static bool deliver_token(struct generator_job *job, uint32_t output, struct token_choice choice)
{
	struct generator *generator = job->generator;
	if (choice.token == STAGE_NO_TOKEN && job->request.form && matcher_error(job->request.form)->status) {
		generator_end(job, GENERATOR_FORMLESS, NULL);
		return false;
	}
	if (choice.token == STAGE_NO_TOKEN) {
		end_broken(job);
		return false;
	}
	if (went_on(job)) {
		const struct sampler_input input = sampler_input_of(job, output);
		generator->state.ties += sampler_is_tie(samplers_scratch(generator->samplers), &input, choice.token);
	}
	if (!job->first_ns)
		job->first_ns = clock_steady_ns();
	job->tokens[job->token_count++] = choice.token;
	generator->state.generated_tokens++;
	if (job->request.speculate)
		proposals_follow(&job->proposals, job->tokens, job->token_count);
	if (job->request.token(job->request.context, &choice))
		generator_end(job, GENERATOR_STOP, NULL);
	else if (job->token_count >= job->most)
		generator_end(job, GENERATOR_LENGTH, NULL);
	else
		return true;
	return false;
}

// The cost of a step with proposed tokens.
static void settle(struct generator_job *job, const struct piece *piece)
{
	struct generator_state *state = &job->generator->state;
	const uint32_t drafted = piece->drafted ? piece->proposed : 0;
	proposals_settle(&job->proposals, piece->drafted ? 0 : piece->price);
	drafting_settle(&job->drafting, piece->drafted ? piece->price : 0);
	job->proposed_tokens += piece->proposed;
	job->drafted_tokens += drafted;
	state->proposed_tokens += piece->proposed;
	state->drafted_tokens += drafted;
}

// Whether a proposed token is the one that was chosen; those behind the first that is not are not judged.
static void judge_proposed(struct generator_job *job, const struct piece *piece, bool accepted)
{
	struct generator *generator = job->generator;
	job->accepted_tokens += accepted;
	generator->state.accepted_tokens += accepted;
	if (!piece->drafted) {
		job->proposals.credit += accepted;
		return;
	}
	job->draft_accepted_tokens += accepted;
	generator->state.draft_accepted_tokens += accepted;
	job->drafting.credit += accepted;
	drafting_judge(&job->drafting.right, accepted);
	drafting_judge(&generator->draft_right, accepted);
}

// The job's next token and, as long as the tokens are those that were proposed, the ones behind it. `output` and `rows`
// are of its last own token. A form that begins or ends on the way ends the series, as its outputs are of the wrong
// kind.
static void deliver_tokens(struct generator_job *job, const struct piece *piece, uint32_t output, const uint32_t *rows)
{
	struct generator *generator = job->generator;
	struct token_choice choice = {.token = generator->argmax[output]};
	if (piece->sampled)
		choice = generator->choices[output];
	settle(job, piece);
	for (uint32_t i = 1;; i++) {
		const bool accepted = i <= piece->proposed && choice.token == rows[i];
		if (i <= piece->proposed)
			judge_proposed(job, piece, accepted);
		if (!deliver_token(job, output, choice) || !accepted || generator_needs_sampler(job) != piece->sampled)
			return;
		job->done++;
		job->sent++;
		publish_full(job);
		output++;
		choice = (struct token_choice){.token = generator->argmax[output]};
		if (!piece->sampled)
			continue;
		const struct sampler_input input = sampler_input_of(job, output);
		change_logits(job, output);
		sampler_choose(samplers_scratch(generator->samplers), &input, &choice);
	}
}

// Add a piece's rows to a text's embedding: all of them, the first one only, or the last one so far.
static void pool_piece(struct generator_job *job, const struct piece *piece, const float *values)
{
	const struct model_shape *shape = job->generator->params.shape;
	uint32_t from = 0, to = piece->outputs;
	const bool ranks = shape->pooling == POOLING_RANK;
	const bool first = shape->pooling == POOLING_FIRST || (ranks && shape->encoder);
	const bool last = shape->pooling == POOLING_LAST || (ranks && !shape->encoder);
	if (first)
		to = job->done == piece->rows ? 1 : 0;
	if (last && piece->outputs) {
		memset(job->sum, 0, shape->embedding * sizeof(double));
		from = to - 1;
	}
	for (uint32_t row = from; row < to; row++)
		for (uint32_t i = 0; i < shape->embedding; i++)
			job->sum[i] += (double)values[(size_t)row * shape->embedding + i];
}

// Scale the embedding to a length of 1 or, for a reranker, reduce it to the score, its first value. False: a value is
// not finite.
static bool finish_pooled(const struct generator_job *job, float *values)
{
	const struct generator_params *params = &job->generator->params;
	const uint32_t embedding = params->shape->embedding;
	double square = 0;
	for (uint32_t i = 0; i < embedding; i++)
		square += job->sum[i] * job->sum[i];
	const bool ranks = params->shape->pooling == POOLING_RANK;
	const double length = square > 0 && !ranks ? sqrt(square) : 1;
	for (uint32_t i = 0; i < embedding; i++)
		values[i] = (float)(job->sum[i] / length);
	if (ranks)
		values[0] = stage_score(params->stages[params->stage_count - 1], values);
	return isfinite(square) && isfinite(values[0]);
}

static void deliver_hidden(struct generator_job *job, const struct piece *piece, uint32_t output)
{
	const uint32_t embedding = job->generator->params.shape->embedding;
	float *values = &job->generator->hidden[(size_t)output * embedding];
	pool_piece(job, piece, values);
	if (job->done < job->token_count)
		return;
	if (!finish_pooled(job, values)) {
		end_broken(job);
		return;
	}
	job->first_ns = clock_steady_ns();
	job->request.hidden(job->request.context, values);
	generator_end(job, GENERATOR_STOP, NULL);
}

// Tell of the prompt's tokens that this piece judges. False: the model is broken, and the job has ended.
static bool deliver_judged(struct generator_job *job, const struct piece *piece, uint32_t output)
{
	struct sampler_scratch *scratch = samplers_scratch(job->generator->samplers);
	const uint32_t first = job->done - piece->outputs + 1; // that the first output judges
	for (uint32_t i = 0; i < piece->outputs && job->judged < job->prompt_count; i++) {
		struct token_choice choice;
		const struct sampler_input input = sampler_input_of(job, output + i);
		if (first + i < job->judged || first + i >= job->prompt_count)
			continue;
		sampler_judge(scratch, &input, job->tokens[first + i], &choice);
		if (choice.token == SAMPLER_NO_TOKEN) {
			end_broken(job);
			return false;
		}
		job->judged++;
		job->request.judged(job->request.context, &choice);
	}
	return true;
}

void generator_deliver(struct generator *generator, const struct lane *lane)
{
	uint32_t output = 0, row = 0;
	choose(generator, lane);
	for (uint32_t i = 0; i < lane->run_count; i++) {
		const struct piece *piece = &lane->pieces[i];
		struct generator_job *job = piece->job;
		if (generator_landed(job)) {
			if (job->done < job->prompt_count)
				generator->state.prompt_tokens += piece->rows - piece->proposed;
			job->done += piece->rows - piece->proposed;
			publish_full(job);
			if (job->request.want_hidden)
				deliver_hidden(job, piece, output);
			else if (deliver_judged(job, piece, output) && piece->chooses)
				deliver_tokens(job, piece, output + piece->outputs - piece->proposed - 1,
					       &lane->tokens[row + piece->rows - piece->proposed - 1]);
		}
		output += piece->outputs;
		row += piece->rows;
	}
}

static bool all_finite(const float *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!isfinite(values[i]))
			return false;
	return true;
}

void generator_deliver_check(struct generator *generator, const float *input)
{
	const struct model_shape *shape = generator->params.shape;
	const uint32_t token = generator->argmax[0] < shape->vocabulary ? generator->argmax[0] : 0; // of finite ones
	const struct generator_checked checked = {.token = token,
						  .logit = generator->logits[token],
						  .logits = generator->logits,
						  .finite = all_finite(input, shape->embedding) &&
							    all_finite(generator->logits, shape->vocabulary)};
	generator->params.checked(generator->params.context, &checked);
}
