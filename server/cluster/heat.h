/* How hot a device will be: its readings go into a thermal model (server/thermal), and this says what follows from it.
 * Thread: the loop's. */
#pragma once
#include "server/cluster/cluster.h"
#include "server/thermal/model.h"

enum { CLUSTER_MARGIN_CELSIUS = 5 }; // how far from its limit a device is to stay

enum { CLUSTER_WARNED_MS = 60000 };

enum heat_sensor { HEAT_CORE, HEAT_MEMORY, HEAT_SENSORS };

struct cluster_heat { // numbers that are not known are NaN
	enum thermal_state state;
	char reason[THERMAL_REASON_BYTES]; // of any state but THERMAL_READY
	double celsius, watts;             // now; watts: those that the forecast goes by
	double limit;                      // where the device slows itself down
	double target;                     // the limit less CLUSTER_MARGIN_CELSIUS
	double ambient, error;             // error: the mean one a minute ahead
	double throttles_in_s;             // INFINITY: it does not reach the limit
	double sustainable_watts;          // that hold the target
	bool warned;                       // it did so in two readings, one after the other, within CLUSTER_WARNED_MS
	bool warns;                        // it reaches the limit within THERMAL_WARN_S, as far as can be known
};
// `watts`: the power to reckon with; NaN: the present one.
void cluster_read_heat(const struct cluster_device *device, enum heat_sensor sensor, double watts,
		       struct cluster_heat *heat);

// The answer of thermal.forecast (schema/api.json). watts as above.
struct cluster_forecast {
	enum heat_sensor sensor;
	int64_t horizon_s; // 1 to THERMAL_HORIZON_MOST_S
	double watts;
};
struct json *cluster_forecast_json(const struct cluster_device *device, const struct cluster_forecast *forecast);
