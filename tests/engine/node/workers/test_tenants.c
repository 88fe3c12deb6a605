/* Workers of sessions, as the real node starts, watches and ends them: what the server is told of each, and that
 * nothing of them stays behind. The other end of their streams is a socket here; what goes over it is the worker's. */
#include "tests/engine/node/workers/asking.h"

static void a_worker_is_opened_used_and_closed(void **state)
{
	(void)state;
	start_settled();
	struct answer *opened = open_worker("w1");
	print_message("tenant.open took %.1f ms\n", json_get_number(opened->result, "started_ms", -1));
	assert_int_equal(count_workers(), 1);
	assert_int_equal(stream_count, 1);
	assert_string_equal(streams[0].worker_id, "w1");
	assert_string_equal(streams[0].key, "secret");

	opened = ask_well("tenant.device", "w1", device_parameters("cpu", 0));
	print_message("tenant.device took %.1f ms\n", json_get_number(opened->result, "opened_ms", -1));
	assert_true(json_get_number(json_get(opened->result, "limits"), "memory_bytes", 0) > 0);
	ask_ill("tenant.device", "w1", device_parameters("vulkan", 1), STATUS_NOT_FOUND);
	ask_ill("tenant.device", "w2", device_parameters("cpu", 0), STATUS_NOT_FOUND);
	ask_ill("tenant.open", "w1", ",\"key\":\"secret\",\"backend\":\"cpu\"", STATUS_CONFLICT);

	assert_false(stream_ended("w1"));
	struct answer *closed = ask_well("tenant.close", "w1", "");
	print_message("tenant.close took %.1f ms\n", json_get_number(closed->result, "ended_ms", -1));
	assert_int_equal(count_workers(), 0);
	assert_true(stream_ended("w1"));
	closed = ask_well("tenant.close", "w1", "");
	assert_true(json_get_number(closed->result, "ended_ms", -1) == 0);
	assert_int_equal(ends, 0);
	stop_node();
}

// The node runs from a copy of the binary that, from a moment on, may not be executed. Some of the processes end before
// they are sent their first call and some after: that is one error, which says why.
static void a_worker_that_cannot_be_started_fails_its_open(void **state)
{
	char command[256], binary[96];
	(void)state;
	snprintf(binary, sizeof(binary), "%s/exogpu", bench.folder);
	snprintf(command, sizeof(command), "cp %s %s", EXOGPU_BINARY, binary);
	assert_int_equal(system(command), 0);
	start_node_of(binary, NULL, "cpu");
	wait_for(cpu_settled);
	wait_for(no_worker);
	int descriptors = count_descriptors();
	assert_int_equal(chmod(binary, 0600), 0);
	for (int i = 0; i < 50; i++) {
		ask_ill("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\"", STATUS_UNAVAILABLE);
		assert_non_null(strstr(answers[awaited].error.message, "the worker's program cannot be run"));
	}
	assert_int_equal(chmod(binary, 0700), 0);
	wait_for_descriptors(descriptors);
	open_worker("w1");
	stop_node();
}

static void a_device_is_opened_through_the_back_end_that_sees_it(void **state)
{
	(void)state;
	start_settled();
	ask_well("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"vulkan\",\"memory_limit_bytes\":1048576");
	ask_ill("tenant.device", "w1", device_parameters("cpu", 0), STATUS_CONFLICT);
	stop_node();
	assert_true(stream_ended("w1"));
}

static void a_gpu_is_opened_in_a_worker_of_its_back_end(void **state)
{
	(void)state;
	if (!install_driver()) {
		print_message("skipped: no llvmpipe here (apt-get install mesa-vulkan-drivers)\n");
		skip();
	}
	start_node(NULL, "cpu,vulkan");
	wait_for(vulkan_passed);
	for (int round = 0; round < 3; round++) {
		struct answer *answer = ask_well("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"vulkan\"");
		double started = json_get_number(answer->result, "started_ms", -1);
		answer = ask_well("tenant.device", "w1", device_parameters("vulkan", 0));
		assert_true(json_get_number(json_get(answer->result, "limits"), "buffer_bytes", 0) > 0);
		double opened = json_get_number(answer->result, "opened_ms", -1);
		ask_ill("tenant.device", "w1", device_parameters("cpu", 1), STATUS_CONFLICT);
		answer = ask_well("tenant.close", "w1", "");
		print_message("vulkan: tenant.open took %.1f ms, tenant.device %.1f ms, tenant.close %.1f ms\n",
			      started, opened, json_get_number(answer->result, "ended_ms", -1));
	}
	assert_int_equal(ends, 0);
	stop_node();
	unlink(bench.manifest);
}

