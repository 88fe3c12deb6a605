/* Workers of sessions, as the real node starts, watches and ends them: what the server is told of each, and that
 * nothing of them stays behind. The other end of their streams is a socket here; what goes over it is the worker's. */
#include "common/net/stream.h"
#include "tests/engine/node/bench.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { ANSWERS = 256, STREAMS = 512 };

// What the node has said, by the number of the call.
static struct answer {
	bool come, failed;
	struct json *result;
	struct error error;
} answers[ANSWERS];
static int last_call, awaited, ends, hop_ends;
static char ended_worker[65], ended_message[512];

// The streams that were dialled, and what each said first.
static struct {
	int fd;
	char worker_id[65], key[65];
} streams[STREAMS];
static int stream_count, stream_listener = -1;
static struct net_watch *stream_watch;

static void heard(const struct message *message)
{
	int64_t id = 0;
	if (message->method && !strcmp(message->method, "tenant.ended")) {
		ends++;
		snprintf(ended_worker, sizeof(ended_worker), "%s", json_get_string(message->params, "worker_id", ""));
		snprintf(ended_message, sizeof(ended_message), "%s", json_get_string(message->params, "message", ""));
	}
	hop_ends += message->method && !strcmp(message->method, "hop.ended");
	if (message->method || json_integer(message->id, &id) || id <= 0 || id >= ANSWERS)
		return;
	struct answer *answer = &answers[id];
	assert_false(answer->come);
	answer->come = true;
	answer->failed = message->kind == MESSAGE_ERROR;
	if (answer->failed)
		message_read_error(message, &answer->error);
	else
		answer->result = json_copy(message->result);
}

static bool all_answered(const struct bench *all)
{
	(void)all;
	for (int id = awaited; id <= last_call; id++)
		if (!answers[id].come)
			return false;
	return true;
}

static bool told_of_an_end(const struct bench *all)
{
	(void)all;
	return ends > 0;
}

// Send a call; its number. `more` are further parameters, each with a comma before it.
static int send_call(const char *method, const char *worker_id, const char *more)
{
	char text[512];
	if (last_call + 1 == ANSWERS)
		last_call = 0;
	struct answer *answer = &answers[++last_call];
	json_destroy(&answer->result);
	*answer = (struct answer){0};
	int length = snprintf(text, sizeof(text),
			      "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":{\"worker_id\":\"%s\"%s}}",
			      last_call, method, worker_id, more);
	net_conn_send_text(bench.conn, text, (size_t)length);
	return last_call;
}

// Send a call and wait for its answer, which must fit the contract.
static struct answer *ask(const char *method, const char *worker_id, const char *more)
{
	struct error error = {0};
	awaited = send_call(method, worker_id, more);
	wait_for(all_answered);
	struct answer *answer = &answers[awaited];
	if (!answer->failed &&
	    contract_check_result(bench.contract, contract_find(bench.contract, method), answer->result, &error))
		fail_msg("%s: %s", method, error.message);
	return answer;
}

static struct answer *ask_well(const char *method, const char *worker_id, const char *more)
{
	struct answer *answer = ask(method, worker_id, more);
	if (answer->failed)
		fail_msg("%s: %s", method, answer->error.message);
	return answer;
}

static void ask_ill(const char *method, const char *worker_id, const char *more, enum status status)
{
	struct answer *answer = ask(method, worker_id, more);
	if (!answer->failed || answer->error.status != status)
		fail_msg("%s: %s, expected %s", method,
			 answer->failed ? status_word(answer->error.status) : "it was done", status_word(status));
}

static struct answer *open_worker(const char *worker_id)
{
	return ask_well("tenant.open", worker_id, ",\"key\":\"secret\",\"backend\":\"cpu\"");
}

static const char *device_parameters(const char *backend, int device)
{
	static char text[160];
	snprintf(text, sizeof(text), ",\"device_id\":\"%s\",\"device\":%d",
		 json_get_string(device_of(&bench, backend), "device_id", "dev_none"), device);
	return text;
}

// The stream's first message: link.hello. Its sender has written it before anybody reads.
static void take_hello(int fd)
{
	uint8_t bytes[1024];
	struct message message = {0};
	assert_int_equal(recv(fd, bytes, 4, MSG_WAITALL), 4);
	size_t total = bytes[0] | (size_t)bytes[1] << 8;
	assert_true(total > 4 && total <= sizeof(bytes));
	assert_int_equal(recv(fd, bytes, total, MSG_WAITALL), (ssize_t)total);
	assert_int_equal(message_decode(&message, bytes, total, NULL), STATUS_OK);
	assert_string_equal(message.method, "link.hello");
	snprintf(streams[stream_count].worker_id, 65, "%s", json_get_string(message.params, "worker_id", ""));
	snprintf(streams[stream_count].key, 65, "%s", json_get_string(message.params, "key", ""));
	streams[stream_count++].fd = fd;
	message_finish(&message);
}

static void stream_waits(void *arg, int fd)
{
	int stream;
	(void)arg;
	while ((stream = accept(fd, NULL, NULL)) >= 0) {
		assert_true(stream_count < STREAMS);
		take_hello(stream);
	}
}

static bool stream_ended(const char *worker_id)
{
	char byte;
	for (int i = 0; i < stream_count; i++)
		if (!strcmp(streams[i].worker_id, worker_id))
			return recv(streams[i].fd, &byte, 1, MSG_DONTWAIT) == 0;
	return false;
}

// The process of the newest worker; 0 if there is none.
static pid_t newest_worker(void)
{
	char path[96];
	int pid = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)bench.node, (int)bench.node);
	FILE *file = fopen(path, "r");
	while (file && fscanf(file, "%d", &pid) == 1)
		;
	if (file)
		fclose(file);
	return (pid_t)pid;
}

