/* The hops between the parts of a model instance: what passes, who is held back, what becomes of it when an end goes,
 * and the fence. Each on this machine, by the server's own socket, and by a server on another machine. */
#include "tests/engine/node/links/hops_bench.h"

// ---- what every way does ----

static bool told_of_an_end(void)
{
	return all.ended > 0;
}

static bool told_of_two_ends(void)
{
	return all.ended > 1;
}

static void check_passing(const char *via)
{
	static const size_t sizes[] = {0, 1, 1000, 20000, 65535, 65536, 300000, MIB, 5 * MIB + 1, LARGEST, 0, 7};
	const unsigned count = sizeof(sizes) / sizeof(sizes[0]);
	connect_both(0, 1, "hop_1", via);
	connect_both(1, 0, "hop_2", via);
	for (unsigned i = 0; i < count; i++) {
		say(0, i, sizes[i]);
		say(1, i, sizes[i]);
	}
	wait_for(0, count);
	wait_for(1, count);
	assert_int_equal(all.ended, 0);
}

static void check_holding(const char *via)
{
	enum { COUNT = 56 };
	connect_both(0, 1, "hop_1", via);
	net_stream_pause(all.workers[1].in);
	for (unsigned i = 0; i < COUNT; i++)
		say(0, i, MIB);
	settle();
	size_t waits = net_stream_queued(all.workers[0].out);
	print_message("via %s: of %d MiB %.1f wait at the worker\n", via, COUNT, (double)waits / MIB);
	assert_true(waits > (COUNT - 24) * (size_t)MIB);
	net_stream_resume(all.workers[1].in);
	wait_for(1, COUNT);
}

static void check_fence(const char *via)
{
	enum { COUNT = 24 };
	connect_both(0, 1, "hop_1", via);
	net_stream_pause(all.workers[1].in);
	for (unsigned i = 0; i < COUNT; i++)
		say(0, i, MIB);
	settle();
	hops_fence(all.hops, true);
	hops_fence(all.hops, true); // twice is once
	net_stream_resume(all.workers[1].in);
	settle(); // what sockets had taken before arrives
	unsigned before = all.workers[1].messages;
	settle();
	print_message("via %s: behind the fence %u of %d, then nothing\n", via, before, COUNT);
	assert_int_equal(all.workers[1].messages, before);
	assert_true(before < COUNT);
	hops_fence(all.hops, false);
	wait_for(1, COUNT);
	assert_int_equal(all.ended, 0);
}

// What a worker sends while its hop is broken waits, and comes by the next.
static void check_break(const char *via)
{
	connect_both(0, 1, "hop_1", via);
	say(0, 0, 1000);
	wait_for(1, 1);
	hops_ring_destroy(&all.workers[1].ring);
	assert_true(run(told_of_an_end, 5000));
	assert_string_equal(all.ended_worker, "wrk_0");
	assert_string_equal(all.ended_end, "out");
	assert_string_equal(all.ended_hop, "hop_1");
	print_message("via %s: %s\n", via, all.ended_why);
	for (unsigned i = 0; i < 8; i++)
		say(0, i, MIB);
	settle();
	assert_non_null(all.workers[0].out);
	connect_both(0, 2, "hop_2", via);
	wait_for(2, 8);
	settle();
	assert_int_equal(all.ended, 1);
}

static void check_replacing(const char *via)
{
	connect_both(0, 1, "hop_1", via);
	say(0, 0, 1000);
	wait_for(1, 1);
	int one = connect_end(0, "out", "hop_2", via);
	assert_true(run(told_of_an_end, 5000)); // the other end of the old one, and not this one
	assert_string_equal(all.ended_worker, "wrk_1");
	assert_string_equal(all.ended_end, "in");
	assert_string_equal(all.ended_hop, "hop_1");
	say(0, 0, 2000);
	int other = connect_end(2, "in", "hop_2", via);
	assert_true(run(all_answered, 15000));
	assert_false(all.answers[one].failed || all.answers[other].failed);
	wait_for(2, 1);
	assert_int_equal(all.ended, 1);
}

