/* The line of calls between reader and driver, and the watch over how long they take. See session.h.
 *
 * A call's time runs while the driver is in it, or while it is the oldest in its device's stream; it stands still while
 * something else is before it, and while the driver waits for the server to read. So a launch with a short limit is
 * not ended for a long one in front of it. */
#include "common/base/clock.h"
#include "engine/worker/session.h"

#include <stdlib.h>
#include <unistd.h>

enum { CALL_MS = 60000 }; // how long a call may take that names no limit

struct call *call_create(enum call_kind kind)
{
	struct call *call = calloc(1, sizeof(*call));
	if (call)
		*call = (struct call){.kind = kind, .piece = NO_PIECE, .limit_ns = CALL_MS * 1000000ll};
	return call;
}

void call_destroy(struct call **call)
{
	if (!*call)
		return;
	message_finish(&(*call)->message);
	free((*call)->module);
	free(*call);
	*call = NULL;
}

void session_wake_reader(struct session *session)
{
	uint64_t one = 1;
	if (!session->reader_waits)
		return;
	session->reader_waits = false;
	while (write(session->wake_fd, &one, sizeof(one)) < 0)
		; // an eventfd takes it, except when a signal interrupts
}

void calls_put(struct session *session, struct call *call)
{
	call->arrived_ns = clock_steady_ns();
	pthread_mutex_lock(&session->lock);
	call->previous = session->last_call;
	*(session->last_call ? &session->last_call->next : &session->calls) = call;
	session->last_call = call;
	if (!session->next_call)
		session->next_call = call;
	session->call_count++;
	session->loud_count += !call->quiet;
	session->piece_count += call->kind == CALL_PIECE;
	pthread_mutex_unlock(&session->lock);
	pthread_cond_signal(&session->arrived); // it would only wait for the lock
}

unsigned calls_count(struct session *session)
{
	pthread_mutex_lock(&session->lock);
	unsigned count = session->call_count;
	pthread_mutex_unlock(&session->lock);
	return count;
}

struct call *calls_take(struct session *session, bool wait)
{
	pthread_mutex_lock(&session->lock);
	while (wait && !session->next_call && !session->ending)
		pthread_cond_wait(&session->arrived, &session->lock);
	struct call *call = session->ending ? NULL : session->next_call;
	if (call) {
		session->next_call = call->next;
		call->taken = true;
	}
	pthread_mutex_unlock(&session->lock);
	return call;
}

void calls_remove(struct session *session, struct call *call)
{
	pthread_mutex_lock(&session->lock);
	*(call->previous ? &call->previous->next : &session->calls) = call->next;
	*(call->next ? &call->next->previous : &session->last_call) = call->previous;
	if (session->current == call)
		session->current = NULL;
	session->call_count--;
	session->loud_count -= !call->quiet;
	session->piece_count -= call->kind == CALL_PIECE;
	session_wake_reader(session);
	pthread_mutex_unlock(&session->lock);
	call_destroy(&call);
}

// ---- the watch ----

static void change(struct session *session, enum driver_state state)
{
	int64_t now_ns = clock_steady_ns();
	// Steps whose time stood still while the driver was away.
	for (unsigned i = 0; session->state != DRIVER_WAITS && i < session->device_end && session->step_count; i++) {
		struct worker_device *device = session->devices[i];
		struct call *oldest = device && device->step_count ? device->steps[device->first_step].call : NULL;
		if (oldest && oldest != session->current && oldest->deadline_ns)
			oldest->deadline_ns += now_ns - session->state_ns;
	}
	session->state = state;
	session->state_ns = now_ns;
}

void watch_enter(struct session *session, struct call *call)
{
	pthread_mutex_lock(&session->lock);
	change(session, DRIVER_CALLS);
	session->current = call;
	call->deadline_ns = session->state_ns + call->limit_ns;
	pthread_mutex_unlock(&session->lock);
}

void watch_answer(struct session *session)
{
	pthread_mutex_lock(&session->lock);
	change(session, DRIVER_ANSWERS);
	pthread_mutex_unlock(&session->lock);
}

void watch_return(struct session *session)
{
	pthread_mutex_lock(&session->lock);
	change(session, DRIVER_WAITS);
	session->current = NULL;
	pthread_mutex_unlock(&session->lock);
}

static bool late(const struct call *call, int64_t now_ns)
{
	return call && call->deadline_ns && now_ns > call->deadline_ns;
}

void watch_check(struct session *session)
{
	int64_t now_ns = clock_steady_ns();
	struct error error = {0};
	struct call *found = NULL;
	pthread_mutex_lock(&session->lock);
	switch (session->state) {
	case DRIVER_CALLS:
		found = late(session->current, now_ns) ? session->current : NULL;
		break;
	case DRIVER_WAITS:
		for (struct call *call = session->calls; call && !found; call = call->next)
			found = call->taken && late(call, now_ns) ? call : NULL;
		break;
	case DRIVER_ANSWERS:
		break;
	}
	if (found) {
		error_set(&error, STATUS_TIMEOUT,
			  "not done within %lld ms; the worker has ended, and its memory is lost",
			  (long long)(found->limit_ns / 1000000));
		error_hint(&error, "give a larger timeout_ms, or less work at a time");
		session_end(session, found, false, &error);
	}
	pthread_mutex_unlock(&session->lock);
}

int64_t watch_oldest_ns(struct session *session)
{
	pthread_mutex_lock(&session->lock);
	int64_t since_ns = session->calls ? session->calls->arrived_ns : 0;
	pthread_mutex_unlock(&session->lock);
	return since_ns ? clock_steady_ns() - since_ns : 0;
}
