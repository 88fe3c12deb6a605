/* Limits that are set, and addresses that are counted. */
#include "server/security/limits.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdlib.h>
#include <string.h>

static struct limits *make(const char *settings)
{
	struct limits *limits = NULL;
	struct limit_values values;
	struct error error = {.status = STATUS_OK};
	limit_values_init(&values);
	if (limit_values_set(&values, settings, &error) || limits_create(&limits, &values, &error))
		fail_msg("%s", error.message);
	return limits;
}

static void settings_are_read_and_checked(void **state)
{
	static const struct {
		const char *setting, *said; // a part of the message or hint
	} bad[] = {{"connection=5", "did you mean connections?"},
		   {"head_bytes=1", "no limit head_bytes that can be set"},
		   {"connections", "a number from 8 to 4096"},
		   {"connections=", "a number from 8 to 4096"},
		   {"connections=7", "a number from 8 to 4096"},
		   {"connections=4097", "a number from 8 to 4096"},
		   {"connections=-9", "a number"},
		   {"connections=+9", "a number"},
		   {"connections= 9", "a number"},
		   {"connections=9x", "a number"},
		   {"connections=99999999999999999999999999", "a number"},
		   {"", "there is no limit"},
		   {"connections=9,", "there is no limit"},
		   {"=5", "there is no limit"}};
	struct limit_values values;
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct error error = {.status = STATUS_OK};
		limit_values_init(&values);
		assert_int_equal(limit_values_set(&values, bad[i].setting, &error), STATUS_INVALID_PARAMS);
		if (!strstr(error.message, bad[i].said) && !strstr(error.hint, bad[i].said))
			fail_msg("%s: %s; %s", bad[i].setting, error.message, error.hint);
	}
	struct limits *limits = make("connections=100,in_flight_bytes_of_token=68719476736");
	assert_int_equal(limits_get(limits, LIMIT_CONNECTIONS_ID), 100);
	assert_int_equal(limits_get(limits, LIMIT_IN_FLIGHT_BYTES_OF_TOKEN_ID), 68719476736);
	assert_int_equal(limits_get(limits, LIMIT_SESSIONS_ID), LIMIT_SESSIONS);
	struct json *json = limits_json(limits);
	assert_int_equal(json_count(json), LIMIT_IDS);
	assert_int_equal(json_get_integer(json, "connections", 0), 100);
	assert_int_equal(json_get_integer(json, "head_bytes", 0), LIMIT_HEAD_BYTES);
	json_destroy(&json);
	limits_destroy(&limits);
}

static void addresses_are_what_they_are_counted_as(void **state)
{
	static const struct {
		const char *peer, *text;
	} cases[] = {{"192.0.2.7", "192.0.2.7"},
		     {"::ffff:192.0.2.7", "192.0.2.7"},
		     {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		     {"2001:db8:1:2::", "2001:db8:1:2::/64"},
		     {"fe80::1%eth0", "fe80::/64"},
		     {"::1", "::/64"},
		     {"unix", "unix"},
		     {"", ""}};
	char text[LIMITS_ADDRESS_BYTES];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		limits_address(cases[i].peer, text);
		assert_string_equal(text, cases[i].text);
	}
}

static void an_address_has_so_many_connections(void **state)
{
	struct limits *limits = make("connections_of_address=3");
	(void)state;
	assert_true(limits_connect(limits, "2001:db8::1"));
	assert_true(limits_connect(limits, "2001:db8::2")); // the same /64
	assert_true(limits_connect(limits, "2001:db8::2"));
	assert_false(limits_connect(limits, "2001:db8::3"));
	assert_true(limits_connect(limits, "2001:db8:0:1::1")); // another one
	limits_disconnect(limits, "2001:db8::1");
	assert_true(limits_connect(limits, "2001:db8::3"));
	for (int i = 0; i < 100; i++)
		assert_true(limits_connect(limits, "unix")); // not counted
	limits_disconnect(limits, "198.51.100.1");           // of one that never came: nothing
	assert_true(limits_connect(limits, "198.51.100.1"));
	limits_destroy(&limits);
}

