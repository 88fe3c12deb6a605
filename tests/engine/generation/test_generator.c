/* Many requests on one model: what each gets is what it would get alone, whoever else is there and however few pages
 * there are; what is shared, with whom, and what is zeroed. The model is a toy (toy.h) for which that can be told. */
#include "tests/engine/generation/requests.h"

static void alone(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 8, .rows = 16, .sequences = 2, .context = 256, .stages = 1};
	static struct client client;
	for (size_t length = 1; length < 140; length += 23) {
		begin(&bench);
		prompt(&client, 1, length, 1);
		add(&client, 0, 50);
		run();
		assert_int_equal(client.ends, 1);
		assert_int_equal(client.reason, GENERATOR_LENGTH);
		assert_int_equal(client.count, length + 50);
		check_greedy(&client);
		assert_int_equal(client.figures.prompt_tokens, length);
		assert_int_equal(client.figures.generated_tokens, 50);
		assert_int_equal(client.figures.cached_tokens, 0);
		assert_true(client.figures.queued_ns >= 0 && client.figures.prompt_ns > 0);
		assert_true(client.figures.generate_ns > 0);
		assert_int_equal(toy.rows, length + 49); // the last token needs no computing
		assert_int_equal(pages_written(&bench), 0);
		finish();
	}
}

static void ends_at_a_stop_and_at_the_context(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 8, .rows = 16, .sequences = 2, .context = 100, .stages = 1};
	static struct client stopped, long_one, small;
	begin(&bench);
	prompt(&stopped, 1, 10, 1);
	prompt(&long_one, 2, 99, 2);
	prompt(&small, 3, 10, 3);
	stopped.stop_at = 17;
	add(&stopped, 1, 1000);
	add(&long_one, 2, 1000);
	add(&small, 3, 1000);
	run();
	assert_int_equal(stopped.reason, GENERATOR_STOP);
	assert_int_equal(stopped.count, 17);
	assert_int_equal(long_one.reason, GENERATOR_LENGTH);
	assert_int_equal(long_one.count, 100);
	assert_int_equal(small.count, 100);
	check_greedy(&small);
	finish();
}

static void wrong_requests_are_refused(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 3, .rows = 16, .sequences = 2, .context = 200, .stages = 1};
	static struct client client;
	struct error error = {0};
	struct generator_job *job;
	begin(&bench);
	prompt(&client, 1, 200, 1);
	struct generator_request request = request_of(&client, 1, 10);
	assert_int_equal(generator_add(generator, &job, &request, &error), STATUS_LIMIT_EXCEEDED);
	assert_non_null(strstr(error.message, "200 tokens"));
	error = (struct error){0};
	request.token_count = request.prompt_count = 96;
	assert_int_equal(generator_add(generator, &job, &request, &error), STATUS_LIMIT_EXCEEDED);
	assert_non_null(strstr(error.message, "memory for 96"));
	error = (struct error){0};
	request.token_count = request.prompt_count = 0;
	assert_int_equal(generator_add(generator, &job, &request, &error), STATUS_INVALID_PARAMS);
	error = (struct error){0};
	client.tokens[5] = TOY_VOCABULARY;
	request.token_count = request.prompt_count = 10;
	assert_int_equal(generator_add(generator, &job, &request, &error), STATUS_INVALID_PARAMS);
	error = (struct error){0};
	client.tokens[5] = 5;
	const struct token_bias bias = {.token = TOY_VOCABULARY, .bias = 1};
	request.sampling.biases = &bias;
	request.sampling.bias_count = 1;
	assert_int_equal(generator_add(generator, &job, &request, &error), STATUS_INVALID_PARAMS);
	bool idle = false;
	step(&idle);
	assert_true(idle);
	assert_int_equal(toy.steps, 0);
	finish();
}

// A text goes through an encoder in one step, which has no more rows than this.
static void a_text_longer_than_a_step_is_refused(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 8, .rows = 32, .sequences = 32, .context = 128, .stages = 1};
	static struct client client;
	struct error error = {0};
	struct generator_job *job;
	begin(&bench);
	struct model_shape shape = *generator->params.shape;
	shape.encoder = true;
	generator->params.shape = &shape;
	prompt(&client, 1, 33, 1);
	struct generator_request request = request_of(&client, 1, 0);
	request.want_hidden = true;
	assert_int_equal(generator_add(generator, &job, &request, &error), STATUS_LIMIT_EXCEEDED);
	assert_string_equal(error.message, "the input has 33 tokens; the model takes 32 at most");
	request.token_count = request.prompt_count = 32;
	assert_int_equal(generator_add(generator, &client.job, &request, &error), STATUS_OK);
	run();
	assert_int_equal(client.reason, GENERATOR_STOP);
	finish();
}

