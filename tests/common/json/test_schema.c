/* The subset of JSON Schema, keyword by keyword. The whole is compared with an independent validator by
 * tests/api/schema.test.mjs. */
#include "common/json/schema.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

static struct json *parse(const char *text)
{
	struct json *json = NULL;
	if (json_parse(&json, text, strlen(text), NULL))
		fail_msg("not JSON: %s", text);
	return json;
}

static enum status check(const char *schema_text, const char *value_text, struct error *error)
{
	struct json *schema = parse(schema_text), *value = parse(value_text);
	schema_link(schema, NULL);
	enum status status = schema_check(schema, value, "$", error);
	json_destroy(&schema);
	json_destroy(&value);
	return status;
}

static void keywords(void **state)
{
	(void)state;
	static const struct {
		const char *schema, *fits, *fits_not;
	} cases[] = {
		{"{\"type\":\"string\"}", "\"\"", "1"},
		{"{\"type\":\"integer\"}", "1.0", "1.5"},
		{"{\"type\":\"integer\"}", "-9007199254740991", "\"1\""},
		{"{\"type\":\"number\"}", "1.5", "null"},
		{"{\"type\":\"boolean\"}", "false", "0"},
		{"{\"type\":\"null\"}", "null", "false"},
		{"{\"type\":\"array\"}", "[]", "{}"},
		{"{\"type\":\"object\"}", "{}", "[]"},
		{"{\"type\":[\"string\",\"null\"]}", "null", "1"},
		{"{\"enum\":[\"a\",\"b\"]}", "\"b\"", "\"B\""},
		{"{\"enum\":[1,null]}", "null", "\"1\""},
		{"{\"const\":{\"a\":[1]}}", "{\"a\":[1]}", "{\"a\":[2]}"},
		{"{\"minimum\":2}", "2", "1.999"},
		{"{\"maximum\":2}", "2", "2.001"},
		{"{\"minimum\":2}", "\"not a number\"", "0"},
		{"{\"minLength\":2}", "\"ab\"", "\"a\""},
		{"{\"maxLength\":2}", "\"\\u00fc\\ud83d\\udda5\"", "\"abc\""}, // two code points in six bytes
		{"{\"minItems\":1}", "[0]", "[]"},
		{"{\"maxItems\":1}", "[0]", "[0,0]"},
		{"{\"items\":{\"type\":\"integer\"}}", "[1,2]", "[1,\"2\"]"},
		{"{\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{\"b\":\"x\"}", "{\"a\":\"x\"}"},
		{"{\"required\":[\"a\"]}", "{\"a\":null}", "{\"b\":1}"},
		{"{\"properties\":{\"a\":{}},\"additionalProperties\":false}", "{\"a\":1}", "{\"A\":1}"},
		{"{\"additionalProperties\":{\"type\":\"integer\"}}", "{\"x\":1}", "{\"x\":\"1\"}"},
		{"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"object\",\"required\":[\"a\"]}]}", "{\"a\":1}", "{}"},
		{"{\"$ref\":\"#/definitions/a\",\"definitions\":{\"a\":{\"type\":\"string\"}}}", "\"x\"", "1"},
		{"{\"$ref\":\"#/d/a\",\"d\":{\"a\":{\"$ref\":\"#/d/b\"},\"b\":{\"items\":{\"$ref\":\"#/d/"
		 "c\"}},\"c\":{\"maximum\":1}}}",
		 "[1]", "[2]"},
		{"{\"description\":\"anything\"}", "[{}]", NULL},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct error error = {0};
		if (check(cases[i].schema, cases[i].fits, &error))
			fail_msg("%s refuses %s: %s", cases[i].schema, cases[i].fits, error.message);
		if (cases[i].fits_not && check(cases[i].schema, cases[i].fits_not, &error) != STATUS_INVALID_PARAMS)
			fail_msg("%s takes %s", cases[i].schema, cases[i].fits_not);
		if (cases[i].fits_not)
			assert_memory_equal(error.message, "$", 1);
	}
}

static void the_error_names_the_place(void **state)
{
	(void)state;
	struct error error = {0};
	check("{\"properties\":{\"list\":{\"items\":{\"properties\":{\"n\":{\"maximum\":5}}}}}}",
	      "{\"list\":[{\"n\":1},{\"n\":6}]}", &error);
	assert_string_equal(error.message, "$.list[1].n must be at most 5");
	error = (struct error){0};
	check("{\"properties\":{\"a\":{}},\"additionalProperties\":false}", "{\"b\":1}", &error);
	assert_string_equal(error.message, "$ has the unknown member \"b\"");
	// Of several alternatives the one whose member is there.
	static const char arms[] = "{\"anyOf\":["
				   "{\"properties\":{\"a\":{}},\"required\":[\"a\"],\"additionalProperties\":false},"
				   "{\"properties\":{\"b\":{\"minimum\":0}},\"required\":[\"b\"],"
				   "\"additionalProperties\":false}]}";
	static const char *const told[][2] = {{"{\"b\":-1}", "$.b must be at least 0"},
					      {"{\"b\":1,\"c\":1}", "$ has the unknown member \"c\""},
					      {"{\"b\":1,\"a\":1}", "$ has the unknown member \"b\""},
					      {"{\"c\":1}", "$ lacks \"a\""}};
	for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
		error = (struct error){0};
		assert_int_equal(check(arms, told[i][0], &error), STATUS_INVALID_PARAMS);
		assert_string_equal(error.message, told[i][1]);
	}
}

static void references_that_lead_nowhere(void **state)
{
	(void)state;
	assert_int_equal(check("{\"$ref\":\"#/none\"}", "1", NULL), STATUS_INTERNAL);
	assert_int_equal(check("{\"$ref\":\"nothing\"}", "1", NULL), STATUS_INTERNAL);
	assert_int_equal(check("{\"$ref\":\"other.json#/a\"}", "1", NULL), STATUS_INTERNAL);
	assert_int_equal(check("{\"$ref\":\"#\"}", "1", NULL), STATUS_INTERNAL);
	assert_int_equal(check("{\"a\":{\"$ref\":\"#/b\"},\"b\":{\"$ref\":\"#/a\"},\"$ref\":\"#/a\"}", "1", NULL),
			 STATUS_INTERNAL);
}

static void references_into_the_other_document(void **state)
{
	(void)state;
	struct json *self = parse("{\"s\":{\"$ref\":\"api.json#/t\"},\"t\":{\"type\":\"null\"}}");
	struct json *other = parse("{\"t\":{\"items\":{\"$ref\":\"#/u\"}},\"u\":{\"type\":\"integer\"}}");
	struct json *fits = parse("[1]"), *fits_not = parse("[null]");
	schema_link(other, NULL);
	schema_link(self, other);
	assert_int_equal(schema_check(json_get(self, "s"), fits, "x", NULL), STATUS_OK);
	assert_int_equal(schema_check(json_get(self, "s"), fits_not, "x", NULL), STATUS_INVALID_PARAMS);
	json_destroy(&self);
	json_destroy(&other);
	json_destroy(&fits);
	json_destroy(&fits_not);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keywords),
		cmocka_unit_test(the_error_names_the_place),
		cmocka_unit_test(references_that_lead_nowhere),
		cmocka_unit_test(references_into_the_other_document),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
