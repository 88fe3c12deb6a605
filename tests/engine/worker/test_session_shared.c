/* Memory that a session's worker shares with the server: on the CPU and on a Vulkan device, whose memory is copied as
 * it is, and from either in pieces; given back, and asked for again. */
#include "common/net/shared.h"
#include "tests/engine/worker/find_vulkan.h"

#include <stdalign.h>

enum { MIB = 1024 * 1024, SIZE = 5 * MIB + 7, MOST = 8 * MIB, FILL = 90, SEEDS = 32, APART = 3 };

// What is written, from another byte on for each seed: to be copied and compared by one call, where a sanitizer would
// take minutes over loops.
static uint8_t patterns[SIZE + SEEDS * APART];

static const uint8_t *pattern(int seed)
{
	return patterns + seed * APART;
}

// The total that stands before an answer, and the descriptor that came with it: -1 if none did.
static uint32_t receive_total(int fd, int *passed)
{
	uint32_t total = 0; // the tests run on little-endian machines, like the program
	alignas(struct cmsghdr) uint8_t room[CMSG_SPACE(sizeof *passed)];
	struct iovec part = {&total, sizeof total};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	assert_int_equal(recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL), sizeof total);
	struct cmsghdr *one = CMSG_FIRSTHDR(&message);
	*passed = -1;
	if (one && one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS)
		memcpy(passed, CMSG_DATA(one), sizeof *passed);
	return total;
}

// One answer without a body, checked, and what came with it.
static void receive_alone(struct worker *worker, struct message *message, const char *method, int *passed)
{
	struct error error = {0};
	uint32_t total = receive_total(worker->server, passed);
	uint8_t *text = malloc(total);
	assert_non_null(text);
	assert_true(receive_bytes(worker->server, text, total));
	assert_int_equal(message_decode(message, text, total, NULL), STATUS_OK);
	contract_check_result(contract, contract_find(contract, method), message->result, &error);
	assert_string_equal(error.message, "");
	assert_int_equal(message->body_bytes, 0);
	free(text);
}

static struct net_shared *share(struct worker *worker)
{
	struct message message;
	struct net_shared *shared;
	int passed;
	post(worker, worker->server, "memory.share", NULL, 0, "'wanted':true");
	receive_alone(worker, &message, "memory.share", &passed);
	assert_true(json_get_bool(message.result, "shared", false));
	message_finish(&message);
	assert_int_equal(net_shared_open(&shared, passed, NULL), STATUS_OK);
	return shared;
}

static void check(struct net_frame *frame, size_t bytes, int value)
{
	const uint8_t *data = net_frame_data(frame);
	assert_int_equal(data[0], value);
	assert_int_equal(memcmp(data, data + 1, bytes - 1), 0); // each is what the one before it is
}

// Read `bytes` that are all FILL into shared memory; the frame that they lie in.
static struct net_frame *read_shared(struct worker *worker, struct net_shared *shared, size_t bytes)
{
	struct message message;
	uint64_t at = 0;
	int passed;
	struct net_frame *frame = net_shared_take(shared, bytes, &at);
	assert_non_null(frame);
	post(worker, worker->server, "memory.read", NULL, 0, "'handle':1,'offset':1,'bytes':%zu,'at':%llu", bytes,
	     (unsigned long long)at);
	receive_alone(worker, &message, "memory.read", &passed);
	assert_int_equal(json_get_integer(message.result, "bytes", -1), bytes);
	assert_int_equal(passed, -1);
	message_finish(&message);
	check(frame, bytes, FILL);
	return frame;
}

// Where a device is to copy to shared memory by itself, it did: what it prints says why not, if it did not.
static void ended(struct worker *worker, const char *fault)
{
	char text[8192];
	assert_int_equal(worker_end(worker, text, sizeof text), 0);
	if (!fault || !strstr(fault, "import"))
		return;
	if (strstr(fault, "vulkan") && strstr(text, "does not import memory"))
		print_message("SKIPPED: %s", text);
	else
		assert_null(strstr(text, "go by pieces"));
}

