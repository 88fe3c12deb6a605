/* How fast copies between two GPUs are measured to be, by the driver that stands for NVIDIA's: its clock says what each
 * way takes (driver/standin.c), so the figure is known. */
#include "common/base/limits.h"
#include "engine/inside.h"
#include "engine/worker/verify.h"
#include "tests/engine/cuda/here.h"
#include "tests/engine/cuda/struck.h"

#include <math.h>

static struct exogpu_device *a, *b;

static int open_both(void **state)
{
	(void)state;
	strike.begin(-1, CUDA_SUCCESS, false);
	a = here_open(0);
	b = here_open(1);
	return 0;
}

// Nothing is left of it.
static int close_both(void **state)
{
	(void)state;
	exogpu_device_close(&b, NULL);
	exogpu_device_close(&a, NULL);
	strike.end();
	if (strikes->wrong[0])
		fail_msg("%s", strikes->wrong);
	return 0;
}

static void expect(const struct measured_copy *copy, double bytes_per_ns, bool direct)
{
	const double wanted = bytes_per_ns * 1e9;
	if (!(fabs(copy->bytes_per_s - wanted) < wanted * 1e-3))
		fail_msg("%.4g B/s, and %.4g is what it takes", copy->bytes_per_s, wanted);
	assert_int_equal(copy->direct, direct);
}

static void both_ways_of_a_link(void **state)
{
	struct measured_copy copy;
	(void)state;
	HERE_OK(measure_copies(a, b, &copy, &error));
	expect(&copy, STANDIN_PEER_BYTES_PER_NS, true);
	HERE_OK(measure_copies(b, a, &copy, &error));
	expect(&copy, STANDIN_PEER_BYTES_PER_NS, true);
}

static void a_link_that_is_refused_is_measured_as_it_goes_then(void **state)
{
	struct measured_copy copy;
	(void)state;
	strikes->result = CUDA_ERROR_NOT_FOUND;
	strikes->name = "cuCtxEnablePeerAccess";
	HERE_OK(measure_copies(a, b, &copy, &error));
	strikes->name = NULL;
	expect(&copy, STANDIN_STAGED_BYTES_PER_NS, false);
}

static void memory_that_is_short_is_left_to_who_uses_it(void **state)
{
	struct exogpu_buffer *most = NULL;
	struct measured_copy copy;
	struct error error = {0};
	uint64_t total = 0, unused = 0;
	(void)state;
	assert_int_equal(exogpu_device_memory(b, &total, &unused, &error), STATUS_OK);
	assert_int_equal(exogpu_buffer_create(b, &most, unused - (512 << 20), EXOGPU_MEMORY_DEVICE, &error), STATUS_OK);
	assert_int_equal(measure_copies(a, b, &copy, &error), STATUS_OUT_OF_MEMORY);
	assert_string_equal(error.message, "only 512 MiB of a device's memory are free, which is left to its users");
	assert_true(copy.bytes_per_s <= 0);
	exogpu_buffer_destroy(&most);
	assert_int_equal(measure_copies(a, b, &copy, &error), STATUS_OK);
}

// Of each of its calls the failure is told, or it is measured all the same; never is there a figure without the way.
static void each_call_that_fails(void **state)
{
	unsigned failed = 0;
	(void)state;
	for (long place = 0;; place++) {
		struct measured_copy copy;
		struct error error = {0};
		strikes->struck = NULL;
		strikes->result = CUDA_ERROR_OUT_OF_MEMORY;
		strikes->countdown = place;
		const enum status status = measure_copies(a, b, &copy, &error);
		const bool struck = strikes->struck;
		strikes->countdown = -1;
		if (status) {
			failed++;
			assert_true(struck && error.message[0]);
			assert_string_not_equal(strikes->struck, "cuMemcpyPeerAsync"); // another way is there
		} else {
			assert_true(copy.bytes_per_s > 0);
		}
		close_both(NULL);
		open_both(NULL);
		if (!struck)
			break;
	}
	assert_true(failed > 10);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_both, close_both)
	const struct CMUnitTest tests[] = {
		TEST(both_ways_of_a_link),
		TEST(a_link_that_is_refused_is_measured_as_it_goes_then),
		TEST(memory_that_is_short_is_left_to_who_uses_it),
		TEST(each_call_that_fails),
	};
	strike_load(NULL);
	strikes->capability = 80;
	strikes->countdown = -1;
	if (!here_find(2))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
