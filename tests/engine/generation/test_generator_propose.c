/* Proposed tokens: which a text foresees, and that requests that propose get what they would without, in fewer steps.
 * The model is a toy (toy.h) most of whose tokens follow from the two before them. */
#include "engine/generation/generator_inside.h"
#include "tests/engine/generation/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { MOST_TOKENS = 1024, CLIENTS = 6 };

// ---- proposals.h ----

static void what_is_found(void **state)
{
	(void)state;
	static const struct {
		uint32_t tokens[12], count, found, agreed;
	} cases[] = {
		{{1}, 1, 0, 0},
		{{1, 2}, 2, 0, 0},
		{{1, 1, 1}, 3, 2, 2}, // the newest, though it reaches the end
		{{1, 2, 3, 4, 5}, 5, 0, 0},
		{{2, 3, 9, 4, 3}, 5, 0, 0}, // one token does not do
		{{2, 3, 9, 2, 3}, 5, 2, 2},
		{{1, 2, 3, 9, 1, 2, 3}, 7, 3, 3},
		{{1, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3}, 11, 3, 3}, // the longest, not the newest
		{{5, 2, 3, 7, 5, 2, 3, 8, 5, 2, 3}, 11, 7, 3}, // the newest of equals
		{{4, 4, 4, 4, 4, 4}, 6, 5, 5},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t agreed = 99;
		assert_int_equal(proposals_find(cases[i].tokens, cases[i].count, &agreed), cases[i].found);
		assert_int_equal(agreed, cases[i].agreed);
	}
	// Not further back than it may.
	static uint32_t text[PROPOSALS_BACK + 20];
	const uint32_t count = sizeof(text) / sizeof(text[0]);
	uint32_t agreed;
	for (uint32_t i = 0; i < count; i++)
		text[i] = i;
	memcpy(&text[count - 2], &text[17], 2 * sizeof(uint32_t));
	assert_int_equal(proposals_find(text, count, &agreed), 0);
	memcpy(&text[count - 2], &text[20], 2 * sizeof(uint32_t));
	assert_int_equal(proposals_find(text, count, &agreed), 22);
}

// A text that repeats itself is trusted more and more, one that does not less and less; dear rows are not taken.
static void how_many_are_proposed(void **state)
{
	(void)state;
	struct row_prices cheap, dear, usual;
	struct proposals proposals;
	uint32_t tokens[400];
	row_prices_set(&cheap, (const double[ROW_TIMES]){1, 1, 1, 1, 1});
	row_prices_set(&dear, (const double[ROW_TIMES]){1, 2, 4, 8, 16});
	row_prices_set(&usual, (const double[ROW_TIMES]){0});
	assert_true(cheap.of[0] == 1 && dear.of[0] == 1 && usual.of[0] == 1);
	for (uint32_t i = 1; i < PROPOSALS_ROWS; i++) {
		assert_true(cheap.of[i] > cheap.of[i - 1] && usual.of[i] > usual.of[i - 1]);
		assert_true(dear.of[i] > (float)i && dear.of[i] < (float)i + 1.1f);
	}
	proposals_init(&proposals);
	proposals.credit = 100;
	for (uint32_t i = 0; i < 400; i++)
		tokens[i] = i % 10;
	for (uint32_t count = 20; count <= 400; count++) {
		proposals_count(&proposals, tokens, count, 15, 1, &cheap);
		proposals_follow(&proposals, tokens, count + (count < 400));
	}
	assert_int_equal(proposals.next % 10, 0);
	assert_int_equal(proposals_count(&proposals, tokens, 400, 15, 1, &cheap), 15);
	assert_int_equal(proposals_count(&proposals, tokens, 400, 6, 1, &cheap), 6);
	assert_int_equal(proposals_count(&proposals, tokens, 400, 0, 1, &cheap), 0);
	assert_int_equal(proposals_count(&proposals, tokens, 400, 15, 14, &cheap), 2);
	assert_int_equal(proposals_count(&proposals, tokens, 400, 15, 16, &cheap), 0);
	assert_int_equal(proposals_count(&proposals, tokens, 400, 15, 1, &dear), 0);
	proposals.credit = 0.05f; // what may be lost bounds them
	assert_int_equal(proposals_count(&proposals, tokens, 400, 15, 1, &cheap), 2);
	assert_int_equal(proposals_count(&proposals, tokens, 400, 15, 1, &usual), 0);
	for (int i = 0; i < 20; i++)
		proposals_settle(&proposals, 0);
	assert_int_equal(proposals_count(&proposals, tokens, 400, 15, 1, &usual), 2);
	proposals_settle(&proposals, proposals_price(&usual, 1, 2));
	assert_int_equal(proposals_count(&proposals, tokens, 400, 15, 1, &usual), 0);
	for (int i = 0; i < 1000; i++)
		proposals_settle(&proposals, 0);
	assert_true(proposals.credit < 10); // however long it went well
	proposals_init(&proposals);         // pairs that are always followed by something else
	for (uint32_t i = 0; i < 400; i++)
		tokens[i] = i % 3 == 2 ? 100 + i : i % 3;
	for (uint32_t count = 20; count < 400; count++) {
		proposals_count(&proposals, tokens, count, 15, 1, &cheap);
		proposals_follow(&proposals, tokens, count + 1);
	}
	assert_true(proposals.right[0] < 0.01f);
	proposals.credit = 100;
	assert_int_equal(proposals_count(&proposals, tokens, 398, 15, 1, &cheap), 0);
}