// What the node writes to its disk is open for a moment, now and when `most` was counted: what is counted in between
// happens several times, so that one descriptor left by each is more than that.
static int most_descriptors;

static bool few_descriptors(const struct bench *all)
{
	(void)all;
	return count_descriptors() <= most_descriptors;
}

static void wait_for_descriptors(int most)
{
	most_descriptors = most;
	wait_for(few_descriptors);
}

// The node, its devices verified and measured, so that no other worker runs.
static bool cpu_settled(const struct bench *all)
{
	return cpu_passed(all) && json_get_number(device_of(all, "cpu"), "memory_bandwidth_bytes_per_s", 0) > 0;
}

static void start_settled(void)
{
	start_node(NULL, "cpu");
	wait_for(cpu_settled);
	wait_for(no_worker);
}

// ---- the tests ----

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

static int begin(void **state)
{
	static const struct net_watch_events events = {.readable = stream_waits};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", bench.folder, NET_STREAM_SOCKET);
	unlink(address.sun_path);
	stream_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(stream_listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(stream_listener, 64), 0);
	assert_int_equal(net_watch_create(&stream_watch, bench.loop, stream_listener, &events, NULL, NULL), STATUS_OK);
	bench.heard = heard;
	return begin_test(state);
}

static int end(void **state)
{
	int status = end_test(state);
	net_watch_destroy(&stream_watch);
	for (int i = 0; i < stream_count; i++)
		close(streams[i].fd);
	for (int i = 0; i < ANSWERS; i++)
		json_destroy(&answers[i].result);
	memset(answers, 0, sizeof(answers));
	stream_count = last_call = ends = hop_ends = 0;
	return status;
}

#define TENANT_TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

// ---- model instances ----

static const char *model_parameters(const char *name)
{
	static char text[256];
	snprintf(text, sizeof(text), ",\"key\":\"k\",\"backend\":\"cpu\",\"model_path\":\"%s/%s\"", bench.folder, name);
	return text;
}

static void make_files(void)
{
	char path[160], to[160];
	FILE *file;
	snprintf(path, sizeof(path), "%s/model.gguf", bench.folder);
	file = fopen(path, "w");
	assert_true(file && fputs("GGUF, and nothing that anybody reads here", file) > 0 && !fclose(file));
	snprintf(to, sizeof(to), "%s/link.gguf", bench.folder);
	unlink(to); // of another test
	assert_int_equal(symlink(path, to), 0);
	snprintf(to, sizeof(to), "%s/pipe.gguf", bench.folder);
	unlink(to);
	assert_int_equal(mkfifo(to, 0600), 0);
}

