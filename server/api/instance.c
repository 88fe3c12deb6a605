/* instance.* and placement.preview: models that are loaded. Thread: the loop's. */
#include "server/api/call.h"

static enum status not_yet(struct api_call *call, const struct json *params, struct json **result, struct error *error)
{
	(void)params, (void)result;
	return error_set(error, STATUS_UNAVAILABLE, "%s is not there yet", call->method->name);
}

const struct api_handler instance_handlers[] = {
	{"placement.preview", .run = not_yet},
	{"instance.create", .run = not_yet},
	{"instance.list", .run = not_yet},
	{"instance.delete", .run = not_yet},
	{0},
};
