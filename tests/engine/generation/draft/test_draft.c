/* A draft model: how many tokens it is asked for, what it keeps of a text, and that requests get what they would
 * without it, in fewer steps. The models are toys (toy.h); a quarter of the draft's tokens are wrong. The clock is the
 * test's: each step of either model moves it by what such a step is said to take. */
#include "engine/generation/draft/drafter.h"
#include "engine/generation/draft/drafting.h"
#include "tests/engine/generation/requests.h"

// ---- drafting.h ----

static void how_many_pay(void **state)
{
	(void)state;
	static const struct {
		const char *what;
		float right, credit, step, chain, row; // row: what a further row adds to a step of the chain
		uint32_t unread, left, most, least_count, most_count;
	} cases[] = {
		{"a cheap draft that is always right", 1, 1, 0.01f, 1, 0.01f, 0, 64, 15, 15, 15},
		{"no more than there is room for", 1, 1, 0.01f, 1, 0.01f, 0, 64, 3, 3, 3},
		{"no room", 1, 1, 0.01f, 1, 0.01f, 0, 64, 0, 0, 0},
		{"half of them right: a few", 0.5f, 1, 0.05f, 1, 0.05f, 0, 64, 15, 2, 4},
		{"rows that cost steps", 0.9f, 0, 0.01f, 1, 1, 0, 64, 15, 0, 0},
		{"a draft as slow as the model", 0.9f, 0, 1, 1, 0.05f, 0, 64, 15, 0, 0},
		{"the same over a slow network", 0.9f, 1, 0.2f, 3, 0.05f, 0, 64, 15, 5, 12},
		{"never right", 0, 0, 0.01f, 1, 0.01f, 0, 64, 15, 0, 0},
		{"never right, and a try can be paid", 0, 0.2f, 0.01f, 1, 0.01f, 0, 64, 15, 1, 2},
		{"a try that cannot be paid", 0, 0.01f, 0.01f, 1, 0.01f, 0, 64, 15, 0, 0},
		{"a try with all that must be read for it", 0, 0.2f, 0.01f, 1, 0.01f, 100, 64, 15, 0, 0},
		{"it pays, but too much was lost", 1, -1, 0.01f, 1, 0.01f, 0, 64, 15, 0, 0},
		{"too much to read for so short an answer", 1, 1, 0.01f, 1, 0.01f, 4000, 10, 15, 0, 0},
		{"not for a long one", 1, 1, 0.01f, 1, 0.01f, 4000, 1000, 15, 15, 15},
		{"no time of a step is known", 1, 1, 0.01f, 0, 0, 0, 64, 15, 0, 0},
		{"nor of the draft", 1, 1, 0, 1, 0.01f, 0, 64, 15, 0, 0},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct row_prices prices;
		struct draft_times times = {.step = cases[i].step, .read = cases[i].step};
		row_prices_set(&prices, (const double[ROW_TIMES]){0});
		for (uint32_t rows = 1; rows <= PROPOSALS_ROWS; rows++)
			draft_times_chain(&times, rows, (double)(cases[i].chain + cases[i].row * (float)(rows - 1)));
		const struct drafting drafting = {.right = cases[i].right, .credit = cases[i].credit};
		const struct draft_question question = {.times = &times,
							.prices = &prices,
							.rows = 1,
							.most = cases[i].most,
							.unread = cases[i].unread,
							.left = cases[i].left};
		const uint32_t count = drafting_count(&drafting, &question).count;
		if (count < cases[i].least_count || count > cases[i].most_count)
			fail_msg("%s: %u tokens, not %u to %u", cases[i].what, count, cases[i].least_count,
				 cases[i].most_count);
	}
}

static void times_that_were_not_measured(void **state)
{
	(void)state;
	struct row_prices prices;
	struct draft_times times = {0};
	row_prices_set(&prices, (const double[ROW_TIMES]){1, 1.5, 2, 3, 5});
	draft_times_chain(&times, 1, 0.1);
	draft_times_chain(&times, 0, 9);
	draft_times_chain(&times, PROPOSALS_ROWS + 1, 9);
	assert_true(fabsf(draft_times_of(&times, &prices, 1, 4) - 0.2f) < 1e-4f); // as loading has measured
	draft_times_chain(&times, 4, 0.5);
	assert_true(fabsf(draft_times_of(&times, &prices, 1, 4) - 0.5f) < 1e-4f);
	for (int i = 0; i < 100; i++)
		draft_times_chain(&times, 4, 0.3);
	assert_true(fabsf(draft_times_of(&times, &prices, 1, 4) - 0.3f) < 1e-3f);
	assert_int_equal(drafting_left(10, 500), 64);
	assert_int_equal(drafting_left(200, 500), 200);
	assert_int_equal(drafting_left(10, 5), 5);
}

