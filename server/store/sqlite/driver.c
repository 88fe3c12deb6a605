/* See driver.h. */
#include "server/store/sqlite/driver.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/holders.h"
#include "server/store/sqlite/sums.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4224, CHECKPOINT_PAGES = 1000, STEPS_BETWEEN_LOOKS = 10000 };

enum control { BEGIN_READ, BEGIN_WRITE, COMMIT, ROLLBACK, MARK, UNDO, RELEASE, CONTROLS };
static const char *const control_sql[CONTROLS] = {
	[BEGIN_READ] = "BEGIN",      [BEGIN_WRITE] = "BEGIN IMMEDIATE", [COMMIT] = "COMMIT",
	[ROLLBACK] = "ROLLBACK",     [MARK] = "SAVEPOINT batch",        [UNDO] = "ROLLBACK TO batch",
	[RELEASE] = "RELEASE batch",
};

struct sqlite_db {
	struct db base; // first member
	sqlite3 *sqlite;
	sqlite3_stmt *controls[CONTROLS]; // prepared at the start: what ends a transaction needs no memory
	int code;                         // SQLite's, of the last failure
	int wal_pages;                    // in the -wal file, not yet in the database
	int64_t deadline_ns;
	enum db_part part;
	char path[PATH_BYTES];
};

struct sqlite_statement {
	struct db_statement base; // first member
	sqlite3_stmt *stmt;
	int bind_code; // of the first bind that failed
};

static const struct db_driver driver;

static struct sqlite_db *of(struct db *db)
{
	return (struct sqlite_db *)db;
}

static sqlite3_stmt *stmt_of(struct db_statement *statement)
{
	return ((struct sqlite_statement *)statement)->stmt;
}

static const char *file_name(enum db_part part)
{
	return part == DB_STATE ? "state.db" : "history.db";
}

static enum status path_of(const struct db_params *params, char path[PATH_BYTES], struct error *error)
{
	int length = snprintf(path, PATH_BYTES, "%s/%s", params->directory, file_name(params->part));
	if (length < 0 || length >= PATH_BYTES - 32)
		return error_set(error, STATUS_INVALID_PARAMS, "the data directory's path is too long");
	return STATUS_OK;
}

// ---- faults ----

static enum status fail(struct sqlite_db *db, int code, struct error *error)
{
	db->code = code;
	return database_fault(db->sqlite, code, error);
}

static enum status fault(struct db *db, struct error *error)
{
	return database_fault(of(db)->sqlite, of(db)->code, error);
}

static const char *trouble(struct db *db)
{
	return sqlite3_errmsg(of(db)->sqlite);
}

static bool damaged(struct db *db)
{
	return database_damaged(of(db)->code);
}

static void doubt(struct db *db)
{
	of(db)->code = SQLITE_CORRUPT;
}

static void report(struct db *db, struct db_report *out)
{
	struct sums_report sums;
	sums_read(of(db)->sqlite, &sums);
	*out = (struct db_report){.damaged = sums.damaged, .wrong = sums.wrong, .first = sums.first};
}

