/* Reading the whole audit log for whoever checks it: the database's part from the database, the rest from archives.
 *
 * Everything that is fed to the verifier comes from one moment of the database (one read transaction). Beside what the
 * verifier checks, the hashes that proofs are made from (audit_nodes, audit_leaves) must be those of the entries, and
 * no entry may stand where there can be none. Archives are taken by their names' numbers, whatever the database calls
 * them. Thread: any, with a connection of its own. Inside server/store only. */
#pragma once
#include "server/store/store.h"

#include <sqlite3.h>
#include <stdatomic.h>

struct ledger {
	sqlite3 *db;
	const char *directory; // of the archives
	struct journal_verifier *verifier;
	void (*begun)(void *context); // the moment is chosen: what is read now belongs to it; may be NULL
	void *begun_context;
	void (*entry)(void *context, const struct journal_entry *entry); // may be NULL
	void *context;
	const atomic_bool *stop; // may be NULL; once it is set the reading ends with STATUS_UNAVAILABLE
};
// Errors: database_fault's, but for a damaged database, which becomes a finding; STATUS_NOT_FOUND (there is no log).
enum status ledger_feed(const struct ledger *ledger, struct error *error);
