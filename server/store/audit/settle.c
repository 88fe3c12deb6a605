/* Settles rows of state.db that do not match the log: they are removed, and a signed entry says who
 * wanted that. A row is never accepted. The log only has a hash of its earlier content, so a
 * restored row and an invented one look alike, and whoever could have rows accepted could make valid
 * ones. So settling only removes what is already refused, with what depends on it; anything still
 * wanted must be created again in the normal way. All of it is one transaction, which also ends the
 * log's segment, so that no earlier copy of the database starts any more. A listing does the same
 * and rolls back, so it shows exactly what would go. Thread: as store_create, which then starts
 * none. */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/store/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_MOST = 1000 }; // entries of their own; of more rows the last entry has the number

struct row {
	char subject[BOUND_SUBJECT_BYTES];
	enum bound_fault fault; // BOUND_FAULTS: it holds, and goes with another
	uint64_t seq;
	bool wanted, gone;
	size_t next; // that is wanted and not looked at yet: its place + 1
};

struct settlement {
	struct store *store;
	const struct store_settling *params;
	struct row *rows;
	size_t count, room;
	struct bound *places; // where the row of a subject stands: as `seq`
	size_t work;          // the first row that is wanted and not looked at yet: its place + 1
	enum status status;
};

static struct row *find_row(struct settlement *all, const char *subject)
{
	uint64_t place;
	return bound_find(all->places, subject, NULL, &place) ? &all->rows[place] : NULL;
}

// Rows without an id have one subject, and are one.
static struct row *add_row(struct settlement *all, enum bound_fault fault, const char *subject, uint64_t seq)
{
	static const struct tree_hash some;
	struct row *known = find_row(all, subject);
	if (known)
		return known;
	if (bound_set(all->places, subject, &some, all->count, NULL)) {
		all->status = STATUS_OUT_OF_MEMORY;
		return NULL;
	}
	if (all->count == all->room) {
		const size_t room = all->room ? all->room * 2 : 64;
		struct row *rows = realloc(all->rows, room * sizeof *rows);
		if (!rows) {
			all->status = STATUS_OUT_OF_MEMORY;
			return NULL;
		}
		all->rows = rows;
		all->room = room;
	}
	struct row *row = &all->rows[all->count++];
	*row = (struct row){.fault = fault, .seq = seq};
	snprintf(row->subject, sizeof row->subject, "%s", subject);
	return row;
}

static void take_fault(void *context, enum bound_fault fault, const char *subject, uint64_t seq)
{
	add_row(context, fault, subject, seq);
}

static void want(struct settlement *all, struct row *row)
{
	if (row->wanted)
		return;
	row->wanted = true;
	row->next = all->work;
	all->work = (size_t)(row - all->rows) + 1;
}

static void finish(struct settlement *all)
{
	bound_destroy(&all->places);
	free(all->rows);
}

static enum status find_faults(struct settlement *all, struct error *error)
{
	if (bound_create(&all->places))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to settle rows of state.db");
	enum status status = bound_check(all->store->journal.bound, all->store->state, take_fault, all, error);
	if (!status && all->status)
		status = error_set(error, all->status, "no memory to settle rows of state.db");
	return status;
}

// ---- one row ----

static enum status run(struct settlement *all, const char *sql, const char *id, struct error *error)
{
	struct db_statement *statement = NULL;
	enum status status = db_prepare(all->store->state, sql, &statement, error);
	if (!status) {
		db_bind_text(statement, 1, id);
		status = db_execute(statement, error);
	}
	db_finalize(statement);
	return status;
}

static bool kind_of(const char *subject, enum bound_kind *kind)
{
	const size_t length = strcspn(subject, " ");
	for (*kind = 0; *kind < BOUND_KINDS; ++*kind)
		if (strlen(bound_tables[*kind].kind) == length && !memcmp(bound_tables[*kind].kind, subject, length))
			return subject[length] == ' ';
	return false;
}

