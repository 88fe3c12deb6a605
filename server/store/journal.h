/* The audit log's end that grows: numbering, hashing and signing entries, in the transaction that writes them.
 *
 *     run of batches     each entry: its seq, its leaf, the subtrees that are complete with it
 *     before COMMIT      journal_seal: one checkpoint for all that was added, signed with the segment's key
 *     after COMMIT       journal_committed: the new head is what others see
 *     rotation           a transaction of its own: the next segment with its new key, certified by the old one, and the
 *                        entry that tells it. Then the old key is overwritten. Archive and deletion follow (keeper.c).
 *
 * What a savepoint or a transaction undoes in the database is undone here by journal_undo: the state is one struct.
 * Thread: the store thread's, from the end of journal_open; the head that others see is guarded by the store's lock.
 * Inside server/store only. */
#pragma once
#include "server/store/audit_tree.h"
#include "server/store/store.h"

#define JOURNAL_FOLDER "audit"

struct journal_state { // what a transaction changes
	struct tree tree;
	int64_t bytes; // of the segment's entries
	int64_t newest_us;
};

struct journal_head { // what was committed last
	struct checkpoint checkpoint;
	char note[2048];
	struct note_key key, first_key;
	uint64_t segment;
};

struct journal {
	sqlite3 *db;
	char directory[4160]; // DIRECTORY/audit
	struct note_signer signer;
	struct note_signer spare; // of the next segment, when a commit of it failed; its key has no name otherwise
	struct note_key first_key;
	uint64_t segment, first; // the newest: its number, its first entry
	int64_t began_ms;
	struct journal_state open, done; // in the open transaction; as committed
	uint64_t signed_size;            // of the newest checkpoint in the database
	struct journal_head head;        // what was sealed last
	struct audit_tree source;
	sqlite3_stmt *put_node, *put_checkpoint, *drop_checkpoint;
	struct buffer bytes, note; // scratch
	enum status fault;         // of tree_append's callback
	struct error *fault_error;
};

// Open the log, or begin it; finish what a crash left of a rotation; sign what is not signed. `db` outlives it.
// Errors: STATUS_UNAVAILABLE, with a hint (the newest segment's key is not there or another one; the log does not fit
// its signed head); database_fault's.
enum status journal_open(struct journal *journal, sqlite3 *db, const char *directory, struct error *error);
void journal_close(struct journal *journal);

void journal_begin(struct journal *journal); // a transaction: from what was committed
// Give the next entry its number and leaf, and the tree its node. Errors: database_fault's; the caller rolls back.
enum status journal_add(struct journal *journal, struct journal_entry *entry, struct tree_hash *leaf,
			struct error *error);
// Sign what the transaction added, if anything: journal->head.
enum status journal_seal(struct journal *journal, struct error *error);
void journal_committed(struct journal *journal);
// Whether anything was added since journal_begin.
bool journal_grew(const struct journal *journal);

// The next segment's key, made and on disk, and its certificate signed by the segment's own.
struct journal_next {
	struct note_signer signer;
	struct buffer certificate;
	uint64_t number, first;
	int64_t began_ms;
};
enum status journal_prepare_next(struct journal *journal, struct journal_next *next, struct error *error);
// In a transaction: the new segment's row. From here on what is sealed is sealed with the new key.
enum status journal_put_next(struct journal *journal, struct journal_next *next, struct error *error);
void journal_take_next(struct journal *journal,
		       struct journal_next *next); // it was committed: the old key is destroyed
// It was not, or so it seems: a commit that failed at its last sync may be found whole after a crash. So the new key
// stays on disk until it is known, and the next attempt takes the same.
void journal_drop_next(struct journal *journal, struct journal_next *next);

// Rows of segment [first, end), whose archive stands and was verified, become rows of leaves; a slice of them, in a
// transaction of its own. *left: there are more.
enum status journal_shed(struct journal *journal, uint64_t first, uint64_t end, bool *left, struct error *error);
// A row of `SELECT seq, at_us, duration_us, count, ENTRY_TEXT_LIST...` as an entry; texts are valid until its next
// step. False: a text holds a 0.
bool journal_row(sqlite3_stmt *row, struct journal_entry *entry);
#define JOURNAL_COLUMNS \
	"seq, at_us, duration_us, count, actor, actor_name, session_id, peer, action, target, node_id, device_id, " \
	"outcome, detail"
