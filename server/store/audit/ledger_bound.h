/* What the entries of a ledger bind, and whether the rows of the same database match. The
 * newest segment begins with all bound rows, so earlier segments are forgotten when it begins,
 * and a log whose older entries were archived or pruned is no worse off. Inside server/store
 * only. */
#pragma once
#include "common/journal/verify.h"
#include "server/store/audit/bound.h"

struct ledger_bound {
	struct journal_verifier *verifier;
	struct bound *bound;
	bool begun;          // an entry that binds, or could, was seen: rows of before are not compared
	bool last_known;     // last_bound is the newest entry that binds rows: one of this segment
	uint64_t last_bound; // or ENTRY_NONE
	enum status status;  // of memory
};
enum status ledger_bound_init(struct ledger_bound *state);
void ledger_bound_finish(struct ledger_bound *state);
// A segment begins, the newest one or another. What older ones bind may be pruned, or their archive lost, and the
// newest one says all of it again.
void ledger_bound_segment(struct ledger_bound *state, bool newest);
void ledger_bound_entry(struct ledger_bound *state, const struct journal_entry *entry);
// The rows of the database, whose log has been read. Errors: db_fault's; STATUS_OUT_OF_MEMORY.
enum status ledger_bound_check(struct ledger_bound *state, struct db *db, struct error *error);
// JOURNAL_COLUMNS, as a database has them that may be of a version before rows were bound.
const char *ledger_columns(struct db *db);
