/* A generator whose first stage is elsewhere: several steps are under way at once, come back late, or are lost. */
#include "tests/engine/generation/requests.h"

// The first stage is elsewhere: as many steps are under way as there are lanes, and everyone gets what he would alone.
static void two_hundred_over_lanes(void **state)
{
	(void)state;
	enum { CLIENTS = 200 };
	struct client *clients = calloc(CLIENTS, sizeof(*clients));
	for (uint32_t lanes = 1; lanes <= 4; lanes++) {
		const struct bench bench = {
			.pages = 20, .rows = 48, .sequences = 12, .context = 512, .stages = 2, .lanes = lanes};
		begin(&bench);
		for (uint32_t i = 0; i < CLIENTS; i++) {
			prompt(&clients[i], i % PEOPLE, 1 + i * 7 % 150, i);
			add(&clients[i], i % PEOPLE, 1 + i * 13 % 200);
		}
		run();
		for (uint32_t i = 0; i < CLIENTS; i++) {
			assert_int_equal(clients[i].ends, 1);
			assert_int_equal(clients[i].reason, GENERATOR_LENGTH);
			assert_int_equal(clients[i].count, clients[i].prompt_count + 1 + i * 13 % 200);
			check_greedy(&clients[i]);
		}
		print_message("%u lanes: %u preemptions, %zu steps at once\n", lanes, state_now().preemptions,
			      line_most);
		assert_int_equal(line_most, lanes);
		assert_int_equal(state_now().pages_used, 0);
		finish();
	}
	free(clients);
}

// A prompt that is alone goes through all lanes at once, in pieces.
static void a_prompt_in_pieces(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 64, .rows = 64, .sequences = 4, .context = 2000, .stages = 2, .lanes = 3};
	static struct client client;
	begin(&bench);
	prompt(&client, 1, 1000, 1);
	add(&client, 1, 20);
	run();
	assert_int_equal(line_most, 3);
	check_greedy(&client);
	finish();
}

// While all generate as many lanes are used as have been found to be best; a prompt that comes gets them all.
static void as_many_lanes_as_serve_best(void **state)
{
	(void)state;
	enum { CLIENTS = 4 };
	const struct bench bench = {.pages = 64, .rows = 64, .sequences = 8, .context = 2000, .stages = 2, .lanes = 3};
	static struct client clients[CLIENTS], late;
	bool idle = false;
	begin(&bench);
	generator->choice.of[CLIENTS - 1].known = true; // one lane, and no time to try others
	generator->choice.spent[2].tried_ns = INT64_MAX / 1000;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		prompt(&clients[i], 1, 20, i);
		add(&clients[i], 0, 200);
	}
	step(&idle);
	while (line_count != 1 || line[0].sent.row_count != CLIENTS || !clients[CLIENTS - 1].first_step) {
		assert_true(bring(true));
		step(&idle);
	}
	line_most = 0;
	for (int i = 0; i < 50; i++) {
		assert_true(bring(true));
		step(&idle);
		assert_int_equal(line[0].sent.row_count, CLIENTS);
	}
	assert_int_equal(line_most, 1);
	prompt(&late, 2, 1000, 9);
	add(&late, 0, 5);
	step(&idle);
	assert_int_equal(line_count, 3);
	run();
	for (uint32_t i = 0; i < CLIENTS; i++)
		check_greedy(&clients[i]);
	check_greedy(&late);
	finish();
}

// A job that has left holds its pages until its steps are back: who waits for these waits until then.
static void pages_under_way_are_not_free(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 6, .rows = 64, .sequences = 4, .context = 192, .stages = 2, .lanes = 4};
	static struct client first, second;
	bool idle = false;
	begin(&bench);
	prompt(&first, 1, 100, 1);
	add(&first, 0, 10);
	step(&idle);
	prompt(&second, 2, 100, 2);
	add(&second, 0, 10);
	generator_remove(&first.job);
	assert_int_equal(first.ends, 1);
	step(&idle);
	assert_false(idle);
	assert_int_equal(state_now().running, 0);
	assert_int_equal(state_now().waiting, 1);
	assert_int_equal(state_now().pages_used, 4);
	run();
	assert_int_equal(second.ends, 1);
	check_greedy(&second);
	assert_int_equal(state_now().pages_used, 0);
	finish();
}

// Steps are lost, clients leave, and what is lost is computed again: at any time, in any state.
static void steps_are_lost(void **state)
{
	(void)state;
	enum { CLIENTS = 100 };
	const struct bench bench = {.pages = 16, .rows = 20, .sequences = 6, .context = 512, .stages = 2, .lanes = 3};
	struct client *clients = calloc(CLIENTS, sizeof(*clients));
	struct error error = {0};
	uint64_t random = 5;
	bool idle = false;
	long lost = 0, dropped = 0;
	begin(&bench);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		prompt(&clients[i], i % PEOPLE, 1 + i * 11 % 120, i % 10);
		add(&clients[i], i % 3 ? i % PEOPLE : 0, 1 + i * 17 % 100);
	}
	while (!idle) {
		random = toy_hash(random, 7);
		struct client *client = &clients[(random >> 9) % CLIENTS];
		if ((random & 3) == 0 && client->job && client < clients + CLIENTS / 2) {
			struct generator_job *job = client->job;
			generator_remove(&job);
			assert_int_equal(client->ends, 1); // told at once
		}
		step(&idle);
		if (line_count && (random >> 20) % 30 == 0) {
			// Lost before the first stage or behind it. What comes behind is not taken, until all is
			// repaired.
			if ((random >> 30) & 1)
				bring(false);
			else
				memmove(line, line + 1, --line_count * sizeof(line[0]));
			lost++;
			// What a step behind it makes of a state that the lost one would have set goes nowhere.
			const long foreign = toy.foreign;
			while (line_count) {
				assert_false(bring(true));
				dropped++;
			}
			toy.foreign = recurrent ? foreign : toy.foreign;
			step(&idle); // into the void
			line_count = 0;
			assert_int_equal(generator_check(generator, 3, &error), STATUS_OK);
			step(&idle);
			assert_int_equal(line_count, 1); // nothing else until it is back
			long before = checks;
			assert_true(bring(true));
			assert_int_equal(checks, before + 1);
			assert_true(check.finite && check.token == toy_next((const uint32_t[]){3}, 1));
		} else if (line_count) {
			assert_true(bring(true));
		}
	}
	int removed = 0;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		assert_int_equal(clients[i].ends, 1);
		removed += clients[i].reason == GENERATOR_REMOVED;
		check_greedy(&clients[i]);
	}
	print_message("%ld steps were lost, %ld dropped behind them; %d clients removed\n", lost, dropped, removed);
	assert_true(lost > 5 && dropped > 5 && removed > 10);
	assert_int_equal(state_now().pages_used, 0);
	finish();
	free(clients);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_hundred_over_lanes),
		cmocka_unit_test(a_prompt_in_pieces),
		cmocka_unit_test(as_many_lanes_as_serve_best),
		cmocka_unit_test(pages_under_way_are_not_free),
		cmocka_unit_test(steps_are_lost),
	};
	const int failed = cmocka_run_group_tests_name("of keys and values", tests, NULL, NULL);
	recurrent = true;
	return failed + cmocka_run_group_tests_name("with states", tests, NULL, NULL);
}
