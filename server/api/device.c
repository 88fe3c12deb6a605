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

// The entry is on disk: ask the node. That this fails now is an entry of its own.
static void verify_now(void *context, enum status status, const struct error *error)
{
	struct json *result = NULL;
	struct error fault = error ? *error : (struct error){0};
	struct api_call *call = context;
	const char *device_id = json_string(call->kept, "");
	struct cluster_device *device = cluster_find_device(call->api->params.cluster, device_id);
	if (!status && !device)
		status = error_set(&fault, STATUS_NOT_FOUND, "there is no device %s", device_id);
	else if (!status)
		status = cluster_verify_device(call->api->params.cluster, device, &fault);
	if (!status) {
		result = cluster_device_json(call->api->params.cluster, device);
		json_set_string((struct json *)json_get(result, "verification"), "state", "pending");
	} else if (!error || !error->message[0]) {
		const struct audit_tally tally = {.by = &call->client->actor,
						  .action = call->method->name,
						  .target = device_id,
						  .device_id = device_id,
						  .outcome = status};
		audit_tell(call->api->params.audit, &tally);
	}
	api_finish(call, status, result, &fault);
}

static enum status device_verify(struct api_call *call, const struct json *params, struct json **result,
				 struct error *error)
{
	struct cluster_device *device;
	struct audit *audit = call->api->params.audit;
	(void)result;
	enum status status = find(call, params, &device, error);
	if (!status)
		status = cluster_may_verify(device, error);
	if (status)
		return status;
	const struct audit_event event = {.by = &call->client->actor,
					  .action = call->method->name,
					  .target = cluster_device_id(device),
					  .node_id = cluster_device_node_id(device),
					  .device_id = cluster_device_id(device)};
	call->kept = json_copy(json_get(params, "device_id"));
	status = audit_write(audit, &event, verify_now, call, error);
	return status ? status : STATUS_PENDING;
}

static void drained(void *context, enum status status, const struct cluster_device *device, const struct error *error)
{
	struct api_call *call = context;
	api_finish(call, status, status ? NULL : cluster_device_json(call->api->params.cluster, device), error);
}

static enum status device_drain(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	struct cluster_device *device;
	(void)result;
	enum status status = find(call, params, &device, error);
	if (!status)
		status = cluster_drain_device(
			call->api->params.cluster, device,
			&(struct cluster_drain_params){.drain = json_get_bool(params, "drain", false),
						       .by = &call->client->actor,
						       .done = drained,
						       .context = call},
			error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler device_handlers[] = {
	{"device.verify", .run = device_verify},
	{"device.drain", .run = device_drain},
	{0},
};
