/* device.*: what an admin asks of one device. Thread: the loop's. */
#include "server/api/call.h"

static enum status find(struct api_call *call, const struct json *params, struct cluster_device **device,
			struct error *error)
{
	const char *device_id = json_get_string(params, "device_id", "");
	*device = cluster_find_device(call->api->params.cluster, device_id);
	if (*device)
		return STATUS_OK;
	error_set(error, STATUS_NOT_FOUND, "there is no device %s", device_id);
	error_hint(error, "cluster.snapshot lists them");
	return STATUS_NOT_FOUND;
}

static enum status device_verify(struct api_call *call, const struct json *params, struct json **result,
				 struct error *error)
{
	struct cluster_device *device;
	enum status status = find(call, params, &device, error);
	if (!status)
		status = cluster_verify_device(call->api->params.cluster, device, error);
	if (status)
		return status;
	*result = cluster_device_json(device);
	json_set_string((struct json *)json_get(*result, "verification"), "state", "pending");
	return STATUS_OK;
}

static void drained(void *context, enum status status, const struct cluster_device *device, const struct error *error)
{
	api_finish(context, status, status ? NULL : cluster_device_json(device), error);
}

static enum status device_drain(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	struct cluster_device *device;
	(void)result;
	enum status status = find(call, params, &device, error);
	if (!status)
		status = cluster_drain_device(call->api->params.cluster, device, json_get_bool(params, "drain", false),
					      drained, call, error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler device_handlers[] = {
	{"device.verify", .run = device_verify},
	{"device.drain", .run = device_drain},
	{0},
};
