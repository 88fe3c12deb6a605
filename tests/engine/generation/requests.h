/* Requests on a generator whose model is a toy (toy.h), in one or two stages; the first may be elsewhere, its steps
 * wait in `line` then. */
#pragma once
#include "engine/generation/generator_inside.h"
#include "tests/engine/generation/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { MOST_TOKENS = 2048 };

static struct backend toy_backend;
static struct exogpu_device *device;
static struct stage *stages[2];
static struct stage *draft_stage;
static struct drafter *drafter;
static struct generator *generator;
static bool recurrent; // the toy has states

struct client {
	struct generator_job *job;
	uint32_t tokens[MOST_TOKENS]; // prompt, then what came
	size_t prompt_count, count;
	size_t stop_at; // tokens in all, after which it says that it is enough; 0: never
	float values[TOY_EMBEDDING];
	struct token_choice last;
	int ends;
	long first_step, last_step; // of the toy
	enum generator_reason reason;
	struct generator_figures figures;
	struct error error;
};

struct bench {
	uint32_t pages, rows, sequences, context, stages;
	uint32_t lanes;   // not 0: the first stage is elsewhere
	bool last;        // the last token's embedding is that of the text
	bool finds;       // the last stage names candidates
	bool whole;       // a prompt that runs alone is not cut (generator_params.repeats_alike)
	uint32_t drafts;  // places of a draft model; 0: there is none
	uint32_t outputs; // 0: as many as sequences
};

// What is on its way between the stages, in order. The first computes a step when it is taken from here.
static struct away {
	struct generator_sent sent;
	uint32_t tokens[64], zero[PAGES_MOST];
	struct stage_run runs[16];
	uint32_t pages[16][MOST_TOKENS / STAGE_PAGE_TOKENS];
} line[8];
static size_t line_count, line_most;
static long checks;
static struct generator_checked check;

