/* Opens SQLite in the one way that this program uses. Every connection is in WAL mode
 * without automatic checkpoints (the writer makes them; a reader makes none when it closes),
 * with foreign keys, an untrusted schema, defensive mode and tight limits. The file is
 * created with mode 0600 before SQLite opens it. Migrations are the embedded files
 * PREFIX/0001_*.sql, 0002_… in order: pending ones run in one transaction that also sets
 * user_version. Thread: any; a connection belongs to one thread at a time. Inside
 * server/store only. */
#pragma once
#include "common/base/status.h"

#include <sqlite3.h>
#include <stddef.h>

struct database_params {
	const char *path;
	bool read_only; // the file must exist
	bool uri;       // the path is SQLite's, file:…?…
	bool *damaged;  // set if that is why it cannot be opened; may be NULL
	// A commit is on disk when it returns, deleted bytes are overwritten, and pages have sums; else only
	// consistent.
	bool durable;
};
// Errors: STATUS_FORBIDDEN, STATUS_UNAVAILABLE (damaged, disk full or failing), STATUS_OUT_OF_MEMORY, with hints.
enum status database_open(sqlite3 **out, const struct database_params *params, struct error *error);
void database_close(sqlite3 **db);

struct database_migration {
	const char *sql;
	size_t length;
};
// The embedded migrations whose names begin with `prefix`, the first to bring version 1. At most `capacity`.
size_t database_migrations(const char *prefix, struct database_migration *migrations, size_t capacity);
// Bring the database to version `count`. A database that holds something is first copied to PATH.before-vCOUNT when
// `copy` is set. Errors: STATUS_CONFLICT (made by a newer version; nothing is changed), those of database_open.
enum status database_migrate(sqlite3 *db, const struct database_migration *migrations, size_t count, bool copy,
			     struct error *error);
// Give a database of before its sums (sums.h), in one transaction; nothing if it has them, or is over 256 MiB. A
// failure is told in the log, and no more.
void database_add_sums(sqlite3 *db);
// PRAGMA quick_check, which reads all that is in use. Errors: STATUS_UNAVAILABLE with the first finding.
enum status database_check(sqlite3 *db, struct error *error);

// Move the -wal file's pages into the database: what no reader stands in the way of, or (truncate) all, and then
// *pages, the pages that it holds, is 0. A reader in the way is no error: the next call goes on.
void database_checkpoint(sqlite3 *db, int *pages, bool truncate);

// Run one statement without parameters. Errors: as database_fault.
enum status database_run(sqlite3 *db, const char *sql, struct error *error);
// Prepare a statement that is kept. Errors: as database_fault.
enum status database_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out, struct error *error);
// Say what SQLite's result `code` means to a person: STATUS_UNAVAILABLE (disk full or failing, damaged, in use),
// STATUS_FORBIDDEN, STATUS_CONFLICT (a constraint), STATUS_OUT_OF_MEMORY, STATUS_LIMIT_EXCEEDED, STATUS_INTERNAL.
enum status database_fault(sqlite3 *db, int code, struct error *error);
// True if the code says that the file's content is damaged.
bool database_damaged(int code);
