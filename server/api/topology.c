/* topology.*, link.* and discovery.*: how far apart the machines are, and who else is heard. Thread: the loop's. */
#include "server/api/call.h"

static enum status not_yet(struct api_call *call, const struct json *params, struct json **result, struct error *error)
{
	(void)call, (void)params, (void)result;
	return error_set(error, STATUS_UNAVAILABLE, "links between nodes are not measured yet");
}

const struct api_handler topology_handlers[] = {
	{"topology.summary", .run = not_yet},
	{"link.history", .run = not_yet},
	{"discovery.list", .run = not_yet},
	{0},
};
