/* Searches for placements, one after the other, on a thread of its own, so that the loop never waits.
 *
 *     placing_start -> (queue) -> gather, on the loop -> keep_find, on the thread -> looked at again, done, on the
 *     loop -> the next
 *
 * The order is by urgency: instances that wait for a place, then those that are created or moved, then previews. An
 * urgent search stops a less urgent one: a preview then answers with its result so far, others are repeated afterwards
 * (after a second stop they take their result so far). A newer preview of the same connection stops the older one. An
 * asker has a few previews at most, and askers take turns. A search whose caller is gone ends at once.
 *
 * The devices are gathered when a search begins, which is after the previous result was reported and its memory
 * reserved. Devices and models may disappear during a search: the result is checked against the present ones, and the
 * search is repeated if it names a missing one. Owns the waiting requests and the thread. */
#include "common/base/limits.h"
#include "common/work/jobs.h"
#include "server/instances/instances_inside.h"
#include "server/library/reading.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct request {
	struct job job; // first member
	struct request *next;
	struct planner *planner;
	struct placing_request asked; // params and excluded: own copies, below; done NULL: the caller is gone
	struct json *params;
	struct placing_excluded excluded;
	unsigned changes; // results that did not stand any more
	bool put_back;    // it was stopped before
	atomic_bool stop; // end the search with its result so far
	// Written by the thread between begin() and deliver().
	struct placing *placing;
	enum status status;
	struct error error;
};

struct planner {
	const struct instances *instances;
	struct jobs *jobs;
	struct request *first, *running; // for the loop: waiting requests, the most urgent and oldest first; the one in
					 // progress
	unsigned counts[PLACING_KINDS];  // of all of them
	const void *last_asker;          // of a preview
	// The devices of this machine are not all found yet: requests wait a little.
	struct net_timer hold;
	bool held_enough;
	bool stopped;
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

static void search(struct job *job)
{
	struct request *request = (struct request *)job;
	struct placing *placing = request->placing;
	if (placing->draft_path[0])
		request->status = reading_same_tokens(placing->path, placing->draft_path, &request->error);
	if (request->status)
		return;
	request->status = keep_find(placing, &request->error);
	if (ease_find(placing, !request->status))
		request->status = STATUS_OK;
}

// The next one, out of the line: of previews the oldest of somebody else than the last, if there is one.
static struct request *take_next(struct planner *planner)
{
	struct request **at = &planner->first, *request;
	if (*at && (*at)->asked.kind == PLACING_PREVIEW)
		while (*at && (*at)->asked.asker == planner->last_asker)
			at = &(*at)->next;
	if (!*at)
		at = &planner->first;
	request = *at;
	if (!request)
		return NULL;
	*at = request->next;
	if (request->asked.kind == PLACING_PREVIEW)
		planner->last_asker = request->asked.asker;
	return request;
}

static struct cluster *cluster_of(const struct planner *planner)
{
	return planner->instances->params.cluster;
}

static void begin(struct planner *planner);

static void held_enough(void *arg)
{
	struct planner *planner = arg;
	planner->held_enough = true;
	begin(planner);
}

void planner_go_on(struct planner *planner)
{
	net_timer_stop(planner->instances->params.loop, &planner->hold);
	begin(planner);
}

static bool holds(struct planner *planner)
{
	if (!planner->first ||
	    !search_waits(planner->first->asked.kind, cluster_discovering(cluster_of(planner)), planner->held_enough))
		return false;
	if (!planner->hold.running)
		net_timer_start(planner->instances->params.loop, &planner->hold, LIMIT_DISCOVERY_WAIT_MS, held_enough,
				planner);
	return true;
}

// Gather, and hand the search to the thread. An error in gathering is reported like a result.
static void begin(struct planner *planner)
{
	struct request *request = planner->running || holds(planner) ? NULL : take_next(planner);
	if (!request)
		return;
	planner->running = request;
	request->status = placing_gather(&request->placing, planner->instances, &request->asked, &request->error);
	request->job.run = request->status ? NULL : search;
	if (!request->status)
		request->placing->wanted.stop = &request->stop;
	jobs_put(planner->jobs, &request->job);
}

// Queue the request after those of the same urgency; `again`: before them.
static void line_up(struct planner *planner, struct request *request, bool again)
{
	struct request **at = &planner->first;
	while (*at && ((*at)->asked.kind < request->asked.kind || (!again && (*at)->asked.kind == request->asked.kind)))
		at = &(*at)->next;
	request->next = *at;
	*at = request;
}

// It is over: tell.
static void finish(struct request *request)
{
	struct planner *planner = request->planner;
	const struct placing_request *asked = &request->asked;
	struct placing *placing = request->status ? NULL : request->placing;
	if (placing && asked->done)
		request->placing = NULL; // it is the listener's
	planner->counts[asked->kind]--;
	if (asked->done)
		asked->done(asked->context, request->status, placing, request->status ? &request->error : NULL);
	request_destroy(&request);
}

static void search_again(struct request *request)
{
	free(request->placing);
	request->placing = NULL;
	atomic_store(&request->stop, false);
	line_up(request->planner, request, true);
}

static enum search_over look_at(struct request *request)
{
	const struct instances *all = request->planner->instances;
	const bool failed = request->status != STATUS_OK;
	const struct search_over_seen seen = {.kind = request->asked.kind,
					      .listened_to = request->asked.done != NULL,
					      .stopped = atomic_load(&request->stop),
					      .stopped_once = request->put_back,
					      .failed = failed,
					      .unavailable = request->status == STATUS_UNAVAILABLE,
					      .feasible = !failed && request->placing->placement.feasible,
					      .stands = !failed && request->asked.done &&
							placing_stands(request->placing, all),
					      .changes = request->changes,
					      .pinned = json_first(json_get(request->params, "pins")) != NULL,
					      .discovering = cluster_discovering(cluster_of(request->planner))};
	return search_over_decide(&seen);
}

static void refuse(struct request *request, const char *why, const char *hint)
{
	request->error = (struct error){0};
	request->status = error_set(&request->error, STATUS_UNAVAILABLE, "%s", why);
	if (hint)
		error_hint(&request->error, "%s", hint);
	finish(request);
}

static void deliver(struct outbox_item *item, bool tell)
{
	struct request *request = (struct request *)item;
	struct planner *planner = request->planner;
	if (!tell) {
		request_destroy(&request);
		return;
	}
	planner->running = NULL;
	switch (look_at(request)) {
	case SEARCH_AGAIN_STOPPED:
		request->put_back = true;
		search_again(request);
		break;
	case SEARCH_AGAIN_CHANGED:
		request->changes++;
		search_again(request);
		break;
	case SEARCH_TELLS_CHANGES:
		refuse(request, "devices come and go faster than a placement can be found", NULL);
		break;
	case SEARCH_TELLS_DISCOVERING:
		refuse(request,
		       "there is no place for the model yet: devices of this machine are still being searched for",
		       "try again in a few seconds; server.info says whether they are (discovering)");
		break;
	case SEARCH_TELLS:
		finish(request);
		break;
	}
	begin(planner);
}

static enum status check_limits(const struct planner *planner, const struct placing_request *asked, struct error *error)
{
	unsigned own = planner->running && planner->running->asked.asker == asked->asker;
	if (planner->stopped)
		return error_set(error, STATUS_UNAVAILABLE, "the server is ending");
	if (planner->counts[asked->kind] >= LIMIT_PLACINGS)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "%d placements are already being searched",
				 LIMIT_PLACINGS);
	for (const struct request *one = planner->first; one; one = one->next)
		own += one->asked.asker == asked->asker;
	if (asked->kind != PLACING_PREVIEW || own < LIMIT_PREVIEWS)
		return STATUS_OK;
	error_hint(error, "wait for their answers, or search for a shorter time: timeout_s");
	return error_set(error, STATUS_LIMIT_EXCEEDED, "%u previews of this token are already being searched", own);
}

