/* A node's warnings: sent in order when there is a server, within its share, the rest counted; from any thread. */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/node/warnings.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static struct net_loop *loop;
static struct warnings *warnings;
static struct net_timer patience;
static bool there, deaf; // deaf: what is told is not sent
static int told, wanted;
static char texts[64][600];
static int64_t dropped[64];

static bool ready(void *arg)
{
	(void)arg;
	return there;
}

static bool tell(void *arg, struct json *params)
{
	(void)arg;
	if (deaf) {
		json_destroy(&params);
		return false;
	}
	assert_true(told < 64);
	assert_true(!strcmp(json_get_string(params, "level", ""), "warning") ||
		    !strcmp(json_get_string(params, "level", ""), "error"));
	assert_string_equal(json_get_string(params, "area", ""), "test");
	assert_int_equal(strlen(json_get_string(params, "at", "")), 24);
	snprintf(texts[told], sizeof texts[told], "%s", json_get_string(params, "text", ""));
	dropped[told++] = json_get_integer(params, "dropped", -1);
	json_destroy(&params);
	if (told == wanted)
		net_loop_stop(loop);
	return true;
}

static void out_of_patience(void *arg)
{
	(void)arg;
	net_loop_stop(loop);
}

static int begin(void **state)
{
	(void)state;
	told = wanted = 0;
	there = deaf = false;
	assert_int_equal(net_loop_create(&loop, NULL), STATUS_OK);
	const struct warnings_params params = {.loop = loop, .ready = ready, .tell = tell};
	assert_int_equal(warnings_create(&warnings, &params), STATUS_OK);
	return 0;
}

static int finish(void **state)
{
	(void)state;
	net_timer_stop(loop, &patience);
	warnings_destroy(&warnings);
	warnings_destroy(&warnings);
	net_loop_destroy(&loop);
	return 0;
}

static void *speak(void *arg)
{
	(void)arg;
	log_warning("test", "of another thread");
	return NULL;
}

static void at_once(void **state)
{
	pthread_t thread;
	(void)state;
	there = true;
	wanted = 2;
	log_info("test", "nothing to warn of");
	log_error("test", "one\nline");
	pthread_create(&thread, NULL, speak, NULL);
	pthread_join(thread, NULL);
	net_timer_start(loop, &patience, 60000, out_of_patience, NULL);
	net_loop_run(loop);
	assert_int_equal(told, 2);
	assert_string_equal(texts[0], "one?line");
	assert_string_equal(texts[1], "of another thread");
	assert_true(!dropped[0] && !dropped[1]);
}

static void waits_and_counts(void **state)
{
	char text[700];
	(void)state;
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = 0;
	log_warning("test", "%s", text);
	for (int i = 1; i < 3 * LIMIT_NODE_LINES_PER_MIN; i++)
		log_warning("test", "line %d", i);
	net_loop_run_posts(loop);
	assert_int_equal(told, 0); // nobody hears
	there = true;
	warnings_flush(warnings);
	assert_int_equal(told, LIMIT_NODE_LINES_PER_MIN);
	assert_int_equal(strlen(texts[0]), 512);
	assert_string_equal(texts[1], "line 1");
	warnings_flush(warnings);
	assert_int_equal(told, LIMIT_NODE_LINES_PER_MIN); // each once
	for (int i = 0; i < told; i++)
		assert_int_equal(dropped[i], 0);
	warnings_next_minute(warnings);
	log_warning("test", "the next");
	net_loop_run_posts(loop);
	assert_int_equal(told, LIMIT_NODE_LINES_PER_MIN + 1);
	assert_int_equal(dropped[told - 1], 2 * LIMIT_NODE_LINES_PER_MIN);
}

// Of a long time without a server the newest are told, as many as it takes, and the rest is counted in them.
static void keeps_the_newest(void **state)
{
	enum { MINUTES = 5 };
	int64_t counted = 0;
	(void)state;
	for (int minute = 0; minute < MINUTES; minute++) {
		for (int i = 0; i < LIMIT_NODE_LINES_PER_MIN; i++)
			log_warning("test", "line %d of minute %d", i, minute);
		warnings_next_minute(warnings);
	}
	net_loop_run_posts(loop);
	there = true;
	warnings_flush(warnings);
	assert_int_equal(told, LIMIT_NODE_LINES_PER_MIN);
	for (int i = 0; i < told; i++) {
		char text[64];
		snprintf(text, sizeof text, "line %d of minute %d", i, MINUTES - 1);
		assert_string_equal(texts[i], text);
		counted += dropped[i];
	}
	assert_int_equal(counted, (MINUTES - 1) * LIMIT_NODE_LINES_PER_MIN);
}

// One that cannot be sent is counted in the next one, and the others wait.
static void counts_what_is_not_sent(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		log_warning("test", "line %d", i);
	net_loop_run_posts(loop);
	there = deaf = true;
	warnings_flush(warnings);
	deaf = false;
	assert_int_equal(told, 0);
	log_warning("test", "line 3");
	net_loop_run_posts(loop);
	assert_int_equal(told, 3);
	assert_string_equal(texts[0], "line 1");
	assert_string_equal(texts[2], "line 3");
	assert_true(!dropped[0] && !dropped[1]);
	assert_int_equal(dropped[2], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(at_once, begin, finish),
		cmocka_unit_test_setup_teardown(waits_and_counts, begin, finish),
		cmocka_unit_test_setup_teardown(keeps_the_newest, begin, finish),
		cmocka_unit_test_setup_teardown(counts_what_is_not_sent, begin, finish),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