static void two_hundred_on_few_pages(void **state)
{
	(void)state;
	enum { CLIENTS = 200 };
	const struct bench bench = {.pages = 20, .rows = 48, .sequences = 12, .context = 512, .stages = 2};
	struct client *clients = calloc(CLIENTS, sizeof(*clients));
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
	struct generator_state now = state_now();
	print_message("%u preemptions, %lu steps\n", now.preemptions, (unsigned long)now.steps);
	assert_true(now.preemptions > 0);
	assert_int_equal(now.pages_used, 0);
	assert_int_equal(now.running + now.waiting, 0);
	assert_true(toy.most_rows <= bench.rows);
	finish();
	free(clients);
}

// Removed at any time, in any state; those that stay get what they would.
static void some_leave(void **state)
{
	(void)state;
	enum { CLIENTS = 100 };
	const struct bench bench = {.pages = 16, .rows = 20, .sequences = 6, .context = 512, .stages = 1};
	struct client *clients = calloc(CLIENTS, sizeof(*clients));
	uint64_t random = 5;
	bool idle = false;
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
			assert_null(job);
			assert_int_equal(client->reason, GENERATOR_REMOVED);
		}
		step(&idle);
	}
	int removed = 0;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		assert_int_equal(clients[i].ends, 1);
		removed += clients[i].reason == GENERATOR_REMOVED;
		check_greedy(&clients[i]);
	}
	print_message("%d of %d were removed\n", removed, CLIENTS);
	assert_true(removed > 10);
	assert_int_equal(state_now().pages_used, 0);
	assert_int_equal(pages_written(&bench), state_now().pages_cached);
	finish();
	free(clients);
}

static void pages_are_free_at_once(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 8, .rows = 16, .sequences = 2, .context = 256, .stages = 1};
	static struct client client;
	bool idle;
	begin(&bench);
	prompt(&client, 1, 40, 1);
	add(&client, 0, 10);
	step(&idle);
	assert_int_equal(state_now().pages_used, 2);
	generator_remove(&client.job);
	assert_int_equal(state_now().pages_used, 0);
	assert_int_equal(state_now().pages_cached, 0);
	assert_int_equal(pages_written(&bench), 1); // zeroed by the next step, before anything else
	step(&idle);
	assert_true(idle);
	assert_int_equal(pages_written(&bench), 0);
	finish();
}

static void prefixes_are_shared_by_their_owner(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 32, .rows = 64, .sequences = 4, .context = 512, .stages = 1};
	static struct client first, second, stranger, nobody, longer;
	begin(&bench);
	prompt(&first, 1, 100, 1);
	add(&first, 1, 20);
	run();
	assert_int_equal(first.figures.cached_tokens, 0);
	assert_int_equal(state_now().pages_cached, 3); // 119 tokens were computed
	long rows = toy.rows;
	second = stranger = nobody = longer = (struct client){0};
	prompt(&second, 1, 100, 1);
	add(&second, 1, 20);
	run();
	assert_int_equal(second.figures.cached_tokens, 96);
	assert_int_equal(toy.rows - rows, 4 + 19);
	check_greedy(&second);
	// Another one's and nobody's are computed anew.
	prompt(&stranger, 1, 100, 1);
	add(&stranger, 2, 20);
	prompt(&nobody, 1, 100, 1);
	add(&nobody, 0, 20);
	run();
	assert_int_equal(stranger.figures.cached_tokens, 0);
	assert_int_equal(nobody.figures.cached_tokens, 0);
	assert_int_equal(state_now().pages_cached, 6);
	// A conversation goes on: the answer is a prefix, too.
	longer = first;
	longer.prompt_count = longer.count;
	for (int i = 0; i < 50; i++)
		longer.tokens[longer.prompt_count++] = VOICES + 3;
	longer.count = longer.prompt_count;
	longer.ends = 0;
	add(&longer, 1, 20);
	run();
	assert_int_equal(longer.figures.cached_tokens, 96);
	check_greedy(&longer);
	finish();
}

