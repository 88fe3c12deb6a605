/* See statement.h. A statement that is run a second time is prepared by name; parameters and values go as bytes, so
 * that a number is the same on both sides. Its rows are all held in memory, unless many are expected: within a
 * transaction these come by a cursor, some thousand at a time. */
#include "server/store/postgres/statement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARAMETERS = 64, NUMBER_BYTES = 32, NAME_BYTES = 16 };
enum { OID_BOOL = 16, OID_BYTEA = 17, OID_INT8 = 20, OID_INT2 = 21, OID_INT4 = 23, OID_FLOAT8 = 701 };
#define FETCH_ROWS "2000"

struct statement {
	struct db_statement base; // first member
	char *sql;                // with $1 for ?1
	char name[NAME_BYTES];
	unsigned generation; // of the connection that knows it by its name; 0: none
	bool again;          // it was run
	bool many;
	int count; // of parameters
	const char *values[MOST_PARAMETERS];
	int lengths[MOST_PARAMETERS], formats[MOST_PARAMETERS];
	char numbers[MOST_PARAMETERS][NUMBER_BYTES];
	struct pg_result *result; // of the rows that are here
	int row, rows;
	bool cursor; // more rows can be fetched
};

static struct statement *of(struct db_statement *statement)
{
	return (struct statement *)statement;
}

static struct postgres *db_of(struct statement *statement)
{
	return (struct postgres *)statement->base.db;
}

// ---- preparing ----

// ?1 becomes $1 where it is no part of a text. Returns how many parameters there are.
static int translate(char *sql)
{
	int most = 0;
	bool quoted = false;
	for (char *at = sql; *at; at++) {
		quoted = quoted != (*at == '\'');
		if (quoted || *at != '?')
			continue;
		*at = '$';
		const int number = (int)strtol(at + 1, NULL, 10);
		most = number > most ? number : most;
	}
	return most;
}

enum status statement_prepare(struct db *base, const char *sql, struct db_statement **out, struct error *error)
{
	struct postgres *db = (struct postgres *)base;
	struct statement *statement = calloc(1, sizeof *statement);
	*out = NULL;
	if (statement)
		statement->sql = strdup(sql);
	if (!statement || !statement->sql) {
		free(statement);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a statement");
	}
	statement->base.db = base;
	statement->count = translate(statement->sql);
	snprintf(statement->name, sizeof statement->name, "s%u", ++db->names);
	if (statement->count > MOST_PARAMETERS) {
		statement_finalize(&statement->base);
		return error_set(error, STATUS_INTERNAL, "a statement has too many parameters");
	}
	*out = &statement->base;
	return STATUS_OK;
}

static void drop(struct postgres *db, struct pg_result *result)
{
	if (result)
		db->pq->PQclear(result);
}

void statement_finalize(struct db_statement *base)
{
	struct statement *statement = of(base);
	struct postgres *db = db_of(statement);
	char sql[48];
	statement_reset(base);
	snprintf(sql, sizeof sql, "DEALLOCATE %s", statement->name);
	if (statement->generation == db->generation && !db->begun && postgres_alive(db))
		drop(db, postgres_query(db, sql));
	free(statement->sql);
	free(statement);
}

void statement_expect_many(struct db_statement *statement)
{
	of(statement)->many = true;
}

bool statement_bind(struct db_statement *base, int index, const struct db_value *value)
{
	struct statement *statement = of(base);
	const int at = index - 1;
	if (at < 0 || at >= statement->count)
		return false;
	statement->formats[at] = 0;
	statement->values[at] = statement->numbers[at];
	switch (value->type) {
	case DB_NULL:
		statement->values[at] = NULL;
		break;
	case DB_INTEGER:
		snprintf(statement->numbers[at], NUMBER_BYTES, "%lld", (long long)value->integer);
		break;
	case DB_REAL:
		snprintf(statement->numbers[at], NUMBER_BYTES, "%.17g", value->real);
		break;
	case DB_TEXT:
	case DB_BYTES:
		statement->formats[at] = 1;
		statement->values[at] = value->length ? value->bytes : "";
		statement->lengths[at] = (int)value->length;
		break;
	}
	return true;
}

// ---- running ----

static bool know(struct postgres *db, struct statement *statement)
{
	if (statement->generation == db->generation)
		return true;
	struct pg_result *result = postgres_await(
		db, db->pq->PQsendPrepare(db->conn, statement->name, statement->sql, statement->count, NULL));
	drop(db, result);
	if (result)
		statement->generation = db->generation;
	return result != NULL;
}

static bool fetch(struct postgres *db, struct statement *statement)
{
	char sql[64];
	drop(db, statement->result);
	snprintf(sql, sizeof sql, "FETCH " FETCH_ROWS " FROM c%s", statement->name);
	statement->result = postgres_await(db, db->pq->PQsendQueryParams(db->conn, sql, 0, NULL, NULL, NULL, NULL, 1));
	return statement->result != NULL;
}

static bool open_cursor(struct postgres *db, struct statement *statement)
{
	const size_t room = strlen(statement->sql) + 64;
	char *sql = malloc(room);
	if (!sql)
		return false;
	snprintf(sql, room, "DECLARE c%s NO SCROLL CURSOR FOR %s", statement->name, statement->sql);
	struct pg_result *result = postgres_await(db, db->pq->PQsendQueryParams(db->conn, sql, statement->count, NULL,
										statement->values, statement->lengths,
										statement->formats, 0));
	free(sql);
	drop(db, result);
	statement->cursor = result != NULL;
	return statement->cursor && fetch(db, statement);
}