static void reads_of(const char *fault, const char *backend, const char *key)
{
	struct worker worker;
	struct message message;
	struct net_frame *held, *frame;
	int passed;
	worker_open(&worker, fault, backend, key);
	SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':%d", MOST + 1);
	SERVER_CALL(&worker, "memory.fill", STATUS_OK, "'handle':1,'offset':0,'bytes':%d,'value':%d", MOST + 1, FILL);
	SERVER_CALL(&worker, "memory.read", STATUS_INVALID_PARAMS, "'handle':1,'offset':0,'bytes':2,'at':0");
	struct net_shared *shared = share(&worker);
	for (int i = 0; i < 20; i++) { // more than there is room for, but each is let go
		frame = read_shared(&worker, shared, i ? SIZE : 1);
		net_frame_unref(&frame);
	}
	held = read_shared(&worker, shared, MOST);
	SERVER_CALL(&worker, "memory.read", STATUS_INVALID_PARAMS, "'handle':1,'offset':%d,'bytes':2,'at':0", MOST);
	SERVER_CALL(&worker, "memory.read", STATUS_INVALID_PARAMS, "'handle':1,'offset':0,'bytes':2,'at':%d",
		    LIMIT_SHARED_BYTES - 1);
	// It is given back while reads that go there are under way, and asked for anew.
	uint64_t at = 0;
	assert_non_null(frame = net_shared_take(shared, SIZE, &at));
	post(&worker, worker.server, "memory.read", NULL, 0, "'handle':1,'offset':1,'bytes':%d,'at':%llu", SIZE,
	     (unsigned long long)at);
	post(&worker, worker.server, "memory.share", NULL, 0, "'wanted':false");
	receive_alone(&worker, &message, "memory.read", &passed);
	message_finish(&message);
	check(frame, SIZE, FILL);
	receive_alone(&worker, &message, "memory.share", &passed);
	assert_false(json_get_bool(message.result, "shared", true));
	assert_int_equal(passed, -1);
	message_finish(&message);
	net_frame_unref(&frame);
	struct net_shared *again = share(&worker);
	frame = read_shared(&worker, again, SIZE);
	net_shared_destroy(&shared);
	check(held, MOST, FILL);
	net_frame_unref(&held);
	net_frame_unref(&frame);
	net_shared_destroy(&again);
	ended(&worker, fault);
}

static struct net_frame *fill_shared(struct net_shared *shared, size_t bytes, int seed, uint64_t *at)
{
	struct net_frame *frame = net_shared_take(shared, bytes, at);
	assert_non_null(frame);
	memcpy(net_frame_data(frame), pattern(seed), bytes);
	return frame;
}

static void post_write(struct worker *worker, size_t offset, size_t bytes, uint64_t at)
{
	post(worker, worker->server, "memory.write", NULL, 0, "'handle':1,'offset':%zu,'bytes':%zu,'at':%llu", offset,
	     bytes, (unsigned long long)at);
}

static void written(struct worker *worker, size_t bytes)
{
	struct message message;
	int passed;
	receive_alone(worker, &message, "memory.write", &passed);
	assert_int_equal(message.kind, MESSAGE_RESULT);
	assert_int_equal(json_get_integer(message.result, "bytes", -1), bytes);
	message_finish(&message);
}

