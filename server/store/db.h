/* The store's databases, whatever keeps them: connections, statements and rows. All of server/store speaks this
 * interface; a driver fills it: server/store/sqlite for files in the data directory, server/store/postgres. The SQL is
 * the same for all drivers: parameters are ?1, ?2 and so on without a gap, a row is replaced by ON CONFLICT, and text
 * compares by bytes.
 *
 * Thread: any; a connection, with its statements, belongs to one thread at a time. Inside server/store only. */
#pragma once
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum db_type { DB_NULL, DB_INTEGER, DB_REAL, DB_TEXT, DB_BYTES };
struct db_value {
	enum db_type type;
	const void *bytes; // of a text or bytes, (length)
	size_t length;
	int64_t integer;
	double real;
};

enum db_part { DB_STATE, DB_HISTORY }; // what must not be lost; averages, which may be
enum db_code { DB_ROW, DB_DONE, DB_FAILED };
enum db_access {
	DB_READ,
	DB_WRITE,
	DB_WRITE_AHEAD
}; // ahead: that it did not begin may be said later, as by db_execute

struct db_params {
	const char *directory; // the server's data
	const char *url;       // postgres://…: there; NULL: in files of the directory
	enum db_part part;
	int64_t turn;   // with `url`: writes are refused once it is over (turn.h); 0: this server alone has it
	bool read_only; // it is there and current; otherwise it is made, checked and brought to this version
	bool offline;   // also read_only: without a server, maybe on a medium that cannot be written
	bool alone;     // with `offline`: no server may write to it meanwhile (STATUS_CONFLICT)
	bool *unusable; // set if what it holds is why it cannot be opened; may be NULL
};

struct db_report {      // what a connection has found since it was opened
	bool damaged;   // nothing is to be written any more
	uint64_t wrong; // pages that are not as they were written
	uint32_t first; // of these, counted from 1
};

struct db { // the beginning of a driver's own
	const struct db_driver *driver;
	const char *name; // for messages: a path, or where it is
	bool untidy;      // db_tidy has something to do
	bool together;    // a mark costs a wait: changes are run without, and with marks when one of them is refused
};
struct db_statement { // likewise
	struct db *db;
};

// The functions below say what each one does.
struct db_driver {
	void (*close)(struct db *db);
	enum status (*fault)(struct db *db, struct error *error);
	const char *(*trouble)(struct db *db);
	bool (*damaged)(struct db *db);
	void (*doubt)(struct db *db);
	void (*report)(struct db *db, struct db_report *report);
	void (*freeze)(struct db *db);
	enum status (*check_current)(struct db *db, struct error *error);
	void (*tidy)(struct db *db, bool idle);
	void (*set_deadline)(struct db *db, int64_t until_ns);
	enum status (*run)(struct db *db, const char *sql, struct error *error);
	enum status (*begin)(struct db *db, enum db_access access, struct error *error);
	enum status (*commit)(struct db *db, struct error *error);
	void (*rollback)(struct db *db);
	bool (*in_transaction)(struct db *db);
	enum status (*defer_keys)(struct db *db, struct error *error);
	enum status (*mark)(struct db *db, struct error *error);
	enum status (*settle)(struct db *db, struct error *error);
	void (*undo)(struct db *db);
	void (*release)(struct db *db);
	enum status (*prepare)(struct db *db, const char *sql, struct db_statement **out, struct error *error);
	void (*finalize)(struct db_statement *statement);
	void (*expect_many)(struct db_statement *statement);
	bool (*bind)(struct db_statement *statement, int index, const struct db_value *value);
	enum status (*execute)(struct db_statement *statement, struct error *error);
	enum db_code (*step)(struct db_statement *statement);
	void (*reset)(struct db_statement *statement);
	enum db_type (*type)(struct db_statement *statement, int column);
	int64_t (*integer)(struct db_statement *statement, int column);
	double (*real)(struct db_statement *statement, int column);
	const char *(*text)(struct db_statement *statement, int column);
	const void *(*bytes)(struct db_statement *statement, int column);
	size_t (*length)(struct db_statement *statement, int column);
};

// Errors: STATUS_FORBIDDEN, STATUS_UNAVAILABLE (damaged, full, gone), STATUS_CONFLICT (of a newer version),
// STATUS_OUT_OF_MEMORY, STATUS_INVALID_PARAMS, with hints; offline, STATUS_NOT_FOUND: there is none.
enum status db_open(struct db **out, const struct db_params *params, struct error *error);
void db_close(struct db **db);
// Close it, and put what it holds out of the way, so that the next db_open begins anew; `why` goes to the log.
enum status db_set_aside(struct db **db, const struct db_params *params, const char *why, struct error *error);
// A URL of a database, not a directory.
bool db_is_url(const char *text);
// Bytes on disk. Any thread.
int64_t db_size(const struct db_params *params);

