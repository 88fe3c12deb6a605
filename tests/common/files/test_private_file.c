/* Files of secrets: written whole, for their owner only, and read only if they are. */
#include "common/base/log.h"
#include "common/files/private_file.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[32], path[64], part[80];

static int setup(void **state)
{
	(void)state;
	snprintf(directory, sizeof directory, "/tmp/exogpu-file-XXXXXX");
	if (!mkdtemp(directory))
		return -1;
	snprintf(path, sizeof path, "%s/secret", directory);
	snprintf(part, sizeof part, "%s.part", path);
	log_set_level(LOG_ERROR);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	unlink(part);
	rmdir(path);
	return rmdir(directory);
}

static enum status write_text(const char *text, struct error *error)
{
	const struct private_file file = {.path = path, .bytes = text, .length = strlen(text), .sync = text[0] != 0};
	return private_file_write(&file, error);
}

static enum status read_text(char text[64], size_t maximum, struct error *error)
{
	struct buffer buffer;
	buffer_init(&buffer, maximum);
	enum status status = private_file_read(path, &buffer, error);
	snprintf(text, 64, "%s", buffer_text(&buffer));
	buffer_finish(&buffer);
	return status;
}

static mode_t mode_of(const char *file)
{
	struct stat status;
	assert_int_equal(lstat(file, &status), 0);
	return status.st_mode & 07777;
}

static void what_is_written_is_read(void **state)
{
	static const char *const texts[] = {"one", "", "another one that is longer"};
	char text[64];
	mode_t before = umask(0);
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		assert_int_equal(write_text(texts[i], NULL), STATUS_OK);
		assert_int_equal(mode_of(path), 0600); // whatever the process would have it be
		assert_int_equal(read_text(text, 63, NULL), STATUS_OK);
		assert_string_equal(text, texts[i]);
		assert_int_equal(access(part, F_OK), -1);
	}
	umask(before);
}

static void a_write_that_fails_leaves_what_was_there(void **state)
{
	struct error error = {0};
	char text[64];
	(void)state;
	assert_int_equal(write_text("kept", NULL), STATUS_OK);
	// The file beside it cannot be made.
	assert_int_equal(mkdir(part, 0700), 0);
	assert_int_equal(write_text("lost", &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, path));
	assert_true(error.hint[0]);
	assert_int_equal(rmdir(part), 0);
	assert_int_equal(read_text(text, 63, NULL), STATUS_OK);
	assert_string_equal(text, "kept");
	// Nor can it take the place of a directory, and then it is not left beside it.
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(write_text("lost", NULL), STATUS_UNAVAILABLE);
	assert_int_equal(access(part, F_OK), -1);
	// One that was left by a process that was cut short is no hindrance, and a link there is not followed.
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink("/dev/full", part), 0);
	assert_int_equal(write_text("new", NULL), STATUS_OK);
	assert_int_equal(read_text(text, 63, NULL), STATUS_OK);
	assert_string_equal(text, "new");

	char endless[5000];
	memset(endless, 'a', sizeof endless - 1);
	endless[sizeof endless - 1] = 0;
	const struct private_file file = {.path = endless, .bytes = "x", .length = 1};
	assert_int_equal(private_file_write(&file, &error), STATUS_INVALID_PARAMS);
}

static void what_is_not_ours_alone_is_not_read(void **state)
{
	struct error error = {0};
	char text[64];
	(void)state;
	assert_int_equal(read_text(text, 63, &error), STATUS_NOT_FOUND);
	assert_string_equal(error.message, "");
	assert_int_equal(write_text("secret", NULL), STATUS_OK);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(read_text(text, 63, NULL), STATUS_OK);
	assert_int_equal(mode_of(path), 0600); // made private
	assert_int_equal(read_text(text, 5, &error), STATUS_LIMIT_EXCEEDED);
	assert_string_equal(text, "");
	unlink(path);
	const char *const links[] = {"/etc/hostname", "/dev/zero", "/none"};
	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		assert_int_equal(symlink(links[i], path), 0);
		error = (struct error){0};
		assert_int_equal(read_text(text, 63, &error), STATUS_FORBIDDEN);
		assert_true(error.hint[0]);
		unlink(path);
	}
	assert_int_equal(mkfifo(path, 0600), 0); // does not wait for a writer
	assert_int_equal(read_text(text, 63, NULL), STATUS_FORBIDDEN);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(read_text(text, 63, NULL), STATUS_FORBIDDEN);
	if (geteuid())
		return; // only root can make a file another's
	rmdir(path);
	assert_int_equal(write_text("secret", NULL), STATUS_OK);
	assert_int_equal(chown(path, 65534, 65534), 0);
	assert_int_equal(read_text(text, 63, NULL), STATUS_FORBIDDEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_written_is_read, setup, teardown),
		cmocka_unit_test_setup_teardown(a_write_that_fails_leaves_what_was_there, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_not_ours_alone_is_not_read, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