static void a_model_s_worker_has_its_file(void **state)
{
	(void)state;
	char link[64], path[160] = "", wanted[160];
	start_settled();
	make_files();
	int descriptors = count_descriptors();
	for (int i = 0; i < 3; i++) {
		ask_ill("tenant.open", "w1", model_parameters("none.gguf"), STATUS_NOT_FOUND);
		ask_ill("tenant.open", "w1", model_parameters("link.gguf"), STATUS_UNAVAILABLE);
		ask_ill("tenant.open", "w1", model_parameters("pipe.gguf"), STATUS_INVALID_PARAMS);
		ask_ill("tenant.open", "w1", model_parameters("."), STATUS_INVALID_PARAMS);
	}
	wait_for_descriptors(descriptors);
	assert_int_equal(stream_count, 0);
	struct answer *answer = ask_well("tenant.open", "w1", model_parameters("model.gguf"));
	assert_true(json_get_number(answer->result, "started_ms", -1) >= 0);
	snprintf(wanted, sizeof(wanted), "%s/model.gguf", bench.folder);
	snprintf(link, sizeof(link), "/proc/%d/fd/5", (int)newest_worker());
	// In a release build nobody may look into a worker.
	if (has_faults && readlink(link, path, sizeof(path) - 1) < 0)
		fail_msg("%s: %s", link, strerror(errno));
	if (has_faults)
		assert_string_equal(path, wanted);
	ask_ill("tenant.device", "w1", device_parameters("cpu", 0), STATUS_METHOD_NOT_FOUND);
	kill(newest_worker(), SIGKILL);
	wait_for(told_of_an_end);
	if (!strstr(ended_message, "killed from outside"))
		fail_msg("the server was told: %s", ended_message);
	ask_well("tenant.open", "w2", model_parameters("model.gguf"));
	ask_well("tenant.close", "w2", "");
	wait_for(no_worker);
	stop_node();
}

static void a_model_that_is_cut_off_is_told(void **state)
{
	(void)state;
	if (!has_faults) {
		print_message("skipped: a release build injects no faults\n");
		skip();
	}
	start_node("open-cut:cpu", "cpu");
	wait_for(cpu_settled);
	make_files();
	struct answer *answer = ask("tenant.open", "w1", model_parameters("model.gguf"));
	assert_true(answer->failed);
	if (!strstr(answer->error.message, "the model's file was cut off"))
		fail_msg("the server was told: %s", answer->error.message);
	stop_node();
}

static bool two_hops_ended(const struct bench *all)
{
	(void)all;
	return hop_ends == 2;
}

static const char *hop_parameters(const char *end, const char *hop_id)
{
	static char text[256];
	snprintf(text, sizeof(text), ",\"end\":\"%s\",\"hop_id\":\"%s\",\"key\":\"k\",\"via\":\"local\"", end, hop_id);
	return text;
}

static bool is_socket(pid_t worker, int fd)
{
	char link[64], target[64] = "";
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)worker, fd);
	return readlink(link, target, sizeof(target) - 1) > 0 && !strncmp(target, "socket:", 7);
}

