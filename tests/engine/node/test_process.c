/* The real node process against a server's end of its socket: what it says first, faults of workers, drivers that come
 * and go, a server that goes away and comes back, and a clean stop without anything left behind. */
#include "tests/engine/node/bench.h"

#include <limits.h>

static bool cpu_measured(const struct bench *all)
{
	return !strcmp(verification_of(all, "cpu"), "passed") &&
	       json_get_number(device_of(all, "cpu"), "memory_bandwidth_bytes_per_s", 0) > 0;
}

static bool cpu_failed(const struct bench *all)
{
	return !strcmp(verification_of(all, "cpu"), "failed");
}

static bool vulkan_gone(const struct bench *all)
{
	return device_of(all, "vulkan") && !json_get_bool(device_of(all, "vulkan"), "present", true);
}

static bool some_report(const struct bench *all)
{
	return all->reports > 0;
}

static bool some_telemetry(const struct bench *all)
{
	return all->telemetry > 0;
}

static void registers_reports_verifies_and_remembers(void **state)
{
	(void)state;
	start_node(NULL, "cpu");
	wait_for(cpu_measured);
	assert_string_equal(json_get_string(bench.record, "version", ""), EXOGPU_VERSION);
	wait_for(some_telemetry);
	char id[65];
	snprintf(id, sizeof(id), "%s", json_get_string(device_of(&bench, "cpu"), "device_id", ""));
	double rate = json_get_number(device_of(&bench, "cpu"), "memory_bandwidth_bytes_per_s", 0);
	stop_node();
	forget();

	start_node("verify-hang:cpu", "cpu"); // so that the first report is seen as it is
	wait_for(some_report);
	assert_string_equal(json_get_string(device_of(&bench, "cpu"), "device_id", ""), id);
	assert_true(json_get_bool(device_of(&bench, "cpu"), "present", false));
	assert_true(json_get_number(device_of(&bench, "cpu"), "memory_bandwidth_bytes_per_s", 0) == rate);
	stop_node();
}

static void stopping_leaves_no_worker(void **state)
{
	(void)state;
	start_node("verify-hang:cpu", "cpu");
	wait_for(some_report);
	for (int64_t began_ms = clock_steady_ms(); has_faults && !count_workers();)
		assert_true(clock_steady_ms() - began_ms < PATIENCE_MS);
	stop_node();
	assert_int_equal(count_workers(), 0);
}

static void crashed_worker_fails_one_device(void **state)
{
	(void)state;
	if (!has_faults) {
		print_message("skipped: a release build injects no faults\n");
		skip();
	}
	start_node("verify-crash:cpu", "cpu");
	wait_for(cpu_failed);
	const struct json *device = device_of(&bench, "cpu");
	assert_string_equal(json_get_string(device, "support", ""), "unsupported");
	assert_non_null(strstr(json_get_string(device, "support_reason", ""), "signal 11"));
	assert_non_null(strstr(json_get_string(device, "support_reason", ""), "EXOGPU_FAULT"));
	stop_node();
	forget();

	start_node("enumerate-crash:vulkan,verify-corrupt:cpu", "cpu,vulkan");
	wait_for(cpu_failed);
	assert_non_null(strstr(json_get_string(device_of(&bench, "cpu"), "support_reason", ""), "verification failed"));
	stop_node();
}

// The workers of what is over have ended and been reaped.
static void settle(void)
{
	wait_for(no_worker);
	usleep(300000);
	assert_int_equal(count_workers(), 0);
}

// How many files the node keeps open: the fewest of some looks, since it opens some for an instant (its disk, /proc).
static int kept_descriptors(void)
{
	int least = INT_MAX;
	for (int i = 0; i < 20; i++, usleep(20000)) {
		const int now = count_descriptors();
		least = now < least ? now : least;
	}
	return least;
}

static void driver_that_comes_and_goes_is_noticed(void **state)
{
	(void)state;
	start_node(NULL, "cpu,vulkan");
	wait_for(cpu_measured);
	assert_null(device_of(&bench, "vulkan"));
	settle();
	const int descriptors = kept_descriptors();
	for (int round = 0; round < 3; round++) {
		if (!install_driver()) {
			stop_node();
			print_message("skipped: no llvmpipe here (apt-get install mesa-vulkan-drivers)\n");
			skip();
		}
		wait_for(vulkan_passed);
		assert_int_equal(unlink(bench.manifest), 0);
		wait_for(vulkan_gone);
	}
	settle();
	assert_int_equal(kept_descriptors(), descriptors);
	stop_node();
}

