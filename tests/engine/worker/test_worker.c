/* The real worker, over its socket: every back end's answers against the contract, faults, and bad input.
 *
 * A device that a back end lists must pass verification, with a plausible memory bandwidth; llvmpipe stands in for
 * Vulkan hardware. Fault injection exists in debug builds only and is skipped, with a word, in others. */
#include "common/base/limits.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static struct contract *contract;

// A worker; the test's end of its socket in *fd.
static pid_t start_worker(int *fd, const char *fault)
{
	int sockets[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	struct timeval patience = {.tv_sec = 30};
	setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fault)
			setenv("EXOGPU_FAULT", fault, 1);
		if (sockets[1] != 3)
			dup2(sockets[1], 3);
		for (int i = 4; i < 64; i++)
			close(i);
		execl(EXOGPU_BINARY, "exogpu", "worker", NULL);
		_exit(127);
	}
	close(sockets[1]);
	*fd = sockets[0];
	return pid;
}

static void send_text(int fd, const char *head)
{
	struct buffer out;
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	assert_int_equal(message_encode_stream(&out, head, strlen(head), NULL, 0), STATUS_OK);
	assert_int_equal(send(fd, out.data, out.length, MSG_NOSIGNAL), out.length);
	buffer_finish(&out);
}

// Read until the worker closes; false if it sent nothing.
static bool read_answer(int fd, struct buffer *in, struct message *message)
{
	uint8_t bytes[4096];
	ssize_t got;
	const uint8_t *frame = NULL;
	size_t length = 0, used = 0;
	while ((got = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		assert_int_equal(buffer_append(in, bytes, (size_t)got), STATUS_OK);
	// First a message without a head, where the kernel has a way to tell what is refused.
	if (in->length >= 8 && !memcmp(in->data, (const uint8_t[8]){4}, 8))
		buffer_consume(in, 8);
	if (!in->length)
		return false;
	assert_int_equal(message_next(in, &frame, &length, &used), STATUS_OK);
	assert_int_equal(used, in->length); // one answer, nothing behind it
	assert_int_equal(message_decode(message, frame, length, NULL), STATUS_OK);
	return true;
}

struct outcome {
	struct buffer in;
	struct message message;
	bool answered;
	int wait_status;
};

static struct outcome call(const char *head, const char *fault)
{
	struct outcome outcome = {0};
	int fd;
	pid_t pid = start_worker(&fd, fault);
	buffer_init(&outcome.in, LIMIT_WORKER_MESSAGE_BYTES);
	send_text(fd, head);
	outcome.answered = read_answer(fd, &outcome.in, &outcome.message);
	close(fd);
	assert_int_equal(waitpid(pid, &outcome.wait_status, 0), pid);
	return outcome;
}

static void finish(struct outcome *outcome)
{
	message_finish(&outcome->message);
	buffer_finish(&outcome->in);
}

static const struct json *result_of(struct outcome *outcome, const char *method)
{
	struct error error = {0};
	assert_true(outcome->answered);
	if (outcome->message.kind == MESSAGE_ERROR)
		print_error("%s\n", json_get_string(outcome->message.error, "message", ""));
	assert_int_equal(outcome->message.kind, MESSAGE_RESULT);
	enum status status = contract_check_result(contract, contract_find(contract, method), outcome->message.result,
						   &error);
	if (status)
		print_error("%s\n", error.message);
	assert_int_equal(status, STATUS_OK);
	assert_true(WIFEXITED(outcome->wait_status) && !WEXITSTATUS(outcome->wait_status));
	return outcome->message.result;
}

static struct outcome enumerate(const char *backend, const char *fault)
{
	char head[256];
	snprintf(head, sizeof(head),
		 "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.enumerate\",\"params\":{\"backend\":\"%s\"}}",
		 backend);
	return call(head, fault);
}

static struct outcome verify(const char *backend, const char *key, bool measure, const char *fault)
{
	char head[512];
	snprintf(head, sizeof(head),
		 "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.verify\",\"params\":{\"backend\":\"%s\","
		 "\"hardware_key\":\"%s\",\"measure\":%s}}",
		 backend, key, measure ? "true" : "false");
	return call(head, fault);
}

// Every device that the back end lists passes; the number of devices is returned.
static size_t verify_all(const char *backend)
{
	struct outcome found = enumerate(backend, NULL);
	const struct json *devices = json_get(result_of(&found, "worker.enumerate"), "devices");
	size_t count = json_count(devices);
	for (const struct json *device = json_first(devices); device; device = json_next(device)) {
		assert_string_equal(json_get_string(device, "backend", ""), backend);
		if (!strcmp(json_get_string(device, "support", ""), "unsupported"))
			continue;
		struct outcome checked = verify(backend, json_get_string(device, "hardware_key", ""), true, NULL);
		const struct json *result = result_of(&checked, "worker.verify");
		double rate = json_get_number(result, "memory_bandwidth_bytes_per_s", 0);
		print_message("%s: %s: verified in %.1f ms, reads %.2f GB/s\n", backend,
			      json_get_string(device, "name", ""), json_get_number(result, "duration_ms", 0),
			      rate * 1e-9);
		assert_true(rate > 1e7 && rate < 1e14);
		finish(&checked);
	}
	finish(&found);
	return count;
}

static void cpu_is_one_device_and_passes(void **state)
{
	(void)state;
	assert_int_equal(verify_all("cpu"), 1);
}

static void vulkan_devices_pass(void **state)
{
	(void)state;
	if (!verify_all("vulkan")) {
		print_message(
			"skipped: no Vulkan device here, not even llvmpipe (apt-get install mesa-vulkan-drivers)\n");
		skip();
	}
}

static void cuda_devices_pass(void **state)
{
	(void)state;
	if (!verify_all("cuda")) {
		print_message("skipped: no NVIDIA GPU here\n");
		skip();
	}
}

static void missing_library_is_told(void **state)
{
	(void)state;
	struct outcome found = enumerate("cuda", NULL);
	const struct json *libraries = json_get(result_of(&found, "worker.enumerate"), "libraries");
	assert_string_equal(json_get_string(json_first(libraries), "name", ""), "CUDA driver");
	const char *reason = json_get_string(json_first(libraries), "reason", "");
	if (!strcmp(json_get_string(json_first(libraries), "state", ""), "missing"))
		assert_true(strstr(reason, "libcuda.so.1") || strstr(reason, "no NVIDIA GPU"));
	finish(&found);
}

static void unknown_device_is_not_found(void **state)
{
	static const char *const backends[] = {"cpu", "vulkan"};
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct outcome checked = verify(backends[i], "uuid:none", false, NULL);
		assert_true(checked.answered);
		assert_int_equal(checked.message.kind, MESSAGE_ERROR);
		finish(&checked);
	}
}

static void bad_calls_are_answered(void **state)
{
	static const struct {
		const char *head;
		int code;
	} calls[] = {
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.dance\",\"params\":{}}", -32601},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"node.register\",\"params\":{}}", -32601},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.enumerate\"}", -32602},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.enumerate\",\"params\":{\"backend\":\"abacus\"}}",
		 -32602},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.enumerate\",\"params\":{\"backend\":\"cpu\",\"x\":"
		 "1}}",
		 -32602},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.verify\",\"params\":{\"backend\":\"cpu\"}}",
		 -32602},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.enumerate\",\"params\":{\"backend\":\"hip\"}}",
		 -32004},
		{"{\"jsonrpc\":\"2.0\",\"id\":1}", -32600},
		{"{\"jsonrpc\"", -32700},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct outcome outcome = call(calls[i].head, NULL);
		assert_true(outcome.answered);
		assert_int_equal(outcome.message.kind, MESSAGE_ERROR);
		if (json_get_integer(outcome.message.error, "code", 0) != calls[i].code)
			print_error("%s\n", calls[i].head);
		assert_int_equal(json_get_integer(outcome.message.error, "code", 0), calls[i].code);
		finish(&outcome);
	}
}

