/* Reads that a worker is asked for by notes in memory that it shares: which are, how they are answered, and that a
 * worker that says by a note what is not so is ended like one that says it by a message. The test is the worker, down
 * to what lies in the memory; the node, and the socket between, are not there. */
#include "common/base/log.h"
#include "server/tenants/inside.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 65536, CALLS = 64 };

static struct {
	struct net_loop *loop;
	struct contract *contract;
	struct tenancy tenants;
	struct tenant tenant;
	struct worker *worker; // NULL once it has ended
	struct arrival *arrival;
	struct line line;
	struct net_shared *shared; // the worker's end
	int fd;                    // to be passed
	int64_t last_id;           // of the newest call by the stream
	unsigned bells;            // that the server rang
	enum status told[CALLS];   // PENDING until it is
	bool with_body[CALLS];
} world;

// ---- the line ----

static enum status line_send(struct line *line, const struct net_parts *parts)
{
	struct message message;
	(void)line;
	if (!parts->head_bytes) {
		world.bells++;
		return STATUS_OK;
	}
	assert_int_equal(message_decode_text(&message, (const char *)parts->head, parts->head_bytes, NULL), STATUS_OK);
	assert_int_equal(json_integer(message.id, &world.last_id), STATUS_OK);
	message_finish(&message);
	return STATUS_OK;
}

static size_t line_queued(const struct line *line)
{
	(void)line;
	return 0;
}

static void line_nothing(struct line *line)
{
	(void)line;
}

static int line_take_fd(struct line *line)
{
	(void)line;
	int fd = world.fd;
	world.fd = -1;
	return fd;
}

static void line_destroy(struct line **line)
{
	*line = NULL;
	world.arrival = NULL;
	world.worker = NULL;
}

static void say(const char *text)
{
	arrival_message(world.arrival, &(struct net_parts){.head = (const uint8_t *)text, .head_bytes = strlen(text)});
}

static void ring(void)
{
	say("");
}

static void answer(int64_t id, const char *result)
{
	char text[256];
	snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{%s}}", (long long)id, result);
	say(text);
}

// ---- calls ----

static void told(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		 const struct error *error)
{
	const size_t which = (size_t)(uintptr_t)call->context;
	(void)result, (void)error;
	assert_int_equal(world.told[which], STATUS_PENDING);
	world.told[which] = status;
	world.with_body[which] = body && body == call->place;
}

// A read into shared memory, as server/tenants/memory.c makes it. Returns whether it was asked for by a note.
static bool ask(size_t which, int64_t *id)
{
	uint64_t at = 0;
	struct worker_call *call = worker_call_create(NULL, told);
	assert_non_null(call);
	call->context = (void *)(uintptr_t)which;
	call->counts = true;
	call->bytes = call->body_bytes = PIECE;
	assert_non_null(call->place = sharing_place(world.worker, PIECE, &at));
	world.told[which] = STATUS_PENDING;
	const struct net_shared_note note = {.handle = 7, .offset = which, .bytes = PIECE, .at = at};
	const bool noted = sharing_ask(world.worker, call, &note);
	if (!noted) {
		const struct message_number numbers[] = {{"handle", 7}, {"offset", 0}, {"bytes", PIECE}};
		assert_int_equal(worker_send(world.worker, call,
					     &(struct worker_send_params){
						     .method = "memory.read", .numbers = numbers, .number_count = 3},
					     NULL),
				 STATUS_OK);
	}
	*id = call->id;
	return noted;
}

// What the worker finds: the call that it was asked for.
static uint64_t asked(size_t which)
{
	struct net_shared_note note;
	assert_true(net_shared_get(world.shared, &note));
	assert_true(note.handle == 7 && note.offset == which && note.bytes == PIECE);
	assert_non_null(net_shared_at(world.shared, note.at, PIECE));
	return note.call;
}

static bool done(uint64_t call)
{
	return net_shared_put(world.shared, &(struct net_shared_note){.call = call});
}

// ---- the worker's life ----

static int load(void **state)
{
	(void)state;
	log_set_level(LOG_ERROR);
	return contract_create(&world.contract, CONTRACT_NODE, NULL) || net_loop_create(&world.loop, NULL);
}

static int unload(void **state)
{
	(void)state;
	net_loop_destroy(&world.loop);
	contract_destroy(&world.contract);
	return 0;
}

