/* See rpc.h. */
#include "common/wire/rpc.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_BYTES = 4096 }; // of a head, that are kept to be used again

struct rpc_call {
	struct rpc_call *next;
	const struct contract_method *method;
	int64_t id, sent_ms, due_ms; // due_ms 0: never; then nobody asks when it was sent
	rpc_done *done;
	void *context;
};

static const struct error none;

static const struct contract_method *find_method(const struct rpc *rpc, const char *name)
{
	return rpc->params.contract ? contract_find(rpc->params.contract, name) : NULL;
}

static bool served(const struct rpc *rpc, const struct contract_method *method)
{
	return method && method->direction && !strcmp(method->direction, rpc->params.serves);
}

void rpc_init(struct rpc *rpc, const struct rpc_params *params)
{
	*rpc = (struct rpc){.params = *params};
	if (!params->now_ms)
		rpc->params.now_ms = clock_steady_ms;
	rpc->last = &rpc->first;
	buffer_init(&rpc->head, LIMIT_HEAD_BYTES);
	for (size_t i = 0; i < params->method_count; i++)
		assert(served(rpc, find_method(rpc, params->methods[i].name)));
}

// ---- what is sent ----

static enum status send_head(struct rpc *rpc, enum status status, struct buffer *head, const struct rpc_body *body)
{
	if (!status)
		status = rpc->closed ? STATUS_UNAVAILABLE : rpc->params.send(rpc->params.arg, head, body);
	buffer_finish(head);
	return status;
}

static enum status send_call(struct rpc *rpc, int64_t id, const struct rpc_ask *ask)
{
	struct buffer head = rpc->head; // taken, since what sends may call again
	enum status status;
	buffer_init(&rpc->head, LIMIT_HEAD_BYTES);
	buffer_clear(&head);
	if (ask->numbers) {
		status = message_print_call_of(&head, id, ask->method, ask->numbers, ask->number_count);
	} else {
		struct json *number = id ? json_new_integer(id) : NULL;
		status = message_print_call(&head, number, ask->method, ask->params);
		json_destroy(&number);
	}
	if (!status)
		status = rpc->closed ? STATUS_UNAVAILABLE : rpc->params.send(rpc->params.arg, &head, ask->body);
	if (rpc->closed || rpc->head.data || head.capacity > KEPT_BYTES)
		buffer_finish(&head);
	else
		rpc->head = head;
	return status;
}

enum status rpc_notify(struct rpc *rpc, const char *method, struct json *params)
{
	return send_call(rpc, 0, &(struct rpc_ask){.method = method, .params = params});
}

