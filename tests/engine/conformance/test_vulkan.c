/* The conformance suite on the Vulkan back end. */
#include "tests/engine/conformance/conformance.h"

int main(void)
{
	return conformance_run("vulkan");
}
