/* memory.copy inside a worker, which is done in steps: every byte arrives, ranges that overlap as a whole are refused,
 * and of one that takes long it is told how far it is. */
#include "tests/engine/worker/worker_test.h"

#include <signal.h>

enum { MIB = 1024 * 1024, FROM = 1, TO = 2, ROOM = 150 * MIB, MATRICES = 3, LAUNCHES = 16 };

static void open_with_memory(struct worker *worker)
{
	worker_start(worker, NULL);
	CALL_STATUS(worker, worker->node, "worker.open", STATUS_OK, "'backend':'cpu','cache_directory':null");
	CALL_STATUS(worker, worker->node, "worker.device", STATUS_OK, "'device':0,'hardware_key':'cpu'");
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':%d,'bytes':%d", FROM, ROOM);
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':%d,'bytes':%d", TO, ROOM);
	// Each MiB its own value: what lands at another place shows.
	for (int i = 0; i < ROOM / MIB; i++)
		SERVER_CALL(worker, "memory.fill", STATUS_OK, "'handle':%d,'offset':%d,'bytes':%d,'value':%d", FROM,
			    i * MIB, MIB, i + 1);
}

// Copy, passing over how far it is told to be. "": it is refused, as invalid_params; else by which path.
static void copy(struct worker *worker, const int from[2], const int to[2], int bytes, const char *path)
{
	struct answer answer;
	const int id = post(worker, worker->server, "memory.copy", NULL, 0,
			    "'from':%d,'from_offset':%d,'to':%d,'to_offset':%d,'bytes':%d", from[0], from[1], to[0],
			    to[1], bytes);
	for (bool answered = false; !answered;) {
		assert_true(receive_answer(worker->server, &answer));
		answered = answer.message.kind != MESSAGE_NOTIFICATION;
		if (answered) {
			assert_int_equal(json_get_integer(answer.message.head, "id", 0), id);
			assert_string_equal(status_word(answer.status),
					    status_word(*path ? STATUS_OK : STATUS_INVALID_PARAMS));
			assert_string_equal(json_get_string(answer.message.result, "path", ""), path);
			assert_int_equal(json_get_integer(answer.message.result, "bytes", -1), *path ? bytes : -1);
		}
		answer_finish(&answer);
	}
}

// Whether `bytes` at `offset` of `handle` are what FROM had at `from`.
static void check(struct worker *worker, int handle, int offset, int from, int bytes)
{
	for (int done = 0; done < bytes; done += MIB) {
		struct answer answer;
		int id = post(worker, worker->server, "memory.read", NULL, 0, "'handle':%d,'offset':%d,'bytes':%d",
			      handle, offset + done, bytes - done < MIB ? bytes - done : MIB);
		expect(worker->server, &answer, id, "memory.read", STATUS_OK);
		const uint8_t *body = answer.message.body;
		const int count = (int)answer.message.body_bytes;
		for (int i = 0, end; i < count; i = end) { // what is of one MiB is all the same
			const int value = (from + done + i) / MIB + 1, next = value * MIB - from - done;
			end = next < count ? next : count;
			if (body[i] != value || memcmp(body + i, body + i + 1, (size_t)(end - i - 1)) != 0)
				fail_msg("%d bytes behind %d are not all %d", end - i, offset + done + i, value);
		}
		answer_finish(&answer);
	}
}