static void a_notification_is_not_answered(void **state)
{
	(void)state;
	struct outcome outcome = call(
		"{\"jsonrpc\":\"2.0\",\"method\":\"worker.enumerate\",\"params\":{\"backend\":\"cpu\"}}", NULL);
	assert_false(outcome.answered);
	assert_true(WIFEXITED(outcome.wait_status));
	assert_int_equal(WEXITSTATUS(outcome.wait_status), 0);
	finish(&outcome);
}

static void broken_frames_and_the_end_of_the_socket_end_it(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
		int exit_status;
	} sent[] = {{"", 0, 0}, {"\x10", 1, 0}, {"\xff\xff\xff\xff", 4, 1}, {"\x01\x00\x00\x00", 4, 1}};
	(void)state;
	for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
		int fd, wait_status;
		pid_t pid = start_worker(&fd, NULL);
		assert_int_equal(send(fd, sent[i].bytes, sent[i].length, MSG_NOSIGNAL), sent[i].length);
		shutdown(fd, SHUT_WR);
		assert_int_equal(waitpid(pid, &wait_status, 0), pid);
		assert_true(WIFEXITED(wait_status));
		assert_int_equal(WEXITSTATUS(wait_status), sent[i].exit_status);
		close(fd);
	}
}

#ifdef NDEBUG
static void faults_are_seen(void **state)
{
	(void)state;
	print_message("skipped: a release build injects no faults\n");
	skip();
}
#else
static void faults_are_seen(void **state)
{
	(void)state;
	struct outcome outcome = verify("cpu", "cpu", false, "verify-corrupt:cpu");
	assert_true(outcome.answered);
	assert_int_equal(outcome.message.kind, MESSAGE_ERROR);
	assert_non_null(strstr(json_get_string(outcome.message.error, "message", ""), "verification failed: word"));
	finish(&outcome);

	outcome = verify("cpu", "cpu", false, "verify-corrupt:vulkan,verify-crash:cpu");
	assert_false(outcome.answered);
	assert_true(WIFSIGNALED(outcome.wait_status));
	assert_int_equal(WTERMSIG(outcome.wait_status), SIGSEGV);
	finish(&outcome);

	outcome = verify("cpu", "cpu", false, "verify-crash:vulkan");
	result_of(&outcome, "worker.verify");
	finish(&outcome);
}
#endif

static int load_contract(void **state)
{
	(void)state;
	return (int)contract_create(&contract, CONTRACT_NODE, NULL);
}

static int drop_contract(void **state)
{
	(void)state;
	contract_destroy(&contract);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cpu_is_one_device_and_passes),
		cmocka_unit_test(vulkan_devices_pass),
		cmocka_unit_test(cuda_devices_pass),
		cmocka_unit_test(missing_library_is_told),
		cmocka_unit_test(unknown_device_is_not_found),
		cmocka_unit_test(bad_calls_are_answered),
		cmocka_unit_test(a_notification_is_not_answered),
		cmocka_unit_test(broken_frames_and_the_end_of_the_socket_end_it),
		cmocka_unit_test(faults_are_seen),
	};
	return cmocka_run_group_tests_name("worker/worker", tests, load_contract, drop_contract);
}
