/* Whose the time of steps is: all of it belongs to jobs, prompts and decoding alike, also that of jobs that are removed
 * and of stages that are elsewhere. The model is a toy (toy.h). */
#include "engine/generation/generator_inside.h"
#include "tests/engine/generation/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { STAGES = 2, CLIENTS = 4, ELSEWHERE_NS = 1000000, ROUNDING_NS = 100000 };

static struct backend toy_backend;
static struct exogpu_device *device;
static struct stage *stages[STAGES];
static struct generator *generator;
static struct stage_params stage_params;

struct client {
	struct generator_job *job;
	uint64_t spent_ns[STAGES];
	uint32_t stage_count, read_tokens, generated_tokens, stop_after;
	bool ended;
};

static bool took(void *context, const struct token_choice *choice)
{
	struct client *client = context;
	(void)choice;
	return ++client->generated_tokens == client->stop_after;
}

static void ended(void *context, enum generator_reason reason, const struct generator_figures *figures,
		  const struct error *error)
{
	struct client *client = context;
	(void)reason, (void)error;
	client->ended = true;
	client->read_tokens = figures->read_tokens;
	client->stage_count = figures->spent.count;
	for (uint32_t i = 0; i < figures->spent.count && i < STAGES; i++)
		client->spent_ns[i] = figures->spent.stages_ns[i];
}

// The first stage is elsewhere where there are lanes; then what comes back is the step that was sent last.
static struct {
	uint32_t lane, rows, runs;
	uint64_t step;
	bool there;
} sent;

static enum status send_away(void *context, const struct generator_sent *step, struct error *error)
{
	(void)context, (void)error;
	assert_false(sent.there);
	sent.lane = step->lane;
	sent.rows = step->row_count;
	sent.runs = step->run_count;
	sent.step = step->step;
	sent.there = true;
	return STATUS_OK;
}

static void begin(uint32_t lanes)
{
	struct error error = {0};
	static const float rope[1];
	memset(&toy, 0, sizeof(toy));
	memset(&sent, 0, sizeof(sent));
	stage_params = (struct stage_params){.shape = &toy_shape,
					     .layer_count = TOY_LAYERS / STAGES,
					     .context_tokens = 512,
					     .page_count = 64,
					     .batch_rows = 16,
					     .batch_sequences = CLIENTS,
					     .batch_outputs = CLIENTS,
					     .rope = rope,
					     .tensor = toy_tensor};
	toy_backend = backend_cpu;
	toy_backend.stage = &toy_slots;
	assert_int_equal(device_open_over(&device, &toy_backend, &(struct exogpu_open){.hardware_key = "cpu"}, &error),
			 STATUS_OK);
	for (uint32_t i = 0; i < STAGES; i++) {
		stage_params.embeds = !i;
		stage_params.predicts = i + 1 == STAGES;
		stage_params.first_layer = i * stage_params.layer_count;
		assert_int_equal(stage_create(&stages[i], device, &stage_params, &error), STATUS_OK);
	}
	const struct generator_params params = {.stages = lanes ? stages + 1 : stages,
						.stage_count = lanes ? STAGES - 1 : STAGES,
						.shape = &toy_shape,
						.context_tokens = stage_params.context_tokens,
						.page_count = stage_params.page_count,
						.batch_rows = stage_params.batch_rows,
						.batch_sequences = CLIENTS,
						.batch_outputs = CLIENTS,
						.lanes = lanes,
						.send = send_away};
	assert_int_equal(generator_create(&generator, &params, &error), STATUS_OK);
}

static void finish(void)
{
	generator_destroy(&generator);
	for (int i = STAGES - 1; i >= 0; i--)
		stage_destroy(&stages[i]);
	exogpu_device_close(&device, NULL);
}