// How long a step of a row and so many further ones takes, in steps of one.
static void check_price(const struct row_prices *prices, uint32_t count, double expected)
{
	const double difference = 1 + (double)proposals_price(prices, 1, count) - expected;
	assert_true(difference > -1e-3 && difference < 1e-3);
}

// The price of a row with the network time of its step. The times are given, so no clock is read.
static void network_time_makes_rows_cheaper(void **state)
{
	(void)state;
	static const double linear[ROW_TIMES] = {1, 2, 4, 8, 16};
	struct row_prices prices;
	row_prices_set(&prices, linear);
	for (int i = 0; i < 3; i++) {
		check_price(&prices, 1, 2);
		row_prices_trip(&prices, 0, 9); // no step that proposes may be like these
		row_prices_trip(&prices, 17, 9);
		row_prices_trip(&prices, 1, (double)NAN);
	}
	row_prices_trip(&prices, 1, 8);
	row_prices_trip(&prices, 1, 10);
	check_price(&prices, 1, (2 + 9) / (1 + 9.0)); // the mean
	check_price(&prices, 15, (16 + 9) / (1 + 9.0));
	row_prices_trip(&prices, 9, 14); // more rows are more bytes
	check_price(&prices, 15, (16 + 14) / (1 + 9.0));
	check_price(&prices, 7, (8 + 9) / (1 + 9.0));
	for (int i = 0; i < 200; i++)
		row_prices_trip(&prices, 1, 1); // the network became faster
	check_price(&prices, 1, (2 + 1) / (1 + 1.0));
	row_prices_set(&prices, linear); // another ring
	check_price(&prices, 1, 2);
	row_prices_trip(&prices, 16, 9); // only a longer step is known
	check_price(&prices, 1, (2 + 9) / (1 + 9.0));
	row_prices_set(&prices, (const double[ROW_TIMES]){0}); // there is nothing to compare with
	row_prices_trip(&prices, 1, 9);
	check_price(&prices, 1, 1.25);
}

// ---- the generator ----

static struct backend toy_backend;
static struct exogpu_device *device;
static struct stage *stages[2];
static struct generator *generator;

struct setup {
	uint32_t pages, rows, sequences, outputs, lanes;
	struct sampling sampling;
	uint32_t max_tokens, stop_at, clients, remove_after; // remove_after: tokens of the first client
	bool lose;                                           // a step in ten, with lanes
	uint64_t network_ns;                                 // of each step
	double row_times[ROW_TIMES];                         // 0: rows cost nothing
};

struct client {
	struct generator_job *job;
	uint32_t tokens[MOST_TOKENS];
	float logprobs[MOST_TOKENS];
	size_t prompt_count, count, stop_at;
	enum generator_reason reason;
	struct generator_figures figures;
	int ends;
};

static struct {
	struct generator_sent sent;
	uint32_t tokens[64], zero[PAGES_MOST], pages[CLIENTS][MOST_TOKENS / STAGE_PAGE_TOKENS];
	struct stage_run runs[CLIENTS];
} line[4];
static size_t line_count;
static uint64_t network_ns; // of each step

