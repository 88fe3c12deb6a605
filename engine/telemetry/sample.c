/* Readings to JSON: one table says each reading's name on the wire, its range and its precision. See sample.h. */
#include "engine/telemetry/sample.h"

#include "common/base/clock.h"

#include <math.h>
#include <string.h>

static const double largest_exact = 9007199254740991.0; // 2^53 - 1, as MaybeBytes has it

static const struct {
	const char *name;
	double low, high; // outside: the sensor is garbled
	int decimals;     // -1: an integer
} readings[READING_COUNT] = {
	[READING_UTILIZATION_PERCENT] = {"utilization_percent", 0, 100, 1},
	[READING_MEMORY_USED_BYTES] = {"memory_used_bytes", 0, 9007199254740991.0, -1},
	[READING_MEMORY_TOTAL_BYTES] = {"memory_total_bytes", 0, 9007199254740991.0, -1},
	[READING_POWER_WATTS] = {"power_watts", 0, 10000, 2},
	[READING_POWER_LIMIT_WATTS] = {"power_limit_watts", 0.1, 10000, 2},
	[READING_TEMPERATURE_CELSIUS] = {"temperature_celsius", -40, 200, 1},
	[READING_MEMORY_TEMPERATURE_CELSIUS] = {"memory_temperature_celsius", -40, 200, 1},
	[READING_SLOWDOWN_CELSIUS] = {"slowdown_celsius", 20, 200, 1},
	[READING_MEMORY_SLOWDOWN_CELSIUS] = {"memory_slowdown_celsius", 20, 200, 1},
	[READING_ECC_ERRORS] = {"ecc_errors", 0, 9007199254740991.0, -1},
	[READING_CLOCK_MHZ] = {"clock_mhz", 0, 20000, 0},
	[READING_MEMORY_CLOCK_MHZ] = {"memory_clock_mhz", 0, 50000, 0},
	[READING_FAN_PERCENT] = {"fan_percent", 0, 200, 1}, // some fans turn faster than their nominal full speed
	[READING_PCIE_RX_BYTES_PER_S] = {"pcie_rx_bytes_per_s", 0, 1e12, 0},
	[READING_PCIE_TX_BYTES_PER_S] = {"pcie_tx_bytes_per_s", 0, 1e12, 0},
};

static const double works_percent = 5, warm_celsius = 15;

void sample_clear(struct telemetry_sample *sample)
{
	*sample = (struct telemetry_sample){.throttle_count = -1, .process_count = -1};
}

void sample_set(struct telemetry_sample *sample, enum telemetry_reading reading, double value)
{
	if (!isfinite(value) || value < readings[reading].low || value > readings[reading].high) {
		sample_unset(sample, reading);
		return;
	}
	sample->values[reading] = value;
	sample->valid |= 1U << reading;
}

void sample_unset(struct telemetry_sample *sample, enum telemetry_reading reading)
{
	sample->values[reading] = 0;
	sample->valid &= ~(1U << reading);
}

bool sample_has(const struct telemetry_sample *sample, enum telemetry_reading reading)
{
	return sample->valid >> reading & 1;
}

void sample_begin(struct telemetry_sample *sample, enum pace_round round)
{
	sample->counter_known = false;
	if (round == PACE_FULL) {
		sample->valid = 0;
		sample->throttle_count = -1;
		return;
	}
	sample_unset(sample, READING_POWER_WATTS);
	sample_unset(sample, READING_TEMPERATURE_CELSIUS);
	sample_unset(sample, READING_MEMORY_TEMPERATURE_CELSIUS);
}

void sample_throttle(struct telemetry_sample *sample, const char *word)
{
	if (sample->throttle_count < 0)
		sample->throttle_count = 0;
	for (int i = 0; i < sample->throttle_count; i++)
		if (strcmp(sample->throttles[i], word) == 0)
			return;
	if (sample->throttle_count < TELEMETRY_THROTTLES)
		sample->throttles[sample->throttle_count++] = word;
}