static bool send(struct postgres *db, struct statement *statement)
{
	if (!statement->again) // most are run once
		statement->result = postgres_await(
			db, db->pq->PQsendQueryParams(db->conn, statement->sql, statement->count, NULL,
						      statement->values, statement->lengths, statement->formats, 1));
	else if (know(db, statement))
		statement->result = postgres_await(
			db, db->pq->PQsendQueryPrepared(db->conn, statement->name, statement->count, statement->values,
							statement->lengths, statement->formats, 1));
	statement->again = true;
	return statement->result != NULL;
}

static bool start(struct postgres *db, struct statement *statement)
{
	if (db->begun ? !postgres_alive(db) || !postgres_settle(db) : !postgres_revive(db))
		return false;
	if (statement->many && db->begun)
		return open_cursor(db, statement);
	if (send(db, statement))
		return true;
	// Outside of a transaction what was cut off can be asked again.
	return !db->begun && !db->writes && !postgres_alive(db) && postgres_revive(db) && send(db, statement);
}

// Sends it, or its name first; its answer comes with others'.
static bool queue(struct postgres *db, struct statement *statement)
{
	if (!postgres_pipeline(db))
		return false;
	if (!statement->again) {
		statement->again = true;
		return postgres_queue(db, db->pq->PQsendQueryParams(db->conn, statement->sql, statement->count, NULL,
								    statement->values, statement->lengths,
								    statement->formats, 1));
	}
	if (statement->generation != db->generation) {
		if (!postgres_queue(db, db->pq->PQsendPrepare(db->conn, statement->name, statement->sql,
							      statement->count, NULL)) ||
		    !postgres_settle(db))
			return false;
		statement->generation = db->generation;
		if (!postgres_pipeline(db))
			return false;
	}
	return postgres_queue(db, db->pq->PQsendQueryPrepared(db->conn, statement->name, statement->count,
							      statement->values, statement->lengths, statement->formats,
							      1));
}

enum status statement_execute(struct db_statement *base, struct error *error)
{
	struct statement *statement = of(base);
	struct postgres *db = db_of(statement);
	bool good;
	if (db->begun && db->writes)
		good = postgres_alive(db) && queue(db, statement);
	else
		good = statement_step(base) == DB_DONE;
	enum status status = good ? STATUS_OK : postgres_fault(db, error);
	statement_reset(base);
	return status;
}

enum db_code statement_step(struct db_statement *base)
{
	struct statement *statement = of(base);
	struct postgres *db = db_of(statement);
	if (!statement->result) {
		if (!start(db, statement))
			return DB_FAILED;
		statement->row = -1;
		statement->rows = db->pq->PQntuples(statement->result);
	}
	if (statement->row + 1 >= statement->rows && statement->cursor && statement->rows) {
		if (!fetch(db, statement))
			return DB_FAILED;
		statement->row = -1;
		statement->rows = db->pq->PQntuples(statement->result);
	}
	if (statement->row + 1 >= statement->rows)
		return DB_DONE;
	statement->row++;
	return DB_ROW;
}

void statement_reset(struct db_statement *base)
{
	struct statement *statement = of(base);
	struct postgres *db = db_of(statement);
	char sql[48];
	drop(db, statement->result);
	statement->result = NULL;
	snprintf(sql, sizeof sql, "CLOSE c%s", statement->name);
	if (statement->cursor && db->begun && postgres_alive(db))
		drop(db, postgres_query(db, sql));
	statement->cursor = false;
	memset(statement->values, 0, sizeof statement->values);
}

// ---- rows ----

static bool is_null(struct statement *statement, int column)
{
	return !statement->result || db_of(statement)->pq->PQgetisnull(statement->result, statement->row, column);
}

enum db_type statement_type(struct db_statement *row, int column)
{
	struct statement *statement = of(row);
	if (is_null(statement, column))
		return DB_NULL;
	switch (db_of(statement)->pq->PQftype(statement->result, column)) {
	case OID_BOOL:
	case OID_INT2:
	case OID_INT4:
	case OID_INT8:
		return DB_INTEGER;
	case OID_FLOAT8:
		return DB_REAL;
	case OID_BYTEA:
		return DB_BYTES;
	default:
		return DB_TEXT;
	}
}

size_t statement_length(struct db_statement *row, int column)
{
	struct statement *statement = of(row);
	return is_null(statement, column)
		       ? 0
		       : (size_t)db_of(statement)->pq->PQgetlength(statement->result, statement->row, column);
}

const void *statement_bytes(struct db_statement *row, int column)
{
	struct statement *statement = of(row);
	return is_null(statement, column) ? NULL
					  : db_of(statement)->pq->PQgetvalue(statement->result, statement->row, column);
}

const char *statement_text(struct db_statement *row, int column)
{
	return statement_bytes(row, column);
}

// The most significant byte first, as the wire has it.
static uint64_t word(struct db_statement *row, int column)
{
	const uint8_t *bytes = statement_bytes(row, column);
	const size_t length = statement_length(row, column);
	uint64_t value = length && bytes[0] & 0x80 ? UINT64_MAX : 0;
	for (size_t i = 0; i < length && i < 8; i++)
		value = value << 8 | bytes[i];
	return value;
}

int64_t statement_integer(struct db_statement *row, int column)
{
	return statement_type(row, column) == DB_INTEGER ? (int64_t)word(row, column) : 0;
}

double statement_real(struct db_statement *row, int column)
{
	double value = 0;
	const uint64_t bits = word(row, column);
	if (statement_type(row, column) == DB_REAL)
		memcpy(&value, &bits, sizeof value);
	else
		value = (double)statement_integer(row, column);
	return value;
}
