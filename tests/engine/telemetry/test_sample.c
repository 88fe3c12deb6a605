// Plausible ranges, thermal state, availability and the JSON of a sample.
#include "engine/telemetry/sample.h"
#include "tests/engine/telemetry/tree.h"

#include <math.h>

static void test_ranges(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	sample_clear(&sample);
	static const struct {
		enum telemetry_reading reading;
		double value;
		bool known;
	} cases[] = {
		{READING_TEMPERATURE_CELSIUS, 37, true},   {READING_TEMPERATURE_CELSIUS, -128, false},
		{READING_TEMPERATURE_CELSIUS, 200, true},  {READING_TEMPERATURE_CELSIUS, 200.5, false},
		{READING_TEMPERATURE_CELSIUS, -10, true},  {READING_POWER_WATTS, 0, true},
		{READING_POWER_WATTS, -1, false},          {READING_POWER_WATTS, 10001, false},
		{READING_POWER_LIMIT_WATTS, 0, false},     {READING_UTILIZATION_PERCENT, 100, true},
		{READING_UTILIZATION_PERCENT, 101, false}, {READING_MEMORY_USED_BYTES, 0, true},
		{READING_MEMORY_USED_BYTES, -1, false},    {READING_MEMORY_TOTAL_BYTES, 1e17, false},
		{READING_FAN_PERCENT, 130, true},          {READING_FAN_PERCENT, 65535, false},
		{READING_CLOCK_MHZ, NAN, false},           {READING_PCIE_RX_BYTES_PER_S, INFINITY, false},
		{READING_SLOWDOWN_CELSIUS, 0, false},      {READING_ECC_ERRORS, 3, true},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		sample_set(&sample, cases[i].reading, cases[i].value);
		if (sample_has(&sample, cases[i].reading) != cases[i].known)
			fail_msg("reading %d of %g: known is %d", cases[i].reading, cases[i].value, !cases[i].known);
	}
}

static void test_bad_value_takes_away_the_last_one(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	sample_clear(&sample);
	sample_set(&sample, READING_POWER_WATTS, 50);
	sample_set(&sample, READING_POWER_WATTS, 1e9);
	assert_absent(&sample, READING_POWER_WATTS);
}

static void check_thermal(double temperature, double slowdown, const char *word, const char *expected)
{
	struct telemetry_sample sample;
	sample_clear(&sample);
	sample_set(&sample, READING_TEMPERATURE_CELSIUS, temperature);
	sample_set(&sample, READING_SLOWDOWN_CELSIUS, slowdown);
	if (word)
		sample_throttle(&sample, word);
	const char *state = sample_thermal_state(&sample);
	if (!expected)
		assert_null(state);
	else
		assert_string_equal(state, expected);
}

static void test_thermal_state(void **state)
{
	(void)state;
	check_thermal(40, 89, NULL, "normal");
	check_thermal(73.9, 89, NULL, "normal");
	check_thermal(74, 89, NULL, "warm");
	check_thermal(88, 89, "power_cap", "warm");
	check_thermal(60, 89, "thermal", "throttled");
	check_thermal(60, 89, "hardware_thermal", "throttled");
	check_thermal(89, 89, "thermal", "critical");
	check_thermal(95, 89, NULL, "critical");
	check_thermal(60, 0, "thermal", NULL); // no slowdown point
	check_thermal(-128, 89, NULL, NULL);   // no temperature
}

static void test_availability(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	double score = -1;
	sample_clear(&sample);
	assert_false(sample_availability(&sample, &score));
	sample_set(&sample, READING_UTILIZATION_PERCENT, 25);
	sample_set(&sample, READING_MEMORY_TOTAL_BYTES, 1000);
	assert_false(sample_availability(&sample, &score));
	sample_set(&sample, READING_MEMORY_USED_BYTES, 250);
	assert_true(sample_availability(&sample, &score));
	assert_close(score, 0.6 * 0.75 + 0.4 * 0.75);
	sample_set(&sample, READING_MEMORY_USED_BYTES, 2000); // more than there is
	assert_false(sample_availability(&sample, &score));
	sample_set(&sample, READING_MEMORY_USED_BYTES, 0);
	sample_set(&sample, READING_MEMORY_TOTAL_BYTES, 0);
	assert_false(sample_availability(&sample, &score));
}

static void test_works(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	sample_clear(&sample);
	assert_false(sample_works(&sample));
	sample_set(&sample, READING_UTILIZATION_PERCENT, 4.9);
	assert_false(sample_works(&sample));
	sample_set(&sample, READING_UTILIZATION_PERCENT, 5);
	assert_true(sample_works(&sample));
	sample_set(&sample, READING_UTILIZATION_PERCENT, 0);
	sample.process_count = 1; // a desktop
	assert_false(sample_works(&sample));
	sample.computes = true;
	assert_true(sample_works(&sample));
}

static void test_throttle_words_are_bounded_and_unlike(void **state)
{
	(void)state;
	static char words[40][16];
	struct telemetry_sample sample;
	sample_clear(&sample);
	sample_throttle(&sample, "thermal");
	sample_throttle(&sample, "thermal");
	assert_int_equal(sample.throttle_count, 1);
	for (int i = 0; i < 40; i++) {
		snprintf(words[i], sizeof words[i], "w%d", i);
		sample_throttle(&sample, words[i]);
	}
	assert_int_equal(sample.throttle_count, TELEMETRY_THROTTLES);
}

static void test_json_has_every_key(void **state)
{
	(void)state;
	struct telemetry_sample sample;
	sample_clear(&sample);
	struct json *json = sample_json(&sample, "device");
	assert_int_equal(json_count(json), 21);
	for (const struct json *member = json_first(json); member; member = json_next(member)) {
		const char *name = json_name(member);
		bool always = strcmp(name, "device_id") == 0 || strcmp(name, "at") == 0;
		assert_int_equal(json_type(member), always ? JSON_STRING : JSON_NULL);
	}
	json_destroy(&json);
	sample_set(&sample, READING_POWER_WATTS, 98.12345);
	sample_set(&sample, READING_MEMORY_TOTAL_BYTES, 150754820096.0);
	sample.throttle_count = 0;
	sample.process_count = 1;
	sample.processes[0] = (struct telemetry_process){.pid = 42, .memory_bytes = -1, .name = ""};
	json = sample_json(&sample, "device");
	assert_close(json_get_number(json, "power_watts", 0), 98.12);
	assert_int_equal(json_get_integer(json, "memory_total_bytes", 0), 150754820096);
	assert_int_equal(json_type(json_get(json, "throttle")), JSON_ARRAY);
	const struct json *process = json_first(json_get(json, "processes"));
	assert_int_equal(json_get_integer(process, "pid", 0), 42);
	assert_int_equal(json_type(json_get(process, "name")), JSON_NULL);
	assert_int_equal(json_type(json_get(process, "memory_bytes")), JSON_NULL);
	json_destroy(&json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_bad_value_takes_away_the_last_one),
		cmocka_unit_test(test_thermal_state),
		cmocka_unit_test(test_availability),
		cmocka_unit_test(test_works),
		cmocka_unit_test(test_throttle_words_are_bounded_and_unlike),
		cmocka_unit_test(test_json_has_every_key),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
