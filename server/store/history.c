/* See history.h. */
#include "server/store/history.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/store/database.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MINUTE_MS = 60000,
	PRUNE_DEVICES = 16, // of one slice
	PRUNE_ROWS = 500,   // of one device in one slice
};

const char *const store_column_names[STORE_COLUMNS] = {
	"utilization_percent", "memory_used_bytes",          "memory_total_bytes",  "power_watts",
	"temperature_celsius", "memory_temperature_celsius", "clock_mhz",           "memory_clock_mhz",
	"fan_percent",         "pcie_rx_bytes_per_s",        "pcie_tx_bytes_per_s", "availability_score",
};
// A value is stored as round(value / unit).
static const double column_units[STORE_COLUMNS] = {0.1, 1024, 1024, 0.1, 0.1, 0.1, 1, 1, 0.1, 1000, 1000, 0.0001};

// The order of columns is that of store_column_names.
static const char add_sql[] =
	"INSERT INTO minutes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) "
	"ON CONFLICT DO UPDATE SET utilization = excluded.utilization, "
	"memory_used = excluded.memory_used, memory_total = excluded.memory_total, "
	"power = excluded.power, temperature = excluded.temperature, "
	"memory_temperature = excluded.memory_temperature, clock = excluded.clock, "
	"memory_clock = excluded.memory_clock, fan = excluded.fan, pcie_rx = excluded.pcie_rx, "
	"pcie_tx = excluded.pcie_tx, availability = excluded.availability";
static const char find_sql[] = "SELECT device FROM devices WHERE device_id = ?1";
static const char name_sql[] = "INSERT INTO devices (device_id) VALUES (?1)";
static const char next_sql[] = "SELECT device FROM devices WHERE device > ?1 ORDER BY device LIMIT 1";
static const char prune_sql[] = "DELETE FROM minutes WHERE device = ?1 AND minute IN (SELECT minute FROM minutes "
				"WHERE device = ?1 AND minute < ?2 ORDER BY minute LIMIT ?3)";
static const char forget_sql[] = "DELETE FROM devices WHERE device = ?1 AND NOT EXISTS "
				 "(SELECT 1 FROM minutes WHERE minutes.device = ?1)";
static const char read_sql[] = "SELECT minute, utilization, memory_used, memory_total, power, temperature, "
			       "memory_temperature, clock, memory_clock, fan, pcie_rx, pcie_tx, availability "
			       "FROM minutes WHERE device = ?1 AND minute >= ?2 AND minute < ?3 ORDER BY minute";
static const char following_sql[] = "SELECT device FROM minutes WHERE device > ?1 ORDER BY device LIMIT 1";
static const char walk_sql[] = "SELECT minute FROM minutes WHERE device = ?1 ORDER BY minute";

static int note_wal_pages(void *context, sqlite3 *db, const char *name, int pages)
{
	(void)db, (void)name;
	*(int *)context = pages;
	return SQLITE_OK;
}

static void close_writer(struct history_writer *writer)
{
	sqlite3_stmt **const statements[] = {&writer->find, &writer->name,  &writer->add,
					     &writer->next, &writer->prune, &writer->forget};
	for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
		sqlite3_finalize(*statements[i]);
		*statements[i] = NULL;
	}
	database_close(&writer->db);
}

