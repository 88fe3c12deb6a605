/* A batch: statements with copies of their values, to be run in one transaction. The
 * statements that change state.db are a fixed list, prepared once by the store thread. A batch
 * is filled on the loop thread, then belongs to the store until its outcome is delivered. Rows
 * that grant something are bound to the audit log when they are run (bound.h): the batch's
 * entries name them; if there are too many, or no entry, entries are added. Inside
 * server/store only. */
#pragma once
#include "server/store/audit/journal.h"
#include "server/store/db.h"

enum batch_statement {
	BATCH_PUT_SETTING,
	BATCH_PUT_NODE,
	BATCH_PUT_DEVICE,
	BATCH_PUT_TOKEN,
	BATCH_ORPHAN_TOKENS,
	BATCH_REMOVE_TOKEN,
	BATCH_PUT_CONVERSATION,
	BATCH_REMOVE_CONVERSATION,
	BATCH_REMOVE_CONVERSATIONS, // of a token
	BATCH_PUT_CHANGE,
	BATCH_TRIM_CHANGES,
	BATCH_PUT_CERTIFICATE,
	BATCH_REMOVE_CERTIFICATE,
	BATCH_PUT_TICKET,
	BATCH_REMOVE_TICKET,
	BATCH_PUT_LEND,
	BATCH_REMOVE_LEND,
	BATCH_PUT_TAB,
	BATCH_REMOVE_TAB,
	BATCH_PUT_MODEL,
	BATCH_REMOVE_MODEL,
	BATCH_PUT_INSTANCE,
	BATCH_CHANGE_INSTANCE,
	BATCH_REMOVE_INSTANCE,
	BATCH_PUT_LINK,
	BATCH_REMOVE_LINKS,
	BATCH_PUT_LAYER_TIME,
	BATCH_REMOVE_LAYER_TIMES,
	BATCH_REMOVE_DEVICES,
	BATCH_REMOVE_NODE,
	BATCH_LIST_DEVICES, // of a node, before they are removed
	BATCH_PUT_ALERT,
	BATCH_TRIM_ALERTS,
	BATCH_PUT_USAGE,
	BATCH_TRIM_USAGE,
	BATCH_PUT_CHANNEL,
	BATCH_CHANNEL_RESULT,
	BATCH_REMOVE_CHANNEL,
	BATCH_PUT_DELIVERY,
	BATCH_REMOVE_DELIVERIES, // of a channel
	BATCH_REMOVE_DELIVERY,
	BATCH_PUT_AUDIT,
	BATCH_PUT_COSIGNED,
	BATCH_TRIM_COSIGNED,
	BATCH_STATEMENTS,
};

// An outcome waits to be told to the loop thread; its owner embeds it. deliver frees the owner, and tells it before
// that, unless the store is going away.
struct store_outcome {
	struct store_outcome *next;
	void (*deliver)(struct store_outcome *outcome, bool tell);
};

struct store_waiter { // guarded by the store's lock
	bool finished;
	enum status status;
	struct error error;
};

enum { AUDIT_OVERHEAD = 128 }; // bytes of an encoded entry that are not its texts, and some more
// Values of an entry: its numbers, its texts, and behind them what the store thread gives it (journal.h).
enum { AUDIT_TEXTS_AT = 4, AUDIT_BOUND_AT = AUDIT_TEXTS_AT + ENTRY_TEXTS, AUDIT_BEFORE_AT, AUDIT_VALUES };
enum { BATCH_VALUES = AUDIT_VALUES }; // of the widest statement

struct batch_row { // one statement and its values
	struct batch_row *next;
	enum batch_statement statement;
	size_t count;
	char *bound;                          // of an entry, once it is numbered
	struct db_value values[BATCH_VALUES]; // bytes point behind the row
};

struct store_batch {
	struct store_outcome outcome; // first member: an outcome is its batch
	struct store_batch *next;     // in the store's queue
	struct batch_row *first, *last;
	size_t rows, entries; // entries: of them, of the audit log
	bool failed;          // a put call ran out of memory or over the limit: the batch cannot be committed
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
	struct store *store;         // once it was run
	struct store_waiter *waiter; // store_commit_wait; NULL: nobody waits
	enum status status;
	struct error error;
};

// Prepare all; statements already prepared are left. Errors: db_fault's.
enum status batch_prepare(struct db *db, struct db_statement *statements[BATCH_STATEMENTS], struct error *error);
void batch_finalize(struct db_statement *statements[BATCH_STATEMENTS]);
// Run all rows in the transaction that is open; entries of the audit log are numbered by the journal. Errors:
// db_fault's; the caller rolls back.
enum status batch_run(struct store_batch *batch, struct db *db, struct db_statement *statements[BATCH_STATEMENTS],
		      struct journal *journal, struct error *error);
// All of it has been done, as db_settle says.
enum status batch_settle(const struct store_batch *batch, struct db *db, struct error *error);
// Each entry of the audit log in a batch that was committed.
void batch_tell_entries(const struct store_batch *batch, void (*tell)(void *context, const struct journal_entry *entry),
			void *context);
