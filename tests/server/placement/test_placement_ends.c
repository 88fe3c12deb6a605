/* Devices of nodes that end soon are used only where nothing else holds the model. */
#include "tests/server/placement/placed.h"

static void find(void)
{
	struct error error = {0};
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
}

static void a_device_that_stays_is_taken_before_a_faster_one(void **unused)
{
	(void)unused;
	make_model(22, 80000000);
	make_device(0, PLACE_CUDA, 16 * GIB);
	make_device(1, PLACE_CUDA, 16 * GIB);
	devices[0].bandwidth = 2e12;
	want(2);
	find();
	assert_int_equal(placement.stages[0].device, 0);
	devices[0].ends_soon = true;
	find();
	assert_true(placement.feasible);
	assert_int_equal(placement.stage_count, 1);
	assert_int_equal(placement.stages[0].device, 1);
	assert_true(says("dev_0 is left out: its machine leaves within 10 minutes"));
}

static void it_is_taken_where_nothing_else_holds_the_model(void **unused)
{
	(void)unused;
	make_model(22, 80000000);
	make_device(0, PLACE_CUDA, 16 * GIB);
	make_device(1, PLACE_CUDA, GIB / 2);
	devices[0].ends_soon = true;
	want(2);
	find();
	assert_true(placement.feasible);
	assert_int_equal(placement.stages[0].device, 0);
	devices[1].unusable = "it is draining"; // there is no other
	find();
	assert_true(placement.feasible);
	devices[1].unusable = NULL;
	devices[1].ends_soon = true; // all end
	find();
	assert_true(placement.feasible);
}

static void a_pin_is_kept(void **unused)
{
	(void)unused;
	make_model(22, 80000000);
	make_device(0, PLACE_CUDA, 16 * GIB);
	make_device(1, PLACE_CUDA, 16 * GIB);
	devices[0].ends_soon = true;
	want(2);
	const struct placement_pin pin = {.device = 0, .layer_count = 22};
	wanted.pins = &pin;
	wanted.pin_count = 1;
	find();
	assert_true(placement.feasible);
	assert_int_equal(placement.stages[0].device, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_that_stays_is_taken_before_a_faster_one),
		cmocka_unit_test(it_is_taken_where_nothing_else_holds_the_model),
		cmocka_unit_test(a_pin_is_kept),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