// *unusable: it fails because of what the file holds, not because of the disk or the rights.
static enum status open_writer(struct history_writer *writer, bool *unusable, struct error *error)
{
	struct database_migration migrations[64];
	size_t count = database_migrations("migrations/history/", migrations, 64);
	*unusable = false;
	const struct database_params params = {.path = writer->path, .damaged = unusable};
	enum status status = database_open(&writer->db, &params, error);
	if (!status)
		status = database_migrate(writer->db, migrations, count, false, error);
	if (!status)
		status = database_prepare(writer->db, find_sql, &writer->find, error);
	if (!status)
		status = database_prepare(writer->db, name_sql, &writer->name, error);
	if (!status)
		status = database_prepare(writer->db, add_sql, &writer->add, error);
	if (!status)
		status = database_prepare(writer->db, next_sql, &writer->next, error);
	if (!status)
		status = database_prepare(writer->db, prune_sql, &writer->prune, error);
	if (!status)
		status = database_prepare(writer->db, forget_sql, &writer->forget, error);
	if (status && writer->db) // a newer version's, without the tables that it should have, or damaged
		*unusable = status == STATUS_CONFLICT || status == STATUS_INTERNAL ||
			    database_damaged(sqlite3_errcode(writer->db));
	if (status)
		close_writer(writer);
	else
		sqlite3_wal_hook(writer->db, note_wal_pages, &writer->wal_pages);
	return status;
}

enum status history_writer_init(struct history_writer *writer, const char *directory, struct error *error)
{
	*writer = (struct history_writer){.db = NULL};
	int length = snprintf(writer->path, sizeof writer->path, "%s/history.db", directory);
	if (length < 0 || (size_t)length >= sizeof writer->path - 32)
		return error_set(error, STATUS_INVALID_PARAMS, "the data directory's path is too long");
	struct error first = {.status = STATUS_OK};
	bool unusable;
	enum status status = open_writer(writer, &unusable, &first);
	if (unusable)
		status = history_writer_replace(writer, first.message, error);
	else if (status && error && !error->message[0])
		*error = first;
	return status;
}

void history_writer_finish(struct history_writer *writer)
{
	close_writer(writer);
}

enum status history_writer_replace(struct history_writer *writer, const char *why, struct error *error)
{
	static const char *const suffixes[] = {"", "-wal", "-shm"};
	if (writer->db)
		sqlite3_db_config(writer->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	close_writer(writer);
	long long now = (long long)clock_wall_ms();
	char from[sizeof writer->path + 8], to[sizeof writer->path + 64];
	for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
		snprintf(from, sizeof from, "%s%s", writer->path, suffixes[i]);
		snprintf(to, sizeof to, "%s.damaged-%lld%s", writer->path, now, suffixes[i]);
		if (rename(from, to) && errno != ENOENT)
			return error_errno(error, STATUS_UNAVAILABLE, errno, "cannot rename %s", from);
	}
	log_warning("store",
		    "%s; the history of readings begins anew, the old file is %s.damaged-%lld and may be deleted", why,
		    writer->path, now);
	writer->wal_pages = 0;
	writer->pruned_to = 0;
	bool unusable;
	return open_writer(writer, &unusable, error);
}

static enum status fault(sqlite3 *db, int code, bool *damaged, struct error *error)
{
	*damaged = *damaged || database_damaged(code);
	return database_fault(db, code, error);
}

// Begin and end of a transaction around `code`, the result of what stood in it.
static enum status end_transaction(struct history_writer *writer, int code, bool *damaged, struct error *error)
{
	enum status status = STATUS_OK;
	if (code == SQLITE_OK)
		code = sqlite3_exec(writer->db, "COMMIT", NULL, NULL, NULL);
	if (code != SQLITE_OK)
		status = fault(writer->db, code, damaged, error);
	if (code != SQLITE_OK && !sqlite3_get_autocommit(writer->db))
		sqlite3_exec(writer->db, "ROLLBACK", NULL, NULL, NULL);
	return status;
}

// One step of a statement that gives no row, or one integer. SQLITE_OK, with *value left alone if there was no row.
static int step_once(sqlite3_stmt *statement, int64_t *value)
{
	int code = sqlite3_step(statement);
	if (code == SQLITE_ROW && value)
		*value = sqlite3_column_int64(statement, 0);
	int reset = sqlite3_reset(statement);
	return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : reset != SQLITE_OK ? reset : code;
}

