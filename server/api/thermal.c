/* thermal.*: how hot devices will be. Thread: the loop's. */
#include "server/api/call.h"
#include "server/cluster/heat.h"

#include <math.h>
#include <string.h>

static enum status thermal_forecast(struct api_call *call, const struct json *params, struct json **result,
				    struct error *error)
{
	const char *device_id = json_get_string(params, "device_id", "");
	const struct cluster_device *device = cluster_find_device(call->api->params.cluster, device_id);
	const bool memory = !strcmp(json_get_string(params, "sensor", "core"), "memory");
	const struct cluster_forecast forecast = {.sensor = memory ? HEAT_MEMORY : HEAT_CORE,
						  .horizon_s = json_get_integer(params, "horizon_s", 300),
						  .watts = json_get_number(params, "power_watts", (double)NAN)};
	if (!device)
		return error_set(error, STATUS_NOT_FOUND, "there is no device %s", device_id);
	*result = cluster_forecast_json(device, &forecast);
	return STATUS_OK;
}

static enum status thermal_policy(struct api_call *call, const struct json *params, struct json **result,
				  struct error *error)
{
	const char *device_id = json_get_string(params, "device_id", "");
	const struct cluster_device *device = cluster_find_device(call->api->params.cluster, device_id);
	if (!device)
		return error_set(error, STATUS_NOT_FOUND, "there is no device %s", device_id);
	*result = cluster_heat_policy_json(device);
	return STATUS_OK;
}

static void policy_set(void *context, enum status status, const struct cluster_device *device,
		       const struct error *error)
{
	struct error gone = {0};
	if (!status && !device) {
		status = error_set(&gone, STATUS_NOT_FOUND, "the device was removed meanwhile");
		error = &gone;
	}
	api_finish(context, status, status ? NULL : cluster_heat_policy_json(device), error);
}

static enum status thermal_policy_set(struct api_call *call, const struct json *params, struct json **result,
				      struct error *error)
{
	const char *device_id = json_get_string(params, "device_id", "");
	struct cluster *cluster = call->api->params.cluster;
	const struct cluster_device *device = cluster_find_device(cluster, device_id);
	(void)result;
	if (!device)
		return error_set(error, STATUS_NOT_FOUND, "there is no device %s", device_id);
	const enum status status = cluster_set_heat_policy(
		cluster, device,
		&(struct cluster_heat_change){
			.changes = params, .by = &call->client->actor, .done = policy_set, .context = call},
		error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler thermal_handlers[] = {
	{"thermal.forecast", .run = thermal_forecast},
	{"thermal.policy", .run = thermal_policy},
	{"thermal.policy_set", .run = thermal_policy_set},
	{0},
};