// A worker that has come, and shares memory since enough was read.
static int set_up(void **state)
{
	static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	char hello[256];
	uint64_t at;
	(void)state;
	world.tenants = (struct tenancy){.tenants = &world.tenant,
					 .params = {.loop = world.loop, .contract = world.contract}};
	buffer_init(&world.tenants.text, LIMIT_HEAD_BYTES);
	struct worker *worker = world.worker = calloc(1, sizeof *worker);
	assert_non_null(worker);
	world.tenant = (struct tenant){.tenants = &world.tenants, .workers = worker};
	worker->tenants = &world.tenants;
	worker->tenant = &world.tenant;
	worker->last_item = &worker->items;
	worker->opens = json_new_object(); // no node is told of its end
	worker_queue_init(&worker->waiting);
	worker_queue_init(&worker->sent);
	snprintf(worker->worker_id, sizeof worker->worker_id, "wrk_1");
	snprintf(worker->key, sizeof worker->key, "%s", key);
	world.line = (struct line){.send = line_send,
				   .queued = line_queued,
				   .pause = line_nothing,
				   .resume = line_nothing,
				   .take_fd = line_take_fd,
				   .destroy = line_destroy};
	assert_non_null(world.arrival = arrival_create(&world.tenants, &world.line, ""));
	snprintf(hello, sizeof hello,
		 "{\"jsonrpc\":\"2.0\",\"method\":\"link.hello\",\"params\":{\"worker_id\":\"wrk_1\",\"key\":\"%s\"}}",
		 key);
	say(hello);
	assert_ptr_equal(world.worker->stream, world.arrival);
	assert_int_equal(net_shared_create(&world.shared, &world.fd, NULL), STATUS_OK);
	assert_null(sharing_place(worker, LIMIT_SHARED_BYTES + 1, &at));
	answer(world.last_id, "\"shared\":true");
	assert_non_null(world.arrival->sharing.memory);
	world.bells = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	if (world.worker)
		worker_lose(world.worker, "the test is over");
	assert_null(world.arrival);
	assert_null(world.tenant.workers);
	net_shared_destroy(&world.shared);
	buffer_finish(&world.tenants.text);
	return 0;
}

// ---- tests ----

static void asked_and_answered(void **state)
{
	(void)state;
	int64_t id;
	assert_true(ask(0, &id)); // the very first, alone
	assert_int_equal(world.bells, 1);
	assert_true(done(asked(0)));
	ring();
	assert_int_equal(world.told[0], STATUS_OK);
	for (int round = 0; round < 100; round++) {
		uint64_t calls[CALLS];
		for (size_t i = 0; i < CALLS; i++)
			assert_true(ask(i, &id));
		for (size_t i = 0; i < CALLS; i++)
			calls[i] = asked(i);
		bool rings = false;
		for (size_t i = 0; i < CALLS; i++) {
			const size_t which = i * 37 % CALLS; // in any order
			rings |= done(calls[which]);
		}
		assert_true(rings);
		ring();
		for (size_t i = 0; i < CALLS; i++)
			assert_true(world.told[i] == STATUS_OK && world.with_body[i]);
		assert_int_equal(world.worker->sent.count, 0);
		assert_false(net_shared_in_use(world.arrival->sharing.memory));
	}
	assert_int_equal(world.bells, 1); // the worker never slept
	assert_true(net_shared_wait(world.shared));
	assert_true(ask(0, &id) && ask(1, &id));
	assert_int_equal(world.bells, 2);
}

// A call by the stream. Returns its id.
static int64_t send_free(size_t which)
{
	struct worker_call *call = worker_call_create(NULL, told);
	call->context = (void *)(uintptr_t)which;
	world.told[which] = STATUS_PENDING;
	struct json *params = json_new_object();
	json_set_integer(params, "handle", 7);
	assert_int_equal(worker_send(world.worker, call,
				     &(struct worker_send_params){.method = "memory.free", .params = params}, NULL),
			 STATUS_OK);
	return world.last_id;
}

// Notes are read before what the stream brings, so they are for when nothing else is under way.
static void in_order_with_the_stream(void **state)
{
	(void)state;
	int64_t ids[4];
	assert_true(ask(0, &ids[0]));
	const int64_t free_id = send_free(9);
	assert_false(ask(1, &ids[1])); // behind it
	assert_true(done(asked(0)));
	answer(free_id, ""); // without a bell: the note is found before it
	assert_int_equal(world.told[0], STATUS_OK);
	assert_int_equal(world.told[9], STATUS_OK);
	assert_false(ask(2, &ids[2]));
	answer(ids[1], "\"bytes\":65536");
	answer(ids[2], "\"bytes\":65536");
	assert_true(world.told[1] == STATUS_OK && world.with_body[2]);
	assert_true(ask(3, &ids[3]));
	asked(3);
	answer(ids[3], "\"bytes\":65536"); // a worker may say it by a message
	assert_int_equal(world.told[3], STATUS_OK);
	assert_true(ask(0, &ids[0]));
	char refusal[256];
	snprintf(refusal, sizeof refusal,
		 "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"error\":{\"code\":-32004,\"message\":\"none\",\"data\":"
		 "{\"reason\":\"not_found\",\"hint\":null}}}",
		 (long long)ids[0]);
	say(refusal);
	assert_int_equal(world.told[0], STATUS_NOT_FOUND);
	assert_true(ask(0, &ids[0])); // and it is out of the count
}

