/* Rows of before there was a log, or of a log that bound none, when the start that takes them is killed at any of its
 * writes: the next start takes them, or has; and at no step does anybody gain a row. */
#include "common/base/log.h"
#include "tests/server/store/audit/bound_support.h"
#include "tests/server/store/faults.h"

#include <sys/prctl.h>
#include <sys/wait.h>

enum { MOST = 400 };

// A database with rows, of a version that wrote no log at all.
static void write_rows_without_log(const struct support *support)
{
	struct error error = {.status = STATUS_OK};
	struct database_migration migrations[64];
	char path[SUPPORT_PATH_BYTES + 64];
	sqlite3 *db;
	assert_int_equal(
		database_open(&db, &(struct database_params){.path = support_path(support, "state.db", path)}, &error),
		STATUS_OK);
	assert_true(database_migrations("migrations/state/", migrations, 64) > 11);
	assert_int_equal(database_migrate(db, migrations, 2, false, &error), STATUS_OK);
	database_close(&db);
	run_sql(support,
		"INSERT INTO tokens (token_id, parent_id, name, scopes, secret_hash, calls_per_s, max_sessions, "
		"created_ms, expires_ms, last_used_ms, revoked_ms) VALUES ('tokenaaaaa', NULL, 'a', 2, "
		"zeroblob(32), 0, 0, 1, 2, 3, 0); INSERT INTO nodes VALUES ('node_1', 'one', '{}', 1, 2)");
}

// An entry of version 1 behind the signed head, which an owner is about to accept.
static void add_tail(const struct support *support)
{
	const struct journal_entry entry = {.seq = 1,
					    .at_us = 2,
					    .count = 1,
					    .actor = "server",
					    .action = "server.stop",
					    .outcome = "ok",
					    .detail = "{}"};
	struct buffer bytes;
	struct tree_hash leaf;
	char path[SUPPORT_PATH_BYTES + 64];
	sqlite3 *db;
	sqlite3_stmt *put;
	buffer_init(&bytes, ENTRY_BYTES);
	assert_int_equal(entry_encode(&entry, &bytes), STATUS_OK);
	tree_hash_leaf(bytes.data, bytes.length, &leaf);
	buffer_finish(&bytes);
	assert_int_equal(sqlite3_open(support_path(support, "state.db", path), &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_prepare_v2(db,
				   "INSERT INTO audit VALUES (1, 2, 0, 1, 'server', '', '', '', 'server.stop', "
				   "'', '', '', 'ok', '{}', ?1)",
				   -1, &put, NULL),
		SQLITE_OK);
	sqlite3_bind_blob(put, 1, leaf.bytes, TREE_HASH_BYTES, SQLITE_STATIC);
	assert_int_equal(sqlite3_step(put), SQLITE_DONE);
	sqlite3_finalize(put);
	sqlite3_close(db);
}

static void write_log_with_tail(const struct support *support)
{
	write_log_of_before(support);
	add_tail(support);
}

// The start, which the n-th write ends. True if it came to its end.
static bool start_killed(const struct support *support, const char *accepted, unsigned n)
{
	int result = 0;
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		struct support own = *support;
		struct audit_case test = {.support = &own, .params.accept_unsigned = accepted};
		struct error error = {.status = STATUS_OK};
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (net_loop_create(&own.loop, &error))
			_exit(2);
		faults_arm(FAULTS_KILL, n);
		const enum status status = audit_try_open(&test, &error);
		faults_disarm();
		_exit(status ? 3 : 0); // without closing: as a kill right after the start
	}
	assert_int_equal(waitpid(child, &result, 0), child);
	if (WIFSIGNALED(result))
		return false;
	assert_int_equal(WEXITSTATUS(result), 0);
	return true;
}

static void kill_everywhere(void (*write_before)(const struct support *support), const char *accepted)
{
	const char *wanted = getenv("EXOGPU_EVERY"); // 1: every write; otherwise one in so many, others each time
	const unsigned step = wanted ? (unsigned)strtoul(wanted, NULL, 10) : 6;
	bool done = false;
	assert_true(step > 0);
	unsigned n = 1 + (unsigned)clock_steady_ms() % step, tried = 0;
	for (; !done && n < MOST; n += step, tried++) {
		void *own = NULL;
		struct audit_case test = {.failed = 0};
		struct loaded loaded;
		struct error error = {.status = STATUS_OK};
		assert_int_equal(support_setup(&own), 0);
		write_before(own);
		done = start_killed(own, accepted, n);
		test.support = own;
		test.params.accept_unsigned = accepted; // as its owner would have it, still; it stands for these alone
		if (audit_try_open(&test, &error))
			fail_msg("killed at %u: %s", n, error.message);
		load(&test, &loaded);
		if (strcmp(loaded.text, " node_1  tokenaaaaa ") != 0)
			fail_msg("killed at %u: of the rows there is%s", n, loaded.text);
		audit_close(&test);
		expect_found(own, NULL);
		if (audit_count_files(own, "key-*") != 1 || audit_count_files(own, "first-key") != 0)
			fail_msg("killed at %u: a key was left behind", n);
		assert_int_equal(ask_sql(own, "SELECT count(*) FROM audit WHERE action = 'state.taken'"), 1);
		// From here on nobody has rows taken again, by taking the log out of the database.
		run_sql(own,
			"DROP TRIGGER IF EXISTS audit_stays; DELETE FROM audit; DELETE FROM audit_nodes; DELETE FROM "
			"audit_leaves; DELETE FROM audit_segments; DELETE FROM audit_checkpoints");
		test.params.accept_unsigned = NULL;
		audit_open(&test, &own);
		load(&test, &loaded);
		assert_string_equal(loaded.text, "");
		audit_close(&test);
		assert_int_equal(support_teardown(&own), 0);
	}
	assert_true(done && n > 10);
	print_message("killed at %u of some %u writes\n", tried - 1, n - step);
}

static void a_database_without_a_log(void **state)
{
	(void)state;
	kill_everywhere(write_rows_without_log, NULL);
}

static void a_log_that_bound_no_rows(void **state)
{
	(void)state;
	kill_everywhere(write_log_of_before, NULL);
}

static void a_tail_of_such_a_log_that_is_accepted(void **state)
{
	(void)state;
	kill_everywhere(write_log_with_tail, "1-1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_database_without_a_log),
		cmocka_unit_test(a_log_that_bound_no_rows),
		cmocka_unit_test(a_tail_of_such_a_log_that_is_accepted),
	};
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests_name("rows of before, and kills", tests, NULL, NULL);
}
