/* How long connections may stay, by an injected clock; which ones are closed when places run out; and how much of a
 * first message of TLS is awaited. */
#include "common/base/limits.h"
#include "common/net/http/door.h"
#include "common/net/http/hello.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

enum { STRANGERS = 8, STALL_MS = 60000, START_MS = 1000000 };

static struct door *make(unsigned strangers)
{
	struct door *door;
	const struct door_params params = {.strangers = strangers, .connections = 4096, .stall_ms = STALL_MS};
	assert_int_equal(door_create(&door, &params, NULL), STATUS_OK);
	return door;
}

// Each stage: when its time is over if nothing comes, and if so many bytes come every so often.
static void a_stage_has_its_time(void **state)
{
	static const struct {
		enum door_stage stage;
		bool known;
		size_t bytes;
		int64_t every_ms, over_ms; // over_ms: since the stage began; 0: never, within two minutes
	} cases[] = {
		{DOOR_HANDSHAKE, false, 0, 1000, 5000},
		{DOOR_HANDSHAKE, false, 100, 1000, 5000}, // a drip gives it no time
		{DOOR_HEAD, false, 0, 1000, 5000},
		{DOOR_HEAD, false, 1, 1000, 5000},
		{DOOR_HEAD, true, 100, 1000, 5000}, // who it is does not matter
		{DOOR_BODY, true, 0, 1000, 5000},
		{DOOR_BODY, true, 1, 5000, 5000},
		{DOOR_BODY, true, 1, 1000, 5005},      // each byte a millisecond
		{DOOR_BODY, true, 512, 1000, 9000},    // half the rate: five seconds last for nine
		{DOOR_BODY, true, 1024, 1000, 0},      // a slow link, as slow as it may be
		{DOOR_BODY, true, 10240, 10000, 5000}, // in one piece each ten seconds: too late
		{DOOR_BODY, true, 15360, 4000, 0},
		{DOOR_TAKING, false, 0, 1000, 5000},
		{DOOR_TAKING, false, 16384, 1000, 0},
		{DOOR_TAKING, true, 0, 1000, STALL_MS},
		{DOOR_TAKING, true, 1, 50000, 0}, // one that is known may rest between two bytes
		{DOOR_IDLE, false, 0, 1000, 15000},
		{DOOR_IDLE, true, 100, 1000, 15000},
		{DOOR_LEAVING, false, 100, 100, 1000},
		{DOOR_SERVED, false, 0, 1000, 0},
		{DOOR_SERVED, true, 0, 1000, 0},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct door *door = make(STRANGERS);
		struct guest guest = {0};
		int64_t over_ms = 0;
		assert_null(door_arrive(door, &guest, "192.0.2.7", DOOR_HEAD, START_MS));
		door_know(door, &guest, cases[i].known);
		door_stage(door, &guest, cases[i].stage, START_MS);
		for (int64_t ms = 1; ms <= 120000 && !over_ms; ms++) {
			if (door_late(door, START_MS + ms))
				over_ms = ms;
			if (cases[i].bytes && ms % cases[i].every_ms == 0)
				door_progress(door, &guest, cases[i].bytes, START_MS + ms);
		}
		if (over_ms != cases[i].over_ms)
			fail_msg("case %zu: over after %lld ms, not %lld", i, (long long)over_ms,
				 (long long)cases[i].over_ms);
		door_leave(door, &guest);
		assert_null(door_any(door));
		door_destroy(&door);
	}
}

// What came fast does not let the rest take its time.
static void haste_is_no_credit(void **state)
{
	struct door *door = make(STRANGERS);
	struct guest guest = {0};
	(void)state;
	door_arrive(door, &guest, "192.0.2.7", DOOR_HEAD, START_MS);
	door_stage(door, &guest, DOOR_BODY, START_MS);
	for (int i = 0; i < 2047; i++)
		door_progress(door, &guest, 1024, START_MS);
	assert_null(door_late(door, START_MS + LIMIT_HTTP_AHEAD_MS - 1));
	assert_ptr_equal(door_late(door, START_MS + LIMIT_HTTP_AHEAD_MS), &guest);
	door_leave(door, &guest);
	door_destroy(&door);
}

