/* The real node process against a server's end of its socket: what it says first, faults of workers, drivers that come
 * and go, a server that goes away and comes back, and a clean stop without anything left behind. */
#include "common/base/clock.h"
#include "common/net/ws.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

// What the fake server has seen, and what it waits for.
struct bench {
	struct net_loop *loop;
	struct contract *contract;
	struct net_listener *listener;
	struct net_conn *conn;
	struct net_timer patience;
	struct json *record, *devices; // the latest
	bool (*enough)(const struct bench *bench);
	bool met;
	int connections, reports, closes, telemetry, results, errors;
	pid_t node;
	char folder[64], socket[96], manifests[96], manifest[128];
};

static struct bench bench;
#ifdef NDEBUG
static const bool has_faults = false; // see engine/worker/fault.h
#else
static const bool has_faults = true;
#endif

static void answer(struct net_conn *conn, const struct json *id, struct json *result)
{
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES);
	assert_int_equal(message_print_result(&text, id, result), STATUS_OK);
	net_conn_send_text(conn, buffer_text(&text), text.length);
	buffer_finish(&text);
}

static bool upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)response;
	*user = context;
	return request->local && !strcmp(request->path, "/node");
}

static void opened(void *user, struct net_conn *conn)
{
	((struct bench *)user)->conn = conn;
	((struct bench *)user)->connections++;
	net_conn_trust(conn);
}

static void closed(void *user, struct net_conn *conn, int code)
{
	(void)conn, (void)code;
	((struct bench *)user)->conn = NULL;
	((struct bench *)user)->closes++;
}

// Everything that a node says must be in the contract.
static void received(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct bench *all = user;
	struct message message = {0};
	struct error error = {0};
	(void)binary;
	assert_int_equal(message_decode_text(&message, (const char *)bytes, length, &error), STATUS_OK);
	if (message.kind == MESSAGE_REQUEST || message.kind == MESSAGE_NOTIFICATION) {
		const struct contract_method *method = contract_find(all->contract, message.method);
		assert_non_null(method);
		enum status status = contract_check_params(all->contract, method, message.params, &error);
		if (status)
			print_error("%s: %s\n", message.method, error.message);
		assert_int_equal(status, STATUS_OK);
	}
	if (message.kind == MESSAGE_REQUEST && !strcmp(message.method, "node.register")) {
		struct json *result = json_new_object();
		json_set_integer(result, "protocol", 1);
		json_set_bool(result, "watched", true);
		answer(conn, message.id, result);
		json_destroy(&all->record);
		all->record = json_copy(json_get(message.params, "node"));
	} else if (message.kind == MESSAGE_REQUEST && !strcmp(message.method, "node.devices")) {
		answer(conn, message.id, json_new_object());
		json_destroy(&all->devices);
		all->devices = json_copy(json_get(message.params, "devices"));
		all->reports++;
	} else if (message.kind == MESSAGE_NOTIFICATION) {
		all->telemetry++;
	} else if (message.kind == MESSAGE_RESULT) {
		all->results++;
	} else {
		all->errors++;
	}
	message_finish(&message);
	if (all->enough && all->enough(all)) {
		all->met = true;
		net_loop_stop(all->loop);
	}
}

static const struct net_handler handler = {.upgrade = upgrade, .opened = opened, .message = received, .closed = closed};

static void listen_again(void)
{
	static const char *const subprotocols[] = {"exogpu.node.v1", NULL};
	struct error error = {0};
	struct net_listener_params params = {.socket_path = bench.socket,
					     .ping_s = 3,
					     .silence_s = 8,
					     .subprotocols = subprotocols,
					     .handler = &handler,
					     .context = &bench};
	enum status status = net_listener_create(&bench.listener, bench.loop, &params, &error);
	if (status)
		print_error("%s\n", error.message);
	assert_int_equal(status, STATUS_OK);
}

static void out_of_patience(void *arg)
{
	net_loop_stop(arg);
}

static void wait_for(bool (*enough)(const struct bench *bench), int64_t patience_ms)
{
	bench.enough = enough;
	bench.met = enough(&bench);
	net_timer_start(bench.loop, &bench.patience, patience_ms, out_of_patience, bench.loop);
	if (!bench.met)
		net_loop_run(bench.loop);
	net_timer_stop(bench.loop, &bench.patience);
	if (!bench.met && bench.devices) {
		struct buffer text;
		buffer_init(&text, LIMIT_HEAD_BYTES);
		json_print(bench.devices, &text);
		print_error("the last report was %s\n", buffer_text(&text));
		buffer_finish(&text);
	}
	assert_true(bench.met);
}

