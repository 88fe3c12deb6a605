/* See heat.h. A model's clock is this machine's steady clock, by which the readings come. In a debug build with
 * EXOGPU_THERMAL_CLOCK=readings it is the time that the readings bear, so that a test can send an hour of them within a
 * second. */
#include "server/cluster/heat.h"

#include "common/base/clock.h"
#include "common/wire/said.h"
#include "server/cluster/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 60 };

static const char *const state_names[] = {
	[THERMAL_UNKNOWN] = "learning",
	[THERMAL_LEARNING] = "learning",
	[THERMAL_READY] = "ready",
	[THERMAL_UNSUITABLE] = "unsuitable",
};
static const char *const celsius_names[HEAT_SENSORS] = {"temperature_celsius", "memory_temperature_celsius"};
static const char *const sensor_names[HEAT_SENSORS] = {"core", "memory"};

// Whether a test tells the time.
static bool told_by_readings(void)
{
#ifdef NDEBUG
	return false;
#else
	const char *from = getenv("EXOGPU_THERMAL_CLOCK");
	return from && !strcmp(from, "readings");
#endif
}

static int64_t reading_time(const struct json *telemetry, int64_t now_ms)
{
	int64_t at_ms;
	if (told_by_readings() && !clock_parse(json_get_string(telemetry, "at", ""), &at_ms))
		return at_ms;
	return now_ms;
}

int64_t cluster_heat_clock(const struct cluster *cluster)
{
	int64_t newest_ms = 0;
	if (!told_by_readings())
		return clock_steady_ms();
	for (size_t i = 0; i < cluster->device_count; i++)
		if (cluster->devices[i]->heat_ms > newest_ms)
			newest_ms = cluster->devices[i]->heat_ms;
	return newest_ms;
}

double cluster_heat_limit(const struct cluster_device *device, enum heat_sensor sensor)
{
	static const char *const names[HEAT_SENSORS] = {"slowdown_celsius", "memory_slowdown_celsius"};
	return json_get_number(device->telemetry, names[sensor], (double)NAN);
}

void cluster_note_heat(struct cluster_device *device, int64_t now_ms)
{
	const struct json *telemetry = device->telemetry;
	device->heat_ms = reading_time(telemetry, now_ms);
	for (int sensor = 0; sensor < HEAT_SENSORS; sensor++) {
		const double limit = cluster_heat_limit(device, (enum heat_sensor)sensor);
		const struct thermal_reading reading = {
			.at_ms = device->heat_ms,
			.celsius = json_get_number(telemetry, celsius_names[sensor], (double)NAN),
			.watts = json_get_number(telemetry, "power_watts", (double)NAN)};
		if (!device->heat[sensor] && (sensor == HEAT_CORE || !isnan(reading.celsius)))
			device->heat[sensor] = thermal_model_create();
		if (!device->heat[sensor])
			continue;
		thermal_model_add(device->heat[sensor], &reading);
		const bool warns = !isnan(limit) && thermal_model_warns(device->heat[sensor], limit);
		device->heat_warnings[sensor] = warns ? device->heat_warnings[sensor] + 1 : 0;
		if (device->heat_warnings[sensor] >= 2) // no single reading is a warning
			device->heat_warned_ms[sensor] = device->heat_ms;
	}
}

void cluster_forget_heat(struct cluster_device *device)
{
	for (int sensor = 0; sensor < HEAT_SENSORS; sensor++)
		thermal_model_destroy(&device->heat[sensor]);
	json_destroy(&device->injected);
}

int64_t cluster_heat_age_ms(const struct cluster_device *device)
{
	return told_by_readings() ? 0 : clock_steady_ms() - device->reading_ms;
}

