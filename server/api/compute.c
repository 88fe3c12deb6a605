/* compute.*: for the time being only a place in the table. */
#include "server/api/call.h"

static enum status not_there(struct api_call *call, const struct json *params, struct json **result,
			     struct error *error)
{
	(void)params, (void)result;
	return error_set(error, STATUS_UNAVAILABLE, "%s is not there yet", call->method->name);
}

const struct api_handler compute_handlers[] = {
	{"compute.load", not_there},
	{"compute.launch", not_there},
	{"compute.unload", not_there},
	{0},
};