static void start_node(const char *fault, const char *backends)
{
	char join[128];
	snprintf(join, sizeof(join), "unix:%s", bench.socket);
	bench.node = fork();
	assert_true(bench.node >= 0);
	if (!bench.node) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fault)
			setenv("EXOGPU_FAULT", fault, 1);
		setenv("VK_DRIVER_FILES", bench.manifest, 1);
		execl(EXOGPU_BINARY, "exogpu", "node", "--join", join, "--data", bench.folder, "--backends", backends,
		      "--log-level", "warning", NULL);
		_exit(127);
	}
}

// Children of the node: its workers.
static int count_workers(void)
{
	char path[96], text[1024] = "";
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)bench.node, (int)bench.node);
	FILE *file = fopen(path, "r");
	int count = 0;
	if (file && fgets(text, sizeof(text), file))
		for (const char *at = text; *at; at++)
			count += *at == ' ';
	if (file)
		fclose(file);
	return count;
}

static int count_descriptors(void)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)bench.node);
	DIR *entries = opendir(path);
	int count = 0;
	while (entries && readdir(entries))
		count++;
	if (entries)
		closedir(entries);
	return count;
}

static void stop_node(int64_t limit_ms)
{
	int wait_status = 0;
	int64_t began_ms = clock_steady_ms();
	kill(bench.node, SIGTERM);
	while (waitpid(bench.node, &wait_status, WNOHANG) == 0) {
		assert_true(clock_steady_ms() - began_ms < limit_ms);
		usleep(5000);
	}
	assert_true(WIFEXITED(wait_status));
	assert_int_equal(WEXITSTATUS(wait_status), 0);
	bench.node = 0;
}

static const struct json *device_of(const struct bench *all, const char *backend)
{
	for (const struct json *device = json_first(all->devices); device; device = json_next(device))
		if (!strcmp(json_get_string(device, "backend", ""), backend))
			return device;
	return NULL;
}

static const char *verification_of(const struct bench *all, const char *backend)
{
	return json_get_string(json_get(device_of(all, backend), "verification"), "state", "");
}

static bool cpu_measured(const struct bench *all)
{
	return !strcmp(verification_of(all, "cpu"), "passed") &&
	       json_get_number(device_of(all, "cpu"), "memory_bandwidth_bytes_per_s", 0) > 0;
}

static bool cpu_passed(const struct bench *all)
{
	return !strcmp(verification_of(all, "cpu"), "passed");
}

static bool cpu_failed(const struct bench *all)
{
	return !strcmp(verification_of(all, "cpu"), "failed");
}

