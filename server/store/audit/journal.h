/* The audit log's end that grows: numbering, hashing and signing entries, in the transaction that writes them.
 *
 *     run of batches     each entry: its seq, its leaf, the subtrees that are complete with it
 *     before COMMIT      journal_seal: one checkpoint for all that was added, signed with the segment's key
 *     after COMMIT       journal_committed: the new head is what others see
 *     rotation           a transaction of its own: the next segment with its new key, certified by the old one, and the
 *                        entry that tells it. Then the old key is overwritten. Archive and deletion follow (keeper.c).
 *
 * What a savepoint or a transaction undoes in the database is undone here by journal_undo.
 * Thread: the store thread's, from the end of journal_open; the head that others see is guarded by the store's lock.
 * Inside server/store only. */
#pragma once
#include "server/store/audit/audit_tree.h"
#include "server/store/audit/bound.h"
#include "server/store/store.h"

#define JOURNAL_FOLDER "audit"

struct journal_state { // what a transaction changes
	struct tree tree;
	int64_t bytes; // of the segment's entries
	int64_t newest_us;
	uint64_t newest_bound; // the newest entry that binds rows; ENTRY_NONE
	size_t mark;           // in the table of what is bound
};

struct journal_head { // what was committed last
	struct checkpoint checkpoint;
	char note[2048];
	struct note_key key, first_key;
	uint64_t segment;
};

struct journal {
	struct db *db;
	char directory[4160]; // DIRECTORY/audit
	struct note_signer signer;
	struct note_signer spare; // of the next segment, when a commit of it failed; its key has no name otherwise
	struct note_key first_key;
	uint64_t segment, first; // the newest: its number, its first entry
	int64_t began_ms;
	struct journal_state open, done; // in the open transaction; as committed
	uint64_t signed_size;            // of the newest checkpoint in the database
	bool tail;                       // accepted entries stand behind it
	struct journal_head head;        // what was sealed last
	struct audit_tree source;
	struct bound *bound;
	bool unbound;         // the log is of a version that bound no rows: they are taken as they stand
	bool adopting;        // by the transaction that is open
	bool fresh;           // there is no log: the next transaction begins it
	uint64_t restated;    // entries at the segment's beginning that repeat what is bound
	struct buffer unsaid; // lines that no entry of the batch has named yet
	size_t said;          // of them, bytes that were
	struct db_statement *put_node, *put_checkpoint, *drop_checkpoint;
	struct buffer bytes, note; // scratch
	enum status fault;         // of tree_append's callback
	struct error *fault_error;
};

struct journal_params {
	const char *directory;
	const char *accept_unsigned; // "FIRST-LAST": entries behind the newest head that are to be signed; NULL: none
};
// Open the log, or make ready to begin it (journal->fresh); finish what a crash left of a rotation. `db` outlives it.
// Errors: STATUS_UNAVAILABLE, with a hint (the newest segment's key is not there or another one; the log does not fit
// its signed head; entries stand behind it, and are not those that are accepted); db_fault's.
enum status journal_open(struct journal *journal, struct db *db, const struct journal_params *params,
			 struct error *error);
// In a transaction, where journal->fresh: the first segment, and the head of the empty log. Then, once it was
// committed: the key gets its name.
enum status journal_put_first(struct journal *journal, struct error *error);
enum status journal_take_first(struct journal *journal, struct error *error);
// In a transaction, where journal->tail: add the accepted entries, which stand in the table, to the tree.
enum status journal_take_tail(struct journal *journal, struct error *error);
void journal_close(struct journal *journal);

void journal_begin(struct journal *journal); // a transaction: from what was committed
// The state of the open segment, to which journal_undo returns.
struct journal_state journal_mark(struct journal *journal);
void journal_undo(struct journal *journal, const struct journal_state *before);
// A row of state.db is about to hold what has this digest; NULL: it goes. An entry has to say so, unless it held
// before.
enum status journal_bind(struct journal *journal, const char *subject, const struct tree_hash *digest,
			 struct error *error);
// All rows that are bound, to be said again. adopt: after those that stand in the database were taken as they are.
enum status journal_restate(struct journal *journal, bool adopt, size_t *adopted, struct error *error);
bool journal_has_bound(const struct journal *journal); // lines that no entry has named
// As many of these as fit into this entry. NULL: out of memory. The caller frees it.
char *journal_take_bound(struct journal *journal, const struct journal_entry *entry);
// At the start: what the newest segment's entries bind. Errors: db_fault's; STATUS_UNAVAILABLE (the log's entries
// are not those that were signed).
enum status journal_load_bound(struct journal *journal, struct error *error);
// Give the next entry its number and leaf, and the tree its node. Errors: db_fault's; the caller rolls back.
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
bool journal_row(struct db_statement *row, struct journal_entry *entry);
#define JOURNAL_COLUMNS_FIRST \
	"seq, at_us, duration_us, count, actor, actor_name, session_id, peer, action, target, node_id, device_id, " \
	"outcome, detail"
#define JOURNAL_COLUMNS JOURNAL_COLUMNS_FIRST ", bound, bound_before"
#define JOURNAL_COLUMNS_UNBOUND JOURNAL_COLUMNS_FIRST ", NULL, NULL" // of a database of before
enum { JOURNAL_LEAF_COLUMN = 16 };                                   // where `leaf` stands behind these
