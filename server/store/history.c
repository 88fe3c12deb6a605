/* See history.h. */
#include "server/store/history.h"

#include "common/base/clock.h"
#include "common/base/log.h"

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

// The tables of a kind of series: in `names` each series has a number, under which its minutes stand in `rows`.
struct kind {
	int columns;
	double units[STORE_COLUMNS]; // a value is stored as round(value / unit)
	const char *writes[HISTORY_WRITES], *reads[HISTORY_READS];
};

#define FIND_SQL(names, number, id) "SELECT " number " FROM " names " WHERE " id " = ?1"
#define WRITES_SQL(names, rows, number, id) \
	[HISTORY_FIND] = FIND_SQL(names, number, id), \
	[HISTORY_NAME] = "INSERT INTO " names " (" id ") VALUES (?1) RETURNING " number, \
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
	[STORE_OF_DEVICE] =
		{.columns = STORE_COLUMNS,
		 .units = {0.1, 1024, 1024, 0.1, 0.1, 0.1, 1,   1,    0.1, 1000, 1000, 0.0001,
			   0.1, 1024, 0.1,  0.1, 0.1, 1,   0.1, 1024, 0.1, 0.1,  0.1,  1},
		 .writes = {WRITES_SQL("devices", "minutes", "device", "device_id"),
			    [HISTORY_ADD] = "INSERT INTO minutes (device, minute, utilization, memory_used, "
					    "memory_total, power, temperature, memory_temperature, clock, "
					    "memory_clock, fan, pcie_rx, pcie_tx, availability, utilization_min, "
					    "memory_used_min, power_min, temperature_min, memory_temperature_min, "
					    "clock_min, utilization_max, memory_used_max, power_max, "
					    "temperature_max, memory_temperature_max, clock_max) VALUES (?1, ?2, "
					    "?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, "
					    "?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26) ON CONFLICT (device, "
					    "minute) DO UPDATE SET utilization = excluded.utilization, memory_used "
					    "= excluded.memory_used, memory_total = excluded.memory_total, power = "
					    "excluded.power, temperature = excluded.temperature, "
					    "memory_temperature = excluded.memory_temperature, clock = "
					    "excluded.clock, memory_clock = excluded.memory_clock, fan = "
					    "excluded.fan, pcie_rx = excluded.pcie_rx, pcie_tx = excluded.pcie_tx, "
					    "availability = excluded.availability, utilization_min = "
					    "excluded.utilization_min, memory_used_min = excluded.memory_used_min, "
					    "power_min = excluded.power_min, temperature_min = "
					    "excluded.temperature_min, memory_temperature_min = "
					    "excluded.memory_temperature_min, clock_min = excluded.clock_min, "
					    "utilization_max = excluded.utilization_max, memory_used_max = "
					    "excluded.memory_used_max, power_max = excluded.power_max, "
					    "temperature_max = excluded.temperature_max, memory_temperature_max = "
					    "excluded.memory_temperature_max, clock_max = excluded.clock_max"},
		 .reads = {READS_SQL("devices", "minutes", "device", "device_id",
				     "utilization, memory_used, memory_total, power, temperature, "
				     "memory_temperature, clock, memory_clock, fan, pcie_rx, pcie_tx, "
				     "availability, utilization_min, memory_used_min, power_min, "
				     "temperature_min, memory_temperature_min, clock_min, "
				     "utilization_max, memory_used_max, power_max, temperature_max, "
				     "memory_temperature_max, clock_max")}},
	[STORE_OF_LINK] =
		{.columns = STORE_LINK_COLUMNS,
		 .units = {0.001, 0.001, 0.01, 1000, 1000},
		 .writes = {WRITES_SQL("links", "link_minutes", "link", "series"),
			    [HISTORY_ADD] = "INSERT INTO link_minutes (link, minute, rtt, jitter, loss, throughput, "
					    "sent) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (link, minute) DO "
					    "UPDATE SET rtt = excluded.rtt, jitter = excluded.jitter, loss = "
					    "excluded.loss, throughput = excluded.throughput, sent = excluded.sent"},
		 .reads = {READS_SQL("links", "link_minutes", "link", "series",
				     "rtt, jitter, loss, throughput, sent")}},
};

static void finalize(struct db_statement **statements, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		db_finalize(statements[i]);
		statements[i] = NULL;
	}
}

static void close_writer(struct history_writer *writer)
{
	for (int kind = 0; kind < STORE_KINDS; kind++)
		finalize(writer->statements[kind], HISTORY_WRITES);
	db_close(&writer->db);
}

