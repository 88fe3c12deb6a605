/* cluster.*: the whole state at once. Thread: the loop's. */
#include "server/api/call.h"

struct json *api_snapshot(const struct api_client *client)
{
	const struct api *api = client->api;
	const bool admin = (api_scopes(client) & SCOPE_ADMIN) != 0;
	const struct tenancy_list_params everyone = {
		.token = client->session->token, .all = true, .masks_others = !admin};
	tenancy_flush_events(api->params.tenants);
	struct json *snapshot = cluster_snapshot(api->params.cluster);
	json_set(snapshot, "models", models_list_json(api->params.models, admin));
	json_set(snapshot, "instances", instances_list_json(api->params.instances));
	json_set(snapshot, "allocations", tenancy_list(api->params.tenants, &everyone));
	json_set(snapshot, "alerts", alerts_json(api->params.alerts));
	joins_add_nodes(api->params.joins, (struct json *)json_get(snapshot, "nodes"));
	return snapshot;
}

static enum status cluster_snapshot_call(struct api_call *call, const struct json *params, struct json **result,
					 struct error *error)
{
	(void)params, (void)error;
	*result = api_snapshot(call->client);
	return STATUS_OK;
}

const struct api_handler cluster_handlers[] = {
	{"cluster.snapshot", .run = cluster_snapshot_call},
	{0},
};
