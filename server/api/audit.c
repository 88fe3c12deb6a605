/* audit.*: reading and checking the audit log. Thread: the loop's. */
#include "server/api/call.h"

static enum status not_there(struct api_call *call, const struct json *params, struct json **result,
			     struct error *error)
{
	(void)params, (void)result;
	return error_set(error, STATUS_UNAVAILABLE, "%s is not there yet in this version", call->method->name);
}

const struct api_handler audit_handlers[] = {
	{"audit.list", .run = not_there},
	{"audit.head", .run = not_there},
	{"audit.verify", .run = not_there},
	{0},
};