// Rows without an id of ours, which no subject names.
static enum status remove_nameless(struct settlement *all, enum bound_kind kind, struct error *error)
{
	char sql[512], subject[BOUND_SUBJECT_BYTES];
	struct db_statement *rows = NULL, *removal = NULL;
	enum db_code code = DB_DONE;
	snprintf(sql, sizeof sql, "SELECT %s, rowid FROM %s", bound_tables[kind].columns, bound_tables[kind].name);
	enum status status = db_prepare(all->store->state, sql, &rows, error);
	snprintf(sql, sizeof sql, "DELETE FROM %s WHERE rowid = ?1", bound_tables[kind].name);
	if (!status)
		status = db_prepare(all->store->state, sql, &removal, error);
	while (!status && (code = db_step(rows)) == DB_ROW) {
		struct db_value values[BOUND_COLUMNS];
		bound_columns(rows, kind, values);
		if (bound_subject(kind, &values[0], subject))
			continue;
		db_bind_integer(removal, 1, db_integer(rows, bound_tables[kind].count));
		status = db_execute(removal, error);
	}
	if (!status && code != DB_DONE)
		status = db_fault(all->store->state, error);
	db_finalize(rows);
	db_finalize(removal);
	return status;
}

// The rows that a query names go, too: they rest on this one.
static enum status want_others(struct settlement *all, enum bound_kind kind, const char *sql, const char *id,
			       struct error *error)
{
	struct db_statement *rows = NULL;
	enum db_code code = DB_DONE;
	enum status status = db_prepare(all->store->state, sql, &rows, error);
	if (!status)
		db_bind_text(rows, 1, id);
	while (!status && (code = db_step(rows)) == DB_ROW) {
		char subject[BOUND_SUBJECT_BYTES];
		const struct db_value value = db_value(rows, 0);
		if (!bound_subject(kind, &value, subject))
			continue;
		struct row *other = add_row(all, BOUND_FAULTS, subject, 0);
		if (other)
			want(all, other);
		else
			status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to settle rows of state.db");
	}
	if (!status && code != DB_DONE)
		status = db_fault(all->store->state, error);
	db_finalize(rows);
	return status;
}

static enum status want_what_hangs_on(struct settlement *all, enum bound_kind kind, const char *id, struct error *error)
{
	switch (kind) {
	case BOUND_TOKEN: // what was made with it
		return want_others(all, kind, "SELECT token_id FROM tokens WHERE parent_id = ?1", id, error);
	case BOUND_NODE: { // it has to join again
		enum status status = want_others(all, BOUND_CERTIFICATE,
						 "SELECT serial FROM certificates WHERE node_id = ?1", id, error);
		if (!status)
			status = want_others(all, BOUND_TAB, "SELECT node_id FROM tabs WHERE node_id = ?1", id, error);
		if (!status)
			status = run(all, "DELETE FROM links WHERE from_node_id = ?1 OR to_node_id = ?1", id, error);
		return status ? status
			      : want_others(all, BOUND_DEVICE, "SELECT device_id FROM devices WHERE node_id = ?1", id,
					    error);
	}
	case BOUND_DEVICE:
		return run(all, "DELETE FROM layer_times WHERE device_id = ?1", id, error);
	case BOUND_MODEL:
		return want_others(all, BOUND_INSTANCE, "SELECT instance_id FROM instances WHERE model_id = ?1", id,
				   error);
	case BOUND_CHANNEL:
		return run(all, "DELETE FROM alert_deliveries WHERE channel_id = ?1", id, error);
	case BOUND_LEND: // the tabs that joined with it
		return want_others(all, BOUND_TAB, "SELECT node_id FROM tabs WHERE lend_id = ?1", id, error);
	case BOUND_INSTANCE:
	case BOUND_WORKERS:
	case BOUND_CERTIFICATE:
	case BOUND_TICKET:
	case BOUND_TAB:
	case BOUND_KINDS:
		break;
	}
	return STATUS_OK;
}

static bool instance_stands(struct settlement *all, const char *id)
{
	struct db_statement *row = NULL;
	bool found = !db_prepare(all->store->state, "SELECT 1 FROM instances WHERE instance_id = ?1", &row, NULL);
	if (found) {
		db_bind_text(row, 1, id);
		found = db_step(row) == DB_ROW;
	}
	db_finalize(row);
	return found;
}

