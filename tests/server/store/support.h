/* Shared by the tests of the store and of tokens: a directory of their own, and a loop that runs until something holds.
 * Thread: the test's, which is the loop thread. */
#pragma once
#include "common/base/clock.h"
#include "common/net/loop.h"

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
#include <sys/stat.h>
#include <unistd.h>

enum { SUPPORT_PATH_BYTES = 128, SUPPORT_PATIENCE_MS = 60000 };

struct support {
	char directory[SUPPORT_PATH_BYTES + 64];
	struct net_loop *loop;
};

// The stores of tests are in SQLite, or, where EXOGPU_TEST_POSTGRES says so (tests/postgres.py), each in a database of
// its own there. NULL: SQLite.
static inline const char *support_postgres(void)
{
	const char *folder = getenv("EXOGPU_TEST_POSTGRES");
	return folder && folder[0] ? folder : NULL;
}

static inline const char *support_database(const struct support *support)
{
	return strrchr(support->directory, '/') + 1;
}

// What is about SQLite's files has nothing to say of PostgreSQL.
#define SUPPORT_SQLITE_ONLY() \
	do { \
		if (support_postgres()) \
			skip(); \
	} while (0)

static inline int support_make_database(const struct support *support)
{
	char command[512], path[sizeof support->directory + 8];
	snprintf(command, sizeof command, "%s/createdb -h '%s' -U exogpu '%s'", getenv("EXOGPU_TEST_POSTGRES_BIN"),
		 support_postgres(), support_database(support));
	snprintf(path, sizeof path, "%s/store", support->directory);
	FILE *place = system(command) ? NULL : fopen(path, "w");
	if (!place)
		return -1;
	fprintf(place, "postgres://exogpu@/%s?host=%s\n", support_database(support), support_postgres());
	return fclose(place);
}

static inline int support_setup(void **state)
{
	struct support *support = calloc(1, sizeof *support);
	if (!support)
		return -1;
	snprintf(support->directory, sizeof support->directory, "/tmp/exogpu-test-XXXXXX");
	struct error error = {.status = STATUS_OK};
	if (!mkdtemp(support->directory) || net_loop_create(&support->loop, &error)) {
		fprintf(stderr, "%s\n", error.message);
		free(support);
		return -1;
	}
	*state = support;
	return support_postgres() ? support_make_database(support) : 0;
}

static inline int support_teardown(void **state)
{
	struct support *support = *state;
	char command[SUPPORT_PATH_BYTES + 96];
	net_loop_destroy(&support->loop);
	snprintf(command, sizeof command, "rm -rf '%s'", support->directory);
	int left = system(command);
	free(support);
	return left;
}

static inline char *support_path(const struct support *support, const char *name, char path[SUPPORT_PATH_BYTES + 64])
{
	snprintf(path, SUPPORT_PATH_BYTES + 64, "%.128s/%.60s", support->directory, name);
	return path;
}

struct support_wait {
	struct net_loop *loop;
	struct net_timer timer;
	const int *counter;
	int wanted;
	int64_t until_ms;
};

static inline void support_look(void *argument)
{
	struct support_wait *wait = argument;
	if (*wait->counter >= wait->wanted || clock_steady_ms() >= wait->until_ms)
		net_loop_stop(wait->loop);
	else
		net_timer_start(wait->loop, &wait->timer, 1, support_look, wait);
}

// Run the loop until *counter has reached `wanted`; the test fails when that takes a minute.
static inline void support_run_until(struct net_loop *loop, const int *counter, int wanted)
{
	struct support_wait wait = {.loop = loop,
				    .counter = counter,
				    .wanted = wanted,
				    .until_ms = clock_steady_ms() + SUPPORT_PATIENCE_MS};
	net_timer_start(loop, &wait.timer, 0, support_look, &wait);
	net_loop_run(loop);
	net_timer_stop(loop, &wait.timer);
	assert_true(*counter >= wanted);
}