static void join(struct client *client, uint32_t person, size_t prompt)
{
	struct error error = {0};
	uint32_t tokens[512];
	for (size_t i = 0; i < prompt; i++)
		tokens[i] = person * VOICES + (uint32_t)i % VOICES;
	const struct generator_request request = {.owner = person + 1,
						  .tokens = tokens,
						  .token_count = prompt,
						  .prompt_count = prompt,
						  .max_tokens = 400,
						  .sampling = {.repetition_penalty = 1},
						  .token = took,
						  .ended = ended,
						  .context = client};
	assert_int_equal(generator_add(generator, &client->job, &request, &error), STATUS_OK);
}

static void assert_shared(const struct client *clients, int count)
{
	struct generator_state state;
	generator_state(generator, &state);
	assert_int_equal(state.spent.count, STAGES);
	for (uint32_t stage = 0; stage < STAGES; stage++) {
		uint64_t sum = 0;
		for (int i = 0; i < count; i++) {
			assert_true(clients[i].ended);
			assert_int_equal(clients[i].stage_count, STAGES);
			sum += clients[i].spent_ns[stage];
		}
		assert_true(state.spent.stages_ns[stage] > 0);
		if (sum > state.spent.stages_ns[stage] || state.spent.stages_ns[stage] - sum > ROUNDING_NS)
			fail_msg("stage %u: jobs have %llu ns of %llu", stage, (unsigned long long)sum,
				 (unsigned long long)state.spent.stages_ns[stage]);
	}
}

static void all_of_it_is_somebodys(void **state)
{
	(void)state;
	bool idle = false;
	struct error error = {0};
	struct client clients[CLIENTS] = {
		{.stop_after = 3}, {.stop_after = 40}, {.stop_after = 9}, {.stop_after = 400}};
	begin(0);
	for (uint32_t i = 0; i < CLIENTS; i++)
		join(&clients[i], i, 5 + 60 * i);
	for (int step = 0; !idle; step++) {
		assert_int_equal(generator_step(generator, &idle, &error), STATUS_OK);
		if (step == 60 && !clients[3].ended)
			generator_remove(&clients[3].job);
	}
	assert_shared(clients, CLIENTS);
	for (uint32_t i = 0; i < CLIENTS; i++)
		assert_int_equal(clients[i].read_tokens, 5 + 60 * i);
	finish();
}

static void a_prompt_that_is_left_was_read_in_part(void **state)
{
	(void)state;
	bool idle;
	struct error error = {0};
	struct client client = {.stop_after = 400};
	begin(0);
	join(&client, 0, 300);
	for (int step = 0; step < 3; step++)
		assert_int_equal(generator_step(generator, &idle, &error), STATUS_OK);
	generator_remove(&client.job);
	assert_shared(&client, 1);
	assert_int_equal(client.read_tokens, 3 * 16);
	finish();
}

static void time_elsewhere_is_shared_by_rows(void **state)
{
	(void)state;
	bool idle = false, taken;
	struct error error = {0};
	static float activations[16 * TOY_EMBEDDING];
	const uint64_t stages_ns[1] = {ELSEWHERE_NS};
	struct client clients[2] = {{.stop_after = 1}, {.stop_after = 1}};
	begin(1);
	join(&clients[0], 0, 3);
	join(&clients[1], 1, 9);
	while (!(clients[0].ended && clients[1].ended)) {
		assert_int_equal(generator_step(generator, &idle, &error), STATUS_OK);
		assert_true(sent.there);
		sent.there = false;
		const struct generator_returned returned = {.lane = sent.lane,
							    .step = sent.step,
							    .row_count = sent.rows,
							    .activations = activations,
							    .stages_ns = stages_ns,
							    .stage_count = 1};
		assert_int_equal(generator_return(generator, &returned, &taken, &error), STATUS_OK);
		assert_true(taken);
	}
	// Both prompts were in the one step: 3 and 9 rows.
	assert_int_equal(clients[0].spent_ns[0], ELSEWHERE_NS / 4);
	assert_int_equal(clients[1].spent_ns[0], ELSEWHERE_NS * 3 / 4);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_of_it_is_somebodys),
		cmocka_unit_test(a_prompt_that_is_left_was_read_in_part),
		cmocka_unit_test(time_elsewhere_is_shared_by_rows),
	};
	return cmocka_run_group_tests_name("spent", tests, NULL, NULL);
}