static void ended(size_t calls)
{
	assert_null(world.worker);
	for (size_t i = 0; i < calls; i++)
		if (world.told[i] != STATUS_DEVICE_LOST)
			fail_msg("call %zu was told %s", i, status_word(world.told[i]));
}

static void lie_of_nothing_asked(void **state)
{
	(void)state;
	done(1);
	ring();
	ended(0);
}

static void lie_of_another(void **state)
{
	(void)state;
	int64_t id;
	assert_true(ask(0, &id) && ask(1, &id));
	done((uint64_t)id + 1);
	ring();
	ended(2);
}

static void lie_of_a_great_number(void **state)
{
	(void)state;
	int64_t id;
	assert_true(ask(0, &id));
	done((uint64_t)id | 1ull << 63);
	ring();
	ended(1);
}

static void lie_told_twice(void **state)
{
	(void)state;
	int64_t id;
	assert_true(ask(0, &id) && ask(1, &id));
	done((uint64_t)id);
	done((uint64_t)id);
	ring();
	assert_int_equal(world.told[1], STATUS_OK);
	ended(1);
}

static void lie_of_what_was_sent(void **state)
{
	(void)state;
	int64_t id, other;
	ask(0, &id);
	const struct message_number numbers[] = {{"handle", 7}, {"offset", 0}, {"bytes", 1}};
	struct worker_call *call = worker_call_create(NULL, told);
	call->context = (void *)(uintptr_t)1;
	world.told[1] = STATUS_PENDING;
	assert_int_equal(worker_send(world.worker, call,
				     &(struct worker_send_params){
					     .method = "memory.read", .numbers = numbers, .number_count = 3},
				     NULL),
			 STATUS_OK);
	assert_false(ask(2, &other));
	done((uint64_t)call->id);
	ring();
	ended(3);
}

static void rings_for_nothing(void **state)
{
	(void)state;
	int64_t id;
	ask(0, &id);
	done(asked(0));
	ring();
	assert_non_null(world.worker);
	ring();
	ended(0);
}

// All of the lanes filled with whatever: not more is taken from there than was asked.
static void the_memory_is_its_to_spoil(void **state)
{
	(void)state;
	int64_t id;
	for (size_t i = 0; i < CALLS; i++)
		ask(i, &id);
	memset(net_shared_at(world.shared, 0, LIMIT_SHARED_BYTES) + LIMIT_SHARED_BYTES, 0xA5,
	       NET_SHARED_ALL_BYTES - LIMIT_SHARED_BYTES);
	ring();
	ended(CALLS);
}

static atomic_bool over;

// The count of notes, to and fro.
static void *come_and_go(void *context)
{
	_Atomic uint32_t *count = context;
	const uint32_t told = atomic_load(count);
	while (!atomic_load(&over)) {
		atomic_store(count, told + 1);
		atomic_store(count, told);
	}
	return NULL;
}

// Whichever it sees, the server does not look for ever.
static void notes_come_and_go(void **state)
{
	(void)state;
	int64_t id;
	pthread_t thread;
	uint8_t *lanes = net_shared_at(world.shared, 0, LIMIT_SHARED_BYTES) + LIMIT_SHARED_BYTES;
	assert_true(ask(0, &id));
	atomic_store(&over, false);
	assert_int_equal(pthread_create(&thread, NULL, come_and_go, lanes + 4096), 0);
	for (int i = 0; i < 10000 && world.worker; i++)
		answer(send_free(1), "");
	if (world.worker) { // nothing was seen
		done(0);
		ring();
	}
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	ended(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(asked_and_answered, set_up, tear_down),
		cmocka_unit_test_setup_teardown(in_order_with_the_stream, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lie_of_nothing_asked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lie_of_another, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lie_of_a_great_number, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lie_told_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lie_of_what_was_sent, set_up, tear_down),
		cmocka_unit_test_setup_teardown(rings_for_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_memory_is_its_to_spoil, set_up, tear_down),
		cmocka_unit_test_setup_teardown(notes_come_and_go, set_up, tear_down),
	};
	return cmocka_run_group_tests_name("server/tenants/notes", tests, load, unload);
}
