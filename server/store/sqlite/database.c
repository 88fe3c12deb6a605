/* See database.h. */
#include "server/store/sqlite/database.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/files/embedded.h"
#include "server/store/sqlite/sums.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUSY_MS = 5000, SUMS_MOST_PAGES = 65536 };

// Limits on what a hostile or damaged file, or a mistake in our own SQL, can make SQLite do.
static const struct {
	int id, value;
} sqlite_limits[] = {
	{SQLITE_LIMIT_LENGTH, 8 * 1024 * 1024},
	{SQLITE_LIMIT_SQL_LENGTH, 64 * 1024},
	{SQLITE_LIMIT_COLUMN, 64},
	{SQLITE_LIMIT_EXPR_DEPTH, 64},
	{SQLITE_LIMIT_COMPOUND_SELECT, 8},
	{SQLITE_LIMIT_FUNCTION_ARG, 16},
	{SQLITE_LIMIT_ATTACHED, 0},
	{SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 256},
	{SQLITE_LIMIT_VARIABLE_NUMBER, 64},
	{SQLITE_LIMIT_TRIGGER_DEPTH, 8},
	{SQLITE_LIMIT_WORKER_THREADS, 0},
};

static const char *file_of(sqlite3 *db)
{
	const char *path = db ? sqlite3_db_filename(db, "main") : NULL;
	return path && *path ? path : "the database";
}

bool database_damaged(int code)
{
	return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

enum status database_fault(sqlite3 *db, int code, struct error *error)
{
	const bool latest = db && (sqlite3_errcode(db) & 0xff) == (code & 0xff); // else the code is a finding of ours
	const char *file = file_of(db), *text = latest ? sqlite3_errmsg(db) : sqlite3_errstr(code);
	enum status status = STATUS_INTERNAL;
	switch (code & 0xff) { // SQLite's codes are macros, not an enum
	case SQLITE_FULL:
		status = error_set(error, STATUS_UNAVAILABLE, "no space left to write %s", file);
		error_hint(error, "free some space on that disk and try again; nothing that was stored is lost");
		break;
	case SQLITE_IOERR:
		status = error_set(error, STATUS_UNAVAILABLE, "cannot read or write %s: %s%s%s", file, text,
				   db && sqlite3_system_errno(db) ? ", " : "",
				   db && sqlite3_system_errno(db) ? strerror(sqlite3_system_errno(db)) : "");
		error_hint(error, "check the disk and its free space, then try again; nothing that was stored is lost");
		break;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		sums_mark_damaged(db);
		status = error_set(error, STATUS_UNAVAILABLE, "%s is damaged: %s", file, text);
		error_hint(error,
			   "stop the server and put back a copy of that file, or move it and its -wal file away to "
			   "start with an empty inventory and a new admin token");
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		status = error_set(error, STATUS_UNAVAILABLE, "%s is in use by another program", file);
		error_hint(error, "close the program that has it open and try again");
		break;
	case SQLITE_PERM:
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_AUTH:
		status = error_set(error, STATUS_FORBIDDEN, "cannot open %s for writing: %s", file, text);
		error_hint(error,
			   "give the user that runs exogpu write access to the directory and the files in it, or "
			   "choose another with --data");
		break;
	case SQLITE_NOMEM:
		status = error_set(error, STATUS_OUT_OF_MEMORY, "not enough memory for %s", file);
		break;
	case SQLITE_TOOBIG:
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "a value is too large for %s", file);
		break;
	case SQLITE_CONSTRAINT:
		status = error_set(error, STATUS_CONFLICT, "refused by %s: %s", file, text);
		break;
	default: // our own SQL does not fit the tables that the file says it has
		status = error_set(error, STATUS_INTERNAL, "%s: %s", file, text);
		error_hint(
			error,
			"the tables of that file are not those that exogpu made: it is damaged, or another program has "
			"changed it; put back a copy");
	}
	return status;
}

enum status database_run(sqlite3 *db, const char *sql, struct error *error)
{
	int code = sqlite3_exec(db, sql, NULL, NULL, NULL);
	return code == SQLITE_OK ? STATUS_OK : database_fault(db, code, error);
}

enum status database_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out, struct error *error)
{
	int code = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
	return code == SQLITE_OK ? STATUS_OK : database_fault(db, code, error);
}