// A loop that stood still for a minute finds nobody late for that.
static void our_own_rest_is_nobodys_fault(void **state)
{
	struct door *door = make(STRANGERS);
	struct guest guest = {0};
	int64_t steady_ms = START_MS;
	(void)state;
	door_arrive(door, &guest, "192.0.2.7", DOOR_HEAD, door_now(door, steady_ms));
	for (int i = 0; i < 15; i++)
		assert_null(door_late(door, door_now(door, steady_ms += 250)));
	assert_null(door_late(door, door_now(door, steady_ms += 60000))); // DOOR_BREAK_MS of it count, all but its last
	assert_ptr_equal(door_late(door, door_now(door, steady_ms += 250)), &guest);
	door_leave(door, &guest);
	door_destroy(&door);
}

struct script {
	const char *peer;
	bool known, waits;
	int evicted; // which of those before it has to go, -1: nobody
};

static void expect(unsigned strangers, const struct script *script, size_t count)
{
	struct guest guests[64];
	struct door *door = make(strangers);
	memset(guests, 0, sizeof guests);
	for (size_t i = 0; i < count; i++) {
		struct guest *gone = door_arrive(door, &guests[i], script[i].peer, DOOR_HEAD, START_MS + (int64_t)i);
		if (gone != (script[i].evicted < 0 ? NULL : &guests[script[i].evicted]))
			fail_msg("%zu (%s): %d has to go, not %d", i, script[i].peer, gone ? (int)(gone - guests) : -1,
				 script[i].evicted);
		if (gone)
			door_leave(door, gone);
		if (script[i].known)
			assert_null(door_know(door, &guests[i], true));
		door_wait(&guests[i], script[i].waits);
		assert_true(door_strangers(door) <= strangers);
	}
	for (size_t i = 0; i < count; i++)
		door_leave(door, &guests[i]);
	assert_int_equal(door_strangers(door), 0);
	assert_null(door_any(door));
	door_destroy(&door);
}

static void the_largest_address_makes_room(void **state)
{
	(void)state;
	static const struct script one_address[] = {{"192.0.2.1", .evicted = -1}, {"192.0.2.1", .evicted = -1},
						    {"192.0.2.1", .evicted = -1}, {"192.0.2.1", .evicted = 0},
						    {"192.0.2.1", .evicted = 1},  {"192.0.2.2", .evicted = 2},
						    {"192.0.2.1", .evicted = 3}}; // and not 192.0.2.2's only one
	expect(3, one_address, 7);
	// Addresses of one /64 are one; each of many has a place, the oldest goes.
	static const struct script networks[] = {{"2001:db8::1", .evicted = -1},     {"2001:db8::2", .evicted = -1},
						 {"2001:db8:0:1::1", .evicted = -1}, {"192.0.2.2", .evicted = 0},
						 {"192.0.2.3", .evicted = 1},        {"192.0.2.4", .evicted = 2}};
	expect(3, networks, 6);
	// Who is known has no stranger's place; who comes by a Unix socket never had one.
	static const struct script known[] = {{"192.0.2.1", .known = true, .evicted = -1},
					      {"192.0.2.1", .known = true, .evicted = -1},
					      {"192.0.2.1", .evicted = -1},
					      {"", .evicted = -1},
					      {"", .evicted = -1},
					      {"192.0.2.1", .evicted = -1},
					      {"192.0.2.1", .evicted = 2}};
	expect(2, known, 7);
	// Who waits for us goes after those for whom we wait.
	static const struct script waiting[] = {{"192.0.2.1", .waits = true, .evicted = -1},
						{"192.0.2.1", .evicted = -1},
						{"192.0.2.1", .waits = true, .evicted = 1},
						{"192.0.2.1", .waits = true, .evicted = 0}};
	expect(2, waiting, 4);
}

