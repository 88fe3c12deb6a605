/* The store thread: the only writer and checkpointer of both databases. It takes all waiting
 * batches (the next group gathers while one commit runs), runs each inside a SAVEPOINT, so
 * that a refused batch fails alone, and commits once. If the commit fails, it tries batch by
 * batch, so that a full disk refuses only what does not fit. Then come minute averages. Old
 * minutes are deleted in slices when nothing waits. The -wal files are emptied into their
 * databases at 1,000 pages without waiting for readers, and completely after a second without
 * work. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/store/inside.h"

#include <time.h>

enum {
	IDLE_MS = 1000,
	AGAIN_MS = 1000,
	ROWS_PER_SLICE = 960, // a slice prunes 16 devices, and each device is to be pruned once in 60 minutes
	DAY_MINUTES = 24 * 60,
};

static void deliver_batch(struct store_outcome *outcome, bool tell)
{
	struct store_batch *batch = (struct store_batch *)outcome;
	struct store *store = batch->store;
	if (tell && !batch->status && batch->entries && store->audit_entry)
		batch_tell_entries(batch, store->audit_entry, store->audit_context);
	if (tell && batch->done)
		batch->done(batch->context, batch->status, &batch->error);
	store_batch_destroy(&batch);
}

void store_post_batch(struct store *store, struct store_batch *batch)
{
	batch->store = store;
	batch->outcome.deliver = deliver_batch;
	store_post(store, &batch->outcome);
}

void store_show_head(struct store *store)
{
	journal_committed(&store->journal);
	pthread_mutex_lock(&store->lock);
	store->head = store->journal.head;
	pthread_mutex_unlock(&store->lock);
}

// Run a batch in the open transaction, or none of it. The batch's status says which; false if the transaction was lost.
static bool run_in_savepoint(struct store *store, struct store_batch *batch)
{
	batch->error = (struct error){.status = STATUS_OK};
	const struct journal_state before = journal_mark(&store->journal);
	batch->status = db_mark(store->state, &batch->error);
	if (!batch->status) {
		batch->status = batch_run(batch, store->state, store->statements, &store->journal, &batch->error);
		if (!batch->status)
			batch->status = batch_settle(batch, store->state, &batch->error);
		if (batch->status)
			journal_undo(&store->journal, &before);
		if (batch->status && db_in_transaction(store->state))
			db_undo(store->state);
		if (db_in_transaction(store->state))
			db_release(store->state);
	}
	return db_in_transaction(store->state);
}

// Run a batch in the open transaction; what it was refused for shows with the others'.
static enum status run_plainly(struct store *store, struct store_batch *batch, struct error *error)
{
	batch->error = (struct error){.status = STATUS_OK};
	batch->status = STATUS_OK;
	return batch_run(batch, store->state, store->statements, &store->journal, error);
}

// marks: a batch that is refused leaves the others; without, all are.
static enum status run_transaction(struct store *store, struct store_batch **group, size_t count, bool marks,
				   struct error *error)
{
	journal_begin(&store->journal);
	enum status status = db_begin(store->state, marks ? DB_WRITE : DB_WRITE_AHEAD, error);
	for (size_t i = 0; i < count && !status; i++) {
		if (!marks) {
			status = run_plainly(store, group[i], error);
		} else if (!run_in_savepoint(store, group[i])) {
			status = group[i]->status ? group[i]->status : STATUS_INTERNAL;
			*error = group[i]->error;
		}
	}
	if (!status)
		status = journal_seal(&store->journal, error);
	if (!status)
		status = db_commit(store->state, error);
	if (status)
		db_rollback(store->state);
	if (!status && journal_grew(&store->journal))
		store_show_head(store);
	return status;
}

// Once more, with marks, if one was refused, or if a connection had been cut off while nothing was done: that costs
// little time, where a database that does not answer has cost it already.
static enum status run_group(struct store *store, struct store_batch **group, size_t count, struct error *error)
{
	struct error first = {.status = STATUS_OK};
	const int64_t begun_ms = clock_steady_ms();
	if (!store->state->together)
		return run_transaction(store, group, count, true, error);
	enum status status = run_transaction(store, group, count, false, &first);
	if (status && (status != STATUS_UNAVAILABLE || clock_steady_ms() - begun_ms < AGAIN_MS))
		return run_transaction(store, group, count, true, error);
	if (status)
		*error = first;
	return status;
}

// A database that was found damaged is written no more: a change could spread the damage, or land where nothing
// finds it again. What is in memory is served on; only a start with another file takes changes again.
static enum status refuse_if_damaged(struct store *store, struct error *error)
{
	struct db_report report;
	db_report(store->state, &report);
	if (!report.damaged)
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "%s was found damaged, and nothing is written to it any more",
		  store->state->name);
	error_hint(error, "stop the server, look after the disk, and put back state.db and audit/ from one backup");
	return STATUS_UNAVAILABLE;
}

static void commit_group(struct store *store, struct store_batch **group, size_t count)
{
	struct error error = {.status = STATUS_OK};
	int64_t begun = clock_steady_ns();
	enum status status = refuse_if_damaged(store, &error);
	if (!status)
		status = run_group(store, group, count, &error);
	pthread_mutex_lock(&store->lock);
	store->stats.commits += !status;
	store->stats.batches += status ? 0 : count;
	store->stats.commit_failures += status != STATUS_OK;
	store->stats.commit_seconds += (double)(clock_steady_ns() - begun) * 1e-9;
	pthread_mutex_unlock(&store->lock);
	if (!status) {
		if (store->failing)
			log_info("store", "changes can be stored again");
		store->failing = false;
		return;
	}
	if (count > 1) {
		for (size_t i = 0; i < count; i++)
			commit_group(store, &group[i], 1);
		return;
	}
	if (!store->failing)
		log_error("store", "a change could not be stored: %s; %s", error.message, error.hint);
	store->failing = true;
	group[0]->status = status;
	group[0]->error = error;
}

// The outcome goes to the loop in the order of the commits; who waits for it here is told first.
static void tell_outcome(struct store *store, struct store_batch *batch)
{
	if (batch->waiter) {
		pthread_mutex_lock(&store->lock);
		batch->waiter->status = batch->status;
		batch->waiter->error = batch->error;
		batch->waiter->finished = true;
		pthread_cond_broadcast(&store->finished);
		pthread_mutex_unlock(&store->lock);
	}
	store_post_batch(store, batch);
}

// Under the lock: the oldest batches, in order.
static size_t take_group(struct store *store, struct store_batch *group[LIMIT_STORE_GROUP])
{
	size_t count = 0;
	while (count < LIMIT_STORE_GROUP && store->first_batch) {
		struct store_batch *batch = store->first_batch;
		store->first_batch = batch->next;
		batch->next = NULL;
		group[count++] = batch;
	}
	if (!store->first_batch)
		store->last_batch = NULL;
	store->batches -= count;
	return count;
}

static struct store_minutes *take_minutes(struct store *store)
{
	struct store_minutes *job = store->first_minutes;
	if (job) {
		store->first_minutes = job->next;
		if (!store->first_minutes)
			store->last_minutes = NULL;
		store->minutes -= job->count;
	}
	return job;
}

static void replace_history(struct store *store, const char *why)
{
	struct error error = {.status = STATUS_OK};
	if (history_writer_replace(&store->history, why, &error))
		log_error("store", "no history of readings is kept: %s", error.message);
	atomic_fetch_add(&store->history_generation, 1); // the reader opens the new file
}

// The reader found damage in the file that stands there now.
static bool found_damaged(struct store *store)
{
	return atomic_load(&store->history_damaged) == atomic_load(&store->history_generation) + 1;
}

static void add_minutes(struct store *store, struct store_minutes *job)
{
	struct error error = {.status = STATUS_OK};
	bool damaged = false;
	enum status status = STATUS_OK;
	if (!store->history.db)
		status = history_writer_init(&store->history, store->directory, store->url, store->turn, &error);
	if (!status)
		status = history_add(&store->history, job->minutes, job->count, &damaged, &error);
	if (damaged) {
		replace_history(store, error.message);
		if (store->history.db)
			status = history_add(&store->history, job->minutes, job->count, &damaged, &error);
	}
	if (status)
		log_warning("store", "%zu minute averages were dropped: %s", job->count, error.message);
	pthread_mutex_lock(&store->lock);
	store->stats.history_failing = status != STATUS_OK;
	pthread_mutex_unlock(&store->lock);
	store->prune_slices += (int)(job->count / ROWS_PER_SLICE) + 1;
	store_minutes_destroy(&job);
}

static void prune(struct store *store)
{
	struct error error = {.status = STATUS_OK};
	bool damaged = false;
	store->prune_slices--;
	if (!store->history.db)
		return;
	int64_t oldest = clock_wall_ms() / 60000 - (int64_t)HISTORY_DAYS * DAY_MINUTES;
	if (history_prune(&store->history, oldest, &damaged, &error))
		log_warning("store", "old minute averages could not be deleted: %s", error.message);
	if (damaged)
		replace_history(store, error.message);
}

static void tidy(struct store *store, bool idle)
{
	db_tidy(store->state, idle);
	if (store->history.db)
		db_tidy(store->history.db, idle);
}

// Under the lock. False when a second passed in which nothing came.
static bool wait_for_work(struct store *store)
{
	if (!store->state->untidy && !(store->history.db && store->history.db->untidy))
		return pthread_cond_wait(&store->work, &store->lock) == 0;
	int64_t until = clock_steady_ms() + IDLE_MS;
	struct timespec time = {.tv_sec = until / 1000, .tv_nsec = (long)(until % 1000) * 1000000};
	return pthread_cond_timedwait(&store->work, &store->lock, &time) == 0;
}

static void rotate_as_asked(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	struct audit_job *next, *job = store->rotations;
	store->rotations = NULL;
	pthread_mutex_unlock(&store->lock);
	for (; job; job = next) {
		next = job->next;
		job->status = store_rotate(store, NULL, &job->error);
		job->result = json_new_object();
		json_set_integer(job->result, "segment", (int64_t)store->journal.segment);
		json_set_integer(job->result, "first", (int64_t)store->journal.first);
		audit_job_post(job);
	}
}

// Does one turn of work without the lock; false if there was none.
static bool work(struct store *store, struct store_batch **group, size_t count, struct store_minutes *minutes)
{
	if (count)
		commit_group(store, group, count);
	for (size_t i = 0; i < count; i++)
		tell_outcome(store, group[i]);
	if (found_damaged(store))
		replace_history(store, "the check of history.db found damage");
	if (minutes)
		add_minutes(store, minutes);
	rotate_as_asked(store);
	store_rotate_if_due(store);
	store_mark_archives(store);
	bool nothing_waited = !store_shed(store) && !count && !minutes;
	if (nothing_waited && store->prune_slices) {
		prune(store);
		nothing_waited = false;
	}
	store_tell_wrong_pages(store);
	tidy(store, false);
	return !nothing_waited;
}

void *store_writer_main(void *argument)
{
	struct store *store = argument;
	struct store_batch *group[LIMIT_STORE_GROUP];
	store_find_shed(store);
	pthread_mutex_lock(&store->lock);
	for (;;) {
		size_t count = take_group(store, group);
		struct store_minutes *minutes = take_minutes(store);
		bool stop = atomic_load(&store->stop) && !count && !minutes;
		if (stop)
			break;
		pthread_mutex_unlock(&store->lock);
		bool busy = work(store, group, count, minutes);
		pthread_mutex_lock(&store->lock);
		if (busy || store->first_batch || store->first_minutes || store->rotations || store->marks ||
		    atomic_load(&store->stop) || found_damaged(store) || wait_for_work(store))
			continue;
		pthread_mutex_unlock(&store->lock);
		tidy(store, true);
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}
