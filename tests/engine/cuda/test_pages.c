/* Pages of a stage, out and in, with the driver that stands for NVIDIA's: every byte that is written is read, for heads
 * of every size, of all slices, of latents. What kernels make of them only a GPU tells (engine/cuda/stage). */
#include "tests/engine/conformance/stage.h"
#include "tests/engine/cuda/struck.h"

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stage_pages_bytes, conformance_begin, conformance_end)};
	strike_load(NULL);
	strikes->capability = 90;
	strikes->countdown = -1;
	return conformance_run_tests("cuda", tests, 1);
}
