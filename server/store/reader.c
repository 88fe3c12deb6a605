/* The reader thread: history queries, and the check of history.db at start.
 *
 * The check walks the whole file (about 3 s per GB) and must delay neither the start nor a query, so SQLite's progress
 * callback answers what waits, on the connection that is not being checked, and yields between two stretches. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/store/database.h"
#include "server/store/inside.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	CHECK_STRETCH = 2000,       // steps of SQLite between two looks at the queue, well under a millisecond
	CHECK_PAUSE_NS = 1000 * 50, // after each: the check takes what others leave
};

// Open the file that stands there now, if another one was open.
static enum status follow(struct store *store, struct error *error)
{
	unsigned generation = atomic_load(&store->history_generation);
	if (store->reader.db && generation == store->reader_generation)
		return STATUS_OK;
	history_reader_finish(&store->reader);
	store->reader_generation = generation;
	return history_reader_init(&store->reader, store->history.path, error);
}

// The store thread puts a new file in the place of this one; until then queries find it damaged.
static void report_damage(struct store *store)
{
	atomic_store(&store->history_damaged, true);
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

// checking: the check is under way on the file that is open, so that must stay open.
static void answer(struct store *store, struct store_query *query, bool checking)
{
	struct error error = {.status = STATUS_OK};
	bool damaged = false;
	query->status = checking ? STATUS_OK : follow(store, &error);
	if (!query->status)
		query->status = history_read(&store->reader,
					     &(struct history_query){.device_id = query->device_id,
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

// SQLite's progress callback during the check. Non-zero ends the check.
static int between_stretches(void *context)
{
	struct store *store = context;
	if (atomic_load(&store->reader_stop) || atomic_load(&store->history_generation) != store->reader_generation)
		return 1;
	for (;;) {
		pthread_mutex_lock(&store->lock);
		struct store_query *query = take_query(store);
		pthread_mutex_unlock(&store->lock);
		if (!query)
			break;
		answer(store, query, true);
	}
	nanosleep(&(struct timespec){.tv_nsec = CHECK_PAUSE_NS}, NULL);
	return 0;
}

static void check(struct store *store)
{
	struct error error = {.status = STATUS_OK};
	int64_t begun = clock_steady_ms();
	enum status status = follow(store, &error);
	if (!status) {
		sqlite3_progress_handler(store->reader.checking, CHECK_STRETCH, between_stretches, store);
		status = database_check(store->reader.checking, &error);
	}
	// A check that was cut short, by the end of the program or because the file was replaced, found nothing.
	if (atomic_load(&store->reader_stop) || atomic_load(&store->history_generation) != store->reader_generation)
		return;
	if (status == STATUS_UNAVAILABLE) {
		log_warning("store", "%s", error.message);
		report_damage(store);
	} else if (status) {
		log_warning("store", "the history of readings could not be checked: %s", error.message);
	} else {
		log_debug("store", "history.db is sound, checked in %lld ms", (long long)(clock_steady_ms() - begun));
	}
}

void *store_reader_main(void *argument)
{
	struct store *store = argument;
	check(store);
	database_close(&store->reader.checking);
	pthread_mutex_lock(&store->lock);
	while (!atomic_load(&store->reader_stop)) {
		struct store_query *query = take_query(store);
		if (!query) {
			pthread_cond_wait(&store->queries, &store->lock);
			continue;
		}
		pthread_mutex_unlock(&store->lock);
		answer(store, query, false);
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	history_reader_finish(&store->reader);
	return NULL;
}

enum status store_read_history(struct store *store, const char *device_id, int64_t from_ms, int64_t to_ms, int64_t step_ms,
			       void (*done)(void *context, enum status status, const struct store_history *history),
			       void *context)
{
	if (step_ms < 60000 || step_ms % 60000 || from_ms < 0 || to_ms < from_ms || strlen(device_id) >= STORE_ID_BYTES)
		return STATUS_INVALID_PARAMS;
	if ((to_ms - from_ms) / step_ms > LIMIT_HISTORY_ROWS)
		return STATUS_LIMIT_EXCEEDED;
	struct store_query *query = calloc(1, sizeof *query);
	if (!query)
		return STATUS_OUT_OF_MEMORY;
	query->from_ms = from_ms;
	query->to_ms = to_ms;
	query->step_ms = step_ms;
	query->done = done;
	query->context = context;
	memcpy(query->device_id, device_id, strlen(device_id) + 1);
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
