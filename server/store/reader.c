/* The reader thread: history queries, and the check of history.db at the start. The check reads
 * the whole file, about 10 s for 2.4 GB, and must not delay the start, a query or the stop. So
 * it checks one device at a time; in between, waiting queries are answered and others get the
 * disk. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/store/inside.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHECK_PAUSE_MS = 3 }; // after each device: the check takes what others leave

// Open the file that stands there now, if another one was open.
static enum status follow(struct store *store, struct error *error)
{
	unsigned generation = atomic_load(&store->history_generation);
	if (store->reader.db && generation == store->reader_generation)
		return STATUS_OK;
	history_reader_finish(&store->reader);
	store->reader_generation = generation;
	return history_reader_init(&store->reader, store->directory, store->url, error);
}

// The store thread puts a new file in the place of this one; until then queries find it damaged. What is found in a
// file that has been replaced meanwhile says nothing of the new one.
static void report_damage(struct store *store)
{
	atomic_store(&store->history_damaged, store->reader_generation + 1);
	pthread_mutex_lock(&store->lock);
	pthread_cond_signal(&store->work);
	pthread_mutex_unlock(&store->lock);
}

static void deliver_query(struct store_outcome *outcome, bool tell)
{
	struct store_query *query = (struct store_query *)outcome;
	if (tell)
		query->done(query->context, query->status, query->status ? NULL : &query->history);
	history_finish(&query->history);
	free(query);
}

static struct store_query *take_query(struct store *store)
{
	struct store_query *query = store->first_query;
	if (query) {
		store->first_query = query->next;
		if (!store->first_query)
			store->last_query = NULL;
		store->queries_waiting--;
	}
	return query;
}

static void answer(struct store *store, struct store_query *query)
{
	struct error error = {.status = STATUS_OK};
	bool damaged = false;
	query->status = follow(store, &error);
	if (!query->status)
		query->status = history_read(&store->reader,
					     &(struct history_query){.kind = query->kind,
								     .series = query->series,
								     .from_ms = query->from_ms,
								     .to_ms = query->to_ms,
								     .step_ms = query->step_ms},
					     &query->history, &damaged, &error);
	if (query->status)
		log_warning("store", "history: %s", error.message);
	if (damaged)
		report_damage(store);
	query->outcome.deliver = deliver_query;
	store_post(store, &query->outcome);
}

// Check the next device of the file that stood there at start. True once there is nothing more to check.
static bool check_more(struct store *store)
{
	struct error error = {.status = STATUS_OK};
	bool done = true, damaged = false;
	if (atomic_load(&store->history_generation)) // replaced: the new file needs no check
		return true;
	enum status status = follow(store, &error);
	if (!status)
		status = history_check(&store->reader, &done, &damaged, &error);
	if (status)
		log_warning("store", "the check of history.db: %s", error.message);
	if (damaged)
		report_damage(store);
	return done || status;
}

// Under the lock: let CHECK_PAUSE_MS pass, or less if a query comes or the end.
static void pause_check(struct store *store)
{
	int64_t until = clock_steady_ms() + CHECK_PAUSE_MS;
	struct timespec time = {.tv_sec = until / 1000, .tv_nsec = (long)(until % 1000) * 1000000};
	pthread_cond_timedwait(&store->queries, &store->lock, &time);
}

void *store_reader_main(void *argument)
{
	struct store *store = argument;
	int64_t begun = clock_steady_ms();
	bool checked = false;
	pthread_mutex_lock(&store->lock);
	while (!atomic_load(&store->reader_stop)) {
		struct store_query *query = take_query(store);
		if (!query && checked) {
			pthread_cond_wait(&store->queries, &store->lock);
			continue;
		}
		pthread_mutex_unlock(&store->lock);
		if (query) {
			answer(store, query);
		} else if ((checked = check_more(store))) {
			log_debug("store", "history.db was checked in %lld ms", (long long)(clock_steady_ms() - begun));
		}
		pthread_mutex_lock(&store->lock);
		if (!query && !checked && !atomic_load(&store->reader_stop) && !store->first_query)
			pause_check(store);
	}
	pthread_mutex_unlock(&store->lock);
	history_reader_finish(&store->reader);
	return NULL;
}

static enum status read_history(struct store *store, const struct history_query *asked, store_history_done *done,
				void *context)
{
	const int64_t from_ms = asked->from_ms, to_ms = asked->to_ms, step_ms = asked->step_ms;
	if (step_ms < 60000 || step_ms % 60000 || from_ms < 0 || to_ms < from_ms)
		return STATUS_INVALID_PARAMS;
	if ((to_ms - from_ms) / step_ms > LIMIT_HISTORY_ROWS)
		return STATUS_LIMIT_EXCEEDED;
	struct store_query *query = calloc(1, sizeof *query);
	if (!query)
		return STATUS_OUT_OF_MEMORY;
	query->kind = asked->kind;
	query->from_ms = from_ms;
	query->to_ms = to_ms;
	query->step_ms = step_ms;
	query->done = done;
	query->context = context;
	memcpy(query->series, asked->series, strlen(asked->series) + 1);
	enum status status = STATUS_OK;
	pthread_mutex_lock(&store->lock);
	if (store->queries_waiting >= LIMIT_STORE_QUERIES) {
		status = STATUS_LIMIT_EXCEEDED;
	} else {
		if (store->last_query)
			store->last_query->next = query;
		else
			store->first_query = query;
		store->last_query = query;
		store->queries_waiting++;
		pthread_cond_signal(&store->queries);
	}
	pthread_mutex_unlock(&store->lock);
	if (status)
		free(query);
	return status;
}

enum status store_read_history(struct store *store, const char *device_id, int64_t from_ms, int64_t to_ms,
			       int64_t step_ms, store_history_done *done, void *context)
{
	const struct history_query query = {
		.series = device_id, .from_ms = from_ms, .to_ms = to_ms, .step_ms = step_ms};
	return strlen(device_id) < STORE_ID_BYTES ? read_history(store, &query, done, context) : STATUS_INVALID_PARAMS;
}

enum status store_read_link_history(struct store *store, const char *series, int64_t from_ms, int64_t to_ms,
				    int64_t step_ms, store_history_done *done, void *context)
{
	const struct history_query query = {
		.kind = STORE_OF_LINK, .series = series, .from_ms = from_ms, .to_ms = to_ms, .step_ms = step_ms};
	return strlen(series) < STORE_SERIES_BYTES ? read_history(store, &query, done, context) : STATUS_INVALID_PARAMS;
}