static struct rpc_call **find(struct rpc *rpc, int64_t id)
{
	struct rpc_call **at = &rpc->first;
	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

static struct rpc_call *take_out(struct rpc *rpc, struct rpc_call **at)
{
	struct rpc_call *call = *at;
	*at = call->next;
	if (!call->next)
		rpc->last = at;
	rpc->waiting--;
	return call;
}

// Tell who waits, and forget the call.
static void end(struct rpc_call *call, enum status status, const struct json *result, const struct error *error)
{
	call->done(call->context, status, result, error);
	free(call);
}

enum status rpc_expect(struct rpc *rpc, const struct rpc_ask *ask)
{
	const int64_t now_ms = ask->patience_ms ? rpc->params.now_ms() : 0;
	struct rpc_call *call = !rpc->closed && rpc->waiting < rpc->params.most_calls ? malloc(sizeof(*call)) : NULL;
	if (!call)
		return STATUS_UNAVAILABLE;
	*call = (struct rpc_call){.method = find_method(rpc, ask->method),
				  .id = ++rpc->last_id,
				  .sent_ms = now_ms,
				  .due_ms = ask->patience_ms ? now_ms + ask->patience_ms : 0,
				  .done = ask->done,
				  .context = ask->context};
	*rpc->last = call;
	rpc->last = &call->next;
	rpc->waiting++;
	return STATUS_OK;
}

enum status rpc_call(struct rpc *rpc, const struct rpc_ask *ask)
{
	if (ask->done && rpc_expect(rpc, ask)) {
		struct json *params = ask->params;
		json_destroy(&params);
		return STATUS_UNAVAILABLE;
	}
	const int64_t id = ask->done ? rpc->last_id : ++rpc->last_id;
	const enum status status = send_call(rpc, id, ask);
	struct rpc_call **at = status && ask->done ? find(rpc, id) : NULL;
	if (at && !*at) // told already: what sends may close
		return STATUS_OK;
	if (at)
		free(take_out(rpc, at));
	return status;
}

bool rpc_settle(struct rpc *rpc, int64_t id)
{
	struct rpc_call **at = find(rpc, id);
	if (!*at)
		return false;
	end(take_out(rpc, at), STATUS_OK, NULL, &none);
	return true;
}

void *rpc_find(const struct rpc *rpc, int64_t id, const char *method)
{
	const struct rpc_call *call = rpc->first;
	while (call && ((id && call->id != id) || (method && strcmp(call->method->name, method) != 0)))
		call = call->next;
	return call ? call->context : NULL;
}

static void check_result(const struct rpc *rpc, const char *name, const struct json *result)
{
#ifndef NDEBUG
	struct error error = {0};
	const struct contract_method *method = name ? find_method(rpc, name) : NULL;
	if (method && contract_check_result(rpc->params.contract, method, result, &error)) {
		log_error("wire", "the result of %s breaks the contract: %s", name, error.message);
		abort();
	}
#else
	(void)rpc, (void)name, (void)result;
#endif
}

static void answer_error(struct rpc *rpc, const struct json *id, const struct error *error)
{
	struct buffer head;
	buffer_init(&head, LIMIT_HEAD_BYTES);
	const enum status status = message_print_error(&head, id, error);
	send_head(rpc, status, &head, NULL);
}

void rpc_answer(struct rpc *rpc, const char *method, const struct json *id, struct json *result,
		const struct error *error)
{
	struct error unsent = {0};
	if (error || !id)
		json_destroy(&result);
	if (!id)
		return;
	const enum status status = error ? STATUS_OK : rpc_answer_body(rpc, method, id, result, NULL);
	if (status)
		error_set(&unsent, status, "the answer could not be sent: %s", status_text(status));
	if (error || status)
		answer_error(rpc, id, error ? error : &unsent);
}

enum status rpc_answer_body(struct rpc *rpc, const char *method, const struct json *id, struct json *result,
			    const struct rpc_body *body)
{
	struct buffer head;
	if (!rpc->closed)
		check_result(rpc, method, result);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	const enum status status = message_print_result(&head, id, result);
	return send_head(rpc, status, &head, body);
}

// ---- what comes ----

static enum status serve(struct rpc *rpc, const struct message *message, struct error *error)
{
	const struct rpc_params *params = &rpc->params;
	const struct contract_method *method = find_method(rpc, message->method);
	const struct rpc_method *one = NULL;
	enum status status = params->admit ? params->admit(params->arg, message->method, error) : STATUS_OK;
	if (!status && !served(rpc, method))
		return error_set(error, STATUS_METHOD_NOT_FOUND, "%s may call no method \"%.64s\" here", params->peer,
				 message->method);
	if (!status)
		status = contract_check_params(params->contract, method, message->params, error);
	if (status)
		return status;
	for (size_t i = 0; i < params->method_count && !one; i++)
		if (!strcmp(params->methods[i].name, method->name))
			one = &params->methods[i];
	return one ? one->serve(params->arg, message, error)
		   : error_set(error, STATUS_METHOD_NOT_FOUND, "%s is not served", method->name);
}

bool rpc_read_id(const struct message *message, int64_t *id)
{
	return json_type(message->id) == JSON_NUMBER && !json_integer(message->id, id) && *id > 0;
}

static enum rpc_heard take_error(struct rpc_call *call, const struct message *message)
{
	struct error error;
	message_read_error(message, &error);
	end(call, error.status, NULL, &error);
	return RPC_ANSWERED;
}

static enum rpc_heard take_breach(struct rpc *rpc, struct rpc_call *call, const struct error *fault)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "%s's answer breaks the contract: %s", rpc->params.peer, fault->message);
	end(call, STATUS_UNAVAILABLE, NULL, &error);
	return RPC_BROKEN;
}

