/* The audit log's segments, on the store thread: when one ends, and the steps after its archive. The
 * key is replaced first, in one short commit, so that a later attacker cannot sign anything older. The
 * keeper writes the archive (audit_keeper.c). When it exists, synced and verified, a commit records
 * that; then the rows are deleted, some thousand in a commit, each keeping their hashes. A crash
 * leaves the old or the new state of a step. A start finds the remaining work in the database:
 * segments without an archive, rows of segments that have one, keys of segments that are not the
 * newest. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/journal/archive.h"
#include "server/store/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { RETRY_MS = 60000, DAY_MS = 86400000 };

// A batch of one entry, by the server.
static enum status make_entry(struct store_batch **batch, const char *action, const char *target, const char *detail)
{
	const struct journal_entry entry = {
		.count = 1, .actor = "server", .action = action, .target = target, .outcome = "ok", .detail = detail};
	enum status status = store_batch_create(batch);
	return status ? status : store_put_audit(*batch, &entry);
}

// A segment begins with all that is bound. Of a log that bound nothing before, that is what stands in the database, and
// an entry says so.
static enum status begin_segment(struct store *store, struct journal_next *next, struct store_batch *batch,
				 struct error *error)
{
	size_t adopted = 0;
	enum status status = next ? journal_put_next(&store->journal, next, error) : STATUS_OK;
	if (!status)
		status = journal_restate(&store->journal, store->journal.unbound, &adopted, error);
	if (!status && adopted) {
		const struct journal_entry entry = {.count = adopted,
						    .actor = "server",
						    .action = "state.taken",
						    .outcome = "ok",
						    .detail = "{\"why\":\"the log bound no rows before\"}"};
		status = store_put_audit(batch, &entry);
	}
	return status;
}

// Commit the batch, and with it the next segment if there is one to begin. work (may be NULL): what the transaction
// does first.
static enum status commit_entry(struct store *store, struct journal_next *next, const struct store_work *work,
				struct store_batch *batch, struct error *error)
{
	const bool begins = next || !store->journal.done.tree.size;
	journal_begin(&store->journal);
	store->journal.adopting = begins;
	enum status status = db_begin(store->state, DB_WRITE, error);
	if (!status && store->journal.fresh)
		status = journal_put_first(&store->journal, error);
	if (!status && work)
		status = work->run(work->context, batch, error);
	if (!status && begins)
		status = begin_segment(store, next, batch, error);
	if (!status && store->journal.tail)
		status = journal_take_tail(&store->journal, error);
	if (!status)
		status = batch_run(batch, store->state, store->statements, &store->journal, error);
	if (begins)
		store->journal.open.bytes = 0; // what is said again does not fill the segment
	if (!status)
		status = journal_seal(&store->journal, error);
	if (!status)
		status = db_commit(store->state, error);
	if (status)
		db_rollback(store->state);
	store->journal.adopting = false;
	if (status)
		journal_begin(&store->journal);
	else
		store_show_head(store);
	if (!status && store->journal.fresh)
		status = journal_take_first(&store->journal, error);
	if (!status && begins) {
		store->journal.unbound = false;
		store->journal.restated = store->journal.done.tree.size - store->journal.first - (next != NULL);
	}
	return status;
}

enum status store_accept_tail(struct store *store, const char *range, struct error *error)
{
	struct store_batch *batch = NULL;
	char target[64];
	if (!store->journal.tail)
		return STATUS_OK;
	snprintf(target, sizeof target, "entries %.48s", range);
	enum status status = make_entry(&batch, "audit.accept", target, "{}");
	if (!status)
		status = commit_entry(store, NULL, NULL, batch, error);
	store_batch_destroy(&batch);
	store->journal.tail = false;
	if (!status)
		log_warning("audit", "entries %s had not been signed; they are now, as --accept-unsigned says", range);
	return status;
}

enum status store_rotate(struct store *store, const struct store_work *work, struct error *error)
{
	struct journal_next next;
	struct store_batch *batch = NULL;
	if (store->journal.done.tree.size == store->journal.first)
		return error_set(error, STATUS_CONFLICT, "the audit log's newest segment is empty");
	char target[32], detail[64];
	snprintf(target, sizeof target, "segment %" PRIu64, store->journal.segment + 1);
	snprintf(detail, sizeof detail, "{\"ended\":%" PRIu64 "}", store->journal.segment);
	enum status status = make_entry(&batch, "audit.rotate", target, detail);
	if (!status) {
		status = journal_prepare_next(&store->journal, &next, error);
		if (!status && store->share_key)
			status = store->share_key(store->key_context, next.number, error);
		if (!status)
			status = commit_entry(store, &next, work, batch, error);
		if (status)
			journal_drop_next(&store->journal, &next);
		else
			journal_take_next(&store->journal, &next);
		if (!status && store->forget_key)
			store->forget_key(store->key_context, store->journal.segment - 1);
	}
	if (status) {
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

enum status store_adopt(struct store *store, struct error *error)
{
	const bool unbound = store->journal.unbound;
	if (!unbound && !store->journal.fresh)
		return STATUS_OK;
	enum status status = STATUS_OK;
	if (store->journal.done.tree.size > store->journal.first) {
		status = store_rotate(store, NULL, error);
	} else { // there was no log at all
		struct store_batch *batch = NULL;
		if (store_batch_create(&batch))
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the audit log");
		status = commit_entry(store, NULL, NULL, batch, error);
		store_batch_destroy(&batch);
	}
	if (!status && unbound && store->journal.done.tree.size)
		log_info("audit", "the rows of state.db are bound to the audit log from here on, as they stand");
	return status;
}

void store_rotate_if_due(struct store *store)
{
	const struct journal *journal = &store->journal;
	const int64_t entries = (int64_t)(journal->done.tree.size - journal->first - journal->restated);
	const int64_t now_ms = clock_wall_ms();
	bool due = entries >= store->audit_segment_entries || journal->done.bytes >= store->audit_segment_bytes ||
		   now_ms - journal->began_ms >= store->audit_segment_ms;
	if (!due || !entries || clock_steady_ms() < store->rotate_after_ms)
		return;
	struct error error = {.status = STATUS_OK};
	if (store_rotate(store, NULL, &error)) {
		store->rotate_after_ms = clock_steady_ms() + RETRY_MS;
		log_warning("audit", "the log's segment could not be ended, and goes on: %s", error.message);
	}
}

// ---- what follows an archive ----

void audit_mark_destroy(struct audit_mark *mark)
{
	archive_writer_destroy(&mark->writer);
	free(mark);
}

// The entry of the newest segment that has said this already, or -1: a server that was killed before the archive was
// replaced has left it, and says the same again only if it cannot see that.
static int64_t told(struct store *store, const char *action, const char *target)
{
	struct db_statement *row = NULL;
	int64_t seq = -1;
	if (db_prepare(store->state, "SELECT seq FROM audit WHERE action = ?1 AND target = ?2", &row, NULL))
		return -1;
	db_bind_text(row, 1, action);
	db_bind_text(row, 2, target);
	if (db_step(row) == DB_ROW)
		seq = db_integer(row, 0);
	db_finalize(row);
	return seq;
}

// The log says what is about to be removed, and by which rule; then the archive is replaced by its pruned one.
static enum status prune(struct store *store, struct audit_mark *mark, struct error *error)
{
	char target[PRUNING_TEXT_BYTES], detail[128];
	struct store_batch *batch = NULL;
	enum status status = STATUS_OK;
	pruning_print(&mark->pruning, target);
	snprintf(detail, sizeof detail, "{\"segment\":%" PRIu64 ",\"rule\":\"audit_keep_days\",\"days\":%lld}",
		 mark->number, (long long)(store->audit_keep_ms / DAY_MS));
	mark->pruned_by = mark->pruning.removed ? told(store, "audit.prune", target) : -1;
	if (mark->pruning.removed && mark->pruned_by < 0) {
		status = make_entry(&batch, "audit.prune", target, detail);
		if (!status)
			status = commit_entry(store, NULL, NULL, batch, error);
		if (status) {
			store_batch_destroy(&batch);
			return status;
		}
		mark->pruned_by = (int64_t)store->journal.done.tree.size - 1;
		batch->status = STATUS_OK;
		store_post_batch(store, batch);
	}
	status = archive_writer_finish(&mark->writer, NULL, 0, error);
	if (!status)
		log_info("audit", "segment %" PRIu64 " of the log is pruned: %s are kept by their hashes alone, in %s",
			 mark->number, target, mark->archive);
	return status;
}

static void mark(struct store *store, struct audit_mark *mark)
{
	struct error error = {.status = STATUS_OK};
	struct db_statement *statement = NULL;
	enum status status = mark->writer ? prune(store, mark, &error) : STATUS_OK;
	if (!status)
		status = db_prepare(store->state,
				    "UPDATE audit_segments SET archive = ?2, pruned_ms = ?3, pruned_by = ?4 WHERE "
				    "number = ?1",
				    &statement, &error);
	if (!status) {
		db_bind_integer(statement, 1, (int64_t)mark->number);
		db_bind_text(statement, 2, mark->archive);
		db_bind_integer(statement, 3, mark->pruned_ms);
		if (mark->pruned_by >= 0)
			db_bind_integer(statement, 4, mark->pruned_by);
		status = db_execute(statement, &error);
	}
	db_finalize(statement);
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
		audit_mark_destroy(first);
		first = store->marks;
		pthread_cond_signal(&store->desks[1].wake);
		pthread_mutex_unlock(&store->lock);
	}
}

// Rows that are archived and still here: [shed_first, shed_end).
void store_find_shed(struct store *store)
{
	struct db_statement *row = NULL;
	struct error error = {.status = STATUS_OK};
	enum status status = db_prepare(
		store->state,
		"SELECT (SELECT min(seq) FROM audit WHERE seq >= 0), (SELECT min(first) FROM audit_segments WHERE "
		"archive = '')",
		&row, &error);
	store->shed_first = store->shed_end = 0;
	if (!status && db_step(row) == DB_ROW && db_type(row, 0) != DB_NULL &&
	    db_integer(row, 0) < db_integer(row, 1)) {
		store->shed_first = (uint64_t)db_integer(row, 0);
		store->shed_end = (uint64_t)db_integer(row, 1);
	}
	db_finalize(row);
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
