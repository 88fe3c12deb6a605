/* The conformance suite on the CPU back end. */
#include "tests/engine/conformance/conformance.h"

int main(void)
{
	return conformance_run("cpu");
}
