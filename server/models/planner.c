/* Placements are searched for here, one after the other, on a thread of their own, so that the loop never waits.
 *
 *     placing_start -> (queue) -> gather, on the loop -> placement_find, on the thread -> looked at again, done, on the
 *     loop -> the next
 *
 * What there is to place on is gathered when a search begins, which is when the one before has been told: what that one
 * took is known by then. While a search runs devices and models may go: what was found is compared with what is there,
 * and searched for again if it names something that is not. Owns the requests that wait and the thread. */
#include "common/base/limits.h"
#include "server/models/instances_inside.h"
#include "server/models/outbox.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 3 };

struct request {
	struct outbox_item item; // first member
	struct request *next;
	struct planner *planner;
	struct json *params;
	struct placing_excluded excluded;
	bool excludes;
	placing_done *done; // NULL: nobody waits for it any more
	void *context;
	unsigned tries;
	// What the thread has, between begin() and deliver().
	struct placing *placing;
	enum status status;
	struct error error;
};

struct planner {
	const struct instances *instances;
	struct outbox *outbox;
	struct request *first, *running; // of the loop: those that wait, oldest first; the one that is looked at
	unsigned count;                  // of both
	pthread_t thread;
	bool started;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct request *given; // under lock: for the thread
};

static void request_destroy(struct request **pointer)
{
	struct request *request = *pointer;
	*pointer = NULL;
	if (!request)
		return;
	json_destroy(&request->params);
	free(request->placing);
	free(request);
}

static void *planner_main(void *argument)
{
	struct planner *planner = argument;
	for (;;) {
		pthread_mutex_lock(&planner->lock);
		while (!planner->given && !atomic_load(&planner->stop))
			pthread_cond_wait(&planner->work, &planner->lock);
		struct request *request = planner->given;
		planner->given = NULL;
		pthread_mutex_unlock(&planner->lock);
		if (!request)
			return NULL;
		struct placing *placing = request->placing;
		request->status = placement_find(&placing->placement, &placing->wanted, &request->error);
		outbox_post(planner->outbox, &request->item);
	}
}

// Gather, and hand it to the thread. What cannot be gathered is told in the same way as what was found.
static void begin(struct planner *planner)
{
	struct request *request = planner->first;
	if (planner->running || !request)
		return;
	planner->first = request->next;
	planner->running = request;
	request->status = placing_gather(&request->placing, planner->instances, request->params,
					 request->excludes ? &request->excluded : NULL, &request->error);
	if (request->status) {
		outbox_post(planner->outbox, &request->item);
		return;
	}
	request->placing->wanted.stop = &planner->stop;
	pthread_mutex_lock(&planner->lock);
	planner->given = request;
	pthread_cond_signal(&planner->work);
	pthread_mutex_unlock(&planner->lock);
}

// A request is over: tell, and go on with the next.
static void finish(struct request *request)
{
	struct planner *planner = request->planner;
	struct placing *placing = request->status ? NULL : request->placing;
	if (placing && request->done)
		request->placing = NULL; // it is the listener's
	planner->running = NULL;
	planner->count--;
	if (request->done)
		request->done(request->context, request->status, placing, request->status ? &request->error : NULL);
	request_destroy(&request);
	begin(planner);
}

static void deliver(struct outbox_item *item, bool tell)
{
	struct request *request = (struct request *)item;
	struct planner *planner = request->planner;
	if (!tell) {
		request_destroy(&request);
		return;
	}
	if (!request->status && request->done && !placing_stands(request->placing, planner->instances)) {
		free(request->placing);
		request->placing = NULL;
		planner->running = NULL;
		if (++request->tries < TRIES) { // it comes next
			request->next = planner->first;
			planner->first = request;
			begin(planner);
			return;
		}
		request->status = error_set(&request->error, STATUS_UNAVAILABLE,
					    "devices come and go faster than a placement is found");
	}
	finish(request);
}

enum status placing_start(const struct instances *instances, const struct json *params,
			  const struct placing_excluded *excluded, placing_done *done, void *context,
			  struct error *error)
{
	struct planner *planner = instances->planner;
	struct request *request = NULL, **at = &planner->first;
	if (atomic_load(&planner->stop))
		return error_set(error, STATUS_UNAVAILABLE, "the server is ending");
	if (planner->count >= LIMIT_PLACINGS)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "%d placements are being searched for already",
				 LIMIT_PLACINGS);
	request = calloc(1, sizeof *request);
	if (!request)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*request = (struct request){.item = {.deliver = deliver},
				    .planner = planner,
				    .params = json_copy(params),
				    .excludes = excluded != NULL,
				    .done = done,
				    .context = context};
	if (excluded)
		request->excluded = *excluded;
	while (*at)
		at = &(*at)->next;
	*at = request;
	planner->count++;
	begin(planner);
	return STATUS_OK;
}

void placing_cancel(const struct instances *instances, const void *context)
{
	struct planner *planner = instances->planner;
	struct request **at = &planner->first;
	if (planner->running && planner->running->context == context)
		planner->running->done = NULL;
	while (*at) {
		struct request *request = *at;
		if (request->context == context) {
			*at = request->next;
			planner->count--;
			request_destroy(&request);
		} else {
			at = &request->next;
		}
	}
}

// ---- the planner ----

enum status planner_create(struct planner **out, const struct instances *instances, struct error *error)
{
	struct planner *planner = calloc(1, sizeof *planner);
	*out = planner;
	if (!planner)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	planner->instances = instances;
	pthread_mutex_init(&planner->lock, NULL);
	pthread_cond_init(&planner->work, NULL);
	enum status status = outbox_create(&planner->outbox, instances->params.loop, error);
	if (!status)
		status = outbox_start_thread(&planner->thread, planner_main, planner, error);
	planner->started = !status;
	if (status)
		planner_destroy(out);
	return status;
}

void planner_shut_down(struct planner *planner)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the server is ending");
	if (!planner || atomic_load(&planner->stop))
		return;
	pthread_mutex_lock(&planner->lock);
	atomic_store(&planner->stop, true);
	pthread_cond_signal(&planner->work);
	pthread_mutex_unlock(&planner->lock);
	if (planner->running && planner->running->done) {
		struct request *request = planner->running;
		placing_done *done = request->done;
		request->done = NULL;
		done(request->context, STATUS_UNAVAILABLE, NULL, &error);
	}
	while (planner->first) {
		struct request *request = planner->first;
		planner->first = request->next;
		request->done(request->context, STATUS_UNAVAILABLE, NULL, &error);
		request_destroy(&request);
	}
}

void planner_destroy(struct planner **pointer)
{
	struct planner *planner = *pointer;
	if (!planner)
		return;
	*pointer = NULL;
	planner_shut_down(planner);
	if (planner->started)
		pthread_join(planner->thread, NULL);
	outbox_destroy(&planner->outbox);
	pthread_cond_destroy(&planner->work);
	pthread_mutex_destroy(&planner->lock);
	free(planner);
}
