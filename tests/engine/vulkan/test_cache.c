/* The pipeline cache on disk: written by who may, read by all, and never believed when it is not whole. */
#include "tests/engine/vulkan/here.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *key;
static char directory[] = "/tmp/exogpu-cache-XXXXXX", path[512];

// Open and close; returns how many bytes of the file reached the driver.
static size_t use(bool writable)
{
	struct backend_device *device = NULL;
	struct backend_open open = {.hardware_key = key, .cache_directory = directory, .cache_writable = writable};
	HERE_OK(vulkan_device_open(&device, &open, 0, &error));
	size_t bytes = device->cache_bytes;
	snprintf(path, sizeof(path), "%s/%s", directory, device->cache_name);
	vulkan_device_close(&device);
	return bytes;
}

static int files(void)
{
	DIR *entries = opendir(directory);
	int count = 0;
	for (struct dirent *entry; (entry = readdir(entries));)
		count += entry->d_name[0] != '.';
	closedir(entries);
	return count;
}

static void written_by_who_may(void **state)
{
	struct stat info;
	(void)state;
	assert_int_equal(use(false), 0);
	assert_int_equal(files(), 0);
	assert_int_equal(use(true), 0);
	assert_int_equal(files(), 1);
	assert_int_equal(stat(path, &info), 0);
	size_t bytes = use(false);
	print_message("%zu bytes of %lld reach the driver\n", bytes, (long long)info.st_size);
	assert_true(bytes > 0 && bytes < (size_t)info.st_size);
	assert_int_equal(use(true), bytes); // the driver gave as much as before: nothing new
	assert_int_equal(files(), 1);
}

// Each of its bytes changed, and each end cut off: none reaches the driver, and the next who may writes it anew.
static void not_believed(void **state)
{
	static uint8_t whole[1 << 22];
	(void)state;
	use(true);
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	size_t length = fread(whole, 1, sizeof(whole), file);
	fclose(file);
	assert_true(length > 64 && length < sizeof(whole));
	const size_t places[] = {0, 7, 8, 16, 40, 47, 48, 60, length / 2, length - 1};
	for (size_t i = 0; i < 2 * sizeof(places) / sizeof(places[0]); i++) {
		size_t place = places[i / 2];
		file = fopen(path, "wb");
		assert_non_null(file);
		whole[place] ^= 4;
		fwrite(whole, 1, i % 2 ? place : length, file); // changed there, or cut there
		whole[place] ^= 4;
		fclose(file);
		if (use(false))
			fail_msg("a file %s at byte %zu reached the driver", i % 2 ? "cut" : "changed", place);
	}
	use(true);
	assert_true(use(false) > 0);
}

static void of_another_device(void **state)
{
	struct backend_device *device = NULL;
	struct backend_open open = {.hardware_key = key, .cache_directory = directory};
	(void)state;
	use(true);
	assert_true(use(false) > 0);
	HERE_OK(vulkan_device_open(&device, &open, 0, &error));
	device->properties.driverVersion++;
	device->fn.vkDestroyPipelineCache(device->device, device->cache, NULL);
	free(device->cache_directory);
	HERE_OK(vulkan_cache_open(device, &open, &error));
	assert_int_equal(device->cache_bytes, 0);
	vulkan_device_close(&device);
}

static void nowhere(void **state)
{
	(void)state;
	unlink(path);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_equal(use(false), 0);
	unlink(path);
	assert_int_equal(rmdir(directory), 0);
	assert_int_equal(use(true), 0); // says so in the log, and goes on
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_by_who_may),
		cmocka_unit_test(not_believed),
		cmocka_unit_test(of_another_device),
		cmocka_unit_test(nowhere),
	};
	key = here_key();
	if (!key[0])
		return 77;
	return mkdtemp(directory) ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
