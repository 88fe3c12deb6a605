/* Where Vulkan manifests are looked for, and what is said about those whose driver cannot be loaded. */
#include "engine/device/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static char folder[64], path[128];

static void write_manifest(const char *text)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int make_folder(void **state)
{
	(void)state;
	static const char *const names[] = {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES",
					    "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS",  "XDG_DATA_HOME",
					    "XDG_DATA_DIRS"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	snprintf(folder, sizeof(folder), "/tmp/exogpu-manifest-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/test_icd.json", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static bool looked_in(const struct manifest_paths *paths, const char *wanted)
{
	for (size_t i = 0; i < paths->count; i++)
		if (!strcmp(paths->paths[i], wanted))
			return true;
	return false;
}

static void folders_are_those_of_the_loader(void **state)
{
	struct manifest_paths paths;
	(void)state;
	setenv("HOME", "/nobody", 1);
	manifest_find_paths(&paths);
	assert_false(paths.files);
	assert_true(looked_in(&paths, "/etc/vulkan/icd.d"));
	assert_true(looked_in(&paths, "/usr/share/vulkan/icd.d"));
	assert_true(looked_in(&paths, "/usr/local/share/vulkan/icd.d"));
	assert_true(looked_in(&paths, "/nobody/.local/share/vulkan/icd.d"));
	setenv("XDG_DATA_HOME", "/data", 1);
	manifest_find_paths(&paths);
	assert_true(looked_in(&paths, "/data/vulkan/icd.d"));
	assert_false(looked_in(&paths, "/nobody/.local/share/vulkan/icd.d"));
	unsetenv("XDG_DATA_HOME");
}

static void named_files_are_the_only_ones(void **state)
{
	struct manifest_paths paths;
	(void)state;
	setenv("VK_ICD_FILENAMES", "/a.json", 1);
	setenv("VK_DRIVER_FILES", "/b.json:/c.json", 1);
	manifest_find_paths(&paths);
	assert_true(paths.files);
	assert_int_equal(paths.count, 2);
	assert_string_equal(paths.paths[0], "/b.json");
	assert_string_equal(paths.paths[1], "/c.json");
	unsetenv("VK_ICD_FILENAMES");
	unsetenv("VK_DRIVER_FILES");
}

static void endless_lists_are_cut(void **state)
{
	struct manifest_paths paths;
	char list[8192];
	size_t used = 0;
	(void)state;
	for (int i = 0; i < 200; i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, ":/folder/%d.json", i);
	setenv("VK_DRIVER_FILES", list, 1);
	manifest_find_paths(&paths);
	assert_int_equal(paths.count, MANIFEST_PATHS);
	unsetenv("VK_DRIVER_FILES");
}

static void broken_drivers_are_told(void **state)
{
	static const struct {
		const char *text, *reason;
	} manifests[] = {
		{"{\"ICD\":{\"library_path\":\"libexogpu_none.so\"}}", "libexogpu_none.so"},
		{"{\"ICD\":{\"library_path\":\"./none.so\"}}", "none.so"},
		{"{\"ICD\":", "JSON"},
	};
	(void)state;
	setenv("VK_DRIVER_FILES", path, 1);
	for (size_t i = 0; i < sizeof(manifests) / sizeof(manifests[0]); i++) {
		struct found *found = found_create();
		write_manifest(manifests[i].text);
		manifest_report(found);
		assert_int_equal(found->library_count, 1);
		assert_string_equal(found->libraries[0].name, "Vulkan driver: test_icd.json");
		assert_int_equal(found->libraries[0].state, LIBRARY_BROKEN);
		assert_non_null(strstr(found->libraries[0].reason, manifests[i].reason));
		assert_string_not_equal(found->libraries[0].hint, "");
		found_destroy(&found);
	}
	unsetenv("VK_DRIVER_FILES");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(folders_are_those_of_the_loader),
		cmocka_unit_test(named_files_are_the_only_ones),
		cmocka_unit_test(endless_lists_are_cut),
		cmocka_unit_test(broken_drivers_are_told),
	};
	return cmocka_run_group_tests_name("device/manifest", tests, make_folder, remove_folder);
}