static void every_byte_arrives(void **state)
{
	struct worker worker;
	(void)state;
	open_with_memory(&worker);
	copy(&worker, (int[]){FROM, 3}, (int[]){TO, 5}, ROOM - 9, "device");
	check(&worker, TO, 5, 3, ROOM - 9);
	copy(&worker, (int[]){FROM, 0}, (int[]){TO, 0}, 0, "device");
	// The steps of this one would not overlap, but it does.
	copy(&worker, (int[]){FROM, 0}, (int[]){FROM, 70 * MIB}, 71 * MIB, "");
	copy(&worker, (int[]){FROM, 0}, (int[]){FROM, 70 * MIB}, 70 * MIB, "device");
	check(&worker, FROM, 70 * MIB, 0, 70 * MIB);
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

// The processor, opened twice, stands for two devices without a link.
static void between_two_devices_every_byte_arrives(void **state)
{
	enum { THERE = 9 };
	struct worker worker;
	(void)state;
	open_with_memory(&worker);
	CALL_STATUS(&worker, worker.node, "worker.device", STATUS_OK, "'device':1,'hardware_key':'cpu'");
	SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':1,'handle':%d,'bytes':%d", THERE, ROOM);
	copy(&worker, (int[]){FROM, 7}, (int[]){THERE, 1}, ROOM - 8, "staged");
	check(&worker, THERE, 1, 7, ROOM - 8);
	copy(&worker, (int[]){FROM, 0}, (int[]){THERE, 0}, 0, "staged");
	copy(&worker, (int[]){FROM, 1}, (int[]){THERE, 0}, ROOM, "");
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

static int post_product(struct worker *worker, int n)
{
	return post(worker, worker->server, "compute.launch", NULL, 0,
		    "'module':1,'kernel':'matmul_f32','args':[{'handle':3},{'handle':4},{'handle':5},{'u64':%d},"
		    "{'u64':%d},{'u64':%d}],'timeout_ms':600000",
		    n, n, n);
}

// How large a product must be to take a tenth of a second, by the fastest of three.
static int long_product(struct worker *worker)
{
	struct answer answer;
	for (int n = 128;; n *= 2) {
		double fastest = 1e12;
		for (int i = 0; i < MATRICES; i++)
			SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':%d,'bytes':%d", 3 + i,
				    4 * n * n);
		for (int i = 0; i < 3; i++) {
			int id = post_product(worker, n);
			expect(worker->server, &answer, id, "compute.launch", STATUS_OK);
			double us = json_get_number(answer.message.result, "device_us", -1);
			fastest = us < fastest ? us : fastest;
			answer_finish(&answer);
		}
		if (fastest > 100000 || n == 4096)
			return n;
		for (int i = 0; i < MATRICES; i++)
			SERVER_CALL(worker, "memory.free", STATUS_OK, "'handle':%d", 3 + i);
	}
}

// Behind kernels in the device's stream, which keep it waiting.
static void a_long_one_is_told(void **state)
{
	struct worker worker;
	struct answer answer;
	int64_t told = 0;
	(void)state;
	open_with_memory(&worker);
	SERVER_CALL(&worker, "compute.load", STATUS_OK, "'device':0,'module':1,'format':'builtin'");
	const int n = long_product(&worker);
	for (int i = 0; i < LAUNCHES; i++)
		post_product(&worker, n);
	const int id = post(&worker, worker.server, "memory.copy", NULL, 0,
			    "'from':%d,'from_offset':0,'to':%d,'to_offset':0,'bytes':%d", FROM, TO, ROOM);
	for (int answered = id - LAUNCHES; answered <= id;) {
		assert_true(receive_answer(worker.server, &answer));
		if (answer.message.kind == MESSAGE_NOTIFICATION) {
			assert_string_equal(answer.message.method, "memory.moved");
			assert_int_equal(contract_check_params(contract, contract_find(contract, "memory.moved"),
							       answer.message.params, NULL),
					 STATUS_OK);
			assert_int_equal(json_get_integer(answer.message.params, "call", 0), id);
			int64_t now = json_get_integer(answer.message.params, "done_bytes", -1);
			assert_true(now > told && now < ROOM);
			told = now;
		} else {
			assert_int_equal(json_get_integer(answer.message.head, "id", 0), answered++);
			assert_int_equal(answer.status, STATUS_OK);
		}
		answer_finish(&answer);
	}
	assert_true(told > 0);
	check(&worker, TO, 0, 0, ROOM);
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_arrives),
		cmocka_unit_test(between_two_devices_every_byte_arrives),
		cmocka_unit_test(a_long_one_is_told),
	};
	return cmocka_run_group_tests(tests, load_contract, drop_contract);
}