// SQLite makes its files 0644; the -wal and -shm files take the mode of the file itself, so that is made first.
static enum status make_file(const char *path, struct error *error)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		int number = errno;
		bool space = number == ENOSPC || number == EDQUOT || number == EIO;
		enum status status = error_errno(error, space ? STATUS_UNAVAILABLE : STATUS_FORBIDDEN, number,
						 "cannot open %s for writing", path);
		error_hint(error, space ? "free some space on that disk and start again"
					: "give the user that runs exogpu write access to the directory and the files "
					  "in it, or choose another with --data");
		return status;
	}
	struct stat file;
	if (!fstat(fd, &file) && (file.st_mode & 077) && fchmod(fd, 0600))
		log_warning("store", "%s can be read by other users and its mode cannot be changed", path);
	close(fd);
	return STATUS_OK;
}

static enum status configure(sqlite3 *db, const struct database_params *params, struct error *error)
{
	for (size_t i = 0; i < sizeof sqlite_limits / sizeof *sqlite_limits; i++)
		sqlite3_limit(db, sqlite_limits[i].id, sqlite_limits[i].value);
	sqlite3_extended_result_codes(db, 1);
	sqlite3_busy_timeout(db, BUSY_MS);
	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_FKEY, 1, NULL);
	enum status status = database_run(db, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0", error);
	if (params->read_only) // the writer alone moves pages from the -wal file into the database, at its end, too
		sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	if (!status && params->read_only)
		status = database_run(db, "PRAGMA query_only = ON", error);
	else if (params->durable)
		sums_reserve(db);
	if (!status && !params->read_only)
		status = database_run(db,
				      params->durable ? "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; "
							"PRAGMA secure_delete = ON; PRAGMA wal_autocheckpoint = 0"
						      : "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; "
							"PRAGMA secure_delete = OFF; PRAGMA wal_autocheckpoint = 0",
				      error);
	return status;
}

