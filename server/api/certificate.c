/* certificate.*: what this cluster runs on. Thread: the loop's. */
#include "server/api/call.h"

static enum status certificate_list(struct api_call *call, const struct json *params, struct json **result,
				    struct error *error)
{
	(void)params, (void)error;
	*result = json_new_object();
	json_set(*result, "certificates", authority_list(call->api->params.authority));
	return STATUS_OK;
}

const struct api_handler certificate_handlers[] = {
	{"certificate.list", .run = certificate_list},
	{0},
};
