/* Calls to workers: kept until their device is open, sent in order, answered once. See inside.h. What is sent and not
 * answered waits in the worker's rpc; a read that is asked for by a note (sharing.c) waits there, too. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/tenants/inside.h"

#include <stdlib.h>
#include <string.h>

static void queue_init(struct worker_queue *queue)
{
	*queue = (struct worker_queue){.last = &queue->first};
}

static void push(struct worker_queue *queue, struct worker_call *call)
{
	call->next = NULL;
	*queue->last = call;
	queue->last = &call->next;
	queue->count++;
}

struct worker_call *worker_call_create(const struct tenant_call *client,
				       void (*done)(struct worker_call *call, enum status status,
						    const struct json *result, struct net_frame *body,
						    const struct error *error))
{
	struct worker_call *call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	if (client)
		call->client = *client;
	call->done = done;
	return call;
}

static void drop_body(struct worker_call *call)
{
	if (call->holder)
		net_frame_unref(&call->holder);
	free(call->kept);
	call->kept = NULL;
}

void worker_call_destroy(struct worker_call **pointer)
{
	struct worker_call *call = *pointer;
	if (!call)
		return;
	*pointer = NULL;
	json_destroy(&call->params);
	drop_body(call);
	net_frame_unref(&call->place);
	free(call);
}

void call_answer(const struct worker_call *call, enum status status, struct json *result, const struct error *error)
{
	if (call->client.done)
		call->client.done(call->client.context, status, result, NULL, error);
	else
		json_destroy(&result);
}

// ---- sending ----

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct worker *worker = arg;
	const enum status status = stream_send(worker, &(struct net_parts){.head = head->data,
									   .head_bytes = head->length,
									   .body = body->bytes,
									   .body_bytes = body->length,
									   .holder = body->holder});
	worker->refused = status;
	return status;
}

static enum status send_now(struct worker *worker, struct worker_call *call, const struct worker_send_params *params,
			    struct error *error)
{
	worker->refused = false;
	enum status status = rpc_call(&worker->rpc,
				      &(struct rpc_ask){.method = params->method,
							.params = params->params,
							.numbers = params->numbers,
							.number_count = params->number_count,
							.done = worker_call_over,
							.context = call,
							.body = &(struct rpc_body){.bytes = params->body,
										   .length = params->body_bytes,
										   .holder = params->holder}});
	call->id = worker->rpc.last_id;
	if (!status) {
		call->unanswered_bytes = strcmp(worker->backend, "webgpu") ? 0 : params->body_bytes;
		worker->unanswered_bytes += call->unanswered_bytes;
		return STATUS_OK;
	}
	if (!worker->refused)
		return error_set(error, status, "the call is longer than a message may be");
	if (worker->instance && status == STATUS_LIMIT_EXCEEDED)
		status = STATUS_RATE_LIMITED; // who asks a model is told by this to come again
	error_set(error, status, "the worker has more to do than fits its queue");
	error_hint(error, "wait for answers before sending more");
	return status;
}

// Keep a call, with its body, until its device is open.
static enum status keep(struct worker *worker, struct worker_call *call, const struct worker_send_params *params,
			struct error *error)
{
	if (worker->waiting.count >= LIMIT_WORKER_CALLS || worker->waiting_bytes > LIMIT_STREAM_QUEUE_BYTES) {
		struct json *unused = params->params;
		json_destroy(&unused);
		error_set(error, STATUS_LIMIT_EXCEEDED, "too many calls wait for the worker to start");
		error_hint(error, "wait for answers before sending more");
		return STATUS_LIMIT_EXCEEDED;
	}
	if (params->holder) {
		call->holder = net_frame_ref(params->holder);
		call->body = params->body;
	} else if (params->body_bytes) {
		call->kept = malloc(params->body_bytes);
		if (!call->kept) {
			struct json *unused = params->params;
			json_destroy(&unused);
			return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
		}
		memcpy(call->kept, params->body, params->body_bytes);
		call->body = call->kept;
	}
	call->params = params->params;
	call->waiting_bytes = params->body_bytes;
	call->params_bytes = params->params_bytes;
	worker->waiting_bytes += params->body_bytes + params->params_bytes;
	push(&worker->waiting, call);
	return STATUS_OK;
}

enum status worker_send(struct worker *worker, struct worker_call *call, const struct worker_send_params *params,
			struct error *error)
{
	call->worker = worker;
	call->method = params->method;
	worker->worked_ms = clock_steady_ms();
	if (!params->waits || worker->devices[call->device].state == DEVICE_OPEN)
		return send_now(worker, call, params, error);
	enum status status = keep(worker, call, params, error);
	if (!status)
		worker_advance(worker);
	return status;
}

void worker_release(struct worker *worker, unsigned place, const struct error *error)
{
	struct worker_queue queue = worker->waiting;
	if (!queue.first)
		return;
	queue_init(&worker->waiting);
	for (struct worker_call *call = queue.first, *next; call; call = next) {
		struct error fault = {0};
		next = call->next;
		if (call->device != place) {
			push(&worker->waiting, call);
			continue;
		}
		worker->waiting_bytes -= call->waiting_bytes + call->params_bytes;
		const struct worker_send_params params = {.method = call->method,
							  .params = call->params,
							  .holder = call->holder,
							  .body = call->body,
							  .body_bytes = call->waiting_bytes};
		enum status status = error ? error->status : STATUS_OK;
		if (error) {
			fault = *error;
		} else {
			call->params = NULL;
			status = send_now(worker, call, &params, &fault);
			drop_body(call);
		}
		if (status) {
			call->done(call, status, NULL, NULL, &fault);
			worker_call_destroy(&call);
		}
	}
	worker_relax(worker);
}

static void fail_queue(struct worker_queue *queue, const struct error *error)
{
	while (queue->first) {
		struct worker_call *call = queue->first;
		queue->first = call->next;
		call->done(call, error->status, NULL, NULL, error);
		worker_call_destroy(&call);
	}
	queue_init(queue);
}

void worker_fail_calls(struct worker *worker, const struct error *error)
{
	worker->failing = true;
	rpc_end_calls(&worker->rpc, error);
	worker->failing = false;
	fail_queue(&worker->waiting, error);
}

// What a worker may say went wrong. Its text goes to its own tenant only.
static enum status told_status(enum status status)
{
	switch (status) {
	case STATUS_OK:
	case STATUS_INVALID_PARAMS:
	case STATUS_NOT_FOUND:
	case STATUS_OUT_OF_MEMORY:
	case STATUS_LIMIT_EXCEEDED:
	case STATUS_TIMEOUT:
	case STATUS_CONFLICT:
	case STATUS_DEVICE_LOST:
	case STATUS_RATE_LIMITED:
	case STATUS_UNAVAILABLE:
		return status;
	case STATUS_PENDING:
	case STATUS_PARSE_ERROR:
	case STATUS_INVALID_REQUEST:
	case STATUS_METHOD_NOT_FOUND:
	case STATUS_INTERNAL:
	case STATUS_UNAUTHENTICATED:
	case STATUS_FORBIDDEN:
	case STATUS_COUNT:
		return STATUS_INTERNAL;
	}
	return STATUS_INTERNAL;
}

void worker_call_over(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct worker_call *call = context;
	struct worker *worker = call->worker;
	worker->unanswered_bytes -= call->unanswered_bytes;
	if (worker->failing) {
		call->done(call, status, NULL, NULL, error);
		worker_call_destroy(&call);
		return;
	}
	struct error fault;
	if (status != told_status(status)) {
		fault = *error;
		status = fault.status = told_status(status);
		error = &fault;
	}
	if (call->noted)
		worker->stream->sharing.noted--;
	worker->worked_ms = clock_steady_ms();
	worker->asks++; // whoever is answered may end it
	call->done(call, status, result, status ? NULL : call->place ? call->place : worker->body, error);
	worker_call_destroy(&call);
	if (status == STATUS_TIMEOUT && !worker->ended)
		worker_fail(worker, "a kernel outlasted its time limit");
	else if (status == STATUS_DEVICE_LOST && !worker->ended)
		worker_fail(worker, "the device reported a fault that only a new process clears");
	else if (!worker->ended)
		worker_relax(worker);
	worker->asks--;
	worker_let_go(worker);
}

static enum status tell(void *arg, const struct message *message, struct error *error)
{
	struct worker *worker = arg;
	if (!worker->instance)
		return error_set(error, STATUS_METHOD_NOT_FOUND, "it says what none of a session does");
	instance_worker_notice(worker->instance, message);
	return STATUS_OK;
}

void worker_calls_init(struct worker *worker, int64_t last_id)
{
	static const struct rpc_method methods[] = {
		{"memory.moved", worker_moved}, {"generate.delta", tell}, {"generate.end", tell},
		{"instance.progress", tell},    {"instance.state", tell},
	};
	queue_init(&worker->waiting);
	rpc_init(&worker->rpc, &(struct rpc_params){.contract = worker->tenants->params.contract,
						    .serves = "worker-to-server",
						    .peer = "the worker",
						    .methods = methods,
						    .method_count = sizeof methods / sizeof *methods,
						    .most_calls = SIZE_MAX, // worker_hold, and the line's queue
						    .breach_ends = true,
						    .send = send_message,
						    .arg = worker});
	worker->rpc.last_id = worker->rpc.stale_id = last_id;
}

// ---- holding back ----

static size_t backlog(const struct worker *worker)
{
	return worker->waiting_bytes + worker->unanswered_bytes + stream_queued(worker);
}

static void hold(const struct worker *worker, struct tenant_conn *conn)
{
	if (!conn->conn || conn->waits_for)
		return;
	conn->waits_for = worker;
	net_conn_pause(conn->conn);
}

void worker_hold(struct worker *worker, struct tenant_conn *conn)
{
	size_t bytes = backlog(worker);
	bool full = bytes > LIMIT_STREAM_FULL_BYTES || worker->rpc.waiting >= LIMIT_WORKER_CALLS / 2;
	if (full && conn && conn->tenant == worker->tenant)
		hold(worker, conn);
	// Each connection may have sent a body before it is held, and many of them are more than the queue has room
	// for.
	if (bytes <= LIMIT_STREAM_QUEUE_BYTES / 2)
		return;
	for (struct tenant_conn *one = worker->tenant->conns, *next; one; one = next) {
		next = one->next;
		hold(worker, one);
	}
}

void worker_relax(struct worker *worker)
{
	if (!worker->ended &&
	    (backlog(worker) > LIMIT_STREAM_FULL_BYTES / 2 || worker->rpc.waiting >= LIMIT_WORKER_CALLS / 4))
		return;
	for (struct tenant_conn *conn = worker->tenant->conns, *next; conn; conn = next) {
		next = conn->next;
		if (conn->waits_for != worker)
			continue;
		conn->waits_for = NULL;
		net_conn_resume(conn->conn);
	}
}
