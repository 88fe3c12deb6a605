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
	PRUNE_SERIES = 16, // of one slice
	PRUNE_ROWS = 500,  // of one series in one slice
};

const char *const store_column_names[STORE_COLUMNS] = {
	"utilization_percent",
	"memory_used_bytes",
	"memory_total_bytes",
	"power_watts",
	"temperature_celsius",
	"memory_temperature_celsius",
	"clock_mhz",
	"memory_clock_mhz",
	"fan_percent",
	"pcie_rx_bytes_per_s",
	"pcie_tx_bytes_per_s",
	"availability_score",
	"utilization_percent_min",
	"memory_used_bytes_min",
	"power_watts_min",
	"temperature_celsius_min",
	"memory_temperature_celsius_min",
	"clock_mhz_min",
	"utilization_percent_max",
	"memory_used_bytes_max",
	"power_watts_max",
	"temperature_celsius_max",
	"memory_temperature_celsius_max",
	"clock_mhz_max",
};
const int store_extremes[STORE_EXTREMES] = {0, 1, 3, 4, 5, 6};
const char *const store_link_names[STORE_LINK_COLUMNS] = {"rtt_ms", "jitter_ms", "loss_percent",
							  "throughput_bytes_per_s", "sent_bytes_per_s"};

// What is kept of a kind of series: in `names` each has a number, under which its minutes stand in `rows`.
struct kind {
	int columns;
	double units[STORE_COLUMNS]; // a value is stored as round(value / unit)
	const char *writes[HISTORY_WRITES], *reads[HISTORY_READS];
};

#define FIND_SQL(names, number, id) "SELECT " number " FROM " names " WHERE " id " = ?1"
#define WRITES_SQL(names, rows, number, id) \
	[HISTORY_FIND] = FIND_SQL(names, number, id), [HISTORY_NAME] = "INSERT INTO " names " (" id ") VALUES (?1)", \
	[HISTORY_NEXT] = "SELECT " number " FROM " names " WHERE " number " > ?1 ORDER BY " number " LIMIT 1", \
	[HISTORY_PRUNE] = "DELETE FROM " rows " WHERE " number " = ?1 AND minute IN (SELECT minute FROM " rows \
			  " WHERE " number " = ?1 AND minute < ?2 ORDER BY minute LIMIT ?3)", \
	[HISTORY_FORGET] = "DELETE FROM " names " WHERE " number " = ?1 AND NOT EXISTS (SELECT 1 FROM " rows \
			   " WHERE " rows "." number " = ?1)"
#define READS_SQL(names, rows, number, id, columns) \
	[HISTORY_LOOK_UP] = FIND_SQL(names, number, id), \
	[HISTORY_READ] = "SELECT minute, " columns " FROM " rows " WHERE " number \
			 " = ?1 AND minute >= ?2 AND minute < ?3 ORDER BY minute", \
	[HISTORY_FOLLOWING] = "SELECT " number " FROM " rows " WHERE " number " > ?1 ORDER BY " number " LIMIT 1", \
	[HISTORY_WALK] = "SELECT minute FROM " rows " WHERE " number " = ?1 ORDER BY minute"

// The order of columns is that of store_column_names and store_link_names.
static const struct kind kinds[STORE_KINDS] = {
	[STORE_OF_DEVICE] = {.columns = STORE_COLUMNS,
			     .units = {0.1, 1024, 1024, 0.1, 0.1, 0.1, 1,   1,    0.1, 1000, 1000, 0.0001,
				       0.1, 1024, 0.1,  0.1, 0.1, 1,   0.1, 1024, 0.1, 0.1,  0.1,  1},
			     .writes = {WRITES_SQL("devices", "minutes", "device", "device_id"),
					[HISTORY_ADD] = "INSERT OR REPLACE INTO minutes VALUES (?1, ?2, ?3, ?4, ?5, "
							"?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, "
							"?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)"},
			     .reads = {READS_SQL("devices", "minutes", "device", "device_id",
						 "utilization, memory_used, memory_total, power, temperature, "
						 "memory_temperature, clock, memory_clock, fan, pcie_rx, pcie_tx, "
						 "availability, utilization_min, memory_used_min, power_min, "
						 "temperature_min, memory_temperature_min, clock_min, "
						 "utilization_max, memory_used_max, power_max, temperature_max, "
						 "memory_temperature_max, clock_max")}},
	[STORE_OF_LINK] = {.columns = STORE_LINK_COLUMNS,
			   .units = {0.001, 0.001, 0.01, 1000, 1000},
			   .writes = {WRITES_SQL("links", "link_minutes", "link", "series"),
				      [HISTORY_ADD] = "INSERT OR REPLACE INTO link_minutes VALUES (?1, ?2, ?3, ?4, ?5, "
						      "?6, ?7)"},
			   .reads = {READS_SQL("links", "link_minutes", "link", "series",
					       "rtt, jitter, loss, throughput, sent")}},
};

