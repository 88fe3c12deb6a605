/* Large bodies: those that wait to be read, of which one token leaves room for the next, and that one for another (the
 * loop does not run, so that none of them is back); and a query that each of many documents is sent with. */
#include "common/net/loop.h"
#include "server/http/infer/inside.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_BYTES = 1024 * 1024, ANSWERS = 2 * LIMIT_BODIES_BYTES / BODY_BYTES };

static struct {
	struct net_loop *loop;
	struct infer_parser *parser;
	struct answer answers[ANSWERS];
	unsigned used;
	uint8_t *body;
} world;

static int set_up(void **state)
{
	(void)state;
	memset(&world, 0, sizeof world);
	world.body = malloc(BODY_BYTES);
	assert_non_null(world.body);
	memset(world.body, ' ', BODY_BYTES); // no JSON
	assert_int_equal(net_loop_create(&world.loop, NULL), STATUS_OK);
	assert_int_equal(infer_parser_create(&world.parser, world.loop, NULL), STATUS_OK);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	infer_parser_destroy(&world.parser);
	net_loop_destroy(&world.loop);
	free(world.body);
	return 0;
}

// Of how many bodies of this token there is room.
static unsigned fill(uintptr_t token, struct error *error)
{
	unsigned count = 0;
	for (;; count++) {
		assert_true(world.used < ANSWERS);
		struct answer *answer = &world.answers[world.used++];
		answer->endpoint = ENDPOINT_COMPLETIONS;
		answer->wording = &openai_wording;
		answer->caller.token = (struct token *)token; // compared, nothing else
		const enum status status = infer_parser_take(world.parser, answer, world.body, BODY_BYTES, error);
		assert_true(status == STATUS_OK || status == STATUS_RATE_LIMITED);
		if (status)
			return count;
	}
}

static void test_shares(void **state)
{
	struct error error = {0};
	const unsigned all = LIMIT_BODIES_BYTES / BODY_BYTES;
	unsigned taken = 0;
	(void)state;
	for (uintptr_t token = 1; token <= 3; token++) {
		const unsigned left = all - taken, own = fill(token * 64, &error);
		assert_int_equal(own, left * 3 / 4);
		assert_int_equal(error.status, STATUS_RATE_LIMITED);
		assert_non_null(strstr(error.message, "of this token already wait to be read"));
		assert_non_null(strstr(error.hint, "try again"));
		taken += own;
	}
}

// What is read of a ranking of so many documents with a query of so many bytes.
static enum status rank(int documents, size_t query_bytes, struct error *error, const char **param)
{
	struct answer answer = {.endpoint = ENDPOINT_RERANK, .wording = &openai_wording};
	struct infer_reading reading;
	struct buffer body;
	buffer_init(&body, LIMIT_BODY_BYTES);
	buffer_printf(&body, "{\"model\": \"m\", \"documents\": [\"d\"");
	for (int i = 1; i < documents; i++)
		buffer_printf(&body, ",\"d\"");
	buffer_printf(&body, "], \"query\": \"");
	for (size_t i = 0; i < query_bytes; i++)
		buffer_append(&body, "q", 1);
	buffer_printf(&body, "\"}");
	infer_read_body(&answer, (const char *)body.data, body.length, &reading);
	*error = reading.error;
	*param = reading.param;
	infer_reading_finish(&reading);
	json_destroy(&answer.inputs);
	json_destroy(&answer.query);
	buffer_finish(&body);
	return reading.status;
}

static void test_a_query_beside_documents(void **state)
{
	struct error error;
	const char *param;
	(void)state;
	assert_int_equal(rank(256, LIMIT_BODY_BYTES / 256, &error, &param), STATUS_OK);
	assert_int_equal(rank(256, LIMIT_BODY_BYTES / 256 + 1, &error, &param), STATUS_INVALID_PARAMS);
	assert_string_equal(param, "query");
	assert_string_equal(error.message, "query may have 65536 bytes at most beside 256 documents");
	assert_non_null(strstr(error.hint, "several requests"));
}

static void test_as_many_documents_as_the_largest_default_of_clients(void **state)
{
	struct error error;
	const char *param;
	(void)state;
	assert_int_equal(rank(LIMIT_EMBEDDINGS, 1, &error, &param), STATUS_OK);
	assert_int_equal(rank(LIMIT_EMBEDDINGS + 1, 1, &error, &param), STATUS_INVALID_PARAMS);
	assert_string_equal(param, "documents");
	assert_string_equal(error.message, "documents must be a list of 1 to 2048 texts");
}

static void test_embeddings_that_fit_into_an_answer(void **state)
{
	struct json *numbers = json_new_array(), *text;
	char base64[4097] = {0};
	(void)state;
	for (int i = 0; i < 768; i++)
		json_push(numbers, json_new_number(0.25));
	memset(base64, 'A', sizeof base64 - 1);
	text = json_new_string(base64);
	assert_true(answer_has_room(numbers, 256));
	assert_false(answer_has_room(numbers, LIMIT_EMBEDDINGS));
	assert_true(answer_has_room(text, LIMIT_EMBEDDINGS));
	json_destroy(&numbers);
	json_destroy(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_shares, set_up, tear_down),
					   cmocka_unit_test(test_a_query_beside_documents),
					   cmocka_unit_test(test_as_many_documents_as_the_largest_default_of_clients),
					   cmocka_unit_test(test_embeddings_that_fit_into_an_answer)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
