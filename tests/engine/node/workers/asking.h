/* What the tests of a node's workers have in common: calls to the node and their answers, the streams that its workers
 * dial, and a node whose devices are verified and measured. */
#pragma once
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

static inline void heard(const struct message *message)
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

static inline bool all_answered(const struct bench *all)
{
	(void)all;
	for (int id = awaited; id <= last_call; id++)
		if (!answers[id].come)
			return false;
	return true;
}

static inline bool told_of_an_end(const struct bench *all)
{
	(void)all;
	return ends > 0;
}

// Send a call; its number. `more` are further parameters, each with a comma before it.
static inline int send_call(const char *method, const char *worker_id, const char *more)
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
static inline struct answer *ask(const char *method, const char *worker_id, const char *more)
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

static inline struct answer *ask_well(const char *method, const char *worker_id, const char *more)
{
	struct answer *answer = ask(method, worker_id, more);
	if (answer->failed)
		fail_msg("%s: %s", method, answer->error.message);
	return answer;
}

static inline void ask_ill(const char *method, const char *worker_id, const char *more, enum status status)
{
	struct answer *answer = ask(method, worker_id, more);
	if (!answer->failed || answer->error.status != status)
		fail_msg("%s: %s, expected %s", method,
			 answer->failed ? status_word(answer->error.status) : "it was done", status_word(status));
}

static inline struct answer *open_worker(const char *worker_id)
{
	return ask_well("tenant.open", worker_id, ",\"key\":\"secret\",\"backend\":\"cpu\"");
}

static inline const char *device_parameters(const char *backend, int device)
{
	static char text[160];
	snprintf(text, sizeof(text), ",\"device_id\":\"%s\",\"device\":%d",
		 json_get_string(device_of(&bench, backend), "device_id", "dev_none"), device);
	return text;
}

// The stream's first message: link.hello. Its sender has written it before anybody reads.
static inline void take_hello(int fd)
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

static inline void stream_waits(void *arg, int fd)
{
	int stream;
	(void)arg;
	while ((stream = accept(fd, NULL, NULL)) >= 0) {
		assert_true(stream_count < STREAMS);
		take_hello(stream);
	}
}

static inline bool stream_ended(const char *worker_id)
{
	char byte;
	for (int i = 0; i < stream_count; i++)
		if (!strcmp(streams[i].worker_id, worker_id))
			return recv(streams[i].fd, &byte, 1, MSG_DONTWAIT) == 0;
	return false;
}

// The process of the newest worker; 0 if there is none.
static inline pid_t newest_worker(void)
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

static inline bool few_descriptors(const struct bench *all)
{
	(void)all;
	return count_descriptors() <= most_descriptors;
}

static inline void wait_for_descriptors(int most)
{
	most_descriptors = most;
	wait_for(few_descriptors);
}

// The node, its devices verified and measured, so that no other worker runs.
static inline bool cpu_settled(const struct bench *all)
{
	return cpu_passed(all) && json_get_number(device_of(all, "cpu"), "memory_bandwidth_bytes_per_s", 0) > 0;
}

static inline void start_settled(void)
{
	start_node(NULL, "cpu");
	wait_for(cpu_settled);
	wait_for(no_worker);
}

static inline int begin(void **state)
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

static inline int end(void **state)
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
