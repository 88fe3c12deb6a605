/* See ledger_bound.h. */
#include "server/store/audit/ledger_bound.h"

#include "server/store/audit/journal.h"

#include <inttypes.h>

enum status ledger_bound_init(struct ledger_bound *state)
{
	state->begun = false;
	state->last_known = true;
	state->last_bound = ENTRY_NONE;
	state->status = STATUS_OK;
	return bound_create(&state->bound);
}

void ledger_bound_finish(struct ledger_bound *state)
{
	bound_destroy(&state->bound);
}

void ledger_bound_segment(struct ledger_bound *state, bool newest)
{
	if (newest)
		bound_clear(state->bound);
	state->last_known = false;
}

void ledger_bound_entry(struct ledger_bound *state, const struct journal_entry *entry)
{
	if (!entry->bound)
		return;
	state->begun = true;
	if (state->last_known && entry->bound_before != state->last_bound)
		journal_report_finding(state->verifier, JOURNAL_MODIFIED, entry->seq,
				       "entry %" PRIu64 " leaves out an entry that binds rows of state.db", entry->seq);
	if (!entry->bound[0])
		return;
	state->last_bound = entry->seq;
	state->last_known = true;
	enum status status = bound_take(state->bound, entry->bound, entry->seq);
	bound_keep(state->bound);
	if (status == STATUS_INVALID_PARAMS)
		journal_report_finding(state->verifier, JOURNAL_MODIFIED, entry->seq,
				       "entry %" PRIu64 " binds rows in a form that cannot be read", entry->seq);
	else if (status)
		state->status = status;
}

static void report(void *context, enum bound_fault fault, const char *subject, uint64_t seq)
{
	struct ledger_bound *state = context;
	if (fault == BOUND_UNTOLD)
		journal_report_finding(state->verifier, JOURNAL_MODIFIED, seq, "%s %s", subject,
				       bound_fault_text(fault));
	else
		journal_report_finding(state->verifier, JOURNAL_MODIFIED, seq, "%s %s: entry %" PRIu64, subject,
				       bound_fault_text(fault), seq);
}

enum status ledger_bound_check(struct ledger_bound *state, struct db *db, struct error *error)
{
	if (state->status)
		return error_set(error, state->status, "no memory to verify with");
	return state->begun ? bound_check(state->bound, db, report, state, error) : STATUS_OK;
}

const char *ledger_columns(struct db *db)
{
	return db_run(db, "SELECT bound, bound_before FROM audit LIMIT 0", NULL) ? JOURNAL_COLUMNS_UNBOUND
										 : JOURNAL_COLUMNS;
}
