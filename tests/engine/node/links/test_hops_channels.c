/* Channels between two workers, by which memory is copied: what passes beside the rings, and what becomes of a channel
 * when an end goes. */
#include "tests/engine/node/links/hops_bench.h"

static int connect_channel(int number, const char *end, const char *hop_id, const char *key)
{
	char text[512];
	int length = snprintf(text, sizeof(text),
			      "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"copy.connect\",\"params\":{\"worker_id\":"
			      "\"wrk_%d\",\"end\":\"%s\",\"hop_id\":\"%s\",\"key\":\"%s\",\"via\":\"local\"}}",
			      ++all.last_call, number, end, hop_id, key);
	net_conn_send_text(all.control, text, (size_t)length);
	return all.last_call;
}

static void open_channel(void)
{
	int one = connect_channel(0, "out", "cpy_1", "key"), other = connect_channel(1, "in", "cpy_1", "key");
	assert_true(run(all_answered, 15000));
	assert_false(all.answers[one].failed || all.answers[other].failed);
	assert_string_equal(all.handed[0].worker_id, "wrk_1");
	assert_string_equal(all.handed[1].worker_id, "wrk_0");
	assert_string_equal(all.handed[1].channel, "cpy_1");
}

static void say_by_channel(unsigned from, unsigned to, size_t bytes)
{
	char head[32];
	for (unsigned n = from; n < to; n++) {
		int length = snprintf(head, sizeof(head), "{\"n\":%u}", n);
		assert_int_equal(net_stream_send(all.handed[1].stream, head, (size_t)length, NULL,
						 all.pattern + n % 1024, bytes),
				 STATUS_OK);
	}
}

static bool all_by_channel(void)
{
	return all.handed[0].messages >= due;
}

static bool channel_closed(void)
{
	return (all.handed[0].closed || !all.handed[0].stream) && (all.handed[1].closed || !all.handed[1].stream);
}

// 48 MiB, more than any queue on its way holds, beside the worker's ring; then the in end closes it.
static void a_channel_passes_all_and_goes_with_its_in_end(void **state)
{
	(void)state;
	open_channel();
	connect_both(0, 1, "hop_1", "local");
	say_by_channel(0, 192, 256 * 1024);
	say(0, 0, 1000);
	due = 192;
	assert_true(run(all_by_channel, 60000));
	wait_for(1, 1);
	assert_false(all.handed[0].bad);
	assert_int_equal(all.handed[0].bytes, (size_t)192 * 256 * 1024);
	net_stream_destroy(&all.handed[0].stream);
	assert_true(run(channel_closed, 15000));
	assert_int_equal(all.ended, 0);
	say(0, 1, 1000);
	wait_for(1, 2);
	open_channel(); // and another of the same
	assert_non_null(all.handed[0].stream);
}

static void a_channel_goes_with_its_worker(void **state)
{
	(void)state;
	open_channel();
	hops_drop_channels(all.hops, "wrk_2");
	say_by_channel(0, 1, 10);
	due = 1;
	assert_true(run(all_by_channel, 15000));
	hops_drop_channels(all.hops, "wrk_0");
	assert_true(run(channel_closed, 15000));
	assert_int_equal(all.ended, 0);
}

static void a_channel_s_in_end_that_speaks_ends_it(void **state)
{
	(void)state;
	open_channel();
	assert_int_equal(net_stream_send(all.handed[0].stream, "{}", 2, NULL, NULL, 0), STATUS_OK);
	assert_true(run(channel_closed, 15000));
	assert_int_equal(all.handed[1].messages, 0);
}

static void a_channel_s_piece_is_of_bounded_length(void **state)
{
	(void)state;
	open_channel();
	say_by_channel(0, 1, 256 * 1024 + 512);
	assert_true(run(channel_closed, 15000));
	assert_int_equal(all.handed[0].messages, 0);
}

static void a_channel_is_fenced_like_all(void **state)
{
	(void)state;
	open_channel();
	hops_fence(all.hops, true);
	say_by_channel(0, 3, 1000);
	settle();
	assert_int_equal(all.handed[0].messages, 0);
	hops_fence(all.hops, false);
	due = 3;
	assert_true(run(all_by_channel, 15000));
	assert_false(all.handed[0].bad);
}

static void a_worker_that_takes_no_end(void **state)
{
	(void)state;
	all.refuses = true;
	int one = connect_channel(0, "out", "cpy_1", "key"), other = connect_channel(1, "in", "cpy_1", "key");
	assert_true(run(all_answered, 15000));
	assert_int_equal(all.answers[one].status, STATUS_NOT_FOUND);
	assert_int_equal(all.answers[other].status, STATUS_NOT_FOUND);
	all.refuses = false;
	open_channel();
}

static void a_channel_is_not_met_by_another_key(void **state)
{
	(void)state;
	int one = connect_channel(0, "out", "cpy_1", "key"), other = connect_channel(1, "in", "cpy_1", "another");
	settle();
	assert_false(all.answers[one].come || all.answers[other].come);
	assert_null(all.handed[0].stream);
}

int main(void)
{
#define CHANNEL(name) cmocka_unit_test_setup_teardown(name, begin_near, end_test)
	const struct CMUnitTest tests[] = {
		CHANNEL(a_channel_passes_all_and_goes_with_its_in_end),
		CHANNEL(a_channel_goes_with_its_worker),
		CHANNEL(a_channel_s_in_end_that_speaks_ends_it),
		CHANNEL(a_channel_s_piece_is_of_bounded_length),
		CHANNEL(a_channel_is_fenced_like_all),
		CHANNEL(a_worker_that_takes_no_end),
		CHANNEL(a_channel_is_not_met_by_another_key),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
