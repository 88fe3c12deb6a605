/* See copy.h. */
#include "server/store/copy.h"

#include "server/store/audit/journal.h"
#include "server/store/audit/ledger.h"
#include "server/store/db.h"
#include "server/store/history.h"
#include "server/store/place.h"
#include "server/store/tables.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SQL_BYTES = 2048, PATH_BYTES = 4224 };

struct copying {
	const struct store_copy_params *params;
	struct store_copied *copied;
	struct db *from, *to; // the state, or the history
	char head[2048];      // the source's newest signed note
};

static struct db_params place(const char *where, enum db_part part, bool reads)
{
	const bool url = db_is_url(where);
	return (struct db_params){.directory = url ? "" : where,
				  .url = url ? where : NULL,
				  .part = part,
				  .offline = reads,
				  .alone = reads};
}

static enum status is_empty(struct copying *all, const struct store_table *table, struct error *error)
{
	char sql[128];
	struct db_statement *row = NULL;
	snprintf(sql, sizeof sql, "SELECT 1 FROM %s LIMIT 1", table->name);
	enum status status = db_prepare(all->to, sql, &row, error);
	const enum db_code code = status ? DB_DONE : db_step(row);
	if (code == DB_FAILED)
		status = db_fault(all->to, error);
	if (code == DB_ROW) {
		status = error_set(error, STATUS_CONFLICT, "%s is not empty: it has rows in %s", all->to->name,
				   table->name);
		error_hint(error, "name a database or a directory that no server has used");
	}
	db_finalize(row);
	return status;
}

// ---- tables ----

static void write_select(char sql[SQL_BYTES], const struct store_table *table)
{
	snprintf(sql, SQL_BYTES, "SELECT %s FROM %s%s%s", table->columns, table->name, table->order ? " ORDER BY " : "",
		 table->order ? table->order : "");
}

static void write_insert(char sql[SQL_BYTES], const struct store_table *table)
{
	int length = snprintf(sql, SQL_BYTES, "INSERT INTO %s (%s) VALUES (", table->name, table->columns);
	for (int i = 1; i <= table->count; i++)
		length += snprintf(sql + length, SQL_BYTES - (size_t)length, "%s?%d", i > 1 ? ", " : "", i);
	snprintf(sql + length, SQL_BYTES - (size_t)length, ")");
}

static enum status copy_rows(struct copying *all, const struct store_table *table, int64_t *rows, struct error *error)
{
	char sql[SQL_BYTES];
	struct db_statement *read = NULL, *write = NULL;
	enum db_code code = DB_DONE;
	write_select(sql, table);
	enum status status = db_prepare(all->from, sql, &read, error);
	db_expect_many(read);
	write_insert(sql, table);
	if (!status)
		status = db_prepare(all->to, sql, &write, error);
	while (!status && (code = db_step(read)) == DB_ROW) {
		for (int i = 0; i < table->count; i++) {
			const struct db_value value = db_value(read, i);
			db_bind(write, i + 1, &value);
		}
		status = db_execute(write, error);
		*rows += !status;
	}
	if (!status && code == DB_FAILED)
		status = db_fault(all->from, error);
	db_finalize(read);
	db_finalize(write);
	return status;
}

// Tokens refer to each other, and devices to nodes: that is looked at when all are there.
static enum status copy_state(struct copying *all, struct error *error)
{
	enum status status = db_begin(all->from, DB_READ, error);
	for (size_t i = 0; i < STORE_TABLES && !status; i++)
		status = is_empty(all, &store_tables[i], error);
	if (!status)
		status = db_begin(all->to, DB_WRITE, error);
	if (!status)
		status = db_defer_keys(all->to, error);
	for (size_t i = 0; i < STORE_TABLES && !status; i++)
		status = copy_rows(all, &store_tables[i], &all->copied->rows, error);
	if (!status)
		status = db_commit(all->to, error);
	db_rollback(all->to);
	return status;
}

// ---- history ----

