/* A call's way: message, method, login, scope, rate, parameters, handler, answer. See api.h. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/wire/said.h"
#include "server/api/call.h"

#include <stdlib.h>
#include <string.h>

static const struct api_handler *const tables[] = {
	server_handlers,   auth_handlers,     cluster_handlers,     events_handlers,  telemetry_handlers,
	device_handlers,   token_handlers,    memory_handlers,      compute_handlers, audit_handlers,
	node_handlers,     ticket_handlers,   certificate_handlers, model_handlers,   catalog_handlers,
	instance_handlers, topology_handlers, chat_handlers,        alert_handlers,   thermal_handlers,
	usage_handlers,    lend_handlers,     conversation_handlers};

static const struct api_handler *find_handler(const char *method, size_t *count)
{
	const struct api_handler *found = NULL;
	*count = 0;
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
		for (const struct api_handler *handler = tables[i]; handler->method; handler++, (*count)++)
			if (!strcmp(handler->method, method))
				found = handler;
	return found;
}

// One handler for each method of the contract and none besides, or the server does not start.
enum status api_bind_handlers(struct api *api, struct error *error)
{
	const struct contract_method *method;
	size_t methods = 0, handlers = 0;
	while (contract_at(api->params.contract, methods))
		methods++;
	api->handlers = calloc(methods + 1, sizeof(*api->handlers));
	if (!api->handlers)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	for (size_t i = 0; (method = contract_at(api->params.contract, i)); i++) {
		api->handlers[i] = find_handler(method->name, &handlers);
		if (!api->handlers[i])
			return error_set(error, STATUS_INTERNAL, "the contract's method %s has no handler",
					 method->name);
		if (strcmp(method->scope ? method->scope : "", "none") != 0 &&
		    !token_scope_parse(method->scope ? method->scope : ""))
			return error_set(error, STATUS_INTERNAL, "the contract's method %s has no known x-scope",
					 method->name);
	}
	if (handlers != methods)
		return error_set(error, STATUS_INTERNAL, "%zu handlers for %zu methods of the contract", handlers,
				 methods);
	return STATUS_OK;
}

static void send_text(struct api_client *client, struct buffer *text)
{
	if (client->conn && !text->failed)
		net_conn_send_text(client->conn, buffer_text(text), text->length);
}

// `data`: taken; may be NULL.
static void answer_error_with(struct api_client *client, const struct json *id, const struct error *error,
			      struct json *data)
{
	struct api *api = client->api;
	struct json *known = data ? data : json_new_object(), *said;
	buffer_clear(&api->text);
	if ((said = said_read(error->message[0] ? error->message : status_text(error->status))))
		json_set(known, "message_said", said);
	if ((said = said_read(error->hint)))
		json_set(known, "hint_said", said);
	if (!message_print_error_with(&api->text, id, error, known))
		send_text(client, &api->text);
}

static void answer_error(struct api_client *client, const struct json *id, const struct error *error)
{
	answer_error_with(client, id, error, NULL);
}

static void check_result(const struct api_call *call, const struct json *result)
{
#ifndef NDEBUG
	struct error error = {0};
	if (contract_check_result(call->api->params.contract, call->method, result, &error)) {
		log_error("api", "the result of %s breaks the contract: %s", call->method->name, error.message);
		abort();
	}
#else
	(void)call, (void)result;
#endif
}

static void client_release(struct api_client *client)
{
	if (!client->closed || client->calls)
		return;
	api_give_place(client);
	free(client);
}

static void call_destroy(struct api_call *call)
{
	struct api_client *client = call->client;
	call->api->stats.under_way--;
	json_destroy(&call->id);
	json_destroy(&call->kept);
	free(call);
	client->calls--;
	client_release(client);
}

// Put the head before the body, where it lies if there is room before it.
static struct net_frame *frame_answer(struct api *api, const struct api_call *call, struct json *result,
				      struct net_frame *body)
{
	uint8_t *text;
	buffer_clear(&api->text);
	buffer_append_u32le(&api->text, 0);
	if (message_print_result(&api->text, call->id, result))
		return NULL;
	text = api->text.data;
	uint32_t head = (uint32_t)api->text.length - 4;
	for (int i = 0; i < 4; i++)
		text[i] = (uint8_t)(head >> 8 * i);
	if (!body)
		return net_frame_create(text, api->text.length, false);
	if (!net_frame_prepend(body, text, api->text.length))
		return net_frame_ref(body);
	return net_frame_chain(text, api->text.length, body);
}

void api_finish_body(struct api_call *call, struct json *result, struct net_frame *body)
{
	struct api_client *client = call->client;
	check_result(call, result);
	if (call->id && client->conn) {
		struct net_frame *frame = frame_answer(call->api, call, result, body);
		if (frame) {
			net_conn_send(client->conn, frame, 0);
			net_frame_unref(&frame);
			tenant_conn_sent(&client->tenant_conn);
		}
	} else {
		json_destroy(&result);
	}
	call_destroy(call);
}

void api_finish(struct api_call *call, enum status status, struct json *result, const struct error *error)
{
	struct api *api = call->api;
	struct api_client *client = call->client;
	if (status) {
		struct error unknown = {.status = status};
		api->stats.failed_calls++;
		if (call->id)
			answer_error_with(client, call->id, error && error->message[0] ? error : &unknown, result);
		else
			json_destroy(&result);
	} else {
		check_result(call, result);
		buffer_clear(&api->text);
		if (call->id && client->conn && !message_print_result(&api->text, call->id, result))
			send_text(client, &api->text);
		else if (!call->id || !client->conn)
			json_destroy(&result);
	}
	call_destroy(call);
}

// An answer that waits.
struct late_answer {
	struct late_answer *next, **link;
	struct net_timer timer;
	struct api_call *call;
	struct error error;
};

static void answer_now(void *context)
{
	struct late_answer *late = context;
	struct api_call *call = late->call;
	struct error error = late->error;
	limits_wait_held(&call->client->place, --call->client->late > 0);
	net_timer_stop(call->api->params.loop, &late->timer);
	LIST_REMOVE(late, link);
	free(late);
	api_finish(call, error.status, NULL, &error);
}

void api_finish_late(struct api_call *call, int64_t delay_ms, const struct error *error)
{
	struct api *api = call->api;
	struct late_answer *late = calloc(1, sizeof(*late));
	if (!late) {
		api_finish(call, error->status, NULL, error);
		return;
	}
	*late = (struct late_answer){.call = call, .error = *error};
	LIST_PUSH(&api->late_answers, late, link);
	call->client->late++;
	limits_wait_held(&call->client->place, true);
	net_timer_start(api->params.loop, &late->timer, delay_ms, answer_now, late);
}

void api_answer_all(struct api *api)
{
	while (api->late_answers)
		answer_now(api->late_answers);
}

// A call that was refused for who makes it is counted.
static void refused(const struct api_client *client, const struct contract_method *method, enum status status)
{
	if (status != STATUS_FORBIDDEN && status != STATUS_RATE_LIMITED && status != STATUS_UNAUTHENTICATED)
		return;
	struct audit_actor stranger;
	if (!client->session)
		api_stranger(&stranger, client->actor.peer);
	audit_count(client->api->params.audit, &(struct audit_tally){.by = client->session ? &client->actor : &stranger,
								     .action = method ? method->name : "api.call",
								     .outcome = status});
}

// Whether this caller may make this call at all.
static enum status admit(struct api_client *client, const struct contract_method *method, struct error *error)
{
	if (!strcmp(method->scope, "none"))
		return STATUS_OK;
	if (!client->session) {
		error_set(error, STATUS_UNAUTHENTICATED, "log in before calling %s", method->name);
		error_hint(error,
			   "call auth.login with a token first, or send Authorization: Bearer TOKEN on the upgrade");
		return STATUS_UNAUTHENTICATED;
	}
	struct token *token = client->session->token;
	if (token) {
		enum status status = token_usable(token, token_clock_ms(), error);
		if (!status)
			status = token_take_call(token, client->now_ns / 1000000, error);
		if (status)
			return status;
	}
	uint32_t scope = token_scope_parse(method->scope);
	if (!(api_scopes(client) & (scope | SCOPE_ADMIN))) {
		error_set(error, STATUS_FORBIDDEN, "%s needs the scope %s", method->name, method->scope);
		error_hint(error,
			   "ask an admin for a token with that scope: exogpu token create --name NAME --scopes %s",
			   method->scope);
		return STATUS_FORBIDDEN;
	}
	return STATUS_OK;
}

// Whether the message carries a body where its method wants one, and none where it does not.
static enum status check_body(const struct contract_method *method, const struct message *message, bool binary,
			      struct error *error)
{
	if (message->body && method->body == CONTRACT_BODY_NONE)
		return error_set(error, STATUS_INVALID_PARAMS, "%s takes no body", method->name);
	if (binary || method->body != CONTRACT_BODY_REQUIRED)
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS, "%s takes its bytes as the body of a binary frame", method->name);
	error_hint(error, "send u32 little-endian length of the head, the head (this JSON object), then the bytes");
	return STATUS_INVALID_PARAMS;
}

static void run_call(struct api_client *client, const struct message *message, bool binary)
{
	struct api *api = client->api;
	struct error error = {0};
	struct json *result = NULL;
	const struct contract_method *method = contract_find(api->params.contract, message->method);
	enum status status = STATUS_OK;
	api->stats.calls++;
	if (!client->session && (!method || strcmp(method->scope, "none") != 0)) {
		// Before login nobody learns which methods there are.
		status = error_set(&error, STATUS_UNAUTHENTICATED, "log in first");
		error_hint(&error,
			   "call auth.login with a token first, or send Authorization: Bearer TOKEN on the upgrade");
	} else if (!method) {
		status = error_set(&error, STATUS_METHOD_NOT_FOUND, "there is no method \"%.64s\"", message->method);
		error_hint(&error, "the methods are in /schema/api.json");
	} else if (client->calls >= limits_get(api->params.limits, LIMIT_CALLS_IN_FLIGHT_ID)) {
		status = error_set(&error, STATUS_LIMIT_EXCEEDED, "%u calls are in flight on this connection",
				   client->calls);
		error_hint(&error, "wait for answers before sending more");
	}
	if (!status)
		status = admit(client, method, &error);
	refused(client, method, status);
	if (!status)
		status = check_body(method, message, binary, &error);
	if (!status)
		status = contract_check_params(api->params.contract, method, message->params, &error);
	struct api_call *call = status ? NULL : calloc(1, sizeof(*call));
	if (!call) {
		api->stats.failed_calls++;
		error_set(&error, STATUS_OUT_OF_MEMORY, "out of memory");
		if (message->id)
			answer_error(client, message->id, &error);
		return;
	}
	call->api = api;
	call->client = client;
	call->method = method;
	call->began_ns = client->now_ns;
	call->id = message->id ? json_copy(message->id) : NULL;
	call->body = message->body;
	call->body_bytes = message->body_bytes;
	call->holder = message->body ? net_conn_message_frame(client->conn) : NULL;
	client->calls++;
	api->stats.under_way++;
	const struct api_handler *handler = api->handlers[method - contract_at(api->params.contract, 0)];
	status = handler->owned ? api_run_owned(call, handler, message->params, &error)
				: handler->run(call, message->params, &result, &error);
	if (status == STATUS_FORBIDDEN || status == STATUS_RATE_LIMITED)
		refused(client, method, status);
	if (status != STATUS_PENDING)
		api_finish(call, status, result, &error);
}

// Messages that one connection may send: messages_per_s on the whole, twice that at once.
static bool over_rate(struct api_client *client)
{
	const double most = (double)limits_get(client->api->params.limits, LIMIT_MESSAGES_PER_S_ID);
	client->now_ns = clock_steady_ns();
	client->allowance += (double)(client->now_ns - client->allowance_ns) * most * 1e-9;
	client->allowance_ns = client->now_ns;
	if (client->allowance > 2 * most)
		client->allowance = 2 * most;
	if (client->allowance < 1)
		return true;
	client->allowance -= 1;
	return false;
}

void api_client_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct api_client *client = user;
	struct message message;
	struct error error = {0};
	if (over_rate(client)) {
		net_conn_close(conn, 4429, "too many messages");
		return;
	}
	enum status status = binary ? message_decode(&message, bytes, length, &error)
				    : message_decode_text(&message, (const char *)bytes, length, &error);
	if (status)
		answer_error(client, message.id, &error);
	else if (message.kind == MESSAGE_REQUEST || message.kind == MESSAGE_NOTIFICATION)
		run_call(client, &message, binary);
	message_finish(&message); // an answer to a question that was not asked is passed over
}