static void check_waiting(const char *via)
{
	int one = connect_end(0, "out", "hop_1", via);
	settle();
	assert_false(all.answers[one].come);
	int two = connect_end(0, "out", "hop_2", via); // before the first came to be
	settle();
	assert_true(all.answers[one].come && all.answers[one].failed);
	assert_int_equal(all.answers[one].status, STATUS_CONFLICT);
	assert_false(all.answers[two].come);
	if (!strcmp(via, "local")) { // once is enough: it takes 10 s
		assert_true(run(all_answered, 15000));
		assert_true(all.answers[two].failed);
		assert_int_equal(all.answers[two].status, STATUS_TIMEOUT);
	}
	assert_int_equal(all.ended, 0);
	connect_both(0, 1, "hop_3", via);
	say(0, 0, 1000);
	wait_for(1, 1);
}

static void check_a_worker_that_goes(const char *via)
{
	int waits = connect_end(1, "out", "hop_2", via);
	connect_end(0, "in", "hop_9", via);
	connect_end(0, "out", "hop_1", via);
	connect_end(1, "in", "hop_1", via);
	settle();
	net_stream_destroy(&all.workers[0].out); // it closes its end, and lives: the other one is told of
	assert_true(run(told_of_an_end, 5000));
	assert_string_equal(all.ended_worker, "wrk_1");
	hops_ring_destroy(&all.workers[1].ring);
	hops_ring_destroy(&all.workers[0].ring);
	assert_true(run(all_answered, 5000));
	assert_true(all.answers[waits].failed);
	int none = connect_end(1, "out", "hop_3", via);
	assert_true(run(all_answered, 5000));
	assert_int_equal(all.answers[none].status, STATUS_NOT_FOUND);
	assert_int_equal(all.ended, 1);
}

static void check_an_in_end_that_speaks(const char *via)
{
	connect_both(0, 1, "hop_1", via);
	for (unsigned i = 0; i < 4; i++)
		net_stream_send(all.workers[1].in, "{}", 2, NULL, NULL, 0);
	say(0, 0, 1000);
	wait_for(1, 1);
	settle();
	assert_int_equal(all.workers[0].messages, 0);
	assert_int_equal(all.ended, 0);
}

static double time_rounds(unsigned count, size_t bytes)
{
	all.rounds = count;
	all.round_bytes = bytes;
	int64_t began_ns = clock_steady_ns();
	say(0, all.workers[0].messages, bytes);
	run(never, 30000); // the last round ends it
	assert_int_equal(all.rounds, 0);
	return (double)(clock_steady_ns() - began_ns) / 1000.0 / count;
}

static void check_time(const char *via)
{
	connect_both(0, 1, "hop_1", via);
	connect_both(1, 0, "hop_2", via);
	all.workers[1].echoes = true;
	double small = time_rounds(500, 200), large = time_rounds(200, 128 * 1024);
	print_message("via %s: a hop of 200 B %.0f us, of 128 KiB %.0f us, all on one thread\n", via, small / 2,
		      large / 2);
	assert_false(all.workers[0].bad || all.workers[1].bad);
}

#define WAYS(name) \
	static void name##_local(void **state) \
	{ \
		(void)state; \
		check_##name("local"); \
	} \
	static void name##_server(void **state) \
	{ \
		(void)state; \
		check_##name("server"); \
	}
WAYS(passing)
WAYS(holding)
WAYS(fence)
WAYS(break)
WAYS(replacing)
WAYS(waiting)
WAYS(a_worker_that_goes)
WAYS(an_in_end_that_speaks)
WAYS(time)

// ---- the rest ----

