/* JSON: what is taken and what is not (RFC 8259 and the bounds of limits.h), reading, building, and printing that reads
 * back to the same. */
#include "tests/common/json/json_oracle.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct json *parse(const char *text)
{
	struct json *json = NULL;
	struct error error = {0};
	if (json_parse(&json, text, strlen(text), &error))
		fail_msg("%s: %s", text, error.message);
	return json;
}

static void expect_print(const struct json *json, const char *expected)
{
	struct buffer text;
	buffer_init(&text, 1 << 20);
	assert_int_equal(json_print(json, &text), STATUS_OK);
	assert_string_equal(buffer_text(&text), expected);
	buffer_finish(&text);
}

// Left: as it comes; right: as it is printed.
static void what_is_json_is_taken(void **state)
{
	(void)state;
	static const char *const pairs[][2] = {
		{"null", "null"},
		{" \t\r\n true ", "true"},
		{"[]", "[]"},
		{"{}", "{}"},
		{"[1,[2,[3]]]", "[1,[2,[3]]]"},
		{"{\"a\" : {\"b\":[ ]}}", "{\"a\":{\"b\":[]}}"},
		{"0", "0"},
		{"-0", "0"},
		{"-1", "-1"},
		{"1E2", "100"},
		{"1e+2", "100"},
		{"0.5", "0.5"},
		{"-12.5e-1", "-1.25"},
		{"0.1", "0.1"},
		{"1e300", "1e+300"},
		{"9007199254740991", "9007199254740991"},
		{"-9007199254740991", "-9007199254740991"},
		{"123456789012", "123456789012"},
		{"\"\"", "\"\""},
		{"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\u0008\\u000c\\n\\u000d\\t\""},
		{"\"\\u00e9\\uD83D\\uDDA5\"", "\"\xC3\xA9\xF0\x9F\x96\xA5\""},
		{"\"\xC3\xA9\x7F\"", "\"\xC3\xA9\x7F\""},
		{"{\"\":1}", "{\"\":1}"},
	};
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		struct json *json = parse(pairs[i][0]);
		expect_print(json, pairs[i][1]);
		struct json *again = parse(pairs[i][1]);
		assert_true(json_equal(json, again));
		json_destroy(&again);
		json_destroy(&json);
		assert_null(json);
	}
}

static void refuse(const char *text, size_t length)
{
	struct json *json = NULL;
	struct error error = {0};
	if (json_parse(&json, text, length, &error) != STATUS_PARSE_ERROR)
		fail_msg("taken: %s", text);
	assert_null(json);
	assert_true(error.message[0]);
}

static void what_is_none_is_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"",
		" ",
		"{",
		"}",
		"[",
		"]",
		"[1",
		"[1,",
		"[1,]",
		"[,1]",
		"[1 2]",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\":1,}",
		"{a:1}",
		"{1:1}",
		"'a'",
		"\"",
		"\"\\\"",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\u12G4\"",
		"\"\\uD800\"",
		"\"\\uDC00\"",
		"\"\\uD800\\u0041\"",
		"\"\\u0000\"",
		"\"a\nb\"",
		"\"a\x01\"",
		"nul",
		"nulll",
		"True",
		"NaN",
		"Infinity",
		"-",
		"+1",
		"01",
		"-01",
		"00",
		"1.",
		".5",
		"-.5",
		"1.e1",
		"1e",
		"1e+",
		"0x10",
		"1_000",
		"1e999",
		"-1e999",
		"1 1",
		"null x",
		"[1]]",
		"{}{}",
		"/**/1",
		"//\n1",
		"\xEF\xBB\xBF"
		"1",
		"\x01"
		"1",
		"1\x0B",
		"\x7F"
		"1",
		"[1]\x0C",
		"{\"a\":1,\"a\":2}",
		"[{\"a\":1,\"b\":2,\"a\":3}]",
		"\"\xC0\x80\"",
		"\"\xED\xA0\x80\"",
		"\"\xF4\x90\x80\x80\"",
		"\"\x80\"",
		"\"\xE2\x82\"",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		refuse(texts[i], strlen(texts[i]));
	refuse("1\0", 2);
	refuse("\"a\0b\"", 5);
	refuse("\"a\\\0\"", 5);
	refuse("12345", 0);
}