bool sample_works(const struct telemetry_sample *sample)
{
	if (sample->computes)
		return true;
	return sample_has(sample, READING_UTILIZATION_PERCENT) &&
	       sample->values[READING_UTILIZATION_PERCENT] >= works_percent;
}

const char *sample_thermal_state(const struct telemetry_sample *sample)
{
	if (!sample_has(sample, READING_TEMPERATURE_CELSIUS) || !sample_has(sample, READING_SLOWDOWN_CELSIUS))
		return NULL;
	double margin = sample->values[READING_SLOWDOWN_CELSIUS] - sample->values[READING_TEMPERATURE_CELSIUS];
	if (margin <= 0)
		return "critical";
	for (int i = 0; i < sample->throttle_count; i++)
		if (strcmp(sample->throttles[i], "thermal") == 0 ||
		    strcmp(sample->throttles[i], "hardware_thermal") == 0)
			return "throttled";
	return margin <= warm_celsius ? "warm" : "normal";
}

bool sample_availability(const struct telemetry_sample *sample, double *score)
{
	const double *values = sample->values;
	if (!sample_has(sample, READING_UTILIZATION_PERCENT) || !sample_has(sample, READING_MEMORY_USED_BYTES) ||
	    !sample_has(sample, READING_MEMORY_TOTAL_BYTES))
		return false;
	double used = values[READING_MEMORY_USED_BYTES], total = values[READING_MEMORY_TOTAL_BYTES];
	if (total <= 0 || used > total)
		return false;
	*score = 0.6 * (total - used) / total + 0.4 * (1 - values[READING_UTILIZATION_PERCENT] / 100);
	return true;
}

void sample_set_json(struct json *object, const char *name, bool known, double value, int decimals)
{
	if (!known || !isfinite(value)) {
		json_set_null(object, name);
	} else if (decimals < 0) {
		if (value < 0 || value > largest_exact)
			json_set_null(object, name);
		else
			json_set_integer(object, name, (int64_t)value);
	} else {
		double scale = pow(10, decimals);
		json_set_number(object, name, round(value * scale) / scale);
	}
}

static struct json *processes_json(const struct telemetry_sample *sample)
{
	if (sample->process_count < 0)
		return json_new_null();
	struct json *list = json_new_array();
	for (int i = 0; i < sample->process_count; i++) {
		const struct telemetry_process *process = &sample->processes[i];
		struct json *one = json_new_object();
		json_set_integer(one, "pid", process->pid);
		if (process->name[0])
			json_set_string(one, "name", process->name);
		else
			json_set_null(one, "name");
		sample_set_json(one, "memory_bytes", process->memory_bytes >= 0, (double)process->memory_bytes, -1);
		json_push(list, one);
	}
	return list;
}

struct json *sample_json(const struct telemetry_sample *sample, const char *device_id)
{
	char at[CLOCK_TEXT_BYTES];
	double score = 0;
	struct json *object = json_new_object();
	json_set_string(object, "device_id", device_id);
	json_set_string(object, "at", clock_format(sample->at_ms, at));
	for (int i = 0; i < READING_COUNT; i++)
		sample_set_json(object, readings[i].name, sample_has(sample, (enum telemetry_reading)i),
				sample->values[i], readings[i].decimals);
	const char *thermal = sample_thermal_state(sample);
	if (thermal)
		json_set_string(object, "thermal_state", thermal);
	else
		json_set_null(object, "thermal_state");
	struct json *throttle = sample->throttle_count < 0 ? json_new_null() : json_new_array();
	for (int i = 0; i < sample->throttle_count; i++)
		json_push(throttle, json_new_string(sample->throttles[i]));
	json_set(object, "throttle", throttle);
	json_set(object, "processes", processes_json(sample));
	bool known = sample_availability(sample, &score);
	sample_set_json(object, "availability_score", known, score, 4);
	return object;
}
