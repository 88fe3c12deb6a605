/* Pruning removes the entries of an archived segment and keeps the hashes of their leaves, so the
 * log still verifies. Anyone who can write an archive could do the same. So the log records each
 * pruning: the server adds an entry `audit.prune` before it replaces the archive. A verifier treats
 * a leaf without its entry as a modification unless such a signed entry names it. Pure. Thread:
 * any. */
#pragma once
#include "common/journal/entry.h"

enum { PRUNING_TEXT_BYTES = 96 };

struct pruning {
	uint64_t first, last; // a segment's entries
	uint64_t removed;     // so many of them, 1 or more, are kept by their hashes alone
};

// The entry's target: "38 of the entries 0 to 39".
void pruning_print(const struct pruning *pruning, char text[PRUNING_TEXT_BYTES]);
// Whether the entry tells of a pruning: the server's own, done, and of entries that stand before it.
bool pruning_parse(struct pruning *pruning, const struct journal_entry *entry);
// Whether pruning leaves this entry whole, since the rest of the log, or what the server does, rests on what it says.
bool pruning_keeps(const struct journal_entry *entry);