// A request whose text cannot be foreseen spends a fortieth of its steps, and what it had at first.
static void what_may_be_lost(void **state)
{
	(void)state;
	struct row_prices prices;
	struct draft_times times = {.step = 0.3f};
	struct drafting drafting;
	double lost = 0;
	row_prices_set(&prices, (const double[ROW_TIMES]){0});
	for (uint32_t rows = 1; rows <= PROPOSALS_ROWS; rows++)
		draft_times_chain(&times, rows, 0.9 + 0.1 * rows);
	drafting_init(&drafting, DRAFT_RIGHT_AT_FIRST);
	for (int i = 0; i < 1000; i++) {
		const struct draft_question question = {
			.times = &times, .prices = &prices, .rows = 1, .most = 15, .left = 64};
		const struct draft_answer answer = drafting_count(&drafting, &question);
		lost += (double)answer.price;
		drafting_settle(&drafting, answer.price);
		if (answer.count)
			drafting_judge(&drafting.right, false);
	}
	assert_true(lost > 10 && lost < 1000 / 40 + 4);
}

// ---- drafter.h ----

static const struct bench usual = {
	.pages = 200, .rows = 64, .sequences = 1, .outputs = 32, .context = 1024, .stages = 1, .drafts = 2};

static uint32_t proposals[16];

static struct draft_wish wish_for(const struct client *client, uint64_t who, uint64_t owner, uint32_t wanted)
{
	return (struct draft_wish){.owner = owner,
				   .who = who,
				   .tokens = client->tokens,
				   .count = (uint32_t)client->count,
				   .wanted = wanted,
				   .proposed = proposals};
}

// What it proposes for the text, and how many tokens it read for that.
static long ask(struct draft_wish *wish)
{
	struct error error = {0};
	const long before = toy.draft_rows;
	if (drafter_propose(drafter, wish, 1, TOY_VOCABULARY, &error))
		fail_msg("%s", error.message);
	return toy.draft_rows - before;
}

static void a_text_is_read_once(void **state)
{
	(void)state;
	static struct client client;
	uint32_t first[8];
	begin(&usual);
	prompt(&client, 1, 200, 1);
	struct draft_wish wish = wish_for(&client, 1, 1, 8);
	assert_int_equal(drafter_unread(drafter, &wish), 200 - 8);
	assert_int_equal(ask(&wish), 200 + 7);
	assert_int_equal(wish.given, 8);
	memcpy(first, proposals, sizeof(first));
	client.tokens[client.count++] = first[0]; // chosen, and the next is another one: the others count for nothing
	client.tokens[client.count++] = VOICES + (first[1] + 1) % VOICES;
	wish = wish_for(&client, 1, 1, 8);
	assert_int_equal(drafter_unread(drafter, &wish), 0);
	assert_int_equal(ask(&wish), 1 + 7);
	uint32_t rolled[8];
	memcpy(rolled, proposals, sizeof(rolled));
	drafter_forget(drafter, 0); // as if it had read nothing
	wish = wish_for(&client, 1, 1, 8);
	assert_int_equal(ask(&wish), 202 + 7);
	assert_memory_equal(proposals, rolled, sizeof(rolled));
	wish = wish_for(&client, 2, 1, 8); // another request of the owner goes on from it
	assert_int_equal(ask(&wish), 1 + 7);
	assert_memory_equal(proposals, rolled, sizeof(rolled));
	finish();
}

// A place is zeroed before another owner's tokens come into it: `toy.foreign` tells if not.
static void owners_share_nothing(void **state)
{
	(void)state;
	static struct client one, other;
	struct error error = {0};
	begin(&usual);
	prompt(&one, 1, 100, 1);
	prompt(&other, 2, 70, 2);
	for (uint64_t i = 0; i < 4; i++) {
		struct draft_wish wish = wish_for(&one, 10 + i, 0, 4); // shares with nobody
		assert_int_equal(ask(&wish), 100 + 3);
		wish = wish_for(&other, 20 + i, 2, 4);
		ask(&wish);
		wish = wish_for(&one, 30 + i, 3 + i, 4); // the same text, another's
		assert_int_equal(ask(&wish), 100 + 3);
	}
	drafter_forget(drafter, 0);
	assert_int_equal(drafter_tidy(drafter, &error), STATUS_OK);
	for (uint32_t page = 0; page < usual.drafts * usual.context / STAGE_PAGE_TOKENS; page++)
		for (uint32_t i = 0; i < STAGE_PAGE_TOKENS; i++)
			assert_int_equal(toy.draft->pages[page][i], 0);
	finish();
}

