/* A session's worker: its making and its end. See session.h. */
#include "engine/worker/session.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum status session_create(struct session **out, const struct session_params *params, struct error *error)
{
	struct session *session = *out = calloc(1, sizeof(*session));
	if (!session)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a session");
	session->contract = params->contract;
	session->backend = params->backend;
	session->cache_directory = params->cache_directory;
	session->memory_limit_bytes = params->memory_limit_bytes;
	session->confined = params->confined;
	node_calls_init(session, params->node_fd);
	session->stream_fd = params->stream_fd;
	session->shared_fd = -1;
	pthread_mutex_init(&session->lock, NULL);
	pthread_mutex_init(&session->sending, NULL);
	pthread_cond_init(&session->arrived, NULL);
	pthread_cond_init(&session->piece_done, NULL);
	session->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (session->wake_fd < 0)
		return error_errno(error, STATUS_INTERNAL, errno, "making an eventfd");
	return STATUS_OK;
}

void session_destroy(struct session **session_pointer)
{
	struct session *session = *session_pointer;
	if (!session)
		return;
	while (session->calls) {
		struct call *call = session->calls;
		session->calls = call->next;
		call_destroy(&call);
	}
	if (session->wake_fd >= 0)
		close(session->wake_fd);
	if (session->shared_fd >= 0)
		close(session->shared_fd);
	net_shared_destroy(&session->shared);
	node_end_finish(&session->node);
	buffer_finish(&session->open_head);
	pthread_cond_destroy(&session->arrived);
	pthread_cond_destroy(&session->piece_done);
	pthread_mutex_destroy(&session->lock);
	pthread_mutex_destroy(&session->sending);
	free(session);
	*session_pointer = NULL;
}

enum status session_start(struct session *session, struct error *error)
{
	int code = pthread_create(&session->driver, NULL, driver_main, session);
	return code ? error_errno(error, STATUS_INTERNAL, code, "starting the driver's thread") : STATUS_OK;
}

void session_stop(struct session *session)
{
	channels_stop(session);
	pthread_mutex_lock(&session->lock);
	session->ending = true;
	pthread_cond_signal(&session->arrived);
	pthread_mutex_unlock(&session->lock);
	pthread_join(session->driver, NULL);
}