// An instance's workers are forgotten; it is loaded anew.
static enum status forget_workers(struct settlement *all, const char *subject, const char *id, struct error *error)
{
	struct tree_hash digest;
	const struct db_value values[] = {{.type = DB_TEXT, .bytes = id, .length = strlen(id)},
					  {.type = DB_TEXT, .bytes = ""}};
	if (!instance_stands(all, id))
		return journal_bind(&all->store->journal, subject, NULL, error);
	enum status status = run(all, "UPDATE instances SET workers = '' WHERE instance_id = ?1", id, error);
	if (!status && !bound_digest(BOUND_WORKERS, values, &digest))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to hash a row of state.db");
	return status ? status : journal_bind(&all->store->journal, subject, &digest, error);
}

static enum status remove_row(struct settlement *all, const char *subject, struct error *error)
{
	char sql[256], workers[BOUND_SUBJECT_BYTES], copy[BOUND_SUBJECT_BYTES];
	enum bound_kind kind;
	snprintf(copy, sizeof copy, "%s", subject); // the rows move when there are more
	if (!kind_of(copy, &kind))
		return STATUS_OK;
	const char *id = strchr(copy, ' ') + 1;
	if (!strcmp(id, BOUND_NO_ID))
		return remove_nameless(all, kind, error);
	if (kind == BOUND_WORKERS)
		return forget_workers(all, copy, id, error);
	enum status status = want_what_hangs_on(all, kind, id, error);
	snprintf(sql, sizeof sql, "DELETE FROM %s WHERE %.*s = ?1", bound_tables[kind].name,
		 (int)strcspn(bound_tables[kind].columns, ","), bound_tables[kind].columns);
	if (!status)
		status = run(all, sql, id, error);
	if (!status)
		status = journal_bind(&all->store->journal, copy, NULL, error);
	if (!status && kind == BOUND_INSTANCE) {
		snprintf(workers, sizeof workers, "%s %.140s", bound_tables[BOUND_WORKERS].kind, id);
		status = journal_bind(&all->store->journal, workers, NULL, error);
	}
	return status;
}

// ---- all of them ----

static const char *fault_word(enum bound_fault fault)
{
	static const char *const words[BOUND_FAULTS + 1] = {[BOUND_CHANGED] = "changed",
							    [BOUND_UNTOLD] = "untold",
							    [BOUND_MISSING] = "missing",
							    [BOUND_FAULTS] = "rests on another"};
	return words[fault];
}

static enum status put_entry(struct settlement *all, struct store_batch *batch, const char *target, const char *detail,
			     uint64_t count)
{
	const struct journal_entry entry = {.count = count,
					    .actor = all->params->actor,
					    .peer = "offline",
					    .action = "state.settle",
					    .target = target,
					    .outcome = "ok",
					    .detail = detail};
	batch->rows = 0; // what the loop thread may put at once has its limit there
	return store_put_audit(batch, &entry);
}

static enum status put_entries(struct settlement *all, struct store_batch *batch, struct error *error)
{
	char detail[96];
	size_t named = 0, rest = 0;
	enum status status = STATUS_OK;
	for (size_t i = 0; i < all->count && !status; i++) {
		const struct row *row = &all->rows[i];
		if (!row->gone)
			continue;
		if (named++ >= NAMED_MOST) {
			rest++;
			continue;
		}
		snprintf(detail, sizeof detail, "{\"was\":\"%s\"}", fault_word(row->fault));
		if (row->seq)
			snprintf(detail, sizeof detail, "{\"was\":\"%s\",\"entry\":%" PRIu64 "}",
				 fault_word(row->fault), row->seq);
		status = put_entry(all, batch, row->subject, detail, 1);
	}
	if (!status && rest)
		status = put_entry(all, batch, "(others)", "{}", rest);
	return status ? error_set(error, status, "no memory for an entry of the audit log") : STATUS_OK;
}

static enum status remove_rows(struct settlement *all, struct error *error)
{
	enum status status = STATUS_OK;
	while (all->work && !status) {
		struct row *row = &all->rows[all->work - 1];
		all->work = row->next;
		row->gone = true;
		status = remove_row(all, row->subject, error);
	}
	return status;
}

