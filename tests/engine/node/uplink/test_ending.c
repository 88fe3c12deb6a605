/* The end of a node: it drains once, before its time is up or when told to, and ends when nothing is left on it. */
#include "common/base/clock.h"
#include "engine/node/uplink/ending.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
// cmocka.h needs those above it.
#include <cmocka.h>

static struct net_loop *loop;
static bool server_knows, used;
static int changes, looks;
static int64_t done_ms;

static bool told(void *arg)
{
	(void)arg;
	return server_knows;
}

static bool in_use(void *arg)
{
	(void)arg;
	looks++;
	if (looks == 3) // the last model has left by then
		server_knows = true;
	return used;
}

static void changed(void *arg)
{
	(void)arg;
	changes++;
}

static void done(void *arg)
{
	(void)arg;
	done_ms = clock_steady_ms();
	net_loop_stop(loop);
}

static struct ending make(int64_t drain_ms)
{
	changes = looks = 0;
	server_knows = used = false;
	return (struct ending){
		.loop = loop, .drain_ms = drain_ms, .told = told, .in_use = in_use, .changed = changed, .done = done};
}

static void one_that_knows_no_end_says_nothing(void **state)
{
	(void)state;
	struct ending ending = make(60000);
	ending_begin(&ending, 0);
	assert_null(ending_json(&ending));
	ending_finish(&ending);
}

static void it_ends_when_the_server_knows_and_nothing_is_left(void **state)
{
	(void)state;
	struct ending ending = make(3600000);
	ending_begin(&ending, 7200000);
	struct json *json = ending_json(&ending);
	assert_in_range(json_get_integer(json, "in_ms", 0), 6000000, 7200000);
	assert_false(json_get_bool(json, "drains", true));
	json_destroy(&json);
	ending_drain(&ending);
	ending_drain(&ending);
	assert_int_equal(changes, 1);
	json = ending_json(&ending);
	assert_in_range(json_get_integer(json, "in_ms", 0), 3000000, 3600000); // sooner than it was to
	assert_true(json_get_bool(json, "drains", false));
	json_destroy(&json);
	net_loop_run(loop);
	assert_int_equal(looks, 3);
	ending_finish(&ending);
}

static void it_drains_by_itself_and_ends_in_time_whatever_is_left(void **state)
{
	(void)state;
	struct ending ending = make(250);
	const int64_t begun_ms = clock_steady_ms();
	ending_begin(&ending, 300);
	used = true;
	net_loop_run(loop);
	assert_int_equal(changes, 1);
	assert_true(looks > 0);
	assert_true(done_ms - begun_ms >= 300);
	assert_true(ending.drains && ending.until_ms <= ending.ends_ms);
	ending_finish(&ending);
}

static int begin(void **state)
{
	(void)state;
	struct error error = {0};
	return net_loop_create(&loop, &error);
}

static int finish(void **state)
{
	(void)state;
	net_loop_destroy(&loop);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_knows_no_end_says_nothing),
		cmocka_unit_test(it_ends_when_the_server_knows_and_nothing_is_left),
		cmocka_unit_test(it_drains_by_itself_and_ends_in_time_whatever_is_left),
	};
	return cmocka_run_group_tests(tests, begin, finish);
}
