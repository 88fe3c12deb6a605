/* See child.h. An answer is delivered as soon as it is there; the process then has CHILD_END_MS to end. */
#include "engine/node/workers/child.h"

#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/wire/rpc.h"
#include "engine/node/workers/process.h"
#include "engine/node/workers/refusals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHILD_END_MS = 2000, CHILD_STOP_MS = 500, READS_AT_ONCE = 64 };

struct children {
	struct net_loop *loop;
	const struct contract *contract;
	struct child *list;
	size_t count;
};

struct child {
	struct child *next, **at;
	struct children *children;
	struct child_call call;
	struct rpc rpc; // of the one call
	struct process process;
	struct net_watch *socket;
	int socket_fd; // owned by the watch
	enum backend_kind backend;
	struct refusals *refusals; // NULL: none came
	struct net_timer deadline;
	struct buffer in;
	bool begun; // its first message is there
	bool answered;
	struct error error; // of a call that failed
};

static void release(struct child *child, int *patience_ms)
{
	LIST_REMOVE(child, at);
	child->children->count--;
	net_timer_stop(child->children->loop, &child->deadline);
	net_watch_destroy(&child->socket);
	refusals_destroy(&child->refusals);
	process_finish(&child->process, patience_ms);
	rpc_close(&child->rpc, NULL);
	json_destroy(&child->call.params);
	buffer_finish(&child->in);
	free(child);
}

// Tell the caller, once.
static void deliver(struct child *child, enum status status, const struct json *result)
{
	if (child->answered)
		return;
	child->answered = true;
	if (status)
		error_set(&child->error, status, "%s", status_text(status));
	struct child_outcome outcome = {.status = status, .result = result, .error = &child->error};
	child->call.done(child->call.arg, &outcome);
}

static void end_late(void *arg)
{
	process_kill(&((struct child *)arg)->process);
}

static void fail_garbage(struct child *child, const struct error *fault)
{
	error_set(&child->error, STATUS_INTERNAL, "the worker's answer breaks the protocol: %s", fault->message);
	deliver(child, STATUS_INTERNAL, NULL);
	process_kill(&child->process);
}

static void answered(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct child *child = context;
	if (status)
		child->error = *error;
	deliver(child, status, result);
}

static void take_answer(struct child *child, const uint8_t *frame, size_t length)
{
	struct error fault = {0};
	const enum rpc_heard heard = rpc_receive(&child->rpc, frame, length, true, &fault);
	if (heard != RPC_ANSWERED)
		fail_garbage(child, &fault);
	net_timer_start(child->children->loop, &child->deadline, CHILD_END_MS, end_late, child);
}

// The first message of a worker may have no head: it brings the supervisor's end of the filter.
static bool is_empty(const uint8_t *frame, size_t length)
{
	return length == 4 && !memcmp(frame, (const uint8_t[4]){0}, 4);
}

static void take_messages(struct child *child)
{
	const uint8_t *frame;
	size_t frame_bytes, used = 1;
	struct error fault = {0};
	while (used && !child->answered) {
		if (message_next(&child->in, &frame, &frame_bytes, &used)) {
			error_set(&fault, STATUS_LIMIT_EXCEEDED, "a message of no possible length");
			fail_garbage(child, &fault);
			return;
		}
		if (!used)
			return;
		if (child->begun || !is_empty(frame, frame_bytes))
			take_answer(child, frame, frame_bytes);
		child->begun = true;
		buffer_consume(&child->in, used);
	}
}

// Read what is there, but not without end: other work waits for the loop. False once the other end is closed.
static bool read_socket(struct child *child, int fd)
{
	uint8_t bytes[16384];
	for (unsigned turn = 0; turn < READS_AT_ONCE; turn++) {
		int passed = -1;
		ssize_t got = refusals_receive(fd, bytes, sizeof(bytes), &passed);
		if (passed >= 0 && !child->refusals && !child->begun)
			refusals_create(&child->refusals, child->children->loop, passed, child->backend);
		else if (passed >= 0)
			close(passed);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
		if (child->answered)
			continue; // one call, one answer
		struct error fault = {0};
		if (buffer_append(&child->in, bytes, (size_t)got)) {
			error_set(&fault, STATUS_LIMIT_EXCEEDED, "a message of no possible length");
			fail_garbage(child, &fault);
		} else {
			take_messages(child);
		}
	}
	return true;
}

static void socket_readable(void *arg, int fd)
{
	struct child *child = arg;
	if (!read_socket(child, fd))
		net_watch_destroy(&child->socket); // its end says the rest
}

