/* The common suite on the CPU back end. */
#include "tests/engine/suite.h"

int main(void)
{
	return suite_run(&backend_cpu);
}
