/* certificate.*: what this cluster runs on. Thread: the loop's. */
#include "server/api/call.h"

static enum status not_there(struct api_call *call, const struct json *params, struct json **result,
			     struct error *error)
{
	(void)params, (void)result;
	return error_set(error, STATUS_UNAVAILABLE, "%s is not there yet in this version", call->method->name);
}

const struct api_handler certificate_handlers[] = {
	{"certificate.list", .run = not_there},
	{0},
};
