/* The delivered part of a request: kept as it is delivered, and neither lost nor sent twice when the request continues
 * on another worker. */
#include "server/instances/requests/delivered.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct json *parse(const char *text)
{
	struct json *json = NULL;
	assert_int_equal(json_parse(&json, text, strlen(text), NULL), STATUS_OK);
	return json;
}

static void keep(struct delivered *delivered, const char *text)
{
	struct json *params = parse(text);
	assert_true(delivered_keep(delivered, params));
	json_destroy(&params);
}

static void test_nothing(void **context)
{
	struct delivered delivered = {0};
	struct json *call = parse("{\"echo\":true}"), *params = parse("{\"text\":\"abc\"}");
	(void)context;
	delivered_resume(&delivered, call);
	assert_null(json_get(call, "generated"));
	assert_null(delivered_rest(&delivered, params));
	json_destroy(&params);
	json_destroy(&call);
	delivered_finish(&delivered);
}

static void test_tokens(void **context)
{
	char text[64];
	struct delivered delivered = {0};
	struct json *call = parse("{\"echo\":true}");
	(void)context;
	keep(&delivered, "{\"text\":\"the prompt \",\"tokens\":[]}");
	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof text, "{\"text\":\"ab\",\"tokens\":[%d,%d]}", 2 * i, 2 * i + 1);
		keep(&delivered, text);
	}
	delivered_resume(&delivered, call);
	const struct json *generated = json_get(call, "generated");
	assert_int_equal(json_count(generated), 2000);
	int64_t expected = 0, value;
	for (const struct json *one = json_first(generated); one; one = json_next(one)) {
		json_integer(one, &value);
		assert_int_equal(value, expected++);
	}
	assert_int_equal(json_get_integer(call, "delivered_bytes", -1), 2000); // the echo is not generated
	assert_false(json_get_bool(call, "echo", true));
	json_destroy(&call);
	delivered_finish(&delivered);
}

// The prompt is told again from its beginning, in other pieces than before.
static void test_echo(void **context)
{
	static const char prompt[] = "0123456789";
	(void)context;
	for (size_t had = 0; had <= sizeof prompt - 1; had++) {
		char text[64], got[64] = "";
		struct delivered delivered = {0};
		struct json *call = parse("{\"echo\":true}");
		snprintf(text, sizeof text, "{\"text\":\"%.*s\",\"tokens\":[]}", (int)had, prompt);
		keep(&delivered, text);
		delivered_resume(&delivered, call);
		assert_null(json_get(call, "generated"));
		for (size_t at = 0; at < sizeof prompt - 1; at += 3) {
			snprintf(text, sizeof text, "{\"text\":\"%.3s\",\"tokens\":[]}", prompt + at);
			struct json *params = parse(text), *rest = delivered_rest(&delivered, params);
			const size_t length = strlen(got);
			snprintf(got + length, sizeof got - length, "%s",
				 json_get_string(rest ? rest : params, "text", ""));
			assert_true(delivered_keep(&delivered, rest ? rest : params));
			json_destroy(&rest);
			json_destroy(&params);
		}
		assert_string_equal(got, prompt + had);
		assert_int_equal(delivered.echo_bytes, sizeof prompt - 1);
		json_destroy(&call);
		delivered_finish(&delivered);
	}
}

static void test_choices(void **context)
{
	struct delivered delivered = {0};
	struct json *call = parse("{}"), *params = parse("{\"text\":\"\",\"choices\":[1,2,3]}");
	(void)context;
	keep(&delivered, "{\"text\":\"\",\"choices\":[1,2]}");
	delivered_resume(&delivered, call);
	struct json *rest = delivered_rest(&delivered, params);
	assert_int_equal(json_count(json_get(rest, "choices")), 1);
	json_destroy(&rest);
	json_destroy(&params);
	json_destroy(&call);
	delivered_finish(&delivered);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_echo),
		cmocka_unit_test(test_choices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
