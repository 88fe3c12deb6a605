/* Channels between two workers of a session, each a process with the test as its node and its server: what arrives,
 * both ways at once, what ends them, and what a hostile other end gets. */
#include "tests/engine/worker/channel_test.h"

#include <signal.h>

enum { MIB = 1024 * 1024, PIECE = 256 * 1024, HANDLE = 5, ROOM = 66 * MIB };

static uint8_t *pattern(size_t bytes, unsigned seed)
{
	uint8_t *out = malloc(bytes);
	assert_non_null(out);
	for (size_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
	return out;
}

static void open_with_memory(struct worker *worker)
{
	worker_start(worker, NULL);
	CALL_STATUS(worker, worker->node, "worker.open", STATUS_OK,
		    "'backend':'cpu','cache_directory':null,'memory_limit_bytes':134217728");
	CALL_STATUS(worker, worker->node, "worker.device", STATUS_OK, "'device':0,'hardware_key':'cpu'");
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':%d,'bytes':%d", HANDLE, ROOM);
}

static void fill(struct worker *worker, const uint8_t *bytes, size_t length)
{
	struct answer answer;
	for (size_t at = 0; at < length; at += 16 * MIB) {
		size_t piece = length - at < 16 * MIB ? length - at : 16 * MIB;
		int id = post(worker, worker->server, "memory.write", bytes + at, piece, "'handle':%d,'offset':%zu",
			      HANDLE, at);
		expect(worker->server, &answer, id, "memory.write", STATUS_OK);
		answer_finish(&answer);
	}
}

static void check(struct worker *worker, size_t offset, const uint8_t *wanted, size_t length)
{
	struct answer answer;
	for (size_t at = 0; at < length; at += 16 * MIB) {
		size_t piece = length - at < 16 * MIB ? length - at : 16 * MIB;
		int id = post(worker, worker->server, "memory.read", NULL, 0, "'handle':%d,'offset':%zu,'bytes':%zu",
			      HANDLE, offset + at, piece);
		expect(worker->server, &answer, id, "memory.read", STATUS_OK);
		assert_int_equal(answer.message.body_bytes, piece);
		assert_memory_equal(answer.message.body, wanted + at, piece);
		answer_finish(&answer);
	}
}

// As one hop of one node: what the one writes the other reads.
static void connect_two(struct worker *from, struct worker *to, const char *channel)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	give_channel(from, channel, "out", pair[0], STATUS_OK);
	give_channel(to, channel, "in", pair[1], STATUS_OK);
}

static int ask(struct worker *worker, const char *method, const char *channel, size_t offset, size_t bytes)
{
	return post(worker, worker->server, method, NULL, 0, "'channel':'%s','handle':%d,'offset':%zu,'bytes':%zu",
		    channel, HANDLE, offset, bytes);
}

// How many bytes the answer says; what is told meanwhile is passed over, and must not go back.
static int64_t moved(struct worker *worker, int id, const char *method)
{
	struct answer answer;
	int64_t told = 0;
	for (;;) {
		assert_true(receive_answer(worker->server, &answer));
		if (answer.message.kind != MESSAGE_NOTIFICATION)
			break;
		assert_string_equal(answer.message.method, "memory.moved");
		int64_t now = json_get_integer(answer.message.params, "done_bytes", -1);
		assert_true(now >= told);
		told = now;
		answer_finish(&answer);
	}
	assert_int_equal(json_get_integer(answer.message.head, "id", 0), id);
	assert_string_equal(status_word(answer.status), status_word(STATUS_OK));
	assert_int_equal(contract_check_result(contract, contract_find(contract, method), answer.message.result, NULL),
			 0);
	int64_t bytes = json_get_integer(answer.message.result, "bytes", -1);
	answer_finish(&answer);
	assert_true(told <= bytes);
	return bytes;
}

// ---- what arrives ----

