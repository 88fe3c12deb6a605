/* Verifying an audit log: whether what is there is what was written, all of it, and by whose key.
 *
 * Whoever reads it (server/store from the database, archive.h from archives) feeds it in the order of the log: each
 * segment, its entries, its checkpoints. What others remember of the log (a witness' copy of a checkpoint, the last one
 * that a person or a browser saw) is given before, and compared when the tree has that size: that is what finds a log
 * that was cut, replaced by an older copy, or written anew as a whole. Pure; holds one tree, not the log. Thread: its
 * owner's. */
#pragma once
#include "common/journal/entry.h"
#include "common/journal/note.h"

// The exit codes of `exogpu audit verify`.
enum journal_verdict {
	JOURNAL_HOLDS = 0,
	JOURNAL_MODIFIED = 10,
	JOURNAL_TRUNCATED = 11,
	JOURNAL_FORKED = 12,
	JOURNAL_BAD_SIGNATURE = 13,
	JOURNAL_WRONG_KEY = 14,
	JOURNAL_ARCHIVE_MISSING = 15,
	JOURNAL_UNSIGNED_TAIL = 16, // all holds but the newest entries, which no checkpoint covers yet
};

struct journal_finding {
	enum journal_verdict verdict;
	uint64_t seq;   // of the first entry that it is about
	char text[256]; // for a person
};

enum { JOURNAL_FINDINGS = 100 }; // more are counted, not kept

struct journal_segment {
	uint64_t number, first; // of the segment, from 0; of its first entry
	struct note_key key;
	const char *certificate; // a succession signed by the key before; NULL for segment 0
};

struct journal_report {
	uint64_t entries, signed_entries, segments, pruned; // pruned: entries of which only the leaf's hash is kept
	uint64_t witnessed;                                 // entries under the largest memory of an outsider
	struct tree_hash root;
	struct note_key first_key;
	char origin[NOTE_NAME_BYTES], last_checkpoint_at[32];
	size_t finding_count; // ever
	struct journal_finding findings[JOURNAL_FINDINGS];
};

struct journal_verifier;

// `origin` NULL: that of the first segment's key. `first_key` NULL: the first segment's key is believed (and said to
// be).
enum status journal_verifier_create(struct journal_verifier **out, const char *origin,
				    const struct note_key *first_key);
void journal_verifier_destroy(struct journal_verifier **verifier);
// What somebody else remembers: a checkpoint (its note, whose log signature is checked when the key is known) and who.
enum status journal_remember(struct journal_verifier *verifier, const char *note, const char *who, struct error *error);
// The log, in order. What is wrong becomes a finding, and the reading goes on where it can.
void journal_verify_segment(struct journal_verifier *verifier, const struct journal_segment *segment);
// `bytes`: the entry as encoded; NULL where only its leaf's hash is kept. `leaf`: the hash stored beside it; may be
// NULL if bytes is not.
void journal_verify_entry(struct journal_verifier *verifier, uint64_t seq, const uint8_t *bytes, size_t length,
			  const struct tree_hash *leaf);
void journal_verify_checkpoint(struct journal_verifier *verifier, const char *note);
// Entries first to next - 1 are in an archive that is not there.
void journal_verify_gap(struct journal_verifier *verifier, uint64_t first, uint64_t next);
// A finding of the reader's own: a file that cannot be read, a row that does not parse.
void journal_report_finding(struct journal_verifier *verifier, enum journal_verdict verdict, uint64_t seq,
			    const char *format, ...) __attribute__((format(printf, 4, 5)));
// The end. The report is the verifier's. Its verdict is the first of: 13 or 14 never hide 10 to 12; see
// journal_verdict_of.
const struct journal_report *journal_verify_end(struct journal_verifier *verifier);
enum journal_verdict journal_verdict_of(const struct journal_report *report);
// What somebody who can write the log's files and has the current key could still have done, given what was compared:
// one sentence or more for a person.
void journal_limits_print(const struct journal_report *report, struct buffer *text);
