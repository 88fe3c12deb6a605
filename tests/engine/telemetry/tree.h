/* A recorded sysfs and /proc for tests: a temporary folder, files in it, and its removal. Paths are relative to it.
 *
 * Each file is written in place, so that a reader who keeps it open sees the new content as with the kernel's. */
#pragma once
// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char tree_root[64];

static inline void tree_create(void)
{
	snprintf(tree_root, sizeof tree_root, "/tmp/exogpu-tree-XXXXXX");
	assert_non_null(mkdtemp(tree_root));
}

static inline int tree_drop(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	(void)status, (void)kind, (void)walk;
	return remove(path);
}

static inline void tree_remove(const char *path)
{
	char full[512];
	snprintf(full, sizeof full, "%s/%s", tree_root, path);
	nftw(full, tree_drop, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void tree_destroy(void)
{
	tree_remove("");
}

static inline void tree_write(const char *path, const char *text)
{
	char full[512];
	int length = snprintf(full, sizeof full, "%s/%s", tree_root, path);
	assert_in_range(length, 1, sizeof full - 1);
	for (char *slash = full + strlen(tree_root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		mkdir(full, 0700);
		*slash = '/';
	}
	int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

// Many files at once: pairs of path (below `folder`) and text, NULL at the end.
static inline void tree_fill(const char *folder, const char *const *pairs)
{
	char path[512];
	for (; *pairs; pairs += 2) {
		snprintf(path, sizeof path, "%s/%s", folder, pairs[0]);
		tree_write(path, pairs[1]);
	}
}

// tree_root with `path` behind it; good until the next call.
static inline const char *tree_path(const char *path)
{
	static char full[512];
	snprintf(full, sizeof full, "%s/%s", tree_root, path);
	return full;
}

#define assert_close(value, expected) \
	do { \
		double close_value = (value), close_expected = (expected); \
		if (!(close_value > close_expected - 0.01 && close_value < close_expected + 0.01)) \
			fail_msg("%s is %g, expected %g", #value, close_value, close_expected); \
	} while (0)

#define assert_reading(sample, reading, expected) \
	do { \
		if (!sample_has(sample, reading)) \
			fail_msg("%s is absent, expected %g", #reading, (double)(expected)); \
		assert_close((sample)->values[reading], expected); \
	} while (0)

#define assert_absent(sample, reading) \
	do { \
		if (sample_has(sample, reading)) \
			fail_msg("%s is %g, expected absent", #reading, (sample)->values[reading]); \
	} while (0)