struct waiting {
	struct limits_waiter place;
	bool evicted;
};

static void on_evicted(struct limits_waiter *place)
{
	((struct waiting *)place)->evicted = true;
}

// Those of an address give their places to its next ones, and the address that has most to others; who is held stays.
static void who_has_not_logged_in_makes_room(void **state)
{
	struct error error = {.status = STATUS_OK};
	struct waiting all[9];
	static const char *const peers[9] = {"2001:db8::1", "2001:db8::2", "2001:db8::3", "192.0.2.7", "192.0.2.8",
					     "192.0.2.9",   "2001:db8::4", "2001:db8::5", "unix"};
	static const bool gone[] = {true, true, true, true, false, false, false, false, false};
	struct limits *limits = make("connections_not_logged_in=4,not_logged_in_of_address=2");
	(void)state;
	for (size_t i = 0; i < 9; i++) {
		all[i] = (struct waiting){.place = {.evicted = on_evicted}};
		if (i == 7)
			limits_wait_held(&all[6].place, true);
		assert_int_equal(limits_wait(limits, &all[i].place, peers[i], NULL), STATUS_OK);
	}
	for (size_t i = 0; i < 9; i++)
		assert_int_equal(all[i].evicted, gone[i]);
	limits_wait_held(&all[7].place, true);
	struct waiting more = {.place = {.evicted = on_evicted}};
	assert_int_equal(limits_wait(limits, &more.place, "2001:db8::9", &error), STATUS_RATE_LIMITED);
	assert_true(error.hint[0] != 0);
	limits_wait_over(limits, &all[7].place);
	limits_wait_over(limits, &all[7].place);
	assert_int_equal(limits_wait(limits, &more.place, "2001:db8::9", NULL), STATUS_OK);
	limits_destroy(&limits);
}

static void failed_logins_wait_longer_and_longer(void **state)
{
	static const int64_t delays[] = {0, 0, 250, 500, 1000, 2000, 3000, 3000};
	struct limits *limits = make("login_failures=2,login_delay_ms=3000");
	(void)state;
	for (size_t i = 0; i < sizeof delays / sizeof *delays; i++)
		assert_int_equal(limits_login_failed(limits, "192.0.2.7"), delays[i]);
	assert_int_equal(limits_login_failed(limits, "192.0.2.8"), 0);
	for (int i = 0; i < 1000; i++)
		assert_true(limits_login_failed(limits, "192.0.2.7") == 3000);
	assert_int_equal(limits_login_failed(limits, "unix"), 0);
	limits_destroy(&limits);
}

// More addresses than there are places: those with connections keep theirs, and the rest makes room.
static void the_table_of_addresses_is_bounded(void **state)
{
	char peer[64];
	struct limits *limits = make("connections_of_address=1");
	(void)state;
	for (int i = 0; i < LIMIT_CONNECTIONS; i++) {
		snprintf(peer, sizeof peer, "10.0.%d.%d", i >> 8, i & 255);
		assert_true(limits_connect(limits, peer));
	}
	for (int i = 0; i < 5 * LIMIT_ADDRESSES; i++) {
		snprintf(peer, sizeof peer, "2001:db8:%x:%x::1", i >> 16, i & 0xffff);
		assert_int_equal(limits_login_failed(limits, peer), 0);
	}
	for (int i = 0; i < LIMIT_CONNECTIONS; i++) {
		snprintf(peer, sizeof peer, "10.0.%d.%d", i >> 8, i & 255);
		assert_false(limits_connect(limits, peer));
		limits_disconnect(limits, peer);
	}
	assert_true(limits_connect(limits, "10.0.0.0"));
	limits_destroy(&limits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_are_read_and_checked),
		cmocka_unit_test(addresses_are_what_they_are_counted_as),
		cmocka_unit_test(an_address_has_so_many_connections),
		cmocka_unit_test(who_has_not_logged_in_makes_room),
		cmocka_unit_test(failed_logins_wait_longer_and_longer),
		cmocka_unit_test(the_table_of_addresses_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
