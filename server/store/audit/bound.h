/* Rows of state.db that grant something, bound to the audit log.
 *
 * Whoever can write to state.db could make a token, lengthen one, take a revocation back. So the log says what such a
 * row holds: an entry names the rows that its transaction has changed, each with the SHA-256 of every column that
 * grants (`bound` of common/journal/entry.h), and the newest entry about a row counts. The store thread does that for
 * every batch, whoever filled it (batch_run.c), from the values that it is about to write and not from what stands in
 * the database. A row that the log does not know in this form is refused when it is loaded, and found by
 * `exogpu audit verify`, which needs no key for it (bound_rows.c).
 *
 * Every segment of the log begins with all rows that are bound, so the newest segment alone says what may stand there:
 * older ones can be archived, pruned or lost. Each entry names the newest one before it that binds rows, so a start
 * reads those and no others, from the newest backwards, each proved to be in the signed tree (bound_load.c).
 *
 * In memory it is a table of subjects ("token 8GhT2kQx1z") with their digests. Changes of a transaction that fails are
 * undone. Thread: any; a lock guards the table. Inside server/store only. */
#pragma once
#include "common/base/buffer.h"
#include "common/journal/tree.h"
#include "server/store/db.h"

enum bound_kind {
	BOUND_NODE,
	BOUND_DEVICE,
	BOUND_TOKEN,
	BOUND_CERTIFICATE,
	BOUND_TICKET,
	BOUND_MODEL,
	BOUND_INSTANCE,
	BOUND_LEND,
	BOUND_TAB,
	BOUND_CHANNEL, // where alerts are sent to
	BOUND_WORKERS, // of an instance: who is taken up again as one of its workers
	BOUND_KINDS,
};
enum { BOUND_SUBJECT_BYTES = 160, BOUND_COLUMNS = 11 }; // with its 0; of the widest kind

struct bound_table { // of state.db
	const char *kind, *name;
	const char *columns; // those that grant, with ", " between; the first is the row's id
	int count;           // of columns
};
extern const struct bound_table bound_tables[BOUND_KINDS];

#define BOUND_NO_ID "(no id)" // in its place where a report is about a row without one; no id has a space
// "KIND ID". False: no id of ours, which are short and printable, without a space.
bool bound_subject(enum bound_kind kind, const struct db_value *id, char subject[BOUND_SUBJECT_BYTES]);
// SHA-256("exogpu row 1" 0, the kind 0, and for each column: its name 0, a letter for its type, its value); n: nothing
// more; i: i64; r: f64; t and b: u64 length, bytes. All little-endian. False: no memory.
bool bound_digest(enum bound_kind kind, const struct db_value *values, struct tree_hash *digest);
// The first columns of a row, which must be those of bound_tables. Valid until the statement steps.
void bound_columns(struct db_statement *row, enum bound_kind kind, struct db_value values[BOUND_COLUMNS]);

struct bound; // the table
enum status bound_create(struct bound **out);
void bound_destroy(struct bound **bound);
// Set what holds from now on; digest NULL: the row is gone. *changed (may be NULL): it did not hold before. seq: of the
// entry that says so. Errors: STATUS_OUT_OF_MEMORY.
enum status bound_set(struct bound *bound, const char *subject, const struct tree_hash *digest, uint64_t seq,
		      bool *changed);
// Whether the row of `subject` is there, by the log; digest and seq (may be NULL): what it holds, which entry says so.
bool bound_find(struct bound *bound, const char *subject, struct tree_hash *digest, uint64_t *seq);
// Whether anything was ever said of it, that it is gone included.
bool bound_told(struct bound *bound, const char *subject);
void bound_clear(struct bound *bound);
// A mark to go back to, until bound_keep.
size_t bound_mark(struct bound *bound);
void bound_undo(struct bound *bound, size_t mark);
void bound_keep(struct bound *bound);
// Every row that is there. The table must not be changed meanwhile.
void bound_each(struct bound *bound,
		void (*each)(void *context, const char *subject, const struct tree_hash *digest, uint64_t seq),
		void *context);

// A line of an entry's text.
enum status bound_print(struct buffer *text, const char *subject, const struct tree_hash *digest);
// Each line of an entry's text in turn; digest NULL: the row is gone. Errors: STATUS_INVALID_PARAMS (no such text), or
// `line`'s own, which ends the reading.
enum status bound_read(const char *text,
		       enum status (*line)(void *context, const char *subject, const struct tree_hash *digest),
		       void *context);
// bound_set for each line.
enum status bound_take(struct bound *bound, const char *text, uint64_t seq);

// The fault of a row. `seq`: the newest entry about it; BOUND_UNTOLD has none.
enum bound_fault { BOUND_CHANGED, BOUND_UNTOLD, BOUND_MISSING, BOUND_FAULTS };
typedef void bound_report(void *context, enum bound_fault fault, const char *subject, uint64_t seq);
// Compare all rows of the database with what the log says. Errors: db_fault's.
enum status bound_check(struct bound *bound, struct db *db, bound_report *report, void *context, struct error *error);
// Whether the row that `row` stands on is as the log says it. Its columns: as bound_columns.
bool bound_holds(struct bound *bound, struct db_statement *row, enum bound_kind kind);
// Take all rows of the database as they stand: bound_set for each. Errors: db_fault's.
enum status bound_adopt(struct bound *bound, struct db *db, uint64_t seq, size_t *count, struct error *error);
const char *bound_fault_text(
	enum bound_fault fault); // "… is not as entry N of the audit log says": what follows the subject