// Three under way, among calls that need the device, the last from memory that is given back while it is taken.
static void writes_of(const char *fault, const char *backend, const char *key)
{
	static const size_t sizes[] = {1, 65536, SIZE};
	enum { COUNT = sizeof sizes / sizeof *sizes };
	struct worker worker;
	struct message message;
	struct answer answer;
	struct net_frame *frames[COUNT], *back;
	uint64_t at[COUNT];
	int passed;
	worker_open(&worker, fault, backend, key);
	SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':%d", MOST);
	SERVER_CALL(&worker, "memory.write", STATUS_INVALID_PARAMS, "'handle':1,'offset':0,'bytes':2,'at':0");
	struct net_shared *shared = share(&worker);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < COUNT; i++) {
			frames[i] = fill_shared(shared, sizes[i], round + i, &at[i]);
			if (round & 1)
				post(&worker, worker.server, "memory.fill", NULL, 0,
				     "'handle':1,'offset':0,'bytes':%d,'value':%d", MOST, FILL);
			post_write(&worker, (size_t)round, sizes[i], at[i]);
		}
		if (round == 19)
			post(&worker, worker.server, "memory.share", NULL, 0, "'wanted':false");
		for (int i = 0; i < COUNT; i++) {
			if (round & 1) {
				receive_alone(&worker, &message, "memory.fill", &passed);
				message_finish(&message);
			}
			written(&worker, sizes[i]);
			net_frame_unref(&frames[i]);
		}
		if (round == 19)
			break;
		back = net_shared_take(shared, SIZE, &at[0]);
		assert_non_null(back);
		post(&worker, worker.server, "memory.read", NULL, 0, "'handle':1,'offset':%d,'bytes':%d,'at':%llu",
		     round, SIZE, (unsigned long long)at[0]);
		receive_alone(&worker, &message, "memory.read", &passed);
		message_finish(&message);
		if (memcmp(net_frame_data(back), pattern(round + COUNT - 1), SIZE))
			fail_msg("round %d reads back something else", round);
		net_frame_unref(&back);
	}
	receive_alone(&worker, &message, "memory.share", &passed);
	message_finish(&message);
	SERVER_CALL(&worker, "memory.write", STATUS_INVALID_PARAMS, "'handle':1,'offset':0,'bytes':2,'at':0");
	net_shared_destroy(&shared);
	shared = share(&worker);
	SERVER_CALL(&worker, "memory.write", STATUS_INVALID_PARAMS, "'handle':1,'offset':%d,'bytes':2,'at':0",
		    MOST - 1);
	SERVER_CALL(&worker, "memory.write", STATUS_NOT_FOUND, "'handle':2,'offset':0,'bytes':2,'at':0");
	SERVER_CALL(&worker, "memory.write", STATUS_INVALID_PARAMS, "'handle':1,'offset':0,'bytes':2,'at':%d",
		    LIMIT_SHARED_BYTES - 1);
	// What follows a refused one is read as ever; a body and a place at once are refused, and the body passed over.
	const int id = post(&worker, worker.server, "memory.write", "body", 4,
			    "'handle':1,'offset':0,'bytes':4,'at':0");
	expect(worker.server, &answer, id, "memory.write", STATUS_INVALID_PARAMS);
	answer_finish(&answer);
	SERVER_CALL(&worker, "memory.write", STATUS_OK, "'handle':1,'offset':0,'bytes':0,'at':0");
	net_shared_destroy(&shared);
	ended(&worker, fault);
}

// ---- reads by notes ----

static const uint8_t bell[8] = {4};

// Ask for a read without waking the worker.
static bool put_note(struct worker *worker, struct net_shared *shared, uint64_t handle, uint64_t offset, uint64_t bytes,
		     uint64_t at)
{
	const struct net_shared_note note = {
		.call = (uint64_t)++worker->id, .handle = handle, .offset = offset, .bytes = bytes, .at = at};
	return net_shared_put(shared, &note);
}

static int note(struct worker *worker, struct net_shared *shared, uint64_t handle, uint64_t offset, uint64_t bytes,
		uint64_t at)
{
	if (put_note(worker, shared, handle, offset, bytes, at))
		send_bytes(worker->server, bell, sizeof bell);
	return worker->id;
}

// Which read is done.
static int noted(struct worker *worker, struct net_shared *shared)
{
	struct net_shared_note done;
	uint8_t bytes[sizeof bell];
	while (!net_shared_get(shared, &done)) {
		if (!net_shared_wait(shared))
			continue;
		assert_true(receive_bytes(worker->server, bytes, sizeof bytes));
		assert_memory_equal(bytes, bell, sizeof bell);
	}
	return (int)done.call;
}

static void refused(struct worker *worker, int id, enum status status)
{
	struct answer answer;
	expect(worker->server, &answer, id, "memory.read", status);
	answer_finish(&answer);
}