// Checks that everything to be settled is settled, and that every other row still holds.
static enum status check_left(struct settlement *all, struct error *error)
{
	struct settlement left = {.store = all->store};
	enum status status = find_faults(&left, error);
	for (size_t i = 0; i < left.count && !status; i++) {
		const struct row *known = find_row(all, left.rows[i].subject);
		if (!known || known->gone)
			status = error_set(error, STATUS_CONFLICT, "%s cannot be settled: it %s", left.rows[i].subject,
					   bound_fault_text(left.rows[i].fault));
	}
	finish(&left);
	return status;
}

// In a transaction. In whatever order: nothing is left at the end that refers to what is gone.
static enum status remove_all(struct settlement *all, struct error *error)
{
	enum status status = db_defer_keys(all->store->state, error);
	return status ? status : remove_rows(all, error);
}

static enum status settle(void *context, struct store_batch *batch, struct error *error)
{
	struct settlement *all = context;
	enum status status = remove_all(all, error);
	if (!status)
		status = check_left(all, error);
	return status ? status : put_entries(all, batch, error);
}

// All that would go, and nothing is changed.
static enum status rehearse(struct settlement *all, struct error *error)
{
	struct store *store = all->store;
	for (size_t i = 0; i < all->count; i++)
		want(all, &all->rows[i]);
	journal_begin(&store->journal);
	enum status status = db_begin(store->state, DB_WRITE, error);
	if (!status)
		status = remove_all(all, error);
	db_rollback(store->state);
	journal_begin(&store->journal);
	for (size_t i = 0; i < all->count; i++)
		all->rows[i].gone = false;
	return status;
}

static enum status choose(struct settlement *all, struct error *error)
{
	const struct store_settling *params = all->params;
	for (size_t i = 0; i < all->count && params->all; i++)
		want(all, &all->rows[i]);
	for (size_t i = 0; i < params->count; i++) {
		bool found = false;
		for (size_t j = 0; j < all->count; j++) {
			const char *subject = all->rows[j].subject, *wanted = params->subjects[i];
			const size_t kind = strcspn(subject, " ");
			const bool same = strlen(wanted) == strlen(subject) && !memcmp(subject, wanted, kind) &&
					  (wanted[kind] == ':' || wanted[kind] == ' ') &&
					  !strcmp(subject + kind + 1, wanted + kind + 1);
			if (same)
				want(all, &all->rows[j]);
			found = found || same;
		}
		if (!found) {
			error_set(error, STATUS_NOT_FOUND, "%.120s is no row that is refused", params->subjects[i]);
			error_hint(error, "exogpu state settle lists them, as KIND:ID");
			return STATUS_NOT_FOUND;
		}
	}
	return STATUS_OK;
}

// Rows that no log binds yet are taken as they stand by the first start; a look must not be that.
static enum status check_bound(const struct journal *journal, struct error *error)
{
	if (!journal->unbound && !journal->fresh && journal->done.tree.size > journal->first)
		return STATUS_OK;
	error_set(error, STATUS_CONFLICT, "the rows of state.db are not bound to an audit log yet");
	error_hint(error,
		   "start the server once with this version: it takes the rows as they stand, and says how many");
	return STATUS_CONFLICT;
}

static const char *text_of(const struct row *row)
{
	if (row->fault < BOUND_FAULTS)
		return bound_fault_text(row->fault);
	return row->gone ? "rests on a row that was settled" : "rests on a row that is refused, and goes with it";
}

enum status store_settle(struct store *store, const struct store_settling *params, struct error *error)
{
	struct settlement all = {.store = store, .params = params};
	const struct store_work work = {.run = settle, .context = &all};
	enum status status = check_bound(&store->journal, error);
	if (!status)
		status = find_faults(&all, error);
	if (!status)
		status = choose(&all, error);
	if (!status && all.count)
		status = params->all || params->count ? store_rotate(store, &work, error) : rehearse(&all, error);
	for (size_t i = 0; i < all.count && !status; i++)
		params->row(params->context, &(struct store_settled){.subject = all.rows[i].subject,
								     .text = text_of(&all.rows[i]),
								     .gone = all.rows[i].gone});
	finish(&all);
	return status;
}