static inline enum status send_away(void *context, const struct generator_sent *sent, struct error *error)
{
	(void)context, (void)error;
	assert_true(line_count < sizeof(line) / sizeof(line[0]) && sent->row_count <= 64 && sent->run_count <= 16);
	struct away *away = &line[line_count++];
	away->sent = *sent;
	memcpy(away->tokens, sent->tokens, sent->row_count * sizeof(uint32_t));
	memcpy(away->zero, sent->zero, sent->zero_count * sizeof(uint32_t));
	for (uint32_t i = 0; i < sent->run_count; i++) {
		away->runs[i] = sent->runs[i];
		memcpy(away->pages[i], sent->runs[i].pages,
		       (sent->runs[i].position + sent->runs[i].row_count + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS *
			       sizeof(uint32_t));
	}
	line_most = line_count > line_most ? line_count : line_most;
	return STATUS_OK;
}

static inline void take_check(void *context, const struct generator_checked *checked)
{
	(void)context;
	check = *checked;
	checks++;
}

static inline void begin_draft(const struct bench *bench, const float *rope)
{
	struct error error = {0};
	const struct stage_params params = {.shape = &toy_draft_shape,
					    .layer_count = TOY_DRAFT_LAYERS,
					    .embeds = true,
					    .predicts = true,
					    .context_tokens = bench->context,
					    .page_count = bench->drafts * bench->context / STAGE_PAGE_TOKENS,
					    .batch_rows = 64,
					    .batch_sequences = bench->drafts,
					    .batch_outputs = bench->drafts,
					    .rope = rope,
					    .tensor = toy_tensor};
	if (stage_create(&draft_stage, device, &params, &error))
		fail_msg("%s", error.message);
	const struct drafter_params made = {.stage = draft_stage,
					    .shape = &toy_draft_shape,
					    .places = bench->drafts,
					    .context_tokens = bench->context,
					    .batch_rows = 64,
					    .step_s = 5e-5,
					    .read_s = 5e-5};
	assert_int_equal(drafter_create(&drafter, &made, &error), STATUS_OK);
}

static inline void begin(const struct bench *bench)
{
	struct error error = {0};
	static const float rope[1];
	static struct model_shape shape;
	memset(&toy, 0, sizeof(toy));
	shape = toy_shape;
	shape.pooling = bench->last ? POOLING_LAST : POOLING_MEAN;
	if (recurrent) {
		shape.delta = (struct model_delta){1, 1, 2, 2, 2, false};
		memset(shape.layer_kinds, LAYER_DELTA, TOY_LAYERS - 1);
	}
	struct stage_params params = {.shape = &shape,
				      .layer_count = TOY_LAYERS / bench->stages,
				      .context_tokens = bench->context,
				      .page_count = bench->pages,
				      .batch_rows = bench->rows,
				      .batch_sequences = bench->sequences,
				      .batch_outputs = bench->outputs ? bench->outputs : bench->sequences,
				      .rope = rope,
				      .tensor = toy_tensor};
	toy_backend = backend_cpu;
	toy_backend.stage = bench->finds ? &toy_finding_slots : &toy_slots;
	assert_int_equal(device_open_over(&device, &toy_backend, &(struct exogpu_open){.hardware_key = "cpu"}, &error),
			 STATUS_OK);
	if (bench->drafts)
		begin_draft(bench, rope);
	for (uint32_t i = 0; i < bench->stages; i++) {
		params.embeds = !i;
		params.predicts = i + 1 == bench->stages;
		params.first_layer = i * params.layer_count;
		if (stage_create(&stages[i], device, &params, &error))
			fail_msg("%s", error.message);
	}
	const struct generator_params made = {.stages = stages,
					      .stage_count = bench->stages,
					      .shape = &shape,
					      .context_tokens = bench->context,
					      .page_count = bench->pages,
					      .batch_rows = bench->rows,
					      .batch_sequences = bench->sequences,
					      .batch_outputs = params.batch_outputs,
					      .drafter = drafter,
					      .repeats_alike = !bench->whole};
	struct generator_params in_two = made;
	in_two.stages = stages + 1;
	in_two.stage_count = bench->stages - 1;
	in_two.lanes = bench->lanes;
	in_two.send = send_away;
	in_two.checked = take_check;
	line_count = line_most = 0;
	checks = 0;
	assert_int_equal(generator_create(&generator, bench->lanes ? &in_two : &made, &error), STATUS_OK);
}

// The oldest step that is away is computed by the first stage; with `back` it comes to the generator. True if it did.
static inline bool bring(bool back)
{
	static float activations[64 * TOY_EMBEDDING];
	struct error error = {0};
	bool taken = false;
	struct away one = line[0];
	for (uint32_t i = 0; i < one.sent.run_count; i++)
		one.runs[i].pages = one.pages[i];
	memmove(line, line + 1, --line_count * sizeof(line[0]));
	const struct stage_batch batch = {.row_count = one.sent.row_count,
					  .runs = one.runs,
					  .run_count = one.sent.run_count,
					  .tokens = one.tokens,
					  .output = activations};
	assert_int_equal(stage_zero(stages[0], one.zero, one.sent.zero_count, &error), STATUS_OK);
	if (one.sent.row_count)
		assert_int_equal(stage_step(stages[0], &batch, &error), STATUS_OK);
	const struct generator_returned returned = {.lane = one.sent.lane,
						    .step = one.sent.step,
						    .row_count = one.sent.row_count,
						    .activations = activations};
	if (back && generator_return(generator, &returned, &taken, &error))
		fail_msg("%s", error.message);
	return taken;
}

static inline void finish(void)
{
	assert_int_equal(toy.foreign, 0);
	generator_destroy(&generator);
	drafter_destroy(&drafter);
	stage_destroy(&draft_stage);
	stage_destroy(&stages[1]);
	stage_destroy(&stages[0]);
	exogpu_device_close(&device, NULL);
}

static inline bool took(void *context, const struct token_choice *choice)
{
	struct client *client = context;
	assert_true(client->count < MOST_TOKENS);
	client->tokens[client->count++] = choice->token;
	client->last = *choice;
	client->first_step = client->first_step ? client->first_step : toy.steps;
	return client->count == client->stop_at;
}

static inline void hidden(void *context, const float *values)
{
	memcpy(((struct client *)context)->values, values, sizeof(((struct client *)context)->values));
}

static inline void ended(void *context, enum generator_reason reason, const struct generator_figures *figures,
			 const struct error *error)
{
	struct client *client = context;
	client->ends++;
	client->reason = reason;
	client->figures = *figures;
	client->last_step = toy.steps;
	if (error)
		client->error = *error;
	client->job = NULL;
}

static inline struct generator_request request_of(struct client *client, uint64_t owner, uint32_t max_tokens)
{
	return (struct generator_request){.owner = owner,
					  .tokens = client->tokens,
					  .token_count = client->count,
					  .prompt_count = client->prompt_count,
					  .max_tokens = max_tokens,
					  .sampling = {.temperature = 0, .top_p = 1, .repetition_penalty = 1},
					  .token = took,
					  .hidden = hidden,
					  .ended = ended,
					  .context = client};
}

// A prompt of `count` tokens of `person`; `seed` tells it from others.
static inline void prompt(struct client *client, uint32_t person, size_t count, uint32_t seed)
{
	*client = (struct client){.prompt_count = count, .count = count};
	for (size_t i = 0; i < count; i++)
		client->tokens[i] = person * VOICES + (uint32_t)(toy_hash(seed, (uint32_t)i) >> 7) % VOICES;
}

static inline void add(struct client *client, uint64_t owner, uint32_t max_tokens)
{
	struct error error = {0};
	struct generator_request request = request_of(client, owner, max_tokens);
	if (generator_add(generator, &client->job, &request, &error))
		fail_msg("%s", error.message);
}

static inline void step(bool *idle)
{
	struct error error = {0};
	if (generator_step(generator, idle, &error))
		fail_msg("%s", error.message);
}

static inline void run(void)
{
	bool idle = false;
	for (long i = 0; !idle && i < 1000000; i++) {
		step(&idle);
		if (line_count)
			assert_true(bring(true));
	}
	assert_true(idle);
}

static inline void check_greedy(const struct client *client)
{
	for (size_t i = client->prompt_count; i < client->count; i++) {
		uint32_t wanted = toy_next(client->tokens, i);
		if (client->tokens[i] != wanted)
			fail_msg("token %zu is %u, alone it is %u", i, client->tokens[i], wanted);
	}
}

static inline struct generator_state state_now(void)
{
	struct generator_state state;
	generator_state(generator, &state);
	return state;
}

// Pages of the first stage that hold anything.
static inline unsigned pages_written(const struct bench *bench)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < bench->pages; i++) {
		bool written = false;
		for (uint32_t j = 0; j < STAGE_PAGE_TOKENS; j++)
			written |= toy.first->pages[i][j] != 0;
		count += written;
	}
	return count;
}