enum status database_open(sqlite3 **out, const struct database_params *params, struct error *error)
{
	*out = NULL;
	enum status status = params->read_only ? STATUS_OK : make_file(params->path, error);
	if (status)
		return status;
	sqlite3 *db = NULL;
	int flags = SQLITE_OPEN_NOMUTEX | (params->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
	if (params->uri)
		flags |= SQLITE_OPEN_URI;
	int code = sqlite3_open_v2(params->path, &db, flags, params->durable ? sums_vfs() : NULL);
	if (code != SQLITE_OK)
		status = database_fault(db, code, error);
	else
		status = configure(db, params, error);
	if (status && params->damaged)
		*params->damaged = db && database_damaged(sqlite3_errcode(db));
	if (status)
		database_close(&db);
	*out = db;
	return status;
}

void database_close(sqlite3 **db)
{
	if (*db && sqlite3_close(*db) != SQLITE_OK)
		log_error("store", "%s was left with open statements", file_of(*db));
	*db = NULL;
}

void database_checkpoint(sqlite3 *db, int *pages, bool truncate)
{
	if (!*pages)
		return;
	sqlite3_busy_timeout(db, 0); // never wait for a reader here
	int code = sqlite3_wal_checkpoint_v2(
		db, NULL, truncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	sqlite3_busy_timeout(db, BUSY_MS);
	if (code == SQLITE_OK && truncate)
		*pages = 0;
	else if (code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY && (code & 0xff) != SQLITE_LOCKED)
		log_warning("store", "checkpoint of %s: %s", file_of(db), sqlite3_errmsg(db));
}

size_t database_migrations(const char *prefix, struct database_migration *migrations, size_t capacity)
{
	const struct embedded_file *files;
	size_t count = embedded_list(prefix, &files);
	if (count > capacity)
		count = capacity;
	for (size_t i = 0; i < count; i++)
		migrations[i] = (struct database_migration){(const char *)files[i].data, files[i].length};
	return count;
}

static enum status read_integer(sqlite3 *db, const char *sql, int64_t *value, struct error *error)
{
	sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
	if (code == SQLITE_OK)
		code = sqlite3_step(statement);
	enum status status = STATUS_OK;
	if (code == SQLITE_ROW)
		*value = sqlite3_column_int64(statement, 0);
	else
		status = database_fault(db, code, error);
	sqlite3_finalize(statement);
	return status;
}

// A copy by SQLite's own means, so that it is whole whatever the -wal file holds; under its name only when it is whole.
static enum status copy_aside(sqlite3 *db, size_t version, struct error *error)
{
	char path[PATH_MAX], part[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s.before-v%zu", file_of(db), version);
	int part_length = snprintf(part, sizeof part, "%s.part", path);
	if (length < 0 || (size_t)length >= sizeof path || part_length < 0 || (size_t)part_length >= sizeof part)
		return error_set(error, STATUS_INVALID_PARAMS, "the data directory's path is too long");
	sqlite3 *copy = NULL;
	unlink(part);
	enum status status = make_file(part, error);
	if (status)
		return status;
	int code = sqlite3_open_v2(part, &copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	sqlite3_backup *backup = code == SQLITE_OK ? sqlite3_backup_init(copy, "main", db, "main") : NULL;
	if (backup) {
		sqlite3_backup_step(backup, -1);
		code = sqlite3_backup_finish(backup);
	} else if (code == SQLITE_OK) {
		code = sqlite3_errcode(copy);
	}
	if (code != SQLITE_OK)
		status = database_fault(copy, code, error);
	sqlite3_close(copy);
	if (!status && rename(part, path))
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "cannot write %s", path);
	if (status)
		unlink(part);
	else
		log_info("store", "copied the database to %s before bringing it to version %zu", path, version);
	return status;
}

static enum status run_migrations(sqlite3 *db, const struct database_migration *migrations, size_t from, size_t count,
				  struct error *error)
{
	enum status status = database_run(db, "BEGIN IMMEDIATE", error);
	for (size_t i = from; i < count && !status; i++) {
		char *sql = strndup(migrations[i].sql, migrations[i].length);
		status = sql ? database_run(db, sql, error) : STATUS_OUT_OF_MEMORY;
		free(sql);
	}
	char version[64];
	snprintf(version, sizeof version, "PRAGMA user_version = %zu", count);
	if (!status)
		status = database_run(db, version, error);
	if (!status)
		status = database_run(db, "COMMIT", error);
	if (status && !sqlite3_get_autocommit(db))
		database_run(db, "ROLLBACK", NULL);
	return status;
}

enum status database_migrate(sqlite3 *db, const struct database_migration *migrations, size_t count, bool copy,
			     struct error *error)
{
	int64_t version = 0, tables = 0;
	enum status status = read_integer(db, "PRAGMA user_version", &version, error);
	if (!status)
		status = read_integer(db, "SELECT count(*) FROM sqlite_schema", &tables, error);
	if (status)
		return status;
	if (version < 0 || (uint64_t)version > count) {
		status = error_set(error, STATUS_CONFLICT,
				   "%s is of version %lld, and this exogpu (%s) knows versions up to %zu", file_of(db),
				   (long long)version, EXOGPU_VERSION, count);
		error_hint(error, "run the newer exogpu that wrote it, or start with another directory by --data");
		return status;
	}
	if (!version && tables) {
		status = error_set(error, STATUS_CONFLICT, "%s is not a database of exogpu", file_of(db));
		error_hint(error, "start with another directory by --data");
		return status;
	}
	if ((uint64_t)version == count)
		return STATUS_OK;
	if (copy && version)
		status = copy_aside(db, count, error);
	if (!status)
		status = run_migrations(db, migrations, (size_t)version, count, error);
	return status;
}

void database_add_sums(sqlite3 *db)
{
	struct sums_report report;
	struct error error = {.status = STATUS_OK};
	int64_t pages = 0;
	sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL); // a new file's first page, too
	sums_read(db, &report);
	if (report.kept || read_integer(db, "PRAGMA page_count", &pages, &error))
		return;
	if (pages > SUMS_MOST_PAGES) {
		log_info("store", "%s keeps no sums of its pages: it is too large to be written anew", file_of(db));
		return;
	}
	sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 1); // how VACUUM makes the new file, in memory
	enum status status = database_run(db, "PRAGMA temp_store = MEMORY; VACUUM; PRAGMA temp_store = DEFAULT",
					  &error);
	sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
	if (status)
		log_warning("store", "%s keeps no sums of its pages: %s", file_of(db), error.message);
	else
		log_info("store", "%s keeps sums of its pages from now on", file_of(db));
}

enum status database_check(sqlite3 *db, struct error *error)
{
	sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &statement, NULL);
	if (code == SQLITE_OK)
		code = sqlite3_step(statement);
	enum status status = STATUS_OK;
	const char *finding = code == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
	if (code != SQLITE_ROW) {
		status = database_fault(db, code, error);
	} else if (!finding || strcmp(finding, "ok")) {
		status = error_set(error, STATUS_UNAVAILABLE, "%s is damaged: %.200s", file_of(db),
				   finding ? finding : "no verdict");
		error_hint(error,
			   "put back a copy of that file, or move it and its -wal file away to start with an empty "
			   "inventory and a new admin token");
	}
	sqlite3_finalize(statement);
	return status;
}
