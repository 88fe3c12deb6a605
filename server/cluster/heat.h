/* How hot a device will be: its readings go into a thermal model (server/thermal), and this says what follows from it.
 * Thread: the loop's. */
#pragma once
#include "server/cluster/cluster.h"
#include "server/thermal/guard.h"
#include "server/thermal/model.h"

enum { CLUSTER_WARNED_MS = 60000 };

enum heat_sensor { HEAT_CORE, HEAT_MEMORY, HEAT_SENSORS };

struct cluster_heat { // numbers that are not known are NaN
	enum thermal_state state;
	char reason[THERMAL_REASON_BYTES]; // of any state but THERMAL_READY
	double celsius, watts;             // now; watts: those that the forecast goes by
	double limit;                      // where the device slows itself down
	double target;                     // the limit less the margin of its policy
	double ambient, error;             // error: the mean one a minute ahead
	double throttles_in_s;             // INFINITY: it does not reach the limit
	double sustainable_watts;          // that hold the target
	double rate; // the share of the time that it can work for ever, at the most power that was seen; 1 at most
	bool warned; // it did so in two readings, one after the other, within CLUSTER_WARNED_MS
	bool warns;  // it reaches the limit within THERMAL_WARN_S, as far as can be known
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

// What keeps it from its limit (heat_guard.c): its policy, Policy of schema/api.json, and the change of one. `done`
// gets the device once the change is stored and in force. Errors: the store's.
struct thermal_policy cluster_heat_policy(const struct cluster_device *device);
struct json *cluster_heat_policy_json(const struct cluster_device *device);
struct cluster_heat_change {
	const struct json *changes; // margin_celsius, resume_celsius, actions: those that are there
	const struct audit_actor *by;
	cluster_device_done *done;
	void *context;
};
enum status cluster_set_heat_policy(struct cluster *cluster, const struct cluster_device *device,
				    const struct cluster_heat_change *change, struct error *error);
// The share of the time that models may use it now, for its heat: 100 as much as they need, 0 none.
unsigned cluster_work_percent(const struct cluster_device *device);
// How it is held back for its heat.
struct cluster_held {
	bool held;       // models get less time on it, or pause
	bool steps;      // its policy lets models change to a smaller format
	bool moves;      // its policy lets models leave it
	bool cool;       // it is not, and is cooler than its target by as much as its policy says, as far as is known
	int64_t held_ms; // for how long, by the clock of the readings
	double share;    // of the time that models can work on it from now on, as far as is known; 1 while it is free
};
struct cluster_held cluster_heat_held(const struct cluster_device *device);
// The share of the time that it can work for ever, by the forecasts of its sensors; NaN: there is none.
double cluster_heat_rate(const struct cluster_device *device);
// The clock of the readings: the steady clock, but where a test tells the time (heat.c).
int64_t cluster_heat_clock(const struct cluster *cluster);
