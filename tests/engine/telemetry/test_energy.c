/* Joules of a device: from counters that begin anywhere and may begin again, else from power; never both. */
#include "engine/telemetry/energy.h"
#include "engine/telemetry/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static const int64_t second_ns = 1000000000;

static void counter(struct telemetry_energy *energy, int64_t at_s, double joules)
{
	struct telemetry_sample sample = {.counter_known = true, .counter_joules = joules};
	sample_set(&sample, READING_POWER_WATTS, 5000); // is not looked at
	energy_add(energy, &sample, at_s * second_ns);
}

// watts < 0: not reported.
static void power(struct telemetry_energy *energy, int64_t at_s, double watts)
{
	struct telemetry_sample sample = {.counter_known = false};
	if (watts >= 0)
		sample_set(&sample, READING_POWER_WATTS, watts);
	energy_add(energy, &sample, at_s * second_ns);
}

static void check(const struct telemetry_energy *energy, enum telemetry_energy_source source, double joules)
{
	if (energy->source != source || fabs(energy->joules - joules) > 1e-6)
		fail_msg("source %d with %g J, expected %d with %g J", energy->source, energy->joules, source, joules);
}

static void by_a_counter(void **state)
{
	(void)state;
	struct telemetry_energy energy = {0};
	counter(&energy, 1, 1e9);
	check(&energy, ENERGY_COUNTER, 0);
	counter(&energy, 2, 1e9 + 300);
	check(&energy, ENERGY_COUNTER, 300);
	power(&energy, 3, 400); // it could not be read once
	check(&energy, ENERGY_COUNTER, 300);
	counter(&energy, 100, 1e9 + 900);
	check(&energy, ENERGY_COUNTER, 900);
	counter(&energy, 101, 50); // the driver was loaded again
	check(&energy, ENERGY_COUNTER, 900);
	counter(&energy, 102, 150);
	check(&energy, ENERGY_COUNTER, 1000);
}

static void by_power(void **state)
{
	(void)state;
	struct telemetry_energy energy = {0};
	power(&energy, 1, -1);
	check(&energy, ENERGY_NONE, 0);
	power(&energy, 2, 100);
	check(&energy, ENERGY_INTEGRATED, 0);
	power(&energy, 4, 200);
	check(&energy, ENERGY_INTEGRATED, 300);
	power(&energy, 5, -1);
	power(&energy, 6, 200); // over what is not known nothing is assumed
	check(&energy, ENERGY_INTEGRATED, 300);
	power(&energy, 7, 200);
	check(&energy, ENERGY_INTEGRATED, 500);
	power(&energy, 60, 200);
	check(&energy, ENERGY_INTEGRATED, 500);
	counter(&energy, 61, 1e6); // a counter takes over
	counter(&energy, 62, 1e6 + 10);
	check(&energy, ENERGY_COUNTER, 510);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_a_counter),
		cmocka_unit_test(by_power),
	};
	return cmocka_run_group_tests_name("energy", tests, NULL, NULL);
}