static void every_size_arrives(void **state)
{
	static const size_t sizes[] = {1, 3, 4095, PIECE, PIECE + 1, 5 * MIB + 7, 64 * MIB};
	struct worker one, two;
	uint8_t *bytes = pattern(64 * MIB, 1);
	(void)state;
	open_with_memory(&one);
	open_with_memory(&two);
	fill(&one, bytes, 64 * MIB);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char channel[24];
		snprintf(channel, sizeof(channel), "cpy_%zu", i);
		connect_two(&one, &two, channel);
		int in = ask(&two, "memory.receive", channel, i + 3, sizes[i]);
		int out = ask(&one, "memory.send", channel, 0, sizes[i]);
		assert_int_equal(moved(&two, in, "memory.receive"), sizes[i]);
		assert_int_equal(moved(&one, out, "memory.send"), sizes[i]);
		check(&two, i + 3, bytes, sizes[i]);
	}
	assert_int_equal(worker_end(&one, NULL, 0), 0);
	assert_int_equal(worker_end(&two, NULL, 0), 0);
	free(bytes);
}

static void both_ways_at_once(void **state)
{
	struct worker one, two;
	uint8_t *first = pattern(32 * MIB, 1), *second = pattern(32 * MIB, 99);
	(void)state;
	open_with_memory(&one);
	open_with_memory(&two);
	fill(&one, first, 32 * MIB);
	fill(&two, second, 32 * MIB);
	connect_two(&one, &two, "cpy_there");
	connect_two(&two, &one, "cpy_back");
	// The answers of a worker come in any order: each is waited for at its own.
	int in[2] = {ask(&two, "memory.receive", "cpy_there", 33 * MIB, 32 * MIB),
		     ask(&one, "memory.receive", "cpy_back", 33 * MIB, 32 * MIB)};
	int out[2] = {ask(&one, "memory.send", "cpy_there", 0, 32 * MIB),
		      ask(&two, "memory.send", "cpy_back", 0, 32 * MIB)};
	struct worker *both[2] = {&two, &one};
	for (int i = 0; i < 2; i++)
		for (int answers = 0; answers < 2;) {
			struct answer answer;
			assert_true(receive_answer(both[i]->server, &answer));
			if (answer.message.kind != MESSAGE_NOTIFICATION) {
				int64_t id = json_get_integer(answer.message.head, "id", 0);
				assert_true(id == in[i] || id == out[!i]);
				assert_int_equal(json_get_integer(answer.message.result, "bytes", -1), 32 * MIB);
				answers++;
			}
			answer_finish(&answer);
		}
	check(&two, 33 * MIB, first, 32 * MIB);
	check(&one, 33 * MIB, second, 32 * MIB);
	assert_int_equal(worker_end(&one, NULL, 0), 0);
	assert_int_equal(worker_end(&two, NULL, 0), 0);
	free(first);
	free(second);
}

// Its driver is free for all else: what is asked while a channel stands still is answered at once.
static void a_channel_that_stands_still_holds_nobody_up(void **state)
{
	struct worker one;
	int pair[2];
	uint8_t *bytes = pattern(MIB, 4);
	(void)state;
	open_with_memory(&one);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	give_channel(&one, "cpy_still", "out", pair[0], STATUS_OK);
	int out = ask(&one, "memory.send", "cpy_still", 0, 64 * MIB);
	fill(&one, bytes, MIB);
	check(&one, 0, bytes, MIB);
	close(pair[1]);
	assert_true(moved(&one, out, "memory.send") < 64 * MIB);
	assert_int_equal(worker_end(&one, NULL, 0), 0);
	free(bytes);
}

// However the node's messages are cut: the end of the one lies before the worker together with all of the next.
static void each_channel_has_its_own_descriptor(void **state)
{
	struct worker one;
	struct answer answer;
	int pairs[2][2];
	int ids[2];
	(void)state;
	open_with_memory(&one);
	for (int i = 0; i < 2; i++)
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[i]), 0);
	kill(one.pid, SIGSTOP);
	ids[0] = post_channel(&one, "cpy_0", "out", pairs[0][0], 10);
	ids[1] = post_channel(&one, "cpy_1", "out", pairs[1][0], SIZE_MAX);
	kill(one.pid, SIGCONT);
	for (int i = 0; i < 2; i++) {
		expect(one.node, &answer, ids[i], "worker.channel", STATUS_OK);
		answer_finish(&answer);
	}
	for (int i = 0; i < 2; i++) {
		char byte;
		int out = ask(&one, "memory.send", i ? "cpy_1" : "cpy_0", 0, 10);
		assert_int_equal(recv(pairs[i][1], &byte, 1, 0), 1);
		close(pairs[i][1]);
		assert_int_equal(moved(&one, out, "memory.send"), 10);
	}
	assert_int_equal(worker_end(&one, NULL, 0), 0);
}

