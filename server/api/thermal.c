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

const struct api_handler thermal_handlers[] = {
	{"thermal.forecast", .run = thermal_forecast},
	{0},
};
