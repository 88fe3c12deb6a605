/* A worker of a session under test: the real binary, with the test as its node on one socket and as its server on the
 * other. Every answer of a call is checked against the contract. */
#pragma once
#include "common/base/limits.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "engine/node/workers/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
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

struct worker {
	pid_t pid;
	int node, server, errors; // the test's ends; what it prints to standard error
	int id;                   // of the newest call
};

// An answer; frame is what it was decoded from, and body points into it.
struct answer {
	struct message message;
	uint8_t *frame;
	enum status status; // STATUS_OK or the error's
};

static struct contract *contract;
static int worker_model = -1;         // what workers get as descriptor 5; -1: nothing
static int worker_ring[2] = {-1, -1}; // and with it as descriptors 6 and 7

static void worker_start(struct worker *worker, const char *fault)
{
	int node[2], server[2], errors[2];
	struct timeval patience = {.tv_sec = 60};
	*worker = (struct worker){0};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, node), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, server), 0);
	assert_int_equal(pipe(errors), 0);
	setsockopt(node[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(server[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	worker->pid = fork();
	assert_true(worker->pid >= 0);
	if (!worker->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fault)
			setenv("EXOGPU_FAULT", fault, 1);
		int last = dup2(errors[1], 2);
		int high[2] = {dup2(node[1], 60), dup2(server[1], 61)}, first = 5;
		int ring[2] = {-1, -1};
		for (int i = 0; i < 2 && worker_ring[0] >= 0; i++)
			ring[i] = dup2(worker_ring[i], 58 + i);
		if (worker_model >= 0)
			first = dup2(dup2(worker_model, 62), 5) + 1;
		for (int i = 0; i < 2 && ring[0] >= 0; i++)
			first = dup2(ring[i], 6 + i) + 1;
		if (last < 0 || first < 5 || dup2(high[0], 3) < 0 || dup2(high[1], 4) < 0)
			_exit(126);
		for (int i = first; i < 64; i++)
			close(i);
		execl(EXOGPU_BINARY, "exogpu", "worker", NULL);
		_exit(127);
	}
	close(node[1]);
	close(server[1]);
	close(errors[1]);
	worker->node = node[0];
	worker->server = server[0];
	worker->errors = errors[0];
}

// As the node starts it: in namespaces of its own, with the environment that a worker gets. The test's standard error
// is read by worker_end as ever.
static inline void worker_start_alone(struct worker *worker)
{
	int node[2], server[2], errors[2];
	struct timeval patience = {.tv_sec = 60};
	*worker = (struct worker){0};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, node), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, server), 0);
	assert_int_equal(pipe2(errors, O_CLOEXEC), 0);
	setsockopt(node[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	const struct spawn spawn = {
		.program = EXOGPU_BINARY,
		.errors = fcntl(errors[1], F_DUPFD_CLOEXEC, 20),
		.given = {fcntl(node[1], F_DUPFD_CLOEXEC, 20), fcntl(server[1], F_DUPFD_CLOEXEC, 20),
			  worker_model >= 0 ? fcntl(worker_model, F_DUPFD_CLOEXEC, 20) : -1, -1, -1},
		.alone = true};
	assert_int_equal(spawn_worker(&spawn, &worker->pid), 0);
	close(spawn.errors);
	close(spawn.given[0]);
	close(spawn.given[1]);
	if (spawn.given[2] >= 0)
		close(spawn.given[2]);
	close(node[1]);
	close(server[1]);
	close(errors[1]);
	worker->node = node[0];
	worker->server = server[0];
	worker->errors = errors[0];
}

// Its exit status, or minus the signal that ended it. `text` (may be NULL): what it printed.
static int worker_end(struct worker *worker, char *text, size_t capacity)
{
	int wait_status;
	size_t length = 0;
	ssize_t got = 1;
	close(worker->node);
	close(worker->server);
	while (text && length + 1 < capacity && (got = read(worker->errors, text + length, capacity - length - 1)) > 0)
		length += (size_t)got;
	if (text)
		text[length] = 0;
	close(worker->errors);
	assert_int_equal(waitpid(worker->pid, &wait_status, 0), worker->pid);
	return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -WTERMSIG(wait_status);
}

static void send_bytes(int fd, const void *bytes, size_t length)
{
	for (size_t sent = 0; sent < length;) {
		ssize_t wrote = send(fd, (const uint8_t *)bytes + sent, length - sent, MSG_NOSIGNAL);
		assert_true(wrote > 0);
		sent += (size_t)wrote;
	}
}

// Send a call; `params` as printf, with ' for ". Returns its id.
__attribute__((format(printf, 6, 7))) static int post(struct worker *worker, int fd, const char *method,
						      const void *body, size_t body_bytes, const char *params, ...)
{
	struct buffer head, out;
	va_list list;
	char text[4096];
	va_start(list, params);
	vsnprintf(text, sizeof(text), params, list);
	va_end(list);
	for (char *at = text; *at; at++)
		*at = *at == '\'' ? '"' : *at;
	buffer_init(&head, LIMIT_HEAD_BYTES);
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	buffer_printf(&head, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":{%s}}", ++worker->id, method,
		      text);
	assert_int_equal(message_encode_stream(&out, buffer_text(&head), head.length, body, body_bytes), STATUS_OK);
	send_bytes(fd, out.data, out.length);
	buffer_finish(&head);
	buffer_finish(&out);
	return worker->id;
}

static bool receive_bytes(int fd, uint8_t *to, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = recv(fd, to + done, length - done, 0);
		if (got < 0)
			print_error("receiving: %s\n", strerror(errno));
		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

// False if the stream ended instead. Messages without a head are passed over: they only wake.
static bool receive_answer(int fd, struct answer *answer)
{
	uint32_t total; // the tests run on little-endian machines, like the program
	struct error error = {0};
	*answer = (struct answer){0};
	do
		if (!receive_bytes(fd, (uint8_t *)&total, 4))
			return false;
	while (total == 4 && receive_bytes(fd, (uint8_t *)&total, 4) && !total);
	assert_true(total >= 4 && total <= LIMIT_WORKER_MESSAGE_BYTES);
	answer->frame = malloc(total);
	assert_non_null(answer->frame);
	if (!receive_bytes(fd, answer->frame, total))
		return false;
	assert_int_equal(message_decode(&answer->message, answer->frame, total, NULL), STATUS_OK);
	if (answer->message.kind == MESSAGE_ERROR) {
		message_read_error(&answer->message, &error);
		assert_true(error.message[0]);
		answer->status = error.status;
	}
	return true;
}

static void answer_finish(struct answer *answer)
{
	message_finish(&answer->message);
	free(answer->frame);
	*answer = (struct answer){0};
}

// The answer to call `id` of `method`: of this status, and as the contract has it.
static void expect(int fd, struct answer *answer, int id, const char *method, enum status status)
{
	struct error error = {0};
	assert_true(receive_answer(fd, answer));
	assert_int_equal(json_get_integer(answer->message.head, "id", 0), id);
	if (answer->status != status)
		print_error("%s: %s\n", method, json_get_string(answer->message.error, "message", "done"));
	assert_string_equal(status_word(answer->status), status_word(status));
	if (!status && contract_check_result(contract, contract_find(contract, method), answer->message.result, &error))
		print_error("%s: %s\n", method, error.message);
	assert_string_equal(error.message, "");
}

#define CALL_STATUS(worker, fd, method, status, ...) \
	do { \
		struct answer one_; \
		int id_ = post(worker, fd, method, NULL, 0, __VA_ARGS__); \
		expect(fd, &one_, id_, method, status); \
		answer_finish(&one_); \
	} while (0)
#define SERVER_CALL(worker, method, status, ...) CALL_STATUS(worker, (worker)->server, method, status, __VA_ARGS__)

// worker.open and one device, number 0.
static inline void worker_open(struct worker *worker, const char *fault, const char *backend, const char *key)
{
	worker_start(worker, fault);
	CALL_STATUS(worker, worker->node, "worker.open", STATUS_OK,
		    "'backend':'%s','cache_directory':null,'memory_limit_bytes':67108864", backend);
	CALL_STATUS(worker, worker->node, "worker.device", STATUS_OK, "'device':0,'hardware_key':'%s'", key);
}

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
