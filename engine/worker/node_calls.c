/* The node's calls to a session's worker. See session.h. The reader's thread serves pings, the stream and channels at
 * once. Calls about devices are the driver's, and are queued with the calls of the server. */
#include "engine/worker/session.h"

#include <sys/prctl.h>
#include <unistd.h>

static struct session *session_of(void *arg)
{
	const struct node_end *end = arg;
	return end->owner;
}

static enum status ping(void *arg, const struct message *message, struct error *error)
{
	struct session *session = session_of(arg);
	struct json *result = json_new_object();
	(void)error;
	json_set_number(result, "oldest_ms", (double)watch_oldest_ns(session) * 1e-6);
	rpc_answer(&session->node.rpc, message->method, message->id, result, NULL);
	return STATUS_PENDING;
}

// A spare becomes a session's worker, once and for all: from here on it has that session's limits and its stream.
static enum status bind_session(void *arg, const struct message *message, struct error *error)
{
	struct session *session = session_of(arg);
	if (session->stream_fd >= 0)
		return error_set(error, STATUS_CONFLICT, "this worker is a session's already");
	if (session->node.given < 0)
		return error_set(error, STATUS_INVALID_REQUEST, "no stream came with the call");
	prctl(PR_SET_NAME, "exogpu-worker");
	pthread_mutex_lock(&session->lock);
	session->memory_limit_bytes = (uint64_t)json_get_integer(message->params, "memory_limit_bytes", 0);
	session->stream_fd = session->node.given;
	session->node.given = -1;
	pthread_mutex_unlock(&session->lock);
	return STATUS_OK;
}

// The descriptor that came with the call is an end of a channel.
static enum status take_channel(void *arg, const struct message *message, struct error *error)
{
	struct session *session = session_of(arg);
	if (session->stream_fd < 0)
		return error_set(error, STATUS_CONFLICT, "this worker is no session's yet");
	if (session->node.given < 0)
		return error_set(error, STATUS_UNAVAILABLE, "no descriptor came with the call");
	const enum status status = channel_open(session, message->params, session->node.given, error);
	if (!status)
		session->node.given = -1;
	return status;
}

static enum status put(struct session *session, enum call_kind kind, const struct message *message, struct error *error)
{
	struct call *call = calls_count(session) < LIMIT_WORKER_CALLS + LIMIT_WORKER_DEVICES ? call_create(kind) : NULL;
	if (!call)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "too many calls are waiting");
	call->from_node = true;
	message_copy_head(&call->message, message);
	calls_put(session, call);
	return STATUS_PENDING; // answer_call
}

static enum status open_device(void *arg, const struct message *message, struct error *error)
{
	return put(session_of(arg), CALL_DEVICE, message, error);
}

static enum status warm(void *arg, const struct message *message, struct error *error)
{
	struct session *session = session_of(arg);
	if (session->stream_fd >= 0)
		return error_set(error, STATUS_CONFLICT, "this worker is a session's already");
	return put(session, CALL_WARM, message, error);
}

static enum status open_again(void *arg, const struct message *message, struct error *error)
{
	(void)arg;
	return error_set(error, STATUS_CONFLICT, "%s: this worker is a session's already", message->method);
}

void node_calls_init(struct session *session, int fd)
{
	static const struct rpc_method methods[] = {
		{"worker.ping", ping},          {"worker.bind", bind_session}, {"worker.channel", take_channel},
		{"worker.device", open_device}, {"worker.warm", warm},         {"worker.open", open_again},
	};
	node_end_init(&session->node, &(struct node_end_params){.contract = session->contract,
								.fd = fd,
								.methods = methods,
								.method_count = sizeof methods / sizeof *methods,
								.owner = session});
}