// A series gets a number of its own at the target; its minutes follow.
static enum status copy_series(struct copying *all, const struct store_series *kind, int64_t number, const char *name,
			       struct error *error)
{
	char sql[SQL_BYTES];
	struct db_statement *put = NULL, *read = NULL, *write = NULL;
	int64_t given = 0;
	enum db_code code = DB_DONE;
	snprintf(sql, sizeof sql, "INSERT INTO %s (%s) VALUES (?1) RETURNING %s", kind->names, kind->id, kind->number);
	enum status status = db_prepare(all->to, sql, &put, error);
	if (!status) {
		db_bind_text(put, 1, name);
		status = db_step(put) == DB_ROW ? STATUS_OK : db_fault(all->to, error);
		given = status ? 0 : db_integer(put, 0);
	}
	db_finalize(put);
	snprintf(sql, sizeof sql, "SELECT %s FROM %s WHERE %s = ?1 ORDER BY minute", kind->minutes.columns,
		 kind->minutes.name, kind->number);
	if (!status)
		status = db_prepare(all->from, sql, &read, error);
	db_bind_integer(read, 1, number);
	db_expect_many(read);
	write_insert(sql, &kind->minutes);
	if (!status)
		status = db_prepare(all->to, sql, &write, error);
	while (!status && (code = db_step(read)) == DB_ROW) {
		db_bind_integer(write, 1, given);
		for (int i = 1; i < kind->minutes.count; i++) {
			const struct db_value value = db_value(read, i);
			db_bind(write, i + 1, &value);
		}
		status = db_execute(write, error);
		all->copied->minutes += !status;
	}
	if (!status && code == DB_FAILED)
		status = db_fault(all->from, error);
	db_finalize(read);
	db_finalize(write);
	return status;
}

static enum status copy_kind(struct copying *all, const struct store_series *kind, struct error *error)
{
	char sql[256];
	struct db_statement *names = NULL;
	enum db_code code = DB_DONE;
	snprintf(sql, sizeof sql, "SELECT %s, %s FROM %s ORDER BY %s", kind->number, kind->id, kind->names,
		 kind->number);
	enum status status = db_prepare(all->from, sql, &names, error);
	while (!status && (code = db_step(names)) == DB_ROW)
		status = copy_series(all, kind, db_integer(names, 0), db_text(names, 1), error);
	if (!status && code == DB_FAILED)
		status = db_fault(all->from, error);
	db_finalize(names);
	return status;
}

static enum status copy_history(struct copying *all, struct error *error)
{
	enum status status = db_begin(all->from, DB_READ, error);
	if (!status)
		status = db_begin(all->to, DB_WRITE, error);
	for (size_t i = 0; i < STORE_KINDS && !status; i++)
		status = copy_kind(all, &store_series[i], error);
	if (!status)
		status = db_commit(all->to, error);
	db_rollback(all->to);
	return status;
}

// ---- the audit log ----

static enum status read_head(struct db *db, char head[2048], struct error *error)
{
	struct db_statement *row = NULL;
	enum status status = db_prepare(db, "SELECT note FROM audit_checkpoints ORDER BY size DESC LIMIT 1", &row,
					error);
	const enum db_code code = status ? DB_DONE : db_step(row);
	if (code == DB_FAILED)
		status = db_fault(db, error);
	snprintf(head, 2048, "%s", code == DB_ROW && db_text(row, 0) ? db_text(row, 0) : "");
	db_finalize(row);
	return status;
}

static enum status verify(struct copying *all, struct db *db, struct error *error)
{
	char archives[PATH_BYTES], head[2048];
	struct journal_verifier *verifier = NULL;
	snprintf(archives, sizeof archives, "%.4100s/" JOURNAL_FOLDER, all->params->data);
	enum status status = journal_verifier_create(&verifier, NULL, NULL);
	if (status)
		return error_set(error, status, "no memory to verify with");
	const struct ledger ledger = {.db = db, .directory = archives, .verifier = verifier};
	status = ledger_feed(&ledger, error);
	const struct journal_report *report = status ? NULL : journal_verify_end(verifier);
	if (report && journal_verdict_of(report) != JOURNAL_HOLDS) {
		status = error_set(error, STATUS_CONFLICT, "the audit log does not verify in %s: %.160s", db->name,
				   report->finding_count ? report->findings[0].text
							 : "its verdict is not that it holds");
		error_hint(error, "see exogpu audit verify; its archives are looked for in %.200s", archives);
	}
	if (report)
		all->copied->entries = report->entries;
	journal_verifier_destroy(&verifier);
	if (!status)
		status = read_head(db, head, error);
	if (!status && strcmp(head, all->head) != 0)
		status = error_set(error, STATUS_CONFLICT, "%s has another signed head than the source", db->name);
	return status;
}