static void what_does_not_fit(void **state)
{
	(void)state;
	static struct client client;
	begin(&usual);
	prompt(&client, 1, 1000, 1);
	struct draft_wish wish = wish_for(&client, 1, 1, 24);
	assert_int_equal(drafter_unread(drafter, &wish), 1000 - 8);
	wish.wanted = 25;
	assert_int_equal(drafter_unread(drafter, &wish), UINT32_MAX);
	wish.wanted = 1;
	client.tokens[500] = TOY_VOCABULARY; // of the model's padding
	assert_int_equal(drafter_unread(drafter, &wish), UINT32_MAX);
	finish();
}

// ---- the generator ----

static int64_t now_ns;
static bool slow_draft; // it takes as long as the model

int64_t __wrap_clock_steady_ns(void);
int64_t __wrap_clock_steady_ns(void)
{
	return now_ns;
}

static void stepped(bool drafts, uint32_t rows)
{
	now_ns += drafts && !slow_draft ? 50000 : 1000000 + 20000 * (int64_t)rows;
}

static struct sampling sampling;
static uint32_t places = 4;

static void add_with(struct client *client, uint64_t owner, uint32_t max_tokens)
{
	struct error error = {0};
	struct generator_request request = request_of(client, owner, max_tokens);
	request.speculate = true;
	request.sampling = sampling;
	if (generator_add(generator, &client->job, &request, &error))
		fail_msg("%s", error.message);
}

enum { CLIENTS = 6 };

// Requests of several owners, all at once; returns the steps.
static uint64_t serve(struct client *clients, uint32_t count, struct bench bench, uint32_t drafts)
{
	bench.drafts = drafts;
	begin(&bench);
	toy.stepped = stepped;
	for (uint32_t i = 0; i < count; i++) {
		prompt(&clients[i], 1 + i % 2, 5 + 40 * i, 1 + i);
		add_with(&clients[i], i % 3 ? 1 + i % 2 : 0, 200);
	}
	run();
	const uint64_t steps = state_now().steps;
	uint64_t drafted = 0, accepted = 0;
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(clients[i].ends, 1);
		drafted += clients[i].figures.drafted_tokens;
		accepted += clients[i].figures.draft_accepted_tokens;
		assert_true(clients[i].figures.drafted_tokens <= clients[i].figures.proposed_tokens);
		assert_true(clients[i].figures.draft_accepted_tokens <= clients[i].figures.accepted_tokens);
	}
	assert_int_equal(drafted, state_now().drafted_tokens);
	assert_int_equal(accepted, state_now().draft_accepted_tokens);
	assert_true(accepted <= drafted);
	finish();
	return steps;
}

// The same tokens as without; `share`: of the steps at most.
static void check_same(uint32_t count, const struct bench *bench, double share)
{
	static struct client with[CLIENTS], without[CLIENTS];
	const uint64_t before = serve(without, count, *bench, 0), steps = serve(with, count, *bench, places);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(with[i].count, without[i].count);
		assert_memory_equal(with[i].tokens, without[i].tokens, with[i].count * sizeof(uint32_t));
		assert_int_equal(with[i].reason, without[i].reason);
		assert_int_equal(without[i].figures.drafted_tokens, 0);
	}
	if ((double)steps > share * (double)before)
		fail_msg("%llu steps, %llu without", (unsigned long long)steps, (unsigned long long)before);
}

static const struct sampling greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};

static void the_same_in_fewer_steps(void **state)
{
	(void)state;
	struct bench bench = usual;
	for (bench.lanes = 0; bench.lanes <= 2; bench.lanes++) {
		bench.stages = bench.lanes ? 2 : 1;
		sampling = greedy;
		check_same(1, &bench, 0.5);
		sampling.logprobs = true;
		check_same(1, &bench, 0.5);
		for (sampling.seed = 1; sampling.seed < 4; sampling.seed++) {
			sampling.temperature = 0.3f;
			check_same(1, &bench, 0.6);
			sampling.temperature = 1;
			check_same(1, &bench, 1);
		}
	}
}

