/* node.ticket and ticket.*: what lets nodes join without asking. Thread: the loop's. */
#include "server/api/call.h"

static enum status not_there(struct api_call *call, const struct json *params, struct json **result,
			     struct error *error)
{
	(void)params, (void)result;
	return error_set(error, STATUS_UNAVAILABLE, "%s is not there yet in this version", call->method->name);
}

const struct api_handler ticket_handlers[] = {
	{"node.ticket", .run = not_there},
	{"ticket.list", .run = not_there},
	{"ticket.revoke", .run = not_there},
	{0},
};