// ---- both ----

// A copy that does not verify is removed again.
static void empty_target(struct copying *all)
{
	char sql[96];
	struct error ignored = {.status = STATUS_OK};
	if (db_begin(all->to, DB_WRITE, &ignored) || db_defer_keys(all->to, &ignored))
		return;
	enum status status = STATUS_OK;
	for (size_t i = 0; i < STORE_TABLES && !status; i++) {
		snprintf(sql, sizeof sql, "DELETE FROM %s", store_tables[i].name);
		status = db_run(all->to, sql, &ignored);
	}
	if (!status)
		db_commit(all->to, &ignored);
	db_rollback(all->to);
}

static enum status open_both(struct copying *all, enum db_part part, struct error *error)
{
	const struct db_params from = place(all->params->from, part, true), to = place(all->params->to, part, false);
	enum status status = db_open(&all->from, &from, error);
	if (!status)
		status = db_check_current(all->from, error);
	if (!status)
		status = db_open(&all->to, &to, error);
	return status;
}

static void close_both(struct copying *all)
{
	if (all->from)
		db_rollback(all->from);
	db_close(&all->from);
	db_close(&all->to);
}

static enum status move_state(struct copying *all, struct error *error)
{
	enum status status = open_both(all, DB_STATE, error);
	if (!status)
		status = read_head(all->from, all->head, error);
	if (!status)
		status = verify(all, all->from, error);
	if (!status)
		status = copy_state(all, error);
	if (!status) {
		status = verify(all, all->to, error);
		if (status)
			empty_target(all);
	}
	close_both(all);
	return status;
}

static enum status move_history(struct copying *all, struct error *error)
{
	enum status status = open_both(all, DB_HISTORY, error);
	if (!status)
		status = copy_history(all, error);
	close_both(all);
	return status;
}

// A directory that has had a server's tables is never written over.
static enum status check_target(const struct store_copy_params *params, struct error *error)
{
	static const char *const files[] = {"state.db", "history.db"};
	if (db_is_url(params->to))
		return STATUS_OK;
	for (size_t i = 0; i < 2; i++) {
		char path[PATH_BYTES];
		snprintf(path, sizeof path, "%.4100s/%s", params->to, files[i]);
		if (!access(path, F_OK)) {
			error_set(error, STATUS_CONFLICT, "%.300s is there already", path);
			error_hint(error, "name an empty directory, or move that file away");
			return STATUS_CONFLICT;
		}
	}
	if (mkdir(params->to, 0700) && errno != EEXIST)
		return error_errno(error, STATUS_FORBIDDEN, errno, "cannot make %.300s", params->to);
	return STATUS_OK;
}

enum status store_copy(const struct store_copy_params *params, struct store_copied *copied, struct error *error)
{
	struct copying all = {.params = params, .copied = copied};
	*copied = (struct store_copied){.rows = 0};
	if (db_is_url(params->from) == db_is_url(params->to)) {
		error_set(error, STATUS_INVALID_PARAMS, "a store is copied between a data directory and a PostgreSQL");
		error_hint(error, "one of --from and --to is a directory, the other one postgres://…");
		return STATUS_INVALID_PARAMS;
	}
	enum status status = check_target(params, error);
	if (!status)
		status = move_state(&all, error);
	if (!status)
		status = move_history(&all, error);
	if (!status && !db_is_url(params->to)) // the files are the store from now on
		status = place_write(params->to, NULL, error);
	return status;
}
