/* Verifies an audit log: is it complete and unchanged, and who signed it? The
 * reader (server/store for the database, archive.h for archives) feeds it in the
 * order of the log: each segment, its entries, its checkpoints. Heads that others
 * remember (a witness, a person, a browser) are given before and compared when the
 * tree has that size. They reveal a log that was cut, replaced by an older copy,
 * or written again as a whole. Pure; holds one tree, not the log. Thread: its
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
	JOURNAL_UNSIGNED_TAIL = 16, // all holds but the newest entries, which no checkpoint covers
};

struct journal_finding {
	enum journal_verdict verdict;
	uint64_t seq;   // of the first entry that it is about
	char text[256]; // for a person
};

enum {
	JOURNAL_FINDINGS = 100, // more are counted, not kept
	JOURNAL_MEMORIES = 2048,
	JOURNAL_WHO_BYTES = 160,
	JOURNAL_SEGMENTS = 65536,
};

struct journal_segment {
	uint64_t number, first; // of the segment, from 0; of its first entry
	struct note_key key;
	const char *certificate;   // a succession signed by the key before; NULL or "" for segment 0
	const struct tree *before; // the tree at `first`, where it is kept beside the entries; NULL: it is not
};

struct journal_report {
	uint64_t entries, signed_entries, segments, pruned; // pruned: entries of which only the leaf's hash is kept
	uint64_t bare;                                      // of those, in segments whose pruning the log does not tell
	uint64_t witnessed;                                 // entries under the largest memory of an outsider
	uint64_t newest_segment, newest_first;              // its number and first entry: what its key could sign anew
	struct tree_hash root;
	struct note_key first_key;
	bool first_key_given; // it was compared, not just believed
	char origin[NOTE_NAME_BYTES];
	char last_checkpoint_at[32]; // when the newest entry that is signed was made; "" if none is
	enum journal_verdict verdict;
	size_t finding_count;                              // ever
	struct journal_finding findings[JOURNAL_FINDINGS]; // in the order of the log
};

struct journal_verifier;

// `origin` NULL: that of the first segment's key. `first_key` NULL: the first segment's key is believed (and said to
// be).
enum status journal_verifier_create(struct journal_verifier **out, const char *origin,
				    const struct note_key *first_key);
void journal_verifier_destroy(struct journal_verifier **verifier);
// Begin anew, with what it was made with, and of what it was told to remember the first `memories`.
void journal_verifier_restart(struct journal_verifier *verifier, size_t memories);
size_t journal_memories(const struct journal_verifier *verifier);
// Only a part of the log will be read (an archive by itself): what comes before and after is not missed.
void journal_verify_part(struct journal_verifier *verifier);
// What somebody else remembers: a checkpoint (its note, whose log signature is checked when the key is known) and who.
// Errors: STATUS_INVALID_PARAMS (not a checkpoint), STATUS_LIMIT_EXCEEDED (JOURNAL_MEMORIES), STATUS_OUT_OF_MEMORY.
enum status journal_remember(struct journal_verifier *verifier, const char *note, const char *who, struct error *error);
// How a memory, by its place in the order of journal_remember, compares with the log; after journal_verify_end.
enum journal_memory_state {
	JOURNAL_MEMORY_UNREACHED, // the log could not be read as far as that
	JOURNAL_MEMORY_AGREES,
	JOURNAL_MEMORY_DIFFERS,  // other entries
	JOURNAL_MEMORY_LONGER,   // more than there are: the newest were lost
	JOURNAL_MEMORY_UNSIGNED, // the same, but not signed by the key that should have
};
enum journal_memory_state journal_memory_state(const struct journal_verifier *verifier, size_t index);
// Leaves without their entries are what whoever asks is about to account for: an archive that is just being pruned.
void journal_expect_bare(struct journal_verifier *verifier);
// Whether what was read so far lacks entries without the log's leave.
bool journal_lacks_leave(const struct journal_verifier *verifier);
// The log, in order: a segment, then its entries, each checkpoint when the entries that it covers were read (or, where
// there are fewer, at the end). What is wrong becomes a finding, and the reading goes on where it can.
void journal_verify_segment(struct journal_verifier *verifier, const struct journal_segment *segment);
// `bytes`: the entry as encoded; NULL where only its leaf's hash is kept, which must be accounted for by an entry of
// the log that tells of its pruning (pruning.h). `leaf`: the hash stored beside it; may be NULL if bytes is not.
void journal_verify_entry(struct journal_verifier *verifier, uint64_t seq, const uint8_t *bytes, size_t length,
			  const struct tree_hash *leaf);
void journal_verify_checkpoint(struct journal_verifier *verifier, const char *note);
// Entries first to next - 1 are in an archive that is not there. Their segment's row may still be given, before this:
// then the keys are followed through it. Where the tree goes on is known again at a segment that says it (`before`).
void journal_verify_gap(struct journal_verifier *verifier, uint64_t first, uint64_t next);
// A finding of the reader's own: a file that cannot be read, a row that does not parse.
void journal_report_finding(struct journal_verifier *verifier, enum journal_verdict verdict, uint64_t seq,
			    const char *format, ...) __attribute__((format(printf, 4, 5)));
// The end. The report is the verifier's. Its verdict is the smallest of all findings': what happened to the entries is
// said before what is wrong with signatures, and that before what is only missing.
const struct journal_report *journal_verify_end(struct journal_verifier *verifier);
enum journal_verdict journal_verdict_of(const struct journal_report *report);
// What somebody who can write the log's files and has the current key could still have done, given what was compared:
// one sentence or more for a person.
void journal_limits_print(const struct journal_report *report, struct buffer *text);