static void several_at_once(void **state)
{
	(void)state;
	struct bench bench = usual;
	sampling = greedy;
	bench.sequences = CLIENTS;
	check_same(3, &bench, 0.85);
	check_same(CLIENTS, &bench, 1); // more than it has places
	places = 2;
	check_same(2, &bench, 0.85);
	check_same(3, &bench, 1);
	places = 4;
	bench.pages = 30; // some give way
	check_same(CLIENTS, &bench, 1);
	bench.pages = 200;
	bench.outputs = CLIENTS; // there is room for nobody's
	check_same(CLIENTS, &bench, 1);
}

// A draft that takes as long as the model, and is right for three of four: it loses, so it is left alone.
static void it_stops_where_it_does_not_pay(void **state)
{
	(void)state;
	static struct client client;
	sampling = greedy;
	slow_draft = true;
	now_ns = 0;
	serve(&client, 1, usual, 0);
	const int64_t without_ns = now_ns;
	now_ns = 0;
	serve(&client, 1, usual, 2);
	slow_draft = false;
	assert_true(client.figures.drafted_tokens > 0); // it was tried
	if ((double)without_ns < 0.95 * (double)now_ns)
		fail_msg("%lld ns, %lld without", (long long)now_ns, (long long)without_ns);
}

// With a draft model, too, tokens are drawn with their probabilities. Classes: the likeliest token of its place, the
// second, and so on.
static void draws_have_their_probabilities(void **state)
{
	(void)state;
	static struct client client;
	double wanted[VOICES] = {0}, square = 0;
	unsigned drawn[VOICES] = {0}, classes = 0;
	uint64_t drafted = 0;
	sampling = greedy;
	sampling.temperature = 1;
	for (sampling.seed = 1; sampling.seed <= 100; sampling.seed++) {
		serve(&client, 1, usual, 2);
		drafted += client.figures.drafted_tokens;
		for (size_t at = client.prompt_count; at < client.count; at++) {
			uint64_t hash = 0;
			double weights[VOICES], sum = 0;
			for (size_t i = 0; i < at; i++)
				hash = toy_hash(hash, client.tokens[i]);
			float logits[TOY_VOCABULARY];
			toy_logits(logits, hash, client.tokens[at - 1]);
			for (uint32_t i = 0; i < VOICES; i++)
				sum += weights[i] = exp((double)logits[VOICES + i]);
			const double chosen = weights[client.tokens[at] - VOICES];
			uint32_t rank = 0, ranks[VOICES] = {0};
			for (uint32_t i = 0; i < VOICES; i++) {
				rank += weights[i] > chosen;
				for (uint32_t j = 0; j < VOICES; j++)
					ranks[i] += weights[j] > weights[i];
				wanted[ranks[i]] += weights[i] / sum;
			}
			drawn[rank]++;
		}
	}
	for (uint32_t i = 0; i < VOICES; i++)
		if (wanted[i] >= 5) {
			square += (drawn[i] - wanted[i]) * (drawn[i] - wanted[i]) / wanted[i];
			classes++;
		}
	print_message("%u classes, %llu tokens drafted, chi square %.1f\n", classes, (unsigned long long)drafted,
		      square);
	assert_true(drafted > 1000);
	assert_true(square < classes + 5 * sqrt(2.0 * classes) + 5); // the seeds are fixed
}

// Requests that continue after a loss, with what they had: the draft reads it anew.
static void goes_on_elsewhere(void **state)
{
	(void)state;
	static struct client whole, rest;
	sampling = greedy;
	serve(&whole, 1, usual, 0);
	begin(&usual);
	toy.stepped = stepped;
	prompt(&rest, 1, 5, 1);
	for (; rest.count < 100; rest.count++)
		rest.tokens[rest.count] = whole.tokens[rest.count];
	add_with(&rest, 1, 200);
	run();
	assert_int_equal(rest.count, whole.count);
	assert_memory_equal(rest.tokens, whole.tokens, whole.count * sizeof(uint32_t));
	assert_true(rest.figures.draft_accepted_tokens > 20);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(how_many_pay),
		cmocka_unit_test(times_that_were_not_measured),
		cmocka_unit_test(what_may_be_lost),
		cmocka_unit_test(a_text_is_read_once),
		cmocka_unit_test(owners_share_nothing),
		cmocka_unit_test(what_does_not_fit),
		cmocka_unit_test(the_same_in_fewer_steps),
		cmocka_unit_test(several_at_once),
		cmocka_unit_test(it_stops_where_it_does_not_pay),
		cmocka_unit_test(draws_have_their_probabilities),
		cmocka_unit_test(goes_on_elsewhere),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