// Many under way, each of which sees what was written before it and nothing of what came after it by the stream,
// whether or not the worker was woken for it; what cannot be is refused by the stream.
static void notes_of(const char *fault, const char *backend, const char *key)
{
	enum { COUNT = 60, BYTES = 70001 };
	struct worker worker;
	struct net_frame *frames[COUNT];
	uint64_t at[COUNT];
	int ids[COUNT];
	worker_open(&worker, fault, backend, key);
	SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':%d", MOST);
	struct net_shared *shared = share(&worker);
	for (int round = 1; round <= 20; round++) {
		struct answer answer;
		bool seen[COUNT] = {0};
		SERVER_CALL(&worker, "memory.fill", STATUS_OK, "'handle':1,'offset':0,'bytes':%d,'value':%d", MOST,
			    round);
		for (int i = 0; i < COUNT; i++) {
			assert_non_null(frames[i] = net_shared_take(shared, BYTES, &at[i]));
			memset(net_frame_data(frames[i]), 0, BYTES);
			ids[i] = note(&worker, shared, 1, (uint64_t)i * 7, BYTES, at[i]);
		}
		for (int i = 0; i < COUNT; i++) {
			const int which = noted(&worker, shared) - ids[0];
			assert_in_range(which, 0, COUNT - 1);
			assert_false(seen[which]);
			seen[which] = true;
			check(frames[which], BYTES, round);
		}
		// What follows by the stream, which alone wakes the worker.
		put_note(&worker, shared, 1, 0, BYTES, at[0]);
		const int id = post(&worker, worker.server, "memory.fill", NULL, 0,
				    "'handle':1,'offset':0,'bytes':%d,'value':%d", MOST, FILL);
		expect(worker.server, &answer, id, "memory.fill", STATUS_OK);
		answer_finish(&answer);
		assert_int_equal(noted(&worker, shared), id - 1);
		assert_int_equal(net_frame_data(frames[0])[BYTES - 1], round);
		for (int i = 0; i < COUNT; i++)
			net_frame_unref(&frames[i]);
	}
	refused(&worker, note(&worker, shared, 2, 0, 1, 0), STATUS_NOT_FOUND);
	refused(&worker, note(&worker, shared, 1, MOST, 1, 0), STATUS_INVALID_PARAMS);
	refused(&worker, note(&worker, shared, 1, 1, UINT64_MAX >> 11, 0), STATUS_INVALID_PARAMS);
	refused(&worker, note(&worker, shared, 1, 1, UINT64_MAX, 0), STATUS_INVALID_PARAMS); // its time would overflow
	refused(&worker, note(&worker, shared, 1, 0, 2, LIMIT_SHARED_BYTES - 1), STATUS_INVALID_PARAMS);
	send_bytes(worker.server, bell, sizeof bell); // for nothing
	const int last = note(&worker, shared, 1, 0, 2, LIMIT_SHARED_BYTES - 2);
	assert_int_equal(noted(&worker, shared), last);
	SERVER_CALL(&worker, "memory.share", STATUS_OK, "'wanted':false");
	send_bytes(worker.server, bell, sizeof bell);
	SERVER_CALL(&worker, "memory.free", STATUS_OK, "'handle':1");
	net_shared_destroy(&shared);
	ended(&worker, fault);
}

static void on_the_processor(void **state)
{
	(void)state;
	notes_of(NULL, "cpu", "cpu");
	notes_of("pieces:cpu", "cpu", "cpu");
	notes_of("pieces:cpu,import:cpu", "cpu", "cpu");
	notes_of("look:cpu", "cpu", "cpu");
	notes_of("pieces:cpu,look:cpu", "cpu", "cpu");
	reads_of(NULL, "cpu", "cpu");
	reads_of("pieces:cpu", "cpu", "cpu");
	reads_of("pieces:cpu,import:cpu", "cpu", "cpu");
	writes_of(NULL, "cpu", "cpu");
	writes_of("pieces:cpu", "cpu", "cpu");
	writes_of("pieces:cpu,import:cpu", "cpu", "cpu");
}

static void on_vulkan(void **state)
{
	(void)state;
	if (!vulkan_key[0])
		skip();
	notes_of(NULL, "vulkan", vulkan_key);
	notes_of("pieces:vulkan", "vulkan", vulkan_key);
	notes_of("pieces:vulkan,import:vulkan", "vulkan", vulkan_key);
	reads_of(NULL, "vulkan", vulkan_key);
	reads_of("pieces:vulkan", "vulkan", vulkan_key);
	reads_of("pieces:vulkan,import:vulkan", "vulkan", vulkan_key);
	writes_of(NULL, "vulkan", vulkan_key);
	writes_of("pieces:vulkan", "vulkan", vulkan_key);
	writes_of("pieces:vulkan,import:vulkan", "vulkan", vulkan_key);
}

int main(void)
{
	for (size_t i = 0; i < sizeof patterns; i++)
		patterns[i] = (uint8_t)(i * 2654435761u >> 13);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_the_processor),
		cmocka_unit_test(on_vulkan),
	};
	return cmocka_run_group_tests_name("worker/session_shared", tests, find_vulkan, drop_contract);
}