// ---- what ends them ----

static void memory_that_is_freed_ends_the_copy(void **state)
{
	struct worker one, two;
	struct answer answer;
	(void)state;
	open_with_memory(&one);
	open_with_memory(&two);
	connect_two(&one, &two, "cpy_freed");
	int in = ask(&two, "memory.receive", "cpy_freed", 0, 64 * MIB);
	SERVER_CALL(&one, "memory.free", STATUS_OK, "'handle':%d", HANDLE);
	int out = ask(&one, "memory.send", "cpy_freed", 0, 64 * MIB);
	expect(one.server, &answer, out, "memory.send", STATUS_NOT_FOUND);
	answer_finish(&answer);
	assert_int_equal(moved(&two, in, "memory.receive"), 0);
	// And while it is received into.
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	give_channel(&two, "cpy_into", "in", pair[0], STATUS_OK);
	in = ask(&two, "memory.receive", "cpy_into", 0, MIB);
	SERVER_CALL(&two, "memory.free", STATUS_OK, "'handle':%d", HANDLE);
	uint8_t *bytes = pattern(PIECE, 0);
	for (int i = 0; i < 4; i++) {
		struct buffer out_bytes;
		char head[96];
		int length = snprintf(head, sizeof(head),
				      "{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{\"offset\":%d}}",
				      i * PIECE);
		buffer_init(&out_bytes, MIB);
		assert_int_equal(message_encode_stream(&out_bytes, head, (size_t)length, bytes, PIECE), STATUS_OK);
		send_bytes(pair[1], out_bytes.data, out_bytes.length);
		buffer_finish(&out_bytes);
	}
	expect(two.server, &answer, in, "memory.receive", STATUS_NOT_FOUND);
	answer_finish(&answer);
	close(pair[1]);
	free(bytes);
	assert_int_equal(worker_end(&one, NULL, 0), 0);
	assert_int_equal(worker_end(&two, NULL, 0), 0);
}

static void a_worker_that_dies_ends_the_other_s_call_only(void **state)
{
	struct worker one, two;
	(void)state;
	open_with_memory(&one);
	open_with_memory(&two);
	connect_two(&one, &two, "cpy_dies");
	int in = ask(&two, "memory.receive", "cpy_dies", 0, MIB);
	kill(one.pid, SIGKILL);
	assert_int_equal(moved(&two, in, "memory.receive"), 0);
	SERVER_CALL(&two, "memory.fill", STATUS_OK, "'handle':%d,'offset':0,'bytes':1,'value':1", HANDLE);
	assert_int_equal(worker_end(&one, NULL, 0), -SIGKILL);
	assert_int_equal(worker_end(&two, NULL, 0), 0);
}

