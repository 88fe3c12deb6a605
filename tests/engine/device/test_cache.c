/* Compiled kernels in files: what was kept comes back, and nothing else does. */
#include "engine/device/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka.h needs some of those above it.
#include <cmocka.h>

static char directory[] = "/tmp/exogpu-cache-XXXXXX", path[64];

static struct cache_file file_of(const char *head, const char *source)
{
	return (struct cache_file){.directory = directory,
				   .name = "kernel",
				   .head = head,
				   .source = (const uint8_t *)source,
				   .source_bytes = strlen(source)};
}

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(directory))
		return -1;
	snprintf(path, sizeof(path), "%s/kernel", directory);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(directory); // nothing else was left there
}

static void nothing(const struct cache_file *file)
{
	uint8_t *bytes = (uint8_t *)1;
	assert_int_equal(cache_read(file, &bytes), 0);
	assert_null(bytes);
}

static void test_comes_back(void **state)
{
	struct cache_file file = file_of("gpu 1", "source");
	uint8_t *bytes = NULL;
	(void)state;
	nothing(&file);
	for (int i = 0; i < 2; i++) { // the second replaces the first
		const char *contents = i ? "another" : "compiled";
		assert_true(cache_write(&file, (const uint8_t *)contents, strlen(contents)));
		assert_int_equal(cache_read(&file, &bytes), strlen(contents));
		assert_memory_equal(bytes, contents, strlen(contents));
		free(bytes);
	}
	struct cache_file head = file_of("gpu 2", "source"), source = file_of("gpu 1", "sourcf"),
			  moved = file_of("gpu 1s", "ource");
	nothing(&head);
	nothing(&source);
	nothing(&moved);
}

// Every bit of the file counts, and so does its length.
static void test_damage(void **state)
{
	struct cache_file file = file_of("gpu 1", "source");
	uint8_t whole[128], *bytes;
	(void)state;
	assert_true(cache_write(&file, (const uint8_t *)"compiled", 8));
	FILE *stream = fopen(path, "rb");
	size_t length = fread(whole, 1, sizeof(whole), stream);
	fclose(stream);
	assert_true(length > 8 && length < sizeof(whole));
	for (size_t bit = 0; bit < 8 * length; bit++) {
		whole[bit / 8] ^= (uint8_t)(1 << bit % 8);
		stream = fopen(path, "wb");
		assert_int_equal(fwrite(whole, 1, length, stream), length);
		fclose(stream);
		nothing(&file);
		whole[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t cut = 0; cut < length; cut++) {
		stream = fopen(path, "wb");
		assert_int_equal(fwrite(whole, 1, cut, stream), cut);
		fclose(stream);
		nothing(&file);
	}
	assert_true(cache_write(&file, (const uint8_t *)"compiled", 8));
	assert_int_equal(cache_read(&file, &bytes), 8);
	free(bytes);
}

static void test_where_it_cannot_be(void **state)
{
	struct cache_file file = file_of("gpu 1", "source");
	(void)state;
	file.directory = "/nonexistent";
	nothing(&file);
	assert_false(cache_write(&file, (const uint8_t *)"compiled", 8));
	file = file_of("gpu 1", "source");
	assert_false(cache_write(&file, (const uint8_t *)"", 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_comes_back), cmocka_unit_test(test_damage),
					   cmocka_unit_test(test_where_it_cannot_be)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