// While the first is at work still, and with the whole prompt in full pages: a token is left to compute.
static void running_requests_share(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 16, .rows = 256, .sequences = 4, .context = 512, .stages = 1};
	static struct client first, second;
	bool idle;
	begin(&bench);
	prompt(&first, 1, 128, 1);
	add(&first, 1, 100);
	step(&idle);
	step(&idle); // its last page by itself
	prompt(&second, 1, 128, 1);
	add(&second, 1, 100);
	step(&idle);
	assert_int_equal(state_now().pages_used, 5 + 1); // the last page of the prompt is computed twice
	run();
	assert_int_equal(second.figures.cached_tokens, 96);
	check_greedy(&first);
	check_greedy(&second);
	finish();
}

// What is kept makes room, the longest unused first.
static void the_kept_make_room(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 8, .rows = 64, .sequences = 4, .context = 256, .stages = 1};
	static struct client clients[5];
	begin(&bench);
	for (uint32_t i = 0; i < 3; i++) {
		prompt(&clients[i], i + 1, 70, i);
		add(&clients[i], i + 1, 2);
		run();
	}
	assert_int_equal(state_now().pages_cached, 6);
	prompt(&clients[3], 1, 70, 0);
	add(&clients[3], 1, 2);
	run();
	assert_int_equal(clients[3].figures.cached_tokens, 64);
	prompt(&clients[4], 4, 150, 9); // 5 pages: 2 are free, those of the second and the end of the third go
	add(&clients[4], 4, 2);
	run();
	check_greedy(&clients[4]);
	prompt(&clients[3], 1, 70, 0);
	add(&clients[3], 1, 2);
	run();
	assert_int_equal(clients[3].figures.cached_tokens, 64);
	prompt(&clients[1], 2, 70, 1);
	add(&clients[1], 2, 2);
	run();
	assert_int_equal(clients[1].figures.cached_tokens, 0);
	finish();
}

static void a_long_prompt_holds_nobody_up(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 64, .rows = 16, .sequences = 4, .context = 2000, .stages = 1};
	static struct client talker, long_one, late;
	bool idle;
	begin(&bench);
	prompt(&talker, 1, 4, 1);
	add(&talker, 1, 200);
	step(&idle);
	prompt(&long_one, 2, 1000, 2);
	add(&long_one, 2, 1);
	for (int i = 0; i < 10; i++) {
		size_t before = talker.count;
		step(&idle);
		assert_int_equal(talker.count, before + 1);
	}
	prompt(&late, 3, 20, 3);
	add(&late, 3, 1);
	long since = toy.steps;
	run();
	print_message("the late one had its token after %ld steps, the long one after %ld\n", late.first_step - since,
		      long_one.first_step - since);
	assert_true(late.first_step - since <= 4);
	assert_true(long_one.first_step > late.first_step);
	check_greedy(&long_one);
	finish();
}

// Alone, what lies behind the last whole page is computed by itself, whether the pages before it are there or not. Not
// where that is not asked for: the whole prompt is one step then, if no state is
// to be kept there.
static void a_repetition_is_computed_alike(void **state)
{
	(void)state;
	struct bench bench = {.pages = 16, .rows = 256, .sequences = 4, .context = 512, .stages = 1};
	static struct client client;
	for (int whole = 0; whole < 2; whole++) {
		bench.whole = whole;
		begin(&bench);
		const bool cut = !whole || recurrent;
		for (int turn = 0; turn < 2; turn++) {
			toy.steps = 0;
			toy.most_rows = 0;
			prompt(&client, 1, 100, 1);
			add(&client, 1, 1);
			run();
			assert_int_equal(toy.steps, turn || !cut ? 1 : 2);
			assert_int_equal(toy.most_rows, turn ? 4 : cut ? 96 : 100);
			assert_int_equal(client.figures.cached_tokens, turn ? 96 : 0);
			check_greedy(&client);
		}
		finish();
	}
}