static void ranges_and_channels_are_checked(void **state)
{
	struct worker one;
	struct answer answer;
	int pair[2];
	(void)state;
	open_with_memory(&one);
	assert_int_equal(moved(&one, ask(&one, "memory.send", "cpy_none", 0, 10), "memory.send"), 0);
	give_channel(&one, "cpy_without", "out", -1, STATUS_UNAVAILABLE);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	give_channel(&one, "cpy_out", "out", dup(pair[0]), STATUS_OK);
	give_channel(&one, "cpy_out", "out", pair[0], STATUS_CONFLICT);
	assert_int_equal(moved(&one, ask(&one, "memory.receive", "cpy_out", 0, 10), "memory.receive"), 0);
	int id = ask(&one, "memory.send", "cpy_out", ROOM - 5, 10);
	expect(one.server, &answer, id, "memory.send", STATUS_INVALID_PARAMS);
	answer_finish(&answer);
	close(pair[1]);
	// One whose other end has gone leaves its place to another.
	for (int i = 0; i < 2 * LIMIT_WORKER_CHANNELS; i++) {
		char channel[24];
		snprintf(channel, sizeof(channel), "cpy_g%d", i);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		give_channel(&one, channel, i % 2 ? "in" : "out", pair[0], STATUS_OK);
		close(pair[1]);
	}
	int held[LIMIT_WORKER_CHANNELS + 1];
	for (int i = 0; i <= LIMIT_WORKER_CHANNELS; i++) {
		char channel[24];
		snprintf(channel, sizeof(channel), "cpy_h%d", i);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		held[i] = pair[1];
		give_channel(&one, channel, "in", pair[0],
			     i < LIMIT_WORKER_CHANNELS ? STATUS_OK : STATUS_LIMIT_EXCEEDED);
	}
	for (int i = 0; i <= LIMIT_WORKER_CHANNELS; i++)
		close(held[i]);
	assert_int_equal(worker_end(&one, NULL, 0), 0);
}

// ---- what comes ----

struct hostile {
	const char *head; // NULL: `total` and `head_bytes` alone
	uint32_t total, head_bytes;
	size_t body_bytes;
};

static void a_hostile_end_gets_nowhere(void **state)
{
	static const struct hostile all[] = {
		{NULL, 0, 0, 0},
		{NULL, UINT32_MAX, UINT32_MAX, 0},
		{NULL, 3, 0, 0},
		{NULL, 100, 97, 0},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{\"offset\":1}}", 0, 0, PIECE},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{\"offset\":-1}}", 0, 0, PIECE},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{}}", 0, 0, PIECE},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{\"offset\":0}}", 0, 0, PIECE + 1},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{\"offset\":0}}", 0, 0, PIECE - 1},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{\"offset\":0}}", 0, 0, 0},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"copy.data\",\"params\":{\"offset\":0}}", 0, 0, PIECE},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"memory.free\",\"params\":{\"handle\":5}}", 0, 0, PIECE},
		{"not JSON", 0, 0, PIECE},
	};
	struct worker one;
	uint8_t *bytes = pattern(PIECE + 1, 7), *zeros = calloc(1, MIB);
	(void)state;
	assert_non_null(zeros);
	open_with_memory(&one);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char channel[24];
		int pair[2];
		struct buffer out;
		snprintf(channel, sizeof(channel), "cpy_%zu", i);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		give_channel(&one, channel, "in", pair[0], STATUS_OK);
		int in = ask(&one, "memory.receive", channel, 0, MIB);
		buffer_init(&out, MIB);
		if (all[i].head)
			assert_int_equal(
				message_encode_stream(&out, all[i].head, strlen(all[i].head), bytes, all[i].body_bytes),
				STATUS_OK);
		else
			buffer_append(&out, (const uint32_t[2]){all[i].total, all[i].head_bytes}, 8);
		// It may have closed its end before all of this is sent.
		for (size_t sent = 0; sent < out.length;) {
			ssize_t wrote = send(pair[1], out.data + sent, out.length - sent, MSG_NOSIGNAL);
			if (wrote <= 0)
				break;
			sent += (size_t)wrote;
		}
		assert_int_equal(moved(&one, in, "memory.receive"), 0);
		buffer_finish(&out);
		close(pair[1]);
	}
	check(&one, 0, zeros, MIB);
	assert_int_equal(worker_end(&one, NULL, 0), 0);
	free(bytes);
	free(zeros);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size_arrives),
		cmocka_unit_test(both_ways_at_once),
		cmocka_unit_test(a_channel_that_stands_still_holds_nobody_up),
		cmocka_unit_test(each_channel_has_its_own_descriptor),
		cmocka_unit_test(memory_that_is_freed_ends_the_copy),
		cmocka_unit_test(a_worker_that_dies_ends_the_other_s_call_only),
		cmocka_unit_test(ranges_and_channels_are_checked),
		cmocka_unit_test(a_hostile_end_gets_nowhere),
	};
	return cmocka_run_group_tests(tests, load_contract, drop_contract);
}