static void parts_of_a_model_are_connected(void **state)
{
	char more[320];
	(void)state;
	make_files();
	start_settled();
	ask_ill("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\",\"ring\":true", STATUS_INVALID_PARAMS);
	snprintf(more, sizeof(more), "%s,\"ring\":true", model_parameters("model.gguf"));
	ask_well("tenant.open", "w1", more);
	if (has_faults)
		for (int fd = 3; fd <= 8; fd++)
			assert_int_equal(is_socket(newest_worker(), fd), fd != 5 && fd != 8);
	ask_well("tenant.open", "w2", more);
	awaited = send_call("hop.connect", "w1", hop_parameters("out", "h1"));
	send_call("hop.connect", "w2", hop_parameters("out", "h2"));
	send_call("hop.connect", "w2", hop_parameters("in", "h1"));
	int last = send_call("hop.connect", "w1", hop_parameters("in", "h2"));
	wait_for(all_answered);
	for (int call = awaited; call <= last; call++)
		assert_false(answers[call].failed);
	ask_ill("hop.connect", "w3", hop_parameters("in", "h2"), STATUS_NOT_FOUND);
	ask_well("tenant.close", "w2", "");
	wait_for(two_hops_ended); // of the other, both
	ask_ill("hop.connect", "w2", hop_parameters("in", "h2"), STATUS_NOT_FOUND);
	ask_well("tenant.close", "w1", "");
	assert_int_equal(hop_ends, 2);
	assert_int_equal(ends, 0);
	stop_node();
}

// Nothing of it is asked for: the file is all holes, and no server is needed.
static void a_model_out_of_the_cache(void **state)
{
	char text[256], path[160], target[160] = "";
	(void)state;
	start_settled();
	ask_ill("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\",\"model_id\":\"mdl_1\"", STATUS_NOT_FOUND);
	int length = snprintf(text, sizeof(text),
			      "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"model.fetch\",\"params\":{\"model_id\":"
			      "\"mdl_1\",\"key\":\"k\",\"bytes\":1000000,\"ranges\":[]}}",
			      awaited = ++last_call);
	net_conn_send_text(bench.conn, text, (size_t)length);
	wait_for(all_answered);
	assert_false(answers[awaited].failed);
	ask_well("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\",\"model_id\":\"mdl_1\",\"ring\":true");
	snprintf(path, sizeof(path), "/proc/%d/fd/5", (int)newest_worker());
	if (has_faults && readlink(path, target, sizeof(target) - 1) < 0)
		fail_msg("%s: %s", path, strerror(errno));
	print_message("the worker has %s\n", target);
	if (has_faults)
		assert_non_null(strstr(target, "/models/mdl_1.part"));
	ask_well("tenant.close", "w1", "");
	stop_node();
}

// ---- spares ----

// The worker that waits for a session; 0: none.
static pid_t spare_of(const struct bench *all)
{
	char path[96], name[32];
	int pid = 0, found = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)all->node, (int)all->node);
	FILE *children = fopen(path, "r");
	while (children && !found && fscanf(children, "%d", &pid) == 1) {
		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		FILE *comm = fopen(path, "r");
		if (comm && fgets(name, sizeof(name), comm) && !strcmp(name, "exogpu-spare\n"))
			found = pid;
		if (comm)
			fclose(comm);
	}
	if (children)
		fclose(children);
	return (pid_t)found;
}

static pid_t killed_spare;

// Looked at with each message; the node's readings come every second.
static bool another_spare_waits(const struct bench *all)
{
	const pid_t spare = spare_of(all);
	return spare && spare != killed_spare;
}

static bool is_gone(pid_t pid)
{
	char path[32], line[256] = "";
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	const bool there = file && fgets(line, sizeof(line), file);
	if (file)
		fclose(file);
	return !there || strstr(line, ") Z "); // what is nobody's child any more may wait for init
}

// A session's worker and its device. Whether it had waited; *ms: how long both took.
static bool open_session(const char *id, const char *backend, double *ms)
{
	char text[200];
	snprintf(text, sizeof(text), ",\"key\":\"k\",\"backend\":\"%s\",\"device_id\":\"%s\"", backend,
		 json_get_string(device_of(&bench, backend), "device_id", ""));
	struct answer *answer = ask_well("tenant.open", id, text);
	const bool spare = json_get_bool(answer->result, "spare", false);
	*ms = json_get_number(answer->result, "started_ms", -1);
	assert_true(json_get(answer->result, "sandbox") != NULL);
	answer = ask_well("tenant.device", id, device_parameters(backend, 5));
	*ms += json_get_number(answer->result, "opened_ms", -1);
	assert_true(json_get_number(json_get(answer->result, "limits"), "memory_bytes", 0) > 0);
	return spare;
}

