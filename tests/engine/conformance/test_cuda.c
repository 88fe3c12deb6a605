/* The conformance suite on the CUDA back end. */
#include "tests/engine/conformance/conformance.h"

int main(void)
{
	return conformance_run("cuda");
}