static bool verified_again(const struct bench *all)
{
	return all->results == 1 && all->reports >= 2 && cpu_passed(all);
}

static bool refused_twice(const struct bench *all)
{
	return all->errors == 2;
}

static void call_node(const char *method, const char *device_id)
{
	char text[256];
	int length = snprintf(text, sizeof(text),
			      "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"%s\",\"params\":{\"device_id\":\"%s\"}}",
			      method, device_id);
	net_conn_send_text(bench.conn, text, (size_t)length);
}

static void device_is_verified_again_when_asked(void **state)
{
	(void)state;
	bench.results = bench.errors = 0;
	start_node(NULL, "cpu");
	wait_for(cpu_measured);
	char id[65];
	snprintf(id, sizeof(id), "%s", json_get_string(device_of(&bench, "cpu"), "device_id", ""));
	forget();
	call_node("device.verify", id);
	wait_for(verified_again);
	call_node("device.verify", "dev_0000000000000000");
	call_node("device.dance", id);
	wait_for(refused_twice);
	stop_node();
}

static bool connected_again(const struct bench *all)
{
	return all->connections >= 2 && all->reports > 0;
}

static void server_that_restarts_is_dialled_again(void **state)
{
	(void)state;
	bench.connections = 0;
	start_node(NULL, "cpu");
	wait_for(cpu_passed);
	forget();
	net_conn_close(bench.conn, 1011, "a fault");
	wait_for(connected_again);
	stop_node();
}

static bool closed_once(const struct bench *all)
{
	return all->closes > 0;
}

static void server_that_stops_ends_the_node(void **state)
{
	int wait_status = 0;
	(void)state;
	start_node(NULL, "cpu");
	wait_for(cpu_passed);
	bench.closes = 0;
	net_conn_close(bench.conn, 1001, "the server stops");
	wait_for(closed_once);
	int64_t began_ms = clock_steady_ms();
	while (waitpid(bench.node, &wait_status, WNOHANG) == 0) {
		assert_true(clock_steady_ms() - began_ms < PATIENCE_MS);
		usleep(5000);
	}
	assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
	bench.node = 0;
}

static void bad_usage_exits_2(void **state)
{
	static const char *const arguments[][2] = {{"--join", "example.org:0"},
						   {"--join", "[::1"},
						   {"--ticket", "x"},
						   {"--backends", "abacus"},
						   {"--nonsense", "x"}};
	(void)state;
	for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
		int wait_status;
		pid_t pid = fork();
		if (!pid) {
			close(STDERR_FILENO);
			execl(EXOGPU_BINARY, "exogpu", "node", arguments[i][0], arguments[i][1], NULL);
			_exit(127);
		}
		assert_int_equal(waitpid(pid, &wait_status, 0), pid);
		assert_true(WIFEXITED(wait_status));
		assert_int_equal(WEXITSTATUS(wait_status), 2);
	}
}

static void a_node_without_a_server_says_so(void **state)
{
	char log[4096] = "", data[] = "/tmp/exogpu-alone-XXXXXX", command[64];
	size_t used = 0;
	ssize_t got;
	int ends[2];
	(void)state;
	assert_non_null(mkdtemp(data));
	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		execl(EXOGPU_BINARY, "exogpu", "node", "--join", "unix:/nonexistent/socket", "--data", data,
		      "--backends", "cpu", NULL);
		_exit(127);
	}
	close(ends[1]);
	while (!strstr(log, "no server answers at unix:/nonexistent/socket yet; trying again") &&
	       (got = read(ends[0], log + used, sizeof(log) - 1 - used)) > 0)
		used += (size_t)got;
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
	close(ends[0]);
	assert_non_null(strstr(log, "no server answers"));
	assert_non_null(strstr(log, data)); // where its data is
	snprintf(command, sizeof(command), "rm -rf %s", data);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NODE_TEST(registers_reports_verifies_and_remembers), NODE_TEST(stopping_leaves_no_worker),
		NODE_TEST(crashed_worker_fails_one_device),          NODE_TEST(driver_that_comes_and_goes_is_noticed),
		NODE_TEST(device_is_verified_again_when_asked),      NODE_TEST(server_that_restarts_is_dialled_again),
		NODE_TEST(server_that_stops_ends_the_node),          cmocka_unit_test(bad_usage_exits_2),
		cmocka_unit_test(a_node_without_a_server_says_so),
	};
	return cmocka_run_group_tests_name("node/process", tests, make_bench, remove_bench);
}
