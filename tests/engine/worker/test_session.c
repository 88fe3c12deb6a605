/* A session's worker from outside: memory and compute of a device over its two sockets, on the CPU and on every Vulkan
 * device that is here, what is refused, and how it ends. What its sandbox refuses: test_escape.c. */
#include "engine/worker/worker.h"
#include "tests/engine/worker/find_vulkan.h"

#include <signal.h>

enum { MIB = 1024 * 1024 };

static uint8_t *pattern(size_t bytes, unsigned seed)
{
	uint8_t *out = malloc(bytes);
	assert_non_null(out);
	for (size_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
	return out;
}

static void check_read(struct worker *worker, unsigned handle, size_t offset, const uint8_t *wanted, size_t bytes)
{
	struct answer answer;
	int id = post(worker, worker->server, "memory.read", NULL, 0, "'handle':%u,'offset':%zu,'bytes':%zu", handle,
		      offset, bytes);
	expect(worker->server, &answer, id, "memory.read", STATUS_OK);
	assert_int_equal(answer.message.body_bytes, bytes);
	if (bytes)
		assert_memory_equal(answer.message.body, wanted, bytes);
	answer_finish(&answer);
}

// Writes with all of them under way at once, sizes from nothing to the largest body, read back in between.
static void write_and_read(struct worker *worker)
{
	static const size_t sizes[] = {0, 1, 3, 4095, 256 * 1024, 256 * 1024 + 1, 5 * MIB + 7, 16 * MIB};
	enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
	uint8_t *bytes = pattern(16 * MIB, 1);
	struct answer answer;
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':7,'bytes':%d", 17 * MIB);
	for (size_t i = 0; i < COUNT; i++) {
		int id = post(worker, worker->server, "memory.write", bytes, sizes[i], "'handle':7,'offset':%zu", i);
		expect(worker->server, &answer, id, "memory.write", STATUS_OK);
		assert_int_equal(json_get_integer(answer.message.result, "bytes", -1), sizes[i]);
		answer_finish(&answer);
		check_read(worker, 7, i, bytes, sizes[i]);
	}
	int first = worker->id + 1;
	for (unsigned i = 0; i < 16; i++)
		post(worker, worker->server, "memory.write", bytes + i, MIB, "'handle':7,'offset':%u", i * MIB);
	post(worker, worker->server, "memory.read", NULL, 0, "'handle':7,'offset':%d,'bytes':100", 15 * MIB);
	for (int i = 0; i < 16; i++) {
		expect(worker->server, &answer, first + i, "memory.write", STATUS_OK);
		answer_finish(&answer);
	}
	expect(worker->server, &answer, first + 16, "memory.read", STATUS_OK);
	assert_memory_equal(answer.message.body, bytes + 15, 100);
	answer_finish(&answer);
	for (unsigned i = 0; i < 16; i++)
		check_read(worker, 7, (size_t)i * MIB, bytes + i, MIB);
	SERVER_CALL(worker, "memory.free", STATUS_OK, "'handle':7");
	free(bytes);
}

static void zeroed_filled_and_copied(struct worker *worker)
{
	uint8_t *zeros = calloc(1, MIB), *bytes = pattern(MIB, 2);
	assert_true(zeros && bytes);
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':%d", MIB + 1);
	check_read(worker, 1, 1, zeros, MIB);
	SERVER_CALL(worker, "memory.fill", STATUS_OK, "'handle':1,'offset':0,'bytes':%d,'value':255", MIB + 1);
	memset(bytes, 255, MIB);
	check_read(worker, 1, 0, bytes, MIB);
	SERVER_CALL(worker, "memory.free", STATUS_OK, "'handle':1");
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':2,'bytes':%d", MIB + 1);
	check_read(worker, 2, 0, zeros, MIB);
	SERVER_CALL(worker, "memory.fill", STATUS_OK, "'handle':2,'offset':3,'bytes':5,'value':9");
	SERVER_CALL(worker, "memory.copy", STATUS_OK, "'from':2,'from_offset':3,'to':2,'to_offset':100,'bytes':5");
	SERVER_CALL(worker, "memory.copy", STATUS_INVALID_PARAMS,
		    "'from':2,'from_offset':3,'to':2,'to_offset':5,'bytes':5");
	memset(zeros, 9, 5);
	check_read(worker, 2, 100, zeros, 20);
	SERVER_CALL(worker, "memory.free", STATUS_OK, "'handle':2");
	free(zeros);
	free(bytes);
}

static void kernels_run(struct worker *worker)
{
	const float wanted[4] = {2.5f, 2.5f, 2.5f, 0};
	struct answer answer;
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':16");
	int id = post(worker, worker->server, "compute.load", NULL, 0, "'device':0,'module':1,'format':'builtin'");
	expect(worker->server, &answer, id, "compute.load", STATUS_OK);
	const struct json *signatures = json_get(answer.message.result, "signatures");
	assert_string_equal(json_get_string(json_first(signatures), "kernel", ""), "fill_f32");
	answer_finish(&answer);
	id = post(worker, worker->server, "compute.launch", NULL, 0,
		  "'module':1,'kernel':'fill_f32','args':[{'handle':1},{'f32':2.5},{'u64':'3'}],'timeout_ms':60000");
	expect(worker->server, &answer, id, "compute.launch", STATUS_OK);
	assert_true(json_get_number(answer.message.result, "device_us", -1) >= 0);
	answer_finish(&answer);
	check_read(worker, 1, 0, (const uint8_t *)wanted, sizeof(wanted));
	id = post(worker, worker->server, "compute.run", NULL, 0,
		  "'device':0,'kernel':'saxpy_f32','args':[{'f32s':[1,2]},{'f32s':[3,4]},{'f32':2},{'u32':2}],"
		  "'timeout_ms':60000");
	expect(worker->server, &answer, id, "compute.run", STATUS_OK);
	const struct json *sums = json_first(json_get(answer.message.result, "f32s"));
	assert_true(json_number(sums, 0) == 7 && json_number(json_next(sums), 0) == 10);
	assert_null(json_next(json_next(sums)));
	answer_finish(&answer);
	SERVER_CALL(worker, "compute.unload", STATUS_OK, "'module':1");
	SERVER_CALL(worker, "compute.unload", STATUS_NOT_FOUND, "'module':1");
	SERVER_CALL(worker, "memory.free", STATUS_OK, "'handle':1");
}

static void expect_read(struct worker *worker, int id, const uint8_t *wanted, size_t bytes)
{
	struct answer answer;
	expect(worker->server, &answer, id, "memory.read", STATUS_OK);
	assert_int_equal(answer.message.body_bytes, bytes);
	assert_memory_equal(answer.message.body, wanted, bytes);
	answer_finish(&answer);
}

// Calls that nobody waits for between them, each over what the ones before it left. The first write finds nothing under
// way, so that it goes in place where that can be; the others come while a kernel runs, or has just run.
static void one_after_the_other(struct worker *worker)
{
	enum {
		PART_AT = 300000,
		PART = 400000,
		NEXT_AT = PART_AT + 8192,
		NEXT = 100,
		LOOK_AT = PART_AT - 8192,
		LOOK = 32768
	};
	static const char *const methods[] = {"memory.write", "compute.launch", "memory.write", "memory.read",
					      "memory.write", "memory.read",    "memory.write", "memory.read"};
	uint8_t *bytes = pattern(MIB, 4), *wanted = malloc(MIB);
	const float filled = 1.25f;
	struct answer answer;
	assert_non_null(wanted);
	int first = post(worker, worker->server, "memory.allocate", NULL, 0, "'device':0,'handle':1,'bytes':%d", MIB);
	post(worker, worker->server, "compute.load", NULL, 0, "'device':0,'module':1,'format':'builtin'");
	for (int round = 0; round < 8; round++) {
		int id = post(worker, worker->server, "memory.write", bytes + round, (size_t)(MIB - round),
			      "'handle':1,'offset':0");
		post(worker, worker->server, "compute.launch", NULL, 0,
		     "'module':1,'kernel':'fill_f32','args':[{'handle':1},{'f32':1.25},{'u32':%d}],'timeout_ms':60000",
		     PART_AT / 4 + PART / 8);
		post(worker, worker->server, "memory.write", bytes, PART, "'handle':1,'offset':%d", PART_AT);
		post(worker, worker->server, "memory.read", NULL, 0, "'handle':1,'offset':%d,'bytes':%d", LOOK_AT,
		     LOOK);
		post(worker, worker->server, "memory.write", bytes + round, NEXT, "'handle':1,'offset':%d", NEXT_AT);
		post(worker, worker->server, "memory.read", NULL, 0, "'handle':1,'offset':%d,'bytes':%d", LOOK_AT,
		     LOOK);
		post(worker, worker->server, "memory.write", bytes, 4, "'handle':1,'offset':0");
		post(worker, worker->server, "memory.read", NULL, 0, "'handle':1,'offset':0,'bytes':8");
		for (int i = 0; !round && i < 2; i++) {
			expect(worker->server, &answer, first + i, i ? "compute.load" : "memory.allocate", STATUS_OK);
			answer_finish(&answer);
		}
		memcpy(wanted, bytes + round, (size_t)(MIB - round));
		for (size_t at = 0; at < PART_AT + PART / 2; at += sizeof(filled))
			memcpy(wanted + at, &filled, sizeof(filled));
		memcpy(wanted + PART_AT, bytes, PART);
		for (int i = 0; i < 8; i++, id++) {
			if (i == 5)
				memcpy(wanted + NEXT_AT, bytes + round, NEXT);
			if (i == 7)
				memcpy(wanted, bytes, 4);
			if (i == 3 || i == 5) {
				expect_read(worker, id, wanted + LOOK_AT, LOOK);
			} else if (i == 7) {
				expect_read(worker, id, wanted, 8);
			} else {
				expect(worker->server, &answer, id, methods[i], STATUS_OK);
				answer_finish(&answer);
			}
		}
		check_read(worker, 1, 0, wanted, (size_t)(MIB - round));
	}
	free(bytes);
	free(wanted);
}

// `fault` as in worker/fault.h, or NULL.
static void on_device(void (*part)(struct worker *worker), const char *fault, const char *backend, const char *key)
{
	struct worker worker;
	worker_open(&worker, fault, backend, key);
	part(&worker);
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

// In place and by pieces; a release build does the former twice.
static void on_each_device(void (*part)(struct worker *worker))
{
	on_device(part, NULL, "cpu", "cpu");
	on_device(part, "pieces:cpu", "cpu", "cpu");
	if (!vulkan_key[0])
		return;
	on_device(part, NULL, "vulkan", vulkan_key);
	on_device(part, "pieces:vulkan", "vulkan", vulkan_key);
}

static void bytes_come_back(void **state)
{
	(void)state;
	on_each_device(write_and_read);
}

static void memory_is_zeroed_filled_copied(void **state)
{
	(void)state;
	on_each_device(zeroed_filled_and_copied);
}

static void effects_keep_their_order(void **state)
{
	(void)state;
	on_each_device(one_after_the_other);
}

static void builtin_kernels_run(void **state)
{
	(void)state;
	on_each_device(kernels_run);
}

static void wrong_calls(struct worker *worker)
{
	static const struct {
		const char *method, *params;
		enum status status;
	} calls[] = {
		{"memory.allocate", "'device':0,'handle':1,'bytes':0", STATUS_INVALID_PARAMS},
		{"memory.allocate", "'device':0,'handle':1,'bytes':-1", STATUS_INVALID_PARAMS},
		{"memory.allocate", "'device':0,'handle':0,'bytes':1", STATUS_INVALID_PARAMS},
		{"memory.allocate", "'device':1,'handle':1,'bytes':1", STATUS_NOT_FOUND},
		{"memory.allocate", "'device':0,'handle':1,'bytes':67108865", STATUS_LIMIT_EXCEEDED},
		{"memory.allocate", "'device':0,'handle':1,'bytes':9007199254740991", STATUS_LIMIT_EXCEEDED},
		{"memory.allocate", "'device':0,'handle':3,'bytes':67108864", STATUS_OK},
		{"memory.allocate", "'device':0,'handle':1,'bytes':1", STATUS_LIMIT_EXCEEDED},
		{"memory.free", "'handle':3", STATUS_OK},
		{"memory.free", "'handle':3", STATUS_NOT_FOUND},
		{"memory.allocate", "'device':0,'handle':3,'bytes':1000", STATUS_OK},
		{"memory.allocate", "'device':0,'handle':3,'bytes':1", STATUS_CONFLICT},
		{"memory.read", "'handle':4,'offset':0,'bytes':1", STATUS_NOT_FOUND},
		{"memory.read", "'handle':3,'offset':1000,'bytes':1", STATUS_INVALID_PARAMS},
		{"memory.read", "'handle':3,'offset':9007199254740991,'bytes':2", STATUS_INVALID_PARAMS},
		{"memory.read", "'handle':3,'offset':0,'bytes':16777217", STATUS_INVALID_PARAMS},
		{"memory.fill", "'handle':3,'offset':1,'bytes':1000,'value':0", STATUS_INVALID_PARAMS},
		{"memory.fill", "'handle':3,'offset':0,'bytes':1,'value':256", STATUS_INVALID_PARAMS},
		{"memory.copy", "'from':3,'from_offset':0,'to':9,'to_offset':0,'bytes':1", STATUS_NOT_FOUND},
		{"memory.copy", "'from':3,'from_offset':0,'to':3,'to_offset':999,'bytes':2", STATUS_INVALID_PARAMS},
		{"memory.write", "'handle':3,'offset':1001", STATUS_INVALID_PARAMS},
		{"memory.write", "'handle':4,'offset':0", STATUS_NOT_FOUND},
		{"compute.load", "'device':0,'module':1,'format':'ptx'", STATUS_INVALID_PARAMS},
		{"compute.load", "'device':0,'module':1,'format':'wgsl'", STATUS_UNAVAILABLE},
		{"compute.load", "'device':0,'module':1,'format':'builtin'", STATUS_OK},
		{"compute.load", "'device':0,'module':1,'format':'builtin'", STATUS_CONFLICT},
		{"compute.run", "'device':1,'kernel':'sum_f32','args':[{'zeros':1}],'timeout_ms':60000",
		 STATUS_NOT_FOUND},
		{"compute.run", "'device':0,'kernel':'sum','args':[{'zeros':1}],'timeout_ms':60000", STATUS_NOT_FOUND},
		{"compute.run", "'device':0,'kernel':'sum_f32','args':[],'timeout_ms':60000", STATUS_INVALID_PARAMS},
		{"compute.run", "'device':0,'kernel':'sum_f32','args':[{'handle':3}],'timeout_ms':60000",
		 STATUS_INVALID_PARAMS},
		{"compute.run", "'device':0,'kernel':'sum_f32','args':[{'u32':1}],'timeout_ms':60000",
		 STATUS_INVALID_PARAMS},
		{"compute.run",
		 "'device':0,'kernel':'sum_f32','args':[{'zeros':1},{'f32s':[1,1e300]},{'u32':2}],'timeout_ms':60000",
		 STATUS_INVALID_PARAMS},
		{"compute.run",
		 "'device':0,'kernel':'sum_f32','args':[{'zeros':1},{'f32s':[1,2]},{'u32':3}],'timeout_ms':60000",
		 STATUS_INVALID_PARAMS},
		{"compute.run",
		 "'device':0,'kernel':'sum_f32','args':[{'zeros':1},{'f32s':[1,2]},{'u32':2}],'timeout_ms':60000",
		 STATUS_OK},
		{"compute.launch", "'module':2,'kernel':'sum_f32','args':[],'timeout_ms':60000", STATUS_NOT_FOUND},
		{"compute.launch", "'module':1,'kernel':'sum','args':[],'timeout_ms':60000", STATUS_NOT_FOUND},
		{"compute.launch", "'module':1,'kernel':'sum_f32','args':[],'timeout_ms':60000", STATUS_INVALID_PARAMS},
		{"compute.launch", "'module':1,'kernel':'sum_f32','args':[],'timeout_ms':0", STATUS_INVALID_PARAMS},
		{"compute.launch",
		 "'module':1,'kernel':'fill_f32','args':[{'handle':8},{'f32':1},{'u64':1}],'timeout_ms':60000",
		 STATUS_NOT_FOUND},
		{"compute.launch",
		 "'module':1,'kernel':'fill_f32','args':[{'handle':3},{'f32':1e300},{'u64':1}],'timeout_ms':60000",
		 STATUS_INVALID_PARAMS},
		{"compute.launch",
		 "'module':1,'kernel':'fill_f32','args':[{'handle':3},{'f32':1},{'u64':'0x1'}],'timeout_ms':60000",
		 STATUS_INVALID_PARAMS},
		{"compute.launch",
		 "'module':1,'kernel':'fill_f32','args':[{'handle':3},{'f32':1},{'u64':'18446744073709551616'}],"
		 "'timeout_ms':60000",
		 STATUS_INVALID_PARAMS},
		{"compute.launch",
		 "'module':1,'kernel':'fill_f32','args':[{'handle':3},{'f32':1},{'u64':'18446744073709551615'}],"
		 "'timeout_ms':60000",
		 STATUS_INVALID_PARAMS},
		{"compute.launch",
		 "'module':1,'kernel':'fill_f32','args':[{'f32':1},{'f32':1},{'u64':1}],'timeout_ms':60000",
		 STATUS_INVALID_PARAMS},
		{"worker.ping", "", STATUS_METHOD_NOT_FOUND},
		{"memory.dance", "", STATUS_METHOD_NOT_FOUND},
		{"memory.free", "'handle':3", STATUS_OK},
	};
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		SERVER_CALL(worker, calls[i].method, calls[i].status, "%s", calls[i].params);
	CALL_STATUS(worker, worker->node, "worker.device", STATUS_CONFLICT, "'device':0,'hardware_key':'cpu'");
	CALL_STATUS(worker, worker->node, "worker.device", STATUS_NOT_FOUND, "'device':1,'hardware_key':'none'");
	CALL_STATUS(worker, worker->node, "memory.free", STATUS_METHOD_NOT_FOUND, "'handle':3");
	CALL_STATUS(worker, worker->node, "worker.open", STATUS_CONFLICT, "'backend':'cpu','cache_directory':null");
}

// Bodies where none belongs, or for nobody, are passed over; what comes after them is answered as ever.
static void stray_bodies(struct worker *worker)
{
	uint8_t *bytes = pattern(16 * MIB, 3);
	struct answer answer;
	int id = post(worker, worker->server, "memory.write", bytes, 16 * MIB, "'handle':99,'offset':0");
	expect(worker->server, &answer, id, "memory.write", STATUS_NOT_FOUND);
	answer_finish(&answer);
	id = post(worker, worker->server, "memory.free", bytes, 70000, "'handle':99");
	expect(worker->server, &answer, id, "memory.free", STATUS_INVALID_PARAMS);
	answer_finish(&answer);
	id = post(worker, worker->server, "compute.load", bytes, MIB, "'device':0,'module':5,'format':'spirv'");
	assert_true(receive_answer(worker->server, &answer));
	assert_int_equal(json_get_integer(answer.message.head, "id", 0), id);
	assert_true(answer.status == STATUS_INVALID_PARAMS || answer.status == STATUS_UNAVAILABLE);
	answer_finish(&answer);
	send_bytes(worker->server, "\x07\0\0\0\x03\0\0\0{]}", 11);
	assert_true(receive_answer(worker->server, &answer));
	assert_int_equal(answer.status, STATUS_PARSE_ERROR);
	answer_finish(&answer);
	// Written before its allocation is known to be made, the body still finds it.
	post(worker, worker->server, "memory.allocate", NULL, 0, "'device':0,'handle':6,'bytes':%d", MIB);
	id = post(worker, worker->server, "memory.write", bytes, MIB, "'handle':6,'offset':0");
	expect(worker->server, &answer, id - 1, "memory.allocate", STATUS_OK);
	answer_finish(&answer);
	expect(worker->server, &answer, id, "memory.write", STATUS_OK);
	answer_finish(&answer);
	check_read(worker, 6, 0, bytes, MIB);
	free(bytes);
}

static void wrong_calls_get_their_reasons(void **state)
{
	(void)state;
	on_each_device(wrong_calls);
	on_each_device(stray_bodies);
}

static void broken_frames_end_it(void **state)
{
	static const char *const frames[] = {"\0\0\0\0\0\0\0\0", "\xff\xff\xff\xff\0\0\0\0", "\x08\0\0\0\x05\0\0\0",
					     "\x10\0\0\0\xff\xff\xff\x7f"};
	(void)state;
	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
		struct worker worker;
		struct answer answer;
		worker_open(&worker, NULL, "cpu", "cpu");
		send_bytes(worker.server, frames[i], 8);
		assert_false(receive_answer(worker.server, &answer));
		assert_int_equal(worker_end(&worker, NULL, 0), 1);
	}
}

static void either_socket_ends_it(void **state)
{
	(void)state;
	for (int which = 0; which < 3; which++) {
		struct worker worker;
		int wait_status = 0;
		worker_open(&worker, NULL, "cpu", "cpu");
		if (which == 2)
			kill(worker.pid, SIGTERM);
		else
			shutdown(which ? worker.server : worker.node, SHUT_RDWR);
		assert_int_equal(waitpid(worker.pid, &wait_status, 0), worker.pid);
		assert_true(which == 2 ? WIFSIGNALED(wait_status)
				       : WIFEXITED(wait_status) && !WEXITSTATUS(wait_status));
		close(worker.node);
		close(worker.server);
		close(worker.errors);
	}
}

// Nobody reads the answers: fd 4 stands still, fd 3 does not; and then all answers come.
static void a_server_that_does_not_read(void **state)
{
	enum { READS = 64 };
	struct worker worker;
	struct answer answer;
	(void)state;
	worker_open(&worker, NULL, "cpu", "cpu");
	SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':%d", MIB);
	int first = worker.id + 1;
	for (int i = 0; i < READS; i++)
		post(&worker, worker.server, "memory.read", NULL, 0, "'handle':1,'offset':0,'bytes':%d", MIB);
	for (int i = 0; i < 5; i++) {
		CALL_STATUS(&worker, worker.node, "worker.ping", STATUS_OK, "%s", "");
		usleep(10000);
	}
	int id = post(&worker, worker.node, "worker.ping", NULL, 0, "%s", "");
	expect(worker.node, &answer, id, "worker.ping", STATUS_OK);
	assert_true(json_get_number(answer.message.result, "oldest_ms", 0) > 0);
	answer_finish(&answer);
	for (int i = 0; i < READS; i++) {
		expect(worker.server, &answer, first + i, "memory.read", STATUS_OK);
		assert_int_equal(answer.message.body_bytes, MIB);
		answer_finish(&answer);
	}
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

// What the process has of the machine's memory, of its own.
static uint64_t resident_bytes(const struct worker *worker)
{
	char path[64];
	unsigned long long pages = 0, shared = 0;
	snprintf(path, sizeof(path), "/proc/%d/statm", (int)worker->pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*u %llu %llu", &pages, &shared), 2);
	fclose(file);
	return (pages - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

// Memory of the machine is there once it is given, and none is given that others were just promised.
static void machine_memory_is_promised_once(void **state)
{
	enum { BYTES = 48 * MIB };
	struct worker worker;
	struct answer answer;
	struct error error = {0};
	(void)state;
	worker_open(&worker, NULL, "cpu", "cpu");
	const uint64_t before = resident_bytes(&worker);
	SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':%d,'awaited_bytes':%d", BYTES,
		    MIB);
	assert_true(resident_bytes(&worker) >= before + BYTES - 4 * MIB); // the kernel counts roughly
	const int id = post(&worker, worker.server, "memory.allocate", NULL, 0,
			    "'device':0,'handle':2,'bytes':4096,'awaited_bytes':%lld", 1ll << 50);
	expect(worker.server, &answer, id, "memory.allocate", STATUS_OUT_OF_MEMORY);
	message_read_error(&answer.message, &error);
	assert_non_null(strstr(error.hint, "ask again in a moment"));
	answer_finish(&answer);
	SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':0,'handle':2,'bytes':4096,'awaited_bytes':0");
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

#ifdef NDEBUG
static void faults_end_it(void **state)
{
	(void)state;
	print_message("skipped: a release build injects no faults\n");
	skip();
}
#else
static void faults_end_it(void **state)
{
	static const struct {
		const char *fault;
		enum status status;
		int exit_status;
		bool queued_too;
	} faults[] = {{"launch-hang:cpu", STATUS_TIMEOUT, WORKER_TIMED_OUT, false},
		      {"launch-lost:cpu", STATUS_DEVICE_LOST, WORKER_DEVICE_LOST, true}};
	(void)state;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct worker worker;
		struct answer answer;
		char text[4096];
		worker_open(&worker, faults[i].fault, "cpu", "cpu");
		SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':4096");
		SERVER_CALL(&worker, "compute.load", STATUS_OK, "'device':0,'module':1,'format':'builtin'");
		int id = post(&worker, worker.server, "compute.launch", NULL, 0,
			      "'module':1,'kernel':'fill_f32','args':[{'handle':1},{'f32':1},{'u32':4}],"
			      "'timeout_ms':300");
		if (!faults[i].queued_too)
			CALL_STATUS(&worker, worker.node, "worker.ping", STATUS_OK, "%s", "");
		expect(worker.server, &answer, id, "compute.launch", faults[i].status);
		answer_finish(&answer);
		assert_false(receive_answer(worker.server, &answer));
		assert_int_equal(worker_end(&worker, text, sizeof(text)), faults[i].exit_status);
		assert_non_null(strstr(text, "worker: "));
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_back),
		cmocka_unit_test(memory_is_zeroed_filled_copied),
		cmocka_unit_test(builtin_kernels_run),
		cmocka_unit_test(effects_keep_their_order),
		cmocka_unit_test(wrong_calls_get_their_reasons),
		cmocka_unit_test(broken_frames_end_it),
		cmocka_unit_test(either_socket_ends_it),
		cmocka_unit_test(a_server_that_does_not_read),
		cmocka_unit_test(machine_memory_is_promised_once),
		cmocka_unit_test(faults_end_it),
	};
	return cmocka_run_group_tests_name("worker/session", tests, find_vulkan, drop_contract);
}
