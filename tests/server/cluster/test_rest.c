/* When a browser's tab rests, and when it works again. */
#include "server/cluster/rest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

// The outcome of a report with these members at this time: why it rests, or "".
static const char *look(struct rest *rest, const char *members, bool computes, int64_t now_ms)
{
	struct json *json;
	struct error error = {0};
	const bool rested = rest->why[0] != 0;
	assert_int_equal(json_parse(&json, members, strlen(members), &error), STATUS_OK);
	const bool changed = rest_look(rest, json, json_get(json, "rest"), computes, now_ms);
	assert_int_equal(changed, rested != (rest->why[0] != 0));
	json_destroy(&json);
	return rest->why;
}

static void test_hidden(void **context)
{
	struct rest rest = {0};
	(void)context;
	assert_string_equal(look(&rest, "{\"visible\":false}", false, 1000), "");
	assert_string_equal(look(&rest, "{\"visible\":true}", false, 9000), "");
	assert_string_equal(look(&rest, "{\"visible\":false}", false, 12000), ""); // again from the start
	assert_string_equal(look(&rest, "{\"visible\":false}", false, 21999), "");
	assert_string_equal(look(&rest, "{\"visible\":false}", false, 22000), "its page is in the background");
	assert_string_equal(look(&rest, "{\"visible\":true}", false, 26999), "its page is in the background");
	assert_string_equal(look(&rest, "{\"visible\":true}", false, 27000), "");
	assert_string_equal(look(&rest, "{\"visible\":null}", false, 28000), "");
	assert_string_equal(
		look(&rest, "{\"visible\":false,\"rest\":{\"hidden\":false,\"below_percent\":20}}", false, 30000), "");
	assert_string_equal(
		look(&rest, "{\"visible\":false,\"rest\":{\"hidden\":false,\"below_percent\":20}}", false, 90000), "");
}

static void test_battery(void **context)
{
	struct rest rest = {0};
	(void)context;
	assert_string_equal(look(&rest, "{\"battery_percent\":20,\"charging\":false}", false, 1000), "");
	assert_string_equal(look(&rest, "{\"battery_percent\":19,\"charging\":true}", false, 2000), "");
	assert_string_equal(look(&rest, "{\"battery_percent\":19,\"charging\":null}", false, 2000), "");
	assert_string_equal(look(&rest, "{\"battery_percent\":19,\"charging\":false}", false, 3000),
			    "its battery is at 19 % (limit 20 %)");
	assert_string_not_equal(look(&rest, "{\"battery_percent\":24,\"charging\":false}", false, 9000), "");
	assert_string_equal(look(&rest, "{\"battery_percent\":25,\"charging\":false}", false, 10000), "");
	look(&rest, "{\"battery_percent\":3,\"charging\":false}", false, 11000);
	assert_string_not_equal(rest.why, "");
	assert_string_equal(look(&rest, "{\"battery_percent\":3,\"charging\":true}", false, 17000), "");
	assert_string_equal(
		look(&rest, "{\"battery_percent\":3,\"charging\":false,\"rest\":{\"hidden\":true,\"below_percent\":0}}",
		     false, 20000),
		"");
	assert_string_equal(
		look(&rest,
		     "{\"battery_percent\":60,\"charging\":false,\"rest\":{\"hidden\":true,\"below_percent\":80}}",
		     false, 21000),
		"its battery is at 60 % (limit 80 %)");
	assert_string_equal( // the owner has changed it
		look(&rest,
		     "{\"battery_percent\":60,\"charging\":false,\"rest\":{\"hidden\":true,\"below_percent\":0}}",
		     false, 30000),
		"");
}

static void test_pressure(void **context)
{
	static const char critical[] = "{\"pressure\":\"critical\"}", fair[] = "{\"pressure\":\"fair\"}";
	struct rest rest = {0};
	(void)context;
	assert_string_equal(look(&rest, critical, false, 1000), "");
	assert_string_equal(look(&rest, fair, false, 20000), "");
	assert_string_equal(look(&rest, critical, false, 21000), "");
	assert_string_equal(look(&rest, critical, false, 50999), "");
	assert_string_equal(look(&rest, critical, false, 51000), "its processor is under critical pressure");
	assert_string_not_equal(look(&rest, fair, false, 60000), "");
	assert_string_not_equal(look(&rest, critical, false, 70000), "");
	assert_string_not_equal(look(&rest, fair, false, 80000), "");
	assert_string_equal(look(&rest, fair, false, 110000), "");
	rest = (struct rest){0};
	assert_string_equal(look(&rest, critical, true, 1000), ""); // its own work presses it
	assert_string_equal(look(&rest, critical, true, 90000), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hidden),
		cmocka_unit_test(test_battery),
		cmocka_unit_test(test_pressure),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