static struct db_params params_of(const struct history_writer *writer)
{
	return (struct db_params){
		.directory = writer->directory, .url = writer->url, .turn = writer->turn, .part = DB_HISTORY};
}

// *unusable: it fails because of what the database holds, not because of the disk or the rights.
static enum status open_writer(struct history_writer *writer, bool *unusable, struct error *error)
{
	struct db_params params = params_of(writer);
	*unusable = false;
	params.unusable = unusable;
	enum status status = db_open(&writer->db, &params, error);
	for (int kind = 0; kind < STORE_KINDS; kind++)
		for (int i = 0; i < HISTORY_WRITES && !status; i++)
			status = db_prepare(writer->db, kinds[kind].writes[i], &writer->statements[kind][i], error);
	if (status && writer->db) // without the tables that it should have, or damaged
		*unusable = status == STATUS_INTERNAL || db_damaged(writer->db);
	if (status)
		close_writer(writer);
	return status;
}

enum status history_writer_init(struct history_writer *writer, const char *directory, const char *url, int64_t turn,
				struct error *error)
{
	*writer = (struct history_writer){.url = url, .turn = turn};
	snprintf(writer->directory, sizeof writer->directory, "%s", directory);
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
	const struct db_params params = params_of(writer);
	bool unusable;
	for (int kind = 0; kind < STORE_KINDS; kind++)
		finalize(writer->statements[kind], HISTORY_WRITES);
	enum status status = db_set_aside(&writer->db, &params, why, error);
	writer->prune_kind = STORE_OF_DEVICE;
	writer->pruned_to = 0;
	return status ? status : open_writer(writer, &unusable, error);
}

// Ends a transaction; `status`: of what stood in it.
static enum status end_transaction(struct history_writer *writer, enum status status, bool *damaged,
				   struct error *error)
{
	if (!status)
		status = db_commit(writer->db, error);
	if (status) {
		*damaged = *damaged || db_damaged(writer->db);
		db_rollback(writer->db);
	}
	return status;
}

// Steps a statement with one integer or no row; without a row *value is unchanged.
static enum status step_once(struct db_statement *statement, int64_t *value, struct error *error)
{
	enum db_code code = db_step(statement);
	if (code == DB_ROW && value)
		*value = db_integer(statement, 0);
	enum status status = code == DB_FAILED ? db_fault(statement->db, error) : STATUS_OK;
	db_reset(statement);
	return status;
}

// The series' number, given out at its first minute.
static enum status find_series(struct history_writer *writer, const struct store_minute *minute, int64_t *number,
			       struct error *error)
{
	struct db_statement **statements = writer->statements[minute->kind];
	*number = 0;
	db_bind_text(statements[HISTORY_FIND], 1, minute->series);
	enum status status = step_once(statements[HISTORY_FIND], number, error);
	if (status || *number)
		return status;
	db_bind_text(statements[HISTORY_NAME], 1, minute->series);
	return step_once(statements[HISTORY_NAME], number, error);
}

static enum status add_minute(struct history_writer *writer, const struct store_minute *minute, struct error *error)
{
	int64_t number;
	const struct kind *kind = &kinds[minute->kind];
	struct db_statement *add = writer->statements[minute->kind][HISTORY_ADD];
	enum status status = find_series(writer, minute, &number, error);
	if (status)
		return status;
	db_bind_integer(add, 1, number);
	db_bind_integer(add, 2, minute->minute_ms / MINUTE_MS);
	for (int i = 0; i < kind->columns; i++) {
		double units = minute->values[i] / kind->units[i];
		if (isfinite(units) && fabs(units) < 9e15)
			db_bind_integer(add, i + 3, llround(units));
		else
			db_bind(add, i + 3, &(struct db_value){.type = DB_NULL});
	}
	return db_execute(add, error);
}

enum status history_add(struct history_writer *writer, const struct store_minute *minutes, size_t count, bool *damaged,
			struct error *error)
{
	enum status status = db_begin(writer->db, DB_WRITE, error);
	for (size_t i = 0; i < count && !status; i++)
		status = add_minute(writer, &minutes[i], error);
	return end_transaction(writer, status, damaged, error);
}