static enum status send_away(void *context, const struct generator_sent *sent, struct error *error)
{
	(void)context, (void)error;
	assert_true(line_count < 4 && sent->row_count <= 64 && sent->run_count <= CLIENTS);
	line[line_count].sent = *sent;
	memcpy(line[line_count].tokens, sent->tokens, sent->row_count * sizeof(uint32_t));
	memcpy(line[line_count].zero, sent->zero, sent->zero_count * sizeof(uint32_t));
	for (uint32_t i = 0; i < sent->run_count; i++) {
		line[line_count].runs[i] = sent->runs[i];
		memcpy(line[line_count].pages[i], sent->runs[i].pages,
		       (sent->runs[i].position + sent->runs[i].row_count + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS *
			       sizeof(uint32_t));
	}
	line_count++;
	return STATUS_OK;
}

// The oldest step that is away is computed by the first stage, and comes back.
static void bring(bool back)
{
	static float activations[64 * TOY_EMBEDDING];
	struct error error = {0};
	bool taken;
	for (uint32_t i = 0; i < line[0].sent.run_count; i++)
		line[0].runs[i].pages = line[0].pages[i];
	const struct generator_sent sent = line[0].sent;
	const struct stage_batch batch = {.row_count = sent.row_count,
					  .runs = line[0].runs,
					  .run_count = sent.run_count,
					  .tokens = line[0].tokens,
					  .output = activations};
	assert_int_equal(stage_zero(stages[0], line[0].zero, sent.zero_count, &error), STATUS_OK);
	if (sent.row_count)
		assert_int_equal(stage_step(stages[0], &batch, &error), STATUS_OK);
	memmove(line, line + 1, --line_count * sizeof(line[0]));
	const struct generator_returned returned = {.lane = sent.lane,
						    .step = sent.step,
						    .row_count = sent.row_count,
						    .network_ns = network_ns,
						    .activations = activations};
	if (back && generator_return(generator, &returned, &taken, &error))
		fail_msg("%s", error.message);
}

static void checked(void *context, const struct generator_checked *result)
{
	(void)context, (void)result;
}

static void begin(const struct setup *setup)
{
	struct error error = {0};
	static const float rope[1];
	const uint32_t count = setup->lanes ? 2 : 1;
	memset(&toy, 0, sizeof(toy));
	toy.repeats = true;
	line_count = 0;
	network_ns = setup->network_ns;
	struct stage_params params = {.shape = &toy_shape,
				      .layer_count = TOY_LAYERS / count,
				      .context_tokens = MOST_TOKENS,
				      .page_count = setup->pages,
				      .batch_rows = setup->rows,
				      .batch_sequences = setup->sequences,
				      .batch_outputs = setup->outputs,
				      .rope = rope,
				      .tensor = toy_tensor};
	toy_backend = backend_cpu;
	toy_backend.stage = &toy_slots;
	assert_int_equal(device_open_over(&device, &toy_backend, &(struct exogpu_open){.hardware_key = "cpu"}, &error),
			 STATUS_OK);
	for (uint32_t i = 0; i < count; i++) {
		params.embeds = !i;
		params.predicts = i + 1 == count;
		params.first_layer = i * params.layer_count;
		assert_int_equal(stage_create(&stages[i], device, &params, &error), STATUS_OK);
	}
	const struct generator_params made = {.stages = setup->lanes ? stages + 1 : stages,
					      .stage_count = 1,
					      .shape = &toy_shape,
					      .context_tokens = MOST_TOKENS,
					      .page_count = setup->pages,
					      .batch_rows = setup->rows,
					      .batch_sequences = setup->sequences,
					      .batch_outputs = setup->outputs,
					      .lanes = setup->lanes,
					      .send = send_away,
					      .checked = checked};
	assert_int_equal(generator_create(&generator, &made, &error), STATUS_OK);
	static const double nothing[ROW_TIMES] = {1, 1, 1, 1, 1};
	generator_set_row_times(generator, setup->row_times[0] > 0 ? setup->row_times : nothing);
}

static void finish(void)
{
	struct generator_state state;
	generator_state(generator, &state);
	assert_int_equal(toy.foreign, 0);
	assert_int_equal(state.pages_used, 0);
	generator_destroy(&generator);
	stage_destroy(&stages[1]);
	stage_destroy(&stages[0]);
	exogpu_device_close(&device, NULL);
}

static bool took(void *context, const struct token_choice *choice)
{
	struct client *client = context;
	assert_true(client->count < MOST_TOKENS);
	client->logprobs[client->count] = choice->logprob;
	client->tokens[client->count++] = choice->token;
	return client->count == client->stop_at;
}

static void ended(void *context, enum generator_reason reason, const struct generator_figures *figures,
		  const struct error *error)
{
	struct client *client = context;
	(void)error;
	client->ends++;
	client->reason = reason;
	client->figures = *figures;
	client->job = NULL;
}

static void add(struct client *client, const struct setup *setup, uint64_t owner, bool speculate)
{
	struct error error = {0};
	const struct generator_request request = {.owner = owner,
						  .tokens = client->tokens,
						  .token_count = client->count,
						  .prompt_count = client->prompt_count,
						  .max_tokens = setup->max_tokens,
						  .sampling = setup->sampling,
						  .speculate = speculate,
						  .token = took,
						  .ended = ended,
						  .context = client};
	if (generator_add(generator, &client->job, &request, &error))
		fail_msg("%s", error.message);
}

static void run(struct client *first, const struct setup *setup)
{
	bool idle = false;
	struct error error = {0};
	for (long i = 1; !idle && i < 100000; i++) {
		if (generator_step(generator, &idle, &error))
			fail_msg("%s", error.message);
		if (setup->remove_after && first->job && first->count >= first->prompt_count + setup->remove_after)
			generator_remove(&first->job); // with lanes: while its step is on its way
		if (setup->lose && i % 10 == 0) {
			while (line_count)
				bring(false);
			assert_int_equal(generator_check(generator, 1, &error), STATUS_OK);
		}
		if (line_count)
			bring(true);
	}
	assert_true(idle);
}

// All clients of a setup, one behind the other or all at once. Returns the steps.
static long serve(struct client *clients, const struct setup *setup, bool speculate)
{
	begin(setup);
	for (uint32_t i = 0; i < setup->clients; i++) {
		struct client *client = &clients[i];
		*client = (struct client){.prompt_count = 1 + 13 * i, .stop_at = setup->stop_at};
		while (client->count < client->prompt_count) {
			const uint32_t at = (uint32_t)client->count++;
			client->tokens[at] = (1 + i % 2) * VOICES + (uint32_t)(toy_hash(i, at) >> 9) % 16;
		}
		add(client, setup, i % 3 ? 1 + i % 2 : 0, speculate);
	}
	run(clients, setup);
	const long steps = toy.steps;
	finish();
	return steps;
}

static void check_same(const struct setup *setup, bool fewer)
{
	static struct client with[CLIENTS], without[CLIENTS];
	uint32_t accepted = 0, proposed = 0;
	const long before = serve(without, setup, false), steps = serve(with, setup, true);
	for (uint32_t i = 0; i < setup->clients; i++) {
		assert_int_equal(without[i].figures.proposed_tokens, 0);
		assert_int_equal(with[i].ends, 1);
		proposed += with[i].figures.proposed_tokens;
		accepted += with[i].figures.accepted_tokens;
		if (setup->remove_after && !i)
			continue; // how far it came depends on the steps
		assert_int_equal(with[i].count, without[i].count);
		assert_memory_equal(with[i].tokens, without[i].tokens, with[i].count * sizeof(uint32_t));
		assert_memory_equal(with[i].logprobs, without[i].logprobs, with[i].count * sizeof(float));
		assert_int_equal(with[i].reason, without[i].reason);
		assert_int_equal(with[i].figures.generated_tokens, without[i].figures.generated_tokens);
		assert_int_equal(with[i].figures.generated_tokens, with[i].count - with[i].prompt_count);
	}
	assert_true(accepted <= proposed && steps <= before);
	if (fewer)
		assert_true(accepted > 20 && proposed > accepted && steps < before * 9 / 10);
}

static const struct sampling greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};