static void the_length_counts_not_the_nul(void **state)
{
	(void)state;
	struct json *json = NULL;
	assert_int_equal(json_parse(&json, "123456", 3, NULL), STATUS_OK);
	assert_int_equal(json_number(json, 0), 123);
	json_destroy(&json);
	refuse("1.5", 2);
	refuse("1e5", 2);
	refuse("\"\\u0041\"", 6);
	refuse("true", 3);
}

static void many_members_none_twice(void **state)
{
	(void)state;
	struct buffer text;
	for (int twice = 0; twice < 2; twice++) {
		struct json *json = NULL;
		buffer_init(&text, 1 << 20);
		buffer_append_byte(&text, '{');
		for (int i = 0; i < 5000; i++)
			buffer_printf(&text, "%s\"k%d\":%d", i ? "," : "", i, i);
		buffer_append_text(&text, twice ? ",\"k2500\":0}" : "}");
		enum status status = json_parse(&json, buffer_text(&text), text.length, NULL);
		assert_int_equal(status, twice ? STATUS_PARSE_ERROR : STATUS_OK);
		if (!twice)
			assert_int_equal(json_count(json), 5000);
		json_destroy(&json);
		buffer_finish(&text);
	}
}

static void nesting_to_the_limit(void **state)
{
	(void)state;
	char text[2 * LIMIT_NESTING + 4];
	struct json *json = NULL;
	memset(text, '[', LIMIT_NESTING);
	memset(text + LIMIT_NESTING, ']', LIMIT_NESTING);
	assert_int_equal(json_parse(&json, text, (size_t)LIMIT_NESTING * 2, NULL), STATUS_OK);
	json_destroy(&json);
	memset(text, '[', LIMIT_NESTING + 1);
	memset(text + LIMIT_NESTING + 1, ']', LIMIT_NESTING + 1);
	refuse(text, ((size_t)LIMIT_NESTING + 1) * 2);
	json = parse("[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\",\"\\\"]]]\"]"); // brackets in strings do
											     // not count
	json_destroy(&json);
}

static void reading_is_safe(void **state)
{
	(void)state;
	struct json *json = parse("{\"n\":1.5,\"i\":7,\"s\":\"t\",\"b\":true,\"z\":null,\"a\":[1,\"x\"],\"o\":{},"
				  "\"big\":\"18446744073709551615\","
				  "\"neg\":\"-9223372036854775808\",\"max\":9007199254740993}");
	int64_t value = 0;
	assert_int_equal(json_type(NULL), JSON_ABSENT);
	assert_null(json_get(NULL, "x"));
	assert_null(json_get(json_get(json, "a"), "x"));
	assert_null(json_get(json, "N"));
	assert_int_equal(json_type(json_get(json, "z")), JSON_NULL);
	assert_int_equal(json_count(NULL), 0);
	assert_null(json_first(NULL));
	assert_null(json_next(NULL));
	assert_string_equal(json_name(json_first(json)), "n");
	assert_string_equal(json_name(json_first(json_get(json, "a"))), "");
	assert_string_equal(json_get_string(json, "s", "no"), "t");
	assert_string_equal(json_get_string(json, "n", "no"), "no");
	assert_true(json_get_number(json, "n", 0) == 1.5);
	assert_true(json_get_number(json, "s", -1) == -1);
	assert_true(json_get_bool(json, "b", false));
	assert_true(json_get_bool(json, "i", true));
	assert_int_equal(json_get_integer(json, "i", 0), 7);
	assert_int_equal(json_get_integer(json, "n", -1), -1);
	assert_int_equal(json_get_integer(json, "none", -1), -1);
	assert_int_equal(json_integer(json_get(json, "big"), &value), STATUS_INVALID_PARAMS);
	assert_int_equal(json_integer(json_get(json, "neg"), &value), STATUS_OK);
	assert_true(value == INT64_MIN);
	assert_int_equal(json_integer(json_get(json, "max"), &value), STATUS_INVALID_PARAMS); // not exact in a double
	assert_int_equal(json_integer(json_get(json, "s"), &value), STATUS_INVALID_PARAMS);
	json_destroy(&json);
}