// The device's number, given out at its first minute.
static int find_device(struct history_writer *writer, const char *device_id, int64_t *device)
{
	*device = 0;
	sqlite3_bind_text(writer->find, 1, device_id, -1, SQLITE_STATIC);
	int code = step_once(writer->find, device);
	if (code != SQLITE_OK || *device)
		return code;
	sqlite3_bind_text(writer->name, 1, device_id, -1, SQLITE_STATIC);
	code = step_once(writer->name, NULL);
	*device = sqlite3_last_insert_rowid(writer->db);
	return code;
}

static int add_minute(struct history_writer *writer, const struct store_minute *minute)
{
	int64_t device;
	int code = find_device(writer, minute->device_id, &device);
	if (code != SQLITE_OK)
		return code;
	sqlite3_bind_int64(writer->add, 1, device);
	sqlite3_bind_int64(writer->add, 2, minute->minute_ms / MINUTE_MS);
	for (int i = 0; i < STORE_COLUMNS; i++) {
		double units = minute->values[i] / column_units[i];
		if (isfinite(units) && fabs(units) < 9e15)
			sqlite3_bind_int64(writer->add, i + 3, llround(units));
		else
			sqlite3_bind_null(writer->add, i + 3);
	}
	return step_once(writer->add, NULL);
}

