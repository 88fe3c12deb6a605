/* See energy.h. */
#include "engine/telemetry/energy.h"

#include "engine/telemetry/sample.h"

static const double longest_s = 15;

static void add_counter(struct telemetry_energy *energy, double counter)
{
	if (energy->source == ENERGY_COUNTER && counter > energy->last_counter)
		energy->joules += counter - energy->last_counter;
	energy->source = ENERGY_COUNTER;
	energy->last_counter = counter;
}

static void add_power(struct telemetry_energy *energy, double watts, int64_t now_ns)
{
	const double passed_s = (double)(now_ns - energy->last_ns) * 1e-9;
	if (energy->source == ENERGY_INTEGRATED && energy->last_watts >= 0 && passed_s > 0 && passed_s <= longest_s)
		energy->joules += (energy->last_watts + watts) / 2 * passed_s;
	energy->source = ENERGY_INTEGRATED;
	energy->last_watts = watts;
	energy->last_ns = now_ns;
}

void energy_add(struct telemetry_energy *energy, const struct telemetry_sample *sample, int64_t now_ns)
{
	if (sample->counter_known)
		add_counter(energy, sample->counter_joules);
	else if (energy->source != ENERGY_COUNTER && sample_has(sample, READING_POWER_WATTS))
		add_power(energy, sample->values[READING_POWER_WATTS], now_ns);
	else
		energy->last_watts = -1;
}

void energy_json(const struct telemetry_energy *energy, struct json *object)
{
	static const char *const words[] = {[ENERGY_INTEGRATED] = "integrated", [ENERGY_COUNTER] = "counter"};
	const bool known = energy->source != ENERGY_NONE;
	sample_set_json(object, "energy_joules", known, energy->joules, 3);
	json_set_string(object, "energy_source", known ? words[energy->source] : NULL);
}
