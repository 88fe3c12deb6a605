/* The log's newest lines, over real events, whose data is checked against the contract: what of a node is taken in a
 * minute, what is counted, and that neither a figure nor the number of nodes is without bounds. What goes over
 * connections is tests/api/events.test.mjs. */
#include "common/base/limits.h"
#include "server/cluster/events.h"
#include "server/cluster/log_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static const int64_t most_count = INT64_C(9007199254740991); // that a node may say

static struct contract *contract;
static struct events *events;
static struct log_lines *lines;

static int begin(void **state)
{
	struct error error = {0};
	(void)state;
	assert_int_equal(contract_create(&contract, CONTRACT_API, &error), STATUS_OK);
	assert_int_equal(events_create(&events, contract, NULL, NULL), STATUS_OK);
	assert_int_equal(log_lines_create(&lines, events), STATUS_OK);
	return 0;
}

static int finish(void **state)
{
	(void)state;
	log_lines_destroy(&lines);
	events_destroy(&events);
	contract_destroy(&contract);
	return 0;
}

static enum status say(const char *node_id, const char *text, int64_t dropped)
{
	struct json *params = json_new_object();
	json_set_string(params, "level", "warning");
	json_set_string(params, "area", "node");
	json_set_string(params, "text", text);
	json_set_string(params, "at", "2026-11-20T14:31:52.000Z");
	json_set_integer(params, "dropped", dropped);
	const enum status status = log_lines_add_node(lines, node_id, "bench", params);
	json_destroy(&params);
	return status;
}

static void use_up(const char *node_id)
{
	for (int i = 0; i < LIMIT_NODE_LINES_PER_MIN; i++)
		assert_int_equal(say(node_id, "one of many", 0), STATUS_OK);
}

static void assert_newest(const char *text, int64_t dropped)
{
	struct json *list = log_lines_json(lines, 1);
	assert_int_equal(json_count(list), 1);
	assert_string_equal(json_get_string(json_first(list), "text", ""), text);
	assert_int_equal(json_get_integer(json_first(list), "dropped", -1), dropped);
	json_destroy(&list);
}

static void what_is_not_taken_is_counted(void **state)
{
	(void)state;
	use_up("nod_a");
	for (int i = 0; i < 5; i++)
		assert_int_equal(say("nod_a", "too much", 2), STATUS_RATE_LIMITED);
	assert_newest("one of many", 0);
	assert_int_equal(say("nod_b", "another's share is its own", 7), STATUS_OK);
	assert_newest("another's share is its own", 7);
	log_lines_next_minute(lines);
	assert_int_equal(say("nod_a", "the next", 4), STATUS_OK);
	assert_newest("the next", 5 * 3 + 4);
	assert_int_equal(say("nod_a", "and one more", 0), STATUS_OK);
	assert_newest("and one more", 0);
}

// However much the server and other nodes say meanwhile.
static void a_share_outlasts_the_ring(void **state)
{
	(void)state;
	use_up("nod_a");
	for (int i = 0; i < 2 * LIMIT_LOG_LINES; i++)
		log_lines_add(lines, &(struct log_line){.level = LOG_INFO, .area = "server", .text = "its own"});
	assert_int_equal(say("nod_a", "too much", 0), STATUS_RATE_LIMITED);
	assert_newest("its own", 0);
}

static void counts_end_somewhere(void **state)
{
	(void)state;
	assert_int_equal(say("nod_a", "so many", most_count), STATUS_OK);
	assert_newest("so many", INT32_MAX);
	log_lines_next_minute(lines);
	use_up("nod_a");
	for (int i = 0; i < 2000; i++) // more than 64 bits hold
		assert_int_equal(say("nod_a", "too much", most_count), STATUS_RATE_LIMITED);
	log_lines_next_minute(lines);
	assert_int_equal(say("nod_a", "the next", most_count), STATUS_OK);
	assert_newest("the next", INT32_MAX);
}

// Of too many nodes the one that has been silent for longest is forgotten, and no other.
static void nodes_end_somewhere(void **state)
{
	(void)state;
	char id[32];
	use_up("nod_first");
	assert_int_equal(say("nod_first", "too much", 0), STATUS_RATE_LIMITED);
	for (int i = 1; i < LIMIT_NODES; i++) {
		snprintf(id, sizeof id, "nod_%d", i);
		assert_int_equal(say(id, "the first", 0), STATUS_OK);
	}
	for (int i = 1; i < LIMIT_NODE_LINES_PER_MIN; i++)
		assert_int_equal(say(id, "one of many", 0), STATUS_OK);
	assert_int_equal(say("nod_first", "still too much", 0), STATUS_RATE_LIMITED);
	assert_int_equal(say("nod_new", "of one more", 0), STATUS_OK);
	assert_int_equal(say(id, "too much", 0), STATUS_RATE_LIMITED);
	assert_int_equal(say("nod_first", "forgotten", 0), STATUS_OK);
	assert_newest("forgotten", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_not_taken_is_counted, begin, finish),
		cmocka_unit_test_setup_teardown(a_share_outlasts_the_ring, begin, finish),
		cmocka_unit_test_setup_teardown(counts_end_somewhere, begin, finish),
		cmocka_unit_test_setup_teardown(nodes_end_somewhere, begin, finish),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