// The slowest is who has stood where it stands for longest; who was refused goes before all.
static void who_gets_on_stays(void **state)
{
	struct guest a = {0}, b = {0}, c = {0}, d = {0}, e = {0};
	struct door *door = make(3);
	(void)state;
	door_arrive(door, &a, "192.0.2.1", DOOR_HANDSHAKE, START_MS);
	door_arrive(door, &b, "192.0.2.1", DOOR_HANDSHAKE, START_MS);
	door_arrive(door, &c, "192.0.2.1", DOOR_HANDSHAKE, START_MS);
	door_stage(door, &a, DOOR_HEAD, START_MS + 1);
	assert_ptr_equal(door_slowest(door), &b);
	door_stage(door, &c, DOOR_LEAVING, START_MS + 2);
	assert_ptr_equal(door_arrive(door, &d, "192.0.2.1", DOOR_HANDSHAKE, START_MS + 3), &c);
	door_leave(door, &c);
	// One that was known and asks without a token is a stranger again.
	door_know(door, &a, true);
	assert_null(door_arrive(door, &e, "192.0.2.1", DOOR_HANDSHAKE, START_MS + 4));
	assert_ptr_equal(door_know(door, &a, false), &b);
	struct net_address address, other;
	assert_true(net_address_read(&address, "192.0.2.1") && net_address_read(&other, "192.0.2.2"));
	assert_ptr_equal(door_slowest_of(door, &address), &d);
	assert_null(door_slowest_of(door, &other));
	struct guest *all[] = {&a, &b, &d, &e};
	for (size_t i = 0; i < 4; i++)
		door_leave(door, all[i]);
	door_destroy(&door);
}

// Who holds a token and keeps us waiting makes room for newcomers, the holder that has the most of them first.
static void the_largest_holder_makes_room(void **state)
{
	enum { LARGE = 77, SMALL = 78 };
	struct guest large[4] = {0}, small[2] = {0}, stranger = {0};
	struct net_address address;
	struct door *door = make(STRANGERS);
	(void)state;
	assert_true(net_address_read(&address, "192.0.2.1"));
	for (int i = 0; i < 4; i++) {
		door_arrive(door, &large[i], "192.0.2.1", DOOR_HEAD, START_MS);
		door_know(door, &large[i], LARGE);
		door_stage(door, &large[i], DOOR_BODY, START_MS);
	}
	for (int i = 0; i < 2; i++) {
		door_arrive(door, &small[i], "192.0.2.1", DOOR_HEAD, START_MS);
		door_know(door, &small[i], SMALL);
		door_stage(door, &small[i], i ? DOOR_IDLE : DOOR_BODY, START_MS);
	}
	door_arrive(door, &stranger, "192.0.2.1", DOOR_HEAD, START_MS); // who may be about to show a token
	assert_ptr_equal(door_slowest(door), &large[0]);
	assert_ptr_equal(door_slowest_of(door, &address), &large[0]);
	door_progress(door, &large[0], 1, START_MS); // it sent something since the others did
	assert_ptr_equal(door_slowest(door), &large[1]);
	door_stage(door, &large[3], DOOR_IDLE, START_MS); // it has its answer
	assert_ptr_equal(door_slowest(door), &large[3]);
	for (int i = 1; i < 4; i++)
		door_stage(door, &large[i], DOOR_SERVED, START_MS); // they wait for us
	assert_ptr_equal(door_slowest(door), &small[1]);
	assert_ptr_equal(door_slowest_of(door, &address), &small[1]);
	door_leave(door, &small[1]);
	door_know(door, &large[0],
		  SMALL); // its next request has another token: SMALL has two now, and it is the newest
	assert_ptr_equal(door_slowest(door), &small[0]);
	door_leave(door, &large[0]);
	door_leave(door, &small[0]);
	assert_ptr_equal(door_slowest(door), &stranger);
	for (int i = 1; i < 4; i++)
		door_leave(door, &large[i]);
	door_leave(door, &stranger);
	assert_null(door_slowest(door));
	door_destroy(&door);
}

