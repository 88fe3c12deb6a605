/* The common suite on the CUDA back end. */
#include "tests/engine/suite.h"

int main(void)
{
	return suite_run(&backend_cuda);
}
