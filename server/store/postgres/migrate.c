/* See inside.h: schemas exogpu and exogpu_history, and their tables by the embedded files migrations/postgres/. A
 * file's number is the version that it brings, the same as in SQLite's; the first brings all that stood when there was
 * none. */
#include "common/base/log.h"
#include "common/files/embedded.h"
#include "server/store/postgres/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *postgres_schema(enum db_part part)
{
	return part == DB_STATE ? "exogpu" : "exogpu_history";
}

static enum status run(struct postgres *db, const char *sql, struct error *error)
{
	struct pg_result *result = postgres_query(db, sql);
	if (!result)
		return postgres_fault(db, error);
	db->pq->PQclear(result);
	return STATUS_OK;
}

static enum status read_number(struct postgres *db, const char *sql, long *number, struct error *error)
{
	struct pg_result *result = postgres_query(db, sql);
	if (!result)
		return postgres_fault(db, error);
	*number = db->pq->PQntuples(result) ? strtol(db->pq->PQgetvalue(result, 0, 0), NULL, 10) : 0;
	db->pq->PQclear(result);
	return STATUS_OK;
}

static long number_of(const struct embedded_file *file)
{
	return strtol(strrchr(file->name, '/') + 1, NULL, 10);
}

// Made by a first start: whoever finds the schema with other things in it leaves it alone.
static enum status make_schema(struct postgres *db, struct error *error)
{
	const char *schema = postgres_schema(db->part);
	char sql[512];
	long tables = 0, ours = 0;
	snprintf(sql, sizeof sql, "SELECT count(*) FROM pg_tables WHERE schemaname = '%s'", schema);
	enum status status = read_number(db, sql, &tables, error);
	snprintf(sql, sizeof sql, "SELECT count(*) FROM pg_tables WHERE schemaname = '%s' AND tablename = 'version'",
		 schema);
	if (!status)
		status = read_number(db, sql, &ours, error);
	if (status || ours)
		return status;
	if (tables) {
		error_set(error, STATUS_CONFLICT, "the schema %s of %s is not exogpu's", schema, db->name);
		error_hint(error, "name another database");
		return STATUS_CONFLICT;
	}
	snprintf(sql, sizeof sql,
		 "BEGIN; CREATE SCHEMA IF NOT EXISTS %s; REVOKE ALL ON SCHEMA %s FROM PUBLIC; "
		 "CREATE TABLE %s.version (number BIGINT NOT NULL); INSERT INTO %s.version VALUES (0); "
		 "CREATE TABLE IF NOT EXISTS exogpu.holder (id TEXT NOT NULL, host TEXT NOT NULL, process BIGINT NOT "
		 "NULL, "
		 "since TEXT NOT NULL, change BIGINT NOT NULL); COMMIT",
		 schema, schema, schema, schema);
	return run(db, sql, error);
}

static size_t list_files(const struct postgres *db, const struct embedded_file **files)
{
	return embedded_list(db->part == DB_STATE ? "migrations/postgres/state/" : "migrations/postgres/history/",
			     files);
}

enum status postgres_check_version(struct postgres *db, struct error *error)
{
	const struct embedded_file *files;
	long version = 0;
	const size_t count = list_files(db, &files);
	enum status status = read_number(db, "SELECT number FROM version", &version, error);
	if (status || (count && version == number_of(&files[count - 1])))
		return status;
	error_set(error, STATUS_CONFLICT, "%s is of another version of exogpu", db->name);
	error_hint(error, "start the server on it once with this version");
	return STATUS_CONFLICT;
}

enum status postgres_migrate(struct postgres *db, struct error *error)
{
	const struct embedded_file *files;
	char sql[128];
	long version = 0;
	const size_t count = list_files(db, &files);
	const long newest = count ? number_of(&files[count - 1]) : 0;
	enum status status = make_schema(db, error);
	if (!status)
		status = read_number(db, "SELECT number FROM version", &version, error);
	if (status)
		return status;
	if (version > newest) {
		error_set(error, STATUS_CONFLICT, "%s is of version %ld, and this exogpu (%s) knows versions up to %ld",
			  db->name, version, EXOGPU_VERSION, newest);
		error_hint(error, "run the newer exogpu that wrote it, or name another database");
		return STATUS_CONFLICT;
	}
	if (version == newest)
		return STATUS_OK;
	status = run(db, "BEGIN", error);
	for (size_t i = 0; i < count && !status; i++)
		if (number_of(&files[i]) > version)
			status = run(db, (const char *)files[i].data, error);
	snprintf(sql, sizeof sql, "UPDATE version SET number = %ld; COMMIT", newest);
	if (!status)
		status = run(db, sql, error);
	if (status && postgres_alive(db))
		run(db, "ROLLBACK", NULL);
	return status;
}
