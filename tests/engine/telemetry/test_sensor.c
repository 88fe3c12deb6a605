// Reading kernel files: numbers, labels in any order, files that change or vanish, counters that wrap.
#include "engine/telemetry/sensor.h"
#include "tests/engine/telemetry/tree.h"

static int setup(void **state)
{
	(void)state;
	tree_create();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	tree_destroy();
	return 0;
}

static void test_parse(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool known;
		int64_t value;
	} cases[] = {
		{"42", true, 42},   {"42\n", true, 42},     {"-128000\n", true, -128000},
		{"0x10", true, 16}, {"010", true, 10},      {"", false, 0},
		{"\n", false, 0},   {"12 34", false, 0},    {"12MHz", false, 0},
		{"N/A", false, 0},  {"max", false, 0},      {"99999999999999999999", false, 0},
		{"1e3", false, 0},  {" 7 \t\r\n", true, 7}, {"9223372036854775807", true, INT64_MAX},
		{"--1", false, 0},  {"0x", false, 0},       {"\xff\xfe", false, 0},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int64_t value = 0;
		bool known = sensor_parse(cases[i].text, &value);
		if (known != cases[i].known || value != cases[i].value)
			fail_msg("\"%s\" is %d, %lld", cases[i].text, known, (long long)value);
	}
}

static void test_kept_open(void **state)
{
	(void)state;
	struct sensor sensor;
	int64_t value;
	char text[16];
	sensor_init(&sensor);
	assert_false(sensor_integer(&sensor, &value)); // not open
	assert_false(sensor_open(&sensor, "%s/none", tree_root));
	tree_write("value", "1\n");
	assert_true(sensor_open(&sensor, "%s/value", tree_root));
	assert_true(sensor_integer(&sensor, &value));
	assert_int_equal(value, 1);
	tree_write("value", "22\n");
	assert_true(sensor_integer(&sensor, &value));
	assert_int_equal(value, 22);
	tree_write("value", "");
	assert_false(sensor_integer(&sensor, &value));
	tree_write("value", "a long text that does not fit\n");
	assert_false(sensor_text(&sensor, text, sizeof text));
	assert_true(sensor_head(&sensor, text, sizeof text));
	assert_string_equal(text, "a long text tha");
	sensor_finish(&sensor);
	sensor_finish(&sensor);
	assert_false(sensor_is_open(&sensor));
}

static void test_folder_is_no_reading(void **state)
{
	(void)state;
	struct sensor sensor;
	int64_t value;
	sensor_init(&sensor);
	tree_write("folder/file", "1");
	if (sensor_open(&sensor, "%s/folder", tree_root))
		assert_false(sensor_integer(&sensor, &value));
	sensor_finish(&sensor);
}

static void test_path_too_long(void **state)
{
	(void)state;
	char name[SENSOR_PATH_BYTES + 10];
	struct sensor sensor;
	sensor_init(&sensor);
	memset(name, 'a', sizeof name - 1);
	name[sizeof name - 1] = 0;
	assert_false(sensor_open(&sensor, "/%s", name));
	assert_false(sensor_exists("/%s", name));
}

static void test_labels_in_odd_order(void **state)
{
	(void)state;
	static const char *const files[] = {"temp1_label",  "mem\n",          "temp2_label", "edge\n",
					    "temp3_input",  "20000\n",        "temp9_label", "junction\n",
					    "temp10_label", "Package id 0\n", NULL};
	tree_fill("labels", files);
	assert_int_equal(sensor_labelled(tree_path("labels"), "temp", "junction", false), 9);
	assert_int_equal(sensor_labelled(tree_path("labels"), "temp", "mem", false), 1);
	assert_int_equal(sensor_labelled(tree_path("labels"), "temp", "Package id", true), 10);
	assert_int_equal(sensor_labelled(tree_path("labels"), "temp", "Package id", false), 0);
	assert_int_equal(sensor_labelled(tree_path("labels"), "power", "edge", false), 0);
	assert_int_equal(sensor_labelled(tree_path("nowhere"), "temp", "edge", false), 0);
}

static void test_rate(void **state)
{
	(void)state;
	struct rate rate = {0};
	double per_s = -1;
	assert_false(rate_per_s(&rate, 1000, 0, 1000000000, &per_s)); // the first time
	assert_true(rate_per_s(&rate, 3000, 0, 2000000000, &per_s));
	assert_close(per_s, 2000);
	assert_true(rate_per_s(&rate, 3000, 0, 2500000000, &per_s));
	assert_close(per_s, 0);
	assert_false(rate_per_s(&rate, 4000, 0, 2500000000, &per_s)); // no time passed
	assert_false(rate_per_s(&rate, 10, 0, 3500000000, &per_s));   // went back: the counter was reset
	assert_true(rate_per_s(&rate, 110, 0, 4500000000, &per_s));
	assert_close(per_s, 100);
}

static void test_rate_wraps(void **state)
{
	(void)state;
	struct rate rate = {0};
	double per_s = -1;
	uint64_t wrap = UINT64_C(1) << 32;
	assert_false(rate_per_s(&rate, wrap - 100, wrap, 0, &per_s));
	assert_true(rate_per_s(&rate, 100, wrap, 1000000000, &per_s));
	assert_close(per_s, 200);
	rate = (struct rate){0};
	assert_false(rate_per_s(&rate, wrap + 100, wrap, 0, &per_s)); // past where it is said to wrap
	assert_false(rate_per_s(&rate, 100, wrap, 1000000000, &per_s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_kept_open),
		cmocka_unit_test(test_folder_is_no_reading),
		cmocka_unit_test(test_path_too_long),
		cmocka_unit_test(test_labels_in_odd_order),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_rate_wraps),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
