/* SQL on the tables of a test's store, as somebody else writes it: by SQLite's library on state.db, or, where the test
 * runs on PostgreSQL (support.h), by psql. */
#pragma once
#include "tests/server/store/support.h"

#include <sqlite3.h>

static inline FILE *sql_psql(const struct support *support, const char *options, const char *mode)
{
	char command[512];
	snprintf(command, sizeof command,
		 "PGOPTIONS='-c search_path=exogpu,public -c session_replication_role=replica' %s/psql -XqAt -v "
		 "ON_ERROR_STOP=1 -h '%s' -U exogpu %s '%s'",
		 getenv("EXOGPU_TEST_POSTGRES_BIN"), support_postgres(), options, support_database(support));
	return popen(command, mode);
}

// The tests' own SQL is SQLite's; the few words that differ.
static inline void sql_translate(const char *sql, FILE *out)
{
	static const char *const words[][2] = {
		{"DROP TRIGGER audit_stays", "DROP TRIGGER audit_stays ON audit"},
		{"DROP TRIGGER IF EXISTS audit_stays", "DROP TRIGGER IF EXISTS audit_stays ON audit"},
		{"PRAGMA foreign_keys = OFF", "SELECT 1"}, // as all that is done here, without triggers
		{"char(10)", "chr(10)"},
	};
	while (*sql) {
		size_t i = 0;
		while (i < sizeof words / sizeof *words && strncmp(sql, words[i][0], strlen(words[i][0])) != 0)
			i++;
		const bool found = i < sizeof words / sizeof *words;
		if (found)
			fputs(words[i][1], out);
		else
			fputc(*sql, out);
		sql += found ? strlen(words[i][0]) : 1;
	}
}

static inline void run_sql(const struct support *support, const char *sql)
{
	char path[SUPPORT_PATH_BYTES + 64], *why = NULL;
	sqlite3 *db;
	if (support_postgres()) {
		FILE *psql = sql_psql(support, "-f -", "w");
		assert_non_null(psql);
		sql_translate(sql, psql);
		if (pclose(psql))
			fail_msg("%s", sql);
		return;
	}
	assert_int_equal(sqlite3_open(support_path(support, "state.db", path), &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", sql, why);
	sqlite3_close(db);
}

// The first value of the first row, as text; "": there is none.
static inline void ask_text(const struct support *support, const char *sql, char *text, size_t room)
{
	char path[SUPPORT_PATH_BYTES + 64], option[SUPPORT_PATH_BYTES + 72];
	sqlite3 *db;
	sqlite3_stmt *row;
	text[0] = 0;
	if (support_postgres()) {
		FILE *file = fopen(support_path(support, "ask.sql", path), "w");
		assert_non_null(file);
		sql_translate(sql, file);
		fclose(file);
		snprintf(option, sizeof option, "-f '%s'", path);
		FILE *psql = sql_psql(support, option, "r");
		assert_non_null(psql);
		const size_t length = fread(text, 1, room - 1, psql);
		text[length] = 0;
		if (length && text[length - 1] == '\n') // psql's own
			text[length - 1] = 0;
		assert_int_equal(pclose(psql), 0);
		return;
	}
	assert_int_equal(sqlite3_open(support_path(support, "state.db", path), &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 10000);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &row, NULL), SQLITE_OK);
	if (sqlite3_step(row) == SQLITE_ROW && sqlite3_column_text(row, 0))
		snprintf(text, room, "%s", (const char *)sqlite3_column_text(row, 0));
	sqlite3_finalize(row);
	sqlite3_close(db);
}

// As a number; -1: there is no row. What is true is 1.
static inline int64_t ask_sql(const struct support *support, const char *sql)
{
	char text[64];
	ask_text(support, sql, text, sizeof text);
	return !text[0] ? -1 : text[0] == 't' ? 1 : strtoll(text, NULL, 10);
}

// "state.db" is the store's own. No server may have it open.
static inline void copy_state(const struct support *support, const char *from, const char *to)
{
	char command[1024];
	if (support_postgres()) {
		char names[2][96];
		const char *const files[] = {from, to};
		for (size_t i = 0; i < 2; i++)
			snprintf(names[i], sizeof names[i], "%s%.16s", support_database(support),
				 strcmp(files[i], "state.db") ? files[i] : "");
		snprintf(command, sizeof command,
			 "%s/psql -Xq -v ON_ERROR_STOP=1 -h '%s' -U exogpu -c 'DROP DATABASE IF EXISTS \"%s\"' -c "
			 "'CREATE DATABASE \"%s\" TEMPLATE \"%s\"' postgres 2>/dev/null",
			 getenv("EXOGPU_TEST_POSTGRES_BIN"), support_postgres(), names[1], names[1], names[0]);
	} else {
		snprintf(command, sizeof command, "cd '%s' && rm -f '%s' '%s-wal' '%s-shm' && cp '%s' '%s'",
			 support->directory, to, to, to, from, to);
	}
	assert_int_equal(system(command), 0);
}