static void freeze(struct db *db)
{
	database_run(of(db)->sqlite, "PRAGMA query_only = ON", NULL);
	sqlite3_db_config(of(db)->sqlite, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

static size_t list_migrations(enum db_part part, struct database_migration migrations[64])
{
	return database_migrations(part == DB_STATE ? "migrations/state/" : "migrations/history/", migrations, 64);
}

static enum status check_current(struct db *base, struct error *error)
{
	struct database_migration migrations[64];
	sqlite3_stmt *stmt = NULL;
	struct sqlite_db *db = of(base);
	int64_t version = -1;
	int code = sqlite3_prepare_v2(db->sqlite, "PRAGMA user_version", -1, &stmt, NULL);
	if (code == SQLITE_OK && (code = sqlite3_step(stmt)) == SQLITE_ROW)
		version = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	if (version < 0)
		return fail(db, code, error);
	if ((uint64_t)version == list_migrations(db->part, migrations))
		return STATUS_OK;
	error_set(error, STATUS_CONFLICT, "%s is of another version of exogpu", db->path);
	error_hint(error, "start the server on it once with this version");
	return STATUS_CONFLICT;
}

// ---- transactions ----

static enum status run(struct db *base, const char *sql, struct error *error)
{
	struct sqlite_db *db = of(base);
	int code = sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL);
	return code == SQLITE_OK ? STATUS_OK : fail(db, code, error);
}

static enum status control(struct db *base, enum control which, struct error *error)
{
	struct sqlite_db *db = of(base);
	int code = sqlite3_step(db->controls[which]);
	enum status status = code == SQLITE_DONE ? STATUS_OK : fail(db, code, error);
	sqlite3_reset(db->controls[which]);
	return status;
}

static enum status begin(struct db *db, enum db_access access, struct error *error)
{
	return control(db, access == DB_READ ? BEGIN_READ : BEGIN_WRITE, error);
}

static enum status commit(struct db *db, struct error *error)
{
	return control(db, COMMIT, error);
}

static bool in_transaction(struct db *db)
{
	return !sqlite3_get_autocommit(of(db)->sqlite);
}

static void rollback(struct db *db)
{
	const int code = of(db)->code; // what it is for stays the last failure
	if (in_transaction(db))
		control(db, ROLLBACK, NULL);
	of(db)->code = code;
}

static enum status defer_keys(struct db *db, struct error *error)
{
	return run(db, "PRAGMA defer_foreign_keys = ON", error);
}

static enum status mark(struct db *db, struct error *error)
{
	return control(db, MARK, error);
}

static enum status settle(struct db *db, struct error *error)
{
	(void)db, (void)error; // whatever was done has been answered
	return STATUS_OK;
}

static void undo(struct db *db)
{
	control(db, UNDO, NULL);
}

static void release(struct db *db)
{
	control(db, RELEASE, NULL);
}

// ---- statements ----

static enum status prepare(struct db *base, const char *sql, struct db_statement **out, struct error *error)
{
	struct sqlite_db *db = of(base);
	struct sqlite_statement *statement = calloc(1, sizeof *statement);
	*out = NULL;
	if (!statement)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a statement");
	statement->base.db = base;
	int code = sqlite3_prepare_v3(db->sqlite, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement->stmt, NULL);
	if (code != SQLITE_OK) {
		free(statement);
		return fail(db, code, error);
	}
	*out = &statement->base;
	return STATUS_OK;
}

static void finalize(struct db_statement *statement)
{
	sqlite3_finalize(stmt_of(statement));
	free(statement);
}

static int bind_value(sqlite3_stmt *stmt, int index, const struct db_value *value)
{
	switch (value->type) {
	case DB_NULL:
		return sqlite3_bind_null(stmt, index);
	case DB_TEXT:
		return sqlite3_bind_text64(stmt, index, value->bytes, value->length, SQLITE_STATIC, SQLITE_UTF8);
	case DB_BYTES:
		return sqlite3_bind_blob64(stmt, index, value->bytes, value->length, SQLITE_STATIC);
	case DB_INTEGER:
		return sqlite3_bind_int64(stmt, index, value->integer);
	case DB_REAL:
		return sqlite3_bind_double(stmt, index, value->real);
	}
	return SQLITE_MISUSE;
}

static void expect_many(struct db_statement *statement)
{
	(void)statement; // rows come one by one
}

static bool bind(struct db_statement *base, int index, const struct db_value *value)
{
	struct sqlite_statement *statement = (struct sqlite_statement *)base;
	int code = bind_value(statement->stmt, index, value);
	if (code != SQLITE_OK && !statement->bind_code)
		statement->bind_code = code;
	return code == SQLITE_OK;
}

static enum db_code step(struct db_statement *base)
{
	struct sqlite_statement *statement = (struct sqlite_statement *)base;
	int code = statement->bind_code ? statement->bind_code : sqlite3_step(statement->stmt);
	if (code == SQLITE_ROW)
		return DB_ROW;
	if (code == SQLITE_DONE)
		return DB_DONE;
	of(base->db)->code = code;
	return DB_FAILED;
}

static void reset(struct db_statement *statement)
{
	sqlite3_reset(stmt_of(statement));
	sqlite3_clear_bindings(stmt_of(statement));
	((struct sqlite_statement *)statement)->bind_code = SQLITE_OK;
}

static enum status execute(struct db_statement *statement, struct error *error)
{
	enum status status = step(statement) == DB_DONE ? STATUS_OK : fault(statement->db, error);
	reset(statement);
	return status;
}

static enum db_type type(struct db_statement *row, int column)
{
	switch (sqlite3_column_type(stmt_of(row), column)) {
	case SQLITE_INTEGER:
		return DB_INTEGER;
	case SQLITE_FLOAT:
		return DB_REAL;
	case SQLITE_TEXT:
		return DB_TEXT;
	case SQLITE_BLOB:
		return DB_BYTES;
	default:
		return DB_NULL;
	}
}

static int64_t integer(struct db_statement *row, int column)
{
	return sqlite3_column_int64(stmt_of(row), column);
}

static double real(struct db_statement *row, int column)
{
	return sqlite3_column_double(stmt_of(row), column);
}

static const char *text(struct db_statement *row, int column)
{
	return (const char *)sqlite3_column_text(stmt_of(row), column);
}

static const void *bytes(struct db_statement *row, int column)
{
	return sqlite3_column_blob(stmt_of(row), column);
}

static size_t length(struct db_statement *row, int column)
{
	return (size_t)sqlite3_column_bytes(stmt_of(row), column);
}

static int is_late(void *context)
{
	return clock_steady_ns() >= *(const int64_t *)context;
}

static void set_deadline(struct db *base, int64_t until_ns)
{
	struct sqlite_db *db = of(base);
	db->deadline_ns = until_ns;
	sqlite3_progress_handler(db->sqlite, until_ns ? STEPS_BETWEEN_LOOKS : 0, until_ns ? is_late : NULL,
				 &db->deadline_ns);
}

// ---- the -wal file ----

static int note_wal_pages(void *context, sqlite3 *sqlite, const char *name, int pages)
{
	(void)sqlite, (void)name;
	struct sqlite_db *db = context;
	db->wal_pages = pages;
	db->base.untidy = pages != 0;
	return SQLITE_OK;
}

// Without waiting for readers at many pages, and completely when there is nothing else to do.
static void tidy(struct db *base, bool idle)
{
	struct sqlite_db *db = of(base);
	struct sums_report sums;
	sums_read(db->sqlite, &sums);
	if ((!idle && db->wal_pages < CHECKPOINT_PAGES) || sums.damaged)
		return;
	database_checkpoint(db->sqlite, &db->wal_pages, idle);
	db->base.untidy = db->wal_pages != 0;
}

// ---- opening and closing ----

static void close_db(struct db *base)
{
	struct sqlite_db *db = of(base);
	for (int i = 0; i < CONTROLS; i++)
		sqlite3_finalize(db->controls[i]);
	database_close(&db->sqlite);
	free(db);
}

static enum status prepare_controls(struct sqlite_db *db, struct error *error)
{
	int code = SQLITE_OK;
	for (int i = 0; i < CONTROLS && code == SQLITE_OK; i++)
		code = sqlite3_prepare_v3(db->sqlite, control_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &db->controls[i],
					  NULL);
	return code == SQLITE_OK ? STATUS_OK : fail(db, code, error);
}

static enum status bring_up(struct sqlite_db *db, const struct db_params *params, struct error *error)
{
	struct database_migration migrations[64];
	const bool state = params->part == DB_STATE;
	const size_t count = list_migrations(params->part, migrations);
	enum status status = state ? database_check(db->sqlite, error) : STATUS_OK;
	if (!status)
		status = database_migrate(db->sqlite, migrations, count, state, error);
	if (!status && state)
		database_add_sums(db->sqlite);
	if (!status)
		sqlite3_wal_hook(db->sqlite, note_wal_pages, db);
	return status;
}

// A copy on a medium that cannot be written has no -wal file to share; SQLite then needs to hear that nobody writes.
static enum status open_copy(sqlite3 **sqlite, const char *path, struct error *error)
{
	char wal[PATH_BYTES + 8], uri[PATH_BYTES + 32];
	struct error first = {.status = STATUS_OK};
	struct stat file;
	if (stat(path, &file)) {
		enum status status = error_errno(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, errno,
						 "there is no log at %s", path);
		error_hint(error, "name the data directory with --data");
		return status;
	}
	enum status status = database_open(sqlite, &(struct database_params){.path = path, .read_only = true}, &first);
	if (!status)
		status = database_run(*sqlite, "SELECT 1 FROM sqlite_schema LIMIT 1", &first);
	if (!status)
		return STATUS_OK;
	database_close(sqlite);
	snprintf(wal, sizeof wal, "%s-wal", path);
	if (status != STATUS_FORBIDDEN || !access(wal, F_OK) || strpbrk(path, "?#%"))
		return error_set(error, status, "%s", first.message);
	snprintf(uri, sizeof uri, "file:%s?immutable=1", path);
	return database_open(sqlite, &(struct database_params){.path = uri, .read_only = true, .uri = true}, error);
}

enum status sqlite_open(struct db **out, const struct db_params *params, struct error *error)
{
	char path[PATH_BYTES];
	bool broken = false;
	*out = NULL;
	enum status status = path_of(params, path, error);
	if (status)
		return status;
	struct sqlite_db *db = calloc(1, sizeof *db);
	if (!db)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %s", file_name(params->part));
	db->base.driver = &driver;
	snprintf(db->path, sizeof db->path, "%s", path);
	db->base.name = db->path;
	db->part = params->part;
	const bool writes = !params->read_only && !params->offline;
	const struct database_params file = {.path = path,
					     .read_only = params->read_only,
					     .damaged = &broken,
					     .durable = writes && params->part == DB_STATE};
	if (file.durable)
		holders_warn(path);
	status = params->offline ? open_copy(&db->sqlite, path, error) : database_open(&db->sqlite, &file, error);
	if (!status)
		status = prepare_controls(db, error);
	if (!status && writes)
		status = bring_up(db, params, error);
	// A newer version's, without the tables that it should have, or damaged.
	if (status && params->unusable)
		*params->unusable = broken || (db->sqlite && (status == STATUS_CONFLICT || status == STATUS_INTERNAL ||
							      database_damaged(sqlite3_errcode(db->sqlite))));
	*out = &db->base;
	if (status)
		db_close(out);
	return status;
}

enum status sqlite_set_aside(struct db **db, const struct db_params *params, const char *why, struct error *error)
{
	static const char *const suffixes[] = {"", "-wal", "-shm"};
	char path[PATH_BYTES], from[PATH_BYTES + 8], to[PATH_BYTES + 64];
	enum status status = path_of(params, path, error);
	if (status)
		return status;
	if (*db)
		sqlite3_db_config(of(*db)->sqlite, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	db_close(db);
	const long long now = (long long)clock_wall_ms();
	for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
		snprintf(from, sizeof from, "%s%s", path, suffixes[i]);
		snprintf(to, sizeof to, "%s.damaged-%lld%s", path, now, suffixes[i]);
		if (rename(from, to) && errno != ENOENT)
			return error_errno(error, STATUS_UNAVAILABLE, errno, "cannot rename %s", from);
	}
	log_warning("store",
		    "%s; the history of readings begins anew, the old file is %s.damaged-%lld and may be deleted", why,
		    path, now);
	return STATUS_OK;
}

static int64_t file_bytes(const char *path)
{
	struct stat file;
	return stat(path, &file) ? 0 : (int64_t)file.st_size;
}

int64_t sqlite_size(const struct db_params *params)
{
	char path[PATH_BYTES], wal[PATH_BYTES + 8];
	if (path_of(params, path, NULL))
		return 0;
	snprintf(wal, sizeof wal, "%s-wal", path);
	return file_bytes(path) + file_bytes(wal);
}

static const struct db_driver driver = {
	.close = close_db,
	.fault = fault,
	.trouble = trouble,
	.damaged = damaged,
	.doubt = doubt,
	.report = report,
	.freeze = freeze,
	.check_current = check_current,
	.tidy = tidy,
	.set_deadline = set_deadline,
	.run = run,
	.begin = begin,
	.commit = commit,
	.rollback = rollback,
	.in_transaction = in_transaction,
	.defer_keys = defer_keys,
	.mark = mark,
	.settle = settle,
	.undo = undo,
	.release = release,
	.prepare = prepare,
	.finalize = finalize,
	.expect_many = expect_many,
	.bind = bind,
	.execute = execute,
	.step = step,
	.reset = reset,
	.type = type,
	.integer = integer,
	.real = real,
	.text = text,
	.bytes = bytes,
	.length = length,
};
