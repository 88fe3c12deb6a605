/* Reads the whole audit log for a check: the database's part from the database, the rest from
 * archives. All input of the verifier comes from one moment of the database (one read transaction).
 * In addition to the verifier's checks, the hashes for proofs (audit_nodes, audit_leaves) must match
 * the entries, and no entry may be where none can be. Archives are found by the numbers in their
 * names, whatever the database calls them. Thread: any, with its own connection. Inside server/store
 * only. */
#pragma once
#include "server/store/db.h"
#include "server/store/store.h"

#include <stdatomic.h>

struct ledger {
	struct db *db;
	const char *directory; // of the archives
	struct journal_verifier *verifier;
	void (*begun)(void *context); // the moment is chosen: what is read now belongs to it; may be NULL
	void *begun_context;
	void (*entry)(void *context, const struct journal_entry *entry); // may be NULL
	void *context;
	const atomic_bool *stop; // may be NULL; once it is set the reading ends with STATUS_UNAVAILABLE
};
// Errors: db_fault's, but for a damaged database, which becomes a finding; STATUS_NOT_FOUND (there is no log).
enum status ledger_feed(const struct ledger *ledger, struct error *error);
