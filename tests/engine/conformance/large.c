/* The part of the conformance suite that needs gigabytes, on the CPU back end: a program of its own, so that ./dev test
 * runs it beside nothing else, with the release's optimisation. */
#include "tests/engine/conformance/conformance.h"

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_beyond_32_bits, conformance_begin, conformance_end)};
	setenv("EXOGPU_TEST_EXHAUST", "1", 1);
	return conformance_run_tests("cpu", tests, sizeof(tests) / sizeof(*tests));
}