// Whether nobody needs `other` any longer, since the same connection asks for something else. A connection that lists
// foreseen models waits for all of them, and for its own preview as well.
static bool is_newer(const struct placing_request *asked, const struct placing_request *other)
{
	return asked->connection == other->connection && !asked->of && !other->of;
}

enum status placing_start(const struct instances *instances, const struct placing_request *asked, struct error *error)
{
	struct planner *planner = instances->planner;
	enum status status = check_limits(planner, asked, error);
	if (status)
		return status;
	struct request *request = calloc(1, sizeof *request);
	if (!request)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*request = (struct request){.job = {.item = {.deliver = deliver}}, .planner = planner, .asked = *asked};
	request->asked.params = request->params = json_copy(asked->params);
	if (asked->excluded) {
		request->excluded = *asked->excluded;
		request->asked.excluded = &request->excluded;
	}
	line_up(planner, request, false);
	planner->counts[asked->kind]++;
	if (planner->running &&
	    search_stops(planner->running->asked.kind, asked->kind, is_newer(asked, &planner->running->asked)))
		atomic_store(&planner->running->stop, true);
	begin(planner);
	return STATUS_OK;
}

void placing_cancel(const struct instances *instances, const void *context)
{
	struct planner *planner = instances->planner;
	struct request **at = &planner->first;
	if (planner->running && planner->running->asked.context == context) {
		planner->running->asked.done = NULL;
		atomic_store(&planner->running->stop, true);
	}
	while (*at) {
		struct request *request = *at;
		if (request->asked.context == context) {
			*at = request->next;
			planner->counts[request->asked.kind]--;
			request_destroy(&request);
		} else {
			at = &request->next;
		}
	}
}

static void tell_left(const struct placing_request *asked)
{
	if (asked->left)
		*asked->left = true;
}

void placing_leave(const struct instances *instances, const void *connection)
{
	struct planner *planner = instances->planner;
	struct request **at = &planner->first;
	if (planner->running && planner->running->asked.connection == connection) {
		tell_left(&planner->running->asked);
		planner->running->changes = SEARCH_TRIES; // whatever comes of it
		atomic_store(&planner->running->stop, true);
	}
	while (*at) {
		struct request *request = *at;
		if (request->asked.connection != connection) {
			at = &request->next;
			continue;
		}
		*at = request->next;
		tell_left(&request->asked);
		request->status = error_set(&request->error, STATUS_UNAVAILABLE, "nobody waits for it any longer");
		finish(request);
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
	const enum status status = jobs_create(&planner->jobs, instances->params.loop, 1, error);
	if (status)
		planner_destroy(out);
	return status;
}

void planner_shut_down(struct planner *planner)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the server is ending");
	if (!planner || planner->stopped)
		return;
	net_timer_stop(planner->instances->params.loop, &planner->hold);
	planner->stopped = true;
	if (planner->running) {
		struct placing_request *asked = &planner->running->asked;
		placing_done *done = asked->done;
		asked->done = NULL;
		atomic_store(&planner->running->stop, true);
		if (done)
			done(asked->context, STATUS_UNAVAILABLE, NULL, &error);
	}
	while (planner->first) {
		struct request *request = planner->first;
		planner->first = request->next;
		request->asked.done(request->asked.context, STATUS_UNAVAILABLE, NULL, &error);
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
	jobs_destroy(&planner->jobs);
	free(planner);
}
