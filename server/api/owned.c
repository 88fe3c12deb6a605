/* Calls about what a session owns (memory.*, compute.*): the work is server/tenants', here a call becomes one of its
 * and its outcome an answer, and an entry of the audit log.
 *
 * What allocates, frees, loads or unloads is answered when its entry is on disk; if that cannot be, what was made is
 * undone. The rest, and whatever fails, is counted. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/api/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void count(struct api_call *call, enum status status)
{
	const struct tenant_about *about = &call->about;
	struct api_session *session = call->session;
	const char *name = call->method->name;
	const bool launch = !strcmp(name, "compute.launch") || !strcmp(name, "compute.run");
	const bool counts = !status && !call->handler->entry;
	const struct audit_tally tally = {.by = &call->client->actor,
					  .action = call->method->name,
					  // the name of a kernel that there is; what else was asked for is the tenant's
					  .target = launch && status ? NULL : about->target,
					  .node_id = about->node_id,
					  .device_id = about->device_id,
					  .outcome = status,
					  .bytes = status ? 0 : about->bytes,
					  .duration_us = (clock_steady_ns() - call->began_ns) / 1000};
	audit_count(call->api->params.audit, &tally);
	session->launches += launch && counts;
	if (counts && call->method->result_body)
		session->read_bytes += about->bytes;
	else if (counts && call->body_bytes)
		session->written_bytes += about->bytes;
}

static void let_go(struct api_call *call)
{
	struct token *token = call->session->token;
	if (token)
		token->in_flight_bytes -= call->in_flight_bytes;
	call->in_flight_bytes = 0;
}

static bool makes(const struct api_call *call)
{
	return !strcmp(call->method->name, "memory.allocate") || !strcmp(call->method->name, "compute.load");
}

// The entry is on disk, or could not be written: what was made goes again, what is gone is told as soon as that can be.
// The session may be over by now.
static void written(void *context, enum status status, const struct error *error)
{
	(void)error; // names files of the server's: the log has it
	struct api_call *call = context;
	struct error fault = {0};
	struct json *result = call->kept;
	call->kept = NULL;
	if (status && makes(call)) {
		error_set(&fault, STATUS_UNAVAILABLE, "undone, because the audit log cannot be written");
		tenancy_undo(call->api->params.tenants, call->about.target);
	} else if (status) {
		const struct audit_tally again = {.by = &call->client->actor,
						  .action = call->method->name,
						  .target = call->about.target,
						  .node_id = call->about.node_id,
						  .device_id = call->about.device_id,
						  .bytes = call->about.bytes};
		audit_tell(call->api->params.audit, &again);
		error_set(&fault, STATUS_UNAVAILABLE,
			  "it is done, but the audit log cannot be written; the entry follows later");
	}
	if (status) {
		error_hint(&fault, "the server's operator must check the disk");
		json_destroy(&result);
	}
	api_finish(call, status ? STATUS_UNAVAILABLE : STATUS_OK, result, &fault);
}

static void put_on_record(struct api_call *call, struct json *result)
{
	char detail[160];
	struct error error = {0};
	struct tenant_about *about = &call->about;
	int length = snprintf(detail, sizeof detail, "{\"bytes\":%" PRIu64, about->bytes);
	if (about->taken_from[0])
		length += snprintf(detail + length, sizeof detail - (size_t)length, ",\"taken_from\":\"%s\"",
				   about->taken_from);
	snprintf(detail + length, sizeof detail - (size_t)length, "}");
	snprintf(about->target, sizeof about->target, "%s",
		 json_get_string(result, "allocation_id", json_get_string(result, "module_id", "")));
	const struct audit_event event = {.by = &call->client->actor,
					  .action = call->method->name,
					  .target = about->target,
					  .node_id = about->node_id,
					  .device_id = about->device_id,
					  .detail = detail,
					  .began_ns = call->began_ns};
	call->kept = result;
	enum status status = audit_write(call->api->params.audit, &event, written, call, &error);
	if (status)
		written(call, status, &error);
}

static void done(void *context, enum status status, struct json *result, struct net_frame *body,
		 const struct error *error)
{
	struct api_call *call = context;
	let_go(call);
	if (!status && call->handler->entry) {
		put_on_record(call, result);
		return;
	}
	count(call, status);
	if (!status && call->method->result_body)
		api_finish_body(call, result, body);
	else
		api_finish(call, status, result, error);
}

// Bytes that the server or a worker holds for this call until it is answered: of its body, of the answer's, or of its
// numbers.
static enum status take_room(struct api_call *call, const struct json *params, struct error *error)
{
	struct token *token = call->session->token;
	const uint64_t most = (uint64_t)limits_get(call->api->params.limits, LIMIT_IN_FLIGHT_BYTES_OF_TOKEN_ID);
	uint64_t bytes = call->body_bytes;
	if (call->method->result_body)
		bytes += (uint64_t)json_get_integer(params, "bytes", 0);
	if (!strcmp(call->method->name, "compute.run")) {
		const size_t numbers = tenant_run_numbers(params); // more are refused
		bytes += (numbers <= LIMIT_RUN_NUMBERS ? numbers : 0) * LIMIT_RUN_NUMBER_BYTES;
	}
	if (token && bytes && token->in_flight_bytes + bytes > most) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "transfers of this token with %" PRIu64 " bytes are in flight",
			  token->in_flight_bytes);
		error_hint(error, "wait for answers; a token may have %" PRIu64 " in flight", most);
		return STATUS_LIMIT_EXCEEDED;
	}
	call->in_flight_bytes = bytes;
	if (token)
		token->in_flight_bytes += bytes;
	return STATUS_OK;
}

enum status api_run_owned(struct api_call *call, const struct api_handler *handler, const struct json *params,
			  struct error *error)
{
	call->session = call->client->session;
	call->handler = handler;
	const struct tenant_call owned = {.tenant = call->client->session->tenant,
					  .conn = &call->client->tenant_conn,
					  .id = call->id,
					  .params = params,
					  .holder = call->holder,
					  .body = call->body,
					  .body_bytes = call->body_bytes,
					  .admin = (api_scopes(call->client) & SCOPE_ADMIN) != 0,
					  .about = &call->about,
					  .done = done,
					  .context = call};
	enum status status = audit_check(call->api->params.audit, error);
	if (status)
		return status;
	status = take_room(call, params, error);
	if (!status) {
		status = handler->owned(&owned, error);
		if (status)
			let_go(call);
	}
	if (status)
		count(call, status);
	return status ? status : STATUS_PENDING;
}
