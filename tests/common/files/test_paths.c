/* Where the data directory is, by flag, by environment, by home. */
#include "common/files/paths.h"

// cmocka.h needs these before it.
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
#include <unistd.h>

static void expect(const char *flag, const char *expected)
{
	char path[256];
	struct error error = {0};
	if (paths_data_directory(flag, path, sizeof path, &error))
		fail_msg("%s: %s", flag ? flag : "no flag", error.message);
	assert_string_equal(path, expected);
}

static void set_variables(const char *data, const char *shared, const char *home)
{
	data ? setenv("EXOGPU_DATA", data, 1) : unsetenv("EXOGPU_DATA");
	shared ? setenv("XDG_DATA_HOME", shared, 1) : unsetenv("XDG_DATA_HOME");
	home ? setenv("HOME", home, 1) : unsetenv("HOME");
}

static void in_this_order(void **state)
{
	(void)state;
	set_variables("/env", "/shared", "/home/me");
	expect("/flag", "/flag");
	expect("", "/env");
	expect(NULL, "/env");
	set_variables("", "/shared", "/home/me");
	expect(NULL, "/shared/exogpu");
	set_variables(NULL, "/shared/", "/home/me");
	expect(NULL, "/shared/exogpu");
	set_variables(NULL, "relative", "/home/me");
	expect(NULL, "/home/me/.local/share/exogpu");
	set_variables(NULL, NULL, "/home/me/");
	expect(NULL, "/home/me/.local/share/exogpu");
}

static void paths_are_absolute_and_end_with_their_name(void **state)
{
	(void)state;
	set_variables(NULL, NULL, "/home/me");
	assert_int_equal(chdir("/usr"), 0);
	expect("data", "/usr/data");
	expect("data//", "/usr/data");
	expect("/a/", "/a");
	expect("/", "/");
	assert_int_equal(chdir("/"), 0);
	expect("data", "/data");
}

static void without_home_the_user_database_is_asked(void **state)
{
	char path[256];
	(void)state;
	set_variables(NULL, NULL, NULL);
	if (!paths_data_directory(NULL, path, sizeof path, NULL))
		assert_non_null(strstr(path, "/.local/share/exogpu"));
}

static void what_does_not_fit_is_refused(void **state)
{
	char path[8], room[5];
	struct error error = {0};
	(void)state;
	set_variables("/seven77", NULL, "/home/me");
	assert_int_equal(paths_data_directory(NULL, path, sizeof path, &error), STATUS_INVALID_PARAMS);
	assert_true(error.hint[0]);
	assert_int_equal(paths_data_directory("relative-path", path, sizeof path, NULL), STATUS_INVALID_PARAMS);
	set_variables(NULL, NULL, "/home/me");
	assert_int_equal(paths_data_directory(NULL, path, sizeof path, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(paths_join("/a", "bc", room, sizeof room, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(paths_join("/a", "b", room, sizeof room, NULL), STATUS_OK);
	assert_string_equal(room, "/a/b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_this_order),
		cmocka_unit_test(paths_are_absolute_and_end_with_their_name),
		cmocka_unit_test(without_home_the_user_database_is_asked),
		cmocka_unit_test(what_does_not_fit_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
