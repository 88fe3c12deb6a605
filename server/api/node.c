/* node.*: letting nodes in, and removing them. Thread: the loop's. */
#include "server/api/call.h"

static enum status not_there(struct api_call *call, const struct json *params, struct json **result,
			     struct error *error)
{
	(void)params, (void)result;
	return error_set(error, STATUS_UNAVAILABLE, "%s is not there yet in this version", call->method->name);
}

const struct api_handler node_handlers[] = {
	{"node.waiting", .run = not_there},
	{"node.approve", .run = not_there},
	{"node.refuse", .run = not_there},
	{"node.remove", .run = not_there},
	{0},
};