// A session that gets the spare, which may have to open its device first. Its worker.
static pid_t open_with_spare(const char *name, const char *backend, double *ms)
{
	const int64_t began_ms = clock_steady_ms();
	char id[32];
	for (int i = 0; clock_steady_ms() - began_ms < PATIENCE_MS; i++) {
		wait_for(another_spare_waits);
		const pid_t spare = spare_of(&bench);
		snprintf(id, sizeof(id), "%s%d", name, i);
		if (open_session(id, backend, ms))
			return spare;
		ask_well("tenant.close", id, "");
		usleep(50000);
	}
	fail_msg("no session got a spare");
	return 0;
}

// The process of a session that got the spare; the sessions "first" and another are open then.
static pid_t use_spare(const char *backend)
{
	double first_ms, second_ms;
	killed_spare = 0;
	wait_for(another_spare_waits); // no session came yet: verifying the device took long enough
	const bool waited = !open_session("first", backend, &first_ms);
	const pid_t spare = open_with_spare("second", backend, &second_ms);
	assert_false(is_gone(spare));
	assert_true(spare_of(&bench) != spare); // it is called a worker now
	print_message("%s: worker and device took %.1f ms %s a spare, then %.1f ms with one\n", backend, first_ms,
		      waited ? "without" : "with", second_ms);
	return spare;
}

static void a_session_gets_the_worker_that_waits(void **state)
{
	double third_ms;
	(void)state;
	setenv("EXOGPU_SPARES", "1", 1);
	start_settled();
	unsetenv("EXOGPU_SPARES");
	const pid_t spare = use_spare("cpu");

	// One that dies is replaced, and the next session gets another than the one before.
	wait_for(another_spare_waits);
	killed_spare = spare_of(&bench);
	assert_int_equal(kill(killed_spare, SIGKILL), 0);
	const pid_t other = open_with_spare("third", "cpu", &third_ms);
	assert_true(is_gone(killed_spare));
	assert_true(other != spare && other != killed_spare && !is_gone(spare));
	assert_int_equal(ends, 0); // the server knows nothing of it

	// Nothing is left of those that waited, nor of their sessions.
	const int descriptors = count_descriptors();
	ask_well("tenant.close", "first", "");
	wait_for(another_spare_waits);
	const pid_t last = spare_of(&bench);
	assert_in_range(count_descriptors(), 1, descriptors + 1);
	stop_node();
	for (int ms = 0; ms < PATIENCE_MS && !(is_gone(spare) && is_gone(other) && is_gone(last)); ms += 10)
		usleep(10000);
	assert_true(is_gone(spare) && is_gone(other) && is_gone(last));
}

static void a_session_gets_the_gpu_that_is_open(void **state)
{
	(void)state;
	if (!install_driver()) {
		print_message("skipped: no llvmpipe here (apt-get install mesa-vulkan-drivers)\n");
		skip();
	}
	setenv("EXOGPU_SPARES", "1", 1);
	start_node(NULL, "vulkan");
	unsetenv("EXOGPU_SPARES");
	wait_for(vulkan_passed);
	use_spare("vulkan");
	stop_node();
	unlink(bench.manifest);
}

// ---- GPUs, by the driver that stands for NVIDIA's ----

// What is told of the first direction; NULL: nothing yet.
static const struct json *speed_told(const struct bench *all)
{
	return json_first(json_get(json_first(all->speeds), "peers"));
}

static bool measured_or_waits(const struct bench *all)
{
	return json_get_number(speed_told(all), "bytes_per_s", 0) > 0 ||
	       strstr(json_get_string(speed_told(all), "reason", ""), "waits until");
}

static bool measured(const struct bench *all)
{
	return json_get_number(speed_told(all), "bytes_per_s", 0) > 0;
}

static bool registered(const struct bench *all)
{
	return all->record;
}

static bool cuda_passed(const struct bench *all)
{
	return !strcmp(verification_of(all, "cuda"), "passed");
}

static char first_at[40], verified_at[40];

static const char *verified_when(const struct bench *all)
{
	return json_get_string(json_get(device_of(all, "cuda"), "verification"), "at", "");
}