static void process_ended(void *arg, int wait_status)
{
	struct child *child = arg;
	if (child->socket)
		read_socket(child, child->socket_fd); // bytes that it sent before its end may not have been read yet
	if (!child->answered && !child->error.status) {
		char text[sizeof(child->error.message)];
		process_describe(&child->process, wait_status, text, sizeof(text));
		error_set(&child->error, child->process.killed ? STATUS_TIMEOUT : STATUS_UNAVAILABLE, "no answer: %s",
			  text);
	}
	deliver(child, child->error.status, NULL);
	release(child, &(int){0});
}

static void deadline_passed(void *arg)
{
	struct child *child = arg;
	char line[200];
	process_last_line(&child->process, line, sizeof(line));
	error_set(&child->error, STATUS_TIMEOUT, "no answer within %g s%s%s", (double)child->call.deadline_ms / 1000,
		  line[0] ? "; it printed last: " : "", line);
	process_kill(&child->process);
	deliver(child, STATUS_TIMEOUT, NULL);
}

static const struct net_watch_events socket_events = {.readable = socket_readable};

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct child *child = arg;
	struct buffer out;
	(void)body; // none has one
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	enum status status = message_encode_stream(&out, (const char *)head->data, head->length, NULL, 0);
	// A call is a few hundred bytes: it fits into an empty socket, or the socket is no use.
	if (!status && send(child->socket_fd, out.data, out.length, MSG_NOSIGNAL) != (ssize_t)out.length)
		status = error_errno(&child->error, STATUS_UNAVAILABLE, errno, "calling the worker");
	buffer_finish(&out);
	return status;
}

static enum status ask(struct child *child)
{
	struct json *params = child->call.params;
	child->call.params = NULL;
	rpc_init(&child->rpc, &(struct rpc_params){.contract = child->children->contract,
						   .serves = "worker-to-node",
						   .peer = "the worker",
						   .most_calls = 1,
						   .send = send_message,
						   .arg = child});
	return rpc_call(
		&child->rpc,
		&(struct rpc_ask){.method = child->call.method, .params = params, .done = answered, .context = child});
}

static enum status start(struct child *child)
{
	int sockets[2];
	struct net_loop *loop = child->children->loop;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		return error_errno(&child->error, STATUS_UNAVAILABLE, errno, "a worker's socket");
	struct process_params params = {.loop = loop,
					.socket = sockets[1],
					.stream = -1,
					.model = child->call.given ? child->call.given : -1,
					.ring_in = -1,
					.ring_out = -1,
					.draft = -1,
					.alone = true,
					.ended = process_ended,
					.arg = child};
	child->socket_fd = sockets[0];
	child->backend = backend_kind_parse(json_get_string(child->call.params, "backend", ""));
	enum status status = net_watch_create(&child->socket, loop, sockets[0], &socket_events, child, &child->error);
	if (status)
		close(sockets[0]);
	if (!status)
		status = process_start(&child->process, &params, &child->error);
	close(sockets[1]);
	if (!status)
		status = ask(child);
	return status;
}

// A call that could not even be made fails from the loop, like any other.
static void fail_start(void *arg)
{
	struct child *child = arg;
	deliver(child, child->error.status, NULL);
	if (!child->process.pid)
		release(child, &(int){0});
}

enum status children_create(struct children **out, struct net_loop *loop, const struct contract *contract)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return STATUS_OUT_OF_MEMORY;
	(*out)->loop = loop;
	(*out)->contract = contract;
	return STATUS_OK;
}

void children_destroy(struct children **children)
{
	if (!*children)
		return;
	int patience_ms = CHILD_STOP_MS;
	for (struct child *child = (*children)->list; child; child = child->next) {
		if (!child->answered && child->call.drop)
			child->call.drop(child->call.arg);
		child->answered = true;
		process_kill(&child->process);
	}
	for (struct child *child = (*children)->list, *next; child; child = next) {
		next = child->next;
		release(child, &patience_ms);
	}
	free(*children);
	*children = NULL;
}

void children_call(struct children *children, const struct child_call *call)
{
	struct child *child = calloc(1, sizeof(*child));
	if (!child) { // nothing to remember the call by: the only failure that is reported at once
		struct error error = {0};
		struct json *params = call->params;
		json_destroy(&params);
		error_set(&error, STATUS_OUT_OF_MEMORY, "no memory for a worker");
		call->done(call->arg, &(struct child_outcome){.status = STATUS_OUT_OF_MEMORY, .error = &error});
		return;
	}
	*child = (struct child){.children = children, .call = *call};
	LIST_PUSH(&children->list, child, at);
	children->count++;
	buffer_init(&child->in, LIMIT_WORKER_MESSAGE_BYTES);
	enum status status = start(child);
	if (status) {
		error_set(&child->error, status, "calling a worker: %s", status_text(status));
		process_kill(&child->process);
		net_timer_start(children->loop, &child->deadline, 0, fail_start, child);
	} else {
		net_timer_start(children->loop, &child->deadline, call->deadline_ms, deadline_passed, child);
	}
}

size_t children_count(const struct children *children)
{
	return children->count;
}