// Pieces of a prompt are as long as was set, however many generate besides, and each of these gets a token of every
// step. Alone it is in the same pieces every time.
static void pieces_are_as_long_as_set(void **state)
{
	(void)state;
	enum { TALKERS = 30 };
	const struct bench bench = {.pages = 200, .rows = 128, .sequences = 40, .context = 1024, .stages = 1};
	static struct client talkers[TALKERS], long_one;
	bool idle;
	for (uint32_t rows = 8; rows <= 64; rows *= 8) { // 8 is all that there is to have
		begin(&bench);
		generator_set_prompt_rows(generator, rows, 4 * rows);
		prompt(&long_one, 7, 641, 2);
		add(&long_one, 0, 1);
		run();
		const uint32_t alone_rows = 4 * rows < bench.rows ? 4 * rows : bench.rows;
		assert_int_equal(toy.steps, 640 / alone_rows + 1); // what lies behind the last whole page
		assert_int_equal(toy.most_rows, alone_rows);
		toy.most_rows = 0;
		for (uint32_t i = 0; i < TALKERS; i++) {
			prompt(&talkers[i], i % PEOPLE, 1, i);
			add(&talkers[i], 0, 400);
		}
		step(&idle);
		prompt(&long_one, 7, 640, 2);
		add(&long_one, 0, 1);
		const uint32_t least = rows < 16 ? rows : 16, piece = rows > TALKERS + least ? rows - TALKERS : least;
		for (uint32_t i = 0; long_one.ends == 0; i++) {
			const size_t before = talkers[0].count;
			step(&idle);
			assert_true(i < (640 + piece - 1) / piece);
			assert_int_equal(talkers[0].count, before + 1);
			assert_int_equal(talkers[TALKERS - 1].count, before + 1);
			assert_true(toy.most_rows <= TALKERS + piece);
		}
		run();
		check_greedy(&long_one);
		check_greedy(&talkers[3]);
		finish();
	}
}

// Who asks for much at once has the others wait for no more than what runs already.
static void owners_take_turns(void **state)
{
	(void)state;
	enum { GREEDY = 60 };
	const struct bench bench = {.pages = 64, .rows = 64, .sequences = 4, .context = 256, .stages = 1};
	static struct client greedy[GREEDY], second, third;
	int before = 0;
	begin(&bench);
	for (uint32_t i = 0; i < GREEDY; i++) {
		prompt(&greedy[i], 1, 8, i);
		add(&greedy[i], 1, 10);
	}
	bool idle = false;
	step(&idle);
	prompt(&second, 2, 8, 1);
	add(&second, 2, 10);
	prompt(&third, 3, 8, 1);
	add(&third, 3, 10);
	while (!second.ends || !third.ends)
		step(&idle);
	for (uint32_t i = 0; i < GREEDY; i++)
		before += greedy[i].ends;
	print_message("%d of %d of the greedy one had ended\n", before, GREEDY);
	assert_true(before <= 8);
	run();
	for (uint32_t i = 1; i < GREEDY; i++) // his own go in their order
		assert_true(greedy[i].first_step >= greedy[i - 1].first_step);
	finish();
}

// What an owner's requests left is found no more, and zero; others' stays.
static void what_is_forgotten_is_zero(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 32, .rows = 64, .sequences = 4, .context = 512, .stages = 1};
	static struct client first, other, again;
	bool idle;
	begin(&bench);
	prompt(&first, 1, 100, 1);
	add(&first, 1, 20);
	prompt(&other, 2, 100, 2);
	add(&other, 2, 20);
	run();
	assert_int_equal(pages_written(&bench), 6);
	generator_forget(generator, 1);
	assert_int_equal(state_now().pages_cached, 3);
	step(&idle);
	assert_true(idle);
	assert_int_equal(pages_written(&bench), 3);
	prompt(&again, 2, 100, 2);
	add(&again, 2, 20);
	step(&idle);
	generator_forget(generator, 0); // while it is at work, on pages that it shares
	run();
	check_greedy(&again);
	assert_int_equal(again.figures.cached_tokens, 96);
	prompt(&again, 1, 100, 1);
	add(&again, 1, 20);
	run();
	assert_int_equal(again.figures.cached_tokens, 0);
	check_greedy(&again);
	generator_forget(generator, 0);
	step(&idle);
	assert_int_equal(pages_written(&bench), 0);
	assert_int_equal(state_now().pages_used + state_now().pages_cached, 0);
	finish();
}