static void a_killed_worker_is_told_and_others_live(void **state)
{
	(void)state;
	start_settled();
	open_worker("w1");
	open_worker("w2");
	kill(newest_worker(), SIGKILL);
	wait_for(told_of_an_end);
	assert_string_equal(ended_worker, "w2");
	if (!strstr(ended_message, "signal 9"))
		fail_msg("the server was told: %s", ended_message);
	ask_well("tenant.device", "w1", device_parameters("cpu", 7));
	ask_ill("tenant.device", "w2", device_parameters("cpu", 0), STATUS_NOT_FOUND);
	ask_well("tenant.close", "w2", "");
	ask_well("tenant.close", "w1", "");
	assert_int_equal(ends, 1);
	stop_node();
}

static void a_worker_that_hangs_is_killed_and_told(void **state)
{
	(void)state;
	start_settled();
	open_worker("w1");
	pid_t worker = newest_worker();
	kill(worker, SIGSTOP);
	wait_for(told_of_an_end);
	assert_string_equal(ended_worker, "w1");
	if (!strstr(ended_message, "did not answer worker.ping"))
		fail_msg("the server was told: %s", ended_message);
	assert_int_equal(kill(worker, 0), -1);
	stop_node();
}

// Turn the loop for so long, unless a worker ends.
static void look_on_for(int64_t ms)
{
	bench.enough = told_of_an_end;
	net_timer_start(bench.loop, &bench.patience, ms, out_of_patience, bench.loop);
	net_loop_run(bench.loop);
	net_timer_stop(bench.loop, &bench.patience);
}

// The node and the worker begin again together, as on a machine that was suspended, and the worker a little later.
static void a_machine_that_stands_still_ends_no_worker(void **state)
{
	(void)state;
	start_settled();
	open_worker("w1");
	pid_t worker = newest_worker();
	for (int times = 0; times < 2; times++) {
		kill(worker, SIGSTOP);
		kill(bench.node, SIGSTOP);
		look_on_for(4000);
		kill(bench.node, SIGCONT);
		look_on_for(300);
		kill(worker, SIGCONT);
		look_on_for(2500);
		assert_int_equal(ends, 0);
	}
	assert_int_equal(count_workers(), 1);
	ask_well("tenant.device", "w1", device_parameters("cpu", 0));
	stop_node();
}

static void a_worker_that_answers_lives_on(void **state)
{
	(void)state;
	start_settled();
	open_worker("w1");
	look_on_for(8000); // longer than an unanswered ping may take
	assert_int_equal(ends, 0);
	assert_int_equal(count_workers(), 1);
	ask_well("tenant.device", "w1", device_parameters("cpu", 0));
	stop_node();
}

static bool connected_again(const struct bench *all)
{
	return all->connections >= 2 && all->reports > 0;
}

static void a_server_that_is_gone_leaves_no_worker(void **state)
{
	(void)state;
	bench.connections = 0;
	start_settled();
	for (int i = 0; i < 3; i++) {
		char id[16];
		snprintf(id, sizeof(id), "w%d", i);
		open_worker(id);
	}
	forget();
	net_conn_close(bench.conn, 1011, "a fault");
	wait_for(connected_again);
	wait_for(cpu_settled);
	wait_for(no_worker);
	assert_true(stream_ended("w0") && stream_ended("w1") && stream_ended("w2"));
	open_worker("w0"); // the id is free again
	assert_int_equal(ends, 0);
	stop_node();
}