void cluster_read_heat(const struct cluster_device *device, enum heat_sensor sensor, double watts,
		       struct cluster_heat *heat)
{
	const struct thermal_model *model = device->heat[sensor];
	*heat = (struct cluster_heat){.state = THERMAL_LEARNING,
				      .celsius = (double)NAN,
				      .watts = watts,
				      .limit = cluster_heat_limit(device, sensor),
				      .ambient = (double)NAN,
				      .error = (double)NAN,
				      .throttles_in_s = (double)NAN,
				      .sustainable_watts = (double)NAN,
				      .rate = (double)NAN};
	heat->target = heat->limit - cluster_heat_policy(device).margin;
	if (!model) {
		heat->state = sensor == HEAT_MEMORY && device->telemetry ? THERMAL_UNSUITABLE : THERMAL_LEARNING;
		snprintf(heat->reason, sizeof heat->reason, "%s",
			 heat->state == THERMAL_LEARNING ? "no readings have come yet"
							 : "it does not report the temperature of its memory");
		return;
	}
	heat->state = thermal_model_state(model, device->heat_ms + cluster_heat_age_ms(device), heat->reason);
	heat->celsius = json_get_number(device->telemetry, celsius_names[sensor], (double)NAN);
	if (isnan(watts))
		heat->watts = thermal_model_watts(model);
	if (heat->state != THERMAL_READY)
		return;
	heat->ambient = thermal_model_ambient(model);
	heat->error = thermal_model_error(model);
	if (isnan(heat->limit))
		return;
	heat->throttles_in_s = thermal_model_reaches(model, heat->limit, heat->watts);
	heat->sustainable_watts = thermal_model_sustains(model, heat->target);
	const double idle = thermal_model_least_watts(model), most = thermal_model_most_watts(model);
	if (most > idle) // which a model that is ready has seen
		heat->rate = fmin(fmax((heat->sustainable_watts - idle) / (most - idle), 0), 1);
	heat->warns = thermal_model_warns(model, heat->limit);
	const int64_t warned_ms = device->heat_warned_ms[sensor];
	heat->warned = warned_ms && device->heat_ms - warned_ms < CLUSTER_WARNED_MS;
}

double cluster_heat_rate(const struct cluster_device *device)
{
	double rate = (double)NAN;
	for (int sensor = 0; sensor < HEAT_SENSORS; sensor++) {
		struct cluster_heat heat;
		cluster_read_heat(device, (enum heat_sensor)sensor, (double)NAN, &heat);
		rate = fmin(rate, heat.rate); // the other one, where one is NaN
	}
	return rate;
}

static void set_rounded(struct json *json, const char *name, double value, double scale)
{
	json_set_number(json, name, round(value * scale) / scale); // null, if it is not known or never comes
}

static struct json *points_json(const struct thermal_model *model, double watts, int64_t horizon_s)
{
	struct json *points = json_new_array();
	const int64_t count = horizon_s < POINTS ? horizon_s : POINTS;
	for (int64_t i = 0; i <= count; i++) {
		struct json *point = json_new_object();
		const double in_s = (double)horizon_s * (double)i / (double)count;
		const double celsius = thermal_model_ahead(model, watts, in_s);
		const double band = thermal_model_band(model, watts, in_s);
		set_rounded(point, "in_s", in_s, 1000);
		set_rounded(point, "celsius", celsius, 100);
		set_rounded(point, "low_celsius", celsius - band, 100);
		set_rounded(point, "high_celsius", celsius + band, 100);
		json_push(points, point);
	}
	return points;
}

static const char *const acts[] = {[THERMAL_FREE] = "nothing", [THERMAL_LIMITED] = "limit", [THERMAL_PAUSED] = "pause"};

struct json *cluster_forecast_json(const struct cluster_device *device, const struct cluster_forecast *forecast)
{
	struct cluster_heat heat;
	struct json *json = json_new_object();
	cluster_read_heat(device, forecast->sensor, forecast->watts, &heat);
	const bool ready = heat.state == THERMAL_READY;
	json_set_string(json, "device_id", device->device_id);
	json_set_string(json, "sensor", sensor_names[forecast->sensor]);
	json_set_string(json, "state", state_names[heat.state]);
	said_set(json, "state_reason", ready ? NULL : heat.reason);
	set_rounded(json, "temperature_celsius", heat.celsius, 100);
	set_rounded(json, "power_watts", heat.watts, 100);
	set_rounded(json, "limit_celsius", heat.limit, 100);
	set_rounded(json, "margin_celsius", heat.limit - heat.celsius, 100);
	set_rounded(json, "target_celsius", heat.target, 100);
	set_rounded(json, "ambient_celsius", heat.ambient, 100);
	set_rounded(json, "throttles_in_s", heat.throttles_in_s, 10);
	set_rounded(json, "sustainable_watts", heat.sustainable_watts, 100);
	set_rounded(json, "error_celsius", heat.error, 1000);
	json_set_bool(json, "warns", heat.warns);
	json_set_string(json, "acts", acts[cluster_strict_guard(device)->step]);
	json_set_integer(json, "work_percent", cluster_work_percent(device));
	json_set(json, "points",
		 ready ? points_json(device->heat[forecast->sensor], heat.watts, forecast->horizon_s)
		       : json_new_array());
	return json;
}
