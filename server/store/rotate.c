/* The audit log's segments, on the store thread: when one ends, what follows its archive, and in what pieces.
 *
 * The key goes first, in one short commit, so that an attacker who comes later can sign nothing that is older. The
 * archive is written beside the work by the keeper (audit_keeper.c); only when it stands, synced and verified, is it
 * written down here, and then the rows go, some thousand in a commit, each such commit keeping their hashes. A crash at
 * any point leaves either the old state or the new one of a step, and a start finds what is still to do in the
 * database: segments without an archive, rows of segments that have one, keys of segments that are not the newest. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/store/database.h"
#include "server/store/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { RETRY_MS = 60000, DAY_MS = 86400000 };

static enum status make_entry(struct store_batch **batch, uint64_t segment)
{
	char target[32], detail[64];
	snprintf(target, sizeof target, "segment %" PRIu64, segment);
	snprintf(detail, sizeof detail, "{\"ended\":%" PRIu64 "}", segment - 1);
	const struct journal_entry entry = {.count = 1,
					    .actor = "server",
					    .action = "audit.rotate",
					    .target = target,
					    .outcome = "ok",
					    .detail = detail};
	enum status status = store_batch_create(batch);
	return status ? status : store_put_audit(*batch, &entry);
}

static enum status commit_next(struct store *store, struct journal_next *next, struct store_batch *batch,
			       struct error *error)
{
	journal_begin(&store->journal);
	enum status status = batch_step(store->state, store->statements[BATCH_BEGIN], error);
	if (!status)
		status = journal_put_next(&store->journal, next, error);
	if (!status)
		status = batch_run(batch, store->state, store->statements, &store->journal, error);
	if (!status)
		status = journal_seal(&store->journal, error);
	if (!status)
		status = batch_step(store->state, store->statements[BATCH_COMMIT], error);
	if (status && !sqlite3_get_autocommit(store->state))
		batch_step(store->state, store->statements[BATCH_ROLLBACK], NULL);
	if (!status)
		store_show_head(store);
	return status;
}

enum status store_rotate(struct store *store, struct error *error)
{
	struct journal_next next;
	struct store_batch *batch = NULL;
	if (store->journal.done.tree.size == store->journal.first)
		return error_set(error, STATUS_CONFLICT, "the audit log's newest segment is empty");
	enum status status = make_entry(&batch, store->journal.segment + 1);
	if (!status) {
		status = journal_prepare_next(&store->journal, &next, error);
		if (!status)
			status = commit_next(store, &next, batch, error);
		if (status)
			journal_drop_next(&store->journal, &next);
		else
			journal_take_next(&store->journal, &next);
	}
	if (status) {
		journal_begin(&store->journal);
		store_batch_destroy(&batch);
		return status;
	}
	log_info("audit", "segment %" PRIu64 " of the log begins with entry %" PRIu64, store->journal.segment,
		 store->journal.first);
	batch->status = STATUS_OK;
	store_post_batch(store, batch);
	store_wake_keeper(store);
	return STATUS_OK;
}

void store_rotate_if_due(struct store *store)
{
	const struct journal *journal = &store->journal;
	const int64_t entries = (int64_t)(journal->done.tree.size - journal->first);
	const int64_t now_ms = clock_wall_ms();
	bool due = entries >= store->audit_segment_entries || journal->done.bytes >= store->audit_segment_bytes ||
		   now_ms - journal->began_ms >= store->audit_segment_ms;
	if (!due || !entries || clock_steady_ms() < store->rotate_after_ms)
		return;
	struct error error = {.status = STATUS_OK};
	if (store_rotate(store, &error)) {
		store->rotate_after_ms = clock_steady_ms() + RETRY_MS;
		log_warning("audit", "the log's segment could not be ended, and goes on: %s", error.message);
	}
}

// ---- what follows an archive ----

static void mark(struct store *store, const struct audit_mark *mark)
{
	struct error error = {.status = STATUS_OK};
	sqlite3_stmt *statement = NULL;
	enum status status = database_prepare(
		store->state, "UPDATE audit_segments SET archive = ?2, pruned_ms = ?3 WHERE number = ?1", &statement,
		&error);
	if (!status) {
		sqlite3_bind_int64(statement, 1, (int64_t)mark->number);
		sqlite3_bind_text(statement, 2, mark->archive, -1, SQLITE_STATIC);
		sqlite3_bind_int64(statement, 3, mark->pruned_ms);
		status = batch_step(store->state, statement, &error);
	}
	sqlite3_finalize(statement);
	if (status) { // the keeper finds it when it looks again, within the hour
		log_warning("audit", "an archive could not be written down, and will be made again: %s", error.message);
		return;
	}
	store_find_shed(store);
	store_wake_keeper(store);
}

void store_mark_archives(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	struct audit_mark *first = store->marks;
	pthread_mutex_unlock(&store->lock);
	while (first) { // it stays in the list until it is written down: the keeper waits for that
		mark(store, first);
		pthread_mutex_lock(&store->lock);
		store->marks = first->next;
		free(first);
		first = store->marks;
		pthread_cond_signal(&store->desks[1].wake);
		pthread_mutex_unlock(&store->lock);
	}
}

// Rows that are archived and still here: [shed_first, shed_end).
void store_find_shed(struct store *store)
{
	sqlite3_stmt *row = NULL;
	struct error error = {.status = STATUS_OK};
	enum status status = database_prepare(
		store->state,
		"SELECT (SELECT min(seq) FROM audit WHERE seq >= 0), (SELECT min(first) FROM audit_segments WHERE "
		"archive = '')",
		&row, &error);
	store->shed_first = store->shed_end = 0;
	if (!status && sqlite3_step(row) == SQLITE_ROW && sqlite3_column_type(row, 0) != SQLITE_NULL &&
	    sqlite3_column_int64(row, 0) < sqlite3_column_int64(row, 1)) {
		store->shed_first = (uint64_t)sqlite3_column_int64(row, 0);
		store->shed_end = (uint64_t)sqlite3_column_int64(row, 1);
	}
	sqlite3_finalize(row);
}

bool store_shed(struct store *store)
{
	struct error error = {.status = STATUS_OK};
	bool left = false;
	if (store->shed_first >= store->shed_end || clock_steady_ms() < store->shed_after_ms)
		return false;
	if (journal_shed(&store->journal, store->shed_first, store->shed_end, &left, &error)) {
		store->shed_after_ms = clock_steady_ms() + RETRY_MS;
		log_warning("audit", "archived entries stay in state.db for now: %s", error.message);
		return false;
	}
	store_find_shed(store);
	if (store->shed_first >= store->shed_end)
		store_wake_keeper(store);
	return true;
}

void store_audit_defaults(struct store *store, const struct store_params *params)
{
	store->audit_segment_entries = params->audit_segment_entries ? params->audit_segment_entries
								     : LIMIT_AUDIT_SEGMENT_ENTRIES;
	store->audit_segment_bytes = params->audit_segment_bytes ? params->audit_segment_bytes
								 : LIMIT_AUDIT_SEGMENT_BYTES;
	store->audit_segment_ms = (params->audit_segment_days ? params->audit_segment_days : LIMIT_AUDIT_SEGMENT_DAYS) *
				  (int64_t)DAY_MS;
	store->audit_keep_ms = (params->audit_keep_days ? params->audit_keep_days : LIMIT_AUDIT_KEEP_DAYS) *
			       (int64_t)DAY_MS;
}