static void a_killed_node_takes_its_workers_with_it(void **state)
{
	(void)state;
	start_settled();
	open_worker("w1");
	kill(bench.node, SIGKILL);
	int64_t began_ms = clock_steady_ms();
	while (!stream_ended("w1") && clock_steady_ms() - began_ms < PATIENCE_MS)
		usleep(2000);
	assert_true(stream_ended("w1"));
}

static void an_open_without_a_server_for_its_stream_fails(void **state)
{
	(void)state;
	start_settled();
	net_watch_destroy(&stream_watch);
	ask_ill("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\"", STATUS_UNAVAILABLE);
	ask_ill("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"abacus\"", STATUS_INVALID_PARAMS);
	assert_int_equal(count_workers(), 0);
	stop_node();
}

static void a_worker_that_dies_before_it_is_open_fails_the_call(void **state)
{
	(void)state;
	if (!has_faults) {
		print_message("skipped: a release build injects no faults\n");
		skip();
	}
	start_node("open-crash:cpu", "cpu");
	wait_for(cpu_settled);
	struct answer *answer = ask("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\"");
	assert_true(answer->failed);
	if (!strstr(answer->error.message, "signal 11"))
		fail_msg("the server was told: %s", answer->error.message);
	assert_int_equal(ends, 0);
	stop_node();
}

static void a_worker_closed_while_it_opens_answers_both(void **state)
{
	(void)state;
	start_settled();
	awaited = send_call("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\"");
	int opening = awaited, closing = send_call("tenant.close", "w1", "");
	int again = send_call("tenant.close", "w1", "");
	wait_for(all_answered);
	assert_true(answers[opening].failed);
	assert_int_equal(answers[opening].error.status, STATUS_CONFLICT);
	assert_false(answers[closing].failed);
	assert_false(answers[again].failed);
	assert_int_equal(count_workers(), 0);
	assert_int_equal(ends, 0);
	stop_node();
}

static void a_hundred_workers_leave_nothing(void **state)
{
	char id[16];
	(void)state;
	start_settled();
	open_worker("first");
	ask_well("tenant.close", "first", "");
	int descriptors = count_descriptors();
	for (int i = 0; i < 80; i++) {
		snprintf(id, sizeof(id), "w%d", i);
		open_worker(id);
		ask_well("tenant.close", id, "");
	}
	awaited = last_call + 1;
	for (int i = 0; i < 20; i++) { // side by side
		snprintf(id, sizeof(id), "s%d", i);
		send_call("tenant.open", id, ",\"key\":\"k\",\"backend\":\"cpu\"");
	}
	wait_for(all_answered);
	for (int i = 0; i < 20; i++) {
		snprintf(id, sizeof(id), "s%d", i);
		send_call("tenant.close", id, "");
	}
	wait_for(all_answered);
	for (int i = awaited; i <= last_call; i++)
		assert_false(answers[i].failed);
	assert_int_equal(count_workers(), 0);
	assert_in_range(count_descriptors(), 1, descriptors); // it may have been writing to its disk before
	assert_int_equal(ends, 0);
	stop_node();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TENANT_TEST(a_worker_is_opened_used_and_closed),
		TENANT_TEST(a_worker_that_cannot_be_started_fails_its_open),
		TENANT_TEST(a_device_is_opened_through_the_back_end_that_sees_it),
		TENANT_TEST(a_gpu_is_opened_in_a_worker_of_its_back_end),
		TENANT_TEST(a_killed_worker_is_told_and_others_live),
		TENANT_TEST(a_worker_that_hangs_is_killed_and_told),
		TENANT_TEST(a_machine_that_stands_still_ends_no_worker),
		TENANT_TEST(a_worker_that_answers_lives_on),
		TENANT_TEST(a_server_that_is_gone_leaves_no_worker),
		TENANT_TEST(a_killed_node_takes_its_workers_with_it),
		TENANT_TEST(an_open_without_a_server_for_its_stream_fails),
		TENANT_TEST(a_worker_that_dies_before_it_is_open_fails_the_call),
		TENANT_TEST(a_worker_closed_while_it_opens_answers_both),
		TENANT_TEST(a_hundred_workers_leave_nothing),
	};
	return cmocka_run_group_tests_name("node/tenants", tests, make_bench, remove_bench);
}
