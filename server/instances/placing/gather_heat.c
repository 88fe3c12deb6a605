/* How hot devices are, as a placement counts it. Thread: the loop's. */
#include "server/cluster/heat.h"
#include "server/instances/instances_inside.h"

#include <math.h>
#include <string.h>

enum { COLD_CELSIUS = 30 };

// How far it is from the temperature at which it slows down; < 0: it does not tell.
static double heat_room(const struct json *telemetry)
{
	const double now = json_get_number(telemetry, "temperature_celsius", -1),
		     slowdown = json_get_number(telemetry, "slowdown_celsius", -1);
	if (now < 0 || slowdown <= COLD_CELSIUS)
		return -1;
	const double room = (slowdown - now) / (slowdown - COLD_CELSIUS);
	return room < 0 ? 0 : room > 1 ? 1 : room;
}

static enum placement_heat heat_of(const struct cluster_device *device, const struct json *telemetry)
{
	const char *thermal = json_get_string(telemetry, "thermal_state", "");
	if (!strcmp(thermal, "critical"))
		return HEAT_CRITICAL;
	if (!strcmp(cluster_device_state(device, &(const char *){NULL}), "throttled"))
		return HEAT_THROTTLED;
	return !strcmp(thermal, "warm") ? HEAT_WARM : HEAT_NORMAL;
}

static const double least_heat_rate = 0.3; // of a device that is too hot for any work, by its forecast

// The share of its rate that the device can hold for ever; 0: there is no forecast.
static double heat_rate(const struct cluster_device *device)
{
	const double rate = cluster_heat_rate(device);
	return isnan(rate) ? 0 : fmax(rate, least_heat_rate);
}

void gather_heat(struct placement_device *out, const struct cluster_device *device, const struct json *telemetry)
{
	out->heat = heat_of(device, telemetry);
	out->heat_rate = heat_rate(device);
	out->heat_room = heat_room(telemetry);
}
