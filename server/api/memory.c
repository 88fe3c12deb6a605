/* memory.*: for the time being only a place in the table. */
#include "server/api/call.h"

static enum status not_there(struct api_call *call, const struct json *params, struct json **result,
			     struct error *error)
{
	(void)params, (void)result;
	return error_set(error, STATUS_UNAVAILABLE, "%s is not there yet", call->method->name);
}

const struct api_handler memory_handlers[] = {
	{"memory.allocate", not_there}, {"memory.write", not_there},
	{"memory.read", not_there},     {"memory.copy", not_there},
	{"memory.fill", not_there},     {"memory.free", not_there},
	{"memory.list", not_there},     {0},
};
