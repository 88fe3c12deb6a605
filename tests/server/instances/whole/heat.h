/* How hot the simulated devices are: a heat sink that follows the power, in air that a fault makes hotter. The power is
 * that of the tokens that workers generate. Only seeds with KIND_HEAT tell of it: a server learns for minutes. */
#pragma once
#include "tests/server/instances/whole/hops.h"

#include <math.h>

static const double idle_watts = 60, busy_watts = 300, sink_s = 25, sink_celsius_per_watt = 0.18, slowdown_celsius = 83;

// A token has been computed on the devices of a ring, from this worker on.
static void devices_work(const struct sim_worker *last)
{
	const struct sim_worker *one = last;
	for (unsigned i = 0; i < last->count && one; i++) {
		for (unsigned j = 0; j < one->stage_count; j++)
			world.devices[one->stages[j].device].busy_ms += (double)TOKEN_MS / 2;
		one = last->count > 1 ? worker_before(one) : NULL;
	}
}

// From the last reading until now.
static void device_heats(struct sim_device *device)
{
	const double ms = (double)(virtual.now_ms - device->read_ms), s = ms / 1000;
	if (!device->read_ms)
		device->warm_watts = idle_watts;
	else if (ms > 0)
		device->watts = idle_watts + (busy_watts - idle_watts) * fmin(device->busy_ms / ms, 1);
	if (device->read_ms && ms > 0)
		device->warm_watts += (device->watts - device->warm_watts) * (1 - exp(-s / sink_s));
	device->read_ms = virtual.now_ms;
	device->busy_ms = 0;
	device->air_celsius += (25 + device->hot_celsius - device->air_celsius) * (1 - exp(-s / 20));
}

static void set_heat(struct json *json, struct sim_device *device)
{
	if (!(world.kinds & KIND_HEAT) || device >= &world.devices[DEVICES]) {
		json_set(json, "temperature_celsius", json_new_null());
		json_set(json, "power_watts", json_new_null());
		json_set(json, "slowdown_celsius", json_new_null());
		return;
	}
	device_heats(device);
	json_set_number(json, "temperature_celsius",
			round(device->air_celsius + sink_celsius_per_watt * device->warm_watts));
	json_set_number(json, "power_watts", round(device->watts));
	json_set_number(json, "slowdown_celsius", slowdown_celsius);
}

static struct json *reading_json(unsigned number)
{
	static const char *const unknown[] = {"power_limit_watts",
					      "memory_temperature_celsius",
					      "thermal_state",
					      "memory_slowdown_celsius",
					      "ecc_errors",
					      "clock_mhz",
					      "memory_clock_mhz",
					      "fan_percent",
					      "pcie_rx_bytes_per_s",
					      "pcie_tx_bytes_per_s",
					      "throttle",
					      "processes",
					      "availability_score",
					      "energy_joules",
					      "energy_source"};
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object();
	json_set_string(json, "device_id", world.devices[number].device_id);
	json_set_string(json, "at", clock_format(clock_wall_ms(), at));
	json_set_number(json, "utilization_percent", 0);
	json_set_integer(json, "memory_used_bytes", (int64_t)used_bytes(number));
	json_set_integer(json, "memory_total_bytes", (int64_t)capacity_bytes(number));
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
		json_set(json, unknown[i], json_new_null());
	set_heat(json, &world.devices[number]);
	return json;
}