static bool vulkan_passed(const struct bench *all)
{
	return !strcmp(verification_of(all, "vulkan"), "passed") &&
	       json_get_bool(device_of(all, "vulkan"), "present", false);
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

static void forget(void)
{
	json_destroy(&bench.record);
	json_destroy(&bench.devices);
	bench.reports = bench.telemetry = 0;
}

// The machine's own llvmpipe manifest is put into the test's folder; false if there is none.
static bool install_driver(void)
{
	DIR *entries = opendir("/usr/share/vulkan/icd.d");
	struct dirent *entry;
	char from[512] = "", bytes[4096];
	while (entries && (entry = readdir(entries)))
		if (strstr(entry->d_name, "lvp"))
			snprintf(from, sizeof(from), "/usr/share/vulkan/icd.d/%s", entry->d_name);
	if (entries)
		closedir(entries);
	int in = open(from, O_RDONLY), out = in < 0 ? -1 : open(bench.manifest, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ssize_t got = in < 0 ? -1 : read(in, bytes, sizeof(bytes));
	bool done = got > 0 && write(out, bytes, (size_t)got) == got;
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	return done;
}

static void registers_reports_verifies_and_remembers(void **state)
{
	(void)state;
	start_node(NULL, "cpu");
	wait_for(cpu_measured, 20000);
	assert_string_equal(json_get_string(bench.record, "version", ""), EXOGPU_VERSION);
	wait_for(some_telemetry, 5000);
	char id[65];
	snprintf(id, sizeof(id), "%s", json_get_string(device_of(&bench, "cpu"), "device_id", ""));
	double rate = json_get_number(device_of(&bench, "cpu"), "memory_bandwidth_bytes_per_s", 0);
	stop_node(1000);
	forget();

	start_node("verify-hang:cpu", "cpu"); // so that the first report is seen as it is
	wait_for(some_report, 5000);
	assert_string_equal(json_get_string(device_of(&bench, "cpu"), "device_id", ""), id);
	assert_true(json_get_bool(device_of(&bench, "cpu"), "present", false));
	assert_true(json_get_number(device_of(&bench, "cpu"), "memory_bandwidth_bytes_per_s", 0) == rate);
	stop_node(1000);
}

static void stopping_leaves_no_worker(void **state)
{
	(void)state;
	start_node("verify-hang:cpu", "cpu");
	wait_for(some_report, 5000);
	usleep(200000);
	if (has_faults)
		assert_int_equal(count_workers(), 1);
	stop_node(1000);
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
	wait_for(cpu_failed, 10000);
	const struct json *device = device_of(&bench, "cpu");
	assert_string_equal(json_get_string(device, "support", ""), "unsupported");
	assert_non_null(strstr(json_get_string(device, "support_reason", ""), "signal 11"));
	assert_non_null(strstr(json_get_string(device, "support_reason", ""), "EXOGPU_FAULT"));
	stop_node(1000);
	forget();

	start_node("enumerate-crash:vulkan,verify-corrupt:cpu", "cpu,vulkan");
	wait_for(cpu_failed, 10000);
	assert_non_null(strstr(json_get_string(device_of(&bench, "cpu"), "support_reason", ""), "verification failed"));
	stop_node(1000);
}

static void driver_that_comes_and_goes_is_noticed(void **state)
{
	(void)state;
	start_node(NULL, "cpu,vulkan");
	wait_for(cpu_measured, 20000);
	assert_null(device_of(&bench, "vulkan"));
	int descriptors = count_descriptors();
	for (int round = 0; round < 3; round++) {
		if (!install_driver()) {
			stop_node(1000);
			print_message("skipped: no llvmpipe here (apt-get install mesa-vulkan-drivers)\n");
			skip();
		}
		wait_for(vulkan_passed, 8000);
		assert_int_equal(unlink(bench.manifest), 0);
		wait_for(vulkan_gone, 8000);
	}
	usleep(300000); // the last workers are reaped
	assert_int_equal(count_workers(), 0);
	assert_int_equal(count_descriptors(), descriptors);
	stop_node(1000);
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
	wait_for(cpu_measured, 20000);
	char id[65];
	snprintf(id, sizeof(id), "%s", json_get_string(device_of(&bench, "cpu"), "device_id", ""));
	forget();
	call_node("device.verify", id);
	wait_for(verified_again, 5000);
	call_node("device.verify", "dev_0000000000000000");
	call_node("device.dance", id);
	wait_for(refused_twice, 5000);
	stop_node(1000);
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
	wait_for(cpu_passed, 10000);
	forget();
	net_conn_close(bench.conn, 1011, "a fault");
	wait_for(connected_again, 5000);
	stop_node(1000);
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
	wait_for(cpu_passed, 10000);
	bench.closes = 0;
	net_conn_close(bench.conn, 1001, "the server stops");
	bench.enough = closed_once;
	net_timer_start(bench.loop, &bench.patience, 1000, out_of_patience, bench.loop);
	net_loop_run(bench.loop);
	net_timer_stop(bench.loop, &bench.patience);
	int64_t began_ms = clock_steady_ms();
	while (waitpid(bench.node, &wait_status, WNOHANG) == 0) {
		assert_true(clock_steady_ms() - began_ms < 2000);
		usleep(5000);
	}
	assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
	bench.node = 0;
}

static void bad_usage_exits_2(void **state)
{
	static const char *const arguments[][2] = {{"--join", "example.org:52415"},
						   {"--join", "auto"},
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

static int make_bench(void **state)
{
	(void)state;
	snprintf(bench.folder, sizeof(bench.folder), "/tmp/exogpu-node-XXXXXX");
	assert_non_null(mkdtemp(bench.folder));
	snprintf(bench.socket, sizeof(bench.socket), "%s/exogpu.sock", bench.folder);
	snprintf(bench.manifest, sizeof(bench.manifest), "%s/lvp_icd.json", bench.folder);
	assert_int_equal(contract_create(&bench.contract, CONTRACT_NODE, NULL), STATUS_OK);
	return (int)net_loop_create(&bench.loop, NULL);
}

static int remove_bench(void **state)
{
	char command[96];
	(void)state;
	net_loop_destroy(&bench.loop);
	contract_destroy(&bench.contract);
	snprintf(command, sizeof(command), "rm -rf %s", bench.folder);
	return system(command);
}

static int begin_test(void **state)
{
	(void)state;
	listen_again();
	return 0;
}

static int end_test(void **state)
{
	(void)state;
	if (bench.node > 0) {
		kill(bench.node, SIGKILL);
		waitpid(bench.node, NULL, 0);
		bench.node = 0;
	}
	net_close_all(bench.loop, 1001);
	net_listener_destroy(&bench.listener);
	bench.conn = NULL;
	forget();
	return 0;
}

#define NODE_TEST(test) cmocka_unit_test_setup_teardown(test, begin_test, end_test)

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