enum status history_add(struct history_writer *writer, const struct store_minute *minutes, size_t count, bool *damaged,
			struct error *error)
{
	int code = sqlite3_exec(writer->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	for (size_t i = 0; i < count && code == SQLITE_OK; i++)
		code = add_minute(writer, &minutes[i]);
	return end_transaction(writer, code, damaged, error);
}

enum status history_prune(struct history_writer *writer, int64_t oldest_minute, bool *damaged, struct error *error)
{
	int code = sqlite3_exec(writer->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	for (int i = 0; i < PRUNE_DEVICES && code == SQLITE_OK; i++) {
		int64_t device = 0;
		sqlite3_bind_int64(writer->next, 1, writer->pruned_to);
		code = step_once(writer->next, &device);
		writer->pruned_to = device; // 0 past the last: the next slice begins again
		if (code != SQLITE_OK || !device)
			break;
		sqlite3_bind_int64(writer->prune, 1, device);
		sqlite3_bind_int64(writer->prune, 2, oldest_minute);
		sqlite3_bind_int(writer->prune, 3, PRUNE_ROWS);
		code = step_once(writer->prune, NULL);
		sqlite3_bind_int64(writer->forget, 1, device);
		if (code == SQLITE_OK)
			code = step_once(writer->forget, NULL);
	}
	return end_transaction(writer, code, damaged, error);
}

enum status history_reader_init(struct history_reader *reader, const char *directory, struct error *error)
{
	char path[PATH_MAX];
	*reader = (struct history_reader){.db = NULL};
	int length = snprintf(path, sizeof path, "%s/history.db", directory);
	if (length < 0 || (size_t)length >= sizeof path)
		return error_set(error, STATUS_INVALID_PARAMS, "the data directory's path is too long");
	const struct database_params params = {.path = path, .read_only = true};
	enum status status = database_open(&reader->db, &params, error);
	if (!status)
		status = database_prepare(reader->db, find_sql, &reader->find, error);
	if (!status)
		status = database_prepare(reader->db, read_sql, &reader->read, error);
	if (!status)
		status = database_prepare(reader->db, following_sql, &reader->next, error);
	if (!status)
		status = database_prepare(reader->db, walk_sql, &reader->walk, error);
	if (status)
		history_reader_finish(reader);
	return status;
}

void history_reader_finish(struct history_reader *reader)
{
	sqlite3_finalize(reader->find);
	sqlite3_finalize(reader->read);
	sqlite3_finalize(reader->next);
	sqlite3_finalize(reader->walk);
	reader->find = reader->read = reader->next = reader->walk = NULL;
	database_close(&reader->db);
}

// Sums of the step that is being read.
struct step {
	int64_t at_ms;
	double sums[STORE_COLUMNS]; // of units: whole numbers, so exact to 2^53
	unsigned counts[STORE_COLUMNS];
	bool any;
};

static void end_step(struct step *step, struct store_history *history, size_t capacity)
{
	if (!step->any || history->rows >= capacity)
		return;
	history->at_ms[history->rows] = step->at_ms;
	for (int i = 0; i < STORE_COLUMNS; i++)
		history->values[history->rows][i] = step->counts[i] ? step->sums[i] / step->counts[i] * column_units[i]
								    : (double)NAN;
	history->rows++;
}

static int read_steps(sqlite3_stmt *rows, struct store_history *history, size_t capacity)
{
	struct step step = {.any = false};
	int code;
	while ((code = sqlite3_step(rows)) == SQLITE_ROW) {
		int64_t at_ms = sqlite3_column_int64(rows, 0) * MINUTE_MS;
		at_ms -= at_ms % history->step_ms;
		if (!step.any || at_ms != step.at_ms) {
			end_step(&step, history, capacity);
			step = (struct step){.at_ms = at_ms, .any = true};
		}
		for (int i = 0; i < STORE_COLUMNS; i++) {
			int64_t units = sqlite3_column_int64(rows, i + 1); // 0 also where there is none
			if (units || sqlite3_column_type(rows, i + 1) == SQLITE_INTEGER) {
				step.sums[i] += (double)units;
				step.counts[i]++;
			}
		}
	}
	end_step(&step, history, capacity);
	return code;
}

enum status history_read(struct history_reader *reader, const struct history_query *query,
			 struct store_history *history, bool *damaged, struct error *error)
{
	enum status status = STATUS_OK;
	size_t capacity = (size_t)((query->to_ms - query->from_ms) / query->step_ms) + 2; // both ends may be cut
	*history = (struct store_history){.step_ms = query->step_ms};
	history->at_ms = calloc(capacity, sizeof *history->at_ms);
	history->values = calloc(capacity, sizeof *history->values);
	if (!history->at_ms || !history->values) {
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a history of %zu rows", capacity);
		goto done;
	}
	int64_t device = 0;
	sqlite3_bind_text(reader->find, 1, query->device_id, -1, SQLITE_STATIC);
	int code = step_once(reader->find, &device);
	if (code == SQLITE_OK && device) {
		sqlite3_bind_int64(reader->read, 1, device);
		sqlite3_bind_int64(reader->read, 2, query->from_ms / MINUTE_MS);
		sqlite3_bind_int64(reader->read, 3, (query->to_ms + MINUTE_MS - 1) / MINUTE_MS);
		code = read_steps(reader->read, history, capacity);
		sqlite3_reset(reader->read);
		code = code == SQLITE_DONE ? SQLITE_OK : code;
	}
	if (code != SQLITE_OK)
		status = fault(reader->db, code, damaged, error);
done:
	if (status)
		history_finish(history);
	return status;
}

enum status history_check(struct history_reader *reader, bool *done, bool *damaged, struct error *error)
{
	int64_t device = 0, last = INT64_MIN;
	sqlite3_bind_int64(reader->next, 1, reader->checked_to);
	int code = step_once(reader->next, &device);
	*done = code != SQLITE_OK || !device;
	if (code == SQLITE_OK && device) {
		sqlite3_bind_int64(reader->walk, 1, device);
		while ((code = sqlite3_step(reader->walk)) == SQLITE_ROW) {
			int64_t minute = sqlite3_column_int64(reader->walk, 0);
			if (minute <= last) { // rows that are out of order are not found again
				code = SQLITE_CORRUPT;
				break;
			}
			last = minute;
		}
		sqlite3_reset(reader->walk);
		code = code == SQLITE_DONE ? SQLITE_OK : code;
		reader->checked_to = device;
	}
	return code == SQLITE_OK ? STATUS_OK : fault(reader->db, code, damaged, error);
}

void history_finish(struct store_history *history)
{
	free(history->at_ms);
	free(history->values);
	*history = (struct store_history){.rows = 0};
}
