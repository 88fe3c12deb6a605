/* See store.h and inside.h: starting, stopping, and the queues between threads. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/store/inside.h"
#include "server/store/place.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

void store_post(struct store *store, struct store_outcome *outcome)
{
	outcome->next = NULL;
	pthread_mutex_lock(&store->lock);
	bool first = !store->first_outcome;
	if (first)
		store->first_outcome = outcome;
	else
		store->last_outcome->next = outcome;
	store->last_outcome = outcome;
	pthread_mutex_unlock(&store->lock);
	const uint64_t one = 1;
	if (first && write(store->wake, &one, sizeof one) < 0 && errno != EAGAIN)
		log_error("store", "cannot wake the loop: %s", strerror(errno));
}

static struct store_outcome *take_outcomes(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	struct store_outcome *outcome = store->first_outcome;
	store->first_outcome = store->last_outcome = NULL;
	pthread_mutex_unlock(&store->lock);
	return outcome;
}

static void deliver_outcomes(struct store *store, bool tell)
{
	struct store_outcome *outcome = take_outcomes(store);
	while (outcome) {
		struct store_outcome *next = outcome->next;
		outcome->deliver(outcome, tell);
		outcome = next;
	}
}

static void outcomes_ready(void *context, int fd)
{
	uint64_t count;
	if (read(fd, &count, sizeof count) == sizeof count)
		deliver_outcomes(context, true);
}

static const struct net_watch_events outcome_events = {.readable = outcomes_ready};

static enum status watch_outcomes(struct store *store, struct error *error)
{
	store->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (store->wake < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "no file descriptor for the store");
	enum status status = net_watch_create(&store->watch, store->loop, store->wake, &outcome_events, store, error);
	if (status)
		close(store->wake);
	return status;
}

void store_tell_wrong_pages(struct store *store)
{
	struct db_report report;
	db_report(store->state, &report);
	if (report.damaged && !store->stats.damaged) {
		log_error("store", "%s is damaged: no change is stored until the server is started with a good one",
			  store->state->name);
		db_freeze(store->state); // for what writes beside the batches
		pthread_mutex_lock(&store->lock);
		store->stats.damaged = true;
		pthread_mutex_unlock(&store->lock);
	}
	if (report.wrong == store->wrong_pages)
		return;
	log_error(
		"store",
		"%s/state.db: %llu of the pages that were read are not as exogpu wrote them, the first is page %u: the "
		"disk or another program has changed them. If nobody has edited the file, look after the disk and put "
		"back state.db and audit/ from one backup; exogpu audit verify says whether the audit log is touched",
		store->directory, (unsigned long long)(report.wrong - store->wrong_pages), report.first);
	store->wrong_pages = report.wrong;
	pthread_mutex_lock(&store->lock);
	store->stats.wrong_pages = report.wrong;
	pthread_mutex_unlock(&store->lock);
}

static enum status open_state(struct store *store, const struct store_params *params, struct error *error)
{
	enum status status = db_open(
		&store->state,
		&(struct db_params){.directory = store->directory, .url = store->url, .turn = store->turn}, error);
	if (!status)
		store_tell_wrong_pages(store);
	if (!status)
		status = batch_prepare(store->state, store->statements, error);
	if (!status)
		status = journal_open(&store->journal, store->state,
				      &(struct journal_params){.directory = store->directory,
							       .accept_unsigned = params->accept_unsigned},
				      error);
	if (!status)
		status = store_accept_tail(store, params->accept_unsigned, error);
	if (!status && store->url && store->journal.fresh && !store->journal.unbound) {
		status = error_set(error, STATUS_CONFLICT,
				   "%s has no audit log, and %s/" JOURNAL_FOLDER " has the keys of one",
				   store->state->name, store->directory);
		error_hint(error, "bring what this directory knows there with exogpu store copy, or start with another "
				  "directory by --data");
	}
	store->head = store->journal.head;
	if (!status)
		status = db_open(
			&store->loading,
			&(struct db_params){.directory = store->directory, .url = store->url, .read_only = true},
			error);
	return status;
}

// Threads of the store take no signals: those are the loop's.
static enum status start_thread(pthread_t *thread, void *(*main)(void *), void *argument, struct error *error)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int number = pthread_create(thread, NULL, main, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return number ? error_errno(error, STATUS_UNAVAILABLE, number, "cannot start a thread") : STATUS_OK;
}

static enum status start_threads(struct store *store, struct error *error)
{
	enum status status = start_thread(&store->writer_thread, store_writer_main, store, error);
	store->writer_started = !status;
	if (!status) {
		status = start_thread(&store->reader_thread, store_reader_main, store, error);
		store->reader_started = !status;
	}
	for (size_t i = 0; i < 2 && !status; i++) {
		status = start_thread(&store->desks[i].thread, audit_desk_main, &store->desks[i], error);
		store->desks[i].started = !status;
	}
	return status;
}

// The rest of the start: done by a server, not by a command that only settles rows.
static enum status serve(struct store *store, struct error *error)
{
	enum status status = store_adopt(store, error);
	if (!status)
		status = store_say_refused(store, error);
	return status ? status : start_threads(store, error);
}

// The place is the one that was named, or else the one that was used before.
static enum status choose_place(struct store *store, const struct store_params *params, struct error *error)
{
	char known[PLACE_BYTES] = "";
	if (params->url && (strlen(params->url) >= sizeof known || !db_is_url(params->url))) {
		error_set(error, STATUS_INVALID_PARAMS, "--store takes a URL, postgres://USER@HOST/DATABASE");
		error_hint(error, "without --store the tables are in the data directory");
		return STATUS_INVALID_PARAMS;
	}
	enum status status = params->url ? STATUS_OK : place_read(store->directory, known, error);
	if (status || !(params->url || known[0]))
		return status;
	store->url = strdup(params->url ? params->url : known);
	return store->url ? STATUS_OK : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the store");
}

enum status store_create(struct store **out, const struct store_params *params, struct error *error)
{
	const char *directory = params->directory;
	enum status status = STATUS_OK;
	*out = NULL;
	struct store *store = calloc(1, sizeof *store);
	if (!store)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the store");
	store->loop = params->loop;
	store->turn = params->turn;
	store->share_key = params->share_key;
	store->forget_key = params->forget_key;
	store->key_context = params->key_context;
	store_audit_defaults(store, params);
	pthread_mutex_init(&store->lock, NULL);
	pthread_condattr_t steady;
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&store->work, &steady);
	pthread_cond_init(&store->queries, &steady);
	for (size_t i = 0; i < 2; i++) {
		store->desks[i].store = store;
		store->desks[i].keeper = store->desks[i].look = i == 1;
		store->desks[i].unprunable = -1;
		pthread_cond_init(&store->desks[i].wake, &steady);
	}
	pthread_condattr_destroy(&steady);
	pthread_cond_init(&store->finished, NULL);
	int length = snprintf(store->directory, sizeof store->directory, "%s", directory);
	if (length < 0 || (size_t)length >= sizeof store->directory - 64) {
		status = error_set(error, STATUS_INVALID_PARAMS, "the data directory's path is too long");
		goto done;
	}
	if (mkdir(directory, 0700) && errno != EEXIST) {
		status = error_errno(error, STATUS_FORBIDDEN, errno, "cannot make the data directory %s", directory);
		error_hint(error,
			   "make it yourself, owned by the user that runs exogpu, or choose another with --data");
		goto done;
	}
	status = choose_place(store, params, error);
	if (!status)
		status = open_state(store, params, error);
	if (!status && params->url)
		status = place_write(directory, params->url, error);
	if (!status)
		status = history_writer_init(&store->history, directory, store->url, store->turn, error);
	if (!status)
		status = watch_outcomes(store, error);
	if (!status && params->settling)
		status = store_settle(store, params->settling, error);
	else if (!status)
		status = serve(store, error);
done:
	if (status)
		store_destroy(&store);
	*out = store;
	return status;
}

static void stop_thread(struct store *store, atomic_bool *stop, pthread_cond_t *condition, pthread_t thread)
{
	pthread_mutex_lock(&store->lock);
	atomic_store(stop, true);
	pthread_cond_broadcast(condition);
	pthread_mutex_unlock(&store->lock);
	pthread_join(thread, NULL);
}

static void free_jobs(struct audit_job *job)
{
	for (struct audit_job *next; job; job = next) {
		next = job->next;
		audit_job_destroy(&job);
	}
}

static void free_queues(struct store *store)
{
	for (struct store_batch *batch = store->first_batch; batch;) { // only if the thread never ran
		struct store_batch *next = batch->next;
		store_batch_destroy(&batch);
		batch = next;
	}
	for (struct store_query *query = store->first_query; query;) {
		struct store_query *next = query->next;
		free(query);
		query = next;
	}
	free_jobs(store->rotations);
	for (size_t i = 0; i < 2; i++)
		free_jobs(store->desks[i].first);
	for (struct audit_mark *mark = store->marks; mark;) {
		struct audit_mark *next = mark->next;
		audit_mark_destroy(mark);
		mark = next;
	}
}

void store_wake_keeper(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	store->desks[1].look = true;
	pthread_cond_signal(&store->desks[1].wake);
	pthread_mutex_unlock(&store->lock);
}

void store_destroy(struct store **pointer)
{
	struct store *store = *pointer;
	if (!store)
		return;
	*pointer = NULL;
	if (store->reader_started)
		stop_thread(store, &store->reader_stop, &store->queries, store->reader_thread);
	for (size_t i = 0; i < 2; i++)
		if (store->desks[i].started)
			stop_thread(store, &store->reader_stop, &store->desks[i].wake, store->desks[i].thread);
	if (store->writer_started)
		stop_thread(store, &store->stop, &store->work, store->writer_thread);
	free_queues(store);
	net_watch_destroy(&store->watch);
	deliver_outcomes(store, false);
	history_writer_finish(&store->history);
	db_close(&store->loading); // before the writer, so that this one's close empties the -wal file
	batch_finalize(store->statements);
	journal_close(&store->journal);
	db_close(&store->state);
	free(store->setting);
	free(store->url);
	pthread_cond_destroy(&store->finished);
	pthread_cond_destroy(&store->queries);
	for (size_t i = 0; i < 2; i++)
		pthread_cond_destroy(&store->desks[i].wake);
	pthread_cond_destroy(&store->work);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

// Under the lock. The batch is the store's from here on.
static void push_batch(struct store *store, struct store_batch *batch)
{
	if (store->last_batch)
		store->last_batch->next = batch;
	else
		store->first_batch = batch;
	store->last_batch = batch;
	store->batches++;
	pthread_cond_signal(&store->work);
}

enum status store_commit(struct store *store, struct store_batch **pointer,
			 void (*done)(void *context, enum status status, const struct error *error), void *context)
{
	struct store_batch *batch = *pointer;
	*pointer = NULL;
	enum status status = batch->failed ? STATUS_LIMIT_EXCEEDED : STATUS_OK;
	batch->done = done;
	batch->context = context;
	pthread_mutex_lock(&store->lock);
	if (!status && store->batches >= LIMIT_STORE_QUEUE)
		status = STATUS_LIMIT_EXCEEDED;
	if (!status)
		push_batch(store, batch);
	pthread_mutex_unlock(&store->lock);
	if (status)
		store_batch_destroy(&batch);
	return status;
}

enum status store_commit_wait(struct store *store, struct store_batch **pointer, struct error *error)
{
	struct store_batch *batch = *pointer;
	struct store_waiter waiter = {.finished = false};
	*pointer = NULL;
	if (batch->failed) {
		store_batch_destroy(&batch);
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a change is too large");
	}
	if (store->unread) {
		store_batch_destroy(&batch);
		return db_fault(store->loading, error);
	}
	batch->waiter = &waiter;
	pthread_mutex_lock(&store->lock);
	push_batch(store, batch);
	while (!waiter.finished)
		pthread_cond_wait(&store->finished, &store->lock);
	pthread_mutex_unlock(&store->lock);
	if (waiter.status && error && !error->message[0])
		*error = waiter.error;
	return waiter.status;
}

void store_add_minutes(struct store *store, const struct store_minute *minutes, size_t count)
{
	if (!count)
		return;
	struct store_minutes *job = calloc(1, sizeof *job);
	if (job) {
		job->count = count;
		job->minutes = malloc(count * sizeof *job->minutes);
		job->ids = calloc(count, sizeof *job->ids);
	}
	bool taken = job && job->minutes && job->ids;
	if (taken) {
		memcpy(job->minutes, minutes, count * sizeof *minutes);
		for (size_t i = 0; i < count; i++) {
			snprintf(job->ids[i], sizeof job->ids[i], "%s", minutes[i].series);
			job->minutes[i].series = job->ids[i];
		}
		pthread_mutex_lock(&store->lock);
		taken = store->minutes + count <= LIMIT_STORE_MINUTES;
		if (taken) {
			if (store->last_minutes)
				store->last_minutes->next = job;
			else
				store->first_minutes = job;
			store->last_minutes = job;
			store->minutes += count;
			pthread_cond_signal(&store->work);
		}
		pthread_mutex_unlock(&store->lock);
	}
	if (!taken) {
		log_warning("store", "%zu minute averages were dropped: the disk does not keep up", count);
		store_minutes_destroy(&job);
	}
}

void store_minutes_destroy(struct store_minutes **job)
{
	if (!*job)
		return;
	free((*job)->minutes);
	free((*job)->ids);
	free(*job);
	*job = NULL;
}

void store_read_stats(struct store *store, struct store_stats *stats)
{
	pthread_mutex_lock(&store->lock);
	*stats = store->stats;
	pthread_mutex_unlock(&store->lock);
	stats->state_bytes = db_size(&(struct db_params){.directory = store->directory, .url = store->url});
	stats->history_bytes = db_size(
		&(struct db_params){.directory = store->directory, .url = store->url, .part = DB_HISTORY});
}
