/* model.*: which models there are. Thread: the loop's. */
#include "server/api/call.h"

static enum status not_yet(struct api_call *call, const struct json *params, struct json **result, struct error *error)
{
	(void)params, (void)result;
	return error_set(error, STATUS_UNAVAILABLE, "%s is not there yet", call->method->name);
}

const struct api_handler model_handlers[] = {
	{"model.add", .run = not_yet},
	{"model.list", .run = not_yet},
	{"model.remove", .run = not_yet},
	{"model.search", .run = not_yet},
	{0},
};
