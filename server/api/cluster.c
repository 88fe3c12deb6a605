/* cluster.*: the whole state at once. Thread: the loop's. */
#include "server/api/call.h"

static enum status cluster_snapshot_call(struct api_call *call, const struct json *params, struct json **result,
					 struct error *error)
{
	(void)params, (void)error;
	*result = cluster_snapshot(call->api->params.cluster);
	return STATUS_OK;
}

const struct api_handler cluster_handlers[] = {
	{"cluster.snapshot", cluster_snapshot_call},
	{0},
};
