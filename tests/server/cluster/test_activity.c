/* What a device is doing, by its readings: each second one, at times that the test gives. */
#include "server/cluster/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static struct {
	struct cluster cluster;
	struct cluster_node node;
	struct cluster_device device;
	bool worked_on;
	int64_t now_ms;
	unsigned told; // changes
} world;

void __wrap_cluster_push_change(struct cluster *cluster, const struct cluster_node *node,
				const struct cluster_device *device, const struct change *change, int64_t at_ms);
void __wrap_cluster_push_change(struct cluster *cluster, const struct cluster_node *node,
				const struct cluster_device *device, const struct change *change, int64_t at_ms)
{
	(void)at_ms;
	assert_ptr_equal(cluster, &world.cluster);
	assert_ptr_equal(node, &world.node);
	assert_ptr_equal(device, &world.device);
	assert_string_equal(change->kind, "device.state");
	world.told++;
}

static bool is_worked_on(void *context, const struct cluster_device *device)
{
	(void)context, (void)device;
	return world.worked_on;
}

static int begin(void **state)
{
	(void)state;
	memset(&world, 0, sizeof world);
	world.now_ms = 1000;
	world.cluster.works = is_worked_on;
	world.device.node = &world.node;
	world.device.record = json_new_object();
	world.device.telemetry = json_new_object();
	json_set_string(world.device.record, "kind", "gpu");
	return 0;
}

static int end(void **state)
{
	(void)state;
	json_destroy(&world.device.record);
	json_destroy(&world.device.telemetry);
	return 0;
}

// Readings of this use, one a second; what the device is doing after each is to be that.
static void read_use(double percent, unsigned seconds, enum activity is)
{
	for (unsigned i = 0; i < seconds; i++) {
		world.now_ms += 1000;
		json_set_number(world.device.telemetry, "utilization_percent", percent);
		cluster_judge_activity(&world.cluster, &world.device, world.now_ms);
		assert_int_equal(world.device.activity, is);
	}
}

static void compute(void)
{
	world.worked_on = true;
	read_use(80, 2, ACTIVITY_IDLE);
	read_use(80, 1, ACTIVITY_COMPUTING);
}

static void test_pause(void **state)
{
	(void)state;
	compute();
	for (int i = 0; i < 3; i++) {
		read_use(0, 9, ACTIVITY_COMPUTING);
		read_use(30, 1, ACTIVITY_COMPUTING); // so the 10 s begin anew
	}
	read_use(0, 10, ACTIVITY_COMPUTING);
	read_use(0, 1, ACTIVITY_IDLE);
	assert_int_equal(world.told, 2);
}

// The work is over, and something else makes the use swing about 5 %.
static void test_swings(void **state)
{
	(void)state;
	compute();
	world.worked_on = false;
	for (int i = 0; i < 5; i++) {
		read_use(4, 1, ACTIVITY_COMPUTING);
		read_use(6, 1, ACTIVITY_COMPUTING);
	}
	read_use(4, 1, ACTIVITY_IDLE);
	assert_int_equal(world.told, 2);
	read_use(6, 30, ACTIVITY_IDLE); // under 10 %
	read_use(60, 2, ACTIVITY_IDLE);
	read_use(60, 1, ACTIVITY_OTHER);
}

static void test_of_others(void **state)
{
	(void)state;
	compute();
	world.worked_on = false;
	read_use(6, 10, ACTIVITY_COMPUTING);
	read_use(6, 1, ACTIVITY_OTHER);
	read_use(4, 10, ACTIVITY_OTHER);
	read_use(4, 1, ACTIVITY_IDLE);
	assert_int_equal(world.told, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_pause, begin, end),
					   cmocka_unit_test_setup_teardown(test_swings, begin, end),
					   cmocka_unit_test_setup_teardown(test_of_others, begin, end)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