static void building_and_printing(void **state)
{
	(void)state;
	struct json *object = json_new_object(), *array = json_new_array();
	json_push(array, json_new_number(1e-7));
	json_push(array, json_new_number((double)NAN));
	json_push(array, json_new_number((double)INFINITY));
	json_push(array, json_new_integer(INT64_MAX));
	json_push(array, json_new_integer(INT64_MIN));
	json_push(array, json_new_integer(9007199254740991));
	json_push(array, json_new_string("bad \xFF utf"));
	json_push(array, json_new_string(NULL));
	json_set(object, "list", array);
	json_set_bool(object, "flag", true);
	json_set_string(object, "flag", "replaced");
	json_set_number(object, "gone", 1);
	json_remove(object, "gone");
	json_remove(object, "never there");
	expect_print(object,
		     "{\"list\":[1e-07,null,null,\"9223372036854775807\",\"-9223372036854775808\",9007199254740991,"
		     "\"bad \xEF\xBF\xBD utf\",null],\"flag\":\"replaced\"}");
	struct json *copy = json_copy(object);
	assert_true(json_equal(copy, object));
	json_set_bool(copy, "flag", false);
	assert_false(json_equal(copy, object));
	json_destroy(&copy);
	json_destroy(&object);
	json_set(NULL, "x", json_new_null()); // taken all the same
	json_push(NULL, json_new_null());
	struct buffer text;
	buffer_init(&text, 3);
	assert_int_equal(json_print(NULL, &text), STATUS_OUT_OF_MEMORY);
	struct json *longer = json_new_string("longer");
	assert_int_equal(json_print(longer, &text), STATUS_LIMIT_EXCEEDED);
	json_destroy(&longer);
	buffer_finish(&text);
}

static void numbers_read_back(void **state)
{
	(void)state;
	static const double values[] = {0,
					1,
					-1,
					0.1,
					1.0 / 3,
					2.5,
					1e15,
					1e16,
					1e17,
					123456.789,
					5e-324,
					1.7976931348623157e308,
					9007199254740992.0,
					4503599627370497.5,
					2.2250738585072014e-308,
					100000,
					1e21,
					0.30000000000000004};
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		struct buffer text;
		struct json *json = json_new_number(values[i]), *again = NULL;
		buffer_init(&text, 64);
		assert_int_equal(json_print(json, &text), STATUS_OK);
		again = parse(buffer_text(&text));
		if (json_number(again, -1) != values[i])
			fail_msg("%.17g was printed as %s", values[i], buffer_text(&text));
		json_destroy(&again);
		json_destroy(&json);
		buffer_finish(&text);
	}
}

// A text of exactly `length`, so that a sanitizer sees what is read past it.
static void agree(const char *text, size_t length)
{
	char *copy = malloc(length ? length : 1);
	struct json *json = NULL;
	assert_non_null(copy);
	memcpy(copy, text, length);
	enum status status = json_parse(&json, copy, length, NULL);
	if (!oracle_agrees(copy, length, status, json))
		fail_msg("not what cJSON says: %.*s", (int)length, text);
	json_destroy(&json);
	free(copy);
}

// Texts cut off everywhere, and with every byte of them replaced by each that means something.
static void cjson_says_the_same(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"{\"jsonrpc\":\"2.0\",\"id\":17,\"method\":\"memory.read\",\"params\":{\"bytes\":65536}}",
		" [ 0 , -1.5e+3 ,true,false , null,\"\",{ } ,[ ] ]\r\n\t",
		"[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDDA5\\uffff\\u007f\\u0800\\uDBFF\\uDFFF\"]",
		"{\"\xC3\xA9\":\"\xF0\x9F\x96\xA5\",\"a\":{\"a\":[{\"b\":-0,\"c\":0.10},1E-400,999999999999999]}}",
		"[9007199254740993,1234567890123456,-2147483648,2147483648,1e308,"
		"123456789012345678901234567890123456789"
		"012345678901234567890123456789]",
	};
	static const char bytes[] = "\0\x01\t\n \"\\/,:{}[]-+.0129eEuUnftabdDcC\x7f\x80\xC3\xED\xFF";
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		char changed[256];
		size_t length = strlen(texts[i]);
		assert_true(length < sizeof changed);
		for (size_t at = 0; at <= length; at++)
			agree(texts[i], at);
		for (size_t at = 0; at < length; at++)
			for (size_t k = 0; k < sizeof bytes - 1; k++) {
				memcpy(changed, texts[i], length);
				changed[at] = bytes[k];
				agree(changed, length);
			}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cjson_says_the_same),     cmocka_unit_test(what_is_json_is_taken),
		cmocka_unit_test(what_is_none_is_refused), cmocka_unit_test(the_length_counts_not_the_nul),
		cmocka_unit_test(many_members_none_twice), cmocka_unit_test(nesting_to_the_limit),
		cmocka_unit_test(reading_is_safe),         cmocka_unit_test(building_and_printing),
		cmocka_unit_test(numbers_read_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
