/* Reads that a worker is asked for by notes in memory that it shares: which are, how they are answered, and that a
 * worker that says by a note what is not so is ended like one that says it by a message. The test is the worker, down
 * to what lies in the memory; the node, and the socket between, are not there. */
#include "tests/server/tenants/notes.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

// What the worker finds: the call that it was asked for.
static uint64_t asked(size_t which)
{
	struct net_shared_note note;
	assert_true(net_shared_get(world.shared, &note));
	assert_true(note.handle == 7 && note.offset == which && note.bytes == PIECE);
	assert_non_null(net_shared_at(world.shared, note.at, PIECE));
	return note.call;
}

static int unload(void **state)
{
	(void)state;
	net_loop_destroy(&world.loop);
	contract_destroy(&world.contract);
	return 0;
}

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
		assert_int_equal(world.worker->rpc.waiting, 0);
		assert_false(net_shared_in_use(world.arrival->sharing.memory));
	}
	assert_int_equal(world.bells, 1); // the worker never slept
	assert_true(net_shared_wait(world.shared));
	assert_true(ask(0, &id) && ask(1, &id));
	assert_int_equal(world.bells, 2);
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
	memset(lanes(), 0xA5, NET_SHARED_ALL_BYTES - LIMIT_SHARED_BYTES);
	ring();
	ended(CALLS);
}

// In the place of net_shared_wait (tests/CMakeLists.txt): where `comes_and_goes` is set it tells each time of a note
// that is gone when it is looked for, as a worker may make it by counting to and fro.
static bool comes_and_goes;
static unsigned looks;

bool __real_net_shared_wait(struct net_shared *shared);
bool __wrap_net_shared_wait(struct net_shared *shared);
bool __wrap_net_shared_wait(struct net_shared *shared)
{
	if (!comes_and_goes)
		return __real_net_shared_wait(shared);
	if (++looks > 1000 * NET_SHARED_NOTES)
		fail_msg("notes are looked for without end");
	return false;
}

static void notes_come_and_go(void **state)
{
	(void)state;
	int64_t id;
	assert_true(ask(0, &id));
	comes_and_goes = true;
	looks = 0;
	ring();
	comes_and_goes = false;
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