static void the_same_in_fewer_steps(void **state)
{
	(void)state;
	struct setup setup = {.pages = 64,
			      .rows = 32,
			      .sequences = 1,
			      .outputs = 32,
			      .sampling = greedy,
			      .max_tokens = 500,
			      .clients = 2};
	for (setup.lanes = 0; setup.lanes <= 2; setup.lanes++) {
		check_same(&setup, true);
		setup.sampling.logprobs = true; // from logits, not by argmax
		check_same(&setup, true);
		setup.sampling.presence_penalty = 0.1f;
		check_same(&setup, false);
		setup.sampling = greedy;
		for (setup.sampling.seed = 1; setup.sampling.seed < 4; setup.sampling.seed++) {
			setup.sampling.temperature = 0.3f;
			check_same(&setup, true);
			setup.sampling.temperature = 0.9f;
			check_same(&setup, false);
		}
		setup.sampling = greedy;
	}
}

// Rows that cost as much as steps of their own are worth computing only if a step takes long in the network.
static void network_time_decides(void **state)
{
	(void)state;
	struct setup setup = {.pages = 64,
			      .rows = 32,
			      .sequences = 1,
			      .outputs = 32,
			      .sampling = greedy,
			      .max_tokens = 300,
			      .lanes = 1,
			      .clients = 1,
			      .row_times = {1, 2, 4, 8, 16}};
	static struct client client;
	for (setup.lanes = 1; setup.lanes <= 2; setup.lanes++) { // one request is in one lane
		setup.network_ns = 0;
		const long near = serve(&client, &setup, true);
		assert_int_equal(client.figures.proposed_tokens, 0);
		setup.network_ns = 100000000000;
		const long far = serve(&client, &setup, true);
		assert_true(client.figures.accepted_tokens > 20);
		assert_true(far < near * 9 / 10);
	}
}