static void embed(bool last)
{
	const struct bench bench = {.pages = 8, .rows = 64, .sequences = 3, .context = 128, .stages = 2, .last = last};
	static struct client client, other;
	double wanted[TOY_EMBEDDING] = {0}, square = 0;
	begin(&bench);
	prompt(&client, 1, 100, 1);
	prompt(&other, 1, 60, 2);
	struct error error = {0};
	struct generator_request request = request_of(&client, 1, 0);
	request.want_hidden = true;
	assert_int_equal(generator_add(generator, &client.job, &request, &error), STATUS_OK);
	add(&other, 1, 30);
	run();
	for (size_t i = last ? 99 : 0; i < 100; i++)
		for (uint32_t j = 0; j < TOY_EMBEDDING; j++)
			wanted[j] += client.tokens[i] % (j + 2) + 1;
	for (uint32_t j = 0; j < TOY_EMBEDDING; j++)
		square += wanted[j] * wanted[j];
	for (uint32_t j = 0; j < TOY_EMBEDDING; j++)
		if (!(fabs((double)client.values[j] - wanted[j] / sqrt(square)) < 1e-6))
			fail_msg("value %u is %g, not %g", j, (double)client.values[j], wanted[j] / sqrt(square));
	assert_int_equal(client.reason, GENERATOR_STOP);
	assert_int_equal(client.count, 100);
	check_greedy(&other);
	finish();
}

static void embeddings(void **state)
{
	(void)state;
	embed(false);
}

static void embeddings_of_the_last_token(void **state)
{
	(void)state;
	embed(true);
}

static void a_seed_goes_on_elsewhere(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 32, .rows = 64, .sequences = 4, .context = 512, .stages = 1};
	static struct client whole, rest, other;
	struct error error = {0};
	begin(&bench);
	prompt(&whole, 1, 30, 1);
	struct generator_request request = request_of(&whole, 1, 60);
	request.sampling.temperature = 1;
	request.sampling.seed = 12345;
	assert_int_equal(generator_add(generator, &whole.job, &request, &error), STATUS_OK);
	prompt(&other, 1, 30, 1);
	request.context = &other;
	request.sampling.seed = 12346;
	assert_int_equal(generator_add(generator, &other.job, &request, &error), STATUS_OK);
	run();
	assert_int_equal(whole.count, 90);
	assert_memory_not_equal(whole.tokens + 30, other.tokens + 30, 60 * sizeof(uint32_t));
	rest = whole;
	rest.count = 57; // as delivered until then
	rest.ends = 0;
	request = request_of(&rest, 1, 60);
	request.sampling.temperature = 1;
	request.sampling.seed = 12345;
	assert_int_equal(generator_add(generator, &rest.job, &request, &error), STATUS_OK);
	run();
	assert_int_equal(rest.count, 90);
	assert_memory_equal(rest.tokens, whole.tokens, 90 * sizeof(uint32_t));
	assert_int_equal(rest.figures.generated_tokens, 60);
	rest.ends = 0; // and one that had all
	request = request_of(&rest, 1, 60);
	assert_int_equal(generator_add(generator, &rest.job, &request, &error), STATUS_OK);
	run();
	assert_int_equal(rest.count, 90);
	assert_int_equal(rest.reason, GENERATOR_LENGTH);
	finish();
}

// Requests that are drawn from candidates, beside greedy ones and some that need all logits, get the tokens that they
// get without.
static void candidates_change_nothing(void **state)
{
	(void)state;
	enum { CLIENTS = 6 };
	struct bench bench = {.pages = 64, .rows = 64, .sequences = CLIENTS, .context = 512, .stages = 1};
	static struct client clients[2][CLIENTS];
	struct error error = {0};
	for (int finds = 0; finds < 2; finds++) {
		bench.finds = finds;
		begin(&bench);
		toy.found = toy.unfound = 0;
		for (uint32_t i = 0; i < CLIENTS; i++) {
			struct client *client = &clients[finds][i];
			prompt(client, i + 1, 20, i);
			struct generator_request request = request_of(client, i + 1, 40);
			request.sampling.temperature = i ? 0.9f : 0;
			request.sampling.top_k = 30;
			request.sampling.top_p = 0.9f;
			request.sampling.seed = 77 + i;
			request.sampling.repetition_penalty = i == 4 ? 1.2f : 1;
			request.sampling.logprobs = i == 5;
			assert_int_equal(generator_add(generator, &client->job, &request, &error), STATUS_OK);
		}
		run();
		assert_true(finds ? toy.found > 20 && toy.unfound > 5 : !toy.found && !toy.unfound);
		finish();
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		assert_int_equal(clients[1][i].count, 60);
		assert_memory_equal(clients[1][i].tokens, clients[0][i].tokens, 60 * sizeof(uint32_t));
	}
}

