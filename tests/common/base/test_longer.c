/* Limits: as they are, or as long or as low as a test asks for. */
#include "common/base/limits.h"
#include "common/base/longer.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdlib.h>

static int silence_with(const char *text)
{
	assert_int_equal(setenv("EXOGPU_TEST_NODE_SILENCE_S", text, 1), 0);
	return longer_node_silence_s();
}

static void a_limit_is_as_it_is_or_longer(void **state)
{
	(void)state;
	assert_int_equal(unsetenv("EXOGPU_TEST_NODE_SILENCE_S"), 0);
	assert_int_equal(longer_node_silence_s(), LIMIT_NODE_SILENCE_S);
	static const char *const no_longer[] = {"", "0", "-1", "7", "8", "3601", "99999999999999999999", "long"};
	for (size_t i = 0; i < sizeof(no_longer) / sizeof(no_longer[0]); i++)
		assert_int_equal(silence_with(no_longer[i]), LIMIT_NODE_SILENCE_S);
	assert_int_equal(silence_with("9"), 9);
	assert_int_equal(silence_with("3600"), 3600);
}

static void each_has_its_own_variable(void **state)
{
	(void)state;
	assert_int_equal(unsetenv("EXOGPU_TEST_LAST_WAIT_MS"), 0);
	assert_int_equal(longer_last_wait_ms(500), 500);
	assert_int_equal(setenv("EXOGPU_TEST_LAST_WAIT_MS", "60000", 1), 0);
	assert_int_equal(longer_last_wait_ms(500), 60000);
	assert_int_equal(longer_last_wait_ms(70000), 70000);
}

static void a_limit_may_be_lowered(void **state)
{
	static const char *const no_lower[] = {"", "0", "-1", "30", "31", "99999999999999999999", "low"};
	(void)state;
	assert_int_equal(unsetenv("EXOGPU_TEST_SOURCE_S"), 0);
	assert_int_equal(lower_in_tests("EXOGPU_TEST_SOURCE_S", 30), 30);
	for (size_t i = 0; i < sizeof(no_lower) / sizeof(no_lower[0]); i++) {
		assert_int_equal(setenv("EXOGPU_TEST_SOURCE_S", no_lower[i], 1), 0);
		assert_int_equal(lower_in_tests("EXOGPU_TEST_SOURCE_S", 30), 30);
	}
	assert_int_equal(setenv("EXOGPU_TEST_SOURCE_S", "1", 1), 0);
	assert_int_equal(lower_in_tests("EXOGPU_TEST_SOURCE_S", 30), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_limit_is_as_it_is_or_longer),
					   cmocka_unit_test(each_has_its_own_variable),
					   cmocka_unit_test(a_limit_may_be_lowered)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
