/* The tables of every driver are the same, and server/store/tables.c names all of their columns: so a store that is
 * copied is copied whole. PostgreSQL's are looked at where tests/postgres.py has started one. */
#include "common/files/embedded.h"
#include "server/store/tables.h"
#include "tests/server/store/sql_support.h"

enum { TEXT = 4096 };

static void make_store(const struct support *support)
{
	struct store *store = NULL;
	struct error error = {.status = STATUS_OK};
	const struct store_params params = {.loop = support->loop, .directory = support->directory};
	if (store_create(&store, &params, &error))
		fail_msg("%s", error.message);
	store_destroy(&store);
}

static void ask_file(const struct support *support, const char *file, const char *sql, char text[TEXT])
{
	char path[SUPPORT_PATH_BYTES + 64];
	sqlite3 *db;
	sqlite3_stmt *row;
	assert_int_equal(sqlite3_open(support_path(support, file, path), &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &row, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(row), SQLITE_ROW);
	snprintf(text, TEXT, "%s", sqlite3_column_text(row, 0) ? (const char *)sqlite3_column_text(row, 0) : "");
	sqlite3_finalize(row);
	sqlite3_close(db);
}

// "name type nullable, …", in order of names, in PostgreSQL's words.
static void columns_of_file(const struct support *support, const char *file, const char *table, char text[TEXT])
{
	char sql[1024];
	snprintf(sql, sizeof sql,
		 "SELECT group_concat(c, ', ') FROM (SELECT name || ' ' || CASE type WHEN 'INTEGER' THEN 'bigint' WHEN "
		 "'TEXT' THEN 'text' WHEN 'REAL' THEN 'double precision' ELSE 'bytea' END || ' ' || CASE WHEN "
		 "\"notnull\" OR pk THEN 'NO' ELSE 'YES' END AS c FROM pragma_table_info('%s') ORDER BY name)",
		 table);
	ask_file(support, file, sql, text);
}

static void columns_of_database(const struct support *support, const char *schema, const char *table, char text[TEXT])
{
	char sql[1024];
	snprintf(sql, sizeof sql,
		 "SELECT string_agg(column_name || ' ' || data_type || ' ' || is_nullable, ', ' ORDER BY column_name "
		 "COLLATE "
		 "\"C\") FROM information_schema.columns WHERE table_schema = '%s' AND table_name = '%s' AND "
		 "column_name "
		 "!= 'rowid'",
		 schema, table);
	ask_text(support, sql, text, TEXT);
}

// Each of `names`, which are divided by ", ", is a column; and there is no other, but for `but`.
static void expect_columns(const char *columns, const struct store_table *table, const char *but)
{
	char wanted[128];
	int count = 0, known = 0;
	for (const char *at = columns; at && *at; at = strstr(at, ", ") ? strstr(at, ", ") + 2 : NULL)
		count += strncmp(at, but, strlen(but)) != 0 || at[strlen(but)] != ' ';
	for (const char *at = table->columns; at; known++) {
		const size_t length = strcspn(at, ",");
		snprintf(wanted, sizeof wanted, ", %.*s ", (int)length, at);
		const bool first = !strncmp(columns, wanted + 2, strlen(wanted + 2));
		if (!first && !strstr(columns, wanted))
			fail_msg("%s has no column%s", table->name, wanted + 1);
		at = at[length] ? at + length + 2 : NULL;
	}
	if (count != known || count != table->count)
		fail_msg("%s: %d columns, %d are named, said to be %d", table->name, count, known, table->count);
}

static void every_column_is_named(void **state)
{
	struct support *support = *state, files = *support;
	char text[TEXT], tables[TEXT], wanted[64];
	support_path(support, "files", files.directory);
	make_store(&files);
	ask_file(
		&files, "state.db",
		"SELECT group_concat(name || ' ') FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
		tables);
	size_t count = 0;
	for (const char *at = tables; (at = strchr(at, ' ')); at++)
		count++;
	assert_int_equal(count, STORE_TABLES);
	for (size_t i = 0; i < STORE_TABLES; i++) {
		snprintf(wanted, sizeof wanted, "%s ", store_tables[i].name);
		assert_non_null(strstr(tables, wanted));
		columns_of_file(&files, "state.db", store_tables[i].name, text);
		expect_columns(text, &store_tables[i], store_tables[i].order ? store_tables[i].order : "-");
	}
	for (size_t i = 0; i < STORE_KINDS; i++) {
		columns_of_file(&files, "history.db", store_series[i].minutes.name, text);
		expect_columns(text, &store_series[i].minutes, "-");
	}
}

static void both_have_the_same_columns(void **state)
{
	struct support *support = *state, files = *support;
	char text[TEXT], other[TEXT];
	if (!support_postgres())
		skip();
	support_path(support, "files", files.directory);
	make_store(&files);
	make_store(support);
	for (size_t i = 0; i < STORE_TABLES; i++) {
		columns_of_file(&files, "state.db", store_tables[i].name, text);
		columns_of_database(support, "exogpu", store_tables[i].name, other);
		assert_string_equal(text, other);
	}
	for (size_t i = 0; i < STORE_KINDS; i++) {
		const char *const names[] = {store_series[i].names, store_series[i].minutes.name};
		for (size_t j = 0; j < 2; j++) {
			columns_of_file(&files, "history.db", names[j], text);
			columns_of_database(support, "exogpu_history", names[j], other);
			assert_string_equal(text, other);
		}
	}
}

// Whoever adds a migration of one adds it to the other, too.
static void migrations_have_the_same_numbers(void **state)
{
	static const char *const folders[][2] = {{"migrations/state/", "migrations/postgres/state/"},
						 {"migrations/history/", "migrations/postgres/history/"}};
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const struct embedded_file *files, *others;
		const size_t count = embedded_list(folders[i][0], &files),
			     other = embedded_list(folders[i][1], &others);
		assert_true(count > 0 && other > 0);
		assert_int_equal(strtol(strrchr(files[count - 1].name, '/') + 1, NULL, 10), count);
		assert_int_equal(strtol(strrchr(others[other - 1].name, '/') + 1, NULL, 10), count);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
	const struct CMUnitTest tests[] = {
		TEST(every_column_is_named),
		TEST(both_have_the_same_columns),
		TEST(migrations_have_the_same_numbers),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