static void logprobs_and_the_greedy_agree(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 32, .rows = 64, .sequences = 4, .context = 512, .stages = 1};
	static struct client plain, told;
	struct error error = {0};
	begin(&bench);
	prompt(&plain, 1, 30, 1);
	add(&plain, 1, 60);
	prompt(&told, 1, 30, 1);
	struct generator_request request = request_of(&told, 1, 60);
	request.sampling.logprobs = true;
	request.sampling.top_logprobs = 3;
	assert_int_equal(generator_add(generator, &told.job, &request, &error), STATUS_OK);
	run();
	assert_memory_equal(plain.tokens, told.tokens, 90 * sizeof(uint32_t));
	assert_int_equal(told.last.top_count, 3);
	assert_int_equal(told.last.top[0].token, told.last.token);
	assert_true(told.last.top[0].logprob == told.last.logprob && told.last.logprob < 0);
	assert_true(told.last.top[1].logprob < told.last.logprob);
	finish();
}

// ---- the prompt, judged ----

// What the toy itself gives token `at` of these.
static double toy_logprob(const uint32_t *tokens, size_t at)
{
	uint64_t hash = 0;
	double sum = 0, own = 0;
	for (size_t i = 0; i < at; i++)
		hash = toy_hash(hash, tokens[i]);
	for (uint32_t i = 0; i < TOY_VOCABULARY; i++) {
		const double logit = i / VOICES != tokens[at - 1] / VOICES   ? -1000
				     : i == toy_answer(hash, tokens[at - 1]) ? 5
									     : (double)(toy_hash(hash, i) % 1000) / 250;
		sum += exp(logit);
		own = i == tokens[at] ? logit : own;
	}
	return own - log(sum);
}

static struct {
	const struct client *client;
	size_t count; // tokens of the prompt, the first by itself
} judged[6];

static void judge(void *context, const struct token_choice *choice)
{
	struct client *client = context;
	size_t i = 0;
	while (judged[i].client != client)
		i++;
	const size_t at = judged[i].count++;
	assert_int_equal(client->count, client->prompt_count); // before the first token
	assert_true(at < client->prompt_count);
	assert_int_equal(choice->token, client->tokens[at]);
	assert_int_equal(choice->top_count, 2);
	if (fabs((double)choice->logprob - toy_logprob(client->tokens, at)) > 1e-4)
		fail_msg("token %zu is given %g, not %g", at, (double)choice->logprob, toy_logprob(client->tokens, at));
}

static void add_judged(struct client *client, size_t index, uint32_t max_tokens)
{
	struct error error = {0};
	struct generator_request request = request_of(client, 1, max_tokens);
	request.want_prompt = true;
	request.judged = judge;
	request.sampling.logprobs = true;
	request.sampling.top_logprobs = 2;
	judged[index].client = client;
	judged[index].count = 1;
	if (generator_add(generator, &client->job, &request, &error))
		fail_msg("%s", error.message);
}

// Of every length, beside others that generate, with pages for all and with so few that some give way; here and in
// lanes.
static void prompts_are_judged(void **state)
{
	(void)state;
	const struct bench benches[] = {
		{.pages = 64, .rows = 16, .sequences = 2, .context = 256, .stages = 1},
		{.pages = 64, .rows = 64, .sequences = 8, .context = 256, .stages = 2},
		{.pages = 10, .rows = 32, .sequences = 4, .context = 256, .stages = 1},
		{.pages = 64, .rows = 64, .sequences = 8, .context = 256, .stages = 2, .lanes = 3},
		{.pages = 10, .rows = 64, .sequences = 4, .context = 256, .stages = 2, .lanes = 2},
	};
	static const size_t lengths[6] = {1, 2, 31, 33, 97, 140};
	static struct client clients[6], others[2];
	uint32_t preemptions = 0;
	for (size_t b = 0; b < sizeof(benches) / sizeof(benches[0]); b++) {
		begin(&benches[b]);
		if (benches[b].lanes) {
			struct error error = {0};
			assert_int_equal(generator_check(generator, 1, &error), STATUS_OK);
			assert_true(bring(true));
		}
		for (size_t i = 0; i < 2; i++) {
			prompt(&others[i], 2, 40, (uint32_t)i + 9);
			add(&others[i], 2, 100);
		}
		for (size_t i = 0; i < 6; i++) {
			prompt(&clients[i], 1, lengths[i], 1); // each begins as the others do
			add_judged(&clients[i], i, 60);
		}
		run();
		for (size_t i = 0; i < 6; i++) {
			assert_int_equal(judged[i].count, lengths[i]);
			assert_int_equal(clients[i].count, lengths[i] + 60);
			assert_int_equal(clients[i].figures.cached_tokens, 0);
			check_greedy(&clients[i]);
		}
		for (size_t i = 0; i < 2; i++)
			check_greedy(&others[i]);
		preemptions += state_now().preemptions;
		finish();
	}
	assert_true(preemptions > 0);
}