// Wherever an answer ends, in the middle of an accepted series too.
static void every_end(void **state)
{
	(void)state;
	struct setup setup = {.pages = 64,
			      .rows = 32,
			      .sequences = 1,
			      .outputs = 32,
			      .sampling = greedy,
			      .max_tokens = 500,
			      .clients = 1};
	for (uint32_t end = 2; end < 400; end += end < 180 ? 13 : 1) {
		setup.stop_at = end;
		check_same(&setup, false);
		setup.stop_at = 0;
		setup.max_tokens = end;
		check_same(&setup, false);
		setup.max_tokens = 500;
	}
}

static void several_at_once(void **state)
{
	(void)state;
	struct setup setup = {.pages = 200,
			      .rows = 32,
			      .sequences = CLIENTS,
			      .outputs = 32,
			      .sampling = greedy,
			      .max_tokens = 400,
			      .clients = CLIENTS};
	for (setup.lanes = 0; setup.lanes <= 3; setup.lanes++) {
		setup.pages = 200;
		check_same(&setup, true);
		setup.remove_after = 300;
		check_same(&setup, false);
		setup.remove_after = 0;
		setup.pages = 20; // some give way
		check_same(&setup, false);
		setup.outputs = CLIENTS; // there is room for nobody's
		check_same(&setup, false);
		setup.outputs = 32;
		setup.lose = setup.lanes;
		check_same(&setup, false);
		setup.lose = false;
	}
}

// Pages with rows that did not count hold the tokens that were chosen, when another request finds them.
static void a_conversation_goes_on(void **state)
{
	(void)state;
	const struct setup setup = {.pages = 64,
				    .rows = 32,
				    .sequences = 1,
				    .outputs = 32,
				    .sampling = greedy,
				    .max_tokens = 300,
				    .clients = 1};
	static struct client client;
	begin(&setup);
	client = (struct client){.prompt_count = 40, .count = 40};
	for (uint32_t i = 0; i < 40; i++)
		client.tokens[i] = VOICES + i % 16;
	add(&client, &setup, 1, true);
	run(&client, &setup);
	assert_true(client.figures.accepted_tokens > 20);
	assert_int_equal(client.count, 340);
	client.prompt_count = ++client.count;
	client.tokens[339] = VOICES + 3;
	client.tokens[340] = VOICES + 5;
	add(&client, &setup, 1, true);
	run(&client, &setup);
	assert_int_equal(client.figures.cached_tokens, 320);
	for (size_t i = 341; i < client.count; i++)
		assert_int_equal(client.tokens[i], toy_next(client.tokens, i));
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_found),
		cmocka_unit_test(how_many_are_proposed),
		cmocka_unit_test(network_time_makes_rows_cheaper),
		cmocka_unit_test(network_time_decides),
		cmocka_unit_test(the_same_in_fewer_steps),
		cmocka_unit_test(every_end),
		cmocka_unit_test(several_at_once),
		cmocka_unit_test(a_conversation_goes_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
