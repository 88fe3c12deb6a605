/* The common suite on the Vulkan back end. */
#include "tests/engine/suite.h"

int main(void)
{
	return suite_run(&backend_vulkan);
}