static void a_server_that_says_something_else_is_not_taken(void **state)
{
	(void)state;
	all.mute = true;
	int call = connect_end(0, "in", "hop_1", "server");
	settle();
	assert_int_equal(all.line_count, 1);
	assert_false(all.answers[call].come);
	line_send(&all.lines[0], &(struct net_parts){.head = (const uint8_t *)"{\"n\":0}", .head_bytes = 7});
	assert_true(run(all_answered, 5000));
	assert_int_equal(all.answers[call].status, STATUS_INVALID_REQUEST);
	assert_int_equal(all.workers[0].messages, 0);
}

static void a_server_that_sends_to_an_out_end_is_cut_off(void **state)
{
	(void)state;
	connect_both(0, 1, "hop_1", "server");
	struct line *out = &all.lines[strcmp(all.lines[0].end, "out") ? 1 : 0];
	line_send(out, &(struct net_parts){.head = (const uint8_t *)"{\"n\":0}", .head_bytes = 7});
	assert_true(run(told_of_two_ends, 5000));
	assert_int_equal(all.workers[0].messages, 0);
}

static void without_a_server_it_fails(void **state)
{
	(void)state;
	net_stream_listener_destroy(&all.streams);
	net_listener_destroy(&all.listener);
	int call = connect_end(0, "in", "hop_1", "server"), link = connect_end(0, "in", "hop_1", "link");
	assert_true(run(all_answered, 15000));
	assert_int_equal(all.answers[call].status, STATUS_UNAVAILABLE);
	assert_true(all.answers[link].failed); // it names no node, and there are no links
}

static void a_server_that_goes_ends_hops(void **state)
{
	(void)state;
	connect_both(0, 1, "hop_1", "server");
	line_close(&all.lines[0]);
	assert_true(run(told_of_two_ends, 5000));
	settle();
	assert_int_equal(all.ended, 2);
	say(0, 0, 1000);
	connect_both(0, 1, "hop_2", "server");
	wait_for(1, 1);
}

static void keys_must_be_the_same(void **state)
{
	char text[400];
	(void)state;
	int one = connect_end(0, "out", "hop_1", "local");
	int length = snprintf(text, sizeof(text),
			      "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"hop.connect\",\"params\":{\"worker_id\":"
			      "\"wrk_1\",\"end\":\"in\",\"hop_id\":\"hop_1\",\"key\":\"another\",\"via\":\"local\"}}",
			      ++all.last_call);
	net_conn_send_text(all.control, text, (size_t)length);
	settle();
	assert_false(all.answers[one].come || all.answers[all.last_call].come);
}

static void a_ring_of_one_worker(void **state)
{
	(void)state;
	connect_both(0, 0, "hop_1", "local");
	for (unsigned i = 0; i < 5; i++)
		say(0, i, 100000);
	wait_for(0, 5);
}

int main(void)
{
#define NEAR(name) cmocka_unit_test_setup_teardown(name, begin_near, end_test)
#define FAR(name) \
	{ \
		"far_" #name, name, begin_far, end_test, NULL \
	}
#define ALL(name) NEAR(name##_local), NEAR(name##_server), FAR(name##_server)
	const struct CMUnitTest tests[] = {
		ALL(passing),
		ALL(holding),
		ALL(fence),
		ALL(break),
		ALL(replacing),
		ALL(waiting),
		ALL(a_worker_that_goes),
		ALL(an_in_end_that_speaks),
		ALL(time),
		NEAR(a_server_that_says_something_else_is_not_taken),
		FAR(a_server_that_says_something_else_is_not_taken),
		NEAR(a_server_that_sends_to_an_out_end_is_cut_off),
		FAR(a_server_that_sends_to_an_out_end_is_cut_off),
		NEAR(without_a_server_it_fails),
		FAR(without_a_server_it_fails),
		NEAR(a_server_that_goes_ends_hops),
		FAR(a_server_that_goes_ends_hops),
		NEAR(keys_must_be_the_same),
		NEAR(a_ring_of_one_worker),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
