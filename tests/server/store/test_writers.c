/* No second connection ever writes or checkpoints a database of ours: SQLite before 3.51.3 (3.50.7, 3.44.6) can damage
 * a file when two do at the same moment (server/store/sqlite/holders.h).
 *
 * A VFS of the tests sees every write, truncation, sync and lock of a life in which all that can happen does: commits,
 * lists, proofs, verification, histories, segments that end, archives, readers that come and go last and first. Each
 * such call must be by the only connection of its file that was opened for writing. */
#include "common/base/log.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/holders.h"
#include "tests/server/store/audit/audit_support.h"
#include "tests/server/store/shim.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { MOST = 32, WAL_WRITE_LOCK = 0, WAL_CKPT_LOCK = 1, ROUNDS = 12 };

static struct {
	pthread_mutex_t lock;
	const struct shim_file *writers[MOST]; // databases that are open for writing
	unsigned writes, checkpoints, readers, by_others, second;
	char first[256]; // what the first that should not be was
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void wrong(unsigned *count, const char *what, const struct shim_call *call)
{
	if (!seen.by_others && !seen.second)
		snprintf(seen.first, sizeof seen.first, "%s of %s", what, call->path);
	(*count)++;
}

static void opened(const struct shim_call *call)
{
	size_t place = MOST;
	for (size_t i = 0; i < MOST; i++)
		if (!seen.writers[i])
			place = i;
		else if (!strcmp(seen.writers[i]->path, call->path))
			wrong(&seen.second, "a second opening for writing", call);
	assert_true(place < MOST);
	seen.writers[place] = call->file;
}

static void watch_database(const struct shim_call *call)
{
	const struct shim_file *main = call->file->main;
	const bool may_write = (main->flags & SQLITE_OPEN_READWRITE) != 0;
	const bool database = call->file == main;
	const bool writes = call->op == SHIM_WRITE || call->op == SHIM_TRUNCATE || call->op == SHIM_SYNC;
	const bool locks = call->op == SHIM_SHM_LOCK && call->flags & SQLITE_SHM_EXCLUSIVE;
	if (call->op == SHIM_OPEN && database && may_write)
		opened(call);
	if (call->op == SHIM_OPEN && database && !may_write)
		seen.readers++;
	for (size_t i = 0; call->op == SHIM_CLOSE && database && i < MOST; i++)
		if (seen.writers[i] == call->file)
			seen.writers[i] = NULL;
	if (writes && !may_write)
		wrong(&seen.by_others, "a reader's write", call);
	// With the next lock together it is recovery of the -shm file, which writes neither of the two that last.
	if (locks && call->first == WAL_CKPT_LOCK && call->count == 1 && !may_write)
		wrong(&seen.by_others, "a reader's checkpoint", call);
	seen.writes += writes && !database;
	seen.checkpoints += locks && call->first == WAL_CKPT_LOCK && call->count == 1;
}

static int watch(const struct shim_call *call)
{
	const int files = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL;
	if (!call->file || !(call->file->flags & files))
		return SQLITE_OK;
	pthread_mutex_lock(&seen.lock);
	watch_database(call);
	pthread_mutex_unlock(&seen.lock);
	return SQLITE_OK;
}

static void begin_watching(void)
{
	memset(seen.writers, 0, sizeof seen.writers);
	seen.writes = seen.checkpoints = seen.readers = seen.by_others = seen.second = 0;
	seen.first[0] = 0;
	shim_hook = watch;
}

struct history_case {
	int answered;
};

static void history_read(void *context, enum status status, const struct store_history *history)
{
	struct history_case *test = context;
	(void)status, (void)history;
	test->answered++;
}

// Everything that reads, under way at once with what writes.
static void one_round(struct audit_case *test, struct history_case *history, uint64_t round)
{
	const struct store_audit_filter filter = {.limit = 50, .after = -1};
	const struct store_minute minute = {.series = "dev_0", .minute_ms = clock_wall_ms() / 60000 * 60000};
	const int answers = test->answered, asked = history->answered;
	store_add_minutes(test->store, &minute, 1);
	audit_fill(test, round * 100, 40, 2);
	assert_int_equal(store_list_audit(test->store, &filter, audit_answered, test), STATUS_OK);
	assert_int_equal(store_verify_audit(test->store, NULL, 0, audit_answered, test), STATUS_OK);
	assert_int_equal(store_prove_audit(test->store, 1, 20, audit_answered, test), STATUS_OK);
	assert_int_equal(store_read_history(test->store, "dev_0", minute.minute_ms - 600000, minute.minute_ms + 60000,
					    60000, history_read, history),
			 STATUS_OK);
	assert_int_equal(store_rotate_audit(test->store, audit_answered, test), STATUS_OK);
	audit_fill(test, round * 100 + 50, 40, 2);
	support_run_until(test->support->loop, &test->answered, answers + 4);
	support_run_until(test->support->loop, &history->answered, asked + 1);
}

static void wait_for_a_checkpoint(unsigned more_than) // which a second of silence brings
{
	for (int look = 0; look < SUPPORT_PATIENCE_MS; look++) {
		pthread_mutex_lock(&seen.lock);
		const bool there = seen.checkpoints > more_than;
		pthread_mutex_unlock(&seen.lock);
		if (there)
			return;
		usleep(1000);
	}
	fail_msg("no checkpoint");
}

static void verify_beside(const char *directory) // as the command line does while a server runs
{
	struct audit_check check;
	const struct journal_report *report = audit_check(&check, directory, NULL, NULL);
	if (!report || journal_verdict_of(report))
		fail_msg("verified beside the store: %s", report ? report->findings[0].text : check.error.message);
	journal_verifier_destroy(&check.verifier);
}

static void only_the_store_writes(void **state)
{
	struct audit_case test = {.params.audit_segment_entries = 60};
	struct history_case history = {.answered = 0};
	char wal[SUPPORT_PATH_BYTES + 64];
	begin_watching();
	for (int life = 0; life < 2; life++) {
		audit_open(&test, state);
		for (uint64_t round = 0; round < ROUNDS / 2; round++) {
			one_round(&test, &history, round);
			verify_beside(test.support->directory);
		}
		wait_for_a_checkpoint((unsigned)life);
		audit_close(&test); // the writer comes last, and leaves nothing in the -wal file
		assert_int_equal(access(support_path(test.support, "state.db-wal", wal), F_OK), -1);
		verify_beside(test.support->directory); // alone: nobody is there to write after it
	}
	shim_hook = NULL;
	if (seen.by_others || seen.second)
		fail_msg("%u calls of readers, %u of second writers; the first was %s", seen.by_others, seen.second,
			 seen.first);
	assert_true(seen.writes > 100 && seen.checkpoints > 1 && seen.readers > 10);
	print_message("%u writes, %u checkpoints, all by the one writer of each file; %u readers\n", seen.writes,
		      seen.checkpoints, seen.readers);
}

// The writer is killed, and the first that comes is a reader: what is in the -wal file stays there for the next writer.
static void a_reader_that_comes_first_leaves_the_log_alone(void **state)
{
	struct audit_case test = {.support = *state};
	char wal[SUPPORT_PATH_BYTES + 64];
	struct stat before, after;
	int result = 0;
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		audit_open(&test, state);
		audit_fill(&test, 0, 40, 2);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(child, &result, 0), child);
	assert_true(WIFSIGNALED(result));
	assert_int_equal(stat(support_path(test.support, "state.db-wal", wal), &before), 0);
	assert_true(before.st_size > 0);
	begin_watching();
	verify_beside(test.support->directory);
	shim_hook = NULL;
	assert_int_equal(stat(wal, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	assert_true(after.st_mtim.tv_sec == before.st_mtim.tv_sec && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
	assert_int_equal(seen.by_others, 0);
}

// That the VFS of the tests sees what it is there to see.
static void a_second_writer_would_be_seen(void **state)
{
	struct audit_case test = {.failed = 0};
	char path[SUPPORT_PATH_BYTES + 64];
	sqlite3 *db = NULL, *other = NULL;
	begin_watching();
	audit_open(&test, state);
	audit_fill(&test, 0, 4, 2);
	support_path(test.support, "state.db", path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA wal_checkpoint", NULL, NULL, NULL), SQLITE_OK);
	assert_true(seen.second == 1);
	// One that was opened for reading, and whose main file is nevertheless written to.
	assert_int_equal(sqlite3_open_v2(path, &other, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "SELECT count(*) FROM settings", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(seen.by_others, 0);
	sqlite3_file *file = NULL;
	assert_int_equal(sqlite3_file_control(other, "main", SQLITE_FCNTL_FILE_POINTER, &file), SQLITE_OK);
	file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
	assert_int_equal(seen.by_others, 1);
	sqlite3_close(other);
	sqlite3_close(db);
	audit_close(&test);
	shim_hook = NULL;
}

static void the_library_s_fault_by_its_version(void **state)
{
	static const struct {
		int version;
		bool matters;
	} cases[] = {
		{3006023, false}, {3007000, true},  {3040001, true},  {3044005, true},  {3044006, false},
		{3045001, true},  {3046001, true},  {3050006, true},  {3050007, false}, {3051000, true},
		{3051002, true},  {3051003, false}, {3053000, false}, {4000000, false},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (holders_matter(cases[i].version) != cases[i].matters)
			fail_msg("SQLite %d", cases[i].version);
}

// Another process that has read the database is found; one that has gone is not.
static void who_else_has_it_open_is_found(void **state)
{
	struct audit_case test = {.failed = 0};
	char path[SUPPORT_PATH_BYTES + 64], byte;
	int ready[2], stop[2], result = 0;
	audit_open(&test, state);
	support_path(test.support, "state.db", path);
	audit_close(&test);
	assert_int_equal(holders_find(path), 0);
	assert_true(!pipe(ready) && !pipe(stop));
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		sqlite3 *db = NULL;
		bool open = sqlite3_open(path, &db) == SQLITE_OK &&
			    sqlite3_exec(db, "SELECT count(*) FROM settings", NULL, NULL, NULL) == SQLITE_OK;
		if (write(ready[1], open ? "1" : "0", 1) != 1)
			_exit(1);
		close(stop[1]);
		_exit(read(stop[0], &byte, 1) < 0); // until the parent closes it
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, '1');
	assert_int_equal(holders_find(path), child);
	close(stop[1]);
	assert_int_equal(waitpid(child, &result, 0), child);
	assert_int_equal(holders_find(path), 0);
	close(ready[0]), close(ready[1]), close(stop[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_the_store_writes, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_reader_that_comes_first_leaves_the_log_alone, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(a_second_writer_would_be_seen, support_setup, support_teardown),
		cmocka_unit_test(the_library_s_fault_by_its_version),
		cmocka_unit_test_setup_teardown(who_else_has_it_open_is_found, support_setup, support_teardown),
	};
	log_set_level(LOG_ERROR);
	shim_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