static void a_broken_device_ends_all(void **state)
{
	(void)state;
	enum { CLIENTS = 10 };
	const struct bench bench = {.pages = 16, .rows = 16, .sequences = 4, .context = 256, .stages = 1};
	struct client *clients = calloc(CLIENTS, sizeof(*clients));
	struct error error = {0};
	bool idle = false;
	begin(&bench);
	toy.fail_after = 7;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		prompt(&clients[i], i % PEOPLE, 20, i);
		add(&clients[i], 0, 50);
	}
	enum status status = STATUS_OK;
	while (!status)
		status = generator_step(generator, &idle, &error);
	assert_int_equal(status, STATUS_DEVICE_LOST);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		assert_int_equal(clients[i].ends, 1);
		assert_int_equal(clients[i].reason, GENERATOR_FAILED);
		assert_string_equal(clients[i].error.message, "the toy broke");
	}
	finish();
	free(clients);
}

// What can be gone on from, with states: the last whole page of a prompt, where a prompt parts from one before it, and
// the last whole page of an answer.
static void states_are_kept(void **state)
{
	(void)state;
	const struct bench bench = {.pages = 64, .rows = 48, .sequences = 4, .context = 512, .stages = 2};
	static struct client first, second, third, more;
	if (!recurrent)
		return;
	begin(&bench);
	prompt(&first, 1, 150, 1);
	add(&first, 5, 100);
	run();
	assert_int_equal(first.figures.cached_tokens, 0);
	for (int i = 0; i < 2; i++) { // begin alike for 2 pages and a half, where nothing was left
		struct client *client = i ? &third : &second;
		prompt(client, 1, 150, 2 + (uint32_t)i);
		memcpy(client->tokens, first.tokens, 80 * sizeof(uint32_t));
		add(client, 5, 10);
		run();
		assert_int_equal(client->figures.cached_tokens, i ? 64 : 0);
		check_greedy(client);
	}
	more = first; // the whole conversation, and a word more
	more.prompt_count = ++more.count;
	more.tokens[more.count - 1] = first.tokens[0];
	add(&more, 5, 10);
	run();
	assert_int_equal(first.count, 250);
	assert_int_equal(more.figures.cached_tokens, 224); // not 249: the last token was not computed
	check_greedy(&more);
	generator_forget(generator, 5);
	more.count = more.prompt_count;
	add(&more, 5, 10);
	run();
	assert_int_equal(more.figures.cached_tokens, 0);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone),
		cmocka_unit_test(ends_at_a_stop_and_at_the_context),
		cmocka_unit_test(wrong_requests_are_refused),
		cmocka_unit_test(a_text_longer_than_a_step_is_refused),
		cmocka_unit_test(two_hundred_on_few_pages),
		cmocka_unit_test(some_leave),
		cmocka_unit_test(pages_are_free_at_once),
		cmocka_unit_test(prefixes_are_shared_by_their_owner),
		cmocka_unit_test(running_requests_share),
		cmocka_unit_test(the_kept_make_room),
		cmocka_unit_test(a_long_prompt_holds_nobody_up),
		cmocka_unit_test(a_repetition_is_computed_alike),
		cmocka_unit_test(pieces_are_as_long_as_set),
		cmocka_unit_test(owners_take_turns),
		cmocka_unit_test(what_is_forgotten_is_zero),
		cmocka_unit_test(embeddings),
		cmocka_unit_test(embeddings_of_the_last_token),
		cmocka_unit_test(a_seed_goes_on_elsewhere),
		cmocka_unit_test(candidates_change_nothing),
		cmocka_unit_test(logprobs_and_the_greedy_agree),
		cmocka_unit_test(prompts_are_judged),
		cmocka_unit_test(a_broken_device_ends_all),
		cmocka_unit_test(states_are_kept),
	};
	const int failed = cmocka_run_group_tests_name("of keys and values", tests, NULL, NULL);
	recurrent = true;
	return failed + cmocka_run_group_tests_name("with states", tests, NULL, NULL);
}
