/* The content of an answer once it is over: calls that are whole, and calls that the end of the answer cut off. */
#include "engine/dialogue/parser_inside.h"
#include "server/http/infer/said.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

static const char *const tools_text = "[{\"function\":{\"name\":\"look\",\"parameters\":{\"type\":\"object\"}}}]";

struct world {
	struct json *tools, *syntax;
	struct buffer text;
	struct said said;
};

// Calls in the syntax `mistral-args`, of which the name is told before the first argument.
static void begin(struct world *world, bool streams, const char *says)
{
	static const char syntax[] = "{\"calls\":\"mistral-args\",\"opened\":false}";
	assert_int_equal(json_parse(&world->tools, tools_text, strlen(tools_text), NULL), STATUS_OK);
	assert_int_equal(json_parse(&world->syntax, syntax, strlen(syntax), NULL), STATUS_OK);
	buffer_init(&world->text, 4096);
	said_init(&world->said, &world->text, streams);
	assert_int_equal(said_begin(&world->said, world->syntax, world->tools), STATUS_OK);
	assert_int_equal(said_more(&world->said, says), STATUS_OK);
}

static void finish(struct world *world)
{
	said_finish(&world->said);
	buffer_finish(&world->text);
	json_destroy(&world->tools);
	json_destroy(&world->syntax);
}

#define NAME "[TOOL_CALLS]look[ARGS]"
#define CALL NAME "{}"

static void test_cut_before_its_first_argument(void **state)
{
	static const char *const says[] = {"so" NAME "{", "so" CALL NAME "{ "};
	(void)state;
	for (size_t at = 0; at < 2; at++)
		for (int streams = 0; streams < 2; streams++) {
			struct world world = {0};
			begin(&world, streams, says[at]);
			assert_int_equal(said_end(&world.said, true), STATUS_OK);
			assert_int_equal(world.said.count, at);
			assert_int_equal(world.said.whole, at);
			assert_string_equal(buffer_text(&world.text), "so");
			finish(&world);
		}
}

static void test_a_call_that_was_told_stays(void **state)
{
	struct world world = {0};
	(void)state;
	begin(&world, true, NAME "{");
	assert_int_equal(world.said.count, 1);
	world.said.calls[0].told = true;
	buffer_clear(&world.said.calls[0].arguments);
	assert_int_equal(said_end(&world.said, true), STATUS_OK);
	assert_int_equal(world.said.count, 1);
	finish(&world);
}

static void test_cut_inside_its_arguments(void **state)
{
	struct world world = {0};
	(void)state;
	begin(&world, false, NAME "{\"a\": 1");
	assert_int_equal(said_end(&world.said, true), STATUS_OK);
	assert_int_equal(world.said.count, 1);
	assert_string_equal(buffer_text(&world.said.calls[0].arguments), "{\"a\": 1");
	finish(&world);
}

static void test_whole_calls_stay(void **state)
{
	(void)state;
	for (int cut = 0; cut < 2; cut++) {
		struct world world = {0};
		begin(&world, false, CALL CALL);
		assert_int_equal(said_end(&world.said, cut), STATUS_OK);
		assert_int_equal(world.said.count, 2);
		assert_int_equal(world.said.whole, 2);
		assert_string_equal(buffer_text(&world.said.calls[1].arguments), "{}");
		finish(&world);
	}
}

static void hear(struct world *world, enum dialogue_kind kind, const char *text, size_t told)
{
	const struct dialogue_params *params = &world->said.dialogue->params;
	params->event(params->context,
		      &(struct dialogue_event){.kind = kind, .text = text, .length = strlen(text), .told = told});
}

// Whatever the parser says after a call has ended, the call stays as it is.
static void test_what_breaks_after_a_call_is_text(void **state)
{
	(void)state;
	for (int streams = 0; streams < 2; streams++) {
		struct world world = {0};
		begin(&world, streams, CALL);
		assert_int_equal(world.said.whole, 1);
		hear(&world, DIALOGUE_ARGUMENTS, "more", 0);
		hear(&world, DIALOGUE_BROKEN, "broken", 3);
		hear(&world, DIALOGUE_CALL_END, "", 0);
		assert_int_equal(world.said.count, 1);
		assert_int_equal(world.said.whole, 1);
		assert_string_equal(buffer_text(&world.said.calls[0].arguments), "{}");
		assert_string_equal(buffer_text(&world.text), "broken");
		finish(&world);
	}
}

static void test_a_call_that_breaks_is_text(void **state)
{
	(void)state;
	for (int streams = 0; streams < 2; streams++) {
		struct world world = {0};
		begin(&world, streams, CALL);
		hear(&world, DIALOGUE_CALL, "look", 0);
		hear(&world, DIALOGUE_ARGUMENTS, "{", 0);
		hear(&world, DIALOGUE_BROKEN, "look{[", 5);
		assert_int_equal(world.said.count, streams ? 2 : 1);
		assert_int_equal(world.said.whole, 1);
		assert_string_equal(buffer_text(&world.text), streams ? "[" : "look{[");
		hear(&world, DIALOGUE_BROKEN, "again", 5);
		assert_int_equal(world.said.count, streams ? 2 : 1);
		assert_string_equal(buffer_text(&world.text), streams ? "[again" : "look{[again");
		finish(&world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut_before_its_first_argument),
					   cmocka_unit_test(test_a_call_that_was_told_stays),
					   cmocka_unit_test(test_cut_inside_its_arguments),
					   cmocka_unit_test(test_whole_calls_stay),
					   cmocka_unit_test(test_what_breaks_after_a_call_is_text),
					   cmocka_unit_test(test_a_call_that_breaks_is_text)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