// Strangers may always have their places, and no more: beyond these they make room themselves.
static void strangers_take_no_holders_place(void **state)
{
	struct guest holder = {0}, strangers[STRANGERS] = {0};
	struct net_address here, there;
	struct door *door = make(STRANGERS);
	(void)state;
	assert_true(net_address_read(&here, "192.0.2.1") && net_address_read(&there, "192.0.2.2"));
	door_arrive(door, &holder, "192.0.2.1", DOOR_HEAD, START_MS);
	door_know(door, &holder, 77);
	door_stage(door, &holder, DOOR_IDLE, START_MS);
	for (int i = 0; i < STRANGERS; i++) {
		assert_ptr_equal(door_slowest(door), &holder);
		door_arrive(door, &strangers[i], i < 2 ? "192.0.2.1" : "192.0.2.2", DOOR_HEAD, START_MS);
	}
	assert_ptr_equal(door_slowest(door), &strangers[2]);
	assert_ptr_equal(door_slowest_of(door, &here), &strangers[0]); // two of these, one holder's
	assert_ptr_equal(door_slowest_of(door, &there), &strangers[2]);
	struct guest *guest;
	while ((guest = door_any(door)))
		door_leave(door, guest);
	door_destroy(&door);
}

// A thousand of one address in line: the only one of another is next.
static void few_are_served_before_many(void **state)
{
	static struct guest many[1000], one;
	struct door *door = make(1024);
	(void)state;
	for (int i = 0; i < 1000; i++) {
		door_arrive(door, &many[i], "192.0.2.1", DOOR_HANDSHAKE, START_MS);
		door_wait(&many[i], true);
	}
	door_arrive(door, &one, "192.0.2.2", DOOR_HANDSHAKE, START_MS);
	assert_ptr_equal(door_next(door), &many[0]);
	door_wait(&one, true);
	assert_ptr_equal(door_next(door), &one);
	door_wait(&one, false);
	door_wait(&many[0], false);
	assert_ptr_equal(door_next(door), &many[1]);
	struct guest *guest;
	while ((guest = door_any(door)))
		door_leave(door, guest);
	assert_null(door_next(door));
	door_destroy(&door);
}

// A message in one record or in several, and what is none.
static void a_hello_is_awaited_whole(void **state)
{
	static const uint8_t hello[] = {22, 3, 1, 0, 9, 1, 0, 0, 5, 3, 3, 0, 0, 0};
	static const uint8_t parts[] = {22, 3, 1, 0, 2, 1, 0, 22, 3, 1, 0, 3, 0, 2, 9, 22, 3, 1, 0, 1, 9};
	static const struct {
		uint8_t bytes[8];
		size_t length;
	} none[] = {{"GET / HT", 8}, {{22, 3, 1, 0, 0}, 5}, {{22, 3, 1, 255, 255}, 5}, {{21}, 1}, {{0}, 1}};
	(void)state;
	for (size_t i = 0; i <= sizeof hello; i++)
		assert_int_equal(net_hello_wants(hello, i), i < 5 ? 5 : i < sizeof hello ? sizeof hello : 0);
	for (size_t i = 0; i < sizeof parts; i++) {
		size_t wants = net_hello_wants(parts, i);
		assert_true(wants > i && wants <= sizeof parts); // more than there is, and what will come
	}
	assert_int_equal(net_hello_wants(parts, sizeof parts), 0);
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		assert_int_equal(net_hello_wants(none[i].bytes, none[i].length), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stage_has_its_time),
		cmocka_unit_test(haste_is_no_credit),
		cmocka_unit_test(our_own_rest_is_nobodys_fault),
		cmocka_unit_test(the_largest_address_makes_room),
		cmocka_unit_test(who_gets_on_stays),
		cmocka_unit_test(the_largest_holder_makes_room),
		cmocka_unit_test(strangers_take_no_holders_place),
		cmocka_unit_test(few_are_served_before_many),
		cmocka_unit_test(a_hello_is_awaited_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
