/* The store's own shape, for the files of server/store.
 *
 *   loop thread  --batches, minutes-->  store thread   (state.db and history.db, the only writer and checkpointer)
 *   loop thread  --queries----------->  reader thread  (history.db, read-only)
 *   loop thread  --audit_job--------->  two threads    (state.db, read-only; audit_reader.h)
 *   all threads  --outcomes---------->  loop thread    (one list; an eventfd that the loop watches wakes it)
 *
 * One lock guards the queues, the outcomes and the figures; no thread holds it while it works on a database. */
#pragma once
#include "server/store/audit/audit_reader.h"
#include "server/store/batch.h"
#include "server/store/history.h"

#include <pthread.h>
#include <stdatomic.h>

struct store_query {
	struct store_outcome outcome; // first member
	struct store_query *next;
	enum store_kind kind;
	char series[STORE_SERIES_BYTES];
	int64_t from_ms, to_ms, step_ms;
	store_history_done *done;
	void *context;
	enum status status;
	struct store_history history;
};

struct store_minutes { // one call of store_add_minutes
	struct store_minutes *next;
	size_t count;
	struct store_minute *minutes;    // (count); series points into ids
	char (*ids)[STORE_SERIES_BYTES]; // (count)
};

struct store {
	struct net_loop *loop;
	char directory[4096];
	char *url; // NULL: SQLite, in the directory
	int64_t turn;
	enum status (*share_key)(void *context, uint64_t segment, struct error *error); // NULL: one server
	void (*forget_key)(void *context, uint64_t segment);
	void *key_context;

	// Loop thread.
	struct db *loading; // read-only on state.db
	char *setting;      // store_load_setting's answer
	bool unread;        // one could not be read: nothing may be made in its place
	struct net_watch *watch;
	void (*audit_entry)(void *context, const struct journal_entry *entry); // may be NULL
	void *audit_context;
	struct journal_head shown_head; // store_read_audit_head's answer
	bool verifying;

	// Store thread, from its start to its end.
	struct db *state;
	struct db_statement *statements[BATCH_STATEMENTS];
	uint64_t wrong_pages; // of state.db, that were told
	struct history_writer history;
	int prune_slices; // still to do
	struct journal journal;
	uint64_t shed_first, shed_end;          // archived entries that are still here
	int64_t rotate_after_ms, shed_after_ms; // steady: not before, after a failure
	bool failing; // the last commit failed: that was said, and the next that does not is said

	// Reader thread.
	struct history_reader reader;
	unsigned reader_generation;

	// Said when it was created.
	int64_t audit_segment_entries, audit_segment_bytes, audit_segment_ms, audit_keep_ms;

	pthread_t writer_thread, reader_thread;
	bool writer_started, reader_started;
	int wake; // eventfd: outcomes wait. Written by any thread, closed by the watch

	atomic_bool stop, reader_stop;
	atomic_uint history_generation; // counts replacements; the reader opens the new file when it differs
	atomic_uint history_damaged;    // the generation after the one that the reader found damaged: it is to come

	pthread_mutex_t lock;
	pthread_cond_t work, queries, finished; // store thread, reader thread, store_commit_wait
	// Under lock.
	struct store_batch *first_batch, *last_batch;
	size_t batches;
	struct store_minutes *first_minutes, *last_minutes;
	size_t minutes; // rows that wait
	struct store_query *first_query, *last_query;
	size_t queries_waiting;
	struct store_outcome *first_outcome, *last_outcome;
	struct audit_desk desks[2]; // questions; the keeper
	struct audit_job *rotations;
	struct audit_mark *marks;
	struct journal_head head;
	struct store_stats stats;
};

// Hand outcomes to the loop thread, in order. Any thread.
void store_post(struct store *store, struct store_outcome *outcome);
void store_minutes_destroy(struct store_minutes **job);
// The threads' main functions; the argument is the store.
void *store_writer_main(void *argument);
void *store_reader_main(void *argument);

// Store thread. A transaction that added to the log was committed: others see its head from now on.
void store_show_head(struct store *store);
// Pages of state.db that were found not to be as they were written, if there are new ones: into the log and the
// figures.
void store_tell_wrong_pages(struct store *store);
// A batch that was committed or failed, to the loop; it is freed there.
void store_post_batch(struct store *store, struct store_batch *batch);
// The keeper looks for segments to archive.
void store_wake_keeper(struct store *store);
// rotate.c
void store_audit_defaults(struct store *store, const struct store_params *params);
// Sign the entries behind the newest head that were accepted, and the entry that tells it. Before the threads.
enum status store_accept_tail(struct store *store, const char *range, struct error *error);
struct store_work { // of a transaction; entries that it puts into the batch are part of it
	enum status (*run)(void *context, struct store_batch *batch, struct error *error);
	void *context;
};
// End the log's segment. work (may be NULL) is done in the same transaction: with it the next segment begins, or
// neither.
enum status store_rotate(struct store *store, const struct store_work *work, struct error *error);
void store_rotate_if_due(struct store *store);
// At the start, before the threads: a log of before rows were bound takes them as they are, under a new key, so that no
// copy of state.db from before can be put back for that. Errors: db_fault's.
enum status store_adopt(struct store *store, struct error *error);
// load.c: at the start, before the threads: the log's words for rows that are refused, or missing.
enum status store_say_refused(struct store *store, struct error *error);
// settle.c: likewise, in its place where rows are to be settled.
enum status store_settle(struct store *store, const struct store_settling *params, struct error *error);
void store_mark_archives(struct store *store); // what the keeper has made
void store_find_shed(struct store *store);
bool store_shed(struct store *store); // a slice; false: nothing to do