static bool verified_anew(const struct bench *all)
{
	return cuda_passed(all) && strcmp(verified_when(all), verified_at) != 0;
}

static bool measured_anew(const struct bench *all)
{
	const char *at = json_get_string(speed_told(all), "measured_at", "");
	return at[0] && strcmp(at, first_at) != 0;
}

static void start_with_gpus(bool takes_speeds)
{
	char link[128], folders[4096];
	snprintf(link, sizeof(link), "%s/libcuda.so.1", bench.folder);
	// A worker's root has the link there, and what it points to only if that is named, too.
	snprintf(folders, sizeof(folders), "%s:%.*s", bench.folder, (int)(strrchr(CUDA_STRUCK, '/') - CUDA_STRUCK),
		 CUDA_STRUCK);
	unlink(link);
	assert_int_equal(symlink(CUDA_STRUCK, link), 0);
	bench.takes_speeds = takes_speeds;
	setenv("LD_LIBRARY_PATH", folders, 1);
	setenv("EXOGPU_TEST_CUDA", "90", 1);
	setenv("EXOGPU_TEST_MEASUREMENT_MS", "240000", 1); // it took 20 s on a busy machine with a sanitizer
	setenv("EXOGPU_SPARES", "off", 1); // on a busy machine the stand-in is slow to open, and would have one
	start_node(NULL, "cuda");
	unsetenv("EXOGPU_SPARES");
	unsetenv("EXOGPU_TEST_MEASUREMENT_MS");
	unsetenv("EXOGPU_TEST_CUDA");
	unsetenv("LD_LIBRARY_PATH");
	wait_for(registered);
}

static void gpus_are_measured_while_nobody_uses_them(void **state)
{
	static const char open[] = ",\"key\":\"secret\",\"backend\":\"cuda\"";
	char text[256];
	(void)state;
	start_with_gpus(true);
	ask_well("tenant.open", "w1", open);
	wait_for(measured_or_waits); // the worker may have come too late
	print_message("%s\n",
		      measured(&bench) ? "was measured before" : json_get_string(speed_told(&bench), "reason", ""));
	ask_well("tenant.close", "w1", "");
	wait_for(measured);
	assert_true(json_get_bool(speed_told(&bench), "direct", false));
	snprintf(first_at, sizeof(first_at), "%s", json_get_string(speed_told(&bench), "measured_at", ""));
	wait_for(no_worker);

	ask_well("tenant.open", "w2", open); // that a person asks changes nothing while somebody is there
	snprintf(verified_at, sizeof(verified_at), "%s", verified_when(&bench));
	const int length = snprintf(text, sizeof(text),
				    "{\"jsonrpc\":\"2.0\",\"id\":100000,\"method\":\"device.verify\",\"params\":{"
				    "\"device_id\":\"%s\"}}",
				    json_get_string(device_of(&bench, "cuda"), "device_id", ""));
	net_conn_send_text(bench.conn, text, (size_t)length);
	wait_for(verified_anew);
	assert_false(measured_anew(&bench));
	ask_well("tenant.close", "w2", "");
	wait_for(measured_anew);
	stop_node();
}

static void a_server_of_a_build_before_is_not_told(void **state)
{
	(void)state;
	start_with_gpus(false);
	wait_for(cuda_passed);
	ask_well("tenant.open", "w1", ",\"key\":\"secret\",\"backend\":\"cuda\"");
	ask_well("tenant.close", "w1", "");
	assert_null(bench.speeds);
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
		TENANT_TEST(a_model_s_worker_has_its_file),
		TENANT_TEST(a_model_that_is_cut_off_is_told),
		TENANT_TEST(parts_of_a_model_are_connected),
		TENANT_TEST(a_model_out_of_the_cache),
		TENANT_TEST(a_session_gets_the_worker_that_waits),
		TENANT_TEST(a_session_gets_the_gpu_that_is_open),
		TENANT_TEST(gpus_are_measured_while_nobody_uses_them),
		TENANT_TEST(a_server_of_a_build_before_is_not_told),
	};
	return cmocka_run_group_tests_name("node/tenants", tests, make_bench, remove_bench);
}
