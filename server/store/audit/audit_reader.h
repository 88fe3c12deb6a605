/* Questions about the audit log, and what is done for it beside the work: two threads, each with a read-only
 * connection of its own, so that a list does not wait for a verification, nor a chart for either.
 *
 *   questions   lists and proofs, milliseconds
 *   keeper      verification; and whenever a segment has ended: its archive, which the store thread then marks and
 * whose rows it takes away; and archives whose entries are older than they are kept for, pruned to hashes
 *
 * Thread: as each function says. Inside server/store only. */
#pragma once
#include "common/journal/pruning.h"
#include "server/store/audit/audit_tree.h"
#include "server/store/batch.h"

#include <pthread.h>
#include <stdatomic.h>

struct store;

enum audit_job_kind { AUDIT_JOB_LIST, AUDIT_JOB_PROVE, AUDIT_JOB_VERIFY, AUDIT_JOB_ROTATE };

struct audit_job {
	struct store_outcome outcome; // first member
	struct audit_job *next;
	struct store *store;
	enum audit_job_kind kind;
	struct store_audit_filter filter; // texts in `texts`
	char texts[1024];
	uint64_t from, to;
	store_audit_done *done;
	void *context;
	struct json *memories; // of a verification: [{note, who}]
	enum status status;
	struct json *result;
	struct error error;
};

struct audit_desk { // guarded by the store's lock, but for what is the thread's own
	struct store *store;
	pthread_t thread;
	pthread_cond_t wake;
	bool started, keeper;
	bool look; // the keeper: something may be due
	struct audit_job *first, *last;
	size_t waiting;
	// The thread's own.
	struct db *db;
	struct audit_tree tree;
	struct archive_index *index, *telling; // of the archives that were listed last, and that told of a pruning
	bool retry;                            // an archive could not be made: try again before the hour is over
	int64_t unprunable; // the last segment whose archive could not be pruned, -1 if none: those after it are tried
};

// A segment's archive stands: for the store thread to write down. Or its pruned one does, which still has no name: it
// gets it when the log has the entry that tells it.
struct audit_mark {
	struct audit_mark *next;
	uint64_t number;
	char archive[128];
	int64_t pruned_ms; // 0: it is not pruned
	int64_t pruned_by; // the entry that tells it; -1: none
	struct pruning pruning;
	struct archive_writer *writer; // of a pruned one
};
void audit_mark_destroy(struct audit_mark *mark);

// The desks' main function; the argument is the desk.
void *audit_desk_main(void *argument);
// Answer a job: the status, *result and *error of it are set. On the desk's thread.
void audit_list(struct audit_desk *desk, struct audit_job *job);
void audit_prove(struct audit_desk *desk, struct audit_job *job);
void audit_verify(struct audit_desk *desk, struct audit_job *job);
// Make the archives that are due. On the keeper's thread. Errors: the disk's, the log's own; said in the log.
void audit_keep(struct audit_desk *desk);
// Store thread: the job's outcome to the loop.
void audit_job_post(struct audit_job *job);
// Loop thread, when the store goes.
void audit_job_destroy(struct audit_job **job);