// Say what the last failure on this connection means to a person: STATUS_UNAVAILABLE (full or failing, damaged, in
// use), STATUS_FORBIDDEN, STATUS_CONFLICT (a constraint), STATUS_OUT_OF_MEMORY, STATUS_LIMIT_EXCEEDED, STATUS_INTERNAL.
// The functions that take an error say the same.
static inline enum status db_fault(struct db *db, struct error *error)
{
	return db->driver->fault(db, error);
}
// The database's own words for it.
static inline const char *db_trouble(struct db *db)
{
	return db->driver->trouble(db);
}
// Whether that failure says that what is stored is damaged.
static inline bool db_damaged(struct db *db)
{
	return db->driver->damaged(db);
}
// Rows that were read cannot be right: as a failure that says so.
static inline void db_doubt(struct db *db)
{
	db->driver->doubt(db);
}
static inline void db_report(struct db *db, struct db_report *report)
{
	db->driver->report(db, report);
}
// Nothing is written on this connection from now on.
static inline void db_freeze(struct db *db)
{
	db->driver->freeze(db);
}
// Whether its tables are this version's. Errors: STATUS_CONFLICT, with a hint.
static inline enum status db_check_current(struct db *db, struct error *error)
{
	return db->driver->check_current(db, error);
}
// Do what is left to do beside the work: a part of it if there is much, or all of it when idle.
static inline void db_tidy(struct db *db, bool idle)
{
	if (db->untidy)
		db->driver->tidy(db, idle);
}
// Queries that run longer fail (by the steady clock; 0: no limit).
static inline void db_set_deadline(struct db *db, int64_t until_ns)
{
	db->driver->set_deadline(db, until_ns);
}

// Run SQL without parameters, one statement or some.
static inline enum status db_run(struct db *db, const char *sql, struct error *error)
{
	return db->driver->run(db, sql, error);
}
// A transaction that reads sees one moment of the database.
static inline enum status db_begin(struct db *db, enum db_access access, struct error *error)
{
	return db->driver->begin(db, access, error);
}
// A failure leaves the transaction open, if the database has not ended it: db_rollback follows.
static inline enum status db_commit(struct db *db, struct error *error)
{
	return db->driver->commit(db, error);
}
// Nothing outside of a transaction.
static inline void db_rollback(struct db *db)
{
	db->driver->rollback(db);
}
// Some faults (no space, no memory) make a database end the whole transaction by itself.
static inline bool db_in_transaction(struct db *db)
{
	return db->driver->in_transaction(db);
}
// In the transaction: what refers to other rows is looked at when it is committed.
static inline enum status db_defer_keys(struct db *db, struct error *error)
{
	return db->driver->defer_keys(db, error);
}
// Within a transaction: mark this place; go back to it; forget it. One mark at a time.
static inline enum status db_mark(struct db *db, struct error *error)
{
	return db->driver->mark(db, error);
}
// Wait until all that db_execute did since the mark is answered: a failure that nobody was told of yet is said
// here, or by whatever is asked next.
static inline enum status db_settle(struct db *db, struct error *error)
{
	return db->driver->settle(db, error);
}
static inline void db_undo(struct db *db)
{
	db->driver->undo(db);
}
static inline void db_release(struct db *db)
{
	db->driver->release(db);
}

// Prepare one statement. Call db_finalize before db_close.
static inline enum status db_prepare(struct db *db, const char *sql, struct db_statement **out, struct error *error)
{
	return db->driver->prepare(db, sql, out, error);
}
static inline void db_finalize(struct db_statement *statement)
{
	if (statement)
		statement->db->driver->finalize(statement);
}
// It gives so many rows that they are not all to be held in memory: run it within a transaction.
static inline void db_expect_many(struct db_statement *statement)
{
	if (statement)
		statement->db->driver->expect_many(statement);
}
// Parameter `index`, from 1. The bytes are not copied: they stay where they are until db_reset, which also forgets all
// parameters. What fails here fails the step.
static inline void db_bind(struct db_statement *statement, int index, const struct db_value *value)
{
	if (statement)
		statement->db->driver->bind(statement, index, value);
}
static inline void db_bind_integer(struct db_statement *statement, int index, int64_t integer)
{
	db_bind(statement, index, &(struct db_value){.type = DB_INTEGER, .integer = integer});
}
static inline void db_bind_bytes(struct db_statement *statement, int index, const void *bytes, size_t length)
{
	db_bind(statement, index, &(struct db_value){.type = DB_BYTES, .bytes = bytes, .length = length});
}
static inline void db_bind_text(struct db_statement *statement, int index, const char *text) // NULL: none
{
	db_bind(statement, index,
		&(struct db_value){.type = text ? DB_TEXT : DB_NULL, .bytes = text, .length = text ? strlen(text) : 0});
}
// The next row. DB_DONE and DB_FAILED end it; db_reset makes it ready for another run.
static inline enum db_code db_step(struct db_statement *statement)
{
	return statement->db->driver->step(statement);
}
static inline void db_reset(struct db_statement *statement)
{
	statement->db->driver->reset(statement);
}
// Run a statement that gives no row, and reset it. In a transaction that writes its failure may be said later:
// db_settle.
static inline enum status db_execute(struct db_statement *statement, struct error *error)
{
	return statement->db->driver->execute(statement, error);
}

// A column of the row that the statement stands on, from 0; texts and bytes are valid until its next step. A NULL is 0,
// or NULL with length 0. Texts end with a 0 that length does not count.
static inline enum db_type db_type(struct db_statement *row, int column)
{
	return row->db->driver->type(row, column);
}
static inline int64_t db_integer(struct db_statement *row, int column)
{
	return row->db->driver->integer(row, column);
}
static inline double db_real(struct db_statement *row, int column)
{
	return row->db->driver->real(row, column);
}
static inline const char *db_text(struct db_statement *row, int column)
{
	return row->db->driver->text(row, column);
}
static inline const void *db_bytes(struct db_statement *row, int column)
{
	return row->db->driver->bytes(row, column);
}
static inline size_t db_length(struct db_statement *row, int column)
{
	return row->db->driver->length(row, column);
}
struct db_value db_value(struct db_statement *row, int column);