enum status history_prune(struct history_writer *writer, int64_t oldest_minute, bool *damaged, struct error *error)
{
	enum status status = db_begin(writer->db, DB_WRITE, error);
	struct db_statement **statements = writer->statements[writer->prune_kind];
	for (int i = 0; i < PRUNE_SERIES && !status; i++) {
		int64_t number = 0;
		db_bind_integer(statements[HISTORY_NEXT], 1, writer->pruned_to);
		status = step_once(statements[HISTORY_NEXT], &number, error);
		writer->pruned_to = number; // 0 past the last: the next slice begins the other kind
		if (!status && !number)
			writer->prune_kind = (writer->prune_kind + 1) % STORE_KINDS;
		if (status || !number)
			break;
		db_bind_integer(statements[HISTORY_PRUNE], 1, number);
		db_bind_integer(statements[HISTORY_PRUNE], 2, oldest_minute);
		db_bind_integer(statements[HISTORY_PRUNE], 3, PRUNE_ROWS);
		status = step_once(statements[HISTORY_PRUNE], NULL, error);
		db_bind_integer(statements[HISTORY_FORGET], 1, number);
		if (!status)
			status = step_once(statements[HISTORY_FORGET], NULL, error);
	}
	return end_transaction(writer, status, damaged, error);
}

enum status history_reader_init(struct history_reader *reader, const char *directory, const char *url,
				struct error *error)
{
	*reader = (struct history_reader){.db = NULL};
	const struct db_params params = {.directory = directory, .url = url, .part = DB_HISTORY, .read_only = true};
	enum status status = db_open(&reader->db, &params, error);
	for (int kind = 0; kind < STORE_KINDS; kind++)
		for (int i = 0; i < HISTORY_READS && !status; i++)
			status = db_prepare(reader->db, kinds[kind].reads[i], &reader->statements[kind][i], error);
	if (status)
		history_reader_finish(reader);
	return status;
}

void history_reader_finish(struct history_reader *reader)
{
	for (int kind = 0; kind < STORE_KINDS; kind++)
		finalize(reader->statements[kind], HISTORY_READS);
	db_close(&reader->db);
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

static enum db_code read_steps(const struct kind *kind, struct db_statement *rows, struct store_history *history,
			       size_t capacity)
{
	struct step step = {.any = false};
	enum db_code code;
	while ((code = db_step(rows)) == DB_ROW) {
		int64_t at_ms = db_integer(rows, 0) * MINUTE_MS;
		at_ms -= at_ms % history->step_ms;
		if (!step.any || at_ms != step.at_ms) {
			end_step(kind, &step, history, capacity);
			step = (struct step){.at_ms = at_ms, .any = true};
		}
		for (int i = 0; i < kind->columns; i++) {
			int64_t units = db_integer(rows, i + 1); // 0 also where there is none
			if (units || db_type(rows, i + 1) == DB_INTEGER)
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
	struct db_statement *look_up = reader->statements[query->kind][HISTORY_LOOK_UP];
	struct db_statement *rows = reader->statements[query->kind][HISTORY_READ];
	db_bind_text(look_up, 1, query->series);
	status = step_once(look_up, &number, error);
	if (!status && number) {
		db_bind_integer(rows, 1, number);
		db_bind_integer(rows, 2, query->from_ms / MINUTE_MS);
		db_bind_integer(rows, 3, (query->to_ms + MINUTE_MS - 1) / MINUTE_MS);
		if (read_steps(&kinds[query->kind], rows, history, capacity) == DB_FAILED)
			status = db_fault(reader->db, error);
		db_reset(rows);
	}
	if (status)
		*damaged = *damaged || db_damaged(reader->db);
done:
	if (status)
		history_finish(history);
	return status;
}

// Rows that are out of order are not found again.
static enum status walk_series(struct history_reader *reader, struct db_statement *walk, struct error *error)
{
	int64_t last = INT64_MIN;
	enum db_code code;
	while ((code = db_step(walk)) == DB_ROW && db_integer(walk, 0) > last)
		last = db_integer(walk, 0);
	if (code == DB_ROW)
		db_doubt(reader->db);
	enum status status = code == DB_DONE ? STATUS_OK : db_fault(reader->db, error);
	db_reset(walk);
	return status;
}

enum status history_check(struct history_reader *reader, bool *done, bool *damaged, struct error *error)
{
	int64_t number = 0;
	struct db_statement *following = reader->statements[reader->check_kind][HISTORY_FOLLOWING];
	struct db_statement *walk = reader->statements[reader->check_kind][HISTORY_WALK];
	db_bind_integer(following, 1, reader->checked_to);
	enum status status = step_once(following, &number, error);
	*done = status || (!number && reader->check_kind + 1 == STORE_KINDS);
	if (!status && number) {
		db_bind_integer(walk, 1, number);
		status = walk_series(reader, walk, error);
	} else if (!*done) {
		reader->check_kind++;
	}
	reader->checked_to = number; // 0 past the last: the other kind from its first
	if (status)
		*damaged = *damaged || db_damaged(reader->db);
	return status;
}

void history_finish(struct store_history *history)
{
	free(history->at_ms);
	free(history->values);
	*history = (struct store_history){.rows = 0};
}
