/* memory.*: what sessions hold. Thread: the loop's. */
#include "server/api/call.h"

static enum status memory_list(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	const struct tenancy_list_params list = {.token = call->client->session->token,
						 .all = (api_scopes(call->client) & SCOPE_ADMIN) != 0,
						 .labels = true};
	(void)params, (void)error;
	*result = json_new_object();
	json_set(*result, "allocations", tenancy_list(call->api->params.tenants, &list));
	return STATUS_OK;
}

const struct api_handler memory_handlers[] = {
	{"memory.allocate", .owned = tenant_allocate, .entry = true},
	{"memory.write", .owned = tenant_write},
	{"memory.read", .owned = tenant_read},
	{"memory.copy", .owned = tenant_copy},
	{"memory.fill", .owned = tenant_fill},
	{"memory.free", .owned = tenant_free, .entry = true},
	{"memory.list", .run = memory_list},
	{0},
};
