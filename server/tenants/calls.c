/* Calls to workers: kept until their device is open, sent in order, answered once. See inside.h. */
#include "common/base/log.h"
#include "common/wire/message.h"
#include "server/tenants/inside.h"

#include <stdlib.h>
#include <string.h>

void worker_queue_init(struct worker_queue *queue)
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

static enum status send_now(struct worker *worker, struct worker_call *call, const struct worker_send_params *params,
			    struct error *error)
{
	struct buffer *text = &worker->tenants->text;
	enum status status;
	call->id = ++worker->next_call;
	buffer_clear(text);
	if (params->numbers) {
		status = message_print_call_of(text, call->id, params->method, params->numbers, params->number_count);
	} else {
		struct json *id = json_new_integer(call->id);
		status = message_print_call(text, id, params->method, params->params);
		json_destroy(&id);
	}
	if (status)
		return error_set(error, status, "the call is longer than a message may be");
	status = stream_send(worker, &(struct net_parts){.head = text->data,
							 .head_bytes = text->length,
							 .body = params->body,
							 .body_bytes = params->body_bytes,
							 .holder = params->holder});
	if (status) {
		if (worker->instance && status == STATUS_LIMIT_EXCEEDED)
			status = STATUS_RATE_LIMITED; // who asks a model is told by this to come again
		error_set(error, status, "the worker has more to do than fits its queue");
		error_hint(error, "wait for answers before sending more");
		return status;
	}
	push(&worker->sent, call);
	return STATUS_OK;
}

void worker_call_sent(struct worker *worker, struct worker_call *call)
{
	push(&worker->sent, call);
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
	call->method = contract_find(worker->tenants->params.contract, params->method);
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
	worker_queue_init(&worker->waiting);
	for (struct worker_call *call = queue.first, *next; call; call = next) {
		struct error fault = {0};
		next = call->next;
		if (call->device != place) {
			push(&worker->waiting, call);
			continue;
		}
		worker->waiting_bytes -= call->waiting_bytes + call->params_bytes;
		const struct worker_send_params params = {.method = call->method->name,
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
	worker_queue_init(queue);
}

void worker_fail_calls(struct worker *worker, const struct error *error)
{
	fail_queue(&worker->sent, error);
	fail_queue(&worker->waiting, error);
}

// ---- holding back ----

static size_t backlog(const struct worker *worker)
{
	return worker->waiting_bytes + stream_queued(worker);
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
	bool full = bytes > LIMIT_STREAM_FULL_BYTES || worker->sent.count >= LIMIT_WORKER_CALLS / 2;
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
	    (backlog(worker) > LIMIT_STREAM_FULL_BYTES / 2 || worker->sent.count >= LIMIT_WORKER_CALLS / 4))
		return;
	for (struct tenant_conn *conn = worker->tenant->conns, *next; conn; conn = next) {
		next = conn->next;
		if (conn->waits_for != worker)
			continue;
		conn->waits_for = NULL;
		net_conn_resume(conn->conn);
	}
}
