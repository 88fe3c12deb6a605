/* Every action of the audit log: its name, when its entry is on disk, and what it describes. The table of
 * docs/audit.md is made from this one (tests/server/security/test_audit_actions.c compares them), and every entry is
 * checked against it. An entry that is missing here, or is written later than promised, ends a debug build; a release
 * build logs that once and writes the entry. Thread: any. */
#pragma once
#include "common/base/buffer.h"
#include "common/base/status.h"

#include <stddef.h>

// In the order of the document.
enum audit_when {
	AUDIT_WITH_CHANGE,   // in the transaction of the change in state.db
	AUDIT_BEFORE,        // before it is begun
	AUDIT_BEFORE_ANSWER, // after it is done, before the answer
	AUDIT_AT_ONCE,       // written as it happens, and nobody waits
	AUDIT_COUNTED,       // within LIMIT_TALLY_MS, one entry for many
	AUDIT_WHENS
};

struct audit_action {
	const char *name;
	enum audit_when when;
	bool asked; // somebody asks for it: what is refused or fails is counted
	const char *tells;
};
// The table, in the order of `when`; NULL: there is none of this name.
const struct audit_action *audit_actions(size_t *count);
const struct audit_action *audit_action_find(const char *name);

// How an entry is written: audit_put and audit_commit, audit_write, audit_tell, audit_count.
enum audit_use { AUDIT_USE_PUT, AUDIT_USE_WRITE, AUDIT_USE_TELL, AUDIT_USE_COUNT };
// Whether the table allows it. Of methods that are not in the table it allows that refusals are counted.
bool audit_action_allows(enum audit_use use, const char *name, enum status outcome);
// Ends a debug build if it does not.
void audit_action_check(enum audit_use use, const char *name, enum status outcome);

// The table as docs/audit.md has it, in Markdown.
enum status audit_actions_print(struct buffer *out);
