/* Opening, migrating and refusing databases: server/store/sqlite/database.c and what store_create makes of it. */
#include "server/store/sqlite/database.h"
#include "server/store/store.h"
#include "tests/server/store/support.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

static int64_t integer_of(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *statement = NULL;
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
	int64_t value = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return value;
}

static void run(sqlite3 *db, const char *sql)
{
	char *fault = NULL;
	sqlite3_exec(db, sql, NULL, NULL, &fault);
	if (fault)
		fail_msg("%s: %s", sql, fault);
}

static sqlite3 *open_file(const char *path)
{
	sqlite3 *db = NULL;
	struct error error = {.status = STATUS_OK};
	if (database_open(&db, &(struct database_params){.path = path, .durable = true}, &error))
		fail_msg("%s", error.message);
	return db;
}

// Start and stop a store there; *error holds why it did not start.
static enum status start(struct support *support, struct error *error)
{
	struct store *store = NULL;
	*error = (struct error){.status = STATUS_OK};
	enum status status = store_create(
		&store, &(struct store_params){.loop = support->loop, .directory = support->directory}, error);
	assert_true((store != NULL) == (status == STATUS_OK));
	store_destroy(&store);
	return status;
}

static void empty_directory_gets_current_tables(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct error error;
	assert_int_equal(start(support, &error), STATUS_OK);
	sqlite3 *db = open_file(support_path(support, "state.db", path));
	struct database_migration migrations[64];
	size_t count = database_migrations("migrations/state/", migrations, 64);
	assert_true(count >= 1);
	assert_int_equal(integer_of(db, "PRAGMA user_version"), count);
	assert_int_equal(integer_of(db, "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND NOT strict "
					"AND name NOT LIKE 'sqlite_%'"),
			 0);
	assert_int_equal(integer_of(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('settings', 'nodes', "
					"'devices', 'tokens', 'changes')"),
			 5);
	database_close(&db);
	assert_int_equal(access(support_path(support, "state.db.before-v1", path), F_OK), -1);
}

static void connection_is_set_up_for_safety(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct error error = {.status = STATUS_OK};
	sqlite3 *db = open_file(support_path(support, "x.db", path)), *reader = NULL;
	run(db, "CREATE TABLE t (a INTEGER) STRICT");
	assert_int_equal(integer_of(db, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"), 1);
	assert_int_equal(integer_of(db, "PRAGMA synchronous"), 2);
	assert_int_equal(integer_of(db, "PRAGMA foreign_keys"), 1);
	assert_int_equal(integer_of(db, "PRAGMA trusted_schema"), 0);
	assert_int_equal(integer_of(db, "PRAGMA cell_size_check"), 1);
	assert_int_equal(integer_of(db, "PRAGMA secure_delete"), 1);
	assert_int_equal(integer_of(db, "PRAGMA wal_autocheckpoint"), 0);
	assert_int_equal(integer_of(db, "PRAGMA mmap_size"), 0);
	int defensive = 0;
	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, -1, &defensive);
	assert_int_equal(defensive, 1);
	assert_int_equal(sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, -1), 0);
	const struct database_params params = {.path = path, .read_only = true};
	assert_int_equal(database_open(&reader, &params, &error), STATUS_OK);
	assert_int_equal(database_run(reader, "INSERT INTO t VALUES (1)", &error), STATUS_FORBIDDEN);
	database_close(&reader);
	database_close(&db);
}

static mode_t mode_of(const char *path)
{
	struct stat file;
	return stat(path, &file) ? 0 : file.st_mode & 07777;
}

static void files_are_for_their_owner_only(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct store *store = NULL;
	struct error error = {.status = STATUS_OK};
	struct support inner = {.loop = support->loop};
	umask(0);
	support_path(support, "data", inner.directory);
	assert_int_equal(
		store_create(&store, &(struct store_params){.loop = inner.loop, .directory = inner.directory}, &error),
		STATUS_OK);
	assert_int_equal(mode_of(inner.directory), 0700);
	static const char *const names[] = {"state.db",   "state.db-wal",   "state.db-shm",
					    "history.db", "history.db-wal", "history.db-shm"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		assert_int_equal(mode_of(support_path(&inner, names[i], path)), 0600);
	store_destroy(&store);
	assert_int_equal(chmod(support_path(&inner, "state.db", path), 0644), 0);
	assert_int_equal(start(&inner, &error), STATUS_OK);
	assert_int_equal(mode_of(path), 0600);
	umask(022);
}

static void newer_version_is_refused_and_left_alone(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct error error;
	assert_int_equal(start(support, &error), STATUS_OK);
	sqlite3 *db = open_file(support_path(support, "state.db", path));
	run(db, "PRAGMA user_version = 99; CREATE TABLE of_the_future (a INTEGER) STRICT");
	database_close(&db);
	assert_int_equal(start(support, &error), STATUS_CONFLICT);
	assert_non_null(strstr(error.message, "version 99"));
	assert_true(error.hint[0] != 0);
	db = open_file(path);
	assert_int_equal(integer_of(db, "PRAGMA user_version"), 99);
	assert_int_equal(integer_of(db, "SELECT count(*) FROM of_the_future"), 0);
	database_close(&db);
}

static void another_programs_database_is_refused(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct error error;
	sqlite3 *db = open_file(support_path(support, "state.db", path));
	run(db, "CREATE TABLE cookies (a INTEGER)");
	database_close(&db);
	assert_int_equal(start(support, &error), STATUS_CONFLICT);
	db = open_file(path);
	assert_int_equal(integer_of(db, "SELECT count(*) FROM sqlite_schema"), 1);
	database_close(&db);
}

static const struct database_migration two[] = {
	{.sql = "CREATE TABLE a (x INTEGER) STRICT;", .length = 34},
	{.sql = "ALTER TABLE a ADD COLUMN y INTEGER; UPDATE a SET y = x + 1;", .length = 59},
};

static void old_version_is_copied_and_brought_up(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct error error = {.status = STATUS_OK};
	sqlite3 *db = open_file(support_path(support, "x.db", path));
	assert_int_equal(database_migrate(db, two, 1, true, &error), STATUS_OK);
	run(db, "INSERT INTO a VALUES (7)");
	assert_int_equal(database_migrate(db, two, 2, true, &error), STATUS_OK);
	assert_int_equal(integer_of(db, "PRAGMA user_version"), 2);
	assert_int_equal(integer_of(db, "SELECT y FROM a"), 8);
	assert_int_equal(database_migrate(db, two, 2, true, &error), STATUS_OK); // nothing to do
	database_close(&db);
	assert_int_equal(access(support_path(support, "x.db.before-v1", path), F_OK), -1);
	assert_int_equal(mode_of(support_path(support, "x.db.before-v2", path)), 0600);
	static const char *const leftovers[] = {"x.db.before-v2.part", "x.db.before-v2.part-wal",
						"x.db.before-v2.part-shm", "x.db.before-v2.part-journal"};
	for (size_t i = 0; i < sizeof leftovers / sizeof *leftovers; i++) {
		char left[SUPPORT_PATH_BYTES + 64];
		assert_int_equal(access(support_path(support, leftovers[i], left), F_OK), -1);
	}
	db = open_file(path);
	assert_int_equal(integer_of(db, "PRAGMA user_version"), 1);
	assert_int_equal(integer_of(db, "SELECT x FROM a"), 7);
	database_close(&db);
}

static void take_time(void *context, const struct store_layer_time *row)
{
	struct store_layer_time *out = context;
	*out = *row;
	out->device_id = out->format = NULL;
}

// One slope of batches, as versions up to 7 had it, is read as the batch of eight that it was measured with.
static void times_of_layers_keep_their_slope(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct database_migration migrations[64];
	struct store *store = NULL;
	struct store_batch *batch;
	struct error error = {.status = STATUS_OK};
	const size_t count = database_migrations("migrations/state/", migrations, 64);
	assert_true(count >= 8);
	sqlite3 *db = open_file(support_path(support, "state.db", path));
	assert_int_equal(database_migrate(db, migrations, 7, true, &error), STATUS_OK);
	run(db, "INSERT INTO layer_times (device_id, format, layer_bytes, layer_s, output_bytes, output_s, share, "
		"measured_ms) VALUES ('dev_1', 'F16', 1000, 0.5, 10, NULL, 0.25, 5), "
		"('dev_2', 'F16', 1000, 0.5, 10, NULL, NULL, 4)");
	database_close(&db);
	const struct store_params params = {.loop = support->loop, .directory = support->directory};
	assert_int_equal(store_create(&store, &params, &error), STATUS_OK);
	struct store_layer_time time = {0};
	assert_int_equal(store_load_layer_times(store, take_time, &time, &error), STATUS_OK); // the newest comes last
	const double known[STORE_BATCHES] = {-1, -1, 2.75, -1, -1, -1, -1};
	assert_memory_equal(time.batch, known, sizeof known);
	assert_true(time.layer_s == 0.5 && time.output_s == -1 && time.prompt_s == -1 && time.spread == -1);
	time = (struct store_layer_time){.device_id = "dev_3",
					 .format = "F16",
					 .layer_bytes = 1,
					 .output_bytes = 2,
					 .layer_s = 3,
					 .output_s = 4,
					 .prompt_s = 5,
					 .batch = {6, 7, 8, 9, -1, 10, 11},
					 .spread = 1.5,
					 .measured_ms = 11};
	const struct store_layer_time put = time;
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	assert_int_equal(store_put_layer_time(batch, &put), STATUS_OK);
	assert_int_equal(store_commit_wait(store, &batch, &error), STATUS_OK);
	time = (struct store_layer_time){0};
	assert_int_equal(store_load_layer_times(store, take_time, &time, &error), STATUS_OK);
	assert_memory_equal(time.batch, put.batch, sizeof put.batch);
	assert_true(time.layer_bytes == 1 && time.output_bytes == 2 && time.layer_s == 3 && time.output_s == 4 &&
		    time.prompt_s == 5 && time.spread == 1.5 && time.measured_ms == 11);
	store_destroy(&store);
}

static void take_instance(void *context, const struct store_instance *row)
{
	assert_string_equal(row->instance_id, "ins_1");
	assert_string_equal(row->workers, "");
	assert_int_equal(row->epoch, 5);
	++*(int *)context;
}

// Instances of versions up to 8 have no workers that could be found again.
static void instances_of_before_have_no_workers(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct database_migration migrations[64];
	struct store *store = NULL;
	struct error error = {.status = STATUS_OK};
	int count = 0;
	assert_true(database_migrations("migrations/state/", migrations, 64) >= 9);
	sqlite3 *db = open_file(support_path(support, "state.db", path));
	assert_int_equal(database_migrate(db, migrations, 8, true, &error), STATUS_OK);
	run(db, "INSERT INTO instances (instance_id, model_id, model_name, wanted, last, epoch, recoveries, moves, "
		"created_ms) VALUES ('ins_1', 'mod_1', 'words', '{}', '{}', 5, 0, 0, 1)");
	database_close(&db);
	const struct store_params params = {.loop = support->loop, .directory = support->directory};
	assert_int_equal(store_create(&store, &params, &error), STATUS_OK);
	assert_int_equal(store_load_instances(store, take_instance, &count, &error), STATUS_OK);
	assert_int_equal(count, 1);
	store_destroy(&store);
}

static void take_model(void *context, const struct store_model *row)
{
	static const char *const states[] = {"ready", "downloading", "failed"};
	int *count = context;
	assert_in_range(*count, 0, 2);
	assert_string_equal(row->state, states[*count]);
	assert_string_equal(row->request, *count == 1 ? "https://example.org/b" : "");
	assert_int_equal(row->added_ms, ++*count);
}

// What is downloading was called adding by versions up to 10.
static void models_of_before_are_downloading(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct database_migration migrations[64];
	struct store *store = NULL;
	struct error error = {.status = STATUS_OK};
	int count = 0;
	assert_true(database_migrations("migrations/state/", migrations, 64) > 10);
	sqlite3 *db = open_file(support_path(support, "state.db", path));
	assert_int_equal(database_migrate(db, migrations, 10, true, &error), STATUS_OK);
	run(db,
	    "INSERT INTO models (model_id, name, source, request, path, state, state_reason, added_ms, file_bytes, "
	    "modified_ns, sha256, architecture) VALUES ('mod_1', 'a', '/a', '', '/a', 'ready', '', 1, 5, 6, '', ''), "
	    "('mod_2', 'b', 'b', 'https://example.org/b', '/b', 'adding', '', 2, 0, 0, '', ''), "
	    "('mod_3', 'c', '/c', '', '/c', 'failed', 'it is none', 3, 0, 0, '', '')");
	database_close(&db);
	const struct store_params params = {.loop = support->loop, .directory = support->directory};
	assert_int_equal(store_create(&store, &params, &error), STATUS_OK);
	assert_int_equal(store_load_models(store, take_model, &count, &error), STATUS_OK);
	assert_int_equal(count, 3);
	store_destroy(&store);
}

static void failed_migration_changes_nothing(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	const struct database_migration bad[] = {
		two[0], two[1], {.sql = "INSERT INTO nowhere VALUES (1)", .length = 30}};
	struct error error = {.status = STATUS_OK};
	sqlite3 *db = open_file(support_path(support, "x.db", path));
	assert_int_equal(database_migrate(db, two, 1, true, &error), STATUS_OK);
	assert_int_not_equal(database_migrate(db, bad, 3, true, &error), STATUS_OK);
	assert_int_equal(integer_of(db, "PRAGMA user_version"), 1);
	assert_int_equal(integer_of(db, "SELECT count(*) FROM pragma_table_info('a')"), 1);
	database_close(&db);
}

// Write over `length` bytes of a file.
static void spoil(const char *path, off_t offset, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	char junk[4096];
	memset(junk, 0xa5, sizeof junk);
	for (size_t done = 0; done < length; done += sizeof junk)
		assert_true(pwrite(fd, junk, length - done < sizeof junk ? length - done : sizeof junk,
				   offset + (off_t)done) > 0);
	close(fd);
}

static void damaged_files_are_refused(void **state)
{
	struct support *support = *state;
	static const struct {
		const char *what;
		off_t offset;
		size_t length;
	} spoilt[] = {{"header", 0, 100}, {"schema page", 100, 1000}, {"every page but the first", 4096, 4096 * 6}};
	for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
		char path[SUPPORT_PATH_BYTES + 64];
		struct error error;
		unlink(support_path(support, "state.db", path));
		assert_int_equal(start(support, &error), STATUS_OK);
		spoil(path, spoilt[i].offset, spoilt[i].length);
		if (start(support, &error) != STATUS_UNAVAILABLE)
			fail_msg("%s: %s", spoilt[i].what, error.message);
		assert_non_null(strstr(error.message, "state.db"));
		assert_non_null(strstr(error.message, "damaged"));
		assert_true(error.hint[0] != 0);
	}
}

static void directory_that_cannot_be_written_is_refused(void **state)
{
	struct support *support = *state;
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) { // as somebody who may not write there
		struct error error;
		if (!getuid() && (setgid(65534) || setuid(65534)))
			_exit(77);
		if (chmod(support->directory, 0500) && errno != EPERM)
			_exit(78);
		enum status status = start(support, &error);
		_exit(status == STATUS_FORBIDDEN && error.hint[0] ? 0 : 1);
	}
	int result = 0;
	assert_int_equal(waitpid(child, &result, 0), child);
	assert_int_equal(chmod(support->directory, 0700), 0);
	assert_true(WIFEXITED(result));
	assert_int_equal(WEXITSTATUS(result), 0);
}

static void a_file_in_the_place_of_the_directory_is_refused(void **state)
{
	struct support *support = *state;
	struct support inner = {.loop = support->loop};
	struct error error;
	support_path(support, "file", inner.directory);
	spoil(inner.directory, 0, 1);
	assert_int_equal(start(&inner, &error), STATUS_FORBIDDEN);
	assert_true(error.hint[0] != 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
	const struct CMUnitTest tests[] = {
		TEST(empty_directory_gets_current_tables),
		TEST(connection_is_set_up_for_safety),
		TEST(files_are_for_their_owner_only),
		TEST(newer_version_is_refused_and_left_alone),
		TEST(another_programs_database_is_refused),
		TEST(old_version_is_copied_and_brought_up),
		TEST(times_of_layers_keep_their_slope),
		TEST(instances_of_before_have_no_workers),
		TEST(models_of_before_are_downloading),
		TEST(failed_migration_changes_nothing),
		TEST(damaged_files_are_refused),
		TEST(directory_that_cannot_be_written_is_refused),
		TEST(a_file_in_the_place_of_the_directory_is_refused),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