static int note_wal_pages(void *context, sqlite3 *db, const char *name, int pages)
{
	(void)db, (void)name;
	*(int *)context = pages;
	return SQLITE_OK;
}

static void finalize(sqlite3_stmt **statements, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		sqlite3_finalize(statements[i]);
		statements[i] = NULL;
	}
}

static void close_writer(struct history_writer *writer)
{
	for (int kind = 0; kind < STORE_KINDS; kind++)
		finalize(writer->statements[kind], HISTORY_WRITES);
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
	for (int kind = 0; kind < STORE_KINDS; kind++)
		for (int i = 0; i < HISTORY_WRITES && !status; i++)
			status = database_prepare(writer->db, kinds[kind].writes[i], &writer->statements[kind][i],
						  error);
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
	writer->prune_kind = STORE_OF_DEVICE;
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

// Steps a statement with one integer or no row. Returns SQLITE_OK; without a row *value is unchanged.
static int step_once(sqlite3_stmt *statement, int64_t *value)
{
	int code = sqlite3_step(statement);
	if (code == SQLITE_ROW && value)
		*value = sqlite3_column_int64(statement, 0);
	int reset = sqlite3_reset(statement);
	return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : reset != SQLITE_OK ? reset : code;
}

// The series' number, given out at its first minute.
static int find_series(struct history_writer *writer, const struct store_minute *minute, int64_t *number)
{
	sqlite3_stmt **statements = writer->statements[minute->kind];
	*number = 0;
	sqlite3_bind_text(statements[HISTORY_FIND], 1, minute->series, -1, SQLITE_STATIC);
	int code = step_once(statements[HISTORY_FIND], number);
	if (code != SQLITE_OK || *number)
		return code;
	sqlite3_bind_text(statements[HISTORY_NAME], 1, minute->series, -1, SQLITE_STATIC);
	code = step_once(statements[HISTORY_NAME], NULL);
	*number = sqlite3_last_insert_rowid(writer->db);
	return code;
}

static int add_minute(struct history_writer *writer, const struct store_minute *minute)
{
	int64_t number;
	const struct kind *kind = &kinds[minute->kind];
	sqlite3_stmt *add = writer->statements[minute->kind][HISTORY_ADD];
	int code = find_series(writer, minute, &number);
	if (code != SQLITE_OK)
		return code;
	sqlite3_bind_int64(add, 1, number);
	sqlite3_bind_int64(add, 2, minute->minute_ms / MINUTE_MS);
	for (int i = 0; i < kind->columns; i++) {
		double units = minute->values[i] / kind->units[i];
		if (isfinite(units) && fabs(units) < 9e15)
			sqlite3_bind_int64(add, i + 3, llround(units));
		else
			sqlite3_bind_null(add, i + 3);
	}
	return step_once(add, NULL);
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
	sqlite3_stmt **statements = writer->statements[writer->prune_kind];
	for (int i = 0; i < PRUNE_SERIES && code == SQLITE_OK; i++) {
		int64_t number = 0;
		sqlite3_bind_int64(statements[HISTORY_NEXT], 1, writer->pruned_to);
		code = step_once(statements[HISTORY_NEXT], &number);
		writer->pruned_to = number; // 0 past the last: the next slice begins the other kind
		if (code == SQLITE_OK && !number)
			writer->prune_kind = (writer->prune_kind + 1) % STORE_KINDS;
		if (code != SQLITE_OK || !number)
			break;
		sqlite3_bind_int64(statements[HISTORY_PRUNE], 1, number);
		sqlite3_bind_int64(statements[HISTORY_PRUNE], 2, oldest_minute);
		sqlite3_bind_int(statements[HISTORY_PRUNE], 3, PRUNE_ROWS);
		code = step_once(statements[HISTORY_PRUNE], NULL);
		sqlite3_bind_int64(statements[HISTORY_FORGET], 1, number);
		if (code == SQLITE_OK)
			code = step_once(statements[HISTORY_FORGET], NULL);
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
	for (int kind = 0; kind < STORE_KINDS; kind++)
		for (int i = 0; i < HISTORY_READS && !status; i++)
			status = database_prepare(reader->db, kinds[kind].reads[i], &reader->statements[kind][i],
						  error);
	if (status)
		history_reader_finish(reader);
	return status;
}

void history_reader_finish(struct history_reader *reader)
{
	for (int kind = 0; kind < STORE_KINDS; kind++)
		finalize(reader->statements[kind], HISTORY_READS);
	database_close(&reader->db);
}

// Sums of the step that is being read.
struct step {
	int64_t at_ms;
	double sums[STORE_COLUMNS]; // of units: whole numbers, so exact to 2^53; of extremes the extreme
	unsigned counts[STORE_COLUMNS];
	bool any;
};

static void add_value(struct step *step, int column, double units)
{
	const bool least = column < STORE_READINGS + STORE_EXTREMES;
	double *sum = &step->sums[column];
	if (column < STORE_READINGS)
		*sum += units;
	else if (!step->counts[column] || (least ? units < *sum : units > *sum))
		*sum = units;
	step->counts[column]++;
}

// The value of a column, in units.
static double step_value(const struct step *step, int column)
{
	const unsigned count = step->counts[column];
	if (column < STORE_READINGS)
		return count ? step->sums[column] / count : (double)NAN;
	// Without that of each minute that has a reading, the extreme of the step is not known.
	const int reading = store_extremes[(column - STORE_READINGS) % STORE_EXTREMES];
	return count && count == step->counts[reading] ? step->sums[column] : (double)NAN;
}

static void end_step(const struct kind *kind, struct step *step, struct store_history *history, size_t capacity)
{
	if (!step->any || history->rows >= capacity)
		return;
	history->at_ms[history->rows] = step->at_ms;
	for (int i = 0; i < STORE_COLUMNS; i++)
		history->values[history->rows][i] = step_value(step, i) * kind->units[i];
	history->rows++;
}

static int read_steps(const struct kind *kind, sqlite3_stmt *rows, struct store_history *history, size_t capacity)
{
	struct step step = {.any = false};
	int code;
	while ((code = sqlite3_step(rows)) == SQLITE_ROW) {
		int64_t at_ms = sqlite3_column_int64(rows, 0) * MINUTE_MS;
		at_ms -= at_ms % history->step_ms;
		if (!step.any || at_ms != step.at_ms) {
			end_step(kind, &step, history, capacity);
			step = (struct step){.at_ms = at_ms, .any = true};
		}
		for (int i = 0; i < kind->columns; i++) {
			int64_t units = sqlite3_column_int64(rows, i + 1); // 0 also where there is none
			if (units || sqlite3_column_type(rows, i + 1) == SQLITE_INTEGER)
				add_value(&step, i, (double)units);
		}
	}
	end_step(kind, &step, history, capacity);
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
	int64_t number = 0;
	sqlite3_stmt *look_up = reader->statements[query->kind][HISTORY_LOOK_UP];
	sqlite3_stmt *rows = reader->statements[query->kind][HISTORY_READ];
	sqlite3_bind_text(look_up, 1, query->series, -1, SQLITE_STATIC);
	int code = step_once(look_up, &number);
	if (code == SQLITE_OK && number) {
		sqlite3_bind_int64(rows, 1, number);
		sqlite3_bind_int64(rows, 2, query->from_ms / MINUTE_MS);
		sqlite3_bind_int64(rows, 3, (query->to_ms + MINUTE_MS - 1) / MINUTE_MS);
		code = read_steps(&kinds[query->kind], rows, history, capacity);
		sqlite3_reset(rows);
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
	int64_t number = 0, last = INT64_MIN;
	sqlite3_stmt *following = reader->statements[reader->check_kind][HISTORY_FOLLOWING];
	sqlite3_stmt *walk = reader->statements[reader->check_kind][HISTORY_WALK];
	sqlite3_bind_int64(following, 1, reader->checked_to);
	int code = step_once(following, &number);
	*done = code != SQLITE_OK || (!number && reader->check_kind + 1 == STORE_KINDS);
	if (code == SQLITE_OK && number) {
		sqlite3_bind_int64(walk, 1, number);
		while ((code = sqlite3_step(walk)) == SQLITE_ROW) {
			int64_t minute = sqlite3_column_int64(walk, 0);
			if (minute <= last) { // rows that are out of order are not found again
				code = SQLITE_CORRUPT;
				break;
			}
			last = minute;
		}
		sqlite3_reset(walk);
		code = code == SQLITE_DONE ? SQLITE_OK : code;
	} else if (!*done) {
		reader->check_kind++;
	}
	reader->checked_to = number; // 0 past the last: the other kind from its first
	return code == SQLITE_OK ? STATUS_OK : fault(reader->db, code, damaged, error);
}

void history_finish(struct store_history *history)
{
	free(history->at_ms);
	free(history->values);
	*history = (struct store_history){.rows = 0};
}
