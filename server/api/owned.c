/* Calls about what a session owns (memory.*, compute.*): the work is server/tenants', here a call becomes one of its
 * and its outcome an answer. Thread: the loop's. */
#include "server/api/call.h"

static void done(void *context, enum status status, struct json *result, struct net_frame *body,
		 const struct error *error)
{
	struct api_call *call = context;
	if (!status && call->method->result_body)
		api_finish_body(call, result, body);
	else
		api_finish(call, status, result, error);
}

enum status api_run_owned(struct api_call *call, const struct api_handler *handler, const struct json *params,
			  struct error *error)
{
	const struct tenant_call owned = {.tenant = call->client->session->tenant,
					  .conn = &call->client->tenant_conn,
					  .id = call->id,
					  .params = params,
					  .holder = call->holder,
					  .body = call->body,
					  .body_bytes = call->body_bytes,
					  .admin = (api_scopes(call->client) & SCOPE_ADMIN) != 0,
					  .done = done,
					  .context = call};
	enum status status = handler->owned(&owned, error);
	return status ? status : STATUS_PENDING;
}