static enum rpc_heard take_answer(struct rpc *rpc, const struct message *message, struct error *fault)
{
	int64_t id = INT64_MAX;
	struct rpc_call **at = rpc_read_id(message, &id) ? find(rpc, id) : NULL;
	if (!at && rpc->params.in_order && message->kind == MESSAGE_ERROR)
		at = &rpc->first;
	if (at && !*at && id <= rpc->stale_id) {
		error_set(fault, STATUS_NOT_FOUND, "%s answers what has ended", rpc->params.peer);
		return RPC_STALE;
	}
	if (!at || !*at) {
		error_set(fault, STATUS_NOT_FOUND, "%s answers what nobody waits for", rpc->params.peer);
		return RPC_UNASKED;
	}
	if (message->kind == MESSAGE_ERROR)
		return take_error(take_out(rpc, at), message);
	const struct contract_method *method = (*at)->method;
	const bool broken = method && contract_check_result(rpc->params.contract, method, message->result, fault);
	if (broken)
		return rpc->params.breach_ends ? RPC_BROKEN : take_breach(rpc, take_out(rpc, at), fault);
	end(take_out(rpc, at), STATUS_OK, message->result, &none);
	return RPC_ANSWERED;
}

enum rpc_heard rpc_take(struct rpc *rpc, const struct message *message, struct error *error)
{
	if (message->kind == MESSAGE_RESULT || message->kind == MESSAGE_ERROR)
		return take_answer(rpc, message, error);
	const enum status status = serve(rpc, message, error);
	if (status && status != STATUS_PENDING)
		error_set(error, status, "%s", status_text(status));
	if (status != STATUS_PENDING)
		rpc_answer(rpc, message->method, message->id, status || !message->id ? NULL : json_new_object(),
			   status ? error : NULL);
	return status && status != STATUS_PENDING ? RPC_REFUSED : RPC_SERVED;
}

// Who sent it is known by its id only; a notification has none, and is not answered for all that is wrong with it.
static void answer_fault(struct rpc *rpc, const struct message *message, const struct error *error)
{
	if (message->id || !message->method)
		answer_error(rpc, message->id, error);
}

enum rpc_heard rpc_receive(struct rpc *rpc, const uint8_t *bytes, size_t length, bool binary, struct error *error)
{
	struct message message;
	enum rpc_heard heard = RPC_GARBAGE;
	const enum status status = binary ? message_decode(&message, bytes, length, error)
					  : message_decode_text(&message, (const char *)bytes, length, error);
	if (!status)
		heard = rpc_take(rpc, &message, error);
	else if (rpc->params.answers_faults)
		answer_fault(rpc, &message, error);
	message_finish(&message);
	return heard;
}

// ---- time and end ----

// The first call that is late, or NULL, and then when the next will be; 0: never.
static struct rpc_call **find_late(struct rpc *rpc, int64_t now_ms, int64_t *next_ms)
{
	*next_ms = 0;
	for (struct rpc_call **at = &rpc->first; *at; at = &(*at)->next) {
		const int64_t due_ms = (*at)->due_ms;
		if (due_ms && due_ms <= now_ms)
			return at;
		if (due_ms && (!*next_ms || due_ms < *next_ms))
			*next_ms = due_ms;
	}
	return NULL;
}

int64_t rpc_expire(struct rpc *rpc)
{
	const int64_t now_ms = rpc->params.now_ms();
	int64_t next_ms;
	// From the beginning each time, since who is told may call or close.
	for (struct rpc_call **at; (at = find_late(rpc, now_ms, &next_ms));) {
		struct rpc_call *call = take_out(rpc, at);
		struct error error = {0};
		error_set(&error, STATUS_TIMEOUT, "%s did not answer %s in time", rpc->params.peer, call->method->name);
		end(call, STATUS_TIMEOUT, NULL, &error);
	}
	return next_ms ? next_ms - now_ms : -1;
}

const char *rpc_late(const struct rpc *rpc, int64_t *waited_ms)
{
	const int64_t now_ms = rpc->params.now_ms();
	const struct rpc_call *call = rpc->first;
	while (call && (!call->due_ms || call->due_ms > now_ms))
		call = call->next;
	*waited_ms = call ? now_ms - call->sent_ms : 0;
	return call ? call->method->name : NULL;
}

void rpc_postpone(struct rpc *rpc, int64_t ms)
{
	for (struct rpc_call *call = rpc->first; call; call = call->next)
		if (call->due_ms)
			call->due_ms += ms;
}

void rpc_end_calls(struct rpc *rpc, const struct error *error)
{
	rpc->stale_id = rpc->last_id;
	while (rpc->first && rpc->first->id <= rpc->stale_id)
		end(take_out(rpc, &rpc->first), error->status, NULL, error);
}

void rpc_close(struct rpc *rpc, const struct error *error)
{
	rpc->closed = true;
	while (rpc->first && error)
		end(take_out(rpc, &rpc->first), error->status, NULL, error);
	while (rpc->first)
		free(take_out(rpc, &rpc->first));
	buffer_finish(&rpc->head);
}
