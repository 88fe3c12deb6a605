/* Statements on a connection to PostgreSQL; the functions are those of db.h. Inside server/store/postgres only. */
#pragma once
#include "server/store/postgres/inside.h"

enum status statement_prepare(struct db *db, const char *sql, struct db_statement **out, struct error *error);
void statement_finalize(struct db_statement *statement);
void statement_expect_many(struct db_statement *statement);
bool statement_bind(struct db_statement *statement, int index, const struct db_value *value);
enum status statement_execute(struct db_statement *statement, struct error *error);
enum db_code statement_step(struct db_statement *statement);
void statement_reset(struct db_statement *statement);
enum db_type statement_type(struct db_statement *row, int column);
int64_t statement_integer(struct db_statement *row, int column);
double statement_real(struct db_statement *row, int column);
const char *statement_text(struct db_statement *row, int column);
const void *statement_bytes(struct db_statement *row, int column);
size_t statement_length(struct db_statement *row, int column);
